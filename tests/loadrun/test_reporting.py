from __future__ import annotations

import base64
import copy
import csv
import hashlib
import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from loadrun.cli import main
from loadrun.reporting import charts
from loadrun.reporting.files import KINDS, check, read, write_csv
from loadrun.reporting.markup import Markup, tag, text
from loadrun.reporting.page import page
from loadrun.reporting.tables import as_csv, tables
from loadrun.reporting.treemap import place
from loadrun.reporting.units import number, ticks, time_label
from loadrun.schema import validate
from mgeserial.errors import InputError

FIXTURES = Path(__file__).parent.parent / "fixtures" / "results"
RESULTS = sorted(FIXTURES.glob("*.json"))


def document(kind):
    return json.loads((FIXTURES / f"{kind}.1.json").read_text())


def rendered(*documents, **more):
    return "".join(page(documents, **more))


class Walker(HTMLParser):
    """Elements that are opened and closed, attributes, and what would be asked for."""

    VOID = frozenset({"meta", "link", "br"})

    def __init__(self, source):
        super().__init__()
        self.open, self.asked, self.styled, self.ids = [], [], [], []
        self.feed(source)

    def handle_starttag(self, name, attributes):
        found = dict(attributes)
        self.asked += [found[k] for k in ("src", "href", "action") if found.get(k)]
        self.styled += [k for k in found if k == "style" or k.startswith("on")]
        self.ids += [found["id"]] if found.get("id") else []
        if name not in self.VOID:
            self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self.handle_starttag(name, attributes)
        if name not in self.VOID:
            self.open.pop()

    def handle_endtag(self, name):
        assert self.open.pop() == name


# -- results of earlier versions ------------------------------------------------------------------


def test_every_kind_has_a_result_that_is_kept():
    assert {json.loads(p.read_text())["kind"] for p in RESULTS} == set(KINDS)


@pytest.mark.parametrize("path", RESULTS, ids=lambda p: p.name)
def test_kept_results_stay_readable(path, tmp_path):
    found = read(str(path))
    assert validate(found, complete=False) == []
    target = tmp_path / "page.html"
    assert main(["report", str(path), "-o", str(target), "-q"]) == 0
    source = target.read_text()
    assert Walker(source).open == []
    assert len(write_csv(found, str(tmp_path / "tables"))) >= 2


# -- the page -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["run", "compare", "sweep"])
def test_page_asks_for_nothing_and_has_no_inline_styles(kind):
    found = Walker(rendered(document(kind)))
    assert found.open == []
    assert all(link.startswith("#") or link == "data:," for link in found.asked)
    assert not found.styled
    assert len(set(found.ids)) == len(found.ids)


def test_policy_names_the_hashes_of_the_one_style_and_script():
    source = rendered(document("run"))
    policy = re.search(r'Security-Policy" content="([^"]*)"', source)[1]
    assert "default-src 'none'" in policy.replace("&#x27;", "'")
    for name in ("style", "script"):
        body = re.findall(rf"<{name}>(.*?)</{name}>", source, re.DOTALL)
        assert len(body) == 1
        digest = base64.b64encode(hashlib.sha256(body[0].encode()).digest()).decode()
        assert f"sha256-{digest}" in policy


def test_page_holds_the_whole_json():
    found = document("run")
    data = re.search(r'id="data">(.*?)</script>', rendered(found), re.DOTALL)[1]
    assert json.loads(data)["documents"] == [found]


def test_hostile_names_stay_text():
    found = document("run")
    evil = "</script><script>window.hacked=1</script><img src=x onerror=alert(1)>\u202e%POLICY%"
    found["model"]["path"] = evil
    found["backend"] = evil
    found["notes"] = [evil]
    for step in found["profile"]["steps"]:
        step["name"] = step["type"] = evil
    for value in found["memory"]["values"]:
        value["name"] = evil
    source = rendered(found)
    assert source.count("<script") == 2
    assert "<img" not in source
    assert "\u202e" not in source
    assert Walker(source).open == []


@pytest.mark.parametrize("kind", ["run", "compare", "sweep"])
def test_documents_with_nothing_in_them_are_shown(kind):
    found = document(kind)
    for key in ("cases", "comparisons", "combinations"):
        if key in found:
            found[key] = []
    for key in ("profile", "memory", "environment", "best_index"):
        if key in found:
            found[key] = None
    assert Walker(rendered(found)).open == []


def test_missing_model_is_told():
    assert "is not here; `loadrun report --model FILE`" in rendered(document("run"))


def test_model_that_was_changed_is_not_drawn(tmp_path):
    found = document("run")
    other = tmp_path / "x.mge"
    other.write_bytes(b"something else")
    assert "SHA-256 differs" in rendered(found, model=str(other))


def test_choices_of_algorithms_are_listed_with_their_times():
    run = document("run")
    assert "algorithms" not in [t.key for t in tables(run)]
    run["algorithms"] = [
        {
            "layer": "conv <a>",
            "names": ["one", "two"],
            "choice": "direct rows",
            "source": "measured",
            "candidates": [
                {"name": "default", "time_ns": 2000},
                {"name": "direct rows", "time_ns": 1500},
            ],
        },
        {"layer": "b", "names": None, "choice": None, "source": 1, "candidates": [3]},
        "none",
    ]
    table = next(t for t in tables(run) if t.key == "algorithms")
    assert table.rows[0][:4] == ("conv <a>", 2, "direct rows", "measured")
    assert table.rows[0][4:6] == (1500, 2000)
    shown = rendered(run)
    assert "conv &lt;a&gt;" in shown
    assert re.search(r"direct rows 1\.50* us, default 2\.?0* us", shown)


def test_several_results_are_compared_with_the_first():
    first, second = document("run"), document("run")
    second["cases"][0]["stats"]["median_ms"] /= 2
    source = rendered(first, second, names=["before", "after"])
    rows = re.search(r'data-table="several">(.*?)</table>', source, re.DOTALL)[1]
    assert "before" in rows
    assert ">2.00<" in rows


def test_summary_has_the_verdict_and_the_fault():
    source = rendered(document("compare"))
    assert "FAILED: outputs differ" in source
    assert "Elemwise round" in source
    assert "ROUND -&gt; FLOOR" in source


# -- charts ---------------------------------------------------------------------------------------


def test_dots_of_latency_are_where_the_samples_are():
    samples = [10, 20, 15, 40]
    chart = charts.latency([("a", samples)], title="t")
    low, high = (float(re.search(f'data-y-{n}="([^"]*)"', chart)[1]) for n in ("low", "high"))
    places = re.search(r'd="([^"]*)" class="dots', chart)[1]
    dots = [p.split("h")[0].split() for p in places.split("M")[1:]]
    assert [round(low + (300 - float(y)) / 300 * (high - low)) for _, y in dots] == samples
    assert [float(x) for x, _ in dots] == pytest.approx([0, 333.33, 666.67, 1000])


@pytest.mark.parametrize("samples", [[5], [7] * 30, list(range(5000)), [0, 0, 0]])
def test_charts_of_any_samples_are_drawn(samples):
    chart = charts.latency([("a", samples)], title="t")
    assert chart.count("<svg") == 1
    assert "nan" not in chart.lower().replace("plane", "")
    bars = charts.histogram(samples, [("median", samples[0])], title="h")
    assert sum(map(int, re.findall(r'data-count="(\d+)"', bars))) in (0, len(samples))


def test_histogram_counts_every_sample_once():
    samples = [10] * 5 + [11] * 7 + [30]
    bars = charts.histogram(samples, [], title="h")
    counts = [int(n) for n in re.findall(r'data-count="(\d+)"', bars)]
    assert sum(counts) == 13
    assert counts[-1] == 1


def test_treemap_fills_the_whole_without_overlap():
    sizes = [50.0, 20, 10, 10, 5, 3, 1, 1]
    areas = place(sizes, 200, 100)
    assert [a.width * a.height for a in areas] == pytest.approx(
        [s / sum(sizes) * 20000 for s in sizes]
    )
    for i, a in enumerate(areas):
        assert -1e-9 <= a.x <= a.x + a.width <= 200 + 1e-9
        assert -1e-9 <= a.y <= a.y + a.height <= 100 + 1e-9
        for b in areas[i + 1 :]:
            wide = min(a.x + a.width, b.x + b.width) - max(a.x, b.x)
            tall = min(a.y + a.height, b.y + b.height) - max(a.y, b.y)
            assert wide < 1e-9 or tall < 1e-9


def test_memory_without_places_is_a_sum():
    found = {
        "steps": [{"step_index": 0, "alive_bytes": 8}, {"step_index": 1, "alive_bytes": 16}],
        "values": [{"name": "x", "size_bytes": 8, "offset_bytes": None}],
    }
    assert 'data-kind="alive"' in charts.memory(found)


def test_error_that_is_not_finite_is_at_the_top():
    rows = [{"error": 1e-6, "allowed_error": 1e-3}, {"error": None, "allowed_error": 1e-3}]
    assert "M1000 0h0" in charts.errors(rows)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (3.2, 97), (5, 5), (0, 0), (1e6, 1.00001e6)])
def test_ticks_are_at_equal_distances_around_the_values(low, high):
    found = ticks(low, high)
    assert found[0] <= low <= high <= found[-1]
    steps = {round(b - a, 9) for a, b in itertools.pairwise(found)}
    assert len(steps) == 1
    assert 2 <= len(found) <= 8


def test_numbers_as_people_read_them():
    assert number(None) == "n/a"
    assert number(float("nan")) == "n/a"
    assert number(1234567) == "1,234,567"
    assert number(0.5) == "0.5000"
    assert number(1e-9) == "1.000e-09"
    assert time_label(1_500_000) == "1.500 ms"
    assert time_label(None) == "n/a"


def test_markup_is_escaped_once():
    assert tag("b", "<i>", title='"') == '<b title="&quot;">&lt;i&gt;</b>'
    assert tag("b", Markup("<i></i>")) == "<b><i></i></b>"
    assert text("\ud800") == "\\ud800"


# -- CSV and reading ------------------------------------------------------------------------------


def test_csv_holds_what_the_json_holds(tmp_path):
    found = document("run")
    write_csv(found, str(tmp_path / "t"))
    rows = list(csv.DictReader((tmp_path / "t" / "samples.csv").open()))
    assert [int(r["time_ns"]) for r in rows] == found["cases"][0]["samples_ns"]
    steps = list(csv.DictReader((tmp_path / "t" / "operators.csv").open()))
    assert [float(r["time_ms"]) * 1e6 for r in steps] == pytest.approx(
        [s["median_ns"] for s in found["profile"]["steps"]]
    )


def test_csv_file_is_the_main_table(tmp_path):
    target = tmp_path / "one.csv"
    assert write_csv(document("sweep"), str(target)) == [str(target)]
    assert "median_ms" in target.read_text().splitlines()[0]


def test_csv_text_is_no_formula():
    found = document("run")
    found["profile"]["steps"][0]["name"] = "=1+1"
    table = next(t for t in tables(found) if t.key == "operators")
    assert "'=1+1" in as_csv(table)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not JSON"),
        ("[1]", "is no result"),
        ("{}", "is no result"),
        ('{"kind": "loadrun.run"}', "has no schema"),
        ('{"kind": "loadrun.run", "schema": true}', "has no schema"),
        ('{"kind": "loadrun.run", "schema": 99}', "this version reads up to 1"),
        ('{"kind": "loadrun.run", "schema": 1}', "`cases` is not a list"),
        ('{"kind": "loadrun.run", "schema": 1, "cases": [1]}', "is damaged: cases[] is int"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_what_is_no_result_is_told(content, says, tmp_path, capsys):
    path = tmp_path / "x.json"
    path.write_text(content)
    assert main(["report", str(path)]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error


def test_missing_file_is_told(tmp_path, capsys):
    assert main(["report", str(tmp_path / "nothing.json")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_damaged_results_are_shown_or_refused():
    import random

    choose = random.Random(0)
    for kind in ("run", "compare", "sweep"):
        for _ in range(150):
            found = document(kind)
            for _ in range(3):
                spoil(found, choose)
            try:
                check(found, "x")
                rendered(found)
                [as_csv(t) for t in tables(found)]
            except InputError:
                continue


def spoil(found, choose):
    """Replace something, anywhere, by something else."""
    at = found
    while True:
        keys = list(at) if isinstance(at, dict) else range(len(at))
        if not keys:
            return
        key = choose.choice(list(keys))
        deeper = at[key]
        if isinstance(deeper, (dict, list)) and deeper and choose.random() < 0.8:
            at = deeper
            continue
        at[key] = copy.deepcopy(choose.choice([None, "text", -1, 1e300, [], {}, [[1]], True]))
        return
