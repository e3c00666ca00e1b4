"""The scikit-learn estimators `RBRRegressor` and `RBRClassifier`, and the bootstrap of a fitted one."""

from rbr.estimators.bootstrap import Bootstrap
from rbr.estimators.classifier import RBRClassifier
from rbr.estimators.regressor import RBRRegressor

__all__ = ["Bootstrap", "RBRClassifier", "RBRRegressor"]
