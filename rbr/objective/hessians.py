"""Hessians over merged bins: exact ones, and rough ones at a small part of the cost.

Rough Hessians are used with many rows, and where the bins of lines give the Hessian more cells than there are
entries to sum into them. A Newton step with one still gains a digit or more, since the gradient and the test of descent
are always exact. Between tables, the bins of a line are merged into a few groups, and with enough rows only a sample of
them is used, scaled to the diagonal of all rows; each table's own block is that of all rows and bins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rbr._backend import kernels
from rbr._options import SolverOptions
from rbr._parallel import over_ranges
from rbr.data.design import MAX_ENTRIES_PER_CALL
from rbr.objective.common import added
from rbr.objective.packing import Packing
from rbr.objective.protocol import EXACT, Accuracy, Groups, Handle, Hessian

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

    def cross_tabulation(self, weights: list[np.ndarray], n_threads: int) -> np.ndarray:
        """For each pair of groups, the weight of the rows of all blocks that are in both."""
        pairs = zip(self.codes, weights, strict=True)
        sums = added(cross_tabulation(codes, self.packing.offsets, own, n_threads) for codes, own in pairs)
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
    matrix: np.ndarray,
    total: float,
    by_bin: np.ndarray,
    of_all: float,
    groups: Groups,
    squares: np.ndarray | None,
    few_rows: float,
) -> Hessian:
    """A sample's cross-tabulation (overwritten) with the diagonal and the total of all rows.

    Only the correlations between groups come from the sample. Those of a group with few sampled rows are shrunk, so
    that a rare piece moves mostly by its own curvature. The matrix is scaled from both sides and its diagonal only
    raised, so it stays positive semi-definite. `squares` are the sums of the squared curvature over the sampled rows of
    each group, None for all rows.
    """
    by_group = np.diagonal(matrix).copy()
    if squares is not None:
        by_group *= _scale_to_all_rows(matrix, by_bin, groups, squares, few_rows)
    coupling = by_group * np.sqrt(of_all / max(total, 1e-300))
    return Hessian(matrix, coupling, of_all, by_bin)


def _scale_to_all_rows(
    matrix: np.ndarray, by_bin: np.ndarray, groups: Groups, squares: np.ndarray, few_rows: float
) -> np.ndarray:
    """Give a sample's cross-tabulation the diagonal of all rows, in place; returns the factors of its rows and columns.

    `n_seen`, by which a group is shrunk, is its effective number of sampled rows: the number of rows of equal curvature
    that would carry as much information.
    """
    in_sample = np.diagonal(matrix).copy()
    in_all = np.empty_like(in_sample)
    for j, first, last in zip(groups.tables, groups.offsets[:-1], groups.offsets[1:], strict=True):
        bins, n = groups.bins(j), last - first
        in_all[first:last] = np.bincount(groups.of_bin[bins], by_bin[bins], minlength=n)[:n]
    ratio, n_seen = (
        np.divide(a, b, out=np.zeros_like(a), where=b > 0) for a, b in ((in_all, in_sample), (in_sample**2, squares))
    )
    scale = np.sqrt(ratio * n_seen / (n_seen + few_rows))
    matrix *= scale[:, None]
    matrix *= scale
    np.fill_diagonal(matrix, in_all)
    return scale
