"""The positions of bins on the axis along which lines are drawn."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from rbr._checks import check_vector

POSITIONS = ("rank", "index", "value")


def bin_positions(
    position: str, offsets: np.ndarray, weights: np.ndarray, missing: np.ndarray, values: ArrayLike | None
) -> np.ndarray:
    """The position of every bin on the axis along which lines are drawn.

    "rank": the weight of the table's ordered bins up to the middle of the bin; "index": 0, 1, …; "value": as given.
    The position of a missing bin is never used.
    """
    n_bins = np.diff(offsets)
    if position == "index":
        return np.arange(offsets[-1], dtype=np.float64) - np.repeat(offsets[:-1], n_bins)
    if position == "rank":
        ranks = np.empty(len(weights))
        for size in np.unique(n_bins):  # tables of one size at a time: each sum starts at zero and loses no digits
            bins = offsets[:-1][n_bins == size, None] + np.arange(size)
            ranks[bins] = np.cumsum(weights[bins], axis=1) - weights[bins] / 2
        return ranks
    if values is None:
        raise ValueError('positions is None; with position="value" it must hold the position of every bin')
    values = check_vector(values, int(offsets[-1]), "positions")
    steps = np.diff(values, append=np.inf)
    last_ordered = offsets[1:] - 1 - missing
    steps[last_ordered], steps[offsets[1:] - 1] = 0.0, 0.0
    if (steps < 0).any():
        k = int(np.flatnonzero(steps < 0)[0])
        raise ValueError(
            f"positions[{k + 1}] is {values[k + 1]}, below positions[{k}]; within a table they must not fall"
        )
    # Lines do not depend on the unit of the axis; a power of two changes no position and keeps squares finite.
    size = np.abs(values).max(initial=0.0)
    return np.ldexp(values, -int(np.frexp(size)[1]))
