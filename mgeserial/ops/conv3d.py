"""Convolutions of volumes, plain and transposed: the rules of images with one more axis."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.convrules import (
    conv_dtypes,
    forward_reference,
    forward_shapes,
    transposed_reference,
    transposed_shapes,
)
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

_SOURCE = "semantics section 4, checked against MegEngine 1.13.0 (NCDHW)"

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
        dtypes=conv_dtypes(),
        shapes=forward_shapes,
        reference=forward_reference,
        source=_SOURCE,
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
        dtypes=conv_dtypes(),
        shapes=transposed_shapes,
        reference=transposed_reference,
        source=_SOURCE,
    )
)
