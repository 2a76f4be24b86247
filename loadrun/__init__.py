"""Run and measure MegEngine `.mge` models without MegEngine.

session = loadrun.Session("net.mge")
outputs = session.run({"data": array})
stats = session.benchmark(iters=50, warmup=5)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loadrun.session import Session
    from loadrun.stats import Stats
    from mgeserial._version import __version__

__all__ = ["Session", "Stats", "__version__"]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is first asked for: `loadrun --help` needs none of it."""
    if name == "Session":
        from loadrun.session import Session

        return Session
    if name == "Stats":
        from loadrun.stats import Stats

        return Stats
    if name == "__version__":
        from mgeserial._version import __version__

        return __version__
    raise AttributeError(f"module 'loadrun' has no attribute {name!r}")
