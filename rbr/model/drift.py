"""New data beside the training data: how the columns of a model have changed, and what that does to its scores.

A model keeps no rows, but every term keeps the share of the training rows in each of its bins. That is enough to
compare: unknown categories, missing values, the population stability index, and the mean of what a term adds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rbr._checks import check_sample_weight
from rbr._text import one_line, text_table
from rbr.data.levels import UNSEEN, Categories
from rbr.data.tables import Table, few
from rbr.model.pairs import AnyTerm, PairTerm
from rbr.model.scoring import Scorer
from rbr.model.terms import HasColumns, Record, Term, Value, as_value
from rbr.model.unseen import WARN_SHARE

if TYPE_CHECKING:
    from rbr.model import AdditiveModel

# The usual limits of the population stability index, above which a column has shifted and changed.
SHIFTED, CHANGED = 0.1, 0.25

# Bins are merged to groups of at least this share of the training rows before they are compared.
MIN_SHARE = 0.05

# Chance alone exceeds `psi_chance` and `missing_chance` once in a thousand comparisons: the normal quantiles of 0.999,
# and of 0.9995 for what may differ in both directions.
_Z, _Z_BOTH = 3.0902, 3.2905


@dataclass(frozen=True)
class TermCheck(HasColumns):
    """The column of one term, in new data and in training.

    Attributes
    ----------
    term : str
    columns : tuple of int
    psi : float
        The population stability index, the sum over groups of (new share - old share) * log(new share / old share).
        The groups are neighbouring bins with at least 5% of the training rows together (for categories: the frequent
        ones, and the others together; for pairs: neighbouring cells), missing values, and unknown categories. An empty
        group counts as half a row.
    psi_chance : float
        What the index exceeds by chance, for this number of rows, once in a thousand comparisons.
    unseen : float
        The share of rows with a category that training did not have.
    levels : tuple
        These categories.
    missing, missing_in_training : float
        The shares of rows with a missing value.
    missing_chance : float
        How far the two differ by chance, once in a thousand comparisons.
    effect, effect_in_training : float, or a tuple with one float per class
        The mean of what the term adds to the score.
    """

    term: str
    columns: tuple[int, ...]
    psi: float
    psi_chance: float
    unseen: float
    levels: tuple
    missing: float
    missing_in_training: float
    missing_chance: float
    effect: Value
    effect_in_training: Value

    @property
    def shift(self) -> Value:
        """By how much the term moves the mean score: `effect` minus `effect_in_training`."""
        return _difference(self.effect, self.effect_in_training)

    @property
    def changes(self) -> tuple[str, ...]:
        """What has changed, in words; empty if nothing did that matters."""
        found = []
        if self.unseen > WARN_SHARE:
            found.append(
                f"{self.unseen:.0%} of the rows hold categories that training did not have ({few(self.levels)})"
            )
        if abs(self.missing - self.missing_in_training) > max(WARN_SHARE, self.missing_chance):
            found.append(f"{self.missing:.0%} of the rows are missing, {self.missing_in_training:.0%} in training")
        if self.psi > max(SHIFTED, self.psi_chance):
            word = "changed" if self.psi > CHANGED else "shifted"
            found.append(f"the distribution has {word} (psi {self.psi:.2f})")
        return tuple(found)


@dataclass(frozen=True, repr=False)
class Check:
    """What `AdditiveModel.check` found. It prints as a report.

    Attributes
    ----------
    n_rows : int
        The rows that were checked.
    n_rows_in_training : float
        The rows of the training table, or the sum of their sample weights.
    score, score_in_training : float, or a tuple with one float per class
        The mean score.
    link : str
        That of the model's loss; it says what a shift of the score means.
    terms : tuple of TermCheck
        In the order of the model's terms; `.to_frame()` makes a pandas frame of it.
    """

    n_rows: int
    n_rows_in_training: float
    score: Value
    score_in_training: Value
    link: str
    terms: Record

    @property
    def ok(self) -> bool:
        """Whether nothing has changed that matters."""
        return not self.changes

    @property
    def changes(self) -> tuple[str, ...]:
        """What has changed, in words, one sentence for each finding."""
        return tuple(f"{one_line(term.term)}: {text}" for term in self.terms for text in term.changes)

    @property
    def shift(self) -> Value:
        """By how much the mean score has moved."""
        return _difference(self.score, self.score_in_training)

    def to_frame(self) -> Any:
        """The terms as a pandas frame."""
        return self.terms.to_frame()

    def to_dict(self) -> dict:
        """Everything as plain Python values, for a log or a monitor."""
        terms = [{**asdict(term), "shift": term.shift, "changes": term.changes} for term in self.terms]
        return {**{name: getattr(self, name) for name in _SCALARS}, "terms": terms}

    def summary(self) -> str:
        """The report as text: the scores, a line for each term, the most shifted first, and what has changed."""
        shift = f"{_signed(self.shift)}{self._factor()}"
        head = [
            f"{self.n_rows:,} row{'s' * (self.n_rows != 1)} beside {self.n_rows_in_training:,.10g} of training",
            f"mean score: {_number(self.score)}, in training {_number(self.score_in_training)}, shift {shift}",
        ]
        in_order = sorted(self.terms, key=lambda term: -np.abs(term.shift).max())
        table = text_table(_HEAD, [_row(term) for term in in_order], [False, *[True] * (len(_HEAD) - 1)])
        found = [f"- {text}" for text in self.changes] or ["nothing has changed that matters"]
        return "\n".join([*head, *([table] if self.terms else []), *found])

    def _factor(self) -> str:
        """What a shift of one score means where it is a factor."""
        what = {"logit": "odds", "log": "mean"}.get(self.link)
        return "" if what is None or isinstance(self.shift, tuple) else f" ({what} x {math.exp(self.shift):.3g})"

    __repr__ = summary


_SCALARS = ("n_rows", "n_rows_in_training", "score", "score_in_training", "shift", "link", "ok", "changes")
_HEAD = ("term", "psi", "unseen", "missing", "in training", "mean effect", "in training", "shift")


def _row(term: TermCheck) -> tuple[str, ...]:
    shares = (f"{share:.1%}" for share in (term.unseen, term.missing, term.missing_in_training))
    effects = _number(term.effect), _number(term.effect_in_training), _signed(term.shift)
    return term.term, f"{term.psi:.3f}", *shares, *effects


def _number(value: Value) -> str:
    return " / ".join(f"{v:.3g}" for v in np.atleast_1d(value))


def _signed(value: Value) -> str:
    return " / ".join(f"{v:+.3g}" for v in np.atleast_1d(value))


def check(model: AdditiveModel, table: Table, sample_weight: Any) -> Check:
    """See `AdditiveModel.check`."""
    weights = None if sample_weight is None else check_sample_weight(sample_weight, table.n_rows)
    found = Record(_check_term(term, table, weights, model.n_outputs) for term in model.terms)
    totals = [float(term.rows.sum()) for term in model.terms]
    return Check(
        n_rows=table.n_rows,
        n_rows_in_training=max(totals, default=math.nan),
        score=_total(model.intercept, [term.effect for term in found]),
        score_in_training=_total(model.intercept, [term.effect_in_training for term in found]),
        link=model.loss.link,
        terms=found,
    )


def _total(intercept: float | np.ndarray, effects: Sequence[Value]) -> Value:
    return as_value(sum((np.asarray(effect) for effect in effects), np.asarray(intercept)))


@dataclass(frozen=True)
class _Bins:
    """The bins of a term, with those of missing and of unknown values, in training and in new rows.

    codes : the bin of each new row
    levels : the unknown categories
    before : the share of the training rows in each bin
    groups : the group of each bin
    is_missing, is_unknown : which bins hold such values
    """

    codes: np.ndarray
    levels: tuple
    before: np.ndarray
    groups: np.ndarray
    is_missing: np.ndarray
    is_unknown: np.ndarray


def _bins_of(term: AnyTerm, table: Table) -> _Bins:
    if isinstance(term, PairTerm):
        return _bins_of_pair(term, table)
    n_bins, has_gaps = term.n_ordered + 2, term.missing_value is not None
    before = np.append(term.shares, [0.0] * (2 - has_gaps))
    last, place = n_bins - 1, np.arange(n_bins)
    return _Bins(*_bins(term, table), before, _groups(term), place == last - 1, place == last)


def _bins_of_pair(term: PairTerm, table: Table) -> _Bins:
    from rbr.model.pair_reading import cells_of_rows, path_through, shares_of_cells

    before, is_missing, is_unknown = shares_of_cells(term)
    path = path_through(term)
    groups = np.empty(len(before), dtype=np.int64)
    groups[path] = _collected(before[path])
    groups[is_missing] = groups[path].max() + 1
    groups[is_unknown] = groups[path].max() + 2
    return _Bins(*cells_of_rows(term, table), before, groups, is_missing, is_unknown)


def _check_term(term: AnyTerm, table: Table, weights: np.ndarray | None, n_outputs: int) -> TermCheck:
    contributions = np.zeros((table.n_rows, n_outputs))
    Scorer([term], n_outputs).add_table(table, contributions, None)
    scale = np.abs(term.all_values).max(initial=0.0)
    effect = _rounded(np.average(contributions, axis=0, weights=weights), scale)
    in_training = _rounded(term.shares @ term.all_values, scale)
    bins = _bins_of(term, table)
    before = bins.before
    counts = np.bincount(bins.codes, weights, minlength=len(before))
    now = counts / counts.sum()
    # Weights need not be numbers of rows: what chance does follows from the rows that they are worth.
    n_now = table.n_rows if weights is None else weights.sum() ** 2 / (weights**2).sum()
    n_before = float(term.rows.sum()) or n_now
    noise = 1 / n_now + 1 / n_before
    missing, missing_before = (float(shares[bins.is_missing].sum()) for shares in (now, before))
    pooled = (n_now * missing + n_before * missing_before) / (n_now + n_before)
    grouped_now, grouped_before = (np.bincount(bins.groups, shares) for shares in (now, before))
    has_one = term.values.ndim == term.weights.ndim
    n_occupied = int(((grouped_now > 0) | (grouped_before > 0)).sum())
    return TermCheck(
        term=term.name,
        columns=term.columns,
        psi=_stability(grouped_now, grouped_before, 0.5 / n_now, 0.5 / n_before),
        psi_chance=_chi_square_quantile(max(n_occupied - 1, 1)) * noise,
        unseen=float(now[bins.is_unknown].sum()),
        levels=bins.levels,
        missing=missing,
        missing_in_training=missing_before,
        missing_chance=_Z_BOTH * math.sqrt(pooled * (1 - pooled) * noise),
        effect=as_value(effect[0] if has_one else effect),
        effect_in_training=as_value(in_training[0] if has_one else in_training),
    )


def _difference(now: Value, before: Value) -> Value:
    scale = float(np.maximum(np.abs(now), np.abs(before)).max())
    return as_value(_rounded(np.subtract(now, before), scale))


def _rounded(means: np.ndarray, scale: float) -> np.ndarray:
    """Means of values of this size, or their differences, with 0 where there is only a rounding error."""
    return np.where(np.abs(means) <= 1e-12 * scale, 0.0, means)


def _bins(term: Term, table: Table) -> tuple[np.ndarray, tuple]:
    """The bin of each row, n_ordered if missing and n_ordered + 1 if unknown; and the unknown categories."""
    (column,) = term.columns
    if term.kind == "numeric":
        x = table.numbers(column, column + 1)[:, 0]
        return np.where(np.isnan(x), term.n_ordered, np.searchsorted(term.edges, x, side="left")), ()
    levels, codes = table.levels(column)
    found = np.array(Categories(term.categories or ()).positions(levels, table.label(column)), dtype=np.int64)
    bins = np.append(np.where(found == UNSEEN, term.n_ordered + 1, found), term.n_ordered)[codes]
    present = np.bincount(codes[codes >= 0], minlength=len(levels)) > 0
    return bins, tuple(levels[k] for k in np.flatnonzero((found == UNSEEN) & present).tolist())


def _groups(term: Term) -> np.ndarray:
    """The group of each bin, then those of missing and of unknown values."""
    n_ordered = term.n_ordered
    shares = term.shares[:n_ordered]
    # Categories have no neighbours: the frequent ones come first, each alone, and the rare ones end up together.
    order = np.argsort(-shares, kind="stable") if term.kind == "category" else np.arange(n_ordered)
    groups = np.empty(n_ordered + 2, dtype=np.int64)
    groups[order] = _collected(shares[order])
    n_groups = groups[order].max() + 1
    groups[n_ordered:] = n_groups, n_groups + 1
    return groups


def _collected(shares: np.ndarray) -> np.ndarray:
    """The group of each share: from the first on, as many as are MIN_SHARE of the total together."""
    least = MIN_SHARE * shares.sum()
    groups = np.empty(len(shares), dtype=np.int64)
    group, collected = 0, 0.0
    for k, share in enumerate(shares.tolist()):
        if collected >= least:
            group, collected = group + 1, 0.0
        groups[k] = group
        collected += share
    if collected < least and group > 0:  # what is left over at the end goes to the last full group
        groups[groups == group] = group - 1
    return groups


def _stability(now: np.ndarray, old: np.ndarray, least_now: float, least_old: float) -> float:
    occupied = (now > 0) | (old > 0)
    now, old = np.maximum(now[occupied], least_now), np.maximum(old[occupied], least_old)
    return float(np.sum((now - old) * np.log(now / old)))


def _chi_square_quantile(n_free: int) -> float:
    """The 0.999 quantile of a chi-square distribution, by the approximation of Wilson and Hilferty."""
    spread = 2 / (9 * n_free)
    return n_free * (1 - spread + _Z * math.sqrt(spread)) ** 3
