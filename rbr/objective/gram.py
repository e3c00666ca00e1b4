"""Squared error by cross-tabulation: one pass over the rows, then none.

With squared error the rows enter a fit only through X' V X (how much weight each pair of bins shares), X' V y, and the
sums of y and y^2. `GramSums` holds these. They add over rows: the sums of all rows less those of a fold are the sums of
the rows outside it, and one pass over the rows serves every fold and every pair of limits. `GramObjective` implements
from them all that a solver needs of an `Objective`, at a cost that does not depend on the number of rows.

The disadvantage is cancellation: the loss is a difference of sums that may be nearly equal. The target is therefore
shifted by its mean before anything is summed, and a loss is then exact to about 1e-15 times the variance of y; a fit
cannot resolve less than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from rbr._backend import kernels
from rbr._options import DEFAULTS, SolverOptions
from rbr._parallel import over_ranges
from rbr.data.design import MAX_ENTRIES_PER_CALL, BinnedMatrix
from rbr.losses import Loss
from rbr.objective.changes import ParabolaChange
from rbr.objective.common import BaseObjective, added
from rbr.objective.protocol import EXACT, Accuracy, Groups, Handle, Point, Tables
from rbr.objective.rows import RowObjective

# The cost model of `gram_is_faster`, in nanoseconds of one core (docs/performance.md): a cross-tabulation has a cost
# per row and pair of columns, and one per entry of the matrix.
NS_PER_PAIR, NS_PER_WEIGHTED_PAIR = 2.5, 3.0
NS_PER_GRAM_ENTRY = 15.0
MAX_GRAM_BYTES = 256 << 20


@dataclass(frozen=True, eq=False)
class GramSums:
    """The sums over rows that squared error needs; they add and subtract as sets of rows do.

    Attributes
    ----------
    gram : array of shape (n_coef, n_coef)
        Sum of the sample weights over the rows that have both bins.
    target : array of shape (n_coef,)
        By bin, the sum of weight * (y - origin).
    weight, y, y_squared : float
        Sums over all rows of the weight, and of weight * (y - origin) and its square.
    origin : float
        What was subtracted from y before summing; sums with different origins cannot be combined.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.data.design import BinnedMatrix
    >>> B = BinnedMatrix([[0, 0, 1, 1, 1]], offsets=[0, 2])
    >>> y = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> whole, fold = GramSums.of(B, y), GramSums.of(B[:2], y[:2])
    >>> rest = whole - fold
    >>> rest.target, rest.weight
    (array([ 0., 12.]), 3.0)
    >>> (rest + fold).gram
    array([[2., 0.],
           [0., 3.]])
    """

    gram: np.ndarray
    target: np.ndarray
    weight: float
    y: float
    y_squared: float
    origin: float = 0.0

    @classmethod
    def of(cls, design: BinnedMatrix, y, sample_weight=None, *, origin: float = 0.0, n_threads: int = 1) -> GramSums:
        """The sums over the rows of a design; an origin near the mean of y keeps the most digits."""
        shifted = np.asarray(y, dtype=np.float64) - origin
        if sample_weight is None:
            gram, weighted, weight = _counts(design, n_threads), shifted, float(design.n_rows)
        else:
            weights = np.asarray(sample_weight, dtype=np.float64)
            gram, weighted = design.gram(row_weights=weights, n_threads=n_threads), weights * shifted
            weight = float(weights.sum())
        target = design.rmatvec(weighted, n_threads=n_threads)
        return cls(gram, target, weight, float(weighted.sum()), float((weighted * shifted).sum()), origin)

    def __add__(self, other: GramSums) -> GramSums:
        return self._combined(other, 1.0)

    def __sub__(self, other: GramSums) -> GramSums:
        return self._combined(other, -1.0)

    def _combined(self, other: GramSums, sign: float) -> GramSums:
        if self.origin != other.origin or self.gram.shape != other.gram.shape:
            raise ValueError(
                f"sums with origin {self.origin} over {len(self.gram)} bins and with origin {other.origin} over "
                f"{len(other.gram)} bins do not go together; both must agree"
            )
        names = ("gram", "target", "weight", "y", "y_squared")
        sums: dict[str, Any] = {name: getattr(self, name) + sign * getattr(other, name) for name in names}
        return GramSums(**sums, origin=self.origin)

    @property
    def bin_weights(self) -> np.ndarray:
        """The weight of the rows in each bin."""
        return np.diagonal(self.gram)


def _counts(design: BinnedMatrix, n_threads: int) -> np.ndarray:
    """`design.gram()` for rows of weight 1, counted in integers."""
    out = np.empty((design.n_coef, design.n_coef))
    n_pairs = design.n_features * (design.n_features + 1) // 2
    over_ranges(
        kernels().cross_counts,
        n_pairs,
        n_threads if n_pairs * design.n_rows >= 200_000 else 1,
        *(design.codes, design.offsets, np.arange(design.n_features), design.offsets, out),
        per_call=max(1, MAX_ENTRIES_PER_CALL // max(design.n_rows, 1)),
    )
    return out


def gram_is_faster(objective: Any, has_equal_weights: bool | None = None) -> bool:
    """Whether a fit from the cross-tabulation is expected to take less time than one over the rows.

    has_equal_weights : of the rows; None looks at the blocks of a RowObjective
    """
    tables, n_rows = objective.tables, objective._n_rows
    if not objective.has_many_rows or objective.loss.name != "squared_error":
        return False
    if 8 * tables.n_coef**2 > MAX_GRAM_BYTES:
        return False
    n_pairs = tables.n_tables * (tables.n_tables + 1) / 2
    has_equal_weights = _has_equal_weights(objective) if has_equal_weights is None else has_equal_weights
    per_pair = NS_PER_PAIR if has_equal_weights else NS_PER_WEIGHTED_PAIR
    by_gram = n_rows * n_pairs * per_pair + NS_PER_GRAM_ENTRY * tables.n_coef**2
    options = objective.options
    return by_gram < (n_rows + options.rows_besides) * tables.n_tables * options.ns_per_entry_by_rows


def _has_equal_weights(objective: RowObjective) -> bool:
    first = objective._blocks[0].v[0]
    return all(bool((block.v == first).all()) for block in objective._blocks)


def gram_objective(objective: RowObjective) -> GramObjective:
    """The same problem from its sums, which takes one pass of n_tables (n_tables + 1) / 2 columns."""
    is_weighted, blocks = not _has_equal_weights(objective), objective._blocks
    targets = [block.y if block.offset is None else block.y - block.offset for block in blocks]
    weighted = sum(float(np.sum(block.v * y)) for block, y in zip(blocks, targets, strict=True))
    origin = weighted / sum(float(np.sum(block.v)) for block in blocks)
    sums = added(
        GramSums.of(block.design, y, block.v if is_weighted else None, origin=origin, n_threads=objective.n_threads)
        for block, y in zip(blocks, targets, strict=True)
    )
    n_tables = objective.tables.n_tables
    objective.work.columns_read += n_tables * (n_tables + 1) // 2
    same: dict[str, Any] = {
        "n_total": objective.n_total,
        "n_threads": objective.n_threads,
        "options": objective.options,
    }
    return GramObjective(sums, objective.tables, objective.loss, **same)


@dataclass(frozen=True, eq=False)
class _MergedBins(Handle):
    groups: Groups


@dataclass(frozen=True, eq=False)
class GramHessian:
    """A `Hessian` by products of bases with the cross-tabulation, most of which are known."""

    objective: GramObjective
    groups: Groups
    total: float = 1.0
    by_bin: np.ndarray | None = None

    def in_coordinates(self, bases: list[np.ndarray], offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        bins = [self.groups.bins(table) for table in self.groups.tables]
        found = [
            self.objective.along(int(table), self.groups.of_bin[own], basis)
            for table, own, basis in zip(self.groups.tables, bins, bases, strict=True)
        ]
        along = np.concatenate([rows for _, rows in found])
        pairs = list(zip(bins, found, strict=True))
        matrix = np.concatenate([along[:, own] @ by_bin for own, (by_bin, _) in pairs], axis=1)
        coupling = np.concatenate([by_bin.T @ self.objective.masses[own] for own, (by_bin, _) in pairs])
        return (matrix + matrix.T) / 2, coupling


_NOTHING = Handle()


class GramChanges:
    """How squared error changes when one table changes: by a parabola in each bin, which is exact."""

    def __init__(self, objective: GramObjective, point: Point):
        self._objective, self._f = objective, point.f
        gradient = objective.gradient(point, point.support)
        self._pull = -objective.tables.weights * gradient

    def of(self, table: int, output: int = 0) -> ParabolaChange:
        tables = self._objective.tables
        bins = slice(tables.offsets[table], tables.offsets[table + 1])
        masses, pull = self._objective.masses[bins], self._pull[bins]
        # The rows without a bin get the rest: all weights sum to 1, all pulls to 0.
        weight = np.append(masses, max(1.0 - float(masses.sum()), 0.0))
        return ParabolaChange(np.append(self._f[bins], 0.0), weight, np.append(pull, -float(pull.sum())))

    def rise_without(self, table: int) -> float:
        change = self.of(table)
        best = float(change.weight @ change.f)  # the constant that replaces the table
        return float(change.rises(best - change.f, np.zeros(len(change.f), dtype=bool)).sum())


class GramObjective(BaseObjective):
    """Squared error from sums: an `Objective` that raises a ValueError for what needs single rows.

    Parameters
    ----------
    sums : GramSums
    tables : Tables
    loss : Loss
        The squared error.
    n_total : float
        n, the sum of the sample weights.
    """

    has_many_rows = True
    can_be_averaged = False  # rounds keep the scores of rows
    has_small_weights = False
    has_constant_target = False
    screening_is_faster = False  # a column of the gradient costs nothing
    has_values = False
    constant_curvature = 1.0

    def __init__(
        self,
        sums: GramSums,
        tables: Tables,
        loss: Loss,
        *,
        n_total: float,
        n_threads: int = 1,
        options: SolverOptions = DEFAULTS,
    ):
        super().__init__(tables, loss, n_outputs=1, n_total=n_total, n_threads=n_threads, options=options)
        self._gram, self._weight = sums.gram, sums.weight  # the matrix is too large for a scaled copy
        self._target, self.masses = sums.target / sums.weight, sums.bin_weights / sums.weight
        self._product: tuple[np.ndarray | None, np.ndarray] = None, np.zeros(0)
        self._along: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._y, self._y_squared, self._origin = sums.y / sums.weight, sums.y_squared / sums.weight, sums.origin

    @property
    def constant_loss(self) -> float:
        return 0.5 * (self._y_squared - self._y**2)

    def point(self, f: np.ndarray, support: np.ndarray, start=None) -> Point:
        bins = self.tables.bins_of(support)
        intercept = self._y - float(self.masses[bins] @ f[bins])  # relative to the origin
        product = self._times(f, support)
        quadratic = float(f[bins] @ (product[bins] - 2 * self._target[bins]))
        # With the intercept c at its optimum E[(y - c - Xf)^2] = E[y^2] - 2 E[y Xf] + E[(Xf)^2] - c^2.
        loss = 0.5 * (self._y_squared + quadratic - intercept**2)
        return Point(f, support, intercept + self._origin, max(loss, 0.0), _NOTHING)

    def residuals(self, point: Point) -> Handle:
        self.work.gradients += 1
        return _NOTHING

    def gradient(self, point: Point, tables: np.ndarray | None = None, residuals: Handle | None = None) -> np.ndarray:
        if residuals is None:
            self.residuals(point)
        product = self._times(point.f, point.support)
        sums = self._target - (point.intercept - self._origin) * self.masses - product
        gradient = self.as_gradient(sums, np.arange(self.tables.n_tables))
        if tables is not None and len(tables) < self.tables.n_tables:
            others = np.ones(len(gradient), dtype=bool)
            others[self.tables.bins_of(tables)] = False
            gradient[others] = 0.0
        return gradient

    def drift(self, residuals: Handle, other: Handle, rounding: float) -> np.ndarray:
        """Infinite, which bounds nothing: no column is screened."""
        return np.full(1, np.inf)

    def curvature(self, point: Point, majorize: bool = False, accuracy: Accuracy = EXACT) -> Handle | None:
        """The curvature is the same in every row: nothing to compute, and no use for another parabola above."""
        return None if majorize else _NOTHING

    def curvature_sums(
        self, point: Point, tables: np.ndarray, majorize: bool = False, curvature: Handle | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        by_bin, bins = np.zeros_like(self.masses), self.tables.bins_of(tables)
        by_bin[bins] = self.masses[bins]
        return by_bin, np.array(1.0)

    def can_reuse_hessian(self, curvature: Handle, other: Handle) -> bool:
        return True

    def accuracy(self, n_tables: int, n_groups: int, n_unknowns: int) -> Accuracy:
        return EXACT

    def preconditioner_accuracy(self, n_unknowns: int) -> Accuracy:
        return EXACT

    def merge(self, groups: Groups, accuracy: Accuracy = EXACT) -> _MergedBins:
        return _MergedBins(groups)

    def hessian(self, point: Point, merged: _MergedBins, curvature: Handle, output: int = 0) -> GramHessian:
        return GramHessian(self, merged.groups)

    def along(self, table: int, of_bin: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(a table's basis by bin, its transpose times the rows of the cross-tabulation), given the basis by group.

        Most tables of a fit keep their pieces from one iteration to the next, and their basis with them.
        """
        known = self._along.get(table)
        if known is None or known[0] is not basis:
            by_bin = np.concatenate([basis, np.zeros((1, basis.shape[1]))])[of_bin]
            rows = self._gram[self.tables.offsets[table] : self.tables.offsets[table + 1]]
            known = self._along[table] = basis, by_bin, by_bin.T @ rows / self._weight
        return known[1:]

    def hessian_of_outputs(self, point: Point, n_unknowns: int, *merged: _MergedBins) -> None:
        """None: there is one output."""

    def hessian_times(self, point: Point, curvature: Handle, tables: np.ndarray):
        bins = self.tables.bins_of(tables)
        return lambda f: self._times(f, tables) - self.masses * float(self.masses[bins] @ f[bins])

    def dispersion(self, point: Point, df: float = 1.0) -> float:
        return 2 * point.loss * self.n_total / max(self.n_total - df, 1.0)

    def sample(self, share: float) -> None:
        """None: a fit from sums need not begin on a sample."""

    def representative(self) -> GramObjective:
        return self

    def condensed(self) -> GramObjective:
        return self

    def changes(self, point: Point) -> GramChanges:
        return GramChanges(self, point)

    def target_sums(self, tables: np.ndarray) -> np.ndarray:
        """Of y less its offset, since the sums hold nothing else."""
        out, bins = np.zeros((len(self._target), 1)), self.tables.bins_of(tables)
        out[bins, 0] = self.n_total * (self._target + self._origin * self.masses)[bins]
        return out

    def exposure_sums(self, tables: np.ndarray) -> None:
        """None: squared error has no log link."""

    def table_scores(self, f: np.ndarray, support: np.ndarray) -> NoReturn:
        self._refuse("table_scores keeps the scores of rows")

    def shifted_by(self, scores: Handle) -> NoReturn:
        self._refuse("shifted_by adds to the scores of rows")

    def over_pairs(self, coarse, pairs: np.ndarray) -> NoReturn:
        self._refuse("over_pairs needs the rows of each cell")

    def joint_sums(self, point: Point, coarse, tables: np.ndarray, majorize: bool = False) -> NoReturn:
        self._refuse("joint_sums needs the residuals of rows")

    def backfit(self, point: Point) -> NoReturn:
        self._refuse("backfit keeps the scores of rows")

    def bags(
        self, n_ways: int, share: float, random_state, whole_rows: bool = False, may_sample: bool = False
    ) -> NoReturn:
        self._refuse("bags draw rows")

    def better_jumps(self, point: Point, jumps) -> NoReturn:
        self._refuse("better_jumps needs values within bins")

    def rebin(self, edges, read=None) -> NoReturn:
        self._refuse("rebin needs values within bins")

    def bin_moments(self, tables: np.ndarray) -> NoReturn:
        self._refuse("bin_moments needs values within bins")

    def distances(self, tables: np.ndarray, positions: np.ndarray) -> NoReturn:
        self._refuse("distances needs values within bins")

    def line_point(self, f: np.ndarray, support: np.ndarray, slopes: np.ndarray, lines, start=None) -> NoReturn:
        self._refuse("line_point needs values within bins")

    def on_lines(self, slopes: np.ndarray, lines) -> NoReturn:
        self._refuse("on_lines needs values within bins")

    def line_gradient(self, point: Point, lines) -> NoReturn:
        self._refuse("line_gradient needs values within bins")

    @staticmethod
    def _refuse(reason: str) -> NoReturn:
        raise ValueError(f"{reason}, which a cross-tabulation does not have; use the objective over rows")

    def _times(self, f: np.ndarray, tables: np.ndarray) -> np.ndarray:
        """X' V X f for an f that is zero outside some tables; the last product is kept, for the gradient at a point."""
        if self._product[0] is not f:
            product, offsets = np.zeros(len(f)), self.tables.offsets
            for j in tables:
                bins = slice(offsets[j], offsets[j + 1])
                product += f[bins] @ self._gram[bins]
            self._product = f, product / self._weight
        return self._product[1]
