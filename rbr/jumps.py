"""How well the data place each jump, and what the model would lose without it or without a term.

With all else held, the loss is near a parabola in each bin of a table: the bin's gradient and curvature give it a
target and a weight (as in rbr.moves). So the loss of a jump at any edge between its neighbours is a sum of two prefix
fits, and the loss without the jump is the fit of one piece over both. A place counts as equally good if the mean loss
rises by less than EQUALLY_GOOD * dispersion / n: two units of log-likelihood, the usual support interval, about 95%.
Looks at: rbr.moves and the problem behind a solution.  Seen by: rbr.from_solution.
"""

from __future__ import annotations

import numpy as np

from rbr.moves import _WITH_BOUNDARIES, _prefix_errors

EQUALLY_GOOD = 2.0

# Drops in loss are measured on this many rows; with more, on every k-th row.
MAX_ROWS = 50_000


def jump_facts(solution) -> dict[int, np.ndarray]:
    """For each used feature with jumps: output (or -1), edge, first and last good edge, loss without, of each."""
    problem, point = solution._problem, solution._point
    objective, constraints = problem.objective, problem.constraints
    support = point.support
    if not len(support):
        return {}
    slack = EQUALLY_GOOD * _dispersion(solution) / objective.n_total
    gradient = objective.gradient(point, support)
    curvature = objective.bin_sums(objective.curvature(point), support)
    by_class = [a[:, None] if a.ndim == 1 else a for a in (point.f, gradient, curvature, solution.labels)]
    facts: dict[int, np.ndarray] = {}
    for j in support.tolist():
        if constraints.shapes[j] not in _WITH_BOUNDARIES:
            continue
        bins = slice(constraints.offsets[j], constraints.offsets[j] + constraints.n_ordered[j])
        rows = []
        for c in range(by_class[0].shape[1]):
            f, slope, weight, pieces = (a[bins, c] for a in by_class)
            live = np.flatnonzero((weight > 0) & (pieces >= 0))
            target = f[live] - constraints.weights[bins][live] * slope[live] / weight[live]
            x = constraints.positions[bins][live]
            for start, low, high, rise in _judged(target, weight[live], x, pieces[live], slack):
                # A jump in front of bin k lies at edge k - 1.
                edges = live[start] - 1, live[low] - 1, live[high] - 1
                rows.append([-1 if point.f.ndim == 1 else c, *edges, solution.loss + rise])
        facts[j] = np.array(rows, dtype=np.float64).reshape(-1, 5)
    return facts


def _judged(target, weight, x, pieces, slack: float):
    """(jump, first and last equally good place, rise of the loss without it), as indices of the bin behind."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(pieces)) + 1, [len(pieces)]])
    for before, start, after in zip(starts[:-2], starts[1:-1], starts[2:], strict=True):
        around, backwards = slice(before, after), slice(None, None, -1)
        t, w, p = target[around], weight[around], x[around]
        left_is_line, right_is_line = bool(pieces[before] % 2), bool(pieces[start] % 2)
        left = _prefix_errors(t, w, p, left_is_line)
        right = _prefix_errors(t[backwards], w[backwards], p[backwards], right_is_line)[backwards]
        total = (left[:-1] + right[1:]) / 2
        here = total[start - before - 1]
        good = np.flatnonzero(total <= here + slack)  # its own place at least
        whole = _prefix_errors(t, w, p, left_is_line or right_is_line)[-1] / 2
        yield start, before + 1 + good[0], before + 1 + good[-1], float(whole - here)


def _dispersion(solution) -> float:
    if solution.dispersion is not None:
        return solution.dispersion
    problem, point = solution._problem, solution._point
    objective = problem.objective
    df = 1.0 + problem.constraints.degrees_of_freedom(solution.labels, point.support)
    return objective.loss.dispersion(objective.y, point.raw, objective.row_weights, objective.n_total, df)


def loss_drops(solution) -> dict[int, float]:
    """For each used feature how far the training loss rises without it, the intercept refitted."""
    problem, point = solution._problem, solution._point
    objective = problem.objective
    loss, n_rows = objective.loss, len(objective.y)
    rows = slice(None, None, max(1, -(-n_rows // MAX_ROWS)))
    y, v, raw = objective.y[rows], np.ascontiguousarray(objective.row_weights[rows]), point.raw[rows]
    v = v / v.sum()
    base = loss.value(y, raw, v)
    design = objective.design
    drops = {}
    for j in point.support.tolist():
        table = point.f[design.offsets[j] : design.offsets[j + 1]]
        # A row without a bin of the feature has the code one past the last.
        table = np.concatenate([table, np.zeros((1, *table.shape[1:]))])
        without = raw - table[design.codes[j, rows]]
        shift = loss.refit_intercept(y, without, v, np.zeros_like(point.intercept) if raw.ndim == 2 else 0.0)
        drops[j] = loss.value(y, without + shift, v) - base
    return drops
