"""Writing container v2: one size-prefixed flatbuffer whose tensor values are spliced in.

Source: FORMAT section (b); the order of objects from files that MegEngine 1.13.0 wrote.
"""

from __future__ import annotations

from mgeserial.format.flatbuild import Field, Part
from mgeserial.format.outgoing import OutGraph, OutOperator, OutTensor, OutVar
from mgeserial.format.table_writer import TableWriter, given

__all__ = ["MODEL_VERSION", "assemble"]

MODEL_VERSION = 2


def assemble(graph: OutGraph) -> list[Part]:
    """Lay a graph out; return the parts of the file in order."""
    return _Writer(graph).parts()


class _Writer(TableWriter):
    def __init__(self, graph: OutGraph) -> None:
        super().__init__(graph.target)
        self.graph = graph
        self.middle: list[int] = []

    def parts(self) -> list[Part]:
        graph, builder = self.graph, self.builder
        meta = None
        if graph.metadata is not None:
            meta = self.metadata(graph.metadata, (0, 1, 3, 2))
        operators = builder.offsets([self.operator(o) for o in graph.operators])
        outputs = builder.offsets([self.output(*pair) for pair in graph.outputs])
        aliases = builder.offsets([self.alias(*pair) for pair in graph.aliases])
        middle = builder.offsets(self.middle) if graph.variables is not None else 0
        fields: list[Field] = [(0, "I", graph.target.version), (1, "I", MODEL_VERSION)]
        fields += given((2, operators), (3, middle), (4, outputs), (5, aliases))
        if graph.shared_tensors:
            fields.append((6, "I", graph.shared_tensors))
        if meta is not None:
            fields.append((7, "o", meta))
        return self.close(builder.table(fields, self.tail(graph.unknown)), b"mgv2")

    def output(self, number: int, original: int) -> int:
        fields: list[Field] = []
        if original:
            fields.append((1, "I", original))
        if number:
            fields.append((0, "I", number))
        return self.builder.table(fields)

    def alias(self, original: int, name: bytes) -> int:
        text = self.builder.string(name)
        fields: list[Field] = [(1, "o", text)]
        if original:
            fields.append((0, "I", original))
        return self.builder.table(fields)

    def operator(self, item: OutOperator) -> int:
        builder = self.builder
        inputs = builder.numbers(item.inputs) if item.inputs else 0
        tables = self.tables(item)
        blobs = [self.blob(b) for b in item.blobs]
        tensors = [self.tensor(t) for t in item.tensors]
        nodes = self.comp_nodes(item.comp_nodes) if item.comp_nodes else 0
        dtype = self.dtype(item.output_dtype) if item.output_dtype is not None else 0
        name = builder.string(item.name, shared=True) if item.name is not None else 0
        if self.graph.variables is not None:
            self.middle += [self.variable(self.graph.variables[i]) for i in item.outputs]
        outputs = builder.numbers(item.outputs) if item.outputs else 0
        types, more = self.unions(item, tables) if len(tables) > 1 else (0, 0)
        tensor_list = builder.offsets(tensors) if tensors else 0
        blob_list = builder.offsets(blobs) if blobs else 0
        kind = builder.string(item.type_name, shared=True)
        fields: list[Field] = [(0, "o", kind), (1, "Q", item.type_id)]
        fields += given((7, inputs), (8, outputs))
        if item.priority:
            fields.append((13, "i", item.priority))
        fields += given((9, nodes))
        if item.version:
            fields.append((12, "I", item.version))
        fields += given((2, name), (10, dtype))
        if tables:
            fields += [(3, "B", item.params[0].number), (4, "o", tables[0])]
        fields += given((5, types), (6, more), (11, tensor_list), (14, blob_list))
        return builder.table(fields, self.tail(item.unknown))

    def tensor(self, item: OutTensor) -> int:
        builder = self.builder
        data = None
        if item.value is not None:
            data = builder.splice(item.value, item.nbytes)
        name = builder.string(item.name, shared=True) if item.name is not None else 0
        shape = builder.numbers(item.shape)
        node = self.comp_node(item.comp_node) if item.comp_node is not None else 0
        dtype = self.dtype(item.dtype)
        kind, layout = self.layout(item.format)
        fields: list[Field] = []
        if data is not None:
            fields.append((6, "o", data))
        fields += given((5, layout), (3, dtype), (2, node), (1, shape), (0, name))
        fields.append((4, "B", kind))
        return builder.table(fields, self.tail(item.unknown))

    def layout(self, stored: tuple[int, bytes] | None) -> tuple[int, int]:
        """Number and table of a tensor format: one byte a field."""
        kind, payload = (1, b"") if stored is None else stored
        fields: list[Field] = [(slot, "B", v) for slot, v in enumerate(payload) if v]
        return kind, self.builder.table(fields[::-1])

    def variable(self, item: OutVar) -> int:
        builder = self.builder
        name = builder.string(item.name, shared=True) if item.name is not None else 0
        shape = builder.numbers(item.shape) if item.shape is not None else 0
        return builder.table(given((1, shape), (0, name)))
