"""Many rows: with a start and Hessians from samples, and pieces searched again, fits end no higher and converge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import assert_same_bits
from problems import LOSSES, WEIGHTINGS, block_of, make_target, objective_of

import rbr
from rbr import SolverOptions
from rbr.constraints import Constraints
from rbr.data.design import BinnedMatrix
from rbr.data.sampling import spread_rows
from rbr.solvers.problem import Problem
from rbr.solvers.refit import norm

N_ROWS = 8000


# Squared error is fitted by rows too, not by the cross-tabulation.
BY_ROWS = {"ns_per_entry_by_rows": 0.0}
FEW = SolverOptions(many_rows=np.inf, min_sample_rows=np.inf, rough_from_rows=np.inf, **BY_ROWS)
# 8000 rows count as many: 500 make a sample, and 1000 are enough for a Hessian.
MANY_ROWS = {"many_rows": 1000, "min_sample_rows": 500, **BY_ROWS}
MANY = SolverOptions(rough_from_rows=1000, hessian_rows=1000, hessian_rows_per_unknown=16, **MANY_ROWS)


def design_of(weighting="counts", seed=0, n_rows=N_ROWS, correlated=False):
    rng = np.random.default_rng(seed)
    latent = rng.standard_normal((12, n_rows))
    if correlated:
        latent += rng.standard_normal(n_rows)
    order = latent.argsort(axis=1).argsort(axis=1)
    return BinnedMatrix((order * 24 // n_rows).astype(np.uint8), 24 * np.arange(13)).with_weights(weighting)


def few_and_many(design, y, **arguments):
    """The fit with the options for few rows, and the one with those for many."""
    return rbr.solve(design, y, options=FEW, **arguments), rbr.solve(design, y, options=MANY, **arguments)


def is_fixed_point(solution, tol=1e-5):
    problem = solution.problem
    gradient = problem.objective.gradient(solution.point)
    moved = problem.constraints.prox(
        solution.point.f - solution.step_size * gradient, solution.step_size, problem.scale, alpha=problem.alpha
    )
    change = norm(moved.f - solution.point.f, problem.constraints.weights)
    return change <= tol * norm(solution.point.f, problem.constraints.weights) * (1 + 1e-9)


@pytest.mark.parametrize("jump_cost", [0.0, 0.5])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_objective_ends_no_higher_and_at_a_fixed_point(loss, jump_cost):
    for i, shape in enumerate(("constant", "mixed", "increasing")):
        design = design_of(WEIGHTINGS[i % 2], seed=i, correlated=i == 1)
        y = make_target(loss, design, seed=i, strength=2.0)
        limit = 4 if jump_cost == 0 else (None, 6)[i % 2]
        constraints = Constraints(limit, 6, shape=shape, jump_cost=jump_cost)
        options = {"loss": loss, "constraints": constraints, "alpha": 1e-3}
        few, found = few_and_many(design, y, **options)
        # At most this much above a fit that starts on all rows. It was fixed before measuring, at a thousandth; since
        # fits of few rows search all pieces at once, too, one of gamma ends .0014 below.
        assert found.loss_path[-1] <= few.loss_path[-1] + 2e-3 * abs(few.loss_path[-1])
        assert (np.diff(found.loss_path) <= 0).all()
        assert found.converged and is_fixed_point(found)
        assert limit is None or len(found.support) <= limit


def test_the_fit_begins_on_a_sample_whose_work_is_counted():
    design = design_of()
    y = make_target("log_loss", design, strength=2.0)
    few, found = few_and_many(design, y, loss="log_loss", constraints=Constraints(jump_cost=0.5))
    assert len(few.history[0].support) == 0 < len(found.history[0].support)
    # A look-up of the used columns, a gradient of all columns, and the work on one row in sixteen.
    of_all_rows = (len(found.history[0].support) + 12) / 12
    assert of_all_rows < found.history[0].passes < of_all_rows + 30 / 16


@pytest.mark.parametrize("loss", ["squared_error", "log_loss"])
def test_the_objective_ends_no_higher_at_the_sizes_that_count_as_many(loss):
    options = SolverOptions(**BY_ROWS)
    design = design_of(n_rows=round(options.min_sample_rows / options.sample_share))
    y = make_target(loss, design, strength=2.0)
    few, found = (rbr.solve(design, y, loss=loss, options=o) for o in (FEW, options))
    assert len(found.history[0].support) > 0
    assert found.loss_path[-1] <= few.loss_path[-1] * (1 + 1e-3)
    assert found.converged and is_fixed_point(found)


@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "multinomial"])
def test_the_same_bits_every_time_and_for_any_number_of_threads(loss):
    design = design_of()
    y = make_target(loss, design)
    fits = [rbr.solve(design, y, loss=loss, n_jobs=n, options=MANY) for n in (1, 1, 2)]
    for other in fits[1:]:
        assert_same_bits(other.f, fits[0].f)


def test_sorted_rows_do_no_harm():
    design = design_of()
    y = make_target("squared_error", design, strength=2.0)
    order = np.argsort(y, kind="stable")
    few, found = few_and_many(design[order], y[order])
    assert found.loss_path[-1] <= few.loss_path[-1] * (1 + 1e-3)


def test_a_class_that_a_sample_misses_is_no_obstacle():
    design = design_of()
    y = np.zeros(N_ROWS)
    y[np.setdiff1d(np.arange(N_ROWS), spread_rows(N_ROWS, N_ROWS // 16))[:3]] = 1.0
    solution = rbr.solve(design, y, loss="log_loss", alpha=0.1, options=MANY)
    assert len(solution.history[0].support) == 0


def test_a_warm_start_is_not_replaced_by_a_sample():
    design = design_of()
    y = make_target("squared_error", design)
    first = rbr.solve(design, y, options=MANY)
    again = rbr.solve(design, y, warm_start=first.f, dispersion=first.dispersion, options=MANY)
    assert again.loss_path[0] == pytest.approx(first.loss_path[-1], rel=1e-9)


def test_a_sample_takes_one_row_of_every_stretch():
    for n_rows, n_sample in ((100, 7), (64, 64), (1_000_003, 1000)):
        rows = spread_rows(n_rows, n_sample)
        cuts = np.arange(n_sample + 1) * n_rows // n_sample
        assert (cuts[:-1] <= rows).all() and (rows < cuts[1:]).all()
    steps = np.unique(np.diff(rows))
    assert len(steps) > 100  # not periodic


def test_weights_of_a_sample_keep_their_proportions():
    design = design_of()
    y = make_target("squared_error", design)
    weights = np.random.default_rng(0).integers(1, 4, N_ROWS)
    assert objective_of(design, y, "squared_error", weights).sample(1 / 16) is None  # too few
    sample = objective_of(design, y, "squared_error", weights, min_sample_rows=500).sample(1 / 16)
    rows = spread_rows(N_ROWS, 500)
    np.testing.assert_allclose(block_of(sample).v, weights[rows] / weights[rows].sum())
    assert sample.n_total == pytest.approx(weights[rows].sum())
    np.testing.assert_array_equal(block_of(sample).design.codes, design.codes[:, rows])


def test_a_single_move_must_pay():
    """Tested with several classes, where jumps are moved even if pieces that are searched again promise nothing."""
    gains = {0.0: [], 1e-3: []}
    for seed in range(4):
        design = design_of(seed=seed)
        y = make_target("multinomial", design, seed=seed, strength=2.0)
        for least in gains:
            options = replace(MANY, least_gain=np.inf if least else 0.0, least_relative_gain=least)
            constraints = Constraints(max_segments=6, jump_cost=0.1)
            s = rbr.solve(design, y, loss="multinomial", constraints=constraints, options=options)
            # A move follows an iterate that the proximal step leaves in place.
            still = [row.residual <= 1e-5 * norm(s.f, design.weights) for row in s.history[:-1]]
            gains[least] += (-np.diff(s.loss_path)[still] / s.loss_path[:-1][still]).tolist()
    assert min(gains[0.0]) < 1e-3
    assert gains[1e-3] and min(gains[1e-3]) >= 1e-3


def test_pieces_that_promise_too_little_are_not_tried(monkeypatch):
    design = design_of(seed=1)
    y = make_target("log_loss", design, seed=1, strength=2.0)
    tried, improve = [], Problem.improve

    def spied(self, proposal, *args, **kwargs):
        tried.append(getattr(proposal, "promise", np.nan))
        return improve(self, proposal, *args, **kwargs)

    monkeypatch.setattr(Problem, "improve", spied)
    promises, objectives = {}, {}
    for least in (0.0, 1e-2):
        options = replace(MANY, least_gain=np.inf if least else 0.0, least_relative_gain=least)
        tried.clear()
        constraints = Constraints(max_segments=6, jump_cost=0.1)
        s = rbr.solve(design, y, loss="log_loss", constraints=constraints, options=options)
        assert s.converged and is_fixed_point(s)
        promises[least], objectives[least] = [p for p in tried if np.isfinite(p)], s.loss_path[-1]
    assert 2 * min(promises[0.0]) < 1e-2 * objectives[0.0] <= 2 * min(promises[1e-2])
    assert objectives[1e-2] <= objectives[0.0] * (1 + 2e-2)


def test_pieces_are_settled_before_unused_columns_are_read():
    design = design_of(seed=2)
    y = make_target("log_loss", design, seed=2, strength=2.0)
    s = rbr.solve(design, y, loss="log_loss", options=MANY)
    assert s.history[0].columns == len(s.history[0].support) < design.n_features
    assert s.history[-1].columns > 0 and s.converged and is_fixed_point(s)


def test_jumps_are_looked_at_again_when_the_last_refit_has_changed_much():
    """The best places found before a refit of many steps need not be the best after it."""
    design = design_of(WEIGHTINGS[1], seed=0, correlated=True)
    y = make_target("log_loss", design, seed=0, strength=2.0)
    options = {"loss": "log_loss", "constraints": Constraints(4, 6, shape="mixed", jump_cost=0.0), "alpha": 1e-3}
    few, found = few_and_many(design, y, **options)
    assert found.loss_path[-1] <= few.loss_path[-1] * (1 + 1e-3)
