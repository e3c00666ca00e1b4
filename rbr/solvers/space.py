"""Newton steps in the coordinates of given pieces.

With the features and pieces held fixed, a fit is a smooth problem in few unknowns. The Hessian is built from a
cross-tabulation of the curvature over merged bins if the support is small, and applied by passes over the used columns
(conjugate gradients) if it is large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from operator import is_not
from typing import NamedTuple, cast

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from rbr.constraints import BoundConstraints
from rbr.objective.packing import between
from rbr.objective.protocol import EXACT, Accuracy, Groups, Handle, Hessian, Objective, Point
from rbr.solvers.pieces import TableBasis, coarsened, piece_basis

Inverse = Callable[[np.ndarray], np.ndarray]

# A Hessian that only guides conjugate gradients has this part of its diagonal added: it may be singular.
SINGULAR_SHARE = 1e-3


class SpaceTable(NamedTuple):
    """A table of one class in a space: its index, basis, bins, and where its coordinates are among the class's.

    penalty : the second derivative of the roughness of a surface; None for other tables
    """

    table: int
    basis: TableBasis
    bins: slice
    where: slice
    penalty: np.ndarray | None


class Space:
    """The coordinates of all tables whose pieces are given, class by class."""

    def __init__(
        self,
        objective: Objective,
        constraints: BoundConstraints,
        support: np.ndarray,
        labels: np.ndarray,
        last: Space | None = None,
    ):
        self.objective, self.labels = objective, labels
        self._geometry = constraints.weights, constraints.positions, constraints.shapes
        self._bases: dict[tuple[int, bytes], TableBasis] = {}  # by table and labels: many stay as they are
        known = {} if last is None or any(map(is_not, self._geometry, last._geometry)) else last._bases
        self.offsets, self.weights = constraints.offsets, constraints.weights
        self.support, self.n_classes = support, objective.n_outputs
        by_class = labels[:, None] if labels.ndim == 1 else labels
        self.classes = [self._tables_of(constraints, by_class[:, c], known) for c in range(self.n_classes)]
        self.starts = np.concatenate([[0], np.cumsum([t[-1].where.stop if t else 0 for t in self.classes])])
        self.accuracy = objective.accuracy(len(self.classes[0]), self._n_groups(0), int(self.starts[-1]))
        self._merged: dict[int, tuple[Handle, list[TableBasis], np.ndarray]] = {}
        self._rough_inverse: tuple[Inverse, Handle] | None = None
        self._guide: Inverse | None = None  # the inverse of a sampled Hessian of all classes
        self._intercepts_of: np.ndarray | None = None  # how the intercepts of classes follow a move, if known
        # Whether a Hessian of all classes together may cost less than the passes that it saves.
        self._outputs_pay = self.n_classes > 1 and objective.has_many_rows
        self._n_solved = 0  # Newton steps by conjugate gradients
        self._curvature_shares: np.ndarray | None = None  # of each bin in the curvature of all rows, if known

    def _tables_of(self, constraints: BoundConstraints, labels: np.ndarray, known: dict) -> list[SpaceTable]:
        tables, first = [], 0
        for j in self.support:
            bins = slice(self.offsets[j], self.offsets[j + 1])
            if (labels[bins] >= 0).any():
                spec, key = constraints.spec(j), (int(j), labels[bins].tobytes())
                basis = known.get(key)
                if basis is None:
                    places = constraints.grid(j) if spec.on_grid else constraints.positions[bins]
                    geometry = self.weights[bins], places, constraints.shapes[j], constraints.missing[j]
                    basis = piece_basis(labels[bins], *geometry)
                self._bases[key] = basis
                size = basis.basis.shape[1]
                penalty = constraints.roughness_within(j, basis.basis) if spec.is_smooth else None
                tables.append(SpaceTable(int(j), basis, bins, slice(first, first + size), penalty))
                first += size
        return tables

    def _n_groups(self, c: int) -> int:
        return sum(len(t.basis.group_basis) for t in self.classes[c])

    def is_of(self, objective: Objective, constraints: BoundConstraints, labels: np.ndarray) -> bool:
        is_same = self.objective is objective and self.weights is constraints.weights
        return is_same and np.array_equal(self.labels, labels)

    def forget(self) -> None:
        """Forget all that takes much memory."""
        self._merged, self._rough_inverse, self._guide = {}, None, None

    def be_exact(self) -> None:
        """Build the Hessian from all rows and bins from now on."""
        if self.accuracy.is_rough:
            self.accuracy, self._merged = EXACT, {}

    # Coordinates ----------------------------------------------------------------------------------------------

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
        """The tables with the given coordinates."""
        out = self.objective.zero_tables()
        columns = out[:, None] if out.ndim == 1 else out
        for c, tables in enumerate(self.classes):
            mine = coordinates[self.starts[c] : self.starts[c + 1]]
            for t in tables:
                columns[t.bins, c] = t.basis.basis @ mine[t.where]
        return out

    def pull_of_penalty(self, coordinates: np.ndarray, alpha: float) -> np.ndarray:
        """The gradient of ridge and roughness."""
        out = alpha * coordinates
        for start, tables in zip(self.starts, self.classes, strict=False):
            for t in tables:
                if t.penalty is not None:
                    own = slice(start + t.where.start, start + t.where.stop)
                    out[own] += t.penalty @ coordinates[own]
        return out

    def _add_penalty(self, hessian: np.ndarray, c: int, start: int = 0) -> np.ndarray:
        """The Hessian of a class, which begins at a row, with the roughness of its surfaces added in place."""
        for t in self.classes[c]:
            if t.penalty is not None:
                own = slice(start + t.where.start, start + t.where.stop)
                hessian[own, own] += t.penalty
        return hessian

    def intercept_move(self, move: np.ndarray) -> float | np.ndarray:
        """The change of the intercept after a move of the tables, to first order; 0 if it is not known."""
        if self._intercepts_of is not None:
            return self._intercepts_of @ self.coordinates(move)
        return 0.0 if self._curvature_shares is None else -float(self._curvature_shares @ move)

    # Newton steps ---------------------------------------------------------------------------------------------

    @cached_property
    def _is_small(self) -> list[bool]:
        """For each class, whether its Hessian is small enough to be built and factored."""
        n_unknowns, options = np.diff(self.starts), self.objective.options
        return [
            len(self.classes[c]) <= options.max_dense_features
            and self._n_groups(c) <= options.max_dense_groups
            and n_unknowns[c] <= options.max_dense_unknowns
            for c in range(self.n_classes)
        ]

    def newton_move(self, point: Point, gradient: np.ndarray, alpha: float, majorize: bool) -> np.ndarray | None:
        """Minus the inverse Hessian times the gradient, as tables; None if majorized and no parabola lies above.

        Majorized: the Hessian is that of parabolas above the loss.
        """
        is_dense = self.n_classes == 1 and self._is_small[0]
        # If the built Hessian is only a preconditioner, the curvature of all rows is needed anyway.
        curvature = self.objective.curvature(point, majorize, self.accuracy if is_dense else EXACT)
        if curvature is None:
            return None
        if is_dense and self.accuracy.is_rough:
            return self.tables(-self._rough_newton(point, curvature, alpha)(gradient))
        apply_inverses = None if majorize else self._inverse_of_outputs(point, curvature, alpha)
        if apply_inverses is None:
            apply_inverses = self._inverses(point, curvature, alpha)
        if is_dense:
            return self.tables(-apply_inverses(gradient))
        of_tables = self.objective.hessian_times(point, curvature, self.support)

        def hessian_times(a):
            return self._of_bins(of_tables(self.tables(a))) + self.pull_of_penalty(a, alpha)

        options = self.objective.options
        tol, max_iter = options.cg_tol, options.cg_steps
        if self.objective.has_many_rows:
            tol = max(options.cg_first_tol * 0.1**self._n_solved, tol)
        self._n_solved += 1
        return self.tables(-conjugate_gradients(hessian_times, apply_inverses, gradient, tol=tol, max_iter=max_iter))

    def _rough_newton(self, point: Point, curvature: Handle, alpha: float) -> Inverse:
        """The inverse of a rough Hessian; the last one is used again while the curvature has hardly changed."""
        if self._rough_inverse is None or not self.objective.can_reuse_hessian(curvature, self._rough_inverse[1]):
            hessian, coupling, total = self._rough_hessian(point, curvature)
            self._rough_inverse = _invert(self._add_penalty(hessian, 0), coupling, total, alpha), curvature
        return self._rough_inverse[0]

    def _inverses(self, point: Point, curvature: Handle, alpha: float) -> Inverse:
        """r -> r times the inverse of each class's own Hessian, or of its tables' own blocks if that is large."""
        starts, inverses = self.starts, []
        if self.n_classes > 1 or not all(self._is_small):
            by_bin, _ = self.objective.curvature_sums(point, self.support, curvature=curvature)
        for c in range(self.n_classes):
            if starts[c + 1] == starts[c]:
                inverses.append(lambda r: r)
            elif self._is_small[c]:
                hessian, coupling, total = self._hessian_of_class(point, curvature, c)
                inverses.append(_invert(self._add_penalty(hessian, c), coupling, total, alpha))
            else:
                inverses.append(self._invert_blocks(c, by_bin if by_bin.ndim == 1 else by_bin[:, c], alpha))
        return lambda r: np.concatenate([inverses[c](r[starts[c] : starts[c + 1]]) for c in range(self.n_classes)])

    def _inverse_of_outputs(self, point: Point, curvature: Handle, alpha: float) -> Inverse | None:
        """r -> r times the inverse of a sampled Hessian of all classes; None if it costs more than it saves.

        It only guides, so that of the first step serves all steps within the same pieces.
        """
        if self._guide is None and self._outputs_pay:
            self._guide = self._new_guide(point, curvature, alpha)
        return self._guide

    def _new_guide(self, point: Point, curvature: Handle, alpha: float) -> Inverse | None:
        n, options = int(self.starts[-1]), self.objective.options
        if not 0 < n <= options.max_dense_unknowns:
            return None
        accuracy = replace(self.objective.preconditioner_accuracy(n), groups_per_line=options.line_groups)
        columns = [self._merged_columns(c, accuracy) for c in range(self.n_classes)]
        found = self.objective.hessian_of_outputs(point, n, *(merged for merged, _, _ in columns))
        if found is None:
            self._outputs_pay, self._merged = False, {}
            return None
        bases = [basis.group_basis for _, own, _ in columns for basis in own] + [np.eye(self.n_classes)]
        sizes = [len(basis) for basis in bases]
        matrix = between(bases, found, np.concatenate([[0], np.cumsum(sizes)]))
        by_bin, _ = self.objective.curvature_sums(point, self.support, curvature=curvature)
        squares = [t.basis.basis.T**2 @ by_bin[t.bins, c] for c in range(self.n_classes) for t in self.classes[c]]
        in_all, in_sample = np.concatenate(squares), np.diagonal(matrix)[:n]
        stretch = np.sqrt(np.divide(in_all, in_sample, out=np.zeros(n), where=in_sample > 0))
        hessian, coupling = stretch[:, None] * matrix[:n, :n] * stretch, stretch[:, None] * matrix[:n, n:]
        np.fill_diagonal(hessian, in_all)
        # Adding one number to all classes changes nothing: pinv drops that direction.
        self._intercepts_of = -np.linalg.pinv(matrix[n:, n:], rcond=1e-10, hermitian=True) @ coupling.T
        hessian += coupling @ self._intercepts_of
        # Nor does adding the same table to all of them.
        hessian[np.diag_indices(n)] += SINGULAR_SHARE * in_all
        for c in range(self.n_classes):
            self._add_penalty(hessian, c, int(self.starts[c]))
        return _invert(hessian, np.zeros(n), 0.0, alpha)

    def _merged_columns(self, c: int, accuracy: Accuracy | None = None) -> tuple[Handle, list[TableBasis], np.ndarray]:
        """(merged columns of a class, bases of its tables over the groups, groups' offsets); kept between steps."""
        if c not in self._merged:
            tables = self.classes[c]
            labels = self.labels if self.labels.ndim == 1 else self.labels[:, c]
            if accuracy is None:
                accuracy = self.accuracy
                if self.n_classes > 1:
                    accuracy = self.objective.preconditioner_accuracy(int(self.starts[c + 1] - self.starts[c]))
            of_bin, merged = np.zeros(self.offsets[-1], dtype=np.int64), []
            for t in tables:
                basis = t.basis
                if accuracy.groups_per_line:
                    basis = coarsened(basis, labels[t.bins], self.weights[t.bins], accuracy.groups_per_line)
                of_bin[t.bins] = basis.groups
                merged.append(basis)
            n_groups = np.array([len(basis.group_basis) for basis in merged], dtype=np.int64)
            groups = Groups(np.array([t.table for t in tables]), self.offsets, of_bin, n_groups)
            self._merged[c] = self.objective.merge(groups, accuracy), merged, groups.offsets
        return self._merged[c]

    def _in_coordinates(self, hessian: Hessian, bases: list[TableBasis], offsets: np.ndarray):
        """(Hessian in the coordinates of one class, its coupling with the intercept, the intercept's own entry)."""
        return *hessian.in_coordinates([basis.group_basis for basis in bases], offsets), hessian.total

    def _hessian_of_class(self, point: Point, curvature: Handle, c: int) -> tuple[np.ndarray, np.ndarray, float]:
        columns, bases, offsets = self._merged_columns(c)
        return self._in_coordinates(self.objective.hessian(point, columns, curvature, c), bases, offsets)

    def _rough_hessian(self, point: Point, curvature: Handle) -> tuple[np.ndarray, np.ndarray, float]:
        """The Hessian to a few percent, with each table's own block exact.

        A table's bins are disjoint, so its own block follows from the curvature of all rows by bin; the rough Hessian
        is scaled from both sides in the table's coordinates to have it.
        """
        columns, bases, offsets = self._merged_columns(0)
        found = self.objective.hessian(point, columns, curvature)
        hessian, coupling, total = self._in_coordinates(found, bases, offsets)
        by_bin = cast(np.ndarray, found.by_bin)  # a rough Hessian always has it
        self._curvature_shares = by_bin / max(total, 1e-300)
        for t, basis in zip(self.classes[0], bases, strict=True):
            if basis is t.basis:
                continue  # none of its bins were merged
            own = t.basis.basis.T @ (by_bin[t.bins, None] * t.basis.basis)
            stretch = _root(own) @ np.linalg.inv(_root(hessian[t.where, t.where]))
            hessian[t.where] = stretch @ hessian[t.where]
            hessian[:, t.where] = hessian[:, t.where] @ stretch.T
            coupling[t.where] = stretch @ coupling[t.where]
        return hessian, coupling, total

    def _invert_blocks(self, c: int, by_bin: np.ndarray, alpha: float) -> Inverse:
        """r -> B^-1 r, where B holds the tables' own blocks of the Hessian of one class."""
        tables, blocks = self.classes[c], []
        for t in tables:
            block = t.basis.basis.T @ (by_bin[t.bins, None] * t.basis.basis)
            block += 0.0 if t.penalty is None else t.penalty
            block[np.diag_indices_from(block)] += alpha + 1e-10 * max(np.trace(block) / max(len(block), 1), 1e-300)
            blocks.append(cho_factor(block, lower=True) if len(block) else None)

        def apply(r):
            pairs = zip(blocks, tables, strict=True)
            return np.concatenate([cho_solve(k, r[t.where]) if k is not None else r[t.where] for k, t in pairs])

        return apply


class Spaces:
    """Keeps the last space: a fit often returns to the same pieces, and can use what was factored for them again."""

    def __init__(self):
        self._last: Space | None = None

    def of(self, objective, constraints, support, labels) -> Space:
        if self._last is None or not self._last.is_of(objective, constraints, labels):
            if self._last is not None:
                self._last.forget()  # free its merged codes before the new ones are made
            self._last = Space(objective, constraints, support, labels, self._last)
        return self._last


def _root(block: np.ndarray) -> np.ndarray:
    """A lower triangular L with L L' = block, the diagonal raised a little so that a singular block has one."""
    diagonal = np.diag_indices_from(block)
    block = block.copy()
    block[diagonal] += 1e-10 * max(block[diagonal].mean() if len(block) else 0.0, 1e-300)
    return np.linalg.cholesky(block)


def _invert(hessian: np.ndarray, coupling: np.ndarray, total: float, alpha: float) -> Inverse:
    """r -> H^-1 r by a Cholesky factor, with the intercept eliminated; the Hessian is overwritten."""
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
