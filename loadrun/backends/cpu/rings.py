"""Tensors of a band of which only some rows are in memory.

What lies between two steps of a band is read soon after it was written, so a ring of rows will do
(see layout.py): every band writes the lines that the core's cache still holds from the band before,
where a whole tensor would be fetched from far memory and written back. MobileNetV2's first blocks
make 17 MB of such tensors, and run 4 % faster with rings on Zen 5.

Most kernels need not know. They walk from row to row, so their ranges are cut where a ring starts
over, and their pointers are moved. Depthwise convolutions and pooling, whose windows may lie across
that line, find their rows themselves. Other convolutions of windows get the whole tensor.

Where several threads work on chunks of bands, every chunk has rings of its own (placing.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.kernels import depthwise
from loadrun.backends.cpu.plan import Buffer, Step
from loadrun.backends.cpu.schedule import Range, rows_of


def candidates(network: nd.Network, nodes: Sequence[nd.Node]) -> set[str]:
    """Tensors made and read among `nodes` only, by readers that can do with a ring."""
    made = {name for node in nodes for name in node.outputs} - set(network.outputs)
    inside = {id(node) for node in nodes}
    for node in network.nodes:
        for position, name in enumerate(node.inputs):
            twice = name in node.inputs[:position]  # a kernel would find rows for one of them only
            if not (id(node) in inside and _takes_ring(node, position) and not twice):
                made.discard(name)
    return made


def _takes_ring(node: nd.Node, position: int) -> bool:
    if isinstance(node, nd.Pooling):
        return True
    if not isinstance(node, nd.Conv) or isinstance(node, nd.TransposedConv):
        return False
    spec = node.spec
    if position == 1:  # the operand of the epilogue
        return True
    if spec.depthwise:
        return spec.kh * spec.kw <= depthwise.UNROLL
    return spec.kh == 1 and spec.ph == 0


def heights(group: Sequence[Step], chunks: Sequence[Sequence[Range]]) -> dict[str, int]:
    """By buffer that a step makes and a later one reads, the rows that must be kept at a time."""
    maker = {name: k for k, step in enumerate(group) for name in step.writes}
    kept: dict[str, int] = {}
    for chunk in chunks:
        top: dict[str, int] = {}
        for r in chunk:
            step = group[r.step]
            for name, low in _first_rows(step, r.low):
                if name in maker:
                    kept[name] = max(kept.get(name, 0), top[name] - low)
            top |= dict.fromkeys(step.writes, r.high)
    for name in kept:
        grain = rows_of(group[maker[name]]).rows_per_unit
        for step in group:
            grain = math.lcm(grain, rows_of(step).rows_per_unit * (_stride(step, name) or 1))
        kept[name] = -(-kept[name] // grain) * grain
    return kept


def _first_rows(step: Step, low: int) -> list[tuple[str, int]]:
    """The first row that a step reads of each of its inputs for its own row `low`."""
    rows = rows_of(step)
    first = max(low * rows.stride - rows.pad, 0)
    return [(name, low if k else first) for k, name in enumerate(step.reads)]


def _stride(step: Step, name: str) -> int:
    """Rows of a buffer to a row of the step that walks through it; 0: it does not."""
    rows = rows_of(step)
    if step.reads[:1] == (name,):
        return 0 if rows.wraps else rows.stride
    return 1 if name in step.writes or name in step.reads else 0


def cut(
    group: Sequence[Step],
    buffers: Mapping[str, Buffer],
    chunks: Sequence[Sequence[Range]],
    threads: int,
) -> list[list[Range]]:
    """The chunks with ranges cut where rings start over, and pointers moved.

    Raises:
        AssertionError: A ring holds fewer rows than the chunks need.
    """
    for name, rows in heights(group, chunks).items():
        image = buffers[name].image
        assert image is None or not image.ring or rows <= image.ring, f"{name}: ring too small"
    return [
        [
            piece
            for r in chunk
            for piece in _pieces(group[r.step], buffers, r, 0 if threads == 1 else number)
        ]
        for number, chunk in enumerate(chunks)
    ]


def _pieces(step: Step, buffers: Mapping[str, Buffer], r: Range, copy: int) -> list[Range]:
    """A range in pieces, each within one round of every ring that is walked by moved pointers."""
    rows = rows_of(step)
    used = {n: buffers[n].image for n in dict.fromkeys((*step.reads, *step.writes))}
    rings = {n: image for n, image in used.items() if image is not None and image.ring}
    walks = [(n, image.ring, s) for n, image in rings.items() if (s := _stride(step, n))]
    edges = {r.low, r.high}
    for _, size, stride in walks:
        edges |= set(range(r.low - r.low % (size // stride), r.high, size // stride))
    order = sorted(e for e in edges if r.low <= e <= r.high)
    out = []
    for low, high in itertools.pairwise(order):
        moves = [(n, -(low * stride // size) * size * rings[n].row) for n, size, stride in walks]
        begin = r.begin + (low - r.low) // rows.rows_per_unit * rows.units_per_row
        end = r.begin - (r.low - high) // rows.rows_per_unit * rows.units_per_row
        own = copy if rings else 0
        some = tuple((n, m) for n, m in moves if m)
        out.append(replace(r, begin=begin, end=end, low=low, high=high, copy=own, moves=some))
    return out
