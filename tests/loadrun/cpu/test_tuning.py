"""Choosing algorithms by layer: limits, measuring, remembering; and what a probe sees."""

from __future__ import annotations

import json

import numpy as np
import pytest
from nets import Builder, evaluate, resnet18

from loadrun.backends.base import CompileOptions
from loadrun.backends.cpu import planner, probe, trials, tuning
from loadrun.backends.cpu.cache import Cache
from loadrun.backends.cpu.candidates import any_batch
from loadrun.backends.cpu.contents import Contents
from loadrun.backends.cpu.draft import Options
from loadrun.backends.cpu.plan import Step
from loadrun.backends.cpu.planner import make_plan
from loadrun.backends.cpu.program import Program
from loadrun.backends.cpu.search import Bench
from loadrun.backends.cpu.target import detect
from loadrun.backends.cpu.trials import Trial, Whole
from loadrun.backends.cpu.tuning import plan_for
from loadrun.backends.cpu.ways import APART, DEFAULT, Way
from mgeserial.errors import InputError, UnsupportedError

TARGET = detect()


def winograd_net(batch=1):
    b = Builder((batch, 32, 20, 20))
    x = b.conv("x", 32, 3, p=1)
    return b.network(b.conv(x, 32, 3, p=1))


def banded_net():
    b = Builder((1, 16, 160, 160))
    x = b.act(b.conv("x", 64, 1))
    return b.network(b.act(b.conv(x, 16, 1)))


def choose(network, threads=2, **options):
    return plan_for(network, TARGET, threads, CompileOptions(**options), Contents(Cache(None)))


def layers(network, threads=2, full=True):
    return planner.layers(planner.simplify(network), TARGET, threads, Options(), full=full)


def run(plan, x):
    program = Program(plan, TARGET, Cache(None))
    try:
        return program.run([x])
    finally:
        program.close()


@pytest.fixture
def scripted(monkeypatch):
    """Times by a rule instead of a clock, without programs; counts what is compared."""

    class Fake:
        def __init__(self, plan):
            self.plan = plan

        def close(self):
            pass

    class Script:
        faster: tuple[str, ...] = ()
        whole = Whole(2.0, 1.0)
        compared = 0

        def unit(self, plan, unit, nodes):
            steps = dict(trials.units_of(plan, nodes)).get(unit, [])
            text = " ".join(f"{plan.steps[k].kernel.name} {plan.steps[k].algorithm}" for k in steps)
            return 500.0 if any(word in text for word in self.faster) else 1000.0

        def compare(self, base, other, feeds, nodes, joined=()):
            self.compared += 1
            sides = []
            for plan in (base.plan, other.plan):
                side = {u: self.unit(plan, u, nodes) for u, _ in trials.units_of(plan, nodes)}
                for chain in joined:
                    side.setdefault(chain, sum(side.get((name,), 0.0) for name in chain))
                sides.append(side)
            return Trial(*sides)

        def compare_whole(self, base, other, feeds):
            self.compared += 1
            return self.whole

    script = Script()
    monkeypatch.setattr(Bench, "program", lambda _, plan: Fake(plan))
    monkeypatch.setattr(trials, "compare", script.compare)
    monkeypatch.setattr(trials, "compare_whole", script.compare_whole)
    return script


def test_without_wishes_it_is_the_cost_models_choice():
    found = choose(winograd_net())
    assert "winograd" in str(found.plan)
    assert found.notes == ()
    assert found.choices == ()
    assert found.name == ""


def test_a_layer_takes_what_was_measured_as_faster(scripted, tmp_path):
    scripted.faster = ("direct",)
    path = str(tmp_path / "policy.json")
    found = choose(winograd_net(), fast_run=True, policy_file=path)
    assert "winograd" not in str(found.plan)
    (layer,) = found.choices
    assert layer.choice.startswith("direct")
    assert layer.source == "measured"
    assert len(layer.names) == 2
    assert layer.times_ns["default"] == 1000
    assert layer.times_ns[layer.choice] == 500
    assert "0.000 to 0.000 ms" in found.notes[0]


def test_what_is_known_is_not_measured_again(scripted, tmp_path):
    scripted.faster = ("direct",)
    path = str(tmp_path / "policy.json")
    first = choose(winograd_net(), fast_run=True, policy_file=path)
    before = scripted.compared
    second = choose(winograd_net(), fast_run=True, policy_file=path)
    third = choose(winograd_net(), policy_file=path)
    assert scripted.compared == before
    assert str(second.plan) == str(third.plan) == str(first.plan)
    assert second.choices[0].source == "policy file"
    assert second.choices[0].times_ns == first.choices[0].times_ns
    assert "1 of 1 layers by the policy file" in second.notes[-1]


def test_another_network_uses_what_was_measured_of_a_shared_layer(scripted, tmp_path):
    scripted.faster = ("direct",)
    path = str(tmp_path / "policy.json")
    choose(winograd_net(), fast_run=True, policy_file=path)
    b = Builder((1, 32, 20, 20))
    other = b.network(b.pool(b.conv("x", 32, 3, p=1), "max", 2, 2))
    found = choose(other, policy_file=path)
    assert "winograd" not in str(found.plan)


def test_other_threads_or_other_code_are_measured_anew(scripted, tmp_path, monkeypatch):
    path = str(tmp_path / "policy.json")
    choose(winograd_net(), fast_run=True, policy_file=path)
    before = scripted.compared
    choose(winograd_net(), threads=1, fast_run=True, policy_file=path)
    assert scripted.compared > before
    before = scripted.compared
    monkeypatch.setattr(tuning, "code_version", lambda: "other")
    assert choose(winograd_net(), policy_file=path).choices[0].source == "cost model"
    choose(winograd_net(), fast_run=True, policy_file=path)
    assert scripted.compared > before


def test_where_the_whole_does_not_gain_the_cost_model_stays(scripted, tmp_path):
    scripted.faster, scripted.whole = ("direct",), Whole(1e6, 1.5e6, 1.2)
    path = str(tmp_path / "policy.json")
    found = choose(winograd_net(), fast_run=True, policy_file=path)
    assert str(found.plan) == str(choose(winograd_net()).plan)
    assert "are no gain (1.000 to 1.500 ms; other programs disturbed" in found.notes[0]
    assert choose(winograd_net(), policy_file=path).choices[0].choice == "default"


def test_reproducible_keeps_the_order_of_summation(scripted):
    scripted.faster = ("direct",)
    found = choose(winograd_net(), fast_run=True, reproducible=True)
    assert found.plan.steps[1].algorithm == "winograd4"
    assert all("direct" not in name for name in found.choices[0].times_ns)


def test_reproducible_leaves_out_what_a_policy_file_has_of_another_order(scripted, tmp_path):
    scripted.faster = ("direct",)
    path = str(tmp_path / "policy.json")
    choose(winograd_net(), fast_run=True, policy_file=path)
    found = choose(winograd_net(), policy_file=path, reproducible=True)
    assert found.plan.steps[1].algorithm == "winograd4"
    assert found.choices[0].source == "cost model"


def test_a_chain_runs_apart_where_that_is_faster(scripted):
    network = banded_net()
    assert choose(network).plan.bands
    chain = next(x for x in layers(network) if x.chain)
    assert chain.ways == (DEFAULT, APART)
    # Every unit takes the same time, so that one band beats its two layers.
    assert choose(network, fast_run=True).plan.bands
    found = plan_for(
        network,
        TARGET,
        2,
        CompileOptions(algorithms=json.dumps({any_batch(chain.key): "apart"})),
        Contents(Cache(None)),
    )
    assert not found.plan.bands
    assert next(c for c in found.choices if c.layer == chain.key).source == "as given"


def test_choices_of_one_batch_are_used_for_another(scripted):
    scripted.faster = ("direct",)
    four = choose(winograd_net(4), fast_run=True)
    one = choose(winograd_net(1), algorithms=four.name)
    assert "winograd" not in str(one.plan)
    assert one.choices[0].choice == four.choices[0].choice


@pytest.mark.parametrize("text", ["x", "[1]", '"a"', "{"])
def test_a_choice_that_is_none_is_an_error(text):
    with pytest.raises(InputError, match="not a choice of algorithms"):
        choose(winograd_net(), algorithms=text)


def test_names_that_do_not_exist_are_the_cost_models():
    (key,) = {any_batch(x.key) for x in layers(winograd_net())}
    found = choose(winograd_net(), algorithms=json.dumps({key: "magic", "other": "direct"}))
    assert str(found.plan) == str(choose(winograd_net()).plan)


def test_limit_of_scratch_memory_changes_only_layers_that_need_more():
    b = Builder((1, 32, 20, 20))
    x = b.conv("x", 160, 3, p=1)
    network = b.network(b.conv(x, 32, 3, p=1))
    whole = choose(network).plan
    needs = [probe.workspace_of(whole, s) for s in whole.steps if isinstance(s, Step)]
    needs = sorted({n for n in needs if n})
    assert len(needs) == 2
    assert probe.workspace(choose(network, workspace_limit=needs[1]).plan) == needs[1]
    less = choose(network, workspace_limit=needs[1] - 1).plan
    assert 0 < probe.workspace(less) < needs[1]
    assert less.steps[1].algorithm == "winograd4"
    none = choose(network, workspace_limit=0).plan
    assert probe.workspace(none) == 0
    assert "winograd" not in str(none)


def test_limit_holds_for_what_is_measured_and_kept(scripted, tmp_path):
    path = str(tmp_path / "policy.json")
    scripted.faster = ("winograd2",)
    choose(winograd_net(), fast_run=True, policy_file=path)
    found = choose(winograd_net(), policy_file=path, workspace_limit=0)
    assert probe.workspace(found.plan) == 0
    found = choose(winograd_net(), fast_run=True, workspace_limit=0)
    assert probe.workspace(found.plan) == 0


def test_nothing_that_fits_is_an_error():
    b = Builder((1, 8, 6, 6))
    b.shapes["y"] = (8, 8)
    from loadrun.backends.cpu import nodes as nd

    network = nd.Network(
        (nd.MatMul("m", ("x", "y"), ("z",), 1, 8, 8, 8),),
        {"x": (8, 8), "y": (8, 8), "z": (8, 8)},
        ("x", "y"),
        ("z",),
    )
    with pytest.raises(UnsupportedError, match="bytes of scratch memory, more than the limit of 0"):
        choose(network, workspace_limit=0)


@pytest.mark.parametrize(("threads", "hw"), [(1, 9), (2, 7), (3, 20)])
def test_every_way_computes_the_same(threads, hw):
    b = Builder((2, 20, hw, hw))
    network = b.network(b.act(b.conv(b.conv("x", 40, 3, p=1), 96, 1)))
    x = np.random.default_rng(0).standard_normal(network.shapes["x"]).astype(np.float32)
    want = evaluate(network, x)[0]
    scale = np.abs(want).max()
    every = [layer for layer in layers(network, threads) if not layer.chain]
    exact = [layer.same_sums() for layer in every]
    for some in (every, exact):
        bits = set()
        for k in range(max(len(layer.ways) for layer in some)):
            ways = {layer.key: layer.ways[k % len(layer.ways)] for layer in some}
            options = Options(ways=ways, bands=False)
            plan = make_plan(network, TARGET, threads=threads, options=options)
            (got,) = run(plan, x)
            assert np.abs(got - want).max() <= 2e-5 * scale, ways
            bits.add(got.tobytes())
        # What claims the order of the default's sums has its bits.
        assert len(bits) == 1 or some is every


@pytest.mark.parametrize("m", [1, 5, 40])
def test_every_way_of_a_product_has_the_same_bits(m):
    b = Builder((m, 70))
    network = b.network(b.dense("x", 200))
    x = np.random.default_rng(0).standard_normal((m, 70)).astype(np.float32)
    (layer,) = layers(network)
    assert len(layer.ways) > 4
    found = set()
    for way in layer.ways[::2]:
        options = Options(ways={layer.key: way})
        (got,) = run(make_plan(network, TARGET, threads=2, options=options), x)
        found.add(got.tobytes())
    assert len(found) == 1


def test_small_channels_are_read_either_way():
    b = Builder((1, 3, 21, 21))
    network = b.network(b.conv("x", 32, 3, s=2, p=1))
    (layer,) = layers(network)
    assert Way("blocked") in layer.ways
    x = np.random.default_rng(0).standard_normal((1, 3, 21, 21)).astype(np.float32)
    options = Options(ways={layer.key: Way("blocked")})
    plan = make_plan(network, TARGET, threads=1, options=options)
    assert "pack" in str(plan)
    np.testing.assert_allclose(run(plan, x)[0], evaluate(network, x)[0], atol=1e-4)


def test_a_real_measurement_chooses_and_computes_the_same(tmp_path):
    network = resnet18(size=32, width=16)
    path = str(tmp_path / "policy.json")
    told = []
    found = choose(
        network, fast_run=True, policy_file=path, progress=lambda *step: told.append(step)
    )
    assert {what for what, _, _ in told} == {"fast run"}
    x = np.random.default_rng(0).standard_normal(network.shapes["x"]).astype(np.float32)
    want = evaluate(network, x)[0]
    np.testing.assert_allclose(run(found.plan, x)[0], want, atol=1e-4 * np.abs(want).max())
    measured = [c for c in found.choices if c.times_ns]
    assert measured
    assert all(ns > 0 for c in measured for ns in c.times_ns.values())
    assert str(choose(network, policy_file=path).plan) == str(found.plan)


@pytest.mark.parametrize("text", ["[]", "{}", '{"kind": "loadrun.policy", "schema": 1}', "\0"])
def test_what_is_no_policy_is_an_error(tmp_path, text):
    path = tmp_path / "policy.json"
    path.write_text(text)
    with pytest.raises(InputError, match="not a policy file of loadrun"):
        choose(winograd_net(), policy_file=str(path))


@pytest.mark.parametrize("threads", [1, 2])
def test_memory_of_its_own_and_probes_keep_every_bit(threads):
    network = resnet18(size=40, width=16)
    plan = make_plan(network, TARGET, threads=threads)
    programs = [Program(p, TARGET, Cache(None)) for p in (plan, probe.unshared(plan))]
    x = np.random.default_rng(0).standard_normal(network.shapes["x"]).astype(np.float32)
    try:
        plain, own = programs
        want = [a.tobytes() for a in plain.run([x])]
        assert [a.tobytes() for a in own.run([x])] == want
        results, parts = probe.run_parts(plain, [x])
        assert [a.tobytes() for a in results] == want
        assert parts.device_ns > 0
        spans = probe.timed_steps(plain, [x], 2, {})
        assert [a.tobytes() for a in plain.run([x])] == want
        assert all(len(s.spans) == 2 for s in spans)
        shared, apart = probe.memory(plain), probe.memory(own)
        assert shared.arena_bytes < apart.arena_bytes
        assert sum(b.nbytes for b in apart.blocks) <= apart.arena_bytes
    finally:
        for program in programs:
            program.close()
