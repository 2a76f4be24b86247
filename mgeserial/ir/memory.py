"""How much memory a result may take: a small file must not ask for all of the machine's."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from pathlib import Path

from mgeserial.errors import InputError
from mgeserial.ir.types import TensorType

__all__ = ["check_outputs", "memory_limit"]

_FALLBACK = 8 << 30
_ENVIRONMENT = "LOADRUN_MEMORY_LIMIT"


@functools.cache
def memory_limit() -> int:
    """Most bytes one operator's results may take.

    The environment variable LOADRUN_MEMORY_LIMIT (bytes), else the control group's limit or the
    machine's memory, whichever is less; 8 GiB where the system does not say.
    """
    given = os.environ.get(_ENVIRONMENT, "")
    if given.isdigit():
        return int(given)
    limits = []
    with contextlib.suppress(OSError, ValueError, AttributeError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(Path(name).read_text(encoding="ascii")))
    return min((n for n in limits if n > 0), default=_FALLBACK)


def check_outputs(outputs: tuple[TensorType, ...] | list[TensorType]) -> None:
    """Refuse results that the machine could not hold.

    Raises:
        InputError: Their static shapes need more than `memory_limit()`.
    """
    need = sum(math.prod(t.dims) * t.dtype.storage.itemsize for t in outputs if t.is_static)
    limit = memory_limit()
    if need > limit:
        raise InputError(
            f"its results need {need / 2**30:.1f} GiB, more than the {limit / 2**30:.1f} GiB "
            "that may be used",
            hint=f"set {_ENVIRONMENT} (bytes) if the machine can hold them",
        )
