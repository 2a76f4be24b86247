"""Operator records: shape."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops import counts
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

RESHAPE = register(
    OpSpec(
        name="Reshape",
        runtime_name="Reshape",
        names=(Name("ReshapeV1", "v0.3.1", 12107467801887169079),),
        old_id=13416951895346073752,
        v2=(V2Id("ReshapeV1", 1, 13416951895346073752),),
        params=(P.OptionalAxisV1,),
        inputs=("x", "shape"),
        source="operators.json",
    )
)

BROADCAST = register(
    OpSpec(
        name="Broadcast",
        runtime_name="Broadcast",
        names=(Name("Broadcast", "v0.3.1", 4356013351611734721),),
        old_id=7936973888418590970,
        v2=(V2Id("Broadcast", 1, 7936973888418590970),),
        params=(P.Empty,),
        inputs=("x", "shape"),
        source="operators.json",
    )
)

DIMSHUFFLE = register(
    OpSpec(
        name="Dimshuffle",
        runtime_name="Dimshuffle",
        names=(Name("Dimshuffle", "v0.3.1", 16341454431755512467),),
        old_id=12661883266288314988,
        v2=(V2Id("Dimshuffle", 1, 12661883266288314988),),
        params=(P.Dimshuffle,),
        inputs=("x",),
        source="operators.json",
    )
)

AXIS_ADD_REMOVE = register(
    OpSpec(
        name="AxisAddRemove",
        runtime_name="AxisAddRemove",
        names=(Name("AxisAddRemove", "v0.3.1", 4531286874383711702),),
        old_id=16635466391166707394,
        v2=(V2Id("AxisAddRemove", 1, 16635466391166707394),),
        params=(P.AxisAddRemove,),
        inputs=("x",),
        source="operators.json",
    )
)

CONCAT = register(
    OpSpec(
        name="Concat",
        runtime_name="Concat",
        names=(Name("Concat", "v0.3.1", 1147508067098681647),),
        old_id=9254494158825588843,
        v2=(V2Id("Concat", 1, 9254494158825588843),),
        params=(P.Axis,),
        inputs=("x0", "x1"),
        min_inputs=1,
        max_inputs=None,
        source="operators.json",
    )
)

SPLIT = register(
    OpSpec(
        name="Split",
        runtime_name="Split",
        names=(Name("Split", "v0.3.1", 17108944865963415359),),
        old_id=3888906695511029191,
        v2=(V2Id("Split", 1, 3888906695511029191),),
        params=(P.Axis,),
        inputs=("x", "size_0", "size_1"),
        min_inputs=2,
        max_inputs=None,
        output_count=counts.inputs_less_one,
        source="operators.json",
    )
)

GET_VAR_SHAPE = register(
    OpSpec(
        name="GetVarShape",
        runtime_name="GetVarShape",
        names=(Name("GetVarShapeV1", "v0.3.1", 420368402167866970),),
        old_id=1191858899092043317,
        v2=(V2Id("GetVarShapeV1", 1, 1191858899092043317),),
        params=(P.OptionalAxisV1,),
        inputs=("x0", "x1"),
        min_inputs=1,
        max_inputs=None,
        source="operators.json",
    )
)

LINSPACE = register(
    OpSpec(
        name="Linspace",
        runtime_name="Linspace",
        names=(Name("Linspace", "v0.3.1", 16502420122900532397),),
        old_id=5790229234089783718,
        v2=(V2Id("Linspace", 1, 5790229234089783718),),
        params=(P.Linspace,),
        inputs=("start", "stop", "num"),
        source="operators.json",
    )
)

EYE = register(
    OpSpec(
        name="Eye",
        runtime_name="Eye",
        names=(Name("Eye", "v0.3.1", 5478303782874675494),),
        old_id=7647302513250927550,
        v2=(V2Id("Eye", 1, 7647302513250927550),),
        params=(P.Eye,),
        inputs=("shape",),
        source="operators.json",
    )
)

# uninitialised tensor
ALLOC = register(
    OpSpec(
        name="Alloc",
        runtime_name="Alloc",
        names=(Name("Alloc", "v0.3.1", 1483949363830661953),),
        old_id=18066725298356410135,
        v2=(V2Id("Alloc", 1, 18066725298356410135),),
        params=(P.DType,),
        inputs=("shape",),
        source="operators.json",
    )
)

DIAG = register(
    OpSpec(
        name="Diag",
        runtime_name="Diag",
        names=(Name("Diag", "v1.8.0", 4968175436772524515),),
        old_id=12690908018650202336,
        v2=(V2Id("Diag", 1, 12690908018650202336),),
        params=(P.Diag,),
        inputs=("x",),
        source="operators.json",
    )
)

DIAG_BACKWARD = register(
    OpSpec(
        name="DiagBackward",
        runtime_name="DiagBackward",
        names=(Name("DiagBackward", "v1.8.0", 15038791977102327311),),
        old_id=7184430178028550410,
        v2=(V2Id("DiagBackward", 1, 7184430178028550410),),
        params=(P.Diag,),
        inputs=("shape", "diff"),
        source="operators.json",
    )
)

PADDING = register(
    OpSpec(
        name="Padding",
        runtime_name="PaddingForward",
        names=(Name("Padding", "v1.6.0", 9900607576573363837),),
        old_id=8595819172804097094,
        v2=(V2Id("Padding", 1, 8595819172804097094),),
        params=(P.Padding,),
        inputs=("x",),
        source="operators.json",
    )
)

PADDING_BACKWARD = register(
    OpSpec(
        name="PaddingBackward",
        runtime_name="PaddingBackward",
        names=(Name("PaddingBackward", "v1.6.0", 16342423536234022271),),
        old_id=4663564796686379785,
        v2=(V2Id("PaddingBackward", 1, 4663564796686379785),),
        params=(P.Padding,),
        inputs=("dy", "x_for_shape"),
        source="operators.json",
    )
)

FLIP = register(
    OpSpec(
        name="Flip",
        runtime_name="Flip",
        names=(Name("Flip", "v1.13.2", 2617023249313293961),),
        old_id=16224987965648499016,
        v2=(V2Id("Flip", 1, 16224987965648499016),),
        params=(P.Flip,),
        inputs=("src",),
        source="operators.json",
    )
)

ROTATE = register(
    OpSpec(
        name="Rotate",
        runtime_name="Rotate",
        names=(Name("Rotate", "v0.3.1", 49082319760777778),),
        old_id=8645455572867189878,
        v2=(V2Id("Rotate", 1, 8645455572867189878),),
        params=(P.Rotate,),
        inputs=("src",),
        source="operators.json",
    )
)
