"""Runs of many models in the real MegEngine, each in a process of its own.

The environment with MegEngine 1.13.0 and the folder of `batch.py`, which drives it, are those of
the caller.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Ask", "ask", "write_npz"]


@dataclass(frozen=True)
class Ask:
    """A model file, which graph of it, and its inputs by name."""

    model: Path
    inputs: Mapping[str, np.ndarray[Any, Any]]
    index: int = 0


def write_npz(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Like numpy.savez, whatever the names are."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            data = io.BytesIO()
            np.lib.format.write_array(data, np.asarray(array), allow_pickle=False)
            archive.writestr(f"{name}.npy", data.getvalue())


def ask(
    asks: Sequence[Ask],
    *,
    env: Path,
    oracle: Path,
    folder: Path,
    naive: bool = False,
    embed: bool = False,
    timeout: float = 30,
) -> list[dict[str, np.ndarray[Any, Any]] | str]:
    """Outputs by name of each, or what MegEngine said instead.

    Args:
        asks: What to run.
        env: Environment with MegEngine.
        oracle: Folder of `batch.py`.
        folder: A folder for files in between.
        naive: Whether its plain kernels compute: the truth where optimised ones have defects.
        embed: Whether inputs become constants: some layouts work with fixed shapes only.
        timeout: Seconds for one run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for k, item in enumerate(asks):
        inputs = folder / f"in{k}.npz"
        write_npz(inputs, item.inputs)
        where = {"model": str(item.model), "index": item.index, "inputs": str(inputs)}
        lines.append(json.dumps({"id": k, **where, "embed": embed}))
    listed = folder / "jobs.jsonl"
    listed.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [str(env / "bin/python"), str(oracle / "batch.py"), str(listed), str(folder / "out")]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "MGE_LOG_LEVEL": "ERROR"}
    if naive:
        environ["MGB_USE_MEGDNN_DBG"] = "2"
    done = subprocess.run(
        [*command, "--timeout", str(timeout)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environ,
        check=False,
    )
    found: list[dict[str, np.ndarray[Any, Any]] | str] = ["no answer"] * len(asks)
    for line in done.stdout.splitlines():
        answer = json.loads(line)
        k = answer["id"]
        if not answer["ok"]:
            found[k] = str(answer["error"]).split("\nbacktrace")[0].strip()[:300]
            continue
        with np.load(folder / "out" / f"{answer['k']}.npz", allow_pickle=False) as data:
            found[k] = {name: data[name] for name in data.files}
    return found
