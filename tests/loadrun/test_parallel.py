"""Several sessions at once, and what an interrupt leaves of them."""

from __future__ import annotations

import _thread
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from corpus_cases import compact_root
from fake_session import FakeSession

from loadrun.measure import Pacing
from loadrun.parallel import run_parallel
from loadrun.runner import make_cases

CONV = str(compact_root() / "conv" / "conv1d" / "model.v1.mge")


class _Working(FakeSession):
    """Each call does something first; it is told its number."""

    def __init__(self, before: Callable[[int], object]) -> None:
        super().__init__()
        self._before = before

    def _infer(self) -> None:
        self._before(self._calls)
        super()._infer()


def _slow(_: int) -> None:
    time.sleep(0.001)


def _interrupts(call: int) -> None:
    _slow(call)
    if call == 5:
        _thread.interrupt_main()


def _run(*before: Callable[[int], object], iters: int = 1_000_000):
    sessions = [_Working(b) for b in before]
    cases = make_cases(sessions[0], [], [], seed=0)
    return run_parallel(sessions, cases, iters=iters, warmup=1, pacing=Pacing())


def test_all_sessions_take_their_samples() -> None:
    outcome, together = _run(_slow, _slow, _slow, iters=4)
    assert [r.session for r in outcome.results] == [0, 1, 2]
    assert [r.stats.count for r in outcome.results if r.stats] == [4, 4, 4]
    assert (together.sessions, together.samples) == (3, 12)
    assert not outcome.interrupted


def test_an_interrupt_keeps_the_samples_of_all_sessions() -> None:
    outcome, together = _run(_slow, _interrupts)
    assert outcome.interrupted
    assert not outcome.unfinished
    counts = [r.stats.count for r in outcome.results if r.stats]
    assert len(counts) == 2
    assert all(3 < n < 100_000 for n in counts)
    assert together.samples == sum(counts)
    assert together.throughput_per_s


def test_a_session_that_does_not_come_back_is_left_with_its_samples() -> None:
    free = threading.Event()
    try:
        outcome, _ = _run(lambda n: n < 5 or free.wait(30), _interrupts)
    finally:
        free.set()
    assert outcome.interrupted
    assert outcome.unfinished
    stats = outcome.results[0].stats
    assert stats is not None
    # The first run and the warm-up are no samples, and the sixth call never ended.
    assert (stats.count, len(stats.warmup)) == (3, 1)
    assert stats.first_inference_ns is not None


# A process that says when all sessions have met, and may then sleep in one session.
_PROCESS = """
import sys, time, loadrun.parallel as p, loadrun.session as s
from loadrun.cli import main
meet = p._Stop.meet
naps = [float(sys.argv.pop())]
def told(self):
    meet(self)
    nap = naps.pop() if naps else 0
    sys.stdout.write('begun\\n')
    sys.stdout.flush()
    time.sleep(nap)
p._Stop.meet = told
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(os.name == "nt", reason="signals differ on Windows")
@pytest.mark.parametrize("sleep", ["0", "60"])
def test_interrupt_of_a_process_with_sessions(tmp_path: Path, sleep: str) -> None:
    path = tmp_path / "t.json"
    words = [CONV, "--backend", "reference", "--thread", "2", "--iter", "99999999"]
    command = [sys.executable, "-c", _PROCESS, *words, "--json", str(path), sleep]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "begun" in line:
            break
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - start < 20
    assert process.returncode == 130, err
    assert "(interrupted)" in out
    assert "Traceback" not in err
    assert json.loads(path.read_text())["interrupted"] is True
