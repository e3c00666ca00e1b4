"""Squared error by cross-tabulation: one pass over the rows, then none.

With squared error the rows enter a fit only through X' V X (how much weight each pair of bins shares), X' V y, and the
sums of y and y^2. `GramSums` holds these. They add over rows: the sums of all rows less those of a fold are the sums of
the rows outside it, and one pass over the rows serves every fold and every pair of limits. `GramObjective` answers all
that a solver asks of an `Objective` from them, at a cost that does not depend on the number of rows.

Two numbers that nearly cancel are the price. The target is shifted by its mean before anything is summed, and a loss is
then exact to about 1e-15 times the variance of y: a fit that leaves less than that unexplained does not see it.
Looks at: rbr.objective, rbr.design, the kernels.  Seen by: rbr.solver.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rbr._backend import kernels
from rbr.design import MAX_ENTRIES_PER_CALL, BinnedMatrix
from rbr.objective import Objective, Point
from rbr.parallel import over_ranges
from rbr.ragged import bins_of

# What the choice goes by, in nanoseconds of one core (docs/performance.md). A fit by rows costs so much per row and
# column, all its passes together; a cross-tabulation so much per row and pair of columns, and then so much per entry.
NS_OF_A_FIT_BY_ROWS = 25.0
NS_PER_PAIR, NS_PER_WEIGHTED_PAIR = 1.0, 1.5
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
        What was taken from y before summing; sums with different origins do not go together.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.design import BinnedMatrix
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
        """The sums over the rows of a design; y less the origin should be small where digits matter."""
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
        return GramSums(*(getattr(self, name) + sign * getattr(other, name) for name in names), self.origin)

    @property
    def bin_weights(self) -> np.ndarray:
        """The weight of the rows in each bin."""
        return np.diagonal(self.gram)


def _counts(design: BinnedMatrix, n_threads: int) -> np.ndarray:
    """`design.gram()` of rows that count once, by whole numbers."""
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


def pays(objective: Objective) -> bool:
    """Whether a fit from the cross-tabulation is expected to take less time than one over the rows."""
    design, n_rows = objective.design, objective.design.n_rows
    if objective.loss.name != "squared_error" or 8 * design.n_coef**2 > MAX_GRAM_BYTES:
        return False
    n_pairs = design.n_features * (design.n_features + 1) / 2
    per_pair = NS_PER_PAIR if _has_equal_weights(objective) else NS_PER_WEIGHTED_PAIR
    by_gram = n_rows * n_pairs * per_pair + NS_PER_GRAM_ENTRY * design.n_coef**2
    return by_gram < n_rows * design.n_features * NS_OF_A_FIT_BY_ROWS


def _has_equal_weights(objective: Objective) -> bool:
    return bool((objective.row_weights == objective.row_weights[0]).all())


def gram_objective(objective: Objective) -> GramObjective:
    """The same problem from its sums: one pass of n_features (n_features + 1) / 2 columns."""
    design, v = objective.design, objective.row_weights
    y = objective.y if objective.offset is None else objective.y - objective.offset
    weights = None if _has_equal_weights(objective) else v
    origin = float(np.sum(v * y) / np.sum(v))
    sums = GramSums.of(design, y, weights, origin=origin, n_threads=objective.n_threads)
    objective.n_columns_read += design.n_features * (design.n_features + 1) // 2
    return GramObjective(sums, design, objective.loss, n_total=objective.n_total, n_threads=objective.n_threads)


class GramObjective(Objective):
    """The squared error of an `Objective`, from sums.

    Its points have no raw predictions; `Objective.point` of the rows' own objective gives a point that has.

    Parameters
    ----------
    sums : GramSums
    design : BinnedMatrix
        For its offsets and weights; its codes are not read.
    loss : the squared error
    n_total : float
        n, the sum of the sample weights.
    """

    def __init__(self, sums: GramSums, design: BinnedMatrix, loss, *, n_total: float, n_threads: int = 1):
        super().__init__(design, None, loss, row_weights=None, n_total=n_total, n_threads=n_threads)
        self._gram, self._weight = sums.gram, sums.weight  # the one thing that is too large to scale
        self._target, self._masses = sums.target / sums.weight, sums.bin_weights / sums.weight
        self._product: tuple[np.ndarray | None, np.ndarray | None] = None, None
        self._y, self._y_squared, self._origin = sums.y / sums.weight, sums.y_squared / sums.weight, sums.origin

    def point(self, f: np.ndarray, support: np.ndarray, start=None) -> Point:
        bins = bins_of(support, self.design.offsets)
        intercept = self._y - float(self._masses[bins] @ f[bins])  # about the origin
        product = self._times(f, support)
        quadratic = float(f[bins] @ (product[bins] - 2 * self._target[bins]))
        # With the intercept c at its optimum E[(y - c - Xf)^2] = E[y^2] - 2 E[y Xf] + E[(Xf)^2] - c^2.
        loss = 0.5 * (self._y_squared + quadratic - intercept**2)
        return Point(f, support, intercept + self._origin, None, max(loss, 0.0))

    def gradient(self, point: Point, features: np.ndarray | None = None) -> np.ndarray:
        self.n_gradients += 1
        product = self._times(point.f, point.support)
        sums = self._target - (point.intercept - self._origin) * self._masses - product
        gradient = self._as_gradient(sums, np.arange(self.design.n_features))
        if features is not None:
            others = np.ones(len(gradient), dtype=bool)
            others[bins_of(features, self.design.offsets)] = False
            gradient[others] = 0.0
        return gradient

    def lazy_gradient(self, point: Point) -> AllRead:
        return AllRead(self.gradient(point), self.design.n_features)

    def curvature(self, point: Point, majorize: bool = False, rows: np.ndarray | None = None) -> np.ndarray | None:
        """Of squared error it is the same in every row: nothing to compute, and a parabola above gains nothing."""
        return None if majorize else np.ones(1)

    @property
    def constant_curvature(self) -> float:
        return 1.0

    def curvature_by_bin(self, curvature: np.ndarray, features: np.ndarray) -> np.ndarray:
        by_bin = np.zeros_like(self._masses)
        bins = bins_of(features, self.design.offsets)
        by_bin[bins] = self._masses[bins]
        return by_bin

    def hessian_of_tables(self, point: Point, curvature: np.ndarray, majorize: bool, features: np.ndarray):
        bins = bins_of(features, self.design.offsets)
        return lambda f: self._times(f, features) - self._masses * float(self._masses[bins] @ f[bins])

    def hessian_of_pieces(self, tables, curvature: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """X' V X between the pieces of some tables, its coupling with the intercept, that of the intercept alone."""
        n_unknowns = tables[-1].where.stop
        hessian = np.empty((n_unknowns, n_unknowns))
        for i, t in enumerate(tables):
            for u in tables[i:]:
                block = t.basis.basis.T @ self._gram[t.bins, u.bins] @ u.basis.basis / self._weight
                hessian[t.where, u.where], hessian[u.where, t.where] = block, block.T
        coupling = np.concatenate([t.basis.basis.T @ self._masses[t.bins] for t in tables])
        return hessian, coupling, 1.0

    def dispersion(self, point: Point, df: float = 1.0) -> float:
        return 2 * point.loss * self.n_total / max(self.n_total - df, 1.0)

    def _times(self, f: np.ndarray, features: np.ndarray) -> np.ndarray:
        """X' V X f, of tables that are zero but for some features. A point and its gradient share it."""
        if self._product[0] is not f:
            product, offsets = np.zeros(len(f)), self.design.offsets
            for j in features:
                bins = slice(offsets[j], offsets[j + 1])
                product += f[bins] @ self._gram[bins]
            self._product = f, product / self._weight
        return self._product[1]


class AllRead:
    """A gradient whose columns are all there; see `rbr.objective.LazyGradient`."""

    residual = None

    def __init__(self, values: np.ndarray, n_features: int):
        self.values, self.is_read = values, np.ones(n_features, dtype=bool)

    def read(self, features: np.ndarray) -> None:
        """Nothing is left to read."""
