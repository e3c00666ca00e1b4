"""Prediction intervals by split-conformal calibration.

Rows that the fit has not seen show how far y lies from its prediction, in units of the spread that the loss expects
there: 1 for losses of y - z, and mean^(power / 2) for counts and amounts, so that an interval widens with the mean. If
a new row is exchangeable with the n calibration rows, its rank among the n + 1 deviations is uniform; so between the
floor((n + 1) a / 2)-th and the ceil((n + 1) (1 - a / 2))-th of them it lies with a probability of at least 1 - a,
whatever the model and the distribution. Each side is missed with at most a / 2.

Where y is often 0, that promise alone would leave 0 out for the rows of the largest means, although it is their most
likely y. So intervals of counts and amounts begin at 0 wherever 0 is more likely than a / 2, which only widens them.

Sample weights mean repeated rows, as in a fit: n is their sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from rbr.losses import Loss
from rbr.model.terms import read_only

# A cumulated weight this close to a rank counts as reaching it.
RANK_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Calibration:
    """The deviations of calibration rows from their predictions.

    Attributes
    ----------
    deviations : array of shape (n_rows,)
        (y - prediction) / spread, ascending.
    weights : array of shape (n_rows,)
        Their sample weights.
    """

    deviations: np.ndarray = field(repr=False)
    weights: np.ndarray = field(repr=False)

    def __post_init__(self):
        order = np.argsort(self.deviations, kind="stable")
        for name in ("deviations", "weights"):
            object.__setattr__(self, name, read_only(np.asarray(getattr(self, name))[order]))

    @classmethod
    def of(cls, loss: Loss, y: np.ndarray, prediction: np.ndarray, sample_weight: np.ndarray | None) -> Calibration:
        weights = np.ones(len(y)) if sample_weight is None else sample_weight
        used = weights > 0
        return cls(((y - prediction) / spread_of(loss, prediction))[used], weights[used])

    @property
    def n_rows(self) -> float:
        """The number of calibration rows, by sample weight."""
        return float(self.weights.sum())

    @property
    def dispersion(self) -> float:
        """The mean squared deviation: the variance of y in units of what the loss expects."""
        return float(np.average(self.deviations**2, weights=self.weights))

    def ends(self, level: float) -> tuple[float, float]:
        """The deviations between which a new row lies with a probability of at least `level`; infinite if n is small.

        Examples
        --------
        >>> import numpy as np
        >>> from rbr.estimators.intervals import Calibration
        >>> calibration = Calibration(np.arange(1.0, 40.0), np.ones(39))
        >>> calibration.ends(0.9)
        (2.0, 38.0)
        >>> calibration.ends(0.96)
        (-inf, inf)
        """
        up_to = np.cumsum(self.weights)
        from_here = np.cumsum(self.weights[::-1])[::-1]
        rank = (self.n_rows + 1) * (1 + level) / 2 - RANK_TOLERANCE * (self.n_rows + 1)
        high, low = np.flatnonzero(up_to >= rank), np.flatnonzero(from_here >= rank)
        return (
            float(self.deviations[low[-1]]) if len(low) else -math.inf,
            float(self.deviations[high[0]]) if len(high) else math.inf,
        )

    def interval(self, loss: Loss, prediction: np.ndarray, level: float) -> np.ndarray:
        """The interval around each prediction, of shape (n_rows, 2)."""
        low, high = self.ends(level)
        spread = spread_of(loss, prediction)
        out = np.column_stack([prediction + low * spread, prediction + high * spread])
        if loss.link != "log":
            return out
        # Without any deviation there is nothing to tell how likely 0 is.
        if self.dispersion > 0:
            out[loss.chance_of_zero(prediction, self.dispersion) > (1 - level) / 2, 0] = 0.0
        return np.maximum(out, 0.0)


def spread_of(loss: Loss, prediction: np.ndarray) -> np.ndarray:
    return np.maximum(loss.spread(prediction), np.finfo(np.float64).tiny)
