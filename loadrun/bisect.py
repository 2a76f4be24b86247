"""The smallest part of a differing network that still differs, saved as a model with a test case.

The part ends at the operator where a walk found the difference. Operators are added before it, as
many as are needed; then each is left out again where the rest still differs without it. Inputs of
the part are values of the first side, so that what the part computes from them is all there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mgeserial
from loadrun.closeness import Closeness, closeness
from loadrun.divergence import Part, Progress, Suspect
from loadrun.sides import is_operator
from loadrun.tolerances import allowed_error, roundings, step
from mgeserial import editing
from mgeserial.dtypes import Array
from mgeserial.errors import MgeError, UnsupportedError, printable
from mgeserial.ir.copying import reachable
from mgeserial.ir.graph import Graph, Node, Value
from mgeserial.testcases import EXPECT, Case, assert_outputs, make_model

__all__ = ["Reduced", "reduce_part", "save_part"]

# Runs of the last stage, which leaves out one operator after another.
_MOST_TRIALS = 400


@dataclass(slots=True)
class Reduced:
    """What a network was reduced to.

    Attributes:
        nodes: Operators of the part, of the first network, in order; weights are not among them.
        inputs: Values that are its inputs.
        output: The value that differs.
        close: How far it is apart.
        trials: Parts that were run.
        files: Files written.
        reproduces: Whether the saved model fails its test case on the second side; None: not saved
            or not checked.
        notes: What could not be done.
    """

    nodes: list[Node]
    inputs: list[Value]
    output: Value
    close: Closeness
    trials: int = 0
    files: list[str] = field(default_factory=list)
    reproduces: bool | None = None
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "operator_count": len(self.nodes),
            "operators": [
                {
                    "operator_index": n.origin.index if n.origin is not None else n.index,
                    "type": n.op.name,
                    "name": printable(n.display_name),
                }
                for n in self.nodes
            ],
            "inputs": [printable(v.display_name) for v in self.inputs],
            "output": printable(self.output.display_name),
            "closeness": self.close.as_json(),
            "trial_count": self.trials,
            "files": self.files,
            "reproduces": self.reproduces,
            "notes": self.notes,
        }


class _Trials:
    """Runs parts and counts them."""

    def __init__(self, part: Part, output: Value, allowed: float, *, exact: bool) -> None:
        self._part = part
        self._output = output
        self._allowed = allowed
        self._exact = exact
        self.count = 0

    def differs(self, inputs: Sequence[Value]) -> Closeness | None:
        """How far a part is apart, where it is too far; None where it agrees or cannot run."""
        self.count += 1
        try:
            close = self._part.compare(inputs, self._output, self._allowed, prepared=True)
        except MgeError:
            return None
        if close is None:
            return None
        far = not close.equal_bits if self._exact else not close.passed
        return close if far else None


def reduce_part(
    part: Part, suspect: Suspect, *, progress: Progress | None = None
) -> Reduced | None:
    """Find the smallest part that ends at a suspect and still differs.

    Args:
        part: The two networks.
        suspect: Where the difference was found.
        progress: Told how far it is.

    Returns:
        The part; None where not even the whole network up to the suspect differs, optimised as it
        is before a run.
    """
    value = suspect.value
    if suspect.how == "fused":
        rounding = roundings(part.a.graph)[value]
    else:
        rounding = step(value.node, part.a.graph.inference.types)
    exact = part.is_exact(value.node)
    trials = _Trials(part, value, allowed_error(value.dtype, rounding), exact=exact)
    needed = reachable([value])
    order = [n for n in part.a.graph.nodes if n in needed and is_operator(n)]
    kept, close = _grow(trials, order, value, progress)
    if close is None:
        return None
    nodes, inputs, close = _shrink(trials, kept, value, close, progress)
    return Reduced(nodes, inputs, value, close, trials.count)


def _frontier(nodes: Sequence[Node], output: Value) -> list[Value]:
    """Values that come into a set of operators from outside, weights apart."""
    inside = set(nodes)
    found: dict[Value, None] = {}
    for node in nodes:
        for value in node.inputs:
            source = value.node
            fed = source.is_input or is_operator(source)
            if source not in inside and fed:
                found[value] = None
    return [v for v in found if v is not output]


def _grow(
    trials: _Trials, order: Sequence[Node], output: Value, progress: Progress | None
) -> tuple[list[Node], Closeness | None]:
    """The last 1, 2, 4 ... operators until they differ, then bisection between the last two."""
    total = len(order)
    count, below = 1, 0
    while True:
        if progress is not None:
            progress("bisect", total - count, total)
        close = trials.differs(_frontier(order[total - count :], output))
        if close is not None:
            break
        if count >= total:
            return [], None
        below, count = count, min(2 * count, total)
    while below + 1 < count:
        middle = (below + count) // 2
        found = trials.differs(_frontier(order[total - middle :], output))
        if found is None:
            below = middle
        else:
            count, close = middle, found
    return list(order[total - count :]), close


def _shrink(
    trials: _Trials,
    nodes: Sequence[Node],
    output: Value,
    close: Closeness,
    progress: Progress | None,
) -> tuple[list[Node], list[Value], Closeness]:
    """Leave out what the difference does not need, until nothing more can go."""
    kept = _connected(nodes, output)
    changed = True
    while changed and trials.count < _MOST_TRIALS:
        changed = False
        for node in list(kept):
            if node is output.node or node not in kept or trials.count >= _MOST_TRIALS:
                continue
            if progress is not None:
                progress("reduce", trials.count, _MOST_TRIALS)
            rest = _connected([n for n in kept if n is not node], output)
            found = trials.differs(_frontier(rest, output))
            if found is not None:
                kept, close, changed = rest, found, True
    return kept, _frontier(kept, output), close


def _connected(nodes: Sequence[Node], output: Value) -> list[Node]:
    """Those of the operators that the output needs without leaving them."""
    inside = set(nodes)
    stack, seen = [output.node], set()
    while stack:
        node = stack.pop()
        if node in inside and node not in seen:
            seen.add(node)
            stack += [v.node for v in node.inputs]
    return [n for n in nodes if n in seen]


# -- saving ---------------------------------------------------------------------------------------


def save_part(part: Part, found: Reduced, path: str) -> None:
    """Save the part of the second network with a test case: the first side's values.

    `loadrun PATH` then runs it and says how far it is from what is expected. Of two networks, the
    first one's part is saved too, beside it, as `<name>.a<ending>`. Written files, notes and
    whether the model fails as it should are put into `found`.

    Args:
        part: The two networks.
        found: The part.
        path: File to write; a file that is there is replaced.

    Raises:
        MgeError: It cannot be written.
    """
    pair = part.run(found.inputs, found.output, prepared=True)
    arrays = [a for a in part.values.get(found.inputs) if a is not None]
    if pair is None:
        found.notes.append("the part has no test case: its inputs have no values in this run")
        return
    partners = [part.partners.get(v) for v in found.inputs]
    other = part.partners.get(found.output)
    assert other is not None
    # A difference within the tolerance (of equal code, any bit is one) must fail as well.
    error = closeness(*pair, found.output.dtype, other.dtype).error
    allowed = min(found.close.allowed, error / 2)
    second = editing.extract(part.b.graph, [v for v in partners if v is not None], [other])
    model = _with_case(second, arrays, pair[0], allowed, found)
    mgeserial.save(model, path)
    found.files.append(path)
    if part.a.graph is not part.b.graph:
        first = editing.extract(part.a.graph, found.inputs, [found.output])
        where = Path(path)
        beside = str(where.with_name(f"{where.stem}.a{where.suffix}"))
        mgeserial.save(_with_case(first, arrays, pair[0], allowed, found), beside)
        found.files.append(beside)
    found.reproduces = _fails(part, path)


def _with_case(
    graph: Graph, arrays: Sequence[Array], expected: Array, allowed: float, found: Reduced
) -> mgeserial.Model:
    name = graph.output_names[0]
    case = dict(zip(graph.input_names, arrays, strict=True))
    try:
        checked = assert_outputs(graph, {name: expected.shape}, maxerr=allowed, verbose=False)
    except UnsupportedError as error:
        found.notes.append(f"the saved model has inputs only: {error.message}")
        return make_model(graph, [Case(case)])
    return make_model(checked, [Case({**case, name + EXPECT: expected})])


def _fails(part: Part, path: str) -> bool:
    """Whether the saved model's check fails on the second side, read back from the file."""
    model = mgeserial.load(path)
    with part.b.session(model.graph) as session:
        return bool(session.check_asserts(model.testcases[0]))
