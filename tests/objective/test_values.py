"""What an objective computes from the values within bins: other edges, and pieces that are lines in x."""

from __future__ import annotations

import numpy as np
import pytest
from problems import LOSSES, block_of, make_target, objective_of, split_in_three_blocks

import rbr
from rbr.objective import Groups

N_ROWS = 300


def table(seed=0, wild=True):
    """Two columns, the first with a missing bin and infinities."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.lognormal(size=N_ROWS), rng.normal(size=N_ROWS).round(1)])
    if wild:
        X[::13, 0] = np.nan
        X[5, 0], X[6, 0] = np.inf, -np.inf
    return X


def binner_of(X):
    return rbr.Binner(max_bins=6).fit(X)


def objectives(loss, seed=0, wild=True):
    """(X, the objective over one block, the one over three)"""
    X = table(seed, wild)
    binner = binner_of(X)
    design = binner.transform(X)
    weight = np.random.default_rng(seed + 1).integers(1, 4, N_ROWS).astype(float)
    one = objective_of(design, make_target(loss, design, seed), loss, sample_weight=weight, X=X)
    return X, one, split_in_three_blocks(one)


def anchors_of(tables, scale=1.0):
    """An anchor for each bin, within its range."""
    return scale * np.where(np.isfinite(tables.positions), tables.positions, 0.0)


def line_raw(X, design, values, slopes, anchors):
    """By the definition: the sum over the tables of v + b (x - anchor), by row; (n_rows, n_outputs)."""
    total = np.zeros((len(X), values.shape[1]))
    for j in range(design.n_features):
        bins = design.offsets[j] + design.codes[j]
        distance = np.where(np.isfinite(X[:, j]), X[:, j] - anchors[bins], 0.0)
        total += values[bins] + slopes[bins] * distance[:, None]
    return total


@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_of_lines_is_the_derivative_of_the_loss(loss):
    X, one, three = objectives(loss)
    block, tables = block_of(one), one.tables
    rng = np.random.default_rng(2)
    f = 0.2 * rng.normal(size=one.zero_tables().shape)
    both = np.array([0, 1])
    point, anchors = one.point(f, both), anchors_of(tables)
    gradient = one.line_gradient(point, both, anchors).reshape(tables.n_coef, 2, -1)
    raw = point.handle.raw[0].reshape(N_ROWS, -1)
    value, slope = rng.normal(size=(2, tables.n_coef, raw.shape[1]))
    direction = line_raw(X, block.design, value, slope, anchors)
    h = 1e-6 / np.abs(direction).max()

    def loss_at(t):
        moved = raw + t * direction
        return one.loss.value(block.y, moved if one.n_outputs > 1 else moved[:, 0], block.v)

    expected = (loss_at(h) - loss_at(-h)) / (2 * h)
    assert np.sum(gradient * np.stack([value, slope], axis=1)) == pytest.approx(expected, rel=2e-4, abs=1e-7)
    # The value part is the gradient of the bins times their weights; blocks change nothing but rounding.
    plain = (tables.weights * one.gradient(point).T).T.reshape(tables.n_coef, -1)
    np.testing.assert_allclose(gradient[:, 0], plain, atol=1e-12)
    again = three.line_gradient(three.point(f, both), both, anchors).reshape(gradient.shape)
    np.testing.assert_allclose(again, gradient, atol=1e-10 * max(1.0, np.abs(gradient).max()))


@pytest.mark.parametrize("majorize", [False, True])
@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "huber", "multinomial", "poisson"])
def test_the_hessian_of_lines_is_that_of_a_dense_basis(loss, majorize):
    X, one, three = objectives(loss)
    block, tables = block_of(one), one.tables
    f = 0.2 * np.random.default_rng(3).normal(size=one.zero_tables().shape)
    both = np.array([0, 1])
    # Two groups in the first table, the missing bin in none; three in the second.
    n_first, n_second = tables.n_bins
    of_first = np.where(np.arange(n_first) < 3, 0, 1)
    of_first[-1] = 2
    groups = Groups(both, tables.offsets, np.append(of_first, np.arange(n_second) * 3 // n_second), np.array([2, 3]))
    anchors, output = np.array([0.5, 2.0, -1.0, 0.0, 1.0]), one.n_outputs - 1
    columns = []
    for t, j in enumerate(both):
        group = groups.of_bin[tables.offsets[j] + block.design.codes[j]]
        for g in range(groups.n_groups[t]):
            distance = np.where(np.isfinite(X[:, j]), X[:, j] - anchors[groups.offsets[t] + g], 0.0)
            columns += [group == g, (group == g) * distance]
    A = np.stack(columns, axis=1).astype(float)
    for objective in (one, three):
        point = objective.point(f, both)
        found = objective.line_hessian(point, groups, anchors, majorize, output)
        if majorize and loss == "poisson":
            assert found is None  # no parabola lies above this loss
            continue
        handle = objective.curvature(point, majorize)
        curvature = np.concatenate(handle.of_output(output))
        np.testing.assert_allclose(found.matrix, A.T @ (curvature[:, None] * A), rtol=0, atol=1e-9)
        np.testing.assert_allclose(found.coupling, A.T @ curvature, rtol=0, atol=1e-9)
        assert found.total == pytest.approx(curvature.sum())


@pytest.mark.parametrize("loss", ["squared_error", "log_loss"])
def test_rebinned_rows_are_those_of_the_binner_with_these_edges(loss):
    X, one, three = objectives(loss)
    block = block_of(one)
    edges = {0: np.array([0.2, 0.6, 0.9, 1.6, 3.0]), 1: np.array([-1.05, -0.45, 0.05, 0.55, 1.25])}
    binner = rbr.Binner(max_bins=6, binning=edges).fit(X, block.sample_weight)
    expected = binner.transform(X, block.sample_weight)
    for objective in (one, three):
        before = binner_of(X).edges_
        found = objective.rebin({1: (before[1], edges[1])}).rebin({0: (before[0], edges[0])})
        np.testing.assert_array_equal(np.concatenate([b.design.codes for b in found._blocks], axis=1), expected.codes)
        np.testing.assert_allclose(found.tables.weights, expected.weights, atol=1e-14)
        ordered = np.ones(expected.n_coef, dtype=bool)
        ordered[expected.offsets[1:][expected.missing] - 1] = False
        np.testing.assert_allclose(found.tables.positions[ordered], expected.positions[ordered], rtol=1e-12)
        assert found.n_total == objective.n_total
    # The original objective is unchanged.
    np.testing.assert_array_equal(block.design.codes, block_of(one).design.codes)
    assert not np.array_equal(block_of(one).design.codes, expected.codes)


@pytest.mark.parametrize("asked", ["better_jumps", "rebin", "line_gradient", "line_hessian"])
def test_without_values_the_error_says_what_is_missing(asked):
    X, one, _ = objectives("squared_error")
    block = block_of(one)
    objective = objective_of(block.design, block.y)
    assert one.has_values and not objective.has_values
    point = objective.point(objective.zero_tables(), np.zeros(0, dtype=np.int64))
    arguments = {"better_jumps": (point, {}), "rebin": ({},), "line_gradient": (point, [], [])}
    with pytest.raises(ValueError, match=f"{asked} needs the values of the columns: make the objective with X"):
        getattr(objective, asked)(*arguments.get(asked, (point, None, None)))
