"""Looking at every value of a network: dumps, ranges, declared types, equality between runs.

The values come from a program of its own in which every value is an output, so that nothing here
changes what is timed or what the network's outputs are. What the backend fuses otherwise is
computed apart then: last bits of inner values may differ from those inside a fused kernel.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loadrun.backends.base import CompileOptions
from loadrun.session import Session
from mgeserial.dtypes import Array
from mgeserial.errors import InputError, UnsupportedError, printable
from mgeserial.format.atomic import write_atomic
from mgeserial.format.tensor_dump import write_tensor_dump
from mgeserial.ir.copying import copy_graph, reachable
from mgeserial.ir.graph import Graph, Node, Output, Value
from mgeserial.ir.inference import Inference, call_of, infer
from mgeserial.ir.running import run_node
from mgeserial.ir.types import ABSENT, TensorType
from mgeserial.ops.numerics import to_real
from mgeserial.summary import summarize_values

__all__ = [
    "Observed",
    "check_batches",
    "check_declared",
    "check_range",
    "check_repeated",
    "dump_binary",
    "lines_of",
    "observe",
]

_SHOWN = 8
_RUNS = 3


@dataclass(frozen=True, slots=True)
class Observed:
    """A value of one run.

    Attributes:
        index: Number of the value among those looked at, from 0.
        name: Its name.
        node: The operator that made it, of the graph that was looked at.
        declared: What inference says of it.
        array: Its elements.
    """

    index: int
    name: str
    node: Node
    declared: TensorType
    array: Array


def observe(
    graph: Graph,
    backend: str,
    feeds: Mapping[str, Array],
    options: CompileOptions | None = None,
) -> Iterator[list[Observed]]:
    """Run a network again and again; every value but weights, in the graph's order.

    Args:
        graph: The network as it runs.
        backend: What computes.
        feeds: Inputs by name.
        options: How to compile.
    """
    copy, _ = copy_graph(graph)
    values = _interesting(copy)
    shapes = {v: feeds[n].shape for n, v in zip(copy.input_names, copy.inputs, strict=True)}
    inference = infer(copy, shapes)
    if backend == "reference" or any(n.op.name.startswith("CondExec") for n in copy.nodes):
        while True:
            yield list(_by_reference(copy, values, inference, feeds))
    copy.set_outputs([Output(v, f"{k}", 0) for k, v in enumerate(values)])
    with Session(copy, backend, options=options) as session:
        while True:
            arrays = list(session.run(feeds).values())
            yield [
                Observed(k, v.display_name, v.node, inference.types[v], array)
                for k, (v, array) in enumerate(zip(values, arrays, strict=True))
            ]


def _interesting(graph: Graph) -> list[Value]:
    live = reachable(graph.outputs)
    return [
        v
        for n in graph.nodes
        if n in live and not (n.tensors and not n.is_input)
        for v in n.outputs
    ]


def _by_reference(
    graph: Graph, values: Sequence[Value], inference: Inference, feeds: Mapping[str, Array]
) -> Iterator[Observed]:
    """Operator by operator; values of branches that are not taken are left out."""
    place = {v: k for k, v in enumerate(values)}
    found: dict[Value, Array] = {
        v: np.ascontiguousarray(feeds[n])
        for n, v in zip(graph.input_names, graph.inputs, strict=True)
    }
    live = reachable(graph.outputs)
    for node in graph.nodes:
        if node not in live:
            continue
        if not node.is_input:
            arrays = [found[v] for v in node.inputs]
            results = run_node(node, call_of(node, inference), arrays)
            found.update(zip(node.outputs, results, strict=True))
        for value in node.outputs:
            if value in place and found[value] is not ABSENT:
                yield Observed(
                    place[value],
                    value.display_name,
                    node,
                    inference.types[value],
                    np.array(found[value]),
                )


# -- dumps ---------------------------------------------------------------------------------------


def lines_of(observed: Sequence[Observed]) -> Iterator[str]:
    """One line a value: operator, type, figures, the first numbers."""
    for item in observed:
        figures = summarize_values(item.array, item.declared.dtype).as_data()
        shown = ", ".join(
            f"{k}={'n/a' if x is None else format(x, '.6g')}" for k, x in figures.items()
        )
        flat = item.array.reshape(-1)[:_SHOWN]
        more = ", ..." if item.array.size > _SHOWN else ""
        yield (
            f"value {item.index} {printable(item.name)} {item.node.op.name}: "
            f"{item.declared.dtype} {tuple(item.array.shape)} {shown} "
            f"[{', '.join(str(x) for x in flat)}{more}]"
        )


def dump_binary(observed: Sequence[Observed], folder: str) -> int:
    """Write one file a value, as load_and_run does, and an index.

    Returns:
        Number of files. What the form has no number for is in the index without a file.

    Raises:
        InputError: The folder or a file cannot be written.
    """
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror or error}", path=folder) from error
    entries = []
    count = 0
    for item in observed:
        name: str | None = f"var{item.index:06d}"
        dtype = item.declared.dtype
        try:
            write_tensor_dump(os.path.join(folder, str(name)), item.name, item.array, dtype.kind)
            count += 1
        except UnsupportedError:
            name = None
        entries.append(
            {
                "file": name,
                "name": item.name,
                "operator": item.node.op.name,
                "operator_index": item.node.index,
                "dtype": dtype.kind.name,
                "scale": dtype.scale,
                "zero_point": dtype.zero_point,
                "shape": list(item.array.shape),
            }
        )
    document = {"kind": "loadrun.values", "schema": 1, "values": entries}
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    write_atomic(os.path.join(folder, "index.json"), text.encode("utf-8", "surrogateescape"))
    return count


# -- checks: each gives one line a problem -------------------------------------------------------


def check_range(observed: Sequence[Observed], limit: float) -> list[str]:
    """Values that are NaN or beyond the limit, in the graph's order."""
    problems = []
    for item in observed:
        if item.array.dtype.kind == "c" or not item.array.size:
            continue
        real = np.abs(np.asarray(to_real(item.array, item.declared.dtype), np.float64))
        bad = ~(real <= limit)
        if bad.any():
            at = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
            problems.append(
                f"{item.node.describe()}: {int(bad.sum())} of {bad.size} elements are beyond "
                f"{limit:g}, the first at {list(at)}: {item.array[at]}"
            )
    return problems


def check_declared(observed: Sequence[Observed]) -> list[str]:
    """Values whose shape or element type is not what inference says."""
    problems = []
    for item in observed:
        want, got = item.declared, item.array
        if want.is_static and want.dims != got.shape:
            problems.append(
                f"{item.node.describe()}: inferred shape {want.dims}, computed {got.shape}"
            )
        if got.dtype != want.dtype.storage:
            problems.append(
                f"{item.node.describe()}: inferred {want.dtype} held as {want.dtype.storage}, "
                f"computed {got.dtype}"
            )
    return problems


def check_repeated(runs: Iterator[list[Observed]], step: int, start: int) -> tuple[int, list[str]]:
    """Compare values of several runs, bit by bit; what depends on random numbers is left out.

    Args:
        runs: As `observe` makes them.
        step: Every so many values.
        start: The first one to look at.

    Returns:
        Number of values compared, and one line for each that differs.
    """
    first = {o.index: o for o in next(runs) if o.index >= start and (o.index - start) % step == 0}
    random: set[Node] = set()
    for item in first.values():
        _mark_random(item.node, random)
    kept = {k: o for k, o in first.items() if o.node not in random}
    problems: dict[int, str] = {}
    for run in range(1, _RUNS):
        for item in next(runs):
            before = kept.get(item.index)
            if before is None or item.index in problems:
                continue
            if before.array.tobytes() != item.array.tobytes():
                problems[item.index] = (
                    f"{item.node.describe()}: run {run} gives other bits than run 0"
                )
    return len(kept), list(problems.values())


def _mark_random(node: Node, random: set[Node]) -> None:
    """Add the node to `random` when it or anything before it draws random numbers or has state."""
    needed = reachable(list(node.outputs))
    if any(not getattr(n.op, "is_pure", True) for n in needed if not n.is_input):
        random.add(node)


def check_batches(session: Session, feeds: Mapping[str, Array]) -> tuple[int, list[str]]:
    """Whether each image of a batch gives the same bits alone as in the batch.

    Returns:
        Size of the batch, and one line for each output and image that differs.

    Raises:
        InputError: The inputs have no batch in common.
        ShapeError: The network does not run with a batch of one.
    """
    sizes = {a.shape[0] for a in feeds.values() if a.ndim > 1}
    if len(sizes) != 1:
        raise InputError(
            "the inputs have no first dimension in common, so there is no batch",
            hint="leave --binary-equal-between-batch out",
        )
    (batch,) = sizes
    whole = session.run(feeds)
    problems = []
    for k in range(batch):
        one = {n: a[k : k + 1] if a.ndim > 1 else a for n, a in feeds.items()}
        for name, array in session.run(one).items():
            together = whole[name]
            if together.shape[:1] != (batch,) or array.shape[:1] != (1,):
                continue
            if np.ascontiguousarray(together[k : k + 1]).tobytes() != array.tobytes():
                problems.append(
                    f"output `{printable(name)}`: image {k} of {batch} alone gives other bits"
                )
    return batch, problems
