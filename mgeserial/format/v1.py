"""Container v1 (magic MGBS or MGBC): tensor values, then a flatbuffer of type Graph.

    MGBS, 16 bytes: magic, u32 0, u64 offset        MGBC, 24 bytes: magic, u64 0, u32 0, u64 offset

The flatbuffer's size prefix stands `offset` bytes after the header. Values stand between, without
padding, in the order of the operators. Source: FORMAT section (a).
"""

from __future__ import annotations

import os
import struct

from mgeserial.errors import FormatError, MgeError
from mgeserial.format.fields import TableReader, Tables, in_operator
from mgeserial.format.flatbuf import BaseType, Buffer
from mgeserial.format.raw import RawGraph, RawOperator, RawTensor
from mgeserial.format.versions import is_row_packed, layout_release

__all__ = ["HEADERS", "read_graph"]

# Bytes of the header by magic; the last 8 are the offset.
HEADERS = {b"MGBS": 16, b"MGBC": 24}
_SPACE = "mgb.serialization.fbs."
_U32_U32 = struct.Struct("<II")


def read_graph(data: memoryview, start: int, path: str | os.PathLike[str] | None) -> RawGraph:
    """Read the graph whose header stands at `start`.

    Raises:
        FormatError: Anything that does not fit, with its file offset.
    """
    magic = bytes(data[start : start + 4])
    head = HEADERS[magic]
    if start + head > len(data):
        raise FormatError(
            f"the header takes {head} bytes, {len(data) - start} are left: truncated",
            path=path,
            offset=start,
        )
    offset = struct.unpack_from("<Q", data, start + head - 8)[0]
    meta = start + head + offset
    if meta + 12 > len(data):
        raise FormatError(
            f"the graph should stand at 0x{meta:x}, beyond the end of the file at 0x{len(data):x}: "
            "truncated",
            path=path,
            offset=start + head - 8,
        )
    size = struct.unpack_from("<I", data, meta)[0]
    end = meta + 4 + size
    if size < 8 or end > len(data):
        raise FormatError(
            f"the graph takes {size} bytes, {len(data) - meta - 4} are left: truncated",
            path=path,
            offset=meta,
        )
    if bytes(data[meta + 8 : meta + 12]) != b"mgb1":
        raise FormatError(
            f'expected the identifier "mgb1", got {bytes(data[meta + 8 : meta + 12])!r}',
            path=path,
            offset=meta + 8,
        )
    buf = Buffer(data[meta:end], path=path, base=meta)
    reader = _Reader(buf, data[start + head : meta], start + head, magic.decode())
    return reader.graph(start, end)


class _Reader(TableReader):
    def __init__(self, buf: Buffer, values: memoryview, base: int, container: str) -> None:
        super().__init__(buf, Tables.load("graph_v1", _SPACE, "Graph"))
        self.values = values
        self.base = base
        self.container = container
        self.used = 0
        self.row_packed = True

    def graph(self, start: int, end: int) -> RawGraph:
        buf, root = self.buf, self.buf.follow(4)
        at = buf.layout(root, self.tables.root)
        version = self.u32(root, at[0])
        graph_hash = self.u64(root, at[1])
        if graph_hash == 0:
            raise buf.error("the graph's hash is 0", root, "Graph.hash")
        metadata = self.metadata(buf.follow(root + at[5]), (0, 1, 2, 3)) if at[5] else None
        self.release = layout_release(self.container, version, has_metadata=metadata is not None)
        self.row_packed = is_row_packed(self.container, version, has_metadata=metadata is not None)
        places = buf.offsets(root + at[3]) if at[3] else []
        operators: list[RawOperator] = []
        try:
            for index, pos in enumerate(places):
                operators.append(self.operator(index, pos))
        except MgeError as error:
            raise in_operator(error, len(operators)) from None
        if self.used != len(self.values):
            left = len(self.values) - self.used
            raise buf.error(
                f"{left} bytes of tensor values belong to no operator", root, "Graph.oprs"
            )
        return RawGraph(
            container=self.container,
            start=start,
            end=end,
            meta_start=buf.base,
            meta_size=buf.size,
            version=version,
            model_version=1,
            hash=graph_hash,
            shared_tensors=self.u32(root, at[2]),
            operators=operators,
            outputs=self.output_ids(root, at[4]),
            aliases=(),
            variables=None,
            metadata=metadata,
            release=self.release,
            unknown=self.unknown_root(root),
        )

    def output_ids(self, root: int, offset: int) -> tuple[tuple[int, int], ...]:
        if not offset:
            return ()
        first, count = self.buf.vector(root + offset, 8)
        return tuple(_U32_U32.iter_unpack(self.buf.data[first : first + 8 * count]))

    def operator(self, index: int, pos: int) -> RawOperator:
        buf = self.buf
        table = self.tables.operator
        at = buf.layout(pos, table)
        tensors: tuple[RawTensor, ...] = ()
        if at[7]:
            tensors = tuple([self.tensor(i, p) for i, p in enumerate(buf.offsets(pos + at[7]))])
        refs: tuple[tuple[int, int], ...] = ()
        if at[1] or at[11]:
            refs = self.param_refs(pos, (at[1], at[2]), (at[10], at[11]))
        nodes: tuple[str | None, ...] = ()
        if at[4]:
            nodes = tuple([self.comp_node(p) for p in buf.offsets(pos + at[4])])
        return RawOperator(
            index,
            buf.base + pos,
            self.u64(pos, at[0]),
            None,
            0,
            buf.text(pos + at[12]) if at[12] else None,
            buf.u32s(pos + at[3]) if at[3] else (),
            None,
            buf.texts(pos + at[5]) if at[5] else None,
            nodes,
            self.dtype(pos, at[6]) if at[6] else None,
            tensors,
            int(buf.scalar(pos + at[8], BaseType.INT)) if at[8] else 0,
            refs,
            tuple(buf.offsets(pos + at[9])) if at[9] else (),
            self.decode_params,
            self.decode_blobs,
            self.unknown(pos, table),
        )

    def tensor(self, index: int, pos: int) -> RawTensor:
        buf = self.buf
        at = buf.layout(pos, self.tables.tensor)
        name, shape, node, dtype = self.tensor_head(pos, at)
        unknown = self.unknown(pos, self.tables.tensor)
        size, skip = self.u32(pos, at[4]), self.u32(pos, at[5])
        place = self.base + self.used
        if not size:
            empty = bool(shape) and 0 in shape
            return RawTensor(
                name, shape, dtype, node, memoryview(b"") if empty else None, place, None, unknown
            )
        end = self.used + size
        if end > len(self.values):
            message = (
                f"tensor {index} of {size} bytes ends beyond the {len(self.values)} bytes of values"
            )
            raise buf.error(message, pos, "Tensor.data_size")
        need = dtype.nbytes(shape, row_packed=self.row_packed) if shape else 0
        if skip > size or size - skip != need:
            message = (
                f"a {dtype.name} tensor of shape {shape} needs {need} bytes, got {size - skip}"
            )
            raise buf.error(message, pos, "Tensor.data_size")
        data = self.values[self.used + skip : end]
        self.used = end
        return RawTensor(name, shape, dtype, node, data, place + skip, None, unknown)
