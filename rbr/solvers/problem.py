"""The problem that a solver solves: loss + ridge + jump cost over the constraint set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rbr._options import SolverOptions
from rbr.constraints import BoundConstraints, Prox
from rbr.objective.protocol import Objective, Point
from rbr.solvers.proposal import Proposal
from rbr.solvers.refit import norm, penalty, refit
from rbr.solvers.screening import Screen, ScreenedGradient
from rbr.solvers.space import Spaces


@dataclass(frozen=True, eq=False)
class Problem:
    """Minimise loss + alpha / 2 ||f||_w^2 + roughness of surfaces + cost over the constraint set.

    Attributes
    ----------
    objective : Objective
    constraints : BoundConstraints
        On the objective's tables.
    alpha : float
        Ridge penalty.
    scale : float
        lambda = dispersion / n, the unit of the jump cost.
    """

    objective: Objective
    constraints: BoundConstraints
    alpha: float
    scale: float

    @property
    def options(self) -> SolverOptions:
        return self.objective.options

    @property
    def n_threads(self) -> int:
        return self.objective.n_threads

    # The objective function -----------------------------------------------------------------------------------

    def cost(self, labels: np.ndarray, support: np.ndarray) -> float:
        """The jump cost of tables with the given pieces."""
        return self.constraints.cost(labels, support, self.scale)

    def value(self, point: Point, labels: np.ndarray) -> float:
        """Loss + ridge + roughness + jump cost."""
        return point.loss + penalty(point.f, self.constraints, self.alpha) + self.cost(labels, point.support)

    def dispersion_ratio(self, point: Point) -> float:
        """The dispersion around a point over phi, the unit of the jump cost."""
        objective = self.objective
        if self.constraints.jump_cost == 0 or objective.loss.has_known_dispersion:
            return 1.0
        return objective.dispersion(point) / max(self.scale * objective.n_total, 1e-300)

    def least_gain(self, value: float) -> float:
        """The least gain worth a trial: with many rows a trial costs passes over all of them; 0 with few rows."""
        if not self.objective.has_many_rows:
            return 0.0
        return min(self.options.least_gain * self.scale, self.options.least_relative_gain * abs(value))

    # Steps ----------------------------------------------------------------------------------------------------

    @cached_property
    def is_flat(self) -> bool:
        """Whether the loss curves far less than its bound allows: rare classes, quantiles.

        A step that is safe for the bound is then too short to tell which features and pieces are worth their cost.
        """
        bound = self.objective.loss.curvature_bound()
        return bound is not None and self.options.flat * self.objective.constant_curvature < bound

    @cached_property
    def entry_step(self) -> float:
        """The step at which features are tested one by one: 1 / curvature bound.

        For a loss without a bound, or far below it, the mean curvature at the constant model takes its place.
        """
        bound = self.objective.loss.curvature_bound()
        return 1.0 / (self.objective.constant_curvature if bound is None or self.is_flat else bound)

    @cached_property
    def natural_step(self) -> float:
        """The longest step that is safe for one table alone: 1 / (curvature bound * stretch of the geometry).

        With `counts` weights a block X_j is an isometry and the stretch is 1; with `uniform` ones it is the largest
        share of a bin over its weight.
        """
        stretch = float(self.objective.tables.stretch.max(initial=1.0))
        bound = self.objective.loss.curvature_bound()
        return 1.0 / (stretch * (self.objective.constant_curvature if bound is None else bound))

    @cached_property
    def screen(self) -> Screen:
        """What is known of the gradients of unused features."""
        return Screen(self.objective, self.constraints)

    def step_from(
        self,
        gradient: ScreenedGradient,
        step: float,
        constraints: BoundConstraints | None = None,
        dispersion_ratio: float = 1.0,
    ) -> tuple[Prox, float]:
        """P(f - step * gradient), and how far it is from f."""
        constraints = self.constraints if constraints is None else constraints
        scale = dispersion_ratio * self.scale
        found = gradient.step(constraints, step, scale, alpha=self.alpha, n_threads=self.n_threads)
        return found, norm(found.f - gradient.point.f, constraints.weights)

    def best_to_enter(self, point: Point, step: float, without: np.ndarray) -> Prox:
        """The table of the one feature outside `without` that gains most by a proximal step from zero."""
        gradient = self.screen.look_at(point)
        return gradient.step_of_others(
            self.constraints.of_best(), step, self.scale, without, alpha=self.alpha, n_threads=self.n_threads
        )

    # Refits ---------------------------------------------------------------------------------------------------

    @cached_property
    def _spaces(self) -> Spaces:
        return Spaces()

    def improve(self, proposal: Proposal | Prox, intercept, **until) -> tuple[Point, np.ndarray, float]:
        """(point, labels, value) after a refit of proposed tables within their pieces; `until` as in `refitted`."""
        if isinstance(proposal, Proposal):
            intercept = intercept + proposal.intercept_move
        f, support = proposal.f, proposal.support
        return self.refitted(lambda: self.objective.point(f, support, intercept), support, proposal.labels, **until)

    def refitted(
        self,
        make_point: Callable[[], Point],
        support: np.ndarray,
        labels: np.ndarray,
        *,
        n_newton: int,
        target: float = np.inf,
        **until,
    ) -> tuple[Point, np.ndarray, float]:
        """(point, labels, value) after a refit of a point within its pieces; it ends early if it cannot reach `target`.

        `until` holds step, tol and enough of `refit`. `make_point` is a callable, so that only the refit holds a
        reference to the point and its raw scores are freed at the first accepted step.
        """
        options = {"alpha": self.alpha, "max_newton": n_newton, "target": target - self.cost(labels, support), **until}
        point, labels = refit(self.objective, self.constraints, make_point(), labels, spaces=self._spaces, **options)
        return point, labels, self.value(point, labels)
