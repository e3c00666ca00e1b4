"""The space of tables that share a set of pieces.

The tables with given pieces form a linear space. `piece_basis` gives each used table an orthonormal basis (in the
geometry of the weights) of the part of that space with mean zero. So the unknowns of a refit are plain coordinates, a
ridge penalty is alpha times the identity, and constants, lines, levels, frequencies and missing bins need no special
cases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rbr.shapes import spec_at
from rbr.shapes.bases import rank_in_run


@dataclass(frozen=True, eq=False)
class TableBasis:
    """One table's space of pieces.

    basis : (n_bins, d) w-orthonormal tables of mean zero
    groups : the group of each bin; bins of a constant piece share one, and n_groups marks a bin outside every piece
    group_basis : (n_groups, d) the basis by group
    """

    basis: np.ndarray
    groups: np.ndarray
    group_basis: np.ndarray


def piece_basis(labels, weights, positions, shape: int, has_missing: bool) -> TableBasis:
    """The basis of the tables with given pieces; see `rbr.reference.projections.prox_table` for the labels."""
    spanning, groups, n_groups = spec_at(shape).basis(labels, weights, positions, has_missing)
    norms = np.sqrt(weights @ spanning**2)
    orthonormal = (spanning / np.where(norms > 0, norms, 1.0))[:, norms > 0]
    basis = _of_mean_zero(orthonormal, weights @ orthonormal)
    by_group = np.zeros((n_groups + 1, basis.shape[1]))
    by_group[groups] = basis
    return TableBasis(basis, groups, by_group[:n_groups])


def coarsened(basis: TableBasis, labels: np.ndarray, weights: np.ndarray, most: int) -> TableBasis:
    """The same tables, with the bins of each line in at most `most` groups, whose basis is the mean over their bins."""
    bins = np.flatnonzero((labels >= 0) & (labels % 2 == 1))
    if not len(bins):
        return basis
    groups, lines = basis.groups.copy(), labels[bins]
    size = np.bincount(lines)[lines]
    rank = rank_in_run(lines)
    groups[bins] += rank * np.minimum(most, size) // size - rank
    kept, groups = np.unique(groups, return_inverse=True)
    n_groups = len(kept) - bool(kept[-1] == len(basis.group_basis))  # the last may mean "outside every piece"
    # A group without weight takes the plain mean.
    weights = weights + 1e-300
    sums = np.zeros((len(kept), basis.basis.shape[1]))
    np.add.at(sums, groups, weights[:, None] * basis.basis)
    means = sums / np.bincount(groups, weights)[:, None]
    return TableBasis(basis.basis, groups, means[:n_groups])


def _of_mean_zero(orthonormal: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span the tables of mean zero: a Householder map of the given ones, without the first.

    The constant table lies in their space, so `means`, its coordinates, has norm 1.
    """
    axis = means.copy()
    axis[0] += np.copysign(np.linalg.norm(means), means[0])
    scale = axis @ axis
    reflected = np.outer(orthonormal @ axis, axis[1:])
    return orthonormal[:, 1:] - (2.0 / scale if scale else 0.0) * reflected
