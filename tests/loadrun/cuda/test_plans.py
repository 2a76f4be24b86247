"""Plans: sound for the whole corpus, and as recorded for three networks."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
from corpus_cases import compact_root
from cuda_kernels import plans_of_corpus

from loadrun.arena import plan_arena
from loadrun.backends.cuda import lower
from loadrun.backends.cuda.backend import plan_graph
from loadrun.backends.cuda.emit_pointwise import collapse
from loadrun.backends.cuda.plan import Launch, Plan, check_plan, lifetimes
from loadrun.backends.cuda.variants import Target
from mgeserial.author import GraphBuilder
from mgeserial.ir.graph import Graph

GOLDEN = Path(__file__).parent / "golden"


def residual_net() -> Graph:
    b = GraphBuilder()
    random = np.random.default_rng(0)

    def weight(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    x = b.input("data", (2, 3, 32, 32))
    y = b.relu(b.conv2d(x, weight(48, 3, 3, 3), weight(48), stride=2, padding=1))
    z = b.conv2d(y, weight(48, 48, 3, 3), weight(48), padding=1)
    z = b.relu(b.add(z, y))
    z = b.conv2d(z, weight(48, 1, 3, 3), weight(48), padding=1, groups=48)
    z = b.max_pool2d(b.hswish(z), 2)
    z = b.global_avg_pool2d(z)
    b.output(b.softmax_last(b.linear(b.flatten(z), weight(10, 48), weight(10))), "prob")
    return b.graph()


def attention_net() -> Graph:
    b = GraphBuilder()
    random = np.random.default_rng(1)

    def weight(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32) * np.float32(0.1)

    x = b.input("data", (16, 32))
    n = b.layer_norm_last(x, np.ones(32, np.float32), np.zeros(32, np.float32))
    q, k, v = (b.linear(n, weight(32, 32), weight(32)) for _ in range(3))
    scores = b.softmax_last(b.mul(b.matmul(q, b.transpose(k, (1, 0))), np.float32(0.25)))
    y = b.add(b.linear(b.matmul(scores, v), weight(32, 32), weight(32)), x)
    b.output(b.gelu(b.linear(y, weight(64, 32), weight(64))), "out")
    return b.graph()


def moving_net() -> Graph:
    b = GraphBuilder()
    x = b.input("data", (2, 8, 6, 6))
    left, right = b.split_sizes(x, (3, 5))
    y = b.cat([right, b.relu(left)])
    y = b.pixel_shuffle(b.slice_axis(y, 1, 0, 4), 2)
    b.output(b.add(b.transpose(y, (0, 1, 3, 2)), np.float32(1)), "out")
    return b.graph()


def half_net() -> Graph:
    b = GraphBuilder()
    random = np.random.default_rng(2)

    def weight(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float16)

    x = b.input("data", (2, 16, 12, 12), dtype="Float16")
    y = b.relu(b.conv2d(x, weight(64, 16, 3, 3), weight(64), padding=1))
    y = b.relu(b.add(b.conv2d(y, weight(64, 64, 1, 1)), y))
    b.output(b.conv2d(y, weight(64, 2, 3, 3), padding=1, groups=32), "y")
    return b.graph()


NETS = {"residual": residual_net, "attention": attention_net, "moving": moving_net}


@pytest.mark.parametrize("name", NETS)
def test_plan_is_as_recorded(name: str) -> None:
    graph = NETS[name]()
    plan, lowered = plan_graph(graph, graph.inference)
    assert not lowered.fallback
    assert check_plan(plan) == []
    text = str(plan) + "\n"
    assert text == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "target"), [("half", Target()), ("half_sm80", Target((8, 0)))])
def test_plan_for_a_device_with_tensor_cores_is_as_recorded(name: str, target: Target) -> None:
    graph = half_net()
    plan, _ = plan_graph(graph, graph.inference, target)
    assert check_plan(plan) == []
    assert str(plan) + "\n" == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def _overlaps(plan: Plan) -> list[str]:
    lives = lifetimes(plan)
    arena = plan_arena(lives, align=256)
    found = []
    for a, b in itertools.combinations(lives, 2):
        apart = a.last < b.first or b.last < a.first
        low, high = sorted((a, b), key=lambda x: arena.offsets[x.name])
        if not apart and arena.offsets[low.name] + low.nbytes > arena.offsets[high.name]:
            found.append(f"{a.name} and {b.name}")
    return found


def test_plans_of_the_corpus_are_sound() -> None:
    count = 0
    for name, plan in plans_of_corpus(compact_root()):
        assert check_plan(plan) == [], name
        assert _overlaps(plan) == [], name
        count += 1
    assert count > 150


def test_check_finds_a_grid_that_is_too_small() -> None:
    graph = residual_net()
    plan, _ = plan_graph(graph, graph.inference)
    step = next(s for s in plan.steps if isinstance(s, Launch) and s.grid[0] > 1)
    broken = dataclasses.replace(step, grid=(step.grid[0] - 1, *step.grid[1:]))
    steps = tuple(broken if s is step else s for s in plan.steps)
    problems = check_plan(dataclasses.replace(plan, steps=steps))
    assert any("the grid covers" in p for p in problems)


def test_check_finds_a_read_of_what_nothing_wrote() -> None:
    graph = residual_net()
    plan, _ = plan_graph(graph, graph.inference)
    problems = check_plan(dataclasses.replace(plan, steps=plan.steps[1:]))
    assert any("before it is written" in p for p in problems)


def test_kernels_of_other_sizes_are_the_same() -> None:
    names = []
    for size in (16, 48):
        b = GraphBuilder()
        x = b.input("data", (1, 3, size, size))
        b.output(b.relu(b.conv2d(x, np.ones((8, 3, 3, 3), np.float32), padding=1)), "y")
        graph = b.graph()
        plan, _ = plan_graph(graph, graph.inference)
        names.append(set(plan.kernels()))
    assert names[0] == names[1]


@pytest.mark.parametrize(
    ("shape", "strides", "want"),
    [
        ((2, 3, 4), [(12, 4, 1)], ((24,), [(1,)])),
        ((2, 3, 4), [(12, 4, 1), (0, 1, 0)], ((2, 3, 4), [(12, 4, 1), (0, 1, 0)])),
        ((2, 1, 4), [(4, 0, 1), (0, 0, 0)], ((8,), [(1,), (0,)])),
        ((1, 1), [(0, 0)], ((), [()])),
    ],
)
def test_dimensions_that_need_not_be_apart_are_joined(shape, strides, want) -> None:  # type: ignore[no-untyped-def]
    got = collapse(shape, strides)
    assert got == want


def test_bias_residual_and_nonlinearity_are_part_of_the_convolution() -> None:
    graph = residual_net()
    plan, _ = plan_graph(graph, graph.inference)
    algorithms = [s.algorithm for s in plan.steps if isinstance(s, Launch)]
    elementwise = [
        s.name
        for s in plan.steps
        if isinstance(s, Launch) and s.kernel.name.startswith("elementwise")
    ]
    assert algorithms.count("direct") == 1
    assert elementwise == []


def test_every_rule_says_what_it_takes() -> None:
    for name, rules in lower.rules().items():
        assert all(rule.doc for rule in rules), name
