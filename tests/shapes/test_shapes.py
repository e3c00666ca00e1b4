"""Shapes: the production code agrees with the reference, and a shape can be added from outside the package."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rbr
from rbr import shapes
from rbr.data.edges import between, codes_of
from rbr.data.grids import with_pairs
from rbr.reference import binning as reference_binning
from rbr.reference import projections as reference

finite = st.floats(-1e3, 1e3, allow_subnormal=False)


@given(st.lists(st.tuples(finite, st.floats(1e-3, 1e3)), min_size=1, max_size=12))
def test_isotonic_regression_is_that_of_the_reference(pairs):
    values, weights = np.array(pairs).T
    expected = reference.isotonic(values, weights)
    np.testing.assert_allclose(shapes.isotonic(values, weights), expected, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("n_bins", [1, 2, 3, 8, 40, 300])
def test_codes_of_levels_are_those_of_the_reference(n_bins):
    for limit in {1, min(3, n_bins), n_bins}:
        np.testing.assert_array_equal(shapes.level_codes(n_bins, limit), reference.level_codes(n_bins, limit))


def test_the_cheapest_code_of_levels_is_the_least_of_two_or_more():
    pairs = [(b, limit) for b in (0, 1, 2, 3, 8, 60, 1000, 3000) for limit in {1, 2, 3, 32, max(b, 1)}]
    n_ordered, limits = np.array(pairs).T
    least = [level_codes[1:].min() if len(level_codes := codes_up_to(b, limit)) > 1 else 0.0 for b, limit in pairs]
    np.testing.assert_allclose(shapes.spec_of("levels").cheapest_code(n_ordered, limits), least, rtol=1e-12)


def codes_up_to(b, limit):
    return reference.level_codes(b, min(b, limit))


@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=2, unique=True))
def test_a_number_between_two_is_that_of_the_reference(pair):
    left, right = sorted(pair)
    if np.isfinite([left, right]).all():
        found = between(left, right)
        assert left <= found < right
        assert found == pytest.approx(reference_binning.between(left, right), rel=1e-15)


@given(st.lists(st.floats(allow_nan=True), max_size=9), st.lists(finite, max_size=5, unique=True))
def test_codes_between_edges_are_those_of_the_reference(values, edges):
    values, edges = np.array(values, dtype=float), np.sort(np.array(edges, dtype=float))
    np.testing.assert_array_equal(codes_of(values, edges), reference_binning.codes_of(values, edges))


def test_the_kernels_and_the_reference_number_the_shapes_alike():
    assert tuple(spec.name for spec in shapes.NATIVE) == reference.SHAPES + reference.GRID_SHAPES


def halves(u, w, x, limit, price):
    """One constant below the middle bin and one above: two pieces, whatever the limit."""
    upper = np.arange(len(u)) >= (len(u) + 1) // 2
    out = np.zeros(len(u))
    for side in (upper, ~upper):
        if w[side].sum() > 0:
            out[side] = w[side] @ u[side] / w[side].sum()
    return out, np.where(upper, 2, 0).astype(np.int32), 1.0


@pytest.fixture
def toy():
    """A shape from outside the package."""
    spec = shapes.ShapeSpec(
        "halves",
        search=halves,
        code_length=lambda n_pieces, n_lines, n_ordered: 1.0,
        cheapest_code=lambda n_ordered, limits: np.ones(len(n_ordered)),
        has_jumps=False,  # its one jump may not move
        can_be_resegmented=False,
    )
    yield shapes.register(spec)
    shapes.unregister("halves")


@pytest.mark.parametrize("solver", ["auto", "algorithm1"])
def test_a_toy_shape_is_projected_fitted_and_read(toy, solver):
    rng = np.random.default_rng(0)
    X = rng.random((400, 5))
    X[::17, 0] = np.nan
    y = 2.0 * (X[:, 0] > 0.5) - 1.5 * (X[:, 3] > 0.5) + 0.1 * rng.standard_normal(400)
    binner = rbr.Binner(max_bins=10).fit(X)
    B = binner.transform(X)
    f = rng.normal(size=B.n_coef)
    g = rbr.Constraints(shape="halves").project(f, B.offsets, B.weights, missing=B.missing)
    for j in range(5):
        table = slice(B.offsets[j], B.offsets[j + 1])
        ordered = table.start + np.arange(10)
        assert len(np.unique(g[ordered].round(12))) == 2 and abs(B.weights[table] @ g[table]) < 1e-12
        # The nearest table of two halves, by least squares.
        A = np.stack([np.arange(10) < 5, np.arange(10) >= 5], axis=1).astype(float)
        A = A if not B.missing[j] else np.block([[A, np.zeros((10, 1))], [np.zeros((1, 2)), np.ones((1, 1))]])
        root, centred = np.sqrt(B.weights[table]), f[table] - B.weights[table] @ f[table]
        best = A @ np.linalg.lstsq(A * root[:, None], centred * root, rcond=None)[0]
        np.testing.assert_allclose(g[table], best, atol=1e-10)
    # A missing bin adds one to the code.
    codes = rbr.Constraints(shape="halves", jump_cost=1.0).bind_to(B).prox(f, 1.0, 1e-9).codes
    np.testing.assert_array_equal(codes, [2.0, 1.0, 1.0, 1.0, 1.0])
    constraints = rbr.Constraints(max_features=2, shape="halves", jump_cost=0.5)
    solution = rbr.solve(B, y, constraints=constraints, solver=solver)
    np.testing.assert_array_equal(solution.support, [0, 3])
    model = rbr.AdditiveModel.from_solution(binner, solution)
    assert [len(term.pieces) for term in model.terms] == [2, 2]
    assert rbr.RBRRegressor(shape="halves", max_bins=10, n_bags=0).fit(X, y).score(X, y) > 0.9


def test_a_shape_of_grids_from_outside_is_given_the_grid():
    def diagonal(u, w, grid, limit, price):
        """One constant where both numbers of the bins are equal, and one elsewhere."""
        inside = np.equal.outer(np.arange(grid.shape[0]), np.arange(grid.shape[1])).ravel()
        out = np.zeros(len(u))
        for side in (inside, ~inside):
            out[side] = w[side] @ u[side] / w[side].sum()
        return out, np.where(inside, 2, 0).astype(np.int32), 1.0

    codes = {"code_length": lambda k, n, grid: 1.0, "cheapest_code": lambda grids, limits: np.ones(len(grids))}
    shapes.register(shapes.ShapeSpec("diagonal", search=diagonal, on_grid=True, has_jumps=False, **codes))
    try:
        rng = np.random.default_rng(0)
        B = with_pairs(rbr.BinnedMatrix(rng.integers(0, 5, (2, 500)), [0, 5, 10]), [(0, 1)], max_bins=5)
        y = 2.0 * (B.codes[0] == B.codes[1]) + 0.1 * rng.normal(size=500)
        found = rbr.solve(B, y, constraints=rbr.Constraints(shape={2: "diagonal"}, jump_cost=1.0))
        assert 2 in found.support
        assert np.ptp(found.f[B.offsets[2] :]) == pytest.approx(2.0, abs=0.05)
    finally:
        shapes.unregister("diagonal")


def test_wrong_shapes_are_refused(toy):
    with pytest.raises(ValueError, match="'halves'; there is a shape of that name already"):
        shapes.register(toy)
    with pytest.raises(TypeError, match="spec is a str; it must be a ShapeSpec"):
        shapes.register("halves")
    with pytest.raises(ValueError, match="search of shape 'other' is 'prox_tables'; outside the package"):
        shapes.register(shapes.ShapeSpec("other", "prox_tables"))
    with pytest.raises(ValueError, match="only the shape that was registered last"):
        shapes.unregister("constant")
    with pytest.raises(ValueError, match="shape is 'thirds'; it must be one of .*'halves'"):
        rbr.Constraints(shape="thirds")
