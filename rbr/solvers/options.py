"""The options of a solver's run, and its end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rbr.objective.protocol import Point


@dataclass(frozen=True)
class RunOptions:
    """The options of one run of a solver.

    step : the first step, or None for the natural one
    max_iter : iterations at most
    tol : a change of the tables by at most tol * ||f||_w counts as none; 0 never stops Algorithm 1
    with_moves : whether single moves are tried when no step is accepted
    searches_all_columns : whether columns outside the candidates are searched again once those offer no more
    """

    step: float | None = None
    max_iter: int = 200
    tol: float = 1e-5
    with_moves: bool = True
    searches_all_columns: bool = True


@dataclass(frozen=True, eq=False)
class Ending:
    """Where and why a run ended; see `Solution`."""

    point: Point
    labels: np.ndarray
    step: float
    residual: float
    converged: bool
    status: str
