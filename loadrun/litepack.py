"""Packed models of MegEngine Lite: a model file with a description and a cache in one container.

The container is the tag `packed_model`, then a flatbuffer with one model of three tables: a header
(names: of the model, of the methods that decrypt and parse), information (a JSON document and a
cache of algorithms) and the model file's bytes. Nothing is encrypted here, nor by load_and_run: the
methods are named so that whoever encrypted the parts ahead can have them decrypted.

Source: MegEngine 1.13.4 lite/src/parse_model/pack_model.fbs (tables and the order of fields),
lite/src/pack_model/pack_model.cpp (tag, defaults), checked by loading files of ours with
megenginelite 1.13.0.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import flatbuffers

from mgeserial.errors import InputError, UnsupportedError

__all__ = ["TAG", "PackOptions", "pack_model"]

TAG = b"packed_model"
_NO_INFO = b'{"valid":false}'
# Offsets in a flatbuffer are 31 bits wide in practice.
_MOST_BYTES = (1 << 31) - (1 << 20)


@dataclass(frozen=True, slots=True)
class PackOptions:
    """What goes beside the model.

    Attributes:
        info: A JSON document that describes the model (its `name` goes into the header), as bytes;
            empty: none.
        cache: A cache of algorithms of MegEngine's fast run; empty: none.
        info_cryption: Name of the method that decrypts `info`.
        model_cryption: Name of the method that decrypts the model.
    """

    info: bytes = b""
    cache: bytes = b""
    info_cryption: str = "NONE"
    model_cryption: str = "NONE"


def pack_model(model: bytes, options: PackOptions | None = None) -> bytes:
    """Bytes of a packed model.

    Args:
        model: A model file, as it is.
        options: What goes beside it.

    Raises:
        InputError: The description is no JSON object with a text `name`.
        UnsupportedError: The parts are too large for the container.
    """
    chosen = options or PackOptions()
    if len(model) + len(chosen.info) + len(chosen.cache) > _MOST_BYTES:
        raise UnsupportedError("a packed model holds less than 2 GiB")
    name = _name(chosen)
    builder: Any = flatbuffers.Builder(len(model) + 1024)
    texts = [
        builder.CreateSharedString(text)
        for text in (
            name,
            chosen.info_cryption,
            "LITE_default",
            chosen.model_cryption,
            "LITE_parse_cache",
        )
    ]
    data = builder.CreateByteVector(model)
    info = builder.CreateByteVector(chosen.info or _NO_INFO)
    cache = builder.CreateByteVector(chosen.cache) if chosen.cache else 0
    builder.StartObject(6)
    for slot, text in enumerate(texts):
        builder.PrependUOffsetTRelativeSlot(slot, text, 0)
    builder.PrependBoolSlot(5, bool(chosen.cache), False)
    header = builder.EndObject()
    about = _table(builder, info, cache)
    whole = _table(builder, header, about, _table(builder, data))
    builder.StartVector(4, 1, 4)
    builder.PrependUOffsetTRelative(whole)
    builder.Finish(_table(builder, builder.EndVector()))
    return TAG + bytes(builder.Output())


def _table(builder: Any, *slots: int) -> int:
    """A table of offsets, slot by slot; 0: the slot is left out."""
    builder.StartObject(len(slots))
    for slot, offset in enumerate(slots):
        builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
    return int(builder.EndObject())


def _name(options: PackOptions) -> str:
    """Name of the model as its description has it; empty without one."""
    if not options.info or options.info_cryption != "NONE":
        return ""
    try:
        found = json.loads(options.info.decode("utf-8"))["name"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            "--pack-info-json needs a JSON object with the model's `name`",
            hint='such as {"valid": true, "name": "net", "version": "1.13.0"}',
        ) from error
    if not isinstance(found, str):
        raise InputError("--pack-info-json: `name` is a text")
    return found
