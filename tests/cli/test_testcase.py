from __future__ import annotations

import json

import numpy as np
import pytest
from corpus_cases import compact_root

import loadrun.cli
import mgeserial
from mgeserial import dtypes as D
from mgeserial.author import GraphBuilder
from mgeserial.cli import main
from mgeserial.saving import dumps, save
from mgeserial.testcases import Case, assert_outputs, cases_of, make_model, tolerances

CONTAINERS = compact_root() / "containers"
ASSERTED = CONTAINERS / "testcases_0_5_1_assert"
PLAIN_CASES = CONTAINERS / "testcases_1_13_plain" / "model.v2.mge"


def network():
    b = GraphBuilder()
    b.output(b.mul(b.input("data", (1, 4)), 2.0), "y")
    return b.graph()


def net(tmp_path):
    save(network(), tmp_path / "net.mge")
    return str(tmp_path / "net.mge")


def with_cases(tmp_path, *specs):
    words = [w for s in specs or ("#rand(0,1)",) for w in ("-d", s)]
    target = str(tmp_path / "tested.mge")
    assert main(["testcase", "add", net(tmp_path), *words, "-o", target]) == 0
    return target


def runs(path):
    return loadrun.cli.main([str(path), "--iter", "1"])


# -- list -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", ["v1", "v2"])
def test_list_of_a_file_of_megengine(capsys, tag):
    assert main(["testcase", "list", str(ASSERTED / f"model.{tag}.mge")]) == 0
    out = capsys.readouterr().out
    assert "2 test cases" in out
    assert "largest error allowed: out 0.0001" in out
    assert out.count("test case ") == 2
    assert out.count("data        Float32  (1, 3, 6, 5)") == 2
    assert out.count("out:expect  Float32  (1, 2)") == 2


def test_list_as_json(tmp_path, capsys):
    path = with_cases(tmp_path, "#rand(0,1)", "data:[[1,2,3,4]]")
    capsys.readouterr()
    assert main(["testcase", "list", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["schema"]) == ("testcases", 1)
    assert found["maxerr"] == pytest.approx({"y": 1e-4})
    first, second = found["cases"]
    assert (first["seed"], second["seed"]) == (0, None)
    assert first["values"][0]["random"] == "#rand(0,1)"
    assert second["values"][1] == {
        "name": "y:expect",
        "dtype": "Float32",
        "shape": [1, 4],
        "random": None,
        "min": 2.0,
        "max": 8.0,
        "mean": 5.0,
        "sd": pytest.approx(5**0.5),
    }


def test_list_of_values_that_are_no_numbers(tmp_path, capsys):
    values = np.array([[np.nan, np.inf, 0, 1]], np.float32)
    model = make_model(network(), [Case({"data": values})])
    (tmp_path / "x.mge").write_bytes(dumps(model))
    assert main(["testcase", "list", str(tmp_path / "x.mge"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["cases"][0]["values"][0]
    assert [found[k] for k in ("min", "max", "mean", "sd")] == [None] * 4
    assert main(["testcase", "list", str(tmp_path / "x.mge")]) == 0
    out = capsys.readouterr().out
    assert "no expected outputs" in out
    assert "n/a to n/a" in out


def test_a_file_without_test_cases_says_what_to_do(tmp_path, capsys):
    for words in (["list"], ["strip", "-o", "x"], ["bless", "-o", "x"], ["extract", "-o", "x"]):
        action, *rest = words
        assert main(["testcase", action, net(tmp_path), *rest]) == 2
        err = capsys.readouterr().err
        assert "the file has no test cases" in err
        assert "testcase add" in err


# -- extract --------------------------------------------------------------------------------------


def test_extract_to_npz(tmp_path, capsys):
    target = tmp_path / "x.npz"
    source = str(ASSERTED / "model.v1.mge")
    assert main(["testcase", "extract", source, "--case", "1", "-o", str(target)]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    expected = mgeserial.load(source).testcases[1]
    with np.load(target, allow_pickle=False) as found:
        assert set(found.files) == {"data", "out:expect"}
        assert all(np.array_equal(found[n], expected[n]) for n in found.files)


def test_extract_to_a_folder(tmp_path, capsys):
    source = str(ASSERTED / "model.v1.mge")
    assert main(["testcase", "extract", source, "-o", str(tmp_path / "a" / "b")]) == 0
    assert sorted(p.name for p in (tmp_path / "a" / "b").iterdir()) == ["case0.npz", "case1.npz"]
    assert main(["testcase", "extract", source, "--npy", "-o", str(tmp_path / "c")]) == 0
    found = sorted(str(p.relative_to(tmp_path / "c")) for p in (tmp_path / "c").rglob("*.npy"))
    assert found == [f"case{k}/{name}.npy" for k in (0, 1) for name in ("data", "out%3Aexpect")]
    array = np.load(tmp_path / "c" / "case0" / "data.npy")
    assert np.array_equal(array, mgeserial.load(source).testcases[0]["data"])


def test_names_of_inputs_do_not_lead_out_of_the_folder(tmp_path):
    names = [
        "../../stolen",
        "/tmp/stolen",
        "..",
        ".",
        "a\\b",
        "c:d",
        "\x00",
        "ä" * 100,
        "x" * 500,
        "x" * 501,
    ]
    b = GraphBuilder()
    values = [b.input(n, (1,)) for n in names]
    for k, value in enumerate(values):
        b.output(value, f"y{k}")
    case = Case({n: np.full(1, k, np.float32) for k, n in enumerate(names)})
    (tmp_path / "x.mge").write_bytes(dumps(make_model(b.graph(), [case])))
    target = tmp_path / "deep" / "out"
    source = str(tmp_path / "x.mge")
    assert main(["testcase", "extract", source, "--npy", "-o", str(target)]) == 0
    assert len(list((target / "case0").iterdir())) == len(names)
    assert {p.name for p in tmp_path.iterdir()} == {"x.mge", "deep"}
    assert {p.name for p in (tmp_path / "deep").iterdir()} == {"out"}
    assert len(list(target.rglob("*.npy"))) == len(names)


def test_types_of_extracted_values_are_noted(tmp_path):
    b = GraphBuilder()
    dtype = D.quantized("QuantizedS8", 0.5)
    b.output(b.cast(b.input("x", (3,), dtype), "Float32"), "y")
    case = Case({"x": np.array([-1, 0, 1], np.int8)})
    (tmp_path / "x.mge").write_bytes(dumps(make_model(b.graph(), [case])))
    target = str(tmp_path / "x.npz")
    assert main(["testcase", "extract", str(tmp_path / "x.mge"), "-o", target]) == 0
    from mgeserial.arrayfiles import read_npz, read_npz_notes

    assert read_npz_notes(target) == {"x": "QuantizedS8(scale=0.5)"}
    assert read_npz(target)["x"].dtype == np.int8


def test_extract_refuses_what_it_cannot_do(tmp_path, capsys):
    source = str(ASSERTED / "model.v1.mge")
    for words, message in (
        (["-o", "x.npz"], "holds one test case, the file has 2"),
        (["-o", "x.npz", "--case", "0", "--npy"], "holds one test case"),
        (["-o", "x.npz", "--case", "2"], "there is no test case 2: the file has 2"),
        (["-o", source], "cannot be made"),
    ):
        assert main(["testcase", "extract", source, *words]) == 2
        assert message in capsys.readouterr().err
    (tmp_path / "x.npz").write_bytes(b"mine")
    words = ["testcase", "extract", source, "--case", "0", "-o", str(tmp_path / "x.npz")]
    assert main(words) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert (tmp_path / "x.npz").read_bytes() == b"mine"
    assert main([*words, "--force"]) == 0


# -- add, replace ---------------------------------------------------------------------------------


def test_extracted_cases_can_be_added_again(tmp_path):
    source = with_cases(tmp_path, "#rand(0,1)", "#rand(2,3)")
    npz = str(tmp_path / "case.npz")
    assert main(["testcase", "extract", source, "--case", "1", "-o", npz]) == 0
    target = str(tmp_path / "more.mge")
    assert main(["testcase", "add", source, "-d", npz, "-o", target]) == 0
    first, second, third = cases_of(mgeserial.load(target))
    assert all(np.array_equal(third.arrays[n], second.arrays[n]) for n in second.arrays)
    assert not np.array_equal(first.arrays["data"], third.arrays["data"])
    assert runs(target) == 0


def test_add_to_a_plain_network_checks_it(tmp_path):
    path = str(tmp_path / "x.mge")
    words = ["testcase", "add", net(tmp_path), "-d", "#rand(0,1)", "-o", path]
    assert main([*words, "--maxerr", "0.5"]) == 0
    assert tolerances(mgeserial.load(path).graph) == {"y": 0.5}
    assert main([*words, "--no-assert", "--force"]) == 0
    assert tolerances(mgeserial.load(path).graph) == {}
    assert runs(path) == 0


def test_given_expected_values_are_taken_and_checked(tmp_path, capsys):
    path = str(tmp_path / "x.mge")
    spec = "data:[[1,2,3,4]];y:expect:[[2,4,6,9]]"
    assert main(["testcase", "add", net(tmp_path), "-d", spec, "-o", path]) == 0
    assert mgeserial.load(path).testcases[0]["y:expect"].tolist() == [[2, 4, 6, 9]]
    assert runs(path) == 1
    assert "expected 9, got 8" in capsys.readouterr().err


def test_add_to_files_of_megengine(tmp_path):
    for tag in ("v1", "v2"):
        path = str(tmp_path / f"{tag}.mge")
        source = str(ASSERTED / f"model.{tag}.mge")
        assert main(["testcase", "add", source, "-d", "#rand(-1,1)", "-o", path]) == 0
        model = mgeserial.load(path)
        assert model.info.testcases == 3
        assert len({g.container for g in model.info.graphs}) == 1
        assert runs(path) == 0
    path = str(tmp_path / "plain.mge")
    assert main(["testcase", "add", str(PLAIN_CASES), "-d", "#rand(-1,1)", "-o", path]) == 0
    assert mgeserial.load(path).testcases[-1].keys() == {"data"}
    assert runs(path) == 0


def test_added_random_cases_differ_from_those_before(tmp_path):
    source = with_cases(tmp_path, "#rand(0,1)")
    path = str(tmp_path / "x.mge")
    assert main(["testcase", "add", source, "-d", "#rand(0,1)", "-o", path]) == 0
    first, second = cases_of(mgeserial.load(path))
    assert (first.seed, second.seed) == (0, 1)
    assert not np.array_equal(first.arrays["data"], second.arrays["data"])


def test_add_refuses_options_that_would_do_nothing(tmp_path, capsys):
    source = with_cases(tmp_path)
    for words in (["--maxerr", "1"], ["--no-assert"]):
        target = str(tmp_path / "x.mge")
        assert main(["testcase", "add", source, "-d", "#rand(0,1)", "-o", target, *words]) == 2
        assert words[0] in capsys.readouterr().err


def test_replace_changes_one_case(tmp_path, capsys):
    source = with_cases(tmp_path, "#rand(0,1)", "#rand(0,1)", "#rand(0,1)")
    path = str(tmp_path / "x.mge")
    words = ["testcase", "replace", source, "-o", path]
    assert main([*words, "--case", "1", "-d", "data:[[1,2,3,4]]"]) == 0
    old, new = cases_of(mgeserial.load(source)), cases_of(mgeserial.load(path))
    assert new[1].arrays["y:expect"].tolist() == [[2, 4, 6, 8]]
    assert new[1].seed is None
    for k in (0, 2):
        assert np.array_equal(old[k].arrays["data"], new[k].arrays["data"])
        assert old[k].seed == new[k].seed
    assert runs(path) == 0
    assert main([*words, "--force", "--case", "3", "-d", "#rand(0,1)"]) == 2
    assert "no test case 3" in capsys.readouterr().err
    assert main([*words, "--force", "--case", "1", "-d", "#rand(0,1)", "-d", "#rand(0,1)"]) == 2
    assert "one test case is replaced, 2 are given" in capsys.readouterr().err


# -- bless, strip ---------------------------------------------------------------------------------


def stale(tmp_path):
    """A file whose expected values are wrong."""
    checked = assert_outputs(network(), {"y": (1, 4)}, maxerr=0.25, verbose=False)
    data = np.ones((1, 4), np.float32)
    cases = [Case({"data": data * k, "y:expect": data * 100}) for k in (1, 2)]
    (tmp_path / "stale.mge").write_bytes(dumps(make_model(checked, cases), format="v1"))
    return str(tmp_path / "stale.mge")


def test_bless_computes_expected_values_anew(tmp_path):
    source, path = stale(tmp_path), str(tmp_path / "x.mge")
    assert runs(source) == 1
    assert main(["testcase", "bless", source, "-o", path]) == 0
    model = mgeserial.load(path)
    assert tolerances(model.graph) == {"y": 0.25}
    assert [c["y:expect"].flat[0] for c in model.testcases] == [2, 4]
    (check,) = [n for n in model.graph.nodes if n.op.name == "AssertEqual"]
    assert not check.param.verbose
    assert model.info.graphs[0].container == "MGBC"
    assert runs(path) == 0


def test_bless_sets_a_new_tolerance(tmp_path):
    path = str(tmp_path / "x.mge")
    assert main(["testcase", "bless", stale(tmp_path), "-o", path, "--maxerr", "0.5"]) == 0
    assert tolerances(mgeserial.load(path).graph) == {"y": 0.5}


def test_bless_of_unchecked_cases_checks_them(tmp_path):
    path = str(tmp_path / "x.mge")
    assert main(["testcase", "bless", str(PLAIN_CASES), "-o", path]) == 0
    model = mgeserial.load(path)
    assert tolerances(model.graph) == pytest.approx({"out": 1e-4})
    assert runs(path) == 0


def test_bless_may_replace_its_own_file(tmp_path):
    source = stale(tmp_path)
    assert main(["testcase", "bless", source, "-o", source]) == 2
    assert main(["testcase", "bless", source, "-o", source, "--force"]) == 0
    assert runs(source) == 0


def test_strip_gives_the_plain_network_again(tmp_path):
    path = str(tmp_path / "x.mge")
    assert main(["testcase", "strip", with_cases(tmp_path), "-o", path]) == 0
    assert (tmp_path / "x.mge").read_bytes() == (tmp_path / "net.mge").read_bytes()


def test_strip_of_files_of_megengine(tmp_path):
    for name in ("testcases_0_5_1_assert", "testcases_1_13_assert", "testcases_1_13_plain"):
        for tag in ("v1", "v2"):
            path = str(tmp_path / f"{name}.{tag}.mge")
            source = str(CONTAINERS / name / f"model.{tag}.mge")
            assert main(["testcase", "strip", source, "-o", path]) == 0
            model = mgeserial.load(path)
            assert model.info.testcases is None
            assert len(model.graphs) == 1
            assert model.graph.input_names == ("data",)
            assert runs(path) == 0


def test_usage(capsys):
    for words in (["testcase"], ["testcase", "lst"], ["testcase", "add", "x"]):
        assert main(words) == 2
        assert "error: " in capsys.readouterr().err
    assert main(["testcase", "--help"]) == 0
    assert "bless MODEL" in capsys.readouterr().out
