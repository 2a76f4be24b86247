"""A model measured at every combination of shapes, batches, threads, backends and switches.

Combinations are measured one after another, each in a session of its own; what fails is noted and
the rest goes on. The document is handed out after each one, so that an interrupted sweep goes on
where it stopped.
"""

from __future__ import annotations

import argparse
import itertools
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadrun.backends.base import get_backend
from loadrun.inputs import random_inputs
from loadrun.measure import Warmup
from loadrun.optimization import add_options, optimized, options_of
from loadrun.session import Session
from loadrun.stats import Stats
from loadrun.trust import judge, level
from mgeserial import editing
from mgeserial.errors import InputError, MgeError
from mgeserial.ir.copying import copy_graph
from mgeserial.ir.graph import Graph

__all__ = ["KIND", "SCHEMA", "Combination", "Plan", "best_of", "parse_shapes", "sweep"]

SCHEMA = 1
KIND = "loadrun.sweep"
Shapes = Mapping[str, tuple[int, ...]]
# More than this is a mistake in the command more often than a wish.
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Combination:
    """One point of a sweep; None and empty mean as in the file, or the backend's choice."""

    shapes: str
    batch: int | None
    threads: int | None
    backend: str
    switches: str

    @property
    def label(self) -> str:
        """What it is called, which tells it from all others."""
        parts = [
            self.shapes,
            "" if self.batch is None else f"batch {self.batch}",
            self.backend,
            "" if self.threads is None else f"{self.threads} thread{'s' * (self.threads != 1)}",
            self.switches,
        ]
        return ", ".join(p for p in parts if p)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to sweep over, each axis with one value at least."""

    shapes: Sequence[str] = ("",)
    batches: Sequence[int | None] = (None,)
    threads: Sequence[int | None] = (None,)
    backends: Sequence[str] = ("auto",)
    switches: Sequence[str] = ("",)

    def combinations(self) -> list[Combination]:
        """All of them; the last axis runs fastest.

        Raises:
            InputError: There are too many.
        """
        axes = (self.shapes, self.batches, self.threads, self.backends, self.switches)
        count = 1
        for axis in axes:
            count *= len(axis)
        if count > _MOST:
            raise InputError(
                f"{count} combinations are more than {_MOST}", hint="name fewer values"
            )
        found = [Combination(*point) for point in itertools.product(*axes)]
        return list(dict.fromkeys(found))


def parse_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """Read `data:1,3,224,224;mask:1,224` (`x` or `,` between dimensions).

    Raises:
        InputError: It is something else.
    """
    found = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        name, colon, dims = item.rpartition(":")
        parts = dims.replace("x", ",").split(",")
        if not colon or not name or not all(p.strip().isdecimal() for p in parts):
            raise InputError(
                f"`{item}` is no shape of an input", hint="write NAME:1,3,224,224; `;` between"
            )
        found[name] = tuple(int(p) for p in parts)
    return found


def switches_of(text: str) -> argparse.Namespace:
    """Read a set of optimiser switches, such as `--enable-nchw44 --weight-preprocess`.

    Raises:
        InputError: One is not known.
    """

    class Quiet(argparse.ArgumentParser):
        def error(self, message: str) -> Any:
            raise InputError(f"switches `{text}`: {message}", hint="`loadrun --help-all` lists all")

    parser = Quiet(add_help=False, allow_abbrev=False)
    add_options(parser)
    words = shlex.split(text)
    return parser.parse_args([w if w.startswith("-") else f"--{w}" for w in words])


def sweep(
    graph: Graph,
    combinations: Sequence[Combination],
    *,
    iters: int,
    warmup: Warmup | int,
    seed: int = 0,
    done: Mapping[str, Mapping[str, Any]] | None = None,
    listener: Callable[[int, list[dict[str, Any]]], None] | None = None,
) -> list[dict[str, Any]]:
    """Measure every combination.

    Args:
        graph: The network; it stays as it is.
        combinations: What to measure.
        iters: Samples of each.
        warmup: Runs of each before, or a time.
        seed: Seed of the random inputs.
        done: Rows of an earlier sweep by label; those that were measured are not measured again.
        listener: Told the number of rows that are there and the rows, after each one.

    Returns:
        One row for each combination, in order.
    """
    rows: list[dict[str, Any]] = []
    for combination in combinations:
        known = (done or {}).get(combination.label)
        if known is not None and known.get("state") == "measured":
            rows.append(dict(known))
        else:
            rows.append(_measured(graph, combination, iters, warmup, seed))
        if listener is not None:
            listener(len(rows), rows)
    return rows


# What a row has when nothing could be measured.
_NOTHING: dict[str, Any] = {
    **dict.fromkeys(
        (
            "prepare_ms", "arena_bytes", "weight_bytes", "sample_count", "median_ms",
            "median_low_ms", "median_high_ms", "p90_ms", "min_ms", "max_ms", "first_inference_ms",
            "samples_per_s", "trust",
        )
    ),
    "samples_ns": [],
}  # fmt: skip


def _measured(
    graph: Graph, wanted: Combination, iters: int, warmup: Warmup | int, seed: int
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "label": wanted.label,
        "shapes": wanted.shapes,
        "batch": wanted.batch,
        "threads": wanted.threads,
        "backend": wanted.backend,
        "switches": wanted.switches,
    }
    try:
        return {**row, **_numbers(graph, wanted, iters, warmup, seed), "state": "measured"}
    except MgeError as error:
        return {**row, **_NOTHING, "state": f"failed: {error.message}"}


def _numbers(
    graph: Graph, wanted: Combination, iters: int, warmup: Warmup | int, seed: int
) -> dict[str, Any]:
    part, _ = copy_graph(graph)
    shapes = parse_shapes(wanted.shapes)
    if shapes:
        editing.set_input_shapes(part, shapes)
    if wanted.batch is not None:
        editing.set_batch_size(part, wanted.batch)
    backend = get_backend(wanted.backend)
    ready = optimized(part, options_of(switches_of(wanted.switches), backend))
    with Session(ready.graph, wanted.backend, wanted.threads) as session:
        feeds = random_inputs(session.inputs, seed=seed)
        prepare_ns = session.prepare(feeds)
        stats = session.benchmark(iters, warmup, feeds)
        program = session.program
        report = program.report if program is not None else None
        first = next((a.shape[0] for a in feeds.values() if a.ndim), 1)
        return {
            "batch": wanted.batch if wanted.batch is not None else int(first),
            "threads": session.threads,
            "prepare_ms": prepare_ns / 1e6,
            "arena_bytes": report.arena_bytes if report else None,
            "weight_bytes": report.weight_bytes if report else None,
            **_times(stats, int(first)),
        }


def _times(stats: Stats, batch: int) -> dict[str, Any]:
    def ms(ns: float | None) -> float | None:
        return None if ns is None else ns / 1e6

    ends = stats.median_interval_ns
    rate = stats.throughput_per_s
    return {
        "sample_count": stats.count,
        "median_ms": ms(stats.median_ns),
        "median_low_ms": ms(ends[0]) if ends else None,
        "median_high_ms": ms(ends[1]) if ends else None,
        "p90_ms": ms(stats.percentile_ns(90)),
        "min_ms": ms(stats.min_ns),
        "max_ms": ms(stats.max_ns),
        "first_inference_ms": ms(stats.first_inference_ns),
        "samples_per_s": None if rate is None else rate * batch,
        "trust": level(judge(stats)) if stats.samples else None,
        "samples_ns": list(stats.samples),
    }


def best_of(rows: Sequence[Mapping[str, Any]], goal: str) -> int | None:
    """Place of the best row; None where nothing was measured.

    Args:
        rows: The rows.
        goal: `latency` (smallest median) or `throughput` (most samples a second).
    """
    key = "median_ms" if goal == "latency" else "samples_per_s"
    known = [(row[key], place) for place, row in enumerate(rows) if row.get(key) is not None]
    if not known:
        return None
    return min(known)[1] if goal == "latency" else max(known, key=lambda k: (k[0], -k[1]))[1]
