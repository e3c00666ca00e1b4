"""Lines in x: what the search found over bins, as lines in the values of a column.

A search sees bins. Its lines run through the positions of bins, and all rows of a bin get one value. `draw_lines` moves
every bin of a line to the mean of its rows, so that a table whose bins have mean zero has mean zero over the rows, and
gives the bins the slope of the line. Beyond the range of the training rows a line keeps its value at the end. Two bins
make no line: they have two values, and say nothing of what lies between and beyond (`short_lines_as_steps`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rbr.constraints import Constraints
    from rbr.objective.protocol import Objective
    from rbr.solvers.solution import Solution


@dataclass(frozen=True, eq=False)
class Lines:
    """Where the bins of a solution stand, and how it rises within them.

    slopes : of the shape of f, in units of x; 0 outside of lines
    positions, spreads : (n_coef,) the mean and standard deviation of x in each bin
    bounds : {table: (least x, largest x)} of the tables with slopes
    variance : of what the slopes add within bins, over all rows and outputs
    distances : of the rows from the positions, where they matter and have been read
    """

    slopes: np.ndarray
    positions: np.ndarray
    spreads: np.ndarray
    bounds: dict[int, tuple[float, float]]
    variance: float = 0.0
    distances: Any = None

    @cached_property
    def tables(self) -> np.ndarray:
        """The tables with slopes, ascending."""
        return np.array(sorted(self.bounds), dtype=np.int64)


def short_lines_as_steps(solution: Solution, constraints: Constraints) -> Solution:
    """The solution in which a line over two bins is told as what it is, two constant pieces, where the limits allow it.

    constraints : what the result keeps to; its limits may be wider than those of the solution's own problem
    """
    objective = solution.problem.objective
    bound = constraints.bind_to(objective.tables, objective.n_total)
    labels = solution.labels.reshape(len(solution.labels), -1).copy()
    may_be_flat = bound.flags("has_lines") & ~bound.flags("is_never_flat")
    for j in solution.support[may_be_flat[solution.support]].tolist():
        for own in _ordered(bound, labels, j).T:
            begins = _ends_of_short_lines(own, _live(bound, j), _ordered(bound, bound.shares, j), bound.least_shares[j])
            begins = begins[: max(0, bound.limits[j] - len(np.unique(own)))]
            if len(begins):
                is_line = (own % 2 == 1) & ~np.isin(own, own[begins])
                jumps = np.diff(own, prepend=own[0]) != 0
                jumps[begins] = True
                own[:] = 2 * np.cumsum(jumps) + is_line
        if bound.missing[j]:
            last = bound.offsets[j + 1] - 1
            has_piece = labels[last] >= 0
            labels[last, has_piece] = 2 * (_ordered(bound, labels, j).max(axis=0)[has_piece] // 2 + 1)
    return replace(solution, labels=labels.reshape(solution.labels.shape))


def _ends_of_short_lines(labels: np.ndarray, live: np.ndarray, shares: np.ndarray, least: float) -> np.ndarray:
    """The second bin with rows of each line that has two such bins, both of which may be a piece."""
    lines, n_bins = np.unique(labels[live & (labels >= 0) & (labels % 2 == 1)], return_counts=True)
    pairs = [np.flatnonzero(live & (labels == line)) for line in lines[n_bins == 2]]
    return np.array([second for first, second in pairs if min(shares[[first, second]]) >= least], dtype=np.int64)


def draw_lines(solution: Solution, is_numeric: np.ndarray) -> Solution:
    """The solution with its lines in x, where they were drawn over values; unchanged if it has none.

    is_numeric : bool by table, False for tables of categories
    """
    found = _lines_of(solution, is_numeric)
    return solution if found is None else _drawn(solution, *found)


def _drawn(solution: Solution, lines: Lines, f: np.ndarray) -> Solution:
    """The solution on its lines, unless they raise the loss."""
    drawn = at_lines(solution, lines, f)
    return drawn if drawn.loss <= solution.loss + _slack(solution) else _harmless(solution, lines, f)


def _lines_of(solution: Solution, is_numeric: np.ndarray) -> tuple[Lines, np.ndarray] | None:
    """The lines in x of a solution, and the tables on them; None if it has none."""
    objective, bound = solution.problem.objective, solution.problem.constraints
    labels = solution.labels.reshape(len(solution.labels), -1)
    tables = [
        j
        for j in solution.support.tolist()
        if bound.position == "value" and is_numeric[j] and bound.spec(j).has_lines and _on_lines(bound, labels, j).any()
    ]
    if not tables:
        return None
    positions = np.array(objective.tables.positions, dtype=np.float64)
    bounds = {j: tuple(_ordered(bound, positions, j)[[0, -1]].tolist()) for j in tables}
    means, spreads = positions, np.zeros(len(positions))
    if objective.has_values:
        means, spreads, ranges = objective.bin_moments(np.array(tables))
        bounds = dict(zip(tables, map(tuple, ranges.tolist()), strict=True))
    f, slopes, moved = solution.f.copy(), np.zeros_like(solution.f), positions.copy()
    for j in tables:
        own, new = _ordered(bound, positions, j), _ordered(bound, moved, j)
        exact = _ordered(bound, means, j)
        new[:] = np.maximum.accumulate(np.where(np.isnan(exact), own, exact))
        values, rises = (_ordered(bound, a.reshape(len(a), -1), j) for a in (f, slopes))
        _draw(values, rises, own, new, _ordered(bound, labels, j), _live(bound, j))
        table = slice(bound.offsets[j], bound.offsets[j + 1])
        f[table] -= bound.weights[table] @ f[table]
    rises = (slopes.reshape(len(slopes), -1).T * spreads) ** 2
    return Lines(slopes, moved, spreads, bounds, float((rises @ objective.tables.shares).sum())), f


def _slack(solution: Solution) -> float:
    """How far lines may raise the loss over that of the bins: a hundredth of the noise, or of what is explained."""
    problem, objective = solution.problem, solution.problem.objective
    of_noise = problem.options.least_gain_within_bins * problem.scale * objective.n_total
    return max(of_noise, 0.01 * (objective.constant_loss - solution.loss))


def _harmless(solution: Solution, lines: Lines, drawn: np.ndarray) -> Solution:
    """The solution with those lines only that do not raise the loss, table by table; the others stay staircases.

    With a log link the line through the mean of a tail bin may be far too steep for the largest values in it.
    """
    tables, slack, kept = solution.problem.objective.tables, _slack(solution), solution
    for j in lines.tables.tolist():
        bins = slice(tables.offsets[j], tables.offsets[j + 1])
        before = kept.lines or replace(lines, slopes=np.zeros_like(lines.slopes), bounds={}, variance=0.0)
        slopes, f = before.slopes.copy(), kept.f.copy()
        slopes[bins], f[bins] = lines.slopes[bins], drawn[bins]
        bounds = {**before.bounds, j: lines.bounds[j]}
        trial = at_lines(kept, replace(lines, slopes=slopes, bounds=bounds, distances=None), f)
        if trial.loss <= kept.loss + slack:
            kept = trial
    return kept


def look_within_bins(solution: Solution, is_numeric: np.ndarray, solve_again: Callable[..., Solution]) -> Solution:
    """The solution, found again with what its lines do within bins among the offsets, if that matters.

    Where x varies much within a bin, as in the tail of a skewed column, a line explains rows better than bins can, and
    what bins leave over looks like signal to other features. `solve_again` takes an objective and a warm start. The
    solution is on the objective that was used last.
    """
    objective = solution.problem.objective
    if not objective.has_values or solution.status == "callback":
        return solution
    found = _lines_of(solution, is_numeric)
    if found is None or not gain_within_bins(solution, found[0]):
        return solution
    drawn = _drawn(solution, *found)
    if drawn.lines is None or drawn.loss >= solution.loss:
        return solution
    again = solve_again(objective=objective.on_lines(drawn.lines.slopes, drawn.lines.distances), warm_start=drawn.f)
    history = [*solution.history, *(replace(row, index=row.index + len(solution.history)) for row in again.history)]
    loss_path = np.concatenate([solution.loss_path, again.loss_path])
    return replace(again, history=history, loss_path=loss_path, n_iter=len(history) - 1)


def gain_within_bins(solution: Solution, lines: Lines) -> bool:
    """Whether lines explain so much within bins that it changes what other features see."""
    problem = solution.problem
    promised = 0.5 * problem.objective.constant_curvature * lines.variance
    return promised > problem.options.least_gain_within_bins * problem.scale * problem.objective.n_total


def matter_within_bins(solution: Solution, lines: Lines) -> bool:
    """Whether the rows' own x is worth reading: always with few rows, otherwise if lines gain within bins."""
    objective = solution.problem.objective
    return objective.has_values and (not objective.has_many_rows or gain_within_bins(solution, lines))


def on_objective(solution: Solution, objective: Objective) -> Solution:
    """The same tables as a solution on another objective over the same rows."""
    if solution.problem.objective is objective:
        return solution
    point = objective.point(solution.f, solution.support, solution.intercept)
    problem = replace(solution.problem, objective=objective)
    return replace(solution, problem=problem, point=point, loss=point.loss, intercept=point.intercept)


def _ordered(bound: Any, by_bin: np.ndarray, j: int) -> np.ndarray:
    return by_bin[bound.offsets[j] : bound.offsets[j] + bound.n_ordered[j]]


def _on_lines(bound: Any, labels: np.ndarray, j: int) -> np.ndarray:
    """Which ordered bins of a table belong to a line, by output."""
    own = _ordered(bound, labels, j)
    return (own >= 0) & (own % 2 == 1)


def _live(bound: Any, j: int) -> np.ndarray:
    return _ordered(bound, bound.weights, j) > 0


def _draw(f, slopes, positions, moved, labels, live) -> None:
    """Write the slopes of a table's lines, and the values at the moved positions; arrays by ordered bin and output."""
    for c in range(f.shape[1]):
        for piece in np.unique(labels[(labels[:, c] >= 0) & (labels[:, c] % 2 == 1), c]):
            bins = np.flatnonzero(labels[:, c] == piece)
            with_rows = bins[live[bins]]
            if len(with_rows) < 3:
                continue
            ends = with_rows[[0, -1]]
            rise, run = np.diff(f[ends, c])[0], np.diff(positions[ends])[0]
            if run > 0 and np.isfinite(rise / run):
                slopes[bins, c] = rise / run
                f[bins, c] = f[ends[0], c] + rise / run * (moved[bins] - positions[ends[0]])


def put_on_lines(f: np.ndarray, solution: Solution, lines: Lines) -> None:
    """Move the values of each line's bins onto it, from which refits leave them a few roundings away."""
    tables = solution.problem.objective.tables
    columns, slopes, labels = (a.reshape(len(a), -1) for a in (f, lines.slopes, solution.labels))
    for j in lines.tables:
        bins = np.arange(tables.offsets[j], tables.offsets[j + 1])
        for c in range(columns.shape[1]):
            for piece in np.unique(labels[bins[slopes[bins, c] != 0], c]):
                own = bins[labels[bins, c] == piece]
                weights = tables.shares[own] + 1e-300
                x, value = (np.average(a[own], weights=weights) for a in (lines.positions, columns[:, c]))
                columns[own, c] = value + slopes[own[0], c] * (lines.positions[own] - x)


def at_lines(solution: Solution, lines: Lines, f: np.ndarray) -> Solution:
    """The solution with other values, on lines.

    With many rows in narrow bins its loss and intercept are those of the bins, since reading x again would take a good
    part of the time of a fit.
    """
    objective = solution.problem.objective
    if lines.distances is None and matter_within_bins(solution, lines):
        lines = replace(lines, distances=objective.distances(lines.tables, lines.positions))
    if lines.distances is None:
        point = objective.point(f, solution.support, solution.intercept)
    else:
        point = objective.line_point(f, solution.support, lines.slopes, lines.distances, solution.intercept)
    return replace(solution, f=f, intercept=point.intercept, loss=point.loss, point=point, lines=lines)
