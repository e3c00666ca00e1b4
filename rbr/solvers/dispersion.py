"""The estimate of the dispersion, the unit of the jump cost."""

from __future__ import annotations

import numpy as np

from rbr.constraints import DEFAULT_JUMP_COST, BoundConstraints
from rbr.objective.protocol import Objective, Point
from rbr.solvers.auto import Candidates, run_auto
from rbr.solvers.options import Ending, RunOptions
from rbr.solvers.problem import Problem
from rbr.solvers.solution import Recorder
from rbr.solvers.start import start_at


def estimate_dispersion(objective: Objective, constraints: BoundConstraints) -> float:
    """phi, the unit of the jump cost: the variance that a good model leaves unexplained.

    1 where the loss implies its variance (log_loss, multinomial, poisson). Otherwise, from at most 20,000 rows: start
    with the dispersion around the constant model; fit at the default jump cost without limits, from zero; take the
    dispersion around that fit, corrected for its degrees of freedom; repeat from there until it moves by at most 5%, at
    most four times. (From zero each time with a loss that is straight in places: rounding decides between ends that are
    equally good, and must not decide where the next round begins.) Searching for the place of a jump uses up degrees of
    freedom beyond those of the fitted numbers, so the code length of the fit is added to them, and a fit whose sum
    exceeds half the rows is discarded. Otherwise, on few rows, a fit to noise would lower phi and so lead to a closer
    fit to noise in the next round. The estimate depends on the data, the loss and the shapes, not on a step, a limit or
    a start.
    """
    if objective.loss.has_known_dispersion:
        return 1.0
    whole, objective = objective, objective.representative()
    constraints = constraints.on(objective.tables.weights).without_limits(DEFAULT_JUMP_COST)
    n = objective.n_total
    start = start_at(Problem(objective, constraints, 0.0, 0.0), None)
    phi, candidates = objective.dispersion(start[0]), None
    for _ in range(objective.options.dispersion_rounds):
        problem = Problem(objective, constraints, 0.0, phi / n)
        candidates = Candidates(problem) if candidates is None else candidates
        # Single moves hardly change phi, and a fit to all rows does not start at the end of one to a sample.
        ending = _fitted_from(start, problem, candidates, with_moves=objective is whole)
        labels, support = ending.labels, ending.point.support
        if objective.loss.is_curved_everywhere:
            start = ending.point, labels
        df = 1.0 + constraints.degrees_of_freedom(labels, support)
        df += constraints.with_jump_cost(1.0).cost(labels, support, 1.0)
        if df > n / 2:
            break
        previous, phi = phi, objective.dispersion(ending.point, df)
        if abs(phi - previous) <= objective.options.dispersion_settled * previous:
            break
    return phi


def _fitted_from(start: tuple[Point, np.ndarray], problem: Problem, candidates: Candidates, with_moves: bool) -> Ending:
    options = RunOptions(max_iter=30, tol=1e-3, with_moves=with_moves, searches_all_columns=False)
    return run_auto(problem, lambda: start, options, Recorder(problem), candidates)
