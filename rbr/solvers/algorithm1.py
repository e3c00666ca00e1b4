"""The paper's Algorithm 1: projected gradient descent with a fixed step."""

from __future__ import annotations

from dataclasses import replace

from rbr.solvers.options import Ending, RunOptions
from rbr.solvers.problem import Problem
from rbr.solvers.refit import norm
from rbr.solvers.solution import Recorder
from rbr.solvers.start import Start


def run_algorithm1(problem: Problem, start: Start, options: RunOptions, recorder: Recorder) -> Ending:
    """f <- P(f - mu grad) with a fixed step mu (paper, Algorithm 1)."""
    step = problem.natural_step if options.step is None else options.step
    point, labels = start()
    for iteration in range(options.max_iter + 1):
        gradient = problem.screen.move_to(point)
        found, residual = problem.step_from(gradient, step)
        converged = residual <= options.tol * max(norm(point.f, problem.constraints.weights), 1e-12)
        stopped = recorder.record(point, labels, step, residual, gradient.n_read)
        if stopped or iteration == options.max_iter or (converged and options.tol > 0):
            break
        point = problem.objective.point(found.f, found.support, point.intercept)
        labels = found.labels
    status = "converged" if converged else "callback" if stopped else "max_iter"
    return Ending(replace(point, gradient=gradient.of_used), labels, step, residual, converged, status)
