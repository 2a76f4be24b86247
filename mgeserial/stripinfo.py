"""What a runtime needs to keep for a model: the `.json` that MegEngine writes beside a dump.

`tools/gen_header_for_bin_reduce.py` of MegEngine makes a header of such files, with which a build
leaves out every kernel that the models do not use.

Source: files written by MegEngine 1.13.0 (`strip_info_file`): keys `dtypes`, `elemwise_modes`,
`opr_types`, `hash`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mgeserial.ir.graph import Graph

__all__ = ["strip_info"]

# Operators that MegEngine runs without a workspace of bytes; all others are counted as having one,
# for to keep too much is harmless.
_NO_WORKSPACE = frozenset(
    {
        "Elemwise",
        "ElemwiseMultiType",
        "Host2DeviceCopy",
        "ImmutableTensor",
        "SharedDeviceTensor",
        "TypeCvt",
    }
)


def strip_info(graphs: Iterable[Graph], graph_hash: int) -> dict[str, Any]:
    """Operator types, element types and elementwise modes of graphs, sorted.

    Args:
        graphs: The network and its test cases.
        graph_hash: Hash of the network as stored (0 in v2 files, which have none).
    """
    types: set[str] = set()
    oprs: set[str] = set()
    modes: set[str] = set()
    for graph in graphs:
        inferred = graph.inference.types
        for node in graph.nodes:
            name = getattr(node.op, "runtime_name", None) or node.op.name
            oprs.add(name)
            types.update(inferred[v].dtype.name for v in node.outputs if v in inferred)
            if name not in _NO_WORKSPACE:
                types.add("Byte")
            if node.op.name == "Elemwise":
                modes.add(node.param.mode.name.rstrip("_"))
    return {
        "dtypes": sorted(types),
        "elemwise_modes": sorted(modes),
        "opr_types": sorted(oprs),
        "hash": graph_hash,
    }
