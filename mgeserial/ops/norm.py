"""Normalisations: batch, layer, group, instance and general norm, local response.

Source: semantics section 6, checked against MegEngine 1.13.0; operators.json for outputs and ids.
"""

from __future__ import annotations

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import FLOAT32, Array, DType, DTypeEnum
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, Shape, ShapeLike
from mgeserial.ops import counts
from mgeserial.ops.moments import (
    Float32,
    affine_shape,
    grouped,
    inverse_std,
    moments,
    without,
)
from mgeserial.ops.numerics import narrow, to_real
from mgeserial.ops.registry import Gap, Name, OpSpec, V2Id, register
from mgeserial.ops.rules import dtype_of, need, of_floats

__all__ = [
    "batch_axes",
    "general_axes",
    "group_count",
    "layer_axes",
    "lrn_base",
    "lrn_check",
    "lrn_sums",
]

_SECTION = "semantics section 6"
_BYTE = DType(DTypeEnum.Byte)
_RUNNING = Gap(
    "reference",
    "returns the new running statistics, but leaves the parameters as they are",
    when="fwd_mode TRAINING",
)


def batch_axes(call: Call) -> tuple[Shape, tuple[int, ...]]:
    """Shape of BatchNorm's statistics and the axes of x they are taken over."""
    x = call.shape(0)
    need(len(x) == 4, f"BatchNorm needs 4 dimensions, got {x}")
    dims = P.BNParamDim
    kept = {
        dims.DIM_11HW: (2, 3),
        dims.DIM_1CHW: (1, 2, 3),
        dims.DIM_1C11: (1,),
        dims.DIM_111C: (3,),
    }
    if call.param.param_dim not in kept:
        raise UnsupportedError(f"BatchNorm param_dim {call.param.param_dim} is not known")
    keep = kept[call.param.param_dim]
    shape = tuple(n if i in keep else 1 for i, n in enumerate(x))
    return shape, tuple(i for i in range(4) if i not in keep)


def _is_training(call: Call) -> bool:
    mode = call.param.fwd_mode
    if not mode.is_known:
        raise UnsupportedError(f"BatchNorm fwd_mode {mode} is not known")
    return bool(mode == P.BNFwdMode.TRAINING)


def _batch_norm_dtypes(call: Call) -> list[DType]:
    # y is the last output; before it the reserve of v1.7.0 and later; statistics before that.
    reserve = [_BYTE] if call.count in (4, 6) else []
    return [call.dtype(1)] * (call.count - 1 - len(reserve)) + reserve + [call.dtype(0)]


def _batch_norm_shapes(call: Call) -> list[ShapeLike]:
    stat, _ = batch_axes(call)
    x = call.shape(0)
    need(
        len(call.inputs) in (3, 5),
        f"BatchNorm has 3 inputs, or 5 with mean and variance, got {len(call.inputs)}",
    )
    need(
        _is_training(call) or len(call.inputs) == 5,
        "BatchNorm in INFERENCE mode needs mean and variance as inputs 3 and 4",
    )
    for i in range(1, len(call.inputs)):
        affine_shape(call.shape(i), stat, f"{call.op.input_names[i]} ({call.param.param_dim})")
    reserve: list[ShapeLike] = [(0,)] if call.count in (4, 6) else []
    return [stat] * (call.count - 1 - len(reserve)) + reserve + [x]


def _batch_norm(call: Call, x: Array, scale: Array, bias: Array, *running: Array) -> list[Array]:
    _, axes = batch_axes(call)
    real = to_real(x, call.dtype(0))
    kind = call.dtype(1)
    olds = [to_real(r, call.dtype(3 + i)) for i, r in enumerate(running)]
    if _is_training(call):
        mean, variance = moments(real, axes)
    else:
        mean, variance = olds
    rstd = inverse_std(variance, call.param.epsilon)
    y = real - mean
    y *= rstd * to_real(scale, kind)
    y += to_real(bias, call.dtype(2))
    count = len(call.output_types)
    outputs = [mean, rstd]
    if count in (5, 6):
        if _is_training(call):
            olds = _running(call, olds, mean, variance, real.size // max(mean.size, 1))
        outputs = [*olds, mean, rstd]
    stored = [narrow(o, kind) for o in outputs]
    if count in (4, 6):
        stored.append(np.empty(0, dtype=np.uint8))
    return [*stored, narrow(y, call.dtype(0))]


def _running(
    call: Call, old: list[Float32], mean: Float32, variance: Float32, count: int
) -> list[Float32]:
    """Running mean and variance after a training step over `count` elements a statistic."""
    factor = np.float32(call.param.avg_factor)
    with np.errstate(divide="ignore", invalid="ignore"):
        unbiased = variance * (np.float32(count) / np.float32(count - 1))
    return [
        (1 - factor) * old[0] + factor * mean,
        (1 - factor) * old[1] + factor * unbiased,
    ]


def _norm_dtypes(call: Call) -> list[DType]:
    return [call.dtype(0), FLOAT32, FLOAT32][: call.count]


def layer_axes(call: Call, shape: Shape) -> tuple[int, ...]:
    """Axes that LayerNorm normalises over, the last ones of an input of this shape."""
    count = call.param.normalized_dim
    need(0 < count <= len(shape), f"cannot normalise the last {count} axes of {shape}")
    axes = tuple(range(len(shape) - count, len(shape)))
    size = int(np.prod([shape[a] for a in axes]))
    need(
        size == call.param.normalized_size,
        f"normalized_size is {call.param.normalized_size}, but the last {count} axes of {shape} "
        f"have {size} elements",
    )
    return axes


def general_axes(call: Call, shape: Shape) -> tuple[int, ...]:
    """Axes axis_start to axis_end - 1 that GeneralNorm normalises over."""
    start, end = call.param.axis_start, call.param.axis_end
    need(0 <= start < end <= len(shape), f"no axes {start} to {end} (exclusive) in shape {shape}")
    return tuple(range(start, end))


def _check_affine(call: Call, want: Shape) -> None:
    need(len(call.inputs) in (1, 3), f"x, or x, weight and bias, got {len(call.inputs)} inputs")
    for i in range(1, len(call.inputs)):
        affine_shape(call.shape(i), want, ("weight", "bias")[i - 1])


def _axes_shapes(call: Call, axes: tuple[int, ...]) -> list[ShapeLike]:
    x = call.shape(0)
    _check_affine(call, tuple(x[a] for a in axes))
    return [x, without(x, axes), without(x, axes)]


def _axes_norm(
    call: Call, axes: tuple[int, ...], x: Array, affine: tuple[Array, ...]
) -> list[Array]:
    """Normalise over `axes`; weight and bias have their shape. Gives y, mean, 1 / std."""
    real = to_real(x, call.dtype(0))
    mean, variance = moments(real, axes)
    rstd = inverse_std(variance, call.param.eps)
    y = (real - mean) * rstd
    if affine:
        shape = tuple(n if i in axes else 1 for i, n in enumerate(x.shape))
        y *= to_real(affine[0], call.dtype(1)).reshape(shape)
        y += to_real(affine[1], call.dtype(2)).reshape(shape)
    stat = without(x.shape, axes)
    return [narrow(y, call.dtype(0)), mean.reshape(stat), rstd.reshape(stat)]


def _layer_norm_shapes(call: Call) -> list[ShapeLike]:
    return _axes_shapes(call, layer_axes(call, call.shape(0)))


def _layer_norm(call: Call, x: Array, *affine: Array) -> list[Array]:
    return _axes_norm(call, layer_axes(call, x.shape), x, affine)


def _general_norm_shapes(call: Call) -> list[ShapeLike]:
    return _axes_shapes(call, general_axes(call, call.shape(0)))


def _general_norm(call: Call, x: Array, *affine: Array) -> list[Array]:
    return _axes_norm(call, general_axes(call, x.shape), x, affine)


def group_count(call: Call, shape: Shape) -> int:
    """Groups of GroupNorm; InstanceNorm has one a channel whatever the parameter says."""
    need(
        call.param.format == P.ConvolutionFormat.NCHW,
        f"{call.op.name} is defined for format NCHW, got {call.param.format}",
    )
    need(len(shape) >= 3, f"{call.op.name} needs (n, c, ...), got {shape}")
    return shape[1] if call.op.name.startswith("InstanceNorm") else int(call.param.group)


def _group_norm_shapes(call: Call) -> list[ShapeLike]:
    x = call.shape(0)
    groups = group_count(call, x)
    split = grouped(x, groups)
    _check_affine(call, (x[1],))
    return [x, split[:2], split[:2]]


def _group_norm(call: Call, x: Array, *affine: Array) -> list[Array]:
    """y, mean and variance: unlike the other norms, the third output is not 1 / std."""
    real = to_real(x, call.dtype(0))
    split = real.reshape(grouped(x.shape, group_count(call, x.shape)))
    axes = tuple(range(2, split.ndim))
    mean, variance = moments(split, axes)
    y = ((split - mean) * inverse_std(variance, call.param.eps)).reshape(x.shape)
    if affine:
        shape = (1, -1, *(1,) * (x.ndim - 2))
        y *= to_real(affine[0], call.dtype(1)).reshape(shape)
        y += to_real(affine[1], call.dtype(2)).reshape(shape)
    return [
        narrow(y, call.dtype(0)),
        mean.reshape(split.shape[:2]),
        variance.reshape(split.shape[:2]),
    ]


def lrn_sums(x: Float32, n: int) -> Float32:
    """Sum over the channels at most n // 2 away, clipped to those there are; x is (n, c, h, w)."""
    channels = x.shape[1]
    sums = x.astype(np.float64)
    for far in range(1, min(n // 2, channels - 1) + 1):
        sums[:, far:] += x[:, : channels - far]
        sums[:, : channels - far] += x[:, far:]
    return sums.astype(np.float32)


def lrn_base(call: Call, x: Float32) -> Float32:
    """k + alpha * (sum of squares of near channels)."""
    param = call.param
    return np.float32(param.k) + np.float32(param.alpha) * lrn_sums(x * x, param.n)


def lrn_check(call: Call) -> None:
    """Check LRN's window and the shape of its first input."""
    need(len(call.shape(0)) == 4, f"LRN needs (n, c, h, w), got {call.shape(0)}")
    need(call.param.n % 2 == 1, f"LRN's window n must be odd, got {call.param.n}")


def _lrn_shapes(call: Call) -> list[ShapeLike]:
    lrn_check(call)
    return [call.shape(0)]


def _lrn(call: Call, x: Array) -> Array:
    real = to_real(x, call.dtype(0))
    with np.errstate(divide="ignore", invalid="ignore"):
        y = real * lrn_base(call, real) ** np.float32(-call.param.beta)
    return narrow(y, call.dtype(0))


BATCH_NORM = register(
    OpSpec(
        name="BatchNorm",
        runtime_name="BatchNormForward",
        names=(
            Name("BatchNorm", "v0.3.1", 17826892814338639291, until="v1.6.0"),
            Name("BatchNormV1", "v1.7.0", 8412279353930197262),
        ),
        old_id=6032777997293313103,
        v2=(V2Id("BatchNormV1", 1, 6032777997293313103),),
        params=(P.BN,),
        inputs=("x", "scale", "bias", "mean", "variance"),
        min_inputs=3,
        output_count=counts.batch_norm,
        dtypes=of_floats(_batch_norm_dtypes),
        shapes=_batch_norm_shapes,
        reference=_batch_norm,
        gaps=(_RUNNING,),
        source=_SECTION,
    )
)

LAYER_NORM = register(
    OpSpec(
        name="LayerNorm",
        runtime_name="LayerNormForward",
        names=(Name("LayerNorm", "v1.8.0", 17564392905013364699),),
        old_id=7219531316962817841,
        v2=(V2Id("LayerNorm", 1, 7219531316962817841),),
        params=(P.LayerNorm,),
        inputs=("x", "weight", "bias"),
        min_inputs=1,
        outputs=("y", "mean", "rstd"),
        output_count=3,
        dtypes=of_floats(_norm_dtypes),
        shapes=_layer_norm_shapes,
        reference=_layer_norm,
        source=_SECTION,
    )
)

GROUP_NORM = register(
    OpSpec(
        name="GroupNorm",
        runtime_name="GroupNormForward",
        names=(Name("GroupNorm", "v1.12.0", 13415324093269581296),),
        old_id=17015953218772758475,
        v2=(
            V2Id("GroupNorm", 1, 17015953218772758475),
            V2Id("GroupNorm", 2, 13415324093269581296, since="v1.12.0"),
        ),
        params=(P.GroupNorm,),
        inputs=("x", "weight", "bias"),
        min_inputs=1,
        output_count=3,
        outputs=("y", "mean", "variance"),
        dtypes=of_floats(_norm_dtypes),
        shapes=_group_norm_shapes,
        reference=_group_norm,
        source=_SECTION,
    )
)

INSTANCE_NORM = register(
    OpSpec(
        name="InstanceNorm",
        runtime_name="InstanceNormForward",
        names=(Name("InstanceNorm", "v1.12.2", 15322463570856234020),),
        old_id=13670649785787407526,
        v2=(
            V2Id("InstanceNorm", 1, 13670649785787407526),
            V2Id("InstanceNorm", 2, 15322463570856234020, since="v1.12.2"),
        ),
        params=(P.GroupNorm,),
        inputs=("x", "weight", "bias"),
        min_inputs=1,
        output_count=3,
        outputs=("y", "mean", "variance"),
        dtypes=of_floats(_norm_dtypes),
        shapes=_group_norm_shapes,
        reference=_group_norm,
        source=_SECTION,
    )
)

GENERAL_NORM = register(
    OpSpec(
        name="GeneralNorm",
        runtime_name="GeneralNormForward",
        names=(Name("GeneralNorm", "v1.12.3", 5406691552895662385),),
        old_id=229545222685796468,
        v2=(V2Id("GeneralNorm", 1, 229545222685796468),),
        params=(P.GeneralNorm,),
        inputs=("x", "weight", "bias"),
        min_inputs=1,
        outputs=("y", "mean", "rstd"),
        output_count=3,
        dtypes=of_floats(_norm_dtypes),
        shapes=_general_norm_shapes,
        reference=_general_norm,
        source=_SECTION,
    )
)

LRN = register(
    OpSpec(
        name="LRN",
        runtime_name="LRNForward",
        names=(Name("LRN", "v0.3.1", 1059971726246193068),),
        old_id=16961886508966845526,
        v2=(V2Id("LRN", 1, 16961886508966845526),),
        params=(P.LRN,),
        inputs=("x",),
        dtypes=of_floats(dtype_of(0)),
        shapes=_lrn_shapes,
        reference=_lrn,
        source=_SECTION,
    )
)
