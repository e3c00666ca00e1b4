"""Losses of y - z: squared error, Huber, quantiles."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from rbr.losses.base import Loss, check_parameter
from rbr.losses.roots import root_of_decreasing
from rbr.losses.sums import Rows, dot, quantile_of_errors, robust_scale_of


@dataclass(frozen=True)
class _IdentityLink(Loss):
    """A loss of y - z alone."""

    link: ClassVar[str] = "identity"


@dataclass(frozen=True)
class SquaredError(_IdentityLink):
    """(y - z)^2 / 2: the mean of y.

    Examples
    --------
    >>> from rbr.losses import get_loss
    >>> y, z = np.array([1.0, 2.0]), np.array([0.0, 4.0])
    >>> get_loss("squared").values(y, z)
    array([0.5, 2. ])
    >>> get_loss("squared").residual(y, z)
    array([ 1., -2.])
    """

    name: ClassVar[str] = "squared_error"
    is_parabola: ClassVar[bool] = True
    is_curved_everywhere: ClassVar[bool] = True

    def curvature_bound(self, y=None, z=None):
        return 1.0

    def _kernel(self):
        return self.name, 0.0, 0.0

    def intercept_sums(self, y, z, v, c):
        error = y - z
        error -= c
        return np.array([v @ error, v.sum()])

    def minimize_intercept(self, sums_at, start):
        # Exact from any start; from the last intercept the sum cancels least.
        error, weight = sums_at(float(start))
        return float(start) + float(error / weight)

    def constant_start_of(self, rows, has_offset, n_outputs=1):
        rough = self.refit_intercept_of(rows, 0.0)
        return self.refit_intercept_of(rows, rough)

    def dispersion_of(self, rows, n, df=1.0):
        return float(rows.total(self._squared_errors)[0]) * n / max(n - df, 1.0)

    @staticmethod
    def _squared_errors(y, z, v, n_threads) -> np.ndarray:
        return np.array([dot(v, (y - z) ** 2)])


@dataclass(frozen=True)
class _Clipped(_IdentityLink):
    """A loss whose residual is straight in y - z within a zone and constant outside."""

    @abstractmethod
    def _largest_residual(self) -> float:
        """The size of the constant residual outside the zone."""

    @abstractmethod
    def _zone(self) -> float:
        """Half-width of the zone around z = y in which the loss curves."""

    def minimize_intercept(self, sums_at, start):
        noise = 1e-14 * self._largest_residual()

        def step_at(c):
            score, slope = sums_at(c)
            # On a flat stretch (a median between two values) every c is optimal, and rounding has no say.
            sign = 0.0 if abs(score) <= noise else float(score)
            return sign, float(score / slope) if slope > 0 else math.nan

        zone = self._zone()
        return root_of_decreasing(step_at, float(start), reach=zone, tolerance=1e-13 * zone)

    def constant_start_of(self, rows, has_offset, n_outputs=1):
        return self.refit_intercept_of(rows, quantile_of_errors(rows, self._central_level()))

    def _squared_residuals(self, y, z, v, n_threads, *, window) -> np.ndarray:
        """Sums of the squared residuals, and of the rows with |y - z| at most the window."""
        return np.array([dot(v, self.residual(y, z) ** 2), dot(v, np.abs(y - z) <= window)])

    def _central_level(self) -> float:
        return 0.5


@dataclass(frozen=True)
class Huber(_Clipped):
    """(y - z)^2 / 2 up to |y - z| = delta, then delta |y - z| - delta^2 / 2: a mean that bears outliers.

    Parameters
    ----------
    delta : float or None, default=None
        In units of y. None: `prepare` takes 1.345 times the `robust_scale` of y - offset (for normal noise
        alone the estimate then has 95% of the efficiency of the mean).

    Examples
    --------
    >>> from rbr.losses import get_loss
    >>> get_loss("huber", delta=1.0).values(np.array([0.5, 3.0]), np.zeros(2))
    array([0.125, 2.5  ])
    """

    name: ClassVar[str] = "huber"
    is_straight_in_places: ClassVar[bool] = True
    delta: float | None = None

    def __post_init__(self):
        if self.delta is not None:
            check_parameter(self, "delta", self.delta, 0.0, math.inf, "a finite number above 0, or None")

    def prepare_of(self, rows):
        return self if self.delta is not None else replace(self, delta=1.345 * robust_scale_of(rows))

    def _zone(self):
        if self.delta is None:
            raise ValueError("loss 'huber': delta is None; call prepare(y, v) first, or give delta")
        return self.delta

    def _largest_residual(self):
        return self._zone()

    def curvature_bound(self, y=None, z=None):
        return 1.0

    def _kernel(self):
        return self.name, float(self._zone()), 0.0

    def majorized_curvature(self, y, z):
        delta = self._zone()
        return delta / np.maximum(np.abs(y - z), delta)

    def dispersion_of(self, rows, n, df=1.0):
        """sum v clip(y - z, -delta, delta)^2 over the share of rows within delta (at least one row's)."""
        squares, inside = map(float, rows.total(partial(self._squared_residuals, window=self._zone())))
        return squares / max(inside, 1.0 / n) * n / max(n - df, 1.0)


@dataclass(frozen=True)
class Quantile(_Clipped):
    """The pinball loss of the quantile at `level`, smoothed so that it can be descended on.

    With r = y - z the pinball loss is level * r above and (level - 1) * r below zero. Where |r| <= h it is
    replaced by the parabola that meets it smoothly, r^2 / (4 h) + (level - 1/2) r + h / 4. This is the
    pinball loss averaged over a window of half-width h: it is above it by at most h / 4, the same outside
    the window, and its minimiser is the quantile of y plus a uniform error on [-h, h], off by h^2 F'' / (6
    F') to the first order.

    Parameters
    ----------
    level : float in (0, 1), default=0.5
    smoothing : float, default=0.1
        h in units of `robust_scale` of y - offset. For a normal y the 90% quantile is then off by 0.002
        standard deviations.
    half_width : float or None, default=None
        h in units of y; None: `prepare` sets it to smoothing * robust_scale.

    Examples
    --------
    >>> from rbr.losses import get_loss
    >>> get_loss("quantile", level=0.9, half_width=0.5).values(np.array([2.0, -2.0, 0.0]), np.zeros(3))
    array([1.8  , 0.2  , 0.125])
    """

    name: ClassVar[str] = "quantile"
    is_straight_in_places: ClassVar[bool] = True
    level: float = 0.5
    smoothing: float = 0.1
    half_width: float | None = None

    def __post_init__(self):
        check_parameter(self, "level", self.level, 0.0, 1.0, "strictly between 0 and 1")
        check_parameter(self, "smoothing", self.smoothing, 0.0, math.inf, "a finite number above 0")
        if self.half_width is not None:
            check_parameter(self, "half_width", self.half_width, 0.0, math.inf, "a finite number above 0, or None")

    def prepare_of(self, rows):
        if self.half_width is not None:
            return self
        return replace(self, half_width=self.smoothing * robust_scale_of(rows))

    def _zone(self):
        if self.half_width is None:
            raise ValueError("loss 'quantile': half_width is None; call prepare(y, v) first, or give half_width")
        return self.half_width

    def _largest_residual(self):
        return max(self.level, 1 - self.level)

    def _central_level(self):
        return self.level

    def deviances(self, y, z):
        """The pinball loss itself: it is smoothed only to be descended on."""
        error = y - z
        return np.maximum(self.level * error, (self.level - 1) * error)

    def least_deviance_constant(self, y, v, offset=None):
        return quantile_of_errors(Rows(y, offset, v), self.level)

    def curvature_bound(self, y=None, z=None):
        return 0.5 / self._zone()

    def _kernel(self):
        return self.name, float(self.level), float(self._zone())

    def majorized_curvature(self, y, z):
        return 0.5 / np.maximum(np.abs(y - z), self._zone())

    def dispersion_of(self, rows, n, df=1.0):
        """sum v residual^2 over the density of y - z at 0.

        The density is the share of the rows with |y - z| <= b (at least one row's), divided by 2 b, where b
        is the larger of h and 1.06 robust_scale(y - z) n^(-1/5): h alone is too narrow a window when n is
        small.
        """
        window = max(self._zone(), 1.06 * robust_scale_of(rows) * n**-0.2)
        squares, inside = map(float, rows.total(partial(self._squared_residuals, window=window)))
        density = max(inside, 1.0 / n) / (2 * window)
        return squares / density * n / max(n - df, 1.0)
