from __future__ import annotations

import json
import os
import subprocess
import sys

import mge_builder as build
import pytest
from corpus_cases import compact_root, iter_cases

import mgeserial
from mgeserial import params as P
from mgeserial.cli import main
from mgeserial.inspect import describe_operator, optimizations, summarize
from mgeserial.render import columns, size_text, summary_text

ADD = ("Elemwise", {"mode": int(P.ElemwiseMode.ADD)})
CASES = list(iter_cases(compact_root()))


def case_path(name, tag="v1"):
    case = next(c for c in CASES if c.name == name)
    return next(m.path for m in case.models() if m.tag == tag)


def run(capsys, *words):
    code = main(list(map(str, words)))
    out, err = capsys.readouterr()
    return code, out, err


def run_json(capsys, *words):
    code, out, _ = run(capsys, *words, "--json")
    return code, json.loads(out)


def test_a_network_is_summarised(capsys):
    path = case_path("mobilenet_v1_optimized")
    code, found = run_json(capsys, "info", path)
    assert code == 0
    assert (found["schema"], found["kind"]) == (1, "info")
    assert found["size_bytes"] == path.stat().st_size
    graph = found["graphs"][0]
    assert graph["container"] == "MGBC"
    assert graph["written_by"] == ["v1.13.0"]
    assert graph["read_by"] == "v1.7.0.m1 and later"
    assert graph["inputs"] == [
        {
            "name": "data",
            "dtype": "Float32",
            "scale": None,
            "zero_point": None,
            "shape": [2, 3, 24, 24],
            "operator": 1,
        }
    ]
    assert [v["shape"] for v in graph["outputs"]] == [[2, 10]]
    types = {t["type"]: t for t in graph["operator_types"]}
    assert types["ConvBiasForward"]["count"] == 9
    assert types["ConvBiasForward"]["variant_of"] == "nonlineMode"
    assert types["ConvBiasForward"]["variants"] == {"RELU": 9}
    assert sum(t["count"] for t in types.values()) == graph["operators"]
    assert graph["parameters"]["elements"] * 4 == graph["parameters"]["values_bytes"]
    assert "fuse_conv_bias_nonlinearity" in graph["metadata"]["optimizations"]


@pytest.mark.parametrize("tag", ["v1", "v2"])
def test_the_parts_of_a_file_add_up(tag):
    for case in CASES:
        for model in case.models():
            if model.tag != tag:
                continue
            found = summarize(mgeserial.load(model.path))
            total = found["wrapper_bytes"]
            for graph in found["graphs"]:
                parts = ("header_bytes", "tensor_values_bytes", "structure_bytes")
                assert sum(graph[p] for p in parts) == graph["size_bytes"]
                assert graph["structure_bytes"] > 0
                total += graph["size_bytes"]
            assert total == found["size_bytes"] == model.path.stat().st_size


def test_no_tensor_value_is_read(monkeypatch):
    def touched(self):
        raise AssertionError("a tensor's value was read")

    model = mgeserial.load(case_path("mobilenet_v1_optimized", "v2"))
    monkeypatch.setattr(mgeserial.Tensor, "numpy", touched)
    summary_text(summarize(model))


@pytest.mark.parametrize("case", CASES, ids=[c.id for c in CASES])
def test_info_works_on_every_corpus_file(case, capsys):
    for model in case.models():
        code, out, err = run(capsys, "info", model.path)
        assert (code, err) == (0, "")
        assert all(line.isprintable() for line in out.splitlines())
        assert run_json(capsys, "info", model.path)[0] == 0


def test_operators_are_described_one_by_one(capsys):
    path = case_path("mobilenet_v1_optimized")
    graph = mgeserial.load(path).graph
    index = next(n.index for n in graph.nodes if n.op.name == "ConvBiasForward")
    code, found = run_json(capsys, "info", path, "--op", index)
    assert code == 0
    assert found["type"] == "ConvBiasForward"
    assert [p["table"] for p in found["params"]] == ["ConvBias", "ExecutionPolicy"]
    assert found["params"][0]["fields"]["nonlineMode"] == "RELU"
    assert "nonlineMode" in found["params"][0]["changed"]
    assert "mode" not in found["params"][0]["changed"]
    assert found["inputs"][0]["role"] == graph.nodes[index].op.input_names[0]
    _, out, _ = run(capsys, "info", path, "--op", index)
    assert "ConvBiasForward" in out
    assert "nonlineMode" in out


def test_every_operator_of_the_corpus_can_be_described():
    for case in CASES:
        for model in case.models():
            for graph in mgeserial.load(model.path).graphs:
                for node in graph.nodes:
                    json.dumps(describe_operator(graph, node.index), allow_nan=False)


@pytest.mark.parametrize("index", [-1, 37, 10**9])
def test_an_operator_that_does_not_exist_is_an_error(capsys, index):
    code, out, err = run(capsys, "info", case_path("mobilenet_v1_optimized"), f"--op={index}")
    assert (code, out) == (2, "")
    assert f"operator {index} does not exist: the graph has 37" in err
    code, _, err = run(capsys, "info", case_path("mobilenet_v1_optimized"), "--op=0", "--graph=4")
    assert code == 2
    assert "graph 4 does not exist" in err


def test_test_cases_are_told(capsys):
    code, found = run_json(capsys, "info", case_path("testcases_1_13_assert"))
    assert code == 0
    assert found["testcases"] == len(found["graphs"]) - 1 > 0
    assert found["wrapper_bytes"] == 12
    assert found["graphs"][1]["role"] == "test case 0"
    assert "test case" in run(capsys, "info", case_path("testcases_1_13_assert"))[1]


def test_a_lite_package_is_told(tmp_path, capsys):
    path = tmp_path / "net.lite"
    path.write_bytes(build.lite(build.v1([build.input_op("x", (1,))], [0])))
    code, found = run_json(capsys, "info", path)
    assert code == 0
    assert found["lite_package"]["name"] == "net"
    assert "MegEngine Lite package" in run(capsys, "info", path)[1]


def test_names_are_escaped(tmp_path, capsys):
    evil = "a\x1b]0;owned\x07\nname: b\u202e"
    path = tmp_path / "net.mge"
    ops = [build.input_op(evil, (1,)), {"type_id": 5, "inputs": [0], "output_name": [evil]}]
    ops[1]["name"] = evil
    path.write_bytes(build.v1(ops, [1]))
    for words in ([], ["--op", "0"], ["--op", "1"], ["--json"]):
        code, out, _ = run(capsys, "info", path, *words)
        assert code == 0
        assert all(line.isprintable() for line in out.splitlines())
        assert "owned" in out
    # JSON keeps the name itself.
    assert json.loads(out)["graphs"][0]["inputs"][0]["name"] == evil


def test_a_graph_whose_shapes_do_not_fit_is_shown_with_the_problem(tmp_path, capsys):
    ops = [build.input_op("a", (2, 3)), build.input_op("b", (4, 5))]
    ops.append({"op": "Elemwise", "inputs": [0, 1], "params": [ADD]})
    path = tmp_path / "net.mge"
    path.write_bytes(build.v1(ops, [2]))
    code, found = run_json(capsys, "info", path)
    graph = found["graphs"][0]
    assert code == 2
    assert len(graph["problems"]) == 1
    assert [v["shape"] for v in graph["inputs"]] == [[2, 3], [4, 5]]
    assert [v["shape"] for v in graph["outputs"]] == [None]
    assert "problem: " in run(capsys, "info", path)[1]


def test_damaged_parameters_are_a_problem(tmp_path, capsys):
    ops = [build.input_op("x", (1,)), {"op": "Concat", "inputs": [0], "params": [("Empty", {})]}]
    path = tmp_path / "net.mge"
    path.write_bytes(build.v1(ops, [1]))
    code, found = run_json(capsys, "info", path)
    assert code == 2
    assert any("needs parameters Axis" in p for p in found["graphs"][0]["problems"])


def test_numbers_that_json_lacks_become_text(tmp_path, capsys):
    op = build.constant_op(bytes(3), (3,))
    op["tensors"][0]["dtype"] = build.dtype(13, float("nan"))
    path = tmp_path / "net.mge"
    path.write_bytes(build.v1([op], [0]))
    code, found = run_json(capsys, "info", path)
    assert code == 0
    assert found["graphs"][0]["outputs"][0]["scale"] == "nan"
    assert run(capsys, "info", path)[0] == 0


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0, []),
        (64, ["fuse_grain"]),
        (4 << 32 | 64 | 4, ["fuse_conv_bias_nonlinearity", "fuse_grain", "layout NCHW44"]),
        (1 << 9, ["bit9"]),
        (99 << 32, ["layout number 99"]),
    ],
)
def test_optimize_options_are_decoded(bits, names):
    assert optimizations(bits) == names


def test_many_outputs_are_cut_off_in_text(tmp_path, capsys):
    path = tmp_path / "net.mge"
    path.write_bytes(build.v1([build.input_op("x", (1,))], [0] * 1000))
    _, out, _ = run(capsys, "info", path)
    assert "960 more outputs" in out
    assert len(out.splitlines()) < 100


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (102_440_616, "102.4 MB"), (10**12, "1.0 TB")],
)
def test_sizes_are_written_in_thousands(nbytes, text):
    assert size_text(nbytes) == text


def test_columns_put_numbers_to_the_right():
    assert columns([("a", "1"), ("long", "1,234")]) == ["  a         1", "  long  1,234"]


# --- the program ---------------------------------------------------------------------------------


def test_a_file_that_is_no_model_is_one_line_and_exit_2(tmp_path, capsys):
    path = tmp_path / "page.mge"
    path.write_bytes(b"<html>")
    code, out, err = run(capsys, "info", path)
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert first.startswith(f"error: {path}: not a MegEngine model: an HTML page")
    assert second.startswith("hint: ")


def test_an_encrypted_package_is_exit_3(tmp_path, capsys):
    path = tmp_path / "net.lite"
    path.write_bytes(build.lite(b"\x17" * 64, method="AES_default"))
    assert run(capsys, "info", path)[0] == 3


def test_the_traceback_is_shown_on_request(tmp_path, capsys):
    path = tmp_path / "page.mge"
    path.write_bytes(b"<html>")
    assert "Traceback" not in run(capsys, "info", path)[2]
    assert "Traceback" in run(capsys, "info", path, "--traceback")[2]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "a command is needed"),
        (["inf"], "did you mean info?"),
        (["zzz"], "known: info, check"),
        (["info"], "MODEL"),
        (["info", "x", "--op", "y"], "--op"),
        (["info", "x", "--jso"], "--jso"),
    ],
)
def test_mistakes_in_usage_are_exit_2(capsys, words, text):
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert text in err
    assert "hint: " in err


def test_help_lists_the_commands(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "info" in out
    assert "check" in out
    assert run(capsys, "info", "--help")[0] == 0
    code, out, _ = run(capsys, "--version")
    assert code == 0
    assert out.startswith(f"mgeserial {mgeserial.__version__}\n")


def test_a_bug_shows_its_traceback_and_exit_70(monkeypatch, capsys):
    import mgeserial.cli.info as command

    def broken(args):
        raise RuntimeError("oops")

    monkeypatch.setattr(command, "execute", broken)
    code, _, err = run(capsys, "info", "x")
    assert code == 70
    assert "Traceback" in err
    assert "a bug in mgeserial" in err


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, 130), (MemoryError, 2)])
def test_interrupts_and_lack_of_memory_have_their_codes(monkeypatch, capsys, error, code):
    import mgeserial.cli.info as command

    def stopped(args):
        raise error

    monkeypatch.setattr(command, "execute", stopped)
    found, _, err = run(capsys, "info", "x")
    assert found == code
    assert "Traceback" not in err


@pytest.mark.skipif(os.name != "posix", reason="pipes close otherwise on this system")
def test_a_closed_pipe_is_no_error():
    words = [sys.executable, "-m", "mgeserial", "info", "--json"]
    process = subprocess.Popen(
        [*words, str(case_path("mobilenet_v1_optimized"))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_types_behind_an_unknown_operator_are_not_made_up(tmp_path, capsys):
    ops = [build.input_op("x", (2,)), {"type_id": 77, "inputs": [0]}]
    ops.append({"op": "Elemwise", "inputs": [1, 1], "params": [ADD]})
    path = tmp_path / "net.mge"
    path.write_bytes(build.v1(ops, [1, 2, 0]))
    code, found = run_json(capsys, "info", path)
    graph = found["graphs"][0]
    assert code == 0
    assert [v["dtype"] for v in graph["outputs"]] == [None, None, "Float32"]
    assert not graph["shapes_known"]
    ops[1]["output_dtype"] = build.dtype(4)
    path.write_bytes(build.v1(ops, [1, 2, 0]))
    _, found = run_json(capsys, "info", path)
    assert [v["dtype"] for v in found["graphs"][0]["outputs"]] == ["Int32", "Int32", "Float32"]


def test_a_file_of_a_newer_release_is_read_and_said_to_be_one(tmp_path, capsys):
    path = tmp_path / "net.mge"
    path.write_bytes(build.v2([build.input_op("x", (2,))], [0], version=101400))
    code, found = run_json(capsys, "info", path)
    assert code == 0
    assert found["graphs"][0]["written_by"] == []
    assert "newer than v1.13.4" in found["graphs"][0]["version_note"]
    assert "newer than v1.13.4" in run(capsys, "info", path)[1]
