"""Operator records: pooling."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

# no ExecutionPolicy stored
POOLING = register(
    OpSpec(
        name="Pooling",
        runtime_name="PoolingForward",
        names=(
            Name("Pooling", "v0.3.1", 5299291508641581310, until="v1.2.0"),
            Name("PoolingV1", "v1.3.0", 13971837637008153736),
        ),
        old_id=5154136392692894827,
        v2=(V2Id("PoolingV1", 1, 5154136392692894827),),
        params=(P.Pooling,),
        inputs=("x",),
        source="operators.json",
    )
)

POOLING_BACKWARD = register(
    OpSpec(
        name="PoolingBackward",
        runtime_name="PoolingBackward",
        names=(
            Name("PoolingBackward", "v0.3.1", 11093456313268636541, until="v1.2.0"),
            Name("PoolingBackwardV1", "v1.3.0", 18333145593617332527),
        ),
        old_id=7074493973094280316,
        v2=(V2Id("PoolingBackwardV1", 1, 7074493973094280316),),
        params=(P.Pooling,),
        inputs=("x", "y", "dy"),
        source="operators.json",
    )
)

ADAPTIVE_POOLING = register(
    OpSpec(
        name="AdaptivePooling",
        runtime_name="AdaptivePoolingForward",
        names=(
            Name("AdaptivePooling", "v1.0.0", 1365339971457093271, until="v1.2.0"),
            Name("AdaptivePoolingV1", "v1.3.0", 9148921010455511705),
        ),
        old_id=14420471329773230998,
        v2=(V2Id("AdaptivePoolingV1", 1, 14420471329773230998),),
        params=(P.AdaptivePooling,),
        inputs=("x", "out_shape"),
        source="operators.json",
    )
)

ADAPTIVE_POOLING_BACKWARD = register(
    OpSpec(
        name="AdaptivePoolingBackward",
        runtime_name="AdaptivePoolingBackward",
        names=(
            Name("AdaptivePoolingBackward", "v1.0.0", 16397773711257662267, until="v1.2.0"),
            Name("AdaptivePoolingBackwardV1", "v1.3.0", 6678004944362603155),
        ),
        old_id=16767048936625217975,
        v2=(V2Id("AdaptivePoolingBackwardV1", 1, 16767048936625217975),),
        params=(P.AdaptivePooling,),
        inputs=("x", "out_shape", "y", "dy"),
        source="operators.json",
    )
)
