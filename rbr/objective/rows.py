"""The objective over rows in memory, in one block or in several.

Every answer is a sum over rows, and so a sum over blocks, taken in the order of the blocks. Within a block the rows are
divided into fixed ranges whose sums are added in a fixed order, so that an answer has the same bits for any number of
threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from rbr._backend import kernels
from rbr._options import DEFAULTS, SolverOptions
from rbr._parallel import over_ranges
from rbr._sizes import DISTANCE_SUMS
from rbr.data.design import BinnedMatrix
from rbr.data.grids import CoarseBins
from rbr.data.sampling import spread_rows
from rbr.losses import Loss
from rbr.losses.sums import BLOCK_ROWS, add_to_scores, worth
from rbr.objective import classes, hessians
from rbr.objective import lines as lines_of_rows
from rbr.objective import pairs as pairs_of_rows
from rbr.objective.common import OverRows, added
from rbr.objective.jumps import BetterJumps, Jumps
from rbr.objective.keys import keys_of_rows, keys_with_values
from rbr.objective.protocol import EXACT, Accuracy, Groups, Handle, Hessian, Objective, Point, Tables
from rbr.objective.values import ColumnValues


@dataclass(frozen=True, eq=False)
class RowBlock:
    """A block of rows of a binned table.

    design : BinnedMatrix of these rows
    y : as the loss's `validate` returns it
    v : the sample weights, scaled to sum 1 over all blocks
    offset : added to the raw scores, or None
    values : the columns that the design was made from, or None
    sample_weight : the weights as they were given, or None if every row has weight 1
    is_shifted, given_offset : whether scores of a part of the model were added to the offset, and what it was before
    given_keys : gives the `keys` of the rows as they were before that, or None
    """

    design: BinnedMatrix
    y: np.ndarray
    v: np.ndarray
    offset: np.ndarray | None = None
    values: ColumnValues | None = None
    sample_weight: np.ndarray | None = None
    is_shifted: bool = False
    given_offset: np.ndarray | None = None
    given_keys: Callable[[], np.ndarray] | None = None

    @property
    def n_rows(self) -> int:
        return len(self.y)

    @property
    def users_offset(self) -> np.ndarray | None:
        """The offset as the user gave it."""
        return self.given_offset if self.is_shifted else self.offset

    def keys(self) -> np.ndarray:
        """A number for each row that tells it apart from rows with other codes, targets or offsets.

        Scores of a part of the model do not count: their last bits would change the numbers.
        """
        return keys_of_rows(self.design.codes, self.y, self.offset) if self.given_keys is None else self.given_keys()

    def shifted(self, scores: np.ndarray, columns: Sequence[int]) -> RowBlock:
        """The block with scores of a part of the model among its offsets, and keys that tell some columns' values."""

        def keys() -> np.ndarray:
            values = self.values
            return keys_with_values(self.keys(), () if values is None else (values.column(int(j)) for j in columns))

        offset = scores if self.offset is None else scores + self.offset
        return replace(self, offset=offset, is_shifted=True, given_offset=self.users_offset, given_keys=keys)

    def at(self, rows, v: np.ndarray, n_threads: int, weight: np.ndarray | None = None) -> RowBlock:
        """Some of the rows, with their own v and their weights, by default those that they have."""
        if weight is None and self.sample_weight is not None:
            weight = self.sample_weight[rows]
        keys = self.given_keys
        return RowBlock(
            self.design.at(rows, sample_weight=weight, n_threads=n_threads),
            self.y[rows],
            v,
            None if self.offset is None else self.offset[rows],
            None if self.values is None else self.values.at(rows),
            weight,
            self.is_shifted,
            None if self.given_offset is None else self.given_offset[rows],
            None if keys is None else lambda: keys()[rows],
        )


@dataclass(frozen=True, eq=False)
class Scores(Handle):
    """The raw scores of each block."""

    raw: list[np.ndarray]


@dataclass(frozen=True, eq=False)
class Residuals(Handle):
    """For each block, v_i times the residual of row i; each output is contiguous."""

    weighted: list[np.ndarray]


class _RowsAt:
    """The rows of all blocks at given scores, from which a loss takes its sums (`rbr.losses.RowSums`)."""

    def __init__(self, blocks: Sequence[RowBlock], scores: Sequence[np.ndarray | None], n_threads: int):
        self.blocks, self.scores, self.n_threads = blocks, scores, n_threads

    def total(self, sums: Callable[..., np.ndarray]) -> np.ndarray:
        pairs = zip(self.blocks, self.scores, strict=True)
        return added(sums(block.y, z, block.v, self.n_threads) for block, z in pairs)


class RowObjective(OverRows):
    """The mean loss of c + X f over weighted rows, minimised over the intercept c; an `Objective`.

    Parameters
    ----------
    blocks : sequence of RowBlock
        Their designs have the same bins.
    loss : Loss
        Prepared, see `Loss.prepare`.
    n_outputs : int
    n_total : float
        n, the sum of the sample weights.
    n_threads : int
    tables : Tables, optional
        By default those of the first block's design; with several blocks, with the shares of all rows.
    is_part_of_many : bool
        Whether these rows are a sample of many more, so that a fit on them should save passes as one on all rows does.
    options : SolverOptions
    """

    def __init__(
        self,
        blocks: Sequence[RowBlock],
        loss: Loss,
        *,
        n_outputs: int,
        n_total: float,
        n_threads: int = 1,
        tables: Tables | None = None,
        is_part_of_many: bool = False,
        options: SolverOptions = DEFAULTS,
    ):
        tables = tables_of(blocks, n_threads) if tables is None else tables
        super().__init__(tables, loss, n_outputs=n_outputs, n_total=n_total, n_threads=n_threads, options=options)
        self._blocks = tuple(blocks)
        self._n_rows = sum(block.n_rows for block in self._blocks)
        self._is_part_of_many = is_part_of_many
        self.known_moments: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}  # by table, see `bin_moments`

    # Properties ----------------------------------------------------------------------------------------------

    @cached_property
    def has_constant_target(self) -> bool:
        first = self._blocks[0].y[0]
        return not self._has_offset and all(bool((block.y == first).all()) for block in self._blocks)

    @property
    def screening_is_faster(self) -> bool:
        return self._n_rows >= self.options.screened_rows

    @property
    def has_values(self) -> bool:
        return all(block.values is not None for block in self._blocks)

    def _at(self, scores: Sequence[np.ndarray | None]) -> _RowsAt:
        return _RowsAt(self._blocks, scores, self.n_threads)

    @cached_property
    def _at_offsets(self) -> _RowsAt:
        return self._at([block.offset for block in self._blocks])

    @property
    def _has_offset(self) -> bool:
        return self._blocks[0].offset is not None

    @cached_property
    def _constant_intercept(self) -> float | np.ndarray:
        return self.loss.constant_start_of(self._at_offsets, self._has_offset, self.n_outputs)

    @cached_property
    def constant_loss(self) -> float:
        return self.loss.constant_value_of(self._at_offsets, self._constant_intercept, self._has_offset)

    @cached_property
    def constant_curvature(self) -> float:
        of_blocks, weight, least = [], 0.0, np.inf
        for block, rows in zip(self._blocks, self._spread(self.options.curvature_rows), strict=True):
            y, v = block.y[rows], block.v[rows]
            raw = np.zeros(len(y) if self.n_outputs == 1 else (len(y), self.n_outputs)) + self._constant_intercept
            raw += 0.0 if block.offset is None else block.offset[rows]
            of_blocks.append(self.loss.curvature(y, raw, v=v).sum(axis=0))
            weight, least = weight + float(v.sum()), min(least, float(v.min()))
        # If no row has any curvature at the constant model (Huber, quantile), the lightest row counts as if it had.
        bound = self.loss.curvature_bound()
        floor = 1e-300 if bound is None else bound * least / weight
        return max(float(np.max(added(of_blocks) / weight)), floor)

    # Points and gradients ------------------------------------------------------------------------------------

    def point(self, f: np.ndarray, support: np.ndarray, start=None) -> Point:
        return self._point(f, support, self._row_sums(f, support), start)

    def _point(self, f: np.ndarray, support: np.ndarray, raws: list[np.ndarray], start) -> Point:
        """The point whose scores, without offsets and intercept, are given."""
        for block, raw in zip(self._blocks, raws, strict=True):
            if block.offset is not None:
                raw += block.offset
        rows, value = self._at(raws), None
        if start is None and not len(support):
            intercept = self._constant_intercept
        else:
            intercept, value = self.loss.refit_intercept_and_value(
                rows, self._constant_intercept if start is None else start
            )
        for raw in raws:
            add_to_scores(raw, intercept, self.n_threads)
        if value is None:
            value = float(rows.total(self._value)[0])
        return Point(f, support, intercept, value, Scores(raws))

    def _value(self, y, z, v, n_threads) -> np.ndarray:
        return np.array([self.loss.value(y, z, v, n_threads)])

    def residuals(self, point: Point) -> Residuals:
        self.work.gradients += 1
        weighted = []
        for block, raw in zip(self._blocks, point.handle.raw, strict=True):
            out = np.empty(raw.shape, order="F")
            weighted.append(self.loss.residual(block.y, raw, out, v=block.v, n_threads=self.n_threads))
        return Residuals(weighted)

    def gradient(
        self, point: Point, tables: np.ndarray | None = None, residuals: Residuals | None = None
    ) -> np.ndarray:
        tables = np.arange(self.tables.n_tables) if tables is None else tables
        residuals = self.residuals(point) if residuals is None else residuals
        return self.as_gradient(self._bin_sums(residuals.weighted, tables), tables)

    def drift(self, residuals: Residuals, other: Residuals, rounding: float) -> np.ndarray:
        squares = added(
            self._squared_distances(*of_block)
            for of_block in zip(residuals.weighted, other.weighted, self._blocks, strict=True)
        )
        distance, size = np.sqrt(squares)
        return distance + rounding * size

    def _squared_distances(self, one: np.ndarray, other: np.ndarray, block: RowBlock) -> np.ndarray:
        """For each output sum v (r - r')^2 and sum v r^2."""
        squares = np.empty((DISTANCE_SUMS, self.n_outputs))
        sums = np.empty((-(-block.n_rows // BLOCK_ROWS), DISTANCE_SUMS))
        n_threads = worth(self.n_threads, block.n_rows)
        with np.errstate(over="ignore", invalid="ignore"):  # an infinite distance is a valid bound
            for c, (a, b) in enumerate(zip(np.atleast_2d(one.T), np.atleast_2d(other.T), strict=True)):
                over_ranges(kernels().squared_distances, len(sums), n_threads, a, b, block.v, sums)
                squares[:, c] = sums.sum(axis=0)
        return squares

    def dispersion(self, point: Point, df: float = 1.0) -> float:
        return self.loss.dispersion_of(self._at(point.handle.raw), self.n_total, df)

    def _row_sums(self, f: np.ndarray, tables: np.ndarray) -> list[np.ndarray]:
        """X @ f over some tables, for each block."""
        self.work.columns_read += len(tables)
        return [block.design.matvec(f, features=tables, n_threads=self.n_threads) for block in self._blocks]

    def _bin_sums(self, values: Sequence[np.ndarray], tables: np.ndarray) -> np.ndarray:
        """X.T @ values over some tables, zero elsewhere."""
        self.work.columns_read += len(tables)
        pairs = zip(self._blocks, values, strict=True)
        return added(block.design.rmatvec(a, features=tables, n_threads=self.n_threads) for block, a in pairs)

    # Curvature -----------------------------------------------------------------------------------------------

    def curvature(self, point: Point, majorize: bool = False, accuracy: Accuracy = EXACT) -> hessians.Curvature | None:
        """v_i times the second derivative of the loss in row i; in a sample, v is scaled to sum to 1 over it."""
        if self.loss.is_parabola and accuracy is EXACT and not majorize and self.can_be_averaged:
            return self._same_everywhere
        return self._curvature(point, majorize, accuracy)

    @cached_property
    def _same_everywhere(self) -> hessians.Curvature:
        """The curvature of squared errors, with the sums by bin that were asked for last: rounds ask for the same."""
        by_row = [self.loss.curvature(block.y, block.y, v=block.v, n_threads=self.n_threads) for block in self._blocks]
        return hessians.Curvature(by_row, False)

    def _curvature(self, point: Point, majorize: bool, accuracy: Accuracy) -> hessians.Curvature | None:
        chosen = [slice(None)] * len(self._blocks) if accuracy.n_sampled is None else self._spread(accuracy.n_sampled)
        scale = 1.0
        if accuracy.n_sampled is not None:
            scale = sum(float(block.v[rows].sum()) for block, rows in zip(self._blocks, chosen, strict=True))
        by_row = []
        for block, raw, rows in zip(self._blocks, point.handle.raw, chosen, strict=True):
            y, z, v = block.y[rows], raw[rows], block.v[rows]
            v = v if accuracy.n_sampled is None else v / scale
            if not majorize:
                by_row.append(self.loss.curvature(y, z, v=v, n_threads=self.n_threads))
                continue
            curvature = self.loss.majorized_curvature(y, z)
            if curvature is None:
                return None
            curvature.T[...] *= v
            by_row.append(curvature)
        return hessians.Curvature(by_row, majorize)

    def curvature_sums(
        self,
        point: Point,
        tables: np.ndarray,
        majorize: bool = False,
        curvature: hessians.Curvature | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        curvature = self.curvature(point, majorize) if curvature is None else curvature
        if curvature is None:
            raise ValueError(f"loss {self.loss.name!r} has no parabolas above it; ask for its own curvature")
        for known, by_bin in curvature.known_sums:
            if np.isin(tables, known).all():
                out, bins = np.zeros_like(by_bin), self.tables.bins_of(tables)
                out[bins] = by_bin[bins]
                return out, curvature.total
        by_bin = self._bin_sums(curvature.by_row, tables)
        curvature.known_sums[:] = [(tables, by_bin)]
        return by_bin, curvature.total

    def can_reuse_hessian(self, curvature: hessians.Curvature, other: hessians.Curvature) -> bool:
        return curvature.is_near(other, self.options.max_curvature_change)

    def accuracy(self, n_tables: int, n_groups: int, n_unknowns: int) -> Accuracy:
        return hessians.accuracy(self.options, self._n_rows, n_tables, n_groups, n_unknowns)

    def preconditioner_accuracy(self, n_unknowns: int) -> Accuracy:
        return hessians.preconditioner_accuracy(self.options, self._n_rows, n_unknowns)

    def merge(self, groups: Groups, accuracy: Accuracy = EXACT) -> hessians.Merged:
        chosen = [None] * len(self._blocks) if accuracy.n_sampled is None else self._spread(accuracy.n_sampled)
        codes = [
            hessians.merged_codes(block.design.codes, groups, rows)
            for block, rows in zip(self._blocks, chosen, strict=True)
        ]
        self.work.columns_read += len(groups.tables) * sum(c.shape[1] for c in codes) / self._n_rows
        return hessians.Merged.of(groups, accuracy, codes)

    def hessian(self, point: Point, merged: hessians.Merged, curvature: hessians.Curvature, output: int = 0) -> Hessian:
        by_row, n_sampled = curvature.of_output(output), merged.accuracy.n_sampled
        is_whole = n_sampled is None or len(by_row[0]) == self._blocks[0].n_rows
        if n_sampled is not None and is_whole:  # the curvature is that of all rows, the Hessian that of a sample
            rows = self._spread(n_sampled)
            scale = sum(float(block.v[own].sum()) for block, own in zip(self._blocks, rows, strict=True))
            by_row = [a[own] / scale for a, own in zip(by_row, rows, strict=True)]
        n_packs = len(merged.packing.packs)
        n_looked_at = sum(len(a) for a in by_row)
        self.work.columns_read += n_packs * (n_packs + 1) // 2 * n_looked_at / self._n_rows
        total = float(added(a.sum() for a in by_row))
        found = merged.hessian(by_row, total, self.n_threads)
        if not merged.accuracy.is_rough:
            return found
        whole = curvature if is_whole else None
        by_bin, of_all = self.curvature_sums(point, merged.groups.tables, curvature.is_majorized, whole)
        if self.n_outputs > 1:
            by_bin, of_all = np.ascontiguousarray(by_bin[:, output]), of_all[output]
        squares = None if n_sampled is None else merged.sums([curvature**2 for curvature in by_row])
        return hessians.rough(found, by_bin, float(of_all), merged.groups, squares, self.options.few_rows)

    def hessian_times(self, point: Point, curvature: hessians.Curvature, tables: np.ndarray):
        if self.n_outputs > 1 and not curvature.is_majorized:
            return classes.hessian_times(self, point, tables)
        total = np.maximum(curvature.total, 1e-300)

        def of_tables(f):
            raws = self._row_sums(f, tables)
            pairs = list(zip(curvature.by_row, raws, strict=True))
            mean = added((c * raw).sum(axis=0) for c, raw in pairs) / total
            return self._bin_sums([c * (raw - mean) for c, raw in pairs], tables)

        return of_tables

    def hessian_of_outputs(self, point: Point, n_unknowns: int, *merged: hessians.Merged) -> np.ndarray | None:
        n_sampled, groups = merged[0].accuracy.n_sampled, [own.groups for own in merged]
        if not classes.pays(self.options, groups, n_sampled, self._n_rows, n_unknowns):
            return None
        rows = self._spread(self._n_rows if n_sampled is None else n_sampled)
        v = [block.v[own] for block, own in zip(self._blocks, rows, strict=True)]
        scale = sum(float(own.sum()) for own in v)
        raws = zip(point.handle.raw, rows, strict=True)
        probabilities = [np.asfortranarray(self.loss.inverse_link(raw[own])) for raw, own in raws]
        return classes.hessian_between(probabilities, [own / scale for own in v], merged, self.n_threads)

    # Other objectives ----------------------------------------------------------------------------------------

    def sample(self, share: float) -> RowObjective | None:
        n_sampled = int(self._n_rows * share)
        if n_sampled < self.options.min_sample_rows:
            return None
        sample = self._over(n_sampled, is_part_of_many=True)
        try:
            self.loss.validate(np.concatenate([block.y for block in sample._blocks]))
        except ValueError:  # a class has no row in it
            return None
        return sample

    def representative(self) -> RowObjective:
        at_most = self.options.representative_rows
        return self if self._n_rows <= at_most else self._over(at_most)

    def _over(self, n_sampled: int, **options) -> RowObjective:
        """The same loss over a sample of rows (see `spread_rows`), with the n of the sample."""
        chosen = self._spread(n_sampled)
        weights = [block.v[rows] for block, rows in zip(self._blocks, chosen, strict=True)]
        share = sum(v.sum() for v in weights)
        blocks = [
            block.at(rows, v / share, self.n_threads)
            for block, rows, v in zip(self._blocks, chosen, weights, strict=True)
        ]
        return self._with(blocks, self.n_total * share, **options)

    def _with(self, blocks: Sequence[RowBlock], n_total: float, **options) -> RowObjective:
        """The same loss over other rows."""
        same: dict[str, Any] = {
            "n_outputs": self.n_outputs,
            "n_threads": self.n_threads,
            "options": self.options,
        }
        return RowObjective(blocks, self.loss, n_total=n_total, **same, **options)

    def _spread(self, n_sampled: int) -> list:
        """For each block, its rows in a sample of n_sampled rows; all rows if there are no more than that."""
        if n_sampled >= self._n_rows:
            return [slice(None)] * len(self._blocks)
        rows = spread_rows(self._n_rows, n_sampled)
        if len(self._blocks) == 1:
            return [rows]
        starts = np.cumsum([0, *(block.n_rows for block in self._blocks)])
        places = np.searchsorted(rows, starts)
        return [rows[a:b] - start for a, b, start in zip(places[:-1], places[1:], starts[:-1], strict=True)]

    def condensed(self) -> Objective:
        from rbr.objective.gram import gram_is_faster, gram_objective

        return gram_objective(self) if gram_is_faster(self) else self

    # For a finished fit ---------------------------------------------------------------------------------------

    def changes(self, point: Point):
        from rbr.objective.changes import RowChanges

        return RowChanges(self, point)

    def target_sums(self, tables: np.ndarray) -> np.ndarray:
        columns = zip(*(self.loss.target_columns(block.y, self.n_outputs) for block in self._blocks), strict=True)
        v = [block.v for block in self._blocks]
        by_column = (self._bin_sums(list(map(np.multiply, own, v)), tables) for own in columns)
        return self.n_total * np.stack(list(by_column), axis=1)

    def exposure_sums(self, tables: np.ndarray) -> np.ndarray | None:
        offsets = [block.users_offset for block in self._blocks]
        if self.loss.link != "log" or all(offset is None for offset in offsets):
            return None
        with np.errstate(over="ignore"):
            pairs = zip(self._blocks, offsets, strict=True)
            weighted = [block.v * (1.0 if offset is None else np.exp(offset)) for block, offset in pairs]
        return self.n_total * self._bin_sums(weighted, tables)

    def backfit(self, point: Point):
        from rbr.objective.backfit import RowBackfit

        return RowBackfit(self, point)

    def bags(self, n_ways: int, share: float, random_state: Any, whole_rows: bool = False, may_sample: bool = False):
        from rbr.objective.bags import RowBags

        return RowBags(self, n_ways, share, random_state, whole_rows)

    def better_jumps(self, point: Point, jumps: Mapping[int, Jumps]) -> dict[int, BetterJumps]:
        from rbr.objective.cuts import better_jumps

        self._check_values("better_jumps")
        return better_jumps(self, point, jumps)

    def rebin(self, edges: Mapping[int, tuple[np.ndarray, np.ndarray]], read: np.ndarray | None = None) -> RowObjective:
        from rbr.objective.cuts import rebinned

        self._check_values("rebin")
        blocks, known = rebinned(self._blocks, edges, read, self.known_moments)
        other = self._with(blocks, self.n_total)
        other.work, other.known_moments = self.work, known  # one fit, one count
        return other

    def bin_moments(self, tables: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        self._check_values("bin_moments")
        return lines_of_rows.bin_moments(self, tables)

    def distances(self, tables: np.ndarray, positions: np.ndarray) -> lines_of_rows.Distances:
        if len(tables):
            self._check_values("distances")
        return lines_of_rows.distances(self, tables, positions)

    def line_point(self, f, support, slopes, lines: lines_of_rows.Distances, start=None) -> Point:
        raws = self._row_sums(f, support)
        lines_of_rows.add_slopes(self, raws, slopes, lines)
        return self._point(f, support, raws, start)

    def on_lines(self, slopes: np.ndarray, lines: lines_of_rows.Distances) -> RowObjective:
        within = [np.zeros((block.n_rows, *slopes.shape[1:])) for block in self._blocks]
        lines_of_rows.add_slopes(self, within, slopes, lines)
        # Rows of equal codes may lie at different places of their bins.
        return self._shifted(within, self.tables.columns[lines.tables, 0])

    def line_gradient(self, point: Point, lines: lines_of_rows.Distances) -> np.ndarray:
        return lines_of_rows.line_gradient(self, point, lines)

    # Pairs ---------------------------------------------------------------------------------------------------

    def table_scores(self, f: np.ndarray, support: np.ndarray) -> Scores:
        return Scores(self._row_sums(f, support))

    def shifted_by(self, scores: Scores) -> RowObjective:
        return self._shifted(scores.raw)

    def _shifted(self, scores: Sequence[np.ndarray], columns: Sequence[int] = ()) -> RowObjective:
        """The objective with scores among its offsets, which differ between rows of equal codes by some columns."""
        shifted = zip(self._blocks, scores, strict=True)
        blocks = [block.shifted(own, columns) for block, own in shifted]
        return self._with(blocks, self.n_total, is_part_of_many=self._is_part_of_many)

    def over_pairs(self, coarse: CoarseBins, pairs: np.ndarray) -> RowObjective:
        return pairs_of_rows.over_pairs(self, coarse, pairs)

    def joint_sums(self, point: Point, coarse: CoarseBins, tables: np.ndarray, majorize: bool = False):
        return pairs_of_rows.joint_sums(self, point, coarse, tables, majorize)

    def _check_values(self, asked: str) -> None:
        if not self.has_values:
            raise ValueError(f"{asked} needs the values of the columns: make the objective with X, the training table")


def tables_of(blocks: Sequence[RowBlock], n_threads: int = 1) -> Tables:
    """The tables of blocks of rows, with the shares of the bins among the rows of all blocks."""
    tables = Tables.of(blocks[0].design)
    if len(blocks) == 1:
        return tables
    everything = np.arange(tables.n_tables)
    sums = added(block.design.rmatvec(block.v, features=everything, n_threads=n_threads) for block in blocks)
    totals = np.repeat(np.add.reduceat(sums, tables.offsets[:-1]), tables.n_bins)
    uniform = np.repeat(1.0 / tables.n_bins, tables.n_bins)
    shares = np.divide(sums, totals, out=uniform.copy(), where=totals > 0)
    is_uniform = blocks[0].design.weights_kind == "uniform"
    return replace(tables, shares=shares, weights=uniform if is_uniform else shares)
