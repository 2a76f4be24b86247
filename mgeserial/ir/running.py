"""One operator applied to arrays by its reference code, with errors that say which one it was."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mgeserial.dtypes import Array
from mgeserial.errors import ExecutionError, MgeError, UnsupportedError
from mgeserial.ir.graph import Node
from mgeserial.ir.inference import explain
from mgeserial.ir.memory import check_outputs
from mgeserial.ir.types import ABSENT, Call, TensorType

__all__ = ["run_node"]


def run_node(node: Node, call: Call, arrays: Sequence[Array]) -> Sequence[Array]:
    """Apply a node to arrays; errors name the operator, its place and what it was given.

    Raises:
        MgeError: What the operator refuses.
        ExecutionError: Anything else that went wrong inside it.
    """
    if any(a is ABSENT for a in arrays) and "reads-absent" not in getattr(node.op, "tags", ()):
        return [ABSENT] * len(node.outputs)
    reference, shapes = node.op.reference, None
    if any(not t.is_static or t.dims != a.shape for t, a in zip(call.inputs, arrays, strict=True)):
        # Shapes that only this run knows: the shape rule has not seen, so not checked them yet.
        types = [TensorType(t.dtype, a.shape) for t, a in zip(call.inputs, arrays, strict=True)]
        call = call.replace(inputs=tuple(types), count=len(node.outputs))
        shapes = node.op.shapes
    elif not all(t.is_static for t in call.output_types):
        call = call.replace(count=len(node.outputs))
        shapes = node.op.shapes
    try:
        if reference is None:
            raise UnsupportedError("no reference code")
        if shapes is None:
            check_outputs(call.output_types)
        elif not any(a is ABSENT for a in arrays):
            found = shapes(call.replace(values=tuple(arrays)))
            check_outputs(
                [TensorType(t.dtype, s) for t, s in zip(call.output_types, found, strict=False)]
            )
        with np.errstate(all="ignore"):
            results = reference(call, *arrays)
    except MgeError as error:
        raise explain(error, node, call.inputs) from error.__cause__
    except Exception as error:
        failed = ExecutionError(f"failed: {type(error).__name__}: {error}")
        raise explain(failed, node, call.inputs) from error
    return (results,) if isinstance(results, np.ndarray) else results
