"""The emulated device for tests; it needs g++ on Linux."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from loadrun.backends.cuda import emulated
from loadrun.session import Session
from mgeserial.ir.graph import Graph


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    _need_compiler()
    monkeypatch.setenv("LOADRUN_CUDA", "emulated")


@pytest.fixture
def tensor_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulated device that says it has tensor cores."""
    _need_compiler()
    monkeypatch.setenv("LOADRUN_CUDA", "emulated-sm80")


@pytest.fixture
def arena_device(monkeypatch: pytest.MonkeyPatch) -> None:
    _need_compiler()
    monkeypatch.setenv("LOADRUN_CUDA", "emulated-arena")


def _need_compiler() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("the emulated device runs on Linux only")
    if emulated.compiler() is None:
        pytest.skip("the emulated device needs g++, which is not on PATH")


Agrees = Callable[..., None]


@pytest.fixture
def agrees(device: None) -> Agrees:
    """Check that a graph runs by kernels alone and gives what the reference backend gives."""

    def check(
        graph: Graph,
        feeds: Sequence[np.ndarray[Any, Any]],
        *,
        rtol: float = 1e-5,
        atol: float = 1e-5,
        host: Sequence[str] = (),
        repeat: int = 1,
    ) -> None:
        with Session(graph, "reference") as session:
            want = session.run(list(feeds))
        with Session(graph, "cuda") as session:
            for _ in range(repeat):
                got = session.run(list(feeds))
                assert set(session.program.report.fallback) == set(host)  # type: ignore[union-attr]
                for name, array in want.items():
                    found: Any = got[name]
                    wanted: Any = array
                    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), name
                    if array.dtype.kind == "f":
                        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)
                    else:
                        np.testing.assert_array_equal(found, wanted)

    return check
