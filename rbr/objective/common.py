"""The base class of objectives over rows and over sums."""

from __future__ import annotations

import numpy as np

from rbr._options import SolverOptions
from rbr.losses import Loss
from rbr.objective.protocol import Tables, Work

# Weights that sum to less than this part of the number of rows are probably relative ones.
LITTLE_WEIGHT = 0.1


class BaseObjective:
    """The tables of an objective, its counts of work, and the sign and scale of its gradients."""

    def __init__(
        self, tables: Tables, loss: Loss, *, n_outputs: int, n_total: float, n_threads: int, options: SolverOptions
    ):
        self.tables, self.loss = tables, loss
        self.n_outputs, self.n_total, self.n_threads = n_outputs, n_total, n_threads
        self.work, self.options = Work(), options

    @property
    def n_passes(self) -> float:
        return self.work.columns_read / max(self.tables.n_tables, 1)

    def zero_tables(self) -> np.ndarray:
        n_coef = self.tables.n_coef
        return np.zeros(n_coef if self.n_outputs == 1 else (n_coef, self.n_outputs))

    def as_gradient(self, sums: np.ndarray, tables: np.ndarray) -> np.ndarray:
        """Minus the sums by bin over the weights; `sums`, which is zero outside the tables, is overwritten."""
        weights = self.tables.weights
        bins: slice | np.ndarray = slice(None)
        if len(tables) < self.tables.n_tables // 2:
            bins = self.tables.bins_of(tables)
        given, w = sums[bins].T, weights[bins]
        sums[bins] = np.divide(-given, w, out=np.zeros_like(given), where=w > 0).T
        return sums if self.n_outputs == 1 else np.ascontiguousarray(sums)


class OverRows(BaseObjective):
    """An objective whose rows are in memory, in files or on workers: what follows from their number."""

    _n_rows: int
    _is_part_of_many: bool  # whether these rows are a sample of many more

    @property
    def has_many_rows(self) -> bool:
        return self._is_part_of_many or self._n_rows > self.options.many_rows

    @property
    def can_be_averaged(self) -> bool:
        return self._n_rows <= self.options.averaged_rows

    @property
    def has_small_weights(self) -> bool:
        return self.n_total < LITTLE_WEIGHT * self._n_rows


def added(parts):
    """The sum of one or more arrays, in their order."""
    parts = iter(parts)
    total = next(parts)
    for part in parts:
        total = total + part
    return total
