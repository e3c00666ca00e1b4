"""Fits from blocks: `fit_from`, and what an estimator's `fit` does with a source.

A first pass over the source finds the bins (`rbr.data.sketches`), a second one writes their codes to a store
(`rbr.data.store`), and the ordinary solver runs over the parts of the store. The result is an ordinary estimator.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from rbr.data.passes import Progress, Reader, Summary, first_pass, second_pass
from rbr.data.sources import Block, Request, Source, as_source
from rbr.data.store import Store, fingerprint_of
from rbr.estimators.inputs import Training
from rbr.losses import Loss, get_loss
from rbr.objective.stored import stored_objective

if TYPE_CHECKING:
    from rbr.estimators.base import RBREstimator


def fit_from(
    source: Any,
    *,
    target: Any = None,
    estimator: Any = None,
    columns: Any = None,
    filters: Any = None,
    sample_weight: Any = None,
    offset: Any = None,
    block_rows: int | None = None,
    cache_dir: str | os.PathLike | None = None,
    callback: Callable[[Progress], Any] | None = None,
    **parameters: Any,
) -> Any:
    """Fit an estimator to rows that are read in blocks: files, memory-mapped arrays, or what an iterable makes.

    The source is read twice, and a third time for the values of the columns that the model uses, if they are many. Only
    a block of it is in memory at a time; the binned rows are kept in a temporary memory-mapped file, of one byte for
    each entry, which is removed when the fit ends.

    Parameters
    ----------
    source : path, list of paths, pyarrow dataset, array, iterable or Source
        A Parquet or CSV file or a folder of them; an array, such as an `np.memmap`; an iterable of blocks
        ``(X, y)`` or ``(X, y, sample_weight)`` that can be read several times; or a `ParquetSource`, `CSVSource`,
        `ArraySource` or `BlockSource`, which take further arguments.
    target : str or array
        With files the name of the column to predict, with an array the array of targets; blocks bring their own.
    estimator : RBRRegressor or RBRClassifier, class or instance, optional
        By default a regressor for targets that are numbers, and a classifier for text and bool. An instance is fitted
        and returned.
    columns, filters : optional
        With files, the columns of X, and a condition for the rows; see `ParquetSource`.
    sample_weight, offset : str or array, optional
        With files the names of columns, with an array arrays.
    block_rows : int, optional
        Rows that are read at a time.
    cache_dir : path, optional
        Keep the binned rows in this folder, and use them again if the source, the target, the parameters of the bins
        and the version of rbr are the same.
    callback : callable, optional
        Called with a `Progress` after each block and in each iteration; if it returns True in an iteration, the fit
        stops there.
    **parameters
        Of the estimator, if it is not an instance.

    Returns
    -------
    RBRRegressor or RBRClassifier
        Fitted.

    Examples
    --------
    >>> import numpy as np
    >>> import rbr
    >>> class Draws:
    ...     def __iter__(self):
    ...         for seed in range(4):
    ...             rng = np.random.default_rng(seed)
    ...             X = rng.normal(size=(500, 5))
    ...             yield X, np.where(X[:, 2] > 0, 2.0, -1.0) + 0.1 * rng.normal(size=500)
    >>> m = rbr.fit_from(Draws(), max_features=1)
    >>> m.selected_features_
    array([2])
    >>> m.predict([[0, 0, 1.5, 0, 0], [0, 0, -1.5, 0, 0]]).round(1)
    array([ 2., -1.])
    """
    options = {
        "columns": columns,
        "filters": filters,
        "sample_weight": sample_weight,
        "offset": offset,
        "block_rows": block_rows,
    }
    rows = as_source(source, target, **options)
    if estimator is None:
        estimator = _usual_estimator(rows)
    if isinstance(estimator, type):
        estimator = estimator(**parameters)
    elif parameters:
        named = ", ".join(parameters)
        raise TypeError(f"estimator is an instance, which has its own parameters; set {named} there")
    return estimator.fit(Request(rows, cache_dir, callback))


def _usual_estimator(source: Source) -> type:
    from rbr.estimators.classifier import RBRClassifier
    from rbr.estimators.regressor import RBRRegressor

    is_number = _first_block(source).y.dtype.kind in "fiu"
    return RBRRegressor if is_number else RBRClassifier


def _first_block(source: Source) -> Block:
    for block in source.blocks():
        if len(block.y):
            return block
    raise ValueError("the source has no rows; at least one is needed")


class NumberTargets:
    """Targets that are numbers; see `rbr.data.passes.Targets`."""

    def __init__(self, loss: Loss):
        self.loss = loss

    def add(self, y: np.ndarray, weight: np.ndarray | None, where: str) -> None:
        try:
            numbers = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: y holds text or other objects; a regressor needs numbers ({error})") from None
        try:
            # One positive target is added, because a block need not have one; the source must.
            self.loss.validate(np.append(numbers, 1.0))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error

    def codes(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(y, dtype=np.float64)

    def weigh(self, weight: np.ndarray | None, y: np.ndarray) -> np.ndarray | None:
        return weight


class ClassTargets:
    """Class labels, of which a block need not have all; see `rbr.data.passes.Targets`."""

    def __init__(self) -> None:
        self.totals: dict[Any, float] = {}
        self.of_class: np.ndarray | None = None  # class weights
        self._classes: np.ndarray | None = None

    def add(self, y: np.ndarray, weight: np.ndarray | None, where: str) -> None:
        try:
            if y.dtype.kind == "f" and not np.isfinite(y).all():
                bad = int(np.flatnonzero(~np.isfinite(y))[0])
                raise ValueError(f"y[{bad}] is {y[bad]}; a class must not be missing")
            if y.dtype.kind == "O" and any(label is None or label != label for label in y):
                raise ValueError("y has a missing class; a class must not be missing")
            if y.dtype.kind not in "iub":
                check_classification_targets(y)
            labels, codes = np.unique(y, return_inverse=True)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: {error}") from error
        for label, total in zip(labels.tolist(), np.bincount(codes, weight), strict=True):
            self.totals[label] = self.totals.get(label, 0.0) + float(total)
        self._classes = labels if self._classes is None else self._joined(labels, where)

    def _joined(self, labels: np.ndarray, where: str) -> np.ndarray:
        both = [self._classes, labels]
        is_text = [own.dtype.kind in "OUS" for own in both]  # type: ignore[union-attr]
        if is_text[0] != is_text[1]:
            raise ValueError(
                f"{where}: y has classes such as {labels.tolist()[0]!r}, and earlier blocks such as "
                f"{self.classes.tolist()[0]!r}; all must have one type"
            )
        return np.unique(np.concatenate(both))  # type: ignore[arg-type]

    @property
    def classes(self) -> np.ndarray:
        return np.empty(0) if self._classes is None else self._classes

    @property
    def class_totals(self) -> np.ndarray:
        """The weight of each class."""
        return np.array([self.totals[label] for label in self.classes.tolist()])

    def codes(self, y: np.ndarray) -> np.ndarray:
        found = np.minimum(np.searchsorted(self.classes, y), len(self.classes) - 1)
        if not (self.classes[found] == y).all():
            bad = y[self.classes[found] != y][0]
            raise ValueError(f"y has the class {bad!r}, which the first pass did not see; the source has changed")
        return found.astype(np.float64)

    def weigh(self, weight: np.ndarray | None, y: np.ndarray) -> np.ndarray | None:
        if self.of_class is None:
            return weight
        own = self.of_class[self.codes(y).astype(np.int64)]
        return own if weight is None else weight * own


class SourceFit:
    """The steps of a fit from a source, between which an estimator does what it does for rows in memory."""

    def __init__(
        self,
        estimator: RBREstimator,
        source: Source,
        cache_dir: str | os.PathLike | None,
        callback: Callable[[Progress], Any] | None,
    ):
        self.estimator, self.cache_dir = estimator, cache_dir
        self.reader = Reader(source, estimator.verbose, callback)
        self.first = _first_block(source)
        self.is_classifier = hasattr(estimator, "predict_proba")
        self.targets: Any = ClassTargets() if self.is_classifier else NumberTargets(get_loss(estimator.loss))

    @contextmanager
    def stored(self):
        """The store of the source, which is removed when the fit ends, unless it is in a cache."""
        store = self._cached()
        try:
            if store is None:
                store = self._filled()
            yield store
        finally:
            if store is not None:
                store.close()

    def _key(self) -> str:
        from rbr import __version__

        own = self.estimator
        binning = ("max_bins", "binning", "categorical_features", "random_state", "exclude")
        return fingerprint_of(
            {
                "source": self.reader.source.fingerprint(),
                "binning": {name: getattr(own, name) for name in binning},
                "classes": getattr(own, "class_weight", None) if self.is_classifier else False,
                "version": __version__,
            }
        )

    def _cached(self) -> Store | None:
        if self.cache_dir is None:
            return None
        store = Store.open(self.cache_dir, self._key(), self.estimator._binner())
        if store is not None:
            self.reader.n_rows = store.n_rows
            self._remember(store)
        return store

    def _remember(self, store: Store) -> None:
        """What the passes had told the targets when the store was made."""
        if self.is_classifier:
            facts = store.facts
            self.targets._classes = np.array(facts["classes"], dtype=None if facts["are_numbers"] else object)
            if facts["are_numbers"]:
                self.targets._classes = self.targets._classes.astype(np.dtype(facts["class_type"]))
            self.targets.totals = dict(zip(self.targets.classes.tolist(), facts["class_totals"], strict=True))
            self._set_class_weights()

    def _filled(self) -> Store:
        """The store after both passes."""
        weighs_classes = self.is_classifier and self.estimator.class_weight is not None
        if weighs_classes:
            for _, block in self.reader.blocks("classes"):
                self.targets.add(block.y, block.weight, block.where)
            self._set_class_weights()
        summary = first_pass(self.reader, self.estimator._binner(), self.targets, not weighs_classes)
        self._check_targets()
        return self._second_pass(summary)

    def _second_pass(self, summary: Summary) -> Store:
        key = "" if self.cache_dir is None else self._key()
        store = Store.create(self.reader.n_rows or 0, self.cache_dir, key)
        try:
            squares, total = second_pass(self.reader, store, summary, self.targets)
            facts: dict[str, Any] = {"squares": squares, "total": total}
            if self.is_classifier:
                classes = self.targets.classes
                facts |= {"classes": classes.tolist(), "class_totals": self.targets.class_totals.tolist()}
                facts |= {"are_numbers": classes.dtype.kind in "iubf", "class_type": classes.dtype.str}
            store.finish(facts)
        except BaseException:
            store.close()
            raise
        return store

    def _set_class_weights(self) -> None:
        if self.is_classifier and self.estimator.class_weight is not None:
            self._check_targets()
            self.targets.of_class = self.estimator._weights_of_classes(*self.by_class())

    def _check_targets(self) -> None:
        if self.is_classifier:
            self.estimator._target(self.targets.classes)  # raises if there is only one class

    def by_class(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(weights, y, classes) of one row for each class: what class weights depend on."""
        if not self.is_classifier:
            return np.empty(0), np.empty(0), np.empty(0)
        classes = self.targets.classes
        return self.targets.class_totals, np.arange(len(classes), dtype=np.float64), classes

    def loss_and_classes(self) -> tuple[Loss, np.ndarray | None]:
        if not self.is_classifier:
            return get_loss(self.estimator.loss), None
        _, loss, classes = self.estimator._target(self.targets.classes)
        return loss, classes

    def objective(self, store: Store, loss: Loss):
        """The objective over the parts of a store."""
        own = self.estimator
        return stored_objective(store, self.reader, loss, weights_kind=own.weights, n_jobs=own.n_jobs)

    def on_iteration(self) -> Callable[[Any], bool] | None:
        """Report the iterations of the solver to the user's callback."""
        callback, start = self.reader.callback, time.perf_counter()
        if callback is None:
            return None
        n_done = itertools.count(1)
        return lambda _: bool(callback(Progress("fit", next(n_done), None, time.perf_counter() - start)))

    def dispersion(self, store: Store) -> float | None:
        """The dispersion that class weights cause; None without them."""
        if not self.is_classifier or self.estimator.class_weight is None:
            return None
        return store.facts["squares"] / store.facts["total"]


class SourceMixin:
    """How an estimator fits to a source."""

    def _fit_source(self, given: Any, y: Any, sample_weight: Any, offset: Any) -> Any:
        own: Any = self
        own._check_parameters()
        if own.warm_start:
            raise ValueError("warm_start is True, and X is read in blocks; it must be False for them")
        if isinstance(given, Request):
            request = given
        else:
            request = Request(as_source(given, y, sample_weight=sample_weight, offset=offset))
        fit = SourceFit(own, request.source, request.cache_dir, request.callback)
        X, _ = own._read(fit.first.X, fit.first.y)
        limits = own._limits(X)
        with fit.stored() as store:
            loss, classes = fit.loss_and_classes()
            constraints = own._constraints(X, store.binner, *limits)
            objective = fit.objective(store, loss)
            counts, codes, _ = fit.by_class()
            training = Training(
                *(X, None, request.source.target_name, store.binner, constraints, classes, counts, codes),
                dispersion=fit.dispersion(store),
                on_iteration=fit.on_iteration(),
            )
            own._fit_objective(objective, training)
            own._had_offset = store.array("offset") is not None
        return self


def both_callbacks(one: Callable | None, other: Callable | None) -> Callable | None:
    """A callback that calls both, and stops a fit if either says so."""
    if one is None or other is None:
        return one or other
    return lambda iteration: any([one(iteration), other(iteration)])
