"""Multi-head attention and its gradient.

The gradient computes projections and scores again from the inputs; of the reserves it reads the
dropout mask only, one byte an element: attention weights first, then the output.
Source: semantics section 11, checked against MegEngine 1.13.0.
"""

from __future__ import annotations

import math

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import Array, DType, DTypeEnum
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, ShapeLike
from mgeserial.ops.activation import softmax
from mgeserial.ops.generator import Generator
from mgeserial.ops.heads import Attention, Float32, split_heads
from mgeserial.ops.numerics import narrow, to_real
from mgeserial.ops.registry import Gap, Name, OpSpec, V2Id, register
from mgeserial.ops.rules import need, of_floats

__all__ = [
    "MULTI_HEAD_ATTN",
    "MULTI_HEAD_ATTN_BACKWARD",
    "adds_mask",
    "attention_of",
    "mask_bytes",
]

_SECTION = "semantics section 11"
_BYTE = DType(DTypeEnum.Byte)
_Mask = P.MultiHeadAttnAttnMaskType
_Extra = P.MultiHeadAttnTensorCombinationType
_BIAS_KV = Gap(
    "reference",
    "MegEngine's CPU build refuses to run it, so its meaning is not known",
    when="add_zero_attn, or bias_k and bias_v as inputs",
)


def _has_mask(call: Call) -> bool:
    """Whether a mask is among the inputs."""
    kind = call.param.tensor_combination_type
    if kind in (_Extra.ONLY_BIASKV, _Extra.ALL):
        raise UnsupportedError("multi-head attention with bias_k and bias_v is not supported")
    if kind not in (_Extra.NONE, _Extra.ONLY_MASK):
        raise UnsupportedError(f"tensor_combination_type {kind} is not known")
    return bool(kind == _Extra.ONLY_MASK)


def attention_of(call: Call, first: int) -> Attention:
    """Sizes from q, k, v and the weights, the inputs from `first` on; checks the mask's shape.

    Raises:
        ShapeError: The inputs do not fit together.
        UnsupportedError: Options that no CPU build of MegEngine runs.
    """
    q, k, v = (call.shape(first + i) for i in range(3))
    sizes = Attention.of(call.param, q, k, v, call.inputs[first + 3].size)
    if _has_mask(call) and adds_mask(call):
        got = call.shape(first + 4)
        plain = (sizes.queries, sizes.keys)
        need(
            got in (plain, sizes.weight_shape),
            f"the mask must have shape {plain} or {sizes.weight_shape}, got {got}",
        )
    return sizes


def adds_mask(call: Call) -> bool:
    """Whether the mask is added to the scores; the CPU ignores masks of the other kinds."""
    return call.param.attn_mask_type in (_Mask.DEFAULT_MASK, _Mask.USER_DEFINED_MASK)


def _arity(call: Call, count: int) -> None:
    want = count + _has_mask(call)
    need(
        len(call.inputs) == want,
        f"tensor_combination_type {call.param.tensor_combination_type} has {want} inputs, "
        f"got {len(call.inputs)}",
    )
    need(
        call.param.attn_mask_type != _Mask.DEFAULT_MASK or _has_mask(call),
        "attn_mask_type DEFAULT_MASK needs the mask as an input",
    )


def mask_bytes(call: Call, sizes: Attention) -> int:
    """Bytes of the dropout masks, none without training."""
    if not call.param.training:
        return 0
    return sum(sizes.mask_parts) + 4


def _dtypes(call: Call) -> list[DType]:
    x = call.dtype(0)
    return [x, x, _BYTE, x]


def _shapes(call: Call) -> list[ShapeLike]:
    _arity(call, 4)
    sizes = attention_of(call, 0)
    reserve = sizes.reserve(training=bool(call.param.training))
    return [sizes.out_shape, sizes.weight_shape, (mask_bytes(call, sizes),), (reserve,)]


def _scores(call: Call, sizes: Attention, q: Float32, k: Float32, mask: Float32 | None) -> Float32:
    """Softmaxed scores (n, heads, sq, sk) of heads of q and k."""
    scores = np.matmul(q, k.swapaxes(-1, -2)) * np.float32(sizes.scale)
    if mask is not None and adds_mask(call):
        scores = scores + (mask if mask.ndim == 2 else mask.reshape(scores.shape))
    with np.errstate(invalid="ignore"):
        return softmax(scores, -1)


def _drop(x: Float32, keep: Array, prob: float) -> Float32:
    kept = np.float32(1) / (np.float32(1) - np.float32(prob))
    return np.asarray(np.where(keep.reshape(x.shape) != 0, x * kept, np.float32(0)))


def _merge_heads(x: Float32) -> Float32:
    batch, heads, length, depth = x.shape
    return np.asarray(x.transpose(0, 2, 1, 3).reshape(batch, length, heads * depth))


def _forward(call: Call, *arrays: Array) -> list[Array]:
    sizes = attention_of(call, 0)
    q, k, v, flat, *mask = (to_real(a, call.dtype(i)) for i, a in enumerate(arrays))
    matrices, biases = sizes.unpack(flat.reshape(-1))
    parts = [split_heads(x, sizes.heads, matrices[i], biases[i]) for i, x in enumerate((q, k, v))]
    weights = _scores(call, sizes, parts[0], parts[1], mask[0] if mask else None)
    kept = np.ones(mask_bytes(call, sizes), np.uint8)
    used = weights
    if call.param.training:
        _draw(call, sizes, kept)
        used = _drop(weights, _masks(sizes, kept)[0], call.param.attn_prob)
    out = _merge_heads(np.matmul(used, parts[2]))
    if matrices[3] is not None:
        out = np.matmul(out, matrices[3])
        if biases[3] is not None:
            out = out + biases[3]
    if call.param.training:
        out = _drop(out, _masks(sizes, kept)[1], call.param.out_prob)
    if sizes.reslink:
        out = out + q
    kind = call.dtype(0)
    reserve = np.zeros(sizes.reserve(training=bool(call.param.training)), kind.storage)
    return [narrow(out, kind), narrow(used.reshape(sizes.weight_shape), kind), kept, reserve]


def _masks(sizes: Attention, kept: Array) -> tuple[Array, Array]:
    """Views of the masks of attention weights and of the output in the mask's bytes."""
    start = sizes.mask_parts[0]
    first, second = math.prod(sizes.weight_shape), math.prod(sizes.out_shape)
    return kept[:first], kept[start : start + second]


def _draw(call: Call, sizes: Attention, kept: Array) -> None:
    """Draw what dropout keeps, first of attention weights, then of the output."""
    random = Generator.of(call.state, call.param.seed)
    probabilities = (call.param.attn_prob, call.param.out_prob)
    for mask, probability in zip(_masks(sizes, kept), probabilities, strict=True):
        mask[...] = random.uniform(mask.size) >= np.float32(probability)


def _grad_dtypes(call: Call) -> list[DType]:
    return [call.dtype(1)] * 6


def _grad_shapes(call: Call) -> list[ShapeLike]:
    _arity(call, 8)
    sizes = attention_of(call, 1)
    need(
        call.shape(0) == sizes.out_shape,
        f"diff must have shape {sizes.out_shape}, got {call.shape(0)}",
    )
    weights, mask = call.inputs[-3].dims, call.inputs[-2].dims
    need(
        weights == sizes.weight_shape,
        f"attn_weight must have shape {sizes.weight_shape}, got {weights}",
    )
    need(
        mask == (mask_bytes(call, sizes),),
        f"mask_reservespace must have {mask_bytes(call, sizes)} bytes, got {mask}",
    )
    # Gradients of bias_k and bias_v, which do not exist, are empty.
    return [call.shape(1), call.shape(2), call.shape(3), call.shape(4), (0,), (0,)]


def _backward(call: Call, *arrays: Array) -> list[Array]:
    sizes = attention_of(call, 1)
    real = [to_real(a, call.dtype(i)) for i, a in enumerate(arrays[:-3])]
    diff, q, k, v, flat, *mask = real
    kept = arrays[-2]
    matrices, biases = sizes.unpack(flat.reshape(-1))
    grads = np.zeros(flat.size, np.float32)
    places, bias_places = sizes.unpack(grads)
    parts = [split_heads(x, sizes.heads, matrices[i], biases[i]) for i, x in enumerate((q, k, v))]
    # The weights among the inputs have dropped elements, so they are computed again.
    weights = _scores(call, sizes, parts[0], parts[1], mask[0] if mask else None)
    used, back = weights, diff
    if call.param.training:
        used = _drop(weights, _masks(sizes, kept)[0], call.param.attn_prob)
        back = _drop(diff, _masks(sizes, kept)[1], call.param.out_prob)
    d_heads = back
    if matrices[3] is not None and places[3] is not None:
        result = _merge_heads(np.matmul(used, parts[2]))
        d_heads = _linear_gradient(result, back, matrices[3], places[3], bias_places[3])
    d_heads = d_heads.reshape(sizes.batch, sizes.queries, sizes.heads, -1).transpose(0, 2, 1, 3)
    d_used = np.matmul(d_heads, parts[2].swapaxes(-1, -2))
    d_weights = d_used
    if call.param.training:
        d_weights = _drop(d_used, _masks(sizes, kept)[0], call.param.attn_prob)
    inner = (d_weights * weights).sum(axis=-1, keepdims=True, dtype=np.float64)
    d_scores = weights * (d_weights - inner.astype(np.float32)) * np.float32(sizes.scale)
    d_parts = (
        np.matmul(d_scores, parts[1]),
        np.matmul(d_scores.swapaxes(-1, -2), parts[0]),
        np.matmul(used.swapaxes(-1, -2), d_heads),
    )
    inputs = []
    for i, x in enumerate((q, k, v)):
        matrix, place = matrices[i], places[i]
        if matrix is None or place is None:
            inputs.append(d_parts[i].sum(axis=1))
        else:
            merged = _merge_heads(d_parts[i])
            inputs.append(_linear_gradient(x, merged, matrix, place, bias_places[i]))
    if sizes.reslink:
        inputs[0] = inputs[0] + diff
    kind = call.dtype(1)
    empty = np.zeros(0, kind.storage)
    return [*(narrow(a, kind) for a in (*inputs, grads.reshape(flat.shape))), empty, empty]


def _linear_gradient(
    x: Float32, dy: Float32, matrix: Float32, place: Float32, bias_place: Float32 | None
) -> Float32:
    """Gradient of x in y = x W + b; those of W and b are written to their places."""
    rows, diffs = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    place[...] = rows.T @ diffs
    if bias_place is not None:
        bias_place[...] = diffs.sum(axis=0, dtype=np.float64)
    return np.asarray(np.matmul(dy, matrix.T))


MULTI_HEAD_ATTN = register(
    OpSpec(
        name="MultiHeadAttn",
        runtime_name="MultiHeadAttnForward",
        names=(Name("MultiHeadAttn", "v1.12.3", 10823589890459732839),),
        old_id=15170215230809952785,
        v2=(V2Id("MultiHeadAttn", 1, 15170215230809952785),),
        params=(P.MultiHeadAttn,),
        min_inputs=4,
        outputs=("out", "attn_weight", "mask_reservespace", "othr_reservespace"),
        output_count=4,
        inputs=("q", "k", "v", "qkvo_weight_bias", "attn_mask", "bias_k", "bias_v"),
        dtypes=of_floats(_dtypes, 4),
        shapes=_shapes,
        reference=_forward,
        is_pure=False,
        gaps=(_BIAS_KV,),
        source=_SECTION,
    )
)

MULTI_HEAD_ATTN_BACKWARD = register(
    OpSpec(
        name="MultiHeadAttnBackward",
        runtime_name="MultiHeadAttnBackward",
        names=(Name("MultiHeadAttnBackward", "v1.12.3", 16485929394938767330),),
        old_id=7412136711349863139,
        v2=(V2Id("MultiHeadAttnBackward", 1, 7412136711349863139),),
        params=(P.MultiHeadAttn,),
        inputs=(
            "diff",
            "q",
            "k",
            "v",
            "wqkv",
            "attn_mask",
            "attn_weight",
            "mask_reservespace",
            "othr_reservespace",
        ),
        min_inputs=8,
        output_count=6,
        outputs=("dq", "dk", "dv", "dweights", "dbias_k", "dbias_v"),
        dtypes=of_floats(_grad_dtypes, 5),
        shapes=_grad_shapes,
        reference=_backward,
        gaps=(_BIAS_KV,),
        source="derivative of MultiHeadAttn; checked against MegEngine 1.13.0",
    )
)
