"""Run and measure MegEngine `.mge` models without MegEngine.

session = loadrun.Session("net.mge")
outputs = session.run({"data": array})
stats = session.benchmark(iters=50, warmup=5)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mgeserial._version import __version__

if TYPE_CHECKING:
    from loadrun.session import Session
    from loadrun.stats import Stats

__all__ = ["Session", "Stats", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the session when it is first asked for: `loadrun --help` does not need it."""
    if name == "Session":
        from loadrun.session import Session

        return Session
    if name == "Stats":
        from loadrun.stats import Stats

        return Stats
    raise AttributeError(f"module 'loadrun' has no attribute {name!r}")
