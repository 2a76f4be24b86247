"""Products, inverses, steps and looks for numbers that are not finite, against the reference."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_check import check, graph_of, on_device

from mgeserial import params as P
from mgeserial.errors import ExecutionError

pytestmark = pytest.mark.usefixtures("device")


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int32, np.int8, np.uint8])
@pytest.mark.parametrize(("first", "second"), [(1000, 1), (1000, 1000), (1, 1), (40000, 40000)])
def test_inner_products_agree(kind: type, first: int, second: int) -> None:
    random = np.random.default_rng(1)
    a, b = (random.integers(0, 9, n).astype(kind) for n in (first, second))
    check(graph_of("Dot", [a, b]), [a, b])


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (3, 2, 5, 5), (70, 70), (300, 300)])
def test_inverses_agree(shape: tuple[int, ...]) -> None:
    x = _normal(*shape)
    x[..., 0, 0] = 0 if shape[-1] > 1 else 2  # the first pivot is another row
    check(graph_of("MatrixInverse", [x]), [x], rtol=1e-5, atol=1e-6)


def test_singular_matrix_is_an_error() -> None:
    x = _normal(2, 3, 3)
    x[1, 2] = 0
    with pytest.raises(ExecutionError, match="a matrix to invert is singular"):
        on_device(graph_of("MatrixInverse", [x]), [x])


@pytest.mark.parametrize(
    ("a", "b", "axes"),
    [
        ((4, 3), (4, 3), (-1, -1, -1)),
        ((3, 5, 2), (2, 3), (0, 1, 0)),
        ((2, 3, 4), (1, 4, 3), (1, 2, 0)),
    ],
)
def test_cross_products_agree(
    a: tuple[int, ...], b: tuple[int, ...], axes: tuple[int, int, int]
) -> None:
    x, y = _normal(*a), _normal(*b)
    check(
        graph_of("Cross", [x, y], P.Cross(axisa=axes[0], axisb=axes[1], axisc=axes[2])),
        [x, y],
        rtol=1e-6,
    )


@pytest.mark.parametrize("endpoint", [True, False])
@pytest.mark.parametrize("count", [1, 2, 301])
def test_steps_between_ends_of_the_run_agree(endpoint: bool, count: int) -> None:
    start, stop = np.array([-3], np.int32), np.array([4.7], np.float32)
    arrays = [start, stop, np.array([count], np.int32)]
    graph = graph_of("Linspace", arrays, P.Linspace(endpoint=endpoint), constant=[2])
    check(graph, [start, stop])


@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("bad", [None, np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_found(scale: float, bad: float | None) -> None:
    a, b, c = _normal(40, 30), _normal(7).astype(np.float16), np.arange(5, dtype=np.int32)
    if bad is not None:
        a[39, 28] = bad
    param = P.CheckNonFinite(scale=scale)
    check(graph_of("CheckNonFinite", [a, b, c], param), [a, b, c])
    check(graph_of("CheckHasInf", [a]), [a])
