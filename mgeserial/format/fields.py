"""Reading of the tables that v1 and v2 share but for their slots: tensors, names, params, blobs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from mgeserial._record import Params
from mgeserial.dtypes import FLOAT32, DType
from mgeserial.errors import MgeError
from mgeserial.format.flatbuf import BaseType, Buffer, Schema, TableDef, load_schema
from mgeserial.format.params_codec import decode_dtype, decode_params
from mgeserial.format.raw import Opaque, RawMetadata

__all__ = ["Tables", "TableReader"]


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """The tables of one container, with the slot of each field by name."""

    schema: Schema
    root: TableDef
    operator: TableDef
    tensor: TableDef
    comp_node: TableDef
    blob: TableDef
    metadata: TableDef

    @staticmethod
    @functools.cache
    def load(schema: str, space: str, root: str) -> Tables:
        """Tables of `graph_v1` (space `mgb.serialization.fbs.`) or `graph_v2` (`...fbs.v2.`)."""
        loaded = load_schema(schema)
        names = (root, "Operator", "Tensor", "CompNode", "Blob", "Metadata")
        return Tables(loaded, *(loaded.table(space + n) for n in names))


class TableReader:
    """Reads the shared tables of one graph's flatbuffer."""

    def __init__(self, buf: Buffer, tables: Tables) -> None:
        self.buf = buf
        self.tables = tables
        self.release: str | None = None
        self._nodes: dict[int, str | None] = {}
        self._decode_params = self._make_params()
        self._decode_blobs = self._make_blobs()

    @property
    def decode_params(self) -> Callable[[tuple[tuple[int, int], ...]], tuple[Params | Opaque, ...]]:
        """Function that decodes the tables behind parameter references."""
        return self._decode_params

    @property
    def decode_blobs(self) -> Callable[[tuple[int, ...]], tuple[bytes, ...]]:
        """Function that copies the bytes behind blob references."""
        return self._decode_blobs

    def _make_params(self) -> Callable[[tuple[tuple[int, int], ...]], tuple[Params | Opaque, ...]]:
        def decode(refs: tuple[tuple[int, int], ...]) -> tuple[Params | Opaque, ...]:
            return tuple(
                [decode_params(self.buf, number, pos, self.release) for number, pos in refs]
            )

        return decode

    def _make_blobs(self) -> Callable[[tuple[int, ...]], tuple[bytes, ...]]:
        table = self.tables.blob

        def decode(refs: tuple[int, ...]) -> tuple[bytes, ...]:
            found = []
            for pos in refs:
                at = self.buf.layout(pos, table)
                found.append(self.buf.u8s(pos + at[0]) if at[0] else b"")
            return tuple(found)

        return decode

    def u32(self, pos: int, offset: int) -> int:
        """An unsigned field, 0 when absent."""
        return self.buf.u32(pos + offset) if offset else 0

    def u64(self, pos: int, offset: int) -> int:
        """A 64-bit unsigned field, 0 when absent."""
        return int(self.buf.scalar(pos + offset, BaseType.ULONG)) if offset else 0

    def flag(self, pos: int, offset: int) -> bool:
        """A bool field, False when absent."""
        return bool(self.buf.scalar(pos + offset, BaseType.BOOL)) if offset else False

    def comp_node(self, pos: int) -> str | None:
        """Locator of the CompNode table at `pos`; None when absent. Tables may be shared."""
        if pos not in self._nodes:
            at = self.buf.layout(pos, self.tables.comp_node)
            self._nodes[pos] = self.buf.text(pos + at[0]) if at[0] else None
        return self._nodes[pos]

    def dtype(self, pos: int, offset: int) -> DType | None:
        """A DType field, None when absent."""
        return decode_dtype(self.buf, self.buf.follow(pos + offset)) if offset else None

    def tensor_head(
        self, pos: int, at: tuple[int, ...]
    ) -> tuple[str | None, tuple[int, ...], str | None, DType]:
        """name, shape, comp_node and dtype: slots 0 to 3 of a tensor in both containers."""
        buf = self.buf
        name = buf.text(pos + at[0]) if at[0] else None
        shape = buf.u32s(pos + at[1]) if at[1] else ()
        node = self.comp_node(buf.follow(pos + at[2])) if at[2] else None
        dtype = decode_dtype(buf, buf.follow(pos + at[3])) if at[3] else FLOAT32
        if len(shape) > 7:
            raise buf.error(
                f"a tensor has at most 7 dimensions, got {len(shape)}", pos, "Tensor.shape"
            )
        return name, shape, node, dtype

    def param_refs(
        self, pos: int, first: tuple[int, int], more: tuple[int, int]
    ) -> tuple[tuple[int, int], ...]:
        """(union number, position) of an operator's parameter tables.

        Args:
            pos: The operator's table.
            first: Inline offsets of `param_type` and `param`.
            more: Inline offsets of `additional_params_type` and `additional_params`.
        """
        buf = self.buf
        refs: tuple[tuple[int, int], ...] = ()
        if first[0]:
            number = int(buf.scalar(pos + first[0], BaseType.UBYTE))
            if number:
                if not first[1]:
                    raise buf.error(
                        f"a param of type {number} without its table", pos, "Operator.param"
                    )
                refs = ((number, buf.follow(pos + first[1])),)
        if more[1]:
            places = buf.offsets(pos + more[1])
            numbers = buf.u8s(pos + more[0]) if more[0] else b""
            if len(numbers) != len(places):
                message = f"{len(numbers)} types for {len(places)} additional params"
                raise buf.error(message, pos, "Operator.additional_params")
            refs += tuple(zip(numbers, places, strict=True))
        return refs

    def metadata(self, pos: int, slots: tuple[int, int, int, int]) -> RawMetadata:
        """The metadata table; `slots` of is_valid, graph_modified, user_info, optimize_options."""
        at = self.buf.layout(pos, self.tables.metadata)
        valid, modified, info, options = (at[s] for s in slots)
        unknown = self.unknown(pos, self.tables.metadata)
        return RawMetadata(
            self.flag(pos, valid),
            self.flag(pos, modified),
            self.buf.text_bytes(pos + info) if info else b"",
            self.u64(pos, options),
            unknown,
        )

    def unknown(self, pos: int, table: TableDef) -> Opaque | None:
        """The table at `pos` when it has fields that the schema lacks, else None."""
        return Opaque(self.buf, pos, table) if self.buf.unknown_slots(pos, table) else None

    def unknown_root(self, pos: int) -> Opaque | None:
        """The root table when it, or a table that nothing else notes, has unknown fields."""
        has = self.buf.unknown_slots(pos, self.tables.root) or self.buf.tables_beyond()
        return Opaque(self.buf, pos, self.tables.root) if has else None


def in_operator(error: MgeError, index: int) -> MgeError:
    """Say in which operator an error was met."""
    return error.located(where=f"oprs[{index}]")
