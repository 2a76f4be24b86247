"""Files of `dump-with-testcase` for networks of the corpus, run by loadrun and by MegEngine.

    python scripts/verify/testcases.py CORPUS [--megengine ENV] [--json FILE]

Nine networks, with images, random and array inputs, several test cases each, in every container,
plain and optimised. Of each file: loadrun passes on it (exit code 0) with both of its CPU
backends; each of its graphs loads in MegEngine 1.13.0 (ENV holds it; the scripts that drive it
stand in `oracle` beside the corpus), which computes the stored inputs of the case graphs and runs
the network on each case without a failed AssertEqual. Then one expected value is made wrong:
loadrun must exit with 1 and MegEngine must fail. Exit code 1 when anything is otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import cv2  # noqa: E402
import numpy as np  # noqa: E402
from corpus_cases import corpus_root, load_npz  # noqa: E402

import loadrun.cli  # noqa: E402
import mgeserial  # noqa: E402
from mgeserial.arrayfiles import NamedArray, npz_bytes  # noqa: E402
from mgeserial.cli.dump_with_testcase import main as dump_with_testcase  # noqa: E402
from mgeserial.ir.tensor import Tensor  # noqa: E402
from mgeserial.saving import save  # noqa: E402
from mgeserial.testcases import EXPECT  # noqa: E402

IMAGE = "--input-transform=(data.astype(np.float32) - 128) / 64"
# Network, arguments (INPUTS is the folder of inputs), what kind of inputs that is.
RUNS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("mobilenet_v2", ("-d", "data:INPUTS/a.png", "--resize-input", IMAGE), "image"),
    (
        "resnet18",
        ("-d", "data:INPUTS/a.jpg", "-d", "INPUTS/b.ppm", "--resize-input", IMAGE),
        "image",
    ),
    ("unet", ("-d", "data:#rand(-1,1)", "-d", "#rand(0,1)", "--seed", "7"), "random"),
    ("super_resolution", ("-d", "INPUTS/grey.png", "--resize-input", IMAGE), "image"),
    ("gan_generator", ("-d", "#rand(-1,1)", "-d", "#rand(-1,1)"), "random"),
    ("detector", ("-d", "data:INPUTS/data.npy;rois:INPUTS/rois.npy"), "array"),
    ("lstm_classifier", ("-d", "ids:INPUTS/ids.npy", "-d", "#rand(0,9)"), "array"),
    ("transformer", ("-d", "INPUTS/inputs.npz", "-d", "ids:#rand(0,9)"), "array"),
    ("yolox_nano", ("-d", "@INPUTS/list.txt", "--maxerr", "1e-3"), "image"),
)
FORMATS = ("v2", "v1", "mgbs")
BACKENDS = ("reference", "cpu")


@dataclass(slots=True)
class Job:
    """One written file and what was found of it."""

    name: str
    path: Path
    wrong: Path
    cases: int
    problems: list[str] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)

    def expect(self, what: str, holds: bool, otherwise: str) -> None:
        """Count a check; note it when it does not hold."""
        self.checked[what] = self.checked.get(what, 0) + 1
        if not holds:
            self.problems.append(f"{what}: {otherwise}")


def make_inputs(folder: Path, case: Path) -> None:
    """Images of any size, and the arrays of the corpus case."""
    random = np.random.default_rng(1)
    for name, shape in (("a.png", (47, 61)), ("a.jpg", (90, 120)), ("b.ppm", (33, 20))):
        image = random.integers(0, 256, (*shape, 3), np.uint8)
        cv2.imwrite(str(folder / name), cv2.GaussianBlur(image, (5, 5), 2))
    cv2.imwrite(str(folder / "grey.png"), random.integers(0, 256, (9, 8), np.uint8))
    arrays = load_npz(case / "inputs.npz")
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    (folder / "inputs.npz").write_bytes(
        npz_bytes([NamedArray(n, a, a.dtype.name) for n, a in arrays.items()])
    )
    (folder / "list.txt").write_text(f"data:{folder}/data.npy\n\n#rand(-1,1)\n")


def make_files(corpus: Path, folder: Path) -> Iterator[Job]:
    """Every network in every container, plain and optimised."""
    for network, words, _ in RUNS:
        case = corpus / "nets" / network
        inputs = folder / network
        inputs.mkdir()
        make_inputs(inputs, case)
        given = [w.replace("INPUTS", str(inputs)) for w in words]
        for format in FORMATS:
            for switches in ([], ["--optimize-for-inference"]):
                name = f"{network}.{format}{'.optimized' if switches else ''}"
                path = folder / f"{name}.mge"
                start = [str(case / "model.v2.mge"), "-o", str(path), "--format", format]
                code, text = quietly(dump_with_testcase, [*start, *given, *switches])
                job = Job(name, path, folder / f"{name}.wrong.mge", 0)
                job.expect("dump-with-testcase", code == 0, text[-500:])
                if code == 0:
                    job.cases = spoil(path, job.wrong)
                yield job


def quietly(function: Any, words: Sequence[str]) -> tuple[int, str]:
    """Exit code and messages of a command line run in this process."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        code = function(list(words))
    return code, text.getvalue()


def spoil(path: Path, wrong: Path) -> int:
    """Write the file with one expected value of its last case changed; the number of cases."""
    model = mgeserial.load(path)
    graph = model.graphs[-1]
    (node, *_) = [o.value.node for o in graph.output_list if str(o.name).endswith(EXPECT)]
    old = node.tensors[0]
    array = np.array(old.numpy(), np.float32)
    array.reshape(-1)[array.size // 2] += 1
    graph.set_tensors(node, (Tensor.of(array, old.dtype, comp_node=old.comp_node),))
    save(model, wrong)
    return len(model.graphs) - 1


def run_with_loadrun(job: Job) -> None:
    """The file passes with each backend, the wrong one does not."""
    for backend in BACKENDS:
        for path, wanted in ((job.path, 0), (job.wrong, 1)):
            words = [str(path), "--iter", "1", "--warmup-iter", "0", "--backend", backend]
            code, text = quietly(loadrun.cli.main, words)
            what = f"loadrun {backend}{' (wrong)' if wanted else ''}"
            job.expect(what, code == wanted, f"exit code {code}: {text[-300:]}")


def megengine_jobs(job: Job, folder: Path) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """What MegEngine is asked of a file: the job, what it checks, what must come out."""
    cases = mgeserial.load(job.path).testcases
    spoilt = mgeserial.load(job.wrong).testcases
    for k, arrays in enumerate(cases):
        yield {"model": str(job.path), "index": k + 1, "inputs": None}, "case graph", arrays
        inputs = folder / f"{job.name}.{k}.npz"
        inputs.write_bytes(npz_bytes([NamedArray(n, a, a.dtype.name) for n, a in arrays.items()]))
        yield {"model": str(job.path), "index": 0, "inputs": str(inputs)}, "network", None
    inputs = folder / f"{job.name}.wrong.npz"
    inputs.write_bytes(npz_bytes([NamedArray(n, a, a.dtype.name) for n, a in spoilt[-1].items()]))
    yield {"model": str(job.wrong), "index": 0, "inputs": str(inputs)}, "network (wrong)", None


def run_with_megengine(jobs: Sequence[Job], env: Path, batch: Path, folder: Path) -> None:
    """Let MegEngine load and run every graph of every file."""
    asked = [(job, *one) for job in jobs if job.cases for one in megengine_jobs(job, folder)]
    lines = [json.dumps({"id": k, **entry}) for k, (_, entry, _, _) in enumerate(asked)]
    (folder / "jobs.jsonl").write_text("\n".join(lines))
    command = [env / "bin" / "python", batch, folder / "jobs.jsonl", folder / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"id"')]
    if len(answers) != len(asked):
        raise SystemExit(f"MegEngine answered {len(answers)} of {len(asked)}: {done.stderr[-500:]}")
    for answer, (job, _, what, arrays) in zip(answers, asked, strict=True):
        label = f"MegEngine {what}"
        if what == "network (wrong)":
            failed = not answer["ok"] and "Unequal value" in str(answer["error"])
            job.expect(label, failed, f"ok={answer['ok']}: {answer['error']}")
            continue
        job.expect(label, bool(answer["ok"]), str(answer["error"]))
        if answer["ok"] and arrays is not None:
            found = list(load_npz(folder / "out" / f"{answer['k']}.npz").values())
            wanted = [arrays[n] for n in sorted(arrays, key=str.encode)]
            equal = len(found) == len(wanted) and all(map(np.array_equal, found, wanted))
            job.expect("MegEngine values", equal, "the case graph's values are not those stored")


def main() -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("corpus", nargs="?", type=Path, default=None, help="folder of cases")
    parser.add_argument("--megengine", type=Path, help="environment with MegEngine 1.13.0")
    parser.add_argument("--json", help="write what was found; - for stdout")
    args = parser.parse_args()
    corpus = args.corpus or corpus_root()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jobs = list(make_files(corpus, folder))
        for job in jobs:
            if job.cases:
                run_with_loadrun(job)
        if args.megengine is not None:
            batch = corpus.parent / "oracle" / "batch.py"
            run_with_megengine(jobs, args.megengine, batch, folder)
    return report(jobs, args)


def report(jobs: Sequence[Job], args: argparse.Namespace) -> int:
    """Say what was found, and write it."""
    totals: dict[str, int] = {}
    for job in jobs:
        for what, count in job.checked.items():
            totals[what] = totals.get(what, 0) + count
        for problem in job.problems:
            print(f"{job.name}: {problem}", file=sys.stderr)
    bad = [job for job in jobs if job.problems]
    document = {
        "schema": 1,
        "kind": "verify-testcases",
        "networks": {n: kind for n, _, kind in RUNS},
        "files": len(jobs),
        "test_cases": sum(job.cases for job in jobs),
        "checks": totals,
        "megengine": args.megengine is not None,
        "failed": {job.name: job.problems for job in bad},
    }
    if args.json:
        text = json.dumps(document, indent=1)
        if args.json == "-":
            print(text)
        else:
            Path(args.json).write_text(text)
    print(
        f"{len(jobs)} files, {document['test_cases']} test cases, {sum(totals.values())} checks, "
        f"{len(bad)} files with problems",
        file=sys.stderr,
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
