"""Pieces that are lines in the values of a column: gradient and Hessian for the basis (1, x - anchor).

A line's value at a row depends on the row's own x. So the gradient in its slope needs sums by bin of the residual times
x - anchor besides those of the residual, and a Hessian between such pieces is a product of the rows' basis with itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from rbr.losses.sums import BLOCK_ROWS
from rbr.objective.protocol import Groups, Hessian, Point

if TYPE_CHECKING:
    from rbr.objective.rows import RowBlock, RowObjective
    from rbr.objective.values import ColumnValues


def line_gradient(objective: RowObjective, point: Point, tables: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    """See `Objective.line_gradient`."""
    residuals = objective.residuals(point).weighted
    out = np.zeros((objective.tables.n_coef, 2, objective.n_outputs))
    everywhere = np.append(anchors, 0.0)
    for j in tables:
        first, n_bins = objective.tables.offsets[j], objective.tables.n_bins[j]
        own = everywhere[first : first + n_bins + 1].copy()
        own[n_bins] = 0.0  # a row without a bin has no line
        for block, residual in zip(objective._blocks, residuals, strict=True):
            codes = block.design.codes[j].astype(np.intp)
            distance = _distance(_values(objective, block, j), own[codes])
            for c, by_row in enumerate(np.atleast_2d(residual.T)):
                for power, values in enumerate((by_row, by_row * distance)):
                    out[first : first + n_bins, power, c] -= np.bincount(codes, values, minlength=n_bins + 1)[:n_bins]
    objective.work.columns_read += len(tables)
    return out[:, :, 0] if objective.n_outputs == 1 else out


def line_hessian(
    objective: RowObjective, point: Point, groups: Groups, anchors: np.ndarray, majorize: bool, output: int
) -> Hessian | None:
    """See `Objective.line_hessian`."""
    curvature = objective.curvature(point, majorize)
    if curvature is None:
        return None
    n_groups = int(groups.offsets[-1])
    matrix, coupling = np.zeros((2 * n_groups, 2 * n_groups)), np.zeros(2 * n_groups)
    for block, by_row in zip(objective._blocks, curvature.of_output(output), strict=True):
        values = [_values(objective, block, j) for j in groups.tables]
        for first in range(0, block.n_rows, BLOCK_ROWS):
            rows = slice(first, min(first + BLOCK_ROWS, block.n_rows))
            basis = _basis(block, groups, anchors, values, rows)
            weighted = basis * by_row[rows, None]
            matrix += basis.T @ weighted
            coupling += weighted.sum(axis=0)
    n_tables = len(groups.tables)
    objective.work.columns_read += n_tables * (n_tables + 1) // 2
    total = float(sum(a.sum() for a in curvature.of_output(output)))
    return Hessian((matrix + matrix.T) / 2, coupling, total)


def _basis(block: RowBlock, groups: Groups, anchors: np.ndarray, values, rows: slice) -> np.ndarray:
    """(n_rows, 2 n_groups): for each group a column that marks its rows, and one with their x - anchor."""
    n_rows = rows.stop - rows.start
    basis = np.zeros((n_rows, 2 * int(groups.offsets[-1])))
    for t, j in enumerate(groups.tables):
        n = int(groups.n_groups[t])
        group = np.append(groups.of_bin[groups.bins(j)], n)[block.design.codes[j, rows]]
        inside = np.flatnonzero(group < n)
        column = groups.offsets[t] + group[inside]
        basis[inside, 2 * column] = 1.0
        basis[inside, 2 * column + 1] = _distance(values[t][rows][inside], anchors[column])
    return basis


def _values(objective: RowObjective, block: RowBlock, table: int) -> np.ndarray:
    values = cast("ColumnValues", block.values)  # `_check_values` has made sure of them
    return values.column(int(objective.tables.columns[table, 0]))


def _distance(x: np.ndarray, anchor: np.ndarray) -> np.ndarray:
    """x - anchor, and 0 where x is not finite."""
    is_finite = np.isfinite(x)
    return np.where(is_finite, np.where(is_finite, x, 0.0) - anchor, 0.0)
