"""Operators whose meaning lies outside the file: vendor engines, loaders, user-defined code.

They are read, shown, rewired and written back; nothing here can run them.
Source: operators.json.
"""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops import counts
from mgeserial.ops.registry import Gap, Name, OpSpec, V2Id, register

_ENGINE = "{} models run only on the vendor's hardware and library"


def _engine(vendor: str) -> tuple[Gap, ...]:
    return (Gap("reference", _ENGINE.format(vendor)),)


ATLAS_RUNTIME_OPR = register(
    OpSpec(
        name="AtlasRuntimeOpr",
        runtime_name="AtlasRuntimeOpr",
        names=(Name("AtlasRuntimeOpr", "v1.0.0-rc1", 4058497399400930258),),
        old_id=17393417663559031237,
        v2=(V2Id("AtlasRuntimeOpr", 1, 17393417663559031237),),
        inputs=("x",),
        min_inputs=1,
        max_inputs=None,
        output_count=counts.stored_names,
        blobs=1,
        gaps=_engine("Ascend (OM)"),
        source="operators.json: blobs",
    )
)

CAMBRICON_RUNTIME_OPR = register(
    OpSpec(
        name="CambriconRuntimeOpr",
        runtime_name="CambriconRuntimeOpr",
        names=(Name("CambriconRuntimeOpr", "v1.0.0-rc1", 3047288178577215280),),
        old_id=18293345883973054993,
        v2=(V2Id("CambriconRuntimeOpr", 1, 18293345883973054993),),
        inputs=("x",),
        min_inputs=1,
        max_inputs=None,
        output_count=counts.stored_names,
        blobs=3,
        gaps=_engine("Cambricon"),
        source="operators.json: blobs",
    )
)

MAGIC_MIND_RUNTIME_OPR = register(
    OpSpec(
        name="MagicMindRuntimeOpr",
        runtime_name="MagicMindRuntimeOpr",
        names=(Name("MagicMindRuntimeOpr", "v1.7.2.m1", 1842910378808697080),),
        old_id=8192707516101247891,
        v2=(V2Id("MagicMindRuntimeOpr", 1, 8192707516101247891),),
        inputs=("x",),
        min_inputs=1,
        max_inputs=None,
        output_count=counts.stored_names,
        blobs=1,
        gaps=_engine("MagicMind"),
        source="operators.json: blobs",
    )
)

TENSOR_RT_RUNTIME_OPR = register(
    OpSpec(
        name="TensorRTRuntimeOpr",
        runtime_name="TensorRTRuntimeOpr",
        names=(Name("TensorRTRuntimeOpr", "v0.3.1", 6208869555428893631),),
        old_id=17267810710998925101,
        v2=(V2Id("TensorRTRuntimeOpr", 1, 17267810710998925101),),
        inputs=("x",),
        min_inputs=1,
        max_inputs=None,
        output_count=counts.stored_names,
        blobs=1,
        gaps=_engine("TensorRT"),
        source="operators.json: blobs",
    )
)

EXTERN_C_OPR_RUNNER = register(
    OpSpec(
        name="ExternCOprRunner",
        runtime_name="ExternCOprRunner",
        names=(Name("ExternCOprRunner", "v0.3.1", 18068614986959257265),),
        old_id=7836765312927627514,
        v2=(V2Id("ExternCOprRunner", 1, 7836765312927627514),),
        inputs=("x",),
        min_inputs=1,
        max_inputs=None,
        output_count=counts.stored_names,
        blobs=2,
        gaps=(Gap("reference", "its code is a loader library that the file only names"),),
        source="operators.json: blobs",
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
        inputs=("x",),
        min_inputs=1,
        max_inputs=None,
        output_count=counts.stored_names,
        blobs=3,
        gaps=(Gap("reference", "its code is a custom operator library that the file only names"),),
        source="operators.json: blobs",
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
        gaps=(Gap("reference", "optical flow exists only in NVIDIA's hardware and library"),),
        source="operators.json: CUDA builds only",
    )
)
