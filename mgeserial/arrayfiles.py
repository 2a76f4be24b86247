"""Array files: `.npy` and `.npz` read as data only, and `.npz` written with the types in it.

Nothing is unpickled, and no more memory is taken than the file's own size asks for (compressed
`.npz` members: up to `MAX_BYTES`).
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from mgeserial.dtypes import Array
from mgeserial.errors import InputError, printable

__all__ = [
    "MAX_BYTES",
    "NamedArray",
    "npz_bytes",
    "read_bytes",
    "read_npy",
    "read_npz",
    "read_npz_notes",
]

MAX_BYTES = 1 << 32
# Member of an `.npz` that says what plain arrays cannot: {"dtypes": {name: text}}.
NOTES = "mgeserial.json"
_MAX_NOTES = 1 << 26
# Members of an archive carry a time; a fixed one makes equal content equal bytes.
_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class NamedArray:
    """An array with its name and its element type as text, such as `QuantizedS8(scale=0.03)`.

    The array holds stored integers for quantised and low-bit types, bits (uint16) for bfloat16.
    """

    name: str
    array: Array
    type: str


def read_bytes(path: str) -> bytes:
    """Whole content of a file.

    Raises:
        InputError: It cannot be read, or is larger than `MAX_BYTES`.
    """
    try:
        if os.path.getsize(path) > MAX_BYTES:
            raise InputError(f"larger than {MAX_BYTES >> 30} GiB", path=path)
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: OSError) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError("no such file", path=path)
    return InputError(f"cannot be read: {error.strerror or error}", path=path)


def read_npy(path: str) -> Array:
    """Array of a `.npy` file: any byte order, C or Fortran order.

    Raises:
        InputError: Not such a file, cut off, or an array of Python objects.
    """
    try:
        with open(path, "rb") as file:
            return _npy(file, os.path.getsize(path), path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _npy(file: IO[bytes], size: int, path: str) -> Array:
    """Read one array after checking that its header does not promise more than there is."""
    try:
        shape, dtype = _npy_header(file)
        if dtype.hasobject or dtype.kind not in "fiubc":
            raise InputError(f"holds {dtype}, not numbers", path=path)
        need = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or need > size - file.tell():
            raise InputError(
                f"shape {shape} of {dtype} needs {need} bytes, {size - file.tell()} follow the "
                "header",
                path=path,
                hint="the file is cut off: write or copy it again",
            )
        file.seek(0)
        return np.asarray(np.load(file, allow_pickle=False))
    except InputError:
        raise
    except Exception as error:
        # numpy parses the header as Python text; what that raises on bad bytes has no common base.
        raise InputError(f"not a readable .npy file: {error}", path=path) from error


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise ValueError(f"format {version[0]}.{version[1]} is not known")
    return shape, dtype


def read_npz(path: str) -> dict[str, Array]:
    """Arrays of a `.npz` file by name.

    Raises:
        InputError: Not such a file, damaged, or more than `MAX_BYTES` unpacked.
    """
    arrays: dict[str, Array] = {}
    budget = MAX_BYTES
    try:
        with zipfile.ZipFile(path) as archive:
            for item in archive.infolist():
                if not item.filename.endswith(".npy"):
                    continue
                budget -= item.file_size
                if budget < 0:
                    raise InputError(f"unpacks to more than {MAX_BYTES >> 30} GiB", path=path)
                content = archive.read(item)
                name = item.filename[: -len(".npy")]
                arrays[name] = _npy(io.BytesIO(content), len(content), f"{path}[{name}]")
    except OSError as error:
        raise _unreadable(path, error) from error
    except (zipfile.BadZipFile, zlib.error, RuntimeError, ValueError, EOFError) as error:
        raise InputError(f"not a readable .npz file: {error}", path=path) from error
    return arrays


def read_npz_notes(path: str) -> dict[str, str]:
    """Element types that a `.npz` file of ours notes, as text by name; {} without notes.

    Raises:
        InputError: Not a `.npz` file, or its notes are damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            try:
                item = archive.getinfo(NOTES)
            except KeyError:
                return {}
            if item.file_size > _MAX_NOTES:
                raise InputError(f"its notes take {item.file_size} bytes", path=path)
            return note_types(json.loads(archive.read(item).decode("utf-8")))
    except OSError as error:
        raise _unreadable(path, error) from error
    except (
        zipfile.BadZipFile,
        zlib.error,
        RuntimeError,
        ValueError,
        EOFError,
        RecursionError,
    ) as error:
        raise InputError(f"its notes of types cannot be read: {error}", path=path) from error


def note_types(document: Any) -> dict[str, str]:
    """Types by name of a note's JSON document.

    Raises:
        ValueError: It does not have the form {"dtypes": {name: text}}.
    """
    types = document.get("dtypes") if isinstance(document, dict) else None
    if not isinstance(types, dict) or not all(isinstance(t, str) for t in types.values()):
        raise ValueError('expected {"dtypes": {name: text}}')
    return types


def npz_bytes(arrays: Iterable[NamedArray]) -> bytes:
    """Content of a `.npz` file: equal arrays give equal bytes.

    Element types that the arrays alone do not tell (quantised, low-bit, bfloat16) are in a note,
    a member of the archive that is no array.

    Raises:
        InputError: A name cannot be one of an archive's.
    """
    target = io.BytesIO()
    types: dict[str, str] = {}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for item in arrays:
            name = item.name
            if not name or "\0" in name or len(name.encode("utf-8", "replace")) > 60000:
                raise InputError(f"{printable(name)!r} cannot name an array of an .npz file")
            try:
                member = zipfile.ZipInfo(f"{name}.npy", _TIME)
                large = item.array.nbytes > 1 << 30
                with archive.open(member, "w", force_zip64=large) as file:
                    np.lib.format.write_array(file, np.asarray(item.array), allow_pickle=False)
            except UnicodeEncodeError as error:
                raise InputError(f"the name {printable(name)!r} is no valid text") from error
            if item.type.lower() != item.array.dtype.name:
                types[name] = item.type
        if types:
            text = json.dumps({"dtypes": types}, ensure_ascii=False, indent=1)
            archive.writestr(zipfile.ZipInfo(NOTES, _TIME), text)
    return target.getvalue()
