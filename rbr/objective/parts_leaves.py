"""Parts of the rows, and how functions are swept over their leaves: what runs where the rows are.

A function of a leaf takes the `Leaf`, then the leaf's slice of each array by row that it asked for, then its fixed
arguments. It returns an array by row, or sums; it is a function of a module, so that it can be sent to a worker.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from rbr.data.design import BinnedMatrix
from rbr.data.sampling import spread_rows
from rbr.data.store import reserve_room
from rbr.objective.keys import keys_of_rows, keys_with_values
from rbr.objective.parts_tree import Tree
from rbr.objective.rows import RowBlock
from rbr.objective.values import ColumnValues

ROWS_PER_LEAF = 1 << 16


@dataclass(frozen=True)
class Whole:
    """What every part knows of all rows.

    n_rows, n_total : their number, and the sum of their weights
    target_type : dtype of y, as the loss computes with it
    n_threads : of a sweep over one part
    """

    n_rows: int
    n_total: float
    target_type: Any = np.float64
    n_threads: int = 1


@dataclass(frozen=True, eq=False)
class Part:
    """A run of consecutive rows in whole leaves; see `rbr.objective.parts` for what it must hold.

    first_row : number of its first row among all rows
    ends : where each leaf ends, counted from the part's first row
    is_shifted, given_offset : as in `RowBlock`
    given : the part before its offsets or tables were changed, by which bags tell rows apart; None if this is it
    told_apart : columns whose values tell rows apart too, since offsets depend on them
    """

    design: BinnedMatrix
    y: np.ndarray
    weight: np.ndarray | None = None
    offset: np.ndarray | None = None
    values: ColumnValues | None = None
    first_leaf: int = 0
    scratch: str | None = None
    rows_per_leaf: int = ROWS_PER_LEAF
    first_row: int = -1
    ends: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    is_shifted: bool = False
    given_offset: np.ndarray | None = None
    given: Part | None = None
    told_apart: tuple[int, ...] = ()

    def __post_init__(self):
        if self.first_row < 0:
            object.__setattr__(self, "first_row", self.first_leaf * self.rows_per_leaf)
            n_leaves = -(-self.n_rows // self.rows_per_leaf)
            ends = np.minimum(np.arange(1, n_leaves + 1) * self.rows_per_leaf, self.n_rows)
            object.__setattr__(self, "ends", ends)

    @property
    def n_rows(self) -> int:
        return len(self.y)

    @property
    def as_given(self) -> Part:
        return self if self.given is None else self.given

    def __sizeof__(self) -> int:
        arrays = self.design.codes, self.y, self.weight, self.offset
        return sum(array.nbytes for array in arrays if array is not None)

    def empty(self, shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
        """Room for an array, in a file without a name if the part has a scratch directory."""
        if self.scratch is None or 0 in shape:
            return np.empty(shape, dtype)
        with tempfile.TemporaryFile(dir=self.scratch) as file:
            reserve_room(file, int(np.prod(shape)) * np.dtype(dtype).itemsize)
            return np.memmap(file, dtype, "w+", shape=shape)

    def by_row(self, n_rows: int, like: np.ndarray) -> np.ndarray:
        """Room for rows of the shape and type of others; each column is contiguous."""
        return self.empty((*like.shape[:0:-1], n_rows), like.dtype).T

    def leaves(self, whole: Whole) -> Iterator[Leaf]:
        """The leaves that have rows."""
        for k, end in enumerate(self.ends.tolist()):
            start = int(self.ends[k - 1]) if k else 0
            if end > start:
                yield Leaf(self, whole, self.first_leaf + k, start, end)


@dataclass(frozen=True, eq=False)
class Leaf:
    """The rows start to end - 1 of a part.

    target : where a function by row may write its answer, instead of an array of its own; None if it may not
    """

    part: Part
    whole: Whole
    number: int
    start: int
    end: int
    target: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        return self.end - self.start

    @property
    def n_threads(self) -> int:
        return self.whole.n_threads

    @property
    def rows(self) -> slice:
        return slice(self.start, self.end)

    @cached_property
    def codes(self) -> np.ndarray:
        """The codes of all tables: a view, which is not contiguous."""
        return self.part.design.codes[:, self.rows]

    def design(self) -> BinnedMatrix:
        """The design of the leaf."""
        return self._design_of(np.arange(self.part.design.n_features), np.ascontiguousarray(self.codes))

    def passing_design(self, tables: np.ndarray) -> BinnedMatrix:
        """The design of some tables alone: its n_coef are their bins, one table after the other.

        It serves look-ups and sums by bin, until the thread asks for the next one.
        """
        if len(tables) == self.part.design.n_features:
            return self._design_of(np.asarray(tables), self.codes)
        codes = _spare.room("codes", (len(tables), self.n_rows), self.codes.dtype)
        for out, j in zip(codes, np.asarray(tables).tolist(), strict=True):
            out[:] = self.codes[j]
        return self._design_of(np.asarray(tables), codes)

    def _design_of(self, tables: np.ndarray, codes: np.ndarray) -> BinnedMatrix:
        own = self.part.design
        offsets = np.concatenate([[0], np.cumsum(own.n_bins[tables])])
        nothing = np.empty(int(offsets[-1]))
        fields = codes, offsets, own.missing[tables], None, own.columns[tables], "counts", nothing
        return BinnedMatrix._from_valid(*fields)

    @cached_property
    def y(self) -> np.ndarray:
        return np.asarray(self.part.y[self.rows], dtype=self.whole.target_type)

    @cached_property
    def v(self) -> np.ndarray:
        if self.part.weight is None:
            return _equal_weights(self.part.rows_per_leaf, self.whole.n_total)[: self.n_rows]
        return np.asarray(self.part.weight[self.rows], dtype=np.float64) / self.whole.n_total

    def plus(self, raw: np.ndarray, intercept: Any) -> np.ndarray:
        """Scores with their intercept, until the thread asks for the next ones; each output is contiguous."""
        out = _spare.room("scores", raw.shape[::-1], np.dtype(np.float64)).T
        return np.add(raw, intercept, out=out)

    @property
    def offset(self) -> np.ndarray | None:
        return None if self.part.offset is None else np.asarray(self.part.offset[self.rows], dtype=np.float64)

    def need(self, columns: Sequence[int]) -> None:
        """Say which columns will be asked for."""
        if self.part.values is not None:
            self.part.values.need(columns)

    def column(self, j: int, rows: np.ndarray | None = None) -> np.ndarray:
        """The values of a column, over all rows of the leaf or some of them."""
        if self.part.values is None:
            raise ValueError("this part has no values of its columns")
        chosen = np.arange(self.start, self.end) if rows is None else self.start + rows
        return self.part.values.column(j, chosen)

    def sampled(self, n_sampled: int | None) -> np.ndarray | slice:
        """The leaf's rows in a sample of all rows; None takes all."""
        if n_sampled is None or n_sampled >= self.whole.n_rows:
            return slice(None)
        rows, first = spread_rows(self.whole.n_rows, n_sampled), self.part.first_row
        among = slice(*np.searchsorted(rows, [first + self.start, first + self.end]))
        return rows[among] - (first + self.start)

    def among_sampled(self, n_sampled: int | None) -> slice:
        """Where the leaf's rows lie in what is kept by row of a sample."""
        if n_sampled is None or n_sampled >= self.whole.n_rows:
            return self.rows
        rows, first = spread_rows(self.whole.n_rows, n_sampled), self.part.first_row
        origin, start, end = np.searchsorted(rows, [first, first + self.start, first + self.end])
        return slice(start - origin, end - origin)

    def keys(self, rows: np.ndarray | slice) -> np.ndarray:
        """What tells some rows of the leaf apart; see `RowBlock.keys`."""
        part, chosen = self.part.as_given, np.arange(self.start, self.end)[rows]
        offset = None if part.offset is None else part.offset[chosen]
        keys = keys_of_rows(part.design.codes[:, self.rows][:, rows], part.y[chosen], offset)
        values = part.values
        if values is None:
            return keys
        return keys_with_values(keys, (values.column(j, chosen) for j in self.part.told_apart))

    def block(self, rows: np.ndarray | slice = slice(None), with_values: bool = False) -> RowBlock:
        """Some rows of the leaf, copied into memory."""
        part, codes = self.part, np.ascontiguousarray(self.codes[:, rows])
        own, chosen = part.design, np.arange(self.start, self.end)[rows]
        design = BinnedMatrix._of_codes(codes, own.offsets, own.missing, own.positions, None, 1, own.columns, own.grids)
        return RowBlock(
            design.with_weights(own.weights_kind),
            self.y[rows],
            self.v[rows],
            None if self.offset is None else self.offset[rows],
            part.values.at(chosen) if with_values and part.values is not None else None,
            None if part.weight is None else np.asarray(part.weight[chosen], dtype=np.float64),
            part.is_shifted,
            None if part.given_offset is None else part.given_offset[chosen],
        )


class _Spare(threading.local):
    """Memory that a thread uses again for every leaf: fetching it from the system takes as long as using it."""

    def __init__(self):
        self._arrays: dict[str, np.ndarray] = {}

    def room(self, use: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        n_bytes = int(np.prod(shape)) * dtype.itemsize
        if use not in self._arrays or len(self._arrays[use]) < n_bytes:
            self._arrays[use] = np.empty(n_bytes, dtype=np.uint8)
        return self._arrays[use][:n_bytes].view(dtype).reshape(shape)


_spare = _Spare()


@lru_cache(maxsize=2)
def _equal_weights(n_rows: int, n_total: float) -> np.ndarray:
    weights = np.full(n_rows, 1.0 / n_total)
    weights.flags.writeable = False
    return weights


@dataclass(frozen=True, eq=False)
class Slices:
    """What a part keeps by row: an array of all its rows, or of those in a sample."""

    array: np.ndarray
    n_sampled: int | None = None

    def __sizeof__(self) -> int:
        return self.array.nbytes

    def of(self, leaf: Leaf) -> np.ndarray:
        return self.array[leaf.among_sampled(self.n_sampled)]


def _sweep(part: Part, whole: Whole, function: Callable, kept: Sequence[Slices], fixed: dict) -> Iterator[tuple]:
    """(leaf, answer) for each leaf that has rows."""
    for leaf in part.leaves(whole):
        yield leaf, function(leaf, *(own.of(leaf) for own in kept), **fixed)


def rows_of(part: Part, whole: Whole, function, kept, fixed: dict, n_sampled: int | None = None) -> Slices:
    """A function by row over a part."""
    out: np.ndarray | None = None
    n_rows = part.n_rows
    if n_sampled is not None and n_sampled < whole.n_rows:
        first, last = np.searchsorted(
            spread_rows(whole.n_rows, n_sampled), [part.first_row, part.first_row + part.n_rows]
        )
        n_rows = int(last - first)
    for leaf in part.leaves(whole):
        rows = leaf.among_sampled(n_sampled)
        if out is not None and out.ndim == 1:
            leaf = replace(leaf, target=out[rows])
        answer = function(leaf, *(own.of(leaf) for own in kept), **fixed)
        out = part.by_row(n_rows, answer) if out is None else out
        if leaf.target is None or not np.may_share_memory(answer, leaf.target):
            out[rows] = answer
    return Slices(np.empty(0) if out is None else out, n_sampled)


def sums_of(part: Part, whole: Whole, function, kept, fixed: dict) -> Tree:
    """The sums of a part's leaves; a function returns an array or a tuple of arrays."""
    tree = Tree()
    for leaf, answer in _sweep(part, whole, function, kept, fixed):
        tree.add(0, leaf.number, answer if isinstance(answer, tuple) else (answer,))
    return tree


def list_of(part: Part, whole: Whole, function, kept, fixed: dict) -> list:
    """The answers of a part's leaves, in their order."""
    return [answer for _, answer in _sweep(part, whole, function, kept, fixed)]


def shifted(part: Part, whole: Whole, scores: Slices, *, columns: tuple[int, ...] = ()) -> Part:
    """The part with scores of a part of the model added to its offsets; they depend on the values of some columns."""
    own = _with_offset(part, scores)
    offset = part.given_offset if part.is_shifted else part.offset
    told_apart = part.told_apart + columns
    return replace(own, is_shifted=True, given_offset=offset, given=part.as_given, told_apart=told_apart)


def _with_offset(part: Part, scores: Slices) -> Part:
    if part.offset is None:
        return replace(part, offset=scores.array)
    total = part.by_row(part.n_rows, scores.array)
    for start in range(0, part.n_rows, ROWS_PER_LEAF):
        rows = slice(start, start + ROWS_PER_LEAF)
        total[rows] = scores.array[rows] + part.offset[rows]
    return replace(part, offset=total)


def sampled_part(part: Part, whole: Whole, n_sampled: int) -> Part:
    """The part's rows in a sample; its leaves keep their numbers."""
    rows = spread_rows(whole.n_rows, n_sampled)
    first, last = np.searchsorted(rows, [part.first_row, part.first_row + part.n_rows])
    chosen, own = rows[first:last] - part.first_row, part.design
    codes = np.empty((own.n_features, len(chosen)), dtype=own.codes.dtype)
    np.take(own.codes, chosen, axis=1, out=codes, mode="clip")
    kept = own.offsets, own.missing, own.positions, own.columns, own.weights_kind, own.shares

    def at(array):
        return None if array is None else np.asfortranarray(array[chosen])

    return replace(
        part,
        design=BinnedMatrix._from_valid(codes, *kept, grids=own.grids),
        y=at(part.y),
        weight=at(part.weight),
        offset=at(part.offset),
        values=None if part.values is None else part.values.at(chosen),
        first_row=int(first),
        ends=np.searchsorted(chosen, part.ends),
        given_offset=at(part.given_offset),
        given=None,
        scratch=None,
    )
