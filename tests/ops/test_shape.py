from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from op_calls import apply_one, apply_op, make_call

from mgeserial import params as P
from mgeserial.dtypes import INT8, INT32, DTypeEnum, quantized
from mgeserial.errors import ShapeError, UnsupportedError
from mgeserial.ir.types import ShapeLike, TensorType

small = hnp.arrays(np.int32, hnp.array_shapes(min_dims=1, max_dims=4, max_side=4))


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def inferred(name: str, *shapes: ShapeLike, **options: object) -> list[ShapeLike]:
    """What the shape rule says of inputs whose shapes may be partly unknown."""
    arrays = [np.zeros(1, np.int32)] * len(shapes)
    call = make_call(name, *arrays, **options)  # type: ignore[arg-type]
    types = tuple(TensorType(INT32, s) for s in shapes)
    rule = call.op.shapes
    assert rule is not None
    values = options.get("values", ())
    return list(rule(call.replace(inputs=types, values=values)))


def test_reshape_infers_the_dimension_of_its_axis() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    y = apply_one("Reshape", x, ints(4, -1, 2), param=P.OptionalAxisV1(axis=1))
    np.testing.assert_array_equal(y, x.reshape(4, 3, 2))
    assert apply_one("Reshape", x, ints(24), param=P.OptionalAxisV1()).shape == (24,)


def test_reshape_says_which_element_counts_differ() -> None:
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ShapeError, match=r"shape \(2, 3\) has 6 elements, the wanted \(4,\) 4"):
        apply_one("Reshape", x, ints(4), param=P.OptionalAxisV1())
    with pytest.raises(ShapeError, match=r"6 elements of shape .* do not divide by the 4"):
        apply_one("Reshape", x, ints(4, -1), param=P.OptionalAxisV1(axis=1))
    with pytest.raises(ShapeError, match="below zero"):
        apply_one("Reshape", x, ints(-1), param=P.OptionalAxisV1())


def test_a_shape_operand_of_known_length_gives_a_rank() -> None:
    assert inferred("Reshape", (2, 3), (3,), param=P.OptionalAxisV1()) == [(None, None, None)]
    assert inferred("Broadcast", (None, 3), (2,), param=P.Empty()) == [(None, None)]


@pytest.mark.parametrize("shape", [(2, None, 4), None])
def test_reshape_keeps_what_is_known_of_a_partly_known_input(shape: ShapeLike) -> None:
    call = make_call("Reshape", ints(0), ints(5, 9), param=P.OptionalAxisV1(axis=1))
    rule = call.op.shapes
    assert rule is not None
    call = call.replace(inputs=(TensorType(INT32, shape), call.inputs[1]))
    assert list(rule(call)) == [(5, None)]


@given(small, st.data())
def test_broadcast_is_numpys(x: np.ndarray, data: st.DataObject) -> None:
    lead = data.draw(st.lists(st.integers(1, 3), max_size=2))
    kept = [n if n > 1 else data.draw(st.integers(1, 3)) for n in x.shape]
    shape = (*lead, *kept)
    y = apply_one("Broadcast", x, ints(*shape), param=P.Empty())
    np.testing.assert_array_equal(y, np.broadcast_to(x, shape))


def test_broadcast_refuses_other_sizes_and_lower_ranks() -> None:
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ShapeError, match=r"\(2, 3\) does not broadcast to \(2, 4\)"):
        apply_one("Broadcast", x, ints(2, 4), param=P.Empty())
    with pytest.raises(ShapeError, match="more dimensions than its target"):
        apply_one("Broadcast", x, ints(3), param=P.Empty())


def test_an_absurd_shape_operand_is_refused_before_any_memory_is_taken() -> None:
    with pytest.raises(ShapeError, match="too large"):
        apply_one("Broadcast", ints(1), ints(2**20, 2**20, 2), param=P.Empty())
    with pytest.raises(ShapeError, match="at most 7 fit"):
        apply_one("Broadcast", ints(1), ints(*[1] * 8), param=P.Empty())
    nan = np.array([np.nan], np.float32)
    with pytest.raises(ShapeError, match="sensible size"):
        apply_one("Broadcast", ints(1), nan, param=P.Empty())


@given(small, st.data())
def test_dimshuffle_permutes_and_adds_axes(x: np.ndarray, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(x.ndim)))
    place = data.draw(st.integers(0, x.ndim))
    pattern = (*order[:place], -1, *order[place:])
    y = apply_one("Dimshuffle", x, param=P.Dimshuffle(pattern=pattern, ndim=x.ndim))
    np.testing.assert_array_equal(y, np.expand_dims(x.transpose(order), place))


def test_dimshuffle_drops_axes_of_length_one_only() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 1, 3)
    y = apply_one("Dimshuffle", x, param=P.Dimshuffle(pattern=(2, 0), ndim=3))
    np.testing.assert_array_equal(y, x[:, 0].T)
    with pytest.raises(ShapeError, match="axis 2 of length 3 cannot be dropped"):
        apply_one("Dimshuffle", x, param=P.Dimshuffle(pattern=(0, 1), ndim=3))
    with pytest.raises(ShapeError, match=r"the pattern \(0, 0\) does not fit 3 dimensions"):
        apply_one("Dimshuffle", x, param=P.Dimshuffle(pattern=(0, 0), ndim=3))
    assert inferred("Dimshuffle", (None, 1, 3), param=P.Dimshuffle(pattern=(2, -1, 0))) == [
        (3, 1, None)
    ]


def axes(*items: tuple[str, int]) -> P.AxisAddRemove:
    methods = {"add": P.AxisDescMethod.ADD_1, "remove": P.AxisDescMethod.REMOVE}
    return P.AxisAddRemove(desc=tuple(P.AxisDesc(method=methods[m], axis=a) for m, a in items))


def test_axes_are_added_and_removed_one_after_another() -> None:
    x = np.zeros((1, 3), np.float32)
    assert apply_one("AxisAddRemove", x, param=axes(("add", -1), ("remove", 0))).shape == (3, 1)
    assert apply_one("AxisAddRemove", x[0, :1], param=axes(("remove", 0))).shape == (1,)
    with pytest.raises(ShapeError, match="axis 1 of length 3 cannot be removed"):
        apply_one("AxisAddRemove", x, param=axes(("remove", 1)))


@given(small, st.data())
def test_split_undoes_concat(x: np.ndarray, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    param = P.Axis(axis=axis)
    cut = data.draw(st.integers(0, x.shape[axis]))
    sizes = ints(cut), ints(x.shape[axis] - cut)
    parts = apply_op("Split", x, *sizes, param=param, count=2)
    assert parts[0].shape[axis] == cut
    np.testing.assert_array_equal(apply_one("Concat", *parts, param=param), x)


def test_concat_merges_what_is_known() -> None:
    param = P.Axis(axis=1)
    assert inferred("Concat", (None, 2, 3), (5, 4, None), param=param) == [(5, 6, 3)]
    assert inferred("Concat", (5, None), (5, 4), param=param) == [(5, None)]
    assert inferred("Concat", (5, 1), None, param=param) == [(5, None)]


def test_concat_and_split_say_what_does_not_fit() -> None:
    x, y = np.zeros((2, 3), np.float32), np.zeros((3, 3), np.float32)
    with pytest.raises(ShapeError, match="differ outside axis 1"):
        apply_one("Concat", x, y, param=P.Axis(axis=1))
    codes = np.zeros(2, np.int8)
    with pytest.raises(ShapeError, match="all inputs must be QuantizedS8"):
        apply_one("Concat", codes, codes, dtypes=(quantized("QuantizedS8", 0.5), INT8))
    with pytest.raises(ShapeError, match=r"sizes \[1, 1\] do not add up to axis 0 of length 3"):
        apply_op("Split", y, ints(1), ints(1), param=P.Axis(), count=2)
    with pytest.raises(ShapeError, match="below zero"):
        apply_op("Split", y, ints(-1), ints(4), param=P.Axis(), count=2)


def test_shape_of_values_is_that_of_their_broadcast() -> None:
    a, b = np.zeros((2, 1), np.float32), np.zeros((1, 3), np.float32)
    np.testing.assert_array_equal(apply_one("GetVarShape", a, b, param=P.OptionalAxisV1()), [2, 3])
    last = P.OptionalAxisV1(axis=-1)
    np.testing.assert_array_equal(apply_one("GetVarShape", a, b, param=last), [3])
    with pytest.raises(ShapeError, match="axis 2 is outside a tensor of 2 dimensions"):
        apply_one("GetVarShape", a, param=P.OptionalAxisV1(axis=2))


def test_linspace_reaches_its_end_only_when_asked() -> None:
    ends = np.array([1], np.float32), np.array([2], np.float32)
    y = apply_one("Linspace", *ends, ints(5), param=P.Linspace())
    np.testing.assert_array_equal(y, np.float32([1, 1.25, 1.5, 1.75, 2]))
    open_ = P.Linspace(endpoint=False)
    np.testing.assert_array_equal(apply_one("Linspace", *ends, ints(2), param=open_), [1, 1.5])
    number = np.array([2.0], np.float32)
    assert apply_one("Linspace", *ends, number, param=P.Linspace()).shape == (2,)
    with pytest.raises(ShapeError, match="number of points must be above zero"):
        apply_one("Linspace", *ends, ints(0), param=P.Linspace())


def test_identity_matrices_have_the_type_of_their_parameter() -> None:
    y = apply_one("Eye", ints(2, 3), param=P.Eye(k=1, dtype=DTypeEnum.Int8))
    np.testing.assert_array_equal(y, np.eye(2, 3, 1, dtype=np.int8))
    assert apply_one("Eye", ints(2), param=P.Eye()).shape == (2, 2)
    bits = apply_one("Eye", ints(1), param=P.Eye(dtype=DTypeEnum.BFloat16))
    assert bits[0, 0] == 0x3F80
    with pytest.raises(UnsupportedError, match="needs a scale"):
        apply_one("Eye", ints(1), param=P.Eye(dtype=DTypeEnum.QuantizedS8))


@pytest.mark.parametrize("shape", [(3,), (3, 4), (4, 2)])
@pytest.mark.parametrize("k", [-1, 0, 1])
def test_gradient_of_diag_is_its_adjoint(shape: tuple[int, ...], k: int) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal(shape).astype(np.float32)
    y = apply_one("Diag", x, param=P.Diag(k=k))
    g = random.standard_normal(y.shape).astype(np.float32)
    dx = apply_one("DiagBackward", ints(*shape), g, param=P.Diag(k=k))
    assert dx.shape == shape
    np.testing.assert_allclose((dx * x).sum(), (g * y).sum(), rtol=1e-5)


def test_a_matrix_without_that_diagonal_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"a matrix of shape \(2, 3\) has no diagonal 3"):
        apply_one("Diag", np.zeros((2, 3), np.float32), param=P.Diag(k=3))


def test_storage_that_nothing_defines_is_zero() -> None:
    y = apply_one("Alloc", ints(2, 2), param=P.DType(dtype=DTypeEnum.Int16))
    np.testing.assert_array_equal(y, np.zeros((2, 2), np.int16))
