"""The losses as formulas: what a raw score z costs when the truth is y, its residual -dloss/dz, and the best intercept.

Truths and scores have one row per observation and one column per score: one column for all losses but `multinomial`,
which has one per class, and whose y holds a 1 in the column of the row's class and 0 elsewhere.

A loss is given by its name or by an object, of which only the fields are read: `name`, and whichever it has of the
parameters `power`, `delta`, `level`, `smoothing`, `half_width` and `n_classes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import root_scalar
from scipy.special import expit, logsumexp, softmax

ALIASES = {"squared": "squared_error", "logistic": "log_loss"}

# The score of a class that no row has would fall without bound; exp(-2000) is 0.
LEAST_LOG_SHARE = -2000.0


@dataclass(frozen=True)
class LossFormula:
    """A loss with all its parameters.

    evaluate : (y, z) -> the loss of each row, and -dloss/dz
    curvature_bound : the largest d2loss/dz2 (for classes: the largest eigenvalue of the Hessian), None if there is none
    curvature : (y, z) -> d2loss/dz2; only of losses without a bound
    n_scores : columns of z
    """

    evaluate: Callable
    curvature_bound: float | None
    curvature: Callable | None = None
    n_scores: int = 1


# ---------------------------------------------------------------- what a row costs, and its residual


def squared_error(y, z):
    """(y - z)^2 / 2 and y - z. The paper omits the 1/2 in the loss and the 2 in the gradient: the gradients agree."""
    return (y - z) ** 2 / 2, y - z


def log_loss(y, z):
    """log(1 + e^z) - y z, and y - g(z) with the paper's mean function g(z) = e^z / (1 + e^z)."""
    return np.logaddexp(0.0, z) - y * z, y - expit(z)


def multinomial(y, z):
    """log sum_k e^(z_k) - sum_k y_k z_k, and y_k - e^(z_k) / sum_l e^(z_l)."""
    return logsumexp(z, axis=1) - (y * z).sum(axis=1), y - softmax(z, axis=1)


def tweedie(y, z, power):
    """E_(2-q)(z) - y E_(1-q)(z) with E_a(z) = (e^(a z) - 1) / a, and y e^((1-q) z) - e^((2-q) z); q is the power.

    E_0(z) is the limit z. So q = 1 is poisson, e^z - 1 - y z, and q = 2 is gamma, z + y (e^-z - 1).
    """
    values = exponential_integral(2 - power, z) - y * exponential_integral(1 - power, z)
    return values, y * np.exp((1 - power) * z) - np.exp((2 - power) * z)


def exponential_integral(rate, z):
    """The integral of e^(rate t) over t from 0 to z."""
    return np.expm1(rate * z) / rate if rate else z


def tweedie_curvature(y, z, power):
    """(2 - q) e^((2-q) z) + (q - 1) y e^((1-q) z)."""
    return (2 - power) * np.exp((2 - power) * z) + (power - 1) * y * np.exp((1 - power) * z)


def huber(y, z, delta):
    """r^2 / 2 where |r| <= delta, delta |r| - delta^2 / 2 beyond, and r cut off at -delta and delta; r = y - z."""
    r = y - z
    return np.where(np.abs(r) <= delta, r**2 / 2, delta * np.abs(r) - delta**2 / 2), np.clip(r, -delta, delta)


def quantile(y, z, level, half_width):
    """r^2 / (4 h) + (level - 1/2) r + h / 4 where |r| <= h, the pinball loss beyond; r = y - z, h the half-width.

    The pinball loss is level r for r > 0 and (level - 1) r for r < 0, that is |r| / 2 + (level - 1/2) r. Its residual
    is level or level - 1, and r / (2 h) + level - 1/2 in between.
    """
    r, h = y - z, half_width
    size = np.where(np.abs(r) <= h, r**2 / (4 * h) + h / 4, np.abs(r) / 2)
    return size + (level - 0.5) * r, np.clip(r / (2 * h), -0.5, 0.5) + level - 0.5


# ---------------------------------------------------------------- from a name or an object to a formula


def formula_of(loss, y, v, offset):
    """The formula of a loss, with the parameters that it takes from the rows.

    y, v, offset : the truths, the weights (with sum 1) and the offsets (one column per score, or None) of the rows
    """
    name, given = (loss, {}) if isinstance(loss, str) else (loss.name, vars(loss))
    match ALIASES.get(name, name):
        case "squared_error":
            return LossFormula(squared_error, 1.0)
        case "log_loss":
            return LossFormula(log_loss, 1 / 4)
        case "multinomial":
            return LossFormula(multinomial, 1 / 2, n_scores=given.get("n_classes") or int(y.max()) + 1)
        case "poisson" | "gamma" | "tweedie" as name:
            power = {"poisson": 1.0, "gamma": 2.0}.get(name, given.get("power", 1.5))
            return LossFormula(partial(tweedie, power=power), None, partial(tweedie_curvature, power=power))
        case "huber":
            delta = given.get("delta") or 1.345 * robust_scale(y, v, offset)
            return LossFormula(partial(huber, delta=delta), 1.0)
        case "quantile":
            h = given.get("half_width") or given.get("smoothing", 0.1) * robust_scale(y, v, offset)
            return LossFormula(partial(quantile, level=given.get("level", 0.5), half_width=h), 1 / (2 * h))
    raise ValueError(f"loss is {loss!r}; the reference does not know it")


def robust_scale(y, v, offset):
    """1.4826 times the median distance of r = y - offset from its median m: the standard deviation if r is normal.

    Where more than half of the weight is at m this is 0, and 1.2533 times the mean distance is used instead, also the
    standard deviation if r is normal; 1 where r is constant.
    """
    r = y if offset is None else y - offset[:, 0]
    m = weighted_quantile(r, v, 0.5)
    rounding = 1e-13 * abs(m)
    for scale in (1.4826 * weighted_quantile(np.abs(r - m), v, 0.5), 1.2533 * (v @ np.abs(r - m)) / v.sum()):
        if scale > rounding:
            return scale
    return 1.0


def weighted_quantile(values, v, level):
    """The smallest value at which the share of the weights of all values up to it reaches the level (less 1e-9)."""
    order = np.argsort(values, kind="stable")
    share = np.cumsum(v[order]) / v.sum()
    return values[order][np.argmax(share >= level - 1e-9)]


# ---------------------------------------------------------------- the intercept


def best_intercept(loss, y, z, v):
    """argmin over c of sum_i v_i loss(y_i, z_i + c): the mean residual is zero there. One number per score."""
    if loss.evaluate is squared_error:
        return v @ (y - z)
    if loss.n_scores > 1:
        return best_class_intercepts(loss, y, z, v)

    def mean_residual(c):
        return (v @ loss.evaluate(y, z + c)[1]).item()

    low, high = -1.0, 1.0
    while mean_residual(low) < 0:
        low *= 2
    while mean_residual(high) > 0:
        high *= 2
    return np.array([root_scalar(mean_residual, bracket=(low, high), xtol=1e-14, rtol=1e-14).root])


def best_class_intercepts(loss, y, z, v):
    """The c of sum zero at which the mean probability of every class is its share, by Newton's method.

    c <- c + H^+ <v, residual>,  H = sum_i v_i (diag(p_i) - p_i p_i')

    It starts at the best c where z = 0, and no step is longer than 1. Adding a number to all scores changes nothing, so
    H 1 = 0, and the pseudo-inverse H^+ keeps the sum of c.
    """
    with np.errstate(divide="ignore"):
        c = np.maximum(np.log(v @ y), LEAST_LOG_SHARE)
    c = c - c.mean()
    for _ in range(200):
        residual = loss.evaluate(y, z + c)[1]
        p = y - residual
        hessian = np.diag(v @ p) - p.T @ (v[:, None] * p)
        step = np.linalg.pinv(hessian, rcond=1e-13, hermitian=True) @ (v @ residual)
        size = np.abs(step).max()
        c = c + step / max(size, 1.0)
        if size <= 1e-13 * max(np.abs(c).max(), 1.0):
            return c
    raise RuntimeError("the intercepts of the classes were not found in 200 Newton steps")
