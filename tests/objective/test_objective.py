"""The objective: gradients by finite differences, weights as repeated rows, sums that do not depend on threads."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import assert_same_bits
from problems import LOSSES, WEIGHTINGS, make_design, make_target, objective_of

import rbr
from rbr.constraints import Constraints


def make(loss, weighting="counts", sample_weight=None, offset=None, n_threads=1, n_rows=240):
    design = make_design(n_rows=n_rows).with_weights(weighting)
    y = make_target(loss, design)
    return objective_of(design, y, loss, sample_weight, offset, n_threads)


def random_tables(objective, seed=3):
    f = 0.3 * np.random.default_rng(seed).normal(size=objective.zero_tables().shape)
    return f, np.arange(objective.tables.n_tables)


def random_offset(loss, n_rows):
    shape = (n_rows, 3) if loss == "multinomial" else n_rows
    return 0.3 * np.random.default_rng(5).normal(size=shape)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("extras", [False, True], ids=["plain", "weights and offset"])
def test_gradient_is_the_derivative_of_the_loss_minimised_over_the_intercept(loss, weighting, extras):
    n_rows = 240
    sample_weight = np.random.default_rng(4).integers(0, 4, n_rows) if extras else None
    objective = make(loss, weighting, sample_weight, random_offset(loss, n_rows) if extras else None)
    f, features = random_tables(objective)
    gradient = objective.gradient(objective.point(f, features))
    weights = objective.tables.weights
    rng = np.random.default_rng(6)
    for _ in range(4):
        direction, h = rng.normal(size=f.shape), 1e-5
        ahead, behind = (objective.point(f + s * h * direction, features).loss for s in (1, -1))
        slope = np.sum((weights * gradient.T) * direction.T)
        # Where the second derivative of a loss jumps (huber, quantile), the quotient has an error of order h.
        assert (ahead - behind) / (2 * h) == pytest.approx(slope, rel=2e-4, abs=2e-7)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_of_some_features_is_that_part_of_the_whole(loss):
    objective = make(loss, offset=random_offset(loss, 240))
    f, features = random_tables(objective)
    point = objective.point(f, features)
    gradient = objective.gradient(point)
    some = objective.gradient(point, np.array([0, 3]))
    offsets = objective.tables.offsets
    for j in range(5):
        table = slice(offsets[j], offsets[j + 1])
        np.testing.assert_array_equal(some[table], gradient[table] if j in (0, 3) else 0.0)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_bin_without_rows_has_gradient_zero(loss):
    objective = make(loss)
    empty = objective.tables.weights == 0
    assert empty.sum() == 1
    f, features = random_tables(objective)
    assert not objective.gradient(objective.point(f, features))[empty].any()


@pytest.mark.parametrize("loss", LOSSES)
def test_the_intercept_is_at_its_optimum_also_for_empty_tables(loss):
    objective = make(loss, offset=random_offset(loss, 240))
    f = objective.zero_tables()
    nothing = np.zeros(0, dtype=np.int64)
    move = 0.7 if objective.n_outputs == 1 else np.array([0.7, -0.7, 0.0])
    best = objective.point(f, nothing)
    from_elsewhere = objective.point(f, nothing, start=best.intercept + move)
    np.testing.assert_allclose(from_elsewhere.intercept, best.intercept, rtol=1e-9, atol=1e-9)
    assert from_elsewhere.loss == pytest.approx(best.loss, rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("with_offset", [False, True])
def test_the_constant_model(loss, with_offset):
    weights = np.random.default_rng(7).random(240)
    objective = make(loss, sample_weight=weights, offset=random_offset(loss, 240) if with_offset else None)
    point = objective.point(objective.zero_tables(), np.zeros(0, dtype=np.int64))
    assert objective.constant_loss == pytest.approx(point.loss, rel=1e-12)
    assert objective.constant_curvature == pytest.approx(objective.curvature(point).total.max(), rel=1e-12)


def test_stretches_of_rows_do_not_matter(monkeypatch):
    for loss in ("squared_error", "multinomial"):
        objective = make(loss)
        f, features = random_tables(objective)
        point = objective.point(f, features)
        whole = objective.gradient(point)
        for size in (1, 7, 239, 240, 241):
            monkeypatch.setattr("rbr.data.design.ROWS_PER_STRETCH", size)
            np.testing.assert_allclose(objective.gradient(point), whole, rtol=0, atol=1e-14)
        monkeypatch.undo()


@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "multinomial"])
@pytest.mark.parametrize("solver", ["auto", "algorithm1"])
def test_whole_fits_have_the_same_bits_for_any_number_of_threads(loss, solver, monkeypatch):
    # Enough rows that the kernels really use several threads, and more than one stretch of rows.
    monkeypatch.setattr("rbr.data.design.ROWS_PER_STRETCH", 16_384)
    monkeypatch.setattr("rbr.data.design.MIN_ENTRIES_PER_THREAD", 1000)
    monkeypatch.setattr("rbr.losses.sums.THREADED_ROWS", 10_000)
    design = make_design(n_rows=50_000)
    y = make_target(loss, design)
    fits = [
        rbr.solve(design, y, loss=loss, constraints=Constraints(3, 3), solver=solver, max_iter=3, tol=0.0, n_jobs=n)
        for n in (1, 2, 7)
    ]
    for other in fits[1:]:
        assert_same_bits(other.f, fits[0].f)
        assert_same_bits(other.loss_path, fits[0].loss_path)
        np.testing.assert_array_equal(other.intercept, fits[0].intercept)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("jump_cost", [0.0, 0.5])
def test_integer_weights_are_repeated_rows(loss, jump_cost):
    design = make_design()
    y = make_target(loss, design)
    times = np.random.default_rng(8).integers(0, 4, design.n_rows)
    repeated = np.repeat(np.arange(design.n_rows), times)
    constraints = Constraints(4, 3, jump_cost=jump_cost)
    offset = random_offset(loss, design.n_rows)
    # Without a ridge, a bin that lacks a class has no finite optimum, and rounding decides where the fit stops.
    problem = {"loss": loss, "constraints": constraints, "alpha": 0.01, "tol": 1e-9}
    weighted = rbr.solve(design, y, sample_weight=times, offset=offset, **problem)
    plain = rbr.solve(design[repeated], y[repeated], offset=offset[repeated], **problem)
    scale = np.abs(plain.f).max()
    # Both end within the tolerance of a fixed point, but rounding decides where in it.
    np.testing.assert_allclose(weighted.f, plain.f, rtol=0, atol=1e-8 * max(scale, 1))
    np.testing.assert_allclose(weighted.intercept, plain.intercept, rtol=0, atol=1e-8)
    assert weighted.loss == pytest.approx(plain.loss, rel=1e-10)
    assert weighted.dispersion == (plain.dispersion and pytest.approx(plain.dispersion, rel=1e-8))


def test_rows_of_weight_zero_are_not_there():
    design = make_design()
    y = make_target("squared_error", design)
    keep = np.random.default_rng(9).uniform(size=design.n_rows) < 0.7
    spoiled = np.where(keep, y, 1e6)
    constraints = Constraints(4, 3, jump_cost=0.5)
    weighted = rbr.solve(design, spoiled, constraints=constraints, sample_weight=keep.astype(float))
    without = rbr.solve(design[keep], y[keep], constraints=constraints)
    np.testing.assert_allclose(weighted.f, without.f, rtol=0, atol=1e-12)
    assert weighted.dispersion == pytest.approx(without.dispersion, rel=1e-12)


def test_an_offset_is_part_of_the_prediction():
    design = make_design()
    y, offset = make_target("squared_error", design), random_offset("squared_error", design.n_rows)
    constraints = Constraints(3, 3)
    with_offset = rbr.solve(design, y, constraints=constraints, offset=offset)
    moved = rbr.solve(design, y - offset, constraints=constraints)
    np.testing.assert_allclose(with_offset.f, moved.f, rtol=0, atol=1e-12)
    assert with_offset.intercept == pytest.approx(moved.intercept, abs=1e-12)


def test_passes_and_gradients_are_counted():
    objective = make("squared_error")
    f, features = random_tables(objective)
    point = objective.point(f, features)
    assert (objective.n_passes, objective.work.gradients) == (1.0, 0)
    objective.gradient(point, np.array([0]))
    assert (objective.n_passes, objective.work.gradients) == (1.2, 1)


@pytest.mark.parametrize("loss", LOSSES)
def test_hessian_is_the_derivative_of_the_gradient(loss):
    """Both are of the loss minimised over the intercept, which follows the tables."""
    objective = make(loss)
    f, features = random_tables(objective)
    direction, h = np.random.default_rng(7).normal(size=f.shape), 1e-6
    weights = objective.tables.weights
    ahead, behind = (objective.gradient(objective.point(f + s * h * direction, features)) for s in (1, -1))
    expected = (weights * ((ahead - behind) / (2 * h)).T).T
    point = objective.point(f, features)
    found = objective.hessian_times(point, objective.curvature(point), features)(direction)
    tolerance = 0.02 if loss in ("huber", "quantile") else 1e-6  # rows may cross a kink of the residual
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def bag_of(codes, y, weight=None, whole_rows=False):
    """(n, weights of the rows, shares that are out) of a bag of 0.6 of the rows."""
    design = rbr.BinnedMatrix(np.array([codes]), [0, 4])
    bags = rbr.make_objective(design, np.array(y, dtype=float), sample_weight=weight).bags(1, 0.6, 0, whole_rows)
    inside = bags.draw()
    return inside.n_total, np.concatenate([b.v for b in inside._blocks]) * inside.n_total, bags._share_out


def test_a_bag_thins_equal_rows_and_heavy_rows_alike():
    n_total, weights, out = bag_of([0] * 50 + [1] * 50, [0.0] * 50 + [1.0] * 50)
    assert n_total == 60
    assert len(weights) == 2  # one row for all its copies
    assert (weights < 50).all()
    np.testing.assert_allclose(50 * (1 - out[[0, 50]]), weights)
    again = bag_of([1, 0], [1.0, 0.0], weight=np.array([50.0, 50.0]))
    assert again[0] == n_total
    np.testing.assert_array_equal(again[1], weights)
    np.testing.assert_allclose(again[2][::-1], out[[0, 50]])
    # Weights above the number of copies, and below one.
    assert 0 < bag_of([0, 1], [0.0, 1.0], np.array([1e6, 1e6]))[0] < 2e6
    assert bag_of([0, 1, 2, 3], [0.0, 1.0, 2.0, 3.0], np.full(4, 0.5))[0] in (1.0, 2.0)


def test_whole_rows_are_in_a_bag_or_out_of_it():
    weight = np.arange(1.0, 41.0)
    n_total, weights, out = bag_of([0, 1] * 20, np.arange(40.0), weight, whole_rows=True)
    assert set(out.tolist()) == {0.0, 1.0}
    assert (out == 0).sum() == 24
    np.testing.assert_allclose(np.sort(weights), weight[out == 0])
    assert n_total == weight[out == 0].sum()
