"""Cut refinement: after a fit, jumps move from the edges of the bins to the best places between data values.

A fit sees only bins, so a jump lies at an edge. The objective, which knows the values within bins, finds the best place
between the two neighbouring edges. The jump moves there with its edge: tables keep their bins, pieces and cost, and
only the shares of two bins change. The tables are then refitted, and the change is kept only if the objective falls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from rbr.constraints import Constraints
from rbr.data.binning import Binner
from rbr.objective.protocol import Point
from rbr.solvers import Solution
from rbr.solvers.problem import Problem
from rbr.solvers.proposal import Proposal
from rbr.solvers.refit import settle_empty_levels, used_features


@dataclass(frozen=True, eq=False)
class _State:
    """A fit between two rounds: its problem, point and pieces, the moved edges by feature, and the objective."""

    problem: Problem
    point: Point
    labels: np.ndarray
    edges: dict[int, np.ndarray]
    value: float


def refine_cuts(
    binner: Binner, solution: Solution, constraints: Constraints, *, tol: float = 1e-5
) -> tuple[Binner, Solution]:
    """Move the jumps between constant pieces to the places between data values where the loss is least.

    A jump stays between the two edges next to its own. Lines, categories and bins of missing values stay as they are,
    and so do the number of bins and of pieces (monotone pieces that become equal are joined).

    Parameters
    ----------
    binner : Binner
        The one that binned the training table.
    solution : Solution
        From `rbr.solve`, with an objective that was made with X, the training table.
    constraints : Constraints
        Those of the solution.
    tol : float
        Tolerance of the refits, as in `rbr.solve`.

    Returns
    -------
    Binner, Solution
        The binner with the moved edges, and the solution on them. The loss plus the ridge penalty is at most what it
        was; if no jump has a better place, both are returned unchanged.

    Examples
    --------
    >>> import numpy as np
    >>> import rbr
    >>> from rbr.estimators.refine import refine_cuts
    >>> X = np.arange(100.0)[:, None]
    >>> y = np.where(X[:, 0] > 36, 1.0, 0.0)
    >>> binner = rbr.Binner(max_bins=4).fit(X)
    >>> constraints = rbr.Constraints(max_features=1, max_segments=2)
    >>> objective = rbr.make_objective(binner.transform(X), y, X=X)
    >>> solution = rbr.solve(objective=objective, constraints=constraints)
    >>> binner.edges_[0]
    array([24.5, 49.5, 74.5])
    >>> refined, better = refine_cuts(binner, solution, constraints)
    >>> refined.edges_[0]
    array([24.5, 36.5, 74.5])
    >>> bool(better.loss < 1e-20 < solution.loss)
    True
    """
    value = solution.problem.value(solution.point, solution.labels)
    state = first = _State(solution.problem, solution.point, solution.labels, {}, value)
    refused: set[int] = set()
    for _ in range(solution.problem.options.refinement_rounds):
        moved = {j: e for j, e in _better_edges(state, binner).items() if j not in refused}
        together = _try(state, moved, constraints, tol)
        new = together or state
        if together is None and len(moved) > 1:
            for j, edges in moved.items():
                alone = _try(new, {j: edges}, constraints, tol)
                new = alone or new
                if alone is None:
                    refused.add(j)
        if new is state:
            break
        state = new
    if state is first:
        return binner, solution
    return _moved_binner(binner, state), _refined(solution, state)


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
    _, residual = problem.step_from(problem.screen.move_to(point), solution.step_size)
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


def _better_edges(state: _State, binner: Binner) -> dict[int, np.ndarray]:
    """New edges for each table in which a jump has a better place; the table with the largest promised gain first."""
    objective, bound = state.problem.objective, state.problem.constraints
    labels = state.labels[:, None] if state.labels.ndim == 1 else state.labels
    cuts = {}
    for j in state.point.support.tolist():
        column = objective.tables.columns_of(j)[0]
        if binner.is_categorical_[column] or not bound.spec(j).has_jumps:
            continue
        own = labels[bound.offsets[j] : bound.offsets[j] + bound.n_ordered[j]]
        movable = _movable(own)
        if len(movable):
            cuts[j] = state.edges.get(j, binner.edges_[column]), own, movable
    found = objective.better_edges(state.point, cuts, bound.least_shares)
    return {j: edges for j, (_, edges) in sorted(found.items(), key=lambda item: -item[1][0])}


def _movable(labels: np.ndarray) -> np.ndarray:
    """The edges at which some class jumps and no class has a line on either side, given labels[ordered bin, class]."""
    jumps = (labels[:-1] != labels[1:]).any(axis=1)
    lines = ((labels >= 0) & (labels % 2 == 1)).any(axis=1)
    return np.flatnonzero(jumps & ~lines[:-1] & ~lines[1:])


def _try(state: _State, moved: dict[int, np.ndarray], constraints: Constraints, tol: float) -> _State | None:
    """The fit after some edges have moved and the tables were refitted, or None if the objective does not fall."""
    if not moved:
        return None
    objective = state.problem.objective.rebin(moved)
    bound, tables = constraints.bind_to(objective.tables, objective.n_total), objective.tables
    problem = replace(state.problem, objective=objective, constraints=bound)
    f = state.point.f.copy()
    for j in moved:
        table = slice(tables.offsets[j], tables.offsets[j + 1])
        f[table] -= tables.weights[table] @ f[table]
    point, labels, value = problem.improve(
        Proposal((), f, used_features(bound, state.labels), state.labels),
        state.point.intercept,
        step=problem.natural_step,
        n_newton=problem.options.newton_to_finish,
        tol=0.1 * tol,
    )
    if value >= state.value - problem.options.descent * abs(state.value):
        return None
    return _State(problem, point, labels, {**state.edges, **moved}, value)
