"""Sessions in several threads compile different networks at once."""

from __future__ import annotations

import math
import subprocess
import sys
import threading

import numpy as np
import pytest
from corpus_cases import CHECKOUT

from loadrun.backends.base import CompileOptions
from loadrun.session import Session
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import Array
from mgeserial.ir.graph import Graph

THREADS, ROUNDS = 4, 8

pytestmark = pytest.mark.usefixtures("llvm_itself")


def network(seed: int) -> tuple[Graph, tuple[int, ...]]:
    """Three convolutions, of which each seed has its own shapes and weights."""
    rng = np.random.default_rng(seed)
    b, size, wide = GraphBuilder(), 8 + seed % 7, 8 + 8 * (seed % 3)

    def filters(*shape: int) -> Array:
        found: Array = (rng.standard_normal(shape) / math.prod(shape[1:]) ** 0.5).astype(np.float32)
        return found

    x = b.input("x", (1, 3, size, size))
    y = b.relu(b.conv2d(x, filters(wide, 3, 3, 3), padding=1))
    y = b.relu(b.conv2d(y, filters(32, wide, 3, 3), padding=1))
    b.output(b.conv2d(y, filters(16, 32, 1, 1)), "y")
    return b.graph(), (1, 3, size, size)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_compile_at_once(threads: int) -> None:
    wrong: list[str] = []
    started = threading.Barrier(THREADS)

    def work(number: int) -> None:
        started.wait()
        for k in range(ROUNDS):
            graph, shape = network(number * ROUNDS + k)
            x = np.random.default_rng(k).standard_normal(shape).astype(np.float32)
            options = CompileOptions(cache=False)
            with Session(graph, "cpu", threads=threads, options=options) as session:
                got = session.run({"x": x})["y"]
                assert session.program is not None
                if any("no native code" in note for note in session.program.report.notes):
                    wrong.append(f"{number} {k}: {session.program.report.notes}")
            want = Session(graph, "reference").run({"x": x})["y"]
            if not np.allclose(got, want, rtol=1e-4, atol=1e-4):
                wrong.append(f"{number} {k}: not what the reference computes")

    workers = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(240)
    assert not any(worker.is_alive() for worker in workers)
    assert not wrong


_FIRST_USE = """
import threading
from mgeserial.ops import registry

start, found = threading.Barrier(8), []
def ask():
    start.wait()
    found.append(registry.by_name("Convolution"))
workers = [threading.Thread(target=ask) for _ in range(8)]
for w in workers: w.start()
for w in workers: w.join()
assert len(found) == 8
"""


def test_operators_are_known_to_threads_that_ask_first() -> None:
    done = subprocess.run([sys.executable, "-c", _FIRST_USE], cwd=CHECKOUT, timeout=120)
    assert done.returncode == 0
