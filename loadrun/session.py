"""The Python API: load a model, make it ready, run it, measure it.

with loadrun.Session("net.mge") as session:
    outputs = session.run({"data": array})
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import mgeserial
from loadrun.asserts import AssertFailure, check
from loadrun.backends.base import (
    Backend,
    CompileOptions,
    MemoryPlan,
    Parts,
    Program,
    StepSpans,
    choose,
    get_backend,
)
from loadrun.locator import at_node
from loadrun.measure import OnSample, Pacing, Warmup, measure
from loadrun.stats import Stats
from mgeserial.arguments import shown, whole
from mgeserial.dtypes import Array
from mgeserial.errors import ExecutionError, InputError, ShapeError, UnsupportedError
from mgeserial.ir.copying import copy_graph
from mgeserial.ir.graph import Graph, Output
from mgeserial.ir.inference import Inference, infer
from mgeserial.ir.model import Model
from mgeserial.ir.types import Shape, TensorType

__all__ = ["Session"]

# Programs kept for further sets of input shapes.
_PROGRAMS = 8
# For backends that cannot compile for several sessions at once.
_COMPILING = threading.Lock()
Feeds = Mapping[str, Any] | Sequence[Any]


class Session:
    """A model made ready to run.

    Args:
        model: A model, a graph, or whatever `mgeserial.load` takes. Of a model with several
            graphs, `graph` picks one.
        backend: `auto`, `reference`, or another registered name.
        threads: Number of threads; None: the backend's choice.
        graph: Index of the graph.
        device: Number of a CUDA device, or a computing node of MegEngine such as `gpu0:1`; None:
            as the options say.
        options: Further compile options.

    The session takes a snapshot: later edits of the graph do not reach it. It may be called from
    many threads; calls queue. After a fork the child must make a session of its own.

    Example::

        session = loadrun.Session("net.mge")
        y = session(x)["prob"]
        stats = session.benchmark(iters=50, warmup=5)
    """

    def __init__(
        self,
        model: Model | Graph | Any,
        backend: str = "auto",
        threads: int | None = None,
        *,
        graph: int = 0,
        device: str | int | None = None,
        options: CompileOptions | None = None,
    ) -> None:
        if threads is not None:
            threads = whole(threads, "threads", least=1)
        base = CompileOptions() if options is None else options
        if not isinstance(base, CompileOptions):
            raise InputError(f"options are a CompileOptions, got {shown(options)}")
        if device is not None:
            backend, threads, base = at_node(device, backend, threads, base)
        chosen: Backend = choose() if backend == "auto" else get_backend(backend)
        self._graph, _ = copy_graph(_pick(model, graph))
        self._backend = chosen
        self._options = base if threads is None else _with_threads(base, threads)
        self._names = self._graph.input_names
        self._output_names = self._graph.output_names
        self._programs: OrderedDict[tuple[Shape, ...], Program] = OrderedDict()
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._closed = False
        self._prepared_ns: dict[tuple[Shape, ...], int] = {}
        self._checker: Session | None = None
        self._checked: list[tuple[str, float]] = []

    # -- what the session is ---------------------------------------------------------------------

    @property
    def backend(self) -> str:
        """Name of the backend."""
        return self._backend.name

    @property
    def graph(self) -> Graph:
        """The session's own snapshot of the graph."""
        return self._graph

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Types of the inputs by name, in file order; shape None: any shape."""
        types = self._graph.inference.types
        return {n: types[v] for n, v in zip(self._names, self._graph.inputs, strict=True)}

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Types of the outputs by unique name, in output order."""
        types = self._graph.inference.types
        return {n: types[v] for n, v in zip(self._output_names, self._graph.outputs, strict=True)}

    @property
    def threads(self) -> int:
        """Threads that the last prepared program runs on."""
        for program in reversed(self._programs.values()):
            return program.report.threads
        return self._options.threads or 1

    @property
    def program(self) -> Program | None:
        """The program last prepared or run; None before the first."""
        return next(reversed(self._programs.values()), None)

    # -- running ---------------------------------------------------------------------------------

    def run(
        self, inputs: Feeds | None = None, *, out: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Run once.

        Args:
            inputs: Arrays by input name, or in the order of `Graph.inputs`.
            out: Arrays to write results into, by output name; the others are new.

        Returns:
            Arrays by output name in output order; they belong to the caller.

        Raises:
            InputError: Inputs missing, unknown, or of another dtype: lists the known ones.
            ShapeError: Shapes that the network cannot work with.
        """
        feeds = self._feeds(inputs)
        with self._lock:
            program = self._ready(feeds)
            results = program.run(feeds)
            return self._own(results, feeds, out)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Array]:
        """Run once with inputs in order and by name: `session(x, mask=m)`."""
        if len(args) > len(self._names):
            raise InputError(f"{len(args)} inputs given, {self._known()}")
        feeds = dict(zip(self._names, args, strict=False))
        twice = feeds.keys() & kwargs.keys()
        if twice:
            raise InputError(f"input {sorted(twice)[0]!r} is given twice")
        return self.run({**feeds, **kwargs})

    def prepare(self, inputs: Feeds | None = None) -> int:
        """Compile for these inputs' shapes; return the time it took, ns (0 when it was ready)."""
        feeds = self._feeds(inputs)
        key = tuple(f.shape for f in feeds)
        with self._lock:
            known = key in self._programs
            self._ready(feeds)
            return 0 if known else self._prepared_ns[key]

    def benchmark(
        self,
        iters: int = 10,
        warmup: int | Warmup = 1,
        inputs: Feeds | None = None,
        *,
        on_sample: OnSample | None = None,
        pacing: Pacing | None = None,
    ) -> Stats:
        """Measure `iters` runs after `warmup` untimed ones.

        Only the program itself is timed: checking and copying of inputs and outputs is not.

        Args:
            iters: Number of samples.
            warmup: Number of runs before, or a time (`Warmup.parse("500ms")`).
            inputs: As for `run`; None: seeded random inputs.
            on_sample: Told of each run, outside the timed part.
            pacing: More than a number of samples: a duration, pauses, copies of outputs.

        Returns:
            Raw samples in ns, with the first inference and the warm-up apart, and the parts of
            each sample where the backend tells them.
        """
        if inputs is None:
            from loadrun.inputs import random_inputs

            inputs = random_inputs(self.inputs, seed=0)
        feeds = self._feeds(inputs)
        pace = pacing or Pacing()
        with self._lock:
            call, parts = _timed_call(self._ready(feeds), feeds, copy_outputs=pace.copy_outputs)
            return measure(
                call,
                iters=iters,
                warmup=warmup,
                first=pace.first,
                on_sample=on_sample,
                pacing=pace,
                parts=parts,
            )

    def caller(self, inputs: Feeds | None = None) -> Callable[[], object]:
        """The inference alone, ready to be timed: what `benchmark` times.

        Inputs are checked and the program is compiled before; what a call returns may be
        overwritten by the next one. The caller sees to it that nothing else uses the session.
        """
        feeds = self._feeds(inputs)
        with self._lock:
            program = self._ready(feeds)
        return lambda: program.run(feeds)

    def profile(self, inputs: Feeds | None = None, *, repeat: int = 20) -> list[StepSpans]:
        """Time each step of the program in runs of their own.

        Args:
            inputs: As for `run`.
            repeat: Number of runs.

        Raises:
            UnsupportedError: The backend cannot say what its steps take.
        """
        feeds, repeat = self._feeds(inputs), whole(repeat, "repeat", least=1)
        with self._lock:
            found = self._special(self._ready(feeds), "profile")(feeds, repeat)
        return list(found)

    def memory(self, inputs: Feeds | None = None) -> MemoryPlan:
        """What lives in memory when, for these inputs' shapes.

        Raises:
            UnsupportedError: The backend does not say.
        """
        feeds = self._feeds(inputs)
        with self._lock:
            found: MemoryPlan = self._special(self._ready(feeds), "memory")()
        return found

    def _special(self, program: Program, name: str) -> Any:
        found = getattr(program, name, None)
        if found is None:
            raise UnsupportedError(
                f"backend {self.backend} has no {name} of a program",
                hint="use --backend cpu or reference",
            )
        return found

    def check_asserts(self, inputs: Feeds | None = None) -> list[AssertFailure]:
        """Run once and check the AssertEqual operators of the network.

        Returns:
            One record for each output that is not as expected; empty when all are, or none asks.
        """
        with self._lock:
            if self._checker is None:
                self._checker, self._checked = self._make_checker()
            if not self._checked:
                return []
            results = list(self._checker.run(inputs).values())
        failures = []
        for i, (name, maxerr) in enumerate(self._checked):
            failure = check(name, results[2 * i], results[2 * i + 1], maxerr)
            if failure is not None:
                failures.append(failure)
        return failures

    @property
    def has_asserts(self) -> bool:
        """Whether the network checks its own outputs (AssertEqual)."""
        return any(n.op.name == "AssertEqual" for n in self._graph.nodes)

    def _make_checker(self) -> tuple[Session, list[tuple[str, float]]]:
        """A session over the same network whose outputs are what AssertEqual compares."""
        from mgeserial.testcases import checked_name

        graph, _ = copy_graph(self._graph)
        outputs: list[Output] = []
        checked: list[tuple[str, float]] = []
        for node in graph.nodes:
            if node.op.name == "AssertEqual":
                expect, got = node.inputs[:2]
                outputs += [Output(expect, f"{len(checked)}:expect", 0)]
                outputs += [Output(got, f"{len(checked)}:got", 0)]
                checked.append((checked_name(node), float(node.param.maxerr)))
        graph.set_outputs(outputs)
        return Session(graph, self.backend, options=self._options), checked

    # -- inputs and outputs ----------------------------------------------------------------------

    def _known(self) -> str:
        return f"the model has {len(self._names)}: {self._stated() or 'none'}"

    def _stated(self) -> str:
        return ", ".join(f"{n}: {t}" for n, t in self.inputs.items())

    def _feeds(self, inputs: Feeds | None) -> list[Array]:
        if inputs is None:
            inputs = {}
        if isinstance(inputs, np.ndarray) or not isinstance(inputs, (Mapping, Sequence)):
            inputs = [inputs]
        if not isinstance(inputs, Mapping):
            if len(inputs) != len(self._names):
                raise InputError(f"{len(inputs)} inputs given, {self._known()}")
            inputs = dict(zip(self._names, inputs, strict=True))
        unknown = [str(n) for n in inputs if n not in self._names]
        if unknown:
            raise InputError(f"no input is called {', '.join(map(repr, unknown))}; {self._known()}")
        missing = [n for n in self._names if n not in inputs]
        if missing:
            raise InputError(f"input {', '.join(map(repr, missing))} is missing; {self._known()}")
        types = self.inputs
        return [_as_feed(n, inputs[n], types[n]) for n in self._names]

    def _own(
        self, results: list[Array], feeds: list[Array], out: Mapping[str, Array] | None
    ) -> dict[str, Array]:
        """Results as arrays of the caller: copied where they are views or repeated."""
        given = {} if out is None else out
        if not isinstance(given, Mapping):
            raise InputError(f"out is arrays by output name, got {type(out).__name__}")
        unknown = [n for n in given if n not in self._output_names]
        if unknown:
            known = ", ".join(self._output_names)
            raise InputError(f"no output is called {unknown[0]!r}; the model has: {known}")
        found: dict[str, Array] = {}
        seen = {id(f) for f in feeds}
        for name, array in zip(self._output_names, results, strict=True):
            target = given.get(name)
            if target is not None:
                _check_target(name, target, array)
                np.copyto(target, array)
                found[name] = target
                continue
            fresh = array.flags.owndata and array.flags.writeable and id(array) not in seen
            seen.add(id(array))
            found[name] = (
                array if fresh and array.flags.c_contiguous else np.array(array, order="C")
            )
        return found

    # -- programs --------------------------------------------------------------------------------

    def _ready(self, feeds: list[Array]) -> Program:
        if self._closed:
            raise ExecutionError("the session is closed")
        if os.getpid() != self._pid:
            raise ExecutionError(
                "the session belongs to the process that made it",
                hint="make a session in the child process, after the fork",
            )
        key = tuple(f.shape for f in feeds)
        program = self._programs.get(key)
        if program is not None:
            self._programs.move_to_end(key)
            return program
        inference = self._inference(feeds)
        concurrent = getattr(self._backend, "concurrent", False)
        with contextlib.nullcontext() if concurrent else _COMPILING:
            start = time.perf_counter_ns()
            program = self._backend.compile(self._graph, inference, self._options)
            self._prepared_ns[key] = time.perf_counter_ns() - start
        self._programs[key] = program
        while len(self._programs) > _PROGRAMS:
            _, old = self._programs.popitem(last=False)
            old.close()
        return program

    def _inference(self, feeds: list[Array]) -> Inference:
        """Types at the given shapes: the file's own inference where they are the file's."""
        values = self._graph.inputs
        stored = self._graph.inference
        if all(stored.types[v].shape == f.shape for v, f in zip(values, feeds, strict=True)):
            return stored
        shapes = {v: f.shape for v, f in zip(values, feeds, strict=True)}
        try:
            return infer(self._graph, shapes)
        except ShapeError as error:
            given = ", ".join(f"{n} {f.shape}" for n, f in zip(self._names, feeds, strict=True))
            error.message += f"; with inputs {given}, where the file has {self._stated()}"
            raise

    def close(self) -> None:
        """Free programs, threads and memory. Further runs are errors; closing twice is fine."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._pid == os.getpid():
                for program in self._programs.values():
                    program.close()
            self._programs.clear()
            if self._checker is not None:
                self._checker.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_closed", True) is False:
            self.close()

    def __repr__(self) -> str:
        return f"Session({self._graph!r}, backend={self.backend!r})"


def _pick(model: Model | Graph | Any, index: int) -> Graph:
    if isinstance(model, Graph):
        return model
    loaded = model if isinstance(model, Model) else mgeserial.load(model)
    return loaded.graph_at(index)


def _timed_call(
    program: Program, feeds: list[Array], *, copy_outputs: bool
) -> tuple[Callable[[], object], Callable[[], Parts] | None]:
    """What is timed, and what tells the parts of its last call (None: nobody can)."""
    found = getattr(program, "run_parts", None)
    last = [Parts(0)]
    targets: list[Array] = []

    def whole() -> list[Array]:
        return program.run(feeds)

    def split() -> list[Array]:
        assert found is not None
        results: list[Array]
        results, last[0] = found(feeds)
        return results

    compute = whole if found is None else split
    parts = None if found is None else (lambda: last[0])
    if not copy_outputs:
        return compute, parts

    def copied() -> None:
        results = compute()
        start = time.perf_counter_ns()
        if [t.shape for t in targets] != [r.shape for r in results]:
            targets[:] = [np.empty(r.shape, r.dtype) for r in results]
        for target, result in zip(targets, results, strict=True):
            np.copyto(target, result)
        spent = time.perf_counter_ns() - start
        last[0] = Parts(last[0].device_ns, last[0].copy_ns + spent)

    return copied, parts


def _check_target(name: str, target: Any, array: Array) -> None:
    """Whether a result can be written into an array of the caller."""
    if not isinstance(target, np.ndarray):
        raise InputError(f"out[{name!r}] must be a numpy array, got {type(target).__name__}")
    if target.shape != array.shape or target.dtype != array.dtype:
        raise InputError(
            f"out[{name!r}] must be {array.dtype} {array.shape}, got {target.dtype} {target.shape}"
        )
    if not target.flags.writeable:
        raise InputError(f"out[{name!r}] cannot be written to", hint="give an array of your own")


def _with_threads(options: CompileOptions, threads: int) -> CompileOptions:
    import dataclasses

    return dataclasses.replace(options, threads=threads)


def _as_feed(name: str, value: Any, want: TensorType) -> Array:
    """One input as a C-contiguous array of the storage dtype."""
    storage = want.dtype.storage
    if not isinstance(value, (np.ndarray, np.generic)):
        value = _from_python(name, value, want)
    array = np.asarray(value)
    if array.dtype != storage:
        if array.dtype == storage.newbyteorder():
            array = array.astype(storage)
        else:
            raise InputError(
                f"input {name!r} is {want.dtype}, held as {storage}; got an array of {array.dtype}",
                hint=f"convert it: array.astype(numpy.{storage.name})",
            )
    if array.ndim == 0:
        array = array.reshape(1)
    return np.ascontiguousarray(array)


def _from_python(name: str, value: Any, want: TensorType) -> Array:
    """Numbers and nested lists; anything else that numpy would guess at is refused."""
    if not isinstance(value, (int, float, bool, list, tuple)) and not hasattr(value, "__array__"):
        raise InputError(f"input {name!r} must be an array, got {type(value).__name__}")
    try:
        array = np.asarray(value)
        if hasattr(value, "__array__"):
            return array
        exact = array.astype(want.dtype.storage)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"input {name!r} is no regular array of numbers: {error}") from error
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and exact.dtype.kind in "biu"):
        raise InputError(f"input {name!r} is {want.dtype}; got Python values of {array.dtype}")
    return exact
