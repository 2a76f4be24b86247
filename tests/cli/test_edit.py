"""Edits from the command line: what is written is what was asked for, or nothing is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from corpus_cases import compact_root

import mgeserial
from loadrun.session import Session
from mgeserial.author import GraphBuilder
from mgeserial.cli import main
from mgeserial.cli.edit import parse_value, split_text
from mgeserial.errors import InputError
from mgeserial.params import ConvolutionFormat, ExecutionPolicyStrategy
from mgeserial.testcases import cases_of

ASSERTED = compact_root() / "containers" / "testcases_0_5_1_assert" / "model.v1.mge"
PLAIN_CASES = compact_root() / "containers" / "testcases_1_13_plain" / "model.v2.mge"


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """data (1, 2, 8, 8) -> conv "c1" -> "MUL(x,1)" -> conv "c2" -> pooling "y"."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("data", (1, 2, 8, 8))
    w = b.param(rng.standard_normal((4, 2, 3, 3)).astype(np.float32), name="w1")
    y = b.conv2d(x, w, padding=1, name="c1")
    y = b.mul(y, np.array([2.0], np.float32), name="MUL(x,1)")
    w = b.param(rng.standard_normal((4, 4, 3, 3)).astype(np.float32), name="w2")
    y = b.relu(b.conv2d(y, w, padding=1, name="c2"), name="r")
    b.output(b.max_pool2d(y, 2, name="pool"), "y")
    path = tmp_path / "net.mge"
    mgeserial.save(b.graph(), path)
    return path


def edit(net: Path, *words: str) -> mgeserial.Graph:
    out = net.parent / "out.mge"
    assert main(["edit", str(net), "-o", str(out), "--force", *words]) == 0
    return mgeserial.load(out).graph


def refused(capsys: pytest.CaptureFixture[str], net: Path, *words: str, code: int = 2) -> str:
    """The error of edits that fail; nothing may have been written."""
    out = net.parent / "none.mge"
    assert main(["edit", str(net), "-o", str(out), *words]) == code
    assert not out.exists()
    assert sorted(p.name for p in net.parent.glob(".*")) == []
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err


def compute(graph: mgeserial.Graph | Path, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    found = mgeserial.load(graph).graph if isinstance(graph, Path) else graph
    with Session(found, "reference") as session:
        return dict(session.run(feeds))


def data(batch: int = 1) -> np.ndarray:
    return np.random.default_rng(batch).standard_normal((batch, 2, 8, 8)).astype(np.float32)


# -- names ---------------------------------------------------------------------------------------


def test_inputs_outputs_and_values_are_renamed(net: Path) -> None:
    graph = edit(net, "--rename-input", "data=image", "--rename-output", "y=out", "--rename", "r=s")
    assert graph.input_names == ("image",)
    assert graph.output_names == ("out",)
    assert "s" in [v.name for v in graph.values()]
    assert np.array_equal(compute(graph, image=data())["out"], compute(net, data=data())["y"])


def test_rename_takes_inputs_and_outputs_too(net: Path) -> None:
    graph = edit(net, "--rename", "data=image", "--rename", "y=out")
    assert (graph.input_names, graph.output_names) == (("image",), ("out",))


def test_an_equals_sign_in_a_name_is_escaped(net: Path) -> None:
    graph = edit(net, "--rename", r"r=a\=b", "--rename", r"a\=b=c")
    assert "c" in [v.name for v in graph.values()]


def test_operators_get_a_prefix(net: Path) -> None:
    graph = edit(net, "--prefix", "net/")
    assert all((n.name or "").startswith("net/") for n in graph.nodes)


def test_one_name_of_an_output_with_two_is_changed_alone(tmp_path: Path) -> None:
    b = GraphBuilder()
    y = b.relu(b.input("x", (2,)))
    b.output(y, "a")
    b.output(y, "b")
    path = tmp_path / "two.mge"
    mgeserial.save(b.graph(), path)
    assert mgeserial.load(path).graph.output_names == ("a", "b")
    assert edit(path, "--rename-output", "b=c").output_names == ("a", "c")


# -- outputs, parts ------------------------------------------------------------------------------


def test_outputs_are_added_and_removed(net: Path) -> None:
    graph = edit(net, "--add-output", "c1=features", "--remove-output", "y", "--remove-unused")
    assert graph.output_names == ("features",)
    assert [n.op.name for n in graph.nodes].count("Convolution") == 1
    assert compute(graph, data=data())["features"].shape == (1, 4, 8, 8)


def test_a_part_is_cut_out_and_computes_the_same(net: Path) -> None:
    tail = edit(net, "--extract", "c1:y")
    assert tail.input_names == ("c1",)
    head = compute(edit(net, "--extract", "data:c1"), data=data())
    assert np.array_equal(compute(tail, **head)["y"], compute(net, data=data())["y"])


def test_commas_in_names_are_understood(net: Path) -> None:
    graph = edit(net, "--extract", "MUL(x,1):r,y")
    assert graph.input_names == ("MUL(x,1)",)
    assert graph.output_names == ("r", "y")
    escaped = edit(net, "--extract", r"MUL(x\,1):r,y")
    assert escaped.input_names == ("MUL(x,1)",)


# -- shapes, constants, parameters ---------------------------------------------------------------


def test_a_batch_is_computed_as_its_parts_are(net: Path) -> None:
    graph = edit(net, "--batch-size", "3")
    assert graph.inputs[0].shape == (3, 2, 8, 8)
    whole = compute(graph, data=data(3))["y"]
    parts = [compute(net, data=data(3)[i : i + 1])["y"] for i in range(3)]
    assert np.allclose(whole, np.concatenate(parts), rtol=1e-6)


def test_an_input_gets_another_shape(net: Path) -> None:
    graph = edit(net, "--input-shape", "data=2,2,12,16")
    assert graph.outputs[0].shape == (2, 4, 6, 8)


def test_an_input_becomes_a_constant_and_a_weight_an_input(net: Path) -> None:
    array = data()
    np.save(net.parent / "x.npy", array)
    words = ["--input-to-const", f"data={net.parent / 'x.npy'}", "--const-to-input", "w1=filter"]
    graph = edit(net, *words)
    assert graph.input_names == ("filter",)
    weight = next(n for n in mgeserial.load(net).graph.params if n.tensors[0].name == "w1")
    found = compute(graph, filter=np.array(weight.tensors[0].numpy()))
    assert np.array_equal(found["y"], compute(net, data=array)["y"])


def test_parameters_are_set_by_place_or_name(net: Path) -> None:
    graph = mgeserial.load(net).graph
    pooling = next(n for n in graph.nodes if n.op.name == "Pooling")
    changed = edit(net, "--set", f"{pooling.index}.mode=average", "--set", "c1.pad_w=2")
    by_type = {n.op.name: n for n in reversed(changed.nodes)}
    assert str(by_type["Pooling"].param.mode) == "AVERAGE"
    assert by_type["Convolution"].param.pad_w == 2
    assert changed.outputs[0].shape == (1, 4, 4, 5)


def test_edits_are_made_in_the_order_given(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(net, "--rename-input", "data=a", "--batch-size", "2", "--rename-input", "a=b")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["input 'data' is called 'a'", "batch size 2", "input 'a' is called 'b'"]
    assert lines[3].startswith("wrote ")
    assert "no input is called 'a'" in refused(
        capsys, net, "--rename-input", "a=b", "--rename-input", "data=a"
    )


# -- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "no edit is given"),
        (["--rename", "nothing=x"], "no value is called 'nothing'"),
        (["--rename", "r"], "expected OLD=NEW"),
        (["--rename-input", "data="], "expected OLD=NEW"),
        (["--rename-output", "q=x"], "outputs: y"),
        (["--add-output", "r=y"], "an output is called 'y' already"),
        (["--remove-output", "y"], "the only output"),
        (["--remove-output", "z"], "no output is called 'z'"),
        (["--extract", "data"], "expected INPUTS:OUTPUTS"),
        (["--extract", "data:"], "expected INPUTS:OUTPUTS"),
        (["--extract", "c2:c1"], "needs input 'data'"),
        (["--batch-size", "0"], "expected a number from 1"),
        (["--batch-size", "x"], "expected a number from 1"),
        (["--batch-size", "99999999999999999999"], "expected a number from 1"),
        (["--input-shape", "data=1,3,8,8"], "bakes the old shape in"),
        (["--input-shape", "data=1,-2"], "expected dimensions"),
        (["--input-shape", "nope=1,2"], "no input is called 'nope'"),
        (["--const-to-input", "c1"], "no single weight"),
        (["--const-to-input", "w1=data"], "an input is called 'data' already"),
        (["--input-to-const", "data=missing.npy"], "no such file"),
        (["--set", "c1"], "expected OPERATOR.PARAMETER=VALUE"),
        (["--set", "c1.pad_h=x"], "expected a whole number"),
        (["--set", "c1.padding=1"], "has no parameter 'padding'"),
        (["--set", "c1.format=NCHX"], "has no 'NCHX'"),
        (["--set", "99.pad_h=1"], "there is no operator 99"),
        (["--set", "c2.dilate_h=50"], "Convolution"),
        (["--graph", "1", "--prefix", "x"], "graph 1 does not exist"),
    ],
)
def test_impossible_edits_say_why_and_write_nothing(
    net: Path, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    error = refused(capsys, net, *words)
    assert error.startswith("error: ")
    assert text in error
    assert "Traceback" not in error


def test_what_a_file_cannot_hold_is_refused_when_it_is_written(
    net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(capsys, net, "--set", "c1.pad_h=99999999999", code=3)
    assert "pad_h cannot hold 99999999999" in error


def test_a_failing_edit_after_good_ones_writes_nothing(
    net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = net.read_bytes()
    error = refused(capsys, net, "--batch-size", "2", "--rename-input", "nope=x")
    assert "--rename-input nope=x: no input is called 'nope'" in error
    assert net.read_bytes() == before


def test_an_array_of_another_type_is_refused(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(net.parent / "x.npy", data().astype(np.float64))
    error = refused(capsys, net, "--input-to-const", f"data={net.parent / 'x.npy'}")
    assert "float64" in error


def test_files_are_replaced_only_with_force(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = net.read_bytes()
    assert main(["edit", str(net), "-o", str(net), "--prefix", "a/"]) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert net.read_bytes() == before
    assert main(["edit", str(net), "-o", str(net), "--prefix", "a/", "--force", "-q"]) == 0
    assert capsys.readouterr().out == ""
    assert mgeserial.load(net).graph.nodes[0].name.startswith("a/")  # type: ignore[union-attr]


# -- test cases ----------------------------------------------------------------------------------


def test_test_cases_follow_renamed_inputs(tmp_path: Path) -> None:
    out = tmp_path / "out.mge"
    before = cases_of(mgeserial.load(ASSERTED))
    # `zebra` sorts behind `out:expect`, `data` before it.
    words = ["--rename-input", "data=zebra", "-q"]
    assert main(["edit", str(ASSERTED), "-o", str(out), *words]) == 0
    after = cases_of(mgeserial.load(out))
    assert len(after) == len(before) == 2
    for a, b in zip(before, after, strict=True):
        assert np.array_equal(a.arrays["data"], b.arrays["zebra"])
        assert np.array_equal(a.expected["out"], b.expected["out"])


def test_test_cases_stay_as_they_are_when_inputs_do(tmp_path: Path) -> None:
    out = tmp_path / "out.mge"
    assert main(["edit", str(PLAIN_CASES), "-o", str(out), "--prefix", "a/", "-q"]) == 0
    before, after = mgeserial.load(PLAIN_CASES), mgeserial.load(out)
    assert main(["diff", str(PLAIN_CASES), str(out)]) == 0
    for a, b in zip(before.testcases, after.testcases, strict=True):
        assert a.keys() == b.keys()
        assert all(np.array_equal(a[k], b[k]) for k in a)


def test_test_cases_that_no_longer_fit_are_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.mge"
    for words in (["--batch-size", "5"], ["--const-to-input", "w=w"]):
        code = main(["edit", str(PLAIN_CASES), "-o", str(out), *words])
        shown = capsys.readouterr().err
        assert code == 2, shown
        assert not out.exists()
    assert main(["edit", str(PLAIN_CASES), "-o", str(out), "--batch-size", "5"]) == 2
    assert "`mgeserial strip --testcases`" in capsys.readouterr().err


# -- reading arguments ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a,b", ["a", "b"]),
        (r"a\,b,c", ["a,b", "c"]),
        (r"a\\,b", ["a\\", "b"]),
        (r"a\b", [r"a\b"]),
        ("a\\", ["a\\"]),
        ("", [""]),
    ],
)
def test_texts_are_split_with_escapes(text: str, parts: list[str]) -> None:
    assert split_text(text, ",") == parts


def test_values_of_parameters_keep_their_kind() -> None:
    assert parse_value("nchw4", ConvolutionFormat.NCHW) is ConvolutionFormat.NCHW4
    assert parse_value("true", False) is True
    assert parse_value("-3", 1) == -3
    assert parse_value("1e-5", 0.1) == 1e-5
    both = parse_value("HEURISTIC|PROFILE", ExecutionPolicyStrategy.HEURISTIC)
    assert both == ExecutionPolicyStrategy.HEURISTIC | ExecutionPolicyStrategy.PROFILE
    assert parse_value("1,2", (0,)) == (1, 2)
    for text, like in (("maybe", True), ("1.5", 1), ("x", 0.1), ("FAST", both), ("1", b"")):
        with pytest.raises(InputError):
            parse_value(text, like)
