"""Gradients of convolutions for their filters."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.dtypes import Array, DType
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, ShapeLike
from mgeserial.ops import windows
from mgeserial.ops.convrules import Geometry, geometry_of_gradient
from mgeserial.ops.numerics import narrow, widen
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

_SOURCE = "semantics section 4, checked against MegEngine 1.13.0"


def _geometry(call: Call) -> Geometry:
    return geometry_of_gradient(call.param, call.shape(2), call.shape(1), call.shape(0))


def _dtypes(call: Call) -> list[DType]:
    dtype = call.dtype(0)
    if not dtype.is_float:
        raise UnsupportedError(f"there is no gradient of {dtype.name}")
    return [dtype]


def _shapes(call: Call) -> list[ShapeLike]:
    shape = _geometry(call)
    return [shape.filter.stored((shape.groups, shape.outputs, shape.depth, *shape.window.kernel))]


def _reference(call: Call, src: Array, diff: Array, _: Array) -> Array:
    shape = _geometry(call)
    x = shape.src_maps(widen(src, call.dtype(0)))
    dy = shape.dst_maps(widen(diff, call.dtype(1)))
    found = windows.filter_gradient(x, dy, shape.window)
    return shape.stored_filter(narrow(found, call.dtype(0)))


CONVOLUTION_BACKWARD_FILTER = register(
    OpSpec(
        name="ConvolutionBackwardFilter",
        runtime_name="ConvolutionBackwardFilter",
        names=(
            Name("ConvolutionBackwardFilterV1", "v0.3.1", 5551755036171413196, until="v1.2.0"),
            Name("ConvolutionBackwardFilterV2", "v1.3.0", 8736156641479298808),
        ),
        old_id=12258691570569605680,
        v2=(
            V2Id("ConvolutionBackwardFilterV2", 1, 12258691570569605680),
            V2Id("ConvolutionBackwardFilter", 2, 12806124319715940666, since="v1.10.0"),
        ),
        params=(P.Convolution, P.ExecutionPolicy),
        inputs=("src", "diff", "filter_for_shape"),
        dtypes=_dtypes,
        shapes=_shapes,
        reference=_reference,
        source=_SOURCE,
    )
)

CONVOLUTION3_D_BACKWARD_FILTER = register(
    OpSpec(
        name="Convolution3DBackwardFilter",
        runtime_name="Convolution3DBackwardFilter",
        names=(Name("Convolution3DBackwardFilter", "v0.3.1", 1410154108076074268),),
        old_id=11313922757585968924,
        v2=(
            V2Id("Convolution3DBackwardFilter", 1, 11313922757585968924),
            V2Id("Convolution3DBackwardFilter", 2, 1410154108076074268, since="v1.10.0"),
        ),
        params=(P.Convolution3D, P.ExecutionPolicy),
        inputs=("src", "diff", "filter_for_shape"),
        dtypes=_dtypes,
        shapes=_shapes,
        reference=_reference,
        source=_SOURCE,
    )
)
