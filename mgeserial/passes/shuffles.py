"""Chains of operators that only move elements: reshapes, reorderings of axes, changes of layout.

Each operator of such a chain is followed as an array of strides over the elements of the chain's
source: an axis is a list of (size, stride) pairs, outermost first. What the whole chain does is
then plain to see, whatever it is made of, and the shortest chain that does it takes its place.

Numbered as the tests are:

1. nothing is moved and the shape is the same: the source.
2. one Reshape, one Dimshuffle, or one RelayoutFormat (where the chain had one) does it.
3. a Reshape and a Dimshuffle do it, in either order; or Reshape, Dimshuffle, Reshape.
4. chains of Dimshuffle and AxisAddRemove alone are followed axis by axis, whatever the sizes: none
   or one Dimshuffle.
5. left alone: shapes that are not known; parts that others use, unless the whole goes away; a
   change of layout with computed shapes, which is as MegEngine writes it; and a chain without a
   constant Reshape never gets one, because that would fix the batch size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mgeserial import params as P
from mgeserial.ir.graph import Graph, Node, Value
from mgeserial.ir.types import Shape
from mgeserial.ops.layouts import TENSOR_LAYOUTS, TensorLayout
from mgeserial.passes.base import Fact, Log
from mgeserial.passes.layout.moves import recognise
from mgeserial.passes.rebuild import Rebuild
from mgeserial.passes.rules import Scope

__all__ = ["MOVES", "ShuffleChains", "Strided", "follow"]

_Mode = P.RelayoutFormatV0Mode
_F = P.ConvolutionFormat
MOVES = frozenset({"AxisAddRemove", "Dimshuffle", "RelayoutFormat", "Reshape"})
# Modes that are permutations when no channel is padded; those of images of OpenCL are left alone.
_PAIRS: dict[_Mode, tuple[_F, _F]] = {
    _Mode.NHWC_NHWCD4: (_F.NHWC, _F.NHWCD4),
    _Mode.NHWCD4_NHWC: (_F.NHWCD4, _F.NHWC),
    _Mode.NCHW_NHWCD4: (_F.NCHW, _F.NHWCD4),
    _Mode.NHWCD4_NCHW: (_F.NHWCD4, _F.NCHW),
    _Mode.NCHW4_CHWN4: (_F.NCHW4, _F.CHWN4),
    _Mode.CHWN4_NCHW4: (_F.CHWN4, _F.NCHW4),
    _Mode.NCHW_NCHW88: (_F.NCHW, _F.NCHW88),
    _Mode.NCHW88_NCHW: (_F.NCHW88, _F.NCHW),
    _Mode.NCHW_NCHW4: (_F.NCHW, _F.NCHW4),
    _Mode.NCHW4_NCHW: (_F.NCHW4, _F.NCHW),
    _Mode.NCHW_NCHW64: (_F.NCHW, _F.NCHW64),
    _Mode.NCHW64_NCHW: (_F.NCHW64, _F.NCHW),
    _Mode.NCHW_NHWC: (_F.NCHW, _F.NHWC),
    _Mode.NHWC_NCHW: (_F.NHWC, _F.NCHW),
}
_MAX_RANK = 7
Piece = tuple[int, int]
Strided = tuple[tuple[Piece, ...], ...]


def whole(shape: Shape) -> Strided:
    """A contiguous array of this shape."""
    stride, axes = 1, []
    for size in reversed(shape):
        axes.append(((size, stride),) if size != 1 else ())
        stride *= size
    return tuple(reversed(axes))


def _merged(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Neighbours that lie one after another in memory as one piece."""
    found: list[Piece] = []
    for size, stride in pieces:
        if found and found[-1][1] == size * stride:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return tuple(found)


def _flat(axes: Strided) -> tuple[Piece, ...]:
    return _merged([piece for axis in axes for piece in axis])


def shape_of(axes: Strided) -> Shape:
    """Shape of a strided array."""
    return tuple(math.prod(size for size, _ in axis) for axis in axes)


def reshaped(axes: Strided, shape: Shape) -> Strided | None:
    """The array in another shape; None when an axis would have to cut through pieces unevenly."""
    pieces = list(_flat(axes))[::-1]
    result: list[tuple[Piece, ...]] = []
    for want in shape:
        axis: list[Piece] = []
        while want > 1:
            if not pieces:
                return None
            size, stride = pieces.pop()
            if want % size == 0:
                axis.append((size, stride))
                want //= size
            elif size % want == 0:
                axis.append((want, stride * (size // want)))
                pieces.append((size // want, stride))
                want = 1
            else:
                return None
        result.append(tuple(axis))
    return tuple(result) if not pieces else None


def _converted(axes: Strided, source: TensorLayout, target: TensorLayout) -> Strided | None:
    """A feature map in another layout; None when channels are padded."""
    if len(axes) != len(source.axes):
        return None
    named = dict(zip(source.axes, axes, strict=True))
    channels = _merged([*named["C"], *named.get("c", ())])
    count = math.prod(size for size, _ in channels)
    if count % target.lanes:
        return None
    split = reshaped((channels,), (count // target.lanes, target.lanes))
    if split is None:
        return None
    named["C"], named["c"] = split
    return tuple(named[a] for a in target.axes)


def follow(axes: Strided, node: Node, scope: Scope) -> Strided | None:
    """The array after one more operator; None when it is no plain move of known shapes."""
    kind = scope.type(node.outputs[0])
    if not kind.is_static or kind.dtype != scope.type(node.inputs[0]).dtype or 0 in kind.dims:
        return None
    if node.op.name in ("Reshape", "AxisAddRemove"):
        return reshaped(axes, kind.dims)
    if node.op.name == "Dimshuffle":
        return tuple(() if i == -1 else axes[i] for i in node.param.pattern)
    param = node.param
    if param.mode not in _PAIRS or param.group not in (0, 1):
        return None
    source, target = (TENSOR_LAYOUTS[f] for f in _PAIRS[param.mode])
    found = _converted(axes, source, target)
    return found if found is not None and shape_of(found) == kind.dims else None


Make = Callable[[Rebuild, Value], Value]


@dataclass(frozen=True, slots=True)
class _Plan:
    """A way to do what a chain does: number of operators, how to build them, what to call it."""

    cost: int
    text: str
    make: Make
    fixes_shape: bool = False
    relays: bool = False


def _as_shuffle(source: Strided, axes: Strided) -> tuple[int, ...] | None:
    """Pattern of the Dimshuffle that makes `axes` of `source`, if one does."""
    places = {_merged(axis): i for i, axis in enumerate(source) if axis}
    # Axes of length 1 are taken in order: the batch stays the batch.
    ones = [i for i, axis in enumerate(source) if not axis]
    pattern = []
    for axis in axes:
        place = places.get(_merged(axis)) if axis else (ones.pop(0) if ones else -1)
        if place is None:
            return None
        pattern.append(place)
    used = [i for i in pattern if i >= 0 and source[i]]
    if len(used) != len(places) or len(set(used)) != len(used):
        return None
    return tuple(pattern)


def _composed(part: Sequence[Node], rank: int) -> tuple[int, ...] | None:
    """Pattern of a chain of Dimshuffle and AxisAddRemove, exact for every size; None: others."""
    pattern = list(range(rank))
    for node in part:
        if node.op.name == "Dimshuffle":
            pattern = [-1 if i == -1 else pattern[i] for i in node.param.pattern]
        elif node.op.name == "AxisAddRemove":
            for item in node.param.desc:
                extra = item.method == P.AxisDescMethod.ADD_1
                axis = item.axis + (len(pattern) + extra if item.axis < 0 else 0)
                if extra:
                    pattern.insert(axis, -1)
                elif len(pattern) > 1:
                    del pattern[axis]
        else:
            return None
    return tuple(pattern)


def _reshape(shape: Shape) -> Make:
    return lambda build, x: build.reshape_to(x, shape)


def _shuffle(pattern: Sequence[int], rank: int) -> Make:
    return lambda build, x: build.dimshuffle(x, pattern=tuple(pattern), ndim=rank)


def _relayout(mode: _Mode) -> Make:
    return lambda build, x: build.relayout_format(x, mode=mode)


def _plans(given: Shape, axes: Strided) -> Iterator[_Plan]:
    """Ways to make `axes` of a contiguous array of shape `given`, short ones first."""
    source, wanted = whole(given), shape_of(axes)
    flat = _flat(axes)
    in_order = len(flat) <= 1
    if in_order and wanted == given:
        yield _Plan(0, "nothing", lambda _, x: x)
        return
    if in_order:
        yield _Plan(1, f"Reshape to {wanted}", _reshape(wanted), fixes_shape=True)
    pattern = _as_shuffle(source, axes)
    if pattern is not None:
        yield _Plan(1, f"Dimshuffle {pattern}", _shuffle(pattern, len(given)))
    for mode, formats in _PAIRS.items():
        a, b = (TENSOR_LAYOUTS[f] for f in formats)
        blocked = a.lanes == 1 or given[-1] == a.lanes
        if len(given) == a.rank and blocked and _same(_converted(source, a, b), axes):
            yield _Plan(1, f"RelayoutFormat {mode}", _relayout(mode), relays=True)
    middle = sorted(flat, key=lambda piece: -piece[1])
    inner = tuple(size for size, _ in middle) or (1,)
    if len(inner) > _MAX_RANK:
        return
    order = [middle.index(piece) for piece in flat]
    moved = tuple(((size, stride),) for size, stride in flat)
    direct = _as_shuffle(tuple((piece,) for piece in middle), axes)
    if direct is not None:
        make = _then(_reshape(inner), _shuffle(direct, len(inner)))
        text = f"Reshape to {inner}, Dimshuffle {direct}"
        yield _Plan(2, text, make, fixes_shape=True)
    by_source = _cut(flat, source)
    if by_source:
        pattern = _as_shuffle(source, tuple(by_source))
        if pattern is not None:
            make = _then(_shuffle(pattern, len(given)), _reshape(wanted))
            text = f"Dimshuffle {pattern}, Reshape to {wanted}"
            yield _Plan(2, text, make, fixes_shape=True)
    if moved:
        three = _then(_then(_reshape(inner), _shuffle(order, len(inner))), _reshape(wanted))
        yield _Plan(3, "Reshape, Dimshuffle, Reshape", three, fixes_shape=True)


def _plain(pattern: tuple[int, ...], rank: int) -> Iterator[_Plan]:
    """What a chain of Dimshuffle and AxisAddRemove can be instead."""
    if pattern == tuple(range(rank)):
        yield _Plan(0, "nothing", lambda _, x: x)
    else:
        yield _Plan(1, f"Dimshuffle {pattern}", _shuffle(pattern, rank))


def _same(a: Strided | None, b: Strided) -> bool:
    return a is not None and [_merged(x) for x in a] == [_merged(x) for x in b]


def _cut(flat: Sequence[Piece], source: Strided) -> list[tuple[Piece, ...]] | None:
    """Pieces cut where the source's axes end; None when one ends inside a source axis."""
    borders = {_merged(axis)[0] for axis in source if axis}
    ends = {stride: size for size, stride in borders}
    found: list[tuple[Piece, ...]] = []
    for size, stride in flat:
        parts: list[tuple[Piece, ...]] = []
        while size > 1:
            whole_axis = ends.get(stride)
            if whole_axis is None or size % whole_axis:
                return None
            parts.append(((whole_axis, stride),))
            stride, size = stride * whole_axis, size // whole_axis
        found += parts[::-1]
    return found


def _then(first: Make, second: Make) -> Make:
    return lambda build, x: second(build, first(build, x))


@dataclass(frozen=True, slots=True)
class ShuffleChains:
    """Shortens chains of moves; see the module."""

    name: str = "shuffle-chains"
    needs: frozenset[Fact] = frozenset()
    ensures: frozenset[Fact] = frozenset()
    spoils: frozenset[Fact] = frozenset()

    def run(self, graph: Graph, log: Log) -> Graph:
        """Shorten."""
        for _ in graph.nodes:
            new = self._round(graph, log)
            if new is graph:
                break
            graph = new
        return graph

    def _round(self, graph: Graph, log: Log) -> Graph:
        scope, build = Scope(graph), Rebuild(graph)
        changed = False
        for node in graph.nodes:
            found = self._shorter(node, scope) if _is_end(node, scope) else None
            if found is not None:
                source, plan, count = found
                value = plan.make(build, build[source])
                if build.objection(node.outputs[0], value) is None:
                    build.put(node.outputs[0], value)
                    log.rewrite("shorten", node, f"{count} moves became {plan.text}")
                    changed = True
                    continue
            build.carry(node)
        return build.finish() if changed else graph

    def _shorter(self, node: Node, scope: Scope) -> tuple[Value, _Plan, int] | None:
        """The source of a chain that ends here, what to build instead, and the chain's length."""
        chain = _chain(node, scope)
        best: tuple[int, Value, _Plan, int] | None = None
        for length in range(len(chain), 0, -1):
            part = chain[-length:]
            axes = _path(part, scope)
            if axes is None or _is_layout_change(part, scope):
                continue
            source = part[0].inputs[0]
            freed = _freed(part, scope)
            allowed = _allowed(part, scope)
            given = scope.type(source).dims
            pattern = _composed(part, len(given))
            for plan in _plans(given, axes) if pattern is None else _plain(pattern, len(given)):
                saved = freed - plan.cost
                if saved <= 0 or not allowed(plan) or (best is not None and saved <= best[0]):
                    continue
                if pattern is not None or _elsewhere(part, plan, scope):
                    best = (saved, source, plan, length)
        return best[1:] if best is not None else None


def _elsewhere(part: Sequence[Node], plan: _Plan, scope: Scope) -> bool:
    """Whether the plan does what the chain does with inputs of other sizes too."""
    for other in scope.at_other_sizes:
        axes = _path(part, other)
        if axes is None:
            return False
        given = other.type(part[0].inputs[0]).dims
        if all(plan.text != p.text for p in _plans(given, axes)):
            return False
    return True


def _is_layout_change(part: Sequence[Node], scope: Scope) -> bool:
    """Whether a chain is one change of layout, made for any batch."""
    if any(n.op.name == "Reshape" and scope.is_const(n.inputs[1]) for n in part):
        return False
    found = recognise(part[-1], scope)
    return found is not None and found.operators == len(part) > 1


def _is_end(node: Node, scope: Scope) -> bool:
    """Whether a chain of moves ends here: nothing that only moves takes its value alone."""
    if node.op.name not in MOVES or scope.is_const(node.outputs[0]):
        return False
    value = node.outputs[0]
    users = value.users
    return scope.uses(value) != 1 or not users or users[0].op.name not in MOVES


def _chain(node: Node, scope: Scope) -> list[Node]:
    """Moves that lead to `node`, itself the last."""
    chain = [node]
    while True:
        before = chain[0].inputs[0]
        if before.node.op.name not in MOVES or scope.is_const(before):
            return chain
        chain.insert(0, before.node)


def _path(part: Sequence[Node], scope: Scope) -> Strided | None:
    """What a chain makes of its source."""
    given = scope.type(part[0].inputs[0])
    if not given.is_static or 0 in given.dims:
        return None
    axes: Strided | None = whole(given.dims)
    for node in part:
        axes = follow(axes, node, scope) if axes is not None else None
    return axes


def _freed(part: Sequence[Node], scope: Scope) -> int:
    """How many operators go away when the last one's value is made otherwise."""
    count = 1
    for node in reversed(part[:-1]):
        if scope.uses(node.outputs[0]) > 1:
            break
        count += 1
    return count


def _allowed(part: Sequence[Node], scope: Scope) -> Callable[[_Plan], bool]:
    targets = [scope.is_const(n.inputs[1]) for n in part if n.op.name == "Reshape"]
    fixed = bool(targets) and all(targets)
    relays = any(n.op.name == "RelayoutFormat" for n in part)

    def test(plan: _Plan) -> bool:
        if plan.cost == 0:
            return True
        return (fixed or not plan.fixes_shape) and (relays or not plan.relays)

    return test
