"""What may be asked of the optimiser: MegEngine's switches, their contradictions, the file's bits.

Every command line with these switches takes them from here: `add_switches(parser)` declares them,
`options_from(args)` makes `OptimizeOptions` of what was given.

Source: MegEngine 1.13.0, `trace.dump` and load_and_run; bits of the metadata as its files have them
(FORMAT.md section d).
"""

from __future__ import annotations

import argparse
import enum
from collections.abc import Iterator
from dataclasses import dataclass, fields

from mgeserial.errors import InputError

__all__ = ["Layout", "OptimizeOptions", "add_switches", "options_from", "switch_names"]


class Layout(enum.IntEnum):
    """Layouts a graph can be converted to, by their number in the metadata."""

    NONE = 0
    NCHW4 = 1
    NHWCD4 = 2
    NCHW88 = 3
    NCHW44 = 4
    NCHW44_DOT = 5
    NCHW32 = 6
    CHWN4 = 7
    NCHW64 = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeOptions:
    """Switches under MegEngine's names (those of `trace.dump`).

    Attributes:
        optimize_for_inference: Whether anything is done at all.
        enable_io16xc32: Values are stored as float16, convolutions and products sum in float32.
        enable_ioc16: Values are stored as float16, sums too where MegEngine's kernels do so.
        enable_hwcd4: Layout NHWCD4 (images of OpenCL).
        enable_nchw4: Layout NCHW4 for quantised convolutions.
        enable_nchw88: Layout NCHW88.
        enable_nchw44: Layout NCHW44.
        enable_nchw44_dot: Layout NCHW44_DOT for int8 convolutions.
        enable_nchw32: Layout NCHW32 (tensor cores), after NCHW4.
        enable_nchw64: Layout NCHW64 for 4-bit convolutions.
        enable_chwn4: Layout CHWN4, after NCHW4.
        enable_fuse_conv_bias_nonlinearity: Convolution, bias and nonlinearity in one operator.
        enable_fuse_conv_bias_with_z: The above, and the value added to it.
        enable_fuse_preprocess: Type conversion, padding and shuffling of the input in one operator.
        enable_fuse_grain: Means and global poolings out of their parts (MegEngine's default).
        weight_preprocess: Ask the runtime to transform weights ahead of the run (a bit only).
        winograd_transform: The older name of the same.
    """

    optimize_for_inference: bool = True
    enable_io16xc32: bool = False
    enable_ioc16: bool = False
    enable_hwcd4: bool = False
    enable_nchw4: bool = False
    enable_nchw88: bool = False
    enable_nchw44: bool = False
    enable_nchw44_dot: bool = False
    enable_nchw32: bool = False
    enable_nchw64: bool = False
    enable_chwn4: bool = False
    enable_fuse_conv_bias_nonlinearity: bool = False
    enable_fuse_conv_bias_with_z: bool = False
    enable_fuse_preprocess: bool = False
    enable_fuse_grain: bool = True
    weight_preprocess: bool = False
    winograd_transform: bool = False

    def __post_init__(self) -> None:
        """Refuse contradictions (InputError)."""
        layouts = [f"--{_dashed(n)}" for n in _LAYOUTS if getattr(self, n)]
        if len(layouts) > 1:
            raise InputError(f"{' and '.join(layouts)} contradict: a graph has one layout")
        if self.enable_io16xc32 and self.enable_ioc16:
            raise InputError(
                "--enable-io16xc32 and --enable-ioc16 contradict",
                hint="io16xc32 sums in float32, ioc16 in float16",
            )
        if not self.optimize_for_inference and (given := list(self._given())):
            raise InputError(
                f"--{_dashed(given[0])} needs --optimize-for-inference",
                hint="give both, or neither",
            )

    def _given(self) -> Iterator[str]:
        for item in fields(self):
            if item.name not in _ALWAYS and getattr(self, item.name):
                yield item.name

    @property
    def layout(self) -> Layout:
        """The layout asked for."""
        for name, layout in _LAYOUTS.items():
            if getattr(self, name):
                return layout
        return Layout.NONE

    @property
    def fuses_conv(self) -> bool:
        """Whether convolutions take in their bias and nonlinearity: asked for, or by the layout."""
        return (
            self.enable_fuse_conv_bias_nonlinearity
            or self.enable_fuse_conv_bias_with_z
            or self.layout is not Layout.NONE
        )

    @property
    def bits(self) -> int:
        """`optimize_options` of the metadata."""
        if not self.optimize_for_inference:
            return 0
        flags = sum(1 << bit for name, bit in _BITS.items() if getattr(self, name))
        if self.winograd_transform:
            flags |= 1 << _BITS["weight_preprocess"]
        return flags | self.layout << 32

    @classmethod
    def of_bits(cls, bits: int) -> OptimizeOptions:
        """Options that have these bits; 0: not optimised.

        Raises:
            InputError: A layout that no known release has.
        """
        number = bits >> 32
        if number not in list(Layout):
            raise InputError(f"layout number {number} of the metadata is not known")
        given = {name: bool(bits >> bit & 1) for name, bit in _BITS.items()}
        given |= {name: layout == number for name, layout in _LAYOUTS.items()}
        return cls(**given, optimize_for_inference=bits != 0)


_LAYOUTS = {
    "enable_nchw4": Layout.NCHW4,
    "enable_hwcd4": Layout.NHWCD4,
    "enable_nchw88": Layout.NCHW88,
    "enable_nchw44": Layout.NCHW44,
    "enable_nchw44_dot": Layout.NCHW44_DOT,
    "enable_nchw32": Layout.NCHW32,
    "enable_chwn4": Layout.CHWN4,
    "enable_nchw64": Layout.NCHW64,
}
_BITS = {
    "enable_io16xc32": 0,
    "enable_ioc16": 1,
    "enable_fuse_conv_bias_nonlinearity": 2,
    "enable_fuse_conv_bias_with_z": 3,
    "weight_preprocess": 4,
    "enable_fuse_preprocess": 5,
    "enable_fuse_grain": 6,
}
# On unless said otherwise: giving them asks for nothing.
_ALWAYS = frozenset({"optimize_for_inference", "enable_fuse_grain"})

_HELP = {
    "optimize_for_inference": "fold constants, move arithmetic into weights, fuse (default)",
    "enable_io16xc32": "store values as float16, sum in float32",
    "enable_ioc16": "store values and sum in float16",
    "enable_hwcd4": "layout NHWCD4",
    "enable_nchw4": "layout NCHW4 (quantised)",
    "enable_nchw88": "layout NCHW88",
    "enable_nchw44": "layout NCHW44",
    "enable_nchw44_dot": "layout NCHW44_DOT (int8)",
    "enable_nchw32": "layout NCHW32 (tensor cores)",
    "enable_nchw64": "layout NCHW64 (4-bit)",
    "enable_chwn4": "layout CHWN4",
    "enable_fuse_conv_bias_nonlinearity": "convolution + bias + nonlinearity in one operator",
    "enable_fuse_conv_bias_with_z": "the same with the value that is added",
    "enable_fuse_preprocess": "type conversion, padding and shuffling of the input in one operator",
    "enable_fuse_grain": "means and global poolings out of their parts (default; --no-fuse-grain)",
    "weight_preprocess": "ask the runtime to transform weights ahead of the run",
    "winograd_transform": "the older name of --weight-preprocess",
}
_SPELLINGS = {
    "enable_hwcd4": ("--enable-hwcd4", "--enable-nhwcd4"),
    "enable_fuse_grain": ("--fuse-grain", "--enable-fuse-grain"),
}


def _dashed(name: str) -> str:
    return "fuse-grain" if name == "enable_fuse_grain" else name.replace("_", "-")


def switch_names() -> list[str]:
    """All switches as command lines spell them."""
    return [f"--{_dashed(item.name)}" for item in fields(OptimizeOptions)]


def add_switches(parser: argparse.ArgumentParser) -> None:
    """Declare the switches, in a group of their own."""
    group = parser.add_argument_group("optimisation")
    for item in fields(OptimizeOptions):
        name = item.name
        spellings = _SPELLINGS.get(name, (f"--{_dashed(name)}",))
        default = None if name in _ALWAYS else False
        group.add_argument(
            *spellings, dest=name, action="store_true", default=default, help=_HELP[name]
        )
    group.add_argument(
        "--no-fuse-grain", dest="enable_fuse_grain", action="store_false", help=argparse.SUPPRESS
    )


def options_from(args: argparse.Namespace, *, needs_first: bool = False) -> OptimizeOptions | None:
    """Options that a command line gave; None when it gave none of the switches.

    Args:
        args: What a parser with `add_switches` made.
        needs_first: Whether the others are allowed only beside `--optimize-for-inference` (as
            `dump_with_testcase` has it); otherwise each one means it.

    Raises:
        InputError: Switches that contradict.
    """
    given = {item.name: getattr(args, item.name) for item in fields(OptimizeOptions)}
    if not any(given.values()) and given["enable_fuse_grain"] is None:
        return None
    first = bool(given["optimize_for_inference"])
    if given["enable_fuse_grain"] is None:
        given["enable_fuse_grain"] = True
    given["optimize_for_inference"] = first if needs_first else True
    return OptimizeOptions(**given)
