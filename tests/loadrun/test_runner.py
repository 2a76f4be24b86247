from __future__ import annotations

import json
import math

import numpy as np
import pytest
from fake_session import FakeSession, tensor

from loadrun.asserts import check
from loadrun.document import to_json
from loadrun.environment import environment
from loadrun.lines import LoadAndRunLines
from loadrun.measure import Warmup
from loadrun.report import RunReport, bytes_text, duration, to_text
from loadrun.runner import dump_outputs, make_cases, run_cases
from loadrun.schema import validate
from mgeserial.errors import InputError
from mgeserial.format.tensor_dump import read_tensor_dump

MS = 1_000_000
CASE = {"x": np.ones((1, 3), np.float32)}
WRONG = check("y", np.array([[0.0, 1.0]]), np.array([[0.0, 3.0]]), 1e-4)


def run(session, *, testcases=(), items=(), iters=3, warmup=1, keep=False, time_failed=False):
    """Lines printed and the outcome."""
    lines: list[str] = []
    listener = LoadAndRunLines(lines.append, iters)
    listener.loaded("this and that", 5 * MS)
    outcome = run_cases(
        session,
        make_cases(session, testcases, items, seed=0),
        iters=iters,
        warmup=warmup,
        time_failed=time_failed,
        keep_outputs=(lambda result: None) if keep else None,
        listener=listener,
    )
    return lines, outcome


def report(session, outcome, **changes):
    facts = {"iters": 3, "warmup": "1", "load_ns": 5 * MS, **changes}
    return RunReport(
        model="m.mge",
        backend=session.backend,
        threads=session.threads,
        outcome=outcome,
        outputs=session.outputs,
        **facts,
    )


def document(session, outcome, **changes):
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(to_json(report(session, outcome, **changes)), parse_constant=refuse)


# -- lines ---------------------------------------------------------------------------------------


def test_lines_for_given_inputs():
    lines, _ = run(FakeSession(times=(9 * MS, 2 * MS, 1 * MS, 3 * MS, 2 * MS)))
    assert lines == [
        "mgb load-and-run: using this and that",
        "load model: 5.000ms",
        "=== prepare: 2.000ms; going to warmup",
        "warmup 0: 2.000ms",
        "=== going to run input for 3 times",
        "iter 0/3: 1.000ms (exec=1.000,device=1.000)",
        "iter 1/3: 3.000ms (exec=3.000,device=3.000)",
        "iter 2/3: 2.000ms (exec=2.000,device=2.000)",
        "=== finished test #0: time=6.000ms avg_time=2.000ms sd=1.000ms minmax=1.000,3.000",
        "",
    ]


def test_lines_for_test_cases():
    session = FakeSession(outputs={"a": tensor(4, 2), "b": tensor(None)})
    lines, _ = run(session, testcases=[CASE, CASE], iters=1)
    assert lines[2:] == [
        "=== going to run 2 testcases; output vars: a{4,2} b{}",
        "=== prepare: 2.000ms; going to warmup",
        "warmup 0: 1.000ms",
        "=== going to run test #0 for 1 times",
        "iter 0/1: 1.000ms (exec=1.000,device=1.000)",
        "=== finished test #0: time=1.000ms avg_time=1.000ms sd=n/a minmax=1.000,1.000",
        "",
        "=== going to run test #1 for 1 times",
        "iter 0/1: 1.000ms (exec=1.000,device=1.000)",
        "=== finished test #1: time=1.000ms avg_time=1.000ms sd=n/a minmax=1.000,1.000",
        "",
        "=== total time: 2.000ms",
    ]


def test_lines_for_a_model_without_inputs():
    lines, _ = run(FakeSession(inputs={}), iters=2)
    assert lines[2:] == [
        "=== prepare: 2.000ms; going to warmup",
        "warmup 0: 1.000ms",
        "=== going to run for 2 times; output vars: y{1,2}",
        "=== finished run #0: time=1.000ms",
        "=== finished run #1: time=1.000ms",
        "avg time: 1.000ms",
    ]


@pytest.mark.parametrize("testcases", [(), [CASE]])
@pytest.mark.parametrize("inputs", [{"x": tensor(1)}, {}])
def test_no_iterations_print_no_numbers_that_do_not_exist(testcases, inputs):
    session = FakeSession(inputs=inputs)
    lines, outcome = run(session, testcases=testcases, iters=0)
    text = "\n".join([*lines, to_text(report(session, outcome, iters=0))])
    assert "going to run" in text
    assert "for 0 times" in text
    assert not [word for word in ("nan", "inf ", "e+", "finished", "avg") if word in text.lower()]


def test_every_line_has_finite_numbers_for_one_iteration():
    lines, outcome = run(FakeSession(), iters=1)
    text = "\n".join(lines)
    assert "sd=n/a" in text
    assert "nan" not in text
    assert outcome.results[0].stats.sd_ns is None


# -- order and number of runs --------------------------------------------------------------------


@pytest.mark.parametrize("iters", [0, 1, 7])
def test_samples_are_as_many_as_asked_for(iters):
    session = FakeSession()
    _, outcome = run(session, testcases=[CASE, CASE], iters=iters, warmup=2)
    assert [len(r.stats.samples) for r in outcome.results] == [iters, iters]
    assert [len(r.stats.warmup) for r in outcome.results] == [2, 0]
    cases = document(session, outcome)["cases"]
    assert [len(c["samples_ns"]) for c in cases] == [iters, iters]
    assert [c["stats"]["count"] for c in cases] == [iters, iters]


def test_warmup_may_be_a_time():
    _, outcome = run(FakeSession(), warmup=Warmup(ns=4 * MS))
    assert len(outcome.results[0].stats.warmup) == 4


def test_outputs_are_checked_before_the_timing_and_kept_after_it():
    session = FakeSession(has_asserts=True)
    run(session, testcases=[CASE], keep=True)
    assert session.log == ["prepare", "check", "benchmark", "run"]


def test_outputs_are_not_computed_when_nobody_wants_them():
    session = FakeSession()
    _, outcome = run(session)
    assert session.log == ["prepare", "benchmark"]
    assert outcome.results[0].outputs is None


# -- expected outputs ----------------------------------------------------------------------------


def test_case_with_wrong_outputs_is_not_timed_and_the_others_are():
    session = FakeSession(wrong={0: WRONG})
    lines, outcome = run(session, testcases=[CASE, CASE])
    assert outcome.failed
    assert [r.stats is None for r in outcome.results] == [True, False]
    text = to_text(report(session, outcome))
    assert "outputs differ from the expected ones in 1 of 2 cases" in text
    assert not any("test #0" in line for line in lines)


def test_case_with_wrong_outputs_can_be_timed():
    _, outcome = run(FakeSession(wrong={0: WRONG}), testcases=[CASE], time_failed=True)
    assert outcome.failed
    assert len(outcome.results[0].stats.samples) == 3


def test_failure_in_json_has_index_values_and_error():
    session = FakeSession(wrong={0: WRONG})
    _, outcome = run(session, testcases=[CASE])
    found = document(session, outcome)
    assert found["asserts_ok"] is False
    (failure,) = found["cases"][0]["assert_failures"]
    assert failure["output"] == "y"
    assert failure["index"] == [0, 1]
    assert (failure["expected"], failure["got"], failure["error"]) == (1.0, 3.0, 2.0)


def test_failure_with_nan_is_still_json():
    nan = check("y", np.array([1.0]), np.array([math.nan]), 1)
    session = FakeSession(wrong={0: nan})
    _, outcome = run(session, testcases=[CASE])
    (failure,) = document(session, outcome)["cases"][0]["assert_failures"]
    assert failure["got"] is None
    assert "nan" in failure["text"]


def test_expected_values_are_never_made_up():
    session = FakeSession(inputs={"x": tensor(1), "y:expect": tensor(1)}, has_asserts=True)
    with pytest.raises(InputError, match="random values make no sense") as caught:
        make_cases(session, [], ["x:1"], seed=0)
    assert "--input 'y:expect:file.npy'" in caught.value.hint
    assert make_cases(session, [], ["y:expect:1"], seed=0)[0].title == "given inputs"


def test_given_inputs_go_before_test_cases():
    cases = make_cases(FakeSession(), [CASE], ["x:[1,2,3]"], seed=0)
    assert [c.title for c in cases] == ["given inputs"]


# -- interrupt -----------------------------------------------------------------------------------


def test_interrupt_keeps_what_was_measured():
    session = FakeSession(interrupt_at=4)
    lines, outcome = run(session, iters=100)
    assert outcome.interrupted
    assert outcome.results[0].stats.samples == (MS, MS)
    assert outcome.results[0].stats.first_inference_ns == MS
    assert lines[-2].startswith("=== finished test #0: time=2.000ms")
    assert "(interrupted)" in to_text(report(session, outcome))
    assert document(session, outcome)["interrupted"] is True


def test_interrupt_before_the_first_sample_reports_as_well():
    session = FakeSession(interrupt_at=0)
    _, outcome = run(session)
    assert outcome.interrupted
    assert outcome.results[0].stats.samples == ()
    assert "n/a" in to_text(report(session, outcome))
    assert document(session, outcome)["cases"][0]["stats"]["mean_ms"] is None


def test_interrupt_in_a_later_case_keeps_the_earlier_ones():
    _, outcome = run(FakeSession(interrupt_at=6), testcases=[CASE, CASE, CASE])
    assert [len(r.stats.samples) for r in outcome.results] == [3, 0]


# -- summary and document ------------------------------------------------------------------------


def test_summary_of_one_case():
    session = FakeSession(times=(9 * MS, 2 * MS, 1 * MS, 3 * MS, 2 * MS))
    _, outcome = run(session)
    assert to_text(report(session, outcome, peak_memory_bytes=3 << 20)).split("\n") == [
        "summary of m.mge",
        "  backend          fake, 3 threads",
        "  load             5.000 ms",
        "  prepare          2.000 ms",
        "  first inference  9.000 ms",
        "  peak memory      3.0 MiB",
        "  inference (3 runs, random inputs)",
        "    min         1.000 ms",
        "    median      2.000 ms",
        "    mean        2.000 ms",
        "    sd          1.000 ms",
        "    p90         2.800 ms",
        "    p95         2.900 ms",
        "    p99         2.980 ms",
        "    max         3.000 ms",
        "    throughput  500.00 inferences/s",
        "    trust: poor",
        "      unstable: the median distance to the median is 50% of it; close other programs, "
        "or raise --iter and --warmup-iter",
        "      too few samples: 3; raise --iter to 50 or more, or give --duration 3s",
    ]


def test_summary_of_many_cases_is_a_table_in_one_unit():
    session = FakeSession()
    _, outcome = run(session, testcases=[CASE, CASE])
    lines = to_text(report(session, outcome)).split("\n")
    head = next(line for line in lines if "median" in line)
    rows = [line for line in lines if line.strip().startswith("test case") and "/s" in line]
    assert head.split() == [
        "runs",
        "min",
        "median",
        "mean",
        "sd",
        "p90",
        "p95",
        "p99",
        "max",
        "throughput",
    ]
    assert len(rows) == 2
    assert len({len(line) for line in (head, *rows)}) == 1
    assert rows[0].count(" ms") == 8


def test_every_number_of_a_summary_has_a_unit():
    session = FakeSession(times=(1500,))
    _, outcome = run(session)
    text = to_text(report(session, outcome))
    assert "1.500 us" in text
    assert "short: below 10 us" in text


@pytest.mark.parametrize(
    ("ns", "text"),
    [(None, "n/a"), (0, "0.000 us"), (1500, "1.500 us"), (2_500_000, "2.500 ms"), (3e9, "3.000 s")],
)
def test_durations_have_a_unit(ns, text):
    assert duration(ns) == text


@pytest.mark.parametrize(
    ("count", "text"), [(None, "n/a"), (5, "5 bytes"), (2048, "2.0 KiB"), (5 << 30, "5.0 GiB")]
)
def test_sizes_have_a_unit(count, text):
    assert bytes_text(count) == text


def test_document_has_schema_units_and_facts():
    session = FakeSession()
    _, outcome = run(session, keep=True)
    facts = {"command": ["loadrun", "m.mge"], "environment": environment()}
    found = document(session, outcome, sha256="ab", model_bytes=7, **facts)
    assert found["schema"] == 1
    assert found["kind"] == "loadrun.run"
    assert found["model"] == {"path": "m.mge", "file_bytes": 7, "sha256": "ab"}
    (case,) = found["cases"]
    assert case["inputs"][0] == {
        "name": "x",
        "dtype": "float32",
        "shape": [1, 3],
        "from": "random, seed 0",
    }
    assert case["outputs"] == [
        {"name": "y", "dtype": "Float32", "shape": [1, 2], "min": 2, "max": 2, "mean": 2, "rms": 2}
    ]
    assert validate(found) == []
    assert case["first_inference_ns"] == MS
    assert case["prepare_ms"] == 2


def test_control_characters_in_names_do_not_reach_the_terminal():
    session = FakeSession(inputs={"a\x1b[2J": tensor(1)}, outputs={"b\x1b]0;": tensor(1)})
    lines, outcome = run(session, keep=True)
    text = "\n".join([*lines, to_text(report(session, outcome), verbose=1)])
    assert "\x1b" not in text


def test_outputs_are_dumped_as_load_and_run_does(tmp_path):
    session = FakeSession(outputs={"y": tensor(1, 2), "z": tensor(3)})
    _, outcome = run(session, testcases=[CASE, CASE], keep=True)
    for result in outcome.results:
        result.outputs = session.run({})
        dump_outputs(result, session.outputs, str(tmp_path / "new" / "folder"))
    names = sorted(p.name for p in (tmp_path / "new" / "folder").iterdir())
    assert names == ["run0-var0", "run0-var1", "run1-var0", "run1-var1"]
    dump = read_tensor_dump(tmp_path / "new" / "folder" / "run1-var1")
    assert (dump.name, dump.array.tolist()) == ("z", [2.0, 2.0, 2.0])
