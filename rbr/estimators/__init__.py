"""The library as a scikit-learn user knows it: `RBRRegressor` and `RBRClassifier`."""

from rbr.estimators.bootstrap import Bootstrap
from rbr.estimators.classifier import RBRClassifier
from rbr.estimators.regressor import RBRRegressor

__all__ = ["Bootstrap", "RBRClassifier", "RBRRegressor"]
