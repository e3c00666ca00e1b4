"""The passes of a fit over a source: bins from a first one, codes from a second, and values when they are asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from rbr._checks import check_nonnegative
from rbr.data.binning import Binner
from rbr.data.sketches import TableSketch
from rbr.data.sources import Block, Source
from rbr.data.store import Store, name_of_values
from rbr.data.tables import open_table

SECONDS_BETWEEN_REPORTS = 2.0

# The values of all numeric columns are written in the second pass if they take no more than this, so that no further
# pass is needed; otherwise those of the columns that a model uses are read when they are asked for.
MAX_VALUES_BYTES = 1 << 30


class Targets(Protocol):
    """What an estimator wants to know of y, and what it makes of it."""

    def add(self, y: np.ndarray, weight: np.ndarray | None, where: str) -> None:
        """Look at the y of a block; an error names it."""

    def codes(self, y: np.ndarray) -> np.ndarray:
        """y as the solver takes it, once all blocks were seen."""

    def weigh(self, weight: np.ndarray | None, y: np.ndarray) -> np.ndarray | None:
        """The weights with which rows count, given those of the user."""


@dataclass(frozen=True)
class Progress:
    """How far a fit from blocks is.

    stage : "classes", "first pass", "second pass", "values" or "fit"
    n_rows : rows read so far; in a fit, the number of the iteration
    n_total : all rows, once they are known; None before
    seconds : since the stage began
    """

    stage: str
    n_rows: int
    n_total: int | None
    seconds: float

    def __str__(self) -> str:
        of_all = "" if self.n_total is None else f" of {self.n_total:,}"
        return f"{self.stage}: {self.n_rows:,}{of_all} rows, {self.seconds:.1f} s"


class Reader:
    """Reads a source block by block, and checks what it gives.

    Parameters
    ----------
    source : Source
    verbose : int
        1 prints every few seconds how far a pass is.
    callback : callable, optional
        Called with a `Progress` after each block.
    """

    def __init__(self, source: Source, verbose: int = 0, callback: Callable[[Progress], Any] | None = None):
        self.source, self.verbose, self.callback = source, verbose, callback
        self.n_rows: int | None = None  # of positive weight, as the first reading counts them

    def blocks(self, stage: str, names: Sequence[str] | None = None) -> Iterator[tuple[int, Block]]:
        """(number of the first row, block), without rows of weight zero; the number of rows must stay the same."""
        source = self.source if names is None else self.source.narrowed(names)
        start, said, n_read = time.perf_counter(), 0.0, 0
        for given in source.blocks():
            block = _checked(given)
            n_here = len(block.y)
            if self.n_rows is not None and n_read + n_here > self.n_rows:
                self._changed(f"more than {self.n_rows:,}", stage)
            if n_here:
                yield n_read, block
            n_read += n_here
            now = Progress(stage, n_read, self.n_rows, time.perf_counter() - start)
            if self.callback is not None:
                self.callback(now)
            if self.verbose and now.seconds - said >= SECONDS_BETWEEN_REPORTS:
                said = now.seconds
                print(now, flush=True)
        if self.n_rows is None:
            if not n_read:
                raise ValueError("the source has no rows of positive weight; at least one is needed")
            self.n_rows = n_read
        elif n_read != self.n_rows:
            self._changed(f"{n_read:,}", stage)
        if self.verbose:
            print(Progress(stage, n_read, self.n_rows, time.perf_counter() - start), flush=True)

    def _changed(self, n_now: str, stage: str) -> None:
        raise ValueError(
            f"the source gave {self.n_rows:,} rows when it was first read, and {n_now} in the {stage}; it must give "
            f"the same rows each time: an iterable must begin again, and files must not change during a fit"
        )


def _checked(block: Block) -> Block:
    """The rows of positive weight, whose weights and offsets are numbers."""
    n_rows = len(block.y)
    if block.offset is not None:
        given = np.asarray(block.offset, dtype=np.float64)
        if len(given) != n_rows or not np.isfinite(given).all():
            raise ValueError(f"{block.where}: offset must have a finite number for each of the {n_rows} rows")
        block = replace(block, offset=given)
    if block.weight is None:
        return block
    try:
        weight = check_nonnegative(block.weight, n_rows, "sample_weight")
    except ValueError as error:
        raise ValueError(f"{block.where}: {error}") from None
    if weight.all():
        return replace(block, weight=weight)
    rows = np.flatnonzero(weight)
    offset = None if block.offset is None else block.offset[rows]
    X = _rows_of(block.X, rows) if len(rows) else block.X
    return replace(block, X=X, y=block.y[rows], weight=weight[rows], offset=offset)


def _rows_of(X: Any, rows: np.ndarray) -> Any:
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X.take(rows) if hasattr(X, "schema") and hasattr(X, "take") else X[rows]


@dataclass(frozen=True, eq=False)
class Summary:
    """What the first pass has found.

    binner : Binner, fitted
    is_weighted : whether any block has weights
    offset_shape : the shape of a row's offset, () for a number; None without offsets
    """

    binner: Binner
    is_weighted: bool
    offset_shape: tuple[int, ...] | None


def first_pass(reader: Reader, binner: Binner, targets: Targets, looks_at_targets: bool) -> Summary:
    """Find the bins, and what the targets need to know, unless a pass before has told them."""
    sketch, shapes, is_weighted = TableSketch(binner), set(), False
    for _, block in reader.blocks("first pass"):
        if looks_at_targets:
            targets.add(block.y, block.weight, block.where)
        weight = block.weight if looks_at_targets else targets.weigh(block.weight, block.y)
        is_weighted |= weight is not None
        shapes.add(None if block.offset is None else block.offset.shape[1:])
        if len(shapes) > 1:
            raise ValueError(f"{block.where} has offsets of another shape than the blocks before; all must agree")
        sketch.add(block.X, weight, block.where)
    return Summary(sketch.fit(), is_weighted, shapes.pop())


def second_pass(reader: Reader, store: Store, summary: Summary, targets: Targets) -> tuple[float, float]:
    """Fill a store; returns the sums over rows of w^2 / c and of w, c the users' weights and w those that count."""
    binner, n_rows = summary.binner, store.n_rows
    store.allocate_codes(binner)
    y = store.allocate("y", (n_rows,), np.float64)
    weights = store.allocate("weight", (n_rows,), np.float64) if summary.is_weighted else None
    offsets = None
    if summary.offset_shape is not None:
        offsets = store.allocate("offset", (n_rows, *summary.offset_shape), np.float64)
    numeric = np.flatnonzero(~(binner.is_categorical_ | binner._is_excluded)).tolist()
    values = {}
    if 8 * n_rows * len(numeric) <= MAX_VALUES_BYTES:
        values = {j: store.allocate(name_of_values(j), (n_rows,), np.float64) for j in numeric}
    squares = total = 0.0
    for first, block in reader.blocks("second pass"):
        rows = slice(first, first + len(block.y))
        table = open_table(block.X)
        try:
            table.check_columns(binner.feature_names_in_, binner.n_features_in_, "the first pass")
            codes = binner._codes(table)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{block.where}: {error}") from error
        _check_bins(codes, binner, block.where)
        store.write_codes(first, codes)
        y[rows] = targets.codes(block.y)
        if weights is not None:
            counting = targets.weigh(block.weight, block.y)
            own = np.ones(len(block.y)) if block.weight is None else block.weight
            weights[rows] = own if counting is None else counting
            squares += float(np.sum(weights[rows] ** 2 / own))
            total += float(np.sum(weights[rows]))
        if offsets is not None:
            offsets[rows] = block.offset
        for j, column in values.items():
            column[rows] = table.numbers(j, j + 1)[:, 0]
    return squares, total


def _check_bins(codes: np.ndarray, binner: Binner, where: str) -> None:
    """Every row of training has a bin, unless the source has changed since the first pass."""
    without = codes.max(axis=1) >= binner.n_bins_
    if without.any():
        j = int(np.flatnonzero(without)[0])
        raise ValueError(
            f"{where}: column {binner.name_of(j)!r} has a category or a missing value that the first pass did not see; "
            f"the source must give the same rows each time"
        )


def load_values(reader: Reader, store: Store, columns: Sequence[int]) -> None:
    """Add the values of some columns to a store."""
    names = store.binner.feature_names_in_
    wanted = None if names is None else [names[j] for j in columns]
    arrays = {j: store.allocate(name_of_values(j), (store.n_rows,), np.float64) for j in columns}
    try:
        for first, block in reader.blocks("values", wanted):
            table = open_table(block.X)
            for j, out in arrays.items():
                place = j if names is None or table.names is None else table.names.index(names[j])
                out[first : first + len(block.y)] = table.numbers(place, place + 1)[:, 0]
    except BaseException:
        for j in columns:
            store.discard(name_of_values(j))
        raise
    store.keep()
