"""Operators about when and where things run: copies, dependencies, assertions, checks of values.

Source: semantics section 15; operators.json.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import INT32, Array, DType
from mgeserial.ir.types import Call, ShapeLike
from mgeserial.ops import counts
from mgeserial.ops.numerics import from_real, to_real
from mgeserial.ops.registry import Gap, Name, OpSpec, V2Id, register
from mgeserial.ops.rules import constant_shape, dtype_of, fixed_dtype, need, shape_of

_SECTION = "semantics section 15"


def _first(call: Call, x: Array, *_others: Array) -> Array:
    return x


def assert_errors(expect: Array, get: Array) -> npt.NDArray[np.float64]:
    """What AssertEqual limits: |expect - get| / max(1, min(|expect|, |get|)), in float64.

    NaN where one is NaN or both are the same infinity. Arrays hold real values; their shapes
    broadcast as those of elementwise operators do.
    """
    left, right = np.asarray(expect, np.float64), np.asarray(get, np.float64)
    with np.errstate(all="ignore"):
        scale = np.maximum(1.0, np.minimum(np.abs(left), np.abs(right)))
        return np.asarray(np.abs(left - right) / scale)


def _assert_shapes(call: Call) -> list[ShapeLike]:
    need(
        call.shape(0) == call.shape(1),
        f"expected value has shape {call.shape(0)}, the value checked {call.shape(1)}",
    )
    return [call.shape(0)]


def _flag(condition: bool) -> Array:
    return np.array([condition], dtype=np.int32)


def _pack_shapes(call: Call) -> list[ShapeLike]:
    table = call.value(len(call.inputs) - 1)
    if table is None:
        return [(None,)]
    return [(_pack_offsets(call, table)[-1][1],)]


def _pack_offsets(call: Call, table: Array) -> list[tuple[int, int]]:
    """(begin, end) of each packed tensor, in elements; checked against the tensors' sizes."""
    count = len(call.inputs) - 1
    numbers = [int(n) for n in table.reshape(-1)]
    need(
        count > 0 and len(numbers) == 2 * count,
        f"the table of {count} tensors needs {2 * count} offsets, got {len(numbers)}",
    )
    pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
    last = 0
    for i, (begin, end) in enumerate(pairs):
        size = call.inputs[i].size
        # Gaps come from alignment, so they are small: a table cannot ask for a huge array.
        need(
            last <= begin <= last + 4096 and end - begin == size,
            f"tensor {i} of {size} elements cannot lie at [{begin}, {end}) after offset {last}",
        )
        last = end
    return pairs


def _pack(call: Call, *arrays: Array) -> Array:
    pairs = _pack_offsets(call, arrays[-1])
    packed = np.zeros(pairs[-1][1], dtype=call.dtype(0).storage)
    for array, (begin, end) in zip(arrays, pairs, strict=False):
        packed[begin:end] = array.reshape(-1)
    return packed


def _check_dtypes(call: Call) -> list[DType]:
    return [call.dtype(i) for i in range(call.count - 1)] + [INT32]


def _check_shapes(call: Call) -> list[ShapeLike]:
    return [call.inputs[i].shape for i in range(call.count - 1)] + [(1,)]


def _check_non_finite(call: Call, *arrays: Array) -> list[Array]:
    """Scaled copies (where they have ids), then whether any element is infinite or NaN."""
    reals = [to_real(a, call.dtype(i)) for i, a in enumerate(arrays)]
    flag = _flag(not all(bool(np.isfinite(r).all()) for r in reals))
    if len(call.output_types) == 1:
        return [flag]
    scale = np.float32(call.param.scale)
    copies = []
    for i, (array, real) in enumerate(zip(arrays, reals, strict=True)):
        scaled = np.where(np.isfinite(real), real * scale, real)
        copies.append(array if scale == 1 else from_real(scaled, call.dtype(i)))
    return [*copies, flag]


def _check_has_inf(call: Call, x: Array) -> Array:
    return _flag(bool(np.isinf(to_real(x, call.dtype(0))).any()))


IDENTITY = register(
    OpSpec(
        name="Identity",
        runtime_name="Identity",
        names=(Name("Identity", "v0.3.1", 3432045686431204000),),
        old_id=18434495665359673677,
        v2=(V2Id("Identity", 1, 18434495665359673677),),
        params=(P.Empty,),
        inputs=("x",),
        dtypes=dtype_of(0),
        shapes=shape_of(0),
        reference=_first,
        partial=True,
        source=_SECTION,
    )
)

# target device = Operator.comp_node[0]
COPY = register(
    OpSpec(
        name="Copy",
        runtime_name="Copy",
        names=(Name("Copy", "v0.3.1", 10240138798055438597),),
        old_id=3469141309801762118,
        v2=(V2Id("Copy", 1, 3469141309801762118),),
        params=(P.Empty,),
        inputs=("x",),
        dtypes=dtype_of(0),
        shapes=shape_of(0),
        reference=_first,
        partial=True,
        source=_SECTION,
    )
)

SLEEP = register(
    OpSpec(
        name="Sleep",
        runtime_name="Sleep",
        names=(Name("Sleep", "v0.3.1", 13253369436352901731),),
        old_id=17719793138187536533,
        v2=(V2Id("Sleep", 1, 17719793138187536533),),
        params=(P.MGBSleep,),
        inputs=("x",),
        dtypes=dtype_of(0),
        shapes=shape_of(0),
        reference=_first,
        partial=True,
        gaps=(Gap("reference", "does not wait: a file cannot stall a run"),),
        source=_SECTION,
    )
)

# no param table; output = input 0 after all inputs are ready
VIRTUAL_DEP = register(
    OpSpec(
        name="VirtualDep",
        runtime_name="VirtualDep",
        names=(Name("VirtualDep", "v0.3.1", 1869165298984382818),),
        old_id=4643954226802548522,
        v2=(V2Id("VirtualDep", 1, 4643954226802548522),),
        inputs=("x", "deps"),
        min_inputs=1,
        max_inputs=None,
        dtypes=dtype_of(0),
        shapes=shape_of(0),
        reference=_first,
        partial=True,
        source=_SECTION,
    )
)

# training only
VIRTUAL_GRAD = register(
    OpSpec(
        name="VirtualGrad",
        runtime_name="VirtualGrad",
        names=(Name("VirtualGrad", "v0.3.1", 16007603277378350530),),
        old_id=2848975186301817720,
        v2=(V2Id("VirtualGrad", 1, 2848975186301817720),),
        params=(P.Empty,),
        inputs=("target", "wrt"),
        dtypes=dtype_of(1),
        shapes=shape_of(1),
        partial=True,
        gaps=(
            Gap(
                "reference",
                "stands for a gradient that MegEngine derives while it compiles a graph",
            ),
        ),
        source="MegEngine 1.13.0, asked with a graph of one VirtualGrad",
    )
)

MARK_DYNAMIC_VAR = register(
    OpSpec(
        name="MarkDynamicVar",
        runtime_name="MarkDynamicVar",
        names=(Name("MarkDynamicVar", "v0.3.1", 14394560528774649944),),
        old_id=14283345401061673113,
        v2=(V2Id("MarkDynamicVar", 1, 14283345401061673113),),
        params=(P.Empty,),
        inputs=("x",),
        dtypes=dtype_of(0),
        shapes=shape_of(0),
        reference=_first,
        partial=True,
        source=_SECTION,
    )
)

MARK_NO_BROADCAST_ELEMWISE = register(
    OpSpec(
        name="MarkNoBroadcastElemwise",
        runtime_name="MarkNoBroadcastElemwise",
        names=(Name("MarkNoBroadcastElemwise", "v0.3.1", 12520549118481362612),),
        old_id=16263521728381224232,
        v2=(V2Id("MarkNoBroadcastElemwise", 1, 16263521728381224232),),
        params=(P.Empty,),
        inputs=("x",),
        dtypes=dtype_of(0),
        shapes=shape_of(0),
        reference=_first,
        partial=True,
        source=_SECTION,
    )
)

# err is an explicit sub graph, see semantics.md. Output = input 0 (expect)
ASSERT_EQUAL = register(
    OpSpec(
        name="AssertEqual",
        runtime_name="AssertEqual",
        names=(Name("AssertEqual", "v0.3.1", 1225319139678932379),),
        old_id=7135914203479735452,
        v2=(V2Id("AssertEqual", 1, 7135914203479735452),),
        params=(P.AssertEqual,),
        inputs=("expect", "get", "err"),
        min_inputs=2,
        dtypes=dtype_of(0),
        shapes=_assert_shapes,
        reference=_first,  # whoever compares has both values
        is_pure=False,
        source="semantics section 15; its value from dumps with test cases of MegEngine 1.13.0",
    )
)

# v0.3.x only
PARAM_PACK_CONCAT = register(
    OpSpec(
        name="ParamPackConcat",
        runtime_name="ParamPackConcat",
        names=(Name("ParamPackConcat", "v0.3.1", 5074069888045433141, until="v0.3.4"),),
        old_id=16540738078970941426,
        v2=(),
        params=(P.Empty,),
        inputs=("tensors_then_table",),
        min_inputs=1,
        max_inputs=None,
        dtypes=dtype_of(0),
        shapes=_pack_shapes,
        reference=_pack,
        source=_SECTION,
    )
)

# v1.5.0..v1.6.0 only
CHECK_HAS_INF = register(
    OpSpec(
        name="CheckHasInf",
        runtime_name="CheckHasInf",
        names=(Name("CheckHasInf", "v1.5.0", 16644371743850212788, until="v1.6.0"),),
        old_id=8055901896344484584,
        v2=(),
        params=(P.Empty,),
        inputs=("x",),
        dtypes=fixed_dtype(INT32),
        shapes=constant_shape(1),
        reference=_check_has_inf,
        partial=True,
        source="operators.json; its name",
    )
)

CHECK_NON_FINITE = register(
    OpSpec(
        name="CheckNonFinite",
        runtime_name="CheckNonFinite",
        names=(Name("CheckNonFinite", "v1.7.0", 1172941019585180218),),
        old_id=7019647185624875471,
        v2=(V2Id("CheckNonFinite", 1, 7019647185624875471),),
        params=(P.CheckNonFinite,),
        inputs=("x",),
        min_inputs=1,
        max_inputs=None,
        output_count=counts.check_non_finite,
        dtypes=_check_dtypes,
        shapes=_check_shapes,
        reference=_check_non_finite,
        partial=True,
        source="semantics section 15; operators.json for the number of outputs",
    )
)

# registered only; never in files
LOOP = register(
    OpSpec(
        name="Loop",
        runtime_name="Loop",
        names=(Name("opr::Loop", "v0.3.1", 10999898241574306805),),
        old_id=3831911395651639104,
        v2=(
            V2Id("opr::Loop", 1, 3831911395651639104),
            V2Id("opr::Loop", 2, 10999898241574306805, since="v1.10.0"),
        ),
        inputs=("x",),
        min_inputs=0,
        max_inputs=None,
        gaps=(Gap("reference", "registered only: no release stores a Loop in a file"),),
        source="operators.json: registered_names",
    )
)
