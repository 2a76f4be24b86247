from __future__ import annotations

import numpy as np
import pytest
from op_calls import apply_one, apply_op

from mgeserial import params as P
from mgeserial.errors import ShapeError

RANGE = {"qmin": -8, "qmax": 7}
X = np.array([10.584314, 2.4009433, 13.445359, -5.8636675, -0.6193131], np.float32)
DY = np.array([0.7610377, 0.121675014, 0.33367434, -0.20515826, -2.5529897], np.float32)


def one(x: float) -> np.ndarray:
    return np.array([x], np.float32)


def test_fake_quant_rounds_before_it_adds_the_zero_point() -> None:
    got = apply_one("FakeQuant", X, one(0.7), one(1), param=P.FakeQuant(**RANGE))
    np.testing.assert_allclose(got, [4.2, 2.1, 4.2, -5.6, -0.7], rtol=1e-6)
    (grad,) = apply_op("FakeQuantBackward", DY, X, one(0.7), one(1), param=P.FakeQuant(**RANGE))
    np.testing.assert_array_equal(grad, [0, DY[1], 0, DY[3], DY[4]])


def test_lsq_adds_the_zero_point_before_it_rounds() -> None:
    inputs = (X, one(0.7), one(1), one(0.3))
    got = apply_one("LSQ", *inputs, param=P.LSQ(**RANGE))
    np.testing.assert_allclose(got, [4.2, 2.1, 4.2, -5.6, -0.7], rtol=1e-6)
    grad_x, grad_s = apply_op("LSQBackward", DY, *inputs, param=P.LSQ(**RANGE), count=2)
    np.testing.assert_array_equal(grad_x, [0, DY[1], 0, DY[3], DY[4]])
    assert grad_s[0] == pytest.approx(7 * 0.3 * DY[0])
    shifted = X[1] / 0.7 + 1
    assert grad_s[1] == pytest.approx((4 - shifted) * 0.3 * DY[1], rel=1e-4)


def test_tqt_scales_by_a_power_of_two_and_clips_half_a_step_outside() -> None:
    got = apply_one("TQT", X, one(0.5), param=P.TQT(**RANGE))
    np.testing.assert_allclose(got, [9.899495, 2.828427, 9.899495, -5.656854, 0], rtol=1e-6)
    grad_x, _ = apply_op("TQTBackward", DY, X, one(0.5), param=P.TQT(**RANGE), count=2)
    # 10.58 / sqrt(2) = 7.48 lies within half a step of 7: it still has a gradient.
    np.testing.assert_array_equal(grad_x, [DY[0], DY[1], 0, DY[3], DY[4]])


def test_gradient_of_tqt_by_its_scale_summed_as_megengine_does() -> None:
    x = np.array(
        [10.584314346313477, 2.4009432792663574, 5.872427940368652, 13.445359230041504,
         11.205348014831543, -5.8636674880981445, 5.700530529022217, -0.9081432223320007,
         -0.61931312084198, 2.4635910987854004, 0.8642614483833313, 8.725641250610352],
        np.float32,
    )  # fmt: skip
    dy = np.array(
        [0.7610377073287964, 0.12167501449584961, 0.44386324286460876, 0.3336743414402008,
         1.4940791130065918, -0.2051582634449005, 0.3130677044391632, -0.8540957570075989,
         -2.5529897212982178, 0.653618574142456, 0.8644362092018127, -0.7421650290489197],
        np.float32,
    )  # fmt: skip
    _, by_scale = apply_op("TQTBackward", dy, x, one(0.5), param=P.TQT(**RANGE), count=2)
    assert by_scale.sum() == pytest.approx(11.933409, rel=1e-5)
    arguments = (dy, x, one(0.7), one(1), one(0.3))
    _, by_step = apply_op("LSQBackward", *arguments, param=P.LSQ(**RANGE), count=2)
    assert by_step.sum() == pytest.approx(5.474068, rel=1e-5)


def test_scales_broadcast_to_x_and_nothing_else() -> None:
    x = np.ones((2, 3), np.float32)
    scale = np.array([[0.5], [2.0]], np.float32)
    got = apply_one("FakeQuant", x * 3, scale, one(0), param=P.FakeQuant(**RANGE))
    assert got[:, 0].tolist() == [3.0, 4.0]
    with pytest.raises(ShapeError, match=r"scale \(2, 1\) does not broadcast to x \(3,\)"):
        apply_one("FakeQuant", x[0], scale, one(0), param=P.FakeQuant(**RANGE))
    with pytest.raises(ShapeError, match="scale must be Float32, got Int8"):
        apply_one("TQT", x, np.ones(1, np.int8), param=P.TQT())
