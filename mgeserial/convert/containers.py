"""Graphs as records of one container and release: ids, tables, numbers and names translated.

Everything that the target cannot express is collected; only when nothing is left over is there
something to write. `mgeserial.saving` writes it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from mgeserial import params as P
from mgeserial.convert.ids import OperatorId, operator_id, output_slots
from mgeserial.convert.tensors import TensorPlanner, encoded
from mgeserial.errors import ConversionError, GraphError, MgeError, Problem
from mgeserial.format.outgoing import OutGraph, OutMetadata, OutOperator, OutVar
from mgeserial.format.params_encode import ParamsEncoder, Prepared, dtype_reason
from mgeserial.format.raw import Opaque
from mgeserial.format.target import Target
from mgeserial.ir.graph import Graph, Metadata, Node, Value
from mgeserial.ops import counts
from mgeserial.ops.registry import OpSpec, OutputQuery

__all__ = ["Keep", "plan_graphs"]

# What MegEngine stores for "no user information": nothing, or the pickle of None.
_NO_INFO = frozenset({b"", b"\x80\x04N."})
_LARGEST_ID = 0xFFFFFFFF
# Tensors that are shared between graphs at run time, which the file counts.
_SHARED = frozenset(
    {
        "SharedDeviceTensor",
        "VolatileSharedDeviceTensor",
        "MultipleDeviceTensorHolder",
        "MultipleDeviceTensorWithFormatHolder",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Which names and facts are written; None: those that the graph has.

    `var_names`: 0 none, 1 those of graph outputs' operators, 2 all (in v2 1 is 2);
    `param_names` and `operator_names`: with True a missing name is made up.
    """

    var_names: int | None = None
    param_names: bool | None = None
    operator_names: bool | None = None
    metadata: bool = True


def plan_graphs(pairs: Sequence[tuple[Graph, Target]], keep: Keep) -> list[OutGraph]:
    """Translate graphs, each for its target.

    Raises:
        ConversionError: What cannot be expressed, in full.
        GraphError: A graph is not well formed.
    """
    problems: list[Problem] = []
    found = []
    for index, (graph, target) in enumerate(pairs):
        planner = _Planner(graph, target, keep)
        found.append(planner.plan())
        place = f"graph {index}: " if len(pairs) > 1 else ""
        problems += [Problem(place + p.operator, p.name, p.reason) for p in planner.problems]
    if problems:
        targets = " and ".join(sorted({str(target) for _, target in pairs}))
        raise ConversionError(targets, tuple(problems), path=pairs[0][0].path)
    return found


class _Planner:
    """Translates one graph."""

    def __init__(self, graph: Graph, target: Target, keep: Keep) -> None:
        self.graph = graph
        self.target = target
        self.keep = keep
        self.problems: list[Problem] = []
        self.encoder = ParamsEncoder(target)
        self.tensors = TensorPlanner(target, keep_names=keep.param_names)
        self.ids: dict[Value, int] = {}
        self.slots: list[tuple[Node, int, Value | None]] = []
        self.lost: set[Value] = set()
        self.renamed: dict[Value, str] = {}
        self.operator_names = 0

    def problem(self, node: Node | None, reason: str) -> None:
        """Note something that cannot be expressed."""
        if node is None:
            self.problems.append(Problem("the graph", "", reason))
        else:
            place = node.origin.index if node.origin is not None else node.index
            operator = f"operator {place} ({node.op.name})"
            self.problems.append(Problem(operator, node.display_name, reason))

    def plan(self) -> OutGraph:
        """Translate everything; what does not fit is in `problems`."""
        graph, target = self.graph, self.target
        out = OutGraph(target)
        self._output_names()
        results = {v.node for v in graph.outputs}
        for node in graph.nodes:
            out.operators.append(self._operator(node, results))
            if node.op.name in _SHARED:
                out.shared_tensors += len(node.tensors)
        if len(self.slots) > _LARGEST_ID:
            raise GraphError(f"a graph has at most {_LARGEST_ID} values")
        if self.operator_names and not target.has_operator_names:
            self.problem(
                None,
                f"names of operators ({self.operator_names}) are kept since v1.3.0 "
                "(--drop-opr-name, keep_opr_name=False, leaves them out)",
            )
        out.outputs = self._outputs()
        if target.is_v2:
            out.aliases = self._aliases(out.outputs)
            out.variables = self._variables()
        out.metadata = self._metadata()
        out.unknown = self._unknown(None, graph.unknown)
        self._uncarried()
        return out

    # -- operators -------------------------------------------------------------------------------

    def _operator(self, node: Node, results: set[Node]) -> OutOperator:
        op = node.op
        assert isinstance(op, OpSpec)
        found = missing = operator_id(op, self.target)
        if isinstance(found, str):
            self.problem(node, found)
            found = OperatorId(0)
        slots, reasons = output_slots(node, self.target)
        reasons += [] if node.output_dtype is None else dtype_reason(node.output_dtype, self.target)
        params = self._params(node, reasons)
        first = len(self.slots)
        for k, value in enumerate(slots):
            if value is not None:
                self.ids[value] = first + k
            self.slots.append((node, k, value))
        self.lost.update(v for v in node.outputs if v not in self.ids)
        if not reasons:
            self._check_count(node, op, len(slots))
        tensors, blobs = self.tensors.of(node, reasons)
        unknown = self._unknown(node, node.unknown)
        if not isinstance(missing, str):  # else all that follows from it says nothing more
            for reason in dict.fromkeys(reasons):
                self.problem(node, reason)
        return OutOperator(
            type_id=found.type_id,
            type_name=found.type.encode(),
            version=found.version,
            name=self._operator_name(node),
            inputs=tuple([self._input(node, v) for v in node.inputs]),
            outputs=tuple(range(first, first + len(slots))),
            names=None if self.target.is_v2 else self._names(node, first, results),
            comp_nodes=tuple([None if n is None else encoded(n) for n in node.comp_nodes]),
            output_dtype=node.output_dtype,
            tensors=tensors,
            priority=self._priority(node),
            params=params,
            blobs=blobs,
            unknown=unknown,
        )

    def _input(self, node: Node, value: Value) -> int:
        found = self.ids.get(value)
        if found is None:
            if value in self.lost:
                return 0  # an output that the target lacks: a problem already
            raise GraphError(f"{node.describe()} uses {value!r}, which comes later or not at all")
        return found

    def _priority(self, node: Node) -> int:
        try:
            struct.pack("<i", node.priority)
        except struct.error:
            raise GraphError(
                f"{node.describe()}: a priority has 32 bits, got {node.priority}"
            ) from None
        return node.priority

    def _params(self, node: Node, reasons: list[str]) -> tuple[Prepared, ...]:
        op = node.op
        try:
            stored = node.stored_params
        except MgeError as error:
            raise error.located(where=node.describe()) from None
        if isinstance(op, OpSpec) and "unknown" not in op.tags:
            for k, record in enumerate(stored):
                wanted = op.params[k] if k < len(op.params) else None
                if not isinstance(record, Opaque) and type(record) is not wanted:
                    got = getattr(record, "TABLE", type(record).__name__)
                    needs = "no more parameters" if wanted is None else f"parameters {wanted.TABLE}"
                    raise GraphError(f"{node.describe()} takes {needs}, got {got}")
        if op.name == "CheckNonFinite" and not self.target.has("v1.7.2.m1"):
            # v1.7.0 has the table Empty instead: always a scale of 1.
            stored = tuple([P.Empty() if r == P.CheckNonFinite() else r for r in stored])
        prepared = [self.encoder.prepare(record) for record in stored]
        for item in prepared:
            reasons += item.reasons
        return tuple(prepared)

    def _check_count(self, node: Node, op: OpSpec, count: int) -> None:
        """What a v1 file does not say must be as the operator's record has it."""
        rule = op.output_count
        if "unknown" in op.tags:
            return
        for what, wanted, got in (
            ("tensors", op.tensors, len(node.tensors)),
            ("blobs", op.blobs, len(node.blobs)),
        ):
            if wanted is not None and got != wanted:
                raise GraphError(f"{node.describe()} stores {wanted} {what}, got {got}")
        if rule is counts.stored_names:
            return
        if not isinstance(rule, int):
            query = OutputQuery(
                inputs=len(node.inputs),
                tensors=len(node.tensors),
                param=lambda: node.param if node.params else op.params[0](),
                blobs=lambda: node.blobs,
                names=None,
                version=self.target.version if self.target.container == "MGBS" else 0,
                added_reserve=self.target.has("v1.7.0"),
            )
            if op.name == "CheckNonFinite":
                return
            rule = rule(query)
        if rule != count:
            raise GraphError(f"{node.describe()} has {rule} outputs with an id, got {count}")

    # -- names -----------------------------------------------------------------------------------

    def _output_names(self) -> None:
        """Give values the names of the outputs where the two differ and no alias can say so."""
        names: dict[Value, set[str]] = {}
        for out in self.graph.output_list:
            if out.name is not None:
                names.setdefault(out.value, set()).add(out.name)
        for value, wanted in names.items():
            if value.name in wanted and len(wanted) == 1:
                continue
            if value.name is None or (not self.target.is_v2 and len(wanted) == 1):
                self.renamed[value] = min(wanted)
            if not self.target.is_v2 and len(wanted) > 1:
                shown = ", ".join(sorted(wanted))
                self.problem(value.node, f"one value is the output of several names: {shown}")

    def _name(self, slot: tuple[Node, int, Value | None]) -> str | None:
        value = slot[2]
        if value is None:
            return None
        return self.renamed.get(value, value.name)

    def _made_up(self, slot: tuple[Node, int, Value | None]) -> bytes:
        """Name of a value in a list that has one for every value."""
        name = self._name(slot)
        if name is None:
            node, k, value = slot
            name = f"{node.display_name}:o{k}" if value is None else value.display_name
        return encoded(name)

    def _names(self, node: Node, first: int, results: set[Node]) -> tuple[bytes, ...] | None:
        """The names v1 stores with an operator: one for each of its ids, or none."""
        slots = self.slots[first:]
        if not slots:
            return None
        keep = self.keep.var_names
        wanted = keep == 2 or (keep == 1 and node in results)
        if keep is None:
            wanted = any(self._name(slot) is not None for slot in slots)
        op = node.op
        if isinstance(op, OpSpec) and op.output_count is counts.stored_names and len(slots) != 1:
            wanted = True  # nothing else in the file says how many there are
        return tuple([self._made_up(slot) for slot in slots]) if wanted else None

    def _variables(self) -> tuple[OutVar, ...] | None:
        """Names, and shapes where they are known, of all values, or None when none is kept."""
        keep = self.keep.var_names
        if keep == 0:
            return None
        if keep is None and all(self._name(slot) is None for slot in self.slots):
            return None
        try:
            types = self.graph.inference.types
        except MgeError:
            # Shapes are a courtesy to tools: a graph that nobody could run is written all the same.
            types = {}
        found = []
        for slot in self.slots:
            known = None if slot[2] is None else types.get(slot[2])
            shape = known.dims if known is not None and known.is_static else None
            if shape is not None and max(shape, default=0) > _LARGEST_ID:
                shape = None  # inferred, of no tensor that could exist: nothing to tell a reader
            found.append(OutVar(self._made_up(slot), shape))
        return tuple(found)

    def _operator_name(self, node: Node) -> bytes | None:
        keep = self.keep.operator_names
        name = node.display_name if keep and node.name is None else node.name
        if keep is False or name is None:
            return None
        self.operator_names += 1
        return encoded(name)

    # -- outputs and metadata --------------------------------------------------------------------

    def _outputs(self) -> tuple[tuple[int, int], ...]:
        """(id, original id) of the outputs; original ids are keys, so one stands for one value."""
        pairs = []
        for out in self.graph.output_list:
            if out.value not in self.ids:
                if out.value.node.graph is not self.graph:
                    raise GraphError(f"output {out.name!r} is no value of the graph")
                pairs.append((0, 0))  # its operator's problem says why
            else:
                pairs.append((self.ids[out.value], out.original_id))
        keys: dict[int, int] = {}
        clash = any(keys.setdefault(original, number) != number for number, original in pairs)
        if clash or any(not 0 <= original <= _LARGEST_ID for _, original in pairs):
            pairs = [(number, number) for number, _ in pairs]
        return tuple(pairs)

    def _aliases(self, outputs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, bytes], ...]:
        """Names of the outputs where one is not its value's own; then of all of them."""
        if self.keep.var_names == 0:
            return ()
        listed = self.graph.output_list
        own = [self.renamed.get(o.value, o.value.name) for o in listed]
        if all(o.name is None or o.name == name for o, name in zip(listed, own, strict=True)):
            return ()
        return tuple(
            (original, encoded(o.name or o.value.display_name))
            for o, (_, original) in zip(listed, outputs, strict=True)
        )

    def _metadata(self) -> OutMetadata | None:
        data = self.graph.metadata
        if not self.target.has_metadata:
            if self.keep.metadata and data is not None and _says_something(data):
                self.problem(
                    None,
                    "metadata (optimize_options, user_info) is stored since v1.5.0 "
                    "(--drop-metadata, keep_metadata=False, leaves it out)",
                )
            return None
        if data is None or not self.keep.metadata:
            return OutMetadata()
        unknown = self._unknown(None, data.unknown)
        return OutMetadata(
            data.is_valid, data.graph_modified, data.user_info, data.optimize_options, unknown
        )

    # -- content of newer releases ---------------------------------------------------------------

    def _unknown(self, node: Node | None, unknown: Opaque | None) -> Opaque | None:
        """Unknown fields, when the target takes them."""
        if unknown is None or unknown.table is None:
            return None
        if not unknown.buffer.unknown_slots(unknown.pos, unknown.table):
            return None
        table = unknown.table.name.rsplit(".", 1)[-1]
        if self._is_foreign(unknown) or not self.target.takes_unknown:
            self.problem(node, f"fields of a newer release in table {table} have no place")
            return None
        return unknown

    def _is_foreign(self, unknown: Opaque) -> bool:
        return (bytes(unknown.buffer.data[8:12]) == b"mgv2") != self.target.is_v2

    def _uncarried(self) -> None:
        """Tables with unknown fields that no record keeps are not dropped silently."""
        root = self.graph.unknown
        if not isinstance(root, Opaque):
            return
        for name in root.buffer.tables_beyond():
            table = name.rsplit(".", 1)[-1]
            if ".param." not in name and table not in ("Graph", "Model", "Operator", "Tensor"):
                if table == "Metadata" and self.target.has_metadata:
                    continue
                self.problem(None, f"fields of a newer release in table {table} are not kept")


def _says_something(data: Metadata) -> bool:
    return data.optimize_options != 0 or data.user_info not in _NO_INFO or data.unknown is not None
