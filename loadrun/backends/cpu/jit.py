"""Compile a set of IR modules, in parallel and cached, and link them."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from loadrun.backends.cpu import llvm
from loadrun.backends.cpu.cache import Cache, digest
from loadrun.backends.cpu.target import Target
from mgeserial._version import __version__

Progress = Callable[[str, int, int], None]


@functools.cache
def code_version() -> str:
    """A text that changes with the code that packs weights or chooses how they are read.

    Objects need none: their keys hold the text that they were compiled from.
    """
    here = Path(__file__).parent
    files = sorted([*here.glob("*.py"), *here.glob("kernels/*.py")])
    parts = [f.read_bytes() for f in files]  # none in a zipped package: then the version tells
    return digest(__version__, *parts)


@dataclass(frozen=True, slots=True)
class CompileStats:
    """What a build cost.

    Attributes:
        modules: Distinct modules.
        cached: Modules whose object came from the cache.
        compile_s, link_s: Seconds.
    """

    modules: int
    cached: int
    compile_s: float
    link_s: float


def build(
    modules: Mapping[str, str],
    target: Target,
    cache: Cache,
    *,
    jobs: int | None = None,
    beside: Sequence[Callable[[], None]] = (),
    progress: Progress | None = None,
) -> tuple[llvm.Image, CompileStats]:
    """Compile modules (name -> IR text) and link them into this process.

    Args:
        modules: Symbols must be unique across modules.
        target: What to generate code for.
        cache: Where objects are kept.
        jobs: Compiling threads; None takes the processors this process may use.
        beside: Other work for the same threads, done when this returns.
        progress: Told ("compile", modules that are ready, modules).

    Raises:
        CodegenError: LLVM refused a module.
    """
    begin = time.perf_counter()

    def one(text: str) -> tuple[bytes, bool]:
        key = digest(text, target.key())
        found = cache.read(key, "o")
        if found is not None:
            return found, True
        data = llvm.compile_object(text, cpu=target.cpu, features=target.features)
        cache.write(key, "o", data)
        return data, False

    jobs = jobs or min(processors(), 16)
    # The longest first, so that no thread is left with one at the end.
    texts = sorted(set(modules.values()), key=len, reverse=True)
    if jobs > 1 and len(texts) + len(beside) > 1 and llvm.parallel():
        with ThreadPoolExecutor(jobs) as pool:
            compiled = pool.map(one, texts)
            others = pool.map(_call, beside)
            results = list(_told(compiled, len(texts), progress))
            list(others)
    else:
        results = list(_told(map(one, texts), len(texts), progress))
        for work in beside:
            work()
    middle = time.perf_counter()
    image = llvm.Image([d for d, _ in results], cpu=target.cpu, features=target.features)
    end = time.perf_counter()
    hits = sum(hit for _, hit in results)
    if hits < len(results):
        cache.trim()
    return image, CompileStats(len(texts), hits, middle - begin, end - middle)


def _told(
    results: Iterable[tuple[bytes, bool]], total: int, progress: Progress | None
) -> Iterator[tuple[bytes, bool]]:
    for done, result in enumerate(results, 1):
        if progress is not None and not result[1]:
            progress("compile", done, total)
        yield result


def _call(work: Callable[[], None]) -> None:
    work()


def processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1
