"""Arrays that lie in memory-mapped files, or in memory, and iterables of blocks that the user makes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from rbr._checks import check_int
from rbr.data.sources.base import ROWS_PER_BLOCK, Block, Source, vector
from rbr.data.tables import is_frame


class ArraySource(Source):
    """An array of rows, such as a memory-mapped file, with its target; read in blocks of rows.

    Parameters
    ----------
    X : array of shape (n_rows, n_features), np.memmap or anything whose slices are arrays
    y : array of shape (n_rows,)
    sample_weight : array of shape (n_rows,), optional
    offset : array of shape (n_rows,), or (n_rows, n_classes) with more than two classes, optional
    block_rows : int
        Rows that are read at a time.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr import ArraySource
    >>> source = ArraySource(np.arange(10.0)[:, None], np.arange(10.0), block_rows=4)
    >>> [len(block.y) for block in source.blocks()]
    [4, 4, 2]
    """

    def __init__(
        self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None, *, block_rows: int = ROWS_PER_BLOCK
    ):
        self._X = X if hasattr(X, "shape") else np.asarray(X)
        if len(self._X.shape) != 2:
            raise ValueError(f"X has shape {self._X.shape}; it must have rows and columns")
        self._y = y if hasattr(y, "shape") else np.asarray(y)
        self._weight, self._offset = sample_weight, offset
        for name, own in (("y", self._y), ("sample_weight", sample_weight), ("offset", offset)):
            if own is not None and len(own) != len(self._X):
                raise ValueError(f"{name} has {len(own)} rows, and X has {len(self._X)}; they must agree")
        self._block_rows = check_int(block_rows, "block_rows", 1)
        given_name = getattr(y, "name", None)
        self.target_name = None if given_name is None else str(given_name)

    def blocks(self) -> Iterator[Block]:
        n_rows = len(self._X)
        for first in range(0, n_rows, self._block_rows):
            rows = slice(first, min(first + self._block_rows, n_rows))
            where = f"rows {rows.start} to {rows.stop - 1}"
            X = self._X.iloc[rows] if hasattr(self._X, "iloc") else self._X[rows]
            weight, offset = (None if a is None else np.asarray(a[rows]) for a in (self._weight, self._offset))
            yield Block(X, vector(self._y[rows], rows.stop - rows.start, "y", where), weight, offset, where)

    def fingerprint(self) -> dict[str, Any]:
        arrays = {"X": self._X, "y": self._y, "sample_weight": self._weight, "offset": self._offset}
        return {"kind": "arrays"} | {name: None if a is None else _identity(a) for name, a in arrays.items()}


class BlockSource(Source):
    """Blocks that the user makes: any iterable of (X, y) or (X, y, sample_weight) that can be read several times.

    Parameters
    ----------
    blocks : iterable
        A list, or an object whose `__iter__` begins again; a generator can be read only once and is refused. Each X is
        an array, frame or table, always with the same columns.
    key : str, optional
        Identifies the rows for `cache_dir`: a new key for new rows.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr import BlockSource
    >>> class Draws:
    ...     def __iter__(self):
    ...         for seed in range(3):
    ...             X = np.random.default_rng(seed).normal(size=(100, 2))
    ...             yield X, X[:, 0]
    >>> sum(len(block.y) for block in BlockSource(Draws()).blocks())
    300
    """

    def __init__(self, blocks: Iterable, key: str | None = None):
        if isinstance(blocks, (str, bytes, dict)) or not isinstance(blocks, Iterable):
            raise TypeError(f"blocks is a {type(blocks).__name__}; it must be an iterable of (X, y[, sample_weight])")
        if isinstance(blocks, Iterator):
            raise ValueError(
                f"blocks is a {type(blocks).__name__}, which can be read only once; a fit reads the rows several "
                f"times: pass a list of blocks, or an object whose __iter__ begins again"
            )
        self._blocks, self._key = blocks, key

    def blocks(self) -> Iterator[Block]:
        for number, given in enumerate(self._blocks):
            where = f"block {number}"
            if not isinstance(given, tuple) or len(given) not in (2, 3):
                what = f"a tuple of {len(given)}" if isinstance(given, tuple) else f"a {type(given).__name__}"
                raise ValueError(f"{where} is {what}; it must be a tuple (X, y) or (X, y, sample_weight)")
            X, y, weight = (*given, None)[:3]
            X = X if is_frame(X) or hasattr(X, "shape") else np.asarray(X)
            n_rows = X.shape[0]
            if not n_rows:
                continue
            if weight is not None:
                weight = vector(weight, n_rows, "sample_weight", where)
            yield Block(X, vector(y, n_rows, "y", where), weight, None, where)

    def fingerprint(self) -> dict[str, Any]:
        if self._key is None:
            raise ValueError(
                "cache_dir needs to know whether rows are the same as last time, and an iterable of blocks does not "
                "say: pass BlockSource(blocks, key=...) with a new key for new rows, or leave cache_dir out"
            )
        return {"kind": "blocks", "key": str(self._key)}


def _identity(array: Any) -> dict[str, Any]:
    """What identifies an array: of a memory-mapped file its path, place, size and time, else a hash of all bytes."""
    facts: dict[str, Any] = {"shape": list(array.shape), "dtype": str(getattr(array, "dtype", None))}
    file = _mapped_file(array)
    if file is not None:
        status = os.stat(file.filename)  # type: ignore[arg-type]
        start = array.__array_interface__["data"][0] - file.__array_interface__["data"][0] + file.offset
        place = {"file": os.path.abspath(file.filename), "start": start, "strides": list(array.strides)}  # type: ignore[type-var]
        return facts | place | {"bytes": status.st_size, "changed": status.st_mtime_ns}
    digest = hashlib.blake2b(digest_size=16)
    for first in range(0, len(array), ROWS_PER_BLOCK):
        rows = array.iloc[first : first + ROWS_PER_BLOCK] if hasattr(array, "iloc") else array[first:][:ROWS_PER_BLOCK]
        content = np.asarray(rows)
        digest.update(content.tobytes() if content.dtype != object else repr(content.tolist()).encode())
    return facts | {"hash": digest.hexdigest()}


def _mapped_file(array: Any) -> np.memmap | None:
    """The memory-mapped file that an array is a view of; the outermost one knows where it begins."""
    found = None
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and getattr(array, "filename", None) is not None:
            found = array
        array = array.base
    return found
