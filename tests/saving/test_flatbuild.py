"""The builder of flatbuffers gives what the public library gives."""

from __future__ import annotations

import random

import flatbuffers
import pytest
from flatbuffers import number_types as N

from mgeserial.format.flatbuf import Buffer, TableDef
from mgeserial.format.flatbuild import Builder

FLAGS = {
    "b": N.Int8Flags, "B": N.Uint8Flags, "?": N.BoolFlags, "h": N.Int16Flags, "H": N.Uint16Flags,
    "i": N.Int32Flags, "I": N.Uint32Flags, "f": N.Float32Flags, "q": N.Int64Flags,
    "Q": N.Uint64Flags, "d": N.Float64Flags,
}  # fmt: skip
VALUES = {"?": True, "f": 1.5, "d": 2.5}


class Pair:
    """The same calls to both builders."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.theirs, self.ours = flatbuffers.Builder(0), Builder()
        self.made: list[tuple[int, int]] = []

    def string(self) -> None:
        text = bytes(self.rng.randrange(4) for _ in range(self.rng.randrange(10)))
        if self.rng.random() < 0.5:
            pair = self.theirs.CreateSharedString(text), self.ours.string(text, shared=True)
        else:
            pair = self.theirs.CreateString(text), self.ours.string(text)
        self.made.append(pair)

    def vector(self) -> None:
        width, count = self.rng.choice([1, 4, 8]), self.rng.randrange(8)
        data = self.rng.randbytes(width * count)
        self.theirs.StartVector(width, count, width)
        for byte in reversed(data):
            self.theirs.Prepend(N.Uint8Flags, byte)
        self.made.append((self.theirs.EndVector(), self.ours.vector(data, count, align=width)))

    def spliced(self) -> None:
        data = self.rng.randbytes(self.rng.randrange(20))
        self.theirs.StartVector(1, len(data), 1)
        for byte in reversed(data):
            self.theirs.Prepend(N.Uint8Flags, byte)
        self.made.append((self.theirs.EndVector(), self.ours.splice(memoryview(data), len(data))))

    def offsets(self) -> None:
        chosen = [self.rng.choice(self.made) for _ in range(self.rng.randrange(6))]
        self.theirs.StartVector(4, len(chosen), 4)
        for theirs, _ in reversed(chosen):
            self.theirs.PrependUOffsetTRelative(theirs)
        self.made.append((self.theirs.EndVector(), self.ours.offsets([o for _, o in chosen])))

    def table(self) -> None:
        fields = []
        self.theirs.StartObject(9)
        for slot in self.rng.sample(range(9), self.rng.randrange(7)):
            code = self.rng.choice([*FLAGS, *(["o"] if self.made else [])])
            if code == "o":
                theirs, ours = self.rng.choice(self.made)
                self.theirs.PrependUOffsetTRelativeSlot(slot, theirs, 0)
                fields.append((slot, code, ours))
                continue
            value = VALUES.get(code, self.rng.randrange(1, 100))
            self.theirs.Prepend(FLAGS[code], value)
            self.theirs.Slot(slot)
            fields.append((slot, code, value))
        self.made.append((self.theirs.EndObject(), self.ours.table(fields)))


@pytest.mark.parametrize("block", range(10))
def test_equal_calls_give_equal_bytes(block):
    for seed in range(40 * block, 40 * block + 40):
        pair = Pair(seed)
        pair.table()
        for _ in range(pair.rng.randrange(40)):
            pair.rng.choice([pair.string, pair.vector, pair.spliced, pair.offsets, pair.table])()
        theirs, ours = pair.made[-1]
        pair.theirs.FinishSizePrefixed(theirs, b"test")
        got = b"".join(bytes(part) for part in pair.ours.finish(ours, b"test"))
        assert got == bytes(pair.theirs.Output()), seed


def test_spliced_bytes_are_not_copied_until_they_are_written():
    class Late:
        nbytes = 5

        def tobytes(self) -> bytes:
            return b"later"

    builder = Builder()
    root = builder.table([(0, "o", builder.splice(Late(), 5))])
    parts = builder.finish(root, b"test")
    assert any(isinstance(part, Late) for part in parts)
    data = b"".join(p.tobytes() if isinstance(p, Late) else p for p in parts)
    buf = Buffer(data)
    table = TableDef("t", (), False, 0, 1, 1, (4,), {})
    pos = buf.follow(4)
    assert buf.u8s(pos + buf.layout(pos, table)[0]) == b"later"


def test_bytes_from_an_object_to_the_end_are_those_of_the_buffer():
    builder = Builder()
    builder.string(b"before")
    middle = builder.numbers([1, 2, 3])
    tail = builder.tail(middle)
    parts = builder.finish(builder.table([(0, "o", middle)]), b"test")
    assert b"".join(bytes(p) for p in parts).endswith(tail)
    assert tail[:4] == b"\3\0\0\0"
