"""What is computed on one leaf: scores, residuals, curvatures, and the sums of the protocol.

Every function here takes a `Leaf` first. The formulas are those of `rbr.objective.rows`; a raw score is kept without
the intercept, which is added where it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rbr._backend import kernels
from rbr._parallel import over_ranges
from rbr._ragged import bins_of
from rbr._sizes import DISTANCE_SUMS
from rbr.losses import Loss
from rbr.losses.sums import BLOCK_ROWS, worth
from rbr.objective import classes, hessians
from rbr.objective.gram import GramSums
from rbr.objective.parts_leaves import Leaf
from rbr.objective.protocol import EXACT, Groups


@dataclass(frozen=True, eq=False)
class Packed:
    """Some tables, and their entries of f one after the other: the rest of f, which is zero, does not travel."""

    tables: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, f: np.ndarray, tables: np.ndarray, offsets: np.ndarray) -> Packed:
        return cls(tables, f[bins_of(tables, offsets)])


# By row ------------------------------------------------------------------------------------------------------


def table_scores(leaf: Leaf, *, tables: Packed) -> np.ndarray:
    """X @ f."""
    return leaf.passing_design(tables.tables).matvec(tables.values, n_threads=leaf.n_threads, out=leaf.target)


def scores(leaf: Leaf, *, tables: Packed) -> np.ndarray:
    """X @ f and the offset."""
    raw = table_scores(leaf, tables=tables)
    if leaf.offset is not None:
        raw += leaf.offset
    return raw


def with_offset(leaf: Leaf, raw: np.ndarray) -> np.ndarray:
    return raw if leaf.offset is None else raw + leaf.offset


def moved(leaf: Leaf, raw: np.ndarray, *, table: int, change: np.ndarray) -> np.ndarray:
    """Scores after a number for each bin of one table has been added to them."""
    change = np.concatenate([change, np.zeros((1, *change.shape[1:]))])
    return raw + change[leaf.codes[table]]


def plus(leaf: Leaf, raw: np.ndarray, *, number) -> np.ndarray:
    return raw + number


def weighted_residuals(leaf: Leaf, raw: np.ndarray, *, loss: Loss, intercept) -> np.ndarray:
    """v r."""
    return loss.residual(leaf.y, leaf.plus(raw, intercept), leaf.target, v=leaf.v, n_threads=leaf.n_threads)


def weighted_curvature(
    leaf: Leaf, raw: np.ndarray, *, loss: Loss, intercept, majorize: bool, n_sampled: int | None, scale: float
) -> np.ndarray:
    """v h, for all rows or those of a sample, where v is divided by the scale."""
    rows = leaf.sampled(n_sampled)
    y, z, v = leaf.y[rows], leaf.plus(raw[rows], intercept), leaf.v[rows]
    v = v if n_sampled is None else v / scale
    if not majorize:
        return loss.curvature(y, z, leaf.target, v=v, n_threads=leaf.n_threads)
    curvature = loss.majorized_curvature(y, z)
    if curvature is None:
        raise ValueError(f"loss {loss.name!r} has no parabolas above it; ask for its own curvature")
    curvature.T[...] *= v
    return curvature


# Sums --------------------------------------------------------------------------------------------------------


def loss_sums(leaf: Leaf, raw: np.ndarray | None = None, *, sums, intercept=None) -> np.ndarray:
    """What a loss asks of rows (`rbr.losses.RowSums`), at kept scores or at the offsets."""
    z = leaf.offset if raw is None else raw
    if intercept is not None and z is not None:
        z = leaf.plus(z, intercept)
    return np.asarray(sums(leaf.y, z, leaf.v, leaf.n_threads))


def value(y, z, v, n_threads, *, loss: Loss) -> np.ndarray:
    return np.array([loss.value(y, z, v, n_threads)])


def weight_of_sample(leaf: Leaf, *, n_sampled: int) -> np.ndarray:
    return np.array([leaf.v[leaf.sampled(n_sampled)].sum()])


def bin_sums(leaf: Leaf, by_row: np.ndarray, *, tables: np.ndarray) -> np.ndarray:
    """X.T @ values, of the bins of some tables alone."""
    return leaf.passing_design(tables).rmatvec(by_row, n_threads=leaf.n_threads)


def bin_and_output_sums(leaf: Leaf, by_row: np.ndarray, *, tables: np.ndarray) -> tuple:
    """(`bin_sums`, `sum_by_output`)."""
    return bin_sums(leaf, by_row, tables=tables), sum_by_output(leaf, by_row)


def bin_weights(leaf: Leaf) -> np.ndarray:
    """The weight of the rows in each bin; without weights, their number."""
    weight = leaf.part.weight
    by_row = np.ones(leaf.n_rows) if weight is None else np.asarray(weight[leaf.rows], dtype=np.float64)
    return bin_sums(leaf, by_row, tables=np.arange(leaf.part.design.n_features))


def total_weight(leaf: Leaf) -> np.ndarray:
    weight = leaf.part.weight
    return np.array([float(leaf.n_rows) if weight is None else float(np.sum(weight[leaf.rows], dtype=np.float64))])


def sum_by_output(leaf: Leaf, by_row: np.ndarray) -> np.ndarray:
    return np.asarray(by_row.sum(axis=0))


def distance_sum(leaf: Leaf, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.array([np.abs(one - other).sum()])


def squared_distances(leaf: Leaf, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """For each output sum v (r - r')^2 and sum v r^2."""
    pairs = list(zip(np.atleast_2d(one.T), np.atleast_2d(other.T), strict=True))
    squares = np.empty((DISTANCE_SUMS, len(pairs)))
    sums = np.empty((-(-leaf.n_rows // BLOCK_ROWS), DISTANCE_SUMS))
    n_threads = worth(leaf.n_threads, leaf.n_rows)
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite distance is a valid bound
        for c, (a, b) in enumerate(pairs):
            over_ranges(kernels().squared_distances, len(sums), n_threads, a, b, leaf.v, sums)
            squares[:, c] = sums.sum(axis=0)
    return squares


def constant_curvature(leaf: Leaf, *, loss: Loss, intercept, n_outputs: int, n_sampled: int) -> tuple:
    """(sum of v h at the constant model, by output; sum of v; least v) over a sample."""
    rows = leaf.sampled(n_sampled)
    y, v = leaf.y[rows], leaf.v[rows]
    raw = np.zeros(len(y) if n_outputs == 1 else (len(y), n_outputs)) + intercept
    raw += 0.0 if leaf.offset is None else leaf.offset[rows]
    return loss.curvature(y, raw, v=v).sum(axis=0), float(v.sum()), float(v.min(initial=np.inf))


def target_sums(leaf: Leaf, *, loss: Loss, n_outputs: int, tables: np.ndarray) -> np.ndarray:
    weighted = np.stack([own * leaf.v for own in loss.target_columns(leaf.y, n_outputs)], axis=1)
    return bin_sums(leaf, weighted, tables=tables)


def exposure_sums(leaf: Leaf, *, tables: np.ndarray) -> np.ndarray:
    given = leaf.part.given_offset if leaf.part.is_shifted else leaf.part.offset
    exposure = 1.0 if given is None else np.exp(given[leaf.rows])
    with np.errstate(over="ignore"):
        return bin_sums(leaf, leaf.v * exposure, tables=tables)


# Second derivatives ------------------------------------------------------------------------------------------


def cross_sums(
    leaf: Leaf, curvature: np.ndarray, *, groups: Groups, output: int, n_sampled: int | None, scale: float | None
) -> tuple:
    """(between groups, total, squares by group) of the curvature of one output.

    scale : by which the curvature of all rows is divided before its rows in the sample are taken; None if the curvature
        is that of the sample already
    """
    rows = leaf.sampled(n_sampled)
    own = curvature if curvature.ndim == 1 else curvature[:, output]
    own = np.ascontiguousarray(own if scale is None else own[rows] / scale)
    codes = hessians.merged_codes(leaf.codes, groups, None if isinstance(rows, slice) else rows)
    merged = hessians.Merged.of(groups, EXACT, [codes])
    squares = merged.sums([own**2]) if n_sampled is not None else np.zeros(0)
    return merged.cross_tabulation([own], leaf.n_threads), float(own.sum()), squares


def product_sums(leaf: Leaf, curvature: np.ndarray, *, tables: Packed) -> tuple:
    """(X' H X f, sums of H X f) for a diagonal H."""
    design = leaf.passing_design(tables.tables)
    own = curvature * design.matvec(tables.values, n_threads=leaf.n_threads)
    return design.rmatvec(own, n_threads=leaf.n_threads), np.asarray(own.sum(axis=0))


def class_product_sums(leaf: Leaf, raw: np.ndarray, *, loss: Loss, intercept, tables: Packed) -> tuple:
    """(X' H X f, sums of H X f) for the Hessian of several classes, which couples them."""
    design = leaf.passing_design(tables.tables)
    move = np.asfortranarray(design.matvec(tables.values, n_threads=leaf.n_threads))
    own = _hessian(leaf, raw, loss, intercept)(move, np.empty(raw.shape, order="F"))
    return design.rmatvec(own, n_threads=leaf.n_threads), own.sum(axis=0)


def class_cross_sums(
    leaf: Leaf, raw: np.ndarray, *, loss: Loss, intercept, groups: Sequence[Groups], n_sampled: int | None, scale: float
) -> np.ndarray:
    """The Hessian between the groups of several classes, followed by their intercepts, from a sample of rows."""
    rows = leaf.sampled(n_sampled)
    probabilities = np.asfortranarray(loss.inverse_link(raw[rows] + intercept))
    chosen = None if isinstance(rows, slice) else rows
    merged = [hessians.Merged.of(own, EXACT, [hessians.merged_codes(leaf.codes, own, chosen)]) for own in groups]
    return classes.hessian_between([probabilities], [leaf.v[rows] / scale], merged, leaf.n_threads)


def class_coupling_sums(leaf: Leaf, raw: np.ndarray, *, loss: Loss, intercept, tables: np.ndarray) -> tuple:
    """(X' H 1_c for each class c, sums of H 1_c)."""
    times, coupling, totals = _hessian(leaf, raw, loss, intercept), [], []
    for unit in np.eye(raw.shape[1]):
        own = times(np.broadcast_to(unit, raw.shape), np.empty(raw.shape, order="F"))
        coupling.append(bin_sums(leaf, own, tables=tables))
        totals.append(own.sum(axis=0))
    return np.stack(coupling), np.stack(totals)


def _hessian(leaf: Leaf, raw: np.ndarray, loss: Loss, intercept):
    return loss.hessian(leaf.y, np.asfortranarray(raw + intercept), leaf.v, leaf.n_threads)


def gram_sums(leaf: Leaf, *, is_weighted: bool, origin: float) -> tuple:
    """`GramSums` of a leaf, as a tuple that adds. Whole weights add without rounding, in any order."""
    y = leaf.y if leaf.offset is None else leaf.y - leaf.offset
    given = leaf.part.weight
    weight = np.asarray(given[leaf.rows], dtype=np.float64) if is_weighted and given is not None else None
    sums = GramSums.of(leaf.design(), y, weight, origin=origin, n_threads=leaf.n_threads)
    return sums.gram, sums.target, sums.weight, sums.y, sums.y_squared


def weighted_target(leaf: Leaf) -> np.ndarray:
    y = leaf.y if leaf.offset is None else leaf.y - leaf.offset
    return np.array([float(np.sum(leaf.v * y))])


# Targets -----------------------------------------------------------------------------------------------------


def witnesses(leaf: Leaf, *, all_distinct: bool) -> np.ndarray:
    """Targets that stand for all: the distinct ones of classes, otherwise the least, the largest and one not finite."""
    y = np.asarray(leaf.part.y[leaf.rows], dtype=np.float64)
    if all_distinct:
        return np.unique(y)
    finite = np.isfinite(y)
    extremes = y[finite] if finite.any() else np.zeros(0)
    return np.concatenate([[extremes.min(), extremes.max()] if len(extremes) else [], y[~finite][:1]])


def first_row_with(leaf: Leaf, *, target: float) -> int:
    """The number of the first row with a target; -1 if there is none."""
    y = np.asarray(leaf.part.y[leaf.rows], dtype=np.float64)
    found = np.flatnonzero(np.isnan(y) if np.isnan(target) else y == target)
    return leaf.part.first_row + leaf.start + int(found[0]) if len(found) else -1
