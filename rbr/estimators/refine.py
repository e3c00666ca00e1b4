"""Jumps inside bins: the last stage of a fit, after the solver and before the model.

A solver sees only bins, so its jumps lie at edges. But a step of the data lies inside a bin, whose mean is then between
the two levels, and with many rows that bin is worth a piece of its own. The objective, which knows the values within
bins, finds the best places of jumps, and pairs of jumps that one jump in a better place can replace. A jump takes its
edge along, so tables keep their number of bins. The tables are then refitted, and a change is kept only if the
objective falls: loss + ridge + jump cost. Pieces become fewer or stay, never more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from rbr.constraints import BoundConstraints, Constraints
from rbr.data.binning import Binner
from rbr.objective.jumps import BetterJumps, Jumps
from rbr.objective.protocol import Point
from rbr.solvers import Solution
from rbr.solvers.problem import Problem
from rbr.solvers.refit import keep_monotone, settle_empty_levels, used_features


@dataclass(frozen=True, eq=False)
class _State:
    """A fit between two rounds: its problem, point and pieces, the moved edges by table, and the objective."""

    problem: Problem
    point: Point
    labels: np.ndarray
    edges: dict[int, np.ndarray]
    value: float


def refine_cuts(
    binner: Binner,
    solution: Solution,
    constraints: Constraints,
    *,
    tol: float = 1e-5,
    keeps_levels: bool = False,
    keep_edges: Sequence[int] = (),
    price: float = 1.0,
    most_pieces: float = np.inf,
) -> tuple[Binner, Solution]:
    """Let jumps between constant pieces lie inside bins, where the objective is least.

    Two neighbouring jumps become one wherever the loss rises by less than the piece between them costs, and jumps move
    to the place between data values where the loss is least. Jumps beside lines, categories and bins of missing values
    stay as they are, and so does the number of bins.

    Parameters
    ----------
    binner : Binner
        The one that binned the training table.
    solution : Solution
        From `rbr.solve`. If its objective was made without X, the training table, nothing changes.
    constraints : Constraints
        Those of the solution.
    tol : float
        Tolerance of the refits, as in `rbr.solve`.
    keeps_levels : bool
        Join jumps without moving others and without refits, as averages of several fits need it.
    keep_edges : sequence of int
        Columns whose edges must not move.
    price : float
        What a piece is worth when jumps are joined, as a part of its jump cost.
    most_pieces : int
        Tables of more pieces keep their jumps.

    Returns
    -------
    Binner, Solution
        The binner with the moved edges, and the solution on them. Its objective is at most what it was; if no jump has
        a better place, both are returned unchanged.

    Examples
    --------
    >>> import numpy as np
    >>> import rbr
    >>> from rbr.estimators.refine import refine_cuts
    >>> X = np.arange(100.0)[:, None]
    >>> y = np.where(X[:, 0] > 39, 1.0, 0.0)
    >>> binner = rbr.Binner(max_bins=4).fit(X)
    >>> constraints = rbr.Constraints(max_features=1, max_segments=3)
    >>> objective = rbr.make_objective(binner.transform(X), y, X=X)
    >>> solution = rbr.solve(objective=objective, constraints=constraints)
    >>> binner.edges_[0], solution.labels
    (array([24.5, 49.5, 74.5]), array([0, 2, 4, 4], dtype=int32))
    >>> refined, better = refine_cuts(binner, solution, constraints)
    >>> refined.edges_[0], better.labels
    (array([24.5, 39.5, 74.5]), array([0, 0, 2, 2], dtype=int32))
    >>> bool(better.loss < 1e-20 < solution.loss)
    True
    """
    if not solution.problem.objective.has_values:
        return binner, solution
    value = solution.problem.value(solution.point, solution.labels)
    state = first = _State(solution.problem, solution.point, solution.labels, {}, value)
    tables = [j for j in solution.support.tolist() if _may_move(state, binner, j, keep_edges)]
    tables = [j for j in tables if _n_pieces(state, j) <= most_pieces]
    for _ in range(solution.problem.options.refinement_rounds):
        found = _better_jumps(state, binner, tables, keeps_levels, price)
        state, tables = _changed(state, binner, found, constraints, tol, keeps_levels)
        if not tables:
            break
    if state is first:
        return binner, solution
    return _moved_binner(binner, state), _refined(solution, state)


def _may_move(state: _State, binner: Binner, table: int, keep_edges: Sequence[int]) -> bool:
    """Whether a table has jumps and edges that may move."""
    column = state.problem.objective.tables.columns_of(table)[0]
    has_jumps = state.problem.constraints.spec(table).has_jumps
    return has_jumps and not binner.is_categorical_[column] and column not in keep_edges


def _n_pieces(state: _State, table: int) -> int:
    """The pieces of a table's ordered bins, of the output that has most."""
    bound = state.problem.constraints
    own = state.labels[bound.offsets[table] : bound.offsets[table] + bound.n_ordered[table]]
    return max(len(np.unique(labels[labels >= 0])) for labels in own.reshape(len(own), -1).T)


def _edges(state: _State, binner: Binner, table: int) -> np.ndarray:
    column = state.problem.objective.tables.columns_of(table)[0]
    return state.edges.get(table, binner.edges_[column])


def _better_jumps(
    state: _State, binner: Binner, tables: list[int], keeps_levels: bool, price: float
) -> dict[int, BetterJumps]:
    """Better jumps for each table that has them, the table with the largest promised gain first."""
    problem, bound = state.problem, state.problem.constraints
    unit, _ = bound.prices(1.0, problem.scale)
    labels = state.labels.reshape(len(state.labels), -1)
    jumps = {}
    for j in tables:
        n_ordered = int(bound.n_ordered[j])
        own, spec = labels[bound.offsets[j] : bound.offsets[j] + n_ordered], bound.spec(j)
        if (own[:-1] != own[1:]).any():
            of_a_piece = unit * (spec.code_length(3, 0, n_ordered) - spec.code_length(2, 0, n_ordered))
            jumps[j] = Jumps(_edges(state, binner, j), own, price * of_a_piece, keeps_levels)
    found = problem.objective.better_jumps(state.point, jumps)
    # A refit of all tables may double the gain.
    promising = [j for j, better in found.items() if 2 * better.promise >= problem.least_gain(state.value)]
    return {j: found[j] for j in sorted(promising, key=lambda j: -found[j].promise)}


def _changed(
    state: _State,
    binner: Binner,
    found: dict[int, BetterJumps],
    constraints: Constraints,
    tol: float,
    keeps_levels: bool,
) -> tuple[_State, list[int]]:
    """The fit after the changes that lower the objective, all at once or else one by one, and the changed tables."""
    together = _try(state, binner, found, constraints, tol, keeps_levels)
    if together is not None:
        return together, list(found)
    changed = []
    if len(found) > 1 and not state.problem.objective.has_many_rows:
        for j, better in found.items():
            alone = _try(state, binner, {j: better}, constraints, tol, keeps_levels)
            if alone is not None:
                state = alone
                changed.append(j)
    return state, changed


def _try(
    state: _State,
    binner: Binner,
    found: dict[int, BetterJumps],
    constraints: Constraints,
    tol: float,
    keeps_levels: bool,
) -> _State | None:
    """The fit after some jumps have changed and the tables were refitted, or None if the objective does not fall."""
    if not found:
        return None
    edges = {j: better.edges for j, better in found.items()}
    moved = {j: (_edges(state, binner, j), own) for j, own in edges.items()}
    # With many rows the columns that are not used are not read any more.
    read = state.point.support if state.problem.objective.has_many_rows else None
    objective = state.problem.objective.rebin(moved, read)
    bound = constraints.bind_to(objective.tables, objective.n_total)
    problem = replace(state.problem, objective=objective, constraints=bound)
    f, labels = state.point.f.copy(), state.labels.copy()
    for j, better in found.items():
        _put(problem, j, better, f, labels)
    f, labels = keep_monotone(bound, f, labels, state.point.support)
    if not all(_has_enough_rows(bound, labels, j) for j in found):
        return None
    support = used_features(bound, labels)
    point = objective.point(f, support, state.point.intercept)
    value = problem.value(point, labels)
    target = state.value - problem.options.descent * abs(state.value)
    # With many rows the constants that the parabolas give are as good as a refit, which would cost passes.
    if not keeps_levels and not (objective.has_many_rows and value < target):
        # The last digits are not needed: an estimator's fit ends with a refit of its own.
        enough = max(problem.least_gain(state.value), 0.1 * problem.scale)
        until = {"step": problem.natural_step, "tol": 0.1 * tol, "enough": enough}
        n_newton, before = problem.options.newton_per_move, point
        point, labels, value = problem.refitted(lambda: before, support, labels, n_newton=n_newton, **until)
    if value >= target:
        return None
    return _State(problem, point, labels, {**state.edges, **edges}, value)


def _has_enough_rows(bound: BoundConstraints, labels: np.ndarray, j: int) -> bool:
    """Whether every piece of a table holds its least share of the rows."""
    bins = slice(bound.offsets[j], bound.offsets[j] + bound.n_ordered[j])
    by_output = labels[bins].reshape(bound.n_ordered[j], -1).T
    shares = [np.bincount(own[own >= 0], bound.shares[bins][own >= 0]) for own in by_output]
    # A table of one piece may hold less.
    return all(
        np.count_nonzero(own) <= 1 or (own[own > 0] >= bound.least_shares[j] * (1 - 1e-9)).all() for own in shares
    )


def _put(problem: Problem, j: int, better: BetterJumps, f: np.ndarray, labels: np.ndarray) -> None:
    """Write the pieces of a table and their values, of mean zero, into all tables."""
    tables, n_ordered = problem.objective.tables, len(better.labels)
    table = slice(tables.offsets[j], tables.offsets[j + 1])
    own_f, own_labels = (a[table].reshape(table.stop - table.start, -1) for a in (f, labels))
    own_f[:n_ordered], own_labels[:n_ordered] = better.values, better.labels
    if tables.missing[j]:  # the bin of missing values is a piece of its own, numbered last
        last = better.labels.max(axis=0)
        own_labels[n_ordered] = np.where(own_labels[n_ordered] >= 0, last - last % 2 + 2, -1)
    own_f -= tables.weights[table] @ own_f


def _moved_binner(binner: Binner, state: _State) -> Binner:
    """The binner with the moved edges."""
    tables, edges, positions = state.problem.objective.tables, {}, {}
    means = cast(np.ndarray, tables.positions)  # a design from a binner always has them
    for j, own in state.edges.items():
        column = tables.columns_of(j)[0]
        edges[column], positions[column] = own, means[tables.offsets[j] :][: len(own) + 1]
    return binner.with_edges(edges, positions)


def _refined(solution: Solution, state: _State) -> Solution:
    """The solution on the moved edges."""
    problem, point = state.problem, state.point
    # Columns that are not used gained nothing before, and the jumps of others hardly change that: they are not read.
    unused = np.setdiff1d(np.arange(problem.constraints.n_features), point.support, assume_unique=True)
    gradient = problem.screen.move_to(point)
    _, residual = problem.step_from(gradient, solution.step_size, problem.constraints.excluding(unused))
    return replace(
        solution,
        f=settle_empty_levels(problem.constraints, point.f),
        intercept=point.intercept,
        support=point.support,
        labels=state.labels,
        loss=point.loss,
        residual=residual,
        problem=problem,
        point=point,
    )
