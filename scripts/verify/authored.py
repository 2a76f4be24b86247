"""Networks of benchmarks/models.py in the real MegEngine 1.13.0, against our reference session.

    python scripts/verify/authored.py --env ENV --json out.json

Each network is authored, saved as v1 and v2, run there and here on the same inputs. The error is
relative to the output's largest value; 1e-3 is allowed: sums run over up to 25,088 terms.
A development aid around ../shared/oracle; the package does not need it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "scripts" / "verify")]

import numpy as np  # noqa: E402
from models import NETWORKS  # noqa: E402
from oracle_runs import Ask, ask  # noqa: E402

import mgeserial  # noqa: E402
from loadrun.inputs import random_inputs  # noqa: E402
from loadrun.session import Session  # noqa: E402

ALLOWED = 1e-3


def relative_error(ours: Any, theirs: Any) -> float:
    """Largest difference as a part of the largest value."""
    top = float(np.max(np.abs(theirs))) or 1.0
    return float(np.max(np.abs(ours.astype(np.float64) - theirs))) / top


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="authored networks in the real MegEngine")
    parser.add_argument("--env", type=Path, required=True)
    parser.add_argument("--oracle", type=Path, default=ROOT.parent / "shared" / "oracle")
    parser.add_argument("--json", default="-")
    args = parser.parse_args()
    result: dict[str, Any] = {"schema": 1, "allowed_relative_error": ALLOWED, "networks": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for network, make in NETWORKS.items():
            graph = make(1)
            with Session(graph, "reference") as session:
                feeds = random_inputs(session.inputs, seed=0)
                expected = list(session.run(feeds).values())
            found: dict[str, Any] = {}
            for container in ("v1", "v2"):
                path = folder / f"{network}.{container}.mge"
                mgeserial.save(graph, path, format=container)
                (answer,) = ask(
                    [Ask(path, feeds)], env=args.env, oracle=args.oracle, folder=folder, timeout=120
                )
                if isinstance(answer, str):
                    found[container] = {"agrees": False, "error": answer}
                else:
                    pairs = zip(expected, answer.values(), strict=True)
                    worst = max(relative_error(a, b) for a, b in pairs)
                    found[container] = {"agrees": worst <= ALLOWED, "relative_error": worst}
                path.unlink()
            result["networks"][network] = found
            print(network, found, file=sys.stderr, flush=True)
    good = all(c["agrees"] for n in result["networks"].values() for c in n.values())
    text = json.dumps(result, indent=1)
    if args.json == "-":
        print(text)
    else:
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
