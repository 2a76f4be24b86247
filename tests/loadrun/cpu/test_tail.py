"""What follows results whose shapes depend on data: planned anew for each shape, and bounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadrun.backends.cpu import tail as tails
from loadrun.backends.cpu.backend import CpuProgram
from loadrun.session import Session
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.ir.graph import Graph

ROWS = 24


def selecting() -> Graph:
    """Rows above zero in their first column, through a layer, and how much they are together."""
    random = np.random.default_rng(3)
    b = GraphBuilder()
    x = b.input("x", (ROWS, 16))
    first = b.reshape_to(b.slice_axis(x, 1, 0, 1), (ROWS,))
    values, rows = b.cond_take(first, first, mode="GT", val=0.0)
    kept = b.take_rows(x, rows)
    weight = random.normal(size=(16, 8)).astype(np.float32)
    bias = random.normal(size=(1, 8)).astype(np.float32)
    y = b.relu(b.add(b.matmul(kept, weight), bias))
    again, _ = b.cond_take(values, values, mode="LT", val=0.5)
    b.output(b.mul(y, 0.5), "y")
    b.output(b.add(again, 1.0), "few")
    b.output(b.relu(x), "whole")
    return b.graph()


def close(found: Any, wanted: Any) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def feeds(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(ROWS, 16)).astype(np.float32)
    x[:, 0] = -1
    x[np.random.default_rng(seed).permutation(ROWS)[:count], 0] = np.linspace(0.1, 0.9, count)
    return {"x": x}


def tail_of(session: Session) -> tails.Tail:
    program = session.program
    assert isinstance(program, CpuProgram)
    assert program._tail is not None
    return program._tail


@pytest.mark.parametrize("threads", [1, 2])
def test_every_count_gives_what_the_reference_backend_gives(threads: int) -> None:
    graph = selecting()
    with Session(graph, "reference") as exact, Session(graph, "cpu", threads=threads) as session:
        for count in (5, 0, 24, 1, 5, 7, 0):
            given = feeds(count, seed=count)
            found, wanted = session.run(given), exact.run(given)
            for name, array in wanted.items():
                close(found[name], array)


def test_what_follows_runs_as_programs_that_are_kept_by_shape() -> None:
    with Session(selecting(), "cpu", threads=1) as session:
        session.run(feeds(5))
        tail = tail_of(session)
        programs = [s.program for s in tail._stages.values() if s.program is not None]
        assert any(isinstance(p, CpuProgram) for p in programs)
        before = len(tail._stages)
        session.run(feeds(5))
        assert len(tail._stages) == before
        assert session.program is not None
        report = session.program.report
        assert report.fallback == {"CondTake": 2}
        assert any("depends on data" in note for note in report.notes)


def test_the_store_is_bounded_and_new_shapes_then_wait_for_their_second_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tails, "_KEPT", 4)
    graph = selecting()
    with Session(graph, "reference") as exact, Session(graph, "cpu", threads=1) as session:
        for count in range(1, 9):
            session.run(feeds(count))
        tail = tail_of(session)
        assert len(tail._stages) <= 4
        made: list[int] = []
        make = tail._make

        def counted(*args: object) -> object:
            made.append(1)
            return make(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(tail, "_make", counted)
        for times in (0, 1):
            given = feeds(20)
            wanted = exact.run(given)["y"]
            close(session.run(given)["y"], wanted)
            assert bool(made) == bool(times)


def test_closing_frees_the_programs_of_the_tail() -> None:
    session = Session(selecting(), "cpu", threads=1)
    session.run(feeds(3))
    tail = tail_of(session)
    session.close()
    assert not tail._stages


def test_random_numbers_before_the_tail_are_no_constants() -> None:
    b = GraphBuilder()
    x = b.input("x", (ROWS, 16))
    noise = b.add(b.apply("UniformRNG", [b.const([ROWS])], (P.UniformRNG(seed=3),))[0], 1.0)
    first = b.reshape_to(b.slice_axis(x, 1, 0, 1), (ROWS,))
    kept, _ = b.cond_take(noise, first, mode="GT", val=0.0)
    b.output(b.mul(kept, 2.0), "y")
    with Session(b.graph(), "cpu", threads=1) as session:
        given = feeds(6)
        one = session.run(given)["y"].copy()
        assert not np.array_equal(one, session.run(given)["y"])
