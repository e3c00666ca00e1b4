"""What a user may specify for the columns of a table: which are categories, how many bins each gets, how to cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from rbr._checks import check_int
from rbr._sizes import MAX_CODE
from rbr.data.tables import Table, as_name, few

DEFAULT_BINS = 255
MAX_BINS = MAX_CODE  # codes start at 0, and one of them is kept for "no bin"

# How a feature is binned.
REGULAR, BINOMIAL, EDGES, CATEGORY, UNREAD = range(5)
METHODS = {"regular": REGULAR, "binomial": BINOMIAL}


class NamedColumns(Protocol):
    """Anything with columns, with or without names: a table, or the names and number of its columns alone."""

    @property
    def names(self) -> tuple[str, ...] | None: ...

    @property
    def n_features(self) -> int: ...

    def label(self, j: int) -> str: ...


def index_of(key: Any, names: tuple[str, ...] | None, n_features: int, parameter: str) -> int:
    """The index of a column that a user gives by name or index; a tuple is a name, an integer an index."""
    key = as_name(key) if isinstance(key, tuple) else key
    if isinstance(key, str):
        if names is None:
            raise ValueError(f"{parameter} names the column {key!r}, but the columns of X have no names; use indices")
        if key not in names:
            raise ValueError(f"{parameter} names the column {key!r}; the columns are {few(names)}")
        return names.index(key)
    if isinstance(key, (int, np.integer)) and not isinstance(key, (bool, np.bool_)):
        if not 0 <= key < n_features:
            hint = f", and the name is {str(key)!r}, as text" if str(key) in (names or ()) else ""
            raise ValueError(
                f"{parameter} names the column {key}; indices must be between 0 and {n_features - 1}{hint}"
            )
        return int(key)
    raise ValueError(f"{parameter} names the column {key!r}; a column must be given by its name or index")


def by_index(given: Mapping, table: NamedColumns, parameter: str) -> dict[int, Any]:
    """The same mapping with column indices as keys."""
    by_index: dict[int, Any] = {}
    for key, value in given.items():
        j = index_of(key, table.names, table.n_features, parameter)
        if j in by_index:
            raise ValueError(f"{parameter} names {table.label(j)} twice, by name and by index; it must be named once")
        by_index[j] = value
    return by_index


def max_bins_of(max_bins: Any, table: Table) -> np.ndarray:
    """max_bins of each feature."""
    if not isinstance(max_bins, Mapping):
        return np.full(table.n_features, check_int(max_bins, "max_bins", 2, MAX_BINS))
    each = np.full(table.n_features, DEFAULT_BINS)
    for j, value in by_index(max_bins, table, "max_bins").items():
        each[j] = check_int(value, f"max_bins of {table.label(j)}", 2, MAX_BINS)
    return each


def methods_of(binning: Any, table: Table, is_categorical: np.ndarray) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """How each feature is binned, and the edges that the user gives."""
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
                user_edges[j] = check_edges(value, f"binning of {table.label(j)}")
    else:
        methods[:] = _method(binning, "binning", ", or a dict of columns")
    methods[is_categorical] = CATEGORY
    return methods, user_edges


def _method(value: Any, name: str, or_else: str) -> int:
    if not isinstance(value, str) or value not in METHODS:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, METHODS))}{or_else}")
    return METHODS[value]


def check_edges(edges: Any, name: str) -> np.ndarray:
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


def which_categorical(given: Any, table: Table, excluded: np.ndarray) -> np.ndarray:
    """Which features are categories; an excluded one is not."""
    return ~excluded & _named_categorical(given, table, excluded)


def _named_categorical(given: Any, table: Table, excluded: np.ndarray) -> np.ndarray:
    is_categorical = np.zeros(table.n_features, dtype=bool)
    if given is None:
        return is_categorical
    if isinstance(given, str):
        if given != "from_dtype":
            raise ValueError(f"categorical_features is {given!r}; it must be 'from_dtype', None, or a list of columns")
        if table.has_dtypes:
            is_categorical[:] = [not excluded[j] and table.holds_categories(j) for j in range(table.n_features)]
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


def which_excluded(given: Any, table: Table) -> np.ndarray:
    """Which features are not read."""
    excluded = np.zeros(table.n_features, dtype=bool)
    excluded[list(indices_of(given, table, "exclude"))] = True
    return excluded


def indices_of(columns: Any, table: NamedColumns, parameter: str) -> tuple[int, ...]:
    """The indices of a list of columns, ascending."""
    if columns is None:
        return ()
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise ValueError(f"{parameter} is {columns!r}; it must be a list of column names or indices")
    return tuple(sorted({index_of(column, table.names, table.n_features, parameter) for column in columns}))


def generator_of(random_state: Any) -> np.random.Generator:
    """The random generator for random_state; None means a fixed seed."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31 - 1))
    if random_state is None:
        return np.random.default_rng(0)
    return np.random.default_rng(check_int(random_state, "random_state", 0))
