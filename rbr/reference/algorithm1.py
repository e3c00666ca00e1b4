"""Algorithm 1 of the paper, on the scaled sparse matrix X_bin, with the line numbers of the algorithm.

The paper works with beta in the plain norm; rbr keeps tables f in the geometry of weights w. The two are one:
beta = f * sqrt(n w), and X_bin has the entry 1 / sqrt(n w_k) in column k (sqrt(b_j / n) for uniform weights, as in
the paper), so that X_bin beta = X f and ||beta||^2 = n ||f||_w^2. With sample weights a row counts sqrt(n v_i).

It takes the same objects as `rbr.solve` but reads only their fields: an oracle that called their methods would
be the code under test.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import root_scalar
from scipy.sparse import csr_matrix
from scipy.special import expit

from rbr.reference.projections import prox


@dataclass(frozen=True)
class ReferenceSolution:
    """Tables, intercept, ascending indices of the used features, and the mean loss at the start and after each step."""

    f: np.ndarray
    intercept: float
    support: np.ndarray
    loss_path: np.ndarray


def squared_error(y, z):
    """(y - z)^2 / 2 and its residual. The paper's loss lacks the 1/2 and its gradient the 2: this is its gradient."""
    return (y - z) ** 2 / 2, y - z


def log_loss(y, z):
    """log(1 + e^z) - y z, and y - g(z) with the paper's mean function g(z) = e^z / (1 + e^z)."""
    return np.logaddexp(0.0, z) - y * z, y - expit(z)


def poisson(y, z):
    """e^z - 1 - y z, and y - e^z."""
    return np.exp(z) - 1 - y * z, y - np.exp(z)


LOSSES = {
    "squared_error": squared_error,
    "squared": squared_error,
    "log_loss": log_loss,
    "logistic": log_loss,
    "poisson": poisson,
}


def solve(
    B,
    y,
    *,
    loss="squared_error",
    constraints,
    sample_weight=None,
    offset=None,
    alpha=0.0,
    solver="algorithm1",
    step_size="auto",
    max_iter=200,
    tol=1e-5,
    warm_start=None,
    dispersion=None,
):
    """Algorithm 1 (paper, section 2) with a fixed step; with a jump cost, the same iteration with the proximal step.

    Parameters
    ----------
    B, constraints : fields of a BinnedMatrix and of Constraints are read
    loss : {"squared_error", "log_loss", "poisson"} or their aliases
    step_size : mu; "auto" is 1 / (stretch * curvature): with counts weights 1 for squared error, 4 for log_loss
    dispersion : float
        phi, with lambda = phi / n the unit of a jump cost; by default 1, as for losses of known variance.
    others : as in `rbr.solve`; `solver` must be "algorithm1"

    Examples
    --------
    >>> import numpy as np
    >>> import rbr
    >>> B = rbr.BinnedMatrix([[0, 0, 1, 1]], offsets=[0, 2])
    >>> C = rbr.Constraints(max_segments=2)
    >>> s = rbr.reference.solve(B, [0.0, 1.0, 4.0, 5.0], constraints=C, max_iter=1)
    >>> s.f, float(s.intercept)
    (array([-2.,  2.]), 2.5)
    """
    if solver != "algorithm1":
        raise ValueError(f"solver is {solver!r}; the reference has only 'algorithm1'")
    y = np.asarray(y, dtype=np.float64)
    evaluate = LOSSES[loss]
    sample_weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    used = sample_weight > 0
    codes, y, n_weights = B.codes[:, used], y[used], sample_weight[used]
    offset = np.zeros(len(y)) if offset is None else np.asarray(offset, dtype=np.float64)[used]
    n = n_weights.sum()
    v = n_weights / n
    offsets, missing = B.offsets, B.missing
    X = one_hot(codes, offsets)
    shares = bin_shares(X, v, offsets)
    weights = B.weights if B.weights_kind == "uniform" or sample_weight.min() == sample_weight.max() else shares
    w = np.where(weights > 0, weights, np.inf)
    X_bin = X.multiply(np.sqrt(n * v)[:, None]).multiply(1 / np.sqrt(n * w)).tocsr()

    shapes = per_feature(constraints.shape, "constant", len(offsets) - 1)
    limits = per_feature(constraints.max_segments, 32, len(offsets) - 1)
    positions = bin_positions(constraints.position, offsets, weights, B.positions)
    kappa = constraints.jump_cost
    mu = 1 / (stretch(shares, weights) * curvature(loss, y, v)) if step_size == "auto" else step_size
    lam = (1.0 if dispersion is None else dispersion) / n
    shrink = 1 / (1 + mu * alpha)  # the ridge folds into the step

    def project(f, price=0.0, entry_price=0.0):
        return prox(
            f,
            offsets,
            weights,
            positions,
            missing,
            shapes,
            limits,
            constraints.max_features,
            price,
            entry_price,
            greedy=constraints.segmentation == "greedy",
            exclude=constraints.exclude,
            always_include=constraints.always_include,
        )

    price = mu * shrink * lam * kappa
    entry_price = mu * shrink * lam * 2 * np.log(len(offsets) - 1) * (kappa > 0)

    def state(beta):
        """The intercept at its optimum, the mean loss, and the rows' residuals times sqrt(n v)."""
        z = offset + X_bin @ beta / np.sqrt(n * v)
        c = best_intercept(lambda c: v @ evaluate(y, z + c)[1], loss)
        values, residual = evaluate(y, z + c)
        return c, v @ values, residual * np.sqrt(n * v)

    to_beta = np.sqrt(n * weights)
    to_f = np.where(weights > 0, 1 / np.sqrt(n * w), 0.0)
    f = np.zeros(offsets[-1])  # Initialization: beta_0 <- 0
    if warm_start is not None:
        f = project(np.asarray(warm_start, dtype=np.float64))
    c, value, residual = state(f * to_beta)
    losses = [value]
    for _ in range(max_iter):  # while 1 <= t <= tau
        beta = f * to_beta
        beta = beta + mu * (X_bin.T @ residual)  # line 1: beta_t <- beta_{t-1} - mu grad L(beta_{t-1})
        # lines 2-5: zero mean, P_L per table, then P_G
        previous, f = f, project(shrink * beta * to_f, price, entry_price)
        c, value, residual = state(f * to_beta)
        losses.append(value)
        change, size = (np.sqrt(weights @ u**2) for u in (f - previous, f))
        if tol > 0 and change <= tol * max(size, 1e-12):
            break
    support = np.flatnonzero([f[a:b].any() for a, b in zip(offsets[:-1], offsets[1:], strict=True)])
    return ReferenceSolution(f, float(c), support, np.array(losses))


def one_hot(codes, offsets):
    """X: row i has a 1 in column offsets[j] + codes[j, i], unless that code means "no bin"."""
    n_bins = np.diff(offsets)
    j, i = np.nonzero(codes < n_bins[:, None])
    return csr_matrix((np.ones(len(i)), (i, offsets[j] + codes[j, i])), shape=(codes.shape[1], offsets[-1]))


def bin_shares(X, v, offsets):
    """share_jk: the weight of the rows in bin k, of those that have a bin of feature j; 1 / b_j where none has."""
    sums = v @ X
    tables = [sums[a:b] for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    return np.concatenate([t / t.sum() if t.any() else np.full(len(t), 1 / len(t)) for t in tables])


def stretch(shares, weights):
    """max over the tables of ||X_j f_j||_v^2 / ||f_j||_w^2  =  max over the bins of share / w; at least 1.

    With counts weights a block is an isometry, and so is one of uniform weights whose bins have equal counts.
    """
    return np.max(shares[weights > 0] / weights[weights > 0], initial=1.0)


def curvature(loss, y, v):
    """The bound on d^2 loss / dz^2: 1 for squared error, g (1 - g) <= 1/4 for log_loss.

    e^z has none: poisson lends its mean curvature at the constant model, <v, e^z> = <v, y>, where the mean residual
    is zero.
    """
    return v @ y if loss == "poisson" else {"squared_error": 1.0, "squared": 1.0}.get(loss, 0.25)


def best_intercept(score, loss):
    """The c at which the mean residual is zero."""
    if loss in ("squared_error", "squared"):
        return score(0.0)
    low, high = -1.0, 1.0
    while score(low) < 0:
        low *= 2
    while score(high) > 0:
        high *= 2
    return root_scalar(score, bracket=(low, high), xtol=1e-14, rtol=1e-14).root


def per_feature(value, default, n_features):
    """One value per feature from a scalar, a mapping with a default, or a sequence."""
    if isinstance(value, dict):
        return [value.get(j, default) for j in range(n_features)]
    return [value] * n_features if isinstance(value, (str, int)) else list(value)


def bin_positions(position, offsets, weights, values):
    """Mid-rank, index or mean value of every bin within its table."""
    tables = [slice(a, b) for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    if position == "value":
        return np.asarray(values, dtype=np.float64)
    if position == "index":
        return np.concatenate([np.arange(t.stop - t.start, dtype=np.float64) for t in tables])
    return np.concatenate([np.cumsum(weights[t]) - weights[t] / 2 for t in tables])
