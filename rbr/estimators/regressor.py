"""`RBRRegressor`: numeric targets."""

from __future__ import annotations

import numpy as np
from sklearn.base import RegressorMixin

from rbr.estimators.base import RBREstimator, all_or_nothing, with_callbacks, with_parameters
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
        max_segments=32,
        min_rows=0,
        max_bins=255,
        shape="mixed",
        jump_cost="default",
        binning="regular",
        categorical_features="from_dtype",
        monotonic_cst=None,
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

    @all_or_nothing
    @with_callbacks
    def fit(self, X, y, sample_weight=None, offset=None) -> RBRRegressor:
        """Fit the model.

        Parameters
        ----------
        X : array, frame or sparse matrix of shape (n_rows, n_features)
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

    def predict(self, X, offset=None) -> np.ndarray:
        """The prediction in the units of y."""
        X = self._check_X(X)
        return self.model_.predict(X, offset=offset)
