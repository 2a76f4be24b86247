"""`mgeserial diff`: exit codes, text and JSON; what differs is tested in test_diff.py."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from corpus_cases import compact_root
from view_graphs import residual_network

import mgeserial
from mgeserial import editing
from mgeserial.cli import main

CONTAINERS = compact_root() / "containers"
CASES = CONTAINERS / "testcases_1_13_plain" / "model.v2.mge"


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.mge"
    mgeserial.save(residual_network(2), path)
    return path


def changed(net: Path, name: str = "other.mge") -> Path:
    graph = mgeserial.load(net).graph
    node = next(n for n in graph.nodes if n.op.name == "Pooling")
    editing.set_param(graph, node, mode=type(node.param.mode).AVERAGE)
    weight = next(n for n in graph.params if n.tensors[0].shape == (4, 4, 3, 3))
    editing.replace_weight(graph, weight, np.array(weight.tensors[0].numpy()) + np.float32(0.25))
    path = net.parent / name
    mgeserial.save(graph, path)
    return path


def test_equal_files_are_equal_in_any_container(
    net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = net.parent / "v1.mge"
    mgeserial.save(mgeserial.load(net), other, format="v1")
    assert main(["diff", str(net), str(other)]) == 0
    assert capsys.readouterr().out == "no differences: 58 operators\n"


def test_differences_are_listed_and_counted(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(net), str(changed(net))]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "    parameter mode: MAX -> AVERAGE" in lines
    assert any("max abs difference 0.25" in line for line in lines)
    assert lines[-1] == "operators: 0 removed, 0 added, 2 changed, 56 the same"


def test_json_is_one_document(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(net), str(changed(net)), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["kind"], found["equal"]) == (1, "diff", False)
    (graph,) = found["graphs"]
    assert graph["role"] == "network"
    assert len(graph["operators_changed"]) == 2


def test_nan_in_weights_is_valid_json(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = mgeserial.load(net).graph
    weight = graph.params[0]
    array = np.full(weight.tensors[0].shape, np.nan, np.float32)
    editing.replace_weight(graph, weight, array)
    other = net.parent / "nan.mge"
    mgeserial.save(graph, other)
    assert main(["diff", str(net), str(other), "--json"]) == 1
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["graphs"][0]["operators_changed"][0]["changes"][0]["max_abs"] == "nan"
    assert main(["diff", str(other), str(other)]) == 0


def test_names_count_when_asked_for(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = mgeserial.load(net).graph
    editing.rename_nodes(graph, "a/")
    other = net.parent / "named.mge"
    mgeserial.save(graph, other)
    assert main(["diff", str(net), str(other)]) == 0
    assert main(["diff", str(net), str(other), "--names"]) == 1
    assert "name operator: " in capsys.readouterr().out


def test_test_cases_are_compared_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = mgeserial.load(CASES)
    graph = model.graphs[1]
    node = graph.params[0]
    editing.replace_weight(graph, node, np.array(node.tensors[0].numpy()) + 1)
    other = tmp_path / "other.mge"
    mgeserial.save(model, other)
    assert main(["diff", str(CASES), str(other)]) == 1
    assert "graph 1 (test case 0):" in capsys.readouterr().out
    assert main(["diff", str(CASES), str(other), "--graph", "0"]) == 0
    assert main(["diff", str(CASES), str(other), "--graph", "77"]) == 2


def test_another_number_of_graphs_is_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = tmp_path / "plain.mge"
    mgeserial.save(mgeserial.load(CASES).graphs[:1], plain)
    assert main(["diff", str(CASES), str(plain)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("graphs: ")


def test_long_lists_are_cut_unless_asked_for(
    tmp_path: Path, net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "large.mge"
    mgeserial.save(residual_network(20), other)
    assert main(["diff", str(net), str(other)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 210
    assert any("more lines (--all, --json)" in line for line in lines)
    assert main(["diff", str(net), str(other), "--all"]) == 1
    assert len(capsys.readouterr().out.splitlines()) > 400


def test_bad_files_are_one_error(
    net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.mge"
    bad.write_bytes(net.read_bytes()[:50])
    assert main(["diff", str(net), str(bad)]) == 2
    assert capsys.readouterr().err.startswith("error: ")
