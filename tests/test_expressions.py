from __future__ import annotations

import contextlib
import time

import numpy as np
import pytest

from mgeserial.errors import InputError
from mgeserial.expressions import evaluate

DATA = np.arange(24, dtype=np.uint8).reshape(1, 2, 4, 3)
REAL = DATA.astype(np.float32)

GOOD = {
    "data": DATA,
    "data.astype(np.float32) / 255": REAL / 255,
    "data.astype('float32')": REAL,
    "(data - np.array([103.53, 116.28, 123.68])) / 57.4": (
        (DATA - np.array([103.53, 116.28, 123.68])) / 57.4
    ),
    "np.transpose(data, (0, 3, 1, 2))": DATA.transpose(0, 3, 1, 2),
    "data.transpose(0, 3, 1, 2)": DATA.transpose(0, 3, 1, 2),
    "data[:, :, :, ::-1]": DATA[..., ::-1],
    "data[..., 0]": DATA[..., 0],
    "data[0][np.newaxis]": DATA,
    "data[0, None, 1:]": DATA[0, None, 1:],
    "np.concatenate((data, data), axis=3)": np.concatenate((DATA, DATA), axis=3),
    "np.pad(data, ((0, 0), (1, 1), (0, 0), (0, 0)), 'edge')": np.pad(
        DATA, ((0, 0), (1, 1), (0, 0), (0, 0)), "edge"
    ),
    "np.repeat(data, 2, axis=0)": np.repeat(DATA, 2, axis=0),
    "np.tile(data, (2, 1, 1, 1))": np.tile(DATA, (2, 1, 1, 1)),
    "data @ np.ones((3, 2))": DATA @ np.ones((3, 2)),
    "np.dot(data, np.eye(3))": DATA @ np.eye(3),
    "np.where(data > 3, data, 0)": np.where(DATA > 3, DATA, 0),
    "data.mean(axis=(1, 2), keepdims=True)": DATA.mean(axis=(1, 2), keepdims=True),
    "-np.float32(data) ** 2": -(REAL**2),
    "data.shape[1] * data": DATA * 2,
    "np.stack([data, data])": np.stack([DATA, DATA]),
    "np.full(data.shape, 1.5) + np.pi": np.full(DATA.shape, 1.5) + np.pi,
    "np.clip(data, 2, 5)": np.clip(DATA, 2, 5),
    "data.max()": np.asarray(23, np.uint8),
    "data.T": DATA.T,
    "np.arange(2, 8, 2)": np.arange(2, 8, 2),
    "np.linspace(0, 1, 5)": np.linspace(0, 1, 5),
    "data[np.array([0, 0])]": DATA[[0, 0]],
    "2 ** 10": np.asarray(1024),
    "(data > 3) & (data < 9)": (DATA > 3) & (DATA < 9),
    "~(data > 3)": ~(DATA > 3),
    "np.matmul(np.ones((5, 1, 2)), np.ones((2, 3)))": np.full((5, 1, 3), 2.0),
}


@pytest.mark.parametrize("text", GOOD)
def test_expressions_have_the_values_of_numpy(text):
    found = evaluate(text, DATA)
    assert found.dtype == GOOD[text].dtype
    assert np.array_equal(found, GOOD[text])


def test_data_is_not_changed_and_cannot_be():
    data = DATA.copy()
    result = evaluate("np.sort(data + 1)", data)
    assert np.array_equal(data, DATA)
    assert data.flags.writeable
    result[0] = 0
    assert np.array_equal(data, DATA)


CODE = [
    "__import__('os').system('touch stolen')",
    "data.__class__",
    "data.__class__.__mro__",
    "data.base",
    "data.ctypes",
    "data.dtype.type",
    "data.dtype.metadata",
    "data.tofile('stolen')",
    "data.dump('stolen')",
    "data.setflags(write=True)",
    "np.load('x')",
    "np.save('stolen', data)",
    "np.fromfile('x')",
    "np.memmap('x')",
    "np.vectorize(data)",
    "np.frompyfunc(data, 1, 1)",
    "np.apply_along_axis(np.sum, 0, data)",
    "np.lib.format",
    "np.sum.__globals__",
    "np.add.reduce(data)",
    "np.sum(data, out=data)",
    "np.add(data, 1, out=data)",
    "np.sort(data, order='x')",
    "(lambda: 1)()",
    "[x for x in data]",
    "f'{data}'",
    "data if 1 else 2",
    "(y := data)",
    "open('stolen', 'w')",
    "eval('1')",
    "getattr(data, 'tofile')",
    "data and data",
    "not_a_name",
    "np",
    "np.sum",
    "np.sum(*[data])",
    "np.sum(**{'a': data})",
    "{}",
    "b'x'",
    "1j * data",
    "data.real",
    "'text'",
    "None",
    "(data, data)",
    "data.shape",
    "np.array(['a'])",
    "np.array([None])",
    "np.array(data, dtype='object')",
    "data.astype('O')",
    "data.astype('U9')",
    "np.asarray(data, dtype=np.sum)",
    "",
    "data = 1",
    "data; data",
    "data[",
    "import os",
    "yield data",
    "\0",
]


@pytest.mark.parametrize("text", CODE)
def test_what_is_not_of_the_language_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="--input-transform"):
        evaluate(text, DATA.copy())
    assert list(tmp_path.iterdir()) == []


LARGE = [
    "9 ** 9 ** 9",
    "2 ** 64",
    "(2 ** 63) * 2",
    "10 ** 10 * 10 ** 10",
    "'a' * 10 ** 9",
    "[0] * 10 ** 9",
    "(1,) * 10 ** 9",
    "1 << 10 ** 6",
    "np.zeros(10 ** 12)",
    "np.zeros((10 ** 5, 10 ** 5))",
    "np.zeros(shape=(10 ** 5, 10 ** 5))",
    "np.ones(10 ** 10)",
    "np.full((10 ** 10,), 0)",
    "np.eye(10 ** 6)",
    "np.eye(1, 10 ** 12)",
    "np.eye(1, M=10 ** 12)",
    "np.arange(10 ** 15)",
    "np.arange(0, 1, 1e-15)",
    "np.arange(1, step=1e-15)",
    "np.linspace(0, 1, 10 ** 12)",
    "np.linspace(0, 1, num=10 ** 12)",
    "np.repeat(data, 10 ** 10)",
    "np.repeat(data, repeats=10 ** 10)",
    "data.repeat(10 ** 10)",
    "np.tile(data, 10 ** 10)",
    "np.tile(data, reps=(10 ** 5, 10 ** 5))",
    "np.pad(data, 10 ** 9)",
    "np.pad(data, ((0, 0), (0, 10 ** 12), (0, 0), (0, 0)))",
    "np.pad(data, pad_width=10 ** 9)",
    "np.broadcast_to(data, (10 ** 6, 10 ** 6, 10 ** 3, 1, 2, 4, 3))",
    "np.zeros((50000, 1)) + np.zeros((1, 50000))",
    "np.zeros((50000, 1)) > np.zeros((1, 50000))",
    "np.maximum(np.zeros((50000, 1)), np.zeros((1, 50000)))",
    "np.where(np.zeros((50000, 1)), np.zeros((1, 50000)), 0)",
    "np.matmul(np.zeros((50000, 1)), np.zeros((1, 50000)))",
    "np.zeros((50000, 1)) @ np.zeros((1, 50000))",
    "np.dot(np.zeros((50000, 1)), np.zeros((1, 50000)))",
    "np.zeros((3, 50000))[np.zeros((50000,), dtype=np.int64)]",
    "np.zeros(1000)[np.zeros((50000, 50000), dtype=np.int64)]",
    "data" + "[0]" * 150,
    "-" * 295 + "data",
    "data" + ".T" * 140,
    "data" + "+data" * 160,
    "data" + "+data" * 1000,
    "(" * 900 + "data" + ")" * 900,
    "1e400 ** 2 * np.zeros(1e400)",
]


@pytest.mark.parametrize("text", LARGE, ids=range(len(LARGE)))
def test_what_needs_too_much_is_refused_at_once(text):
    start = time.monotonic()
    with pytest.raises(InputError, match="--input-transform"):
        evaluate(text, DATA)
    assert time.monotonic() - start < 2


def test_failures_say_which_part_failed():
    with pytest.raises(InputError, match=r"`data @ data`.*") as caught:
        evaluate("(data @ data) + 1", DATA)
    assert "data @ data" in str(caught.value)
    with pytest.raises(InputError, match=r"`np.load`|np.load is not part"):
        evaluate("1 + np.load('x')", DATA)
    with pytest.raises(InputError, match="no name 'dat': `data` and `np` are known"):
        evaluate("dat / 255", DATA)


def test_random_expressions_raise_errors_of_ours_or_give_arrays():
    rng = np.random.default_rng(5)
    pieces = [
        "data", "np.", "sum", "(", ")", "[", "]", ",", ":", "1", "2.5", "-1", "axis", "=", "+", "*",
        "**", "@", "reshape", ".", "zeros", "T", "shape", "None", "'edge'", "pad", "repeat", "tile",
        "concatenate", "where", ">", "astype", "np.float32", "mean", "transpose", "~", "&", "eye",
    ]  # fmt: skip
    given = 0
    for _ in range(4000):
        text = "".join(pieces[rng.integers(len(pieces))] for _ in range(rng.integers(1, 9)))
        with contextlib.suppress(InputError):
            given += isinstance(evaluate(text, DATA), np.ndarray)
    assert given > 20
