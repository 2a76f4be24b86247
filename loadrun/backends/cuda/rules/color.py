"""Colour spaces of images with the channels last."""

from __future__ import annotations

import math

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.expr import c_type
from loadrun.backends.cuda.lower import Lowering, lowers
from mgeserial.dtypes import DTypeEnum
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.color import CVT_COLOR, color_mode

_BYTE = "(u8)max(0, min(255, {}))"


def _write(*channels: str, byte: bool = True) -> str:
    return " ".join(f"to[{k}] = {_BYTE.format(c) if byte else c};" for k, c in enumerate(channels))


def _gray(byte: bool, reverse: bool) -> str:
    a, b, c = ("1868", "9617", "4899") if reverse else ("4899", "9617", "1868")
    if byte:
        return f"to[0] = (u8)shifted_$NAME(from[0] * {a} + from[1] * {b} + from[2] * {c});"
    a, b, c = ("0.114f", "0.587f", "0.299f") if reverse else ("0.299f", "0.587f", "0.114f")
    return f"to[0] = from[0] * {a} + from[1] * {b} + from[2] * {c};"


def _to_yuv(byte: bool) -> str:
    if byte:
        return "int l = shifted_$NAME(from[0] * 1868 + from[1] * 9617 + from[2] * 4899); " + _write(
            "l",
            "shifted_$NAME((from[0] - l) * 8061 + (128 << 14))",
            "shifted_$NAME((from[2] - l) * 14369 + (128 << 14))",
        )
    return "float l = from[0] * 0.114f + from[1] * 0.587f + from[2] * 0.299f; " + _write(
        "l", "(from[0] - l) * 0.492f + 0.5f", "(from[2] - l) * 0.877f + 0.5f", byte=False
    )


def _from_yuv(byte: bool) -> str:
    if byte:
        return "int l = from[0], u = from[1] - 128, v = from[2] - 128; " + _write(
            "l + shifted_$NAME(u * 33292)",
            "l + shifted_$NAME(v * -9519 + u * -6472)",
            "l + shifted_$NAME(v * 18678)",
        )
    return "float l = from[0], u = from[1] - 0.5f, v = from[2] - 0.5f; " + _write(
        "l + u * 2.032f", "l + v * -0.581f + u * -0.395f", "l + v * 1.14f", byte=False
    )


def _from_planes(planes: str, result: str, bt601: bool) -> str:
    """Pixels of 4:2:0 images; `items` are pixels of the output (n, h, w)."""
    lines = [
        "int r = i / w, ox = i - r * w, n = r / h, oy = r - n * h;",
        "const u8 *image = x + (i64)n * (h / 2 * 3) * w;",
        "int l = image[oy * w + ox];",
    ]
    if result == "GRAY":
        return " ".join([*lines, "y[i] = (u8)l;"])
    if planes in ("NV12", "NV21"):
        lines.append("const u8 *pair = image + h * w + oy / 2 * w + ox / 2 * 2;")
        lines.append("int a = pair[0], b = pair[1];")
    else:
        lines.append("const u8 *plane = image + h * w + oy / 2 * (w / 2) + ox / 2;")
        lines.append("int a = plane[0], b = plane[h / 2 * (w / 2)];")
    u, v = ("b", "a") if planes in ("NV21", "YV12") else ("a", "b")
    lines.append(f"int u = {u}, v = {v}; u8 *to = y + (i64)i * 3;")
    if bt601:
        lines.append("int bright = (int)((u32)(l * (0x101 * 18997)) >> 16);")
        rgb = (
            "(102 * v + bright - 14216) >> 6",
            "(-25 * u - 52 * v + bright + 8696) >> 6",
            "(128 * u + bright - 17544) >> 6",
        )
    else:
        lines.append("u -= 128, v -= 128;")
        rgb = (
            "l + ((359 * v) >> 8)",
            "l - ((88 * u + 183 * v) >> 8)",
            "l + ((454 * u) >> 8)",
        )
    lines.append(_write(*(rgb if result == "RGB" else rgb[::-1])))
    return " ".join(lines)


def _plain(source: str, result: str, byte: bool) -> str:
    if source == "GRAY":
        return "to[0] = from[0]; to[1] = from[0]; to[2] = from[0];"
    if result == "GRAY":
        return _gray(byte, source == "BGR")
    if result == "YUV":
        return _to_yuv(byte)
    if source == "YUV":
        return _from_yuv(byte)
    order = "210" if source.removesuffix("A") != result else "012"
    return " ".join(f"to[{k}] = from[{c}];" for k, c in enumerate(order))


@lowers(CVT_COLOR)
def cvt_color(low: Lowering, node: Node, call: Call) -> None:
    """All conversions, of bytes and of float32."""
    shape, wanted = low.shape(node.inputs[0]), low.shape(node.outputs[0])
    mode = color_mode(call)
    byte = call.dtype(0).kind is DTypeEnum.Uint8
    if mode.planes:
        body = _from_planes(mode.planes, mode.result, mode.bt601)
    else:
        steps = f"const $T *from = x + (i64)i * {shape[3]}; $T *to = y + (i64)i * {wanted[3]}; "
        body = steps + _plain(mode.source, mode.result, byte)
    items = math.prod(wanted[:3])
    x = low.name(node.inputs[0])
    y = low.out(node.outputs[0])
    fields = (("T", c_type(call.dtype(0))), ("BODY", body))
    params = (nd.In(x), nd.Out(y), items, wanted[1], wanted[2])
    low.add(nd.Custom(low.label(node), (y,), "color", fields, params, items, stem="color"))
