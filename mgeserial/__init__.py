"""Read, inspect, edit and write MegEngine `.mge` models without MegEngine.

model = mgeserial.load("net.mge")
for value in model.graph.inputs:
    print(value.name, value.shape, value.dtype)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mgeserial._version import __version__

if TYPE_CHECKING:
    from mgeserial.errors import (
        ConversionError,
        ExecutionError,
        FormatError,
        GraphError,
        InputError,
        LoweringError,
        MgeError,
        NotAModelError,
        PassError,
        ShapeError,
        UnsupportedError,
    )
    from mgeserial.format.tensor_dump import load_tensor_binary
    from mgeserial.ir.graph import Graph, Node, Value
    from mgeserial.ir.model import Model
    from mgeserial.ir.tensor import Tensor
    from mgeserial.reading import iter_graphs, load
    from mgeserial.saving import dumps, save

__all__ = [
    "ConversionError",
    "ExecutionError",
    "FormatError",
    "Graph",
    "GraphError",
    "InputError",
    "LoweringError",
    "MgeError",
    "Model",
    "Node",
    "NotAModelError",
    "PassError",
    "ShapeError",
    "Tensor",
    "UnsupportedError",
    "Value",
    "__version__",
    "dumps",
    "iter_graphs",
    "load",
    "load_tensor_binary",
    "save",
]

# Where each public name lives. They are imported when first asked for, so that a command line that
# only prints its help loads neither numpy nor the operators.
_HOMES = {
    "Graph": "mgeserial.ir.graph",
    "Node": "mgeserial.ir.graph",
    "Value": "mgeserial.ir.graph",
    "Model": "mgeserial.ir.model",
    "Tensor": "mgeserial.ir.tensor",
    "iter_graphs": "mgeserial.reading",
    "load": "mgeserial.reading",
    "load_tensor_binary": "mgeserial.format.tensor_dump",
    "dumps": "mgeserial.saving",
    "save": "mgeserial.saving",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mgeserial' has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOMES.get(name, "mgeserial.errors")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
