"""A small model cannot ask for all of the machine's memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from loadrun.session import Session
from mgeserial.author import GraphBuilder
from mgeserial.errors import InputError
from mgeserial.ir.memory import memory_limit


@pytest.fixture(autouse=True)
def _small_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LOADRUN_MEMORY_LIMIT", str(1 << 30))
    memory_limit.cache_clear()
    yield
    memory_limit.cache_clear()


def test_a_huge_result_is_refused_before_it_is_allocated() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 1))
    b.output(b.broadcast(x, [1 << 16, 1 << 14]), "y")
    with (
        Session(b.graph(), "reference") as session,
        pytest.raises(InputError, match="GiB") as caught,
    ):
        session.run([np.zeros((1, 1), np.float32)])
    assert "Broadcast" in str(caught.value)


def test_a_huge_result_of_data_is_refused_too() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 1))
    shape = b.input("shape", (2,), "Int32")
    b.output(b.broadcast(x, shape), "y")
    with Session(b.graph(), "reference") as session, pytest.raises(InputError, match="GiB"):
        session.run([np.zeros((1, 1), np.float32), np.array([1 << 16, 1 << 14], np.int32)])
