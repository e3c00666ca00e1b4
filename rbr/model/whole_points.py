"""Scorecards in whole points, and what they cost.

Rounding each value to the nearest point is not the best way: errors of many pieces add up in a row, and some rows
matter more than others. So from the nearest points a coordinate search rounds one piece at a time the other way, as
long as that lowers the cost. Every piece stays within a point of its exact value: the rows judge roundings, they do not
fit the model again. With rows at hand the cost is their mean loss. Without, it is the mean squared difference from
the exact points over the training shares of the pieces, as if the terms were independent: the sum over terms of the
variance of the error, plus the square of its mean.

A line cannot have whole points along it, so it becomes steps of one point each, cut at bins of the fit. Where a bin is
wide and its line steep, a row may be further from the step than the mean of the bin is. A model does not know how x
varies within bins; only rows show what that costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rbr._checks import check_sample_weight, check_vector
from rbr.model.frames import as_frame, bins_of_rows, labels_of
from rbr.model.pairs import AnyTerm, PairTerm
from rbr.model.scorecard import PointScale, to_frame
from rbr.model.terms import labels_of_groups, labels_of_runs

if TYPE_CHECKING:
    from rbr.model import AdditiveModel

MAX_PASSES = 100
# A move must lower the cost by more than rounding can.
LEAST_GAIN = 1e-12
# Differences of points are added up on a grid of this width where there are no rows.
GRID = 0.01


@dataclass(frozen=True)
class Rounding:
    """What whole points cost.

    Attributes
    ----------
    largest, mean : float
        The largest and the mean absolute difference from the exact points: over the given rows, or else over the
        training shares of the bins, as if the terms were independent and every row at the mean of its bin. The largest
        is then that of any combination of bins; rows of a steep line may differ by more.
    mean_nearest : float
        The mean absolute difference if every value were rounded to the nearest point.
    n_rows : int or None
        The number of rows that the search used; None for training shares.
    loss, exact_loss, nearest_loss : float
        The mean log-loss of the rows with these points, with exact points, and with the nearest ones; NaN without rows.
    auc, exact_auc : float
        The area under the ROC curve of the rows with these and with exact points; NaN without rows.
    """

    largest: float
    mean: float
    mean_nearest: float
    n_rows: int | None = None
    loss: float = math.nan
    exact_loss: float = math.nan
    nearest_loss: float = math.nan
    auc: float = math.nan
    exact_auc: float = math.nan

    def __str__(self) -> str:
        over = "the training shares of the bins" if self.n_rows is None else f"{self.n_rows:,} rows"
        text = (
            f"whole points differ from exact ones by {self.mean:.2f} on average and {self.largest:.1f} at most, over "
            f"{over} (to the nearest: {self.mean_nearest:.2f} on average)"
        )
        if self.n_rows is None:
            return text
        return (
            f"{text}; log-loss {self.exact_loss:.5f} -> {self.loss:.5f} (to the nearest: {self.nearest_loss:.5f}), "
            f"AUC {self.exact_auc:.4f} -> {self.auc:.4f}"
        )


@dataclass(frozen=True, eq=False)
class Scorecard:
    """A model of two classes in whole points, as `AdditiveModel.scorecard` makes it.

    Attributes
    ----------
    model : AdditiveModel
        The rounded model: its probabilities are those of the whole points, and it can be saved and exported.
    scale : PointScale
        Points as a function of the score.
    rounding : Rounding
        What rounding costs; `print` it.
    """

    model: AdditiveModel
    scale: PointScale
    rounding: Rounding

    def __repr__(self) -> str:
        scale, n_terms = self.scale, len(self.model.terms)
        return (
            f"Scorecard({scale.score:g} points at odds {scale.odds:g}, {scale.double:g} to double, "
            f"{n_terms} term{'s' * (n_terms != 1)}, {self.model.n_pieces} pieces; {self.rounding})"
        )

    def points(self, X: Any) -> np.ndarray:
        """The points of each row, whole numbers: the sum of those of its pieces and of the intercept."""
        return np.rint(self.scale.base + self.scale.factor * self.model.decision_function(X)).astype(np.int64)

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class that belongs to the points of each row."""
        return self.model.predict_proba(X)

    def to_frame(self, output: str = "pandas") -> Any:
        """The card as a frame, with whole `points`; see `AdditiveModel.to_frame`."""
        columns = to_frame(self.model, scale=self.scale, output="dict")
        columns["points"] = np.rint(columns["points"]).astype(np.int64)
        for name in ("slope", "points_slope", "anchor", "line_from", "line_to"):
            del columns[name]  # no piece is a line
        return as_frame(columns, output, "to_frame")


def scorecard(model: AdditiveModel, scale: PointScale, X: Any, y: Any, sample_weight: Any, offset: Any) -> Scorecard:
    """See `AdditiveModel.scorecard`."""
    if (X is None) != (y is None):
        raise ValueError(f"{'X' if X is None else 'y'} is None; X and y are given together, or neither")
    card = Card(model, scale)
    cost = SharesCost(card) if X is None else _cost_of_rows(card, model, X, y, sample_weight, offset)
    _, mean_nearest = cost.differences()
    nearest_loss = cost.loss()
    search(card, cost)
    largest, mean = cost.differences()
    rounding = Rounding(largest, mean, mean_nearest)
    if isinstance(cost, RowsCost):
        losses = {"loss": cost.loss(), "exact_loss": cost.exact_loss(), "nearest_loss": nearest_loss}
        rounding = replace(rounding, n_rows=cost.n_used, **losses, auc=cost.auc(), exact_auc=cost.exact_auc())
    return Scorecard(card.rounded(model), scale, rounding)


def _cost_of_rows(card: Card, model: AdditiveModel, X: Any, y: Any, sample_weight: Any, offset: Any) -> Cost:
    table = model._open(X)
    if np.shape(y) != (table.n_rows,):
        raise ValueError(
            f"y has shape {np.shape(y)}; X has {table.n_rows} rows, and y must have one label for each of them"
        )
    weight = np.ones(table.n_rows) if sample_weight is None else check_sample_weight(sample_weight, table.n_rows)
    offset = None if offset is None else check_vector(offset, table.n_rows, "offset")
    return RowsCost(card, model, table, codes_of(labels_of(model), y), weight, offset)


class Card:
    """Whole points of groups of bins, and the exact points that they stand for.

    base, exact_base : the points of the intercept
    groups : for each term, the group of each bin; missing values are a bin
    points : for each term, the points of each group, at first the nearest to its mean exact points
    exact, means : for each term, the exact points of each bin, and their means by group
    """

    def __init__(self, model: AdditiveModel, scale: PointScale):
        self.scale = scale
        self.exact_base = scale.base + scale.factor * float(np.asarray(model.intercept))
        self.base = round(self.exact_base)
        self.weights = [term.shares for term in model.terms]
        self.exact = [scale.factor * term.all_values[:, 0] for term in model.terms]
        self.groups = [_groups(term, exact) for term, exact in zip(model.terms, self.exact, strict=True)]
        # A group without rows has a mean too.
        trios = zip(self.exact, self.groups, [own + 1e-12 for own in self.weights], strict=True)
        self.means = [np.bincount(g, w * exact) / np.bincount(g, w) for exact, g, w in trios]
        self.points = [np.rint(means).astype(np.int64) for means in self.means]

    def other_way(self, term: int, group: int) -> int:
        """The step from the points of a group to the whole number on the other side of its exact points."""
        points, exact = self.base, self.exact_base
        if term >= 0:
            points, exact = self.points[term][group], self.means[term][group]
        return 0 if points == exact else 1 if points < exact else -1

    def move(self, term: int, group: int, step: int) -> None:
        """Add a step to the points of a group; term -1 is the intercept."""
        if term < 0:
            self.base += step
        else:
            self.points[term][group] += step

    def rounded(self, model: AdditiveModel) -> AdditiveModel:
        """The model with the scores of these points."""
        terms = [self._rounded(term, t) for t, term in enumerate(model.terms)]
        intercept = (self.base - self.scale.base) / self.scale.factor
        return replace(model, terms=tuple(terms), intercept=intercept, training_loss=math.nan)

    def _rounded(self, term: AnyTerm, t: int) -> AnyTerm:
        values = self.points[t][self.groups[t]] / self.scale.factor
        if isinstance(term, PairTerm):
            return term.edited(values=values.reshape(term.shape))
        n = term.n_ordered
        keys = [(value,) for value in values[:n].tolist()]
        return term.edited(
            values=values[:n],
            missing_value=None if term.missing_value is None else values[n],
            labels=labels_of_groups(keys) if term.grouped else labels_of_runs(keys),
            slopes=np.zeros(n),
        )


def _groups(term: AnyTerm, exact: np.ndarray) -> np.ndarray:
    """The group of each bin: that of its piece, in a line of the bins with the same nearest whole number."""
    if isinstance(term, PairTerm):
        return np.unique(term.labels, return_inverse=True)[1].ravel()
    keys = [
        (int(label), round(points) if label % 2 else None)
        for label, points in zip(term.labels.tolist(), exact.tolist(), strict=False)
    ]
    if term.missing_value is not None:
        keys.append((-1, None))
    index: dict = {}
    return np.array([index.setdefault(key, len(index)) for key in keys], dtype=np.int64)


class Cost(Protocol):
    """What a coordinate search lowers."""

    def change(self, term: int, group: int, step: int) -> float:
        """How far the cost would rise if a group had `step` more points."""

    def move(self, term: int, group: int, step: int) -> None:
        """Note that a group has `step` more points."""

    def differences(self) -> tuple[float, float]:
        """The largest and the mean absolute difference from the exact points."""

    def loss(self) -> float:
        """The mean loss of the rows, NaN without rows."""


def search(card: Card, cost: Cost) -> None:
    """Round one group at a time the other way while that lowers the cost, in a fixed order."""
    coordinates = [(-1, 0), *((t, g) for t, points in enumerate(card.points) for g in range(len(points)))]
    for _ in range(MAX_PASSES):
        has_moved = False
        for term, group in coordinates:
            step = card.other_way(term, group)
            if step and cost.change(term, group, step) < -LEAST_GAIN:
                card.move(term, group, step)
                cost.move(term, group, step)
                has_moved = True
        if not has_moved:
            return


class SharesCost:
    """The mean squared difference from the exact points over the training shares, as if terms were independent."""

    def __init__(self, card: Card):
        self.card = card
        self.errors = [
            points[groups] - exact for points, groups, exact in zip(card.points, card.groups, card.exact, strict=True)
        ]
        self.of_base = card.base - card.exact_base

    def _mean(self) -> float:
        pairs = zip(self.card.weights, self.errors, strict=True)
        return self.of_base + sum(float(w @ e) for w, e in pairs)

    def change(self, term: int, group: int, step: int) -> float:
        mean = self._mean()
        if term < 0:
            return (mean + step) ** 2 - mean**2
        weights, errors = self.card.weights[term], self.errors[term]
        inside = self.card.groups[term] == group
        share = float(weights[inside].sum())
        own = float(weights @ errors)
        rise_of_square = step * (2 * float(weights[inside] @ errors[inside]) + step * share)
        rise_of_variance = rise_of_square - (own + step * share) ** 2 + own**2
        return rise_of_variance + (mean + step * share) ** 2 - mean**2

    def move(self, term: int, group: int, step: int) -> None:
        if term < 0:
            self.of_base += step
        else:
            self.errors[term][self.card.groups[term] == group] += step

    def differences(self) -> tuple[float, float]:
        # The distribution of the sum of independent errors, on a grid.
        shares, low = np.ones(1), round(self.of_base / GRID)
        for weights, errors in zip(self.card.weights, self.errors, strict=True):
            places = np.rint(errors / GRID).astype(np.int64)
            shares = np.convolve(shares, np.bincount(places - places.min(), weights))
            low += int(places.min())
        mean = float(shares @ np.abs((low + np.arange(len(shares))) * GRID))
        highest = self.of_base + sum(float(e.max()) for e in self.errors)
        lowest = self.of_base + sum(float(e.min()) for e in self.errors)
        return max(abs(highest), abs(lowest)), mean

    def loss(self) -> float:
        return math.nan


class RowsCost:
    """The mean log-loss of rows."""

    def __init__(self, card: Card, model: AdditiveModel, X: Any, y: np.ndarray, weight: np.ndarray, offset: Any):
        self.card, self.model_loss, self.y = card, model.loss, y
        self.v = weight / weight.sum()
        self.exact = np.asarray(model.decision_function(X))
        self.offset = np.zeros(len(y)) if offset is None else offset
        bins = bins_of_rows(model, X)
        self.rows_of: list[list[np.ndarray]] = []
        self.points = np.full(len(y), card.base)
        for t, (points, groups) in enumerate(zip(card.points, card.groups, strict=True)):
            # A row to which the term adds nothing (an unknown category) is in no group.
            own = np.append(groups, -1)[bins[:, t]]
            order = np.argsort(own, kind="stable")
            ends = np.searchsorted(own[order], np.arange(len(points) + 1))
            self.rows_of.append([order[a:b] for a, b in zip(ends[:-1], ends[1:], strict=True)])
            self.points += np.append(points, 0)[own]
        self.every = np.arange(len(y))

    @property
    def n_used(self) -> int:
        """The number of rows with a weight."""
        return int((self.v > 0).sum())

    def _rows(self, term: int, group: int) -> np.ndarray:
        return self.every if term < 0 else self.rows_of[term][group]

    def _scores(self, points: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return (points - self.card.scale.base) / self.card.scale.factor + self.offset[rows]

    def change(self, term: int, group: int, step: int) -> float:
        rows = self._rows(term, group)
        y, v, points = self.y[rows], self.v[rows], self.points[rows]
        before, after = (self.model_loss.values(y, self._scores(p, rows)) for p in (points, points + step))
        return float(v @ (after - before))

    def move(self, term: int, group: int, step: int) -> None:
        self.points[self._rows(term, group)] += step

    def differences(self) -> tuple[float, float]:
        exact = self.card.scale.base + self.card.scale.factor * self.exact
        size = np.abs(self.points - exact)[self.v > 0]
        return float(size.max()), float(size @ self.v[self.v > 0])

    def loss(self) -> float:
        return self.model_loss.value(self.y, self._scores(self.points, self.every), self.v)

    def exact_loss(self) -> float:
        return self.model_loss.value(self.y, self.exact + self.offset, self.v)

    def auc(self) -> float:
        return self._auc(self._scores(self.points, self.every))

    def exact_auc(self) -> float:
        return self._auc(self.exact + self.offset)

    def _auc(self, scores: np.ndarray) -> float:
        from sklearn.metrics import roc_auc_score

        used = self.v > 0
        if len(np.unique(self.y[used])) < 2:
            return math.nan
        return float(roc_auc_score(self.y[used], scores[used], sample_weight=self.v[used]))


def codes_of(labels: list, y: Any) -> np.ndarray:
    """y as 0 and 1, or a ValueError that names a label which is not one of the two."""
    y = np.asarray(y)
    codes = np.full(len(y), -1.0)
    for k, label in enumerate(labels):
        codes[y == label] = k
    if (codes < 0).any():
        raise ValueError(
            f"y holds {y[codes < 0].tolist()[0]!r}; it must hold the classes {labels[0]!r} and {labels[1]!r}"
        )
    return codes
