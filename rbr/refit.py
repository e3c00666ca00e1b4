"""Newton refits: with the features and pieces held fixed, a fit is a smooth problem of few numbers.

The tables that share a set of pieces form a linear space. `piece_basis` gives each used table an orthonormal
basis (in the geometry of the weights) of the part of that space with mean zero. So the unknowns are plain coordinates,
a ridge penalty is alpha times the identity, and constants, lines, levels, frequencies and missing bins need no
cases of their own. The Hessian is a cross-tabulation of the curvature over merged bins when the support is small, and
is applied by passes over the used columns (conjugate gradients) when it is large.
Looks at: rbr.objective, rbr.constraints.  Seen by: rbr.solver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from rbr.constraints import SHAPES, BoundConstraints
from rbr.gram import GramObjective
from rbr.objective import Objective, Point
from rbr.ragged import bins_of
from rbr.reference.projections import isotonic
from rbr.sampling import spread_rows

_INCREASING, _DECREASING = SHAPES.index("increasing"), SHAPES.index("decreasing")
_LEVELS, _FREQUENCY = SHAPES.index("levels"), SHAPES.index("frequency")

# Up to these sizes the Hessian is built and factored; beyond, it is only applied.
MAX_DENSE_FEATURES = 64
MAX_DENSE_GROUPS = 4000
MAX_DENSE_UNKNOWNS = 2000

MAX_HALVINGS = 6

# With more rows than this, or where lines have so many bins that the cross-tabulation has more cells than this and than
# entries, the built Hessian is a rough one: a Newton step still gains a digit or more, at a small part of the price.
# The gradient and the test of descent are always exact.
ROUGH_FROM_ROWS = 50_000
ROUGH_FROM_CELLS = 1 << 20
# Between tables the bins of a line are taken together to so many, which is out by a sixty-fourth; where a sample of
# rows is out by more, to half as many.
LINE_GROUPS = 8
# What was factored serves again while the curvature of the rows has moved by at most this part of itself since.
STALE = 0.02
# With many more rows than this, and than so many for each unknown, a sample of rows serves, which is out by about
# sqrt(unknowns / rows).
HESSIAN_ROWS = 1 << 15
HESSIAN_ROWS_PER_UNKNOWN = 64
# Of a group with so many rows in the sample half of what it says counts.
FEW_ROWS = 10
# Where a step lowers the value by more than this part of what the step before did, that was too rough after all.
SLOW = 0.1

# A step gains about this part of what the step before gained.
USUAL = 0.03

# Conjugate gradients, where the Hessian is only applied: relative residual, and steps at most.
CG_TOL = 1e-3
CG_STEPS = 50


@dataclass(frozen=True, eq=False)
class TableBasis:
    """One table's space of pieces.

    basis : (n_bins, d) w-orthonormal tables of mean zero
    groups : per bin, bins of a constant piece share a group; n_groups for a bin outside every piece
    group_basis : (n_groups, d) the basis by group
    """

    basis: np.ndarray
    groups: np.ndarray
    group_basis: np.ndarray


def piece_basis(labels, weights, positions, shape: int, has_missing: bool) -> TableBasis:
    """The basis of the tables with given pieces; see `rbr.reference.projections.prox_table` for the labels."""
    if shape == _FREQUENCY:
        spanning, groups = _cosines(labels, has_missing), np.arange(len(labels))
        n_groups = len(labels)
    else:
        spanning, groups, n_groups = _indicators_and_lines(labels, weights, positions)
    norms = np.sqrt(weights @ spanning**2)
    orthonormal = (spanning / np.where(norms > 0, norms, 1.0))[:, norms > 0]
    basis = _of_mean_zero(orthonormal, weights @ orthonormal)
    by_group = np.zeros((n_groups + 1, basis.shape[1]))
    by_group[groups] = basis
    return TableBasis(basis, groups, by_group[:n_groups])


def coarsened(basis: TableBasis, labels: np.ndarray, weights: np.ndarray, most: int) -> TableBasis:
    """The same tables, the bins of each line in at most so many groups that have the mean of their bins' basis."""
    bins = np.flatnonzero((labels >= 0) & (labels % 2 == 1))
    if not len(bins):
        return basis
    groups, lines = basis.groups.copy(), labels[bins]
    size = np.bincount(lines)[lines]
    rank = _rank_in_run(lines)
    groups[bins] += rank * np.minimum(most, size) // size - rank
    kept, groups = np.unique(groups, return_inverse=True)
    n_groups = len(kept) - bool(kept[-1] == len(basis.group_basis))  # the last may stand for "outside"
    # A group without weight takes the plain mean.
    weights = weights + 1e-300
    sums = np.zeros((len(kept), basis.basis.shape[1]))
    np.add.at(sums, groups, weights[:, None] * basis.basis)
    means = sums / np.bincount(groups, weights)[:, None]
    return TableBasis(basis.basis, groups, means[:n_groups])


def _cosines(labels, has_missing: bool) -> np.ndarray:
    """A column for each frequency in use, and one for the missing bin."""
    n_bins, n_ordered = len(labels), len(labels) - bool(has_missing)
    angles = np.pi * (np.arange(n_ordered) + 0.5) / n_ordered
    frequencies = np.flatnonzero(labels[:n_ordered] >= 0)
    columns = np.zeros((n_bins, len(frequencies) + bool(has_missing)))
    columns[:n_ordered, : len(frequencies)] = np.cos(angles[:, None] * frequencies)
    columns[n_ordered:, len(frequencies) :] = 1.0
    return columns


def _indicators_and_lines(labels, weights, positions) -> tuple[np.ndarray, np.ndarray, int]:
    """(columns, groups, n_groups): the indicator of each piece, then of each line its centred positions."""
    covered = np.flatnonzero(labels >= 0)
    pieces, piece_of = np.unique(labels[covered], return_inverse=True)
    n_pieces, is_line = len(pieces), pieces % 2 == 1
    sizes = np.where(is_line, np.bincount(piece_of, minlength=n_pieces), 1)
    first_group = np.cumsum(sizes) - sizes
    n_groups = int(sizes.sum())
    groups = np.full(len(labels), n_groups)
    groups[covered] = first_group[piece_of]
    columns = np.zeros((len(labels), n_pieces + int(is_line.sum())))
    columns[covered, piece_of] = 1.0
    if is_line.any():
        of_line = is_line[piece_of]
        bins, line = covered[of_line], (np.cumsum(is_line) - 1)[piece_of[of_line]]
        groups[bins] += _rank_in_run(line)
        x, w = positions[bins], weights[bins]
        live = w > 0
        width = np.full((2, n_pieces), -np.inf)  # of -x and of x the largest
        np.maximum.at(width[0], line[live], -x[live])
        np.maximum.at(width[1], line[live], x[live])
        center = np.bincount(line, w * x) / np.maximum(np.bincount(line, w), 1e-300)
        has_slope = width.sum(axis=0)[line] > 0
        columns[bins, n_pieces + line] = np.where(has_slope, x - center[line], 0.0)
    return columns, groups, n_groups


def _rank_in_run(runs: np.ndarray) -> np.ndarray:
    """0, 1, 2, … within each run of equal numbers."""
    starts = np.flatnonzero(np.diff(runs, prepend=-1))
    return np.arange(len(runs)) - np.repeat(starts, np.diff(starts, append=len(runs)))


def _of_mean_zero(orthonormal: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span the tables of mean zero: a Householder map of the given ones, without the first.

    The constant table lies in their space, so `means`, its coordinates, has norm 1.
    """
    axis = means.copy()
    axis[0] += np.copysign(np.linalg.norm(means), means[0])
    scale = axis @ axis
    reflected = np.outer(orthonormal @ axis, axis[1:])
    return orthonormal[:, 1:] - (2.0 / scale if scale else 0.0) * reflected


def refit(
    objective: Objective,
    constraints: BoundConstraints,
    point: Point,
    labels: np.ndarray,
    *,
    alpha: float,
    step: float,
    tol: float,
    max_newton: int,
    target: float = np.inf,
    enough: float = 0.0,
    spaces: Spaces | None = None,
) -> tuple[Point, np.ndarray]:
    """Newton steps within the pieces of a point, each accepted only if loss + ridge falls.

    Stops when a gradient step of the given size within the pieces would move the tables by at most
    tol * ||f||_w, when twice the decrease that a Newton step promises would not reach the target for loss + ridge, or
    when the next one can be expected to gain less than is `enough`.
    Returns the point and its labels; monotone tables may have merged pieces. `spaces` holds what earlier refits have
    left.
    """
    if not len(point.support):
        return point, labels
    value = point.loss + ridge(point.f, constraints.weights, alpha)
    spaces = Spaces() if spaces is None else spaces
    last_descent = np.inf
    for _ in range(max_newton):
        space = spaces.of(objective, constraints, point.support, labels)  # a new one where monotone pieces were merged
        gradient = objective.gradient(point, point.support) if point.gradient is None else point.gradient
        slope = space.coordinates(gradient) + alpha * space.coordinates(point.f)
        if step * np.linalg.norm(slope) <= tol * norm(point.f, constraints.weights):
            break
        trial = _descend(objective, constraints, point, labels, space, slope, alpha, value, target)
        if trial is None:
            break
        descent = value - trial[-1]
        if descent > SLOW * last_descent:
            space.be_exact()
        last_descent = descent
        point, labels, value = trial
        if USUAL * descent < enough:
            break
    return point, labels


def _descend(objective, constraints, point, labels, space, gradient, alpha, value, target):
    """(point, labels, value) after a Newton step, halved until the value falls; None if it does not.

    Where the loss is straight (quantile, Huber) the Hessian says little; then a parabola above the loss serves.
    """
    used = bins_of(point.support, constraints.offsets)
    for majorize in (False, True):
        move = space.newton_move(point, gradient, alpha, majorize)
        if move is None:
            return None
        objective.n_newton_steps += 1
        promise = -0.5 * float(gradient @ space.coordinates(move))
        if value - 2 * promise > target:
            return None
        for halving in range(MAX_HALVINGS + 1):
            moved = np.zeros(point.f.shape)
            moved[used] = point.f[used] + 0.5**halving * move[used]
            tables, new_labels = keep_monotone(constraints, moved, labels, point.support)
            intercept = point.intercept + 0.5**halving * space.intercept_move(move)
            trial = objective.point(tables, used_features(constraints, new_labels), intercept)
            trial_value = trial.loss + ridge(tables, constraints.weights, alpha)
            if trial_value < value:
                return trial, new_labels, trial_value
    return None


def norm(f: np.ndarray, weights: np.ndarray) -> float:
    """||f||_w over all tables and classes."""
    if f.ndim == 1:  # of many tables few are used
        bins = np.flatnonzero(f)
        f, weights = f[bins], weights[bins]
    return float(np.sqrt(np.sum(weights * (f**2).T)))


def ridge(f: np.ndarray, weights: np.ndarray, alpha: float) -> float:
    """alpha / 2 ||f||_w^2."""
    return 0.5 * alpha * norm(f, weights) ** 2 if alpha else 0.0


class _Table(NamedTuple):
    """A table of one class in a space: its feature, basis, bins, and where its coordinates stand in the class's."""

    feature: int
    basis: TableBasis
    bins: slice
    where: slice


class _Factored(NamedTuple):
    """The inverse of a Hessian, and the curvature of the rows that it was built from."""

    inverse: Callable[[np.ndarray], np.ndarray] | None
    curvature: np.ndarray
    is_majorized: bool

    def serves(self, curvature: np.ndarray, majorize: bool) -> bool:
        if self.inverse is None or majorize != self.is_majorized or len(curvature) != len(self.curvature):
            return False
        return bool(np.abs(curvature - self.curvature).sum() <= STALE * self.curvature.sum())


class _Space:
    """The coordinates of all tables whose pieces are given, class by class."""

    def __init__(self, objective: Objective, constraints: BoundConstraints, support: np.ndarray, labels: np.ndarray):
        self.objective, self.labels = objective, labels
        self.offsets, self.weights = constraints.offsets, constraints.weights
        self.support, self.n_classes = support, objective.n_outputs
        by_class = labels[:, None] if labels.ndim == 1 else labels
        self.classes: list[list[_Table]] = []
        for c in range(self.n_classes):
            tables, first = [], 0
            for j in self.support:
                bins = slice(self.offsets[j], self.offsets[j + 1])
                if (by_class[bins, c] >= 0).any():
                    args = by_class[bins, c], self.weights[bins], constraints.positions[bins]
                    basis = piece_basis(*args, constraints.shapes[j], constraints.missing[j])
                    size = basis.basis.shape[1]
                    tables.append(_Table(int(j), basis, bins, slice(first, first + size)))
                    first += size
            self.classes.append(tables)
        self.starts = np.concatenate([[0], np.cumsum([t[-1].where.stop if t else 0 for t in self.classes])])
        self._merged: dict[int, tuple] = {}
        self._factored = _Factored(None, np.zeros(0), False)
        self._curvature_shares: np.ndarray | None = None  # of each bin in the curvature of all rows, where known
        n_rows = 0 if isinstance(objective, GramObjective) else objective.design.n_rows
        n_sample = max(HESSIAN_ROWS, HESSIAN_ROWS_PER_UNKNOWN * int(self.starts[-1]))
        tables = self.classes[0]
        n_cells = sum(len(t.basis.group_basis) for t in tables) ** 2
        n_entries = n_rows * len(tables) * (len(tables) + 1) // 2
        self._is_rough = n_rows > ROUGH_FROM_ROWS or n_cells > max(n_entries, ROUGH_FROM_CELLS) and n_rows > 0
        self._hessian_rows = spread_rows(n_rows, n_sample) if self._is_rough and 2 * n_sample <= n_rows else None

    def is_of(self, objective: Objective, constraints: BoundConstraints, labels: np.ndarray) -> bool:
        is_same = self.objective is objective and self.weights is constraints.weights
        return is_same and np.array_equal(self.labels, labels)

    def be_exact(self) -> None:
        """From now on the Hessian is that of all rows and bins."""
        if self._is_rough:
            self._is_rough, self._hessian_rows, self._merged = False, None, {}

    def coordinates(self, f: np.ndarray) -> np.ndarray:
        """<basis, f>_w, all classes in one vector."""
        return self._of_bins(f, self.weights)

    def _of_bins(self, sums: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """basis.T @ sums, or basis.T @ (weights * sums), all classes in one vector."""
        columns = sums[:, None] if sums.ndim == 1 else sums
        parts = []
        for c in range(self.n_classes):
            for t in self.classes[c]:
                values = columns[t.bins, c] if weights is None else weights[t.bins] * columns[t.bins, c]
                parts.append(t.basis.basis.T @ values)
        return np.concatenate([np.zeros(0), *parts])

    def tables(self, coordinates: np.ndarray) -> np.ndarray:
        """The tables with given coordinates."""
        out = self.objective.zero_tables()
        columns = out[:, None] if out.ndim == 1 else out
        for c, tables in enumerate(self.classes):
            mine = coordinates[self.starts[c] : self.starts[c + 1]]
            for t in tables:
                columns[t.bins, c] = t.basis.basis @ mine[t.where]
        return out

    def intercept_move(self, move: np.ndarray) -> float:
        """What the intercept will answer to a move of the tables, to first order; 0 where that is not known."""
        return 0.0 if self._curvature_shares is None else -float(self._curvature_shares @ move)

    def newton_move(self, point: Point, gradient: np.ndarray, alpha: float, majorize: bool) -> np.ndarray | None:
        """Minus the inverse Hessian times the gradient, as tables. Majorized: of a parabola above the loss, if any."""
        starts = self.starts
        is_small = [
            len(tables) <= MAX_DENSE_FEATURES
            and sum(len(t.basis.group_basis) for t in tables) <= MAX_DENSE_GROUPS
            and starts[c + 1] - starts[c] <= MAX_DENSE_UNKNOWNS
            for c, tables in enumerate(self.classes)
        ]
        is_exact = self.n_classes == 1 and is_small[0]
        # Where the built Hessian only preconditions, all rows are needed all the same.
        curvature = self.objective.curvature(point, majorize, self._hessian_rows if is_exact else None)
        if curvature is None:
            return None
        if is_exact and self._is_rough:
            if not self._factored.serves(curvature, majorize):
                inverse = _invert(*self._rough_hessian(point, curvature, majorize), alpha)
                self._factored = _Factored(inverse, curvature, majorize)
            return self.tables(-self._factored.inverse(gradient))
        columns = curvature[:, None] if curvature.ndim == 1 else curvature
        inverses = []
        for c in range(self.n_classes):
            of_class = np.ascontiguousarray(columns[:, c])
            if starts[c + 1] == starts[c]:
                inverses.append(lambda r: r)
            elif is_small[c]:
                inverses.append(_invert(*self._hessian(c, of_class), alpha))
            else:
                inverses.append(self._invert_blocks(c, of_class, alpha))

        def apply_inverses(r):
            return np.concatenate([inverses[c](r[starts[c] : starts[c + 1]]) for c in range(self.n_classes)])

        if is_exact:
            return self.tables(-apply_inverses(gradient))
        of_tables = self.objective.hessian_of_tables(point, curvature, majorize, self.support)

        def hessian_times(a):
            return self._of_bins(of_tables(self.tables(a))) + alpha * a

        found = conjugate_gradients(hessian_times, apply_inverses, gradient, tol=CG_TOL, max_iter=CG_STEPS)
        return self.tables(-found)

    def _merged_columns(self, c: int, is_rough: bool = False):
        """(codes, offsets, tables) of a class's columns, the bins of a piece merged; kept between steps.

        Roughly: the bins of lines too, and of a sample of rows.
        """
        if c not in self._merged:
            tables = self.classes[c]
            labels = self.labels if self.labels.ndim == 1 else self.labels[:, c]
            groups, merged = np.zeros(self.offsets[-1], dtype=np.int64), []
            most = LINE_GROUPS if self._hessian_rows is None else LINE_GROUPS // 2
            for t in tables:
                basis = coarsened(t.basis, labels[t.bins], self.weights[t.bins], most) if is_rough else t.basis
                groups[t.bins] = basis.groups
                merged.append(basis)
            n_groups = np.array([len(basis.group_basis) for basis in merged], dtype=np.int64)
            features = np.array([t.feature for t in tables])
            rows = self._hessian_rows if is_rough else None
            codes = self.objective.grouped_codes(features, groups, n_groups, rows)
            self._merged[c] = codes, np.concatenate([[0], np.cumsum(n_groups)]), merged
        return self._merged[c]

    def _hessian(self, c: int, curvature: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """(Hessian of one class in its coordinates, its coupling with the intercept, that of the intercept alone)."""
        if isinstance(self.objective, GramObjective):
            return self.objective.hessian_of_pieces(self.classes[c], curvature)
        codes, offsets, merged = self._merged_columns(c)
        gram = self.objective.gram_of(codes, offsets, curvature)
        bases = [basis.group_basis for basis in merged]
        by_group = np.diagonal(gram)  # the curvature summed by group
        return _between(bases, gram, offsets), _of_groups(bases, by_group, offsets), float(curvature.sum())

    def _rough_hessian(self, point: Point, curvature: np.ndarray, majorize: bool):
        """`_hessian`, to a few percent: between tables as in a sample, within a table as in all rows and bins.

        Bins are disjoint, so one pass gives each table's own block. What the sample says of the blocks between tables
        are correlations; those of a group that it hardly saw (by the number of rows that would say as much, all
        curvatures equal) shrink, and a rare piece moves by its own curvature. All of it is a scaling from both sides
        and something added to the diagonal, so it stays positive semi-definite.
        """
        objective, tables = self.objective, self.classes[0]
        codes, offsets, merged = self._merged_columns(0, is_rough=True)
        whole = curvature if self._hessian_rows is None else objective.curvature(point, majorize)
        by_bin, total = objective.curvature_by_bin(whole, self.support), float(whole.sum())
        self._curvature_shares = by_bin / max(total, 1e-300)
        gram = objective.gram_of(codes, offsets, curvature)
        by_group = np.diagonal(gram).copy()
        if self._hessian_rows is not None:
            by_group *= self._scale_to_all_rows(gram, by_bin, curvature)
        bases = [basis.group_basis for basis in merged]
        hessian, coupling = _between(bases, gram, offsets), _of_groups(bases, by_group, offsets)
        coupling *= np.sqrt(total / max(float(curvature.sum()), 1e-300))
        for t, basis in zip(tables, merged, strict=True):
            if basis is t.basis:
                continue  # nothing was taken together
            own = t.basis.basis.T @ (by_bin[t.bins, None] * t.basis.basis)
            stretch = _root(own) @ np.linalg.inv(_root(hessian[t.where, t.where]))
            hessian[t.where] = stretch @ hessian[t.where]
            hessian[:, t.where] = hessian[:, t.where] @ stretch.T
            coupling[t.where] = stretch @ coupling[t.where]
        return hessian, coupling, total

    def _scale_to_all_rows(self, gram: np.ndarray, by_bin: np.ndarray, curvature: np.ndarray) -> np.ndarray:
        """Give a sample's cross-tabulation the diagonal of all rows, in place; the factors of its rows and columns."""
        codes, offsets, merged = self._merged_columns(0, is_rough=True)
        in_sample, squared = np.diagonal(gram).copy(), curvature**2
        in_all, squares = np.empty_like(in_sample), np.empty_like(in_sample)
        for t, basis, column, first, last in zip(
            self.classes[0], merged, codes, offsets[:-1], offsets[1:], strict=True
        ):
            n = last - first
            in_all[first:last] = np.bincount(basis.groups, by_bin[t.bins], minlength=n)[:n]
            squares[first:last] = np.bincount(column, squared, minlength=n)[:n]
        ratio, n_seen = (
            np.divide(a, b, out=np.zeros_like(a), where=b > 0)
            for a, b in ((in_all, in_sample), (in_sample**2, squares))
        )
        scale = np.sqrt(ratio * n_seen / (n_seen + FEW_ROWS))
        gram *= scale[:, None]
        gram *= scale
        np.fill_diagonal(gram, in_all)
        return scale

    def _invert_blocks(self, c: int, curvature, alpha):
        """r -> B^-1 r, B the tables' own blocks of the Hessian of one class (bins are disjoint: one pass gives all)."""
        tables = self.classes[c]
        by_bin = self.objective.curvature_by_bin(curvature, np.array([t.feature for t in tables]))
        blocks = []
        for t in tables:
            block = t.basis.basis.T @ (by_bin[t.bins, None] * t.basis.basis)
            block[np.diag_indices_from(block)] += alpha + 1e-10 * max(np.trace(block) / max(len(block), 1), 1e-300)
            blocks.append(cho_factor(block, lower=True) if len(block) else None)

        def apply(r):
            pairs = zip(blocks, tables, strict=True)
            return np.concatenate([cho_solve(k, r[t.where]) if k is not None else r[t.where] for k, t in pairs])

        return apply


class Spaces:
    """The last space of pieces: a fit often comes back to it, and what was factored there may still serve."""

    def __init__(self):
        self._last: _Space | None = None

    def of(self, objective, constraints, support, labels) -> _Space:
        if self._last is None or not self._last.is_of(objective, constraints, labels):
            self._last = None  # its codes are gone before there are new ones
            self._last = _Space(objective, constraints, support, labels)
        return self._last


def _between(bases: list[np.ndarray], gram: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """basis' gram basis, all tables' bases side by side."""
    pairs = list(zip(bases, offsets[:-1], offsets[1:], strict=True))
    across = np.concatenate([basis.T @ gram[first:last] for basis, first, last in pairs])
    hessian = np.concatenate([across[:, first:last] @ basis for basis, first, last in pairs], axis=1)
    return (hessian + hessian.T) / 2


def _of_groups(bases: list[np.ndarray], by_group: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """basis' by_group, all tables' bases side by side."""
    pairs = zip(bases, offsets[:-1], offsets[1:], strict=True)
    return np.concatenate([basis.T @ by_group[first:last] for basis, first, last in pairs])


def _root(block: np.ndarray) -> np.ndarray:
    """A lower triangular L with L L' = block; where the block is singular, of one a little larger."""
    diagonal = np.diag_indices_from(block)
    block = block.copy()
    block[diagonal] += 1e-10 * max(block[diagonal].mean() if len(block) else 0.0, 1e-300)
    return np.linalg.cholesky(block)


def _invert(hessian: np.ndarray, coupling: np.ndarray, total: float, alpha: float):
    """r -> H^-1 r by Cholesky's factors, after the intercept is eliminated; the Hessian is used up."""
    if total > 0:
        hessian -= np.outer(coupling, coupling) / total
    floor = 1e-12 * max(np.trace(hessian) / len(hessian), 1e-300)
    hessian[np.diag_indices_from(hessian)] += alpha + floor
    while True:
        try:
            factor = cho_factor(hessian, lower=True)
            return lambda r: cho_solve(factor, r)
        except LinAlgError:
            hessian[np.diag_indices_from(hessian)] += 9 * floor
            floor *= 10


def conjugate_gradients(times, precondition, b: np.ndarray, *, tol: float, max_iter: int) -> np.ndarray:
    """x with A x = b up to a relative residual in the norm of the preconditioner; A positive semi-definite."""
    x, r = np.zeros(len(b)), b.copy()
    z = precondition(r)
    p, rz = z.copy(), r @ z
    target = tol**2 * rz
    for _ in range(max_iter):
        if rz <= target or rz <= 0:
            break
        ap = times(p)
        curvature = p @ ap
        if not curvature > 0:
            break
        x += (rz / curvature) * p
        r -= (rz / curvature) * ap
        z = precondition(r)
        rz_new = r @ z
        p = z + (rz_new / rz) * p
        rz = rz_new
    return x


def keep_monotone(constraints: BoundConstraints, f: np.ndarray, labels: np.ndarray, support: np.ndarray):
    """Tables of a monotone shape pooled back to monotone, with the pieces that became equal merged."""
    signs = {_INCREASING: 1.0, _DECREASING: -1.0}
    monotone = [j for j in support if constraints.shapes[j] in signs]
    if not monotone:
        return f, labels
    f, labels = f.copy(), labels.copy()
    columns = (f[:, None], labels[:, None]) if f.ndim == 1 else (f, labels)
    for j in monotone:
        bins = slice(constraints.offsets[j], constraints.offsets[j] + constraints.n_ordered[j])
        sign = signs[int(constraints.shapes[j])]
        for c in range(columns[0].shape[1]):
            table, pieces = columns[0][bins, c], columns[1][bins, c]
            if (pieces < 0).all():
                continue
            _, first, inverse = np.unique(pieces, return_index=True, return_inverse=True)
            piece_weights = np.bincount(inverse, weights=constraints.weights[bins])
            pooled = isotonic(sign * table[first], piece_weights)
            if (np.diff(sign * table[first]) < 0).any():
                table[:] = sign * pooled[inverse]
                pieces[:] = 2 * np.concatenate([[0], np.cumsum(np.diff(pooled) != 0)])[inverse]
                if constraints.missing[j]:
                    columns[1][bins.stop, c] = pieces.max() + 2
                elif (pieces == 0).all():  # one piece of mean zero
                    table[:], pieces[:] = 0.0, -1
    return f, labels


def used_features(constraints: BoundConstraints, labels: np.ndarray) -> np.ndarray:
    """Ascending indices of the features that have pieces."""
    in_a_piece = (labels >= 0) if labels.ndim == 1 else (labels >= 0).any(axis=1)
    return np.flatnonzero(np.logical_or.reduceat(in_a_piece, constraints.offsets[:-1]))


def settle_empty_levels(constraints: BoundConstraints, f: np.ndarray) -> np.ndarray:
    """Bins of weight zero in a `levels` table take the level nearest zero, also after a refit moved the levels."""
    for j in np.flatnonzero(constraints.shapes == _LEVELS):
        bins = slice(constraints.offsets[j], constraints.offsets[j] + constraints.n_ordered[j])
        empty = constraints.weights[bins] == 0
        if empty.any() and not empty.all():
            tables = f[bins] if f.ndim == 2 else f[bins, None]
            for column in tables.T:
                levels = np.unique(column[~empty])
                column[empty] = levels[np.argmin(np.abs(levels))]
    return f
