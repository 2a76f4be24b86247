"""What a file is when it is no model: everything else that is found under the suffix `.mge`.

Nothing is ever unpickled, decompressed or parsed here: a few first bytes decide.
"""

from __future__ import annotations

import os

from mgeserial.errors import FormatError, NotAModelError

__all__ = ["diagnose"]

_MODELS = "models are made by megengine.jit.trace(...).dump(...)"
_PICKLE_HINT = (
    "it holds weights or a traced module, not a graph: `mgeserial weights list` shows its arrays; "
    "dump the model with megengine.jit.trace(...).dump(...)"
)

_INTERNAL = "no open source release reads it: dump the network again with MegEngine"
# (first bytes, what it is, what to do)
_MAGICS: tuple[tuple[bytes, str, str], ...] = (
    (b"mgb0001", "a MegBrain internal model (mgb0001)", _INTERNAL),
    (b"mgb0000a", "a MegBrain internal model (mgb0000a)", _INTERNAL),
    (b"version https://git-lfs", "a Git LFS pointer, not the file", "fetch it with `git lfs pull`"),
    (b"PK\x03\x04", "a zip archive (PyTorch, npz or a packed folder)", f"unpack it; {_MODELS}"),
    (b"\x1f\x8b", "gzip-compressed", "decompress it with `gunzip` first"),
    (b"BZh", "bzip2-compressed", "decompress it with `bunzip2` first"),
    (b"\xfd7zXZ\x00", "xz-compressed", "decompress it with `unxz` first"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed", "decompress it with `zstd -d` first"),
    (b"\x89PNG", "a PNG image", f"pass it with --input; {_MODELS}"),
    (b"\xff\xd8\xff", "a JPEG image", f"pass it with --input; {_MODELS}"),
    (b"\x93NUMPY", "a numpy array (.npy)", f"pass it with --input; {_MODELS}"),
    (b"\x89HDF", "an HDF5 file (Keras?)", _MODELS),
    (b"\x7fELF", "an ELF program or library", _MODELS),
    (b"MZ", "a Windows program or library", _MODELS),
    (b"%PDF", "a PDF document", _MODELS),
    (b"packed_model", "a packed model of MegEngine Lite", "take the model that was packed"),
)  # fmt: skip


def diagnose(
    data: memoryview,
    path: str | os.PathLike[str] | None,
    *,
    start: int = 0,
    inside: str | None = None,
) -> FormatError:
    """Make the error that says what the bytes from `start` on look like.

    Args:
        data: The whole file.
        path: Its name, for the message.
        start: Where a graph was expected.
        inside: What it was expected in, when not at the start of a file.
    """
    if inside is not None:
        shown = bytes(data[start : start + 16]).hex(" ")
        left = len(data) - start
        return FormatError(
            f"expected {inside}, found {left} other bytes: {shown}{' ...' if left > 16 else ''}",
            path=path,
            offset=start,
            hint="the file is damaged or has something appended",
        )
    what, hint = _recognise(data)
    return NotAModelError(f"not a MegEngine model: {what}", path=path, offset=0, hint=hint)


def _recognise(data: memoryview) -> tuple[str, str]:
    head = bytes(data[:512])
    if not head:
        return "the file is empty (0 bytes)", "download or dump it again"
    for magic, what, hint in _MAGICS:
        if head.startswith(magic):
            return what, hint
    if head[:1] == b"\x80" and len(head) > 1 and 2 <= head[1] <= 5:
        return f"a Python pickle (megengine.save, protocol {head[1]})", _PICKLE_HINT
    return _recognise_container(head) or _recognise_text(head) or _unknown(data)


def _recognise_container(head: bytes) -> tuple[str, str] | None:
    if head[:4] in (b"MGBS", b"MGBC"):
        if len(head) < 24:
            return (
                f"a {head[:4].decode()} model cut off after {len(head)} bytes",
                "download it again",
            )
        return (
            f"a {head[:4].decode()} model with feature bits {head[4:12].hex()}, which no known "
            "release writes",
            "a newer MegEngine wrote it, or it is damaged",
        )
    if b"mgbtest0"[: len(head)] == head[:8] or b"packed_model"[: len(head)] == head[:12]:
        return f"a model file cut off after {len(head)} bytes", "download it again"
    if head[8:12] == b"mgv2":  # long enough ones never come here
        return f"an mgv2 model cut off after {len(head)} bytes", "download it again"
    if head[8:11] == b"mgv":
        return (
            f"a model of container {head[8:12]!r}; mgv2 is the last one known",
            "a newer MegEngine wrote it: update this program",
        )
    if head[4:8] == b"TFL3":
        return "a TensorFlow Lite model", _MODELS
    if b"onnx" in head[:64].lower() or (head[:1] == b"\x08" and b"pytorch" in head[:64]):
        return "an ONNX model", _MODELS
    return None


def _recognise_text(head: bytes) -> tuple[str, str] | None:
    try:
        text = head.decode("utf-8", errors="strict")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:
            return None
        text = head[: error.start].decode("utf-8")
    if any(ord(c) < 32 and c not in "\t\r\n\f" for c in text):
        return None
    body = text.lstrip("\ufeff").lstrip()
    if not body:
        return f"nothing but {len(head)} bytes of blanks", "download or dump it again"
    low = body[:200].lower()
    if low.startswith(("<!doctype html", "<html", "<head")) or "<html" in low:
        return (
            "an HTML page: a download went wrong",
            "open the link in a browser and save the file itself",
        )
    if low.startswith("<"):
        return "an XML document", _MODELS
    if body[0] in "{[":
        return "JSON text", "a model for megenginejs or a description, not a model of the runtime"
    return f"plain text: {body[:40]!r}", _MODELS


def _unknown(data: memoryview) -> tuple[str, str]:
    shown = bytes(data[:16]).hex(" ")
    text = "".join(chr(b) if 32 <= b < 127 else "." for b in bytes(data[:16]))
    return f"first bytes {shown} |{text}|", f"encrypted, compressed or damaged? {_MODELS}"
