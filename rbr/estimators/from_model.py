"""A fitted estimator from a model alone, for example one that was loaded from a file."""

from __future__ import annotations

import numpy as np

from rbr.estimators.classifier import RBRClassifier
from rbr.estimators.regressor import RBRRegressor
from rbr.losses import Loss, get_loss
from rbr.model import AdditiveModel


def estimator_of(model: AdditiveModel) -> RBRRegressor | RBRClassifier:
    """See `AdditiveModel.to_estimator`."""
    if model.classes is not None:
        classifier = RBRClassifier()
        classifier.classes_ = model.classes_
        return _with_model(classifier, model)
    if model.loss.link in ("logit", "softmax"):
        raise ValueError(
            f"the model has the loss {model.loss.name!r} and no classes, so there is no estimator for it; "
            f"AdditiveModel.from_solution takes the labels of the classes"
        )
    return _with_model(RBRRegressor(loss=_parameter(model.loss)), model)


def _with_model(estimator, model: AdditiveModel):
    estimator.model_ = model
    estimator.n_features_in_ = model.n_features_in_
    # Of offsets a model knows only those that are exposures, beside a log link.
    estimator._had_offset = any(term.exposures.size > 0 for term in model.terms)
    if model.feature_names_in_ is not None:
        estimator.feature_names_in_ = np.array(model.feature_names_in_, dtype=object)
    return estimator


def _parameter(loss: Loss) -> str | Loss:
    """The loss as a user would give it: by name, unless it has parameters of its own."""
    return loss.name if get_loss(loss.name) == loss else loss
