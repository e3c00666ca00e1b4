"""Columns as a frame of the library that the user has, and which bin of each term a row falls into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rbr._checks import check_choice, check_vector
from rbr.losses import get_loss
from rbr.model.pairs import AnyTerm, PairTerm
from rbr.model.terms import import_pandas

if TYPE_CHECKING:
    from rbr.model import AdditiveModel

FRAMES = ("pandas", "polars", "dict")


def as_frame(columns: Mapping[Any, Sequence], output: str, asked: str, index: Any = None) -> Any:
    """Columns as a pandas or polars DataFrame, or as a dict of arrays.

    `asked` is what an error says needs the library; `index` is the index of a pandas frame.
    """
    check_choice(output, "output", FRAMES)
    if output == "dict":
        return {name: np.asarray(column) for name, column in columns.items()}
    asked = f"{asked} with output={output!r}"  # there are others
    if output == "pandas":
        return import_pandas(asked).DataFrame(dict(columns), index=index)
    try:
        import polars
    except ImportError as error:
        raise ImportError(f"{asked} needs polars: pip install polars") from error
    return polars.DataFrame({_flat(name): np.asarray(column) for name, column in columns.items()})


def _flat(name: Any) -> str:
    """A name of several levels as one text, since only pandas has such names."""
    return ", ".join(map(str, name)) if isinstance(name, tuple) else str(name)


def contributions_as_frame(model: AdditiveModel, X: Any, contributions: np.ndarray, output: str) -> Any:
    """What the terms add, with their names; with several score columns, a column for each term and class.

    A pandas frame has the index of X, if that is one too.
    """
    names: list[Any] = [term.name for term in model.terms]
    flat = contributions.reshape(len(contributions), -1)
    if model.n_outputs > 1:
        names = [(name, label) for name in names for label in labels_of(model)]
    index = getattr(X, "index", None)
    if index is None or callable(index):  # that of a list is a method
        index = range(len(flat))
    return as_frame(dict(zip(names, flat.T, strict=True)), output, "explain", index)


def labels_of(model: AdditiveModel) -> list:
    """The labels of the classes, or their numbers where a model does not know the labels."""
    return list(range(max(model.n_outputs, 2))) if model.classes is None else model.classes.tolist()


def target_of(model: AdditiveModel, y: Any, n_rows: int) -> np.ndarray:
    """y as numbers, of a classifier as the positions of the labels, or a ValueError that names what does not fit."""
    y = np.asarray(y)
    if y.shape != (n_rows,):
        raise ValueError(f"y has shape {y.shape}; X has {n_rows} rows, and y must have one entry for each of them")
    if model.loss.link not in ("logit", "softmax"):
        return check_vector(y, n_rows, "y")
    codes, labels = np.full(n_rows, -1, dtype=np.int64), labels_of(model)
    for k, label in enumerate(labels):
        codes[y == label] = k
    if (codes < 0).any():
        raise ValueError(f"y holds {y[codes < 0].tolist()[0]!r}; the classes are {', '.join(map(repr, labels))}")
    return codes


def bins_of_rows(model: AdditiveModel, X: Any) -> np.ndarray:
    """The bin of each row in each term, in the order of `Term.all_values`; -1 where the term adds nothing.

    A model whose values are the numbers of its bins looks them up, so that the rules are those of predictions.
    """
    numbered = tuple(_numbered(term) for term in model.terms)
    lookup = replace(model, terms=numbered, intercept=0.0, loss=get_loss("squared_error"), classes=None)
    return lookup.explain(X, on_unseen="ignore").astype(np.int64) - 1


def _numbered(term: AnyTerm) -> AnyTerm:
    if isinstance(term, PairTerm):
        return term.numbered()
    n = term.n_ordered
    return replace(
        term,
        values=np.arange(1.0, n + 1),
        missing_value=None if term.missing_value is None else n + 1.0,
        labels=2 * np.arange(n),
        grouped=False,
        slopes=np.empty(0),
        bounds=np.empty(0),
        jump_facts=np.empty((0, 5)),
    )
