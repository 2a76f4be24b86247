"""Open the graph view in a Chromium without a screen and use it as a person would.

    python scripts/verify/graph_view.py [MODEL] [--images FOLDER] [--json -]

Without a model, networks are authored: a residual one of 448 operators and one with hostile names.
Hover, click, links, search, keys, zoom, both schemes and the size of a phone are tried; any message
of the console, any exception and any request beside the page itself is a failure.
Exit status: 0 all of it works, 1 something does not, 3 no browser is here.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts" / "verify")]

from browsing import Report, check_quiet, served, write_result  # noqa: E402
from chromium import Browser, Page, find_browser  # noqa: E402
from view_graphs import hostile_network, residual_network  # noqa: E402

import mgeserial  # noqa: E402
from mgeserial.ir.graph import Graph  # noqa: E402
from mgeserial.view.html import html  # noqa: E402
from mgeserial.view.picture import draw  # noqa: E402


def _text(page: Page, element: str) -> str:
    return str(page.value(f"document.getElementById('{element}').innerText"))


def _middle(page: Page, box: int) -> tuple[float, float]:
    rect = page.value(f"graphView.rect({box})")
    return rect["x"] + rect["w"] / 2, rect["y"] + rect["h"] / 2


def _find_box(page: Page, title: str) -> int:
    count = page.value("graphView.boxes")
    titles = page.value(f"[...Array({count}).keys()].map(graphView.title)")
    return next(i for i, t in enumerate(titles) if t.startswith(title))


def check_pointer(page: Page, report: Report, operator: str, images: Path) -> None:
    """Hover, click, a link in the details, drag, wheel."""
    box = _find_box(page, operator)
    page.value(f"graphView.centre({box})")
    page.settle()
    page.mouse("mouseMoved", *_middle(page, box))
    tip = _text(page, "tip")
    page.screenshot(images / "hover.png")
    wanted = ("in ", "out ", "×", "operator ")
    report.check("hover shows inputs, shapes and place", all(w in tip for w in wanted), tip)
    page.click(*_middle(page, box))
    details = _text(page, "details")
    report.check("click pins the details", "Inputs" in details, details[:80])
    report.check("the clicked box is chosen", page.value("graphView.chosen()") == box)
    page.value("document.querySelector('#details button.link').click()")
    page.settle()
    other = page.value("graphView.chosen()")
    report.check("a link leads to another operator", other is not None and other != box, other)
    before = page.value("graphView.eye()")
    page.mouse("mousePressed", 500, 300, button="left", clickCount=1)
    page.mouse("mouseMoved", 440, 220, button="left", buttons=1)
    page.mouse("mouseReleased", 440, 220, button="left", clickCount=1)
    after = page.value("graphView.eye()")
    report.check("dragging moves", after["y"] > before["y"] and after["x"] > before["x"])
    page.mouse("mouseWheel", 500, 300, deltaX=0, deltaY=200)
    report.check("the wheel moves", page.value("graphView.eye()")["y"] > after["y"])
    page.mouse("mouseWheel", 500, 300, deltaX=0, deltaY=200, modifiers=2)
    report.check("Ctrl and the wheel zoom", page.value("graphView.scale()") < before["scale"])


def _chosen(page: Page, operator: str, path: Path) -> None:
    """Picture for the documents: one operator chosen, its details open."""
    box = _find_box(page, operator)
    page.value(f"graphView.centre({box})")
    page.settle()
    page.click(*_middle(page, box))
    page.mouse("mouseMoved", 100, 20)
    page.screenshot(path)


def check_search(page: Page, report: Report, images: Path) -> None:
    """By name, by type, by shape; keys through the matches."""
    page.value("document.getElementById('scene').focus()")
    page.key("/")
    box = _find_box(page, "Convolution")
    shape = page.value(f"graphView.lines({box})")[-1].split()[-1]
    name = page.value("graphView.title(0)")
    queries = {
        "type": "type:conv",
        "name": f"name:{name}",
        "shape": f"shape:{shape}",
        "shape with x": f"shape:{shape.replace('×', 'x')}",
        "shape as numpy has it": f"shape:({', '.join(shape.split('×'))})",
        "nothing": "nothing-like-this",
    }
    counts = {}
    for what, query in queries.items():
        page.value("document.getElementById('query').value = ''")
        page.value("document.getElementById('query').focus()")
        page.type(query)
        counts[what] = len(page.value("graphView.matches()"))
    report.facts["matches"] = counts
    for what in ("type", "name", "shape"):
        report.check(f"search by {what} finds {queries[what]!r}", counts[what] > 0, counts[what])
    same = counts["shape"] == counts["shape with x"] == counts["shape as numpy has it"]
    report.check("shapes are found however they are written", same)
    report.check("search without result says so", "Nothing" in _text(page, "matches"))
    page.value("document.getElementById('query').value = ''")
    page.type("conv")
    page.key("Enter")
    first = page.value("graphView.chosen()")
    page.screenshot(images / "search.png")
    page.key("Enter")
    second = page.value("graphView.chosen()")
    report.check("Enter goes from match to match", None not in (first, second) and first != second)
    page.key("Escape")
    report.check("Escape ends the search", page.value("graphView.matches()") == [])


def check_keys(page: Page, report: Report) -> None:
    """From operator to operator, and the keys of the view."""
    page.value("document.getElementById('scene').focus()")
    page.key("Home")
    first = page.value("graphView.chosen()")
    page.key("ArrowDown")
    second = page.value("graphView.chosen()")
    page.key("ArrowUp")
    third = page.value("graphView.chosen()")
    report.check("arrows go to a user and back", first == third != second, [first, second, third])
    scale = page.value("graphView.scale()")
    page.key("+", "+")
    report.check("plus zooms in", page.value("graphView.scale()") > scale)
    page.key("f", "f")
    rect = page.value("graphView.rect(graphView.boxes - 1)")
    report.check("f shows all, down to the last box", 0 < rect["y"] < 800, rect["y"])
    page.key("Escape")
    report.check("Escape forgets the choice", page.value("graphView.chosen()") is None)


def frame_time(page: Page) -> float:
    """Milliseconds a frame takes, all shown, the middle one of 15."""
    return float(
        page.value(
            "(async () => { const times = [];"
            "for (let i = 0; i < 15; i++) { const start = performance.now();"
            "document.getElementById('fit').click();"
            "await new Promise(f => requestAnimationFrame(() => setTimeout(f)));"
            "times.push(performance.now() - start); }"
            "return times.sort((a, b) => a - b)[7]; })()"
        )
    )


def write_page(graph: Graph, path: Path, title: str) -> float:
    """Write the page of a graph; milliseconds it took."""
    start = time.perf_counter()
    path.write_text("".join(html(draw(graph, title=title))), encoding="utf-8")
    return (time.perf_counter() - start) * 1e3


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", nargs="?", help="a network with convolutions (authored)")
    parser.add_argument("--images", type=Path, help="folder for screenshots")
    parser.add_argument("--json", metavar="FILE", help="write the report here (- for stdout)")
    args = parser.parse_args()
    browser = find_browser()
    report = Report()
    if browser is None:
        print("no Chromium is here: nothing was checked (CHROMIUM names one)", file=sys.stderr)
        result = {"schema": 1, "kind": "graph view", "browser": None, "passed": None, "checks": []}
        write_result(result, args.json)
        return 3
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images = args.images or folder
        images.mkdir(parents=True, exist_ok=True)
        with Browser(browser) as running:
            report.facts["browser"] = running.call("Browser.getVersion")["product"]
            run(running, report, folder, images, args.model)
    result = {
        "schema": 1,
        "kind": "graph view",
        **report.facts,
        "passed": not report.failed,
        "checks": report.checks,
    }
    write_result(result, args.json)
    return 1 if report.failed else 0


def run(browser: Browser, report: Report, folder: Path, images: Path, model: str | None) -> None:
    """All checks, with screenshots into `images`."""
    graph = mgeserial.load(model).graph if model else residual_network()
    title = Path(model).name if model else "residual.mge"
    report.facts |= {"model": title, "operators": len(graph.nodes)}
    report.facts["write_ms"] = round(write_page(graph, folder / "graph.html", title), 1)
    report.facts["page_bytes"] = (folder / "graph.html").stat().st_size
    write_page(hostile_network(), folder / "hostile.html", hostile_network().input_names[0])
    write_page(residual_network(200), folder / "large.html", "large.mge")
    with served(folder) as (address, asked):
        url = f"{address}/graph.html"
        page = Page(browser)
        report.facts["open_ms"] = round(page.open(url), 1)
        page.settle()
        page.screenshot(images / "start.png")
        _chosen(page, "ADD", images / "graph.png")
        check_pointer(page, report, "Convolution", images)
        page.screenshot(images / "details.png")
        check_search(page, report, images)
        check_keys(page, report)
        page.screenshot(images / "all.png")
        check_quiet(page, report, url, "wide window")
        dark = Page(browser, dark=True)
        dark.open(url)
        report.check(
            "dark scheme follows the viewer",
            dark.value("document.documentElement.classList.contains('dark')"),
        )
        dark.screenshot(images / "dark.png")
        check_quiet(dark, report, url, "dark scheme")
        check_phone(browser, report, url, images)
        check_hostile(browser, report, f"{address}/hostile.html", images)
        large = Page(browser)
        large.open(f"{address}/large.html")
        report.facts["large"] = {
            "boxes": large.value("graphView.boxes"),
            "frame_ms": round(frame_time(large), 1),
        }
        report.check("thousands of boxes: a frame in under 100 ms", frame_time(large) < 100)
        report.check("the server was asked for pages alone", set(asked) == PAGES, asked)


PAGES = {"/graph.html", "/hostile.html", "/large.html"}


def check_phone(browser: Browser, report: Report, url: str, images: Path) -> None:
    """A narrow touch screen: nothing wider than the window, a tap opens the details."""
    page = Page(browser, width=390, height=844, phone=True)
    page.open(url)
    page.settle()
    wide = page.value("document.documentElement.scrollWidth")
    report.check("phone: nothing is wider than the window", wide <= 390, wide)
    page.screenshot(images / "phone.png")
    box = _find_box(page, "Convolution")
    page.value(f"graphView.centre({box})")
    page.settle()
    x, y = _middle(page, box)
    page.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    page.settle()
    report.check("phone: a tap pins the details", page.value("graphView.chosen()") == box)
    x, y = _middle(page, box)
    above = page.value("document.getElementById('legend').getBoundingClientRect().top")
    report.check("phone: the chosen box is not covered", y < above, [y, above])
    report.check(
        "phone: a tap presses nothing else",
        page.value("document.querySelector('#legend [aria-pressed=true]')") is None,
    )
    page.screenshot(images / "phone_details.png")
    check_quiet(page, report, url, "phone")


def check_hostile(browser: Browser, report: Report, url: str, images: Path) -> None:
    """Names that are markup or script stay text."""
    page = Page(browser)
    page.open(url)
    count = page.value("graphView.boxes")
    for box in range(count):
        page.value(f"graphView.centre({box})")
        page.settle()
        page.click(*_middle(page, box))
    report.check("hostile names: nothing of them ran", page.value("window.hacked") is None)
    added = page.value("document.querySelectorAll('main img, main svg, main script').length")
    report.check("hostile names: no element was made of them", added == 0, added)
    shown = _text(page, "details")
    report.check("hostile names are shown as text", "onload" in shown or "hacked" in shown)
    page.screenshot(images / "hostile.png")
    check_quiet(page, report, url, "hostile names")


if __name__ == "__main__":
    sys.exit(main())
