"""How a text table is written: compression, encoding, separator, decimal sign and names, guessed from its beginning.

Every guess can be overruled by an option, and `rbr fit` prints what was understood.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import re
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from rbr.cli.console import Refusal

# These texts mean that a value is missing, in any column.
MISSING_MARKS = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "?")
SEPARATORS = (",", ";", "\t", "|")
SAMPLE_BYTES = 2**18
SAMPLE_ROWS = 200

_MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst", b"PK\x03\x04": "zip"}
_PARQUET = b"PAR1"

_COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+")
_POINT_NUMBER = re.compile(r"[+-]?\d*\.\d+")
_ANY_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_PADDED_CODE = re.compile(r"0\d+")
_TRUTH = {"true", "false"}


@dataclass(frozen=True)
class CsvFormat:
    """What is known of a text table before it is read.

    Attributes
    ----------
    names : the names in its first line
    separator, decimal, encoding : str
    missing : the texts that mean a missing value
    rows : the first rows, as texts
    has_quotes : whether values may be quoted, and so may hold the ends of lines
    """

    names: tuple[str, ...]
    separator: str
    decimal: str
    encoding: str
    missing: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...] = field(repr=False)
    has_quotes: bool

    def values(self, name: str) -> list[str]:
        """The first values of a column that are not missing."""
        j = self.names.index(name)
        return [row[j] for row in self.rows if row[j] not in self.missing]

    def missing_numbers(self) -> list[float]:
        """The numbers that marks of missing values look like, such as -999."""
        marks = [mark.replace(self.decimal, ".") for mark in self.missing]
        return [float(mark) for mark in marks if _ANY_NUMBER.fullmatch(mark)]

    def is_code(self, name: str) -> bool:
        """Whether a column has leading zeros, as codes have and numbers do not."""
        return any(_PADDED_CODE.fullmatch(value) for value in self.values(name))

    def is_truth(self, name: str) -> bool:
        """Whether a column holds true and false."""
        return any(value.lower() in _TRUTH for value in self.values(name))

    def says(self) -> str:
        """The format in words."""
        separator = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}.get(
            self.separator, repr(self.separator)
        )
        decimal = ", decimal commas" if self.decimal == "," else ""
        encoding = "" if self.encoding == "utf-8" else f", {self.encoding}"
        return f"separated by {separator}{decimal}{encoding}"


def kind_of_file(path: str) -> str:
    """ "parquet", or how a text table is compressed: "gz", "bz2", "xz", "zst", "zip" or ""."""
    if path == "-":
        return ""
    if Path(path).is_dir():
        raise Refusal(f"{path!r} is a folder; it must be a file: CSV, perhaps compressed, or Parquet")
    with open(path, "rb") as file:
        start = file.read(8)
    if start.startswith(_PARQUET):
        return "parquet"
    return next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), "")


def open_text(path: str, kind: str) -> BinaryIO:
    """The bytes of a text table, decompressed; "-" is stdin."""
    if path == "-":
        return cast(BinaryIO, getattr(sys.stdin, "buffer", sys.stdin))
    if kind == "gz":
        return cast(BinaryIO, gzip.open(path))
    if kind == "bz2":
        return cast(BinaryIO, bz2.open(path))
    if kind == "xz":
        return cast(BinaryIO, lzma.open(path))
    if kind == "zst":
        return _open_zst(path)
    if kind == "zip":
        return _open_zip(path)
    return open(path, "rb")


def _open_zst(path: str) -> BinaryIO:
    try:
        import pyarrow
    except ImportError as error:
        raise Refusal(f'{path!r} is compressed by zstd; reading it needs pyarrow: pip install "rbr[cli]"') from error
    return pyarrow.CompressedInputStream(path, "zstd")


def _open_zip(path: str) -> BinaryIO:
    archive = zipfile.ZipFile(path)
    members = [name for name in archive.namelist() if not name.endswith("/")]
    if len(members) != 1:
        raise Refusal(f"{path!r} holds {len(members)} files; a zip archive must hold one")
    return cast(BinaryIO, archive.open(members[0]))


def read_some(stream: Any, n_bytes: int) -> bytes:
    """What one read gives. A Ctrl-C between two reads of a slow pipe is then seen before the next one blocks."""
    return (stream.read1 if isinstance(stream, io.BufferedIOBase) else stream.read)(n_bytes)


class Rewound(io.RawIOBase):
    """A stream whose beginning was read, from the beginning again."""

    def __init__(self, start: bytes, rest: Any):
        self._start, self._rest = memoryview(start), rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._start[: len(buffer)] if len(self._start) else read_some(self._rest, len(buffer))
        self._start = self._start[len(data) :] if len(self._start) else self._start
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._rest.close()
        super().close()


def read_start(stream: BinaryIO) -> bytes:
    """The beginning of a stream: less than SAMPLE_BYTES only if that is all of it."""
    parts: list[bytes] = []
    n_bytes = 0
    while n_bytes < SAMPLE_BYTES:
        part = read_some(stream, SAMPLE_BYTES - n_bytes)
        if not part:
            break
        parts.append(bytes(part))
        n_bytes += len(part)
    return b"".join(parts)


def guess_format(
    start: bytes,
    path: str,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    more_missing: Sequence[str] = (),
) -> CsvFormat:
    """The format of the table that begins with these bytes.

    Examples
    --------
    >>> form = guess_format(b"name;price\\nann;1,5\\nbob;NA\\n", "prices.csv")
    >>> form.names, form.separator, form.decimal, form.values("price")
    (('name', 'price'), ';', ',', ['1,5'])
    """
    encoding = encoding or _encoding(start)
    is_all = len(start) < SAMPLE_BYTES
    try:
        text = start.decode(encoding, errors="strict" if is_all else "ignore").removeprefix("\ufeff")
    except (LookupError, UnicodeDecodeError) as error:
        raise Refusal(f"{path!r} cannot be read as {encoding}: {error}; see --encoding") from error
    if not text.strip():
        raise Refusal(f"{path!r} is empty; a line of column names and rows of data are expected")
    lines = text.splitlines(keepends=True)
    lines = lines if is_all or len(lines) < 2 else lines[:-1]  # the last one may be cut short
    separator = separator or max(SEPARATORS, key=lambda own: _fit_of(lines, own))
    records = _records(lines, separator)
    names = tuple(name.strip() for name in records[0])
    rows = tuple(tuple(row) for row in records[1:] if len(row) == len(names))
    missing = tuple(dict.fromkeys((*MISSING_MARKS, *more_missing)))
    decimal = decimal or ("," if separator != "," and _has_decimal_commas(rows) else ".")
    return CsvFormat(names, separator, decimal, encoding, missing, rows, '"' in text)


def _encoding(start: bytes) -> str:
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    try:
        start.decode()
    except UnicodeDecodeError as error:
        # A character may be cut in two at the end of the sample.
        if error.start < len(start) - 4 or len(start) < SAMPLE_BYTES:
            return "cp1252"
    return "utf-8"


def _records(lines: Sequence[str], separator: str) -> list[list[str]]:
    records = []
    try:
        for record in csv.reader(lines, delimiter=separator):
            if record:
                records.append(record)
            if len(records) > SAMPLE_ROWS:
                break
    except csv.Error:  # a field beyond the limit of the module, or a quote that the sample cuts
        pass
    return records or [[""]]


def _fit_of(lines: Sequence[str], separator: str) -> tuple[bool, float, int]:
    """How well a separator explains the lines: they have several fields, and the same number of them."""
    sizes = [len(record) for record in _records(lines, separator)]
    return sizes[0] > 1, sizes.count(sizes[0]) / len(sizes), sizes[0]


def _has_decimal_commas(rows: Sequence[Sequence[str]]) -> bool:
    commas = sum(bool(_COMMA_NUMBER.fullmatch(value)) for row in rows for value in row)
    points = sum(bool(_POINT_NUMBER.fullmatch(value)) for row in rows for value in row)
    return commas > points
