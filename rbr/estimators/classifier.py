"""`RBRClassifier`: two or more classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from rbr._checks import check_real
from rbr.estimators.base import RBREstimator, all_or_nothing, with_callbacks
from rbr.estimators.inputs import classes_and_codes
from rbr.estimators.parameters import with_parameters
from rbr.estimators.scores import check_rows
from rbr.losses import get_loss


@with_parameters
class RBRClassifier(ClassifierMixin, RBREstimator):
    """A sparse additive model for two or more classes: few features, each a table of few pieces.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        Weights of the classes, multiplied with sample_weight. "balanced" gives all classes the same total weight.
        Unlike a sample weight, a class weight does not stand for repeated rows: the jump cost is raised by as much as
        uneven weights amplify the noise.
    {parameters}
    Examples
    --------
    >>> import numpy as np
    >>> from rbr import RBRClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 20))
    >>> y = np.where(np.abs(X[:, 3]) + X[:, 7] + 0.3 * rng.normal(size=1000) > 0.7, "yes", "no")
    >>> m = RBRClassifier().fit(X, y)
    >>> m.selected_features_
    array([3, 7])
    >>> m.predict(X[:3]).shape, m.predict_proba(X[:3]).shape
    ((3,), (3, 2))
    """

    def __init__(
        self,
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
        alpha=1e-4,
        prior_rows=10.0,
        n_bags="auto",
        class_weight=None,
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
        self.class_weight = class_weight
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
    def fit(self, X, y=None, sample_weight=None, offset=None) -> RBRClassifier:
        """Fit the model.

        Parameters
        ----------
        X : array, frame or sparse matrix of shape (n_rows, n_features), or a source
            A source is read in blocks: a path to Parquet or CSV files, where y is the name of the target, or a
            `ParquetSource`, `CSVSource`, `ArraySource` or `BlockSource`, which bring their y. `rbr.fit_from` can also
            keep the binned rows for the next fit.
        y : array of class labels, shape (n_rows,)
        sample_weight : array of shape (n_rows,), optional
        offset : array of shape (n_rows,), with more than two classes (n_rows, n_classes), optional
            Added to the score of each row.
        """
        return self._fit(X, y, sample_weight, offset)

    def _target(self, y):
        y = np.asarray(y)
        if y.dtype.kind not in "iub":  # integers are always valid labels, and the check would sort them
            check_classification_targets(y)
        classes, codes = classes_and_codes(y)
        if len(classes) < 2:
            raise ValueError(
                f"y has only one class, {classes.tolist()[0]!r}: This classifier needs samples of at least 2 classes"
            )
        return codes, get_loss("log_loss" if len(classes) == 2 else "multinomial"), classes

    def _check_parameters(self):
        super()._check_parameters()
        given = self.class_weight
        if isinstance(given, Mapping):
            for label, weight in given.items():
                check_real(weight, f"class_weight[{label!r}]", 0.0)
        elif given is not None and not (isinstance(given, str) and given == "balanced"):
            raise ValueError(f"class_weight is {given!r}; it must be a dict of classes, 'balanced' or None")

    def _weigh_classes(self, sample_weight, y, classes):
        if self.class_weight is None:
            return sample_weight
        sample_weight = np.ones(len(y)) if sample_weight is None else sample_weight
        return sample_weight * self._weights_of_classes(sample_weight, y, classes)[y.astype(np.int64)]

    def _weights_of_classes(self, sample_weight, y, classes) -> np.ndarray:
        if self.class_weight == "balanced":
            # Weights are summed, so that a row of weight 2 counts as two rows here too.
            totals = np.bincount(y.astype(np.int64), sample_weight, minlength=len(classes))
            return totals.sum() / len(classes) / np.where(totals > 0, totals, 1.0)
        return compute_sample_weight(self.class_weight, classes)

    def _without_class_weights(self, model, sample_weight, y, classes):
        """The model whose terms report the rows of each class as they are, not as class weights make them count."""
        if self.class_weight is None:
            return model
        of_class = self._weights_of_classes(sample_weight, y, classes)
        scale = np.divide(1.0, of_class, out=np.zeros_like(of_class), where=of_class > 0)
        terms = tuple(replace(term, target_sums=term.target_sums * scale) for term in model.terms)
        return replace(model, terms=terms)

    def _keep(self, model, solution, binner):
        super()._keep(model, solution, binner)
        self.classes_ = model.classes_

    def decision_function(self, X, offset=None) -> np.ndarray:
        """The score: the log-odds of the second of two classes, or one column per class."""
        X = self._check_X(X)
        return self.model_.decision_function(X, offset=offset, on_unseen=self.on_unseen)

    def predict_proba(self, X, offset=None) -> np.ndarray:
        """Probability of each class, in the order of `classes_`."""
        X = self._check_X(X)
        return self.model_.predict_proba(X, offset=offset, on_unseen=self.on_unseen)

    def predict_log_proba(self, X, offset=None) -> np.ndarray:
        """Logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X, offset=offset))

    def predict(self, X, offset=None) -> np.ndarray:
        """The most probable class."""
        X = self._check_X(X)
        return self.model_.predict(X, offset=offset, on_unseen=self.on_unseen)

    def scorecard(self, points=(600, 50, 20), X=None, y=None, *, odds_of=None, sample_weight=None, offset=None):
        """A scorecard in whole points, for two classes, and what rounding costs; see `AdditiveModel.scorecard`.

        Examples
        --------
        >>> import numpy as np
        >>> from rbr import RBRClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(2000, 3))
        >>> y = X[:, 0] + (X[:, 1] > 0) + rng.logistic(size=2000) > 0
        >>> m = RBRClassifier(shape="constant").fit(X, y)
        >>> card = m.scorecard((600, 50, 20), X, y)
        >>> frame = card.to_frame()
        >>> int(frame["points"][0]), card.points(X[:3]).dtype
        (501, dtype('int64'))
        """
        check_is_fitted(self, "model_")
        return self.model_.scorecard(points, X, y, odds_of=odds_of, sample_weight=sample_weight, offset=offset)

    def score(self, X, y, sample_weight=None, offset=None) -> float:
        """The share of the rows, by sample weight, whose class is predicted.

        Parameters
        ----------
        X : array, frame or sparse matrix of shape (n_rows, n_features)
        y : array of class labels, shape (n_rows,)
        sample_weight : array of shape (n_rows,), optional
        offset : array of shape (n_rows,), with more than two classes (n_rows, n_classes), optional
            Added to the score of each row, as in `fit`; a model that was fitted with offsets warns without them.
        """
        X = self._check_X(X)
        sample_weight, offset = check_rows(X.shape[0], sample_weight, offset, **self._offset_facts())
        return float(
            accuracy_score(
                y, self.model_.predict(X, offset=offset, on_unseen=self.on_unseen), sample_weight=sample_weight
            )
        )
