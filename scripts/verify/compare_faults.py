"""Plant faults in a network of 463 operators: `--compare` names each and `--bisect` cuts it out.

    python scripts/verify/compare_faults.py [--faults N] [--seed N] [--json -]

Faults: one number of a weight, another rounding mode of an operator, a backend that rounds another
way when it quantises, and a backend that is wrong in fused operators alone. Weights are drawn anew
for each of N faults. A weight whose change no value of the network shows (behind a ReLU, say) must
be told as a difference of the files.
Exit status: 0 every fault is named, 1 one is not.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts" / "verify")]

from browsing import Report, write_result  # noqa: E402
from planted import (  # noqa: E402
    change_rounding,
    change_weight,
    fusing_backend,
    network,
    registered,
    rounding_backend,
)

import mgeserial  # noqa: E402
from loadrun.cli import main as loadrun  # noqa: E402

LIMIT = 5
SECONDS: list[float] = []


def compared(folder: Path, *words: str) -> tuple[int, dict[str, Any], float]:
    """Exit code, the document's one comparison, and seconds."""
    out, part = folder / "out.json", folder / "part.mge"
    part.unlink(missing_ok=True)
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        code = loadrun([*words, "--iter", "0", "--bisect", str(part), "--json", str(out), "-q"])
    spent = time.perf_counter() - start
    return code, json.loads(out.read_text())["comparisons"][0], spent


def named(report: Report, what: str, found: dict[str, Any], name: str) -> None:
    """Check that the operator is named and cut out."""
    fault = (found["walk"] or {}).get("first_at_fault") or found["cut"] or {}
    report.check(f"{what}: named", fault.get("name") == name, fault.get("name"))
    reduced = found["reduced"] or {}
    count = reduced.get("operator_count") or LIMIT
    report.check(f"{what}: fewer than {LIMIT} operators are left", count < LIMIT, count)
    report.check(f"{what}: the saved model fails its test case", reduced.get("reproduces"))


def weights(report: Report, folder: Path, right: str, count: int, seed: int) -> Counter[str]:
    """One number of a weight is changed; how many of these faults can be seen."""
    choose = random.Random(seed)
    kinds: Counter[str] = Counter()
    wrong = str(folder / "wrong.mge")
    for _ in range(count):
        conv = f"block{choose.randrange(18)}.conv{choose.randrange(3)}"
        by = choose.choice([0.01, 0.5, -4.0])
        other = network()
        change_weight(other, f"{conv}.w", by)
        mgeserial.save(other, wrong)
        _, found, spent = compared(folder, right, "--compare", wrong)
        SECONDS.append(spent)
        if found["walk"] is None:
            kinds["not visible"] += 1
            told = any(conv in n or "differ in 1 operators" in n for n in found["notes"])
            report.check(f"{conv} by {by}: not visible, told as a difference", told)
        else:
            kinds["named"] += 1
            named(report, f"{conv} by {by}", found, conv)
    return kinds


def roundings(report: Report, folder: Path, right: str) -> None:
    """An operator rounds another way."""
    wrong = str(folder / "wrong.mge")
    for mode in ("FLOOR", "CEIL"):
        other = network()
        change_rounding(other, mode)
        mgeserial.save(other, wrong)
        code, found, spent = compared(folder, right, "--compare", wrong)
        SECONDS.append(spent)
        report.check(f"rounding {mode}: exit code 1", code == 1, code)
        named(report, f"rounding {mode}", found, "round")


def backends(report: Report, folder: Path, right: str) -> None:
    """A backend is wrong; and none is."""
    for backend, operator in ((rounding_backend(), "quantise"), (fusing_backend(), None)):
        with registered(backend) as made:
            code, found, spent = compared(folder, right, "--backends", f"reference,{made}")
        SECONDS.append(spent)
        report.check(f"{made}: exit code 1", code == 1, code)
        fault = (found["walk"] or {}).get("first_at_fault") or found["cut"] or {}
        if operator is None:
            report.check(f"{made}: seen in fused operators only", fault.get("how") == "fused")
        named(report, made, found, operator or fault.get("name", ""))
    code, found, _ = compared(folder, right, "--backends", "reference,cpu")
    quiet = code == 0 and not (found["walk"] or {}).get("first_at_fault")
    report.check("no fault is seen where there is none (reference, cpu)", quiet)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--faults", type=int, default=20, help="weights that are changed (20)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", help="write the result here (- for stdout)")
    args = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        right = str(folder / "right.mge")
        graph = network()
        mgeserial.save(graph, right)
        report.facts["operators"] = len(graph.nodes)
        kinds = weights(report, folder, right, args.faults, args.seed)
        roundings(report, folder, right)
        backends(report, folder, right)
    report.facts |= {"weights": dict(kinds), "longest_s": round(max(SECONDS), 2)}
    result = {
        "schema": 1,
        "kind": "compare faults",
        **report.facts,
        "passed": not report.failed,
        "checks": report.checks,
    }
    write_result(result, args.json)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
