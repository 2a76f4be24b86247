from __future__ import annotations

import json

import pytest
from corpus_cases import compact_root

import mgeserial
from mgeserial.cli import main

CORPUS = compact_root()
SOURCE = CORPUS / "containers" / "keep_everything" / "model.v1.mge"


def test_convert_says_what_it_wrote(tmp_path, capsys):
    out = tmp_path / "b.mge"
    assert main(["convert", str(SOURCE), str(out), "--to", "v2"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{out}: mgv2 for v1.13.0, 1 graph, 12 operators, ")
    assert mgeserial.load(out).info.graphs[0].container == "mgv2"


def test_convert_json_has_sizes_of_each_graph(tmp_path, capsys):
    out = tmp_path / "b.mge"
    assert main(["convert", str(SOURCE), str(out), "--to", "mgbs", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["kind"], found["release"]) == (1, "convert", "v1.13.0")
    assert found["bytes"] == out.stat().st_size == found["graphs"][0]["bytes"]
    assert found["graphs"][0]["container"] == "MGBS"


def test_convert_lists_what_a_release_lacks_and_writes_nothing(tmp_path, capsys):
    out = tmp_path / "b.mge"
    out.write_bytes(b"old")
    source = CORPUS / "elemwise" / "mode_relu6" / "model.v1.mge"
    if not source.exists():
        source = SOURCE
    code = main(["convert", str(source), str(out), "--to", "mgbs", "--release", "0.5.1", "-f"])
    assert code == 3
    error = capsys.readouterr().err
    assert "mgbs of v0.5.1 cannot express" in error
    assert "since v" in error
    assert out.read_bytes() == b"old"


def test_convert_does_not_replace_a_file_unasked(tmp_path, capsys):
    out = tmp_path / "b.mge"
    out.write_bytes(b"old")
    assert main(["convert", str(SOURCE), str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert out.read_bytes() == b"old"
    assert main(["convert", str(SOURCE), str(out), "--force", "-q"]) == 0
    assert capsys.readouterr().out == ""
    assert out.read_bytes() == SOURCE.read_bytes()


@pytest.mark.parametrize("words", [["--release", "0.4.9"], ["--to", "v2", "--release", "1.2.0"]])
def test_convert_refuses_releases_that_do_not_fit(tmp_path, words, capsys):
    assert main(["convert", str(SOURCE), str(tmp_path / "b.mge"), *words]) == 2
    assert "hint: " in capsys.readouterr().err


def test_convert_drops_names_on_demand(tmp_path, capsys):
    out = tmp_path / "b.mge"
    words = [
        "--to",
        "mgbs",
        "--release",
        "0.5.1",
        "--keep-var-name",
        "1",
        "--drop-param-name",
        "-q",
    ]
    assert main(["convert", str(SOURCE), str(out), *words]) == 3
    assert "(--drop-opr-name, keep_opr_name=False, leaves them out)" in capsys.readouterr().err
    words += ["--drop-opr-name", "--drop-metadata"]
    assert main(["convert", str(SOURCE), str(out), *words]) == 0
    graph = mgeserial.load(out).graph
    assert graph.metadata is None
    assert not any(node.name for node in graph.nodes)
    assert graph.output_names == mgeserial.load(SOURCE).graph.output_names
