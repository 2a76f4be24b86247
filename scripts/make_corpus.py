"""Pick the compact corpus of this repository from the full one, and describe it.

    python scripts/make_corpus.py FULL_CORPUS PUBLIC_MODELS [--out tests/corpus]

FULL_CORPUS holds `<family>/<case>/` folders (tests/corpus/README.md describes them), PUBLIC_MODELS
the files of `PUBLIC` below. The choice is deterministic: cases are taken in order of what they add
(operators, versions, modes, dtypes, options, networks not seen yet) per file and byte, then the
smallest of the family that has the least, until `MAX_FILES` or `MAX_BYTES` is reached. A case with
a file above `MAX_FILE_BYTES` is never taken. The folders of families, `public` and `corpus.toml`
below --out are replaced; nothing else there is touched.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MAX_FILES = 1180
MAX_BYTES = 3_850_000
MAX_FILE_BYTES = 64 * 1024
# What a byte costs beside a file. Files are the scarcer of the two: hence the factor, with which
# both limits are reached at about the same time.
BYTES_PER_FILE = 6 * MAX_BYTES / MAX_FILES
CATALOGUE = "corpus.toml"
SPECIAL_KEYS = ("compare", "output_layout", "inputs_missing_in", "testcase_layout", "quant")
SPECIAL_FILES = ("megengine_answer.npz", "source.v1.mge", "expected.v2.npz", "model.v2nc.mge")
# What seeing a thing for the first time is worth, by the kind of thing.
WEIGHTS = {
    "family": 5.0,
    "operators": 3.0,
    "operators_in_v2_file": 3.0,
    "operators_in_v2nc_file": 2.0,
    "mode": 3.0,
    "quantized_mode": 0.5,
    "dtype": 1.0,
    "optimize": 3.0,
    "dump": 2.0,
    "special": 8.0,
    "case": 5.0,
    "net": 4.0,
    "net_form": 4.0,
    "group": 1.0,
}
NET_SUFFIXES = ("_static", "_optimized", "_nchw88")


@dataclass(frozen=True, slots=True)
class Public:
    """A file of a public repository, kept unchanged."""

    file: str
    summary: str
    repository: str
    commit: str
    path: str
    licence: str = "Apache-2.0"


PUBLIC = (
    Public(
        "v1-MediosZ-xornet_deploy.mge",
        "small network for XOR, v1",
        "MediosZ/MegEngine",
        "45a526df3fb2b86f8d53564fd577fcd385e877bf",
        "data/xornet_deploy.mge",
    ),
    Public(
        "v1-chenls-xornet_deploy.mge",
        "small network for XOR, v1, other weights",
        "chenls/MegEngine",
        "3f783aba4b81ab628ad911d0c66a49d163a8aaf6",
        "xornet_deploy.mge",
    ),
    Public(
        "v1-mgeconvert-convolution-backward-filter.mge",
        "convolution-backward-filter test model of mgeconvert, v1",
        "MegEngine/mgeconvert",
        "4f5d36ec2182bf0ad8c58d88b996f5646be5ac70",
        "test/mge/convolution-backward-filter.mge",
    ),
    Public(
        "v1-mgeconvert-test_model-840B.mge",
        "smallest test model of mgeconvert, v1",
        "MegEngine/mgeconvert",
        "e4a12617f4c3694aa45e3e1a57a5d17185271330",
        "test/test_model.mge",
    ),
    Public(
        "lfs-pointer-mgeconvert-convolution-backward-filter.mge",
        "a Git LFS pointer where a model was meant to be",
        "MegEngine/mgeconvert",
        "baf9d9e81b21ff2cd979fd153c3081488c10374a",
        "test/convolution-backward-filter.mge",
    ),
    Public(
        "pickle-MegEngine-tensor_v1_1.mge",
        "a pickled tensor of MegEngine 1.1, named .mge",
        "MegEngine/MegEngine",
        "cdbb4a20ff7c00dab280b49ce4666afde04fe520",
        "imperative/python/test/unit/core/tensor_v1_1.mge",
    ),
    Public(
        "pickle-MegEngine-tensor_v1_2.mge",
        "a pickled tensor of MegEngine 1.2, named .mge",
        "MegEngine/MegEngine",
        "cdbb4a20ff7c00dab280b49ce4666afde04fe520",
        "imperative/python/test/unit/core/tensor_v1_2.mge",
    ),
    Public(
        "empty-Documentation-dummy.mge",
        "two bytes: a placeholder, no model",
        "MegEngine/Documentation",
        "c688cae55a2fc53e3921e4b30f95c81d59fb8270",
        "examples/deploy/android/CameraXApp/app/src/main/assets/dummy.mge",
        "CC-BY-SA-4.0",
    ),
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A case of the full corpus that may be taken."""

    name: str
    folder: Path
    case: Mapping[str, Any]
    files: tuple[Path, ...]
    size: int
    features: frozenset[str]

    @property
    def family(self) -> str:
        """First part of the name."""
        return self.name.partition("/")[0]

    @property
    def cost(self) -> float:
        """In files; bytes count as files by `BYTES_PER_FILE`."""
        return len(self.files) + self.size / BYTES_PER_FILE


def _features(name: str, case: Mapping[str, Any], files: Iterable[str]) -> Iterator[str]:
    """What a case covers that another may not; the first word is a key of `WEIGHTS`."""
    family, _, short = name.partition("/")
    yield f"family {family}"
    for key in ("operators", "operators_in_v2_file", "operators_in_v2nc_file"):
        yield from (f"{key} {item}" for item in case.get(key, ()))
    for mode in case.get("operator_modes", ()):
        # The quantized modes are the plain ones between two casts.
        yield f"quantized_mode {mode}" if ":Q" in mode else f"mode {mode}"
    for side in ("inputs", "outputs"):
        tensors = case.get(side)
        for tensor in tensors.values() if isinstance(tensors, dict) else ():
            quant = tensor.get("quant", {}).get("name", "")
            yield f"dtype {family} {side} {tensor['dtype']} {quant} {len(tensor['shape'])}d"
    yield from (f"optimize {option}" for option in case.get("optimize", ()))
    yield from (f"dump {item}" for item in _options(case.get("dump_options", {})))
    yield from (f"special {family} {key}" for key in SPECIAL_KEYS if key in case)
    yield from (f"special {family} {file}" for file in SPECIAL_FILES if file in files)
    if family in ("containers", "pickles"):
        yield f"case {name}"  # each is a shape of file of its own
    elif family == "nets":
        base, form = short, "as written"
        for suffix in NET_SUFFIXES:
            if base.endswith(suffix):
                base, form = base.removesuffix(suffix), suffix
        yield f"net {base}"
        yield f"net_form {form}"
    yield f"group {family} {short.rpartition('_')[0] or short}"


def candidates(full: Path) -> list[Candidate]:
    """Every case whose files are all small enough, in order of name."""
    found = []
    for described in sorted(full.glob("*/*/case.json")):
        folder = described.parent
        files = tuple(sorted(p for p in folder.iterdir() if p.is_file()))
        sizes = [p.stat().st_size for p in files]
        if max(sizes) > MAX_FILE_BYTES:
            continue
        name = f"{folder.parent.name}/{folder.name}"
        case = json.loads(described.read_text(encoding="utf-8"))
        features = frozenset(_features(name, case, [p.name for p in files]))
        found.append(Candidate(name, folder, case, files, sum(sizes), features))
    return found


class _Budget:
    """What is still left of both limits."""

    def __init__(self) -> None:
        self.files = MAX_FILES
        self.bytes = MAX_BYTES

    def takes(self, one: Candidate) -> bool:
        return len(one.files) <= self.files and one.size <= self.bytes

    def spend(self, one: Candidate) -> None:
        self.files -= len(one.files)
        self.bytes -= one.size


def choose(full: list[Candidate]) -> list[Candidate]:
    """The compact part: first what adds most for its cost, then the smallest, family by family."""
    budget, left, seen = _Budget(), list(full), set[str]()
    taken: list[Candidate] = []

    def take(one: Candidate) -> None:
        budget.spend(one)
        left.remove(one)
        taken.append(one)
        seen.update(one.features)

    def gain(one: Candidate) -> float:
        return sum(WEIGHTS[f.partition(" ")[0]] for f in one.features - seen) / one.cost

    while fitting := [c for c in left if c.features - seen and budget.takes(c)]:
        take(min(fitting, key=lambda c: (-gain(c), c.name)))
    total = Counter(c.family for c in full)
    while fitting := [c for c in left if budget.takes(c)]:
        have = Counter(c.family for c in taken)
        take(min(fitting, key=lambda c: (have[c.family] / total[c.family], c.cost, c.name)))
    return sorted(taken, key=lambda c: c.name)


def _text(value: str) -> str:
    """A TOML basic string: for text without unusual characters, JSON writes the same."""
    return json.dumps(value, ensure_ascii=False)


def _options(given: Mapping[str, Any] | str) -> list[str]:
    """Options of a dump as words; a case may describe them in one sentence instead."""
    if isinstance(given, str):
        return [given]
    return [f"{key}={value}" for key, value in given.items()]


def _how_made(case: Mapping[str, Any]) -> str:
    options = [*_options(case.get("dump_options", {})), *_options(case.get("optimize", {}))]
    made = f"trace.dump({', '.join(options)})" if "expected_files" in case else "megengine.save"
    if any(name.endswith(".tm") for name in case["files"]):
        made = "megengine.save of a traced module"
    source = case.get("expected_from")
    return made + (f"; expected outputs: {source}" if source else "")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def catalogue(chosen: Iterable[Candidate], public: Path) -> str:
    """The text of corpus.toml."""
    lines = [
        "# Generated by scripts/make_corpus.py: where each file of the corpus comes from.",
        "schema = 1",
    ]
    for one in chosen:
        version, seed = one.case["megengine"], one.case["seed"]
        origin = f"this project, with MegEngine {version} (CPU, x86-64), seed {seed}"
        lines += [
            "",
            "[[case]]",
            f"name = {_text(one.name)}",
            f"summary = {_text(one.case['covers'])}",
            f"origin = {_text(origin)}",
            f"made = {_text(_how_made(one.case))}",
            'licence = "Apache-2.0"',
            "[case.sha256]",
            *(f"{_text(path.name)} = {_text(_sha256(path))}" for path in one.files),
        ]
    for file in PUBLIC:
        lines += [
            "",
            "[[public]]",
            f"file = {_text(file.file)}",
            f"summary = {_text(file.summary)}",
            f"repository = {_text(file.repository)}",
            f"commit = {_text(file.commit)}",
            f"path = {_text(file.path)}",
            'made = "copied unchanged"',
            f"licence = {_text(file.licence)}",
            f"sha256 = {_text(_sha256(public / file.file))}",
        ]
    return "\n".join(lines) + "\n"


def write(chosen: list[Candidate], public: Path, out: Path) -> None:
    """Replace the corpus below `out`; it is built beside it first, so a failure changes nothing."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".corpus-") as scratch:
        new = Path(scratch)
        for one in chosen:
            (new / one.name).mkdir(parents=True)
            for path in one.files:
                shutil.copyfile(path, new / one.name / path.name)
        (new / "public").mkdir()
        for file in PUBLIC:
            shutil.copyfile(public / file.file, new / "public" / file.file)
        (new / CATALOGUE).write_text(catalogue(chosen, public), encoding="utf-8")
        for old in out.iterdir():
            if old.is_dir():
                shutil.rmtree(old)
        for path in sorted(new.iterdir()):
            path.replace(out / path.name)


def main(argv: list[str] | None = None) -> int:
    """Make the corpus; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("full", type=Path, help="the full corpus")
    parser.add_argument("public", type=Path, help="folder of the public files")
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "corpus")
    options = parser.parse_args(argv)
    full = candidates(options.full)
    missing = [file.file for file in PUBLIC if not (options.public / file.file).is_file()]
    if not full or missing:
        wanted = (
            f"{options.public}: {', '.join(missing)}" if missing else f"cases in {options.full}"
        )
        print(f"make_corpus.py: not found: {wanted}", file=sys.stderr)
        return 2
    chosen = choose(full)
    write(chosen, options.public, options.out)
    everything = frozenset(f for c in full for f in c.features)
    covered = frozenset(f for c in chosen for f in c.features)
    total = Counter(c.family for c in full)
    have = Counter(c.family for c in chosen)
    print(f"{len(chosen)} of {len(full)} cases, {len(covered)} of {len(everything)} features")
    print(", ".join(f"{family} {have[family]}/{total[family]}" for family in sorted(total)))
    for feature in sorted(everything - covered):
        print(f"not covered: {feature}")
    files = [p for p in options.out.rglob("*") if p.is_file()]
    print(f"{len(files)} files, {sum(p.stat().st_size for p in files)} bytes in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
