"""Choosing algorithms: limits, measuring, remembering; and what a probe sees of a program."""

from __future__ import annotations

import json

import numpy as np
import pytest
from nets import Builder, resnet18

from loadrun.backends.base import CompileOptions
from loadrun.backends.cpu import probe
from loadrun.backends.cpu.cache import Cache
from loadrun.backends.cpu.contents import Contents
from loadrun.backends.cpu.planner import make_plan
from loadrun.backends.cpu.program import Program
from loadrun.backends.cpu.target import detect
from loadrun.backends.cpu.tuning import CANDIDATES, plan_for
from mgeserial.errors import InputError

TARGET = detect()


def winograd_net():
    b = Builder((1, 32, 20, 20))
    x = b.conv("x", 32, 3, p=1)
    return b.network(b.conv(x, 32, 3, p=1))


def choose(network, **options):
    return plan_for(network, TARGET, 2, CompileOptions(**options), Contents(Cache(None)))


def test_without_wishes_it_is_the_first_candidate():
    found = choose(winograd_net())
    assert found.name == next(iter(CANDIDATES))
    assert "winograd" in str(found.plan)
    assert found.notes == ()


def test_limit_of_scratch_memory_leaves_out_what_needs_more():
    whole = probe.workspace(choose(winograd_net()).plan)
    assert whole > 0
    assert probe.workspace(choose(winograd_net(), workspace_limit=whole).plan) == whole
    less = choose(winograd_net(), workspace_limit=whole - 1)
    assert probe.workspace(less.plan) < whole
    assert "winograd" in less.name


def test_fast_run_measures_all_and_remembers(tmp_path):
    path = tmp_path / "policy.json"
    network = winograd_net()
    measured = choose(network, fast_run=True, policy_file=str(path))
    assert measured.name in CANDIDATES
    assert "no-winograd" in measured.notes[0]
    (key,) = json.loads(path.read_text())["choices"]
    path.write_text(json.dumps({
        "kind": "loadrun.policy", "schema": 1, "choices": {key: "no-winograd", "other": "x"}
    }))  # fmt: skip
    assert choose(network, policy_file=str(path)).name == "no-winograd"
    assert choose(network, policy_file=str(path), fast_run=True).name == "no-winograd"
    assert choose(network, algorithms="no-bands").name == "no-bands"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "loadrun.policy", "schema": 2}', "\0"])
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
