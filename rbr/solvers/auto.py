"""The default solver: propose, refit, accept, move, finish.

(1) A proximal step from the current tables proposes features and pieces. (2) Newton's method refits within them.
(3) The result replaces the current tables only if the objective falls; otherwise the step is halved. (4) When no step
is accepted, single moves are tried (rbr.solvers.moves): jumps to better places and, where the limit on the features is
reached, an unused feature in the place of a used one. (5) The fit is finished when none of them is accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from rbr.constraints import BoundConstraints, Prox
from rbr.objective.protocol import Point
from rbr.solvers.moves import entries, resegmented, shifts, swaps
from rbr.solvers.options import Ending, RunOptions
from rbr.solvers.problem import Problem
from rbr.solvers.proposal import NONE, Proposal
from rbr.solvers.refit import norm
from rbr.solvers.screening import ScreenedGradient
from rbr.solvers.solution import Recorder
from rbr.solvers.start import Start


class Candidates:
    """The columns that are searched for pieces until none of them gains; then all columns are searched once.

    With few rows no column is screened out (rbr.solvers.screening), and if there are many columns as well, a fit would
    spend nearly all its time on searches in columns of noise. So one search of all columns chooses those with the
    largest nets as candidates.
    """

    def __init__(self, problem: Problem):
        n_features, options = problem.constraints.n_features, problem.options
        self.n_kept = max(options.min_candidates, round(options.candidate_share * n_features))
        self.is_worthwhile = 2 * self.n_kept < n_features and not problem.screen.is_enabled
        self._others = NONE  # columns that are left out

    def others(self, point: Point) -> np.ndarray:
        """The columns that are left out at a point; those that it uses never are."""
        return np.setdiff1d(self._others, point.support, assume_unique=True)

    def choose(self, problem: Problem, found: Prox) -> None:
        """Keep the columns that gained most in a search of all columns."""
        if self.is_worthwhile:
            forced = problem.constraints.forced
            is_other = ~forced if forced.sum() < self.n_kept else np.ones(len(forced), dtype=bool)
            is_other[np.argsort(-found.nets, kind="stable")[: self.n_kept]] = False
            is_other[found.support] = False
            self._others = np.flatnonzero(is_other)


@dataclass(frozen=True, eq=False)
class Attempt:
    """Something to refit, and what it must gain.

    proposal : tables and pieces; None to refit the current tables to more digits
    n_newton : Newton steps at most
    at_least : by how much the objective must fall
    enough : the refit ends when the next Newton step can be expected to gain less than this
    """

    proposal: Proposal | Prox | None
    n_newton: int
    at_least: float
    enough: float = 0.0


@dataclass(eq=False)
class State:
    """The state of a fit between two iterations, and what the current iteration has found."""

    problem: Problem
    options: RunOptions
    recorder: Recorder
    candidates: Candidates
    point: Point
    labels: np.ndarray
    value: float
    longest_step: float
    step: float
    least_descent: float
    # A fit that starts from a sample's fit has its features: their pieces are settled before other columns are read.
    pieces_first: bool
    pieces_settled: bool = False  # no other pieces were worth a refit, and only digits have changed since
    # Of the current iteration:
    gradient: ScreenedGradient = field(init=False)
    residual: float = np.inf
    is_still: bool = False  # the last proximal step changes the tables by at most `tolerance`
    is_recorded: bool = False
    is_last: bool = False
    stopped: bool = False  # by the callback
    searched: Proposal | None = None  # the used tables' pieces, searched again
    was_searched: bool = False
    refused: list[np.ndarray] = field(default_factory=list)  # labels of steps that were not accepted
    pieces_promise_enough: bool = True
    least_gain: float = 0.0
    allowed: BoundConstraints = field(init=False)
    growing: BoundConstraints = field(init=False)
    others: np.ndarray = field(init=False)

    @classmethod
    def begin(cls, problem: Problem, start: Start, options: RunOptions, recorder, candidates) -> State:
        candidates = Candidates(problem) if candidates is None else candidates
        step = problem.natural_step if options.step is None else options.step
        point, labels = start()
        value = problem.value(point, labels)
        is_from_sample = problem.objective.has_many_rows and len(point.support) > 0
        pieces_first = is_from_sample and problem.dispersion_ratio(point) <= problem.options.max_dispersion_ratio
        least_descent = problem.options.descent * abs(value)
        return cls(
            *(problem, options, recorder, candidates, point, labels, value, step, step, least_descent, pieces_first)
        )

    def look(self, is_last: bool) -> None:
        """Begin an iteration: the gradient here, and which columns a step may use."""
        problem, constraints = self.problem, self.problem.constraints
        self.gradient = problem.screen.move_to(self.point)
        self.is_last, self.is_recorded = is_last, False
        self.searched, self.was_searched, self.refused = None, False, []
        self.least_gain = problem.least_gain(self.value)
        self.pieces_promise_enough, self.pieces_settled = not self.pieces_settled, False
        self.others = self.candidates.others(self.point)
        self.allowed = constraints.excluding(self.others) if len(self.others) else constraints
        self.growing = self.allowed.of_at_most(_n_features_allowed(problem, self.point))

    @property
    def tolerance(self) -> float:
        """The norm up to which a change of the tables counts as none."""
        return self.options.tol * max(norm(self.point.f, self.problem.constraints.weights), 1e-12)

    def record(self) -> None:
        """Add a row to the history, once in an iteration; the callback sees it and may stop the fit."""
        if not self.is_recorded:
            self.is_recorded = True
            args = self.point, self.labels, self.step, self.residual, self.gradient.n_read
            self.stopped = self.recorder.record(*args)

    @property
    def is_over(self) -> bool:
        """Whether this iteration may not change anything."""
        return self.stopped or self.is_last

    @property
    def is_fixed_point(self) -> bool:
        """Whether the tables no longer change.

        A halved step changes any tables less, so the change is scaled to that of the longest step.
        """
        return self.residual * self.longest_step <= self.tolerance * self.step

    def take(self, attempt: Attempt, trial: tuple[Point, np.ndarray, float]) -> None:
        """Continue from what was accepted, with a longer step."""
        gain = self.value - trial[-1]
        self.pieces_settled = attempt.proposal is None and not self.pieces_promise_enough and gain < self.least_gain
        self.point, self.labels, self.value = trial
        self.step = min(2 * self.step, self.longest_step)


def run_auto(
    problem: Problem, start: Start, options: RunOptions, recorder: Recorder, candidates: Candidates | None = None
) -> Ending:
    """Propose by a proximal step, refit, accept if the objective falls; then single moves; finish."""
    state = State.begin(problem, start, options, recorder, candidates)
    for iteration in range(options.max_iter + 1):
        state.look(is_last=iteration == options.max_iter)
        accepted = first_accepted(state, propose(state))
        if state.is_over:
            break
        if accepted is None and options.with_moves:
            accepted = first_accepted(state, move(state))
        if accepted is None:
            break
        state.take(*accepted)
    return finish(state)


def first_accepted(state: State, attempts: Iterator[Attempt]):
    """The first attempt whose refit is accepted, with what it found; None if none is."""
    for attempt in attempts:
        trial = refit(state, attempt)
        if accept(state, attempt, trial):
            return attempt, trial
        del trial  # free its raw scores before the next attempt makes its own
    return None


def propose(state: State) -> Iterator[Attempt]:
    """Step 1: proposals of proximal steps, each half as long as the one before, and other pieces of the used tables."""
    if state.pieces_first and not state.is_last:
        yield from pieces_before_columns(state)
        if state.is_over:
            return
    max_halvings = state.problem.options.max_step_halvings
    for halving in range(max_halvings + 1):
        found = proximal_step(state)
        state.record()
        if state.is_still or state.is_over or halving == max_halvings:
            return
        if halving == 0:
            yield from careful_step(state)
            yield from pieces_searched_again(state, found)
        yield from attempt_step(state, found)
        state.step /= 2


def refit(state: State, attempt: Attempt) -> tuple[Point, np.ndarray, float]:
    """Step 2: (point, labels, value) after Newton steps within the proposed pieces."""
    problem, point = state.problem, state.point
    # With many rows a refit ends as soon as the next iteration's step would change nothing.
    share_of_tol = 0.5 if problem.objective.has_many_rows else 0.1
    until: dict[str, Any] = {
        "n_newton": attempt.n_newton,
        "target": state.value - attempt.at_least,
        "enough": attempt.enough,
        "step": state.longest_step,
        "tol": share_of_tol * state.options.tol,
    }
    if attempt.proposal is not None:
        return problem.improve(attempt.proposal, point.intercept, **until)
    known = replace(point, gradient=state.gradient.of_used)
    return problem.refitted(lambda: known, point.support, state.labels, **until)


def accept(state: State, attempt: Attempt, trial: tuple[Point, np.ndarray, float]) -> bool:
    """Step 3: whether the objective falls by more than the attempt must gain."""
    return trial[-1] < state.value - attempt.at_least


def move(state: State) -> Iterator[Attempt]:
    """Step 4: single moves when no step was accepted, and last a refit of the current tables to more digits."""
    yield from single_moves(state)
    if not state.is_fixed_point:
        yield Attempt(None, state.problem.options.newton_to_finish, at_least=0.0)


def finish(state: State) -> Ending:
    """Step 5: the point with its gradient, and whether it is a fixed point."""
    converged = state.is_fixed_point
    status = "callback" if state.stopped else "max_iter" if state.is_last else "no descent"
    point = replace(state.point, gradient=state.gradient.of_used)
    args = state.labels, state.step, state.residual, converged, "converged" if converged else status
    return Ending(point, *args)


# Proposals ----------------------------------------------------------------------------------------------------


def proximal_step(state: State) -> Prox:
    """P(f - step * gradient) with few new features at a time; if nothing changes, over all candidates, then all."""
    problem = state.problem
    found, state.residual = problem.step_from(state.gradient, state.step, state.growing)
    if state.residual <= state.tolerance and state.growing.is_limited_more_than(state.allowed):
        state.growing = state.allowed
        found, state.residual = problem.step_from(state.gradient, state.step, state.growing)
    if state.residual <= state.tolerance and len(state.others) and state.options.searches_all_columns:
        state.growing, state.others = problem.constraints, NONE
        found, state.residual = problem.step_from(state.gradient, state.step, state.growing)
    if not len(state.others):
        state.candidates.choose(problem, found)
    state.is_still = state.residual <= state.tolerance
    return found


def pieces_before_columns(state: State) -> Iterator[Attempt]:
    """The used tables' pieces, searched again before other columns are read, for as long as that promises enough."""
    search_pieces(state)
    searched = state.searched
    state.pieces_first = searched is not None and searched.promises_enough(state.least_gain)
    if searched is not None and state.pieces_first:
        state.residual = norm(searched.f - state.point.f, state.problem.constraints.weights)
        state.record()
        if not state.is_over:
            yield attempt_at(state, searched)
            state.pieces_first, state.searched = False, None  # refused


def careful_step(state: State) -> Iterator[Attempt]:
    """A proximal step at the jump cost that would apply if all that is still unexplained were noise.

    While most of that is signal of features that are yet to enter, only pieces with a large gain are worth this price;
    at the final price a table would get pieces for what other features explain later.
    """
    ratio = state.problem.dispersion_ratio(state.point)
    if ratio > state.problem.options.max_dispersion_ratio:
        careful, _ = state.problem.step_from(state.gradient, state.longest_step, state.growing, ratio)
        if not np.array_equal(careful.labels, state.labels):
            yield attempt_at(state, careful)


def pieces_searched_again(state: State, found: Prox) -> Iterator[Attempt]:
    """The used tables' pieces, searched all at once, if the step proposes no other features.

    Where the loss is a parabola, a proximal step has searched them in the same geometry; with many rows it is tried
    first all the same, since it tells what other pieces promise.
    """
    objective = state.problem.objective
    may_search = objective.has_many_rows or not objective.loss.is_parabola
    if not may_search or not np.array_equal(found.support, state.point.support):
        return
    search_pieces(state)
    if state.searched is not None:
        # The same pieces promise nothing but rounding.
        state.pieces_promise_enough = state.searched.promises_enough(max(state.least_gain, state.least_descent))
        if state.pieces_promise_enough:
            yield attempt_at(state, state.searched)


def search_pieces(state: State) -> None:
    """Search the used tables' pieces, once in an iteration."""
    if not state.was_searched:
        state.searched = resegmented(state.problem, state.point, state.labels, state.gradient.of_used)
        state.was_searched = True


def attempt_step(state: State, found: Prox) -> Iterator[Attempt]:
    """What the step found: other pieces, unless they were refused before, or a refit of the same pieces."""
    same_features = np.array_equal(found.support, state.point.support)
    if np.array_equal(found.labels, state.labels):
        yield Attempt(None, state.problem.options.newton_to_finish, at_least=0.0)
    elif state.problem.objective.has_many_rows and not state.pieces_promise_enough and same_features:
        pass  # even the best pieces promise too little
    elif not any(np.array_equal(found.labels, other) for other in state.refused):
        state.refused.append(found.labels)
        yield attempt_at(state, found)


def attempt_at(state: State, proposal: Proposal | Prox) -> Attempt:
    """An attempt at other pieces."""
    return Attempt(proposal, state.problem.options.newton_per_proposal, state.least_descent, state.least_gain)


def single_moves(state: State) -> Iterator[Attempt]:
    """Jumps to better places, then other features."""
    problem, point, labels, gradient = state.problem, state.point, state.labels, state.gradient
    least, others = max(state.least_descent, state.least_gain), state.candidates.others(point)

    def attempt(moves) -> Iterator[Attempt]:
        return (Attempt(one, problem.options.newton_per_move, least, state.least_gain) for one in moves)

    # Classes are coupled, so moves of one of them may gain where pieces of all, each by itself, do not.
    if state.pieces_promise_enough or problem.objective.n_outputs > 1:
        yield from attempt(
            islice(shifts(problem, point, labels, gradient.of_used, least), problem.options.shifts_tried)
        )
    if len(point.support) == problem.constraints.n_features:
        return
    if problem.constraints.is_full(point.support)[point.support].any():
        yield from attempt(swaps(problem, point, labels, problem.entry_step, others))
    elif problem.is_flat:
        yield from attempt(longer_steps(problem, gradient, labels, state.step))
    elif state.step < problem.entry_step:  # a shorter step is a stricter selector
        yield from attempt(entries(problem, point, labels, problem.entry_step, others))
        if len(others) and state.options.searches_all_columns:  # columns outside the candidates come last
            yield from attempt(entries(problem, point, labels, problem.entry_step))


def longer_steps(problem: Problem, gradient: ScreenedGradient, labels: np.ndarray, step: float) -> Iterator[Prox]:
    """Proposals of proximal steps that are too long for the bound on the curvature, but not for the mean curvature.

    The shortest that proposes anything new proposes the features and pieces that are most certain to be worth their
    cost.
    """
    growing = problem.constraints.of_at_most(_n_features_allowed(problem, gradient.point))
    while (step := 2 * step) <= problem.entry_step:
        found, _ = problem.step_from(gradient, step, growing)
        if not np.array_equal(found.labels, labels):
            yield found


def _n_features_allowed(problem: Problem, point: Point) -> int:
    """How many tables of each kind a step from here may use."""
    return max(problem.options.first_features, 2 * len(point.support))
