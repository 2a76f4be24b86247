from __future__ import annotations

import collections
import pickle

import numpy as np
import pytest
from corpus_cases import compact_root, load_npz

from mgeserial.errors import FormatError, InputError, UnsupportedError
from mgeserial.pickles import is_pickle, read_pickle

PICKLES = sorted((compact_root() / "pickles").glob("*/model.*"))
PUBLIC = sorted((compact_root() / "public").glob("pickle*"))


def read(tmp_path, value, protocol=4):
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps(value, protocol))
    return read_pickle(str(path))


def arrays(found):
    return {w.name: w.array for w in found.weights}


# -- files of MegEngine --------------------------------------------------------------------------


@pytest.mark.parametrize("path", PICKLES, ids=lambda p: p.parent.name)
def test_arrays_of_the_corpus_are_those_that_were_saved(path):
    found = arrays(read_pickle(str(path)))
    names = {"state_dict_checkpoint": "state_dict.{}"}.get(path.parent.name, "{}")
    expected = load_npz(path.parent / "state.npz")
    assert expected
    for name, array in expected.items():
        got = found[names.format(name) if name != "list0" else "list.0"]
        # A traced module keeps the statistics of batch norm with the shape that it computes with.
        assert got.reshape(array.shape).tobytes() == array.tobytes()
        assert got.dtype == array.dtype
        if path.suffix == ".pkl":
            assert got.shape == array.shape


def test_the_corpus_has_all_kinds():
    kinds = {read_pickle(str(p)).kind for p in PICKLES}
    assert kinds == {"dict", "megengine.traced_module.traced_module.TracedModule"}


def test_a_checkpoint_has_its_optimizer_state():
    (path,) = [p for p in PICKLES if p.parent.name == "state_dict_checkpoint"]
    names = list(arrays(read_pickle(str(path))))
    assert names[:4] == [f"state_dict.{n}" for n in ("0.bias", "0.weight", "2.bias", "2.weight")]
    assert names[4] == "optimizer.state.0.momentum_buffer"


def test_the_element_type_of_a_quantised_tensor_is_told():
    (path,) = [p for p in PICKLES if p.parent.name == "pickled_quantized"]
    (weight,) = read_pickle(str(path)).weights
    assert (weight.name, weight.type) == ("w", "QuantizedS8(scale=0.0299999993)")
    assert weight.array.dtype == np.int8


@pytest.mark.skipif(not PUBLIC, reason="public pickles are not in this checkout")
@pytest.mark.parametrize("path", PUBLIC, ids=lambda p: p.name)
def test_public_files_are_read(path):
    found = read_pickle(str(path))
    if "tensor_v1" in path.name:
        assert arrays(found)["tensor"].tolist() == [1, 2, 3]
        assert found.kind == "megengine.tensor.Tensor"
    else:
        assert arrays(found)["net_init.conv0.weight"].shape == (20, 1, 5, 5)
        assert len(found.weights) == 35


# -- what numpy and Python write -----------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(24, dtype=np.int16).reshape(2, 3, 4)[:, ::2],
        np.zeros((0, 3), np.uint8),
        np.array(3.5),
        np.array([True, False]),
        np.array([1 + 2j], np.complex64),
        np.arange(300, dtype=np.uint64),
    ],
    ids=lambda a: f"{a.dtype}{a.shape}",
)
def test_arrays_of_numpy(tmp_path, array, protocol):
    found = arrays(read(tmp_path, {"a": array}, protocol))["a"]
    assert np.array_equal(found, array)
    assert found.shape == array.shape
    assert found.dtype == array.dtype.newbyteorder("=")
    assert found.flags.c_contiguous


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_what_stands_beside_arrays_is_passed_over(tmp_path, protocol):
    value = collections.OrderedDict(
        epoch=3,
        lr=0.5,
        name="net",
        big=2**100,
        raw=b"\x00\xff",
        none=None,
        flags=(True, False),
        many={1, 2},
        frozen=frozenset({3}),
        scalar=np.float32(2.5),
        number=np.int64(7),
        empty=collections.OrderedDict(),
        default=collections.defaultdict(list),
        where=slice(1, 2),
        kind=np.dtype("f4"),
        inner={"w": np.ones(2, np.float32), 5: [np.zeros(1, np.float32)]},
    )
    found = read(tmp_path, value, protocol)
    assert list(arrays(found)) == ["inner.w", "inner.5.0"]
    assert found.protocol == protocol


def test_one_array_in_two_places_has_two_names(tmp_path):
    w = np.ones(2, np.float32)
    assert list(arrays(read(tmp_path, {"a": w, "b": [w]}))) == ["a", "b.0"]


def test_names_are_unique(tmp_path):
    found = arrays(read(tmp_path, {"a": {"b": np.zeros(1)}, "a.b": np.ones(1)}))
    assert {n: a.tolist() for n, a in found.items()} == {"a.b": [0.0], "a.b#1": [1.0]}


def test_a_single_array_has_a_name(tmp_path):
    assert list(arrays(read(tmp_path, np.ones(3)))) == ["tensor"]


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a"]),
        np.array([b"a"]),
        np.array([None]),
        np.zeros(2, "i4,f4"),
        np.zeros(1, "M8[s]"),
    ],
    ids=str,
)
def test_arrays_that_hold_no_numbers_are_refused(tmp_path, array):
    with pytest.raises((FormatError, UnsupportedError)):
        read(tmp_path, {"a": array})


def test_files_that_are_no_pickles(tmp_path):
    for content in (b"", b"x", b"\x80\x01N.", b"\x80\x06N.", b"(dp0\n."):
        (tmp_path / "x.pkl").write_bytes(content)
        assert not is_pickle(content[:2])
        with pytest.raises(FormatError, match="not a pickle"):
            read_pickle(str(tmp_path / "x.pkl"))
    with pytest.raises(InputError, match="no such file"):
        read_pickle(str(tmp_path / "nothing.pkl"))
