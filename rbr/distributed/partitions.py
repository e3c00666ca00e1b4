"""Partitions of Dask collections, and what a worker makes of them: facts about y, sketches, codes, parts.

A fit reads the partitions three times: y and the weights for the classes and the number of rows, X for the quantiles
and categories, and all of it for the codes. What should not be loaded or computed again each time is persisted by the
user.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rbr.data.binning import Binner
from rbr.data.design import BinnedMatrix
from rbr.data.passes import _check_bins, _checked
from rbr.data.sketches import LevelCounts, TableSketch
from rbr.data.sources import Block
from rbr.data.tables import open_table
from rbr.objective.parts_leaves import Part
from rbr.objective.values import ColumnValues


@dataclass(frozen=True)
class Partition:
    """One partition of X and what belongs to its rows, each a delayed object or None."""

    number: int
    X: Any
    y: Any
    weight: Any
    offset: Any

    @property
    def name(self) -> str:
        return f"partition {self.number}"


def is_frame(collection: Any) -> bool:
    """Whether a Dask collection has the partitions of a frame or series, and not the chunks of an array."""
    return hasattr(collection, "npartitions") and hasattr(collection, "divisions")


def partitions_of(X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> list[Partition]:
    """The partitions of collections that belong together."""
    from dask.base import is_dask_collection

    given = {"X": X, "y": y, "sample_weight": sample_weight, "offset": offset}
    for name, collection in given.items():
        if collection is None and name in ("sample_weight", "offset"):
            continue
        if not is_dask_collection(collection) or not (is_frame(collection) or hasattr(collection, "chunks")):
            raise TypeError(
                f"{name} is a {type(collection).__name__}; it must be a Dask array or dataframe. For data in memory "
                f"use RBRRegressor or RBRClassifier"
            )
    lengths = None
    if not is_frame(X):
        if X.ndim != 2:
            raise ValueError(f"X has {X.ndim} axes; it must have 2")
        X = X.rechunk({1: -1}) if len(X.chunks[1]) > 1 else X
        lengths = X.chunks[0]
    pieces: dict[str, list] = {}
    for name, collection in {**given, "X": X}.items():
        if collection is None:
            continue
        pieces[name] = _delayed(collection, lengths)
        if len(pieces[name]) != len(pieces["X"]):
            raise ValueError(
                f"{name} has {len(pieces[name])} partitions, and X has {len(pieces['X'])}; they must agree: "
                f"repartition or rechunk one of them"
            )
    nothing = [None] * len(pieces["X"])
    columns = [pieces.get(name, nothing) for name in ("X", "y", "sample_weight", "offset")]
    return [Partition(number, *own) for number, own in enumerate(zip(*columns, strict=True))]


def _delayed(collection: Any, lengths: tuple | None) -> list:
    if is_frame(collection):
        return list(collection.to_delayed())
    if collection.ndim > 1 and len(collection.chunks[1]) > 1:
        collection = collection.rechunk({1: -1})
    is_known = lengths is not None and not np.isnan([*lengths, *collection.chunks[0]]).any()
    if is_known and collection.chunks[0] != lengths and sum(collection.chunks[0]) == sum(lengths or ()):
        collection = collection.rechunk({0: lengths})
    return list(collection.to_delayed().ravel())


# On a worker -------------------------------------------------------------------------------------------------


def as_block(X: Any, y: Any, weight: Any, offset: Any, where: str) -> Block:
    """The rows of a partition that have a positive weight."""
    y, weight, offset = (None if a is None else _as_array(a) for a in (y, weight, offset))
    n_rows = X.shape[0]
    for name, array in (("y", y), ("sample_weight", weight), ("offset", offset)):
        if array is not None and len(array) != n_rows:
            raise ValueError(f"{where}: {name} has {len(array)} rows, and X has {n_rows}; they must agree")
    if y.ndim != 1:
        raise ValueError(f"{where}: y has shape {y.shape}; it must be one column")
    try:
        return _checked(Block(X, y, weight, offset, where))
    except ValueError as error:
        raise error if where in str(error) else ValueError(f"{where}: {error}") from None


def _as_array(column: Any) -> np.ndarray:
    array = np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


@dataclass(frozen=True, eq=False)
class Look:
    """What a partition says of its y: rows, and the weight of each class."""

    n_rows: int
    offset_shape: tuple[int, ...] | None
    classes: np.ndarray
    class_totals: np.ndarray


def look_at_targets(y: Any, weight: Any, offset: Any, targets: Any, where: str) -> Look:
    array = _as_array(y)
    block = as_block(np.arange(len(array)), array, weight, offset, where)
    n_rows = len(block.y)
    shape = None if block.offset is None else block.offset.shape[1:]
    classes, totals = np.empty(0), np.empty(0)
    if n_rows:
        targets.add(block.y, block.weight, where)
        if hasattr(targets, "classes"):
            classes, totals = targets.classes, targets.class_totals
    return Look(n_rows, shape, classes, totals)


@dataclass(frozen=True, eq=False)
class Sketched:
    """A sketch of some partitions, and the first row of X among them: its columns and their types."""

    sketch: TableSketch
    first: Any
    where: str


@dataclass(frozen=True, eq=False)
class Sketching:
    """How partitions are sketched; `first_row` is the number of a partition's first row among all n_rows."""

    binner: Binner
    n_rows: int
    targets: Any

    def __call__(self, X: Any, y: Any, weight: Any, offset: Any, first_row: int, where: str) -> Sketched:
        block = as_block(X, y, weight, offset, where)
        own = TableSketch(self.binner, first_row, self.n_rows)
        if not len(block.y):
            return Sketched(own, None, where)
        own.add(block.X, self.targets.weigh(block.weight, block.y), where)
        return Sketched(own, block.X.iloc[:1] if hasattr(block.X, "iloc") else block.X[:1], where)


@dataclass(frozen=True)
class Kinds:
    """The columns of a partition: their names, and of each whether it holds text, numbers, or nothing (None)."""

    names: tuple[str, ...] | None
    kinds: tuple[str | None, ...]

    def check(self, first: Kinds, where: str, where_first: str) -> None:
        """Raise a ValueError that names the partition whose columns are not those of the first."""
        if len(self.kinds) != len(first.kinds) or self.names != first.names:
            own, others = (k.names or tuple(f"x{j}" for j in range(len(k.kinds))) for k in (self, first))
            lacks, more = [n for n in others if n not in own], [n for n in own if n not in others]
            what = (
                f"lacks the columns {lacks}"
                if lacks
                else f"has the columns {more} too"
                if more
                else "has another order"
            )
            raise ValueError(f"{where} {what}, compared with {where_first}; all partitions must have the same columns")
        for j, (own_kind, first_kind) in enumerate(zip(self.kinds, first.kinds, strict=True)):
            if own_kind and first_kind and own_kind != first_kind:
                name = f"x{j}" if self.names is None else self.names[j]
                raise ValueError(
                    f"{where}: column {name!r} holds {own_kind}, and {first_kind} in {where_first}; a column must have "
                    f"one type. To read it as a category everywhere, name it in categorical_features"
                )


def kinds_of(sketched: Sketched) -> Kinds | None:
    """The columns of a partition; None if it has no rows."""
    if sketched.first is None:
        return None
    kinds = [
        None if column is None or column.is_empty else "text" if isinstance(column, LevelCounts) else "numbers"
        for column in sketched.sketch.columns
    ]
    return Kinds(sketched.sketch.names, tuple(kinds))


def merge_sketches(one: Sketched, other: Sketched) -> Sketched:
    """One of both, which stay as they are: they may be merged once more if a worker is lost."""
    sketch, following = copy.deepcopy((one.sketch, other.sketch))
    sketch.merge(following, other.where)
    return Sketched(sketch, other.first if one.first is None else one.first, one.where)


@dataclass(frozen=True, eq=False)
class Coded:
    """The rows of a partition as a part needs them; values by column, for those whose values are kept."""

    codes: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None
    offset: np.ndarray | None
    values: dict[int, np.ndarray]
    squares: float

    def __sizeof__(self) -> int:
        own = [self.codes, self.y, self.weight, self.offset, *self.values.values()]
        return sum(array.nbytes for array in own if array is not None)


def code(
    X: Any, y: Any, weight: Any, offset: Any, binner: Binner, targets: Any, columns: Sequence[int], where: str
) -> Coded:
    """The codes of a partition; `squares` is the sum of w^2 / c, c the user's weights and w those that count."""
    block = as_block(X, y, weight, offset, where)
    if not len(block.y):
        codes = np.empty((binner.n_features_in_, 0), dtype=np.uint8)
        return Coded(codes, np.empty(0), None, None, {}, 0.0)
    table = open_table(block.X)
    try:
        table.check_columns(binner.feature_names_in_, binner.n_features_in_, "the other partitions")
        codes = binner._codes(table)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{where}: {error}") from error
    _check_bins(codes, binner, where)
    counting = targets.weigh(block.weight, block.y)
    given = np.ones(len(block.y)) if block.weight is None else block.weight
    squares = 0.0 if counting is None else float(np.sum(counting**2 / given))
    values = {j: np.ascontiguousarray(table.numbers(j, j + 1)[:, 0], dtype=np.float64) for j in columns}
    return Coded(codes, targets.codes(block.y), counting, block.offset, values, squares)


class KeptColumns:
    """The values of some columns over the rows of a part; a table as `ColumnValues` reads it."""

    def __init__(self, values: dict[int, np.ndarray], n_rows: int):
        self._values, self.n_rows = values, n_rows

    def whole(self) -> None:
        """None: the columns are not one array."""

    def numbers(self, start: int, stop: int, rows: np.ndarray | None = None) -> np.ndarray:
        columns = [self._values[j] if rows is None else self._values[j][rows] for j in range(start, stop)]
        return np.stack(columns, axis=1)


@dataclass(frozen=True, eq=False)
class Assembly:
    """How a part is put together: the run of rows to take from each partition."""

    weights_kind: str
    first_leaf: int
    rows_per_leaf: int
    runs: tuple[tuple[int, int], ...]

    def __call__(self, binner: Binner, *coded: Coded) -> Part:
        def joined(arrays, axis=0):
            return None if arrays[0] is None else np.concatenate(arrays, axis=axis)

        def of(name):
            return joined([getattr(own, name)[a:b] for own, (a, b) in pairs] if has(name) else [None])

        def has(name):
            return getattr(coded[0], name) is not None

        pairs = list(zip(coded, self.runs, strict=True))
        codes = joined([own.codes[:, a:b] for own, (a, b) in pairs], axis=1)
        values = None
        if coded[0].values:
            columns = {j: joined([own.values[j][a:b] for own, (a, b) in pairs]) for j in coded[0].values}
            values = _values_of(columns, codes.shape[1])
        nothing = np.zeros(int(binner.offsets_[-1]))
        each = np.arange(len(codes), dtype=np.int64)[:, None]
        fields = codes, binner.offsets_, binner.missing_, binner.positions_, each, self.weights_kind, nothing
        design = BinnedMatrix._from_valid(*fields)
        rows = of("y"), of("weight"), of("offset"), values
        return Part(design, *rows, self.first_leaf, rows_per_leaf=self.rows_per_leaf)


def _values_of(columns: dict[int, np.ndarray], n_rows: int) -> ColumnValues:
    values = ColumnValues.__new__(ColumnValues)
    kept: Any = KeptColumns(columns, n_rows)
    values._table, values._rows = kept, None
    return values


def runs_of(n_rows: Sequence[int], first: int, last: int) -> list[tuple[int, int, int]]:
    """(partition, first, end) of the rows first to last - 1 of all."""
    starts = np.cumsum([0, *n_rows])
    runs = []
    for number, (start, end) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        a, b = max(first, start), min(last, end)
        if a < b:
            runs.append((number, a - start, b - start))
    return runs
