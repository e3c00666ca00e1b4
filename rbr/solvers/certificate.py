"""How good a solution is: what a local search around it, and a fit without limits, would gain.

A non-convex problem has no duality gap to show. Instead a certificate says how close the point is to a fixed point,
whether a single swap or entry of a feature or a single move of a jump would lower the objective (and by how much), and
how far the objective lies above that of the unrestricted binned fit, which no tables can beat.
"""

from __future__ import annotations

from functools import cached_property
from itertools import islice

import numpy as np

from rbr.objective.protocol import Point
from rbr.solvers.moves import entries, shifts, swaps
from rbr.solvers.problem import Problem
from rbr.solvers.proposal import Entry, Shift, Swap
from rbr.solvers.refit import norm, ridge

# The predicted gains of moves are nearly exact; only the best few are refitted.
SHIFTS_TRIED = 5
NEWTON_STEPS = 4
UNRESTRICTED_ITERATIONS = 200


class Certificate:
    """Evidence about a solution; swap, shift, entry and unrestricted are computed on first access.

    Attributes
    ----------
    residual : float
        ||f - P(f - step * gradient)||_w.
    relative_residual : float
        The same over ||f||_w.
    step : float
        The step at which the residual was taken.
    objective : float
        Loss + ridge + jump cost of the solution.
    swap : tuple (Swap or None, float)
        The best swap of a used for an unused feature, and by how much it would lower the objective once refitted;
        at most 0 if none would. Costs a Newton step and a pass over the data for each used feature.
    shift : tuple (Shift or None, float)
        The best move of one jump between its neighbours, likewise. The five with the largest predicted gains are
        refitted.
    entry : tuple (Entry or None, float)
        The best entry of an unused feature, likewise, if the limit on the features leaves room for one. It is tested
        at the step `Problem.entry_step`, since a shorter step is a stricter selector.
    unrestricted : float
        Loss + ridge of the best tables without any limit, as found by at most 200 L-BFGS iterations.
    gap : float
        objective - unrestricted: what all the limits together cost.
    """

    def __init__(self, problem: Problem, point: Point, labels: np.ndarray, step: float, residual: float):
        self._problem, self._point, self._labels = problem, point, labels
        self.step, self.residual = step, residual
        self.relative_residual = residual / max(norm(point.f, problem.constraints.weights), 1e-12)
        self.objective = problem.value(point, labels)

    def __repr__(self) -> str:
        moves = "".join(f"best {name} {m} gains {gain:.2e}, " for name, (m, gain) in self._moves().items())
        return (
            f"Certificate(objective={self.objective:.8g}, relative_residual={self.relative_residual:.1e} at step "
            f"{self.step:.3g}, {moves}gap to the unrestricted fit {self.gap:.6g})"
        )

    @property
    def is_local_optimum(self) -> bool:
        """Whether no single swap, entry or move of a jump lowers the objective by more than rounding."""
        return max(gain for _, gain in self._moves().values()) <= 1e-9 * max(abs(self.objective), 1e-300)

    def _moves(self) -> dict:
        return {"swap": self.swap, "shift": self.shift, "entry": self.entry}

    @cached_property
    def swap(self) -> tuple[Swap | None, float]:
        return self._best(swaps(self._problem, self._point, self._labels, self._problem.entry_step))

    @cached_property
    def shift(self) -> tuple[Shift | None, float]:
        gradient = self._problem.objective.gradient(self._point, self._point.support)
        proposals = shifts(self._problem, self._point, self._labels, gradient)
        return self._best(islice((p for p in proposals if isinstance(p.change, Shift)), SHIFTS_TRIED))

    @cached_property
    def entry(self) -> tuple[Entry | None, float]:
        excluded = np.flatnonzero(self._problem.constraints.is_full(self._point.support))
        return self._best(entries(self._problem, self._point, self._labels, self._problem.entry_step, excluded))

    def _best(self, proposals):
        best = (None, 0.0)
        for proposal in proposals:
            *_, value = self._problem.improve(
                proposal, self._point.intercept, step=self._problem.natural_step, n_newton=NEWTON_STEPS, tol=1e-9
            )
            gain = self.objective - value
            if best[0] is None or gain > best[1]:
                best = (proposal.change, gain)
        return best

    @cached_property
    def unrestricted(self) -> float:
        from scipy.optimize import minimize  # takes longer to import than a small fit

        problem, objective = self._problem, self._problem.objective
        weights, alpha = problem.constraints.weights, problem.alpha
        everything = np.arange(objective.tables.n_tables)
        root = np.sqrt(weights)
        root = root if self._point.f.ndim == 1 else root[:, None]

        def value_and_gradient(coordinates):  # coordinates = f sqrt(w), so that the norm is the plain one
            f = np.divide(
                coordinates.reshape(self._point.f.shape), root, out=np.zeros(self._point.f.shape), where=root > 0
            )
            point = objective.point(f, everything, self._point.intercept)
            slope = objective.gradient(point) + alpha * f
            return point.loss + ridge(f, weights, alpha), (slope * root).ravel()

        found = minimize(
            value_and_gradient,
            (self._point.f * root).ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": UNRESTRICTED_ITERATIONS, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-9},
        )
        return float(found.fun)

    @property
    def gap(self) -> float:
        return self.objective - self.unrestricted
