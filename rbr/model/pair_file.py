"""Terms of two columns in model files."""

from __future__ import annotations

from typing import Any

import numpy as np

from rbr.model.file import Fields, category_in, category_out, number_out, numbers_out
from rbr.model.pairs import Axis, PairTerm


def pair_out(term: PairTerm) -> dict:
    """The term as plain Python values."""
    return {
        "name": term.name,
        "columns": list(term.columns),
        "kind": term.kind,
        "axes": [_axis_out(axis, term) for axis in term.axes],
        "values": numbers_out(term.values),
        "weights": numbers_out(term.weights),
        "counts": numbers_out(term.counts),
        "labels": term.labels.tolist(),
        "loss_drop": number_out(term.loss_drop),
        "gain": number_out(term.gain),
        "target_sums": numbers_out(term.target_sums),
        "exposures": numbers_out(term.exposures),
    }


def _axis_out(axis: Axis, term: PairTerm) -> dict:
    groups = axis.groups
    return {
        "name": axis.name,
        "edges": numbers_out(axis.edges),
        "groups": None if groups is None else [[category_out(level, term) for level in group] for group in groups],
        "has_missing": axis.has_missing,
    }


def pair_in(given: Fields) -> PairTerm:
    """The term of a file, or a ValueError that says what is wrong with it."""
    where = given.where
    columns, sides = given.get("columns", list), given.get("axes", list)
    if len(columns) != 2 or not all(type(column) is int for column in columns):
        raise ValueError(f"{where}: columns is {columns!r:.60}; a pair has two integers")
    if len(sides) != 2:
        raise ValueError(f"{where}: it has {len(sides)} axes; a pair has two")
    labels = given.get("labels", list)
    if not all(isinstance(row, list) and all(type(v) is int and 0 <= v < 2**31 for v in row) for row in labels):
        raise ValueError(f"{where}: labels must be rows of integers of at least 0")
    if len({len(row) for row in labels}) > 1:
        raise ValueError(f"{where}: the rows of labels differ in length")
    given.get("kind", str)
    first, second = (_axis_in(item, column, where) for item, column in zip(sides, columns, strict=True))
    term = PairTerm(
        name=given.get("name", str),
        axes=(first, second),
        values=given.numbers("values", (2, 3)),
        weights=given.numbers("weights", (2,)),
        counts=given.numbers("counts", (2,)),
        labels=np.array(labels, dtype=np.int32),
        loss_drop=given.numbers("loss_drop", (0,)),
        gain=given.numbers("gain", (0,)),
        target_sums=given.numbers("target_sums", (1, 2)),
        exposures=given.numbers("exposures", (1,)),
    )
    given.done()
    return term


def _axis_in(item: Any, column: int, where: str) -> Axis:
    given = Fields(item, f"{where}, axis of column {column}")
    groups = given.get("groups", list, None)
    if groups is not None and not all(isinstance(group, list) for group in groups):
        raise ValueError(f"{given.where}: groups must be a list of lists of levels")
    axis = Axis(
        column=column,
        name=given.get("name", str),
        edges=given.numbers("edges", (1,)),
        groups=None if groups is None else tuple(tuple(category_in(v, given.where) for v in g) for g in groups),
        has_missing=given.get("has_missing", bool),
    )
    given.done()
    return axis
