"""Pickles that would run code, eat memory or never end: each is refused, and nothing happens."""

from __future__ import annotations

import builtins
import collections
import contextlib
import os
import pickle
import pickletools
import struct
import subprocess
import sys
import time
import tracemalloc

import numpy as np
import pytest
from corpus_cases import compact_root

from mgeserial._pickle_machine import MAX_STEPS
from mgeserial.errors import FormatError, MgeError, UnsupportedError
from mgeserial.pickles import read_pickle

HEAD = b"\x80\x04"


class Call:
    """Pickles as a call of `function`."""

    def __init__(self, function, *args):
        self.function, self.args = function, args

    def __reduce__(self):
        return self.function, self.args


def write(tmp_path, content):
    path = tmp_path / "x.pkl"
    path.write_bytes(content)
    return str(path)


def unicode(text):
    raw = text.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def name(module, attribute):
    return unicode(module) + unicode(attribute) + b"\x93"


def refused(tmp_path, content, kind=FormatError, match=None, *, seconds=20.0, peak_mb=None):
    """Reading must raise `kind`, in bounded time and memory."""
    path = write(tmp_path, content)
    start = time.monotonic()
    if peak_mb is not None:
        tracemalloc.start()
    try:
        with pytest.raises(kind, match=match) as caught:
            read_pickle(path)
        if peak_mb is not None:
            assert tracemalloc.get_traced_memory()[1] < peak_mb * 1e6
    finally:
        tracemalloc.stop()
    assert time.monotonic() - start < seconds
    return caught.value


# -- code ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "args", "shown"),
    [
        (os.system, ("exit 7",), r"(posix|nt)\.system"),
        (eval, ("1/0",), r"builtins\.eval"),
        (exec, ("raise SystemExit",), r"builtins\.exec"),
        (builtins.__import__, ("antigravity",), r"builtins\.__import__"),
        (getattr, (os, "system"), r"builtins\.getattr"),
        (subprocess.Popen, (("true",),), r"(subprocess|commands)\.Popen"),
        (open, ("stolen", "w"), r"(_io|io|builtins)\.open"),
        (np.load, ("x.npy",), r"numpy\.load"),
        (np.fromfile, ("x",), r"numpy\.fromfile"),
        (pickle.loads, (b"N.",), r"_?pickle\.loads"),
        (print, ("run",), r"builtins\.print"),
    ],
)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_calls_of_code_are_refused_by_name(tmp_path, function, args, shown, protocol):
    if args and args[0] is os:
        args = ("os", "system")
    content = pickle.dumps({"w": np.zeros(3), "x": Call(function, *args)}, protocol)
    shown = shown.replace("builtins", "(builtins|__builtin__)").replace(
        "(_io|io", "(_io|io|__builtin__"
    )
    error = refused(tmp_path, content, match=f"it asks for {shown}, which is not on the list")
    assert error.offset is not None
    assert "nothing was executed" in (error.hint or "")
    assert not (tmp_path / "stolen").exists()


def test_nothing_is_imported(tmp_path):
    for module in ("megengine.no_such_module", "megengine.antigravity"):
        content = HEAD + b"}" + unicode("x") + name(module, "f") + b")Rs."
        assert read_pickle(write(tmp_path, content)).weights == ()
    code = (
        "import sys, mgeserial.pickles as p; before = set(sys.modules); "
        f"p.read_pickle({str(tmp_path / 'x.pkl')!r}); "
        "sys.exit(int(any('megengine' in m or 'torch' in m for m in sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_of_numpy_that_are_no_data_are_refused(tmp_path):
    for module, attribute in (("numpy", "memmap"), ("numpy.core.multiarray", "fromstring")):
        refused(tmp_path, HEAD + name(module, attribute) + b".", match="is not on the list")


def test_allowed_names_are_not_called_as_they_are(tmp_path):
    # Each may stand in a pickle; calling it must make a record and no object of that class.
    for module, attribute in (
        ("builtins", "type"),
        ("builtins", "bytearray"),
        ("builtins", "range"),
    ):
        content = HEAD + name(module, attribute) + b"J\xff\xff\xff\x7f\x85R."
        assert read_pickle(write(tmp_path, content)).kind == f"{module}.{attribute}"
    refused(
        tmp_path, HEAD + name("numpy", "ndarray") + b"J\xff\xff\xff\x7f\x85\x85R.", match="calls"
    )
    refused(
        tmp_path, HEAD + name("numpy", "ndarray") + b"J\xff\xff\xff\x7f\x85\x85\x81.", match="makes"
    )
    refused(tmp_path, HEAD + name("numpy", "float32") + b"K\x01\x85R.", match="calls")


@pytest.mark.parametrize(
    ("opcodes", "shown"),
    [
        (b"Pabc\n", "PERSID"),
        (b"K\x01Q", "BINPERSID"),
        (b"\x82\x01", "EXT1"),
        (b"(iposix\nsystem\n", "INST"),
        (b"(cposix\nsystem\nX\x01\x00\x00\x00xo", "it asks for posix.system"),
        (b"\x97", "NEXT_BUFFER"),
        (b"N\x98", "READONLY_BUFFER"),
    ],
)
def test_opcodes_that_lead_out_of_the_file_are_refused(tmp_path, opcodes, shown):
    refused(tmp_path, HEAD + opcodes + b".", match=shown)


def test_objects_of_own_classes_are_refused(tmp_path):
    refused(tmp_path, pickle.dumps(Call(collections.Counter)), match=r"collections\.Counter")


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "opcode",
    [
        b"B" + struct.pack("<I", 2**32 - 1),
        b"\x8e" + struct.pack("<Q", 2**40),
        b"\x8e" + struct.pack("<Q", 2**64 - 1),
        b"X" + struct.pack("<I", 2**32 - 1),
        b"\x8d" + struct.pack("<Q", 2**62),
        b"\x96" + struct.pack("<Q", 2**40),
        b"\x8b" + struct.pack("<i", 2**31 - 1),
        b"T" + struct.pack("<i", 2**31 - 1),
    ],
)
def test_lengths_beyond_the_file_allocate_nothing(tmp_path, opcode):
    refused(tmp_path, HEAD + opcode + b"abc.", match="damaged", peak_mb=2)


def array(shape, raw, *, code="f4"):
    """An array as numpy pickles it, with any shape and bytes."""
    dims = b"(" + b"".join(b"\x8a\x08" + struct.pack("<q", n) for n in shape) + b"t"
    dtype = name("numpy", "dtype") + unicode(code) + b"\x89\x88\x87R"
    dtype += b"(K\x03" + unicode("<") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    made = name("numpy.core.multiarray", "_reconstruct") + name("numpy", "ndarray")
    made += b"K\x00\x85C\x01b\x87R"
    return made + b"(K\x01" + dims + dtype + b"\x89" + raw + b"tb"


def some(raw):
    return b"B" + struct.pack("<I", len(raw)) + raw


@pytest.mark.parametrize(
    ("shape", "raw", "match"),
    [
        ((2**40,), some(bytes(8)), "needs 4398046511104 bytes, has 8"),
        ((2**47, 2**47), some(bytes(8)), "bytes, has 8"),
        ((2**62,), some(bytes(8)), "whole numbers"),
        ((-1,), some(bytes(8)), "whole numbers"),
        ((0, 2**40), some(b""), None),
        ((3,), some(bytes(8)), "needs 12 bytes, has 8"),
        ((1,), some(bytes(8)), "needs 4 bytes, has 8"),
        ((2,), b"]", "Python objects"),
        ((1,) * 33, some(bytes(4)), "up to 32 numbers"),
    ],
)
def test_arrays_have_the_bytes_that_they_need(tmp_path, shape, raw, match):
    content = HEAD + array(shape, raw) + b"."
    if match is None:
        assert read_pickle(write(tmp_path, content)).weights[0].array.size == 0
    else:
        refused(tmp_path, content, match=match, peak_mb=2)


def test_one_text_of_bytes_does_not_become_many_arrays(tmp_path):
    raw = some(bytes(1_000_000)) + b"\x94"
    content = HEAD + b"](" + array((250_000,), raw)
    content += (array((250_000,), b"h\x00")) * 200 + b"e."
    refused(tmp_path, content, match="more bytes than the file", peak_mb=20)


def test_encoded_bytes_are_counted(tmp_path):
    text = unicode("a" * 1_000_000) + b"\x94"
    call = name("_codecs", "encode")
    content = HEAD + b"](" + call + text + unicode("latin1") + b"\x86R"
    content += (call + b"h\x00" + unicode("latin1") + b"\x86R") * 500 + b"e."
    refused(tmp_path, content, match="more than the file has", peak_mb=30)


def test_huge_numbers_are_no_shape_and_no_name(tmp_path):
    # 100 kB of digits: as a shape, a key, and an element type.
    huge = b"\x8b" + struct.pack("<i", 100_000) + b"\x7f" * 100_000
    dims = b"(" + huge + b"t"
    content = HEAD + array((), some(b"")).replace(b"(K\x01(t", b"(K\x01" + dims, 1) + b"."
    refused(tmp_path, content, match="whole numbers")
    assert read_pickle(write(tmp_path, HEAD + b"}" + huge + b"]s.")).weights == ()
    refused(tmp_path, HEAD + name("numpy", "dtype") + huge + b"\x85R.", match="element type 'int'")


# -- time ------------------------------------------------------------------------------------------


def test_many_steps_are_refused(tmp_path):
    error = refused(tmp_path, HEAD + b"N0" * (MAX_STEPS // 2 + 10) + b"N.", seconds=60)
    assert "steps" in str(error)


@pytest.mark.parametrize("opener", [b"]", b"}K\x00", b")"], ids=["lists", "dicts", "tuples"])
def test_deep_nesting_is_refused(tmp_path, opener):
    close = {b"]": b"a", b"}K\x00": b"s", b")": b"\x86"}[opener]
    depth = 200_000
    refused(tmp_path, HEAD + opener * depth + b"N" + close * depth + b".", UnsupportedError, "deep")


def test_deep_tuples_as_keys_are_not_hashed(tmp_path):
    depth = 200_000
    content = HEAD + b"}" + b")" + b"\x85" * depth + b"Ns."
    assert read_pickle(write(tmp_path, content)).weights == ()


def test_lists_of_themselves_end(tmp_path):
    refused(tmp_path, HEAD + b"]\x94h\x00a.", UnsupportedError, "refers to itself")


def test_laughs_by_the_billion_are_refused(tmp_path):
    content = HEAD + b"]\x94"
    for k in range(60):
        content += b"](h" + bytes([k]) + b"h" + bytes([k]) + b"e\x94"
    refused(tmp_path, content + b".", UnsupportedError, "refers to itself too often", seconds=60)


def test_one_long_list_used_often_is_not_walked_often(tmp_path):
    content = HEAD + b"](" + b"N" * 100_000 + b"e\x94](" + b"h\x00" * 100_000 + b"e."
    refused(tmp_path, content, UnsupportedError, "too often", seconds=60)


def test_one_long_list_is_not_made_a_dict_often(tmp_path):
    pairs = b"](" + b"NN\x86" * 10_000 + b"e\x94"
    content = HEAD + pairs + (name("collections", "OrderedDict") + b"h\x00\x85R0") * 5_000 + b"."
    refused(tmp_path, content, match="steps", seconds=60)


def test_items_of_records_are_appended_in_linear_time(tmp_path):
    made = name("megengine.x", "List") + b")R"
    content = HEAD + made + b"Na" * 200_000 + b"."
    start = time.monotonic()
    read_pickle(write(tmp_path, content))
    assert time.monotonic() - start < 20


def test_one_long_state_of_many_tensors_is_indexed_once(tmp_path):
    state = b"}(" + b"".join(unicode(f"k{i}") + b"N" for i in range(20_000)) + b"u\x94"
    one = name("megengine.tensor", "Tensor") + b")\x81h\x00b"
    content = HEAD + state + b"0](" + one * 5_000 + b"e."
    start = time.monotonic()
    with pytest.raises(UnsupportedError, match="too often"):
        read_pickle(write(tmp_path, content))
    assert time.monotonic() - start < 30


def test_names_have_a_length(tmp_path):
    key = unicode("k" * 600) + b"\x94"
    content = HEAD + b"}" + key + b"}h\x00" + array((1,), some(bytes(4))) + b"ss."
    refused(tmp_path, content, UnsupportedError, "characters")


# -- damage ----------------------------------------------------------------------------------------


def corpus():
    return sorted((compact_root() / "pickles").glob("*/model.*"))


def test_every_cut_of_a_file_is_an_error(tmp_path):
    assert corpus()
    for path in corpus():
        data = path.read_bytes()
        for end in range(2, len(data), max(len(data) // 60, 1)):
            refused(tmp_path, data[:end])


def test_changed_bytes_give_errors_or_arrays(tmp_path):
    random = np.random.default_rng(1)
    outcomes = collections.Counter()
    for path in corpus():
        data = bytearray(path.read_bytes())
        for _ in range(100):
            changed = bytearray(data)
            for place in random.integers(2, len(data), random.integers(1, 4)):
                changed[place] = random.integers(0, 256)
            try:
                read_pickle(write(tmp_path, bytes(changed)))
            except MgeError:
                outcomes["refused"] += 1
            else:
                outcomes["read"] += 1
    assert outcomes["refused"] > 30
    assert outcomes["read"] > 30


def test_random_programs_give_errors_or_data(tmp_path):
    random = np.random.default_rng(2)
    pool = [o.code.encode("latin-1") for o in pickletools.opcodes if o.name != "PROTO"]
    pieces = [
        name("numpy", "dtype"), name("collections", "OrderedDict"), name("numpy", "ndarray"),
        name("megengine.tensor", "Tensor"), array((2,), some(bytes(8))), unicode("f4"), b"K\x01",
        b"\x85", b"}", b"(", b"t", b"R", b"b", b"\x81", b"]", b"a", b"N",
    ]  # fmt: skip
    for _ in range(1000):
        count = int(random.integers(1, 30))
        chosen = [
            pieces[random.integers(len(pieces))]
            if random.random() < 0.8
            else pool[random.integers(len(pool))]
            for _ in range(count)
        ]
        with contextlib.suppress(MgeError):
            read_pickle(write(tmp_path, HEAD + b"".join(chosen) + b"."))
