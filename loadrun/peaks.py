"""What the machine can do at most, measured: multiply-adds and bytes copied a second.

The arithmetic peak is a loop of independent multiply-adds in vector registers, on the threads that
are asked for; the bandwidth is that of copies of large arrays (bytes read plus bytes written).
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

__all__ = ["Peaks", "measure_peaks"]

_CHAINS = 12  # independent sums: enough for the latency of two units
_UNIT = 4096  # multiply-adds of each chain in a unit of work
_COPY_BYTES = 32 << 20
_TRIALS = 15
_LEAST_S = 0.01


@dataclass(frozen=True, slots=True)
class Peaks:
    """Most that was seen.

    Attributes:
        flop_per_s: Float32 operations a second (a multiply-add is two).
        bytes_per_s: Bytes read plus bytes written a second.
        how: How the arithmetic peak was measured.
        threads: Threads that took part.
    """

    flop_per_s: float
    bytes_per_s: float
    how: str
    threads: int


@functools.cache
def measure_peaks(threads: int) -> Peaks:
    """Measure, in about a fifth of a second; the same answer for the whole process."""
    try:
        flops, how = _native_flops(threads)
    except (ImportError, ValueError, OSError):
        flops, how = _numpy_flops(), "a product of float32 matrices by numpy"
    return Peaks(flops, _bandwidth(threads), how, threads)


def _best(work: Callable[[], None], amount: float) -> float:
    """Most of `amount` a second over a few trials."""
    best = 0.0
    for _ in range(_TRIALS):
        start = time.perf_counter()
        work()
        best = max(best, amount / max(time.perf_counter() - start, 1e-9))
    return best


def _native_flops(threads: int) -> tuple[float, str]:
    from loadrun.backends.cpu import jit
    from loadrun.backends.cpu.cache import Cache
    from loadrun.backends.cpu.runtime import Call, Team
    from loadrun.backends.cpu.target import detect

    target = detect()
    image, _ = jit.build({"peak": _source(target.lanes)}, target, Cache(None), jobs=1)
    address = image.address("lr_peak")
    units = 64
    while True:
        chunks = [[Call(address, 0, 0, units)] for _ in range(threads)]
        team = Team([chunks], target, threads=threads, scratch=4096)
        try:
            team.run()
            start = time.perf_counter()
            team.run()
            if time.perf_counter() - start < _LEAST_S and units < 1 << 24:
                units *= 2
                continue
            amount = 2.0 * target.lanes * _CHAINS * _UNIT * units * threads
            return _best(team.run, amount), f"multiply-adds in {target.level} registers"
        finally:
            team.close()


def _source(lanes: int) -> str:
    """A module with a loop of multiply-adds: sums start at 0 and go to 1, so none overflows."""
    vector = f"<{lanes} x float>"
    factor = "splat (float 0.5)"
    chains = range(_CHAINS)
    names = [f"%s{k}" for k in chains]
    phis = "\n".join(
        f"  {n} = phi {vector} [ zeroinitializer, %entry ], [ %n{k}, %loop ]"
        for k, n in enumerate(names)
    )
    steps = "\n".join(
        f"  %n{k} = call {vector} @llvm.fmuladd.v{lanes}f32({vector} {n}, {vector} {factor}, "
        f"{vector} {factor})"
        for k, n in enumerate(names)
    )
    sums, last = [], "%n0"
    for k in chains[1:]:
        sums.append(f"  %t{k} = fadd {vector} {last}, %n{k}")
        last = f"%t{k}"
    joined = "\n".join(sums)
    return f"""
declare {vector} @llvm.fmuladd.v{lanes}f32({vector}, {vector}, {vector})
define void @lr_peak(ptr %args, i64 %begin, i64 %end, ptr %scratch) {{
entry:
  %units = sub i64 %end, %begin
  %count = mul i64 %units, {_UNIT}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
{steps}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
{joined}
  store {vector} {last}, ptr %scratch, align 4
  ret void
}}
"""


def _numpy_flops() -> float:
    n = 512
    a = np.full((n, n), 0.5, np.float32)
    out = np.empty_like(a)

    def work() -> None:
        np.matmul(a, a, out=out)

    return _best(work, 2.0 * n**3)


def _bandwidth(threads: int) -> float:
    size = _COPY_BYTES // threads
    pairs = [(np.ones(size, np.uint8), np.empty(size, np.uint8)) for _ in range(threads)]

    def copy(k: int) -> None:
        np.copyto(pairs[k][1], pairs[k][0])

    def work() -> None:
        others = [threading.Thread(target=copy, args=(k,)) for k in range(1, threads)]
        for thread in others:
            thread.start()
        copy(0)
        for thread in others:
            thread.join()

    work()
    return _best(work, 2.0 * size * threads)
