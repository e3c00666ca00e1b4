"""Where a fit begins: at zero, at given tables, or where a fit on a sample of the rows ended."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rbr._checks import check_vector
from rbr.objective.protocol import Point
from rbr.solvers.options import RunOptions
from rbr.solvers.problem import Problem
from rbr.solvers.proposal import NONE
from rbr.solvers.solution import Recorder

# A point and its labels. A callable, so that the caller holds no reference to the raw scores.
Start = Callable[[], tuple[Point, np.ndarray]]


def start_at(problem: Problem, warm_start, intercept=None) -> tuple[Point, np.ndarray]:
    """The point of the zero tables, or of given tables projected to the constraint set; `intercept` is a guess."""
    objective, bound = problem.objective, problem.constraints
    tables = objective.zero_tables()
    if warm_start is None:
        return objective.point(tables, NONE), np.full(tables.shape, -1, dtype=np.int32)
    given = np.asarray(warm_start, dtype=np.float64)
    if given.shape != tables.shape:
        raise ValueError(f"warm_start has shape {given.shape}; the tables have shape {tables.shape}")
    given = check_vector(given.ravel(), given.size, "warm_start").reshape(given.shape)
    # A step this short leaves feasible tables as they are, with no more pieces than they have.
    found = bound.prox(given, 1e-9 * problem.natural_step, problem.scale, n_threads=problem.n_threads)
    return objective.point(found.f, found.support, intercept), found.labels


def start_on_sample(problem: Problem, step: float | None) -> tuple[Point, np.ndarray] | None:
    """The end of a fit on one row in sixteen (which may itself start on one in sixteen of those), or None.

    The jump cost is that of the sample's own number of rows; at the lower price of all rows the fit would follow noise.
    None if the objective has no usable sample, if the result is no better than the constant model on all rows,
    with several outputs, whose pieces could not be searched again on all rows, and with frequency tables, whose bins
    must have equal weights, which they do not in a sample.
    """
    from rbr.solvers.auto import run_auto

    whole = problem.objective
    if whole.n_outputs > 1 or not problem.constraints.flags("can_be_sampled").all():
        return None
    objective = whole.sample(problem.options.sample_share)
    if objective is None:
        return None
    sample = Problem(
        objective,
        problem.constraints.on(objective.tables.weights),
        problem.alpha,
        problem.scale * whole.n_total / objective.n_total,
    )
    options = RunOptions(step, problem.options.sample_iterations, problem.options.sample_tol, with_moves=False)
    ending = run_auto(
        sample, lambda: start_on_sample(sample, step) or start_at(sample, None), options, Recorder(sample)
    )
    whole.work.add(objective.work, problem.options.sample_share)
    found, labels = start_at(problem, ending.point.f, ending.point.intercept)
    return (found, labels) if problem.value(found, labels) < whole.constant_loss else None
