"""How well the data place each jump, and what the model would lose without it or without a term.

A model keeps no rows, so this is measured at the fit, on the training rows and with all else held:

- place: the jump moves to another edge between its neighbours, and the rows in between take the value (or line) of the
  piece on the other side. The place is equally good if the mean loss rises by at most EQUALLY_GOOD * dispersion / n,
  two units of log-likelihood: the usual support interval, about 95%.
- without a jump: one constant, or line, in the place of the two pieces beside it, fitted by Newton steps.
- without a term: its table is gone, and the intercept is refitted.

All of these change the scores of a row by a number that depends on its bin alone. A parabola in each bin, which serves
the solver for its small steps, will not do by itself: where classes separate, the curvature is near zero at the fit and
says nothing about a change as large as these. So with up to MAX_ROWS rows losses are taken from all of them. With more,
the parabolas of all rows say what they can, and a sample says how far the losses are from their parabolas; a sample
alone would have to tell apart losses that differ by a millionth.
Looks at: the problem behind a solution.  Seen by: rbr.from_solution.
"""

from __future__ import annotations

import numpy as np

from rbr.reference.projections import SHAPES
from rbr.sampling import spread_rows

EQUALLY_GOOD = 2.0

# Up to so many rows all are looked at; with more, a sample of so many.
MAX_ROWS, SAMPLE_ROWS = 50_000, 1 << 13
MAX_NEWTON = 8
MAX_HALVINGS = 20
# Newton's method has arrived when the next step promises less than this share of the rise, or of what counts as equal.
ENOUGH = 1e-2

_WITH_JUMPS = [SHAPES.index(s) for s in ("constant", "linear", "mixed", "increasing", "decreasing")]


def facts_and_drops(solution) -> tuple[dict[int, np.ndarray], dict[int, float]]:
    """For each used feature what is known of its jumps, and how far the loss rises without it, the intercept refitted.

    Of each jump: output (or -1), edge, first and last good edge, loss without it.
    """
    problem, point = solution._problem, solution._point
    constraints = problem.constraints
    slack = EQUALLY_GOOD * _dispersion(solution) / problem.objective.n_total
    tables, labels = (a[:, None] if a.ndim == 1 else a for a in (point.f, solution.labels))
    sample = _Sample(solution)
    facts: dict[int, np.ndarray] = {}
    drops: dict[int, float] = {}
    for j in point.support.tolist():
        columns = [_Column(sample, j, c) for c in range(tables.shape[1])]
        drops[j] = columns[0].rise_without_table() if len(columns) == 1 else sample.rise_without(j)
        if constraints.shapes[j] not in _WITH_JUMPS:
            continue
        bins = slice(constraints.offsets[j], constraints.offsets[j] + constraints.n_ordered[j])
        rows = []
        for c, column in enumerate(columns):
            pieces = _Pieces(tables[bins, c], constraints.positions[bins], labels[bins, c])
            moved, rises = column.rises_if_moved(pieces), column.rises_without(pieces, slack)
            for p, start in enumerate(pieces.starts[1:-1]):
                # A jump in front of bin k lies at edge k - 1.
                good = np.flatnonzero(moved[p] <= slack) + pieces.starts[p]
                output = -1 if point.f.ndim == 1 else c
                rows.append([output, start - 1, good[0], good[-1], solution.loss + rises[p]])
        facts[j] = np.array(rows, dtype=np.float64).reshape(-1, 5)
    return facts, drops


def _dispersion(solution) -> float:
    if solution.dispersion is not None:
        return solution.dispersion
    problem, point = solution._problem, solution._point
    objective = problem.objective
    df = 1.0 + problem.constraints.degrees_of_freedom(solution.labels, point.support)
    return objective.loss.dispersion(objective.y, point.raw, objective.row_weights, objective.n_total, df)


class _Pieces:
    """A table's ordered bins, and the pieces that they form."""

    def __init__(self, f: np.ndarray, x: np.ndarray, labels: np.ndarray):
        self.f, self.x = f, x
        self.starts = np.concatenate([[0], np.flatnonzero(np.diff(labels)) + 1, [len(f)]])
        self.first, last = self.starts[:-1], self.starts[1:] - 1
        self.piece_of = np.repeat(np.arange(len(self.first)), np.diff(self.starts))
        self.is_line = labels[self.first] % 2 == 1
        width = x[last] - x[self.first]
        sloped = self.is_line & (width > 0)
        self.slope = np.divide(f[last] - f[self.first], width, out=np.zeros(len(width)), where=sloped)

    def change_to_neighbour(self, which: int) -> np.ndarray:
        """How the table changes if every bin takes the value of the piece before (-1) or behind (1) its own."""
        piece = np.clip(self.piece_of + which, 0, len(self.first) - 1)
        first = self.first[piece]
        return self.f[first] + self.slope[piece] * (self.x - self.x[first]) - self.f


class _Sample:
    """Training rows with their scores, losses and derivatives: all, or some and the sums by bin of all."""

    def __init__(self, solution):
        objective, point = solution._problem.objective, solution._point
        self.design, self.loss, self.f = objective.design, objective.loss, point.f
        n_rows = len(objective.y)
        self.is_all = n_rows <= MAX_ROWS
        self.rows = slice(None) if self.is_all else spread_rows(n_rows, SAMPLE_ROWS)
        self.y, self.raw = objective.y[self.rows], point.raw[self.rows]
        v = np.ascontiguousarray(objective.row_weights[self.rows])
        self.v = v / v.sum()
        self.values = self.loss.values(self.y, self.raw)
        self.residual, self.curvature = np.empty(self.raw.shape), np.empty(self.raw.shape)
        self.loss.evaluate(self.y, self.raw, residual=self.residual, curvature=self.curvature)
        if not self.is_all:
            gradient = objective.gradient(point, point.support) if point.gradient is None else point.gradient
            self.pull_by_bin = -(objective.design.weights * gradient.T).T
            self.curvature_by_bin = objective.curvature_by_bin(objective.curvature(point), point.support)

    def rise_without(self, j: int) -> float:
        """The rise of the loss without feature j, all intercepts refitted."""
        loss, y, v = self.loss, self.y, self.v
        table = self.f[self.design.offsets[j] : self.design.offsets[j + 1]]
        # A row without a bin of the feature has the code one past the last.
        table = np.concatenate([table, np.zeros((1, *table.shape[1:]))])
        without = self.raw - table[self.design.codes[j, self.rows]]
        shift = loss.refit_intercept(y, without, v, np.zeros(self.raw.shape[1]))
        return float(v @ (loss.values(y, without + shift) - self.values))


class _Column:
    """How the loss changes with the scores of one output, as a function of the bin of one feature.

    Where only a sample is at hand, "corrected" bins count with the parabola of all rows and the sample's distance from
    its own.
    """

    def __init__(self, sample: _Sample, j: int, c: int):
        self.sample, self.c = sample, c
        self.codes = sample.design.codes[j, sample.rows].astype(np.intp)
        bins = slice(sample.design.offsets[j], sample.design.offsets[j + 1])
        self.f = np.append(_of_output(sample.f, c)[bins], 0.0)  # a row without a bin has the last code
        self.residual, self.curvature = _of_output(sample.residual, c), _of_output(sample.curvature, c)
        self.weight = self._by_bin(sample.v)
        self.curved = self._by_bin(sample.v * self.curvature)
        if not sample.is_all:
            self.pulled = self._by_bin(sample.v * self.residual)
            self.pull_of_all = np.append(_of_output(sample.pull_by_bin, c)[bins], 0.0)
            self.curvature_of_all = np.append(_of_output(sample.curvature_by_bin, c)[bins], 0.0)

    def _by_bin(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.codes, values, minlength=len(self.f))

    def _moved(self, change: np.ndarray) -> np.ndarray:
        """The scores after a change of each bin."""
        raw = self.sample.raw
        if raw.ndim == 1:
            return raw + change[self.codes]
        raw = raw.copy()
        raw[:, self.c] += change[self.codes]
        return raw

    def _rises(self, change: np.ndarray) -> np.ndarray:
        """For each row of the sample its part of the loss's rise."""
        sample = self.sample
        return sample.v * (sample.loss.values(sample.y, self._moved(change)) - sample.values)

    def _correction(self, change: np.ndarray) -> np.ndarray:
        """By how much all rows' parabolas rise more than the sample's, by bin."""
        more_curved, more_pulled = self.curvature_of_all - self.curved, self.pull_of_all - self.pulled
        return change * (0.5 * change * more_curved - more_pulled)

    def measure(self, change: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(rise by bin, whether it is corrected): a group of bins is where parabolas leave less to the sample."""
        rises = self._rises(change)
        by_bin = self._by_bin(rises)
        if self.sample.is_all:
            return by_bin, np.zeros(len(by_bin), dtype=bool)
        by_row = change[self.codes]
        rest = rises - self.sample.v * by_row * (0.5 * by_row * self.curvature - self.residual)
        squares, squares_of_rest = (np.bincount(groups, self._by_bin(a * a)) for a in (rises, rest))
        is_corrected = (squares_of_rest < squares)[groups]
        return by_bin + np.where(is_corrected, self._correction(change), 0.0), is_corrected

    def rises(self, change: np.ndarray, is_corrected: np.ndarray) -> np.ndarray:
        """The rise of the loss by bin, if its scores change by so much."""
        by_bin = self._by_bin(self._rises(change))
        return by_bin + np.where(is_corrected, self._correction(change), 0.0) if is_corrected.any() else by_bin

    def slopes(self, change: np.ndarray, is_corrected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Minus the derivative of `rises`, and the second, by bin."""
        sample, z = self.sample, self._moved(change)
        residual, curvature = np.empty(z.shape), np.empty(z.shape)
        sample.loss.evaluate(sample.y, z, residual=residual, curvature=curvature)
        pull, curved = (self._by_bin(sample.v * _of_output(a, self.c)) for a in (residual, curvature))
        if is_corrected.any():
            more = self.curvature_of_all - self.curved
            pull = np.where(is_corrected, pull + self.pull_of_all - self.pulled - more * change, pull)
            curved = np.where(is_corrected, np.maximum(curved + more, 0.1 * self.curvature_of_all), curved)
        return pull, curved

    def rise_without_table(self) -> float:
        """The rise of the loss without the table, the intercept refitted: with one constant in its place."""
        windows, no_line = np.zeros(len(self.f), dtype=np.intp), np.zeros(len(self.f))
        return float(self._rises_if_one_piece(windows, no_line, slack=0.0, enough=1e-10)[0])

    def rises_if_moved(self, pieces: _Pieces) -> list[np.ndarray]:
        """For each jump the rise of the loss if it were at each of the places between its neighbours."""
        groups = np.full(len(self.f), len(pieces.first))
        groups[: len(pieces.f)] = pieces.piece_of
        to_before, to_behind = np.zeros(len(self.f)), np.zeros(len(self.f))
        to_before[: len(pieces.f)] = pieces.change_to_neighbour(-1)
        to_behind[: len(pieces.f)] = pieces.change_to_neighbour(1)
        rise_before, rise_behind = (self.measure(change, groups)[0] for change in (to_before, to_behind))
        return [
            # In front of bin k left of the jump: the bins from k to the jump change sides; right of it likewise.
            np.concatenate([
                np.cumsum(rise_behind[before + 1 : start][::-1])[::-1], [0.0], np.cumsum(rise_before[start : after - 1])
            ])
            for before, start, after in zip(pieces.starts[:-2], pieces.starts[1:-1], pieces.starts[2:], strict=True)
        ]  # fmt: skip

    def rises_without(self, pieces: _Pieces, slack: float) -> np.ndarray:
        """For each jump the rise of the loss if the two pieces beside it were one constant, or line.

        To a hundredth of itself, or of the slack within which losses count as equal.
        """
        n_jumps = len(pieces.first) - 1
        rises = np.zeros(n_jumps)
        for parity in (0, 1):  # every other jump: no piece is beside two of them
            jumps = np.arange(parity, n_jumps, 2)
            if not len(jumps):
                continue
            window_of_piece = np.full(len(pieces.first) + 1, len(jumps))
            window_of_piece[jumps] = window_of_piece[jumps + 1] = np.arange(len(jumps))
            windows = np.full(len(self.f), len(jumps))
            windows[: len(pieces.f)] = window_of_piece[pieces.piece_of]
            line = np.zeros(len(self.f))
            line[: len(pieces.f)] = pieces.x
            # One line only where one of the two was one, and where it has rows at more than one position.
            lined = np.append(pieces.is_line[jumps] | pieces.is_line[jumps + 1], False)
            line = np.where(lined[windows], line, 0.0)
            # The last window is that of the bins which are in none.
            rises[jumps] = self._rises_if_one_piece(windows, line, slack)[: len(jumps)]
        return rises

    def _rises_if_one_piece(
        self, windows: np.ndarray, line: np.ndarray, slack: float, enough: float = ENOUGH
    ) -> np.ndarray:
        """For each window of bins the rise of the loss if it had one constant, or one line where line is not 0."""

        def total(values):
            return np.bincount(windows, values)

        # A line of mean zero; with one position alone there is none.
        line = line - (total(self.weight * line) / np.maximum(total(self.weight), 1e-300))[windows]
        line[np.abs(line) <= 1e-12 * np.abs(line).max(initial=0.0)] = 0.0

        def solved(h, pull):
            """The piece that minimises sum h z^2 / 2 - pull z, by bin."""
            a, b, d = total(h), total(h * line), total(h * line * line)
            floor = 1e-12 * (a + d) + 1e-300
            a, d = a + floor, d + floor
            p, q = total(pull), total(pull * line)
            determinant = a * d - b * b
            determinant = np.where(determinant > 0, determinant, 1e-300)
            return ((d * p - b * q) / determinant)[windows] + line * ((a * q - b * p) / determinant)[windows]

        # Begin with the piece that is nearest to what is there.
        change = solved(self.weight, self.weight * self.f) - self.f
        rise, is_corrected = self.measure(change, windows)
        value = total(rise)
        for _ in range(MAX_NEWTON):
            pull, curved = self.slopes(change, is_corrected)
            if (total(curved) <= 0).any():
                curved = np.where((total(curved) <= 0)[windows], self._majorized(change), curved)
            step = solved(curved, pull)
            is_open = total(pull * step) > enough * np.maximum(value, slack)
            if not is_open.any():
                break
            for _halving in range(MAX_HALVINGS):
                trial = np.where(is_open[windows], change + step, change)
                trial_value = np.where(is_open, total(self.rises(trial, is_corrected)), value)
                is_lower = trial_value < value
                change, value = np.where(is_lower[windows], trial, change), np.where(is_lower, trial_value, value)
                is_open &= ~is_lower
                if not is_open.any():
                    break
                step = step / 2
        return value

    def _majorized(self, change: np.ndarray) -> np.ndarray:
        """The curvature of parabolas above the loss, by bin."""
        above = self.sample.loss.majorized_curvature(self.sample.y, self._moved(change))
        return np.zeros(len(self.f)) if above is None else self._by_bin(self.sample.v * _of_output(above, self.c))


def _of_output(values: np.ndarray, c: int) -> np.ndarray:
    return values if values.ndim == 1 else values[:, c]
