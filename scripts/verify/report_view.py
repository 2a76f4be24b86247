"""Open report pages in a Chromium without a screen, look for mistakes, and read the charts back.

    python scripts/verify/report_view.py [MODEL] [--images FOLDER] [--json -]

Measures a model (without one: an authored residual network of 455 operators) with `loadrun run`,
`--compare` and `loadrun sweep`, opens the three pages at the width of a desk and of a phone, light
and dark and as print, and compares what is drawn with the JSON: every sample's place, every bar's
height, every tile's area, every number of a table. Any message of the console, any exception, any
request beside the page itself, anything wider than the window is a failure, and so is a page that
takes 2 s to open.
Exit status: 0 all of it holds, 1 something does not, 3 no browser is here.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts" / "verify")]

from browsing import Report, check_quiet, served, write_result  # noqa: E402
from chromium import Browser, Page, find_browser  # noqa: E402
from planted import change_rounding, network  # noqa: E402
from view_graphs import HOSTILE  # noqa: E402

import mgeserial  # noqa: E402
from loadrun.cli import main as loadrun  # noqa: E402
from loadrun.reporting.page import write_page  # noqa: E402

MOST_MS = 2000
PHONE = {"width": 390, "height": 844, "phone": True}
DESK = {"width": 1280, "height": 900}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", nargs="?", help="a .mge file (authored)")
    parser.add_argument("--images", type=Path, help="folder for screenshots")
    parser.add_argument("--json", metavar="FILE", help="write the result here (- for stdout)")
    args = parser.parse_args()
    browser = find_browser()
    if browser is None:
        print("no Chromium is here: nothing was checked (CHROMIUM names one)", file=sys.stderr)
        write_result({"schema": 1, "kind": "report view", "passed": None, "checks": []}, args.json)
        return 3
    report = Report()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images = args.images or folder / "images"
        images.mkdir(parents=True, exist_ok=True)
        make_pages(report, folder, args.model)
        with Browser(browser) as running, served(folder) as (address, asked):
            report.facts["browser"] = running.call("Browser.getVersion")["product"]
            for kind in ("run", "compare", "sweep", "both", "hostile"):
                check_page(running, report, f"{address}/{kind}.html", kind, images)
            check_run(running, report, f"{address}/run.html", folder / "run.json", images)
            check_compare(running, report, f"{address}/compare.html", folder / "compare.json")
            wanted = {f"/{k}.html" for k in ("run", "compare", "sweep", "both", "hostile")}
            report.check("the server was asked for pages alone", set(asked) == wanted, None)
    result = {
        "schema": 1,
        "kind": "report view",
        **report.facts,
        "passed": not report.failed,
        "checks": report.checks,
    }
    write_result(result, args.json)
    return 1 if report.failed else 0


def make_pages(report: Report, folder: Path, model: str | None) -> None:
    """Measure, and write a page of each kind."""
    first, second = str(folder / "network.mge"), str(folder / "other.mge")
    graph = network()
    mgeserial.save(graph, first)
    other = network()
    change_rounding(other)
    mgeserial.save(other, second)
    path = model or first
    report.facts |= {"model": Path(path).name, "operators": len(mgeserial.load(path).graph.nodes)}

    def run(kind: str, *words: str) -> None:
        out = folder / f"{kind}.json"
        code = loadrun([*words, "--json", str(out), "--report", str(folder / f"{kind}.html"), "-q"])
        report.check(f"{kind}: written", code in (0, 1) and out.exists(), code)

    run("run", path, "--iter", "40", "--warmup-iter", "3")
    run("compare", first, "--compare", second, "--iter", "20", "--backend", "reference")
    run("sweep", "sweep", path, "--threads", "1,2", "--switches", "", "--switches", "no-optimize")
    start = time.perf_counter()
    code = loadrun(["report", str(folder / "run.json"), "-o", str(folder / "run.html"), "-q"])
    report.facts["write_ms"] = round((time.perf_counter() - start) * 1e3, 1)
    report.facts["page_bytes"] = (folder / "run.html").stat().st_size
    report.check("run: rendered again from JSON", code == 0)
    two = [str(folder / "run.json")] * 2
    loadrun(["report", *two, "-o", str(folder / "both.html"), "-q"])
    write_page(
        [hostile(json.loads((folder / "run.json").read_text()))], str(folder / "hostile.html")
    )


def hostile(document: dict[str, Any]) -> dict[str, Any]:
    """A result whose every name is markup, script or a trick of writing."""
    names = [*HOSTILE, "%POLICY%", "=1+1", "--x"]

    def spoiled(value: Any, k: int) -> Any:
        if isinstance(value, dict):
            return {
                key: names[(k + i) % len(names)]
                if isinstance(v, str) and key not in ("kind", "sha256", "level")
                else spoiled(v, k + i)
                for i, (key, v) in enumerate(value.items())
            }
        if isinstance(value, list):
            return [
                names[(k + i) % len(names)] if isinstance(v, str) else spoiled(v, k + i)
                for i, v in enumerate(value)
            ]
        return value

    found: dict[str, Any] = spoiled(document, 0)
    return found


def check_page(browser: Browser, report: Report, url: str, kind: str, images: Path) -> None:
    """What holds for every page, at both widths."""
    for label, size in (("desk", DESK), ("phone", PHONE), ("dark", {**DESK, "dark": True})):
        page = Page(browser, **size)  # type: ignore[arg-type]
        took = page.open(url)
        page.settle()
        report.check(f"{kind}, {label}: opens in under 2 s", took < MOST_MS, f"{took:.0f} ms")
        wide = page.value("document.documentElement.scrollWidth")
        report.check(
            f"{kind}, {label}: nothing is wider than the window", wide <= size["width"], wide
        )
        dark = page.value("document.documentElement.classList.contains('dark')")
        report.check(
            f"{kind}, {label}: colours as the viewer wants them", dark == (label == "dark")
        )
        page.screenshot(images / f"{kind}-{label}.png")
        small = page.value(
            "[...document.querySelectorAll('main *')].filter(e => e.childElementCount === 0 && "
            "e.textContent.trim() && parseFloat(getComputedStyle(e).fontSize) < 11).length"
        )
        report.check(f"{kind}, {label}: no words below 11 px", small == 0, small or None)
        if page.value("!!document.getElementById('show-graph')") and label != "dark":
            page.value("document.getElementById('show-graph').click()")
            time.sleep(0.8)
            page.settle()
        check_quiet(page, report, url, f"{kind}, {label}")
        if kind == "hostile":
            report.check(f"hostile, {label}: nothing ran", page.value("window.hacked") is None)
            made = page.value("document.querySelectorAll('main img, main script').length")
            report.check(f"hostile, {label}: no element was made of names", made == 0, made or None)


def _close(a: float, b: float, tolerance: float) -> bool:
    return math.isclose(a, b, rel_tol=0, abs_tol=tolerance)


def check_run(browser: Browser, report: Report, url: str, path: Path, images: Path) -> None:
    """Charts and tables of a run against its JSON."""
    document = json.loads(path.read_text())
    page = Page(browser, **DESK)  # type: ignore[arg-type]
    page.open(url)
    samples = document["cases"][0]["samples_ns"]
    check_latency(page, report, samples)
    counts = page.value(
        "[...document.querySelectorAll('svg[data-kind=histogram] rect')].map(r => "
        "[+r.dataset.count, r.getBoundingClientRect().height])"
    )
    report.check("histogram: as many runs as samples", sum(c for c, _ in counts) == len(samples))
    most = max(c for c, _ in counts)
    tall = max(h for _, h in counts)
    good = all(_close(h / tall, c / most, 0.02) for c, h in counts if c)
    report.check("histogram: heights in proportion to counts", good)
    check_treemap(page, report, document)
    check_memory(page, report, document)
    check_tables(page, report, document)
    page.value(
        "document.querySelector('[data-table=operators] th[data-key=time_ms] button').click()"
    )
    order = page.value(
        "[...document.querySelectorAll('[data-table=operators] tbody tr')].map(r => "
        "+[...r.cells].find((c, i) => r.closest('table').tHead.rows[0].cells[i].dataset.key === "
        "'time_ms').dataset.v)"
    )
    report.check("operators: a press on a head sorts", order == sorted(order, reverse=True))
    check_hover(page, report, samples)
    page.call("Emulation.setEmulatedMedia", media="print")
    page.settle()
    hidden = page.value("getComputedStyle(document.querySelector('nav')).display")
    report.check("print: no buttons", hidden == "none")
    page.screenshot(images / "run-print.png")


def check_latency(page: Page, report: Report, samples: list[int]) -> None:
    """Read every dot's place back into nanoseconds."""
    svg = page.value(
        "(() => { const s = document.querySelector('svg[data-kind=latency]');"
        "return {low: +s.dataset.yLow, high: +s.dataset.yHigh, "
        "d: s.querySelector('.dots').getAttribute('d')}; })()"
    )
    dots = [part.split("h")[0].split() for part in svg["d"].split("M")[1:]]
    span = svg["high"] - svg["low"]
    read = [svg["low"] + (300 - float(y)) / 300 * span for _, y in dots]
    # Places have two decimals of 300.
    good = len(read) == len(samples) and all(
        _close(a, b, span * 0.01 / 300 + 1) for a, b in zip(read, samples, strict=True)
    )
    report.check("latency: every dot is where its sample is", good, f"{len(read)} dots")
    labels = page.value(
        "[...document.querySelectorAll('figure.chart .yaxis')][0].innerText.split('\\n')"
    )
    inside = svg["low"] <= min(samples) and max(samples) <= svg["high"]
    report.check("latency: the axis covers all samples", inside, labels)


def check_treemap(page: Page, report: Report, document: dict[str, Any]) -> None:
    """Areas against times."""
    tiles = page.value(
        "[...document.querySelectorAll('svg.treemap > svg')].map(t => { const b = "
        "t.querySelector('rect').getBoundingClientRect(); "
        "return [+t.dataset.size, b.width * b.height]; })"
    )
    steps = [s["median_ns"] / 1e6 for s in document["profile"]["steps"] if s["median_ns"]]
    report.check("treemap: a tile for every step", len(tiles) == len(steps), len(tiles))
    times, areas = sum(t for t, _ in tiles), sum(a for _, a in tiles)
    worst = max(abs(t / times - a / areas) for t, a in tiles)
    report.check("treemap: areas in proportion to times", worst < 2e-3, f"{worst:.1e}")
    total = sum(steps)
    report.check("treemap: sizes are the JSON's", _close(times, total, 1e-9 * total))


def check_memory(page: Page, report: Report, document: dict[str, Any]) -> None:
    """Places of values against the plan."""
    plan = document["memory"]
    found = page.value(
        "(() => { const s = document.querySelector('svg[data-kind=memory]');"
        "if (!s) return null; return {high: +s.dataset.yHigh, steps: +s.dataset.xHigh, rects: "
        "[...s.querySelectorAll('rect')].map(r => ['x','y','width','height'].map(n => "
        "+r.getAttribute(n)))}; })()"
    )
    if found is None:
        report.check("memory: drawn", not plan or not plan["values"])
        return
    good = len(found["rects"]) == len(plan["values"])
    for (x, y, wide, tall), value in zip(found["rects"], plan["values"], strict=False):
        top = value["offset_bytes"] + value["size_bytes"]
        good &= _close((300 - y) / 300 * found["high"], top, found["high"] * 1e-4)
        good &= _close(tall / 300 * found["high"], value["size_bytes"], found["high"] * 1e-4)
        good &= _close(x / 1000 * found["steps"], value["first_step_index"], 0.01)
        last = (x + wide) / 1000 * found["steps"]
        good &= _close(last, value["last_step_index"] + 1, 0.02)
    report.check("memory: every value is where the plan has it", good, len(found["rects"]))


def check_tables(page: Page, report: Report, document: dict[str, Any]) -> None:
    """Values of the table of statistics."""
    shown = page.value(
        "(() => { const t = document.querySelector('[data-table=statistics]'); const r = {};"
        "[...t.tHead.rows[0].cells].forEach((h, i) => { r[h.dataset.key] = "
        "t.tBodies[0].rows[0].cells[i].dataset.v; }); return r; })()"
    )
    stats = document["cases"][0]["stats"]
    wrong = {
        k: (v, stats.get(k)) for k, v in shown.items() if v is not None and float(v) != stats.get(k)
    }
    report.check("statistics: every number is the JSON's", not wrong, wrong or None)
    same = page.value("JSON.parse(document.getElementById('data').textContent).documents[0]")
    report.check("the page holds the whole JSON", same == document)


def check_hover(page: Page, report: Report, samples: list[int]) -> None:
    """The pointer is answered with the sample under it."""
    box = page.value(
        "(() => { const s = document.querySelector('svg[data-kind=latency]'); "
        "s.scrollIntoView({block: 'center'}); const b = s.getBoundingClientRect(); "
        "return {x: b.left, y: b.top, w: b.width, h: b.height}; })()"
    )
    page.mouse("mouseMoved", box["x"] + box["w"] - 1, box["y"] + box["h"] / 2)
    told = page.value("document.querySelector('figure.chart .readout').textContent")
    last = len(samples) - 1
    report.check("latency: the pointer is told the run", told.startswith(f"run {last}: "), told)


def check_compare(browser: Browser, report: Report, url: str, path: Path) -> None:
    """The page of a comparison names the operator and the ratio."""
    document = json.loads(path.read_text())
    page = Page(browser, **DESK)  # type: ignore[arg-type]
    page.open(url)
    text = page.value("document.querySelector('main').innerText")
    found = document["comparisons"][0]
    fault = found["walk"]["first_at_fault"]
    report.check("compare: the planted fault is found", fault["name"] == "round", fault["name"])
    report.check("compare: the page names it", f"[{fault['operator_index']}]" in text)
    ratio = page.value(
        "document.querySelector('[data-table=speed] tbody').rows[0].cells[6].dataset.v"
    )
    report.check(
        "compare: the ratio is the JSON's", float(ratio) == found["speed"]["speed_ratio"], ratio
    )
    dots = page.value("document.querySelector('svg[data-kind=errors] .dots').getAttribute('d')")
    count = dots.count("M")
    report.check("compare: a dot for every operator", count == len(found["walk"]["operators"]))


if __name__ == "__main__":
    sys.exit(main())
