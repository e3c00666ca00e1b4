"""Terms of two columns as SQL: CASE expressions, one inside another.

A cut through a whole grid along which all neighbouring cells differ separates rectangles and divides none. As long as
there are such cuts, a CASE asks for that column, and its branches are smaller grids; so rectangles that come from cuts
through rectangles are written once each. Where there is no such cut, every row of the grid becomes a branch of its own
(or every column, whichever is shorter).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from rbr.model.pairs import Axis, PairTerm
from rbr.model.sql import Dialect, category_literal

# SQLite's parser has room for about 14 expressions inside one another.
MAX_DEPTH = 6


class Query(Protocol):
    """What is needed of a query: its dialect, and how it writes the column at an index of X."""

    quote: Dialect

    def column(self, column: int) -> str: ...


def pair_case(term: PairTerm, c: int, query: Query) -> str:
    """The expression of a term, for score column c."""
    values = term.values.reshape(*term.shape, -1)[:, :, c]
    sides = [_Side(axis, term, query) for axis in term.axes]
    return "\n    ".join(_Writer(sides, values, query.quote).whole())


class _Side:
    """One axis in SQL: tests of its column."""

    def __init__(self, axis: Axis, term: PairTerm, query: Query):
        self.axis, self.quote, self.column = axis, query.quote, query.column(axis.column)
        groups = axis.groups or ()
        self.literals = [[category_literal(level, term, query.quote) for level in group] for group in groups]

    def is_missing(self) -> str:
        of_numbers = self.axis.groups is None or all(type(level) in (int, float) for level in self.axis.levels)
        if self.quote.is_nan is None or not of_numbers:
            return f"{self.column} IS NULL"
        return f"{self.column} IS NULL OR {self.quote.is_nan(self.column)}"

    def is_unknown(self) -> str | None:
        """The test for an unknown category; None for numbers."""
        if self.axis.groups is None:
            return None
        return f"{self.column} NOT IN ({', '.join(text for group in self.literals for text in group)})"

    def branches(self, parts: Sequence[Sequence[int]], told: Sequence[list[str]]) -> list[str]:
        """A CASE of parts of the ordered bins, each with its expression; the last or the longest part needs no test."""
        if self.axis.groups is None:
            tests = [f"{self.column} <= {self.quote.literal(self.axis.edges[part[-1]])}" for part in parts[:-1]]
            return _case(list(zip(tests, told[:-1], strict=True)), told[-1])
        levels = [[text for k in part for text in self.literals[k]] for part in parts]
        rest = max(range(len(parts)), key=lambda i: len(levels[i]))
        whens = [
            (f"{self.column} IN ({', '.join(own)})", text)
            for i, (own, text) in enumerate(zip(levels, told, strict=True))
            if i != rest
        ]
        return _case(whens, told[rest])


def _case(whens: Sequence[tuple[str, list[str]]], otherwise: list[str]) -> list[str]:
    """The lines of a CASE; without branches the expression itself."""
    if not whens:
        return otherwise
    lines = ["CASE"]
    for head, told in [*((f"WHEN {test} THEN", told) for test, told in whens), ("ELSE", otherwise)]:
        if len(told) == 1:
            lines.append(f"  {head} {told[0]}")
        else:
            lines += [f"  {head}", *(f"    {line}" for line in told)]
    return [*lines, "END"]


class _Writer:
    """The expression of one grid of numbers."""

    def __init__(self, sides: Sequence[_Side], values: np.ndarray, quote: Dialect):
        self.sides, self.values, self.quote = sides, values, quote

    def number(self, value: float) -> list[str]:
        return [self.quote.literal(value)]

    def whole(self) -> list[str]:
        """Missing and unknown values first, then the grid of what is known."""
        first, second = self.sides
        n_a, n_b = first.axis.n_ordered, second.axis.n_ordered
        nothing = self.number(0.0)
        whens = []
        for side, other, n_own, grid in ((first, second, n_a, self.values), (second, first, n_b, self.values.T)):
            told = nothing
            if side.axis.has_missing:
                corner = float(grid[n_own, -1]) if other.axis.has_missing and side is first else None
                told = self.line(other, grid[n_own, : other.axis.n_ordered], corner, may_be_missing=side is first)
            whens.append((side.is_missing(), told))
        for side in self.sides:
            if (unknown := side.is_unknown()) is not None:
                whens.append((unknown, nothing))
        return _case(whens, self.grid(list(range(n_a)), list(range(n_b)), 0))

    def line(self, side: _Side, values: np.ndarray, missing: float | None, may_be_missing: bool) -> list[str]:
        """What a column adds beside a missing value in the other one; `missing` if it is missing too."""
        nothing = self.number(0.0)
        gap = nothing if missing is None else self.number(missing)
        whens = [(side.is_missing(), gap)] if may_be_missing else []
        if (unknown := side.is_unknown()) is not None:
            whens.append((unknown, nothing))
        parts = _alike(side.axis, values[:, None], list(range(len(values))))
        known = side.branches(parts, [self.number(values[part[0]]) for part in parts])
        if len(known) == 1 and all(told == known for _, told in whens):
            return known
        return _case(whens, known)

    def grid(self, rows: list[int], columns: list[int], depth: int) -> list[str]:
        """The cells of some bins of both axes, all of them ordered."""
        cells = self.values[np.ix_(rows, columns)]
        if (cells == cells[0, 0]).all():
            return self.number(cells[0, 0])
        parts = (_alike(self.sides[0].axis, cells, rows), _alike(self.sides[1].axis, cells.T, columns))
        small = self.values[np.ix_([part[0] for part in parts[0]], [part[0] for part in parts[1]])]
        cuts = [np.flatnonzero((grid[1:] != grid[:-1]).all(axis=1)) + 1 for grid in (small, small.T)]
        if depth >= MAX_DEPTH or not max(map(len, cuts)):
            # The number of values that would be written, row by row and column by column.
            lengths = [1 + np.count_nonzero(np.diff(grid, axis=1), axis=1) for grid in (small, small.T)]
            cuts = [np.arange(1, len(part)) for part in parts]
            along = 0 if cuts[1].size == 0 or (cuts[0].size and lengths[0].sum() <= lengths[1].sum()) else 1
        else:
            along = 0 if len(cuts[0]) >= len(cuts[1]) else 1
        spans = zip([0, *cuts[along].tolist()], [*cuts[along].tolist(), len(parts[along])], strict=True)
        branches = [[k for part in parts[along][a:b] for k in part] for a, b in spans]
        told = [
            self.grid(branch, columns, depth + 1) if along == 0 else self.grid(rows, branch, depth + 1)
            for branch in branches
        ]
        return self.sides[along].branches(branches, told)


def _alike(axis: Axis, cells: np.ndarray, bins: list[int]) -> list[list[int]]:
    """The bins in parts with the same rows of cells: neighbours, of a category any."""
    parts: list[list[int]] = []
    known: dict[bytes, list[int]] = {}
    for row, k in zip(cells + 0.0, bins, strict=True):
        key = row.tobytes()
        part = known.get(key)
        if part is not None and (axis.groups is not None or part is parts[-1]):
            part.append(k)
        else:
            known[key] = [k]
            parts.append(known[key])
    return parts
