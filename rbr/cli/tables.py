"""Tables in files: read whole for a fit, or in blocks for scoring.

For a fit CSV is read by pyarrow, or by pandas where that is not installed, since all columns must be understood. For
scoring its bytes are cut into chunks at the ends of rows, in which threads look for the needed columns side by side
(rbr.cli.blocks). Parquet is read by pyarrow.
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

from rbr._backend import kernels
from rbr.cli import libraries
from rbr.cli.blocks import Block, Wanted, bad_value, csv_block, parquet_block
from rbr.cli.columns import Column, column_from_arrow, column_from_pandas
from rbr.cli.console import Refusal, one_sentence
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
    if len(character) != 1 or not character.isascii() or character in '"\r\n':
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; it must be one ASCII character, or \\t")
    return character


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

            names = [*wanted.numbers, *wanted.categories, *wanted.texts] or [self.names[0]]
            yield from parquet.ParquetFile(self.path).iter_batches(ROWS_PER_BLOCK, columns=list(dict.fromkeys(names)))
            return
        assert self.form is not None
        with self._body() as body:
            yield from chunks_of_rows(body, BYTES_PER_CHUNK, self.form.separator)

    def block(self, chunk: Any, wanted: Wanted) -> Block:
        """The rows of a chunk."""
        if self.form is None:
            return parquet_block(chunk, wanted, self.title)
        try:
            return csv_block(chunk, wanted, self.form, self.title)
        except UnicodeDecodeError as error:
            raise _not_utf8(self.title, error) from error

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


def chunks_of_rows(stream: io.BufferedReader, n_bytes: int, separator: str = ",") -> Iterator[memoryview]:
    """The bytes of CSV in chunks of about this size, each of which ends with a row.

    >>> data = io.BufferedReader(io.BytesIO(b'1,"a\\nb"\\n2,c\\n3,d'))
    >>> [bytes(chunk) for chunk in chunks_of_rows(data, 9)]
    [b'1,"a\\nb"\\n', b'2,c\\n', b'3,d']
    """
    rest = memoryview(b"")
    while True:
        data = bytearray(len(rest) + n_bytes)
        data[: len(rest)] = rest
        whole = memoryview(data)
        n_read = stream.readinto(whole[len(rest) :])
        if not n_read:
            break
        whole = whole[: len(rest) + n_read]
        end = _last_row_end(data, len(whole), separator)
        if end:
            yield whole[:end]
        rest = whole[end:]
    if bytes(rest).strip():
        yield rest


def _last_row_end(data: bytearray, n_bytes: int, separator: str) -> int:
    """Where the last row in some bytes ends; 0 if no row does."""
    if data.find(b'"', 0, n_bytes) < 0 and (end := data.rfind(b"\n", 0, n_bytes)) >= 0:
        return end + 1
    out = np.empty(1, dtype=np.int64)
    kernels().last_row_end(np.frombuffer(data, np.uint8, n_bytes), ord(separator), out, 0, 1)
    return int(out[0])


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
    stream = open_text(path, kind)
    start = read_start(stream)
    form = guess_format(start, path, arguments.sep, arguments.decimal, arguments.encoding, arguments.missing)
    if path == "-":  # it can be read only once
        return Source(path, kind, form.names, form, io.BufferedReader(Rewound(start, stream)))
    stream.close()
    return Source(path, kind, form.names, form)


def _arrow_text() -> Any:
    import pyarrow

    return pyarrow.dictionary(pyarrow.int32(), pyarrow.string())


def _not_utf8(title: str, error: Exception) -> Refusal:
    return Refusal(f"{title} is not written in UTF-8; try --encoding cp1252 ({one_sentence(error)})")


_PLACE = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+): (?:invalid value )?(.*)")


@contextmanager
def readable_errors(source: Source) -> Iterator[None]:
    """Tells errors of the readers in the words of the user's file."""
    try:
        yield
    except (Refusal, OSError):
        raise
    except ValueError as error:
        title, text = source.title, one_sentence(error)
        if place := _PLACE.match(text):
            row = int(place[2]) if place[2] else None
            raise bad_value(source.names[int(place[1])], title, place[4], row) from error
        if "UTF8" in text or isinstance(error, UnicodeDecodeError):
            raise _not_utf8(title, error) from error
        if text == "Empty CSV file" or "No columns to parse" in text:
            raise Refusal(f"{title} has no rows") from error
        raise Refusal(f"{title} cannot be read: {text}") from error
