"""What the page knows of a model: the content of its file, and the words that only Python can write."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rbr._text import class_text, one_line
from rbr.model.file import model_to_dict
from rbr.model.frames import labels_of
from rbr.model.pairs import AnyTerm, PairTerm
from rbr.model.terms import Term
from rbr.plotting.panels import choose_scale, outer_edges

if TYPE_CHECKING:
    from rbr.estimators import Bootstrap
    from rbr.model import AdditiveModel

BAND_LEVEL = 0.9
# A scorecard of more rows than this is no card, and its search would take minutes.
MOST_CARD_ROWS = 1500


def canonical(value: Any) -> str:
    """JSON in the form of which a model file has the checksum."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def plain(values: Any) -> Any:
    """Numbers for JSON: None where they are not finite."""
    if np.ndim(values):
        return [plain(value) for value in values]
    number = float(values)
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def model_content(model: AdditiveModel, bands: Bootstrap | None) -> dict[str, Any]:
    """The model, the parts of its file that the page copies as text, and texts, axes and bands of its terms."""
    content = model_to_dict(model)
    return {
        "model": content,
        "raw": {
            "classes": canonical(content["classes"]),
            "loss": canonical(content["loss"]),
            "metadata": {name: canonical(value) for name, value in content["metadata"].items()},
            "terms": [_copied(item) for item in content["terms"]],
        },
        "texts": _texts(model),
        "views": [_view(term) for term in model.terms],
        "bands": None if bands is None else [_band(term, bands) for term in model.terms],
    }


def _copied(item: dict) -> dict[str, str]:
    """The fields of a term that JavaScript might write otherwise: 1 for 1.0, or a long integer rounded."""
    return {name: canonical(item[name]) for name in ("categories", "axes", "target_sums", "exposures") if name in item}


def _texts(model: AdditiveModel) -> dict[str, Any]:
    is_classifier = model.loss.link in ("logit", "softmax")
    labels = labels_of(model) if is_classifier else []
    return {
        "link": model.loss.link,
        "loss": model.loss.name,
        "target": one_line(model.target or "the prediction"),
        "classes": [class_text(model.target, label) for label in labels] if is_classifier else None,
        "labels": [one_line(label) for label in labels],
        "had_exposure": any(term.exposures.size > 0 for term in model.terms),
        "terms": [_term_texts(term) for term in model.terms],
    }


def _term_texts(term: AnyTerm) -> dict[str, Any]:
    if isinstance(term, PairTerm):
        numbers, cell_of = np.unique(term.labels.ravel(), return_inverse=True)
        by_first_cell = {int(cell_of.ravel()[piece.cells[0]]): piece.text for piece in term.pieces}
        return {
            "cells": [by_first_cell[k] for k in range(len(numbers))],
            "cellOf": cell_of.ravel().tolist(),
            "levels": [[one_line(level) for level in axis.levels] for axis in term.axes],
        }
    return {"levels": [one_line(level) for level in term.categories or ()]}


def _view(term: AnyTerm) -> dict[str, Any]:
    """The ends of the axis of a numeric term, and its scale: "linear", "log", or else "rank", all bins equally wide."""
    if not isinstance(term, Term) or term.kind != "numeric":
        return {}
    edges = outer_edges(term)
    scale = choose_scale(edges).name
    return {"low": float(edges[0]), "high": float(edges[-1]), "scale": scale if scale in ("linear", "log") else "rank"}


def _band(term: AnyTerm, bands: Bootstrap) -> dict[str, Any] | None:
    if isinstance(term, PairTerm):
        return None
    low, high = bands.band(term.name, BAND_LEVEL)
    return {"low": low.tolist(), "high": high.tolist(), "used": bands.frequency(term.name)}


def scorecard_content(model: AdditiveModel) -> dict[str, Any] | None:
    """The printable table: for two classes whole points, else values; None for a model of too many cells."""
    if (
        sum(term.weights.size if isinstance(term, PairTerm) else len(term.pieces) for term in model.terms)
        > MOST_CARD_ROWS
    ):
        return None
    note, table = "", model.to_frame(output="dict")
    if model.loss.link == "logit" and model.terms:
        card = model.scorecard()
        note, table = (
            f"600 points at odds of 50 to 1, and 20 more double the odds; {card.rounding}.",
            card.to_frame("dict"),
        )
    hidden = ("lower", "upper", "lower_2", "upper_2", "anchor", "line_from", "line_to", "points_slope")
    columns = {name: column for name, column in table.items() if name not in hidden and not name.startswith("slope")}
    return {
        "note": note,
        "columns": list(columns),
        "rows": [list(row) for row in zip(*(_cells(column) for column in columns.values()), strict=True)],
        "slopes": plain(table["slope"]) if "slope" in table else None,
        "anchors": plain(table["anchor"]) if "slope" in table else None,
    }


def _cells(column: np.ndarray) -> list:
    return plain(column) if column.dtype.kind in "fiu" else [str(text) for text in column.tolist()]
