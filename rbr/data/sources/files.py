"""Parquet and CSV files, by pyarrow, one batch of rows at a time."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from rbr._checks import check_int
from rbr.data.sources.base import ROWS_PER_BLOCK, Block, Source, check_columns, names_of

# The bytes of a CSV file that are parsed at a time; the types of its columns are those of the first ones.
BYTES_PER_BLOCK = 1 << 24


def pyarrow_for(what: str) -> Any:
    """pyarrow, or an error that says what to install."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(f"{what} are read by pyarrow: pip install 'rbr[files]'") from error
    return pyarrow


class FileSource(Source):
    """What Parquet and CSV files have in common: columns by name, one of which is the target."""

    def __init__(
        self,
        target: str,
        columns: Sequence[str] | None,
        sample_weight: str | None,
        offset: str | None,
        block_rows: int,
    ):
        for name, own in (("target", target), ("sample_weight", sample_weight), ("offset", offset)):
            if not isinstance(own, str) and not (own is None and name != "target"):
                raise TypeError(f"{name} is {own!r}; it must be the name of a column")
        if isinstance(columns, str):
            raise TypeError(f"columns is {columns!r}; it must be a list of column names")
        self.target_name = self.target = target
        self.sample_weight, self.offset = sample_weight, offset
        self._aside = [target, *names_of(sample_weight), *names_of(offset)]
        self.columns = None if columns is None else list(columns)
        used_twice = [name for name in self.columns or () if name in self._aside]
        if used_twice:
            raise ValueError(f"columns names {used_twice[0]!r}, which is the target, sample_weight or offset")
        self._block_rows = check_int(block_rows, "block_rows", 1)

    def narrowed(self, names: Sequence[str]) -> FileSource:
        other = copy(self)
        other.columns = list(names)
        return other

    def _features(self, present: Sequence[str], where: str) -> list[str]:
        """The columns of X among those of the first file."""
        if self.columns is not None:
            check_columns([*self.columns, *self._aside], present, where)
            return self.columns
        check_columns(self._aside, present, where)
        features = [name for name in present if name not in self._aside]
        if not features:
            raise ValueError(f"{where} has no columns besides {', '.join(map(repr, self._aside))}")
        return features

    def _block(self, batch: Any, features: list[str], file: str, first: int) -> Block:
        where = f"{file}, rows {first} to {first + batch.num_rows - 1}"
        weight, offset = (
            None if name is None else _numbers(batch.column(name), name, where)
            for name in (self.sample_weight, self.offset)
        )
        pyarrow = pyarrow_for("files")
        X = pyarrow.Table.from_batches([batch.select(features)])
        return Block(X, _labels(batch.column(self.target), self.target, where), weight, offset, where)

    def _facts(self, files: Sequence[str]) -> dict[str, Any]:
        status = [os.stat(file) for file in files]
        return {
            "files": [os.path.abspath(file) for file in files],
            "bytes": [one.st_size for one in status],
            "changed": [one.st_mtime_ns for one in status],
            "columns": self.columns,
            "aside": [self.target, self.sample_weight, self.offset],
        }


class ParquetSource(FileSource):
    """A Parquet file, a folder of them, or a pyarrow dataset, read a batch of rows at a time.

    Parameters
    ----------
    path : str, path, list of paths, or pyarrow.dataset.Dataset
        Folders are searched for files; ``key=value`` folders are columns (hive partitions).
    target : str
        The column that is predicted.
    columns : list of str, optional
        The columns of X; by default all but the target, weights and offsets. Other columns are not read.
    filters : list of tuples or pyarrow.dataset.Expression, optional
        Only rows for which this holds, such as ``[("year", ">=", 2020), ("price", ">", 0)]``; in a list of lists one of
        the inner lists must hold, as in `pandas.read_parquet`. Files and row groups that it excludes are not read.
    sample_weight, offset : str, optional
        Columns with the weights of the rows, and with what is added to their scores.
    block_rows : int
        Rows that are read at a time, at most.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np, pyarrow as pa, pyarrow.parquet as pq
    >>> from rbr import ParquetSource
    >>> folder = tempfile.TemporaryDirectory()
    >>> for k in range(3):
    ...     table = pa.table({"x": np.arange(5.0), "y": np.arange(5.0) + k})
    ...     pq.write_table(table, pathlib.Path(folder.name) / f"part-{k}.parquet")
    >>> source = ParquetSource(folder.name, target="y", filters=[("x", ">", 0)])
    >>> [len(block.y) for block in source.blocks()]
    [4, 4, 4]
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: Any,
        target: str,
        *,
        columns: Sequence[str] | None = None,
        filters: Any = None,
        sample_weight: str | None = None,
        offset: str | None = None,
        block_rows: int = ROWS_PER_BLOCK,
    ):
        super().__init__(target, columns, sample_weight, offset, block_rows)
        pyarrow_for("Parquet files")
        import pyarrow.dataset
        import pyarrow.parquet

        if isinstance(path, pyarrow.dataset.Dataset):
            self._dataset = path
        else:
            found = _files(path, (".parquet", ".pq")) if isinstance(path, (list, tuple)) else _existing(path)
            try:
                self._dataset = pyarrow.dataset.dataset(found, format="parquet", partitioning="hive")
            except (OSError, pyarrow.ArrowException) as error:
                raise ValueError(f"{path} cannot be read as Parquet: {error}") from error
        self._filters = filters
        is_list = isinstance(filters, (list, tuple))
        self._filter = pyarrow.parquet.filters_to_expression(filters) if is_list else filters

    def _fragments(self) -> list:
        """The files, in the order of their names."""
        return sorted(self._dataset.get_fragments(filter=self._filter), key=lambda fragment: fragment.path)

    def blocks(self) -> Iterator[Block]:
        import pyarrow.dataset

        features: list[str] = []
        for fragment in self._fragments():
            try:
                own = fragment.physical_schema
                of_folders = pyarrow.dataset.get_partition_keys(fragment.partition_expression)
                added = [self._dataset.schema.field(name) for name in of_folders if name not in own.names]
                schema = pyarrow.schema([*own, *added])
                if not features:
                    features = self._features(schema.names, fragment.path)
                check_columns([*features, *self._aside], schema.names, fragment.path)
                batches = fragment.to_batches(
                    schema=schema,
                    columns=[*features, *self._aside],
                    filter=self._filter,
                    batch_size=self._block_rows,
                    batch_readahead=1,
                )
                first = 0
                for batch in batches:
                    if batch.num_rows:
                        yield self._block(batch, features, fragment.path, first)
                    first += batch.num_rows
            except (OSError, pyarrow.ArrowException) as error:
                if isinstance(error, ValueError) and fragment.path in str(error):
                    raise
                raise ValueError(f"{fragment.path} cannot be read as Parquet: {error}") from error

    def fingerprint(self) -> dict[str, Any]:
        files = [fragment.path for fragment in self._fragments()]
        return {"kind": "parquet", "filters": str(self._filter)} | self._facts(files)


class CSVSource(FileSource):
    """A CSV file with a header, or several with the same columns, read some megabytes at a time.

    Parameters
    ----------
    path : str, path, or list of them
        A file, a folder, whose .csv and .csv.gz files are read in the order of their names, or a pattern such as
        ``data/2024-*.csv``.
    target : str
        The column that is predicted.
    columns : list of str, optional
        The columns of X; by default all but the target, weights and offsets.
    sample_weight, offset : str, optional
        Columns with the weights of the rows, and with what is added to their scores.
    delimiter : str
    types : dict from column names to pyarrow types, optional
        The type of a column is told from the first 16 MB of the first file, where whole numbers count as numbers. If a
        later row does not fit, the error says so, and this can name a wider type, such as ``{"zip": pa.string()}``.
    block_rows : int
        Rows of a block, at most.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from rbr import CSVSource
    >>> folder = tempfile.TemporaryDirectory()
    >>> for name in ("a", "b"):
    ...     _ = (pathlib.Path(folder.name) / f"{name}.csv").write_text("x,y\\n1,2\\n3,4\\n")
    >>> [block.y.tolist() for block in CSVSource(folder.name, target="y").blocks()]
    [[2.0, 4.0], [2.0, 4.0]]
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: Any,
        target: str,
        *,
        columns: Sequence[str] | None = None,
        sample_weight: str | None = None,
        offset: str | None = None,
        delimiter: str = ",",
        types: Mapping[str, Any] | None = None,
        block_rows: int = ROWS_PER_BLOCK,
    ):
        super().__init__(target, columns, sample_weight, offset, block_rows)
        pyarrow_for("CSV files")
        self._files = _files(path, (".csv", ".csv.gz"))
        self._delimiter, self._types = delimiter, dict(types or {})
        self._known: dict[str, Any] = {}

    def blocks(self) -> Iterator[Block]:
        pyarrow = pyarrow_for("CSV files")
        features: list[str] = []
        for file in self._files:
            try:
                with self._open(file) as reader:
                    names = reader.schema.names
                    if not features:
                        features = self._features(names, file)
                        self._known = self._known or _wider(reader.schema)
                    check_columns([*features, *self._aside], names, file)
                with self._open(file, [*features, *self._aside]) as reader:
                    first = 0
                    for batch in reader:
                        for start in range(0, batch.num_rows, self._block_rows):
                            part = batch.slice(start, self._block_rows)
                            yield self._block(part, features, file, first)
                            first += part.num_rows
            except (OSError, pyarrow.ArrowException) as error:
                if file in str(error):
                    raise
                if "Empty CSV file" in str(error):
                    raise ValueError(f"{file} is empty; it must at least have a header") from error
                raise ValueError(
                    f"{file} cannot be read: {error}. The types of its columns are those of the first rows of "
                    f"{self._files[0]}; `types` can name wider ones"
                ) from error

    def _open(self, file: str, columns: list[str] | None = None) -> Any:
        import pyarrow.csv

        own = {} if columns is None else {name: kind for name, kind in self._known.items() if name in columns}
        return pyarrow.csv.open_csv(
            file,
            read_options=pyarrow.csv.ReadOptions(block_size=BYTES_PER_BLOCK),
            parse_options=pyarrow.csv.ParseOptions(delimiter=self._delimiter),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=own | self._types, include_columns=columns, strings_can_be_null=True
            ),
        )

    def fingerprint(self) -> dict[str, Any]:
        read = {"delimiter": self._delimiter, "types": {name: str(kind) for name, kind in self._types.items()}}
        return {"kind": "csv"} | read | self._facts(self._files)


def _wider(schema: Any) -> dict[str, Any]:
    """The types of columns as later rows may need them: a column of whole numbers may go on with others."""
    pyarrow = pyarrow_for("CSV files")
    types = pyarrow.types
    is_number = {field.name: types.is_integer(field.type) or types.is_null(field.type) for field in schema}
    return {field.name: pyarrow.float64() if is_number[field.name] else field.type for field in schema}


def _existing(path: Any) -> str:
    path = os.fspath(path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path} does not exist; it must be a file or a folder of files")
    if os.path.isdir(path) and not any(os.scandir(path)):
        raise FileNotFoundError(f"{path} is an empty folder; it must have files in it")
    return path


def _files(path: Any, endings: tuple[str, ...]) -> list[str]:
    """The files of a path, a folder, a pattern, or a list of these."""
    if isinstance(path, (list, tuple)):
        return [file for one in path for file in _files(one, endings)]
    path = os.fspath(path)
    if any(mark in path for mark in "*?[") and not os.path.exists(path):
        found = sorted(glob.glob(path))
        if not found:
            raise FileNotFoundError(f"no file matches {path}")
        return found
    path = _existing(path)
    if not os.path.isdir(path):
        return [path]
    found = sorted(str(file) for file in Path(path).rglob("*") if file.name.lower().endswith(endings))
    if not found:
        raise FileNotFoundError(f"{path} has no files that end in {' or '.join(endings)}")
    return found


def _numbers(column: Any, name: str, where: str) -> np.ndarray:
    """A column of numbers, nulls as NaN, as float64."""
    try:
        return np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: column {name!r} has the type {column.type}; it must hold numbers") from error


def _labels(column: Any, name: str, where: str) -> np.ndarray:
    """A target: numbers as they are, text and dictionaries as objects."""
    if column.null_count:
        raise ValueError(f"{where}: the target {name!r} is missing in {column.null_count} rows; it must not be")
    types = pyarrow_for("files").types
    if types.is_boolean(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if types.is_integer(column.type) or types.is_floating(column.type):
        return np.asarray(column)
    if types.is_decimal(column.type):
        return np.array([float(value) for value in column.to_pylist()])
    labels = np.array(column.to_pylist(), dtype=object)
    return labels
