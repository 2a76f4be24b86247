"""What each option must do: one function for each, driven by test_options.py."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus_cases import compact_root

import mgeserial
from loadrun.cli import main

ROOT = compact_root()
CONV = str(ROOT / "conv" / "conv1d" / "model.v1.mge")
NET = str(ROOT / "nets" / "mobilenet_v1_optimized" / "model.v2.mge")
PLAIN = str(ROOT / "containers" / "testcases_1_13_plain" / "model.v2.mge")
ASSERTED = str(ROOT / "containers" / "testcases_0_5_1_assert" / "model.v1.mge")
RANDOM = str(ROOT / "misc" / "rng_uniform" / "model.v1.mge")
QUICK = ("--iter", "2")


@dataclass(slots=True)
class Drive:
    """Runs the command line in this process and keeps what it printed."""

    capsys: Any
    monkeypatch: Any
    folder: Path
    code: int = 0
    out: str = ""
    err: str = ""
    words: list[str] = field(default_factory=list)

    def __call__(self, *words: str, code: int = 0) -> Drive:
        self.words = list(words)
        self.code = main(list(words))
        self.out, self.err = self.capsys.readouterr()
        assert self.code == code, (self.code, self.out, self.err)
        return self

    def document(self, *words: str, code: int = 0) -> dict[str, Any]:
        self(*words, "--json", "-", code=code)
        found: dict[str, Any] = json.loads(self.out)
        return found

    def outputs(self, *words: str) -> list[bytes]:
        """Bytes of all outputs of one run."""
        target = self.folder / f"out{len(os.listdir(self.folder))}"
        self(*words, "--iter", "0", "--bin-out-dump", str(target))
        return [(target / name).read_bytes() for name in sorted(os.listdir(target))]


CASES: dict[str, Callable[[Drive], None]] = {}


def drives(name: str) -> Callable[[Callable[[Drive], None]], Callable[[Drive], None]]:
    def note(function: Callable[[Drive], None]) -> Callable[[Drive], None]:
        assert name not in CASES
        CASES[name] = function
        return function

    return note


def same(name: str, model: str = CONV, *more: str) -> None:
    """An option that is always so: the run works and gives the same bits."""

    @drives(name)
    def check(go: Drive) -> None:
        assert go.outputs(model, name, *more) == go.outputs(model)


def refused(name: str, *value: str) -> None:
    """An option that ends with exit code 3, its reason and the way out."""

    @drives(name)
    def check(go: Drive) -> None:
        go(CONV, name, *value, code=3)
        assert go.err.startswith(f"error: {name}: ")
        assert "\nhint: " in go.err
        assert "===" not in go.out


# -- running -------------------------------------------------------------------------------------


@drives("--iter")
def _iter(go: Drive) -> None:
    for n in (0, 1, 2, 7):
        case = go.document(CONV, "--iter", str(n))["cases"][0]
        assert len(case["samples_ns"]) == case["stats"]["count"] == n


@drives("--duration")
def _duration(go: Drive) -> None:
    case = go.document(CONV, "--iter", "3", "--duration", "80ms")["cases"][0]
    assert case["stats"]["count"] > 3
    assert case["elapsed_ns"] >= 80_000_000
    assert len(go.document(CONV, "--iter", "3", "--duration", "1us")["cases"][0]["samples_ns"]) == 3


@drives("--warmup-iter")
def _warmup(go: Drive) -> None:
    assert len(go.document(CONV, "--warmup-iter", "4")["cases"][0]["warmup_ns"]) == 4
    assert sum(go.document(CONV, "--warmup=30ms")["cases"][0]["warmup_ns"]) >= 1_000_000
    case = go.document(CONV, "--warmup-iter", "stable")["cases"][0]
    assert len(case["warmup_ns"]) >= 10
    assert case["warmup_stable"] in (True, False)


@drives("--interval")
def _interval(go: Drive) -> None:
    case = go.document(CONV, "--iter", "3", "--interval", "20")["cases"][0]
    assert case["elapsed_ns"] >= 60_000_000
    assert sum(case["samples_ns"]) < 60_000_000


@drives("--thread")
def _thread(go: Drive) -> None:
    found = go.document(NET, "--thread", "3", "--iter", "4")
    assert [c["session"] for c in found["cases"]] == [0, 1, 2]
    assert all(len(c["samples_ns"]) == 4 for c in found["cases"])
    assert found["together"]["samples_count"] == 12
    assert found["together"]["throughput_per_s"] > 0
    go(ASSERTED, "--thread", "2", "--iter", "1")
    assert "2 sessions together: 4 inferences" in go.out


@drives("--fake-first")
def _fake_first(go: Drive) -> None:
    assert go.document(CONV, "--fake-first")["cases"][0]["first_inference_ns"] is None
    assert go.document(CONV)["cases"][0]["first_inference_ns"] > 0


@drives("--copy-to-host")
def _copy(go: Drive) -> None:
    case = go.document(NET, "--copy-to-host", *QUICK)["cases"][0]
    assert all(ns > 0 for ns in case["copy_ns"])
    assert set(go.document(NET, *QUICK)["cases"][0]["copy_ns"]) == {0}


same("--record-comp-seq", NET)
same("--record-comp-seq2", NET)


@drives("--no-record")
def _no_record(go: Drive) -> None:
    assert go.outputs(NET, "--no-record") == go.outputs(NET)
    go(NET, "--no-record", "--record-comp-seq", code=2)
    assert "contradict" in go.err


@drives("--percentile")
def _percentile(go: Drive) -> None:
    go(CONV, "--percentile", "50,99.9", "-q")
    assert re.search(r"^    p99\.9 +\d", go.out, re.MULTILINE)
    assert "p90" not in go.out
    go(CONV, "--percentile", "101", code=2)


@drives("--graph")
def _graph(go: Drive) -> None:
    go(CONV, "--graph", "0", *QUICK)
    go(CONV, "--graph", "1", code=2)
    assert "graph 1 does not exist: the file has 1" in go.err


# -- inputs and outputs --------------------------------------------------------------------------


@drives("--input")
def _input(go: Drive) -> None:
    case = go.document(CONV, "--input", "#rand(2,3)", *QUICK)["cases"][0]
    assert "rand" in case["inputs"][0]["from"]


@drives("--seed")
def _seed(go: Drive) -> None:
    assert go.outputs(CONV, "--seed", "1") != go.outputs(CONV, "--seed", "2")


@drives("--batch-size")
def _batch(go: Drive) -> None:
    found = go.document(NET, "--batch-size", "3", *QUICK)
    assert found["batch"] == 3
    assert found["cases"][0]["outputs"][0]["shape"] == [3, 10]
    stats = found["cases"][0]["stats"]
    assert stats["samples_per_s"] == pytest.approx(3 * stats["throughput_per_s"])
    assert go.document(NET, "--batch_size=-1", *QUICK)["batch"] == 2
    go(PLAIN, "--batch-size", "2", *QUICK)
    assert "test cases are not run" in go.err


@drives("--bin-out-dump")
def _bin_out(go: Drive) -> None:
    target = go.folder / "d"
    go(PLAIN, "--bin-out-dump", str(target), "-q")
    array, name = mgeserial.load_tensor_binary(target / "run1-var0")
    assert array.dtype == np.float32
    assert name
    with open(target / "run1-var0", "rb") as file:
        np.testing.assert_array_equal(mgeserial.load_tensor_binary(file)[0], array)


@drives("--disable-assert-throw")
def _no_throw(go: Drive) -> None:
    wrong = ("--input", "data:#rand(0,1,...);out:expect:[[9,9]]")
    go(ASSERTED, *wrong, *QUICK, code=1)
    go(ASSERTED, *wrong, *QUICK, "--disable-assert-throw")
    assert "iter 1/2" in go.out


@drives("--model-info")
def _model_info(go: Drive) -> None:
    go(NET, "--model-info", *QUICK)
    assert re.search(r"input +data +Float32 +\{2,3,24,24\} +13824", go.out)
    assert re.search(r"output +out +Float32 +\{2,10\} +80", go.out)


# -- results -------------------------------------------------------------------------------------


@drives("--json")
def _json(go: Drive) -> None:
    path = go.folder / "t.json"
    go(CONV, "--json", str(path), *QUICK)
    assert json.loads(path.read_text())["kind"] == "loadrun.run"


@drives("--format")
def _format(go: Drive) -> None:
    go(CONV, "--format", "lar13", *QUICK, "--warmup-iter", "2")
    time = r"\d+\.\d{3}"
    lines = go.out.split("\n")
    assert lines[0] == "megbrain/lite/load_and_run:"
    assert re.fullmatch(f"load model: {time}ms", lines[3])
    assert "run testcase: 0 " in lines
    assert sum(bool(re.fullmatch(f"=== prepare: {time}ms; going to warmup", x)) for x in lines) == 2
    assert any(re.fullmatch(f"warm up 1  {time}ms", x) for x in lines)
    assert any(re.fullmatch(rf"iter 1/2: e2e={time} ms \(host={time} ms\)", x) for x in lines)
    summary = (
        f"=== finished test #0: time={time} ms avg_time={time} ms "
        f"standard_deviation={time} ms min={time} ms max={time} ms"
    )
    assert any(re.fullmatch(summary, x) for x in lines)
    assert any(re.fullmatch(f"=== total time: {time}ms", x) for x in lines)
    go(CONV, "--format", "xml", code=2)


@drives("--model-dump")
def _model_dump(go: Drive) -> None:
    path = go.folder / "net.mge"
    go(NET, "--model-dump", str(path), *QUICK)
    before, after = go.outputs(NET), go.outputs(str(path))
    assert [len(x) for x in before] == [len(x) for x in after]
    assert len(mgeserial.load(path).graph.nodes) > 1


@drives("--get-static-mem-info")
def _memory(go: Drive) -> None:
    target = go.folder / "mem"
    for backend in ("cpu", "reference"):
        go(NET, "--get-static-mem-info", str(target), "--backend", backend, *QUICK)
        found = json.loads((target / "memory.json").read_text())
        assert found["most_alive_bytes"] <= found["sum_of_values_bytes"]
        assert found["most_alive_bytes"] <= max(found["arena_bytes"], 1)
        assert (target / "memory.svg").read_text().startswith("<svg")


# -- profile -------------------------------------------------------------------------------------


@drives("--profile")
def _profile(go: Drive) -> None:
    go(NET, "--profile", *QUICK)
    assert re.search(r"sum of steps +\d", go.out)
    assert re.search(r"wall +\d", go.out)
    assert re.search(r"gap +-?\d", go.out)
    path = go.folder / "p.json"
    go(NET, "--profile", str(path), *QUICK)
    found = json.loads(path.read_text())
    assert found["kind"] == "loadrun.profile"
    assert sum(s["share_percent"] for s in found["steps"]) == pytest.approx(100)
    go(NET, f"--profile={NET}", *QUICK, code=2)


@drives("--profile-host")
def _profile_host(go: Drive) -> None:
    path = go.folder / "p.json"
    go(NET, "--profile-host", str(path), *QUICK)
    assert json.loads(path.read_text())["steps"]


@drives("--profile-iter")
def _profile_iter(go: Drive) -> None:
    found = go.document(NET, "--profile", "--profile-iter", "4", *QUICK)["profile"]
    assert found["runs_count"] == 4
    assert {len(s["times_ns"]) for s in found["steps"]} == {4}


@drives("--profile-top")
def _profile_top(go: Drive) -> None:
    go(NET, "--profile", "--profile-top", "2", *QUICK)
    assert "more: " in go.out
    go(NET, "--profile", "--profile-top", "0", *QUICK)
    assert "more: " not in go.out


@drives("--chrome-trace")
def _trace(go: Drive) -> None:
    path = go.folder / "t.json"
    go(NET, "--chrome-trace", str(path), *QUICK)
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    assert len(events) > 5
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in events)


# -- others --------------------------------------------------------------------------------------

same("--share-param-mem", NET)
same("--const-shape")
same("--lite")
same("--mdl")
same("--no-sanity-check")


@drives("--wait-gdb")
def _wait(go: Drive) -> None:
    import io

    go.monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    go(CONV, "--wait-gdb", *QUICK)
    assert f"wait for gdb attach (pid={os.getpid()}): " in go.err
