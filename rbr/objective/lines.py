"""Pieces that are lines in the values of a column: scores, and the gradient for the basis (1, x - position).

The value of a line at a row depends on the row's own x, which is the position of its bin plus a distance from it. So
the score of a row is that of its bins plus, for each line, the slope times the distance; and the gradient needs sums by
bin of the residual times the distance besides those of the residual.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import numpy as np

from rbr._backend import kernels
from rbr._parallel import over_ranges
from rbr.data.design import MAX_STRETCHES
from rbr.objective.protocol import Handle, Point, Tables

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


@dataclass(frozen=True, eq=False)
class _Axes:
    """Some tables and their columns, where their bins begin in a list, and numbers near x with the unit of each."""

    tables: np.ndarray
    columns: np.ndarray
    starts: np.ndarray
    near: np.ndarray
    units: np.ndarray

    @classmethod
    def of(cls, own: Tables, listed: np.ndarray) -> _Axes:
        starts = np.append(0, np.cumsum(own.n_bins[listed]))
        near = np.nan_to_num(cast(np.ndarray, own.positions)[own.bins_of(listed)])
        exponents = [np.frexp(np.abs(near[a:b]).max() or 1.0)[1] for a, b in pairwise(starts)]
        # Powers of two, so that multiplying by one over a unit rounds nothing.
        return cls(listed, own.columns[listed, 0], starts, near, np.ldexp(1.0, np.maximum(exponents, -1000)))

    def part(self, first: int, last: int) -> _Axes:
        own, bins = slice(first, last), slice(self.starts[first], self.starts[last])
        starts = self.starts[first : last + 1] - self.starts[first]
        return _Axes(self.tables[own], self.columns[own], starts, self.near[bins], self.units[own])


def _moments(objective: RowObjective, tables: list[int]) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each table, the means and spreads of x by bin, and its bounds."""
    if not tables:
        return
    # The sums of v, v d and v d^2, d the distance from the position that the bin has so far, in units of the size
    # of the table's largest position: squares of x could overflow.
    axes = _Axes.of(objective.tables, np.array(tables, dtype=np.int64))
    sums, bounds = np.zeros((axes.starts[-1], 3)), np.tile([np.inf, -np.inf], (len(tables), 1))
    for block in objective._blocks:
        values = cast("ColumnValues", block.values)
        values.need(axes.columns.tolist())
        for first, last, stretches in values.tiles(len(tables)):
            bins = slice(axes.starts[first], axes.starts[last])
            some, own = axes.part(first, last), (sums[bins], bounds[first:last])
            for found in _moments_of_stretches(block, some, stretches, objective.n_threads):
                own[0][...] += found[0]
                np.minimum(own[1][:, 0], found[1][:, 0], out=own[1][:, 0])
                np.maximum(own[1][:, 1], found[1][:, 1], out=own[1][:, 1])
    for t, (a, b) in enumerate(pairwise(axes.starts)):
        weight = np.where(sums[a:b, 0] > 0, sums[a:b, 0], np.nan)
        moved, square = (sums[a:b, power] / weight for power in (1, 2))
        means = axes.near[a:b] + axes.units[t] * moved
        yield means, axes.units[t] * np.sqrt(np.nan_to_num(np.maximum(square - moved**2, 0.0))), bounds[t]


def _moments_of_stretches(block: RowBlock, axes: _Axes, stretches: list[slice], n_threads: int):
    """(sums, bounds) of groups of stretches: the same groups, and so the same bits, for any number of threads."""
    length = -(-len(stretches) // MAX_STRETCHES)
    groups = [stretches[start : start + length] for start in range(0, len(stretches), length)]
    found = [(np.zeros((axes.starts[-1], 3)), np.tile([np.inf, -np.inf], (len(axes.tables), 1))) for _ in groups]
    values = cast("ColumnValues", block.values)

    def add(first: int, last: int) -> None:
        for group, outs in zip(groups[first:last], found[first:last], strict=True):
            for rows in group:
                of_rows = block.design.codes[:, rows], axes.tables, axes.starts, *values.columns(axes.columns, rows)
                kernels().bin_moments(*of_rows, block.v[rows], axes.near, 1.0 / axes.units, *outs, 0, len(axes.tables))

    over_ranges(add, len(groups), n_threads)
    return found


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
