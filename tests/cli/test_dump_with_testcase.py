from __future__ import annotations

import json
import subprocess
import sys

import cv2
import numpy as np
import pytest
from corpus_cases import CHECKOUT, compact_root

import loadrun.cli
import mgeserial
from loadrun.inputs import random_input
from loadrun.session import Session
from mgeserial import dtypes as D
from mgeserial.author import GraphBuilder
from mgeserial.cli.dump_with_testcase import main
from mgeserial.ir.types import TensorType
from mgeserial.saving import save
from mgeserial.testcases import cases_of, tolerances

CONV = compact_root() / "conv" / "conv1d" / "model.v1.mge"
TESTED = compact_root() / "containers" / "testcases_0_5_1_assert" / "model.v1.mge"
SEVERAL = compact_root() / "containers" / "three_graphs" / "model.v2.mge"


def authored(path, shape=(1, 3, 4, 5), dtype=D.FLOAT32, *, second=False):
    """A network that gives twice its input, plus another one of shape (1, 2) if asked."""
    b = GraphBuilder()
    x = b.input("data", shape, dtype)
    y = b.mul(b.cast(x, "Float32"), 2.0)
    if second:
        y = b.add(y, b.reshape_to(b.input("info", (1, 1)), (1, 1, 1, 1)))
    b.output(y, "y")
    save(b.graph(), path)
    return str(path)


def picture(path, height=4, width=5, grey=False):
    image = np.random.default_rng(3).integers(0, 256, (height, width, 3), np.uint8)
    assert cv2.imwrite(str(path), image[..., 0] if grey else image)
    return image


def run(tmp_path, *words, model=None, out="out.mge", code=0):
    target = tmp_path / out
    given = model or authored(tmp_path / "net.mge")
    assert main([given, "-o", str(target), *map(str, words)]) == code
    return mgeserial.load(target) if code == 0 else None


def only(model):
    (case,) = cases_of(model)
    return case


# -- what is read ---------------------------------------------------------------------------------


def test_an_image_is_read_in_bgr_order(tmp_path):
    image = picture(tmp_path / "x.png")
    case = only(run(tmp_path, "-d", tmp_path / "x.png"))
    assert np.array_equal(case.inputs["data"], image.transpose(2, 0, 1)[None].astype(np.float32))
    assert np.array_equal(case.expected["y"], case.inputs["data"] * 2)


@pytest.mark.parametrize("suffix", ["png", "bmp", "ppm", "webp", "tiff", "jpg"])
def test_any_image_opencv_reads_is_read_by_opencv(tmp_path, suffix):
    path = tmp_path / f"x.{suffix}"
    picture(path)
    case = only(run(tmp_path, "-d", path))
    pixels = cv2.imread(str(path), cv2.IMREAD_COLOR)
    assert np.array_equal(case.inputs["data"][0], pixels.transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((1, 4, 5, 3), (0, 1, 2)), ((3, 4, 5), (2, 0, 1)), ((4, 5, 3), (0, 1, 2))],
)
def test_layouts_of_inputs(tmp_path, shape, axes):
    image = picture(tmp_path / "x.png")
    model = authored(tmp_path / "net.mge", shape)
    found = only(run(tmp_path, "-d", tmp_path / "x.png", model=model)).inputs["data"]
    assert np.array_equal(found, image.transpose(axes).reshape(shape))


@pytest.mark.parametrize("shape", [(1, 1, 4, 5), (1, 4, 5, 1), (1, 4, 5), (4, 5)])
def test_one_channel_is_grey(tmp_path, shape):
    image = picture(tmp_path / "x.png")
    model = authored(tmp_path / "net.mge", shape)
    found = only(run(tmp_path, "-d", tmp_path / "x.png", model=model)).inputs["data"]
    assert np.array_equal(found, cv2.cvtColor(image, cv2.COLOR_BGR2GRAY).reshape(shape))


def test_images_are_resized(tmp_path, capsys):
    image = picture(tmp_path / "x.png", 9, 7)
    case = only(run(tmp_path, "-d", tmp_path / "x.png", "--resize-input"))
    resized = cv2.resize(image, (5, 4))
    assert np.array_equal(case.inputs["data"][0], resized.transpose(2, 0, 1))
    assert "resized to (1, 3, 4, 5)" in capsys.readouterr().err


def test_an_image_of_another_size_is_fed_where_the_network_takes_it(tmp_path, capsys):
    picture(tmp_path / "x.png", 9, 7)
    case = only(run(tmp_path, "-d", tmp_path / "x.png"))
    assert case.expected["y"].shape == (1, 3, 9, 7)
    assert "dst_shape is (1, 3, 4, 5); data_shape is (1, 3, 9, 7)" in capsys.readouterr().err
    run(tmp_path, "-d", tmp_path / "x.png", model=str(CONV), code=2)


def test_arrays_are_read(tmp_path):
    array = np.random.default_rng(0).random((1, 3, 4, 5), np.float32)
    np.save(tmp_path / "x.npy", array)
    np.savez(tmp_path / "x.npz", data=array)
    (tmp_path / "x.json").write_text(
        json.dumps(
            {"data": {"shape": [1, 3, 4, 5], "type": "float32", "raw": array.ravel().tolist()}}
        )
    )
    import pickle

    (tmp_path / "x.pkl").write_bytes(pickle.dumps(array))
    for suffix in ("npy", "npz", "json", "pkl"):
        case = only(run(tmp_path, "-d", f"data:{tmp_path / f'x.{suffix}'}"))
        assert np.array_equal(case.inputs["data"], array)


def test_a_pickle_that_runs_code_is_refused(tmp_path, capsys):
    import pickle

    class Bomb:
        def __reduce__(self):
            return eval, ("1/0",)

    (tmp_path / "x.pkl").write_bytes(pickle.dumps(Bomb()))
    run(tmp_path, "-d", tmp_path / "x.pkl", code=2)
    assert "builtins.eval" in capsys.readouterr().err


def test_several_inputs_and_several_cases(tmp_path):
    model = authored(tmp_path / "net.mge", second=True)
    np.save(tmp_path / "x.npy", np.ones((1, 3, 4, 5), np.float32))
    spec = f"data:{tmp_path / 'x.npy'};info:[[3]]"
    found = cases_of(run(tmp_path, "-d", spec, "-d", spec.replace("3]", "4]"), model=model))
    assert [c.expected["y"].flat[0] for c in found] == [5, 6]


def test_a_list_holds_a_case_a_line(tmp_path):
    (tmp_path / "list.txt").write_text("data:#rand(0,1)\n\n  data:#rand(2,3) \n")
    found = cases_of(run(tmp_path, "-d", f"@{tmp_path / 'list.txt'}", "-d", "#rand(5,6)"))
    assert [int(c.inputs["data"].min()) for c in found] == [0, 2, 5]


def test_one_rand_is_for_all_inputs(tmp_path):
    model = authored(tmp_path / "net.mge", second=True)
    case = only(run(tmp_path, "-d", "#rand(3,4)", model=model))
    assert case.inputs["data"].min() >= 3
    assert case.inputs["info"].min() >= 3


def test_random_values_are_those_of_loadrun_and_differ_between_cases(tmp_path):
    found = cases_of(run(tmp_path, "-d", "#rand(0,255)", "-d", "#rand(0,255)", "--seed", "5"))
    declared = TensorType(D.FLOAT32, (1, 3, 4, 5))
    for k, case in enumerate(found):
        expected = random_input("data", declared, seed=5 + k, low=0, high=255)
        assert np.array_equal(case.inputs["data"], expected)
        assert (case.seed, dict(case.random)) == (5 + k, {"data": "#rand(0,255)"})
    again = cases_of(run(tmp_path, "-d", "#rand(0,255)", "-d", "#rand(0,255)", "--seed", "5"))
    assert np.array_equal(again[1].inputs["data"], found[1].inputs["data"])


def test_shapes_of_random_values(tmp_path):
    case = only(run(tmp_path, "-d", "#rand(0,1,2,...)"))
    assert case.inputs["data"].shape == (2, 3, 4, 5)
    case = only(run(tmp_path, "-d", "data:#rand(0,1,1,3,2,2)"))
    assert case.inputs["data"].shape == (1, 3, 2, 2)


def test_repeat_is_along_the_batch(tmp_path, capsys):
    image = picture(tmp_path / "x.png")
    case = only(run(tmp_path, "-d", tmp_path / "x.png", "--repeat", "3"))
    assert case.inputs["data"].shape == (3, 3, 4, 5)
    assert np.array_equal(case.inputs["data"][2], image.transpose(2, 0, 1))
    log = capsys.readouterr().err
    assert "repeat input for 3 times, data shape is (3, 3, 4, 5)" in log


def test_transforms_are_evaluated_not_executed(tmp_path, capsys):
    image = picture(tmp_path / "x.png")
    text = "(data.astype(np.float32) - 128) / 64"
    case = only(run(tmp_path, "-d", tmp_path / "x.png", "--input-transform", text))
    assert np.array_equal(
        case.inputs["data"][0], (image.astype(np.float32) - 128).transpose(2, 0, 1) / 64
    )
    text = "__import__('os').system('echo run')"
    run(tmp_path, "-d", tmp_path / "x.png", "--input-transform", text, code=2)
    assert "--input-transform" in capsys.readouterr().err


def test_a_quantised_input_gets_codes_of_the_pixels(tmp_path):
    image = picture(tmp_path / "x.png")
    dtype = D.quantized("Quantized8Asymm", 1.0, 0)
    model = authored(tmp_path / "net.mge", dtype=dtype)
    case = only(run(tmp_path, "-d", tmp_path / "x.png", model=model))
    assert np.array_equal(case.inputs["data"][0], image.transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-d", "nothing.png"], "nothing.png"),
        (["-d", "dta:#rand(0,1)"], "did you mean `data`"),
        (["-d", "data:#rand(0,1);data:#rand(0,1)"], "given twice"),
        (["-d", "#rand(0)"], "#rand"),
        (["-d", "#rand(0,1)", "--resize-input"], "--resize-input is for files"),
        (["-d", "#rand(0,1)", "--input-transform", "data"], "--input-transform is for files"),
        (["-d", "#rand(0,1,7)"], r"the data have shape \(7,\)"),
        (["-d", "data:[[1,2]]"], "have shape"),
        (["-d", "@nothing.txt"], "no such file"),
        (["-d", ""], "no data for input 'data'"),
        (["-d", "#rand(0,1)", "--backend", "none"], "none"),
    ],
)
def test_inputs_that_cannot_be_used_are_refused(tmp_path, capsys, words, message):
    import re

    run(tmp_path, *words, code=2)
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert "Traceback" not in error
    assert not (tmp_path / "out.mge").exists()


def test_a_missing_input_is_named(tmp_path, capsys):
    model = authored(tmp_path / "net.mge", second=True)
    run(tmp_path, "-d", "data:#rand(0,1)", model=model, code=2)
    assert "no data for input 'info'" in capsys.readouterr().err


# -- what is written ------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["v1", "v2", "mgbs"])
def test_the_result_passes_in_loadrun_and_a_wrong_expectation_fails(tmp_path, capsys, format):
    model = run(tmp_path, "-d", "#rand(0,1)", "-d", "#rand(0,2)", "--format", format)
    path = str(tmp_path / "out.mge")
    assert loadrun.cli.main([path, "--iter", "1"]) == 0
    case = model.graphs[2]
    node = case.nodes[1]
    wrong = node.tensors[0].numpy().copy()
    wrong[0, 1, 2, 3] += 0.01
    case.set_tensors(node, (D_tensor(wrong),))
    save(model, path)
    assert loadrun.cli.main([path, "--iter", "1"]) == 1
    out = capsys.readouterr()
    assert "test case 1" in out.out + out.err
    assert "[0, 1, 2, 3]" in out.out + out.err


def D_tensor(array):
    from mgeserial.ir.tensor import Tensor

    return Tensor.of(array, D.FLOAT32, comp_node="cpux:0")


def test_the_tolerance_and_verbosity_are_stored(tmp_path):
    model = run(tmp_path, "-d", "#rand(0,1)", "--maxerr", "0.5", "--silent")
    (check,) = [n for n in model.graph.nodes if n.op.name == "AssertEqual"]
    assert (check.param.maxerr, check.param.verbose) == (0.5, False)
    model = run(tmp_path, "-d", "#rand(0,1)")
    (check,) = [n for n in model.graph.nodes if n.op.name == "AssertEqual"]
    assert check.param.verbose
    assert tolerances(model.graph) == pytest.approx({"y": 1e-4})


def test_without_asserts_only_inputs_are_stored(tmp_path):
    model = run(tmp_path, "-d", "#rand(0,1)", "--no-assert")
    assert model.graph.input_names == ("data",)
    assert only(model).arrays.keys() == {"data"}


def test_names_are_discarded(tmp_path):
    model = run(tmp_path, "-d", "#rand(0,1)", "--discard-var-name")
    assert {v.name for v in model.graph.values()} <= {None, "", "data", "y:expect"}
    assert tolerances(model.graph).keys() == {"y"}
    named = run(tmp_path, "-d", "#rand(0,1)")
    assert "y" in {v.name for v in named.graph.values()}


def test_strip_info_lists_what_is_used(tmp_path):
    run(tmp_path, "-d", "#rand(0,1)", "--output-strip-info", "--format", "v1")
    found = json.loads((tmp_path / "out.mge.json").read_text())
    assert found.keys() == {"dtypes", "elemwise_modes", "opr_types", "hash"}
    assert {"AssertEqual", "Elemwise", "Host2DeviceCopy", "Reduce", "SharedDeviceTensor"} <= set(
        found["opr_types"]
    )
    assert {"ABS", "MAX", "MIN", "SUB", "TRUE_DIV", "MUL"} <= set(found["elemwise_modes"])
    assert set(found["dtypes"]) == {"Byte", "Float32", "Int32"}
    assert found["hash"] == mgeserial.load(tmp_path / "out.mge").info.graphs[0].hash != 0


def test_the_container_is_that_of_the_model(tmp_path):
    for tag, container in (("v1", "MGBC"), ("v2", "mgv2")):
        path = compact_root() / "conv" / "conv1d" / f"model.{tag}.mge"
        model = run(tmp_path, "-d", "#rand(0,1)", model=str(path))
        assert {g.container for g in model.info.graphs} == {container}


def test_files_for_0_5_1_are_written(tmp_path, capsys):
    b = GraphBuilder()
    b.output(b.relu(b.input("data", (1, 4)), name="y"), "y")
    save(b.graph(), tmp_path / "net.mge", keep_opr_name=True)
    words = ["-d", "#rand(0,1)", "--format", "mgbs", "--release", "0.5.1"]
    model = run(tmp_path, *words, model=str(tmp_path / "net.mge"))
    assert "files of v0.5.1 have no metadata (with the seed)" in capsys.readouterr().err
    assert {g.container for g in model.info.graphs} == {"MGBS"}
    assert model.info.graphs[0].origin.writers == ("v0.5.1",)
    assert only(model).seed is None
    assert loadrun.cli.main([str(tmp_path / "out.mge"), "--iter", "1"]) == 0
    run(tmp_path, "-d", "#rand(0,1)", "--format", "v2", "--release", "0.5.1", code=2)
    assert "cannot read v2" in capsys.readouterr().err


def test_lines_are_those_of_the_script(tmp_path, capsys):
    run(tmp_path, "-d", "#rand(0,1)")
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0].startswith("generate test groundtruth: var=y shape=(1, 3, 4, 5) range=(")
    assert " mean=" in lines[0]
    assert " var=" in lines[0]
    assert lines[1:2] == ["add testcase: "]
    assert lines[2].startswith(" data: shape=(1, 3, 4, 5) dtype=float32 range=(0.0")
    assert lines[3].startswith(" y:expect: shape=(1, 3, 4, 5) dtype=float32 range=(0.0")
    assert lines[4].startswith("graph dump sizes: tot_size=")
    assert lines[4].endswith("KiB")


def test_an_output_that_another_run_gives_otherwise_is_told(tmp_path, capsys):
    b = GraphBuilder()
    x = b.input("data", (1, 8))
    b.output(b.add(x, b.uniform_rng(b.const([1, 8]))), "noise")
    b.output(b.mul(x, 2.0), "y")
    save(b.graph(), tmp_path / "net.mge")
    run(tmp_path, "-d", "#rand(0,1)", model=str(tmp_path / "net.mge"))
    err = capsys.readouterr().err
    assert "output noise differs between two runs (UniformRNG): its check fails" in err
    assert "output y differs" not in err


def test_an_empty_output_is_not_checked(tmp_path, capsys):
    b = GraphBuilder()
    x = b.input("data", (1, 8))
    b.output(b.mul(x, 2.0), "y")
    b.output(b.param(np.empty((0, 3), np.float32)), "none")
    save(b.graph(), tmp_path / "net.mge")
    model = run(tmp_path, "-d", "#rand(0,1)", model=str(tmp_path / "net.mge"))
    assert "output none is empty: it is not checked" in capsys.readouterr().err
    assert only(model).arrays.keys() == {"data", "y:expect"}
    assert len(model.graph.outputs) == 2
    assert loadrun.cli.main([str(tmp_path / "out.mge"), "--iter", "1"]) == 0


def test_a_failure_leaves_the_old_file(tmp_path):
    run(tmp_path, "-d", "#rand(0,1)")
    before = (tmp_path / "out.mge").read_bytes()
    run(tmp_path, "-d", "data:[[1]]", code=2)
    assert (tmp_path / "out.mge").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.mge", "out.mge"]


# -- the program ----------------------------------------------------------------------------------


def test_options_may_be_abbreviated(tmp_path):
    model = run(tmp_path, "--dat", "#rand(0,1)", "--max", "0.25", "--no-a")
    assert not tolerances(model.graph)
    model = run(tmp_path, "--data", "#rand(0,1)", "--max", "0.25", "--optimize")
    assert tolerances(model.graph) == {"y": 0.25}


@pytest.mark.parametrize(
    "option",
    [
        "io16xc32", "ioc16", "hwcd4", "nchw4", "nchw88", "nchw44", "nchw44-dot", "nchw32", "chwn4",
        "fuse-conv-bias-nonlinearity", "fuse-conv-bias-with-z",
    ],
)  # fmt: skip
def test_switches_of_the_optimiser_need_the_first_one(tmp_path, capsys, option):
    run(tmp_path, "-d", "#rand(0,1)", f"--enable-{option}", code=2)
    assert "needs --optimize-for-inference" in capsys.readouterr().err


def test_the_optimised_network_is_checked_against_the_given_one(tmp_path):
    b = GraphBuilder()
    rng = np.random.default_rng(0)
    x = b.input("data", (1, 3, 6, 6))
    weight = rng.normal(size=(4, 3, 3, 3)).astype(np.float32)
    y = b.relu(b.conv2d(x, weight, rng.normal(size=4).astype(np.float32)))
    b.output(y, "y")
    save(b.graph(), tmp_path / "net.mge")
    model = run(
        tmp_path,
        *("-d", "#rand(0,1)", "--optimize-for-inference"),
        "--enable-fuse-conv-bias-nonlinearity",
        model=str(tmp_path / "net.mge"),
    )
    assert "ConvBias" in {n.op.name.removesuffix("Forward") for n in model.graph.nodes}
    assert model.graph.metadata.optimize_options & 4
    with Session(b.graph(), "reference") as session:
        assert np.array_equal(session.run(only(model).inputs)["y"], only(model).expected["y"])
    assert loadrun.cli.main([str(tmp_path / "out.mge"), "--iter", "1"]) == 0


def test_files_that_are_no_single_network_are_refused(tmp_path, capsys):
    run(tmp_path, "-d", "#rand(0,1)", model=str(TESTED), code=2)
    assert "has 2 test cases already" in capsys.readouterr().err
    run(tmp_path, "-d", "#rand(0,1)", model=str(SEVERAL), code=2)
    assert "3 networks" in capsys.readouterr().err
    (tmp_path / "x.mge").write_bytes(b"\x80\x04N.")
    run(tmp_path, "-d", "#rand(0,1)", model=str(tmp_path / "x.mge"), code=2)
    assert "mgeserial weights" in capsys.readouterr().err


def test_usage_is_checked(tmp_path, capsys):
    for words in (["x.mge"], ["x.mge", "-o", "y"], ["x.mge", "-d", "a"], ["-o", "y", "-d", "a"]):
        assert main(words) == 2
        assert "error: " in capsys.readouterr().err
    for option, bad in (
        ("--maxerr", "x"),
        ("--maxerr", "nan"),
        ("--repeat", "0"),
        ("--seed", "-1"),
    ):
        assert main(["x.mge", "-o", "y", "-d", "a", option, bad]) == 2


def test_the_script_is_the_same_program(tmp_path):
    script = CHECKOUT / "scripts" / "dump_with_testcase.py"
    target = tmp_path / "out.mge"
    command = [sys.executable, script, CONV, "-o", target, "-d", "#rand(0,1)"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert mgeserial.load(target).info.testcases == 1


def test_mgeserial_imports_loadrun_in_commands_that_run_only():
    code = (
        "import sys, pkgutil, importlib, mgeserial\n"
        "for m in pkgutil.walk_packages(mgeserial.__path__, 'mgeserial.'):\n"
        "    if m.name != 'mgeserial.__main__': importlib.import_module(m.name)\n"
        "sys.exit(any(m.partition('.')[0] in ('loadrun', 'cv2') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, check=False).returncode == 0
