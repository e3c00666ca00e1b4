"""The columns of the training table, for computations that need the values within bins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rbr.data.tables import open_table

ROWS_PER_STRETCH = 1 << 15


class ColumnValues:
    """The columns of a table, over all rows or some, as float64; a column is read when it is needed."""

    def __init__(self, X: Any, rows: np.ndarray | None = None):
        self._table, self._rows = open_table(X), rows

    def at(self, rows) -> ColumnValues:
        """The same columns over some of these rows."""
        chosen = np.arange(self._table.n_rows) if self._rows is None else self._rows
        other = ColumnValues.__new__(ColumnValues)
        other._table, other._rows = self._table, chosen[rows]
        return other

    def need(self, columns: Sequence[int]) -> None:
        """Say which columns will be asked for; where they must be fetched first, this is done at once."""

    def column(self, j: int, rows: np.ndarray | None = None) -> np.ndarray:
        """The values of column j, over all rows or some of them."""
        if self._rows is not None:
            rows = self._rows if rows is None else self._rows[rows]
        return self._table.numbers(j, j + 1, rows)[:, 0].astype(np.float64)

    def tiles(self, n_columns: int) -> list[tuple[int, int, list[slice]]]:
        """(first, last, stretches of all rows): which of some columns are best read together, and how.

        A stretch of an array stays in cache while its columns are picked out of it; so does a column of a frame while
        it is worked on.
        """
        whole = self._whole()
        if whole is None:
            return [(t, t + 1, [slice(None)]) for t in range(n_columns)]
        starts = range(0, len(whole), ROWS_PER_STRETCH)
        return [(0, n_columns, [slice(first, first + ROWS_PER_STRETCH) for first in starts])]

    def columns(self, chosen: np.ndarray, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        """(numbers, places) such that numbers[:, places] are the values of some columns over a stretch of rows."""
        whole = self._whole()
        if whole is not None:
            return whole[rows], chosen
        return np.stack([self.column(int(j))[rows] for j in chosen], axis=1), np.arange(len(chosen))

    def _whole(self) -> np.ndarray | None:
        return self._table.whole() if self._rows is None else None
