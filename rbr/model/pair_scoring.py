"""Scores of rows from terms of two columns.

The number of a cell is a sum of two step functions, one of each column, so the kernel `score`, which adds up step
functions, finds the cells too. A look-up in the grid gives what they add. Every grid has a row and a column for missing
values here, and one for unknown values; where an axis has no bin for them, they hold zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rbr.data.levels import UNSEEN, Categories
from rbr.data.tables import Table
from rbr.model.pairs import Axis, PairTerm
from rbr.model.scoring import Steps, deal, padded
from rbr.model.unseen import Tally, Unseen


class PairRun:
    """Neighbouring terms of two columns. Each column is read once for all of them."""

    def __init__(self, terms: Sequence[PairTerm]):
        self.pairs = [PairLookup(term) for term in terms]

    def add_table(self, table: Table, out: np.ndarray, n_jobs: int | None, tally: Tally | None) -> None:
        columns = Columns(table)
        for pair in self.pairs:
            out += pair.grid[pair.cells(columns, n_jobs)]
            if tally is not None:
                tally.counts.append(pair.unseen(columns))


class Columns:
    """The columns of a table, each converted once, when it is first asked for."""

    def __init__(self, table: Table):
        self.table = table
        self.whole = table.whole()
        self._numbers: dict[int, np.ndarray] = {}
        self._levels: dict[int, tuple[list, np.ndarray]] = {}

    def numbers(self, column: int) -> np.ndarray:
        if column not in self._numbers:
            self._numbers[column] = self.table.numbers(column, column + 1)
        return self._numbers[column]

    def levels(self, column: int) -> tuple[list, np.ndarray]:
        if column not in self._levels:
            self._levels[column] = self.table.levels(column)
        return self._levels[column]


class PairLookup:
    """A term of two columns as a grid of all cells, and the number of the cell of each row."""

    def __init__(self, term: PairTerm):
        self.term = term
        self.grid = padded_grid(term)
        a, b = term.axes
        self.sides = (Side(a, b.n_ordered + 2), Side(b, 1))

    def cells(self, columns: Columns, n_jobs: int | None) -> np.ndarray:
        """The position in `grid` of each row."""
        numbers = np.zeros((columns.table.n_rows, 1))
        for side in self.sides:
            side.add(columns, numbers, n_jobs)
        return numbers[:, 0].astype(np.int64)

    def unseen(self, columns: Columns) -> Unseen:
        """How many rows hold what training did not have, on one axis or on both."""
        n_rows = columns.table.n_rows
        is_missing, is_unknown = np.zeros(n_rows, dtype=bool), np.zeros(n_rows, dtype=bool)
        names: list = []
        for side in self.sides:
            names += side.mark(columns, is_missing, is_unknown)
        term = self.term
        return Unseen(term.name, term.columns, n_rows, int(is_unknown.sum()), int(is_missing.sum()), tuple(names))


def padded_grid(term: PairTerm) -> np.ndarray:
    """The values of all cells, with a row and a column for missing and one for unknown values, flattened."""
    a, b = term.axes
    grid = np.zeros((a.n_ordered + 2, b.n_ordered + 2, term.n_outputs))
    grid[: a.n_bins, : b.n_bins] = term.values.reshape(*term.shape, -1)
    return grid.reshape(-1, term.n_outputs)


class Side:
    """One axis of a grid: what it adds to the number of a row's cell, `stride` times its bin.

    Missing values have the bin n_ordered, unknown ones n_ordered + 1.
    """

    def __init__(self, axis: Axis, stride: int):
        self.axis, self.stride = axis, stride
        if axis.groups is None:
            bins = stride * np.arange(axis.n_ordered + 1.0)[:, None]
            nothing = np.zeros((axis.n_ordered, 1))
            self.steps = padded([Steps(axis.edges, bins[:-1], nothing, nothing[:, 0], bins[-1])])
        else:
            self.categories = Categories(axis.levels)
            self.group_of = np.repeat(np.arange(axis.n_ordered), [len(group) for group in axis.groups])

    def add(self, columns: Columns, out: np.ndarray, n_jobs: int | None) -> None:
        """out[i] += stride * the bin of row i."""
        column = self.axis.column
        if self.axis.groups is None:
            whole = columns.whole
            X, place = (columns.numbers(column), 0) if whole is None else (whole, column)
            deal(n_jobs, 1, (X, np.array([place], dtype=np.int64), *self.steps, out))
            return
        bins, codes = self.bins(columns), columns.levels(column)[1]
        out[:, 0] += self.stride * bins[codes]

    def bins(self, columns: Columns) -> np.ndarray:
        """The bin of each level of a category, then that of missing values: those have the code -1."""
        levels, _ = columns.levels(self.axis.column)
        found = np.array(self.categories.positions(levels, columns.table.label(self.axis.column)), dtype=np.int64)
        known = self.group_of[np.where(found == UNSEEN, 0, found)]
        return np.append(np.where(found == UNSEEN, self.axis.n_ordered + 1, known), self.axis.n_ordered)

    def mark(self, columns: Columns, is_missing: np.ndarray, is_unknown: np.ndarray) -> list:
        """Mark the rows that hold what training did not have; returns the unknown levels."""
        column = self.axis.column
        if self.axis.groups is None:
            if not self.axis.has_missing:
                numbers = columns.numbers(column)[:, 0] if columns.whole is None else columns.whole[:, column]
                is_missing |= np.isnan(numbers)
            return []
        levels, codes = columns.levels(column)
        if not self.axis.has_missing:
            is_missing |= codes < 0
        unknown = np.append(self.bins(columns)[:-1] == self.axis.n_ordered + 1, False)
        if not unknown.any():
            return []
        is_unknown |= unknown[codes]
        present = np.bincount(codes[codes >= 0], minlength=len(levels)) > 0
        return [levels[k] for k in np.flatnonzero(unknown[:-1] & present).tolist()]
