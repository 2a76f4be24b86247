"""Editing of graphs: what MegEngine's `Network` offers and its users miss.

Every function keeps use-def links and order in step and leaves the graph valid or, when it raises,
as it was. A loop over `graph.nodes` sees the nodes of its beginning, whatever is edited meanwhile.
New operators are made with a builder placed in the graph::

    b = GraphBuilder.within(graph, after=value.node)
    replace_value(graph, value, b.relu(value), keep=[...])

Source of the list of edits: MegEngine v1.13.4 imperative/python/megengine/utils/network.py.
"""

from __future__ import annotations

import fnmatch
import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from mgeserial import params as P
from mgeserial._record import Params
from mgeserial.arguments import whole, wholes
from mgeserial.dtypes import DType, DTypeEnum
from mgeserial.errors import GraphError, InputError, MgeError, ShapeError
from mgeserial.ir.copying import copy_node, reachable
from mgeserial.ir.graph import INPUT, Graph, Node, Output, Value, input_name, unique_names
from mgeserial.ir.inference import infer
from mgeserial.ir.tensor import Tensor
from mgeserial.ops import registry

__all__ = [
    "add_output",
    "const_to_input",
    "extract",
    "find_input",
    "find_node",
    "find_value",
    "input_to_const",
    "merge",
    "remove_output",
    "remove_unused",
    "rename",
    "rename_nodes",
    "replace_node",
    "replace_value",
    "replace_values",
    "replace_weight",
    "select",
    "set_batch_size",
    "set_input_shapes",
    "set_param",
    "sort",
]

_T = TypeVar("_T")
_WEIGHT = "SharedDeviceTensor"


# -- finding --------------------------------------------------------------------------------------


def find_input(graph: Graph, name: str) -> Value:
    """The input that callers feed as `name`.

    Raises:
        InputError: There is none; the known ones are listed.
    """
    for value in graph.inputs:
        if input_name(value) == name:
            return value
    raise InputError(f"no input is called {name!r}", hint=f"inputs: {', '.join(graph.input_names)}")


def find_value(graph: Graph, name: str) -> Value:
    """The value called `name`: an output of the graph first, then an input, then any value.

    Raises:
        InputError: None or several inner values have the name.
    """
    for out, unique in zip(graph.output_list, graph.output_names, strict=True):
        if name in (out.name, unique):
            return out.value
    for value in graph.inputs:
        if input_name(value) == name:
            return value
    found = [v for v in graph.values() if v.name == name or v.display_name == name]
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(v.node.describe() for v in found[:4])
        raise InputError(f"{len(found)} values are called {name!r}", hint=f"of {places}")
    raise InputError(f"no value is called {name!r}", hint="`mgeserial info MODEL` lists names")


def find_node(graph: Graph, name: str) -> Node:
    """The operator called `name` (or shown under that name).

    Raises:
        InputError: None or several have the name.
    """
    found = [n for n in graph.nodes if n.name == name] or [
        n for n in graph.nodes if n.display_name == name
    ]
    if len(found) == 1:
        return found[0]
    raise InputError(f"{len(found) or 'no'} operators are called {name!r}")


def select(
    graph: Graph,
    *,
    type: str | Sequence[str] | None = None,
    name: str | None = None,
    dtype: DType | DTypeEnum | str | None = None,
    where: Callable[[Node], bool] | None = None,
) -> list[Node]:
    """Nodes that fit every given condition, in order.

    Args:
        graph: The graph.
        type: Name of the operator's record, or of several.
        name: Glob over the shown name, such as `conv*`.
        dtype: Element type of the first output, or its kind's name.
        where: Any further test.
    """
    types = {type} if isinstance(type, str) else None if type is None else set(type)
    for wanted in types or ():
        registry.by_name(wanted)
    found = []
    for node in graph.nodes:
        if types is not None and node.op.name not in types:
            continue
        if name is not None and not fnmatch.fnmatchcase(node.display_name, name):
            continue
        if dtype is not None and not _has_dtype(node, dtype):
            continue
        if where is None or where(node):
            found.append(node)
    return found


def _has_dtype(node: Node, dtype: DType | DTypeEnum | str) -> bool:
    if not node.outputs:
        return False
    actual = node.outputs[0].dtype
    if isinstance(dtype, DType):
        return actual == dtype
    wanted = dtype if isinstance(dtype, str) else dtype.name
    return actual.name.lower() == wanted.lower()


# -- order ----------------------------------------------------------------------------------------


def sort(graph: Graph) -> None:
    """Put the nodes in topological order, keeping the present order where it allows.

    Raises:
        GraphError: A node depends on itself.
    """
    nodes = graph.nodes
    place = {n: i for i, n in enumerate(nodes)}
    waiting = {n: len({v.node for v in n.inputs}) for n in nodes}
    ready = [place[n] for n in nodes if waiting[n] == 0]
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        node = nodes[heapq.heappop(ready)]
        order.append(node)
        for user in {u for v in node.outputs for u in v.users}:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, place[user])
    if len(order) != len(nodes):
        stuck = next(n for n in nodes if waiting[n] > 0)
        raise GraphError(f"{stuck.describe()} depends on itself")
    if order != list(nodes):
        graph.reorder(order)


# -- replacing ------------------------------------------------------------------------------------


def replace_value(graph: Graph, old: Value, new: Value, *, keep: Iterable[Node] = ()) -> int:
    """Let every user of `old` use `new`, outputs of the graph included; return their number.

    Args:
        graph: The graph of both values.
        old: The value to replace. What made it stays until `remove_unused`.
        new: The value to use instead.
        keep: Users that go on using `old`; what `new` is computed from always does.

    Raises:
        GraphError: `new` would depend on itself.
    """
    return replace_values(graph, {old: new}, keep=keep)


def replace_values(
    graph: Graph, mapping: Mapping[Value, Value], *, keep: Iterable[Node] = ()
) -> int:
    """As `replace_value` for several values at once."""
    spared = set(keep) | reachable(mapping.values())
    before = {n: n.inputs for old in mapping for n in old.users if n not in spared}
    outputs = graph.output_list
    order = graph.nodes
    count = 0
    for node, inputs in before.items():
        count += sum(v in mapping for v in inputs)
        graph.connect(node, [mapping.get(v, v) for v in inputs])
    changed = [
        Output(mapping[o.value], o.name, o.original_id) if o.value in mapping else o
        for o in outputs
    ]
    count += sum(o.value in mapping for o in outputs)
    graph.set_outputs(changed)
    try:
        sort(graph)
    except GraphError:
        for node, inputs in before.items():
            graph.connect(node, inputs)
        graph.set_outputs(outputs)
        graph.reorder(order)
        raise
    return count


def replace_node(graph: Graph, old: Node, new: Node) -> None:
    """Let users of each output of `old` use that of `new`, and remove `old`.

    Raises:
        GraphError: They do not have equally many outputs.
    """
    if len(old.outputs) != len(new.outputs):
        raise GraphError(
            f"{old.describe()} has {len(old.outputs)} outputs, {new.describe()} {len(new.outputs)}"
        )
    replace_values(graph, dict(zip(old.outputs, new.outputs, strict=True)))
    if not any(v.users for v in old.outputs):
        graph.remove(old)


def set_param(graph: Graph, node: Node, index: int = 0, **changes: Any) -> Params:
    """Replace fields of a node's parameter record; the types downstream are inferred anew.

    Raises:
        ShapeError: The graph does not fit together with the new parameters (nothing is changed).
        InputError: No such field or record.
    """
    params = node.params
    record: object = _pick(params, index, f"{node.describe()} has", "parameter records")
    if not isinstance(record, Params):
        raise GraphError(f"{node.describe()} has parameters of an unknown kind")
    if record.extra is not None:
        raise GraphError(f"{node.describe()} has fields of a newer release: they cannot be edited")
    unknown = [n for n in changes if n not in record.FIELDS]
    if unknown:
        raise InputError(f"no field {unknown[0]!r}", hint=f"fields: {', '.join(record.FIELDS)}")
    new = record.replace(**changes)
    graph.set_params(node, (*params[:index], new, *params[index + 1 :]))
    try:
        infer(graph)
    except MgeError:
        graph.set_params(node, params)
        raise
    return new


def replace_weight(graph: Graph, node: Node, array: np.ndarray[Any, Any], index: int = 0) -> None:
    """Replace the value of a weight or constant by one of the same shape and storage dtype.

    Raises:
        ShapeError: Another shape; InputError: another dtype, or no such value.
    """
    old = _pick(node.tensors, index, f"{node.describe()} holds", "values")
    array = np.asarray(array)
    if tuple(array.shape) != tuple(old.shape):
        raise ShapeError(f"{node.describe()} has shape {old.shape}, got {array.shape}")
    new = Tensor.of(array, old.dtype, name=old.name, comp_node=old.comp_node)
    graph.set_tensors(node, (*node.tensors[:index], new, *node.tensors[index + 1 :]))


def _pick(items: tuple[_T, ...], index: int, owner: str, what: str) -> _T:
    if not 0 <= index < len(items):
        raise InputError(f"{owner} {len(items)} {what}: there is no number {index}")
    return items[index]


# -- names, outputs -------------------------------------------------------------------------------


def rename(graph: Graph, value: Value, name: str) -> None:
    """Give a value another name; of an input, the name that callers feed it by.

    Raises:
        InputError: An input or output has that name.
    """
    is_input = value.node.is_input
    if is_input and name in graph.input_names and input_name(value) != name:
        raise InputError(f"an input is called {name!r} already")
    if any(o.name == name and o.value is not value for o in graph.output_list):
        raise InputError(f"an output is called {name!r} already")
    if is_input:
        graph.set_tensors(value.node, (value.node.tensors[0].renamed(name),))
    value.name = name
    graph.set_outputs(
        [Output(o.value, name, o.original_id) if o.value is value else o for o in graph.output_list]
    )


def rename_nodes(graph: Graph, make: str | Callable[[str], str]) -> None:
    """Rename all operators: a prefix, or a function of the old (shown) name."""
    change = make if callable(make) else lambda name: f"{make}{name}"
    names = [(n, change(n.display_name)) for n in graph.nodes]
    for node, name in names:
        node.name = name
    graph.touch()


def add_output(graph: Graph, value: Value, name: str | None = None) -> None:
    """Make a value an output of the graph.

    Raises:
        InputError: An output has that name.
    """
    if value.node.graph is not graph:
        raise GraphError(f"{value!r} belongs to another graph")
    label = name or value.name
    if label is not None and any(o.name == label for o in graph.output_list):
        raise InputError(f"an output is called {label!r} already")
    if name is not None and value.name is None:
        value.name = name
    original = max((o.original_id for o in graph.output_list), default=-1) + 1
    graph.set_outputs([*graph.output_list, Output(value, label, original)])


def remove_output(graph: Graph, name: str) -> None:
    """Remove an output by name; what only it needed stays until `remove_unused`.

    Raises:
        InputError: No such output, or it is the last one.
    """
    names = graph.output_names
    if name not in names:
        raise InputError(f"no output is called {name!r}", hint=f"outputs: {', '.join(names)}")
    if len(names) == 1:
        raise InputError(f"{name!r} is the only output")
    kept = [o for o, n in zip(graph.output_list, names, strict=True) if n != name]
    graph.set_outputs(kept)


def remove_unused(graph: Graph, *, inputs: bool = False) -> int:
    """Remove nodes that no output needs; return their number.

    Args:
        graph: The graph.
        inputs: Whether unused inputs go too; by default callers may still feed them.
    """
    needed = reachable(graph.outputs)
    count = 0
    for node in reversed(graph.nodes):
        if node not in needed and (inputs or not node.is_input):
            graph.remove(node)
            count += 1
    return count


# -- parts, inputs, shapes ------------------------------------------------------------------------


def extract(graph: Graph, inputs: Sequence[Value], outputs: Sequence[Value]) -> Graph:
    """The part of a graph between values, as a graph of its own.

    Args:
        graph: The graph; it stays as it is.
        inputs: Values that become inputs, under their names, with their inferred types; one that
            is given twice counts once.
        outputs: Values that become outputs.

    Raises:
        GraphError: An output needs an input of the graph that is not among `inputs`.
    """
    inputs = list(dict.fromkeys(inputs))
    cut = set(inputs)
    new = Graph(name=graph.name)
    new.metadata, new.path = graph.metadata, graph.path
    values: dict[Value, Value] = {}
    labels = (input_name(v) if v.node.is_input else v.display_name for v in inputs)
    for value, name in zip(inputs, unique_names(labels), strict=True):
        values[value] = _new_input(new, value, name)
    needed = _between(outputs, cut)
    for node in graph.nodes:
        if node in needed:
            if node.is_input and node.outputs[0] not in cut:
                wanted = input_name(node.outputs[0])
                raise GraphError(f"the part needs input {wanted!r}, which is not among its inputs")
            kept = {v: values[v] for v in node.outputs if v in values}
            copy_node(new, node, values)
            values.update(kept)
    names = {o.value: o.name for o in graph.output_list}
    new.set_outputs(
        [Output(values[v], names.get(v) or v.display_name, i) for i, v in enumerate(outputs)]
    )
    return new


def _between(outputs: Sequence[Value], cut: set[Value]) -> set[Node]:
    """Nodes that outputs need without going through the values in `cut`."""
    stack = [v for v in outputs if v not in cut]
    seen: set[Node] = set()
    while stack:
        node = stack.pop().node
        if node not in seen:
            seen.add(node)
            stack += [v for v in node.inputs if v not in cut]
    return seen


def _new_input(graph: Graph, like: Value, name: str) -> Value:
    """Add an input of the type of `like`."""
    kind = like.type
    shape = kind.dims if kind.is_static else ()
    tensor = Tensor(shape=shape, dtype=kind.dtype, name=name, comp_node="xpux:0")
    record = P.Host2DeviceCopy()
    node = graph.add(
        registry.by_name(INPUT), (), outputs=[name], params=(record,), tensors=(tensor,)
    )
    return node.outputs[0]


def const_to_input(graph: Graph, node: Node, name: str) -> Value:
    """Turn a weight or constant into an input called `name`; return its value.

    Raises:
        InputError: An input has that name; GraphError: the node holds no single tensor.
    """
    if len(node.tensors) != 1 or node.is_input:
        raise GraphError(f"{node.describe()} is no single weight or constant")
    if name in graph.input_names:
        raise InputError(f"an input is called {name!r} already")
    old = node.tensors[0]
    tensor = Tensor(shape=old.shape, dtype=old.dtype, name=name, comp_node=old.comp_node)
    graph.set_op(node, registry.by_name(INPUT), (P.Host2DeviceCopy(),))
    graph.set_tensors(node, (tensor,))
    node.outputs[0].name = name
    return node.outputs[0]


def input_to_const(graph: Graph, name: str, array: np.ndarray[Any, Any]) -> Value:
    """Turn an input into a weight that holds `array`; return its value.

    Raises:
        InputError: No such input, another dtype; ShapeError: the network does not take the shape.
    """
    value = find_input(graph, name)
    node = value.node
    before = node.op, node.params, node.tensors, node.stored_id
    tensor = Tensor.of(array, node.tensors[0].dtype, name=name)
    graph.set_op(node, registry.by_name(_WEIGHT), ())
    graph.set_tensors(node, (tensor,))
    try:
        infer(graph)
    except MgeError:
        graph.set_op(node, *before[:2])
        graph.set_tensors(node, before[2])
        node.stored_id = before[3]
        raise
    return value


def set_input_shapes(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> None:
    """Change the stored shapes of inputs; everything downstream is inferred anew.

    Raises:
        InputError: No such input, or no shape.
        ShapeError: The network does not work with the shapes: names the operator that bakes an
            old shape in. Nothing is changed then.
    """
    after: dict[Node, tuple[Tensor, ...]] = {}
    for name, shape in shapes.items():
        node = find_input(graph, name).node
        old = node.tensors[0]
        dims = wholes(shape, f"dimensions of input {name!r}", least=0)
        if not 1 <= len(dims) <= 7:
            raise InputError(f"input {name!r}: a shape has 1 to 7 dimensions, got {dims}")
        tensor = Tensor(shape=dims, dtype=old.dtype, name=old.name, comp_node=old.comp_node)
        after[node] = (tensor,)
    before = {node: node.tensors for node in after}
    for node, tensors in after.items():
        graph.set_tensors(node, tensors)
    try:
        infer(graph)
    except MgeError as error:
        for node, tensors in before.items():
            graph.set_tensors(node, tensors)
        error.message += "; the operator bakes the old shape in"
        raise


def set_batch_size(graph: Graph, size: int, *, except_for: Iterable[str] = ()) -> None:
    """Set the first dimension of every input, but for some.

    Raises:
        ShapeError: As `set_input_shapes`.
    """
    spared = set(except_for)
    size = whole(size, "the batch size", least=0)
    shapes = {}
    for value in graph.inputs:
        name, kind = input_name(value), value.type
        if name not in spared and kind.is_static:
            shapes[name] = (size, *kind.dims[1:])
    set_input_shapes(graph, shapes)


def merge(graphs: Sequence[Graph], *, prefixes: Sequence[str] | None = None) -> Graph:
    """One graph that holds several side by side: their inputs and outputs one after another.

    Inputs of one name must be of one type and become one, unless `prefixes` keep them apart.

    Raises:
        GraphError: Inputs of one name and different types, or outputs of one name.
        InputError: Not one prefix for each graph.
    """
    if prefixes is not None and len(prefixes) != len(graphs):
        raise InputError(f"{len(prefixes)} prefixes for {len(graphs)} graphs")
    new = Graph()
    shared: dict[str, Value] = {}
    outputs: list[Output] = []
    for k, graph in enumerate(graphs):
        prefix = prefixes[k] if prefixes is not None else ""
        values: dict[Value, Value] = {}
        for node in graph.nodes:
            name = prefix + input_name(node.outputs[0]) if node.is_input else ""
            if name in shared:
                values[node.outputs[0]] = _same_input(shared[name], node.outputs[0], name)
                continue
            copied = copy_node(new, node, values)
            if name:
                shared[name] = copied.outputs[0]
                new.set_tensors(copied, (copied.tensors[0].renamed(name),))
        for out, unique in zip(graph.output_list, graph.output_names, strict=True):
            label = prefix + (out.name or unique)
            if any(o.name == label for o in outputs):
                raise GraphError(f"two outputs are called {label!r}", hint="give prefixes")
            outputs.append(Output(values[out.value], label, len(outputs)))
    new.set_outputs(outputs)
    new.metadata = graphs[0].metadata if graphs else None
    return new


def _same_input(first: Value, second: Value, name: str) -> Value:
    a, b = first.node.tensors[0], second.node.tensors[0]
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        raise GraphError(
            f"input {name!r} is {a.dtype} {a.shape} here and {b.dtype} {b.shape} there",
            hint="give prefixes to keep them apart",
        )
    return first
