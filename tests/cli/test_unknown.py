"""Files with operators and parameters that no known release has: every command copes or says so."""

from __future__ import annotations

from pathlib import Path

import mge_builder as mb
import pytest
from mge_builder import Slots

from loadrun.cli import main as run
from mgeserial.cli import main

NEW = {20: ("B", 7), 21: ("text", "inside")}


def _file(path: Path, form: str, *, changed: bool = False, moved: bool = False) -> str:
    """A network of an input and an unknown operator with parameters of an unknown kind."""
    content = {**NEW, 21: ("text", "another")} if changed else NEW
    mystery = {"type_id": 0xDEADBEEF12345678, "inputs": [0], "params": [(150, Slots(content))]}
    inputs = [mb.input_op("x", (2, 3)), *([mb.input_op("pad", (1,))] if moved else [])]
    make = {"v1": mb.v1, "v2": mb.v2}[form]
    path.write_bytes(make([*inputs, mystery], [len(inputs)]))
    return str(path)


@pytest.mark.parametrize("form", ["v1", "v2"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("info", "MODEL"), 0),
        (("info", "MODEL", "--op", "1"), 0),
        (("check", "MODEL"), 3),
        (("diff", "MODEL", "MODEL"), 0),
        (("edit", "MODEL", "-o", "OUT", "--set", "1.axis=1"), 2),
        (("edit", "MODEL", "-o", "OUT", "--rename-input", "x=y"), 0),
        (("edit", "MODEL", "-o", "OUT", "--batch-size", "4"), 0),
        (("optimize", "MODEL", "OUT"), 0),
        (("optimize", "MODEL", "OUT", "--enable-nchw4"), 0),
        (("optimize", "MODEL", "OUT", "--enable-io16xc32"), 0),
        (("strip", "MODEL", "-o", "OUT"), 0),
        (("graph", "MODEL", "-o", "OUT.html"), 0),
        (("convert", "MODEL", "OUT"), 0),
        (("convert", "MODEL", "OUT", "--to", "mgbs"), 3),
        (("weights", "list", "MODEL"), 0),
        (("testcase", "list", "MODEL"), 2),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, tuple) else "",
)
def test_commands(tmp_path: Path, form: str, words: tuple[str, ...], code: int) -> None:
    places = {"MODEL": _file(tmp_path / "in.mge", form), "OUT": str(tmp_path / "out.mge")}
    places["OUT.html"] = str(tmp_path / "out.html")
    assert main([places.get(w, w) for w in words]) == code


@pytest.mark.parametrize("words", [(), ("--model-info",), ("--compare", "MODEL")])
def test_running_names_the_operator(tmp_path: Path, words: tuple[str, ...], capsys) -> None:
    model = _file(tmp_path / "in.mge", "v2")
    assert run([model, *(model if w == "MODEL" else w for w in words)]) == 3
    assert "0xdeadbeef12345678" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["v1", "v2"])
def test_contents_of_unknown_parameters_are_compared(tmp_path: Path, form: str, capsys) -> None:
    before = _file(tmp_path / "a.mge", form)
    assert main(["diff", before, _file(tmp_path / "b.mge", form)]) == 0
    assert main(["diff", before, _file(tmp_path / "b.mge", form, moved=True)]) == 1
    assert "input 'pad'" in capsys.readouterr().out
    assert main(["diff", before, _file(tmp_path / "c.mge", form, changed=True)]) == 1
    assert "parameter of a newer release (not understood, its bytes)" in capsys.readouterr().out
