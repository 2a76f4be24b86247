"""Entries that belong to places found at run time: linked lists, one a place.

A place gathers what belongs to it, in ascending order of the entries: sums are the same in every
run, which sums by atomic additions are not.
"""

from __future__ import annotations

import math

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.lower import Lowering, NotApplicable
from mgeserial.ir.graph import Node

__all__ = ["fill", "link", "name_of", "verify"]


_MOST = (1 << 31) - 1


def name_of(node: Node) -> str:
    """What a message calls an operator."""
    return node.display_name or node.op.name


def fill(low: Lowering, node: Node, tensor: str, items: int, value: int) -> None:
    """Set all 32-bit elements of a tensor."""
    params: tuple[nd.Param, ...] = (nd.Out(tensor), items, value)
    low.add(nd.Custom(low.label(node), (tensor,), "fill", (), params, items, stem="fill"))


def link(
    low: Lowering, node: Node, keys: str, entries: int, places: int, *, ordered: bool = True
) -> tuple[str, str]:
    """Lists of the entries of each place.

    Args:
        low: The walk.
        node: The operator.
        keys: int32 tensor: the place of each entry, below 0 for none.
        entries: Number of entries.
        places: Number of places.
        ordered: Sort each list.

    Returns:
        Tensors `heads` (places,) and `next` (entries,), int32; -1 ends a list.

    Raises:
        NotApplicable: There are more entries or places than 31 bits count.
    """
    if max(entries, places) > _MOST:
        raise NotApplicable("more entries than 31 bits count")
    heads = low.temp((places,), "int32", "i32")
    after = low.temp((entries,), "int32", "i32")
    fill(low, node, heads, places, -1)
    params: tuple[nd.Param, ...] = (nd.In(keys), nd.Out(heads), nd.Out(after), entries)
    outs = (heads, after)
    low.add(nd.Custom(low.label(node), outs, "link", (), params, entries, stem="link"))
    if ordered:
        params = (nd.Out(heads), nd.Out(after), places)
        low.add(nd.Custom(low.label(node), outs, "link_sort", (), params, places, stem="link_sort"))
    return outs


def verify(low: Lowering, node: Node, x: str, test: str, message: str) -> None:
    """Note an error in the run when an element of a tensor does not pass a test.

    Args:
        low: The walk.
        node: The operator.
        x: The tensor that is looked at.
        test: C code of an element `v`.
        message: What the error says behind the operator's name.
    """
    items = math.prod(low.tensors[x].shape)
    params: tuple[nd.Param, ...] = (nd.In(x), nd.Check(f"{name_of(node)}: {message}"), items)
    fields = (("XT", low.tensors[x].ctype), ("TEST", test))
    low.add(nd.Custom(low.label(node), (), "verify", fields, params, items, stem="verify"))
