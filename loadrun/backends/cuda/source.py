"""CUDA C++ sources: files with `$NAME` placeholders beside this module, filled in per kernel."""

from __future__ import annotations

import functools
import re
from importlib import resources

from loadrun.backends.cuda.plan import Kernel

__all__ = ["OPTIONS", "fill", "kernel", "prelude", "text"]

# No contraction: a product and a sum are rounded apart, as the operators define it; kernels that
# may fuse them say so with fmaf.
OPTIONS = ("--std=c++17", "--fmad=false")
_PLACE = re.compile(r"\$\{?([A-Z][A-Z0-9_]*)\}?")


@functools.cache
def text(name: str) -> str:
    """A source file of this package, without the comments of its head."""
    folder = resources.files(__package__) / "kernels"
    return (folder / f"{name}.cu").read_text(encoding="utf-8")


def prelude() -> str:
    """What stands before the kernels of a module."""
    return text("prelude") + text("places") + text("tiles")


def fill(source: str, **fields: object) -> str:
    """Replace `$FIELD` by its value; `$NAME` stays.

    Raises:
        KeyError: A placeholder has no value.
    """

    def value(match: re.Match[str]) -> str:
        return match[0] if match[1] == "NAME" else str(fields[match[1]])

    # Values may hold placeholders themselves.
    for _ in range(3):
        source = _PLACE.sub(value, source)
    return source


def kernel(stem: str, template: str, **fields: object) -> Kernel:
    """The kernel of a source file with its fields filled in."""
    return Kernel.of(stem, fill(text(template), **fields))
