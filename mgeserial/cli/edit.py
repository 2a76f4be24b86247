"""`mgeserial edit`: the common edits of a network, one after another, into a new file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgeserial.ir.graph import Graph, Node, Value
    from mgeserial.ir.model import Model
    from mgeserial.testcases import Case

__all__ = ["DESCRIPTION", "EPILOG", "add_arguments", "edited", "execute"]

DESCRIPTION = (
    "Change a network and write the result. Edits are made in the order they are given; when one\n"
    "fails, nothing is written. Types and shapes are inferred anew after each."
)
EPILOG = (
    "examples:\n"
    "  mgeserial edit net.mge -o out.mge --batch-size 8\n"
    "  mgeserial edit net.mge -o out.mge --rename-input data=image --rename-output prob=scores\n"
    "  mgeserial edit net.mge -o part.mge --extract 'data:RELU[3]' --remove-unused\n"
    "  mgeserial edit net.mge -o out.mge --set 17.stride_h=1 --set 17.stride_w=1\n\n"
    "Names are those that `mgeserial info` and `mgeserial graph` show; operators may be named by\n"
    "their place (17). In lists a backslash before , : = makes it part of a name.\n"
    "exit codes: 0 done, 2 an edit is not possible, bad usage or file, 3 unsupported"
)


class _Ordered(argparse.Action):
    """Keeps edits of different options in the order of the command line."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        found = list(getattr(namespace, self.dest) or ())
        found.append((option, values if isinstance(values, str) else ""))
        setattr(namespace, self.dest, found)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", metavar="IN", help="the file")
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="the file to write")
    parser.add_argument("-f", "--force", action="store_true", help="replace OUT if it exists")
    parser.add_argument(
        "--graph", type=int, default=0, metavar="N", help="which graph of the file (0)"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")
    edits = parser.add_argument_group("edits, made in the order given")
    for option, (metavar, text, _) in _EDITS.items():
        edits.add_argument(
            option,
            action=_Ordered,
            dest="edits",
            metavar=metavar,
            nargs=None if metavar else 0,
            help=text,
        )


def execute(args: argparse.Namespace) -> int:
    """Edit and write."""
    from mgeserial.cli.output import refuse_existing
    from mgeserial.errors import InputError, printable
    from mgeserial.reading import load
    from mgeserial.render import plural, size_text
    from mgeserial.saving import save

    if not args.edits:
        raise InputError("no edit is given", hint="`mgeserial edit --help` lists them")
    refuse_existing(args.output, force=args.force)
    model = load(args.model)
    model.graph_at(args.graph)
    model, done = edited(model, args.graph, args.edits)
    saved = save(model, args.output)
    if not args.quiet:
        for text in done:
            print(text)
        count = plural(len(model.graphs[args.graph].nodes), "operator")
        where = printable(args.output, limit=200)
        print(f"wrote {where}: {count}, {size_text(saved.nbytes)}")
        if model.info is not None and model.info.lite is not None:
            print("note: the MegEngine Lite package around the model is not kept", file=sys.stderr)
    return 0


def edited(model: Model, index: int, edits: Sequence[tuple[str, str]]) -> tuple[Model, list[str]]:
    """The model with edits made in order, and what was done in words.

    Args:
        model: The model; it is changed, also by edits before one that fails.
        index: Which of its graphs.
        edits: (option, its text) of each.

    Raises:
        MgeError: An edit is not possible; says which one.
    """
    from mgeserial.errors import MgeError
    from mgeserial.testcases import cases_of

    graph = model.graphs[index]
    fits = _fits(graph)
    before = dict(zip(graph.input_names, graph.inputs, strict=True))
    shapes = {v: v.node.tensors[0].shape for v in before.values() if v.node.tensors}
    with_cases = index == 0 and model.info is not None and model.info.testcases is not None
    cases = cases_of(model) if with_cases else []
    done = []
    for option, text in edits:
        try:
            graph, words = _EDITS[option][2](graph, text)
        except MgeError as error:
            error.message = f"{option} {text}".strip() + f": {error.message}"
            raise
        done.append(words)
    if fits:
        graph.inference  # noqa: B018 - raises when the edits together do not fit
    model.graphs[index] = graph
    if with_cases:
        model = _with_cases(model, cases, before, shapes)
    return model, done


def _fits(graph: Graph) -> bool:
    from mgeserial.errors import MgeError

    try:
        graph.inference  # noqa: B018 - computed here, for its errors
    except MgeError:
        return False
    return True


def _with_cases(
    model: Model,
    cases: Sequence[Case],
    before: Mapping[str, Value],
    shapes: Mapping[Value, tuple[int, ...]],
) -> Model:
    """The edited network with its test cases: their values under the new names of inputs.

    Args:
        model: The model with its edited network and the test cases of before.
        cases: The test cases of before.
        before: Inputs by their names of before.
        shapes: Their shapes of before.

    Raises:
        InputError: An input is new or has another shape, so that no value is known for it.
    """
    from dataclasses import replace

    from mgeserial.errors import InputError
    from mgeserial.testcases import make_model

    hint = "`mgeserial strip --testcases` takes the test cases out first"
    graph = model.graph
    old_name = {v: n for n, v in before.items()}
    sources = {}
    for name, value in zip(graph.input_names, graph.inputs, strict=True):
        # A part that was cut out has inputs of its own, with the names of before.
        old = old_name.get(value, name)
        if old not in before:
            raise InputError(f"the test cases have no value for input {name!r}", hint=hint)
        shape = shapes.get(before[old])
        if value.node.tensors[0].shape != shape:
            raise InputError(
                f"the test cases have values of shape {shape} for input {name!r}", hint=hint
            )
        sources[name] = old
    if list(sources.items()) == [(n, n) for n in before]:
        return model
    renamed = [
        replace(
            case,
            arrays={new: case.arrays[old] for new, old in sources.items()},
            random={new: case.random[old] for new, old in sources.items() if old in case.random},
        )
        for case in cases
    ]
    return make_model(graph, renamed, like=model)


# -- reading the arguments ------------------------------------------------------------------------


def split_text(text: str, separator: str, most: int = -1) -> list[str]:
    """Split at a character; a backslash in front of it, or of a backslash, makes it plain."""
    parts, part = [], ""
    escaped = False
    for c in text:
        if escaped:
            part += c if c in f"\\{separator}" else f"\\{c}"
            escaped = False
        elif c == "\\":
            escaped = True
        elif c == separator and most != 0:
            parts.append(part)
            part = ""
            most -= 1
        else:
            part += c
    return [*parts, part + ("\\" if escaped else "")]


def _pair(text: str, what: str) -> tuple[str, str]:
    from mgeserial.errors import InputError

    parts = split_text(text, "=", 1)
    if len(parts) != 2 or not all(parts):
        raise InputError(f"expected {what}", hint="a `=` inside a name is written `\\=`")
    return parts[0], parts[1]


def _numbers(text: str, what: str) -> tuple[int, ...]:
    from mgeserial.errors import InputError

    try:
        numbers = tuple(int(t) for t in text.replace("x", ",").split(",") if t.strip())
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 0 or max(numbers) >= 1 << 31:
        raise InputError(f"expected {what}, got {text!r}")
    return numbers


def _node(graph: Graph, name: str) -> Node:
    """An operator by its place or its name."""
    from mgeserial import editing
    from mgeserial.errors import InputError

    if name.isascii() and name.isdigit() and len(name) < 12:
        nodes = graph.nodes
        if int(name) >= len(nodes):
            raise InputError(f"there is no operator {name}: the graph has {len(nodes)}")
        return nodes[int(name)]
    return editing.find_node(graph, name)


def _values(graph: Graph, text: str) -> list[Value]:
    """Values of a list of names; commas inside names that the graph has need no backslash."""
    from mgeserial import editing

    known = {*graph.output_names, *graph.input_names}
    known.update(v.display_name for v in graph.values())
    parts = split_text(text, ",")
    found = []
    start = 0
    while start < len(parts):
        ends = range(len(parts), start, -1)
        end = next((e for e in ends if ",".join(parts[start:e]) in known), start + 1)
        name = ",".join(parts[start:end])
        if name:
            found.append(editing.find_value(graph, name))
        start = end
    return found


# -- edits: each takes the graph and its argument, gives the graph and what was done --------------


def _rename(graph: Graph, text: str) -> tuple[Graph, str]:
    from mgeserial import editing

    old, new = _pair(text, "OLD=NEW")
    editing.rename(graph, editing.find_value(graph, old), new)
    return graph, f"value {_show(old)} is called {_show(new)}"


def _rename_input(graph: Graph, text: str) -> tuple[Graph, str]:
    from mgeserial import editing

    old, new = _pair(text, "OLD=NEW")
    editing.rename(graph, editing.find_input(graph, old), new)
    return graph, f"input {_show(old)} is called {_show(new)}"


def _rename_output(graph: Graph, text: str) -> tuple[Graph, str]:
    from mgeserial import editing
    from mgeserial.errors import InputError
    from mgeserial.ir.graph import Output

    old, new = _pair(text, "OLD=NEW")
    names = graph.output_names
    if old not in names:
        raise InputError(f"no output is called {old!r}", hint=f"outputs: {', '.join(names)}")
    if new in names:
        raise InputError(f"an output is called {new!r} already")
    place = names.index(old)
    outputs = list(graph.output_list)
    value = outputs[place].value
    if graph.outputs.count(value) == 1 and value not in graph.inputs:
        editing.rename(graph, value, new)
    else:  # the value has other names as well, which stay
        outputs[place] = Output(value, new, outputs[place].original_id)
        graph.set_outputs(outputs)
    return graph, f"output {_show(old)} is called {_show(new)}"


def _add_output(graph: Graph, text: str) -> tuple[Graph, str]:
    from mgeserial import editing

    parts = split_text(text, "=", 1)
    name, label = parts[0], parts[-1]
    editing.add_output(graph, editing.find_value(graph, name), label)
    return graph, f"output {_show(label)} added"


def _remove_output(graph: Graph, text: str) -> tuple[Graph, str]:
    from mgeserial import editing

    editing.remove_output(graph, text)
    return graph, f"output {_show(text)} removed"


def _extract(graph: Graph, text: str) -> tuple[Graph, str]:
    from mgeserial import editing
    from mgeserial.errors import InputError
    from mgeserial.render import plural

    parts = split_text(text, ":")
    if len(parts) != 2 or not parts[1]:
        raise InputError(
            "expected INPUTS:OUTPUTS, names separated by commas",
            hint="a `,` or `:` inside a name is written `\\,` or `\\:`",
        )
    # Each list is split at commas in its turn, with what was escaped for it still escaped.
    inputs, outputs = (_values(graph, part) for part in parts)
    part = editing.extract(graph, inputs, outputs)
    count = plural(len(part.nodes), "operator")
    return part, f"cut out {count} of {len(graph.nodes)}"


def _batch_size(graph: Graph, text: str) -> tuple[Graph, str]:
    from mgeserial import editing
    from mgeserial.errors import InputError

    numbers = _numbers(text, "a number from 1")
    if len(numbers) != 1 or not numbers[0]:
        raise InputError(f"expected a number from 1, got {text!r}")
    editing.set_batch_size(graph, numbers[0])
    return graph, f"batch size {numbers[0]}"


def _input_shape(graph: Graph, text: str) -> tuple[Graph, str]:
    from mgeserial import editing

    name, dims = _pair(text, "NAME=1,3,224,224")
    shape = _numbers(dims, "dimensions such as 1,3,224,224")
    editing.set_input_shapes(graph, {name: shape})
    return graph, f"input {_show(name)} has shape {shape}"


def _const_to_input(graph: Graph, text: str) -> tuple[Graph, str]:
    from mgeserial import editing

    parts = split_text(text, "=", 1)
    name, label = parts[0], parts[-1]
    held = [n for n in graph.params if len(n.tensors) == 1 and n.tensors[0].name == name]
    node = held[0] if len(held) == 1 else editing.find_value(graph, name).node
    editing.const_to_input(graph, node, label)
    return graph, f"constant {_show(name)} is input {_show(label)}"


def _input_to_const(graph: Graph, text: str) -> tuple[Graph, str]:
    from mgeserial import editing
    from mgeserial.arrayfiles import read_npy

    name, path = _pair(text, "NAME=FILE.npy")
    editing.input_to_const(graph, name, read_npy(path))
    return graph, f"input {_show(name)} is a constant"


def _remove_unused(graph: Graph, _: str) -> tuple[Graph, str]:
    from mgeserial import editing
    from mgeserial.render import plural

    return graph, f"{plural(editing.remove_unused(graph), 'unused operator')} removed"


def _set(graph: Graph, text: str) -> tuple[Graph, str]:
    from mgeserial import editing
    from mgeserial._record import Params
    from mgeserial.errors import InputError, printable

    target, value = _pair(text, "OPERATOR.PARAMETER=VALUE")
    name, dot, field = target.rpartition(".")
    if not dot or not name:
        raise InputError("expected OPERATOR.PARAMETER=VALUE")
    node = _node(graph, name)
    records = [(i, r) for i, r in enumerate(node.params) if isinstance(r, Params)]
    every = [(i, r) for i, r in records if field in r.FIELDS]
    if not every:
        known = [n for _, r in records for n in r.FIELDS]
        raise InputError(
            f"{node.describe()} has no parameter {field!r}",
            hint=f"parameters: {', '.join(known) or 'none'}",
        )
    index, record = every[0]
    before = getattr(record, field)
    editing.set_param(graph, node, index, **{field: parse_value(value, before)})
    return graph, f"{node.describe()}: {field} {before} -> {printable(value)}"


def _prefix(graph: Graph, text: str) -> tuple[Graph, str]:
    from mgeserial import editing
    from mgeserial.render import plural

    editing.rename_nodes(graph, text)
    return graph, f"names of {plural(len(graph.nodes), 'operator')} begin with {_show(text)}"


def _show(name: str) -> str:
    from mgeserial.errors import printable

    return repr(printable(name, limit=60))


def parse_value(text: str, like: Any) -> Any:
    """A parameter's value from text, of the kind that it has now.

    Raises:
        InputError: The text is no such value, or values of the kind are no plain text.
    """
    from mgeserial._record import SchemaEnum, SchemaFlag
    from mgeserial.author.core import enum_value
    from mgeserial.dtypes import DTypeEnum
    from mgeserial.errors import InputError

    if isinstance(like, (SchemaEnum, DTypeEnum)):
        kind = type(like)
        close = {m.name.lower(): m.name for m in kind}
        return enum_value(kind, close.get(text.lower(), text))
    if isinstance(like, bool):
        truth = {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
        if truth is None:
            raise InputError(f"expected true or false, got {text!r}")
        return truth
    if isinstance(like, SchemaFlag):
        flag = type(like)(0)
        for name in text.split("|"):
            if name not in type(like).__members__:
                known = ", ".join(type(like).__members__)
                raise InputError(f"no flag is called {name!r}", hint=f"flags: {known}")
            flag |= type(like)[name]
        return flag
    if type(like) in (int, float):
        try:
            return type(like)(text)
        except ValueError:
            kind_name = "a whole number" if type(like) is int else "a number"
            raise InputError(f"expected {kind_name}, got {text!r}") from None
    if isinstance(like, tuple) and all(type(n) is int for n in like):
        return tuple(_numbers(text, "numbers separated by commas"))
    raise InputError("this parameter is no number, name or list of numbers")


_EDITS: dict[str, tuple[str | None, str, Callable[[Graph, str], tuple[Graph, str]]]] = {
    "--rename": ("OLD=NEW", "another name for a value (inputs, outputs too)", _rename),
    "--rename-input": ("OLD=NEW", "another name for an input", _rename_input),
    "--rename-output": ("OLD=NEW", "another name for an output", _rename_output),
    "--add-output": ("NAME[=AS]", "make a value an output", _add_output),
    "--remove-output": ("NAME", "no longer an output", _remove_output),
    "--extract": ("IN,IN:OUT,OUT", "keep only what lies between these values", _extract),
    "--batch-size": ("N", "first dimension of every input", _batch_size),
    "--input-shape": ("NAME=1,3,H,W", "shape of an input", _input_shape),
    "--const-to-input": ("NAME[=AS]", "a weight or constant becomes an input", _const_to_input),
    "--input-to-const": ("NAME=FILE.npy", "an input becomes a weight", _input_to_const),
    "--remove-unused": (None, "remove what no output needs (inputs stay)", _remove_unused),
    "--set": ("OPERATOR.PARAMETER=VALUE", "change a parameter", _set),
    "--prefix": ("TEXT", "put a text before the names of all operators", _prefix),
}
