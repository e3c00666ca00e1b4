"""Grids of two columns: rectangles against brute force, surfaces against their system, both beside other tables."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from brute_force import brute_force, square, zero_mean_projection
from hypothesis import given, settings
from hypothesis import strategies as st

from rbr import Constraints, use_backend
from rbr._backend import BACKENDS
from rbr.constraints import MOST_EXACT
from rbr.reference.projections import GRID_SHAPES, ConstraintSet, prox, prox_grid, roughness, surface_code
from rbr.reference.surfaces import parts_of, roughness_matrix
from rbr.shapes import Grid, pull_of_roughness, spec_of

both_backends = pytest.mark.parametrize("backend", BACKENDS)

# Numbers of bins along both sides, whether each has missing values, whether each is of levels.
SMALL = (
    (2, 3, 0, 0, 0, 0),
    (3, 2, 0, 1, 0, 0),
    (1, 4, 1, 0, 0, 0),
    (2, 2, 1, 1, 1, 0),
    (3, 3, 0, 0, 1, 1),
    (1, 1, 0, 0, 0, 0),
)


@cache
def cuts_of(a, b, c, d, k):
    """All ways to cut a rectangle into at most k rectangles by cuts from side to side."""
    found = {((a, b, c, d),)}
    if k > 1:
        ways = [((a, m, c, d), (m, b, c, d)) for m in range(a + 1, b)]
        ways += [((a, b, c, m), (a, b, m, d)) for m in range(c + 1, d)]
        for one, other in ways:
            for n in range(1, k):
                for left, right in itertools.product(cuts_of(*one, n), cuts_of(*other, k - n)):
                    found.add(tuple(sorted(left + right)))
    return found


@cache
def ways_to_cut(sides, limit):
    """The rectangle of each cell, for all ways to cut a grid; missing values are cut apart first."""
    shape = sides[0] + sides[2], sides[1] + sides[3]
    parts = [(a.start, a.stop, b.start, b.stop) for a, b, _ in parts_of(sides)]
    most = max(limit, len(parts))
    ways = []
    for own in itertools.product(*(cuts_of(*part, most - len(parts) + 1) for part in parts)):
        rectangles = [rectangle for way in own for rectangle in way]
        if len(rectangles) <= most:
            labels = np.zeros(shape, dtype=int)
            for k, (a, b, c, d) in enumerate(rectangles):
                labels[a:b, c:d] = k
            ways.append(labels.ravel())
    return ways


def least_of_rectangles(u, w, sides, limit, price=0.0, entry=0.0):
    """min over the tables of rectangles of mean zero, and zero, of ||u - g||^2 / 2 + price * code + entry."""
    live, places = w > 0, np.log(max(sides[0] + sides[1] - 2, 1))
    n_parts = (1 + sides[2]) * (1 + sides[3])
    best = square(u, w) / 2
    for labels in ways_to_cut(sides, limit):
        columns = (labels[live][:, None] == np.unique(labels[live])).astype(float)
        g = zero_mean_projection(u[live], w[live], columns)
        code = (labels.max() + 1 - n_parts) * places + n_parts - 1
        best = min(best, square(u[live] - g, w[live]) / 2 + price * code + entry)
    return best


def drawn_grid(rng, sides):
    """Values and weights; some cells are empty."""
    n = (sides[0] + sides[2]) * (sides[1] + sides[3])
    w = rng.random(n) * rng.choice([0.0, 1.0, 1.0], n)
    w[rng.integers(n)] += 0.1
    return rng.normal(size=n), w / w.sum()


def roughness_in_full(sides):
    """K with g' K g = the roughness of a grid, per cell."""
    n_a, n_b = sides[0] + sides[2], sides[1] + sides[3]
    K, cells = np.zeros((n_a * n_b, n_a * n_b)), np.arange(n_a * n_b).reshape(n_a, n_b)
    for rows, columns, has_levels in parts_of(sides):
        own = cells[rows, columns]
        K[np.ix_(own.ravel(), own.ravel())] = roughness_matrix(*own.shape, has_levels)
    return K / (n_a * n_b)


# ---------------------------------------------------------------- one grid


@pytest.mark.parametrize("sides", SMALL)
@pytest.mark.parametrize("limit", [1, 2, 4, 20])
def test_rectangles_are_the_best_of_all_ways_to_cut_a_grid(sides, limit):
    for seed in range(6):
        rng = np.random.default_rng([seed, limit])
        u, w = drawn_grid(rng, sides)
        u = u - w @ u
        price = rng.choice([0.0, 0.01, 0.05, 10.0])
        out, labels, net, code = prox_grid(u, w, sides, "rectangles", limit, price)
        best = least_of_rectangles(u, w, sides, limit, price)
        assert square(u - out, w) / 2 + price * code == pytest.approx(best, abs=1e-12)
        assert square(u, w) / 2 - net == pytest.approx(best, abs=1e-12)
        assert abs(w @ out) < 1e-12
        assert len(np.unique(labels[labels >= 0])) <= max(limit, (1 + sides[2]) * (1 + sides[3]))


@pytest.mark.parametrize("sides", SMALL)
@pytest.mark.parametrize("strength", [1e-3, 1.0, 1e3])
def test_a_surface_minimises_distance_and_roughness(sides, strength):
    u, w = drawn_grid(np.random.default_rng(0), sides)
    u = u - w @ u
    out, _, net, code = prox_grid(u, w, sides, "surface", 1, 0.0, strength=strength, smoothness=strength)
    K = strength * roughness_in_full(sides)

    def value(g):
        return square(u - g, w) / 2 + g @ K @ g / 2

    if not out.any():  # one cell, or one with rows: its surface is constant
        assert np.ptp(u[w > 0]) < 1e-12 or net == 0
        return
    np.testing.assert_allclose(w * (out - u) + K @ out, 0.0, atol=1e-10)
    assert value(out) == pytest.approx(value(np.zeros(len(u))) - net)
    assert roughness(out, sides) * strength == pytest.approx(out @ K @ out)
    assert abs(w @ out) < 1e-12 and square(out, w) <= square(u, w)
    assert code == pytest.approx(np.trace(np.linalg.inv(np.eye(len(u)) + len(u) * K)) - 1)


@pytest.mark.parametrize("sides", [*SMALL, (7, 4, 1, 0, 0, 1), (5, 6, 1, 1, 1, 1)])
def test_roughness_and_codes_are_those_of_the_reference(sides):
    rng, grid = np.random.default_rng(1), Grid(*sides, 0.7)
    f = rng.normal(size=(grid.n_cells, 2))
    np.testing.assert_allclose(pull_of_roughness(f, grid), roughness_in_full(sides) @ f, atol=1e-12)
    assert spec_of("surface").code_length(0, 0, grid) == pytest.approx(surface_code(sides, 0.7))
    bound = Constraints(shape="surface", smoothness=0.7).bind([0, len(f)], np.full(len(f), 1 / len(f)), grids=[sides])
    assert bound.roughness(f) == pytest.approx(0.35 * sum(roughness(column, sides) for column in f.T))


@both_backends
def test_large_grids_are_cut_well_and_small_ones_exactly(backend):
    rng = np.random.default_rng(2)
    for n in (MOST_EXACT, MOST_EXACT + 1):
        truth = np.zeros((n, n))
        truth[2:5, 3:9], truth[7:, 1:4] = 1.0, -2.0
        u, w = (truth + 0.01 * rng.normal(size=(n, n))).ravel(), np.full(n * n, 1 / (n * n))
        bound = Constraints(shape="rectangles", max_segments=9, jump_cost=1.0).bind(
            [0, n * n], w, grids=[[n, n, 0, 0, 0, 0]]
        )
        assert bound.has_exact_search.all() == (n == MOST_EXACT)
        with use_backend(backend) if n > MOST_EXACT else use_backend("fast"):
            found = bound.prox(u, 1.0, 1e-4)
        np.testing.assert_allclose(found.f, truth.ravel() - truth.mean(), atol=0.02)
        assert len(np.unique(found.labels)) <= 9


def test_exact_rectangles_explain_at_least_as_much_as_greedy_ones():
    better = 0
    for seed in range(40):
        u, w = drawn_grid(np.random.default_rng(seed), (6, 7, 0, 0, 0, 0))
        exact, greedy = (
            Constraints(shape="rectangles", max_segments=5, segmentation=how).project(
                u, [0, len(u)], w, grids=[[6, 7, 0, 0, 0, 0]]
            )
            for how in ("exact", "greedy")
        )
        assert square(exact, w) >= square(greedy, w) * (1 - 1e-12)
        better += square(exact, w) > square(greedy, w) * (1 + 1e-6)
    assert better > 5


# ---------------------------------------------------------------- beside other tables


def drawn_tables(seed, n_classes=1):
    """(f, offsets, weights, grids, shapes, limits) of two tables of a column and three grids."""
    rng = np.random.default_rng(seed)
    grids = [SMALL[k] for k in rng.choice(len(SMALL), 3)]
    columns = [rng.dirichlet(np.ones(n)) for n in (4, 3)]
    weights = [*columns, *(drawn_grid(rng, sides)[1] for sides in grids)]
    offsets = np.cumsum([0, *map(len, weights)])
    f = rng.normal(size=(offsets[-1], n_classes)) * np.repeat(rng.uniform(0.5, 2.0, 5), np.diff(offsets))[:, None]
    shapes = ["constant"] * 2 + ["rectangles"] * 3
    return f, offsets, np.concatenate(weights), [(0,) * 6] * 2 + grids, shapes, rng.integers(1, 5, 5)


@both_backends
@pytest.mark.parametrize("with_price", [False, True])
@pytest.mark.parametrize("n_classes", [1, 2])
def test_the_projection_with_exact_rectangles_decomposes(backend, with_price, n_classes):
    """P_C = P_G o P_L o P_zm where pairs and other tables have a limit each: no choice of tables and cuts is nearer."""
    n_used = []
    for seed in range(10):
        f, offsets, weights, grids, shapes, limits = drawn_tables(seed, n_classes)
        price, kappa = (0.004 * 2.0 ** (seed % 4), 1.0) if with_price else (0.0, 0.0)
        max_features, max_pairs = ((None, None), (1, 1), (1, None), (2, 2), (1, 0))[seed % 5]
        zero, used = np.zeros(5), np.zeros(5)
        for j in range(5):
            t, entry = slice(offsets[j], offsets[j + 1]), price * 2 * np.log1p(2 if j < 2 else 3)
            zero[j] = sum(square(u, weights[t]) / 2 for u in f[t].T)
            if j < 2:
                own = weights[t], np.arange(4.0), False, "constant", int(limits[j]), price
                used[j] = entry + sum(brute_force(u, *own) for u in f[t].T)
            else:
                own = weights[t], grids[j], int(limits[j]), price
                used[j] = entry + sum(least_of_rectangles(u, *own) for u in f[t].T)
        chosen = [(*one, *two) for one in subsets(range(2), max_features) for two in subsets(range(2, 5), max_pairs)]
        best = min(sum(used[j] if j in own else zero[j] for j in range(5)) for own in chosen)
        constraints = Constraints(max_features, limits.tolist(), shapes, jump_cost=kappa, max_pairs=max_pairs)
        bound = constraints.bind(offsets, weights, grids=np.array(grids))
        with use_backend(backend):
            found = bound.prox(f, 1.0, price)
        reached = (weights @ (f - found.f) ** 2).sum() / 2 + bound.cost(found.labels, found.support, price)
        assert reached == pytest.approx(best, rel=1e-9)
        n_used.append((np.sum(found.support < 2), np.sum(found.support >= 2)))
    assert max(n for n, _ in n_used) > 0 and max(n for _, n in n_used) > 1


def subsets(tables, most):
    tables = list(tables)
    n = len(tables) if most is None else min(most, len(tables))
    return [own for k in range(n + 1) for own in itertools.combinations(tables, k)]


@both_backends
@given(seed=st.integers(0, 2**32 - 1), with_price=st.booleans(), screen=st.booleans())
@settings(max_examples=40)
def test_a_proximal_step_is_that_of_the_reference(backend, seed, with_price, screen):
    f, offsets, weights, grids, shapes, limits = drawn_tables(seed, 1 + seed % 2)
    rng = np.random.default_rng(seed)
    shapes[2:] = rng.choice(GRID_SHAPES, 3)
    price, kappa, step = (0.004, 1.0, rng.choice([0.5, 2.0])) if with_price else (0.0, 0.0, 1.0)
    smoothness, max_pairs = rng.choice([0.0, 0.3, 30.0]), rng.choice([1, 3])
    C = ConstraintSet(
        *(offsets, weights, np.arange(float(len(f))), [False] * 5, shapes, limits),
        *(2, False),
        grids=[sides if any(sides) else None for sides in grids],
        max_pairs=max_pairs,
        smoothness=smoothness,
    )
    entry = step * price * kappa * 2 * np.log1p(np.array([2, 2, 3, 3, 3]))
    expected, codes = prox(f, C, step * price * kappa, entry, step)
    constraints = Constraints(
        2, limits.tolist(), shapes, jump_cost=kappa, max_pairs=int(max_pairs), smoothness=smoothness
    )
    bound = constraints.bind(offsets, weights, grids=np.array(grids))
    with use_backend(backend):
        found = bound.prox(f, step, price, screen=screen)
    np.testing.assert_allclose(found.f, expected, atol=1e-9)
    np.testing.assert_allclose(found.codes, codes, rtol=1e-9, atol=1e-9)
    used = [j for j in range(5) if expected[offsets[j] : offsets[j + 1]].any()]
    np.testing.assert_array_equal(found.support, used)


def test_threads_change_no_bit():
    f, offsets, weights, grids, shapes, limits = drawn_tables(3)
    shapes[3] = "surface"
    bound = Constraints(shape=shapes, max_segments=limits.tolist()).bind(offsets, weights, grids=np.array(grids))
    np.testing.assert_array_equal(bound.prox(f, 1.0, 0.0).f, bound.prox(f, 1.0, 0.0, n_threads=5).f)


# ---------------------------------------------------------------- what is refused


def test_shapes_of_grids_need_grids():
    one = [0, 4], np.full(4, 0.25)
    with pytest.raises(ValueError, match='shape of feature 0 is "rectangles", which is for grids of two columns'):
        Constraints(shape="rectangles").bind(*one)
    with pytest.raises(ValueError, match=r"grids has shape \(1, 2\) and dtype int64; it must hold six integers"):
        Constraints().bind(*one, grids=[[2, 2]])
    with pytest.raises(ValueError, match=r"the grid of feature 0 is \[2, 3, 0, 0, 0, 0\].* the 4 bins of the feature"):
        Constraints().bind(*one, grids=[[2, 3, 0, 0, 0, 0]])
    with pytest.raises(ValueError, match="max_pairs is -1"):
        Constraints(max_pairs=-1)
    with pytest.raises(ValueError, match="smoothness is -0.5"):
        Constraints(smoothness=-0.5)


def test_a_limit_of_one_kind_does_not_count_the_other():
    f, offsets, weights, grids, shapes, limits = drawn_tables(3)
    bound = Constraints(1, 20, shapes, max_pairs=2).bind(offsets, weights, grids=np.array(grids))
    assert (np.sum(bound.prox(f, 1.0, 0.0).support < 2), np.sum(bound.prox(f, 1.0, 0.0).support >= 2)) == (1, 2)
    assert len(bound.of_best().prox(f, 1.0, 0.0).support) == 1
    assert len(bound.without_limits_on_tables().prox(f, 1.0, 0.0).support) > 3
    assert not bound.of_at_most(1).is_full(np.array([0])).all()
    np.testing.assert_array_equal(bound.is_full(np.array([0, 2])), [True, True, False, False, False])
    assert replace(bound, max_pairs=0).prox(f, 1.0, 0.0).support.max() < 2
