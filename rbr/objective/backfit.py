"""Rows in memory whose tables change one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rbr._backend import kernels
from rbr._parallel import over_ranges

if TYPE_CHECKING:
    from rbr.objective.protocol import Backfit, Point, Visits
    from rbr.objective.rows import RowObjective

# No kernel call delays Ctrl-C for long: it visits at most this many tables, and reads about this many entries.
VISITS_PER_CALL = 64
ENTRIES_PER_CALL = 50_000_000


def visit_in_turn(rows: Backfit, tables: np.ndarray, visits: Visits) -> None:
    """`Backfit.visit` where what is done to a table is not done by a kernel, or its rows are not at hand."""
    for table in tables.tolist():
        change = visits.change(table, rows.residual_sums(table))
        if change is not None:
            rows.add(table, change)


class RowBackfit:
    """The rows around a point; see `rbr.objective.protocol.Backfit`."""

    def __init__(self, objective: RowObjective, point: Point):
        self._objective, self._point = objective, point
        self._raws: list[np.ndarray] = []
        self._weighted: list[np.ndarray] = []

    def visit(self, tables: np.ndarray, visits: Visits) -> None:
        objective, in_kernel = self._objective, visits.in_kernel(tables)
        if in_kernel is None or not self._is_visited_in_kernel:
            visit_in_turn(self, tables, visits)
            return
        ((block,), (raw,)), (told, moved) = (objective._blocks, self._point.handle.raw), in_kernel
        residuals = np.empty(raw.shape, order="F")
        objective.loss.residual(block.y, raw, residuals, v=block.v, n_threads=objective.n_threads)
        # The residuals of squared errors follow from the changes themselves.
        scores = np.empty((objective.n_outputs, 0))
        if not objective.loss.is_parabola:
            scores = np.atleast_2d(raw.copy(order="F").T)
        objective.work.columns_read += 2 * len(tables)
        per_call = max(1, min(VISITS_PER_CALL, ENTRIES_PER_CALL // max(residuals.size, 1)))
        rows = block.design.codes, block.y, block.v, *(objective.loss.compiled or ())
        arguments = *rows, *told, scores, np.atleast_2d(residuals.T), *moved
        over_ranges(kernels().visit_rows, len(tables), 1, *arguments, per_call=per_call)

    @property
    def _is_visited_in_kernel(self) -> bool:
        """A single thread; to find residuals by several would save less than their sums by bin cost one by one."""
        return len(self._objective._blocks) == 1 and self._objective.loss.compiled is not None

    def residual_sums(self, table: int) -> np.ndarray:
        self._begin()
        objective, bins, one = self._objective, self._bins(table), np.array([table])
        objective.work.columns_read += 1
        self._sums[bins] = 0.0
        for block, raw, weighted in zip(objective._blocks, self._raws, self._weighted, strict=True):
            objective.loss.residual(block.y, raw, weighted, v=block.v, n_threads=objective.n_threads)
            block.design.sum_one(one, weighted, self._sums)
        return self._sums[bins].copy()

    def add(self, table: int, change: np.ndarray) -> None:
        self._begin()
        objective, bins, one = self._objective, self._bins(table), np.array([table])
        objective.work.columns_read += 1
        self._change[bins] = change
        for block, raw in zip(objective._blocks, self._raws, strict=True):
            block.design.add_one(one, self._change, raw)
        self._change[bins] = 0.0

    def _begin(self) -> None:
        """Scores of its own, that change with the tables."""
        if not self._raws:
            # One table at a time differs from zero in each.
            self._sums, self._change = (np.asfortranarray(self._objective.zero_tables()) for _ in range(2))
            self._raws = [raw.copy(order="F") for raw in self._point.handle.raw]
            self._weighted = [np.empty(raw.shape, order="F") for raw in self._raws]

    def _bins(self, table: int) -> slice:
        offsets = self._objective.tables.offsets
        return slice(offsets[table], offsets[table + 1])
