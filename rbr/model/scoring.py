"""Scores of rows from the tables of a model: prepares the arrays for the kernel `score` and calls it.

Neighbouring bins of equal value are merged here, so a term of eight constant pieces is searched in three halvings
however many bins it was fitted on. Only the used columns of a table are read. Terms are added in the same order
for every kind of table, so that an array and a frame with the same numbers get the same scores to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from rbr._backend import kernels
from rbr._parallel import over_ranges, resolve_n_jobs
from rbr.data.tables import Table, open_table
from rbr.model.terms import Term

# Less work than this is not worth another thread.
MIN_ENTRIES_PER_THREAD = 100_000

_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


class Scorer:
    """The terms of a model, laid out for the kernel."""

    def __init__(self, terms: Sequence[Term], n_outputs: int):
        self.n_outputs = n_outputs
        self.parts: list[NumericRun | CategoryLookup] = []
        start = 0
        for t, term in enumerate([*terms, None]):
            if term is None or term.kind == "category":
                if t > start:
                    self.parts.append(NumericRun(terms[start:t]))
                start = t + 1
                if term is not None:
                    self.parts.append(CategoryLookup(term))
        self.only_numbers = len(self.parts) == 1 and isinstance(self.parts[0], NumericRun)

    def add_array(self, X: np.ndarray, out: np.ndarray, n_jobs: int | None) -> None:
        """out[i] += the sum of the terms at row i of a float32 or float64 array, if all terms are numeric."""
        run = cast(NumericRun, self.parts[0])
        run.add(X, run.columns, out, n_jobs)

    def add_table(self, table: Table, out: np.ndarray, n_jobs: int | None) -> None:
        """out[i] += the sum of the terms at row i of any table with the right columns."""
        for part in self.parts:
            part.add_table(table, out, n_jobs)


class NumericRun:
    """Neighbouring numeric terms as the flat arrays of the kernel `score`."""

    def __init__(self, terms: Sequence[Term]):
        self.columns = np.array([column for (column,) in (term.columns for term in terms)], dtype=np.int64)
        steps = [merged_steps(term) for term in terms]
        self.edges, self.edge_offsets, self.tables = _padded(steps)
        self.one_by_one = [_padded([own]) for own in steps]

    def add(self, X: np.ndarray, columns: np.ndarray, out: np.ndarray, n_jobs: int | None) -> None:
        arrays = X, columns, self.edges, self.edge_offsets, self.tables, out
        _deal(n_jobs, len(columns), arrays)

    def add_table(self, table: Table, out: np.ndarray, n_jobs: int | None) -> None:
        whole = table.whole()
        if whole is not None:
            self.add(whole, self.columns, out, n_jobs)
            return
        first = np.zeros(1, dtype=np.int64)
        for j, (edges, edge_offsets, tables) in zip(self.columns.tolist(), self.one_by_one, strict=True):
            _deal(n_jobs, 1, (table.numbers(j, j + 1), first, edges, edge_offsets, tables, out))


class CategoryLookup:
    """A categorical term as a table: what each category adds, then what an unknown and a missing one add."""

    def __init__(self, term: Term):
        (self.column,) = term.columns
        self.index = {category: k for k, category in enumerate(term.categories or ())}
        values = term.values.reshape(term.n_ordered, -1)
        nothing = np.zeros((1, values.shape[1]))
        missing = nothing if term.missing_value is None else np.reshape(term.missing_value, (1, -1))
        self.table = np.concatenate([values, nothing, missing])

    def add_table(self, table: Table, out: np.ndarray, n_jobs: int | None) -> None:
        levels, codes = table.levels(self.column)
        unknown = len(self.table) - 2
        # Missing values have the code -1, which selects the last entry.
        entries = np.array([*(self.index.get(level, unknown) for level in levels), unknown + 1], dtype=np.int64)
        out += self.table[entries[codes]]


def merged_steps(term: Term) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(edges, values, value of NaN) of a numeric term with neighbouring bins of equal value merged."""
    values = term.values.reshape(term.n_ordered, -1)
    starts = np.append(True, (values[1:] != values[:-1]).any(axis=1))
    missing = np.zeros(values.shape[1]) if term.missing_value is None else np.atleast_1d(term.missing_value)
    return term.edges[starts[1:]], values[starts], missing


def _padded(steps: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]):
    """Edges, offsets and tables of some terms, each padded to 2 ** m pieces as the kernel requires."""
    edges, tables, sizes = [], [], [0]
    for own_edges, values, missing in steps:
        n_pieces = 1 << int(len(values) - 1).bit_length()
        n_more = n_pieces - len(values)
        edges.append(np.append(own_edges, np.full(n_more, np.inf)))
        tables += [values, np.repeat(values[-1:], n_more, axis=0), missing[None]]
        sizes.append(n_pieces - 1)
    offsets = np.cumsum(sizes, dtype=np.int64)
    return np.concatenate(edges), offsets, np.ascontiguousarray(np.concatenate(tables))


def _deal(n_jobs: int | None, n_terms: int, arrays: tuple) -> None:
    n_rows = len(arrays[0])
    n_threads = 1
    if n_jobs is not None or n_rows * n_terms >= 2 * MIN_ENTRIES_PER_THREAD:
        n_threads = max(1, min(resolve_n_jobs(n_jobs), n_rows * n_terms // MIN_ENTRIES_PER_THREAD))
    over_ranges(kernels().score, n_rows, n_threads, *arrays)


def is_plain(X: Any) -> bool:
    """Whether X is an array that the kernel can read without conversion."""
    return type(X) is np.ndarray and X.ndim == 2 and X.dtype in _FLOATS and len(X) > 0


def open_checked(X: Any, names: tuple[str, ...] | None, n_features: int, owner: str) -> Table:
    """The table behind X, whose columns must be those of the fit."""
    table = open_table(X)
    table.check_columns(names, n_features, owner)
    return table
