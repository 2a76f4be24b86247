from __future__ import annotations

import json
from pathlib import Path

import make_corpus
import pytest


def _add(root: Path, name: str, operators: list[str], *, size: int = 10) -> None:
    folder = root / name
    folder.mkdir(parents=True)
    case = {
        "covers": f'a "quoted" {name}',
        "megengine": "1.13.0",
        "seed": 1,
        "operators": dict.fromkeys(operators, 1),
        "files": {"model.v1.mge": size},
        "expected_files": {"model.v1.mge": "expected.npz"},
    }
    (folder / "case.json").write_text(json.dumps(case), encoding="utf-8")
    (folder / "model.v1.mge").write_bytes(b"m" * size)


@pytest.fixture
def full(tmp_path: Path) -> Path:
    root = tmp_path / "full"
    _add(root, "conv/a", ["Conv"])
    _add(root, "conv/b", ["Conv", "Relu", "Pool"])
    _add(root, "conv/c", ["Conv", "Relu"])
    _add(root, "shape/a", ["Reshape"])
    _add(root, "shape/too_big", ["Reshape"], size=make_corpus.MAX_FILE_BYTES + 1)
    return root


@pytest.fixture
def public(tmp_path: Path) -> Path:
    folder = tmp_path / "public-models"
    folder.mkdir()
    for file in make_corpus.PUBLIC:
        (folder / file.file).write_bytes(file.file.encode())
    return folder


def test_case_with_a_large_file_is_no_candidate(full: Path) -> None:
    names = [c.name for c in make_corpus.candidates(full)]
    assert names == ["conv/a", "conv/b", "conv/c", "shape/a"]


def test_case_that_covers_more_is_taken_first(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_corpus, "MAX_FILES", 4)
    chosen = make_corpus.choose(make_corpus.candidates(full))
    assert [c.name for c in chosen] == ["conv/b", "shape/a"]


def test_bytes_are_limited_too(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = make_corpus.candidates(full)
    monkeypatch.setattr(make_corpus, "MAX_BYTES", max(c.size for c in candidates))
    assert len(make_corpus.choose(candidates)) == 1


def test_making_it_twice_gives_the_same_files_and_keeps_what_is_not_ours(
    full: Path, public: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    (out / "gone").mkdir(parents=True)
    (out / "README.md").write_text("kept", encoding="utf-8")
    made = []
    for _ in range(2):
        assert make_corpus.main([str(full), str(public), "--out", str(out)]) == 0
        made.append({p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()})
    assert made[0] == made[1]
    assert not (out / "gone").exists()
    assert made[0][Path("README.md")] == b"kept"
    assert Path("conv/c/model.v1.mge") in made[0]


def test_missing_public_file_changes_nothing(
    full: Path, public: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (public / make_corpus.PUBLIC[0].file).unlink()
    assert make_corpus.main([str(full), str(public), "--out", str(tmp_path / "out")]) == 2
    assert make_corpus.PUBLIC[0].file in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
