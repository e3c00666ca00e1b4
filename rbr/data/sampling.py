"""Samples of rows from all parts of a table."""

from __future__ import annotations

from functools import lru_cache

import numpy as np


def draw_rows(n_rows: int, n_sample: int, rng: np.random.Generator) -> np.ndarray:
    """Ascending indices of a sample: one random row from each of n_sample equal stretches.

    Every part of a sorted table is represented, and a periodic table is not sampled in step with its period.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.data.sampling import draw_rows
    >>> draw_rows(100, 5, np.random.default_rng(0)) // 20
    array([0, 1, 2, 3, 4])
    """
    cuts = np.arange(n_sample + 1) * n_rows // n_sample
    return cuts[:-1] + rng.integers(np.diff(cuts))


@lru_cache(maxsize=4)
def spread_rows(n_rows: int, n_sample: int) -> np.ndarray:
    """`draw_rows` with a fixed seed, cached and read-only."""
    rows = draw_rows(n_rows, n_sample, np.random.default_rng(0))
    rows.flags.writeable = False
    return rows
