"""Iterative hard thresholding on raw features: the linear model that the paper compares with.

The features are standardised (weighted mean 0, variance 1; a constant feature is left out), and

    beta <- H_s(beta + mu g),     g = sum_i v_i x_i r_i,     r = -dloss/dz,

where H_s keeps the s features with the largest coefficients; the coefficients of a feature over classes are one group.
The intercept is refitted at every step. The step is that of Blumensath and Davies, "Normalised iterative hard
thresholding" (2010): mu = ||g_S||^2 / (L ||X g_S||^2) on the current support S, L the curvature bound of the loss; if
the support changes, mu is halved until mu <= (1 - c) ||d||^2 / (L ||X d||^2) for the move d. For squared error (L = 1)
that is their step, the exact line search; for classes it is the exact line search on the parabola above the loss.
Either way the objective never rises.
"""

from __future__ import annotations

import warnings
from typing import cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from rbr._checks import check_int, check_nonnegative, check_real
from rbr.losses import Loss, get_loss

__all__ = ["IHTClassifier", "IHTRegressor"]

# c and the shrinking factor of Blumensath and Davies (2010).
SAFEGUARD = 0.01
SHRINKAGE = 0.5


def keep_largest_rows(coef: np.ndarray, n_kept: int) -> np.ndarray:
    """H_s: keep the n_kept rows with the largest norms and set the others to zero; the first of equal rows is kept.

    >>> keep_largest_rows(np.array([[1.0], [-3.0], [1.0]]), 2).ravel()
    array([ 1., -3.,  0.])
    """
    out = np.zeros_like(coef)
    kept = np.argsort(-np.einsum("jk,jk->j", coef, coef), kind="stable")[:n_kept]
    out[kept] = coef[kept]
    return out


def _iterate(X, y, v, loss: Loss, n_outputs: int, n_kept: int, max_iter: int, tol: float):
    """Normalised IHT on standardised X: coef (p, n_outputs), intercept, n_iter, the last relative change."""
    coef = np.zeros((X.shape[1], n_outputs))
    fitted = np.zeros((X.shape[0], n_outputs))
    intercept = loss.constant_start(y, v)
    bound = cast(float, loss.curvature_bound())  # the losses below have one

    def squared_length(columns):
        return float(v @ np.einsum("ik,ik->i", columns, columns))

    for n_iter in range(1, max_iter + 1):
        scores = fitted if n_outputs > 1 else fitted[:, 0]
        intercept = loss.refit_intercept(y, scores, v, intercept)
        residual = loss.residual(y, scores + intercept).reshape(fitted.shape)
        ascent = X.T @ (residual * v[:, None])
        is_used = np.any(coef, axis=1)
        # If the support has room left, the features that would enter belong to S.
        on_support = ascent * is_used[:, None]
        on_support += keep_largest_rows(ascent * ~is_used[:, None], n_kept - int(is_used.sum()))
        length = squared_length(X @ on_support)
        # If the gradient on S is zero, begin with the step 1 / bound, since columns have length 1.
        step = (float(np.sum(on_support**2)) / length if length > 0 else 1.0) / bound
        while True:
            move = keep_largest_rows(coef + step * ascent, n_kept) - coef
            moved = X @ move
            squared_move = float(np.sum(move**2))
            keeps_support = not (move.any(axis=1) & ~on_support.any(axis=1)).any()
            if keeps_support or step * bound * squared_length(moved) <= (1 - SAFEGUARD) * squared_move:
                break
            step *= SHRINKAGE
        coef = keep_largest_rows(coef + step * ascent, n_kept)
        fitted += moved
        change = np.sqrt(squared_move) / max(np.sqrt(float(np.sum(coef**2))), 1e-12)
        if change <= tol or n_iter == max_iter:
            break
    intercept = loss.refit_intercept(y, fitted if n_outputs > 1 else fitted[:, 0], v, intercept)
    return coef, intercept, n_iter, change


class _IHT(BaseEstimator):
    """The base class of both estimators: fits on standardised features, and returns coefficients in raw units."""

    def __init__(self, max_features=None, *, max_iter=1000, tol=1e-6):
        self.max_features = max_features
        self.max_iter = max_iter
        self.tol = tol

    def _fit_standardized(self, X, y, sample_weight, loss, n_outputs):
        """Fit coef (p, n_outputs) and intercept, both in the units of X and of the scores."""
        n_features = X.shape[1]
        limit = n_features if self.max_features is None else check_int(self.max_features, "max_features", 1)
        max_iter = check_int(self.max_iter, "max_iter", 1)
        tol = check_real(self.tol, "tol", 0.0)
        v = sample_weight / sample_weight.sum()
        center = v @ X
        Z = X - center
        largest = np.abs(X).max(axis=0)
        # Divided by the largest value before squaring, so that neither 1e200 overflows nor 1e-200 underflows.
        spread = np.sqrt(v @ (Z / np.where(largest > 0, largest, 1.0)) ** 2)
        is_constant = spread <= 1e-12
        scale = np.where(is_constant, 1.0, spread * largest)
        Z /= scale
        Z[:, is_constant] = 0.0
        coef, intercept, self.n_iter_, change = _iterate(
            Z, y, v, loss, n_outputs, min(limit, n_features), max_iter, tol
        )
        if change > tol:
            warnings.warn(
                f"{type(self).__name__} has not converged in max_iter={max_iter} steps: the last one changed "
                f"the coefficients by {change:.1e} of their norm, and tol is {tol:.1e}",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.support_ = np.flatnonzero(coef.any(axis=1))
        coef = coef / scale[:, None]
        return coef, intercept - center @ coef

    def _rows_that_count(self, X, sample_weight):
        """The weights as floats, and the rows of positive weight."""
        if sample_weight is None:
            return np.ones(X.shape[0]), slice(None)
        weights = check_nonnegative(sample_weight, X.shape[0], "sample_weight")
        if not weights.any():
            raise ValueError("sample_weight is zero in every row; at least one must be positive")
        return weights, weights > 0


class IHTRegressor(RegressorMixin, _IHT):
    """Sparse linear regression by iterative hard thresholding on standardised features.

    Parameters
    ----------
    max_features : int or None, default=None
        s_G, the number of features that may have a coefficient; None: all.
    max_iter : int, default=1000
        Largest number of steps.
    tol : float, default=1e-6
        The fit has converged when a step changes the coefficients (of standardised features) by at most this
        share of their norm.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        In the units of X and y.
    intercept_ : float
    support_ : array of int
        The features with a coefficient, ascending.
    n_iter_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.baselines import IHTRegressor
    >>> X = np.random.default_rng(0).normal(size=(100, 20))
    >>> model = IHTRegressor(max_features=2).fit(X, 3 * X[:, 4] - 2 * X[:, 11] + 1)
    >>> model.support_
    array([ 4, 11])
    >>> model.coef_[model.support_].round(3), round(float(model.intercept_), 3)
    (array([ 3., -2.]), 1.0)
    """

    def fit(self, X, y, sample_weight=None):
        """Fit to rows X and targets y; an integer weight stands for repeated rows."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=1)
        weights, rows = self._rows_that_count(X, sample_weight)
        X, weights = X[rows], weights[rows]
        loss = get_loss("squared_error")
        y = loss.validate(y[rows])
        # y is centred and scaled, so that the tolerance means the same for any y.
        center = np.average(y, weights=weights)
        scale = np.abs(y - center).max()
        if scale <= 1e-14 * abs(center):
            scale, y = 1.0, np.full_like(y, center)
        coef, intercept = self._fit_standardized(X, (y - center) / scale, weights, loss, 1)
        self.coef_ = coef[:, 0] * scale
        self.intercept_ = float(intercept[0] * scale + center)
        return self

    def predict(self, X):
        """The predicted target of each row."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return X @ self.coef_ + self.intercept_


class IHTClassifier(ClassifierMixin, _IHT):
    """Sparse linear classification by iterative hard thresholding on standardised features.

    Two classes: logistic loss; more: multinomial loss, where a feature's coefficients over classes are one
    group that is kept or dropped as a whole. There is no penalty: on separable classes the coefficients grow
    until max_iter is reached, with a ConvergenceWarning.

    Parameters
    ----------
    max_features : int or None, default=None
        s_G, the number of features that may have coefficients; None: all.
    max_iter : int, default=1000
        Largest number of steps.
    tol : float, default=1e-6
        The fit has converged when a step changes the coefficients (of standardised features) by at most this
        share of their norm.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    coef_ : array of shape (1, n_features) or (n_classes, n_features)
        In the units of X; with more than two classes they sum to zero over the classes.
    intercept_ : array of shape (1,) or (n_classes,)
    support_ : array of int
        The features with a coefficient, ascending.
    n_iter_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.baselines import IHTClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 20))
    >>> y = np.where(2 * X[:, 4] - 2 * X[:, 11] + rng.logistic(size=500) > 0, "yes", "no")
    >>> IHTClassifier(max_features=2).fit(X, y).support_
    array([ 4, 11])
    """

    def fit(self, X, y, sample_weight=None):
        """Fit to rows X and labels y; an integer weight stands for repeated rows."""
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=1)
        check_classification_targets(y)
        weights, rows = self._rows_that_count(X, sample_weight)
        X, y, weights = X[rows], y[rows], weights[rows]
        self.classes_, codes = np.unique(y, return_inverse=True)
        n_classes = self.classes_.shape[0]
        if n_classes < 2:
            raise ValueError(f"y has only one class, {self.classes_[0]!r}, in the rows that count; two are needed")
        loss = get_loss("log_loss") if n_classes == 2 else get_loss("multinomial", n_classes=n_classes)
        coef, intercept = self._fit_standardized(
            X, loss.validate(codes), weights, loss, 1 if n_classes == 2 else n_classes
        )
        self.coef_ = np.ascontiguousarray(coef.T)
        self.intercept_ = np.atleast_1d(intercept)
        return self

    def decision_function(self, X):
        """Raw scores: (n,) log-odds of the second class, or (n, n_classes)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        scores = X @ self.coef_.T + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X):
        """The probability of each class, in the order of `classes_`."""
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return get_loss("multinomial").inverse_link(scores)
        second = get_loss("log_loss").inverse_link(scores)
        return np.column_stack([1.0 - second, second])

    def predict(self, X):
        """The most probable class of each row."""
        scores = self.decision_function(X)
        codes = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.intp)
        return self.classes_[codes]
