"""`RBRRegressor`: numeric targets."""

from __future__ import annotations

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.exceptions import NotFittedError

from rbr._checks import check_level
from rbr.estimators.base import RBREstimator, all_or_nothing, with_callbacks
from rbr.estimators.intervals import Calibration
from rbr.estimators.parameters import with_parameters
from rbr.estimators.scores import check_rows, d2_score
from rbr.losses import get_loss


@with_parameters
class RBRRegressor(RegressorMixin, RBREstimator):
    """A sparse additive model for numeric targets: few features, each a table of few pieces.

    Parameters
    ----------
    loss : {"squared_error", "poisson", "gamma", "tweedie", "huber", "quantile"} or a loss of rbr.losses
        A loss object carries its own parameters, such as ``rbr.losses.Quantile(level=0.9)``.
    {parameters}
    Examples
    --------
    >>> import numpy as np
    >>> from rbr import RBRRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 20))
    >>> y = np.where(X[:, 3] > 0, 2.0, -1.0) + np.abs(X[:, 7]) + 0.1 * rng.normal(size=500)
    >>> m = RBRRegressor(max_features=2).fit(X, y)
    >>> m.selected_features_
    array([3, 7])
    >>> bool(m.score(X, y) > 0.97)
    True
    """

    def __init__(
        self,
        loss="squared_error",
        *,
        max_features=None,
        max_segments=128,
        min_rows=0,
        max_bins=255,
        shape="mixed",
        jump_cost="default",
        binning="regular",
        categorical_features="from_dtype",
        monotonic_cst=None,
        interactions=0,
        interaction_cst=None,
        heredity=False,
        max_rectangles=None,
        exclude=None,
        always_include=None,
        alpha=0.0,
        prior_rows=10.0,
        n_bags="auto",
        solver="auto",
        step_size="auto",
        max_iter=200,
        tol=1e-5,
        weights="counts",
        position="value",
        segmentation="exact",
        refine_cuts=True,
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
        on_unseen="warn",
    ):
        self.loss = loss
        self.max_features = max_features
        self.max_segments = max_segments
        self.min_rows = min_rows
        self.max_bins = max_bins
        self.shape = shape
        self.jump_cost = jump_cost
        self.binning = binning
        self.categorical_features = categorical_features
        self.monotonic_cst = monotonic_cst
        self.interactions = interactions
        self.interaction_cst = interaction_cst
        self.heredity = heredity
        self.max_rectangles = max_rectangles
        self.exclude = exclude
        self.always_include = always_include
        self.alpha = alpha
        self.prior_rows = prior_rows
        self.n_bags = n_bags
        self.solver = solver
        self.step_size = step_size
        self.max_iter = max_iter
        self.tol = tol
        self.weights = weights
        self.position = position
        self.segmentation = segmentation
        self.refine_cuts = refine_cuts
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start
        self.on_unseen = on_unseen

    @all_or_nothing
    @with_callbacks
    def fit(self, X, y=None, sample_weight=None, offset=None) -> RBRRegressor:
        """Fit the model.

        Parameters
        ----------
        X : array, frame or sparse matrix of shape (n_rows, n_features), or a source
            A source is read in blocks: a path to Parquet or CSV files, where y is the name of the target, or a
            `ParquetSource`, `CSVSource`, `ArraySource` or `BlockSource`, which bring their y. `rbr.fit_from` can also
            keep the binned rows for the next fit.
        y : array of shape (n_rows,)
        sample_weight : array of shape (n_rows,), optional
        offset : array of shape (n_rows,), optional
            Added to the score of each row, before the link.
        """
        return self._fit(X, y, sample_weight, offset)

    def _check_parameters(self):
        super()._check_parameters()
        if get_loss(self.loss).name in ("log_loss", "multinomial"):
            raise ValueError(f"loss is {self.loss!r}, a loss for classes; use RBRClassifier")

    def _target(self, y):
        return np.asarray(y, dtype=np.float64), get_loss(self.loss), None

    def _keep(self, model, solution, binner):
        super()._keep(model, solution, binner)
        vars(self).pop("calibration_", None)  # it belongs to the last fit

    def predict(self, X, offset=None) -> np.ndarray:
        """The prediction in the units of y."""
        X = self._check_X(X)
        return self.model_.predict(X, offset=offset, on_unseen=self.on_unseen)

    def calibrate(self, X, y, sample_weight=None, offset=None) -> RBRRegressor:
        """Learn from rows that the fit has not seen how far y lies from its prediction, for `predict_interval`.

        Split-conformal: if new rows come from where these come from, an interval of level 0.9 contains y with a
        probability of at least 0.9, however good or bad the model is. That holds on average over all rows, not for each
        kind of row. Rows of the fit would make intervals too narrow. A new fit forgets the calibration, and files do
        not hold it.

        Parameters
        ----------
        X : array, frame or sparse matrix of shape (n_rows, n_features)
        y : array of shape (n_rows,)
        sample_weight : array of shape (n_rows,), optional
            Weight 2 is the row twice.
        offset : array of shape (n_rows,), optional
            As in `fit`.

        Returns
        -------
        self
            With the attribute `calibration_`.

        Examples
        --------
        >>> import numpy as np
        >>> from rbr import RBRRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(3000, 4))
        >>> y = X[:, 0] + rng.normal(size=3000)
        >>> m = RBRRegressor().fit(X[:1000], y[:1000]).calibrate(X[1000:2000], y[1000:2000])
        >>> low, high = m.predict_interval(X[2000:], level=0.8).T
        >>> round(np.mean((low <= y[2000:]) & (y[2000:] <= high)), 2)
        np.float64(0.79)
        """
        X = self._check_X(X)
        y, _ = self._check_target(y, X)
        sample_weight, offset = check_rows(len(y), sample_weight, offset, **self._offset_facts())
        if not np.isfinite(y).all():
            raise ValueError(f"y holds {y[~np.isfinite(y)][0]}; all of it must be finite")
        prediction = self.model_.predict(X, offset=offset, on_unseen=self.on_unseen)
        self.calibration_ = Calibration.of(self.model_.loss, y, prediction, sample_weight)
        return self

    def predict_interval(self, X, level=0.9, offset=None) -> np.ndarray:
        """An interval that contains the y of a new row with a probability of at least `level`; see `calibrate`.

        Each side is missed with at most half of the rest. For counts and amounts the interval widens with the mean, by
        the spread that the loss expects, does not fall below 0, and begins there where 0 is a likely y. How sure the
        model is of its mean is another question, which `bootstrap(X, y).predict_interval(X)` answers.

        Parameters
        ----------
        X : array, frame or sparse matrix of shape (n_rows, n_features)
        level : float, default 0.9
        offset : array of shape (n_rows,), optional
            Added to the score of each row.

        Returns
        -------
        array of shape (n_rows, 2)
            The lower and the upper end; infinite where there are too few calibration rows: level 0.9 needs 19.
        """
        X = self._check_X(X)
        check_level(level)
        if not hasattr(self, "calibration_"):
            raise NotFittedError(
                "predict_interval needs calibrate(X, y) first, with rows that were not in the fit; for the "
                "uncertainty of the mean alone, see bootstrap"
            )
        return self.calibration_.interval(
            self.model_.loss, self.model_.predict(X, offset=offset, on_unseen=self.on_unseen), level
        )

    def score(self, X, y, sample_weight=None, offset=None) -> float:
        """D^2, the share of the deviance that the model explains, by its own loss: R^2 for squared error.

        The baseline is the best constant beside the same offsets on these rows; so with counts and log(exposure) as
        the offset it is a constant rate. 1 is perfect, 0 as good as that constant. The loss is that of the fit: for
        "poisson", "gamma" and "tweedie" this is D^2 of their deviance, for "quantile" of the pinball loss, for "huber"
        of the Huber loss with the delta of the fit.

        Parameters
        ----------
        X : array, frame or sparse matrix of shape (n_rows, n_features)
        y : array of shape (n_rows,)
        sample_weight : array of shape (n_rows,), optional
        offset : array of shape (n_rows,), optional
            Added to the score of each row, as in `fit`; a model that was fitted with offsets warns without them. To
            pass them through `cross_validate` or `GridSearchCV`, see scikit-learn's metadata routing:
            ``sklearn.set_config(enable_metadata_routing=True)`` and ``set_fit_request(offset=True)``,
            ``set_score_request(offset=True)``.

        Examples
        --------
        >>> import numpy as np
        >>> from rbr import RBRRegressor
        >>> rng = np.random.default_rng(0)
        >>> X, exposure = rng.normal(size=(2000, 3)), rng.uniform(0.1, 10, 2000)
        >>> y = rng.poisson(np.where(X[:, 0] > 0, 0.6, 0.2) * exposure)
        >>> m = RBRRegressor("poisson").fit(X, y, offset=np.log(exposure))
        >>> round(m.score(X, y, offset=np.log(exposure)), 2)
        0.32
        """
        X = self._check_X(X)
        y, _ = self._check_target(y, X)
        sample_weight, offset = check_rows(len(y), sample_weight, offset, **self._offset_facts())
        z = self.model_.decision_function(X, offset=offset, on_unseen=self.on_unseen)
        return d2_score(self.model_.loss, y, z, sample_weight, offset)
