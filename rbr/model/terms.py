"""The terms of a fitted model: its tables, in the user's units.

A term is a function that a model adds to its score. Its `columns` say which columns of X it uses: one here, two in
rbr.model.pairs. It keeps a value for every bin of the fit, so that an edit can use the full resolution, and also the
pieces, which are what a person reads: neighbouring bins (or, for categories, any group of them) that share one value or
one line.

A line is value + slope * (x - anchor), evaluated at x. A bin stands at `positions`, the mean of its training rows, and
its value is that of the line there; so the mean of a term over the rows is its mean over the bins. Lines that were
drawn over ranks, or by an earlier version, have no slope: they are a staircase, one step per bin.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from rbr._text import one_line, short_numbers

KINDS = ("numeric", "category")

Value = float | tuple[float, ...]


def read_only(values: Any, dtype: Any = np.float64) -> np.ndarray:
    """A copy as a read-only array."""
    array = np.array(values, dtype=dtype, order="C")
    array.flags.writeable = False
    return array


def same(one: Any, other: Any) -> bool:
    """Equality of fields: arrays by dtype kind and entries, NaN equal to NaN."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        one, other = np.asarray(one), np.asarray(other)
        if one.shape != other.shape or one.dtype.kind != other.dtype.kind:
            return False
        return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (one != one and other != other)
    return type(one) is type(other) and one == other


class Record(tuple):
    """A tuple of small dataclasses of one type, which can be converted to a pandas frame."""

    __slots__ = ()

    def to_frame(self):
        """The records as a pandas DataFrame, one row each."""
        pandas = import_pandas("to_frame")
        return pandas.DataFrame([{f.name: getattr(row, f.name) for f in fields(row)} for row in self])


def import_pandas(what: str):
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f"{what} needs pandas: pip install pandas") from error
    return pandas


class HasColumns:
    """Adds `feature` to a class with `columns`: the older name, from when there was always one column."""

    columns: tuple[int, ...]

    @property
    def feature(self) -> int:
        """The one column; an AttributeError if there are more."""
        if len(self.columns) != 1:
            raise AttributeError(f"feature is the name of one column, and there are {self.columns}; read `columns`")
        return self.columns[0]


class HasRows:
    """Adds the training rows to a class with `counts`, `weights` and `target_sums` of its bins."""

    counts: np.ndarray
    weights: np.ndarray
    target_sums: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        """The training rows in each bin, by sample weight; without class weights where `target_sums` are known."""
        return self.target_sums.sum(axis=1) if self.target_sums.shape[1] > 1 else self.counts.ravel()

    @cached_property
    def shares(self) -> np.ndarray:
        """The share of the training rows in each bin; as `rows`, without class weights."""
        own = self.rows if self.target_sums.shape[1] > 1 else self.weights.ravel()
        return own / max(float(own.sum()), np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Piece:
    """A part of a term with one value, or one line.

    Attributes
    ----------
    kind : {"constant", "line", "level"}
        "level" is a group of bins that need not be neighbours, such as categories with the same effect.
    bins : tuple of int
        The bins of the term that form the piece.
    low, high : float or None
        The range low < x <= high of a numeric feature, in its units, with infinities at the ends; None for categories,
        and for a level that is no range.
    categories : tuple or None
    value : float, or a tuple with one float per class
        The value; for a line, the mean under the training weights, which is its value at the anchor.
    ends : pair of values
        The values at both ends of the piece, within the range of the training rows; they differ for lines only. For a
        staircase, those in the first and in the last bin.
    weight : float
        The share of the training rows.
    text : str
        The range in words, such as "(23.5, 27.5]".
    slope : float, or a tuple with one float per class
        How fast a line rises with x; 0 for constants and for the steps of a staircase.
    anchor : float or None
        The mean of the feature in a piece with a slope.
    """

    kind: str
    bins: tuple[int, ...] = field(repr=False)
    low: float | None
    high: float | None
    categories: tuple | None
    value: Value
    ends: tuple[Value, Value]
    weight: float
    text: str
    slope: Value = 0.0
    anchor: float | None = None

    @property
    def start(self) -> int:
        """The first bin."""
        return self.bins[0]

    @property
    def stop(self) -> int:
        """One past the last bin."""
        return self.bins[-1] + 1


@dataclass(frozen=True)
class Jump:
    """A jump of a numeric term, between two of its pieces.

    Attributes
    ----------
    term : str
    output : int or None
        Which class's table jumps, in a model of several score columns.
    edge : int
        The jump lies at `edges[edge]` of the term.
    place : float
        The same in the feature's units: the value left of the jump holds up to and including this place.
    size : float
        The value right of the jump minus the one left of it.
    low, high : float
        The first and the last of the equally good places: edges between the neighbouring jumps at which the training
        loss would be higher by at most 2 * dispersion / n. NaN if not known, as after an edit.
    loss_without : float
        The training loss if the two pieces beside the jump were one, refitted. NaN if not known.
    """

    term: str
    output: int | None
    edge: int
    place: float
    size: float
    low: float
    high: float
    loss_without: float


@dataclass(frozen=True, eq=False)
class Term(HasRows, HasColumns):
    """A function that an additive model adds to its score.

    Attributes
    ----------
    name : str
        The column name, or "x3" for column 3 of a table without names.
    columns : tuple of int
        The indices of the columns of X that the term uses. Both kinds use exactly one, which may be given as an int;
        `feature` is that one.
    kind : {"numeric", "category"}
    edges : array of shape (n_ordered - 1,)
        Bin k of a numeric feature is edges[k - 1] < x <= edges[k]; empty for categories.
    categories : tuple or None
        The categories in the order of their bins; None for a numeric feature.
    values : array of shape (n_ordered,) or (n_ordered, n_classes)
        What each bin adds to the score, without the bin of missing values; in a line, at the bin's position.
    missing_value : None, float, or array of shape (n_classes,)
        What a missing value adds; None if training had none, and then it adds 0.
    weights : array of shape (n_bins,)
        The share of the training rows in each bin; the last is that of missing values if there were any. Class weights
        count; `shares` are without them.
    counts : array of shape (n_bins,)
        The sum of the sample and class weights in each bin: the number of rows if there were none; see `rows`.
    positions : array of shape (n_ordered,)
        The mean of the feature in each bin; for categories their index.
    labels : int array of shape (n_ordered,)
        The piece of each bin, as 2 * piece + is_line. With classes, two bins share a piece if they do in every class.
    grouped : bool
        Whether the pieces are levels, which need not be neighbours.
    loss_drop : float
        How far the training loss rises without this term, with the intercept refitted. NaN if not known, as after an
        edit.
    jump_facts : array of shape (n_jumps, 5)
        For each jump, what `jumps` reports besides its size: output (-1 without classes), edge, first and last equally
        good edge, loss_without.
    slopes : array of the shape of values
        How fast the term rises with x within each bin: the same number in all bins of a line, 0 elsewhere. Zeros if
        they are not given.
    bounds : array of shape (n_ordered, 2)
        The smallest and the largest x that the line of each bin reaches; beyond, it keeps its value there. Infinite
        where it reaches to the end of its piece, and outside of lines.
    target_sums : array of shape (n_bins, 1), with classes (n_bins, n_classes), or empty
        The sum of the target over the training rows of each bin, by sample weight; with classes the rows of each class,
        without class weights. Empty if not known, as in a model from an earlier file.
    exposures : array of shape (n_bins,), or empty
        The sum of exp(offset) over the training rows of each bin, for a log link. Empty without offsets.
    """

    name: str
    columns: tuple[int, ...]
    kind: str
    edges: np.ndarray
    categories: tuple | None
    values: np.ndarray
    missing_value: None | float | np.ndarray
    weights: np.ndarray
    counts: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    grouped: bool = False
    loss_drop: float = math.nan
    jump_facts: np.ndarray = field(default_factory=lambda: np.empty((0, 5)))
    slopes: np.ndarray = field(default_factory=lambda: np.empty(0))
    bounds: np.ndarray = field(default_factory=lambda: np.empty(0))
    target_sums: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    exposures: np.ndarray = field(default_factory=lambda: np.empty(0))

    def __post_init__(self):
        put = object.__setattr__
        for name in ("edges", "values", "weights", "counts", "positions", "exposures"):
            put(self, name, read_only(getattr(self, name)))
        put(self, "slopes", read_only(self.slopes if np.size(self.slopes) else np.zeros_like(self.values)))
        put(self, "target_sums", read_only(self.target_sums if np.size(self.target_sums) else np.empty((0, 0))))
        no_bounds = np.tile([-math.inf, math.inf], (len(self.values), 1))
        put(self, "bounds", read_only(self.bounds if np.size(self.bounds) else no_bounds))
        put(self, "labels", read_only(self.labels, np.int32))
        put(self, "jump_facts", read_only(np.reshape(self.jump_facts, (-1, 5))))
        put(self, "grouped", bool(self.grouped))
        put(self, "columns", tuple(np.atleast_1d(self.columns).tolist()))
        put(self, "loss_drop", float(self.loss_drop))
        if self.missing_value is not None:
            value = self.missing_value
            put(self, "missing_value", float(value) if self.values.ndim == 1 else read_only(value))
        if self.categories is not None:
            items = (c.item() if isinstance(c, np.generic) else c for c in self.categories)
            put(self, "categories", tuple(items))
        _check(self)

    def __reduce__(self):
        return Term, tuple(getattr(self, f.name) for f in fields(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Term):
            return NotImplemented
        return all(same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    def __hash__(self) -> int:
        return hash((self.name, self.columns, self.kind, len(self.values)))

    def __repr__(self) -> str:
        missing = "" if self.missing_value is None else ", missing"
        n = self.n_pieces
        return f"Term({self.name!r}, {self.kind}, {n} piece{'s' * (n != 1)}{missing})"

    @property
    def n_ordered(self) -> int:
        """The number of bins, not counting the one of missing values."""
        return len(self.values)

    @property
    def n_outputs(self) -> int:
        """Score columns."""
        return 1 if self.values.ndim == 1 else self.values.shape[1]

    @cached_property
    def all_values(self) -> np.ndarray:
        """`values`, followed by the value of missing values if training had any; of shape (n_bins, n_outputs)."""
        values = self.values.reshape(len(self.values), -1)
        if self.missing_value is None:
            return values
        return np.concatenate([values, np.reshape(self.missing_value, (1, -1))])

    @cached_property
    def importance(self) -> float:
        """The mean size of what the term adds, over rows and classes; a line counts by the means of its bins."""
        return float(self.weights @ np.abs(self.all_values).mean(axis=1))

    @cached_property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest value, including that of missing values."""
        ends = [np.ravel(piece.ends) for piece in self.pieces]
        values = np.concatenate([self.all_values.ravel(), *ends])
        return float(values.min()), float(values.max())

    @cached_property
    def has_slopes(self) -> bool:
        """Whether some piece is a line in x."""
        return bool(np.any(self.slopes))

    def line(self, bins: Sequence[int] | np.ndarray) -> tuple[float, np.ndarray]:
        """(anchor, value there) of the line that some neighbouring bins share: the means over their training rows."""
        bins = np.asarray(bins)
        weights = self.weights[bins]
        total = weights.sum()
        if total == 0:
            weights, total = np.ones(len(bins)), float(len(bins))
        anchor, value = (np.multiply(a[bins].T, weights).sum(axis=-1) / total for a in (self.positions, self.values))
        return float(anchor), value

    @cached_property
    def n_pieces(self) -> int:
        """The number of pieces; to count them takes no words for them."""
        return len(np.unique(self.labels))

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces, from left to right; levels from the lowest value to the highest."""
        groups: dict[int, list[int]] = {}
        for k, label in enumerate(self.labels.tolist()):
            groups.setdefault(label, []).append(k)
        found = list(groups.items())
        if self.grouped:
            found.sort(key=lambda item: tuple(np.atleast_1d(self.values[item[1][0]])))
        texts = self.texts([bins for _, bins in found])
        return tuple(self._piece(label, bins, text) for (label, bins), text in zip(found, texts, strict=True))

    def _piece(self, label: int, bins: list[int], text: str) -> Piece:
        is_range = bins[-1] - bins[0] + 1 == len(bins)
        low = high = None
        if self.kind == "numeric" and is_range:
            low = float(self.edges[bins[0] - 1]) if bins[0] > 0 else -math.inf
            high = float(self.edges[bins[-1]]) if bins[-1] < len(self.edges) else math.inf
        first, last = as_value(self.values[bins[0]]), as_value(self.values[bins[-1]])
        value, slope, anchor = first, as_value(self.slopes[bins[0]]), None
        if label % 2:
            x0, mean = self.line(bins)
            value = as_value(mean)
            if np.any(self.slopes[bins[0]]):
                anchor = x0
                ends = np.clip([low, high], *self.bounds[bins[0]])
                first, last = (as_value(mean + self.slopes[bins[0]] * (x - x0)) for x in ends)
        return Piece(
            kind="line" if label % 2 else "level" if self.grouped else "constant",
            bins=tuple(bins),
            low=low,
            high=high,
            categories=None if self.categories is None else tuple(self.categories[k] for k in bins if self.categories),
            value=value,
            ends=(first, last),
            weight=float(self.weights[bins].sum()),
            text=text,
            slope=slope,
            anchor=anchor,
        )

    def texts(self, groups: Sequence[Sequence[int]]) -> list[str]:
        """Groups of bins in words, each on one line."""
        if self.kind == "category":
            names = [one_line(c) for c in self.categories or ()] or ["no category"]
            return [", ".join(names[k] for k in bins) for bins in groups]
        runs = [_runs(bins) for bins in groups]
        cuts = sorted({start for group in runs for start, _ in group} - {0})
        short = dict(zip(cuts, short_numbers(self.edges[np.array(cuts, dtype=np.int64) - 1]), strict=True))
        return [", ".join(_interval(short.get(a), short.get(b)) for a, b in group) for group in runs]

    @property
    def jumps(self) -> tuple[Jump, ...]:
        """The jumps between the pieces of a numeric term; with classes, those in the table of each class."""
        if self.kind != "numeric":
            return ()
        facts = {(int(output), int(edge)): rest for output, edge, *rest in self.jump_facts.tolist()}
        jumps = []
        for c in range(self.n_outputs):
            output = None if self.values.ndim == 1 else c
            for k in np.flatnonzero(np.diff(self.labels)).tolist():
                known = facts.get((-1 if output is None else c, k))
                size = self._size(k, c)
                if output is not None and (size == 0 or (facts and known is None)):
                    continue  # only another class jumps here
                low, high, loss_without = known or (math.nan,) * 3
                if known:
                    low, high = float(self.edges[int(low)]), float(self.edges[int(high)])
                jumps.append(Jump(self.name, output, k, float(self.edges[k]), size, low, high, loss_without))
        return tuple(jumps)

    def _size(self, k: int, c: int) -> float:
        """How far output c jumps at edge k: between bin k and the next, each followed to the edge along its line."""
        left, right = self._at_edge(k, k, c), self._at_edge(k + 1, k, c)
        return right - left

    def _at_edge(self, k: int, edge: int, c: int) -> float:
        """The value of bin k, of output c, at an edge beside it."""
        value, slope = (a.reshape(len(self.values), -1)[k, c] for a in (self.values, self.slopes))
        return float(value + slope * (self.edges[edge] - self.positions[k])) if slope else float(value)

    def edited(self, **changes) -> Term:
        """A copy with other fields, whose training losses are no longer known. Bins with other values lose slopes."""
        if "values" in changes and "slopes" not in changes:
            kept = np.asarray(changes["values"]) == self.values
            changes["slopes"] = np.where(kept, self.slopes, 0.0)
        if "slopes" in changes and "bounds" not in changes:
            is_line = np.any(np.reshape(changes["slopes"], (len(self.values), -1)), axis=1)
            changes["bounds"] = np.where(is_line[:, None], self.bounds, [-math.inf, math.inf])
        return replace(self, **{"loss_drop": math.nan, "jump_facts": np.empty((0, 5)), **changes})


def place_of(term: HasColumns) -> tuple[int, tuple[int, ...]]:
    """The sort key of the terms of a model: those with fewer columns first, and then by column."""
    return len(term.columns), term.columns


def column_name(column: int, names: Sequence[str] | None) -> str:
    """The name of a column: from `names`, or "x3" for column 3 if there are none."""
    return f"x{column}" if names is None else names[column]


def as_value(value: Any) -> Value:
    """A value as a float, or as a tuple of one per class."""
    return tuple(value.tolist()) if np.ndim(value) else float(value)


def _runs(bins: Sequence[int]) -> list[tuple[int, int]]:
    """The runs start <= k < stop of neighbours in an ascending list."""
    cuts = [i for i in range(1, len(bins)) if bins[i] != bins[i - 1] + 1]
    return [(bins[a], bins[b - 1] + 1) for a, b in zip([0, *cuts], [*cuts, len(bins)], strict=True)]


def _interval(low: str | None, high: str | None) -> str:
    if low is None:
        return "any number" if high is None else f"<= {high}"
    return f"> {low}" if high is None else f"({low}, {high}]"


def relabel(old: Term, values: np.ndarray) -> np.ndarray:
    """Labels of new values: lines whose values did not change stay lines, elsewhere runs of equal values are pieces."""
    columns = np.reshape(values, (len(values), -1))
    unchanged = (columns == old.values.reshape(columns.shape)).all(axis=1)
    keys: list = [
        int(label) if label % 2 and kept else tuple(row)
        for label, kept, row in zip(old.labels, unchanged, columns.tolist(), strict=True)
    ]
    return labels_of_runs(keys)


def labels_of_runs(keys: Sequence) -> np.ndarray:
    """2 * piece + is_line for runs of equal keys; an int key stands for a line."""
    labels, piece = [], -1
    for k, key in enumerate(keys):
        piece += k == 0 or key != keys[k - 1]
        labels.append(2 * piece + isinstance(key, int))
    return np.array(labels, dtype=np.int32)


def labels_of_equal_rows(rows: np.ndarray) -> np.ndarray:
    """2 * piece for runs of equal rows."""
    differs = (rows[1:] != rows[:-1]).any(axis=1)
    return np.append(0, 2 * np.cumsum(differs)).astype(np.int32)[: len(rows)]


def labels_of_groups(keys: Iterable) -> np.ndarray:
    """2 * group for equal keys anywhere."""
    index: dict = {}
    return np.array([2 * index.setdefault(key, len(index)) for key in keys], dtype=np.int32)


def _check(term: Term) -> None:
    """Raise a ValueError that names the term if its parts do not fit together."""
    where = f"term {term.name!r}"
    if not isinstance(term.name, str):
        raise ValueError(f"a term is named {term.name!r}; a name must be text")
    if term.kind not in KINDS:
        raise ValueError(f"{where}: kind is {term.kind!r}; it must be 'numeric' or 'category'")
    if any(type(j) is not int or j < 0 for j in term.columns):
        raise ValueError(f"{where}: columns is {term.columns!r}; it must hold integers of at least 0")
    if len(term.columns) != 1:
        raise ValueError(
            f"{where}: columns is {term.columns!r}; a term of kind {term.kind!r} looks at exactly one column"
        )
    if term.values.ndim not in (1, 2) or 0 in term.values.shape:
        raise ValueError(f"{where}: values has shape {term.values.shape}; it must be (bins,) or (bins, classes)")
    n_ordered = len(term.values)
    n_bins = n_ordered + (term.missing_value is not None)
    lengths = {"weights": n_bins, "counts": n_bins, "positions": n_ordered, "labels": n_ordered}
    lengths["edges"] = n_ordered - 1 if term.kind == "numeric" else 0
    for name, length in lengths.items():
        if getattr(term, name).shape != (length,):
            raise ValueError(f"{where}: {name} has shape {getattr(term, name).shape}; it must be ({length},)")
    if (term.categories is None) != (term.kind == "numeric"):
        raise ValueError(f"{where}: categories go with the kind 'category'; the kind is {term.kind!r}")
    if term.categories is not None:
        if max(len(term.categories), 1) != n_ordered:
            raise ValueError(f"{where}: it has {len(term.categories)} categories, but {n_ordered} values")
        if len(set(term.categories)) < len(term.categories):
            raise ValueError(f"{where}: a category occurs twice; categories must differ")
    if term.missing_value is not None and np.shape(term.missing_value) != term.values.shape[1:]:
        raise ValueError(f"{where}: missing_value has shape {np.shape(term.missing_value)}, values {term.values.shape}")
    _check_slopes(term, where)
    if term.target_sums.size and (term.target_sums.ndim != 2 or len(term.target_sums) != n_bins):
        raise ValueError(f"{where}: target_sums has shape {term.target_sums.shape}; it must have {n_bins} rows")
    if term.exposures.size and term.exposures.shape != (n_bins,):
        raise ValueError(f"{where}: exposures has shape {term.exposures.shape}; it must be ({n_bins},)")
    for name in ("edges", "all_values", "weights", "counts", "positions", "target_sums", "exposures"):
        if not np.isfinite(getattr(term, name)).all():
            raise ValueError(f"{where}: {name.removeprefix('all_')} holds a number that is not finite")
    if (np.diff(term.edges) <= 0).any():
        k = int(np.flatnonzero(np.diff(term.edges) <= 0)[0])
        raise ValueError(f"{where}: edges {term.edges[k]} and {term.edges[k + 1]} at {k} do not increase")
    for name in ("weights", "counts", "exposures"):
        if (getattr(term, name) < 0).any():
            raise ValueError(f"{where}: {name} must be at least 0")
    if (term.labels < 0).any():
        raise ValueError(f"{where}: labels must be at least 0")
    if not term.grouped and len(np.unique(term.labels)) != 1 + np.count_nonzero(np.diff(term.labels)):
        raise ValueError(f"{where}: labels give a piece that is not a run of neighbouring bins")
    columns = term.values.reshape(n_ordered, -1)
    _, first, inverse = np.unique(term.labels, return_index=True, return_inverse=True)
    constant = term.labels % 2 == 0
    if (columns[constant] != columns[first[inverse]][constant]).any():
        raise ValueError(f"{where}: a constant piece has two values")


def _check_slopes(term: Term, where: str) -> None:
    """Raise a ValueError unless slopes belong to lines of a numeric term, whose values lie on them."""
    slopes = np.asarray(term.slopes)
    if slopes.shape != term.values.shape or not np.isfinite(slopes).all():
        raise ValueError(f"{where}: slopes has shape {slopes.shape}; it must be finite, of shape {term.values.shape}")
    if term.bounds.shape != (len(slopes), 2):
        raise ValueError(f"{where}: bounds has shape {term.bounds.shape}; it must be ({len(slopes)}, 2)")
    if not slopes.any():
        return
    if term.kind != "numeric" or term.grouped:
        raise ValueError(f"{where}: a term of kind {term.kind!r} has slopes; only pieces over ranges of numbers have")
    for label in np.unique(term.labels[slopes.reshape(len(slopes), -1).any(axis=1)]):
        bins = np.flatnonzero(term.labels == label)
        own = slopes[bins]
        if label % 2 == 0 or (own != own[0]).any():
            raise ValueError(f"{where}: a piece has more than one slope, or is constant and has one")
        low, high = term.bounds[bins[0]]
        reaches_end = low == -math.inf and bins[0] == 0 or high == math.inf and bins[-1] == len(slopes) - 1
        if (term.bounds[bins] != term.bounds[bins[0]]).any() or not low <= high or reaches_end:
            raise ValueError(f"{where}: the line of a piece needs bounds in order, finite at the ends of the term")
        anchor, value = term.line(bins)
        rise = np.multiply.outer(term.positions[bins] - anchor, own[0]).reshape(own.shape)
        # At 1e9 the distance of a position from the anchor has few digits.
        size = np.abs(term.values[bins]).max() + np.abs(rise).max() + np.abs(own[0] * anchor * 1e-6).max()
        if np.abs(value + rise - term.values[bins]).max() > 1e-9 * size:
            raise ValueError(f"{where}: the values of a piece do not lie on its line")
