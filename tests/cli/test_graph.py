"""`mgeserial graph` writes what its options say; the pictures have tests of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from corpus_cases import compact_root
from view_graphs import residual_network

import mgeserial
from mgeserial.cli import main

CASES = compact_root() / "containers" / "testcases_1_13_plain" / "model.v2.mge"


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.mge"
    mgeserial.save(residual_network(1), path)
    return path


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("x.html", "<!doctype html>"),
        ("x.svg", "<?xml "),
        ("x.dot", "digraph "),
        ("x.GV", "digraph "),
    ],
)
def test_the_ending_says_what_is_written(
    net: Path, capsys: pytest.CaptureFixture[str], name: str, start: str
) -> None:
    out = net.parent / name
    assert main(["graph", str(net), "-o", str(out)]) == 0
    assert out.read_text(encoding="utf-8").startswith(start)
    assert "boxes, 32 operators, 17 weights" in capsys.readouterr().out


def test_a_pipe_takes_the_picture(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", str(net), "-o", "-", "--format", "dot"]) == 0
    assert capsys.readouterr().out.startswith("digraph ")
    assert main(["graph", str(net), "-o", "-"]) == 2
    assert "--format html|svg|dot" in capsys.readouterr().err


def test_weights_get_boxes_on_demand(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = []
    for words in ([], ["--weights"]):
        assert main(["graph", str(net), "-o", "-", "--format", "dot", *words]) == 0
        counts.append(len(re.findall(r"^  n\d+ \[", capsys.readouterr().out, re.MULTILINE)))
    assert counts == [16, 33]


def test_graphs_of_a_file_are_chosen_by_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.html"
    assert main(["graph", str(CASES), "-o", str(out), "--graph", "1"]) == 0
    (text,) = re.findall(
        r'<script id="data" type="application/json">(.*?)</script>', out.read_text()
    )
    assert json.loads(text)["title"].endswith("graph 1")
    assert main(["graph", str(CASES), "-o", str(tmp_path / "y.svg"), "--graph", "99"]) == 2
    assert "graph 99 does not exist" in capsys.readouterr().err
    assert not (tmp_path / "y.svg").exists()


def test_files_are_replaced_only_with_force(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = net.parent / "x.svg"
    out.write_text("mine")
    assert main(["graph", str(net), "-o", str(out)]) == 2
    assert "--force" in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert main(["graph", str(net), "-o", str(out), "--force"]) == 0
    assert out.read_text().startswith("<?xml")


def test_an_unknown_ending_is_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["graph", str(tmp_path / "missing.mge"), "-o", "x.png"]) == 2
    assert "'x.png' has no ending that says what to write" in capsys.readouterr().err


def test_shapes_that_do_not_fit_are_a_warning(
    net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = mgeserial.load(net).graph
    node = next(n for n in graph.nodes if n.op.name == "Pooling")
    graph.set_params(node, (node.param.replace(window_h=64), *node.params[1:]))
    bad = net.parent / "bad.mge"
    for v in graph.values():
        v.name = None
    mgeserial.save(graph, bad, format="v1")
    assert main(["graph", str(bad), "-o", str(net.parent / "bad.html")]) == 0
    assert "warning: drawn without shapes: " in capsys.readouterr().err


def test_drawing_needs_neither_numbers_of_weights_nor_a_backend(net: Path) -> None:
    code = (
        "import sys; from mgeserial.cli import main; "
        f"code = main(['graph', {str(net)!r}, '-o', {str(net.parent / 'z.html')!r}]); "
        "unwanted = ('loadrun', 'llvmlite', 'rich', 'cv2'); "
        "print([m for m in sys.modules if m.split('.')[0] in unwanted])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
