"""The scikit-learn estimators `RBRRegressor` and `RBRClassifier`, fits from blocks, and the bootstrap of a fit."""

from rbr.estimators.bootstrap import Bootstrap
from rbr.estimators.classifier import RBRClassifier
from rbr.estimators.regressor import RBRRegressor
from rbr.estimators.sources import fit_from

__all__ = ["Bootstrap", "RBRClassifier", "RBRRegressor", "fit_from"]
