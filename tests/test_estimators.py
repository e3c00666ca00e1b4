"""The estimators: scikit-learn's whole suite, and what it does not ask for."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from rbr import RBRClassifier, RBRRegressor


@parametrize_with_checks([RBRRegressor(), RBRClassifier(), RBRRegressor(loss="huber", n_bags=3), RBRClassifier(n_bags=3)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_feature_importances_are_those_of_the_terms():
    X = np.random.default_rng(0).normal(size=(200, 4))
    m = RBRRegressor(max_features=1).fit(X, np.sign(X[:, 2]))
    assert np.flatnonzero(m.feature_importances_).tolist() == [2]
    assert m.feature_importances_[2] == m.terms_[0].importance
