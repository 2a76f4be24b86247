"""What a program will do on the device, as data: buffers, kernels, launches.

A plan is made for fixed shapes. It holds no addresses and no compiled code, so it can be printed,
compared and checked without a device.
"""

from __future__ import annotations

import enum
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from loadrun.arena import Lifetime
from mgeserial.ir.graph import Node

if TYPE_CHECKING:
    from loadrun.backends.cuda.variants import Choice

__all__ = [
    "STATUS",
    "Arg",
    "Array",
    "Buffer",
    "Convolution",
    "Convolve",
    "Decision",
    "Engine",
    "Gemm",
    "Host",
    "Kernel",
    "Launch",
    "Library",
    "Place",
    "Plan",
    "Pointer",
    "Step",
    "check_plan",
    "lifetimes",
    "segments",
]

# The buffer in which kernels note wrong inputs.
STATUS = "status"
Array = np.ndarray[Any, np.dtype[Any]]


class Place(enum.Enum):
    """Whose memory a buffer is in."""

    ARENA = "arena"  # shared with others when lifetimes do not overlap
    INPUT = "input"  # filled before each run
    OUTPUT = "output"  # read after each run
    CONST = "const"  # weights and tables, uploaded once
    STATUS = "status"  # zeroed before each run, checked after it
    HOST = "host"  # an array of the host: its shape is known at run time only


@dataclass(frozen=True, slots=True)
class Buffer:
    """A contiguous tensor.

    Attributes:
        name: Unique in the plan.
        dtype: Numpy's name of the element type in storage.
        shape: Its shape; () for a value whose shape only the run knows.
        place: Whose memory.
        alias: The buffer whose memory this one is, under another shape; or empty.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    place: Place
    alias: str = ""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        """One line."""
        shape = "x".join(map(str, self.shape)) or "?"
        same = f" = {self.alias}" if self.alias else ""
        return f"{self.name}: {self.dtype} {shape} {self.place.value}{same}"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's source.

    Attributes:
        name: Of its entry; it ends with a digest of the source.
        source: CUDA C++ without the prelude.
        cooperative: Whether its threads wait for each other.
    """

    name: str
    source: str = field(repr=False)
    cooperative: bool = False

    @classmethod
    def of(cls, stem: str, source: str) -> Kernel:
        """Name a source in which the entry is called `$NAME`."""
        digest = hashlib.sha256(source.encode()).hexdigest()[:10]
        name = f"{stem}_{digest}"
        text = source.replace("$NAME", name)
        return cls(name, text, "__syncthreads" in text or "__shfl" in text)


@dataclass(frozen=True, slots=True)
class Pointer:
    """An argument: the address of a buffer, `offset` bytes further."""

    buffer: str
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.buffer}+{self.offset}" if self.offset else self.buffer


Arg = Pointer | int | float


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel applied to buffers; its last arguments are int32 and float32 scalars.

    Attributes:
        name: Unique; the operators it stands for.
        kernel: The code.
        grid, block: Blocks, and threads of one.
        args: Arguments in order.
        reads, writes: Buffers, for lifetimes.
        work: Number of items that the grid must cover, along x, y and z.
        per_block: Items of one block.
        algorithm: For people.
        flops: Operations, for reports.
    """

    name: str
    kernel: Kernel
    grid: tuple[int, int, int]
    block: int
    args: tuple[Arg, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    work: tuple[int, int, int]
    per_block: tuple[int, int, int]
    algorithm: str = ""
    flops: float = 0.0


@dataclass(frozen=True, slots=True)
class Gemm:
    """C = A B for a batch, sums and C in float32.

    Attributes:
        batch, m, n, k: A is m x k, B is k x n.
        transpose_a, transpose_b: Whether an operand is stored the other way round.
        tf32: Whether float32 factors may be rounded to TF32.
        dtype: Of A and B: float32, float16 or bfloat16.
        shared_a: Whether all of the batch have the same A.
    """

    batch: int
    m: int
    n: int
    k: int
    transpose_a: bool = False
    transpose_b: bool = False
    tf32: bool = False
    dtype: str = "float32"
    shared_a: bool = False

    def __str__(self) -> str:
        turned = "nt"[self.transpose_a] + "nt"[self.transpose_b]
        more = [self.dtype] * (self.dtype != "float32") + ["tf32"] * self.tf32
        sizes = f"{'1:' if self.shared_a else ''}{self.batch}x{self.m}x{self.n}x{self.k}"
        return " ".join([f"gemm_{turned} {sizes}", *more])


@dataclass(frozen=True, slots=True)
class Library:
    """A product of matrices by the vendor's library."""

    name: str
    gemm: Gemm
    reads: tuple[str, str]
    writes: tuple[str]


# Sizes and strides of a tensor, in elements.
Layout = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution and what follows it, for the vendor's library of convolutions.

    Attributes:
        dtype: Of all tensors: float32 or float16; sums are float32.
        x, y: Image and result, each (sizes, strides) of image, channel, [depth,] row, column.
        w: Filter: of output channel, channel of the group, [depth,] row, column.
        stride, pad, dilate: Of the window, along each spatial dimension.
        bias: Whether a number for each channel is added.
        addend: Strides of a tensor of y's sizes that is added next; empty: none.
        activation: Of the sum: relu, relu6, sigmoid, tanh or silu; empty: none.
        tf32: Whether float32 factors may be rounded to TF32.
    """

    dtype: str
    x: Layout
    w: Layout
    y: Layout
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilate: tuple[int, ...]
    bias: bool = False
    addend: tuple[int, ...] = ()
    activation: str = ""
    tf32: bool = False

    @property
    def groups(self) -> int:
        """Groups of channels."""
        return self.x[0][1] // self.w[0][1]

    def __str__(self) -> str:
        """Sizes, and what follows the sums."""
        shapes = " * ".join("x".join(map(str, t[0])) for t in (self.x, self.w))
        more = ["bias"] * self.bias + ["addend"] * bool(self.addend) + [self.activation]
        return " ".join(["conv", shapes, *filter(None, more), *["tf32"] * self.tf32])


@dataclass(frozen=True, slots=True)
class Engine:
    """One of the library's ways to compute a convolution.

    Attributes:
        name: The library's name for it.
        workspace: Bytes of scratch memory that it needs.
    """

    name: str
    workspace: int = 0


@dataclass(frozen=True, slots=True)
class Convolve:
    """A convolution by the vendor's library.

    Attributes:
        name: Unique; the operators it stands for.
        spec: What.
        engine: How.
        reads: Image, filter, then bias and addend where there are such.
        writes: The result, then the workspace where one is needed.
    """

    name: str
    spec: Convolution
    engine: Engine
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Host:
    """Reference code between device steps: arrays are copied down and results up."""

    name: str
    run: Callable[[Sequence[Array]], Sequence[Array]] = field(repr=False)
    reads: tuple[str, ...]
    writes: tuple[str, ...]


Step = Launch | Library | Convolve | Host


@dataclass(frozen=True, slots=True)
class Decision:
    """How a convolution or a product of matrices is computed.

    Attributes:
        layer: Its signature: equal layers have equal ones.
        choice: What was taken.
        candidates: What could have been taken.
        steps: Names of the steps that compute it.
        exact: Whether sums are integers, so that their order does not show.
    """

    layer: str
    choice: Choice
    candidates: tuple[Choice, ...]
    steps: tuple[str, ...]
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything needed to build a program.

    Attributes:
        buffers: By name.
        consts: Contents of the buffers in `Place.CONST`.
        steps: In order.
        inputs, outputs: Buffer names in the order of the graph's; '' for an unused input.
        checks: Errors; a kernel that finds number k of them writes k + 1 to the buffer `status`.
        origins: For each step the operators of the graph that it computes.
        decisions: For each convolution and product of matrices, by its name, what was chosen.
    """

    buffers: dict[str, Buffer]
    consts: dict[str, Array] = field(repr=False)
    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    checks: tuple[str, ...] = ()
    origins: dict[str, tuple[Node, ...]] = field(default_factory=dict, repr=False)
    decisions: dict[str, Decision] = field(default_factory=dict, repr=False)

    def kernels(self) -> dict[str, Kernel]:
        """All kernels by name."""
        return {s.kernel.name: s.kernel for s in self.steps if isinstance(s, Launch)}

    def root(self, name: str) -> str:
        """The buffer whose memory a buffer is."""
        return self.buffers[name].alias or name

    def __str__(self) -> str:
        """Buffers and steps, one a line; kernels without their digest."""
        lines = [f"  {b}" for b in self.buffers.values() if b.place is not Place.CONST]
        for i, step in enumerate(self.steps):
            lines.append(f"  {i:3d} {step.name}: {describe(step)}")
        return "\n".join(lines)


def describe(step: Step) -> str:
    """A step without its name, in one line."""
    flow = f"{','.join(step.reads)} -> {','.join(step.writes)}"
    if isinstance(step, Host):
        return f"reference code {flow}"
    if isinstance(step, Library):
        return f"{step.gemm} {flow}"
    if isinstance(step, Convolve):
        return f"{step.spec} by {step.engine.name} {flow}"
    grid = "x".join(map(str, step.grid))
    scalars = " ".join(str(a) for a in step.args if not isinstance(a, Pointer))
    stem = step.kernel.name.rpartition("_")[0]
    how = f" {step.algorithm}" if step.algorithm else ""
    return f"{stem}{how} <{grid},{step.block}> {flow} [{scalars}]"


def segments(plan: Plan) -> list[tuple[int, int]]:
    """Ranges of steps that run on the device without the host in between."""
    found, begin = [], 0
    for i, step in enumerate(plan.steps):
        if isinstance(step, Host):
            if i > begin:
                found.append((begin, i))
            begin = i + 1
    if len(plan.steps) > begin:
        found.append((begin, len(plan.steps)))
    return found


def lifetimes(plan: Plan) -> list[Lifetime]:
    """First and last use of every buffer in the arena, in steps, aliases counted to their root."""
    uses: dict[str, list[int]] = {}
    for i, step in enumerate(plan.steps):
        for name in (*step.reads, *step.writes):
            uses.setdefault(plan.root(name), []).append(i)
    return [
        Lifetime(b.name, max(b.nbytes, 1), min(uses[b.name]), max(uses[b.name]))
        for b in plan.buffers.values()
        if b.place is Place.ARENA and not b.alias and b.name in uses
    ]


def check_plan(plan: Plan) -> list[str]:
    """What is wrong with a plan; empty for a sound one.

    Every launch covers its work, names exist, and every buffer is written before it is read.
    """
    problems: list[str] = []
    written = {plan.root(n) for n in plan.inputs if n} | set(plan.consts) | {STATUS}
    names: set[str] = set()
    for step in plan.steps:
        if step.name in names:
            problems.append(f"{step.name}: a second step of this name")
        names.add(step.name)
        unknown = [n for n in (*step.reads, *step.writes) if n not in plan.buffers]
        if unknown:
            problems.append(f"{step.name}: no buffer {unknown[0]}")
            continue
        early = [n for n in step.reads if plan.root(n) not in written]
        problems += [f"{step.name}: reads {n} before it is written" for n in early]
        written |= {plan.root(n) for n in step.writes}
        if isinstance(step, Launch):
            problems += _check_launch(plan, step)
    problems += [
        f"output {n} is never written" for n in plan.outputs if plan.root(n) not in written
    ]
    return problems


def _check_launch(plan: Plan, step: Launch) -> list[str]:
    problems = []
    covered = [g * p for g, p in zip(step.grid, step.per_block, strict=True)]
    if any(c < w for c, w in zip(covered, step.work, strict=True)):
        problems.append(f"{step.name}: the grid covers {covered} of {step.work}")
    if not (0 < step.grid[0] < 1 << 31 and all(0 < g < 1 << 16 for g in step.grid[1:])):
        problems.append(f"{step.name}: no grid of a device: {step.grid}")
    if step.block % 32 or not 0 < step.block <= 1024:
        problems.append(f"{step.name}: no block of whole warps: {step.block}")
    known = {*step.reads, *step.writes}
    for arg in step.args:
        if isinstance(arg, Pointer) and arg.buffer not in known:
            problems.append(f"{step.name}: {arg.buffer} is neither read nor written")
        if isinstance(arg, Pointer) and arg.offset >= max(1, plan.buffers[arg.buffer].nbytes):
            problems.append(f"{step.name}: {arg} points behind the buffer")
    return problems
