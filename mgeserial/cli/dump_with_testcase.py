"""`dump-with-testcase`: a model, inputs and the outputs they must give, in one file.

A program of its own, with the options, abbreviations and lines of MegEngine's script of that name.

Source: MegEngine v0.5.1 sdk/load-and-run/dump_with_testcase_mge.py (options, order, lines).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgeserial._command_line import Parser, Version
from mgeserial._command_line import execute as run_command
from mgeserial.cli import caseoptions

if TYPE_CHECKING:
    from mgeserial.format.target import Target
    from mgeserial.ir.graph import Graph
    from mgeserial.ir.model import Model
    from mgeserial.saving import Saved
    from mgeserial.testcases import Case

__all__ = ["main"]

DESCRIPTION = """\
Pack a network, inputs and expected outputs into one file, with which loadrun (and MegEngine's
load_and_run) checks that a platform computes the right values."""
EPILOG = """\
examples:
  dump-with-testcase net.mge -o net.test.mge -d cat.png
  dump-with-testcase net.mge -o net.test.mge -d 'data:cat.png;im_info:[[224,224,1]]' --resize-input
  dump-with-testcase net.mge -o net.test.mge -d '#rand(0,255)' -d '#rand(0,1,8,...)' --seed 3
  dump-with-testcase net.mge -o net.test.mge -d @cases.txt --maxerr 1e-3

Data are `file`, `name:file;name:file`, `#rand(low,high[,shape...])` for one input or all, or
`@file` with one test case a line. Files: any image OpenCV reads (BGR), .npy, .npz, .json, .pkl.
The output is replaced without asking, as a whole. The seed of random inputs is noted in the file.
exit codes: 0 done, 2 bad usage or file, 3 unsupported, 130 interrupted"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        args = _parser().parse_args(words)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    return run_command(sys.modules[__name__], args, "dump-with-testcase")


def _parser() -> argparse.ArgumentParser:
    from mgeserial.passes.options import add_switches

    # MegEngine's documentation abbreviates the options (`--optimize`), so abbreviations stay.
    parser = Parser(
        prog="dump-with-testcase",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=True,
    )
    add_arguments(parser)
    add_switches(parser)
    parser.add_argument("--version", action=Version, nargs=0, help="print versions and exit")
    parser.add_argument("--traceback", action="store_true", help="show where an error was raised")
    return parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options but those of the optimiser."""
    add = parser.add_argument
    add("input", metavar="MODEL", help="a .mge file with one network")
    add("-o", "--output", required=True, metavar="FILE", help="the file to write")
    add(
        "-d",
        "--data",
        action="append",
        required=True,
        metavar="DATA",
        help="inputs of one test case, or @file with one a line; may be repeated",
    )
    caseoptions.add_reading_options(parser)
    group = parser.add_argument_group("checks")
    group.add_argument("--no-assert", action="store_true", help="do not store expected outputs")
    group.add_argument(
        "--maxerr",
        type=caseoptions.tolerance,
        default=1e-4,
        metavar="X",
        help="largest error allowed, relative above 1 (1e-4)",
    )
    group.add_argument(
        "--silent", action="store_true", help="MegEngine does not print the errors that it finds"
    )
    caseoptions.add_computing_options(group)
    group = parser.add_argument_group("output")
    group.add_argument("--discard-var-name", action="store_true", help="write no names of values")
    group.add_argument(
        "--output-strip-info",
        action="store_true",
        help="write the operators and element types used to FILE.json",
    )
    group.add_argument(
        "--format", choices=("v2", "v1", "mgbs"), help="container (that of the model)"
    )
    group.add_argument(
        "--release", default=None, metavar="VERSION", help="release of MegEngine that shall read it"
    )


def execute(args: argparse.Namespace) -> int:
    """Read, compute, write; the exit code."""
    from mgeserial.passes.options import options_from
    from mgeserial.reading import load

    options = options_from(args, needs_first=True)
    model = load(args.input)
    network = only_network(model)
    cases = _cases(args, network)
    result = network
    if options is not None:
        from mgeserial.passes.pipeline import optimize

        result, _ = optimize(network, options)
    if not args.no_assert:
        from loadrun.makecases import checked_network

        result, cases = checked_network(
            result, cases, maxerr=args.maxerr, verbose=not args.silent, log=caseoptions.log
        )
    _describe(cases, result)
    saved = _write(args, model, result, cases)
    first = saved.graphs[0]
    overhead = first.nbytes - first.tensor_bytes
    caseoptions.log(
        f"graph dump sizes: tot_size={first.nbytes / 1024:.3f}KiB overhead={overhead / 1024:.3f}KiB"
    )
    return 0


def only_network(model: Model) -> Graph:
    """The network of a file that holds one and no test cases.

    Raises:
        InputError: It holds test cases, or several networks.
    """
    from mgeserial.errors import InputError

    path = model.info.path if model.info is not None else None
    if model.info is not None and model.info.testcases is not None:
        raise InputError(
            f"the file has {model.info.testcases} test cases already",
            path=path,
            hint="`mgeserial testcase add` adds test cases, `testcase strip` removes them",
        )
    if len(model.graphs) != 1:
        raise InputError(
            f"the file holds {len(model.graphs)} networks: test cases belong to one", path=path
        )
    return model.graph


def _cases(args: argparse.Namespace, network: Graph) -> list[Case]:
    """Read every test case and compute what it must give."""
    from loadrun.makecases import compute_expected, input_types, read_case, read_specs
    from loadrun.session import Session

    types = input_types(network)
    reading = caseoptions.reading_from(args)
    log = caseoptions.log
    cases = []
    with Session(network, args.backend) as session:
        for k, spec in enumerate(read_specs(args.data)):
            case = read_case(spec, types, reading, seed=args.seed + k, log=log)
            if not args.no_assert:
                case = case.with_expected(compute_expected(session, case.inputs, log=log))
            cases.append(case)
    return cases


def _describe(cases: Sequence[Case], network: Graph) -> None:
    from loadrun.makecases import describe_case, input_types

    types = input_types(network)
    for case in cases:
        caseoptions.log(describe_case(case, types))


def _target(args: argparse.Namespace, model: Model) -> Target:
    """The container and release asked for, else those of the model."""
    from mgeserial.format.target import DEFAULT_RELEASE, Target

    container = model.info.graphs[0].container if model.info is not None else "v2"
    return Target.of(args.format or container, args.release or DEFAULT_RELEASE)


def _write(args: argparse.Namespace, model: Model, network: Graph, cases: Sequence[Case]) -> Saved:
    from mgeserial.saving import save
    from mgeserial.testcases import make_model

    named = not args.discard_var_name
    made = make_model(network, cases, like=model)
    target = _target(args, made)
    lacks = []
    if not target.has_metadata and any(g.metadata is not None for g in made.graphs):
        lacks.append("metadata (with the seed)")
    if not target.has_operator_names and any(n.name is not None for n in network.nodes):
        lacks.append("names of operators")
    if lacks:
        caseoptions.log(f"files of {target.release} have no {' and no '.join(lacks)}: left out")
    saved = save(
        made,
        args.output,
        format=target.format,
        release=target.release,
        keep_var_name=2 if named else 0,
        keep_param_name=named,
        keep_opr_name=None if target.has_operator_names else False,
        keep_metadata=target.has_metadata,
    )
    if args.output_strip_info:
        import json

        from mgeserial.format.atomic import write_atomic
        from mgeserial.reading import load
        from mgeserial.stripinfo import strip_info

        info = load(args.output).info
        document = strip_info(made.graphs, info.graphs[0].hash if info is not None else 0)
        write_atomic(f"{args.output}.json", json.dumps(document).encode())
    return saved
