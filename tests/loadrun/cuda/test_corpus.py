"""Cases of the corpus on the emulated device: kernels, plans and copies as on a GPU."""

from __future__ import annotations

import pytest
from corpus_cases import Case, compact_root, compare, iter_cases

import mgeserial
from loadrun.session import Session

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


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("family", sorted({c.family for c in _CASES}))
def test_family_agrees(family: str) -> None:
    problems = {c.id: p for c in _CASES if c.family == family and (p := _problems(c))}
    assert problems == {}


@pytest.mark.usefixtures("tensor_device")
@pytest.mark.parametrize("family", ["conv", "linear", "quantized"])
def test_family_agrees_on_tensor_cores(family: str) -> None:
    problems = {c.id: p for c in _CASES if c.family == family and (p := _problems(c))}
    assert problems == {}


@pytest.mark.usefixtures("arena_device")
@pytest.mark.parametrize("name", _REPEATED)
def test_network_in_one_arena_agrees_when_its_launches_are_replayed(name: str) -> None:
    (case,) = [c for c in _CASES if c.id == name]
    assert _problems(case, repeat=4) == []
