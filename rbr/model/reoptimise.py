"""Refit what a person did not touch: the values of a model's own pieces, beside terms that are held.

The unknowns are changes: one number for the value of each piece of the free terms, and one for the slope of each line.
So the model itself is the start, at zero, and a prior worth some rows keeps a piece where it is unless its rows say
otherwise. Whatever is found is then no worse than the model on the given rows, and small pieces stay as shrunk as the
fit has left them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array, hstack

from rbr._checks import check_real, check_sample_weight
from rbr.data.tables import Table
from rbr.model import AdditiveModel
from rbr.model.additive import _check_offset
from rbr.model.editable import with_edit
from rbr.model.edits import recentred
from rbr.model.frames import bins_of_rows, target_of
from rbr.model.pairs import AnyTerm, PairTerm
from rbr.model.terms import Term

MAX_STEPS = 60
MAX_HALVINGS = 30
# A step that promises less than this, in units of the mean loss, is not taken.
ENOUGH = 1e-11
# A prior of this many rows at least keeps the equations regular.
LEAST_PRIOR = 1e-6


def reoptimise(
    model: AdditiveModel,
    X: Any,
    y: ArrayLike,
    hold: Sequence[str | int] | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    prior_rows: float = 10.0,
) -> AdditiveModel:
    """Refit the values of a model's pieces, beside terms that are held as a person has set them.

    Features and pieces stay as they are. A numeric term that never falls, or never rises, stays so: if the rows speak
    against it, it is held. The intercept is refitted last, so that the predictions add up to y where the link is the
    canonical one.

    Parameters
    ----------
    model : AdditiveModel
    X, y : the training rows
    hold : list of terms, by name or position, optional
        Those that keep their values, bit for bit. By default the terms that the model's recorded edits name.
    sample_weight : array of shape (n_rows,), optional
    offset : array of shape (n_rows,), or (n_rows, n_classes) with several score columns, optional
    prior_rows : float, default 10
        A piece stays where it is as if this many rows said so.

    Returns
    -------
    AdditiveModel
        Its mean loss on the rows, `training_loss`, is not above that of `model`. The edit is recorded in
        ``metadata["edits"]``.

    Examples
    --------
    >>> import numpy as np
    >>> import rbr
    >>> X = np.column_stack([np.arange(400) % 20, np.arange(400) // 200]).astype(float)
    >>> y = np.where(X[:, 0] > 9, 3.0, 1.0) + X[:, 1]
    >>> model = rbr.RBRRegressor(n_bags=0, prior_rows=0).fit(X, y).model_
    >>> edited = model.set_piece("x0", 1, 0.5)
    >>> round(float(edited.predict(X).mean() - y.mean()), 3)
    -0.25
    >>> again = rbr.reoptimise(edited, X, y)
    >>> again["x0"] == edited["x0"], round(float(again.predict(X).mean() - y.mean()), 3)
    (True, 0.0)
    """
    if not isinstance(model, AdditiveModel):
        raise TypeError(f"model is a {type(model).__name__}; it must be an AdditiveModel, such as estimator.model_")
    check_real(prior_rows, "prior_rows", 0.0)
    held = _held(model, hold)
    rows = _rows(model, X, y, sample_weight, offset)
    names = [model.terms[t].name for t in sorted(held)]
    found = _refit(model, rows, held, prior_rows)
    while bent := [t for t in _directions(model) - held if not _keeps_direction(model.terms[t], found.terms[t])]:
        held |= set(bent)
        found = _refit(model, rows, held, prior_rows)
    return with_edit(found, {"edit": "reoptimise", "hold": names})


def _held(model: AdditiveModel, hold: Sequence[str | int] | None) -> set[int]:
    """The positions of the terms to hold."""
    if hold is not None:
        if isinstance(hold, str):
            raise ValueError(f"hold is {hold!r}; it must be a list of terms, such as [{hold!r}]")
        return {model._position(term) for term in hold}
    edits = model.metadata.get("edits")
    touched = {edit.get("term") for edit in edits if isinstance(edit, dict)} if isinstance(edits, list) else set()
    return {t for t, term in enumerate(model.terms) if term.name in touched}


def _directions(model: AdditiveModel) -> set[int]:
    """The positions of the numeric terms that never fall, or never rise."""
    return {t for t, term in enumerate(model.terms) if isinstance(term, Term) and _signs(term)}


def _signs(term: Term) -> set[int]:
    """+1 if a numeric term never falls, -1 if it never rises; both for a constant."""
    if term.kind != "numeric" or term.grouped or term.n_outputs > 1:
        return set()
    ends = np.ravel([piece.ends for piece in term.pieces])
    return {sign for sign in (1, -1) if (np.diff(sign * ends) >= 0).all()}


def _keeps_direction(before: Term, after: Term) -> bool:
    return bool(_signs(before) & _signs(after))


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of positive weight.

    y : as the loss takes it
    v : weights that sum to 1
    n : their sum before
    table, used : the table of all rows, and which of them have a weight
    offset : (n_rows, n_outputs)
    bins : (n_rows, n_terms)
    numbers : the values of the numeric columns, by column
    """

    y: np.ndarray
    v: np.ndarray
    n: float
    table: Table
    used: np.ndarray
    offset: np.ndarray
    bins: np.ndarray
    numbers: dict[int, np.ndarray]


def _rows(model: AdditiveModel, X: Any, y: Any, sample_weight: Any, offset: Any) -> _Rows:
    table = model._open(X)
    n_rows, n_outputs = table.n_rows, model.n_outputs
    if n_rows == 0:
        raise ValueError("X has no rows; at least one is needed")
    weight = np.ones(n_rows) if sample_weight is None else check_sample_weight(sample_weight, n_rows)
    y = target_of(model, y, n_rows)
    used = weight > 0
    v = weight[used] / weight.sum()
    shift = np.zeros((n_rows, n_outputs)) if offset is None else _check_offset(offset, (n_rows, n_outputs))
    sloped = {t.columns[0] for t in model.terms if t.has_slopes}
    return _Rows(
        model.loss.validate(y[used], v),
        v,
        float(weight.sum()),
        table,
        used,
        shift[used],
        bins_of_rows(model, table)[used],
        {column: table.numbers(column, column + 1)[used, 0].astype(np.float64) for column in sloped},
    )


@dataclass(frozen=True, eq=False)
class _Unknowns:
    """The unknowns of one term in one output.

    values, slopes : (n_bins, n_unknowns) what a unit of each adds to the table and to its slopes
    of_rows : (n_rows, n_unknowns) what it adds to the scores
    is_slope : whether an unknown is a slope, or the stretch of a staircase
    """

    values: np.ndarray
    slopes: np.ndarray
    of_rows: csr_array
    is_slope: np.ndarray


def _unknowns(term: AnyTerm, output: int, bins: np.ndarray, numbers: np.ndarray | None) -> _Unknowns:
    n_bins = len(term.all_values)
    values: list[np.ndarray] = []
    slopes: list[np.ndarray] = []
    is_slope: list[bool] = []
    rows, columns, entries = [], [], []

    def add(by_bin: np.ndarray, by_slope: np.ndarray, own_rows: np.ndarray, own: np.ndarray, sloped: bool) -> None:
        rows.append(own_rows)
        columns.append(np.full(len(own_rows), len(values)))
        entries.append(own)
        values.append(by_bin)
        slopes.append(by_slope)
        is_slope.append(sloped)

    nothing = np.zeros(n_bins)
    groups: list[list[int]] = [list(piece.bins) for piece in term.pieces]
    if term.missing_value is not None:
        groups.append([n_bins - 1])
    for group in groups:
        inside = np.zeros(n_bins)
        inside[group] = 1.0
        own_rows = np.flatnonzero(np.append(inside, 0.0)[bins])
        add(inside, nothing, own_rows, np.ones(len(own_rows)), False)
        if isinstance(term, PairTerm) or group[0] >= term.n_ordered or term.labels[group[0]] % 2 == 0:
            continue
        weights = np.maximum(term.weights[group], 1e-300)
        if slope := np.reshape(term.slopes, (term.n_ordered, -1))[group[0], output]:
            assert numbers is not None and slope
            anchor, _ = term.line(group)
            away = term.positions[group] - anchor
            x = np.clip(numbers[own_rows], *term.bounds[group[0]]) - anchor
        else:  # a staircase over ranks is stretched as a whole
            own = np.reshape(term.values, (term.n_ordered, -1))[group, output]
            away = own - np.average(own, weights=weights)
            x = np.append(_at(group, away, n_bins), 0.0)[bins[own_rows]]
        spread = math.sqrt(np.average(away**2, weights=weights))
        if spread > 0:
            by_slope = inside / spread if slope else nothing
            add(_at(group, away / spread, n_bins), by_slope, own_rows, x / spread, True)
    shape = (len(bins), len(values))
    of_rows = csr_array((np.concatenate(entries), (np.concatenate(rows), np.concatenate(columns))), shape=shape)
    return _Unknowns(np.column_stack(values), np.column_stack(slopes), of_rows, np.array(is_slope))


def _at(bins: Sequence[int], numbers: np.ndarray, n: int) -> np.ndarray:
    whole = np.zeros(n)
    whole[bins] = numbers
    return whole


def _refit(model: AdditiveModel, rows: _Rows, held: set[int], prior_rows: float) -> AdditiveModel:
    free = [t for t in range(len(model.terms)) if t not in held]
    adds = model.explain(rows.table, on_unseen="ignore").reshape(len(rows.used), len(model.terms), -1)[rows.used]
    z = rows.offset + np.atleast_1d(model.intercept) + adds.sum(axis=1)
    parts = [[_of_term(model, rows, t, c) for t in free] for c in range(model.n_outputs)]
    designs = [_design(own, len(rows.y)) for own in parts]
    changes = _newton(model, rows, z, designs, [_prior(own) for own in parts], prior_rows)
    terms = list(model.terms)
    start = np.zeros(model.n_outputs, dtype=np.int64)
    for k, t in enumerate(free):
        stop = start + [own[k].of_rows.shape[1] for own in parts]
        pairs = [(own[k], changes[c][start[c] : stop[c]]) for c, own in enumerate(parts)]
        terms[t], start = _changed(terms[t], pairs), stop
        if (rows.bins[:, t] >= 0).all():  # else the mean in the intercept would count for rows that the term leaves out
            terms[t] = recentred(terms[t])[0]
    return _with_intercept(replace(model, terms=tuple(term.edited() for term in terms)), rows)


def _with_intercept(model: AdditiveModel, rows: _Rows) -> AdditiveModel:
    """The model with its intercept at the least loss of the rows, and that loss."""
    adds = model.explain(rows.table, on_unseen="ignore").reshape(len(rows.used), len(model.terms), -1)[rows.used]
    z = _flat(rows.offset + adds.sum(axis=1))
    intercept = model.loss.refit_intercept(rows.y, z, rows.v, model.intercept)
    return replace(model, intercept=intercept, training_loss=model.loss.value(rows.y, z + intercept, rows.v))


def _of_term(model: AdditiveModel, rows: _Rows, t: int, output: int) -> _Unknowns:
    term = model.terms[t]
    return _unknowns(term, output, rows.bins[:, t], rows.numbers.get(term.columns[0]))


def _design(parts: list[_Unknowns], n_rows: int) -> csr_array:
    """What a unit of each unknown adds to the scores; the last column is the intercept."""
    return csr_array(hstack([*(part.of_rows for part in parts), csr_array(np.ones((n_rows, 1)))]))


def _prior(parts: list[_Unknowns]) -> np.ndarray:
    """The rows of the prior of each unknown, in units; a slope counts as the value at the end of an even piece."""
    return np.concatenate([*(np.where(part.is_slope, 3.0, 1.0) for part in parts), [0.0]])


def _newton(
    model: AdditiveModel,
    rows: _Rows,
    z: np.ndarray,
    designs: list[csr_array],
    priors: list[np.ndarray],
    prior_rows: float,
) -> list[np.ndarray]:
    """The changes of the unknowns, by output: Newton's method, whose objective never rises."""
    loss, n_outputs = model.loss, len(designs)
    changes = [np.zeros(design.shape[1]) for design in designs]
    per_row = _curvature(loss, rows, z).T @ rows.v
    ridges = [
        max(prior_rows, LEAST_PRIOR) * per_row[c] / rows.n * priors[c] + np.append(np.zeros(len(priors[c]) - 1), 1e-12)
        for c in range(n_outputs)
    ]

    def value_at(scores: np.ndarray, own: list[np.ndarray]) -> float:
        return loss.value(rows.y, _flat(scores), rows.v) + 0.5 * sum(
            float(r @ d**2) for r, d in zip(ridges, own, strict=True)
        )

    value = value_at(z, changes)
    for _ in range(MAX_STEPS):
        pull = _columns(loss.residual(rows.y, _flat(z)))
        bend = _curvature(loss, rows, z)
        moves, promise = [], 0.0
        for c, design in enumerate(designs):
            slope = design.T @ (rows.v * pull[:, c]) - ridges[c] * changes[c]
            weighted = design.multiply((rows.v * bend[:, c])[:, None]).tocsr()
            hessian = (design.T @ weighted).toarray()
            hessian[np.diag_indices_from(hessian)] += ridges[c]
            move = cho_solve(cho_factor(hessian, lower=True), slope)
            moves.append(move)
            promise += 0.5 * float(slope @ move)
        if not promise > ENOUGH:
            break
        shift = np.column_stack([design @ move for design, move in zip(designs, moves, strict=True)])
        for halving in range(MAX_HALVINGS):
            length = 0.5**halving
            own = [d + length * move for d, move in zip(changes, moves, strict=True)]
            trial = value_at(z + length * shift, own)
            if trial < value:
                break
        else:
            break
        z, changes, value = z + length * shift, own, trial
    return changes


def _curvature(loss: Any, rows: _Rows, z: np.ndarray) -> np.ndarray:
    """The curvature of each row and output, from a parabola above the loss where it is flat."""
    own = _columns(loss.curvature(rows.y, _flat(z)))
    above = loss.majorized_curvature(rows.y, _flat(z)) if not (own > 0).all() else None
    return np.maximum(own if above is None else _columns(above), 1e-12)


def _flat(z: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(z[:, 0]) if z.shape[1] == 1 else np.asfortranarray(z)


def _columns(z: np.ndarray) -> np.ndarray:
    return z.reshape(len(z), -1)


def _changed(term: AnyTerm, by_output: list[tuple[_Unknowns, np.ndarray]]) -> AnyTerm:
    """The term after the changes of its unknowns."""
    values = term.all_values + np.column_stack([own.values @ d for own, d in by_output])
    if isinstance(term, PairTerm):
        return term.edited(values=values.reshape(term.values.shape))
    n = term.n_ordered
    slopes = np.reshape(term.slopes, (n, -1)) + np.column_stack([(own.slopes @ d)[:n] for own, d in by_output])
    return term.edited(
        values=values[:n].reshape(term.values.shape),
        missing_value=None if term.missing_value is None else values[n] if term.values.ndim == 2 else values[n, 0],
        slopes=slopes.reshape(term.values.shape),
    )
