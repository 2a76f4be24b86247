"""Operator records: elemwise."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

ELEMWISE = register(
    OpSpec(
        name="Elemwise",
        runtime_name="Elemwise",
        names=(Name("Elemwise", "v0.3.1", 16984089995691734746),),
        old_id=15475644582354676744,
        v2=(V2Id("Elemwise", 1, 15475644582354676744),),
        params=(P.Elemwise,),
        inputs=("arity", "x1", "x2", "x3"),
        min_inputs=1,
        source="operators.json",
    )
)

POW_C = register(
    OpSpec(
        name="PowC",
        runtime_name="PowC",
        names=(Name("PowC", "v0.3.1", 14403559926765625169),),
        old_id=18093854633143090602,
        v2=(V2Id("PowC", 1, 18093854633143090602),),
        params=(P.PowC,),
        inputs=("x",),
        source="operators.json",
    )
)

AFFINE_INT = register(
    OpSpec(
        name="AffineInt",
        runtime_name="AffineInt",
        names=(Name("AffineInt", "v0.3.1", 15863023442333772220),),
        old_id=6347830066644993788,
        v2=(V2Id("AffineInt", 1, 6347830066644993788),),
        params=(P.Empty,),
        inputs=("x", "k", "b"),
        source="operators.json",
    )
)

WHERE = register(
    OpSpec(
        name="Where",
        runtime_name="WhereForward",
        names=(Name("Where", "v1.13.2", 5325506513733584871),),
        old_id=12119744632192557544,
        v2=(V2Id("Where", 1, 12119744632192557544),),
        params=(P.Empty,),
        inputs=("mask", "x", "y"),
        source="operators.json",
    )
)

# the registered loader asserts 4 inputs while the operator has 2, so MegEngine itself cannot
# reload it
WHERE_BACKWARD = register(
    OpSpec(
        name="WhereBackward",
        runtime_name="WhereBackward",
        names=(Name("WhereBackward", "v1.13.2", 9925050812022941076),),
        old_id=5963893961076172924,
        v2=(V2Id("WhereBackward", 1, 5963893961076172924),),
        params=(P.Empty,),
        inputs=("diff", "mask"),
        output_count=2,
        source="operators.json",
    )
)

MASKED_FILL = register(
    OpSpec(
        name="MaskedFill",
        runtime_name="MaskedFill",
        names=(Name("MaskedFill", "v1.12.0", 4550643088314486861),),
        old_id=15590661434745340494,
        v2=(V2Id("MaskedFill", 1, 15590661434745340494),),
        params=(P.Fill,),
        inputs=("x", "mask"),
        source="operators.json",
    )
)
