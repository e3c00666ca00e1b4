"""Products with the Hessian of several classes, which couples them: that of row i is v_i (diag(p_i) - p_i p_i').

It is never built: with K classes it would have K^2 blocks. A product is a look-up, a product by row and a sum by bin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from rbr.objective.protocol import Point

if TYPE_CHECKING:
    from rbr.objective.rows import RowObjective


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
