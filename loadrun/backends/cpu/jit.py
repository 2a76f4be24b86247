"""Compile a set of IR modules, in parallel and cached, and link them."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from loadrun.backends.cpu import llvm
from loadrun.backends.cpu.cache import Cache, digest
from loadrun.backends.cpu.target import Target
from mgeserial._version import __version__

Progress = Callable[[str, int, int], None]
_T = TypeVar("_T")
_UNIT = 30_000  # characters of IR: some 8 ms of compiling, with a fixed cost of 0.7


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
        modules: Modules as they were compiled, several joined to one.
        cached: Of these, whose object came from the cache.
        compile_s, link_s: Seconds that the caller waited.
    """

    modules: int
    cached: int
    compile_s: float
    link_s: float


class Compiler:
    """Compiles modules beside whoever adds them, and links them in the end.

    Modules are put together until a unit is worth LLVM's fixed costs; the same modules in the same
    order make the same units, whose objects the cache keeps. Use it as a context: leaving it ends
    the threads, whatever has happened.
    """

    def __init__(
        self,
        target: Target,
        cache: Cache,
        *,
        jobs: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Start.

        Args:
            target: What to generate code for.
            cache: Where objects are kept.
            jobs: Compiling threads; None takes the processors this process may use.
            progress: Told ("compile", units that are ready, units) in the end.
        """
        jobs = jobs or min(processors(), 16)
        self._target, self._cache, self._progress = target, cache, progress
        self._pool = ThreadPoolExecutor(jobs) if jobs > 1 and llvm.parallel() else None
        self._seen: set[str] = set()
        self._waiting: list[str] = []
        self._units: list[Future[_Object]] = []
        self._others: list[Future[None]] = []

    def __enter__(self) -> Compiler:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def add(self, modules: Mapping[str, str]) -> None:
        """Compile modules (name -> IR text) that were not added before; names stand for texts."""
        for name, text in modules.items():
            if name not in self._seen:
                self._seen.add(name)
                self._waiting.append(text)
                if sum(map(len, self._waiting)) >= _UNIT:
                    self._flush()

    def also(self, work: Iterable[Callable[[], None]]) -> None:
        """Other work for the same threads, done when `finish` returns."""
        self._others += [self._start(task) for task in work]

    def finish(self) -> tuple[llvm.Image, CompileStats]:
        """Wait for everything and link.

        Raises:
            CodegenError: LLVM refused a module.
        """
        begin = time.perf_counter()
        self._flush()
        results = list(_told((u.result() for u in self._units), len(self._units), self._progress))
        for work in self._others:
            work.result()
        middle = time.perf_counter()
        target = self._target
        objects = [o.data for o in results]
        image = llvm.Image(objects, cpu=target.cpu, features=target.features)
        end = time.perf_counter()
        hits = sum(o.cached for o in results)
        stats = CompileStats(len(results), hits, middle - begin, end - middle)
        return image, stats

    def keep(self) -> None:
        """Write new objects to the cache: for when nobody waits."""
        found = [u.result() for u in self._units]
        for one in found:
            if not one.cached:
                self._cache.write(one.key, "o", one.data)
        if not all(one.cached for one in found):
            self._cache.trim()

    def _flush(self) -> None:
        if self._waiting:
            self._units.append(self._start(functools.partial(self._one, joined(self._waiting))))
            self._waiting = []

    def _start(self, task: Callable[[], _T]) -> Future[_T]:
        if self._pool is not None:
            return self._pool.submit(task)
        done: Future[_T] = Future()
        done.set_result(task())
        return done

    def _one(self, text: str) -> _Object:
        target = self._target
        key = digest(text, target.key())
        found = self._cache.read(key, "o")
        if found is not None:
            return _Object(key, found, cached=True)
        data = llvm.compile_object(text, cpu=target.cpu, features=target.features)
        return _Object(key, data, cached=False)


@dataclass(frozen=True, slots=True)
class _Object:
    """Object code of a unit, its key in the cache, and whether it comes from there."""

    key: str
    data: bytes
    cached: bool


def joined(modules: Sequence[str]) -> str:
    """Modules as one; their declarations stand at their heads and may repeat."""
    declares: dict[str, None] = {}
    bodies = []
    for text in modules:
        lines = text.split("\n")
        count = next((k for k, line in enumerate(lines) if not line.startswith("declare ")), 0)
        declares |= dict.fromkeys(lines[:count])
        bodies += lines[count:]
    return "\n".join([*declares, *bodies])


def build(
    modules: Mapping[str, str], target: Target, cache: Cache, *, jobs: int | None = None
) -> tuple[llvm.Image, CompileStats]:
    """Compile modules (name -> IR text) and link them into this process.

    Symbols must be unique across modules.

    Raises:
        CodegenError: LLVM refused a module.
    """
    with Compiler(target, cache, jobs=jobs) as compiler:
        compiler.add(modules)
        found = compiler.finish()
        compiler.keep()
    return found


def _told(results: Iterable[_Object], total: int, progress: Progress | None) -> Iterator[_Object]:
    for done, result in enumerate(results, 1):
        if progress is not None and not result.cached:
            progress("compile", done, total)
        yield result


def processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1
