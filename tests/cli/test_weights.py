from __future__ import annotations

import json
import pickle
import shutil

import numpy as np
import pytest
from corpus_cases import compact_root

import mgeserial
from mgeserial.arrayfiles import read_npz
from mgeserial.author import GraphBuilder
from mgeserial.cli import main
from mgeserial.saving import save
from mgeserial.weights import weights_of

NET = compact_root() / "nets" / "transformer_static" / "model.v2.mge"
TESTED = compact_root() / "containers" / "testcases_0_5_1_assert" / "model.v1.mge"
SEVERAL = compact_root() / "containers" / "three_graphs" / "model.v2.mge"
CHECKPOINT = compact_root() / "pickles" / "state_dict_checkpoint" / "model.pkl"
TRACED = compact_root() / "pickles" / "tm_mlp" / "model.tm"


def mlp(tmp_path):
    """A network with the weights that the checkpoint of the corpus has, under other values."""
    b = GraphBuilder()
    x = b.input("x", (1, 5))
    hidden = b.param(np.zeros((6, 5), np.float32), "0.weight")
    bias = b.param(np.zeros(6, np.float32), "0.bias")
    y = b.add(b.matmul(x, hidden, transpose_b=True), bias)
    out = b.param(np.zeros((2, 6), np.float32), "2.weight")
    last = b.param(np.zeros(2, np.float32), "2.bias")
    b.output(b.add(b.matmul(b.relu(y), out, transpose_b=True), last), "y")
    save(b.graph(), tmp_path / "mlp.mge", keep_param_name=True)
    return str(tmp_path / "mlp.mge")


def values(path):
    graph = mgeserial.load(path).graph
    return {w.name: w.tensor.numpy() for w in weights_of(graph)}


# -- list ----------------------------------------------------------------------------------------


def test_list_of_a_model(capsys):
    assert main(["weights", "list", str(NET)]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = {w.name for w in weights_of(mgeserial.load(NET).graph)}
    assert f"{len(names)} arrays" in lines[0]
    assert {line.split()[0] for line in lines[1:]} == names


def test_list_as_json_and_chosen(capsys):
    assert main(["weights", "list", str(NET), "--only", "e.*", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "weights"
    assert found["weights"]
    for weight in found["weights"]:
        assert weight["name"].startswith("e.")
        assert weight.keys() == {"name", "dtype", "shape", "bytes", "min", "max", "mean", "sd"}
    assert main(["weights", "list", str(NET), "--no-constants", "--json"]) == 0
    names = [w["name"] for w in json.loads(capsys.readouterr().out)["weights"]]
    held = weights_of(mgeserial.load(NET).graph)
    assert names == [w.name for w in held if not w.is_constant]


def test_list_of_pickles_whatever_they_are_called(tmp_path, capsys):
    for source, name in ((CHECKPOINT, "x.mge"), (CHECKPOINT, "x.pkl"), (TRACED, "x.tm")):
        path = tmp_path / name
        shutil.copyfile(source, path)
        assert main(["weights", "list", str(path)]) == 0
        out = capsys.readouterr().out
        assert "protocol 4" in out
        assert "0.weight" in out
    assert "TracedModule" in out


def test_list_of_array_files(tmp_path, capsys):
    np.savez(tmp_path / "x.npz", w=np.ones((2, 3)))
    assert main(["weights", "list", str(tmp_path / "x.npz")]) == 0
    assert "float64  (2, 3)  1 to 1" in capsys.readouterr().out


def test_names_from_files_are_shown_safely(tmp_path, capsys):
    evil = "\x1b[31mred\nline"
    (tmp_path / "x.pkl").write_bytes(pickle.dumps({evil: np.ones(1, np.float32)}))
    assert main(["weights", "list", str(tmp_path / "x.pkl")]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\\x1b[31mred\\x0aline" in out


def test_a_pickle_that_runs_code_is_refused_with_one_line(tmp_path, capsys):
    class Bomb:
        def __reduce__(self):
            return print, ("run",)

    (tmp_path / "x.pkl").write_bytes(pickle.dumps(Bomb()))
    assert main(["weights", "list", str(tmp_path / "x.pkl")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "it asks for builtins.print" in err
    assert "Traceback" not in err


def test_files_that_hold_no_weights(tmp_path, capsys):
    (tmp_path / "x.mge").write_bytes(b"<html>")
    assert main(["weights", "list", str(tmp_path / "x.mge")]) == 2
    assert "an HTML page" in capsys.readouterr().err
    assert main(["weights", "list", str(tmp_path / "none.mge")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert main(["weights", "list", str(SEVERAL), "--graph", "3"]) == 2
    assert "graph 3 does not exist: the file has 3" in capsys.readouterr().err


# -- export --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_export_and_import_give_the_same_file(tmp_path, capsys, suffix):
    out, again = str(tmp_path / f"w.{suffix}"), str(tmp_path / "again.mge")
    assert main(["weights", "export", str(NET), "-o", out]) == 0
    assert capsys.readouterr().out == f"{out}: {len(values(NET))} arrays\n"
    assert main(["weights", "import", str(NET), out, "-o", again]) == 0
    assert (tmp_path / "again.mge").read_bytes() == NET.read_bytes()


def test_export_of_a_pickle(tmp_path):
    out = str(tmp_path / "w.npz")
    words = ["weights", "export", str(CHECKPOINT), "--only", "state_dict.*", "-o", out]
    assert main(words) == 0
    assert list(read_npz(out)) == [
        f"state_dict.{n}" for n in ("0.bias", "0.weight", "2.bias", "2.weight")
    ]


def test_export_replaces_nothing_unasked(tmp_path, capsys):
    out = tmp_path / "w.npz"
    out.write_bytes(b"mine")
    words = ["weights", "export", str(NET), "-o", str(out)]
    assert main(words) == 2
    assert "--force" in capsys.readouterr().err
    assert out.read_bytes() == b"mine"
    assert main([*words, "--force"]) == 0
    assert main(["weights", "export", str(NET), "-o", str(tmp_path / "x.txt")]) == 2
    assert main([*words, "--force", "--only", "nothing*"]) == 2
    assert "there is no weight to export" in capsys.readouterr().err


# -- import --------------------------------------------------------------------------------------


def test_import_from_a_pickle(tmp_path, capsys):
    out = str(tmp_path / "new.mge")
    words = ["weights", "import", mlp(tmp_path), str(CHECKPOINT), "-o", out]
    assert main(words) == 2
    assert "no weight is called" in capsys.readouterr().err
    assert main([*words, "--prefix", "state_dict."]) == 0
    with np.load(CHECKPOINT.parent / "state.npz") as expected:
        found = values(out)
        assert all(np.array_equal(found[n], expected[n]) for n in expected.files)


def test_import_with_other_names(tmp_path, capsys):
    np.savez(tmp_path / "w.npz", **{"fc.w": np.ones((6, 5), np.float32)})
    out = str(tmp_path / "new.mge")
    words = ["weights", "import", mlp(tmp_path), str(tmp_path / "w.npz"), "-o", out]
    assert main([*words, "--rename", "fc.w=0.weight"]) == 2
    assert "--partial leaves them" in capsys.readouterr().err
    assert main([*words, "--rename", "fc.w=0.weight", "--partial"]) == 0
    assert values(out)["0.weight"].sum() == 30
    for bad in ("fc.w", "=x", "fc.w="):
        assert main([*words, "--rename", bad, "--partial", "--force"]) == 2
    assert main([*words, "--prefix", "none.", "--force"]) == 2
    assert "begins with 'none.'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"0.weight": np.ones((5, 6), np.float32)}, "0.weight is (6, 5), got (5, 6)"),
        ({"0.weight": np.ones((6, 5))}, "0.weight is Float32, got float64"),
        ({"nothing": np.ones(1)}, "no weight is called 'nothing'"),
    ],
)
def test_what_does_not_fit_leaves_the_file_untouched(tmp_path, capsys, arrays, message):
    model = mlp(tmp_path)
    with open(model, "rb") as file:
        before = file.read()
    np.savez(tmp_path / "w.npz", **arrays)
    words = ["weights", "import", model, str(tmp_path / "w.npz"), "-o", model, "--force"]
    assert main([*words, "--partial"]) == 2
    assert message in capsys.readouterr().err
    with open(model, "rb") as file:
        assert file.read() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mlp.mge", "w.npz"]


def test_import_keeps_graphs_and_test_cases(tmp_path, capsys):
    for source in (TESTED, SEVERAL):
        out, npz = str(tmp_path / f"{source.parent.name}.mge"), str(tmp_path / "w.npz")
        assert main(["weights", "export", str(source), "-o", npz, "--force"]) == 0
        assert main(["weights", "import", str(source), npz, "-o", out]) == 0
        old, new = mgeserial.load(source), mgeserial.load(out)
        assert new.info.testcases == old.info.testcases
        assert len(new.graphs) == len(old.graphs)
        told = "`mgeserial testcase bless` renews them" in capsys.readouterr().err
        assert told == (old.info.testcases is not None)
