"""What loadrun does to a network before it runs it."""

from __future__ import annotations

import argparse
import json

import pytest
from corpus_cases import compact_root

from loadrun.cli import main
from loadrun.optimization import add_options, optimized, options_of
from mgeserial.author import GraphBuilder
from mgeserial.errors import InputError
from mgeserial.passes.options import OptimizeOptions


class _Wanting:
    wants = OptimizeOptions(enable_ioc16=True)


def _options(*words, backend=None):
    parser = argparse.ArgumentParser()
    add_options(parser)
    return options_of(parser.parse_args(words), backend)


def test_the_backend_gets_what_it_wants_unless_told_otherwise():
    assert _options(backend=_Wanting()) == _Wanting.wants
    assert _options() == OptimizeOptions(enable_fuse_conv_bias_nonlinearity=True)
    assert _options("--optimize-for-inference", backend=_Wanting()) == OptimizeOptions()
    assert _options("--no-optimize", backend=_Wanting()) is None


def test_no_optimize_and_switches_contradict():
    with pytest.raises(InputError, match="--no-optimize and switches of the optimiser contradict"):
        _options("--no-optimize", "--enable-nchw44")


def test_the_note_says_what_was_done():
    b = GraphBuilder()
    b.output(b.relu(b.add(b.input("x", (2,)), 0.0)), "y")
    ready = optimized(b.graph(), OptimizeOptions())
    assert ready.note.startswith("optimised: 4 -> 2 operators in ")
    assert ready.note.endswith("(optimize_options 0x40; --no-optimize runs the file as it is)")
    plain = optimized(b.graph(), None)
    assert (plain.report, plain.note) == (None, "not optimised: the file's operators as they are")


@pytest.mark.parametrize(("words", "note"), [([], "optimised: "), (["--no-optimize"], "not opt")])
def test_the_report_says_it(words, note, capsys):
    model = str(next(compact_root().glob("nets/*/model.v*.mge")))
    command = [model, "--backend", "reference", "--iter", "1", "--json", "-", *words]
    assert main(command) == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert any(n.startswith(note) for n in notes)
