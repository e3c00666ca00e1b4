"""Edits: changes that a person makes to a term of a model. Each returns new terms; nothing is changed in place.

An edit changes the table, and the pieces follow from it. `set_piece` and `merge` leave the other pieces as they are;
after `smooth` and `make_monotone`, lines whose values did not change stay lines and elsewhere a piece is a run of equal
values. What was measured on the training rows, losses and places of jumps, is no longer known after an edit, except
after `recentred`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rbr._checks import check_real
from rbr.model import pair_edits
from rbr.model.pairs import AnyTerm, PairTerm
from rbr.model.terms import Piece, Term, relabel
from rbr.shapes import isotonic

# Bins without rows have weight zero; this lower bound keeps a weighted mean over such bins defined.
_MIN_WEIGHT = 1e-12

# Ends of lines that meet differ by rounding, relative to the largest of them.
_ROUNDING = 1e-12


def set_piece(term: AnyTerm, piece: int | str, value: Any) -> AnyTerm:
    """The term with another value in one piece, or for missing values."""
    if isinstance(term, PairTerm):
        return pair_edits.set_rectangle(term, piece, value)
    new = _check_value(value, term)
    if isinstance(piece, str) and piece == "missing":
        if term.missing_value is None:
            raise ValueError(f"term {term.name!r} has no value for missing values: training had none")
        return term.edited(missing_value=new)
    bins = list(_piece(term, piece).bins)
    values = np.array(term.values)
    values[bins] = new
    return _with_pieces(term, values, kept=bins)


def zero(term: AnyTerm) -> AnyTerm:
    """The term with the value 0 everywhere, as one piece."""
    if isinstance(term, PairTerm):
        return pair_edits.zero(term)
    values = np.zeros_like(term.values)
    missing_value = None if term.missing_value is None else np.zeros_like(term.missing_value)
    return term.edited(
        values=values, missing_value=missing_value, labels=np.zeros(term.n_ordered, dtype=np.int32), slopes=values
    )


def merge(term: AnyTerm, pieces: Iterable[int]) -> AnyTerm:
    """The term with some pieces merged into one, at their mean under the training weights."""
    if isinstance(term, PairTerm):
        return pair_edits.merge(term, pieces)
    chosen = sorted({_position(term, piece) for piece in pieces})
    if len(chosen) < 2:
        raise ValueError(f"pieces names {len(chosen)} piece of term {term.name!r}; at least two must be merged")
    if not term.grouped and chosen != list(range(chosen[0], chosen[-1] + 1)):
        raise ValueError(f"pieces is {chosen}; only neighbouring pieces of term {term.name!r} can be merged")
    bins = sorted(k for p in chosen for k in term.pieces[p].bins)
    values = np.array(term.values)
    values[bins] = np.average(values[bins], axis=0, weights=_weights(term)[bins])
    return _with_pieces(term, values, kept=bins)


def smooth(term: AnyTerm, bandwidth: float) -> Term:
    """The term with each bin at a Gaussian mean of the bins around it, and the same mean as before."""
    check_real(bandwidth, "bandwidth", 0.0, strict=True)
    if isinstance(term, PairTerm):
        raise pair_edits.refusal(term, "smoothed")
    if term.kind != "numeric":
        raise ValueError(f"term {term.name!r} is a category; only numeric terms can be smoothed")
    weights = _weights(term)
    rank = (np.cumsum(weights) - 0.5 * weights) / weights.sum()
    kernel = weights * np.exp(-0.5 * ((rank[:, None] - rank) / bandwidth) ** 2)
    kernel /= kernel.sum(axis=1, keepdims=True)
    values = kernel @ term.values
    values += (weights @ term.values - weights @ values) / weights.sum()
    return term.edited(values=values, labels=relabel(term, values), grouped=False)


def make_monotone(term: AnyTerm, increasing: bool) -> Term:
    """The nearest increasing (or decreasing) table under the training weights; missing values keep theirs.

    Bins that fall are pooled. Lines stay lines in their other bins, and two that overlap end where they meet.
    """
    if isinstance(term, PairTerm):
        raise pair_edits.refusal(term, "made monotone")
    if term.kind == "category":
        raise ValueError(f"term {term.name!r} is a category; only numeric terms can be made monotone")
    sign, weights = 1.0 if increasing else -1.0, _weights(term)
    columns = np.reshape(term.values, (term.n_ordered, -1))
    values = np.empty_like(columns)
    for c, column in enumerate(columns.T):
        if (np.diff(sign * column) >= 0).all():
            values[:, c] = column
        else:
            values[:, c] = sign * isotonic(sign * column, weights)
    ends = np.array([end for piece in term.pieces for end in piece.ends])
    is_same = (values == columns).all(axis=1)
    if is_same.all() and (
        not term.has_slopes or (np.diff(sign * ends, axis=0) >= -_ROUNDING * np.abs(ends).max()).all()
    ):
        return term
    values, slopes = values.reshape(term.values.shape), np.reshape(term.slopes, columns.shape)
    stays = is_same & (sign * slopes >= 0).all(axis=1)
    slopes = np.where(stays[:, None], slopes, 0.0).reshape(term.values.shape)
    edited = term.edited(values=values, labels=relabel(term, values), slopes=slopes, grouped=False)
    return edited.edited(slopes=slopes, bounds=_meeting_bounds(edited)) if edited.has_slopes else edited


def _meeting_bounds(term: Term) -> np.ndarray:
    """Bounds within which the lines of a term whose bins are monotone do not pass their neighbours.

    Two lines meet halfway between the last bin of one and the first bin of the other, a line and a constant at the
    constant.
    """
    pieces, bounds = term.pieces, np.array(term.bounds)
    values = np.reshape(term.values, (term.n_ordered, -1))
    for left, right in pairwise(pieces):
        before, after = values[left.bins[-1]], values[right.bins[0]]
        share = 0.5 if left.anchor is not None and right.anchor is not None else float(left.anchor is not None)
        level = before + share * (after - before)
        for piece, side, nearest in ((left, 1, np.minimum), (right, 0, np.maximum)):
            if piece.anchor is not None:
                slope, value = (np.atleast_1d(own) for own in (piece.slope, piece.value))
                rises = slope != 0
                x = piece.anchor + (level - value)[rises] / slope[rises]
                bounds[list(piece.bins), side] = nearest.reduce(x, initial=bounds[piece.bins[0], side])
    return bounds


def recentred(term: AnyTerm) -> tuple[AnyTerm, np.ndarray]:
    """The term with mean zero under the training weights, and the mean that was taken out."""
    if isinstance(term, PairTerm):
        return pair_edits.recentred(term)
    mean = term.weights @ term.all_values / max(term.weights.sum(), _MIN_WEIGHT)
    mean = mean if term.values.ndim == 2 else mean[0]
    values = term.values - mean
    missing_value = None if term.missing_value is None else term.missing_value - mean
    # The predictions do not change, so the training losses stay known.
    facts = {"loss_drop": term.loss_drop, "jump_facts": term.jump_facts}
    return term.edited(values=values, missing_value=missing_value, slopes=term.slopes, **facts), mean


def _with_pieces(term: Term, values: np.ndarray, kept: Sequence[int]) -> Term:
    """The term with other values: the bins in `kept` become one constant piece, the other pieces stay."""
    labels = np.array(term.labels)
    labels[kept] = 2 * len(labels)  # an even number that no other piece has
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    order = np.empty(len(first), dtype=np.int32)
    order[np.argsort(first)] = np.arange(len(first))
    slopes = np.array(term.slopes)
    slopes[kept] = 0.0
    return term.edited(values=values, labels=2 * order[inverse] + labels % 2, slopes=slopes)


def _weights(term: Term) -> np.ndarray:
    """Weights of the ordered bins, none of them zero."""
    return np.maximum(term.weights[: term.n_ordered], _MIN_WEIGHT)


def _position(term: Term, piece: Any) -> int:
    n = len(term.pieces)
    if not isinstance(piece, (int, np.integer)) or isinstance(piece, bool) or not -n <= piece < n:
        raise ValueError(f"piece is {piece!r}; term {term.name!r} has the pieces 0 to {n - 1}")
    return range(n)[piece]


def _piece(term: Term, piece: Any) -> Piece:
    return term.pieces[_position(term, piece)]


def _check_value(value: Any, term: Term) -> np.ndarray:
    try:
        new = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        new = None
    allowed = ((),) if term.values.ndim == 1 else ((), (term.n_outputs,))
    if new is None or new.shape not in allowed or not np.isfinite(new).all():
        classes = "" if term.values.ndim == 1 else f", or {term.n_outputs} of them, one per class"
        raise ValueError(f"value is {value!r}; it must be a finite number{classes}")
    return np.broadcast_to(new, term.values.shape[1:])
