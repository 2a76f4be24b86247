"""Everything that can go wrong, one class per cause.

The tree::

    MgeError
    +-- FormatError        the bytes are not what the format asks for
    |   `-- NotAModelError     the file is something else (pickle, HTML, LFS pointer, ...)
    +-- UnsupportedError   valid, but not something that can be done here (exit code 3)
    |   `-- ConversionError    a container or release cannot express everything; lists it
    +-- GraphError         a graph is not well formed, or an edit would make it so
    +-- ShapeError         shapes or dtypes of an operator's inputs do not fit
    +-- InputError         the caller's inputs or options are missing, unknown or wrongly typed
    +-- ExecutionError     an operator failed while it ran
    +-- PassError          a pass failed; names the passes already run
    `-- LoweringError      a backend has no rule for an operator

Each error carries what is known as attributes (`path`, `offset`, `where`, `hint`) beside its text,
survives pickling, and knows the exit code a command returns for it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

__all__ = [
    "ConversionError",
    "ExecutionError",
    "FormatError",
    "GraphError",
    "InputError",
    "LoweringError",
    "MgeError",
    "NotAModelError",
    "PassError",
    "Problem",
    "ShapeError",
    "UnsupportedError",
    "printable",
]


def printable(text: str, *, limit: int = 120) -> str:
    """Make a name from a file safe to show: control characters escaped, length bounded."""
    shown = _escaped(text[: limit + 1])
    return shown if len(shown) <= limit else shown[:limit] + "..."


def _escaped(text: str) -> str:
    """The text with everything escaped that a terminal would obey or hide, line ends included."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


class MgeError(Exception):
    """Base of all errors of this project.

    Args:
        message: What was required and what was found.
        path: File concerned, if any.
        offset: Byte offset in that file, if known.
        where: Place in the file or graph, such as `oprs[17].inputs[1]`.
        hint: What to do next, one line.
    """

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        path: str | os.PathLike[str] | None = None,
        offset: int | None = None,
        where: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = None if path is None else os.fsdecode(path)
        self.offset = offset
        self.where = where
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message), self.__dict__)

    def located(
        self,
        *,
        path: str | os.PathLike[str] | None = None,
        offset: int | None = None,
        where: str | None = None,
    ) -> MgeError:
        """Fill in what the place that raised could not know; return self for `raise`."""
        if self.path is None and path is not None:
            self.path = os.fsdecode(path)
        if self.offset is None:
            self.offset = offset
        if where is not None:
            self.where = where if self.where is None else f"{where}.{self.where}"
        return self

    def __str__(self) -> str:
        message = _escaped(self.message)
        head = f"{_escaped(self.path)}: {message}" if self.path else message
        place = []
        if self.where is not None:
            place.append(self.where)
        if self.offset is not None:
            place.append(f"file offset 0x{self.offset:x}")
        if place:
            head += f" (at {_escaped(', '.join(place))})"
        return f"{head}\nhint: {_escaped(self.hint)}" if self.hint else head


def _rebuild(cls: type[MgeError], message: str) -> MgeError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    return error


class FormatError(MgeError):
    """The bytes of a file are not what the format asks for."""


class NotAModelError(FormatError):
    """The file is recognised as something that is not a readable model."""


class UnsupportedError(MgeError):
    """The file or request is valid, but this cannot be done here (yet)."""

    exit_code = 3


class GraphError(MgeError):
    """A graph is not well formed, or an edit would make it so."""


class ShapeError(MgeError):
    """Shapes or dtypes of an operator's inputs do not fit together."""


class InputError(MgeError):
    """The caller's inputs or options are missing, unknown or wrongly typed."""


class ExecutionError(MgeError):
    """An operator failed while it ran."""


class PassError(MgeError):
    """A pass over a graph failed."""


class LoweringError(UnsupportedError):
    """A backend has no rule that runs an operator."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that a target cannot express: which operator, its name, why."""

    operator: str
    name: str
    reason: str

    def __str__(self) -> str:
        name = f' "{printable(self.name)}"' if self.name else ""
        return f"{_escaped(self.operator)}{name}: {_escaped(self.reason)}"


class ConversionError(UnsupportedError):
    """A container or a release cannot express everything; `problems` lists it in full."""

    def __init__(
        self,
        target: str,
        problems: tuple[Problem, ...],
        *,
        path: str | os.PathLike[str] | None = None,
        hint: str | None = None,
    ) -> None:
        count = f"{len(problems)} thing{'s' * (len(problems) != 1)}"
        super().__init__(f"{target} cannot express {count}", path=path, hint=hint)
        self.problems = problems

    def __str__(self) -> str:
        head, _, hint = super().__str__().partition("\n")
        lines = [head, *(f"  {problem}" for problem in self.problems)]
        return "\n".join([*lines, hint] if hint else lines)
