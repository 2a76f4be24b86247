"""The loops of Winograd's algorithm: functions for all convolutions, driven by a table.

The table's words are those of `FIELDS` in order, then

* two runs of equal register tiles: function, tiles, bytes from one to the next;
* the output transforms: for full and for edge rows of tiles, for full and for edge tiles;
* the input transform.

What the algorithm does and how its data lie: winograd.py.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.kernels import common, micro
from loadrun.backends.cpu.kernels import winograd_math as wm
from loadrun.backends.cpu.kernels.common import Epilogue
from loadrun.backends.cpu.plan import Part
from loadrun.backends.cpu.target import Target

FIELDS = (
    *micro.SIZES,
    "x_row",
    "v_point",
    "m_point",
    "y_row",
    "res_row",
    "m",  # pixels of a tile along either axis
    "images",
    "units",  # by rows: of an image; by panels: of all
    "copies",  # of V
    "span",  # (image, channel block) pairs that a unit transforms
    "down",  # rows of tiles
    "across",  # tiles of a row
    "block_rows",  # rows of tiles of a unit
    "full_rows",  # rows of whole tiles
    "full_tiles",  # whole tiles of a row
    "edge_tiles",  # 1 if a narrower tile follows
    "blocks",  # of input channels
    "panels",
    "nb",
    "points",
    "panel_bytes",  # of one point
    "fetch_tile",
    "x_start",
    "x_image",
    "x_block",
    "y_start",
    "y_image",
    "y_block",
    "res_start",
    "res_image",
    "res_block",
    "v_image",
    "v_bytes",  # of V in scratch
)
_RUN, _RUNS = 3, 2
Run = tuple[str, int, int]


def words(
    fields: Mapping[str, int],
    runs: Sequence[Run],
    outputs: Mapping[tuple[int, int], str],
    source: str,
) -> list[int | str]:
    """The table; `outputs` by (1 for edge rows, 1 for edge tiles), `source` the input transform."""
    out: list[int | str] = [fields[name] for name in FIELDS]
    for run in [*runs, ("", 0, 0)][:_RUNS]:
        out += [run[0] or 0, *run[1:]]
    out += [outputs.get((row, tile)) or 0 for row in (0, 1) for tile in (0, 1)]
    return [*out, source]


def _word(f: Func, name: str) -> str:
    return f.load_i64("%sizes", 8 * FIELDS.index(name))


@functools.cache
def input_tile(m: int, target: Target) -> Part:
    """B^T d B of one tile and one vector of channels: parameters (in, v, sizes)."""
    f = Func("in", [("ptr", "in"), ("ptr", "v"), ("ptr", "sizes")], target, external=True)
    bt, n, vb = wm.matrices(m)[2], m + 2, target.vector_bytes
    # Half done, the tile waits on the stack: too large for the registers, it would go there anyway,
    # but not aligned.
    half = f.op(f"alloca [{n * n * vb} x i8], align {vb}")
    row = _word(f, "x_row")
    with f.loop(0, n, 1, [("ptr", "%in"), ("ptr", half)]) as c:
        source, to = c.v
        column = wm.apply_rows(f, bt, [f.load(p) for p in _spaced(f, source, row, n)])
        for i, value in enumerate(column):
            f.store(value, to, i * n * vb)
        c.next = [f.gep(source, vb), f.gep(to, vb)]
    step = _word(f, "v_point")
    with f.loop(0, n, 1, [("ptr", half), ("ptr", "%v")]) as r:
        source, to = r.v
        line = wm.apply_rows(f, bt, [f.load(source, j * vb) for j in range(n)])
        for value, place in zip(line, _spaced(f, to, step, n), strict=True):
            f.store(value, place)
        r.next = [f.gep(source, n * vb), f.gep(to, f.mul(step, n))]
    return common.shared(f"winograd{m}_in", f)


def _spaced(f: Func, base: str, step: Int, count: int) -> list[str]:
    """`count` pointers from `base`, each a step after the last."""
    return [f.gep(base, f.mul(step, k)) for k in range(count)]


@functools.cache
def output_tile(m: int, high: int, wide: int, epilogue: Epilogue, target: Target) -> Part:
    """One tile of one output vector, of which `high` x `wide` pixels exist.

    Parameters are (m, bias, out, res, sizes).
    """
    names = ("m", "bias", "out", "res", "sizes")
    f = Func("out", [("ptr", name) for name in names], target, external=True)
    at, n, vb = wm.matrices(m)[0], m + 2, target.vector_bytes
    step = _word(f, "m_point")
    rows = [_spaced(f, base, step, n) for base in _spaced(f, "%m", f.mul(step, n), n)]
    columns = [wm.apply_columns(f, at, [f.load(rows[r][c]) for r in range(n)]) for c in range(n)]
    bias = f.load("%bias")
    operand = common.needs_operand(epilogue)
    outs = _spaced(f, "%out", _word(f, "y_row"), high)
    others = _spaced(f, "%res", _word(f, "res_row"), high) if operand else outs
    for r in range(high):
        row = wm.apply_columns(f, at, [columns[c][r] for c in range(n)])
        for c, value in enumerate(row[:wide]):
            other = f.load(others[r], c * vb) if operand else ""
            value = common.apply(f, f.fadd(value, bias), epilogue, other)
            f.store(value, outs[r], c * vb)
    return common.shared(f"winograd{m}_out{high}x{wide}{epilogue.tag()}", f)


class _Driver:
    """An entry point whose table and argument pointers are loaded."""

    def __init__(self, names: Sequence[str], target: Target) -> None:
        self.target, self.vb = target, target.vector_bytes
        self.f = f = common.entry("", target)
        self.table = common.table(f)
        self.m = self.word("m")
        self.tile = f.mul(self.m, self.vb)
        self.frame = micro.frame(f)
        self.p = {name: f.load_ptr("%args", k) for k, name in enumerate(names)}

    def word(self, name: str) -> str:
        """A field of the table."""
        return self.f.load_i64(self.table, 8 * FIELDS.index(name))

    def function(self, k: int) -> str:
        """A symbol's address, by its place after the fields."""
        return self.f.load_ptr(self.table, len(FIELDS) + k)

    def call(self, function: str, *values: str) -> None:
        """Call a function of the table; all arguments are pointers."""
        self.f.do(f"call void {function}({', '.join(f'ptr {v}' for v in values)})")

    def transform(self, function: str, source: str, v: str, first: Int, block: Int) -> None:
        """Rows of tiles first.. of channel block `block` into V."""
        f, vb, across = self.f, self.vb, self.word("across")
        row = self.word("x_row")
        at = f.add(f.mul(block, self.word("x_block")), self.word("x_start"))
        at = f.add(at, f.mul(f.mul(first, self.m), row))
        tiles = f.mul(self.word("block_rows"), across)
        to = f.gep(v, f.mul(block, f.mul(tiles, vb)))
        down = f.mul(row, self.m)
        starts = [("ptr", f.gep(source, at)), ("ptr", to)]
        with f.loop(0, self.word("block_rows"), 1, starts, sure=True) as r:
            with f.loop(0, across, 1, [("ptr", p) for p in r.v], sure=True) as c:
                self.call(function, *c.v, self.table)
                c.next = [f.gep(c.v[0], self.tile), f.gep(c.v[1], vb)]
            r.next = [f.gep(r.v[0], down), c.out[1]]

    def products(self, v: str, m: str, u: str, taps: str) -> None:
        """All points of one panel: M = V U."""
        f = self.f
        size, share = self.word("panel_bytes"), self.word("fetch_tile")
        moves = [self.word("v_point"), self.word("m_point"), size]
        starts = [("ptr", v), ("ptr", m), ("ptr", u)]
        with f.loop(0, self.word("points"), 1, starts, sure=True) as point:
            w = point.v[2]
            micro.fill_frame(f, self.frame, w=w, taps=taps)
            places = [("ptr", p) for p in (*point.v[:2], f.gep(w, size))]
            for k in range(_RUNS):
                run = f.gep(self.table, 8 * (len(FIELDS) + k * _RUN))
                function = f.load_ptr(run, 0)
                step = f.load_i64(run, 16)
                with f.loop(0, f.load_i64(run, 8), 1, places) as tile:
                    source, out, ahead = tile.v
                    micro.fill_frame(f, self.frame, next=ahead)
                    self.call(function, source, out, self.frame, self.table)
                    tile.next = [f.gep(source, step), f.gep(out, step), f.gep(ahead, share)]
                places = [("ptr", p) for p in tile.out]
            point.next = [f.gep(p, move) for p, move in zip(point.v, moves, strict=True)]

    def write(self, m: str, p: Mapping[str, str], first: Int, panel: Int) -> None:
        """Output transform of one panel for rows of tiles first.. ."""
        f, vb, nb = self.f, self.vb, self.word("nb")
        across, full, edge = (self.word(n) for n in ("across", "full_tiles", "edge_tiles"))
        row_y, row_res = (f.mul(self.word(n), self.m) for n in ("y_row", "res_row"))
        outputs = _RUNS * _RUN
        with f.loop(0, nb, 1, [("ptr", m)], sure=True) as b:
            vector = f.add(f.mul(panel, nb), b.i)
            bias = f.gep(p["bias"], f.mul(vector, vb))
            places = []
            for name, stem, step in (("out", "y", row_y), ("res", "res", row_res)):
                at = f.add(f.mul(vector, self.word(f"{stem}_block")), self.word(f"{stem}_start"))
                places.append(f.gep(p[name], f.add(at, f.mul(first, step))))
            starts = [("ptr", x) for x in (b.v[0], *places)]
            with f.loop(0, self.word("block_rows"), 1, starts, sure=True) as r:
                last = f.icmp("sge", f.add(first, r.i), self.word("full_rows"))
                functions = [
                    f.op(
                        f"select i1 {last}, ptr {self.function(outputs + 2 + k)}, "
                        f"ptr {self.function(outputs + k)}"
                    )
                    for k in range(2)
                ]
                moves = [vb, self.tile, self.tile]
                with f.loop(0, full, 1, [("ptr", x) for x in r.v]) as c:
                    self.call(functions[0], c.v[0], bias, *c.v[1:], self.table)
                    c.next = [f.gep(x, move) for x, move in zip(c.v, moves, strict=True)]
                with f.when(f.icmp("ne", edge, 0)):
                    self.call(functions[1], c.out[0], bias, *c.out[1:], self.table)
                steps = [f.mul(across, vb), row_y, row_res]
                r.next = [f.gep(x, step) for x, step in zip(r.v, steps, strict=True)]
            b.next = [r.out[0]]

    def of_image(self, image: Int, *names: str) -> dict[str, str]:
        """The pointers, those called `names` moved to an image."""
        found = dict(self.p)
        stems = {"in": "x", "out": "y", "res": "res", "v": "v"}
        for name in names:
            at = self.f.mul(image, self.word(f"{stems[name]}_image"))
            found[name] = self.f.gep(found[name], at)
        return found

    def panel(self, u: str, panel: Int) -> str:
        """A panel's weights."""
        f = self.f
        return f.gep(u, f.mul(panel, f.mul(self.word("points"), self.word("panel_bytes"))))


_NAMES = ("in", "u", "bias", "out", "res", "taps")
_INPUT = _RUNS * _RUN + 4  # the input transform's place after the fields


@functools.cache
def by_rows(target: Target) -> Part:
    """Units are blocks of rows of tiles of an image; V and M are scratch."""
    d = _Driver(_NAMES, target)
    f, units, rows = d.f, d.word("units"), d.word("block_rows")
    with f.loop("%begin", "%end") as unit:
        p = d.of_image(f.div(unit.i, units), "in", "out", "res")
        # The last block ends with the image; it may repeat rows of the one before.
        first = f.mul(f.mod(unit.i, units), rows)
        first = f.min(first, f.sub(d.word("down"), rows))
        sums = f.gep("%scratch", d.word("v_bytes"))
        with f.loop(0, d.word("blocks"), sure=True) as block:
            d.transform(d.function(_INPUT), p["in"], "%scratch", first, block.i)
        with f.loop(0, d.word("panels"), sure=True) as panel:
            d.products("%scratch", sums, d.panel(p["u"], panel.i), p["taps"])
            d.write(sums, p, first, panel.i)
    return common.shared("winograd_rows", f)


@functools.cache
def transform(target: Target) -> Part:
    """Units are channel blocks of an image, or all of them for one copy of V; V is shared."""
    d = _Driver((*_NAMES, "v"), target)
    f, span, blocks = d.f, d.word("span"), d.word("blocks")
    with f.loop(f.mul("%begin", span), f.mul("%end", span)) as unit:
        made = f.div(unit.i, blocks)  # image of a copy
        source = d.of_image(f.mod(made, d.word("images")), "in")["in"]
        v = d.of_image(made, "v")["v"]
        d.transform(d.function(_INPUT), source, v, 0, f.mod(unit.i, blocks))
    return common.shared("winograd_transform", f)


@functools.cache
def by_panels(target: Target) -> Part:
    """Units are panels of output vectors of an image; V is ready, M is scratch."""
    d = _Driver((*_NAMES, "v"), target)
    f, images = d.f, d.word("images")
    with f.loop("%begin", "%end") as unit:
        panel, image = f.div(unit.i, images), f.mod(unit.i, images)
        p = d.of_image(image, "out", "res")
        # The copy for the share of the units that this thread most likely works on.
        copy = f.div(f.mul(unit.i, d.word("copies")), d.word("units"))
        v = d.of_image(f.add(f.mul(copy, images), image), "v")["v"]
        d.products(v, "%scratch", d.panel(p["u"], panel), p["taps"])
        d.write("%scratch", p, 0, panel)
    return common.shared("winograd_panels", f)
