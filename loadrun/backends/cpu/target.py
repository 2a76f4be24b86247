"""What the machine that runs the code can do: vectors, registers, caches.

Everything that differs between AVX-512, AVX2, SSE2 and NEON lives here; the kernels
read it and hold no such number themselves. `detect()` describes this machine;
`detect("avx2")` asks for a lesser instruction set of the same machine, which is how
every generated kernel is tested on more than one target.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from loadrun import environment
from loadrun.backends.cpu import llvm

LEVELS = ("avx512", "avx2", "sse2", "neon")

# Register tiles that keep the accumulators, the weights and one input in registers:
# {output vectors: most pixels}. Found by inspecting the generated code for spills.
_TILES: dict[str, dict[int, int]] = {
    "avx512": {1: 28, 2: 14, 3: 9, 4: 6},
    "avx2": {1: 12, 2: 6, 3: 4, 4: 2},
    "sse2": {1: 12, 2: 5, 3: 3, 4: 2},
    "neon": {1: 16, 2: 8, 3: 6, 4: 5},
}
_LANES = {"avx512": 16, "avx2": 8, "sse2": 4, "neon": 4}
_CPU_OF_LEVEL = {"avx512": "skylake-avx512", "avx2": "haswell", "sse2": "x86-64", "neon": "generic"}


@dataclass(frozen=True, slots=True)
class Target:
    """One instruction set on one machine.

    Attributes:
        level: `avx512`, `avx2`, `sse2` or `neon`.
        cpu: LLVM's name of the processor that code is generated for.
        features: LLVM's feature string, empty for the processor's own set.
        lanes: Floats in a vector register.
        registers: Vector registers.
        fma: A fused multiply-add exists in hardware.
        dot_u8s8: Instruction for sums of four unsigned times signed byte products:
            `avx512`, `avx` or empty.
        l1, l2, l3: Data cache sizes in bytes; l1 and l2 of one core, l3 of all.
    """

    level: str
    cpu: str
    features: str
    lanes: int
    registers: int
    fma: bool
    dot_u8s8: str
    l1: int = 32 << 10
    l2: int = 512 << 10
    l3: int = 8 << 20

    @property
    def vector_bytes(self) -> int:
        """Bytes in one vector register."""
        return 4 * self.lanes

    @property
    def is_x86(self) -> bool:
        """The instruction set belongs to the x86-64 family."""
        return self.level != "neon"

    @property
    def halves(self) -> bool:
        """Instructions convert between float16 and float32."""
        return self.level != "sse2"

    def tile(self, vectors: int) -> int:
        """Most pixels (or rows) a register tile of `vectors` output vectors may have."""
        return _TILES[self.level][vectors]

    def key(self) -> str:
        """Text that differs whenever generated code may differ."""
        return f"{self.level}|{self.cpu}|{self.features}|{llvm.version()}"


def _cache_size(index: int, default: int) -> int:
    """Size in bytes of the data cache of a level, from sysfs; `default` when unknown."""
    base = Path("/sys/devices/system/cpu/cpu0/cache")
    try:
        for entry in sorted(base.glob("index*")):
            kind = (entry / "type").read_text().strip()
            level = int((entry / "level").read_text())
            if level == index and kind in ("Data", "Unified"):
                text = (entry / "size").read_text().strip()
                unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
                return int(text.rstrip("KMG")) * unit
    except (OSError, ValueError):
        pass
    return default


def describe(target: Target) -> str:
    """What speed depends on, in one line: model and instruction set, and a mark for the rest."""
    rest = f"{target.key()}|{target.l1}|{target.l2}|{target.l3}"
    mark = hashlib.sha256(rest.encode()).hexdigest()[:8]
    model = environment.cpu_model() or platform.machine()
    return f"{model[:100]} {target.level} {mark}"


def _is_arm() -> bool:
    return platform.machine().lower() in ("aarch64", "arm64")


def host_level() -> str:
    """Best level this machine supports."""
    if _is_arm():
        return "neon"
    have = llvm.host_features()
    if all(have.get(f) for f in ("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma")):
        return "avx512"
    if have.get("avx2") and have.get("fma"):
        return "avx2"
    return "sse2"


@functools.cache
def detect(level: str | None = None) -> Target:
    """Describe this machine, or a lesser instruction set of it.

    Args:
        level: One of `LEVELS`; None takes the variable `LOADRUN_CPU_LEVEL`, or else the best.

    Raises:
        ValueError: The level is unknown or this machine cannot run it.
    """
    best = host_level()
    wanted = level or os.environ.get("LOADRUN_CPU_LEVEL") or best
    if wanted not in LEVELS:
        raise ValueError(f"cpu level must be one of {', '.join(LEVELS)}; got: {wanted}")
    runnable = LEVELS[LEVELS.index(best) :] if best != "neon" else ("neon",)
    if wanted not in runnable or (wanted == "neon") != (best == "neon"):
        raise ValueError(f"this machine runs {best} at best; got: {wanted}")
    have = llvm.host_features()
    native = wanted == best and wanted != "sse2"
    dot = ""
    if native and wanted == "avx512" and have.get("avx512vnni"):
        dot = "avx512"
    elif native and wanted == "avx2" and have.get("avxvnni"):
        dot = "avx"
    return Target(
        level=wanted,
        cpu=llvm.host_cpu() if native else _CPU_OF_LEVEL[wanted],
        features=llvm.host_feature_text() if native else "",
        lanes=_LANES[wanted],
        registers=32 if wanted in ("avx512", "neon") else 16,
        fma=wanted != "sse2",
        dot_u8s8=dot,
        l1=_cache_size(1, 32 << 10),
        l2=_cache_size(2, 512 << 10 if sys.platform != "darwin" else 4 << 20),
        l3=_cache_size(3, 8 << 20),
    )
