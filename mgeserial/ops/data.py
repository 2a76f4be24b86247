"""Operator records: data."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops import counts
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

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
        source="operators.json",
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
        source="operators.json",
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
        source="operators.json",
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
        source="operators.json",
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
        source="operators.json",
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
        source="operators.json",
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
        source="operators.json",
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
        source="operators.json",
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
        source="operators.json",
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
        source="operators.json",
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
        source="operators.json",
    )
)
