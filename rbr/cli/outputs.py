"""Where results are written: checked before the work begins, and written whole or not at all."""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rbr._backend import kernels
from rbr._files import whole_file
from rbr._sizes import NUMBER_WIDTH
from rbr._text import plain_number
from rbr.cli.blocks import Texts
from rbr.cli.console import Refusal, UsageError

STDOUT = "-"
PICTURES = (".png", ".svg", ".pdf", ".jpg")


def check_folder_of(path: str | None, option: str) -> None:
    """Refuse a file that cannot be written, before the work begins."""
    if path is None or path == STDOUT:
        return
    folder = Path(path).parent
    if Path(path).is_dir():
        raise Refusal(f"{option} is {path!r}, a folder; it must be a file")
    if not folder.is_dir():
        raise Refusal(f"{option} is {path!r}; there is no folder {str(folder)!r}")
    if not os.access(folder, os.W_OK):
        raise Refusal(f"{option} is {path!r}; the folder {str(folder)!r} cannot be written to")


def picture_format(path: str) -> str:
    """The format of a picture by the end of its name."""
    ending = Path(path).suffix.lower()
    if ending not in PICTURES:
        raise Refusal(f"the picture is {path!r}; its name must end in {', '.join(PICTURES)}")
    return ending[1:]


def check_report(path: str | None) -> None:
    """Refuse a report that cannot be written, before the work begins."""
    check_folder_of(path, "--report")
    from rbr.model import AdditiveModel

    if path is not None and not hasattr(AdditiveModel, "report"):
        raise Refusal(f"--report is {path!r}; this version of rbr cannot write reports")


def write_report(fitted: Any, path: str, *data: Any, **options: Any) -> None:
    """Write the interactive page of an estimator or a model, with rows X and targets y that it was not fitted to."""
    fitted.report(path, *data, **options)


# Tables ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Labels:
    """The class of each row, as its place among the classes."""

    codes: np.ndarray
    classes: np.ndarray

    def as_texts(self) -> Texts:
        return Texts.of(_field(_class_text(label)) for label in self.classes.tolist()).plain().take(self.codes)


def _class_text(label: Any) -> str:
    if isinstance(label, bool):
        return "true" if label else "false"
    return plain_number(label) if isinstance(label, float) else str(label)


class Writer(ABC):
    """Writes a table block by block: columns by name, each of float64, Texts, Labels or a column of pyarrow."""

    @abstractmethod
    def encode(self, columns: Mapping[str, Any]) -> Any:
        """A block as it will be written; threads may encode several side by side."""

    @abstractmethod
    def write(self, encoded: Any) -> None:
        """Write a block that was encoded."""

    @abstractmethod
    def close(self) -> None:
        """All blocks are written."""


@contextmanager
def table_writer(path: str, names: Sequence[str]) -> Iterator[Writer]:
    """Writes CSV, compressed if the name ends in .gz, or Parquet; "-" is stdout. `names` are those of the columns."""
    with ExitStack() as stack:
        if path == STDOUT:
            sys.stdout.flush()
            binary: Any = getattr(sys.stdout, "buffer", None) or _TextSink()
        else:
            file = stack.enter_context(whole_file(path))
            binary = stack.enter_context(open(file, "wb"))
            if path.lower().endswith(".gz"):
                binary = stack.enter_context(gzip.GzipFile(filename="", fileobj=binary, mode="wb", compresslevel=6))
        writer: Writer = (ParquetWriter if is_parquet(path) else CsvWriter)(binary, names)
        yield writer
        writer.close()
        binary.flush()


def is_parquet(path: str) -> bool:
    return path.lower().endswith((".parquet", ".pq"))


def check_table(path: str, option: str) -> None:
    """Refuse a table that cannot be written, before the work begins."""
    check_folder_of(path, option)
    if is_parquet(path) and find_spec("pyarrow") is None:
        raise UsageError(f'{option} is {path!r}; writing Parquet needs pyarrow: pip install "rbr[cli]"')


class _TextSink(io.RawIOBase):
    """Bytes of UTF-8 for a stdout that takes only text, as that of a notebook does."""

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        sys.stdout.write(bytes(data).decode())
        return len(data)


def _field(text: str) -> str:
    """A text as CSV, in quotes if it needs them."""
    return '"' + text.replace('"', '""') + '"' if re.search('[,"\r\n]', text) else text


class CsvWriter(Writer):
    """CSV with a line of names, numbers that read back to the last bit, and quotes only where they are needed."""

    def __init__(self, binary: BinaryIO, names: Sequence[str]):
        self.binary = binary
        binary.write((",".join(map(_field, names)) + "\n").encode())

    def encode(self, columns: Mapping[str, Any]) -> Any:
        texts = [_as_texts(own) for own in columns.values()]
        n_rows = len(texts[0])
        sizes = np.zeros(n_rows, dtype=np.int64)
        for own in texts:
            kernels().add_field_sizes(own.data, own.starts, own.ends, own.is_plain, sizes, 0, n_rows)
        row_ends = np.cumsum(sizes)
        out = np.empty(row_ends[-1] if n_rows else 0, dtype=np.uint8)
        places = row_ends - sizes
        for k, own in enumerate(texts):
            follower = ord("," if k < len(texts) - 1 else "\n")
            kernels().put_fields(own.data, own.starts, own.ends, own.is_plain, follower, places, out, 0, n_rows)
        return out

    def write(self, encoded: Any) -> None:
        self.binary.write(encoded)

    def close(self) -> None:
        pass


def _as_texts(column: Any) -> Texts:
    """A column as it is written in CSV."""
    if isinstance(column, Texts):
        return column
    if isinstance(column, Labels):
        return column.as_texts()
    if not isinstance(column, np.ndarray):
        return _texts_of_arrow(column)
    data = np.empty((len(column), NUMBER_WIDTH), dtype=np.uint8)
    n_bytes = np.empty(len(column), dtype=np.int32)
    kernels().write_numbers(column, data, n_bytes, 0, len(column))
    starts = np.arange(0, data.size, NUMBER_WIDTH, dtype=np.int32)
    return Texts(data.ravel(), starts, starts + n_bytes, is_plain=True)


def _texts_of_arrow(column: Any) -> Texts:
    """A column of pyarrow as text; null is no text."""
    import pyarrow

    filled = column.cast(pyarrow.string()).fill_null("")
    return Texts.of(filled.to_pylist())


class ParquetWriter(Writer):
    """Parquet by pyarrow."""

    def __init__(self, binary: BinaryIO, names: Sequence[str]):
        self.binary, self.names = binary, names
        self.writer: Any = None

    def encode(self, columns: Mapping[str, Any]) -> Any:
        import pyarrow

        return pyarrow.table({name: _as_arrow(own) for name, own in columns.items()})

    def write(self, encoded: Any) -> None:
        from pyarrow import parquet

        if self.writer is None:
            self.writer = parquet.ParquetWriter(self.binary, encoded.schema)
        self.writer.write_table(encoded)

    def close(self) -> None:
        if self.writer is None:  # no rows
            self.write(self.encode({name: [] for name in self.names}))
        self.writer.close()


def _as_arrow(column: Any) -> Any:
    import pyarrow

    if isinstance(column, Labels):
        column = column.classes[column.codes]
        column = column.tolist() if column.dtype == object else column
    column = column.tolist() if isinstance(column, Texts) else column
    array = column if isinstance(column, (pyarrow.Array, pyarrow.ChunkedArray)) else pyarrow.array(column)
    # The dictionaries of blocks differ.
    return array.dictionary_decode() if pyarrow.types.is_dictionary(array.type) else array
