"""Conversions between float32 and stored integers, contiguous arrays.

Argument table: 0 input, 1 output. Units are chunks of 4096 elements.
"""

from __future__ import annotations

from loadrun.backends.cpu.emit import Int
from loadrun.backends.cpu.kernels import common
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

_CHUNK = 4096
_KINDS = {
    "int8": ("i8", True),
    "uint8": ("i8", False),
    "int16": ("i16", True),
    "uint16": ("i16", False),
    "int32": ("i32", True),
}
TYPES = frozenset(_KINDS)


def cast(size: int, source: str, destination: str, shift: int, target: Target) -> Kernel:
    """float32 to an integer type or float16, or back; one side must be float32.

    Integers have `shift` taken off when they become floats and added when they come back. Floats
    must be whole numbers in the range of the integer type.
    """
    f = common.entry("", target)
    p = [f.load_ptr("%args", k) for k in range(2)]
    widening = destination == "float32"
    other = source if widening else destination
    kind, signed = ("half", True) if other == "float16" else _KINDS[other]
    bits = 16 if kind == "half" else int(kind[1:])
    lanes = target.lanes

    def convert(at: Int, vector: bool) -> None:
        narrow = f"<{lanes} x {kind}>" if vector else kind
        wide = f.it if vector else "i32"
        real = f.vt if vector else "float"
        size_in, size_out = (bits // 8, 4) if widening else (4, bits // 8)
        a, b = f.gep(p[0], f.mul(at, size_in)), f.gep(p[1], f.mul(at, size_out))
        amount = f.iconst(shift) if vector else str(shift)
        if kind == "half":
            before, after = (narrow, real) if widening else (real, narrow)
            v = f.op(f"load {before}, ptr {a}, align {size_in}")
            v = f.op(f"{'fpext' if widening else 'fptrunc'} {before} {v} to {after}")
            f.do(f"store {after} {v}, ptr {b}, align {size_out}")
            return
        if widening:
            v = f.op(f"load {narrow}, ptr {a}, align {bits // 8}")
            if bits < 32:
                v = f.op(f"{'sext' if signed else 'zext'} {narrow} {v} to {wide}")
            if shift:
                v = f.op(f"sub {wide} {v}, {amount}")
            v = f.op(f"sitofp {wide} {v} to {real}")
            f.do(f"store {real} {v}, ptr {b}, align 4")
            return
        v = f.op(f"load {real}, ptr {a}, align 4")
        v = f.op(f"fptosi {real} {v} to {wide}")
        if shift:
            v = f.op(f"add {wide} {v}, {amount}")
        if bits < 32:
            v = f.op(f"trunc {wide} {v} to {narrow}")
        f.do(f"store {narrow} {v}, ptr {b}, align {bits // 8}")

    with f.loop("%begin", "%end") as unit:
        low = f.mul(unit.i, _CHUNK)
        high = f.min(f.add(low, _CHUNK), size)
        whole = f.sub(high, f.mod(f.sub(high, low), lanes))
        with f.loop(low, whole, lanes) as i:
            convert(i.i, True)
        with f.loop(whole, high) as i:
            convert(i.i, False)
    return common.finish(f"cast_{source}_{destination}", [f], [(f, -(-size // _CHUNK))])
