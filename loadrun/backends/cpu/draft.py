"""A plan under construction: buffers, constants and steps, and the forms each tensor exists in.

A tensor can exist as a contiguous array ("plain"), as a blocked image, and as planar images with
halos. A form that is asked for and does not exist yet is made by a copy step.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeVar

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.cache import digest
from loadrun.backends.cpu.candidates import layer_key
from loadrun.backends.cpu.contents import Contents
from loadrun.backends.cpu.kernels import copy, relayout
from loadrun.backends.cpu.layout import Halo, Image, blocked, plain, planar, ring
from loadrun.backends.cpu.plan import (
    Arg,
    Array,
    Buffer,
    Const,
    HostStep,
    Kernel,
    Place,
    Rows,
    Step,
)
from loadrun.backends.cpu.target import Target
from loadrun.backends.cpu.ways import DEFAULT, Way

# Takes modules by name.
Ahead = Callable[[Mapping[str, str]], None]
_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Options:
    """Choices that a caller may force (tests, experiments).

    Attributes:
        winograd: Allow Winograd's algorithm.
        bands: Allow running blocks band by band.
        ways: Choices for layers by their keys; the cost model chooses for others.
    """

    winograd: bool = True
    bands: bool = True
    ways: Mapping[str, Way] = field(default_factory=dict)


def image_shape(shape: nd.Shape) -> tuple[int, int, int, int]:
    """(n, c, h, w) of a tensor; (n, c) is an image of one pixel.

    Raises:
        ValueError: It has more than four dimensions.
    """
    if len(shape) == 2:
        return shape[0], shape[1], 1, 1
    if len(shape) > 4:
        raise ValueError(f"not an image: {shape}")
    n, c, h, w = (1,) * (4 - len(shape)) + shape
    return n, c, h, w


def pack_image(array: Array, image: Image) -> Array:
    """An image tensor's elements at their places in the layout, as flat float32."""
    out = np.zeros(image.nbytes // 4, np.float32)
    n, c, y, x = np.ix_(*(np.arange(k) for k in (image.n, image.c, image.h, image.w)))
    at = image.origin + n * image.image + (c // image.lanes) * image.block + y * image.row
    at = (at + x * image.pixel) // 4 + c % image.lanes
    out[at] = array.reshape(image.n, image.c, image.h, image.w)
    return out


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of a contiguous array."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(strides[::-1])


@dataclass(slots=True)
class Draft:
    """The plan so far.

    `contents` gives the keys of constants; `ahead` gets the code of steps; `by_rows`: the node
    being emitted is part of a band. `banded` are names of nodes in bands, for which the cost model
    chooses.
    `rings` are tensors of bands that are kept as rings, and their rows.
    `joins` are tensors whose `parts` lie in them: by name the join and the part's first block.
    """

    network: nd.Network
    target: Target
    threads: int
    options: Options
    contents: Contents
    ahead: Ahead | None = None
    buffers: dict[str, Buffer] = field(default_factory=dict)
    consts: dict[str, Const] = field(default_factory=dict)
    steps: list[Step | HostStep] = field(default_factory=list)
    forms: dict[tuple[str, str], str] = field(default_factory=dict)
    halos: dict[str, Halo] = field(default_factory=dict)
    parts: dict[str, tuple[str, int]] = field(default_factory=dict)
    joins: set[str] = field(default_factory=set)
    names: dict[str, int] = field(default_factory=dict)
    banded: set[str] = field(default_factory=set)
    rings: dict[str, int] = field(default_factory=dict)
    by_rows: bool = False
    made: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def once(self, make: Callable[_P, _T], *args: _P.args, **options: _P.kwargs) -> _T:
        """`make(...)`, made once: layers of equal geometry share one kernel's object."""
        key = (make, args, tuple(options.items()))
        if key not in self.made:
            self.made[key] = make(*args, **options)
        found: _T = self.made[key]
        return found

    def fork(self) -> Draft:
        """A draft that goes on from here by itself, to see what steps there will be."""
        return replace(
            self,
            ahead=None,
            buffers=dict(self.buffers),
            consts=dict(self.consts),
            steps=[],
            forms=dict(self.forms),
            names=dict(self.names),
        )

    def way(self, node: nd.Node) -> Way:
        """What was chosen for a node."""
        if not self.options.ways or node.name in self.banded:
            return DEFAULT
        return self.options.ways.get(layer_key(self.network, node), DEFAULT)

    # -- buffers
    def add_buffer(self, buffer: Buffer) -> str:
        """Note a buffer; returns its name."""
        if buffer.name in self.buffers:
            raise ValueError(f"buffer planned twice: {buffer.name}")
        self.buffers[buffer.name] = buffer
        return buffer.name

    def add_scratch(self, name: str, nbytes: int) -> str:
        """A buffer for one operator's own use, shared by all threads."""
        return self.add_buffer(Buffer(name, nbytes, Place.ARENA, (nbytes,), "uint8", scratch=True))

    def add_plain(self, tensor: str, place: Place = Place.ARENA) -> str:
        """The contiguous form of a tensor that a step is about to write."""
        shape, dtype = self.network.shapes[tensor], self.network.dtype(tensor)
        if place is Place.ARENA and tensor in self.network.outputs:
            place = Place.OUTPUT
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        image = plain(*image_shape(shape)) if len(shape) <= 4 and dtype == "float32" else None
        self.forms[tensor, "plain"] = tensor
        return self.add_buffer(Buffer(tensor, size, place, shape, dtype, image))

    def add_blocked(self, tensor: str) -> str:
        """The blocked form of a tensor that a step is about to write."""
        n, c, h, w = image_shape(self.network.shapes[tensor])
        name = f"{tensor}:b"
        self.forms[tensor, "blocked"] = name
        if tensor in self.parts:
            return self._add_part(tensor, name)
        halo = self.halos.get(tensor, Halo())
        image = blocked(n, c, h, w, self.target.lanes, halo)
        place = Place.HALO if halo else Place.ARENA
        if tensor in self.rings:
            image, place = ring(image, self.rings[tensor]), Place.RING
        return self.add_buffer(Buffer(name, image.nbytes, place, (n, c, h, w), "float32", image))

    def _add_part(self, tensor: str, name: str) -> str:
        """The blocked form of a tensor in the blocks of the join that it belongs to."""
        join, first = self.parts[tensor]
        whole = self.buffers[self.forms.get((join, "blocked")) or self.add_blocked(join)]
        n, c, h, w = image_shape(self.network.shapes[tensor])
        outer = self.image(whole.name)
        image = replace(outer, c=c, origin=outer.origin + first * outer.block)
        size = n * image.blocks * image.block
        root = whole.alias or whole.name
        new = Buffer(name, size, whole.place, (n, c, h, w), "float32", image, alias=root)
        return self.add_buffer(new)

    def add_alias(self, tensor: str, buffer: str) -> str:
        """Give the memory of `buffer` to `tensor` under its own shape."""
        old = self.buffers[buffer]
        shape = self.network.shapes[tensor]
        image = plain(*image_shape(shape)) if len(shape) <= 4 and old.dtype == "float32" else None
        root = old.alias or buffer
        self.forms[tensor, "plain"] = tensor
        new = replace(old, name=tensor, shape=shape, image=image, alias=root)
        return self.add_buffer(new)

    def image(self, buffer: str) -> Image:
        """Layout of a buffer that holds an image."""
        found = self.buffers[buffer].image
        if found is None:
            raise ValueError(f"{buffer} has no image layout")
        return found

    def only_blocked(self, tensor: str) -> bool:
        """Whether a tensor exists as a blocked image and not as an array."""
        return (tensor, "blocked") in self.forms and (tensor, "plain") not in self.forms

    # -- forms
    def need_plain(self, tensor: str) -> str:
        """The buffer with a tensor's contiguous form."""
        found = self.forms.get((tensor, "plain"))
        const = self.network.consts.get(tensor)
        if found is None and const is not None:
            found = self.array_const(tensor, const)
            shape, dtype = self.network.shapes[tensor], self.network.dtype(tensor)
            self.buffers[found] = replace(self.buffers[found], shape=shape, dtype=dtype)
            self.forms[tensor, "plain"] = found
        elif found is None:
            found = self.add_plain(tensor)
            self._convert(self.forms[tensor, "blocked"], found, f"{tensor}:unpack")
        return found

    def need_blocked(self, tensor: str) -> str:
        """The buffer with a tensor's blocked form."""
        found = self.forms.get((tensor, "blocked"))
        const = self.network.consts.get(tensor)
        if found is None and const is not None:
            dims = image_shape(const.shape)
            image = blocked(*dims, self.target.lanes, self.halos.get(tensor))
            found = self.array_const(f"{tensor}:b", pack_image(const, image))
            self.buffers[found] = replace(self.buffers[found], image=image)
            self.forms[tensor, "blocked"] = found
        elif found is None:
            source = self.forms[tensor, "plain"]
            found = self.add_blocked(tensor)
            self._convert(source, found, f"{tensor}:pack")
        return found

    def need_bytes(self, tensor: str, halo: Halo) -> str:
        """A tensor of whole numbers in -128..127 as a blocked image of bytes with a halo."""
        key = f"bytes{halo.top}_{halo.left}_{halo.bottom}_{halo.right}"
        found = self.forms.get((tensor, key))
        if found is None:
            n, c, h, w = image_shape(self.network.shapes[tensor])
            image = blocked(n, c, h, w, self.target.lanes, halo, item=1)
            found = f"{tensor}:{key}"
            place = Place.HALO if halo else Place.ARENA
            self.add_buffer(Buffer(found, image.nbytes, place, (n, c, h, w), "int8", image))
            self.forms[tensor, key] = found
            source = self.need_blocked(tensor)
            kernel, rows = relayout.narrow(self.image(source), image, self.target)
            name = f"{tensor}:narrow"
            self.step(name, kernel, (source, found), (source,), (found,), "narrow", rows=rows)
        return found

    def need_planar(self, tensor: str, halo: Halo) -> str:
        """A tensor as NCHW with a zero halo."""
        key = f"planar{halo.top}_{halo.left}_{halo.bottom}_{halo.right}"
        found = self.forms.get((tensor, key))
        if found is None:
            n, c, h, w = self.network.shapes[tensor]
            image = planar(n, c, h, w, halo, self.target.lanes)
            found = f"{tensor}:{key}"
            shape = (n, c, h, w)
            self.add_buffer(Buffer(found, image.nbytes, Place.HALO, shape, "float32", image))
            self.forms[tensor, key] = found
            self._convert(self.need_plain(tensor), found, f"{tensor}:pad")
        return found

    def _convert(self, source: str, to: str, name: str) -> None:
        a, b = self.image(source), self.image(to)
        if a.c == 1 and a.plain and b.plain:
            raise AssertionError("nothing to convert")
        kernel, rows = relayout.relayout(a, b, self.target)
        self.step(name, kernel, (source, to), (source,), (to,), "relayout", rows=rows)

    # -- constants
    def const(
        self, name: str, nbytes: int, write: Callable[[Array], None], key: Callable[[], str]
    ) -> str:
        """A constant buffer with contents written on demand."""
        self.consts[name] = Const(nbytes, write, key)
        return self.add_buffer(Buffer(name, nbytes, Place.CONST, (nbytes,), "uint8"))

    def packed_const(
        self,
        name: str,
        nbytes: int,
        node: nd.Conv | nd.Dense,
        pack: Callable[[Array, Array], None],
        how: str,
    ) -> str:
        """A constant buffer with a node's packed weights, float32; `how` names the packing."""

        def key() -> str:
            arrays = [node.weights] if node.scale is None else [node.weights, node.scale]
            return digest(how, *(self.contents.key(a) for a in arrays))

        def write(out: Array) -> None:
            pack(nd.filters(node), out.view(np.float32))

        return self.const(name, nbytes, write, key)

    def array_const(self, name: str, array: Array) -> str:
        """A constant buffer with the contents of an array."""
        data = np.ascontiguousarray(array)

        def write(out: Array) -> None:
            out[...] = data.reshape(-1).view(np.uint8)

        return self.const(name, data.nbytes, write, lambda: self.contents.key(data))

    # -- steps
    def step(
        self,
        name: str,
        kernel: Kernel,
        args: Sequence[str | Arg],
        reads: tuple[str, ...],
        writes: tuple[str, ...],
        how: str,
        *,
        flops: float = 0.0,
        rows: Rows | None = None,
    ) -> None:
        """Append a step under a name of its own."""
        used = self.names.get(name, 0)
        self.names[name] = used + 1
        name = f"{name}#{used}" if used else name
        table = tuple(Arg(a) if isinstance(a, str) else a for a in args)
        self.steps.append(Step(name, kernel, table, reads, writes, how, flops, rows))
        if self.ahead is not None:
            self.ahead(kernel.modules())

    def copy(
        self,
        name: str,
        dims: Sequence[int],
        source: tuple[str, int, Sequence[int]],
        to: tuple[str, int, Sequence[int]],
    ) -> None:
        """Append a strided copy; each side is (buffer, first element, strides in elements)."""
        size = np.dtype(self.buffers[source[0]].dtype).itemsize
        kernel = copy.strided_copy(dims, source[2], to[2], size, self.target)
        args = (Arg(source[0], source[1] * size), Arg(to[0], to[1] * size))
        self.step(name, kernel, args, (source[0],), (to[0],), "copy")
