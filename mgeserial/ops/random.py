"""Operator records: random."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

UNIFORM_RNG = register(
    OpSpec(
        name="UniformRNG",
        runtime_name="UniformRNG",
        names=(
            Name("UniformRNG", "v0.3.1", 18220397286289783615, until="v1.4.0"),
            Name("UniformRNGV1", "v1.5.0", 16953649146293869420),
        ),
        old_id=2021268840938002607,
        v2=(V2Id("UniformRNGV1", 1, 2021268840938002607),),
        params=(P.UniformRNG,),
        inputs=("shape",),
        source="operators.json",
    )
)

GAUSSIAN_RNG = register(
    OpSpec(
        name="GaussianRNG",
        runtime_name="GaussianRNG",
        names=(
            Name("GaussianRNG", "v0.3.1", 16232042101188018584, until="v1.4.0"),
            Name("GaussianRNGV1", "v1.5.0", 90180076644856056),
        ),
        old_id=12713498428712098256,
        v2=(V2Id("GaussianRNGV1", 1, 12713498428712098256),),
        params=(P.GaussianRNG,),
        inputs=("shape",),
        source="operators.json",
    )
)

GAMMA_RNG = register(
    OpSpec(
        name="GammaRNG",
        runtime_name="GammaRNG",
        names=(Name("GammaRNG", "v1.5.0", 9688490297079682830),),
        old_id=7101023610758876529,
        v2=(V2Id("GammaRNG", 1, 7101023610758876529),),
        params=(P.GammaRNG,),
        inputs=("shape", "scale"),
        source="operators.json",
    )
)

BETA_RNG = register(
    OpSpec(
        name="BetaRNG",
        runtime_name="BetaRNG",
        names=(Name("BetaRNG", "v1.5.0", 2425795008499603966),),
        old_id=12590835430501345536,
        v2=(V2Id("BetaRNG", 1, 12590835430501345536),),
        params=(P.BetaRNG,),
        inputs=("alpha", "beta"),
        source="operators.json",
    )
)

POISSON_RNG = register(
    OpSpec(
        name="PoissonRNG",
        runtime_name="PoissonRNG",
        names=(Name("PoissonRNG", "v1.5.0", 17540198339799373148),),
        old_id=11417084418737374860,
        v2=(V2Id("PoissonRNG", 1, 11417084418737374860),),
        params=(P.PoissonRNG,),
        inputs=("lambda",),
        source="operators.json",
    )
)

PERMUTATION_RNG = register(
    OpSpec(
        name="PermutationRNG",
        runtime_name="PermutationRNG",
        names=(Name("PermutationRNG", "v1.5.0", 16528406985872087495),),
        old_id=1493871547269243996,
        v2=(V2Id("PermutationRNG", 1, 1493871547269243996),),
        params=(P.PermutationRNG,),
        inputs=("n",),
        source="operators.json",
    )
)

SHUFFLE_RNG = register(
    OpSpec(
        name="ShuffleRNG",
        runtime_name="ShuffleRNG",
        names=(Name("ShuffleRNG", "v1.7.0", 9436293982980368893),),
        old_id=5998375258468197208,
        v2=(V2Id("ShuffleRNG", 1, 5998375258468197208),),
        params=(P.ShuffleRNG,),
        inputs=("x",),
        outputs=("shuffled", "index"),
        output_count=2,
        source="operators.json",
    )
)

SHUFFLE_RNG_BACKWARD = register(
    OpSpec(
        name="ShuffleRNGBackward",
        runtime_name="ShuffleRNGBackward",
        names=(Name("ShuffleRNGBackward", "v1.7.0", 14632739526522259970),),
        old_id=10086496921298085971,
        v2=(V2Id("ShuffleRNGBackward", 1, 10086496921298085971),),
        params=(P.ShuffleRNG,),
        inputs=("diff", "index", "x_for_shape"),
        source="operators.json",
    )
)

# not a member of the v2 union: cannot be stored in v2 files
EXPONENTIAL_RNG = register(
    OpSpec(
        name="ExponentialRNG",
        runtime_name="ExponentialRNG",
        names=(Name("ExponentialRNG", "v1.13.3", 1365030675839901114),),
        old_id=11718204076244744074,
        v2=(V2Id("ExponentialRNG", 1, 11718204076244744074),),
        params=(P.ExponentialRNG,),
        inputs=("rate",),
        source="operators.json",
    )
)

# not a member of the v2 union: cannot be stored in v2 files
MULTINOMIAL_RNG = register(
    OpSpec(
        name="MultinomialRNG",
        runtime_name="MultinomialRNG",
        names=(Name("MultinomialRNG", "v1.13.3", 7335184943666703665),),
        old_id=17184482103339000745,
        v2=(V2Id("MultinomialRNG", 1, 17184482103339000745),),
        params=(P.MultinomialRNG,),
        inputs=("probs",),
        source="operators.json",
    )
)
