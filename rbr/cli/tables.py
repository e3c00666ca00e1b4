"""Tables in files: read whole for a fit, or in blocks for scoring.

CSV is read by pyarrow, or by pandas where that is not installed; Parquet by pyarrow. Only the columns that are needed
are parsed.
"""

from __future__ import annotations

import argparse
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rbr.cli.columns import Column, column_from_arrow, column_from_pandas
from rbr.cli.console import Refusal
from rbr.cli.csv_format import CsvFormat, Rewound, guess_format, kind_of_file, open_text, read_start
from rbr.data.tables import few

NEEDS = 'reading tables needs pyarrow or pandas: pip install "rbr[cli]"'
BYTES_PER_BLOCK = 2**23
ROWS_PER_BLOCK = 2**17


def library() -> str:
    """The library that reads tables: "pyarrow" or "pandas"."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise Refusal(NEEDS) from error
        return "pandas"
    return "pyarrow"


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
            return [column_from_arrow(name, table.column(name)) for name in table.column_names]
        assert self.form is not None
        texts = {name for name in self.names if name in as_text or self.form.is_code(name)}
        if library() == "pandas":
            frame = next(self._pandas_blocks(None, {name: "str" for name in texts}, self.form.missing, None))
            return [column_from_pandas(name, frame[name]) for name in frame.columns]
        from pyarrow import csv

        options = csv.ConvertOptions(
            column_types={name: _arrow_text() for name in texts},
            null_values=list(self.form.missing),
            strings_can_be_null=True,
            auto_dict_encode=True,
            auto_dict_max_cardinality=2**31 - 1,
            decimal_point=self.form.decimal,
        )
        with self._readable_errors():
            table = csv.read_csv(self._open_stream(), self._read_options(), self._parse_options(), options)
        return [column_from_arrow(name, table.column(k)) for k, name in enumerate(self.names)]

    def blocks(self, numbers: Sequence[str], categories: Sequence[str], texts: Sequence[str] = ()) -> Iterator[Any]:
        """Blocks of rows, with these columns: RecordBatches of pyarrow, or frames of pandas.

        numbers : as float64, where NaN or null is missing
        categories : as text, or as they are in Parquet; null is missing
        texts : as they are written, such as the names of rows
        """
        if self.kind == "parquet":
            yield from self._parquet_blocks(numbers, [*categories, *texts])
        elif library() == "pyarrow":
            yield from self._arrow_blocks(numbers, categories, texts)
        else:
            yield from self._pandas_score_blocks(numbers, categories, texts)

    # Parquet ----------------------------------------------------------------------------------------------

    def _parquet_blocks(self, numbers: Sequence[str], others: Sequence[str]) -> Iterator[Any]:
        import pyarrow
        from pyarrow import parquet

        wanted = list(dict.fromkeys([*numbers, *others])) or [self.names[0]]
        for batch in parquet.ParquetFile(self.path).iter_batches(ROWS_PER_BLOCK, columns=wanted):
            columns = [
                _as_double(batch.column(name), name, self.title) if name in numbers else batch.column(name)
                for name in wanted
            ]
            yield pyarrow.RecordBatch.from_arrays(columns, names=wanted)

    # CSV by pyarrow ---------------------------------------------------------------------------------------

    def _arrow_blocks(self, numbers: Sequence[str], categories: Sequence[str], texts: Sequence[str]) -> Iterator[Any]:
        import pyarrow
        from pyarrow import csv

        assert self.form is not None
        types = {name: pyarrow.string() for name in texts}
        types |= {name: _arrow_text() for name in categories}
        types |= {name: pyarrow.bool_() if self.form.is_truth(name) else pyarrow.float64() for name in numbers}
        wanted = list(types) or [self.names[0]]
        options = csv.ConvertOptions(
            include_columns=wanted,
            column_types=types,
            null_values=list(self.form.missing),
            # Names of rows stay as they are, even if one is "NA"; in categories the marks are found below.
            strings_can_be_null=False,
            decimal_point=self.form.decimal,
        )
        with self._readable_errors():
            reader = csv.open_csv(
                self._open_stream(), self._read_options(BYTES_PER_BLOCK), self._parse_options(), options
            )
            for batch in reader:
                if not len(batch):
                    continue
                columns = []
                for name in wanted:
                    column = batch.column(name)
                    if name in categories:
                        column = _without_marks(column, self.form.missing)
                    elif name in numbers and pyarrow.types.is_boolean(column.type):
                        column = _as_double(column, name, self.title)
                    columns.append(column)
                yield pyarrow.RecordBatch.from_arrays(columns, names=wanted)

    def _read_options(self, block_size: int | None = None) -> Any:
        from pyarrow import csv

        assert self.form is not None
        # The names are given since those in the file may have blanks around them.
        return csv.ReadOptions(
            block_size=block_size, column_names=list(self.names), skip_rows=1, encoding=self.form.encoding
        )

    def _parse_options(self) -> Any:
        from pyarrow import csv

        assert self.form is not None
        return csv.ParseOptions(delimiter=self.form.separator, newlines_in_values=self.form.has_quotes)

    def _open_stream(self) -> Any:
        """The file from its beginning: its path if it is plain, which pyarrow reads without Python, or a stream."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            return stream
        return self.path if not self.kind else io.BufferedReader(Rewound(b"", open_text(self.path, self.kind)))

    def _readable_errors(self) -> Any:
        return _ReadableErrors(self)

    # CSV by pandas ----------------------------------------------------------------------------------------

    def _pandas_blocks(self, columns: Any, types: dict[str, str], missing: Any, n_rows: int | None) -> Iterator[Any]:
        import pandas

        assert self.form is not None
        options: dict[str, Any] = {
            "names": list(self.names),
            "header": 0,
            "usecols": columns,
            "dtype": types,
            "na_values": list(missing) if not isinstance(missing, dict) else missing,
            "keep_default_na": False,
            "sep": self.form.separator,
            "decimal": self.form.decimal,
            "encoding": "utf-8-sig" if self.form.encoding == "utf-8" else self.form.encoding,
        }
        with self._readable_errors():
            if n_rows is None:
                yield pandas.read_csv(self._open_stream(), low_memory=False, **options)
                return
            with pandas.read_csv(self._open_stream(), chunksize=n_rows, **options) as reader:
                yield from reader

    def _pandas_score_blocks(
        self, numbers: Sequence[str], categories: Sequence[str], texts: Sequence[str]
    ) -> Iterator[Any]:
        assert self.form is not None
        truths = [name for name in numbers if self.form.is_truth(name)]
        types = {name: "float64" for name in numbers if name not in truths}
        types |= {name: "str" for name in (*truths, *categories, *texts)}
        missing = {name: list(self.form.missing) for name in (*numbers, *categories)}
        wanted = list(types) or [self.names[0]]
        for frame in self._pandas_blocks(wanted, types, missing, ROWS_PER_BLOCK):
            for name in truths:
                frame[name] = column_from_pandas(name, frame[name]).values
            yield frame


def open_source(path: str, arguments: argparse.Namespace) -> Source:
    """The table in a file, with its names."""
    kind = kind_of_file(path)
    if kind == "parquet":
        try:
            from pyarrow import parquet
        except ImportError as error:
            raise Refusal(f'{path!r} is Parquet; reading it needs pyarrow: pip install "rbr[cli]"') from error
        return Source(path, kind, tuple(parquet.read_schema(path).names))
    library()
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

    levels = column.dictionary.to_pylist()
    is_mark = np.array([level in marks for level in levels], dtype=bool)
    if not is_mark.any():
        return column
    codes = column.indices.to_numpy(zero_copy_only=False)
    return pyarrow.DictionaryArray.from_arrays(pyarrow.array(codes, mask=is_mark[codes]), column.dictionary)


def _as_double(column: Any, name: str, title: str) -> Any:
    import pyarrow

    types, kind = pyarrow.types, column.type
    if types.is_boolean(kind):
        column = column.cast(pyarrow.uint8())
    elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind)):
        raise Refusal(f"column {name!r} of {title} has the type {kind}; the model expects numbers there")
    return column.cast(pyarrow.float64())


class _ReadableErrors:
    """Tells errors of the readers in the words of the user's file."""

    PLACE = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+): (.*)", re.DOTALL)

    def __init__(self, source: Source):
        self.source = source

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, (Refusal, OSError)) or not isinstance(error, ValueError):
            return
        title, text = self.source.title, " ".join(str(error).split())
        if place := self.PLACE.match(text):
            name = self.source.names[int(place[1])]
            row = f" in row {int(place[2]) - 1:,}" if place[2] else ""
            what = place[4].removeprefix("invalid value ")
            raise Refusal(
                f"column {name!r} of {title} holds {what}{row}; numbers are expected there (--missing TEXT marks a "
                "missing value)"
            ) from error
        if "UTF8" in text or isinstance(error, UnicodeDecodeError):
            raise Refusal(f"{title} is not written in UTF-8; try --encoding cp1252 ({text})") from error
        raise Refusal(f"{title} cannot be read: {text}") from error
