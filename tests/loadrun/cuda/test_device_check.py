"""The script for a GPU, tried on the emulated device, so that no minute there is lost to a slip."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import device_check
import models
import numpy as np
import pytest

from mgeserial.author import GraphBuilder
from mgeserial.ir.graph import Graph

pytestmark = pytest.mark.usefixtures("device")


def _build(name: str, batch: int = 1) -> Graph:
    """A tiny network in place of any other."""
    b = GraphBuilder()
    random = np.random.default_rng(3)

    def weights(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * 0.2).astype(np.float32)

    x = b.input("data", (batch, 3, 8, 8))
    y = b.relu(b.conv2d(x, weights(8, 3, 3, 3), weights(8), padding=1))
    y = b.add(y, b.conv2d(y, weights(8, 1, 3, 3), padding=1, groups=8))
    b.output(b.linear(b.flatten(b.global_avg_pool2d(y)), weights(4, 8), weights(4)), "y")
    return b.graph()


@pytest.fixture
def args(monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    monkeypatch.setattr(models, "build", _build)
    return argparse.Namespace(corpus=None, only="conv/conv1d", reserve_s=0.0)


def _clock() -> Any:
    return device_check._Clock(5.0)


def test_variants_run_and_agree(args: argparse.Namespace) -> None:
    found = device_check.check_variants(args, _clock())
    assert found["failures"] == {}
    assert set(found["variants"]) == {
        f"{net} {way}"
        for net in ("resnet18", "mobilenet_v2", "transformer")
        for way in ("one_by_one", "tf32", "float16", "fast_run", "cudnn")
    }
    cudnn = found["variants"]["resnet18 cudnn"]
    assert any(name.startswith("cudnn") for name in cudnn["algorithms"])
    assert cudnn["graphs"] == 1
    assert found["variants"]["resnet18 one_by_one"]["graphs"] == 0
    json.dumps(found)


def test_variant_that_is_wrong_is_a_failure(
    args: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(device_check._LIMITS, "float16", 1e-9)
    assert "resnet18 float16" in device_check.check_variants(args, _clock())["failures"]


def test_networks_and_corpus_agree(args: argparse.Namespace) -> None:
    assert device_check.check_networks(args, _clock())["failures"] == {}
    found = device_check.check_corpus(args, _clock())
    assert found["failures"] == {}
    assert found["agree"] == 1


def test_speed_takes_turns_with_pytorch(
    args: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = _build("resnet18")
    monkeypatch.setattr(device_check, "_torch_graph", lambda *_: lambda: 1000.0)
    found = device_check._interleaved(graph, device_check._feeds(graph), 1, _clock(), 0.0)
    assert set(found["torch_over_ours"]) == {"f32", "f16", "f32 fast run", "f16 fast run"}
    assert found["device_us"]["torch f32"] == 1.0
    assert found["slowest_steps"]
    json.dumps(found)


def test_parts_end_when_the_time_is_over(args: argparse.Namespace) -> None:
    args.reserve_s = 1e9
    found = device_check.check_variants(args, _clock())
    assert len(found["variants"]) == 15
    assert all("not_measured" in v for v in found["variants"].values())
    assert device_check.check_corpus(args, _clock())["not_reached"] == 1


def test_script_writes_what_it_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.json"
    words = ["device_check.py", "--parts", "device,speed", "--out", str(out)]
    monkeypatch.setattr("sys.argv", words)
    code = device_check.main()
    found = json.loads(out.read_text())
    # Neither CuPy nor PyTorch is here: the one is a failure, the other a reason.
    assert code == 1
    assert "traceback" in found["device"]["failures"]
    assert "PyTorch" in found["speed"]["not_measured"]
