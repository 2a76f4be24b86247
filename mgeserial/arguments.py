"""Arguments of callers, checked: what is wrong is said in the caller's words, not in Python's."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from mgeserial.errors import InputError, printable

__all__ = ["shown", "whole", "wholes"]


def shown(value: object) -> str:
    """A value as messages show it: one short line."""
    return printable(repr(value), limit=60)


def whole(value: Any, what: str, *, least: int | None = None) -> int:
    """A whole number of Python or numpy.

    Args:
        value: What was given.
        what: What it is for: begins the message.
        least: The smallest one allowed.

    Raises:
        InputError: It is something else or too small.
    """
    rule = "a whole number" if least is None else f"a whole number from {least}"
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{what} is {rule}, got {shown(value)}") from None
    if least is not None and number < least:
        raise InputError(f"{what} is {rule}, got {number}")
    return number


def wholes(
    values: Iterable[Any], what: str, *, count: int | None = None, least: int | None = None
) -> tuple[int, ...]:
    """Several whole numbers; `what` names one of them in the plural, such as `strides`.

    Raises:
        InputError: It is no sequence, of another length than `count`, or not of such numbers.
    """
    number = "" if count is None else f"{count} "
    try:
        given = tuple(values)
    except TypeError:
        raise InputError(f"{what} are {number}whole numbers, got {shown(values)}") from None
    if isinstance(values, str) or (count is not None and len(given) != count):
        raise InputError(f"{what} are {number}whole numbers, got {shown(values)}")
    return tuple(whole(n, f"each of {what}", least=least) for n in given)
