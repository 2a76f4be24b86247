"""What a picture of a graph shows: boxes with a few lines of text, wires, details of operators.

Weights are folded into the boxes of their users unless asked for. All text from files is made
printable and bounded here: whoever writes it down escapes only what its own syntax asks for.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mgeserial.errors import InputError, MgeError, printable
from mgeserial.inspect import describe_node
from mgeserial.ir.graph import INPUT, Graph, Node, Value, input_name
from mgeserial.ir.tensor import Tensor
from mgeserial.render import dtype_text, plural, size_text
from mgeserial.view.families import Family, family_of
from mgeserial.view.layout import Layout, Wire, lay_out

__all__ = ["Box", "Picture", "draw", "shape_text", "type_text"]

# What one picture takes; more is neither readable nor laid out in seconds.
_MOST_BOXES = 100_000
_MOST_WIRES = 400_000

_TITLE_SIZE, _TEXT_SIZE = 13.0, 11.0
_PADDING, _LINE = 12.0, 15.0
_MOST_LINES = 6
_LINE_LIMIT = 46
_SETTINGS_LIMIT = 26
# Constants of up to so many numbers are shown as numbers.
_SHOWN_NUMBERS = 6


@dataclass(frozen=True, slots=True)
class Box:
    """A box of the picture.

    Attributes:
        kind: `operator`, `input`, `output` (a result of the graph) or `weight`.
        operator: Place of its operator in the file; of an output, of what computes it.
        title: First line: what it does.
        lines: Further lines.
        family: Family of the operator.
        name: The operator's name, or the input's or output's.
    """

    kind: str
    operator: int
    title: str
    lines: tuple[str, ...]
    family: Family
    name: str

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in pixels, by an estimate of the text's width."""
        widths = [text_width(self.title, _TITLE_SIZE) * 1.17]  # bold
        widths += [text_width(line, _TEXT_SIZE) * 1.04 for line in self.lines]
        wide = max(60.0, max(widths) + 2 * _PADDING)
        return round(wide), 2 * 6 + 18 + _LINE * len(self.lines)


@dataclass(slots=True)
class Picture:
    """What is shown of a graph.

    Attributes:
        title, subtitle: What it is a picture of: the file; its container, operators, weights.
        boxes, wires: What is drawn; the port of a wire is the index of the value it carries.
        labels: For each wire the type of its value.
        operators: `inspect.describe_node` of every operator, boxes or not, names printable.
        problems: What is wrong with the graph.
    """

    title: str
    subtitle: str = ""
    boxes: list[Box] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    operators: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def layout(self) -> Layout:
        """Where everything stands."""
        return lay_out([b.size for b in self.boxes], self.wires)


def draw(graph: Graph, *, title: str = "", weights: bool = False) -> Picture:
    """Decide what a picture of a graph shows.

    Args:
        graph: The graph. One whose shapes do not fit together is drawn without them.
        title: What it is, such as the file's name.
        weights: Whether weights get boxes of their own.

    Raises:
        InputError: It is too large for a picture.
    """
    picture = Picture(printable(title, limit=200))
    try:
        inference = graph.inference
    except MgeError as error:
        inference = None
        picture.problems.append(printable(str(error), limit=1000))
    nodes = graph.nodes
    if len(nodes) + len(graph.outputs) > _MOST_BOXES:
        raise _too_large(len(nodes) + len(graph.outputs), _MOST_BOXES, "boxes")
    wires = sum(len(n.inputs) for n in nodes) + len(graph.outputs)
    if wires > _MOST_WIRES:
        raise _too_large(wires, _MOST_WIRES, "wires")
    for node in nodes:
        problems: list[str] = []
        found = describe_node(node, inference, problems=problems)
        found["problems"] = problems
        picture.operators.append(_printable(found))
    _Drawing(graph, picture, weights=weights).run()
    picture.subtitle = _subtitle(graph)
    return picture


def _too_large(count: int, limit: int, what: str) -> InputError:
    return InputError(
        f"a picture has at most {limit:,} {what}, the graph needs {count:,}",
        hint="`mgeserial edit MODEL -o PART --extract INPUTS:OUTPUTS` cuts out a part",
    )


def _printable(value: Any) -> Any:
    """The same document with every text safe to show."""
    if isinstance(value, str):
        return printable(value, limit=200)
    if isinstance(value, dict):
        return {key: _printable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_printable(item) for item in value]
    return value


def _subtitle(graph: Graph) -> str:
    tensors = [t for n in graph.params for t in n.tensors if t.has_value]
    size = size_text(sum(t.nbytes for t in tensors))
    parts = [plural(len(graph.nodes), "operator")]
    parts.append(f"{plural(len(tensors), 'weight')} of {size}" if tensors else "no weights")
    return ", ".join(parts)


class _Drawing:
    """Boxes and wires of one picture."""

    def __init__(self, graph: Graph, picture: Picture, *, weights: bool) -> None:
        self.graph = graph
        self.picture = picture
        self.folds = not weights
        self.box_of: dict[Node, int] = {}
        self.ports: dict[Value, int] = {}
        self.results = set(graph.outputs)

    def run(self) -> None:
        for node in self.graph.nodes:
            if self.folds and self._is_folded(node):
                continue
            self.box_of[node] = len(self.picture.boxes)
            self.picture.boxes.append(self._box(node))
            self._connect(node.inputs)
        for name, value in zip(self.graph.output_names, self.graph.outputs, strict=True):
            shown = printable(name, limit=60)
            place = value.node.index
            kind = self._type(value)
            self.picture.boxes.append(Box("output", place, shown, (kind,), family_of(INPUT), shown))
            self._connect([value])

    def _is_folded(self, node: Node) -> bool:
        """Whether a node is nothing but weights that others use."""
        if node.inputs or not node.tensors or node.is_input:
            return False
        if not self.results.isdisjoint(node.outputs):
            return False
        return any(v.users for v in node.outputs)

    def _connect(self, inputs: Sequence[Value]) -> None:
        """Wires from the boxes of `inputs` to the newest box."""
        target = len(self.picture.boxes) - 1
        for value in inputs:
            source = self.box_of.get(value.node)
            if source is not None:
                self.picture.wires.append(Wire(source, target, value.index))
                self.picture.labels.append(self._type(value))

    def _type(self, value: Value) -> str:
        outputs = self.picture.operators[value.node.index]["outputs"]
        return type_text(outputs[value.index])

    def _box(self, node: Node) -> Box:
        found = self.picture.operators[node.index]
        family = family_of(node.op.name)
        if node.is_input and node.outputs:
            name = printable(input_name(node.outputs[0]), limit=60)
            return Box("input", node.index, name, (self._type(node.outputs[0]),), family, name)
        name = printable(node.display_name, limit=200)
        title, rest = _title(node, found)
        lines = [_cut(rest)] if rest else []
        if node.tensors:
            lines += [_cut(t) for t in _tensor_lines(node.tensors)]
        if self.folds:
            lines += _bounded([_cut(t) for t in self._folded(node, found)])
        lines += [_cut(t) for t in self._results(node, found)]
        kind = "weight" if node.tensors and not node.inputs else "operator"
        return Box(kind, node.index, _cut(title), tuple(lines), family, name)

    def _folded(self, node: Node, found: dict[str, Any]) -> list[str]:
        """Lines for the weights folded into a box: role, shape or value; equal shapes together."""
        same: dict[str, list[str]] = {}
        for value, entry in zip(node.inputs, found["inputs"], strict=True):
            if value.node in self.box_of or not self._is_folded(value.node):
                continue
            tensors = value.node.tensors
            if value.index < len(tensors) and tensors[value.index].has_value:
                text = _value_text(tensors[value.index]) or shape_text(entry["shape"])
            else:
                text = shape_text(entry["shape"])
            same.setdefault(text, []).append(entry["role"] or "weight")
        return [f"{', '.join(dict.fromkeys(roles))} {text}" for text, roles in same.items()]

    def _results(self, node: Node, found: dict[str, Any]) -> list[str]:
        """One line for the outputs that are used."""
        if node.tensors and not node.inputs:
            return []
        used = [
            entry
            for value, entry in zip(node.outputs, found["outputs"], strict=True)
            if value.users or value in self.results
        ]
        if not used:
            return []
        more = f", and {len(used) - 1} more" if len(used) > 1 else ""
        return [f"→ {type_text(used[0])}{more}"]


def _title(node: Node, found: dict[str, Any]) -> tuple[str, str]:
    """What an operator does, and its other parameters that are not the default."""
    name = node.op.name
    params: dict[str, Any] = {}
    for record in found["params"]:
        params.update({n: record["fields"][n] for n in record["changed"]})
    every = {n: v for record in found["params"] for n, v in record["fields"].items()}
    mode = every.get("mode")
    title = name
    if isinstance(mode, str):
        if name in ("Elemwise", "ElemwiseMultiType"):
            title = mode
        elif "mode" in params or name in ("Pooling", "Reduce", "AdaptivePooling"):
            title = f"{name} {mode}"
    fused = params.pop("nonlineMode", None)
    if fused is not None:
        title += f" + {fused}"
    params.pop("mode", None)
    return title, _fitting(_settings(params, every))


def _fitting(texts: Iterable[str]) -> str:
    """As many texts as fit into a short line."""
    line = ""
    for text in texts:
        if line and len(line) + len(text) > _SETTINGS_LIMIT:
            return line + ", …"
        line += f", {text}" if line else text
    return line


# Parameters that are set on nearly every operator of their kind and say little in a box.
_DULL = frozenset({"fwd_mode", "epsilon", "avg_factor", "param_dim"})


def _settings(changed: Mapping[str, Any], every: Mapping[str, Any]) -> Iterator[str]:
    """Parameters that are not the default as short text; `x_h` and `x_w` as one pair."""
    pairs = set()
    for name, value in changed.items():
        base = name[:-2]
        if name in _DULL or base in pairs:
            continue
        if name.endswith(("_h", "_w")) and {f"{base}_h", f"{base}_w"} <= every.keys():
            high, wide = every[f"{base}_h"], every[f"{base}_w"]
            pairs.add(base)
            yield f"{base} {high}" if high == wide else f"{base} {high}×{wide}"
        elif value is True:
            yield name
        elif not isinstance(value, (dict, list)) or _is_short(value):
            yield f"{name} {value}"


def _is_short(value: Any) -> bool:
    """Whether a parameter is a list of a few numbers."""
    return isinstance(value, list) and len(value) <= 7 and all(type(n) is int for n in value)


def _tensor_lines(tensors: Sequence[Tensor]) -> list[str]:
    """Lines for tensors that an operator holds."""
    texts = [
        f"{t.dtype.name} {(_value_text(t) if t.has_value else '') or shape_text(t.shape)}"
        for t in tensors[: _MOST_LINES + 1]
    ]
    more = [""] * max(len(tensors) - len(texts), 0)
    return _bounded(texts + more)


def _bounded(lines: list[str]) -> list[str]:
    if len(lines) <= _MOST_LINES:
        return lines
    return [*lines[: _MOST_LINES - 1], f"and {len(lines) - _MOST_LINES + 1} more"]


def _value_text(tensor: Tensor) -> str:
    """A small plain constant as numbers; empty for anything else."""
    if not 0 < tensor.size <= _SHOWN_NUMBERS or len(tensor.shape) != 1:
        return ""
    if not (tensor.dtype.is_integer or tensor.dtype.storage.kind == "f"):
        return ""
    try:
        numbers = tensor.numpy().tolist()
    except MgeError:
        return ""
    texts = [f"{n:.6g}" if isinstance(n, float) else str(n) for n in numbers]
    return f"= {texts[0]}" if len(texts) == 1 else f"= [{', '.join(texts)}]"


def _cut(text: str) -> str:
    return text if len(text) <= _LINE_LIMIT else text[: _LINE_LIMIT - 1] + "…"


def shape_text(shape: Sequence[int | None] | None) -> str:
    """`1×3×224×224`; `?` for what is not known."""
    if shape is None:
        return "(shape not known)"
    return "×".join("?" if n is None else str(n) for n in shape) or "(any shape)"


def type_text(entry: Mapping[str, Any], *, full: bool = False) -> str:
    """Element type and shape of a value of `inspect`: `Float32 1×3×224×224`.

    Args:
        entry: A value's or tensor's entry.
        full: Whether scale and zero point are told.
    """
    if not entry["dtype"]:
        return "type not known"
    return f"{dtype_text(entry) if full else entry['dtype']} {shape_text(entry['shape'])}"


def text_width(text: str, size: float) -> float:
    """About how wide a text is in a sans-serif font of `size` pixels, in pixels."""
    total = 0.0
    for c in text:
        if c in "iljtfr.,:;'|!()[]{} ":
            total += 0.34
        elif c in "mwMW@%×→":
            total += 0.86
        elif unicodedata.east_asian_width(c) in "WF":
            total += 1.0
        else:
            total += 0.67 if c.isupper() or c == "_" else 0.57
    return total * size
