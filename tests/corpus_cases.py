"""Cases of the corpus: model files with inputs and the outputs they must give.

A case is a folder `<family>/<case>/` with `case.json`; tests/corpus/README.md describes the files
and the keys. This module is the only place that knows them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FormatTag = Literal["v1", "v2", "v2nc"]

CHECKOUT = Path(__file__).resolve().parent.parent
TAGS: tuple[FormatTag, ...] = ("v1", "v2", "v2nc")


def compact_root() -> Path:
    """The part of the corpus that is kept in this repository."""
    return CHECKOUT / "tests" / "corpus"


def corpus_root() -> Path:
    """The largest corpus at hand: `MGE_CORPUS`, else one beside the checkout, else the compact one.

    Raises:
        FileNotFoundError: `MGE_CORPUS` is set and no folder: falling back would hide the mistake.
    """
    named = os.environ.get("MGE_CORPUS")
    if named:
        if not Path(named).is_dir():
            raise FileNotFoundError(f"MGE_CORPUS names no folder: {named}")
        return Path(named)
    beside = CHECKOUT.parent / "shared" / "corpus"
    return beside if beside.is_dir() else compact_root()


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far an output may lie from its expected values.

    Floats: `|got - expected| <= atol + rtol * |expected|`, in float64. Integers, bool and stored
    quantized values: `|got - expected| <= int_atol`, exactly.
    """

    rtol: float
    atol: float
    int_atol: int
    by_dtype: Mapping[str, tuple[float, float]]

    def for_dtype(self, dtype: np.dtype[Any]) -> tuple[float, float]:
        """`(rtol, atol)` for outputs of this float dtype."""
        return self.by_dtype.get(dtype.name, (self.rtol, self.atol))


@dataclass(frozen=True, slots=True)
class Model:
    """One file of a case: the same network in one format."""

    path: Path
    tag: FormatTag


@dataclass(frozen=True, slots=True)
class Run:
    """One graph of one file, what to feed it and what must come out.

    Attributes:
        id: Unique and readable, for the name of a test.
        model: The file.
        graph_index: Which graph of the file, from 0.
        inputs: By name; quantized tensors as stored integers, one per element.
        expected: By name, in the order of the graph's outputs; bfloat16 as uint16 bits.
        tolerance: How near is near enough.
        shape_only: Random numbers: only shapes and dtypes can be compared.
        output_layout: The file's outputs have this layout, `expected` is NCHW; None: the same.
        megengine_answer: What MegEngine's CPU answers where that is known or suspected wrong.
    """

    id: str
    model: Model
    graph_index: int
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]
    tolerance: Tolerance
    shape_only: bool
    output_layout: str | None
    megengine_answer: Mapping[str, Array] | None


@dataclass(frozen=True, slots=True)
class Case:
    """A folder of the corpus; `case` is the content of its `case.json`."""

    path: Path
    family: str
    name: str
    case: Mapping[str, Any]

    @property
    def id(self) -> str:
        """`family/name`, for the name of a test."""
        return f"{self.family}/{self.name}"

    def models(self) -> list[Model]:
        """The graph files (`.mge`), v1 first; empty for pickles."""
        paths = ((tag, self.path / f"model.{tag}.mge") for tag in TAGS)
        return [Model(path, tag) for tag, path in paths if path.exists()]

    def source(self) -> Model | None:
        """Layout family: the same graph before the transformation, written as v1."""
        path = self.path / "source.v1.mge"
        return Model(path, "v1") if path.exists() else None

    def arrays(self, name: str) -> dict[str, Array]:
        """The arrays of an `.npz` of this case, in the order of the file; {} where it is absent."""
        return load_npz(self.path / name) if (self.path / name).exists() else {}

    def runs(self, model: Model) -> list[Run]:
        """What to run in `model`, one of `models()`.

        Empty when nobody knows the outputs: a file with an external operator is for reading only.

        Raises:
            ValueError: The case says nothing about outputs of that file.
        """
        name = model.path.name
        if "runs" in self.case:
            return [
                self._run(model, k, entry["graph"], entry["inputs"], entry["expected"])
                for k, entry in enumerate(self.case["runs"])
                if entry["outputs"]
            ]
        expected = self.case.get("expected_files", {}).get(name)
        if expected is None:
            raise ValueError(f"{self.id}: no expected outputs for {name}")
        return [self._run(model, 0, 0, "inputs.npz", expected)]

    def source_runs(self) -> list[Run]:
        """The same inputs through `source()`: it has the outputs of the transformed file."""
        model = self.source()
        return [] if model is None else [self._run(model, 0, 0, "inputs.npz", "expected.npz")]

    def _run(self, model: Model, k: int, graph: int, inputs: str, expected: str) -> Run:
        is_source = model.path.name.startswith("source.")
        # Such cases have one run, and MegEngine gives the same answer for each of their files.
        answer = self.arrays("megengine_answer.npz") if k == 0 and not is_source else {}
        return Run(
            id=f"{self.id}/{model.path.stem}" + (f"#{k}" if "runs" in self.case else ""),
            model=model,
            graph_index=graph,
            inputs=self._asked_for(model, self.arrays(inputs)),
            expected=self.arrays(expected),
            tolerance=_tolerance(self.case),
            shape_only=self.case.get("compare") == "shape",
            output_layout=None if is_source else self.case.get("output_layout"),
            megengine_answer=answer or None,
        )

    def _asked_for(self, model: Model, arrays: dict[str, Array]) -> dict[str, Array]:
        """Those of the arrays that the file asks for: an npz may hold more."""
        missing = self.case.get("inputs_missing_in", {}).get(model.path.name, ())
        # With several runs the list is that of graph 0, and each run's npz holds what it needs.
        listed = None if "runs" in self.case else self.case.get("inputs_in_file")
        return {
            name: array
            for name, array in arrays.items()
            if name not in missing and (listed is None or name in listed)
        }


def iter_cases(root: Path | None = None, families: Iterable[str] | None = None) -> Iterator[Case]:
    """Cases below `root` (default: `corpus_root()`), in order of family and name.

    Args:
        root: Folder of the families.
        families: Only these; one that is not there is an error, not an empty answer.

    Raises:
        FileNotFoundError: A named family has no folder, or there is no case at all.
    """
    root = corpus_root() if root is None else root
    wanted = sorted(families) if families is not None else None
    for family in wanted or ():
        if not (root / family).is_dir():
            raise FileNotFoundError(f"no family {family!r} in {root}")
    found = False
    for path in sorted(root.glob("*/*/case.json")):
        folder = path.parent
        if wanted is not None and folder.parent.name not in wanted:
            continue
        found = True
        case = json.loads(path.read_text(encoding="utf-8"))
        yield Case(folder, folder.parent.name, folder.name, case)
    if not found:
        raise FileNotFoundError(f"no case in {root}")


def iter_models(
    root: Path | None = None, families: Iterable[str] | None = None
) -> Iterator[tuple[Case, Model]]:
    """Each graph file of each case, `source.v1.mge` excluded."""
    for case in iter_cases(root, families):
        for model in case.models():
            yield case, model


def load_npz(path: Path) -> dict[str, Array]:
    """Arrays of an `.npz` by name, in the order of the file; nothing is unpickled."""
    with np.load(path, allow_pickle=False) as data:
        return {name: data[name] for name in data.files}


def compare(run: Run, outputs: Mapping[str, Array]) -> list[str]:
    """How outputs differ from what the run expects: one line each, [] when they agree.

    Outputs are matched by position, never by name. Shapes and dtypes must be equal; then floats
    are compared in float64 with NaN equal to NaN and infinities equal to themselves, all else in
    integers.

    Args:
        run: What was run.
        outputs: In the order of the graph's outputs; raw stored values as in `Run.expected`.
    """
    if len(outputs) != len(run.expected):
        return [f"expected {len(run.expected)} outputs, got {len(outputs)}"]
    found = []
    for k, (name, got) in enumerate(outputs.items()):
        want_name, want = list(run.expected.items())[k]
        label = f"output {k} {want_name!r}" + (f" (as {name!r})" if name != want_name else "")
        problem = _difference(run, _to_nchw(run.output_layout, np.asarray(got), want), want)
        if problem:
            found.append(f"{label}: {problem}")
    return found


def _difference(run: Run, got: Array, want: Array) -> str | None:
    if got.dtype != want.dtype:
        return f"expected dtype {want.dtype}, got {got.dtype}"
    if got.shape != want.shape:
        return f"expected shape {want.shape}, got {got.shape}"
    if run.shape_only or want.size == 0:
        return None
    if want.dtype.kind == "f":
        rtol, atol = run.tolerance.for_dtype(want.dtype)
        g, w = got.astype(np.float64), want.astype(np.float64)
        same = (g == w) | (np.isnan(g) & np.isnan(w))
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.where(same, 0.0, np.abs(g - w))
            near = np.isfinite(w) & (error <= atol + rtol * np.abs(w))
        limit = f"rtol {rtol:g}, atol {atol:g}"
        return _worst(got, want, error, ok=same | near, limit=limit)
    if want.dtype.kind not in "biu":
        return f"expected values of dtype {want.dtype} cannot be compared"
    # Python integers: exact for every width, and the corpus' arrays are small.
    distance = np.abs(got.astype(object) - want.astype(object)).astype(object)
    ok = (distance <= run.tolerance.int_atol).astype(bool)
    limit = f"int_atol {run.tolerance.int_atol}"
    return _worst(got, want, distance.astype(np.float64), ok=ok, limit=limit)


def _worst(
    got: Array, want: Array, error: Array, *, ok: npt.NDArray[np.bool_], limit: str
) -> str | None:
    """None when all is well, else how many elements are off and the worst of them."""
    if ok.all():
        return None
    error = np.where(ok, -1.0, np.where(np.isnan(error), np.inf, error))
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(error)), error.shape))
    return (
        f"{int((~ok).sum())} of {ok.size} elements differ; worst at {at}: expected {want[at]}, "
        f"got {got[at]} ({limit})"
    )


def _nhwcd4_to_nchw(array: Array, want: Array) -> Array:
    """`(n, h, ceil(c / 4), w, 4)` -> `(n, c, h, w)`; padding channels are cut off."""
    if array.ndim != 5 or array.shape[4] != 4 or want.ndim != 4:
        return array
    n, h, blocks, w, _ = array.shape
    return array.transpose(0, 2, 4, 1, 3).reshape(n, blocks * 4, h, w)[:, : want.shape[1]]


_TO_NCHW: dict[str, Callable[[Array, Array], Array]] = {"NHWCD4": _nhwcd4_to_nchw}


def _to_nchw(layout: str | None, array: Array, want: Array) -> Array:
    if layout is None:
        return array
    if layout not in _TO_NCHW:
        raise ValueError(f"unknown output_layout {layout!r}; known: {', '.join(_TO_NCHW)}")
    return _TO_NCHW[layout](array, want)


def _tolerance(case: Mapping[str, Any]) -> Tolerance:
    given = case["tolerance"]
    by_dtype = {"float16": given["float16"]} if "float16" in given else {}
    by_dtype |= case.get("tolerance_by_dtype", {})
    return Tolerance(
        rtol=float(given["rtol"]),
        atol=float(given["atol"]),
        int_atol=int(given["int_atol"]),
        by_dtype={k: (float(v["rtol"]), float(v["atol"])) for k, v in by_dtype.items()},
    )
