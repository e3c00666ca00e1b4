"""Algorithm 1 of the paper, and the default solver that reaches the same kind of point faster.

Both minimise loss + ridge + jump cost over the constraint set. They see tables of n_coef numbers, an
`Objective` for everything that needs rows and a `BoundConstraints` for everything that needs pieces.

The default solver proposes and refits. (1) A proximal step from the current tables proposes features and pieces.
(2) Newton refits within them (rbr.refit). (3) The result replaces the current tables only if the objective falls;
otherwise the step is halved. (4) When the step proposes what is already there, single moves are tried (rbr.moves):
jumps to better places and, where a limit on the features binds, an unused feature in the place of a used one. (5) It
ends when none of them pays.
Looks at: rbr.objective, rbr.gram, rbr.constraints, rbr.screening, rbr.refit, rbr.moves.  Seen by: rbr.estimators.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike

from rbr.certificate import Certificate
from rbr.checks import check_choice, check_int, check_nonnegative, check_real, check_vector
from rbr.constraints import DEFAULT_JUMP_COST, SHAPES, BoundConstraints, Constraints, Prox
from rbr.design import BinnedMatrix
from rbr.gram import gram_objective
from rbr.gram import pays as gram_pays
from rbr.losses import get_loss
from rbr.moves import NONE, Proposal, entries, resegmented, shifts, swaps
from rbr.objective import Objective, Point
from rbr.parallel import one_blas_thread, resolve_n_jobs
from rbr.refit import Spaces, norm, refit, ridge, settle_empty_levels
from rbr.screening import Screen, ScreenedGradient

SOLVERS = ("auto", "algorithm1")
_FREQUENCY = SHAPES.index("frequency")
KNOWN_DISPERSION = ("log_loss", "multinomial", "poisson")

# New pieces must lower the objective by this part of its first value to be accepted: more than rounding, and so much
# that separable classes, whose loss falls for ever, come to an end.
DESCENT = 1e-10
# With many rows new pieces, a single move and a further Newton step must be worth so many units of log-likelihood, or
# this part of the objective: twice as many units pass for equally good (rbr.jumps), and each costs passes over rows.
PASS_PAYS, PASS_PAYS_RELATIVE = 1.0, 1e-5
MAX_STEP_HALVINGS = 12
NEWTON_PER_PROPOSAL = 2
# Residuals that are so many times as dispersed as the noise still hold signal.
LOUD = 1.5
NEWTON_PER_MOVE = 4
FIRST_FEATURES = 4
SHIFTS_TRIED = 1
NEWTON_TO_FINISH = 12
# From so many rows on, used tables are searched anew in one go (rbr.moves.resegmented) before jumps are moved singly.
LARGE = 50_000
# Weights that make less than so many of a row are probably relative ones.
FEW_FOR_ROWS = 0.1
# A loss that curves so many times less than its bound (at the constant model) is flat.
FLAT = 2.5
# A fit begins on one row in so many, where these are enough; with which tolerance, and for how many iterations at most.
SAMPLE_SHARE = 16
MIN_SAMPLE_ROWS = 15_000
SAMPLE_TOL, SAMPLE_ITERATIONS = 1e-2, 30
# Where rows are few and columns many, a fit keeps to so many columns, or this part of them, that promise most.
MIN_CANDIDATES, CANDIDATE_SHARE = 256, 1 / 16
# Rows from which the dispersion is estimated; with more, so many of them.
MAX_DISPERSION_ROWS = 20_000
DISPERSION_ROUNDS = 4


@dataclass(frozen=True)
class Iteration:
    """One accepted iterate: what `callback` sees and `Solution.history` keeps."""

    index: int
    loss: float
    objective: float
    step: float
    support: np.ndarray
    residual: float  # how far the tables are from those that are proposed next
    columns: int  # gradient columns that were summed to propose the next one
    passes: float  # over all columns of the codes, so far
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
        Ascending indices of the used features.
    labels : int32 array in the shape of f
        The pieces: 2 * piece + is_line for each bin, -1 outside.
    loss : float
        Mean loss over the weighted rows.
    loss_path : array
        The objective (mean loss + ridge + jump cost; the mean loss alone without the two) at the start and after every
        iteration.
    converged : bool
    n_iter : int
    step_size : float
        The step at which f is a fixed point, up to `residual`.
    residual : float
        ||f - P(f - step * gradient)||_w at that step.
    dispersion : float or None
        phi, the unit of the jump cost; None where no jump cost needed it.
    history : list of Iteration
    """

    f: np.ndarray
    intercept: float | np.ndarray
    support: np.ndarray
    labels: np.ndarray
    loss: float
    loss_path: np.ndarray
    converged: bool
    n_iter: int
    step_size: float
    residual: float
    dispersion: float | None
    history: list[Iteration]
    _problem: Problem = field(repr=False)
    _point: Point = field(repr=False)

    @cached_property
    def certificate(self) -> Certificate:
        """How good the answer is; computed when first asked for, by a few passes over the data."""
        return Certificate(self._problem, self._point, self.labels, self.step_size, self.residual)


@dataclass(frozen=True, eq=False)
class Problem:
    """loss + alpha / 2 ||f||_w^2 + cost, over the constraint set."""

    objective: Objective
    constraints: BoundConstraints
    alpha: float
    scale: float  # lambda = dispersion / n
    is_large: bool = False  # so many rows that passes over them are what a fit costs

    @property
    def n_threads(self) -> int:
        return self.objective.n_threads

    def loudness(self, point: Point) -> float:
        """The dispersion around a point, in units of the one that the jump cost reckons with."""
        objective = self.objective
        if self.constraints.jump_cost == 0 or objective.loss.name in KNOWN_DISPERSION:
            return 1.0
        phi = objective.dispersion(point)
        return phi / max(self.scale * objective.n_total, 1e-300)

    @cached_property
    def screen(self) -> Screen:
        """What is known of the gradients of unused features."""
        return Screen(self.objective, self.constraints)

    def step_from(
        self,
        gradient: ScreenedGradient,
        step: float,
        constraints: BoundConstraints | None = None,
        loudness: float = 1.0,
    ) -> tuple[Prox, float]:
        """P(f - step * gradient), and how far it is from f."""
        constraints = self.constraints if constraints is None else constraints
        scale = loudness * self.scale
        found = gradient.step(constraints, step, scale, alpha=self.alpha, n_threads=self.n_threads)
        return found, norm(found.f - gradient.point.f, constraints.weights)

    def best_to_enter(self, point: Point, step: float, without: np.ndarray) -> Prox:
        """The table of the one feature that a step from zero makes worth most, of all but some."""
        gradient = self.screen.look_at(point)
        return gradient.step_of_others(
            self.constraints.with_max_features(1), step, self.scale, without, alpha=self.alpha, n_threads=self.n_threads
        )

    def cost(self, labels: np.ndarray, support: np.ndarray) -> float:
        """The jump cost of tables with the given pieces."""
        return self.constraints.cost(labels, support, self.scale)

    def value(self, point: Point, labels: np.ndarray) -> float:
        return point.loss + ridge(point.f, self.constraints.weights, self.alpha) + self.cost(labels, point.support)

    def worth_a_pass(self, value: float) -> float:
        """What a change must gain with many rows, where trying it costs passes over all of them; 0 with few."""
        return min(PASS_PAYS * self.scale, PASS_PAYS_RELATIVE * abs(value)) if self.is_large else 0.0

    @cached_property
    def is_flat(self) -> bool:
        """Whether the loss curves far less than its bound allows: rare classes, quantiles.

        A step that is safe for the bound is then too short to tell which features and pieces pay.
        """
        bound = self.objective.loss.curvature_bound()
        return bound is not None and FLAT * self.objective.constant_curvature < bound

    @cached_property
    def entry_step(self) -> float:
        """The step at which features are tested one by one: 1 / curvature bound.

        A loss without a bound, or far below it, lends its mean curvature at the constant model.
        """
        bound = self.objective.loss.curvature_bound()
        return 1.0 / (self.objective.constant_curvature if bound is None or self.is_flat else bound)

    @cached_property
    def natural_step(self) -> float:
        """The longest step that is safe for one table alone: 1 / (curvature bound * stretch of the geometry).

        With `counts` weights a block X_j is an isometry and the stretch is 1; with `uniform` ones it is the largest
        share of a bin over its weight.
        """
        weights = self.constraints.weights
        shares = self.objective.design.with_weights("counts").weights
        stretch = np.divide(shares, weights, out=np.ones_like(shares), where=weights > 0).max(initial=1.0)
        bound = self.objective.loss.curvature_bound()
        return 1.0 / (float(stretch) * (self.objective.constant_curvature if bound is None else bound))

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
        """(point, labels, value) after a refit of a point within its pieces; given up far above a target.

        `until` holds step, tol and enough of `refit`. The point is refit's alone, so that its raw scores are gone when
        there are better ones.
        """
        options = {"alpha": self.alpha, "max_newton": n_newton, "target": target - self.cost(labels, support), **until}
        point, labels = refit(self.objective, self.constraints, make_point(), labels, spaces=self._spaces, **options)
        return point, labels, self.value(point, labels)


class _Recorder:
    """Keeps one row per iteration, prints it, and lets the callback stop the fit."""

    def __init__(self, problem: Problem, verbose: int, callback, rows: Objective | None = None):
        self.problem, self.verbose, self.callback = problem, verbose, callback
        self.rows = problem.objective if rows is None else rows  # whose columns are counted
        self.history: list[Iteration] = []
        self.start = time.perf_counter()

    def record(self, point: Point, labels: np.ndarray, step: float, residual: float, columns: int) -> bool:
        """Whether the callback asks to stop."""
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


# A point and its labels, made when they are asked for: who is handed one keeps its raw scores for as long as he runs.
Start = Callable[[], tuple[Point, np.ndarray]]


def _run_algorithm1(problem: Problem, start: Start, step: float | None, max_iter: int, tol: float, recorder):
    """f <- P(f - mu grad) with a fixed step mu (paper, Algorithm 1)."""
    objective, weights = problem.objective, problem.constraints.weights
    step = problem.natural_step if step is None else step
    point, labels = start()
    for iteration in range(max_iter + 1):
        gradient = problem.screen.move_to(point)
        found, residual = problem.step_from(gradient, step)
        converged = residual <= tol * max(norm(point.f, weights), 1e-12)
        stop = recorder.record(point, labels, step, residual, gradient.n_read)
        if stop or iteration == max_iter or (converged and tol > 0):
            break
        point = objective.point(found.f, found.support, point.intercept)
        labels = found.labels
    return replace(point, gradient=gradient.of_used), labels, step, residual, converged


class Candidates:
    """The columns that are searched for pieces until they have no more to offer; then all are, and chosen from anew.

    Where rows are few no column is left out by bounds (rbr.screening), and where columns are many besides, nearly all
    of a fit went into searches in columns of noise. The nets of one search of all columns tell which promise most.
    """

    def __init__(self, problem: Problem):
        n_features = problem.constraints.n_features
        self.n_kept = max(MIN_CANDIDATES, round(CANDIDATE_SHARE * n_features))
        self.is_worthwhile = 2 * self.n_kept < n_features and not problem.screen.is_worthwhile
        self._others = NONE  # columns that are left out

    def others(self, point: Point) -> np.ndarray:
        """The columns that are left out at a point: none that it uses."""
        return np.setdiff1d(self._others, point.support, assume_unique=True)

    def choose(self, problem: Problem, found: Prox) -> None:
        """Keep the columns that gained most in a search of all."""
        if self.is_worthwhile:
            forced = problem.constraints.forced
            is_other = ~forced if forced.sum() < self.n_kept else np.ones(len(forced), dtype=bool)
            is_other[np.argsort(-found.nets, kind="stable")[: self.n_kept]] = False
            is_other[found.support] = False
            self._others = np.flatnonzero(is_other)


def _run_auto(
    problem: Problem,
    start: Start,
    step: float | None,
    max_iter: int,
    tol: float,
    recorder,
    *,
    with_moves: bool = True,
    candidates: Candidates | None = None,
    looks_at_all: bool = True,
):
    """Propose by a proximal step, refit, accept if the objective falls; then single moves.

    Without `looks_at_all` the candidates have the last word, once they are chosen.
    """
    constraints = problem.constraints
    candidates = Candidates(problem) if candidates is None else candidates
    weights, limit = constraints.weights, constraints.max_features
    step = longest = problem.natural_step if step is None else step
    point, labels = start()
    value = problem.value(point, labels)
    least_descent = DESCENT * abs(value)

    # With many rows a refit ends as soon as the test at the top of the loop will be passed.
    refits = {"step": longest, "tol": (0.5 if problem.is_large else 0.1) * tol}

    def accept(proposal, n_newton, by_at_least=least_descent, enough=0.0):
        """The refitted proposal if the objective falls by enough, else None."""
        target = value - by_at_least
        new = problem.improve(proposal, point.intercept, n_newton=n_newton, target=target, enough=enough, **refits)
        return new if new[-1] < target else None

    def finished(gradient):
        """The point after more Newton steps if the objective falls, else None."""
        known = replace(point, gradient=gradient.of_used)
        new = problem.refitted(lambda: known, point.support, labels, n_newton=NEWTON_TO_FINISH, target=value, **refits)
        return new if new[-1] < value else None

    # A fit that comes from a sample has its features: their pieces are settled before other columns are read, unless
    # there is still signal of others.
    pieces_first = problem.is_large and len(point.support) > 0 and problem.loudness(point) <= LOUD
    is_settled = False  # whether no other pieces paid, and nothing has changed since but digits
    for iteration in range(max_iter + 1):
        gradient = problem.screen.move_to(point)
        nearly_still = tol * max(norm(point.f, weights), 1e-12)
        others = candidates.others(point)
        allowed = constraints.excluding(others) if len(others) else constraints
        growing = allowed.with_max_features(_at_a_time(constraints, point))
        new, refused, searched = None, [], None
        pays, pieces_pay, is_settled = problem.worth_a_pass(value), not is_settled, False
        if pieces_first and iteration < max_iter:
            searched = resegmented(problem, point, labels, gradient.of_used)
            pieces_first = searched is not None and searched.pays(pays)
            if pieces_first:
                residual, converged = norm(searched.f - point.f, weights), False
                if recorder.record(point, labels, step, residual, gradient.n_read):
                    break
                new = accept(searched, NEWTON_PER_PROPOSAL, enough=pays)
                pieces_first = new is not None
                point, labels, value = (point, labels, value) if new is None else new
                continue
        for halving in range(MAX_STEP_HALVINGS + 1):
            found, residual = problem.step_from(gradient, step, growing)
            if residual <= nearly_still and growing.max_features != limit:
                growing = allowed
                found, residual = problem.step_from(gradient, step, growing)
            if residual <= nearly_still and len(others) and looks_at_all:
                growing, others = constraints, NONE
                found, residual = problem.step_from(gradient, step, growing)
            if not len(others):
                candidates.choose(problem, found)
            converged = residual <= nearly_still
            if halving == 0:
                stop = recorder.record(point, labels, step, residual, gradient.n_read) or iteration == max_iter
            if converged or stop or halving == MAX_STEP_HALVINGS:
                break
            if halving == 0 and (loudness := problem.loudness(point)) > LOUD:
                # Most of what is left is still signal of other features. At the price of noise so loud a table takes
                # only what is surely its own; at the final price it would buy pieces for what others explain later.
                careful, _ = problem.step_from(gradient, longest, growing, loudness)
                if not np.array_equal(careful.labels, labels):
                    new = accept(careful, NEWTON_PER_PROPOSAL, enough=pays)
                    if new is not None:
                        break
            may_search = problem.is_large or problem.is_flat
            if may_search and halving == 0 and np.array_equal(found.support, point.support):
                if searched is None:
                    searched = resegmented(problem, point, labels, gradient.of_used)
                if searched is not None:
                    pieces_pay = searched.pays(pays)
                    new = accept(searched, NEWTON_PER_PROPOSAL, enough=pays) if pieces_pay else None
                if new is not None:
                    break
            if np.array_equal(found.labels, labels):
                new = finished(gradient)
                is_settled = new is not None and not pieces_pay and value - new[-1] < pays
            elif problem.is_large and not pieces_pay and np.array_equal(found.support, point.support):
                pass  # the best pieces of all promise too little, so these do
            elif not any(np.array_equal(found.labels, other) for other in refused):
                new = accept(found, NEWTON_PER_PROPOSAL, enough=pays)
                refused.append(found.labels)
            if new is not None:
                break
            step /= 2
        if stop:
            break
        if new is None and with_moves:
            least = max(least_descent, pays)
            others = candidates.others(point)
            moves = single_moves(problem, gradient, labels, step, least, pieces_pay, others, looks_at_all)
            tried = (accept(move, NEWTON_PER_MOVE, least, enough=pays) for move in moves)
            new = next((n for n in tried if n is not None), None)
        if new is None:
            break
        point, labels, value = new
        step = min(2 * step, longest)
    return replace(point, gradient=gradient.of_used), labels, step, residual, converged


def single_moves(
    problem: Problem,
    gradient: ScreenedGradient,
    labels: np.ndarray,
    step: float,
    least: float,
    pieces_pay: bool,
    others: np.ndarray,
    looks_at_all: bool,
) -> Iterator[Proposal]:
    """What is tried when the proximal step proposes nothing new: jumps to better places, then other features.

    Features that are no candidates enter last, and in nobody's place.
    """
    point = gradient.point
    if pieces_pay:
        yield from islice(shifts(problem, point, labels, gradient.of_used, least), SHIFTS_TRIED)
    if len(point.support) == problem.constraints.n_features:
        return
    if len(point.support) == problem.constraints.max_features:
        yield from swaps(problem, point, labels, problem.entry_step, others)
    elif problem.is_flat:
        yield from longer_steps(problem, gradient, labels, step)
    elif step < problem.entry_step:  # a shorter step is a stricter selector
        yield from entries(problem, point, labels, problem.entry_step, others)
        if len(others) and looks_at_all:
            yield from entries(problem, point, labels, problem.entry_step)


def longer_steps(problem: Problem, gradient: ScreenedGradient, labels: np.ndarray, step: float) -> Iterator[Prox]:
    """What proximal steps propose that are too long for the bound on the curvature, but not for the mean curvature.

    The least of them that proposes anything takes the features and pieces that are surest to pay.
    """
    growing = problem.constraints.with_max_features(_at_a_time(problem.constraints, gradient.point))
    while (step := 2 * step) <= problem.entry_step:
        found, _ = problem.step_from(gradient, step, growing)
        if not np.array_equal(found.labels, labels):
            yield found


def _at_a_time(constraints: BoundConstraints, point: Point) -> int:
    """How many features a step from here may use.

    At the start every table can explain much of y alone; let few in at a time, and each finds its own share.
    """
    n_features = max(FIRST_FEATURES, 2 * len(point.support))
    return n_features if constraints.max_features is None else min(constraints.max_features, n_features)


_RUNNERS = {"auto": _run_auto, "algorithm1": _run_algorithm1}


@one_blas_thread()
def solve(
    B: BinnedMatrix,
    y: ArrayLike,
    *,
    loss="squared_error",
    constraints: Constraints | None = None,
    sample_weight: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    alpha: float = 0.0,
    solver: str = "auto",
    step_size: float | str = "auto",
    max_iter: int = 200,
    tol: float = 1e-5,
    warm_start: ArrayLike | None = None,
    dispersion: float | None = None,
    callback: Callable[[Iteration], bool | None] | None = None,
    verbose: int = 0,
    n_jobs: int | None = None,
) -> Solution:
    """Fit tables to y: minimise the mean loss over the constraint set.

    Parameters
    ----------
    B : BinnedMatrix
    y : array of shape (n_rows,)
        For "log_loss" labels 0 and 1, for "multinomial" class codes 0, 1, ….
    loss : str or a loss of rbr.losses
        "squared_error", "log_loss", "multinomial", "poisson", "gamma", "tweedie", "huber" or "quantile".
    constraints : Constraints, optional
        By default constant pieces at the default jump cost, without a limit on the features.
    sample_weight : array of shape (n_rows,), optional
        An integer weight stands for repeated rows; rows of weight zero are left out.
    offset : array of shape (n_rows,), optional
        Added to every raw prediction.
    alpha : float
        Ridge penalty alpha / 2 ||f||_w^2.
    solver : {"auto", "algorithm1"}
    step_size : float or "auto"
        Of Algorithm 1 the fixed step mu ("auto": the longest that is safe for one table alone, 1 for squared
        error); of the default solver its first step.
    max_iter : int
    tol : float
        Stops when a step changes the tables by at most tol * ||f||_w; 0 runs all max_iter steps of Algorithm 1.
    warm_start : array of shape (n_coef,), optional
        Tables to start from, brought into the constraint set first; zero by default.
    dispersion : float, optional
        phi, the unit of the jump cost, as an earlier solution reported it. By default 1 for log_loss, multinomial
        and poisson, and otherwise estimated (see `estimate_dispersion`).
    callback : callable, optional
        Called with an `Iteration` after each iteration; a true return value stops the fit.
    verbose : int
        1 prints a line per iteration.
    n_jobs : int, optional
        Threads; the result does not depend on their number.

    Returns
    -------
    Solution

    Examples
    --------
    >>> import numpy as np
    >>> import rbr
    >>> x = np.repeat([0, 1, 2, 3], 25)
    >>> B = rbr.BinnedMatrix([x, np.tile([0, 1], 50)], offsets=[0, 4, 6])
    >>> y = np.where(x >= 2, 3.0, 1.0)
    >>> s = rbr.solve(B, y, constraints=rbr.Constraints(max_features=1, max_segments=2))
    >>> s.support, s.f[:4].round(12), round(s.intercept, 12)
    (array([0]), array([-1., -1.,  1.,  1.]), 2.0)
    """
    if not isinstance(B, BinnedMatrix):
        raise TypeError(f"B is a {type(B).__name__}; it must be a BinnedMatrix, as Binner.transform makes it")
    check_choice(solver, "solver", SOLVERS)
    if step_size != "auto":
        check_real(step_size, "step_size", 0.0, strict=True)
    check_int(max_iter, "max_iter", 1)
    check_real(tol, "tol", 0.0)
    check_real(alpha, "alpha", 0.0)
    if dispersion is not None:
        check_real(dispersion, "dispersion", 0.0)
    if constraints is None:
        constraints = Constraints(jump_cost=DEFAULT_JUMP_COST)
    elif not isinstance(constraints, Constraints):
        raise TypeError(f"constraints is a {type(constraints).__name__}; it must be a Constraints")
    objective = make_objective(B, y, loss, sample_weight, offset, resolve_n_jobs(n_jobs))
    design = objective.design
    bound = constraints.bind(design.offsets, design.weights, missing=design.missing, positions=design.positions)
    if bound.jump_cost > 0 and objective.n_total < FEW_FOR_ROWS * design.n_rows:
        warnings.warn(
            f"sample_weight sums to {objective.n_total:.3g} over {design.n_rows} rows; a weight says how many rows a "
            "row stands for, and so few hardly pay for a piece at this jump cost: scale the weights to mean 1 if they "
            "are relative ones",
            stacklevel=2,
        )
    if dispersion is None and bound.jump_cost > 0:
        dispersion = estimate_dispersion(objective, bound)
    scale = (dispersion or 0.0) / objective.n_total
    problem = Problem(objective, bound, float(alpha), scale, is_large=design.n_rows > LARGE)
    step = None if step_size == "auto" else float(step_size)
    by_gram = solver == "auto" and problem.is_large and gram_pays(objective)
    solved = replace(problem, objective=gram_objective(objective)) if by_gram else problem
    may_sample = solver == "auto" and warm_start is None and not by_gram

    def start():
        return (_start_on_sample(problem, step) if may_sample else None) or _start(solved, warm_start)

    recorder = _Recorder(solved, verbose, callback, rows=objective)
    point, labels, step_size, residual, converged = _RUNNERS[solver](solved, start, step, max_iter, tol, recorder)
    if by_gram:
        point = replace(objective.point(point.f, point.support, point.intercept), gradient=point.gradient)
    if not converged and tol > 0:
        from sklearn.exceptions import ConvergenceWarning

        size = max(norm(point.f, bound.weights), 1e-12)
        warnings.warn(
            f"not converged after {len(recorder.history) - 1} iterations: a step of {step_size:.3g} still moves the "
            f"tables by {residual / size:.2e} of their norm, and tol is {tol:.2e}; raise max_iter, or tol",
            ConvergenceWarning,
            stacklevel=2,
        )
    return Solution(
        f=settle_empty_levels(bound, point.f),
        intercept=point.intercept,
        support=point.support,
        labels=labels,
        loss=point.loss,
        loss_path=np.array([row.objective for row in recorder.history]),
        converged=converged,
        n_iter=len(recorder.history) - 1,
        step_size=step_size,
        residual=residual,
        dispersion=dispersion,
        history=recorder.history,
        _problem=problem,
        _point=point,
    )


def make_objective(B: BinnedMatrix, y, loss, sample_weight, offset, n_threads: int) -> Objective:
    """Check what a user gave, leave out rows of weight zero, and join design, loss and weights."""
    loss = get_loss(loss)
    n_rows = B.n_rows
    if n_rows == 0:
        raise ValueError("B has no rows; at least one is needed")
    if np.ndim(y) == 1 and len(y) != n_rows:
        raise ValueError(f"y has length {len(y)}, but B has {n_rows} rows; they must agree")
    if sample_weight is None:
        v, n_total, used = np.full(n_rows, 1.0 / n_rows), float(n_rows), None
    else:
        given = check_nonnegative(sample_weight, n_rows, "sample_weight")
        if not given.any():
            raise ValueError("sample_weight is all zero; at least one row must have a positive weight")
        n_total = float(given.sum())
        v, used = given / n_total, given > 0
    y = loss.validate(y, v)
    if offset is not None:
        offset = _check_offset(offset, n_rows, loss.n_outputs(y))
    if used is not None:
        if not used.all():
            B, y, v, given = B[used], y[used], np.ascontiguousarray(v[used]), given[used]
            offset = None if offset is None else offset[used]
        B = B.with_weights(B.weights_kind, sample_weight=given)
    loss = loss.prepare(y, v, offset)
    return Objective(B, y, loss, row_weights=v, n_total=n_total, offset=offset, n_threads=n_threads)


def _check_offset(offset, n_rows: int, n_outputs: int) -> np.ndarray:
    if n_outputs == 1:
        return check_vector(offset, n_rows, "offset")
    offset = np.asarray(offset, dtype=np.float64)
    if offset.shape != (n_rows, n_outputs) or not np.isfinite(offset).all():
        raise ValueError(f"offset has shape {offset.shape}; it must be finite and of shape ({n_rows}, {n_outputs})")
    return offset


def _start(problem: Problem, warm_start, intercept=None) -> tuple[Point, np.ndarray]:
    """The point of the zero tables, or of given tables brought into the constraint set; near an intercept if known."""
    objective, bound = problem.objective, problem.constraints
    tables = objective.zero_tables()
    nothing = np.full(tables.shape, -1, dtype=np.int32)
    if warm_start is None:
        return objective.point(tables, np.zeros(0, dtype=np.int64)), nothing
    given = np.asarray(warm_start, dtype=np.float64)
    if given.shape != tables.shape:
        raise ValueError(f"warm_start has shape {given.shape}; the tables have shape {tables.shape}")
    given = check_vector(given.ravel(), given.size, "warm_start").reshape(given.shape)
    # So short a step leaves tables as they are, and describes them by no more pieces than they have.
    found = bound.prox(given, 1e-9 * problem.natural_step, problem.scale, n_threads=problem.n_threads)
    return objective.point(found.f, found.support, intercept), found.labels


def _start_on_sample(problem: Problem, step: float | None) -> tuple[Point, np.ndarray] | None:
    """Where a fit on one row in sixteen ends (which may itself start on one in sixteen of those), or None.

    On the sample the jump cost is that of its own number of rows: at the price of all rows noise would look worth
    having. Nothing is found where a sample would be small, lacks a class, or beats no constant model on all rows; nor
    where pieces that suit the sample could not be searched anew on all rows (classes), or where the bins of a sample do
    not weigh the same, as frequencies demand.
    """
    whole = problem.objective
    n_rows = whole.design.n_rows // SAMPLE_SHARE
    if n_rows < MIN_SAMPLE_ROWS or whole.n_outputs > 1 or (problem.constraints.shapes == _FREQUENCY).any():
        return None
    objective = whole.sample(n_rows)
    try:
        objective.loss.validate(objective.y)
    except ValueError:
        return None
    sample = Problem(
        objective,
        problem.constraints.on(objective.design.weights),
        problem.alpha,
        problem.scale * whole.n_total / objective.n_total,
        is_large=True,
    )

    def start_of_sample():
        return _start_on_sample(sample, step) or _start(sample, None)

    recorder = _Recorder(sample, 0, None)
    found, *_ = _run_auto(sample, start_of_sample, step, SAMPLE_ITERATIONS, SAMPLE_TOL, recorder, with_moves=False)
    whole.count_work_of(objective)
    start, labels = _start(problem, found.f, found.intercept)
    return (start, labels) if problem.value(start, labels) < whole.constant_loss else None


def estimate_dispersion(objective: Objective, constraints: BoundConstraints) -> float:
    """phi, the unit of the jump cost: the variance that is left when a good model has been taken out.

    1 where the loss knows its variance (log_loss, multinomial, poisson). Otherwise, from at most 20,000 rows: start
    with the dispersion around the constant model; fit at the default jump cost without limits, from zero; take the
    dispersion around that fit, corrected for its degrees of freedom; repeat until it moves by less than 5%, at most
    four times. A place that was searched for has cost more than the number that stands there, so the code
    length of the fit counts among its degrees of freedom, and a fit that spends more than half of the rows in this way
    is not believed; else a small table fits its own noise, finds little left, and goes on to fit more. It depends on
    data, loss and shapes, not on a step, a limit or a start.
    """
    loss = objective.loss
    if loss.name in KNOWN_DISPERSION:
        return 1.0
    n_rows = objective.design.n_rows
    if n_rows > MAX_DISPERSION_ROWS:
        objective = objective.sample(MAX_DISPERSION_ROWS)
        constraints = constraints.on(objective.design.weights)
    constraints = constraints.without_limits(DEFAULT_JUMP_COST)
    y, v, n = objective.y, objective.row_weights, objective.n_total
    point = objective.point(objective.zero_tables(), np.zeros(0, dtype=np.int64))
    start = point, np.full(point.f.shape, -1, dtype=np.int32)
    phi = loss.dispersion(y, point.raw, v, n, 1.0)
    candidates = None
    for _ in range(DISPERSION_ROUNDS):
        problem = Problem(objective, constraints, 0.0, phi / n)
        candidates = Candidates(problem) if candidates is None else candidates
        recorder = _Recorder(problem, 0, None)
        options = {"candidates": candidates, "looks_at_all": False}
        point, labels, *_ = _run_auto(problem, lambda: start, None, 30, 1e-3, recorder, **options)
        df = 1.0 + constraints.degrees_of_freedom(labels, point.support)
        df += constraints.with_jump_cost(1.0).cost(labels, point.support, 1.0)
        if df > n / 2:
            break
        previous, phi = phi, loss.dispersion(y, point.raw, v, n, df)
        if abs(phi - previous) <= 0.05 * previous:
            break
    return phi
