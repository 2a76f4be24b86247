"""Writing of the tables that v1 and v2 share but for their slots; the mirror of `fields`.

Objects are created in the order in which MegEngine creates them, as its files show, so that a graph
it wrote comes out byte for byte the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from mgeserial.dtypes import DType
from mgeserial.errors import UnsupportedError
from mgeserial.format.flatbuf import MAX_TABLES
from mgeserial.format.flatbuild import Builder, Field, Part, Tail
from mgeserial.format.opaque import Carrier
from mgeserial.format.outgoing import OutMetadata, OutOperator
from mgeserial.format.params_encode import ParamsEncoder, write_dtype
from mgeserial.format.raw import Opaque
from mgeserial.format.target import Target

__all__ = ["TableWriter", "given"]


def given(*places: tuple[int, int]) -> list[Field]:
    """Fields (slot, offset) of the objects that exist: an offset of 0 is none."""
    return [(slot, "o", offset) for slot, offset in places if offset]


class TableWriter:
    """Writes the tables of one graph's flatbuffer."""

    def __init__(self, target: Target) -> None:
        self.builder = Builder()
        self.carrier = Carrier(self.builder)
        self.params = ParamsEncoder(target)

    def close(self, root: int, identifier: bytes) -> list[Part]:
        """Finish the buffer; return its parts in order.

        Raises:
            UnsupportedError: More tables than MegEngine's check of a buffer accepts.
        """
        if self.builder.tables > MAX_TABLES:
            raise UnsupportedError(
                f"a graph has at most {MAX_TABLES} tables, this one takes {self.builder.tables}",
                hint="leave out names and metadata, or split the graph",
            )
        return self.builder.finish(root, identifier)

    def tail(self, unknown: Opaque | None) -> Tail | None:
        """What keeps unknown fields with a table."""
        if unknown is None or unknown.table is None:
            return None
        if not unknown.buffer.unknown_slots(unknown.pos, unknown.table):
            return None
        return self.carrier.tail(unknown)

    def comp_node(self, locator: bytes | None) -> int:
        """A CompNode table; an absent string stays absent."""
        if locator is None:
            return self.builder.table(())
        text = self.builder.string(locator, shared=True)
        return self.builder.table([(0, "o", text)])

    def comp_nodes(self, locators: Sequence[bytes | None]) -> int:
        """The vector of an operator's computing nodes."""
        return self.builder.offsets([self.comp_node(text) for text in locators])

    def dtype(self, dtype: DType) -> int:
        """A DType table."""
        return write_dtype(self.builder, dtype)

    def blob(self, data: bytes) -> int:
        """A Blob table."""
        return self.builder.table([(0, "o", self.builder.splice(data, len(data)))])

    def tables(self, operator: OutOperator) -> list[int]:
        """The parameter tables of an operator, in file order."""
        return [self.params.write(self.builder, self.carrier, p) for p in operator.params]

    def unions(self, operator: OutOperator, tables: Sequence[int]) -> tuple[int, int]:
        """The vectors (types, tables) of an operator's additional parameters."""
        kinds = bytes(p.number for p in operator.params[1:])
        types = self.builder.vector(kinds, len(kinds))
        return types, self.builder.offsets(tables[1:])

    def metadata(self, data: OutMetadata, slots: tuple[int, int, int, int]) -> int:
        """The metadata table; `slots` of is_valid, graph_modified, user_info, optimize_options.

        An empty `user_info` is a string all the same: MegEngine always stores one.
        """
        valid, modified, info, options = slots
        text = self.builder.string(data.user_info)
        fields: list[Field] = []
        if data.is_valid:
            fields.append((valid, "?", True))
        if data.graph_modified:
            fields.append((modified, "?", True))
        places: list[Field] = [(info, "o", text)]
        if data.optimize_options:
            places.append((options, "Q", data.optimize_options))
        # v1 adds the text first, v2 the options.
        fields += places if info < options else places[::-1]
        return self.builder.table(fields, self.tail(data.unknown))
