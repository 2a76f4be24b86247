"""Images resized by tables, warped by matrices, read at the places of a map."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.kernels import resizing
from loadrun.backends.cpu.kernels import warp as warping
from loadrun.backends.cpu.kernels.interpolate import Planes, Result
from loadrun.backends.cpu.kernels.resizing import Resizing
from loadrun.backends.cpu.kernels.warp import Warp
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.plan import Array
from loadrun.backends.cpu.rules.index import need_indices, need_positions
from loadrun.backends.cpu.rules.order import need_plain
from mgeserial import params as P
from mgeserial.dtypes import DType, DTypeEnum
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call, Shape
from mgeserial.ops import lines, subpixel
from mgeserial.ops.imaging import Layout, layout_of
from mgeserial.ops.lines import Line
from mgeserial.ops.resize import RESIZE, RESIZE3_D
from mgeserial.ops.subpixel import Mode
from mgeserial.ops.warp import REMAP, WARP_AFFINE, WARP_PERSPECTIVE, roles

_Border = P.WarpPerspectiveV1BorderMode
_Format = P.ConvolutionFormat
_BORDERS = {
    _Border.REPLICATE: "replicate",
    _Border.REFLECT: "reflect",
    _Border.REFLECT_101: "reflect101",
    _Border.WRAP: "wrap",
    _Border.CONSTANT: "constant",
}
_FIXED = 2048  # weights of bytes are in these parts
_SMALL = frozenset({DTypeEnum.Uint8, DTypeEnum.Float32})
_MOST_TAPS = 1 << 22


def element(dtype: DType) -> Result:
    """How an interpolated number becomes an element, as `imaging.as_elements`."""
    if dtype.is_float:
        return Result()
    if dtype.kind in (DTypeEnum.Bool, DTypeEnum.Complex64):
        raise NotApplicable(f"{dtype.name} images cannot be interpolated")
    if dtype.kind is DTypeEnum.Int8:
        return Result("wrapped")
    return Result("away", *dtype.limits)


def image_layout(format_: P.ConvolutionFormat) -> Layout:
    """The layout of one tensor of images."""
    try:
        return layout_of(format_)
    except MgeError as error:
        raise NotApplicable(f"format {format_}") from error


def planes_of(layout: Layout, shape: Shape) -> Planes:
    """Sizes of a tensor of images."""
    need_positions(shape)
    return Planes(
        shape[0],
        math.prod(shape[1 : layout.h]),
        shape[layout.h],
        math.prod(shape[layout.h + 1 : layout.w]),
        shape[layout.w],
        math.prod(shape[layout.w + 1 :]),
    )


# -- resizing


@dataclass(frozen=True, slots=True)
class Tables:
    """Lines of both axes and the arithmetic that goes with them; see `Resizing`."""

    rows: Line
    columns: Line
    result: Result
    crossed: bool = False
    fixed: bool = False
    truncating: bool = False
    rows_only: bool = False


def _columns_first(
    low: Lowering, x: str, source: Planes, wanted: Planes, how: Tables
) -> tuple[str, Planes, Tables]:
    """Mix the columns of all rows, once; what is left mixes rows, with the same sums."""
    between = replace(source, w=wanted.w)
    b = between
    name = low.temp((b.images, b.planes, b.h, b.middle, b.w, b.inner))
    need_positions(low.shapes[name])
    spec = Resizing(
        source,
        between,
        (1, how.columns.index.shape[1]),
        (low.dtype_name(x), "float32"),
    )
    rows = Line(np.arange(source.h)[:, None], np.ones((source.h, 1), np.float32))
    tables = (
        *_row_tables(low, rows, np.float32),
        *_column_tables(low, how.columns, source, np.float32),
    )
    make = functools.partial(resizing.resize, spec)
    low.add(nd.Loops(low.unique("columns"), (x, *tables), (name,), "resize", make))
    one = Line(np.zeros((1, 1), np.intp), np.ones((1, 1), np.float32))
    return name, between, replace(how, columns=one, rows_only=True)


def _row_tables(low: Lowering, line: Line, kind: type[np.generic]) -> list[str]:
    return [_table(low, line.index, np.int32), _table(low, line.weight, kind)]


def _column_tables(low: Lowering, line: Line, source: Planes, kind: type[np.generic]) -> list[str]:
    """Offsets and weights of the taps, tap by tap, for each element of a row."""
    places = line.index.T[:, :, None] * source.inner + np.arange(source.inner)
    weights = np.broadcast_to(line.weight.T[:, :, None], places.shape)
    return [_table(low, places, np.int32), _table(low, weights, kind)]


def add_resize(
    low: Lowering, node: Node, x: str, y: str, sizes: tuple[Planes, Planes], how: Tables
) -> None:
    """Mix the rows and columns of the tensor x by tables, to y."""
    source, wanted = sizes
    both = min(how.rows.index.shape[1], how.columns.index.shape[1]) > 1
    if both and not (how.crossed or how.fixed):
        x, source, how = _columns_first(low, x, source, wanted, how)
    if how.rows.index.size + how.columns.index.size > _MOST_TAPS:
        raise NotApplicable("tables would be too large")
    kind = np.int32 if how.fixed else np.float32
    tables = _row_tables(low, how.rows, kind)
    if not how.rows_only:
        tables += _column_tables(low, how.columns, source, kind)
    spec = Resizing(
        source,
        wanted,
        (how.rows.index.shape[1], how.columns.index.shape[1]),
        (low.dtype_name(x), low.dtype_name(y)),
        how.crossed,
        how.fixed,
        how.truncating,
        how.result,
        how.rows_only,
    )
    make = functools.partial(resizing.resize, spec)
    low.add(nd.Loops(low.label(node), (x, *tables), (y,), "resize", make))


def _table(low: Lowering, values: Array, kind: type[np.generic]) -> str:
    return low.constant(np.ascontiguousarray(values.astype(kind)))


def _ones(out: int, size: int) -> Line:
    """All elements of a block of size // out, with weight 1."""
    each = size // out
    index = np.arange(out)[:, None] * each + np.arange(each)
    return Line(index, np.ones(index.shape, np.float32))


def _fixed(line: Line) -> Line:
    return Line(line.index, np.rint(line.weight * _FIXED).astype(np.int64))


def _area(size: tuple[int, int], out: tuple[int, int], *, byte: bool) -> Tables:
    """AREA with the channels last."""
    (h, w), (oh, ow) = size, out
    shrink = h >= oh and w >= ow
    rows, columns = lines.area(oh, h, shrink=shrink), lines.area(ow, w, shrink=shrink)
    if byte and not shrink:
        result = Result("fixed", shift=2)
        return Tables(_fixed(rows), _fixed(columns), result, fixed=True, truncating=True)
    if byte and (h, w) == (2 * oh, 2 * ow):
        return Tables(_ones(oh, h), _ones(ow, w), Result("fixed", shift=2), fixed=True)
    result = Result("cut" if byte else "float")
    if h % oh == 0 and w % ow == 0:
        factor = float(np.float32(1) / np.float32(h // oh * (w // ow)))
        return Tables(_ones(oh, h), _ones(ow, w), replace(result, factor=factor))
    return Tables(rows, columns, result)


def _fine(
    mode: P.WarpPerspectiveV1InterpolationMode,
    size: tuple[int, int],
    out: tuple[int, int],
    *,
    byte: bool,
) -> Tables:
    """The arithmetic for channels last."""
    if mode == Mode.AREA:
        return _area(size, out, byte=byte)
    taps = {Mode.CUBIC: 4, Mode.LANCZOS4: 8}.get(mode)
    if taps is None:
        raise NotApplicable(f"interpolation {mode}")
    rows, columns = (lines.smooth(o, n, taps=taps) for o, n in zip(out, size, strict=True))
    if not byte:
        return Tables(rows, columns, Result())
    return Tables(_fixed(rows), _fixed(columns), Result("fixed", shift=22), fixed=True)


@lowers(RESIZE)
def resize_by_tables(low: Lowering, node: Node, call: Call) -> None:
    """All interpolations, layouts and real types, by tables of elements and weights."""
    need_plain(low, node.inputs[0])
    shape, wanted = low.shape(node.inputs[0]), low.shape(node.outputs[0])
    mode, dtype, layout = call.param.imode, call.dtype(0), image_layout(call.param.format)
    size, out = layout.size(shape), layout.size(wanted)
    fine = layout.name == "NHWC" and shape[-1] in (1, 3) and dtype.kind in _SMALL
    if fine and mode not in (Mode.LINEAR, Mode.NEAREST):
        how = _fine(mode, size, out, byte=dtype.kind is DTypeEnum.Uint8)
    else:
        makers = {Mode.LINEAR: lines.linear, Mode.NEAREST: lines.nearest, Mode.CUBIC: lines.cubic}
        if mode not in makers:
            raise NotApplicable(f"interpolation {mode} in {layout.name}")
        rows, columns = (makers[mode](o, n) for o, n in zip(out, size, strict=True))
        how = Tables(rows, columns, element(dtype), crossed=mode == Mode.LINEAR)
    sizes = (planes_of(layout, shape), planes_of(layout, wanted))
    x = low.name(node.inputs[0])
    y = low.out(node.outputs[0])
    add_resize(low, node, x, y, sizes, how)


@lowers(RESIZE3_D)
def resize3d(low: Lowering, node: Node, call: Call) -> None:
    """Volumes, linear: one axis after the other."""
    need_plain(low, node.inputs[0])
    shape, wanted = low.shape(node.inputs[0]), low.shape(node.outputs[0])
    result = element(call.dtype(0))
    one = Line(np.zeros((1, 1), np.intp), np.ones((1, 1), np.float32))
    current = list(shape)
    name = low.name(node.inputs[0])
    for axis in (4, 3, 2):
        line = lines.stretched(wanted[axis], shape[axis], align_corners=call.param.align_corners)
        outer, inner = math.prod(current[:axis]), math.prod(current[axis + 1 :])
        source = Planes(outer, 1, 1, 1, current[axis], inner)
        current[axis] = wanted[axis]
        need_positions(tuple(current))
        last = axis == 2
        y = low.out(node.outputs[0]) if last else low.temp(tuple(current))
        how = Tables(one, line, result if last else Result())
        add_resize(low, node, name, y, (source, replace(source, w=wanted[axis])), how)
        name = y


# -- warps


def _converted(given: DType, wanted: DType) -> Result:
    """How an interpolated number becomes an element of another type, as warps define it."""
    if given == wanted:
        return element(given)
    if given.kind in (DTypeEnum.Uint8, DTypeEnum.Quantized8Asymm):
        if wanted.kind is DTypeEnum.QuantizedS8:
            middle = 128 if given.zero_point is None else given.zero_point
            return replace(element(given), zero=middle)
        if wanted.kind is DTypeEnum.Float32:
            scale = float(np.float32(given.scale or 1.0))
            return Result(factor=scale, zero=given.zero_point or 0)
    raise NotApplicable(f"from {given} to {wanted}")


def _warp_planes(
    format_: P.ConvolutionFormat, shape: Shape, wanted: Shape
) -> tuple[Planes, Planes]:
    if format_ == _Format.NHWC_NCHW:
        n, h, w, c = shape
        need_positions(shape, wanted)
        return Planes(n, c, h, 1, w, 1, woven=True), planes_of(image_layout(_Format.NCHW), wanted)
    layout = image_layout(format_)
    return planes_of(layout, shape), planes_of(layout, wanted)


def _add_warp(
    low: Lowering,
    node: Node,
    how: Warp,
    names: tuple[str, str],
    *more: str,
) -> None:
    x, matrix = names
    y = low.out(node.outputs[0])
    status = low.check(how.y.images * how.y.h)
    spec = replace(how, dtypes=(low.dtype_name(x), low.dtype_name(matrix), low.dtype_name(y)))
    make = functools.partial(warping.warp, spec)
    low.add(nd.Loops(low.label(node), (x, matrix, *more), (y, status), "warp", make))


def border_name(mode: P.WarpPerspectiveV1BorderMode) -> str:
    """A border mode as kernels name it."""
    if mode not in _BORDERS:
        raise NotApplicable(f"border mode {mode}")
    return _BORDERS[mode]


@lowers(WARP_AFFINE, WARP_PERSPECTIVE)
def warp(low: Lowering, node: Node, call: Call) -> None:
    """Real types and codes; exact positions, or steps of 1/32 pixel as defined."""
    role, param = roles(call), call.param
    for value in node.inputs[: role.matrix + 1]:
        need_plain(low, value)
    given, target = call.dtype(0), call.output_types[0].dtype
    wanted = low.shape(node.outputs[0])
    affine = node.op.name == "WarpAffine"
    border = border_name(param.border_mode if affine else param.bmode)
    shape = low.shape(node.inputs[0])
    sources = [node.inputs[k] for k in role.sources]
    every = (shape[0] * len(sources), *shape[1:])
    planes = _warp_planes(param.format, every, wanted)
    fill = float(np.float32(param.border_val))
    how = Warp("affine" if affine else "perspective", *planes, border, fill, ("", "", ""))
    steps = param.format == _Format.NHWC and given == target and given.kind in _SMALL
    if steps and shape[3] <= 3:
        how, tables = _steps(low, how, param.imode, byte=given.kind is DTypeEnum.Uint8)
    elif param.imode == Mode.LINEAR:
        how, tables = replace(how, result=_converted(given, target)), ()
    else:
        raise NotApplicable(f"interpolation {param.imode}")
    index: tuple[str, ...] = ()
    if role.index is not None:
        need_indices(low, node.inputs[role.index])
        index = (low.name(node.inputs[role.index]),)
        how = replace(how, index=low.dtype_name(index[0]))
    x = _joined(low, sources, every)
    _add_warp(low, node, how, (x, low.name(node.inputs[role.matrix])), *index, *tables)


def _joined(low: Lowering, sources: list[Value], shape: Shape) -> str:
    """All source images as one tensor."""
    names = tuple(low.name(v) for v in sources)
    if len(names) == 1:
        return names[0]
    whole = low.temp(shape)
    low.dtypes[whole] = low.dtype_name(names[0])
    low.add(nd.Join(low.unique("sources"), names, (whole,), 0))
    return whole


def _steps(
    low: Lowering, how: Warp, mode: P.WarpPerspectiveV1InterpolationMode, *, byte: bool
) -> tuple[Warp, tuple[str, ...]]:
    """Positions cut to 1/32 pixel, with their table of weights; whole ones for NEAREST."""
    fill = float(np.clip(np.rint(how.fill), 0, 255)) if byte else how.fill
    if mode == Mode.NEAREST:
        result = Result("fixed" if byte else "float")
        return replace(how, mode="steps_nearest", result=result, fill=fill), ()
    if mode not in (Mode.LINEAR, Mode.CUBIC, Mode.LANCZOS4):
        raise NotApplicable(f"interpolation {mode}")
    line = subpixel.axis_weights(mode)
    table = subpixel.fixed_weights(mode) if byte else line
    result = Result("fixed", shift=15) if byte else Result()
    found = replace(how, mode="steps", taps=line.shape[1], result=result, fill=fill)
    return found, (low.constant(np.ascontiguousarray(table)),)


@lowers(REMAP)
def remap(low: Lowering, node: Node, call: Call) -> None:
    """Real types and codes, linear and nearest, layouts of four axes."""
    for value in node.inputs:
        need_plain(low, value)
    layout, p = image_layout(call.param.format), call.param
    modes = {Mode.LINEAR: "linear", Mode.NEAREST: "nearest"}
    if p.imode not in modes or layout.rank != 4:
        raise NotApplicable(f"interpolation {p.imode} in {layout.name}")
    shape, wanted = low.shape(node.inputs[0]), low.shape(node.outputs[0])
    how = Warp(
        "map",
        planes_of(layout, shape),
        planes_of(layout, wanted),
        border_name(p.border_type),
        float(np.float32(p.scalar)),
        ("", "", ""),
        mode=modes[p.imode],
        result=element(call.dtype(0)),
    )
    _add_warp(low, node, how, (low.name(node.inputs[0]), low.name(node.inputs[1])))
