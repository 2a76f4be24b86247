"""What is to be written, as records of plain data: everything decided, nothing left to look up.

The counterpart of `raw`: ids are numbers, operators have the ids and versions of the target, names
are bytes, parameter records are prepared. `write_v1` and `write_v2` only lay it out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mgeserial.dtypes import DType
from mgeserial.format.flatbuild import Part
from mgeserial.format.params_encode import Prepared
from mgeserial.format.raw import Opaque
from mgeserial.format.target import Target

__all__ = ["OutGraph", "OutMetadata", "OutOperator", "OutTensor", "OutVar"]


@dataclass(slots=True, eq=False)
class OutTensor:
    """A tensor of an operator; `value` of `nbytes` bytes, None when no value is stored."""

    name: bytes | None
    shape: tuple[int, ...]
    dtype: DType
    comp_node: bytes | None
    value: Part | None
    nbytes: int
    format: tuple[int, bytes] | None = None
    unknown: Opaque | None = None


@dataclass(slots=True, eq=False)
class OutOperator:
    """An operator; `outputs` are its ids, `names` those of its outputs (None: none is kept)."""

    type_id: int
    type_name: bytes
    version: int
    name: bytes | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    names: tuple[bytes, ...] | None
    comp_nodes: tuple[bytes | None, ...] = ()
    output_dtype: DType | None = None
    tensors: tuple[OutTensor, ...] = ()
    priority: int = 0
    params: tuple[Prepared, ...] = ()
    blobs: tuple[bytes, ...] = ()
    unknown: Opaque | None = None


@dataclass(slots=True, eq=False)
class OutVar:
    """What v2 stores about one id."""

    name: bytes | None
    shape: tuple[int, ...] | None = None


@dataclass(slots=True, eq=False)
class OutMetadata:
    """Metadata of a graph."""

    is_valid: bool = False
    graph_modified: bool = False
    user_info: bytes = b""
    optimize_options: int = 0
    unknown: Opaque | None = None


@dataclass(slots=True, eq=False)
class OutGraph:
    """One graph; `outputs` are (id, original id), `variables` one entry for each id (v2)."""

    target: Target
    operators: list[OutOperator] = field(default_factory=list)
    outputs: tuple[tuple[int, int], ...] = ()
    aliases: tuple[tuple[int, bytes], ...] = ()
    variables: tuple[OutVar, ...] | None = None
    metadata: OutMetadata | None = None
    shared_tensors: int = 0
    unknown: Opaque | None = None
