"""Recording and replaying launches: when, in which stretches, and what the report says of it."""

from __future__ import annotations

import numpy as np
import pytest

from loadrun.backends.base import CompileOptions
from loadrun.backends.cuda import lower
from loadrun.backends.cuda.backend import CudaProgram
from loadrun.backends.cuda.emulated import EmulatedDevice
from loadrun.cli import main
from loadrun.session import Session
from mgeserial.author import GraphBuilder
from mgeserial.errors import ExecutionError
from mgeserial.ir.graph import Graph

pytestmark = pytest.mark.usefixtures("device")
DATA = np.eye(4, dtype=np.float32) * 4


@pytest.fixture(autouse=True)
def _no_inverse(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator without a kernel, so that there are steps of the host."""
    monkeypatch.delitem(lower.rules(), "MatrixInverse", raising=False)


def _net(hosts: int) -> Graph:
    """Work for the device, with steps of the host in between."""
    b = GraphBuilder()
    x = b.add(b.input("data", (4, 4)), np.float32(0))
    for _ in range(hosts):
        x = b.mul(b.apply("MatrixInverse", [x])[0], np.float32(2))
    b.output(b.add(x, np.float32(1)), "y")
    return b.graph()


def _run(session: Session, turns: int) -> list[np.ndarray]:
    return [session.run([DATA * (k + 1)])["y"] for k in range(turns)]


def _notes(session: Session) -> str:
    assert session.program is not None
    return "\n".join(session.program.report.notes)


@pytest.mark.parametrize("record", [None, 1, 2])
@pytest.mark.parametrize(
    ("hosts", "note"),
    [
        (0, "launches are replayed as a CUDA graph from the third run on"),
        (2, "launches are replayed as 3 CUDA graphs from the third run on, 2 steps of the host "),
    ],
)
def test_stretches_between_steps_of_the_host_are_replayed(
    record: int | None, hosts: int, note: str
) -> None:
    with Session(_net(hosts), "reference") as session:
        want = _run(session, 4)
    with Session(_net(hosts), "cuda", options=CompileOptions(record=record)) as session:
        for got, wanted in zip(_run(session, 4), want, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)
        assert isinstance(session.program, CudaProgram)
        assert session.program.native.graphs == hosts + 1
        assert note in _notes(session)


def test_nothing_is_recorded_when_that_was_asked_for() -> None:
    with Session(_net(1), "cuda", options=CompileOptions(record=0)) as session:
        _run(session, 4)
        assert isinstance(session.program, CudaProgram)
        assert session.program.native.graphs == 0
        assert "launches are started one by one, as was asked for" in _notes(session)


def test_network_without_device_steps_says_that_nothing_is_replayed() -> None:
    b = GraphBuilder()
    b.output(b.apply("MatrixInverse", [b.input("data", (4, 4))])[0], "y")
    with Session(b.graph(), "cuda") as session:
        _run(session, 3)
        assert "nothing is replayed" in _notes(session)


def test_refusal_in_the_run_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmulatedDevice, "capture", lambda self, work: None)
    with Session(_net(1), "cuda") as session:
        _run(session, 4)
        assert _notes(session).count("the device refused") == 1


def test_error_in_a_replayed_run_leaves_the_program_usable() -> None:
    b = GraphBuilder()
    rows = b.input("rows", (4,), dtype="Int32")
    table = b.add(b.input("table", (5, 3)), np.float32(1))
    b.output(b.take_rows(table, rows), "y")
    values = np.arange(15, dtype=np.float32).reshape(5, 3)
    good, bad = np.array([0, 4, -1, 2], np.int32), np.array([0, 5, 1, 2], np.int32)
    with Session(b.graph(), "cuda") as session:
        feeds = {"table": values, "rows": good}
        for _ in range(3):
            np.testing.assert_array_equal(session.run(feeds)["y"], values[good] + 1)
        with pytest.raises(ExecutionError, match="an index is outside its axis"):
            session.run({**feeds, "rows": bad})
        np.testing.assert_array_equal(session.run(feeds)["y"], values[good] + 1)


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ((), "replayed as"),
        (("--record-comp-seq",), "replayed as"),
        (("--record-comp-seq2",), "replayed as"),
        (("--norecord-comp-seq",), "replayed as"),
        (("--no-record",), "one by one"),
    ],
)
def test_command_line_says_how_launches_start(
    words: tuple[str, ...], note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from option_cases import CONV

    assert main([CONV, "--cuda", "--iter", "3", "-v", *words]) == 0
    assert note in capsys.readouterr().out


def test_profile_gives_a_span_for_every_step_and_run() -> None:
    with Session(_net(2), "cuda") as session:
        spans = session.profile([DATA], repeat=3)
        assert [len(s.spans) for s in spans] == [3] * len(spans)
        kernels = [s.kernel for s in spans]
        assert kernels.count("python") == 2
        for k in range(3):
            starts = [s.spans[k][0] for s in spans]
            assert starts == sorted(starts)
