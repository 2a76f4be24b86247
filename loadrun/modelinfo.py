"""What is told of a model: the table that `--model-info` prints, work that depends on values."""

from __future__ import annotations

from collections.abc import Mapping

from loadrun.texttable import text_table
from mgeserial.errors import printable
from mgeserial.ir.copying import reachable
from mgeserial.ir.graph import Graph
from mgeserial.ir.types import TensorType

__all__ = ["model_info", "varying_operators"]

# How much they do, or is done after them, depends on the values they are given.
_VARYING = frozenset({"CondExecPred", "CondTake", "Loop", "NMSKeep", "NonZero"})


def model_info(
    inputs: Mapping[str, TensorType], outputs: Mapping[str, TensorType], *, about: str = ""
) -> str:
    """Names, element types, shapes and sizes.

    Args:
        inputs: Types by name.
        outputs: Types by name.
        about: What the table is of.
    """
    rows = [_row("input", name, found) for name, found in inputs.items()]
    rows += [_row("output", name, found) for name, found in outputs.items()]
    head = ["", "name", "type", "shape", "bytes"]
    return "\n".join([f"inputs and outputs of {about}", *text_table(head, rows, left=(0, 1, 2, 3))])


def varying_operators(graph: Graph) -> tuple[str, ...]:
    """Kinds of operators that outputs need and whose work depends on values, by name."""
    needed = reachable(graph.outputs)
    return tuple(sorted({n.op.name for n in needed if n.op.name in _VARYING}))


def _row(kind: str, name: str, found: TensorType) -> list[str]:
    shape = (
        "?"
        if found.shape is None
        else "{" + ",".join("?" if n is None else str(n) for n in found.shape) + "}"
    )
    size = str(found.dtype.nbytes(found.dims)) if found.is_static else "n/a"
    return [kind, printable(name), str(found.dtype), shape, size]
