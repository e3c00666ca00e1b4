"""Models for tests: fitted ones, and constructed ones that contain everything awkward."""

from __future__ import annotations

import copy
import warnings

import numpy as np

import rbr
from rbr.losses import get_loss
from rbr.model import AdditiveModel
from rbr.model.terms import Term, labels_of_groups, labels_of_runs

AWKWARD_TEXT = ("plain", "it's", 'say "so"', "back\\slash", "per%cent; --", "zwölf €", "new\nline", " ")


def make_term(name, column, rng, *, kind="numeric", categories=None, n_bins=9, missing=True, n_outputs=1):
    """A term with random values, some neighbouring bins equal."""
    n_ordered = n_bins if kind == "numeric" else len(categories)
    shape = (n_ordered,) if n_outputs == 1 else (n_ordered, n_outputs)
    values = rng.choice(rng.normal(size=5), shape)
    weights = rng.random(n_ordered + missing)
    rows = [tuple(np.atleast_1d(row).tolist()) for row in values]
    return Term(
        name=name,
        columns=(column,),
        kind=kind,
        edges=_edges(rng, n_bins - 1) if kind == "numeric" else [],
        categories=categories,
        values=values,
        missing_value=None if not missing else rng.normal() if n_outputs == 1 else rng.normal(size=n_outputs),
        weights=weights / weights.sum(),
        counts=np.arange(len(weights)),
        positions=np.arange(n_ordered),
        labels=labels_of_runs(rows) if kind == "numeric" else labels_of_groups(rows),
        grouped=kind == "category",
    )


def make_model(seed, *, loss="squared_error", classes=None, n_outputs=1, n_features=6):
    """Numbers with and without missing values, text with quotes in it, numbers and bools as categories."""
    rng = np.random.default_rng(seed)
    common = {"rng": rng, "n_outputs": n_outputs}
    terms = [
        make_term('a "quoted" name', 0, **common),
        make_term("text; DROP TABLE", 1, kind="category", categories=AWKWARD_TEXT, **common),
        make_term("b", 2, missing=False, n_bins=33, **common),
        make_term("numbers", 4, kind="category", categories=(-2, 0, 3, 10**12), **common),
        make_term("one piece", 5, n_bins=2, **common),
    ]
    names = ('a "quoted" name', "text; DROP TABLE", "b", "unused", "numbers", "one piece")
    intercept = rng.normal() if n_outputs == 1 else rng.normal(size=n_outputs)
    return AdditiveModel(tuple(terms), intercept, get_loss(loss), classes, "target", n_features, names)


def fit(X, y, loss="squared_error", *, shape="mixed", classes=None, max_segments=8, jump_cost=0.5, **kwargs):
    """(binner, design, solution, model) of a small fit; categories are levels."""
    binner = rbr.Binner(max_bins=kwargs.pop("max_bins", 32)).fit(X, kwargs.get("sample_weight"))
    B = binner.transform(X)
    shapes = {j: "levels" if categorical else shape for j, categorical in enumerate(binner.is_categorical_)}
    constraints = rbr.Constraints(shape=shapes, max_segments=max_segments, jump_cost=jump_cost)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        s = rbr.solve(B, y, loss=loss, constraints=constraints, max_iter=30, **kwargs)
    return binner, B, s, AdditiveModel.from_solution(binner, s, classes=classes)


def with_columns(term, *columns):
    """The term with these columns; `columns` is set directly, since no kind of term has several columns yet."""
    changed = copy.copy(term)
    object.__setattr__(changed, "columns", columns)
    return changed


def _edges(rng, n_edges):
    """Numbers of any size with few enough digits that every database reads them exactly."""
    scale = 10.0 ** rng.integers(-3, 9)
    return np.unique([float(f"{x:.12g}") for x in scale * rng.normal(size=n_edges)])
