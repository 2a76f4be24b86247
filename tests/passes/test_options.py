"""Switches: names, contradictions, bits, command lines."""

from __future__ import annotations

import argparse

import pytest

from mgeserial.errors import InputError
from mgeserial.passes.options import (
    Layout,
    OptimizeOptions,
    add_switches,
    options_from,
    switch_names,
)


def _parsed(*words, **given):
    parser = argparse.ArgumentParser()
    add_switches(parser)
    return options_from(parser.parse_args(words), **given)


@pytest.mark.parametrize(
    ("options", "bits"),
    [
        (OptimizeOptions(), 1 << 6),
        (OptimizeOptions(enable_fuse_grain=False), 0),
        (
            OptimizeOptions(enable_nchw44=True, enable_fuse_conv_bias_nonlinearity=True),
            4 << 32 | 68,
        ),
        (OptimizeOptions(enable_fuse_conv_bias_with_z=True), 0b1001000),
        (OptimizeOptions(enable_io16xc32=True, enable_fuse_preprocess=True), 0b1100001),
        (OptimizeOptions(weight_preprocess=True), 0b1010000),
        (OptimizeOptions(winograd_transform=True), 0b1010000),
        (OptimizeOptions(enable_nchw64=True), 8 << 32 | 64),
        (OptimizeOptions(optimize_for_inference=False), 0),
    ],
)
def test_bits_of_the_metadata(options, bits):
    assert options.bits == bits


def test_bits_and_back():
    for layout in Layout:
        bits = layout << 32 | 0b1000110
        if layout:
            assert OptimizeOptions.of_bits(bits).layout is layout
        assert OptimizeOptions.of_bits(bits).bits == bits
    with pytest.raises(InputError, match="layout number 9 of the metadata is not known"):
        OptimizeOptions.of_bits(9 << 32)


def test_contradictions_are_refused_by_name():
    with pytest.raises(InputError, match="--enable-nchw4 and --enable-hwcd4 contradict"):
        OptimizeOptions(enable_nchw4=True, enable_hwcd4=True)
    with pytest.raises(InputError, match="--enable-io16xc32 and --enable-ioc16 contradict"):
        OptimizeOptions(enable_io16xc32=True, enable_ioc16=True)
    with pytest.raises(InputError, match="--enable-ioc16 needs --optimize-for-inference"):
        OptimizeOptions(optimize_for_inference=False, enable_ioc16=True)


def test_every_switch_is_on_the_command_line():
    assert set(switch_names()) == {
        "--optimize-for-inference",
        *(f"--enable-{n}" for n in ("io16xc32", "ioc16", "hwcd4", "nchw4", "nchw88", "nchw44")),
        *(f"--enable-{n}" for n in ("nchw44-dot", "nchw32", "nchw64", "chwn4")),
        "--enable-fuse-conv-bias-nonlinearity",
        "--enable-fuse-conv-bias-with-z",
        "--enable-fuse-preprocess",
        "--fuse-grain",
        "--weight-preprocess",
        "--winograd-transform",
    }
    for name in switch_names():
        assert _parsed(name) is not None


def test_a_command_line_without_switches_asks_for_nothing():
    assert _parsed() is None
    assert _parsed("--optimize-for-inference") == OptimizeOptions()


def test_the_older_spelling_and_the_way_to_switch_grain_off():
    assert _parsed("--enable-nhwcd4").layout is Layout.NHWCD4
    assert not _parsed("--optimize-for-inference", "--no-fuse-grain").enable_fuse_grain
    assert _parsed("--no-fuse-grain").bits == 0


def test_dump_with_testcase_needs_the_first_switch():
    with pytest.raises(InputError, match="--enable-nchw44 needs --optimize-for-inference"):
        _parsed("--enable-nchw44", needs_first=True)
    assert _parsed("--enable-nchw44").layout is Layout.NCHW44
    both = _parsed("--optimize-for-inference", "--enable-nchw44", needs_first=True)
    assert both.layout is Layout.NCHW44


def test_two_layouts_on_a_command_line_are_an_error():
    with pytest.raises(InputError, match="a graph has one layout"):
        _parsed("--enable-chwn4", "--enable-nchw32")
