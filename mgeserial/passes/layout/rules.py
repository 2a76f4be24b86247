"""What the tables of layouts are made of: rules of convolutions, of images, of what follows."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from mgeserial import params as P
from mgeserial.dtypes import DTypeEnum
from mgeserial.ops.layouts import FilterLayout
from mgeserial.passes.layout.facts import DENSE, ConvFacts, FirstLayer, matches
from mgeserial.passes.options import Layout

__all__ = ["CONV", "ConvRule", "Follow", "ImageRule", "Kinds", "Policy", "Target"]

_F = P.ConvolutionFormat
_K = DTypeEnum
_Mode = P.RelayoutFormatV0Mode
Kinds = frozenset[DTypeEnum]
CONV = frozenset({"Convolution", "ConvBiasForward"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvRule:
    """How one kind of convolution is converted.

    Attributes:
        ops: Operators.
        kind: `DENSE`, `GROUP` or `CHANNEL_WISE`.
        format: Format that the operator gets.
        reads, result: Formats of the image and of the result.
        filter: Layout of the filter.
        image_kinds, filter_kinds, result_kinds: Element types; None: any.
        multiple: Number that channels read and written (of a group) are multiples of.
        any_reads: Whether channels read need not be multiples.
        fewer_than: Number that channels read must be below; they are then filled up to it.
        groups: Number that the groups are a multiple of.
        least_size: Height and width that the image has at least.
        first: Conditions for first layers, one of which must fit by its types.
        takes_z: Whether a residual may be added.
        dilates: Whether the taps of the filter may stand apart.
        needs_packed: Whether the image must be converted already.
        bias: Format of bias and residual; None: that of the result.
        image_mode, filter_mode: Modes of RelayoutFormat that must be used.
        fill_reads: Channels read are filled up with zeros to a multiple of this in the filter.
        image_axis: The axis that the filter is packed along as an image of OpenCL; None: no image.
        label: What to call it where several rules are told apart in a reason.
    """

    ops: frozenset[str] = CONV
    kind: str = DENSE
    format: _F
    reads: _F
    result: _F
    filter: FilterLayout
    image_kinds: Kinds | None = None
    filter_kinds: Kinds | None = None
    result_kinds: Kinds | None = None
    multiple: int = 1
    any_reads: bool = False
    fewer_than: int | None = None
    groups: int = 1
    least_size: int = 0
    first: tuple[FirstLayer, ...] = ()
    takes_z: bool = True
    dilates: bool = True
    needs_packed: bool = False
    bias: _F | None = None
    image_mode: _Mode | None = None
    filter_mode: _Mode | None = None
    fill_reads: int = 1
    image_axis: int | None = None
    label: str = ""

    def type_reason(self, facts: ConvFacts) -> str | None:
        """Which of its element types this rule is not for."""
        kinds = (self.image_kinds, self.filter_kinds, self.result_kinds)
        parts = zip(("image", "filter", "result"), kinds, facts.dtypes, strict=True)
        for what, wanted, dtype in parts:
            if wanted is not None and not matches(wanted, dtype):
                return f"its {what} is {dtype.name}, {self.format} takes {_names(wanted)}"
        return None

    def reason(self, facts: ConvFacts) -> str | None:
        """Why a convolution of this kind is not converted by this rule; None when it is."""
        return self.type_reason(facts) or next(self._reasons(facts), None)

    def _reasons(self, facts: ConvFacts) -> Iterator[str]:
        yield from self._channel_reasons(facts)
        if self.needs_packed and not facts.is_packed:
            yield "its image is not in blocks yet"
        if facts.has_z and not self.takes_z:
            yield "it adds a residual"
        if not self.dilates and not self.first and facts.dilate != (1, 1):
            yield f"its dilation is {facts.dilate}"
        if self.least_size and (facts.size is None or min(facts.size) < self.least_size):
            yield f"its image of {_pixels(facts)} has a side below {self.least_size}"
        if self.first:
            yield from self._first_reasons(facts)

    def _channel_reasons(self, facts: ConvFacts) -> Iterator[str]:
        of = "" if facts.kind == DENSE else " in each group"
        if self.fewer_than is not None and facts.reads >= self.fewer_than:
            yield f"{facts.reads} input channels are not fewer than {self.fewer_than}"
        some = not self.any_reads and self.fewer_than is None
        counts = [("input", facts.reads)] * some + [("output", facts.writes)]
        for side, count in counts:
            if count % self.multiple:
                many = "channels are" if count != 1 else "channel is"
                yield f"{count} {side} {many} no multiple of {self.multiple}{of}"
        if facts.groups % self.groups:
            yield f"{facts.groups} groups are no multiple of {self.groups}"
        total = facts.groups * facts.writes
        if facts.bias_channels not in (0, total) and self.bias is not _F.NCHW:
            yield f"its bias has {facts.bias_channels} channels, its result {total}"

    def _first_reasons(self, facts: ConvFacts) -> Iterator[str]:
        kinds = tuple(d.kind for d in facts.dtypes)
        found = next((f for f in self.first if f.dtypes == kinds), None)
        if found is None:
            yield "no first layer has the types " + ", ".join(d.name for d in facts.dtypes)
        elif (problem := found.reason(facts)) is not None:
            yield problem


def _names(kinds: Kinds) -> str:
    """Few kinds by name, many by those that are missing."""
    if len(kinds) < len(_K) / 2:
        return ", ".join(sorted(k.name for k in kinds))
    return "all but " + ", ".join(sorted(k.name for k in frozenset(_K) - kinds))


def _pixels(facts: ConvFacts) -> str:
    return "unknown size" if facts.size is None else "x".join(map(str, facts.size))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRule:
    """How an operator with one image and a format is converted.

    Attributes:
        ops: Operators.
        kinds: Element types of the image; None: any.
        follows: Formats that it takes from an image that is converted already.
        takes: (number, format): it converts an image whose channels are a multiple of the number,
            whether it is converted already or not; the first that fits wins.
    """

    ops: frozenset[str]
    kinds: Kinds | None = None
    follows: tuple[_F, ...] = ()
    takes: tuple[tuple[int, _F], ...] = ()


class Policy(enum.Enum):
    """When an operator with several inputs works on blocks; all inputs must have whole blocks."""

    ANY = "one input is in blocks"
    EVERY = "all inputs are in blocks"
    HALF = "at least half of the inputs are in blocks"
    LARGEST = "most elements are in those blocks"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Follow:
    """Operators that work element by element, and when they work on blocks."""

    ops: frozenset[str]
    policy: Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One layout.

    Attributes:
        layout: The switch that asks for it.
        base: Format that operators have before.
        main: The layout's own format.
        convs: Rules of convolutions; the first without a reason against it wins.
        images: Rules of operators with one image.
        follows: Operators element by element.
        concat: When Concat works on blocks; None: never.
        reduces: Axes that Reduce works along on blocks.
    """

    layout: Layout
    base: _F = _F.NCHW
    main: _F
    convs: tuple[ConvRule, ...]
    images: tuple[ImageRule, ...]
    follows: tuple[Follow, ...]
    concat: Policy | None = None
    reduces: str = ""

    @property
    def name(self) -> str:
        """Name of the pass."""
        return self.layout.name.lower()
