"""The space of tables that share a set of pieces.

The tables with given pieces form a linear space. `piece_basis` gives each used table an orthonormal basis (in the
geometry of the weights) of the part of that space with mean zero. So the unknowns of a refit are plain coordinates, a
ridge penalty is alpha times the identity, and constants, lines, levels, frequencies and missing bins need no cases of
their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rbr.constraints import SHAPES

_FREQUENCY = SHAPES.index("frequency")


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
    """The same tables, the bins of each line in at most `most` groups that have the mean of their bins' basis."""
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
