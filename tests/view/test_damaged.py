"""Damaged files: what can be read is drawn and compared, and only our errors come out."""

from __future__ import annotations

import json
import random
import re
import xml.etree.ElementTree as ET

import pytest
from corpus_cases import compact_root
from mutations import mutate

import mgeserial
from mgeserial.diff import diff
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Graph
from mgeserial.view.dot import dot
from mgeserial.view.html import html
from mgeserial.view.picture import draw
from mgeserial.view.svg import svg

DATA = re.compile(r'<script id="data" type="application/json">(.*?)</script>')


def look(graph: Graph, *, weights: bool) -> None:
    found = draw(graph, title="x", weights=weights)
    ET.fromstring("".join(svg(found)))
    assert "".join(dot(found)).endswith("}\n")
    (text,) = DATA.findall("".join(html(found)))
    json.loads(text)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_are_drawn_and_compared_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    files = [f for f in sorted(compact_root().glob("*/*/model.*.mge")) if f.stat().st_size < 20000]
    drawn = 0
    for _ in range(500):
        data = rng.choice(files).read_bytes()
        try:
            damaged = mgeserial.load(mutate(data, rng)).graphs[:2]
        except MgeError:
            continue
        for before, after in zip(mgeserial.load(data).graphs, damaged, strict=False):
            look(after, weights=bool(seed % 2))
            drawn += 1
            try:
                json.dumps(diff(before, after, names=True).as_json(), allow_nan=False)
            except MgeError:  # damage that shows only when parameters are decoded
                continue
    assert drawn > 50
