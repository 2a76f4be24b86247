"""Build a plan into something that runs: compile, place memory, upload weights, replay."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadrun.arena import plan_arena
from loadrun.backends.cuda.device import Device
from loadrun.backends.cuda.plan import (
    STATUS,
    Array,
    Convolve,
    Host,
    Launch,
    Library,
    Place,
    Plan,
    Pointer,
    Step,
    lifetimes,
    segments,
)
from mgeserial.errors import ExecutionError

__all__ = ["Program", "Times"]

_ALIGN = 256


@dataclass(frozen=True, slots=True)
class Times:
    """Where the time of the last run went, ns.

    Attributes:
        wall: From call to result.
        launch: The host starting the work.
        device: The device from the first to the last kernel, by events.
        copy_in, copy_out: The host moving inputs and outputs, with what it waited for them.
    """

    wall: int = 0
    launch: int = 0
    device: int = 0
    copy_in: int = 0
    copy_out: int = 0


class Program:
    """A plan on a device.

    Args:
        plan: What to run.
        device: Where.
        record: Replay segments as graphs from the third run on.
        owner: Whether the program closes the device when it is closed, or gives back its own memory
            alone.
        share: Whether values whose lives do not overlap may share memory.
        functions: Kernels that the device has built already; None: they are built here.
    """

    def __init__(
        self,
        plan: Plan,
        device: Device,
        *,
        record: bool = True,
        owner: bool = True,
        share: bool = True,
        functions: Mapping[str, Any] | None = None,
    ) -> None:
        self.plan = plan
        self.device = device
        self._owner = owner
        self._blocks: list[int] = []
        self.offsets: dict[str, int] = {}
        self.times = Times()
        self.notes: list[str] = []
        self._record = record
        self._runs = 0
        self._closed = False
        self._addresses: dict[str, int] = {}
        self._host: dict[str, Array] = {}
        known = functions or {}
        missing = [kernel for name, kernel in plan.kernels().items() if name not in known]
        self._functions = {**known, **device.build(missing)} if missing else dict(known)
        self.arena_bytes = self._place(share=share and not device.guarded)
        self.const_bytes = self._upload_consts()
        self._pinned = {
            name: device.host(plan.buffers[name].shape, plan.buffers[name].dtype)
            for name in {*plan.inputs, *plan.outputs}
            if name and self._on_device(name)
        }
        self._zero = device.host((1,), "int32")
        self._zero[...] = 0
        self._status = device.host((1,), "int32")
        self._calls = [self._call(step) for step in plan.steps]
        self._segments = segments(plan)
        self._graphs: dict[int, object] = {}
        self._first: Any = None
        self._last: Any = None

    @property
    def graphs(self) -> int:
        """Number of stretches that are replayed as a graph by now."""
        return len(self._graphs)

    # -- memory
    def _allocate(self, nbytes: int, name: str) -> int:
        address = self.device.allocate(nbytes, name)
        self._blocks.append(address)
        return address

    def _on_device(self, name: str) -> bool:
        return self.plan.buffers[name].place is not Place.HOST

    def _place(self, *, share: bool) -> int:
        """Give buffers addresses: in one arena, or a block each."""
        plan = self.plan
        total = 0
        lives = lifetimes(plan)
        if not share:
            for life in lives:
                self._addresses[life.name] = self._allocate(life.nbytes, life.name)
                total += life.nbytes
        elif lives:
            arena = plan_arena(lives, align=_ALIGN)
            base = self._allocate(arena.nbytes, "the arena")
            total = arena.nbytes
            self.offsets = arena.offsets
            for name, offset in arena.offsets.items():
                self._addresses[name] = base + offset
        for buffer in plan.buffers.values():
            own = buffer.place in (Place.INPUT, Place.OUTPUT, Place.STATUS)
            if own and not buffer.alias and buffer.name not in self._addresses:
                self._addresses[buffer.name] = self._allocate(buffer.nbytes, buffer.name)
                total += buffer.nbytes
        return total

    def _upload_consts(self) -> int:
        """Weights and tables, once."""
        plan, device = self.plan, self.device
        sizes = {n: max(1, a.nbytes) for n, a in plan.consts.items()}
        if device.guarded:
            for name, size in sizes.items():
                self._addresses[name] = self._allocate(size, name)
        elif sizes:
            places, top = {}, 0
            for name, size in sizes.items():
                places[name] = top
                top += -(-size // _ALIGN) * _ALIGN
            base = self._allocate(top, "the constants")
            for name, place in places.items():
                self._addresses[name] = base + place
        for name, array in plan.consts.items():
            if array.nbytes:
                device.upload(self._addresses[name], np.ascontiguousarray(array))
        device.synchronize()
        return sum(sizes.values())

    def _address(self, name: str) -> int:
        return self._addresses[self.plan.root(name)]

    # -- steps
    def _call(self, step: Step) -> tuple[object, ...] | None:
        """Arguments of a device step, ready to be passed on."""
        if isinstance(step, Launch):
            args: list[np.generic] = []
            for arg in step.args:
                if isinstance(arg, Pointer):
                    args.append(np.uint64(self._address(arg.buffer) + arg.offset))
                elif isinstance(arg, float):
                    args.append(np.float32(arg))
                else:
                    args.append(np.int32(arg))
            return (self._functions[step.kernel.name], step.grid, step.block, args)
        if isinstance(step, Library):
            a, b = (self._address(n) for n in step.reads)
            return (step.gemm, a, b, self._address(step.writes[0]))
        if isinstance(step, Convolve):
            result, *more = (self._address(n) for n in step.writes)
            tensors = (*(self._address(n) for n in step.reads), result)
            return (step.spec, step.engine, tensors, more[0] if more else 0)
        return None

    def _start(self, begin: int, end: int) -> None:
        """Start the device steps of a segment."""
        for k in range(begin, end):
            call, step = self._calls[k], self.plan.steps[k]
            assert call is not None
            if isinstance(step, Launch):
                self.device.launch(*call)  # type: ignore[arg-type]
            elif isinstance(step, Library):
                self.device.gemm(*call)  # type: ignore[arg-type]
            else:
                self.device.convolve(*call)  # type: ignore[arg-type]

    def _segment(self, number: int, begin: int, end: int) -> None:
        """Start a segment, from its graph once there is one.

        The first run is direct, as libraries make their own preparations; the second records.
        """
        graph = self._graphs.get(number)
        if graph is None and self._record and self._runs == 1:
            graph = self.device.capture(lambda: self._start(begin, end))
            if graph is None:
                self._record = False
                self.notes.append("launches are not replayed as a graph: the device refused")
            else:
                self._graphs[number] = graph
        if graph is None:
            self._start(begin, end)
        else:
            self.device.replay(graph)

    def _run_host(self, step: Host) -> None:
        """Reference code: inputs down, results up."""
        arrays = [self._fetch(name) for name in step.reads]
        self.device.synchronize()
        results = step.run(arrays)
        kept = []
        for name, result in zip(step.writes, results, strict=True):
            array = np.ascontiguousarray(result)
            if not self._on_device(name):
                self._host[name] = array
                continue
            buffer = self.plan.buffers[name]
            if array.shape != buffer.shape or array.dtype != np.dtype(buffer.dtype):
                raise ExecutionError(
                    f"{step.name} gave {array.dtype} {array.shape}, "
                    f"not {buffer.dtype} {buffer.shape} as planned"
                )
            self.device.upload(self._address(name), array)
            kept.append(array)
        if kept:
            self.device.synchronize()

    def _fetch(self, name: str) -> Array:
        """A buffer as an array of the host; complete on `synchronize`."""
        if not self._on_device(name):
            return self._host[name]
        const = self.plan.consts.get(name)
        if const is not None:
            return const
        buffer = self.plan.buffers[name]
        array = np.empty(buffer.shape, buffer.dtype)
        self.device.download(array, self._address(name))
        return array

    # -- running
    def run(self, feeds: Sequence[Array]) -> list[Array]:
        """Outputs in order from inputs in order.

        Results are in buffers that the next run overwrites.

        Raises:
            ExecutionError: The program is closed, or something went wrong on the device.
        """
        if self._closed:
            raise ExecutionError("the program is closed")
        clock = time.perf_counter_ns
        begin = clock()
        for name, feed in zip(self.plan.inputs, feeds, strict=True):
            if not name:
                continue
            if not self._on_device(name):
                self._host[name] = feed
                continue
            np.copyto(self._pinned[name], feed)
            self.device.upload(self._address(name), self._pinned[name])
        if self.plan.checks:
            self.device.upload(self._address(STATUS), self._zero)
        copied = clock()
        # Between the events the host does as little as it can: what it takes counts where the
        # device has nothing else to do.
        first = self._first = self.device.event(self._first)
        self._start_all()
        last = self._last = self.device.event(self._last)
        launched = clock()
        results = [self._result(name) for name in self.plan.outputs]
        if self.plan.checks:
            self.device.download(self._status, self._address(STATUS))
        self.device.synchronize()
        if self.plan.checks and self._status[0]:
            raise ExecutionError(self.plan.checks[int(self._status[0]) - 1])
        end = clock()
        self.times = Times(
            end - begin,
            launched - copied,
            self.device.elapsed_ns(first, last),
            copied - begin,
            end - launched,
        )
        self._runs += 1
        return results

    def _start_all(self) -> None:
        if len(self._graphs) == 1 and self._segments[0] == (0, len(self.plan.steps)):
            self.device.replay(self._graphs[0])
            return
        for number, steps in self._stretches():
            if number is None:
                self._run_host(self._host_step(steps.start))
            else:
                self._segment(number, steps.start, steps.stop)

    def _stretches(self) -> Iterator[tuple[int | None, range]]:
        """Steps in order: segments of the device with their number, steps of the host with None."""
        at = 0
        for number, (begin, end) in enumerate(self._segments):
            yield from ((None, range(k, k + 1)) for k in range(at, begin))
            yield number, range(begin, end)
            at = end
        yield from ((None, range(k, k + 1)) for k in range(at, len(self.plan.steps)))

    def _host_step(self, k: int) -> Host:
        step = self.plan.steps[k]
        assert isinstance(step, Host)
        return step

    def _result(self, name: str) -> Array:
        if name in self._pinned:
            self.device.download(self._pinned[name], self._address(name))
            return self._pinned[name]
        return self._fetch(name)

    def profile(self, feeds: Sequence[Array], repeat: int) -> list[list[tuple[int, int]]]:
        """Run step by step with events between: for each step (start, duration) in ns.

        The device is kept busy until a stretch is started whole, since otherwise short kernels
        would seem to take as long as the host takes to start the next.
        """
        spans: list[list[tuple[int, int]]] = [[] for _ in self.plan.steps]
        self.run(feeds)
        holds = [0] * len(self._segments)
        for turn in range(repeat + 1):
            found, holds = self._timed_pass(holds)
            if turn:  # the first pass shows how long the host takes
                for step, span in zip(spans, found, strict=True):
                    step.append(span)
        return spans

    def _timed_pass(self, holds: Sequence[int]) -> tuple[list[tuple[int, int]], list[int]]:
        """One run: spans of the steps without the time that the device was held, and next holds."""
        device = self.device
        first = last = device.event()
        marks: list[tuple[Any, Any]] = []
        pauses: list[tuple[int, Any, Any]] = []  # before which step, from when to when
        spent: list[int] = []
        for number, steps in self._stretches():
            begin = time.perf_counter_ns()
            if number is None:
                self._run_host(self._host_step(steps.start))
            else:
                before = last
                device.hold(holds[number])
                last = device.event()
                pauses.append((steps.start, before, last))
            for k in steps:
                if number is not None:
                    self._start(k, k + 1)
                after = device.event()
                marks.append((last, after))
                last = after
            if number is not None:
                spent.append(time.perf_counter_ns() - begin)
        device.synchronize()
        elapsed, paused = device.elapsed_ns, 0
        waits = {step: elapsed(a, b) for step, a, b in pauses}
        spans = []
        for k, (start, end) in enumerate(marks):
            paused += waits.get(k, 0)
            spans.append((max(0, elapsed(first, start) - paused), elapsed(start, end)))
        return spans, [ns + ns // 4 for ns in spent]

    def close(self) -> None:
        """Free everything. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._graphs.clear()
        if self._owner:
            self.device.close()
            return
        self.device.synchronize()
        for address in self._blocks:
            self.device.free(address)
        self._blocks.clear()
