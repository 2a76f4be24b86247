"""Inputs of a run: from the command line's `--input`, from files, or random and repeatable.

An item is `name:value`; items are separated by `;`. A value is a file (`.npy`, `.npz`, `.json`,
`.pkl` of megengine.save, or an image: `.ppm`, `.pgm`, and whatever OpenCV decodes), an array
written out (`[[1,2],[3,4]]`), or `#rand(low,high[,shape])`. An input that no item names gets random
values.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from loadrun.arrays import (
    MAX_BYTES,
    fit,
    looks_like_text,
    parse_text,
    read_json,
    read_npy,
    read_npz,
)
from mgeserial.dtypes import Array, DType, DTypeEnum
from mgeserial.errors import InputError, printable
from mgeserial.ir.types import ShapeLike, TensorType

__all__ = [
    "EXPECT",
    "RANDOM",
    "Feeds",
    "is_random",
    "random_input",
    "random_inputs",
    "read_items",
    "resolve_inputs",
    "split_items",
]

# The input of a model with test cases that holds what output `<out>` should be: `<out>:expect`.
EXPECT = ":expect"
# How the source of made-up values begins.
RANDOM = "random"
# Name that load_and_run gives to a value without a name.
_DEFAULT_NAME = "data"
PICKLES = (".pkl", ".pickle")
IMAGES = (".ppm", ".pgm", ".png", ".jpg", ".jpeg", ".bmp")
_KINDS = (".npy", ".npz", ".json", ".pkl", *IMAGES)
_RAND = re.compile(r"#rand\((.*)\)")
_SMALL = 2

Types = Mapping[str, TensorType]
# Reads an image (path, name of the input, its type).
ReadImage = Callable[[str, str, TensorType], Array]


@dataclass(slots=True)
class Feeds:
    """Arrays for one run and where each came from.

    Attributes:
        arrays: Array by input name, in the storage of the input's type.
        sources: By input name: the item it came from, or `random, seed N`.
    """

    arrays: dict[str, Array] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


def resolve_inputs(items: Sequence[str], types: Types, *, seed: int = 0) -> Feeds:
    """Make the arrays of a run from `--input` arguments; random ones where none is given.

    Args:
        items: The arguments, each one item or several with `;` between.
        types: The model's inputs by name.
        seed: Seed of random values.

    Returns:
        One array for every input, in the order of `types`.

    Raises:
        InputError: An item cannot be read, names no input, names one twice, or does not fit its
            type; or an input without an item has no known shape.
    """
    given = read_items(items, types, seed=seed)
    feeds = Feeds()
    for name, declared in types.items():
        if name in given.arrays:
            feeds.arrays[name] = fit(name, given.arrays[name], declared)
            feeds.sources[name] = given.sources[name]
        else:
            feeds.arrays[name] = random_input(name, declared, seed=seed)
            feeds.sources[name] = f"{RANDOM}, seed {seed}"
    return feeds


def read_items(
    items: Sequence[str], types: Types, *, seed: int = 0, read_image: ReadImage | None = None
) -> Feeds:
    """Read what items name, as it is: arrays still have their own dtypes and shapes.

    Args:
        items: As for `resolve_inputs`.
        types: The model's inputs by name.
        seed: Seed of random values.
        read_image: How to read an image; None: `images.read_image`.

    Raises:
        InputError: An item cannot be read, names no input, or names one twice.
    """
    given = Feeds()
    reader = _Reader(types, seed, read_image)
    for item in split_items(items):
        for name, array in _read_item(item, reader, given):
            given.arrays[name] = array
            given.sources[name] = item
    return given


def is_random(item: str) -> bool:
    """Whether an item asks for random values (`data:#rand(0,1)`)."""
    return "#rand(" in item and item.rstrip().endswith(")")


def split_items(arguments: Sequence[str]) -> list[str]:
    """Items of all `--input` arguments: every `;` separates, empty items are dropped."""
    items = (part.strip() for argument in arguments for part in argument.split(";"))
    return [item for item in items if item]


@dataclass(frozen=True, slots=True)
class _Reader:
    """What reading an item needs to know."""

    types: Types
    seed: int
    read_image: ReadImage | None = None


def _read_item(item: str, reader: _Reader, given: Feeds) -> Iterator[tuple[str, Array]]:
    """Arrays of one item with the inputs they are for, each checked to be known and new."""
    types = reader.types
    name, value = _name_of(item, types)
    suffix = os.path.splitext(value)[1].lower()
    if suffix == ".npz":
        found = _from_many(name, read_npz(_existing(value, types)), types, item)
    elif suffix == ".json":
        content = read_json(_existing(value, types))
        if isinstance(content, np.ndarray):
            content = {"": content}
        found = _from_many(name, content, types, item)
    elif suffix in PICKLES:
        from mgeserial.pickles import read_pickle

        content = {w.name: w.array for w in read_pickle(_existing(value, types)).weights}
        found = _from_many(name, content, types, item)
    else:
        name = _implied(name, types, item)
        found = {name: _one_array(name, value, suffix, reader)}
    for key, array in found.items():
        _known(key, types, item)
        if key in given.arrays:
            raise InputError(
                f"input `{printable(key)}` is given twice: by `{given.sources[key]}` and `{item}`",
                hint="write every item as `name:value`, such as 'data:a.npy;rois:b.npy'",
            )
        yield key, array


def _name_of(item: str, types: Types) -> tuple[str | None, str]:
    """Split `name:value` at a known name (names may hold `:`), else at the first `:`."""
    for name in sorted(types, key=len, reverse=True):
        if item.startswith(name + ":"):
            return name, item[len(name) + 1 :].strip()
    name, colon, value = item.partition(":")
    if not colon or os.path.exists(item) or name.startswith("#rand("):
        return None, item
    if len(name) == 1 and value[:1] in ("\\", "/"):  # a drive of Windows
        return None, item
    return name, value.strip()


def _implied(name: str | None, types: Types, item: str) -> str:
    """The input meant by an item without a name: the only one there is, or `data`."""
    if name is not None:
        _known(name, types, item)
        return name
    wanted = [n for n in types if not n.endswith(EXPECT)]
    if len(wanted) == 1:
        return wanted[0]
    if _DEFAULT_NAME in types:
        return _DEFAULT_NAME
    raise InputError(
        f"`{item}` does not say which input it is for",
        hint=f"write `name:{item}`; {_inputs(types)}",
    )


def _known(name: str, types: Types, item: str) -> None:
    if name in types:
        return
    near = difflib.get_close_matches(name, list(types), n=1)
    meant = f"did you mean `{near[0]}`? " if near else ""
    raise InputError(
        f"`{printable(item)}`: the model has no input `{printable(name)}`",
        hint=meant + _inputs(types),
    )


def _inputs(types: Types) -> str:
    if not types:
        return "the model has no inputs"
    shown = [f"{printable(n)}: {t}" for n, t in types.items()]
    return "the model's inputs: " + "; ".join(shown[:8]) + ("; ..." if len(shown) > 8 else "")


def _from_many(
    name: str | None, arrays: Mapping[str, Array], types: Types, item: str
) -> dict[str, Array]:
    """Arrays of a file that names its own: all of them, or the one the item asks for."""
    if not arrays:
        raise InputError(f"`{item}` holds no arrays")
    if name is not None and name in arrays:
        return {name: arrays[name]}
    if len(arrays) == 1:
        (key, array), *_ = arrays.items()
        return {key if name is None and key in types else _implied(name, types, item): array}
    if name is not None:
        held = ", ".join(f"`{printable(n)}`" for n in list(arrays)[:8])
        raise InputError(
            f"`{item}` holds no array `{printable(name)}`",
            hint=f"it holds {held}; without `{name}:` in front all of them are used",
        )
    return dict(arrays)


def _existing(path: str, types: Types) -> str:
    if os.path.isfile(path):
        return path
    if os.path.isdir(path):
        raise InputError("is a directory, not a file", path=path)
    hint = "separate inputs with `;`, as in 'data:a.npy;rois:b.npy'" if ":" in path else None
    raise InputError("no such file", path=path, hint=hint or _inputs(types))


def _one_array(name: str, value: str, suffix: str, reader: _Reader) -> Array:
    types = reader.types
    declared = types[name]
    if value.startswith("#rand("):
        return _rand_item(name, value, declared, reader.seed)
    if suffix == ".npy":
        return read_npy(_existing(value, types))
    if suffix in IMAGES:
        return _image(_existing(value, types), name, declared, reader)
    if looks_like_text(value):
        return parse_text(value, declared.shape)
    if os.path.exists(value):
        from loadrun.images import is_image

        if os.path.isfile(value) and is_image(value):
            return _image(value, name, declared, reader)
        raise InputError(
            f"input `{name}`: the kind of `{value}` is not known",
            hint=f"files end in one of {', '.join(_KINDS)}, or are images that OpenCV decodes",
        )
    raise InputError(
        f"input `{name}`: `{printable(value)}` is neither a file nor an array",
        hint="write `name:file.npy` or `name:[[1,2],[3,4]]`; files end in one of "
        f"{', '.join(_KINDS)}",
    )


def _image(path: str, name: str, declared: TensorType, reader: _Reader) -> Array:
    if reader.read_image is not None:
        return reader.read_image(path, name, declared)
    from loadrun.images import read_image

    return read_image(path, name, declared)


def random_inputs(types: Types, *, seed: int = 0) -> dict[str, Array]:
    """Random arrays for all inputs, in the order of `types`; see `random_input`."""
    return {name: random_input(name, declared, seed=seed) for name, declared in types.items()}


def random_input(
    name: str,
    declared: TensorType,
    *,
    seed: int = 0,
    low: float | None = None,
    high: float | None = None,
) -> Array:
    """Random values of an input's type and shape; equal seed, name and type give equal values.

    Floating types: uniform in [0, 1). Uint8, which mostly holds pixels: 0 to 255. Other integers,
    which mostly hold indices: 0 and 1, which every table has. Bool: both. Quantised
    types: every code. The generator is numpy's PCG64, seeded with `seed` and the CRC-32 of the
    name, so that an input's values do not depend on the others.

    Args:
        name: The input.
        declared: Its type, with a fully known shape.
        seed: From 0.
        low: Other lower limit.
        high: Other upper limit, included for integers only.

    Raises:
        InputError: The shape is not known, it needs more than `MAX_BYTES`, or no number of the
            type lies within the limits.
    """
    dtype = declared.dtype
    if not declared.is_static:
        raise InputError(
            f"input `{printable(name)}` is {declared}: random values need a known shape",
            hint=f"give it: --input '{printable(name)}:file.npy', or "
            f"--input '{printable(name)}:#rand(0,1,1,3,224,224)' with the shape that you want",
        )
    shape = declared.dims
    if declared.size * dtype.storage.itemsize > MAX_BYTES:
        raise InputError(
            f"input `{printable(name)}` is {declared}: random values of more than "
            f"{MAX_BYTES >> 30} GiB are not made"
        )
    generator = np.random.default_rng([seed, zlib.crc32(name.encode("utf-8", "surrogateescape"))])
    if not (dtype.is_float or dtype.kind is DTypeEnum.Complex64):
        first, last = _whole_limits(dtype)
        first = first if low is None else max(math.ceil(low), dtype.limits[0])
        last = last if high is None else min(math.floor(high), dtype.limits[1])
        if first > last:
            raise InputError(f"input `{name}`: {dtype} has no number from {low} to {high}")
        whole = generator.integers(first, last, shape, dtype=np.int64, endpoint=True)
        return whole.astype(dtype.storage)
    scale = np.float32((1 if high is None else high) - (low or 0))
    real = generator.random(shape, dtype=np.float32) * scale + np.float32(low or 0)
    if dtype.kind is DTypeEnum.Complex64:
        return np.asarray(real + 1j * generator.random(shape, dtype=np.float32)).astype(
            np.complex64
        )
    return fit(name, real, declared)


def _whole_limits(dtype: DType) -> tuple[int, int]:
    low, high = dtype.limits
    if dtype.is_quantized or dtype.kind in (DTypeEnum.Uint8, DTypeEnum.Bool):
        return low, high
    return 0, min(high, _SMALL - 1)


def _rand_item(name: str, value: str, declared: TensorType, seed: int) -> Array:
    """`#rand(low,high)` or `#rand(low,high,1,3,...)`: `...` is the rest of the declared shape."""
    usage = "write #rand(low,high) or #rand(low,high,1,3,224,224)"
    matched = _RAND.fullmatch(value)
    parts = [part.strip() for part in matched[1].split(",")] if matched else []
    try:
        if len(parts) < 2:
            raise ValueError("two limits are needed")
        low, high = float(parts[0]), float(parts[1])
        if not (low <= high and np.isfinite([low, high]).all()):
            raise ValueError(f"{parts[0]} to {parts[1]} is no range")
        shape = _rand_shape(parts[2:], declared.shape)
    except ValueError as error:
        raise InputError(f"input `{name}`: `{printable(value)}`: {error}", hint=usage) from error
    wanted = TensorType(declared.dtype, shape)
    return random_input(name, wanted, seed=seed, low=low, high=high)


def _rand_shape(parts: Sequence[str], declared: ShapeLike) -> ShapeLike:
    if not parts:
        return declared
    rest = parts[-1] == "..."
    dims: list[int | None] = [int(part) for part in (parts[:-1] if rest else parts)]
    if any(n is not None and n < 0 for n in dims):
        raise ValueError("dimensions are whole numbers from 0")
    if not rest:
        return tuple(dims)
    if declared is None or len(declared) < len(dims):
        raise ValueError("`...` needs a model that declares the rest of the shape")
    return (*dims, *declared[len(dims) :])
