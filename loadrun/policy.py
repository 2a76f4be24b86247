"""The policy file: which algorithm was fastest for a layer, kept from one run to the next.

One file serves all backends, devices and networks. A choice is found by its place (backend, device,
threads), by the layer (everything about it that its speed depends on, such as shape, type, stride
and epilogue) and by the version of the code that was measured, so that a layer that another network
shares is measured once. Both names are made by the backend and mean nothing here.

    {"kind": "loadrun.policy", "schema": 2,
     "choices": {PLACE: {LAYER: {"choice": NAME, "code": VERSION, "times_ns": {NAME: NS, ...}}}}}
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mgeserial.errors import InputError
from mgeserial.format.atomic import write_atomic

__all__ = ["Choice", "Policy", "choices_of", "choices_text"]

_KIND = "loadrun.policy"
_SCHEMA = 2
_MOST_BYTES = 16 << 20
_MOST_CHOICES = 50_000
_MOST_TIMES = 200
_LONGEST_NAME = 1000
_LONGEST_NUMBER = 18  # digits of a time in ns: 30 years
_HINT = "name a new file: --fast-run writes it (caches that load_and_run wrote are of no use here)"


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen for a layer.

    Attributes:
        name: The candidate; the backend must check that it knows it.
        code: Version of the code that was measured.
        times_ns: Median time of each candidate in ns, of one run of the layer.
    """

    name: str
    code: str
    times_ns: Mapping[str, int] = field(default_factory=dict)


_Choices = dict[str, dict[str, Choice]]


class Policy:
    """Choices of one file, and those that were made since; without a path they are kept here only.

    The file is read when the object is made. `save` adds what was `put` to what the file holds at
    that time, so that processes that measure at the same time keep each other's choices.
    """

    def __init__(self, path: str | None = None) -> None:
        """Read the file if there is one.

        Raises:
            InputError: It cannot be read, or is something else.
        """
        self.path = path
        self._choices: _Choices = {} if path is None else _read(path)
        self._new: list[tuple[str, str]] = []

    def get(self, place: str, layer: str, code: str) -> Choice | None:
        """The choice for a layer, None where it was not measured with this version of the code."""
        found = self._choices.get(place, {}).get(layer)
        return found if found is not None and found.code == code else None

    def put(self, place: str, layer: str, choice: Choice) -> None:
        """Note a choice, in place of an older one.

        Raises:
            ValueError: A name is too long for the file.
        """
        if max(map(len, (place, layer, choice.name, choice.code))) > _LONGEST_NAME:
            raise ValueError(f"names of a policy have {_LONGEST_NAME} characters at most")
        self._choices.setdefault(place, {})[layer] = choice
        self._new.append((place, layer))

    def save(self) -> None:
        """Write what is new to the file, atomically; does nothing without news or without a path.

        Where the file would hold too much, choices that other code measured are left out first.

        Raises:
            InputError: The file cannot be written, or has become something else meanwhile.
        """
        if self.path is None or not self._new:
            return
        with _locked(self.path):
            merged = _read(self.path)
            for place, layer in self._new:
                merged.setdefault(place, {})[layer] = self._choices[place][layer]
            last = self._choices[self._new[-1][0]][self._new[-1][1]]
            write_atomic(self.path, _bounded(merged, last.code))
        self._choices, self._new = merged, []


def choices_text(choices: Mapping[str, str]) -> str:
    """Choices by layer as one text, for `CompileOptions.algorithms`."""
    return json.dumps(dict(choices))


def choices_of(text: str | None) -> dict[str, str]:
    """Choices by layer from a text of `choices_text`; none of none.

    Raises:
        InputError: It is something else.
    """
    if not text:
        return {}
    try:
        root = json.loads(text)
        return {str(k): str(v) for k, v in root.items()}
    except (ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"not a choice of algorithms: {text!r:.100}") from error


def _bounded(choices: _Choices, code: str) -> bytes:
    """The document, within the limits that reading it has."""
    data = _document(choices)
    for keep in (code, None):
        if len(data) <= _MOST_BYTES and sum(map(len, choices.values())) <= _MOST_CHOICES:
            break
        choices = {p: {n: c for n, c in e.items() if c.code == keep} for p, e in choices.items()}
        data = _document({place: entries for place, entries in choices.items() if entries})
    return data


def _document(choices: _Choices) -> bytes:
    places = {
        place: {
            layer: {"choice": c.name, "code": c.code, "times_ns": dict(c.times_ns)}
            for layer, c in sorted(entries.items())
        }
        for place, entries in sorted(choices.items())
    }
    root = {"kind": _KIND, "schema": _SCHEMA, "choices": places}
    return (json.dumps(root, indent=1, ensure_ascii=True) + "\n").encode("ascii")


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """Keep other processes from saving; the file itself is locked, so that none else is left."""
    try:
        import fcntl
    except ImportError:  # Windows: two that save at one moment may lose a choice, never the file
        yield
        return
    while True:
        try:
            number = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK, 0o666)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror or error}", path=path) from error
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(number, fcntl.LOCK_EX)
            # Who held the lock before has put another file in this one's place.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(number), os.stat(path)):
                    yield
                    return
        finally:
            os.close(number)


def _read(path: str) -> _Choices:
    """Choices of a file; none where there is no file yet, or an empty one."""
    try:
        data = _bytes(path)
        if not data.strip():
            return {}
        root = json.loads(data.decode("utf-8-sig"), parse_int=_integer, parse_constant=_constant)
        return _choices_of(root)
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            f"not a policy file of loadrun: {reason or error!s:.200}", path=path, hint=_HINT
        ) from error


def _bytes(path: str) -> bytes:
    """Content of a regular file of bounded size; a pipe would be waited for without end."""
    try:
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY)
    except FileNotFoundError:
        return b""
    with open(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise ValueError("it is no regular file")
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"it is larger than {_MOST_BYTES >> 20} MiB")
    return data


_BINARY = getattr(os, "O_BINARY", 0)


def _integer(text: str) -> int:
    # Long numbers take time that grows with the square of their length.
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _constant(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _choices_of(root: Any) -> _Choices:
    if not isinstance(root, dict) or root.get("kind") != _KIND:
        raise ValueError(f'it has no "kind": "{_KIND}"')
    if root.get("schema") != _SCHEMA:
        older = ": an older release wrote it" if root.get("schema") == 1 else ""
        raise ValueError(f'its "schema" is {root.get("schema")!r:.40}, known: {_SCHEMA}{older}')
    found: _Choices = {}
    count = 0
    for place, entries in _object(root.get("choices"), "choices").items():
        layers = found[_name(place)] = {}
        for layer, entry in _object(entries, place).items():
            count += 1
            if count > _MOST_CHOICES:
                raise ValueError(f"it has more than {_MOST_CHOICES} choices")
            layers[_name(layer)] = _choice(entry, layer)
    return found


def _choice(entry: Any, layer: str) -> Choice:
    item = _object(entry, layer)
    times = _object(item.get("times_ns", {}), "times_ns")
    if len(times) > _MOST_TIMES:
        raise ValueError(f"{layer!r:.100} has more than {_MOST_TIMES} times")
    for name, ns in times.items():
        if type(ns) is not int or ns < 0:
            raise ValueError(f"time of {_name(name)!r:.100} is no number of ns: {ns!r:.40}")
    return Choice(_name(item.get("choice")), _name(item.get("code")), times)


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what!r:.100} is no object")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value or len(value) > _LONGEST_NAME:
        raise ValueError(f"not a name: {value!r:.100}")
    return value
