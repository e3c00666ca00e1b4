"""How the loss changes when one table changes and all else is held.

Such a change moves the scores of a row by a number that depends on its bin alone. A parabola in each bin, which is
enough for the solver's small steps, is not enough here: where classes separate, the curvature is near zero at the fit
and says nothing about a large change. So with up to `measured_rows` rows the losses of all of them are computed. With
more, the parabolas of all rows are corrected by how far the losses of a sample are from their own parabolas; a sample
alone would have to tell apart losses that differ by a millionth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rbr._backend import kernels
from rbr.objective.protocol import Point, TableChange

if TYPE_CHECKING:
    from rbr.objective.rows import RowObjective


class RowChanges:
    """Rows with their scores, losses and derivatives at a point: all rows, or a sample and the sums by bin of all."""

    def __init__(self, objective: RowObjective, point: Point):
        self.objective, self.loss, self.f = objective, objective.loss, point.f
        self.is_all = objective._n_rows <= objective.options.measured_rows
        self.rows = objective._spread(objective._n_rows if self.is_all else objective.options.measured_sample)
        blocks = objective._blocks
        self.y = self._gathered([block.y for block in blocks])
        self.raw = self._gathered(point.handle.raw)
        v = np.ascontiguousarray(self._gathered([block.v for block in blocks]))
        self.v = v / v.sum()
        self.values = self.loss.values(self.y, self.raw)
        self.residual, self.curvature = np.empty(self.raw.shape), np.empty(self.raw.shape)
        self.loss.evaluate(self.y, self.raw, residual=self.residual, curvature=self.curvature)
        if not self.is_all:
            gradient = objective.gradient(point, point.support) if point.gradient is None else point.gradient
            self.pull_by_bin = -(objective.tables.weights * gradient.T).T
            self.curvature_by_bin, _ = objective.curvature_sums(point, point.support)

    def _gathered(self, of_blocks) -> np.ndarray:
        parts = [array[rows] for array, rows in zip(of_blocks, self.rows, strict=True)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def codes(self, table: int) -> np.ndarray:
        """The bin of each row that is measured; one past the last for a row without a bin."""
        return np.ascontiguousarray(self._gathered([block.design.codes[table] for block in self.objective._blocks]))

    def bins(self, table: int) -> slice:
        return slice(self.objective.tables.offsets[table], self.objective.tables.offsets[table + 1])

    def of(self, table: int, output: int) -> TableChange:
        change = RowChange(self, table, output)
        return change.as_parabola() if self.loss.is_parabola and self.is_all else change

    def rise_without(self, table: int) -> float:
        loss, y, v = self.loss, self.y, self.v
        values = self.f[self.bins(table)]
        values = np.concatenate([values, np.zeros((1, *values.shape[1:]))])
        without = self.raw - values[self.codes(table)]
        shift = loss.refit_intercept(y, without, v, np.zeros(self.raw.shape[1]))
        return float(v @ (loss.values(y, without + shift) - self.values))


class RowChange:
    """A `TableChange` from rows.

    With a sample, the rise in a "corrected" bin is that of the parabola of all rows plus the distance of the sample's
    rise from the sample's own parabola.
    """

    def __init__(self, around: RowChanges, table: int, output: int):
        self._around, self._output = around, output
        self._codes = around.codes(table)
        bins = around.bins(table)
        self.f = np.append(_of_output(around.f, output)[bins], 0.0)
        self._residual, self._curvature = (_of_output(a, output) for a in (around.residual, around.curvature))
        self.weight = self._by_bin(around.v)
        self._curved = self._by_bin(around.v * self._curvature)
        if not around.is_all:
            self._pulled = self._by_bin(around.v * self._residual)
            self._pull_of_all = np.append(_of_output(around.pull_by_bin, output)[bins], 0.0)
            self._curvature_of_all = np.append(_of_output(around.curvature_by_bin, output)[bins], 0.0)

    def as_parabola(self) -> ParabolaChange:
        """The same where the loss is a parabola."""
        return ParabolaChange(self.f, self._curved, self._by_bin(self._around.v * self._residual))

    def _by_bin(self, values: np.ndarray) -> np.ndarray:
        return self._all_by_bin(values[None])[0]

    def _all_by_bin(self, values: np.ndarray) -> np.ndarray:
        """Sums by bin of several vectors."""
        out = np.empty((len(values), len(self.f)))
        kernels().sum_by_code(self._codes, np.ascontiguousarray(values), out, 0, len(values))
        return out

    def _by_row(self, by_bin: np.ndarray) -> np.ndarray:
        out, offsets = np.empty(len(self._codes)), np.array([0, len(by_bin)])
        kernels().matvec(self._codes[None], offsets, by_bin, np.zeros(1, dtype=np.int64), out, 0, len(out))
        return out

    def _moved(self, change: np.ndarray) -> np.ndarray:
        """The scores after a change of each bin."""
        raw, by_row = self._around.raw, self._by_row(change)
        if raw.ndim == 1:
            by_row += raw
            return by_row
        raw = raw.copy()
        raw[:, self._output] += by_row
        return raw

    def _rises(self, change: np.ndarray) -> np.ndarray:
        """The part of each row in the rise of the loss."""
        around = self._around
        return around.v * (around.loss.values(around.y, self._moved(change)) - around.values)

    def _correction(self, change: np.ndarray) -> np.ndarray:
        """By how much the parabolas of all rows rise more than the sample's, by bin."""
        more_curved, more_pulled = self._curvature_of_all - self._curved, self._pull_of_all - self._pulled
        return change * (0.5 * change * more_curved - more_pulled)

    def measure(self, change: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A group of bins is corrected if its rows' rises less their parabolas have the smaller sum of squares."""
        rises = self._rises(change)
        by_bin = self._by_bin(rises)
        if self._around.is_all:
            return by_bin, np.zeros(len(by_bin), dtype=bool)
        by_row = self._by_row(change)
        rest = rises - self._around.v * by_row * (0.5 * by_row * self._curvature - self._residual)
        squares, squares_of_rest = (np.bincount(groups, self._by_bin(a * a)) for a in (rises, rest))
        is_corrected = (squares_of_rest < squares)[groups]
        return by_bin + np.where(is_corrected, self._correction(change), 0.0), is_corrected

    def rises(self, change: np.ndarray, is_corrected: np.ndarray) -> np.ndarray:
        by_bin = self._by_bin(self._rises(change))
        return by_bin + np.where(is_corrected, self._correction(change), 0.0) if is_corrected.any() else by_bin

    def slopes(self, change: np.ndarray, is_corrected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        around, z = self._around, self._moved(change)
        both = np.empty((2, *z.T.shape))
        around.loss.evaluate(around.y, z, residual=both[0].T, curvature=both[1].T, v=around.v)
        pull, curved = self._all_by_bin(both if z.ndim == 1 else both[:, self._output])
        if is_corrected.any():
            more = self._curvature_of_all - self._curved
            pull = np.where(is_corrected, pull + self._pull_of_all - self._pulled - more * change, pull)
            curved = np.where(is_corrected, np.maximum(curved + more, 0.1 * self._curvature_of_all), curved)
        return pull, curved

    def majorized(self, change: np.ndarray) -> np.ndarray:
        around = self._around
        above = around.loss.majorized_curvature(around.y, self._moved(change))
        return np.zeros(len(self.f)) if above is None else self._by_bin(around.v * _of_output(above, self._output))


class ParabolaChange:
    """A `TableChange` where that is a parabola in each bin, as with squared error.

    f, weight, pull : by bin, with an entry more, for the rows without a bin; the weight is also the curvature
    """

    def __init__(self, f: np.ndarray, weight: np.ndarray, pull: np.ndarray):
        self.f, self.weight, self._pull = f, weight, pull

    def measure(self, change: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nowhere = np.zeros(len(change), dtype=bool)
        return self.rises(change, nowhere), nowhere

    def rises(self, change: np.ndarray, is_corrected: np.ndarray) -> np.ndarray:
        return change * (0.5 * change * self.weight - self._pull)

    def slopes(self, change: np.ndarray, is_corrected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._pull - self.weight * change, self.weight

    def majorized(self, change: np.ndarray) -> np.ndarray:
        return self.weight


def _of_output(values: np.ndarray, output: int) -> np.ndarray:
    return values if values.ndim == 1 else values[:, output]
