"""Bags: on few rows, the average of fits on subsamples, projected back into the constraint set.

On few rows noise chooses the places of jumps and which of several related features enters. Fits on subsamples choose
differently, and their average is closer to the truth than any of them. How strict those fits should be depends on the
table (lines for all features, or few features with many pieces), and the rows that a bag left out tell: of a few
manners of fitting those with the least out-of-bag loss are averaged. The projection then makes a model of the average
that keeps the promised limits. A bag draws distinct rows (equal codes, target, offset), so that a row of integer weight
k is drawn as k repeated rows are.
Looks at: rbr.solver, rbr.design, rbr.constraints.  Seen by: rbr.estimators.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from rbr.constraints import SHAPES, Constraints
from rbr.design import BinnedMatrix
from rbr.solver import Solution, solve

# Share of the distinct rows in a bag: what a bootstrap sample holds of them on average.
BAG_SHARE = 0.632
# Averaging has removed most of the noise that the jump cost guards against; the projection pays this part of it.
PROJECTION_PRICE = 0.1
# Ridge of a bag, at least: few rows in a bin say little of its level.
BAG_ALPHA = 0.01
# Fits that are only averaged need few digits.
BAG_TOL, BAG_MAX_ITER = 1e-3, 30
# Out-of-bag losses after so many bags tell the ways apart well enough to go on with so few of them.
BAGS_FOR_ALL_WAYS, WAYS_KEPT = 4, 2


@dataclass(frozen=True)
class Manner:
    """One way to fit a bag: constraints no looser than the user's, and a ridge."""

    name: str
    constraints: Constraints
    alpha: float


def manners(constraints: Constraints, design: BinnedMatrix, alpha: float) -> list[Manner]:
    """Ways to fit a small table, from the dense and straight to the sparse and bent.

    The average decides which features matter, so but for the last a feature enters a bag unpaid.
    """
    bound = constraints.bind(design.offsets, design.weights, missing=design.missing, positions=design.positions)
    shapes = np.array(SHAPES, dtype=object)[bound.shapes]
    flexible = np.isin(shapes, ("mixed", "linear"))
    lines = np.where(flexible, "linear", shapes)
    one_line = np.where(flexible, 1, bound.limits)
    few_lines = np.where(flexible, np.minimum(bound.limits, 2), bound.limits)
    allowed = tuple(j for j in range(bound.n_features) if j not in constraints.exclude)
    unpaid = replace(constraints, always_include=allowed)
    ridge = max(alpha, BAG_ALPHA)
    return [
        Manner("lines", replace(unpaid, shape=lines, max_segments=one_line, jump_cost=0.0), ridge),
        Manner("bent lines", replace(unpaid, shape=lines, max_segments=few_lines, jump_cost=0.5), ridge),
        Manner("all features", unpaid, ridge),
        Manner("few features", constraints, ridge),
    ]


def bag_average(
    design: BinnedMatrix,
    y: np.ndarray,
    solution: Solution,
    ways: list[Manner],
    *,
    n_bags: int,
    random_state=None,
    sample_weight=None,
    offset=None,
    **arguments,
) -> Solution:
    """The solution whose tables are the projected average of n_bags fits, in the ways that do best out of bag.

    All ways take the first bags; the best few of them take the rest.
    """
    rng = check_random_state(0 if random_state is None else random_state)
    if sample_weight is not None and not np.all(sample_weight):
        used = sample_weight > 0
        design, y, sample_weight = design[used], y[used], sample_weight[used]
        offset = None if offset is None else offset[used]
    group = distinct_rows(design, y, offset)
    n_groups = int(group.max()) + 1
    totals = [np.zeros_like(solution.f) for _ in ways]
    scores = [np.zeros(solution._point.raw.shape) for _ in ways]
    n_out = np.zeros(len(y))
    racing = list(range(len(ways)))

    def loss_of(chosen: tuple[int, ...]) -> float:
        """Mean loss of the rows that some bag left out, at their mean score over those bags and the chosen ways."""
        seen = n_out > 0
        raw = (sum(scores[w][seen] for w in chosen).T / (len(chosen) * n_out[seen])).T
        if offset is not None:
            raw = raw + offset[seen]
        v = np.ones(seen.sum()) if sample_weight is None else sample_weight[seen]
        objective = solution._problem.objective
        return objective.loss.value(y[seen].astype(objective.y.dtype), raw, v / v.sum())

    for bag in range(n_bags):
        rows = _draw(rng, group, n_groups, y)
        n_out += ~rows
        shared = {
            "sample_weight": None if sample_weight is None else sample_weight[rows],
            "offset": None if offset is None else offset[rows],
            "dispersion": solution.dispersion,
        }
        inside, outside = design[rows], design[~rows]
        for w in racing:
            own = {"constraints": ways[w].constraints, "alpha": ways[w].alpha}
            found = solve_quietly(inside, y[rows], **{**arguments, **shared, **own})
            totals[w] += found.f
            scores[w][~rows] += outside.matvec(found.f, features=found.support) + found.intercept
        if bag + 1 == BAGS_FOR_ALL_WAYS and n_out.any():
            racing = sorted(racing, key=lambda w: loss_of((w,)))[:WAYS_KEPT]
    best = (racing[0],)
    if len(racing) > 1 and n_out.any():
        mixtures = [(w,) for w in racing] + list(combinations(racing, 2))
        best = min(mixtures, key=loss_of)
    return _project(solution, sum(totals[w] for w in best) / (len(best) * n_bags))


def _draw(rng, group: np.ndarray, n_groups: int, y: np.ndarray) -> np.ndarray:
    """The rows of a bag; all of them if the bag would miss a class."""
    drawn = np.zeros(n_groups, dtype=bool)
    drawn[rng.permutation(n_groups)[: max(2, round(BAG_SHARE * n_groups))]] = True
    rows = drawn[group]
    return rows if _is_enough(y[rows], y) else np.ones(len(y), dtype=bool)


def _project(solution: Solution, average: np.ndarray) -> Solution:
    """The average's nearest tables that keep the limits, at a small price."""
    problem = solution._problem
    found = problem.constraints.prox(average, 1.0, PROJECTION_PRICE * problem.scale, n_threads=problem.n_threads)
    point = problem.objective.point(found.f, found.support, solution.intercept)
    return replace(
        solution,
        f=found.f,
        intercept=point.intercept,
        support=found.support,
        labels=found.labels,
        loss=point.loss,
        _point=point,
    )


def solve_quietly(*args, **kwargs) -> Solution:
    """A fit whose answer is only averaged: whether it has converged to the last digit does not matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(*args, **{**kwargs, "tol": BAG_TOL, "max_iter": BAG_MAX_ITER, "verbose": 0})


def distinct_rows(design: BinnedMatrix, y: np.ndarray, offset) -> np.ndarray:
    """For each row the number of its group of equal rows, in an order that does not depend on the rows' order."""
    columns = [design.codes.T, np.asarray(y)[:, None]]
    if offset is not None:
        columns.append(np.asarray(offset).reshape(len(y), -1))
    return np.unique(np.concatenate(columns, axis=1), axis=0, return_inverse=True)[1].ravel()


def _is_enough(y_bag: np.ndarray, y: np.ndarray) -> bool:
    """Whether a bag of few rows still has more than one target, and for classes all of them."""
    values = np.unique(y)
    return len(np.unique(y_bag)) == len(values) if len(values) <= 20 else len(y_bag) > 1
