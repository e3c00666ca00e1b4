"""`DaskRBRRegressor` and `DaskRBRClassifier`: the estimators, for Dask arrays and dataframes.

They compose as those for rows in memory do: partitions -> sketches -> Binner -> codes on the workers -> objective over
parts -> the same solver -> AdditiveModel.
"""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from rbr._checks import check_real
from rbr._options import DEFAULTS
from rbr._parallel import resolve_n_jobs
from rbr.data.passes import Progress
from rbr.distributed import partitions as of_partitions
from rbr.distributed.executor import Cluster, DaskParts, require_dask
from rbr.distributed.partitions import Assembly, Partition, is_frame, partitions_of
from rbr.estimators import RBRClassifier, RBRRegressor
from rbr.estimators.base import all_or_nothing, with_callbacks
from rbr.estimators.inputs import Training, name_of
from rbr.estimators.sources import ClassTargets, NumberTargets
from rbr.losses import get_loss
from rbr.objective.parts import ROWS_PER_LEAF, LocalParts, cut_points, parts_objective
from rbr.objective.parts_run import Executor

# Values of numeric columns are kept beside the codes, for lines and cuts within bins, if they take no more than this
# share of the memory that the workers may use.
SHARE_FOR_VALUES = 0.25

# A part has at most this many rows, so that what is lost with a worker can be computed again in small pieces.
MOST_ROWS_PER_PART = 1 << 24

OWN_PARAMETERS = ("client", "timeout")


def _with_own_parameters(estimator: Any) -> Any:
    """Give `__init__` the signature of the estimator for memory with `client` and `timeout`."""
    local = estimator.__mro__[2]
    inherited = list(inspect.signature(local.__init__).parameters.values())
    signature = inspect.signature(estimator.__init__)
    own = [signature.parameters[name] for name in OWN_PARAMETERS]
    estimator.__init__.__signature__ = inspect.Signature([*inherited, *own])
    return estimator


class _DaskEstimator:
    """What both have in common: fitting on a cluster, and lazy predictions."""

    _local_class: type
    _rows_per_leaf = ROWS_PER_LEAF
    # Up to this many rows tables are averaged over all ways to cut, one after the other: a round trip for each would
    # take far longer than to send their codes to the client once.
    _most_rows_on_client = DEFAULTS.averaged_rows
    client: Any
    timeout: float

    def _client(self) -> Any:
        distributed, client = require_dask(), self.client
        if client is None:
            try:
                client = distributed.default_client()
            except ValueError:
                raise ValueError(
                    "client is None, and there is no Dask client yet; make one: distributed.Client()"
                ) from None
        if not isinstance(client, distributed.Client):
            raise TypeError(f"client is a {type(client).__name__}; it must be a distributed.Client or None")
        if client.status == "closed":
            raise ValueError("client is closed; it must be open: distributed.Client()")
        if client.asynchronous:
            raise ValueError("client is asynchronous; fit waits for answers and needs one with asynchronous=False")
        return client

    def __getstate__(self):
        """Without the client, which belongs to this process."""
        return {**super().__getstate__(), "client": None}  # type: ignore[misc]

    def __sklearn_clone__(self):
        """A clone shares the client, which cannot be copied."""
        other = BaseEstimator.__sklearn_clone__(copy.copy(self))
        other.client = self.client
        return other

    @all_or_nothing
    @with_callbacks
    def fit(self, X, y, sample_weight=None, offset=None, *, callback: Callable[[Progress], Any] | None = None):
        """Fit the model on the workers of the cluster.

        Parameters
        ----------
        X : Dask array or dataframe of shape (n_rows, n_features)
            Read twice; `persist` it if it fits in the memory of the workers.
        y : Dask array or series of shape (n_rows,)
        sample_weight : Dask array or series, optional
        offset : Dask array or series, optional
            Added to the score of each row, before the link.
        callback : callable, optional
            Called on the client with an `rbr.data.passes.Progress`, while partitions are read and in each iteration; if
            it returns True in an iteration, the fit stops there.
        """
        own: Any = self
        own._check_parameters()
        check_real(self.timeout, "timeout", 0.0, strict=True)
        if own.warm_start:
            raise ValueError("warm_start is True; it must be False for a fit on a cluster")
        given = partitions_of(X, y, sample_weight, offset)
        cluster = Cluster(self._client(), float(self.timeout))
        try:
            _DaskFit(own, cluster, given, callback).run(name_of(y))
        finally:
            cluster.close()
        own._had_offset = offset is not None
        return self

    def to_local(self) -> Any:
        """The ordinary estimator with the same parameters and model, which needs no cluster.

        Returns
        -------
        RBRRegressor or RBRClassifier
        """
        check_is_fitted(self, "model_")
        own: Any = self
        parameters = {name: value for name, value in own.get_params().items() if name not in OWN_PARAMETERS}
        local = self._local_class(**parameters)
        vars(local).update({name: value for name, value in vars(own).items() if name not in OWN_PARAMETERS})
        return local

    # Lazy answers --------------------------------------------------------------------------------------------

    def _lazy(self, X: Any, method: str, width: tuple[int, ...], dtype: Any, columns: Any, offset: Any, **options: Any):
        """A method of the local estimator over each partition; `width` is the shape of a row's answer."""
        from dask.base import is_dask_collection

        local = self.to_local()
        if not is_dask_collection(X):
            return getattr(local, method)(X, **({} if offset is None else {"offset": offset}), **options)
        call = functools.partial(_answer, estimator=local, method=method, columns=columns, options=options)
        if is_frame(X):
            empty = X._meta if hasattr(X, "_meta") else None
            meta = _as_frame(np.empty((0, *width), dtype=dtype), empty, columns)
            more = () if offset is None else (offset,)
            return X.map_partitions(call, *more, meta=meta, align_dataframes=False)
        X = X.rechunk({1: -1}) if len(X.chunks[1]) > 1 else X
        arrays = [X]
        if offset is not None:
            lengths = {0: X.chunks[0]} if not np.isnan(X.chunks[0]).any() else {}
            arrays.append(offset.rechunk(lengths)[:, None] if offset.ndim == 1 else offset.rechunk({**lengths, 1: -1}))
        import dask.array

        meta = np.empty((0,) * (1 + len(width)), dtype=dtype)
        if not width:
            return dask.array.map_blocks(call, *arrays, drop_axis=1, dtype=dtype, meta=meta)
        chunks = (X.chunks[0], *((n,) for n in width))
        new_axis = {"new_axis": list(range(2, 1 + len(width)))} if len(width) > 1 else {}
        return dask.array.map_blocks(call, *arrays, chunks=chunks, dtype=dtype, meta=meta, **new_axis)

    def explain(self, X, *, purified=False):
        """Contributions of the terms to each row's score, as a Dask collection.

        An array gives an array of shape (n_rows, n_terms), with more than two classes (n_rows, n_terms, n_classes). A
        dataframe gives one with the names of the terms as columns, with more than two classes a column for each term
        and class.
        """
        check_is_fitted(self, "model_")
        model = self.model_  # type: ignore[attr-defined]
        width = (len(model.terms),) if model.n_outputs == 1 else (len(model.terms), model.n_outputs)
        if is_frame(X):
            row = self._first_row(X)
            columns = list(model.explain(row, output="pandas", on_unseen="ignore").columns)
            return self._lazy(
                X, "explain", (len(columns),), np.float64, columns, None, purified=purified, output="pandas"
            )
        return self._lazy(X, "explain", width, np.float64, None, None, purified=purified, output="default")

    @staticmethod
    def _first_row(X):
        """A row with the columns of a frame, all missing: enough to ask for the names of an answer."""
        import pandas as pd

        return pd.DataFrame({name: pd.Series([None], dtype=dtype) for name, dtype in X._meta.dtypes.items()})

    def score(self, X, y, sample_weight=None, offset=None):
        """The score of rows in memory; see the estimator for these."""
        from dask.base import is_dask_collection

        if any(is_dask_collection(given) for given in (X, y, sample_weight, offset)):
            raise TypeError(
                f"{type(self).__name__} has no score over Dask collections, only over rows in memory; compute "
                f"predict(X) and compare"
            )
        return self.to_local().score(X, y, sample_weight=sample_weight, offset=offset)


def _answer(X: Any, offset: Any = None, *, estimator: Any, method: str, columns: Any, options: dict) -> Any:
    """On a worker: a method over one partition, as an array or a frame with its index."""
    if offset is not None:
        offset = np.asarray(offset)
        options = {**options, "offset": offset[:, 0] if offset.ndim == 2 and offset.shape[1] == 1 else offset}
    if not len(X):
        like = estimator.model_.n_outputs
        width = {"explain": () if columns is None else (len(columns),), "predict_proba": (max(like, 2),)}.get(
            method, ()
        )
        answer = np.empty((0, *width))
    else:
        answer = getattr(estimator, method)(X, **options)
    return _as_frame(np.asarray(answer), X, columns) if hasattr(X, "iloc") else answer


def _as_frame(answer: np.ndarray, X: Any, columns: Any) -> Any:
    import pandas as pd

    if answer.ndim == 1:
        return pd.Series(answer, index=X.index)
    return pd.DataFrame(answer, index=X.index, columns=columns)


class _DaskFit:
    """The steps of a fit on a cluster."""

    def __init__(self, estimator: Any, cluster: Cluster, given: list[Partition], callback: Callable | None):
        self.estimator, self.cluster, self.given, self.callback = estimator, cluster, given, callback
        self.is_classifier = hasattr(estimator, "predict_proba")
        self.names = [partition.name for partition in given]
        self.start = time.perf_counter()

    def run(self, target_name: str | None) -> None:
        own, workers = self.estimator, self.cluster.workers()
        targets = self._look()
        first, binner = self._sketch(targets)
        X, _ = own._read(first, np.array(targets.classes[:1]) if self.is_classifier else np.zeros(1))
        limits = own._limits(X)
        constraints = own._constraints(X, binner, *limits)
        parts: Executor
        parts, squares = on_workers, _ = self._parts(targets, binner, workers)
        if sum(self.n_rows) <= own._most_rows_on_client:
            n_threads = resolve_n_jobs(own.n_jobs)
            parts = LocalParts(self.cluster.gathered(on_workers.parts, on_workers.names), n_threads)
        loss, classes = self._loss_and_classes(targets)
        objective = parts_objective(parts, loss=loss)
        codes = np.arange(0 if classes is None else len(classes), dtype=np.float64)
        weighs = self.is_classifier and own.class_weight is not None
        counts = targets.class_totals if self.is_classifier else None
        training = Training(
            *(X, None, target_name, binner, constraints, classes, counts, codes),
            dispersion=squares / objective.n_total if weighs else None,
            on_iteration=self._on_iteration(),
        )
        own._fit_objective(objective, training)

    def _loss_and_classes(self, targets: Any):
        if not self.is_classifier:
            return targets.loss, None
        _, loss, classes = self.estimator._target(targets.classes)
        return loss, classes

    def _report(self, stage: str, n_done: int, n_all: int) -> None:
        progress = Progress(stage, n_done, n_all, time.perf_counter() - self.start)
        if self.callback is not None:
            self.callback(progress)
        if self.estimator.verbose:
            print(f"{stage}: {n_done} of {n_all} partitions, {progress.seconds:.1f} s", flush=True)

    def _gathered(self, stage: str, futures: list) -> list:
        n = len(futures)
        found = self.cluster.gathered(futures, self.names, lambda n_done: self._report(stage, n_done, n))
        self._report(stage, n, n)
        return found

    def _new_targets(self) -> Any:
        return ClassTargets() if self.is_classifier else NumberTargets(get_loss(self.estimator.loss))

    def _look(self) -> Any:
        """What y is; sets the number of rows of each partition."""
        import dask

        look = dask.delayed(of_partitions.look_at_targets, pure=False)
        lazy = [look(p.y, p.weight, p.offset, self._new_targets(), p.name) for p in self.given]
        looks = self._gathered("targets", self.cluster.compute(lazy))
        self.n_rows = [own.n_rows for own in looks]
        if not sum(self.n_rows):
            raise ValueError("the collections have no rows of positive weight; at least one is needed")
        shapes = {own.offset_shape: name for own, name in zip(looks, self.names, strict=True) if own.n_rows}
        if len(shapes) > 1:
            raise ValueError(
                f"{list(shapes.values())[-1]} has offsets of another shape than the others; all must agree"
            )
        targets = self._new_targets()
        if self.is_classifier:
            for own, name in zip(looks, self.names, strict=True):
                if own.n_rows:
                    targets.add(own.classes, own.class_totals, name)
            self.estimator._target(targets.classes)  # raises if there is only one class
            if self.estimator.class_weight is not None:
                codes = np.arange(len(targets.classes), dtype=np.float64)
                targets.of_class = self.estimator._weights_of_classes(targets.class_totals, codes, targets.classes)
        return targets

    def _sketch(self, targets: Any) -> tuple[Any, Any]:
        """(the first row of X, the fitted binner)."""
        import dask

        binner, n_rows = self.estimator._binner(), sum(self.n_rows)
        sketch = dask.delayed(of_partitions.Sketching(binner, n_rows, targets), pure=False)
        first_rows = np.cumsum([0, *self.n_rows]).tolist()
        pairs = zip(self.given, first_rows, strict=False)
        lazy = [sketch(p.X, p.y, p.weight, p.offset, first_row, p.name) for p, first_row in pairs]
        futures = self.cluster.compute(lazy)
        self._check_columns(futures)
        while len(futures) > 1:  # pairwise, on the workers
            pairs = zip(futures[::2], futures[1::2], strict=False)
            merged = [self.cluster.submit(of_partitions.merge_sketches, *pair, name="sketch") for pair in pairs]
            futures = merged + futures[len(futures) & ~1 :]
        whole = self.cluster.gathered(futures, ["the sketch of all partitions"])[0]
        return whole.first, whole.sketch.fit()

    def _check_columns(self, futures: list) -> None:
        """Wait for the sketches, which stay on the workers, and compare the columns of all partitions."""
        asked = [self.cluster.submit(of_partitions.kinds_of, future, name="look") for future in futures]
        found = self._gathered("sketches", asked)
        seen = [(kinds, name) for kinds, name in zip(found, self.names, strict=True) if kinds is not None]
        for kinds, name in seen[1:]:
            kinds.check(*seen[0][:1], name, seen[0][1])

    def _parts(self, targets: Any, binner: Any, workers: dict[str, int]) -> tuple[DaskParts, float]:
        """(parts on the workers, sum of w^2 / c over all rows; see `partitions.code`)."""
        import dask

        own, n_rows = self.estimator, sum(self.n_rows)
        numeric = np.flatnonzero(~(binner.is_categorical_ | binner._is_excluded)).tolist()
        columns = numeric if 8 * n_rows * len(numeric) <= SHARE_FOR_VALUES * self._memory() else []
        lazy_binner, code = dask.delayed(binner, pure=False), dask.delayed(of_partitions.code, pure=False)
        lazy = [code(p.X, p.y, p.weight, p.offset, lazy_binner, targets, columns, p.name) for p in self.given]
        coded = self.cluster.compute(lazy)
        squares = self._gathered("codes", [self.cluster.submit(_squares, future, name="look") for future in coded])
        places = [address for address, n_threads in workers.items() for _ in range(n_threads)]
        n_parts = len(places) * max(1, -(-n_rows // (len(places) * MOST_ROWS_PER_PART)))
        cuts = cut_points(n_rows, n_parts, own._rows_per_leaf)
        shared = self.cluster.submit(_same, binner, name="binner")
        parts, places_of_parts, names = [], [], []
        for k, (first, last) in enumerate(itertools.pairwise(cuts)):
            runs = of_partitions.runs_of(self.n_rows, first, last)
            rows = tuple((a, b) for _, a, b in runs)
            assembly = Assembly(own.weights, first // own._rows_per_leaf, own._rows_per_leaf, rows)
            place = places[k * len(places) // (len(cuts) - 1)]
            taken = [coded[number] for number, *_ in runs]
            parts.append(self.cluster.submit(assembly, shared, *taken, name="part", worker=place))
            places_of_parts.append(place)
            numbers = sorted({number for number, *_ in runs})
            names.append(f"partition {numbers[0]}" if len(numbers) == 1 else f"partition {numbers[0]} to {numbers[-1]}")
        return DaskParts(self.cluster, parts, places_of_parts, names), float(sum(squares))

    def _memory(self) -> float:
        workers = self.cluster.client.scheduler_info(n_workers=-1)["workers"].values()
        return float(sum(worker.get("memory_limit") or 0 for worker in workers))

    def _on_iteration(self) -> Callable | None:
        if self.callback is None:
            return None
        callback, n_done = self.callback, itertools.count(1)
        return lambda _: bool(callback(Progress("fit", next(n_done), None, time.perf_counter() - self.start)))


def _squares(coded: Any) -> float:
    return coded.squares


def _same(given: Any) -> Any:
    return given


@_with_own_parameters
class DaskRBRRegressor(_DaskEstimator, RBRRegressor):  # type: ignore[misc]
    """`RBRRegressor` for Dask arrays and dataframes, fitted on the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client, optional
        By default the current one.
    timeout : float, default 60
        Seconds to wait while the cluster has no worker, before the fit gives up.
    loss, max_features, max_segments, ...
        All other parameters are those of `rbr.RBRRegressor`. Up to 50,000 rows `n_bags` may be a number; with more
        rows it must be 0 or "auto".

    Notes
    -----
    The model is that of `RBRRegressor`, whatever the partitions and workers. Up to 200,000 rows the codes are sent to
    the client, which averages over all ways to cut them; with more rows they stay on the workers.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from rbr.distributed import DaskRBRRegressor
    >>> client = Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None)
    >>> X = da.random.default_rng(0).normal(size=(2000, 5), chunks=(500, 5))
    >>> y = 2.0 * (X[:, 3] > 0)
    >>> m = DaskRBRRegressor(max_features=1).fit(X, y)
    >>> m.selected_features_
    array([3])
    >>> m.predict(X)
    dask.array<_answer, shape=(2000,), dtype=float64, chunksize=(500,), chunktype=numpy.ndarray>
    >>> m.to_local().predict([[0, 0, 0, 1.5, 0]]).round(2)
    array([2.])
    >>> client.close()
    """

    _local_class = RBRRegressor

    def __init__(self, *values, client=None, timeout=60.0, **parameters):
        super().__init__(*values, **parameters)
        self.client, self.timeout = client, timeout

    def predict(self, X, offset=None):
        """The prediction in the units of y, as a Dask collection."""
        return self._lazy(X, "predict", (), np.float64, None, offset)


@_with_own_parameters
class DaskRBRClassifier(_DaskEstimator, RBRClassifier):  # type: ignore[misc]
    """`RBRClassifier` for Dask arrays and dataframes, fitted on the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client, optional
        By default the current one.
    timeout : float, default 60
        Seconds to wait while the cluster has no worker, before the fit gives up.
    class_weight, max_features, max_segments, ...
        All other parameters are those of `rbr.RBRClassifier`. Up to 50,000 rows `n_bags` may be a number; with more
        rows it must be 0 or "auto".

    Notes
    -----
    See `DaskRBRRegressor`. A class need not occur in every partition.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from rbr.distributed import DaskRBRClassifier
    >>> client = Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None)
    >>> X = da.random.default_rng(0).normal(size=(2000, 5), chunks=(500, 5))
    >>> m = DaskRBRClassifier(max_features=1).fit(X, X[:, 3] > 0)
    >>> m.predict_proba(X)
    dask.array<_answer, shape=(2000, 2), dtype=float64, chunksize=(500, 2), chunktype=numpy.ndarray>
    >>> m.to_local().predict([[0, 0, 0, 1.5, 0]])
    array([ True])
    >>> client.close()
    """

    _local_class = RBRClassifier

    def __init__(self, *values, client=None, timeout=60.0, **parameters):
        super().__init__(*values, **parameters)
        self.client, self.timeout = client, timeout

    def predict(self, X, offset=None):
        """The most likely class of each row, as a Dask collection."""
        check_is_fitted(self, "model_")
        return self._lazy(X, "predict", (), self.classes_.dtype, None, offset)

    def predict_proba(self, X, offset=None):
        """The probability of each class, in the order of `classes_`, as a Dask collection."""
        check_is_fitted(self, "model_")
        names = list(self.classes_)
        return self._lazy(X, "predict_proba", (len(names),), np.float64, names, offset)

    def decision_function(self, X, offset=None):
        """The raw score of each row, as a Dask collection."""
        check_is_fitted(self, "model_")
        width = () if len(self.classes_) == 2 else (len(self.classes_),)
        return self._lazy(X, "decision_function", width, np.float64, list(self.classes_) if width else None, offset)
