"""Options of running, timing, inputs, results and profiles."""

from __future__ import annotations

from loadrun.cli.options import values as v
from loadrun.cli.options.record import ALL, LAR13, Group, Kind, Option, State, flag, value

__all__ = ["OPTIONS"]

_RUN: tuple[Option, ...] = (
    value(
        "--iter", "N", "timed runs for each case (10)",
        "takes exactly N samples of each case (more only with --duration)",
        Group.RUN, v.count, 10, everyday=True, releases=ALL,
    ),
    value(
        "--duration", "TIME", "go on until TIME (3s, 500ms) has passed as well",
        "samples are taken until both N and TIME are reached",
        Group.RUN, v.time_ns, 0, everyday=True,
    ),
    value(
        "--warmup-iter|--warmup", "N", "untimed runs before the first case (1), a time such as "
        "500ms, or `stable`",
        "N runs, or as many as start within a time, or until the medians of two windows of 5 runs "
        "differ by less than 2 % (at most 1000 runs or 10 s); in no statistic",
        Group.RUN, v.warmup, "1", everyday=True, releases=ALL,
    ),
    value(
        "--interval", "MS", "pause between samples, as an application has them",
        "sleeps before each sample, outside the timed part: caches and clocks cool down",
        Group.RUN, v.milliseconds, 0,
    ),
    value(
        "--thread", "N", "N sessions at once, each with its own samples",
        "N threads, each with a session of its own; they start their samples together, and the "
        "sum of all inferences a second is printed",
        Group.RUN, v.positive, 1, releases=ALL,
    ),
    flag(
        "--fake-first", "no inference before the warm-up",
        "the preparation is all the initialisation there is; no first inference is made",
        Group.RUN, releases=ALL,
    ),
    flag(
        "--copy-to-host", "include a copy of the outputs to the caller's memory",
        "each sample copies the outputs; the copies are shown as a part of their own",
        Group.RUN, releases=ALL,
    ),
    flag(
        "--record-comp-seq", "record launches and replay them",
        "CUDA does so without being asked, from the third run on; the native CPU code is one "
        "sequence recorded ahead anyway", Group.RUN, releases=ALL,
    ),
    flag(
        "--record-comp-seq2", "the same, level 2",
        "as --record-comp-seq: programs never keep the graph's own data structures",
        Group.RUN, releases=ALL,
    ),
    flag(
        "--no-record", "start each launch of a GPU by itself in every run",
        "CUDA starts its launches one by one; the native CPU code has none", Group.RUN,
    ),
    value(
        "--percentile", "P,P", "percentiles to print (90,95,99)",
        "prints these percentiles; the JSON document has them as well",
        Group.RUN, v.percentiles, (90.0, 95.0, 99.0),
    ),
    value(
        "--graph", "N", "which graph of a file with several (0)",
        "runs graph N of the file, counted from 0", Group.RUN, v.count, 0,
    ),
)  # fmt: skip

_DATA: tuple[Option, ...] = (
    value(
        "--input", "NAME:VALUE", "a .npy, .npz, .json, .ppm, .pgm, .png or .jpg file, an array "
        "[[1,2],[3,4]], or #rand(low,high[,shape]); `;` between inputs; may be repeated",
        "reads the inputs; those not named are random", Group.DATA,
        None, [], kind=Kind.LIST, everyday=True, releases=ALL,
    ),
    value(
        "--seed", "N", "seed of random inputs (0)", "the same seed gives the same inputs",
        Group.DATA, v.count, 0, everyday=True,
    ),
    value(
        "--batch-size", "N", "set the first dimension of every input",
        "sets it in the network ahead of optimisation; an error says which operator bakes the old "
        "batch in; -1 leaves it",
        Group.DATA, v.batch, releases=(LAR13,), everyday=True,
    ),
    value(
        "--bin-out-dump", "DIR", "write the outputs as load_and_run does",
        "writes `run<case>-var<output>`, once a case; `mgeserial.load_tensor_binary` reads it",
        Group.DATA, v.some, releases=ALL,
    ),
    flag(
        "--disable-assert-throw", "report outputs that are not as expected, but time them and "
        "exit with 0",
        "failures are printed, the case is timed, the exit code is 0", Group.DATA, releases=ALL,
    ),
    flag(
        "--model-info", "print the model's inputs and outputs as a table",
        "prints name, type, shape and layout of inputs and outputs, then runs",
        Group.DATA, releases=(LAR13,),
    ),
)  # fmt: skip

_RESULTS: tuple[Option, ...] = (
    value(
        "--json", "FILE", "write everything measured as JSON; - for stdout",
        "writes the document that docs/json.md describes", Group.RESULTS, v.some, everyday=True,
    ),
    value(
        "--format", "FORM", "wording of the lines: lar05 (default) or lar13",
        "prints the lines of load_and_run 0.5.1, or those of 1.13", Group.RESULTS,
        None, "lar05", choices=("lar05", "lar13"),
    ),
    value(
        "--model-dump", "FILE", "save the network as it runs",
        "saves the optimised network as a model of the file's own container",
        Group.RESULTS, v.some, releases=(LAR13,),
    ),
    value(
        "--get-static-mem-info", "DIR", "write the memory plan as JSON and SVG",
        "writes memory.json and memory.svg: what lives where, step by step",
        Group.RESULTS, v.some, releases=(LAR13,),
    ),
)  # fmt: skip

_PROFILE: tuple[Option, ...] = (
    value(
        "--profile", "FILE", "times of each operator, in runs of their own; JSON in FILE",
        "prints tables by operator and by type that end in sum, wall and gap; with FILE writes "
        "the document as JSON",
        Group.PROFILE, None, None, kind=Kind.MAYBE, const="", everyday=True, releases=ALL,
    ),
    value(
        "--profile-host", "FILE", "the same with the host's times",
        "as --profile FILE: on the CPU the host's times are the operators' times",
        Group.PROFILE, v.some, releases=ALL,
    ),
    value(
        "--profile-iter", "N", "runs of a profile (20)", "runs the profile N times; medians count",
        Group.PROFILE, v.positive, 20,
    ),
    value(
        "--profile-top", "N", "operators that the table shows (20; 0: all)",
        "cuts the table by operator after N rows", Group.PROFILE, v.count, 20,
    ),
    value(
        "--chrome-trace", "FILE", "write the profile for chrome://tracing and ui.perfetto.dev",
        "writes the median run's steps as events", Group.PROFILE, v.some,
    ),
)  # fmt: skip

_OTHER: tuple[Option, ...] = (
    flag(
        "--share-param-mem", "read the whole file into memory first",
        "reads the file ahead; weights are used where they lie, nothing is copied or paged in",
        Group.OTHER, releases=ALL,
    ),
    flag(
        "--const-shape", "shapes are constants",
        "programs are compiled for fixed shapes", Group.OTHER, releases=ALL, state=State.ALWAYS,
    ),
    flag(
        "--wait-gdb", "print the process number and wait for a line on stdin",
        "waits before the model is read; the end of stdin counts as a line",
        Group.OTHER, releases=ALL,
    ),
    flag(
        "--lite", "", "there is one way to run a model", Group.OTHER, releases=(LAR13,),
        state=State.ALWAYS,
    ),
    flag(
        "--mdl", "", "there is one way to run a model", Group.OTHER, releases=(LAR13,),
        state=State.ALWAYS,
    ),
    flag(
        "--no-sanity-check", "",
        "nothing is checked in the first inference or in a timed run; shapes and types were "
        "checked before", Group.OTHER, releases=ALL, state=State.ALWAYS,
    ),
)  # fmt: skip

OPTIONS: tuple[Option, ...] = (*_RUN, *_DATA, *_RESULTS, *_PROFILE, *_OTHER)
