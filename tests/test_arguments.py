"""Mistakes of callers of the public API: one error each, that names what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgeserial
from loadrun.session import Session
from loadrun.stats import Stats
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import BFLOAT16, FLOAT32, DTypeEnum, quantized
from mgeserial.errors import GraphError, InputError, MgeError, ShapeError
from mgeserial.format.tensor_dump import load_tensor_binary
from mgeserial.ops.numerics import to_real

_W = np.zeros((4, 3, 3, 3), np.float32)


def _builder(shape: tuple[int, ...] | None) -> tuple[GraphBuilder, mgeserial.Value]:
    b = GraphBuilder()
    return b, b.input("x", shape)


_UNKNOWN: list[Callable[[GraphBuilder, Any], object]] = [
    lambda b, x: b.linear(x, np.zeros((3, 8), np.float32)),
    lambda b, x: b.matmul(x, np.zeros((3, 8), np.float32)),
    lambda b, x: b.flatten(x),
    lambda b, x: b.global_avg_pool2d(x),
    lambda b, x: b.upsample2d(x, 2),
    lambda b, x: b.pixel_shuffle(x, 2),
    lambda b, x: b.reshape_to(x, (-1, 3)),
    lambda b, x: b.shape_of(x),
    lambda b, x: x.type.dims,
    lambda b, x: x.type.rank,
]


@pytest.mark.parametrize("mistake", _UNKNOWN)
def test_what_needs_a_shape_says_so(mistake: Callable[..., object]) -> None:
    with pytest.raises(ShapeError, match="known") as caught:
        mistake(*_builder(None))
    assert "inputs" in (caught.value.hint or "")


_MISTAKES: list[tuple[Callable[[GraphBuilder, Any], object], type[MgeError], str]] = [
    (lambda b, x: b.global_avg_pool2d(b.flatten(x)), ShapeError, r"\(n, c, h, w\)"),
    (lambda b, x: b.upsample2d(b.flatten(x), 2), ShapeError, r"\(n, c, h, w\)"),
    (lambda b, x: b.pixel_shuffle(b.flatten(x), 2), ShapeError, r"\(n, c, h, w\)"),
    (lambda b, x: b.pixel_shuffle(x, 0), InputError, "factor"),
    (lambda b, x: b.upsample2d(x, 1.5), InputError, "factor"),
    (lambda b, x: b.apply("Elemwise", [x], (P.Elemwise(), P.Elemwise())), GraphError, "got 2"),
    (lambda b, x: b.apply("Elemwise", x), GraphError, "are a list"),
    (lambda b, x: b.apply("Elemwise", [x], P.Elemwise()), GraphError, "are a list"),
    (lambda b, x: b.cat(x), GraphError, "are a list"),
    (lambda b, x: b.add(x, [[1], [1, 2]]), InputError, "same length"),
    (lambda b, x: b.add(x, "abc"), InputError, "an operand is"),
    (lambda b, x: b.add(x, None), InputError, "an operand is"),
    (lambda b, x: b.add(x, 2**70), InputError, "32 bits"),
    (lambda b, x: b.leaky_relu(x, "a"), InputError, "an operand is"),
    (lambda b, x: b.conv2d(x, _W, stride=(1, 2, 3)), InputError, "stride are 2 whole numbers"),
    (lambda b, x: b.conv2d(x, _W, stride=1.5), InputError, "stride is a whole number"),
    (lambda b, x: b.conv2d(x, _W, stride="22"), InputError, "stride are 2 whole numbers"),
    (lambda b, x: b.pool2d(x, 2, mode=None), InputError, "PoolingV0Mode"),
    (lambda b, x: b.reshape_to(x, 5), InputError, "dimensions are"),
    (lambda b, x: b.reshape_to(x, (None, 3)), InputError, "dimensions"),
    (lambda b, x: b.reshape_to(x, (2**40, 3)), InputError, "does not fit Int32"),
    (lambda b, x: b.split_sizes(x, 3), InputError, "sizes are"),
    (lambda b, x: b.input("y", 5), InputError, "dimensions are"),
    (lambda b, x: b.input("y", ("n", 3)), InputError, "dimensions"),
    (lambda b, x: b.input("y", (1.5, 3)), InputError, "dimensions"),
    (lambda b, x: b.input(None, (1, 3)), InputError, "by a name"),
    (lambda b, x: b.output(x, 5), InputError, "by a name"),
    (lambda b, x: b.const(1.5, dtype="int32"), InputError, "does not fit Int32: 1.5"),
    (lambda b, x: b.param([np.nan], dtype="int32"), InputError, "does not fit Int32: nan"),
    (lambda b, x: b.param([300.0], dtype="uint8"), InputError, "does not fit Uint8"),
    (lambda b, x: b.param([1 + 2j], dtype="float32"), InputError, "complex"),
]


@pytest.mark.parametrize(("mistake", "kind", "text"), _MISTAKES)
def test_mistakes_while_building(
    mistake: Callable[..., object], kind: type[MgeError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        mistake(*_builder((2, 4, 8, 8)))


def test_numbers_of_numpy_are_whole_numbers() -> None:
    b, x = _builder((2, 3, 8, 8))
    y = b.conv2d(x, _W, stride=np.int64(2), padding=np.array([1, 1]))
    assert b.shape_of(y) == (2, 4, 4, 4)
    assert b.shape_of(b.layer_norm_last(y, [1.0] * 4, b.param([0.0] * 4))) == (2, 4, 4, 4)


def test_numbers_become_bfloat16_and_its_bits_stay() -> None:
    b, _ = _builder((1,))
    given = [1.1, -2.0, 3.0]
    stored = b.param(given, dtype="BFloat16").node.tensors[0].numpy()
    np.testing.assert_allclose(to_real(stored, BFLOAT16), given, rtol=2**-8)
    again = b.param(stored, dtype="BFloat16").node.tensors[0].numpy()
    np.testing.assert_array_equal(again, stored)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([8], quantized("QuantizedS4", 0.1)), ([0], mgeserial.dtypes.DType(DTypeEnum.IntB1))],
)
def test_types_of_few_bits_are_checked_when_a_tensor_is_made(values, dtype) -> None:
    with pytest.raises(InputError, match="holds"):
        mgeserial.Tensor.of(np.array(values, np.int8), dtype)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("Float32", 0.1), "not a quantised type"),
        (("Quantised8", 0.1), "not a quantised type"),
        (("Quantized8Asymm", 0.1), "needs a zero point"),
        (("QuantizedS8", 0.1, 3), "no zero point"),
    ],
)
def test_quantised_types_say_what_they_need(args: tuple[Any, ...], text: str) -> None:
    with pytest.raises(InputError, match=text):
        quantized(*args)


def test_tensors_are_made_of_arrays() -> None:
    for array, dtype in (([1.0], FLOAT32), (np.ones(1, np.float32), "float32")):
        with pytest.raises(InputError, match="numpy array and a DType"):
            mgeserial.Tensor.of(array, dtype)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        (lambda g: g.add("Relu", []), "record is needed, got 'Relu'"),
        (lambda g: g.set_outputs(g.outputs), "are Output objects"),
        (lambda g: g.set_tensors(g.nodes[0], (np.ones(3),)), "are Tensor objects"),
    ],
)
def test_mistakes_with_graphs(mistake: Callable[[Any], object], text: str) -> None:
    b, x = _builder((3,))
    b.output(b.relu(x), "y")
    with pytest.raises(GraphError, match=text):
        mistake(b.graph())


def test_saving_nothing() -> None:
    with pytest.raises(InputError, match="got Model without graphs"):
        mgeserial.dumps(mgeserial.Model())
    with pytest.raises(InputError, match="got NoneType"):
        mgeserial.dumps(None)  # type: ignore[arg-type]


def test_paths_may_be_bytes_in_errors() -> None:
    assert str(InputError("no such file", path=b"a.mge")) == "a.mge: no such file"
    with pytest.raises(MgeError, match="a tensor dump starts with"):
        load_tensor_binary(b"xx")  # type: ignore[arg-type]


def _session(**options: Any) -> Session:
    b, x = _builder((2, 3))
    b.output(b.relu(x), "y")
    return Session(b.graph(), "reference", **options)


_X = np.zeros((2, 3), np.float32)
_READ_ONLY = np.broadcast_to(np.float32(0), (2, 3))


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        (lambda: _session(threads="2"), "threads is a whole number from 1"),
        (lambda: _session(threads=0), "threads is a whole number from 1"),
        (lambda: _session(options={"threads": 1}), "CompileOptions"),
        (lambda: Session(mgeserial.Model(), graph="a"), "number of a graph is a whole number"),  # type: ignore[arg-type]
        (lambda: _session().run([_X], out=[_X]), "by output name"),
        (lambda: _session().run([_X], out={"y": [1]}), "numpy array"),
        (lambda: _session().run([_X], out={"y": _READ_ONLY}), "cannot be written"),
        (lambda: _session().benchmark(-1), "runs is a whole number from 0"),
        (lambda: _session().benchmark("5"), "runs is a whole number from 0"),
        (lambda: _session().benchmark(1, "500ms"), "warm-up runs is a whole number"),
        (lambda: _session().benchmark(1, -1), "warm-up runs is a whole number"),
        (lambda: _session().profile([_X], repeat=0), "repeat is a whole number from 1"),
        (lambda: Stats((1, 2)).percentile_ns(200), "0 to 100"),
        (lambda: Stats((1, 2)).percentile_ns("a"), "0 to 100"),  # type: ignore[arg-type]
        (lambda: Stats((1, 2)).percentile_ns(float("nan")), "0 to 100"),
    ],
)
def test_mistakes_with_sessions(mistake: Callable[[], object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        mistake()


def test_threads_of_numpy() -> None:
    assert _session(threads=np.int64(1)).threads == 1
