"""The fits of the paper's experiments (40 bins, 8 pieces per feature, Algorithm 1), and of the default solver.

The paper does not say which fixed step its experiments take. The theory has mu = 1 for squared loss; hyperparameters
"are tuned via line search". So there are two variants: the step of the theory, 1 / (curvature bound of the loss), and
the best, by training loss, of that step and its repeated halvings.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from rbr.constraints import Constraints
from rbr.data.binning import Binner
from rbr.data.design import BinnedMatrix
from rbr.losses import get_loss
from rbr.solvers import Solution, solve

N_BINS = 40
N_PIECES = 8
N_STEPS = 100
HALVINGS = 6
SHAPES = {"PC": "constant", "PL": "linear"}


def binned(X, binner: Binner | None = None) -> tuple[Binner, BinnedMatrix]:
    """X in the paper's bins, with the binner that made them."""
    binner = binner or Binner(max_bins=N_BINS).fit(X)
    return binner, binner.transform(X)


def limits(kind: str, max_features: int | None) -> Constraints:
    """s_G and s_L with no jump cost; kind is PC (constant pieces) or PL (linear pieces)."""
    return Constraints(max_features=max_features, max_segments=N_PIECES, shape=SHAPES[kind], jump_cost=0.0)


def algorithm1(
    design: BinnedMatrix, y, kind: str, max_features: int | None, *, loss: str = "squared_error", halvings: int = 0
) -> Solution:
    """Algorithm 1 with the step of the theory, halved `halvings` times; tol = 0, so that all steps are taken."""
    step = 1.0 / get_loss(loss).curvature_bound() * 0.5**halvings
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # Divergence, from a step that is too long, is a result here and not worth a warning.
        warnings.simplefilter("ignore")
        return solve(
            design,
            y,
            loss=loss,
            constraints=limits(kind, max_features),
            solver="algorithm1",
            step_size=step,
            max_iter=N_STEPS,
            tol=0.0,
        )


def has_diverged(solution: Solution) -> bool:
    """Whether the last loss is above that of the empty model, or is NaN."""
    return not solution.loss <= solution.loss_path[0]


def searched_algorithm1(design: BinnedMatrix, y, kind: str, max_features: int | None, *, loss: str = "squared_error"):
    """Algorithm 1 with the best of HALVINGS + 1 fixed steps by training loss, and how often that step was halved."""
    found = [algorithm1(design, y, kind, max_features, loss=loss, halvings=k) for k in range(HALVINGS + 1)]
    losses = [solution.loss if np.isfinite(solution.loss) else np.inf for solution in found]
    best = int(np.argmin(losses))
    return found[best], best


def default_solver(
    design: BinnedMatrix, y, kind: str, max_features: int | None, *, loss: str = "squared_error"
) -> Solution:
    """The default solver within the same limits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(design, y, loss=loss, constraints=limits(kind, max_features))


def scores(solution: Solution, design: BinnedMatrix) -> np.ndarray:
    """The raw predictions of the rows of a design in the same bins."""
    return solution.intercept + design.matvec(solution.f)
