"""Operator records: relayout."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

RELAYOUT_FORMAT = register(
    OpSpec(
        name="RelayoutFormat",
        runtime_name="RelayoutFormat",
        names=(
            Name("RelayoutFormat", "v0.3.1", 7308985593415077378, until="v1.2.0"),
            Name("RelayoutFormatV1", "v1.3.0", 4491167554709169420),
        ),
        old_id=3045039161730867197,
        v2=(V2Id("RelayoutFormatV1", 1, 3045039161730867197),),
        params=(P.RelayoutFormat,),
        inputs=("x",),
        source="operators.json",
    )
)
