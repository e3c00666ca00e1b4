"""Subsamples of rows in memory, and out-of-bag losses.

A bag thins the rows: of a row of weight k it takes some of k copies, and the copies that are left are out of the bag.
Rows with equal codes, target and offset are copies of one another, so a row of integer weight k is treated like k
repeated rows, to the bit.
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

# A row of larger weight has this many copies, each of more than one row's weight.
MOST_COPIES = 64


class RowBags:
    """Bags of the rows of an objective; see `rbr.objective.protocol.Bags`.

    Parameters
    ----------
    objective : RowObjective
    n_ways : int
        The number of ways in which each bag may be fitted.
    share : float
        The share of the copies in a bag.
    random_state : int, RandomState or None
        None stands for a fixed seed.
    whole_rows : bool
        Every row is one copy, whatever its weight: a resample holds the same observation several times.
    """

    def __init__(self, objective: RowObjective, n_ways: int, share: float, random_state: Any, whole_rows: bool = False):
        self._objective, self._share = objective, share
        self._rng = check_random_state(0 if random_state is None else random_state)
        self._y = np.concatenate([block.y for block in objective._blocks])
        rows: np.ndarray = np.arange(objective._n_rows)
        self._first, self._group = (rows, rows) if whole_rows else _distinct_rows(objective)
        weights = [np.ones(b.n_rows) if b.sample_weight is None else b.sample_weight for b in objective._blocks]
        self._weight = np.bincount(self._group, np.concatenate(weights))
        most = 1 if whole_rows else MOST_COPIES
        self._n_copies = np.ceil(np.minimum(self._weight, most)).astype(np.int64)
        shape = (objective._n_rows,) if objective.n_outputs == 1 else (objective._n_rows, objective.n_outputs)
        self._scores = [np.zeros(shape) for _ in range(n_ways)]
        self._times_out = np.zeros(objective._n_rows)
        self._share_out = np.zeros(objective._n_rows)

    def draw(self) -> RowObjective:
        drawn = self._drawn()
        self._share_out = (1.0 - drawn)[self._group]
        self._times_out += self._share_out
        kept = np.flatnonzero(
            drawn
        )  # one row for all its copies, in an order that the order of the rows does not change
        weight = (drawn * self._weight)[kept]
        n_total, inside, first = float(weight.sum()), [], 0
        for block in self._objective._blocks:
            rows = self._first[kept] - first
            own = (rows >= 0) & (rows < block.n_rows)
            is_plain = block.sample_weight is None and bool((weight[own] == 1).all())
            given = None if is_plain else weight[own]
            inside.append(block.at(rows[own], weight[own] / n_total, self._objective.n_threads, given))
            first += block.n_rows
        return self._objective._with(inside, n_total)

    def _by_block(self, by_row: np.ndarray):
        """Each block with its part of an array of all rows."""
        first = 0
        for block in self._objective._blocks:
            yield block, by_row[first : first + block.n_rows]
            first += block.n_rows

    def _drawn(self) -> np.ndarray:
        """The share of each distinct row's copies in the next bag: all of them if it would miss a class."""
        copies = np.repeat(np.arange(len(self._n_copies)), self._n_copies)
        chosen = copies[self._rng.permutation(len(copies))[: max(2, round(self._share * len(copies)))]]
        drawn = np.bincount(chosen, minlength=len(self._n_copies)) / self._n_copies
        return drawn if self._is_enough(self._y[self._first[drawn > 0]]) else np.ones(len(drawn))

    def _is_enough(self, y_bag: np.ndarray) -> bool:
        """Whether a bag has every class, if y may be classes, and otherwise more than one row."""
        values = np.unique(self._y)
        return len(np.unique(y_bag)) == len(values) if len(values) <= MOST_CLASSES else len(y_bag) > 1

    def add(self, way: int, f: np.ndarray, support: np.ndarray, intercept) -> None:
        shares = [share for _, share in self._by_block(self._share_out)]
        for (block, scores), share in zip(self._by_block(self._scores[way]), shares, strict=True):
            out = np.flatnonzero(share)
            raw = block.design[out].matvec(f, features=support) + intercept
            scores[out] += (raw.T * share[out]).T

    @property
    def has_left_out(self) -> bool:
        return bool(self._times_out.any())

    def loss_of(self, ways: Sequence[int]) -> float:
        y, raw, v = self._left_out(ways)
        return self._objective.loss.value(y, raw, v / v.sum())

    def gain(self, way: int, other: int, outliers: float = 0.0) -> tuple[float, float]:
        losses = []
        for w in (way, other):
            y, raw, v = self._left_out((w,))
            losses.append(self._objective.loss.values(y, raw))
        difference, v = losses[0] - losses[1], v / v.sum()
        most = np.quantile(np.abs(difference), 1.0 - outliers)
        difference = np.clip(difference, -most, most)
        mean = float(v @ difference)
        n_seen = self._objective.n_total * float(
            np.concatenate([b.v for b in self._objective._blocks])[self._seen].sum()
        )
        return mean, float(np.sqrt(v @ (difference - mean) ** 2 / max(n_seen, 1.0)))

    @property
    def _seen(self) -> np.ndarray:
        return self._times_out > 0

    def _left_out(self, ways: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(y, mean scores, v) of the rows that were left out."""
        seen, objective = self._seen, self._objective
        total: Any = sum(self._scores[w][seen] for w in ways)
        raw = (total.T / (len(ways) * self._times_out[seen])).T
        if objective._has_offset:
            raw = raw + np.concatenate([block.offset for block in objective._blocks])[seen]
        return self._y[seen], raw, np.concatenate([block.v for block in objective._blocks])[seen]


def _distinct_rows(objective: RowObjective) -> tuple[np.ndarray, np.ndarray]:
    """(a row of each group of equal rows, the group of each row); the order of the rows does not change the groups'."""
    keys = [block.keys() for block in objective._blocks]
    _, first, group = np.unique(np.concatenate(keys), return_index=True, return_inverse=True)
    return first, group.ravel()
