"""Values stored as float16 instead of float32, with or without sums in float32.

1. Inputs stay float32 and are converted behind the input; weights and constants are converted (and
   folded); outputs are converted back.
2. Convolutions, transposed ones, ConvBias and products of matrices sum in float32 with io16xc32
   (compute_mode FLOAT32), reductions too (data_type FLOAT_O16xC32).
3. A conversion to float32 becomes one to float16.
4. The matrix of warps and the map of Remap stay float32, and so do numbers that shapes are
   computed from: they are known ahead of a run, and float16 cannot count beyond 2048.
5. Operators that do not take float16 work in float32 between conversions: near-misses, with what
   they say. Images with channels last, Linspace, NMSKeep and others stay float32 by themselves.
6. Graphs without a float32 value are left alone.

Source: MegEngine 1.13.0, corpus family layout (io16xc32_*, ioc16_*), and v1.13.4
src/gopt/impl/inference.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mgeserial import params as P
from mgeserial._record import Params
from mgeserial.dtypes import FLOAT16, FLOAT32
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Graph, Node, Value
from mgeserial.ir.inference import make_call
from mgeserial.passes.base import Fact, Log
from mgeserial.passes.evaluate import HOLDERS
from mgeserial.passes.rebuild import Rebuild

__all__ = ["Float16"]

_SUMS = frozenset(
    {"BatchedMatrixMul", "ConvBiasForward", "Convolution", "ConvolutionBackwardData", "MatrixMul"}
)
# Inputs that stay float32 whatever the data are.
_STAY = {"Remap": (1,), "WarpAffine": (1,), "WarpPerspective": (1,)}
# Operators whose kernels read float32 only, though their records take what they are given.
_FLOAT32_ONLY = frozenset(
    {
        "DeformableConvForward", "DeformablePSROIPoolingForward", "FakeQuant", "LSQ", "Linspace",
        "MatrixInverse", "NMSKeep", "ROIAlign", "ROIPooling", "SVD", "TQT",
    }
)  # fmt: skip
_IMAGES = frozenset({"Resize", "WarpAffine", "WarpPerspective"})


@dataclass(frozen=True, slots=True)
class Float16:
    """Stores float32 values as float16; see the module.

    Attributes:
        sum_float32: Whether convolutions and products sum in float32 (io16xc32).
    """

    sum_float32: bool
    name: str = "float16"
    needs: frozenset[Fact] = frozenset()
    ensures: frozenset[Fact] = frozenset({Fact.FLOAT16})
    spoils: frozenset[Fact] = frozenset({Fact.CONSTANTS_FOLDED})

    def run(self, graph: Graph, log: Log) -> Graph:
        """Convert."""
        types = graph.inference.types
        if not any(types[v].dtype == FLOAT32 for v in graph.values()):
            return graph
        walk = _Walk(graph, log, sum_float32=self.sum_float32)
        return walk.run()


class _Walk:
    """The new graph. An old float32 value may have a float16 one, a float32 one, or both."""

    def __init__(self, graph: Graph, log: Log, *, sum_float32: bool) -> None:
        self._graph = graph
        self._inference = graph.inference
        self._types = graph.inference.types
        self._log = log
        self._build = Rebuild(graph)
        self._narrow: dict[Value, Value] = {}
        self._wide: dict[Value, Value] = {}
        # What a value is converted from: its float16 value is made of that.
        self._source: dict[Value, Value] = {}
        self._sum_float32 = sum_float32
        self._changed = False

    def run(self) -> Graph:
        """Walk; the graph itself when nothing changed."""
        for node in self._graph.nodes:
            self._visit(node)
        if not self._changed:
            return self._graph
        for value in filter(self._is_float32, self._graph.outputs):
            self._finish_output(value)
        return self._build.finish()

    def _is_float32(self, value: Value) -> bool:
        return self._types[value].dtype == FLOAT32

    def _visit(self, node: Node) -> None:
        if node.op.name == "TypeCvt":
            self._convert(node)
        elif not any(map(self._is_float32, (*node.inputs, *node.outputs))):
            self._build.carry(node)
        elif not node.inputs or self._stays(node) or not self._carried(node):
            self._carry_wide(node)

    def _stays(self, node: Node) -> bool:
        """Whether an operator works in float32 by its nature."""
        if node.op.name in _FLOAT32_ONLY or all(map(self._is_known, node.outputs)):
            return True
        return node.op.name in _IMAGES and str(node.param.format) == "NHWC"

    def _is_known(self, value: Value) -> bool:
        """Whether a value is a number that shapes are made of."""
        return value.node.op.name not in HOLDERS and self._inference.value(value) is not None

    def _carry_wide(self, node: Node) -> None:
        """Carry a node that works in float32."""
        # A shape is that of either value.
        get = self._either if node.op.name == "GetVarShape" else self._widened
        inputs = [get(v) if self._is_float32(v) else self._build[v] for v in node.inputs]
        new = self._build.carry(node, inputs)
        for old, made in zip(node.outputs, new.outputs, strict=True):
            if self._is_float32(old):
                self._wide[old] = made

    def _either(self, value: Value) -> Value:
        return self._narrow.get(value) or self._wide[value]

    def _narrowed(self, value: Value) -> Value:
        """The float16 value, converted when first asked for."""
        found = self._narrow.get(value)
        if found is None:
            source = self._source.get(value) or self._wide[value]
            found = self._narrow[value] = self._build.type_cvt(source, dtype=FLOAT16)
            self._changed = True
            if value.node.op.name not in HOLDERS:
                self._log.rewrite("narrow", value.node, "its value is converted to float16")
        return found

    def _widened(self, value: Value) -> Value:
        """The float32 value, converted back when first asked for."""
        found = self._wide.get(value)
        if found is None:
            found = self._wide[value] = self._build.type_cvt(self._narrow[value], dtype=FLOAT32)
            self._changed = True
        return found

    def _carried(self, node: Node) -> bool:
        """Carry a node with float16 inputs; False when it does not take them."""
        build, stay = self._build, _STAY.get(node.op.name, ())
        if not any(self._is_float32(v) for i, v in enumerate(node.inputs) if i not in stay):
            return False
        reason = self._refusal(node, stay)
        if reason is not None:
            self._log.miss("store", node, f"it does not take float16: {reason}")
            return False
        inputs = []
        for i, value in enumerate(node.inputs):
            if not self._is_float32(value):
                inputs.append(build[value])
            else:
                inputs.append(self._widened(value) if i in stay else self._narrowed(value))
        dtype = FLOAT16 if node.output_dtype == FLOAT32 else node.output_dtype
        new = build.like(node, inputs, params=self._params(node), output_dtype=dtype)
        for old, value in zip(node.outputs, new.outputs, strict=True):
            build.put(old, value)
            if self._is_float32(old):
                is_narrow = build.type_of(value).dtype == FLOAT16
                (self._narrow if is_narrow else self._wide)[old] = value
        self._log.rewrite("store", node, "its values are float16")
        self._changed = True
        return True

    def _refusal(self, node: Node, stay: Sequence[int]) -> str | None:
        """What an operator's own rules say against float16 inputs."""
        given = [self._types[v] for v in node.inputs]
        inputs = [
            replace(t, dtype=FLOAT16) if t.dtype == FLOAT32 and i not in stay else t
            for i, t in enumerate(given)
        ]
        values = [self._inference.value(v) for v in node.inputs]
        call = make_call(node, inputs, values)
        try:
            if node.op.dtypes is not None:
                node.op.dtypes(call)
            if node.op.shapes is not None and all(t.is_static for t in inputs):
                node.op.shapes(call)
        except MgeError as error:
            return error.message
        return None

    def _params(self, node: Node) -> tuple[Params, ...]:
        params = node.params
        if not self._sum_float32 or not params:
            return params
        first, *rest = params
        if node.op.name in _SUMS:
            first = first.replace(compute_mode=type(first.compute_mode)["FLOAT32"])
        elif node.op.name == "Reduce" and first.data_type.name == "DEFAULT":
            first = first.replace(data_type=P.ReduceDataType.FLOAT_O16xC32)
        return (first, *rest)

    def _convert(self, node: Node) -> None:
        """A conversion: of either value of its source, to float16 where it was to float32."""
        source, value, build = node.inputs[0], node.outputs[0], self._build
        target = self._types[value].dtype
        if not self._is_float32(source):
            if target != FLOAT32:
                build.carry(node)
            elif self._is_known(value):
                self._wide[value] = build.carry(node).outputs[0]
            elif self._types[source].dtype == FLOAT16:
                self._narrow[value] = build[source]
                self._wide[value] = build.carry(node).outputs[0]
            else:
                self._source[value] = build[source]
                self._wide[value] = build.carry(node).outputs[0]
            return
        if target == FLOAT32:
            self._alias(value, source)
        elif target == FLOAT16 and source in self._narrow:
            build.put(value, self._narrow[source])
        else:
            given = self._wide.get(source) or self._narrow[source]
            new = build.carry(node, [given])
            if target == FLOAT16:
                self._narrow.setdefault(source, new.outputs[0])

    def _alias(self, value: Value, source: Value) -> None:
        for known in (self._narrow, self._wide):
            if source in known:
                known[value] = known[source]

    def _finish_output(self, value: Value) -> None:
        """Outputs stay float32, under their names."""
        build = self._build
        made = build.values.get(value)
        if made is None or made is not self._wide.get(value):
            if made is not None:
                made.name = None
            wide = self._widened(value)
            build.put(value, wide)
