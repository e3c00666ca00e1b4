"""Fitted pairs, and how their tables are told: on few rows and columns, in few rectangles, or never falling.

The table of a pair is an average over many ways to cut its grid, so that every cell has a value of its own. Most
neighbouring rows and columns of cells differ by next to nothing, and are merged: what is left is what a person reads,
and what a file, a query and a picture hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rbr.constraints import cut_into_rectangles
from rbr.data.grids import CoarseBins
from rbr.objective.protocol import Objective, Point

# Rows and columns of a grid that is monotone along both sides are pooled in turn until a round moves them by at most
# this part of their range, or this often.
MONOTONE_SETTLED = 1e-6
MONOTONE_ROUNDS = 200

# Merging two rows of cells costs nothing if it costs less than this part of what may be lost in all.
NOTHING = 1e-9


@dataclass(frozen=True, eq=False)
class PairFit:
    """Fitted pairs.

    pairs : (n, 2) tables, ascending
    coarse : the coarse bins of the tables
    objective : the rows by the cells of the pairs, with the mains among their offsets
    point : where the rounds ended
    evidence : of each pair, in units of log-likelihood
    rectangles : the mean number of rectangles of each pair
    prior_rows, share : what the next rounds begin with, by pair and output
    dispersion : the unit of the evidence
    gain : what each pair brings on rows that it has not seen, in units of the mean loss; NaN if that is not known
    rectangle : the rectangle of each cell, if the tables were cut into few of them; otherwise None
    """

    pairs: np.ndarray
    coarse: CoarseBins
    objective: Objective
    point: Point
    evidence: np.ndarray
    rectangles: np.ndarray
    prior_rows: np.ndarray
    share: np.ndarray
    dispersion: float
    gain: np.ndarray
    rectangle: np.ndarray | None = None

    @property
    def n_pairs(self) -> int:
        return len(self.pairs)

    @property
    def grids(self) -> np.ndarray:
        """See `BinnedMatrix`."""
        return self.coarse.sides(self.pairs)

    def scores(self) -> Any:
        """What the pairs add to the scores of the rows."""
        return self.objective.table_scores(self.point.f, self.point.support)

    def table(self, k: int) -> np.ndarray:
        """The table of a pair, of shape (n_a, n_b) or (n_a, n_b, n_outputs)."""
        f = self.point.f[self.objective.tables.offsets[k] : self.objective.tables.offsets[k + 1]]
        return f.reshape(*self.coarse.n_bins[self.pairs[k]], *f.shape[1:])

    def labels(self, k: int) -> np.ndarray:
        """The rectangle of each cell of a pair; every cell is one of its own unless the tables have been cut."""
        cells = slice(self.objective.tables.offsets[k], self.objective.tables.offsets[k + 1])
        labels = np.arange(cells.stop - cells.start) if self.rectangle is None else self.rectangle[cells]
        return labels.reshape(self.coarse.n_bins[self.pairs[k]])

    def told(self, max_rectangles: int | None, monotone: Mapping[int, int]) -> PairFit:
        """The fit with tables of few cells, or of at most `max_rectangles` rectangles.

        Along some columns they never fall (1) or never rise (-1); such a table has at most that many cells instead.
        """
        columns = self.objective.tables.columns
        signs = [tuple(monotone.get(int(column), 0) for column in pair) for pair in columns]
        if any(any(own) for own in signs):
            return self._made_monotone(signs)._thinned(max_rectangles, keeps_order=True)
        return self._thinned(None) if max_rectangles is None else self._in_rectangles(max_rectangles)

    def _thinned(self, most: int | None, keeps_order: bool = False) -> PairFit:
        """Neighbouring rows and columns of cells are merged while that loses a small part of the evidence.

        With weights that are products of those of rows and columns a merged table still never falls where it did not.
        """
        objective, tables, options = self.objective, self.objective.tables, self.objective.options
        H, _ = objective.curvature_sums(self.point, np.arange(self.n_pairs), objective.loss.is_straight_in_places)
        f = self.point.f.reshape(tables.n_coef, -1).copy()
        H = np.maximum(H.reshape(f.shape), 0.0)
        rectangle = np.zeros(tables.n_coef, dtype=np.int32)
        for k, (n_a, n_b, *_) in enumerate(self.grids.tolist()):
            cells, shape = slice(tables.offsets[k], tables.offsets[k + 1]), (*self.coarse.n_bins[self.pairs[k]], -1)
            weights = H[cells].reshape(shape)
            if keeps_order:
                total = np.maximum(weights.sum(axis=(0, 1)), 1e-300)
                weights = weights.sum(axis=1, keepdims=True) * weights.sum(axis=0, keepdims=True) / total
            evidence = max(float(self.evidence[k].sum()), 0.0) * self.dispersion / objective.n_total
            own = thinned(f[cells].reshape(shape), weights, (n_a, n_b), options.lost_when_thinned * evidence, most)
            f[cells], rectangle[cells] = own[0].reshape(len(f[cells]), -1), own[1].ravel()
        return replace(self._with_tables(f), rectangle=rectangle)

    def _in_rectangles(self, most: int) -> PairFit:
        tables = self.objective.tables
        values = self.point.f.reshape(tables.n_coef, -1)
        limits, prices = np.full(self.n_pairs, most), np.zeros(self.n_pairs)
        args = tables.offsets, self.grids, values, tables.weights, limits, prices
        f, rectangle = cut_into_rectangles(*args, n_threads=self.objective.n_threads)
        return replace(self._with_tables(f), rectangle=rectangle)

    def _made_monotone(self, signs: Sequence[tuple[int, ...]]) -> PairFit:
        """Each table is replaced by the nearest monotone one: see `nearest_monotone`."""
        tables, f = self.objective.tables, self.point.f.reshape(self.objective.tables.n_coef, -1).copy()
        for k, own in enumerate(signs):
            cells, shape = slice(tables.offsets[k], tables.offsets[k + 1]), self.coarse.n_bins[self.pairs[k]]
            weights, ordered = tables.weights[cells].reshape(shape), self.coarse.n_ordered[self.pairs[k]]
            for column in f[cells].T:
                column[:] = nearest_monotone(column.reshape(shape), weights, ordered, own).ravel()
        return replace(self._with_tables(f), rectangle=None)

    def _with_tables(self, f: np.ndarray) -> PairFit:
        """The same pairs with other tables, centred."""
        tables = self.objective.tables
        means = np.add.reduceat(tables.weights[:, None] * f, tables.offsets[:-1])
        f = f - np.repeat(means, tables.n_bins, axis=0)
        f = f[:, 0] if self.objective.n_outputs == 1 else f
        return replace(self, point=self.objective.point(f, np.arange(self.n_pairs), self.point.intercept))


def nearest_monotone(
    grid: np.ndarray, weights: np.ndarray, n_ordered: Sequence[int], signs: Sequence[int]
) -> np.ndarray:
    """The nearest table that never falls (1) or never rises (-1) along some sides; 0 leaves a side free.

    Along one side it is the isotonic regression of each line. Along both, lines of one side and of the other are
    regressed in turn, each time with what its last regression took away given back (Dykstra 1983): that converges to
    the nearest table, while plain turns end at one that is merely monotone. What is left to do at the end is done by
    running maxima. The bins after `n_ordered`, of missing values, have no order.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.solvers.pair_fit import nearest_monotone
    >>> nearest_monotone(np.array([[0.0, 3.0], [1.0, 1.0]]), np.ones((2, 2)), (2, 2), (1, 1)).round(6)
    array([[0., 2.],
           [1., 2.]])
    """
    out, sides = grid.copy(), np.flatnonzero(signs).tolist()
    taken = np.zeros((2, *grid.shape))
    for _ in range(MONOTONE_ROUNDS if len(sides) > 1 else 1):
        before = out.copy()
        for side in sides:
            given = out + taken[side]
            out = given.copy()
            _make_lines_monotone(np.moveaxis(out, side, 0), np.moveaxis(weights, side, 0), n_ordered[side], signs[side])
            taken[side] = given - out
        if np.abs(out - before).max() <= MONOTONE_SETTLED * np.ptp(grid):
            break
    for side in sides if len(sides) > 1 else ():
        lines = np.moveaxis(out, side, 0)[: n_ordered[side]]
        lines[:] = signs[side] * np.maximum.accumulate(signs[side] * lines, axis=0)
    return out


def _make_lines_monotone(grid: np.ndarray, weights: np.ndarray, n_ordered: int, sign: int) -> None:
    """Replace every line along the first side of a grid, without missing values, by the nearest monotone one."""
    from scipy.optimize import isotonic_regression

    for line, w in zip(grid[:n_ordered].T, weights[:n_ordered].T, strict=True):
        line[:] = isotonic_regression(line, weights=np.maximum(w, 1e-12), increasing=sign > 0).x


def thinned(
    table: np.ndarray, weights: np.ndarray, n_ordered: tuple[int, int], budget: float, most: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(table, label of each cell) with neighbouring rows and columns merged, the most similar first.

    Parameters
    ----------
    table, weights : arrays of shape (n_a, n_b, n_outputs)
    n_ordered : the bins along both sides that may be merged; missing values come after them
    budget : how far half the weighted sum of squared changes may rise in all
    most : the most cells, whatever that costs; None for any number

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.solvers.pair_fit import thinned
    >>> table, labels = thinned(np.array([[0.0, 0.1, 5.0]])[:, :, None], np.ones((1, 3, 1)), (1, 3), 0.01)
    >>> table[0, :, 0], labels
    (array([0.05, 0.05, 5.  ]), array([[0, 0, 1]]))
    """
    values, own = table.copy(), weights.copy()
    starts = [np.arange(n) for n in table.shape[:2]]
    n_left = list(n_ordered)
    # What it costs to merge each bin of a side with the next one, by bin of the other side.
    between = [_merge_costs(values.swapaxes(0, side), own.swapaxes(0, side)) for side in (0, 1)]
    spent = 0.0
    while True:
        costs = [cost[: max(n - 1, 0)].sum(axis=1) for cost, n in zip(between, n_left, strict=True)]
        # The first of all that cost nothing goes first, whatever their rounding errors are.
        costs = [np.where(cost > NOTHING * budget, cost, 0.0) for cost in costs]
        least = [cost.min(initial=np.inf) for cost in costs]
        side = int(least[1] < least[0])
        is_affordable = spent + least[side] <= budget
        is_needed = most is not None and values.shape[0] * values.shape[1] > most and np.isfinite(least[side])
        if not is_affordable and not is_needed:
            break
        spent += least[side]
        k = int(costs[side].argmin())
        v, w = values.swapaxes(0, side), own.swapaxes(0, side)
        v[k], w[k] = _mean(v[k : k + 2], w[k : k + 2]), w[k] + w[k + 1]
        values, own = _without(values, side, k + 1), _without(own, side, k + 1)
        between[side], between[1 - side] = _without(between[side], 0, k), _without(between[1 - side], 1, k + 1)
        beside = slice(max(k - 1, 0), k + 2)
        v, w = values.swapaxes(0, side), own.swapaxes(0, side)
        between[side][max(k - 1, 0) : k + 1] = _merge_costs(v[beside], w[beside])
        between[1 - side][:, k] = _merge_costs(v[k][:, None], w[k][:, None])[:, 0]
        starts[side] = np.delete(starts[side], k + 1)
        n_left[side] -= 1
    rows, columns = (
        np.searchsorted(begin, np.arange(n), side="right") - 1 for begin, n in zip(starts, table.shape[:2], strict=True)
    )
    labels = rows[:, None] * len(starts[1]) + columns
    return values[rows][:, columns], labels


def _merge_costs(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """What it costs to merge each bin of the first side with the next one, by bin of the second."""
    both = weights[1:] + weights[:-1]
    harmonic = np.divide(weights[1:] * weights[:-1], both, out=np.zeros_like(both), where=both > 0)
    return 0.5 * (harmonic * (values[1:] - values[:-1]) ** 2).sum(axis=2)


def _without(array: np.ndarray, side: int, k: int) -> np.ndarray:
    """The array without the entries of place k along a side; what comes after them moves up in place."""
    moved = array.swapaxes(0, side)
    moved[k:-1] = moved[k + 1 :]
    return moved[:-1].swapaxes(0, side)


def _mean(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The mean of two rows of cells; cells without weight count alike."""
    total = weights.sum(axis=0)
    plain = values.mean(axis=0)
    return np.divide((weights * values).sum(axis=0), total, out=plain, where=total > 0)
