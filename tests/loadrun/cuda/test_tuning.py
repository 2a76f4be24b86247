"""The choice among candidates: measured, kept in the policy file, within the options' limits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from cuda_kernels import compile_together

from loadrun.backends.base import CompileOptions, ProgramReport
from loadrun.backends.cuda import device as devices
from loadrun.backends.cuda import lower
from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.emulated import EmulatedDevice
from loadrun.backends.cuda.plan import Engine, Plan, check_plan
from loadrun.backends.cuda.planner import make_plan
from loadrun.backends.cuda.program import Program
from loadrun.backends.cuda.tuning import code_version, scratch_bytes
from loadrun.backends.cuda.variants import Algorithm, Choice, Target
from loadrun.cli import main
from loadrun.session import Session
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.editing import set_batch_size
from mgeserial.errors import ExecutionError, InputError, UnsupportedError
from mgeserial.ir.graph import Graph

pytestmark = pytest.mark.usefixtures("device")
DATA = np.random.default_rng(7).standard_normal((2, 8, 9, 9)).astype(np.float32)


def _weights(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * 0.3).astype(dtype)


def _net(*, last: int = 24) -> Graph:
    """Bias, residual and nonlinearity behind convolutions; depthwise; a deep one that is split."""
    b = GraphBuilder()
    x = b.input("data", (2, 8, 9, 9))
    y = b.relu(b.conv2d(x, _weights(16, 8, 3, 3), _weights(16), stride=2, padding=1))
    z = b.conv2d(y, _weights(16, 16, 3, 3), _weights(16), padding=1)
    z = b.relu(b.add(z, y))
    z = b.hswish(b.conv2d(z, _weights(16, 1, 3, 3), _weights(16), padding=1, groups=16))
    z = b.conv2d(z, _weights(64, 16, 1, 1), _weights(64))
    b.output(b.conv2d(z, _weights(last, 64, 5, 5), padding=2), "y")
    return b.graph()


def _network() -> nd.Network:
    graph = _net()
    return lower.lower(graph, graph.inference).network


def _want(graph: Graph, data: np.ndarray = DATA) -> np.ndarray:
    with Session(graph, "reference") as session:
        return next(iter(session.run([data]).values()))


class Clock(EmulatedDevice):
    """A device whose time is what its steps cost, by `cost`; `lies` while it is profiled.

    What is profiled is run once; then its time is told only.
    """

    cost: Callable[[str], int] = staticmethod(lambda name: 1000)
    lies = False
    known: ClassVar[set[tuple[object, ...]]] = set()

    def __init__(self, number: int = 0, *, cache: bool = True) -> None:
        super().__init__(number)
        self.now, self.asked, self._profiled = 0, 0, False

    def launch(self, function: Any, *args: Any) -> None:
        kernel, (grid, block) = function[1], args[:2]
        what = (kernel.name, grid, block)
        if not self._profiled or what not in self.known:
            super().launch(function, *args)
            self.known.add(what)
        self._spend(kernel.name)

    def convolve(self, spec: Any, engine: Engine, *args: Any) -> None:
        super().convolve(spec, engine, *args)
        self._spend(f"cudnn {engine.name}")

    def _spend(self, name: str) -> None:
        ns = self.cost(name)
        self.now += 10_000 - ns if self.lies and self._profiled else ns

    def hold(self, nanoseconds: int) -> None:
        self._profiled = True
        self.now += 7_000_000  # must not count

    def synchronize(self) -> None:
        self._profiled = False

    def event(self, again: object = None) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    """Sessions run on a `Clock`; its costs can be set on the class that is given."""
    kind = type("TestClock", (Clock,), {})
    monkeypatch.setattr(devices, "open_device", kind)
    return kind


def _run(graph: Graph, options: CompileOptions) -> tuple[np.ndarray, ProgramReport]:
    with Session(graph, "cuda", options=options) as session:
        results = [session.run([DATA])["y"] for _ in range(3)]
        np.testing.assert_array_equal(results[0], results[2])
        assert session.program is not None
        return results[0], session.program.report


def _choices(report: ProgramReport) -> list[str]:
    """Chosen algorithm of each layer."""
    return [c.choice for c in report.choices]


def _tried(report: ProgramReport) -> set[str]:
    """Candidates that were measured."""
    return {name for c in report.choices for name in c.times_ns}


# -- candidates ----------------------------------------------------------------------------------


def _f16_net() -> Graph:
    """float16 with fused bias, residual and nonlinearity, and one that rounds between."""
    b = GraphBuilder()
    x = b.input("data", (2, 8, 9, 9), dtype="Float16")
    w = b.param(_weights(16, 8, 3, 3, dtype=np.float16))
    bias = b.param(_weights(1, 16, 1, 1, dtype=np.float16))
    mode = P.ConvBiasV0NonlineMode.SIGMOID
    y = b.apply(
        "ConvBiasForward",
        [x, w, bias],
        params=(P.ConvBias(nonlineMode=mode, pad_h=1, pad_w=1), P.ExecutionPolicy()),
    )[0]
    z = b.conv2d(y, _weights(8, 16, 1, 1, dtype=np.float16))
    b.output(b.relu(b.add(z, x)), "y")
    return b.graph()


def _volume_net() -> Graph:
    b = GraphBuilder()
    x = b.input("data", (2, 2, 5, 6, 7))
    w = b.param(_weights(3, 2, 3, 2, 3))
    y = b.apply(
        "Convolution3D",
        [x, w],
        params=(P.Convolution3D(pad_d=1, stride_h=2, pad_w=2), P.ExecutionPolicy()),
    )
    b.output(b.apply("Elemwise", [y[0]], params=(P.Elemwise(mode=P.ElemwiseMode.TANH),))[0], "y")
    return b.graph()


def _nhwc_net() -> Graph:
    b = GraphBuilder()
    x = b.input("data", (2, 9, 9, 8))
    w = b.param(_weights(6, 3, 3, 8))
    param = P.Convolution(format=P.ConvolutionFormat.NHWC, pad_h=1, stride_w=2, dilate_h=2)
    y = b.apply("Convolution", [x, w], params=(param, P.ExecutionPolicy()))
    b.output(b.relu(y[0]), "y")
    return b.graph()


def _dynamic_net() -> Graph:
    """A filter that is computed at run time."""
    b = GraphBuilder()
    x = b.input("data", (2, 8, 9, 9))
    w = b.mul(b.reshape(b.slice_axis(x, 0, 0, 1), (9, 8, 3, 3)), np.float32(0.5))
    b.output(b.conv2d(x, w), "y")
    return b.graph()


def _products_net() -> Graph:
    """Products in float16, and a batch of them; a 1x1 convolution without anything behind it."""
    b = GraphBuilder()
    x = b.input("data", (3, 32, 8, 8), dtype="Float16")
    y = b.conv2d(x, _weights(64, 32, 1, 1, dtype=np.float16) * np.float16(0.2))
    z = b.reshape(y, (3, 64, 64))
    z = b.relu(b.matmul(z, b.transpose(z, (0, 2, 1))))
    z = b.reshape(z, (192, 64))
    b.output(b.matmul(z, b.param(_weights(64, 64, dtype=np.float16) * np.float16(0.2))), "y")
    return b.graph()


def _groups_net() -> Graph:
    """A 1x1 convolution in groups, with a number for each channel behind it."""
    b = GraphBuilder()
    x = b.input("data", (1, 64, 10, 10))
    y = b.conv2d(x, _weights(128, 16, 1, 1), _weights(128), groups=4)
    b.output(b.relu(y), "y")
    return b.graph()


NETS = {
    "groups": (_groups_net, (1, 64, 10, 10), np.float32),
    "products": (_products_net, (3, 32, 8, 8), np.float16),
    "float32": (_net, DATA.shape, np.float32),
    "float16": (_f16_net, DATA.shape, np.float16),
    "volume": (_volume_net, (2, 2, 5, 6, 7), np.float32),
    "nhwc": (_nhwc_net, (2, 9, 9, 8), np.float32),
    "dynamic": (_dynamic_net, DATA.shape, np.float32),
}


@pytest.mark.parametrize("name", NETS)
def test_every_candidate_of_every_layer_is_right(name: str) -> None:
    make, shape, dtype = NETS[name]
    graph = make()
    data = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    want = _want(graph, data).astype(np.float64)
    network = lower.lower(graph, graph.inference).network
    device = EmulatedDevice()
    target = Target((8, 0), tf32=False, engines=device.engines)
    tolerance = 1e-4 if dtype is np.float32 else 5e-3
    seen: set[Algorithm] = set()
    plans: list[Plan] = []
    most = 1
    while len(plans) < most:
        k = len(plans)
        plan = make_plan(
            network, target, choose=lambda _, found, k=k: found[min(k, len(found) - 1)]
        )
        assert check_plan(plan) == []
        names = [[str(c) for c in d.candidates] for d in plan.decisions.values()]
        assert all(len(set(n)) == len(n) for n in names), "two candidates of one name"
        seen |= {d.choice.algorithm for d in plan.decisions.values()}
        most = max(len(n) for n in names)
        plans.append(plan)
    compile_together(plans)
    for plan in plans:
        program = Program(plan, device, owner=False)
        got = program.run([data])[0].astype(np.float64)
        program.close()
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=str(plan))
    device.close()
    assert Algorithm.CUDNN in seen
    assert len(seen) > 1
    assert (Algorithm.LIBRARY in seen) == (name in ("groups", "products"))


def test_what_follows_is_part_of_the_librarys_call() -> None:
    network = _network()
    device = EmulatedDevice()
    plan = make_plan(network, Target(engines=device.engines))
    fused = [
        [str(c.spec) for c in d.candidates if c.engine == Engine("numpy")]
        for d in plan.decisions.values()
    ]
    device.close()
    assert fused == [
        ["conv 2x8x9x9 * 16x8x3x3 bias relu", "conv 2x8x9x9 * 16x8x3x3"],
        ["conv 2x16x5x5 * 16x16x3x3 bias addend relu", "conv 2x16x5x5 * 16x16x3x3"],
        ["conv 2x16x5x5 * 16x1x3x3"],  # hard swish is none of its words
        ["conv 2x16x5x5 * 64x16x1x1 bias", "conv 2x16x5x5 * 64x16x1x1"],
        ["conv 2x64x5x5 * 24x64x5x5"],
    ]


def test_filters_that_only_a_library_reads_are_kept_once() -> None:
    network = _network()
    device = EmulatedDevice()
    plan = make_plan(network, Target(engines=device.engines), choose=lambda _, found: found[-1])
    device.close()
    filters = [a for n, a in plan.consts.items() if a.size > 100]
    assert sum(a.size for a in filters) == sum(
        w.size for w in (_weights(16, 8, 3, 3), _weights(16, 16, 3, 3), _weights(16, 1, 3, 3),
                         _weights(64, 16, 1, 1), _weights(24, 64, 5, 5))
    )  # fmt: skip


# -- fast run ------------------------------------------------------------------------------------


def test_fastest_candidate_of_each_layer_is_taken(clock: type[Clock]) -> None:
    def cost(name: str) -> int:
        return 10 if name == "cudnn numpy-workspace" else 90 if "gemm_epilogue" in name else 1000

    clock.cost = staticmethod(cost)
    want = _want(_net())
    got, report = _run(_net(), CompileOptions(fast_run=True))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert "fast run: 5 of 5 layers have another algorithm" in "\n".join(report.notes)
    chosen = _choices(report)
    assert chosen == [
        *["cudnn numpy-workspace"] * 2, "cudnn sums numpy-workspace",
        *["cudnn numpy-workspace"] * 2,
    ]  # fmt: skip
    assert report.workspace_bytes >= 1000
    assert report.choices[0].times_ns["cudnn numpy-workspace"] == 10
    assert report.choices[2].times_ns["cudnn sums numpy-workspace"] == 100
    assert {c.source for c in report.choices} == {"measured"}


def test_guess_stays_where_nothing_is_faster(clock: type[Clock]) -> None:
    clock.cost = staticmethod(lambda name: 500 if "split" in name or "finish" in name else 1000)
    plain = _run(_net(), CompileOptions())
    found = _run(_net(), CompileOptions(fast_run=True))
    np.testing.assert_array_equal(found[0], plain[0])
    assert "fast run: the guess is the fastest for all 5 layers" in found[1].notes


def test_guess_stays_where_the_whole_network_is_not_faster(clock: type[Clock]) -> None:
    clock.lies = True
    clock.cost = staticmethod(lambda name: 2000 if name.startswith("cudnn") else 1000)
    _, report = _run(_net(), CompileOptions(fast_run=True))
    assert any("which is no gain" in n and "not used" in n for n in report.notes)
    assert not any(c.startswith("cudnn") for c in _choices(report))
    assert any(c.startswith("cudnn") for c in _tried(report))


def test_full_run_measures_what_hardly_ever_wins(clock: type[Clock]) -> None:
    plain, full = (
        _run(_net(), CompileOptions(fast_run=True, full_run=f))[1].choices[0] for f in (False, True)
    )
    assert {"cudnn numpy", "cudnn numpy-workspace"} <= set(plain.times_ns)
    assert set(full.times_ns) - set(plain.times_ns) == {
        "cudnn sums numpy", "cudnn sums numpy-workspace",
    }  # fmt: skip


def test_choice_of_another_batch_is_used(clock: type[Clock]) -> None:
    clock.cost = staticmethod(_fast_cudnn)
    _, first = _run(_net(), CompileOptions(fast_run=True))
    graph = _net()
    set_batch_size(graph, 3)
    with Session(graph, "cuda", options=CompileOptions(algorithms=first.algorithms)) as session:
        data = np.concatenate([DATA, DATA[:1]])
        want = _want(graph, data)
        np.testing.assert_allclose(session.run([data])["y"], want, rtol=1e-4, atol=1e-4)
        report = session.program.report  # type: ignore[union-attr]
    assert {c.source for c in report.choices} == {"as given"}
    assert _choices(report) == _choices(first)
    with pytest.raises(InputError, match="not a choice of algorithms"):
        _run(_net(), CompileOptions(algorithms="default"))


def test_progress_is_told_while_measuring(clock: type[Clock]) -> None:
    told: list[tuple[str, int, int]] = []
    _run(_net(), CompileOptions(fast_run=True, progress=lambda *a: told.append(a)))
    assert told[0] == ("fast run", 0, len(told))
    assert [t[1] for t in told] == list(range(len(told)))


def test_candidate_that_fails_leaves_the_guess(
    clock: type[Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ExecutionError("cuDNN: not today")

    monkeypatch.setattr(Clock, "convolve", refuse)
    want = _want(_net())
    got, report = _run(_net(), CompileOptions(fast_run=True))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert any("cuDNN: not today" in n for n in report.notes)


def test_without_cudnn_a_note_says_so(clock: type[Clock], monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "nvidia-cudnn-frontend is not installed; run `pip install mgeserial[cudnn]`"
    monkeypatch.setattr(Clock, "no_convolutions", lambda self: reason)
    _, report = _run(_net(), CompileOptions(fast_run=True))
    assert [n for n in report.notes if "cuDNN" in n] == [
        f"cuDNN's convolutions are no candidates: {reason}"
    ]
    assert not any("cudnn" in name for name in _tried(report))


def test_cudnn_is_not_asked_for_unless_it_is_needed(
    clock: type[Clock], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("cuDNN was asked for")

    monkeypatch.setattr(Clock, "no_convolutions", refuse)
    monkeypatch.setattr(Clock, "engines", refuse)
    _run(_net(), CompileOptions())
    _run(_net(), CompileOptions(policy_file=str(tmp_path / "none.json")))


# -- the policy file -----------------------------------------------------------------------------


def _fast_cudnn(name: str) -> int:
    return 10 if name == "cudnn numpy" else 1000


def test_second_run_measures_nothing_and_is_the_same(
    clock: type[Clock], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.cost = staticmethod(_fast_cudnn)
    path = tmp_path / "policy.json"
    options = CompileOptions(fast_run=True, policy_file=str(path))
    first = _run(_net(), options)
    kept = path.read_bytes()
    entries = json.loads(kept)["choices"]
    assert len(entries) == 1
    (layers,) = entries.values()
    assert len(layers) == 5
    assert all(len(e["times_ns"]) > 5 and e["code"] == code_version() for e in layers.values())
    monkeypatch.setattr(Program, "profile", None)  # measuring would fail
    for again in (options, CompileOptions(policy_file=str(path))):
        got, report = _run(_net(), again)
        np.testing.assert_array_equal(got, first[0])
        assert "algorithms of 5 of 5 layers by the policy file" in report.notes
        assert _choices(report) == _choices(first[1])
    assert path.read_bytes() == kept


def test_layer_of_another_network_is_not_measured_again(clock: type[Clock], tmp_path: Path) -> None:
    path = str(tmp_path / "policy.json")
    _run(_net(), CompileOptions(fast_run=True, policy_file=path))
    _, report = _run(_net(last=12), CompileOptions(fast_run=True, policy_file=path))
    assert "algorithms of 4 of 5 layers by the policy file" in report.notes
    (layers,) = json.loads(Path(path).read_text())["choices"].values()
    assert len(layers) == 6


@pytest.mark.parametrize("change", ["code", "choice", "place"])
def test_entries_that_do_not_fit_are_not_used(
    clock: type[Clock], tmp_path: Path, change: str
) -> None:
    clock.cost = staticmethod(_fast_cudnn)
    path = tmp_path / "policy.json"
    _run(_net(), CompileOptions(fast_run=True, policy_file=str(path)))
    root = json.loads(path.read_text())
    ((_, layers),) = root["choices"].items()
    if change == "place":
        root["choices"] = {"cuda another GPU": layers}
    for entry in layers.values():
        if change != "place":
            entry[change] = "something else"
    path.write_text(json.dumps(root))
    _, report = _run(_net(), CompileOptions(policy_file=str(path)))
    assert "algorithms of 0 of 5 layers by the policy file" in report.notes
    assert not any(c.startswith("cudnn") for c in _choices(report))


def test_broken_policy_file_is_one_error(clock: type[Clock], tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text("{")
    with pytest.raises(InputError, match="not a policy file"):
        _run(_net(), CompileOptions(policy_file=str(path)))


# -- limits --------------------------------------------------------------------------------------


def test_reproducible_keeps_the_order_of_summation(clock: type[Clock]) -> None:
    clock.cost = staticmethod(lambda name: 10 if "32x64" in name or "cudnn" in name else 1000)
    plain = _run(_net(), CompileOptions(reproducible=True))
    got, report = _run(_net(), CompileOptions(reproducible=True, fast_run=True))
    np.testing.assert_array_equal(got, plain[0])
    assert any("another algorithm" in n or "the guess is" in n for n in report.notes)
    for choice in report.choices:
        ways = {name.partition(" ")[0] + name.partition(" split")[2] for name in choice.times_ns}
        assert len(ways) <= 1
        assert not any("cudnn" in way for way in ways)


def test_candidates_beyond_the_limit_of_scratch_memory_are_not_used(clock: type[Clock]) -> None:
    clock.cost = staticmethod(lambda name: 10 if name == "cudnn numpy-workspace" else 1000)
    _, report = _run(_net(), CompileOptions(fast_run=True, workspace_limit=999))
    assert report.workspace_bytes <= 999
    assert not any("workspace" in name for name in _tried(report))
    _, report = _run(_net(), CompileOptions(workspace_limit=0))
    assert report.workspace_bytes == 0
    assert not any("split" in choice for choice in _choices(report))


def test_limit_that_nothing_fits_is_refused(
    clock: type[Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    from loadrun.backends.cuda import planner

    deep = Choice(Algorithm.GEMM, next(iter(_gemm_tiles())), 2)
    monkeypatch.setattr(planner, "candidates", lambda *_: (deep,))
    with pytest.raises(UnsupportedError, match="bytes of scratch memory, more than the limit of 7"):
        _run(_net(), CompileOptions(workspace_limit=7))


def _gemm_tiles() -> list[Any]:
    network = _network()
    plan = make_plan(network)
    return [c.tile for d in plan.decisions.values() for c in d.candidates if c.tile is not None]


def test_scratch_memory_of_a_layer_is_what_its_steps_share() -> None:
    network = _network()
    plan = make_plan(network, choose=lambda _, found: max(found, key=lambda c: c.splits))
    parts = {n: scratch_bytes(plan, n) for n in plan.decisions}
    deep = [n for n, d in plan.decisions.items() if d.choice.splits > 1]
    assert deep
    for name, size in parts.items():
        assert (size > 0) == (name in deep)


def test_values_get_memory_of_their_own_when_asked_for(
    arena_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, got = _run(_net(), CompileOptions())
    apart, own = _run(_net(), CompileOptions(memory_plan=False))
    np.testing.assert_array_equal(shared, apart)
    assert own.arena_bytes > got.arena_bytes


def test_command_line_measures_and_keeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from option_cases import CONV

    path = tmp_path / "policy.json"
    words = [CONV, "--cuda", "--fast-run-algo-policy", str(path), "--iter", "2", "-v"]
    assert main([*words, "--fast-run"]) == 0
    assert "fast run: " in capsys.readouterr().out
    assert path.exists()
    assert main(words) == 0
    assert re.search(r"algorithms of (\d) of \1 layers by the policy file", capsys.readouterr().out)
