"""Operator records: linalg."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops import counts
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

# no ExecutionPolicy is stored
MATRIX_MUL = register(
    OpSpec(
        name="MatrixMul",
        runtime_name="MatrixMul",
        names=(Name("MatrixMulV2", "v0.3.1", 13377158960990194401),),
        old_id=3532845811984360002,
        v2=(V2Id("MatrixMulV2", 1, 3532845811984360002),),
        params=(P.MatrixMul,),
        inputs=("A", "B"),
        source="operators.json",
    )
)

# no ExecutionPolicy is stored
BATCHED_MATRIX_MUL = register(
    OpSpec(
        name="BatchedMatrixMul",
        runtime_name="BatchedMatrixMul",
        names=(Name("BatchedMatrixMulV2", "v0.3.1", 15207233433500908970),),
        old_id=11589553432132359716,
        v2=(V2Id("BatchedMatrixMulV2", 1, 11589553432132359716),),
        params=(P.MatrixMul,),
        inputs=("A", "B"),
        source="operators.json",
    )
)

DOT = register(
    OpSpec(
        name="Dot",
        runtime_name="Dot",
        names=(Name("Dot", "v0.3.1", 3099084962463867228),),
        old_id=340606220358368278,
        v2=(V2Id("Dot", 1, 340606220358368278),),
        params=(P.Empty,),
        inputs=("a", "b"),
        source="operators.json",
    )
)

MATRIX_INVERSE = register(
    OpSpec(
        name="MatrixInverse",
        runtime_name="MatrixInverse",
        names=(Name("MatrixInverse", "v0.3.1", 14266367287542129641),),
        old_id=11443491517330739703,
        v2=(V2Id("MatrixInverse", 1, 11443491517330739703),),
        params=(P.Empty,),
        inputs=("x",),
        source="operators.json",
    )
)

SVD = register(
    OpSpec(
        name="SVD",
        runtime_name="SVD",
        names=(Name("SVD", "v0.3.1", 16260873349419550612),),
        old_id=17913310092296533718,
        v2=(V2Id("SVD", 1, 17913310092296533718),),
        params=(P.SVD,),
        inputs=("x",),
        outputs=("U", "S", "Vt"),
        output_count=counts.singular_values,
        source="operators.json",
    )
)

CROSS = register(
    OpSpec(
        name="Cross",
        runtime_name="Cross",
        names=(Name("Cross", "v1.13.1", 7645316536660532094),),
        old_id=7937603198344284949,
        v2=(V2Id("Cross", 1, 7937603198344284949),),
        params=(P.Cross,),
        inputs=("a", "b"),
        source="operators.json",
    )
)
