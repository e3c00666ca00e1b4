"""Uncertainty of the terms of a model: refits on bootstrap resamples of the training rows.

A resample is a vector of whole numbers, how often each row was drawn. Passed as sample_weight it means the same as
repeated rows, so every refit runs on the same binned design: nothing is binned again and nothing is copied. The
selected features, the number and places of the pieces, and the values vary from refit to refit. The bins do not, nor
does the price of features and pieces, which is twice that of the model (RESAMPLED_NOISE).
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from rbr._checks import check_level
from rbr.model.pairs import AnyTerm, Axis, PairTerm
from rbr.model.terms import Term, column_name, import_pandas, read_only

if TYPE_CHECKING:
    from rbr.data.binning import Binner
    from rbr.data.design import BinnedMatrix
    from rbr.model import AdditiveModel

__all__ = ["Bootstrap"]

# A resample must hold every class; if a class has a single row, about every third resample does not.
MAX_DRAWS = 1000
# A row drawn c times contributes its noise c times, and E c^2 / E c = 2: a piece that fits nothing but noise lowers the
# loss of a resample twice as far as that of the rows themselves. So refits pay twice the price for features and pieces;
# at the single price they would select columns of noise that the model itself leaves out.
RESAMPLED_NOISE = 2.0


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """The tables of refits on bootstrap resamples, as `estimator.bootstrap` returns them.

    A band holds, for each bin of a term, the middle 90% (or another `level`) of the values that the refits gave it; a
    refit that did not use the term gave it 0. Each table is shifted to have the same mean over the training rows as the
    model's own, so that bands compare shapes and not intercepts. A band holds for each bin separately: a whole table
    lies inside all its bands less often than in `level` of the resamples. The bands are conditional on the bins: these
    were cut once, from all rows, and their uncertainty is not included. Nor is the bias of a sparse fit: where small
    effects are set to zero in every refit, the band is narrow around zero. Refits pay twice the model's price for
    features and pieces, because repeated rows double the noise in a resample; a feature that is barely worth its price
    in the model is therefore used by fewer than half of them.

    All refits have the pairs of the model, so these are used by all, and their bands say how their tables vary. A refit
    may cut a grid elsewhere; what it says of a cell is the mean over the bins inside, weighted as in the two columns by
    themselves.

    Attributes
    ----------
    terms : tuple of Term and PairTerm
        The terms of the model.
    tables : tuple of arrays of shape (n_refits, n_bins, n_outputs)
        For each term its table in every refit, the bin of missing values last if there is one; for a pair its cells row
        after row.
    frequencies : array of shape (n_features,)
        The share of the refits that used each column of the training table, in any term.
    feature_names : tuple of str
        The names of those columns.
    term_frequencies : array of shape (n_terms,)
        The share of the refits that used each term of the model.
    models : tuple of AdditiveModel
        The refits, with all their terms; a line is a staircase with a step per bin.
    """

    terms: tuple[AnyTerm, ...] = field(repr=False)
    tables: tuple[np.ndarray, ...] = field(repr=False)
    frequencies: np.ndarray = field(repr=False)
    feature_names: tuple[str, ...] = field(repr=False)
    term_frequencies: np.ndarray = field(repr=False)
    models: tuple[AdditiveModel, ...] = field(default=(), repr=False)

    def __post_init__(self):
        object.__setattr__(self, "tables", tuple(read_only(table) for table in self.tables))
        object.__setattr__(self, "frequencies", read_only(self.frequencies))
        object.__setattr__(self, "term_frequencies", read_only(self.term_frequencies))

    def __reduce__(self):
        return Bootstrap, tuple(getattr(self, f.name) for f in fields(self))

    def __repr__(self) -> str:
        n_terms = len(self.terms)
        often = int((self.frequencies >= 0.5).sum())
        return (
            f"Bootstrap({self.n_refits} refits, bands of {n_terms} term{'s' * (n_terms != 1)}, {often} of "
            f"{len(self.frequencies)} features in at least half of the refits)"
        )

    @property
    def n_refits(self) -> int:
        """The number of refits."""
        return self.tables[0].shape[0] if self.tables else 0

    def band(self, term: str | int, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The low and the high end of a term's band.

        Parameters
        ----------
        term : str or int
            The name of the term, or its position in `terms`.
        level : float, default 0.9
            The share of the refits between the two ends, bin by bin.

        Returns
        -------
        pair of arrays of shape (n_bins, n_outputs)
            In the order of `Term.all_values`: the bin of missing values is the last, if there is one. For a pair in the
            order of `PairTerm.all_values`: its cells row after row.
        """
        check_level(level)
        low, high = np.quantile(self.tables[self._position(term)], [(1 - level) / 2, (1 + level) / 2], axis=0)
        return low, high

    def predict(self, X: Any, offset: ArrayLike | None = None) -> np.ndarray:
        """The prediction of every refit for each row; of a classifier the probabilities.

        Returns
        -------
        array of shape (n_refits, n_rows), or (n_refits, n_rows, n_classes) with more than two classes
            For two classes the probability of the second.
        """
        if not self.models:
            raise ValueError("this bootstrap has no models to predict with; make it with estimator.bootstrap")
        return np.stack([_mean_prediction(model, X, offset) for model in self.models])

    def predict_interval(self, X: Any, level: float = 0.9, offset: ArrayLike | None = None) -> np.ndarray:
        """Where the middle 90% (or another `level`) of the refits see the mean of y at each row.

        This is the uncertainty of the prediction itself, not of a new y: for that, see `RBRRegressor.calibrate`. It
        leaves out what all refits have in common, the bins and the bias of a sparse fit, so the true mean is inside
        less often than `level`, above all beside a jump.

        Parameters
        ----------
        X : array, frame or sparse matrix of shape (n_rows, n_features)
        level : float, default 0.9
            The share of the refits between the two ends, row by row.
        offset : array of shape (n_rows,), optional
            Added to the scores.

        Returns
        -------
        array of shape (n_rows, 2), or (n_rows, n_classes, 2) with more than two classes
            For two classes of the probability of the second.
        """
        check_level(level)
        ends = np.quantile(self.predict(X, offset), [(1 - level) / 2, (1 + level) / 2], axis=0)
        return np.moveaxis(ends, 0, -1)

    def frequency(self, term: str | int) -> float:
        """The share of the refits that used a term."""
        return float(self.term_frequencies[self._position(term)])

    def to_frame(self, term: str | int | None = None, level: float = 0.9):
        """The selection frequencies as a pandas frame, the most frequent features first; or the band of a term.

        Parameters
        ----------
        term : str or int, optional
            The name of a term, or its position in `terms`: the frame then has a row for each of its bins, or
            cells, with the value of the model, the ends of the band, and the share of the rows.
        level : float, default 0.9
            As in `band`.
        """
        pandas = import_pandas("to_frame")
        if term is None:
            frame = pandas.DataFrame({"feature": self.feature_names, "frequency": self.frequencies})
            return frame.sort_values("frequency", ascending=False, kind="stable", ignore_index=True)
        low, high = self.band(term, level)
        own = self.terms[self._position(term)]
        axes = own.axes if isinstance(own, PairTerm) else (_axis_of(own),)
        bins = np.unravel_index(np.arange(len(low)), [axis.n_bins for axis in axes])
        # Each class has its rows, one after the other.
        n_outputs = low.shape[1]
        where: dict[str, Any] = {
            axis.name: [axis.words([k]).removeprefix(axis.name).strip() or "any" for k in np.tile(own_bins, n_outputs)]
            for axis, own_bins in zip(axes, bins, strict=True)
        }
        if n_outputs > 1:
            classes = self.models[0].classes if self.models else None
            where["class"] = np.repeat(np.arange(n_outputs) if classes is None else classes, len(low))
        found = {"value": own.all_values, "low": low, "high": high}
        columns = {name: values.T.ravel() for name, values in found.items()}
        return pandas.DataFrame({**where, **columns, "share": np.tile(own.weights.ravel(), n_outputs)})

    def _position(self, term: str | int) -> int:
        names = [own.name for own in self.terms]
        if isinstance(term, str) and term in names:
            return names.index(term)
        if isinstance(term, (int, np.integer)) and 0 <= term < len(names):
            return int(term)
        listed = ", ".join(map(repr, names)) or "none"
        raise ValueError(f"term is {term!r}; the terms of the bootstrap are {listed}")

    def check_terms(self, terms: Sequence[AnyTerm]) -> None:
        """Raise a ValueError unless there is a band for each of the terms, on the same bins."""
        for term in terms:
            own = self.terms[self._position(term.name)]
            if _bins_of(own) != _bins_of(term):
                raise ValueError(
                    f"bands: term {term.name!r} has other bins than in the bootstrap; make one of this model"
                )


def _axis_of(term: Term) -> Axis:
    """The bins of a term of one column, as the side of a grid."""
    groups = None if term.categories is None else tuple((level,) for level in term.categories)
    edges = term.edges if groups is None else np.empty(0)
    return Axis(term.columns[0], term.name, edges, groups, term.missing_value is not None)


def _bins_of(term: AnyTerm) -> tuple:
    """What tells the bins of a term from those of another."""
    if isinstance(term, PairTerm):
        return term.axes
    return term.edges.tolist(), term.categories, term.all_values.shape


def _mean_prediction(model: AdditiveModel, X: Any, offset: ArrayLike | None) -> np.ndarray:
    if model.classes is None:
        return model.predict(X, offset=offset)
    probabilities = model.predict_proba(X, offset=offset)
    return probabilities[:, 1] if len(model.classes) == 2 else probabilities


def resamples(
    sample_weight: np.ndarray | None,
    y: np.ndarray,
    n: int,
    rng: np.random.Generator,
    *,
    is_classifier: bool,
    needs_positive: bool = False,
) -> list[Callable[[], np.ndarray]]:
    """n functions, each of which draws the row weights of one resample; the order of the calls does not matter.

    Without weights, n_rows rows are drawn with replacement. Whole weights mean repeated rows: as many rows as they sum
    to are drawn, in proportion to them. Other weights stay with their rows, of which n_rows are drawn. A resample that
    leaves out a class, or every positive y where one is needed, is drawn again.
    """
    base = np.ones(len(y)) if sample_weight is None else sample_weight
    whole = bool((base == np.floor(base)).all())
    chances = base if whole else (base > 0).astype(np.float64)
    n_drawn = int(chances.sum())
    classes = np.unique(y[base > 0]) if is_classifier else ()

    def can_be_fitted(drawn: np.ndarray) -> bool:
        if needs_positive and not (drawn > 0).any():
            return False
        return len(classes) == 0 or len(np.unique(drawn)) == len(classes)

    def draw(seed: np.random.SeedSequence) -> np.ndarray:
        own = np.random.default_rng(seed)
        for _ in range(MAX_DRAWS):
            counts = own.multinomial(n_drawn, chances / chances.sum()).astype(np.float64)
            if can_be_fitted(y[counts > 0]):
                return counts if whole else counts * base
        scarce = "positive value" if needs_positive else "class"
        raise ValueError(f"y: {MAX_DRAWS} resamples all left a {scarce} out; the rarest {scarce} needs more rows")

    seeds = np.random.SeedSequence(rng.integers(0, 2**32, size=4).tolist()).spawn(n)
    return [partial(draw, seed) for seed in seeds]


def run_all(tasks: Sequence[Callable], n_threads: int, stop: threading.Event, verbose: int = 0) -> list:
    """The results of all tasks, in their order, from n_threads threads.

    With several threads, a failure or an interrupt sets `stop`, which the tasks check, and is raised again once the
    running ones have ended.
    """
    start, n_done = time.perf_counter(), 0

    def report() -> None:
        if verbose and (n_done == len(tasks) or n_done % max(1, len(tasks) // 10) == 0):
            print(f"bootstrap: {n_done} of {len(tasks)} refits, {time.perf_counter() - start:.1f} s", flush=True)

    # Warning filters are global to the process, so they are set and restored here, not in the threads.
    with warnings.catch_warnings():
        from sklearn.exceptions import ConvergenceWarning

        warnings.simplefilter("ignore", ConvergenceWarning)
        if n_threads == 1:
            results = []
            for task in tasks:
                results.append(task())
                n_done += 1
                report()
            return results
        with ThreadPoolExecutor(n_threads, thread_name_prefix="rbr-bootstrap") as pool:
            # A thread starts with an empty context, and the context holds the backend in use.
            futures = [pool.submit(copy_context().run, task) for task in tasks]
            try:
                running = set(futures)
                while running:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
                        n_done += 1
                        report()
            except BaseException:
                stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
            return [future.result() for future in futures]


def bootstrap_of(
    model: AdditiveModel,
    design: BinnedMatrix,
    binner: Binner,
    solutions: Sequence[np.ndarray],
    models: Sequence[AdditiveModel],
) -> Bootstrap:
    """The `Bootstrap` of refits on a design, each given by the tables of its mains, and as a model."""
    tables, of_terms = [], []
    for term in model.terms:
        if isinstance(term, PairTerm):
            values = np.stack([_cells_in(refit, term, design, binner) for refit in models])
        else:
            j = design.feature_of(term.columns)
            bins = slice(design.offsets[j], design.offsets[j + 1])
            values = np.stack([f[bins].reshape(bins.stop - bins.start, -1) for f in solutions])
        # Shift to the mean of the model's own table: zero, unless its bins are weighted otherwise than by rows.
        weights = term.weights.ravel()
        shift = np.einsum("k,rkc->rc", weights / weights.sum(), values - term.all_values)
        tables.append(values - shift[:, None, :])
        of_terms.append(np.mean([any(own.columns == term.columns for own in refit.terms) for refit in models]))
    of_columns = np.zeros(model.n_features_in_)
    for refit in models:
        # A column counts once, however many of the terms use it.
        of_columns[list({column for term in refit.terms for column in term.columns})] += 1
    names = tuple(column_name(j, model.feature_names_in_) for j in range(model.n_features_in_))
    return Bootstrap(model.terms, tuple(tables), of_columns / len(models), names, np.array(of_terms), tuple(models))


def _cells_in(refit: AdditiveModel, term: PairTerm, design: BinnedMatrix, binner: Binner) -> np.ndarray:
    """What a refit adds in the cells of a pair, of shape (n_cells, n_outputs); 0 if it has not that pair."""
    own = next((own for own in refit.terms if own.columns == term.columns), None)
    if not isinstance(own, PairTerm):
        return np.zeros_like(term.all_values)
    # The share of each bin of the refit in each bin of the term, side by side.
    shares = []
    for axis, other in zip(term.axes, own.axes, strict=True):
        j = design.feature_of((axis.column,))
        rows = design.shares[design.offsets[j] : design.offsets[j + 1]]
        into, of = np.zeros((len(rows), axis.n_bins)), np.zeros((len(rows), other.n_bins))
        for found, side in ((into, axis), (of, other)):
            bins = _bins_on(side, binner, len(rows))
            found[np.flatnonzero(bins >= 0), bins[bins >= 0]] = 1.0
        # Bins without rows count all alike where there are no others.
        overlap = into.T @ ((rows + 1e-300)[:, None] * of)
        shares.append(overlap / np.maximum(overlap.sum(axis=1, keepdims=True), 1e-300))
    values = own.values.reshape(*own.shape, -1)
    return np.einsum("ia,jb,abc->ijc", *shares, values).reshape(term.all_values.shape)


def _bins_on(axis: Axis, binner: Binner, n_bins: int) -> np.ndarray:
    """The bin of an axis that each bin of its column lies in; -1 for none."""
    found = np.full(n_bins, axis.n_bins - 1 if axis.has_missing else -1)
    if axis.groups is None:
        edges = binner.edges_[axis.column]
        found[: len(edges)] = np.searchsorted(axis.edges, edges)
        found[len(edges)] = axis.n_ordered - 1
    else:
        group_of = {level: k for k, group in enumerate(axis.groups) for level in group}
        levels = [group_of.get(level, -1) for level in binner.categories_[axis.column]]
        found[: len(levels)] = levels
    return found
