"""Files made to hurt a reader: one error, little time, little memory."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from attacks.builders import ATTACKS
from exercise import exercise

import mgeserial
from mgeserial.cli import main

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 1.0
MEGABYTES = 200


@functools.cache
def made(name: str) -> bytes:
    """Bytes of an attack, made once."""
    return ATTACKS[name].make()


@pytest.mark.parametrize("name", ATTACKS)
def test_the_attack_ends_in_its_error_or_in_none_in_little_time(name):
    attack, data = ATTACKS[name], made(name)
    # Time of this process: another one on the machine is no fault of the reader.
    start = time.process_time()
    errors = exercise(data)
    assert time.process_time() - start < SECONDS
    if attack.refused is None:
        assert not errors, errors[0]
        return
    assert errors
    assert re.search(attack.refused, str(errors[0])), errors[0]
    if attack.on_touch:
        mgeserial.load(data)


@pytest.mark.parametrize("name", ATTACKS)
def test_the_attack_takes_little_memory(name):
    data = made(name)
    exercise(b"")
    tracemalloc.start()
    try:
        exercise(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEGABYTES * 1e6, f"{peak / 1e6:.0f} MB"


@pytest.mark.parametrize("name", ATTACKS)
def test_what_is_printed_has_no_control_characters(name, tmp_path, capsys):
    path = tmp_path / "net.mge"
    path.write_bytes(made(name))
    code = main(["info", str(path)])
    out, err = capsys.readouterr()
    assert code in (0, 2, 3)
    assert all(line.isprintable() for line in out.split("\n"))
    assert all(line.isprintable() for line in err.split("\n"))
    assert "Traceback" not in err


def test_every_attack_has_a_line_in_the_document():
    text = (ROOT / "docs" / "security.md").read_text("utf-8")
    documented = re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)
    assert sorted(documented) == sorted(ATTACKS)


WATCHED = ("open", "exec", "compile", "import", "socket", "subprocess", "os.", "pickle", "ctypes")
WATCH = """
import sys
import mgeserial
from mgeserial.inspect import summarize

def read():
    model = mgeserial.load(sys.argv[1])
    model.testcases
    summarize(model)

read()  # modules of our own are imported at the first use
seen = []
sys.addaudithook(lambda event, args: seen.append(f"{event} {args!r}"))
read()
found = list(seen)
print("\\n".join(found))
"""


def test_reading_opens_nothing_but_the_named_file(tmp_path):
    path = tmp_path / "net.mge"
    path.write_bytes(made("metadata_with_a_pickle_that_runs_code"))
    command = [sys.executable, "-c", WATCH, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    events = [e for e in done.stdout.splitlines() if e.startswith(WATCHED)]
    assert events, done.stdout
    assert all(e.startswith("open ") and "net.mge" in e for e in events), events
