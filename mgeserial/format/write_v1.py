"""Writing container v1 (MGBC or MGBS): tensor values, then a size-prefixed flatbuffer.

Source: FORMAT section (a); the order of objects from files that MegEngine 1.13.0 wrote.
"""

from __future__ import annotations

import struct

from mgeserial.format.flatbuild import Field, Part
from mgeserial.format.outgoing import OutGraph, OutOperator, OutTensor
from mgeserial.format.table_writer import TableWriter, given
from mgeserial.format.xxh64 import graph_hash

__all__ = ["assemble"]


def assemble(graph: OutGraph) -> list[Part]:
    """Lay a graph out; return the parts of the file in order."""
    values: list[Part] = []
    size = 0
    for operator in graph.operators:
        for tensor in operator.tensors:
            if tensor.nbytes and tensor.value is not None:
                values.append(tensor.value)
                size += tensor.nbytes
    if graph.target.container == "MGBC":
        head = b"MGBC" + struct.pack("<QIQ", 0, 0, size)
    else:
        head = b"MGBS" + struct.pack("<IQ", 0, size)
    return [head, *values, *_Writer(graph).parts()]


class _Writer(TableWriter):
    def __init__(self, graph: OutGraph) -> None:
        super().__init__(graph.target)
        self.graph = graph

    def parts(self) -> list[Part]:
        graph, builder = self.graph, self.builder
        meta = None
        if graph.metadata is not None:
            meta = self.metadata(graph.metadata, (0, 1, 2, 3))
        operators = builder.offsets([self.operator(o) for o in graph.operators])
        pairs = b"".join([struct.pack("<II", *pair) for pair in graph.outputs])
        outputs = builder.vector(pairs, len(graph.outputs))
        fields: list[Field] = [(0, "I", graph.target.version)]
        fields.append((1, "Q", graph_hash(builder.tail(outputs))))
        fields += given((3, operators), (4, outputs))
        if graph.shared_tensors:
            fields.append((2, "I", graph.shared_tensors))
        if meta is not None:
            fields.append((5, "o", meta))
        return self.close(builder.table(fields, self.tail(graph.unknown)), b"mgb1")

    def operator(self, item: OutOperator) -> int:
        builder = self.builder
        nodes = self.comp_nodes(item.comp_nodes) if item.comp_nodes else 0
        inputs = builder.numbers(item.inputs) if item.inputs else 0
        name = builder.string(item.name, shared=True) if item.name is not None else 0
        names = 0
        if item.names is not None:
            names = builder.offsets([builder.string(n) for n in item.names])
        dtype = self.dtype(item.output_dtype) if item.output_dtype is not None else 0
        tables = self.tables(item)
        blobs, tensors = self.stored(item)
        tensor_list = builder.offsets(tensors) if tensors else 0
        blob_list = builder.offsets(blobs) if blobs else 0
        types, more = self.unions(item, tables) if len(tables) > 1 else (0, 0)
        fields: list[Field] = [(0, "Q", item.type_id), *given((3, inputs))]
        if item.priority:
            fields.append((8, "i", item.priority))
        fields += given((4, nodes), (5, names), (12, name), (6, dtype))
        if tables:
            fields += [(1, "B", item.params[0].number), (2, "o", tables[0])]
        fields += given((10, types), (11, more), (7, tensor_list), (9, blob_list))
        return builder.table(fields, self.tail(item.unknown))

    def stored(self, item: OutOperator) -> tuple[list[int], list[int]]:
        """Blobs and tensors; the format blob of each tensor comes right after it."""
        ahead = max(len(item.blobs) - len(item.tensors), 0)
        if item.tensors and ahead != 1:
            ahead = len(item.blobs)
        blobs = [self.blob(b) for b in item.blobs[:ahead]]
        tensors = []
        for k, tensor in enumerate(item.tensors):
            tensors.append(self.tensor(tensor))
            blobs += [self.blob(b) for b in item.blobs[ahead + k : ahead + k + 1]]
        return blobs, tensors

    def tensor(self, item: OutTensor) -> int:
        builder = self.builder
        name = builder.string(item.name, shared=True) if item.name is not None else 0
        shape = builder.numbers(item.shape)
        node = self.comp_node(item.comp_node) if item.comp_node is not None else 0
        dtype = self.dtype(item.dtype)
        fields: list[Field] = []
        if item.nbytes:
            fields.append((4, "I", item.nbytes))
        fields += given((3, dtype), (2, node), (1, shape), (0, name))
        return builder.table(fields, self.tail(item.unknown))
