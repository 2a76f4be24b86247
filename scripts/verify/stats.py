"""Statistics of JSON documents computed again from their raw samples, by other means.

    python scripts/verify/stats.py FILE...            check documents that exist
    python scripts/verify/stats.py --run MODEL...     run models, check documents and printed text

Everything is computed in rational numbers and rounded once. Numbers in a document must agree to
the last bits of a float (4 units in the last place, what a few roundings can make), numbers in the
text to the last digit printed. Prints one line a document; exit status 1 when one differs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

_UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3}
_ULPS = 4


def percentile(samples: Sequence[int], percent: Fraction) -> Fraction:
    """Linear between the samples of neighbouring ranks."""
    ordered = sorted(samples)
    place = percent * (len(ordered) - 1) / 100
    low = place.numerator // place.denominator
    high = ordered[min(low + 1, len(ordered) - 1)]
    return ordered[low] + (high - ordered[low]) * (place - low)


def root(value: Fraction) -> Fraction:
    """Square root to 60 digits."""
    with localcontext() as context:
        context.prec = 60
        return Fraction((Decimal(value.numerator) / Decimal(value.denominator)).sqrt())


def deviation(samples: Sequence[int]) -> Fraction | None:
    """Sample standard deviation, by distances to the mean."""
    if len(samples) < 2:
        return None
    mean = Fraction(sum(samples), len(samples))
    return root(sum(((x - mean) ** 2 for x in samples), Fraction(0)) / (len(samples) - 1))


def interval(samples: Sequence[int]) -> tuple[int, int] | None:
    """The narrowest pair of order statistics, equally far from the ends, of 95 % coverage."""
    n, ordered = len(samples), sorted(samples)
    if n > 1000:
        k = math.floor(n / 2 - 1.959963984540054 / 2 * math.sqrt(n))
        return ordered[k - 1], ordered[n - k]
    best = None
    for k in range(1, n // 2 + 1):
        outside = 2 * sum(Fraction(math.comb(n, j), 2**n) for j in range(k))
        if outside <= Fraction(5, 100):
            best = k
    return None if best is None else (ordered[best - 1], ordered[n - best])


def expected(case: Mapping[str, Any], batch: int | None) -> dict[str, Fraction | None]:
    """All numbers of `stats`, in the units of their keys."""
    samples: list[int] = case["samples_ns"]
    n, total = len(samples), sum(samples)
    times: dict[str, Fraction | int | None] = {
        "total": total,
        "min": min(samples, default=None),
        "max": max(samples, default=None),
        "mean": Fraction(total, n) if n else None,
        "median": percentile(samples, Fraction(50)) if n else None,
        "sd": deviation(samples),
    }
    for p in (90, 95, 99):
        times[f"p{p}"] = percentile(samples, Fraction(p)) if n else None
    middle = times["median"]
    if n >= 2 and middle is not None:
        distances = sorted(abs(x - Fraction(middle)) for x in samples)
        times["mad"] = (distances[(n - 1) // 2] + distances[n // 2]) / 2
    else:
        times["mad"] = None
    ends = interval(samples)
    times["median_low"], times["median_high"] = ends or (None, None)
    for part in ("host", "device", "copy"):
        found = case[f"{part}_ns"]
        times[f"mean_{part}"] = Fraction(sum(found), n) if found else None
    wanted = {f"{k}_ms": None if v is None else Fraction(v) / 10**6 for k, v in times.items()}
    rate = Fraction(n * 10**9, total) if total else None
    wanted["throughput_per_s"] = rate
    wanted["samples_per_s"] = rate * batch if rate is not None and batch else None
    wanted["count"] = Fraction(n)
    return wanted


def problems_of(document: Mapping[str, Any]) -> Iterator[str]:
    """What differs in a document."""
    for k, case in enumerate(document["cases"]):
        stats = case["stats"]
        if stats is None:
            continue
        for key, want in expected(case, document["batch"]).items():
            got = stats[key]
            if (want is None) != (got is None):
                yield f"case {k} {key}: {got}, computed {want}"
            elif want is not None and abs(Fraction(got) - want) > _ULPS * Fraction(
                math.ulp(float(want))
            ):
                yield f"case {k} {key}: {got!r}, computed {float(want)!r}"
        if case["device_ns"]:
            parts = zip(
                case["samples_ns"], case["host_ns"], case["device_ns"], case["copy_ns"], strict=True
            )
            if any(whole != h + d + c for whole, h, d, c in parts):
                yield f"case {k}: parts do not add up to the samples"


def rounded(value: Fraction, places: int) -> str:
    """A number with so many places, ties to even as the float's own digits have it."""
    with localcontext() as context:
        context.prec = 60
        exact = Decimal(float(value))
        return str(exact.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN))


def text_problems(document: Mapping[str, Any], text: str) -> Iterator[str]:
    """What differs between the summary that was printed and the samples (one case only)."""
    (case,) = document["cases"]
    want = expected(case, document["batch"])
    names = ("min", "median", "mean", "sd", "p90", "p95", "p99", "max")
    for name in names:
        line = re.search(rf"^    {name} +(\S+)(?: (\w+))?$", text, re.MULTILINE)
        if line is None:
            yield f"text: no line for {name}"
            continue
        value = want[f"{name}_ms"]
        shown = "n/a" if value is None else rounded(value * 10**6 / _UNITS[line[2]], 3)
        if line[1] != shown:
            yield f"text: {name} is {line[1]}, computed {shown}"
    summary = re.search(
        r"=== finished test #0: time=(\S+)ms avg_time=(\S+)ms sd=(n/a|\S+ms) minmax=(\S+),(\S+)",
        text,
    )
    if summary is None:
        if case["samples_ns"] and case["source"] == "input":
            yield "text: no line `=== finished test #0`"
        return
    keys = ("total", "mean", "sd", "min", "max")
    for key, got in zip(keys, summary.groups(), strict=True):
        value = want[f"{key}_ms"]
        shown = "n/a" if value is None else rounded(value, 3)
        if got.removesuffix("ms") != shown:
            yield f"line: {key} is {got}, computed {shown}"


def run(model: str, words: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Run loadrun; its document and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.json"
        command = [sys.executable, "-m", "loadrun", model, "--json", str(path), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(path.read_text(encoding="utf-8")), done.stdout


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="+", help="documents, or models with --run")
    parser.add_argument("--run", action="store_true", help="the files are models: run them")
    args = parser.parse_args()
    failed = checked = 0
    iters = ("0", "1", "2", "5", "6", "10", "33", "400", "1200")
    jobs = itertools.product(args.files, iters if args.run else ("",))
    for file, count in jobs:
        if args.run:
            document, text = run(file, ["--iter", count])
            found = [*problems_of(document), *text_problems(document, text)]
        else:
            document = json.loads(Path(file).read_text(encoding="utf-8"))
            found = list(problems_of(document))
        checked += 1
        failed += bool(found)
        print(f"{file} {count and 'iter ' + count}: {'; '.join(found) or 'agrees'}")
    print(f"{checked} documents, {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
