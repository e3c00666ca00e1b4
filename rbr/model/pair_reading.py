"""Terms of two columns in tables and in words: rows of a frame, reasons, and the cells in which new rows fall."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rbr.data.tables import Table
from rbr.model.pair_scoring import Columns, PairLookup
from rbr.model.pairs import PairTerm
from rbr.model.scorecard import Entry


def entries_of_pair(term: PairTerm) -> Iterator[Entry]:
    """An entry for each rectangle; in a surface every cell is one."""
    for piece in term.pieces:
        low, high = ([math.nan if end is None else end for end in ends] for ends in (piece.low, piece.high))
        values = np.atleast_1d(piece.value)
        yield Entry(
            term,
            "cell" if term.is_surface else piece.kind,
            piece.text,
            low[0],
            high[0],
            list(piece.cells),
            values,
            np.zeros_like(values),
            low_2=low[1],
            high_2=high[1],
        )


def cells_of_rows(term: PairTerm, table: Table) -> tuple[np.ndarray, tuple]:
    """The cell of each row in the grid with rows and columns for missing and unknown values; the unknown levels."""
    lookup, columns = PairLookup(term), Columns(table)
    return lookup.cells(columns, None), lookup.unseen(columns).levels


def shares_of_cells(term: PairTerm) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(shares in training, which are missing, which are unknown) of the cells of that grid, flattened."""
    n_a, n_b = (axis.n_ordered for axis in term.axes)
    shares = np.zeros((n_a + 2, n_b + 2))
    shares[: term.shape[0], : term.shape[1]] = term.shares.reshape(term.shape)
    i, j = np.indices(shares.shape)
    is_unknown = (i == n_a + 1) | (j == n_b + 1)
    is_missing = ((i == n_a) | (j == n_b)) & ~is_unknown
    return shares.ravel(), is_missing.ravel(), is_unknown.ravel()


def path_through(term: PairTerm) -> np.ndarray:
    """The cells of known values in an order in which each is a neighbour of the one before: to and fro, row by row."""
    n_a, n_b = (axis.n_ordered for axis in term.axes)
    cells = np.arange((n_a + 2) * (n_b + 2)).reshape(n_a + 2, n_b + 2)[:n_a, :n_b].copy()
    cells[1::2] = cells[1::2, ::-1]
    return cells.ravel()
