"""Tables of different lengths in one vector: table j has the bins offsets[j] to offsets[j + 1] - 1."""

from __future__ import annotations

import numpy as np


def bins_of(tables: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The indices of the bins of some tables, one table after the other.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr._ragged import bins_of
    >>> bins_of(np.array([2, 0]), offsets=np.array([0, 3, 4, 6]))
    array([4, 5, 0, 1, 2])
    """
    n_bins = offsets[tables + 1] - offsets[tables]
    starts = np.cumsum(n_bins) - n_bins
    return np.arange(n_bins.sum()) + np.repeat(offsets[tables] - starts, n_bins)
