"""What `mgeserial strip` leaves out, and what it leaves as it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from corpus_cases import compact_root
from view_graphs import residual_network

import mgeserial
from loadrun.session import Session
from mgeserial.cli import main
from mgeserial.ir.graph import Metadata

ASSERTED = compact_root() / "containers" / "testcases_0_5_1_assert" / "model.v1.mge"


@pytest.fixture(params=["v1", "v2"])
def net(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    graph = residual_network(1)
    graph.metadata = Metadata(is_valid=True, user_info=b"secret of mine")
    for node in graph.nodes:
        node.name = f"secret/{node.display_name}"
    path = tmp_path / "net.mge"
    mgeserial.save(graph, path, format=request.param)
    return path


def strip(path: Path, *words: str) -> Path:
    out = path.parent / "out.mge"
    assert main(["strip", str(path), "-o", str(out), "--force", *words]) == 0
    return out


def test_names_and_metadata_are_gone_and_outputs_are_the_same(net: Path) -> None:
    out = strip(net)
    assert b"secret" in net.read_bytes()
    assert b"secret" not in out.read_bytes()
    assert b"block0" not in out.read_bytes()
    before, after = mgeserial.load(net).graph, mgeserial.load(out).graph
    assert after.input_names == before.input_names == ("data",)
    assert after.output_names == before.output_names == ("prob",)
    x = np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype(np.float32)
    results = []
    for graph in (before, after):
        with Session(graph, "reference") as session:
            results.append(session.run({"data": x})["prob"])
    assert np.array_equal(*results)
    assert main(["diff", str(net), str(out)]) == 0


def test_only_what_is_named_is_stripped(net: Path) -> None:
    out = strip(net, "--metadata")
    assert b"secret of mine" not in out.read_bytes()
    assert b"secret/" in out.read_bytes()
    out = strip(net, "--names")
    assert b"secret of mine" in out.read_bytes()
    assert b"secret/" not in out.read_bytes()


def test_a_file_of_v1_gets_smaller(net: Path) -> None:
    out = strip(net)
    if mgeserial.load(net).info.graphs[0].container == "MGBC":  # type: ignore[union-attr]
        assert out.stat().st_size < net.stat().st_size


def test_test_cases_go_with_their_checks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.mge"
    assert main(["strip", str(ASSERTED), "-o", str(out), "--testcases"]) == 0
    assert "stripped: 2 test cases" in capsys.readouterr().out
    model = mgeserial.load(out)
    assert len(model.graphs) == 1
    assert model.graph.input_names == ("data",)
    assert model.graph.output_names == ("out",)
    assert not [n for n in model.graph.nodes if n.op.name == "AssertEqual"]


def test_files_are_replaced_only_with_force(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = net.read_bytes()
    assert main(["strip", str(net), "-o", str(net)]) == 2
    assert "--force" in capsys.readouterr().err
    assert net.read_bytes() == before
    assert main(["strip", str(net), "-o", str(net), "-f"]) == 0


def test_what_is_not_a_model_is_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.mge").write_bytes(b"hello" * 10)
    assert main(["strip", str(tmp_path / "x.mge"), "-o", str(tmp_path / "y.mge")]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert not (tmp_path / "y.mge").exists()
