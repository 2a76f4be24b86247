"""Colour spaces of images (n, h, w, c).

Pixels are read by channel with strides, and written so. The arithmetic is that of
`mgeserial.ops.color`: 14 fractional bits for bytes.
"""

from __future__ import annotations

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.elements import program
from loadrun.backends.cpu.expr import Expr
from loadrun.backends.cpu.lower import Lowering, lowers
from mgeserial.dtypes import DTypeEnum
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.color import CVT_COLOR, color_mode

_BITS = 14
_HALF = 1 << (_BITS - 1)
_MIDDLE = 128 << _BITS


def _byte(*lines: str) -> tuple[str, ...]:
    """Lines and then the limits of a byte; the last line gives `v`."""
    return (*lines, "below = imin v 255", "r = imax below 0")


def _shifted(name: str, value: str) -> tuple[str, str]:
    return f"{name}_up = iadd {value} {_HALF}", f"{name} = ishr {name}_up {_BITS}"


def _weighted(name: str, *weights: int) -> tuple[str, ...]:
    """The rounded sum of x, y and z by weights."""
    return (
        f"{name}_x = imul x {weights[0]}",
        f"{name}_y = imul y {weights[1]}",
        f"{name}_z = imul z {weights[2]}",
        f"{name}_xy = iadd {name}_x {name}_y",
        f"{name}_sum = iadd {name}_xy {name}_z",
        *_shifted(name, f"{name}_sum"),
    )


def _real_weighted(*weights: float) -> tuple[str, ...]:
    return (
        f"a = mul x {weights[0]}",
        f"b = mul y {weights[1]}",
        f"c = mul z {weights[2]}",
        "d = add a b",
        "l = add d c",
    )


def _gray(byte: bool, reverse: bool) -> Expr:
    if byte:
        weights = (4899, 9617, 1868)
        return program("xyz", *_weighted("v", *(weights[::-1] if reverse else weights)))
    real = (0.299, 0.587, 0.114)
    return program("xyz", *_real_weighted(*(real[::-1] if reverse else real)))


def _to_yuv(byte: bool) -> list[Expr]:
    if not byte:
        luma = _real_weighted(0.114, 0.587, 0.299)
        first = (*luma, "d1 = sub x l", "e = mul d1 0.492", "r = add e 0.5")
        second = (*luma, "d1 = sub z l", "e = mul d1 0.877", "r = add e 0.5")
        return [program("xyz", *lines) for lines in (luma, first, second)]
    luma = _weighted("l", 1868, 9617, 4899)

    def chroma(channel: str, weight: int) -> Expr:
        lines = (f"d = isub {channel} l", f"m = imul d {weight}", f"s = iadd m {_MIDDLE}")
        return program("xyz", *luma, *lines, *_byte(*_shifted("v", "s")))

    return [program("xyz", *luma), chroma("x", 8061), chroma("z", 14369)]


def _from_yuv(byte: bool) -> list[Expr]:
    if not byte:
        u, v = "u = sub y 0.5", "w = sub z 0.5"
        green = ("a = mul w -0.581", "b = add x a", "c = mul u -0.395", "r = add b c")
        return [
            program("xyz", u, "a = mul u 2.032", "r = add x a"),
            program("xyz", u, v, *green),
            program("xyz", v, "a = mul w 1.14", "r = add x a"),
        ]
    u, v = "u = isub y 128", "w = isub z 128"

    def channel(*lines: str) -> Expr:
        return program("xyz", u, v, *lines, *_shifted("s", "m"), *_byte("v = iadd x s"))

    return [
        channel("m = imul u 33292"),
        channel("a = imul w -9519", "b = imul u -6472", "m = iadd a b"),
        channel("m = imul w 18678"),
    ]


def _from_planes(bt601: bool) -> list[Expr]:
    """Red, green and blue of luma x, and chroma y and z."""
    if bt601:
        bright = (f"q = imul x {0x101 * 18997}", "bright = ishr q 16")
        return [
            program("xyz", *bright, "a = imul z 102", *_sixth("a", -14216)),
            program(
                "xyz", *bright, "b = imul y -25", "c = imul z -52", "a = iadd b c",
                *_sixth("a", 8696),
            ),
            program("xyz", *bright, "a = imul y 128", *_sixth("a", -17544)),
        ]  # fmt: skip
    u, v = "u = isub y 128", "w = isub z 128"
    green = ("a = imul u 88", "b = imul w 183", "c = iadd a b", "s = ishr c 8")
    return [
        program("xyz", v, "a = imul w 359", "s = ishr a 8", *_byte("v = iadd x s")),
        program("xyz", u, v, *green, *_byte("v = isub x s")),
        program("xyz", u, "a = imul u 454", "s = ishr a 8", *_byte("v = iadd x s")),
    ]


def _sixth(name: str, shift: int) -> tuple[str, ...]:
    """(name + bright + shift) / 64 as a byte."""
    lines = (f"m = iadd {name} bright", f"n = iadd m {shift}", "v = ishr n 6")
    return _byte(*lines)


@lowers(CVT_COLOR)
def cvt_color(low: Lowering, node: Node, call: Call) -> None:
    """All conversions, of bytes and of float32."""
    shape, wanted = low.shape(node.inputs[0]), low.shape(node.outputs[0])
    mode = color_mode(call)
    byte = call.dtype(0).kind is DTypeEnum.Uint8
    if mode.planes:
        mapped = _planar(shape, mode.planes, mode.result, bt601=mode.bt601)
    else:
        mapped = _pixels(shape, wanted, _exprs(mode.source, mode.result, byte))
    dims, reads, exprs, strides, offsets = mapped
    x, y = low.name(node.inputs[0]), low.out(node.outputs[0])
    inputs = (x,) * len(reads)
    low.add(nd.Mapped(low.label(node), inputs, (y,), dims, reads, exprs, strides, offsets))


_Reads = tuple[tuple[tuple[int, ...], int], ...]
_Mapped = tuple[tuple[int, ...], _Reads, tuple[Expr, ...], tuple[int, ...], tuple[int, ...]]


def _exprs(source: str, result: str, byte: bool) -> list[Expr]:
    """One program per channel of the result, of the first three channels of a pixel."""
    if source == "GRAY":
        return [program("x", "r = copy x")] * 3
    if result == "GRAY":
        return [_gray(byte, source == "BGR")]
    if result == "YUV":
        return _to_yuv(byte)
    if source == "YUV":
        return _from_yuv(byte)
    order = "zyx" if source.removesuffix("A") != result else "xyz"
    return [program("xyz", f"r = copy {channel}") for channel in order]


def _pixels(shape: tuple[int, ...], wanted: tuple[int, ...], exprs: list[Expr]) -> _Mapped:
    """Every pixel by itself."""
    count = shape[0] * shape[1] * shape[2]
    reads = tuple(((shape[3],), k) for k in range(exprs[0].inputs))
    return (count,), reads, tuple(exprs), (wanted[3],), tuple(range(len(exprs)))


def _planar(shape: tuple[int, ...], planes: str, result: str, *, bt601: bool) -> _Mapped:
    """4:2:0 images: luma, then chroma of half the size, whose elements stand for four pixels."""
    n, rows, w, _ = shape
    h = rows * 2 // 3
    if result == "GRAY":
        plane = (n, h * w)
        return plane, (((rows * w, 1), 0),), (program("x", "r = copy x"),), contiguous(plane), (0,)
    dims = (n, 2, 2, h // 2, w // 2)  # images, rows and columns of four pixels, chroma
    luma = (rows * w, w, 1, 2 * w, 2)
    if planes in ("NV12", "NV21"):
        chroma, second = (rows * w, 0, 0, w, 2), 1
    else:
        chroma, second = (rows * w, 0, 0, w // 2, 1), h // 2 * (w // 2)
    places = [h * w, h * w + second]
    u, v = places[::-1] if planes in ("NV21", "YV12") else places
    reads = ((luma, 0), (chroma, u), (chroma, v))
    exprs = _from_planes(bt601)
    strides = (h * w * 3, w * 3, 3, 2 * w * 3, 6)
    order = exprs if result == "RGB" else exprs[::-1]
    return dims, reads, tuple(order), strides, (0, 1, 2)
