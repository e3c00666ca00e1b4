"""Subsamples of rows in memory, and out-of-bag losses.

A bag draws distinct rows: rows with equal codes, target and offset are drawn together. So a row of integer weight k is
treated like k repeated rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

if TYPE_CHECKING:
    from rbr.objective.rows import RowObjective

# With at most this many distinct targets, which may be classes, a bag must hold every one of them.
MOST_CLASSES = 20


class RowBags:
    """Bags of the rows of an objective; see `rbr.objective.protocol.Bags`.

    Parameters
    ----------
    objective : RowObjective
    n_ways : int
        The number of ways in which each bag may be fitted.
    share : float
        The share of the distinct rows in a bag.
    random_state : int, RandomState or None
        None stands for a fixed seed.
    """

    def __init__(self, objective: RowObjective, n_ways: int, share: float, random_state: Any):
        self._objective, self._share = objective, share
        self._rng = check_random_state(0 if random_state is None else random_state)
        self._y = np.concatenate([block.y for block in objective._blocks])
        self._group = _distinct_rows(objective)
        self._n_groups = int(self._group.max()) + 1
        shape = (objective._n_rows,) if objective.n_outputs == 1 else (objective._n_rows, objective.n_outputs)
        self._scores = [np.zeros(shape) for _ in range(n_ways)]
        self._times_out = np.zeros(objective._n_rows)
        self._out: list[np.ndarray] = []

    def draw(self) -> RowObjective:
        drawn = self._drawn()
        self._times_out += ~drawn
        self._out = [np.flatnonzero(~rows) for _, rows in self._by_block(drawn)]
        weights = [
            np.ones(rows.sum()) if block.sample_weight is None else block.sample_weight[rows]
            for block, rows in self._by_block(drawn)
        ]
        n_total = float(sum(weight.sum() for weight in weights))
        n_threads = self._objective.n_threads
        inside = [
            block.at(rows, weight / n_total, n_threads)
            for (block, rows), weight in zip(self._by_block(drawn), weights, strict=True)
        ]
        return self._objective._with(inside, n_total)

    def _by_block(self, by_row: np.ndarray):
        """Each block with its part of an array of all rows."""
        first = 0
        for block in self._objective._blocks:
            yield block, by_row[first : first + block.n_rows]
            first += block.n_rows

    def _drawn(self) -> np.ndarray:
        """Which rows are in the next bag: all of them if it would miss a class."""
        drawn = np.zeros(self._n_groups, dtype=bool)
        drawn[self._rng.permutation(self._n_groups)[: max(2, round(self._share * self._n_groups))]] = True
        rows = drawn[self._group]
        return rows if self._is_enough(self._y[rows]) else np.ones(len(rows), dtype=bool)

    def _is_enough(self, y_bag: np.ndarray) -> bool:
        """Whether a bag has every class, if y may be classes, and otherwise more than one row."""
        values = np.unique(self._y)
        return len(np.unique(y_bag)) == len(values) if len(values) <= MOST_CLASSES else len(y_bag) > 1

    def add(self, way: int, f: np.ndarray, support: np.ndarray, intercept) -> None:
        for (block, scores), out in zip(self._by_block(self._scores[way]), self._out, strict=True):
            scores[out] += block.design[out].matvec(f, features=support) + intercept

    @property
    def has_left_out(self) -> bool:
        return bool(self._times_out.any())

    def loss_of(self, ways: Sequence[int]) -> float:
        seen, objective = self._times_out > 0, self._objective
        total: Any = sum(self._scores[w][seen] for w in ways)
        raw = (total.T / (len(ways) * self._times_out[seen])).T
        if objective._has_offset:
            raw = raw + np.concatenate([block.offset for block in objective._blocks])[seen]
        v = np.concatenate([block.v for block in objective._blocks])[seen]
        return objective.loss.value(self._y[seen], raw, v / v.sum())


def _distinct_rows(objective: RowObjective) -> np.ndarray:
    """For each row the number of its group of equal rows, in an order that does not depend on the rows' order."""
    tables = []
    for block in objective._blocks:
        columns = [block.design.codes.T, block.y[:, None]]
        if block.offset is not None:
            columns.append(block.offset.reshape(block.n_rows, -1))
        tables.append(np.concatenate(columns, axis=1))
    return np.unique(np.concatenate(tables), axis=0, return_inverse=True)[1].ravel()
