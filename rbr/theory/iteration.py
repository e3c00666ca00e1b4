"""Algorithm 1 as the paper analyses it: squared loss, from zero, fixed step, no intercept; its rate and its floor.

`rbr.solve(solver="algorithm1")` refits an intercept at every step. The theorems have no intercept, and on a binomial
design, where the mean of X_bin beta is not exactly zero, that makes a different iteration. So the paper's iteration is
written out here, in its own notation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rbr._checks import check_int, check_real, check_vector
from rbr.data.design import BinnedMatrix
from rbr.theory.cones import Cone


def iterate(
    design: BinnedMatrix, y: ArrayLike, cone: Cone, n_steps: int, *, step_size: float = 1.0
) -> Iterator[np.ndarray]:
    """beta_{t+1} = P_C(beta_t - mu X_bin' (X_bin beta_t - y)) from beta_0 = 0 (paper, theorem 3.2).

    Parameters
    ----------
    design : BinnedMatrix
    y : array of shape (n_rows,)
    cone : Cone
    n_steps : int
    step_size : float
        mu.

    Yields
    ------
    array of shape (n_coef,)
        beta_0 to beta_{n_steps}.

    Examples
    --------
    >>> import rbr
    >>> from rbr.theory import random_design
    >>> cone = Cone(rbr.Constraints(max_features=2, max_segments=3), n_bins=[6] * 10)
    >>> B, truth = random_design(900, cone.n_bins, random_state=0), cone.draw(0)
    >>> *_, last = iterate(B, B.tocsr() @ truth, cone, n_steps=30)
    >>> bool(np.linalg.norm(last - truth) < 1e-9)
    True
    """
    check_int(n_steps, "n_steps", 0)
    check_real(step_size, "step_size", 0.0, strict=True)
    y = check_vector(y, design.n_rows, "y")
    X_bin = design.tocsr(scaled=True)
    X_bin_T = X_bin.T.tocsr()
    beta = np.zeros(design.n_coef)
    yield beta
    for _ in range(n_steps):
        beta = cone.project(beta - step_size * (X_bin_T @ (X_bin @ beta - y)))
        yield beta


def estimation_errors(
    design: BinnedMatrix, cone: Cone, truth: ArrayLike, noise: ArrayLike | None = None, n_steps: int = 50
) -> np.ndarray:
    """||beta_t - beta_true|| for t = 0 … n_steps, where y = X_bin beta_true + noise and mu = 1 (paper, theorem 3.4).

    Examples
    --------
    >>> import rbr
    >>> from rbr.theory import random_design
    >>> cone = Cone(rbr.Constraints(max_features=2, max_segments=3), n_bins=[6] * 10)
    >>> errors = estimation_errors(random_design(900, cone.n_bins, random_state=0), cone, cone.draw(0), n_steps=5)
    >>> float(errors[0]), bool((errors[1:] < 0.5 * errors[:-1]).all())
    (1.0, True)
    """
    truth = check_vector(truth, design.n_coef, "truth")
    y = design.tocsr(scaled=True) @ truth
    if noise is not None:
        y = y + check_vector(noise, design.n_rows, "noise")
    return np.array([np.linalg.norm(beta - truth) for beta in iterate(design, y, cone, n_steps)])


def linear_rate(errors: ArrayLike, resolution: float = 1e-8) -> float:
    """The factor by which an error falls in a step: the geometric mean until it is `resolution` times the first error.

    If the error never falls that far, the mean is over all steps, so that a stuck iteration has a rate near 1.

    Examples
    --------
    >>> round(linear_rate([1.0, 0.5, 0.25, 0.125]), 12)
    0.5
    >>> linear_rate([1.0, 0.1, 0.01, 0.01, 0.01], resolution=0.02)
    0.1
    """
    errors = np.asarray(errors, dtype=np.float64)
    if len(errors) < 2 or errors[0] <= 0:
        raise ValueError(
            f"errors has {len(errors)} entries and starts at {errors[:1]}; it needs two, the first positive"
        )
    reached = np.flatnonzero(errors <= resolution * errors[0])
    last = int(reached[0]) if len(reached) else len(errors) - 1
    return float((max(errors[last], 1e-16 * errors[0]) / errors[0]) ** (1 / last))


@dataclass(frozen=True)
class TwoMinimisers:
    """Two fixed points of Algorithm 1 for one loss: the one it reaches, and the unique minimiser, which it does not."""

    gradient_correlation: float
    reached: np.ndarray
    minimiser: np.ndarray
    loss_reached: float
    loss_least: float


def two_minimisers(n_steps: int = 200) -> TwoMinimisers:
    """A counterexample to the first bound of theorem 3.2, for which only the second one, with its floor, holds.

    C is the set of vectors of the plane with one non-zero entry, X = diag(sqrt(1.1), sqrt(0.8)), and X' y = (1, 0.89).
    Here X' X is diagonal, so eps_R = 0.2 < 1/2, and the loss has a unique minimiser over C. The gradient at it is not
    zero: it points along the other axis, which the proof's tangent cone, the closure of cone(C - {beta}), contains. For
    a set that is not convex the proof's "optimality conditions imply <w, gradient> >= 0" is therefore not true.

    Examples
    --------
    >>> found = two_minimisers()
    >>> found.gradient_correlation < 0.5, found.loss_least < found.loss_reached
    (True, True)
    >>> np.round(found.reached, 3), np.round(found.minimiser, 3)
    (array([0.909, 0.   ]), array([0.   , 1.112]))
    """
    gram, correlations = np.array([1.1, 0.8]), np.array([1.0, 0.89])

    def loss(beta):  # up to the constant ||y||^2 / 2
        return float(beta @ (gram * beta) / 2 - beta @ correlations)

    beta = np.zeros(2)
    for _ in range(n_steps):
        step = beta - (gram * beta - correlations)
        beta = np.where(np.arange(2) == np.abs(step).argmax(), step, 0.0)
    candidates = np.diag(correlations / gram)
    minimiser = min(candidates, key=loss)
    return TwoMinimisers(float(np.abs(1 - gram).max()), beta, minimiser, loss(beta), loss(minimiser))
