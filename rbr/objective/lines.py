"""Pieces that are lines in the values of a column: scores, and the gradient for the basis (1, x - position).

The value of a line at a row depends on the row's own x, which is the position of its bin plus a distance from it. So
the score of a row is that of its bins plus, for each line, the slope times the distance; and the gradient needs sums by
bin of the residual times the distance besides those of the residual.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from rbr.objective.protocol import Handle, Point

if TYPE_CHECKING:
    from rbr.objective.rows import RowBlock, RowObjective
    from rbr.objective.values import ColumnValues


@dataclass(frozen=True, eq=False)
class Distances(Handle):
    """x - position of its bin, for each table and block, by row; 0 where x is not finite or has no bin."""

    tables: np.ndarray
    positions: np.ndarray
    by_block: list[list[np.ndarray]]

    def of(self, block: int, table: int) -> np.ndarray:
        return self.by_block[block][int(np.searchsorted(self.tables, table))]


def bin_means(objective: RowObjective, tables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """See `Objective.bin_means`."""
    means, bounds = np.full(objective.tables.n_coef, np.nan), np.full((len(tables), 2), np.nan)
    for t, j in enumerate(tables):
        bins = slice(objective.tables.offsets[j], objective.tables.offsets[j + 1])
        moment, weight = np.zeros(bins.stop - bins.start), np.zeros(bins.stop - bins.start)
        for block in objective._blocks:
            x, v = _values(objective, block, j), block.v
            is_finite = np.isfinite(x)
            if not is_finite.all():
                x, v = np.where(is_finite, x, 0.0), np.where(is_finite, v, 0.0)
            for total, values in ((moment, v * x), (weight, v)):
                total += block.design.rmatvec(values, features=[j], n_threads=objective.n_threads)[bins]
            if is_finite.any():
                x = x if is_finite.all() else x[is_finite]
                bounds[t] = np.fmin(bounds[t, 0], x.min()), np.fmax(bounds[t, 1], x.max())
        np.divide(moment, weight, out=means[bins], where=weight > 0)
    objective.work.columns_read += 2 * len(tables)
    return means, bounds


def distances(objective: RowObjective, tables: np.ndarray, positions: np.ndarray) -> Distances:
    """See `Objective.distances`."""
    by_block = []
    for block in objective._blocks:
        of_block = []
        for j in tables:
            x, codes = _values(objective, block, j), block.design.codes[j]
            own = positions[objective.tables.offsets[j] : objective.tables.offsets[j + 1]]
            away = x - np.append(own, np.nan)[codes]
            of_block.append(np.where(np.isfinite(away), away, 0.0))
        by_block.append(of_block)
    return Distances(np.asarray(tables), positions, by_block)


def add_slopes(objective: RowObjective, raws: list[np.ndarray], slopes: np.ndarray, lines: Distances) -> None:
    """Add slope * (x - position) to the scores of each block."""
    for b, (block, raw) in enumerate(zip(objective._blocks, raws, strict=True)):
        for j in lines.tables:
            own = slopes[objective.tables.offsets[j] : objective.tables.offsets[j + 1]]
            own = np.concatenate([own, np.zeros_like(own[:1])])[block.design.codes[j]]
            raw += (own.T * lines.of(b, j)).T


def line_gradient(objective: RowObjective, point: Point, lines: Distances) -> np.ndarray:
    """See `Objective.line_gradient`."""
    residuals = objective.residuals(point).weighted
    out = np.zeros((objective.tables.n_coef, 2, objective.n_outputs))
    everything = np.union1d(point.support, lines.tables)
    plain = objective._bin_sums(residuals, everything)
    out[:, 0] = -plain.reshape(len(plain), -1)
    for j in lines.tables:
        bins = slice(objective.tables.offsets[j], objective.tables.offsets[j + 1])
        for b, (block, residual) in enumerate(zip(objective._blocks, residuals, strict=True)):
            by_row = (residual.T * lines.of(b, j)).T
            sums = block.design.rmatvec(by_row, features=[j], n_threads=objective.n_threads)
            out[bins, 1] -= sums[bins].reshape(bins.stop - bins.start, -1)
    objective.work.columns_read += len(lines.tables)
    return out[:, :, 0] if objective.n_outputs == 1 else out


def _values(objective: RowObjective, block: RowBlock, table: int) -> np.ndarray:
    values = cast("ColumnValues", block.values)  # `_check_values` has made sure of them
    return values.column(int(objective.tables.columns[table, 0]))
