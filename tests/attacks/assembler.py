"""Bytes of flatbuffers put down one by one, with labels: what no library would write."""

from __future__ import annotations

import struct


class Assembler:
    """Collects bytes; offsets to labels are filled in by `finish`."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.labels: dict[str, int] = {}
        self.uses: list[tuple[int, str]] = []

    def label(self, name: str) -> Assembler:
        """Give the current position a name."""
        assert name not in self.labels
        self.labels[name] = len(self.data)
        return self

    def put(self, kind: str, *values: float) -> Assembler:
        """Append scalars, as `struct` packs them."""
        self.data += struct.pack(f"<{kind}", *values)
        return self

    def raw(self, data: bytes) -> Assembler:
        """Append bytes."""
        self.data += data
        return self

    def align(self, width: int = 4) -> Assembler:
        """Pad with zeros."""
        self.data += bytes(-len(self.data) % width)
        return self

    def to(self, name: str) -> Assembler:
        """Append the offset from here to a label further on."""
        self.uses.append((len(self.data), name))
        return self.put("I", 0)

    def vtable(self, name: str, inline: int, *slots: int) -> Assembler:
        """Append a vtable: bytes of the table, then the offset of each slot."""
        self.align().label(name)
        return self.put("HH", 4 + 2 * len(slots), inline).put(f"{len(slots)}H", *slots)

    def table(self, name: str | None, vtable: str) -> Assembler:
        """Begin a table: its fields are put behind it by the caller."""
        self.align()
        if name is not None:
            self.label(name)
        return self.put("i", len(self.data) - self.labels[vtable])

    def string(self, name: str, text: bytes) -> Assembler:
        """Append a string."""
        return self.align().label(name).put("I", len(text)).raw(text + b"\0")

    def vector(self, name: str, targets: list[str]) -> Assembler:
        """Append a vector of offsets."""
        self.align().label(name).put("I", len(targets))
        for target in targets:
            self.to(target)
        return self

    def finish(self) -> bytes:
        """All bytes, offsets resolved."""
        for at, name in self.uses:
            struct.pack_into("<I", self.data, at, (self.labels[name] - at) & 0xFFFFFFFF)
        return bytes(self.data)


def begin(identifier: bytes = b"mgb1") -> Assembler:
    """A size-prefixed buffer up to its identifier; the root table is labelled `root`."""
    asm = Assembler().put("I", 0).to("root").raw(identifier)
    asm.vtable("v.graph", 28, 4, 8, 0, 16, 20)  # mgb_version, hash, -, oprs, output_vars_idx
    asm.vtable("v.operator", 12, 4)  # type_id
    return asm


def end(asm: Assembler, *, values: bytes = b"") -> bytes:
    """The assembled buffer as an MGBC file."""
    body = bytearray(asm.finish())
    struct.pack_into("<I", body, 0, len(body) - 4)
    return b"MGBC" + bytes(12) + struct.pack("<Q", len(values)) + values + bytes(body)


def end_v2(asm: Assembler) -> bytes:
    """The assembled buffer as a v2 file."""
    body = bytearray(asm.finish())
    struct.pack_into("<I", body, 0, len(body) - 4)
    return bytes(body)


def root(asm: Assembler, *, oprs: str = "oprs", outputs: str = "outputs") -> Assembler:
    """Append the Graph table: version, hash, operators, outputs."""
    asm.table("root", "v.graph").put("I", 101300).put("Q", 5)
    # The table's inline part: 4 vtable, 4 version, 8 hash, 4 oprs, 4 outputs, 4 spare.
    return asm.to(oprs).to(outputs).put("I", 0)
