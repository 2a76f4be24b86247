"""Read, inspect, edit and write MegEngine `.mge` models without MegEngine.

Example::

    model = mgeserial.load("net.mge")
    for value in model.graph.inputs:
        print(value.name, value.shape, value.dtype)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mgeserial._version import __version__
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Graph, Node, Value
from mgeserial.ir.model import Model
from mgeserial.ir.tensor import Tensor
from mgeserial.reading import iter_graphs, load

if TYPE_CHECKING:
    from mgeserial.author import GraphBuilder

__all__ = [
    "Graph",
    "GraphBuilder",
    "MgeError",
    "Model",
    "Node",
    "Tensor",
    "Value",
    "__version__",
    "iter_graphs",
    "load",
]


def __getattr__(name: str) -> Any:
    """Import the builder when it is first asked for: reading a file does not need it."""
    if name == "GraphBuilder":
        from mgeserial.author import GraphBuilder

        return GraphBuilder
    raise AttributeError(f"module 'mgeserial' has no attribute {name!r}")
