"""Cut refinement: after a fit, jumps move from the edges of the bins to the best places that the data know.

A fit sees bins, so a jump lies at an edge. With all else held the loss is near a parabola in each row, and two constant
pieces that share a jump have their best values, and the loss at them, from sums of row gradients and curvatures up to
the jump. So one sort of a column gives the loss at every place between the two neighbouring edges. The jump moves there
with its edge: tables keep their bins, pieces and cost, and only the shares of two bins change. The tables are then
refitted, and the change is kept only if the objective falls.
Looks at: rbr.binning, rbr.design, rbr.tables, rbr.objective, rbr.moves, rbr.solver.  Seen by: rbr.estimators.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rbr.binning import Binner
from rbr.constraints import Constraints
from rbr.design import BinnedMatrix
from rbr.moves import _WITH_BOUNDARIES, Proposal
from rbr.objective import Objective, Point
from rbr.reference.binning import between, codes_of
from rbr.refit import settle_empty_levels, used_features
from rbr.solver import DESCENT, NEWTON_TO_FINISH, Problem, Solution
from rbr.tables import open_table

# A refit changes the parabolas; after so many rounds the cuts no longer move in practice.
MAX_ROUNDS = 5

# A better place must be better by more than rounding, or equal places would be told apart by it.
ROUNDING = 1e-11


@dataclass(frozen=True, eq=False)
class _State:
    """A fit between two rounds: its problem, point and pieces, the moved edges by feature, and the objective."""

    problem: Problem
    point: Point
    labels: np.ndarray
    edges: dict[int, np.ndarray]
    value: float


def refine_cuts(
    X: Any,
    binner: Binner,
    solution: Solution,
    constraints: Constraints,
    *,
    sample_weight: ArrayLike | None = None,
    tol: float = 1e-5,
) -> tuple[Binner, Solution]:
    """Move the jumps between constant pieces to the places between data values where the loss is least.

    A jump stays between the two edges next to its own. Lines, categories and bins of missing values stay as they are,
    and so do the number of bins and of pieces (monotone pieces that become equal are joined).

    Parameters
    ----------
    X : array, frame or sparse matrix of shape (n_rows, n_features)
        The training table.
    binner : Binner
        What binned it.
    solution : Solution
        Of `rbr.solve`, on ``binner.transform(X)``.
    constraints : Constraints
        Those of the solution.
    sample_weight : array of shape (n_rows,), optional
        That of the solution.
    tol : float
        Of the refits, as in `rbr.solve`.

    Returns
    -------
    Binner, Solution
        With the moved edges, and on them. The loss plus the ridge penalty is at most what it was; where no jump has a
        better place, both are returned as they came.

    Examples
    --------
    >>> import numpy as np
    >>> import rbr
    >>> from rbr.refine import refine_cuts
    >>> X = np.arange(100.0)[:, None]
    >>> y = np.where(X[:, 0] > 36, 1.0, 0.0)
    >>> binner = rbr.Binner(max_bins=4).fit(X)
    >>> constraints = rbr.Constraints(max_features=1, max_segments=2)
    >>> solution = rbr.solve(binner.transform(X), y, constraints=constraints)
    >>> binner.edges_[0]
    array([24.5, 49.5, 74.5])
    >>> refined, better = refine_cuts(X, binner, solution, constraints)
    >>> refined.edges_[0]
    array([24.5, 36.5, 74.5])
    >>> bool(better.loss < 1e-20 < solution.loss)
    True
    """
    value = solution._problem.value(solution._point, solution.labels)
    state = first = _State(solution._problem, solution._point, solution.labels, {}, value)
    columns, refused = _Columns(X, sample_weight), set()
    for _ in range(MAX_ROUNDS):
        moved = {j: e for j, e in _better_edges(state, binner, columns).items() if j not in refused}
        together = _try(state, moved, columns, constraints, tol)
        new = together or state
        if together is None and len(moved) > 1:
            for j, edges in moved.items():
                alone = _try(new, {j: edges}, columns, constraints, tol)
                new = alone or new
                if alone is None:
                    refused.add(j)
        if new is state:
            break
        state = new
    if state is first:
        return binner, solution
    binner = binner.with_edges(state.edges, X, sample_weight)
    problem, point = state.problem, state.point
    _, residual = problem.step_from(problem.screen.move_to(point), solution.step_size)
    refined = replace(
        solution,
        f=settle_empty_levels(problem.constraints, point.f),
        intercept=point.intercept,
        support=point.support,
        labels=state.labels,
        loss=point.loss,
        residual=residual,
        _problem=problem,
        _point=point,
    )
    return binner, refined


class _Columns:
    """The columns of the training table, of the rows that count, as float64; each is read when first asked for."""

    def __init__(self, X: Any, sample_weight: ArrayLike | None):
        self._table = open_table(X)
        weight = None if sample_weight is None else np.asarray(sample_weight)
        self._rows = None if weight is None or weight.all() else np.flatnonzero(weight)
        self._sorted: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def distinct(self, j: int) -> tuple[np.ndarray, np.ndarray]:
        """The distinct values of column j, ascending with NaN last, and which of them each row has."""
        if j not in self._sorted:
            values = self._table.numbers(j, j + 1, self._rows)[:, 0].astype(np.float64)
            self._sorted[j] = np.unique(values, return_inverse=True)
        return self._sorted[j]


def _better_edges(state: _State, binner: Binner, columns: _Columns) -> dict[int, np.ndarray]:
    """The edges of each feature of which a jump has a better place, the feature that promises most first."""
    objective, bound, point = state.problem.objective, state.problem.constraints, state.point
    curvature = objective.curvature(point)
    if not curvature.any():  # a loss made of straight lines: the parabolas above it
        curvature = objective.curvature(point, majorize=True)
    if curvature is None:
        return {}
    slope = -(objective.loss.residual(objective.y, point.raw).T * objective.row_weights).T
    by_row = [np.atleast_2d(a.T) for a in (slope, curvature)]
    labels, f = (a[:, None] if a.ndim == 1 else a for a in (state.labels, point.f))
    found = {}
    for j in point.support.tolist():
        if binner.is_categorical_[j] or bound.shapes[j] not in _WITH_BOUNDARIES:
            continue
        bins = slice(bound.offsets[j], bound.offsets[j] + bound.n_ordered[j])
        movable = _movable(labels[bins])
        if not len(movable):
            continue
        edges = state.edges.get(j, binner.edges_[j])
        values, inverse = columns.distinct(j)
        inverse = inverse.ravel()
        n_values = len(values) - int(np.isnan(values[-1]))
        slopes, curvatures = (
            np.stack([np.bincount(inverse, weights=a, minlength=len(values))[:n_values] for a in rows], axis=1)
            for rows in by_row
        )
        # What the parabola of a value wants of its table: curvature * target = curvature * f - slope.
        pulls = curvatures * f[bins][codes_of(values[:n_values], edges)] - slopes
        gain, edges = _moved_edges(values[:n_values], pulls, curvatures, edges, labels[bins], movable)
        if gain > 0:
            found[j] = (gain, edges)
    return {j: edges for j, (_, edges) in sorted(found.items(), key=lambda item: -item[1][0])}


def _movable(labels: np.ndarray) -> np.ndarray:
    """The edges, of ordered bins with labels by class, at which a table jumps and none has a line on either side."""
    jumps = (labels[:-1] != labels[1:]).any(axis=1)
    lines = ((labels >= 0) & (labels % 2 == 1)).any(axis=1)
    return np.flatnonzero(jumps & ~lines[:-1] & ~lines[1:])


def _moved_edges(values, pulls, curvatures, edges, labels, movable) -> tuple[float, np.ndarray]:
    """(decrease of the loss that the parabolas promise, edges), each jump moved in turn from left to right."""
    zero = np.zeros((1, pulls.shape[1]))
    pulls, curvatures = (np.concatenate([zero, np.cumsum(a, axis=0)]) for a in (pulls, curvatures))
    edges, total_gain = edges.copy(), 0.0
    # Where each bin begins, as the number of values before it; the last entry is the end.
    starts = np.concatenate([[0], np.searchsorted(values, edges, side="right"), [len(values)]])
    first_finite = np.searchsorted(values, -np.inf, side="right")
    last_finite = np.searchsorted(values, np.inf, side="left")
    for k in movable:
        # A place is a number of values before the cut: some of either bin, and finite numbers on both sides.
        places = np.arange(max(starts[k], first_finite) + 1, min(starts[k + 2], last_finite))
        here = starts[k + 1]
        if not len(places) or not starts[k] < here < starts[k + 2]:
            continue
        fits, fit_here = np.zeros(len(places)), 0.0
        for c in np.flatnonzero(labels[k] != labels[k + 1]):
            first, last = starts[_piece(labels[:, c], k).start], starts[_piece(labels[:, c], k + 1).stop]
            at = [_fit(pulls[:, c], curvatures[:, c], first, p, last) for p in (places, here)]
            fits, fit_here = fits + at[0], fit_here + at[1]
        best = int(np.argmax(fits))
        if fits[best] - fit_here > ROUNDING * abs(fit_here) and places[best] != here:
            starts[k + 1] = places[best]
            edges[k] = between(values[places[best] - 1], values[places[best]])
            total_gain += float(fits[best] - fit_here) / 2
    return total_gain, edges


def _piece(labels: np.ndarray, k: int) -> slice:
    """The bins of the piece that bin k belongs to."""
    cuts = np.concatenate([[0], np.flatnonzero(np.diff(labels)) + 1, [len(labels)]])
    piece = int(np.searchsorted(cuts, k, side="right"))
    return slice(cuts[piece - 1], cuts[piece])


def _fit(pulls, curvatures, first, place, last):
    """How much two constants, below and above a place, explain: sum of pull^2 / curvature over the two."""
    total = 0.0
    for start, stop in ((first, place), (place, last)):
        pull, curvature = pulls[stop] - pulls[start], curvatures[stop] - curvatures[start]
        total = total + np.divide(pull**2, curvature, out=np.zeros_like(pull), where=curvature > 0)
    return total


def _try(
    state: _State, moved: dict[int, np.ndarray], columns: _Columns, constraints: Constraints, tol: float
) -> _State | None:
    """The fit after some edges have moved and the tables were refitted, or None if the objective does not fall."""
    if not moved:
        return None
    objective = _rebinned(state.problem.objective, moved, columns)
    design = objective.design
    bound = constraints.bind(design.offsets, design.weights, missing=design.missing, positions=design.positions)
    problem = replace(state.problem, objective=objective, constraints=bound)
    f = state.point.f.copy()
    for j in moved:
        table = slice(design.offsets[j], design.offsets[j + 1])
        f[table] -= design.weights[table] @ f[table]
    point, labels, value = problem.improve(
        Proposal((), f, used_features(bound, state.labels), state.labels),
        state.point.intercept,
        step=problem.natural_step,
        n_newton=NEWTON_TO_FINISH,
        tol=0.1 * tol,
    )
    if value >= state.value - DESCENT * abs(state.value):
        return None
    return _State(problem, point, labels, {**state.edges, **moved}, value)


def _rebinned(objective: Objective, moved: dict[int, np.ndarray], columns: _Columns) -> Objective:
    """The same rows with some features in moved bins; the shares of the bins are counted anew."""
    design = objective.design
    codes = design.codes.copy()
    for j, edges in moved.items():
        values, inverse = columns.distinct(j)
        codes[j] = codes_of(values, edges).astype(codes.dtype)[inverse.ravel()]
    design = BinnedMatrix(
        codes,
        design.offsets,
        missing=design.missing,
        positions=design.positions,
        sample_weight=objective.row_weights,
    ).with_weights(design.weights_kind)
    return Objective(
        design,
        objective.y,
        objective.loss,
        row_weights=objective.row_weights,
        n_total=objective.n_total,
        offset=objective.offset,
        n_threads=objective.n_threads,
    )
