"""The loops over a grid of register tiles: one function for all grids, driven by a table.

What a grid's own loops would cost to compile is more than most of its tiles cost, and what is read
from the table here costs some tens of cycles per unit of work. The table's words are those of
`FIELDS` in order, then eight runs of tiles of `RUN` words each: for full and for narrow panels, for
full rows and for the edge row, two runs of equal tiles:

    function, tiles, bytes from one tile to the next in input, output, operand, what is fetched

Source of the layout of work: tiled.py.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.kernels import common, micro
from loadrun.backends.cpu.plan import Part
from loadrun.backends.cpu.target import Target

# Vectors of four words: for the input, the output, the operand, and what is fetched.
VECTORS = (
    "start",
    "image",  # from one to the next
    "vector",  # from one output vector to the next
    "first",  # to the first row tile of a chunk, per row tile before it
    "row",
)
FIELDS = (
    *micro.SIZES,
    *(f"{name}{k}" for name in VECTORS for k in range(4)),
    # A unit's number has four digits with these bases, the last without bound.
    "base0",
    "base1",
    "base2",
    "panels_first",  # digits from the lowest: 1: chunk, image, panel, group; 0: panel, group, chunk
    "main",  # full panels of a group
    "chunk",  # row tiles
    "row_tiles",
    "full",  # row tiles that are not the edge row
    "vectors",  # output vectors of a group
    "nb",
    "taps_bytes",  # of a group
    "group_bytes",  # weights
    "panel_bytes",
    "weight_image",
    "bias_vector",
)
_WIDE, _PAIR = "<4 x i64>", "<2 x i64>"
RUN = 6
Run = tuple[str, int, int, int, int, int]


def words(
    fields: Mapping[str, int], runs: Mapping[tuple[int, int], Sequence[Run]]
) -> list[int | str]:
    """The table; `runs` by (1 for narrow panels, 1 for the edge row)."""
    out: list[int | str] = [fields[name] for name in FIELDS]
    for key in ((0, 0), (0, 1), (1, 0), (1, 1)):
        for k in range(2):
            found = runs.get(key, ())
            out += found[k] if k < len(found) else (0,) * RUN
    return out


@functools.cache
def driver(target: Target) -> Part:
    """The function; an entry point (see common.py) with six pointers in its argument table."""
    f = common.entry("", target)
    table = common.table(f)
    p = [f.load_ptr("%args", k) for k in range(6)]
    frame = micro.frame(f)

    def word(name: str) -> str:
        return f.load_i64(table, 8 * FIELDS.index(name))

    def wide(name: str) -> str:
        return _load(f, f.gep(table, 8 * FIELDS.index(name + "0")))

    base = _vector(f, [p[0], p[3], p[4]])
    base = f.op(f"add {_WIDE} {base}, {wide('start')}")
    bases = [word(f"base{k}") for k in range(3)]
    swapped = f.icmp("ne", word("panels_first"), 0)
    digits: list[Int] = []
    rest: Int = "%begin"
    for number in bases:
        digits.append(f.mod(rest, number))
        rest = f.div(rest, number)
    with f.loop("%begin", "%end", 1, [("i64", d) for d in (*digits, rest)]) as unit:
        d = unit.v
        chunk, image, inside, group = (
            f.op(f"select i1 {swapped}, i64 {d[k]}, i64 {d[(k + 2) % 4]}") for k in range(4)
        )
        vector = f.add(f.mul(group, word("vectors")), f.mul(inside, word("nb")))
        first = f.mul(chunk, word("chunk"))
        last = f.min(f.add(first, word("chunk")), word("row_tiles"))
        at = f.add(f.mul(group, word("group_bytes")), f.mul(inside, word("panel_bytes")))
        weights = f.gep(p[1], f.add(at, f.mul(image, word("weight_image"))))
        bias = f.gep(p[2], f.mul(vector, word("bias_vector")))
        taps = f.gep(p[5], f.mul(group, word("taps_bytes")))
        micro.fill_frame(f, frame, w=weights, bias=bias, taps=taps)
        ahead = f.op(f"ptrtoint ptr {weights} to i64")
        place = f.op(f"insertelement {_WIDE} zeroinitializer, i64 {ahead}, i64 3")
        place = f.op(f"add {_WIDE} {place}, {base}")
        place = _moved(f, place, wide("image"), image)
        place = _moved(f, place, wide("vector"), vector)
        place = _moved(f, place, wide("first"), first)
        size = 8 * RUN
        narrow = f.icmp("sge", inside, word("main"))
        runs = f.gep(table, f.op(f"select i1 {narrow}, i64 {4 * size}, i64 0"))
        runs = f.gep(runs, 8 * len(FIELDS))
        with f.loop(first, last, 1, [(_WIDE, place)], sure=True) as row:
            places = [f.op(f"extractelement {_WIDE} {row.v[0]}, i64 {k}") for k in range(2)]
            starts = [f.op(f"inttoptr i64 {p} to ptr") for p in places]
            more = f.op(
                f"shufflevector {_WIDE} {row.v[0]}, {_WIDE} poison, <2 x i32> <i32 2, i32 3>"
            )
            _store(f, more, frame)
            edge = f.icmp("sge", row.i, word("full"))
            run = f.gep(runs, f.op(f"select i1 {edge}, i64 {2 * size}, i64 0"))
            for k in range(2):
                starts = _tiles(f, f.gep(run, k * size), starts, frame, table)
            row.next = [f.op(f"add {_WIDE} {row.v[0]}, {wide('row')}")]
        unit.next = _increment(f, d, bases)
    return common.shared("tiled", f)


def _load(f: Func, place: str, ty: str = _WIDE) -> str:
    return f.op(f"load {ty}, ptr {place}, align 8")


def _store(f: Func, value: str, place: str) -> None:
    f.do(f"store {_PAIR} {value}, ptr {place}, align 8")


def _vector(f: Func, pointers: Sequence[str]) -> str:
    """Pointers as the first words of a vector; the others are zero."""
    value = "zeroinitializer"
    for k, pointer in enumerate(pointers):
        one = f.op(f"ptrtoint ptr {pointer} to i64")
        value = f.op(f"insertelement {_WIDE} {value}, i64 {one}, i64 {k}")
    return value


def _moved(f: Func, place: str, step: str, times: Int) -> str:
    """Place + step * times, word by word."""
    one = f.op(f"insertelement {_WIDE} poison, i64 {times}, i64 0")
    zeros = "<4 x i32> zeroinitializer"
    many = f.op(f"shufflevector {_WIDE} {one}, {_WIDE} poison, {zeros}")
    return f.op(f"add {_WIDE} {place}, {f.op(f'mul {_WIDE} {step}, {many}')}")


def _tiles(f: Func, run: str, starts: Sequence[str], frame: str, table: str) -> list[str]:
    """The tiles of one run; returns the places after them in input and output."""
    function = f.load_ptr(run, 0)
    with f.loop(0, f.load_i64(run, 8), 1, [("ptr", s) for s in starts]) as tile:
        source, out = tile.v
        f.do(f"call void {function}(ptr {source}, ptr {out}, ptr {frame}, ptr {table})")
        tile.next = [f.gep(v, f.load_i64(run, 16 + 8 * k)) for k, v in enumerate(tile.v)]
        step = _load(f, f.gep(run, 32), _PAIR)
        _store(f, f.op(f"add {_PAIR} {_load(f, frame, _PAIR)}, {step}"), frame)
    return tile.out


def _increment(f: Func, digits: Sequence[str], bases: Sequence[str]) -> list[str]:
    """The digits of the next number; division would take longer than small tiles."""
    out, carry = [], "1"
    for digit, base in zip(digits, bases, strict=False):
        more = f.op(f"add i64 {digit}, {carry}")
        over = f.icmp("eq", more, base)
        out.append(f.op(f"select i1 {over}, i64 0, i64 {more}"))
        carry = f.op(f"zext i1 {over} to i64")
    return [*out, f.op(f"add i64 {digits[-1]}, {carry}")]
