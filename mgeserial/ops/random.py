"""Random numbers.

UniformRNG, and the order in which numbers are drawn by GaussianRNG, PermutationRNG, ShuffleRNG,
ExponentialRNG and Dropout, follow MegEngine's CPU generator; GammaRNG, BetaRNG, PoissonRNG and
MultinomialRNG have its distributions, but numbers of numpy's own generator, seeded alike.
One generator per operator lives as long as the session; runs continue it.
Source: semantics section 13; operators.json.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import FLOAT16, FLOAT32, INT16, INT32, Array, DType
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, Shape, ShapeLike
from mgeserial.ops.generator import Generator
from mgeserial.ops.numerics import from_real, to_real
from mgeserial.ops.registry import Gap, Name, OpSpec, V2Id, register
from mgeserial.ops.rules import dtype_of, fixed_dtype, need, of_floats, shape_of

_SECTION = "semantics section 13"
_OTHER = Gap("reference", "same distribution as MegEngine, not the same numbers")
_LIMIT = (1 << 31) - 1
_LONGEST = 1 << 26


def _generator(call: Call) -> Generator:
    return Generator.of(call.state, call.param.seed)


def _numpy_generator(call: Call) -> np.random.Generator:
    found = call.state.get("numpy")
    if not isinstance(found, np.random.Generator):
        found = call.state["numpy"] = np.random.default_rng(call.param.seed % (1 << 64))
    return found


def _asked_shape(value: Array) -> Shape:
    """Dimensions held by a shape operand."""
    shape = tuple(int(n) for n in value.reshape(-1))
    fits = 0 < len(shape) <= 7 and all(n >= 0 for n in shape) and math.prod(shape) <= _LIMIT
    need(fits, f"a shape has 1 to 7 dimensions of at most {_LIMIT} elements, asked for {shape}")
    return shape


def _shape_rule(call: Call) -> list[ShapeLike]:
    value = call.value(0)
    if value is not None:
        return [_asked_shape(value)]
    rank = call.inputs[0].size
    need(0 < rank <= 7, f"a shape has 1 to 7 dimensions, got {rank}")
    return [(None,) * rank]


def _float_dtype(call: Call) -> list[DType]:
    dtype = DType(call.param.dtype)
    if not dtype.is_float:
        raise UnsupportedError(f"{call.op.name} makes floating point numbers, not {dtype.name}")
    return [dtype]


def _uniform(call: Call, shape: Array) -> Array:
    dims = _asked_shape(shape)
    dtype = _float_dtype(call)[0]
    if dtype == FLOAT16:
        return _generator(call).uniform16(math.prod(dims)).reshape(dims)
    return from_real(_generator(call).uniform(math.prod(dims)).reshape(dims), dtype)


def _gaussian(call: Call, shape: Array) -> Array:
    dims = _asked_shape(shape)
    dtype = _float_dtype(call)[0]
    numbers = _generator(call).normal(math.prod(dims), half=dtype == FLOAT16)
    scaled = numbers * np.float32(call.param.std) + np.float32(call.param.mean)
    return from_real(scaled.reshape(dims), dtype)


def _permutation_dtype(call: Call) -> list[DType]:
    dtype = DType(call.param.dtype)
    if dtype not in (FLOAT32, INT32, INT16):
        raise UnsupportedError(f"PermutationRNG numbers as Float32, Int32, Int16, not {dtype}")
    return [dtype]


def _permutation_shape(call: Call) -> list[ShapeLike]:
    shape = _shape_rule(call)[0]
    need(shape is not None and len(shape) == 1, f"PermutationRNG makes vectors, asked for {shape}")
    return [shape]


def _permutation(call: Call, shape: Array) -> Array:
    (count,) = _asked_shape(shape)
    if count > _LONGEST:
        raise UnsupportedError(f"permutations of more than {_LONGEST} elements, asked for {count}")
    order = _generator(call).permutation(count)
    return from_real(order, _permutation_dtype(call)[0])


def _shuffle_dtypes(call: Call) -> list[DType]:
    return [call.dtype(0), INT32]


def _shuffle_shapes(call: Call) -> list[ShapeLike]:
    return [call.shape(0), (call.shape(0)[0],)]


def _shuffle(call: Call, x: Array) -> tuple[Array, Array]:
    """Rows in a random order, and for each row where it came from."""
    order = _generator(call).permutation(len(x))
    return x[order], order


def _unshuffle_shapes(call: Call) -> list[ShapeLike]:
    x = call.shape(2)
    need(call.shape(0) == x, f"diff has shape {call.shape(0)}, the forward input {x}")
    need(call.shape(1) == x[:1], f"index must have shape {x[:1]}, got {call.shape(1)}")
    return [x]


def _unshuffle(call: Call, diff: Array, index: Array, _x: Array) -> Array:
    rows = index.astype(np.int64)
    need(
        not rows.size or (rows.min() >= 0 and rows.max() < len(diff)),
        f"index must be in 0 to {len(diff) - 1}",
    )
    back = np.zeros_like(diff)
    back[rows] = diff
    return back


def _exponential(call: Call, rate: Array) -> Array:
    real = to_real(rate, call.dtype(0))
    uniform = _generator(call).uniform(real.size).reshape(real.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        return from_real(-np.log(uniform) / real, call.dtype(0))


def _pair_shapes(call: Call) -> list[ShapeLike]:
    need(
        call.shape(0) == call.shape(1),
        f"both inputs must have one shape, got {call.shape(0)} and {call.shape(1)}",
    )
    return [call.shape(0)]


def _drawn(call: Call, make: Any, *arrays: Array, positive: bool) -> Array:
    """Numbers drawn with these parameters; NaN where a parameter is outside its range."""
    real = [to_real(a, call.dtype(i)).astype(np.float64) for i, a in enumerate(arrays)]
    valid = np.ones(arrays[0].shape, dtype=bool)
    for r in real:
        valid &= np.isfinite(r) & (r > 0 if positive else r >= 0)
    safe = [np.where(valid, r, 1.0) for r in real]
    drawn = np.where(valid, make(*safe), np.nan)
    return from_real(drawn, call.dtype(0))


def _gamma(call: Call, shape: Array, scale: Array) -> Array:
    return _drawn(call, _numpy_generator(call).gamma, shape, scale, positive=True)


def _beta(call: Call, alpha: Array, beta: Array) -> Array:
    return _drawn(call, _numpy_generator(call).beta, alpha, beta, positive=True)


def _poisson(call: Call, rate: Array) -> Array:
    def make(lam: npt.NDArray[np.float64]) -> Any:
        # numpy refuses rates near the end of int64; float32 cannot tell such counts apart anyway.
        return _numpy_generator(call).poisson(np.minimum(lam, 9e18))

    return _drawn(call, make, rate, positive=False)


def _multinomial_shapes(call: Call) -> list[ShapeLike]:
    probs = call.shape(0)
    samples = int(call.param.num_samples)
    need(len(probs) in (1, 2), f"MultinomialRNG needs probabilities (n, c) or (c,), got {probs}")
    need(0 < samples <= _LIMIT, f"num_samples must be at least 1, got {samples}")
    need(
        call.param.replacement or samples <= probs[-1],
        f"{samples} samples without replacement of {probs[-1]} classes",
    )
    return [(*probs[:-1], samples)]


def _multinomial(call: Call, probs: Array) -> Array:
    """Classes drawn by their weights: inverse of the running sum, or the largest perturbed logs."""
    real = np.atleast_2d(to_real(probs, call.dtype(0))).astype(np.float64)
    samples, random = int(call.param.num_samples), _numpy_generator(call)
    shape = (*probs.shape[:-1], samples)
    need(
        bool(np.isfinite(real).all() and (real >= 0).all() and (real.sum(axis=-1) > 0).all()),
        "probabilities must be at least 0 and not all 0",
    )
    if not call.param.replacement:
        enough = (real > 0).sum(axis=-1) >= samples
        need(bool(enough.all()), f"fewer than {samples} classes have a probability above 0")
        with np.errstate(divide="ignore"):
            keys = np.log(real) + random.gumbel(size=real.shape)
        order = np.argsort(-keys, axis=-1, kind="stable")[:, :samples]
        return np.asarray(order.astype(np.int32).reshape(shape))
    steps = np.cumsum(real, axis=-1)
    steps /= steps[:, -1:]
    rows = np.arange(len(steps))[:, None]
    # Running sums of different rows are kept apart by their row number, so one search serves all.
    wanted = (random.random((len(steps), samples)) + rows).reshape(-1)
    found = np.searchsorted((steps + rows).reshape(-1), wanted, side="right").reshape(shape)
    offsets = (rows * real.shape[1]).reshape(-1, *(1,) * (found.ndim - 1))
    return np.asarray(np.clip(found - offsets, 0, real.shape[1] - 1).astype(np.int32))


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
        dtypes=_float_dtype,
        shapes=_shape_rule,
        reference=_uniform,
        is_pure=False,
        source=_SECTION,
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
        dtypes=_float_dtype,
        shapes=_shape_rule,
        reference=_gaussian,
        is_pure=False,
        source=_SECTION,
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
        dtypes=of_floats(dtype_of(0)),
        shapes=_pair_shapes,
        reference=_gamma,
        is_pure=False,
        gaps=(_OTHER,),
        source=_SECTION,
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
        dtypes=of_floats(dtype_of(0)),
        shapes=_pair_shapes,
        reference=_beta,
        is_pure=False,
        gaps=(_OTHER,),
        source=_SECTION,
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
        inputs=("rate",),
        dtypes=of_floats(dtype_of(0)),
        shapes=shape_of(0),
        reference=_poisson,
        is_pure=False,
        gaps=(_OTHER,),
        source=_SECTION,
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
        inputs=("shape",),
        dtypes=_permutation_dtype,
        shapes=_permutation_shape,
        reference=_permutation,
        is_pure=False,
        source=_SECTION,
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
        dtypes=_shuffle_dtypes,
        shapes=_shuffle_shapes,
        reference=_shuffle,
        is_pure=False,
        source=_SECTION,
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
        dtypes=dtype_of(0),
        shapes=_unshuffle_shapes,
        reference=_unshuffle,
        source="derivative of ShuffleRNG",
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
        dtypes=of_floats(dtype_of(0)),
        shapes=shape_of(0),
        reference=_exponential,
        is_pure=False,
        source=_SECTION,
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
        dtypes=of_floats(fixed_dtype(INT32)),
        shapes=_multinomial_shapes,
        reference=_multinomial,
        is_pure=False,
        gaps=(_OTHER,),
        source="operators.json; the parameter table (newer than the release that could be asked)",
    )
)
