"""The searches for tables on grids: few rectangles, and smooth surfaces."""

from __future__ import annotations

import numpy as np

from rbr._backend import kernels
from rbr._parallel import over_ranges

# Grids of at most this many ordered bins a side are cut exactly, in at most some hundredths of a second each; of larger
# ones good rectangles are found, best first.
MOST_EXACT = 12


def cut_into_rectangles(
    offsets: np.ndarray,
    grids: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    limits: np.ndarray,
    prices: np.ndarray,
    *,
    greedy: bool = False,
    n_threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """(the means on the rectangles, the rectangle of each cell) of grids that stand one after the other.

    Parameters
    ----------
    offsets, grids
        As in `BinnedMatrix`.
    values : array of shape (offsets[-1], n_outputs)
        All outputs have the same rectangles.
    weights : array of shape (offsets[-1],)
    limits, prices : by grid
        The most rectangles, and the price of a cut.
    greedy : bool
        Whether small grids are cut best first too.
    """
    labels = np.zeros(len(values), dtype=np.int32)
    inputs = offsets, grids, np.ascontiguousarray(values), weights, limits, prices, 0 if greedy else MOST_EXACT
    over_ranges(kernels().cut_grids, len(grids), min(n_threads, len(grids)), *inputs, labels)
    most = int(labels.max(initial=0)) + 1
    names = np.repeat(np.arange(len(grids)), np.diff(offsets)) * most + labels
    _, first, rectangle = np.unique(names, return_index=True, return_inverse=True)
    total = np.bincount(rectangle, weights, minlength=len(first))
    means = np.empty_like(values)
    for mean, column in zip(means.T, values.T, strict=True):
        # Measured from one of them, equal values have exactly that mean; a rectangle without weight is zero.
        origin = np.where(total > 0, column[first], 0.0)
        sums = np.bincount(rectangle, weights * (column - origin[rectangle]), minlength=len(first))
        mean[:] = (origin + np.divide(sums, total, out=np.zeros(len(first)), where=total > 0))[rectangle]
    return means, labels


def smooth(
    offsets: np.ndarray,
    grids: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    strengths: np.ndarray,
    n_threads: int = 1,
) -> np.ndarray:
    """The surfaces nearest to grids that stand one after the other; `strengths` are of the penalty on roughness."""
    out = np.zeros(len(values))
    inputs = offsets, grids, values, weights, strengths
    over_ranges(kernels().smooth_grids, len(grids), min(n_threads, len(grids)), *inputs, out)
    return out
