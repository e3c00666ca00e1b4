"""Training where the data live: a fit from sums that a database computes.

With squared error the rows enter a fit only through sums by bin and by pairs of bins (`rbr.objective.gram`), which are
GROUP BY queries. `fit` asks the database for the distribution of each column, cuts it into bins, asks for the sums, and
runs the ordinary solver on them. No row leaves the database, and nothing is written to it.

What needs the values within bins or the rows themselves is left out: jumps lie at the edges of bins, lines are those of
the bins' means, and there are no pairs and no averages over ways to cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rbr._options import DEFAULTS
from rbr._parallel import one_blas_thread, resolve_n_jobs
from rbr.data.binning import Binner
from rbr.data.choices import which_excluded
from rbr.data.cutting import MAX_EXACT_ROWS
from rbr.data.design import BinnedMatrix
from rbr.data.levels import Categories
from rbr.data.sketches import LevelCounts, ShownColumns
from rbr.estimators import RBRRegressor
from rbr.estimators.base import all_or_nothing
from rbr.estimators.inputs import Columns, Training
from rbr.losses import get_loss
from rbr.model.sql import DIALECTS, Dialect, parts_of_table
from rbr.objective.gram import GramObjective, GramSums
from rbr.objective.protocol import Handle, Point, Tables

# The cross-tabulation of all bins may take this much memory.
MAX_GRAM_BYTES = 2 << 30

# A column of more than MAX_EXACT_ROWS distinct values is told by this many evenly spaced ones.
N_QUANTILES = 1 << 15

DIALECT_OF_MODULE = {"sqlite3": "sqlite", "duckdb": "duckdb", "_duckdb": "duckdb", "psycopg": "postgres"}


def fit(
    connection: Any,
    table: str | Sequence[str],
    *,
    target: str,
    columns: Sequence[str] | None = None,
    sample_weight: str | None = None,
    where: str | None = None,
    estimator: RBRRegressor | None = None,
    dialect: str | None = None,
    **parameters: Any,
) -> RBRRegressor:
    """Fit a regressor with squared error to a table in a database, from GROUP BY sums alone.

    Parameters
    ----------
    connection : sqlite3, duckdb or psycopg connection
        It is only read from.
    table : str, or sequence such as ("schema", "table")
    target : str
        The column to predict; a number in every row.
    columns : list of str, optional
        The columns to predict it from; by default all others. Text is a category, NULL and NaN are missing.
    sample_weight : str, optional
        A column with weights; rows of weight zero are left out.
    where : str, optional
        A condition in SQL: only rows for which it holds.
    estimator : RBRRegressor, optional
        Fitted and returned. `binning` may give edges; otherwise they are quantiles, exact for columns of up to 200,000
        distinct values, and with a rank error of at most 1 / 32768 beyond.
    dialect : {"sqlite", "duckdb", "postgres"}, optional
        By default that of the connection.
    **parameters
        Of the regressor, if there is no estimator.

    Returns
    -------
    RBRRegressor
        Fitted; it predicts in Python, and ``model_.to_sql(table)`` in the database.

    Notes
    -----
    p columns take p (p + 1) / 2 queries, and 8 (p max_bins)^2 bytes: with many columns choose fewer bins.

    Examples
    --------
    >>> import sqlite3
    >>> import rbr
    >>> connection = sqlite3.connect(":memory:")
    >>> _ = connection.execute("CREATE TABLE houses (rooms REAL, town TEXT, price REAL)")
    >>> noise = [(37 * k % 101) / 101 for k in range(600)]
    >>> rows = [(k % 7, "north" if k % 3 else "south", 2.0 * (k % 7 > 3) + (k % 3 == 0) + noise[k]) for k in range(600)]
    >>> _ = connection.executemany("INSERT INTO houses VALUES (?, ?, ?)", rows)
    >>> m = rbr.sql.fit(connection, "houses", target="price", shape="constant")
    >>> [(term.name, len(term.pieces)) for term in m.terms_]
    [('rooms', 2), ('town', 2)]
    """
    if estimator is None:
        estimator = RBRRegressor(**parameters)
    elif parameters:
        raise TypeError(f"estimator has its own parameters; set {', '.join(parameters)} there")
    _check(estimator)
    query = _Query.of(connection, table, target, columns, sample_weight, where, dialect)
    return _fit(estimator, query)


def _check(estimator: RBRRegressor) -> None:
    if not isinstance(estimator, RBRRegressor):
        raise TypeError(f"estimator is a {type(estimator).__name__}; it must be an RBRRegressor")
    estimator._check_parameters()
    refused = {
        "loss": get_loss(estimator.loss).name != "squared_error",
        "interactions": isinstance(estimator.interactions, (list, tuple)) or estimator.interactions != 0,
        "n_bags": estimator.n_bags not in ("auto", 0),
        "warm_start": bool(estimator.warm_start),
    }
    for name, is_refused in refused.items():
        if is_refused:
            allowed = {"loss": "'squared_error'", "interactions": "0", "n_bags": "'auto' or 0", "warm_start": "False"}
            raise ValueError(f"{name} is {getattr(estimator, name)!r}; in a database it must be {allowed[name]}")


@all_or_nothing
@one_blas_thread()
def _fit(estimator: RBRRegressor, query: _Query) -> RBRRegressor:
    X = Columns(tuple(query.columns), len(query.columns))
    limits = estimator._limits(X)
    totals = query.totals()
    binner = _binner(estimator._binner(), query)
    constraints = estimator._constraints(X, binner, *limits)
    sums = _sums(query, binner, totals)
    estimator.n_features_in_ = len(query.columns)
    estimator.feature_names_in_ = np.array(query.columns, dtype=object)
    objective = _SQLObjective(sums, _tables(binner, sums, estimator.weights), totals.n_rows, estimator.n_jobs)
    training = Training(X, None, query.target, binner, constraints, None, None, np.empty(0))
    estimator._fit_objective(objective, training)
    estimator._had_offset = False
    return estimator


class _SQLObjective(GramObjective):
    """Squared error from sums, which saves steps only where there are many rows, as a fit to rows does.

    The last refit, which may draw lines within bins, finds none to draw here.
    """

    def __init__(self, sums: GramSums, tables: Tables, n_rows: int, n_jobs: int | None):
        loss, n_threads = get_loss("squared_error"), resolve_n_jobs(n_jobs)
        super().__init__(sums, tables, loss, n_total=sums.weight, n_threads=n_threads)
        self.has_many_rows = n_rows > DEFAULTS.many_rows  # type: ignore[misc]
        self.has_constant_target = self.constant_loss == 0.0  # type: ignore[misc]

    def distances(self, tables: np.ndarray, positions: np.ndarray) -> Handle:  # type: ignore[override]
        return Handle() if not len(tables) else super().distances(tables, positions)

    def line_point(self, f, support, slopes, lines, start=None) -> Point:  # type: ignore[override]
        return self.point(f, support, start)

    def line_gradient(self, point: Point, lines: Handle) -> np.ndarray:  # type: ignore[override]
        out = np.zeros((self.tables.n_coef, 2))
        out[:, 0] = self.tables.weights * self.gradient(point, point.support)
        return out


@dataclass(frozen=True)
class Totals:
    """Sums over all rows: their number, weight, and the mean of the target."""

    n_rows: int
    weight: float
    mean: float


@dataclass(frozen=True, eq=False)
class _Query:
    """A table, and how its database is asked."""

    connection: Any
    source: str
    target: str
    columns: list[str]
    sample_weight: str | None
    dialect: str
    quote: Dialect

    @classmethod
    def of(cls, connection, table, target, columns, sample_weight, where, dialect) -> _Query:
        module = type(connection).__module__.split(".")[0]
        dialect = DIALECT_OF_MODULE.get(module) if dialect is None else dialect
        if dialect not in ("sqlite", "duckdb", "postgres"):
            raise ValueError(
                f"connection is a {type(connection).__module__}.{type(connection).__name__}; give the dialect: "
                f"'sqlite', 'duckdb' or 'postgres'"
            )
        quote = DIALECTS[dialect]
        name = ".".join(map(quote.name, parts_of_table(table)))
        # Read as a subquery, so that a quoted name that is no column is an error in SQLite too.
        condition = "" if where is None else f" WHERE ({where})"
        source = f"(SELECT * FROM {name}{condition}) AS rbr_rows"
        cursor = connection.execute(f"SELECT * FROM {source} LIMIT 0")
        present = [column[0] for column in cursor.description]
        aside = [target] + ([] if sample_weight is None else [sample_weight])
        columns = [name for name in present if name not in aside] if columns is None else list(columns)
        absent = [name for name in [*columns, *aside] if name not in present]
        if absent:
            raise ValueError(f"the table {table!r} has no column {absent[0]!r}; its columns are {present}")
        if not columns or set(columns) & set(aside):
            raise ValueError(f"columns is {columns}; it must name other columns than {aside}")
        return cls(connection, source, target, columns, sample_weight, dialect, quote)

    def rows(self, select: str, rest: str = "") -> list[tuple]:
        """The rows of a query over those of positive weight."""
        kept = "" if self.sample_weight is None else f" WHERE {self.number(self.sample_weight)} > 0"
        return self.connection.execute(f"SELECT {select} FROM {self.source}{kept} {rest}").fetchall()

    def column(self, name: str) -> str:
        return f"rbr_rows.{self.quote.name(name)}"

    def number(self, name: str) -> str:
        kind = "REAL" if self.dialect == "sqlite" else "DOUBLE PRECISION"
        return f"CAST({self.column(name)} AS {kind})"

    def is_missing(self, name: str) -> str:
        """Whether a column of numbers has no value; NaN is greater than all numbers, and equal to itself."""
        is_null = f"{self.column(name)} IS NULL"
        return is_null if self.quote.is_nan is None else f"({is_null} OR {self.quote.is_nan(self.number(name))})"

    @property
    def weight(self) -> str:
        """The sum of the weights of rows."""
        return "COUNT(*)" if self.sample_weight is None else f"SUM({self.number(self.sample_weight)})"

    def weighted(self, value: str) -> str:
        """The weighted sum of a value."""
        return f"SUM({value})" if self.sample_weight is None else f"SUM({self.number(self.sample_weight)} * {value})"

    def shifted_target(self, origin: float) -> str:
        return f"({self.number(self.target)} - ({self.quote.literal(origin)}))"

    def totals(self) -> Totals:
        """Sums over all rows, after a look at what would spoil them."""
        if self.sample_weight is not None:
            own = self.number(self.sample_weight)
            bad = f"SELECT COUNT(*) FROM {self.source} WHERE {self.is_missing(self.sample_weight)} OR {own} < 0"
            self._refuse(self.connection.execute(bad).fetchall()[0][0], self.sample_weight, "not be missing or below 0")
        self._refuse(
            self.rows(f"SUM(CASE WHEN {self.is_missing(self.target)} THEN 1 ELSE 0 END)")[0][0],
            self.target,
            "be a number, since it is the target",
        )
        self._refuse_text(self.target)
        n_rows, weight, total = self.rows(f"COUNT(*), {self.weight}, {self.weighted(self.number(self.target))}")[0]
        if not n_rows:
            raise ValueError("the table has no rows of positive weight; at least one is needed")
        return Totals(int(n_rows), float(weight), float(total) / float(weight))

    def _refuse(self, n_bad: int | None, name: str, rule: str) -> None:
        if n_bad:
            raise ValueError(f"{int(n_bad)} rows of column {name!r} are bad; it must {rule}")

    def _refuse_text(self, name: str) -> None:
        """SQLite casts text to 0 in silence."""
        if self.dialect == "sqlite":
            kind = f"SUM(CASE WHEN typeof({self.column(name)}) IN ('text', 'blob') THEN 1 ELSE 0 END)"
            self._refuse(self.rows(kind)[0][0], name, "hold numbers, and holds text")

    def is_text(self, name: str) -> bool:
        """Whether a column holds text: what its first value is."""
        kept = f"{'WHERE' if self.sample_weight is None else 'AND'} {self.column(name)} IS NOT NULL"
        found = self.rows(self.column(name), f"{kept} LIMIT 1")
        if found and not isinstance(found[0][0], (str, bool, int, float)) and not hasattr(found[0][0], "as_tuple"):
            kind = type(found[0][0]).__name__
            raise ValueError(f"column {name!r} holds values of type {kind}; it must hold numbers or text")
        return bool(found) and isinstance(found[0][0], str)


@dataclass(frozen=True, eq=False)
class _Distribution:
    """The values of a column, ascending, with the weight of each, and whether any row has none."""

    ascending: np.ndarray
    weights: np.ndarray
    has_missing: bool

    def values(self) -> np.ndarray:
        return np.append(self.ascending, np.nan) if self.has_missing or not len(self.ascending) else self.ascending


class _Distributions(ShownColumns):
    """Columns whose values have weights of their own."""

    def sort_width(self, n_rows):
        return 1

    def columns_to_sort(self, start, stop, weights, transpose):
        values, own = self._columns[start].values(), self._columns[start].weights
        return np.array(values[None]), np.append(own, np.ones(len(values) - len(own)))[None]


def _binner(binner: Binner, query: _Query) -> Binner:
    """The binner, fitted to the distributions of the columns."""
    columns = Columns(tuple(query.columns), len(query.columns))
    excluded = which_excluded(binner.exclude, columns)  # type: ignore[arg-type]
    by_level = _categories(binner, query, columns)
    shown = [
        None if out else _level_counts(query, name) if name in by_level else _numbers(query, name)
        for name, out in zip(query.columns, excluded, strict=True)
    ]
    binner._fit(_Distributions(columns.names, shown, n_rows=1), None, with_codes=False)
    return binner


def _categories(binner: Binner, query: _Query, columns: Columns) -> set[str]:
    given = binner.categorical_features
    if given is None or (isinstance(given, str) and given == "from_dtype"):
        return set() if given is None else {name for name in query.columns if query.is_text(name)}
    listed = list(given)
    if listed and all(isinstance(item, (bool, np.bool_)) for item in listed):
        return {name for name, is_category in zip(query.columns, listed, strict=True) if is_category}
    return {query.columns[j] for j in columns.indices(listed, "categorical_features")}


def _level_counts(query: _Query, name: str) -> LevelCounts:
    found = query.rows(f"{query.column(name)}, COUNT(*)", "GROUP BY 1")
    levels = sorted((level for level, _ in found if level is not None), key=lambda level: (str(type(level)), level))
    place = {level: k for k, level in enumerate(levels)} | {None: -1}
    counts = LevelCounts()
    counts.add(levels, np.array([place[level] for level, _ in found]), f"column {name!r}", "the table")
    return counts


def _numbers(query: _Query, name: str) -> _Distribution:
    """The distinct values of a column with their weights; if they are many, evenly spaced ones of them."""
    query._refuse_text(name)
    value, kept = query.number(name), "WHERE" if query.sample_weight is None else "AND"
    n_missing = query.rows("COUNT(*)", f"{kept} {query.is_missing(name)}")[0][0]
    there = f"{kept} NOT ({query.is_missing(name)})"
    n_distinct = query.rows(f"COUNT(DISTINCT {value})", there)[0][0]
    if n_distinct <= MAX_EXACT_ROWS:
        found = query.rows(f"{value}, {query.weight}", f"{there} GROUP BY 1 ORDER BY 1")
    else:
        found = _quantiles(query, value, there)
    values, weights = np.array(found, dtype=np.float64).reshape(-1, 2).T
    return _Distribution(np.ascontiguousarray(values), np.ascontiguousarray(weights), bool(n_missing))


def _quantiles(query: _Query, value: str, there: str) -> list[tuple]:
    """The largest value and the weight of N_QUANTILES runs of equal weight along a column."""
    kept = "" if query.sample_weight is None else f" WHERE {query.number(query.sample_weight)} > 0"
    distinct = f"SELECT {value} AS x, {query.weight} AS w FROM {query.source}{kept} {there} GROUP BY 1"
    running = f"SELECT x, w, SUM(w) OVER (ORDER BY x) AS s, SUM(w) OVER () AS n FROM ({distinct}) AS rbr_distinct"
    run = f"CAST(FLOOR((s - w * 0.5) * {N_QUANTILES} / n) AS INTEGER)"
    if query.dialect == "sqlite":
        run = f"CAST((s - w * 0.5) * {N_QUANTILES} / n AS INTEGER)"
    sql = f"SELECT MAX(x), SUM(w) FROM ({running}) AS rbr_running GROUP BY {run} ORDER BY 1"
    return query.connection.execute(sql).fetchall()


def _sums(query: _Query, binner: Binner, totals: Totals) -> GramSums:
    """All sums by bin and by pairs of bins."""
    n_coef, offsets = int(binner.offsets_[-1]), binner.offsets_
    if 8 * n_coef**2 > MAX_GRAM_BYTES:
        raise ValueError(
            f"{len(query.columns)} columns have {n_coef} bins in all, whose cross-tabulation takes "
            f"{8 * n_coef**2 / 1e9:.1f} GB; at most {MAX_GRAM_BYTES / 1e9:.1f} GB are used: lower max_bins, or name "
            f"fewer columns"
        )
    keys = [_key(query, binner, j) for j in range(len(query.columns))]
    places = [_Places(binner, j) for j in range(len(query.columns))]
    gram, target = np.zeros((n_coef, n_coef)), np.zeros(n_coef)
    shifted = query.shifted_target(totals.mean)
    for a in range(len(keys)):
        for key, weight, total in query.rows(f"{keys[a]}, {query.weight}, {query.weighted(shifted)}", "GROUP BY 1"):
            k = offsets[a] + places[a].of(key)
            gram[k, k] += float(weight)
            target[k] += float(total)
        for b in range(a):
            for key, other, weight in query.rows(f"{keys[a]}, {keys[b]}, {query.weight}", "GROUP BY 1, 2"):
                k, m = offsets[a] + places[a].of(key), offsets[b] + places[b].of(other)
                gram[k, m] += float(weight)
                gram[m, k] = gram[k, m]
    y, y_squared = query.rows(f"{query.weighted(shifted)}, {query.weighted(f'{shifted} * {shifted}')}")[0]
    return GramSums(gram, target, totals.weight, float(y), float(y_squared), totals.mean)


def _key(query: _Query, binner: Binner, j: int) -> str:
    """What rows are grouped by: the bin of a number, found by halving its edges, or the category itself."""
    name = query.columns[j]
    if binner._is_excluded[j]:
        return "0"
    if binner.is_categorical_[j]:
        return query.column(name)
    edges, value = binner.edges_[j], query.number(name)

    def halved(first: int, last: int) -> str:
        """The number of edges below the value, of which `first` at least and `last` at most are."""
        if first == last:
            return str(first)
        middle = (first + last) // 2
        edge = query.quote.literal(edges[middle])
        return f"CASE WHEN {value} <= {edge} THEN {halved(first, middle)} ELSE {halved(middle + 1, last)} END"

    return f"CASE WHEN {query.is_missing(name)} THEN {len(edges) + 1} ELSE {halved(0, len(edges))} END"


class _Places:
    """The bin of each key of a column."""

    def __init__(self, binner: Binner, j: int):
        self._categories = Categories(binner.categories_[j]) if binner.is_categorical_[j] else None
        self._label = f"column {binner.name_of(j)!r}"

    def of(self, key: Any) -> int:
        if self._categories is None:
            return int(key)
        if key is None:
            return max(len(self._categories.categories), 1)
        return self._categories.positions([key], self._label)[0]


def _tables(binner: Binner, sums: GramSums, weights_kind: str) -> Tables:
    """The tables of the bins, with the shares that the database has counted."""
    n_bins, offsets = binner.n_bins_, binner.offsets_
    uniform = np.repeat(1.0 / n_bins, n_bins)
    totals = np.repeat(np.add.reduceat(sums.bin_weights, offsets[:-1]), n_bins)
    shares = np.divide(sums.bin_weights, totals, out=uniform.copy(), where=totals > 0)
    columns = np.arange(len(n_bins), dtype=np.int64)[:, None]
    weights = uniform if weights_kind == "uniform" else shares
    empty = np.empty((len(n_bins), 0), dtype=np.uint8)
    fields = empty, offsets, binner.missing_, binner.positions_, columns, "counts", shares
    layout = Tables.of(BinnedMatrix._from_valid(*fields))
    return Tables(layout.offsets, weights, shares, layout.missing, layout.positions, layout.columns)
