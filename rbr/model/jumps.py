"""How precisely the data place each jump, and how far the loss rises without a jump or without a term.

A model keeps no rows, so this is measured at the fit, on the training rows and with everything else held fixed:

- place: the jump moves to another edge between its neighbours, and the rows in between take the value (or line) of the
  piece on the other side. The place is equally good if the mean loss rises by at most EQUALLY_GOOD * dispersion / n,
  two units of log-likelihood: the usual support interval, about 95%.
- without a jump: the two pieces beside it are replaced by one constant, or line, fitted by Newton steps.
- without a term: its table is removed, and the intercept is refitted.

All of these change the scores of a row by a number that depends on its bin alone, and the objective computes how the
loss responds to such changes (`Objective.changes`).
"""

from __future__ import annotations

import numpy as np

from rbr.objective.protocol import TableChange, TableChanges
from rbr.solvers.solution import Solution

EQUALLY_GOOD = 2.0

MAX_NEWTON = 8
MAX_HALVINGS = 20
# Newton's method stops when the next step promises less than this share of the rise, or of the slack if that is larger.
ENOUGH = 1e-2


def facts_and_drops(solution: Solution) -> tuple[dict[int, np.ndarray], dict[int, float]]:
    """(facts, drops) by used feature: an array with a row per jump, and the rise of the loss without the feature.

    A row holds output (-1 if there is only one), edge, first and last equally good edge, and loss without the jump. For
    the drops the intercept is refitted.
    """
    problem, point = solution.problem, solution.point
    constraints = problem.constraints
    slack = EQUALLY_GOOD * _dispersion(solution) / problem.objective.n_total
    tables, labels = (a[:, None] if a.ndim == 1 else a for a in (point.f, solution.labels))
    changes = problem.objective.changes(point)
    facts: dict[int, np.ndarray] = {}
    drops: dict[int, float] = {}
    for j in point.support.tolist():
        columns = [changes.of(j, c) for c in range(tables.shape[1])]
        drops[j] = rise_without(changes, j, len(columns))
        if not constraints.spec(j).has_jumps:
            continue
        bins = slice(constraints.offsets[j], constraints.offsets[j] + constraints.n_ordered[j])
        rows = []
        for c, column in enumerate(columns):
            pieces = _Pieces(tables[bins, c], constraints.positions[bins], labels[bins, c])
            moved, rises = _rises_if_moved(column, pieces), _rises_without(column, pieces, slack)
            for p, start in enumerate(pieces.starts[1:-1]):
                # A jump in front of bin k lies at edge k - 1.
                good = np.flatnonzero(moved[p] <= slack) + pieces.starts[p]
                output = -1 if point.f.ndim == 1 else c
                rows.append([output, start - 1, good[0], good[-1], solution.loss + rises[p]])
        facts[j] = np.array(rows, dtype=np.float64).reshape(-1, 5)
    return facts, drops


def rise_without(changes: TableChanges, table: int, n_outputs: int) -> float:
    """The rise of the loss without a table, with the intercept refitted."""
    return _rise_without_table(changes.of(table, 0)) if n_outputs == 1 else changes.rise_without(table)


def _dispersion(solution: Solution) -> float:
    if solution.dispersion is not None:
        return solution.dispersion
    problem, point = solution.problem, solution.point
    df = 1.0 + problem.constraints.degrees_of_freedom(solution.labels, point.support)
    return problem.objective.dispersion(point, df)


class _Pieces:
    """The ordered bins of a table, and the pieces that they form."""

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
        """How the table changes if every bin takes the value of the piece before (-1) or after (1) its own."""
        piece = np.clip(self.piece_of + which, 0, len(self.first) - 1)
        first = self.first[piece]
        return self.f[first] + self.slope[piece] * (self.x - self.x[first]) - self.f


def _rise_without_table(column: TableChange) -> float:
    """The rise of the loss without the table and with the intercept refitted, so with one constant in its place."""
    windows, no_line = np.zeros(len(column.f), dtype=np.intp), np.zeros(len(column.f))
    return float(_rises_if_one_piece(column, windows, no_line, slack=0.0, enough=1e-10)[0])


def _rises_if_moved(column: TableChange, pieces: _Pieces) -> list[np.ndarray]:
    """For each jump, the rise of the loss if it moved to each of the places between its neighbours."""
    groups = np.full(len(column.f), len(pieces.first))
    groups[: len(pieces.f)] = pieces.piece_of
    to_before, to_behind = np.zeros(len(column.f)), np.zeros(len(column.f))
    to_before[: len(pieces.f)] = pieces.change_to_neighbour(-1)
    to_behind[: len(pieces.f)] = pieces.change_to_neighbour(1)
    rise_before, rise_behind = (column.measure(change, groups)[0] for change in (to_before, to_behind))
    return [
        # If the jump moves left to in front of bin k, the bins from k to its old place change sides; right likewise.
        np.concatenate([
            np.cumsum(rise_behind[before + 1 : start][::-1])[::-1], [0.0], np.cumsum(rise_before[start : after - 1])
        ])
        for before, start, after in zip(pieces.starts[:-2], pieces.starts[1:-1], pieces.starts[2:], strict=True)
    ]  # fmt: skip


def _rises_without(column: TableChange, pieces: _Pieces, slack: float) -> np.ndarray:
    """For each jump, the rise of the loss if the two pieces beside it were one constant, or line.

    Accurate to about a hundredth of the rise, or of the slack within which losses count as equal.
    """
    n_jumps = len(pieces.first) - 1
    rises = np.zeros(n_jumps)
    for parity in (0, 1):  # every other jump, so that no piece is beside two of them
        jumps = np.arange(parity, n_jumps, 2)
        if not len(jumps):
            continue
        window_of_piece = np.full(len(pieces.first) + 1, len(jumps))
        window_of_piece[jumps] = window_of_piece[jumps + 1] = np.arange(len(jumps))
        windows = np.full(len(column.f), len(jumps))
        windows[: len(pieces.f)] = window_of_piece[pieces.piece_of]
        line = np.zeros(len(column.f))
        line[: len(pieces.f)] = pieces.x
        # A line only if one of the two pieces was one; _rises_if_one_piece drops it where rows have a single position.
        lined = np.append(pieces.is_line[jumps] | pieces.is_line[jumps + 1], False)
        line = np.where(lined[windows], line, 0.0)
        # The last window holds the bins that belong to none of the jumps.
        rises[jumps] = _rises_if_one_piece(column, windows, line, slack)[: len(jumps)]
    return rises


def _rises_if_one_piece(
    column: TableChange, windows: np.ndarray, line: np.ndarray, slack: float, enough: float = ENOUGH
) -> np.ndarray:
    """For each window of bins, the rise of the loss if it had one constant, or one line where `line` is not 0."""

    def total(values):
        return np.bincount(windows, values)

    # Centre the line in each window; with a single position it vanishes.
    line = line - (total(column.weight * line) / np.maximum(total(column.weight), 1e-300))[windows]
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

    # Start from the piece that is nearest to the present table.
    change = solved(column.weight, column.weight * column.f) - column.f
    rise, is_corrected = column.measure(change, windows)
    value = total(rise)
    for _ in range(MAX_NEWTON):
        pull, curved = column.slopes(change, is_corrected)
        if (total(curved) <= 0).any():
            curved = np.where((total(curved) <= 0)[windows], column.majorized(change), curved)
        step = solved(curved, pull)
        is_open = total(pull * step) > enough * np.maximum(value, slack)
        if not is_open.any():
            break
        for _halving in range(MAX_HALVINGS):
            trial = np.where(is_open[windows], change + step, change)
            trial_value = np.where(is_open, total(column.rises(trial, is_corrected)), value)
            is_lower = trial_value < value
            change, value = np.where(is_lower[windows], trial, change), np.where(is_lower, trial_value, value)
            is_open &= ~is_lower
            if not is_open.any():
                break
            step = step / 2
    return value
