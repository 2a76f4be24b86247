"""Conditions that end a command with exit code 1: `ratio<0.95`, `p99_ms>20 or max_abs>1e-3`.

Names, numbers and six signs joined by `and` and `or`: nothing is evaluated but comparisons.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mgeserial.errors import InputError, printable

__all__ = ["Condition"]

_SIGNS: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
_ONE = re.compile(
    r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(<=|>=|==|!=|<|>)\s*([+-]?(?:[0-9.]+(?:[eE][+-]?[0-9]+)?|inf))\s*"
)
_JOIN = re.compile(r"\s+(and|or)\s+")
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition over named numbers.

    Attributes:
        text: As it was written.
        groups: Comparisons (name, sign, number); it holds when all of one group hold.
    """

    text: str
    groups: tuple[tuple[tuple[str, str, float], ...], ...]

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read a condition; `and` binds closer than `or`.

        Raises:
            InputError: It is not one.
        """
        if len(text) > _LONGEST:
            raise InputError(f"a condition has at most {_LONGEST} characters")
        parts = _JOIN.split(text)
        groups: list[list[tuple[str, str, float]]] = [[]]
        for place, part in enumerate(parts):
            if place % 2:
                if part == "or":
                    groups.append([])
                continue
            groups[-1].append(_comparison(part, text))
        return cls(text.strip(), tuple(map(tuple, groups)))

    def check_names(self, known: Mapping[str, object]) -> None:
        """Refuse names that a command does not have, before it runs.

        Raises:
            InputError: Lists the known ones.
        """
        for group in self.groups:
            for name, _, _ in group:
                if name not in known:
                    near = difflib.get_close_matches(name, list(known), n=1)
                    meant = f"did you mean `{near[0]}`? " if near else ""
                    raise InputError(
                        f"`{printable(self.text)}`: nothing is called `{printable(name)}` here",
                        hint=f"{meant}known: {', '.join(known)}",
                    )

    def holds(self, values: Mapping[str, float | None]) -> bool:
        """Whether it holds.

        A number that does not exist (None) makes its comparison hold: a gate that cannot be
        checked does not pass.

        Raises:
            InputError: A name is not among `values`.
        """
        self.check_names(values)
        return any(
            all(
                (found := values[name]) is None or _SIGNS[sign](found, number)
                for name, sign, number in group
            )
            for group in self.groups
        )


def _comparison(part: str, text: str) -> tuple[str, str, float]:
    found = _ONE.fullmatch(part)
    try:
        if found is None:
            raise ValueError(part)
        return found[1], found[2], float(found[3])
    except ValueError as error:
        raise InputError(
            f"`{printable(text)}` is no condition",
            hint="write NAME<NUMBER, such as `ratio<0.95` or `p99_ms>20 or max_abs>1e-3`",
        ) from error
