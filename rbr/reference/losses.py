"""The losses of single rows and their derivatives, in forms that lose no digits far from zero.

Each is three functions of (y, z, a, b): the value, the residual -dloss/dz and the curvature d2loss/dz2. a and b are the
parameters of the loss.
"""

from __future__ import annotations

import numpy as np

# Sums over rows are added up from the sums of blocks of this many rows.
ROWS_PER_SUM = 8192

# ----------------------------------------------------------------------------------- squared error: (y - z)^2 / 2


def squared_error_value(y, z, a=0.0, b=0.0):
    return (y - z) ** 2 / 2


def squared_error_residual(y, z, a=0.0, b=0.0):
    return y - z


def squared_error_curvature(y, z, a=0.0, b=0.0):
    return np.ones_like(z)


# ------------------------------------- log-loss: with s = z for y = 0 and s = -z for y = 1, a row costs log(1 + e^s)


def signed_scores(y, z):
    """s, how wrong the score of a row is: z where y = 0, -z where y = 1."""
    return (1.0 - 2.0 * y) * z


def logistic(s):
    """g(s) = 1 / (1 + e^-s), the slope of log(1 + e^s), by an exponential that cannot overflow."""
    decay = np.exp(-np.abs(s))
    return np.where(s < 0, decay, 1.0) / (1.0 + decay)


def log_loss_value(y, z, a=0.0, b=0.0):
    """log(1 + e^s) = log(1 + e^z) - y z."""
    return np.logaddexp(0.0, signed_scores(y, z))


def log_loss_residual(y, z, a=0.0, b=0.0):
    """y - g(z) = (2 y - 1) g(s)."""
    return (2.0 * y - 1.0) * logistic(signed_scores(y, z))


def log_loss_curvature(y, z, a=0.0, b=0.0):
    """g(z) (1 - g(z)), where 1 - g(z) = g(-z)."""
    return logistic(z) * logistic(-z)


def log_loss_third(z):
    """d3loss/dz3 = g(z) (1 - g(z)) (1 - 2 g(z)); the fourth derivative is at most the second."""
    return logistic(z) * logistic(-z) * (logistic(-z) - logistic(z))


# ------------------------ log link: E_(2-q)(z) - y E_(1-q)(z), where E_r(z) is the integral of e^(r t) from 0 to z
# A term with y = 0 is 0, also where the exponential overflows.


def times_y(y, values):
    """y times the values; 0 where y is 0."""
    return np.where(y == 0, 0.0, y * values)


def tweedie_value(y, z, q, b=0.0):
    return exponential_integral(2 - q, z) - times_y(y, exponential_integral(1 - q, z))


def tweedie_residual(y, z, q, b=0.0):
    return times_y(y, np.exp((1 - q) * z)) - np.exp((2 - q) * z)


def tweedie_curvature(y, z, q, b=0.0):
    return (2 - q) * np.exp((2 - q) * z) + (q - 1) * times_y(y, np.exp((1 - q) * z))


def exponential_integral(rate, z):
    """(e^(rate z) - 1) / rate."""
    return np.expm1(rate * z) / rate


def poisson_value(y, z, a=0.0, b=0.0):
    """q = 1, where E_0(z) = z: e^z - 1 - y z."""
    return np.expm1(z) - times_y(y, z)


def poisson_residual(y, z, a=0.0, b=0.0):
    return y - np.exp(z)


def poisson_curvature(y, z, a=0.0, b=0.0):
    return np.exp(z)


def gamma_value(y, z, a=0.0, b=0.0):
    """q = 2: z + y (e^-z - 1)."""
    return z + y * np.expm1(-z)


def gamma_residual(y, z, a=0.0, b=0.0):
    return y * np.exp(-z) - 1.0


def gamma_curvature(y, z, a=0.0, b=0.0):
    return y * np.exp(-z)


# ----------------------------------------------------------------- straight residuals, cut off outside of a zone


def huber_value(y, z, delta, b=0.0):
    """r^2 / 2 where |r| <= delta, delta |r| - delta^2 / 2 beyond; r = y - z."""
    size = np.abs(y - z)
    return np.where(size <= delta, size**2 / 2, delta * (size - delta / 2))


def huber_residual(y, z, delta, b=0.0):
    return np.clip(y - z, -delta, delta)


def huber_curvature(y, z, delta, b=0.0):
    return np.where(np.abs(y - z) <= delta, 1.0, 0.0)


def quantile_value(y, z, level, h):
    """r^2 / (4 h) + (level - 1/2) r + h / 4 where |r| <= h; beyond, level r for r > 0 and (level - 1) r for r < 0."""
    r = y - z
    parabola = r**2 / (4 * h) + (level - 0.5) * r + h / 4
    return np.where(np.abs(r) <= h, parabola, np.where(r > 0, level, level - 1) * r)


def quantile_residual(y, z, level, h):
    return np.clip((y - z) / (2 * h), -0.5, 0.5) + (level - 0.5)


def quantile_curvature(y, z, level, h):
    return np.where(np.abs(y - z) <= h, 0.5 / h, 0.0)


# -------------------------------- several classes: log sum_k exp(z_k) - z_y, scores of shape (n_classes, n_rows)


def softmax_weights(z):
    """(exp(z_k - m), m the largest score of a row; m; the sum of all weights but that of the first largest)."""
    largest = z.max(axis=0)
    weights = np.exp(z - largest)
    is_first = np.arange(len(z))[:, None] == z.argmax(axis=0)
    return weights, largest, np.where(is_first, weights - 1.0, weights).sum(axis=0)


def softmax(z):
    """p_k = exp(z_k) / sum_l exp(z_l), the probability of each class."""
    weights, _, others = softmax_weights(z)
    return weights * (1.0 / (1.0 + others))


def softmax_value(y, z):
    """log sum_k exp(z_k) - z_y, with all its digits when z_y is by far the largest."""
    _, largest, others = softmax_weights(z)
    return np.log1p(others) + (largest - z[y, np.arange(z.shape[1])])


def softmax_residual(y, z):
    """1 - p_k for the class of the row, as the sum of the other probabilities, which keeps its digits; else -p_k."""
    residual, own = -softmax(z), (y, np.arange(z.shape[1]))
    residual[own] = 0.0
    residual[own] = -residual.sum(axis=0)
    return residual


def softmax_curvature(y, z):
    """p_k (1 - p_k), the diagonal of the Hessian diag(p) - p p'."""
    p = softmax(z)
    return p * (1.0 - p)


# (value, residual, curvature) of each loss.
DERIVATIVES = {
    "squared_error": (squared_error_value, squared_error_residual, squared_error_curvature),
    "log_loss": (log_loss_value, log_loss_residual, log_loss_curvature),
    "poisson": (poisson_value, poisson_residual, poisson_curvature),
    "gamma": (gamma_value, gamma_residual, gamma_curvature),
    "tweedie": (tweedie_value, tweedie_residual, tweedie_curvature),
    "huber": (huber_value, huber_residual, huber_curvature),
    "quantile": (quantile_value, quantile_residual, quantile_curvature),
}
LOSSES = tuple(DERIVATIVES)
