"""Choosing one of several devices, and copies, on the command line and in Python."""

from __future__ import annotations

import json

import numpy as np
import pytest
from option_cases import CONV, NET

from loadrun.backends.cuda.device import check_number, mode, open_device
from loadrun.cli import main
from loadrun.session import Session
from mgeserial.author import GraphBuilder
from mgeserial.errors import InputError
from mgeserial.ir.graph import Graph

pytestmark = pytest.mark.usefixtures("device")


def _net() -> Graph:
    b = GraphBuilder()
    b.output(b.relu(b.input("data", (2, 3))), "y")
    return b.graph()


def _document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main([*words, "--iter", "2", "--json", "-"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("--cuda",), "emulated device 0"),
        (("--device", "0"), "emulated device 0"),
        (("--device", "1"), "emulated device 1"),
        (("--cuda", "--device", "1"), "emulated device 1"),
        (("--cuda", "--device", "xpu1"), "emulated device 1"),
        (("--device", "gpu1:2"), "emulated device 1"),
        (("--device=gpux",), "emulated device 0"),
        (("--backend", "cuda", "--device", "gpu1"), "emulated device 1"),
    ],
)
def test_device_is_the_one_that_was_asked_for(
    words: tuple[str, ...], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _document(capsys, CONV, *words)
    assert found["backend"] == "cuda"
    assert any(f"device: {name}" in note for note in found["notes"])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "backend", "threads"),
    [
        (("--device", "cpu"), "cpu", None),
        (("--device", "cpu0:1"), "cpu", None),
        (("--device", "xpux:0"), "cpu", None),  # never the emulated device unasked
        (("--device", "cpu:default"), "cpu", 1),
        (("--device", "multithread2:0"), "cpu", 2),
        (("--device", "multithread:default:2"), "cpu", 2),
    ],
)
def test_nodes_of_the_processor_are_the_native_backend(
    words: tuple[str, ...], backend: str, threads: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _document(capsys, NET, *words)
    assert found["backend"] == backend
    assert threads is None or found["threads"] == threads


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--device", "2"), 2, "there is no CUDA device 2: 0 to 1 is known here"),
        (("--cpu", "--device", "1"), 2, "--cpu and --device 1 exclude each other"),
        (("--cuda", "--device", "cpu0"), 2, "--cuda and --device cpu0 exclude each other"),
        (("--backend", "reference", "--device", "gpu0"), 2, "exclude each other"),
        (("--device", "nowhere"), 2, "'nowhere' is no computing node"),
        (("--device", "rocm0"), 3, "nothing here computes on rocm0"),
        (("--device", "multithread2:0", "--threads", "3"), 2, "different numbers of threads"),
    ],
)
def test_contradictions_and_unknown_devices_are_one_error(
    words: tuple[str, ...], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([CONV, *words]) == code
    error = capsys.readouterr().err
    assert text in error
    assert "Traceback" not in error


def test_without_a_device_the_line_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LOADRUN_CUDA")
    monkeypatch.setattr(
        "loadrun.backends.cuda.device_cupy.importlib.util.find_spec", lambda name: None
    )
    for words in (("--cuda",), ("--device", "gpu1")):
        assert main([CONV, *words]) == 3
        assert "CuPy is not installed; run `pip install" in capsys.readouterr().err


def test_copies_to_the_host_are_shown_as_a_part(capsys: pytest.CaptureFixture[str]) -> None:
    plain, copied = (
        _document(capsys, NET, "--cuda", *more)["cases"][0]  # type: ignore[index]
        for more in ((), ("--copy-to-host",))
    )
    for case in (plain, copied):
        parts = zip(case["samples_ns"], case["device_ns"], case["copy_ns"], strict=True)
        assert all(d > 0 and c > 0 and d + c <= total for total, d, c in parts)


def test_printed_lines_have_device_times_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([CONV, "--cuda", "--iter", "2", "--format", "lar05"]) == 0
    lines = [n for n in capsys.readouterr().out.splitlines() if "exec=" in n]
    assert len(lines) >= 2
    for line in lines:
        wall = float(line.split("exec=")[1].split(",")[0])
        assert 0 < float(line.split("device=")[1].split(")")[0]) <= wall


def test_session_takes_devices_and_nodes() -> None:
    data = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)
    for node in (1, "gpu1"):
        with Session(_net(), device=node) as session:
            np.testing.assert_array_equal(session.run([data])["y"], np.maximum(data, 0))
            assert session.backend == "cuda"
            assert session.program is not None
            assert "device: emulated device 1 (g++)" in session.program.report.notes
    with Session(_net(), device="multithread2:0") as session:
        session.run([data])
        assert (session.backend, session.threads) == ("cpu", 2)
    with pytest.raises(InputError, match="exclude each other"):
        Session(_net(), "cpu", device="gpu0")


def test_devices_of_two_sessions_are_apart() -> None:
    data = np.ones((2, 3), np.float32)
    with Session(_net(), device=0) as first, Session(_net(), device=1) as second:
        for k in range(3):
            np.testing.assert_array_equal(first.run([k * data])["y"], k * data)
            np.testing.assert_array_equal(second.run([-k * data])["y"], 0 * data)


def test_number_must_be_known() -> None:
    check_number(1, 2)
    with pytest.raises(InputError, match="no CUDA device 1: 0 alone is known here"):
        check_number(1, 1)
    with pytest.raises(InputError, match="no CUDA device -1"):
        open_device(-1)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("emulated", (True, False, None)),
        ("emulated-arena", (True, True, None)),
        ("emulated-sm80", (True, False, (8, 0))),
        ("emulated-arena-sm120", (True, True, (12, 0))),
    ],
)
def test_environment_chooses_the_emulated_device(
    text: str, want: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOADRUN_CUDA", text)
    found = mode()
    assert (found.emulated, found.arena, found.capability) == want
