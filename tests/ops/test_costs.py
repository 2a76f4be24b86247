from __future__ import annotations

import math

import pytest

from mgeserial import params as P
from mgeserial.dtypes import FLOAT32, INT32
from mgeserial.ir.types import Call, TensorType
from mgeserial.ops.costs import cost_of
from mgeserial.ops.registry import by_name


def call(name, params, shapes, outputs, dtype=FLOAT32):
    return Call(
        op=by_name(name),
        params=params,
        inputs=tuple(TensorType(dtype, s) for s in shapes),
        output_types=tuple(TensorType(dtype, s) for s in outputs),
    )


def conv(src, filters, out, **param):
    return call(
        "Convolution", (P.Convolution(**param), P.ExecutionPolicy()), (src, filters), (out,)
    )


def direct(batch, channels, rows, columns, depth, kernel):
    """Operations of a convolution counted by its loops."""
    count = 0
    for _ in range(batch * channels * rows * columns):
        count += 2 * depth * kernel * kernel
    return count


def test_convolution_counts_its_products_and_sums():
    found = cost_of(conv((2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 6, 6)))
    assert found.flops == direct(2, 4, 6, 6, 3, 3)
    assert found.read_bytes == 4 * (2 * 3 * 8 * 8 + 4 * 3 * 3 * 3)
    assert found.written_bytes == 4 * 2 * 4 * 6 * 6
    assert found.moved_bytes == found.read_bytes + found.written_bytes


def test_groups_count_their_own_channels_only():
    grouped = conv((1, 4, 8, 8), (4, 1, 1, 3, 3), (1, 4, 6, 6), sparse=P.ConvolutionV0Sparse.GROUP)
    assert cost_of(grouped).flops == direct(1, 4, 6, 6, 1, 3)


def test_strides_and_padding_count_by_the_result():
    found = conv((1, 1, 8, 8), (1, 1, 3, 3), (1, 1, 4, 4), stride_h=2, stride_w=2, pad_h=1, pad_w=1)
    assert cost_of(found).flops == direct(1, 1, 4, 4, 1, 3)


def test_packed_layouts_count_as_nchw():
    packed = conv(
        (1, 1, 8, 8, 4), (2, 1, 3, 3, 4, 4), (1, 2, 6, 6, 4), format=P.ConvolutionFormat.NCHW44
    )
    assert cost_of(packed).flops == direct(1, 8, 6, 6, 4, 3)


def test_transposed_convolution_counts_the_forward_one():
    params = (P.Convolution(), P.ExecutionPolicy())
    shapes = ((4, 3, 3, 3), (1, 4, 6, 6))
    found = call("ConvolutionBackwardData", params, shapes, ((1, 3, 8, 8),))
    assert cost_of(found).flops == direct(1, 4, 6, 6, 3, 3)


def test_counts_beyond_32_and_64_bits_are_exact():
    n = 1 << 14
    big = cost_of(conv((n, n, 514, 514), (n, n, 3, 3), (n, n, 512, 512)))
    assert big.flops == 2 * n * n * 512 * 512 * n * 9
    assert big.flops > 2**63
    assert big.read_bytes > 2**31


@pytest.mark.parametrize(
    ("transposes", "left", "right", "k"),
    [((False, False), (5, 7), (7, 3), 7), ((True, False), (7, 5), (7, 3), 7),
     ((False, True), (5, 7), (3, 7), 7)],
)  # fmt: skip
def test_matrix_products(transposes, left, right, k):
    param = P.MatrixMul(transposeA=transposes[0], transposeB=transposes[1])
    assert cost_of(call("MatrixMul", (param,), (left, right), ((5, 3),))).flops == 2 * 5 * 3 * k


def test_batched_products_count_every_matrix():
    found = call("BatchedMatrixMul", (P.MatrixMul(),), ((6, 5, 7), (6, 7, 3)), ((6, 5, 3),))
    assert cost_of(found).flops == 6 * 2 * 5 * 3 * 7


def test_pooling_elementwise_reductions_and_moves():
    pool = P.Pooling(window_h=2, window_w=3)
    assert cost_of(call("Pooling", (pool,), ((1, 2, 8, 9),), ((1, 2, 4, 3),))).flops == 24 * 6
    relu = P.Elemwise(mode=P.ElemwiseMode.RELU)
    assert cost_of(call("Elemwise", (relu,), ((4, 5),), ((4, 5),))).flops == 20
    fused = P.Elemwise(mode=P.ElemwiseMode.FUSE_MUL_ADD3)
    assert cost_of(call("Elemwise", (fused,), ((4, 5),) * 3, ((4, 5),))).flops == 40
    reduce = P.Reduce(axis=1)
    assert cost_of(call("Reduce", (reduce,), ((4, 5),), ((4, 1),))).flops == 20
    assert cost_of(call("Reshape", (P.OptionalAxisV1(),), ((4, 5), (1,)), ((20,),))).flops == 0


def test_unknown_operators_and_shapes_have_no_count():
    found = cost_of(call("Argsort", (P.Argsort(),), ((4, 5),), ((4, 5), (4, 5)), INT32))
    assert found.flops is None
    assert found.read_bytes == 80
    unknown = conv((None, 3, 8, 8), (4, 3, 3, 3), (None, 4, 6, 6))
    assert cost_of(unknown).flops is None
    assert cost_of(unknown).moved_bytes is None
    wrong = conv((1, 5, 8, 8), (4, 3, 3, 3), (1, 4, 6, 6))
    assert cost_of(wrong).flops is None


def test_every_known_operator_of_the_corpus_has_a_whole_number():
    from corpus_cases import iter_models

    import mgeserial
    from mgeserial.errors import MgeError
    from mgeserial.ir.inference import call_of

    seen = 0
    for _, model in iter_models(families=["nets"]):
        try:
            graph = mgeserial.load(model.path).graph
        except MgeError:
            continue
        for node in graph.nodes:
            flops = cost_of(call_of(node, graph.inference)).flops
            assert flops is None or (isinstance(flops, int) and flops >= 0)
            seen += flops is not None
    assert seen > 1000
    assert math.isfinite(seen)
