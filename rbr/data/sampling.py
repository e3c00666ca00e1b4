"""Samples of rows from all parts of a table."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

# The constants of splitmix64 (Steele, Lea, Flood 2014), whose output bits look independent for any two inputs.
_GOLDEN, _FIRST, _SECOND = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


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


def level_of(n_rows: int, n_sample: int) -> int:
    """The largest k for which `thinned_rows` of this level are at least n_sample rows, or nearly twice as many.

    Examples
    --------
    >>> from rbr.data.sampling import level_of
    >>> [level_of(n_rows, 100) for n_rows in (99, 199, 200, 399, 400)]
    [0, 0, 1, 1, 2]
    """
    return max((n_rows // n_sample).bit_length() - 1, 0)


def thinned_rows(first: int, last: int, level: int, seed: int) -> np.ndarray:
    """The rows first to last - 1 of a sample of all rows: a random row of each run of 2^level.

    The row of a run is that of one of its halves, by a bit that is a hash of the run. So whether a row is in the sample
    depends on its number, the level and the seed alone, and the sample of a level is part of that of the level below:
    rows that are read in blocks, or by several readers, are thinned as they come. Every part of a sorted table is
    represented.

    Examples
    --------
    >>> from rbr.data.sampling import thinned_rows
    >>> thinned_rows(0, 40, level=3, seed=0)
    array([ 2, 12, 22, 31, 33])
    >>> thinned_rows(10, 30, level=3, seed=0)
    array([12, 22])
    """
    rows = np.arange(first >> level, (last + (1 << level) - 1) >> level).astype(np.uint64)
    for below in range(level, 0, -1):
        rows = 2 * rows + _random_bits(rows, below, seed)
    numbers = rows.astype(np.int64)
    return numbers[(numbers >= first) & (numbers < last)]


def _random_bits(runs: np.ndarray, level: int, seed: int) -> np.ndarray:
    """A bit for each run of a level: splitmix64 of its number, after the level and the seed."""
    mixed = np.array([seed], dtype=np.uint64)
    for number in (np.array([level], dtype=np.uint64), runs):
        mixed = mixed + (number + np.uint64(1)) * _GOLDEN
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
        mixed ^= mixed >> np.uint64(31)
    return mixed >> np.uint64(63)
