"""Refits: Newton steps within the pieces of a point, each kept only if the objective falls."""

from __future__ import annotations

import numpy as np

from rbr._ragged import bins_of
from rbr.constraints import BoundConstraints
from rbr.objective.protocol import Objective, Point
from rbr.shapes import isotonic
from rbr.solvers.space import Spaces


def refit(
    objective: Objective,
    constraints: BoundConstraints,
    point: Point,
    labels: np.ndarray,
    *,
    alpha: float,
    step: float,
    tol: float,
    max_newton: int,
    target: float = np.inf,
    enough: float = 0.0,
    spaces: Spaces | None = None,
) -> tuple[Point, np.ndarray]:
    """Newton steps within the pieces of a point, each accepted only if loss + penalty falls.

    Stops when a gradient step of the given size within the pieces would move the tables by at most tol * ||f||_w, when
    twice the decrease that a Newton step predicts would not reach the target for loss + penalty, or when the next
    Newton step can be expected to gain less than `enough`.
    Returns the point and its labels; monotone tables may have merged pieces. `spaces` holds the last space of earlier
    refits, with its factored Hessian.
    """
    if not len(point.support):
        return point, labels
    value = point.loss + penalty(point.f, constraints, alpha)
    spaces = Spaces() if spaces is None else spaces
    last_descent = np.inf
    for _ in range(max_newton):
        space = spaces.of(objective, constraints, point.support, labels)  # a new one if monotone pieces were merged
        gradient = objective.gradient(point, point.support) if point.gradient is None else point.gradient
        slope = space.coordinates(gradient) + space.pull_of_penalty(space.coordinates(point.f), alpha)
        if step * np.linalg.norm(slope) <= tol * norm(point.f, constraints.weights):
            break
        trial = _descend(objective, constraints, point, labels, space, slope, alpha, value, target)
        if trial is None:
            break
        descent = value - trial[-1]
        if descent > objective.options.slow_gain_ratio * last_descent:
            space.be_exact()
        last_descent = descent
        point, labels, value = trial
        if objective.options.usual_gain_ratio * descent < enough:
            break
    return point, labels


def _descend(objective, constraints, point, labels, space, gradient, alpha, value, target):
    """(point, labels, value) after a Newton step, halved until the value falls; None if it does not.

    Where the loss is straight (quantile, Huber) the Hessian says little; then a parabola above the loss is tried.
    """
    used = bins_of(point.support, constraints.offsets)
    for majorize in (False, True):
        move = space.newton_move(point, gradient, alpha, majorize)
        if move is None:
            return None
        objective.work.newton_steps += 1
        promise = -0.5 * float(gradient @ space.coordinates(move))
        if value - 2 * promise > target:
            return None
        for halving in range(objective.options.max_newton_halvings + 1):
            moved = np.zeros(point.f.shape)
            moved[used] = point.f[used] + 0.5**halving * move[used]
            tables, new_labels = keep_monotone(constraints, moved, labels, point.support)
            intercept = point.intercept + 0.5**halving * space.intercept_move(move)
            trial = objective.point(tables, used_features(constraints, new_labels), intercept)
            trial_value = trial.loss + penalty(tables, constraints, alpha)
            if trial_value < value:
                return trial, new_labels, trial_value
    return None


def norm(f: np.ndarray, weights: np.ndarray) -> float:
    """||f||_w over all tables and classes."""
    if f.ndim == 1:  # most tables are zero
        bins = np.flatnonzero(f)
        f, weights = f[bins], weights[bins]
    return float(np.sqrt(np.sum(weights * (f**2).T)))


def ridge(f: np.ndarray, weights: np.ndarray, alpha: float) -> float:
    """alpha / 2 ||f||_w^2."""
    return 0.5 * alpha * norm(f, weights) ** 2 if alpha else 0.0


def penalty(f: np.ndarray, constraints: BoundConstraints, alpha: float) -> float:
    """Ridge, and the roughness of surfaces."""
    return ridge(f, constraints.weights, alpha) + constraints.roughness(f)


def keep_monotone(constraints: BoundConstraints, f: np.ndarray, labels: np.ndarray, support: np.ndarray):
    """Make the tables of a monotone shape monotone again by pooling, and merge the pieces that became equal."""
    signs = constraints.flags("monotone")
    monotone = support[signs[support] != 0]
    if not len(monotone):
        return f, labels
    f, labels = f.copy(), labels.copy()
    columns = (f[:, None], labels[:, None]) if f.ndim == 1 else (f, labels)
    for j in monotone:
        bins = slice(constraints.offsets[j], constraints.offsets[j] + constraints.n_ordered[j])
        sign = float(signs[j])
        for c in range(columns[0].shape[1]):
            table, pieces = columns[0][bins, c], columns[1][bins, c]
            if (pieces < 0).all():
                continue
            _, first, inverse = np.unique(pieces, return_index=True, return_inverse=True)
            piece_weights = np.bincount(inverse, weights=constraints.weights[bins])
            pooled = isotonic(sign * table[first], piece_weights)
            if (np.diff(sign * table[first]) < 0).any():
                table[:] = sign * pooled[inverse]
                pieces[:] = 2 * np.concatenate([[0], np.cumsum(np.diff(pooled) != 0)])[inverse]
                if constraints.missing[j]:
                    columns[1][bins.stop, c] = pieces.max() + 2
                elif (pieces == 0).all():  # one piece of mean zero
                    table[:], pieces[:] = 0.0, -1
    return f, labels


def used_features(constraints: BoundConstraints, labels: np.ndarray) -> np.ndarray:
    """Ascending indices of the features that have pieces."""
    in_a_piece = (labels >= 0) if labels.ndim == 1 else (labels >= 0).any(axis=1)
    return np.flatnonzero(np.logical_or.reduceat(in_a_piece, constraints.offsets[:-1]))


def settle_empty_levels(constraints: BoundConstraints, f: np.ndarray) -> np.ndarray:
    """Give bins of weight zero in a `levels` table the level nearest zero, in place; a refit may have moved it."""
    for j in np.flatnonzero(constraints.flags("is_grouped")):
        bins = slice(constraints.offsets[j], constraints.offsets[j] + constraints.n_ordered[j])
        empty = constraints.weights[bins] == 0
        if empty.any() and not empty.all():
            tables = f[bins] if f.ndim == 2 else f[bins, None]
            for column in tables.T:
                levels = np.unique(column[~empty])
                column[empty] = levels[np.argmin(np.abs(levels))]
    return f
