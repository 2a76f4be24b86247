"""Apply one operator to arrays; its rules must say beforehand what its reference computes."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgeserial._record import Params
from mgeserial.dtypes import (
    BOOL,
    FLOAT16,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    UINT8,
    UINT16,
    Array,
    DType,
)
from mgeserial.ir.types import Call, TensorType
from mgeserial.ops import registry

PLAIN = {d.storage: d for d in (FLOAT32, FLOAT16, INT8, UINT8, INT16, UINT16, INT32, BOOL)}


def make_call(
    name: str,
    *arrays: Array,
    param: Params | None = None,
    dtypes: tuple[DType | None, ...] = (),
    output_dtype: DType | None = None,
    count: int = 1,
    values_known: bool = True,
) -> Call:
    """A call with the arrays' shapes; `dtypes` by position (None: the storage's plain type)."""
    given = (*dtypes, *[None] * (len(arrays) - len(dtypes)))
    types = [d or PLAIN[a.dtype] for a, d in zip(arrays, given, strict=True)]
    return Call(
        op=registry.by_name(name),
        params=() if param is None else (param,),
        inputs=tuple(TensorType(d, a.shape) for a, d in zip(arrays, types, strict=True)),
        values=arrays if values_known else (),
        count=count,
        output_dtype=output_dtype,
    )


def apply_op(name: str, *arrays: Array, count: int = 1, **options: Any) -> list[Array]:
    """Outputs of an operator; dtype and shape rules must agree with them, known values or not."""
    call = make_call(name, *arrays, count=count, **options)
    op = call.op
    assert op.dtypes is not None
    assert op.shapes is not None
    assert op.reference is not None
    kept = [a.copy() for a in arrays]
    dtypes = list(op.dtypes(call))
    call = call.replace(output_types=tuple(TensorType(d, None) for d in dtypes))
    shapes = [list(op.shapes(call.replace(values=values))) for values in (call.values, ())]
    result = op.reference(call, *arrays)
    outputs = [result] if isinstance(result, np.ndarray) else list(result)
    assert len(outputs) == len(dtypes) == count
    for before, after in zip(kept, arrays, strict=True):
        np.testing.assert_array_equal(before, after, err_msg="the reference wrote into an input")
    for rule in shapes:
        for array, dtype, shape in zip(outputs, dtypes, rule, strict=True):
            assert array.dtype == dtype.storage
            if shape is not None:
                assert len(shape) == array.ndim
                assert all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
    return outputs


def apply_one(name: str, *arrays: Array, **options: Any) -> Array:
    """The only output of an operator."""
    (output,) = apply_op(name, *arrays, **options)
    return output
