"""Isotonic regression by pooling adjacent violators."""

from __future__ import annotations

import numpy as np


def isotonic(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The increasing table nearest to the given one, for positive weights.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.shapes import isotonic
    >>> isotonic(np.array([1.0, 3.0, 2.0]), np.ones(3))
    array([1. , 2.5, 2.5])
    """
    means: list[float] = []
    masses: list[float] = []
    sizes: list[int] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        size = 1
        while means and means[-1] >= value:
            before, mass = means.pop(), masses.pop()
            value = before + weight * (value - before) / (mass + weight)
            weight, size = mass + weight, size + sizes.pop()
        means.append(value)
        masses.append(weight)
        sizes.append(size)
    return np.repeat(np.array(means), sizes)
