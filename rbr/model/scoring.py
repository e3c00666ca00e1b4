"""Scores of rows from the terms of a model: prepares the arrays for the kernel `score` and calls it.

Neighbouring bins of equal value, or of one line, are merged here, so a term of eight pieces is searched in three
halvings however many bins it has. Only the used columns of a table are read. Terms are added in the same order
for every kind of table, so that an array and a frame with the same numbers get the same scores to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rbr._backend import kernels
from rbr._parallel import over_ranges, resolve_n_jobs
from rbr.data.levels import UNSEEN, Categories
from rbr.data.tables import PlacedColumns, Table, few, open_table
from rbr.model.pairs import AnyTerm, PairTerm
from rbr.model.terms import Term
from rbr.model.unseen import Tally

if TYPE_CHECKING:
    from rbr.model.pair_scoring import PairRun

# Less work than this is not worth another thread.
MIN_ENTRIES_PER_THREAD = 100_000

_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


class Scorer:
    """The terms of a model, laid out for the kernel."""

    def __init__(self, terms: Sequence[AnyTerm], n_outputs: int):
        self.n_outputs = n_outputs
        self.parts: list[NumericRun | CategoryLookup | PairRun] = []
        mains = [term for term in terms if isinstance(term, Term)]
        pairs = [term for term in terms if isinstance(term, PairTerm)]
        start = 0
        for t, term in enumerate([*mains, None]):
            if term is None or term.kind == "category":
                if t > start:
                    self.parts.append(NumericRun(mains[start:t]))
                start = t + 1
                if term is not None:
                    self.parts.append(CategoryLookup(term))
        if pairs:
            from rbr.model.pair_scoring import PairRun

            self.parts.append(PairRun(pairs))
        self.only_numbers = len(self.parts) == 1 and isinstance(self.parts[0], NumericRun)

    def add_array(self, X: np.ndarray, out: np.ndarray, n_jobs: int | None, tally: Tally | None = None) -> None:
        """out[i] += the sum of the terms at row i of a float32 or float64 array, if all terms are numeric."""
        cast(NumericRun, self.parts[0]).add_array(X, out, n_jobs, tally)

    def add_table(self, table: Table, out: np.ndarray, n_jobs: int | None, tally: Tally | None = None) -> None:
        """out[i] += the sum of the terms at row i of any table with the right columns."""
        for part in self.parts:
            part.add_table(table, out, n_jobs, tally)


class NumericRun:
    """Neighbouring numeric terms as the flat arrays of the kernel `score`."""

    def __init__(self, terms: Sequence[Term]):
        self.terms = terms
        self.columns = np.array([column for (column,) in (term.columns for term in terms)], dtype=np.int64)
        steps = [merged_steps(term) for term in terms]
        self.arrays = padded(steps)
        self.one_by_one = [padded([own]) for own in steps]

    def add_array(self, X: np.ndarray, out: np.ndarray, n_jobs: int | None, tally: Tally | None) -> None:
        deal(n_jobs, len(self.columns), (X, self.columns, *self.arrays, out))
        if tally is not None:
            tally.add_array(self.terms, X)

    def add_table(self, table: Table, out: np.ndarray, n_jobs: int | None, tally: Tally | None) -> None:
        whole = table.whole()
        if whole is not None:
            self.add_array(whole, out, n_jobs, tally)
            return
        first = np.zeros(1, dtype=np.int64)
        for term, j, arrays in zip(self.terms, self.columns.tolist(), self.one_by_one, strict=True):
            numbers = table.numbers(j, j + 1)
            deal(n_jobs, 1, (numbers, first, *arrays, out))
            if tally is not None:
                tally.add_numbers(term, numbers[:, 0])


class CategoryLookup:
    """A categorical term as a table: what each category adds, then what an unknown and a missing one add."""

    def __init__(self, term: Term):
        self.term = term
        (self.column,) = term.columns
        self.categories = Categories(term.categories or ())
        values = term.values.reshape(term.n_ordered, -1)
        nothing = np.zeros((1, values.shape[1]))
        missing = nothing if term.missing_value is None else np.reshape(term.missing_value, (1, -1))
        self.table = np.concatenate([values, nothing, missing])

    def add_table(self, table: Table, out: np.ndarray, n_jobs: int | None, tally: Tally | None) -> None:
        levels, codes = table.levels(self.column)
        positions = np.array(self.categories.positions(levels, table.label(self.column)), dtype=np.int64)
        unknown = len(self.table) - 2
        # Missing values have the code -1, which selects the last entry.
        entries = np.append(np.where(positions == UNSEEN, unknown, positions), unknown + 1)
        values = self.table[entries]
        if out.shape[1] == 1:
            out[:, 0] += values[:, 0].take(codes)
        else:
            out += values[codes]
        if tally is not None:
            tally.add_levels(self.term, levels, positions, codes)


@dataclass(frozen=True, eq=False)
class Steps:
    """A numeric term as few pieces over ranges of x: value + slope * (x - anchor) between two edges.

    Piece k holds edges[k - 1] < x <= edges[k]. Where a line ends before its piece, a constant one follows.

    edges : (n - 1,)
    values, slopes : (n, n_outputs); a constant piece has the slope 0
    anchors : (n,)
    missing : (n_outputs,) the value of NaN
    """

    edges: np.ndarray
    values: np.ndarray
    slopes: np.ndarray
    anchors: np.ndarray
    missing: np.ndarray


def merged_steps(term: Term) -> Steps:
    """The pieces of a numeric term, with neighbouring bins of equal value, or of one line, merged."""
    values = np.array(term.values.reshape(term.n_ordered, -1))
    slopes = np.asarray(term.slopes).reshape(values.shape)
    on_line = np.any(slopes, axis=1)
    one_line = on_line[1:] & (term.labels[1:] == term.labels[:-1])
    one_value = ~on_line[1:] & ~on_line[:-1] & (values[1:] == values[:-1]).all(axis=1)
    starts = np.append(True, ~(one_line | one_value))
    firsts = np.flatnonzero(starts)
    anchors = np.zeros(len(firsts))
    for piece in np.flatnonzero(on_line[firsts]):
        bins = range(firsts[piece], firsts[piece + 1] if piece + 1 < len(firsts) else len(values))
        anchors[piece], values[firsts[piece]] = term.line(bins)
    missing = np.zeros(values.shape[1]) if term.missing_value is None else np.atleast_1d(term.missing_value)
    steps = Steps(term.edges[starts[1:]], values[firsts], slopes[firsts], anchors, missing)
    return _flat_beyond(steps, term.bounds[firsts]) if term.has_slopes else steps


def _flat_beyond(steps: Steps, bounds: np.ndarray) -> Steps:
    """The pieces with a constant one on each side at which a line ends before its piece does."""
    inner = np.concatenate([[-np.inf], steps.edges, [np.inf]])
    edges, values, slopes, anchors = [], [], [], []
    for k, (value, slope, anchor) in enumerate(zip(steps.values, steps.slopes, steps.anchors, strict=True)):
        low, high = bounds[k]
        parts = [(value, slope, anchor, inner[k + 1])]
        if slope.any() and low > inner[k]:
            parts.insert(0, (value + slope * (low - anchor), np.zeros_like(slope), 0.0, low))
        if slope.any() and high < inner[k + 1]:
            parts[-1] = (value, slope, anchor, high)
            parts.append((value + slope * (high - anchor), np.zeros_like(slope), 0.0, inner[k + 1]))
        for own, rise, place, end in parts:
            values.append(own)
            slopes.append(rise)
            anchors.append(place)
            edges.append(end)
    return Steps(np.array(edges[:-1]), np.array(values), np.array(slopes), np.array(anchors), steps.missing)


def padded(terms: Sequence[Steps]):
    """The arrays of some terms for the kernel, each padded to 2 ** m pieces."""
    edges: list = []
    values: list = []
    slopes: list = []
    anchors: list = []
    sizes = [0]
    for own in terms:
        n_pieces = 1 << int(len(own.values) - 1).bit_length()
        n_more = n_pieces - len(own.values)
        nothing = np.zeros_like(own.missing[None])
        edges.append(np.append(own.edges, np.full(n_more, np.inf)))
        values += [own.values, np.repeat(own.values[-1:], n_more, axis=0), own.missing[None]]
        slopes += [own.slopes, np.repeat(own.slopes[-1:], n_more, axis=0), nothing]
        anchors += [own.anchors, np.repeat(own.anchors[-1:], n_more), [0.0]]
        sizes.append(n_pieces - 1)
    has_lines = np.array([own.slopes.any() for own in terms], dtype=np.uint8)
    tables = (np.ascontiguousarray(np.concatenate(a)) for a in (values, slopes, anchors))
    return np.concatenate(edges), np.cumsum(sizes, dtype=np.int64), *tables, has_lines


def deal(n_jobs: int | None, n_terms: int, arrays: tuple) -> None:
    n_rows = len(arrays[0])
    n_threads = 1
    if n_jobs is not None or n_rows * n_terms >= 2 * MIN_ENTRIES_PER_THREAD:
        n_threads = max(1, min(resolve_n_jobs(n_jobs), n_rows * n_terms // MIN_ENTRIES_PER_THREAD))
    over_ranges(kernels().score, n_rows, n_threads, *arrays)


def is_plain(X: Any) -> bool:
    """Whether X is an array that the kernel can read without conversion."""
    return type(X) is np.ndarray and X.ndim == 2 and X.dtype in _FLOATS and len(X) > 0


def open_by_name(X: Any, names: tuple[str, ...] | None, n_features: int, used: Sequence[int], owner: str) -> Table:
    """The table behind X, with its columns in the places that they had in training.

    If both have names, columns are found by them: only the `used` ones must be there, anywhere, and others are ignored.
    Else they are found by position, and there must be as many as in training. A frame that counts its columns gives
    them the names "0", "1" and so on, and training that has counted them has used the same names, if those are in X.
    """
    table = open_table(X, unique_names=False)
    given = table.names
    counted = tuple(map(str, range(n_features)))
    if given is None and names is not None and table.has_dtypes and set(names) == set(counted):
        given = tuple(map(str, range(table.n_features)))
    elif given is not None and names is None and set(given) >= set(counted):
        names = counted
    if given is None or names is None:
        table.check_columns(None, n_features, owner)
        return table
    if given == names:
        return table
    places = {name: k for k, name in enumerate(given)}
    wanted = [names[j] for j in used]
    if absent := [name for name in wanted if name not in places]:
        raise ValueError(f"X has no column {few(absent)}; the model uses the columns {few(wanted)}, found by name")
    if len(places) < len(given) and (twice := [name for name in wanted if given.count(name) > 1]):
        raise ValueError(
            f"X has more than one column named {twice[0]!r}, which the model uses; column names must differ"
        )
    return PlacedColumns(table, names, n_features, {j: places[names[j]] for j in used})
