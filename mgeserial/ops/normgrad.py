"""Gradients of the normalisations.

Source: semantics section 6 for what they are gradients of; checked against MegEngine 1.13.0.
"""

from __future__ import annotations

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import FLOAT32, Array, DType
from mgeserial.ir.types import Call, ShapeLike
from mgeserial.ops import counts
from mgeserial.ops.moments import (
    affine_shape,
    grouped,
    inverse_std,
    normalise_gradient,
    total,
    without,
)
from mgeserial.ops.norm import (
    batch_axes,
    general_axes,
    group_count,
    layer_axes,
    lrn_base,
    lrn_check,
    lrn_sums,
)
from mgeserial.ops.numerics import narrow, to_real
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import dtype_of, need, of_floats

_SOURCE = "derivative of the forward operator; checked against MegEngine 1.13.0"


def _same(call: Call, first: int, second: int) -> None:
    left, right = call.shape(first), call.shape(second)
    names = call.op.input_names
    need(left == right, f"{names[first]} has shape {left}, {names[second]} has {right}")


def _batch_dtypes(call: Call) -> list[DType]:
    return [call.dtype(4), call.dtype(4), call.dtype(0)]


def _batch_shapes(call: Call) -> list[ShapeLike]:
    stat, _ = batch_axes(call)
    _same(call, 0, 1)
    for i in (2, 3, 4):
        affine_shape(call.shape(i), stat, call.op.input_names[i])
    return [stat, stat, call.shape(0)]


def _batch(
    call: Call, x: Array, dy: Array, mean: Array, rstd: Array, scale: Array, *_reserve: Array
) -> list[Array]:
    """Gradients of scale and bias, then of x, of a step in TRAINING mode."""
    _, axes = batch_axes(call)
    real, diff, centre, factor, weight = (
        to_real(a, call.dtype(i)) for i, a in enumerate((x, dy, mean, rstd, scale))
    )
    xhat = (real - centre) * factor
    d_scale, d_bias = total(diff * xhat, axes, keep=True), total(diff, axes, keep=True)
    dx = normalise_gradient(diff * weight, xhat, factor, axes)
    kind = call.dtype(4)
    return [narrow(d_scale, kind), narrow(d_bias, kind), narrow(dx, call.dtype(0))]


def _has_weight(call: Call) -> bool:
    need(
        len(call.inputs) in (4, 5),
        f"diff, x, weight (or none), mean and rstd, got {len(call.inputs)} inputs",
    )
    return len(call.inputs) == 5


def _norm_dtypes(call: Call) -> list[DType]:
    weight = call.dtype(2) if _has_weight(call) else FLOAT32
    return [call.dtype(1), weight, weight][: call.count]


def _axes_shapes(call: Call, axes: tuple[int, ...]) -> list[ShapeLike]:
    x = call.shape(1)
    _same(call, 0, 1)
    weight, stat = tuple(x[a] for a in axes), without(x, axes)
    if _has_weight(call):
        affine_shape(call.shape(2), weight, "weight")
    for i in (-2, -1):
        got = call.inputs[i].dims
        need(got == stat, f"mean and rstd must have shape {stat}, got {got}")
    shapes: list[ShapeLike] = [x, weight, weight]
    return shapes[: call.count]


def _axes_gradient(call: Call, axes: tuple[int, ...], arrays: tuple[Array, ...]) -> list[Array]:
    real = [to_real(a, call.dtype(i)) for i, a in enumerate(arrays)]
    diff, x, mean, rstd = real[0], real[1], real[-2], real[-1]
    stat = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    rstd = rstd.reshape(stat)
    xhat = (x - mean.reshape(stat)) * rstd
    dxhat = diff
    if _has_weight(call):
        dxhat = diff * real[2].reshape([n if i in axes else 1 for i, n in enumerate(x.shape)])
    dx = narrow(normalise_gradient(dxhat, xhat, rstd, axes), call.dtype(1))
    if not _has_weight(call):
        return [dx]
    others = tuple(i for i in range(x.ndim) if i not in axes)
    kind = call.dtype(2)
    return [dx, narrow(total(diff * xhat, others), kind), narrow(total(diff, others), kind)]


def _layer_shapes(call: Call) -> list[ShapeLike]:
    return _axes_shapes(call, layer_axes(call, call.shape(1)))


def _layer(call: Call, *arrays: Array) -> list[Array]:
    return _axes_gradient(call, layer_axes(call, arrays[1].shape), arrays)


def _general_shapes(call: Call) -> list[ShapeLike]:
    return _axes_shapes(call, general_axes(call, call.shape(1)))


def _general(call: Call, *arrays: Array) -> list[Array]:
    return _axes_gradient(call, general_axes(call, arrays[1].shape), arrays)


def _group_shapes(call: Call) -> list[ShapeLike]:
    x = call.shape(1)
    _same(call, 0, 1)
    split = grouped(x, group_count(call, x))
    if _has_weight(call):
        affine_shape(call.shape(2), (x[1],), "weight")
    for i in (-2, -1):
        got = call.inputs[i].dims
        need(got == split[:2], f"mean and variance must have shape {split[:2]}, got {got}")
    shapes: list[ShapeLike] = [x, (x[1],), (x[1],)]
    return shapes[: call.count]


def _group(call: Call, *arrays: Array) -> list[Array]:
    """Gradients of x, weight and bias; the last input is the variance that GroupNorm returns."""
    real = [to_real(a, call.dtype(i)) for i, a in enumerate(arrays)]
    diff, x, mean, variance = real[0], real[1], real[-2], real[-1]
    split = grouped(x.shape, group_count(call, x.shape))
    stat = (*split[:2], *(1,) * (len(split) - 2))
    rstd = inverse_std(variance, call.param.eps).reshape(stat)
    xhat = (x.reshape(split) - mean.reshape(stat)) * rstd
    dxhat = diff
    if _has_weight(call):
        dxhat = diff * real[2].reshape(1, -1, *(1,) * (x.ndim - 2))
    axes = tuple(range(2, len(split)))
    dx = normalise_gradient(dxhat.reshape(split), xhat, rstd, axes).reshape(x.shape)
    if not _has_weight(call):
        return [narrow(dx, call.dtype(1))]
    others = (0, *range(2, x.ndim))
    kind = call.dtype(2)
    return [
        narrow(dx, call.dtype(1)),
        narrow(total(diff * xhat.reshape(x.shape), others), kind),
        narrow(total(diff, others), kind),
    ]


def _lrn_shapes(call: Call) -> list[ShapeLike]:
    lrn_check(call)
    _same(call, 0, 1)
    _same(call, 0, 2)
    return [call.shape(0)]


def _lrn(call: Call, x: Array, y: Array, dy: Array) -> Array:
    real, out, diff = (to_real(a, call.dtype(i)) for i, a in enumerate((x, y, dy)))
    beta = np.float32(call.param.beta)
    with np.errstate(divide="ignore", invalid="ignore"):
        base = lrn_base(call, real)
        near = lrn_sums(diff * out / base, call.param.n)
        dx = diff * base**-beta - 2 * np.float32(call.param.alpha) * beta * real * near
    return narrow(dx, call.dtype(0))


BATCH_NORM_BACKWARD = register(
    OpSpec(
        name="BatchNormBackward",
        runtime_name="BatchNormBackward",
        names=(
            Name("BatchNormBackward", "v0.3.1", 4983233913945283999, until="v1.6.0"),
            Name("BatchNormBackwardV1", "v1.7.0", 9278179531671652757),
        ),
        old_id=14247817637904332910,
        v2=(V2Id("BatchNormBackwardV1", 1, 14247817637904332910),),
        params=(P.BN,),
        outputs=("d_scale", "d_bias", "dx"),
        output_count=3,
        inputs=("x", "dy", "saved_mean", "saved_inv_std", "scale", "reserve"),
        min_inputs=5,
        dtypes=of_floats(_batch_dtypes, 5),
        shapes=_batch_shapes,
        reference=_batch,
        source=_SOURCE,
    )
)

LAYER_NORM_BACKWARD = register(
    OpSpec(
        name="LayerNormBackward",
        runtime_name="LayerNormBackward",
        names=(Name("LayerNormBackward", "v1.8.0", 9820026231933009626),),
        old_id=7951835110806963716,
        v2=(V2Id("LayerNormBackward", 1, 7951835110806963716),),
        params=(P.LayerNorm,),
        inputs=("diff", "x", "weight", "mean", "rstd"),
        min_inputs=4,
        outputs=("dx", "dweight", "dbias"),
        output_count=counts.norm_backward,
        dtypes=of_floats(_norm_dtypes),
        shapes=_layer_shapes,
        reference=_layer,
        source=_SOURCE,
    )
)

GROUP_NORM_BACKWARD = register(
    OpSpec(
        name="GroupNormBackward",
        runtime_name="GroupNormBackward",
        names=(Name("GroupNormBackward", "v1.12.0", 7616803679176141388),),
        old_id=9096201994587381269,
        v2=(
            V2Id("GroupNormBackward", 1, 9096201994587381269),
            V2Id("GroupNormBackward", 2, 7616803679176141388, since="v1.12.0"),
        ),
        params=(P.GroupNorm,),
        min_inputs=4,
        output_count=counts.norm_backward,
        inputs=("diff", "x", "weight", "mean", "variance"),
        outputs=("dx", "dweight", "dbias"),
        dtypes=of_floats(_norm_dtypes),
        shapes=_group_shapes,
        reference=_group,
        source=_SOURCE,
    )
)

INSTANCE_NORM_BACKWARD = register(
    OpSpec(
        name="InstanceNormBackward",
        runtime_name="InstanceNormBackward",
        names=(Name("InstanceNormBackward", "v1.12.2", 13369857338834719890),),
        old_id=15223581390441750595,
        v2=(
            V2Id("InstanceNormBackward", 1, 15223581390441750595),
            V2Id("InstanceNormBackward", 2, 13369857338834719890, since="v1.12.2"),
        ),
        params=(P.GroupNorm,),
        min_inputs=4,
        output_count=counts.norm_backward,
        inputs=("diff", "x", "weight", "mean", "variance"),
        outputs=("dx", "dweight", "dbias"),
        dtypes=of_floats(_norm_dtypes),
        shapes=_group_shapes,
        reference=_group,
        source=_SOURCE,
    )
)

GENERAL_NORM_BACKWARD = register(
    OpSpec(
        name="GeneralNormBackward",
        runtime_name="GeneralNormBackward",
        names=(Name("GeneralNormBackward", "v1.12.3", 13439261500949241223),),
        old_id=11953123197678799914,
        v2=(V2Id("GeneralNormBackward", 1, 11953123197678799914),),
        params=(P.GeneralNorm,),
        inputs=("diff", "x", "weight", "mean", "rstd"),
        min_inputs=4,
        output_count=counts.norm_backward,
        outputs=("dx", "dweight", "dbias"),
        dtypes=of_floats(_norm_dtypes),
        shapes=_general_shapes,
        reference=_general,
        source=_SOURCE,
    )
)

LRN_BACKWARD = register(
    OpSpec(
        name="LRNBackward",
        runtime_name="LRNBackward",
        names=(Name("LRNBackward", "v0.3.1", 17804540914232709868),),
        old_id=10804590891393433679,
        v2=(V2Id("LRNBackward", 1, 10804590891393433679),),
        params=(P.LRN,),
        inputs=("x", "y", "dy"),
        dtypes=of_floats(dtype_of(0)),
        shapes=_lrn_shapes,
        reference=_lrn,
        source=_SOURCE,
    )
)
