"""What `rbr fit` understands of a table: the target, the features, what is left out, and why."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rbr._text import one_line, text_table
from rbr.cli.columns import NUMERIC, USABLE, Column, as_table
from rbr.cli.console import Refusal, UsageError
from rbr.cli.options import listed
from rbr.cli.tables import Source
from rbr.losses import Loss

SHOWN_COLUMNS = 40
SHOWN_CLASSES = 6
# A target of at most this many whole numbers might be meant as classes.
FEW_NUMBERS = 10

WHY_LEFT_OUT = {
    "date": "dates; make numbers of them, such as days or months, to use them",
    "names": "a different text in most rows; --categorical uses it nevertheless",
    "empty": "no values",
    "other": "neither numbers nor text",
}


@dataclass(frozen=True, eq=False)
class Training:
    """The rows and columns of a fit, or of rows to test it on.

    Attributes
    ----------
    title : the name of the file
    features : tuple of Column
    target : Column
    y : classes or numbers
    weight, offset : arrays or None
    offset_column : the column that the offset comes from, and whether by its logarithm
    left_out : {column: why}
    n_dropped : rows without a target
    """

    title: str
    features: tuple[Column, ...]
    target: Column
    y: np.ndarray
    is_classes: bool
    weight: np.ndarray | None
    offset: np.ndarray | None
    left_out: dict[str, str]
    n_dropped: int

    @property
    def n_rows(self) -> int:
        return len(self.y)

    @property
    def X(self) -> Any:
        return as_table(self.features)

    def rows(self, rows: np.ndarray) -> Training:
        """Some of the rows."""
        return replace(
            self,
            features=tuple(own.take(rows) for own in self.features),
            target=self.target.take(rows),
            y=self.y[rows],
            weight=None if self.weight is None else self.weight[rows],
            offset=None if self.offset is None else self.offset[rows],
        )


def read_training(source: Source, arguments: argparse.Namespace, loss: Loss | None) -> Training:
    """The rows and columns that the options ask for."""
    if len(set(source.names)) < len(source.names):
        twice = next(name for name in source.names if source.names.count(name) > 1)
        raise Refusal(f"{source.title} has more than one column named {twice!r}; column names must differ")
    if arguments.target not in source.names:
        raise UsageError(f"--target is {arguments.target!r}; the columns of {source.title} are {_all(source.names)}")
    for option in ("weight", "offset", "exposure"):
        name = getattr(arguments, option)
        if name is not None and name not in source.names:
            raise UsageError(f"--{option} is {name!r}; the columns of {source.title} are {_all(source.names)}")
    categorical = listed(arguments.categorical, source.names, "--categorical")
    columns = {own.name: own for own in source.whole(as_text=categorical)}
    for name in categorical:
        columns[name] = columns[name].as_category()
    target = columns[arguments.target]
    keep = ~target.is_missing
    n_dropped = int((~keep).sum())
    if n_dropped == len(keep):
        raise Refusal(
            f"--target is {target.name!r}, of which {source.title} has no value"
            if len(keep)
            else f"{source.title} has no rows"
        )
    if n_dropped:
        columns = {name: own.take(keep) for name, own in columns.items()}
        target = columns[target.name]
    is_classes = _is_classes(target, arguments.task, loss)
    names = _feature_names(columns, arguments)
    left_out = {name: WHY_LEFT_OUT[columns[name].kind] for name in names if columns[name].kind not in USABLE}
    left_out |= {name: "it has no name" for name in names if not name}
    features = tuple(columns[name] for name in names if name not in left_out)
    if not features:
        raise Refusal(f"{source.title} has no column to learn from besides {target.name!r}")
    weight = None if arguments.weight is None else columns[arguments.weight].numbers("--weight")
    return Training(
        source.title,
        features,
        target,
        labels(target) if is_classes else target.values,
        is_classes,
        weight,
        offset_of(columns, arguments.offset, arguments.exposure),
        left_out,
        n_dropped,
    )


def read_test(source: Source, training: Training, arguments: argparse.Namespace) -> Training:
    """Rows that the model was not fitted to, read like those of the fit."""
    beside = [name for name in (arguments.weight, arguments.offset, arguments.exposure) if name is not None]
    needed = [*(own.name for own in training.features), training.target.name, *beside]
    source.require(needed, "which the model needs")
    as_text = [own.name for own in (*training.features, training.target) if own.kind == "category"]
    columns = {own.name: own for own in source.whole(as_text=as_text) if own.name in needed}
    keep = ~columns[training.target.name].is_missing
    columns = {name: own.take(keep) for name, own in columns.items()}
    if not keep.any():
        raise Refusal(f"--test is {source.title}, which has no row with a value of {training.target.name!r}")
    features = tuple(_like(columns[own.name], own, source.title) for own in training.features)
    target = _like(columns[training.target.name], training.target, source.title)
    return replace(
        training,
        title=source.title,
        features=features,
        target=target,
        y=labels(target) if training.is_classes else target.values,
        weight=None if arguments.weight is None else columns[arguments.weight].numbers("--weight"),
        offset=offset_of(columns, arguments.offset, arguments.exposure),
        n_dropped=int((~keep).sum()),
    )


def _like(column: Column, known: Column, title: str) -> Column:
    """A column of another file as the kind that it had in the fit."""
    if column.kind == "empty":
        values = np.full(len(column.values), -1 if known.kind == "category" else np.nan)
        return replace(known, values=values.astype(known.values.dtype), levels=known.levels)
    if known.kind == "category":
        return column.as_category()
    if column.kind not in NUMERIC:
        raise Refusal(f"column {column.name!r} of {title} holds {column.says()}; it held numbers in the fit")
    return column


def offset_of(columns: dict[str, Column], offset: str | None, exposure: str | None) -> np.ndarray | None:
    """The offset of each row, from its own column or as the logarithm of an exposure."""
    if exposure is not None:
        return log_of_exposure(columns[exposure].numbers("--exposure"), exposure)
    return None if offset is None else columns[offset].numbers("--offset")


def log_of_exposure(values: np.ndarray, name: str) -> np.ndarray:
    if not (values > 0).all():
        bad = values[~(values > 0)][0]
        raise Refusal(f"--exposure is {name!r}, which holds {bad:g}; it must be above 0 in every row")
    return np.log(values)


def labels(target: Column) -> np.ndarray:
    """The class of each row: a text, a truth value or a number."""
    if target.kind == "category":
        return np.array(target.levels)[target.values]
    if target.kind == "boolean":
        return target.values.astype(bool)
    return target.values.astype(np.int64) if target.kind == "integer" else target.values


def _is_classes(target: Column, task: str, loss: Loss | None) -> bool:
    """Whether the target is a class; text and truth values are, and numbers if there are two of them."""
    if target.kind not in USABLE and target.kind != "names":
        raise Refusal(f"--target is {target.name!r}, a column of kind {target.kind}; it must hold numbers or classes")
    if target.kind == "names":
        raise Refusal(f"--target is {target.name!r}, which is {target.says()}: too many to be classes")
    is_number = target.kind in NUMERIC
    if (loss is not None or task == "regression") and not is_number:
        what = "--loss" if loss is not None else "--task regression"
        raise UsageError(f"{what} is for numbers, and the target {target.name!r} holds {target.says()}")
    if loss is not None or task == "regression":
        return False
    if task == "classification":
        return True
    return not is_number or target.kind == "boolean" or len(np.unique(target.values)) <= 2


def _feature_names(columns: dict[str, Column], arguments: argparse.Namespace) -> list[str]:
    names = list(columns)
    wanted = listed(arguments.features, names, "--features") if arguments.features else names
    beside = {arguments.target, arguments.weight, arguments.offset, arguments.exposure}
    unwanted = beside | set(listed(arguments.exclude, names, "--exclude"))
    return [name for name in wanted if name not in unwanted]


def _all(names: Sequence[str]) -> str:
    shown = ", ".join(map(one_line, names[:30]))
    return shown if len(names) <= 30 else f"{shown} and {len(names) - 30} more"


# What was understood --------------------------------------------------------------------------------------


def target_text(training: Training, is_chosen: bool) -> str:
    """The target in words; unless it is the user's choice, with a hint that numbers may be meant as classes."""
    name = one_line(training.target.name)
    if not training.is_classes:
        few, hint = np.unique(training.y), ""
        if not is_chosen and len(few) <= FEW_NUMBERS and training.target.kind == "integer":
            hint = f" ({len(few)} different numbers; --task classification makes them classes)"
        return f"{name}, {training.target.says()}, mean {training.y.mean():,.4g}{hint}"
    classes, counts = np.unique(training.y, return_counts=True)
    shares = [f"{one_line(c)} {n / len(training.y):.1%}" for c, n in zip(classes, counts, strict=True)]
    more = f" and {len(shares) - SHOWN_CLASSES} more" if len(shares) > SHOWN_CLASSES else ""
    return f"{name}, {len(classes)} classes: {', '.join(shares[:SHOWN_CLASSES])}{more}"


def columns_text(training: Training) -> str:
    """The features in a table, then what is left out."""
    rows = [
        (own.name, own.kind, f"{own.n_missing:,}" if own.n_missing else "", own.says())
        for own in training.features[:SHOWN_COLUMNS]
    ]
    lines = [text_table(("column", "kind", "missing", "values"), rows, (False, False, True, False))]
    if len(training.features) > SHOWN_COLUMNS:
        lines.append(f"... and {len(training.features) - SHOWN_COLUMNS:,} more columns")
    lines += [f"Left out: {one_line(name) or 'a column'} ({why})" for name, why in training.left_out.items()]
    return "\n".join(lines)


def as_facts(training: Training) -> dict[str, Any]:
    """What was understood, for machines."""
    return {
        "file": training.title,
        "rows": training.n_rows,
        "rows_without_target": training.n_dropped,
        "target": {
            "name": training.target.name,
            "kind": training.target.kind,
            "classes": np.unique(training.y).tolist() if training.is_classes else None,
        },
        "columns": [
            {"name": own.name, "kind": own.kind, "missing": own.n_missing, "levels": len(own.levels) or None}
            for own in training.features
        ],
        "left_out": training.left_out,
    }
