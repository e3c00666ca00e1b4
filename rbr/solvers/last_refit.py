"""The last refit: values and slopes with the pieces held, on the rows' own x, with a prior on pieces of few rows.

A ridge on the norm of a table shrinks all bins alike and cannot tame a piece of five rows. Here a piece of m rows has a
prior worth c rows, which shrinks its distance from the table's mean by about m / (m + c). Inside the proximal step such
a prior would break the decomposition of the projection, so it comes last, when features and pieces are settled. Where
several tables explain the same rows, the prior also chooses the least of all equally good answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from rbr.objective.protocol import EXACT, Accuracy, Groups, Point
from rbr.shapes import ShapeSpec
from rbr.shapes.bases import rank_in_run
from rbr.solvers.lines import matter_within_bins, put_on_lines

if TYPE_CHECKING:
    from rbr.solvers.solution import Solution

# A refit stops when a step promises less than this part of a unit of log-likelihood.
ENOUGH = 0.2
MAX_STEPS = 30
MAX_HALVINGS = 6
# If all pieces have more than this many times the prior's rows, shrinking them changes nothing that matters.
MANY_TIMES = 100
# A prior of this many rows decides between answers that are equally good.
LEAST_PRIOR = 1e-6


def last_refit(solution: Solution, prior_rows: float) -> Solution:
    """The solution with its values and slopes fitted to the rows' own x, if that lowers the objective.

    Features and pieces are held, and so are tables that are monotone, free or made of frequencies. To the objective
    belongs a prior worth `prior_rows` rows in each piece.
    """
    objective = solution.problem.objective
    on_values = solution.lines is not None and matter_within_bins(solution, solution.lines)
    per_row = _curvature_of_a_row(solution)
    outputs = [_Output(solution, c, prior_rows, per_row[c], on_values) for c in range(objective.n_outputs)]
    outputs = [output for output in outputs if 0 < output.pieces.n_unknowns <= objective.options.max_dense_unknowns]
    has_small_pieces = any(
        output.pieces.share.min() * objective.n_total < MANY_TIMES * prior_rows for output in outputs
    )
    if not outputs or not (on_values or has_small_pieces):
        return solution
    refit = _Refit(solution, outputs, on_values)
    state = refit.start()
    for _ in range(MAX_STEPS):
        moved = refit.step(state)
        if moved is None:
            break
        state = moved
    return solution if state.point is solution.point else refit.solution_at(state)


def _curvature_of_a_row(solution: Solution) -> np.ndarray:
    """The mean curvature of the rows at the solution, by output: what a row of the prior is worth."""
    objective = solution.problem.objective
    _, total = objective.curvature_sums(solution.point, np.zeros(0, dtype=np.int64))
    return np.maximum(np.atleast_1d(total), 1e-6 * objective.constant_curvature)


class _Pieces:
    """The unknowns of one output: the value of each piece at its anchor, followed by the slope if it is a line.

    tables : those that are refitted
    bins : their entries of f
    group : the piece of each of them, n_pieces where it belongs to none; `first` says where those of a table begin
    share : of the rows, by piece
    value_of, slope_of : the unknowns of each bin's piece, n_unknowns where it has none
    away, rise : what a unit of the second unknown adds to each bin, and to its slope in x
    """

    def __init__(self, solution: Solution, output: int):
        bound, tables = solution.problem.constraints, solution.problem.objective.tables
        labels = solution.labels.reshape(len(solution.labels), -1)[:, output]
        chosen = [j for j in solution.support.tolist() if _can_be_refitted(bound.spec(j))]
        self.tables = np.array(chosen, dtype=np.int64)
        self.bins = tables.bins_of(self.tables)
        self.sizes = tables.n_bins[self.tables]
        # Pieces are numbered through all tables: keys that sort by table, then by label.
        own, table = labels[self.bins].astype(np.int64), np.repeat(np.arange(len(chosen)), self.sizes)
        keys = table * (own.max(initial=0) + 1) + own
        found, group = np.unique(keys[own >= 0], return_inverse=True)
        self.group = np.full(len(own), len(found))
        self.group[own >= 0] = group
        table_of_piece = np.zeros(len(found), dtype=np.int64)
        table_of_piece[group] = table[own >= 0]
        self.first = np.searchsorted(table_of_piece, np.arange(len(chosen) + 1))
        shares = tables.shares[self.bins]
        self.share = np.bincount(self.group, shares, minlength=len(found) + 1)[: len(found)]
        self.weights = shares + 1e-300  # a piece without rows has a mean, too
        self._span(own % 2 == 1, *(a[self.bins] for a in _coordinates(solution, output)))

    def _span(self, on_line: np.ndarray, x: np.ndarray, slope: np.ndarray) -> None:
        """Find the spread of each line, and what each unknown adds, given coordinates and their slopes in x."""
        x = np.where(on_line, x, 0.0)
        away = np.where(on_line, x - np.append(self.means(x), 0.0)[self.group], 0.0)
        spread = np.sqrt(self.means(away**2))
        self.is_line = spread > 0
        self.columns = np.cumsum(1 + self.is_line) - 1 - self.is_line  # where the unknowns of a piece begin
        self.n_unknowns = len(self.share) + int(self.is_line.sum())
        self.value_of = np.append(self.columns, self.n_unknowns)[self.group]
        on_line = np.append(self.is_line, False)[self.group]
        self.slope_of = np.where(on_line, self.value_of + 1, self.n_unknowns)
        # A slope is measured in units of the spread, so that all unknowns are of a similar size.
        unit = np.append(np.where(self.is_line, spread, 1.0), 1.0)[self.group]
        self.away, self.rise = np.where(on_line, away / unit, 0.0), np.where(on_line, slope / unit, 0.0)

    def added_by(self, unknowns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What unknowns add to the bins, and to their slopes in x."""
        unknowns = np.append(unknowns, 0.0)
        slopes = unknowns[self.slope_of]
        return unknowns[self.value_of] + self.away * slopes, self.rise * slopes

    def sums(self, by_value: np.ndarray, by_slope: np.ndarray) -> np.ndarray:
        """For each unknown the sum over its bins, given numbers by bin for values and for slopes."""
        n = self.n_unknowns + 1
        return (np.bincount(self.value_of, by_value, n) + np.bincount(self.slope_of, by_slope, n))[:-1]

    def by_group(self, group: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """(n_groups, n_unknowns) the weighted sums over groups of bins of what a unit of each unknown adds to them."""
        sums = np.zeros((int(group.max(initial=-1)) + 1, self.n_unknowns + 1))
        np.add.at(sums, (group, self.value_of), weights)
        np.add.at(sums, (group, self.slope_of), weights * self.away)
        return sums[:, :-1]

    def squares(self, weights: np.ndarray) -> np.ndarray:
        """The matrix of the weighted sum of the squares of all bins."""
        sums = np.zeros((self.n_unknowns + 1, self.n_unknowns + 1))
        np.add.at(sums, (self.value_of, self.value_of), weights)
        np.add.at(sums, (self.slope_of, self.slope_of), weights * self.away**2)
        np.add.at(sums, (self.value_of, self.slope_of), weights * self.away)
        np.add.at(sums, (self.slope_of, self.value_of), weights * self.away)
        return sums[:-1, :-1]

    def means(self, by_bin: np.ndarray) -> np.ndarray:
        """The mean over the rows of each piece."""
        n = len(self.share)
        sums, weights = (np.bincount(self.group, a, minlength=n + 1)[:n] for a in (self.weights * by_bin, self.weights))
        return sums / weights

    def unknowns_of(self, by_bin: np.ndarray) -> np.ndarray:
        """The unknowns of tables with these pieces."""
        weighted = self.weights * by_bin
        return self.sums(weighted, weighted * self.away) / self.sums(self.weights, self.weights * self.away**2)

    def prior(self, precision: float) -> np.ndarray:
        """The matrix of precision times the squared distance of every piece's value from the table's mean.

        A slope counts as the value at the end of an even piece does, sqrt(3) spreads from the anchor. The mean itself,
        which is zero, counts too: its direction would have no curvature otherwise.
        """
        matrix = 3.0 * precision * np.eye(self.n_unknowns)
        for start, stop in zip(self.first[:-1], self.first[1:], strict=True):
            own, share = self.columns[start:stop], self.share[start:stop]
            mean = share / share.sum()
            centred = np.eye(len(own)) - mean
            matrix[np.ix_(own, own)] = precision * (centred.T @ centred + np.outer(mean, mean))
        return matrix

    def coarse(self, table_offsets: np.ndarray, most: int) -> tuple[Groups, list[np.ndarray]]:
        """(the bins in groups, those of a line in at most `most`; what each table's unknowns add to its groups)."""
        is_inside = self.group < len(self.share)
        on_line = np.append(self.is_line, False)[self.group]
        size = np.bincount(self.group)[self.group]
        part = np.where(on_line, rank_in_run(self.group) * np.minimum(most, size) // size, 0)
        found, group = np.unique(most * self.group + part, return_inverse=True)
        first_of_table = np.searchsorted(found, most * self.first)
        of_bin = np.zeros(table_offsets[-1], dtype=np.int64)
        n_groups = np.diff(first_of_table)
        within = group - np.repeat(first_of_table[:-1], self.sizes)
        of_bin[self.bins] = np.where(is_inside, within, np.repeat(n_groups, self.sizes))
        adds = self.by_group(group, self.weights) / np.bincount(group, self.weights)[:, None]
        unknowns = np.append(self.columns, self.n_unknowns)[self.first]
        of_tables = [
            adds[a:b, first:last]
            for (a, b), (first, last) in zip(pairwise(first_of_table), pairwise(unknowns), strict=True)
        ]
        return Groups(self.tables, table_offsets, of_bin, n_groups), of_tables


def _can_be_refitted(spec: ShapeSpec) -> bool:
    return spec.has_pieces and not spec.monotone and (spec.has_lines or not spec.is_never_flat)


def _coordinates(solution: Solution, output: int) -> tuple[np.ndarray, np.ndarray]:
    """(where each bin stands on the axis of its table's lines, from 0 to 1; how fast that rises with x).

    The axis is x where lines are in x, and otherwise what the search used, which does not rise with x.
    """
    bound = solution.problem.constraints
    coordinates, slopes = bound.positions.copy(), np.zeros(len(bound.positions))
    if solution.lines is not None:
        for j, (low, high) in solution.lines.bounds.items():
            bins = slice(bound.offsets[j], bound.offsets[j + 1])
            half = high / 2 - low / 2  # the range of two huge numbers may not be finite
            if half > 0:
                coordinates[bins] = (solution.lines.positions[bins] / 2 - low / 2) / half
                is_sloped = solution.lines.slopes[bins].reshape(bins.stop - bins.start, -1)[:, output] != 0
                slopes[bins] = np.where(is_sloped, 0.5 / half, 0.0)
    return coordinates, slopes


class _Output:
    """The part of a refit that belongs to one output: its unknowns, their penalty, and the last Hessian."""

    def __init__(self, solution: Solution, output: int, prior_rows: float, curvature_of_a_row: float, on_values: bool):
        problem, self.objective, self.output = solution.problem, solution.problem.objective, output
        self.pieces = pieces = _Pieces(solution, output)
        weights = self.objective.tables.weights[pieces.bins]
        precision = max(prior_rows, LEAST_PRIOR) * curvature_of_a_row / self.objective.n_total
        self.penalty = pieces.prior(precision) + problem.alpha * pieces.squares(weights)
        self.lines = solution.lines if on_values else None
        self._hessian: np.ndarray | None = None
        self._merged: tuple[Any, Accuracy, tuple[list[np.ndarray], np.ndarray]] | None = None
        self._is_exact = False

    def _merged_columns(self) -> tuple[Any, Accuracy, tuple[list[np.ndarray], np.ndarray]]:
        """(columns with the bins of each line in groups, their accuracy, what each table's unknowns add to groups)."""
        if self._merged is None:
            objective = self.objective
            most = int(objective.tables.n_bins.max()) if self._is_exact else objective.options.line_groups
            groups, adds = self.pieces.coarse(objective.tables.offsets, most)
            accuracy = objective.accuracy(len(groups.tables), int(groups.offsets[-1]), self.pieces.n_unknowns)
            accuracy = EXACT if self._is_exact else accuracy
            self._merged = objective.merge(groups, accuracy), accuracy, (adds, groups.offsets)
        return self._merged

    def unknowns(self, f: np.ndarray) -> np.ndarray:
        return self.pieces.unknowns_of(f.reshape(len(f), -1)[self.pieces.bins, self.output])

    def penalty_at(self, f: np.ndarray) -> float:
        u = self.unknowns(f)
        return 0.5 * float(u @ self.penalty @ u)

    def newton_move(self, point: Point, gradient: np.ndarray, majorize: bool) -> tuple[np.ndarray, float]:
        """(move of the unknowns, the decrease that it promises), given the sums of `Objective.line_gradient`.

        Majorized: by parabolas above the loss, where it has them.
        """
        pieces = self.pieces
        by_bin = gradient.reshape(*gradient.shape[:2], -1)[pieces.bins, :, self.output]
        slope = pieces.sums(by_bin[:, 0], pieces.away * by_bin[:, 0] + pieces.rise * by_bin[:, 1])
        slope += self.penalty @ self.unknowns(point.f)
        if self._hessian is None:
            self._hessian = self._hessian_at(point, majorize) + self.penalty
            # Equal columns leave directions without curvature, which a small prior may not lift above rounding.
            self._hessian[np.diag_indices_from(self._hessian)] *= 1 + 1e-12
        try:
            move = -cho_solve(cho_factor(self._hessian, lower=True), slope)
        except (np.linalg.LinAlgError, ValueError):  # not positive definite by rounding, or not finite
            return np.zeros_like(slope), 0.0
        return move, -0.5 * float(slope @ move)

    def forget_hessian(self) -> None:
        """Build another one for the next step, from all rows and bins from now on."""
        self._hessian = None
        if not self._is_exact:
            self._is_exact, self._merged = True, None

    def _hessian_at(self, point: Point, majorize: bool) -> np.ndarray:
        """Of the loss in the unknowns, to a few percent, with the intercept eliminated."""
        merged, accuracy, adds = self._merged_columns()
        curvature = self.objective.curvature(point, True, accuracy) if majorize else None
        if curvature is None:
            curvature = self.objective.curvature(point, False, accuracy)
        found = self.objective.hessian(point, merged, curvature, self.output)
        hessian, coupling = found.in_coordinates(*adds)
        hessian -= np.outer(coupling, coupling) / max(found.total, 1e-300)
        hessian[np.diag_indices_from(hessian)] += found.total * self._within_bins
        return hessian

    @cached_property
    def _within_bins(self) -> np.ndarray:
        """An upper bound on the curvature of slopes within bins, for rows of curvature 1.

        In tables that say nearly the same, slopes may cancel between bins and yet add up within them, so that the bins
        alone would promise too much. L tables that move together curve at most L times as much as each of them alone.
        """
        lines = self.lines
        if lines is None:
            return np.zeros(self.pieces.n_unknowns)
        pieces = self.pieces
        rises = pieces.rise * lines.spreads[pieces.bins]
        return len(lines.tables) * pieces.sums(np.zeros(len(rises)), pieces.weights * rises**2)


@dataclass(frozen=True, eq=False)
class _State:
    slopes: np.ndarray
    point: Point
    value: float


class _Refit:
    """Newton's method for the unknowns of all outputs."""

    def __init__(self, solution: Solution, outputs: list[_Output], on_values: bool):
        self.solution, self.outputs = solution, outputs
        self.objective = solution.problem.objective
        lines = solution.lines if on_values else None
        if lines is None:
            self.distances = self.objective.distances(np.zeros(0, dtype=np.int64), np.zeros(0))
        elif lines.distances is None:
            self.distances = self.objective.distances(lines.tables, lines.positions)
        else:
            self.distances = lines.distances
        self.last_gain = np.inf

    def start(self) -> _State:
        lines = self.solution.lines
        slopes = np.zeros_like(self.solution.f) if lines is None else lines.slopes
        return self._state(self.solution.point, slopes)

    def _state(self, point: Point, slopes: np.ndarray) -> _State:
        return _State(slopes, point, point.loss + sum(output.penalty_at(point.f) for output in self.outputs))

    def step(self, state: _State) -> _State | None:
        """The state after a Newton step that lowers the objective; None if none does, or if it is not worth a pass.

        Where the loss is nearly straight (classes that a piece separates, Huber, quantile) its curvature promises too
        much. Then parabolas above the loss are tried.
        """
        gradient = self.objective.line_gradient(state.point, self.distances)
        for majorize in (False, True):
            found = [output.newton_move(state.point, gradient, majorize) for output in self.outputs]
            if sum(promise for _, promise in found) <= max(
                ENOUGH * self.solution.problem.scale, 1e-12 * abs(state.value)
            ):
                return None
            moved = self._moved(state, [move for move, _ in found])
            if moved is not None:
                self._judge(state.value - moved.value)
                return moved
            self._forget_hessians()
        return None

    def _moved(self, state: _State, moves: list[np.ndarray]) -> _State | None:
        """The state after the moves, halved until the objective falls; None if it does not."""
        for halving in range(MAX_HALVINGS + 1):
            f, slopes = state.point.f.copy(), state.slopes.copy()
            for output, move in zip(self.outputs, moves, strict=True):
                pieces, length = output.pieces, 0.5**halving
                for a, added in zip((f, slopes), pieces.added_by(length * move), strict=True):
                    a.reshape(len(a), -1)[pieces.bins, output.output] += added
            args = self._centred(f), self.solution.support, slopes, self.distances, state.point.intercept
            moved = self._state(self.objective.line_point(*args), slopes)
            if moved.value < state.value:
                return moved
        return None

    def _judge(self, gain: float) -> None:
        """Forget Hessians that no longer fit: a step gained too large a part of what the last one gained."""
        if gain > self.objective.options.slow_gain_ratio * self.last_gain:
            self._forget_hessians()
        self.last_gain = gain

    def _forget_hessians(self) -> None:
        for output in self.outputs:
            output.forget_hessian()

    def _centred(self, f: np.ndarray) -> np.ndarray:
        tables = self.objective.tables
        for j in self.outputs[0].pieces.tables:
            table = slice(tables.offsets[j], tables.offsets[j + 1])
            f[table] -= tables.weights[table] @ f[table]
        return f

    def solution_at(self, state: _State) -> Solution:
        point, lines = state.point, self.solution.lines
        if lines is not None:
            f, lines = point.f.copy(), replace(lines, slopes=state.slopes)
            put_on_lines(f, self.solution, lines)
            point = replace(point, f=f)
        return replace(self.solution, f=point.f, intercept=point.intercept, loss=point.loss, point=point, lines=lines)
