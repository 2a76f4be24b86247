"""The walk that converts a graph to a layout, whatever the layout: all it knows is a `Target`.

Values keep the layout they were made in; who needs another one gets it from `get`, which builds
each change once. Numbered as the tests are:

1. a convolution that a rule of the target fits is converted, its filter and bias ahead of the run.
2. a convolution that none fits reads and writes what it did: a near-miss, with the reason.
3. an operator that is in another format already is left as it is.
4. an operator with one image follows its image, or takes it, where the target says so.
5. operators element by element, Concat and Reduce follow by the target's policy.
6. all others read what they read before; so do outputs.
7. changes of layout that stand in the graph already are not stacked upon: the value before them is
   changed to what is needed now.
8. a conversion of type, to one as large or larger, between a value and its only user is done
   after the change of layout, which others may share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import Array, DType
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Graph, Node, Value
from mgeserial.ir.tensor import Tensor
from mgeserial.ops.layouts import TensorLayout
from mgeserial.passes.base import Fact, Log
from mgeserial.passes.evaluate import HOLDERS
from mgeserial.passes.layout.facts import ConvFacts, facts_of
from mgeserial.passes.layout.moves import IMAGE_AXIS, Found, Mover, packing, plan, recognise
from mgeserial.passes.layout.rules import ConvRule, Follow, ImageRule, Policy, Target
from mgeserial.passes.rebuild import Rebuild
from mgeserial.passes.rules import Scope

__all__ = ["ConvertLayout"]

_F = P.ConvolutionFormat
_NHWCD4 = packing(_F.NHWCD4)
# Conversions of type, one after another, that a change of layout is moved before.
_CHAIN = 16
# `TensorFormat` of files: images of OpenCL, packed along an axis.
_IMAGE = 2


@dataclass(frozen=True, slots=True)
class ConvertLayout:
    """Converts a graph to the layout of a target; see the module.

    Attributes:
        target: The table.
        needs, ensures, spoils: As of every pass.
    """

    target: Target
    needs: frozenset[Fact] = frozenset({Fact.CONV_BIAS})
    ensures: frozenset[Fact] = frozenset()
    spoils: frozenset[Fact] = frozenset()

    @property
    def name(self) -> str:
        """Name in reports, such as `nchw88`."""
        return self.target.name

    def run(self, graph: Graph, log: Log) -> Graph:
        """Convert."""
        return _Walk(graph, self.target, log).run()


class _Walk:
    def __init__(self, graph: Graph, target: Target, log: Log) -> None:
        self._graph = graph
        self._target = target
        self._log = log
        self._scope = Scope(graph)
        self._build = Rebuild(graph)
        self._mover = Mover(self._build)
        self._base = packing(target.base)
        # Layouts of values that are not made as they were.
        self._made: dict[Value, TensorLayout] = {}
        self._forms: dict[tuple[Value, TensorLayout], Value] = {}
        self._filters: dict[tuple[Value, str], Value] = {}
        self._seen: dict[Value, Found | None] = {}
        self._moved_before = 0
        self._images = {
            op: [r for r in target.images if op in r.ops] for r in target.images for op in r.ops
        }
        self._follows = {op: f for f in target.follows for op in f.ops}

    def run(self) -> Graph:
        for node in self._graph.nodes:
            if not (self._shortcut(node) or self._convert(node)):
                self._build.carry(node, [self.get(v, self._base) for v in node.inputs])
        return self._build.finish() if self._log.rewrites else self._graph

    def _convert(self, node: Node) -> bool:
        """Convert a node if a rule says so."""
        name = node.op.name
        if any(name in rule.ops for rule in self._target.convs):
            return self._convolution(node)
        if name in self._images:
            return self._image(node, self._images[name])
        if name in self._follows:
            return self._elementwise(node, self._follows[name])
        if name == "Concat" and self._target.concat is not None:
            return self._concat(node, self._target.concat)
        if name == "Reduce" and self._target.reduces:
            return self._reduce(node)
        return False

    # -- values ----------------------------------------------------------------------------------

    def layout(self, old: Value) -> TensorLayout:
        """The layout that a value is made in."""
        return self._made.get(old, self._base)

    def get(self, old: Value, layout: TensorLayout) -> Value:
        """The new value of an old one, in a layout."""
        if layout == self.layout(old) == self._base:
            return self._build[old]
        key = (old, layout)
        if key not in self._forms:
            self._forms[key] = self._changed(old, layout)
        return self._forms[key]

    def _changed(self, old: Value, layout: TensorLayout) -> Value:
        """A value in a layout that it is not made in."""
        array = self._scope.constant(old) if self._scope.is_const(old) else None
        dtype = self._scope.type(old).dtype
        if array is not None and old not in self._made:
            moved = layout.from_nchw(self._base.to_nchw(array), fill=dtype.zero_point or 0)
            return self._weight(moved, dtype, old, IMAGE_AXIS if layout == _NHWCD4 else None)
        return (
            self._before_type(old, layout)
            or self._before_move(old, layout)
            or self._mover.features(self._made_value(old), self.layout(old), layout)
        )

    def _made_value(self, old: Value) -> Value:
        return self._forms[old, self._made[old]] if old in self._made else self._build[old]

    def _before_type(self, old: Value, layout: TensorLayout) -> Value | None:
        """Case 8: the conversion of what the only user needs, unless that is the larger type."""
        node = old.node
        if node.op.name != "TypeCvt" or self._scope.uses(old) > 1 or self._moved_before == _CHAIN:
            return None
        source = node.inputs[0]
        small, large = self._scope.type(source).dtype, self._scope.type(old).dtype
        if small.storage.itemsize > large.storage.itemsize or small.is_lowbit:
            return None
        if self.layout(source) != self.layout(old):
            return None
        self._moved_before += 1
        moved = self.get(source, layout)
        self._moved_before -= 1
        return self._build.like(node, [moved], outputs=[None]).outputs[0]

    def _before_move(self, old: Value, layout: TensorLayout) -> Value | None:
        """Case 7: from the value before a change of layout that stands in the graph."""
        found = self._found(old) if old not in self._made else None
        if found is None or found.target != self._base or found.value in self._made:
            return None
        source = self._build[found.value]
        return source if found.source == layout else self._move(found, source, found.source, layout)

    def _move(
        self, found: Found, value: Value, source: TensorLayout, target: TensorLayout
    ) -> Value | None:
        """A change of layout, None when blocks would not be full."""
        shape = self._scope.type(found.value).dims
        channels = found.source.logical(shape)[1]
        if channels % source.lanes or channels % target.lanes:
            return None
        return self._mover.features(value, source, target)

    def _found(self, old: Value) -> Found | None:
        if old not in self._seen:
            self._seen[old] = recognise(old.node, self._scope)
        return self._seen[old]

    def _weight(self, array: Array, dtype: DType, old: Value, image_axis: int | None) -> Value:
        """A weight computed ahead of the run; along `image_axis` as an image of OpenCL."""
        like = old.node if old.node.op.name in HOLDERS else None
        if image_axis is None:
            return self._build.weight(array, dtype, like)
        plain = Tensor.of(array, dtype)
        tensor = Tensor(
            shape=plain.shape,
            dtype=dtype,
            array=plain.numpy(),
            comp_node=plain.comp_node,
            format=(_IMAGE, bytes([image_axis])),
        )
        return self._build.stored("SharedDeviceTensorWithFormat", tensor)

    # -- results ---------------------------------------------------------------------------------

    def _shortcut(self, node: Node) -> bool:
        """Case 7: a change of layout of a converted value starts from what the value is now."""
        found = self._found(node.outputs[0]) if node.outputs else None
        if found is None or found.value not in self._made or found.source != self._base:
            return False
        layout = self._made[found.value]
        value = self._forms[found.value, layout]
        moved = value if layout == found.target else self._move(found, value, layout, found.target)
        if moved is None or self._build.objection(node.outputs[0], moved) is not None:
            return False
        self._build.put(node.outputs[0], moved)
        self._log.rewrite("shorten", node, f"from {layout} to {found.target} at once")
        return True

    def _put(
        self,
        node: Node,
        inputs: Sequence[Value],
        layout: TensorLayout,
        *,
        rule: str,
        changes: dict[str, object] | None = None,
        detail: str = "",
    ) -> bool:
        """Add a node like `node`, made in `layout`; `changes` are those of its first record."""
        old = node.outputs[0]
        params = node.params
        if changes:
            params = (params[0].replace(**changes), *params[1:])
        named = self._scope.is_output(old)
        new = self._build.like(
            node, inputs, params=params, outputs=[None if named else old.name]
        ).outputs[0]
        if layout == self._base:
            self._build.put(old, new)
        else:
            self._made[old] = layout
            self._forms[old, layout] = new
            if named:
                self._build.put(old, self.get(old, self._base))
        self._log.rewrite(rule, node, detail or str(layout))
        return True

    # -- convolutions ----------------------------------------------------------------------------

    def _convolution(self, node: Node) -> bool:
        rules = [r for r in self._target.convs if node.op.name in r.ops]
        if node.param.format != self._target.base:
            if self._target.base is _F.NCHW:
                self._log.miss("convolution", node, f"it is in {node.param.format} already")
            return False
        image = node.inputs[node.op.name == "ConvolutionBackwardData"]
        facts = facts_of(node, self._scope, self._base, is_packed=image in self._made)
        if isinstance(facts, str):
            self._log.miss("convolution", node, facts)
            return False
        fitting = [r for r in rules if r.kind == facts.kind]
        for rule in fitting:
            if rule.reason(facts) is None:
                return self._apply(node, rule, facts)
        self._log.miss("convolution", node, _why_not(fitting, facts, str(self._target.main)))
        return False

    def _apply(self, node: Node, rule: ConvRule, facts: ConvFacts) -> bool:
        image = self._conv_image(rule, facts)
        flt = self._filter(rule, facts)
        inputs = [flt, image] if node.op.name == "ConvolutionBackwardData" else [image, flt]
        result = packing(rule.result)
        for value in node.inputs[2:]:
            kind = self._scope.type(value)
            alike = kind.is_static and kind.rank == self._base.rank
            inputs.append(self.get(value, result if alike else self._base))
        return self._put(
            node, inputs, result, rule="convolution", changes={"format": rule.format},
            detail=f"{rule.format}, filter {rule.filter}",
        )  # fmt: skip

    def _conv_image(self, rule: ConvRule, facts: ConvFacts) -> Value:
        reads = packing(rule.reads)
        if rule.image_mode is None or facts.is_packed:
            return self.get(facts.image, reads)
        key = (facts.image, reads)
        if key not in self._forms:
            plain = self.get(facts.image, self._base)
            self._forms[key] = self._mover.relayout(plain, rule.image_mode)
        return self._forms[key]

    def _filter(self, rule: ConvRule, facts: ConvFacts) -> Value:
        key = (facts.filter, f"{rule.filter} {rule.fill_reads}")
        if key in self._filters:
            return self._filters[key]
        array, dtype = self._scope.constant(facts.filter), facts.dtypes[1]
        if array is not None:
            fill = dtype.zero_point or 0
            logical = facts.layout.to_goihw(array)
            more = -logical.shape[2] % rule.fill_reads
            widths = [(0, 0), (0, 0), (0, more), (0, 0), (0, 0)]
            logical = np.pad(logical, widths, constant_values=fill)
            moved = rule.filter.from_goihw(logical, fill=fill)
            made = self._weight(moved, dtype, facts.filter, rule.image_axis)
        elif rule.filter_mode is not None:
            made = self._mover.relayout(self.get(facts.filter, self._base), rule.filter_mode)
        else:
            move = plan(facts.layout, rule.filter)
            made = self._mover.chain(self.get(facts.filter, self._base), move)
        self._filters[key] = made
        return made

    # -- others ----------------------------------------------------------------------------------

    def _image(self, node: Node, rules: Sequence[ImageRule]) -> bool:
        image = node.inputs[0]
        kind, now = self._scope.type(image), self.layout(image)
        if node.param.format != self._target.base:
            return False
        fitting = [r for r in rules if r.kinds is None or kind.dtype.kind in r.kinds]
        if not fitting:
            if image in self._made:
                self._log.miss("image", node, f"its image is {kind.dtype.name}")
            return False
        fmt = _format_of(fitting[0], now, image in self._made, self._channels(image))
        if fmt is None:
            return False
        layout = packing(fmt)
        inputs = [self.get(image, layout), *(self.get(v, self._base) for v in node.inputs[1:])]
        return self._put(node, inputs, layout, rule="image", changes={"format": fmt})

    def _channels(self, value: Value, scope: Scope | None = None) -> int | None:
        kind = (scope or self._scope).type(value)
        try:
            return self._base.logical(kind.dims)[1]
        except (MgeError, ValueError):
            return None

    def _elementwise(self, node: Node, follow: Follow) -> bool:
        inputs = [v for v in node.inputs if not self._is_scalar(v)]
        layout = self._common(inputs, len(node.inputs), follow.policy)
        if layout is None:
            return False
        reason = next(filter(None, (self._objection(v, layout) for v in inputs)), None)
        if reason is not None:
            if any(v in self._made for v in inputs):
                self._log.miss("follow", node, reason)
            return False
        new = [self.get(v, layout if v in inputs else self._base) for v in node.inputs]
        return self._put(node, new, layout, rule="follow")

    def _is_scalar(self, value: Value) -> bool:
        return self._scope.type(value).shape == (1,) and value not in self._made

    def _common(self, inputs: Sequence[Value], count: int, policy: Policy) -> TensorLayout | None:
        """The layout that an operator of these inputs works on; None: the one it worked on."""
        made = [self._made[v] for v in inputs if v in self._made]
        if policy is Policy.ALWAYS:
            changes = inputs and not all(map(self._scope.is_const, inputs))
            return packing(self._target.main) if changes else None
        if not made:
            return None
        if policy is Policy.EVERY and len(made) < len(inputs):
            return None
        if policy is Policy.HALF and len(made) < count // 2:
            return None
        if policy is Policy.LARGEST:
            return self._largest(inputs)
        return made[0]

    def _largest(self, inputs: Sequence[Value]) -> TensorLayout | None:
        sizes: dict[TensorLayout, int] = {}
        for value in inputs:
            kind, layout = self._scope.type(value), self.layout(value)
            sizes[layout] = sizes.get(layout, 0) + (kind.size if kind.is_static else 0)
        best = max(sizes, key=lambda layout: (sizes[layout], layout.lanes))
        return best if best != self._base else None

    def _objection(self, value: Value, layout: TensorLayout) -> str | None:
        """Why a value cannot be had in a layout with full blocks."""
        if self.layout(value) == layout:
            return None
        kind = self._scope.type(value)
        if not kind.is_static or kind.rank != self._base.rank:
            return f"an operand is {kind}"
        channels = self._channels(value)
        if channels is None or channels % layout.lanes:
            return f"{channels} channels of an operand are no multiple of {layout.lanes}"
        others = self._scope.at_other_sizes
        if any(self._channels(value, scope) != channels for scope in others):
            return "the channels of an operand change with the sizes of the inputs"
        return None

    def _concat(self, node: Node, policy: Policy) -> bool:
        inputs = node.inputs
        layout = self._common(inputs, len(inputs), policy)
        if layout is None:
            return False
        axis = self._axis(node.param.axis, inputs[0])
        reason = None if axis is not None else f"it joins along axis {node.param.axis}"
        if policy is Policy.EVERY and axis == "W":
            reason = "it joins along the width"
        reason = reason or next(filter(None, (self._objection(v, layout) for v in inputs)), None)
        if reason is not None:
            self._log.miss("concat", node, reason)
            return False
        new = [self.get(v, layout) for v in inputs]
        changes: dict[str, object] = {"axis": layout.axes.index(axis or "C")}
        return self._put(node, new, layout, rule="concat", changes=changes)

    def _axis(self, axis: int, value: Value) -> str | None:
        """The letter of an axis of a value as it was."""
        rank = self._base.rank
        kind = self._scope.type(value)
        if not kind.is_static or kind.rank != rank or not -rank <= axis < rank:
            return None
        return self._base.axes[axis]

    def _reduce(self, node: Node) -> bool:
        layout = self._made.get(node.inputs[0])
        if layout is None:
            return False
        axis = self._axis(node.param.axis, node.inputs[0])
        if len(node.inputs) > 1 or axis is None or axis not in self._target.reduces:
            self._log.miss("reduce", node, f"it reduces along {axis or 'several axes'}")
            return False
        changes: dict[str, object] = {"axis": layout.axes.index(axis)}
        return self._put(
            node, [self.get(node.inputs[0], layout)], layout, rule="reduce", changes=changes
        )


def _format_of(rule: ImageRule, now: TensorLayout, made: bool, channels: int | None) -> _F | None:
    """The format that an operator with one image gets; None: that which it has."""
    if made:
        for fmt in rule.follows:
            if packing(fmt) == now:
                return fmt
    for number, fmt in rule.takes:
        if channels is not None and channels % number == 0:
            return fmt
    return None


def _why_not(rules: Sequence[ConvRule], facts: ConvFacts, what: str) -> str:
    """Why no rule fits: those for other types count only when there are no others."""
    if not rules:
        return f"{what} has no {facts.kind} convolution of this kind"
    typed = [r for r in rules if r.type_reason(facts) is None]
    if not typed:
        return rules[0].reason(facts) or ""
    main = [r for r in typed if not r.label][:1]
    few = [r for r in typed if r.label and (r.fewer_than is None or facts.reads < r.fewer_than)]
    texts = [r.reason(facts) or "" for r in main]
    return "; ".join([*texts, *(f"{r.label}: {r.reason(facts)}" for r in few)])
