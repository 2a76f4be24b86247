"""Compare the optimiser with the files that MegEngine itself optimised.

    python scripts/verify/optimizer.py --json result.json
    python scripts/verify/optimizer.py --case layout/fuse_plain -v
    python scripts/verify/optimizer.py --megengine ENV --oracle FOLDER

Layout family: `source.v1.mge` is the graph before, `optimize` in case.json the options. Networks
`*_optimized` and `*_nchw88`: the network of that name without the ending is the graph before.
Checked for each: same outputs within the case's tolerance; same operators by kind and format
(constants apart), or fewer; the bits of the metadata; that a second run changes nothing. Exit code
1 when something is worse than MegEngine's file without a reason given in `EXPLAINED`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts" / "verify")]

from corpus_cases import Case, Run, compare, corpus_root, iter_cases  # noqa: E402
from oracle_runs import Ask, ask  # noqa: E402

import mgeserial  # noqa: E402
from loadrun.session import Session  # noqa: E402
from mgeserial.errors import MgeError  # noqa: E402
from mgeserial.ir.graph import Graph  # noqa: E402
from mgeserial.passes import OptimizeOptions, optimize  # noqa: E402
from mgeserial.passes.census import census  # noqa: E402
from mgeserial.passes.evaluate import HOLDERS  # noqa: E402

# Differences from MegEngine's census that are not fewer operators, with the reason.
EXPLAINED: dict[str, str] = {
    "layout/q_hwcd4_conv": "MegEngine's file leaves its output in NHWCD4; ours puts it in order",
}
# Operators whose format is none of feature maps.
_NO_LAYOUT = frozenset({"MatrixMul", "BatchedMatrixMul"})
# Ways to run a file in MegEngine: its fast kernels ignore z and have defects in float16 and NCHW88
# on some machines; NHWCD4 wants fixed shapes.
_WAYS: dict[str, dict[str, bool]] = {
    "agrees": {},
    "agrees (naive kernels)": {"naive": True},
    "agrees (fixed shapes)": {"embed": True},
    "agrees (fixed shapes, naive kernels)": {"embed": True, "naive": True},
}
_ENDINGS = ("_optimized", "_nchw88")


@dataclass(frozen=True)
class Pair:
    """A graph before, MegEngine's graph after, the options between them, and what to feed."""

    case: Case
    before: Path
    after: Path
    options: OptimizeOptions
    run: Run


def pairs(root: Path, wanted: list[str]) -> Iterator[Pair]:
    """Every pair of the corpus."""
    cases = {c.id: c for c in iter_cases(root, ["layout", "nets"])}
    for case in cases.values():
        if wanted and case.id not in wanted:
            continue
        given = case.case.get("optimize") or {}
        after = case.path / "model.v1.mge"
        if case.family == "layout":
            source = case.source()
            if source is not None:
                options = OptimizeOptions(**given)
                yield Pair(case, source.path, after, options, case.source_runs()[0])
            continue
        base = next((case.name[: -len(e)] for e in _ENDINGS if case.name.endswith(e)), None)
        if base is None:
            continue
        plain = cases[f"nets/{base}"]
        model = next(m for m in plain.models() if m.path.name == "model.v1.mge")
        options = OptimizeOptions(**given)
        yield Pair(case, model.path, after, options, plain.runs(model)[0])


def operators(graph: Graph) -> dict[str, int]:
    """The census without weights and constants."""
    return {k: n for k, n in census(graph).items() if k not in HOLDERS}


def difference(ours: dict[str, int], theirs: dict[str, int]) -> dict[str, list[int]]:
    """[ours, MegEngine's] of each kind that differs."""
    kinds = sorted({*ours, *theirs})
    pairs_ = {k: [ours.get(k, 0), theirs.get(k, 0)] for k in kinds}
    return {k: v for k, v in pairs_.items() if v[0] != v[1]}


def formats(counts: dict[str, int]) -> dict[str, int]:
    """Operators by format: what a layout pass must reach whatever else is saved.

    Convolutions count alike with and without a bias.
    """
    found: dict[str, int] = {}
    for kind, n in counts.items():
        name, _, rest = kind.partition("[")
        if rest and name not in _NO_LAYOUT:
            name = "Convolution" if name == "ConvBiasForward" else name
            key = f"{name}[{rest}"
            found[key] = found.get(key, 0) + n
    return found


def check(pair: Pair, written: Path | None = None) -> dict[str, Any]:
    """What was found for one pair; `problems` is empty when all is well.

    Args:
        pair: The pair.
        written: Where to write the optimised network.
    """
    before = mgeserial.load(pair.before).graphs[pair.run.graph_index]
    theirs = mgeserial.load(pair.after).graph
    new, report = optimize(before, pair.options)
    if written is not None:
        mgeserial.save(new, written, format="v1")
    with Session(new, "reference") as session:
        outputs = session.run(pair.run.inputs)
    problems = [f"outputs: {text}" for text in compare(pair.run, outputs)]
    again = optimize(new, pair.options)[1].rewrites
    if again:
        problems.append(f"a second run changes {len(again)} places: {again[0]}")
    bits = theirs.metadata.optimize_options if theirs.metadata is not None else 0
    if new.metadata is None or new.metadata.optimize_options != bits:
        problems.append(f"optimize_options: {pair.options.bits}, MegEngine has {bits}")
    ours, wanted = operators(new), operators(theirs)
    differs = difference(ours, wanted)
    verdict = "same"
    if differs:
        same_formats = formats(ours) == formats(wanted)
        fewer = sum(ours.values()) < sum(wanted.values()) and same_formats
        verdict = "fewer operators" if fewer else EXPLAINED.get(pair.case.id, "")
        if not verdict:
            problems.append(f"operators differ [ours, MegEngine's]: {differs}")
    return {
        "operators": [sum(operators(before).values()), sum(ours.values()), sum(wanted.values())],
        "constants": [_constants(before), _constants(new), _constants(theirs)],
        "weight_bytes": [report.weight_bytes_before, report.weight_bytes_after],
        "census": verdict or "differs",
        "difference": differs,
        "near_misses": [str(m) for m in report.near_misses],
        "problems": problems,
    }


def run_in_megengine(
    files: dict[str, tuple[Pair, Path]], args: argparse.Namespace, folder: Path
) -> dict[str, str]:
    """What the real MegEngine makes of our files and of its own, by case.

    `agrees`, with what had to be asked of MegEngine for it (`_WAYS`); `its own file fails too`;
    else what is wrong.
    """
    found: dict[str, str] = {}
    todo = dict(files)
    for k, (verdict, how) in enumerate(_WAYS.items()):
        ours, own = (
            ask(
                [
                    Ask(path if mine else pair.after, pair.run.inputs, pair.run.graph_index)
                    for pair, path in todo.values()
                ],
                env=args.megengine,
                oracle=args.oracle,
                folder=folder / f"{k}-{mine}",
                **how,
            )
            for mine in (True, False)
        )
        for (name, (pair, _)), mine, theirs in zip(list(todo.items()), ours, own, strict=True):
            problem = _judge(pair, mine)
            if problem is None:
                found[name] = verdict
                del todo[name]
            elif _judge(pair, theirs) is not None:
                found[name] = f"its own file fails too: {problem}"
            else:
                found[name] = problem
        if not todo:
            break
    return found


def _judge(pair: Pair, answer: Any) -> str | None:
    if isinstance(answer, str):
        return answer
    run = dataclasses.replace(pair.run, output_layout=pair.case.case.get("output_layout"))
    problems = compare(pair.run, answer)
    if problems and run.output_layout:
        problems = compare(run, answer)
    return problems[0] if problems else None


def _constants(graph: Graph) -> int:
    return sum(n for k, n in census(graph).items() if k in HOLDERS)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--root", type=Path, default=None, help="corpus folder")
    parser.add_argument("--case", action="append", default=[], help="family/case, repeatable")
    parser.add_argument("--json", default=None, help="write the result here (- for stdout)")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--megengine", type=Path, help="environment with MegEngine 1.13.0")
    parser.add_argument("--oracle", type=Path, help="folder of batch.py")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return _main(args, Path(folder))


def _main(args: argparse.Namespace, folder: Path) -> int:
    found: dict[str, dict[str, Any]] = {}
    files: dict[str, tuple[Pair, Path]] = {}
    for pair in pairs(args.root or corpus_root(), args.case):
        written = folder / f"{len(found)}.mge" if args.megengine else None
        try:
            found[pair.case.id] = check(pair, written)
            if written is not None:
                files[pair.case.id] = pair, written
        except MgeError as error:
            found[pair.case.id] = {"problems": [f"{type(error).__name__}: {error}"]}
        except Exception:
            text = traceback.format_exc(limit=-4)
            found[pair.case.id] = {"problems": [f"traceback: {text}"]}
        entry = found[pair.case.id]
        shown = "; ".join(entry["problems"]) or entry["census"]
        counts = "{} -> {} (MegEngine {})".format(*entry.get("operators", ["?"] * 3))
        print(f"{pair.case.id:40} {counts:28} {shown}", file=sys.stderr)
        if args.verbose:
            for line in (str(entry.get("difference")), *entry.get("near_misses", [])):
                print(f"    {line}", file=sys.stderr)
    if args.megengine:
        _note_megengine(found, run_in_megengine(files, args, folder))
    return _publish(found, args)


def _note_megengine(found: dict[str, dict[str, Any]], answers: dict[str, str]) -> None:
    for name, text in answers.items():
        found[name]["megengine"] = text
        if not text.startswith(("agrees", "its own")):
            found[name]["problems"].append(f"MegEngine: {text}")
        if text != "agrees":
            print(f"{name:40} MegEngine: {text}", file=sys.stderr)


def _publish(found: dict[str, dict[str, Any]], args: argparse.Namespace) -> int:
    bad = [k for k, v in found.items() if v["problems"]]
    same = sum(v.get("census") == "same" for v in found.values())
    print(f"{len(found)} pairs: {same} the same, {len(bad)} with problems", file=sys.stderr)
    result = {"schema": 1, "pairs": len(found), "same": same, "bad": bad, "cases": found}
    if args.json == "-":
        print(json.dumps(result, indent=1))
    elif args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
