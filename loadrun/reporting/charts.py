"""Charts as inline SVG that stretches: words stand beside it in HTML and keep their size.

The inside of a chart has its own coordinates (1000 wide, 300 high) and is stretched to the page;
strokes do not stretch. The names of the axes' ends and the plain data stand in `data-` attributes,
so that a pointer can be answered and a test can read a chart back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from loadrun.reporting.markup import Markup, join, tag
from loadrun.reporting.units import best_unit, bytes_label, plain, ticks, time_label

__all__ = ["errors", "histogram", "latency", "memory", "speeds"]

WIDTH, HEIGHT = 1000.0, 300.0
# More samples than this are drawn as the range of each stretch of them.
_MOST_DOTS = 1500
_MOST_BINS = 60
_MOST_BLOCKS = 5000
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))
Label = Callable[[float], str]


def _at(value: float, low: float, high: float, length: float) -> float:
    return (value - low) / (high - low) * length


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _frame(
    title: str,
    inside: Markup,
    *,
    x: tuple[float, float],
    y: Sequence[float],
    x_labels: Sequence[str],
    y_label: Label,
    kind: str,
    legend: Sequence[tuple[str, str]] = (),
    data: str = "",
) -> Markup:
    """A chart: title, legend, axes in words, and the inside."""
    low, high = y[0], y[-1]
    grid = [
        tag("path", d=f"M0 {_n(HEIGHT - _at(t, low, high, HEIGHT))}H{_n(WIDTH)}", class_="grid")
        for t in y
    ]
    svg = tag(
        "svg",
        tag("title", title),
        *grid,
        inside,
        viewBox=f"0 0 {_n(WIDTH)} {_n(HEIGHT)}",
        preserveAspectRatio="none",
        role="img",
        class_="plot",
        data_kind=kind,
        data_x_low=x[0],
        data_x_high=x[1],
        data_y_low=low,
        data_y_high=high,
        data_values=data or None,
    )
    keys = [tag("span", tag("i", class_=f"key {c}"), name) for name, c in legend]
    return tag(
        "figure",
        tag("figcaption", tag("b", title), *keys, tag("output", class_="readout")),
        tag("div", *[tag("span", y_label(t)) for t in reversed(y)], class_="yaxis"),
        svg,
        tag("div", *[tag("span", label) for label in x_labels], class_="xaxis"),
        class_="chart",
    )


def latency(series: Sequence[tuple[str, Sequence[int]]], *, title: str) -> Markup:
    """Time of every sample in the order measured.

    Args:
        series: Name and samples in ns of each line.
        title: What is shown.
    """
    every = [ns for _, samples in series for ns in samples]
    if not every:
        return Markup("")
    y = ticks(min(every), max(every))
    count = max(len(samples) for _, samples in series)
    size, unit = best_unit(max(every))
    inside = []
    for k, (_, samples) in enumerate(series):
        inside.append(_samples(samples, count, y, f"s{k}"))
    return _frame(
        title,
        join(*inside),
        x=(0, max(count - 1, 1)),
        y=y,
        x_labels=["run 0", f"run {max(count - 1, 1)}"],
        y_label=lambda ns: f"{plain(ns / size)} {unit}",
        kind="latency",
        legend=[(name, f"s{k}") for k, (name, _) in enumerate(series)] if len(series) > 1 else (),
        data=";".join(",".join(map(str, samples)) for _, samples in series)
        if count <= _MOST_DOTS
        else "",
    )


def _samples(samples: Sequence[int], count: int, y: Sequence[float], name: str) -> Markup:
    wide = max(count - 1, 1)

    def place(k: int, ns: int) -> str:
        top = HEIGHT - _at(ns, y[0], y[-1], HEIGHT)
        return f"{_n(k / wide * WIDTH)} {_n(top)}"

    if len(samples) > _MOST_DOTS:
        stretch = -(-len(samples) // _MOST_DOTS)
        parts = []
        for k in range(0, len(samples), stretch):
            some = samples[k : k + stretch]
            parts.append(f"M{place(k, min(some))}L{place(k, max(some))}")
        return tag("path", d="".join(parts), class_=f"line range {name}")
    places = [place(k, ns) for k, ns in enumerate(samples)]
    line = tag("path", d="M" + "L".join(places), class_=f"line {name}")
    # A line of no length with round ends is a dot that does not stretch.
    return join(line, tag("path", d="".join(f"M{p}h0" for p in places), class_=f"dots {name}"))


def histogram(samples: Sequence[int], marks: Sequence[tuple[str, float]], *, title: str) -> Markup:
    """How many samples took how long, with lines at some percentiles.

    The bin is 2 IQR / n^(1/3) wide. Source: Freedman & Diaconis, "On the histogram as a density
    estimator" (1981).
    """
    if len(samples) < 2:
        return Markup("")
    ordered = sorted(samples)
    low, high = ordered[0], ordered[-1]
    quarter = len(ordered) // 4
    spread = ordered[-1 - quarter] - ordered[quarter]
    width: float = 2 * spread / len(ordered) ** (1 / 3)
    wanted = (high - low) / width if width else 20.0
    bins = 1 if high == low else round(wanted)
    bins = max(1, min(bins, _MOST_BINS))
    size = (high - low) / bins or 1.0
    counts = [0] * bins
    for ns in ordered:
        counts[min(int((ns - low) / size), bins - 1)] += 1
    y = ticks(0, max(counts))
    bars = []
    for k, count in enumerate(counts):
        tall = _at(count, y[0], y[-1], HEIGHT)
        start: float = low + k * size
        bars.append(
            tag(
                "rect",
                x=_n(k / bins * WIDTH),
                y=_n(HEIGHT - tall),
                width=_n(WIDTH / bins),
                height=_n(tall),
                class_="bar",
                data_label=f"{time_label(start)} to {time_label(start + size)}: {count} runs",
                data_count=count,
            )
        )
    lines = []
    for name, mark in marks:
        if high > low:
            left = _n(_at(mark, low, high, WIDTH))
            lines.append(tag("path", d=f"M{left} 0V{_n(HEIGHT)}", class_=f"mark {name}"))
    return _frame(
        title,
        join(*bars, *lines),
        x=(low, high),
        y=y,
        x_labels=[time_label(low), time_label(high)],
        y_label=plain,
        kind="histogram",
        legend=[(f"{name} {time_label(ns)}", name) for name, ns in marks],
    )


def memory(document: dict[str, object]) -> Markup:
    """Places of values in memory, step by step: a box a value, from first to last use."""
    values = _records(document.get("values"))
    steps = _records(document.get("steps"))
    if not values or not steps:
        return Markup("")
    count = len(steps)
    placed = all(v.get("offset_bytes") is not None for v in values)
    if not placed:
        return _alive(steps)
    high = max(float(v["offset_bytes"] + v["size_bytes"]) for v in values)
    y = _byte_ticks(high)
    boxes = []
    for k, value in enumerate(values[:_MOST_BLOCKS]):
        first, last = value["first_step_index"], value["last_step_index"] + 1
        bottom = _at(value["offset_bytes"], 0, y[-1], HEIGHT)
        tall = _at(value["size_bytes"], 0, y[-1], HEIGHT)
        boxes.append(
            tag(
                "rect",
                x=_n(first / count * WIDTH),
                y=_n(HEIGHT - bottom - tall),
                width=_n((last - first) / count * WIDTH),
                height=_n(tall),
                class_=f"block c{k % 8}",
                data_label=f"{value['name']}: {bytes_label(value['size_bytes'])}, steps {first} to "
                f"{last - 1}",
            )
        )
    return _frame(
        "Places of values in the arena, step by step",
        join(*boxes),
        x=(0, count),
        y=y,
        x_labels=["step 0", f"step {count - 1}"],
        y_label=lambda b: _round_bytes(b, y[-1]),
        kind="memory",
    )


def _alive(steps: Sequence[dict[str, float]]) -> Markup:
    alive = [float(s["alive_bytes"]) for s in steps]
    y = _byte_ticks(max(alive))
    count = len(steps)
    parts = []
    for k, size in enumerate(alive):
        top = _n(HEIGHT - _at(size, 0, y[-1], HEIGHT))
        left = _n(k / count * WIDTH)
        parts.append(f"{'M' if not k else 'L'}{left} {top}H{_n((k + 1) / count * WIDTH)}")
    shape = f"{''.join(parts)}V{_n(HEIGHT)}H0Z"
    return _frame(
        "Bytes of values alive at each step",
        tag("path", d=shape, class_="area"),
        x=(0, count),
        y=y,
        x_labels=["step 0", f"step {count - 1}"],
        y_label=lambda b: _round_bytes(b, y[-1]),
        kind="alive",
    )


def _byte_ticks(high: float) -> list[float]:
    """Round numbers of the unit that the largest is shown in."""
    size, _ = best_unit(high, _SIZES)
    return [t * size for t in ticks(0, max(high, 1) / size)]


def _round_bytes(count: float, like: float) -> str:
    size, unit = best_unit(like, _SIZES)
    return f"{plain(count / size)} {unit}"


def _records(found: object) -> list[dict[str, float]]:
    return [r for r in found if isinstance(r, dict)] if isinstance(found, list) else []


def errors(rows: Sequence[dict[str, object]]) -> Markup:
    """Error of every operator in order, and what is allowed, on a logarithmic scale."""
    found = [(r.get("error"), r.get("allowed_error"), r) for r in rows]
    numbers = [v for e, a, _ in found for v in (e, a) if isinstance(v, (int, float)) and v > 0]
    if not numbers:
        return Markup("")
    low = math.floor(math.log10(min(numbers)))
    high = max(math.ceil(math.log10(max(numbers))), low + 1)
    step = max(1, -(-(high - low) // 5))
    y = [float(t) for t in range(low, high + step, step)]
    wide = max(len(found) - 1, 1)

    def place(k: int, value: object) -> str:
        size = float(value) if isinstance(value, (int, float)) else 10.0 ** y[-1]
        level = math.log10(size) if size > 0 else y[0]
        top = HEIGHT - _at(level, y[0], y[-1], HEIGHT)
        return f"{_n(k / wide * WIDTH)} {_n(top)}"

    dots = [f"M{place(k, e)}h0" for k, (e, _, _) in enumerate(found)]
    limits = [place(k, a) for k, (_, a, _) in enumerate(found)]
    inside = join(
        tag("path", d="M" + "L".join(limits), class_="line s1"),
        tag("path", d="".join(dots), class_="dots s0"),
    )
    return _frame(
        "Error of each operator, in order",
        inside,
        x=(0, wide),
        y=y,
        x_labels=["first operator", "last"],
        y_label=lambda t: f"1e{t:.0f}",
        kind="errors",
        legend=[("error", "s0"), ("allowed", "s1")],
    )


def speeds(rows: Sequence[tuple[str, float, bool]]) -> Markup:
    """Bars of medians by name, ns; the marked one stands out."""
    if not rows:
        return Markup("")
    most = max(ns for _, ns, _ in rows) or 1.0
    bars = []
    for name, ns, best in rows:
        bar = tag("rect", width=f"{ns / most * 100:.2f}%", height="100%", class_="bar")
        bars.append(
            tag(
                "div",
                tag("span", name),
                tag("svg", bar, width="100%", height="14", role="img"),
                tag("b", time_label(ns)),
                class_="bars best" if best else "bars",
            )
        )
    return tag("div", *bars, class_="barlist")
