"""The binned design: a one-hot matrix that is never built.

Row i of X holds a single 1 per feature j, in column offsets[j] + codes[j, i]. So X @ f is a sum of look-ups,
X.T @ r a sum by bin and X.T @ diag(v) @ X a cross-tabulation, and an entry takes one byte instead of the 12 of a
CSR matrix. Codes are stored by feature, because each of these sums reads whole features. `BinnedMatrix.__init__` checks
once that they are in range, and the kernels rely on it. `columns` records which columns of the user's table a feature
was made from; the products do not use it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rbr._backend import kernels
from rbr._checks import check_choice, check_grids, check_int, check_nonnegative, check_offsets, check_vector
from rbr._parallel import RANGES_PER_THREAD, over_ranges
from rbr._ragged import bins_of
from rbr._sizes import TOGETHER
from rbr.data.grids import check_columns_looked_at, one_column_each

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

WEIGHTS_KINDS = ("counts", "uniform")

# Handing a range to another thread costs as much as some ten thousand look-ups.
MIN_ENTRIES_PER_THREAD = 100_000

# About a tenth of a second of work, so that no kernel call delays Ctrl-C for long.
MAX_ENTRIES_PER_CALL = 100_000_000

# Sums by bin are computed over stretches of rows and added in order. The length of a stretch is a multiple of
# ROWS_PER_STRETCH, whose values stay in a core's L2 cache; there are at most MAX_STRETCHES.
ROWS_PER_STRETCH = 1 << 16
MAX_STRETCHES = 32


class BinnedMatrix:
    """The one-hot matrix X of a binned table, stored as its codes.

    It is immutable: its arrays are read-only, and every method that changes something returns a new matrix.

    Parameters
    ----------
    codes : array of integers, shape (n_features, n_rows)
        The bin of each row, by feature, from 0. A code equal to the number of bins of its feature means that
        the row has no bin there (an unknown category, a missing value where training had none): that row
        of the feature's block is all zero. uint8 and uint16 arrays in C order are kept without a copy.
    offsets : array of integers, shape (n_features + 1,)
        Feature j has the columns offsets[j] to offsets[j + 1] - 1, one for each of its bins.
    missing : array of bool, shape (n_features,), optional
        Whether the last bin of a feature holds its missing values. By default there is no such bin.
    positions : array of float, shape (n_coef,), optional
        Where each bin lies on its feature's axis, such as the mean of the values in it. It must be finite
        except in bins of missing values.
    sample_weight : array of float, shape (n_rows,), optional
        Row weights for the shares of the bins. By default every row counts once.
    columns : array of integers, shape (n_features, n_columns_at_most), optional
        The columns of the binned table that each feature (that is, its table of values) looks at, followed by -1 where
        it looks at fewer than the widest one. By default feature j looks at column j.
    grids : array of integers, shape (n_features, 6), optional
        For a feature whose bins are the cells of a grid of two columns, row by row: the bins along both sides, whether
        each side has one more, of missing values, and whether its bins are levels without an order. Zeros for other
        features; by default there are no grids. See `rbr.data.grids.with_pairs`.
    coarse : array of integers, shape (n_coef,), optional
        For the bins of features of one column, the bin of a grid's side that each lies in. A model of a solution needs
        it for the edges of grids.

    Attributes
    ----------
    codes, offsets, missing, positions, columns, grids, coarse
        As given; codes are uint8 or uint16, columns int64.
    weights : array of float, shape (n_coef,)
        The geometry of the tables; non-negative, and with sum 1 over the bins of each feature.
    shares : array of float, shape (n_coef,)
        The share of each bin among the (weighted) rows that have a bin; uniform if none has.
    weights_kind : {"counts", "uniform"}
        "counts": the weights are the shares.
        "uniform": one over the number of bins of the feature, as in the paper.
    n_rows, n_features, n_coef : int
    n_bins : array of int, shape (n_features,)
    shape : tuple
        (n_rows, n_coef)
    nbytes : int
        Bytes held by all the arrays together.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.data.design import BinnedMatrix
    >>> B = BinnedMatrix([[0, 1, 1, 2], [1, 0, 1, 1]], offsets=[0, 3, 5])
    >>> B
    BinnedMatrix(4 rows, 2 features, 5 bins, uint8 codes, counts weights)
    >>> B.weights
    array([0.25, 0.5 , 0.25, 0.25, 0.75])
    >>> B.matvec([10.0, 20.0, 30.0, 1.0, 2.0])
    array([12., 21., 22., 32.])
    >>> B.rmatvec([1.0, 2.0, 3.0, 4.0])
    array([1., 5., 4., 2., 8.])
    >>> B.toarray()
    array([[1., 0., 0., 0., 1.],
           [0., 1., 0., 1., 0.],
           [0., 1., 0., 0., 1.],
           [0., 0., 1., 0., 1.]])
    """

    def __init__(
        self,
        codes,
        offsets,
        *,
        missing=None,
        positions=None,
        sample_weight=None,
        columns=None,
        grids=None,
        coarse=None,
    ):
        offsets = check_offsets(offsets).copy()
        codes = _check_codes(codes, np.diff(offsets))
        missing = _check_missing(missing, codes.shape[0])
        positions = _check_positions(positions, offsets, missing)
        columns = check_columns_looked_at(columns, codes.shape[0])
        grids = check_grids(grids, np.diff(offsets))
        coarse = _check_coarse(coarse, int(offsets[-1]))
        shares = _shares(codes, offsets, sample_weight)
        self._set(codes, offsets, missing, positions, columns, "counts", shares, grids=grids, coarse=coarse)

    def _set(self, codes, offsets, missing, positions, columns, weights_kind, shares, *, grids=None, coarse=None):
        self.codes = _read_only(codes)
        self.offsets = _read_only(offsets)
        self.missing = _read_only(missing)
        self.positions = None if positions is None else _read_only(positions)
        self.columns = _read_only(columns)
        self.grids = None if grids is None else _read_only(grids)
        self.coarse = None if coarse is None else _read_only(coarse)
        self.n_bins = _read_only(np.diff(offsets))
        self.weights_kind = weights_kind
        self.shares = _read_only(shares)
        uniform = weights_kind == "uniform"
        self.weights = _read_only(np.repeat(1.0 / self.n_bins, self.n_bins)) if uniform else self.shares

    @classmethod
    def _from_valid(cls, *fields, grids: np.ndarray | None = None, coarse: np.ndarray | None = None) -> BinnedMatrix:
        """A matrix of arrays that are known to be valid."""
        matrix = cls.__new__(cls)
        matrix._set(*fields, grids=grids, coarse=coarse)
        return matrix

    @classmethod
    def _of_codes(
        cls, codes, offsets, missing, positions, sample_weight, n_threads: int = 1, columns=None, grids=None
    ) -> BinnedMatrix:
        """A matrix of arrays that a Binner made and that are known to be valid: nothing is copied or checked."""
        shares = _shares(codes, offsets, sample_weight, n_threads)
        columns = one_column_each(len(codes)) if columns is None else columns
        return cls._from_valid(codes, offsets, missing, positions, columns, "counts", shares, grids=grids)

    @property
    def n_rows(self) -> int:
        return self.codes.shape[1]

    @property
    def n_features(self) -> int:
        return self.codes.shape[0]

    @property
    def n_coef(self) -> int:
        return int(self.offsets[-1])

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_rows, self.n_coef

    @property
    def nbytes(self) -> int:
        arrays = {id(a): a.nbytes for a in vars(self).values() if isinstance(a, np.ndarray)}
        return sum(arrays.values())

    def __repr__(self) -> str:
        return (
            f"BinnedMatrix({self.n_rows} rows, {self.n_features} features, {self.n_coef} bins, "
            f"{self.codes.dtype} codes, {self.weights_kind} weights)"
        )

    def columns_of(self, feature: int) -> tuple[int, ...]:
        """The columns of the binned table that a feature looks at.

        Examples
        --------
        >>> from rbr.data.design import BinnedMatrix
        >>> B = BinnedMatrix([[0, 1], [1, 0]], offsets=[0, 2, 4], columns=[[4, -1], [1, 4]])
        >>> B.columns_of(0), B.columns_of(1)
        ((4,), (1, 4))
        """
        columns = self.columns[feature]
        return tuple(columns[columns >= 0].tolist())

    def feature_of(self, columns: tuple[int, ...]) -> int:
        """The feature that looks at just these columns, in this order.

        Examples
        --------
        >>> from rbr.data.design import BinnedMatrix
        >>> BinnedMatrix([[0, 1], [1, 0]], offsets=[0, 2, 4], columns=[[4, -1], [1, 4]]).feature_of((1, 4))
        1
        """
        width = self.columns.shape[1]
        padded = [*columns, *[-1] * (width - len(columns))]
        found = np.flatnonzero((self.columns == padded).all(axis=1)) if len(padded) == width else np.zeros(0, np.int64)
        if len(found) != 1:
            n_found = "none does" if len(found) == 0 else f"{len(found)} do"
            raise ValueError(f"columns is {tuple(columns)}; one feature must look at just these, and {n_found}")
        return int(found[0])

    def with_weights(self, kind: Literal["counts", "uniform"], sample_weight=None) -> BinnedMatrix:
        """The same matrix with other weights of the bins; the codes are shared.

        Parameters
        ----------
        kind : {"counts", "uniform"}
            Which weights the new matrix shows.
        sample_weight : array of float, shape (n_rows,), optional
            Row weights from which the shares of the bins are computed again. By default the shares that this
            matrix was made with are kept, even while it shows uniform weights.

        Examples
        --------
        >>> from rbr.data.design import BinnedMatrix
        >>> B = BinnedMatrix([[0, 1, 1, 1]], offsets=[0, 2])
        >>> B.with_weights("uniform").weights
        array([0.5, 0.5])
        >>> B.with_weights("uniform").with_weights("counts").weights
        array([0.25, 0.75])
        """
        check_choice(kind, "kind", WEIGHTS_KINDS)
        shares = self.shares if sample_weight is None else _shares(self.codes, self.offsets, sample_weight)
        fields = self.codes, self.offsets, self.missing, self.positions, self.columns, kind, shares
        return self._from_valid(*fields, grids=self.grids, coarse=self.coarse)

    def __getitem__(self, rows) -> BinnedMatrix:
        """The matrix of the chosen rows: a slice, an array of row indices, or a mask.

        "counts" weights are the shares of the bins among the chosen rows, each counted once.
        """
        return self.at(rows)

    def at(self, rows, sample_weight=None, n_threads: int = 1) -> BinnedMatrix:
        """The matrix of the chosen rows, as `B[rows]`, with optional row weights for the shares of the bins."""
        if isinstance(rows, slice):
            codes = np.ascontiguousarray(self.codes[:, rows])
        else:
            rows = _check_rows(rows, self.n_rows)
            codes = np.empty((self.n_features, len(rows)), dtype=self.codes.dtype)

            def take(first: int, last: int) -> None:
                np.take(self.codes[first:last], rows, axis=1, out=codes[first:last], mode="clip")

            _deal(take, self.n_features, n_threads, codes.size)
        shares = _shares(codes, self.offsets, sample_weight, n_threads)
        kept = self.offsets, self.missing, self.positions, self.columns, self.weights_kind
        return self._from_valid(codes, *kept, shares, grids=self.grids, coarse=self.coarse)

    def recoded(self, codes: np.ndarray, positions: np.ndarray | None, shares: np.ndarray) -> BinnedMatrix:
        """The same rows with other bins, as many as before; nothing is copied or checked."""
        fields = self.offsets, self.missing, positions, self.columns, self.weights_kind, shares
        return self._from_valid(codes, *fields, grids=self.grids, coarse=self.coarse)

    def matvec(self, f, features=None, n_threads: int = 1, out: np.ndarray | None = None) -> np.ndarray:
        """X @ f: for each row, the sum over the features of the table entry of its bin.

        Parameters
        ----------
        f : array of float, shape (n_coef,) or (n_coef, n_classes)
            The stacked tables.
        features : array of int, optional
            Sum over these features only; one that is listed twice counts twice.
        n_threads : int
            The result has the same bits for any number of threads.
        out : array of float, optional
            Written and returned: what an earlier call with the same shapes has returned.

        Returns
        -------
        array of float, shape (n_rows,) or (n_rows, n_classes)
        """
        columns, is_vector = _check_columns(f, self.n_coef, "f")
        features = self._check_features(features)
        by_output = np.empty((len(columns), self.n_rows)) if out is None else np.atleast_2d(out.T)
        kernel = kernels().matvec if is_vector else kernels().matvec_outputs
        tables, row_sums = (columns[0], by_output[0]) if is_vector else (columns, by_output)
        n_entries = by_output.size * len(features)
        _deal(kernel, self.n_rows, n_threads, n_entries, self.codes, self.offsets, tables, features, row_sums)
        return row_sums.T

    def rmatvec(self, values, features=None, n_threads: int = 1) -> np.ndarray:
        """X.T @ values: for each bin of each feature, the sum of values over its rows.

        Parameters
        ----------
        values : array of float, shape (n_rows,) or (n_rows, n_classes)
            A NaN makes the sums of its own bins NaN, and no others.
        features : array of int, optional
            Compute these features only and leave zero elsewhere; one that is listed twice counts twice.
        n_threads : int
            The result has the same bits for any number of threads.

        Returns
        -------
        array of float, shape (n_coef,) or (n_coef, n_classes)
        """
        columns, is_vector = _check_columns(values, self.n_rows, "values")
        features = self._check_features(features)
        # Only one thread may write the sums of a feature, so each feature is passed to the kernel once.
        distinct, times = np.unique(features, return_counts=True)
        out = np.zeros((len(columns), self.n_coef))
        values, bin_sums = (columns[0], out[0]) if is_vector else (columns, out)
        _sum_by_bin(self.codes, self.offsets, distinct, values, bin_sums, n_threads)
        for j, n_times in zip(distinct[times > 1], times[times > 1], strict=True):
            out[:, self.offsets[j] : self.offsets[j + 1]] *= n_times
        return out[0] if is_vector else out.T

    def add_one(self, feature: np.ndarray, f: np.ndarray, out: np.ndarray) -> None:
        """out += X @ f over one feature, in a vector of one index, unchecked: for tables that are visited often."""
        if out.ndim == 1:
            row_sums = np.empty(len(out))
            kernels().matvec(self.codes, self.offsets, f, feature, row_sums, 0, len(out))
            out += row_sums
        else:
            row_sums = np.empty(out.T.shape)
            kernels().matvec_outputs(self.codes, self.offsets, f.T, feature, row_sums, 0, len(out))
            out += row_sums.T

    def sum_one(self, feature: np.ndarray, values: np.ndarray, out: np.ndarray) -> None:
        """out += X.T @ values over a single feature, unchecked; see `add_one`."""
        _sum_by_bin(self.codes, self.offsets, feature, values.T, out.T, 1)

    def gram(self, features=None, row_weights=None, n_threads: int = 1) -> np.ndarray:
        """X_S.T @ diag(row_weights) @ X_S: the weighted cross-tabulation of the chosen features S.

        Parameters
        ----------
        features : array of int, optional
            The chosen features, by default all. The result has as many rows and columns as they have bins.
        row_weights : array of float, shape (n_rows,), optional
            By default every row counts once.
        n_threads : int
            The result has the same bits for any number of threads.

        Returns
        -------
        array of float, shape (m, m)
            With m the number of bins of the chosen features, in the order of the list.

        Examples
        --------
        >>> from rbr.data.design import BinnedMatrix
        >>> B = BinnedMatrix([[0, 1, 1, 2], [1, 0, 1, 1]], offsets=[0, 3, 5])
        >>> B.gram()
        array([[1., 0., 0., 0., 1.],
               [0., 2., 0., 1., 1.],
               [0., 0., 1., 0., 1.],
               [0., 1., 0., 1., 0.],
               [1., 1., 1., 0., 3.]])
        """
        features = self._check_features(features)
        if row_weights is None:
            row_weights = np.ones(self.n_rows)
        else:
            row_weights = check_vector(row_weights, self.n_rows, "row_weights", finite=False)
        out_offsets = np.append(0, np.cumsum(self.n_bins[features]))
        out = np.empty((out_offsets[-1], out_offsets[-1]))
        n_pairs = len(features) * (len(features) + 1) // 2
        _deal(
            kernels().gram,
            n_pairs,
            n_threads,
            n_pairs * self.n_rows,
            *(self.codes, self.offsets, features, row_weights, out_offsets, out),
        )
        return out

    def tocsr(self, scaled: bool = True) -> csr_matrix:
        """X as a scipy CSR matrix of shape (n_rows, n_coef).

        Parameters
        ----------
        scaled : bool
            Whether the entries are sqrt(b_j / n), b_j the bins of the feature and n the rows, as in the
            paper's X_bin, or 1.
        """
        from scipy.sparse import csr_matrix

        index_dtype = np.int32 if max(self.n_coef, self.codes.size) <= np.iinfo(np.int32).max else np.int64
        has_bin = (self.codes < self.n_bins[:, None]).T
        columns = (self.codes + self.offsets[:-1, None].astype(index_dtype)).T[has_bin]
        row_ends = np.cumsum(has_bin.sum(axis=1), dtype=index_dtype)
        entry_of_feature = np.sqrt(self.n_bins / max(self.n_rows, 1)) if scaled else np.ones(self.n_features)
        entries = np.broadcast_to(entry_of_feature, has_bin.shape)[has_bin]
        return csr_matrix((entries, columns, np.append(index_dtype(0), row_ends)), shape=self.shape)

    def toarray(self, scaled: bool = False) -> np.ndarray:
        """X as a dense array of shape (n_rows, n_coef); see `tocsr`."""
        return self.tocsr(scaled=scaled).toarray()

    def _check_features(self, features) -> np.ndarray:
        if features is None:
            return np.arange(self.n_features, dtype=np.int64)
        given = np.asarray(features)
        if given.size == 0 and given.ndim == 1:
            return np.empty(0, dtype=np.int64)
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise ValueError(
                f"features has shape {given.shape} and dtype {given.dtype}; it must be a vector of integers"
            )
        outside = (given < 0) | (given >= self.n_features)
        if outside.any():
            raise ValueError(
                f"features holds {given[outside][0]}; it must hold indices from 0 to {self.n_features - 1}"
            )
        return np.ascontiguousarray(given, dtype=np.int64)


def _deal(kernel: Callable[..., None], n_items: int, n_threads: int, n_entries: int, *args: Any) -> None:
    """Run a kernel on ranges of its items."""
    per_call = max(1, n_items * MAX_ENTRIES_PER_CALL // max(n_entries, 1))
    over_ranges(kernel, n_items, _worth(n_threads, n_entries), *args, per_call=per_call)


def _worth(n_threads: int, n_entries: int) -> int:
    """The number of threads to use: at most n_threads, and no more than the work is worth."""
    return min(check_int(n_threads, "n_threads", 1), 1 + n_entries // MIN_ENTRIES_PER_THREAD)


def _sum_by_bin(codes, offsets, features: np.ndarray, values: np.ndarray, out: np.ndarray, n_threads: int) -> None:
    """Add to `out`, for each bin of each listed feature, the sum of values over its rows, for one output or several.

    Each thread works on stretches of rows, for all features or, where there are few stretches, for some of them.
    """
    n_rows, n_listed = codes.shape[1], len(features)
    kernel = kernels().rmatvec if values.ndim == 1 else kernels().rmatvec_outputs
    if n_threads == 1 and n_rows <= ROWS_PER_STRETCH:
        kernel(codes, offsets, features, values, 0, n_rows, out, 0, n_listed)
        return
    length = ROWS_PER_STRETCH * max(1, -(-n_rows // (ROWS_PER_STRETCH * MAX_STRETCHES)))
    starts = range(0, n_rows, length)
    sums = out[None] if len(starts) <= 1 else np.zeros((len(starts), *out.shape))
    n_threads = _worth(n_threads, n_listed * values.size)
    n_parts = 1 if n_threads == 1 else -(-RANGES_PER_THREAD * n_threads // max(len(starts), 1))
    width = TOGETHER * max(1, -(-n_listed // (TOGETHER * n_parts)))
    firsts = range(0, n_listed, min(width, max(1, MAX_ENTRIES_PER_CALL // max(min(length, n_rows), 1))))

    def sum_parts(first: int, last: int) -> None:
        for part in range(first, last):
            stretch, group = divmod(part, len(firsts))
            start, feature = starts[stretch], firsts[group]
            kernel(
                *(codes, offsets, features, values, start, min(start + length, n_rows), sums[stretch]),
                *(feature, min(feature + firsts.step, n_listed)),
            )

    _deal(sum_parts, len(starts) * len(firsts), n_threads, n_listed * values.size)
    if len(starts) > 1:
        bins = bins_of(features, offsets)
        out[..., bins] += sums[..., bins].sum(axis=0)


def _shares(codes: np.ndarray, offsets: np.ndarray, sample_weight, n_threads: int = 1) -> np.ndarray:
    """For each feature, the share of each bin among the weighted rows that have one; uniform where none has."""
    n_features, n_rows = codes.shape
    sums = np.zeros(offsets[-1])
    if sample_weight is None:
        _deal(kernels().bin_counts, n_features, n_threads, codes.size, codes, offsets, sums)
    else:
        row_weights = check_nonnegative(sample_weight, n_rows, "sample_weight")
        # Scaling does not change the shares; without it sums of huge weights overflow and tiny ones underflow.
        _, exponent = np.frexp(row_weights.max(initial=0.0))
        row_weights = np.ldexp(row_weights, -exponent)
        all_features = np.arange(n_features, dtype=np.int64)
        _sum_by_bin(codes, offsets, all_features, row_weights, sums, n_threads)
    n_bins = np.diff(offsets)
    totals = np.add.reduceat(sums, offsets[:-1]) if n_features else np.empty(0)
    has_rows = totals > 0
    shares = sums / np.repeat(np.where(has_rows, totals, 1.0), n_bins)
    if not has_rows.all():
        uniform = np.repeat(1.0 / n_bins, n_bins)
        shares = np.where(np.repeat(has_rows, n_bins), shares, uniform)
    return shares


def _check_codes(codes, n_bins: np.ndarray) -> np.ndarray:
    """`codes` as uint8 or uint16 in C order, each at most the number of bins of its feature."""
    given = np.asarray(codes)
    if given.ndim != 2:
        raise ValueError(f"codes has shape {given.shape}; it must have two axes, (n_features, n_rows)")
    if given.shape[0] != len(n_bins):
        raise ValueError(
            f"codes has {given.shape[0]} rows, one per feature, but offsets has length {len(n_bins) + 1}; "
            f"offsets must have one entry more than codes has features"
        )
    if given.dtype.kind not in "iu" and given.size:
        raise TypeError(f"codes has dtype {given.dtype}; it must hold integers")
    if given.size:
        highest = given.max(axis=1)
        lowest = given.min(axis=1) if given.dtype.kind == "i" else np.zeros_like(highest)
        outside = (highest > n_bins) | (lowest < 0)
        if outside.any():
            j = int(np.flatnonzero(outside)[0])
            value = lowest[j] if lowest[j] < 0 else highest[j]
            raise ValueError(
                f"codes of feature {j} hold {value}; it has {n_bins[j]} bins, so its codes must lie "
                f"between 0 and {n_bins[j] - 1}, or be {n_bins[j]} for a row without a bin"
            )
        if highest.max() > np.iinfo(np.uint16).max:
            j = int(highest.argmax())
            raise ValueError(f"codes of feature {j} hold {highest[j]}; codes must be at most {np.iinfo(np.uint16).max}")
    if given.dtype not in (np.uint8, np.uint16):
        given = given.astype(np.uint8 if given.max(initial=0) <= np.iinfo(np.uint8).max else np.uint16)
    return np.ascontiguousarray(given)


def _check_coarse(coarse, n_coef: int) -> np.ndarray | None:
    if coarse is None:
        return None
    given = np.asarray(coarse)
    if given.shape != (n_coef,) or given.dtype.kind not in "iu" or (given < 0).any():
        raise ValueError(
            f"coarse has shape {given.shape} and dtype {given.dtype}; it must hold an integer of at least 0 for each "
            f"of the {n_coef} bins"
        )
    return given.astype(np.int64)


def _check_missing(missing, n_features: int) -> np.ndarray:
    if missing is None:
        return np.zeros(n_features, dtype=bool)
    given = np.asarray(missing)
    if given.shape != (n_features,) or (given.dtype != bool and given.size):
        raise ValueError(
            f"missing has shape {given.shape} and dtype {given.dtype}; "
            f"it must hold one bool for each of the {n_features} features"
        )
    return given.astype(bool)


def _check_positions(positions, offsets: np.ndarray, missing: np.ndarray) -> np.ndarray | None:
    if positions is None:
        return None
    positions = check_vector(positions, int(offsets[-1]), "positions", finite=False).copy()
    ordered = np.ones(len(positions), dtype=bool)
    ordered[offsets[1:][missing] - 1] = False
    bad = ordered & ~np.isfinite(positions)
    if bad.any():
        where = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"positions[{where}] is {positions[where]}; "
            f"all of positions must be finite except in bins of missing values"
        )
    return positions


def _check_rows(rows, n_rows: int) -> np.ndarray:
    """Row indices from 0, given a mask or indices that may count from the end."""
    given = np.asarray(rows)
    if given.size == 0 and given.ndim == 1 and given.dtype != bool:
        return given.astype(np.int64)
    if given.ndim != 1 or given.dtype.kind not in "iub":
        raise IndexError(
            f"rows has shape {given.shape} and dtype {given.dtype}; "
            f"it must be a slice, a vector of row indices, or a vector of bool"
        )
    if given.dtype == bool:
        if len(given) != n_rows:
            raise IndexError(f"rows is a mask of length {len(given)}; it must be as long as there are rows, {n_rows}")
        return np.flatnonzero(given)
    outside = (given < -n_rows) | (given >= n_rows)
    if outside.any():
        raise IndexError(f"rows holds {given[outside][0]}; it must hold indices of the {n_rows} rows")
    given = given.astype(np.intp, copy=False)
    return np.where(given < 0, given + n_rows, given) if (given < 0).any() else given


def _check_columns(values, length: int, name: str) -> tuple[np.ndarray, bool]:
    """The columns of a matrix, or a vector as one column, as contiguous rows; and whether it was a vector."""
    given = np.asarray(values, dtype=np.float64)
    if given.ndim not in (1, 2) or given.shape[0] != length:
        raise ValueError(f"{name} has shape {given.shape}; it must be ({length},) or ({length}, n_classes)")
    return np.ascontiguousarray(np.atleast_2d(given.T)), given.ndim == 1


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view
