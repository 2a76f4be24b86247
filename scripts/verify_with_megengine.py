"""Rewrite every corpus case into every container and let the real MegEngine run what comes out.

    python scripts/verify_with_megengine.py ENV CORPUS [--families nets,containers] [--json FILE]
                                            [--containers original,old --old 0.5.1]

ENV is an environment with MegEngine 1.13.0, CORPUS a folder of cases; the scripts that drive
MegEngine stand in `oracle` beside the corpus. Each model file of each case is read, written as v2,
v1 and MGBS, loaded by MegEngine and run on the case's inputs; the outputs must be the expected
ones. The file itself runs too: what MegEngine cannot run from its own file is counted apart.

Container `old` is MGBS for an old release, for the cases that it can express. MegEngine 1.13.0
reads such files with today's tables, so operators whose tables differ are left out.

Exit code 1 when less than 99 % of the rewritten files agree.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from corpus_cases import Case, Model, Run, compare, iter_cases, load_npz  # noqa: E402

import mgeserial  # noqa: E402
from mgeserial.errors import ConversionError, MgeError  # noqa: E402

CONTAINERS = ("original", "v2", "v1", "mgbs")
LEAST = 0.99
# Operators whose tables or outputs are others in old releases.
OTHERWISE = {"BatchNorm", "ConvBiasForward", "Images2Neibs", "UniformRNG", "GaussianRNG"}


@dataclasses.dataclass(slots=True)
class Job:
    """One graph of one written file on one set of inputs; `problems` None: not run yet."""

    case: Case
    model: Model
    run: Run
    container: str
    path: Path
    problems: list[str] | None = None

    @property
    def id(self) -> str:
        """`family/case/model.v1#0 as v2`."""
        return f"{self.run.id} as {self.container}"


def rewritten(model: mgeserial.Model, container: str, old: str | None) -> bytes | None:
    """The bytes of a model as one of CONTAINERS, or for an old release; None: not to be tried."""
    if container != "old":
        return mgeserial.dumps(model, format=container)
    if any(n.op.name in OTHERWISE for g in model.graphs for n in g.nodes):
        return None
    try:
        return mgeserial.dumps(
            model, format="mgbs", release=old or "", keep_opr_name=False, keep_metadata=False
        )
    except ConversionError:
        return None


def write_all(
    cases: Iterator[Case], folder: Path, refused: dict[str, str], args: argparse.Namespace
) -> Iterator[tuple[Case, Model, str, Path]]:
    """Write each model file as each container; equal bytes are written once."""
    known: dict[str, Path] = {}
    for case in cases:
        for model in case.models():
            loaded = mgeserial.load(model.path)
            for container in args.containers.split(","):
                try:
                    data = (
                        model.path.read_bytes()
                        if container == "original"
                        else rewritten(loaded, container, args.old)
                    )
                except MgeError as error:
                    refused[f"{case.id}/{model.path.name} as {container}"] = str(error)
                    continue
                if data is None:
                    continue
                key = hashlib.sha256(data).hexdigest()
                path = known.setdefault(key, folder / f"{len(known)}.mge")
                if not path.exists():
                    path.write_bytes(data)
                yield case, model, container, path


def ask(
    jobs: list[Job],
    args: argparse.Namespace,
    folder: Path,
    *,
    embed: bool = False,
    plain: bool = False,
) -> None:
    """Run jobs through MegEngine and note what differs; equal (file, run) pairs run once.

    Args:
        jobs: What to run.
        args: The command line.
        folder: For inputs and outputs.
        embed: Inputs become constants, so that every shape is known ahead.
        plain: MegEngine uses its plain kernels.
    """
    groups: dict[tuple[Path, str], list[Job]] = collections.defaultdict(list)
    for job in jobs:
        groups[job.path, job.run.id].append(job)
    entries = list(groups.values())
    lines = []
    for k, group in enumerate(entries):
        run = group[0].run
        inputs = folder / f"in{k}.npz"
        write_npz(inputs, run.inputs)
        lines.append(
            json.dumps(
                {
                    "id": k,
                    "model": str(group[0].path),
                    "index": run.graph_index,
                    "inputs": str(inputs),
                    "embed": embed,
                }
            )
        )
    out = folder / f"out.{embed}.{plain}"
    listed = folder / "jobs.jsonl"
    listed.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [str(args.env / "bin/python"), str(args.oracle / "batch.py"), str(listed), str(out)]
    command += ["--timeout", str(args.timeout)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "MGE_LOG_LEVEL": "ERROR"}
    if plain:
        environ["MGB_USE_MEGDNN_DBG"] = "2"
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            answer = json.loads(line)
            for job in entries[answer["id"]]:
                job.problems = judge(job, answer, out)
    for k in range(len(entries)):
        (folder / f"in{k}.npz").unlink()


def write_npz(path: Path, arrays: Any) -> None:
    """Like numpy.savez, whatever the names are."""
    import io
    import zipfile

    import numpy as np

    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            data = io.BytesIO()
            np.lib.format.write_array(data, np.asarray(array), allow_pickle=False)
            archive.writestr(f"{name}.npy", data.getvalue())


def judge(job: Job, answer: dict[str, Any], out: Path) -> list[str]:
    """Differences between MegEngine's outputs and the expected ones."""
    if not answer["ok"]:
        return ["MegEngine: " + str(answer["error"]).split("\nbacktrace")[0].strip()[:500]]
    run = job.run
    if run.megengine_answer is not None:
        run = dataclasses.replace(run, expected=run.megengine_answer)
    found: list[str] = compare(run, load_npz(out / f"{answer['k']}.npz"))
    return found


def report(jobs: list[Job], refused: dict[str, str], seconds: float) -> dict[str, Any]:
    """Counts by container, every failure, and what MegEngine cannot run from its own file."""
    own = {job.run.id: job.problems for job in jobs if job.container == "original"}
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    failures, not_runnable = {}, {}
    for job in jobs:
        if own.get(job.run.id):
            not_runnable[job.run.id] = (own[job.run.id] or [""])[0]
            counts[job.container]["own file fails"] += 1
            continue
        counts[job.container]["tried"] += 1
        if job.problems == []:
            counts[job.container]["agree"] += 1
        else:
            failures[job.id] = job.problems or ["no answer"]
    rewritten = [c for name, c in counts.items() if name != "original"]
    tried = sum(c["tried"] for c in rewritten) + sum(" as original" not in k for k in refused)
    agree = sum(c["agree"] for c in rewritten)
    return {
        "schema": 1,
        "seconds": round(seconds, 1),
        "containers": {name: dict(c) for name, c in counts.items()},
        "tried": tried,
        "agree": agree,
        "share": agree / tried if tried else 0.0,
        "failures": failures,
        "refused": refused,
        "megengine_cannot_run_its_own_file": not_runnable,
    }


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("env", type=Path, help="environment with MegEngine 1.13.0")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--oracle", type=Path, default=None, help="folder of batch.py")
    parser.add_argument("--timeout", type=float, default=15, help="seconds for one run (15)")
    parser.add_argument("--families", default=None, help="comma-separated")
    parser.add_argument("--case", action="append", default=[], help="family/case, repeatable")
    parser.add_argument("--containers", default=",".join(CONTAINERS), help="what to write")
    parser.add_argument("--old", default=None, metavar="R", help="the release of container `old`")
    parser.add_argument("--json", type=Path, default=None, help="write the result here")
    args = parser.parse_args()
    args.oracle = args.oracle or args.corpus.parent / "oracle"
    start = time.perf_counter()
    families = args.families.split(",") if args.families else None
    refused: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = (
            c
            for c in iter_cases(args.corpus, families)
            if c.family != "pickles" and (not args.case or c.id in args.case)
        )
        jobs = [
            Job(case, model, run, container, path)
            for case, model, container, path in write_all(cases, folder, refused, args)
            for run in case.runs(model)
        ]
        ask(jobs, args, folder)
        # Some graphs run only when their inputs' shapes are fixed; some kernels of MegEngine are
        # code made at run time, which it cannot make for every processor.
        for way in ({"embed": True}, {"plain": True}):
            again = [job for job in jobs if job.problems]
            if again:
                ask(again, args, folder, **way)
    result = report(jobs, refused, time.perf_counter() - start)
    for container, c in result["containers"].items():
        print(f"{container:10} {c}", file=sys.stderr)
    print(f"{result['agree']} of {result['tried']} rewritten files agree", file=sys.stderr)
    for key, problems in result["failures"].items():
        print(f"{key}: {problems[0]}", file=sys.stderr)
    for key, text in refused.items():
        print(f"{key}: refused: {text}", file=sys.stderr)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if result["share"] >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
