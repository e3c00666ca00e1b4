"""Purification: what a pair says of one column alone is told with that column.

A pair F over the cells (i, j), with the training weights W, is split into F = P + g_a(i) + g_b(j) such that the
weighted means of P along every row and every column of its grid are zero: g_a + g_b is the weighted least-squares fit
of F by step functions of one column each, with the cuts of the pair, and P is what no such function can say. The g move
into the terms of one column, which may be new. This changes how a model reads and never what it predicts.

A row that is in no cell, for example because of an unknown category, gets nothing from F, and so nothing moves for it
either. An ordinary model cannot say that: a term of one column does not know the other one. So `PurifiedView` explains
and predicts through the fitted model, and its `model`, which can be printed, drawn and written as a table, agrees with
that for all rows that the pairs know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rbr._parallel import one_blas_thread
from rbr.model.pairs import AnyTerm, Axis, PairTerm
from rbr.model.scoring import Scorer
from rbr.model.terms import Record, Term, place_of

if TYPE_CHECKING:
    from rbr.model import AdditiveModel

# Sums over bins that a term and the axes of pairs know.
_SUMS = ("weights", "counts", "target_sums", "exposures")


class PurifiedView:
    """A model in which pairs hold only what no function of one column can say; see `AdditiveModel.purified`.

    Attributes
    ----------
    fitted : AdditiveModel
        The model as it was fitted.
    model : AdditiveModel
        The purified terms: `summary`, `to_frame` and `plot` are its own. It predicts what the fitted model does for all
        rows without unknown categories and without missing values that training did not have.
    """

    def __init__(self, fitted: AdditiveModel):
        self.fitted = fitted
        self._splits = [(t, Split.of(term)) for t, term in enumerate(fitted.terms) if isinstance(term, PairTerm)]

    @cached_property
    def model(self) -> AdditiveModel:
        mains = {term.columns[0]: term for term in self.fitted.terms if isinstance(term, Term)}
        for column, moves in self._moves().items():
            mains[column] = with_steps(mains.get(column), moves)
        pairs = [split.pure for _, split in self._splits]
        return replace(self.fitted, terms=tuple(sorted([*mains.values(), *pairs], key=place_of)))

    def _moves(self) -> dict[int, list[Move]]:
        """What moves into the term of each column."""
        moves: dict[int, list[Move]] = {}
        for _, split in self._splits:
            for move in split.moves:
                moves.setdefault(move.axis.column, []).append(move)
        return moves

    @property
    def terms(self) -> tuple[AnyTerm, ...]:
        """The purified terms, those of one column first."""
        return self.model.terms

    @property
    def intercept(self) -> float | np.ndarray:
        """That of the fitted model."""
        return self.fitted.intercept

    @property
    def importances(self) -> Record:
        """The mean size of what each purified term adds."""
        return self.model.importances

    def __getitem__(self, term: str | int) -> AnyTerm:
        return self.model[term]

    def __repr__(self) -> str:
        return f"PurifiedView({self.model!r})"

    def summary(self) -> str:
        """The purified terms in a table; see `AdditiveModel.summary`."""
        return self.model.summary()

    def to_frame(self, *args: Any, **options: Any) -> Any:
        """The purified terms as a frame; see `AdditiveModel.to_frame`."""
        return self.model.to_frame(*args, **options)

    def plot(self, *args: Any, **options: Any) -> Any:
        """Draw the purified terms; see `AdditiveModel.plot`."""
        return self.model.plot(*args, **options)

    def explain(self, X: Any, n_jobs: int | None = None, on_unseen: str = "warn", output: str = "default") -> Any:
        """What each purified term adds to the score of each row; see `AdditiveModel.explain`."""
        fitted, n_outputs = self.fitted, self.fitted.n_outputs
        parts = np.asarray(fitted.explain(X, n_jobs, on_unseen))
        parts = parts.reshape(len(parts), len(fitted.terms), n_outputs)
        places = {term.columns: t for t, term in enumerate(self.terms)}
        out = np.zeros((len(parts), len(self.terms), n_outputs))
        for t, term in enumerate(fitted.terms):
            if isinstance(term, Term):
                out[:, places[term.columns]] += parts[:, t]
        table = fitted._open(X)
        for t, split in self._splits:
            rest = parts[:, t].copy()
            for move in split.moves:
                moved = np.zeros_like(rest)
                Scorer([move.on_grid], n_outputs).add_table(table, moved, n_jobs)
                out[:, places[(move.axis.column,)]] += moved
                rest -= moved
            out[:, places[fitted.terms[t].columns]] = rest
        if output != "default":
            from rbr.model.frames import contributions_as_frame

            return contributions_as_frame(self.model, X, out, output)
        return out[:, :, 0] if n_outputs == 1 else out

    def decision_function(self, X: Any, n_jobs: int | None = None, on_unseen: str = "warn") -> np.ndarray:
        """The raw scores: the intercept plus what the purified terms add."""
        return self.intercept + self.explain(X, n_jobs, on_unseen).sum(axis=1)


@dataclass(frozen=True)
class Move:
    """A step function of one column of a pair.

    axis : the column, with the bins of the steps
    steps : (n_bins, n_outputs), what each bin adds
    on_grid : the same as a function on the grid of the pair, which is nothing outside of it
    sums : the training rows of the bins, as _SUMS; an array is empty where it is not known
    """

    axis: Axis
    steps: np.ndarray
    on_grid: PairTerm
    sums: dict[str, np.ndarray]


@dataclass(frozen=True)
class Split:
    """A pair as its pure part and two step functions."""

    pure: PairTerm
    moves: tuple[Move, Move]

    @classmethod
    def of(cls, term: PairTerm) -> Split:
        first, second = fit_steps(term.values.reshape(*term.shape, -1), term.weights)
        whole = (*term.shape, term.n_outputs)
        grids = [np.broadcast_to(g, whole).reshape(term.values.shape) for g in (first[:, None], second[None])]
        numbers = np.arange(term.weights.size).reshape(term.shape)
        # Cells of one rectangle differ once steps are taken off.
        pure = replace(term, values=term.values - grids[0] - grids[1], labels=numbers, loss_drop=np.nan)
        moves = [
            Move(axis, steps, replace(term, values=grid, labels=numbers), _sums_along(term, k))
            for k, (axis, steps, grid) in enumerate(zip(term.axes, (first, second), grids, strict=True))
        ]
        return cls(pure, (moves[0], moves[1]))


def fit_steps(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The step functions (g_a, g_b) that are nearest to a grid under the weights; 0 in bins without rows.

    g_b has the weighted mean 0: the mean of the grid goes with the first column. Of a grid whose occupied cells fall
    apart into blocks, the smallest solution.

    Parameters
    ----------
    values : array of shape (n_a, n_b, n_outputs)
    weights : array of shape (n_a, n_b)
    """
    n_a, n_b, n_outputs = values.shape
    rows, columns = weights.sum(axis=1), weights.sum(axis=0)
    matrix = np.block([[np.diag(rows), weights], [weights.T, np.diag(columns)]])
    pull = np.concatenate([np.einsum("ij,ijc->ic", weights, values), np.einsum("ij,ijc->jc", weights, values)])
    scale = np.sqrt(np.concatenate([rows, columns]))
    scale = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    # Scaled like this, eigenvalues lie between 0 and 2 whatever the weights are; zeros are the constants of blocks.
    with one_blas_thread():
        solved = np.linalg.lstsq(scale[:, None] * matrix * scale, scale[:, None] * pull, rcond=1e-12)[0]
    solved *= scale[:, None]
    first, second = solved[:n_a], solved[n_a:]
    mean = columns @ second / max(columns.sum(), 1e-300)
    second = np.where(columns[:, None] > 0, second - mean, 0.0)
    first = np.where(rows[:, None] > 0, first + mean, 0.0)
    # Means along rows and columns, for the last digits.
    for _ in range(3):
        rest = values - first[:, None] - second[None]
        first = first + _means(np.einsum("ij,ijc->ic", weights, rest), rows)
        rest = values - first[:, None] - second[None]
        second = second + _means(np.einsum("ij,ijc->jc", weights, rest), columns)
    return first, second


def _means(sums: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.divide(sums, weights[:, None], out=np.zeros_like(sums), where=weights[:, None] > 0)


def _sums_along(term: PairTerm, k: int) -> dict[str, np.ndarray]:
    """The training rows of the bins of axis k."""
    cells = {name: getattr(term, name) for name in _SUMS if getattr(term, name).size}
    cells = {name: own if name == "target_sums" else own.ravel() for name, own in cells.items()}
    return {name: own.reshape(*term.shape, *own.shape[1:]).sum(axis=1 - k) for name, own in cells.items()}


# Terms of one column ------------------------------------------------------------------------------------------------


def with_steps(main: Term | None, moves: Sequence[Move]) -> Term:
    """The term of a column with step functions added, or made of them if there is none."""
    axis = moves[0].axis
    kinds = {move.axis.kind for move in moves} | ({main.kind} if main is not None else set())
    if len(kinds) > 1:
        raise ValueError(f"column {axis.name!r} holds numbers in one term and categories in another")
    if main is None:
        main = _nothing(moves[0])
    return _numeric(main, moves) if axis.groups is None else _category(main, moves)


def _nothing(move: Move) -> Term:
    """A term of the column that adds 0, with one bin; of a category with one for each level."""
    axis, sums = move.axis, move.sums
    n = 1 if axis.groups is None else len(axis.levels)
    shares = _by_level(axis, n)
    outputs = move.steps.shape[1]
    is_single = move.on_grid.values.ndim == 2
    of_bins: dict[str, Any] = {
        name: np.concatenate([np.tensordot(shares, own[: axis.n_ordered], 1), own[axis.n_ordered :]])
        for name, own in sums.items()
    }
    zeros = np.zeros(n) if is_single else np.zeros((n, outputs))
    gap = None if not axis.has_missing else 0.0 if is_single else np.zeros(outputs)
    return Term(
        name=axis.name,
        columns=(axis.column,),
        kind=axis.kind,
        edges=np.empty(0),
        categories=None if axis.groups is None else axis.levels,
        values=zeros,
        missing_value=gap,
        positions=np.arange(n) if axis.groups is not None else np.array([_middle(axis.edges)]),
        labels=np.zeros(n),
        grouped=axis.groups is not None,
        **of_bins,
    )


def _middle(edges: np.ndarray) -> float:
    return float(np.median(edges)) if len(edges) else 0.0


def _by_level(axis: Axis, n: int) -> np.ndarray:
    """(n, n_ordered): how the rows of each bin are dealt to a new term, equally to the levels of a group."""
    if axis.groups is None:
        return np.ones((1, axis.n_ordered))
    groups = np.repeat(np.arange(axis.n_ordered), [len(group) for group in axis.groups])
    shares = np.zeros((n, axis.n_ordered))
    shares[np.arange(n), groups] = 1.0
    return shares / shares.sum(axis=0)


def _numeric(main: Term, moves: Sequence[Move]) -> Term:
    edges = np.unique(np.concatenate([main.edges, *(move.axis.edges for move in moves)]))

    def bins(own: np.ndarray) -> np.ndarray:
        """For each new bin, the bin between some of the edges that holds it."""
        return np.append(np.searchsorted(own, edges, side="left"), len(own))

    old = bins(main.edges)
    steps = np.sum([move.steps[bins(move.axis.edges)] for move in moves], axis=0)
    positions = _positions(main, old, edges)
    slopes = main.slopes[old]
    moved = np.multiply.outer(positions - main.positions[old], np.ones(main.n_outputs)).reshape(slopes.shape) * slopes
    values = main.values[old] + moved
    sums = _sums_between(main, moves, edges)
    return _finished(
        main,
        moves,
        old,
        values,
        steps,
        edges=edges,
        positions=positions,
        slopes=slopes,
        bounds=main.bounds[old],
        **sums,
    )


def _positions(main: Term, old: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The mean of a bin where it is known; in a part of a bin, a place inside."""
    positions = main.positions[old]
    if len(edges) == 0:
        return positions
    # The parts of end bins are taken to be as wide as their neighbours, and not to reach across 0.
    half = np.diff(edges)[[0, -1]] / 2 if len(edges) > 1 else np.abs(edges - positions[0])[[0, 0]] + 0.5
    first, last = edges[0] - half[0], edges[-1] + half[1]
    first = edges[0] / 2 if first <= 0 < edges[0] else first
    places = np.concatenate([[first], (edges[1:] + edges[:-1]) / 2, [last]])
    low, high = np.append(-np.inf, edges), np.append(edges, np.inf)
    return np.where((low < positions) & (positions <= high), positions, places)


def _sums_between(main: Term, moves: Sequence[Move], edges: np.ndarray) -> dict[str, np.ndarray]:
    """Sums over the training rows by bin: at each edge the term or one of the pairs knows the sum of all below it."""
    found = {}
    for name in _SUMS:
        sources = [(main.edges, getattr(main, name))] if getattr(main, name).size else []
        sources += [(move.axis.edges, move.sums[name]) for move in moves if name in move.sums]
        known = np.full((len(edges), *(sources[0][1].shape[1:] if sources else ())), np.nan)
        for own_edges, own in sources[::-1]:
            known[np.searchsorted(edges, own_edges)] = np.cumsum(own[: len(own_edges) + 1], axis=0)[:-1]
        if not sources or np.isnan(known).any():
            found[name] = np.empty((0, 0)) if name == "target_sums" else np.empty(0)
            continue
        own_edges, own = sources[0]
        n = len(own_edges) + 1
        total = own[:n].sum(axis=0)[None]
        between = np.diff(np.concatenate([np.zeros_like(total), known, total]), axis=0)
        between = between if name == "target_sums" else np.maximum(between, 0.0)
        found[name] = np.concatenate([between, own[n:]])
    return found


def _category(main: Term, moves: Sequence[Move]) -> Term:
    """Levels that only a pair knows become categories of the term, to which it adds nothing of its own."""
    categories = list(main.categories or ())
    more = [level for move in moves for level in move.axis.levels if level not in set(categories)]
    new = list(dict.fromkeys(more))
    steps = np.zeros((len(categories) + len(new), main.n_outputs))
    place = {level: k for k, level in enumerate([*categories, *new])}
    for move in moves:
        for k, group in enumerate(move.axis.groups or ()):
            steps[[place[level] for level in group]] += move.steps[k]
    n = len(categories)
    old = np.append(np.arange(n), np.full(len(new), -1))
    values = np.concatenate([main.values[:n], np.zeros((len(new), *main.values.shape[1:]))])
    sums = {}
    for name in _SUMS:
        own = getattr(main, name)
        if own.size:
            sums[name] = np.concatenate([own[:n], np.zeros((len(new), *own.shape[1:])), own[main.n_ordered :]])
    return _finished(
        main,
        moves,
        old,
        values,
        steps,
        categories=(*categories, *new),
        slopes=np.zeros_like(values),
        bounds=np.empty(0),
        positions=np.arange(len(place)),
        **sums,
    )


def _finished(
    main: Term, moves: Sequence[Move], old: np.ndarray, values: np.ndarray, steps: Any, **fields: Any
) -> Term:
    """The term with steps on top of its values; a piece is what was one and has one step."""
    is_single = main.values.ndim == 1
    gaps = [move.steps[-1] for move in moves if move.axis.has_missing]
    missing_value = main.missing_value
    if gaps:
        before = np.zeros(main.n_outputs) if missing_value is None else np.atleast_1d(missing_value)
        total = before + sum(gaps)
        if missing_value is None:
            n_ordered = len(values)
            for name in _SUMS:
                own = fields.get(name, np.empty(0))
                more = [move.sums[name][-1:] for move in moves if move.axis.has_missing and name in move.sums]
                if own.size and len(own) == n_ordered:
                    fields[name] = np.concatenate([own, more[0] if more else np.zeros((1, *own.shape[1:]))])
        missing_value = float(total[0]) if is_single else total
    # Levels that the term did not know, old = -1, are no part of any of its pieces.
    before = np.append(main.labels, -2)[old]
    keys = [(label, *row) for label, row in zip(before.tolist(), steps.tolist(), strict=True)]
    return replace(
        main,
        values=values + (steps[:, 0] if is_single else steps),
        labels=_labels(keys, main.grouped),
        missing_value=missing_value,
        loss_drop=np.nan,
        jump_facts=np.empty((0, 5)),
        **fields,
    )


def _labels(keys: Sequence[tuple], grouped: bool) -> np.ndarray:
    """2 * piece + is_line of runs, or groups, of equal keys; the first entry of a key is the label that it had."""
    labels: list[int] = []
    index: dict[tuple, int] = {}
    for k, key in enumerate(keys):
        if k == 0 or (key not in index if grouped else key != keys[k - 1]):
            index[key] = len(index) if grouped else k
        labels.append(2 * index[key] + key[0] % 2)
    return np.array(labels, dtype=np.int32)
