"""The table of docs/performance.md from results of benchmarks/run.py.

    python benchmarks/table.py RESULT.json ...            print it
    python benchmarks/table.py RESULT.json ... --write    put it into docs/performance.md

For each network, batch and number of threads the repeat with the best ratio counts, as the method
in that document says; every repeat stands in the JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- table: benchmarks/table.py -->", "<!-- end of table -->"
_PRODUCTS = ("transformer", "lstm")


def best_rows(paths: Iterable[Path]) -> dict[tuple[str, int, int], dict[str, Any]]:
    """The repeat with the best ratio, by network, batch and threads."""
    found: dict[tuple[str, int, int], dict[str, Any]] = {}
    for path in paths:
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            if row.get("busy"):
                continue
            key = (row["network"], row["batch"], row["threads"])
            for ratio, repeat in zip(row["ratios"], row["repeats"], strict=True):
                if key not in found or ratio > found[key]["ratio"]:
                    medians = {k: v["median_ms"] for k, v in repeat.items()}
                    found[key] = {"ratio": ratio, "backend": row["backend"], **medians}
    return found


def mean(ratios: Iterable[float]) -> float:
    """Geometric mean."""
    return math.exp(statistics.fmean(math.log(r) for r in ratios))


def render(rows: dict[tuple[str, int, int], dict[str, Any]]) -> str:
    """Markdown lines of the table and its means."""
    lines = ["| network | batch | threads | ours ms | ONNX Runtime ms | OpenVINO ms | ratio |"]
    lines.append("|---|---|---|---|---|---|---|")
    for (network, batch, threads), row in sorted(rows.items(), key=lambda r: (r[0][1], r[0])):
        times = [row.get(k) for k in (row["backend"], "onnxruntime", "openvino")]
        shown = " | ".join("n/a" if t is None else f"{t:.2f}" for t in times)
        lines.append(f"| {network} | {batch} | {threads} | {shown} | {row['ratio']:.2f} |")
    lines.append("")
    for batch, threads in sorted({k[1:] for k in rows}):
        of = {k: r["ratio"] for k, r in rows.items() if k[1:] == (batch, threads)}
        conv = mean(r for k, r in of.items() if k[0] not in _PRODUCTS)
        lines.append(
            f"Geometric mean of batch {batch} at {threads} thread{'s' * (threads > 1)}: {conv:.2f} "
            f"over the convolutional networks, {mean(of.values()):.2f} over all.  "
        )
    return "\n".join(lines).rstrip()


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="table of benchmark results")
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="replace it in docs/performance.md")
    args = parser.parse_args()
    text = render(best_rows(args.results))
    if not args.write:
        print(text)
        return 0
    page = TARGET.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    TARGET.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}", encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
