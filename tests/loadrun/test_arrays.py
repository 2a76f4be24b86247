from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest

from loadrun.arrays import fit, looks_like_text, parse_text, read_json, read_npy, read_npz
from mgeserial.dtypes import BFLOAT16, BOOL, FLOAT16, FLOAT32, INT8, INT32, UINT8, quantized
from mgeserial.errors import InputError
from mgeserial.ir.types import TensorType
from mgeserial.ops.numerics import bfloat16_to_float32


def typed(dtype, *shape):
    return TensorType(dtype, shape or None)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "?", "c8"])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("fortran", [False, True])
def test_npy_of_any_type_byte_order_and_memory_order(tmp_path, dtype, order, fortran):
    values = np.arange(6).reshape(2, 3).astype(np.dtype(dtype).newbyteorder(order))
    path = tmp_path / "x.npy"
    np.save(path, np.asfortranarray(values) if fortran else values)
    found = read_npy(str(path))
    assert found.shape == (2, 3)
    assert np.array_equal(found, values)


def test_npy_whose_header_promises_more_than_the_file_is_refused(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((4, 5), np.float32))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"(4, 5), ", b"(99999,),"))
    with pytest.raises(InputError, match=r"shape \(99999,\) of float32 needs 399996 bytes"):
        read_npy(str(path))
    path.write_bytes(whole.replace(b"(4, 5), ", b"(9999999,"))
    with pytest.raises(InputError, match=r"not a readable \.npy"):
        read_npy(str(path))
    path.write_bytes(whole[:-1])
    with pytest.raises(InputError, match="needs 80 bytes, 79 follow the header"):
        read_npy(str(path))


def test_npy_of_python_objects_is_never_unpickled(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match="not numbers"):
        read_npy(str(path))


@pytest.mark.parametrize(
    "content", [b"", b"\x93NUMPY", b"not an array at all", b"\x93NUMPY\x09\x00"]
)
def test_bytes_that_are_no_npy_are_refused(tmp_path, content):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"\.npy"):
        read_npy(str(path))


def test_empty_npy_arrays_are_read(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((0, 3), np.float32))
    assert read_npy(str(path)).shape == (0, 3)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_gives_arrays_by_name(tmp_path, save):
    path = tmp_path / "x.npz"
    save(path, a=np.ones(3), b=np.zeros((2, 2), np.int8))
    found = read_npz(str(path))
    assert {n: (a.shape, a.dtype.str) for n, a in found.items()} == {
        "a": ((3,), "<f8"),
        "b": ((2, 2), "|i1"),
    }


def test_npz_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.zeros(100_000))
    monkeypatch.setattr("mgeserial.arrayfiles.MAX_BYTES", 10_000)
    with pytest.raises(InputError, match="unpacks to more than"):
        read_npz(str(path))


def test_damaged_npz_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.arange(1000))
    data = bytearray(path.read_bytes())
    data[80:120] = bytes(40)
    path.write_bytes(bytes(data))
    with pytest.raises(InputError, match=r"\.npz"):
        read_npz(str(path))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"junk")
    with pytest.raises(InputError, match=r"x\.npz\[a\]"):
        read_npz(str(path))


def as_json(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("float32", "f4"),
        ("float", "f4"),
        ("int32", "i4"),
        ("int", "i4"),
        ("int8", "i1"),
        ("uint8", "u1"),
        ("float16", "f2"),
        ("uint16", "u2"),
        ("int64", "i8"),
        ("bool", "?"),
    ],
)
def test_json_of_load_and_run(tmp_path, name, dtype):
    item = {"shape": [1, 3], "type": name, "raw": [1, 0, 1]}
    found = read_json(as_json(tmp_path, {"data": item}))
    assert found["data"].dtype == np.dtype(dtype)
    assert np.array_equal(found["data"], [[1, 0, 1]])


def test_json_with_a_bare_list_is_one_array(tmp_path):
    assert np.array_equal(read_json(as_json(tmp_path, [[1, 2], [3, 4]])), [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not readable as JSON"),
        ("{}", "one object a named input"),
        ("3", "one object a named input"),
        ({"a": {"shape": [2], "type": "int8"}}, 'needs "shape", "type" and "raw"'),
        ({"a": {"shape": [2], "type": "int8", "raw": [1]}}, r"shape \(2,\) needs 2 numbers"),
        ({"a": {"shape": [-1], "type": "int8", "raw": [1]}}, "whole numbers from 0"),
        ({"a": {"shape": [1.5], "type": "int8", "raw": [1]}}, "whole numbers from 0"),
        ({"a": {"shape": "2", "type": "int8", "raw": [1]}}, '"shape" is a list'),
        ({"a": {"shape": [1], "type": "float99", "raw": [1]}}, '"type" is float32'),
        ({"a": {"shape": [1], "type": "O", "raw": [1]}}, "type of real numbers"),
        ({"a": {"shape": [1], "type": 7, "raw": [1]}}, '"type" is'),
        ({"a": {"shape": [1], "type": "int8", "raw": [300]}}, "300 at .* is not in -128 to 127"),
        ({"a": {"shape": [1], "type": "int8", "raw": [0.5]}}, "not a whole number"),
        ({"a": {"shape": [1], "type": "int8", "raw": ["x"]}}, "expected a number"),
        ({"a": {"shape": [1], "type": "int8", "raw": [10**30]}}, "beyond 64 bits"),
        ("[" * 100_000 + "]" * 100_000, "not readable as JSON|nested"),
    ],
)
def test_json_that_is_wrong_says_how(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        read_json(as_json(tmp_path, content))


@pytest.mark.parametrize(
    ("text", "shape", "expected"),
    [
        ("1", (1,), [1]),
        ("1,2", None, [1, 2]),
        ("1.0", (1,), [1.0]),
        ("12.5", (1,), [12.5]),
        ("123", (1,), [123]),
        ("[0,0,4,4]", None, [[0, 0, 4, 4]]),
        ("[0,0,4,4]", (1, 4), [[0, 0, 4, 4]]),
        ("[0,0,4,4]", (4,), [0, 0, 4, 4]),
        ("[[1,2],[3,4]]", (2, 2), [[1, 2], [3, 4]]),
        ("[[1,2],[3,4]]", (1, 2, 2), [[[1, 2], [3, 4]]]),
        ("[[1,2],[3,4]]", (None, 2), [[1, 2], [3, 4]]),
        ("[1e-3, .5, 2., -1]", (4,), [0.001, 0.5, 2.0, -1.0]),
        ("[+1, inf, -inf]", (3,), [1, np.inf, -np.inf]),
    ],
)
def test_written_out_arrays(text, shape, expected):
    found = parse_text(text, shape)
    assert np.array_equal(found, expected)
    assert found.shape == np.shape(expected)


def test_written_out_arrays_are_whole_unless_a_point_occurs():
    assert parse_text("[1,2]", None).dtype.kind == "i"
    assert parse_text("[1,2.]", None).dtype.kind == "f"


@pytest.mark.parametrize("text", ["[1", "1]", "[[1,2],[3]]", "1,,2", "[" * 5000, "[]]", "[1 2]"])
def test_written_out_arrays_that_are_wrong_are_refused(text):
    with pytest.raises(InputError, match="is not an array"):
        parse_text(text, None)


@pytest.mark.parametrize("text", ["a.ppm", "x.npy", "cat", "1;rm", "__import__('os')"])
def test_what_is_no_array_does_not_look_like_one(text):
    assert not looks_like_text(text)


@pytest.mark.parametrize("text", ["1.0", "12.5", "123", "[[1, 2]]", "-1e5", "nan", "[inf]"])
def test_what_is_an_array_looks_like_one(text):
    assert looks_like_text(text)


@pytest.mark.parametrize("given", ["f2", "f4", "f8", ">f4", "i1", "i8", "u2", "?"])
def test_numbers_fit_float_inputs(given):
    found = fit("x", np.ones((2, 2), given), typed(FLOAT32))
    assert found.dtype == np.float32
    assert found.flags.c_contiguous


def test_whole_floats_fit_integer_inputs_and_others_do_not():
    assert fit("x", np.array([1.0, 255.0]), typed(UINT8)).tolist() == [1, 255]
    with pytest.raises(
        InputError, match=r"input `x` takes Uint8: 256\.0 at \[1\] is not in 0 to 255"
    ):
        fit("x", np.array([1.0, 256.0]), typed(UINT8))
    with pytest.raises(InputError, match=r"1\.5 at \[0\] is not a whole number"):
        fit("x", np.array([1.5]), typed(INT8))
    with pytest.raises(InputError, match="nan at"):
        fit("x", np.array([np.nan]), typed(INT8))


def test_float32_just_beyond_int32_does_not_wrap():
    with pytest.raises(InputError, match="is not in"):
        fit("x", np.array([2147483648.0], np.float32), typed(INT32))


def test_overflow_of_float16_is_an_error_and_infinity_is_not():
    with pytest.raises(InputError, match="is beyond float16"):
        fit("x", np.array([1e6]), typed(FLOAT16))
    assert np.isinf(fit("x", np.array([np.inf]), typed(FLOAT16)))[0]


def test_quantised_inputs_take_codes_or_real_numbers():
    q = typed(quantized("QuantizedS8", 0.5))
    assert fit("x", np.array([1, -128], np.int64), q).tolist() == [1, -128]
    assert fit("x", np.array([1.0, -64.0]), q).tolist() == [2, -128]
    with pytest.raises(InputError, match="128 at"):
        fit("x", np.array([128]), q)


def test_4_bit_codes_have_4_bits():
    q = typed(quantized("Quantized4Asymm", 1.0, 3))
    assert fit("x", np.array([15]), q).dtype == np.uint8
    with pytest.raises(InputError, match="is not in 0 to 15"):
        fit("x", np.array([16]), q)


def test_bfloat16_inputs_take_numbers_or_bits():
    values = np.array([1.0, -2.5], np.float32)
    bits = fit("x", values, typed(BFLOAT16))
    assert bits.dtype == np.uint16
    assert np.array_equal(bfloat16_to_float32(bits), values)
    assert fit("x", bits, typed(BFLOAT16)) is not None
    assert np.array_equal(fit("x", bits, typed(BFLOAT16)), bits)


def test_bool_inputs_take_0_and_1():
    assert fit("x", np.array([0, 1]), typed(BOOL)).dtype == np.bool_
    with pytest.raises(InputError, match="2 at"):
        fit("x", np.array([2]), typed(BOOL))


def test_scalars_get_their_one_dimension():
    assert fit("x", np.array(3.0), typed(FLOAT32)).shape == (1,)
