"""Screening: the same iterates to the bit from fewer columns, with bounds that hold and are not much too large."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import assert_same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import LOSSES, SHAPES, WEIGHTINGS, make_design, make_target, objective_of, with_even_bins

import rbr
from rbr import SolverOptions
from rbr.constraints import BoundConstraints, Constraints
from rbr.losses import get_loss
from rbr.objective import RowObjective
from rbr.solvers.screening import Screen

N_BINS = (6, 5, 4, 7, 3) * 5
PRICED = (0.0, 0.1)


SCREENED, READ_WHOLE = SolverOptions(screened_rows=0), SolverOptions(screened_rows=np.inf)


def problem_of(loss, weighting, shape, jump_cost, max_features, seed=0, greedy=False, min_rows=0):
    """(design, arguments of solve) with 25 features, of which four matter."""
    if shape == "frequency":
        design = with_even_bins(seed, n_rows=840, n_bins=(6, 5, 4, 8, 3) * 5).with_weights("uniform")
    else:
        design = make_design(seed, n_rows=300, n_bins=N_BINS).with_weights(weighting)
    segmentation = "greedy" if greedy else "exact"
    limits = {"jump_cost": jump_cost, "segmentation": segmentation, "min_rows": min_rows}
    constraints = Constraints(max_features, 3, shape=shape, **limits)
    return (
        design,
        make_target(loss, design, seed, strength=2.0),
        {"loss": loss, "constraints": constraints, "alpha": 0.01},
    )


def fit(design, y, arguments, solver, options=SCREENED):
    has_bound = arguments["loss"] not in ("poisson", "gamma", "tweedie")
    step_size = "auto" if solver == "auto" or has_bound else 0.2
    return rbr.solve(design, y, solver=solver, max_iter=15, step_size=step_size, options=options, **arguments)


def fit_with_all_columns(*args):
    return fit(*args, options=READ_WHOLE)


def same_iterates(one, other) -> bool:
    """Whether two fits have the same bits in their tables, labels, losses and histories."""
    if len(one.history) != len(other.history) or one.work.newton_steps != other.work.newton_steps:
        return False
    pairs = [(one.f, other.f), (one.loss_path, other.loss_path), (one.labels, other.labels)]
    for a, b in zip(one.history, other.history, strict=True):
        pairs += [(a.support, b.support), (np.array([a.loss, a.residual]), np.array([b.loss, b.residual]))]
    return all(a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


def n_columns(solution) -> int:
    return sum(row.columns for row in solution.history)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", ["auto", "algorithm1"])
@pytest.mark.parametrize("jump_cost", PRICED)
@pytest.mark.parametrize("loss", LOSSES)
def test_iterates_have_the_same_bits_with_and_without_screening(loss, jump_cost, solver):
    n_all = n_read = 0
    for i, shape in enumerate(SHAPES):
        max_features = (3, 8, None)[(i + LOSSES.index(loss) + (solver == "auto")) % 3]
        args = *problem_of(loss, WEIGHTINGS[i % 2], shape, jump_cost, max_features, seed=i), solver
        screened, plain = fit(*args), fit_with_all_columns(*args)
        assert same_iterates(screened, plain)
        n_all, n_read = n_all + n_columns(plain), n_read + n_columns(screened)
    assert n_read < n_all


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", ["auto", "algorithm1"])
@pytest.mark.parametrize("jump_cost", PRICED)
def test_iterates_have_the_same_bits_with_a_least_number_of_rows(jump_cost, solver):
    n_all = n_read = 0
    for i, shape in enumerate(("constant", "mixed", "increasing", "levels") * 3):
        limits = {"seed": i, "min_rows": (30, 0.2)[i % 2], "max_features": (3, 8, None)[i // 4]}
        args = *problem_of("squared_error", WEIGHTINGS[i // 2 % 2], shape, jump_cost, **limits), solver
        screened, plain = fit(*args), fit_with_all_columns(*args)
        assert same_iterates(screened, plain)
        n_all, n_read = n_all + n_columns(plain), n_read + n_columns(screened)
    assert n_read < n_all


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("shape", ["constant", "mixed"])
def test_greedy_searches_are_screened_by_the_norm_before_the_search(shape):
    args = *problem_of("squared_error", "counts", shape, 0.0, 3, greedy=True), "algorithm1"
    screened, plain = fit(*args), fit_with_all_columns(*args)
    assert same_iterates(screened, plain)
    assert n_columns(screened) < n_columns(plain)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_without_the_drift_iterates_would_change(monkeypatch):
    """The tests above can fail: if the bounds are too small, because the drift is left out, the bits differ."""
    differ = 0
    for seed in range(24):
        for jump_cost in PRICED:
            args = *problem_of("squared_error", "counts", "constant", jump_cost, 4, seed=seed), "auto"
            plain = fit_with_all_columns(*args)
            with monkeypatch.context() as patch:
                patch.setattr(RowObjective, "drift", lambda *a: np.zeros(1))
                differ += not same_iterates(fit(*args), plain)
    assert differ > 0


class Remembered:
    """Bounds from a screen that has seen one residual, and the true norms and nets at another."""

    def __init__(self, seed, shape, weighting, loss, jump_cost, step, size, min_rows=0):
        design, y, arguments = problem_of(loss, weighting, shape, jump_cost, 4, seed, min_rows=min_rows)
        self.objective = objective_of(design, y, get_loss(loss), screened_rows=0)
        self.constraints = arguments["constraints"].bind_to(self.objective.tables, design.n_rows)
        rng = np.random.default_rng(seed)
        nothing = np.zeros(0, dtype=np.int64)
        used = np.array([0, 7])
        f = self.objective.zero_tables()
        screen = Screen(self.objective, self.constraints)
        scale = 1.0 / self.objective.n_total
        first = screen.move_to(self.objective.point(f, nothing))
        first.read(np.arange(25))
        first.step(self.constraints.without_limits_on_tables(), step, scale)
        bins = np.isin(np.repeat(np.arange(25), design.n_bins), used)
        f[bins] = size * rng.normal(size=f[bins].shape)
        second = screen.move_to(self.objective.point(f, used))
        price = self.constraints.prices(1.0, scale)[0] / step
        self.norm_bounds, self.net_bounds = screen.bounds(second.drift, price)
        second.read(np.arange(25))
        w, offsets = design.weights, design.offsets
        gradient = np.atleast_2d(second.values.T)
        centred = gradient - np.repeat(np.add.reduceat(w * gradient, offsets[:-1], axis=1), design.n_bins, axis=1)
        self.norms = np.sqrt(np.add.reduceat(w * centred**2, offsets[:-1], axis=1))
        self.nets = self._nets(second.values, step, scale) / step**2
        self.drift = second.drift

    def _nets(self, gradient, step, scale):
        """What each table alone gains after paying for its pieces, before the cost of its entry."""
        bound, nets = self.constraints, np.zeros_like(self.norm_bounds)
        columns = np.atleast_2d(gradient.T)
        for c in range(len(columns)):
            found = bound.without_limits_on_tables().prox(-step * columns[c], step, scale)
            price, _ = bound.prices(step, scale)
            gains = np.add.reduceat(bound.weights * found.f**2, bound.offsets[:-1]) / 2 - price * found.codes
            nets[c] = np.maximum(gains, 0.0)
        return nets


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    shape=st.sampled_from(SHAPES),
    weighting=st.sampled_from(WEIGHTINGS),
    loss=st.sampled_from(LOSSES),
    jump_cost=st.sampled_from(PRICED),
    step=st.sampled_from([0.3, 1.0, 4.0]),
    size=st.sampled_from([0.001, 0.1, 1.0]),
    min_rows=st.sampled_from([0, 40, 0.3]),
)
def test_bounds_hold_wherever_the_residual_goes(seed, shape, weighting, loss, jump_cost, step, size, min_rows):
    seen = Remembered(seed, shape, weighting, loss, jump_cost, step, size, min_rows)
    assert (seen.norms <= seen.norm_bounds).all()
    assert (seen.nets <= seen.net_bounds).all()
    assert np.isfinite(seen.norm_bounds).all()


@pytest.mark.parametrize(
    "seed, shape, jump_cost, size, min_rows",
    [(22, "levels", 0.0, 0.1, 0.4), (26, "levels", 0.1, 0.1, 0.4), (29, "increasing", 0.0, 0.1, 0.3)],
)
def test_nets_of_a_search_that_is_not_exact_are_no_bounds(seed, shape, jump_cost, size, min_rows, monkeypatch):
    """With a least number of rows, sorting and pooling may find more than what they missed before."""
    seen = Remembered(seed, shape, "counts", "squared_error", jump_cost, 1.0, size, min_rows)
    assert (seen.nets <= seen.net_bounds).all()
    monkeypatch.setattr(BoundConstraints, "has_exact_search", np.ones(25, dtype=bool))
    wrong = Remembered(seed, shape, "counts", "squared_error", jump_cost, 1.0, size, min_rows)
    assert (wrong.nets > wrong.net_bounds).any()


def test_bounds_are_not_much_larger_than_they_must_be():
    """The norm of some table grows by more than 0.6 of the drift, so half the drift would be no bound."""
    reached = 0.0
    for seed in range(20):
        seen = Remembered(seed, "free", "counts", "squared_error", 0.0, 1.0, 1.0)
        before = seen.norm_bounds - seen.drift
        reached = max(reached, ((seen.norms - before) / seen.drift).max())
    assert reached > 0.6


def test_uniform_weights_stretch_the_drift():
    design, y, _ = problem_of("squared_error", "uniform", "constant", 0.0, 4)
    objective = objective_of(design, y, get_loss("squared_error"), None, None, 1)
    bound = Constraints().bind(objective.tables.offsets, objective.tables.weights)
    shares = design.with_weights("counts").weights
    for j, stretch in enumerate(Screen(objective, bound).stretch):
        table = slice(design.offsets[j], design.offsets[j + 1])
        assert stretch == pytest.approx(np.sqrt((shares[table] * len(shares[table])).max()))


def test_excluded_columns_are_never_read():
    design, y, _ = problem_of("squared_error", "counts", "constant", 0.0, 4)
    constraints = Constraints(4, 3, exclude=tuple(range(5, 25)))
    solution = rbr.solve(design, y, constraints=constraints, dispersion=1.0, options=SCREENED)
    assert max(row.columns for row in solution.history) <= 5


def test_a_lazy_gradient_has_the_bits_of_the_whole_one():
    design, y, _ = problem_of("log_loss", "counts", "constant", 0.0, 4)
    objective = objective_of(design, y, get_loss("log_loss"), None, None, 1)
    point = objective.point(objective.zero_tables(), np.zeros(0, dtype=np.int64))
    lazy = Screen(objective, Constraints().bind_to(objective.tables)).look_at(point)
    for features in ([3], [3, 9, 1], np.arange(25)):
        lazy.read(np.array(features))
    assert_same_bits(lazy.values, objective.gradient(point) + 0.0)
    assert objective.work.columns_read == 25 + 25
