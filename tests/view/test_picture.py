"""What a picture shows of a graph."""

from __future__ import annotations

import numpy as np
import pytest
from corpus_cases import compact_root
from view_graphs import HOSTILE, hostile_network, residual_network

import mgeserial
from mgeserial import editing
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import FLOAT32, quantized
from mgeserial.errors import InputError
from mgeserial.ir.graph import Graph
from mgeserial.ir.tensor import Tensor
from mgeserial.ops import registry
from mgeserial.view import picture
from mgeserial.view.families import FAMILIES, family_of
from mgeserial.view.picture import Box, Picture, draw


def small() -> Graph:
    b = GraphBuilder()
    x = b.input("x", (1, 2, 8, 8))
    y = b.conv2d(x, b.param(np.ones((4, 2, 3, 3), np.float32), name="w"), stride=2, padding=(1, 0))
    y = b.relu(b.add(y, np.array([0.5], np.float32)))
    b.output(b.max_pool2d(y, 2), "y")
    return b.graph()


def by_title(found: Picture) -> dict[str, Box]:
    return {box.title: box for box in found.boxes}


def test_weights_stand_in_the_boxes_of_their_users() -> None:
    found = draw(small())
    assert [b.kind for b in found.boxes] == ["input", *["operator"] * 4, "output"]
    assert "filter 4×2×3×3" in by_title(found)["Convolution"].lines
    assert len(found.wires) == 5


def test_small_constants_are_shown_as_numbers() -> None:
    assert "y = 0.5" in by_title(draw(small()))["ADD"].lines


def test_weights_get_boxes_when_asked_for() -> None:
    graph = small()
    found = draw(graph, weights=True)
    assert len(found.boxes) == len(graph.nodes) + 1
    assert sum(b.kind == "weight" for b in found.boxes) == 2
    assert len(found.wires) == sum(len(n.inputs) for n in graph.nodes) + 1


def test_a_box_says_type_parameters_and_result() -> None:
    boxes = by_title(draw(small()))
    lines = boxes["Convolution"].lines
    assert lines[0] == "pad 1×0, stride 2"
    assert lines[-1] == "→ Float32 1×4×4×3"
    assert "RELU" in boxes
    assert "Pooling MAX" in boxes


def test_ports_carry_the_names_callers_use() -> None:
    found = draw(small())
    assert (found.boxes[0].title, found.boxes[-1].title) == ("x", "y")
    assert found.boxes[0].lines == ("Float32 1×2×8×8",)


def test_a_weight_that_is_an_output_keeps_its_box() -> None:
    b = GraphBuilder()
    b.output(b.param(np.ones((2, 3), np.float32), name="w"), "w")
    found = draw(b.graph())
    assert [box.kind for box in found.boxes] == ["weight", "output"]


def test_an_unused_weight_keeps_its_box() -> None:
    b = GraphBuilder()
    b.param(np.ones((2, 3), np.float32), name="w")
    b.output(b.relu(b.input("x", (2,))), "y")
    assert sum(box.kind == "weight" for box in draw(b.graph()).boxes) == 1


def test_holders_of_several_tensors_are_folded_output_by_output() -> None:
    graph = small()
    weight = graph.params[0]
    array = np.ones((4, 2, 3, 3), np.float32)
    tensors = (Tensor.of(array * 2, FLOAT32, name="other"), Tensor.of(array, FLOAT32, name="w"))
    holder = graph.add(
        registry.by_name("MultipleDeviceTensorHolder"), (), outputs=2, at=0, tensors=tensors
    )
    editing.replace_value(graph, weight.outputs[0], holder.outputs[1])
    editing.remove_unused(graph)
    found = draw(graph)
    assert "weight" not in [box.kind for box in found.boxes]
    assert "filter 4×2×3×3" in by_title(found)["Convolution"].lines
    assert draw(graph, weights=True).boxes[0].lines == ("Float32 4×2×3×3", "Float32 4×2×3×3")


def test_scales_are_told_in_details() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 4), quantized("QuantizedS8", 0.125))
    b.output(b.cast(x, "Float32"), "y")
    found = draw(b.graph())
    assert found.operators[0]["outputs"][0]["scale"] == 0.125
    assert found.boxes[0].lines == ("QuantizedS8 1×4",)


def test_a_graph_whose_shapes_do_not_fit_is_drawn_with_the_reason() -> None:
    graph = small()
    node = graph.nodes[-1]
    graph.set_params(node, (node.param.replace(window_h=64),))
    found = draw(graph)
    assert len(found.boxes) == 6
    (problem,) = found.problems
    assert "Pooling" in problem
    assert by_title(found)["RELU"].lines == ("→ type not known",)


def test_damaged_parameters_are_noted_at_their_operator() -> None:
    path = compact_root() / "elemwise"
    source = next(iter(sorted(path.glob("*/model.v1.mge"))))
    graph = mgeserial.load(source).graph
    node = next(n for n in graph.nodes if n.op.name == "Elemwise")

    class Broken:
        def get(self) -> tuple[object, ...]:
            raise mgeserial.FormatError("damaged here")

    node._params = _lazy(Broken())
    found = draw(graph)
    assert "damaged here" in found.operators[node.index]["problems"][0]


def _lazy(broken: object) -> object:
    from mgeserial.ir.graph import Lazy

    return Lazy(broken.get)  # type: ignore[attr-defined]


def test_names_are_made_printable_and_bounded() -> None:
    found = draw(hostile_network(), title="a\x1b[2J" + "x" * 5000)
    assert "\x1b" not in found.title
    assert len(found.title) < 300
    for box in found.boxes:
        for text in (box.title, box.name, *box.lines):
            assert text.isprintable()
    assert found.boxes[0].title.startswith("</script>")
    assert len(HOSTILE) == 7


def test_too_large_graphs_are_refused_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "_MOST_BOXES", 10)
    with pytest.raises(InputError, match="at most 10 boxes") as error:
        draw(residual_network(1))
    assert "--extract" in str(error.value)
    monkeypatch.setattr(picture, "_MOST_BOXES", 1000)
    monkeypatch.setattr(picture, "_MOST_WIRES", 10)
    with pytest.raises(InputError, match="at most 10 wires"):
        draw(residual_network(1))


def test_every_operator_belongs_to_a_family() -> None:
    assert not [s.name for s in registry.every() if family_of(s.name).key == "other"]
    assert family_of("SomethingNew").key == "other"
    assert family_of("GaussianBlur").key == "image"
    assert family_of("ConvolutionBackwardData").key == "convolution"


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.key)
def test_colours_stand_out_from_their_ground(family: object) -> None:
    # 3:1 is what WCAG 2.1 asks of graphical objects (success criterion 1.4.11).
    for ground, colour in (("#ffffff", family.light), ("#151b23", family.dark)):  # type: ignore[attr-defined]
        a, b = sorted((luminance(ground), luminance(colour)))
        assert (b + 0.05) / (a + 0.05) >= 3


def test_all_files_of_the_corpus_can_be_drawn() -> None:
    count = 0
    for path in sorted(compact_root().glob("*/*/model.v1.mge")):
        for graph in mgeserial.load(path).graphs:
            found = draw(graph)
            placed = found.layout()
            assert len(placed.corners) == len(found.boxes)
            count += 1
    assert count > 50


def test_parameters_of_a_fused_operator_are_in_its_title() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 4, 8, 8))
    w, bias = np.ones((4, 4, 1, 1), np.float32), np.ones((1, 4, 1, 1), np.float32)
    record = P.ConvBias(nonlineMode=P.ConvBiasV0NonlineMode.RELU)
    b.output(b.apply("ConvBiasForward", [x, b.param(w), b.param(bias)], (record,))[0], "y")
    assert "ConvBiasForward + RELU" in by_title(draw(b.graph()))
