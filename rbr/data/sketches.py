"""What a first pass over blocks of rows must know to cut columns into bins: mergeable, and small whatever n is.

`TableSketch` takes blocks of rows one after the other (`add`), or takes over what another one has seen (`merge`, for
partitions that are read elsewhere), and then fits a `Binner` as if it had seen all rows at once (`fit`).

Numbers. The rows whose numbers are kept are those that `Binner.fit` would use: all of them up to MAX_EXACT_ROWS, and of
more a sample that is drawn by the numbers of the rows (`rbr.data.sampling.thinned_rows`) and thinned as they come. So
the edges are those of the table in memory, whatever the blocks. Only where rows of a wide table take more than
MAX_KEPT_BYTES is the sample smaller. Whether a column has missing values all rows tell.

Categories are counted by level. Blocks may have different levels; levels of different types, such as the text "1" and
the number 1, are an error, and so is a column that holds text in one block and numbers in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from rbr._checks import check_nonnegative
from rbr.data.binning import Binner
from rbr.data.choices import MAX_BINS, generator_of, max_bins_of, which_categorical, which_excluded
from rbr.data.cutting import SampledRows, n_sample_of, sample_level, seed_of
from rbr.data.sampling import level_of, thinned_rows
from rbr.data.tables import Table, in_order, open_table

# The numbers that are kept of all columns take at most about this many bytes, as float64.
MAX_KEPT_BYTES = 256 << 20


class KeptNumbers:
    """The numbers of a column in the rows that are kept, NaN where they are missing.

    Attributes
    ----------
    has_missing, is_empty : whether any row at all has no value, and whether none has one

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.data.sketches import KeptNumbers
    >>> column = KeptNumbers()
    >>> column.add(np.array([1.0, 2.0, np.nan]), np.array([0, 1]))
    >>> column.values(), column.has_missing, column.is_empty
    (array([1., 2.]), True, False)
    """

    def __init__(self, n_missing: int = 0):
        self.has_missing, self.is_empty = n_missing > 0, True
        self._blocks = [np.full(n_missing, np.nan, dtype=np.float32)]

    def add(self, values: np.ndarray, kept: np.ndarray) -> None:
        """Add rows, of which some are kept."""
        missing = np.isnan(values)
        self.has_missing |= bool(missing.any())
        self.is_empty &= bool(missing.all())
        self._blocks.append(values[kept])

    def merge(self, other: KeptNumbers) -> None:
        """Add the rows that another one has seen."""
        self.has_missing |= other.has_missing
        self.is_empty &= other.is_empty
        self._blocks += other._blocks

    def thin(self, kept: np.ndarray) -> None:
        """Keep only some of the rows that were kept so far."""
        self._blocks = [self.values()[kept]]

    def values(self) -> np.ndarray:
        return np.concatenate(self._blocks)


class LevelCounts:
    """The levels of a category, with the number of rows that have each.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.data.sketches import LevelCounts
    >>> counts = LevelCounts()
    >>> counts.add(["b"], np.array([0, 0]), "column 'k'", "block 0")
    >>> counts.add(["a", "c"], np.array([0, -1]), "column 'k'", "block 1")
    >>> counts.levels(), counts.has_missing
    (['a', 'b'], True)
    """

    def __init__(self) -> None:
        self.counts: dict[Any, int] = {}
        self.has_missing = False
        self._order: tuple | None = None
        self._is_one_order = True

    @property
    def is_empty(self) -> bool:
        return not any(self.counts.values())

    def add(self, levels: list, codes: np.ndarray, label: str, where: str) -> None:
        """Add rows: their levels in order, and the index of each row's level, -1 for none."""
        n_rows = np.bincount(codes + 1, minlength=len(levels) + 1)
        self.has_missing |= bool(n_rows[0])
        self._merge(tuple(levels), dict(zip(levels, n_rows[1:].tolist(), strict=True)), label, where)

    def merge(self, other: LevelCounts, label: str, where: str) -> None:
        """Add the rows that another one has seen."""
        self.has_missing |= other.has_missing
        self._is_one_order &= other._is_one_order
        self._merge(other._order, other.counts, label, where)

    def _merge(self, order: tuple | None, n_rows: dict[Any, int], label: str, where: str) -> None:
        present = [level for level, n in n_rows.items() if n]
        kinds = {_kind(level): level for level in (*present, *(k for k, n in self.counts.items() if n))}
        if len(kinds) > 1:
            one, other = list(kinds.values())[:2]
            raise ValueError(
                f"{label} has the level {one!r} of type {type(one).__name__} in {where}, and {other!r} of type "
                f"{type(other).__name__} elsewhere; the levels of a category must have one type"
            )
        if present:
            self._is_one_order &= self._order in (None, order)
            self._order = order if self._order is None else self._order
        for level, n in n_rows.items():
            self.counts[level] = self.counts.get(level, 0) + n
        if sum(map(bool, self.counts.values())) > MAX_BINS:
            raise ValueError(
                f"{label} has more than {MAX_BINS} categories in the blocks up to {where}; a feature must have at most "
                f"{MAX_BINS}"
            )

    def levels(self) -> list:
        """The levels that occur: in the order that all blocks have in common, or else sorted."""
        if self._is_one_order:
            return [level for level in self._order or () if self.counts[level]]
        present = [level for level, n in self.counts.items() if n]
        return in_order(present, np.empty(0, dtype=np.int64))[0]


def _kind(level: Any) -> str:
    level = level.item() if isinstance(level, np.generic) else level
    return "number" if isinstance(level, (bool, int, float)) else type(level).__name__


class TableSketch:
    """What a Binner must know of a table that is read in blocks.

    Parameters
    ----------
    binner : Binner
        Not fitted; its parameters say which columns are categories, and which are not read.
    first_row : int
        The rows of positive weight that come before the first one.
    n_total : int, optional
        The rows of positive weight in all blocks of all sketches that will be merged, if they are known: then none is
        kept for nothing.

    Attributes
    ----------
    n_rows : int
        Rows of positive weight.
    names : tuple of str or None
        The names of the columns, from the first block.

    Examples
    --------
    >>> from rbr import Binner
    >>> from rbr.data.sketches import TableSketch
    >>> sketch = TableSketch(Binner(max_bins=2))
    >>> for block in np.array_split(np.arange(12.0)[:, None], 3):
    ...     sketch.add(block)
    >>> sketch.fit().edges_[0]
    array([5.5])
    """

    def __init__(self, binner: Binner, first_row: int = 0, n_total: int | None = None):
        self.binner, self.first_row, self.n_total = binner, first_row, n_total
        self.n_rows = 0
        self.names: tuple[str, ...] | None = None
        self.n_features = 0
        self.columns: list[KeptNumbers | LevelCounts | None] = []
        self._rng = generator_of(binner.random_state)
        self._n_sample, self._level = 0, 0
        self._rows: list[np.ndarray] = []
        self._weights: list[np.ndarray | None] = []

    def add(self, X: Any, sample_weight: Any = None, where: str = "this block") -> None:
        """Add a block of rows; `where` names it in errors. Rows of weight zero are left out."""
        table = open_table(X)
        excluded = which_excluded(self.binner.exclude, table)
        is_category = which_categorical(self.binner.categorical_features, table, excluded)
        weights = None
        if sample_weight is not None:
            weights = check_nonnegative(sample_weight, table.n_rows, f"sample_weight of {where}")
            if not weights.all():
                table, weights = table.sample(np.flatnonzero(weights)), weights[weights > 0]
        if not self.columns:
            self._begin(table, excluded, is_category)
        self._check_columns(table, where)
        if not table.n_rows:
            return
        first = self.first_row + self.n_rows
        self.n_rows += table.n_rows
        self._raise_level(self._level_needed())
        rows = self._thinned(first, first + table.n_rows)
        for j in np.flatnonzero(~excluded).tolist():
            self.columns[j] = self._add_column(self.columns[j], table, j, bool(is_category[j]), rows - first, where)
        self._rows.append(rows)
        self._weights.append(None if weights is None else weights[rows - first])

    def _begin(self, table: Table, excluded: np.ndarray, is_category: np.ndarray) -> None:
        self.names, self.n_features = table.names, table.n_features
        self._n_sample = n_sample_of(max_bins_of(self.binner.max_bins, table))
        pairs = zip(excluded, is_category, strict=True)
        self.columns = [None if out else LevelCounts() if by_level else KeptNumbers() for out, by_level in pairs]

    # The sample --------------------------------------------------------------------------------------------------

    @cached_property
    def _seed(self) -> int:
        return seed_of(self._rng)

    def _level_needed(self) -> int:
        """The level of a sample of all rows that are known of."""
        n_rows = self.first_row + self.n_rows if self.n_total is None else self.n_total
        most = max(MAX_KEPT_BYTES // (8 * self.n_features), 1)
        return max(sample_level(n_rows, self._n_sample), level_of(n_rows, most))

    def _thinned(self, first: int, last: int) -> np.ndarray:
        return thinned_rows(first, last, self._level, self._seed) if self._level else np.arange(first, last)

    def _raise_level(self, level: int) -> None:
        if level <= self._level:
            return
        self._level = level
        if not self._rows:
            return
        rows = np.concatenate(self._rows)
        kept = np.isin(rows, self._thinned(int(rows[0]), int(rows[-1]) + 1), assume_unique=True)
        for column in self.columns:
            if isinstance(column, KeptNumbers):
                column.thin(kept)
        weight = self._weight()
        self._rows, self._weights = [rows[kept]], [None if weight is None else weight[kept]]

    def _weight(self) -> np.ndarray | None:
        """The weights of the rows that are kept; None if none of them has one."""
        if all(own is None for own in self._weights):
            return None
        pairs = zip(self._rows, self._weights, strict=True)
        return np.concatenate([np.ones(len(rows)) if own is None else own for rows, own in pairs])

    @property
    def _n_kept(self) -> int:
        return sum(len(rows) for rows in self._rows)

    # Columns -----------------------------------------------------------------------------------------------------

    def _check_columns(self, table: Table, where: str) -> None:
        try:
            table.check_columns(self.names, self.n_features, "the first block")
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error

    def _add_column(self, column, table: Table, j: int, is_category: bool, kept: np.ndarray, where: str):
        """Column j with the rows of a block; one without values so far may change its kind."""
        if is_category != isinstance(column, LevelCounts):
            if not is_category and np.isnan(table.numbers(j, j + 1)).all():
                column.has_missing = True
                return column
            if not column.is_empty:
                held, holds = ("text", "numbers") if isinstance(column, LevelCounts) else ("numbers", "text")
                raise ValueError(
                    f"{where}: {table.label(j)} holds {holds}, and {held} in earlier blocks; a column must have one "
                    f"type. To read it as a category everywhere, name it in categorical_features"
                )
            fresh = LevelCounts() if is_category else KeptNumbers(self._n_kept)
            fresh.has_missing |= column.has_missing
            column = fresh
        try:
            if isinstance(column, LevelCounts):
                column.add(*table.levels(j), table.label(j), where)
            else:
                column.add(table.numbers(j, j + 1)[:, 0], kept)
        except (TypeError, ValueError) as error:
            if where in str(error):
                raise
            raise type(error)(f"{where}: {error}") from error
        return column

    def merge(self, other: TableSketch, where: str = "another part") -> None:
        """Add the rows that another sketch, with the same parameters, has seen: those that follow."""
        if not other.columns:
            return
        if not self.columns:
            vars(self).update(vars(other))
            return
        if other.first_row != self.first_row + self.n_rows:
            raise ValueError(
                f"{where} begins at row {other.first_row}, and the rows before end at {self.first_row + self.n_rows}; "
                f"they must follow each other"
            )
        shown = ShownColumns(other.names, other.columns, other._n_kept)
        self._check_columns(shown, where)
        level = max(self._level, other._level)
        self._raise_level(level)
        other._raise_level(level)
        for j, (own, others) in enumerate(zip(self.columns, other.columns, strict=True)):
            if own is not None and others is not None:
                self.columns[j] = self._joined(own, others, other._n_kept, shown.label(j), where)
        self._rows, self._weights = self._rows + other._rows, self._weights + other._weights
        self.n_rows += other.n_rows
        self._raise_level(self._level_needed())

    def _joined(self, own, others, n_others: int, label: str, where: str):
        """A column of both; where one has no values, it has the kind of the other."""
        if isinstance(own, LevelCounts) and isinstance(others, LevelCounts):
            own.merge(others, label, where)
            return own
        if isinstance(own, KeptNumbers) and isinstance(others, KeptNumbers):
            own.merge(others)
            return own
        kept, empty = (own, others) if others.is_empty else (others, own)
        if not empty.is_empty:
            raise ValueError(
                f"{where}: {label} holds text in one block and numbers in another; a column must have one type"
            )
        if isinstance(kept, LevelCounts):
            kept.has_missing |= empty.has_missing
            return kept
        nothing = KeptNumbers(n_others if kept is own else self._n_kept)
        nothing.has_missing |= empty.has_missing
        first, second = (own, nothing) if kept is own else (nothing, others)
        first.merge(second)
        return first

    def fit(self) -> Binner:
        """The binner, fitted to all rows that were added."""
        if not self.n_rows:
            raise ValueError("the source has no rows of positive weight; at least one is needed")
        rows = SampledRows(self.n_rows, self._n_kept, self._weight())
        if rows.is_sample:
            self._seed  # noqa: B018 - the first number that is drawn, as for a table in memory, even if all rows are kept
        shown = ShownColumns(self.names, self.columns, rows.n_chosen)
        self.binner._fit(shown, None, with_codes=False, rng=self._rng, rows=rows)
        return self.binner


class ShownColumns(Table):
    """The table that a Binner is shown: some of its numbers, and counts of levels.

    Parameters
    ----------
    names : tuple of str or None
    columns : sequence
        Of each column what has `values()` and `has_missing`, or its `LevelCounts`, or None if it is not read.
    n_rows : int
        Of the columns of numbers.
    """

    has_dtypes = True

    def __init__(self, names: tuple[str, ...] | None, columns: Sequence[Any], n_rows: int):
        self.names, self.n_features, self.n_rows = names, len(columns), n_rows
        self._columns = columns

    def holds_categories(self, j):
        return isinstance(self._columns[j], LevelCounts)

    def has_missing(self, start, stop, rows=None):
        return np.array([column.has_missing for column in self._columns[start:stop]])

    def levels(self, j):
        levels = self._columns[j].levels()
        return levels, np.append(np.arange(len(levels)), np.full(int(self._columns[j].has_missing), -1))

    def _column(self, j, rows):
        return self._columns[j].values()
