"""Coarse bins: the bins of a column merged into few, which are the sides of the grids of pairs.

The cells of a pair are the products of the coarse bins of its two columns. These are made of the bins of the columns,
so a row's cell follows from its codes: no value is read again, and an edge of a grid is an edge of a bin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, eq=False)
class CoarseBins:
    """The coarse bin of each bin.

    of_bin : int array of shape (n_coef,)
        Within its table; the bins of missing values come last.
    n_ordered : int array of shape (n_tables,)
        Coarse bins of each table, not counting the one of missing values.
    missing : bool array of shape (n_tables,)
        Whether a table has one more, of missing values.
    offsets : int array of shape (n_tables + 1,)
        Where the bins of each table begin.
    has_levels : bool array of shape (n_tables,)
        Whether the bins of a table are the levels of a category.
    """

    of_bin: np.ndarray
    n_ordered: np.ndarray
    missing: np.ndarray
    offsets: np.ndarray
    has_levels: np.ndarray

    @property
    def n_bins(self) -> np.ndarray:
        """Coarse bins of each table, with the one of missing values."""
        return self.n_ordered + self.missing

    def of(self, table: int) -> np.ndarray:
        """The coarse bin of each bin of a table."""
        return self.of_bin[self.offsets[table] : self.offsets[table + 1]]

    def merged(self, most: int) -> CoarseBins:
        """At most this many coarse bins of each table: neighbours are merged, as many with each other as with others.

        Examples
        --------
        >>> import numpy as np
        >>> from rbr.data.grids import coarse_bins
        >>> coarse = coarse_bins(np.array([0, 5]), np.full(5, 0.2), np.array([True]), 4, [None])
        >>> coarse.merged(2).of_bin
        array([0, 0, 1, 1, 2])
        """
        n_ordered = np.minimum(self.n_ordered, most)
        table = np.repeat(np.arange(len(n_ordered)), np.diff(self.offsets))
        merged = self.of_bin * n_ordered[table] // np.maximum(self.n_ordered, 1)[table]
        is_missing = self.of_bin == self.n_ordered[table]
        return replace(self, of_bin=np.where(is_missing, n_ordered[table], merged), n_ordered=n_ordered)


def coarse_bins(
    offsets: np.ndarray, shares: np.ndarray, missing: np.ndarray, most: int, order: Sequence[np.ndarray | None]
) -> CoarseBins:
    """At most `most` coarse bins for each table, of about equal shares of the rows; frequent bins stay alone.

    Parameters
    ----------
    offsets, shares, missing
        As in `BinnedMatrix`.
    most : int
    order : for each table None if its bins have an order, otherwise a number for each of them
        The most frequent bins of such a table stay alone and the others are merged into one; these are then sorted by
        the mean of their numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.data.grids import coarse_bins
    >>> shares = np.array([0.1, 0.1, 0.5, 0.1, 0.2])
    >>> coarse_bins(np.array([0, 5]), shares, np.array([False]), 3, [None]).of_bin
    array([0, 0, 1, 2, 2])
    """
    of_bin, n_ordered = np.zeros(offsets[-1], dtype=np.int64), np.ones(len(missing), dtype=np.int64)
    for j, own in enumerate(order):
        bins = slice(offsets[j], offsets[j + 1] - missing[j])
        if bins.stop > bins.start:
            groups = _runs(shares[bins], most) if own is None else _sorted_groups(shares[bins], most, own)
            of_bin[bins] = groups
            n_ordered[j] = int(groups.max()) + 1
        if missing[j]:
            of_bin[bins.stop] = n_ordered[j]
    has_levels = np.array([own is not None for own in order], dtype=bool)
    return CoarseBins(of_bin, n_ordered, np.asarray(missing), offsets, has_levels)


def _runs(shares: np.ndarray, most: int) -> np.ndarray:
    """The run of each bin: at most `most` runs of neighbours, each bin with a share of 1 / most or more alone."""
    if len(shares) <= most:
        return np.arange(len(shares))
    is_frequent = shares * most >= shares.sum()
    # Every frequent bin takes one of the runs. What is left between them is divided so that no more than the others
    # are begun: a stretch between frequent bins begins one of its own.
    n_stretches = 1 + np.count_nonzero(is_frequent)
    rest = np.where(is_frequent, 0.0, shares)
    n_runs = max(most - 2 * int(n_stretches) + 1, 1)
    place = np.floor((np.cumsum(rest) - 0.5 * rest) * (n_runs / max(float(rest.sum()), 1e-300)))
    begins = np.append(True, (np.diff(place) > 0) | is_frequent[1:] | is_frequent[:-1])
    groups = np.cumsum(begins) - 1
    return groups * most // (groups[-1] + 1) if groups[-1] >= most else groups


def _sorted_groups(shares: np.ndarray, most: int, order: np.ndarray) -> np.ndarray:
    """The group of each bin without an order: the most frequent alone, the others together, sorted by `order`."""
    groups = np.arange(len(shares))
    if len(shares) > most:
        by_share = np.argsort(-shares, kind="stable")
        groups[by_share] = np.minimum(np.arange(len(shares)), most - 1)
    weight = np.bincount(groups, shares)
    means = np.bincount(groups, shares * order) / np.maximum(weight, 1e-300)
    rank = np.empty(len(means), dtype=np.int64)
    rank[np.argsort(means, kind="stable")] = np.arange(len(means))
    return rank[groups]
