from __future__ import annotations

import random
import time

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from mgeserial.format.xxh64 import graph_hash, operator_id, xxh64


@given(st.binary(max_size=300), st.integers(0, 2**64 - 1))
def test_digest_equals_the_c_library(data, seed):
    assert xxh64(data, seed) == xxhash.xxh64(data, seed=seed).intdigest()


@pytest.mark.parametrize("size", range(70))
def test_every_tail_length(size):
    data = random.Random(size).randbytes(size)
    assert xxh64(data) == xxhash.xxh64(data).intdigest()


def test_views_of_other_item_sizes_are_bytes():
    data = bytes(range(64))
    assert xxh64(memoryview(data).cast("I")) == xxh64(data)


def test_200_kb_take_less_than_a_fifth_of_a_second():
    data = bytes(200_000)
    start = time.perf_counter()
    xxh64(data)
    assert time.perf_counter() - start < 0.2


def test_operator_ids_of_known_operators():
    # Source: ids in files of MegEngine 1.13.0 and 1.4.0.
    assert operator_id("Host2DeviceCopy", persist=True) == 2436615116837392937
    assert operator_id("Host2DeviceCopy", persist=False) == 11501548436123901713
    assert operator_id("ConvBiasForwardV4", persist=False) == operator_id(
        "ConvBiasForward", persist=False
    )


def test_graph_hash_is_never_zero():
    assert graph_hash(b"") > 0
