from __future__ import annotations

import json
from pathlib import Path

import pytest

from mgeserial import params as P
from mgeserial.errors import GraphError
from mgeserial.format.xxh64 import operator_id
from mgeserial.ops import registry
from mgeserial.ops.registry import Name, OpSpec, OutputQuery, V2Id

FACTS = json.loads((Path(__file__).parent / "registry_facts.json").read_text("utf-8"))["operators"]
# The table of union number 21 was given up in v1.2.0; today's schema keeps the number.
RENAMED_TABLES = {"Winograd": "DeprecatedParam"}
SPECS = list(registry.every())
IDS = [s.name for s in SPECS]


def test_every_operator_of_the_list_has_a_record_and_no_other_has():
    assert len(SPECS) == len(FACTS) == 188
    assert {s.old_id for s in SPECS} == {f["old"] for f in FACTS}


def test_ids_are_unique():
    seen: dict[int, str] = {}
    for spec in SPECS:
        own = {n.persist_id for n in spec.names} | {v.type_id for v in spec.v2} | {spec.old_id}
        for number in own:
            assert seen.setdefault(number, spec.name) == spec.name
    assert len({s.name for s in SPECS}) == len(SPECS)


@pytest.mark.parametrize("spec", SPECS, ids=IDS)
def test_ids_are_hashes_of_the_registered_names(spec):
    assert spec.names
    for name in spec.names:
        assert name.persist_id == operator_id(name.name, persist=True), name
        assert spec.old_id == operator_id(name.name, persist=False), name
    for item in spec.v2:
        # Plain class names took over in v2 where a registration of its own exists.
        hashes = {operator_id(item.type, persist=p) for p in (False, True)}
        hashes |= {n.persist_id for n in spec.names} | {spec.old_id}
        assert item.type_id in hashes


@pytest.mark.parametrize("fact", FACTS, ids=[f["name"] for f in FACTS])
def test_records_agree_with_what_megengine_registers(fact):
    spec = registry.by_old_id(fact["old"])
    assert spec is not None
    assert [[n.name, n.persist_id] for n in spec.names] == fact["names"]
    assert [[v.type, v.version, v.type_id] for v in spec.v2] == fact["v2"]
    if fact["written"] is not None:
        written = spec.v2[spec.v2_written]
        assert [written.type, written.version, written.type_id] == fact["written"]
    assert list(spec.arity) == fact["inputs"]
    assert [p.TABLE for p in spec.params] == [RENAMED_TABLES.get(p, p) for p in fact["params"]]
    assert spec.tensors == fact["tensors"]
    if isinstance(fact["blobs"], int):
        assert spec.blobs in (fact["blobs"], None)
    if fact["outputs"] is not None:
        assert spec.output_count == fact["outputs"], fact["outputs_text"]
    else:
        assert callable(spec.output_count) or spec.gaps, fact["outputs_text"]


@pytest.mark.parametrize("fact", FACTS, ids=[f["name"] for f in FACTS])
def test_records_are_found_under_every_id(fact):
    spec = registry.by_old_id(fact["old"])
    assert all(registry.by_persist_id(i) is spec for _, i in fact["names"])
    assert all(registry.by_v2_id(i) is spec for _, _, i in fact["v2"])
    # Some v2 writers pair the version of one form with the id of the other.
    assert registry.by_v2_id(fact["old"]) is spec
    assert registry.by_name(spec.name) is spec


def test_an_unknown_name_lists_close_ones():
    with pytest.raises(GraphError, match="Convolutoin") as caught:
        registry.by_name("Convolutoin")
    assert "Convolution" in str(caught.value.hint)


def test_an_operator_of_another_package_registers_and_leaves():
    number = operator_id("Tripled", persist=True)
    spec = OpSpec(
        name="Tripled",
        names=(Name("Tripled", "v1.13.4", number),),
        old_id=operator_id("Tripled", persist=False),
        v2=(V2Id("Tripled", 2, number),),
        inputs=("x",),
    )
    registry.register(spec)
    try:
        assert registry.by_persist_id(number) is registry.by_v2_id(number) is spec
        with pytest.raises(GraphError, match="registered already"):
            registry.register(spec)
        with pytest.raises(GraphError, match="belongs to another"):
            registry.register(OpSpec(name="Other", old_id=spec.old_id))
    finally:
        registry.unregister(spec)
    assert registry.by_persist_id(number) is None


def batch_norm_ids(inputs: int, mode: P.BNFwdMode, *, version: int, reserve: bool) -> int:
    count = registry.by_name("BatchNorm").output_count
    assert callable(count)
    return count(
        OutputQuery(
            inputs=inputs,
            tensors=0,
            param=lambda: P.BN(fwd_mode=mode),
            blobs=lambda: (),
            names=None,
            version=version,
            added_reserve=reserve,
        )
    )


@pytest.mark.parametrize(
    ("inputs", "mode", "version", "reserve", "ids"),
    [
        (5, P.BNFwdMode.INFERENCE, 800600, False, 5),
        (3, P.BNFwdMode.TRAINING, 800600, False, 3),
        (5, P.BNFwdMode.TRAINING, 801100, False, 5),
        (5, P.BNFwdMode.INFERENCE, 801100, False, 3),
        (5, P.BNFwdMode.TRAINING, 0, True, 6),
        (5, P.BNFwdMode.INFERENCE, 0, True, 4),
        (3, P.BNFwdMode.TRAINING, 0, True, 4),
    ],
)
def test_batch_norm_takes_3_to_6_ids(inputs, mode, version, reserve, ids):
    assert batch_norm_ids(inputs, mode, version=version, reserve=reserve) == ids


def test_a_family_that_fails_is_met_again_by_the_next_look_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: str) -> None:
        raise ImportError("broken")

    monkeypatch.setattr(registry, "_loaded", False)
    monkeypatch.setattr(registry, "_loading", False)
    monkeypatch.setattr(registry.importlib, "import_module", fail)
    for _ in range(2):
        with pytest.raises(ImportError, match="broken"):
            registry.by_name("Elemwise")
