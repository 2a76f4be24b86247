"""Random graphs of elementwise operators of all types, reductions, moves and conversions.

Numbers are multiples of an eighth and stay small enough for float32 to be exact, so every result,
however programs were joined, must be the reference backend's, bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadrun.session import Session
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.ir.graph import Graph, Value

KINDS = ("Float32", "Int8", "Uint8", "Int16", "Int32", "Bool", "Float16", "BFloat16")
NUMBERS = frozenset({"Int8", "Uint8", "Int16", "Int32", "Float32"})
BINARY = ("ADD", "SUB", "MAX_", "MIN_", "SWITCH_GT0", "ABS_GRAD", "COND_LT_MOV")
UNARY = ("RELU", "NEGATE", "ABS", "SIGN", "RELU6")
WHOLE = ("MUL", "SHL", "SHR", "FUSE_MUL_ADD3", "FUSE_ADD_RELU", "PRELU")
SHAPES = ((4, 1, 6), (4, 5, 6), (1, 5, 1), (4, 5, 1), (1,))
COMPARE = P.ElemwiseMultiTypeMode


class Drawer:
    """A graph that grows by one drawn operator at a time; values with their kinds."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.b = GraphBuilder()
        self.feeds: dict[str, Any] = {}
        self.values: list[tuple[Value, str]] = []
        self.pads = 0
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        for k, shape in enumerate(SHAPES):
            kind = draw(st.sampled_from(KINDS))
            numbers = rng.integers(-16, 17, shape)
            x = self.b.input(f"x{k}", shape, "Float32")
            self.feeds[f"x{k}"] = (numbers / (8 if "loat" in kind else 1)).astype(np.float32)
            self.values.append((x if kind == "Float32" else self.b.cast(x, kind), kind))

    def pick(self, *kinds: str) -> tuple[Value, str]:
        """A value of one of these kinds, converted if there is none."""
        wanted = [v for v in self.values if not kinds or v[1] in kinds]
        if wanted:
            found: tuple[Value, str] = self.draw(st.sampled_from(wanted))
            return found
        value, _ = self.draw(st.sampled_from(self.values))
        return self.b.cast(value, kinds[0]), kinds[0]

    def grow(self) -> None:
        """One more operator."""
        steps = ("binary", "unary", "whole", "compare", "logic", "cast", "where", "reduce", "pad")
        step = self.draw(st.sampled_from([*steps, "move", "cumsum"]))
        getattr(self, step)()

    def add(self, value: Value, kind: str) -> None:
        self.values.append((value, kind))

    def binary(self) -> None:
        x, kind = self.pick(*NUMBERS)
        y, _ = self.pick(kind)
        mode = self.draw(st.sampled_from(BINARY))
        z = [self.pick(kind)[0]] if mode.startswith("COND") else []
        self.add(self.b.elemwise(x, y, *z, mode=mode), kind)

    def unary(self) -> None:
        x, kind = self.pick(*NUMBERS)
        self.add(self.b.elemwise(x, mode=self.draw(st.sampled_from(UNARY))), kind)

    def whole(self) -> None:
        x, kind = self.pick("Int8", "Uint8", "Int16", "Int32")
        mode = self.draw(st.sampled_from(WHOLE))
        more = [self.pick(kind)[0] for _ in range(2 if mode.endswith("ADD3") else 1)]
        self.add(self.b.elemwise(x, *more, mode=mode), kind)

    def compare(self) -> None:
        x, kind = self.pick(*NUMBERS)
        mode = self.draw(st.sampled_from([COMPARE.LT, COMPARE.LEQ, COMPARE.EQ, COMPARE.NEQ]))
        param = P.ElemwiseMultiType(mode=mode)
        self.add(self.b.apply("ElemwiseMultiType", [x, self.pick(kind)[0]], [param])[0], "Bool")

    def logic(self) -> None:
        x, y = self.pick("Bool")[0], self.pick("Bool")[0]
        self.add(
            self.b.elemwise(x, y, mode=self.draw(st.sampled_from(["AND", "OR", "XOR"]))), "Bool"
        )

    def cast(self) -> None:
        x, kind = self.pick()
        target = self.draw(st.sampled_from(KINDS))
        if kind != target:
            self.add(self.b.cast(x, target), target)

    def where(self) -> None:
        x, kind = self.pick(*NUMBERS)
        param = P.ElemwiseMultiType(mode=COMPARE.LT)
        (mask,) = self.b.apply("ElemwiseMultiType", [self.b.elemwise(x, x, mode="SUB"), x], [param])
        self.add(self.b.apply("Where", [mask, x, self.b.elemwise(x, mode="NEGATE")])[0], kind)

    def reduce(self) -> None:
        x, kind = self.pick("Int8", "Uint8", "Int16", "Int32", "Float32")
        modes = ["SUM", "MAX_", "MIN_"] + ([] if kind == "Float32" else ["MEAN", "PRODUCT"])
        mode = P.ReduceMode[self.draw(st.sampled_from(modes))]
        axis = self.draw(st.integers(0, len(self.b.shape_of(x)) - 1))
        self.add(self.b.apply("Reduce", [x], [P.Reduce(mode=mode, axis=axis)])[0], kind)

    def cumsum(self) -> None:
        x, kind = self.pick("Int8", "Uint8", "Int16", "Int32")
        param = P.Cumsum(
            axis=0, exclusive=self.draw(st.booleans()), reverse=self.draw(st.booleans())
        )
        self.add(self.b.apply("Cumsum", [x], [param])[0], kind)

    def pad(self) -> None:
        x, _ = self.pick()
        mode = P.PaddingPaddingMode[self.draw(st.sampled_from(["CONSTANT", "REPLICATE"]))]
        param = P.Padding(padding_mode=mode, padding_val=1.0, front_offset_dim0=1)
        (y,) = self.b.apply("Padding", [x], [param])
        self.pads += 1
        self.b.output(y, f"pad{self.pads}")  # its shape fits no other value

    def move(self) -> None:
        x, kind = self.pick()
        turned = range(len(self.b.shape_of(x)))[::-1]
        y = self.b.elemwise(self.b.transpose(x, turned), mode="ABS") if kind in NUMBERS else x
        self.add(self.b.transpose(y, turned) if y is not x else x, kind)

    def graph(self) -> Graph:
        for k, (value, _) in enumerate(self.values[-4:]):
            self.b.output(value, f"r{k}")
        return self.b.graph()


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_graphs_give_the_reference_results_exactly(data: st.DataObject) -> None:
    drawer = Drawer(data.draw)
    for _ in range(data.draw(st.integers(3, 14))):
        drawer.grow()
    graph = drawer.graph()
    with np.errstate(all="ignore"):
        with Session(graph, "reference") as session:
            want = session.run(drawer.feeds)
        with Session(graph, "cpu", threads=data.draw(st.sampled_from([1, 3]))) as session:
            got = session.run(drawer.feeds)
            assert session.program is not None
            assert session.program.report.fallback == {}
    for name, expected in want.items():
        assert got[name].dtype == expected.dtype
        np.testing.assert_array_equal(got[name], expected, err_msg=name)
