"""Operator records: multitype."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

# output dtype = Operator.output_dtype. In v1.11.0 v2 files type_id is the NUL-terminated hash
# (persist form) although opr_version is 1
ELEMWISE_MULTI_TYPE = register(
    OpSpec(
        name="ElemwiseMultiType",
        runtime_name="ElemwiseMultiType",
        names=(Name("ElemwiseMultiType", "v0.3.1", 5459241759317220529),),
        old_id=7505243245230068554,
        v2=(
            V2Id("ElemwiseMultiType", 1, 7505243245230068554),
            V2Id("ElemwiseMultiType", 1, 5459241759317220529),  # only in files written by v1.11.0
        ),
        v2_written=0,
        params=(P.ElemwiseMultiType,),
        inputs=("arity", "x1", "x2", "x3", "x4", "x5"),
        min_inputs=1,
        source="operators.json",
    )
)
