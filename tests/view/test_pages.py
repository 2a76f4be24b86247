"""SVG, DOT and the HTML page: well formed, self-contained, safe whatever names say."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from view_graphs import HOSTILE, hostile_network, residual_network

from mgeserial.view.dot import dot
from mgeserial.view.html import html
from mgeserial.view.picture import draw
from mgeserial.view.svg import svg, svg_path

SVG = "{http://www.w3.org/2000/svg}"
CHECK = Path(__file__).resolve().parent.parent.parent / "scripts" / "verify" / "graph_view.py"


def hostile(weights: bool = False) -> Any:
    return draw(hostile_network(), title=HOSTILE[0], weights=weights)


class Reader(HTMLParser):
    """Elements, their attributes and the text of scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and data.strip():
            self.texts.append((self.tags[-1][0], data))


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    return reader


# -- the page ------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [False, True])
def test_hostile_names_add_no_element(weights: bool) -> None:
    plain = read("".join(html(draw(residual_network(1), title="x"))))
    attacked = read("".join(html(hostile(weights))))
    assert [t for t, _ in attacked.tags] == [t for t, _ in plain.tags]
    assert [sorted(a) for _, a in attacked.tags] == [sorted(a) for _, a in plain.tags]


def test_the_page_names_nothing_outside_itself() -> None:
    page = "".join(html(draw(residual_network(1), title="x")))
    reader = read(page)
    for tag, attributes in reader.tags:
        assert tag not in ("iframe", "img", "object", "embed", "base")
        for name in ("src", "href", "action", "srcset"):
            assert attributes.get(name) in (None, "data:,")
        assert not [a for a in attributes if a.startswith("on")]
    code = page.replace("http-equiv", "")
    assert not re.findall(r"https?:|//[a-z]|url\(|@import|fetch\(|XMLHttp|WebSocket|import\(", code)


def test_the_policy_allows_its_own_script_and_style_alone() -> None:
    page = "".join(html(draw(residual_network(1), title="x")))
    reader = read(page)
    policy = next(a["content"] for t, a in reader.tags if "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "connect-src" not in policy
    for tag, pattern in (("script", r"<script>(.*?)</script>"), ("style", r"<style>(.*?)</style>")):
        (text,) = re.findall(pattern, page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_the_data_of_the_page_is_what_was_drawn() -> None:
    found = draw(residual_network(2), title="net.mge")
    page = "".join(html(found))
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page)
    assert "<" not in text
    data = json.loads(text)
    assert (data["title"], data["subtitle"]) == ("net.mge", found.subtitle)
    assert len(data["boxes"]) == len(found.boxes)
    assert len(data["wires"]) == len(found.wires)
    assert len(data["ops"]) == 58
    conv = next(o for o in data["ops"] if o["t"] == "Convolution")
    assert [role for role, *_ in conv["i"]] == ["src", "filter"]
    table, fields = data["params"][conv["p"][0]]
    assert table == "Convolution"
    assert "stride_h" in [name for name, _, _ in fields]
    # Equal parameters are there once.
    assert len(data["params"]) < 20


def test_hostile_names_arrive_in_the_data_as_they_are() -> None:
    page = "".join(html(hostile()))
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page)
    names = [o["n"] for o in json.loads(text)["ops"]]
    assert f"node {HOSTILE[1]}" in names
    assert f"node {HOSTILE[4]}" in names


def test_thousands_of_operators_make_a_small_page() -> None:
    found = draw(residual_network(100), title="x")
    size = sum(len(piece.encode()) for piece in html(found))
    assert len(found.operators) == 2606
    assert size < 600 * len(found.operators)


def test_long_lists_are_cut_with_their_number() -> None:
    import numpy as np

    from mgeserial.author import GraphBuilder
    from mgeserial.view.html import page_data

    b = GraphBuilder()
    x = b.input("x", (2, 2))
    ys = [b.relu(x) for _ in range(100)]
    b.output(b.cat(ys, axis=1), "y")
    b.param(np.ones(1, np.float32))
    data = page_data(draw(b.graph()))
    first = data["ops"][0]
    assert len(first["u"][0][2]) == 64
    assert first["u"][0][3] == 36
    concat = next(o for o in data["ops"] if o["t"] == "Concat")
    assert len(concat["i"]) == 64
    assert concat["im"] == 36


def test_an_empty_graph_has_a_page() -> None:
    from mgeserial.ir.graph import Graph

    assert "".join(html(draw(Graph(), title="x"))).endswith("</html>\n")
    assert "no operators" in "".join(svg(draw(Graph(), title="x")))
    assert "".join(dot(draw(Graph(), title="x"))).endswith("}\n")


# -- SVG, DOT ------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [False, True])
def test_svg_is_well_formed_and_has_every_box(weights: bool) -> None:
    found = hostile(weights)
    root = ET.fromstring("".join(svg(found)))
    boxes = [e for e in root.iter(f"{SVG}g") if e.get("class", "").startswith("box ")]
    assert len(boxes) == len(found.boxes)
    tags = {e.tag.removeprefix(SVG) for e in root.iter()}
    assert tags == {"svg", "style", "title", "text", "g", "path", "rect"}
    titles = [e.findtext(f"{SVG}title") or "" for e in boxes]
    assert any("filter: Float32 4×4×1×1" in t for t in titles)


def test_svg_paths_are_straight_down_or_vertical_at_both_ends() -> None:
    assert svg_path(((1, 2), (1, 9))) == "M1.0 2.0V9.0"
    assert svg_path(((0, 0), (10, 20))) == "M0.0 0.0C0.0 10.0 10.0 10.0 10.0 20.0"


def test_dot_quotes_hold_whatever_names_say() -> None:
    text = "".join(dot(hostile()))
    # Outside of quoted strings there is only what we write.
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "@", text)
    assert '"' not in bare
    assert "hacked" not in bare
    assert len(re.findall(r"^  n\d+ \[", bare, re.MULTILINE)) == len(hostile().boxes)
    assert len(re.findall(r"^  n\d+ -> n\d+ \[tooltip=@\];$", bare, re.MULTILINE)) == 7


# -- the check in a browser ----------------------------------------------------------------------


def test_the_browser_check_says_when_there_is_no_browser(tmp_path: Path) -> None:
    import os

    done = subprocess.run(
        [sys.executable, str(CHECK), "--json", "-"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "CHROMIUM": str(tmp_path / "none")},
    )
    assert done.returncode == 3
    assert "no Chromium is here" in done.stderr
    result = json.loads(done.stdout)
    assert result["browser"] is None
    assert result["passed"] is None
