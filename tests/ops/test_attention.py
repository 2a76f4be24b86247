from __future__ import annotations

import numpy as np
import pytest
from op_calls import apply_op
from slopes import assert_gradient

from mgeserial import params as P
from mgeserial.dtypes import DType, DTypeEnum
from mgeserial.errors import ShapeError, UnsupportedError

BYTE = DType(DTypeEnum.Byte)
MASK = P.MultiHeadAttnAttnMaskType.USER_DEFINED_MASK
EXTRA = P.MultiHeadAttnTensorCombinationType


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) / 2


def plain(**changes: object) -> P.MultiHeadAttn:
    """Two heads, q of 4 and k, v of 6 elements, projected to 4, 4, 6 and 5, with biases."""
    base = P.MultiHeadAttn(
        num_heads=2, embeding_size=4, k_size=6, v_size=6, qproj_size=4, kproj_size=4,
        vproj_size=6, oproj_size=5, qbias=True, kbias=True, vbias=True, obias=True,
        sm_scaler=0.5, training=False,
    )  # fmt: skip
    return base.replace(**changes)


WEIGHTS = 4 * 4 + 6 * 4 + 6 * 6 + 6 * 5 + 4 + 4 + 6 + 5


def inputs() -> tuple[np.ndarray, ...]:
    return (
        numbers(2, 3, 4),
        numbers(2, 5, 6, seed=1),
        numbers(2, 5, 6, seed=2),
        numbers(1, WEIGHTS, seed=3),
    )


def test_one_head_without_projections_is_softmax_of_products() -> None:
    q, k, v = numbers(1, 3, 4), numbers(1, 5, 4, seed=1), numbers(1, 5, 2, seed=2)
    param = P.MultiHeadAttn(
        embeding_size=4, k_size=4, v_size=2, oproj_size=0, qproj_size=0, training=False
    )
    # The weights of no projection are an empty array.
    out, weights, mask, _ = apply_op(
        "MultiHeadAttn", q, k, v, np.zeros((1, 0), np.float32), param=param, count=4
    )
    scores = np.exp(q[0] @ k[0].T)
    scores /= scores.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(weights[0], scores, rtol=1e-5)
    np.testing.assert_allclose(out[0], scores @ v[0], rtol=1e-5, atol=1e-6)
    assert mask.shape == (0,)


def test_heads_are_contiguous_chunks_of_projections() -> None:
    q, k, v, flat = inputs()
    out = apply_op("MultiHeadAttn", q, k, v, flat, param=plain(), count=4)[0]
    w = flat.reshape(-1)
    wq, wk, wv = w[:16].reshape(4, 4), w[16:40].reshape(6, 4), w[40:76].reshape(6, 6)
    wo, bq, bk = w[76:106].reshape(6, 5), w[106:110], w[110:114]
    bv, bo = w[114:120], w[120:]
    pq, pk, pv = q @ wq + bq, k @ wk + bk, v @ wv + bv
    heads = []
    for head in range(2):
        two, three = slice(2 * head, 2 * head + 2), slice(3 * head, 3 * head + 3)
        scores = np.exp(pq[..., two] @ pk[..., two].swapaxes(1, 2) * 0.5)
        heads.append(scores / scores.sum(axis=-1, keepdims=True) @ pv[..., three])
    np.testing.assert_allclose(out, np.concatenate(heads, -1) @ wo + bo, rtol=1e-4, atol=1e-5)


def test_masks_take_either_shape_and_other_kinds_are_ignored() -> None:
    q, k, v, flat = inputs()
    mask = np.where(np.eye(3, 5) > 0, 0, -1e9).astype(np.float32)
    param = plain(attn_mask_type=MASK, tensor_combination_type=EXTRA.ONLY_MASK)
    first = apply_op("MultiHeadAttn", q, k, v, flat, mask, param=param, count=4)
    np.testing.assert_array_equal(first[1], np.broadcast_to(np.eye(3, 5), (4, 3, 5)))
    every = np.broadcast_to(mask, (4, 3, 5)).copy()
    second = apply_op("MultiHeadAttn", q, k, v, flat, every, param=param, count=4)
    np.testing.assert_array_equal(first[0], second[0])
    ignored = apply_op(
        "MultiHeadAttn", q, k, v, flat, mask, count=4,
        param=plain(tensor_combination_type=EXTRA.ONLY_MASK),
    )  # fmt: skip
    without = apply_op("MultiHeadAttn", q, k, v, flat, param=plain(), count=4)
    np.testing.assert_array_equal(ignored[0], without[0])


@pytest.mark.parametrize("drop", [0.0, 0.4])
@pytest.mark.parametrize("masked", [False, True])
def test_gradient_of_attention(drop: float, masked: bool) -> None:
    q, k, v, flat = inputs()
    param = plain(training=True, attn_prob=drop, out_prob=drop, seed=3)
    extra: tuple[np.ndarray, ...] = ()
    if masked:
        extra = (np.where(numbers(3, 5, seed=4) > -0.3, 0, -1e9).astype(np.float32),)
        param = param.replace(attn_mask_type=MASK, tensor_combination_type=EXTRA.ONLY_MASK)
    diff = numbers(2, 3, 5, seed=9)

    def loss(*arrays: np.ndarray) -> float:
        out = apply_op("MultiHeadAttn", *arrays, *extra, param=param, count=4)[0]
        return float((out.astype(np.float64) * diff).sum())

    _, weights, kept, reserve = apply_op(
        "MultiHeadAttn", q, k, v, flat, *extra, param=param, count=4
    )
    count = len(extra)
    grads = apply_op(
        "MultiHeadAttnBackward", diff, q, k, v, flat, *extra, weights, kept, reserve,
        param=param, count=6, dtypes=(*[None] * (6 + count), BYTE, None),
    )  # fmt: skip
    assert [g.shape for g in grads[4:]] == [(0,), (0,)]
    assert_gradient(loss, (q, k, v, flat), grads[:4])


def test_errors_say_what_does_not_fit() -> None:
    q, k, v, flat = inputs()
    with pytest.raises(ShapeError, match=f"must have {WEIGHTS} elements, got 7"):
        apply_op("MultiHeadAttn", q, k, v, flat[:, :7], param=plain(), count=4)
    with pytest.raises(ShapeError, match="not a multiple of 3 heads"):
        apply_op("MultiHeadAttn", q, k, v, flat, param=plain(num_heads=3), count=4)
    with pytest.raises(UnsupportedError, match="add_zero_attn is not supported"):
        apply_op("MultiHeadAttn", q, k, v, flat, param=plain(add_zero_attn=True), count=4)
    param = plain(tensor_combination_type=EXTRA.ONLY_MASK)
    with pytest.raises(ShapeError, match="ONLY_MASK has 5 inputs, got 4"):
        apply_op("MultiHeadAttn", q, k, v, flat, param=param, count=4)
