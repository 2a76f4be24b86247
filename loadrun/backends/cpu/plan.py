"""What a compiled model will do, as data: buffers, kernels, steps, phases.

A plan is made for fixed shapes, one target and a number of threads. It holds no pointers and
no code addresses, so it can be printed, compared and checked.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loadrun.backends.cpu.layout import Image

Array = np.ndarray[Any, np.dtype[Any]]


class Place(enum.Enum):
    """Whose memory a buffer is in."""

    ARENA = "arena"  # shared with others when lifetimes do not overlap
    HALO = "halo"  # zero halo: shared with buffers of the same layout only
    RING = "ring"  # rows of a band's tensor, for each chunk of bands apart: shared with other rings
    INPUT = "input"  # the caller's array
    OUTPUT = "output"  # the caller's array
    CONST = "const"  # weights and tables, read only


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor in memory.

    Attributes:
        name: Unique in the plan.
        nbytes: Size in bytes, halo included.
        place: Whose memory.
        shape: Logical shape.
        dtype: Numpy's name of the element type.
        image: Layout of an image tensor; None for a contiguous array.
        alias: Name of the buffer whose memory this one is, under another shape; or empty.
        scratch: It serves one operator's algorithm and holds no tensor.
    """

    name: str
    nbytes: int
    place: Place
    shape: tuple[int, ...]
    dtype: str = "float32"
    image: Image | None = None
    alias: str = ""
    scratch: bool = False

    def __str__(self) -> str:
        """One line."""
        how = f"lanes {self.image.lanes} halo {self.image.halo}" if self.image else "contiguous"
        if self.image and self.image.ring:
            how += f" ring of {self.image.ring} rows"
        return (
            f"{self.name}: {self.dtype}{list(self.shape)} {self.place.value} {self.nbytes} B {how}"
        )


@dataclass(frozen=True, slots=True)
class Const:
    """Contents of a constant buffer.

    Attributes:
        nbytes: Size in bytes.
        write: Writes them into bytes, all of them; called once, unless the cache has them.
        key: Gives the cache key over everything the contents depend on, or ''; called when a
            cache may hold them, or is to hold them.
    """

    nbytes: int
    write: Callable[[Array], None] = field(repr=False)
    key: Callable[[], str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry point of a kernel and its work units [first, first + units).

    Units are independent, unless they are `ordered`: then one thread runs them all, in order.
    """

    symbol: str
    units: int
    first: int = 0
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """How a step's units relate to rows of its output, for running in bands.

    Unit u covers output rows [u*rows_per_unit, (u+1)*rows_per_unit) of its image, if
    `units_per_row` is 1, else `units_per_row` units make a row. An output row y needs rows
    [y*stride - pad, y*stride - pad + window) of the first input, and row y of others. `wraps`: the
    first input is a ring, and the kernel finds its rows there.
    """

    rows: int
    rows_per_unit: int = 1
    units_per_row: int = 1
    window: int = 1
    stride: int = 1
    pad: int = 0
    wraps: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A function that kernels share: a module that defines `symbol`, named after its contents."""

    symbol: str
    ir: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Kernel:
    """Generated code.

    Attributes:
        name: Its specification; the prefix of all its symbols. Kernels of one name have the same
            code, but maybe other numbers of units.
        ir: Module text, or '' when shared parts are all. Entry points take (argument table,
            begin, end, scratch).
        entries: Run one after the other; units of one are independent.
        scratch: Bytes of private scratch a thread needs.
        parts: Shared code that the entries and the words name.
        words: A table for the entries: numbers, and symbols, which stand for their addresses. The
            word before the argument table points to it.
    """

    name: str
    ir: str = field(repr=False)
    entries: tuple[Entry, ...]
    scratch: int = 0
    parts: tuple[Part, ...] = ()
    words: tuple[int | str, ...] = ()

    def modules(self) -> dict[str, str]:
        """All code by name."""
        own = {self.name: self.ir} if self.ir else {}
        return {**own, **{p.symbol: p.ir for p in self.parts}}


@dataclass(frozen=True, slots=True)
class Arg:
    """A pointer argument: byte `offset` in a buffer."""

    buffer: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A kernel applied to buffers.

    Attributes:
        name: Unique; the operator(s) it stands for.
        kernel: The code.
        args: Pointer table.
        reads, writes: Buffers for lifetimes.
        algorithm: For people: `direct`, `winograd4`, `depthwise`, ...
        flops: Operations of the direct algorithm.
        rows: Set when the step can run in bands of rows.
    """

    name: str
    kernel: Kernel
    args: tuple[Arg, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    algorithm: str = ""
    flops: float = 0.0
    rows: Rows | None = None


@dataclass(frozen=True, slots=True)
class HostStep:
    """A Python function between native steps; arrays are contiguous views of buffers."""

    name: str
    run: Callable[[Sequence[Array]], Sequence[Array]] = field(repr=False)
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything needed to build a program.

    Attributes:
        threads: Threads the splits were chosen for.
        buffers: By name.
        consts: Contents of the buffers in `Place.CONST`.
        steps: In order.
        bands: (first, last) ranges of steps that run band by band of rows.
        inputs, outputs: Buffer names in the order of the model's.
    """

    threads: int
    buffers: dict[str, Buffer]
    consts: dict[str, Const]
    steps: tuple[Step | HostStep, ...]
    bands: tuple[tuple[int, int], ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        """Buffers and steps, one a line."""
        lines = [f"plan for {self.threads} threads"]
        lines += [f"  {b}" for b in self.buffers.values() if b.place is not Place.CONST]
        band_of = {i: k for k, (a, b) in enumerate(self.bands) for i in range(a, b)}
        for i, step in enumerate(self.steps):
            mark = f" band {band_of[i]}" if i in band_of else ""
            what = f"{step.kernel.name} {step.algorithm}" if isinstance(step, Step) else "python"
            flow = f"{','.join(step.reads)} -> {','.join(step.writes)}"
            lines.append(f"  {i:3d} {step.name}: {what} {flow}{mark}")
        return "\n".join(lines)
