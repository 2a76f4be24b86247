"""Threads: every unit once, any number of threads, several teams, callers, forks, closing."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from loadrun.backends.cpu import jit, llvm, runtime
from loadrun.backends.cpu.cache import Cache
from loadrun.backends.cpu.emit import Func, module
from loadrun.backends.cpu.memory import Block
from loadrun.backends.cpu.runtime import Call, Team
from loadrun.backends.cpu.target import detect

UNITS, CHUNKS, PHASES = 64, 8, 10

pytestmark = pytest.mark.usefixtures("llvm_itself")


class Counting:
    """A program whose phases each add one to every element."""

    def __init__(self) -> None:
        target = detect()
        f = Func(
            "addone",
            [("ptr", "args"), ("i64", "b"), ("i64", "e"), ("ptr", "s")],
            target,
            external=True,
        )
        base = f.load_ptr("%args", 0)
        with f.loop("%b", "%e") as loop:
            p = f.gep(base, f.mul(loop.i, 8))
            f.do(f"store i64 {f.add(f.load_i64(p, 0), 1)}, ptr {p}")
        self.image, _ = jit.build({"f": module([f])}, target, Cache(None))
        self.data, self.args = Block(8 * UNITS), Block(64)
        self.values = self.data.array(0, 8 * UNITS).view(np.int64)
        self.args.array(0, 8).view(np.int64)[0] = self.data.address
        fn, size = self.image.address("addone"), UNITS // CHUNKS
        calls = [[Call(fn, self.args.address, k * size, (k + 1) * size)] for k in range(CHUNKS)]
        self.phases = [calls] * PHASES


@pytest.mark.parametrize(
    ("threads", "futex"), [(1, None), (2, None), (3, None), (64, None), (2, False), (5, False)]
)
def test_every_unit_runs_once_per_phase(threads: int, futex: bool | None) -> None:
    c = Counting()
    team = Team(c.phases, detect(), threads=threads, futex=futex)
    for _ in range(200 if threads < 10 else 30):
        team.run()
    runs = 200 if threads < 10 else 30
    team.close()
    assert (c.values == PHASES * runs).all()


def test_two_teams_and_callers_from_four_threads() -> None:
    programs = [Counting(), Counting()]
    teams = [Team(c.phases, detect(), threads=2) for c in programs]

    def caller(k: int) -> None:
        for _ in range(50):
            teams[k % 2].run()

    threads = [threading.Thread(target=caller, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for team in teams:
        team.close()
    assert all((c.values == PHASES * 100).all() for c in programs)


def test_a_run_that_stops_early_leaves_the_team_usable() -> None:
    c = Counting()
    team = Team(c.phases, detect(), threads=2)

    def stops() -> None:
        with team.turn() as turn:
            turn.run(0, 3)
            raise KeyError

    with pytest.raises(KeyError):
        stops()
    team.run()
    team.close()
    assert (c.values == 3 + PHASES).all()


def test_phases_must_run_in_order() -> None:
    c = Counting()
    team = Team(c.phases, detect(), threads=2)
    with team.turn() as turn, pytest.raises(ValueError, match="in order"):
        turn.run(2, 3)
    team.close()


def test_a_closed_team_refuses_to_run_and_closes_twice() -> None:
    team = Team(Counting().phases, detect(), threads=3)
    team.close()
    team.close()
    with pytest.raises(RuntimeError, match="closed"):
        team.run()


def test_closing_ends_the_worker_threads() -> None:
    before = threading.active_count()
    team = Team(Counting().phases, detect(), threads=4)
    assert threading.active_count() == before + 3
    team.close()
    assert threading.active_count() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_runs_with_workers_of_its_own() -> None:
    c = Counting()
    team = Team(c.phases, detect(), threads=2)
    team.run()
    pid = os.fork()
    if pid == 0:
        team.run()
        ok = bool((c.values == 2 * PHASES).all())
        team.close()
        os._exit(0 if ok else 1)
    _, status = os.waitpid(pid, 0)
    team.run()
    team.close()
    assert os.waitstatus_to_exitcode(status) == 0
    assert (c.values == 2 * PHASES).all()


def test_teams_made_at_once_share_one_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second image in its place would be freed while workers run in it."""
    monkeypatch.setattr(runtime, "_IMAGES", {})
    made = []
    threads = [
        threading.Thread(target=lambda: made.append(runtime._native(detect(), True)))
        for _ in range(8)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({id(image) for image in made}) == 1


def test_thread_counts_outside_the_range_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 256"):
        Team(Counting().phases, detect(), threads=0)


def test_code_is_compiled_outside_the_lock_of_llvmlite() -> None:
    assert llvm.parallel()


def test_the_locked_way_gives_the_same_object(monkeypatch: pytest.MonkeyPatch) -> None:
    t = detect()
    text = "define void @f() {\n  ret void\n}\n"
    free = llvm.compile_object(text, cpu=t.cpu, features=t.features)
    monkeypatch.setattr(llvm, "_unlocked", lambda: None)
    assert llvm.compile_object(text, cpu=t.cpu, features=t.features) == free


def test_bad_ir_is_reported_with_the_reason_of_llvm() -> None:
    t = detect()
    with pytest.raises(llvm.CodegenError, match="expected"):
        llvm.compile_object("define void @f( {", cpu=t.cpu, features=t.features)
