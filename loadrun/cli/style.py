"""Colour on a terminal: headings, verdicts and the parts that need attention.

Meaning never depends on it; nothing is coloured in a pipe, with NO_COLOR, or on a dumb terminal.

Source: https://no-color.org.
"""

from __future__ import annotations

import os
import re
from typing import TextIO

__all__ = ["is_coloured", "styled"]

_BOLD, _DIM, _GREEN, _YELLOW, _RED = "1", "2", "32", "33", "31"
_LEVELS = {"good": _GREEN, "fair": _YELLOW, "poor": _RED}
_HEADING = re.compile(r"^(summary of|profile \(|inputs and outputs of).*|^  inference \(.*")
_TRUST = re.compile(r"^( +trust: )(good|fair|poor)$")
_COLUMNS = re.compile(r"^ +(operator +type|type +steps|runs +min) .*")
_ENDS = re.compile(r"^  (sum of steps|wall|gap) .*")


def is_coloured(stream: TextIO) -> bool:
    """Whether a stream takes colour."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


def styled(text: str) -> str:
    """The text with colours."""
    return "\n".join(_line(line) for line in text.split("\n"))


def _line(line: str) -> str:
    trust = _TRUST.match(line)
    if trust:
        return trust[1] + _paint(trust[2], _LEVELS[trust[2]])
    if _HEADING.match(line) or _ENDS.match(line):
        return _paint(line, _BOLD)
    return _paint(line, _DIM) if _COLUMNS.match(line) else line


def _paint(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m"
