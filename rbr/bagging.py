"""Bags: the average of fits on subsamples, projected back into the constraint set.

On few rows the places of jumps are chosen by noise. Fits on subsamples place them differently, and their average is
smoother and closer to the truth than any of them; the projection then makes a model of it that is as small as promised.
A subsample draws distinct rows (equal codes, target, offset), so that a row of integer weight k is drawn
as k repeated rows would be.
Looks at: rbr.solver, rbr.design.  Seen by: rbr.estimators.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from rbr.design import BinnedMatrix
from rbr.solver import Solution, solve

# Share of the distinct rows in a bag: what a bootstrap sample holds of them on average.
BAG_SHARE = 0.632
# Averaging removes most of the noise that the jump cost guards against; the projection pays this part of it.
PROJECTION_PRICE = 0.25


def bag_average(
    design: BinnedMatrix,
    y: np.ndarray,
    solution: Solution,
    *,
    n_bags: int,
    random_state,
    sample_weight=None,
    offset=None,
    **arguments,
) -> Solution:
    """The solution whose tables are the projected average of the tables of n_bags fits on subsamples."""
    rng = check_random_state(0 if random_state is None else random_state)
    if sample_weight is not None and not sample_weight.all():
        used = sample_weight > 0
        design, y, sample_weight = design[used], y[used], sample_weight[used]
        offset = None if offset is None else offset[used]
    group = distinct_rows(design, y, offset)
    n_groups = group.max() + 1
    total = np.zeros_like(solution.f)
    arguments = {**arguments, "dispersion": solution.dispersion, "verbose": 0}
    for _ in range(n_bags):
        drawn = np.zeros(n_groups, dtype=bool)
        drawn[rng.permutation(n_groups)[: max(2, round(BAG_SHARE * n_groups))]] = True
        rows = drawn[group]
        if not _is_enough(y[rows], y):
            rows = np.ones(len(y), dtype=bool)
        bag = solve_quietly(
            design[rows],
            y[rows],
            sample_weight=None if sample_weight is None else sample_weight[rows],
            offset=None if offset is None else offset[rows],
            **arguments,
        )
        total += bag.f
    problem = solution._problem
    constraints = problem.constraints
    found = constraints.prox(total / n_bags, 1.0, PROJECTION_PRICE * problem.scale, n_threads=problem.n_threads)
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
        return solve(*args, **kwargs)


def distinct_rows(design: BinnedMatrix, y: np.ndarray, offset) -> np.ndarray:
    """For each row the number of its group of equal rows, in an order that does not depend on the rows' order."""
    columns = [design.codes.T, np.asarray(y)[:, None]]
    if offset is not None:
        columns.append(np.asarray(offset).reshape(len(y), -1))
    keys = np.concatenate(columns, axis=1)
    return np.unique(keys, axis=0, return_inverse=True)[1].ravel()


def _is_enough(y_bag: np.ndarray, y: np.ndarray) -> bool:
    """Whether a bag of few rows still has more than one target, and for classes all of them."""
    values = np.unique(y)
    return len(np.unique(y_bag)) == len(values) if len(values) <= 20 else len(y_bag) > 1
