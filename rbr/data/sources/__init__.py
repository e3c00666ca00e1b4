"""Sources: rows that are read in blocks, as often as needed, and never all at once.

`ArraySource` reads memory-mapped arrays, `ParquetSource` and `CSVSource` read files, and `BlockSource` takes what an
iterable of the user makes. `as_source` finds the right one for what a user gives.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rbr.data.sources.arrays import ArraySource, BlockSource
from rbr.data.sources.base import Block, Source
from rbr.data.sources.files import CSVSource, FileSource, ParquetSource

__all__ = [
    "ArraySource",
    "Block",
    "BlockSource",
    "CSVSource",
    "FileSource",
    "ParquetSource",
    "Request",
    "Source",
    "as_source",
    "is_source",
]


@dataclass(frozen=True)
class Request:
    """A source, and how it is to be read.

    cache_dir : where binned rows are kept, or None
    callback : called with the progress, or None
    """

    source: Source
    cache_dir: str | os.PathLike | None = None
    callback: Callable[..., Any] | None = None


def is_source(given: Any, y: Any = None) -> bool:
    """Whether rows are to be read in blocks: from a source, a path, a pyarrow dataset, or an iterable of blocks."""
    if isinstance(given, (Source, Request, str, os.PathLike)) or _is_dataset(given):
        return True
    if y is not None or hasattr(given, "shape") or hasattr(given, "__array__") or not isinstance(given, Iterable):
        return False
    return not isinstance(given, (list, tuple)) or (len(given) > 0 and isinstance(given[0], tuple))


def _is_dataset(given: Any) -> bool:
    kind = getattr(sys.modules.get("pyarrow.dataset"), "Dataset", None)
    return kind is not None and isinstance(given, kind)


def as_source(given: Any, target: Any = None, **options: Any) -> Source:
    """The source behind what a user gives.

    given : a Source; a path, a list of paths or a pyarrow dataset, where `target` is the name of a column; an array,
        where it is an array too; or an iterable of (X, y[, sample_weight])
    options : further arguments of the source
    """
    options = {name: value for name, value in options.items() if value is not None}
    if isinstance(given, Source):
        if target is not None or options:
            named = ["target"] * (target is not None) + list(options)
            raise ValueError(
                f"source is a {type(given).__name__}, which has its own {', '.join(named)}; leave them out"
            )
        return given
    if _is_path(given) or _is_dataset(given) or _are_paths(given):
        if target is None:
            raise ValueError("target is None; with files it must be the name of the column to predict")
        is_csv = not _is_dataset(given) and _ending_is_csv(given)
        return (CSVSource if is_csv else ParquetSource)(given, target, **options)
    if hasattr(given, "shape") and len(given.shape) == 2:
        if target is None:
            raise ValueError("target is None; with an array it must be the array of targets")
        return ArraySource(given, target, **options)
    if not isinstance(given, Iterable):
        raise TypeError(
            f"source is a {type(given).__name__}; it must be a path, an array, a pyarrow dataset, a Source, or an "
            f"iterable of (X, y[, sample_weight])"
        )
    if target is not None:
        raise ValueError("target is given, but blocks (X, y[, sample_weight]) bring their own; leave it out")
    return BlockSource(given, **options)


def _is_path(given: Any) -> bool:
    return isinstance(given, (str, os.PathLike))


def _are_paths(given: Any) -> bool:
    return isinstance(given, (list, tuple)) and len(given) > 0 and all(map(_is_path, given))


def _ending_is_csv(given: Any) -> bool:
    first = os.fspath(given[0] if isinstance(given, (list, tuple)) else given)
    if os.path.isdir(first):
        return not any(name.lower().endswith((".parquet", ".pq")) for *_, names in os.walk(first) for name in names)
    return first.lower().endswith((".csv", ".csv.gz"))
