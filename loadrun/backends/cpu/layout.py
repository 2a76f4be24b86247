"""Where the elements of an image tensor lie in memory.

A logical tensor is always (n, c, h, w). In memory channels come in blocks of `lanes`:
element (n, c, y, x) of an image with strides in bytes is at

    origin + n*image + (c // lanes)*block + y*row + x*pixel + (c % lanes)*4

`lanes` = the target's vector length is the layout of convolutions ("blocked"); `lanes` = 1 is
NCHW, with or without padding ("planar"). Around the pixels there may be a halo: memory that
belongs to the tensor, is zero from the start and is never written, so that convolutions
need no border code. Lanes beyond `c` in the last block hold unspecified values: no kernel may
let one reach a real result.

A "ring" holds one image's last rows only: row y lies where row y % `ring` does, and behind the
rows of each block, where the halo asks for rows above or below the image, one more of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

ITEM = 4  # bytes of a float32


@dataclass(frozen=True, slots=True)
class Halo:
    """Extra pixels on each side."""

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0

    def union(self, other: Halo) -> Halo:
        """The larger on each side."""
        return Halo(
            max(self.top, other.top),
            max(self.left, other.left),
            max(self.bottom, other.bottom),
            max(self.right, other.right),
        )

    def covers(self, other: Halo) -> bool:
        """At least as large on each side."""
        return self.union(other) == self

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.top or self.left or self.bottom or self.right)


@dataclass(frozen=True, slots=True)
class Image:
    """Layout of an image tensor; strides, origin and nbytes in bytes."""

    n: int
    c: int
    h: int
    w: int
    lanes: int
    halo: Halo
    row: int
    block: int
    image: int
    origin: int
    item: int = ITEM
    ring: int = 0

    @property
    def pixel(self) -> int:
        """Bytes from a pixel to the next in its row."""
        return self.item * self.lanes

    @property
    def blocks(self) -> int:
        """Channel blocks."""
        return -(-self.c // self.lanes)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, halo included."""
        return self.blocks * self.block if self.ring else self.n * self.image

    @property
    def dense_rows(self) -> bool:
        """A block's pixels follow each other without gaps."""
        return self.row == self.w * self.pixel

    @property
    def plain(self) -> bool:
        """The memory is exactly a contiguous NCHW array."""
        return (
            self.lanes == 1
            and self.dense_rows
            and self.block == self.h * self.row
            and self.image == self.c * self.block
        )

    def key(self) -> str:
        """Short text with every number that code can depend on."""
        return (
            f"{self.n}_{self.c}_{self.h}_{self.w}_l{self.lanes}_"
            f"{self.row}_{self.block}_{self.image}_{self.origin}_{self.item}_{self.ring}"
        )


def blocked(
    n: int, c: int, h: int, w: int, lanes: int, halo: Halo | None = None, *, item: int = ITEM
) -> Image:
    """The layout of convolutions: blocks of `lanes` channels of `item` bytes, one after another."""
    halo = halo or Halo()
    pixel = item * lanes
    row = (w + halo.left + halo.right) * pixel
    block = _apart((h + halo.top + halo.bottom) * row, pixel)
    image = -(-c // lanes) * block
    origin = halo.top * row + halo.left * pixel
    return Image(n, c, h, w, lanes, halo, row, block, image, origin, item)


def _apart(block: int, pixel: int) -> int:
    """Blocks 4096 bytes apart would share one set of the first-level cache."""
    return block + 5 * pixel if block % 4096 == 0 else block


def ring(whole: Image, rows: int) -> Image:
    """The blocked layout of `whole` with `rows` rows in memory, for all images in turn."""
    halo = whole.halo
    zeros = 1 if halo.top or halo.bottom else 0
    block = _apart((rows + zeros) * whole.row, whole.pixel)
    origin = halo.left * whole.pixel
    return replace(whole, block=block, image=0, origin=origin, ring=rows)


def plain(n: int, c: int, h: int, w: int) -> Image:
    """A contiguous NCHW array."""
    return Image(n, c, h, w, 1, Halo(), w * ITEM, h * w * ITEM, c * h * w * ITEM, 0)


def planar(n: int, c: int, h: int, w: int, halo: Halo, lanes: int) -> Image:
    """NCHW with a zero halo, for convolutions with few input channels.

    Rows start at a vector boundary `lanes` floats before the first pixel, so that the copy
    into it stores whole vectors, and are an odd number of 64-byte lines long, which
    spreads them over the cache sets.
    """
    left = -(-max(halo.left, 1) // lanes) * lanes
    lines = -(-(left + w + halo.right) * ITEM // 64)
    row = (lines | 1) * 64
    block = (h + halo.top + halo.bottom) * row
    grown = Halo(halo.top, left, halo.bottom, row // ITEM - left - w)
    return Image(n, c, h, w, 1, grown, row, block, c * block, halo.top * row + left * ITEM)
