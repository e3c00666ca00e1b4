"""The rows that a page carries: a sample of the given ones, in the columns that the model uses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rbr._checks import check_sample_weight, check_vector
from rbr.data.tables import Table
from rbr.model.frames import target_of
from rbr.model.pairs import PairTerm
from rbr.model.scoring import open_by_name

if TYPE_CHECKING:
    from rbr.model import AdditiveModel


@dataclass(frozen=True, eq=False)
class Rows:
    """Given rows, checked.

    y : numbers; for classes their positions in `classes`; None if not given
    weight : ones if not given
    offset : (n_rows, n_outputs), or None
    """

    table: Table
    y: np.ndarray | None
    weight: np.ndarray
    offset: np.ndarray | None

    @property
    def n_rows(self) -> int:
        return self.table.n_rows


def given_rows(model: AdditiveModel, X: Any, y: Any, sample_weight: Any, offset: Any) -> Rows | None:
    """The rows of a report, or a ValueError that says what does not fit; None without X."""
    if X is None:
        for name, value in (("y", y), ("sample_weight", sample_weight), ("offset", offset)):
            if value is not None:
                raise ValueError(f"{name} is given and X is None; it belongs to the rows of X")
        return None
    used = [column for term in model.terms for column in term.columns]
    table = open_by_name(X, model.feature_names_in_, model.n_features_in_, used, "AdditiveModel")
    n = table.n_rows
    weight = np.ones(n) if sample_weight is None else check_sample_weight(sample_weight, n)
    if offset is not None:
        offset = np.asarray(offset, dtype=np.float64)
        if model.n_outputs == 1:
            offset = check_vector(offset, n, "offset")[:, None]
        elif offset.shape != (n, model.n_outputs) or not np.isfinite(offset).all():
            raise ValueError(f"offset has shape {offset.shape}; it must be finite and of shape {(n, model.n_outputs)}")
    return Rows(table, None if y is None else target_of(model, y, n), weight, offset)


def sample_content(model: AdditiveModel, rows: Rows | None, max_rows: int) -> dict[str, Any] | None:
    """At most `max_rows` rows, drawn with a fixed seed, in the order of X."""
    if rows is None or rows.n_rows == 0 or max_rows == 0:
        return None
    chosen = np.arange(rows.n_rows)
    if rows.n_rows > max_rows:
        chosen = np.sort(np.random.default_rng(0).choice(rows.n_rows, max_rows, replace=False))
    return {
        "n_given": rows.n_rows,
        "index": chosen.tolist(),
        "columns": [_column(rows.table, column, kind, chosen) for column, kind in column_kinds(model).items()],
        "y": None if rows.y is None else rows.y[chosen].tolist(),
        "weight": rows.weight[chosen].tolist(),
        "offset": None if rows.offset is None else rows.offset[chosen].tolist(),
    }


def column_kinds(model: AdditiveModel) -> dict[int, str]:
    """The kind of each used column, "numeric" or "category", in ascending order."""
    kinds: dict[int, str] = {}
    for term in model.terms:
        for own in term.axes if isinstance(term, PairTerm) else (term,):
            kinds[own.column if isinstance(term, PairTerm) else term.columns[0]] = own.kind
    return dict(sorted(kinds.items()))


def _column(table: Table, column: int, kind: str, chosen: np.ndarray) -> dict[str, Any]:
    if kind == "numeric":
        numbers = table.numbers(column, column + 1)[chosen, 0]
        return {"column": column, "values": [_number(x) for x in numbers.tolist()]}
    levels, codes = table.levels(column)
    present, codes = np.unique(codes[chosen], return_inverse=True)
    texts = [None if k < 0 else _level(levels[k]) for k in present.tolist()]
    return {"column": column, "levels": texts, "codes": codes.ravel().tolist()}


def _number(x: float) -> float | str | None:
    if math.isfinite(x):
        return x
    return None if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"


def _level(level: Any) -> Any:
    level = level.item() if isinstance(level, np.generic) else level
    if isinstance(level, float) and not math.isfinite(level):
        return {"number": "Infinity" if level > 0 else "-Infinity"}
    return level if isinstance(level, (str, bool, int, float)) else str(level)
