"""Which release wrote a file, which read it, and which layout of tables it therefore uses.

`mgb_version` = (major * 1000 + minor) * 100 + patch, of MegBrain up to v1.6.0 and of MegEngine from
v1.7.0, so it is neither monotonic nor unique. Source: FORMAT section 0.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from mgeserial.errors import InputError

__all__ = [
    "FIRST_RELEASE",
    "RELEASES",
    "Origin",
    "is_row_packed",
    "layout_release",
    "named_release",
    "origin",
    "release_before",
    "release_index",
]

# mgb_version by release, oldest first. Source: params.json `releases`.
RELEASES: dict[str, int] = {
    "v0.3.1": 800300, "v0.3.2": 800301, "v0.3.4": 800301, "v0.4.0": 800301, "v0.5.0": 800401,
    "v0.5.1": 800500, "v0.6.0": 800600, "v1.0.0-rc1": 1799900, "v1.0.0": 1799900,
    "v1.1.0": 800800, "v1.2.0": 800900, "v1.3.0": 801000, "v1.3.1": 1799900,
    "v1.4.0-rc1": 801100, "v1.4.0": 801100, "v1.5.0": 1799900, "v1.6.0-rc1": 801300,
    "v1.6.0": 1799900, "v1.7.0": 100700, "v1.7.0.m1": 100800, "v1.7.1.m1": 100800,
    "v1.7.2.m1": 100800, "v1.8.0": 100800, "v1.8.1": 100800, "v1.8.1.m1": 100800,
    "v1.8.2": 100802, "v1.9.0": 100900, "v1.9.1": 100901, "v1.10.0": 101000,
    "v1.11.0": 101100, "v1.11.1": 101101, "v1.12.0": 101200, "v1.12.1": 101201,
    "v1.12.2": 101202, "v1.12.3": 101203, "v1.12.4": 101204, "v1.13.0": 101300,
    "v1.13.1": 101301, "v1.13.2": 101302, "v1.13.3": 101303, "v1.13.4": 101304,
}  # fmt: skip
FIRST_RELEASE = "v0.3.1"
_ORDER = {name: i for i, name in enumerate(RELEASES)}
PLACEHOLDER = 1799900
# 4-bit rows are padded to a byte from v1.5.0 on; this is the first number after it.
_FIRST_ROW_PACKED = 801300
# Numbers from here on are MegBrain's (8.x), smaller ones MegEngine's.
_MEGBRAIN = 800000
READERS = {
    "MGBS": "every release",
    "MGBC": "v1.7.0.m1 and later",
    "mgv2": "v1.10.0 and later",
}


@dataclass(frozen=True, slots=True)
class Origin:
    """Which releases may have written a graph and which read it.

    `writers` is empty when the number is of no known release; `note` says what else is known.
    """

    version: int
    writers: tuple[str, ...]
    readers: str
    note: str | None = None


def release_index(release: str) -> int:
    """Place of a release in time (KeyError when unknown)."""
    return _ORDER[release]


def release_before(release: str) -> str:
    """The release before one (the first stays itself)."""
    return list(RELEASES)[max(_ORDER[release] - 1, 0)]


def named_release(text: str) -> str:
    """The release a caller names, with or without `v`.

    Raises:
        InputError: No public release has that name.
    """
    name = text if text.startswith("v") else f"v{text}"
    if name not in _ORDER:
        close = difflib.get_close_matches(name, _ORDER, n=3)
        raise InputError(
            f"no release of MegEngine is called {text!r}",
            hint=f"close: {', '.join(close)}" if close else f"known: {', '.join(RELEASES)}",
        )
    return name


def is_row_packed(container: str, version: int, *, has_metadata: bool) -> bool:
    """Whether rows of 4-bit tensors are padded to a byte: v1.5.0 and later."""
    return not (
        container == "MGBS"
        and (800000 <= version < _FIRST_ROW_PACKED or (version == PLACEHOLDER and not has_metadata))
    )


def origin(container: str, version: int, *, has_metadata: bool) -> Origin:
    """What container, version number and presence of metadata say about the writer."""
    writers = [r for r, v in RELEASES.items() if v == version]
    note = None
    if version == PLACEHOLDER:
        late = {"v1.5.0", "v1.6.0"}
        writers = [r for r in writers if (r in late) == has_metadata]
        note = "1799900 is a placeholder that several releases and development builds wrote"
    elif container == "MGBS" and 101302 <= version < _MEGBRAIN:
        note = 'written with compat_older_version="8.14": old header and ids, newer tables'
    elif not writers:
        newer = RELEASES["v1.13.4"] < version < _MEGBRAIN
        note = (
            "newer than v1.13.4, the last release known here" if newer else "of no public release"
        )
    return Origin(version, tuple(writers), READERS[container], note)


def layout_release(container: str, version: int, *, has_metadata: bool) -> str | None:
    """Release whose table layouts and enum numbers the graph uses; None: those of today.

    Only what moved or was renumbered matters. The last such step of MGBS files is v1.6.0's (layout
    formats); MultiHeadAttn alone changed later, at v1.12.4.
    """
    if version == RELEASES["v1.12.3"]:
        return "v1.12.3"
    if container != "MGBS" or RELEASES["v1.7.0"] <= version < _MEGBRAIN:
        return None
    if version == PLACEHOLDER:
        # v1.6.0 rather than v1.5.0, v1.3.1 rather than v1.0.0: the more widespread writers.
        return None if has_metadata else "v1.3.1"
    found = "v0.3.1"
    for release, number in RELEASES.items():
        if _MEGBRAIN <= number <= version and number != PLACEHOLDER:
            found = release
    return found
