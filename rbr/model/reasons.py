"""The largest reasons for the prediction of one row, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rbr._checks import check_int, check_real
from rbr._text import class_text, one_line
from rbr.data.tables import Table, is_missing, open_table
from rbr.model.frames import bins_of_rows
from rbr.model.pairs import AnyTerm, Axis, PairTerm
from rbr.model.terms import Record, Term, column_name

if TYPE_CHECKING:
    from rbr.model import AdditiveModel


@dataclass(frozen=True)
class Reason:
    """What one term adds to the score of a row.

    term : the name of the term
    value : the row's own value, None if it is missing; of a pair both values
    range : the piece that it falls into, in words
    effect : what that adds to the score
    text : all of this in words
    """

    term: str
    value: Any
    range: str
    effect: float
    text: str


@dataclass(frozen=True)
class RowExplanation:
    """Why a row has its prediction; `print` it.

    Attributes
    ----------
    prediction : float or a class label
    score : float
        The raw score that the reasons explain: intercept, offset, and what all terms add.
    intercept : float
    reasons : Record of Reason
        The largest first; `.to_frame()` makes a pandas frame of them.
    rest : float
        What the terms that are not listed add together.
    head : str
        The prediction in words.
    """

    prediction: Any
    score: float
    intercept: float
    reasons: Record
    rest: float
    head: str = field(repr=False)
    tail: str = field(repr=False)

    def __str__(self) -> str:
        lines = [self.head, *(f"  {reason.text}" for reason in self.reasons)]
        return "\n".join([*lines, f"  {self.tail}"] if self.tail else lines)


def explain_row(model: AdditiveModel, row: Any, n: int | None, offset: float | None, label: Any) -> RowExplanation:
    """See `AdditiveModel.explain_row`."""
    if n is not None:
        check_int(n, "n", 1)
    offset = 0.0 if offset is None else check_real(offset, "offset", -math.inf)
    X = one_row(model, row)
    scores = np.atleast_1d(np.asarray(model.decision_function(X))[0])
    output = _output(model, scores, label)
    effects = model.explain(X)[0].reshape(len(model.terms), -1)[:, output]
    bins = bins_of_rows(model, X)[0]
    words = _Words(model, output)
    table = open_table(X)
    order = [int(t) for t in np.argsort(-np.abs(effects), kind="stable") if effects[t]]
    shown = order if n is None else order[:n]
    reasons = Record(
        _reason(model.terms[t], table, int(bins[t]), float(effects[t]), words, model.feature_names_in_) for t in shown
    )
    rest, n_rest = float(effects[order[len(shown) :]].sum()), len(order) - len(shown)
    score = float(scores[output]) + offset
    prediction = model.predict(X, offset=np.full((1, model.n_outputs), offset) if model.n_outputs > 1 else [offset])[0]
    intercept = float(np.atleast_1d(model.intercept)[output])
    several = "s together" if n_rest > 1 else ""
    tail = f"{n_rest} smaller reason{several} {words.effect(rest, is_plural=n_rest > 1)}" if n_rest else ""
    prediction = prediction.item() if isinstance(prediction, np.generic) else prediction
    head = words.head(scores + offset, intercept, offset)
    return RowExplanation(prediction, score, intercept, reasons, rest, head, tail)


def _output(model: AdditiveModel, scores: np.ndarray, label: Any) -> int:
    """The score column to explain: of the given class, by default of the predicted one."""
    if label is None:
        return int(scores.argmax())
    if model.n_outputs == 1:
        raise ValueError(f"label is {label!r}; it chooses one of several score columns, and this model has one")
    labels = list(range(model.n_outputs)) if model.classes is None else model.classes.tolist()
    if label not in labels:
        raise ValueError(f"label is {label!r}; it must be one of the classes, {', '.join(map(repr, labels))}")
    return labels.index(label)


class _Words:
    """How a score is told: as log-odds and odds, as factors, as sums, or as the score of a class."""

    def __init__(self, model: AdditiveModel, output: int):
        self.model, self.link = model, model.loss.link
        self.target = one_line(model.target or "the prediction")
        labels: list[Any] = [0, 1] if model.n_outputs == 1 else list(range(model.n_outputs))
        labels = labels if model.classes is None else model.classes.tolist()
        self.label = class_text(model.target, labels[1 if model.n_outputs == 1 else output])
        self.output = output
        self.had_exposure = any(term.exposures.size > 0 for term in model.terms)

    def head(self, scores: np.ndarray, intercept: float, offset: float) -> str:
        score, loss = scores[self.output], self.model.loss
        beside = f", with the offset {offset:.3g}" if offset else ""
        if self.link == "logit":
            chance, before = (float(loss.inverse_link(np.array([z]))[0]) for z in (score, intercept + offset))
            return (
                f"the probability of {self.label} is {chance:.3g}{beside}: "
                f"log-odds {score:.3g}, before any reason {intercept + offset:.3g} (probability {before:.3g})"
            )
        if self.link == "softmax":
            chance = float(loss.inverse_link(scores[None])[0, self.output])
            return (
                f"the probability of {self.label} is {chance:.3g}{beside}: "
                f"its score is {score:.3g}, before any reason {intercept + offset:.3g}"
            )
        value, before = (float(loss.inverse_link(np.array([z]))[0]) for z in (score, intercept + offset))
        if self.link == "log" and self.had_exposure:
            beside = f" for an exposure of {float(loss.inverse_link(np.array([offset]))[0]):.4g}"
        return f"{self.target} is {value:.4g}{beside}: before any reason {before:.4g}"

    def effect(self, effect: float, is_plural: bool = False) -> str:
        s = "" if is_plural else "s"
        if self.link == "log":
            return f"{'multiply' if is_plural else 'multiplies'} {self.target} by {math.exp(effect):.3g}"
        if self.link not in ("logit", "softmax"):
            verb, side = (f"add{s}", "to") if effect > 0 else (f"take{s}", "from")
            return f"{verb} {abs(effect):.3g} {side} {self.target}"
        moved = f"{'raise' if effect > 0 else 'lower'}{s} the"
        if self.link == "softmax":
            return f"{moved} score of {self.label} by {abs(effect):.3g}"
        return f"{moved} log-odds of {self.label} by {abs(effect):.3g} (odds times {math.exp(effect):.3g})"


def _reason(term: AnyTerm, table: Table, k: int, effect: float, words: _Words, names) -> Reason:
    """The reason of a term whose bin of this row is k."""

    def place(column: int) -> int:
        return column if table.names is None else list(table.names).index(column_name(column, names))

    if isinstance(term, PairTerm):
        from rbr.model.pair_reading import told_of_pair

        first, second = (_value(axis, table, place(axis.column)) for axis in term.axes)
        where, told = told_of_pair(term, k, (first, second))
        return Reason(term.name, (first, second), where, effect, f"{told}: {words.effect(effect)}")
    value = _value(term, table, place(term.feature))
    # A row has the bin of missing values if training had any, else no bin at all.
    piece = next((piece for piece in term.pieces if k in piece.bins), None)
    where = "missing" if piece is None else piece.text
    if value is None:
        told = f"{one_line(term.name)} is missing"
    elif term.kind == "category":
        told = f"{one_line(term.name)} is {one_line(value)}"
    else:
        told = f"{one_line(term.name)} is {value:g}" + ("" if where == "any number" else f", {where}")
    return Reason(term.name, value, where, effect, f"{told}: {words.effect(effect)}")


def _value(owner: Term | Axis, table: Table, column: int) -> Any:
    if owner.kind == "numeric":
        number = float(table.numbers(column, column + 1)[0, 0])
        return None if math.isnan(number) else number
    levels, codes = table.levels(column)
    return None if codes[0] < 0 else levels[codes[0]]


def one_row(model: AdditiveModel, row: Any) -> Any:
    """A table of one row from a dict, a Series, a sequence of all columns, or a table of one row."""
    pairs = row if isinstance(row, Mapping) else dict(row.items()) if hasattr(row, "to_frame") else None
    if pairs is not None:
        return _from_names(model, pairs)
    shape = np.shape(row)
    if len(shape) == 1:
        if shape[0] != model.n_features_in_:
            raise ValueError(f"row has {shape[0]} values; it must have one for each of {model.n_features_in_} columns")
        return np.array(list(row), dtype=object)[None]
    if len(shape) != 2 or shape[0] != 1:
        raise ValueError(f"row has shape {shape}; it must be one row, such as X[0], X.iloc[[0]] or a dict of values")
    return row


def _from_names(model: AdditiveModel, pairs: Mapping) -> np.ndarray:
    names = [column_name(j, model.feature_names_in_) for j in range(model.n_features_in_)]
    used = {j for term in model.terms for j in term.columns}
    absent = [names[j] for j in sorted(used) if names[j] not in pairs]
    if absent:
        raise ValueError(f"row has no value for {', '.join(map(repr, absent))}, which the model uses")
    out = np.full((1, len(names)), np.nan, dtype=object)
    for j in used:
        value = pairs[names[j]]
        out[0, j] = np.nan if is_missing(value) else value
    return out
