"""Parts whose values are at hand: lines in x and jumps inside bins; see `rbr.objective.lines` and `cuts` for memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rbr.data.design import BinnedMatrix
from rbr.data.edges import codes_of
from rbr.objective import parts_sums
from rbr.objective.cuts import atoms_of, opened_bins
from rbr.objective.jumps import BetterJumps, Jumps
from rbr.objective.jumps import better_jumps as search
from rbr.objective.parts_leaves import Leaf, Part, Whole
from rbr.objective.protocol import Handle, Point

if TYPE_CHECKING:
    from rbr.objective.parts import PartsObjective
    from rbr.objective.parts_run import Kept

# At most this many rows beside jumps, over all tables, are brought together to be sorted.
MOST_SORTED_ROWS = 1 << 20


# Lines -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Distances(Handle):
    """x - position of its bin, for each row and table; 0 where x is not finite or has no bin."""

    tables: np.ndarray
    positions: np.ndarray
    by_row: Kept | None


@dataclass(frozen=True, eq=False)
class _Axis:
    """One table with its column: positions with one more for rows without a bin, and the unit of x."""

    table: int
    column: int
    positions: np.ndarray
    unit: float


def bin_moments(objective: PartsObjective, tables: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """See `Objective.bin_moments`."""
    own, offsets, axes = objective.tables, objective.tables.offsets, []
    for j in np.asarray(tables).tolist():
        near = np.append(np.nan_to_num(own.positions[offsets[j] : offsets[j + 1]]), 0.0)  # type: ignore[index]
        axes.append(_Axis(j, int(own.columns[j, 0]), near, float(np.abs(near).max() or 1.0)))
    means, spreads = np.full(own.n_coef, np.nan), np.zeros(own.n_coef)
    bounds = np.tile([np.inf, -np.inf], (len(axes), 1))
    if axes:
        of_leaves = np.array(objective._listed(_bounds, axes=axes))
        bounds = np.stack([of_leaves[..., 0].min(axis=0), of_leaves[..., 1].max(axis=0)], axis=1)
    sums = objective._total(_moments, axes=axes) if len(axes) else ()
    for axis, of_table in zip(axes, [sums] if len(axes) == 1 else sums, strict=True):
        bins = slice(offsets[axis.table], offsets[axis.table + 1])
        weight = np.where(of_table[0] > 0, of_table[0], np.nan)[:-1]
        moved, square = (a[:-1] / weight for a in of_table[1:])
        means[bins] = axis.positions[:-1] + axis.unit * moved
        spreads[bins] = axis.unit * np.sqrt(np.nan_to_num(np.maximum(square - moved**2, 0.0)))
    objective.work.columns_read += len(axes)
    return means, spreads, bounds


def _bounds(leaf: Leaf, *, axes: list[_Axis]) -> list[tuple[float, float]]:
    leaf.need([axis.column for axis in axes])
    bounds = []
    for axis in axes:
        x = leaf.column(axis.column)
        x = x[np.isfinite(x)]
        bounds.append((float(x.min(initial=np.inf)), float(x.max(initial=-np.inf))))
    return bounds


def _moments(leaf: Leaf, *, axes: list[_Axis]) -> tuple:
    """For each table the sums by bin of v, v d and v d^2, d the distance from the bin's position in units of x."""
    out = []
    for axis in axes:
        x, codes, v = leaf.column(axis.column), leaf.codes[axis.table], leaf.v
        is_finite = np.isfinite(x)
        if not is_finite.all():
            codes, v, x = codes[is_finite], v[is_finite], x[is_finite]
        x = (x - axis.positions[codes]) / axis.unit
        n = len(axis.positions)
        out.append(np.array([np.bincount(codes, by_row, minlength=n) for by_row in (v, v * x, v * x * x)]))
    return tuple(out)


def distances(objective: PartsObjective, tables: np.ndarray, positions: np.ndarray) -> Distances:
    """See `Objective.distances`."""
    own, tables = objective.tables, np.asarray(tables)
    axes = [
        _Axis(j, int(own.columns[j, 0]), np.append(positions[own.offsets[j] : own.offsets[j + 1]], np.nan), 1.0)
        for j in tables.tolist()
    ]
    return Distances(tables, positions, objective._rows(_distances, axes=axes) if axes else None)


def _distances(leaf: Leaf, *, axes: list[_Axis]) -> np.ndarray:
    out = np.empty((leaf.n_rows, len(axes)), order="F")
    for t, axis in enumerate(axes):
        away = leaf.column(axis.column) - axis.positions[leaf.codes[axis.table]]
        out[:, t] = np.where(np.isfinite(away), away, 0.0)
    return out


def with_slopes(objective: PartsObjective, raw: Kept, slopes: np.ndarray, lines: Distances) -> Kept:
    """Scores with slope * (x - position) added to them."""
    if lines.by_row is None:
        return raw
    offsets = objective.tables.offsets
    by_table = {int(j): slopes[offsets[j] : offsets[j + 1]] for j in lines.tables}
    return objective._rows(_with_slopes, raw, lines.by_row, slopes=by_table)


def _with_slopes(leaf: Leaf, raw: np.ndarray, away: np.ndarray, *, slopes: dict[int, np.ndarray]) -> np.ndarray:
    raw = np.array(raw, order="F")
    for t, (j, own) in enumerate(slopes.items()):
        own = np.concatenate([own, np.zeros_like(own[:1])])[leaf.codes[j]]
        raw += (own.T * away[:, t]).T
    return raw


def line_gradient(objective: PartsObjective, point: Point, lines: Distances) -> np.ndarray:
    """See `Objective.line_gradient`."""
    residuals, tables = objective.residuals(point), np.asarray(lines.tables, dtype=np.int64)
    out = np.zeros((objective.tables.n_coef, 2, objective.n_outputs))
    plain = objective._bin_sums(residuals, np.union1d(point.support, tables))
    out[:, 0] = -plain.reshape(len(plain), -1)
    if lines.by_row is not None:
        sums = objective._total(_sums_times_distance, residuals, lines.by_row, tables=tables)
        out[objective.tables.bins_of(tables), 1] = -sums.reshape(len(sums), -1)
        objective.work.columns_read += len(tables)
    return out[:, :, 0] if objective.n_outputs == 1 else out


def _sums_times_distance(leaf: Leaf, residual: np.ndarray, away: np.ndarray, *, tables: np.ndarray) -> np.ndarray:
    return np.concatenate(
        [parts_sums.bin_sums(leaf, (residual.T * away[:, t]).T, tables=tables[t : t + 1]) for t in range(len(tables))]
    )


# Jumps inside bins -------------------------------------------------------------------------------------------


def better_jumps(objective: PartsObjective, point: Point, jumps: Mapping[int, Jumps]) -> dict[int, BetterJumps]:
    """See `Objective.better_jumps`; only the rows in the bins beside jumps leave their parts, to be sorted."""
    curvature = objective.curvature(point)
    if curvature is not None and not np.any(objective._curvature_total(curvature)):
        curvature = objective.curvature(point, majorize=True)
    if curvature is None or not jumps:
        return {}
    tables, offsets, n_coef = np.array(sorted(jumps)), objective.tables.offsets, objective.tables.n_coef
    residuals = objective.residuals(point)
    by_bin, _ = objective.curvature_sums(point, tables, curvature=curvature)
    if point.gradient is None:
        pulls = objective._bin_sums(residuals, tables)
    else:
        pulls = -(objective.tables.weights * point.gradient.T).T
    pulls, by_bin, f = (a.reshape(n_coef, -1) for a in (pulls, by_bin, point.f))
    pulls = pulls + by_bin * f  # where the parabola of a bin is least, times its curvature
    bins = {j: slice(offsets[j], offsets[j] + len(jumps[j].labels)) for j in tables.tolist()}
    share = objective.options.opened_share if objective.has_many_rows else np.inf
    share = min(share, MOST_SORTED_ROWS / objective._n_rows)
    opened = opened_bins(objective, {j: (jumps[j], by_bin[own], f[own]) for j, own in bins.items()}, share)
    found = {}
    for j, own in bins.items():
        if not opened[j].any():
            continue
        is_open = np.zeros(int(objective.tables.n_bins[j]) + 1, dtype=bool)
        is_open[: len(opened[j])] = opened[j]
        column = int(objective.tables.columns[j, 0])
        of_leaves = objective._listed(_rows_in, residuals, curvature.by_row, table=j, column=column, is_open=is_open)
        rows = tuple(np.concatenate(arrays) for arrays in zip(*of_leaves, strict=True))
        whole = np.flatnonzero(~opened[j] & (objective.tables.shares[own] > 0))
        better = search(atoms_of(rows, whole, pulls[own], by_bin[own], f[own]), jumps[j])
        if better is not None:
            found[j] = better
    return found


def _rows_in(
    leaf: Leaf, residual: np.ndarray, curvature: np.ndarray, *, table: int, column: int, is_open: np.ndarray
) -> tuple:
    """(bins, values, weighted residuals, curvatures) of the rows in opened bins."""
    codes = leaf.codes[table]
    rows = np.flatnonzero(is_open[codes])
    of_rows = (a[rows][:, None] if a.ndim == 1 else a[rows] for a in (residual, curvature))
    return codes[rows].astype(np.intp), leaf.column(column, rows), *of_rows


@dataclass(frozen=True, eq=False)
class _Recut:
    """A table cut at other edges; `is_touched` marks the bins beside moved edges, whose rows may change their bin."""

    column: int
    edges: np.ndarray
    is_touched: np.ndarray


def rebinned(objective: PartsObjective, edges: Mapping[int, tuple[np.ndarray, np.ndarray]]) -> PartsObjective:
    """See `Objective.rebin`."""
    own, recuts = objective.tables, {}
    for j, (before, after) in edges.items():
        moved = np.flatnonzero(before != after)
        is_touched = np.zeros(int(own.n_bins[j]) + 1, dtype=bool)
        is_touched[moved], is_touched[moved + 1] = True, True
        recuts[int(j)] = _Recut(int(own.columns[j, 0]), after, is_touched)
    positions = None if own.positions is None else own.positions.copy()
    if positions is not None and recuts:
        sums = objective._total(_moments_of_recut, recuts=recuts)
        for (j, recut), (weight, moment) in zip(recuts.items(), [sums] if len(recuts) == 1 else sums, strict=True):
            ordered = slice(own.offsets[j], own.offsets[j] + len(recut.edges) + 1)
            np.divide(moment, weight, out=positions[ordered], where=weight > 0)
    parts = objective._parts.mapped(objective._whole, _recut_part, recuts=recuts, positions=positions)
    return objective._over(parts, layout=replace(own, positions=positions))


def _new_codes(leaf: Leaf, table: int, recut: _Recut) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows that may change their bin, their values, their new codes)."""
    rows = np.flatnonzero(recut.is_touched[leaf.codes[table]])
    values = leaf.column(recut.column, rows)
    return rows, values, codes_of(values, recut.edges)


def _moments_of_recut(leaf: Leaf, *, recuts: dict[int, _Recut]) -> tuple:
    out = []
    for j, recut in recuts.items():
        rows, values, new = _new_codes(leaf, j, recut)
        finite, n = np.isfinite(values), len(recut.edges) + 1
        v, values, new = leaf.v[rows][finite], values[finite], new[finite]
        out.append(np.array([np.bincount(new, by_row, minlength=n) for by_row in (v, v * values)]))
    return tuple(out)


def _recut_part(part: Part, whole: Whole, *, recuts: dict[int, _Recut], positions: np.ndarray | None) -> Part:
    own = part.design
    codes = part.empty(own.codes.shape, own.codes.dtype)
    codes[...] = own.codes
    for leaf in part.leaves(whole):
        for j, recut in recuts.items():
            rows, _, new = _new_codes(leaf, j, recut)
            codes[j, leaf.start + rows] = new
    fields = codes, own.offsets, own.missing, positions, own.columns, own.weights_kind, own.shares
    return replace(part, design=BinnedMatrix._from_valid(*fields))
