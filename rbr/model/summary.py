"""The summary of a model: its terms in a table, for the terminal and for notebooks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rbr._text import one_line, text_table
from rbr.model.pairs import AnyTerm, PairTerm

if TYPE_CHECKING:
    from rbr.model import AdditiveModel

COLUMNS = ("term", "kind", "pieces", "effect", "mean |effect|", "loss drop", "missing")
_RIGHT = (False, False, True, False, True, True, False, True)


def as_text(model: AdditiveModel) -> str:
    """See `AdditiveModel.summary`."""
    columns = _columns(model)
    return "\n".join([*head_of(model), text_table(columns, _rows(model), _RIGHT[: len(columns)])])


def head_of(model: AdditiveModel) -> list[str]:
    """What a model is, in lines."""
    head = [repr(model)]
    if model.target is not None:
        head.append(f"target: {one_line(model.target)}")
    if model.classes is not None:
        head.append(f"classes: {', '.join(map(one_line, model.classes.tolist()))}")
    intercept = ", ".join(f"{c:.4g}" for c in np.atleast_1d(model.intercept))
    return [*head, f"intercept: {intercept}"]


def _columns(model: AdditiveModel) -> tuple[str, ...]:
    """The heads of the columns; only pairs have a gain, that of rows which they were not fitted on."""
    return COLUMNS if all(math.isnan(_gain(term)) for term in model.terms) else (*COLUMNS, "held-out gain")


def _gain(term: AnyTerm) -> float:
    return term.gain if isinstance(term, PairTerm) else math.nan


def _pieces_text(term: AnyTerm) -> str:
    return term.size_text if isinstance(term, PairTerm) and term.is_surface else str(term.n_pieces)


def _rows(model: AdditiveModel) -> list[tuple[str, ...]]:
    n_columns = len(_columns(model))
    by_importance = sorted(model.terms, key=lambda term: -term.importance)
    return [
        (
            one_line(term.name),
            term.kind,
            _pieces_text(term),
            f"{term.range[0]:+.3g} to {term.range[1]:+.3g}",
            f"{term.importance:.3g}",
            "" if math.isnan(term.loss_drop) else f"{term.loss_drop:.3g}",
            _missing_text(term),
            "" if math.isnan(_gain(term)) else f"{_gain(term):.3g}",
        )[:n_columns]
        for term in by_importance
    ]


def _missing_text(term: AnyTerm) -> str:
    if term.missing_value is None:
        return ""
    return ", ".join(f"{value:+.3g}" for value in np.atleast_1d(term.missing_value))
