"""`solve`: from a user's arguments to a `Solution`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from rbr._checks import check_choice, check_int, check_real
from rbr._options import SolverOptions
from rbr._parallel import one_blas_thread
from rbr.constraints import DEFAULT_JUMP_COST, BoundConstraints, Constraints
from rbr.data.design import BinnedMatrix
from rbr.losses import Loss
from rbr.objective import make_objective
from rbr.objective.protocol import Objective, check_objective
from rbr.solvers.algorithm1 import run_algorithm1
from rbr.solvers.auto import run_auto
from rbr.solvers.dispersion import estimate_dispersion
from rbr.solvers.options import Ending, RunOptions
from rbr.solvers.problem import Problem
from rbr.solvers.refit import norm
from rbr.solvers.solution import Iteration, Recorder, Solution
from rbr.solvers.start import start_at, start_on_sample

SOLVERS = ("auto", "algorithm1")


@one_blas_thread()
def solve(
    B: BinnedMatrix | None = None,
    y: ArrayLike | None = None,
    *,
    loss: str | Loss | None = None,
    constraints: Constraints | None = None,
    sample_weight: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    alpha: float = 0.0,
    solver: str = "auto",
    step_size: float | str = "auto",
    max_iter: int = 200,
    tol: float = 1e-5,
    warm_start: ArrayLike | None = None,
    dispersion: float | None = None,
    callback: Callable[[Iteration], bool | None] | None = None,
    verbose: int = 0,
    n_jobs: int | None = None,
    options: SolverOptions | None = None,
    objective: Objective | None = None,
) -> Solution:
    """Fit tables to y: minimise the mean loss over the constraint set.

    Parameters
    ----------
    B : BinnedMatrix
        None if an objective is given.
    y : array of shape (n_rows,)
        For "log_loss" labels 0 and 1, for "multinomial" class codes 0, 1, ….
    loss : str or a loss of rbr.losses
        "squared_error" (the default), "log_loss", "multinomial", "poisson", "gamma", "tweedie", "huber" or "quantile".
    constraints : Constraints, optional
        By default constant pieces at the default jump cost, without a limit on the features.
    sample_weight : array of shape (n_rows,), optional
        An integer weight stands for repeated rows; rows of weight zero are left out.
    offset : array of shape (n_rows,), optional
        Added to every raw prediction.
    alpha : float
        Ridge penalty alpha / 2 ||f||_w^2.
    solver : {"auto", "algorithm1"}
    step_size : float or "auto"
        For Algorithm 1, the fixed step mu ("auto": the longest that is safe for one table alone, which is 1 for squared
        error with `counts` weights); for the default solver, its first step.
    max_iter : int
    tol : float
        Stops when a step changes the tables by at most tol * ||f||_w; 0 runs all max_iter steps of Algorithm 1.
    warm_start : array of shape (n_coef,), optional
        Tables to start from, projected to the constraint set first; zero by default.
    dispersion : float, optional
        phi, the unit of the jump cost, as an earlier solution reported it. By default 1 for log_loss, multinomial
        and poisson, and otherwise estimated (see `estimate_dispersion`).
    callback : callable, optional
        Called with an `Iteration` after each iteration; a true return value stops the fit.
    verbose : int
        1 prints a line per iteration.
    n_jobs : int, optional
        Threads; the result does not depend on their number.
    options : SolverOptions, optional
        The numbers that steer the fit; see `rbr.SolverOptions`.
    objective : Objective, optional
        Replaces B, y, loss, sample_weight, offset, n_jobs and options: see `rbr.make_objective`, and
        `rbr.objective.Objective` for what an implementation must provide.

    Returns
    -------
    Solution

    Examples
    --------
    >>> import numpy as np
    >>> import rbr
    >>> x = np.repeat([0, 1, 2, 3], 25)
    >>> B = rbr.BinnedMatrix([x, np.tile([0, 1], 50)], offsets=[0, 4, 6])
    >>> y = np.where(x >= 2, 3.0, 1.0)
    >>> s = rbr.solve(B, y, constraints=rbr.Constraints(max_features=1, max_segments=2))
    >>> s.support, s.f[:4].round(12), round(s.intercept, 12)
    (array([0]), array([-1., -1.,  1.,  1.]), 2.0)
    """
    check_choice(solver, "solver", SOLVERS)
    if step_size != "auto":
        check_real(step_size, "step_size", 0.0, strict=True)
    check_int(max_iter, "max_iter", 1)
    check_real(tol, "tol", 0.0)
    check_real(alpha, "alpha", 0.0)
    if dispersion is not None:
        check_real(dispersion, "dispersion", 0.0)
    rows = {"loss": loss, "sample_weight": sample_weight, "offset": offset, "n_jobs": n_jobs, "options": options}
    objective = _objective_of(B, y, rows, objective)
    bound = _bound(constraints, objective)
    if objective.has_constant_target:
        # A constant is best, but with a log link the rounding in its residuals could be fitted by tables.
        bound = bound.excluding(np.arange(bound.n_features))
    if bound.jump_cost > 0 and objective.has_small_weights:
        warnings.warn(
            f"sample_weight sums to {objective.n_total:.3g}, less than a tenth of the number of rows; a weight says "
            "how many rows a row stands for, and at this jump cost these few hardly justify a piece: scale the "
            "weights to mean 1 if they are relative ones",
            stacklevel=3,
        )
    if dispersion is None and bound.jump_cost > 0:
        dispersion = estimate_dispersion(objective, bound)
    problem = Problem(objective, bound, float(alpha), (dispersion or 0.0) / objective.n_total)
    run = RunOptions(None if step_size == "auto" else float(step_size), max_iter, tol)
    ending, recorder = _run(problem, solver, run, warm_start, verbose, callback)
    if tol > 0:
        _warn_if_not_converged(ending, recorder, problem, tol)
    # A copy of the problem, without what is known of gradients and spaces: they hold vectors of the rows.
    return Solution.of(replace(problem), ending, recorder.history, dispersion)


def _objective_of(B, y, rows: dict, objective: Objective | None) -> Objective:
    """The given objective, or one over the given rows."""
    if objective is None:
        return make_objective(B, y, **{name: value for name, value in rows.items() if value is not None})
    given = {"B": B, "y": y, **rows}
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} is given together with an objective, which has its own; give one of the two")
    check_objective(objective)
    return objective


def _bound(constraints: Constraints | None, objective: Objective) -> BoundConstraints:
    """The constraints on the objective's tables."""
    if constraints is None:
        constraints = Constraints(jump_cost=DEFAULT_JUMP_COST)
    elif not isinstance(constraints, Constraints):
        raise TypeError(f"constraints is a {type(constraints).__name__}; it must be a Constraints")
    return constraints.bind_to(objective.tables, objective.n_total)


def _run(problem: Problem, solver: str, options: RunOptions, warm_start, verbose, callback) -> tuple[Ending, Recorder]:
    """The end of the chosen solver's run, and the record of its iterations."""
    objective = problem.objective
    if solver == "algorithm1":
        recorder = Recorder(problem, verbose, callback)
        return run_algorithm1(problem, lambda: start_at(problem, warm_start), options, recorder), recorder
    condensed = objective.condensed()
    if condensed is objective:

        def start():
            from_sample = start_on_sample(problem, options.step) if warm_start is None else None
            return from_sample or start_at(problem, warm_start)

        recorder = Recorder(problem, verbose, callback)
        return run_auto(problem, start, options, recorder), recorder
    shorter = replace(problem, objective=condensed)
    recorder = Recorder(shorter, verbose, callback, rows=objective)
    ending = run_auto(shorter, lambda: start_at(shorter, warm_start), options, recorder)
    objective.work.gradients += condensed.work.gradients
    objective.work.newton_steps += condensed.work.newton_steps
    point, gradient = ending.point, ending.point.gradient
    point = replace(objective.point(point.f, point.support, point.intercept), gradient=gradient)
    return replace(ending, point=point), recorder


def _warn_if_not_converged(ending: Ending, recorder: Recorder, problem: Problem, tol: float) -> None:
    if ending.converged or ending.status == "callback":
        return
    from sklearn.exceptions import ConvergenceWarning

    change = ending.residual / max(norm(ending.point.f, problem.constraints.weights), 1e-12)
    n_iter = len(recorder.history) - 1
    if ending.status == "max_iter":
        text = (
            f"not converged after {n_iter} iterations: a step of {ending.step:.3g} still moves the tables by "
            f"{change:.2e} of their norm, and tol is {tol:.2e}; raise max_iter, or tol"
        )
    else:
        text = (
            f"stopped after {n_iter} iterations, since nothing that was proposed lowers the objective any more, but a "
            f"step of {ending.step:.3g} still moves the tables by {change:.2e} of their norm, and tol is {tol:.2e}; "
            "more iterations would not help, a larger tol or ridge (alpha) may"
        )
    warnings.warn(text, ConvergenceWarning, stacklevel=4)
