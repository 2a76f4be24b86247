"""A package of its own adds an operator in one place: the example that CONTRIBUTING shows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import mgeserial
from loadrun.session import Session
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import Array
from mgeserial.errors import GraphError, ShapeError
from mgeserial.format.xxh64 import operator_id
from mgeserial.ir.types import Call, ShapeLike
from mgeserial.ops.registry import Name, OpSpec, V2Id, register, unregister
from mgeserial.ops.rules import dtype_of, need


# -- what CONTRIBUTING shows, under 30 lines ------------------------------------------------------
def _shapes(call: Call) -> list[ShapeLike]:
    shape = call.shape(0)
    need(shape[-1] % 2 == 0, f"the last axis must be even, got {shape}")
    return [(*shape[:-1], shape[-1] // 2)]


def _reference(call: Call, x: Array) -> Array:
    half = x.shape[-1] // 2
    return np.asarray(x[..., :half] * x[..., half:])


def gated_product() -> OpSpec:
    return OpSpec(
        name="GatedProduct",
        names=(Name("GatedProduct", "v1.13.0", operator_id("GatedProduct", persist=True)),),
        old_id=operator_id("GatedProduct", persist=False),
        v2=(V2Id("GatedProduct", 1, operator_id("GatedProduct", persist=False)),),
        inputs=("x",),
        dtypes=dtype_of(0),
        shapes=_shapes,
        reference=_reference,
        source="this file",
    )


# -------------------------------------------------------------------------------------------------


@pytest.fixture
def spec() -> Iterator[OpSpec]:
    found = register(gated_product())
    yield found
    unregister(found)


def network() -> GraphBuilder:
    b = GraphBuilder()
    b.output(b.apply("GatedProduct", [b.input("x", (2, 4))], name="y")[0], "y")
    return b


@pytest.mark.parametrize("container", ["v1", "v2", "mgbs"])
def test_a_custom_operator_is_written_read_and_run(spec: OpSpec, container: str) -> None:
    data = mgeserial.dumps(network().graph(), format=container)
    model = mgeserial.load(data)
    assert model.graph.nodes[-1].op is spec
    with Session(model, "reference") as session:
        got = session.run([np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32)])["y"]
    np.testing.assert_array_equal(got, [[3, 8], [35, 48]])


def test_its_errors_are_in_the_users_words(spec: OpSpec) -> None:
    b = GraphBuilder()
    with pytest.raises(ShapeError, match=r"GatedProduct.*must be even"):
        b.apply(spec.name, [b.input("x", (2, 3))])


def test_without_the_package_the_file_still_loads(spec: OpSpec) -> None:
    data = mgeserial.dumps(network().graph())
    unregister(spec)
    try:
        node = mgeserial.load(data).graph.nodes[-1]
        assert node.op.name == "GatedProduct"
        assert node.op.reference is None
    finally:
        register(spec)


def test_a_name_or_id_is_given_once(spec: OpSpec) -> None:
    with pytest.raises(GraphError, match="registered already"):
        register(gated_product())
