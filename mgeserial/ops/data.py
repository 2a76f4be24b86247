"""Operators that bring tensors into a graph: inputs, parameters, constants; and updates of them.

Parameters and constants are what the file stores; inputs are fed by whoever runs the graph.
Source: FORMAT sections (a), (b), (g); semantics section 15; operators.json.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import Array, DType
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, ShapeLike
from mgeserial.ops import counts
from mgeserial.ops.numerics import computing, narrow, to_real, widen
from mgeserial.ops.registry import Gap, Name, OpSpec, V2Id, register
from mgeserial.ops.rules import broadcast_shapes, dtype_of, need, shape_of

_STORED = "FORMAT sections (a), (b) and (g); run by MegEngine 1.13.0"
_LOOP_BODY = Gap("reference", "part of a Loop's body, which no release stores in a file")


def _tensor_dtypes(call: Call) -> list[DType]:
    return [tensor.dtype for tensor in call.tensors]


def _tensor_shapes(call: Call) -> list[ShapeLike]:
    return [tuple(tensor.shape) for tensor in call.tensors]


def _tensor_values(call: Call) -> tuple[Array, ...]:
    return tuple(tensor.numpy() for tensor in call.tensors)


def _input_shapes(call: Call) -> list[ShapeLike]:
    # A stored shape of length 0 says "any shape": 0-d tensors do not exist.
    shape = tuple(call.tensors[0].shape)
    return [shape or None]


def _scalar(value: P.PersistentDTypeScalar) -> float:
    """Number held by the 4 bytes of a scalar in a parameter table."""
    dtype = DType(value.dtype)
    if not (dtype.is_float or dtype.is_integer) or dtype.is_lowbit:
        raise UnsupportedError(f"a scalar of type {dtype.name} is not understood")
    raw = np.frombuffer(bytes(value.storage), dtype=dtype.storage, count=1)
    return float(to_real(raw, dtype)[0])


def _add_update(call: Call, dest: Array, delta: Array) -> Array:
    """alpha * dest + beta * delta + bias; `dest` goes on from the last run's result."""
    dtype = call.dtype(0)
    now = call.state.get("dest", dest)
    if now.shape != dest.shape:
        now = dest
    alpha, beta, bias = (_scalar(s) for s in (call.param.alpha, call.param.beta, call.param.bias))
    kind: Any = computing(dtype).type
    left: npt.NDArray[Any] = widen(now, dtype)
    right: npt.NDArray[Any] = widen(delta, call.dtype(1))
    result = narrow(kind(alpha) * left + kind(beta) * right + kind(bias), dtype)
    call.state["dest"] = result
    return result


def _update_shapes(call: Call) -> list[ShapeLike]:
    dest, delta = call.shape(0), call.shape(1)
    need(
        broadcast_shapes([dest, delta]) == dest,
        f"the update must broadcast to the parameter's shape {dest}, got {delta}",
    )
    return [dest]


# The only graph input operator. In v1 has tensors[0].data_size == 0 / absent unless
# dump_default_value.
HOST2_DEVICE_COPY = register(
    OpSpec(
        name="Host2DeviceCopy",
        runtime_name="Host2DeviceCopy",
        names=(Name("Host2DeviceCopy", "v0.3.1", 2436615116837392937),),
        old_id=11501548436123901713,
        v2=(
            V2Id("Host2DeviceCopy", 1, 11501548436123901713),
            V2Id("Host2DeviceCopy", 2, 2436615116837392937, since="v1.10.0"),
        ),
        params=(P.Host2DeviceCopy,),
        tensors=1,
        dtypes=_tensor_dtypes,
        shapes=_input_shapes,
        is_pure=False,
        tags=frozenset({"input"}),
        source="FORMAT sections (a) and (f): its tensor names the input; the session feeds it",
    )
)

# Parameter / weight. No param table at all.
SHARED_DEVICE_TENSOR = register(
    OpSpec(
        name="SharedDeviceTensor",
        runtime_name="SharedDeviceTensor",
        names=(Name("SharedDeviceTensor", "v0.3.1", 5455743196755016946),),
        old_id=6084106446169059487,
        v2=(V2Id("SharedDeviceTensor", 1, 6084106446169059487),),
        tensors=1,
        dtypes=_tensor_dtypes,
        shapes=_tensor_shapes,
        reference=_tensor_values,
        source=_STORED,
    )
)

SHARED_DEVICE_TENSOR_WITH_FORMAT = register(
    OpSpec(
        name="SharedDeviceTensorWithFormat",
        runtime_name="SharedDeviceTensorWithFormat",
        names=(Name("SharedDeviceTensorWithFormat", "v0.3.1", 9783811715656249052),),
        old_id=17553165062326377993,
        v2=(
            V2Id("SharedDeviceTensorWithFormat", 1, 17553165062326377993),
            V2Id("SharedDeviceTensorWithFormat", 2, 9783811715656249052, since="v1.10.0"),
        ),
        tensors=1,
        blobs=None,
        dtypes=_tensor_dtypes,
        shapes=_tensor_shapes,
        reference=_tensor_values,
        source=_STORED,
    )
)

# Parameter whose shape may change.
VOLATILE_SHARED_DEVICE_TENSOR = register(
    OpSpec(
        name="VolatileSharedDeviceTensor",
        runtime_name="VolatileSharedDeviceTensor",
        names=(Name("VolatileSharedDeviceTensor", "v0.3.1", 7445220614566027663),),
        old_id=8659013329736868280,
        v2=(V2Id("VolatileSharedDeviceTensor", 1, 8659013329736868280),),
        tensors=1,
        dtypes=_tensor_dtypes,
        shapes=_tensor_shapes,
        reference=_tensor_values,
        source=_STORED,
    )
)

# Constant. MegEngine loaders also accept it where another type was registered (constant
# folding).
IMMUTABLE_TENSOR = register(
    OpSpec(
        name="ImmutableTensor",
        runtime_name="ImmutableTensor",
        names=(Name("ImmutableTensor", "v0.3.1", 6977527550664090289),),
        old_id=8214274060121194836,
        v2=(
            V2Id("ImmutableTensor", 1, 8214274060121194836),
            V2Id("ImmutableTensor", 2, 6977527550664090289, since="v1.10.0"),
        ),
        tensors=1,
        dtypes=_tensor_dtypes,
        shapes=_tensor_shapes,
        reference=_tensor_values,
        source=_STORED,
    )
)

# Produced by optimize_for_inference (params merged). Name of tensor i = name of output i.
MULTIPLE_DEVICE_TENSOR_HOLDER = register(
    OpSpec(
        name="MultipleDeviceTensorHolder",
        runtime_name="MultipleDeviceTensorHolder",
        names=(Name("MultipleDeviceTensorHolder", "v0.3.1", 1379929827050077575),),
        old_id=6152281422819500974,
        v2=(
            V2Id("MultipleDeviceTensorHolder", 1, 6152281422819500974),
            V2Id("MultipleDeviceTensorHolder", 2, 1379929827050077575, since="v1.10.0"),
        ),
        output_count=counts.tensors,
        tensors=None,
        blobs=None,
        dtypes=_tensor_dtypes,
        shapes=_tensor_shapes,
        reference=_tensor_values,
        source=_STORED,
    )
)

MULTIPLE_DEVICE_TENSOR_WITH_FORMAT_HOLDER = register(
    OpSpec(
        name="MultipleDeviceTensorWithFormatHolder",
        runtime_name="MultipleDeviceTensorWithFormatHolder",
        names=(Name("MultipleDeviceTensorWithFormatHolder", "v0.3.1", 13712197338634655662),),
        old_id=60799855031704737,
        v2=(
            V2Id("MultipleDeviceTensorWithFormatHolder", 1, 60799855031704737),
            V2Id("MultipleDeviceTensorWithFormatHolder", 2, 13712197338634655662, since="v1.10.0"),
        ),
        output_count=counts.tensors,
        tensors=None,
        blobs=None,
        dtypes=_tensor_dtypes,
        shapes=_tensor_shapes,
        reference=_tensor_values,
        source=_STORED,
    )
)

PERSISTENT_OUTPUT_STORAGE = register(
    OpSpec(
        name="PersistentOutputStorage",
        runtime_name="PersistentOutputStorage",
        names=(Name("PersistentOutputStorage", "v0.3.1", 15224684966432678634),),
        old_id=3075992660344587810,
        v2=(V2Id("PersistentOutputStorage", 1, 3075992660344587810),),
        params=(P.PersistentOutputStorage,),
        inputs=("x",),
        dtypes=dtype_of(0),
        shapes=shape_of(0),
        reference=lambda call, x: x,
        partial=True,
        source="semantics section 15",
    )
)

COUNTER_PROVIDER = register(
    OpSpec(
        name="CounterProvider",
        runtime_name="CounterProvider",
        names=(Name("CounterProvider", "v0.3.1", 13362832554528635325),),
        old_id=12979024327470931288,
        v2=(
            V2Id("CounterProvider", 1, 12979024327470931288),
            V2Id("CounterProvider", 2, 13362832554528635325, since="v1.10.0"),
        ),
        inputs=("x",),
        min_inputs=0,
        max_inputs=None,
        gaps=(_LOOP_BODY,),
        source="operators.json; semantics section 15",
    )
)

INPUT_MAKER = register(
    OpSpec(
        name="InputMaker",
        runtime_name="InputMaker",
        names=(Name("InputMaker", "v0.3.1", 13069327344550264939),),
        old_id=6272236806066901575,
        v2=(
            V2Id("InputMaker", 1, 6272236806066901575),
            V2Id("InputMaker", 2, 13069327344550264939, since="v1.10.0"),
        ),
        inputs=("x",),
        min_inputs=0,
        max_inputs=None,
        gaps=(_LOOP_BODY,),
        source="operators.json; semantics section 15",
    )
)

# in place: dest*alpha + delta*beta + bias
ADD_UPDATE = register(
    OpSpec(
        name="AddUpdate",
        runtime_name="AddUpdate",
        names=(Name("AddUpdate", "v0.3.1", 17373382205978286312),),
        old_id=14265630238272151429,
        v2=(V2Id("AddUpdate", 1, 14265630238272151429),),
        params=(P.MGBAddUpdate,),
        inputs=("dest", "delta"),
        dtypes=dtype_of(0),
        shapes=_update_shapes,
        reference=_add_update,
        is_pure=False,
        gaps=(Gap("reference", "other readers of the updated parameter see its stored value"),),
        source="semantics section 15",
    )
)
