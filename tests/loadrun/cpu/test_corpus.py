"""The native backend gives what MegEngine gives, on the corpus kept in the repository."""

from __future__ import annotations

import corpus_cases as cc
import numpy as np
import pytest

import mgeserial
from loadrun.backends.base import CompileOptions
from loadrun.backends.cpu.backend import CpuBackend
from mgeserial.ir.inference import infer

RUNS = [
    run
    for case, model in cc.iter_models(cc.compact_root())
    if "expected_files" in case.case or "runs" in case.case
    for run in case.runs(model)
]


@pytest.mark.parametrize("run", RUNS, ids=lambda r: str(r.id))
def test_outputs_are_those_of_megengine(run: cc.Run) -> None:
    graph = mgeserial.load(run.model.path).graphs[run.graph_index]
    feeds = [np.ascontiguousarray(run.inputs[name]) for name in graph.input_names]
    shapes = {v: f.shape for v, f in zip(graph.inputs, feeds, strict=True)}
    options = CompileOptions(threads=2, cache=False)
    program = CpuBackend().compile(graph, infer(graph, shapes), options)
    assert not [note for note in program.report.notes if note.startswith("no native code")]
    try:
        program.run(feeds)
        outputs = program.run(feeds)
    finally:
        program.close()
    assert cc.compare(run, dict(zip(graph.output_names, outputs, strict=True))) == []
