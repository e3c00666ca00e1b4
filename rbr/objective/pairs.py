"""Rows in memory by the cells of pairs: the objective over some pairs, and the sums by which all pairs are judged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rbr.data.design import BinnedMatrix
from rbr.data.grids import CoarseBins, cells_of
from rbr.objective import hessians
from rbr.objective.protocol import Groups, Point

if TYPE_CHECKING:
    from rbr.objective.rows import RowBlock, RowObjective


def over_pairs(objective: RowObjective, coarse: CoarseBins, pairs: np.ndarray) -> RowObjective:
    """See `Objective.over_pairs`."""
    n_cells = coarse.n_bins[pairs[:, 0]] * coarse.n_bins[pairs[:, 1]]
    offsets = np.concatenate([[0], np.cumsum(n_cells)]).astype(np.int64)
    columns = np.array([objective.tables.columns[pair, 0] for pair in pairs], dtype=np.int64).reshape(-1, 2)
    blocks = [
        replace(
            block,
            design=_cells(block, coarse, pairs, n_cells, offsets, columns, objective.n_threads),
            values=None,
            given_keys=block.keys,
        )
        for block in objective._blocks
    ]
    return objective._with(blocks, objective.n_total, is_part_of_many=objective._is_part_of_many)


def _cells(
    block: RowBlock, coarse: CoarseBins, pairs, n_cells, offsets, columns: np.ndarray, n_threads: int
) -> BinnedMatrix:
    """The cell of each row in each pair; a row without a bin in one of the columns has no cell."""
    dtype = np.uint8 if n_cells.max(initial=0) < 256 else np.uint16
    codes = np.empty((len(pairs), block.n_rows), dtype=dtype)
    cells_of(block.design.codes, coarse, pairs, n_cells, codes)
    missing = np.zeros(len(pairs), dtype=bool)
    return BinnedMatrix._of_codes(
        codes, offsets, missing, None, block.sample_weight, n_threads, columns, coarse.sides(pairs)
    )


def joint_sums(objective: RowObjective, point: Point, coarse: CoarseBins, tables: np.ndarray, majorize: bool):
    """See `Objective.joint_sums`."""
    groups = Groups(tables, objective.tables.offsets, coarse.of_bin, coarse.n_bins[tables])
    chosen = objective._spread(objective.options.rows_by_pairs)
    residuals, curvature = objective.residuals(point), objective.curvature(point, majorize)
    if curvature is None:
        raise ValueError(f"loss {objective.loss.name!r} has no parabolas above it; ask for its own curvature")
    share = sum(float(block.v[rows].sum()) for block, rows in zip(objective._blocks, chosen, strict=True))
    size = int(groups.offsets[-1])
    sums = np.zeros((2, objective.n_outputs, size, size))
    for b, (block, rows) in enumerate(zip(objective._blocks, chosen, strict=True)):
        codes = hessians.merged_codes(block.design.codes, groups, rows if isinstance(rows, np.ndarray) else None)
        for kind, by_row in enumerate((residuals.weighted[b], curvature.by_row[b])):
            for output, own in enumerate(np.atleast_2d(by_row.T)):
                weights = np.ascontiguousarray(own[rows])
                sums[kind, output] += hessians.cross_tabulation(codes, groups.offsets, weights, objective.n_threads)
        n_pairs = len(tables) * (len(tables) - 1) // 2
        objective.work.columns_read += 2 * n_pairs * objective.n_outputs * codes.shape[1] / objective._n_rows
    return sums[0] / share, sums[1] / share, groups.offsets
