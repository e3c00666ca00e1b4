"""Changes of a fitted model that might lower the objective: a jump moved, a feature swapped, all pieces searched again.

A proximal step changes everything a little; these moves change one thing a lot, and so can leave local optima that no
short step leaves. Moves are only proposed here: the caller refits them and compares objectives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import numpy as np

from rbr._ragged import bins_of
from rbr.objective.protocol import Point
from rbr.solvers.pieces import piece_basis
from rbr.solvers.problem import Problem
from rbr.solvers.proposal import NONE, Entry, Proposal, Shift, Swap
from rbr.solvers.refit import penalty, used_features


def swaps(
    problem: Problem, point: Point, labels: np.ndarray, step: float, excluded: np.ndarray = NONE
) -> Iterator[Proposal]:
    """For each used feature, the least important first: the unused feature that explains most in its place.

    The others are first refitted without it, so that what it alone explained becomes unexplained again. Each swap costs
    a Newton step and a pass over all columns except `excluded`, which may not enter. A table is swapped with one of its
    kind: one of a column, or a pair.
    """
    constraints = problem.constraints
    squares = (point.f**2).reshape(len(point.f), -1).sum(axis=1) * constraints.weights
    importance = [squares[constraints.offsets[j] : constraints.offsets[j + 1]].sum() for j in point.support]
    for out in point.support[np.argsort(importance, kind="stable")]:
        if constraints.forced[out]:
            continue
        of_other_kind = np.flatnonzero(constraints.is_pair != constraints.is_pair[out])
        f, pieces = point.f.copy(), labels.copy()
        bins = slice(constraints.offsets[out], constraints.offsets[out + 1])
        f[bins], pieces[bins] = 0.0, -1
        removal = Proposal(None, f, point.support[point.support != out], pieces)
        without, pieces, _ = problem.improve(removal, point.intercept, step=step, n_newton=1, tol=0.0)
        entered = _best_to_enter(problem, without, pieces, step, np.concatenate([excluded, [out], of_other_kind]))
        if entered is not None:
            yield replace(entered, change=Swap(int(out), cast(Entry, entered.change).into))


def entries(
    problem: Problem, point: Point, labels: np.ndarray, step: float, excluded: np.ndarray = NONE
) -> Iterator[Proposal]:
    """The unused feature that explains most beside the used ones, if any pays its cost; one pass over the columns."""
    entered = _best_to_enter(problem, point, labels, step, excluded)
    if entered is not None:
        yield entered


def _best_to_enter(
    problem: Problem, point: Point, labels: np.ndarray, step: float, excluded: np.ndarray
) -> Proposal | None:
    """The entry of the unused feature that gains most by a proximal step from zero, if any gains."""
    found = problem.best_to_enter(point, step, without=np.concatenate([point.support, excluded]))
    if not len(found.support):
        return None
    constraints, into = problem.constraints, int(found.support[0])
    bins = slice(constraints.offsets[into], constraints.offsets[into + 1])
    f, pieces = point.f.copy(), labels.copy()
    f[bins], pieces[bins] = found.f[bins], found.labels[bins]
    return Proposal(Entry(into), f, np.sort(np.append(point.support, into)), pieces)


def resegmented(problem: Problem, point: Point, labels: np.ndarray, gradient: np.ndarray) -> Proposal | None:
    """The pieces of all used tables searched again, each with the others held; None if no table can be searched.

    The proximal step searches in the geometry of the weights and with a bound on the curvature. Here every bin has its
    own curvature: the loss is close to a parabola in each (as in `shifts`), and the best pieces under it are a proximal
    step of length 1 / H in the geometry h / H, with h the curvature summed by bin and H its total. So all jumps can
    move, appear and vanish at once, whereas `shifts` moves one in each table. `gradient` holds that of the used
    features; one pass over their columns. Frequency tables stay as they are.

    With several outputs each is searched by itself. Adding the same to all of them changes nothing, so only moves that
    add up to zero matter, along which K outputs of equal probability curve K / (K - 1) times as much as one alone.
    """
    constraints = problem.constraints
    searched = point.support[constraints.flags("can_be_resegmented")[point.support]]
    if not len(searched):
        return None
    by_bin, of_output = problem.objective.curvature_sums(point, searched)
    totals = np.atleast_1d(of_output)
    if not (totals > 0).all():
        return None
    bins = bins_of(searched, constraints.offsets)
    pieces, f, promise = labels.copy(), point.f.copy(), 0.0
    by_output = [a.reshape(len(a), -1).T for a in (f, pieces, gradient, by_bin)]
    for own_f, own_pieces, slope, curvature in zip(*by_output, strict=True):
        own_f[bins], own_pieces[bins], gain = _best_pieces(problem, searched, own_f, slope, curvature, totals)
        # The tables found have mean zero in the geometry of the curvature; centre them in that of the weights.
        means = np.add.reduceat(constraints.weights * own_f, constraints.offsets[:-1])
        own_f -= np.where(own_pieces >= 0, np.repeat(means, constraints.n_bins), 0.0)
        promise += gain
    support = used_features(constraints, pieces)
    promise += problem.cost(labels, point.support) - problem.cost(pieces, support)
    promise += penalty(point.f, constraints, problem.alpha) - penalty(f, constraints, problem.alpha)
    if point.f.ndim > 1:  # what the intercepts of classes do depends on one another
        return Proposal(None, f, support, pieces, promise)
    return Proposal(None, f, support, pieces, promise, -float(by_bin[bins] @ (f - point.f)[bins]) / float(totals[0]))


def _best_pieces(
    problem: Problem, searched: np.ndarray, f: np.ndarray, gradient: np.ndarray, by_bin: np.ndarray, totals: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """(values, labels, decrease of the parabolas) of the best pieces of one output, in the bins of some tables."""
    constraints, n_outputs = problem.constraints, len(totals)
    bins, geometry = bins_of(searched, constraints.offsets), constraints.without_limits_on_tables()
    tables = np.repeat(np.arange(len(searched)), constraints.n_bins[searched])
    by_bin, slope, total = by_bin[bins], constraints.weights[bins] * gradient[bins], float(totals[0])
    if n_outputs > 1:
        by_bin = n_outputs / (n_outputs - 1) * by_bin
    if n_outputs > 1 or problem.objective.loss.link == "log":
        # Where a class is nearly certain, or a mean far above y, the curvature says nothing of a long move: parabolas
        # reach only so far, or the exponential of the score overflows.
        by_bin = np.maximum(by_bin, np.abs(slope) / problem.options.reach_of_parabolas)
    if n_outputs > 1:
        geometry, total = geometry.including(searched), float(by_bin.sum())  # a feature is entered once for all outputs
    of_tables = np.maximum(np.bincount(tables, by_bin), 1e-300)
    around = f[bins] - np.divide(slope, by_bin, out=np.zeros_like(by_bin), where=by_bin > 0)
    if n_outputs > 1:
        around -= (np.bincount(tables, by_bin * around) / of_tables)[tables]
    weights, target = constraints.weights.copy(), np.zeros_like(f)
    weights[bins], target[bins] = by_bin / total, around
    args = target, 1.0 / total, problem.scale
    found = geometry.on(weights).prox(*args, alpha=problem.alpha, n_threads=problem.n_threads)
    promise = 0.0
    for sign, table in ((1.0, f[bins]), (-1.0, found.f[bins])):
        miss = table - around
        # The intercept absorbs what all bins of a table have in common.
        miss -= (np.bincount(tables, by_bin * miss) / of_tables)[tables]
        promise += 0.5 * sign * float(by_bin @ miss**2)
    return found.f[bins], found.labels[bins], promise


def shifts(
    problem: Problem, point: Point, labels: np.ndarray, gradient: np.ndarray, least: float = 0.0
) -> Iterator[Proposal]:
    """Jumps moved to a better place between their neighbours: the best of each table together, then one by one.

    With all else held, the loss is close to a parabola in each bin of a table (bins are disjoint): the target and the
    weight of a bin follow from its gradient and curvature. So the error for each place of a jump is the sum of the
    errors of two prefix fits. `gradient` holds that of the used features; one pass over their columns for all moves.
    A move that promises less than half of `least` is not proposed; a refit of all tables may double the promised gain.
    """
    constraints, objective = problem.constraints, problem.objective
    if not len(point.support):
        return
    curvature, _ = objective.curvature_sums(point, point.support)
    as_columns = [a[:, None] if a.ndim == 1 else a for a in (point.f, gradient, curvature, labels)]
    promising = []
    for j in point.support:
        if not constraints.spec(j).has_jumps:
            continue
        bins = slice(constraints.offsets[j], constraints.offsets[j] + constraints.n_ordered[j])
        for c in range(as_columns[0].shape[1]):
            f, slope, weight, pieces = (a[bins, c] for a in as_columns)
            live = np.flatnonzero((weight > 0) & (pieces >= 0))
            target = f[live] - constraints.weights[bins][live] * slope[live] / weight[live]
            rows = _Rows(constraints.shares[bins], pieces, live, float(constraints.least_shares[j]))
            for gain, start, stop in _better_places(
                target, weight[live], constraints.positions[bins][live], pieces[live], rows
            ):
                promising.append((gain, Shift(int(j), c, int(live[start]), int(live[stop]))))
    promising.sort(key=lambda pair: -pair[0])
    best_of_table: dict[tuple[int, int], tuple[float, Shift]] = {}
    for gain, shift in promising:
        best_of_table.setdefault((shift.feature, shift.output), (gain, shift))
    gains, together = zip(*best_of_table.values(), strict=True) if best_of_table else ((), ())
    if len(together) > 1 and 2 * sum(gains) >= least:
        yield _shifted(constraints, point, labels, list(together))
    for gain, shift in promising:
        if 2 * gain >= least:
            yield _shifted(constraints, point, labels, [shift])


def _shifted(constraints, point: Point, labels: np.ndarray, together: list[Shift]) -> Proposal:
    """The pieces after some shifts in different tables, and the nearest tables with these pieces."""
    f, pieces = point.f.copy(), labels.copy()
    for shift in together:
        j = shift.feature
        table = slice(constraints.offsets[j], constraints.offsets[j + 1])
        values = f[table] if f.ndim == 1 else f[table, shift.output]
        column = pieces[table] if pieces.ndim == 1 else pieces[table, shift.output]
        low, high = sorted((shift.start, shift.stop))
        # The bins between the two places change to the piece on the other side of the jump.
        column[low:high] = column[low - 1 if shift.stop > shift.start else high]
        weights = constraints.weights[table]
        args = weights, constraints.positions[table], constraints.shapes[j], constraints.missing[j]
        basis = piece_basis(column, *args).basis
        values[:] = basis @ (basis.T @ (weights * values))
    return Proposal(together[0] if len(together) == 1 else tuple(together), f, point.support, pieces)


class _Rows:
    """The rows of a table's pieces, of which each must keep a least share when a jump moves."""

    def __init__(self, shares: np.ndarray, pieces: np.ndarray, live: np.ndarray, least: float):
        self.least = least
        if least > 0:
            up_to = np.concatenate([[0.0], np.cumsum(shares)])
            cuts = np.concatenate([[0], np.flatnonzero(np.diff(pieces)) + 1, [len(pieces)]])
            piece = np.searchsorted(cuts, live, side="right")
            self.before, self.before_piece, self.up_to_end = up_to[live], up_to[cuts[piece - 1]], up_to[cuts[piece]]

    def without_too_few(self, total: np.ndarray, before: int, start: int, after: int) -> np.ndarray:
        """`total`, by the places of the jump between two pieces, infinite where one of them would be too small."""
        if not self.least > 0:
            return total
        places = self.before[before + 1 : after]
        below, above = places - self.before_piece[before], self.up_to_end[start] - places
        return np.where((below >= self.least) & (above >= self.least), total, np.inf)


def _better_places(target, weight, x, pieces, rows: _Rows) -> Iterator[tuple[float, int, int]]:
    """(predicted decrease, jump, better place) for each jump that has a better place."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(pieces)) + 1, [len(pieces)]])
    for before, start, after in zip(starts[:-2], starts[1:-1], starts[2:], strict=True):
        around = slice(before, after)
        left = _prefix_errors(target[around], weight[around], x[around], bool(pieces[before] % 2))
        backwards = slice(None, None, -1)
        right = _prefix_errors(
            target[around][backwards], weight[around][backwards], x[around][backwards], bool(pieces[start] % 2)
        )[backwards]
        total = left[:-1] + right[1:]
        here = total[start - before - 1]
        total = rows.without_too_few(total, before, start, after)
        best = int(np.argmin(total))
        gain = (here - total[best]) / 2
        if best != start - before - 1 and gain > 0:
            yield float(gain), int(start), int(before + best + 1)


def _prefix_errors(u, w, x, is_line: bool) -> np.ndarray:
    """Weighted squared error of the best constant, or line, over the first 1, 2, … entries.

    From running sums about the common mean, which keeps cancellation small; accurate enough for a prediction.
    """
    u, x = u - w @ u / w.sum(), x - w @ x / w.sum()
    total, wu = np.cumsum(w), np.cumsum(w * u)
    error = np.cumsum(w * u * u) - wu * wu / total
    if is_line:
        wx = np.cumsum(w * x)
        sxx, sxu = np.cumsum(w * x * x) - wx * wx / total, np.cumsum(w * x * u) - wx * wu / total
        # Positions that differ only by rounding determine no slope.
        error -= np.divide(sxu * sxu, sxx, out=np.zeros_like(sxx), where=sxx > 1e-12 * total * np.max(x * x))
    return np.maximum(error, 0.0)
