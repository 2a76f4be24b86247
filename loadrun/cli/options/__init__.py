"""Every option of `loadrun run`, as data.

The parser, both helps, shell completion, docs/options.md and the tests are made from this table.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from loadrun.cli.options import comparing, machine, running
from loadrun.cli.options.record import Group, Kind, Option, State

__all__ = ["OPTIONS", "Group", "Kind", "Option", "State", "declare", "flag_names", "given"]

# Those of the optimiser are declared by the optimiser.
_DECLARED: tuple[Option, ...] = (*running.OPTIONS, *comparing.OPTIONS, *machine.OPTIONS)
OPTIONS: tuple[Option, ...] = (*_DECLARED, *machine.SWITCHES)


def declare(parser: argparse.ArgumentParser, *, everything: bool) -> None:
    """Declare all options; the help lists the everyday ones, or everything."""
    from loadrun.optimization import add_options

    for group in Group:
        if group is Group.GRAPH:
            before = list(parser._action_groups)
            add_options(parser)
            _shorten(parser, before, everything=everything)
            continue
        mine = [option for option in _DECLARED if option.group is group]
        listed = parser.add_argument_group(group.value) if mine else None
        for option in mine:
            assert listed is not None
            _add(listed, option, everything=everything)


def _shorten(
    parser: argparse.ArgumentParser, before: Sequence[object], *, everything: bool
) -> None:
    """Hide the optimiser's switches from the short help, but for the everyday ones."""
    everyday = {n for o in machine.SWITCHES if o.everyday for n in o.names}
    for group in parser._action_groups:
        if group in before and group.title not in (None, "options"):
            continue
        for action in group._group_actions:
            known = [n for n in action.option_strings if n in _SWITCH_NAMES]
            if known and not everything and not everyday & set(known):
                action.help = argparse.SUPPRESS


_SWITCH_NAMES = frozenset(n for o in machine.SWITCHES for n in o.names)


def _add(group: argparse._ArgumentGroup, option: Option, *, everything: bool) -> None:
    shown = option.help or option.effect
    if option.state is State.REFUSED:
        shown = f"refused: {option.effect}"
    elif option.state is State.ALWAYS:
        shown = f"always so: {option.effect}"
    text = shown.replace("%", "%%") if everything or option.everyday else argparse.SUPPRESS
    if option.kind is Kind.FLAG:
        group.add_argument(*option.names, action="store_true", help=text)
        return
    more: dict[str, object] = {"metavar": option.metavar, "default": option.default, "help": text}
    if option.parse is not None:
        more["type"] = option.parse
    if option.choices:
        more["choices"] = (*option.choices, None) if "" in option.choices else option.choices
    if option.kind is Kind.LIST:
        more["action"] = "append"
        more["default"] = list(option.default or ())
    elif option.kind is Kind.MAYBE:
        more |= {"nargs": "?", "const": option.const}
    group.add_argument(*option.names, **more)  # type: ignore[arg-type]


def flag_names() -> frozenset[str]:
    """Spellings of all options without a value."""
    return frozenset(n for o in OPTIONS if o.kind is Kind.FLAG for n in o.names)


def given(args: argparse.Namespace) -> list[Option]:
    """Options of the table, those of the optimiser aside, that have another value than without."""
    found = []
    for option in _DECLARED:
        value = getattr(args, option.dest)
        unset = False if option.kind is Kind.FLAG else option.default
        if value != unset and not (option.name == "--warmup-iter" and str(value) == "1"):
            found.append(option)
    return found
