from __future__ import annotations

import json

import numpy as np
import pytest
from fake_session import tensor

from loadrun.inputs import random_input, random_inputs, resolve_inputs, split_items
from loadrun.session import Session
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import (
    BFLOAT16,
    BOOL,
    COMPLEX64,
    FLOAT16,
    INT8,
    INT32,
    UINT8,
    DType,
    DTypeEnum,
    quantized,
)
from mgeserial.errors import InputError, ShapeError
from mgeserial.ir.types import TensorType
from mgeserial.ops.numerics import bfloat16_to_float32

# Made by numpy 2.4 and checked on every later one: results recorded with a seed stay comparable.
EXPECTED_DATA = [0.2560959, 0.4551986, 0.2122446, 0.1483559]
EXPECTED_BYTES = [65, 116, 54, 37, 97, 86, 200, 202]
TWO = {"data": tensor(1, 3), "rois": tensor(1, 4)}


def test_three_items_in_one_argument_are_three_items():
    types = {n: tensor(1, dtype=INT32) for n in "abc"}
    feeds = resolve_inputs(["a:1;b:22;c:333"], types)
    assert {n: a.tolist() for n, a in feeds.arrays.items()} == {"a": [1], "b": [22], "c": [333]}


def test_items_may_be_repeated_arguments_or_end_in_a_separator():
    assert split_items(["a:1;b:2;", " c:3 ", ""]) == ["a:1", "b:2", "c:3"]


@pytest.mark.parametrize("text", ["1.0", "123", "12.5", "x.1", ""])
def test_short_values_are_not_taken_for_files(text):
    types = {"x": tensor(1)}
    if text in ("x.1", ""):
        with pytest.raises(InputError, match="neither a file nor an array"):
            resolve_inputs([f"x:{text}"], types)
    else:
        assert resolve_inputs([f"x:{text}"], types).arrays["x"].tolist() == [float(text)]


def test_unknown_input_is_an_error_that_names_the_known_ones():
    with pytest.raises(InputError, match="the model has no input `dat`") as caught:
        resolve_inputs(["dat:1"], TWO)
    assert caught.value.hint == (
        "did you mean `data`? the model's inputs: data: Float32 (1, 3); rois: Float32 (1, 4)"
    )


def test_names_may_hold_colons():
    types = {"out:expect": tensor(1), "out": tensor(1)}
    feeds = resolve_inputs(["out:expect:2.5;out:1"], types)
    assert feeds.arrays["out:expect"].tolist() == [2.5]
    assert feeds.arrays["out"].tolist() == [1]


def test_value_without_a_name_is_for_the_only_input_or_for_data(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.ones((1, 3), np.float32))
    assert resolve_inputs([str(path)], {"x": tensor(1, 3)}).arrays["x"].tolist() == [[1, 1, 1]]
    assert resolve_inputs([str(path)], TWO).sources["data"] == str(path)
    with pytest.raises(InputError, match="does not say which input it is for"):
        resolve_inputs([str(path)], {"x": tensor(1, 3), "y": tensor(1, 3)})


def test_syntax_of_an_old_readme_says_what_to_write(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((1, 3), np.float32))
    a = tmp_path / "a.npy"
    with pytest.raises(InputError, match="given twice") as caught:
        resolve_inputs([f"data:{a};{a}"], TWO)
    assert "name:value" in caught.value.hint
    with pytest.raises(InputError, match="no such file") as caught:
        resolve_inputs([f"data:{a}:rois:rois.json"], TWO)
    assert "separate inputs with `;`" in caught.value.hint


def test_json_of_many_inputs_feeds_them_all(tmp_path):
    path = tmp_path / "x.json"
    item = {"shape": [1, 3], "type": "float32", "raw": [1, 2, 3]}
    other = {"shape": [1, 4], "type": "int32", "raw": [1, 2, 3, 4]}
    path.write_text(json.dumps({"data": item, "rois": other}))
    feeds = resolve_inputs([str(path)], TWO)
    assert feeds.arrays["rois"].dtype == np.float32
    assert feeds.sources == {"data": str(path), "rois": str(path)}
    assert resolve_inputs([f"data:{path}"], TWO).sources["rois"] == "random, seed 0"


def test_json_of_one_input_may_be_given_another_name(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"old": {"shape": [1, 3], "type": "int", "raw": [1, 2, 3]}}))
    assert resolve_inputs([f"data:{path}"], TWO).arrays["data"].tolist() == [[1, 2, 3]]


def test_npz_feeds_by_name_or_the_named_one(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, data=np.ones((1, 3)), rois=np.zeros((1, 4)))
    assert resolve_inputs([str(path)], TWO).arrays["rois"].tolist() == [[0, 0, 0, 0]]
    assert resolve_inputs([f"rois:{path}"], TWO).sources["data"] == "random, seed 0"
    np.savez(path, data=np.ones((1, 3)), other=np.zeros((1, 4)))
    with pytest.raises(InputError, match="the model has no input `other`"):
        resolve_inputs([str(path)], TWO)
    with pytest.raises(InputError, match="holds no array `rois`"):
        resolve_inputs([f"rois:{path}"], TWO)


def test_missing_files_and_unknown_kinds_are_told_apart(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        resolve_inputs([f"data:{tmp_path / 'x.npy'}"], TWO)
    (tmp_path / "x.bin").write_bytes(b"1")
    with pytest.raises(InputError, match=r"the kind of .* is not known"):
        resolve_inputs([f"data:{tmp_path / 'x.bin'}"], TWO)
    (tmp_path / "d.npy").mkdir()
    with pytest.raises(InputError, match="is a directory"):
        resolve_inputs([f"data:{tmp_path / 'd.npy'}"], TWO)


def test_expressions_are_never_evaluated():
    with pytest.raises(InputError, match="neither a file nor an array"):
        resolve_inputs(["data:__import__('os').system('true')"], TWO)


def test_inputs_keep_the_models_order():
    assert list(resolve_inputs(["rois:[1,2,3,4]"], TWO).arrays) == ["data", "rois"]


# -- random values -------------------------------------------------------------------------------


def test_random_values_depend_on_seed_and_name_alone():
    first = random_inputs(TWO, seed=1)
    assert np.array_equal(first["data"], random_input("data", TWO["data"], seed=1))
    assert not np.array_equal(first["data"], random_input("data", TWO["data"], seed=2))
    assert not np.array_equal(first["data"], random_input("rois", TWO["data"], seed=1))


def test_random_values_are_the_same_in_every_release():
    found = random_input("data", tensor(4), seed=0)
    np.testing.assert_allclose(found, EXPECTED_DATA, rtol=1e-6)
    found = random_input("data", tensor(8, dtype=UINT8), seed=0)
    assert found.tolist() == EXPECTED_BYTES


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (FLOAT16, 0, 1),
        (INT32, 0, 1),
        (INT8, 0, 1),
        (UINT8, 0, 255),
        (BOOL, 0, 1),
        (DType(DTypeEnum.IntB2), 0, 1),
        (quantized("QuantizedS8", 0.1), -128, 127),
        (quantized("Quantized8Asymm", 0.1, 128), 0, 255),
        (quantized("QuantizedS4", 0.1), -8, 7),
        (quantized("Quantized4Asymm", 0.1, 8), 0, 15),
    ],
)
def test_random_values_fill_the_range_of_their_type(dtype, low, high):
    found = random_input("x", TensorType(dtype, (4000,)))
    assert found.dtype == dtype.storage
    span = (int(found.min()), int(np.ceil(found.max().astype(np.float64))))
    assert span == (low, high)


def test_random_bfloat16_and_complex():
    bits = random_input("x", tensor(100, dtype=BFLOAT16))
    assert bits.dtype == np.uint16
    real = bfloat16_to_float32(bits)
    assert (real >= 0).all()
    assert (real <= 1).all()
    assert len(np.unique(real)) > 50
    assert random_input("x", tensor(3, dtype=COMPLEX64)).dtype == np.complex64


@pytest.mark.parametrize("shape", [None, (None, 3), (1, None)])
def test_unknown_shape_asks_for_the_input(shape):
    with pytest.raises(InputError, match="random values need a known shape") as caught:
        random_input("x", TensorType(INT8, shape))
    assert "--input 'x:file.npy'" in caught.value.hint


def test_huge_random_inputs_are_refused():
    with pytest.raises(InputError, match="more than 4 GiB"):
        random_input("x", tensor(1 << 20, 1 << 20))


def test_rand_item_takes_limits_and_shape():
    found = resolve_inputs(["x:#rand(5,7,2,3)"], {"x": TensorType(UINT8, None)}).arrays["x"]
    assert found.shape == (2, 3)
    assert set(found.ravel().tolist()) <= {5, 6, 7}
    assert resolve_inputs(["x:#rand(-1,1)"], {"x": tensor(50)}).arrays["x"].min() < -0.5


def test_rand_item_takes_the_rest_of_the_shape_from_the_model():
    types = {"x": TensorType(UINT8, (None, 3, 4))}
    assert resolve_inputs(["x:#rand(0,255,2,...)"], types).arrays["x"].shape == (2, 3, 4)
    with pytest.raises(InputError, match="needs a model that declares"):
        resolve_inputs(["x:#rand(0,255,2,...)"], {"x": TensorType(UINT8, None)})


@pytest.mark.parametrize(
    "item",
    [
        "#rand()",
        "#rand(1)",
        "#rand(2,1)",
        "#rand(0,nan)",
        "#rand(0,1,a)",
        "#rand(0,1,-1)",
        "#rand(0,1",
    ],
)
def test_rand_items_that_are_wrong_are_refused(item):
    with pytest.raises(InputError, match="input `x`") as caught:
        resolve_inputs([f"x:{item}"], {"x": tensor(1)})
    assert "#rand(low,high" in caught.value.hint


def test_rand_limits_outside_the_type_are_refused():
    with pytest.raises(InputError, match="has no number from 300"):
        resolve_inputs(["x:#rand(300,400)"], {"x": tensor(1, dtype=UINT8)})


def test_hint_of_unknown_shape_works():
    types = {"x": TensorType(UINT8, None)}
    found = resolve_inputs(["x:#rand(0,1,1,3,224,224)"], types).arrays["x"]
    assert found.shape == (1, 3, 224, 224)


def test_shapes_that_do_not_fit_are_told_beside_those_of_the_file():
    b = GraphBuilder()
    b.output(b.matmul(b.input("x", (2, 3)), np.zeros((3, 4), np.float32)), "y")
    with Session(b.graph(), "reference") as session, pytest.raises(ShapeError) as caught:
        session.run({"x": np.zeros((2, 5), np.float32)})
    assert "; with inputs x (2, 5), where the file has x: Float32 (2, 3)" in str(caught.value)
