"""The model of how threads share a Winograd convolution."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadrun.backends.cpu.kernels.winograd_share import Sharing, Sizes, share
from loadrun.backends.cpu.target import detect

TARGET = replace(detect(), lanes=16, level="avx512", l2=1 << 20, l3=32 << 20)


def sizes(channels, hw, *, images=1, m=4):
    tiles = -(-hw // m)
    points = (m + 2) ** 2
    vectors = -(-channels // TARGET.lanes)
    return Sizes(images, tiles, tiles, points, channels, vectors, 2, 4 * channels * (hw + 2) ** 2)


@pytest.mark.parametrize(
    ("channels", "hw", "m"), [(256, 14, 4), (512, 7, 2), (512, 14, 4), (192, 14, 4)]
)
def test_heavy_weights_and_small_maps_are_copied(channels, hw, m):
    assert share(sizes(channels, hw, m=m), 2, TARGET) == Sharing(0, 2)


@pytest.mark.parametrize(("channels", "hw"), [(64, 56), (128, 28), (64, 128), (32, 256)])
def test_larger_maps_are_shared_by_rows(channels, hw):
    s = sizes(channels, hw)
    found = share(s, 2, TARGET)
    assert 0 < found.rows < s.down  # two units at least


def test_one_thread_needs_no_copies():
    for channels, hw in ((64, 56), (256, 14), (512, 14)):
        assert share(sizes(channels, hw), 1, TARGET).copies == 1


def test_transformed_inputs_that_exceed_the_shared_cache_are_not_made_at_once():
    found = share(sizes(32, 256), 1, TARGET)
    assert 0 < found.rows < 16


def test_many_threads_do_not_copy_more_than_caches_hold():
    for channels, hw in ((128, 28), (256, 14), (512, 14)):
        s = sizes(channels, hw)
        found = share(s, 64, TARGET)
        made = 4 * s.points * s.channels * s.across * s.down * found.copies
        assert made <= TARGET.l3 or found.copies == 1


def test_images_of_a_batch_are_never_copied():
    assert share(sizes(256, 14, images=8), 2, TARGET).copies == 1
