"""What is to be written: a container, and the release of MegEngine that shall read it."""

from __future__ import annotations

from dataclasses import dataclass

from mgeserial.errors import InputError
from mgeserial.format.versions import RELEASES, named_release, release_index

__all__ = ["CONTAINERS", "DEFAULT_RELEASE", "Target"]

DEFAULT_RELEASE = "1.13.0"
# By the name a caller gives: the container, and the first release that reads it.
CONTAINERS = {"v2": "mgv2", "v1": "MGBC", "mgbs": "MGBS"}
_SINCE = {"mgv2": "v1.10.0", "MGBC": "v1.7.0.m1", "MGBS": "v0.3.1"}
_NAMES = {container: name for name, container in CONTAINERS.items()}
_HAS_METADATA = release_index("v1.5.0")
_HAS_OPERATOR_NAME = release_index("v1.3.0")
_NEWEST_KNOWN = release_index("v1.13.0")


@dataclass(frozen=True, slots=True)
class Target:
    """A container and a release.

    Attributes:
        container: `mgv2`, `MGBC` or `MGBS`.
        release: As in `versions.RELEASES`.
    """

    container: str
    release: str

    @classmethod
    def of(cls, format: str, release: str = DEFAULT_RELEASE) -> Target:
        """The target that a caller names: `v2`, `v1` or `mgbs` (or a magic), and a release.

        Raises:
            InputError: There is no such format or release, or the release cannot read the format.
        """
        container = CONTAINERS.get(format.lower(), format)
        if container not in _SINCE:
            raise InputError(
                f"no format is called {format!r}", hint=f"formats: {', '.join(CONTAINERS)}"
            )
        name = named_release(release)
        since = _SINCE[container]
        if release_index(name) < release_index(since):
            fitting = [k for k, c in CONTAINERS.items() if _reads(name, c)]
            raise InputError(
                f"MegEngine {name} cannot read {_NAMES[container]}, which exists since {since}",
                hint=f"formats for {name}: {', '.join(fitting)}",
            )
        return cls(container, name)

    @property
    def format(self) -> str:
        """The name a caller gives the container."""
        return _NAMES[self.container]

    @property
    def is_v2(self) -> bool:
        """Whether the container is v2."""
        return self.container == "mgv2"

    @property
    def version(self) -> int:
        """The number that files of the release carry."""
        return RELEASES[self.release]

    @property
    def index(self) -> int:
        """Place of the release in time."""
        return release_index(self.release)

    def has(self, since: str) -> bool:
        """Whether the release is `since` or a later one."""
        return self.index >= release_index(since)

    @property
    def has_metadata(self) -> bool:
        """Whether graphs have metadata."""
        return self.index >= _HAS_METADATA

    @property
    def has_operator_names(self) -> bool:
        """Whether operators have a name of their own."""
        return self.index >= _HAS_OPERATOR_NAME

    @property
    def is_row_packed(self) -> bool:
        """Whether rows of 4-bit tensors are padded to a byte."""
        return self.index >= _HAS_METADATA

    @property
    def takes_unknown(self) -> bool:
        """Whether content newer than all known releases may be written for it."""
        return self.index >= _NEWEST_KNOWN

    def __str__(self) -> str:
        return f"{self.format} of {self.release}"


def _reads(release: str, container: str) -> bool:
    return release_index(release) >= release_index(_SINCE[container])
