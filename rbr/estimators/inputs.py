"""Conversion and checks of user input: columns by name or index, class labels, offsets, weights, masked arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rbr.data.choices import by_index, index_of
from rbr.data.tables import is_frame, open_table

# Integer labels are counted instead of sorted if all are nearer to zero than this.
MAX_COUNTED_LABEL = 1 << 16


@dataclass(frozen=True)
class Columns:
    """The columns of X, which a user gives by name or by index."""

    names: tuple[str, ...] | None
    n_features: int

    def label(self, j: int) -> str:
        return f"column {j}" if self.names is None else f"column {self.names[j]!r}"

    def by_index(self, value, parameter: str):
        """A dict by column name or index as a dict by index; anything else as it is."""
        return by_index(value, self, parameter) if isinstance(value, Mapping) else value

    def indices(self, columns, parameter: str) -> tuple[int, ...]:
        """The indices of a list of columns, ascending."""
        if columns is None:
            return ()
        if isinstance(columns, str) or not isinstance(columns, Iterable):
            raise ValueError(f"{parameter} is {columns!r}; it must be a list of column names or indices")
        return tuple(sorted({index_of(column, self.names, self.n_features, parameter) for column in columns}))


def classes_and_codes(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The labels in ascending order, and each row's position among them; small integers are counted, others sorted.

    >>> classes_and_codes(np.array([7, 5, 7, 9]))
    (array([5, 7, 9]), array([1., 0., 1., 2.]))
    """
    if y.dtype.kind in "iub" and len(y):
        low, high = int(y.min()), int(y.max())
        if -MAX_COUNTED_LABEL < low and high < MAX_COUNTED_LABEL and high - low < len(y):
            from_low = y.astype(np.int64, copy=False)
            from_low = from_low - low if low else from_low
            occurs = np.bincount(from_low) > 0
            classes = (np.flatnonzero(occurs) + low).astype(y.dtype)
            return classes, np.take(np.cumsum(occurs) - 1.0, from_low)
    classes, codes = np.unique(y, return_inverse=True)
    return classes, codes.astype(np.float64)


def dispersion_of_weights(counts: np.ndarray | None, weights: np.ndarray) -> float:
    """phi = sum c w^2 / sum c w, the dispersion if a row stands for c = `counts` rows of weight w = `weights` / c each.

    A row with three times the weight that its information is worth makes the loss fall three times as far by chance.
    Equal w do not change the unit of the jump cost.
    """
    used = weights > 0
    counts = np.ones(used.sum()) if counts is None else counts[used]
    return float(np.sum(weights[used] ** 2 / counts) / np.sum(weights[used]))


def fill_masked(X: Any) -> Any:
    """X with NaN for the masked entries of a numeric masked array; scikit-learn's checks would drop the mask."""
    if type(X).__module__.startswith("polars") and not is_frame(X):
        open_table(X)  # raises: it is lazy, or a single column
    if isinstance(X, np.ma.MaskedArray) and X.dtype.kind in "fiub":
        return np.ma.filled(X.astype(np.result_type(X.dtype, np.float32)), np.nan)
    return X


def check_offset(offset, n_rows: int, n_scores: int) -> np.ndarray:
    shape = (n_rows,) if n_scores == 1 else (n_rows, n_scores)
    try:
        offset = np.asarray(offset, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"offset is {offset!r}; it must be numbers of shape {shape}") from error
    if offset.shape != shape:
        raise ValueError(f"offset has shape {offset.shape}; it must have the shape {shape}")
    if not np.isfinite(offset).all():
        raise ValueError(f"offset holds {offset[~np.isfinite(offset)][0]}; all of it must be finite")
    return offset


def is_ordered(X: Any, j: int) -> bool:
    """Whether column j of a pandas frame is an ordered category."""
    dtypes: Any = getattr(X, "dtypes", None)
    return bool(hasattr(dtypes, "iloc") and getattr(dtypes.iloc[j], "ordered", False))
