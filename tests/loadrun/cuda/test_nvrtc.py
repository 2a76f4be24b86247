"""NVRTC takes the kernels of the corpus, for all kinds of GPUs that are supported."""

from __future__ import annotations

import functools

import pytest
from corpus_cases import compact_root
from cuda_kernels import (
    ARCHITECTURES,
    TARGETS,
    Nvrtc,
    batches,
    find_nvrtc,
    kernels_of,
    plans_of_benchmarks,
    plans_of_corpus,
)

from loadrun.backends.cuda.plan import Kernel

_TARGETS = [(major, arch) for major, every in ARCHITECTURES.items() for arch in every]


@functools.cache
def _kernels() -> dict[str, Kernel]:
    plans = (p for t in TARGETS for _, p in plans_of_corpus(compact_root(), t))
    return kernels_of(plans) | _benchmark_kernels()


@functools.cache
def _benchmark_kernels() -> dict[str, Kernel]:
    return kernels_of(plans_of_benchmarks())


def _one_of_each() -> dict[str, Kernel]:
    """A kernel for each template and all kernels of the benchmark networks."""
    stems = {k.rpartition("_")[0]: k for k in _kernels()}
    chosen = {k: _kernels()[k] for k in stems.values()}
    return chosen | _benchmark_kernels()


def _compiler(major: int) -> Nvrtc:
    path = find_nvrtc(major)
    if path is None:
        pytest.skip(f"NVRTC {major} is not installed (pip install mgeserial[nvrtc])")
    return Nvrtc(path)


@pytest.mark.parametrize(("major", "architecture"), _TARGETS)
def test_kernels_of_every_kind_compile(major: int, architecture: str) -> None:
    compiler = _compiler(major)
    for part in batches(_one_of_each()):
        assert compiler.compile(part, architecture) == ""


def test_every_kernel_of_the_corpus_compiles() -> None:
    # scripts/verify/nvrtc.py does this for all architectures, which takes minutes.
    compiler = _compiler(12)
    for part in batches(_kernels()):
        assert compiler.compile(part, "sm_80") == ""


def test_what_is_no_kernel_is_refused() -> None:
    path = find_nvrtc(13) or find_nvrtc(12)
    if path is None:
        pytest.skip("NVRTC is not installed (pip install mgeserial[nvrtc])")
    wrong = Kernel.of("wrong", 'extern "C" __global__ void $NAME(float *x) { x[0] = undeclared; }')
    assert "undeclared" in Nvrtc(path).compile([wrong], "sm_90")
