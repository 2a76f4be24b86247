from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from corpus_cases import CHECKOUT, compact_root

from loadrun.cli import main
from loadrun.profilefile import profile_document, profile_of_document, read_profile
from loadrun.schema import DOCUMENTS, PLAIN, SUFFIXES, validate

# Documents that this version wrote: every later version must read them.
KEPT = sorted((Path(__file__).parent / "documents").glob("*.json"))
ROOT = compact_root()
MODELS = [
    ROOT / "nets" / "mobilenet_v1_optimized" / "model.v2.mge",
    ROOT / "containers" / "testcases_1_13_assert" / "model.v2.mge",
    ROOT / "containers" / "constants_only" / "model.v1.mge",
    ROOT / "containers" / "many_inputs_outputs" / "model.v2.mge",
    ROOT / "quantized" / "quantized_inputs" / "model.v1.mge",
]
# Names of numbers that have no unit at their end, each a number of something, or which one.
PLAIN_NAMES = {
    "schema", "threads", "sessions", "batch", "iter", "seed", "index", "index[]", "session",
    "count", "cores", "mismatches", "size", "shape[]", "min", "max", "mean", "rms", "expected",
    "got", "error", "max_error", "load_average_1min", "scale", "zero_point",
    "allowed_error", "cosine", "error_floor", "max_abs", "max_rel", "worst_a", "worst_b",
    "worst_index[]", "*",
}  # fmt: skip


def fields():
    return [(kind, f) for kind, found in DOCUMENTS.items() for f in found]


@pytest.mark.parametrize(("kind", "field"), fields(), ids=lambda x: getattr(x, "path", x))
def test_every_number_carries_its_unit_in_its_key(kind, field):
    if field.type not in ("integer", "number"):
        assert not field.unit
        return
    name = field.path.rpartition(".")[2]
    if field.unit in PLAIN:
        assert name in PLAIN_NAMES
    elif field.unit != "by key":
        assert name.removesuffix("[]").endswith(SUFFIXES[field.unit]) or name in (
            "percent",
            "figures.*",
        )


@pytest.mark.parametrize("model", MODELS, ids=lambda p: p.parent.name)
@pytest.mark.parametrize("words", [[], ["--iter", "0"], ["--iter", "1"], ["--profile"]])
def test_documents_are_as_the_schema_says(capsys, model, words):
    assert main([str(model), "--json", "-", *words]) == 0
    document = json.loads(capsys.readouterr().out)
    assert validate(document) == []


def test_there_are_documents_of_every_kind():
    kinds = {json.loads(path.read_text(encoding="utf-8"))["kind"] for path in KEPT}
    assert kinds >= {"loadrun.run", "loadrun.profile", "loadrun.memory", "loadrun.values"}
    assert kinds <= set(DOCUMENTS)


@pytest.mark.parametrize("path", KEPT, ids=lambda p: p.name)
def test_kept_documents_stay_readable(path):
    document = json.loads(path.read_text(encoding="utf-8"))
    assert validate(document, complete=False) == []
    if document["kind"] == "loadrun.profile":
        assert len(read_profile(str(path)).rows) == len(document["steps"])
    if document.get("profile"):
        again = profile_document(profile_of_document(document["profile"]))
        assert again == document["profile"]


def test_kept_documents_agree_with_their_samples():
    runs = [p for p in KEPT if json.loads(p.read_text(encoding="utf-8"))["kind"] == "loadrun.run"]
    command = [sys.executable, "scripts/verify/stats.py", *map(str, runs)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("iters", ["0", "1", "2", "6", "37", "400"])
def test_statistics_recomputed_from_samples_agree_to_the_last_digit(iters, tmp_path, capsys):
    sys.path.insert(0, str(CHECKOUT / "scripts" / "verify"))
    try:
        import stats as independent
    finally:
        sys.path.pop(0)
    path = tmp_path / "t.json"
    assert main([str(MODELS[0]), "--iter", iters, "--json", str(path)]) == 0
    document = json.loads(path.read_text(encoding="utf-8"))
    assert list(independent.problems_of(document)) == []
    assert list(independent.text_problems(document, capsys.readouterr().out)) == []


def test_a_wrong_number_is_found_by_the_independent_check(tmp_path):
    document = json.loads(next(p for p in KEPT if p.name.startswith("run.")).read_text())
    document["cases"][0]["stats"]["p95_ms"] *= 1 + 1e-12
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(document))
    command = [sys.executable, "scripts/verify/stats.py", str(path)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "p95_ms" in done.stdout


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda d: d.pop("backend"), "backend is missing"),
        (lambda d: d.update(speed=3), "speed is not in the schema"),
        (lambda d: d.update(threads="2"), "threads is str, not integer"),
        (lambda d: d.update(threads=True), "threads is bool, not integer"),
        (lambda d: d.update(backend=None), "backend is null"),
        (lambda d: d["cases"][0]["samples_ns"].append(1.5), "samples_ns[] is float, not integer"),
        (lambda d: d["profile"]["steps"][0].pop("name"), "profile: steps[].name is missing"),
        (lambda d: d.update(kind="other"), "the kind 'other' is not known"),
        (
            lambda d: d["cases"][0]["trust"]["findings"].append(
                {"code": "x", "text": "", "hint": "", "figures": {"drift": 3}}
            ),
            "figures.drift has no unit at its end",
        ),
    ],
)
def test_what_is_wrong_with_a_document_is_named(change, problem):
    document = json.loads(next(p for p in KEPT if p.name.startswith("run.")).read_text())
    change(document)
    assert any(problem in text for text in validate(document))
