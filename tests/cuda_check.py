"""Runs a graph on the reference and the CUDA backend and compares the outputs of several runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loadrun.session import Session
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import DType
from mgeserial.ir.graph import Graph

Array = np.ndarray[Any, np.dtype[Any]]


def graph_of(
    op: str,
    arrays: Sequence[Array],
    params: Any = None,
    *,
    constant: Sequence[int] = (),
    dtypes: dict[int, str] | None = None,
    output_dtype: DType | None = None,
) -> Graph:
    """A graph of one operator; inputs of the numbers in `constant` are weights."""
    b = GraphBuilder()
    values = []
    for k, array in enumerate(arrays):
        if k in constant:
            values.append(b.param(array))
            continue
        kind = (dtypes or {}).get(k, _NAMES[array.dtype.name])
        values.append(b.input(f"x{k}", array.shape, dtype=kind))
    records = () if params is None else params if isinstance(params, tuple) else (params,)
    for k, value in enumerate(b.apply(op, values, records, output_dtype=output_dtype)):
        b.output(value, f"y{k}")
    return b.graph()


_NAMES = {
    "float32": "Float32", "float16": "Float16", "int32": "Int32", "int8": "Int8",
    "uint8": "Uint8", "int16": "Int16", "uint16": "Uint16", "bool": "Bool",
}  # fmt: skip


def on_device(graph: Graph, feeds: Sequence[Array], runs: int = 1) -> list[dict[str, Array]]:
    """Outputs of some runs of one session; no operator may run by reference code."""
    with Session(graph, "cuda") as session:
        found = [{k: v.copy() for k, v in session.run(list(feeds)).items()} for _ in range(runs)]
        report = session.program.report  # type: ignore[union-attr]
    assert report.fallback == {}, report.notes
    return found


def check(
    graph: Graph,
    feeds: Sequence[Array],
    *,
    rtol: float | None = None,
    atol: float = 0.0,
    runs: int = 1,
) -> None:
    """Compare with the reference: exactly, or floats within tolerances where `rtol` is given."""
    with Session(graph, "reference") as session:
        wants = [{k: v.copy() for k, v in session.run(list(feeds)).items()} for _ in range(runs)]
    for want, got in zip(wants, on_device(graph, feeds, runs), strict=True):
        for name, array in want.items():
            assert got[name].dtype == array.dtype
            assert got[name].shape == array.shape
            if rtol is None or array.dtype.kind != "f":
                np.testing.assert_array_equal(got[name], array, err_msg=name)
            else:
                np.testing.assert_allclose(
                    got[name].astype(np.float32), array.astype(np.float32), rtol, atol,
                    err_msg=name,
                )  # fmt: skip


__all__ = ["check", "graph_of", "on_device"]
