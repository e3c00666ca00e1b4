"""The summary of a model: its terms in a table, for the terminal and for notebooks."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

import numpy as np

from rbr._text import one_line, text_table
from rbr.model.terms import Term

if TYPE_CHECKING:
    from rbr.model import AdditiveModel

COLUMNS = ("term", "kind", "pieces", "effect", "mean |effect|", "loss drop", "missing")
_RIGHT = (False, False, True, False, True, True, False)


def as_text(model: AdditiveModel) -> str:
    """See `AdditiveModel.summary`."""
    return "\n".join([*_head(model), text_table(COLUMNS, _rows(model), _RIGHT)])


def as_html(model: AdditiveModel) -> str:
    """The summary as a table of a notebook."""
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in COLUMNS)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in _rows(model))
    head = "<br>".join(html.escape(line) for line in _head(model))
    return f"<div><p>{head}</p><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>"


def _head(model: AdditiveModel) -> list[str]:
    head = [repr(model)]
    if model.target is not None:
        head.append(f"target: {one_line(model.target)}")
    if model.classes is not None:
        head.append(f"classes: {', '.join(map(one_line, model.classes.tolist()))}")
    intercept = ", ".join(f"{c:.4g}" for c in np.atleast_1d(model.intercept))
    return [*head, f"intercept: {intercept}"]


def _rows(model: AdditiveModel) -> list[tuple[str, ...]]:
    by_importance = sorted(model.terms, key=lambda term: -term.importance)
    return [
        (
            one_line(term.name),
            term.kind,
            str(len(term.pieces)),
            f"{term.range[0]:+.3g} to {term.range[1]:+.3g}",
            f"{term.importance:.3g}",
            "" if math.isnan(term.loss_drop) else f"{term.loss_drop:.3g}",
            _missing_text(term),
        )
        for term in by_importance
    ]


def _missing_text(term: Term) -> str:
    if term.missing_value is None:
        return ""
    return ", ".join(f"{value:+.3g}" for value in np.atleast_1d(term.missing_value))
