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
        self._raws = [raw.copy() for raw in point.handle.raw]
        self._change = objective.zero_tables()

    def residual_sums(self, table: int) -> np.ndarray:
        objective, bins = self._objective, self._bins(table)
        objective.work.columns_read += 1
        total = np.zeros(self._change[bins].shape)
        for block, raw in zip(objective._blocks, self._raws, strict=True):
            out = np.empty(raw.shape, order="F")
            weighted = objective.loss.residual(block.y, raw, out, v=block.v, n_threads=objective.n_threads)
            sums = block.design.rmatvec(weighted, features=np.array([table]), n_threads=objective.n_threads)
            total += sums[bins]
        return total

    def add(self, table: int, change: np.ndarray) -> None:
        objective, bins = self._objective, self._bins(table)
        objective.work.columns_read += 1
        self._change[bins] = change
        for block, raw in zip(objective._blocks, self._raws, strict=True):
            raw += block.design.matvec(self._change, features=np.array([table]), n_threads=objective.n_threads)
        self._change[bins] = 0.0

    def _bins(self, table: int) -> slice:
        offsets = self._objective.tables.offsets
        return slice(offsets[table], offsets[table + 1])
