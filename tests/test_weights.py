from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from corpus_cases import compact_root, iter_cases
from safetensors.numpy import load as safetensors_load
from safetensors.numpy import save as safetensors_save

import mgeserial
from loadrun.session import Session
from mgeserial import dtypes as D
from mgeserial.arrayfiles import NamedArray
from mgeserial.author import GraphBuilder
from mgeserial.errors import InputError, MgeError, ShapeError, UnsupportedError
from mgeserial.ir.graph import Output
from mgeserial.saving import dumps
from mgeserial.weights import (
    named_arrays,
    read_arrays,
    replace_weights,
    weights_bytes,
    weights_of,
)

TYPES = {
    "f4": (D.FLOAT32, np.array([0.5, -1, 3], np.float32)),
    "f2": (D.FLOAT16, np.array([0.5, -1, 3], np.float16)),
    "bf": (D.BFLOAT16, np.array([0x3F80, 0xC000, 1], np.uint16)),
    "i4": (D.INT32, np.array([-5, 0, 7], np.int32)),
    "i2": (D.INT16, np.array([-5, 0, 7], np.int16)),
    "u2": (D.UINT16, np.array([5, 0, 65535], np.uint16)),
    "i1": (D.INT8, np.array([-5, 0, 7], np.int8)),
    "u1": (D.UINT8, np.array([5, 0, 255], np.uint8)),
    "b1": (D.BOOL, np.array([True, False, True])),
    "qs8": (D.quantized("QuantizedS8", 0.1), np.array([-128, 0, 127], np.int8)),
    "q8a": (D.quantized("Quantized8Asymm", 0.1, 7), np.array([0, 7, 255], np.uint8)),
    "qs32": (D.quantized("QuantizedS32", 1e-5), np.array([-(2**31), 0, 9], np.int32)),
    "qs4": (D.quantized("QuantizedS4", 0.5), np.array([-8, 0, 7], np.int8)),
    "q4a": (D.quantized("Quantized4Asymm", 0.5, 3), np.array([0, 3, 15], np.uint8)),
    "qs1": (D.quantized("QuantizedS1", 1.0), np.array([0, 1, 1], np.int8)),
    "ib2": (D.DType(D.DTypeEnum.IntB2), np.array([-3, -1, 3], np.int8)),
}


def every_type():
    b = GraphBuilder()
    values = [b.param(array, name, dtype) for name, (dtype, array) in TYPES.items()]
    graph = b._graph
    graph.set_outputs([Output(v, v.name, i) for i, v in enumerate(values)])
    return graph


def linear():
    """y = x W^T + b with weights `w` (2, 3) and `b` (1, 2), and a constant shape."""
    b = GraphBuilder()
    w = b.param(np.arange(6, dtype=np.float32).reshape(2, 3), "w")
    bias = b.param(np.ones((1, 2), np.float32), "b")
    y = b.add(b.matmul(b.input("x", (1, 3)), w, transpose_b=True), bias)
    b.output(b.reshape_to(y, (2, 1)), "y")
    return b.graph()


def item(name, array, kind=None):
    return NamedArray(name, array, kind or array.dtype.name)


def new_weights(**changes):
    arrays = {
        "w": np.full((2, 3), 2, np.float32),
        "b": np.zeros((1, 2), np.float32),
        **changes,
    }
    return [item(n, a) for n, a in arrays.items() if a is not None]


def write(tmp_path, arrays, suffix):
    path = str(tmp_path / f"x{suffix}")
    with open(path, "wb") as file:
        file.writelines(weights_bytes(arrays, path))
    return path


# -- names -----------------------------------------------------------------------------------------


def test_names_come_from_tensors_values_outputs_and_operators():
    b = GraphBuilder()
    first = b.param(np.ones(1, np.float32), "tensor")
    first.name = "value"
    second = b.const(np.ones(1, np.float32))
    second.name = "named"
    third = b.const(np.ones(1, np.float32))
    repeated = b.param(np.ones(1, np.float32), "tensor")
    for value, name in ((first, "a"), (second, "named"), (third, None), (repeated, "b")):
        b.output(value, name)
    graph = b.graph()
    graph.outputs[0].name = None
    assert [w.name for w in weights_of(graph)] == [
        "tensor",
        "named",
        graph.output_names[2],
        "tensor#1",
    ]


def test_a_weight_without_any_name_has_operator_and_place():
    b = GraphBuilder()
    b.output(b.add(b.input("x", (1,)), b.const(np.ones(1, np.float32))), "y")
    (weight,) = weights_of(b.graph())
    assert weight.name == "ImmutableTensor[1]"
    assert weight.is_constant


def test_names_of_the_corpus_are_unique_and_stay_after_writing():
    count = 0
    for case in iter_cases(compact_root(), ["nets", "containers"]):
        for model in case.models():
            for graph in mgeserial.load(model.path).graphs:
                names = [w.name for w in weights_of(graph)]
                assert len(set(names)) == len(names)
                again = mgeserial.load(dumps(graph)).graph
                if any(w.tensor.name for w in weights_of(graph)):
                    assert len(weights_of(again)) == len(names)
                count += len(names)
    assert count > 100


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_every_type_comes_back_with_its_type(tmp_path, suffix):
    graph = every_type()
    path = write(tmp_path, named_arrays(weights_of(graph)), suffix)
    found = {a.name: a for a in read_arrays(path)}
    assert found.keys() == TYPES.keys()
    for name, (dtype, array) in TYPES.items():
        assert found[name].array.dtype == array.dtype
        assert found[name].array.tobytes() == array.tobytes()
        plain = (dtype.name.lower(), array.dtype.name)
        assert found[name].type in (str(dtype), *plain)
    changed = replace_weights(graph, list(found.values()))
    assert dumps(changed) == dumps(graph)


def test_safetensors_are_those_of_the_library(tmp_path):
    graph = every_type()
    arrays = named_arrays(weights_of(graph))
    content = Path(write(tmp_path, arrays, ".safetensors")).read_bytes()
    size = int.from_bytes(content[:8], "little")
    assert size % 8 == 0
    import json

    header = json.loads(content[8 : 8 + size])
    assert header["bf"]["dtype"] == "BF16"
    assert json.loads(header["__metadata__"]["mgeserial"])["dtypes"]["qs8"] == str(TYPES["qs8"][0])
    del header["__metadata__"]
    offsets = sorted(tuple(v["data_offsets"]) for v in header.values())
    assert [a for a, _ in offsets[1:]] == [b for _, b in offsets[:-1]]
    plain = [a for a in arrays if a.name != "bf"]
    found = safetensors_load(Path(write(tmp_path, plain, ".safetensors")).read_bytes())
    assert all(np.array_equal(found[a.name], a.array) for a in plain)


def test_files_of_the_library_are_read(tmp_path):
    arrays = {"w": np.arange(4, dtype=np.float64), "e": np.zeros((0, 2), np.float16)}
    (tmp_path / "x.safetensors").write_bytes(safetensors_save(arrays))
    found = {a.name: a for a in read_arrays(str(tmp_path / "x.safetensors"))}
    assert np.array_equal(found["w"].array, arrays["w"])
    assert (found["w"].type, found["e"].array.shape) == ("float64", (0, 2))


def test_plain_npz_files_have_no_note(tmp_path):
    path = write(tmp_path, new_weights(), ".npz")
    with np.load(path, allow_pickle=False) as found:
        assert found.files == ["w", "b"]


def test_equal_weights_give_equal_bytes(tmp_path):
    for suffix in (".npz", ".safetensors"):
        first = write(tmp_path, new_weights(), suffix)
        before = Path(first).read_bytes()
        assert Path(write(tmp_path, new_weights(), suffix)).read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        (2**40).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (8).to_bytes(8, "little") + b'{"a": 1}',
        b"\x4e\x00\x00\x00\x00\x00\x00\x00"
        b'{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}',
    ],
)
def test_damaged_safetensors_are_refused(tmp_path, content):
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"not a readable .safetensors file"):
        read_arrays(str(tmp_path / "x.safetensors"))


@pytest.mark.parametrize("note", ["{", "[]", '{"dtypes": 1}', '{"dtypes": {"w": 1}}', "[" * 100000])
def test_damaged_notes_are_refused(tmp_path, note):
    import zipfile

    data = safetensors_save({"w": np.ones(1, np.float32)}, metadata={"mgeserial": note})
    (tmp_path / "x.safetensors").write_bytes(data)
    path = tmp_path / "x.npz"
    np.savez(path, w=np.ones(1, np.float32))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("mgeserial.json", note)
    for suffix in ("safetensors", "npz"):
        with pytest.raises(InputError, match=r"cannot be read|not a readable"):
            read_arrays(str(tmp_path / f"x.{suffix}"))


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"to .npz and .safetensors"):
        weights_bytes(new_weights(), "x.txt")
    with pytest.raises(InputError, match=r"from .npz, .safetensors and .pkl"):
        read_arrays("x.txt")
    complex64 = [item("w", np.ones(2, np.complex64))]
    assert write(tmp_path, complex64, ".npz")
    with pytest.raises(UnsupportedError, match="has no such type"):
        weights_bytes(complex64, "x.safetensors")
    for name in ("", "a\0b"):
        with pytest.raises(InputError, match="cannot name"):
            weights_bytes([item(name, np.ones(1))], "x.npz")
    with pytest.raises(InputError, match="cannot name"):
        weights_bytes([item("__metadata__", np.ones(1))], "x.safetensors")


def test_names_that_are_no_text_are_refused():
    for path in ("x.npz", "x.safetensors"):
        with pytest.raises(MgeError):
            weights_bytes([item("\udcff", np.ones(1))], path)


# -- replacing -----------------------------------------------------------------------------------


def test_new_values_are_computed_with():
    graph = linear()
    changed = replace_weights(graph, new_weights())
    x = np.ones((1, 3), np.float32)
    with Session(changed, "reference") as session:
        assert session.run({"x": x})["y"].ravel().tolist() == [6, 6]
    with Session(graph, "reference") as session:
        assert session.run({"x": x})["y"].ravel().tolist() == [4, 13]


def test_constants_may_be_left_as_they_are():
    graph = linear()
    assert any(w.is_constant for w in weights_of(graph))
    replace_weights(graph, new_weights())


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"v": np.ones(1, np.float32)}, InputError, "no weight is called 'v'"),
        ({"bb": np.ones(1, np.float32)}, InputError, "did you mean 'b'"),
        ({"b": None}, InputError, "no value for 'b'"),
        ({"w": np.ones((3, 2), np.float32)}, ShapeError, r"w is \(2, 3\), got \(3, 2\)"),
        ({"b": np.ones(2, np.float32)}, ShapeError, r"b is \(1, 2\), got \(2,\)"),
        ({"w": np.ones((2, 3), np.float64)}, InputError, "w is Float32, got float64"),
        ({"w": np.ones((2, 3), np.int32)}, InputError, "w is Float32, got int32"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(changes, kind, message):
    graph = linear()
    before = dumps(graph)
    with pytest.raises(kind, match=message):
        replace_weights(graph, new_weights(**changes))
    assert dumps(graph) == before


def test_partial_and_renamed():
    graph = linear()
    changed = replace_weights(graph, new_weights(b=None), partial=True)
    assert {w.name: w.tensor.numpy().flat[0] for w in weights_of(changed)}["b"] == 1
    arrays = [
        item("fc.weight", np.zeros((2, 3), np.float32)),
        item("b", np.zeros((1, 2), np.float32)),
    ]
    changed = replace_weights(graph, arrays, rename={"fc.weight": "w"})
    assert {w.name: w.tensor.numpy().sum() for w in weights_of(changed)}["w"] == 0
    with pytest.raises(InputError, match="has no array 'x'"):
        replace_weights(graph, arrays, rename={"x": "w"})
    with pytest.raises(InputError, match="two arrays are for weight 'w'"):
        replace_weights(graph, [*arrays, item("w", arrays[0].array)], rename={"fc.weight": "w"})


def test_another_scale_is_another_type():
    graph = every_type()
    other = item("qs8", TYPES["qs8"][1], str(D.quantized("QuantizedS8", 0.2)))
    with pytest.raises(InputError, match="element types differ: qs8 is QuantizedS8"):
        replace_weights(graph, [other], partial=True)
    plain = item("qs8", TYPES["qs8"][1])
    replace_weights(graph, [plain], partial=True)


@pytest.mark.parametrize(("name", "value"), [("qs4", 8), ("q4a", 16), ("ib2", 2), ("ib2", 5)])
def test_codes_that_a_type_has_not_are_refused(name, value):
    array = TYPES[name][1].copy()
    array[1] = value
    with pytest.raises(InputError, match="holds"):
        replace_weights(every_type(), [item(name, array)], partial=True)


def test_a_constant_that_would_break_the_shapes_is_refused():
    graph = linear()
    (shape,) = [w for w in weights_of(graph) if w.is_constant]
    with pytest.raises(MgeError, match="a constant that was replaced"):
        replace_weights(graph, [item(shape.name, np.array([3, 1], np.int32))], partial=True)


def test_weights_of_real_networks_go_out_and_back_to_the_byte(tmp_path):
    for case in iter_cases(compact_root(), ["nets"]):
        for model in case.models():
            loaded = mgeserial.load(model.path)
            arrays = named_arrays(weights_of(loaded.graph))
            for suffix in (".npz", ".safetensors"):
                path = write(tmp_path, arrays, suffix)
                changed = replace_weights(loaded.graph, read_arrays(path))
                assert dumps(changed) == dumps(loaded.graph)
