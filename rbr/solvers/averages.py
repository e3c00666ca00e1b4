"""The model of averaged tables: which features it uses, and in which pieces it tells them.

`rbr.solvers.averaging` takes the mean of every table over all ways to cut it. What a person reads is that mean,
projected back into the constraint set at a low price for pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from rbr.constraints import BoundConstraints, Constraints, Prox
from rbr.objective.protocol import Objective, Point
from rbr.shapes import shape_names
from rbr.solvers.averaging import Averaging
from rbr.solvers.left_out import decide
from rbr.solvers.options import Ending
from rbr.solvers.problem import Problem
from rbr.solvers.solution import Iteration, Recorder, Solution

# How features are chosen: one after the other, as each has evidence; those that have evidence beside all the others,
# since features that say much together may say little alone; or all of them.
WAYS = ("alone", "together", "all")


def can_average(objective: Objective, bound: BoundConstraints) -> bool:
    """Whether tables can be averaged: not those made of frequencies, nor those of very many rows."""
    has_pieces = bool(bound.flags("has_pieces").all())
    return has_pieces and objective.can_be_averaged and not objective.has_constant_target


def is_spoiled(solution: Solution) -> bool:
    """Whether the limits leave too little of an average: one line in a skewed column may be far from it.

    A fit that looks for the best tables within the limits then does better.
    """
    before, after = solution.history[-2].loss, solution.history[-1].loss
    explained = solution.problem.objective.constant_loss - before
    return after - before > solution.problem.options.most_lost_by_limits * explained


def average_over_pieces(
    objective: Objective,
    constraints: Constraints,
    *,
    alpha: float = 0.0,
    dispersion: float | None = None,
    is_numeric: np.ndarray | None = None,
    random_state: Any = None,
    way: str | None = None,
    verbose: int = 0,
    callback: Callable[[Iteration], bool | None] | None = None,
) -> Solution:
    """The solution whose tables are the mean over all ways to cut them, projected back into the constraint set.

    Parameters
    ----------
    objective : Objective
    constraints : Constraints
        The limits that the result keeps; its jump cost, with `SolverOptions.projection_price`, says what a piece of the
        result must be worth.
    alpha, dispersion, verbose, callback
        As in `rbr.solve`.
    is_numeric : bool array by table, optional
        Which tables are of numbers. If their values are at hand and rise much within bins, as in the tail of a skewed
        column, the solution is on an objective with that among its offsets.
    random_state : int, RandomState or None
        For the bags on which the ways to choose features compete; None stands for a fixed seed.
    way : one of `WAYS`, optional
        How features are chosen. By default the bound on the evidence of all tables decides between the first two, and
        rows that were left out decide whether all are used.
    """
    bound = constraints.bind_to(objective.tables, objective.n_total)
    run = Averaging(objective, bound, alpha, ~bound.excluded, dispersion)
    problem = Problem(objective, bound, alpha, (dispersion or 1.0) / objective.n_total)
    recorder = Recorder(problem, verbose, callback)

    def report(point: Point) -> bool:
        no_labels = np.full(point.f.shape, -1, dtype=np.int32)
        return recorder.record(
            replace(point, support=run.used()), no_labels, problem.natural_step, np.inf, run.bound.n_features
        )

    point = run.run(report)
    plain = objective
    for _ in range(objective.options.rounds_within_bins):
        sloped = None if is_numeric is None else _on_slopes(plain, run, point, is_numeric)
        if sloped is None:
            break
        objective, rising = sloped
        problem = replace(problem, objective=objective)
        run = Averaging(objective, bound, alpha, ~bound.excluded, dispersion, rising=rising)
        point = run.run(report)
    # On lines the bins of a bag have other means than those of all rows, which its tables must explain as noise.
    in_bags = run.dispersion if objective is plain else run.known_dispersion
    run, point, found = _chosen(run, point, way, in_bags, random_state, report)
    used = run.used()
    if bound.max_features is not None and len(used) > bound.max_features:
        point, used = run.limited(point, used, bound.max_features, report)
    if len(used) and not objective.has_many_rows:
        point = run.settle_on_shared_prior(point, report)
        used = run.used()
    problem = replace(problem, scale=run.dispersion / objective.n_total)
    problem = replace(problem, constraints=replace(bound, limits=run.limits()))
    simple, means = _told_simply(problem, run, point, used, found == "all")
    problem = replace(problem, constraints=simple)
    explained = (objective.constant_loss - point.loss) * objective.n_total / run.dispersion
    price = max(objective.options.projection_price, objective.options.projection_share * explained)
    # With several classes each has tables of its own, and explains its part.
    solution = projected(problem, means, point, recorder, price=price / objective.n_outputs)
    return replace(solution, way=found)


def _chosen(
    run: Averaging,
    point: Point,
    way: str | None,
    in_bags: float | None,
    random_state: Any,
    report: Callable[[Point], bool],
) -> tuple[Averaging, Point, str]:
    """(run, its last point, way) of the features found in a given way, or in the one that does best.

    in_bags : the dispersion of fits on bags, None if it is to be estimated
    """
    objective, found = run.objective, WAYS[0]
    # With many rows a feature that matters has evidence of its own.
    may_differ = run.has_rows_for_all and not objective.has_many_rows and 0 < len(run.used()) < run.n_allowed
    with_all: tuple[Averaging, Point] | None = None
    if way != found and (way is not None or may_differ):
        with_all = _with_all(run, report)
        together = with_all[0].copy()
        of_together = together.narrow(with_all[1], report)
        gain = together.worth(of_together) - run.worth(point)
        if way == "together" or (way is None and gain > objective.options.least_gain_in_all):
            run, point, found = together, of_together, "together"
    decision = decide(run, point, found, None if way is None else way == "all", in_bags, random_state)
    if with_all is not None and decision.uses_all:
        (run, point), found = with_all, "all"
    run.looseness = decision.looseness
    return run, point, found


def _with_all(run: Averaging, report: Callable[[Point], bool]) -> tuple[Averaging, Point]:
    """(run, its last point) with all features, from which those that have evidence beside the others are found.

    The noise is that of the features found one by one: beside what all of them explain by chance it would look smaller
    than it is, and chance would be evidence. All of them are only a start, but they must settle: related columns whose
    differences matter are slow to show it.
    """
    known = run.objective, run.bound, run.alpha, run.allowed, run.dispersion
    # Under a limit only the largest tables stay, and related ones that share an effect are all small.
    has_limit = run.bound.max_features is not None and run.bound.max_features < run.n_allowed
    own = Averaging(*known, uses_all=True, shares_prior=not has_limit, rising=run.rising)
    return own, own.run(report)


def _on_slopes(
    objective: Objective, run: Averaging, point: Point, is_numeric: np.ndarray
) -> tuple[Objective, np.ndarray] | None:
    """(the objective with what the mean tables rise within bins among its offsets, tables that rise from bin to bin).

    None if that gains little. Within a group of bins that are averaged over as one, and within a bin, a table is taken
    to rise as it does between the neighbouring groups. In the tail of a skewed column that explains rows better than
    groups can, and what they leave over would look like signal to other features.
    """
    bound, used = run.bound, run.used()
    tables = used[(is_numeric & bound.flags("has_lines"))[used]] if len(used) else used
    if not objective.has_values or not len(tables):
        return None
    means, _, _ = objective.bin_moments(tables)
    slopes, rising = np.zeros_like(run.posterior.f), run.posterior.f.copy()
    for j in tables:
        bins = np.arange(bound.offsets[j], bound.offsets[j] + bound.n_ordered[j])
        bins = bins[np.isfinite(means[bins]) & (bound.weights[bins] > 0)]
        _, begins, group = np.unique(run.group[bins], return_index=True, return_inverse=True)
        if len(begins) > 2:
            shares = bound.weights[bins] / np.add.reduceat(bound.weights[bins], begins)[group]
            x, f = (np.add.reduceat((shares * by_bin[bins].T).T, begins) for by_bin in (means, rising))
            left, right = np.arange(len(x)) - 1, np.arange(len(x)) + 1
            left[0], right[-1] = 0, len(x) - 1
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                slope = (f[right] - f[left]) / (x[right] - x[left])[:, None]
            slopes[bins] = np.where(np.isfinite(slope), slope, 0.0)[group]
            rising[bins] = f[group] + slopes[bins] * (means[bins] - x[group])[:, None]
    f, slopes = (rising[:, 0], slopes[:, 0]) if objective.n_outputs == 1 else (rising, slopes)
    distances = objective.distances(tables, np.where(np.isfinite(means), means, 0.0))
    sloped = objective.line_point(f, point.support, slopes, distances, point.intercept)
    gain = (point.loss - sloped.loss) / max(run.dispersion, 1e-300)
    return (objective.on_lines(slopes, distances), rising) if gain > objective.options.least_gain_within_bins else None


def projected(problem: Problem, average: np.ndarray, near: Point, recorder: Recorder, price: float) -> Solution:
    """The solution nearest to average tables, with a price on pieces, in the geometry of the curvature at a point.

    A piece must be worth `price` times the jump cost of a fit: averages have little noise left, and pieces are for
    reading. `converged` is False, because an average is a fixed point only by chance.
    """
    found = _nearest(problem, average, near, price)
    point, step = problem.objective.point(found.f, found.support, near.intercept), problem.natural_step
    gradient = problem.screen.look_at(point)
    _, residual = problem.step_from(gradient, step)
    recorder.record(point, found.labels, step, residual, gradient.n_read)
    ending = Ending(point, found.labels, step, residual, False, "average")
    return Solution.of(problem, ending, recorder.history, problem.scale * problem.objective.n_total)


def _told_simply(
    problem: Problem, run: Averaging, point: Point, used: np.ndarray, uses_all: bool
) -> tuple[BoundConstraints, np.ndarray]:
    """(constraints with some tables limited to a single step or line, mean tables), where a fit tells a table so.

    The place of a step is uncertain, and its average is a short slope. To tell that in more pieces gains next to
    nothing, and reads as if there were more to it. The fit at twice the price must be close to the average, and the
    feature must have evidence of its own: many weak effects that a fit would tell so are curves. If it explains the
    rows better than the average does, as a steep line can, it replaces the average.
    """
    objective, bound, means = problem.objective, problem.constraints, run.means(used)
    if objective.n_outputs > 1 or uses_all or not len(used):
        return bound, means
    H, _ = objective.curvature_sums(point, used, run.majorizes)
    pull = -objective.gradient(point, used) * objective.tables.weights
    values = np.divide(pull, H, out=np.zeros_like(H), where=H > 0) + means
    told = _nearest(problem, values, point, objective.options.price_when_simple)
    steps, lines, most = [], [], np.full(bound.n_features, 2)
    for j in used[bound.flags("has_jumps")[used]].tolist():
        table = slice(bound.offsets[j], bound.offsets[j] + bound.n_ordered[j])
        pieces = np.unique(told.labels[table])
        # A step inside a bin gives that bin a piece of its own, until jumps move into bins.
        in_between = len(pieces) == 3 and (told.labels[table] == pieces[1]).sum() == 1
        if (len(pieces) == 2 or in_between) and not (pieces % 2).any():
            steps.append(j)
            most[j] = len(pieces)
        elif len(pieces) == 1:
            lines.append(j)
    simple = bound.as_steps(np.array(steps, dtype=np.int64), most).as_lines(np.array(lines, dtype=np.int64))
    near = _nearest(replace(problem, constraints=simple), means, point, 0.0)
    unit = 0.5 * objective.n_total / run.dispersion

    def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Between tables, in units of log-likelihood; their means do not count."""
        by_table = [np.add.reduceat(part, bound.offsets[:-1]) for part in (H * (a - b) ** 2, H * (a - b), H)]
        return unit * (by_table[0] - by_table[1] ** 2 / np.maximum(by_table[2], 1e-300))

    is_close = distance(means, near.f) <= objective.options.lost_when_simple
    is_better = distance(values, told.f) < distance(values, means)
    for j in [*steps, *lines]:
        if is_better[j] and not is_close[j]:
            bins = slice(bound.offsets[j], bound.offsets[j + 1])
            means[bins] = told.f[bins]
    keep = [np.array([j for j in own if is_close[j] or is_better[j]], dtype=np.int64) for own in (steps, lines)]
    return bound.as_steps(keep[0], most).as_lines(keep[1]), means


def _nearest(problem: Problem, average: np.ndarray, near: Point, price: float) -> Prox:
    """The pieces of an average, for each class those of its own tables in the geometry of its own curvature.

    With several classes only f, support and labels are those of all.
    """
    bound = problem.constraints
    H, totals = problem.objective.curvature_sums(near, np.arange(bound.n_features))
    H, totals = np.maximum(H.reshape(len(H), -1), 0.0), np.ravel(totals)
    # Whether a feature is used has been decided.
    is_used = np.logical_or.reduceat((average.reshape(len(H), -1) != 0).any(axis=1), bound.offsets[:-1])
    problem = replace(problem, constraints=replace(bound, forced=is_used))
    if average.ndim == 1:
        return _nearest_of_one(problem, average, H[:, 0], totals[0], price)
    own = [_nearest_of_one(problem, *one, price) for one in zip(average.T, H.T, totals, strict=True)]
    f, labels = (np.column_stack([getattr(one, name) for one in own]) for name in ("f", "labels"))
    support = np.unique(np.concatenate([one.support for one in own]))
    return replace(own[0], f=f, labels=labels, support=support)


def _nearest_of_one(problem: Problem, average: np.ndarray, H: np.ndarray, total: float, price: float) -> Prox:
    """The pieces of the average of one output; levels are cut where they are sorted, like neighbouring bins.

    A code for groups that have been searched for would be too dear here: an average has been searched for nothing.
    """
    bound, order = problem.constraints, np.arange(len(H))
    is_grouped = bound.flags("is_grouped")
    shapes = np.where(is_grouped, shape_names().index("constant"), bound.shapes)
    for j in np.flatnonzero(is_grouped):
        bins = slice(bound.offsets[j], bound.offsets[j] + bound.n_ordered[j])
        key = np.where(bound.weights[bins] > 0, average[bins], np.inf)
        order[bins] = bins.start + np.argsort(key, kind="stable")
    sums = np.repeat(np.add.reduceat(H, bound.offsets[:-1]), bound.n_bins)
    # Half of the weight goes by rows: where classes are pure there is no curvature, and yet the tables should be close.
    weights = 0.5 * bound.weights + 0.5 * np.where(sums > 0, H / np.maximum(sums, 1e-300), bound.weights)
    weights = np.where(bound.weights > 0, weights, 0.0)
    weights /= np.repeat(np.add.reduceat(weights, bound.offsets[:-1]), bound.n_bins)
    sorted_ = replace(bound, shapes=shapes, shares=bound.shares[order]).on(weights[order])
    found = sorted_.prox(average[order], 1.0 / max(total, 1e-300), price * problem.scale, n_threads=problem.n_threads)
    f, labels = np.empty_like(found.f), np.empty_like(found.labels)
    f[order], labels[order] = found.f, found.labels
    for j in found.support:
        bins = slice(bound.offsets[j], bound.offsets[j + 1])
        f[bins] -= bound.weights[bins] @ f[bins]
    return replace(found, f=f, labels=labels)
