"""Graphs of one operator: in native code between canaries, against the reference backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
from cuda_check import graph_of
from guarded import Guarded

from loadrun.backends.cpu import backend
from loadrun.backends.cpu.plan import Plan
from loadrun.backends.cpu.target import LEVELS, Target, detect, host_level
from loadrun.session import Session
from mgeserial.ir.graph import Graph

Array = np.ndarray[Any, np.dtype[Any]]
RUNNABLE = ("neon",) if host_level() == "neon" else LEVELS[LEVELS.index(host_level()) : 3]

__all__ = ["RUNNABLE", "check", "graph_of", "native", "reference", "refuses"]


def _guarded(plan: Plan, target: Target, *_: object, **__: object) -> Guarded:
    return Guarded(plan, target)


def native(
    graph: Graph, feeds: Sequence[Array], monkeypatch: pytest.MonkeyPatch, *, threads: int = 2
) -> list[dict[str, Array]]:
    """Outputs of two runs at each level of this machine; all operators must be native."""
    found = []
    for level in RUNNABLE:
        monkeypatch.setenv("LOADRUN_CPU_LEVEL", level)
        detect.cache_clear()
        with (
            mock.patch.object(backend, "Program", _guarded),
            Session(graph, "cpu", threads=threads) as session,
        ):
            runs = [session.run(list(feeds)) for _ in range(2)]
            found += [{k: v.copy() for k, v in run.items()} for run in runs]
            report = session.program.report  # type: ignore[union-attr]
            if detect().halves or all(a.dtype != np.float16 for a in feeds):
                assert report.fallback == {}, report.notes
                assert not any("no native code" in n for n in report.notes)
    monkeypatch.delenv("LOADRUN_CPU_LEVEL")
    detect.cache_clear()
    return found


def reference(graph: Graph, feeds: Sequence[Array]) -> dict[str, Array]:
    """Outputs of the reference backend."""
    with Session(graph, "reference") as session:
        return {k: v.copy() for k, v in session.run(list(feeds)).items()}


def check(
    graph: Graph,
    feeds: Sequence[Array],
    monkeypatch: pytest.MonkeyPatch,
    *,
    rtol: float | None = None,
    atol: float = 0.0,
    threads: int = 2,
) -> None:
    """Compare: exactly, or floats within tolerances where `rtol` is given; NaN where it is."""
    want = reference(graph, feeds)
    for got in native(graph, feeds, monkeypatch, threads=threads):
        for name, array in want.items():
            assert got[name].dtype == array.dtype
            assert got[name].shape == array.shape
            if rtol is None or array.dtype.kind != "f":
                np.testing.assert_array_equal(got[name], array, err_msg=name)
            else:
                a, b = (v.astype(np.float32) for v in (got[name], array))
                np.testing.assert_allclose(a, b, rtol, atol, err_msg=name)


def refuses(
    graph: Graph, feeds: Sequence[Array], monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Both backends raise the same error, and the engine runs on afterwards."""
    with pytest.raises(error) as want:
        reference(graph, feeds)
    with pytest.raises(error) as got:
        native(graph, feeds, monkeypatch)
    monkeypatch.delenv("LOADRUN_CPU_LEVEL")
    detect.cache_clear()
    assert str(got.value) == str(want.value)
