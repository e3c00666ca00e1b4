"""Algorithm 1 of the paper, on the scaled sparse matrix X_bin, with the line numbers of the algorithm.

The paper works with beta in the plain norm; rbr keeps tables f in the geometry of weights w. The two are equivalent:
beta = f * sqrt(n w), and X_bin has the entry 1 / sqrt(n w_k) in column k (sqrt(b_j / n) for uniform weights, as in
the paper), so that X_bin beta = X f and ||beta||^2 = n ||f||_w^2. With sample weights a row counts sqrt(n v_i).
Scores, tables and intercepts have one column, or one per class for `multinomial`.

It takes the same objects as `rbr.solve` but reads only their fields: if it called their methods, it would be testing
them against themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np
from scipy.sparse import csr_matrix

from rbr.reference.loss_formulas import LossFormula, best_intercept, formula_of
from rbr.reference.projections import ConstraintSet, prox, roughness

# A warm start is brought into the set by a proximal step of this fraction of the automatic step: short enough to be the
# projection, but still with a price, so that tables are described by no more pieces than they have.
SHORT = 1e-9

# Sums of shares may differ by this much from what they stand for.
SHARE_ROUNDING = 1e-11


@dataclass(frozen=True)
class ReferenceSolution:
    """What Algorithm 1 found.

    f : the tables, of shape (n_coef,) or (n_coef, n_classes)
    intercept : float, or array of shape (n_classes,)
    support : ascending indices of the used features
    loss_path : the mean loss at the start and after each step
    objective_path : the same with the ridge and the jump cost
    """

    f: np.ndarray
    intercept: float | np.ndarray
    support: np.ndarray
    loss_path: np.ndarray
    objective_path: np.ndarray


@dataclass(frozen=True)
class Data:
    """The rows of positive weight, and the matrix X_bin that they make.

    y, offset : one column per score
    n, v : the sum of the sample weights, and their shares in it
    shares, weights : for every bin of every table, its share of the rows, and w
    """

    loss: LossFormula
    y: np.ndarray
    offset: np.ndarray
    n: float
    v: np.ndarray
    X_bin: csr_matrix
    shares: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class Penalty:
    """alpha / 2 ||f||_w^2, and lambda * (kappa * code_j + 2 log(1 + p)) for every table f_j != 0 if kappa > 0."""

    alpha: float
    kappa: float
    lam: float

    def prices(self, mu, is_pair):
        """What a unit of code length and the entry of each table cost a step mu; p counts the tables of its kind."""
        p = np.where(is_pair, is_pair.sum(), (~is_pair).sum())
        return mu * self.lam * self.kappa, mu * self.lam * 2 * np.log1p(p) * (self.kappa > 0)


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
    loss : the name of a loss, or a loss object, of which fields are read
    step_size : mu; "auto" is 1 / (stretch * curvature): with counts weights 1 for squared error, 4 for log_loss
    dispersion : float
        phi, with lambda = phi / n the unit of a jump cost; by default 1, as for losses of known variance. (`rbr.solve`
        with its default solver estimates phi for the other losses.)
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
    data = read_data(B, y, loss, sample_weight, offset)
    C = read_constraints(constraints, B, data)
    if offset is None and np.ptp(data.y, axis=0).max() == 0:
        C = without_features(C)
    penalty = Penalty(alpha, constraints.jump_cost, (1.0 if dispersion is None else dispersion) / data.n)
    mu = natural_step(data) if step_size == "auto" else step_size
    to_beta = np.sqrt(data.n * data.weights)[:, None]
    to_f = np.divide(1.0, to_beta, out=np.zeros_like(to_beta), where=to_beta > 0)

    f, codes = start(warm_start, C, penalty, data)  # Initialization: beta_0 <- 0
    c, value, residual = intercept_loss_and_residual(data, f * to_beta)
    losses, objectives = [value], [value + cost(f, codes, C, penalty)]
    for _ in range(max_iter):  # while 1 <= t <= tau
        beta = f * to_beta
        beta = beta + mu * (data.X_bin.T @ residual)  # line 1: beta_t <- beta_{t-1} - mu grad L(beta_{t-1})
        previous = f
        f, codes = step_into_set(beta * to_f, mu, C, penalty)  # lines 2-5: zero mean, P_L per table, then P_G
        c, value, residual = intercept_loss_and_residual(data, f * to_beta)
        losses.append(value)
        objectives.append(value + cost(f, codes, C, penalty))
        if tol > 0 and norm(f - previous, data.weights) <= tol * max(norm(f, data.weights), 1e-12):
            break
    used = np.flatnonzero([f[table].any() for table in C.tables])
    if data.loss.n_scores == 1:
        f, c = f[:, 0], float(c[0])
    return ReferenceSolution(f, c, used, np.array(losses), np.array(objectives))


# ---------------------------------------------------------------- the steps of the algorithm


def start(warm_start, C, penalty, data):
    """beta_0 = 0, or given tables brought into the set, and their code lengths."""
    shape = C.offsets[-1], data.loss.n_scores
    if warm_start is None:
        return np.zeros(shape), np.zeros(len(C.tables))
    given = np.asarray(warm_start, dtype=np.float64).reshape(shape)
    step = SHORT * natural_step(data)
    return prox(given, C, *penalty.prices(step, C.is_pair), step)


def step_into_set(f, mu, C, penalty):
    """argmin over g in C of  ||f - g||_w^2 / (2 mu) + cost(g), and the code lengths of its tables.

    The ridge folds in: ||f - g||^2 / (2 mu) + alpha / 2 ||g||^2 is, up to a constant, ||f / (1 + mu alpha) - g||^2 over
    2 mu / (1 + mu alpha).
    """
    shrink = 1 / (1 + mu * penalty.alpha)
    return prox(shrink * f, C, *penalty.prices(shrink * mu, C.is_pair), shrink * mu)


def intercept_loss_and_residual(data, beta):
    """The intercept at its optimum, the mean loss, and the rows' residuals times sqrt(n v)."""
    root = np.sqrt(data.n * data.v)[:, None]
    z = data.offset + data.X_bin @ beta / root
    c = best_intercept(data.loss, data.y, z, data.v)
    values, residual = data.loss.evaluate(data.y, z + c)
    return c, (data.v @ values).sum(), residual * root


def cost(f, codes, C, penalty):
    """The penalties: ridge, roughness of surfaces, and the jump cost.

    alpha / 2 ||f||_w^2 + smoothness / 2 * roughness + lambda * (kappa * sum_j code_j + 2 log(1 + p) * the tables that
    pay for their entry)
    """
    price, entry_prices = penalty.prices(1.0, C.is_pair)
    entered = [j for j, table in enumerate(C.tables) if f[table].any() and j not in C.always_include]
    smooth = sum(
        C.smoothness / 2 * roughness(column, C.grids[j])
        for j, table in enumerate(C.tables)
        if C.shapes[j] == "surface"
        for column in f[table].T
    )
    return penalty.alpha / 2 * norm(f, C.weights) ** 2 + smooth + price * codes.sum() + entry_prices[entered].sum()


def norm(f, weights):
    """||f||_w, of the tables of all classes."""
    return np.sqrt((weights @ f**2).sum())


def natural_step(data):
    """1 / (stretch * curvature), the longest step that is safe for one table alone.

    If the curvature of the loss has no bound, its mean at the constant model is used.
    """
    curvature = data.loss.curvature_bound
    if curvature is None:
        constant = data.offset + best_intercept(data.loss, data.y, data.offset, data.v)
        curvature = (data.v @ data.loss.curvature(data.y, constant)).item()
    return 1 / (stretch(data.shares, data.weights) * curvature)


def stretch(shares, weights):
    """max over the tables of ||X_j f_j||_v^2 / ||f_j||_w^2  =  max over the bins of share / w; at least 1.

    With counts weights a block is an isometry, and so is one of uniform weights whose bins have equal counts.
    """
    return np.max(shares[weights > 0] / weights[weights > 0], initial=1.0)


# ---------------------------------------------------------------- what the algorithm is given


def read_data(B, y, loss, sample_weight, offset):
    """The rows of positive weight, in the scaling of the paper."""
    counts = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    used = counts > 0
    n, v = counts.sum(), counts[used] / counts.sum()
    y = np.asarray(y, dtype=np.float64)[used]
    if offset is not None:
        offset = np.asarray(offset, dtype=np.float64)[used].reshape(len(y), -1)
    formula = formula_of(loss, y, v, offset)

    X = one_hot(B.codes[:, used], B.offsets)
    shares = bin_shares(X, v, B.offsets)
    weights = B.weights if sample_weight is None or B.weights_kind == "uniform" else shares
    column_scale = np.sqrt(n * np.where(weights > 0, weights, np.inf))
    X_bin = X.multiply(np.sqrt(n * v)[:, None]).multiply(1 / column_scale).tocsr()
    return Data(
        loss=formula,
        y=y[:, None] if formula.n_scores == 1 else (y[:, None] == np.arange(formula.n_scores)).astype(np.float64),
        offset=np.zeros((len(y), formula.n_scores)) if offset is None else offset,
        n=n,
        v=v,
        X_bin=X_bin,
        shares=shares,
        weights=weights,
    )


def one_hot(codes, offsets):
    """X: row i has a 1 in column offsets[j] + codes[j, i], unless that code means "no bin"."""
    n_bins = np.diff(offsets)
    j, i = np.nonzero(codes < n_bins[:, None])
    return csr_matrix((np.ones(len(i)), (i, offsets[j] + codes[j, i])), shape=(codes.shape[1], offsets[-1]))


def bin_shares(X, v, offsets):
    """share_jk: the share of bin k in the weight of the rows that have a bin of feature j; 1 / b_j where none has."""
    sums = v @ X
    tables = [sums[a:b] for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    return np.concatenate([t / t.sum() if t.any() else np.full(len(t), 1 / len(t)) for t in tables])


def read_constraints(constraints, B, data):
    """The set C on the tables of B."""
    n_features, weights, min_rows = len(B.offsets) - 1, data.weights, constraints.min_rows
    least_share = min_rows / data.n if isinstance(min_rows, Integral) else min_rows
    return ConstraintSet(
        offsets=B.offsets,
        weights=weights,
        positions=bin_positions(constraints.position, B.offsets, weights, B.positions),
        missing=B.missing,
        shapes=per_feature(constraints.shape, "constant", n_features),
        limits=per_feature(constraints.max_segments, 32, n_features),
        max_features=constraints.max_features,
        greedy=constraints.segmentation == "greedy",
        rows=data.shares,
        least_rows=np.full(n_features, least_share - SHARE_ROUNDING if least_share else 0.0),
        exclude=constraints.exclude,
        always_include=constraints.always_include,
        grids=None if B.grids is None else [sides.tolist() if sides.any() else None for sides in B.grids],
        max_pairs=constraints.max_pairs,
        smoothness=constraints.smoothness,
    )


def without_features(C):
    """C without any feature, for a constant y: rounding errors in its residuals must not be fitted by tables."""
    return replace(C, exclude=range(len(C.tables)), always_include=())


def per_feature(value, default, n_features):
    """One value per feature from a scalar, a mapping with a default, or a sequence."""
    if isinstance(value, Mapping):
        return [value.get(j, default) for j in range(n_features)]
    return [value] * n_features if np.ndim(value) == 0 else list(value)


def bin_positions(position, offsets, weights, values):
    """Mid-rank, index or mean value of every bin within its table."""
    tables = [slice(a, b) for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    if position == "value":
        return np.asarray(values, dtype=np.float64)
    if position == "index":
        return np.concatenate([np.arange(t.stop - t.start, dtype=np.float64) for t in tables])
    return np.concatenate([np.cumsum(weights[t]) - weights[t] / 2 for t in tables])
