"""Operator records: indexing."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

SUBTENSOR = register(
    OpSpec(
        name="Subtensor",
        runtime_name="Subtensor",
        names=(Name("Subtensor", "v0.3.1", 4191369723585739853),),
        old_id=5965999436643207205,
        v2=(V2Id("Subtensor", 1, 5965999436643207205),),
        params=(P.IndexDescMaskDump,),
        inputs=("x", "then"),
        min_inputs=1,
        max_inputs=None,
        source="operators.json",
    )
)

SET_SUBTENSOR = register(
    OpSpec(
        name="SetSubtensor",
        runtime_name="SetSubtensor",
        names=(Name("SetSubtensor", "v0.3.1", 17094250030427382695),),
        old_id=5715857166626516904,
        v2=(V2Id("SetSubtensor", 1, 5715857166626516904),),
        params=(P.IndexDescMaskDump,),
        inputs=("x", "value", "then"),
        min_inputs=2,
        max_inputs=None,
        source="operators.json",
    )
)

INCR_SUBTENSOR = register(
    OpSpec(
        name="IncrSubtensor",
        runtime_name="IncrSubtensor",
        names=(Name("IncrSubtensor", "v0.3.1", 550526267625512719),),
        old_id=12612170597450966062,
        v2=(V2Id("IncrSubtensor", 1, 12612170597450966062),),
        params=(P.IndexDescMaskDump,),
        inputs=("x", "value", "then"),
        min_inputs=2,
        max_inputs=None,
        source="operators.json",
    )
)

INDEXING_MULTI_AXIS_VEC = register(
    OpSpec(
        name="IndexingMultiAxisVec",
        runtime_name="IndexingMultiAxisVec",
        names=(Name("IndexingMultiAxisVec", "v0.3.1", 16324625526410578007),),
        old_id=16716479579333089639,
        v2=(V2Id("IndexingMultiAxisVec", 1, 16716479579333089639),),
        params=(P.IndexDescMaskDump,),
        inputs=("x", "then"),
        min_inputs=1,
        max_inputs=None,
        source="operators.json",
    )
)

INDEXING_SET_MULTI_AXIS_VEC = register(
    OpSpec(
        name="IndexingSetMultiAxisVec",
        runtime_name="IndexingSetMultiAxisVec",
        names=(Name("IndexingSetMultiAxisVec", "v0.3.1", 8134692094163989142),),
        old_id=1840060956737149635,
        v2=(V2Id("IndexingSetMultiAxisVec", 1, 1840060956737149635),),
        params=(P.IndexDescMaskDump,),
        inputs=("x", "value", "then"),
        min_inputs=2,
        max_inputs=None,
        source="operators.json",
    )
)

INDEXING_INCR_MULTI_AXIS_VEC = register(
    OpSpec(
        name="IndexingIncrMultiAxisVec",
        runtime_name="IndexingIncrMultiAxisVec",
        names=(Name("IndexingIncrMultiAxisVec", "v0.3.1", 16219148190062297002),),
        old_id=11042232190732695174,
        v2=(V2Id("IndexingIncrMultiAxisVec", 1, 11042232190732695174),),
        params=(P.IndexDescMaskDump,),
        inputs=("x", "value", "then"),
        min_inputs=2,
        max_inputs=None,
        source="operators.json",
    )
)

INDEXING_ONE_HOT = register(
    OpSpec(
        name="IndexingOneHot",
        runtime_name="IndexingOneHot",
        names=(Name("IndexingOneHot", "v0.3.1", 1617793321523022237),),
        old_id=9091995996295894829,
        v2=(V2Id("IndexingOneHot", 1, 9091995996295894829),),
        params=(P.Axis,),
        inputs=("x", "index"),
        source="operators.json",
    )
)

INDEXING_SET_ONE_HOT = register(
    OpSpec(
        name="IndexingSetOneHot",
        runtime_name="IndexingSetOneHot",
        names=(Name("IndexingSetOneHot", "v0.3.1", 7268590264920214767),),
        old_id=13668634682463149630,
        v2=(V2Id("IndexingSetOneHot", 1, 13668634682463149630),),
        params=(P.Axis,),
        inputs=("x", "index", "sub"),
        source="operators.json",
    )
)

INDEXING_REMAP = register(
    OpSpec(
        name="IndexingRemap",
        runtime_name="IndexingRemap",
        names=(Name("IndexingRemap", "v0.3.1", 285780115551858917),),
        old_id=2122147745667549725,
        v2=(V2Id("IndexingRemap", 1, 2122147745667549725),),
        params=(P.IndexingRemap,),
        inputs=("x", "map"),
        source="operators.json",
    )
)

INDEXING_REMAP_BACKWARD = register(
    OpSpec(
        name="IndexingRemapBackward",
        runtime_name="IndexingRemapBackward",
        names=(Name("IndexingRemapBackward", "v0.3.1", 8826357946439830558),),
        old_id=14681931638895342488,
        v2=(V2Id("IndexingRemapBackward", 1, 14681931638895342488),),
        params=(P.IndexingRemap,),
        inputs=("diff", "map", "src_for_shape"),
        source="operators.json",
    )
)
