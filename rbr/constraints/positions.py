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
    return _on_unit_intervals(values, offsets[:-1], last_ordered)


def _on_unit_intervals(values: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """The positions of each table shifted and scaled to [0, 1]; those of a bin of missing values stay finite.

    Lines do not depend on the origin or the unit of the axis. Sums of squares do: they would overflow at 1e200, and
    lose all their digits where numbers near 1e9 differ by 1.
    """
    sizes = np.diff(np.append(first, len(values)))
    # Halves, since the range of two huge numbers may not be finite.
    low, half_range = values[first], values[last] / 2 - values[first] / 2
    scaled = (values / 2 - np.repeat(low / 2, sizes)) / np.repeat(np.where(half_range > 0, half_range, 1.0), sizes)
    return np.clip(np.where(np.repeat(half_range > 0, sizes), scaled, 0.0), 0.0, 1.0)
