"""Bins: from a table of numbers, categories and missing values to one small integer per entry.

A number x of feature j has the code k if edges_[j][k - 1] < x <= edges_[j][k]: its code is the number of
edges below it. Edges lie between neighbouring training values, so equal values share a bin, infinities and
values beyond the training range fall into the end bins, and a model that is a table per feature is a step
function of the feature. The edges of all features lie in one flat array, so that a million features do not
need a Python object each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from rbr._backend import kernels
from rbr._checks import check_nonnegative, check_vector
from rbr._parallel import resolve_n_jobs
from rbr._text import interval_labels
from rbr.data.choices import (
    BINOMIAL,
    CATEGORY,
    DEFAULT_BINS,
    REGULAR,
    UNREAD,
    check_edges,
    generator_of,
    index_of,
    max_bins_of,
    methods_of,
    which_categorical,
    which_excluded,
)
from rbr.data.cutting import (
    Cutter,
    Progress,
    SampledRows,
    categories_of,
    encode,
    flat_edges,
    n_sample_of,
    runs_of_kinds,
)
from rbr.data.levels import UNSEEN, Categories
from rbr.data.tables import SparseTable, Table, open_table

if TYPE_CHECKING:
    from rbr.data.design import BinnedMatrix


class Binner:
    """Cuts each feature of a table into bins, and gives the bin of each entry.

    Parameters
    ----------
    max_bins : int or dict, default 255
        The most bins of a feature, between 2 and 65535, not counting the one for missing values. A dict from
        column names or indices to ints sets it for these columns, with 255 for the others. Each category has its
        own bin.
    binning : {"regular", "binomial"} or dict, default "regular"
        "regular": bins of equal weight. A value heavy enough to fill a bin gets its own, and the other rows
        share the other bins. "binomial": bin sizes drawn from a multinomial distribution, as in the paper's
        theory. A dict maps columns to one of these, or to an increasing array of edges; columns that it leaves
        out are regular.
    categorical_features : "from_dtype", None, or list, default "from_dtype"
        Which features are categories. "from_dtype": the columns of a frame whose dtype is category or string,
        or object with text in it. None: no column. A list holds column names or indices, or one bool per
        column.
    random_state : int, numpy.random.Generator, numpy.random.RandomState or None, default None
        Draws the bin sizes of "binomial", and the rows the edges are taken from if there are more than
        200,000. None means a fixed seed.
    n_jobs : int or None, default None
        The number of threads, as in scikit-learn. The result does not depend on it.
    verbose : int, default 0
        1 prints every few seconds how many columns are done.
    exclude : list of column names or indices, optional
        Columns that are not read, whatever they hold: each has a single bin.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : tuple of str or None
        The column names of the training table, if all of them are text.
    n_bins_ : array of int64, shape (n_features,)
        Bins of each feature, including the one for missing values.
    offsets_ : array of int64, shape (n_features + 1,)
        Where each feature's bins begin in a vector of all of them.
    missing_ : array of bool, shape (n_features,)
        Whether training saw missing values in a feature; if so, its last bin holds them.
    is_categorical_ : array of bool, shape (n_features,)
    positions_ : array of float64, shape (n_coef,)
        The mean of the feature in each bin; for an empty bin the middle between its edges. The bin of missing
        values of a numeric feature repeats the one before. Bins of categories have their index.
    edges_ : sequence of arrays
        The edges of each feature; empty for categories.
    categories_ : dict
        For each categorical feature, by index, its categories in the order of their bins.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.data.binning import Binner
    >>> X = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, np.nan], [4.0, 7.0]])
    >>> binner = Binner(max_bins=2).fit(X)
    >>> binner.edges_[0]
    array([2.5])
    >>> binner.transform(X).codes
    array([[0, 0, 1, 1],
           [0, 0, 2, 1]], dtype=uint8)
    >>> binner.bin_labels(1)
    ['<= 6', '> 6', 'missing']
    """

    def __init__(
        self,
        max_bins: int | Mapping = DEFAULT_BINS,
        binning: str | Mapping = "regular",
        categorical_features: Any = "from_dtype",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        exclude: Any = None,
    ):
        self.max_bins = max_bins
        self.binning = binning
        self.categorical_features = categorical_features
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.exclude = exclude

    def __repr__(self) -> str:
        fitted = f", fitted to {self.n_features_in_} features" if hasattr(self, "n_bins_") else ""
        return f"Binner(max_bins={self.max_bins!r}, binning={self.binning!r}{fitted})"

    def fit(self, X: Any, sample_weight: Any = None) -> Binner:
        """Find the bins of each feature.

        Parameters
        ----------
        X : array, frame or sparse matrix, shape (n_rows, n_features)
        sample_weight : array of float, shape (n_rows,), optional
            An integer weight means that the row is repeated that many times. Rows of weight zero are ignored.

        Returns
        -------
        Binner
            itself
        """
        self._fit(open_table(X), sample_weight, with_codes=False)
        return self

    def _fit(
        self,
        table: Table,
        sample_weight: Any,
        with_codes: bool,
        rng: np.random.Generator | None = None,
        rows: SampledRows | None = None,
    ) -> np.ndarray | None:
        """Find the bins; `with_codes` also returns the codes of the table, if that saves reading it twice.

        rng : what is left of the random generator, if `rows`, the rows that the table stands for, have been chosen
        """
        excluded = which_excluded(self.exclude, table)
        is_categorical = which_categorical(self.categorical_features, table, excluded)
        max_bins = max_bins_of(self.max_bins, table)
        methods, user_edges = methods_of(self.binning, table, is_categorical)
        methods[excluded] = UNREAD
        n_threads = resolve_n_jobs(self.n_jobs)
        rng = generator_of(self.random_state) if rng is None else rng
        if rows is None:
            rows = SampledRows.of(table, sample_weight, n_sample_of(max_bins), rng)
        # With numbers only and at most 255 bins, codes are known to fit in bytes before the bins are found.
        codes = None
        if with_codes and max_bins.max() < 256 and np.isin(methods, (REGULAR, BINOMIAL, UNREAD)).all():
            if not isinstance(table, SparseTable):
                codes = np.empty((table.n_features, table.n_rows), dtype=np.uint8)
                codes[excluded] = 0
        cutter = Cutter(table, rows, max_bins, user_edges, rng, codes, n_threads, self.verbose)
        parts = Parts(table.n_features)
        for method, start, stop in runs_of_kinds(methods):
            if method == CATEGORY:
                for j in range(start, stop):
                    parts.add_categories(j, *categories_of(table, j, rows.kept))
            elif method == UNREAD:
                parts.add_unread(start, stop)
            else:
                for first, (edges, positions, n_ordered), missing in cutter.blocks(method, start, stop):
                    parts.add_numbers(first, edges, positions, n_ordered, missing)

        self.n_features_in_ = table.n_features
        self.feature_names_in_ = table.names
        self.is_categorical_ = is_categorical
        self._is_excluded = excluded
        self.n_bins_ = parts.n_bins
        self.missing_ = parts.missing
        self.categories_ = parts.categories
        self.offsets_ = np.append(0, np.cumsum(parts.n_bins))
        n_edges = np.where(is_categorical, 0, parts.n_bins - parts.missing - 1)
        self._edge_offsets = np.append(0, np.cumsum(n_edges))
        self._edges = joined(parts.edges)
        self.positions_ = joined(parts.positions)
        return codes

    def transform(self, X: Any, sample_weight: Any = None) -> BinnedMatrix:
        """The binned matrix of a table that has the columns of the training table.

        Missing values of a feature that had none in training and unknown categories have no bin: their code
        is n_bins_[j], one past the last, and they contribute zero.

        Parameters
        ----------
        X : array, frame or sparse matrix, shape (n_rows, n_features)
        sample_weight : array of float, shape (n_rows,), optional
            Row weights for the shares of the bins.
        """
        self._check_fitted()
        table = open_table(X)
        table.check_columns(self.feature_names_in_, self.n_features_in_, "Binner")
        return self._matrix(self._codes(table), sample_weight)

    def fit_transform(self, X: Any, sample_weight: Any = None) -> BinnedMatrix:
        """`fit`, then `transform` of the same rows, in one reading of the table where that is possible."""
        table = open_table(X)
        codes = self._fit(table, sample_weight, with_codes=True)
        return self._matrix(self._codes(table) if codes is None else codes, sample_weight)

    def _matrix(self, codes: np.ndarray, sample_weight: Any) -> BinnedMatrix:
        from rbr.data.design import BinnedMatrix

        if sample_weight is not None:
            sample_weight = check_nonnegative(sample_weight, codes.shape[1], "sample_weight")
        n_threads = resolve_n_jobs(self.n_jobs)
        fields = codes, self.offsets_, self.missing_, self.positions_, sample_weight, n_threads
        return BinnedMatrix._of_codes(*fields)

    def with_edges(self, edges: Mapping[int, Any], positions: Mapping[int, Any]) -> Binner:
        """A copy of this binner with the edges of some numeric features moved; each keeps its number of edges.

        Parameters
        ----------
        edges : dict from column indices to increasing arrays
        positions : dict from the same column indices to arrays
            The mean of the feature in each bin between the moved edges.

        Examples
        --------
        >>> import numpy as np
        >>> from rbr.data.binning import Binner
        >>> X = np.arange(6.0)[:, None]
        >>> moved = Binner(max_bins=2).fit(X).with_edges({0: [3.5]}, {0: [1.5, 4.5]})
        >>> moved.edges_[0], moved.positions_
        (array([3.5]), array([1.5, 4.5]))
        """
        self._check_fitted()
        moved = copy(self)
        flat, means = self._edges.copy(), self.positions_.copy()
        for j, given in edges.items():
            label = f"column {j}" if self.feature_names_in_ is None else f"column {self.feature_names_in_[j]!r}"
            own = check_edges(given, f"edges of {label}")
            if self.is_categorical_[j] or len(own) != len(self.edges_[j]):
                raise ValueError(
                    f"edges of {label} has {len(own)} edges; there are {len(self.edges_[j])}, and moved ones "
                    f"must be as many"
                )
            flat[self._edge_offsets[j] : self._edge_offsets[j + 1]] = own
            ordered = slice(self.offsets_[j], self.offsets_[j] + len(own) + 1)
            means[ordered] = check_vector(positions[j], len(own) + 1, f"positions of {label}")
        moved._edges, moved.positions_ = joined([flat]), joined([means])
        return moved

    def columns_with_given_edges(self) -> tuple[int, ...]:
        """The columns whose edges the user gave as an array.

        Examples
        --------
        >>> from rbr.data.binning import Binner
        >>> Binner(binning={1: [0.5]}).fit([[0.0, 0.0], [1.0, 1.0]]).columns_with_given_edges()
        (1,)
        """
        given = self.binning.items() if isinstance(self.binning, Mapping) else ()
        return tuple(self.index_of(column, "binning") for column, cuts in given if not isinstance(cuts, str))

    @property
    def edges_(self) -> Sequence[np.ndarray]:
        self._check_fitted()
        return RaggedArrays(self._edges, self._edge_offsets)

    def bin_labels(self, feature: int | str) -> list[str]:
        """The bins of a feature as text.

        For example "<= 23.5", "(23.5, 27.5]", "> 27.5"; the names of categories; "missing". Numbers are shortened
        as far as the widths of the bins allow.

        Parameters
        ----------
        feature : int or str
            The index of the column, or its name.
        """
        j = self.index_of(feature, "feature")
        if self.is_categorical_[j]:
            labels = [str(category) for category in self.categories_[j]] or ["no category"]
        else:
            labels = interval_labels(self.edges_[j])
        return labels + ["missing"] * bool(self.missing_[j])

    def index_of(self, column: int | str, parameter: str = "column") -> int:
        """The index of a column given by name or index, or an error that names the parameter it came from."""
        self._check_fitted()
        return index_of(column, self.feature_names_in_, self.n_features_in_, parameter)

    def name_of(self, j: int) -> str:
        """The name of column j, or x{j} where the columns have no names."""
        return f"x{j}" if self.feature_names_in_ is None else self.feature_names_in_[j]

    def _check_fitted(self) -> None:
        if not hasattr(self, "n_bins_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError("This Binner is not fitted yet; call fit first")

    def _codes(self, table: Table) -> np.ndarray:
        """The codes of a table, of shape (n_features, n_rows)."""
        codes: np.ndarray = np.empty((table.n_features, table.n_rows), dtype=self._code_dtype(table))
        n_threads = resolve_n_jobs(self.n_jobs)
        if isinstance(table, SparseTable):
            self._encode_sparse(table, codes)
        progress = Progress("binning", table.n_features, self.verbose)
        for kind, start, stop in runs_of_kinds(self.is_categorical_ + 2 * self._is_excluded):
            if kind == 2:
                codes[start:stop] = 0
            elif kind == 1:
                for j in range(start, stop):
                    codes[j] = self._category_codes(table, j)
            elif not isinstance(table, SparseTable):
                offsets = self._edge_offsets[start : stop + 1]
                encode(table, start, stop, self._edges, offsets, codes[start:stop], n_threads, progress)
        return codes

    def _encode_sparse(self, table: SparseTable, codes: np.ndarray) -> None:
        zero = np.zeros((1, 1))
        for j in np.flatnonzero(~(self.is_categorical_ | self._is_excluded)).tolist():
            offsets = self._edge_offsets[j : j + 2]
            kernels().encode(zero, self._edges, offsets, codes[j : j + 1], 0, 1)
            codes[j] = codes[j, 0]
            where, values = table.entries(j)
            of_entries = np.empty((1, len(values)), dtype=codes.dtype)
            kernels().encode(values[:, None], self._edges, offsets, of_entries, 0, len(values))
            codes[j, where] = of_entries[0]

    def _category_codes(self, table: Table, j: int) -> np.ndarray:
        levels, codes = table.levels(j)
        found = Categories(self.categories_[j]).positions(levels, table.label(j))
        # The code -1 of missing values selects the last entry, the bin after the ordered ones; n_bins_ means "no bin".
        look_up = [self.n_bins_[j] if k == UNSEEN else k for k in found] + [n_ordered_of(self.categories_[j])]
        return np.array(look_up, dtype=np.int64)[codes]

    def _code_dtype(self, table: Table) -> type:
        """uint8 if all codes fit. With 256 bins they do, unless an entry has no bin and so the code 256."""
        most = self.n_bins_.max()
        if most != 256:
            return np.uint8 if most < 256 else np.uint16
        for j in np.flatnonzero(self.n_bins_ == 256).tolist():
            if self.is_categorical_[j]:
                no_bin = self._category_codes(table, j).max() == 256
            else:
                no_bin = not self.missing_[j] and table.has_missing(j, j + 1)[0]
            if no_bin:
                return np.uint16
        return np.uint8


class RaggedArrays(Sequence):
    """A sequence of arrays that are slices of one flat array."""

    def __init__(self, flat: np.ndarray, offsets: np.ndarray):
        self._flat = flat
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, j):
        if isinstance(j, slice):
            return [self[k] for k in range(*j.indices(len(self)))]
        j = range(len(self))[j]
        return self._flat[self._offsets[j] : self._offsets[j + 1]]


class Parts:
    """The bins of the features as they are found, from the first feature to the last."""

    def __init__(self, n_features: int):
        self.n_bins = np.zeros(n_features, dtype=np.int64)
        self.missing = np.zeros(n_features, dtype=bool)
        self.categories: dict[int, tuple] = {}
        self.edges: list[np.ndarray] = []
        self.positions: list[np.ndarray] = []

    def add_categories(self, j: int, categories: tuple, missing: bool) -> None:
        self.categories[j] = categories
        self.missing[j] = missing
        self.n_bins[j] = n_ordered_of(categories) + missing
        self.positions.append(np.arange(self.n_bins[j], dtype=np.float64))

    def add_unread(self, start: int, stop: int) -> None:
        """Add features that are not read: one bin each."""
        self.n_bins[start:stop] = 1
        self.positions.append(np.zeros(stop - start))

    def add_numbers(self, start: int, edges, positions, n_ordered, missing) -> None:
        """Add features from `start` on: row by row n_ordered positions and one edge fewer; what follows is padding."""
        n_ordered = np.asarray(n_ordered)
        here = slice(start, start + len(n_ordered))
        self.n_bins[here] = n_ordered + missing
        self.missing[here] = missing
        self.edges.append(flat_edges(edges, positions, n_ordered)[0])
        # The bin of missing values repeats the position before it, so that positions never decrease.
        columns = np.minimum(np.arange(positions.shape[1] + 1), n_ordered[:, None] - 1)
        padded = np.take_along_axis(positions, columns, axis=1)
        self.positions.append(padded[np.arange(padded.shape[1]) < self.n_bins[here][:, None]])


def n_ordered_of(categories: tuple) -> int:
    """The number of bins for the categories: one, empty, if training had nothing but missing values."""
    return max(len(categories), 1)


def joined(arrays: list[np.ndarray]) -> np.ndarray:
    """The arrays concatenated, read-only; the list is emptied."""
    joined = np.concatenate(arrays) if arrays else np.empty(0)
    arrays.clear()
    joined.flags.writeable = False
    return joined
