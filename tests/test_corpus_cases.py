from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import corpus_cases
import numpy as np
import pytest
from corpus_cases import Case, Model, Run, Tolerance, compact_root, compare, iter_cases

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_FILES = 1200
MAX_BYTES = 4_000_000
MAX_FILE_BYTES = 64 * 1024


def _case(name: str) -> Case:
    family = name.partition("/")[0]
    return next(c for c in iter_cases(compact_root(), [family]) if c.id == name)


def _model(case: Case, tag: str) -> Model:
    return next(m for m in case.models() if m.tag == tag)


def _run(expected: Mapping[str, Any], **changes: Any) -> Run:
    run = Run(
        id="made/up",
        model=Model(Path("model.v1.mge"), "v1"),
        graph_index=0,
        inputs={},
        expected={name: np.asarray(value) for name, value in expected.items()},
        tolerance=Tolerance(rtol=0.1, atol=0.5, int_atol=1, by_dtype={"float16": (0.0, 2.0)}),
        shape_only=False,
        output_layout=None,
        megengine_answer=None,
    )
    return replace(run, **changes)


def _catalogue() -> dict[str, Any]:
    return tomllib.loads((compact_root() / "corpus.toml").read_text(encoding="utf-8"))


# ---- the files ---------------------------------------------------------------------------------


def test_every_file_of_the_compact_corpus_is_in_the_catalogue_with_its_hash() -> None:
    catalogue = _catalogue()
    listed = {f"public/{entry['file']}": entry["sha256"] for entry in catalogue["public"]}
    for case in catalogue["case"]:
        listed |= {f"{case['name']}/{file}": digest for file, digest in case["sha256"].items()}
    root = compact_root()
    found = {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file() and path.parent != root
    }
    assert found == listed


def test_every_entry_of_the_catalogue_tells_origin_and_licence() -> None:
    catalogue = _catalogue()
    for case in catalogue["case"]:
        assert case["summary"], case["name"]
        assert case["origin"], case["name"]
        assert case["made"], case["name"]
        assert case["licence"] == "Apache-2.0"
    for entry in catalogue["public"]:
        assert len(entry["commit"]) == 40
        assert entry["repository"].count("/") == 1
        assert entry["licence"] in ("Apache-2.0", "CC-BY-SA-4.0")


def test_compact_corpus_stays_small() -> None:
    sizes = [p.stat().st_size for p in compact_root().rglob("*") if p.is_file()]
    assert len(sizes) <= MAX_FILES
    assert sum(sizes) <= MAX_BYTES
    assert max(p.stat().st_size for p in compact_root().rglob("*.mge")) <= MAX_FILE_BYTES


def test_compact_corpus_has_every_family_and_more_than_a_hundred_operators() -> None:
    cases = list(iter_cases(compact_root()))
    assert {c.family for c in cases} == {
        *("containers", "conv", "elemwise", "elemwise_multi", "grad", "layout", "linear", "misc"),
        *("nets", "pickles", "pool_norm", "quantized", "random", "recurrent", "shape", "vision"),
    }
    assert len({op for c in cases for op in c.case.get("operators", ())}) == 120


# ---- choosing the root and the cases -----------------------------------------------------------


def test_mge_corpus_names_the_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MGE_CORPUS", str(tmp_path))
    assert corpus_cases.corpus_root() == tmp_path


def test_mge_corpus_that_is_no_folder_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MGE_CORPUS", str(tmp_path / "absent"))
    with pytest.raises(FileNotFoundError, match="MGE_CORPUS names no folder"):
        corpus_cases.corpus_root()


def test_root_falls_back_to_the_compact_corpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MGE_CORPUS", raising=False)
    monkeypatch.setattr(corpus_cases, "CHECKOUT", tmp_path / "checkout")
    assert corpus_cases.corpus_root() == tmp_path / "checkout" / "tests" / "corpus"
    (tmp_path / "shared" / "corpus").mkdir(parents=True)
    assert corpus_cases.corpus_root() == tmp_path / "shared" / "corpus"


def test_absent_family_and_empty_root_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no family 'convolution'"):
        list(iter_cases(compact_root(), ["convolution"]))
    with pytest.raises(FileNotFoundError, match="no case in"):
        list(iter_cases(tmp_path))


# ---- runs --------------------------------------------------------------------------------------


def test_each_run_of_each_case_agrees_with_its_own_expected_outputs() -> None:
    for case, model in corpus_cases.iter_models(compact_root()):
        for run in case.runs(model):
            assert run.expected, run.id
            if run.output_layout is None:
                assert compare(run, run.expected) == [], run.id
        for run in case.source_runs():
            assert compare(run, run.expected) == [], run.id


def test_outputs_come_in_the_order_of_the_graph() -> None:
    for case, model in corpus_cases.iter_models(compact_root()):
        for run in case.runs(model):
            if "runs" not in case.case:
                assert list(run.expected) == case.case["output_order"]


def test_models_are_tagged_by_format_and_pickles_have_none() -> None:
    case = _case("nets/mobilenet_v2_nchw88")
    assert [m.tag for m in case.models()] == ["v1", "v2", "v2nc"]
    assert [m.path.name for m in case.models()] == [
        "model.v1.mge",
        "model.v2.mge",
        "model.v2nc.mge",
    ]
    assert all(c.models() == [] for c in iter_cases(compact_root(), ["pickles"]))


def test_each_run_of_a_container_has_its_graph_and_its_arrays() -> None:
    case = _case("containers/three_graphs")
    runs = case.runs(_model(case, "v1"))
    assert [run.graph_index for run in runs] == [0, 1, 2]
    assert [next(iter(run.expected)) for run in runs] == ["out0", "out1", "out2"]
    assert [run.inputs["data"].shape for run in runs] == [(1, 3, 5 + k, 6) for k in range(3)]
    assert len({run.id for run in runs}) == 3


def test_file_that_computes_something_else_has_its_own_expected_outputs() -> None:
    case = _case("elemwise/mode_clip")
    by_tag = {m.tag: case.runs(m)[0] for m in case.models()}
    assert compare(by_tag["v1"], by_tag["v2nc"].expected) == []
    assert compare(by_tag["v1"], by_tag["v2"].expected) != []


def test_inputs_that_a_format_lacks_are_not_fed() -> None:
    case = _case("elemwise/mode_clip")
    assert "float32_2" in case.runs(_model(case, "v1"))[0].inputs
    assert "float32_2" not in case.runs(_model(case, "v2"))[0].inputs


def test_inputs_that_no_file_asks_for_are_not_fed() -> None:
    case = _case("containers/unused_input")
    assert set(case.arrays("inputs.npz")) == {"a", "b"}
    assert set(case.runs(_model(case, "v1"))[0].inputs) == {"a"}


def test_file_with_an_external_operator_has_no_run() -> None:
    case = _case("containers/extern_opr")
    assert [case.runs(model) for model in case.models()] == [[], []]


def test_model_without_expected_outputs_is_an_error() -> None:
    case = _case("nets/mobilenet_v2_nchw88")
    with pytest.raises(ValueError, match=r"no expected outputs for other\.mge"):
        case.runs(Model(case.path / "other.mge", "v1"))


def test_layout_case_brings_the_graph_before_the_transformation() -> None:
    case = _case("layout/q_hwcd4_conv")
    (run,) = case.source_runs()
    assert run.model.path.name == "source.v1.mge"
    assert run.output_layout is None
    assert case.runs(_model(case, "v1"))[0].output_layout == "NHWCD4"


# ---- compare -----------------------------------------------------------------------------------


def test_outputs_are_matched_by_position_not_by_name() -> None:
    run = _run({"a": [1.0], "b": [2.0]})
    assert compare(run, {"b": np.array([1.0]), "unnamed": np.array([2.0])}) == []
    assert len(compare(run, {"b": np.array([2.0]), "a": np.array([9.0])})) == 2


def test_number_of_outputs_must_agree() -> None:
    assert compare(_run({"a": [1.0], "b": [2.0]}), {"a": np.array([1.0])}) == [
        "expected 2 outputs, got 1"
    ]


def test_shape_and_dtype_must_agree_even_where_values_do() -> None:
    run = _run({"a": np.ones((1, 3), np.float32)})
    assert "shape (1, 3), got (3,)" in compare(run, {"a": np.ones(3, np.float32)})[0]
    assert "dtype float32, got float64" in compare(run, {"a": np.ones((1, 3))})[0]


def test_float_tolerance_is_absolute_plus_relative_to_the_expected_value() -> None:
    run = _run({"a": [10.0, 0.0]})
    assert compare(run, {"a": np.array([11.5, -0.5])}) == []
    (text,) = compare(run, {"a": np.array([11.6, 0.0])})
    assert text == (
        "output 0 'a': 1 of 2 elements differ; worst at (0,): expected 10.0, got 11.6 "
        "(rtol 0.1, atol 0.5)"
    )


def test_float32_is_compared_in_float64() -> None:
    big = np.float32(3e38)
    run = _run({"a": np.array([big])}, tolerance=Tolerance(0.0, 0.0, 0, {}))
    assert compare(run, {"a": np.array([-big])}) != []
    assert compare(run, {"a": np.array([np.nextafter(big, np.float32(0))])}) != []


def test_nan_equals_nan_and_nothing_else() -> None:
    run = _run({"a": [np.nan, 1.0]})
    assert compare(run, {"a": np.array([np.nan, 1.0])}) == []
    assert "at (0,)" in compare(run, {"a": np.array([1.0, 1.0])})[0]
    assert "at (1,)" in compare(run, {"a": np.array([np.nan, np.nan])})[0]


@pytest.mark.parametrize("got", [-np.inf, np.nan, 1e300])
def test_infinity_equals_only_itself(got: float) -> None:
    run = _run({"a": [np.inf]})
    assert compare(run, {"a": np.array([np.inf])}) == []
    assert len(compare(run, {"a": np.array([got])})) == 1
    assert len(compare(_run({"a": [1.0]}), {"a": np.array([np.inf])})) == 1


def test_float16_has_its_own_tolerance() -> None:
    run = _run({"a": np.array([10.0], np.float16)})
    assert compare(run, {"a": np.array([12.0], np.float16)}) == []
    assert compare(run, {"a": np.array([12.1], np.float16)}) != []


def test_tolerance_by_dtype_overrides_that_of_float16() -> None:
    given = {"rtol": 0, "atol": 0, "int_atol": 0, "float16": {"rtol": 1, "atol": 1}}
    case = Case(
        path=compact_root(),
        family="made",
        name="up",
        case={
            "tolerance": given,
            "tolerance_by_dtype": {"float16": {"rtol": 0, "atol": 2}},
            "expected_files": {"model.v1.mge": "absent.npz"},
        },
    )
    (run,) = case.runs(Model(compact_root() / "model.v1.mge", "v1"))
    assert run.tolerance.for_dtype(np.dtype(np.float16)) == (0.0, 2.0)
    assert run.tolerance.for_dtype(np.dtype(np.float32)) == (0.0, 0.0)


def test_integers_are_compared_exactly_whatever_their_width() -> None:
    run = _run({"a": np.array([0, 255], np.uint8)})
    assert compare(run, {"a": np.array([1, 254], np.uint8)}) == []
    assert "1 of 2" in compare(run, {"a": np.array([255, 255], np.uint8)})[0]
    wide = _run({"a": np.array([2**62], np.int64)})
    assert compare(wide, {"a": np.array([2**62 + 2], np.int64)}) != []
    assert compare(wide, {"a": np.array([2**62 + 1], np.int64)}) == []


def test_random_outputs_are_compared_by_shape_and_dtype_only() -> None:
    run = _run({"a": np.zeros((2, 2), np.float32)}, shape_only=True)
    assert compare(run, {"a": np.full((2, 2), 7, np.float32)}) == []
    assert compare(run, {"a": np.zeros((2, 3), np.float32)}) != []


def test_nhwcd4_output_is_compared_as_nchw_without_its_padding() -> None:
    want = np.arange(2 * 6 * 3 * 5, dtype=np.float32).reshape(2, 6, 3, 5)
    padded = np.concatenate([want, np.full((2, 2, 3, 5), 99, np.float32)], axis=1)
    file_layout = padded.reshape(2, 2, 4, 3, 5).transpose(0, 3, 1, 4, 2)
    run = _run({"a": want}, output_layout="NHWCD4")
    assert compare(run, {"a": file_layout}) == []
    assert "shape" in compare(run, {"a": file_layout[:, :, :1]})[0]


def test_unknown_output_layout_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown output_layout 'CHWN4'; known: NHWCD4"):
        compare(_run({"a": [1.0]}, output_layout="CHWN4"), {"a": np.array([1.0])})


def test_wrong_answer_of_megengine_is_told_apart_from_the_expected_one() -> None:
    answers = [
        run
        for case, model in corpus_cases.iter_models(compact_root())
        for run in case.runs(model)
        if run.megengine_answer is not None
    ]
    assert answers
    for run in answers:
        assert run.megengine_answer is not None
        assert compare(run, run.megengine_answer) != [], run.id
