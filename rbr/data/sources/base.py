"""What every source of blocks has in common.

A source is read several times, from its first block to its last, and gives the same rows each time. It never holds more
than a block of them in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# The rows that a source reads at a time: 1.3 MB for each column of numbers, and enough to outweigh the cost of a call.
ROWS_PER_BLOCK = 1 << 17


@dataclass(frozen=True, eq=False)
class Block:
    """Some consecutive rows of a source.

    X : array, frame, pyarrow or sparse table; it has at least one row
    y : array of shape (n_rows,)
    weight, offset : arrays of shape (n_rows,), or None; with more than two classes an offset may have a column for each
    where : what errors call the block, such as "part-3.parquet, rows 0 to 65535"
    """

    X: Any
    y: np.ndarray
    weight: np.ndarray | None
    offset: np.ndarray | None
    where: str


class Source(ABC):
    """Rows that are read block by block, as often as needed; see the subclasses.

    Attributes
    ----------
    target_name : str or None
        The name of the target, if it has one.
    """

    target_name: str | None = None

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """The blocks, from the first to the last; each call begins again."""

    def narrowed(self, names: Sequence[str]) -> Source:
        """The same rows with these columns of X at least; a source that can leave others unread does so."""
        return self

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """What identifies the rows, as JSON can say it: a cache is used again only for the same."""


def names_of(given: str | None) -> list[str]:
    return [] if given is None else [given]


def vector(values: Any, n_rows: int, what: str, where: str) -> np.ndarray:
    """A vector of numbers or labels for the rows of a block."""
    values = np.asarray(values)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or len(values) != n_rows:
        raise ValueError(f"{where}: {what} has shape {values.shape}, but X has {n_rows} rows; they must agree")
    return values


def check_columns(wanted: Sequence[str], present: Sequence[str], where: str) -> None:
    """Raise a ValueError that names the columns that a file lacks."""
    absent = [name for name in wanted if name not in set(present)]
    if absent:
        listed = ", ".join(map(repr, absent[:5])) + (f" and {len(absent) - 5} more" if len(absent) > 5 else "")
        plural = "s" if len(absent) > 1 else ""
        raise ValueError(f"{where} has no column{plural} {listed}; every file must have the columns of the first")
