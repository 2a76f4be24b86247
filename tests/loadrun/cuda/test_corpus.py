"""Cases of the corpus on the emulated device: kernels, plans and copies as on a GPU."""

from __future__ import annotations

import contextlib

import pytest
from corpus_cases import Case, compact_root, compare, iter_cases
from cuda_kernels import compile_together

import mgeserial
from loadrun.backends.cuda.backend import plan_graph
from loadrun.backends.cuda.device import open_device
from loadrun.backends.cuda.plan import Plan
from loadrun.backends.cuda.variants import Target
from loadrun.session import Session
from mgeserial.errors import MgeError

# Slow where every thread of every block is run by one core; scripts/verify/corpus.py has them.
_LARGE = frozenset({"nets/yolox_nano_optimized", "nets/unet_optimized"})
_CASES = [
    c
    for c in iter_cases(compact_root(), None)
    if c.family not in ("pickles", "public") and c.models() and c.id not in _LARGE
]
_REPEATED = ("nets/transformer_static", "nets/shufflenet_v2_optimized", "nets/detector_static")


def _problems(case: Case, repeat: int = 1) -> list[str]:
    model = case.models()[0]
    graphs = mgeserial.load(model.path).graphs
    found: list[str] = []
    for run in case.runs(model):
        with Session(graphs[run.graph_index], "cuda") as session:
            for _ in range(repeat):
                found += compare(run, session.run(run.inputs))
    return found


def _problems_of_family(family: str) -> dict[str, list[str]]:
    cases = [c for c in _CASES if c.family == family]
    _compile_at_once(cases)
    return {c.id: p for c in cases if (p := _problems(c))}


def _compile_at_once(cases: list[Case]) -> None:
    """Kernels for the shapes that the files state."""
    device = open_device(0)
    target = Target(device.capability, library=device.library)
    device.close()
    plans: list[Plan] = []
    for case in cases:
        for graph in mgeserial.load(case.models()[0].path).graphs:
            with contextlib.suppress(MgeError):  # the session says it
                plans.append(plan_graph(graph, graph.inference, target)[0])
    compile_together(plans)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("family", sorted({c.family for c in _CASES}))
def test_family_agrees(family: str) -> None:
    assert _problems_of_family(family) == {}


@pytest.mark.usefixtures("tensor_device")
@pytest.mark.parametrize("family", ["conv", "linear", "quantized"])
def test_family_agrees_on_tensor_cores(family: str) -> None:
    assert _problems_of_family(family) == {}


@pytest.mark.usefixtures("arena_device")
@pytest.mark.parametrize("name", _REPEATED)
def test_network_in_one_arena_agrees_when_its_launches_are_replayed(name: str) -> None:
    (case,) = [c for c in _CASES if c.id == name]
    assert _problems(case, repeat=4) == []
