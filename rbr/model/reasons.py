"""The largest reasons for the prediction of one row, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rbr._checks import check_int, check_vector
from rbr._text import class_text, one_line
from rbr.data.tables import ArrayTable, Table, as_name
from rbr.model.frames import bins_of_rows, labels_of
from rbr.model.pairs import AnyTerm, Axis, PairTerm
from rbr.model.terms import Record, Term, column_name

if TYPE_CHECKING:
    from rbr.model import AdditiveModel


@dataclass(frozen=True)
class Reason:
    """What one term adds to the score of a row.

    Attributes
    ----------
    term : str
    value : the row's own value, None if it is missing; of a pair both values
    range : str
        The piece that it falls into, in words; "" if training did not have the value.
    effect : float
        What that adds to the score; with more than two classes, less the mean of that over the classes.
    text : str
        All of this in words.
    """

    term: str
    value: Any
    range: str
    effect: float
    text: str


@dataclass(frozen=True)
class RowExplanation:
    """Why a row has its prediction; `print` it.

    With more than two classes only the differences between their scores matter: a class becomes more likely if its own
    score rises or if those of the others fall. So scores and effects are told less their means over the classes.

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
    unseen : Record of Reason
        Unknown categories, and missing values where training had none. They add nothing.
    head : str
        The prediction in words.
    """

    prediction: Any
    score: float
    intercept: float
    reasons: Record
    rest: float
    unseen: Record
    head: str = field(repr=False)
    tail: str = field(repr=False)

    def __str__(self) -> str:
        below = [*(reason.text for reason in self.reasons), self.tail, *(reason.text for reason in self.unseen)]
        return "\n".join([self.head, *(f"  {line}" for line in below if line)])


def explain_row(model: AdditiveModel, row: Any, n: int | None, offset: Any, label: Any) -> RowExplanation:
    """See `AdditiveModel.explain_row`."""
    if n is not None:
        check_int(n, "n", 1)
    offsets = np.zeros(model.n_outputs)
    if offset is not None:
        offsets = check_vector(np.atleast_1d(offset), model.n_outputs, "offset")
    table = model._open(one_row(model, row))
    scores = model.decision_function(table, on_unseen="ignore").ravel() + offsets
    output = _output(model, scores, label)
    effects = _told(model.explain(table, on_unseen="ignore").reshape(len(model.terms), model.n_outputs), output)
    bins = bins_of_rows(model, table)[0]
    words = _Words(model, output)
    order = [int(t) for t in np.argsort(-np.abs(effects), kind="stable") if effects[t]]
    shown = order if n is None else order[:n]
    others = order[len(shown) :]
    rest = float(effects[others].sum())
    return RowExplanation(
        prediction=_prediction(model, scores),
        score=float(_told(scores, output)),
        intercept=float(_told(np.atleast_1d(model.intercept), output)),
        reasons=Record(_reason(model.terms[t], table, int(bins[t]), float(effects[t]), words) for t in shown),
        rest=rest,
        unseen=Record(_unseen(term, table) for term, k in zip(model.terms, bins, strict=True) if k < 0),
        head=words.head(scores, np.atleast_1d(model.intercept) + offsets, offsets),
        tail=words.tail(rest, len(others)),
    )


def _told(values: np.ndarray, output: int) -> Any:
    """What is told of the values of all outputs (last axis): that of one of them, less the mean of several."""
    return values[..., output] - (values.mean(axis=-1) if values.shape[-1] > 1 else 0.0)


def _prediction(model: AdditiveModel, scores: np.ndarray) -> Any:
    if model.classes is None:
        return float(model.loss.inverse_link(scores)[0])
    likeliest = int(scores[0] > 0) if model.n_outputs == 1 else int(scores.argmax())
    return model.classes.tolist()[likeliest]


def _output(model: AdditiveModel, scores: np.ndarray, label: Any) -> int:
    """The score column to explain: of the given class, by default of the predicted one."""
    if label is None:
        return int(scores.argmax())
    if model.n_outputs == 1:
        raise ValueError(f"label is {label!r}; it chooses one of several score columns, and this model has one")
    labels = labels_of(model)
    if label not in labels:
        raise ValueError(f"label is {label!r}; it must be one of the classes, {', '.join(map(repr, labels))}")
    return labels.index(label)


class _Words:
    """How a score is told: as log-odds and odds, as factors, as sums, or as the score of a class."""

    def __init__(self, model: AdditiveModel, output: int):
        self.model, self.link = model, model.loss.link
        self.target = one_line(model.target or "the prediction")
        self.label = class_text(model.target, labels_of(model)[1 if model.n_outputs == 1 else output])
        self.output = output
        self.had_exposure = any(term.exposures.size > 0 for term in model.terms)

    def head(self, scores: np.ndarray, before: np.ndarray, offsets: np.ndarray) -> str:
        """The prediction from the scores, and `before`, what it would be without any term."""
        loss, output = self.model.loss, self.output
        beside = f", with the offset {', '.join(f'{own:.3g}' for own in offsets)}" if offsets.any() else ""
        value, value_before = (
            loss.inverse_link(z[None] if len(z) > 1 else z).ravel()[output] for z in (scores, before)
        )
        if self.link not in ("logit", "softmax"):
            if self.link == "log" and self.had_exposure:
                beside = f" for an exposure of {float(loss.inverse_link(offsets)[0]):.4g}"
            return f"{self.target} is {value:.4g}{beside}: before any reason {value_before:.4g}"
        score, score_before = _told(scores, output), _told(before, output)
        told = f"log-odds {score:.3g}"
        if self.link == "softmax":
            told = f"its score is {score:+.3g} beside the mean of the classes"
        return (
            f"the probability of {self.label} is {value:.3g}{beside}: {told}, "
            f"before any reason {score_before:.3g} (probability {value_before:.3g})"
        )

    def tail(self, rest: float, n_rest: int) -> str:
        """What the terms that are not listed add, if there are any."""
        if not n_rest:
            return ""
        reasons = "1 smaller reason" if n_rest == 1 else f"{n_rest} smaller reasons together"
        return f"{reasons} {self.effect(rest, is_plural=n_rest > 1)}"

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


def _reason(term: AnyTerm, table: Table, k: int, effect: float, words: _Words) -> Reason:
    """The reason of a term whose bin of this row is k."""
    value, told = _value_of(term, table), _told_value(term, table)
    where = next((piece.text for piece in term.pieces if k in piece.bins), "missing")
    # Categories say themselves where they are, and so does a number that may be any.
    if where not in ("missing", "any number", "everywhere") and term.kind != "category":
        told = f"{told}, {where}"
    return Reason(term.name, value, where, effect, f"{told}: {words.effect(effect)}")


def _unseen(term: AnyTerm, table: Table) -> Reason:
    """A term to whose value training says nothing."""
    value = _value_of(term, table)
    why = "which it never was in training" if value is None else "which training did not have"
    return Reason(term.name, value, "", 0.0, f"{_told_value(term, table)}, {why}: adds nothing")


def _sides(term: AnyTerm) -> tuple[Term | Axis, ...]:
    """What knows the kind and the name of each column of a term."""
    return term.axes if isinstance(term, PairTerm) else (term,)


def _value_of(term: AnyTerm, table: Table) -> Any:
    """The row's own value, of a pair both, None if it is missing."""
    values = tuple(_value(own, table, column) for own, column in zip(_sides(term), term.columns, strict=True))
    return values if len(values) > 1 else values[0]


def _told_value(term: AnyTerm, table: Table) -> str:
    told = []
    for own, column in zip(_sides(term), term.columns, strict=True):
        value = _value(own, table, column)
        text = "missing" if value is None else f"{value:g}" if own.kind == "numeric" else one_line(value)
        told.append(f"{one_line(own.name)} is {text}")
    return " and ".join(told)


def _value(owner: Term | Axis, table: Table, column: int) -> Any:
    if owner.kind == "numeric":
        number = float(table.numbers(column, column + 1)[0, 0])
        return None if math.isnan(number) else number
    levels, codes = table.levels(column)
    return None if codes[0] < 0 else levels[codes[0]]


def one_row(model: AdditiveModel, row: Any) -> Any:
    """A table of one row from a dict, a Series, a sequence of all columns, or a table of one row."""
    is_series = hasattr(row, "to_frame") and hasattr(row, "items")  # of pandas, whose values have names
    if isinstance(row, Mapping) or is_series:
        return _from_names(model, dict(row.items()))
    shape = np.shape(row)
    if len(shape) == 1:
        if shape[0] != model.n_features_in_:
            raise ValueError(f"row has {shape[0]} values; it must have one for each of {model.n_features_in_} columns")
        return ArrayTable(np.array(list(row), dtype=object)[None], model.feature_names_in_)
    if len(shape) != 2 or shape[0] != 1:
        raise ValueError(f"row has shape {shape}; it must be one row, such as X[0], X.iloc[[0]] or a dict of values")
    return row


def _from_names(model: AdditiveModel, pairs: Mapping) -> Table:
    given = {as_name(name): value for name, value in pairs.items()}
    names = tuple(column_name(j, model.feature_names_in_) for j in range(model.n_features_in_))
    if model.feature_names_in_ is None:  # a frame that only counts its columns calls them 0, 1 and so on
        given = {f"x{name}": value for name, value in given.items()} | given
    used = {j for term in model.terms for j in term.columns}
    if absent := [names[j] for j in sorted(used) if names[j] not in given]:
        raise ValueError(f"row has no value for {', '.join(map(repr, absent))}, which the model uses")
    values = np.full((1, len(names)), None, dtype=object)
    for j in used:
        values[0, j] = given[names[j]]
    return ArrayTable(values, model.feature_names_in_)
