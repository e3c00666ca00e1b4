"""The estimators: scikit-learn's whole suite, and what it does not ask for."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from rbr import RBRClassifier, RBRRegressor


@parametrize_with_checks([RBRRegressor(), RBRClassifier(), RBRRegressor(loss="huber", n_bags=3), RBRClassifier(n_bags=3)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_contract(estimator, check):
    check(estimator)
