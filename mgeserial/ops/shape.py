"""Shapes changed or read without a change of elements: reshape, broadcast, axes, concat, split.

Shape rules take partly known shapes. Results are views of the input where numpy allows it.
"""

from __future__ import annotations

import math

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import INT32, Array, DType
from mgeserial.ir.types import Call, Shape, ShapeLike, TensorType, static
from mgeserial.ops import counts
from mgeserial.ops.operands import MAX_RANK, dims, during, number, ruled_shape
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import broadcast_shapes, dtype_of, fixed_dtype, need, normal_axis

_NO_AXIS = MAX_RANK  # OptionalAxisV1: the number that stands for "none"


def _reshape_shapes(call: Call) -> list[ShapeLike]:
    inferred = None if call.param.axis == _NO_AXIS else int(call.param.axis)
    wanted, given = dims(call, 1, ignored=inferred), call.inputs[0].shape
    if wanted is None:
        return [None]
    if inferred is not None and static(given):
        wanted = _with_inferred(wanted, normal_axis(inferred, len(wanted)), call.shape(0))
    if static(wanted) and static(given):
        want, have = TensorType(call.dtype(0), wanted).size, call.inputs[0].size
        need(
            want == have,
            f"shape {given} has {have} elements, the wanted {wanted} {want}: no reshape",
        )
    return [wanted]


def _with_inferred(
    wanted: tuple[int | None, ...], axis: int, given: Shape
) -> tuple[int | None, ...]:
    """The wanted shape with dimension `axis` filled in where all others are known."""
    others = [n for i, n in enumerate(wanted) if i != axis]
    if any(n is None for n in others):
        return wanted
    rest, size = math.prod(n or 0 for n in others), math.prod(given)
    need(
        rest > 0 and size % rest == 0,
        f"{size} elements of shape {given} do not divide by the {rest} of the other dimensions",
    )
    return (*wanted[:axis], size // rest, *wanted[axis + 1 :])


def _reshape(call: Call, x: Array, shape: Array) -> Array:
    return x.reshape(ruled_shape(call, x, shape))


def _broadcast_shapes(call: Call) -> list[ShapeLike]:
    wanted, given = dims(call, 1), call.inputs[0].shape
    if wanted is None or given is None:
        return [wanted]
    need(len(given) <= len(wanted), f"shape {given} has more dimensions than its target {wanted}")
    for have, want in zip(reversed(given), reversed(wanted), strict=False):
        need(
            have in (1, None, want) or want is None,
            f"shape {given} does not broadcast to {wanted}",
        )
    return [wanted]


def _broadcast(call: Call, x: Array, shape: Array) -> Array:
    return np.broadcast_to(x, ruled_shape(call, x, shape))


def _dimshuffle_shapes(call: Call) -> list[ShapeLike]:
    pattern, given = call.param.pattern, call.inputs[0].shape
    need(len(pattern) > 0, "the pattern has no entries")
    if given is None:
        return [(None,) * len(pattern)]
    rank = len(given)
    need(
        call.param.ndim in (0, rank),
        f"the pattern is for {call.param.ndim} dimensions, got shape {given}",
    )
    used = [axis for axis in pattern if axis != -1]
    need(
        all(0 <= axis < rank for axis in used) and len(set(used)) == len(used),
        f"the pattern {tuple(pattern)} does not fit {rank} dimensions",
    )
    for axis in set(range(rank)) - set(used):
        need(given[axis] in (1, None), f"axis {axis} of length {given[axis]} cannot be dropped")
    return [tuple(1 if axis == -1 else given[axis] for axis in pattern)]


def _dimshuffle(call: Call, x: Array) -> Array:
    shape = ruled_shape(call, x)
    used = [axis for axis in call.param.pattern if axis != -1]
    dropped = sorted(set(range(x.ndim)) - set(used))
    return x.transpose(*dropped, *used).reshape(shape)


def _add_remove_shapes(call: Call) -> list[ShapeLike]:
    given = call.inputs[0].shape
    if given is None:
        return [None]
    shape = list(given)
    for item in call.param.desc:
        if item.method == P.AxisDescMethod.ADD_1:
            shape.insert(normal_axis(item.axis, len(shape), extra=1), 1)
            continue
        need(item.method == P.AxisDescMethod.REMOVE, f"method {item.method} is not known")
        axis = normal_axis(item.axis, len(shape))
        need(shape[axis] in (1, None), f"axis {axis} of length {shape[axis]} cannot be removed")
        if len(shape) > 1:
            del shape[axis]
        else:
            shape = [1]
    need(len(shape) <= MAX_RANK, f"the result would have {len(shape)} dimensions, not {MAX_RANK}")
    return [tuple(shape)]


def _add_remove(call: Call, x: Array) -> Array:
    return x.reshape(ruled_shape(call, x))


def _concat_dtypes(call: Call) -> list[DType]:
    for index in range(1, len(call.inputs)):
        need(
            call.dtype(index) == call.dtype(0),
            f"all inputs must be {call.dtype(0)}, input {index} is {call.dtype(index)}",
        )
    return [call.dtype(0)]


def _concat_shapes(call: Call) -> list[ShapeLike]:
    known = [t.shape for t in call.inputs if t.shape is not None]
    if not known:
        return [None]
    rank = len(known[0])
    axis = normal_axis(call.param.axis, rank)
    result = list(known[0])
    for shape in known[1:]:
        need(len(shape) == rank, f"shapes {known[0]} and {shape} differ in rank")
        for i, n in enumerate(shape):
            if i == axis:
                continue
            need(
                result[i] is None or n is None or result[i] == n,
                f"shapes {known[0]} and {shape} differ outside axis {axis}",
            )
            result[i] = n if result[i] is None else result[i]
    lengths = [shape[axis] for shape in known]
    whole = len(known) == len(call.inputs) and all(n is not None for n in lengths)
    result[axis] = sum(n or 0 for n in lengths) if whole else None
    return [tuple(result)]


def _concat(call: Call, *arrays: Array) -> Array:
    return np.concatenate(arrays, axis=call.param.axis)


def _split_shapes(call: Call) -> list[ShapeLike]:
    given = call.inputs[0].shape
    sizes = [number(call, i) for i in range(1, len(call.inputs))]
    if given is None:
        return [None] * len(sizes)
    axis = normal_axis(call.param.axis, len(given))
    need(all(n is None or n >= 0 for n in sizes), f"sizes {sizes} of the parts: below zero")
    if given[axis] is not None and None not in sizes:
        need(
            sum(n or 0 for n in sizes) == given[axis],
            f"sizes {sizes} do not add up to axis {axis} of length {given[axis]}",
        )
    return [(*given[:axis], n, *given[axis + 1 :]) for n in sizes]


def _split(call: Call, x: Array, *sizes: Array) -> list[Array]:
    shapes = _split_shapes(during(call, x, *sizes))
    axis = normal_axis(call.param.axis, x.ndim)
    lengths = [TensorType(call.dtype(0), s).dims[axis] for s in shapes]
    return np.split(x, np.cumsum(lengths[:-1]), axis=axis)


def _get_var_shape_shapes(call: Call) -> list[ShapeLike]:
    ranks = [None if t.shape is None else len(t.shape) for t in call.inputs]
    axis = call.param.axis
    if any(rank is None for rank in ranks):
        return [(None,) if axis == _NO_AXIS else (1,)]
    rank = max(n for n in ranks if n is not None)
    if axis == _NO_AXIS:
        return [(rank,)]
    normal_axis(axis, rank)
    return [(1,)]


def _get_var_shape(call: Call, *arrays: Array) -> Array:
    # Known ahead of a run from the types alone: elements are not looked at.
    shapes = [t.dims if t.is_static else a.shape for t, a in zip(call.inputs, arrays, strict=True)]
    shape = broadcast_shapes(shapes)
    if call.param.axis != _NO_AXIS:
        shape = (shape[normal_axis(call.param.axis, len(shape))],)
    return np.array(shape, dtype=np.int32)


RESHAPE = register(
    OpSpec(
        name="Reshape",
        runtime_name="Reshape",
        names=(Name("ReshapeV1", "v0.3.1", 12107467801887169079),),
        old_id=13416951895346073752,
        v2=(V2Id("ReshapeV1", 1, 13416951895346073752),),
        params=(P.OptionalAxisV1,),
        inputs=("x", "shape"),
        dtypes=dtype_of(0),
        shapes=_reshape_shapes,
        reference=_reshape,
        partial=True,
        source="semantics section 9, operators.json",
    )
)

BROADCAST = register(
    OpSpec(
        name="Broadcast",
        runtime_name="Broadcast",
        names=(Name("Broadcast", "v0.3.1", 4356013351611734721),),
        old_id=7936973888418590970,
        v2=(V2Id("Broadcast", 1, 7936973888418590970),),
        params=(P.Empty,),
        inputs=("x", "shape"),
        dtypes=dtype_of(0),
        shapes=_broadcast_shapes,
        reference=_broadcast,
        partial=True,
        source="semantics section 9, operators.json",
    )
)

DIMSHUFFLE = register(
    OpSpec(
        name="Dimshuffle",
        runtime_name="Dimshuffle",
        names=(Name("Dimshuffle", "v0.3.1", 16341454431755512467),),
        old_id=12661883266288314988,
        v2=(V2Id("Dimshuffle", 1, 12661883266288314988),),
        params=(P.Dimshuffle,),
        inputs=("x",),
        dtypes=dtype_of(0),
        shapes=_dimshuffle_shapes,
        reference=_dimshuffle,
        partial=True,
        source="semantics section 9, operators.json",
    )
)

AXIS_ADD_REMOVE = register(
    OpSpec(
        name="AxisAddRemove",
        runtime_name="AxisAddRemove",
        names=(Name("AxisAddRemove", "v0.3.1", 4531286874383711702),),
        old_id=16635466391166707394,
        v2=(V2Id("AxisAddRemove", 1, 16635466391166707394),),
        params=(P.AxisAddRemove,),
        inputs=("x",),
        dtypes=dtype_of(0),
        shapes=_add_remove_shapes,
        reference=_add_remove,
        partial=True,
        source="semantics section 9, operators.json",
    )
)

CONCAT = register(
    OpSpec(
        name="Concat",
        runtime_name="Concat",
        names=(Name("Concat", "v0.3.1", 1147508067098681647),),
        old_id=9254494158825588843,
        v2=(V2Id("Concat", 1, 9254494158825588843),),
        params=(P.Axis,),
        inputs=("x",),
        min_inputs=1,
        max_inputs=None,
        dtypes=_concat_dtypes,
        shapes=_concat_shapes,
        reference=_concat,
        partial=True,
        source="semantics section 9, operators.json",
    )
)

SPLIT = register(
    OpSpec(
        name="Split",
        runtime_name="Split",
        names=(Name("Split", "v0.3.1", 17108944865963415359),),
        old_id=3888906695511029191,
        v2=(V2Id("Split", 1, 3888906695511029191),),
        params=(P.Axis,),
        inputs=("x", "size"),
        outputs=("part",),
        min_inputs=2,
        max_inputs=None,
        output_count=counts.inputs_less_one,
        dtypes=dtype_of(0),
        shapes=_split_shapes,
        reference=_split,
        partial=True,
        source="semantics section 9, operators.json",
    )
)

GET_VAR_SHAPE = register(
    OpSpec(
        name="GetVarShape",
        runtime_name="GetVarShape",
        names=(Name("GetVarShapeV1", "v0.3.1", 420368402167866970),),
        old_id=1191858899092043317,
        v2=(V2Id("GetVarShapeV1", 1, 1191858899092043317),),
        params=(P.OptionalAxisV1,),
        inputs=("x",),
        min_inputs=1,
        max_inputs=None,
        outputs=("shape",),
        dtypes=fixed_dtype(INT32),
        shapes=_get_var_shape_shapes,
        reference=_get_var_shape,
        partial=True,
        source="semantics section 9, operators.json",
    )
)
