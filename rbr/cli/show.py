"""`rbr show`: a saved model, as a table of its terms or of the pieces of some of them."""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np

import rbr
from rbr._text import class_text, one_line, text_table
from rbr.cli.console import Console, UsageError
from rbr.cli.outputs import check_folder_of, check_report, picture_format, write_report
from rbr.model import AdditiveModel
from rbr.model.frames import labels_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL.json")
    parser.add_argument("terms", metavar="TERM", nargs="*", help="show the pieces of these terms")
    parser.add_argument("--pieces", action="store_true", help="show the pieces of all terms")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the terms, or all of them")
    parser.add_argument("--report", metavar="REPORT.html", help="where to write the model as an interactive page")


def run(arguments: argparse.Namespace, console: Console) -> int:
    check_folder_of(arguments.plot, "--plot")
    check_report(arguments.report)
    model = rbr.load(arguments.model)
    names = [term.name for term in model.terms]
    if unknown := [name for name in arguments.terms if name not in names]:
        raise UsageError(f"the model has no term {unknown[0]!r}; its terms are {', '.join(names) or 'none'}")
    shown = arguments.terms or (names if arguments.pieces else [])
    if shown:
        console.say("\n\n".join(pieces_text(model, model[name]) for name in shown))
    else:
        console.say(model.summary())
        console.say(_history(model))
    if arguments.plot is not None:
        _draw(model, arguments.terms, arguments.plot)
        console.say(f"Drawn: {arguments.plot}")
    if arguments.report is not None:
        write_report(model, arguments.report)
        console.say(f"Report: {arguments.report}")
    console.finish({"file": arguments.model, **model_facts(model, shown)})
    return 0


def _history(model: AdditiveModel) -> str:
    """What the model file knows of its fit."""
    known = model.metadata.get("fit")
    if not isinstance(known, dict):
        return ""
    parts = [f"fitted to {known.get('rows', 0):,} rows of {one_line(known.get('data', ''))}"]
    parts += [f"{word} {one_line(known[word])}" for word in ("exposure", "offset", "weight") if word in known]
    for what, found in known.get("scores", {}).items():
        parts.append(f"{what}: " + ", ".join(f"{name} {value:.4g}" for name, value in found.items()))
    return "\n" + "\n".join(parts)


def pieces_text(model: AdditiveModel, term: Any) -> str:
    """The pieces of a term in a table: range, what it adds, and the share of the training rows."""
    several = model.n_outputs > 1
    heads = [f"adds to {class_text(model.target, label)}" for label in labels_of(model)] if several else ["adds"]
    factor = {"logit": "odds times", "log": "times"}.get(model.loss.link)
    if several or factor is None:
        factor = None
    rows = []
    for piece in term.pieces:
        ends = getattr(piece, "ends", (piece.value, piece.value))
        rows.append((piece.text, ends, piece.value, piece.weight))
    if term.missing_value is not None:
        rows.append(("missing", (term.missing_value, term.missing_value), term.missing_value, float(term.weights[-1])))
    cells = []
    for text, ends, value, share in rows:
        told = [
            f"{low:+.3g}" if low == high else f"{low:+.3g} to {high:+.3g}"
            for low, high in zip(np.atleast_1d(ends[0]), np.atleast_1d(ends[1]), strict=True)
        ]
        odds = [] if factor is None else [f"{math.exp(float(np.atleast_1d(value)[0])):.3g}"]
        cells.append((text if len(text) <= 72 else f"{text[:69]}...", *told, *odds, f"{share:.1%}"))
    columns = (one_line(term.name), *heads, *([] if factor is None else [factor]), "rows")
    return text_table(columns, cells, (False, *[True] * (len(columns) - 1)))


def _draw(model: AdditiveModel, terms: list[str], path: str) -> None:
    from rbr._files import whole_file

    kind = picture_format(path)
    axes = model.plot(terms or None)
    figure = np.ravel(axes)[0].figure
    with whole_file(path) as temporary:
        figure.savefig(temporary, format=kind)


def model_facts(model: AdditiveModel, shown: list[str] | None = None) -> dict[str, Any]:
    """A model for machines: its terms, and the pieces of those that are shown."""
    facts: dict[str, Any] = {
        "loss": model.loss.name,
        "target": model.target,
        "classes": None if model.classes is None else model.classes.tolist(),
        "intercept": model.intercept,
        "n_features": model.n_features_in_,
        "n_pieces": model.n_pieces,
        "terms": [],
        "metadata": model.metadata,
    }
    for term in sorted(model.terms, key=lambda own: -own.importance):
        own = {
            "name": term.name,
            "kind": term.kind,
            "n_pieces": term.n_pieces,
            "lowest": term.range[0],
            "highest": term.range[1],
            "importance": term.importance,
            "loss_drop": term.loss_drop,
            "missing_value": term.missing_value,
        }
        if shown and term.name in shown:
            own["pieces"] = [
                {
                    "text": piece.text,
                    "value": piece.value,
                    "ends": getattr(piece, "ends", None),
                    "share": piece.weight,
                }
                for piece in term.pieces
            ]
        facts["terms"].append(own)
    return facts
