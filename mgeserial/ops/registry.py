"""The one description of every operator, and its look-up by the ids that files store.

An `OpSpec` says everything about an operator once: names and ids by release, parameters, arity,
output ids, dtype rule, shape rule, and its meaning in numpy. Backends register rules against the
record; they never describe the operator again. A package of its own registers one the same way::

    from mgeserial.ops.registry import OpSpec, register

    DOUBLE = register(OpSpec(
        name="Double", inputs=("x",), dtypes=dtype_of(0), shapes=shape_of(0),
        reference=lambda call, x: x + x, source="ours",
    ))

Ids are XXH64 with seed 20160701 of the registered name: with one NUL byte appended ("persist", in
MGBC files and in v2 files with opr_version 2) or of the name without its V suffix ("old", in MGBS
files and in v2 files with opr_version 1). They are stored here as numbers; a test recomputes them.
Source: operators.json (checked against dumps of MegEngine 1.13.0).
"""

from __future__ import annotations

import difflib
import importlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mgeserial._record import Params
from mgeserial.errors import GraphError
from mgeserial.ir.types import DTypes, Reference, Shapes

__all__ = [
    "FAMILIES",
    "Gap",
    "Name",
    "OpSpec",
    "OutputQuery",
    "V2Id",
    "by_name",
    "by_old_id",
    "by_persist_id",
    "by_v2_id",
    "every",
    "register",
    "unregister",
]

# Modules of this package that register operators; loaded together when the first id is looked up.
FAMILIES = (
    "data", "control", "condexec", "elemwise", "multitype", "typecvt", "fakequant", "conv",
    "conv3d", "convgrad", "maskconv", "local", "deformable", "psroi", "relayout", "pooling",
    "norm", "normgrad", "activation", "reduce", "sorting", "linalg", "shape", "create", "padding",
    "indexing", "mesh", "resize", "warp", "warpgrad", "roi", "correlation", "color", "filters",
    "image", "recurrent", "attention", "random", "external",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Name:
    """A name the operator was registered under, its persist id and the releases that used it."""

    name: str
    since: str
    persist_id: int
    until: str | None = None


@dataclass(frozen=True, slots=True)
class V2Id:
    """What a v2 file may store: type text, opr_version and type_id (`since` the first release)."""

    type: str
    version: int
    type_id: int
    since: str | None = None


@dataclass(frozen=True, slots=True)
class OutputQuery:
    """What a file says about an operator whose number of output ids is not fixed.

    Attributes:
        inputs: Number of inputs.
        tensors: Number of tensors stored with the operator.
        param: Its first parameter record, decoded on demand.
        blobs: Its opaque data, decoded on demand.
        names: Number of stored output names, None when names are not stored.
        version: `mgb_version` of the file whatever its container.
        added_reserve: Whether BatchNorm has the reserve output of v1.7.0 and later.
    """

    inputs: int
    tensors: int
    param: Callable[[], Any]
    blobs: Callable[[], tuple[bytes, ...]]
    names: int | None
    version: int
    added_reserve: bool = True


Count = int | Callable[[OutputQuery], int]


@dataclass(frozen=True, slots=True)
class Gap:
    """A known limit of an operator on a backend, with its reason: data for checks and documents."""

    backend: str
    reason: str
    when: str = ""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OpSpec:
    """The description of one operator.

    Attributes:
        name: The project's name: the registered name without version suffix.
        runtime_name: MegEngine's run-time type name, as its tools print it.
        names: Registered names over time, oldest first.
        old_id: Unversioned id (MGBS files).
        v2: Ids a v2 file may store; `v2_written` is the index of the one today's writers choose.
        params: Parameter records in file order.
        inputs: Names of the inputs; the last repeats when `max_inputs` is None.
        min_inputs, max_inputs: Arity; None without bound. Default: exactly `inputs`.
        outputs: Names of the outputs that have an id (the last repeats).
        output_count: Number of output ids, or a function of what the file says.
        tensors, blobs: What is stored with the operator: a number, or None for "one or more".
        dtypes, shapes, reference: The rules. Missing ones are `gaps`.
        partial: The shape rule takes unknown dimensions.
        is_pure: Equal inputs give equal outputs.
        gaps: Known limits.
        source: Where the facts come from.
        tags: Marks: `reads-absent` (runs with inputs of a disabled branch), `unknown`.
    """

    name: str
    runtime_name: str = ""
    names: tuple[Name, ...] = ()
    old_id: int = 0
    v2: tuple[V2Id, ...] = ()
    v2_written: int = -1
    params: tuple[type[Params], ...] = ()
    inputs: tuple[str, ...] = ()
    min_inputs: int | None = None
    max_inputs: int | None = -1
    outputs: tuple[str, ...] = ("y",)
    output_count: Count = 1
    tensors: int | None = 0
    blobs: int | None = 0
    dtypes: DTypes | None = None
    shapes: Shapes | None = None
    reference: Reference | None = None
    partial: bool = False
    is_pure: bool = True
    gaps: tuple[Gap, ...] = ()
    source: str = ""
    tags: frozenset[str] = field(default_factory=frozenset)

    @property
    def param_types(self) -> tuple[type[Params], ...]:
        """Parameter records in file order."""
        return self.params

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return self.inputs

    @property
    def arity(self) -> tuple[int, int | None]:
        """Least and greatest number of inputs; None: no bound."""
        least = len(self.inputs) if self.min_inputs is None else self.min_inputs
        most = len(self.inputs) if self.max_inputs == -1 else self.max_inputs
        return least, most

    def __repr__(self) -> str:
        return f"OpSpec({self.name})"


_by_name: dict[str, OpSpec] = {}
_by_old: dict[int, OpSpec] = {}
_by_persist: dict[int, OpSpec] = {}
_by_v2: dict[int, OpSpec] = {}
_loaded = _loading = False
_LOCK = threading.RLock()


def register(spec: OpSpec) -> OpSpec:
    """Add a record; return it.

    Raises:
        GraphError: The name or an id is taken by another record.
    """
    if spec.name in _by_name:
        raise GraphError(f"an operator {spec.name} is registered already")
    taken = [i for i in _ids(spec) if i in _by_old or i in _by_persist or i in _by_v2]
    if taken:
        raise GraphError(f"operator {spec.name}: id {taken[0]} belongs to another operator")
    _by_name[spec.name] = spec
    if spec.old_id:
        _by_old[spec.old_id] = spec
    for name in spec.names:
        _by_persist[name.persist_id] = spec
    for item in spec.v2:
        _by_v2[item.type_id] = spec
    return spec


def unregister(spec: OpSpec) -> None:
    """Remove a record again (for tests and for packages that are unloaded)."""
    _by_name.pop(spec.name, None)
    for table in (_by_old, _by_persist, _by_v2):
        for key in [k for k, v in table.items() if v is spec]:
            del table[key]


def _ids(spec: OpSpec) -> set[int]:
    ids = {n.persist_id for n in spec.names} | {v.type_id for v in spec.v2}
    return ids | ({spec.old_id} if spec.old_id else set())


def _load() -> None:
    """Import all families; other threads wait until the table is complete."""
    global _loaded, _loading
    if _loaded:
        return
    with _LOCK:
        if _loading:
            return  # a family that is being imported asks, or another thread was faster
        _loading = True
        try:
            for family in FAMILIES:
                importlib.import_module(f"mgeserial.ops.{family}")
            _loaded = True
        finally:
            # After an error the next look-up meets it again, instead of half a table.
            _loading = _loaded


def by_old_id(type_id: int) -> OpSpec | None:
    """The record with this unversioned id (MGBS files)."""
    _load()
    return _by_old.get(type_id)


def by_persist_id(type_id: int) -> OpSpec | None:
    """The record with this persist id (MGBC files)."""
    _load()
    return _by_persist.get(type_id)


def by_v2_id(type_id: int) -> OpSpec | None:
    """The record with this id, of either form (v2 files)."""
    _load()
    return _by_v2.get(type_id) or _by_persist.get(type_id) or _by_old.get(type_id)


def by_name(name: str) -> OpSpec:
    """The record with this name.

    Raises:
        GraphError: There is none; close names are listed.
    """
    _load()
    found = _by_name.get(name)
    if found is None:
        close = difflib.get_close_matches(name, _by_name, n=3)
        raise GraphError(
            f"no operator is called {name!r}", hint=f"close: {', '.join(close)}" if close else None
        )
    return found


def every() -> Iterator[OpSpec]:
    """All records, in order of registration."""
    _load()
    yield from list(_by_name.values())
