"""Pieces that are lines in the values of a column: scores, and the gradient for the basis (1, x - position).

The value of a line at a row depends on the row's own x, which is the position of its bin plus a distance from it. So
the score of a row is that of its bins plus, for each line, the slope times the distance; and the gradient needs sums by
bin of the residual times the distance besides those of the residual.
"""

from __future__ import annotations

from collections.abc import Iterator
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


def bin_moments(objective: RowObjective, tables: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """See `Objective.bin_moments`; what is known of a table is not computed again."""
    own, known = objective.tables, objective.known_moments
    new = [int(j) for j in tables if int(j) not in known]
    known.update(zip(new, _moments(objective, new), strict=True))
    means, spreads, bounds = np.full(own.n_coef, np.nan), np.zeros(own.n_coef), np.empty((len(tables), 2))
    for t, j in enumerate(tables):
        bins = slice(own.offsets[j], own.offsets[j + 1])
        means[bins], spreads[bins], bounds[t] = known[int(j)]
    objective.work.columns_read += len(new)
    return means, spreads, bounds


def _moments(objective: RowObjective, tables: list[int]) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each table, the means and spreads of x by bin, and its bounds."""
    own, offsets = objective.tables, objective.tables.offsets
    # The sums of v, v d and v d^2, d the distance from the position that the bin has so far, in units of the table's
    # largest position: squares of x could overflow. The last entry of a table is for rows without a bin.
    sums = [np.zeros((3, n + 1)) for n in own.n_bins[tables]]
    near = [np.append(np.nan_to_num(cast(np.ndarray, own.positions)[offsets[j] : offsets[j + 1]]), 0.0) for j in tables]
    units = [np.abs(positions).max() or 1.0 for positions in near]
    bounds = np.tile([np.inf, -np.inf], (len(tables), 1))
    columns = [int(own.columns[j, 0]) for j in tables]
    for block in objective._blocks if tables else ():
        for rows, values in cast("ColumnValues", block.values).columns(columns):
            for t, (j, x) in enumerate(zip(tables, values, strict=True)):
                codes, v = block.design.codes[j, rows].astype(np.intp), block.v[rows]
                is_finite = np.isfinite(x)
                if not is_finite.all():
                    codes, v, x = codes[is_finite], v[is_finite], x[is_finite]
                if len(x):
                    bounds[t] = min(bounds[t, 0], x.min()), max(bounds[t, 1], x.max())
                    x = (x - near[t][codes]) / units[t]
                    for power, by_row in enumerate((v, v * x, v * x * x)):
                        sums[t][power] += np.bincount(codes, by_row, minlength=sums[t].shape[1])
    for t in range(len(tables)):
        weight = np.where(sums[t][0] > 0, sums[t][0], np.nan)[:-1]
        moved, square = (a[:-1] / weight for a in sums[t][1:])
        means = near[t][:-1] + units[t] * moved
        yield means, units[t] * np.sqrt(np.nan_to_num(np.maximum(square - moved**2, 0.0))), bounds[t]


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
            bins = slice(objective.tables.offsets[j], objective.tables.offsets[j + 1])
            by_output = slopes[bins].reshape(bins.stop - bins.start, -1).T
            for own, scores in zip(by_output, np.atleast_2d(raw.T), strict=True):
                if own.any():
                    scores += np.append(own, 0.0)[block.design.codes[j]] * lines.of(b, j)


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
