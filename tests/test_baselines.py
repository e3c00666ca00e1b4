"""The linear baselines: scikit-learn's contract, planted features, best subsets, known solutions."""

import warnings
from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from rbr.baselines import IHTClassifier, IHTRegressor, keep_largest_rows
from rbr.losses import get_loss


@parametrize_with_checks([IHTRegressor(), IHTRegressor(max_features=2), IHTClassifier(), IHTClassifier(max_features=2)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def planted(n=200, p=100, s=8, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * rng.uniform(0.01, 100, p) + rng.normal(size=p) * 50
    support = np.sort(rng.choice(p, s, replace=False))
    coef = np.zeros(p)
    coef[support] = rng.choice([-1, 1], s) * rng.uniform(1, 2, s) / X[:, support].std(axis=0)
    y = X @ coef + 7.0
    return X, y + noise * y.std() * rng.normal(size=n), coef, support


@pytest.mark.parametrize("seed", range(5))
def test_planted_coefficients_are_found_exactly_without_noise(seed):
    X, y, coef, support = planted(seed=seed)
    model = IHTRegressor(max_features=8, tol=1e-10).fit(X, y)
    assert_allclose(model.support_, support)
    assert_allclose(model.coef_[support], coef[support], rtol=1e-7)
    assert np.count_nonzero(model.coef_) == 8
    assert_allclose(model.predict(X), y, rtol=0, atol=1e-6 * y.std())


def test_planted_support_is_found_with_noise():
    X, y, _, support = planted(n=400, noise=0.2)
    assert_allclose(IHTRegressor(max_features=8).fit(X, y).support_, support)


@pytest.mark.parametrize("seed", range(6))
def test_best_subset_of_few_features(seed):
    """On nearly orthogonal features the fixed point is the best of all subsets."""
    X, y, _, _ = planted(n=100, p=7, s=3, noise=0.3, seed=seed)
    model = IHTRegressor(max_features=3, tol=1e-10).fit(X, y)

    def residual_sum(columns):
        design = np.column_stack([np.ones(100), X[:, columns]])
        return np.sum((y - design @ np.linalg.lstsq(design, y)[0]) ** 2)

    best = min(combinations(range(7), 3), key=residual_sum)
    assert tuple(model.support_) == best
    assert np.sum((y - model.predict(X)) ** 2) == pytest.approx(residual_sum(best), rel=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_correlated_features_end_in_a_fixed_point_no_worse_than_the_first_support(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 10)) @ (np.eye(10) + 0.7)
    y = X[:, 0] - X[:, 1] + 0.1 * rng.normal(size=60)
    model = IHTRegressor(max_features=3, max_iter=20_000, tol=1e-9).fit(X, y)
    design = np.column_stack([np.ones(60), X[:, model.support_]])
    refit = design @ np.linalg.lstsq(design, y)[0]
    # It stopped at the least-squares fit on its support.
    assert np.sum((y - model.predict(X)) ** 2) == pytest.approx(np.sum((y - refit) ** 2), rel=1e-4)


def test_all_features_are_least_squares():
    X, y, _, _ = planted(n=200, p=10, s=10, noise=0.5)
    design = np.column_stack([np.ones(200), X])
    solution = np.linalg.lstsq(design, y)[0]
    model = IHTRegressor(tol=1e-12).fit(X, y)
    assert_allclose(np.r_[model.intercept_, model.coef_], solution, rtol=1e-6)


def classes(n_classes, n=600, p=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * rng.uniform(0.1, 10, p) + 3.0
    scores = ((X - 3.0) / X.std(axis=0)) @ rng.normal(size=(p, n_classes)) + rng.gumbel(size=(n, n_classes))
    return X, np.array(["a", "b", "c", "d"])[scores.argmax(axis=1)]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_all_features_are_logistic_regression(n_classes):
    X, y = classes(n_classes)
    sample_weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    expected = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(Z, y, sample_weight)
    model = IHTClassifier(tol=1e-9, max_iter=5000).fit(X, y, sample_weight)
    assert_allclose(model.predict_proba(X), expected.predict_proba(Z), atol=1e-5)
    expected_coef = expected.coef_ - expected.coef_.mean(axis=0) * (n_classes > 2)
    assert_allclose(model.coef_ * X.std(axis=0), expected_coef, atol=1e-4)
    assert model.coef_.shape == expected.coef_.shape and model.intercept_.shape == expected.intercept_.shape


def test_best_subset_of_a_logistic_model():
    X, y = classes(2, p=5, seed=3)
    Z, codes = (X - X.mean(axis=0)) / X.std(axis=0), (y == "b").astype(float)
    loss, v = get_loss("log_loss"), np.full(len(y), 1 / len(y))

    def best_value(columns):
        design = np.column_stack([np.ones(len(y)), Z[:, columns]])

        def value_and_gradient(b):
            return loss.value(codes, design @ b, v), -design.T @ (v * loss.residual(codes, design @ b))

        return minimize(value_and_gradient, np.zeros(3), jac=True, tol=1e-10).fun

    best = min(combinations(range(5), 2), key=best_value)
    model = IHTClassifier(max_features=2, tol=1e-9).fit(X, y)
    assert tuple(model.support_) == best
    assert loss.value(codes, model.decision_function(X), v) == pytest.approx(best_value(best), rel=1e-9)


def test_a_feature_is_kept_or_dropped_for_all_classes_together():
    X, y = classes(4, p=6)
    model = IHTClassifier(max_features=2).fit(X, y)
    used = model.coef_ != 0
    assert used.all(axis=0).sum() == 2 and used.any(axis=0).sum() == 2
    assert_allclose(np.flatnonzero(used[0]), model.support_)
    assert_allclose(model.coef_.sum(axis=0), 0.0, atol=1e-12)
    assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


@pytest.mark.parametrize("factor", [1e-100, 1e100])
def test_units_do_not_matter(factor):
    X, y, _, support = planted(n=150, p=20, s=3, noise=0.1)
    plain, scaled = IHTRegressor(max_features=3).fit(X, y), IHTRegressor(max_features=3).fit(X * factor, y)
    assert_allclose(scaled.support_, support)
    assert_allclose(scaled.coef_ * factor, plain.coef_, rtol=1e-6)
    rescaled = IHTRegressor(max_features=3).fit(X, y * factor)
    assert_allclose(rescaled.coef_ / factor, plain.coef_, rtol=1e-6)


def test_constant_features_and_constant_targets():
    X, y, _, _ = planted(n=50, p=5, s=2)
    X[:, 3] = 1234.5678
    assert 3 not in IHTRegressor().fit(X, y).support_
    flat = IHTRegressor().fit(X, np.full(50, 0.1))
    assert flat.support_.size == 0
    assert_allclose(flat.predict(X), 0.1, rtol=1e-14)


def test_keep_largest_rows_prefers_the_first_of_equal_rows():
    assert_allclose(keep_largest_rows(np.ones((4, 2)), 2), [[1, 1], [1, 1], [0, 0], [0, 0]])
    assert_allclose(keep_largest_rows(np.ones((2, 1)), 0), 0.0)


def test_it_says_so_when_it_has_not_converged_and_only_then():
    X, y, _, _ = planted(n=100, p=30, s=4, noise=0.5)
    with pytest.warns(ConvergenceWarning, match="IHTRegressor has not converged in max_iter=2 steps"):
        IHTRegressor(max_features=4, max_iter=2, tol=1e-12).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert IHTRegressor(max_features=4).fit(X, y).n_iter_ < 1000


@pytest.mark.parametrize("Estimator", [IHTRegressor, IHTClassifier])
@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"max_features": 0}, "max_features is 0; it must be at least 1"),
        ({"max_features": 1.5}, "max_features is 1.5; it must be an integer"),
        ({"max_iter": 0}, "max_iter is 0; it must be at least 1"),
        ({"tol": -1.0}, "tol is -1.0; it must be finite and at least 0"),
    ],
)
def test_parameters_out_of_range(Estimator, params, message):
    X, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    with pytest.raises(ValueError, match=message):
        Estimator(**params).fit(X, y)


@pytest.mark.parametrize("Estimator", [IHTRegressor, IHTClassifier])
def test_weights_out_of_range(Estimator):
    X, y = np.random.default_rng(0).normal(size=(4, 3)), np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match=r"sample_weight\[1\] is -1.0; all of sample_weight must be at least 0"):
        Estimator().fit(X, y, [1, -1, 1, 1])
    with pytest.raises(ValueError, match="sample_weight is zero in every row"):
        Estimator().fit(X, y, np.zeros(4))
    with pytest.raises(ValueError, match=r"sample_weight has shape \(3,\); it must be a vector of length 4"):
        Estimator().fit(X, y, np.ones(3))


def test_one_class():
    X = np.random.default_rng(0).normal(size=(4, 3))
    with pytest.raises(ValueError, match="y has only one class, .*'a'.*, in the rows that count"):
        IHTClassifier().fit(X, ["a", "a", "a", "b"], [1, 1, 1, 0])
