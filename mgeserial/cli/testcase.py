"""`mgeserial testcase`: the test cases inside a file, looked at, taken out, put in, renewed."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mgeserial.cli import caseoptions

if TYPE_CHECKING:
    from mgeserial.ir.graph import Graph
    from mgeserial.ir.model import Model
    from mgeserial.testcases import Case

__all__ = ["DESCRIPTION", "EPILOG", "add_arguments", "execute"]

# Before the suffix: file systems take 255 bytes.
_MAX_FILE_NAME = 200

DESCRIPTION = "Test cases inside a model file: inputs, and the outputs that they must give."
EPILOG = """\
actions:
  list MODEL                      what each test case holds
  extract MODEL -o OUT            inputs and expected outputs as .npz or .npy files
  add MODEL -d DATA -o OUT        one more test case, or the first ones of a plain network
  replace MODEL --case N -d DATA -o OUT
  bless MODEL -o OUT              expected outputs computed anew, with another --maxerr if wanted
  strip MODEL -o OUT              the plain network, without test cases and checks

`mgeserial testcase ACTION --help` says more. DATA is as for dump-with-testcase; expected outputs
that it gives (`<out>:expect`) are taken as they are, the others are computed.
exit codes: 0 done, 2 bad usage or file, 3 unsupported"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, text: str) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=text, description=text, allow_abbrev=False)
        made.add_argument("model", metavar="MODEL", help="the file")
        return made

    listing = action("list", "what each test case holds")
    listing.add_argument("--json", action="store_true", help="print one JSON document")
    extract = action("extract", "inputs and expected outputs as .npz or .npy files")
    extract.add_argument("--case", type=caseoptions.count, metavar="N", help="this one (all)")
    extract.add_argument(
        "--npy", action="store_true", help="one .npy for each value, in a folder for each case"
    )
    extract.add_argument(
        "-o", "--output", required=True, metavar="OUT", help="x.npz for one case, else a folder"
    )
    extract.add_argument("-f", "--force", action="store_true", help="replace files that exist")
    for name, text in (
        ("add", "one more test case, or the first ones of a plain network"),
        ("replace", "other inputs for one test case"),
    ):
        made = action(name, text)
        made.add_argument("-d", "--data", action="append", required=True, metavar="DATA")
        if name == "replace":
            made.add_argument("--case", type=caseoptions.count, required=True, metavar="N")
        else:
            made.add_argument("--no-assert", action="store_true", help="store inputs only")
            _add_tolerance(made, "for the checks of a plain network (1e-4)")
        caseoptions.add_reading_options(made)
        caseoptions.add_computing_options(made)
        _add_output(made)
    bless = action("bless", "expected outputs computed anew")
    _add_tolerance(bless, "for all outputs (as it is)")
    caseoptions.add_computing_options(bless)
    _add_output(bless)
    _add_output(action("strip", "the plain network, without test cases and checks"))


def _add_tolerance(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument(
        "--maxerr",
        type=caseoptions.tolerance,
        metavar="X",
        help=f"largest error allowed, relative above 1, {text}",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the file to write")
    parser.add_argument("-f", "--force", action="store_true", help="replace FILE if it exists")


def execute(args: argparse.Namespace) -> int:
    """Do one action."""
    from mgeserial.cli.output import refuse_existing
    from mgeserial.reading import load

    if args.action in ("add", "replace", "bless", "strip"):
        refuse_existing(args.output, force=args.force)  # before anything is computed
    model = load(args.model)
    doers: dict[str, Callable[[argparse.Namespace, Model], None]] = {
        "list": _list,
        "extract": _extract,
        "add": _add,
        "replace": _replace,
        "bless": _bless,
        "strip": _strip,
    }
    doers[args.action](args, model)
    return 0


def _cases(model: Model, path: str) -> list[Case]:
    """The test cases of a file that has some."""
    from mgeserial.errors import InputError
    from mgeserial.testcases import cases_of

    if model.info is None or model.info.testcases is None:
        raise InputError(
            "the file has no test cases",
            path=path,
            hint="`mgeserial testcase add` or `dump-with-testcase` puts some in",
        )
    return cases_of(model)


def _chosen(cases: Sequence[Case], number: int, path: str) -> int:
    from mgeserial.errors import InputError

    if number >= len(cases):
        raise InputError(
            f"there is no test case {number}: the file has {len(cases)}, counted from 0", path=path
        )
    return number


# -- list and extract -----------------------------------------------------------------------------


def _list(args: argparse.Namespace, model: Model) -> None:
    from mgeserial.testcases import tolerances

    cases = _cases(model, args.model)
    limits = tolerances(model.graph)
    documents = [_document(case, model.graph, k) for k, case in enumerate(cases)]
    if args.json:
        import json

        from mgeserial.inspect import SCHEMA

        document = {
            "schema": SCHEMA,
            "kind": "testcases",
            "path": args.model,
            "maxerr": limits,
            "cases": documents,
        }
        print(json.dumps(document, indent=1, allow_nan=False))
        return
    print(_text(args.model, documents, limits))


def _document(case: Case, graph: Graph, index: int) -> dict[str, Any]:
    """What a case holds, as plain data; numbers that JSON has not are null."""
    from mgeserial.summary import summarize_values

    types = {n: v.type.dtype for n, v in zip(graph.input_names, graph.inputs, strict=True)}
    values = []
    for name in sorted(case.arrays, key=lambda n: n.encode("utf-8", "surrogatepass")):
        array = case.arrays[name]
        values.append(
            {
                "name": name,
                "dtype": str(types[name]),
                "shape": list(array.shape),
                "random": case.random.get(name),
                **summarize_values(array, types[name]).as_data(),
            }
        )
    return {"index": index, "seed": case.seed, "values": values}


def _text(path: str, cases: Sequence[Mapping[str, Any]], limits: Mapping[str, float]) -> str:
    from mgeserial.errors import printable
    from mgeserial.render import columns, plural

    lines = [f"{printable(path, limit=200)}: {plural(len(cases), 'test case')}"]
    if limits:
        shown = [f"{printable(n)} {e:.3g}" for n, e in list(limits.items())[:8]]
        more = " ..." if len(limits) > 8 else ""
        lines.append(f"largest error allowed: {', '.join(shown)}{more}")
    else:
        lines.append("no expected outputs: the network does not check itself")
    for case in cases:
        seed = "" if case["seed"] is None else f", seed {case['seed']}"
        lines.append(f"test case {case['index']}{seed}")
        lines += columns([_row(value) for value in case["values"]])
    return "\n".join(lines)


def _row(value: Mapping[str, Any]) -> tuple[str, ...]:
    from mgeserial.errors import printable

    numbers = [value["min"], value["max"], value["mean"], value["sd"]]
    least, most, mean, sd = ("n/a" if n is None else f"{n:.6g}" for n in numbers)
    return (
        printable(value["name"], limit=60),
        value["dtype"],
        str(tuple(value["shape"])),
        f"{least} to {most}",
        f"mean {mean}",
        f"sd {sd}",
        printable(value["random"] or "", limit=60),
    )


def _extract(args: argparse.Namespace, model: Model) -> None:
    from mgeserial.arrayfiles import npz_bytes
    from mgeserial.cli.output import folder_of, write_new
    from mgeserial.errors import InputError

    cases = _cases(model, args.model)
    numbers = list(range(len(cases)))
    if args.case is not None:
        numbers = [_chosen(cases, args.case, args.model)]
    named = [_named(model.graph, cases[k]) for k in numbers]
    if args.output.lower().endswith(".npz"):
        if args.npy or len(numbers) != 1:
            raise InputError(
                f"{args.output} holds one test case, the file has {len(numbers)}",
                hint="--case N chooses one; a folder takes all of them",
            )
        write_new(args.output, npz_bytes(named[0]), force=args.force)
        print(args.output)
        return
    for k, arrays in zip(numbers, named, strict=True):
        if not args.npy:
            target = os.path.join(folder_of(args.output), f"case{k}.npz")
            write_new(target, npz_bytes(arrays), force=args.force)
            print(target)
            continue
        folder = folder_of(os.path.join(args.output, f"case{k}"))
        for item in arrays:
            target = os.path.join(folder, _file_name(item.name) + ".npy")
            write_new(target, _npy(item.array), force=args.force)
            print(target)


def _named(graph: Graph, case: Case) -> list[Any]:
    from mgeserial.arrayfiles import NamedArray

    types = {n: v.type.dtype for n, v in zip(graph.input_names, graph.inputs, strict=True)}
    return [NamedArray(n, a, str(types[n])) for n, a in case.arrays.items()]


def _file_name(name: str) -> str:
    """A name as that of a file: no separators, no `..`, nothing hidden, not too long."""
    import zlib
    from urllib.parse import quote

    quoted = quote(name, safe=" ", errors="surrogatepass")
    if not quoted or quoted.startswith("."):
        quoted = "%2E" + quoted[1:]
    if len(quoted) > _MAX_FILE_NAME:
        mark = zlib.crc32(name.encode("utf-8", "surrogatepass"))
        quoted = f"{quoted[: _MAX_FILE_NAME - 9]}-{mark:08x}"
    return quoted


def _npy(array: Any) -> bytes:
    import io

    import numpy as np

    target = io.BytesIO()
    np.lib.format.write_array(target, array, allow_pickle=False)
    return target.getvalue()


# -- add, replace, bless, strip -------------------------------------------------------------------


def _add(args: argparse.Namespace, model: Model) -> None:
    from mgeserial.cli.dump_with_testcase import only_network
    from mgeserial.testcases import cases_of, tolerances

    if model.info is not None and model.info.testcases is not None:
        old, checks = cases_of(model), bool(tolerances(model.graph))
        limits: Mapping[str, float] | float = tolerances(model.graph)
        if args.no_assert and checks:
            _refuse("--no-assert is for networks without checks, this one has some", args.model)
        if args.maxerr is not None:
            _refuse("--maxerr is for the first test cases: `testcase bless` changes it", args.model)
    else:
        only_network(model)
        old, checks = [], not args.no_assert
        limits = 1e-4 if args.maxerr is None else args.maxerr
    new = _read(args, model, checks=checks, first=len(old))
    if old:
        _save(args, model, model.graph, [*old, *new])
        return
    _save_checked(args, model, new, limits if checks else None)


def _replace(args: argparse.Namespace, model: Model) -> None:
    from mgeserial.testcases import tolerances

    cases = _cases(model, args.model)
    number = _chosen(cases, args.case, args.model)
    new = _read(args, model, checks=bool(tolerances(model.graph)), first=number)
    if len(new) != 1:
        _refuse(f"one test case is replaced, {len(new)} are given", args.model)
    cases[number] = new[0]
    _save(args, model, model.graph, cases)


def _bless(args: argparse.Namespace, model: Model) -> None:
    from loadrun.makecases import compute_expected
    from loadrun.session import Session
    from mgeserial.testcases import strip_asserts, tolerances

    cases = _cases(model, args.model)
    limits: Mapping[str, float] | float = tolerances(model.graph)
    if args.maxerr is not None or not limits:
        limits = 1e-4 if args.maxerr is None else args.maxerr
    with Session(strip_asserts(model.graph), args.backend) as session:
        renewed = [
            case.with_expected(compute_expected(session, case.inputs, log=caseoptions.log))
            for case in cases
        ]
    _save_checked(args, model, renewed, limits)


def _strip(args: argparse.Namespace, model: Model) -> None:
    from mgeserial.saving import save
    from mgeserial.testcases import plain_model, strip_asserts

    _cases(model, args.model)
    save(plain_model(strip_asserts(model.graph), like=model), args.output)
    print(args.output)


def _read(args: argparse.Namespace, model: Model, *, checks: bool, first: int) -> list[Case]:
    """Read test cases; expected outputs that are not given are computed."""
    from loadrun.makecases import (
        compute_expected,
        describe_case,
        input_types,
        read_case,
        read_specs,
    )
    from loadrun.session import Session
    from mgeserial.testcases import EXPECT, strip_asserts

    plain = strip_asserts(model.graph)
    types = input_types(model.graph)
    if checks:
        outputs = plain.inference.types
        for name, value in zip(plain.output_names, plain.outputs, strict=True):
            types.setdefault(name + EXPECT, outputs[value])
    kept = {n.removesuffix(EXPECT) for n in types if n.endswith(EXPECT)}
    reading, cases = caseoptions.reading_from(args), []
    with Session(plain, args.backend) as session:
        for k, spec in enumerate(read_specs(args.data)):
            case = read_case(spec, types, reading, seed=args.seed + first + k, log=caseoptions.log)
            missing = sorted(kept - case.expected.keys()) if checks else []
            if missing:
                made = compute_expected(session, case.inputs, log=caseoptions.log, names=missing)
                case = case.with_expected({**made, **case.expected})
            caseoptions.log(describe_case(case, types))
            cases.append(case)
    return cases


def _save_checked(
    args: argparse.Namespace,
    model: Model,
    cases: list[Case],
    limits: Mapping[str, float] | float | None,
) -> None:
    """Write the plain network of a model with checks and cases; without checks for None."""
    from loadrun.makecases import checked_network
    from mgeserial.testcases import strip_asserts

    network = strip_asserts(model.graph)
    if limits is not None:
        verbose = any(
            n.op.name == "AssertEqual" and n.param.verbose for n in model.graph.nodes
        ) or not any(n.op.name == "AssertEqual" for n in model.graph.nodes)
        network, cases = checked_network(
            network, cases, maxerr=limits, verbose=verbose, log=caseoptions.log
        )
    _save(args, model, network, cases)


def _save(args: argparse.Namespace, model: Model, network: Graph, cases: Sequence[Case]) -> None:
    from mgeserial.saving import save
    from mgeserial.testcases import make_model

    wanted = set(network.input_names)
    # Of outputs that are not checked (empty ones) nothing is stored.
    kept = [replace(c, arrays={n: a for n, a in c.arrays.items() if n in wanted}) for c in cases]
    save(make_model(network, kept, like=model), args.output)
    print(args.output)


def _refuse(message: str, path: str) -> None:
    from mgeserial.errors import InputError

    raise InputError(message, path=path)
