"""Terms of two columns: a value for every cell of a grid, and the rectangles that a person reads.

Each side of the grid is an `Axis`: the bins of one column, numbers by their edges and categories in groups, with
missing values in a last bin if training had any. Cell (i, j) belongs to bin i of the first column and to bin j of the
second. Cells with the same label share one value and are read together. Mostly they are a rectangle, such as "age (30,
45] and hours > 50"; a smooth surface has a label for every cell.

Whoever is in no bin gets nothing: an unknown category, or a missing value on an axis without a bin for it, adds 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from rbr._text import one_line, short_numbers
from rbr.model.terms import HasColumns, HasRows, Jump, Term, Value, as_value, read_only, same

# More levels than this are not listed in words.
MOST_LEVELS = 6


@dataclass(frozen=True, eq=False)
class Axis:
    """One side of the grid of a pair.

    Attributes
    ----------
    column : int
        The index in X.
    name : str
        The name of the column.
    edges : array of shape (n_ordered - 1,)
        Bin k of a numeric column is edges[k - 1] < x <= edges[k]; empty for categories.
    groups : tuple of tuples, or None
        The levels of each bin of a category, in the order of the bins; None for numbers.
    has_missing : bool
        Whether the last bin holds missing values.
    """

    column: int
    name: str
    edges: np.ndarray
    groups: tuple[tuple, ...] | None
    has_missing: bool

    def __post_init__(self):
        put = object.__setattr__
        put(self, "column", self.column.item() if isinstance(self.column, np.integer) else self.column)
        put(self, "edges", read_only(self.edges))
        put(self, "has_missing", bool(self.has_missing))
        if self.groups is not None:
            put(self, "groups", tuple(tuple(_plain(level) for level in group) for group in self.groups))
        _check_axis(self)

    def __reduce__(self):
        return Axis, tuple(getattr(self, f.name) for f in fields(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Axis):
            return NotImplemented
        return all(same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    def __hash__(self) -> int:
        return hash((self.column, self.name, self.n_bins))

    def __repr__(self) -> str:
        missing = ", missing" if self.has_missing else ""
        return f"Axis({self.name!r}, {self.kind}, {self.n_ordered} bin{'s' * (self.n_ordered != 1)}{missing})"

    @property
    def kind(self) -> str:
        """ "numeric" or "category"."""
        return "numeric" if self.groups is None else "category"

    @property
    def n_ordered(self) -> int:
        """The number of bins, not counting the one of missing values."""
        return len(self.edges) + 1 if self.groups is None else len(self.groups)

    @property
    def n_bins(self) -> int:
        """All bins."""
        return self.n_ordered + self.has_missing

    @property
    def levels(self) -> tuple:
        """All levels of a category, in the order of the bins."""
        return () if self.groups is None else tuple(level for group in self.groups for level in group)

    def merged(self, starts: np.ndarray) -> Axis:
        """The axis whose ordered bins begin at `starts` (of which the first is 0), with those in between merged."""
        stops = np.append(starts[1:], self.n_ordered)
        if self.groups is None:
            return replace(self, edges=self.edges[starts[1:] - 1])
        groups = self.groups
        spans = zip(starts.tolist(), stops.tolist(), strict=True)
        return replace(self, groups=tuple(tuple(v for group in groups[a:b] for v in group) for a, b in spans))

    def limits(self, bins: Sequence[int]) -> tuple[float | None, float | None]:
        """The range low < x <= high of neighbouring ordered bins of a numeric column; None for anything else."""
        ordered = [k for k in bins if k < self.n_ordered]
        if self.groups is not None or not ordered or len(runs_of_bins(ordered)) > 1:
            return None, None
        low = float(self.edges[ordered[0] - 1]) if ordered[0] > 0 else -math.inf
        high = float(self.edges[ordered[-1]]) if ordered[-1] < len(self.edges) else math.inf
        return low, high

    def levels_of(self, bins: Sequence[int]) -> tuple | None:
        """The levels of some bins of a category; None for numbers."""
        groups = self.groups
        return None if groups is None else tuple(v for k in bins if k < len(groups) for v in groups[k])

    def words(self, bins: Sequence[int]) -> str:
        """Some bins in words, with the name of the column; empty for all of them."""
        if len(bins) == self.n_bins:
            return ""
        name, ordered = one_line(self.name), [k for k in bins if k < self.n_ordered]
        parts = []
        if len(ordered) == self.n_ordered:
            return f"{name} not missing"
        if self.groups is not None:
            parts = _listed([one_line(level) for level in self.levels_of(ordered) or ()])
        elif ordered:
            parts = [_interval(self._short, a, b) for a, b in runs_of_bins(ordered)]
        if len(ordered) < len(bins):
            parts.append("missing")
        return f"{name} {' or '.join(parts)}"

    @cached_property
    def _short(self) -> list[str]:
        """The edges with as few digits as tell them apart."""
        return short_numbers(self.edges) if len(self.edges) else []


def _interval(short: Sequence[str], start: int, stop: int) -> str:
    """The ordered bins start <= k < stop as an interval."""
    if start == 0:
        return "any number" if stop > len(short) else f"<= {short[stop - 1]}"
    return f"> {short[start - 1]}" if stop > len(short) else f"({short[start - 1]}, {short[stop - 1]}]"


def _listed(names: list[str]) -> list[str]:
    """The names, or the first of many and how many more there are."""
    if len(names) <= MOST_LEVELS:
        return names
    return [", ".join(names[: MOST_LEVELS - 2]), f"{len(names) - MOST_LEVELS + 2} more"]


def runs_of_bins(bins: Sequence[int]) -> list[tuple[int, int]]:
    """The runs start <= k < stop of neighbours in an ascending list.

    >>> runs_of_bins([0, 1, 4])
    [(0, 2), (4, 5)]
    """
    cuts = [i for i in range(1, len(bins)) if bins[i] != bins[i - 1] + 1]
    return [(bins[a], bins[b - 1] + 1) for a, b in zip([0, *cuts], [*cuts, len(bins)], strict=True)]


@dataclass(frozen=True)
class Rectangle:
    """The cells of a pair that share one label, and so one value.

    Attributes
    ----------
    kind : {"rectangle", "cells"}
        "cells" if the cells are no rectangle, as after a merge.
    cells : tuple of int
        The positions of the cells in the flattened grid, `PairTerm.all_values`. `bins` is another name.
    low, high : pair of (float or None)
        For each axis the range low < x <= high, with infinities at the ends; None for categories, for missing values
        alone, and if the cells are no rectangle.
    categories : pair of (tuple or None)
        For each axis the levels of a category, else None.
    has_missing : pair of bool
        For each axis, whether missing values are inside.
    value : float, or a tuple with one float per class
    weight : float
        The share of the training rows.
    text : str
        The cells in words, such as "age (30, 45] and hours > 50".
    """

    kind: str
    cells: tuple[int, ...] = field(repr=False)
    low: tuple[float | None, float | None]
    high: tuple[float | None, float | None]
    categories: tuple[tuple | None, tuple | None]
    has_missing: tuple[bool, bool]
    value: Value
    weight: float
    text: str

    @property
    def bins(self) -> tuple[int, ...]:
        """The same as `cells`: what a piece of a term of one column calls its bins."""
        return self.cells


@dataclass(frozen=True, eq=False)
class PairTerm(HasRows, HasColumns):
    """A function of two columns that an additive model adds to its score.

    Attributes
    ----------
    name : str
        The names of both columns, such as "age & hours".
    axes : pair of Axis
        The bins of the two columns; `columns` are their indices, ascending.
    values : array of shape (n_a, n_b) or (n_a, n_b, n_classes)
        What each cell adds to the score; the bins of missing values, if there are any, are the last row and column.
    weights : array of shape (n_a, n_b)
        The share of the training rows in each cell.
    counts : array of shape (n_a, n_b)
        The sum of the sample weights in each cell: the number of rows if there were no weights.
    labels : int array of shape (n_a, n_b)
        The rectangle of each cell; cells with the same label have the same value.
    loss_drop : float
        How far the training loss rises without this term. NaN if not known, as after an edit.
    gain : float
        How far the mean loss of rows that the pair was not fitted on rises without it: rows outside of bags, beside the
        mains and pairs of the search. NaN if not known, as after an edit.
    target_sums : array of shape (n_a * n_b, 1), with classes (n_a * n_b, n_classes), or empty
    exposures : array of shape (n_a * n_b,), or empty
        As those of a `Term`, cell by cell, row after row.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.model import Axis, PairTerm
    >>> age, sex = Axis(0, "age", [30.0], None, False), Axis(1, "sex", [], (("f",), ("m",)), False)
    >>> shares, rows = np.full((2, 2), 0.25), np.full((2, 2), 25)
    >>> term = PairTerm("age & sex", (age, sex), [[0.1, 0.1], [-0.5, 0.3]], shares, rows, [[0, 0], [1, 2]])
    >>> term
    PairTerm('age & sex', 2 x 2 cells, 3 rectangles)
    >>> for piece in term.pieces:
    ...     print(f"{piece.text}: {piece.value:+.1f}")
    age <= 30: +0.1
    age > 30 and sex f: -0.5
    age > 30 and sex m: +0.3
    """

    name: str
    axes: tuple[Axis, Axis]
    values: np.ndarray
    weights: np.ndarray
    counts: np.ndarray
    labels: np.ndarray
    loss_drop: float = math.nan
    gain: float = math.nan
    target_sums: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    exposures: np.ndarray = field(default_factory=lambda: np.empty(0))

    # What a Term says of itself, where code reads both.
    kind = "pair"
    grouped = False
    has_slopes = False

    def __post_init__(self):
        put = object.__setattr__
        for name in ("values", "weights", "counts", "exposures"):
            put(self, name, read_only(getattr(self, name)))
        put(self, "axes", tuple(self.axes))
        put(self, "labels", read_only(self.labels, np.int32))
        put(self, "target_sums", read_only(self.target_sums if np.size(self.target_sums) else np.empty((0, 0))))
        put(self, "loss_drop", float(self.loss_drop))
        put(self, "gain", float(self.gain))
        _check(self)

    def __reduce__(self):
        return PairTerm, tuple(getattr(self, f.name) for f in fields(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PairTerm):
            return NotImplemented
        return all(same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    def __hash__(self) -> int:
        return hash((self.name, self.columns, self.values.shape))

    def __repr__(self) -> str:
        n = self.n_pieces
        rectangles = "" if self.is_surface else f", {n} rectangle{'s' * (n != 1)}"
        return f"PairTerm({self.name!r}, {self.size_text}{rectangles})"

    @property
    def columns(self) -> tuple[int, ...]:  # type: ignore[override]
        """The indices of both columns of X, ascending."""
        return self.axes[0].column, self.axes[1].column

    @property
    def shape(self) -> tuple[int, int]:
        """The number of bins of both axes, with those of missing values."""
        return self.axes[0].n_bins, self.axes[1].n_bins

    @property
    def size_text(self) -> str:
        """The size of the grid in words."""
        return f"{self.shape[0]} x {self.shape[1]} cells"

    @property
    def n_outputs(self) -> int:
        """Score columns."""
        return 1 if self.values.ndim == 2 else self.values.shape[2]

    @property
    def missing_value(self) -> None:
        """None: missing values are bins of the axes."""
        return None

    @property
    def jumps(self) -> tuple[Jump, ...]:
        """None: a jump is a place on one column."""
        return ()

    @cached_property
    def all_values(self) -> np.ndarray:
        """The values, of shape (n_cells, n_outputs), row after row of the grid."""
        return self.values.reshape(self.weights.size, -1)

    @cached_property
    def importance(self) -> float:
        """The mean size of what the term adds, over rows and classes."""
        return float(self.weights.ravel() @ np.abs(self.all_values).mean(axis=1))

    @cached_property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest value."""
        return float(self.values.min()), float(self.values.max())

    @cached_property
    def n_pieces(self) -> int:
        """The number of rectangles."""
        return len(np.unique(self.labels))

    @property
    def is_surface(self) -> bool:
        """Whether every cell has a label of its own, in more than one row and column."""
        return min(self.shape) > 1 and self.n_pieces == self.labels.size

    @cached_property
    def pieces(self) -> tuple[Rectangle, ...]:
        """The rectangles, in the order of their first cells."""
        flat = self.labels.ravel()
        order = np.argsort(flat, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(flat[order])) + 1)
        return tuple(self._piece(cells) for cells in sorted(groups, key=lambda cells: cells[0]))

    def _piece(self, cells: np.ndarray) -> Rectangle:
        blocks = self._blocks(cells)
        common: dict[str, Any] = {
            "cells": tuple(cells.tolist()),
            "value": as_value(self.values[np.unravel_index(cells[0], self.shape)]),
            "weight": float(self.weights.ravel()[cells].sum()),
            "text": " or ".join(self._words(block) for block in blocks),
        }
        if len(blocks) > 1:
            nothing = (None, None)
            return Rectangle("cells", low=nothing, high=nothing, categories=nothing, has_missing=(False,) * 2, **common)
        (low_a, high_a), (low_b, high_b) = (axis.limits(bins) for axis, bins in self._sides(blocks[0]))
        categories = tuple(axis.levels_of(bins) for axis, bins in self._sides(blocks[0]))
        has_missing = tuple(bins[-1] >= axis.n_ordered for axis, bins in self._sides(blocks[0]))
        return Rectangle(
            "rectangle",
            low=(low_a, low_b),
            high=(high_a, high_b),
            categories=(categories[0], categories[1]),
            has_missing=(has_missing[0], has_missing[1]),
            **common,
        )

    def _sides(self, block: Block) -> list[tuple[Axis, list[int]]]:
        return list(zip(self.axes, block, strict=True))

    def _words(self, block: Block) -> str:
        sides = [text for axis, bins in self._sides(block) if (text := axis.words(bins))]
        return " and ".join(sides) or "everywhere"

    def _blocks(self, cells: np.ndarray) -> list[Block]:
        """The cells as few blocks, each all pairs of some bins of both axes that can be told as one range or group."""
        rows, columns = np.unravel_index(cells, self.shape)
        of_row: dict[int, list[int]] = {}
        for i, j in zip(rows.tolist(), columns.tolist(), strict=True):
            of_row.setdefault(i, []).append(j)
        alike: dict[tuple, list[int]] = {}
        for i, own in of_row.items():
            alike.setdefault(tuple(own), []).append(i)
        return [
            (part_a, part_b)
            for own, together in alike.items()
            for part_a in _tellable(self.axes[0], together)
            for part_b in _tellable(self.axes[1], list(own))
        ]

    def compressed(self) -> PairTerm:
        """The same function on the smallest grid: neighbouring bins with equal values and labels are merged.

        Bins of missing values stay apart.
        """
        axes, starts = list(self.axes), []
        for k in (0, 1):
            labels = np.moveaxis(self.labels, k, 0)[: axes[k].n_ordered]
            is_new = (labels[1:] != labels[:-1]).any(axis=1)  # cells with the same label have the same value
            own = np.flatnonzero(np.append(True, is_new))
            axes[k] = axes[k].merged(own)
            starts.append(np.append(own, len(labels)) if axes[k].has_missing else own)
        if (len(starts[0]), len(starts[1])) == self.shape:
            return self
        first = np.ix_(*starts)

        def total(cells: np.ndarray) -> np.ndarray:
            grid = cells.reshape(*self.shape, *cells.shape[1:])
            return np.add.reduceat(np.add.reduceat(grid, starts[0], axis=0), starts[1], axis=1)

        changes: dict[str, Any] = {name: total(getattr(self, name).ravel()) for name in ("weights", "counts")}
        if self.target_sums.size:
            changes["target_sums"] = total(self.target_sums).reshape(-1, self.target_sums.shape[1])
        if self.exposures.size:
            changes["exposures"] = total(self.exposures).ravel()
        return replace(self, axes=(axes[0], axes[1]), values=self.values[first], labels=self.labels[first], **changes)

    def numbered(self) -> PairTerm:
        """The grid with the values 1, 2, … in its cells: looking these up tells which cell a row is in."""
        numbers = np.arange(self.weights.size).reshape(self.shape)
        return replace(self, values=numbers + 1.0, labels=numbers)

    def edited(self, **changes) -> PairTerm:
        """A copy with other fields, of which the training loss and the gain are no longer known."""
        return replace(self, **{"loss_drop": math.nan, "gain": math.nan, **changes})


# Bins of the first axis, and bins of the second.
Block: TypeAlias = tuple[list[int], list[int]]

AnyTerm: TypeAlias = Term | PairTerm


def _tellable(axis: Axis, bins: list[int]) -> list[list[int]]:
    """The bins in parts that are one range each (of a category all in one); missing values join the last range."""
    if axis.groups is not None:
        return [bins]
    ordered = [k for k in bins if k < axis.n_ordered]
    parts = [list(range(a, b)) for a, b in runs_of_bins(ordered)] if ordered else [[]]
    parts[-1] += bins[len(ordered) :]
    return parts


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _check_axis(axis: Axis) -> None:
    """Raise a ValueError that names the column if the parts of an axis do not fit together."""
    if not isinstance(axis.name, str):
        raise ValueError(f"an axis is named {axis.name!r}; a name must be text")
    where = f"axis {axis.name!r}"
    if type(axis.column) is not int or axis.column < 0:
        raise ValueError(f"{where}: column is {axis.column!r}; it must be an integer of at least 0")
    if axis.edges.ndim != 1 or not np.isfinite(axis.edges).all():
        raise ValueError(f"{where}: edges has shape {axis.edges.shape}; it must be a vector of finite numbers")
    if (np.diff(axis.edges) <= 0).any():
        k = int(np.flatnonzero(np.diff(axis.edges) <= 0)[0])
        raise ValueError(f"{where}: edges {axis.edges[k]} and {axis.edges[k + 1]} at {k} do not increase")
    if axis.groups is None:
        return
    if axis.edges.size:
        raise ValueError(f"{where}: it has edges and groups; numbers have edges, categories groups")
    if not axis.groups or not all(axis.groups):
        raise ValueError(f"{where}: groups is {axis.groups!r:.60}; it must hold at least one group, none of them empty")
    if len(set(axis.levels)) < len(axis.levels):
        raise ValueError(f"{where}: a level occurs twice; levels must differ")


def _check(term: PairTerm) -> None:
    """Raise a ValueError that names the term if its parts do not fit together."""
    if not isinstance(term.name, str):
        raise ValueError(f"a term is named {term.name!r}; a name must be text")
    where = f"term {term.name!r}"
    if len(term.axes) != 2 or not all(isinstance(axis, Axis) for axis in term.axes):
        raise ValueError(f"{where}: axes is {term.axes!r:.60}; it must be a pair of Axis")
    if term.columns[0] >= term.columns[1]:
        raise ValueError(f"{where}: the axes look at the columns {term.columns}; they must increase")
    if term.values.shape[:2] != term.shape or term.values.ndim not in (2, 3) or 0 in term.values.shape:
        raise ValueError(
            f"{where}: values has shape {term.values.shape}; it must be {term.shape}, the bins of the axes, and with "
            f"classes have a third dimension"
        )
    for name in ("weights", "counts", "labels"):
        if getattr(term, name).shape != term.shape:
            raise ValueError(f"{where}: {name} has shape {getattr(term, name).shape}; it must be {term.shape}")
    n_cells = term.weights.size
    if term.target_sums.size and (term.target_sums.ndim != 2 or len(term.target_sums) != n_cells):
        raise ValueError(f"{where}: target_sums has shape {term.target_sums.shape}; it must have {n_cells} rows")
    if term.exposures.size and term.exposures.shape != (n_cells,):
        raise ValueError(f"{where}: exposures has shape {term.exposures.shape}; it must be ({n_cells},)")
    for name in ("values", "weights", "counts", "target_sums", "exposures"):
        if not np.isfinite(getattr(term, name)).all():
            raise ValueError(f"{where}: {name} holds a number that is not finite")
    for name in ("weights", "counts", "exposures", "labels"):
        if (getattr(term, name) < 0).any():
            raise ValueError(f"{where}: {name} must be at least 0")
    _, first, inverse = np.unique(term.labels, return_index=True, return_inverse=True)
    if (term.all_values != term.all_values[first[inverse.ravel()]]).any():
        raise ValueError(f"{where}: cells with the same label have two values")
