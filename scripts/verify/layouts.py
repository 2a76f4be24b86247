"""Random networks under every layout, against the real MegEngine.

    python scripts/verify/layouts.py --oracle ENV --count 160 --json result.json

Each network is saved plain and optimised by MegEngine 1.13.0 itself and by us. Checked for each:
the operators by kind and format (constants apart) are those of MegEngine's graph, or fewer, or
more for a reason in `EXPLAINED`, or as many with arithmetic fused otherwise; outputs are those of
the plain network; a second run changes nothing; MegEngine loads our file and computes what our
reference does (its naive kernels: those for x86 have neither all formats nor residuals). What
MegEngine refuses to optimise is counted with its reason. ENV is an environment with MegEngine
1.13.0; the scripts that drive it stand in `oracle` beside the corpus. Exit code 1 when something
is wrong.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from layout_nets import LAYOUTS, RandomNet  # noqa: E402
from pass_nets import feeds  # noqa: E402

import mgeserial  # noqa: E402
from mgeserial.errors import MgeError  # noqa: E402
from mgeserial.ir.graph import Graph  # noqa: E402
from mgeserial.passes import OptimizeOptions, OutputCheck, optimize  # noqa: E402
from mgeserial.passes.census import census  # noqa: E402
from mgeserial.passes.evaluate import HOLDERS, compute  # noqa: E402

# Kinds that we may have more of, by layout, with the reason.
EXPLAINED = {
    "hwcd4": {
        "RelayoutFormat:NHWCD4I_NCHW": "MegEngine leaves what is converted to another type, and "
        "outputs made of it, in NHWCD4"
    },
}
_INT8 = frozenset({"nchw4", "nchw32", "chwn4", "nchw64"})
# Runs in MegEngine's environment: one forked child a job, because a failed assertion ends it.
_OPTIMISE = """
import json, os, sys
from megengine.utils.network import Network
for line in open(sys.argv[1]):
    job = json.loads(line)
    pid = os.fork()
    if pid == 0:
        try:
            net = Network.load(job["source"])
            net.dump(job["target"], optimize_for_inference=True, **{job["option"]: True})
        except BaseException as error:
            with open(job["target"] + ".error", "w") as file:
                file.write(str(error).splitlines()[0][:300])
        os._exit(0)
    os.waitpid(pid, 0)
"""


@dataclass(slots=True)
class Found:
    """What was found for one network."""

    seed: int
    layout: str
    graph: Graph
    inputs: dict[str, Any]
    path: Path
    ours: Graph | None = None
    outputs: list[Any] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    verdict: str = ""

    @property
    def option(self) -> str:
        """The switch under MegEngine's name."""
        return f"enable_{self.layout}"

    def file(self, ending: str) -> Path:
        """A file beside the plain network."""
        return self.path.with_suffix(ending)


def made(seed: int, folder: Path) -> Found:
    """A network, saved, optimised by us, and checked as far as we can alone."""
    layout = LAYOUTS[seed % len(LAYOUTS)]
    int8 = layout in _INT8 or seed % 3 == 0
    graph = RandomNet(seed, int8=int8).graph()
    item = Found(seed, layout, graph, feeds(graph, seed), folder / f"{seed}.mge")
    mgeserial.save(graph, item.path)
    options = OptimizeOptions(**{item.option: True})
    try:
        new, report = optimize(graph, options)
        again = optimize(new, options)[1].rewrites
        item.ours, item.outputs = new, compute(new, item.inputs)
    except MgeError as error:
        item.problems.append(f"ours: {error.message}")
        return item
    if again:
        item.problems.append(f"a second run changes {again[0]}")
    fused = any(r.rule == "quantised-z" for r in report.rewrites)
    # A fused residual leaves out one rounding: half of a step of at most 0.2, and what follows.
    check = OutputCheck(item.inputs, rtol=1e-4, atol=0.5 if fused else 1e-4)
    problem = check.compare(graph.output_names, compute(graph, item.inputs), item.outputs)
    if problem is not None:
        item.problems.append(problem)
    mgeserial.save(new, item.file(".ours.mge"))
    np.savez(item.file(".npz"), **item.inputs)
    return item


def ask_to_optimise(items: list[Found], folder: Path, oracle: Path) -> None:
    """Let MegEngine optimise the plain networks."""
    jobs = folder / "optimise.jsonl"
    lines = [
        {"source": str(i.path), "target": str(i.file(".theirs.mge")), "option": i.option}
        for i in items
    ]
    jobs.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    command = [str(oracle / "bin" / "python"), "-c", _OPTIMISE, str(jobs)]
    subprocess.run(command, capture_output=True, check=False, env=_environment())


def ask_to_run(items: list[Found], folder: Path, oracle: Path, shared: Path) -> int:
    """Let MegEngine run our files; the number of answers."""
    jobs = folder / "run.jsonl"
    lines = [
        {
            "id": str(k),
            "model": str(i.file(".ours.mge")),
            "inputs": str(i.file(".npz")),
            "embed": i.layout == "hwcd4",
        }
        for k, i in enumerate(items)
    ]
    jobs.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    batch = shared / "oracle" / "batch.py"
    command = [oracle / "bin" / "python", batch, jobs, folder / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for answer in answers:
        item = items[int(answer["id"])]
        if not answer["ok"]:
            item.problems.append(f"MegEngine cannot run our file: {answer['error'][:300]}")
            continue
        with np.load(folder / "out" / f"{answer['k']}.npz") as theirs:
            found = [theirs[name] for name in theirs.files]
        check = OutputCheck(item.inputs, rtol=1e-4, atol=1e-4)
        problem = check.compare(item.graph.output_names, item.outputs, found)
        if problem is not None:
            item.problems.append(f"MegEngine computes something else: {problem}")
    return len(answers)


def _environment() -> dict[str, str]:
    return {**os.environ, "MGB_USE_MEGDNN_DBG": "2", "OMP_NUM_THREADS": "1"}


def judge(item: Found) -> None:
    """Compare our operators with those of MegEngine's graph."""
    theirs = item.file(".theirs.mge")
    if item.ours is None:
        item.verdict = "failed"
    elif not theirs.exists():
        error = Path(f"{theirs}.error")
        reason = error.read_text(encoding="utf-8") if error.exists() else "it ended"
        item.verdict = f"MegEngine refuses: {reason.split(' failed at ')[0]}"
    else:
        item.verdict = _verdict(item, mgeserial.load(theirs).graph)
        if item.verdict.startswith("differs"):
            item.problems.append(item.verdict)


def _verdict(item: Found, theirs: Graph) -> str:
    assert item.ours is not None
    ours, wanted = _operators(item.ours), _operators(theirs)
    kinds = sorted(k for k in {*ours, *wanted} if ours.get(k, 0) != wanted.get(k, 0))
    if not kinds:
        return "same"
    if sum(ours.values()) < sum(wanted.values()):
        return "fewer operators"
    allowed = EXPLAINED.get(item.layout, {})
    if all(k in allowed and ours.get(k, 0) > wanted.get(k, 0) for k in kinds):
        return f"explained: {allowed[kinds[0]]}"
    if sum(ours.values()) == sum(wanted.values()) and all(k.startswith("Elemwise:") for k in kinds):
        return "as many operators, arithmetic fused otherwise"
    return f"differs: {[(k, ours.get(k, 0), wanted.get(k, 0)) for k in kinds]}"


def _operators(graph: Graph) -> dict[str, int]:
    return {k: n for k, n in census(graph).items() if k not in HOLDERS}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="random networks under layouts, and MegEngine")
    parser.add_argument("--oracle", type=Path, required=True, help="environment with MegEngine")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--count", type=int, default=160)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", default="-")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        items = [made(args.seed + k, folder) for k in range(args.count)]
        sound = [i for i in items if i.ours is not None]
        ask_to_optimise(sound, folder, args.oracle)
        answers = ask_to_run(sound, folder, args.oracle, args.shared)
        for item in items:
            judge(item)
    bad = {f"{i.seed} {i.layout}": i.problems for i in items if i.problems}
    result = {
        "schema": 1,
        "networks": len(items),
        "answers": answers,
        "verdicts": dict(collections.Counter(i.verdict for i in items).most_common()),
        "bad": bad,
    }
    text = json.dumps(result, indent=1)
    if args.json == "-":
        print(text)
    else:
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    print(f"{len(items)} networks, {len(bad)} with problems", file=sys.stderr)
    return 1 if bad or answers < len(items) else 0


if __name__ == "__main__":
    sys.exit(main())
