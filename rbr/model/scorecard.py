"""A model as a table for people: one row per piece, with relativities and points on a scale of the reader's choice.

Points are an affine map of the score. The intercept's row carries the constant, so the points of a row's pieces add up
to its scaled score. Within a line the points rise with x, and the table has the slope beside them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rbr._text import one_line
from rbr.model.frames import as_frame, labels_of
from rbr.model.pairs import AnyTerm, PairTerm
from rbr.model.terms import Piece, Term

if TYPE_CHECKING:
    from rbr.model import AdditiveModel


# The mean of a line that is a whole term is zero up to rounding, and told so.
ROUNDING = 1e-14


@dataclass(frozen=True)
class PointScale:
    """points = base + factor * score: `score` points at `odds` to 1, and `double` more where the odds double.

    The odds are those of the second class, or with is_reversed of the first.
    """

    score: float
    odds: float
    double: float
    is_reversed: bool = False

    @property
    def factor(self) -> float:
        """Points per unit of the model's score."""
        return (-1.0 if self.is_reversed else 1.0) * self.double / math.log(2)

    @property
    def base(self) -> float:
        """Points at the score 0, where the odds are 1."""
        return self.score - self.double * math.log2(self.odds)


def point_scale(model: AdditiveModel, points: Any, odds_of: Any = None) -> PointScale:
    """The scale of a triple (points, odds, points to double the odds), checked."""
    if model.loss.link != "logit":
        raise ValueError(f"points are for models of two classes, which have odds; the loss is {model.loss.name!r}")
    try:
        score, odds, double = map(float, points)
    except (TypeError, ValueError):
        score = odds = double = math.nan
    if not (math.isfinite(score) and 0 < odds < math.inf and 0 < double < math.inf):
        raise ValueError(
            f"points is {points!r}; it must be three numbers: a number of points, the odds at which it is reached, "
            "above 0, and the points that double the odds, above 0"
        )
    classes = labels_of(model)
    if odds_of is not None and odds_of not in classes:
        raise ValueError(f"odds_of is {odds_of!r}; it must be one of the classes, {classes[0]!r} or {classes[1]!r}")
    return PointScale(score, odds, double, is_reversed=odds_of is not None and odds_of == classes[0])


@dataclass(frozen=True)
class Entry:
    """A row of the table: a piece, a value of missing values, or the intercept.

    bins : of the term; None for the intercept
    values, slopes : one per score column
    low_2, high_2 : the range of the second column of a pair
    """

    term: AnyTerm | None
    kind: str
    text: str
    low: float
    high: float
    bins: list[int] | None
    values: np.ndarray
    slopes: np.ndarray
    anchor: float = math.nan
    line_from: float = math.nan
    line_to: float = math.nan
    low_2: float = math.nan
    high_2: float = math.nan


def entries_of(model: AdditiveModel) -> Iterator[Entry]:
    """The intercept, then every piece and missing value of every term. A line over ranks has an entry for each step."""
    intercept = np.atleast_1d(np.asarray(model.intercept))
    nothing = np.zeros(model.n_outputs)
    yield Entry(None, "intercept", "", math.nan, math.nan, None, intercept, nothing)
    for term in model.terms:
        if isinstance(term, PairTerm):
            from rbr.model.pair_reading import entries_of_pair

            yield from entries_of_pair(term)
            continue
        for piece in term.pieces:
            if piece.kind == "line" and piece.anchor is None:
                yield from _steps(term, piece)
            else:
                yield _of_piece(term, piece)
        if term.missing_value is not None:
            value = np.atleast_1d(np.asarray(term.missing_value))
            yield Entry(term, "missing", "missing", math.nan, math.nan, [term.n_ordered], value, nothing)


def _of_piece(term: Term, piece: Piece) -> Entry:
    low = math.nan if piece.low is None else piece.low
    high = math.nan if piece.high is None else piece.high
    values, slopes = np.atleast_1d(piece.value), np.broadcast_to(piece.slope, np.shape(np.atleast_1d(piece.value)))
    at: dict[str, float] = {}
    if piece.anchor is not None:
        line_from, line_to = np.clip([low, high], *term.bounds[piece.start]).tolist()
        at = {"anchor": piece.anchor, "line_from": line_from, "line_to": line_to}
    return Entry(term, piece.kind, piece.text, low, high, list(piece.bins), values, slopes, **at)


def _steps(term: Term, piece: Piece) -> Iterator[Entry]:
    texts = term.texts([[k] for k in piece.bins])
    ends = np.concatenate([[-math.inf], term.edges, [math.inf]])
    for k, text in zip(piece.bins, texts, strict=True):
        low, high = (ends[k], ends[k + 1]) if term.kind == "numeric" else (math.nan, math.nan)
        values = np.atleast_1d(term.values[k])
        yield Entry(term, "step", text, float(low), float(high), [k], values, np.zeros_like(values))


def to_frame(
    model: AdditiveModel, points: Any = None, odds_of: Any = None, output: str = "pandas", scale: Any = None
) -> Any:
    """See `AdditiveModel.to_frame`."""
    if points is not None:
        scale = point_scale(model, points, odds_of)
    elif odds_of is not None:
        raise ValueError(f"odds_of is {odds_of!r}, and points is None; it says whose odds the points are about")
    entries = list(entries_of(model))
    values, slopes = np.array([e.values for e in entries]), np.array([e.slopes for e in entries])
    values[np.abs(values) < ROUNDING * np.abs(values).max()] = 0.0
    columns: dict[str, Any] = {
        "term": ["intercept" if e.term is None else one_line(e.term.name) for e in entries],
        "kind": [e.kind for e in entries],
        "range": [e.text for e in entries],
        **_by_output(model, "value", values),
    }
    with np.errstate(over="ignore"):
        if model.loss.link in ("log", "logit"):
            columns["relativity" if model.loss.link == "log" else "odds_ratio"] = np.exp(values[:, 0])
    if scale is not None:
        columns["points"] = scale.factor * values[:, 0]
        columns["points"][0] += scale.base
    columns |= _observed(model, entries)
    columns |= {"lower": [e.low for e in entries], "upper": [e.high for e in entries]}
    if any(isinstance(term, PairTerm) for term in model.terms):
        columns |= {"lower_2": [e.low_2 for e in entries], "upper_2": [e.high_2 for e in entries]}
    columns |= _by_output(model, "slope", slopes)
    if scale is not None:
        columns["points_slope"] = scale.factor * slopes[:, 0]
    columns |= {name: [getattr(e, name) for e in entries] for name in ("anchor", "line_from", "line_to")}
    return as_frame(columns, output, "to_frame")


def _by_output(model: AdditiveModel, name: str, numbers: np.ndarray) -> dict[str, np.ndarray]:
    if model.n_outputs == 1:
        return {name: numbers[:, 0]}
    return {f"{name}_{label}": column for label, column in zip(labels_of(model), numbers.T, strict=True)}


def _observed(model: AdditiveModel, entries: list[Entry]) -> dict[str, Any]:
    """What the training rows of each entry show; NaN where a model does not know."""
    facts = [_facts_of(e.term, e.bins) for e in entries[1:]]
    whole = _facts_of(model.terms[0], list(range(model.terms[0].weights.size))) if model.terms else Facts()
    facts.insert(0, whole)
    columns: dict[str, Any] = {"rows": [f.rows for f in facts], "share": [f.share for f in facts]}
    n_sums = max((len(f.sums) for f in facts), default=0)
    sums = np.array([f.sums if len(f.sums) == n_sums else np.full(n_sums, math.nan) for f in facts])
    if model.loss.link in ("logit", "softmax"):
        totals = sums.sum(axis=1) if n_sums else np.full(len(facts), math.nan)
        labels = labels_of(model)
        shares = _ratio(sums, totals[:, None]) if n_sums else np.full((len(facts), len(labels)), math.nan)
        if model.n_outputs == 1:
            return columns | {"positive_share": shares[:, 1]}
        return columns | {f"share_of_{label}": column for label, column in zip(labels, shares.T, strict=True)}
    target = sums[:, 0] if n_sums else np.full(len(facts), math.nan)
    columns["mean_target"] = _ratio(target, np.array([f.rows for f in facts]))
    if any(not math.isnan(f.exposure) for f in facts):
        exposure = np.array([f.exposure for f in facts])
        columns |= {"exposure": exposure, "rate": _ratio(target, exposure)}
    return columns


@dataclass(frozen=True)
class Facts:
    """What is known of the training rows of some bins."""

    rows: float = math.nan
    share: float = math.nan
    sums: tuple[float, ...] = ()
    exposure: float = math.nan


def _facts_of(term: AnyTerm | None, bins: list[int] | None) -> Facts:
    assert term is not None and bins is not None  # only the intercept has neither
    sums = tuple(term.target_sums[bins].sum(axis=0).tolist()) if term.target_sums.size else ()
    exposure = float(term.exposures[bins].sum()) if term.exposures.size else math.nan
    return Facts(float(term.rows[bins].sum()), float(term.shares[bins].sum()), sums, exposure)


def _ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    b = np.broadcast_to(b, a.shape)
    return np.divide(a, b, out=np.full(a.shape, math.nan), where=b > 0)
