"""Some rows of a file as a model reads them: numbers as arrays, categories as levels and codes, text by its places.

CSV is read by the kernels of rbr: fields are found once, and only those of the columns that are needed are looked at.
A value never becomes a Python object, unless it is one that few rows have: a category, or a number written in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rbr._backend import kernels
from rbr.cli.console import Refusal
from rbr.cli.csv_format import CsvFormat
from rbr.data.tables import Table

_QUOTE = ord('"')
_IN_QUOTES = re.compile(r'"((?:[^"]|"")*)"?(.*)', re.DOTALL)


@dataclass(frozen=True)
class Wanted:
    """The columns of blocks.

    Attributes
    ----------
    numbers : read as float64, where NaN or null is missing
    categories : read as text, or as they are in Parquet; null is missing
    texts : kept as they are written, such as the names of rows
    """

    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Texts:
    """A column of text: data[starts[i] : ends[i]], in UTF-8.

    Examples
    --------
    >>> Texts.of(["north", "", "south"]).tolist()
    ['north', '', 'south']
    """

    data: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    is_plain: bool = False  # none of them needs quotes in CSV

    @classmethod
    def of(cls, texts: Iterable[str | bytes]) -> Texts:
        encoded = [text.encode() if isinstance(text, str) else text for text in texts]
        ends = np.cumsum([len(text) for text in encoded], dtype=np.int32)
        starts = np.append(np.int32(0), ends)[:-1]
        return cls(np.frombuffer(b"".join(encoded), np.uint8), starts, ends)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, i: int) -> str:
        return self.data[self.starts[i] : self.ends[i]].tobytes().decode()

    def tolist(self) -> list[str]:
        return [self[i] for i in range(len(self))]

    def plain(self) -> Texts:
        """The same, none of which needs quotes."""
        return replace(self, is_plain=True)

    def take(self, rows: np.ndarray) -> Texts:
        return Texts(self.data, self.starts[rows], self.ends[rows], self.is_plain)


class Block(Table):
    """Rows of a table, for a model that finds its columns by name.

    Attributes
    ----------
    values : the columns of numbers, by name
    categories : (levels, codes) by name; the code -1 is missing
    texts : Texts by name, or columns of pyarrow
    """

    has_dtypes = True

    def __init__(self, n_rows: int, values: dict[str, np.ndarray], categories: dict[str, Any], texts: dict[str, Any]):
        self.n_rows, self.n_features = n_rows, len(values) + len(categories)
        self.names = (*values, *categories)
        self.values, self.categories, self.texts = values, categories, texts

    def __len__(self) -> int:
        return self.n_rows

    def _column(self, j, rows):
        values = self.values[self.names[j]]
        return values if rows is None else values[rows]

    def levels(self, j):
        return self.categories[self.names[j]]

    def value(self, name: str, row: int) -> Any:
        """A number or a category; None if it is missing."""
        if name in self.values:
            value = float(self.values[name][row])
            return None if np.isnan(value) else value
        levels, codes = self.categories[name]
        return None if codes[row] < 0 else levels[codes[row]]

    def text(self, name: str, row: int) -> Any:
        """A value as it is written; in Parquet, as it is."""
        text = self.texts[name][row]
        return text if isinstance(text, str) else text.as_py()


class BadRow(Refusal):
    """A row that cannot be read; `row` counts from 1, within a chunk or the file."""

    def __init__(self, what: str, row: int | None, why: str):
        self.what, self.row, self.why = what, row, why
        super().__init__(f"{what}{'' if row is None else f' in row {row:,}'}{why}")

    def after(self, n_rows: int) -> BadRow:
        """The same with the rows before the chunk counted."""
        return BadRow(self.what, None if self.row is None else self.row + n_rows, self.why)


def bad_value(column: str, title: str, value: str, row: int | None) -> BadRow:
    """The refusal of a value that is no number where one is expected."""
    why = "; numbers are expected there (--missing TEXT marks a missing value)"
    return BadRow(f"column {column!r} of {title} holds {value}", row, why)


# CSV ------------------------------------------------------------------------------------------------------


def csv_block(chunk: Any, wanted: Wanted, form: CsvFormat, title: str) -> Block:
    """The rows of a chunk of CSV in UTF-8."""
    data = np.frombuffer(chunk, dtype=np.uint8)
    needed = list(dict.fromkeys((*wanted.categories, *wanted.numbers, *wanted.texts)))
    starts, ends = _places(data, needed, form, title)
    n, m = len(wanted.categories), len(wanted.categories) + len(wanted.numbers)
    numbers = _numbers(data, starts[n:m], ends[n:m], form, wanted.numbers, title)
    levels = _levels(data, starts[:n], ends[:n])
    categories = {name: _without_marks(*own, form.missing) for name, own in zip(wanted.categories, levels, strict=True)}
    places = {name: k for k, name in enumerate(needed)}
    texts = {name: _unquoted(Texts(data, starts[places[name]], ends[places[name]])) for name in wanted.texts}
    values = dict(zip(wanted.numbers, numbers, strict=True))
    return Block(starts.shape[1], values, categories, texts)


def _places(data: np.ndarray, needed: Sequence[str], form: CsvFormat, title: str) -> tuple[np.ndarray, np.ndarray]:
    """Where the fields of the needed columns start and end, of shape (n_needed, n_rows)."""
    slots = np.full(len(form.names), -1, dtype=np.int32)
    for k, name in enumerate(needed):
        slots[form.names.index(name)] = k
    n_ends = np.empty(1, dtype=np.int64)
    kernels().count_line_ends(data, n_ends, 0, 1)
    n_lines = int(n_ends[0]) + (data[-1] not in b"\r\n")
    starts, ends = np.empty((2, len(needed), n_lines), dtype=np.int32)
    n_fields = np.empty(n_lines, dtype=np.int32)
    kernels().place_fields(data, ord(form.separator), slots, starts, ends, n_fields, 0, n_lines)
    n_rows = int(np.count_nonzero(n_fields))
    if (bad := np.flatnonzero(n_fields[:n_rows] != len(slots))).size:
        n = int(n_fields[bad[0]])
        what = f"{title} has {n} value{'s' * (n != 1)}"
        raise BadRow(what, int(bad[0]) + 1, f", and {len(slots)} names in its first line")
    return np.ascontiguousarray(starts[:, :n_rows]), np.ascontiguousarray(ends[:, :n_rows])


def _numbers(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, form: CsvFormat, names: Sequence[str], title: str
) -> np.ndarray:
    """The columns of numbers, one in each row; what is not written in digits is read by what it says."""
    out, is_odd = np.empty(starts.shape), np.empty(starts.shape, dtype=np.uint8)
    kernels().numbers_at(data, starts, ends, ord(form.decimal), out, is_odd, 0, starts.shape[1])
    for number in form.missing_numbers():
        is_odd |= out == number
    for j in np.flatnonzero(is_odd.any(axis=1)).tolist():
        rows = np.flatnonzero(is_odd[j])
        ((texts, codes),) = _levels(data, starts[j][None, rows], ends[j][None, rows])
        numbers = np.empty(len(texts))
        for k, text in enumerate(texts):  # in the order of their first rows
            try:
                numbers[k] = number_in_words(text, form)
            except ValueError:
                raise bad_value(names[j], title, repr(text), int(rows[np.argmax(codes == k)]) + 1) from None
        out[j, rows] = numbers[codes]
    return out


def number_in_words(text: str, form: CsvFormat) -> float:
    """The number that a text says: NaN for a mark of missing values, 1 for true, 0 for false.

    A ValueError if it is none, also for forms that Python knows and tables do not have, such as 1_000.
    """
    if text in form.missing:
        return np.nan
    truth = {"true": 1.0, "false": 0.0}.get(text.lower())
    if truth is not None:
        return truth
    if "_" in text or (form.decimal != "." and "." in text):
        raise ValueError(text)
    return float(text.replace(form.decimal, "."))


def _levels(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> list[tuple[list, np.ndarray]]:
    """(distinct texts, codes) of some columns, of which the places are given."""
    codes, first_rows = np.empty((2, *starts.shape), dtype=np.int64)
    n_levels = np.empty(len(starts), dtype=np.int64)
    kernels().levels_at(data, starts, ends, codes, first_rows, n_levels, 0, len(starts))
    found = []
    for j, n in enumerate(n_levels):
        rows = first_rows[j, :n]
        levels = _unquoted(Texts(data, starts[j, rows], ends[j, rows])).tolist()
        found.append((levels, codes[j]))
    return found


def _unquoted(texts: Texts) -> Texts:
    """The same without the quotes of those texts that hold some."""
    is_some = texts.starts < texts.ends
    if not is_some.any() or not (texts.data[texts.starts[is_some]] == _QUOTE).any():
        return texts
    return Texts.of(_text_in_quotes(own) if own.startswith('"') else own for own in texts.tolist())


def _text_in_quotes(written: str) -> str:
    """What a field says that starts with a quote.

    >>> _text_in_quotes('"a ""b"" c" d')
    'a "b" c d'
    """
    inside, beyond = _IN_QUOTES.fullmatch(written).groups()  # type: ignore[union-attr]  # it matches any text
    return inside.replace('""', '"') + beyond


def _without_marks(levels: list[str], codes: np.ndarray, marks: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """A category with the code -1 for the marks of missing values; each level is there once."""
    own = list(dict.fromkeys(level for level in levels if level not in marks))
    if len(own) == len(levels):
        return levels, codes
    places = {level: k for k, level in enumerate(own)}
    return own, np.array([places.get(level, -1) for level in levels])[codes]


# Parquet --------------------------------------------------------------------------------------------------


def parquet_block(batch: Any, wanted: Wanted, title: str) -> Block:
    """The rows of a RecordBatch of pyarrow."""
    from rbr.data.arrow import ArrowTable

    table, names = ArrowTable(batch), batch.schema.names
    values = {name: _as_double(batch.column(name), name, title) for name in wanted.numbers}
    categories = {name: table.levels(names.index(name)) for name in wanted.categories}
    return Block(len(batch), values, categories, {name: batch.column(name) for name in wanted.texts})


def _as_double(column: Any, name: str, title: str) -> np.ndarray:
    import pyarrow

    types, kind = pyarrow.types, column.type
    if types.is_boolean(kind):
        column = column.cast(pyarrow.uint8())
    elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind)):
        raise Refusal(f"column {name!r} of {title} has the type {kind}; the model expects numbers there")
    return np.asarray(column.cast(pyarrow.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
