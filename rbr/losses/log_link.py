"""Losses with a log link: Poisson, gamma, Tweedie."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rbr.losses.base import Loss, check_parameter
from rbr.losses.roots import LARGEST_INTERCEPT, root_of_decreasing
from rbr.losses.sums import dot, sum_of_y, weighted_sum


@dataclass(frozen=True)
class _LogLink(Loss):
    """expm1((2-q) z) / (2-q) - y expm1((1-q) z) / (1-q), an expm1(0 z) / 0 read as its limit z: q is `power`.

    residual = y exp((1-q) z) - exp((2-q) z); both exponents have the same form in c, so the best intercept is
    log(sum v y exp((1-q) z) / sum v exp((2-q) z)).
    """

    link: ClassVar[str] = "log"
    is_curved_everywhere: ClassVar[bool] = True

    @abstractmethod
    def _power(self) -> float:
        """q: the variance is mean^q."""

    def _check_domain(self, y, used):
        self._refuse(y, lambda y: y < 0, "y must be at least 0")
        if not (y[used] > 0).any():
            raise ValueError(f"loss '{self.name}': y is 0 in every row that counts; at least one must be above 0")
        return y

    def curvature_bound(self, y=None, z=None):
        return None

    def curvature_growth(self, prediction):
        return np.full_like(prediction, 3.0 - 2.0 * self._power())

    def inverse_link(self, z):
        with np.errstate(over="ignore", under="ignore"):
            return np.exp(z)

    def least_values(self, y):
        """The loss at z = log y; at y = 0, where z falls without end, its limit."""
        power = self._power()
        at = np.log(np.where(y > 0, y, 1.0))
        own = self.values(y, at)
        return own if power == 2 else np.where(y > 0, own, -1.0 / (2 - power))

    def spread(self, prediction):
        return prediction ** (self._power() / 2)

    def chance_of_zero(self, prediction, dispersion):
        """That of a sum of a Poisson number of gamma amounts; for power 1, of a multiple of a Poisson number."""
        left = 2 - self._power()
        return np.exp(-(prediction**left) / (left * dispersion)) if left > 0 else np.zeros_like(prediction)

    def _terms(self, y, z):
        """y exp((1-q) z), which pulls z up, and exp((2-q) z), which pulls it down."""
        power = self._power()
        up = y if power == 1 else y * np.exp((1 - power) * z)
        if power > 1 and not math.isfinite(up.max()):
            # A row with y = 0 pulls up with 0, also where the exponential overflows.
            up = np.where(y == 0, 0.0, up)
        down = np.ones_like(z) if power == 2 else np.exp((2 - power) * z)
        return up, down

    def _kernel(self):
        power = self._power()
        return {1.0: "poisson", 2.0: "gamma"}.get(power, "tweedie"), power, 0.0

    def intercept_sums(self, y, z, v, c):
        return np.array([weighted_sum(v, term) for term in self._terms(y, z + c)])

    def minimize_intercept(self, sums_at, start):
        def step_at(c):
            up, down = map(float, sums_at(c))
            if 0 < up < math.inf and 0 < down < math.inf:
                gap = math.log(up) - math.log(down)
                return gap, gap
            # Overflow or underflow: c is too high, or too low, or (both overflow, or no y is positive)
            # beyond help.
            too_high = up == 0 or down == math.inf
            too_low = (down == 0 and up > 0) or up == math.inf
            return float(too_low) - float(too_high), math.nan

        return root_of_decreasing(step_at, float(start), reach=64.0, tolerance=math.inf, limit=LARGEST_INTERCEPT)

    def constant_start_of(self, rows, has_offset, n_outputs=1):
        total, weight = map(float, rows.total(sum_of_y))
        start = math.log(total / weight) if total > 0 else -LARGEST_INTERCEPT
        return self.refit_intercept_of(rows, start) if has_offset else start

    def dispersion_of(self, rows, n, df=1.0):
        """The Pearson statistic sum v (y - mu)^2 / mu^power, mu = exp(z), over its degrees of freedom."""
        return float(rows.total(self._pearson)[0]) * n / max(n - df, 1.0)

    def _pearson(self, y, z, v, n_threads) -> np.ndarray:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            up, down = self._terms(y, z)
            return np.array([dot(v, (up - down) ** 2 / down)])


@dataclass(frozen=True)
class Poisson(_LogLink):
    """exp(z) - 1 - y z for counts y >= 0 of mean exp(z).

    Examples
    --------
    >>> from rbr.losses import get_loss
    >>> get_loss("poisson").residual(np.array([0.0, 3.0]), np.zeros(2))
    array([-1.,  2.])
    """

    name: ClassVar[str] = "poisson"

    def _power(self):
        return 1.0

    def dispersion_of(self, rows, n, df=1.0):
        """At least 1, where the variance of a count is its mean; counts often vary more."""
        return max(super().dispersion_of(rows, n, df), 1.0)


@dataclass(frozen=True)
class Gamma(_LogLink):
    """z + y (exp(-z) - 1) for amounts y > 0 of mean exp(z), their variance proportional to the squared mean.

    Examples
    --------
    >>> from rbr.losses import get_loss
    >>> round(get_loss("gamma").constant_start(np.array([1.0, 3.0]), np.full(2, 0.5)), 6)
    0.693147
    """

    name: ClassVar[str] = "gamma"

    def _power(self):
        return 2.0

    def _check_domain(self, y, used):
        self._refuse(y, lambda y: y <= 0, "y must be above 0")
        return y


@dataclass(frozen=True)
class Tweedie(_LogLink):
    """For amounts y >= 0 of mean mu = exp(z) and variance proportional to mu^power.

    Parameters
    ----------
    power : float in [1, 2], default=1.5
        1 is the loss of `poisson`, 2 that of `gamma` (y = 0 is then refused); between them sums of a random
        number of amounts, often none.

    Examples
    --------
    >>> from rbr.losses import get_loss
    >>> y, z = np.array([0.0, 2.0]), np.array([0.5, -0.5])
    >>> bool((get_loss("tweedie", power=1).values(y, z) == get_loss("poisson").values(y, z)).all())
    True
    """

    name: ClassVar[str] = "tweedie"
    power: float = 1.5

    def __post_init__(self):
        check_parameter(self, "power", self.power, 1.0, 2.0, "between 1 and 2", closed=True)

    def _power(self):
        return float(self.power)

    def _check_domain(self, y, used):
        if self.power == 2:
            self._refuse(y, lambda y: y <= 0, "y must be above 0 where power is 2")
        return super()._check_domain(y, used)
