"""Conversion and checks of user input: columns by name or index, class labels, offsets, weights, masked arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from rbr.constraints import Constraints
from rbr.data.binning import Binner
from rbr.data.choices import by_index, indices_of
from rbr.data.tables import is_frame, open_table

# Integer labels are counted instead of sorted if all are nearer to zero than this.
MAX_COUNTED_LABEL = 1 << 16


@dataclass(frozen=True)
class Columns:
    """The columns of X, which a user gives by name or by index."""

    names: tuple[str, ...] | None
    n_features: int

    @classmethod
    def of(cls, X: Any) -> Columns:
        """The columns of a table that has been checked."""
        if isinstance(X, Columns):
            return X
        return cls(open_table(X).names if is_frame(X) else None, X.shape[1])

    def label(self, j: int) -> str:
        return f"column {j}" if self.names is None else f"column {self.names[j]!r}"

    def by_index(self, value, parameter: str):
        """A dict by column name or index as a dict by index; anything else as it is."""
        return by_index(value, self, parameter) if isinstance(value, Mapping) else value

    def indices(self, columns, parameter: str) -> tuple[int, ...]:
        """The indices of a list of columns, ascending."""
        return indices_of(columns, self, parameter)


@dataclass(frozen=True, eq=False)
class Training:
    """What a fit knows of its rows beside the objective over them.

    X, target : all rows, or for a source that is read in blocks those of the first one, and None
    classes : labels of a classifier, else None
    counts, y : the users' weights and the class codes of all rows, or the total weight and the code of each class
    dispersion : the one that class weights cause, or None
    on_iteration : called after each iteration, or None
    """

    X: Any
    target: Any
    target_name: str | None
    binner: Binner
    constraints: Constraints
    classes: np.ndarray | None
    counts: np.ndarray | None
    y: np.ndarray
    dispersion: float | None = None
    warm_start: np.ndarray | None = None
    on_iteration: Callable[[Any], bool] | None = None


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


def as_checkable(X: Any) -> Any:
    """X in a form that scikit-learn's checks understand.

    They would drop the mask of a masked array, whose masked numbers become NaN here, and do not see the names in a
    pyarrow RecordBatch, which becomes a Table.
    """
    if is_frame(X) and type(X).__name__ == "RecordBatch":
        return sys.modules["pyarrow"].Table.from_batches([X])
    if type(X).__module__.startswith("polars") and not is_frame(X):
        open_table(X)  # raises: it is lazy, or a single column
    if isinstance(X, np.ma.MaskedArray) and X.dtype.kind in "fiub":
        return np.ma.filled(X.astype(np.result_type(X.dtype, np.float32)), np.nan)
    return X


def with_text_names(X: Any) -> Any:
    """A frame under the names that a model has for its columns, such as "2001" for 2001; they must differ."""
    names = open_table(X).names
    if names is None or not hasattr(X, "set_axis") or all(isinstance(name, str) for name in X.columns):
        return X
    return X.set_axis(names, axis=1)


@contextmanager
def hint_at_names():
    """Adds to scikit-learn's error about feature names that the model itself is less strict."""
    try:
        yield
    except ValueError as error:
        error.add_note(
            "An estimator keeps scikit-learn's rule: the columns of fit, in that order. Its model_ finds columns by "
            "name: only those that it uses must be there, in any order, as in model_.predict(X)."
        )
        raise


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


def name_of(y: Any) -> str | None:
    """The name of a target: that of a pandas or polars Series, or of the only column of a frame; None without one."""
    columns = getattr(y, "columns", None)
    name = getattr(y, "name", None) if columns is None else columns[0] if len(columns) == 1 else None
    return None if name is None or str(name) == "" else str(name)


def is_ordered(X: Any, j: int) -> bool:
    """Whether column j of a pandas frame or a pyarrow table is an ordered category."""
    dtypes: Any = getattr(X, "dtypes", None)
    field: Any = getattr(getattr(X, "schema", None), "field", None)
    dtype: Any = dtypes.iloc[j] if hasattr(dtypes, "iloc") else field(j).type if field is not None else None
    return bool(getattr(dtype, "ordered", False))
