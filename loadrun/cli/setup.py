"""From arguments to a network that is ready to run: refusals, ways to compile, what is tried."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from loadrun.cli.options import State, given

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loadrun.backends.base import CompileOptions, ProgramReport
    from loadrun.cli.screen import Screen
    from loadrun.locator import Locator
    from loadrun.measure import Pacing
    from mgeserial.dtypes import Array
    from mgeserial.ir.graph import Graph
    from mgeserial.ir.model import Model

__all__ = [
    "Ready",
    "Request",
    "load",
    "make_ready",
    "pack",
    "pick_graph",
    "request_of",
    "wait_for_line",
]


@dataclass(frozen=True, slots=True)
class Request:
    """How a network is to run.

    Attributes:
        backend: Name of the backend; `auto` is resolved.
        threads: Number of threads; None: the backend's choice.
        options: How to compile.
        pacing: How samples are taken.
    """

    backend: str
    threads: int | None
    options: CompileOptions
    pacing: Pacing


@dataclass(frozen=True, slots=True)
class Ready:
    """A network as it will run, and what a person should know of the way there."""

    graph: Graph
    notes: tuple[str, ...]
    options: CompileOptions


def request_of(args: argparse.Namespace, screen: Screen) -> Request:
    """What the arguments ask for.

    Raises:
        UnsupportedError: Something that cannot be done here.
        InputError: Options that contradict.
    """
    from loadrun.backends.base import CompileOptions
    from loadrun.measure import Pacing
    from mgeserial.errors import InputError, UnsupportedError

    for option in given(args):
        if option.state is State.REFUSED:
            raise UnsupportedError(f"{option.name}: {option.effect}", hint=option.hint)
    _need_first(args)
    threads = _threads(args)
    cores = args.multi_thread_core_ids
    if cores and len(cores) != (threads or 0):
        raise InputError(
            f"--multi-thread-core-ids names {len(cores)} cores for {threads or 'no number of'} "
            "threads",
            hint="give --threads N and as many cores, such as --threads 2 "
            "--multi-thread-core-ids 0,1",
        )
    steady = args.reproducible or args.binary_equal_between_batch
    measured = args.fast_run or args.full_run
    if args.fast_run_shared_batch_size and not measured:
        raise InputError("--fast-run-shared-batch-size needs --fast-run", hint="give both")
    options = CompileOptions(
        threads=threads,
        reproducible=steady,
        fast_run=measured,
        full_run=args.full_run,
        cache=not args.no_cache,
        verify_cache=args.verify_cache,
        policy_file=args.fast_run_algo_policy,
        core_ids=cores,
        memory_plan=not args.disable_mem_opt,
        workspace_limit=args.workspace_limit,
        record=_record(args),
        device=_node(args).device,
        tf32=args.tf32,
        progress=screen.preparing,
    )
    pacing = Pacing(
        duration_ns=args.duration,
        interval_ns=args.interval,
        first=not args.fake_first,
        copy_outputs=args.copy_to_host,
    )
    return Request(_backend(args), threads, options, pacing)


def _need_first(args: argparse.Namespace) -> None:
    """Options that belong to others."""
    from mgeserial.errors import InputError

    for option, first in (
        ("dump_fitting_model", "fitting"),
        ("layout_transform_dump", "layout_transform"),
        ("pack_info_json", "packed_model_dump"),
        ("pack_cache", "packed_model_dump"),
    ):
        if getattr(args, option) and not getattr(args, first):
            name = f"--{option.replace('_', '-')}"
            raise InputError(f"{name} needs --{first.replace('_', '-')}", hint="give both")
    if args.fitting and args.layout_transform:
        raise InputError(
            "--fitting and --layout-transform contradict", hint="--fitting tries layouts as well"
        )


def _node(args: argparse.Namespace) -> Locator:
    """What `--device` says."""
    from loadrun.locator import Locator, parse_locator

    return Locator("auto") if args.device is None else parse_locator(args.device)


def _record(args: argparse.Namespace) -> int | None:
    """Level of `--record-comp-seq`; 0: never; None: the backend decides."""
    from mgeserial.errors import InputError

    level = 2 if args.record_comp_seq2 else int(args.record_comp_seq)
    if args.no_record and level:
        raise InputError(
            "--no-record and --record-comp-seq contradict", hint="leave one of them out"
        )
    return 0 if args.no_record else level or None


def _threads(args: argparse.Namespace) -> int | None:
    from mgeserial.errors import InputError

    asked = {
        f"--device {args.device}": _node(args).threads,
        "--threads": args.threads,
        "--multithread-default": args.multithread_default,
        "--cpu-default": 1 if args.cpu_default else None,
    }
    numbers = {name: n for name, n in asked.items() if n is not None}
    if len(set(numbers.values())) > 1:
        raise InputError(
            f"{' and '.join(numbers)} ask for different numbers of threads", hint="give one of them"
        )
    return next(iter(numbers.values()), None)


def _backend(args: argparse.Namespace) -> str:
    """Name of the backend; `--cpu` is the fastest one that does not need another device."""
    from loadrun.backends.base import choose, get_backend
    from mgeserial.errors import InputError, UnsupportedError

    pool = args.cpu or args.cpu_default or args.multithread_default is not None
    name = str(args.backend)
    asked = {
        "--cpu": "cpu" if pool else "auto",
        "--cuda": "cuda" if args.cuda else "auto",
        f"--device {args.device}": _node(args).backend,
    }
    wanted = {option: kind for option, kind in asked.items() if kind != "auto"}
    if len(set(wanted.values())) > 1:
        raise InputError(f"{' and '.join(wanted)} exclude each other", hint="give one of them")
    fits = {"cpu": ("auto", "cpu", "reference"), "cuda": ("auto", "cuda")}
    cpu, cuda = ("cpu" in wanted.values()), ("cuda" in wanted.values())
    for option, kind in wanted.items():
        if name not in fits[kind]:
            raise InputError(f"{option} and --backend {name} exclude each other")
    if cuda:
        return get_backend("cuda").name if _has_cuda() else _no_cuda()
    if not cpu and name == "auto":
        return choose().name
    if name != "auto":
        return get_backend(name).name
    try:
        return get_backend("cpu").name
    except (InputError, UnsupportedError):
        return "reference"


def _has_cuda() -> bool:
    from loadrun.backends.base import backend_names

    return "cuda" in backend_names()


def _no_cuda() -> str:
    from mgeserial.errors import UnsupportedError

    raise UnsupportedError(
        "--cuda: this installation has no CUDA backend", hint="--cpu runs on the CPU"
    )


def wait_for_line() -> None:
    """`--wait-gdb`: say which process this is and wait for a line (or the end) of stdin."""
    print(f"wait for gdb attach (pid={os.getpid()}): ", end="", file=sys.stderr, flush=True)
    sys.stdin.readline()


def pack(args: argparse.Namespace) -> None:
    """`--packed-model-dump`: the model file as a packed model of MegEngine Lite."""
    from loadrun.litepack import PackOptions, pack_model
    from mgeserial.arrayfiles import read_bytes
    from mgeserial.format.atomic import write_atomic

    info, cache = (
        bytes(read_bytes(path)) if path else b"" for path in (args.pack_info_json, args.pack_cache)
    )
    options = PackOptions(info, cache, args.pack_info_cryption, args.pack_model_cryption)
    write_atomic(args.packed_model_dump, pack_model(bytes(read_bytes(args.model)), options))


def load(args: argparse.Namespace) -> Model:
    """The model; with `--share-param-mem` from memory that holds the whole file."""
    import mgeserial

    if not args.share_param_mem:
        return mgeserial.load(args.model)
    from mgeserial.arrayfiles import read_bytes

    return mgeserial.load(read_bytes(args.model))


def pick_graph(args: argparse.Namespace, model: Model) -> Graph:
    """The graph that `--graph` names, with the batch that `--batch-size` asks for."""
    from mgeserial.ir.copying import copy_graph

    graph: Graph = model.graph_at(args.graph)
    if args.batch_size is None:
        return graph
    from mgeserial.editing import set_batch_size

    changed, _ = copy_graph(graph)
    set_batch_size(changed, args.batch_size)
    return changed


def make_ready(args: argparse.Namespace, graph: Graph, request: Request, screen: Screen) -> Ready:
    """Optimise the network, or try several ways and keep the fastest."""
    from loadrun.backends.base import get_backend
    from loadrun.optimization import optimized, options_of

    if args.fitting or args.layout_transform:
        return _fitted(args, graph, request, screen)
    backend = get_backend(request.backend)
    found = optimized(graph, options_of(args, backend))
    options, notes = request.options, [found.note]
    if args.fast_run_shared_batch_size:
        chosen = _choose_at_batch(args, found.graph, request)
        options = replace(options, fast_run=False, algorithms=chosen.algorithms or None)
        notes += [note for note in chosen.notes if note.startswith("fast run")]
        notes.append(f"algorithms chosen with batch {args.fast_run_shared_batch_size}")
    return Ready(found.graph, tuple(notes), options)


def _fitted(args: argparse.Namespace, graph: Graph, request: Request, screen: Screen) -> Ready:
    from loadrun.fitting import candidates, fit, layout_candidates

    layouts = bool(args.layout_transform)
    if layouts:
        target = args.layout_transform
        _check_target(target, request)
        tried = layout_candidates(target)
    else:
        tried = candidates(request.backend)
    best = fit(
        graph,
        tried,
        _some_inputs(args, graph),
        backend=request.backend,
        options=request.options,
        on_trial=lambda trial: screen.line(str(trial)),
    )
    assert best.graph is not None
    kind = "layout" if layouts else "combination"
    note = f"fastest {kind}: {best.candidate.label}"
    screen.line(note)
    path = args.layout_transform_dump if layouts else args.dump_fitting_model
    if path:
        import mgeserial

        mgeserial.save(best.graph, path)
    fast = request.options.fast_run or best.candidate.fast_run
    return Ready(best.graph, (note,), replace(request.options, fast_run=fast))


def _check_target(target: str, request: Request) -> None:
    from mgeserial.errors import InputError

    if (target == "cuda") != (request.backend == "cuda"):
        raise InputError(
            f"--layout-transform {target} with backend {request.backend}",
            hint="layouts are chosen on the device that runs them: give --cpu or --cuda",
        )


def _some_inputs(args: argparse.Namespace, graph: Graph) -> Mapping[str, Array]:
    from loadrun.inputs import resolve_inputs
    from loadrun.session import Session

    with Session(graph, "reference") as session:
        return resolve_inputs(args.input, session.inputs, seed=args.seed).arrays


def _choose_at_batch(args: argparse.Namespace, graph: Graph, request: Request) -> ProgramReport:
    """What a program with another batch says of the algorithms that are fastest there."""
    from loadrun.inputs import random_inputs
    from loadrun.session import Session
    from mgeserial.editing import set_batch_size
    from mgeserial.ir.copying import copy_graph

    batch, _ = copy_graph(graph)
    set_batch_size(batch, args.fast_run_shared_batch_size)
    with Session(batch, request.backend, options=request.options) as session:
        session.prepare(random_inputs(session.inputs, seed=args.seed))
        assert session.program is not None
        return session.program.report
