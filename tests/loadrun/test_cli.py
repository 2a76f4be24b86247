from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from corpus_cases import compact_root
from fake_session import FakeSession

import loadrun.cli.entry
from loadrun.asserts import check
from loadrun.cli import main
from loadrun.cli.progress import ProgressLine
from loadrun.cli.style import is_coloured, styled
from mgeserial.format.tensor_dump import read_tensor_dump

CONTAINERS = compact_root() / "containers"
ASSERTED = str(CONTAINERS / "testcases_0_5_1_assert" / "model.v1.mge")
PLAIN = str(CONTAINERS / "testcases_1_13_plain" / "model.v2.mge")
CONV = str(compact_root() / "conv" / "conv1d" / "model.v1.mge")
NO_SHAPE = str(CONTAINERS / "input_without_shape" / "model.v1.mge")
CONSTANTS = str(CONTAINERS / "constants_only" / "model.v1.mge")
WRONG = check("y", np.array([[0.0, 1.0]]), np.array([[0.0, 3.0]]), 1e-4)
TIME = r"\d+\.\d{3}ms"


def call(*words):
    """A process of its own, with this checkout importable."""
    command = [sys.executable, "-m", "loadrun", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def fake(monkeypatch, **facts):
    class Session(FakeSession):
        def __init__(self, model, backend, threads, **_):
            super().__init__(**facts)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr("loadrun.session.Session", Session)


# -- what a run prints ---------------------------------------------------------------------------


def test_test_cases_are_run_checked_and_summed_up(capsys):
    assert main([ASSERTED, "--iter", "2"]) == 0
    out, err = capsys.readouterr()
    lines = out.split("\n")
    assert lines[0].startswith("mgb load-and-run: using mgeserial ")
    assert re.fullmatch(f"load model: {TIME}", lines[1])
    assert lines[2].startswith("=== going to run 2 testcases; output vars: ")
    assert re.fullmatch(f"=== prepare: {TIME}; going to warmup", lines[3])
    assert sum(bool(re.fullmatch(f"iter [01]/2: {TIME} .*", line)) for line in lines) == 4
    assert any(re.fullmatch(f"=== total time: {TIME}", line) for line in lines)
    assert f"summary of {ASSERTED}" in lines
    assert err == ""


def test_run_is_the_command_when_none_is_named(capsys):
    def lines(*words: str) -> list[str]:
        assert main([*words, CONSTANTS, "--iter", "1"]) == 0
        measured, verdict, _ = capsys.readouterr().out.partition("    trust: ")
        assert verdict
        return measured.split("\n")

    assert len(lines("run")) == len(lines())  # what the verdict says depends on the times


def test_a_first_word_that_names_a_command_wins(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").write_bytes(b"")
    assert main(["run"]) == 2
    assert "a model is needed" in capsys.readouterr().err
    assert main(["./run"]) == 2
    assert "empty" in capsys.readouterr().err


def test_quiet_prints_the_summary_only(capsys):
    assert main([CONV, "-q"]) == 0
    assert capsys.readouterr().out.startswith("summary of ")


def test_verbose_prints_inputs_and_outputs(capsys):
    assert main([CONV, "-v"]) == 0
    out = capsys.readouterr().out
    assert "random, seed 0" in out
    assert re.search(r"output .* min .* max .* mean .* rms ", out)


def test_underscores_in_options_are_dashes(capsys):
    assert main([CONSTANTS, "--iter=1", "--warmup_iter=3"]) == 0
    assert "warmup 2: " in capsys.readouterr().out


@pytest.mark.parametrize("model", [CONSTANTS, CONV, ASSERTED, PLAIN])
@pytest.mark.parametrize("iters", [0, 1])
def test_few_iterations_print_no_nan(capsys, model, iters):
    assert main([model, "--iter", str(iters), "--warmup-iter", "0"]) == 0
    out = capsys.readouterr().out
    assert "nan" not in out
    assert "n/a" in out


# -- JSON ----------------------------------------------------------------------------------------


def test_json_on_stdout_is_one_document(capsys):
    assert main([PLAIN, "--json", "-", "--iter", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == 1
    assert [len(c["samples_ns"]) for c in found["cases"]] == [3, 3]
    assert found["model"]["sha256"]
    assert found["cases"][0]["source"] == "testcase"
    assert found["environment"]["numpy"] == np.__version__
    assert found["command"][:3] == ["loadrun", "run", PLAIN]


def test_json_file_is_replaced_as_a_whole(tmp_path, capsys):
    path = tmp_path / "t.json"
    path.write_text("old")
    assert main([CONSTANTS, "--json", str(path)]) == 0
    assert json.loads(path.read_text())["iter"] == 10
    assert "summary of" in capsys.readouterr().out
    assert os.listdir(tmp_path) == ["t.json"]


def test_json_that_cannot_be_written_is_an_error_after_the_summary(tmp_path, capsys):
    assert main([CONSTANTS, "--json", str(tmp_path / "none" / "t.json")]) == 2
    out, err = capsys.readouterr()
    assert "summary of" in out
    assert "cannot be written" in err


def test_seed_decides_the_inputs(capsys):
    def outputs(seed):
        assert main([CONV, "--json", "-", "--iter", "0", "--seed", seed]) == 0
        return json.loads(capsys.readouterr().out)["cases"][0]["outputs"]

    assert outputs("1") == outputs("1")
    assert outputs("1") != outputs("2")


# -- expected outputs ----------------------------------------------------------------------------


def test_wrong_output_says_what_differs_and_exits_with_1(capsys):
    data = "data:#rand(0,1,...)"
    code = main([ASSERTED, "--input", f"{data};out:expect:[[9,9]]", "--iter", "2"])
    out, err = capsys.readouterr()
    assert code == 1
    assert re.search(r"given inputs: output `out` at \[0, [01]\]: expected 9, got \S+, err", err)
    assert "outputs differ from the expected ones in 1 of 1 cases" in out
    assert "iter 0/2" not in out


def test_disable_assert_throw_reports_times_and_exits_with_0(capsys):
    words = [ASSERTED, "--input", "data:#rand(0,1,...);out:expect:[[9,9]]", "--iter", "2"]
    assert main([*words, "--disable-assert-throw"]) == 0
    out, err = capsys.readouterr()
    assert "output `out` at" in err
    assert "iter 1/2" in out


def test_wrong_case_among_many_exits_with_1(capsys, monkeypatch):
    fake(monkeypatch, wrong={1: WRONG})
    assert main([PLAIN, "-q"]) == 1
    assert capsys.readouterr().err.startswith(
        "test case 1: output `y` at [0, 1]: expected 1, got 3"
    )


# -- inputs and outputs --------------------------------------------------------------------------


def test_given_inputs_reach_the_model(tmp_path, capsys):
    path = tmp_path / "x.npy"
    case = compact_root() / "conv" / "conv1d"
    with np.load(case / "inputs.npz") as file:
        name, values = next(iter(file.items()))
    with np.load(case / "expected.npz") as file:
        expected = next(iter(file.values()))
    np.save(path, np.asfortranarray(values.astype(">f8")))
    assert main([CONV, "--input", f"{name}:{path}", "--json", "-"]) == 0
    output = json.loads(capsys.readouterr().out)["cases"][0]["outputs"][0]
    assert output["shape"] == list(expected.shape)
    assert output["mean"] == pytest.approx(float(expected.mean()), abs=1e-5)


def test_given_inputs_replace_test_cases_and_say_so(capsys):
    assert main([PLAIN, "--input", "data:#rand(0,1,...)"]) == 0
    out, err = capsys.readouterr()
    assert "the file's 2 test cases are not run" in err
    assert "=== going to run input for 10 times" in out


def test_outputs_are_dumped(tmp_path, capsys):
    assert main([PLAIN, "--bin-out-dump", str(tmp_path / "d"), "-q", "--iter", "1"]) == 0
    assert sorted(os.listdir(tmp_path / "d")) == ["run0-var0", "run1-var0"]
    with np.load(CONTAINERS / "testcases_1_13_plain" / "expected.npz") as file:
        expected = next(iter(file.values()))
    dump = read_tensor_dump(tmp_path / "d" / "run0-var0")
    np.testing.assert_allclose(dump.array, expected, rtol=1e-4, atol=1e-5)


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "a model is needed"),
        (["/nonexistent/m.mge"], 2, "no such file"),
        ([CONV, "--nonsense"], 2, "unrecognized arguments: --nonsense"),
        ([CONV, "--iter", "-1"], 2, "a whole number from 0"),
        ([CONV, "--iter", "1.5"], 2, "a whole number from 0"),
        ([CONV, "--iter", "٣"], 2, "a whole number from 0"),
        ([CONV, "--threads", "0"], 2, "a number from 1"),
        ([CONV, "--warmup-iter", "0.5"], 2, "a number of runs such as `10` or a time"),
        ([CONV, "--backend", "abacus"], 2, "no backend is called 'abacus'"),
        ([CONV, "--backend", "abacus", "--cpu"], 2, "exclude each other"),
        ([CONV, "--input", "nope:1"], 2, "the model has no input `nope`"),
        ([CONV, "--it", "3"], 2, "unrecognized arguments"),
        ([NO_SHAPE], 2, "random values need a known shape"),
        ([ASSERTED, "--input", "data:#rand(0,1,...)"], 2, "random values make no sense"),
    ],
)
def test_errors_are_one_line_and_a_hint_on_stderr(capsys, words, code, message):
    assert main(words) == code
    err = capsys.readouterr().err
    errors = [line for line in err.split("\n") if line.startswith("error: ")]
    assert len(errors) == 1
    assert message in errors[0]
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "content", [b"", b"mgb", b"mgbtest0" + bytes(4), b"<html></html>", bytes(99)]
)
def test_files_that_are_no_model_exit_with_2(tmp_path, capsys, content):
    path = tmp_path / "m.mge"
    path.write_bytes(content)
    assert main([str(path)]) == 2
    assert f"error: {path}: " in capsys.readouterr().err


def test_failure_with_random_inputs_says_that_they_are_random(capsys, monkeypatch):
    from mgeserial.errors import ExecutionError

    def refuse(*_, **__):
        raise ExecutionError("index 9 is outside axis 0 of length 4")

    monkeypatch.setattr(FakeSession, "benchmark", refuse)
    fake(monkeypatch)
    assert main([CONV]) == 2
    assert "hint: random values may not do for `x`: give real ones with --input" in (
        capsys.readouterr().err
    )
    assert main([CONV, "--input", "x:[1,2,3]"]) == 2
    assert "random" not in capsys.readouterr().err


def test_unsupported_exits_with_3(capsys, monkeypatch):
    from mgeserial.errors import UnsupportedError

    def refuse(*_, **__):
        raise UnsupportedError('operator 3 "warp" cannot be run', hint="see `mgeserial check`")

    monkeypatch.setattr("loadrun.session.Session", refuse)
    assert main([CONV]) == 3
    assert capsys.readouterr().err == (
        'error: operator 3 "warp" cannot be run\nhint: see `mgeserial check`\n'
    )


def test_traceback_is_shown_when_asked_for_and_for_bugs(capsys, monkeypatch):
    assert main(["/nonexistent/m.mge", "--traceback"]) == 2
    assert "Traceback" in capsys.readouterr().err

    def fail(*_, **__):
        raise KeyError("ours")

    monkeypatch.setattr("loadrun.session.Session", fail)
    assert main([CONV]) == loadrun.cli.entry.BUG
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "this is a bug in loadrun" in err


# -- interrupts, pipes, speed --------------------------------------------------------------------


def test_interrupt_prints_what_was_measured_so_far(capsys, monkeypatch):
    fake(monkeypatch, interrupt_at=5)
    assert main([CONV, "--iter", "1000"]) == 130
    out = capsys.readouterr().out
    assert "(interrupted)" in out
    assert "inference (3 runs" in out


@pytest.mark.skipif(os.name == "nt", reason="signals differ on Windows")
def test_interrupt_of_a_process(tmp_path):
    path = tmp_path / "t.json"
    command = [sys.executable, "-m", "loadrun", CONV, "--iter", "99999999", "--json", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("iter 3/"):
            break
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - start < 20
    assert process.returncode == 130
    assert "(interrupted)" in out
    assert "Traceback" not in err
    document = json.loads(path.read_text())
    assert document["interrupted"] is True
    assert document["cases"][0]["stats"]["count"] >= 4


@pytest.mark.skipif(os.name == "nt", reason="signals differ on Windows")
def test_interrupt_ends_an_inference_that_does_not_return():
    code = (
        "import sys, ctypes; import loadrun.session as s; from loadrun.cli import main\n"
        "c = ctypes.CDLL(None)\n"
        "def slow(self, *a, **k):\n"
        "    print('begun', flush=True)\n"
        "    for _ in range(1000): c.sleep(3)\n"  # a signal ends one, as a native loop would not
        "s.Session.benchmark = slow\n"
        "import signal; real = signal.signal\n"
        # A handler that never runs: what a native call looks like from outside.
        "signal.signal = lambda n, h: real(n, lambda *_: None)\n"
        f"sys.exit(main([{CONV!r}]))"
    )
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line == "begun\n":
            break
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - start < 5
    assert process.returncode == 130
    assert "interrupted; 0 samples so far, median n/a ms" in err


@pytest.mark.skipif(os.name == "nt", reason="pipes differ on Windows")
def test_closed_pipe_ends_quietly():
    command = [sys.executable, "-m", "loadrun", CONV, "--iter", "99999999"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=60) == loadrun.cli.entry.BROKEN_PIPE
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.parametrize("word", ["--help", "--help-all"])
def test_help_imports_no_numpy(word):
    code = (
        f"import sys; from loadrun.cli import main; main(['{word}']); "
        "print([m for m in ('numpy', 'cv2', 'llvmlite', 'rich') if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.split("\n")[-2] == "[]"
    for option in ("--iter", "--warmup-iter", "--input", "--seed", "--backend", "--cpu"):
        assert option in found.stdout
    for option in ("--threads", "--multithread", "--json", "--quiet", "--verbose"):
        assert option in found.stdout


def test_help_takes_at_most_twice_the_time_of_importing_numpy():
    def fastest(*words):
        times = []
        for _ in range(4):
            start = time.perf_counter()
            subprocess.run([sys.executable, *words], capture_output=True, check=True, timeout=60)
            times.append(time.perf_counter() - start)
        return min(times)

    assert fastest("-m", "loadrun", "--help") <= 2 * fastest("-c", "import numpy")


def test_version_names_what_computes():
    found = call("--version")
    assert found.returncode == 0
    assert f"numpy {np.__version__}" in found.stdout


# -- progress ------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_colour_on_a_terminal_and_nowhere_else(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert is_coloured(Terminal())
    assert not is_coloured(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not is_coloured(Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not is_coloured(Terminal())


def test_colour_changes_no_word():
    text = "summary of m\n    trust: poor\n      drift\n  gap  1 ms (x)\n  operator  type  time"
    found = styled(text)
    assert "\x1b[31mpoor\x1b[0m" in found
    assert re.sub(r"\x1b\[\d+m", "", found) == text


def test_progress_waits_a_second_and_draws_ten_times_a_second(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    stream, now = Terminal(), [0.0]
    line = ProgressLine(stream, clock=lambda: now[0])
    for i in range(300):
        now[0] = i / 100
        line.update("run", i, 1000)
        if i == 99:
            assert stream.getvalue() == ""
    drawn = re.findall(r"(\d+)/1000", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()))
    # Every tenth of a second from the first second on; starting the bar may draw it once more.
    assert 18 <= len(set(drawn)) <= 22
    assert "100" in drawn
    assert "9 s left" in stream.getvalue()
    line.clear()
    assert stream.getvalue().endswith("\x1b[2K")


def test_progress_is_not_drawn_where_nobody_sees_it():
    stream, now = io.StringIO(), [0.0]
    for line in (
        ProgressLine(stream, clock=lambda: now[0]),
        ProgressLine(Terminal(), enabled=False, clock=lambda: now[0]),
    ):
        now[0] += 10
        line.update("run", 1, 2)
        line.clear()
    assert stream.getvalue() == ""


def test_nothing_is_drawn_for_no_work():
    stream = Terminal()
    line = ProgressLine(stream, clock=iter(range(100)).__next__)
    line.update("run", 0, 0)
    line.clear()
    assert stream.getvalue() == ""
