"""A common interface to every kind of table: NumPy arrays, pandas and polars frames, pyarrow and scipy.sparse.

A table is read by columns: numbers as float32 or float64 (a view where the data allow it, never a float copy
of the whole table), categories as integer codes with the levels they stand for. pandas, polars, pyarrow and
scipy.sparse are recognised only if the program has imported them already.

Column names are text. A name that is not text becomes its text: 7 is "7", and a tuple, as a MultiIndex has it, is its
parts with "_" between them. Columns that a frame only counts, 0, 1, 2 and so on in this order, have no names, like
those of an array.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

# Numbers that are not yet float32 or float64 are converted this many at a time.
ENTRIES_PER_BLOCK = 2**22

# Columns are sorted in blocks of ENTRIES_PER_SORT numbers, which stay in a cache from reading to last use. Of an array
# at least MIN_COLUMNS_PER_SORT are read at a time: if it is row-major, that is a cache line of each row.
ENTRIES_PER_SORT = 2**18
MIN_COLUMNS_PER_SORT = 8

# To the kernel `transpose` an empty list of rows means all rows.
ALL = np.empty(0, dtype=np.int64)


def is_frame(X: Any) -> bool:
    """Whether X is a pandas or polars frame or a pyarrow table, which are read column by column."""
    return _is_a(X, "pandas", "DataFrame") or _is_a(X, "polars", "DataFrame") or _is_arrow(X)


def _is_arrow(X: Any) -> bool:
    return _is_a(X, "pyarrow", "Table") or _is_a(X, "pyarrow", "RecordBatch")


def _is_a(X: Any, module: str, name: str) -> bool:
    """Whether X is of a class of a module that the program may have imported.

    The module may be a stub, or half imported: pyarrow imports pandas when it first needs it, in any thread. It then
    has no such class, and X is none.
    """
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(X, kind)


def open_table(X: Any, unique_names: bool = True) -> Table:
    """The table behind X, or an error that says what X must be; `unique_names` refuses two columns of one name."""
    if isinstance(X, Table):
        return X
    if _is_a(X, "pandas", "DataFrame"):
        table: Table = PandasTable(X)
    elif _is_a(X, "polars", "DataFrame"):
        table = PolarsTable(X)
    elif _is_a(X, "polars", "LazyFrame"):
        raise ValueError("X is a polars LazyFrame; it must be a DataFrame: call X.collect() first")
    elif _is_arrow(X):
        from rbr.data.arrow import ArrowTable

        table = ArrowTable(X)
    elif "scipy.sparse" in sys.modules and sys.modules["scipy.sparse"].issparse(X):
        table = SparseTable(X)
    else:
        table = ArrayTable(X)
    # The wording is scikit-learn's, whose estimator checks look for it.
    shape = f"(shape=({table.n_rows}, {table.n_features})) while a minimum of 1 is required."
    if table.n_rows == 0:
        raise ValueError(f"Found array X with 0 sample(s) {shape}")
    if table.n_features == 0:
        raise ValueError(f"Found array X with 0 feature(s) {shape}")
    if unique_names and table.names is not None and len(set(table.names)) < table.n_features:
        twice = next(name for name in table.names if table.names.count(name) > 1)
        raise ValueError(f"X has more than one column named {twice!r}; column names must differ")
    return table


class Table(ABC):
    """What a kind of table must be able to do. `names` is None if the columns have no names."""

    n_rows: int
    n_features: int
    names: tuple[str, ...] | None = None
    has_dtypes = False  # whether each column has its own dtype

    def label(self, j: int) -> str:
        """What error messages call column j."""
        return f"column {j}" if self.names is None else f"column {self.names[j]!r}"

    def check_columns(self, names: tuple[str, ...] | None, n_features: int, owner: str) -> None:
        """Raise a ValueError unless the columns are those that `owner` was fitted to."""
        if names is not None and self.names is not None and names != self.names:
            problems = []
            if absent := [name for name in names if name not in set(self.names)]:
                problems.append(f"missing {few(absent)}")
            if extra := [name for name in self.names if name not in set(names)]:
                problems.append(f"not seen in fit: {few(extra)}")
            if not problems:
                moved = [name for name, other in zip(self.names, names, strict=True) if name != other]
                problems.append(f"in another order: {few(moved)}")
            raise ValueError(f"The columns of X must be those of fit, in that order; {'; '.join(problems)}")
        if self.n_features != n_features:
            # The wording is scikit-learn's, whose estimator checks look for it.
            raise ValueError(
                f"X has {self.n_features} features, but {owner} is expecting {n_features} features as input"
            )

    def holds_categories(self, j: int) -> bool:
        """Whether the dtype of column j says that it is a category."""
        return False

    def sample(self, rows: np.ndarray | None) -> Table:
        """The table of the given rows (all if None), for `columns_to_sort`."""
        return self if rows is None else RowsOf(self, rows)

    def sort_width(self, n_rows: int) -> int:
        """The number of neighbouring columns that `columns_to_sort` should give at once."""
        return max(1, ENTRIES_PER_SORT // n_rows)

    def columns_to_sort(self, start: int, stop: int, weights: np.ndarray | None, transpose: Callable[..., None]):
        """The columns start <= j < stop as rows of an array the caller may change; their weights likewise.

        The weights are None if each value counts once. `transpose` is the kernel of that name.
        """
        numbers = self.numbers(start, stop)
        values = np.empty((stop - start, self.n_rows), dtype=numbers.dtype)
        if numbers.strides[0] > numbers.strides[1]:
            # The rows of a wide table are pages apart: it is faster to copy the needed parts side by side first.
            transpose(np.ascontiguousarray(numbers), ALL, values, 0, stop - start)
        else:
            values[:] = numbers.T
        return values, _tile_weights(weights, stop - start)

    def view_width(self) -> int:
        """The number of neighbouring columns that `numbers` gives at once without much memory."""
        return 1

    def whole(self) -> np.ndarray | None:
        """All columns as one float32 or float64 array, if that is what they are and no copy is needed."""
        return None

    def numbers(self, start: int, stop: int, rows: np.ndarray | None = None) -> np.ndarray:
        """The columns start <= j < stop (of the given rows) as float32 or float64: (n_rows, n_columns)."""
        columns = [self._column(j, rows) for j in range(start, stop)]
        if len(columns) == 1:
            return columns[0][:, None]
        return np.array(columns, dtype=np.result_type(*columns)).T

    @abstractmethod
    def _column(self, j: int, rows: np.ndarray | None) -> np.ndarray:
        """Column j (of the given rows) as float32 or float64."""

    def has_missing(self, start: int, stop: int, rows: np.ndarray | None = None) -> np.ndarray:
        """Which of the columns start <= j < stop have a missing value (in the given rows)."""
        found = np.zeros(stop - start, dtype=bool)
        width = self.view_width()
        for a in range(start, stop, width):
            b = min(a + width, stop)
            # A maximum is NaN if any number is: no mask of the size of the table is needed.
            with np.errstate(invalid="ignore"):
                suspects = a + np.flatnonzero(np.isnan(self.numbers(a, b).max(axis=0)))
            for j in suspects.tolist():
                found[j - start] = rows is None or np.isnan(self.numbers(j, j + 1, rows)).any()
        return found

    @abstractmethod
    def levels(self, j: int) -> tuple[list, np.ndarray]:
        """The distinct values of column j in the order of its categories, and the index of each row's value.

        Missing values have the index -1.
        """


class RowsOf(Table):
    """Some rows of another table, read from it on demand."""

    def __init__(self, table: Table, rows: np.ndarray):
        self.n_rows, self.n_features, self.names = len(rows), table.n_features, table.names
        self._table = table
        self._rows = rows.astype(np.int64, copy=False)

    def sort_width(self, n_rows):
        return self._table.sort_width(n_rows)

    def columns_to_sort(self, start, stop, weights, transpose):
        whole = self._table.whole()
        if whole is None or not self.n_rows:
            return super().columns_to_sort(start, stop, weights, transpose)
        values = np.empty((stop - start, self.n_rows), dtype=whole.dtype)
        transpose(whole[:, start:stop], self._rows, values, 0, stop - start)
        return values, _tile_weights(weights, stop - start)

    def numbers(self, start, stop, rows=None):
        return self._table.numbers(start, stop, self._rows if rows is None else self._rows[rows])

    def _column(self, j, rows):
        return self.numbers(j, j + 1, rows)[:, 0]

    def levels(self, j):
        levels, index = self._table.levels(j)
        return levels, index[self._rows]


class PlacedColumns(Table):
    """A table whose columns are those of another one in other places; `places` holds those that may be read."""

    def __init__(self, table: Table, names: tuple[str, ...] | None, n_features: int, places: dict[int, int]):
        self.n_rows, self.n_features, self.names = table.n_rows, n_features, names
        self._table, self._places = table, places

    def label(self, j):
        return self._table.label(self._places[j])

    def _column(self, j, rows):
        return self._table._column(self._places[j], rows)

    def levels(self, j):
        return self._table.levels(self._places[j])


class ArrayTable(Table):
    """A NumPy array, or anything that NumPy converts to one, perhaps with names for its columns."""

    def __init__(self, X, names: tuple[str, ...] | None = None):
        X = X if isinstance(X, np.ndarray) else np.asarray(X)
        if X.ndim != 2:
            raise ValueError(
                f"Expected 2D array, got {X.ndim}D array instead: X has shape {X.shape}; "
                f"it must have rows and columns. Reshape your data "
                f"with X.reshape(-1, 1) if it is one feature, X.reshape(1, -1) if it is one row."
            )
        if X.dtype.kind not in "fiubOUSTmMc":
            raise ValueError(
                f"X has dtype {X.dtype}; it must hold numbers, or text in columns named in categorical_features"
            )
        if X.dtype.kind == "c":
            raise ValueError(f"Complex data not supported: X has dtype {X.dtype}; it must hold real numbers")
        self.n_rows, self.n_features = X.shape
        self.names = names
        self._X = X

    def view_width(self) -> int:
        return self.n_features if self.whole() is not None else max(1, ENTRIES_PER_BLOCK // self.n_rows)

    def sort_width(self, n_rows):
        return max(MIN_COLUMNS_PER_SORT, super().sort_width(n_rows))

    def whole(self):
        is_view = self._X.dtype in (np.float32, np.float64) and not isinstance(self._X, np.ma.MaskedArray)
        return self._X if is_view else None

    def numbers(self, start, stop, rows=None):
        block = self._X[:, start:stop]
        block = block if rows is None else block[rows]
        if block.dtype.kind in "fiub":
            return as_floats(block)
        columns = [as_numbers(np.ma.getdata(block)[:, k], self.label(start + k)) for k in range(stop - start)]
        return mask_with_nan(np.stack(columns, axis=1), block)

    def has_missing(self, start, stop, rows=None):
        if self._X.dtype.kind in "iub" and not isinstance(self._X, np.ma.MaskedArray):
            return np.zeros(stop - start, dtype=bool)
        return super().has_missing(start, stop, rows)

    def _column(self, j, rows):
        return self.numbers(j, j + 1, rows)[:, 0]

    def levels(self, j):
        column = self._X[:, j]
        if column.dtype.kind in "fiub":
            exact = column.dtype.kind in "iub" and not isinstance(column, np.ma.MaskedArray)
            return levels_of_numbers(column if exact else as_floats(column))
        levels, codes = levels_of_objects(np.ma.getdata(column).tolist(), self.label(j))
        codes[np.ma.getmaskarray(column)] = -1
        return levels, codes


class PandasTable(Table):
    """A pandas DataFrame."""

    has_dtypes = True

    def __init__(self, X):
        self.n_rows, self.n_features = X.shape
        self.names = column_names(X.columns)
        self._X = X
        self._seen: dict[int, Any] = {}

    def _series(self, j):
        """Column j. Picking it out of the frame costs more than reading a small one, so it is done once."""
        if j not in self._seen:
            self._seen[j] = self._X.iloc[:, j]
        return self._seen[j]

    def holds_categories(self, j):
        series = self._series(j)
        # Text has the dtype "string" or "str", depending on the version of pandas, or "string[pyarrow]" with Arrow.
        if series.dtype.name == "category" or series.dtype.name.startswith(("str", "large_str")):
            return True
        return series.dtype == object and any(isinstance(value, str) for value in series)

    def _column(self, j, rows):
        series = self._series(j)
        series = series if rows is None else series.iloc[rows]
        if isinstance(series.dtype, np.dtype):
            return as_numbers(series.to_numpy(), self.label(j))
        if series.dtype.kind in "fiub":
            # The dtype of sparse columns has no itemsize.
            if series.dtype.kind == "f" and getattr(series.dtype, "itemsize", 8) == 4:
                return series.to_numpy(dtype=np.float32, na_value=np.nan)
            return series.to_numpy(dtype=np.float64, na_value=np.nan)
        dtype = getattr(series.dtype, "numpy_dtype", None)
        kind = "M" if series.dtype.name.startswith("period") else series.dtype.kind if dtype is None else dtype.kind
        refuse_dates(kind, series.dtype, self.label(j))
        return as_numbers(series.to_numpy(dtype=object), self.label(j))

    def levels(self, j):
        series = self._series(j)
        if series.dtype.name == "category":
            return series.cat.categories.tolist(), series.cat.codes.to_numpy().astype(np.int64)
        if isinstance(series.dtype, np.dtype) and series.dtype.kind in "fiub":
            return levels_of_numbers(series.to_numpy())
        try:
            codes, uniques = series.factorize()
        except TypeError as error:
            raise TypeError(f"{self.label(j)} cannot be a category: {error}") from error
        return in_order(uniques.tolist(), codes.astype(np.int64))


class PolarsTable(Table):
    """A polars DataFrame."""

    has_dtypes = True

    def __init__(self, X):
        self.n_rows, self.n_features = X.shape
        self.names = column_names(X.columns)
        self._X = X

    def holds_categories(self, j):
        polars = sys.modules["polars"]
        series = self._X.to_series(j)
        if series.dtype in (polars.String, polars.Categorical, polars.Enum):
            return True
        return series.dtype == polars.Object and any(isinstance(value, str) for value in series.to_list())

    def _column(self, j, rows):
        polars = sys.modules["polars"]
        series = self._X.to_series(j)
        series = series if rows is None else series[rows]
        if series.dtype.is_temporal():
            refuse_dates("M", series.dtype, self.label(j))
        if series.dtype == polars.Boolean or series.dtype == polars.Null:
            series = series.cast(polars.Float32)
        elif series.dtype.is_decimal():
            series = series.cast(polars.Float64)
        elif not series.dtype.is_numeric():
            objects = np.empty(len(series), dtype=object)
            objects[:] = series.to_list()
            return as_numbers(objects, self.label(j))
        return as_floats(series.to_numpy())  # where nulls have become NaN

    def levels(self, j):
        polars = sys.modules["polars"]
        series = self._X.to_series(j)
        if series.dtype == polars.Enum:
            codes = series.to_physical().cast(polars.Int64).fill_null(-1).to_numpy()
            return series.dtype.categories.to_list(), codes
        if series.dtype.is_numeric() and not series.null_count():
            return levels_of_numbers(series.to_numpy())
        return levels_of_objects(series.to_list(), self.label(j))


class SparseTable(Table):
    """A scipy.sparse matrix or array. Its zeros are values like any others."""

    def __init__(self, X):
        if X.ndim != 2:
            raise ValueError(f"Expected 2D array, got {X.ndim}D sparse array instead: X has shape {X.shape}")
        if X.dtype.kind == "c":
            raise ValueError(f"Complex data not supported: X has dtype {X.dtype}; it must hold real numbers")
        by_column = X.tocsc()
        if not by_column.has_canonical_format:
            by_column = by_column.copy() if by_column is X else by_column
            by_column.sum_duplicates()
        self.n_rows, self.n_features = X.shape
        self._X = by_column

    def sample(self, rows):
        return self if rows is None else SparseTable(self._X[rows])

    def sort_width(self, n_rows):
        return 1  # columns differ in length: the zeros of a column are one value with the weight of all of them

    def columns_to_sort(self, start, stop, weights, transpose):
        where, values = self.entries(start)
        n_zeros = self.n_rows - len(where)
        if weights is None:
            weights, zero_weight = np.ones(len(where)), float(n_zeros)
        else:
            is_zero = np.ones(self.n_rows, dtype=bool)
            is_zero[where] = False
            weights, zero_weight = weights[where], weights[is_zero].sum()
        if n_zeros:
            values, weights = np.append(values, values.dtype.type(0)), np.append(weights, zero_weight)
        return np.array(values[None]), np.array(weights[None])

    def entries(self, j: int) -> tuple[np.ndarray, np.ndarray]:
        """The stored entries of column j, as (rows, values)."""
        stored = slice(self._X.indptr[j], self._X.indptr[j + 1])
        return self._X.indices[stored], as_floats(self._X.data[stored])

    def has_missing(self, start, stop, rows=None):
        table = self.sample(rows)
        missing = np.flatnonzero(np.isnan(as_floats(table._X.data)))
        columns = np.searchsorted(table._X.indptr, missing, side="right") - 1
        return np.bincount(columns, minlength=self.n_features)[start:stop] > 0

    def _column(self, j, rows):
        where, values = self.entries(j)
        column = np.zeros(self.n_rows, dtype=values.dtype)
        column[where] = values
        return column if rows is None else column[rows]

    def levels(self, j):
        return levels_of_numbers(self._column(j, None))


def few(names: Sequence[str]) -> str:
    """The first few names, for a message."""
    shown = ", ".join(repr(name) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def column_names(columns: Iterable) -> tuple[str, ...] | None:
    """The names of columns as text, or None if they are only counted.

    >>> column_names([("income", 2020), 7, "age"])
    ('income_2020', '7', 'age')
    >>> column_names(range(3))
    """
    names = tuple(columns)
    if names == tuple(range(len(names))):
        return None
    return tuple(map(as_name, names))


def as_name(name: Any) -> str:
    """The text of a column name."""
    return "_".join(map(str, name)) if isinstance(name, tuple) else str(name)


def _tile_weights(weights: np.ndarray | None, n_columns: int) -> np.ndarray | None:
    """The weights of the rows, repeated for each column."""
    return None if weights is None else np.tile(weights, (n_columns, 1))


def as_floats(numbers: np.ndarray) -> np.ndarray:
    """Real numbers as float32 if they are float32 or fit exactly, else as float64."""
    if numbers.dtype not in (np.float32, np.float64):
        narrow = numbers.dtype.kind == "b" or numbers.dtype.itemsize <= 2
        numbers = numbers.astype(np.float32 if narrow else np.float64)
    return mask_with_nan(numbers, numbers)


def mask_with_nan(numbers: np.ndarray, masked: np.ndarray) -> np.ndarray:
    """The numbers, with NaN in the masked entries if `masked` is a masked array."""
    if isinstance(masked, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(masked), np.nan, np.ma.getdata(numbers)).astype(numbers.dtype)
    return numbers


def as_numbers(column: np.ndarray, label: str) -> np.ndarray:
    """A column of any dtype as floats, by float() where it holds objects."""
    if column.dtype.kind in "fiub":
        return as_floats(column)
    refuse_dates(column.dtype.kind, column.dtype, label)
    if column.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {label} has dtype {column.dtype}; it must hold real numbers")
    values = [np.nan if is_missing(value) else value for value in column.tolist()]
    try:
        return np.array([float(value) for value in values])
    except (TypeError, ValueError) as error:
        bad = next(value for value in values if not _is_number(value))
        if isinstance(bad, (str, bytes)):
            raise ValueError(
                f"{label} holds the text {bad!r}; it must hold numbers, or be named in categorical_features"
            ) from error
        # scikit-learn's estimator checks look for the words of float().
        raise type(error)(
            f"{label} holds {bad!r:.60} of type {type(bad).__name__}, which is no number: {error}. Convert it to "
            f"numbers first, a date for example to the days since a fixed date"
        ) from error


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def refuse_dates(kind: str, dtype: Any, label: str) -> None:
    """Raise an error for a dtype of dates, times or durations."""
    if kind in "mM":
        raise ValueError(
            f"{label} has the dtype {dtype}; dates and durations must be converted to numbers first, "
            f"such as the days since a fixed date"
        )


def is_missing(value: Any) -> bool:
    """Whether an object stands for a missing value: None, NaN, pandas.NA or NaT."""
    if isinstance(value, (float, np.floating)):
        return value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def levels_of_numbers(column: np.ndarray) -> tuple[list, np.ndarray]:
    """Levels, ascending, and codes of a column of numbers; NaN is missing."""
    levels, codes = np.unique(column, return_inverse=True)
    codes = codes.astype(np.int64)
    if levels.dtype.kind == "f":
        # np.unique sorts NaN to the end and keeps one.
        codes[np.isnan(levels)[codes]] = -1
        levels = levels[~np.isnan(levels)]
    return levels.tolist(), codes


def levels_of_objects(values: list[Hashable], label: str) -> tuple[list, np.ndarray]:
    """Levels, sorted, and codes of a column of objects."""
    index: dict[Hashable, int] = {}
    try:
        codes = [-1 if is_missing(value) else index.setdefault(value, len(index)) for value in values]
    except TypeError as error:
        raise TypeError(f"{label} cannot be a category: {error}") from error
    return in_order(list(index), np.array(codes, dtype=np.int64))


def in_order(levels: list, codes: np.ndarray) -> tuple[list, np.ndarray]:
    """The same column with its levels sorted: by value, or by type and text where values do not compare."""
    try:
        order = sorted(range(len(levels)), key=levels.__getitem__)
    except TypeError:
        order = sorted(range(len(levels)), key=lambda k: (type(levels[k]).__name__, str(levels[k])))
    rank = np.full(len(levels) + 1, -1)
    rank[order] = np.arange(len(levels))
    return [levels[k] for k in order], rank[codes]
