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


# -- device --------------------------------------------------------------------------------------


@drives("--backend")
def _backend(go: Drive) -> None:
    for name in ("cpu", "reference"):
        assert go.document(CONV, "--backend", name, *QUICK)["backend"] == name
    go(CONV, "--backend", "abacus", code=2)


@drives("--cpu")
def _cpu(go: Drive) -> None:
    assert go.document(CONV, "--cpu", *QUICK)["backend"] in ("cpu", "reference")


@drives("--cuda")
def _cuda(go: Drive) -> None:
    code = main([CONV, "--cuda", *QUICK, "-q"])
    out, err = go.capsys.readouterr()
    assert code in (0, 3)
    assert ("cuda" in out) if code == 0 else ("error: " in err and "cuda" in err.lower())
    go(CONV, "--cuda", "--cpu", code=2)


@drives("--cpu-default")
def _cpu_default(go: Drive) -> None:
    assert go.document(CONV, "--cpu-default", *QUICK)["threads"] == 1
    go(CONV, "--cpu-default", "--threads", "2", code=2)


@drives("--threads")
def _threads(go: Drive) -> None:
    for spelling in ("--threads", "--multithread"):
        assert go.document(NET, spelling, "2", "--backend", "cpu", *QUICK)["threads"] == 2
    go(NET, "--multithread=-1", *QUICK)
    assert go.outputs(NET, "--threads", "1") == go.outputs(NET, "--threads", "2")


@drives("--multithread-default")
def _multithread_default(go: Drive) -> None:
    assert go.document(NET, "--multithread_default=2", *QUICK)["threads"] == 2


@drives("--multi-thread-core-ids")
def _cores(go: Drive) -> None:
    if not hasattr(os, "sched_getaffinity"):
        go(CONV, "--multithread", "1", "--multi-thread-core-ids", "0", "-v", *QUICK)
        assert "cannot be pinned" in go.out
        return
    allowed = os.sched_getaffinity(0)
    core = min(allowed)
    try:
        words = ("--cpu", "--multithread", "1", "--multi-thread-core-ids", str(core))
        go(NET, *words, *QUICK)
        assert os.sched_getaffinity(0) == {core}
    finally:
        os.sched_setaffinity(0, allowed)
    go(NET, "--multi-thread-core-ids", "0,1", code=2)
    go(NET, "--cpu", "--threads", "1", "--multi-thread-core-ids", "9999", code=2)
    assert "core 9999 cannot be used here" in go.err


same("--enable-jit")
refused("--tensorrt")
refused("--tensorrt-cache", "x")

# -- algorithms ----------------------------------------------------------------------------------


@drives("--fast-run")
def _fast_run(go: Drive) -> None:
    go(NET, "--fast-run", "--backend", "cpu", "-v", *QUICK)
    assert re.search(r"fast run \(default \d", go.out)
    go(NET, "--fast-run", "--reproducible", code=2)


@drives("--full-run")
def _full_run(go: Drive) -> None:
    go(NET, "--full-run", "--backend", "cpu", "-v", *QUICK)
    assert "fast run (" in go.out


@drives("--fast-run-algo-policy")
def _policy(go: Drive) -> None:
    path = go.folder / "policy.json"
    words = (NET, "--backend", "cpu", "--fast-run-algo-policy", str(path), "-v", *QUICK)
    go(*words)
    assert not path.exists()
    go(*words, "--fast-run")
    assert json.loads(path.read_text())["kind"] == "loadrun.policy"
    go(*words)
    assert "algorithms of the policy file: " in go.out
    path.write_bytes(b"\x00fast run cache of something else")
    go(*words, code=2)
    assert "not a policy file of loadrun" in go.err


@drives("--fast-run-shared-batch-size")
def _shared_batch(go: Drive) -> None:
    words = (NET, "--backend", "cpu", "-v", *QUICK)
    go(*words, "--fast-run", "--fast-run-shared-batch-size", "1")
    assert "algorithms chosen with batch 1: " in go.out
    go(*words, "--fast-run-shared-batch-size", "1", code=2)


@drives("--reproducible")
def _reproducible(go: Drive) -> None:
    one = go.outputs(NET, "--reproducible", "--threads", "1")
    assert one == go.outputs(NET, "--reproducible", "--threads", "2")


@drives("--binary-equal-between-batch")
def _batches(go: Drive) -> None:
    go(NET, "--binary-equal-between-batch", *QUICK)
    assert "each of 2 images alone gives the bits that it gives in the batch" in go.err


@drives("--workspace-limit")
def _workspace(go: Drive) -> None:
    go(NET, "--workspace-limit", "1G", *QUICK)
    go(NET, "--workspace_limit=18446744073709551615", *QUICK)
    go(NET, "--workspace-limit", "some", code=2)


@drives("--disable-mem-opt")
def _mem_opt(go: Drive) -> None:
    for backend in ("cpu", "reference"):
        words = (NET, "--backend", backend)
        assert go.outputs(*words, "--disable-mem-opt") == go.outputs(*words)
    shared = go.document(NET, "--backend", "cpu", *QUICK)["arena_bytes"]
    assert go.document(NET, "--backend", "cpu", "--disable-mem-opt", *QUICK)["arena_bytes"] > shared


@drives("--fitting")
def _fitting(go: Drive) -> None:
    go(CONV, "--fitting", "--backend", "reference", *QUICK)
    assert "profile option: as in the file" in go.out
    assert re.search(r"^ avg_time=\d+\.\d{3} ms$", go.out, re.MULTILINE)
    assert "fastest combination: " in go.out
    go(CONV, "--fitting", "--layout-transform", "cpu", code=2)


@drives("--dump-fitting-model")
def _fitting_model(go: Drive) -> None:
    path = go.folder / "best.mge"
    go(CONV, "--fitting", "--dump-fitting-model", str(path), "--backend", "reference", *QUICK)
    assert mgeserial.load(path).graph.outputs
    go(CONV, "--dump-fitting-model", str(path), code=2)


@drives("--layout-transform")
def _layout(go: Drive) -> None:
    go(NET, "--layout-transform", "cpu", "--backend", "cpu", *QUICK)
    assert "profile option: --enable-nchw44" in go.out
    assert "fastest layout: " in go.out
    go(NET, "--layout-transform", "cuda", "--cpu", code=2)


@drives("--layout-transform-dump")
def _layout_dump(go: Drive) -> None:
    path = go.folder / "best.mge"
    words = ("--backend", "reference", *QUICK)
    go(CONV, "--layout-transform", "cpu", "--layout-transform-dump", str(path), *words)
    assert mgeserial.load(path).graph.outputs
    go(CONV, "--layout-transform-dump", str(path), code=2)


# -- checks --------------------------------------------------------------------------------------


@drives("--io-dump")
def _io_dump(go: Drive) -> None:
    path = go.folder / "values.txt"
    for backend in ("cpu", "reference"):
        go(PLAIN, "--io-dump", str(path), "--backend", backend, *QUICK)
        text = path.read_text()
        assert "== test case 0" in text
        assert "== test case 1" in text
        assert re.search(r"value \d+ \S+ \w+: Float32 \(.*\) min=.* mean=.*\[", text)


@drives("--io-dump-stdout")
def _io_stdout(go: Drive) -> None:
    go(CONV, "--io-dump-stdout", *QUICK)
    assert re.search(r"^value 0 ", go.out, re.MULTILINE)


@drives("--io-dump-stderr")
def _io_stderr(go: Drive) -> None:
    go(CONV, "--io-dump-stderr", *QUICK)
    assert re.search(r"^value 0 ", go.err, re.MULTILINE)
    assert "value 0" not in go.out


@drives("--bin-io-dump")
def _bin_io(go: Drive) -> None:
    target = go.folder / "io"
    plain = go.document(CONV, *QUICK)["cases"][0]["outputs"]
    dumped = go.document(CONV, "--bin-io-dump", str(target), *QUICK)["cases"][0]["outputs"]
    assert plain == dumped
    index = json.loads((target / "index.json").read_text())
    for item in index["values"]:
        array, name = mgeserial.load_tensor_binary(target / item["file"])
        assert list(array.shape) == item["shape"]
        assert name == item["name"]


@drives("--range")
def _range(go: Drive) -> None:
    go(CONV, "--range", "1e9", *QUICK)
    go(CONV, "--range", "1e-6", *QUICK, code=1)
    assert re.search(r"--range: .*operator \d+ .* elements are beyond 1e-06, the first at", go.err)
    go(CONV, "--range=0", *QUICK)


@drives("--check-dispatch")
def _dispatch(go: Drive) -> None:
    for backend in ("cpu", "reference"):
        go(NET, "--check-dispatch", "--backend", backend, *QUICK)
        assert "values have their declared types" in go.err


@drives("--check-var-value")
def _var_value(go: Drive) -> None:
    go(NET, "--check-var-value", "2:1", *QUICK)
    assert "values are the same in every run" in go.err
    go(NET, "--check-var-value", "0", code=2)


# -- refused -------------------------------------------------------------------------------------

refused("--c-opr-lib", "lib.so")
refused("--c-opr-lib-with-param")
refused("--c-opr-init-interface", "init")
refused("--packed-model-dump", "x")
refused("--pack-info-json", "x")
refused("--pack-cache", "x")
refused("--pack-info-cryption", "NONE")
refused("--pack-model-cryption", "NONE")
refused("--atlas")

# -- the optimiser's switches --------------------------------------------------------------------


def switch(name: str, *spellings: str, model: str = NET) -> None:
    """A switch that changes how the network is written, not what it says."""

    @drives(name)
    def check(go: Drive) -> None:
        for spelling in (name, *spellings):
            changed = go.document(model, spelling, "--backend", "reference", *QUICK)
            plain = go.document(model, "--no-optimize", "--backend", "reference", *QUICK)
            for a, b in zip(
                changed["cases"][0]["outputs"], plain["cases"][0]["outputs"], strict=True
            ):
                assert a["mean"] == pytest.approx(b["mean"], rel=1e-2, abs=1e-3)


for _name in (
    "--optimize-for-inference",
    "--enable-nchw44",
    "--enable-nchw88",
    "--enable-nchw44-dot",
    "--enable-nchw4",
    "--enable-chwn4",
    "--enable-nchw32",
    "--enable-nchw64",
    "--enable-fuse-conv-bias-nonlinearity",
    "--enable-fuse-conv-bias-with-z",
    "--enable-fuse-preprocess",
    "--enable-ioc16",
    "--enable-io16xc32",
    "--weight-preprocess",
    "--winograd-transform",
):
    switch(_name)
switch("--enable-hwcd4", "--enable-nhwcd4")
switch("--fuse-grain", "--enable-fuse-grain")


@drives("--no-optimize")
def _no_optimize(go: Drive) -> None:
    go(NET, "--no-optimize", "-v", *QUICK)
    assert "not optimised: the file's operators as they are" in go.out
    go(NET, "--no-optimize", "--enable-nchw44", code=2)
