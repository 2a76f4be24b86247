"""Operator records: external."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops import counts
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

ATLAS_RUNTIME_OPR = register(
    OpSpec(
        name="AtlasRuntimeOpr",
        runtime_name="AtlasRuntimeOpr",
        names=(Name("AtlasRuntimeOpr", "v1.0.0-rc1", 4058497399400930258),),
        old_id=17393417663559031237,
        v2=(V2Id("AtlasRuntimeOpr", 1, 17393417663559031237),),
        inputs=("model",),
        min_inputs=1,
        max_inputs=None,
        output_count=counts.stored_names,
        blobs=1,
        source="operators.json",
    )
)

CAMBRICON_RUNTIME_OPR = register(
    OpSpec(
        name="CambriconRuntimeOpr",
        runtime_name="CambriconRuntimeOpr",
        names=(Name("CambriconRuntimeOpr", "v1.0.0-rc1", 3047288178577215280),),
        old_id=18293345883973054993,
        v2=(V2Id("CambriconRuntimeOpr", 1, 18293345883973054993),),
        inputs=("model",),
        min_inputs=1,
        max_inputs=None,
        output_count=counts.stored_names,
        blobs=3,
        source="operators.json",
    )
)

MAGIC_MIND_RUNTIME_OPR = register(
    OpSpec(
        name="MagicMindRuntimeOpr",
        runtime_name="MagicMindRuntimeOpr",
        names=(Name("MagicMindRuntimeOpr", "v1.7.2.m1", 1842910378808697080),),
        old_id=8192707516101247891,
        v2=(V2Id("MagicMindRuntimeOpr", 1, 8192707516101247891),),
        inputs=("model",),
        min_inputs=1,
        max_inputs=None,
        output_count=counts.stored_names,
        blobs=1,
        source="operators.json",
    )
)

TENSOR_RT_RUNTIME_OPR = register(
    OpSpec(
        name="TensorRTRuntimeOpr",
        runtime_name="TensorRTRuntimeOpr",
        names=(Name("TensorRTRuntimeOpr", "v0.3.1", 6208869555428893631),),
        old_id=17267810710998925101,
        v2=(V2Id("TensorRTRuntimeOpr", 1, 17267810710998925101),),
        inputs=("engine",),
        min_inputs=1,
        max_inputs=None,
        output_count=counts.stored_names,
        blobs=1,
        source="operators.json",
    )
)

EXTERN_C_OPR_RUNNER = register(
    OpSpec(
        name="ExternCOprRunner",
        runtime_name="ExternCOprRunner",
        names=(Name("ExternCOprRunner", "v0.3.1", 18068614986959257265),),
        old_id=7836765312927627514,
        v2=(V2Id("ExternCOprRunner", 1, 7836765312927627514),),
        inputs=("per",),
        min_inputs=1,
        max_inputs=None,
        output_count=counts.stored_names,
        blobs=2,
        source="operators.json",
    )
)

CUSTOM_OP_NODE = register(
    OpSpec(
        name="CustomOpNode",
        runtime_name="CustomOpNode",
        names=(Name("CustomOpNode", "v1.6.0", 13308547780691756482),),
        old_id=7799621608848894225,
        v2=(
            V2Id("CustomOpNode", 1, 7799621608848894225),
            V2Id("CustomOpNode", 2, 13308547780691756482, since="v1.10.0"),
        ),
        inputs=("per",),
        min_inputs=1,
        max_inputs=None,
        output_count=counts.stored_names,
        blobs=3,
        source="operators.json",
    )
)

# CUDA builds only
NV_OF = register(
    OpSpec(
        name="NvOf",
        runtime_name="NvOf",
        names=(Name("NvOf", "v1.1.0", 14975306264675985382),),
        old_id=9250561883346241375,
        v2=(V2Id("NvOf", 1, 9250561883346241375),),
        params=(P.NvOf,),
        inputs=("x",),
        source="operators.json",
    )
)
