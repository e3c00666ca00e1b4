"""Rows of parts by the cells of pairs; see `rbr.objective.pairs` for rows in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rbr.data.design import BinnedMatrix
from rbr.data.grids import CoarseBins, cells_of
from rbr.objective import hessians
from rbr.objective.parts_leaves import Leaf, Part, Whole
from rbr.objective.protocol import Groups, Point, Tables

if TYPE_CHECKING:
    from rbr.objective.parts import PartsObjective


def over_pairs(objective: PartsObjective, coarse: CoarseBins, pairs: np.ndarray) -> PartsObjective:
    """See `Objective.over_pairs`."""
    n_cells = coarse.n_bins[pairs[:, 0]] * coarse.n_bins[pairs[:, 1]]
    offsets = np.concatenate([[0], np.cumsum(n_cells)]).astype(np.int64)
    columns = np.array([objective.tables.columns[pair, 0] for pair in pairs], dtype=np.int64).reshape(-1, 2)
    nothing = np.zeros(int(offsets[-1]))
    layout = Tables(offsets, nothing, nothing, np.zeros(len(pairs), dtype=bool), None, columns, coarse.sides(pairs))
    parts = objective._parts.mapped(objective._whole, cells_part, coarse=coarse, pairs=pairs, layout=layout)
    return objective._over(parts, layout=layout, facts=replace(objective._facts, has_values=False), is_uniform=False)


def cells_part(part: Part, whole: Whole, *, coarse: CoarseBins, pairs: np.ndarray, layout: Tables) -> Part:
    """The part with the cell of each row in each pair for its codes."""
    n_cells = np.diff(layout.offsets)
    codes = part.empty((len(pairs), part.n_rows), np.uint8 if n_cells.max(initial=0) < 256 else np.uint16)
    for leaf in part.leaves(whole):
        cells_of(leaf.codes, coarse, pairs, n_cells, codes[:, leaf.rows])
    fields = codes, layout.offsets, layout.missing, None, layout.columns, "counts", layout.shares
    design = BinnedMatrix._from_valid(*fields, grids=layout.grids)
    return replace(part, design=design, values=None, given=part.as_given)


def cross_sums(
    leaf: Leaf, residual: np.ndarray, curvature: np.ndarray, *, groups: Groups, n_sampled: int
) -> np.ndarray:
    """(2, n_outputs, n, n): sums of v r and of v h over the rows of each pair of groups."""
    rows = leaf.sampled(n_sampled)
    codes = hessians.merged_codes(leaf.codes, groups, None if isinstance(rows, slice) else rows)
    return np.array(
        [
            [
                hessians.cross_tabulation(codes, groups.offsets, np.ascontiguousarray(own[rows]), leaf.n_threads)
                for own in np.atleast_2d(by_row.T)
            ]
            for by_row in (residual, curvature)
        ]
    )


def joint_sums(objective: PartsObjective, point: Point, coarse: CoarseBins, tables: np.ndarray, majorize: bool):
    """See `Objective.joint_sums`."""
    groups = Groups(tables, objective.tables.offsets, coarse.of_bin, coarse.n_bins[tables])
    residuals, curvature = objective.residuals(point), objective.curvature(point, majorize)
    if curvature is None:
        raise ValueError(f"loss {objective.loss.name!r} has no parabolas above it; ask for its own curvature")
    n_sampled = min(objective.options.rows_by_pairs, objective._n_rows)
    share = objective._share_of(n_sampled)
    sums = objective._total(cross_sums, residuals, curvature.by_row, groups=groups, n_sampled=n_sampled)
    n_pairs = len(tables) * (len(tables) - 1) // 2
    objective.work.columns_read += 2 * n_pairs * objective.n_outputs * n_sampled / objective._n_rows
    return sums[0] / share, sums[1] / share, groups.offsets
