"""Numbers from samples: what a list of measured times says.

Times are integers in nanoseconds, so sums and sums of squares are exact whatever their size, and
nothing cancels. Where a number does not exist (the mean of nothing, the spread of one sample) it is
None, never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from mgeserial.arguments import shown
from mgeserial.errors import InputError

__all__ = ["CONFIDENCE_PERCENT", "PERCENTILES", "Stats", "median_interval", "percentile"]

PERCENTILES = (90, 95, 99)
CONFIDENCE_PERCENT = 95
_NS_PER_S = 1_000_000_000
# Up to so many samples ranks come from the binomial distribution itself.
_EXACT = 1000
_Z = 1.959963984540054  # of 95 %


def percentile(ordered: Sequence[int], percent: float) -> float | None:
    """Value below which `percent` % of the samples lie; None for no samples.

    The sample of rank `percent / 100 * (n - 1)`, counted from 0 in ascending order; a rank between
    two samples takes the straight line between them.

    Args:
        ordered: Samples in ascending order.
        percent: 0 to 100; 50 is the median.

    Raises:
        InputError: `percent` is outside 0 to 100.

    Source: Hyndman & Fan, "Sample Quantiles in Statistical Packages" (1996), definition 7, which
    is numpy's default as well.
    """
    if not isinstance(percent, (int, float)) or not 0 <= percent <= 100:
        raise InputError(f"a percentile lies in 0 to 100, got {shown(percent)}")
    if not ordered:
        return None
    # In rational numbers: 95 / 100 * 399 in floats is not 379.05, and the last digit shows it.
    rank = Fraction(str(percent)) * (len(ordered) - 1) / 100
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (ordered[above] - ordered[below]) * (rank - below))


def median_interval(ordered: Sequence[int]) -> tuple[int, int] | None:
    """Two samples between which the true median lies with 95 % confidence; None below 6 samples.

    The samples of ranks k and n + 1 - k, counted from 1, for the greatest k with
    2 * P(B(n, 1/2) < k) <= 5 %; above 1000 samples k = floor(n / 2 - z / 2 * sqrt(n)). Nothing is
    assumed of the distribution but that samples do not depend on each other.

    Source: order statistics, such as David & Nagaraja, "Order Statistics" (2003), section 7.1.
    """
    n = len(ordered)
    if n <= _EXACT:
        tail, term, k = 0, 1, 0
        while 2 * (tail + term) * 100 <= (100 - CONFIDENCE_PERCENT) << n:
            tail += term
            term = term * (n - k) // (k + 1)
            k += 1
    else:
        k = math.floor(n / 2 - _Z / 2 * math.sqrt(n))
    return (ordered[k - 1], ordered[n - k]) if k else None


@dataclass(frozen=True, slots=True)
class Stats:
    """Samples of one measurement and the numbers drawn from them.

    Attributes:
        samples: Timed inferences in the order measured, ns; as many as were asked for.
        warmup: Warm-up inferences, ns; in no statistic.
        first_inference_ns: The very first inference after the preparation, where it was measured;
            in no statistic.
        device: For each sample the part in kernels, ns; empty where the backend does not say.
        copies: For each sample the part in copies from and to the device, ns; likewise.
        elapsed_ns: From before the first sample to after the last, pauses included, ns.
        warmup_stable: Whether a warm-up "until stable" became stable; None for others.
    """

    samples: tuple[int, ...]
    warmup: tuple[int, ...] = ()
    first_inference_ns: int | None = None
    device: tuple[int, ...] = ()
    copies: tuple[int, ...] = ()
    elapsed_ns: int = 0
    warmup_stable: bool | None = None

    @property
    def host(self) -> tuple[int, ...]:
        """For each sample what is neither kernels nor copies, ns."""
        parts = zip(self.samples, self.device, self.copies, strict=True)
        return tuple(ns - d - c for ns, d, c in parts) if self.device else ()

    @property
    def median_interval_ns(self) -> tuple[int, int] | None:
        """95 % confidence interval of the median, ns; None below six samples."""
        return median_interval(sorted(self.samples))

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(self.samples)

    @property
    def total_ns(self) -> int:
        """Sum of the samples, ns."""
        return sum(self.samples)

    @property
    def mean_ns(self) -> float | None:
        """Arithmetic mean, ns; None without samples."""
        return self.total_ns / self.count if self.samples else None

    @property
    def sd_ns(self) -> float | None:
        """Sample standard deviation (divisor n - 1), ns; None below two samples.

        Exact up to the last division and root: integers do not round.
        """
        n = self.count
        if n < 2:
            return None
        spread = n * sum(x * x for x in self.samples) - self.total_ns**2
        return math.sqrt(spread / (n * (n - 1)))

    @property
    def min_ns(self) -> int | None:
        """Smallest sample, ns; None without samples."""
        return min(self.samples, default=None)

    @property
    def max_ns(self) -> int | None:
        """Largest sample, ns; None without samples."""
        return max(self.samples, default=None)

    @property
    def median_ns(self) -> float | None:
        """The 50th percentile, ns; None without samples."""
        return self.percentile_ns(50)

    @property
    def mad_ns(self) -> float | None:
        """Median of the distances to the median, ns; None below two samples."""
        median = self.median_ns
        if median is None or self.count < 2:
            return None
        # Twice the distance is an integer where the median is a half, so `percentile` stays exact.
        doubled = sorted(abs(2 * x - round(2 * median)) for x in self.samples)
        middle = percentile(doubled, 50)
        return None if middle is None else middle / 2

    @property
    def throughput_per_s(self) -> float | None:
        """Inferences a second, from the mean; None without samples or for a total of 0 ns."""
        return self.count * _NS_PER_S / self.total_ns if self.total_ns else None

    @property
    def spread(self) -> float | None:
        """`mad_ns` as a part of the median (0.05 is 5 %); None where either is missing or 0."""
        mad, median = self.mad_ns, self.median_ns
        return mad / median if mad is not None and median else None

    def percentile_ns(self, percent: float) -> float | None:
        """A percentile as `percentile` defines it, ns; None without samples."""
        return percentile(sorted(self.samples), percent)
