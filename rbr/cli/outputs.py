"""Where results are written: checked before the work begins, and written whole or not at all."""

from __future__ import annotations

import csv
import gzip
import io
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from rbr._files import whole_file
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


class Writer(ABC):
    """Writes a table block by block: columns by name, each an array, a list or a column of the block that was read."""

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
def table_writer(path: str, names: Sequence[str], library: str) -> Iterator[Writer]:
    """Writes CSV, compressed if the name ends in .gz, or Parquet; "-" is stdout.

    `names` are those of the columns, and `library` is "pyarrow" or "pandas", whichever has read the blocks.
    """
    with ExitStack() as stack:
        if path == STDOUT:
            sys.stdout.flush()
            binary: Any = getattr(sys.stdout, "buffer", None) or _TextSink()
        else:
            file = stack.enter_context(whole_file(path))
            binary = stack.enter_context(open(file, "wb"))
            if path.lower().endswith(".gz"):
                binary = stack.enter_context(gzip.GzipFile(filename="", fileobj=binary, mode="wb", compresslevel=6))
        if is_parquet(path):
            writer: Writer = ParquetWriter(binary, names)
        else:
            writer = (ArrowCsvWriter if library == "pyarrow" else PandasCsvWriter)(binary, names)
        yield writer
        writer.close()
        binary.flush()


def is_parquet(path: str) -> bool:
    return path.lower().endswith((".parquet", ".pq"))


def check_table(path: str, option: str, library: str) -> None:
    """Refuse a table that cannot be written, before the work begins."""
    check_folder_of(path, option)
    if is_parquet(path) and library != "pyarrow":
        raise UsageError(f'{option} is {path!r}; writing Parquet needs pyarrow: pip install "rbr[cli]"')


class _TextSink(io.RawIOBase):
    """Bytes of UTF-8 for a stdout that takes only text, as that of a notebook does."""

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        sys.stdout.write(bytes(data).decode())
        return len(data)


def _header(names: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(names)
    return text.getvalue().encode()


class CsvWriter(Writer):
    """CSV with a line of names."""

    def __init__(self, binary: BinaryIO, names: Sequence[str]):
        self.binary = binary
        binary.write(_header(names))

    def write(self, encoded: Any) -> None:
        self.binary.write(encoded)

    def close(self) -> None:
        pass


class ArrowCsvWriter(CsvWriter):
    """CSV by pyarrow, with numbers that read back to the last bit, and quotes only in blocks that need them."""

    def encode(self, columns: Mapping[str, Any]) -> Any:
        import pyarrow
        from pyarrow import csv as arrow_csv

        batch = pyarrow.RecordBatch.from_arrays([_as_arrow(own) for own in columns.values()], names=list(columns))
        style = "needed" if any(map(_needs_quotes, batch.columns)) else "none"
        sink = pyarrow.BufferOutputStream()
        arrow_csv.write_csv(batch, sink, arrow_csv.WriteOptions(include_header=False, quoting_style=style))
        return sink.getvalue()


def _needs_quotes(column: Any) -> bool:
    """Whether a column of text holds what means something else in CSV."""
    import pyarrow
    from pyarrow import compute

    if not pyarrow.types.is_string(column.type):
        return False
    return bool(compute.any(compute.match_substring_regex(column, '[,"\\r\\n]')).as_py())


class PandasCsvWriter(CsvWriter):
    """CSV by pandas, where there is no pyarrow."""

    def encode(self, columns: Mapping[str, Any]) -> Any:
        import pandas

        frame = pandas.DataFrame(dict(enumerate(columns.values())))
        return frame.to_csv(index=False, header=False, lineterminator="\n").encode()


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

    array = column if isinstance(column, (pyarrow.Array, pyarrow.ChunkedArray)) else pyarrow.array(column)
    # The dictionaries of blocks differ, and CSV does not know them.
    return array.dictionary_decode() if pyarrow.types.is_dictionary(array.type) else array
