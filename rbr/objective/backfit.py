"""Rows in memory whose tables change one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rbr.objective.protocol import Point
    from rbr.objective.rows import RowObjective


class RowBackfit:
    """The rows around a point; see `rbr.objective.protocol.Backfit`."""

    def __init__(self, objective: RowObjective, point: Point):
        self._objective = objective
        self._raws = [raw.copy(order="F") for raw in point.handle.raw]
        self._weighted = [np.empty(raw.shape, order="F") for raw in self._raws]
        # One table at a time differs from zero in each.
        self._sums, self._change = (np.asfortranarray(objective.zero_tables()) for _ in range(2))

    def residual_sums(self, table: int) -> np.ndarray:
        objective, bins, one = self._objective, self._bins(table), np.array([table])
        objective.work.columns_read += 1
        self._sums[bins] = 0.0
        for block, raw, weighted in zip(objective._blocks, self._raws, self._weighted, strict=True):
            objective.loss.residual(block.y, raw, weighted, v=block.v, n_threads=objective.n_threads)
            block.design.sum_one(one, weighted, self._sums)
        return self._sums[bins].copy()

    def add(self, table: int, change: np.ndarray) -> None:
        objective, bins, one = self._objective, self._bins(table), np.array([table])
        objective.work.columns_read += 1
        self._change[bins] = change
        for block, raw in zip(objective._blocks, self._raws, strict=True):
            block.design.add_one(one, self._change, raw)
        self._change[bins] = 0.0

    def _bins(self, table: int) -> slice:
        offsets = self._objective.tables.offsets
        return slice(offsets[table], offsets[table + 1])
