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

from loadrun.backends.cpu.kernels import common, micro, tiled_driver
from loadrun.backends.cpu.kernels.common import Epilogue, pieces
from loadrun.backends.cpu.plan import Kernel, Part
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
        self.kernel: Kernel = self._build(spec)

    def _edge_cols(self) -> list[tuple[int, int]]:
        if self.grid.last:
            return pieces(self.grid.last, self.choice.width)
        return self.cols if self.rest else []

    def _build(self, spec: str) -> Kernel:
        """The table for the driver, and the tiles that it names."""
        g, c = self.grid, self.choice
        operand = common.needs_operand(self.epilogue)
        res = g.res if operand else Walk(0, 0, 0, 0)
        share = g.taps * self.fetch_lines * micro.LINE
        bases = [self.chunks, g.images, self.panels, g.groups]
        if not c.panels_first:
            bases = bases[2:] + bases[:2]
        rows = [w.row * c.height for w in (g.x, g.y, res)]
        vectors = {
            "start": (g.x.start, g.y.start, res.start, self.panel_bytes if share else 0),
            "image": (g.x.image, g.y.image, res.image, 0),
            "vector": (0, g.y.vector, res.vector, 0),
            "first": (*rows, 0),
            "row": (*rows, sum(n for _, n in self.cols) * share),
        }
        fields = {
            "ntaps": g.taps,
            "obs": g.y.vector,
            "rbs": res.vector,
            "part": max(self._part(), 1),
            **{f"{name}{k}": n for name, four in vectors.items() for k, n in enumerate(four)},
            **{f"base{k}": base for k, base in enumerate(bases[:3])},
            "panels_first": int(c.panels_first),
            "main": self.main,
            "chunk": c.chunk,
            "row_tiles": self.row_tiles,
            "full": self.full,
            "vectors": g.vectors,
            "nb": c.nb,
            "taps_bytes": 4 * g.taps,
            "group_bytes": self.group_bytes,
            "panel_bytes": self.panel_bytes,
            "weight_image": g.weight_image,
            "bias_vector": self.target.vector_bytes if g.bias else 0,
        }
        runs: dict[tuple[int, int], list[tiled_driver.Run]] = {}
        tiles: list[Part] = []
        for narrow, nb, tail in self._widths():
            for edge, height, cols in self._heights():
                for width, count in cols:
                    tile = self._tile(width, height, nb, tail)
                    tiles.append(tile)
                    steps = (width * g.x.pixel, width * g.y.pixel, width * res.pixel, share)
                    runs.setdefault((narrow, edge), []).append((tile.symbol, count, *steps))
        driver = tiled_driver.driver(self.target)
        words = tiled_driver.words(fields, runs)
        return common.described(spec, [(driver, self.units)], words, tiles)

    def _widths(self) -> list[tuple[int, int, int]]:
        """The kinds of panels: (1 for narrow, output vectors, tail)."""
        found = [(0, self.choice.nb, 0)] if self.main else []
        return found + ([(1, self.narrow, self.grid.tail)] if self.narrow else [])

    def _heights(self) -> list[tuple[int, int, list[tuple[int, int]]]]:
        """The kinds of row tiles: (1 for the edge, rows, widths of tiles)."""
        found = [(0, self.choice.height, self.cols)] if self.full else []
        edge = self._edge_cols()
        return found + ([(1, self.rest or 1, edge)] if edge else [])

    def _part(self) -> int:
        return 0 if self.grid.dot else micro.part_of(self.grid.taps, self.grid.depth)

    def _tile(self, width: int, height: int, nb: int, tail: int) -> Part:
        """Code for one shape of tile."""
        g, tall = self.grid, height > 1

        def walk(w: Walk) -> micro.Walk:
            return (w.row if tall else 0, w.pixel if width > 1 else 0)

        tile = micro.Tile(
            height,
            width,
            walk(g.x),
            walk(g.y),
            nb,
            g.depth if g.taps else 0,
            step=g.step,
            res=walk(g.res) if common.needs_operand(self.epilogue) else (0, 0),
            bias=g.bias,
            epilogue=self.epilogue,
            fetch_lines=self.fetch_lines,
            aligned=g.aligned,
            tail=tail,
            parts=self._part() > 0,
            dot=g.dot,
        )
        return micro.shared_tile(tile, self.target)
