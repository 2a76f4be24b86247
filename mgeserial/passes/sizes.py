"""Other sizes of the inputs that a network can work with.

A file states one size for each input, but a user may feed another batch or another height. What a
rule concludes from sizes (an axis of length 1, two values of one shape) must hold for those too:
so each graph is inferred again with sizes unlike the stated ones, and unlike each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from mgeserial.errors import MgeError
from mgeserial.ir.graph import Graph, Value
from mgeserial.ir.inference import infer
from mgeserial.ir.types import Shape, TensorType

__all__ = ["types_at_other_sizes"]

Sizes = tuple[Shape, ...]
# An axis becomes a multiple, since strides and groups may ask for one (a batch may also be 1 where
# nothing else but the stated one is taken); axes by unlike factors, since equal sizes may be equal
# by chance.
_FACTORS = (3, 2, 5, 7, 11, 13, 17)
_MOST_TRIED = 24


def types_at_other_sizes(graph: Graph) -> list[Mapping[Value, TensorType]]:
    """Types of all values with other sizes of the inputs; [] when the network takes no others.

    Mostly one set, with every axis changed that can be. Passes keep the inputs, so the sizes found
    for a graph go on to what is rebuilt of it.
    """
    derived = graph._derived
    if derived.other_sizes is None:
        derived.other_sizes = _find(graph)
    found = []
    for sizes in derived.other_sizes:
        types = _infer(graph, sizes)
        if types is not None:
            found.append(types)
    return found


def _find(graph: Graph) -> tuple[Sizes, ...]:
    """Sizes that can be inferred: all free axes at once, else those of one kind of axis each."""
    shapes = [v.type.shape for v in graph.inputs]
    if any(s is None or None in s for s in shapes):
        return ()
    stated: Sizes = tuple(v.type.dims for v in graph.inputs)
    alone, together = [], stated
    free: set[tuple[int, int]] = set()
    for axes in islice(_groups(stated), _MOST_TRIED):
        if axes <= free:
            continue
        batch = all(k == 0 for _, k in axes)
        for change in (_longer, _single) if batch else (_longer,):
            sizes = change(stated, axes)
            if sizes != stated and _infer(graph, sizes) is not None:
                alone.append(sizes)
                together = change(together, axes)
                free |= axes
                break
    if len(alone) > 1 and _infer(graph, together) is not None:
        return (together,)
    return tuple(alone)


def _groups(shapes: Sizes) -> Iterator[set[tuple[int, int]]]:
    """Axes (input, axis) that change together: those of one place and size, then each alone."""
    groups: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for i, shape in enumerate(shapes):
        for k, size in enumerate(shape):
            if size:
                groups.setdefault((k, size), set()).add((i, k))
    yield from groups.values()
    for group in groups.values():
        if len(group) > 1:
            yield from ({axis} for axis in sorted(group))


def _longer(shapes: Sizes, axes: set[tuple[int, int]]) -> Sizes:
    return tuple(
        tuple(n * _FACTORS[k % len(_FACTORS)] if (i, k) in axes else n for k, n in enumerate(shape))
        for i, shape in enumerate(shapes)
    )


def _single(shapes: Sizes, axes: set[tuple[int, int]]) -> Sizes:
    return tuple(
        tuple(1 if (i, k) in axes else n for k, n in enumerate(shape))
        for i, shape in enumerate(shapes)
    )


def _infer(graph: Graph, sizes: Sizes) -> Mapping[Value, TensorType] | None:
    """Types with these sizes; None when the network cannot work with them."""
    try:
        return infer(graph, dict(zip(graph.inputs, sizes, strict=True))).types
    except MgeError:
        return None
