"""A session that computes nothing: what the command line and the runner need of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loadrun.asserts import AssertFailure
from loadrun.measure import measure
from mgeserial.dtypes import FLOAT32, DType
from mgeserial.ir.types import TensorType


def tensor(*shape: int | None, dtype: DType = FLOAT32) -> TensorType:
    return TensorType(dtype, shape)


class FakeSession:
    """Every inference takes the next of `times`, in ns, on a clock of its own.

    Attributes:
        log: What was asked for, in order.
    """

    backend = "fake"
    threads = 3
    program = None

    def __init__(
        self,
        *,
        inputs: Mapping[str, TensorType] | None = None,
        outputs: Mapping[str, TensorType] | None = None,
        times: Sequence[int] = (1_000_000,),
        wrong: Mapping[int, AssertFailure] | None = None,
        has_asserts: bool = False,
        interrupt_at: int | None = None,
    ) -> None:
        self.inputs = dict({"x": tensor(1, 3)} if inputs is None else inputs)
        self.outputs = dict({"y": tensor(1, 2)} if outputs is None else outputs)
        self.has_asserts = has_asserts or bool(wrong)
        self.log: list[str] = []
        self._times = times
        self._wrong = wrong or {}
        self._interrupt_at = interrupt_at
        self._calls = 0
        self._checks = 0
        self._now = 0

    def prepare(self, inputs: Any) -> int:
        self.log.append("prepare")
        return 2_000_000

    def run(self, inputs: Any) -> dict[str, np.ndarray]:
        self.log.append("run")
        return {n: np.full(t.dims, 2, t.dtype.storage) for n, t in self.outputs.items()}

    def benchmark(
        self,
        iters: int,
        warmup: Any,
        inputs: Any,
        *,
        on_sample: Callable[..., None],
        pacing: Any = None,
    ) -> Any:
        self.log.append("benchmark")
        return measure(
            self._infer,
            iters=iters,
            warmup=warmup,
            first=True,
            on_sample=on_sample,
            clock=lambda: self._now,
            pacing=pacing,
        )

    def check_asserts(self, inputs: Any) -> list[AssertFailure]:
        self.log.append("check")
        found = self._wrong.get(self._checks)
        self._checks += 1
        return [] if found is None else [found]

    def _infer(self) -> None:
        if self._calls == self._interrupt_at:
            raise KeyboardInterrupt
        self._now += self._times[self._calls % len(self._times)]
        self._calls += 1
