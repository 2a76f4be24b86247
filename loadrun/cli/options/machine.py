"""Options of devices, algorithms, the graph, checks, and what is refused."""

from __future__ import annotations

from typing import Any

from loadrun.cli.options import values as v
from loadrun.cli.options.record import ALL, LAR13, Group, Option, State, flag, value

__all__ = ["OPTIONS", "SWITCHES"]

_DEVICE: tuple[Option, ...] = (
    value(
        "--backend", "NAME", "what computes (auto: the fastest here)",
        "auto, cpu, cuda, reference, or one that a package registered",
        Group.DEVICE, None, "auto", everyday=True,
    ),
    flag(
        "--cpu", "compute on the CPU", "the fastest backend that needs no other device",
        Group.DEVICE, everyday=True, releases=ALL,
    ),
    flag(
        "--cuda", "compute on an NVIDIA GPU", "the backend cuda; exit code 3 where it cannot run",
        Group.DEVICE, releases=(LAR13,),
    ),
    value(
        "--device", "NODE", "which of several GPUs, or a computing node: 1, gpu0:1, xpux, cpu0",
        "the GPU of that number; of MegEngine's computing nodes `gpu` means --cuda, `cpu` and "
        "`multithread4:0` --cpu and that many threads, `xpu` the first that can be used",
        Group.DEVICE, v.some,
    ),
    flag(
        "--cpu-default", "compute on the CPU in the calling thread",
        "the CPU with one thread", Group.DEVICE, releases=ALL,
    ),
    value(
        "--threads|--multithread", "N", "threads to compute on (the backend's choice)",
        "N threads, the calling one among them; -1 leaves it to the backend",
        Group.DEVICE, v.threads, everyday=True, releases=ALL,
    ),
    value(
        "--multithread-default", "N", "the same: the calling thread always takes part",
        "as --threads N on the CPU", Group.DEVICE, v.threads, releases=ALL,
    ),
    value(
        "--multi-thread-core-ids", "N,N", "cores to pin the threads to, one for each",
        "thread i runs on core i; as many cores as threads, and cores that the process may use",
        Group.DEVICE, v.cores, (), releases=ALL,
    ),
    flag(
        "--enable-jit", "", "the native backends generate their code", Group.DEVICE,
        releases=ALL, state=State.ALWAYS,
    ),
    flag(
        "--tensorrt", "", "TensorRT is not used; --cuda computes with kernels of its own",
        Group.DEVICE, releases=ALL, state=State.REFUSED,
        hint="--cuda runs on an NVIDIA GPU, --cpu on the CPU",
    ),
    value(
        "--tensorrt-cache", "FILE", "", "TensorRT is not used, so there is nothing to keep",
        Group.DEVICE, v.some, releases=ALL, state=State.REFUSED,
        hint="--cuda runs on an NVIDIA GPU, --cpu on the CPU",
    ),
)  # fmt: skip

_ALGORITHMS: tuple[Option, ...] = (
    flag(
        "--fast-run", "choose algorithms by measuring them here",
        "times the candidates of every layer among its neighbours and keeps the fastest where the "
        "network gains; with --reproducible those that add in the same order",
        Group.ALGORITHMS, releases=ALL,
    ),
    flag(
        "--full-run", "the same with all candidates, also those that hardly ever win",
        "as --fast-run, which leaves out what is hardly ever fast",
        Group.ALGORITHMS, releases=(LAR13,),
    ),
    value(
        "--fast-run-algo-policy", "FILE", "keep what --fast-run chose in FILE, and use it",
        "takes the choices for the layers that FILE knows, whatever network they were measured in; "
        "with --fast-run measures those that are missing and adds them to FILE",
        Group.ALGORITHMS, v.some, releases=ALL,
    ),
    value(
        "--fast-run-shared-batch-size", "N", "measure algorithms with this batch",
        "the layers are measured with batch N, and what is fastest there is used for every batch",
        Group.ALGORITHMS, v.batch, releases=(LAR13,),
    ),
    flag(
        "--reproducible", "the same bits in every run",
        "only algorithms that add in the same order are candidates, so that every run and every "
        "number of threads gives the same bits", Group.ALGORITHMS, releases=ALL,
    ),
    flag(
        "--tf32", "on a GPU, multiply float32 numbers rounded to 10 bits of fraction",
        "convolutions and products of float32 run on tensor cores (TF32) where a GPU has them; "
        "factors are rounded, sums stay float32; the CPU computes as always", Group.ALGORITHMS,
    ),
    flag(
        "--binary-equal-between-batch", "the same bits for equal images of a batch",
        "means --reproducible; then runs every image of the batch alone as well and compares bits "
        "(exit code 1 when they differ)", Group.ALGORITHMS, releases=(LAR13,),
    ),
    value(
        "--workspace-limit", "BYTES", "most scratch memory of all threads (no limit)",
        "layers take algorithms that need no more; exit code 3 when none of a layer's fits",
        Group.ALGORITHMS, v.size, releases=ALL,
    ),
    flag(
        "--disable-mem-opt", "every value gets memory of its own",
        "no sharing of memory between values, no early freeing; results keep their bits",
        Group.ALGORITHMS, releases=ALL,
    ),
    flag(
        "--no-cache", "keep nothing on disk, and read nothing that was kept",
        "code and packed weights are made anew; the cache folder ($LOADRUN_CACHE) is not touched",
        Group.ALGORITHMS,
    ),
    flag(
        "--verify-cache", "check what is kept on disk in full before it is used",
        "the model's and the packed weights' checksums are computed again; code's always is",
        Group.ALGORITHMS,
    ),
    flag(
        "--fitting", "try combinations of options and keep the fastest",
        "times each combination (3 warm-up runs, 10 runs), prints them, then runs the best",
        Group.ALGORITHMS, releases=(LAR13,),
    ),
    value(
        "--dump-fitting-model", "FILE", "save the network of the best combination",
        "with --fitting: saves the network that won", Group.ALGORITHMS, v.some, releases=(LAR13,),
    ),
    value(
        "--layout-transform", "TARGET", "try the layouts for cpu or cuda and keep the fastest",
        "converts the network to each layout of the target, times it and keeps the fastest",
        Group.ALGORITHMS, v.some, releases=(LAR13,), choices=("", "cpu", "cuda"),
    ),
    value(
        "--layout-transform-dump", "FILE", "save the network in the layout that was chosen",
        "with --layout-transform: saves the network that won",
        Group.ALGORITHMS, v.some, releases=(LAR13,),
    ),
)  # fmt: skip

_CHECKS: tuple[Option, ...] = (
    value(
        "--io-dump", "FILE", "write every value as text",
        "one line for each value: operator, type, shape, figures and the first numbers",
        Group.CHECKS, v.some, releases=ALL,
    ),
    flag(
        "--io-dump-stdout", "the same on stdout", "prints the lines of --io-dump on stdout",
        Group.CHECKS, releases=(LAR13,),
    ),
    flag(
        "--io-dump-stderr", "the same on stderr", "prints the lines of --io-dump on stderr",
        Group.CHECKS, releases=(LAR13,),
    ),
    value(
        "--bin-io-dump", "DIR", "write every value as load_and_run does",
        "one file a value and index.json; `mgeserial.load_tensor_binary` reads the files",
        Group.CHECKS, v.some, releases=ALL,
    ),
    value(
        "--range", "X", "check that no value is NaN or beyond X",
        "names the first operator with a value beyond X or NaN; exit code 1",
        Group.CHECKS, v.real, releases=ALL,
    ),
    flag(
        "--check-dispatch", "check that every operator ran and kept its declared type",
        "compares type and shape of every value with what inference said, and says what ran "
        "each operator; exit code 1 when one differs", Group.CHECKS, releases=ALL,
    ),
    value(
        "--check-var-value", "STEP[:START]", "check that values are the same in every run",
        "runs three times and compares every STEP-th value from START on, bit by bit; exit code 1 "
        "when one differs", Group.CHECKS, v.steps, releases=ALL,
    ),
)  # fmt: skip

_CRYPTIONS = ("NONE", "AES_default", "RC4_default", "SIMPLE_FAST_RC4_default")
_PACK: tuple[Option, ...] = (
    value(
        "--packed-model-dump", "FILE", "write the model file as a packed model of MegEngine Lite",
        "packs the file as it is, with what the options below name; megenginelite loads it",
        Group.OTHER, v.some, releases=(LAR13,),
    ),
    value(
        "--pack-info-json", "FILE", "a JSON document about the model to pack with it",
        "goes into the packed model; its `name` becomes the model's",
        Group.OTHER, v.some, releases=(LAR13,),
    ),
    value(
        "--pack-cache", "FILE", "a cache of MegEngine's fast run to pack with the model",
        "goes into the packed model as it is", Group.OTHER, v.some, releases=(LAR13,),
    ),
    value(
        "--pack-info-cryption", "NAME", "method that decrypts the JSON document (NONE)",
        "notes the name; as in load_and_run nothing is encrypted: the document must be already",
        Group.OTHER, None, "NONE", releases=(LAR13,), choices=_CRYPTIONS,
    ),
    value(
        "--pack-model-cryption", "NAME", "method that decrypts the model (NONE)",
        "notes the name; as in load_and_run nothing is encrypted: the model must be already",
        Group.OTHER, None, "NONE", releases=(LAR13,), choices=_CRYPTIONS,
    ),
)  # fmt: skip

_LIBRARY: dict[str, Any] = {
    "state": State.REFUSED,
    "hint": "an operator in Python: see `mgeserial.ops.registry`",
}
_NO_LIBRARY = "a library of native operators is code of another program: it is never loaded"
_REFUSED: tuple[Option, ...] = (
    value(
        "--c-opr-lib", "FILE", "", _NO_LIBRARY, Group.OTHER, v.some, releases=ALL, **_LIBRARY
    ),
    flag("--c-opr-lib-with-param", "", _NO_LIBRARY, Group.OTHER, releases=(LAR13,), **_LIBRARY),
    value(
        "--c-opr-init-interface", "NAME", "", _NO_LIBRARY, Group.OTHER, v.some,
        releases=(LAR13,), **_LIBRARY,
    ),
    flag(
        "--atlas", "", "Huawei's Atlas is not supported", Group.OTHER, releases=(LAR13,),
        state=State.REFUSED, hint="--cpu runs on the CPU",
    ),
)  # fmt: skip

OPTIONS: tuple[Option, ...] = (*_DEVICE, *_ALGORITHMS, *_CHECKS, *_PACK, *_REFUSED)


def _switch(name: str, effect: str, releases: tuple[str, ...] = ALL) -> Option:
    return flag(name, effect, effect, Group.GRAPH, releases=releases)


# Declared to the parser by `mgeserial.passes.options.add_switches`, listed here for the documents.
SWITCHES: tuple[Option, ...] = (
    _switch("--optimize-for-inference", "fold constants, move arithmetic into weights, fuse"),
    _switch("--enable-nchw4", "layout NCHW4 for quantised convolutions"),
    _switch("--enable-chwn4", "layout CHWN4, after NCHW4"),
    _switch("--enable-nchw44", "layout NCHW44"),
    _switch("--enable-nchw88", "layout NCHW88"),
    _switch("--enable-nchw32", "layout NCHW32, after NCHW4"),
    _switch("--enable-nchw64", "layout NCHW64 for 4-bit convolutions", (LAR13,)),
    _switch("--enable-hwcd4|--enable-nhwcd4", "layout NHWCD4"),
    _switch("--enable-nchw44-dot", "layout NCHW44_DOT for int8 convolutions"),
    _switch("--enable-fuse-conv-bias-nonlinearity", "convolution, bias and nonlinearity in one"),
    _switch("--enable-fuse-conv-bias-with-z", "the same, and the value that is added"),
    _switch("--enable-ioc16", "values and sums in float16"),
    _switch("--enable-io16xc32", "values in float16, sums in float32"),
    _switch("--enable-fuse-preprocess", "preprocessing of the input in one operator", (LAR13,)),
    _switch("--fuse-grain|--enable-fuse-grain", "means and poolings out of parts", (LAR13,)),
    _switch("--weight-preprocess", "noted in the model; native code always does it", (LAR13,)),
    _switch("--winograd-transform", "the older name of --weight-preprocess"),
    flag(
        "--no-optimize", "run the file's operators as they are",
        "the file's operators run as they are", Group.GRAPH, everyday=True,
    ),
)  # fmt: skip
