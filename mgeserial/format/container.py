"""Files: opening a source, telling the containers apart, walking the graphs of a file.

Source: FORMAT sections 0, (a) "several graphs in one file", (c) and (j).
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

from mgeserial.errors import FormatError, InputError, NotAModelError, UnsupportedError
from mgeserial.format import v1, v2
from mgeserial.format.filemap import FileMap
from mgeserial.format.flatbuf import Buffer, load_schema
from mgeserial.format.raw import RawGraph
from mgeserial.format.sniff import diagnose

__all__ = ["Layout", "Source", "open_source", "walk"]

TEST_MAGIC = b"mgbtest0"
LITE_MAGIC = b"packed_model"
# Each graph costs more than its bytes; data sets of test cases have thousands.
MAX_GRAPHS = 1 << 14
# Smaller files are read at once: cheaper than a map, and no later change of the file shows through.
_MAP_FROM = 1 << 20

SourceLike: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes]"


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Bytes of a file: read-only, mapped when large. `position` is where reading begins."""

    data: memoryview
    path: str | None
    position: int = 0


@dataclass(slots=True, eq=False)
class Layout:
    """How the graphs of a file are wrapped.

    `testcases` is the number an `mgbtest0` header declares (None: no such header), `lite` the facts
    of a MegEngine Lite package around it all.
    """

    testcases: int | None = None
    lite: dict[str, Any] | None = None


def open_source(source: SourceLike) -> Source:
    """Get at the bytes of a path, of bytes in memory, or of an open binary file.

    An open file is read from its current position.

    Raises:
        InputError: Missing file, directory, no permission, not a regular file, text mode.
    """
    if isinstance(source, (str, os.PathLike)):
        named = os.fsdecode(source)
        return Source(_read_path(named), named)
    if isinstance(source, (bytes, bytearray)):
        return Source(memoryview(bytes(source)), None)
    if isinstance(source, memoryview):
        if not source.c_contiguous:
            raise InputError("a memoryview must be contiguous")
        return Source(source.cast("B").toreadonly(), None)
    read = getattr(source, "read", None)
    if read is None:
        raise InputError(
            f"expected a path, bytes or an open binary file, got {type(source).__name__}"
        )
    name = getattr(source, "name", None)
    path = name if isinstance(name, str) else None
    try:
        if isinstance(read(0), str):
            raise InputError("the file is open in text mode: open it with 'rb'", path=path)
        return _read_file(source, path)
    except (OSError, ValueError) as error:  # closed, opened for writing, broken pipe ...
        raise InputError(f"cannot be read: {error}", path=path) from error


def _read_file(file: IO[bytes], path: str | None) -> Source:
    with contextlib.suppress(OSError, ValueError, AttributeError, io.UnsupportedOperation):
        number = file.fileno()
        # A reader that unpacks (gzip.open) has a file descriptor too, of the packed bytes.
        plain = isinstance(file, (io.BufferedReader, io.BufferedRandom, io.FileIO))
        if plain and stat.S_ISREG(os.fstat(number).st_mode):
            return Source(_map(number), path, file.tell())
    return Source(memoryview(file.read()).toreadonly(), path)


def _read_path(path: str) -> memoryview:
    try:
        # Asked before opening, which would wait for the other end of a pipe.
        kind = os.stat(path).st_mode
        if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
            raise InputError("not a regular file", path=path, hint="copy its content to one")
        with open(path, "rb", buffering=0) as file:
            return _map(file.fileno())
    except FileNotFoundError as error:
        folder = Path(path).parent
        near = sorted(p.name for p in folder.glob("*.mge"))[:5] if folder.is_dir() else []
        hint = f"in that folder: {', '.join(near)}" if near else "check the path"
        raise InputError("no such file", path=path, hint=hint) from error
    except IsADirectoryError as error:
        raise InputError(
            "is a directory, not a model", path=path, hint="name the file in it"
        ) from error
    except PermissionError as error:
        if Path(path).is_dir():
            raise InputError("is a directory, not a model", path=path) from error
        raise InputError("no permission to read the file", path=path) from error
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", path=path) from error


def _map(number: int) -> memoryview:
    size = os.fstat(number).st_size
    if size >= _MAP_FROM:
        return memoryview(FileMap(number))
    chunks, position = [], 0
    while position < size:
        chunk = _read_at(number, size - position, position)
        if not chunk:
            break
        chunks.append(chunk)
        position += len(chunk)
    return memoryview(b"".join(chunks))


def _read_at(number: int, size: int, position: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(number, size, position)
    here = os.lseek(number, 0, os.SEEK_CUR)
    os.lseek(number, position, os.SEEK_SET)
    try:
        return os.read(number, size)
    finally:
        os.lseek(number, here, os.SEEK_SET)


def _kind(data: memoryview, at: int) -> str | None:
    """`v1`, `v2` or None for the bytes at `at`."""
    head = bytes(data[at : at + 12])
    if head[:4] in v1.HEADERS and head[4:8] == b"\0\0\0\0":
        return "v1"
    # MegEngine reads 25 bytes before it looks for the identifier; no valid model is shorter.
    return "v2" if head[8:12] == v2.IDENTIFIER and at + 25 <= len(data) else None


def walk(source: Source, layout: Layout) -> Iterator[RawGraph]:
    """Yield the graphs of a file in file order, and note in `layout` how they are wrapped.

    Raises:
        FormatError: Not a model (then what it is), damaged, or followed by something else.
        UnsupportedError: An encrypted MegEngine Lite package.
    """
    data, path, at = source.data, source.path, source.position
    if bytes(data[at : at + 12]) == LITE_MAGIC:
        data, at = _unwrap_lite(data, at, path, layout)
    if bytes(data[at : at + 8]) == TEST_MAGIC:
        if at + 12 > len(data):
            raise FormatError("the header of test cases is cut off", path=path, offset=at)
        layout.testcases = struct.unpack_from("<I", data, at + 8)[0]
        at += 12
    first, count = at, 0
    while at < len(data) or count == 0:
        kind = _kind(data, at)
        if kind is None:
            raise _no_graph(data, at, path, first, layout)
        if count == MAX_GRAPHS:
            raise FormatError(f"more than {MAX_GRAPHS} graphs in a file", path=path, offset=at)
        graph = (v1 if kind == "v1" else v2).read_graph(data, at, path)
        count += 1
        yield graph
        at = graph.end
    declared = layout.testcases
    if declared is not None and count != declared + 1:
        raise FormatError(
            f"the file declares {declared} test cases and holds {count - 1}: truncated or damaged",
            path=path,
            offset=first - 4,
        )


def _no_graph(
    data: memoryview, at: int, path: str | None, first: int, layout: Layout
) -> FormatError:
    if at == first and layout.testcases is None and layout.lite is None:
        return diagnose(data[at:], path)
    if at >= len(data):
        return FormatError(
            "the file ends where a graph should begin: truncated", path=path, offset=at
        )
    return diagnose(data, path, start=at, inside="another graph" if at > first else "a graph")


def _unwrap_lite(
    data: memoryview, at: int, path: str | None, layout: Layout
) -> tuple[memoryview, int]:
    """Position of the model inside a MegEngine Lite package."""
    schema = load_schema("lite_pack")
    buf = Buffer(data[at + 12 :], path=path, base=at + 12)
    root = buf.follow(0)
    models = buf.layout(root, schema.root)[0]
    places = buf.offsets(root + models) if models else []
    if len(places) != 1:
        raise buf.error(
            f"a Lite package holds one model, got {len(places)}", root, "PackModel.models"
        )
    header, info, body = buf.layout(places[0], schema.table("mgeserial.lite.Model"))
    layout.lite = _lite_facts(buf, places[0], header, info)
    method = layout.lite["model_decryption_method"]
    if method not in ("", "NONE"):
        raise UnsupportedError(
            f"the model inside this MegEngine Lite package is encrypted ({method})",
            path=path,
            hint="unpack it with the tool and key that packed it, then read the plain .mge",
        )
    place = 0
    if body:
        pos = buf.follow(places[0] + body)
        place = buf.layout(pos, schema.table("mgeserial.lite.ModelData"))[0]
    if not body or not place:
        raise buf.error("the Lite package holds no model data", root, "Model.data")
    start, count = buf.bulk(pos + place, 1)
    begin = at + 12 + start
    if count == 0 or bytes(data[begin : begin + 12]) == LITE_MAGIC:
        raise NotAModelError("the Lite package's model data is no model", path=path, offset=begin)
    return data[: begin + count], begin


def _lite_facts(buf: Buffer, model: int, header: int, info: int) -> dict[str, Any]:
    schema = load_schema("lite_pack")
    facts: dict[str, Any] = {"name": "", "model_decryption_method": "", "info": ""}
    if header:
        pos = buf.follow(model + header)
        table = schema.table("mgeserial.lite.ModelHeader")
        at = buf.layout(pos, table)
        for item in table.fields[:5]:
            facts[item.name] = buf.text(pos + at[item.slot]) if at[item.slot] else ""
    if info and facts.get("info_decryption_method", "") in ("", "NONE"):
        pos = buf.follow(model + info)
        at = buf.layout(pos, schema.table("mgeserial.lite.ModelInfo"))
        raw = buf.u8s(pos + at[0]) if at[0] else b""
        facts["info"] = raw[: 1 << 16].decode("utf-8", errors="replace")
    return facts
