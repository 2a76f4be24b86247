"""Text for people from the documents of `mgeserial.inspect` and `mgeserial.cli.check`.

Names from files go through `errors.printable`; long lists end with how many more there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mgeserial.errors import printable

__all__ = [
    "columns",
    "dtype_text",
    "operator_text",
    "plural",
    "size_text",
    "summary_text",
    "type_text",
]

_MOST_LINES = 40


def size_text(nbytes: int) -> str:
    """Bytes in units of 1000 with three digits: `0.9 kB`, `12.3 MB`."""
    if nbytes < 1000:
        return f"{nbytes} B"
    size = float(nbytes)
    unit = "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 999.95:
            break
        size, unit = size / 1000, larger
    return f"{size:.1f} {unit}"


def plural(count: int, noun: str) -> str:
    """`1 graph`, `2 graphs`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def columns(rows: Iterable[Sequence[str]], *, indent: int = 2) -> list[str]:
    """Lines with the cells of each column below one another; numbers to the right."""
    table = [list(r) for r in rows]
    if not table:
        return []
    widths = [max(len(r[i]) for r in table) for i in range(len(table[0]))]
    right = [all(r[i].replace(",", "").isdigit() for r in table) for i in range(len(table[0]))]
    lines = []
    for row in table:
        cells = [
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, right, strict=True)
        ]
        lines.append((" " * indent + "  ".join(cells)).rstrip())
    return lines


def dtype_text(value: Mapping[str, Any]) -> str:
    """Element type with its scale and zero point: `QuantizedS8(scale=0.05)`; `?` if not known."""
    name = value["dtype"] or "?"
    scale, zero = value["scale"], value["zero_point"]
    if scale is None:
        return str(name)
    shown = scale if isinstance(scale, str) else f"{scale:.9g}"
    return f"{name}(scale={shown}" + ("" if zero is None else f", zero_point={zero}") + ")"


def type_text(value: Mapping[str, Any]) -> str:
    """`Float32 (1, 3, 224, 224)`, `QuantizedS8(scale=0.05) (?, 16)`."""
    text = dtype_text(value)
    shape = value["shape"]
    if shape is None:
        return f"{text} (any shape)" if value.get("is_input") else f"{text} (shape not known)"
    inner = ", ".join("?" if n is None else str(n) for n in shape)
    return f"{text} ({inner}{',' if len(shape) == 1 else ''})"


def _bounded(lines: list[str], what: str) -> list[str]:
    if len(lines) <= _MOST_LINES:
        return lines
    return [*lines[:_MOST_LINES], f"  ... and {len(lines) - _MOST_LINES} more {what} (see --json)"]


def _name(text: str | None) -> str:
    return "(no name)" if text is None else printable(text, limit=60)


def summary_text(summary: dict[str, Any]) -> str:
    """Text of `inspect.summarize`."""
    graphs = summary["graphs"]
    lines = []
    if "description" in summary:
        title = printable(summary["path"], limit=200) if summary["path"] else "(bytes in memory)"
        size = summary["size_bytes"]
        lines.append(f"{title}: {summary['description']}, {size_text(size)} ({size:,} bytes)")
        lite = summary["lite_package"]
        if lite is not None:
            lines.append(f"package name: {_name(str(lite.get('name') or '') or None)}")
        if summary["wrapper_bytes"]:
            lines.append(f"wrapper around the graphs: {summary['wrapper_bytes']:,} bytes")
    shown = graphs
    if summary.get("testcases") is not None and len(graphs) > 3:
        shown = graphs[:3]
    for graph in shown[:_MOST_LINES]:
        lines += ["", *_graph_lines(graph)]
    left = len(graphs) - len(shown[:_MOST_LINES])
    if left:
        lines += ["", f"... and {plural(left, 'more graph')} (see --json)"]
    return "\n".join(lines) + "\n"


def _graph_lines(graph: dict[str, Any]) -> list[str]:
    types = graph["operator_types"]
    lines = [
        f"graph {graph['index']}: {graph['role']}, {plural(graph['operators'], 'operator')} "
        f"of {plural(len(types), 'type')}, {plural(graph['values'], 'value')}"
    ]
    if "container" in graph:
        lines += _storage_lines(graph)
    for key in ("inputs", "outputs"):
        values = [{**v, "is_input": key == "inputs"} for v in graph[key]]
        rows = [(_name(v["name"]), type_text(v)) for v in values[: _MOST_LINES + 1]]
        more = [""] * max(len(values) - len(rows), 0)
        lines += [
            f"{key}: {'' if values else 'none'}".rstrip(),
            *_bounded(columns(rows) + more, key),
        ]
    table = [(printable(t["type"]), f"{t['count']:,}", _variant_text(t)) for t in types]
    lines += ["operators:", *_bounded(columns(table), "types")]
    lines.append(_weight_line(graph["parameters"]))
    nodes = graph["computing_nodes"]
    if nodes:
        shown = [f"{printable(n)} ({count:,})" for n, count in list(nodes.items())[:8]]
        lines.append(f"computing nodes: {', '.join(shown)}{' ...' if len(nodes) > 8 else ''}")
    lines += _metadata_lines(graph["metadata"])
    stops = graph["shapes_stop_at"]
    if stops:
        first = stops[0]
        lines.append(f"shapes not known from operator {first['operator']} on: {first['reason']}")
    lines += [f"problem: {text}" for text in graph["problems"]]
    return lines


def _storage_lines(graph: dict[str, Any]) -> list[str]:
    writers = graph["written_by"]
    by = _releases(writers) if writers else "an unknown release"
    note = f"; {graph['version_note']}" if graph["version_note"] else ""
    parts = [f"header {graph['header_bytes']:,}"]
    parts += [f"tensor values {graph['tensor_values_bytes']:,}"]
    parts += [f"structure {graph['structure_bytes']:,}"]
    lines = [
        f"container: {graph['container']}, read by MegEngine {graph['read_by']}",
        f"written by: MegEngine {by} (version number {graph['version']}{note})",
        f"bytes: {' + '.join(parts)} = {graph['size_bytes']:,}",
    ]
    if graph["table_layouts_of"] is not None:
        lines.append(f"parameter tables: read as {graph['table_layouts_of']} wrote them")
    return lines


def _releases(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _variant_text(entry: dict[str, Any]) -> str:
    if not entry["known"]:
        return "not known here"
    variants = entry["variants"]
    if not variants:
        return ""
    shown = [f"{name} {count}" for name, count in list(variants.items())[:8]]
    more = ", ..." if len(variants) > 8 else ""
    what = "fused " if entry["variant_of"] == "nonlineMode" else ""
    return f"{what}{', '.join(shown)}{more}"


def _weight_line(found: dict[str, Any]) -> str:
    if not found["tensors"]:
        return "parameters: none"
    types = [
        f"{name} {size_text(entry['values_bytes'])}" for name, entry in found["by_dtype"].items()
    ]
    holders = [f"{count:,} in {printable(name)}" for name, count in found["by_operator"].items()]
    return (
        f"parameters: {plural(found['tensors'], 'tensor')}, {found['elements']:,} elements, "
        f"{size_text(found['values_bytes'])} ({', '.join(types)}; {', '.join(holders[:6])})"
    )


def _metadata_lines(metadata: dict[str, Any] | None) -> list[str]:
    if metadata is None:
        return []
    parts = []
    names = metadata["optimizations"]
    parts.append(f"optimised: {', '.join(names)}" if names else "not optimised for inference")
    if metadata["graph_modified"]:
        parts.append("graph modified")
    parts.append(f"user info of {plural(metadata['user_info_bytes'], 'byte')}, not opened")
    return [f"metadata: {'; '.join(parts)}"]


def operator_text(found: dict[str, Any]) -> str:
    """Text of `inspect.describe_operator`."""
    name = "" if found["name"] is None else f' "{printable(found["name"])}"'
    place = "" if found["offset_bytes"] is None else f", file offset 0x{found['offset_bytes']:x}"
    lines = [f"operator {found['index']}{name}: {printable(found['type'])}{place}"]
    stored = found["stored_id"]
    if stored is not None:
        version = f", version {stored['version']}" if stored["version"] else ""
        text = f' as "{printable(stored["type"])}"' if stored["type"] else ""
        lines.append(f"stored{text} with id {stored['type_id']}{version}")
    rows = [(i["role"] or "", _name(i["name"]), type_text(i)) for i in found["inputs"]]
    lines += [f"inputs: {'' if rows else 'none'}".rstrip(), *_bounded(columns(rows), "inputs")]
    rows = [
        (_name(o["name"]), type_text(o), f"used by {_numbers(o['users'])}")
        for o in found["outputs"]
    ]
    lines += [f"outputs: {'' if rows else 'none'}".rstrip(), *_bounded(columns(rows), "outputs")]
    for params in found["params"]:
        lines += _params_lines(params)
    for i, tensor in enumerate(found["tensors"]):
        size = tensor["values_bytes"]
        where = (
            "no value" if size is None else f"{size:,} bytes at 0x{tensor['offset_bytes'] or 0:x}"
        )
        lines.append(f"tensor {i}: {_name(tensor['name'])}, {type_text(tensor)}, {where}")
    for i, size in enumerate(found["blobs_bytes"]):
        lines.append(f"blob {i}: {size:,} bytes")
    if found["output_dtype"] is not None:
        lines.append(f"output dtype: {dtype_text(found['output_dtype'])}")
    nodes = [printable(n) if n else "default" for n in found["computing_nodes"]]
    if nodes:
        lines.append(f"computing nodes: {', '.join(nodes[:8])}")
    if found["priority"]:
        lines.append(f"priority: {found['priority']}")
    if found["has_unknown_fields"]:
        lines.append("it has fields of a newer release, which are kept")
    lines += [f"problem: {text}" for text in found["problems"]]
    return "\n".join(lines) + "\n"


def _numbers(numbers: list[int]) -> str:
    if not numbers:
        return "nothing"
    more = " ..." if len(numbers) > 8 else ""
    return f"{', '.join(map(str, numbers[:8]))}{more}"


def _params_lines(params: dict[str, Any]) -> list[str]:
    if params["table"] is None:
        return ["parameters: a table of a newer release, kept as it is"]
    lines = [f"parameters {params['table']}: {'' if params['fields'] else 'none'}".rstrip()]
    changed = set(params["changed"])
    rows = []
    for name, value in params["fields"].items():
        text = printable(str(value), limit=100)
        rows.append((name, text, "" if name in changed else "(default)"))
    return lines + columns(rows)
