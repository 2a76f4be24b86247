"""Steps of a benchmark network on the CPU engine, against what the machine can do at most.

    python benchmarks/layers.py resnet50 --threads 1
    python benchmarks/layers.py --all --threads 1 --json benchmarks/results/layers.json

Each step is timed in runs of its own with a clock round it (`loadrun.profiler`); steps of equal
algorithm and shapes are one line. GFLOP/s count the operations of the direct algorithm, so Winograd
may exceed the peak. The arithmetic peak is a loop of independent multiply-adds in vector registers,
the bandwidth that of copies of arrays larger than the caches (`loadrun.peaks`).
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from models import NETWORKS  # noqa: E402

from loadrun.environment import environment  # noqa: E402
from loadrun.inputs import random_inputs  # noqa: E402
from loadrun.profiler import Profile, Row, profile  # noqa: E402
from loadrun.session import Session  # noqa: E402


@dataclass(slots=True)
class Line:
    """Steps of equal algorithm and shapes; times and amounts are of one step."""

    what: str
    algorithm: str
    count: int
    us: float
    gflop_per_s: float | None
    gbyte_per_s: float | None
    peak_percent: float | None
    share: float


def shapes_of(row: Row) -> str:
    """Types that go in and come out, without the element type that all share."""
    ins = ", ".join(t.removeprefix("Float32 ") for t in row.inputs)
    outs = ", ".join(t.removeprefix("Float32 ") for t in row.outputs)
    return f"{ins} -> {outs}" if ins or outs else row.name


def lines_of(found: Profile) -> list[Line]:
    """Rows joined, in the order in which they first run."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in found.rows:
        kernel = row.kernel.rpartition("_")[0] or row.kernel
        groups.setdefault((row.type, row.algorithm, kernel, shapes_of(row)), []).append(row)
    peak = found.peaks.flop_per_s if found.peaks else None
    lines = []
    for (kind, algorithm, _, shapes), rows in groups.items():
        ns = sum(r.median_ns for r in rows)
        flops = sum(r.flops or 0 for r in rows)
        moved = sum((r.read_bytes or 0) + (r.written_bytes or 0) for r in rows)
        speed = flops / ns if flops and ns else None
        lines.append(
            Line(
                f"{kind} {shapes}",
                algorithm or "python",
                len(rows),
                ns / len(rows) / 1e3,
                speed,
                moved / ns if moved and ns else None,
                speed * 1e11 / peak if speed and peak else None,
                sum(r.share for r in rows),
            )
        )
    return lines


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Profile of one network."""
    with Session(NETWORKS[name](args.batch), "cpu", threads=args.threads) as session:
        found = profile(session, random_inputs(session.inputs, seed=0), repeat=args.repeat)
    peaks = found.peaks
    return {
        "network": name,
        "batch": args.batch,
        "threads": args.threads,
        "wall_us": (found.wall_ns or 0) / 1e3,
        "sum_us": found.sum_ns / 1e3,
        "peak_gflop_per_s": peaks.flop_per_s / 1e9 if peaks else None,
        "peak_gbyte_per_s": peaks.bytes_per_s / 1e9 if peaks else None,
        "peak_how": peaks.how if peaks else None,
        "lines": [
            {k: getattr(line, k) for k in Line.__dataclass_fields__} for line in lines_of(found)
        ],
    }


def shown(number: float | None, digits: int = 0) -> str:
    """A number for a table, '' for none."""
    return "" if number is None else f"{number:.{digits}f}"


def table(result: dict[str, Any]) -> str:
    """One network as Markdown."""
    peak, copy = result["peak_gflop_per_s"], result["peak_gbyte_per_s"]
    head = (
        f"{result['network']}, batch {result['batch']}, {result['threads']} thread"
        f"{'s' if result['threads'] > 1 else ''}: {result['wall_us'] / 1e3:.2f} ms a run, "
        f"{result['sum_us'] / 1e3:.2f} ms in steps; peak {shown(peak)} GFLOP/s, copies "
        f"{shown(copy)} GB/s."
    )
    rows = [
        "| step | algorithm | n | us each | GFLOP/s | % of peak | GB/s | share |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for x in result["lines"]:
        cells = [
            x["what"],
            x["algorithm"],
            str(x["count"]),
            shown(x["us"], 1),
            shown(x["gflop_per_s"]),
            shown(x["peak_percent"]),
            shown(x["gbyte_per_s"], 1),
            f"{100 * x['share']:.1f} %",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([head, "", *rows])


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="steps of a network against the machine's peak")
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("--all", action="store_true", help="every network")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write the result here, too")
    args = parser.parse_args()
    names = list(NETWORKS) if args.all else args.networks
    unknown = [n for n in names if n not in NETWORKS]
    if unknown or not names:
        parser.error(f"networks are {', '.join(NETWORKS)}; got {', '.join(unknown) or 'none'}")
    results = [measure(name, args) for name in names]
    print("\n\n".join(map(table, results)))
    if args.json:
        document = {"schema": 1, "environment": environment(), "networks": results}
        args.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
