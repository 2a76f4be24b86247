"""Gradients checked by central differences along random directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]


def assert_gradient(
    loss: Callable[..., float],
    inputs: Sequence[Float32],
    gradients: Sequence[npt.NDArray[np.generic]],
    *,
    seed: int = 0,
    step: float = 2e-3,
    tolerance: float = 1e-2,
) -> None:
    """Each gradient must give the slope of `loss` along random directions of its input.

    Directions are of ones and minus ones, so that every element counts. `tolerance` is relative to
    the gradient's length.
    """
    random = np.random.default_rng(seed)
    for index, (array, gradient) in enumerate(zip(inputs, gradients, strict=True)):
        assert gradient.shape == array.shape
        size = max(1.0, float(np.linalg.norm(gradient.astype(np.float64))))
        for _ in range(3):
            way = random.choice(np.array([-1, 1], np.float32), array.shape)
            ends = []
            for sign in (1, -1):
                moved = list(inputs)
                moved[index] = (array + np.float32(sign * step) * way).astype(np.float32)
                ends.append(loss(*moved))
            slope = (ends[0] - ends[1]) / (2 * step)
            found = float((gradient.astype(np.float64) * way).sum())
            message = f"input {index}: slope {slope}, got {found}, length {size}"
            assert abs(slope - found) < tolerance * size, message
