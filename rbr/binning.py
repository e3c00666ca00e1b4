"""Bins: from a table of numbers, categories and missing values to one small integer per entry.

A number x of feature j has the code k if edges_[j][k - 1] < x <= edges_[j][k]: its code is the number of
edges below it. Edges lie between neighbouring training values, so equal values share a bin, infinities and
values beyond the training range fall into the end bins, and a model that is a table per feature is a step
function of the feature. The edges of all features lie in one flat array: a million features cost no Python
object each.  Looks at: numpy, rbr.tables, the kernels, rbr.design.  Seen by: the estimators, rbr.model.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from rbr._backend import kernels
from rbr.checks import check_int, check_nonnegative, check_vector
from rbr.parallel import over_ranges, resolve_n_jobs
from rbr.sampling import draw_rows
from rbr.tables import ENTRIES_PER_BLOCK, ArrayTable, SparseTable, Table, few, open_table

if TYPE_CHECKING:
    from rbr.design import BinnedMatrix

DEFAULT_BINS = 255
MAX_BINS = 65535  # the codes are 16 bits, and one of them is kept for "no bin"

# How a feature is binned.
REGULAR, BINOMIAL, EDGES, CATEGORY = range(4)
METHODS = {"regular": REGULAR, "binomial": BINOMIAL}

# Up to this many rows the quantiles are those of all rows. Of more, a sample is taken: so many rows per bin,
# within the limits below. At 255 bins a bin then holds its share of the rows to within 7 % (one standard
# deviation).
MAX_EXACT_ROWS = 200_000
SAMPLE_ROWS_PER_BIN = 200
SAMPLE_ROWS = 50_000, 200_000

# Less work than this is not worth another thread.
MIN_ENTRIES_PER_THREAD = 100_000

# So many numbers and more are sorted by their digits.
MIN_ROWS_FOR_DIGITS = 1500

SECONDS_BETWEEN_REPORTS = 2.0


class Binner:
    """Cuts each feature of a table into bins, and gives the bin of each entry.

    Parameters
    ----------
    max_bins : int or dict, default 255
        The most bins of a feature, between 2 and 65535, not counting the one for missing values. A dict from
        column names or indices to ints sets it for these columns, with 255 for the others. Categories have a
        bin each.
    binning : {"regular", "binomial"} or dict, default "regular"
        "regular": bins of equal weight. A value that fills a bin alone gets it, and the other bins are shared
        over the other rows. "binomial": bin sizes drawn from a multinomial distribution, as in the paper's
        theory. A dict from columns to one of these, or to an increasing array of edges, for these columns;
        regular for the others.
    categorical_features : "from_dtype", None, or list, default "from_dtype"
        Which features are categories. "from_dtype": the columns of a frame whose dtype is category or string,
        or object with text in it. A list of column names or indices, or a mask of one bool per column, names
        them.
    random_state : int, numpy.random.Generator, numpy.random.RandomState or None, default None
        Draws the bin sizes of "binomial", and the rows the edges are taken from if there are more than
        200,000. None stands for a fixed seed.
    n_jobs : int or None, default None
        The number of threads, as in scikit-learn. The result does not depend on it.
    verbose : int, default 0
        1 says every few seconds how many columns are done.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : tuple of str or None
        The column names of the training table, if all of them are text.
    n_bins_ : array of int64, shape (n_features,)
        Bins of each feature, with the one for missing values.
    offsets_ : array of int64, shape (n_features + 1,)
        Where each feature's bins begin in a vector of all of them.
    missing_ : array of bool, shape (n_features,)
        Whether training saw missing values in a feature; its last bin is then theirs.
    is_categorical_ : array of bool, shape (n_features,)
    positions_ : array of float64, shape (n_coef,)
        The mean of the feature in each bin. Categories have their index, empty bins the middle between their
        edges, and the bin of missing values repeats the one before.
    edges_ : sequence of arrays
        The edges of each feature; empty for categories.
    categories_ : dict
        For each categorical feature, by index, its categories in the order of their bins.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.binning import Binner
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
    ):
        self.max_bins = max_bins
        self.binning = binning
        self.categorical_features = categorical_features
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __repr__(self) -> str:
        fitted = f", fitted to {self.n_features_in_} features" if hasattr(self, "n_bins_") else ""
        return f"Binner(max_bins={self.max_bins!r}, binning={self.binning!r}{fitted})"

    def fit(self, X: Any, sample_weight: Any = None) -> Binner:
        """Find the bins of each feature.

        Parameters
        ----------
        X : array, frame or sparse matrix, shape (n_rows, n_features)
        sample_weight : array of float, shape (n_rows,), optional
            A whole weight means that the row is repeated so often. Rows of weight zero do not exist.

        Returns
        -------
        Binner
            itself
        """
        self._fit(open_table(X), sample_weight, with_codes=False)
        return self

    def _fit(self, table: Table, sample_weight: Any, with_codes: bool) -> np.ndarray | None:
        """Find the bins, and with codes return those of the table too, where that saves reading it twice."""
        is_categorical = _which_categorical(self.categorical_features, table)
        max_bins = _max_bins_of(self.max_bins, table)
        methods, user_edges = _methods_of(self.binning, table, is_categorical)
        n_threads = resolve_n_jobs(self.n_jobs)
        rng = _generator(self.random_state)
        rows = _Rows(table, sample_weight, int(max_bins[~is_categorical].max(initial=2)), rng)
        # With at most 255 bins of numbers, codes are known to be bytes before the bins are.
        codes = None
        if with_codes and max_bins.max() < 256 and np.isin(methods, (REGULAR, BINOMIAL)).all():
            if not isinstance(table, SparseTable):
                codes = np.empty((table.n_features, table.n_rows), dtype=np.uint8)
        cutter = _Cutter(table, rows, max_bins, user_edges, rng, codes, n_threads, self.verbose)
        parts = _Parts(table.n_features)
        for method, start, stop in _runs(methods):
            if method == CATEGORY:
                for j in range(start, stop):
                    parts.add_categories(j, *_categories_of(table, j, rows.kept))
            else:
                for first, cut, missing in cutter.blocks(method, start, stop):
                    parts.add_numbers(first, *cut, missing)

        self.n_features_in_ = table.n_features
        self.feature_names_in_ = table.names
        self.is_categorical_ = is_categorical
        self.n_bins_ = parts.n_bins
        self.missing_ = parts.missing
        self.categories_ = parts.categories
        self.offsets_ = np.append(0, np.cumsum(parts.n_bins))
        n_edges = np.where(is_categorical, 0, parts.n_bins - parts.missing - 1)
        self._edge_offsets = np.append(0, np.cumsum(n_edges))
        self._edges = _joined(parts.edges)
        self.positions_ = _joined(parts.positions)
        return codes

    def transform(self, X: Any, sample_weight: Any = None) -> BinnedMatrix:
        """The binned matrix of a table with the columns of the training table.

        Missing values of a feature that had none in training and unknown categories have no bin: their code
        is n_bins_[j], one past the last, and they contribute zero.

        Parameters
        ----------
        X : array, frame or sparse matrix, shape (n_rows, n_features)
        sample_weight : array of float, shape (n_rows,), optional
            Weights of the rows in the shares of the bins.
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
        from rbr.design import BinnedMatrix

        if sample_weight is not None:
            sample_weight = check_nonnegative(sample_weight, codes.shape[1], "sample_weight")
        n_threads = resolve_n_jobs(self.n_jobs)
        fields = codes, self.offsets_, self.missing_, self.positions_, sample_weight, n_threads
        return BinnedMatrix._of_codes(*fields)

    def with_edges(self, edges: Mapping[int, Any], positions: Mapping[int, Any]) -> Binner:
        """The same bins with the edges of some numeric features moved, but as many as before.

        Parameters
        ----------
        edges : dict from column indices to increasing arrays
        positions : dict from the same column indices to arrays
            The mean of the feature in each bin between the moved edges.

        Examples
        --------
        >>> import numpy as np
        >>> from rbr.binning import Binner
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
            own = _check_edges(given, f"edges of {label}")
            if self.is_categorical_[j] or len(own) != len(self.edges_[j]):
                raise ValueError(
                    f"edges of {label} has {len(own)} edges; there are {len(self.edges_[j])}, and moved ones "
                    f"must be as many"
                )
            flat[self._edge_offsets[j] : self._edge_offsets[j + 1]] = own
            ordered = slice(self.offsets_[j], self.offsets_[j] + len(own) + 1)
            means[ordered] = check_vector(positions[j], len(own) + 1, f"positions of {label}")
        moved._edges, moved.positions_ = _joined([flat]), _joined([means])
        return moved

    @property
    def edges_(self) -> Sequence[np.ndarray]:
        self._check_fitted()
        return _Ragged(self._edges, self._edge_offsets)

    def bin_labels(self, feature: int | str) -> list[str]:
        """The bins of a feature in words.

        Such as "<= 23.5", "(23.5, 27.5]", "> 27.5"; the names of categories; "missing". Numbers are shortened
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
            labels = _interval_labels(self.edges_[j])
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
        codes = np.empty((table.n_features, table.n_rows), dtype=self._code_dtype(table))
        n_threads = resolve_n_jobs(self.n_jobs)
        if isinstance(table, SparseTable):
            self._encode_sparse(table, codes)
        progress = Progress("binning", table.n_features, self.verbose)
        for categorical, start, stop in _runs(self.is_categorical_):
            if categorical:
                for j in range(start, stop):
                    codes[j] = self._category_codes(table, j)
            elif not isinstance(table, SparseTable):
                offsets = self._edge_offsets[start : stop + 1]
                _encode(table, start, stop, self._edges, offsets, codes[start:stop], n_threads, progress)
        return codes

    def _encode_sparse(self, table: SparseTable, codes: np.ndarray) -> None:
        zero = np.zeros((1, 1))
        for j in np.flatnonzero(~self.is_categorical_):
            offsets = self._edge_offsets[j : j + 2]
            kernels().encode(zero, self._edges, offsets, codes[j : j + 1], 0, 1)
            codes[j] = codes[j, 0]
            where, values = table.entries(j)
            of_entries = np.empty((1, len(values)), dtype=codes.dtype)
            kernels().encode(values[:, None], self._edges, offsets, of_entries, 0, len(values))
            codes[j, where] = of_entries[0]

    def _category_codes(self, table: Table, j: int) -> np.ndarray:
        levels, codes = table.levels(j)
        index = {category: k for k, category in enumerate(self.categories_[j])}
        # The code -1 of missing values finds the last entry, the bin behind the ordered ones; n_bins_ is "no
        # bin".
        look_up = [index.get(level, self.n_bins_[j]) for level in levels] + [_n_ordered(self.categories_[j])]
        return np.array(look_up, dtype=np.int64)[codes]

    def _code_dtype(self, table: Table) -> type:
        """uint8 if all codes fit. 256 bins do, unless an entry has no bin and so the code 256."""
        most = self.n_bins_.max()
        if most != 256:
            return np.uint8 if most < 256 else np.uint16
        for j in np.flatnonzero(self.n_bins_ == 256):
            if self.is_categorical_[j]:
                no_bin = self._category_codes(table, j).max() == 256
            else:
                no_bin = not self.missing_[j] and table.has_missing(j, j + 1)[0]
            if no_bin:
                return np.uint16
        return np.uint8


class _Ragged(Sequence):
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


class _Rows:
    """Which rows a fit looks at, and their weights.

    Attributes
    ----------
    kept : the rows of positive weight, or None for all
    chosen : those of them whose quantiles are taken, or None for all; a sample if `is_sample`
    weights : weights of the chosen rows up to a factor, or None if they are all equal
    scale : how many rows of the training table a unit of these weights (or a chosen row) stands for
    """

    def __init__(self, table: Table, sample_weight: Any, max_bins: int, rng: np.random.Generator):
        weight = np.ones(1)
        n_kept, self.kept = table.n_rows, None
        if sample_weight is not None:
            weight = check_nonnegative(sample_weight, table.n_rows, "sample_weight")
            if not weight.any():
                raise ValueError("sample_weight is zero everywhere; at least one row must have a positive weight")
            if not weight.all():
                self.kept = np.flatnonzero(weight)
                n_kept = len(self.kept)
        self.chosen = self.kept
        self.is_sample = n_kept > MAX_EXACT_ROWS
        if self.is_sample:
            n_sample = int(np.clip(SAMPLE_ROWS_PER_BIN * max_bins, *SAMPLE_ROWS))
            sample = draw_rows(n_kept, n_sample, rng)
            self.chosen = sample if self.kept is None else self.kept[sample]
        self.n_chosen = table.n_rows if self.chosen is None else len(self.chosen)
        self.weights = None
        self.scale = n_kept / self.n_chosen
        if sample_weight is not None:
            chosen_weight = weight if self.chosen is None else weight[self.chosen]
            # By a power of two, which changes no digit: sums of huge weights must not overflow.
            unit = 2.0 ** (np.frexp(chosen_weight.max())[1] - 1)
            if (chosen_weight == chosen_weight[0]).all():
                n_units = self.n_chosen
            else:
                self.weights = chosen_weight / unit
                n_units = self.weights.sum()
            self.scale = (weight / unit).sum() / n_units * unit


class _Parts:
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
        self.n_bins[j] = _n_ordered(categories) + missing
        self.positions.append(np.arange(self.n_bins[j], dtype=np.float64))

    def add_numbers(self, start: int, edges, positions, n_ordered, missing) -> None:
        """Features from `start` on: a row of edges and one of positions each, filled to n_ordered."""
        n_ordered = np.asarray(n_ordered)
        here = slice(start, start + len(n_ordered))
        self.n_bins[here] = n_ordered + missing
        self.missing[here] = missing
        self.edges.append(_flat(edges, positions, n_ordered)[0])
        # The bin of missing values repeats the position before it, so that positions never decrease.
        columns = np.minimum(np.arange(positions.shape[1] + 1), n_ordered[:, None] - 1)
        padded = np.take_along_axis(positions, columns, axis=1)
        self.positions.append(padded[np.arange(padded.shape[1]) < self.n_bins[here][:, None]])


def _n_ordered(categories: tuple) -> int:
    """Bins of the categories: an empty one if training had nothing but missing values."""
    return max(len(categories), 1)


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    """The arrays in one, read-only; the list is emptied."""
    joined = np.concatenate(arrays) if arrays else np.empty(0)
    arrays.clear()
    joined.flags.writeable = False
    return joined


class _Cutter:
    """Cuts the columns of numbers of a table, block by block, on several threads.

    A block is read, sorted and cut by one thread, in a cache's worth of memory; blocks do not depend on the number of
    threads. Where all rows are looked at and codes are asked for, a block is encoded while it is there: the table is
    read once. Where a sample is looked at, they come from a second reading, which also finds the missing values.
    """

    def __init__(self, table, rows: _Rows, max_bins, user_edges, rng, codes: np.ndarray | None, n_threads, verbose):
        self.table, self.rows, self.sampled = table, rows, table.sample(rows.chosen)
        self.max_bins, self.user_edges, self.rng = max_bins, user_edges, rng
        self.codes, self.n_threads = codes, n_threads
        self.encodes_blocks = codes is not None and rows.chosen is None
        self.progress = Progress("cutting", table.n_features, verbose)
        self.encoding = Progress("binning", table.n_features, verbose)
        # Frames make no promise to be read by several threads.
        self.reading = nullcontext() if isinstance(table, ArrayTable) else threading.Lock()

    def blocks(self, method: int, start: int, stop: int) -> list[tuple]:
        """(first column, (edges, positions, n_bins), missing) of blocks that cover the columns start <= j < stop."""
        width = self.sampled.sort_width(self.rows.n_chosen)
        starts = range(start, stop, width)
        found: list[tuple] = [()] * len(starts)

        def cut_blocks(first: int, last: int) -> None:
            for block in range(first, last):
                found[block] = self._block(method, starts[block], min(starts[block] + width, stop))

        n_threads = _worthwhile_threads(self.n_threads, self.rows.n_chosen * (stop - start))
        # Random numbers are drawn in the order of the columns.
        over_ranges(cut_blocks, len(starts), 1 if method == BINOMIAL else n_threads, per_call=1)
        if self.codes is not None and not self.encodes_blocks:
            return self._encoded(start, stop, found)
        return found

    def _block(self, method: int, start: int, stop: int) -> tuple:
        with self.reading:
            values, weights = self.sampled.columns_to_sort(start, stop, self.rows.weights, kernels().transpose)
        unsorted = values.copy() if self.encodes_blocks else values
        weights = _sort_rows(values, weights)
        missing = np.isnan(values[:, -1])
        if method == EDGES:
            cut = _keep([self.user_edges[j] for j in range(start, stop)], values, weights)
        else:
            cut = self._cut(method, values, weights, self.max_bins[start:stop])
        if self.encodes_blocks:
            edges, offsets = _flat(*cut)
            kernels().encode(unsorted.T, edges, offsets, self.codes[start:stop], 0, len(unsorted.T))
        elif self.codes is None and self.rows.is_sample and not missing.all():
            with self.reading:
                missing = self.table.has_missing(start, stop, self.rows.kept)
        self.progress.add(stop - start)
        return start, cut, missing

    def _cut(self, method, values, weights, max_bins) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(edges, positions, n_bins) of sorted columns, by the kernel of the method."""
        n_features = len(values)
        # No more bins than values.
        most_bins = max(1, min(int(max_bins.max()), values.shape[1]))
        n_bins = np.empty(n_features, dtype=np.int64)
        outs = np.empty((n_features, most_bins - 1)), np.empty((n_features, most_bins)), n_bins
        if method == REGULAR:
            kernels().cut_regular(values, weights, max_bins, *outs, 0, n_features)
        else:
            cuts = _binomial_cuts(values, weights, max_bins, self.rows.scale, self.rng)
            kernels().cut_binomial(values, weights, cuts, *outs, 0, n_features)
        return outs

    def _encoded(self, start: int, stop: int, found: list[tuple]) -> list[tuple]:
        """The blocks with what the codes of all rows say about missing values; NaN has the code n_ordered."""
        flat = [_flat(*cut)[0] for _, cut, _ in found]
        n_ordered = np.concatenate([cut[2] for _, cut, _ in found])
        offsets = np.append(0, np.cumsum(n_ordered - 1))
        codes = self.codes[start:stop]
        _encode(self.table, start, stop, np.concatenate(flat), offsets, codes, self.n_threads, self.encoding)
        missing = codes.max(axis=1) == n_ordered
        if self.rows.kept is not None:
            for j in np.flatnonzero(missing):
                missing[j] = codes[j, self.rows.kept].max() == n_ordered[j]
        return [(first, cut, missing[first - start : first - start + len(cut[2])]) for first, cut, _ in found]


class Progress:
    """Says from time to time how many columns are done, if it is asked to."""

    def __init__(self, what: str, n_columns: int, verbose: int):
        self.what, self.n_columns, self.verbose = what, n_columns, verbose
        self.n_done, self.start, self.said = 0, time.perf_counter(), 0.0
        self.lock = threading.Lock()

    def add(self, n_columns: int) -> None:
        if not self.verbose:
            return
        with self.lock:
            self.n_done += n_columns
            seconds = time.perf_counter() - self.start
            if seconds - self.said >= SECONDS_BETWEEN_REPORTS or (self.said and self.n_done == self.n_columns):
                self.said = seconds
                print(f"{self.what}: {self.n_done:,} of {self.n_columns:,} columns, {seconds:.1f} s", flush=True)


def _runs(kinds: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Runs (kind, start, stop) of neighbouring features of one kind."""
    cuts = np.flatnonzero(np.diff(kinds.astype(np.int8))) + 1
    for start, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(kinds)], strict=True):
        yield int(kinds[start]), start, stop


def _worthwhile_threads(n_threads: int, n_entries: int) -> int:
    return max(1, min(n_threads, n_entries // MIN_ENTRIES_PER_THREAD))


def _flat(edges: np.ndarray, positions: np.ndarray, n_bins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The edges of some features in one vector, and where those of each begin."""
    return edges[np.arange(edges.shape[1]) < n_bins[:, None] - 1], np.append(0, np.cumsum(n_bins - 1))


def _encode(table: Table, start: int, stop: int, edges, offsets, codes, n_threads: int, progress: Progress) -> None:
    """The codes of the columns start <= j < stop of numbers; their edges begin at offsets[j - start]."""
    encode = kernels().encode
    if table.n_rows >= stop - start or table.view_width() == 1:
        # Rows are dealt out: a table kept by rows is read once, from its first to its last.
        width = table.view_width()
        for a in range(start, stop, width):
            here = slice(a - start, min(a + width, stop) - start)
            n_ranges = _worthwhile_threads(n_threads, table.n_rows * (here.stop - here.start))
            values = table.numbers(start + here.start, start + here.stop)
            over_ranges(encode, table.n_rows, n_ranges, values, edges, offsets[here.start : here.stop + 1], codes[here])
            progress.add(here.stop - here.start)
        return

    def encode_columns(first: int, last: int) -> None:
        values = table.numbers(start + first, start + last)
        encode(values, edges, offsets[first : last + 1], codes[first:last], 0, table.n_rows)
        progress.add(last - first)

    per_call = max(1, ENTRIES_PER_BLOCK // table.n_rows)
    n_ranges = _worthwhile_threads(n_threads, table.n_rows * (stop - start))
    over_ranges(encode_columns, stop - start, n_ranges, per_call=per_call)


def _sort_rows(values: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Sort each row in place, NaN last; returns the weights in the same order, without columns if all are one."""
    if weights is None:
        if values.shape[1] >= MIN_ROWS_FOR_DIGITS:
            kernels().sort_rows(values, 0, len(values))
        else:
            values.sort(axis=1)
        return np.empty((len(values), 0))
    order = np.argsort(values, axis=1, kind="stable")
    values[:] = np.take_along_axis(values, order, axis=1)
    return np.take_along_axis(weights, order, axis=1)


def _binomial_cuts(values, weights, max_bins, scale, rng):
    """Cumulated weights at which the bins of each column end: bin sizes drawn from multinomial(n, 1 / b).

    n is the number of training rows with a finite value, and the cuts are in units of `weights`.
    """
    finite = np.isfinite(values)
    finite_weight = np.where(finite, weights if weights.shape[1] else 1.0, 0.0).sum(axis=1)
    cuts = np.full((len(values), int(max_bins.max()) - 1), np.inf)
    for j, n_bins in enumerate(max_bins):
        n_rows = int(min(max(np.rint(finite_weight[j] * scale), 1.0), 2.0**53))
        sizes = rng.multinomial(n_rows, np.full(n_bins, 1.0 / n_bins))
        cuts[j, : n_bins - 1] = np.cumsum(sizes[:-1]) * (finite_weight[j] / n_rows)
    return cuts


def _keep(edges: list[np.ndarray], values: np.ndarray, weights: np.ndarray):
    """(edges, positions, n_bins) of sorted columns whose edges are given."""
    n_bins = np.array([len(own) + 1 for own in edges])
    padded = np.zeros((len(edges), n_bins.max() - 1))
    positions = np.zeros((len(edges), n_bins.max()))
    for j, own in enumerate(edges):
        padded[j, : len(own)] = own
        finite = np.isfinite(values[j])
        weight = weights[j, finite] if weights.shape[1] else np.ones(finite.sum())
        positions[j, : n_bins[j]] = _means_between(values[j, finite].astype(np.float64), weight, own)
    return padded, positions, n_bins


def _means_between(values: np.ndarray, weight: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The mean of the ascending values in each bin; of an empty one the middle of its edges, or its edge."""
    codes = np.searchsorted(edges, values, side="left")
    totals = np.bincount(codes, weight, minlength=len(edges) + 1)
    ends = np.concatenate([edges[:1], edges, edges[-1:]]) if len(edges) else np.zeros(2)
    means = 0.5 * ends[:-1] + 0.5 * ends[1:]
    filled, starts = np.unique(codes, return_index=True)
    stops = np.append(starts[1:], len(values))
    sums = np.bincount(codes, weight / totals[codes] * values, minlength=len(means))
    if len(filled):
        means[filled] = np.clip(sums[filled], values[starts], values[stops - 1])
    return means


def _categories_of(table: Table, j: int, kept: np.ndarray | None) -> tuple[tuple, bool]:
    """The categories that rows of positive weight have, in order, and whether some have none."""
    levels, codes = table.levels(j)
    codes = codes if kept is None else codes[kept]
    missing = bool((codes < 0).any())
    present = np.bincount(codes[codes >= 0], minlength=len(levels)) > 0
    categories = tuple(level for level, is_present in zip(levels, present, strict=True) if is_present)
    if len(categories) + missing > MAX_BINS:
        raise ValueError(
            f"{table.label(j)} has {len(categories)} categories; a feature must have at most {MAX_BINS - missing}"
        )
    return categories, missing


def index_of(key: Any, names: tuple[str, ...] | None, n_features: int, parameter: str) -> int:
    """The index of the column that a user names by its name or index."""
    if isinstance(key, str):
        if names is None:
            raise ValueError(f"{parameter} names the column {key!r}, but the columns of X have no names; use indices")
        if key not in names:
            raise ValueError(f"{parameter} names the column {key!r}; the columns are {few(names)}")
        return names.index(key)
    if isinstance(key, (int, np.integer)) and not isinstance(key, (bool, np.bool_)):
        if not 0 <= key < n_features:
            raise ValueError(f"{parameter} names the column {key}; indices must be between 0 and {n_features - 1}")
        return int(key)
    raise ValueError(f"{parameter} names the column {key!r}; a column must be given by its name or index")


def by_index(given: Mapping, table: Table, parameter: str) -> dict[int, Any]:
    """The dict with column indices for keys."""
    by_index: dict[int, Any] = {}
    for key, value in given.items():
        j = index_of(key, table.names, table.n_features, parameter)
        if j in by_index:
            raise ValueError(f"{parameter} names {table.label(j)} twice, by name and by index; it must do so once")
        by_index[j] = value
    return by_index


def _max_bins_of(max_bins: Any, table: Table) -> np.ndarray:
    """max_bins of each feature."""
    if not isinstance(max_bins, Mapping):
        return np.full(table.n_features, check_int(max_bins, "max_bins", 2, MAX_BINS))
    each = np.full(table.n_features, DEFAULT_BINS)
    for j, value in by_index(max_bins, table, "max_bins").items():
        each[j] = check_int(value, f"max_bins of {table.label(j)}", 2, MAX_BINS)
    return each


def _methods_of(binning: Any, table: Table, is_categorical: np.ndarray) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """How each feature is binned, and the edges of those for which the user gives them."""
    user_edges: dict[int, np.ndarray] = {}
    methods = np.full(table.n_features, REGULAR, dtype=np.int8)
    if isinstance(binning, Mapping):
        for j, value in by_index(binning, table, "binning").items():
            if isinstance(value, str):
                methods[j] = _method(value, f"binning of {table.label(j)}", ", or an increasing array of edges")
            elif is_categorical[j]:
                raise ValueError(
                    f"binning gives edges for {table.label(j)}, which is a category; only numbers have edges"
                )
            else:
                methods[j] = EDGES
                user_edges[j] = _check_edges(value, f"binning of {table.label(j)}")
    else:
        methods[:] = _method(binning, "binning", ", or a dict of columns")
    methods[is_categorical] = CATEGORY
    return methods, user_edges


def _method(value: Any, name: str, or_else: str) -> int:
    if not isinstance(value, str) or value not in METHODS:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, METHODS))}{or_else}")
    return METHODS[value]


def _check_edges(edges: Any, name: str) -> np.ndarray:
    """Edges that a user gives: finite and increasing."""
    try:
        edges = np.array(edges, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is {edges!r}; it must be a name or an increasing array of numbers") from error
    if edges.ndim != 1 or len(edges) >= MAX_BINS:
        raise ValueError(f"{name} has shape {edges.shape}; edges must be a vector of at most {MAX_BINS - 1} numbers")
    if not np.isfinite(edges).all():
        where = int(np.flatnonzero(~np.isfinite(edges))[0])
        raise ValueError(f"{name} has the edge {edges[where]} at {where}; edges must be finite (the end bins are open)")
    if (np.diff(edges) <= 0).any():
        where = int(np.flatnonzero(np.diff(edges) <= 0)[0])
        raise ValueError(f"{name} has the edges {edges[where]}, {edges[where + 1]} at {where}; edges must increase")
    return edges


def _which_categorical(given: Any, table: Table) -> np.ndarray:
    """Which features are categories."""
    is_categorical = np.zeros(table.n_features, dtype=bool)
    if given is None:
        return is_categorical
    if isinstance(given, str):
        if given != "from_dtype":
            raise ValueError(f"categorical_features is {given!r}; it must be 'from_dtype', None, or a list of columns")
        if table.has_dtypes:
            is_categorical[:] = [table.holds_categories(j) for j in range(table.n_features)]
        return is_categorical
    if not isinstance(given, Iterable):
        raise ValueError(f"categorical_features is {given!r}; it must be 'from_dtype', None, or a list of columns")
    listed = list(given)
    if listed and all(isinstance(item, (bool, np.bool_)) for item in listed):
        if len(listed) != table.n_features:
            raise ValueError(
                f"categorical_features is a mask of length {len(listed)}; "
                f"it must have one bool for each of the {table.n_features} columns"
            )
        return np.array(listed, dtype=bool)
    for item in listed:
        is_categorical[index_of(item, table.names, table.n_features, "categorical_features")] = True
    return is_categorical


def _generator(random_state: Any) -> np.random.Generator:
    """The random numbers that random_state stands for; None is a fixed seed."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31 - 1))
    if random_state is None:
        return np.random.default_rng(0)
    return np.random.default_rng(check_int(random_state, "random_state", 0))


def _interval_labels(edges: np.ndarray) -> list[str]:
    if len(edges) == 0:
        return ["any number"]
    texts = short_numbers(edges)
    inner = [f"({left}, {right}]" for left, right in zip(texts[:-1], texts[1:], strict=True)]
    return [f"<= {texts[0]}", *inner, f"> {texts[-1]}"]


def short_numbers(numbers: np.ndarray) -> list[str]:
    """Increasing numbers with so few digits that each stays within 5 % of the way to its neighbours."""
    if len(numbers) == 1:
        slack = np.abs(numbers) * 1e-6
    else:
        with np.errstate(over="ignore"):
            gaps = np.diff(numbers)
        slack = 0.05 * np.minimum(np.append(gaps, np.inf), np.insert(gaps, 0, np.inf))
    for n_digits in range(3, 18):
        rounded = [float(f"{x:.{n_digits - 1}e}") for x in numbers]
        if np.isfinite(rounded).all() and (np.abs(np.array(rounded) - numbers) <= slack).all():
            break
    return [f"{x:.{n_digits}g}" if abs(x) >= 1e16 or 0 < abs(x) < 1e-4 else _plain(x) for x in rounded]


def _plain(number: float) -> str:
    """A number without an exponent and without the ".0" of a whole one."""
    return np.format_float_positional(number + 0.0, trim="-")
