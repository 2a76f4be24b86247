"""One builder per attack: a name, the bytes, what must come of them.

docs/security.md has a line for each; a test compares the two.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass

import mge_builder as build
from attacks.assembler import Assembler, begin, end, end_v2, root

from mgeserial import params as P

__all__ = ["ATTACKS", "Attack"]

HUGE = 0xFFFFFFFF
ADD = ("Elemwise", {"mode": int(P.ElemwiseMode.ADD)})


@dataclass(frozen=True)
class Attack:
    """What a hostile file looks like.

    `refused` is a pattern of the error's text; None: the file is valid, and must cost little.
    `on_touch`: it loads, and the error comes when parameters, blobs or values are looked at.
    """

    make: Callable[[], bytes]
    refused: str | None
    on_touch: bool = False


ATTACKS: dict[str, Attack] = {}


def attack(refused: str | None, *, on_touch: bool = False):
    """Register a builder under its function's name."""

    def note(make: Callable[[], bytes]) -> Callable[[], bytes]:
        ATTACKS[make.__name__] = Attack(make, refused, on_touch)
        return make

    return note


# --- work multiplied by shared offsets -----------------------------------------------------------


@attack("shared offsets multiply the work")
def one_operator_reached_200000_times() -> bytes:
    asm = begin()
    root(asm)
    asm.align().label("outputs").put("I", 0)
    asm.vector("oprs", ["op"] * 200_000)
    asm.table("op", "v.operator").put("Q", 77)
    return end(asm)


def shared_vector_of_tensors(operators: int, tensors: int) -> bytes:
    asm = begin()
    asm.vtable("v.holder", 16, 4, 0, 0, 0, 0, 0, 0, 12)  # type_id, ..., tensors
    asm.vtable("v.tensor", 4)
    root(asm)
    asm.align().label("outputs").put("I", 0)
    asm.vector("oprs", [f"op{i}" for i in range(operators)])
    for i in range(operators):
        asm.table(f"op{i}", "v.holder").put("Q", 77).to("tensors")
    asm.vector("tensors", ["tensor"] * tensors)
    asm.table("tensor", "v.tensor")
    return end(asm)


@attack("shared offsets multiply the work")
def operators_that_share_one_vector_of_tensors() -> bytes:
    return shared_vector_of_tensors(2000, 2000)


@attack("shared offsets multiply the work")
def operators_that_share_one_vector_of_inputs() -> bytes:
    asm = begin()
    asm.vtable("v.user", 16, 4, 0, 0, 12)  # type_id, ..., inputs
    root(asm)
    asm.align().label("outputs").put("I", 0)
    asm.vector("oprs", ["first", *(f"op{i}" for i in range(2000))])
    asm.table("first", "v.operator").put("Q", 77)
    for i in range(2000):
        asm.table(f"op{i}", "v.user").put("Q", 77).to("inputs")
    asm.align().label("inputs").put("I", 20_000).raw(bytes(80_000))
    return end(asm)


@attack(None)
def operators_that_share_one_name_of_a_megabyte() -> bytes:
    asm = begin()
    asm.vtable("v.named", 16, *(4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12))  # type_id, ..., name
    root(asm)
    asm.align().label("outputs").put("I", 0)
    asm.vector("oprs", [f"op{i}" for i in range(5000)])
    for i in range(5000):
        asm.table(f"op{i}", "v.named").put("Q", 77).to("name")
    asm.string("name", b"n" * 1_000_000)
    return end(asm)


@attack("shared offsets multiply the work")
def one_shape_of_a_megabyte_for_every_variable() -> bytes:
    asm = Assembler().put("I", 0).to("root").raw(b"mgv2")
    asm.vtable("v.model", 8, 0, 0, 0, 4)  # middle_tensors
    asm.vtable("v.var", 8, 0, 4)  # shape
    asm.table("root", "v.model").to("vars")
    asm.vector("vars", [f"var{i}" for i in range(100)])
    for i in range(100):
        asm.table(f"var{i}", "v.var").to("shape")
    asm.align().label("shape").put("I", 250_000).raw(bytes(1_000_000))
    return end_v2(asm)


@attack("shared offsets multiply the work", on_touch=True)
def operators_that_share_one_blob() -> bytes:
    asm = begin()
    asm.vtable("v.custom", 16, *(4, 0, 0, 0, 0, 0, 0, 0, 0, 12))  # type_id, ..., blobs
    asm.vtable("v.blob", 8, 4)
    root(asm)
    asm.align().label("outputs").put("I", 0)
    asm.vector("oprs", [f"op{i}" for i in range(100)])
    for i in range(100):
        asm.table(f"op{i}", "v.custom").put("Q", 77).to("blobs")
    asm.vector("blobs", ["blob"])
    asm.table("blob", "v.blob").to("bytes")
    asm.align().label("bytes").put("I", 1_000_000).raw(bytes(1_000_000))
    return end(asm)


@attack("shared offsets multiply the work")
def tensors_that_share_one_value() -> bytes:
    asm = Assembler().put("I", 0).to("root").raw(b"mgv2")
    asm.vtable("v.model", 8, 0, 0, 4)  # oprs
    asm.vtable("v.op", 16, *(0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12))  # type_id, ..., tensors
    asm.vtable("v.tensor", 12, 0, 4, 0, 0, 0, 0, 8)  # shape, data
    asm.table("root", "v.model").to("oprs")
    asm.vector("oprs", ["op"])
    asm.table("op", "v.op").put("Q", 77).to("tensors")
    asm.vector("tensors", [f"t{i}" for i in range(1000)])
    for i in range(1000):
        asm.table(f"t{i}", "v.tensor").to("shape").to("data")
    asm.align().label("shape").put("II", 1, 250_000)
    asm.align().label("data").put("I", 1_000_000).raw(bytes(1_000_000))
    return end_v2(asm)


@attack("shared offsets multiply the work", on_touch=True)
def operators_that_share_one_parameter_table() -> bytes:
    asm = begin()
    asm.vtable("v.param", 20, 4, 16, 12)  # type_id, param_type, param
    asm.vtable("v.desc", 8, 4)
    root(asm)
    asm.align().label("outputs").put("I", 0)
    asm.vector("oprs", [f"op{i}" for i in range(1000)])
    number = build.union_number("AxisAddRemove")
    for i in range(1000):
        asm.table(f"op{i}", "v.param").put("Q", 77).to("param").put("BBBB", number, 0, 0, 0)
    asm.table("param", "v.desc").to("axes")
    asm.align().label("axes").put("I", 2000).raw(bytes(16_000))
    return end(asm)


# --- offsets and tables that lie -----------------------------------------------------------------


def with_root(inner: Callable[[Assembler], object]) -> bytes:
    asm = begin()
    inner(asm)
    return end(asm)


@attack("outside the buffer")
def an_offset_that_wraps_around_to_its_own_table() -> bytes:
    asm = begin()
    root(asm)
    asm.align().label("outputs").put("I", 0)
    asm.align().label("oprs").put("I", 1)
    asm.to("root")  # backwards: 2**32 less the distance
    return end(asm)


@attack("points outside the buffer")
def an_offset_of_zero() -> bytes:
    asm = begin()
    root(asm)
    asm.align().label("outputs").put("I", 0)
    asm.align().label("oprs").put("II", 1, 0)
    return end(asm)


@attack("the vtable of a .* lies outside the buffer")
def a_vtable_before_the_buffer() -> bytes:
    asm = begin()
    asm.align().label("root").put("i", 2**31 - 1).put("I", 101300).raw(bytes(64))
    return end(asm)


@attack("the vtable of a .* lies outside the buffer")
def a_vtable_behind_the_buffer() -> bytes:
    asm = begin()
    asm.align().label("root").put("i", -(2**31)).put("I", 101300).raw(bytes(64))
    return end(asm)


@attack("vtable of a .* has a bad size|inline size")
def a_vtable_that_is_its_own_table() -> bytes:
    asm = begin()
    asm.align().label("root").put("i", 0).raw(bytes(64))
    return end(asm)


@attack("has a bad size: 65535")
def a_vtable_of_odd_and_absurd_size() -> bytes:
    asm = begin()
    asm.align().label("bad").put("HH", 65535, 16).put("8H", *[4] * 8)
    asm.table("root", "bad").raw(bytes(64))
    return end(asm)


@attack("lies outside its 8 bytes: 6")
def a_field_that_reaches_beyond_its_table() -> bytes:
    asm = begin()
    asm.vtable("bad", 8, 6)
    asm.table("root", "bad").raw(bytes(64))
    return end(asm)


@attack("ends outside the buffer")
def a_table_that_reaches_beyond_the_buffer() -> bytes:
    asm = begin()
    asm.vtable("bad", 60000)
    asm.table("root", "bad").raw(bytes(64))
    return end(asm)


@attack("ends outside the buffer")
def a_vector_of_4294967295_operators() -> bytes:
    asm = begin()
    root(asm)
    asm.align().label("outputs").put("I", 0)
    asm.align().label("oprs").put("I", HUGE).raw(bytes(64))
    return end(asm)


@attack("ends outside the buffer")
def a_vector_whose_size_in_bytes_wraps_around() -> bytes:
    asm = begin()
    root(asm)
    asm.align().label("outputs").put("I", 0x20000001)  # times 8 is 8 in 32 bits
    asm.align().label("oprs").put("I", 0).raw(bytes(64))
    return end(asm)


def named(text: bytes, *, length: int | None = None, terminated: bool = True) -> bytes:
    asm = begin()
    asm.vtable("v.named", 16, *(4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12))
    root(asm)
    asm.align().label("outputs").put("I", 0)
    asm.vector("oprs", ["op"])
    asm.table("op", "v.named").put("Q", 77).to("name")
    asm.align().label("name").put("I", len(text) if length is None else length).raw(text)
    return end(asm.raw(b"\0" if terminated else b"x"))


@attack("a string of 4 bytes has no end")
def a_string_without_its_zero() -> bytes:
    return named(b"abcd", terminated=False)


@attack("a string of 4294967295 bytes has no end")
def a_string_of_absurd_length() -> bytes:
    return named(b"abcd", length=HUGE)


@attack("a name has at most 1048576 bytes")
def a_name_of_two_megabytes() -> bytes:
    return named(b"n" * 2_000_000)


@attack("a name is not UTF-8")
def a_name_that_is_not_utf8() -> bytes:
    return named(b"\xed\xa0\x80\xff")


@attack(None)
def a_name_of_control_characters() -> bytes:
    return named("\x1b[2J\x1b]0;title\x07\r\n\u202e\u2066\x00".encode())


@attack(None)
def tables_that_overlap() -> bytes:
    asm = begin()
    asm.vtable("v.wide", 12, 4)
    root(asm)
    asm.align().label("outputs").put("I", 0)
    asm.vector("oprs", ["a", "b"])
    # The second table begins inside the first: its vtable offset is the first's type_id.
    asm.label("a").put("i", len(asm.data) - asm.labels["v.wide"])
    asm.label("b").put("i", len(asm.data) - asm.labels["v.wide"]).raw(bytes(16))
    return end(asm)


@attack(None)
def a_string_that_overlaps_the_vtables() -> bytes:
    asm = begin()
    asm.vtable("v.named", 16, *(4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12))
    asm.vector("oprs0", [])
    root(asm)
    asm.align().label("outputs").put("I", 0)
    asm.vector("oprs", ["op"])
    asm.table("op", "v.named").put("Q", 77).to("name")
    asm.align().label("name").put("I", 4).raw(b"mgb1").raw(b"\0")
    return end(asm)


@attack("beyond the end of the file")
def a_header_that_points_past_64_bits() -> bytes:
    return b"MGBC" + bytes(12) + struct.pack("<Q", 2**64 - 1) + bytes(64)


@attack("takes 4294967295 bytes")
def a_graph_of_four_gigabytes() -> bytes:
    return b"MGBC" + bytes(20) + struct.pack("<I", HUGE) + bytes(64)


# --- numbers that make work ----------------------------------------------------------------------


@attack(None)
def an_input_whose_size_overflows_64_bits() -> bytes:
    ops = [build.input_op("x", (HUGE,) * 7), {"op": "Elemwise", "inputs": [0, 0], "params": [ADD]}]
    ops.append({"op": "GetVarShape", "inputs": [1], "params": [("OptionalAxisV1", {})]})
    ops.append({"op": "Reshape", "inputs": [1, 2], "params": [("OptionalAxisV1", {})]})
    return build.v1(ops, [3])


@attack(r"needs \d+ bytes, got 4")
def a_constant_whose_size_overflows_64_bits() -> bytes:
    return build.v1([build.constant_op(bytes(4), (HUGE,) * 7)], [0])


@attack("too many places", on_touch=True)
def an_empty_constant_of_absurd_dimensions() -> bytes:
    return build.v1([build.constant_op(b"", (HUGE,) * 6 + (0,))], [0])


@attack("too large")
def a_broadcast_to_a_shape_that_overflows() -> bytes:
    target = struct.pack("<7i", *[2**31 - 1] * 7)
    ops = [build.input_op("x", (1,) * 7), build.constant_op(target, (7,), 4)]
    ops.append({"op": "Broadcast", "inputs": [0, 1], "params": [("Empty", {})]})
    ops.append({"op": "Elemwise", "inputs": [2, 2], "params": [ADD]})
    return build.v1(ops, [3])


@attack("must say 1 to 7 dimensions, got 2147483647")
def a_linspace_of_two_billion_numbers() -> bytes:
    ops = [
        build.constant_op(struct.pack("<f", 0), (1,)),
        build.constant_op(struct.pack("<i", 2**31 - 1), (1,), 4),
        {"op": "Linspace", "inputs": [0, 0, 1], "params": [("Linspace", {"endpoint": True})]},
        {"op": "TypeCvt", "inputs": [2], "params": [(67, build.dtype(4))]},
        {"op": "Reshape", "inputs": [0, 3], "params": [("OptionalAxisV1", {})]},
    ]
    return build.v1(ops, [4])


@attack(None)
def a_convolution_of_constants_padded_by_a_billion() -> bytes:
    param = {"pad_h": 2**30, "pad_w": 2**30, "stride_h": 2**31, "stride_w": 2**31}
    ops = [
        build.constant_op(bytes(4), (1, 1, 1, 1)),
        {"op": "Convolution", "inputs": [0, 0], "params": [("Convolution", param)]},
        {"op": "TypeCvt", "inputs": [1], "params": [(67, build.dtype(4))]},
        {"op": "Reshape", "inputs": [0, 2], "params": [("OptionalAxisV1", {})]},
    ]
    return build.v1(ops, [3])


@attack("claims 4294967295 outputs")
def an_operator_of_four_billion_outputs() -> bytes:
    op = {"op": "CondExecMerge", "inputs": [0, 0]}
    op["params"] = [("CondExecMerge", {"nr_output": HUGE})]
    return build.v1([build.input_op("x", (1,)), op], [0])


@attack("needs parameters BN, got Axis")
def a_count_that_depends_on_parameters_of_another_kind() -> bytes:
    inputs = [build.input_op(f"x{i}", (1, 2, 3, 3)) for i in range(5)]
    op = {"op": "BatchNorm", "inputs": [0, 1, 2, 3, 4], "params": [("Axis", {"axis": 1})]}
    return build.v1([*inputs, op], [0])


@attack(None)
def ten_thousand_outputs_of_one_name() -> bytes:
    return build.v1([{**build.input_op("x", (1,)), "output_name": ["x"]}], [0] * 10_000)


@attack(None)
def a_chain_of_ten_thousand_operators() -> bytes:
    links = [{"op": "Elemwise", "inputs": [i, i], "params": [ADD]} for i in range(10_000)]
    return build.v1([build.constant_op(bytes(4), (1,), 4), *links], [10_000])


@attack("at most 65536 elements", on_touch=True)
def a_parameter_of_a_hundred_thousand_axes() -> bytes:
    param = {"desc": [bytes(8)] * 100_000}
    op = {"op": "AxisAddRemove", "inputs": [0], "params": [("AxisAddRemove", param)]}
    return build.v1([build.input_op("x", (1,)), op], [1])


# --- around the graphs ---------------------------------------------------------------------------


@attack("declares 4294967295 test cases and holds 0")
def four_billion_test_cases() -> bytes:
    return build.with_cases(build.v1([build.input_op("x", (1,))], [0]), [], count=HUGE)


@attack("more than 16384 graphs")
def a_hundred_thousand_graphs() -> bytes:
    asm = Assembler().put("I", 0).to("root").raw(b"mgv2").vtable("v.model", 4)
    one = end_v2(asm.table("root", "v.model").align(8).raw(bytes(8)))
    return one * 100_000


@attack("no model")
def packages_inside_packages() -> bytes:
    data = build.v1([build.input_op("x", (1,))], [0])
    for _ in range(20):
        data = build.lite(data)
    return data


class _Loud:
    def __reduce__(self) -> tuple[object, ...]:
        return (exec, ("raise SystemExit('the pickle ran')",))


@attack(None)
def metadata_with_a_pickle_that_runs_code() -> bytes:
    info = {"is_valid": True, "user_info": pickle.dumps(_Loud())}
    return build.v1([build.input_op("x", (1,))], [0], metadata=info)


@attack("a Python pickle")
def a_pickle_that_runs_code() -> bytes:
    return pickle.dumps(_Loud())


@attack("not a MegEngine model: text|plain text")
def a_text_of_control_characters() -> bytes:
    return b"see \xe2\x80\xae here"
