"""The result of a fit, and the record of its iterations."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rbr.objective.protocol import Point, Work
from rbr.solvers.certificate import Certificate
from rbr.solvers.problem import Problem
from rbr.solvers.refit import settle_empty_levels

if TYPE_CHECKING:
    from rbr.solvers.lines import Lines
    from rbr.solvers.options import Ending


@dataclass(frozen=True)
class Iteration:
    """One accepted iterate: what `callback` sees and `Solution.history` keeps."""

    index: int
    loss: float
    objective: float
    step: float
    support: np.ndarray
    residual: float  # how far the tables are from those that are proposed next
    columns: int  # gradient columns that were summed to propose the next tables
    passes: float  # full passes over the codes so far
    seconds: float


@dataclass(frozen=True, eq=False)
class Solution:
    """The result of `solve`.

    Attributes
    ----------
    f : array of shape (n_coef,) or (n_coef, n_classes)
        The tables; they satisfy the constraints exactly.
    intercept : float, or array of shape (n_classes,)
    support : array of int
        Ascending indices of the used tables.
    labels : int32 array in the shape of f
        The pieces: 2 * piece + is_line for each bin, -1 outside.
    loss : float
        Mean loss over the weighted rows.
    loss_path : array
        The objective (mean loss + ridge + jump cost; the mean loss alone without the two) at the start and after every
        iteration.
    converged : bool
        Whether a step of the solver's first length, from the pieces that were found, would change the tables by at
        most tol * ||f||_w.
    status : {"converged", "no descent", "max_iter", "callback", "average"}
        Why the fit ended. "no descent": nothing that was proposed lowers the objective any more. "average": the tables
        are a projected average, over all ways to cut them or of fits on bags, which is no fixed point.
    n_iter : int
    step_size : float
        The step at which f is a fixed point, up to `residual`.
    residual : float
        ||f - P(f - step * gradient)||_w at that step.
    dispersion : float or None
        phi, the unit of the jump cost; None where no jump cost needed it.
    history : list of Iteration
    problem : Problem
        What was minimised: the objective, the constraints on its tables, the penalties.
    point : Point
        Where the fit ended, as the objective knows it.
    lines : Lines or None
        The slopes of lines in x, once they are drawn (`rbr.solvers.lines`).
    way : str or None
        How the features of an average over all ways to cut were chosen (`rbr.solvers.averages.WAYS`).
    """

    f: np.ndarray
    intercept: float | np.ndarray
    support: np.ndarray
    labels: np.ndarray
    loss: float
    loss_path: np.ndarray
    converged: bool
    status: str
    n_iter: int
    step_size: float
    residual: float
    dispersion: float | None
    history: list[Iteration]
    problem: Problem = field(repr=False)
    point: Point = field(repr=False)
    lines: Lines | None = field(repr=False, default=None)
    way: str | None = None

    @classmethod
    def of(cls, problem: Problem, ending: Ending, history: list[Iteration], dispersion: float | None) -> Solution:
        """The solution of a problem at the end of a run."""
        point = ending.point
        return cls(
            f=settle_empty_levels(problem.constraints, point.f),
            intercept=point.intercept,
            support=point.support,
            labels=ending.labels,
            loss=point.loss,
            loss_path=np.array([row.objective for row in history]),
            converged=ending.converged,
            status=ending.status,
            n_iter=len(history) - 1,
            step_size=ending.step,
            residual=ending.residual,
            dispersion=dispersion,
            history=history,
            problem=problem,
            point=point,
        )

    @property
    def work(self) -> Work:
        """Counts of the work done: columns read (over all rows), gradients and Newton steps."""
        return self.problem.objective.work

    @property
    def n_passes(self) -> float:
        """Full passes over the codes: columns read over number of columns."""
        return self.problem.objective.n_passes

    @cached_property
    def certificate(self) -> Certificate:
        """How good the solution is; its parts are computed on first access, by passes over the data."""
        return Certificate(self.problem, self.point, self.labels, self.step_size, self.residual)


class Recorder:
    """Keeps one row per iteration, prints it, and lets the callback stop the fit."""

    def __init__(
        self, problem: Problem, verbose: int = 0, callback: Callable[[Iteration], bool | None] | None = None, rows=None
    ):
        self.problem, self.verbose, self.callback = problem, verbose, callback
        self.rows = problem.objective if rows is None else rows  # the objective whose passes are counted
        self.history: list[Iteration] = []
        self.start = time.perf_counter()

    def record(self, point: Point, labels: np.ndarray, step: float, residual: float, columns: int) -> bool:
        """Add a row to the history; returns whether the callback asks to stop."""
        row = Iteration(
            index=len(self.history),
            loss=point.loss,
            objective=self.problem.value(point, labels),
            step=step,
            support=point.support,
            residual=residual,
            columns=columns,
            passes=self.rows.n_passes,
            seconds=time.perf_counter() - self.start,
        )
        self.history.append(row)
        if self.verbose:
            if row.index == 0:
                print("  iter    objective         loss  features       step   residual  columns   passes   seconds")
            print(
                f"{row.index:6d} {row.objective:12.6g} {row.loss:12.6g} {len(row.support):9d} {row.step:10.3g} "
                f"{row.residual:10.2e} {row.columns:8d} {row.passes:8.1f} {row.seconds:9.2f}"
            )
        return self.callback is not None and bool(self.callback(row))
