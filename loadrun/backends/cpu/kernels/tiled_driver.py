"""The loops over a grid of register tiles: one function for all grids, driven by a table.

What a grid's own loops would cost to compile is more than most of its tiles cost, and what is read
from the table here costs some tens of cycles per unit of work. The table's words are those of
`FIELDS` in order, then eight runs of tiles of `RUN` words each: for full and for narrow panels, for
full rows and for the edge row, two runs of equal tiles:

    function, tiles, bytes from one tile to the next in input, output and operand

Source of the layout of work: tiled.py.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.kernels import common, micro
from loadrun.backends.cpu.plan import Part
from loadrun.backends.cpu.target import Target

FIELDS = (
    *micro.SIZES,
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
    "x_start",
    "x_image",
    "x_row",
    "y_start",
    "y_image",
    "y_row",
    "res_start",
    "res_image",
    "res_row",
    "group_bytes",  # weights
    "panel_bytes",
    "weight_image",
    "bias_vector",
    "fetch_panel",  # from a panel to the one that is fetched
    "fetch_row",
    "fetch_tile",
)
RUN = 5
Run = tuple[str, int, int, int, int]


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
    table = f.op(f"load ptr, ptr {f.gep('%args', -8)}, align 8")
    p = [f.load_ptr("%args", k) for k in range(6)]

    def word(name: str) -> str:
        return f.load_i64(table, 8 * FIELDS.index(name))

    bases = [word(f"base{k}") for k in range(3)]
    swapped = f.icmp("ne", word("panels_first"), 0)
    digits: list[Int] = []
    rest: Int = "%begin"
    for base in bases:
        digits.append(f.mod(rest, base))
        rest = f.div(rest, base)
    with f.loop("%begin", "%end", 1, [("i64", d) for d in (*digits, rest)]) as unit:
        d = unit.v
        names = [f.op(f"select i1 {swapped}, i64 {d[k]}, i64 {d[(k + 2) % 4]}") for k in range(4)]
        chunk, image, inside, group = names
        vector = f.add(f.mul(group, word("vectors")), f.mul(inside, word("nb")))

        def place(base: str, stem: str, *more: Int) -> str:
            at = f.add(word(f"{stem}_start"), f.mul(image, word(f"{stem}_image")))
            for extra in more:
                at = f.add(at, extra)
            return f.gep(base, at)

        source = place(p[0], "x")
        out = place(p[3], "y", f.mul(vector, word("obs")))
        operand = place(p[4], "res", f.mul(vector, word("rbs")))
        at = f.add(f.mul(group, word("group_bytes")), f.mul(inside, word("panel_bytes")))
        weights = f.gep(p[1], f.add(at, f.mul(image, word("weight_image"))))
        bias = f.gep(p[2], f.mul(vector, word("bias_vector")))
        taps = f.gep(p[5], f.mul(group, word("taps_bytes")))
        first = f.mul(chunk, word("chunk"))
        last = f.min(f.add(first, word("chunk")), word("row_tiles"))
        narrow = f.icmp("sge", inside, word("main"))
        runs = f.gep(table, 8 * len(FIELDS))
        size = 8 * RUN
        runs = f.gep(runs, f.op(f"select i1 {narrow}, i64 {4 * size}, i64 0"))
        fixed = (weights, bias, taps)
        with f.loop(first, last, sure=True) as row:
            starts = [
                f.gep(source, f.mul(row.i, word("x_row"))),
                f.gep(out, f.mul(row.i, word("y_row"))),
                f.gep(operand, f.mul(row.i, word("res_row"))),
            ]
            ahead = f.add(word("fetch_panel"), f.mul(f.sub(row.i, first), word("fetch_row")))
            starts.append(f.gep(weights, ahead))
            edge = f.icmp("sge", row.i, word("full"))
            run = f.gep(runs, f.op(f"select i1 {edge}, i64 {2 * size}, i64 0"))
            with f.loop(0, 2, 1, [*(("ptr", s) for s in starts), ("ptr", run)]) as k:
                after = _tiles(f, table, k.v[4], k.v[:4], fixed)
                k.next = [*after, f.gep(k.v[4], size)]
        unit.next = _increment(f, d, bases)
    return common.shared("tiled", f)


def _increment(f: Func, digits: Sequence[str], bases: Sequence[str]) -> list[str]:
    """The digits of the next number; division would take longer than small tiles."""
    out, carry = [], "1"
    for digit, base in zip(digits, bases, strict=False):
        more = f.op(f"add i64 {digit}, {carry}")
        over = f.icmp("eq", more, base)
        out.append(f.op(f"select i1 {over}, i64 0, i64 {more}"))
        carry = f.op(f"zext i1 {over} to i64")
    return [*out, f.op(f"add i64 {digits[-1]}, {carry}")]


def _tiles(
    f: Func, table: str, run: str, starts: Sequence[str], fixed: tuple[str, str, str]
) -> list[str]:
    """The tiles of one run; returns the places after them."""
    weights, bias, taps = fixed
    function = f.load_ptr(run, 0)
    steps = [f.load_i64(run, 8 * k) for k in range(2, RUN)]
    steps.append(f.load_i64(table, 8 * FIELDS.index("fetch_tile")))
    with f.loop(0, f.load_i64(run, 8), 1, [("ptr", s) for s in starts]) as tile:
        source, out, operand, ahead = tile.v
        values = (source, weights, out, operand, ahead, taps, bias, table)
        args = ", ".join(f"{t} {v}" for (t, _), v in zip(micro.PARAMS, values, strict=True))
        f.do(f"call void {function}({args})")
        tile.next = [f.gep(v, s) for v, s in zip(tile.v, steps, strict=True)]
    return tile.out
