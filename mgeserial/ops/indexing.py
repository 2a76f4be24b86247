"""Selections by slices and index tensors, one-hot selections and gathering by coordinates."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import Array, DType
from mgeserial.ir.types import Call, Shape, ShapeLike
from mgeserial.ops.indexdesc import Kind
from mgeserial.ops.numerics import narrow, widen
from mgeserial.ops.operands import as_index
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import dtype_of, need, normal_axis, shape_of
from mgeserial.ops.selection import (
    accumulate_dtypes,
    put,
    put_shapes,
    same_dtypes,
    take,
    take_shapes,
)


def _one_hot_axis(call: Call) -> int:
    """The indexed axis of input 0, after a check of the index's shape."""
    shape, given = call.shape(0), call.shape(1)
    axis = normal_axis(call.param.axis, len(shape))
    need(call.dtype(1).is_integer, f"the index must hold integers, got {call.dtype(1)}")
    wanted = shape[:axis] + shape[axis + 1 :] or (1,)
    need(given == wanted, f"the index must have shape {wanted}, got {given}")
    return axis


def _one_hot_shapes(call: Call) -> list[ShapeLike]:
    axis, shape = _one_hot_axis(call), call.shape(0)
    return [(*shape[:axis], 1, *shape[axis + 1 :])]


def _one_hot_index(call: Call, x: Array, index: Array) -> tuple[Array, int]:
    """Positions along the axis with the axis kept (size 1), and the axis."""
    axis = normal_axis(call.param.axis, x.ndim)
    positions = as_index(index)
    if positions.size:
        low, high = int(positions.min()), int(positions.max())
        wrong = low if low < 0 else high
        need(
            low >= 0 and high < x.shape[axis],
            f"index {wrong} is outside axis {axis} of length {x.shape[axis]}",
        )
    return positions.reshape((*x.shape[:axis], 1, *x.shape[axis + 1 :])), axis


def _one_hot(call: Call, x: Array, index: Array) -> Array:
    positions, axis = _one_hot_index(call, x, index)
    return np.take_along_axis(x, as_index(positions), axis)


def _set_one_hot_dtypes(call: Call) -> list[DType]:
    need(
        call.dtype(2) == call.dtype(0),
        f"the value must be {call.dtype(0)} as the tensor it goes into, got {call.dtype(2)}",
    )
    return [call.dtype(0)]


def _set_one_hot_shapes(call: Call) -> list[ShapeLike]:
    wanted = _one_hot_shapes(call)[0]
    need(call.shape(2) == wanted, f"the value must have shape {wanted}, got {call.shape(2)}")
    return [call.shape(0)]


def _set_one_hot(call: Call, x: Array, index: Array, value: Array) -> Array:
    positions, axis = _one_hot_index(call, x, index)
    y = x.copy()
    np.put_along_axis(y, as_index(positions), value, axis)
    return y


def _remap_shapes(call: Call) -> list[ShapeLike]:
    return [_remap_dims(call, call.shape(0), call.shape(1))]


def _remap_dims(call: Call, shape: Shape, coordinates: Shape) -> Shape:
    need(call.dtype(1).is_integer, f"the map must hold integers, got {call.dtype(1)}")
    need(
        len(coordinates) > 1 and coordinates[-1] == len(shape),
        f"the map's last axis must have one coordinate for each of {len(shape)} axes, "
        f"got shape {coordinates}",
    )
    return coordinates[:-1]


def _remap_index(coordinates: Array, shape: Shape) -> tuple[npt.NDArray[np.intp], ...]:
    index = as_index(coordinates)
    for axis, size in enumerate(shape):
        column = index[..., axis]
        if column.size:
            low, high = int(column.min()), int(column.max())
            wrong = low if low < 0 else high
            need(
                low >= 0 and high < size,
                f"coordinate {wrong} of the map is outside axis {axis} of length {size}",
            )
    return tuple(index[..., axis] for axis in range(len(shape)))


def _remap(call: Call, x: Array, coordinates: Array) -> Array:
    return np.asarray(x[_remap_index(coordinates, x.shape)])


def _remap_backward(call: Call, diff: Array, coordinates: Array, source: Array) -> Array:
    dtype = call.dtype(0)
    need(
        diff.shape == _remap_dims(call, source.shape, coordinates.shape),
        f"the gradient {diff.shape} does not fit a map of shape {coordinates.shape}",
    )
    wide = widen(diff, dtype)
    total = np.zeros(source.shape, wide.dtype)
    np.add.at(total, _remap_index(coordinates, source.shape), wide)
    return narrow(total, dtype)


SUBTENSOR = register(
    OpSpec(
        name="Subtensor",
        runtime_name="Subtensor",
        names=(Name("Subtensor", "v0.3.1", 4191369723585739853),),
        old_id=5965999436643207205,
        v2=(V2Id("Subtensor", 1, 5965999436643207205),),
        params=(P.IndexDescMaskDump,),
        inputs=("x", "index"),
        min_inputs=1,
        max_inputs=None,
        dtypes=dtype_of(0),
        shapes=take_shapes(Kind.SCALAR),
        reference=take(Kind.SCALAR),
        partial=True,
        source="semantics section 9, operators.json",
    )
)

SET_SUBTENSOR = register(
    OpSpec(
        name="SetSubtensor",
        runtime_name="SetSubtensor",
        names=(Name("SetSubtensor", "v0.3.1", 17094250030427382695),),
        old_id=5715857166626516904,
        v2=(V2Id("SetSubtensor", 1, 5715857166626516904),),
        params=(P.IndexDescMaskDump,),
        inputs=("x", "value", "index"),
        min_inputs=2,
        max_inputs=None,
        dtypes=same_dtypes,
        shapes=put_shapes(Kind.SCALAR),
        reference=put(Kind.SCALAR, add=False),
        partial=True,
        source="semantics section 9, operators.json",
    )
)

INCR_SUBTENSOR = register(
    OpSpec(
        name="IncrSubtensor",
        runtime_name="IncrSubtensor",
        names=(Name("IncrSubtensor", "v0.3.1", 550526267625512719),),
        old_id=12612170597450966062,
        v2=(V2Id("IncrSubtensor", 1, 12612170597450966062),),
        params=(P.IndexDescMaskDump,),
        inputs=("x", "value", "index"),
        min_inputs=2,
        max_inputs=None,
        dtypes=accumulate_dtypes,
        shapes=put_shapes(Kind.SCALAR),
        reference=put(Kind.SCALAR, add=True),
        partial=True,
        source="semantics section 9, operators.json",
    )
)

INDEXING_MULTI_AXIS_VEC = register(
    OpSpec(
        name="IndexingMultiAxisVec",
        runtime_name="IndexingMultiAxisVec",
        names=(Name("IndexingMultiAxisVec", "v0.3.1", 16324625526410578007),),
        old_id=16716479579333089639,
        v2=(V2Id("IndexingMultiAxisVec", 1, 16716479579333089639),),
        params=(P.IndexDescMaskDump,),
        inputs=("x", "index"),
        min_inputs=1,
        max_inputs=None,
        dtypes=dtype_of(0),
        shapes=take_shapes(Kind.VECTORS),
        reference=take(Kind.VECTORS),
        partial=True,
        source="semantics section 9, operators.json",
    )
)

INDEXING_SET_MULTI_AXIS_VEC = register(
    OpSpec(
        name="IndexingSetMultiAxisVec",
        runtime_name="IndexingSetMultiAxisVec",
        names=(Name("IndexingSetMultiAxisVec", "v0.3.1", 8134692094163989142),),
        old_id=1840060956737149635,
        v2=(V2Id("IndexingSetMultiAxisVec", 1, 1840060956737149635),),
        params=(P.IndexDescMaskDump,),
        inputs=("x", "value", "index"),
        min_inputs=2,
        max_inputs=None,
        dtypes=same_dtypes,
        shapes=put_shapes(Kind.VECTORS),
        reference=put(Kind.VECTORS, add=False),
        partial=True,
        source="semantics section 9, operators.json",
    )
)

INDEXING_INCR_MULTI_AXIS_VEC = register(
    OpSpec(
        name="IndexingIncrMultiAxisVec",
        runtime_name="IndexingIncrMultiAxisVec",
        names=(Name("IndexingIncrMultiAxisVec", "v0.3.1", 16219148190062297002),),
        old_id=11042232190732695174,
        v2=(V2Id("IndexingIncrMultiAxisVec", 1, 11042232190732695174),),
        params=(P.IndexDescMaskDump,),
        inputs=("x", "value", "index"),
        min_inputs=2,
        max_inputs=None,
        dtypes=accumulate_dtypes,
        shapes=put_shapes(Kind.VECTORS),
        reference=put(Kind.VECTORS, add=True),
        partial=True,
        source="semantics section 9, operators.json",
    )
)

INDEXING_ONE_HOT = register(
    OpSpec(
        name="IndexingOneHot",
        runtime_name="IndexingOneHot",
        names=(Name("IndexingOneHot", "v0.3.1", 1617793321523022237),),
        old_id=9091995996295894829,
        v2=(V2Id("IndexingOneHot", 1, 9091995996295894829),),
        params=(P.Axis,),
        inputs=("x", "index"),
        dtypes=dtype_of(0),
        shapes=_one_hot_shapes,
        reference=_one_hot,
        source="semantics section 9, operators.json",
    )
)

INDEXING_SET_ONE_HOT = register(
    OpSpec(
        name="IndexingSetOneHot",
        runtime_name="IndexingSetOneHot",
        names=(Name("IndexingSetOneHot", "v0.3.1", 7268590264920214767),),
        old_id=13668634682463149630,
        v2=(V2Id("IndexingSetOneHot", 1, 13668634682463149630),),
        params=(P.Axis,),
        inputs=("x", "index", "value"),
        dtypes=_set_one_hot_dtypes,
        shapes=_set_one_hot_shapes,
        reference=_set_one_hot,
        source="semantics section 9, operators.json",
    )
)

INDEXING_REMAP = register(
    OpSpec(
        name="IndexingRemap",
        runtime_name="IndexingRemap",
        names=(Name("IndexingRemap", "v0.3.1", 285780115551858917),),
        old_id=2122147745667549725,
        v2=(V2Id("IndexingRemap", 1, 2122147745667549725),),
        params=(P.IndexingRemap,),
        inputs=("x", "map"),
        dtypes=dtype_of(0),
        shapes=_remap_shapes,
        reference=_remap,
        source="semantics section 9, operators.json",
    )
)

INDEXING_REMAP_BACKWARD = register(
    OpSpec(
        name="IndexingRemapBackward",
        runtime_name="IndexingRemapBackward",
        names=(Name("IndexingRemapBackward", "v0.3.1", 8826357946439830558),),
        old_id=14681931638895342488,
        v2=(V2Id("IndexingRemapBackward", 1, 14681931638895342488),),
        params=(P.IndexingRemap,),
        inputs=("diff", "map", "src_for_shape"),
        dtypes=dtype_of(0),
        shapes=shape_of(2),
        reference=_remap_backward,
        source="semantics section 9, operators.json",
    )
)
