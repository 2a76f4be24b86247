from __future__ import annotations

import json
import re
import subprocess
import sys

import option_cases_comparing  # noqa: F401 - adds its cases
import option_cases_machine  # noqa: F401 - adds its cases
import pytest
from corpus_cases import CHECKOUT
from option_cases import CASES, CONV, NET, Drive

from loadrun.backends.cpu import trials
from loadrun.cli import main
from loadrun.cli.options import OPTIONS, State
from loadrun.cli.spelling import normalized

# Every option of load_and_run 0.5.1 and 1.13.4, as their sources declare them.
LAR05 = """
cpu cpu-default multithread multithread-default multi-thread-core-ids profile profile-host input
io-dump bin-io-dump bin-out-dump iter warmup-iter range check-dispatch check-var-value
no-sanity-check disable-mem-opt fake-first const-shape share-param-mem record-comp-seq
record-comp-seq2 fast-run fast-run-algo-policy reproducible wait-gdb c-opr-lib thread
disable-assert-throw copy-to-host workspace-limit verbose tensorrt tensorrt-cache enable-jit
winograd-transform enable-chwn4 enable-nchw4 enable-nchw44 enable-nchw88 enable-nchw32
enable-nhwcd4 enable-nchw44-dot enable-fuse-conv-bias-nonlinearity enable-fuse-conv-bias-with-z
"""
LAR13 = """
lite mdl cpu cuda cpu-default multithread multithread-default multi-thread-core-ids enable-ioc16
c-opr-lib c-opr-lib-with-param c-opr-init-interface fast-run full-run binary-equal-between-batch
reproducible fast-run-shared-batch-size fast-run-algo-policy input batch-size io-dump
io-dump-stdout io-dump-stderr bin-io-dump bin-out-dump copy-to-host enable-nchw4 enable-chwn4
enable-nchw44 enable-nchw88 enable-nchw32 enable-nchw64 enable-nhwcd4 enable-nchw44-dot
layout-transform layout-transform-dump packed-model-dump pack-info-json pack-cache
pack-info-cryption pack-model-cryption model-dump enable-fuse-preprocess fuse-grain
weight-preprocess enable-fuse-conv-bias-nonlinearity enable-fuse-conv-bias-with-z
optimize-for-inference const-shape fake-first no-sanity-check record-comp-seq record-comp-seq2
disable-mem-opt workspace-limit enable-jit tensorrt tensorrt-cache range check-dispatch
check-var-value profile profile-host model-info verbose disable-assert-throw wait-gdb
get-static-mem-info iter warmup-iter thread share-param-mem fitting dump-fitting-model
help helpmatch version flagfile fromenv
"""
# Options of every command line, and those of gflags itself, are not in the table; see below.
ELSEWHERE = {"verbose", "help", "helpmatch", "version", "flagfile", "fromenv"}
NAMES = {name for option in OPTIONS for name in option.names}


@pytest.fixture
def go(capsys, monkeypatch, tmp_path):
    # How well algorithms are told apart is the matter of tests/loadrun/cpu/test_tuning.py.
    monkeypatch.setattr(trials, "_TRIAL_S", 0)
    monkeypatch.setattr(trials, "_WHOLE_S", 0)
    return Drive(capsys, monkeypatch, tmp_path)


@pytest.mark.parametrize("name", [option.name for option in OPTIONS])
def test_option(name, go):
    CASES[name](go)


@pytest.mark.parametrize(("release", "names"), [("0.5.1", LAR05), ("1.13.4", LAR13)])
def test_no_option_of_load_and_run_is_missing(release, names):
    wanted = set(names.split()) - ELSEWHERE
    assert {f"--{name}" for name in wanted} <= NAMES
    noted = {n.lstrip("-") for o in OPTIONS if release in o.releases for n in o.names}
    assert wanted <= noted


def test_every_option_is_driven_by_one_case_and_no_case_is_left_over():
    assert set(CASES) == {option.name for option in OPTIONS}


def test_every_option_says_what_happens():
    for option in OPTIONS:
        assert option.effect
        assert (option.state is not State.REFUSED) or option.hint, option.name


def test_options_are_documented_as_they_are():
    command = [sys.executable, "scripts/generate_reference.py", "--check"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# -- spellings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["m", "--warmup_iter=3"], ["m", "--warmup-iter=3"]),
        (["m", "-warmup_iter", "3"], ["m", "--warmup-iter", "3"]),
        (["m", "-iter=3"], ["m", "--iter=3"]),
        (["m", "--fast_run"], ["m", "--fast-run"]),
        (["m", "--fast_run", "--nofast_run"], ["m"]),
        (["m", "--nofast_run", "--fast_run"], ["m", "--fast-run"]),
        (["m", "--fast_run=false"], ["m"]),
        (["m", "--fast_run=true"], ["m", "--fast-run"]),
        (["m", "--nofuse_grain"], ["m", "--no-fuse-grain"]),
        (["m", "--no-optimize"], ["m", "--no-optimize"]),
        (["m", "--no-sanity-check"], ["m", "--no-sanity-check"]),
        (["m", "-vv", "-q"], ["m", "-vv", "-q"]),
        (["m", "--verbose=true", "-verbose", "--noquiet"], ["m", "--verbose", "--verbose"]),
        (["m", "--input", "a_b:[1]"], ["m", "--input", "a_b:[1]"]),
        (["--", "--my_model.mge"], ["--", "--my_model.mge"]),
    ],
)
def test_spellings(words, expected):
    assert normalized(words) == expected


def test_switch_with_another_value_is_an_error(go):
    go(CONV, "--fast_run=maybe", code=2)
    assert "--fast-run is on or off" in go.err


def test_flags_from_a_file_and_from_variables(go):
    path = go.folder / "flags"
    path.write_text("# a comment\n--iter=3\n\n--warmup_iter=0\n")
    go.monkeypatch.setenv("FLAGS_seed", "5")
    found = go.document(CONV, f"--flagfile={path}", "--fromenv=seed", "--tryfromenv=thread")
    assert (found["iter"], found["warmup_iter"], found["seed"]) == (3, "0", 5)
    go(CONV, "--fromenv=thread", code=2)
    assert "`FLAGS_thread` is not set" in go.err
    path.write_text(f"--flagfile={path}\n")
    go(CONV, f"--flagfile={path}", code=2)
    assert "more than 16 deep" in go.err


# -- help and completion -------------------------------------------------------------------------


def test_short_help_lists_the_everyday_options_and_the_long_one_all(go):
    go("--help")
    for option in OPTIONS:
        # Up to Python 3.12 argparse repeats the value after each spelling, later it does not.
        shown = any(f"{option.name}{end}" in go.out for end in (" ", ",", "\n"))
        assert shown or not option.everyday
    assert "--check-var-value" not in go.out
    assert "examples:" in go.out
    assert "--help-all" in go.out
    go("--help-all")
    for name in NAMES:
        assert name in go.out


def test_help_of_matching_options(go):
    go("--helpmatch=fast_run")
    assert "--fast-run-algo-policy" in go.out
    assert "--json" not in go.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_every_option(go, shell):
    go("--completion", shell)
    for name in NAMES:
        assert name.lstrip("-") in go.out


def test_completion_for_bash_is_a_script_that_bash_accepts(go):
    go("--completion", "bash")
    script = go.out + '\nCOMP_WORDS=(loadrun --ite); COMP_CWORD=1; _loadrun; echo "${COMPREPLY[*]}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "--iter"


def test_verbose_prints_the_plan(go):
    go(NET, "--backend", "cpu", "-v", "--iter", "1")
    assert re.search(r"^plan for \d+ threads?$", go.err, re.MULTILINE)


# -- nothing here changes results ----------------------------------------------------------------


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_dumping_and_profiling_do_not_change_results(go, backend):
    words = (NET, "--backend", backend)
    looked = (
        "--profile", "--range", "1e9", "--check-dispatch", "--check-var-value", "1",
        "--bin-io-dump", str(go.folder / "io"), "--get-static-mem-info", str(go.folder / "mem"),
    )  # fmt: skip
    (go.folder / "io").mkdir()
    (go.folder / "mem").mkdir()
    assert go.outputs(*words, *looked) == go.outputs(*words)


def test_interrupt_in_many_sessions_exits_with_130(capsys, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("loadrun.parallel._run_all", stop)
    assert main([CONV, "--thread", "2"]) == 130


def test_given_options_are_kept_in_the_document(go):
    found = go.document(CONV, "--iter", "2", "--interval", "1")
    assert found["interval_ms"] == 1
    assert "--interval" in json.dumps(found["command"])
