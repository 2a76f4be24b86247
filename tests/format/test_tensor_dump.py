from __future__ import annotations

import numpy as np
import pytest

from mgeserial.dtypes import DTypeEnum
from mgeserial.errors import FormatError, InputError, UnsupportedError
from mgeserial.format.tensor_dump import decode, encode, read_tensor_dump, write_tensor_dump

# One file of `--bin-io-dump`, as MegEngine 1.13.0 wrote it.
REAL = bytes.fromhex(
    "a3000000000000000700000004000000000000000000000000000000000000000000000000000000"
    "7661723d7b69643a312c206c61796f75743a7b3428312920466c6f617433327d2c20466c6f617433322c206f"
    "776e65723a636f6e73747b347d5b305d7b496d6d757461626c6554656e736f727d2c206e616d653a68656164"
    "2e626961732c20736c6f743a302c20436f6d704e6f64652822637075303a30222066726f6d2022637075303a"
    "3022292c20732c20322c20327d206f776e65725f6f70725f696e707574733d7f74abbd194f92bd76faeabc30"
    "d1143d"
)
ARRAYS = [
    (np.arange(6, dtype=np.float32).reshape(1, 2, 3), DTypeEnum.Float32),
    (np.array([[-128, 127]], np.int8), DTypeEnum.QuantizedS8),
    (np.array([0, 255], np.uint8), DTypeEnum.Quantized8Asymm),
    (np.array([[-8, 7, 1], [0, 1, 2]], np.int8), DTypeEnum.QuantizedS4),
    (np.array([15, 0, 3], np.uint8), DTypeEnum.Quantized4Asymm),
    (np.array([True, False]), DTypeEnum.Bool),
    (np.array([1.5], np.float16), DTypeEnum.Float16),
    (np.array([0x3F80], np.uint16), DTypeEnum.BFloat16),
    (np.array([7], np.uint16), DTypeEnum.Uint16),
    (np.zeros((1, 1, 1, 1, 1, 1, 2), np.int32), DTypeEnum.Int32),
    (np.zeros((0,), np.float32), DTypeEnum.Float32),
    (np.zeros((4, 0), np.float32), DTypeEnum.Float32),
    (np.zeros((4, 0, 5), np.float32), DTypeEnum.Float32),
]


def test_file_of_megengine_is_read():
    dump = decode(REAL)
    assert dump.kind is DTypeEnum.Float32
    assert dump.array.shape == (4,)
    np.testing.assert_allclose(
        dump.array, [-0.0837183, -0.0714399, -0.0286839, 0.0363323], rtol=1e-5
    )
    assert dump.name.startswith("var={id:1, layout:{4(1) Float32}")


def test_file_of_megengine_is_written_byte_for_byte():
    dump = decode(REAL)
    assert encode(dump.name, dump.array, dump.kind) == REAL


@pytest.mark.parametrize(("array", "kind"), ARRAYS)
def test_written_tensors_read_back_equal(tmp_path, array, kind):
    path = tmp_path / "run0-var0"
    write_tensor_dump(path, "näme", array, kind)
    dump = read_tensor_dump(path)
    assert (dump.name, dump.kind) == ("näme", kind)
    assert dump.array.shape == array.shape
    assert dump.array.dtype == array.dtype
    assert np.array_equal(dump.array, array)


def test_scalar_gets_its_one_dimension():
    assert decode(encode("s", np.array(2.5, np.float32), DTypeEnum.Float32)).array.shape == (1,)


def test_name_that_is_not_utf_8_survives():
    raw = encode("abc", np.zeros(1, np.int8), DTypeEnum.Int8).replace(b"abc", b"a\xff\xfe")
    dump = decode(raw)
    assert encode(dump.name, dump.array, dump.kind) == raw


@pytest.mark.parametrize("size", [*range(0, 60, 7), len(REAL) - 1])
def test_every_cut_is_a_format_error(size):
    with pytest.raises(FormatError):
        decode(REAL[:size])


def test_wrong_size_names_tensor_and_shape(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(REAL + b"\0")
    with pytest.raises(FormatError, match=r"shape \(4,\) needs 16 bytes, got 17") as caught:
        read_tensor_dump(path)
    assert caught.value.path == str(path)


@pytest.mark.parametrize(
    ("at", "value"), [(0, 0xFFFFFFFF), (8, 0), (8, 0xFFFFFFFF), (8, 33), (12, 0xFFFFFFFF)]
)
def test_absurd_lengths_are_refused_without_allocating(at, value):
    data = REAL[:at] + value.to_bytes(4, "little") + REAL[at + 4 :]
    with pytest.raises(FormatError):
        decode(data)


def test_unknown_dtype_number_is_unsupported():
    with pytest.raises(UnsupportedError, match="dtype number 77"):
        decode(REAL[:4] + (77).to_bytes(4, "little") + REAL[8:])


def test_what_has_no_place_in_the_format_is_unsupported():
    with pytest.raises(UnsupportedError, match="no number for Complex64"):
        encode("x", np.zeros(1, np.complex64), DTypeEnum.Complex64)
    with pytest.raises(UnsupportedError, match="up to 7 dimensions, got 8"):
        encode("x", np.zeros((1,) * 8, np.float32), DTypeEnum.Float32)


def test_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_tensor_dump(tmp_path / "none")
