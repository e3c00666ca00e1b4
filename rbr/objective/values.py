"""The columns of the training table, for computations that need the values within bins."""

from __future__ import annotations

from typing import Any

import numpy as np

from rbr.data.tables import open_table


class ColumnValues:
    """The columns of a table, over all rows or some, as float64; a column is read when it is needed."""

    def __init__(self, X: Any, rows: np.ndarray | None = None):
        self._table, self._rows = open_table(X), rows
        self._kept: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def at(self, rows) -> ColumnValues:
        """The same columns over some of these rows."""
        chosen = np.arange(self._table.n_rows) if self._rows is None else self._rows
        other = ColumnValues.__new__(ColumnValues)
        other._table, other._rows, other._kept = self._table, chosen[rows], {}
        return other

    def column(self, j: int) -> np.ndarray:
        """The values of column j."""
        return self._table.numbers(j, j + 1, self._rows)[:, 0].astype(np.float64)

    def distinct(self, j: int) -> tuple[np.ndarray, np.ndarray]:
        """The distinct values of column j, ascending with NaN last, and which of them each row has."""
        if j not in self._kept:
            values, inverse = np.unique(self.column(j), return_inverse=True)
            self._kept[j] = values, inverse.ravel()
        return self._kept[j]
