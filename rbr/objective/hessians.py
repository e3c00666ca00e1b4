"""Hessians over merged bins: exact ones, and rough ones at a small part of the cost.

Rough Hessians are used with many rows, and where the bins of lines give the Hessian more cells than there are
entries to sum into them. A Newton step with one still gains a digit or more, since the gradient and the test of descent
are always exact. Between tables, the bins of a line are merged into a few groups, and with enough rows only a sample of
them is used, scaled to the diagonal of all rows; each table's own block is that of all rows and bins.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from rbr._backend import kernels
from rbr._options import SolverOptions
from rbr._parallel import over_ranges
from rbr.data.design import MAX_ENTRIES_PER_CALL
from rbr.objective.common import added
from rbr.objective.packing import Packing, between
from rbr.objective.protocol import EXACT, Accuracy, Groups, Handle

# With fewer pairs of entries than this a second thread costs more than it saves.
MIN_PAIRS_PER_THREAD = 200_000


@dataclass(frozen=True, eq=False)
class Curvature(Handle):
    """For each block, v_i times the second derivative of row i's loss, or of a parabola above it.

    known_sums : (tables, sums by bin) of the last tables whose sums were asked for
    """

    by_row: list[np.ndarray]
    is_majorized: bool
    known_sums: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)

    @cached_property
    def total(self) -> np.ndarray:
        """The sum over the rows, by output."""
        total = self.by_row[0].sum(axis=0)
        for part in self.by_row[1:]:
            total = total + part.sum(axis=0)
        return total

    def of_output(self, output: int) -> list[np.ndarray]:
        return [a if a.ndim == 1 else np.ascontiguousarray(a[:, output]) for a in self.by_row]

    def is_near(self, other: Curvature, share: float) -> bool:
        """Whether the curvature differs from another by at most a share of it, in the sum over the rows."""
        if self.is_majorized != other.is_majorized or [len(a) for a in self.by_row] != [len(a) for a in other.by_row]:
            return False
        moved = sum(float(np.abs(a - b).sum()) for a, b in zip(self.by_row, other.by_row, strict=True))
        return moved <= share * float(other.total)


@dataclass(frozen=True, eq=False)
class GroupHessian:
    """A `Hessian` that holds the matrix between the groups.

    matrix : (n, n) between the groups of all tables, or the codes of their packs
    coupling : (n,) between the groups and the intercept
    total : the second derivative in the intercept
    by_bin : (n_coef,) the curvature of all rows by bin, for a rough Hessian; None for an exact one
    packing : which tables share a code, if the matrix is between codes
    scale, raised : by group, what the matrix is to be multiplied by from both sides, and what its diagonal then lacks
    """

    matrix: np.ndarray
    coupling: np.ndarray
    total: float
    by_bin: np.ndarray | None = None
    packing: Packing | None = None
    scale: np.ndarray | None = None
    raised: np.ndarray | None = None

    def in_coordinates(self, bases: list[np.ndarray], offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        groups = [slice(first, last) for first, last in pairwise(offsets)]
        coupling = np.concatenate([basis.T @ self.coupling[own] for basis, own in zip(bases, groups, strict=True)])
        scaled = bases
        if self.scale is not None:
            scaled = [self.scale[own, None] * basis for basis, own in zip(bases, groups, strict=True)]
        if self.packing is None:
            matrix = between(scaled, self.matrix, offsets)
        else:
            by_code, places = self.packing.bases(scaled)
            matrix = between(by_code, self.matrix, self.packing.offsets)[np.ix_(places, places)]
        first = 0
        for basis, own in zip(bases, groups, strict=True):
            if self.raised is not None:
                where = slice(first, first + basis.shape[1])
                matrix[where, where] += basis.T @ (self.raised[own, None] * basis)
                first = where.stop
        return matrix, coupling


@dataclass(frozen=True, eq=False)
class Merged(Handle):
    """The codes of each block, for all rows or a sample, with bins merged into groups, and small tables packed."""

    groups: Groups
    accuracy: Accuracy
    packing: Packing
    codes: list[np.ndarray]

    @classmethod
    def of(cls, groups: Groups, accuracy: Accuracy, codes: list[np.ndarray]) -> Merged:
        packing = Packing(groups.n_groups, codes)
        return cls(groups, accuracy, packing, [packing.packed(own) for own in codes])

    def between_codes(self, weights: list[np.ndarray], n_threads: int) -> np.ndarray:
        """For each pair of codes of the packs, the weight of the rows of all blocks that have both."""
        pairs = zip(self.codes, weights, strict=True)
        return added(cross_tabulation(codes, self.packing.offsets, own, n_threads) for codes, own in pairs)

    def hessian(self, weights: list[np.ndarray], total: float, n_threads: int) -> GroupHessian:
        """The Hessian of rows with these curvatures."""
        sums, packing = self.between_codes(weights, n_threads), self.packing
        coupling = packing.of_groups(np.diagonal(sums))
        return GroupHessian(sums, coupling, total, packing=packing if packing.is_needed else None)

    def cross_tabulation(self, weights: list[np.ndarray], n_threads: int) -> np.ndarray:
        """For each pair of groups, the weight of the rows of all blocks that are in both."""
        sums = self.between_codes(weights, n_threads)
        if not self.packing.is_needed:
            return sums
        return np.ascontiguousarray(self.packing.of_groups(self.packing.of_groups(sums).T))

    def sums(self, values: list[np.ndarray]) -> np.ndarray:
        """For each group, the sum of values over its rows."""
        out, features = np.zeros(self.packing.offsets[-1]), np.arange(len(self.packing.offsets) - 1)
        for codes, own in zip(self.codes, values, strict=True):
            kernels().rmatvec(codes, self.packing.offsets, features, own, 0, len(own), out, 0, len(features))
        return self.packing.of_groups(out)


def accuracy(options: SolverOptions, n_rows: int, n_tables: int, n_groups: int, n_unknowns: int) -> Accuracy:
    """The accuracy to build a Hessian of this size with."""
    n_entries = n_rows * n_tables * (n_tables + 1) // 2
    if n_rows <= options.rough_from_rows and n_groups**2 <= max(n_entries, options.rough_from_cells):
        return EXACT
    n_sampled = max(options.hessian_rows, options.hessian_rows_per_unknown * n_unknowns)
    if 2 * n_sampled > n_rows:
        return Accuracy(True, options.line_groups)
    return Accuracy(True, options.line_groups // 2, n_sampled)


def preconditioner_accuracy(options: SolverOptions, n_rows: int, n_unknowns: int) -> Accuracy:
    """The accuracy of a Hessian that only guides conjugate gradients."""
    n_sampled = max(options.preconditioner_rows, options.preconditioner_rows_per_unknown * n_unknowns)
    return EXACT if 2 * n_sampled > n_rows else Accuracy(True, 0, n_sampled)


def merged_codes(codes: np.ndarray, groups: Groups, rows: np.ndarray | None) -> np.ndarray:
    """The codes of some tables, for all rows or a sample, with bins merged into groups."""
    dtype = np.uint8 if groups.n_groups.max(initial=0) <= 255 else np.uint16
    out = np.empty((len(groups.tables), codes.shape[1] if rows is None else len(rows)), dtype=dtype)
    for row, j, n in zip(out, groups.tables, groups.n_groups, strict=True):
        table = np.append(groups.of_bin[groups.bins(j)], n).astype(dtype)
        np.take(table, codes[j] if rows is None else codes[j, rows], out=row, mode="clip")
    return out


def cross_tabulation(codes: np.ndarray, offsets: np.ndarray, weights: np.ndarray, n_threads: int) -> np.ndarray:
    """For each pair of groups, the weight of the rows that are in both."""
    n_tables, n_rows = codes.shape
    out = np.empty((offsets[-1], offsets[-1]))
    n_pairs = n_tables * (n_tables + 1) // 2
    over_ranges(
        kernels().gram,
        n_pairs,
        n_threads if n_pairs * n_rows >= MIN_PAIRS_PER_THREAD else 1,
        *(codes, offsets, np.arange(n_tables), weights, offsets, out),
        per_call=max(1, MAX_ENTRIES_PER_CALL // max(n_rows, 1)),
    )
    return out


def rough(
    found: GroupHessian, by_bin: np.ndarray, of_all: float, groups: Groups, squares: np.ndarray | None, few_rows: float
) -> GroupHessian:
    """A sample's Hessian with the diagonal and the total of all rows.

    Only the correlations between groups come from the sample. Those of a group with few sampled rows are shrunk, so
    that a rare piece moves mostly by its own curvature: `n_seen`, by which a group is shrunk, is its effective number
    of sampled rows, the number of rows of equal curvature that would carry as much information. The matrix is scaled
    from both sides and its diagonal only raised, so it stays positive semi-definite. `squares` are the sums of the
    squared curvature over the sampled rows of each group, None for all rows.
    """
    in_sample, scale, raised = found.coupling, None, None
    coupling = in_sample * np.sqrt(of_all / max(found.total, 1e-300))
    if squares is not None:
        in_all = np.empty_like(in_sample)
        for j, first, last in zip(groups.tables, groups.offsets[:-1], groups.offsets[1:], strict=True):
            bins, n = groups.bins(j), last - first
            in_all[first:last] = np.bincount(groups.of_bin[bins], by_bin[bins], minlength=n)[:n]
        ratio, n_seen = (
            np.divide(a, b, out=np.zeros_like(a), where=b > 0)
            for a, b in ((in_all, in_sample), (in_sample**2, squares))
        )
        scale = np.sqrt(ratio * n_seen / (n_seen + few_rows))
        coupling, raised = coupling * scale, in_all - scale**2 * in_sample
    return replace(found, coupling=coupling, total=of_all, by_bin=by_bin, scale=scale, raised=raised)
