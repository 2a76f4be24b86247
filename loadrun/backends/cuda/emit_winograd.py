"""3x3 convolutions of float32 by Winograd's F(4x4, 3x3): a quarter of the products.

Three launches: tiles of 6 x 6 pixels become 36 values each; those of all channels are multiplied by
36 transformed filters, which is 36 products of matrices for `tile.cu`; 36 values of each output
channel become 4 x 4 sums, with what follows them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda import source
from loadrun.backends.cuda.emit_conv import common_fields, emit_conv, extras_of, store_code
from loadrun.backends.cuda.emit_pointwise import scalar_args, scalar_params, simple_launch
from loadrun.backends.cuda.emit_tiles import Maker
from loadrun.backends.cuda.expr import ACC, Builder
from loadrun.backends.cuda.plan import Array, Launch, Pointer, Step
from loadrun.backends.cuda.variants import WINOGRAD_POINTS, Algorithm, Choice, winograd_tiles
from loadrun.backends.filtering import Matrix, halves, matrices

__all__ = ["emit_winograd"]

_BLOCK = 128


def _sum(terms: Sequence[tuple[Fraction, str]]) -> str:
    """C code of the sum of factor * name."""
    code = ""
    for factor, name in sorted((t for t in terms if t[0]), key=lambda t: t[0] != 1):
        number = f"{float(factor)!r}f"
        if not code:
            code = name if factor == 1 else f"{number} * {name}"
        else:
            code = f"{code} + {name}" if factor == 1 else f"fmaf({name}, {number}, {code})"
    return code or "0.f"


def _rows(matrix: Matrix) -> str:
    """C code of e = matrix d, where rows 1 and 2, 3 and 4 are even half +- odd half."""
    names = [f"d[{k}]" for k in range(6)]

    def row(factors: Sequence[Fraction]) -> str:
        return _sum(list(zip(factors, names, strict=True)))

    lines = [f"e[0] = {row(matrix[0])};"]
    for k in (1, 3):
        even, odd = halves(matrix[k], matrix[k + 1])
        lines += [
            f"float even{k} = {row(even)}, odd{k} = {row(odd)};",
            f"e[{k}] = even{k} + odd{k};",
            f"e[{k + 1}] = even{k} - odd{k};",
        ]
    return "\n    ".join([*lines, f"e[5] = {row(matrix[5])};"])


def _columns(matrix: Matrix) -> str:
    """C code of e = matrix d, where columns 1 and 2, 3 and 4 differ in sign at most."""
    columns = list(zip(*matrix, strict=True))
    lines, terms = [], [(columns[0], "d[0]")]
    for k in (1, 3):
        even, odd = halves(columns[k], columns[k + 1])
        lines.append(f"float even{k} = d[{k}] + d[{k + 1}], odd{k} = d[{k}] - d[{k + 1}];")
        terms += [(tuple(even), f"even{k}"), (tuple(odd), f"odd{k}")]
    terms.append((columns[5], "d[5]"))
    sums = (_sum([(c[i], name) for c, name in terms]) for i in range(len(matrix)))
    lines += [f"e[{i}] = {code};" for i, code in enumerate(sums)]
    return "\n    ".join(lines)


def _filters(node: nd.Conv, array: Array) -> Array:
    """The 36 transformed filters as (value, input channel, output channel)."""
    c, m = node.depth, node.outputs_each
    taps = array.reshape(9, c, m) if node.taps_first else array.reshape(c, 9, m).swapaxes(0, 1)
    g = np.array(matrices(4)[1], np.float64)
    wide = np.tensordot(g, taps.reshape(3, 3, c * m).astype(np.float64), 1)
    both = np.tensordot(g, wide.swapaxes(0, 1), 1).swapaxes(0, 1)
    return both.reshape(WINOGRAD_POINTS, c, m).astype(np.float32)


def emit_winograd(node: nd.Conv, net: nd.Network, maker: Maker, choice: Choice) -> list[Step]:
    """The launches of a node that `variants` gave such a choice."""
    c, m = node.depth, node.outputs_each
    down, across = winograd_tiles(node)
    tiles = node.batch * down * across
    values = maker.scratch(f"{node.name}:values", WINOGRAD_POINTS * c * tiles)
    sums = maker.scratch(f"{node.name}:sums", WINOGRAD_POINTS * m * tiles)
    at, _, bt = matrices(4)
    before = source.kernel("winograd_in", "winograd_in", TRANSFORM=_rows(bt))
    xn, _, xc, _, xh, xw = node.x_strides
    _, ph, pw = node.pad
    sizes = (*node.size[1:], ph, pw, xn, xc, xh, xw)
    args = (Pointer(node.x), Pointer(values), c * tiles, tiles, across, down, *sizes)
    first = simple_launch(
        node, before, args, c * tiles, name=f"{node.name}:tiles", per_block=_BLOCK, block=_BLOCK,
        reads=(node.x,), writes=(values,), algorithm="winograd",
    )  # fmt: skip
    return [
        first,
        *_products(node, net, maker, choice, (values, sums)),
        _after(node, net, sums, (tiles, across, down), _columns(at)),
    ]


def _products(
    node: nd.Conv, net: nd.Network, maker: Maker, choice: Choice, buffers: tuple[str, str]
) -> list[Step]:
    c, m = node.depth, node.outputs_each
    tiles = node.batch * math.prod(winograd_tiles(node))
    values, sums = buffers
    filters = f"{node.w}:winograd"
    one = (1, 1, 1)
    part = replace(
        node, name=f"{node.name}:products", outputs=(sums,), x=values, w=filters, batch=1,
        groups=WINOGRAD_POINTS, size=(1, 1, tiles), out=(1, 1, tiles), kernel=one, stride=one,
        pad=(0, 0, 0), dilate=one, x_strides=(0, c * tiles, tiles, 0, 0, 1),
        w_strides=(c * m, 1, m), y_strides=(0, m * tiles, tiles, 0, 0, 1),
        expr=Builder().done(ACC), extras=(), taps_first=False, label="winograd",
    )  # fmt: skip
    infos = {
        values: nd.TensorInfo((WINOGRAD_POINTS, c, tiles), "float32", "f32"),
        sums: nd.TensorInfo((WINOGRAD_POINTS, m, tiles), "float32", "f32"),
        filters: nd.TensorInfo((WINOGRAD_POINTS, c, m), "float32", "f32"),
    }
    wider = replace(
        net, tensors={**net.tensors, **infos},
        consts={**net.consts, filters: _filters(node, net.consts[node.w])},
    )  # fmt: skip
    return emit_conv(part, wider, maker, replace(choice, algorithm=Algorithm.SCALAR))


def _after(
    node: nd.Conv, net: nd.Network, sums: str, counts: tuple[int, int, int], transform: str
) -> Launch:
    params, extra_args, elements = extras_of(node, net)
    kernel = source.kernel(
        "winograd_out", "winograd_out", **common_fields(node, net), EXTRAS=params,
        SCALARS=scalar_params(node.expr), STORE=store_code(node.expr, elements),
        TRANSFORM=transform,
    )  # fmt: skip
    m = node.outputs_each
    tiles, across, down = counts
    sizes = (m * tiles, m, tiles, across, down, *node.out[1:], *node.y_strides)
    args = (Pointer(sums), *extra_args, Pointer(node.outputs[0]), *sizes, *scalar_args(node.expr))
    return simple_launch(
        node, kernel, args, m * tiles, per_block=_BLOCK, block=_BLOCK,
        reads=tuple(dict.fromkeys((sums, *(a.tensor for a in node.extras)))),
    )  # fmt: skip
