"""Sorting, the k extremes, and selections whose size depends on the data.

Equal values are ordered by position: ascending order has the first one first, descending order the
last one first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import FLOAT32, INT32, Array, DType
from mgeserial.errors import ExecutionError, UnsupportedError
from mgeserial.ir.types import Call, ShapeLike
from mgeserial.ops import counts
from mgeserial.ops.numerics import bfloat16_to_float32, narrow, truncate, widen
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import dtype_of, fixed_dtype, need

__all__ = [
    "ARGSORT",
    "ARGSORT_BACKWARD",
    "COND_TAKE",
    "NMS_KEEP",
    "NON_ZERO",
    "TOP_K",
    "keep_boxes",
]

A = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]


def _sortable(dtype: DType, name: str) -> None:
    if not (dtype.is_float or dtype.is_integer):
        raise UnsupportedError(f"{name} is not defined for {dtype.name}")


def _values_and_indices(call: Call) -> list[DType]:
    _sortable(call.dtype(0), call.op.name)
    return [call.dtype(0), INT32][: call.count]


def _matrix(shape: ShapeLike, name: str) -> None:
    rank = None if shape is None else len(shape)
    need(rank in (None, 2), f"{name} must be a matrix (m, n), got {shape}")


def _order(values: A, *, descending: bool) -> npt.NDArray[np.intp]:
    """Indices that sort each row; NaN counts as greatest."""
    order = np.argsort(values, axis=1, kind="stable")
    return order[:, ::-1] if descending else order


def _argsort_shapes(call: Call) -> list[ShapeLike]:
    x = call.inputs[0].shape
    _matrix(x, "x")
    return [x] * call.count


def _argsort(call: Call, x: Array) -> Sequence[Array]:
    descending = call.param.order == P.ArgsortOrder.DESCENDING
    order = _order(widen(x, call.dtype(0)), descending=descending)
    return np.take_along_axis(x, order, axis=1), order.astype(np.int32)


def _argsort_backward_shapes(call: Call) -> list[ShapeLike]:
    diff, indices, x = call.shape(0), call.shape(1), call.shape(2)
    _matrix(x, "x_for_shape")
    need(diff == indices, f"diff and indices must have equal shapes, got {diff} and {indices}")
    need(
        len(diff) == 2 and diff[0] == x[0] and diff[1] <= x[1],
        f"diff {diff} does not fit into the rows of {x}",
    )
    return [x]


def _argsort_backward(call: Call, diff: Array, indices: A, x_for_shape: Array) -> Array:
    width = x_for_shape.shape[1]
    if indices.size and not 0 <= indices.min() <= indices.max() < width:
        raise ExecutionError(f"indices must be 0 to {width - 1}: {indices.min()}, {indices.max()}")
    result = np.zeros(x_for_shape.shape, diff.dtype)
    np.put_along_axis(result, indices.astype(np.intp), diff, axis=1)
    return result


def _k(value: A) -> int:
    need(value.size == 1, f"k must be one number, got shape {value.shape}")
    found = value.reshape(-1)[0]
    need(bool(np.isfinite(found)), f"k must be a number, got {found}")
    k = int(found)
    need(k != 0, "k must not be 0")
    return k


def _top_k_shapes(call: Call) -> list[ShapeLike]:
    x = call.inputs[0].shape
    _matrix(x, "x")
    rows, width = (None, None) if x is None else (x[0], x[1])
    if call.param.mode == P.TopKMode.KTH_ONLY:
        return [(rows,)]
    value = call.value(1)
    kept = None if value is None or width is None else min(abs(_k(value)), width)
    return [(rows, kept)] * call.count


def _top_k(call: Call, x: Array, k: A) -> Array | Sequence[Array]:
    number = _k(k)
    kept = min(abs(number), x.shape[1])
    order = _order(widen(x, call.dtype(0)), descending=number < 0)[:, :kept]
    values = np.take_along_axis(x, order, axis=1)
    if call.param.mode == P.TopKMode.KTH_ONLY:
        need(kept > 0, "there is no k-th value in rows without elements")
        return np.ascontiguousarray(values[:, -1])
    return values, order.astype(np.int32)


_PREDICATES: dict[P.CondTakeMode, Callable[[A, Any], A]] = {
    P.CondTakeMode.LT: np.less,
    P.CondTakeMode.LEQ: np.less_equal,
    P.CondTakeMode.GT: np.greater,
    P.CondTakeMode.GEQ: np.greater_equal,
}


def _cond_take_dtypes(call: Call) -> list[DType]:
    mask, mode = call.dtype(1), call.param.mode
    need(
        mask.is_float or mask.is_integer,
        f"the mask must be of plain numbers or Bool, got {mask.name}",
    )
    if not mode.is_known:
        raise UnsupportedError(f"CondTake mode {mode} is not known")
    return [call.dtype(0), INT32]


def _cond_take_shapes(call: Call) -> list[ShapeLike]:
    data, mask = call.inputs[0], call.inputs[1]
    if data.is_static and mask.is_static:
        need(
            data.dims == mask.dims,
            f"data and mask must have equal shapes, got {data.dims} and {mask.dims}",
        )
    return [(None,), (None,)]


def _cond_take(call: Call, data: Array, mask: Array) -> Sequence[Array]:
    dtype, param = call.dtype(1), call.param
    need(data.shape == mask.shape, f"data {data.shape} and mask {mask.shape} must agree in shape")
    given = np.array([param.val], np.float32)
    values: A = widen(mask, dtype).reshape(-1)
    if dtype.is_float:
        limit: A = widen(narrow(given, dtype), dtype)
        with np.errstate(invalid="ignore"):
            equal = np.abs(values - limit) < np.float32(param.eps)
    else:
        limit = truncate(given, dtype)
        equal = values == limit
    if param.mode == P.CondTakeMode.EQ:
        chosen = equal
    elif param.mode == P.CondTakeMode.NEQ:
        chosen = ~equal
    else:
        chosen = _PREDICATES[param.mode](values, limit)
    (indices,) = np.nonzero(chosen)
    return data.reshape(-1)[indices], indices.astype(np.int32)


def _non_zero_shapes(call: Call) -> list[ShapeLike]:
    x = call.inputs[0].shape
    return [(None if x is None else len(x), None)]


def _non_zero(call: Call, x: Array) -> Array:
    dtype = call.dtype(0)
    _sortable(dtype, "NonZero")
    # -0.0 of bfloat16 has bits, but is zero.
    values = bfloat16_to_float32(x) if dtype.is_float and x.dtype == np.uint16 else x
    # Positions by one pass over flags, then coordinates: ten times as fast as `np.nonzero`.
    flat = np.flatnonzero(values.reshape(-1) != 0)
    flat = flat.astype(np.int32) if values.size < 1 << 31 else flat
    found = np.empty((x.ndim, flat.size), np.int32)
    for axis in range(x.ndim - 1, 0, -1):
        rest = flat // x.shape[axis]
        found[axis] = flat - rest * x.shape[axis]
        flat = rest
    found[0] = flat
    return found


def _nms_dtypes(call: Call) -> list[DType]:
    need(call.dtype(0) == FLOAT32, f"boxes must be Float32, got {call.dtype(0).name}")
    return [INT32, INT32]


def _nms_shapes(call: Call) -> list[ShapeLike]:
    boxes = call.shape(0)
    need(len(boxes) == 3 and boxes[2] == 4, f"boxes must have shape (b, n, 4), got {boxes}")
    return [(boxes[0], call.param.max_output), (boxes[0],)]


def _overlaps(a: Float32, b: Float32, threshold: np.float32) -> npt.NDArray[np.bool_]:
    """Whether intersection over union exceeds the threshold; a (b, 1, 4), b (b, m, 4) -> (b, m)."""
    width = np.minimum(a[..., 2], b[..., 2]) - np.maximum(a[..., 0], b[..., 0])
    height = np.minimum(a[..., 3], b[..., 3]) - np.maximum(a[..., 1], b[..., 1])
    inner = np.maximum(width, np.float32(0)) * np.maximum(height, np.float32(0))
    area_a, area_b = ((c[..., 2] - c[..., 0]) * (c[..., 3] - c[..., 1]) for c in (a, b))
    return np.asarray(inner > (area_a + area_b - inner) * threshold)


def keep_boxes(boxes: Float32, threshold: float, limit: int) -> npt.NDArray[np.bool_]:
    """Which boxes greedy suppression keeps: every box that no kept earlier one overlaps too much.

    Args:
        boxes: (b, n, 4) as x0, y0, x1, y1, best first.
        threshold: Greatest intersection over union of two kept boxes.
        limit: At most this many are kept in each batch.

    Returns:
        Mask (b, n).
    """
    batch, count = boxes.shape[:2]
    kept = np.zeros((batch, count), np.bool_)
    dropped = np.zeros((batch, count), np.bool_)
    room = np.full(batch, limit)
    with np.errstate(all="ignore"):
        for i in range(count):
            kept[:, i] = ~dropped[:, i] & (room > 0)
            room -= kept[:, i]
            if not room.any():
                break
            near = _overlaps(boxes[:, i : i + 1], boxes[:, i + 1 :], np.float32(threshold))
            dropped[:, i + 1 :] |= near & kept[:, i : i + 1]
    return kept


def _nms(call: Call, boxes: Float32) -> Sequence[Array]:
    limit = call.param.max_output
    kept = keep_boxes(boxes, call.param.iou_thresh, limit)
    sizes = kept.sum(axis=1)
    # Kept boxes first, in order; the rest of each row repeats the last kept one.
    order = np.argsort(~kept, axis=1, kind="stable")
    if not order.size:
        return np.zeros((len(boxes), limit), np.int32), sizes.astype(np.int32)
    place = np.minimum(np.arange(limit)[None, :], np.maximum(sizes - 1, 0)[:, None])
    return np.take_along_axis(order, place, axis=1).astype(np.int32), sizes.astype(np.int32)


ARGSORT = register(
    OpSpec(
        name="Argsort",
        runtime_name="ArgsortForward",
        names=(Name("Argsort", "v0.3.1", 3244937698553822362),),
        old_id=3966741638081812863,
        v2=(V2Id("Argsort", 1, 3966741638081812863),),
        params=(P.Argsort,),
        inputs=("x",),
        outputs=("values", "indices"),
        output_count=2,
        dtypes=_values_and_indices,
        shapes=_argsort_shapes,
        reference=_argsort,
        partial=True,
        source="semantics section 7, checked against MegEngine 1.13.0",
    )
)

ARGSORT_BACKWARD = register(
    OpSpec(
        name="ArgsortBackward",
        runtime_name="ArgsortBackward",
        names=(Name("ArgsortBackward", "v0.3.1", 14241058169696625695),),
        old_id=16444382987433252649,
        v2=(V2Id("ArgsortBackward", 1, 16444382987433252649),),
        params=(P.Empty,),
        inputs=("diff", "indices", "x_for_shape"),
        outputs=("grad_x",),
        dtypes=dtype_of(0),
        shapes=_argsort_backward_shapes,
        reference=_argsort_backward,
        source="MegEngine v1.13 dnn/src/naive/argsort",
    )
)

TOP_K = register(
    OpSpec(
        name="TopK",
        runtime_name="TopK",
        names=(Name("TopK", "v0.3.1", 342229907871570751),),
        old_id=3492863564509811887,
        v2=(V2Id("TopK", 1, 3492863564509811887),),
        params=(P.TopK,),
        inputs=("x", "k"),
        outputs=("values", "indices"),
        output_count=counts.top_k,
        dtypes=_values_and_indices,
        shapes=_top_k_shapes,
        reference=_top_k,
        partial=True,
        source="semantics section 7, checked against MegEngine 1.13.0",
    )
)

COND_TAKE = register(
    OpSpec(
        name="CondTake",
        runtime_name="CondTake",
        names=(Name("CondTake", "v0.3.1", 10947600316762895964),),
        old_id=12716086571372722558,
        v2=(V2Id("CondTake", 1, 12716086571372722558),),
        params=(P.CondTake,),
        inputs=("data", "mask"),
        outputs=("values", "indices"),
        output_count=2,
        dtypes=_cond_take_dtypes,
        shapes=_cond_take_shapes,
        reference=_cond_take,
        partial=True,
        source="semantics section 7, checked against MegEngine 1.13.0",
    )
)

NON_ZERO = register(
    OpSpec(
        name="NonZero",
        runtime_name="NonZero",
        names=(Name("NonZero", "v1.13.2", 5731591918063546029),),
        old_id=15030683494237557530,
        v2=(V2Id("NonZero", 1, 15030683494237557530),),
        params=(P.Empty,),
        inputs=("x",),
        outputs=("indices",),
        dtypes=fixed_dtype(INT32),
        shapes=_non_zero_shapes,
        reference=_non_zero,
        partial=True,
        source="semantics section 7; MegEngine v1.13 dnn/src/common/non_zero.cpp",
    )
)

NMS_KEEP = register(
    OpSpec(
        name="NMSKeep",
        runtime_name="NMSKeep",
        names=(Name("NMSKeepMGB", "v1.0.0-rc1", 18144144210543198270),),
        old_id=10784269134792009564,
        v2=(V2Id("NMSKeepMGB", 1, 10784269134792009564),),
        params=(P.NMSKeep,),
        inputs=("boxes",),
        outputs=("indices", "sizes"),
        output_count=2,
        dtypes=_nms_dtypes,
        shapes=_nms_shapes,
        reference=_nms,
        source="MegEngine v1.13 src/opr/impl/standalone/nms_cpu.cpp, checked against 1.13.0",
    )
)
