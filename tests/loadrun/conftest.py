"""What LLVM has compiled for one test serves the others; processes of the run compile alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kept_objects import KeptObjects

from loadrun.backends.cpu import jit, llvm

_BEGIN: Callable[..., None] = jit.Compiler.__init__


def _begin_alone(compiler: jit.Compiler, *args: Any, jobs: int | None = None, **kw: Any) -> None:
    """Threads that compile would be more than there are processors: the run has other processes."""
    _BEGIN(compiler, *args, jobs=jobs or 1, **kw)


@pytest.fixture(scope="session", autouse=True)
def kept_objects() -> Iterator[KeptObjects]:
    """The store, which stands in for LLVM until the end of the run."""
    store = KeptObjects(llvm.compile_object, Path(os.environ["MGE_TESTS_FOLDER"]) / "objects")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llvm, "compile_object", store)
        patch.setattr(jit.Compiler, "__init__", _begin_alone)
        yield store


@pytest.fixture
def llvm_itself(kept_objects: KeptObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes from the store and threads compile: for tests of compiling itself."""
    monkeypatch.setattr(llvm, "compile_object", kept_objects.original)
    monkeypatch.setattr(jit.Compiler, "__init__", _BEGIN)
