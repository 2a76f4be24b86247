"""From raw records to graphs: operators found by their ids, output ids counted, links made.

Structure is checked here (ids, arities, counts, use before definition); parameter tables and
tensor values are left for the first touch, but for the few operators whose number of outputs
depends on a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from mgeserial import params as P
from mgeserial._record import Params
from mgeserial.errors import FormatError, MgeError, UnsupportedError, printable
from mgeserial.format.container import Layout, Source, SourceLike, open_source, walk
from mgeserial.format.raw import Opaque, RawGraph, RawOperator, RawTensor
from mgeserial.format.versions import FIRST_RELEASE, is_row_packed, origin
from mgeserial.ir.graph import Graph, Lazy, Metadata, Origin, Output, Value
from mgeserial.ir.model import GraphInfo, Model, ModelInfo
from mgeserial.ir.tensor import Tensor
from mgeserial.ops import registry
from mgeserial.ops.registry import Gap, Name, OpSpec, OutputQuery, V2Id

__all__ = ["iter_graphs", "load"]


def load(source: SourceLike) -> Model:
    """Load every graph of a `.mge` file.

    Args:
        source: A path, bytes, or a binary file open at the first graph.

    Returns:
        The model. Tensor values are views of the file, read when first touched.

    Raises:
        FormatError: Not a model (the error says what it is instead), or damaged.
        UnsupportedError: A valid file that cannot be read, such as an encrypted package.
        InputError: The source cannot be opened.

    Example::

        model = mgeserial.load("net.mge")
        for value in model.graph.inputs:
            print(value.name, value.shape, value.dtype)
    """
    opened = open_source(source)
    layout = Layout()
    graphs, infos = [], []
    for index, raw in enumerate(walk(opened, layout)):
        graphs.append(_build(raw, index, opened.path))
        infos.append(_info(raw))
    size = len(opened.data)
    info = ModelInfo(opened.path, size, layout.testcases, layout.lite, tuple(infos))
    return Model(graphs, info)


def iter_graphs(file: IO[bytes]) -> Iterator[Graph]:
    """Yield the graphs of an open binary file one after another, from its position on.

    A graph is built when it is asked for, so that a damaged later one does not hide the first.

    Raises:
        FormatError: As `load`, when the graph concerned is reached.
    """
    opened: Source = open_source(file)
    for index, raw in enumerate(walk(opened, Layout())):
        yield _build(raw, index, opened.path)


def _info(raw: RawGraph) -> GraphInfo:
    return GraphInfo(
        container=raw.container,
        origin=origin(raw.container, raw.version, has_metadata=raw.metadata is not None),
        model_version=raw.model_version,
        hash=raw.hash,
        shared_tensors=raw.shared_tensors,
        start=raw.start,
        end=raw.end,
        meta_bytes=raw.meta_size,
        release=raw.release,
        aliases=raw.aliases,
    )


def _build(raw: RawGraph, index: int, path: str | None) -> Graph:
    """Make the graph of a raw record, trying other counts where the file does not say them."""
    builder = _Builder(raw, index, path)
    reserve, flags = builder.reserve, builder.flags_only
    others = ((reserve, not flags), (not reserve, flags), (not reserve, not flags))
    try:
        return builder.build(reserve=reserve, flags_only=flags)
    except _Unfit as first:
        for other_reserve, other_flags in others if builder.is_ambiguous else ():
            try:
                return builder.build(reserve=other_reserve, flags_only=other_flags)
            except _Unfit:  # noqa: PERF203 - three more ways, and only for ambiguous files
                continue
        raise first.error from None


class _Unfit(Exception):
    """Ids that do not fit the counts assumed."""

    def __init__(self, error: FormatError) -> None:
        super().__init__(str(error))
        self.error = error


class _Builder:
    """Builds one graph."""

    def __init__(self, raw: RawGraph, index: int, path: str | None) -> None:
        self.raw = raw
        self.index = index
        self.path = path
        self.is_ambiguous = False
        version = raw.version
        is_recent = version < 800000
        # BatchNorm's reserve output, since v1.7.0; CheckNonFinite's flag as its only id, in v1
        # files since v1.13.2 unless dumped with no_change_graph, which a file does not say.
        self.reserve = raw.container != "MGBS" or (version >= 100700 and is_recent)
        self.flags_only = raw.container != "mgv2" and version >= 101302 and is_recent
        self.row_packed = is_row_packed(
            raw.container, version, has_metadata=raw.metadata is not None
        )
        self.first_params: dict[int, Params] = {}
        find = {"MGBS": registry.by_old_id, "MGBC": registry.by_persist_id}
        self.find = find.get(raw.container, registry.by_v2_id)

    def build(self, *, reserve: bool, flags_only: bool) -> Graph:
        self.reserve, self.flags_only = reserve, flags_only
        raw = self.raw
        graph = Graph()
        graph.path = self.path
        if raw.metadata is not None:
            m = raw.metadata
            graph.metadata = Metadata(
                m.is_valid, m.graph_modified, m.user_info, m.optimize_options, m.unknown
            )
        graph.unknown = raw.unknown
        values: list[Value] = []
        for item in raw.operators:
            self._node(graph, item, values)
        self._outputs(graph, values)
        return graph

    def _fail(self, message: str, item: RawOperator | None, where: str = "") -> _Unfit:
        place = f"graph {self.index}" + ("" if item is None else f", oprs[{item.index}]") + where
        offset = self.raw.meta_start if item is None else item.offset
        return _Unfit(FormatError(message, path=self.path, offset=offset, where=place))

    def _node(self, graph: Graph, item: RawOperator, values: list[Value]) -> None:
        op = self.find(item.type_id) or _unknown_operator(item, self.raw.container)
        least, most = op.arity
        given = len(item.inputs)
        if given < least or (most is not None and given > most):
            wanted = (
                str(least) if least == most else f"{least} to {most if most is not None else 'any'}"
            )
            message = f"{op.name} takes {wanted} inputs, got {given}"
            raise self._fail(message, item).error
        if op.tensors is not None and len(item.tensors) != op.tensors and "unknown" not in op.tags:
            message = f"{op.name} stores {op.tensors} tensors, got {len(item.tensors)}"
            raise self._fail(message, item).error
        known = len(values)
        for k, number in enumerate(item.inputs):
            if number >= known:
                message = f"input id {number} is not defined yet: {known} ids are"
                raise self._fail(message, item, f".inputs[{k}]")
        names = self._names(op, item, known)
        node = graph.add(
            op,
            [values[i] for i in item.inputs],
            outputs=names,
            params=_params(op, item) if item.param_refs or op.params else (),
            name=item.name,
            output_dtype=item.output_dtype,
            comp_nodes=item.comp_nodes,
            priority=item.priority,
            tensors=tuple([self._tensor(t) for t in item.tensors]) if item.tensors else (),
            blobs=Lazy(lambda: item.decode_blobs(item.blob_refs)) if item.blob_refs else (),
            origin=Origin(self.path, self.index, item.index, item.offset),
            unknown=item.unknown,
            stored_id=(item.type_name, item.version, item.type_id),
        )
        values.extend(node.outputs)

    def _tensor(self, raw: RawTensor) -> Tensor:
        return Tensor(
            shape=raw.shape,
            dtype=raw.dtype,
            raw=raw.data,
            name=raw.name,
            comp_node=raw.comp_node,
            format=raw.format,
            offset=raw.offset,
            row_packed=self.row_packed,
            unknown=raw.unknown,
        )

    def _names(self, op: OpSpec, item: RawOperator, known: int) -> list[str | None]:
        """Names of the operator's outputs; their number is the number of its output ids."""
        if item.outputs is not None:
            for k, number in enumerate(item.outputs):
                if number != known + k:
                    message = f"output id {number} where {known + k} comes next"
                    raise self._fail(message, item, f".outputs[{k}]").error
            variables = self.raw.variables or ()
            end = known + len(item.outputs)
            return [variables[i].name if i < len(variables) else None for i in range(known, end)]
        count = op.output_count
        if not isinstance(count, int):
            count = self._count(op, item)
        names = item.output_names
        if names is None:
            return [None] * count
        if len(names) != count:
            if "unknown" in op.tags:
                return list(names)
            message = f"{len(names)} output names for {count} outputs of {op.name}"
            raise self._fail(message, item, ".output_name")
        return list(names)

    def _count(self, op: OpSpec, item: RawOperator) -> int:
        rule = op.output_count
        assert not isinstance(rule, int)
        if op.name in ("BatchNorm", "CheckNonFinite") or "unknown" in op.tags:
            self.is_ambiguous = True
        if op.name == "CheckNonFinite" and item.output_names is None and self.flags_only:
            return 1

        count = rule(
            OutputQuery(
                inputs=len(item.inputs),
                tensors=len(item.tensors),
                param=lambda: self._first_param(op, item),
                blobs=lambda: item.decode_blobs(item.blob_refs),
                names=None if item.output_names is None else len(item.output_names),
                version=self.raw.version if self.raw.container == "MGBS" else 0,
                added_reserve=self.reserve,
            )
        )
        # No operator has many more outputs than inputs, tensors or names: a bare number in a
        # parameter table must not make work.
        most = max(len(item.inputs), len(item.tensors), len(item.output_names or ())) + 8
        if count > most:
            raise self._fail(f"{op.name} claims {count} outputs: at most {most} fit", item).error
        return count

    def _first_param(self, op: OpSpec, item: RawOperator) -> Params:
        """The first parameter record, which may decide how many outputs there are."""
        found = self.first_params.get(item.index)
        if found is None:
            decoded = item.decode_params(item.param_refs[:1])
            if not decoded and op.params:
                decoded = (op.params[0](),)
            if not decoded or not isinstance(decoded[0], Params):
                raise self._fail(f"{op.name} has parameters of an unknown kind", item).error
            # CheckNonFinite had the table Empty once, and its count depends on that.
            if not isinstance(decoded[0], (op.params[0], P.Empty)):
                message = f"{op.name} needs parameters {op.params[0].TABLE}, got {decoded[0].TABLE}"
                raise self._fail(message, item).error
            found = self.first_params[item.index] = decoded[0]
        return found

    def _outputs(self, graph: Graph, values: list[Value]) -> None:
        by_original: dict[int, Value] = {}
        outputs = []
        for k, (number, original) in enumerate(self.raw.outputs):
            if number >= len(values):
                message = f"output id {number} does not exist: {len(values)} ids do"
                raise self._fail(message, None, f", output_vars_idx[{k}]")
            by_original.setdefault(original, values[number])
            outputs.append(Output(values[number], values[number].name, original))
        if self.raw.aliases:
            outputs = []
            for k, (original, name) in enumerate(self.raw.aliases):
                value = by_original.get(original)
                if value is None:
                    message = f"alias {name!r} names id {original}, which is no output"
                    raise self._fail(message, None, f", output_alias[{k}]").error
                outputs.append(Output(value, name or value.name, original))
        graph.set_outputs(outputs)


def _params(op: OpSpec, item: RawOperator) -> Lazy:
    """Decode an operator's parameter tables when touched, checked against its record."""

    def decode() -> tuple[Any, ...]:
        try:
            found = item.decode_params(item.param_refs)
        except MgeError as error:
            raise error.located(where=f"oprs[{item.index}]", offset=item.offset) from None
        if op.params == (P.CheckNonFinite,) and found and isinstance(found[0], P.Empty):
            # v1.7.0 and dumps with compat_older_version store the table Empty: no scale.
            found = (P.CheckNonFinite(), *found[1:])
        return found

    def check(found: tuple[Any, ...]) -> tuple[Any, ...]:
        try:
            _check_params(op, item, found)
        except MgeError as error:
            raise error.located(where=f"oprs[{item.index}]", offset=item.offset) from None
        missing = op.params[len(found) :]
        return (*found, *(cls() for cls in missing))

    return Lazy(decode, check)


def _check_params(op: OpSpec, item: RawOperator, found: tuple[Params | Opaque, ...]) -> None:
    if "unknown" in op.tags:
        return
    # MegEngine wants the first table even where it says nothing; later ones came with releases.
    if not found and op.params and op.params[0] is not P.Empty:
        raise FormatError(f"{op.name} needs parameters {op.params[0].TABLE}, got none")
    for k, record in enumerate(found):
        wanted = op.params[k] if k < len(op.params) else None
        if isinstance(record, Opaque):
            raise UnsupportedError(
                f"{op.name} has parameters of unknown kind {item.param_refs[k][0]}",
                path=record.buffer.path,
                hint="a newer MegEngine wrote the file",
            )
        if wanted is not None and type(record) is not wanted:
            raise FormatError(f"{op.name} needs parameters {wanted.TABLE}, got {record.TABLE}")


def _unknown_operator(item: RawOperator, container: str) -> OpSpec:
    """A record for an unknown operator: carried, shown, written back, not run.

    It has the id of the container it was met in only, so that it is not taken to another one.
    """
    name = printable(item.type_name) if item.type_name else f"unknown({item.type_id:#018x})"

    def count(query: OutputQuery) -> int:
        return query.names if query.names else 1

    known = (Name(name, FIRST_RELEASE, item.type_id),) if container == "MGBC" else ()
    stored = (V2Id(item.type_name or "", item.version, item.type_id),)
    return OpSpec(
        name=name,
        names=known,
        old_id=item.type_id if container == "MGBS" else 0,
        v2=stored if container == "mgv2" else (),
        inputs=("x",),
        min_inputs=0,
        max_inputs=None,
        output_count=count,
        tensors=None,
        blobs=None,
        gaps=(Gap("*", "the operator is not known; a newer or custom MegEngine wrote the file"),),
        tags=frozenset({"unknown"}),
        is_pure=False,
    )
