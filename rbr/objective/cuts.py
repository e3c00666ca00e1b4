"""Jumps inside bins: the rows near the jumps of a table, sorted by value, and tables cut at other edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from rbr.data.edges import codes_of
from rbr.objective.jumps import Atoms, BetterJumps, Jumps
from rbr.objective.jumps import better_jumps as search
from rbr.objective.protocol import Objective, Point

if TYPE_CHECKING:
    from rbr.objective.rows import RowBlock, RowObjective
    from rbr.objective.values import ColumnValues

# The means and spreads of x by bin of a table, and its bounds; see `Objective.bin_moments`.
Moments = tuple[np.ndarray, np.ndarray, np.ndarray]

# The place of a jump matters if a step beside it could be worth this part of a piece.
LEAST_STAKE = 0.05


def better_jumps(objective: RowObjective, point: Point, jumps: Mapping[int, Jumps]) -> dict[int, BetterJumps]:
    """See `Objective.better_jumps`."""
    curvature = objective.curvature(point)
    if curvature is not None and not any(a.any() for a in curvature.by_row):
        # All rows are where the loss is straight (Huber, quantile): use the parabolas above it.
        curvature = objective.curvature(point, majorize=True)
    if curvature is None or not jumps:
        return {}
    tables, offsets = np.array(sorted(jumps)), objective.tables.offsets
    residuals = objective.residuals(point).weighted
    by_bin, _ = objective.curvature_sums(point, tables, curvature=curvature)
    if point.gradient is None:
        pulls = objective._bin_sums(residuals, tables)
    else:
        pulls = -(objective.tables.weights * point.gradient.T).T
    pulls, by_bin, f = (a.reshape(objective.tables.n_coef, -1) for a in (pulls, by_bin, point.f))
    pulls = pulls + by_bin * f  # where the parabola of a bin is least, times its curvature
    bins = {j: slice(offsets[j], offsets[j] + len(jumps[j].labels)) for j in tables.tolist()}
    share = objective.options.opened_share if objective.has_many_rows else np.inf
    opened = opened_bins(objective, {j: (jumps[j], by_bin[own], f[own]) for j, own in bins.items()}, share)
    found = {}
    for j, own in bins.items():
        if not opened[j].any():
            continue
        rows = _rows_of(objective, j, opened[j], residuals, curvature.by_row)
        whole = np.flatnonzero(~opened[j] & (objective.tables.shares[own] > 0))
        atoms = atoms_of(rows, whole, pulls[own], by_bin[own], f[own])
        better = search(atoms, jumps[j])
        if better is not None:
            found[j] = better
    return found


def opened_bins(
    objective: Objective, tables: Mapping[int, tuple[Jumps, np.ndarray, np.ndarray]], share: float
) -> dict[int, np.ndarray]:
    """{table: which bins are opened to jumps inside them}: those on both sides of a jump whose place matters.

    A step inside a bin is worth up to an eighth of the curvature there times its height squared. Where that is far less
    than a piece costs, only averages gain by a better place: their steps are spread over many small jumps. At most
    that share of the rows is sorted: those beside the largest stakes.
    """
    stakes, shares = [], objective.tables.shares
    for j, (own, curvatures, f) in tables.items():
        cuts = np.flatnonzero((own.labels[:-1] != own.labels[1:]).any(axis=1))
        worth = ((curvatures[cuts] + curvatures[cuts + 1]) * (f[cuts + 1] - f[cuts]) ** 2).sum(axis=1)
        least = 0.0 if own.keeps_levels else LEAST_STAKE * own.price
        stakes += [
            (-stake / 8, j, k) for stake, k in zip(worth.tolist(), cuts.tolist(), strict=True) if stake / 8 >= least
        ]
    left = share
    opened = {j: np.zeros(len(own.labels), dtype=bool) for j, (own, _, _) in tables.items()}
    for _, j, k in sorted(stakes):
        if left <= 0:
            break
        for bin_beside in (k, k + 1):
            left -= 0.0 if opened[j][bin_beside] else shares[objective.tables.offsets[j] + bin_beside]
            opened[j][bin_beside] = True
    return opened


def _rows_of(objective: RowObjective, table: int, opened: np.ndarray, residuals, curvatures):
    """(bins, values, weighted residuals, curvatures) of the rows in opened bins, over all blocks."""
    is_open = np.zeros(int(objective.tables.n_bins[table]) + 1, dtype=bool)
    is_open[: len(opened)] = opened
    column = int(objective.tables.columns[table, 0])
    parts = []
    for block, residual, curvature in zip(objective._blocks, residuals, curvatures, strict=True):
        codes = block.design.codes[table]
        rows = np.flatnonzero(is_open[codes])
        of_rows = (a[rows].reshape(len(rows), objective.n_outputs) for a in (residual, curvature))
        parts.append((codes[rows].astype(np.intp), _values(block).column(column, rows), *of_rows))
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def atoms_of(rows, whole: np.ndarray, pulls: np.ndarray, curvatures: np.ndarray, f: np.ndarray) -> Atoms:
    """The distinct values of the given rows, and some whole bins, in ascending order."""
    bins, values, residuals, row_curvatures = rows
    order = np.argsort(values)
    bins, values, row_curvatures = bins[order], values[order], row_curvatures[order]
    row_pulls = residuals[order] + row_curvatures * f[bins]
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])
    if len(starts):
        row_pulls, row_curvatures = (np.add.reduceat(a, starts, axis=0) for a in (row_pulls, row_curvatures))
    all_bins = np.concatenate([bins[starts], whole])
    place = np.argsort(all_bins, kind="stable")
    return Atoms(
        all_bins[place],
        np.concatenate([values[starts], np.full(len(whole), np.nan)])[place],
        np.concatenate([row_pulls, pulls[whole]])[place],
        np.concatenate([row_curvatures, curvatures[whole]])[place],
        f,
    )


def _values(block: RowBlock) -> ColumnValues:
    return cast("ColumnValues", block.values)  # `_check_values` has made sure of them


def rebinned(
    blocks: Sequence[RowBlock],
    edges: Mapping[int, tuple[np.ndarray, np.ndarray]],
    read: np.ndarray | None,
    known: Mapping[int, Moments],
) -> tuple[list[RowBlock], dict[int, Moments]]:
    """The blocks with some tables cut at other edges and with the shares and means of the new bins; known moments of x.

    Where it is said which tables will be read, only their codes are copied: memory that is never touched costs nothing.
    Of the moments that are known those in bins beside moved edges are found again: no other bin has changed.
    """
    first = blocks[0].design
    positions = None if first.positions is None else first.positions.copy()
    codes = [_copied(block.design.codes, read) for block in blocks]
    shares = [block.design.with_weights("counts").weights.copy() for block in blocks]
    moments = dict(known)
    for j, (before, after) in edges.items():
        # Edges ascend, so only rows in bins beside moved edges can change their bin.
        moved, ordered = np.flatnonzero(before != after), slice(first.offsets[j], first.offsets[j] + len(after) + 1)
        is_touched = np.zeros(int(first.n_bins[j]) + 1, dtype=bool)
        is_touched[moved], is_touched[moved + 1] = True, True
        weight, moment = np.zeros(len(after) + 1), np.zeros(len(after) + 1)
        around = _Around(known[j], cast(np.ndarray, first.positions)[ordered]) if j in known else None
        for block, own_codes, own_shares in zip(blocks, codes, shares, strict=True):
            rows = np.flatnonzero(is_touched[own_codes[j]])
            values, v = _values(block).column(int(first.columns[j, 0]), rows), block.v[rows]
            new = codes_of(values, after)
            own_codes[j, rows] = new
            _share_out(own_shares[ordered], is_touched[: len(weight)], np.bincount(new, v, minlength=len(weight)))
            finite = np.isfinite(values)
            weight += np.bincount(new[finite], v[finite], minlength=len(weight))
            moment += np.bincount(new[finite], v[finite] * values[finite], minlength=len(weight))
            if around is not None:
                around.add(new[finite], values[finite], v[finite])
        if positions is not None:
            np.divide(moment, weight, out=positions[ordered], where=weight > 0)
        if around is not None:
            moments[j] = around.moments(np.flatnonzero(is_touched[: len(weight)]), weight)
    blocks_after = [
        replace(block, design=block.design.recoded(own_codes, positions, own_shares))
        for block, own_codes, own_shares in zip(blocks, codes, shares, strict=True)
    ]
    return blocks_after, moments


class _Around:
    """Sums by ordered bin of the distances of x from the positions of the bins, and of their squares."""

    def __init__(self, known: Moments, positions: np.ndarray):
        self.known, self.near = known, np.nan_to_num(positions)
        # As in `Objective.bin_moments`, squares of x could overflow.
        self.unit = np.ldexp(1.0, max(int(np.frexp(np.abs(self.near).max() or 1.0)[1]), -1000))
        self.sums = np.zeros((2, len(positions)))

    def add(self, bins: np.ndarray, values: np.ndarray, v: np.ndarray) -> None:
        away = (values - self.near[bins]) / self.unit
        for power, sums in enumerate(self.sums, 1):
            sums += np.bincount(bins, v * away**power, minlength=len(sums))

    def moments(self, bins: np.ndarray, weight: np.ndarray) -> Moments:
        """What was known, with the means and spreads of some bins as the sums say, given the weights of all bins."""
        means, spreads, bounds = (a.copy() for a in self.known)
        weight = np.where(weight[bins] > 0, weight[bins], np.nan)
        moved, square = self.sums[:, bins] / weight
        means[bins] = self.near[bins] + self.unit * moved
        spreads[bins] = self.unit * np.sqrt(np.nan_to_num(np.maximum(square - moved**2, 0.0)))
        return means, spreads, bounds


def _copied(codes: np.ndarray, read: np.ndarray | None) -> np.ndarray:
    if read is None:
        return codes.copy()
    out = np.zeros(codes.shape, dtype=codes.dtype)
    for j in read:
        out[j] = codes[j]
    return out


def _share_out(shares: np.ndarray, bins: np.ndarray, weights: np.ndarray) -> None:
    """Divide what some bins have together of all rows among them again, by the weights of their rows, in place."""
    if weights.any():
        shares[bins] = weights[bins] * (shares[bins].sum() / weights[bins].sum())
