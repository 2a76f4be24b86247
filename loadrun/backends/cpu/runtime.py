"""Run a program's phases on a team of threads that stay in native code.

Workers are Python threads that enter `lr_worker` once; the interpreter's lock is released
in there. `run` posts a job and takes part in it; see runtime_ir.py for how work is claimed.
A team belongs to one program; several programs have several teams, and idle workers sleep.
Calls from several threads on one team take turns, because a program has one arena.
After a fork the child starts workers of its own on its copy of the memory.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadrun.backends.cpu import jit, llvm, runtime_ir
from loadrun.backends.cpu.cache import Cache
from loadrun.backends.cpu.memory import PAGE, Block
from loadrun.backends.cpu.target import Target

MAX_THREADS = 256
# Longer than Python needs between two runs; "idle" is promised within 1 ms.
_IDLE_MS = 0.4
# Waking a core that has fallen asleep takes 0.05 to 0.3 ms on virtual machines: less than that is
# not worth a sleep. More keeps a core from whom this program is waiting for, on a busy machine.
_WAIT_MS = 0.2


@dataclass(frozen=True, slots=True)
class Call:
    """One kernel call: function address, address of its argument table, units [begin, end)."""

    function: int
    args: int
    begin: int
    end: int


Phase = Sequence[Sequence[Call]]  # chunks, each a sequence of calls


_IMAGES: dict[tuple[Target, bool], llvm.Image] = {}  # never freed: workers may be in them
_IMAGES_LOCK = threading.Lock()


def _native(target: Target, futex: bool) -> llvm.Image:
    """The code of runtime_ir.py, one image for all teams."""
    with _IMAGES_LOCK:
        found = _IMAGES.get((target, futex))
        if found is None:
            text = runtime_ir.source(target, futex=futex)
            found, _ = jit.build({"runtime": text}, target, Cache(None), jobs=1)
            _IMAGES[target, futex] = found
    return found


_RATE: list[float] = []


def _pauses_per_ms(pause: Any) -> float:
    """How many pauses of a processor, 40 to 150 cycles each, pass in 1 ms; measured once."""
    if not _RATE:
        times = []
        for _ in range(3):
            begin = time.perf_counter_ns()
            pause(1000)
            times.append(time.perf_counter_ns() - begin)
        _RATE.append(1e9 / max(min(times), 1000))
    return _RATE[0]


def prepare(target: Target) -> None:
    """Compile the code that all teams share, if nobody has."""
    _native(target, sys.platform == "linux")


class Team:
    """The threads, counters and tables of one program.

    Args:
        phases: What to run, in order; chunks of one phase are independent.
        target: Instruction set of the runtime's own code.
        threads: Threads that take part, the caller's included.
        scratch: Bytes of private memory for each thread.
        futex: Sleep on a futex; None decides by platform.
    """

    def __init__(
        self,
        phases: Sequence[Phase],
        target: Target,
        *,
        threads: int,
        scratch: int = 0,
        futex: bool | None = None,
    ) -> None:
        if not 1 <= threads <= MAX_THREADS:
            raise ValueError(f"threads must be 1 to {MAX_THREADS}; got: {threads}")
        if any(not chunks for chunks in phases):
            raise ValueError("a phase needs at least one chunk")
        self.threads = threads
        self.phases = len(phases)
        self._futex = sys.platform == "linux" if futex is None else futex
        image = _native(target, self._futex)
        c = ctypes
        self._serial = c.CFUNCTYPE(None, c.c_void_p, c.c_int64, c.c_int64, c.c_void_p)(
            image.address("lr_serial")
        )
        self._launch = c.CFUNCTYPE(
            c.c_int64, c.c_void_p, c.c_int64, c.c_int64, c.c_int64, c.c_void_p
        )(image.address("lr_launch"))
        self._worker = c.CFUNCTYPE(c.c_int64, c.c_void_p, c.c_int64, c.c_int64, c.c_void_p)(
            image.address("lr_worker")
        )
        self._pause = c.CFUNCTYPE(None, c.c_int64)(image.address("lr_pause"))
        self._stride = -(-scratch // PAGE) * PAGE + PAGE + 256
        self._scratch = Block(self._stride * threads)
        self._write_tables(phases)
        self._lock = threading.Lock()
        self._wake = threading.Condition()
        self._run = 0
        self._workers: list[threading.Thread] = []
        self._closed = False
        self._pid = os.getpid()
        if threads > 1:
            self._start()

    def _write_tables(self, phases: Sequence[Phase]) -> None:
        """Lay the program out as runtime_ir.py says."""
        ir = runtime_ir
        calls = sum(len(chunk) for chunks in phases for chunk in chunks)
        slots = sum(len(chunks) + 1 for chunks in phases)
        self._shares = min(self.threads, ir.MOST_SHARES)
        width = (1 + self._shares) * ir.LINE
        sizes = [
            64,
            len(phases) * ir.PHASE_BYTES,
            slots * 8,
            calls * ir.CALL_BYTES,
            len(phases) * width,
            ir.SYNC_BYTES,
            len(phases) * (self._shares + 1) * 8,
        ]
        offsets = np.cumsum([0] + [-(-s // 128) * 128 for s in sizes]).tolist()
        self._tables = Block(int(offsets[-1]))
        base = self._tables.address
        words = self._tables.array(0, int(offsets[-1])).view(np.int64)
        words[0:3] = base + offsets[1], base + offsets[4], base + offsets[5]
        rate = _pauses_per_ms(self._pause)
        words[3:7] = self._shares, width, int(_IDLE_MS * rate), int(_WAIT_MS * rate)
        p, s, q, b = (offsets[k] // 8 for k in (1, 2, 3, 6))
        bounds = words[b : b + len(phases) * (self._shares + 1)]
        bounds = bounds.reshape(len(phases), self._shares + 1)
        for chunks, bound in zip(phases, bounds, strict=True):
            bound[:] = np.arange(self._shares + 1) * len(chunks) // self._shares
            words[p : p + 3] = len(chunks), base + 8 * s, base + 8 * b
            p += ir.PHASE_BYTES // 8
            b += len(bound)
            for chunk in chunks:
                words[s] = base + 8 * q
                s += 1
                for call in chunk:
                    words[q : q + 4] = call.function, call.args, call.begin, call.end
                    q += 4
            words[s] = base + 8 * q
            s += 1
        at, per = offsets[4] // 8, width // 8
        counters = words[at : at + per * len(phases)].reshape(len(phases), per)
        # By phase: chunks done, then what is claimed of each share; how much a run adds to them.
        self._counters = counters[:, :: ir.LINE // 8]
        lengths = np.array([len(c) for c in phases], np.int64).reshape(-1, 1)
        self._counts = np.concatenate([lengths, np.diff(bounds, axis=1)], axis=1)
        self._sync = words[offsets[5] // 8 : (offsets[5] + ir.SYNC_BYTES) // 8]
        self._program = base

    # -- threads
    def _start(self) -> None:
        seen = int(self._sync[0])
        for index in range(1, self.threads):
            thread = threading.Thread(
                target=_work,
                args=(self._worker, self._program, seen, self._home(index), self._own(index)),
                kwargs={"wake": self._wake, "sync": self._sync, "keep": self._scratch},
                name=f"loadrun-{index}",
                daemon=True,
            )
            thread.start()
            self._workers.append(thread)

    def _home(self, index: int) -> int:
        """The share that a thread takes first."""
        return index * self._shares // self.threads

    def _own(self, index: int) -> int:
        # Threads' scratch starts at different offsets in a page, so that their lines do not
        # all fall into the same cache sets.
        return self._scratch.address + index * self._stride

    def _after_fork(self) -> None:
        """Start again in a child process, which has this thread only."""
        self._pid = os.getpid()
        self._lock, self._wake = threading.Lock(), threading.Condition()
        self._workers = []
        self._counters[:] = 0
        self._sync[:] = 0
        self._run = 0
        if self.threads > 1:
            self._start()

    # -- running
    def run(self) -> None:
        """Run all phases once."""
        with self.turn() as turn:
            turn.run(0, self.phases)

    def turn(self) -> Turn:
        """A run in parts: other callers wait until it ends."""
        if self._pid != os.getpid() and not self._closed:
            self._after_fork()
        return Turn(self)

    def close(self) -> None:
        """Stop the workers and wait for them; later runs raise. Safe to call twice."""
        if self._closed:
            return
        with self._lock:
            self._closed = True
            if self._pid != os.getpid():
                return
            self._sync[runtime_ir.STOP // 8] = 1
            if self.threads > 1:
                # An empty job wakes all; they see the stop mark before they look at it.
                self._launch(self._program, self._run, 0, 0, self._own(0))
                with self._wake:
                    self._wake.notify_all()
        for thread in self._workers:
            if thread is not threading.current_thread():
                thread.join()
        self._workers = []

    def __del__(self) -> None:
        """Stop the workers before their memory goes."""
        if getattr(self, "_workers", None):
            self.close()


class Turn:
    """Exclusive use of a team for one run; phases must be run in order, each once."""

    def __init__(self, team: Team) -> None:
        self._team = team
        self._next = 0

    def __enter__(self) -> Turn:
        """Wait for the turn.

        Raises:
            RuntimeError: The team is closed.
        """
        self._team._lock.acquire()
        if self._team._closed:
            self._team._lock.release()
            raise RuntimeError("the program is closed")
        return self

    def run(self, first: int, last: int) -> None:
        """Run phases [first, last)."""
        team = self._team
        if first != self._next:
            raise ValueError(f"phases run in order: expected {self._next}, got: {first}")
        self._next = last
        if first >= last:
            return
        if team.threads == 1:
            team._serial(team._program, first, last, team._own(0))
            return
        asleep = team._launch(team._program, team._run, first, last, team._own(0))
        if asleep and not team._futex:
            with team._wake:
                team._wake.notify_all()

    def __exit__(self, *_: object) -> None:
        """End the turn; phases that an error left out count as run."""
        team = self._team
        if team.threads > 1:
            # Nobody claims these: workers hold jobs of earlier phases only.
            team._counters[self._next :] += team._counts[self._next :]
            team._run += 1
        team._lock.release()


def _moved(sync: Any, seen: int) -> bool:
    """Whether a job was posted after number `seen`."""
    return bool(sync[0] != seen)


def _work(
    worker: Any,
    program: int,
    seen: int,
    home: int,
    scratch: int,
    *,
    wake: threading.Condition,
    sync: Any,
    keep: Block,
) -> None:
    """A worker thread; holds the memory it uses (`sync`, `keep`) but not the team."""
    while True:
        seen = worker(program, seen, home, scratch)
        if seen < 0:
            return
        # Without a futex: sleep here until the job number moves on.
        with wake:
            sync[runtime_ir.SLEEPERS // 8] += 1
            wake.wait_for(functools.partial(_moved, sync, seen), timeout=0.2)
            sync[runtime_ir.SLEEPERS // 8] -= 1
