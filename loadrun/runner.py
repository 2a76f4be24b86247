"""One run of a model as the command line does it: which cases, in which order, what is kept.

A case is a set of inputs: one test case of the file, or what `--input` and the seed give. For each
case the outputs are checked first, then timed.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from loadrun.asserts import AssertFailure
from loadrun.inputs import EXPECT, RANDOM, Feeds, resolve_inputs
from loadrun.measure import OnSample, Pacing, Phase, Sample, Warmup
from loadrun.stats import Stats
from loadrun.trust import Noise, NoiseProbe
from mgeserial.dtypes import Array
from mgeserial.errors import InputError, MgeError, printable
from mgeserial.ir.types import TensorType

__all__ = [
    "Case",
    "CaseResult",
    "Kind",
    "Listener",
    "Outcome",
    "Runnable",
    "make_cases",
    "run_cases",
]


class Kind(enum.Enum):
    """Where the inputs of a case come from."""

    TESTCASE = "testcase"
    INPUT = "input"
    NO_INPUTS = "none"


class Runnable(Protocol):
    """What is needed of a session."""

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Types of the inputs by name."""
        ...

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Types of the outputs by name."""
        ...

    @property
    def has_asserts(self) -> bool:
        """Whether the network checks its own outputs."""
        ...

    def prepare(self, inputs: Mapping[str, Array]) -> int:
        """Compile for the inputs' shapes; the time it took, ns."""
        ...

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name."""
        ...

    def benchmark(
        self,
        iters: int,
        warmup: int | Warmup,
        inputs: Mapping[str, Array],
        *,
        on_sample: OnSample,
        pacing: Pacing | None = None,
    ) -> Stats:
        """Time the inference alone."""
        ...

    def check_asserts(self, inputs: Mapping[str, Array]) -> list[AssertFailure]:
        """Outputs that are not as the network expects."""
        ...


@dataclass(frozen=True, slots=True)
class Case:
    """One set of inputs.

    Attributes:
        kind: Where they come from.
        index: Number of the case, from 0.
        feeds: The arrays and their sources.
        varying: Kinds of operators whose work depends on the values they are given.
    """

    kind: Kind
    index: int
    feeds: Feeds
    varying: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What a person calls the case."""
        if self.kind is Kind.TESTCASE:
            return f"test case {self.index}"
        if self.kind is Kind.NO_INPUTS:
            return "no inputs"
        return f"{RANDOM} inputs" if len(self.random) == len(self.feeds.arrays) else "given inputs"

    @property
    def random(self) -> list[str]:
        """Names of the inputs whose values are made up."""
        return [name for name, source in self.feeds.sources.items() if source.startswith(RANDOM)]


@dataclass(slots=True)
class CaseResult:
    """What was found for one case.

    Attributes:
        case: The case.
        prepare_ns: Time to compile for its shapes, ns; 0 when that had been done before.
        stats: The samples, as far as they were taken; None when none were to be taken.
        failures: Outputs that are not as the network expects.
        outputs: Outputs, where they were asked for.
        noise: What the system counted while the samples were taken.
        session: Which of several sessions at once it was, from 0.
    """

    case: Case
    prepare_ns: int | None = None
    stats: Stats | None = None
    failures: list[AssertFailure] = field(default_factory=list)
    outputs: dict[str, Array] | None = None
    noise: Noise | None = None
    session: int = 0


@dataclass(slots=True)
class Outcome:
    """Results of all cases that were begun.

    Attributes:
        results: In the order of the cases, session by session.
        interrupted: Whether an interrupt ended the run.
        unfinished: Whether a session is still in a run that the interrupt could not end.
    """

    results: list[CaseResult] = field(default_factory=list)
    interrupted: bool = False
    unfinished: bool = False

    @property
    def failed(self) -> bool:
        """Whether any output is not as the network expects."""
        return any(result.failures for result in self.results)

    @property
    def total_ns(self) -> int:
        """Sum of all samples, ns."""
        return sum(r.stats.total_ns for r in self.results if r.stats is not None)


class Listener:
    """Told what happens as it happens; this one does nothing with it."""

    def planned(self, cases: Sequence[Case], outputs: Mapping[str, TensorType]) -> None:
        """The cases are known; nothing has run."""

    def prepared(self, case: Case, ns: int) -> None:
        """The model is compiled for a case's shapes."""

    def failure(self, case: Case, failure: AssertFailure) -> None:
        """An output is not as the network expects."""

    def sample(self, case: Case, sample: Sample) -> None:
        """One inference was measured."""

    def measured(self, case: Case, stats: Stats) -> None:
        """All samples of a case are there, or an interrupt ended them."""

    def finished(self, outcome: Outcome) -> None:
        """All cases are done."""


def make_cases(
    session: Runnable,
    testcases: Sequence[Mapping[str, Array]],
    items: Sequence[str],
    *,
    seed: int,
    varying: Sequence[str] = (),
) -> list[Case]:
    """Cases to run: the file's test cases, unless `--input` gives other inputs.

    `varying` is what `modelinfo.varying_operators` says of the network.

    Raises:
        InputError: See `resolve_inputs`; or an expected value would have to be made up.
    """
    types = session.inputs
    if testcases and not items:
        return [
            Case(Kind.TESTCASE, i, Feeds(dict(arrays), dict.fromkeys(arrays, f"test case {i}")))
            for i, arrays in enumerate(testcases)
        ]
    feeds = resolve_inputs(items, types, seed=seed)
    case = Case(Kind.INPUT if types else Kind.NO_INPUTS, 0, feeds, tuple(varying))
    if session.has_asserts:
        _need_expected(case)
    return [case]


def _need_expected(case: Case) -> None:
    for name in case.random:
        if name.endswith(EXPECT):
            raise InputError(
                f"input `{name}` holds what an output should be: random values make no sense",
                hint=f"give it with --input '{name}:file.npy', or run the file's own test cases "
                "by leaving --input out",
            )


def run_cases(
    session: Runnable,
    cases: Sequence[Case],
    *,
    iters: int,
    warmup: int | Warmup,
    time_failed: bool = False,
    keep_outputs: Callable[[CaseResult], None] | None = None,
    listener: Listener | None = None,
    pacing: Pacing | None = None,
) -> Outcome:
    """Check and time every case; an interrupt keeps what was measured so far.

    Warm-up runs belong to the first case, as in load_and_run. The number of samples of a case is
    `iters`, unless its outputs are wrong: then it is not timed.

    Args:
        session: The model, ready to run.
        cases: What to run, in order.
        iters: Samples for each case.
        warmup: Runs, or a time, before the first samples.
        time_failed: Whether to time a case whose outputs are wrong as well.
        keep_outputs: Called with a case's result after its outputs were computed once more,
            outside the timed part; None: outputs are not kept.
        listener: Told about each step.
        pacing: How samples are taken, beside their number.
    """
    told = listener or Listener()
    outcome = Outcome()
    told.planned(cases, session.outputs)
    try:
        for case in cases:
            result = CaseResult(case)
            outcome.results.append(result)
            result.prepare_ns = session.prepare(case.feeds.arrays)
            told.prepared(case, result.prepare_ns)
            _check(session, result, told)
            if not result.failures or time_failed:
                before = warmup if case is cases[0] else 0
                result.stats = _time(session, result, iters, before, told, pacing)
                told.measured(case, result.stats)
            if keep_outputs is not None:
                result.outputs = session.run(case.feeds.arrays)
                keep_outputs(result)
    except KeyboardInterrupt:
        outcome.interrupted = True
    except MgeError as error:
        made_up = outcome.results[-1].case.random
        if made_up and error.hint is None:
            names = ", ".join(f"`{printable(name)}`" for name in made_up[:4])
            error.hint = f"random values may not do for {names}: give real ones with --input"
        raise
    told.finished(outcome)
    return outcome


def _check(session: Runnable, result: CaseResult, told: Listener) -> None:
    """Let the network check its own outputs, if it does."""
    if session.has_asserts:
        result.failures = session.check_asserts(result.case.feeds.arrays)
        for failure in result.failures:
            told.failure(result.case, failure)


def _time(
    session: Runnable,
    result: CaseResult,
    iters: int,
    warmup: int | Warmup,
    told: Listener,
    pacing: Pacing | None,
) -> Stats:
    """Samples of one case; on an interrupt those taken so far are in `result` already."""
    taken: dict[Phase, list[int]] = {phase: [] for phase in Phase}
    probe = NoiseProbe()

    def on_sample(sample: Sample) -> None:
        taken[sample.phase].append(sample.ns)
        told.sample(result.case, sample)

    feeds = result.case.feeds.arrays
    try:
        stats = session.benchmark(iters, warmup, feeds, on_sample=on_sample, pacing=pacing)
        result.noise = probe.read()
        return stats
    except KeyboardInterrupt:
        first = taken[Phase.FIRST]
        result.stats = Stats(
            samples=tuple(taken[Phase.TIMED]),
            warmup=tuple(taken[Phase.WARMUP]),
            first_inference_ns=first[0] if first else None,
        )
        told.measured(result.case, result.stats)
        raise


def dump_outputs(result: CaseResult, types: Mapping[str, TensorType], folder: str) -> None:
    """Write a case's outputs as load_and_run does: `run<case>-var<output>` in a folder.

    One file an output and case, named by its place among the outputs; the file holds its name.

    Raises:
        InputError: The folder cannot be made or written to.
        UnsupportedError: An output's type has no place in such a file.
    """
    from mgeserial.format.tensor_dump import write_tensor_dump

    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror or error}", path=folder) from error
    for place, (name, array) in enumerate((result.outputs or {}).items()):
        path = os.path.join(folder, f"run{result.case.index}-var{place}")
        write_tensor_dump(path, name, array, types[name].dtype.kind)
