"""Images resized, converted, and read at other positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda import source
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from mgeserial import params as P
from mgeserial.dtypes import DType, DTypeEnum
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call, Shape
from mgeserial.ops import lines, subpixel
from mgeserial.ops.imaging import Layout, layout_of
from mgeserial.ops.lines import Line
from mgeserial.ops.resize import RESIZE, RESIZE3_D
from mgeserial.ops.subpixel import Mode
from mgeserial.ops.warp import REMAP, WARP_AFFINE, WARP_PERSPECTIVE, roles

__all__ = ["BORDERS", "MAP", "MIXED", "ONE", "PERSPECTIVE", "element", "nest", "resampled"]

BORDERS = {
    P.WarpPerspectiveV1BorderMode.REPLICATE: 0,
    P.WarpPerspectiveV1BorderMode.REFLECT: 1,
    P.WarpPerspectiveV1BorderMode.REFLECT_101: 2,
    P.WarpPerspectiveV1BorderMode.WRAP: 3,
    P.WarpPerspectiveV1BorderMode.CONSTANT: 4,
}
MIXED = ("acc", "part = part + v * wc;", "total = total + part * wr;")
_CROSSED = ("acc", "total = total + (v * wr) * wc;", "")
_FIXED = 2048
ONE = Line(np.zeros((1, 1), np.intp), np.ones((1, 1), np.float32))  # an axis of one element
_SMALL = frozenset({DTypeEnum.Uint8, DTypeEnum.Float32})


def element(value: str, dtype: DType) -> str:
    """Code of an interpolated number as an element, as `imaging.as_elements`."""
    if dtype.is_float:
        return value
    if dtype.kind in (DTypeEnum.Bool, DTypeEnum.Complex64):
        raise NotApplicable(f"{dtype.name} images cannot be interpolated")
    if dtype.kind is DTypeEnum.Int8:
        return f"truncate(roundf({value}))"
    low, high = dtype.limits
    least = "(-2147483647 - 1)" if low == -(1 << 31) else str(low)
    return f"saturate(roundf({value}), {least}, {high})"


def nest(layout: Layout, shape: Shape) -> tuple[int, int, int]:
    """Sizes before the height, between height and width, and after the width."""
    return (
        math.prod(shape[: layout.h]),
        math.prod(shape[layout.h + 1 : layout.w]),
        math.prod(shape[layout.w + 1 :]),
    )


def resampled(
    low: Lowering,
    node: Node,
    x: str,
    y: str,
    sizes: tuple[int, int, int, int, int, int, int],
    rows: Line,
    columns: Line,
    code: tuple[str, str, str],
    result: str,
    *,
    integer: bool = False,
    factor: float = 1.0,
) -> None:
    """Add the mixing of two axes of an image by tables of elements and weights.

    Args:
        low: The lowering.
        node: The operator it is part of.
        x: Tensor (outer, h, middle, w, inner).
        y: Tensor (outer, oh, middle, ow, inner).
        sizes: outer, h, middle, w, inner, oh, ow.
        rows: Elements and weights along the height.
        columns: The same along the width.
        code: Type of sums, and C code of a tap of a row and of a row.
        result: C code of the element that is stored.
        integer: Whether weights are integers.
        factor: A number that the code may use.
    """
    outer, h, middle, w, inner, oh, ow = sizes
    items = outer * oh * middle * ow * inner
    fields = {
        "XT": low.tensors[x].ctype, "YT": low.tensors[y].ctype, "W": "int" if integer else "float",
        "ACC": "i64" if integer else "float", "INNER": code[1], "OUTER": code[2], "RESULT": result,
    }  # fmt: skip
    tables: list[nd.Param] = []
    for line in (rows, columns):
        tables.append(nd.In(low.constant(np.ascontiguousarray(line.index.astype(np.int32)))))
        weight = line.weight.astype(np.int32 if integer else np.float32)
        tables.append(nd.In(low.constant(np.ascontiguousarray(weight))))
    params: tuple[nd.Param, ...] = (
        nd.In(x), *tables, nd.Out(y), items, h, middle, w, inner, oh, ow, rows.index.shape[1],
        columns.index.shape[1], factor,
    )  # fmt: skip
    low.add(
        nd.Custom(
            low.label(node), (y,), "resample", tuple(fields.items()), params, items, stem="resample"
        )
    )


def _ones(out: int, size: int) -> Line:
    """All elements of a block of size // out, with weight 1."""
    each = size // out
    index = np.arange(out)[:, None] * each + np.arange(each)
    return Line(index, np.ones(index.shape, np.float32))


def _fixed(line: Line) -> Line:
    return Line(line.index, np.rint(line.weight * _FIXED).astype(np.int64))


def _area(size: tuple[int, int], out: tuple[int, int], byte: bool) -> dict[str, Any]:
    """Lines and code of AREA with the channels last."""
    (h, w), (oh, ow) = size, out
    shrink = h >= oh and w >= ow
    rows, columns = lines.area(oh, h, shrink=shrink), lines.area(ow, w, shrink=shrink)
    code = MIXED
    if byte and not shrink:
        trunc = ("acc", MIXED[1], "total += (wr * (part >> 4)) >> 16;")
        return {
            "rows": _fixed(rows), "columns": _fixed(columns), "code": trunc, "integer": True,
            "result": "clamp64((total + 2) >> 2, 0, 255)",
        }  # fmt: skip
    if (h, w) == (2 * oh, 2 * ow) and byte:
        result = "((int)total + 2) >> 2"
        return {"rows": _ones(oh, h), "columns": _ones(ow, w), "code": code, "result": result}
    cut = "saturate({}, 0, 255)" if byte else "{}"
    if h % oh == 0 and w % ow == 0:
        factor = float(np.float32(1) / np.float32(h // oh * (w // ow)))
        return {
            "rows": _ones(oh, h), "columns": _ones(ow, w), "code": code,
            "result": cut.format("total * factor"), "factor": factor,
        }  # fmt: skip
    return {"rows": rows, "columns": columns, "code": code, "result": cut.format("total")}


def _fine(mode: Any, size: tuple[int, int], out: tuple[int, int], byte: bool) -> dict[str, Any]:
    """Lines and code of the arithmetic for channels last."""
    if mode == Mode.AREA:
        return _area(size, out, byte)
    taps = {Mode.CUBIC: 4, Mode.LANCZOS4: 8}.get(mode)
    if taps is None:
        raise NotApplicable(f"interpolation {mode}")
    rows, columns = (lines.smooth(o, n, taps=taps) for o, n in zip(out, size, strict=True))
    if not byte:
        return {"rows": rows, "columns": columns, "code": MIXED, "result": "total"}
    return {
        "rows": _fixed(rows), "columns": _fixed(columns), "code": MIXED, "integer": True,
        "result": "clamp64((total + (1 << 21)) >> 22, 0, 255)",
    }  # fmt: skip


@lowers(RESIZE)
def resize(low: Lowering, node: Node, call: Call) -> None:
    """All interpolations, layouts and types, by tables of elements and weights."""
    shape, wanted = low.shape(node.inputs[0]), low.shape(node.outputs[0])
    low.need_real(node.inputs[0])
    mode, dtype = call.param.imode, call.dtype(0)
    try:
        layout = layout_of(call.param.format)
        size, out = layout.size(shape), layout.size(wanted)
    except MgeError as error:
        raise NotApplicable("no such images") from error
    fine = layout.name == "NHWC" and shape[-1] in (1, 3) and dtype.kind in _SMALL
    if fine and mode not in (Mode.LINEAR, Mode.NEAREST):
        how = _fine(mode, size, out, dtype.kind is DTypeEnum.Uint8)
    else:
        makers = {Mode.LINEAR: lines.linear, Mode.NEAREST: lines.nearest, Mode.CUBIC: lines.cubic}
        if mode not in makers:
            raise NotApplicable(f"interpolation {mode} in {layout.name}")
        rows, columns = (makers[mode](o, n) for o, n in zip(out, size, strict=True))
        code = _CROSSED if mode == Mode.LINEAR else MIXED
        how = {"rows": rows, "columns": columns, "code": code, "result": element("total", dtype)}
    outer, middle, inner = nest(layout, shape)
    x = low.name(node.inputs[0])
    y = low.out(node.outputs[0])
    resampled(low, node, x, y, (outer, size[0], middle, size[1], inner, *out), **how)


@lowers(RESIZE3_D)
def resize3d(low: Lowering, node: Node, call: Call) -> None:
    """Volumes, linear: one axis after the other."""
    shape, wanted = low.shape(node.inputs[0]), low.shape(node.outputs[0])
    low.need_real(node.inputs[0])
    name = low.name(node.inputs[0])
    current = list(shape)
    for axis in (4, 3, 2):
        line = lines.stretched(wanted[axis], shape[axis], align_corners=call.param.align_corners)
        outer, inner = math.prod(current[:axis]), math.prod(current[axis + 1 :])
        sizes = (outer, 1, 1, current[axis], inner, 1, wanted[axis])
        current[axis] = wanted[axis]
        last = axis == 2
        y = low.out(node.outputs[0]) if last else low.temp(tuple(current))
        result = element("total", call.dtype(0)) if last else "total"
        resampled(low, node, name, y, sizes, ONE, line, MIXED, result)
        name = y


# -- warps

_AFFINE = """  const $MT *mm = matrix + m * 6;
  float fx_ = (float)ox, fy_ = (float)oy;
  float px = (widen(mm[0]) * fx_ + widen(mm[1]) * fy_) + widen(mm[2]);
  float py = (widen(mm[3]) * fx_ + widen(mm[4]) * fy_) + widen(mm[5]);
  px = px / 1.f, py = py / 1.f;"""
PERSPECTIVE = """  const $MT *mm = matrix + m * 9;
  float fx_ = (float)ox, fy_ = (float)oy;
  float under = (widen(mm[6]) * fx_ + widen(mm[7]) * fy_) + widen(mm[8]);
  float px = ((widen(mm[0]) * fx_ + widen(mm[1]) * fy_) + widen(mm[2])) / under;
  float py = ((widen(mm[3]) * fx_ + widen(mm[4]) * fy_) + widen(mm[5])) / under;"""
_AFFINE_STEPS = """  const $MT *mm = matrix + m * 6;
  double m0 = widen(mm[0]), m1 = widen(mm[1]), m2 = widen(mm[2]);
  double m3 = widen(mm[3]), m4 = widen(mm[4]), m5 = widen(mm[5]);
  i64 cx = (i64)whole_$NAME(rint(m0 * ox * 1024.0)) + whole_$NAME(rint((m1 * oy + m2) * 1024.0));
  i64 cy = (i64)whole_$NAME(rint(m3 * ox * 1024.0)) + whole_$NAME(rint((m4 * oy + m5) * 1024.0));
  int px = (int)((cx + $HALF) >> $SHIFT), py = (int)((cy + $HALF) >> $SHIFT);"""
_PERSPECTIVE_STEPS = """  const $MT *mm = matrix + m * 9;
  double dx = ox, dy = oy;
  double under = ((double)widen(mm[6]) * dx + (double)widen(mm[7]) * dy) + (double)widen(mm[8]);
  double scale = under != 0 ? $UNIT / under : 0.0;
  double cx = ((double)widen(mm[0]) * dx + (double)widen(mm[1]) * dy) + (double)widen(mm[2]);
  double cy = ((double)widen(mm[3]) * dx + (double)widen(mm[4]) * dy) + (double)widen(mm[5]);
  int px = whole_$NAME(rint(cx * scale)), py = whole_$NAME(rint(cy * scale));"""
MAP = """  const $MT *mm = matrix + (((i64)m * OH + oy) * OW + ox) * 2;
  float px = widen(mm[0]), py = widen(mm[1]);"""


def _launch_warp(
    low: Lowering,
    node: Node,
    layout: Layout,
    names: tuple[str, str],
    sampler: str,
    fields: dict[str, object],
    *,
    border: P.WarpPerspectiveV1BorderMode,
    fill: float,
    extra: tuple[tuple[str, str], ...] = (),
    index: str | None = None,
) -> None:
    if border not in BORDERS:
        raise NotApplicable(f"border mode {border}")
    x, matrix = names
    shape, wanted = low.tensors[x].shape, low.shape(node.outputs[0])
    (h, w), (oh, ow) = layout.size(shape), layout.size(wanted)
    outer, middle, inner = nest(layout, shape)
    code, params = "", []
    if index is not None:
        code += f"const {low.tensors[index].ctype} *__restrict__ which, "
        params.append(nd.In(index))
    for name, tensor in extra:
        code += f"const {low.tensors[tensor].ctype} *__restrict__ {name}, "
        params.append(nd.In(tensor))
    y = low.out(node.outputs[0])
    body = source.text(sampler)
    every = {
        "XT": low.tensors[x].ctype, "MT": low.tensors[matrix].ctype, "YT": low.tensors[y].ctype,
        "BORDER": source.text("border"), "EXTRA": code, "BODY": body,
        "IMAGE": "(int)which[m]" if index is not None else "m",
        **fields,
    }  # fmt: skip
    items = math.prod(wanted)
    given: tuple[nd.Param, ...] = (
        nd.In(x), nd.In(matrix), *params, nd.Out(y),
        nd.Check(f"{node.display_name or node.op.name}: an image that does not exist is asked for"),
        items, shape[0], outer // shape[0], h, middle, w, inner, oh, ow, BORDERS[border], fill,
    )  # fmt: skip
    pairs = tuple((k, str(v)) for k, v in every.items())
    low.add(nd.Custom(low.label(node), (y,), "warp", pairs, given, items, stem="warp"))


@lowers(WARP_AFFINE, WARP_PERSPECTIVE)
def warp(low: Lowering, node: Node, call: Call) -> None:
    """One source tensor, one layout; exact positions, or steps of 1/32 pixel as defined."""
    role = roles(call)
    param = call.param
    wanted = low.shape(node.outputs[0])
    for value in node.inputs[: role.matrix + 1]:
        low.shape(value)
        low.need_real(value)
    given, target = call.dtype(0), call.output_types[0].dtype
    if len(role.sources) != 1 or given != target:
        raise NotApplicable("several sources or another element type")
    try:
        layout = layout_of(param.format)
    except MgeError as error:
        raise NotApplicable(f"format {param.format}") from error
    shape = low.shape(node.inputs[0])
    affine = node.op.name == "WarpAffine"
    border, fill = (param.border_mode if affine else param.bmode), float(param.border_val)
    x, matrix = low.name(node.inputs[0]), low.name(node.inputs[role.matrix])
    index = None if role.index is None else low.name(node.inputs[role.index])
    if index is not None:
        low.shape(node.inputs[role.index or 0])
    steps = param.format == P.ConvolutionFormat.NHWC and given.kind in _SMALL and shape[3] <= 3
    if not steps:
        if param.imode != Mode.LINEAR:
            raise NotApplicable(f"interpolation {param.imode}")
        fields: dict[str, object] = {
            "POSITION": _AFFINE if affine else PERSPECTIVE, "RESULT": element("acc", given),
        }  # fmt: skip
        _launch_warp(
            low, node, layout, (x, matrix), "warp_exact", fields,
            border=border, fill=fill, index=index,
        )  # fmt: skip
        return
    assert len(wanted) == 4
    _warp_steps(low, node, layout, (x, matrix), param, affine, border, fill, index)


def _warp_steps(
    low: Lowering,
    node: Node,
    layout: Layout,
    names: tuple[str, str],
    param: Any,
    affine: bool,
    border: Any,
    fill: float,
    index: str | None,
) -> None:
    byte = low.tensors[names[0]].ctype == "u8"
    nearest = param.imode == Mode.NEAREST
    step = 1024 if nearest else 32
    fields: dict[str, object] = {
        "POSITION": _AFFINE_STEPS if affine else _PERSPECTIVE_STEPS,
        "HALF": step // 2, "SHIFT": 10 if nearest else 5, "UNIT": "1.0" if nearest else "32.0",
        "OUTSIDE": str(int(np.clip(np.rint(fill), 0, 255))) if byte else "fill",
        "RESULT": "acc", "ACC": "i64" if byte else "float", "TAPS": 0, "WEIGHT": "0",
    }  # fmt: skip
    if nearest:
        _launch_warp(
            low, node, layout, names, "warp_steps_nearest", fields,
            border=border, fill=fill, index=index,
        )  # fmt: skip
        return
    if param.imode not in (Mode.LINEAR, Mode.CUBIC, Mode.LANCZOS4):
        raise NotApplicable(f"interpolation {param.imode}")
    line = subpixel.axis_weights(param.imode)
    fields["TAPS"] = line.shape[1]
    if byte:
        table = low.constant(np.ascontiguousarray(subpixel.fixed_weights(param.imode), np.int32))
        fields["WEIGHT"] = f"table[((fy * 32 + fx) * {line.shape[1]} + s) * {line.shape[1]} + t]"
        fields["RESULT"] = "clamp64((acc + (1 << 14)) >> 15, 0, 255)"
    else:
        table = low.constant(np.ascontiguousarray(line))
        fields["WEIGHT"] = f"table[fy * {line.shape[1]} + s] * table[fx * {line.shape[1]} + t]"
    _launch_warp(
        low, node, layout, names, "warp_steps", fields,
        border=border, fill=fill, extra=(("table", table),), index=index,
    )  # fmt: skip


@lowers(REMAP)
def remap(low: Lowering, node: Node, call: Call) -> None:
    """Linear and nearest, any layout of four axes and type."""
    for value in node.inputs:
        low.shape(value)
        low.need_real(value)
    try:
        layout = layout_of(call.param.format)
    except MgeError as error:
        raise NotApplicable(f"format {call.param.format}") from error
    samplers = {Mode.LINEAR: "warp_exact", Mode.NEAREST: "warp_nearest"}
    if call.param.imode not in samplers or layout.rank != 4:
        raise NotApplicable(f"interpolation {call.param.imode}")
    fields: dict[str, object] = {"POSITION": MAP, "RESULT": element("acc", call.dtype(0))}
    _launch_warp(
        low, node, layout, (low.name(node.inputs[0]), low.name(node.inputs[1])),
        samplers[call.param.imode], fields,
        border=call.param.border_type, fill=float(call.param.scalar),
    )  # fmt: skip
