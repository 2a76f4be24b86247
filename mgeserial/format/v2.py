"""Container v2: one size-prefixed flatbuffer of type Model that holds the values too.

Source: FORMAT section (b).
"""

from __future__ import annotations

import os
import struct

from mgeserial.errors import FormatError, MgeError
from mgeserial.format.fields import TableReader, Tables, in_operator
from mgeserial.format.flatbuf import BaseType, Buffer, TableDef
from mgeserial.format.raw import RawGraph, RawOperator, RawTensor, RawVar
from mgeserial.format.versions import layout_release

__all__ = ["IDENTIFIER", "read_graph"]

IDENTIFIER = b"mgv2"
_SPACE = "mgb.serialization.fbs.v2."


def read_graph(data: memoryview, start: int, path: str | os.PathLike[str] | None) -> RawGraph:
    """Read the graph whose size prefix stands at `start`.

    Raises:
        FormatError: Anything that does not fit, with its file offset.
    """
    size = struct.unpack_from("<I", data, start)[0]
    end = start + 4 + size
    if size < 8 or end > len(data):
        raise FormatError(
            f"the model takes {size} bytes, {len(data) - start - 4} are left: truncated",
            path=path,
            offset=start,
        )
    return _Reader(Buffer(data[start:end], path=path, base=start)).graph(start, end)


class _Reader(TableReader):
    def __init__(self, buf: Buffer) -> None:
        super().__init__(buf, Tables.load("graph_v2", _SPACE, "Model"))
        schema = self.tables.schema
        self.middle = schema.table(_SPACE + "MiddleTensor")
        self.output_var = schema.table(_SPACE + "OutputVar")
        self.output_alias = schema.table(_SPACE + "OutputAlias")
        union = schema.enum(_SPACE + "TensorFormat")
        self.formats: dict[int, TableDef] = {n: schema.at(i) for n, i in union.objects.items()}

    def graph(self, start: int, end: int) -> RawGraph:
        buf, root = self.buf, self.buf.follow(4)
        at = buf.layout(root, self.tables.root)
        version = self.u32(root, at[0])
        metadata = self.metadata(buf.follow(root + at[7]), (0, 1, 3, 2)) if at[7] else None
        self.release = layout_release("mgv2", version, has_metadata=metadata is not None)
        operators: list[RawOperator] = []
        try:
            for index, pos in enumerate(buf.offsets(root + at[2]) if at[2] else []):
                operators.append(self.operator(index, pos))
        except MgeError as error:
            raise in_operator(error, len(operators)) from None
        variables = None
        if at[3]:
            variables = tuple([self.variable(p) for p in buf.offsets(root + at[3])])
        return RawGraph(
            container="mgv2",
            start=start,
            end=end,
            meta_start=start,
            meta_size=buf.size,
            version=version,
            model_version=self.u32(root, at[1]),
            hash=0,
            shared_tensors=self.u32(root, at[6]),
            operators=operators,
            outputs=self.output_ids(root, at[4]),
            aliases=self.aliases(root, at[5]),
            variables=variables,
            metadata=metadata,
            release=self.release,
            unknown=self.unknown_root(root),
        )

    def output_ids(self, root: int, offset: int) -> tuple[tuple[int, int], ...]:
        found = []
        for pos in self.buf.offsets(root + offset) if offset else []:
            at = self.buf.layout(pos, self.output_var)
            found.append((self.u32(pos, at[0]), self.u32(pos, at[1])))
        return tuple(found)

    def aliases(self, root: int, offset: int) -> tuple[tuple[int, str | None], ...]:
        found = []
        for pos in self.buf.offsets(root + offset) if offset else []:
            at = self.buf.layout(pos, self.output_alias)
            name = self.buf.text(pos + at[1]) if at[1] else None
            found.append((self.u32(pos, at[0]), name))
        return tuple(found)

    def variable(self, pos: int) -> RawVar:
        buf = self.buf
        at = buf.layout(pos, self.middle)
        return RawVar(
            buf.text(pos + at[0]) if at[0] else None,
            buf.u32s(pos + at[1]) if at[1] else None,
            self.comp_node(buf.follow(pos + at[2])) if at[2] else None,
            self.dtype(pos, at[3]) if at[3] else None,
            self.format(pos, at[4], at[5]),
        )

    def operator(self, index: int, pos: int) -> RawOperator:
        buf = self.buf
        table = self.tables.operator
        at = buf.layout(pos, table)
        tensors: tuple[RawTensor, ...] = ()
        if at[11]:
            tensors = tuple([self.tensor(p) for p in buf.offsets(pos + at[11])])
        refs: tuple[tuple[int, int], ...] = ()
        if at[3] or at[6]:
            refs = self.param_refs(pos, (at[3], at[4]), (at[5], at[6]))
        nodes: tuple[str | None, ...] = ()
        if at[9]:
            nodes = tuple([self.comp_node(p) for p in buf.offsets(pos + at[9])])
        return RawOperator(
            index,
            buf.base + pos,
            self.u64(pos, at[1]),
            buf.text(pos + at[0]) if at[0] else None,
            # MegEngine looks the version up truncated to 8 bits.
            self.u32(pos, at[12]) & 0xFF,
            buf.text(pos + at[2]) if at[2] else None,
            buf.u32s(pos + at[7]) if at[7] else (),
            buf.u32s(pos + at[8]) if at[8] else (),
            None,
            nodes,
            self.dtype(pos, at[10]) if at[10] else None,
            tensors,
            int(buf.scalar(pos + at[13], BaseType.INT)) if at[13] else 0,
            refs,
            tuple(buf.offsets(pos + at[14])) if at[14] else (),
            self.decode_params,
            self.decode_blobs,
            self.unknown(pos, table),
        )

    def tensor(self, pos: int) -> RawTensor:
        buf = self.buf
        at = buf.layout(pos, self.tables.tensor)
        name, shape, node, dtype = self.tensor_head(pos, at)
        unknown = self.unknown(pos, self.tables.tensor)
        layout = self.format(pos, at[4], at[5])
        if not at[6]:
            return RawTensor(name, shape, dtype, node, None, buf.base + pos, layout, unknown)
        first, count = buf.bulk(pos + at[6], 1)
        need = dtype.nbytes(shape) if shape else 0
        if count != need:
            message = f"a {dtype.name} tensor of shape {shape} needs {need} bytes, got {count}"
            raise buf.error(message, first - 4, "Tensor.data")
        data = memoryview(buf.data)[first : first + count]
        return RawTensor(name, shape, dtype, node, data, buf.base + first, layout, unknown)

    def format(self, pos: int, kind_at: int, value_at: int) -> tuple[int, bytes] | None:
        """(number, one byte per field) of a tensor format; None for absent or the default one."""
        number = int(self.buf.scalar(pos + kind_at, BaseType.UBYTE)) if kind_at else 0
        if number in (0, 1):
            return None
        table = self.formats.get(number)
        if table is None or not value_at:
            raise self.buf.error(f"tensor format {number} is not known", pos, "Tensor.format")
        inner = self.buf.follow(pos + value_at)
        at = self.buf.layout(inner, table)
        return number, bytes(
            int(self.buf.scalar(inner + o, BaseType.UBYTE)) if o else 0 for o in at
        )
