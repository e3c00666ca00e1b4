"""Coarse bins: the bins of a column merged into few, which are the sides of the grids of pairs.

The cells of a pair are the products of the coarse bins of its two columns. These are made of the bins of the columns,
so a row's cell follows from its codes: no value is read again, and an edge of a grid is an edge of a bin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rbr._checks import check_int

if TYPE_CHECKING:
    from rbr.data.design import BinnedMatrix


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

    def sides(self, pairs: np.ndarray) -> np.ndarray:
        """The grids of some pairs, as `BinnedMatrix.grids` holds them."""
        columns = [self.n_ordered[pairs], self.missing[pairs], self.has_levels[pairs]]
        return np.ascontiguousarray(np.column_stack(columns), dtype=np.int64)

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


# Shares that are summed in another order, as over blocks of rows, differ in their last digits, and many are alike.
DIGITS_OF_SHARES = 12


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
    shares = np.round(shares, DIGITS_OF_SHARES)
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


# Tables of several columns -------------------------------------------------------------------------------------------


def with_pairs(
    B: BinnedMatrix, pairs: Iterable[tuple[int, int]], max_bins: int = 16, categories: Iterable[int] = ()
) -> BinnedMatrix:
    """The matrix with more features: the grids of some pairs of its features, over at most `max_bins` bins a side.

    Shapes such as "rectangles" and "surface" are for these. Each pair is of two features that look at one column; the
    bins of `categories` have no order. The weights are counts.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.data.design import BinnedMatrix
    >>> from rbr.data.grids import with_pairs
    >>> B = with_pairs(BinnedMatrix([[0, 1, 1, 2], [1, 0, 1, 1]], offsets=[0, 3, 5]), [(0, 1)])
    >>> B.codes[2], B.grids[2], B.columns_of(2)
    (array([1, 2, 3, 5], dtype=uint8), array([3, 2, 0, 0, 0, 0]), (0, 1))
    """
    from rbr.data.design import BinnedMatrix

    check_int(max_bins, "max_bins", 2, 255)
    chosen = np.array([_check_pair(B, pair) for pair in pairs], dtype=np.int64).reshape(-1, 2)
    order: list[np.ndarray | None] = [None] * B.n_features
    for j in categories:
        order[check_int(j, "feature of categories", 0, B.n_features - 1)] = np.arange(float(B.n_bins[j] - B.missing[j]))
    coarse = coarse_bins(B.offsets, B.shares, B.missing, max_bins, order)
    n_cells = coarse.n_bins[chosen].prod(axis=1)
    dtype = np.uint8 if max(n_cells.max(initial=0), B.n_bins.max(initial=0)) < 256 else np.uint16
    codes = np.empty((B.n_features + len(chosen), B.n_rows), dtype=dtype)
    codes[: B.n_features] = B.codes
    cells_of(B.codes, coarse, chosen, n_cells, codes[B.n_features :])
    offsets = np.concatenate([B.offsets, B.offsets[-1] + np.cumsum(n_cells)])
    width = max(B.columns.shape[1], 2)
    columns = np.full((len(codes), width), -1, dtype=np.int64)
    columns[: B.n_features, : B.columns.shape[1]] = B.columns
    columns[B.n_features :, :2] = B.columns[chosen, 0]
    grids = np.zeros((len(codes), 6), dtype=np.int64)
    grids[: B.n_features] = 0 if B.grids is None else B.grids
    grids[B.n_features :] = coarse.sides(chosen)
    positions = None if B.positions is None else np.append(B.positions, np.zeros(int(n_cells.sum())))
    missing = np.append(B.missing, np.zeros(len(chosen), dtype=bool))
    of_bin = np.append(_checked_coarse(B, coarse), np.zeros(int(n_cells.sum()), dtype=np.int64))
    own = {"missing": missing, "positions": positions, "columns": columns, "grids": grids, "coarse": of_bin}
    return BinnedMatrix(codes, offsets, **own)


def _checked_coarse(B: BinnedMatrix, coarse: CoarseBins) -> np.ndarray:
    """The coarse bins, which must be those of the pairs that the matrix has."""
    of_column = np.repeat((B.columns >= 0).sum(axis=1) == 1, B.n_bins)
    if B.coarse is not None and (B.coarse != coarse.of_bin)[of_column].any():
        raise ValueError("B has pairs with other bins along their sides; make all of its pairs with the same max_bins")
    return np.where(of_column, coarse.of_bin, 0)


def _check_pair(B: BinnedMatrix, pair: tuple[int, int]) -> tuple[int, int]:
    a, b = (check_int(j, "feature of a pair", 0, B.n_features - 1) for j in pair)
    if a == b or max(len(B.columns_of(j)) for j in (a, b)) > 1:
        raise ValueError(f"pairs holds {tuple(pair)}; a pair is of two features that look at one column each")
    return a, b


def cells_of(codes: np.ndarray, coarse: CoarseBins, pairs: np.ndarray, n_cells: np.ndarray, out: np.ndarray) -> None:
    """Write the cell of each row in each pair, given the rows' codes."""
    for own, (a, b), n in zip(out, pairs.tolist(), n_cells.tolist(), strict=True):
        # The largest code that both sides together can have is that of a row without a bin.
        rows = np.append(coarse.of(a) * coarse.n_bins[b], n)
        sides = np.append(coarse.of(b), n)
        np.minimum(rows[codes[a]] + sides[codes[b]], n, out=own, casting="unsafe")


def one_column_each(n_features: int) -> np.ndarray:
    """Feature j looks at column j."""
    return np.arange(n_features, dtype=np.int64)[:, None]


def check_columns_looked_at(columns, n_features: int) -> np.ndarray:
    """The columns that each feature looks at, as int64; a ValueError names a feature with wrong ones."""
    if columns is None:
        return one_column_each(n_features)
    given = np.asarray(columns)
    if given.ndim != 2 or given.shape[0] != n_features or given.shape[1] == 0 or given.dtype.kind not in "iu":
        raise ValueError(
            f"columns has shape {given.shape} and dtype {given.dtype}; "
            f"it must hold a row of integers for each of the {n_features} features"
        )
    columns = np.array(given, dtype=np.int64, order="C")
    is_column = columns >= 0
    in_order = is_column[:, 0] & (is_column[:, :-1] | ~is_column[:, 1:]).all(axis=1) & (columns >= -1).all(axis=1)
    if not in_order.all():
        j = int(np.flatnonzero(~in_order)[0])
        raise ValueError(
            f"columns of feature {j} are {columns[j].tolist()}; "
            f"they must be one or more indices of at least 0, and after these nothing but -1"
        )
    ascending = np.sort(columns, axis=1)
    twice = ((ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)).any(axis=1)
    if twice.any():
        j = int(np.flatnonzero(twice)[0])
        raise ValueError(f"columns of feature {j} are {columns[j].tolist()}; they must differ from one another")
    return columns
