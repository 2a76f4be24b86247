"""Writing models: graphs laid out in full, checked against every limit, then streamed to disk.

Nothing is opened for writing before all graphs are translated and laid out, so an error leaves
every file as it was. Values are never gathered in memory: those of a loaded model go from file to
file, arrays are written where they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO

from mgeserial.convert.containers import Keep, plan_graphs
from mgeserial.errors import InputError, UnsupportedError
from mgeserial.format import write_v1, write_v2
from mgeserial.format.atomic import write_atomic, write_to
from mgeserial.format.container import TEST_MAGIC, Layout, open_source, walk
from mgeserial.format.flatbuild import Part
from mgeserial.format.outgoing import OutGraph
from mgeserial.format.target import DEFAULT_RELEASE, Target
from mgeserial.ir.graph import Graph
from mgeserial.ir.model import Model

__all__ = ["Saved", "SavedGraph", "dumps", "save"]

_MOST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class SavedGraph:
    """What was written of one graph; sizes in bytes."""

    container: str
    operators: int
    nbytes: int
    tensor_bytes: int


@dataclass(frozen=True, slots=True)
class Saved:
    """What was written: release, whole size in bytes (what was there before included), graphs."""

    release: str
    nbytes: int
    graphs: tuple[SavedGraph, ...]

    @property
    def tensor_bytes(self) -> int:
        """Bytes of tensor values in the graphs written."""
        return sum(g.tensor_bytes for g in self.graphs)

    @property
    def overhead(self) -> int:
        """Bytes of the graphs written that are not tensor values."""
        return sum(g.nbytes for g in self.graphs) - self.tensor_bytes


def save(
    model: Model | Graph | Sequence[Graph],
    path: str | os.PathLike[str] | IO[bytes],
    *,
    format: str | None = None,
    release: str = DEFAULT_RELEASE,
    append: bool = False,
    testcases: bool | None = None,
    keep_var_name: int | None = None,
    keep_param_name: bool | None = None,
    keep_opr_name: bool | None = None,
    keep_metadata: bool = True,
) -> Saved:
    """Write a model to a file.

    A file is replaced as a whole: until everything is on the disk the old one stays. A binary file
    object is written at its position, so that several calls put several graphs into it.

    Args:
        model: A model (with its test cases), a graph, or several.
        path: The file to write, which may be the one the model was loaded from.
        format: `v2`, `v1` (header MGBC) or `mgbs` (the old header and ids, which every release
            reads). None: the one each graph was loaded from; `v2` for graphs made here.
        release: The release of MegEngine that shall read the file: it decides about tables, ids
            and numbers.
        append: Add the graphs to those of a file that exists already.
        testcases: Whether the graphs after the first are test cases of it (None: as in the model).
        keep_var_name: 0 no names of values, 1 those of graph outputs, 2 all (v2: 1 is as 2); None:
            those that are there. Inputs always have theirs.
        keep_param_name: Names of parameters; None: those that are there.
        keep_opr_name: Names of operators; None: those that are there.
        keep_metadata: Keep the graph's metadata.

    Returns:
        Sizes of what was written.

    Raises:
        ConversionError: The format or release cannot express everything; lists it all.
        UnsupportedError: More than the format can hold.
        GraphError: A graph is not well formed.
        InputError: No such format or release, or the file cannot be written.

    Example::

        model = mgeserial.load("net.mge")
        mgeserial.save(model, "old.mge", format="mgbs", release="0.5.1")
    """
    keep = Keep(
        var_names=keep_var_name,
        param_names=keep_param_name,
        operator_names=keep_opr_name,
        metadata=keep_metadata,
    )
    if append and _is_file(path):
        raise InputError("append=True is for paths: an open file is written at its position")
    parts, saved = _lay_out(model, _targets(model, format, release), keep, testcases)
    if append and not _is_file(path) and os.path.exists(os.fspath(path)):  # type: ignore[arg-type]
        before = _before(os.fspath(path), testcases)  # type: ignore[arg-type]
        parts.insert(0, before)
        saved = Saved(saved.release, saved.nbytes + before.nbytes, saved.graphs)
    _write(path, parts)
    return saved


def dumps(
    model: Model | Graph | Sequence[Graph],
    *,
    format: str | None = None,
    release: str = DEFAULT_RELEASE,
    testcases: bool | None = None,
    keep_var_name: int | None = None,
    keep_param_name: bool | None = None,
    keep_opr_name: bool | None = None,
    keep_metadata: bool = True,
) -> bytes:
    """The bytes that `save` would write; the options and errors are its."""
    keep = Keep(
        var_names=keep_var_name,
        param_names=keep_param_name,
        operator_names=keep_opr_name,
        metadata=keep_metadata,
    )
    parts, _ = _lay_out(model, _targets(model, format, release), keep, testcases)
    return b"".join([p if isinstance(p, (bytes, memoryview)) else p.tobytes() for p in parts])


def _is_file(path: object) -> bool:
    return hasattr(path, "write")


def _graphs(model: Model | Graph | Sequence[Graph]) -> list[Graph]:
    if isinstance(model, Graph):
        return [model]
    if isinstance(model, Model):
        graphs = list(model.graphs)
    else:
        graphs = list(model) if isinstance(model, Iterable) else [model]
    if not graphs or not all(isinstance(g, Graph) for g in graphs):
        got = type(model).__name__ + ("" if graphs else " without graphs")
        raise InputError(f"expected a model, a graph or several, got {got}")
    return graphs


def _targets(
    model: Model | Graph | Sequence[Graph], format: str | None, release: str
) -> list[Target]:
    """A target for each graph: the one asked for, else the container it came from."""
    graphs = _graphs(model)
    if format is not None:
        return [Target.of(format, release)] * len(graphs)
    infos = model.info.graphs if isinstance(model, Model) and model.info is not None else ()
    names = [info.container for info in infos][: len(graphs)] or ["mgv2"]
    names += names[-1:] * (len(graphs) - len(names))
    return [Target.of(name, release) for name in names]


def _lay_out(
    model: Model | Graph | Sequence[Graph],
    targets: Sequence[Target],
    keep: Keep,
    testcases: bool | None,
) -> tuple[list[Part], Saved]:
    """Parts of the whole file in order."""
    graphs = _graphs(model)
    if testcases is None:
        info = model.info if isinstance(model, Model) else None
        testcases = info is not None and info.testcases is not None
    parts: list[Part] = []
    if testcases:
        parts.append(TEST_MAGIC + (len(graphs) - 1).to_bytes(4, "little"))
    total = sum(len(p) for p in parts if isinstance(p, bytes))
    saved = []
    for plan in plan_graphs(list(zip(graphs, targets, strict=True)), keep):
        laid, info_of = _assemble(plan)
        parts += laid
        saved.append(info_of)
        total += info_of.nbytes
    return parts, Saved(targets[0].release, total, tuple(saved))


def _assemble(plan: OutGraph) -> tuple[list[Part], SavedGraph]:
    """Lay one graph out, within the limits of its container."""
    container = plan.target.container
    values = sum(t.nbytes for o in plan.operators for t in o.tensors)
    if plan.target.is_v2 and values > _MOST:
        raise _too_large(values)
    parts = (write_v2 if plan.target.is_v2 else write_v1).assemble(plan)
    size = sum(p.nbytes if not isinstance(p, bytes) else len(p) for p in parts)
    if plan.target.is_v2 and size > _MOST:
        raise _too_large(size)
    if not plan.target.is_v2 and size - values > _MOST:
        raise UnsupportedError(f"a v1 graph without its tensors has at most {_MOST} bytes")
    return parts, SavedGraph(container, len(plan.operators), size, values)


def _too_large(size: int) -> UnsupportedError:
    return UnsupportedError(
        f"a v2 graph has at most {_MOST} bytes, this one takes {size}",
        hint="format='v1' holds up to 4 GiB in each tensor",
    )


def _before(path: str, testcases: bool | None) -> memoryview:
    """The content of a file that graphs are added to, when it is one of whole graphs."""
    source, layout = open_source(path), Layout()
    for _ in walk(source, layout):
        pass
    if layout.testcases is not None or testcases:
        raise InputError(
            "graphs cannot be appended to a file with test cases",
            path=path,
            hint="`mgeserial testcase add` adds a test case",
        )
    if layout.lite is not None:
        raise InputError("graphs cannot be appended to a MegEngine Lite package", path=path)
    return source.data


def _write(path: str | os.PathLike[str] | IO[bytes], parts: list[Part]) -> None:
    if isinstance(path, (str, os.PathLike)):
        write_atomic(path, parts, durable=True)
    elif hasattr(path, "write"):
        write_to(path, parts)
    else:
        raise InputError(f"expected a path or an open binary file, got {type(path).__name__}")
