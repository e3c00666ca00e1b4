"""Columns as `rbr fit` understands them: numbers, truth values, categories, and what cannot be used.

A column is an array of floats (NaN is missing), or levels and codes (-1 is missing); so the rest of the command does
not depend on whether pyarrow or pandas has read the file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rbr._text import one_line, plain_number
from rbr.cli import libraries
from rbr.cli.console import Refusal

NUMERIC = ("number", "integer", "boolean")
USABLE = (*NUMERIC, "category")

# Text of which this share of the values differ names rows, rather than groups of rows.
NAMES_ROWS = 0.5
FEWEST_NAMES = 50

_DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?"  # 2024-01-31, with or without a time
    r"|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})([T ].*)?"  # 31.1.2024 or 1/31/24
    r"|\d{1,2}[- ][A-Za-z]{3}[a-z]*[- ]\d{2,4}"  # 31 Jan 2024
)


@dataclass(frozen=True, eq=False)
class Column:
    """A column of the table.

    Attributes
    ----------
    name : str
    kind : "number", "integer", "boolean", "category", "date", "names" (text that names rows), "empty" or "other"
    values : floats, or the codes of levels
    levels : the texts of a category or of names
    """

    name: str
    kind: str
    values: np.ndarray
    levels: tuple[str, ...] = ()

    @property
    def is_missing(self) -> np.ndarray:
        return np.isnan(self.values) if self.values.dtype.kind == "f" else self.values < 0

    @property
    def n_missing(self) -> int:
        return int(self.is_missing.sum())

    def take(self, rows: np.ndarray) -> Column:
        """The column of some rows."""
        return replace(self, values=self.values[rows])

    def numbers(self, option: str) -> np.ndarray:
        """The values as numbers, or a Refusal that names the option."""
        if self.kind not in NUMERIC:
            raise Refusal(f"{option} is {self.name!r}, a column of kind {self.kind}; it must hold numbers")
        if self.n_missing:
            raise Refusal(
                f"{option} is {self.name!r}, which is missing in {self.n_missing:,} rows; it must be complete"
            )
        return self.values

    def as_category(self) -> Column:
        """The same column as a category; numbers become their texts."""
        if self.kind in ("category", "names", "date") and self.levels:
            return replace(self, kind="category")
        if self.kind not in NUMERIC:
            raise Refusal(f"--categorical names {self.name!r}, a column of kind {self.kind}; it cannot be a category")
        numbers, codes = np.unique(self.values[~self.is_missing], return_inverse=True)
        all_codes = np.full(len(self.values), -1, dtype=np.int64)
        all_codes[~self.is_missing] = codes
        texts = (
            ["false" if v == 0 else "true" for v in numbers] if self.kind == "boolean" else map(plain_number, numbers)
        )
        return replace(self, kind="category", values=all_codes, levels=tuple(texts))

    def says(self) -> str:
        """What the column holds, in words."""
        if self.kind in ("number", "integer") and self.n_missing < len(self.values):
            low, high = np.nanmin(self.values), np.nanmax(self.values)
            first, last = (_short(x) for x in (low, high))
            return f"{first} to {last}" if low < high else f"always {first}"
        if self.kind == "boolean":
            return f"true in {np.nanmean(self.values):.1%}" if self.n_missing < len(self.values) else ""
        if self.kind in ("category", "names", "date") and self.levels:
            common = [_cut(one_line(level), 20) for level in self.common_levels(3)]
            more = ", ..." if len(self.levels) > len(common) else ""
            return f"{len(self.levels):,} level{'s' * (len(self.levels) != 1)}: {', '.join(common)}{more}"
        return ""

    def common_levels(self, n: int) -> list[str]:
        """The most frequent levels."""
        counts = np.bincount(self.values[self.values >= 0], minlength=len(self.levels))
        return [self.levels[k] for k in np.argsort(-counts, kind="stable")[:n]]


def _short(number: float) -> str:
    """A number with few digits; years and codes have no commas."""
    if number.is_integer():
        return f"{number:,.0f}" if abs(number) >= 10_000 else f"{number:.0f}"
    return f"{number:,.5g}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3].rstrip()}..."


def text_column(name: str, levels: Sequence[str], codes: np.ndarray) -> Column:
    """A column of text: a category, dates, or names of rows. Levels that no row has are dropped.

    >>> text_column("day", ["2024-01-31", "2024-02-01"], np.array([0, 1, -1])).kind
    'date'
    """
    codes = np.asarray(codes, dtype=np.int64)
    n_rows = np.bincount(codes[codes >= 0], minlength=len(levels))
    used = np.flatnonzero(n_rows)
    if len(used) < len(levels):
        place = np.full(len(levels) + 1, -1, dtype=np.int64)
        place[used] = np.arange(len(used))
        levels, codes = [levels[k] for k in used.tolist()], place[codes]
    order = sorted(range(len(levels)), key=levels.__getitem__)
    place = np.empty(len(levels) + 1, dtype=np.int64)
    place[order], place[-1] = np.arange(len(levels)), -1
    own = tuple(levels[k] for k in order)
    n_known = int(n_rows.sum())
    if not own:
        kind = "empty"
    elif all(_DATE.fullmatch(level) for level in own):
        kind = "date"
    elif len(own) > max(FEWEST_NAMES, NAMES_ROWS * n_known):
        kind = "names"
    else:
        kind = "category"
    return Column(name, kind, place[codes], own)


def column_from_arrow(name: str, column: Any) -> Column:
    """A column that pyarrow has read."""
    import pyarrow

    types, kind = pyarrow.types, column.type
    if types.is_null(kind) or column.null_count == len(column):
        return Column(name, "empty", np.full(len(column), np.nan))
    if types.is_boolean(kind):
        return Column(name, "boolean", _floats(column.cast(pyarrow.uint8())))
    if types.is_integer(kind):
        return Column(name, "integer", _floats(column))
    if types.is_floating(kind):
        return Column(name, "number", _floats(column))
    if types.is_decimal(kind):
        return Column(name, "number", _floats(column.cast(pyarrow.float64())))
    if types.is_temporal(kind):
        return Column(name, "date", np.where(column.is_null().to_numpy(), np.nan, 0.0))
    if types.is_dictionary(kind) or types.is_string(kind) or types.is_large_string(kind) or "string_view" in str(kind):
        encoded = column if types.is_dictionary(kind) else column.dictionary_encode()
        whole = encoded.unify_dictionaries().combine_chunks()
        whole = whole.chunk(0) if isinstance(whole, pyarrow.ChunkedArray) else whole
        codes = whole.indices.cast(pyarrow.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        return text_column(name, [str(level) for level in whole.dictionary.to_pylist()], codes)
    return Column(name, "other", np.where(column.is_null().to_numpy(), np.nan, 0.0))


def _floats(column: Any) -> np.ndarray:
    return np.asarray(column.to_numpy(), dtype=np.float64)


def column_from_pandas(name: str, series: Any) -> Column:
    """A column that pandas has read."""
    if series.isna().all():
        return Column(name, "empty", np.full(len(series), np.nan))
    kinds = {"b": "boolean", "i": "integer", "u": "integer", "f": "number"}
    if series.dtype.kind in kinds:
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
        known = values[~np.isnan(values)]
        is_whole = series.dtype.kind == "f" and (known == np.rint(known)).all() and np.isnan(values).any()
        return Column(name, "integer" if is_whole else kinds[series.dtype.kind], values)
    if {str(value).lower() for value in series.dropna().unique()[:3]} <= {"true", "false"}:
        words = series.astype(str).str.lower().where(series.notna())
        return Column(name, "boolean", words.map({"true": 1.0, "false": 0.0}).to_numpy(dtype=np.float64))
    codes, levels = series.factorize()
    return text_column(name, [str(level) for level in levels.tolist()], codes)


def as_table(columns: Sequence[Column]) -> Any:
    """Columns as a table that an estimator takes: of pyarrow, or of pandas where that is not installed."""
    if libraries.library() == "pandas":
        import pandas

        return pandas.DataFrame(
            {
                own.name: pandas.Categorical.from_codes(own.values, own.levels)
                if own.kind == "category"
                else own.values
                for own in columns
            }
        )
    import pyarrow

    return pyarrow.table({own.name: _arrow_array(own) for own in columns})


def _arrow_array(column: Column) -> Any:
    import pyarrow

    if column.kind != "category":
        return pyarrow.array(column.values)
    codes = pyarrow.array(column.values.astype(np.int32), mask=column.values < 0)
    return pyarrow.DictionaryArray.from_arrays(codes, pyarrow.array(list(column.levels), pyarrow.string()))
