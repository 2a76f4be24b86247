"""What the generated parameter records are made of.

Records are frozen: a changed one is a new one (`replace`). They compare by value, hash, print the
fields that differ from their defaults, and remember unknown fields of newer releases (`extra`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

__all__ = ["Params", "Record", "SchemaEnum", "SchemaFlag"]

_R = TypeVar("_R", bound="Record")
set_field = object.__setattr__


class SchemaEnum(enum.IntEnum):
    """An enum of the schema. A number that no known release has becomes `UNKNOWN_<number>`."""

    @classmethod
    def _missing_(cls, value: object) -> SchemaEnum | None:
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_ = f"UNKNOWN_{value}"
        member._value_ = value
        return member

    @property
    def is_known(self) -> bool:
        """Whether the schema has this number."""
        return not self._name_.startswith("UNKNOWN_")

    def __str__(self) -> str:
        return self._name_.rstrip("_")


class SchemaFlag(enum.IntFlag):
    """A bit set of the schema; unknown bits are kept."""

    def __str__(self) -> str:
        return "|".join(m.name or "" for m in type(self) if m in self) or "0"


class Record:
    """A frozen record with the fields named in `FIELDS`."""

    __slots__ = ()
    FIELDS: ClassVar[tuple[str, ...]] = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: use replace({name}=...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_same(getattr(self, n), getattr(other, n)) for n in self._compared())

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, n) for n in self._compared())))

    def _compared(self) -> tuple[str, ...]:
        return self.FIELDS

    def as_items(self) -> Iterator[tuple[str, Any]]:
        """(name, value) of each field in the schema's order."""
        for name in self.FIELDS:
            yield name, getattr(self, name)

    def replace(self: _R, **changes: Any) -> _R:
        """Make a copy with some fields changed (TypeError names an unknown one)."""
        return type(self)(**{**{n: getattr(self, n) for n in self._compared()}, **changes})

    def __repr__(self) -> str:
        parts = [f"{n}={_show(v)}" for n, v in self.as_items()]
        return f"{type(self).__name__}({', '.join(parts)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_remake, (type(self), {n: getattr(self, n) for n in self._compared()}))


def _remake(cls: type[Record], values: dict[str, Any]) -> Record:
    return cls(**values)


def _same(a: object, b: object) -> bool:
    # NaN defaults compare equal to themselves: records are data, not arithmetic.
    return a == b or (a != a and b != b)


def _show(value: object) -> str:
    if isinstance(value, (SchemaEnum, SchemaFlag)):
        return str(value)
    return repr(value)


class Params(Record):
    """A parameter table of an operator.

    `UNION_ID` is its number in OperatorParam, `TABLE` its name in the schema. `extra` is the table
    of a file (`format.raw.Opaque`) that has fields which the schema does not know, so that they can
    be written back unchanged; it is None for everything that public releases write.
    """

    __slots__ = ("extra",)
    UNION_ID: ClassVar[int] = 0
    TABLE: ClassVar[str] = ""
    extra: Any

    def __init__(self, *, extra: object = None) -> None:
        set_field(self, "extra", extra)

    def _compared(self) -> tuple[str, ...]:
        return (*self.FIELDS, "extra")

    def __repr__(self) -> str:
        default = type(self)()
        parts = [f"{n}={_show(v)}" for n, v in self.as_items() if not _same(v, getattr(default, n))]
        return f"{type(self).__name__}({', '.join(parts)})"
