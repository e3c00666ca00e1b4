"""Bags: on few rows, the average of fits on subsamples, projected back into the constraint set.

With few rows, noise decides where the jumps are and which of several related features enters. Fits on subsamples decide
differently, and their average is closer to the truth than any of them. How strict those fits should be depends on the
table (lines for all features, or few features with many pieces), so a few ways to fit are tried, and those with the
least loss on the rows left out of the bags are averaged. The projection then turns the average into a model that keeps
the user's limits, of columns that the fit on all rows uses. The default needs no bags: it averages over all ways to cut
the tables (`rbr.solvers.averaging`).
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
from rbr.solvers.averages import projected
from rbr.solvers.solution import Recorder
from rbr.solvers.start import start_at


@dataclass(frozen=True)
class BagFit:
    """One way to fit a bag: constraints no looser than the user's, and a ridge."""

    name: str
    constraints: Constraints
    alpha: float


def candidate_fits(constraints: Constraints, objective: Objective, alpha: float) -> list[BagFit]:
    """Ways to fit a small table, from lines in all features to many pieces in few features.

    The average decides which features matter, so in all ways but the last, features enter a bag at no cost.
    """
    # Over ranks a line bends where rows are dense, and one far value does not tilt it; the projection of the average
    # then draws lines in x.
    constraints = replace(constraints, position="rank") if constraints.position == "value" else constraints
    bound = constraints.bind_to(objective.tables, objective.n_total)
    shapes = np.array(shape_names(), dtype=object)[bound.shapes]
    flexible = bound.flags("has_lines")
    lines = np.where(flexible, "linear", shapes)
    one_line = np.where(flexible, 1, bound.limits)
    few_lines = np.where(flexible, np.minimum(bound.limits, 2), bound.limits)
    allowed = tuple(j for j in range(bound.n_features) if j not in constraints.exclude)
    free_features = replace(constraints, always_include=allowed)
    ridge = max(alpha, min(objective.options.bag_alpha, objective.options.bag_ridge / objective.n_total))
    free_features, constraints = (
        replace(c, jump_cost=objective.options.bag_jump_cost) for c in (free_features, constraints)
    )
    return [
        BagFit("lines", replace(free_features, shape=lines, max_segments=one_line, jump_cost=0.0), ridge),
        BagFit("bent lines", replace(free_features, shape=lines, max_segments=few_lines, jump_cost=0.5), ridge),
        BagFit("all features", free_features, ridge),
        BagFit("few features", constraints, ridge),
    ]


def bag_average(
    solution: Solution,
    ways: list[BagFit],
    *,
    n_bags: int,
    random_state: Any = None,
    whole_rows: bool = False,
    verbose: int = 0,
    **arguments,
) -> Solution:
    """The solution whose tables are the projected average of n_bags fits, in the ways that do best out of bag.

    All ways are fitted on the first bags, and only the best few on the rest. `arguments` are those of `solve`, except
    that the constraints and the ridge of each way replace theirs. `whole_rows` as in `Objective.bags`.
    """
    options, n_total = solution.problem.options, solution.problem.objective.n_total
    # Only columns that have paid their price on all rows: out of bag, too, the best of many columns of noise gains.
    unused = np.setdiff1d(np.arange(solution.problem.constraints.n_features), solution.support)
    # A bag has fewer rows than the table: a least number of rows becomes a least share.
    ways = [
        replace(way, constraints=_without(way.constraints.of_shares(n_total), set(unused.tolist()))) for way in ways
    ]
    bags = solution.problem.objective.bags(len(ways), options.bag_share, random_state, whole_rows)
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
    return _projected(solution, total / (len(best) * n_bags))


def _without(constraints: Constraints, features: set[int]) -> Constraints:
    """The constraints with more features excluded."""
    included = tuple(j for j in constraints.always_include if j not in features)
    return replace(constraints, exclude=tuple(sorted({*constraints.exclude, *features})), always_include=included)


def _projected(solution: Solution, average: np.ndarray) -> Solution:
    """The projected average; the history has two rows, the constant model and the average."""
    problem, recorder = solution.problem, Recorder(solution.problem)
    constant, no_pieces = start_at(problem, None)
    recorder.record(constant, no_pieces, problem.natural_step, np.inf, 0)
    return projected(problem, average, solution.point, recorder, problem.options.bag_projection_price)


def solve_quietly(objective: Objective, **arguments) -> Solution:
    """A fit whose result is only averaged, so that it needs few digits and no convergence warning."""
    until = {"tol": objective.options.bag_tol, "max_iter": objective.options.bag_iterations}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(objective=objective, **{**arguments, **until})
