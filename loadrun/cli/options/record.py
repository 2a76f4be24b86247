"""What an option of the command line is: one record for the parser, the help and the documents."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["ALL", "LAR05", "LAR13", "Group", "Kind", "Option", "State", "flag", "value"]

LAR05, LAR13 = "0.5.1", "1.13.4"
# Both releases of load_and_run that are followed.
ALL = (LAR05, LAR13)


class Kind(enum.Enum):
    """How an option is written."""

    FLAG = "flag"
    VALUE = "value"
    LIST = "list"  # a value, and the option may be repeated
    MAYBE = "maybe"  # with or without a value


class State(enum.Enum):
    """What becomes of an option."""

    WORKS = "works"
    ALWAYS = "always so"  # accepted; what it asks for is never otherwise here
    REFUSED = "refused"  # exit code 3, with the reason


class Group(enum.Enum):
    """Where the help lists an option."""

    RUN = "running and timing"
    DATA = "inputs and outputs"
    RESULTS = "results"
    COMPARE = "comparing"
    PROFILE = "profile"
    DEVICE = "device and threads"
    ALGORITHMS = "algorithms and memory"
    GRAPH = "optimisation"
    CHECKS = "checks and dumps of all values"
    OTHER = "other options of load_and_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option.

    Attributes:
        names: Spellings with dashes, the usual one first.
        help: One line for the help; empty hides it (other spellings of what is listed already).
        effect: What happens, for the table of options.
        group: Where the help lists it.
        kind: How it is written.
        metavar: What its value is called.
        parse: Makes the value of the text.
        default: Value when it is not given.
        const: Value when it is given without one (`Kind.MAYBE`).
        choices: Values that are allowed; empty: any.
        everyday: Whether the short help lists it.
        releases: Releases of load_and_run that have it; empty: it is ours.
        state: What becomes of it.
        hint: What to do instead of a refused one.
    """

    names: tuple[str, ...]
    help: str
    effect: str
    group: Group
    kind: Kind = Kind.FLAG
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None
    default: Any = None
    const: Any = None
    choices: tuple[str, ...] = ()
    everyday: bool = False
    releases: tuple[str, ...] = ()
    state: State = State.WORKS
    hint: str | None = None

    @property
    def name(self) -> str:
        """The usual spelling."""
        return self.names[0]

    @property
    def dest(self) -> str:
        """Name of the value among the parsed arguments."""
        return self.name.lstrip("-").replace("-", "_")


def flag(name: str, help_text: str, effect: str, group: Group, **more: Any) -> Option:
    """A switch; further spellings follow the name after `|`."""
    return Option(names=tuple(name.split("|")), help=help_text, effect=effect, group=group, **more)


def value(
    name: str,
    metavar: str,
    help_text: str,
    effect: str,
    group: Group,
    parse: Callable[[str], Any] | None = None,
    default: Any = None,
    **more: Any,
) -> Option:
    """An option with a value."""
    return Option(
        names=tuple(name.split("|")),
        help=help_text,
        effect=effect,
        group=group,
        kind=more.pop("kind", Kind.VALUE),
        metavar=metavar,
        parse=parse,
        default=default,
        **more,
    )
