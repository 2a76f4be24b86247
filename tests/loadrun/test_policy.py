"""The policy file: what is kept, what is refused, and writers at the same time."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from loadrun import policy
from loadrun.policy import Choice, Policy
from mgeserial.errors import InputError

CHOICE = Choice("winograd4", "v1", {"winograd4": 10, "direct": 20})


def document(**changes):
    entry = {"choice": "direct", "code": "v1", "times_ns": {"direct": 5}}
    root = {"kind": "loadrun.policy", "schema": 2, "choices": {"cpu": {"conv": entry}}}
    return {**root, **changes}


def test_what_was_saved_is_read_again(tmp_path):
    path = str(tmp_path / "policy.json")
    one = Policy(path)
    assert one.get("cpu", "conv", "v1") is None
    one.put("cpu", "conv", CHOICE)
    assert one.get("cpu", "conv", "v1") == CHOICE
    assert not os.path.exists(path)
    one.save()
    assert Policy(path).get("cpu", "conv", "v1") == CHOICE
    assert [p.name for p in tmp_path.iterdir()] == ["policy.json"]


def test_other_code_place_or_layer_is_no_choice(tmp_path):
    found = Policy()
    found.put("cpu", "conv", CHOICE)
    assert found.get("cpu", "conv", "v2") is None
    assert found.get("cuda", "conv", "v1") is None
    assert found.get("cpu", "pool", "v1") is None
    found.save()  # without a path there is nothing to write


def test_saving_keeps_what_another_has_written_meanwhile(tmp_path):
    path = str(tmp_path / "policy.json")
    one, two = Policy(path), Policy(path)
    one.put("cpu", "a", CHOICE)
    two.put("cpu", "b", CHOICE)
    one.save()
    two.save()
    both = Policy(path)
    assert both.get("cpu", "a", "v1") == both.get("cpu", "b", "v1") == CHOICE
    assert two.get("cpu", "a", "v1") == CHOICE


def test_nothing_new_leaves_the_file_alone(tmp_path):
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(document()))
    before = path.stat()
    Policy(str(path)).save()
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert path.stat().st_ino == before.st_ino


def _writer(path, mine):
    for k in range(20):
        one = Policy(path)
        one.put("cpu", f"{mine} {k}", CHOICE)
        one.save()


@pytest.mark.skipif(os.name == "nt", reason="no file locks on this system")
def test_processes_that_save_at_the_same_time_lose_nothing(tmp_path):
    path = str(tmp_path / "policy.json")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_writer, args=(path, k)) for k in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [p.exitcode for p in processes] == [0, 0]
    found = Policy(path)
    assert all(found.get("cpu", f"{p} {k}", "v1") for p in range(2) for k in range(20))


def test_an_empty_file_is_filled(tmp_path):
    path = tmp_path / "policy.json"
    path.touch()
    one = Policy(str(path))
    one.put("cpu", "conv", CHOICE)
    one.save()
    assert json.loads(path.read_text())["choices"]["cpu"]["conv"]["choice"] == "winograd4"


ENTRY = {"choice": "direct", "code": "v1"}
BAD = {
    "list": "[]",
    "no kind": "{}",
    "cut": '{"kind": "loadrun.policy", ',
    "zero byte": "\0",
    "deep": "[" * 100_000,
    "long number": '{"kind": ' + "9" * 100_000 + "}",
    "nan": '{"kind": NaN}',
    "unknown schema": json.dumps(document(schema=3)),
    "no choices": json.dumps({"kind": "loadrun.policy", "schema": 2}),
    "choices a list": json.dumps(document(choices=[])),
    "place a list": json.dumps(document(choices={"cpu": []})),
    "layer a string": json.dumps(document(choices={"cpu": {"conv": "direct"}})),
    "choice a number": json.dumps(document(choices={"cpu": {"conv": {**ENTRY, "choice": 1}}})),
    "no code": json.dumps(document(choices={"cpu": {"conv": {"choice": "direct"}}})),
    "long name": json.dumps(document(choices={"c" * 2000: {}})),
    "time a string": json.dumps(
        document(choices={"cpu": {"conv": {**ENTRY, "times_ns": {"direct": "5"}}}})
    ),
    "time negative": json.dumps(
        document(choices={"cpu": {"conv": {**ENTRY, "times_ns": {"direct": -5}}}})
    ),
    "time true": json.dumps(
        document(choices={"cpu": {"conv": {**ENTRY, "times_ns": {"direct": True}}}})
    ),
    "many times": json.dumps(
        document(choices={"cpu": {"conv": {**ENTRY, "times_ns": {str(k): k for k in range(999)}}}})
    ),
}


@pytest.mark.parametrize("text", list(BAD.values()), ids=list(BAD))
def test_what_is_no_policy_is_one_error_with_a_way_out(tmp_path, text):
    path = tmp_path / "policy.json"
    path.write_text(text)
    with pytest.raises(InputError, match="not a policy file of loadrun") as found:
        Policy(str(path))
    assert "--fast-run" in str(found.value.hint)
    assert path.read_text() == text


def test_the_older_schema_is_named(tmp_path):
    path = tmp_path / "policy.json"
    path.write_text('{"kind": "loadrun.policy", "schema": 1, "choices": {}}')
    with pytest.raises(InputError, match=r'"schema" is 1, known: 2: an older release wrote it'):
        Policy(str(path))


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(document()))
    monkeypatch.setattr(policy, "_MOST_BYTES", 50)
    with pytest.raises(InputError, match="larger than"):
        Policy(str(path))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names on this system")
def test_a_pipe_is_refused_without_waiting(tmp_path):
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    with pytest.raises(InputError, match="no regular file"):
        Policy(path)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="not a policy file"):
        Policy(str(tmp_path))


def test_what_is_measured_by_other_code_goes_first_when_the_file_is_full(tmp_path, monkeypatch):
    path = str(tmp_path / "policy.json")
    old = Policy(path)
    for k in range(5):
        old.put("cpu", f"old {k}", Choice("direct", "v0"))
    old.save()
    monkeypatch.setattr(policy, "_MOST_CHOICES", 5)
    new = Policy(path)
    new.put("cpu", "new", CHOICE)
    new.save()
    found = json.loads(Path(path).read_text())["choices"]
    assert list(found["cpu"]) == ["new"]


def test_a_folder_that_does_not_exist_is_one_error(tmp_path):
    one = Policy(str(tmp_path / "none" / "policy.json"))
    one.put("cpu", "conv", CHOICE)
    with pytest.raises(InputError, match="cannot be written"):
        one.save()


def test_names_that_the_file_would_not_take_are_refused():
    with pytest.raises(ValueError, match="1000 characters"):
        Policy().put("cpu", "c" * 1001, CHOICE)
