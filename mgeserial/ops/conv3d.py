"""Operator records: conv3d."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

CONVOLUTION3_D = register(
    OpSpec(
        name="Convolution3D",
        runtime_name="Convolution3DForward",
        names=(Name("Convolution3D", "v0.3.1", 3958372889349838822),),
        old_id=18421865185156001720,
        v2=(
            V2Id("Convolution3D", 1, 18421865185156001720),
            V2Id("Convolution3D", 2, 3958372889349838822, since="v1.10.0"),
        ),
        params=(P.Convolution3D, P.ExecutionPolicy),
        inputs=("src", "filter"),
        source="operators.json",
    )
)

CONVOLUTION3_D_BACKWARD_DATA = register(
    OpSpec(
        name="Convolution3DBackwardData",
        runtime_name="Convolution3DBackwardData",
        names=(Name("Convolution3DBackwardData", "v0.3.1", 13231260275879406894),),
        old_id=4349582527502060718,
        v2=(
            V2Id("Convolution3DBackwardData", 1, 4349582527502060718),
            V2Id("Convolution3DBackwardData", 2, 13231260275879406894, since="v1.10.0"),
        ),
        params=(P.Convolution3D, P.ExecutionPolicy),
        inputs=("filter", "diff", "src_for_shape"),
        min_inputs=2,
        source="operators.json",
    )
)
