"""What options of comparisons, pages and conditions must do; see option_cases.py."""

from __future__ import annotations

import numpy as np
from option_cases import CONV, NET, QUICK, Drive, drives

import mgeserial
from mgeserial.editing import replace_weight

FIRST_HALF = ("--iter", "4", "--backends", "cpu,reference")


def changed(go: Drive) -> str:
    """The network with other weights in one operator."""
    model = mgeserial.load(NET)
    node = next(n for n in model.graph.nodes if n.tensors and n.tensors[0].nbytes > 400)
    array = np.array(node.tensors[0].numpy())
    array += 0.5
    replace_weight(model.graph, node, array)
    path = go.folder / "changed.mge"
    mgeserial.save(model, path)
    return str(path)


@drives("--report")
def _report(go: Drive) -> None:
    path = go.folder / "page.html"
    go(NET, "--report", str(path), *QUICK)
    text = path.read_text()
    assert text.lower().startswith("<!doctype html>")
    assert 'src="http' not in text


@drives("--csv")
def _csv(go: Drive) -> None:
    path = go.folder / "t.csv"
    go(NET, "--csv", str(path), *QUICK)
    head = path.read_text().splitlines()[0]
    assert "," in head


@drives("--fail-if")
def _fail_if(go: Drive) -> None:
    go(CONV, "--fail-if", "median_ms>1e9", *QUICK)
    go(CONV, "--fail-if", "median_ms>0", *QUICK, code=1)
    go(CONV, "--fail-if", "nonsense", *QUICK, code=2)


@drives("--compare")
def _compare(go: Drive) -> None:
    go(NET, "--compare", NET, "--iter", "4")
    go(NET, "--compare", changed(go), "--iter", "4", code=1)


@drives("--backends")
def _backends(go: Drive) -> None:
    go(NET, *FIRST_HALF)
    assert "cpu" in go.out
    assert "reference" in go.out


@drives("--max-err")
def _max_err(go: Drive) -> None:
    go(NET, "--compare", changed(go), "--iter", "4", "--max-err", "1000")
    go(NET, "--max-err", "0.1", code=2)


@drives("--bisect")
def _bisect(go: Drive) -> None:
    path = go.folder / "part.mge"
    go(NET, "--compare", changed(go), "--iter", "2", "--bisect", str(path), code=1)
    assert 0 < len(mgeserial.load(path).graph.nodes) < len(mgeserial.load(NET).graph.nodes)


@drives("--no-walk")
def _no_walk(go: Drive) -> None:
    go(NET, "--compare", changed(go), "--iter", "2", "--no-walk", code=1)
    assert "first operator" not in go.out
