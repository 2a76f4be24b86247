"""GraphBuilder: what it builds runs, and mistakes are errors on the line that makes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loadrun.session import Session
from mgeserial.author import GraphBuilder
from mgeserial.errors import GraphError, InputError, ShapeError

ROOT = Path(__file__).resolve().parent.parent


def test_generated_operator_methods_are_fresh() -> None:
    script = ROOT / "scripts" / "generate_builder.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_linear_takes_a_bias_of_shape_n() -> None:
    b = GraphBuilder()
    x = b.input("x", (2, 3))
    weight = np.arange(12, dtype=np.float32).reshape(4, 3)
    b.output(b.linear(x, weight, np.array([1, 2, 3, 4], np.float32)), "y")
    data = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    got = Session(b.graph())(data)["y"]
    np.testing.assert_array_equal(got, data @ weight.T + [1, 2, 3, 4])


def test_shapes_are_checked_as_you_type() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 3, 8, 8))
    with pytest.raises(ShapeError, match="Convolution"):
        b.conv2d(x, np.zeros((8, 4, 3, 3), np.float32))
    assert b.shape_of(b.conv2d(x, np.zeros((8, 3, 3, 3), np.float32), padding=1)) == (1, 8, 8, 8)


def test_enum_names_are_taken_and_close_ones_listed() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 3, 8, 8))
    assert b.pooling(x, mode="MAX").node.param.mode.name == "MAX_"
    with pytest.raises(InputError, match="AVERGE") as caught:
        b.pooling(x, mode="AVERGE")
    assert "AVERAGE" in (caught.value.hint or "")


def test_values_of_another_builder_are_refused() -> None:
    a, b = GraphBuilder(), GraphBuilder()
    with pytest.raises(GraphError, match="another builder"):
        b.relu(a.input("x", (1,)))


def test_two_inputs_of_one_name_are_refused() -> None:
    b = GraphBuilder()
    b.input("x", (1,))
    with pytest.raises(InputError, match="'x'"):
        b.input("x", (1,))


def test_a_graph_needs_an_output() -> None:
    b = GraphBuilder()
    b.input("x", (1,))
    with pytest.raises(GraphError, match="no output"):
        b.graph()


def test_building_goes_on_after_a_graph_was_taken() -> None:
    b = GraphBuilder()
    x = b.input("x", (2,))
    b.output(b.relu(x), "a")
    first = b.graph()
    b.output(b.sigmoid(x), "b")
    assert first.output_names == ("a",)
    assert b.graph().output_names == ("a", "b")


def test_pixel_shuffle_moves_channels_to_pixels() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 4, 1, 1))
    b.output(b.pixel_shuffle(x, 2), "y")
    got = Session(b.graph())(np.arange(4, dtype=np.float32).reshape(1, 4, 1, 1))["y"]
    assert got.reshape(-1).tolist() == [0, 1, 2, 3]
    assert got.shape == (1, 1, 2, 2)


def test_slices_and_rows() -> None:
    b = GraphBuilder()
    x = b.input("x", (4, 3))
    b.output(b.slice_axis(x, 0, 1, 3), "slice")
    b.output(b.take_rows(x, [2, 0]), "rows")
    data = np.arange(12, dtype=np.float32).reshape(4, 3)
    got = Session(b.graph())(data)
    np.testing.assert_array_equal(got["slice"], data[1:3])
    np.testing.assert_array_equal(got["rows"], data[[2, 0]])
