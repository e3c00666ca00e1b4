"""D^2, the score of a regressor: how much of the deviance a model explains.

The deviance of a row is how far its loss lies above the least that any score can give it, so for squared error D^2 is
R^2, and for counts and amounts it is scikit-learn's d2_tweedie_score. The model is compared with the best constant
beside the same offsets on the scored rows: with log(exposure) as the offset, a constant rate.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning

from rbr._checks import check_sample_weight
from rbr.estimators.inputs import check_offset
from rbr.losses import Loss

MISSING_OFFSET = (
    "the model was fitted with an offset, and these rows have none: their predictions are those of offset 0. Pass "
    "offset; through cross_validate or GridSearchCV, with sklearn.set_config(enable_metadata_routing=True), "
    "set_fit_request(offset=True) and set_score_request(offset=True)"
)


def check_rows(
    n_rows: int, sample_weight, offset, *, n_outputs: int, had_offset: bool
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """(sample_weight, offset) of rows with a known target; a model that was fitted with offsets expects them here."""
    if sample_weight is not None:
        sample_weight = check_sample_weight(sample_weight, n_rows)
    if offset is not None:
        offset = check_offset(offset, n_rows, n_outputs)
    elif had_offset:
        warnings.warn(MISSING_OFFSET, UserWarning, stacklevel=3)
    return sample_weight, offset


def d2_score(
    loss: Loss, y: np.ndarray, z: np.ndarray, sample_weight: np.ndarray | None, offset: np.ndarray | None
) -> float:
    """1 - deviance of the scores z / deviance of the best constant + offset; z contains the offset.

    As in scikit-learn's r2_score, NaN with a warning if there are fewer than two rows; and where a constant fits
    exactly, 1 if the model does too, else 0.
    """
    y = _in_domain(loss, y)
    if len(y) < 2:
        warnings.warn("D^2 is not well-defined with less than two rows.", UndefinedMetricWarning, stacklevel=3)
        return float("nan")
    v = np.ones(len(y)) if sample_weight is None else sample_weight
    v = v / v.sum()
    constant = loss.least_deviance_constant(y, v, offset)
    baseline = np.full(len(y), constant) if offset is None else constant + offset
    own, of_constant = (_mean(loss.deviances(y, scores), v) for scores in (z, baseline))
    rounding = 1e-14 * _mean(np.abs(loss.values(y, baseline)), v)
    if of_constant <= rounding:
        return 1.0 if own <= rounding else 0.0
    return 1.0 - own / of_constant


def _in_domain(loss: Loss, y: np.ndarray) -> np.ndarray:
    """y as the loss computes with it. Rows to be scored may all have the count 0, rows of a fit may not."""
    return loss.validate(np.append(y, 1.0))[:-1] if loss.link == "log" else loss.validate(y)


def _mean(values: np.ndarray, v: np.ndarray) -> float:
    used = v > 0  # an infinite deviance of a row without weight is nothing
    return float(values[used] @ v[used])
