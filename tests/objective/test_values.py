"""What an objective computes from the values within bins: other edges, and pieces that are lines in x."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from problems import LOSSES, block_of, in_parts, make_target, objective_of, split_in_three_blocks

import rbr

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
    gradient = one.line_gradient(point, one.distances(both, anchors)).reshape(tables.n_coef, 2, -1)
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
    again = three.line_gradient(three.point(f, both), three.distances(both, anchors)).reshape(gradient.shape)
    np.testing.assert_allclose(again, gradient, atol=1e-10 * max(1.0, np.abs(gradient).max()))


@pytest.mark.parametrize("loss", LOSSES)
def test_points_on_lines_have_the_scores_of_the_definition(loss):
    X, one, three = objectives(loss)
    rng, both = np.random.default_rng(5), np.array([0, 1])
    f = 0.2 * rng.normal(size=one.zero_tables().shape)
    slopes = 0.1 * rng.normal(size=f.shape)
    means, _, _ = one.bin_moments(both)
    positions = np.nan_to_num(means)
    point = one.line_point(f, both, slopes, one.distances(both, positions))
    by_output = (a.reshape(len(a), -1) for a in (f, slopes))
    raw = line_raw(X, block_of(one).design, *by_output, positions) + point.intercept
    np.testing.assert_allclose(point.handle.raw[0].reshape(raw.shape), raw, atol=1e-12)
    assert point.loss == pytest.approx(one.loss.value(block_of(one).y, point.handle.raw[0], block_of(one).v))
    again = three.line_point(f, both, slopes, three.distances(both, positions))
    assert again.loss == pytest.approx(point.loss, rel=1e-12)


def test_rows_on_lines_are_drawn_whatever_the_last_bits_of_the_slopes_are():
    # Slopes are fitted, and their last bits are those of the machine's linear algebra. Bags were once drawn by them, so
    # that another machine drew other bags.
    X, one, three = objectives("squared_error")
    both, slopes = np.array([0, 1]), np.full(one.tables.n_coef, 0.1)
    drawn = {}
    for name, objective in {"one": one, "three": three, "parts": in_parts(one, 4)}.items():
        for factor in (1.0, 1.0 + 1e-15):
            lines = objective.distances(both, anchors_of(one.tables))
            bags = objective.on_lines(factor * slopes, lines).bags(1, 0.632, 0)
            bags.draw()
            drawn[name, factor] = bags._share_out
    for shares in drawn.values():
        np.testing.assert_array_equal(shares, drawn["one", 1.0])
    # Rows of equal codes and targets are no copies of one another where lines tell them apart.
    flat = replace(block_of(one), y=np.zeros(N_ROWS))
    assert len(np.unique(flat.keys())) < 60 < len(np.unique(flat.shifted(np.zeros(N_ROWS), both).keys()))


@pytest.mark.parametrize("split", [lambda one: one, split_in_three_blocks, partial(in_parts, n_parts=4)])
def test_lines_are_no_exposure(split):
    # A model of counts with steep lines once had exposures, though nobody had given an offset.
    _, one, _ = objectives("poisson", wild=False)
    both = np.array([0, 1])
    objective = split(one)
    lines = objective.distances(both, anchors_of(one.tables))
    assert objective.on_lines(np.full(one.tables.n_coef, 0.1), lines).exposure_sums(both) is None


def test_moments_of_bins_are_those_of_the_finite_rows():
    X, one, three = objectives("squared_error")
    design, v = block_of(one).design, block_of(one).v
    for objective in (one, three):
        means, spreads, bounds = objective.bin_moments(np.array([0, 1]))
        for j in (0, 1):
            finite = np.isfinite(X[:, j])
            np.testing.assert_array_equal(bounds[j], [X[finite, j].min(), X[finite, j].max()])
            for k in range(design.offsets[j + 1] - design.offsets[j]):
                rows = finite & (design.codes[j] == k)
                expected = np.average(X[rows, j], weights=v[rows]) if rows.any() else np.nan
                np.testing.assert_allclose(means[design.offsets[j] + k], expected, rtol=1e-13)
                spread = np.sqrt(np.average((X[rows, j] - expected) ** 2, weights=v[rows])) if rows.any() else 0.0
                np.testing.assert_allclose(spreads[design.offsets[j] + k], spread, rtol=1e-9, atol=1e-7)


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


def test_only_tables_that_will_be_read_are_copied_when_edges_move():
    _, one, three = objectives("log_loss")
    before = binner_of(objectives("log_loss")[0]).edges_
    edges = {1: (before[1], before[1] + 0.05)}
    for objective in (one, three):
        whole, part = objective.rebin(edges), objective.rebin(edges, np.array([1]))
        for one_block, other in zip(whole._blocks, part._blocks, strict=True):
            np.testing.assert_array_equal(other.design.codes[1], one_block.design.codes[1])
            assert one_block.design.codes[0].any() and not other.design.codes[0].any()


@pytest.mark.parametrize("asked", ["better_jumps", "rebin", "bin_moments", "distances"])
def test_without_values_the_error_says_what_is_missing(asked):
    X, one, _ = objectives("squared_error")
    block = block_of(one)
    objective = objective_of(block.design, block.y)
    assert one.has_values and not objective.has_values
    point = objective.point(objective.zero_tables(), np.zeros(0, dtype=np.int64))
    arguments = {"better_jumps": (point, {}), "rebin": ({},), "bin_moments": ([0],), "distances": ([0], None)}
    with pytest.raises(ValueError, match=f"{asked} needs the values of the columns: make the objective with X"):
        getattr(objective, asked)(*arguments[asked])


def test_moments_that_are_known_are_those_computed_again():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(500, 3))
    binner = rbr.Binner(max_bins=6).fit(X)
    objective = rbr.make_objective(binner.transform(X), X[:, 0], X=X)
    tables = np.arange(3)
    first = objective.bin_moments(tables)
    read = objective.work.columns_read
    means, _, bounds = objective.bin_moments(tables[1:])
    np.testing.assert_array_equal(means[6:], first[0][6:])
    np.testing.assert_array_equal(bounds, first[2][1:])
    assert objective.work.columns_read == read
    before = np.quantile(X[:, 1], np.arange(1, 6) / 6)
    other = objective.rebin({1: (before, before + [0, 0, 0.05, 0, 0])})
    known = other.bin_moments(tables)
    other.known_moments.clear()
    for one, fresh in zip(known, other.bin_moments(tables), strict=True):
        np.testing.assert_allclose(one, fresh, rtol=1e-9, atol=1e-13)
    np.testing.assert_array_equal(known[0][[*range(8), *range(10, 18)]], first[0][[*range(8), *range(10, 18)]])
    assert (known[0][8:10] != first[0][8:10]).all()


@pytest.mark.parametrize("loss", ["squared_error", "log_loss"])
def test_moments_follow_moved_edges_without_another_reading(loss):
    for objective in objectives(loss)[1:]:
        before, tables = binner_of(objectives(loss)[0]).edges_, np.arange(2)
        objective.bin_moments(tables)
        other = objective.rebin({0: (before[0], before[0] + 0.07), 1: (before[1], before[1] - [0, 0, 0.02, 0, 0])})
        read = other.work.columns_read
        known = other.bin_moments(tables)
        assert other.work.columns_read == read
        other.known_moments.clear()
        for one, fresh in zip(known, other.bin_moments(tables), strict=True):
            np.testing.assert_allclose(one, fresh, rtol=1e-9, atol=1e-7)
