"""What the two containers have in common, as records of plain data: no meaning of operators yet.

Names, dtypes, ids and tensor places are decoded (and so checked) when a file is read; parameter
tables, blobs and tensor values only when asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mgeserial._record import Params
from mgeserial.dtypes import DType
from mgeserial.format.flatbuf import Buffer, TableDef

__all__ = ["Opaque", "RawGraph", "RawMetadata", "RawOperator", "RawTensor", "RawVar"]


@dataclass(frozen=True, slots=True, eq=False)
class Opaque:
    """Content of another release, kept where it stands: a table at `pos` of `buffer`.

    `table` is what is known of it (None: a union member that the schema lacks, with the number
    `member`); for a parameter table `release` says whose layout that is (None: today's).
    """

    buffer: Buffer = field(repr=False)
    pos: int
    table: TableDef | None = field(default=None, repr=False)
    member: int = 0
    release: str | None = None


@dataclass(slots=True, eq=False)
class RawTensor:
    """A tensor of an operator.

    `data` is a view of the file (None: no value stored), `offset` its place in the file. `shape`
    () means unknown for an input. `format` is (union number, payload bytes) of v2, None for plain.
    """

    name: str | None
    shape: tuple[int, ...]
    dtype: DType
    comp_node: str | None
    data: memoryview | None
    offset: int
    format: tuple[int, bytes] | None = None
    unknown: Opaque | None = None


@dataclass(slots=True, eq=False)
class RawVar:
    """What v2 stores about one id: name, shape (None when absent), comp_node, dtype."""

    name: str | None
    shape: tuple[int, ...] | None = None
    comp_node: str | None = None
    dtype: DType | None = None
    format: tuple[int, bytes] | None = None


@dataclass(slots=True, eq=False)
class RawMetadata:
    """Metadata of a graph. `user_info` stays bytes: MegEngine puts a pickle there."""

    is_valid: bool = False
    graph_modified: bool = False
    user_info: bytes = b""
    optimize_options: int = 0
    unknown: Opaque | None = None


@dataclass(slots=True, eq=False)
class RawOperator:
    """One operator as stored.

    `outputs` are the ids a v2 file lists (None in v1). `param_refs` are (union number, position)
    of its tables in file order; `params()` decodes them. `unknown` holds fields the schema lacks.
    """

    index: int
    offset: int
    type_id: int
    type_name: str | None
    version: int
    name: str | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...] | None
    output_names: tuple[str, ...] | None
    comp_nodes: tuple[str | None, ...]
    output_dtype: DType | None
    tensors: tuple[RawTensor, ...]
    priority: int
    param_refs: tuple[tuple[int, int], ...]
    blob_refs: tuple[int, ...]
    decode_params: Callable[[tuple[tuple[int, int], ...]], tuple[Params | Opaque, ...]]
    decode_blobs: Callable[[tuple[int, ...]], tuple[bytes, ...]]
    unknown: Opaque | None = None


@dataclass(slots=True, eq=False)
class RawGraph:
    """One graph of a file.

    `container` is `MGBS`, `MGBC` or `mgv2`; `start` and `end` are file offsets of the whole graph,
    `meta_start` and `meta_size` of its flatbuffer. `outputs` are (id, original id).
    """

    container: str
    start: int
    end: int
    meta_start: int
    meta_size: int
    version: int
    model_version: int
    hash: int
    shared_tensors: int
    operators: list[RawOperator]
    outputs: tuple[tuple[int, int], ...]
    aliases: tuple[tuple[int, str | None], ...]
    variables: tuple[RawVar, ...] | None
    metadata: RawMetadata | None
    release: str | None
    unknown: Opaque | None = None
