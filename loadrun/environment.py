"""Where a measurement was made: what a reader needs to compare two of them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
from typing import Any

from mgeserial._version import __version__

__all__ = [
    "cpu_model",
    "environment",
    "file_sha256",
    "frequency_governor",
    "peak_memory_bytes",
    "usable_cores",
    "versions",
]


def versions() -> str:
    """One line: this package and what computes beneath it."""
    import numpy as np

    return f"mgeserial {__version__} and numpy {np.__version__}"


def peak_memory_bytes() -> int | None:
    """Most memory the process ever held; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def environment() -> dict[str, Any]:
    """Versions, machine and load, ready for JSON; None for what the system does not say."""
    import numpy as np

    load = None
    with contextlib.suppress(OSError, AttributeError):
        load = os.getloadavg()[0]
    return {
        "mgeserial": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "cpu_quota_cores": _cpu_quota(),
        "frequency_governor": frequency_governor(),
        "load_average_1min": load,
        "llvmlite": _installed("llvmlite"),
        "memory_limit_bytes": _memory_limit(),
    }


def frequency_governor() -> str | None:
    """How the system chooses the clock frequency; None where it does not say."""
    return _line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def _line(path: str) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as file:
        return file.readline().strip()
    return None


def _installed(package: str) -> str | None:
    from importlib import metadata

    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def _memory_limit() -> int | None:
    """Bytes that the control group grants (cgroup v2); None: no limit known."""
    text = _line("/sys/fs/cgroup/memory.max") or ""
    return int(text) if text.isdigit() else None


def cpu_model() -> str | None:
    """Model of the processor; None where the system does not say."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or None


def _cpu_quota() -> float | None:
    """Cores' worth of time that the control group grants (cgroup v2); None: no limit known."""
    quota, _, period = (_line("/sys/fs/cgroup/cpu.max") or "").partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def file_sha256(path: str) -> str | None:
    """SHA-256 of a file, which tells different models apart; None where it cannot be read."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError:
        return None
    return digest.hexdigest()
