"""Compile every kernel that the corpus and the benchmark networks need, for many GPUs.

    python scripts/verify/nvrtc.py [--root CORPUS] [--json FILE]

It needs NVIDIA's NVRTC wheels (nvidia-cuda-nvrtc-cu12 12.9, nvidia-cuda-nvrtc 13), neither a driver
nor a GPU. Exit code 1 when a kernel is refused, 2 when no compiler is there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from corpus_cases import corpus_root  # noqa: E402
from cuda_kernels import (  # noqa: E402
    ARCHITECTURES,
    TARGETS,
    Nvrtc,
    batches,
    find_nvrtc,
    kernels_of,
    plans_of_benchmarks,
    plans_of_corpus,
)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--root", type=Path, default=None, help="corpus folder")
    parser.add_argument("--json", default=None, help="write the result here")
    args = parser.parse_args()
    root = args.root or corpus_root()
    plans = [p for target in TARGETS for _, p in plans_of_corpus(root, target)]
    plans += plans_of_benchmarks()
    kernels = kernels_of(plans)
    result: dict[str, object] = {"schema": 1, "kernels": len(kernels)}
    refused = 0
    for major, architectures in ARCHITECTURES.items():
        path = find_nvrtc(major)
        if path is None:
            print(f"NVRTC {major} is not installed", file=sys.stderr)
            continue
        compiler = Nvrtc(path)
        for architecture in architectures:
            start = time.perf_counter()
            logs = [log for b in batches(kernels) if (log := compiler.compile(b, architecture))]
            seconds = round(time.perf_counter() - start, 1)
            refused += len(logs)
            result[f"{major}:{architecture}"] = {"refused": len(logs), "seconds": seconds}
            print(f"CUDA {major} {architecture}: {len(kernels)} kernels, {seconds} s", flush=True)
            for log in logs:
                print(log[:2000], file=sys.stderr)
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if len(result) == 2:
        return 2
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
