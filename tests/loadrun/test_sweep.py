from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import loadrun.sweep
import mgeserial
from loadrun.cli import main
from loadrun.schema import validate
from loadrun.sweep import Combination, Plan, best_of, parse_shapes, sweep
from mgeserial.author import GraphBuilder
from mgeserial.errors import InputError


def graph():
    b = GraphBuilder()
    x = b.input("x", (1, 3, 8, 8))
    b.output(b.relu(b.conv2d(x, np.ones((4, 3, 3, 3), np.float32))), "y")
    return b.graph()


@pytest.fixture
def model(tmp_path):
    mgeserial.save(graph(), tmp_path / "net.mge")
    return str(tmp_path / "net.mge")


def test_combinations_are_the_product_of_the_axes():
    plan = Plan(batches=[1, 2], threads=[1, 2, 4], backends=["cpu", "reference"])
    found = plan.combinations()
    assert len(found) == 12
    assert len({c.label for c in found}) == 12
    assert found[0].label == "batch 1, cpu, 1 thread"


def test_too_many_combinations_are_refused():
    with pytest.raises(InputError, match="more than"):
        Plan(batches=list(range(1, 200)), threads=list(range(1, 200))).combinations()


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("x:1,3,8,8", {"x": (1, 3, 8, 8)}),
        ("x:1x3x8x8; a:b:2,2", {"x": (1, 3, 8, 8), "a:b": (2, 2)}),
        ("", {}),
    ],
)
def test_shapes(text, shapes):
    assert parse_shapes(text) == shapes


@pytest.mark.parametrize("text", ["x", "x:", "x:1,-1", "x:a", ":1,2", "x:1.5"])
def test_what_is_no_shape_is_refused(text):
    with pytest.raises(InputError):
        parse_shapes(text)


def test_what_cannot_run_is_a_row_with_the_reason():
    rows = sweep(
        graph(),
        [
            Combination("x:1,4,8,8", None, 1, "reference", ""),
            Combination("x:2,3,9,9", None, 1, "reference", ""),
        ],
        iters=3,
        warmup=1,
    )
    assert rows[0]["state"].startswith("failed: ")
    assert rows[0]["median_ms"] is None
    assert rows[1]["state"] == "measured"
    assert rows[1]["batch"] == 2
    assert len(rows[1]["samples_ns"]) == 3
    assert best_of(rows, "latency") == 1


def test_best_is_by_what_is_asked_for():
    rows = [
        {"median_ms": 1.0, "samples_per_s": 1000.0},
        {"median_ms": 2.0, "samples_per_s": 4000.0},
        {"median_ms": None, "samples_per_s": None},
    ]
    assert best_of(rows, "latency") == 0
    assert best_of(rows, "throughput") == 1
    assert best_of(rows[2:], "latency") is None


def test_one_command_gives_one_table_with_the_best_marked(model, tmp_path, capsys):
    out = tmp_path / "s.json"
    table = tmp_path / "s.csv"
    words = ["sweep", model, "--batch", "1,2", "--threads", "1", "--iter", "3"]
    words += ["--switches", "", "--switches", "no-optimize", "--backends", "reference"]
    assert main([*words, "--json", str(out), "--csv", str(table)]) == 0
    text = capsys.readouterr().out
    assert text.count("\n  *") == 1
    assert "* best throughput: " in text
    document = json.loads(out.read_text())
    assert validate(document) == []
    assert len(document["combinations"]) == 4
    rows = list(csv.DictReader(table.open()))
    assert [float(r["median_ms"]) for r in rows] == [
        c["median_ms"] for c in document["combinations"]
    ]


def test_interrupted_sweep_goes_on_where_it_stopped(model, tmp_path, monkeypatch, capsys):
    out = tmp_path / "s.json"
    words = ["sweep", model, "--threads", "1,2,3", "--iter", "2", "--json", str(out)]
    words += ["--backends", "reference"]
    measured = []
    real = loadrun.sweep._measured

    def stops(graph, wanted, *more):
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(wanted.label)
        return real(graph, wanted, *more)

    monkeypatch.setattr(loadrun.sweep, "_measured", stops)
    assert main(words) == 130
    first = json.loads(out.read_text())
    assert first["complete"] is False
    assert len(first["combinations"]) == 2
    assert "1 of 3 combinations are not measured yet" in capsys.readouterr().out
    monkeypatch.setattr(loadrun.sweep, "_measured", lambda g, w, *m: real(g, w, *m))
    assert main(words) == 0
    second = json.loads(out.read_text())
    assert second["complete"] is True
    assert second["combinations"][:2] == first["combinations"]


def test_results_of_another_sweep_are_not_mixed_in(model, tmp_path, capsys):
    out = tmp_path / "s.json"
    words = ["sweep", model, "--backends", "reference", "--json", str(out)]
    assert main([*words, "--iter", "2"]) == 0
    assert main([*words, "--iter", "3"]) == 2
    assert "--restart" in capsys.readouterr().err
    assert main([*words, "--iter", "3", "--restart"]) == 0
    assert json.loads(out.read_text())["iter"] == 3


@pytest.mark.parametrize(
    "words",
    [
        ["--batch", "0"],
        ["--batch", "1,x"],
        ["--shape", "x"],
        ["--switches", "--no-such-switch"],
        ["--backends", "nothing"],
    ],
)
def test_mistakes_are_told_before_anything_is_measured(model, words, capsys):
    assert main(["sweep", model, *words]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_nothing_measured_is_exit_code_1(model):
    assert main(["sweep", model, "--shape", "x:1,4,8,8", "--backends", "reference", "-q"]) == 1
