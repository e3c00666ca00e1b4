"""Small problems shared by the tests of the solver: one design with everything in it, and y for each loss."""

from __future__ import annotations

import numpy as np

from rbr import SolverOptions
from rbr.data.design import BinnedMatrix
from rbr.losses import LOSSES
from rbr.objective import RowBlock, RowObjective, make_objective
from rbr.objective.parts import LocalParts, Part, cut_points, parts_objective
from rbr.reference.projections import SHAPES

N_BINS = (6, 5, 4, 7, 3)
# The shape `frequency` needs equal weights in all ordered bins of a table.
WEIGHTINGS = ("counts", "uniform")
ROWS_PER_LEAF = 16


def make_design(seed=0, n_rows=240, missing=True, empty_bin=True, n_bins=N_BINS):
    """Five features: ties, a missing bin in the second, a bin that no row has in the fourth."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, b, n_rows) for b in n_bins])
    codes[0] = np.minimum(codes[0], rng.integers(0, n_bins[0], n_rows))  # unequal shares
    if empty_bin:
        codes[3][codes[3] == 2] = 4
    offsets = np.concatenate([[0], np.cumsum(n_bins)])
    has_missing = np.arange(len(n_bins)) == (1 if missing else -1)
    positions = np.concatenate([np.sort(rng.normal(size=b)) for b in n_bins])
    return BinnedMatrix(codes, offsets, missing=has_missing, positions=positions)


def make_target(loss, design, seed=0, strength=1.0, noise=1.0):
    """y that depends on the first four features, of the kind that the loss expects."""
    rng = np.random.default_rng(seed + 1)
    n_rows = design.n_rows
    tables = strength * rng.normal(size=design.n_coef)
    tables[design.offsets[min(4, design.n_features)] :] = 0.0
    z = design.matvec(tables)
    z = (z - z.mean()) / max(z.std(), 1e-12) * strength
    if loss == "log_loss":
        return (rng.uniform(size=n_rows) < 1 / (1 + np.exp(-z))).astype(float)
    if loss == "multinomial":
        scores = np.stack([z, -z, 0.5 * z + rng.normal(size=n_rows)], axis=1) + rng.gumbel(size=(n_rows, 3))
        return scores.argmax(axis=1)
    if loss == "poisson":
        return rng.poisson(np.exp(0.5 * z)).astype(float)
    if loss == "gamma":
        return rng.gamma(2.0, np.exp(0.5 * z) / 2)
    if loss == "tweedie":
        return rng.poisson(np.exp(0.5 * z)) * rng.gamma(2.0, 0.5, n_rows)
    return z + noise * rng.standard_normal(n_rows)


def with_even_bins(seed=0, n_rows=240, n_bins=(6, 5, 4, 8, 3)):
    """A design in which all bins of a feature have the same share, as `frequency` requires with counts weights."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.permutation(np.arange(n_rows) % b) for b in n_bins])
    return BinnedMatrix(codes, np.concatenate([[0], np.cumsum(n_bins)]))


def objective_of(design, y, loss="squared_error", sample_weight=None, offset=None, n_threads=1, X=None, **options):
    """The objective over the rows of a design; `options` are solver options."""
    rows = {"loss": loss, "sample_weight": sample_weight, "offset": offset, "X": X}
    return make_objective(design, y, n_jobs=n_threads, options=SolverOptions(**options), **rows)


def block_of(objective):
    """The one block of rows behind an objective over rows in memory."""
    (block,) = objective._blocks
    return block


def split_in_three_blocks(objective):
    """The same rows in three blocks of different lengths."""
    whole = block_of(objective)
    n = whole.n_rows
    blocks = [
        RowBlock(
            whole.design[rows],
            whole.y[rows],
            whole.v[rows],
            None if whole.offset is None else whole.offset[rows],
            None if whole.values is None else whole.values.at(rows),
            None if whole.sample_weight is None else whole.sample_weight[rows],
        )
        for rows in (slice(0, n // 5), slice(n // 5, n // 2), slice(n // 2, n))
    ]
    options = {"n_outputs": objective.n_outputs, "n_total": objective.n_total, "options": objective.options}
    return RowObjective(blocks, objective.loss, n_threads=2, **options)


def in_parts(objective, n_parts, rows_per_leaf=ROWS_PER_LEAF, scratch=None, n_threads=1):
    """The rows of an objective in memory as parts of whole leaves."""
    block = block_of(objective)
    cuts = cut_points(block.n_rows, n_parts, rows_per_leaf)
    own, parts = block.design, []
    for start, end in zip(cuts[:-1], cuts[1:], strict=True):
        rows = slice(start, end)
        fields = own.offsets, own.missing, own.positions, own.columns, own.weights_kind, own.shares
        parts.append(
            Part(
                BinnedMatrix._from_valid(own.codes[:, rows], *fields),
                block.y[rows],
                None if block.sample_weight is None else block.sample_weight[rows],
                None if block.offset is None else block.offset[rows],
                None if block.values is None else block.values.at(rows),
                start // rows_per_leaf,
                scratch,
                rows_per_leaf,
            )
        )
    return parts_objective(LocalParts(parts, n_threads), loss=objective.loss, options=objective.options)


__all__ = [
    "LOSSES",
    "SHAPES",
    "WEIGHTINGS",
    "block_of",
    "split_in_three_blocks",
    "make_design",
    "make_target",
    "objective_of",
    "with_even_bins",
]
