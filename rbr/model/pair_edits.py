"""Edits of terms of two columns: values of rectangles. Each returns a new term; see rbr.model.edits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from rbr.model.pairs import PairTerm

# Cells without rows have weight zero; this lower bound keeps a weighted mean over such cells defined.
_MIN_WEIGHT = 1e-12


def set_rectangle(term: PairTerm, piece: Any, value: Any) -> PairTerm:
    """The pair with another value in one rectangle."""
    cells = list(term.pieces[position(term, piece)].cells)
    return _with_values(term, cells, checked_value(value, term))


def merge(term: PairTerm, pieces: Iterable[int]) -> PairTerm:
    """The pair with some rectangles merged into one piece, at their mean under the training weights.

    What they cover together need not be a rectangle; then the piece is of the kind "cells".
    """
    chosen = sorted({position(term, piece) for piece in pieces})
    if len(chosen) < 2:
        raise ValueError(f"pieces names {len(chosen)} rectangle of term {term.name!r}; at least two must be merged")
    cells = sorted(k for p in chosen for k in term.pieces[p].cells)
    weights = np.maximum(term.weights.ravel()[cells], _MIN_WEIGHT)
    return _with_values(term, cells, np.average(term.all_values[cells], axis=0, weights=weights))


def zero(term: PairTerm) -> PairTerm:
    """The pair with the value 0 everywhere, as one rectangle."""
    return term.edited(values=np.zeros_like(term.values), labels=np.zeros_like(term.labels))


def recentred(term: PairTerm) -> tuple[PairTerm, np.ndarray]:
    """The pair with mean zero under the training weights, and the mean that was taken out."""
    mean = term.weights.ravel() @ term.all_values / max(term.weights.sum(), _MIN_WEIGHT)
    mean = mean if term.values.ndim == 3 else mean[0]
    # The predictions do not change, so what is known of the training rows stays known.
    return term.edited(values=term.values - mean, loss_drop=term.loss_drop, gain=term.gain), mean


def refusal(term: PairTerm, what: str) -> ValueError:
    """The error of an edit that is for terms of one numeric column."""
    return ValueError(
        f"term {term.name!r} looks at two columns; only numeric terms of one column can be {what}; rectangles can "
        f"be set and merged"
    )


def _with_values(term: PairTerm, cells: list[int], value: np.ndarray) -> PairTerm:
    """The pair with one value in some cells, which become one piece."""
    values, labels = np.array(term.all_values), np.array(term.labels).ravel()
    values[cells] = value
    labels[cells] = labels[cells[0]]
    # Numbers from 0 on, in the order of the pieces.
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    order = np.empty(len(first), dtype=np.int32)
    order[np.argsort(first)] = np.arange(len(first))
    return term.edited(values=values.reshape(term.values.shape), labels=order[inverse].reshape(term.shape))


def position(term: PairTerm, piece: Any) -> int:
    """The position of a rectangle, counted from the end if it is negative."""
    n = len(term.pieces)
    if isinstance(piece, str) and piece == "missing":
        raise ValueError(
            f"piece is 'missing'; the missing values of term {term.name!r} are rectangles of their own, to be given by "
            f"their position in `pieces`"
        )
    if not isinstance(piece, (int, np.integer)) or isinstance(piece, bool) or not -n <= piece < n:
        raise ValueError(f"piece is {piece!r}; term {term.name!r} has the rectangles 0 to {n - 1}")
    return range(n)[piece]


def checked_value(value: Any, term: PairTerm) -> np.ndarray:
    """A finite number, or one per class, for each score column."""
    try:
        new = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        new = None
    allowed = ((),) if term.values.ndim == 2 else ((), (term.n_outputs,))
    if new is None or new.shape not in allowed or not np.isfinite(new).all():
        classes = "" if term.values.ndim == 2 else f", or {term.n_outputs} of them, one per class"
        raise ValueError(f"value is {value!r}; it must be a finite number{classes}")
    return np.broadcast_to(new, (term.n_outputs,))
