"""What was done to a graph, as data and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mgeserial.errors import printable
from mgeserial.passes.base import NearMiss, PassResult, Rewrite
from mgeserial.passes.options import OptimizeOptions

__all__ = ["Report"]


@dataclass(frozen=True, slots=True)
class Report:
    """The passes over one graph.

    Attributes:
        options: What was asked.
        passes: What each pass did, in order.
        before, after: Operators by kind and format.
        weight_bytes_before, weight_bytes_after: Bytes of weights and constants.
    """

    options: OptimizeOptions
    passes: tuple[PassResult, ...]
    before: Mapping[str, int]
    after: Mapping[str, int]
    weight_bytes_before: int
    weight_bytes_after: int

    @property
    def rewrites(self) -> list[Rewrite]:
        """All changes in order."""
        return [r for p in self.passes for r in p.rewrites]

    @property
    def near_misses(self) -> list[NearMiss]:
        """All near-misses in order; the same one of several passes counts once."""
        return list(dict.fromkeys(m for p in self.passes for m in p.near_misses))

    def as_data(self) -> dict[str, Any]:
        """The report as plain data for JSON."""
        return {
            "schema": 1,
            "optimize_options": self.options.bits,
            "operators": {"before": sum(self.before.values()), "after": sum(self.after.values())},
            "census": {"before": dict(self.before), "after": dict(self.after)},
            "weight_bytes": {"before": self.weight_bytes_before, "after": self.weight_bytes_after},
            "passes": [_pass_data(p) for p in self.passes],
        }

    def text(self, *, verbose: bool = False, details: bool = True) -> str:
        """The report for people: totals, changes by rule, near-misses by reason.

        Args:
            verbose: Whether each place is listed, not only their number.
            details: Whether more than the totals is said.
        """
        before, after = sum(self.before.values()), sum(self.after.values())
        lines = [
            f"operators: {before} -> {after}",
            f"weights: {self.weight_bytes_before} -> {self.weight_bytes_after} bytes",
        ]
        if not details:
            return "\n".join(lines)
        changed = {
            k: (self.before.get(k, 0), self.after.get(k, 0))
            for k in sorted({*self.before, *self.after})
            if self.before.get(k, 0) != self.after.get(k, 0)
        }
        lines += [f"  {k:40} {a:5} -> {b:5}" for k, (a, b) in changed.items()]
        lines.append("rewrites:" if self.rewrites else "rewrites: none")
        for item in self.passes:
            rules = Counter(r.rule for r in item.rewrites)
            lines += [f"  {item.name}/{rule}: {n}" for rule, n in rules.items()]
            if verbose:
                lines += [f"    {printable(str(r), limit=200)}" for r in item.rewrites]
        misses = self.near_misses
        if misses:
            lines.append("not done:")
            reasons = Counter((m.pass_name, m.rule, m.reason) for m in misses)
            for (name, rule, reason), n in reasons.items():
                lines.append(f"  {name}/{rule}: {n} x {printable(reason, limit=200)}")
                if verbose:
                    same = [
                        m for m in misses if (m.pass_name, m.rule, m.reason) == (name, rule, reason)
                    ]
                    lines += [f"    {printable(str(m.place), limit=200)}" for m in same]
        return "\n".join(lines)


def _pass_data(item: PassResult) -> dict[str, Any]:
    return {
        "name": item.name,
        "seconds": round(item.seconds, 6),
        "operators": [sum(item.before.values()), sum(item.after.values())],
        "weight_bytes": [item.weight_bytes_before, item.weight_bytes_after],
        "rewrites": [
            {"rule": r.rule, "place": _place(r), "detail": r.detail} for r in item.rewrites
        ],
        "near_misses": [
            {"rule": m.rule, "place": _place(m), "reason": m.reason} for m in item.near_misses
        ],
    }


def _place(entry: Rewrite | NearMiss) -> dict[str, Any]:
    return {"index": entry.place.index, "op": entry.place.op, "name": entry.place.name}
