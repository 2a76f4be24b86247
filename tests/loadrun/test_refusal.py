"""What cannot run is refused before a run, with the record's reason, on every backend."""

from __future__ import annotations

import pytest
from corpus_cases import compact_root

from loadrun.cli import main
from loadrun.session import Session
from mgeserial.errors import UnsupportedError

MODEL = compact_root() / "containers" / "extern_opr" / "model.v1.mge"


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_an_external_operator_is_refused_with_its_reason(backend: str) -> None:
    with Session(MODEL, backend) as session, pytest.raises(UnsupportedError) as caught:
        session.prepare([[[0.0] * 3] * 2])
    assert "ExternCOprRunner" in str(caught.value)
    assert "loader library" in str(caught.value)


def test_the_command_line_exits_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(MODEL), "--iter", "1"]) == 3
    assert "mgeserial check" in capsys.readouterr().err
