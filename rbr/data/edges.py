"""Edges between values, and the bins of values between edges."""

from __future__ import annotations

import numpy as np


def between(left: float, right: float) -> float:
    """A number m with left <= m < right, halfway but for rounding, and without overflow.

    Examples
    --------
    >>> from rbr.data.edges import between
    >>> between(1.0, 2.0), between(1e308, 1.6e308)
    (1.5, 1.3e+308)
    """
    middle = left / 2 + right / 2 if abs(left) > 1e300 or abs(right) > 1e300 else (left + right) / 2
    return middle if middle < right else left


def codes_of(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The number of edges below each value; NaN is one past the ordered bins.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.data.edges import codes_of
    >>> codes_of(np.array([1.0, 2.0, 3.0, np.nan]), np.array([2.0]))
    array([0, 0, 1, 2])
    """
    return np.where(np.isnan(values), len(edges) + 1, np.searchsorted(edges, values, side="left"))
