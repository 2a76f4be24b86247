"""Rewriting of views before anything else: views of views, and phases of pixels under a filter.

A strided view of a strided view is one strided view. Where channels are only picked, joined and
exchanged (channel shuffles, too), it is one map of channels. Where a convolution reads the
interleaved phases of an image as channels (the "focus" of YOLO networks, or space to depth), it is
the same as a convolution of the image itself with a larger filter and stride, without any copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.kernels.conv import ConvSpec
from loadrun.backends.cpu.nodes import (
    ChannelMap,
    Conv,
    Network,
    Node,
    Reshape,
    TransposedConv,
    View,
)
from loadrun.backends.cpu.plan import Array

# What convolutions read from NCHW directly; see steps_conv.wants_planar.
_FEW, _WIDEST = 4, 16
# Channel maps are straight code: bounds on what one may grow to.
_MOST_CHANNELS, _MOST_SOURCES = 4096, 8

_Phase = tuple[int, int]


def rewrite(network: Network) -> Network:
    """Join views of views and move phases into filters; nodes that nothing needs go."""
    made: dict[str, Node] = {}
    nodes: list[Node] = []
    for given in network.nodes:
        node = given
        if isinstance(node, View):
            node = _joined(network, node, made)
        elif isinstance(node, Reshape):
            node = _shuffled(network, node, made)
        nodes.append(node)
        made.update(dict.fromkeys(node.outputs, node))
    nodes = _with_joined_maps(network, _needed(nodes, network.outputs))
    readers = Counter(name for n in nodes for name in n.inputs)
    readers.update(network.outputs)
    made = {name: n for n in nodes for name in n.outputs}
    nodes = [
        _unfocused(network, n, made, readers)
        if isinstance(n, Conv) and not isinstance(n, TransposedConv)
        else n
        for n in nodes
    ]
    return replace(network, nodes=tuple(_needed(nodes, network.outputs)))


def _needed(nodes: Sequence[Node], outputs: Sequence[str]) -> list[Node]:
    """The nodes without views and channel maps that nothing reads."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if isinstance(node, View | Reshape | ChannelMap) and not wanted.intersection(node.outputs):
            continue
        wanted.update(node.inputs)
        kept.append(node)
    return kept[::-1]


def _digits(number: int, strides: Sequence[int]) -> list[int]:
    """Coordinates of an element of a contiguous array."""
    out = []
    for step in strides:
        digit, number = divmod(number, step)
        out.append(digit)
    return out


def _dot(digits: Sequence[int], strides: Sequence[int]) -> int:
    return sum(d * s for d, s in zip(digits, strides, strict=True))


def _joined(network: Network, node: View, made: Mapping[str, Node]) -> View:
    """A view of what its source is a view of, if the two together are one strided view."""
    inner = made.get(node.inputs[0])
    while isinstance(inner, Reshape):  # the same elements
        node = replace(node, inputs=inner.inputs)
        inner = made.get(node.inputs[0])
    if not isinstance(inner, View):
        return node
    sizes, out = network.shapes[node.inputs[0]], network.shapes[node.outputs[0]]
    if min(*node.strides, node.offset, 0) < 0:
        return node
    dense = contiguous(sizes)
    at = _digits(node.offset, dense)
    steps = [_digits(s if n > 1 else 0, dense) for s, n in zip(node.strides, out, strict=True)]
    for k, size in enumerate(sizes):
        # A coordinate that runs over would carry into the next dimension.
        if at[k] + sum(d[k] * (n - 1) for d, n in zip(steps, out, strict=True)) >= size:
            return node
    strides = tuple(_dot(d, inner.strides) for d in steps)
    offset = inner.offset + _dot(at, inner.strides)
    return replace(node, inputs=inner.inputs, strides=strides, offset=offset)


def _shuffled(network: Network, node: Reshape, made: Mapping[str, Node]) -> Node:
    """A reshaped view of an image that only exchanges or picks channels, as a channel map."""
    view = made.get(node.inputs[0])
    out = network.shapes[node.outputs[0]]
    if not isinstance(view, View) or len(out) != 4 or out[1] > _MOST_CHANNELS:
        return node
    name = view.inputs[0]
    given, dims = network.shapes[name], network.shapes[node.inputs[0]]
    plane = out[2] * out[3]
    if len(given) != 4 or given[0] != out[0] or given[2:] != out[2:] or plane == 1:
        return node
    if network.dtype(name) != "float32" or name in network.consts:
        return node
    parts = _parted(dims, out[0], plane)
    if parts is None or min(view.strides) < 0:
        return node
    i, j = parts
    dense = contiguous(given)
    rows = zip(view.strides[:i], contiguous(dims[:i]), dims[:i], strict=True)
    pixels = zip(view.strides[j:], contiguous(dims[j:]), dims[j:], strict=True)
    if any(s != c * dense[0] for s, c, n in rows if n > 1) or any(
        s != c for s, c, n in pixels if n > 1
    ):
        return node
    at = np.full(1, view.offset)
    for n, step in zip(dims[i:j], view.strides[i:j], strict=True):
        at = (at[:, None] + np.arange(n) * step).reshape(-1)
    if (at % plane).any() or at.max() >= given[1] * plane:
        return node
    channels = tuple((0, int(k)) for k in at // plane)
    return ChannelMap(node.name, (name,), node.outputs, channels)


def _parted(dims: Sequence[int], images: int, plane: int) -> tuple[int, int] | None:
    """Where dimensions of images end and those of pixels begin; None if they do not."""
    first = last = 0
    before, after = 1, 1
    while before < images and first < len(dims):
        before *= dims[first]
        first += 1
    while after < plane and last < len(dims):
        last += 1
        after *= dims[-last]
    end = len(dims) - last
    return (first, end) if before == images and after == plane and first <= end else None


def _with_joined_maps(network: Network, nodes: Sequence[Node]) -> list[Node]:
    """Channel maps of channel maps that nothing else reads as one."""
    others = {n for node in nodes if not isinstance(node, ChannelMap) for n in node.inputs}
    others.update(network.outputs)
    made: dict[str, ChannelMap] = {}
    out: list[Node] = []
    for given in nodes:
        node = given
        if isinstance(node, ChannelMap):
            node = _one_map(node, {n: m for n, m in made.items() if n not in others})
            made[node.outputs[0]] = node
        out.append(node)
    return _needed(out, network.outputs)


def _one_map(node: ChannelMap, made: Mapping[str, ChannelMap]) -> ChannelMap:
    """A channel map that reads what the maps before it read."""
    found: list[tuple[str, int]] = []
    for source, channel in node.channels:
        name = node.inputs[source]
        inner = made.get(name)
        if inner is not None:
            source, channel = inner.channels[channel]
            name = inner.inputs[source]
        found.append((name, channel))
    names = tuple(dict.fromkeys(name for name, _ in found))
    if len(names) > _MOST_SOURCES or names == node.inputs:
        return node
    order = {name: k for k, name in enumerate(names)}
    return replace(node, inputs=names, channels=tuple((order[n], c) for n, c in found))


def _phase(network: Network, node: Node | None) -> tuple[str, _Phase, _Phase] | None:
    """The image, the phase and the steps of a view that takes every pixel of one phase."""
    if not isinstance(node, View):
        return None
    full, part = network.shapes[node.inputs[0]], network.shapes[node.outputs[0]]
    if len(full) != 4 or len(part) != 4 or part[:2] != full[:2] or 0 in part:
        return None
    (sh, rest_h), (sw, rest_w) = divmod(full[2], part[2]), divmod(full[3], part[3])
    dense = contiguous(full)
    wanted = (dense[0], dense[1], dense[2] * sh, dense[3] * sw)
    if (
        rest_h
        or rest_w
        or any(a != b for a, b, n in zip(node.strides, wanted, part, strict=True) if n > 1)
    ):
        return None
    i, j = divmod(node.offset, full[3])
    return (node.inputs[0], (i, j), (sh, sw)) if i < sh and j < sw else None


def _unfocused(
    network: Network, node: Conv, made: Mapping[str, Node], readers: Mapping[str, int]
) -> Conv:
    """A convolution of the phases of an image as one of the image, where that has few channels."""
    spec, joined = node.spec, made.get(node.inputs[0])
    if not isinstance(joined, ChannelMap) or readers[node.inputs[0]] > 1:
        return node
    if node.byte or spec.groups != 1 or (spec.dh, spec.dw) != (1, 1):
        return node
    phases = [_phase(network, made.get(name)) for name in joined.inputs]
    found = [p for p in phases if p is not None]
    if len(found) < len(phases) or len({(image, steps) for image, _, steps in found}) != 1:
        return node
    image, _, (sh, sw) = found[0]
    channels = network.shapes[image][1]
    if channels > _FEW or spec.kw * sw > _WIDEST or network.dtype(image) != "float32":
        return node
    filters = np.zeros((1, spec.oc, channels, spec.kh * sh, spec.kw * sw), node.weights.dtype)
    for k, (source, channel) in enumerate(joined.channels):
        _, (i, j), _ = found[source]
        filters[:, :, channel, i::sh, j::sw] += _plane(node.weights, k)
    grown = ConvSpec(
        *(1, spec.oc, channels, spec.kh * sh, spec.kw * sw),
        *(spec.sh * sh, spec.sw * sw, spec.ph * sh, spec.pw * sw),
    )
    return replace(node, inputs=(image, *node.inputs[1:]), spec=grown, weights=filters)


def _plane(weights: Array, channel: int) -> Array:
    """The filters' planes of one input channel, (1, oc, kh, kw)."""
    plane: Array = weights[:, :, channel]
    return plane
