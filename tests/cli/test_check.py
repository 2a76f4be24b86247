from __future__ import annotations

import json

import mge_builder as build
import pytest
from corpus_cases import compact_root, iter_cases

from mgeserial import params as P
from mgeserial.cli import main

EMPTY = [("Empty", {})]
ABS = ("Elemwise", {"mode": int(P.ElemwiseMode.ABS)})


def run(capsys, *words):
    code = main(["check", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def blocked(tmp_path):
    """Two operators that no backend knows, one of three outputs free of them."""
    ops = [
        build.input_op("x", (1,)),
        {"type_id": 77, "inputs": [0]},
        {"type_id": 77, "inputs": [0]},
        {"op": "Identity", "inputs": [1], "params": EMPTY, "output_name": ["far"]},
        {"op": "Identity", "inputs": [0], "params": EMPTY, "output_name": ["free"]},
        {
            "op": "Elemwise",
            "inputs": [2],
            "params": [("Elemwise", {"mode": int(P.ElemwiseMode.ABS)})],
        },
    ]
    ops[5]["output_name"] = ["near"]
    path = tmp_path / "net.mge"
    path.write_bytes(build.v1(ops, [3, 4, 5]))
    return path


def test_everything_that_cannot_run_is_listed_with_the_outputs_it_blocks(blocked, capsys):
    code, out, _ = run(capsys, blocked, "--backend", "reference", "--json")
    assert code == 3
    found = json.loads(out)
    assert (found["schema"], found["kind"], found["backend"]) == (1, "check", "reference")
    graph = found["graphs"][0]
    assert len(graph["missing"]) == 1
    assert graph["missing"][0]["count"] == 2
    assert graph["missing"][0]["operators"] == [1, 2]
    assert graph["missing"][0]["reason"]
    assert graph["blocked_outputs"] == ["far", "near"]
    code, out, _ = run(capsys, blocked, "--backend", "reference")
    assert code == 3
    assert "cannot run 2 of 6 operators" in out
    assert "outputs blocked: 2 of 3 (far, near)" in out


def test_a_model_that_runs_is_exit_0(capsys):
    case = next(c for c in iter_cases(compact_root()) if c.name == "mobilenet_v1_optimized")
    for model in case.models():
        code, out, _ = run(capsys, model.path, "--backend", "reference")
        assert code == 0
        assert "runs all" in out


def test_shapes_that_do_not_fit_are_exit_2(tmp_path, capsys):
    ops = [build.input_op("a", (2, 3)), build.input_op("b", (4, 5))]
    ops.append({"op": "Elemwise", "inputs": [0, 1], "params": [("Elemwise", {"mode": 16})]})
    path = tmp_path / "net.mge"
    path.write_bytes(build.v1(ops, [2]))
    code, out, _ = run(capsys, path, "--backend", "reference")
    assert code == 2
    assert "problem: " in out


def test_an_unknown_backend_lists_the_known_ones(blocked, capsys):
    code, _, err = run(capsys, blocked, "--backend", "abacus")
    assert code == 2
    assert "reference" in err


def test_an_operator_of_a_foreign_library_is_refused(capsys):
    case = next((c for c in iter_cases(compact_root()) if c.name == "extern_opr"), None)
    assert case is not None
    for model in case.models():
        assert run(capsys, model.path, "--backend", "reference")[0] == 3
