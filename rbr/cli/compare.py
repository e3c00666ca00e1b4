"""`rbr compare`: two models, the terms in which they differ, where and by how much, and the scores of both on data.

A term is a function of one or two columns. Between the edges of both models it is a line in each of them, so the
largest difference lies at an edge, right of one, or at the end of a line; these are the points that are compared.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

import rbr
from rbr._text import class_text, one_line, plain_number, text_table
from rbr.cli.blocks import Block
from rbr.cli.console import Console, Refusal, UsageError
from rbr.cli.scoring import add_scoring_arguments, open_rows
from rbr.data.levels import UNSEEN, Categories
from rbr.data.tables import ArrayTable
from rbr.model import AdditiveModel
from rbr.model.frames import labels_of
from rbr.model.pairs import PairTerm

SAME = 1e-12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A.json")
    parser.add_argument("b", metavar="B.json")
    parser.add_argument(
        "data", metavar="DATA", nargs="?", help="rows to score by both: CSV, perhaps compressed, or Parquet"
    )
    parser.add_argument("--target", "-t", metavar="COLUMN", help="default: that of the models, if the data have it")
    add_scoring_arguments(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    a, b = rbr.load(arguments.a), rbr.load(arguments.b)
    _check_comparable(a, b)
    console.say(f"a: {arguments.a}, {a!r}")
    console.say(f"b: {arguments.b}, {b!r}")
    found = differences(a, b)
    differing = [own for own in found if own.size > SAME]
    console.say(_text(a, b, differing, len(found) - len(differing)))
    facts: dict[str, Any] = {
        "a": arguments.a,
        "b": arguments.b,
        "intercepts": [a.intercept, b.intercept],
        "same_terms": len(found) - len(differing),
        "terms": [vars(own) for own in differing],
    }
    if arguments.data is not None:
        text, scored = _on_data(a, b, arguments, console)
        console.say(f"\n{text}")
        facts["data"] = scored
    console.finish(facts)
    return 0


def _check_comparable(a: AdditiveModel, b: AdditiveModel) -> None:
    if a.n_outputs != b.n_outputs:
        raise Refusal(f"the models cannot be compared: a has {a.n_outputs} score columns, b has {b.n_outputs}")
    if a.loss.link != b.loss.link:
        raise Refusal(
            f"the models cannot be compared: the scores of a are on the scale {a.loss.link!r}, those of b on "
            f"{b.loss.link!r}"
        )
    if a.classes is not None and b.classes is not None and a.classes.tolist() != b.classes.tolist():
        raise Refusal(
            f"the models cannot be compared: the classes of a are {a.classes.tolist()}, those of b {b.classes.tolist()}"
        )


# Terms ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """How a term differs: b minus a.

    Attributes
    ----------
    term : str
    owner : "both", "a" or "b"
    size : float
        The largest absolute difference.
    where : str
        The range or the category of that.
    label : str
        The class of that, with more than two.
    in_a, in_b : float
        What the models add there.
    mean : float
        The mean absolute difference over the training rows of a, by the bins of its term (of b, if a has none).
    """

    term: str
    owner: str
    size: float
    where: str
    label: str
    in_a: float
    in_b: float
    mean: float


def differences(a: AdditiveModel, b: AdditiveModel) -> list[Difference]:
    """The differences of all terms, the largest on average first.

    Examples
    --------
    >>> import numpy as np
    >>> import rbr
    >>> from rbr.cli.compare import differences
    >>> X = np.arange(100.0)[:, None]
    >>> a = rbr.RBRRegressor(max_segments=2).fit(X, X[:, 0] > 39).model_
    >>> (found,) = differences(a, a.set_piece("x0", 1, 1.0))
    >>> found.where, found.in_b
    ('> 39.5', 1.0)
    """
    # A column that is a number in one model and a category in the other is two terms.
    by_name: dict[Any, list[Any]] = {}
    for k, model in enumerate((a, b)):
        for term in model.terms:
            key = term.name, *(axis.kind for axis in _axes(term))
            by_name.setdefault(key, [None, None])[k] = term
    labels = [class_text(a.target, label) for label in labels_of(a)] if a.n_outputs > 1 else [""]
    found = [_difference(own[0], own[1], labels) for own in by_name.values()]
    return sorted(found, key=lambda own: -own.mean)


def _difference(a: Any, b: Any, labels: list[str]) -> Difference:
    terms = [term for term in (a, b) if term is not None]
    sides = [_points([_axes(term)[k] for term in terms]) for k in range(len(_axes(terms[0])))]
    points = list(product(*sides))
    values_a, values_b = _values(a, points, len(labels)), _values(b, points, len(labels))
    gaps = np.abs(values_b - values_a)
    k, c = np.unravel_index(int(gaps.argmax()), gaps.shape)
    rows, weights = _training_rows(terms[0])
    gaps_of_rows = np.abs(_values(b, rows, len(labels)) - _values(a, rows, len(labels))).mean(axis=1)
    return Difference(
        terms[0].name,
        "both" if len(terms) == 2 else "a" if b is None else "b",
        float(gaps[k, c]),
        " and ".join(_where(point, axes) for point, axes in zip(points[k], _all_axes(terms), strict=True)),
        labels[c],
        float(values_a[k, c]),
        float(values_b[k, c]),
        float(weights @ gaps_of_rows / max(weights.sum(), np.finfo(float).tiny)),
    )


def _axes(term: Any) -> tuple[Any, ...]:
    return term.axes if isinstance(term, PairTerm) else (term,)


def _all_axes(terms: list[Any]) -> list[list[Any]]:
    return [[_axes(term)[k] for term in terms] for k in range(len(_axes(terms[0])))]


def _levels(axis: Any) -> tuple:
    """The levels of a category, of a term or of a side of a pair."""
    return axis.categories if hasattr(axis, "categories") else axis.levels


def _points(axes: list[Any]) -> list[Any]:
    """Values of a column at which the functions of both models take their extremes; None is missing."""
    if any(own.kind == "category" for own in axes):
        return [*dict.fromkeys(level for own in axes for level in _levels(own)), None]
    edges = np.unique(np.concatenate([own.edges for own in axes]))
    bounds = [np.ravel(own.bounds) for own in axes if hasattr(own, "bounds")]
    ends = np.unique(np.concatenate([*bounds, np.empty(0)]))
    numbers = np.unique(np.concatenate([edges, np.nextafter(edges, np.inf), ends[np.isfinite(ends)]]))
    return [*(numbers.tolist() or [0.0]), None]


def _values(term: Any, rows: list[tuple], n_outputs: int) -> np.ndarray:
    """What a term adds at some values of its columns; without a term, nothing."""
    if term is None:
        return np.zeros((len(rows), n_outputs))
    if isinstance(term, PairTerm):
        first, second = term.axes
        alone: Any = replace(term, axes=(replace(first, column=0), replace(second, column=1)))
    else:
        alone = replace(term, columns=(0,))
    names = tuple(axis.name for axis in _axes(term))
    intercept: Any = 0.0 if alone.n_outputs == 1 and alone.values.ndim == alone.weights.ndim else np.zeros(n_outputs)
    model = AdditiveModel((alone,), intercept, rbr.losses.get_loss("squared_error"), None, None, len(names), names)
    table = np.empty((len(rows), len(names)), dtype=object)
    table[:] = rows
    return model.explain(ArrayTable(table, names), on_unseen="ignore").reshape(len(rows), -1)


def _training_rows(term: Any) -> tuple[list[tuple], np.ndarray]:
    """A row for each bin of a term, and the share of the training rows there."""
    sides = []
    for k, own in enumerate(_axes(term)):
        if getattr(own, "groups", None) is not None:  # the levels of a pair that share a bin
            values: list[Any] = [group[0] for group in own.groups]
        elif own.kind == "category":
            values = list(own.categories)
        elif hasattr(own, "positions"):
            values = own.positions.tolist()
        else:
            ends = np.concatenate([own.edges[:1] - 1, own.edges, own.edges[-1:] + 1]) if len(own.edges) else np.zeros(2)
            values = ((ends[:-1] + ends[1:]) / 2).tolist()
        n_missing = term.weights.shape[k] - len(values)
        sides.append([*values, *[None] * n_missing])
    return list(product(*sides)), np.ravel(term.weights)


def _where(value: Any, axes: list[Any]) -> str:
    """The range between edges of both models that holds a value, or a category."""
    if value is None:
        return "missing"
    if any(own.kind == "category" for own in axes):
        return one_line(value)
    edges = np.unique(np.concatenate([_piece_edges(own) for own in axes]))
    k = int(np.searchsorted(edges, value))
    low = plain_number(float(f"{edges[k - 1]:.6g}")) if k > 0 else None
    high = plain_number(float(f"{edges[k]:.6g}")) if k < len(edges) else None
    if low is None or high is None:
        return "any number" if low is high else f"<= {high}" if low is None else f"> {low}"
    return f"({low}, {high}]"


def _piece_edges(axis: Any) -> np.ndarray:
    """The edges at which a term changes its piece; all those of a pair."""
    if not hasattr(axis, "labels"):
        return np.asarray(axis.edges)
    return np.asarray(axis.edges)[np.flatnonzero(np.diff(axis.labels))]


def _text(a: AdditiveModel, b: AdditiveModel, differing: list[Difference], n_same: int) -> str:
    intercepts = [", ".join(f"{c:.4g}" for c in np.atleast_1d(own.intercept)) for own in (a, b)]
    lines = [f"intercept: {intercepts[0]} in a, {intercepts[1]} in b" if intercepts[0] != intercepts[1] else ""]
    if differing:
        has_labels = any(own.label for own in differing)
        rows = [
            (
                own.term,
                {"both": "", "a": "only a", "b": "only b"}[own.owner],
                f"{own.mean:.3g}",
                f"{own.size:.3g}",
                own.where if len(own.where) <= 40 else f"{own.where[:37]}...",
                *([own.label] if has_labels else []),
                "" if own.owner == "b" else f"{own.in_a:+.3g}",
                "" if own.owner == "a" else f"{own.in_b:+.3g}",
            )
            for own in differing
        ]
        head = (
            "term",
            "in",
            "mean difference",
            "largest",
            "where",
            *(["of"] if has_labels else []),
            "a adds",
            "b adds",
        )
        right = (False, False, True, True, False, *([False] if has_labels else []), True, True)
        lines.append(text_table(head, rows, right))
    same = f"{n_same} term{'s' * (n_same != 1)} {'is' if n_same == 1 else 'are'} the same." if n_same else ""
    return "\n".join(line for line in (*lines, same if differing else f"All terms are the same ({n_same}).") if line)


# Data -----------------------------------------------------------------------------------------------------


def _on_data(a: AdditiveModel, b: AdditiveModel, arguments: argparse.Namespace, console: Console):
    """(text, facts): the predictions of both models on the rows, and how good they are if the target is there."""
    if arguments.data == "-":
        raise UsageError("DATA is -; rows are read once for each model, so they must be in a file")
    both = [open_rows(model, arguments, console) for model in (a, b)]
    names = both[0].source.names
    target = arguments.target
    if target is None and a.target == b.target and a.target in names:
        target = a.target
    if target is not None:
        both[0].source.require([target], "which --target names")
        as_ids = (target,) if a.classes is not None else ()
        both[0] = replace(both[0], ids=as_ids, numbers=both[0].numbers if as_ids else (*both[0].numbers, target))
    predicted: list[list[np.ndarray]] = [[], []]
    known: list[np.ndarray] = []
    with console.progress(f"scoring {both[0].source.title}"):
        for own in zip(*(rows.blocks() for rows in both), strict=True):
            for k, (block, offsets) in enumerate(own):
                scores = both[k].model.decision_function(block, offset=_columns_of(offsets, a), on_unseen="ignore")
                predicted[k].append(_prediction(a if k == 0 else b, scores))
            if target is not None:
                known.append(_target(own[0][0], target, a))
    if not predicted[0]:
        raise Refusal(f"{both[0].source.title} has no rows")
    one, other = np.concatenate(predicted[0]), np.concatenate(predicted[1])
    facts: dict[str, Any] = {"file": both[0].source.title, "rows": len(one), "target": target}
    gaps = np.abs(other - one).reshape(len(one), -1).max(axis=1)
    facts |= {"mean_difference": float(gaps.mean()), "largest_difference": float(gaps.max())}
    facts["row_of_largest"] = int(gaps.argmax()) + 1
    what = "probabilities" if a.classes is not None else "predictions"
    lines = [
        f"{both[0].source.title}: {len(one):,} rows; the {what} differ by {gaps.mean():.3g} on average, and by at most "
        f"{gaps.max():.3g}, in row {facts['row_of_largest']:,}"
    ]
    if a.classes is not None:
        labels_one, labels_other = (own.argmax(axis=1) for own in (one, other))
        changed = float(np.mean(labels_one != labels_other))
        facts["other_class"] = changed
        lines[0] += f"; the likeliest class differs in {changed:.2%} of the rows"
    if target is not None:
        y = np.concatenate(known)
        usable = y >= 0 if a.classes is not None else ~np.isnan(y)
        facts["scores"] = {name: _scores(y[usable], own[usable], a) for name, own in (("a", one), ("b", other))}
        heads = list(facts["scores"]["a"])
        rows = [(name, *(f"{value:.4g}" for value in own.values())) for name, own in facts["scores"].items()]
        lines.append(text_table(("", *heads), rows, (False, *[True] * len(heads))))
    return "\n".join(lines), facts


def _columns_of(offsets: np.ndarray | None, model: AdditiveModel) -> np.ndarray | None:
    if offsets is None or model.n_outputs == 1:
        return offsets
    return np.tile(offsets[:, None], (1, model.n_outputs))


def _prediction(model: AdditiveModel, scores: np.ndarray) -> np.ndarray:
    """The probabilities of the classes, or predictions."""
    return model.loss.inverse_link(scores) if model.classes is None else model._probabilities_of(scores)


def _target(block: Block, target: str, model: AdditiveModel) -> np.ndarray:
    """The target of each row: a number, or the position of its class, -1 if it is none of them."""
    if model.classes is None:
        return block.values[target]
    column = block.texts[target]
    values = column.to_pylist() if hasattr(column, "to_pylist") else column.tolist()
    levels = list(dict.fromkeys(values))
    known = [level for level in levels if level is not None]
    places = dict(zip(known, Categories(model.classes.tolist()).positions(known, f"column {target!r}"), strict=True))
    return np.array([places.get(value, UNSEEN) for value in values])


def _scores(y: np.ndarray, predicted: np.ndarray, model: AdditiveModel) -> dict[str, float]:
    from sklearn import metrics

    if not len(y):
        return {}
    if model.classes is None:
        return {
            "R^2": float(metrics.r2_score(y, predicted)) if len(y) > 1 else math.nan,
            "RMSE": float(metrics.root_mean_squared_error(y, predicted)),
            "MAE": float(metrics.mean_absolute_error(y, predicted)),
        }
    found = {}
    if predicted.shape[1] == 2 and len(np.unique(y)) == 2:
        found["AUC"] = float(metrics.roc_auc_score(y == 1, predicted[:, 1]))
    found["log-loss"] = float(metrics.log_loss(y, predicted, labels=np.arange(predicted.shape[1])))
    found["accuracy"] = float(np.mean(predicted.argmax(axis=1) == y))
    return found
