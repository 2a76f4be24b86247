"""The emulated device for tests; it needs g++ on Linux."""

from __future__ import annotations

import sys

import pytest

from loadrun.backends.cuda import emulated


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    _need_compiler()
    monkeypatch.setenv("LOADRUN_CUDA", "emulated")


@pytest.fixture
def arena_device(monkeypatch: pytest.MonkeyPatch) -> None:
    _need_compiler()
    monkeypatch.setenv("LOADRUN_CUDA", "emulated-arena")


def _need_compiler() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("the emulated device runs on Linux only")
    if emulated.compiler() is None:
        pytest.skip("the emulated device needs g++, which is not on PATH")
