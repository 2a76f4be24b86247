"""What LLVM has compiled for one test serves the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kept_objects import KeptObjects

from loadrun.backends.cpu import llvm


@pytest.fixture(scope="session", autouse=True)
def kept_objects() -> Iterator[KeptObjects]:
    """The store, which stands in for LLVM until the end of the run."""
    store = KeptObjects(llvm.compile_object, Path(os.environ["MGE_TESTS_FOLDER"]) / "objects")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llvm, "compile_object", store)
        yield store


@pytest.fixture
def llvm_itself(kept_objects: KeptObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes from the store: for tests of compiling itself."""
    monkeypatch.setattr(llvm, "compile_object", kept_objects.original)
