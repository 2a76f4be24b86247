"""Real files, damaged: only errors of ours come out, soon, and without much memory.

MGE_FUZZ_SEED=7 MGE_FUZZ_RUNS=20000 pytest tests/fuzz     # another seed, a longer run
"""

from __future__ import annotations

import contextlib
import os
import random
import time
import tracemalloc

import mge_builder as build
import pytest
from corpus_cases import compact_root, iter_models
from exercise import causes, exercise
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import mutate

import mgeserial
from mgeserial.dtypes import DType, DTypeEnum, pack, unpack
from mgeserial.errors import FormatError, MgeError
from mgeserial.format.flatbuf import Buffer, TableDef

SEED = int(os.environ.get("MGE_FUZZ_SEED", "20240601"))
RUNS = int(os.environ.get("MGE_FUZZ_RUNS", "1500"))
SECONDS = 1.0
FILES = [m.path for _, m in iter_models(compact_root())]
FILES += sorted((compact_root() / "public").glob("*.mge"))
DATA = [path.read_bytes() for path in FILES]
CHUNKS = 10


def check(data: bytes, note: str) -> None:
    start = time.process_time()
    errors = exercise(data)
    assert time.process_time() - start < SECONDS, note
    for error in errors:
        assert isinstance(error, MgeError), note
        assert all(line.isprintable() for line in str(error).split("\n")), note
        # A shape rule that met the end of memory asked for far too much.
        assert not any(isinstance(e, MemoryError) for e in causes(error)), note


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_damaged_files_end_in_errors_of_ours(chunk):
    rng = random.Random(SEED * CHUNKS + chunk)
    for i in range(RUNS // CHUNKS):
        which = rng.randrange(len(DATA))
        state = f"seed {SEED}, chunk {chunk}, run {i}: {FILES[which]}"
        try:
            check(mutate(DATA[which], rng), state)
        except Exception as error:
            error.args = (f"{state}: {error}", *error.args[1:])
            raise


def test_damage_does_not_cost_memory():
    rng = random.Random(SEED)
    exercise(DATA[0])
    tracemalloc.start()
    try:
        for _ in range(60):
            which = rng.randrange(len(DATA))
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            exercise(mutate(DATA[which], rng))
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak < 200e6, f"{FILES[which]}: {peak / 1e6:.0f} MB"
    finally:
        tracemalloc.stop()


def test_two_files_spliced_end_in_errors_of_ours():
    rng = random.Random(SEED)
    for _ in range(200):
        one, two = rng.choice(DATA), rng.choice(DATA)
        check(one[: rng.randrange(len(one))] + two[rng.randrange(len(two)) :], "spliced")
        check(one + two, "one after another")


@given(st.binary(max_size=400))
def test_any_bytes_end_in_an_error(data):
    with pytest.raises(MgeError):
        mgeserial.load(data)


@given(
    st.sampled_from([b"MGBS", b"MGBC", b"mgbtest0", b"packed_model", b"\x40\0\0\0\x10\0\0\0mgv2"]),
    st.binary(max_size=300),
)
def test_any_bytes_behind_a_known_beginning_end_in_errors_of_ours(head, data):
    exercise(head + data)
    exercise(head + bytes(12) + data)


SMALL_OR_HUGE = st.integers(0, 4) | st.integers(0, 2**32 - 1)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["Elemwise", "Concat", "Reshape", "Reduce", "Subtensor", "Convolution", "MatrixMul",
                 "Dimshuffle", "AxisAddRemove", "Broadcast", "Split", "Pooling", "BatchNorm"]
            ),
            st.lists(st.integers(0, 12), min_size=1, max_size=5),
            st.dictionaries(st.integers(0, 8), SMALL_OR_HUGE, max_size=4),
        ),
        max_size=6,
    ),
    st.lists(SMALL_OR_HUGE, max_size=7),
    st.sampled_from(list(DTypeEnum)),
)  # fmt: skip
def test_any_graph_of_known_operators_ends_in_errors_of_ours(ops, shape, kind):
    """Well-formed bytes, nonsense in them: what the checks of single operators must catch."""
    from mgeserial.ops import registry

    numbers = (1 << 31).to_bytes(4, "little") + bytes(4)
    head = build.input_op("x", shape, int(kind))
    if kind.name.startswith("Quantized"):
        head["tensors"][0]["dtype"] = build.dtype(int(kind), 0.5)
    graph = [head, build.constant_op(numbers, (2,), 4), build.constant_op(b"\0\0\x80?", (1,))]
    for name, inputs, slots in ops:
        op = {"op": name, "inputs": [i % 3 for i in inputs]}
        tables = [p.UNION_ID for p in registry.by_name(name).params]
        op["params"] = [(t, build.Slots({s: ("I", v) for s, v in slots.items()})) for t in tables]
        graph.append(op)
    exercise(build.v1(graph, [0, 1, len(graph) - 1]))


KINDS = st.sampled_from([k for k in DTypeEnum if not k.name.startswith("Quantized")])


@given(st.data(), KINDS, st.lists(st.integers(0, 5), min_size=1, max_size=4), st.booleans())
def test_packing_is_the_inverse_of_unpacking(data, kind, shape, row_packed):
    dtype = DType(kind)
    size = dtype.nbytes(shape, row_packed=row_packed)
    raw = data.draw(st.binary(min_size=size, max_size=size))
    array = unpack(raw, dtype, shape, row_packed=row_packed)
    assert array.shape == tuple(shape)
    again = pack(array, dtype, row_packed=row_packed)
    # Bits beyond the last element of a packed run have no meaning; all others come back.
    same = unpack(again, dtype, shape, row_packed=row_packed)
    assert same.tobytes() == array.tobytes()


@given(st.lists(st.integers(0, 2**32 - 1), max_size=7), KINDS, st.integers(0, 64))
def test_a_value_of_another_size_than_its_shape_is_refused(shape, kind, size):
    dtype = DType(kind)
    if dtype.nbytes(shape) == size:
        return
    with pytest.raises(FormatError):
        unpack(bytes(size), dtype, shape)


_TABLE = TableDef("test", (), False, 0, 1, 4, (1, 2, 4, 8), {})


@given(st.binary(max_size=64), st.integers(-4, 70))
def test_no_read_leaves_the_buffer(data, pos):
    buf = Buffer(data)
    for read in (
        buf.u32,
        buf.follow,
        buf.u32s,
        buf.i32s,
        buf.u8s,
        buf.offsets,
        buf.text,
        buf.texts,
        buf.text_bytes,
        lambda p: buf.vector(p, 8),
        lambda p: buf.scalar(p, 10),
        lambda p: buf.layout(p, _TABLE),
    ):
        with contextlib.suppress(FormatError):
            read(pos)
