"""Convolutions get output channels in whole blocks; whoever needs the real ones cuts them off.

Numbered as the tests are:

1. a dense convolution gets zero filters and biases up to a multiple of the block, and filters that
   read the channels added before it have zeros there.
2. a channel-wise convolution of such a value has as many groups more.
3. where the target says so, images are filled up with zeros too.
4. operators with one image, operators element by element (of values filled up alike, and whose
   result for zeros is finite), Reduce and Subtensor along other axes work on all channels.
5. a transposed convolution reads zeros with zero filters.
6. a Subtensor that ends before the channels added reads them with the others.
7. all others, and outputs, get the real channels (Subtensor).
8. left alone: convolutions that add a residual, whose filter or bias is not known ahead of the run,
   or whose types the target does not name.

Source: MegEngine v1.13.4 src/gopt/impl/padding_channel.cpp, corpus families layout and nets. What
it lets pass (MatrixMul of padded channels, logarithms of zeros) gets the real channels here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import DType, DTypeEnum
from mgeserial.ir.graph import Graph, Node, Value
from mgeserial.ops.layouts import NCHW
from mgeserial.passes.base import Fact, Log
from mgeserial.passes.evaluate import HOLDERS
from mgeserial.passes.layout.facts import CHANNEL_WISE, DENSE, ConvFacts, facts_of
from mgeserial.passes.layout.moves import Mover
from mgeserial.passes.options import Layout
from mgeserial.passes.rebuild import Rebuild
from mgeserial.passes.rules import Scope

__all__ = ["PADDINGS", "PadChannels", "Padding"]

_K = DTypeEnum
_F = P.ConvolutionFormat
_CONVS = ("Convolution", "ConvBiasForward")
_DECONV = "ConvolutionBackwardData"
_IMAGES = frozenset({"AdaptivePooling", "Pooling", "Resize", "WarpAffine", "WarpPerspective"})
_ELEMENTWISE = frozenset({"Elemwise", "ElemwiseMultiType", "PowC", "TypeCvt"})
# Modes that can make infinities or NaN of the zeros (and what bias-free layers make of them).
_UNSAFE = frozenset(
    {"TRUE_DIV", "FLOOR_DIV", "MOD", "LOG", "POW", "ACOSH", "ATANH", "ERFCINV", "FUSE_MUL_ADD3",
     "FUSE_MUL_ADD4", "LOG_SUM_EXP", "EXP", "EXPM1", "SINH", "COSH", "SQUARE", "RSQRT"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Padding:
    """How many channels convolutions get under a layout.

    Attributes:
        steps: By kind of the image, (limit, block): a count up to the limit becomes a multiple of
            that block; the last limit is None.
        fills_images: Whether images are filled up too.
        only_fused: Whether only ConvBias is.
    """

    steps: dict[DTypeEnum, tuple[tuple[int | None, int], ...]]
    fills_images: bool = False
    only_fused: bool = False

    def missing(self, dtype: DType, channels: int) -> int | None:
        """Channels to add to a number of them; None: types like this are left alone."""
        for limit, block in self.steps.get(dtype.kind, ()):
            if limit is None or channels <= limit:
                return -channels % block
        return None


def _blocks(block: int) -> Padding:
    kinds = (_K.QuantizedS8, _K.Quantized8Asymm, _K.Float32, _K.Float16)
    return Padding(dict.fromkeys(kinds, ((None, block),)))


_INT4 = ((32, 8), (None, 64))
PADDINGS: dict[Layout, Padding] = {
    Layout.NCHW88: _blocks(8),
    Layout.NCHW44: _blocks(4),
    Layout.NCHW44_DOT: _blocks(4),
    Layout.NCHW64: Padding(
        {
            _K.QuantizedS8: ((16, 4), (None, 32)),
            _K.QuantizedS4: _INT4,
            _K.Quantized4Asymm: _INT4,
        },
        fills_images=True,
        only_fused=True,
    ),
}
"""By layout; the others need none."""


@dataclass(frozen=True, slots=True)
class PadChannels:
    """Fills up channels; see the module.

    Attributes:
        padding: The table.
        name, needs, ensures, spoils: As of every pass.
    """

    padding: Padding
    name: str = "pad-channels"
    needs: frozenset[Fact] = frozenset({Fact.CONV_BIAS})
    ensures: frozenset[Fact] = frozenset()
    spoils: frozenset[Fact] = frozenset()

    def run(self, graph: Graph, log: Log) -> Graph:
        """Fill up."""
        return _Walk(graph, self.padding, log).run()


class _Walk:
    def __init__(self, graph: Graph, padding: Padding, log: Log) -> None:
        self._graph = graph
        self._padding = padding
        self._log = log
        self._scope = Scope(graph)
        self._build = Rebuild(graph)
        self._mover = Mover(self._build)
        # Values with channels added: how many there are in all, and the new value.
        self._more: dict[Value, tuple[int, Value]] = {}
        self._plain: dict[Value, Value] = {}

    def run(self) -> Graph:
        rules: dict[str, Callable[[Node], bool]] = {
            **dict.fromkeys(_CONVS, self._convolution),
            _DECONV: self._transposed,
            **dict.fromkeys(_IMAGES, self._image),
            **dict.fromkeys(_ELEMENTWISE, self._elementwise),
            "Reduce": self._reduce,
            "Subtensor": self._part,
        }
        for node in self._graph.nodes:
            rule = rules.get(node.op.name)
            if rule is None or not rule(node):
                self._build.carry(node, [self._real(v) for v in node.inputs])
        return self._build.finish() if self._log.rewrites else self._graph

    # -- values ----------------------------------------------------------------------------------

    def _real(self, old: Value) -> Value:
        """The new value of an old one, with its own channels."""
        if old not in self._more:
            return self._build[old]
        if old not in self._plain:
            channels = self._scope.type(old).dims[1]
            self._plain[old] = self._mover.first_channels(self._more[old][1], channels)
        return self._plain[old]

    def _filled(self, old: Value, count: int, axis: int = 1) -> Value:
        """The new value of an old one, with `count` channels."""
        if axis == 1 and old in self._more and self._more[old][0] == count:
            return self._more[old][1]
        kind = self._scope.type(old)
        missing = count - kind.dims[axis]
        if not missing:
            return self._real(old)
        fill = kind.dtype.zero_point or 0
        array = self._scope.constant(old)
        if array is not None and old not in self._more:
            widths = [(0, missing if k == axis else 0) for k in range(array.ndim)]
            like = old.node if old.node.op.name in HOLDERS else None
            padded = np.pad(array, widths, constant_values=fill)
            return self._build.weight(padded, kind.dtype, like)
        shape = [missing if k == axis else n for k, n in enumerate(kind.dims)]
        zeros = self._build.weight(np.full(shape, fill, kind.dtype.storage), kind.dtype)
        return self._build.concat(self._real(old), zeros, axis=axis)

    def _put(self, node: Node, inputs: Sequence[Value], count: int, detail: str) -> bool:
        """Add a node like `node` whose result has `count` channels."""
        old = node.outputs[0]
        named = self._scope.is_output(old)
        outputs = [None if named else old.name]
        new = self._build.like(node, inputs, outputs=outputs).outputs[0]
        self._more[old] = (count, new)
        if named:
            self._build.put(old, self._real(old))
        if detail:
            self._log.rewrite("pad", node, detail)
        return True

    def _count(self, old: Value) -> int:
        """Channels that the new value of an old one has."""
        return self._more[old][0] if old in self._more else self._scope.type(old).dims[1]

    # -- operators -------------------------------------------------------------------------------

    def _convolution(self, node: Node) -> bool:
        facts = self._facts(node)
        if facts is None or facts.kind not in (DENSE, CHANNEL_WISE):
            return False
        if self._padding.only_fused and node.op.name != "ConvBiasForward":
            return False
        if facts.kind == CHANNEL_WISE:
            return self._channel_wise(node, facts)
        return self._dense(node, facts)

    def _facts(self, node: Node) -> ConvFacts | None:
        if node.param.format != _F.NCHW or not self._scope.type(node.outputs[0]).is_static:
            return None
        facts = facts_of(node, self._scope, NCHW, is_packed=False)
        if isinstance(facts, str):
            self._log.miss("pad", node, facts)
            return None
        if not self._scope.type(facts.image).is_static:
            return None
        return facts

    def _dense(self, node: Node, facts: ConvFacts) -> bool:
        read = self._count(facts.image)
        more_in = self._padding.missing(facts.dtypes[0], read) if self._padding.fills_images else 0
        more_out = self._padding.missing(facts.dtypes[0], facts.writes)
        if more_in is None or more_out is None:
            return False
        reads, writes = read + more_in, facts.writes + more_out
        if (reads, writes) == (facts.reads, facts.writes):
            return False
        reason = self._objection(node, facts)
        if reason is not None:
            self._log.miss("pad", node, reason)
            return False
        inputs = [self._filled(facts.image, reads), self._weights(facts, reads, writes)]
        inputs += [self._filled(v, writes) for v in node.inputs[2:]]
        detail = f"{facts.reads} to {facts.writes} channels became {reads} to {writes}"
        if not more_out:
            new = self._build.like(node, inputs)
            self._build.put(node.outputs[0], new.outputs[0])
            self._log.rewrite("pad", node, detail)
            return True
        return self._put(node, inputs, writes, detail)

    def _objection(self, node: Node, facts: ConvFacts) -> str | None:
        """Why the channels of a convolution cannot be filled up."""
        if self._scope.constant(facts.filter) is None:
            return "its filter is not known ahead of the run"
        if facts.bias is not None and (
            self._scope.constant(facts.bias) is None
            or facts.bias_channels != facts.groups * facts.writes
        ):
            return "its bias is not one known number for each channel"
        if facts.has_z and self._padding.missing(facts.dtypes[0], facts.writes):
            return None if self._padding.fills_images else "it adds a residual"
        return None

    def _weights(self, facts: ConvFacts, reads: int, writes: int) -> Value:
        array, dtype = self._scope.constant(facts.filter), facts.dtypes[1]
        assert array is not None
        widths = [(0, writes - facts.writes), (0, reads - facts.reads), (0, 0), (0, 0)]
        padded = np.pad(array, widths, constant_values=dtype.zero_point or 0)
        like = facts.filter.node if facts.filter.node.op.name in HOLDERS else None
        return self._build.weight(padded, dtype, like)

    def _channel_wise(self, node: Node, facts: ConvFacts) -> bool:
        if facts.image not in self._more:
            return False
        reason = self._objection(node, facts) if facts.bias is not None else None
        if reason is not None or facts.has_z:
            self._log.miss("pad", node, reason or "it adds a residual")
            return False
        count = self._count(facts.image)
        inputs = [self._more[facts.image][1], self._filled(facts.filter, count, axis=0)]
        inputs += [self._filled(v, count) for v in node.inputs[2:]]
        return self._put(node, inputs, count, f"{facts.groups} groups became {count}")

    def _transposed(self, node: Node) -> bool:
        facts = self._facts(node)
        if facts is None or facts.kind != DENSE or facts.image not in self._more:
            return False
        if self._scope.constant(facts.filter) is None:
            return False
        count = self._count(facts.image)
        inputs = [self._filled(facts.filter, count, axis=0), self._more[facts.image][1]]
        new = self._build.like(node, inputs)
        self._build.put(node.outputs[0], new.outputs[0])
        self._log.rewrite("pad", node, f"{facts.reads} channels read became {count}")
        return True

    def _image(self, node: Node) -> bool:
        image = node.inputs[0]
        if image not in self._more or node.param.format != _F.NCHW:
            return False
        rest = [self._real(v) for v in node.inputs[1:]]
        return self._put(node, [self._more[image][1], *rest], self._count(image), "")

    def _elementwise(self, node: Node) -> bool:
        inputs = [v for v in node.inputs if self._scope.type(v).shape != (1,)]
        counts = {self._count(v) for v in inputs if v in self._more}
        if not counts or len(counts) > 1 or any(v not in self._more for v in inputs):
            return False
        mode = str(getattr(node.param, "mode", "")).rstrip("_")
        if mode in _UNSAFE or node.op.name == "PowC":
            self._log.miss("pad", node, f"{mode or 'POW'} of zeros need not be a number")
            return False
        new = [self._more[v][1] if v in self._more else self._real(v) for v in node.inputs]
        return self._put(node, new, counts.pop(), "")

    def _reduce(self, node: Node) -> bool:
        value = node.inputs[0]
        if value not in self._more or len(node.inputs) > 1:
            return False
        if node.param.axis % 4 == 1 or not -4 <= node.param.axis < 4:
            return False
        return self._put(node, [self._more[value][1]], self._count(value), "")

    def _part(self, node: Node) -> bool:
        value = node.inputs[0]
        if value not in self._more:
            return False
        items = node.param.items
        count, given = self._count(value), self._more[value][1]
        rest = [self._real(v) for v in node.inputs[1:]]
        if self._is_inside(node):
            # The part has none of the added channels.
            new = self._build.like(node, [given, *rest])
            self._build.put(node.outputs[0], new.outputs[0])
            return True
        if any(item.axis % 4 == 1 or item.idx for item in items):
            return False
        return self._put(node, [given, *rest], count, "")

    def _is_inside(self, node: Node) -> bool:
        """Whether a part is cut off that ends, or is one channel, before the added channels."""
        numbers = iter(node.inputs[1:])
        inside = False
        for item in node.param.items:
            names = [n for n in ("begin", "end", "step", "idx") if getattr(item, n)]
            found = {n: self._scope.constant(next(numbers)) for n in names}
            if item.axis % 4 != 1:
                continue
            if any(a is None or a.size != 1 or a.min() < 0 for a in found.values()):
                return False
            last = next((a for n, a in found.items() if n in ("end", "idx")), None)
            channels = self._scope.type(node.inputs[0]).dims[1]
            inside = last is not None and int(last.min()) <= channels
        return inside
