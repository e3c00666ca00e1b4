"""Fits whose tables look at two columns: rectangles and surfaces, by Algorithm 1 and by the default solver."""

from __future__ import annotations

import numpy as np
import pytest
from problems import make_target, objective_of, split_in_three_blocks

import rbr
from rbr import reference
from rbr.data.grids import with_pairs
from rbr.shapes import pull_of_roughness
from rbr.solvers.refit import penalty

PAIRS = [(0, 1), (1, 2), (0, 3)]


def make_pairs(seed=0, n_rows=400):
    """Four columns and three pairs: missing values in the second column, levels in the third, an empty bin."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, b, n_rows) for b in (5, 5, 3, 6)])
    codes[3][codes[3] == 2] = 4
    B = rbr.BinnedMatrix(codes, np.cumsum([0, 5, 5, 3, 6]), missing=np.arange(4) == 1)
    return with_pairs(B, PAIRS, max_bins=6, categories=[2])


def target(loss, B, **options):
    """y that depends on the pairs."""
    offsets = B.offsets[4:] - B.offsets[4]
    return make_target(loss, rbr.BinnedMatrix(B.codes[4:], offsets), **options)


def constraints(shape, **options):
    kept = {"max_segments": 5, "jump_cost": 0.3, "smoothness": 0.5} | options
    return rbr.Constraints(shape=["constant"] * 4 + [shape] * 3, **kept)


@pytest.mark.parametrize("shape", ["rectangles", "surface"])
@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "multinomial", "poisson", "huber"])
def test_algorithm_1_is_that_of_the_reference(shape, loss):
    B = make_pairs()
    y = target(loss, B, strength=2.0)
    rng = np.random.default_rng(1)
    run = {
        "loss": loss,
        "constraints": constraints(shape, max_features=2, max_pairs=2),
        "solver": "algorithm1",
        "step_size": 1.2 if loss in ("log_loss", "multinomial") else 0.3,
        "max_iter": 8,
        "tol": 0.0,
        "alpha": 0.01,
        "dispersion": 1.0,
        "sample_weight": rng.choice([0.0, 1.0, 2.0], B.n_rows),
    }
    found, expected = rbr.solve(B, y, **run), reference.solve(B, y, **run)
    np.testing.assert_allclose(found.f, expected.f, atol=1e-9)
    np.testing.assert_array_equal(found.support, expected.support)
    objectives = [row.objective for row in found.history]
    np.testing.assert_allclose(objectives, expected.objective_path, rtol=1e-9)
    assert (found.support >= 4).any()


@pytest.mark.parametrize("shape", ["rectangles", "surface"])
@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "multinomial", "poisson"])
def test_the_default_solver_ends_within_the_limits_and_lower_than_algorithm_1(shape, loss):
    B = make_pairs(n_rows=600)
    y = target(loss, B, strength=1.5)
    kept = {"loss": loss, "constraints": constraints(shape, max_features=2, max_pairs=1), "alpha": 0.01}
    found = rbr.solve(B, y, dispersion=1.0, **kept)
    steps = rbr.solve(B, y, dispersion=1.0, solver="algorithm1", step_size=0.3, max_iter=150, tol=0.0, **kept)
    assert np.sum(found.support < 4) <= 2 and np.sum(found.support >= 4) == 1
    assert found.history[-1].objective <= steps.history[-1].objective * (1 + 1e-6)
    by_class = found.labels.reshape(B.n_coef, -1)
    for j in found.support:
        table = slice(B.offsets[j], B.offsets[j + 1])
        means = B.weights[table] @ found.f[table].reshape(-1, by_class.shape[1])
        np.testing.assert_allclose(means, 0.0, atol=1e-9)
        if shape == "rectangles" or j < 4:
            assert all(len(np.unique(column)) <= 5 for column in by_class[table].T)


@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "multinomial"])
@pytest.mark.parametrize("n_rows", [150, 600])
def test_a_surface_ends_where_loss_ridge_and_roughness_balance(loss, n_rows):
    """The gradient of all three is zero in every direction of mean zero, in empty cells too."""
    B = make_pairs(n_rows=n_rows)
    y = target(loss, B, strength=1.5)
    limits = constraints("surface", jump_cost=0.0, max_features=1)
    found = rbr.solve(B, y, loss=loss, constraints=limits, alpha=0.01, tol=1e-8)
    bound, objective = found.problem.constraints, objective_of(B, y, loss)
    point = objective.point(found.f, found.support, found.intercept)
    gradient = objective.gradient(point) + 0.01 * found.f
    pairs = found.support[found.support >= 4]
    assert len(pairs) == 3
    for j in pairs:
        table = slice(B.offsets[j], B.offsets[j + 1])
        pull = 0.5 * pull_of_roughness(found.f[table], bound.grid(j))
        slope = (B.weights[table] * gradient[table].T).T + pull
        np.testing.assert_allclose(slope, 0.0, atol=2e-6)
    assert found.history[-1].objective == pytest.approx(point.loss + penalty(found.f, bound, 0.01))


@pytest.mark.parametrize("shape", ["rectangles", "surface"])
def test_rows_in_three_blocks_have_the_same_fit(shape):
    B = make_pairs(n_rows=600)
    y = target("log_loss", B, strength=2.0)
    whole, limits = objective_of(B, y, "log_loss"), constraints(shape, max_pairs=2)
    # A pair holds the tables of its columns, so without a ridge penalty many fits are the best.
    fits = [rbr.solve(objective=own, constraints=limits, alpha=0.01) for own in (split_in_three_blocks(whole), whole)]
    found, expected = fits
    np.testing.assert_array_equal(found.support, expected.support)
    np.testing.assert_allclose(found.f, expected.f, atol=1e-6)
    assert (found.support >= 4).sum() == 2


def test_a_rougher_surface_comes_from_a_lower_smoothness():
    B = make_pairs(n_rows=600)
    y = target("squared_error", B)
    rough = []
    for smoothness in (0.01, 1.0, 100.0):
        limits = constraints("surface", jump_cost=0.0, smoothness=smoothness)
        found = rbr.solve(B, y, constraints=limits, solver="algorithm1", step_size=0.2, tol=1e-3)
        rough.append(found.problem.constraints.roughness(found.f) / smoothness)
    assert rough[0] > 2 * rough[1] > 4 * rough[2] > 0


def test_pairs_are_swapped_with_pairs():
    B = make_pairs(n_rows=600)
    y = target("squared_error", B)
    found = rbr.solve(B, y, constraints=constraints("rectangles", max_features=1, max_pairs=1))
    swap, _ = found.certificate.swap
    assert (swap.out < 4) == (swap.into < 4)
    assert found.certificate.entry == (None, 0.0)
