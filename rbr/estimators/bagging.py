"""Bags: on few rows, the average of fits on subsamples, projected back into the constraint set.

On few rows noise chooses the places of jumps and which of several related features enters. Fits on subsamples choose
differently, and their average is closer to the truth than any of them. How strict those fits should be depends on the
table (lines for all features, or few features with many pieces), and the rows that a bag left out tell: of a few
ways to fit those with the least out-of-bag loss are averaged. The projection then makes a model of the average that
keeps the promised limits.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from rbr.constraints import Constraints
from rbr.objective.protocol import Objective
from rbr.shapes import shape_names
from rbr.solvers import Solution, solve
from rbr.solvers.options import Ending
from rbr.solvers.solution import Recorder
from rbr.solvers.start import start_at


@dataclass(frozen=True)
class Way:
    """One way to fit a bag: constraints no looser than the user's, and a ridge."""

    name: str
    constraints: Constraints
    alpha: float


def ways_to_fit(constraints: Constraints, objective: Objective, alpha: float) -> list[Way]:
    """Ways to fit a small table, from the dense and straight to the sparse and bent.

    The average decides which features matter, so but for the last a feature enters a bag unpaid.
    """
    bound = constraints.bind_to(objective.tables)
    shapes = np.array(shape_names(), dtype=object)[bound.shapes]
    flexible = bound.flags("has_lines")
    lines = np.where(flexible, "linear", shapes)
    one_line = np.where(flexible, 1, bound.limits)
    few_lines = np.where(flexible, np.minimum(bound.limits, 2), bound.limits)
    allowed = tuple(j for j in range(bound.n_features) if j not in constraints.exclude)
    unpaid = replace(constraints, always_include=allowed)
    ridge = max(alpha, objective.options.bag_alpha)
    return [
        Way("lines", replace(unpaid, shape=lines, max_segments=one_line, jump_cost=0.0), ridge),
        Way("bent lines", replace(unpaid, shape=lines, max_segments=few_lines, jump_cost=0.5), ridge),
        Way("all features", unpaid, ridge),
        Way("few features", constraints, ridge),
    ]


def bag_average(
    solution: Solution, ways: list[Way], *, n_bags: int, random_state: Any = None, verbose: int = 0, **arguments
) -> Solution:
    """The solution whose tables are the projected average of n_bags fits, in the ways that do best out of bag.

    All ways take the first bags; the best few of them take the rest. `arguments` are those of `solve` but for the
    constraints and the ridge, which the ways bring.
    """
    options = solution.problem.options
    bags = solution.problem.objective.bags(len(ways), options.bag_share, random_state)
    totals = [np.zeros_like(solution.f) for _ in ways]
    racing = list(range(len(ways)))
    for bag in range(n_bags):
        inside = bags.draw()
        for w in racing:
            own = {"constraints": ways[w].constraints, "alpha": ways[w].alpha, "dispersion": solution.dispersion}
            found = solve_quietly(objective=inside, **{**arguments, **own})
            totals[w] += found.f
            bags.add(w, found.f, found.support, found.intercept)
        if bag + 1 == options.bags_for_all_ways and bags.has_left_out:
            racing = sorted(racing, key=lambda w: bags.loss_of((w,)))[: options.ways_kept]
        if verbose:
            print(f"bag {bag + 1} of {n_bags}: {', '.join(ways[w].name for w in racing)}", flush=True)
    best: tuple[int, ...] = (racing[0],)
    if len(racing) > 1 and bags.has_left_out:
        mixtures: list[tuple[int, ...]] = [*((w,) for w in racing), *combinations(racing, 2)]
        best = min(mixtures, key=bags.loss_of)
    total: Any = sum(totals[w] for w in best)
    return _project(solution, total / (len(best) * n_bags))


def _project(solution: Solution, average: np.ndarray) -> Solution:
    """The average's nearest tables that keep the limits, at a small price.

    Its history has two rows, the constant model and the average; an average is a fixed point only by chance.
    """
    problem = solution.problem
    found = problem.constraints.prox(
        average, 1.0, problem.options.projection_price * problem.scale, n_threads=problem.n_threads
    )
    step, recorder = problem.natural_step, Recorder(problem)
    constant, no_pieces = start_at(problem, None)
    recorder.record(constant, no_pieces, step, np.inf, 0)
    point = problem.objective.point(found.f, found.support, solution.intercept)
    gradient = problem.screen.look_at(point)
    _, residual = problem.step_from(gradient, step)
    recorder.record(point, found.labels, step, residual, gradient.n_read)
    ending = Ending(point, found.labels, step, residual, False, "average")
    return Solution.of(problem, ending, recorder.history, solution.dispersion)


def solve_quietly(objective: Objective, **arguments) -> Solution:
    """A fit whose answer is only averaged: whether it has converged to the last digit does not matter."""
    until = {"tol": objective.options.bag_tol, "max_iter": objective.options.bag_iterations}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(objective=objective, **{**arguments, **until})
