"""The objective over parts: rows that lie in files or on other machines, with the answers of rows in memory.

A `Part` is a run of consecutive rows. Rows are numbered over all parts, and a *leaf* is a run of ROWS_PER_LEAF of
these numbers: leaf k holds the rows k * ROWS_PER_LEAF to (k + 1) * ROWS_PER_LEAF - 1. A part consists of whole leaves;
only the last leaf of all may be shorter. Every answer is a sum over rows. It is taken leaf by leaf, and leaves are
added along a binary tree over their numbers (`rbr.objective.parts_tree`), so that the cuts between parts, the blocks of
a file and the number of workers cannot change a bit. Samples are drawn by the number of a row, for the same reason.

What is kept by row (scores, residuals, curvatures) stays with its part; the objective holds it as a `Kept` handle. An
executor maps a function over the parts: `LocalParts` here, one part after another in this process, and
`rbr.distributed.DaskParts` on the workers of a cluster.

How to make one
---------------
    part = Part(design, y, weight=None, offset=None, values=None, first_leaf=0, scratch=None)
    objective = parts_objective(LocalParts([part, ...], n_threads=2), loss="log_loss", options=None)
    rbr.solve(objective=objective, constraints=...)

design : BinnedMatrix of the part's rows, all of the same bins. Its codes may be a read-only memmap; its weights are not
    read but for `weights_kind` (the shares of the bins are summed over all parts):
    ``BinnedMatrix._from_valid(codes, offsets, missing, positions, columns, "counts", any_shares)`` costs nothing.
y : numbers (class codes 0, 1, ... for classes), a vector or a memmap.
weight : sample weights, or None in all parts; no row of weight zero.
offset : (n_rows,) or (n_rows, n_outputs), or None in all parts.
values : `rbr.objective.values.ColumnValues` of the part's rows, or None: then lines and cuts stay within bins.
first_leaf : number of the part's first leaf; first_leaf * ROWS_PER_LEAF rows come before it.
    ``cut_points(n_rows, n_parts)`` cuts rows into parts of whole leaves.
scratch : a directory for vectors by row, which are then memory-mapped files without a name that vanish with the
    process; None keeps them in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from rbr._options import DEFAULTS, SolverOptions
from rbr._ragged import bins_of
from rbr.data.grids import CoarseBins
from rbr.losses import Loss, get_loss
from rbr.objective import classes, hessians, parts_gathered, parts_lines, parts_pairs, parts_sums
from rbr.objective.common import OverRows
from rbr.objective.gram import GramObjective, GramSums, gram_is_faster
from rbr.objective.jumps import BetterJumps, Jumps
from rbr.objective.parts_handles import Curvature, Merged
from rbr.objective.parts_leaves import ROWS_PER_LEAF, Part, Whole, sampled_part, shifted
from rbr.objective.parts_run import Executor, Kept, LocalParts, cut_points
from rbr.objective.parts_sums import Packed
from rbr.objective.protocol import EXACT, Accuracy, Groups, Hessian, Objective, Point, Tables

__all__ = ["ROWS_PER_LEAF", "LocalParts", "Part", "PartsObjective", "cut_points", "parts_objective"]

# A cross-tabulation with weights that are no whole numbers is added along the tree of leaves, and so only if it is
# small.
MAX_BYTES_OF_WEIGHTED_GRAM = 32 << 20


# A sample that takes at most this much is brought together: in parts it has few rows in each leaf, and a sum over one
# takes a while even then. Beside the codes a row takes some eight numbers.
MOST_GATHERED_BYTES = 1 << 26
BYTES_BY_ROW = 64


class _RowsAt:
    """The rows of all parts at given scores, from which a loss takes its sums (`rbr.losses.RowSums`)."""

    def __init__(self, objective: PartsObjective, *kept: Kept, intercept=None):
        self._objective, self._kept, self._intercept = objective, kept, intercept

    def total(self, sums: Callable[..., np.ndarray]) -> np.ndarray:
        return self._objective._total(parts_sums.loss_sums, *self._kept, sums=sums, intercept=self._intercept)


class PartsObjective(OverRows):
    """The mean loss of c + X f over the weighted rows of parts, minimised over c; an `Objective`.

    Made by `parts_objective`.

    Parameters
    ----------
    parts : Executor
    whole : Whole
    layout : Tables
        Of the parts' designs; shares and weights are summed here.
    is_uniform : bool
        Whether the geometry is uniform.
    loss : Loss
        Prepared.
    facts : Facts
    n_outputs : int
    is_part_of_many : bool
        Whether these rows are a sample of many more.
    options : SolverOptions
    """

    def __init__(
        self,
        parts: Executor,
        whole: Whole,
        layout: Tables,
        is_uniform: bool,
        loss: Loss,
        facts: Facts,
        *,
        n_outputs: int,
        is_part_of_many: bool = False,
        options: SolverOptions = DEFAULTS,
    ):
        self._parts, self._whole, self._facts, self._is_uniform = parts, whole, facts, is_uniform
        self._n_rows, self._is_part_of_many = whole.n_rows, is_part_of_many
        sums = self._total(parts_sums.bin_weights)
        totals = np.repeat(np.add.reduceat(sums, layout.offsets[:-1]), layout.n_bins)
        uniform = np.repeat(1.0 / layout.n_bins, layout.n_bins)
        shares = np.divide(sums, totals, out=uniform.copy(), where=totals > 0)
        tables = replace(layout, shares=shares, weights=uniform if is_uniform else shares)
        super().__init__(
            tables, loss, n_outputs=n_outputs, n_total=whole.n_total, n_threads=whole.n_threads, options=options
        )
        self._weights_of_samples: dict[int, float] = {}

    def _total(self, function: Callable, *kept: Kept, **fixed):
        """The sum over all rows: one array, or a tuple of what the function sums."""
        sums = self._parts.total(self._whole, function, *kept, **fixed)
        return sums[0] if len(sums) == 1 else sums

    def _rows(self, function: Callable, *kept: Kept, **fixed) -> Kept:
        return self._parts.rows(self._whole, function, *kept, **fixed)

    def _listed(self, function: Callable, *kept: Kept, **fixed) -> list:
        return self._parts.listed(self._whole, function, *kept, **fixed)

    # Properties ----------------------------------------------------------------------------------------------

    @property
    def has_constant_target(self) -> bool:
        return not self._facts.has_offset and len(np.unique(self._facts.witnesses)) == 1

    @property
    def screening_is_faster(self) -> bool:
        return self._n_rows >= self.options.screened_rows

    @property
    def has_values(self) -> bool:
        return self._facts.has_values

    @cached_property
    def _constant_intercept(self) -> float | np.ndarray:
        return self.loss.constant_start_of(_RowsAt(self), self._facts.has_offset, self.n_outputs)

    @cached_property
    def constant_loss(self) -> float:
        return self.loss.constant_value_of(_RowsAt(self), self._constant_intercept, self._facts.has_offset)

    @cached_property
    def constant_curvature(self) -> float:
        fixed = {"intercept": self._constant_intercept, "n_outputs": self.n_outputs}
        of_leaves = self._listed(
            parts_sums.constant_curvature, loss=self.loss, n_sampled=self.options.curvature_rows, **fixed
        )
        curvatures, weights, least = zip(*of_leaves, strict=True)
        weight, bound = sum(weights), self.loss.curvature_bound()
        # If no row has any curvature at the constant model (Huber, quantile), the lightest row counts as if it had.
        floor = 1e-300 if bound is None else bound * min(least) / weight
        return max(float(np.max(np.sum(curvatures, axis=0) / weight)), floor)

    # Points and gradients ------------------------------------------------------------------------------------

    def _packed(self, f: np.ndarray, tables: np.ndarray) -> Packed:
        self.work.columns_read += len(tables)
        return Packed.of(f, np.asarray(tables, dtype=np.int64), self.tables.offsets)

    def point(self, f: np.ndarray, support: np.ndarray, start=None) -> Point:
        return self._point(f, support, self._rows(parts_sums.scores, tables=self._packed(f, support)), start)

    def _point(self, f: np.ndarray, support: np.ndarray, raw: Kept, start) -> Point:
        """The point whose scores, with offsets and without the intercept, are given."""
        value = None
        if start is None and not len(support):
            intercept = self._constant_intercept
        else:
            intercept, value = self.loss.refit_intercept_and_value(
                _RowsAt(self, raw), self._constant_intercept if start is None else start
            )
        if value is None:
            at_point = _RowsAt(self, raw, intercept=intercept)
            value = float(at_point.total(partial(parts_sums.value, loss=self.loss))[0])
        return Point(f, support, intercept, value, raw)

    def residuals(self, point: Point) -> Kept:
        self.work.gradients += 1
        return self._rows(parts_sums.weighted_residuals, point.handle, loss=self.loss, intercept=point.intercept)

    def gradient(self, point: Point, tables: np.ndarray | None = None, residuals: Kept | None = None) -> np.ndarray:
        tables = np.arange(self.tables.n_tables) if tables is None else tables
        residuals = self.residuals(point) if residuals is None else residuals
        return self.as_gradient(self._bin_sums(residuals, tables), tables)

    def drift(self, residuals: Kept, other: Kept, rounding: float) -> np.ndarray:
        distance, size = np.sqrt(self._total(parts_sums.squared_distances, residuals, other))
        return distance + rounding * size

    def dispersion(self, point: Point, df: float = 1.0) -> float:
        at_point = _RowsAt(self, point.handle, intercept=point.intercept)
        return self.loss.dispersion_of(at_point, self.n_total, df)

    def _bin_sums(self, by_row: Kept, tables: np.ndarray) -> np.ndarray:
        """X.T @ values over some tables, zero elsewhere."""
        self.work.columns_read += len(tables)
        tables = np.asarray(tables, dtype=np.int64)
        return self._spread_out(self._total(parts_sums.bin_sums, by_row, tables=tables), tables)

    def _spread_out(self, sums: np.ndarray, tables: np.ndarray) -> np.ndarray:
        """Sums of the bins of some tables among those of all, which are zero."""
        out = np.zeros((self.tables.n_coef, *sums.shape[1:]), order="F")
        out[bins_of(tables, self.tables.offsets)] = sums
        return out

    # Curvature -----------------------------------------------------------------------------------------------

    def _share_of(self, n_sampled: int) -> float:
        """The sum of v over a sample."""
        if n_sampled not in self._weights_of_samples:
            self._weights_of_samples[n_sampled] = float(
                self._total(parts_sums.weight_of_sample, n_sampled=n_sampled)[0]
            )
        return self._weights_of_samples[n_sampled]

    def curvature(self, point: Point, majorize: bool = False, accuracy: Accuracy = EXACT) -> Curvature | None:
        """v_i times the second derivative of the loss in row i; in a sample, v is scaled to sum to 1 over it."""
        if majorize and not self._has_parabolas:
            return None
        n_sampled = accuracy.n_sampled
        fixed = {"intercept": point.intercept, "majorize": majorize, "loss": self.loss}
        scale = 1.0 if n_sampled is None else self._share_of(n_sampled)
        by_row = self._rows(
            partial(parts_sums.weighted_curvature, n_sampled=n_sampled),
            point.handle,
            n_sampled=n_sampled,
            scale=scale,
            **fixed,
        )
        return Curvature(by_row, majorize, n_sampled)

    @cached_property
    def _has_parabolas(self) -> bool:
        y = self._facts.witnesses[:1].astype(self._whole.target_type)
        z = np.zeros(1 if self.n_outputs == 1 else (1, self.n_outputs))
        return self.loss.majorized_curvature(y, z) is not None

    def _curvature_total(self, curvature: Curvature) -> np.ndarray:
        if not curvature.known_total:
            curvature.known_total.append(self._total(parts_sums.sum_by_output, curvature.by_row))
        return curvature.known_total[0]

    def curvature_sums(
        self, point: Point, tables: np.ndarray, majorize: bool = False, curvature: Curvature | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        curvature = self.curvature(point, majorize) if curvature is None else curvature
        if curvature is None:
            raise ValueError(f"loss {self.loss.name!r} has no parabolas above it; ask for its own curvature")
        for known, by_bin in curvature.known_sums:
            if np.isin(tables, known).all():
                out, bins = np.zeros_like(by_bin), self.tables.bins_of(tables)
                out[bins] = by_bin[bins]
                return out, self._curvature_total(curvature)
        own = np.asarray(tables, dtype=np.int64)
        self.work.columns_read += len(own)
        sums, total = self._total(parts_sums.bin_and_output_sums, curvature.by_row, tables=own)
        by_bin = self._spread_out(sums, own)
        curvature.known_sums[:], curvature.known_total[:] = [(tables, by_bin)], [total]
        return by_bin, self._curvature_total(curvature)

    def can_reuse_hessian(self, curvature: Curvature, other: Curvature) -> bool:
        if curvature.is_majorized != other.is_majorized or curvature.n_sampled != other.n_sampled:
            return False
        moved = float(self._total(parts_sums.distance_sum, curvature.by_row, other.by_row)[0])
        return moved <= self.options.max_curvature_change * float(self._curvature_total(other))

    def accuracy(self, n_tables: int, n_groups: int, n_unknowns: int) -> Accuracy:
        return hessians.accuracy(self.options, self._n_rows, n_tables, n_groups, n_unknowns)

    def preconditioner_accuracy(self, n_unknowns: int) -> Accuracy:
        return hessians.preconditioner_accuracy(self.options, self._n_rows, n_unknowns)

    def merge(self, groups: Groups, accuracy: Accuracy = EXACT) -> Merged:
        n_rows = self._n_rows if accuracy.n_sampled is None else min(accuracy.n_sampled, self._n_rows)
        self.work.columns_read += len(groups.tables) * n_rows / self._n_rows
        return Merged(groups, accuracy)

    def hessian(self, point: Point, merged: Merged, curvature: Curvature, output: int = 0) -> Hessian:
        groups, n_sampled = merged.groups, merged.accuracy.n_sampled
        is_whole = curvature.n_sampled is None
        scale = self._share_of(n_sampled) if is_whole and n_sampled is not None else None
        matrix, total, squares = self._total(
            partial(parts_sums.cross_sums, n_sampled=n_sampled),
            curvature.by_row,
            groups=groups,
            output=output,
            scale=scale,
        )
        n_tables = len(groups.tables)
        n_looked_at = self._n_rows if n_sampled is None else min(n_sampled, self._n_rows)
        self.work.columns_read += n_tables * (n_tables + 1) // 2 * n_looked_at / self._n_rows
        found = hessians.GroupHessian(matrix, np.diagonal(matrix), float(total))
        if not merged.accuracy.is_rough:
            return found
        by_bin, of_all = self.curvature_sums(
            point, groups.tables, curvature.is_majorized, curvature if is_whole else None
        )
        if self.n_outputs > 1:
            by_bin, of_all = np.ascontiguousarray(by_bin[:, output]), of_all[output]
        squares = None if n_sampled is None else squares
        return hessians.rough(found, by_bin, float(of_all), groups, squares, self.options.few_rows)

    def hessian_of_outputs(self, point: Point, n_unknowns: int, *merged: Merged) -> np.ndarray | None:
        n_sampled, groups = merged[0].accuracy.n_sampled, [own.groups for own in merged]
        if not classes.pays(self.options, groups, n_sampled, self._n_rows, n_unknowns):
            return None
        return self._total(
            partial(parts_sums.class_cross_sums, n_sampled=n_sampled, groups=groups),
            point.handle,
            scale=1.0 if n_sampled is None else self._share_of(n_sampled),
            **{"loss": self.loss, "intercept": point.intercept},
        )

    def hessian_times(self, point: Point, curvature: Curvature, tables: np.ndarray):
        """X' H (X f - the intercept's answer) = X' H X f - X' H 1 * answer: a product is one sweep over the rows."""
        tables = np.asarray(tables, dtype=np.int64)
        if self.n_outputs > 1 and not curvature.is_majorized:
            return self._class_hessian_times(point, tables)
        coupling, total = self.curvature_sums(point, tables, curvature.is_majorized, curvature)
        total = np.maximum(total, 1e-300)

        def of_tables(f: np.ndarray) -> np.ndarray:
            product, pull = self._total(parts_sums.product_sums, curvature.by_row, tables=self._packed(f, tables))
            self.work.columns_read += len(tables)
            return self._spread_out(product, tables) - coupling * (pull / total)

        return of_tables

    def _class_hessian_times(self, point: Point, tables: np.ndarray):
        fixed = {"loss": self.loss, "intercept": point.intercept}
        coupling, of_intercepts = self._total(parts_sums.class_coupling_sums, point.handle, tables=tables, **fixed)
        # Adding one number to all outputs changes nothing, so one eigenvalue is 0 up to rounding: pinv must drop it.
        inverse = np.linalg.pinv(of_intercepts, rcond=1e-10, hermitian=True)

        def of_tables(f: np.ndarray) -> np.ndarray:
            packed = self._packed(f, tables)
            self.work.columns_read += len(tables)
            product, pull = self._total(parts_sums.class_product_sums, point.handle, tables=packed, **fixed)
            return self._spread_out(product - np.tensordot(inverse @ pull, coupling, axes=1), tables)

        return of_tables

    # Other objectives ----------------------------------------------------------------------------------------

    def _over(self, parts: Executor, *, layout: Tables | None = None, facts: Facts | None = None, **changes):
        """The same loss over other parts of as many rows."""
        return PartsObjective(
            parts,
            changes.pop("whole", self._whole),
            self.tables if layout is None else layout,
            changes.pop("is_uniform", self._is_uniform),
            self.loss,
            self._facts if facts is None else facts,
            **{
                "n_outputs": self.n_outputs,
                "options": self.options,
                "is_part_of_many": self._is_part_of_many,
                **changes,
            },
        )

    def sample(self, share: float) -> Objective | None:
        n_sampled = int(self._n_rows * share)
        if n_sampled < self.options.min_sample_rows:
            return None
        if n_sampled * (self.tables.n_tables + BYTES_BY_ROW) <= MOST_GATHERED_BYTES:
            return parts_gathered.sample_in_memory(self, n_sampled)
        parts = self._parts.mapped(self._whole, sampled_part, n_sampled=n_sampled)
        facts = self._facts.over(parts, replace(self._whole, n_rows=n_sampled), self.loss)
        try:
            self.loss.validate(facts.witnesses)
        except ValueError:  # a class has no row in it
            return None
        n_total = float(parts.total(self._whole, parts_sums.total_weight)[0][0])
        whole = replace(self._whole, n_rows=n_sampled, n_total=n_total)
        return self._over(parts, whole=whole, facts=facts, is_part_of_many=True)

    def representative(self) -> Objective:
        at_most = self.options.representative_rows
        if self._n_rows <= at_most:
            return self
        return parts_gathered.row_objective(self, at_most)

    def condensed(self) -> Objective:
        facts = self._facts
        if not gram_is_faster(self, facts.has_equal_weights):
            return self
        origin = float(self._total(parts_sums.weighted_target)[0])
        n_tables = self.tables.n_tables
        if facts.has_whole_weights:
            gram = self._parts.added(self._whole, parts_gathered.gram_of_part)
            target, weight, y, y_squared = self._total(parts_gathered.target_sums_of_gram, origin=origin)
        elif 8 * self.tables.n_coef**2 <= MAX_BYTES_OF_WEIGHTED_GRAM:
            gram, target, weight, y, y_squared = self._total(parts_sums.gram_sums, is_weighted=True, origin=origin)
        else:
            return self
        self.work.columns_read += n_tables * (n_tables + 1) // 2
        sums = GramSums(gram, target, float(weight), float(y), float(y_squared), origin)
        same: dict[str, Any] = {"n_total": self.n_total, "n_threads": self.n_threads, "options": self.options}
        return GramObjective(sums, self.tables, self.loss, **same)

    # For a finished fit ---------------------------------------------------------------------------------------

    def changes(self, point: Point):
        return parts_gathered.changes(self, point)

    def target_sums(self, tables: np.ndarray) -> np.ndarray:
        tables = np.asarray(tables, dtype=np.int64)
        self.work.columns_read += len(tables)
        sums = self._total(parts_sums.target_sums, loss=self.loss, n_outputs=self.n_outputs, tables=tables)
        return self.n_total * self._spread_out(sums, tables)

    def exposure_sums(self, tables: np.ndarray) -> np.ndarray | None:
        if self.loss.link != "log" or not self._facts.has_given_offset:
            return None
        tables = np.asarray(tables, dtype=np.int64)
        self.work.columns_read += len(tables)
        return self.n_total * self._spread_out(self._total(parts_sums.exposure_sums, tables=tables), tables)

    def backfit(self, point: Point):
        return parts_gathered.PartsBackfit(self, point)

    def bags(self, n_ways: int, share: float, random_state: Any, whole_rows: bool = False, may_sample: bool = False):
        """Bags of rows that are brought together: bags are for few rows."""
        from rbr.objective.bags import RowBags

        n_rows = self._n_rows
        if may_sample:
            n_rows = min(n_rows, self.options.gathered_rows)
        elif n_rows > self.options.many_rows:
            raise ValueError(
                f"bags thin groups of equal rows, which parts cannot find among themselves: {n_rows} rows in "
                f"parts are more than the {self.options.many_rows} that are brought together for it; use n_bags=0"
            )
        return RowBags(parts_gathered.row_objective(self, n_rows), n_ways, share, random_state, whole_rows)

    # Values --------------------------------------------------------------------------------------------------

    def better_jumps(self, point: Point, jumps: Mapping[int, Jumps]) -> dict[int, BetterJumps]:
        self._check_values("better_jumps")
        return parts_lines.better_jumps(self, point, jumps)

    def rebin(
        self, edges: Mapping[int, tuple[np.ndarray, np.ndarray]], read: np.ndarray | None = None
    ) -> PartsObjective:
        self._check_values("rebin")
        other = parts_lines.rebinned(self, edges)
        other.work = self.work  # one fit, one count
        return other

    def bin_moments(self, tables: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        self._check_values("bin_moments")
        return parts_lines.bin_moments(self, tables)

    def distances(self, tables: np.ndarray, positions: np.ndarray) -> parts_lines.Distances:
        if len(tables):
            self._check_values("distances")
        return parts_lines.distances(self, tables, positions)

    def line_point(self, f, support, slopes, lines: parts_lines.Distances, start=None) -> Point:
        raw = self._rows(parts_sums.scores, tables=self._packed(f, support))
        return self._point(f, support, parts_lines.with_slopes(self, raw, slopes, lines), start)

    def on_lines(self, slopes: np.ndarray, lines: parts_lines.Distances) -> PartsObjective:
        nothing = self._rows(parts_sums.table_scores, tables=self._packed(self.zero_tables(), np.zeros(0, np.int64)))
        within = parts_lines.with_slopes(self, nothing, slopes, lines)
        # Rows of equal codes may lie at different places of their bins.
        columns = tuple(self.tables.columns[lines.tables, 0].tolist())
        return self._shifted(within, columns)

    def line_gradient(self, point: Point, lines: parts_lines.Distances) -> np.ndarray:
        return parts_lines.line_gradient(self, point, lines)

    def _check_values(self, asked: str) -> None:
        if not self.has_values:
            raise ValueError(f"{asked} needs the values of the columns, which these parts do not have")

    # Pairs ---------------------------------------------------------------------------------------------------

    def table_scores(self, f: np.ndarray, support: np.ndarray) -> Kept:
        return self._rows(parts_sums.table_scores, tables=self._packed(f, support))

    def shifted_by(self, scores: Kept) -> PartsObjective:
        return self._shifted(scores)

    def _shifted(self, scores: Kept, columns: tuple[int, ...] = ()) -> PartsObjective:
        parts = self._parts.mapped(self._whole, shifted, scores, columns=columns)
        return self._over(parts, facts=replace(self._facts, has_offset=True))

    def over_pairs(self, coarse: CoarseBins, pairs: np.ndarray) -> PartsObjective:
        return parts_pairs.over_pairs(self, coarse, pairs)

    def joint_sums(self, point: Point, coarse: CoarseBins, tables: np.ndarray, majorize: bool = False):
        return parts_pairs.joint_sums(self, point, coarse, tables, majorize)


@dataclass(frozen=True, eq=False)
class Facts:
    """What was asked of all rows once.

    witnesses : targets that stand for all of them; see `parts_sums.witnesses`
    has_offset : whether scores are added to, by the user or by a part of the model
    has_given_offset : whether the user gave offsets
    has_equal_weights, has_whole_weights : whether all weights are the same, and whether they are whole numbers
    """

    witnesses: np.ndarray
    has_offset: bool
    has_given_offset: bool
    has_values: bool
    has_equal_weights: bool
    has_whole_weights: bool

    def over(self, parts: Executor, whole: Whole, loss: Loss) -> Facts:
        """The facts with the targets of other rows."""
        return replace(self, witnesses=_witnesses(parts, whole, loss))


def _witnesses(parts: Executor, whole: Whole, loss: Loss) -> np.ndarray:
    is_classes = loss.name in ("log_loss", "multinomial")
    found = np.unique(np.concatenate(parts.listed(whole, parts_sums.witnesses, all_distinct=is_classes)))
    return found if is_classes else np.unique(np.concatenate([found[:1], found[-1:], found[~np.isfinite(found)]]))


def parts_objective(
    parts: Executor, *, loss: str | Loss = "squared_error", options: SolverOptions | None = None
) -> PartsObjective:
    """The mean loss over the rows of parts, to be passed to `solve(objective=...)`; see the head of this module."""
    loss, options = get_loss(loss), DEFAULTS if options is None else options
    whole = Whole(n_rows=0, n_total=1.0, n_threads=getattr(parts, "n_threads", 1))
    of_leaves = parts.listed(whole, parts_gathered.facts_of)
    if not of_leaves:
        raise ValueError("the parts have no rows; at least one is needed")
    first = of_leaves[0]
    for number, own in enumerate(of_leaves):
        for name in ("has_weight", "has_offset", "has_values"):
            if getattr(own, name) != getattr(first, name):
                raise ValueError(f"leaf {number} and the first leaf differ in {name}; all parts must agree")
    whole = replace(whole, n_rows=sum(own.n_rows for own in of_leaves))
    if first.has_weight and min(own.least_weight for own in of_leaves) <= 0:
        raise ValueError("weight holds a number that is not above 0; leave out rows of weight zero")
    whole = replace(whole, n_total=float(parts.total(whole, parts_sums.total_weight)[0][0]))
    witnesses = _witnesses(parts, whole, loss)
    try:
        targets = loss.validate(witnesses)
    except ValueError as error:
        raise parts_gathered.with_row_number(error, parts, whole, witnesses) from None
    whole = replace(whole, target_type=targets.dtype)
    facts = Facts(
        witnesses,
        first.has_offset,
        first.has_offset,
        first.has_values,
        min(own.least_weight for own in of_leaves) == max(own.most_weight for own in of_leaves),
        all(own.has_whole_weights for own in of_leaves),
    )
    prepared = loss.prepare_of(_AllRows(parts, whole))
    return PartsObjective(
        parts,
        whole,
        first.layout,
        first.is_uniform,
        prepared,
        facts,
        n_outputs=loss.n_outputs(targets),
        options=options,
    )


class _AllRows:
    """The rows of parts at their offsets, before there is an objective; a `rbr.losses.RowSums`."""

    def __init__(self, parts: Executor, whole: Whole):
        self._parts, self._whole = parts, whole

    def total(self, sums: Callable[..., np.ndarray]) -> np.ndarray:
        return self._parts.total(self._whole, parts_sums.loss_sums, sums=sums)[0]
