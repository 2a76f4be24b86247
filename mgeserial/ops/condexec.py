"""Conditional execution: predicates, marks that switch values off, merges of branches.

A mark passes its values only when its predicate holds; otherwise they are `ABSENT`. Whoever runs a
graph skips operators that read an absent value and gives them absent outputs, except operators
tagged "reads-absent" (the merge), which are always called.
Source: semantics section 15; operators.json.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import INT32, Array, DType
from mgeserial.errors import ExecutionError, UnsupportedError
from mgeserial.ir.types import ABSENT, Call, ShapeLike
from mgeserial.ops import counts
from mgeserial.ops.numerics import from_real, to_real
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import constant_shape, dtype_of, fixed_dtype, need, shape_of

_SECTION = "semantics section 15"


def _flag(condition: bool) -> Array:
    return np.array([condition], dtype=np.int32)


def _mark_dtypes(call: Call) -> list[DType]:
    return [call.dtype(i) for i in range(call.count)]


def _mark_shapes(call: Call) -> list[ShapeLike]:
    return [call.inputs[i].shape for i in range(call.count)]


def _enabled(predicate: Array) -> bool:
    return bool(predicate.size) and bool(predicate.reshape(-1)[0])


def _mark(call: Call, *arrays: Array) -> tuple[Array, ...]:
    *values, predicate = arrays
    return tuple(values) if _enabled(predicate) else (ABSENT,) * len(values)


def _mark_if_need(call: Call, predicate: Array, x: Array) -> Array:
    return x if _enabled(predicate) else ABSENT


def _one(array: Array, dtype: DType, what: str) -> float:
    need(array.size == 1, f"{what} must have one element, got shape {array.shape}")
    return float(to_real(array, dtype).reshape(-1)[0])


def _pred(call: Call, *arrays: Array) -> list[Array]:
    """One flag for each branch."""
    mode = call.param.mode
    *keys, value = [_one(a, call.dtype(i), "a key or predicate") for i, a in enumerate(arrays)]
    if mode == P.CondExecPredMode.PIECEWISE:
        need(sorted(keys) == keys, f"keys must be in ascending order, got {keys}")
        place = sum(key <= value for key in keys)
        return [_flag(i == place) for i in range(len(keys) + 1)]
    is_float = call.dtype(len(keys)).is_float
    hits = [abs(k - value) < call.param.eps if is_float else k == value for k in keys]
    if mode == P.CondExecPredMode.CASE_FALLBACK:
        hits.append(not any(hits))
    return [_flag(hit) for hit in hits]


def _logical(call: Call, *arrays: Array) -> Array:
    flags = [_enabled(a) for a in arrays]
    modes = P.CondExecPredLogicalMode
    mode = call.param.mode
    if mode in (modes.OR, modes.NOR):
        result = any(flags)
    elif mode in (modes.AND, modes.NAND):
        result = all(flags)
    elif mode in (modes.XOR, modes.XNOR):
        result = sum(flags) % 2 == 1
    else:
        raise UnsupportedError(f"CondExecPredLogical mode {mode} is not known")
    return _flag(result != (mode in (modes.NOR, modes.NAND, modes.XNOR)))


def _branches(call: Call, inputs: Sequence[object]) -> int:
    """Number of branches of a merge: inputs are branch-major, then what the mode adds."""
    modes = P.CondExecMergeMode
    outputs, count = int(call.param.nr_output), len(inputs)
    need(outputs > 0, f"CondExecMerge needs at least one output, got nr_output {outputs}")
    extra = {modes.SUM: outputs, modes.SUM_COND_OUT: 1}.get(call.param.mode, 0)
    branches, rest = divmod(count - extra, outputs)
    need(
        branches > 0 and not rest,
        f"CondExecMerge mode {call.param.mode} with {outputs} outputs cannot have {count} inputs",
    )
    return branches


def _merge_dtypes(call: Call) -> list[DType]:
    _branches(call, call.inputs)
    return [call.dtype(i) for i in range(call.param.nr_output)]


def _merge_shapes(call: Call) -> list[ShapeLike]:
    branches, outputs = _branches(call, call.inputs), call.param.nr_output
    return [
        _common([call.inputs[b * outputs + i].shape for b in range(branches)])
        for i in range(outputs)
    ]


def _common(shapes: list[ShapeLike]) -> ShapeLike:
    """What is certain of a value that has one of these shapes."""
    first = shapes[0]
    if first is None or any(s is None or len(s) != len(first) for s in shapes):
        return None
    return tuple(n if all(s and s[i] == n for s in shapes) else None for i, n in enumerate(first))


def _merge(call: Call, *arrays: Array) -> list[Array]:
    modes = P.CondExecMergeMode
    outputs, mode = call.param.nr_output, call.param.mode
    groups = [arrays[b * outputs : (b + 1) * outputs] for b in range(_branches(call, arrays))]
    taken = [group for group in groups if not any(a is ABSENT for a in group)]
    if mode in (modes.EXACT_ONE, modes.EXACT_ONE_SAME_SHAPE):
        if len(taken) != 1:
            raise ExecutionError(
                f"CondExecMerge mode {mode} needs exactly one enabled branch of {len(groups)}, "
                f"got {len(taken)}"
            )
        return list(taken[0])
    if not taken:
        if mode == modes.SUM_COND_OUT:
            return [ABSENT] * outputs
        shapes = arrays[len(groups) * outputs :]
        return [_zeros(call.dtype(i), shapes[i]) for i in range(outputs)]
    return [_sum([group[i] for group in taken], call.dtype(i)) for i in range(outputs)]


def _zeros(dtype: DType, shape: Array) -> Array:
    dims = tuple(int(n) for n in shape.reshape(-1))
    # 7 dimensions are the format's limit; 2**31 elements that of MegEngine's own shape arithmetic.
    fits = len(dims) <= 7 and all(n >= 0 for n in dims) and math.prod(dims) < 1 << 31
    need(fits, f"CondExecMerge is asked for zeros of shape {dims}")
    return np.zeros(dims, dtype.storage)


def _sum(arrays: list[Array], dtype: DType) -> Array:
    for other in arrays[1:]:
        need(other.shape == arrays[0].shape, "branches that are summed must have equal shapes")
    total = to_real(arrays[0], dtype)
    for other in arrays[1:]:
        total = total + to_real(other, dtype)
    return arrays[0] if len(arrays) == 1 else from_real(total, dtype)


COND_EXEC_MARK = register(
    OpSpec(
        name="CondExecMark",
        runtime_name="CondExecMark",
        names=(Name("CondExecMark", "v0.3.1", 1854020297800315679),),
        old_id=7836902283169590051,
        v2=(V2Id("CondExecMark", 1, 7836902283169590051),),
        params=(P.CondExecMark,),
        inputs=("values_then_ppv",),
        min_inputs=2,
        max_inputs=None,
        output_count=counts.inputs_less_one,
        dtypes=_mark_dtypes,
        shapes=_mark_shapes,
        reference=_mark,
        partial=True,
        is_pure=False,
        source=_SECTION,
    )
)

COND_EXEC_MARK_IF_NEED = register(
    OpSpec(
        name="CondExecMarkIfNeed",
        runtime_name="CondExecMarkIfNeed",
        names=(Name("CondExecMarkIfNeed", "v0.3.1", 17404072350271115152),),
        old_id=13642296160966827450,
        v2=(V2Id("CondExecMarkIfNeed", 1, 13642296160966827450),),
        params=(P.CondExecMark,),
        inputs=("ppv", "x"),
        dtypes=dtype_of(1),
        shapes=shape_of(1),
        reference=_mark_if_need,
        partial=True,
        is_pure=False,
        source=_SECTION,
    )
)

COND_EXEC_MERGE = register(
    OpSpec(
        name="CondExecMerge",
        runtime_name="CondExecMerge",
        names=(Name("CondExecMerge", "v0.3.1", 15630147209821823054),),
        old_id=5820424135641322045,
        v2=(V2Id("CondExecMerge", 1, 5820424135641322045),),
        params=(P.CondExecMerge,),
        inputs=("branches",),
        min_inputs=1,
        max_inputs=None,
        output_count=counts.merged,
        dtypes=_merge_dtypes,
        shapes=_merge_shapes,
        reference=_merge,
        partial=True,
        is_pure=False,
        tags=frozenset({"reads-absent"}),
        source=_SECTION,
    )
)

# control flow; compiled only with MGB_ENABLE_COND_EXEC
COND_EXEC_PRED = register(
    OpSpec(
        name="CondExecPred",
        runtime_name="CondExecPred",
        names=(Name("CondExecPred", "v0.3.1", 12941991949923244539),),
        old_id=16688842838746557851,
        v2=(V2Id("CondExecPred", 1, 16688842838746557851),),
        params=(P.CondExecPred,),
        inputs=("keys_then_pred",),
        min_inputs=2,
        max_inputs=None,
        output_count=counts.branches,
        dtypes=fixed_dtype(INT32),
        shapes=constant_shape(1),
        reference=_pred,
        partial=True,
        source=_SECTION,
    )
)

COND_EXEC_PRED_LOGICAL = register(
    OpSpec(
        name="CondExecPredLogical",
        runtime_name="CondExecPredLogical",
        names=(Name("CondExecPredLogical", "v0.3.1", 10322300688135731056),),
        old_id=17872418292550929439,
        v2=(V2Id("CondExecPredLogical", 1, 17872418292550929439),),
        params=(P.CondExecPredLogical,),
        inputs=("ppv",),
        min_inputs=1,
        max_inputs=None,
        dtypes=fixed_dtype(INT32),
        shapes=constant_shape(1),
        reference=_logical,
        partial=True,
        source=_SECTION,
    )
)
