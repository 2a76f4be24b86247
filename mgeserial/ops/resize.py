"""Operator records: resize."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

RESIZE = register(
    OpSpec(
        name="Resize",
        runtime_name="ResizeForward",
        names=(
            Name("ResizeV1", "v0.3.1", 14078310589763744241, until="v1.2.0"),
            Name("ResizeV2", "v1.3.0", 4257660177517047913),
        ),
        old_id=2961320257790257266,
        v2=(V2Id("ResizeV2", 1, 2961320257790257266),),
        params=(P.Resize,),
        inputs=("src", "out_shape"),
        source="operators.json",
    )
)

RESIZE_BACKWARD = register(
    OpSpec(
        name="ResizeBackward",
        runtime_name="ResizeBackward",
        names=(Name("ResizeBackward", "v0.3.1", 3188226525864456664),),
        old_id=3880986046901157242,
        v2=(V2Id("ResizeBackward", 1, 3880986046901157242),),
        params=(P.Resize,),
        inputs=("diff", "src_for_shape"),
        source="operators.json",
    )
)

RESIZE3_D = register(
    OpSpec(
        name="Resize3D",
        runtime_name="Resize3DForward",
        names=(Name("Resize3D", "v1.13.0", 6980080426312782729),),
        old_id=11217925156219843625,
        v2=(V2Id("Resize3D", 1, 11217925156219843625),),
        params=(P.Resize3D,),
        inputs=("src", "out_shape"),
        source="operators.json",
    )
)
