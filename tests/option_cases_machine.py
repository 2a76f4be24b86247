"""What options of devices, algorithms, checks and the graph must do; see option_cases.py."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys

import pytest
from option_cases import CONV, NET, PLAIN, QUICK, Drive, drives, refused, same

import mgeserial
from loadrun.cli import main

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


@drives("--device")
def _device(go: Drive) -> None:
    assert go.document(NET, "--device", "multithread2:0", *QUICK)["threads"] == 2
    assert go.document(CONV, "--device", "cpu:default", *QUICK)["backend"] == "cpu"
    go(CONV, "--device", "gpu0", "--cpu", code=2)
    assert "exclude each other" in go.err
    go(CONV, "--device", "somewhere", code=2)
    assert "hint: such as 1 (the second NVIDIA GPU)" in go.err


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
    document = go.document(NET, "--fast-run", "--backend", "cpu", *QUICK)
    assert any(note.startswith("fast run: ") for note in document["notes"])
    measured = [a for a in document["algorithms"] if a["source"] == "measured" and a["candidates"]]
    assert measured
    assert all(a["choice"] in ("default", *(c["name"] for c in a["candidates"])) for a in measured)
    go(NET, "--fast-run", "--backend", "cpu", "-vv", *QUICK)
    assert re.search(r"^ +conv f32 .*: .*, measured: .* us", go.err, re.MULTILINE)
    steady = ("--backend", "cpu", "--reproducible")
    assert go.outputs(NET, *steady, "--fast-run") == go.outputs(NET, *steady)


@drives("--full-run")
def _full_run(go: Drive) -> None:
    words = (CONV, "--backend", "cpu", *QUICK)
    some = go.document(*words, "--fast-run")["algorithms"]
    every = go.document(*words, "--full-run")["algorithms"]
    assert [a["layer"] for a in every] == [a["layer"] for a in some]
    assert all(a["source"] == "measured" for a in every)


@drives("--fast-run-algo-policy")
def _policy(go: Drive) -> None:
    path = go.folder / "policy.json"
    words = (NET, "--backend", "cpu", "--fast-run-algo-policy", str(path), "-v", *QUICK)
    go(*words)
    assert not path.exists()
    go(*words, "--fast-run")
    assert json.loads(path.read_text())["kind"] == "loadrun.policy"
    go(*words)
    assert re.search(r"algorithms of (\d+) of \1 layers by the policy file", go.out)
    assert {a["source"] for a in go.document(*words, "--fast-run")["algorithms"]} == {"policy file"}
    path.write_bytes(b"\x00fast run cache of something else")
    go(*words, code=2)
    assert "not a policy file of loadrun" in go.err


@drives("--fast-run-shared-batch-size")
def _shared_batch(go: Drive) -> None:
    words = (NET, "--backend", "cpu", "-v", *QUICK)
    go(*words, "--fast-run", "--fast-run-shared-batch-size", "1")
    assert "algorithms chosen with batch 1" in go.out
    document = go.document(*words, "--fast-run", "--fast-run-shared-batch-size", "1")
    assert {a["source"] for a in document["algorithms"]} == {"as given"}
    assert all(a["layer"].endswith(" n2") for a in document["algorithms"])
    go(*words, "--fast-run-shared-batch-size", "1", code=2)


@drives("--reproducible")
def _reproducible(go: Drive) -> None:
    one = go.outputs(NET, "--reproducible", "--threads", "1")
    assert one == go.outputs(NET, "--reproducible", "--threads", "2")


@drives("--tf32")
def _tf32(go: Drive) -> None:
    go(CONV, "--tf32", *QUICK)
    if sys.platform.startswith("linux") and shutil.which("g++"):
        go.monkeypatch.setenv("LOADRUN_CUDA", "emulated-sm80")
        go(CONV, "--cuda", "--tf32", "-vv", *QUICK)
        assert " mma <" in go.err
        go(CONV, "--cuda", "-vv", *QUICK)
        assert " tile <" in go.err


@drives("--binary-equal-between-batch")
def _batches(go: Drive) -> None:
    go(NET, "--binary-equal-between-batch", *QUICK)
    assert "each of 2 images alone gives the bits that it gives in the batch" in go.err


@drives("--workspace-limit")
def _workspace(go: Drive) -> None:
    go(NET, "--workspace-limit", "1G", *QUICK)
    go(NET, "--workspace_limit=18446744073709551615", *QUICK)
    go(NET, "--workspace-limit", "some", code=2)
    cells = NET.replace("mobilenet_v1_optimized", "lstm_classifier_cells")
    go(cells, "--backend", "cpu", "--workspace-limit", "8", *QUICK, code=3)
    assert re.search(r"needs \d+ bytes of scratch memory, more than the limit of 8", go.err)


@drives("--no-cache")
def _no_cache(go: Drive) -> None:
    folder = go.folder / "cache"
    go.monkeypatch.setenv("LOADRUN_CACHE", str(folder))
    go(NET, "--backend", "cpu", "--no-cache", *QUICK)
    assert not folder.exists()
    go(NET, "--backend", "cpu", *QUICK)
    assert list(folder.glob("*.o"))


@drives("--verify-cache")
def _verify_cache(go: Drive) -> None:
    go.monkeypatch.setenv("LOADRUN_CACHE", str(go.folder / "cache"))
    words = (NET, "--backend", "cpu")
    expected = go.outputs(*words)
    assert go.outputs(*words, "--verify-cache") == expected


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
refused("--atlas")


def packed(go: Drive, *words: str) -> bytes:
    """A packed model, which must hold the model file as it is."""
    path = go.folder / "packed.lite"
    go(NET, "--packed-model-dump", str(path), *words, *QUICK)
    data = path.read_bytes()
    assert data.startswith(b"packed_model")
    with open(NET, "rb") as file:
        assert file.read() in data
    return data


@drives("--packed-model-dump")
def _pack(go: Drive) -> None:
    assert b'{"valid":false}' in packed(go)


@drives("--pack-info-json")
def _pack_info(go: Drive) -> None:
    path = go.folder / "info.json"
    path.write_text('{"valid": true, "name": "the net", "version": "1.13.0"}')
    data = packed(go, "--pack-info-json", str(path))
    assert path.read_bytes() in data
    assert data.count(b"the net") == 2
    path.write_text("[]")
    go(NET, "--packed-model-dump", str(go.folder / "x"), "--pack-info-json", str(path), code=2)
    go(NET, "--pack-info-json", str(path), code=2)


@drives("--pack-cache")
def _pack_cache(go: Drive) -> None:
    path = go.folder / "cache"
    path.write_bytes(b"\x01\x00\x00\x00cache")
    assert path.read_bytes() in packed(go, "--pack-cache", str(path))
    go(NET, "--pack-cache", str(path), code=2)


@drives("--pack-info-cryption")
def _pack_info_cryption(go: Drive) -> None:
    assert b"AES_default" in packed(go, "--pack-info-cryption", "AES_default")
    go(NET, "--pack-info-cryption", "ROT13", code=2)


@drives("--pack-model-cryption")
def _pack_model_cryption(go: Drive) -> None:
    assert b"RC4_default" in packed(go, "--pack-model-cryption", "RC4_default")


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
