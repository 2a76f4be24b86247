"""Transposed convolution (the gradient of a convolution's input) on blocked tensors.

With stride s, output rows and columns of equal remainder modulo s read the same taps: each of the
s*s remainders is a plain convolution of stride 1 with a part of the filter, writing every s-th
pixel.
Argument table of each part: input, weights, bias, output, operand, taps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from loadrun.backends.cpu.kernels import micro
from loadrun.backends.cpu.kernels.common import Epilogue, needs_operand
from loadrun.backends.cpu.kernels.conv import ConvSpec, pack_panels
from loadrun.backends.cpu.kernels.tiled import Choice, Grid, Tiled, Walk
from loadrun.backends.cpu.layout import Halo, Image
from loadrun.backends.cpu.plan import Array, Kernel
from loadrun.backends.cpu.target import Target


@dataclass(frozen=True, slots=True)
class _Tap:
    """A filter element along one axis and the input position it reads, relative to the output's."""

    k: int
    at: int


def _taps(remainder: int, kernel: int, stride: int, pad: int, dilation: int) -> list[_Tap]:
    """Taps that outputs stride*i + remainder read at input i + at."""
    found = []
    for k in range(kernel):
        distance = remainder + pad - k * dilation
        if distance % stride == 0:
            found.append(_Tap(k, distance // stride))
    return found


def halo(spec: ConvSpec, h: int, w: int, oh: int, ow: int) -> Halo:
    """Halo of the input: positions that some output reads beyond the image."""

    def sides(n: int, out: int, axis: tuple[int, int, int, int]) -> tuple[int, int]:
        low = high = 0
        for r in range(axis[1]):
            rows = -(-(out - r) // axis[1])
            for tap in _taps(r, *axis):
                if rows > 0:
                    low, high = max(low, -tap.at), max(high, tap.at + rows - n)
        return low, high

    top, bottom = sides(h, oh, (spec.kh, spec.sh, spec.ph, spec.dh))
    left, right = sides(w, ow, (spec.kw, spec.sw, spec.pw, spec.dw))
    return Halo(top, left, bottom, right)


def suits(spec: ConvSpec, lanes: int) -> bool:
    """Whether groups keep whole output vectors; `spec` is the forward convolution's."""
    return spec.groups == 1 or spec.ic % lanes == 0


class _Part:
    """The outputs of one remainder."""

    def __init__(self, tiled: Tiled, taps: Array, picked: tuple[list[_Tap], list[_Tap]]) -> None:
        self.tiled, self.taps, self.picked = tiled, taps, picked

    @property
    def kernel(self) -> Kernel:
        """The part's code."""
        return self.tiled.kernel

    @property
    def packed_bytes(self) -> int:
        """Bytes of the part's weights."""
        return self.tiled.group_bytes * self.tiled.grid.groups


class TransposedConv:
    """All parts of a transposed convolution; `spec` is that of the forward convolution.

    Its input has groups * spec.oc channels, its output groups * spec.ic.
    """

    def __init__(
        self,
        spec: ConvSpec,
        x: Image,
        y: Image,
        res: Image | None,
        epilogue: Epilogue,
        target: Target,
    ) -> None:
        """Generate the code; `x` and `y` are blocked."""
        if not suits(spec, target.lanes) or not x.halo.covers(halo(spec, x.h, x.w, y.h, y.w)):
            raise ValueError("transposed convolution: groups or halo do not fit")
        self.spec, self.target = spec, target
        self.depth = math.gcd(spec.oc, target.lanes, micro.MAX_DEPTH)
        self.vectors = -(-spec.ic // target.lanes)
        self.parts = [
            part
            for ry in range(min(spec.sh, y.h))
            for rx in range(min(spec.sw, y.w))
            if (part := self._part(ry, rx, x, y, res, epilogue)) is not None
        ]

    def _part(
        self, ry: int, rx: int, x: Image, y: Image, res: Image | None, epilogue: Epilogue
    ) -> _Part:
        s, t, lanes = self.spec, self.target, self.target.lanes
        down = _taps(ry, s.kh, s.sh, s.ph, s.dh)
        across = _taps(rx, s.kw, s.sw, s.pw, s.dw)
        rows = []
        for g in range(s.groups):
            first = [g * s.oc + k for k in range(0, s.oc, self.depth)]
            rows.append(
                [
                    (c // lanes) * x.block + (c % lanes) * 4 + v.at * x.row + u.at * x.pixel
                    for c in first
                    for v in down
                    for u in across
                ]
            )
        taps = np.array(rows, np.int32).reshape(s.groups, -1)
        height, width = -(-(y.h - ry) // s.sh), -(-(y.w - rx) // s.sw)

        def walk(image: Image) -> Walk:
            start = image.origin + ry * image.row + rx * image.pixel
            return Walk(start, image.image, image.row * s.sh, image.pixel * s.sw, image.block)

        operand = res if needs_operand(epilogue) else None
        grid = Grid(
            y.n,
            height,
            width,
            self.vectors,
            taps.shape[1],
            self.depth,
            Walk(x.origin, x.image, x.row, x.pixel),
            walk(y),
            walk(operand) if operand is not None else Walk(0, 0, 0, 0),
            groups=s.groups,
        )
        nb = min(self.vectors, 2)
        most = t.tile(nb)
        high = min(most // width, height) if width <= most // 2 else 1
        choice = Choice(nb, min(width, most), high, min(4, -(-height // high)), False, False)
        name = f"deconv_f32_{s.name()}{epilogue.tag()}"
        return _Part(Tiled(name, grid, choice, epilogue, t), taps, (down, across))

    def pack(self, part: _Part, weights: Array, out: Array) -> None:
        """Write the part's share of the forward convolution's filter (groups, oc, ic, kh, kw)."""
        s, lanes = self.spec, self.target.lanes
        down, across = part.picked
        w = weights[:, :, :, [v.k for v in down]][:, :, :, :, [u.k for u in across]]
        w = w.reshape(s.groups, s.oc // self.depth, self.depth, s.ic, *w.shape[3:])
        w = w.transpose(0, 1, 4, 5, 2, 3)
        width = part.tiled.choice.nb * lanes
        pack_panels(w, width, out, columns=self.vectors * lanes)
