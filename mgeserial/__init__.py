"""Read, inspect, edit and write MegEngine `.mge` models without MegEngine.

model = mgeserial.load("net.mge")
for value in model.graph.inputs:
    print(value.name, value.shape, value.dtype)
"""

from mgeserial._version import __version__
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Graph, Node, Value
from mgeserial.ir.model import Model
from mgeserial.ir.tensor import Tensor
from mgeserial.reading import iter_graphs, load

__all__ = [
    "Graph",
    "MgeError",
    "Model",
    "Node",
    "Tensor",
    "Value",
    "__version__",
    "iter_graphs",
    "load",
]
