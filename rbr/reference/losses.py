"""The log-loss and its derivatives, in forms that lose no digits far from zero.

With s = z for y = 0 and s = -z for y = 1, a row costs log(1 + exp(s)), whose slope is g(s) = 1 / (1 + exp(-s)).
"""

from __future__ import annotations

import numpy as np

# Sums over rows are added up from the sums of blocks of this many rows.
ROWS_PER_SUM = 8192


def signed_scores(y, z):
    """s, how wrong the score of a row is: z where y = 0, -z where y = 1."""
    return (1.0 - 2.0 * y) * z


def logistic(s):
    """g(s), by an exponential that cannot overflow."""
    decay = np.exp(-np.abs(s))
    return np.where(s < 0, decay, 1.0) / (1.0 + decay)


def log_loss(y, z):
    """log(1 + e^s) = log(1 + e^z) - y z."""
    return np.logaddexp(0.0, signed_scores(y, z))


def log_loss_residual(y, z):
    """-dloss/dz = y - g(z) = (2 y - 1) g(s)."""
    return (2.0 * y - 1.0) * logistic(signed_scores(y, z))


def log_loss_curvature(z):
    """d2loss/dz2 = g(z) (1 - g(z)), where 1 - g(z) = g(-z)."""
    return logistic(z) * logistic(-z)


def log_loss_third(z):
    """d3loss/dz3 = g(z) (1 - g(z)) (1 - 2 g(z)); the fourth is at most the second."""
    return log_loss_curvature(z) * (logistic(-z) - logistic(z))
