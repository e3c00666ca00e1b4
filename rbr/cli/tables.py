"""Tables in files: read whole for a fit, or in blocks for scoring.

CSV is read by pyarrow, or by pandas where that is not installed; Parquet by pyarrow. Only the columns that are needed
are parsed. The bytes of a CSV file are cut into chunks at the ends of rows, which threads parse side by side.
"""

from __future__ import annotations

import argparse
import codecs
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rbr.cli import libraries
from rbr.cli.columns import Column, column_from_arrow, column_from_pandas
from rbr.cli.console import Refusal
from rbr.cli.csv_format import CsvFormat, Rewound, guess_format, kind_of_file, open_text, read_start
from rbr.data.tables import few

BYTES_PER_CHUNK = 2**22
ROWS_PER_BLOCK = 2**16


def add_format_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that overrule what is guessed of a CSV file."""
    group = parser.add_argument_group("how a CSV file is written (guessed by default)")
    group.add_argument("--sep", metavar="CHARACTER", type=_separator, help="between values; \\t is a tab")
    group.add_argument("--decimal", choices=(".", ","), help="the decimal sign of numbers")
    group.add_argument("--encoding", help="such as utf-8 or cp1252")
    group.add_argument(
        "--missing",
        metavar="TEXT",
        action="append",
        default=[],
        help="a text that means a missing value, such as -999 or unknown, besides empty, NA, N/A, NaN, NULL and ?; "
        "may be repeated",
    )


def _separator(text: str) -> str:
    character = "\t" if text in ("\\t", "tab") else text
    if len(character) != 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; it must be one character, or \\t")
    return character


@dataclass(frozen=True)
class Wanted:
    """The columns of blocks.

    Attributes
    ----------
    numbers : read as float64, where NaN or null is missing
    categories : read as text, or as they are in Parquet; null is missing
    texts : kept as they are written, such as the names of rows; `text_of` finds them in a block
    """

    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    texts: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys((*self.numbers, *self.categories, *self.texts)))


# In a block the text of a column has another name, since the model may need the same column as a number.
TEXT_OF = "text of "


def text_of(block: Any, name: str) -> Any:
    """A column of a block as it is written in the file."""
    return column_of(block, TEXT_OF + name)


@dataclass
class Source:
    """A table in a file.

    Attributes
    ----------
    path : str
    kind : "parquet", or how a text table is compressed
    names : the names of its columns
    form : how a text table is written
    """

    path: str
    kind: str
    names: tuple[str, ...]
    form: CsvFormat | None = None
    _stream: Any = None

    @property
    def title(self) -> str:
        """The name of the file."""
        return "stdin" if self.path == "-" else Path(self.path).name

    def require(self, names: Sequence[str], why: str) -> None:
        """Refuse a table that lacks one of these columns, or has it twice."""
        if absent := [name for name in names if name not in self.names]:
            raise Refusal(f"{self.title} has no column {few(absent)}, {why}; its columns are {few(self.names)}")
        if twice := [name for name in names if self.names.count(name) > 1]:
            raise Refusal(f"{self.title} has more than one column named {twice[0]!r}; column names must differ")

    def whole(self, as_text: Sequence[str] = ()) -> list[Column]:
        """All columns; those of `as_text` are not read as numbers."""
        if self.kind == "parquet":
            from pyarrow import parquet

            table = parquet.read_table(self.path)
            return [column_from_arrow(name, table.column(k)) for k, name in enumerate(table.column_names)]
        assert self.form is not None
        texts = {name for name in self.names if name in as_text or self.form.is_code(name)}
        with readable_errors(self), self._body() as body:
            if libraries.library() == "pandas":
                options = {"dtype": {name: "str" for name in texts}, "na_values": list(self.form.missing)}
                frame = _pandas_frame(body, self.form, low_memory=False, **options)
                return [column_from_pandas(name, frame[name]) for name in self.names]
            from pyarrow import csv

            options = csv.ConvertOptions(
                column_types={name: _arrow_text() for name in texts},
                null_values=list(self.form.missing),
                strings_can_be_null=True,
                auto_dict_encode=True,
                auto_dict_max_cardinality=2**31 - 1,
                decimal_point=self.form.decimal,
            )
            table = csv.read_csv(body, csv.ReadOptions(column_names=list(self.names)), _parsing(self.form), options)
            return [column_from_arrow(name, table.column(k)) for k, name in enumerate(self.names)]

    # Blocks -----------------------------------------------------------------------------------------------

    def chunks(self, wanted: Wanted) -> Iterator[Any]:
        """Parts of the file in order, each of which `block` turns into rows."""
        if self.kind == "parquet":
            from pyarrow import parquet

            names = wanted.names or [self.names[0]]
            yield from parquet.ParquetFile(self.path).iter_batches(ROWS_PER_BLOCK, columns=names)
            return
        with self._body() as body:
            yield from chunks_of_rows(body, BYTES_PER_CHUNK)

    def block(self, chunk: Any, wanted: Wanted) -> Any:
        """The rows of a chunk: a RecordBatch of pyarrow, or a frame of pandas."""
        if self.kind == "parquet":
            return self._numbers_as_double(chunk, wanted)
        with readable_errors(self):
            return (
                self._arrow_block(chunk, wanted)
                if libraries.library() == "pyarrow"
                else self._pandas_block(chunk, wanted)
            )

    def _numbers_as_double(self, batch: Any, wanted: Wanted) -> Any:
        import pyarrow

        columns = {name: _as_double(batch.column(name), name, self.title) for name in wanted.numbers}
        columns |= {name: batch.column(name) for name in wanted.categories}
        columns |= {TEXT_OF + name: batch.column(name) for name in wanted.texts}
        columns = columns or {self.names[0]: batch.column(0)}
        return pyarrow.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _arrow_block(self, chunk: memoryview, wanted: Wanted) -> Any:
        import pyarrow
        from pyarrow import csv

        form = self.form
        assert form is not None
        types = {name: pyarrow.bool_() if form.is_truth(name) else pyarrow.float64() for name in wanted.numbers}
        types |= {name: _arrow_text() for name in wanted.categories}
        types |= {name: pyarrow.string() for name in wanted.texts}
        names = wanted.names or [self.names[0]]
        options = csv.ConvertOptions(
            include_columns=names,
            column_types=types,
            null_values=list(form.missing),
            # Texts stay as they are, even if one is "NA"; in categories the marks are found below.
            strings_can_be_null=False,
            decimal_point=form.decimal,
        )
        # One block and one thread: other threads parse other chunks, and errors know the number of the row.
        reading = csv.ReadOptions(use_threads=False, block_size=len(chunk) + 1, column_names=list(self.names))
        table = csv.read_csv(pyarrow.BufferReader(chunk), reading, _parsing(form), options)
        read = {name: _one_array(table.column(name)) for name in names}
        columns = {name: _as_double(read[name], name, self.title, form) for name in wanted.numbers}
        columns |= {name: _without_marks(read[name], form.missing) for name in wanted.categories}
        columns |= {TEXT_OF + name: read[name] for name in wanted.texts}
        columns = columns or read
        return pyarrow.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _pandas_block(self, chunk: memoryview, wanted: Wanted) -> Any:
        import pandas

        form = self.form
        assert form is not None
        names = wanted.names or [self.names[0]]
        # Text first: a column may be needed both as a number and as it is written.
        plain = [name for name in wanted.numbers if name not in wanted.texts and not form.is_truth(name)]
        types = {name: "float64" if name in plain else "str" for name in names}
        missing = {name: list(form.missing) for name in plain}
        read = _pandas_frame(io.BytesIO(chunk), form, usecols=names, dtype=types, na_values=missing)
        columns = {TEXT_OF + name: read[name] for name in wanted.texts}
        for name in (*wanted.numbers, *wanted.categories):
            column = read[name]
            if name not in plain:
                column = column.mask(column.isin(form.missing))
            if name in wanted.numbers and name not in plain:
                column = pandas.Series(_numbers_in_text(column, name, self.title, form))
            columns[name] = column
        return pandas.DataFrame(columns or read)

    def _body(self) -> Any:
        """The rows of a text table, without the line of names, as UTF-8."""
        assert self.form is not None
        stream, self._stream = self._stream or open_text(self.path, self.kind), None
        if self.form.encoding not in ("utf-8", "utf-8-sig"):
            stream = codecs.EncodedFile(stream, "utf-8", self.form.encoding)
        whole_start = read_start(stream)
        start = whole_start.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
        end = len(whole_start) - len(start) + end_of_row(start)
        if isinstance(stream, io.BufferedReader) and stream.seekable():
            stream.seek(end)
            return stream
        return io.BufferedReader(Rewound(whole_start[end:], stream), 2**20)


def end_of_row(data: bytes) -> int:
    """Where the first row of CSV ends; an end of line within quotes does not count.

    >>> end_of_row(b'a,"b\\nc"\\n1,2\\n')
    8
    """
    end = data.find(b"\n")
    while end >= 0 and data.count(b'"', 0, end) % 2:
        end = data.find(b"\n", end + 1)
    return len(data) if end < 0 else end + 1


def chunks_of_rows(stream: Any, n_bytes: int) -> Iterator[memoryview]:
    """The bytes of CSV in chunks of about this size, each of which ends with a row.

    >>> [bytes(chunk) for chunk in chunks_of_rows(io.BytesIO(b'1,"a\\nb"\\n2,c\\n3,d'), 9)]
    [b'1,"a\\nb"\\n', b'2,c\\n', b'3,d']
    """
    rest = b""
    while read := stream.read(n_bytes):
        data = rest + read if rest else read
        end = data.rfind(b"\n")
        if b'"' in data:
            while end >= 0 and data.count(b'"', 0, end) % 2:
                end = data.rfind(b"\n", 0, end)
        rest = data[end + 1 :]
        if end >= 0 and not data[: min(end + 1, 16)].isspace():  # blank lines at the end of the file are no rows
            yield memoryview(data)[: end + 1]  # a copy would cost a tenth of the time of parsing
    if rest.strip():
        yield memoryview(rest)


def _pandas_frame(stream: Any, form: CsvFormat, **options: Any) -> Any:
    import pandas

    return pandas.read_csv(
        stream,
        names=list(form.names),
        header=None,
        index_col=False,
        sep=form.separator,
        decimal=form.decimal,
        keep_default_na=False,
        **options,
    )


def _parsing(form: CsvFormat) -> Any:
    from pyarrow import csv

    return csv.ParseOptions(delimiter=form.separator, newlines_in_values=True)


def open_source(path: str, arguments: argparse.Namespace) -> Source:
    """The table in a file, with its names."""
    kind = kind_of_file(path)
    if kind == "parquet":
        try:
            from pyarrow import parquet
        except ImportError as error:
            raise Refusal(f'{path!r} is Parquet; reading it needs pyarrow: pip install "rbr[cli]"') from error
        return Source(path, kind, tuple(parquet.read_schema(path).names))
    libraries.library()
    stream = open_text(path, kind)
    start = read_start(stream)
    form = guess_format(start, path, arguments.sep, arguments.decimal, arguments.encoding, arguments.missing)
    if path == "-":  # it can be read only once
        return Source(path, kind, form.names, form, io.BufferedReader(Rewound(start, stream)))
    stream.close()
    return Source(path, kind, form.names, form)


def numbers_of(block: Any, name: str) -> np.ndarray:
    """A column of a block as float64."""
    column = block[name] if hasattr(block, "iloc") else block.column(name)
    return np.asarray(column.to_numpy() if hasattr(block, "iloc") else column.to_numpy(False), dtype=np.float64)


def column_of(block: Any, name: str) -> Any:
    """A column of a block as it is."""
    return block[name].to_numpy() if hasattr(block, "iloc") else block.column(name)


def _arrow_text() -> Any:
    import pyarrow

    return pyarrow.dictionary(pyarrow.int32(), pyarrow.string())


def _without_marks(column: Any, marks: Sequence[str]) -> Any:
    """A column of text with null for the marks of missing values."""
    import pyarrow

    column = column if pyarrow.types.is_dictionary(column.type) else column.dictionary_encode()
    places = [None if level in marks else k for k, level in enumerate(column.dictionary.to_pylist())]
    if None not in places:
        return column
    codes = pyarrow.array(places, pyarrow.int32()).take(column.indices)
    return pyarrow.DictionaryArray.from_arrays(codes, column.dictionary)


def _one_array(column: Any) -> Any:
    """A column of a table in one piece."""
    import pyarrow

    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pyarrow.ChunkedArray) else whole


def _as_double(column: Any, name: str, title: str, form: CsvFormat | None = None) -> Any:
    """A column as float64; text of a CSV file, of which the format is given, by what it says."""
    import pyarrow

    types, kind = pyarrow.types, column.type
    if types.is_floating(kind) and kind == pyarrow.float64():
        return column
    if types.is_boolean(kind):
        return column.cast(pyarrow.uint8()).cast(pyarrow.float64())
    if form is not None and types.is_string(kind):
        values = np.array(column.to_pylist(), dtype=object)
        return pyarrow.array(_numbers_in_text(values, name, title, form))
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind)):
        raise Refusal(f"column {name!r} of {title} has the type {kind}; the model expects numbers there")
    return column.cast(pyarrow.float64())


def _numbers_in_text(values: Any, name: str, title: str, form: CsvFormat) -> np.ndarray:
    """The numbers that texts say; true is 1 and false is 0."""
    words = {"true": 1.0, "false": 0.0} | {mark: np.nan for mark in form.missing}
    numbers = np.empty(len(values))
    for k, value in enumerate(values):
        try:
            if isinstance(value, str):
                known = words.get(value, words.get(value.lower()))
                value = float(value.replace(form.decimal, ".")) if known is None else known
            numbers[k] = value
        except ValueError:
            raise BadValue(name, title, repr(value), k + 1) from None
    return numbers


class BadValue(Refusal):
    """A value that is no number where one is expected; `row` counts from 1, within a chunk or the file."""

    def __init__(self, column: str, title: str, value: str, row: int | None):
        self.column, self.title, self.value, self.row = column, title, value, row
        where = "" if row is None else f" in row {row:,}"
        super().__init__(
            f"column {column!r} of {title} holds {value}{where}; numbers are expected there (--missing TEXT marks a "
            "missing value)"
        )

    def after(self, n_rows: int) -> BadValue:
        """The same with the rows before the chunk counted."""
        return BadValue(self.column, self.title, self.value, None if self.row is None else self.row + n_rows)


_PLACE = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+): (?:invalid value )?(.*)")


@contextmanager
def readable_errors(source: Source) -> Iterator[None]:
    """Tells errors of the readers in the words of the user's file."""
    try:
        yield
    except (Refusal, OSError):
        raise
    except ValueError as error:
        title, text = source.title, " ".join(str(error).split())
        if place := _PLACE.match(text):
            row = int(place[2]) if place[2] else None
            raise BadValue(source.names[int(place[1])], title, place[4], row) from error
        if "UTF8" in text or isinstance(error, UnicodeDecodeError):
            raise Refusal(f"{title} is not written in UTF-8; try --encoding cp1252 ({text})") from error
        if text == "Empty CSV file" or "No columns to parse" in text:
            raise Refusal(f"{title} has no rows") from error
        raise Refusal(f"{title} cannot be read: {text}") from error
