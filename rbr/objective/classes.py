"""Products with the Hessian of several classes, which couples them: that of row i is v_i (diag(p_i) - p_i p_i').

From all rows it is never built: with K classes it would have K^2 blocks. A product is a look-up, a product by row and a
sum by bin. Built from a sample of the rows, it guides conjugate gradients that take such products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rbr._backend import kernels
from rbr._options import SolverOptions
from rbr.objective.hessians import Merged
from rbr.objective.packing import n_packs_of
from rbr.objective.protocol import Groups, Point

if TYPE_CHECKING:
    from rbr.objective.rows import RowObjective

# What a sampled Hessian costs per row and pair of tables, and per cube of the unknowns, and what a product with that of
# all rows costs per row and table, in nanoseconds of one core.
NS_PER_PAIR, NS_PER_CUBE, NS_PER_ENTRY = 1.5, 0.03, 1.5


def hessian_times(objective: RowObjective, point: Point, tables: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The Hessian as a map from some tables to sums by bin, with the intercepts eliminated."""
    blocks, n_threads = objective._blocks, objective.n_threads
    of_blocks = [
        objective.loss.hessian(block.y, raw, block.v, n_threads)
        for block, raw in zip(blocks, point.handle.raw, strict=True)
    ]
    # Written again and again: fresh memory would cost more than what is computed in it.
    moves, weighted = ([np.empty(raw.shape, order="F") for raw in point.handle.raw] for _ in range(2))
    of_intercepts = np.zeros((objective.n_outputs, objective.n_outputs))
    for unit, out in zip(np.eye(objective.n_outputs), of_intercepts, strict=True):
        for times, own in zip(of_blocks, weighted, strict=True):
            out += times(np.broadcast_to(unit, own.shape), own).sum(axis=0)
    # Adding one number to all outputs changes nothing, so one eigenvalue is 0 up to rounding: pinv must drop it.
    inverse = np.linalg.pinv(of_intercepts, rcond=1e-10, hermitian=True)

    def of_tables(f: np.ndarray) -> np.ndarray:
        objective.work.columns_read += 2 * len(tables)
        pull = np.zeros(objective.n_outputs)
        for block, times, move, own in zip(blocks, of_blocks, moves, weighted, strict=True):
            block.design.matvec(f, features=tables, n_threads=n_threads, out=move)
            pull += times(move, own).sum(axis=0)
        answer, out = inverse @ pull, np.zeros_like(f)
        for block, times, move, own in zip(blocks, of_blocks, moves, weighted, strict=True):
            move -= answer
            out += block.design.rmatvec(times(move, own), features=tables, n_threads=n_threads)
        return out

    return of_tables


def hessian_between(
    probabilities: list[np.ndarray], v: list[np.ndarray], merged: Sequence[Merged], n_threads: int
) -> np.ndarray:
    """The Hessian between the groups of all outputs, followed by the outputs' intercepts, of blocks of sampled rows.

    probabilities, v : of the rows of each block
    merged : the columns of each output
    """
    n_outputs = len(merged)
    starts = np.concatenate([[0], np.cumsum([own.groups.offsets[-1] for own in merged])])
    hessian = np.zeros((starts[-1] + n_outputs, starts[-1] + n_outputs))
    for c in range(n_outputs):
        own, at_c = slice(starts[c], starts[c + 1]), starts[-1] + c
        for d in range(n_outputs):
            pairs = zip(v, probabilities, strict=True)
            weights = [w * p[:, c] * ((c == d) - p[:, d]) for w, p in pairs]
            hessian[own, starts[-1] + d] = hessian[starts[-1] + d, own] = merged[c].sums(weights)
            hessian[at_c, starts[-1] + d] = sum(float(w.sum()) for w in weights)
            if c == d:
                hessian[own, own] = merged[c].cross_tabulation(weights, n_threads)
            elif c < d:
                other = slice(starts[d], starts[d + 1])
                hessian[own, other] = _between(merged[c], merged[d], weights)
                hessian[other, own] = hessian[own, other].T
    return hessian


def _between(one: Merged, other: Merged, weights: list[np.ndarray]) -> np.ndarray:
    """For each group of one output and each of another, the weight of the rows that are in both."""
    n_tables, n_codes = len(one.packing.packs), one.packing.offsets[-1]
    offsets = np.concatenate([one.packing.offsets[:-1], n_codes + other.packing.offsets])
    features, total = np.arange(len(offsets) - 1), np.zeros((n_codes, offsets[-1] - n_codes))
    for codes, codes_of_other, own in zip(one.codes, other.codes, weights, strict=True):
        together, out = np.concatenate([codes, codes_of_other]), np.zeros((offsets[-1], offsets[-1]))
        first = 0
        for t in range(n_tables):  # in the list of pairs (0, 0), (0, 1), …, (1, 1), … those of t with the other output
            last = first + len(features) - t
            kernels().gram(together, offsets, features, own, offsets, out, first + n_tables - t, last)
            first = last
        total += out[:n_codes, n_codes:]
    return other.packing.of_groups(one.packing.of_groups(total).T).T


def pays(options: SolverOptions, groups: Sequence[Groups], n_sampled: int | None, n_rows: int, n_unknowns: int) -> bool:
    """Whether `hessian_between` and its factor cost less than the products that they save."""
    n_seen = n_rows if n_sampled is None else min(n_sampled, n_rows)
    n_packs, n_tables = sum(n_packs_of(own.n_groups, n_seen) for own in groups), sum(len(own.tables) for own in groups)
    ns = NS_PER_PAIR * n_seen * n_packs * (n_packs + 1) / 2 + NS_PER_CUBE * n_unknowns**3
    return ns < options.products_saved * NS_PER_ENTRY * n_rows * n_tables
