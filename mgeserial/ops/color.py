"""Colour spaces of images (n, h, w, c).

4:2:0 images have one channel and h * 3 / 2 rows: a plane of luma, then colour at half resolution,
either in pairs (NV12: U first, NV21: V first) or as two planes (YU12: U first, YV12: V first).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import Array, DType, DTypeEnum
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, ShapeLike
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import need

Ints = npt.NDArray[np.int32]
# Fixed point of the weights of luma and chroma.
_BITS = 14
# Weights of red, green, blue in gray, and what 8-bit arithmetic makes of them.
_GRAY = (0.299, 0.587, 0.114)
_GRAY_FIXED = (4899, 9617, 1868)


@dataclass(frozen=True, slots=True)
class ColorMode:
    """What a conversion takes and makes: channels, and for 4:2:0 the planes and their order.

    `planes` is "" for images with a channel axis, else NV12, NV21, YU12 or YV12.
    """

    source: str
    result: str
    channels: tuple[int, int]
    planes: str = ""
    bt601: bool = False


def color_mode(call: Call) -> ColorMode:
    """The conversion that a CvtColor asks for.

    Raises:
        UnsupportedError: Its mode is of no known release.
    """
    mode = call.param.mode
    if not mode.is_known:
        raise UnsupportedError(f"colour conversion {mode} is not known")
    name = str(mode)
    # Old names: these two read 4:2:0 images.
    name = {"YCrCb2RGB": "YUV2RGB_NV21", "YCrCb2BGR": "YUV2BGR_NV21"}.get(name, name)
    bt601 = name.startswith("BT601_")
    pair, _, planes = name.removeprefix("BT601_").partition("_")
    source, _, result = pair.partition("2")
    count = {"GRAY": 1, "RGBA": 4}
    taken = 1 if planes else count.get(source, 3)
    return ColorMode(source, result, (taken, count.get(result, 3)), planes, bt601)


def _cvt_dtypes(call: Call) -> list[DType]:
    mode, dtype = color_mode(call), call.dtype(0)
    kinds = {DTypeEnum.Uint8} if mode.planes else {DTypeEnum.Uint8, DTypeEnum.Float32}
    if dtype.kind not in kinds:
        names = " or ".join(sorted(k.name for k in kinds))
        raise UnsupportedError(f"{call.param.mode} needs {names} images, got {dtype}")
    return [dtype]


def _cvt_shapes(call: Call) -> list[ShapeLike]:
    mode, shape = color_mode(call), call.shape(0)
    need(
        len(shape) == 4 and shape[3] == mode.channels[0],
        f"{call.param.mode} needs images (n, h, w, {mode.channels[0]}), got shape {shape}",
    )
    n, h, w, _ = shape
    if not mode.planes:
        return [(n, h, w, mode.channels[1])]
    rows = 6 if mode.planes in ("YU12", "YV12") else 3
    need(
        h % rows == 0 and w % 2 == 0,
        f"a {mode.planes} image has a multiple of {rows} rows and an even width, got {h} x {w}",
    )
    return [(n, h * 2 // 3, w, mode.channels[1])]


def _cvt(call: Call, x: Array) -> Array:
    mode = color_mode(call)
    if mode.planes:
        return _from_planes(mode, x)
    if mode.source == "GRAY":
        return np.repeat(x, 3, axis=3)
    if mode.result == "GRAY":
        return _gray(x, reverse=mode.source == "BGR")
    if mode.result == "YUV":
        return _to_yuv(x)
    if mode.source == "YUV":
        return _from_yuv(x)
    swapped = mode.source.removesuffix("A") != mode.result
    return x[..., 2::-1] if swapped else x[..., :3]


def _gray(x: Array, *, reverse: bool) -> Array:
    order = -1 if reverse else 1
    rgb = x[..., :3]
    if x.dtype == np.uint8:
        weights = np.array(_GRAY_FIXED[::order], np.int32)
        total = (rgb.astype(np.int32) * weights).sum(axis=3, keepdims=True)
        return _shifted(total).astype(np.uint8)
    weight = np.array(_GRAY[::order], np.float32)
    return np.asarray(
        (rgb.astype(np.float32) * weight).sum(axis=3, keepdims=True), dtype=np.float32
    )


def _shifted(x: Ints) -> Ints:
    return (x + (1 << (_BITS - 1))) >> _BITS


def _bytes(*channels: Ints) -> Array:
    return np.clip(np.stack(channels, axis=-1), 0, 255).astype(np.uint8)


def _to_yuv(x: Array) -> Array:
    if x.dtype == np.uint8:
        c0, c1, c2 = (x[..., i].astype(np.int32) for i in range(3))
        y = _shifted(c0 * _GRAY_FIXED[2] + c1 * _GRAY_FIXED[1] + c2 * _GRAY_FIXED[0])
        middle = 128 << _BITS
        return _bytes(y, _shifted((c0 - y) * 8061 + middle), _shifted((c2 - y) * 14369 + middle))
    f0, f1, f2 = (x[..., i].astype(np.float32) for i in range(3))
    luma = f0 * np.float32(0.114) + f1 * np.float32(0.587) + f2 * np.float32(0.299)
    half = np.float32(0.5)
    u, v = (f0 - luma) * np.float32(0.492) + half, (f2 - luma) * np.float32(0.877) + half
    return np.stack([luma, u, v], axis=-1).astype(np.float32, copy=False)


def _from_yuv(x: Array) -> Array:
    if x.dtype == np.uint8:
        y, u, v = (x[..., i].astype(np.int32) for i in range(3))
        u, v = u - 128, v - 128
        return _bytes(
            y + _shifted(u * 33292), y + _shifted(v * -9519 + u * -6472), y + _shifted(v * 18678)
        )
    luma, fu, fv = (x[..., i].astype(np.float32) for i in range(3))
    half = np.float32(0.5)
    fu, fv = fu - half, fv - half
    red = luma + fu * np.float32(2.032)
    green = luma + fv * np.float32(-0.581) + fu * np.float32(-0.395)
    blue = luma + fv * np.float32(1.14)
    return np.stack([red, green, blue], axis=-1).astype(np.float32, copy=False)


def _from_planes(mode: ColorMode, x: Array) -> Array:
    n, rows, w, _ = x.shape
    h = rows * 2 // 3
    if mode.result == "GRAY":
        return x[:, :h]
    luma = x[:, :h, :, 0].astype(np.int32)
    colour = x[:, h:, :, 0].astype(np.int32)
    if mode.planes in ("NV12", "NV21"):
        pairs = colour.reshape(n, h // 2, w // 2, 2)
        first, second = pairs[..., 0], pairs[..., 1]
    else:
        halves = colour.reshape(n, 2, h // 2, w // 2)
        first, second = halves[:, 0], halves[:, 1]
    if mode.planes in ("NV21", "YV12"):
        first, second = second, first
    u, v = (c.repeat(2, axis=1).repeat(2, axis=2) for c in (first, second))
    red, green, blue = _bt601(luma, u, v) if mode.bt601 else _plain(luma, u, v)
    return _bytes(red, green, blue) if mode.result == "RGB" else _bytes(blue, green, red)


def _plain(y: Ints, u: Ints, v: Ints) -> tuple[Ints, Ints, Ints]:
    u, v = u - 128, v - 128
    return y + ((359 * v) >> 8), y - ((88 * u + 183 * v) >> 8), y + ((454 * u) >> 8)


def _bt601(y: Ints, u: Ints, v: Ints) -> tuple[Ints, Ints, Ints]:
    bright = (y * (0x101 * 18997)) >> 16
    return (
        (102 * v + bright - 14216) >> 6,
        (-25 * u - 52 * v + bright + 8696) >> 6,
        (128 * u + bright - 17544) >> 6,
    )


CVT_COLOR = register(
    OpSpec(
        name="CvtColor",
        runtime_name="CvtColorForward",
        names=(Name("CvtColor", "v0.3.1", 4813107610593414092),),
        old_id=17949433464099127521,
        v2=(V2Id("CvtColor", 1, 17949433464099127521),),
        params=(P.CvtColor,),
        inputs=("src",),
        dtypes=_cvt_dtypes,
        shapes=_cvt_shapes,
        reference=_cvt,
        source="semantics section 10, operators.json",
    )
)
