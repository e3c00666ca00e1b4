"""Smooth curves: a part of the kernels of `rbr.reference.visits`.

Some tables bend slowly, and pieces tell them only roughly: each piece has a value or a line of its own, with no word of
its neighbours. A curve is the other extreme. It never jumps; its rises from bin to bin,

    d_k = u_{k + 1} - u_k,    d ~ N(0, s^2 C),    C_ik = rho^|i - k|,    rho = exp(-1 / (length (b - 1))),

stay alike over a stretch of the bins, `length` of them all: a long one is all but a line, with length 0 the table is a
random walk. The rise from end to end has the variance 4 / c, that of a line in `rbr.reference.averages`, so that
s^2 = 4 / (c sum_ik C_ik). Beside its curve a table has a level, its mean in the geometry of W, with the prior
N(0, 1 / c). Bin k has a value with the precision W_k, as there.

Everything is Gaussian: for each length and each c, the mean table and what it explains have closed forms. A table is
the mean over a grid of both by their evidence, so nothing is estimated.
"""

from __future__ import annotations

import numpy as np


def curve_of(sums, weights, prior, length):
    """(mean table, log evidence, effective number of unknowns) for one length and c = prior.

    log evidence = log of the integral of exp(sum_k W_k (u_k f_k - f_k^2 / 2)) over the prior of the table f.
    """
    b, total, level = len(sums), weights.sum(), sums.sum()
    table, known = level / (total + prior), total / (total + prior)
    evidence = 0.5 * level * table - 0.5 * np.log1p(total / prior)
    if b == 1:
        return np.array([table]), evidence, known
    places = np.arange(b - 1)
    rho = np.exp(-1.0 / (length * (b - 1))) if length > 0 else 0.0
    alike = rho ** np.abs(places[:, None] - places)
    covariance = 4.0 / (prior * alike.sum()) * alike
    # The curve with rises d is `rises @ d`, of W-mean zero.
    rises = np.tril(np.ones((b, b - 1)), -1)
    rises = rises - weights @ rises / total
    precision, pull = rises.T @ (weights[:, None] * rises), rises.T @ sums
    # (covariance^-1 + precision)^-1 = (1 + covariance precision)^-1 covariance, also where rises are all but the same.
    explained = covariance @ precision
    more = np.eye(b - 1) + explained
    mean = np.linalg.solve(more, covariance @ pull)
    evidence += 0.5 * pull @ mean - 0.5 * np.linalg.slogdet(more)[1]
    return table + rises @ mean, evidence, known + np.trace(np.linalg.solve(more, explained))


def average_curve(sums, weights, per_row, lengths, rows):
    """(mean table, log evidence, effective number of unknowns) of one table, over a grid of lengths and priors.

    c is `rows` times `per_row`, the precision that one row brings on average.
    """
    found = [curve_of(sums, weights, r * per_row, length) for length in lengths for r in rows]
    means, evidences, unknowns = (np.array(part) for part in zip(*found, strict=True))
    total = np.logaddexp.reduce(evidences)
    shares = np.exp(evidences - total)
    return shares @ means, total - np.log(len(found)), shares @ unknowns
