"""The ways to write an option: dashes, underscores, and gflags as newer load_and_run takes them.

    --warmup_iter=3   --warmup-iter 3   -warmup_iter 3
    --fast_run   --nofast_run   --fast_run=false
    --flagfile=FILE   --fromenv=a,b   --tryfromenv=a,b

A switch that is turned off takes back an earlier one; the last one counts. Options that cannot be
known ahead (files of flags, variables `FLAGS_<name>`) are put in the place where they are named.

Source: documentation of gflags ("Setting Flags on the Command Line", "Special Flags").
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from loadrun.cli.options import OPTIONS, flag_names

__all__ = ["normalized"]

_TRUE = frozenset({"true", "t", "yes", "y", "1"})
_FALSE = frozenset({"false", "f", "no", "n", "0"})
_MOST_BYTES = 1 << 20
_MOST_FILES = 16


def normalized(words: Sequence[str], environment: Mapping[str, str] | None = None) -> list[str]:
    """The same command line with every option spelled as the parser knows it.

    Args:
        words: Arguments without the program's name.
        environment: Variables for `--fromenv`; None: those of the process.

    Raises:
        ValueError: A file of flags cannot be read, a variable is missing, or a switch has a value
            that is neither true nor false.
    """
    variables = os.environ if environment is None else environment
    known = {name for option in OPTIONS for name in option.names} | _COMMON
    found: list[str] = []
    plain = False
    for word in _expanded(words, variables, known, 0):
        plain = plain or word == "--"
        if plain:
            found.append(word)
        else:
            _add(found, _dashed(word, known))
    return found


def _expanded(
    words: Sequence[str], variables: Mapping[str, str], known: set[str], depth: int
) -> list[str]:
    """Words with the special flags replaced by what they stand for."""
    found: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*found, word, *rest]
        name, equals, value = _dashed(word, known | _SPECIAL).partition("=")
        if name not in _SPECIAL:
            found.append(word)
            continue
        if not equals and rest:
            value = rest.pop(0)
        for item in filter(None, value.split(",")):
            if name == "--flagfile":
                found += _expanded(_flag_file(item, depth), variables, known, depth + 1)
            elif f"FLAGS_{item}" in variables:
                found.append(f"--{item}={variables[f'FLAGS_{item}']}")
            elif name == "--fromenv":
                raise ValueError(f"--fromenv: the variable `FLAGS_{item}` is not set")
    return found


_SPECIAL = frozenset({"--flagfile", "--fromenv", "--tryfromenv"})


def _flag_file(path: str, depth: int) -> list[str]:
    """Flags of a file, one a line; `#` begins a comment."""
    if depth >= _MOST_FILES:
        raise ValueError(f"--flagfile: files of flags name each other more than {depth} deep")
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not text"
        raise ValueError(f"--flagfile {path}: {reason}") from error
    if len(data) > _MOST_BYTES:
        raise ValueError(f"--flagfile {path}: more than {_MOST_BYTES >> 20} MiB")
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _dashed(word: str, known: set[str] | frozenset[str]) -> str:
    """`-a_b=c` and `--a_b=c` as `--a-b=c`; short options and values stay."""
    if not word.startswith("-") or word == "-":
        return word
    name, equals, value = word.partition("=")
    long = "--" + name.lstrip("-").replace("_", "-")
    if name.startswith("--") or long in known or _positive(long) in known:
        return long + equals + value
    return word


def _positive(name: str) -> str:
    """`--nofast-run` and `--no-fast-run` as `--fast-run`; empty for other names."""
    if not name.startswith("--no"):
        return ""
    return "--" + name[4:].lstrip("-")


def _add(found: list[str], word: str) -> None:
    """Append a word; switches lose their values, and one that is off takes back earlier ones."""
    flags = flag_names() | _COMMON
    name, equals, value = word.partition("=")
    if not name.startswith("--"):
        found.append(word)
        return
    on = True
    if name not in flags and _positive(name) in flags and name not in _OFF:
        name, on = _positive(name), False
    if name not in flags:
        found.append(word)
        return
    if equals:
        if value.lower() not in _TRUE | _FALSE:
            raise ValueError(f"{name} is on or off: `{name}=true` or `{name}=false`, got `{word}`")
        on = on == (value.lower() in _TRUE)
    if on:
        found.append(name)
    else:
        found[:] = [earlier for earlier in found if earlier != name]
        if name == "--fuse-grain":
            found.append("--no-fuse-grain")


# Switches of every command line.
_COMMON = frozenset({"--verbose", "--quiet", "--traceback", "--help", "--version"})
# Options of their own that begin like a switch turned off.
_OFF = frozenset({"--no-fuse-grain"})
