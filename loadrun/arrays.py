"""Arrays from files and from text, and fitting them to what an input declares.

Files are read as data only: no pickle, no expression, no more memory than the file's own size asks
for (compressed `.npz` members: up to `MAX_BYTES`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from mgeserial.arrayfiles import MAX_BYTES, read_bytes, read_npy, read_npz
from mgeserial.dtypes import Array, DType, DTypeEnum
from mgeserial.errors import InputError
from mgeserial.ir.types import TensorType

__all__ = [
    "MAX_BYTES",
    "fit",
    "looks_like_text",
    "parse_text",
    "read_bytes",
    "read_json",
    "read_npy",
    "read_npz",
    "shape_fits",
]

_MAX_DEPTH = 16
# Type names of load_and_run's JSON inputs beside those of numpy.
_JSON_TYPES = {"float": "float32", "int": "int32"}
_JSON_KINDS = "fiub"
_TEXT = re.compile(r"(?:[\[\]0-9eE+\-.,\s]|nan|inf|NaN|Infinity)+")


def read_json(path: str) -> dict[str, Array] | Array:
    """Arrays of a JSON file.

    Either the form of load_and_run, `{name: {"shape": [..], "type": "float32", "raw": [..]}}`, or
    a bare nested list, which stands for one array without a name.

    Raises:
        InputError: Not JSON, or not one of the two forms.

    Source: MegEngine v0.5.1 sdk/load-and-run (type names float32, float, int32, int, int8, uint8).
    """
    try:
        root = json.loads(read_bytes(path).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"not readable as JSON: {error}", path=path) from error
    try:
        if isinstance(root, list):
            return _nested(root)
        if isinstance(root, dict) and root:
            return {name: _json_array(item) for name, item in root.items()}
    except ValueError as error:
        raise InputError(str(error), path=path) from error
    raise InputError(
        "expected one object a named input",
        path=path,
        hint='such as {"data": {"shape": [1, 3], "type": "float32", "raw": [1, 2, 3]}}',
    )


def _json_array(item: Any) -> Array:
    if not isinstance(item, Mapping) or not {"shape", "type", "raw"} <= set(item):
        raise ValueError('an input in JSON needs "shape", "type" and "raw"')
    shape, name, raw = item["shape"], item["type"], item["raw"]
    if not isinstance(shape, list) or not all(type(n) in (int, float) for n in shape):
        raise ValueError(f'"shape" is a list of numbers, got {shape!r}')
    if any(not 0 <= n < 2**32 or n != int(n) for n in shape):
        raise ValueError(f'"shape" holds whole numbers from 0, got {shape}')
    try:
        dtype = np.dtype(_JSON_TYPES.get(name, name))
    except (TypeError, ValueError, SyntaxError) as error:
        raise ValueError(
            f'"type" is float32, int32, int8, uint8 or the like, got {name!r}'
        ) from error
    if dtype.kind not in _JSON_KINDS:
        raise ValueError(f'"type" is a type of real numbers, got {name!r}')
    dims = tuple(int(n) for n in shape)
    flat = _nested(raw).reshape(-1) if isinstance(raw, list) else None
    if flat is None:
        raise ValueError('"raw" is a list of numbers')
    if flat.size != math.prod(dims):
        raise ValueError(f'shape {dims} needs {math.prod(dims)} numbers in "raw", got {flat.size}')
    kind = DTypeEnum.Bool if dtype.kind == "b" else None
    return _convert(flat, dtype, kind).reshape(dims)


def _nested(value: list[Any]) -> Array:
    """Array of nested lists of numbers: int64 when all are whole numbers in JSON, else float64."""
    shape: list[int] = []
    level: Any = value
    while isinstance(level, list):
        shape.append(len(level))
        if len(shape) > _MAX_DEPTH:
            raise ValueError(f"lists are nested more than {_MAX_DEPTH} deep")
        level = level[0] if level else None
    flat: list[Any] = value
    for size in shape[1:]:
        if any(not isinstance(row, list) or len(row) != size for row in flat):
            raise ValueError("nested lists of one level must have the same length")
        flat = [item for row in flat for item in row]
    for item in flat:
        if type(item) not in (int, float, bool):
            raise ValueError(f"expected a number, got {json.dumps(item)[:40]}")
    whole = all(type(item) is not float for item in flat)
    try:
        return np.array(flat, dtype=np.int64 if whole else np.float64).reshape(shape)
    except OverflowError as error:
        raise ValueError("a number is beyond 64 bits") from error


def looks_like_text(value: str) -> bool:
    """Whether a value can be an array written out, such as `1`, `1.5,2` or `[[1,2],[3,4]]`."""
    return _TEXT.fullmatch(value) is not None


def parse_text(value: str, shape: tuple[int | None, ...] | None) -> Array:
    """Array written out: `1`, `1,2` or `[[1,2],[3,4]]`; floating when it has a `.` or an `e`.

    load_and_run gives bracketed text one more axis in front: `[0,0,4,4]` is (1, 4). That is kept
    unless the declared shape says that the axis is not wanted.

    Raises:
        InputError: Brackets or numbers are wrong.

    Source: MegEngine v0.5.1 sdk/load-and-run/src/mgblar.cpp (parse_string).
    """
    bracketed = value.lstrip().startswith("[")
    try:
        root = json.loads(_json_numbers(value if bracketed else f"[{value}]"))
        array = _nested(root)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"`{value[:60]}` is not an array: {error}", hint="write it as `name:[[1,2],[3,4]]`"
        ) from error
    if not bracketed:
        return array
    longer = array.reshape((1, *array.shape))
    if shape is None or shape_fits(longer.shape, shape):
        return longer
    wanted = shape_fits(array.shape, shape) or len(shape) == array.ndim
    return array if wanted else longer


def _json_numbers(text: str) -> str:
    """Forms of numbers people write that JSON has not: `1.`, `.5`, `+1`, `nan`, `inf`."""
    text = re.sub(r"\b(?:inf|infinity)\b", "Infinity", text, flags=re.IGNORECASE)
    text = re.sub(r"\bnan\b", "NaN", text, flags=re.IGNORECASE)
    text = re.sub(r"\+(?=[0-9.I])(?<![eE]\+)", "", text)
    text = re.sub(r"(?<![0-9])\.(?=[0-9])", "0.", text)
    return re.sub(r"(?<=[0-9])\.(?![0-9])", ".0", text)


def shape_fits(shape: tuple[int, ...], declared: tuple[int | None, ...]) -> bool:
    """Whether a shape is the declared one where that is known."""
    return len(shape) == len(declared) and all(
        want is None or want == have for have, want in zip(shape, declared, strict=True)
    )


def fit(name: str, array: Array, declared: TensorType) -> Array:
    """Bring an array to the storage of an input's type, or say why that would change it.

    Numbers keep their value: whole numbers fit integer types, integers fit floating types; a value
    out of range is an error. For a quantised input integers are codes and floating numbers are
    real values, which are quantised. A bfloat16 input takes numbers, or its bits as uint16.

    Args:
        name: The input, for errors.
        array: What was given; any byte order, any strides.
        declared: The input's type; its shape is not looked at.

    Returns:
        A contiguous array of `declared.dtype.storage` and the same shape; scalars become (1,).

    Raises:
        InputError: A value does not fit the type.
    """
    dtype = declared.dtype
    array = array.reshape(1) if array.ndim == 0 else array
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    if array.dtype == dtype.storage:
        return array
    try:
        if dtype.kind is DTypeEnum.BFloat16 or (dtype.is_quantized and array.dtype.kind == "f"):
            return _from_real(array, dtype)
        if dtype.is_lowbit or dtype.is_quantized:
            return _convert(array, dtype.storage, dtype.kind, limits=dtype.limits)
        return _convert(array, dtype.storage, dtype.kind)
    except ValueError as error:
        raise InputError(f"input `{name}` takes {dtype}: {error}") from error


def _from_real(array: Array, dtype: DType) -> Array:
    from mgeserial.ops.numerics import from_real

    return np.asarray(from_real(_convert(array, np.dtype(np.float32), None), dtype))


def _convert(
    array: Array,
    target: np.dtype[Any],
    kind: DTypeEnum | None,
    *,
    limits: tuple[int, int] | None = None,
) -> Array:
    """Convert without changing a value, but for the rounding of floating types.

    Raises:
        ValueError: Names the first value that does not fit.
    """
    if target.kind == "c" or (target.kind == "f" and array.dtype.kind in "fiub"):
        with np.errstate(over="ignore"):
            result = array.astype(target)
        _refuse(np.isinf(result) & ~np.isinf(array), array, f"is beyond {target}")
        return result
    if array.dtype.kind == "c":
        raise ValueError(f"got an array of {array.dtype}")
    if kind is DTypeEnum.Bool:
        low, high = 0, 1
    elif limits is not None:
        low, high = limits
    else:
        low, high = int(np.iinfo(target).min), int(np.iinfo(target).max)
    if array.dtype.kind == "f":
        # In float64 every limit of up to 53 bits is exact, and high + 1 is a power of two.
        real = array.astype(np.float64)
        _refuse(~((real >= low) & (real < high + 1)), array, f"is not in {low} to {high}")
        _refuse(real != np.trunc(real), array, "is not a whole number")
    else:
        whole: Any = array
        _refuse(~((whole >= low) & (whole <= high)), array, f"is not in {low} to {high}")
    return array.astype(target)


def _refuse(bad: Array, array: Array, why: str) -> None:
    if bad.any():
        index = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), array.shape))
        raise ValueError(f"{array[index]} at {list(index)} {why}")
