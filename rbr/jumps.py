"""How well the data place each jump, and what the model would lose without it or without a term.

A model keeps no rows, so this is measured at the fit, on the training rows and with all else held:

- place: the jump moves to another edge between its neighbours, and the rows in between take the value (or line) of the
  piece on the other side. The place is equally good if the mean loss rises by at most EQUALLY_GOOD * dispersion / n,
  two units of log-likelihood: the usual support interval, about 95%.
- without a jump: one constant, or line, in the place of the two pieces beside it, fitted by Newton steps.
- without a term: its table is gone, and the intercept is refitted.

A parabola in each bin, which serves the solver for its small steps, will not do here: where classes separate, the
curvature is near zero at the fit and says nothing about a change as large as these.
Looks at: the problem behind a solution.  Seen by: rbr.from_solution.
"""

from __future__ import annotations

import numpy as np

from rbr.reference.projections import SHAPES

EQUALLY_GOOD = 2.0

# Losses are measured on this many rows; with more, on every k-th row.
MAX_ROWS = 50_000
MAX_NEWTON = 8
MAX_HALVINGS = 20
# Newton's method has arrived when the next step promises less than this share of the rise, or of what counts as equal.
ENOUGH = 1e-2

_WITH_JUMPS = [SHAPES.index(s) for s in ("constant", "linear", "mixed", "increasing", "decreasing")]


def jump_facts(solution) -> dict[int, np.ndarray]:
    """For each used feature with jumps: output (or -1), edge, first and last good edge, loss without, of each."""
    problem, point = solution._problem, solution._point
    constraints = problem.constraints
    slack = EQUALLY_GOOD * _dispersion(solution) / problem.objective.n_total
    tables, labels = (a[:, None] if a.ndim == 1 else a for a in (point.f, solution.labels))
    sample = _Sample(solution)
    facts: dict[int, np.ndarray] = {}
    for j in point.support.tolist():
        if constraints.shapes[j] not in _WITH_JUMPS:
            continue
        bins = slice(constraints.offsets[j], constraints.offsets[j] + constraints.n_ordered[j])
        by_bin = _RowsByBin(sample, j)
        rows = []
        for c in range(tables.shape[1]):
            f, pieces, x = tables[bins, c], labels[bins, c], constraints.positions[bins]
            starts = [0, *(np.flatnonzero(np.diff(pieces)) + 1).tolist(), len(pieces)]
            for before, start, after in zip(starts[:-2], starts[1:-1], starts[2:], strict=True):
                # A jump in front of bin k lies at edge k - 1.
                places = np.arange(before, after - 1)
                rises = by_bin.rises_if_moved(c, f, x, pieces, before, start, after)
                good = places[rises <= slack]
                is_line = bool(pieces[before] % 2 or pieces[start] % 2)
                rise = by_bin.rise_if_one_piece(c, f, x if is_line else None, before, after, slack)
                rows.append([-1 if point.f.ndim == 1 else c, start - 1, good[0], good[-1], solution.loss + rise])
        facts[j] = np.array(rows, dtype=np.float64).reshape(-1, 5)
    return facts


def loss_drops(solution) -> dict[int, float]:
    """For each used feature how far the training loss rises without it, the intercept refitted."""
    sample = _Sample(solution)
    return {j: sample.rise_without(j) for j in solution._point.support.tolist()}


def _dispersion(solution) -> float:
    if solution.dispersion is not None:
        return solution.dispersion
    problem, point = solution._problem, solution._point
    objective = problem.objective
    df = 1.0 + problem.constraints.degrees_of_freedom(solution.labels, point.support)
    return objective.loss.dispersion(objective.y, point.raw, objective.row_weights, objective.n_total, df)


class _Sample:
    """Evenly spaced training rows with their scores and losses."""

    def __init__(self, solution):
        objective = solution._problem.objective
        self.design, self.loss, self.f = objective.design, objective.loss, solution._point.f
        self.rows = slice(None, None, max(1, -(-len(objective.y) // MAX_ROWS)))
        self.y, self.raw = objective.y[self.rows], solution._point.raw[self.rows]
        v = np.ascontiguousarray(objective.row_weights[self.rows])
        self.v = v / v.sum()
        self.values = self.loss.values(self.y, self.raw)

    def rise_without(self, j: int) -> float:
        """The rise of the loss without feature j, the intercept refitted."""
        loss, y, v = self.loss, self.y, self.v
        table = self.f[self.design.offsets[j] : self.design.offsets[j + 1]]
        # A row without a bin of the feature has the code one past the last.
        table = np.concatenate([table, np.zeros((1, *table.shape[1:]))])
        without = self.raw - table[self.design.codes[j, self.rows]]
        shift = loss.refit_intercept(y, without, v, np.zeros(self.raw.shape[1]) if self.raw.ndim == 2 else 0.0)
        return float(v @ (loss.values(y, without + shift) - self.values))


class _RowsByBin:
    """The rows of a sample in the order of their bins of one feature."""

    def __init__(self, sample: _Sample, j: int):
        self.loss = sample.loss
        codes = sample.design.codes[j, sample.rows]
        order = np.argsort(codes, kind="stable")
        self.codes = codes[order]
        self.starts = np.searchsorted(self.codes, np.arange(int(sample.design.n_bins[j]) + 1))
        self.y, self.raw, self.v, self.values = (a[order] for a in (sample.y, sample.raw, sample.v, sample.values))

    def rises_if_moved(self, c: int, f, x, pieces, before: int, start: int, after: int) -> np.ndarray:
        """The rise of the loss if the jump in front of bin `start` were in front of before + 1, …, after - 1."""
        rows = slice(self.starts[before], self.starts[after])
        codes = self.codes[rows]
        other = np.empty(after - before)
        other[: start - before] = _extended(f, x, pieces, start, after, np.arange(before, start))
        other[start - before :] = _extended(f, x, pieces, before, start, np.arange(start, after))
        raw = _moved(self.raw[rows], c, (other - f[before:after])[codes - before])
        rise = self.v[rows] * (self.loss.values(self.y[rows], raw) - self.values[rows])
        by_bin = np.bincount(codes - before, rise, minlength=after - before)
        n_left = start - before
        # In front of bin k left of the jump: the bins from k to the jump change sides; right of it likewise.
        to_the_left = np.cumsum(by_bin[1:n_left][::-1])[::-1]
        to_the_right = np.cumsum(by_bin[n_left:-1])
        return np.concatenate([to_the_left, [0.0], to_the_right])

    def rise_if_one_piece(
        self, c: int, f: np.ndarray, x: np.ndarray | None, before: int, after: int, slack: float
    ) -> float:
        """The rise of the loss if the bins before <= k < after were one constant, or a line in x, for output c.

        To a hundredth of itself, or of the slack within which losses count as equal.
        """
        rows = slice(self.starts[before], self.starts[after])
        y, raw, v, codes = self.y[rows], self.raw[rows], self.v[rows], self.codes[rows]
        if not v.any():
            return 0.0
        # A constant, and a line of mean zero.
        line = None if x is None else x[codes]
        line = None if line is None or np.ptp(line) == 0 else line - (v @ line) / v.sum()
        old = float(v @ self.values[rows])
        # Begin with the piece that is nearest to the two.
        own = f[codes]
        z = _moved(raw, c, _piece(line, _solve(line, v, v * own)) - own)
        value = self.loss.value(y, z, v)
        for _ in range(MAX_NEWTON):
            residual, curvature = np.empty(z.shape), np.empty(z.shape)
            self.loss.evaluate(y, z, residual=residual, curvature=curvature)
            if not curvature.any():
                curvature = self.loss.majorized_curvature(y, z)
            if z.ndim == 2:
                residual, curvature = residual[:, c], curvature[:, c]
            pull = v * residual
            step = _solve(line, v * curvature, pull)
            if np.sum(pull * _piece(line, step)) <= ENOUGH * max(value - old, slack):
                break
            for _halving in range(MAX_HALVINGS):
                trial = _moved(z, c, _piece(line, step))
                trial_value = self.loss.value(y, trial, v)
                if trial_value < value:
                    break
                step = step / 2
            else:
                break
            z, value = trial, trial_value
        return value - old


def _moved(raw: np.ndarray, c: int, by: np.ndarray) -> np.ndarray:
    """The scores with something added to output c."""
    if raw.ndim == 1:
        return raw + by
    raw = raw.copy()
    raw[:, c] += by
    return raw


def _extended(f, x, pieces, first: int, last: int, bins: np.ndarray) -> np.ndarray:
    """The piece on the bins first <= k < last, a constant or a line, at other bins."""
    width = x[last - 1] - x[first]
    slope = (f[last - 1] - f[first]) / width if pieces[first] % 2 and width > 0 else 0.0
    return f[first] + slope * (x[bins] - x[first])


def _piece(line: np.ndarray | None, coordinates: np.ndarray) -> np.ndarray | float:
    """A constant, or a constant and a multiple of a line."""
    return coordinates[0] if line is None else coordinates[0] + coordinates[1] * line


def _solve(line: np.ndarray | None, h: np.ndarray, pull: np.ndarray) -> np.ndarray:
    """The constant (and the multiple of a line) that minimises sum h z^2 / 2 - pull z, z the piece."""
    if line is None:
        return np.array([pull.sum() / (h.sum() * (1 + 1e-12) + 1e-300)])
    weighted = h * line
    hessian = np.array([[h.sum(), weighted.sum()], [weighted.sum(), weighted @ line]])
    hessian[np.diag_indices_from(hessian)] += 1e-12 * np.trace(hessian) + 1e-300
    return np.linalg.solve(hessian, [pull.sum(), pull @ line])
