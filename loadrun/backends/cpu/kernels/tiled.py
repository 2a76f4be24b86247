"""A whole grid of outputs from register tiles: the common body of convolutions and products.

The grid has `images` times `rows` times `cols` output pixels ("pixel" is a row of the left matrix
in a product) and, for each of `groups` independent groups, a number of output vectors. Work units
are (chunk of row tiles) x (panel of `nb` output vectors), in one of two orders:

* rows first ("rows"): neighbouring units share their inputs; for large maps, and with one large
  chunk for each thread where the next operator wants the same rows on the same core;
* panels first ("panels"): neighbouring units share their weights, which are then read from
  far memory once.

With large chunks a tile prefetches its share of the next panel while it computes.

Argument table: 0 input, 1 weights, 2 bias, 3 output, 4 operand, 5 taps (i32 byte offsets).
Weights: [group][panel][tap][depth][nb * lanes], the last panel of a group possibly narrower.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.kernels import common, micro
from loadrun.backends.cpu.kernels.common import Epilogue, pieces
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

IN, WEIGHTS, BIAS, OUT, OPERAND, TAPS = range(6)


@dataclass(frozen=True, slots=True)
class Walk:
    """Byte strides of one tensor over the grid."""

    start: int
    image: int
    row: int
    pixel: int
    vector: int = 0  # from one output vector to the next


@dataclass(frozen=True, slots=True)
class Grid:
    """Shape of the work.

    Attributes:
        images, rows, cols: Output pixels; `last` more pixels form a shorter last row.
        vectors: Output vectors of a group.
        groups: Independent groups; each has its own taps, weights and output vectors.
        taps: Taps of a group.
        depth, step: Reduction steps per tap and bytes between their inputs.
        x, y, res: Strides; `res` is unused without an operand.
        tail: Floats in the last output vector that exist; 0 means all.
        aligned: Outputs are aligned to whole vectors.
        weight_image: Bytes from one image's weights to the next's (0: shared).
    """

    images: int
    rows: int
    cols: int
    vectors: int
    taps: int
    depth: int
    x: Walk
    y: Walk
    res: Walk
    groups: int = 1
    last: int = 0
    step: int = 4
    tail: int = 0
    aligned: bool = True
    weight_image: int = 0
    bias: bool = True
    accumulate: bool = False
    dot: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """How the grid is cut.

    Attributes:
        nb: Output vectors of a tile.
        width: Most pixels of a tile in a row.
        height: Rows of a tile (1 unless a tile holds whole rows).
        chunk: Row tiles of a work unit.
        panels_first: Order of the units.
        fetch: Prefetch the next panel; in order of panels it needs one chunk per image.
    """

    nb: int
    width: int
    height: int
    chunk: int
    panels_first: bool
    fetch: bool


class Tiled:
    """The kernel of a grid and the numbers that callers need for packing and splitting."""

    def __init__(
        self, spec: str, grid: Grid, choice: Choice, epilogue: Epilogue, target: Target
    ) -> None:
        self.grid, self.choice, self.epilogue, self.target = grid, choice, epilogue, target
        g, c = grid, choice
        self.main, self.narrow = divmod(g.vectors, c.nb)
        if g.tail and not self.narrow:
            self.main, self.narrow = self.main - 1, c.nb  # the tail needs code of its own
        self.panels = self.main + (1 if self.narrow else 0)
        self.full, self.rest = divmod(g.rows, c.height)
        if g.last and (self.rest or c.height != 1):
            raise ValueError("a shorter last row needs tiles of one row")
        self.row_tiles = self.full + (1 if self.rest or g.last else 0)
        self.chunks = -(-self.row_tiles // c.chunk)
        self.units = g.images * self.chunks * g.groups * self.panels
        self.panel_bytes = g.taps * g.depth * c.nb * target.vector_bytes
        self.group_bytes = g.taps * g.depth * g.vectors * target.vector_bytes
        self.cols = pieces(g.cols, c.width) if g.rows else []
        tiles = sum(n for _, n in self.cols) * self.full
        tiles += sum(n for _, n in self._edge_cols())
        self.fetch_lines = 0
        if c.fetch and (self.chunks == 1 or not c.panels_first):
            per_tap = g.depth * c.nb * target.vector_bytes
            # Tiles that go by before the next panel's turn.
            turn = tiles * g.images if c.panels_first else tiles
            if self.chunks > 1:
                turn = sum(n for _, n in self.cols) * c.chunk
            self.fetch_lines = -(-per_tap // (micro.LINE * max(turn, 1)))
        self._tiles = tiles
        self._micro: dict[tuple[int, int, int, int], str] = {}
        self._functions: list[Func] = []
        self.kernel: Kernel = self._build(spec)

    def _edge_cols(self) -> list[tuple[int, int]]:
        if self.grid.last:
            return pieces(self.grid.last, self.choice.width)
        return self.cols if self.rest else []

    # -- code
    def _build(self, spec: str) -> Kernel:
        f = common.entry("", self.target)
        pointers = [f.load_ptr("%args", k) for k in range(6)]
        with f.loop("%begin", "%end") as unit:
            self._unit(f, unit.i, pointers)
        self._functions.append(f)
        return common.finish(spec, self._functions, [(f, self.units)])

    def _unit(self, f: Func, unit: Int, p: list[str]) -> None:
        """Decode a unit's number, then run its tiles."""
        g, per_image = self.grid, self.chunks
        panels = g.groups * self.panels
        if self.choice.panels_first:
            panel, where = f.div(unit, g.images * per_image), f.mod(unit, g.images * per_image)
        else:
            where, panel = f.div(unit, panels), f.mod(unit, panels)
        image, chunk = f.div(where, per_image), f.mod(where, per_image)
        group, inside = f.div(panel, self.panels), f.mod(panel, self.panels)
        taps = f.gep(p[TAPS], f.mul(group, 4 * g.taps))
        source = f.gep(p[IN], f.add(g.x.start, f.mul(image, g.x.image)))
        vector = f.add(f.mul(group, g.vectors), f.mul(inside, self.choice.nb))
        out = f.add(f.mul(image, g.y.image), f.mul(vector, g.y.vector))
        out = f.gep(p[OUT], f.add(g.y.start, out))
        operand = p[OPERAND]
        if common.needs_operand(self.epilogue):
            at = f.add(f.mul(image, g.res.image), f.mul(vector, g.res.vector))
            operand = f.gep(operand, f.add(g.res.start, at))
        at = f.add(f.mul(group, self.group_bytes), f.mul(inside, self.panel_bytes))
        weights = f.gep(p[WEIGHTS], f.add(at, f.mul(image, g.weight_image)))
        bias = f.gep(p[BIAS], f.mul(vector, self.target.vector_bytes)) if g.bias else p[BIAS]
        low = f.mul(chunk, self.choice.chunk)
        high = f.min(f.add(low, self.choice.chunk), self.row_tiles)
        args = [source, weights, bias, out, operand, taps]
        if not self.narrow:
            self._rows(f, args, low, high, self.choice.nb, 0)
        elif not self.main:
            self._rows(f, args, low, high, self.narrow, g.tail)
        elif isinstance(inside, int):
            raise AssertionError("two kinds of panels need a counter")
        else:
            with f.when(f.icmp("slt", inside, self.main)):
                self._rows(f, args, low, high, self.choice.nb, 0)
            with f.when(f.icmp("eq", inside, self.main)):
                self._rows(f, args, low, high, self.narrow, g.tail)

    def _rows(self, f: Func, p: list[str], low: Int, high: Int, nb: int, tail: int) -> None:
        """Row tiles [low, high), of which the last of all may have another shape."""
        edge = self._edge_cols()
        stop = f.min(high, self.full) if edge else high
        if self.full:
            with f.loop(low, stop) as row:
                self._row(f, p, row.i, low, self.cols, self.choice.height, nb, tail)
        if edge:
            height = self.rest or 1
            with f.when(f.icmp("sgt", high, self.full)):
                self._row(f, p, self.full, low, edge, height, nb, tail)

    def _row(
        self,
        f: Func,
        p: list[str],
        row: Int,
        low: Int,
        cols: list[tuple[int, int]],
        height: int,
        nb: int,
        tail: int,
    ) -> None:
        """All tiles of one row tile of a chunk that starts at row tile `low`."""
        g, step = self.grid, self.choice.height
        source = f.gep(p[IN], f.mul(row, g.x.row * step))
        out = f.gep(p[OUT], f.mul(row, g.y.row * step))
        operand = f.gep(p[OPERAND], f.mul(row, g.res.row * step))
        share = g.taps * self.fetch_lines * micro.LINE
        following = p[WEIGHTS]
        if self.fetch_lines:
            following = f.gep(following, self.panel_bytes)
            number = f.mul(f.sub(row, low), sum(n for _, n in self.cols) * share)
            following = f.gep(following, number)
        x = done = 0
        for width, count in cols:
            name = self._tile(width, height, nb, tail)
            with f.loop(0, count) as tile:
                at = f.add(f.mul(tile.i, width), x) if count > 1 else x
                f.call(
                    name,
                    [
                        ("ptr", f.gep(source, f.mul(at, g.x.pixel))),
                        ("ptr", p[WEIGHTS]),
                        ("ptr", p[BIAS]),
                        ("ptr", f.gep(out, f.mul(at, g.y.pixel))),
                        ("ptr", f.gep(operand, f.mul(at, g.res.pixel))),
                        ("ptr", p[TAPS]),
                        ("i64", g.taps),
                        ("i64", g.y.vector),
                        ("i64", g.res.vector),
                        ("ptr", f.gep(following, f.mul(f.add(tile.i, done), share))),
                    ],
                )
            x += width * count
            done += count

    def _tile(self, width: int, height: int, nb: int, tail: int) -> str:
        key = (width, height, nb, tail)
        if key not in self._micro:
            g = self.grid
            at = [(y, x) for y in range(height) for x in range(width)]
            tile = micro.Tile(
                in_offsets=tuple(y * g.x.row + x * g.x.pixel for y, x in at),
                out_offsets=tuple(y * g.y.row + x * g.y.pixel for y, x in at),
                res_offsets=tuple(y * g.res.row + x * g.res.pixel for y, x in at),
                nb=nb,
                depth=g.depth,
                step=g.step,
                bias=g.bias,
                accumulate=g.accumulate,
                epilogue=self.epilogue,
                fetch_lines=self.fetch_lines,
                aligned=g.aligned,
                tail=tail,
                part=0 if g.dot else micro.part_of(g.taps, g.depth),
                dot=g.dot,
            )
            name = f"tile{width}x{height}x{nb}" + ("t" if tail else "")
            f = micro.emit_tile(name, tile, self.target)
            self._functions.append(f)
            self._micro[key] = f.name
        return self._micro[key]
