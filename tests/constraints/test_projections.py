"""The projections: against brute force, by their laws, and the pruned searches against the plain one."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from brute_force import brute_force, code_of_levels, groupings, square, stirling
from cases_projections import Stack, assert_tables_agree, prices, prox_args, stacks
from helpers import assert_close, assert_same_bits
from hypothesis import given, settings
from hypothesis import strategies as st

from rbr import _fast, shapes
from rbr._backend import BACKENDS, use_backend
from rbr._fast import _projections
from rbr.constraints import Constraints
from rbr.reference import projections as reference_projections
from rbr.reference.projections import SHAPES, best_cut, level_codes, piece_costs, prox_table

# With a least number of rows in a piece these are searched well, but not exactly.
INEXACT_SHAPES = ("increasing", "decreasing", "levels")

MERGED_SHAPES = ("constant", "linear", "mixed", "increasing", "decreasing", "levels")

both_backends = pytest.mark.parametrize("backend", BACKENDS)


# ---------------------------------------------------------------- against brute force


@pytest.mark.parametrize("shape", SHAPES)
@given(data=st.data())
@settings(max_examples=60)
def test_reference_of_one_table_is_the_best_of_all(shape, data):
    stack = data.draw(exact_stacks(min_tables=1, max_tables=1, max_bins=6, shapes=(shape,)))
    price = data.draw(prices(stack))
    w, x, has_missing, limit = stack.weights, stack.positions, bool(stack.missing[0]), int(stack.limits[0])
    u, rows = stack.centred(), (stack.rows, float(stack.least_rows[0]))
    out, labels, net, code = prox_table(u, w, x, has_missing, shape, limit, price, False, *rows)
    expected = brute_force(u, w, x, has_missing, shape, limit, price, rows=rows[0], least_rows=rows[1])
    tol = 1e-9 * square(u, w) + 1e-25 * square(stack.f, w)  # centring leaves rounding errors of the size of f
    assert abs(square(u - out, w) / 2 + price * code - expected) <= tol
    assert abs(square(u, w) / 2 - net - expected) <= tol


def constraints_of(stack, **kwargs):
    return Constraints(max_segments=stack.limits.tolist(), shape=stack.shapes, position="value", **kwargs)


def bound_of(stack, **kwargs):
    """The constraints of a stack, each table with its own least number of rows, which `Constraints` gives to all."""
    constraints = constraints_of(stack, **kwargs)
    bound = constraints.bind(
        stack.offsets, stack.weights, missing=stack.missing, positions=stack.positions, shares=stack.rows
    )
    return replace(bound, least_shares=stack.least_rows)


@st.composite
def exact_stacks(draw, **kwargs):
    """Stacks whose tables are all searched exactly."""
    stack = draw(stacks(**kwargs))
    stack.least_rows = np.where([shape in INEXACT_SHAPES for shape in stack.shapes], 0.0, stack.least_rows)
    return stack


def least_rows_of(stack, j):
    return {"rows": stack.rows[stack.table(j)], "least_rows": float(stack.least_rows[j])}


@both_backends
@given(data=st.data())
@settings(max_examples=80)
def test_projection_is_the_nearest_point_of_the_constraint_set(backend, data):
    """The theorem P_C = P_G o P_L o P_zm (paper, appendix A)."""
    stack = data.draw(exact_stacks(min_tables=1, max_tables=4, max_bins=5))
    max_features = data.draw(st.none() | st.integers(1, 4))
    with use_backend(backend):
        g = bound_of(stack, max_features=max_features).prox(stack.f, 1.0, 0.0).f
    zero, nearest, reached = (np.zeros(len(stack)) for _ in range(3))
    for j, shape in enumerate(stack.shapes):
        t = stack.table(j)
        f, w, x = stack.f[t], stack.weights[t], stack.positions[t]
        zero[j], reached[j] = square(f, w) / 2, square(f - g[t], w) / 2
        limit = int(stack.limits[j])
        nearest[j] = brute_force(f, w, x, stack.missing[j], shape, limit, **least_rows_of(stack, j))
    k = len(stack) if max_features is None else min(max_features, len(stack))
    best = min(
        sum(nearest[j] if j in support else zero[j] for j in range(len(stack)))
        for support in combinations(range(len(stack)), k)
    )
    assert reached.sum() <= best + 1e-9 * zero.sum()
    assert_feasible(stack, g, max_features)


def assert_feasible(stack, g, max_features=None):
    """Mean zero, at most s_G tables, and no more pieces in each than its limit, counted from the values."""
    used = 0
    for j, shape in enumerate(stack.shapes):
        t, limit, n_ordered = stack.table(j), int(stack.limits[j]), stack.n_ordered(j)
        table, w, x = g[t], stack.weights[t], stack.positions[t]
        used += bool(table.any())
        size = np.abs(table).max(initial=0.0)
        # Rounding errors are relative to the table before it was centred.
        assert abs(w @ table) <= 1e-12 * np.abs(stack.f[t]).max()
        ordered, live = table[:n_ordered], w[:n_ordered] > 0
        if shape in ("constant", "increasing", "decreasing"):
            assert 1 + np.count_nonzero(np.diff(ordered)) <= limit
            sign = -1 if shape == "decreasing" else 1
            assert shape == "constant" or (np.diff(sign * ordered) >= 0).all()
        elif shape == "levels":
            assert len(np.unique(ordered)) <= limit
        elif shape == "frequency":
            angles = np.pi * (np.arange(n_ordered) + 0.5) / n_ordered
            coefficients = np.cos(np.arange(1, n_ordered)[:, None] * angles) @ ordered
            assert (np.abs(coefficients) > 1e-12 * n_ordered * size).sum() <= limit
        elif shape in ("linear", "mixed"):
            assert fewest_lines(ordered[live], x[:n_ordered][live], 1e-9 * size) <= limit
        if shape in ("constant", "increasing", "decreasing", "levels"):
            assert_pieces_hold_enough(stack, j, ordered, grouped=shape == "levels")
    assert max_features is None or used <= max_features


def assert_pieces_hold_enough(stack, j, values, grouped=False):
    """Every piece, or group, of equal values holds the least number of rows, unless it is the only one."""
    starts = np.concatenate([[True], np.diff(values) != 0])
    piece = np.unique(values, return_inverse=True)[1] if grouped else np.cumsum(starts) - 1
    held = np.bincount(piece, stack.rows[stack.table(j)][: len(values)])
    assert len(held) == 1 or held.min() >= stack.least_rows[j] - 1e-12


def fewest_lines(u, x, tol):
    """The number of lines in a table, each extended as far right as it fits."""
    n_lines, first = 0, 0
    while first < len(u):
        n_lines += 1
        last = first + 1
        while last < len(u) and is_on_a_line(u[first : last + 1], x[first : last + 1], tol):
            last += 1
        first = last
    return n_lines


def is_on_a_line(u, x, tol):
    if x[0] == x[-1]:
        return np.ptp(u) <= tol
    line = u[0] + (u[-1] - u[0]) * ((x - x[0]) / (x[-1] - x[0]))
    return np.abs(u - line).max() <= tol


@both_backends
@given(data=st.data())
@settings(max_examples=80)
def test_proximal_step_minimises_its_whole_objective(backend, data):
    stack = data.draw(exact_stacks(min_tables=1, max_tables=3, max_bins=5))
    max_features = data.draw(st.none() | st.integers(1, 3))
    step, kappa, alpha = data.draw(st.sampled_from([(1.0, 1.0, 0.0), (0.3, 0.5, 0.7), (2.0, 2.0, 0.1)]))
    scale = data.draw(prices(stack))
    with use_backend(backend):
        found = bound_of(stack, max_features=max_features, jump_cost=kappa).prox(stack.f, step, scale, alpha=alpha)
    # The objective times the step.
    price, entry = step * scale * kappa, step * scale * 2 * np.log(1 + len(stack))
    zero, least, reached = (np.zeros(len(stack)) for _ in range(3))
    for j, shape in enumerate(stack.shapes):
        t = stack.table(j)
        f, w, g = stack.f[t], stack.weights[t], found.f[t]
        zero[j] = square(f, w) / 2
        reached[j] = square(f - g, w) / 2 + step * alpha / 2 * square(g, w)
        if j in found.support:
            reached[j] += price * found.codes[j] + entry
        least[j] = brute_force(
            f,
            w,
            stack.positions[t],
            stack.missing[j],
            shape,
            int(stack.limits[j]),
            price,
            entry,
            step * alpha,
            **least_rows_of(stack, j),
        )
    k = len(stack) if max_features is None else min(max_features, len(stack))
    best = min(
        sum(least[j] if j in support else zero[j] for j in range(len(stack)))
        for support in combinations(range(len(stack)), k)
    )
    assert abs(reached.sum() - best) <= 1e-9 * zero.sum()
    assert_feasible(stack, found.f, max_features)


# ---------------------------------------------------------------- the reference's own projection


def awkward_tables(shape, seed, n_classes):
    """(stack, f): five tables of a shape with random weights, some with a bin of weight zero, a missing bin or both."""
    rng = np.random.default_rng([SHAPES.index(shape), seed])
    has_empty, missing = np.array([0, 1, 0, 1, 1], dtype=bool), np.array([0, 0, 1, 1, 0], dtype=bool)
    n_bins = rng.integers(3, 6, 5) + missing
    weights, positions = [], []
    for b, with_empty, with_missing in zip(n_bins, has_empty, missing, strict=True):
        w = rng.random(b) + 0.1
        if shape == "frequency":  # all ordered bins weigh the same: only the missing one may be empty
            w[: b - with_missing] = 1.0
            w[-1] *= not (with_empty and with_missing)
        elif with_empty:
            w[rng.integers(b)] = 0.0
        weights.append(w / w.sum())
        positions.append(np.cumsum(rng.random(b) + 0.1))
    f = rng.standard_normal((n_bins.sum(), n_classes)) * np.repeat(rng.uniform(0.5, 2.0, 5), n_bins)[:, None]
    arrays = np.cumsum([0, *n_bins]), np.concatenate(weights), np.concatenate(positions), missing
    limits, rows = rng.integers(1, 4, 5), rng.random(len(f))
    rows /= np.repeat(np.add.reduceat(rows, arrays[0][:-1]), n_bins)
    least_rows = np.zeros(5) if shape in INEXACT_SHAPES else rng.choice([0.0, 0.2, 0.4], 5)
    return Stack(f[:, 0], *arrays, [shape] * 5, limits, False, rows, least_rows), f


def least_over_the_set(stack, f, price, entry, max_features, exclude=(), always_include=()):
    """min over g in C of ||f - g||^2 / 2 + (price * code + entry for every feature used), over all sets of features.

    A feature that is always included pays no entry, and is used if that lowers the objective at all.
    """
    zero, used = np.zeros(len(stack)), np.zeros(len(stack))
    for j, shape in enumerate(stack.shapes):
        t = stack.table(j)
        what = stack.weights[t], stack.positions[t], stack.missing[j], shape, int(stack.limits[j])
        zero[j] = sum(square(u, what[0]) / 2 for u in f[t].T)
        least = sum(brute_force(u, *what, price, **least_rows_of(stack, j)) for u in f[t].T)
        used[j] = least + entry * (j not in always_include)
    forced = {j for j in always_include if used[j] < zero[j] * (1 - 1e-12)}
    free = [j for j in range(len(stack)) if j not in (*exclude, *always_include)]
    n_free = len(free) if max_features is None else min(max_features - len(forced), len(free))
    return min(
        sum(used[j] if j in forced.union(chosen) else zero[j] for j in range(len(stack)))
        for k in range(n_free + 1)
        for chosen in combinations(free, k)
    )


@pytest.mark.parametrize("n_classes", [1, 2])
@pytest.mark.parametrize("with_price", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_reference_projects_onto_the_nearest_point_of_the_set(shape, with_price, n_classes):
    """P_C = P_G o P_L o P_zm (paper, appendix A) and the proximal step, as `rbr.reference.projections` writes them."""
    n_used = []
    for seed in range(12):
        stack, f = awkward_tables(shape, seed, n_classes)
        price, entry = (0.01 * 2.0 ** (seed % 6), 0.05) if with_price else (0.0, 0.0)
        lists = ({}, {"exclude": (1,)}, {"always_include": (3,)}, {"exclude": (0,), "always_include": (4, 2)})[seed % 4]
        max_features = (None, 2, 3)[seed % 3]
        C = reference_projections.ConstraintSet(
            *(stack.offsets, stack.weights, stack.positions, stack.missing, stack.shapes, stack.limits),
            max_features=max_features,
            rows=stack.rows,
            least_rows=stack.least_rows,
            **lists,
        )
        g, codes = reference_projections.prox(f, C, price, entry)
        if not with_price:
            assert_same_bits(reference_projections.project(f, C), g)
        used = [j for j in range(5) if g[stack.table(j)].any()]
        n_entries = len(set(used) - set(C.always_include))
        reached = (stack.weights @ (f - g) ** 2).sum() / 2 + price * codes.sum() + entry * n_entries
        best = least_over_the_set(stack, f, price, entry, max_features, **lists)
        assert reached == pytest.approx(best, rel=1e-9)
        assert not set(used) & set(C.exclude)
        for column in g.T:
            assert_feasible(stack, column, max_features)
        n_used.append(len(used))
    assert max(n_used) > 1


@given(stack=stacks(min_tables=1, max_tables=6, max_bins=8), data=st.data())
def test_leaving_out_hopeless_tables_changes_no_bit(stack, data):
    bound = bound_of(
        stack,
        max_features=data.draw(st.none() | st.integers(1, 4)),
        jump_cost=data.draw(st.sampled_from([0.0, 1.0])),
    )
    scale = data.draw(prices(stack))
    screened, full = (bound.prox(stack.f, 1.0, scale, screen=screen) for screen in (True, False))
    assert_same_bits(screened.f, full.f)
    assert_same_bits(screened.labels, full.labels)
    assert_same_bits(screened.support, full.support)
    assert screened.n_searched <= full.n_searched


# ---------------------------------------------------------------- laws


def project(stack, f, **kwargs):
    return bound_of(stack, **kwargs).prox(f, 1.0, 0.0).f


def norm(stack, f):
    return np.sqrt(square(f, stack.weights))


@given(stack=stacks(min_tables=1))
def test_centring_first_changes_nothing(stack):
    """P_L,zm(x) = P_L(x - mean(x)), and the projection has mean zero with and without a missing bin."""
    of_given, of_centred = project(stack, stack.f), project(stack, stack.centred())
    for j in range(len(stack)):
        t = stack.table(j)
        size = np.abs(stack.f[t]).max()
        w = stack.weights[t]
        assert abs(w @ of_given[t]) <= 1e-12 * size
        assert abs(norm_of(of_given[t], w) - norm_of(of_centred[t], w)) <= 1e-12 * size
        if not stack.tied:
            assert_close(of_given[t][w > 0], of_centred[t][w > 0], scale=size)


def norm_of(u, w):
    return np.sqrt(square(u, w))


@given(stack=stacks(min_tables=1), greedy=st.booleans())
def test_pythagoras(stack, greedy):
    g = project(stack, stack.f, segmentation="greedy" if greedy else "exact")
    for j in range(len(stack)):
        t = stack.table(j)
        f, w = stack.f[t], stack.weights[t]
        assert abs(square(f, w) - square(g[t], w) - square(f - g[t], w)) <= 1e-12 * square(f, w)


@given(stack=stacks(min_tables=1))
def test_projecting_twice_is_projecting_once(stack):
    once = project(stack, stack.f)
    twice = project(stack, once)
    for j in range(len(stack)):
        t = stack.table(j)
        live = stack.weights[t] > 0
        assert_close(twice[t][live], once[t][live], rtol=1e-11, scale=np.abs(stack.f[t]).max())


@given(stack=stacks(min_tables=1), factor=st.sampled_from([2.0**-40, 0.5, 4.0, 2.0**40]))
def test_positively_homogeneous_to_the_bit(stack, factor):
    assert_same_bits(project(stack, factor * stack.f), factor * project(stack, stack.f))


@given(stack=exact_stacks(min_tables=1, max_tables=3), data=st.data())
def test_norm_of_the_projection_is_lipschitz(stack, data):
    """| ||P x|| - ||P y|| | <= ||x - y||, for the exact projection onto any cone; near x and far from it."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    near = data.draw(st.sampled_from([1e-3, 0.1, 1.0]))
    sizes = np.repeat([np.abs(stack.f[stack.table(j)]).max() for j in range(len(stack))], np.diff(stack.offsets))
    other = stack.f + near * sizes * rng.standard_normal(len(stack.f))
    max_features = data.draw(st.none() | st.integers(1, 3))
    norms = [norm(stack, project(stack, f, max_features=max_features)) for f in (stack.f, other)]
    assert abs(norms[0] - norms[1]) <= norm(stack, stack.f - other) + 1e-12 * norm(stack, stack.f)


@given(stack=stacks(min_tables=1, shapes=MERGED_SHAPES), data=st.data())
def test_greedy_is_feasible_and_never_better_than_exact(stack, data):
    price = data.draw(prices(stack))
    outs = {}
    for greedy in (False, True):
        args, blank = prox_args(stack, np.arange(len(stack)), price, greedy)
        outs[greedy] = [out.copy() for out in blank]
        _fast.prox_tables(*args, *outs[greedy], 0, len(stack))
    for j in range(len(stack)):
        t = stack.table(j)
        assert outs[True][2][j] <= outs[False][2][j] + 1e-12 * square(stack.f[t], stack.weights[t])
    assert_feasible(stack, outs[True][0])
    assert_labels_tell_the_tables(stack, price, *outs[True])


@both_backends
@given(stack=stacks(min_tables=1), data=st.data())
def test_labels_tell_the_tables(backend, stack, data):
    price = data.draw(prices(stack))
    args, outs = prox_args(stack, np.arange(len(stack)), price, False)
    BACKENDS[backend].prox_tables(*args, *outs, 0, len(stack))
    assert_labels_tell_the_tables(stack, price, *outs)


def assert_labels_tell_the_tables(stack, price, out, labels, nets, codes):
    """The labels alone determine the number of pieces, the code, the values in every bin, and the net."""
    centred = stack.centred()
    for j, shape in enumerate(stack.shapes):
        t, n_ordered = stack.table(j), stack.n_ordered(j)
        u, w, x, table, label = centred[t], stack.weights[t], stack.positions[t], out[t], labels[t]
        if not (label >= 0).any():
            assert not table.any()
            assert nets[j] == codes[j] == 0
            continue
        pieces = np.unique(label[:n_ordered][label[:n_ordered] >= 0])
        log_b = np.log(n_ordered)
        code = {
            "linear": (2 * len(pieces) - 1) * log_b,
            "mixed": (len(pieces) + (pieces % 2).sum() - 1) * log_b,
            "levels": code_of_levels(n_ordered, len(pieces)),
            "free": n_ordered - 1.0,
        }.get(shape, (len(pieces) - 1) * log_b)
        code = stack.missing[j] + (code if len(pieces) else 0.0 if shape != "free" else n_ordered - 1.0)
        assert abs(codes[j] - code) <= 1e-9 * max(code, 1)
        assert abs(nets[j] - (square(table, w) / 2 - price * codes[j])) <= 1e-12 * square(u, w)
        if stack.missing[j]:
            assert table[-1] == (u[-1] if w[-1] > 0 else 0.0)
            assert label[-1] > label[:n_ordered].max()
        if shape == "frequency":
            assert len(pieces) <= 1 + stack.limits[j]
            continue
        if shape != "free":
            if len(pieces):
                assert_pieces_hold_enough(stack, j, label[:n_ordered], grouped=shape == "levels")
            assert len(pieces) <= stack.limits[j]
            np.testing.assert_array_equal(pieces // 2, np.arange(len(pieces)))
            assert (label[:n_ordered] >= 0).all() or not len(pieces)
        for piece in pieces:
            inside = np.append(label[:n_ordered] == piece, np.zeros(int(stack.missing[j]), dtype=bool))
            live = inside & (w > 0)
            mean = np.average(u[live], weights=w[live])
            expected = np.full(inside.sum(), mean)
            tol = 1e-11 * np.abs(u).max()
            if piece % 2 and np.ptp(x[live]) > 0:
                origin, extent = x[live][0], np.ptp(x[live])
                dx = (x - origin) / extent - np.average((x[live] - origin) / extent, weights=w[live])
                slope = np.average(dx[live] * (u[live] - mean), weights=w[live]) / np.average(
                    dx[live] ** 2, weights=w[live]
                )
                expected = mean + slope * dx[inside]
                # Where a line extends beyond its bins of positive weight, its rounding error grows with the distance.
                tol = tol * (1 + np.abs(dx[inside]))
            assert (np.abs(table[inside] - expected) <= tol).all()


def test_bins_without_weight_follow_their_neighbours():
    u = np.array([9.0, -3.0, 9.0, -3.0, 3.0, 9.0, 3.0, 9.0])
    w = np.array([0.0, 0.25, 0.0, 0.25, 0.25, 0.0, 0.25, 0.0])
    x = np.arange(8.0)
    for backend in BACKENDS.values():
        for shape, expected in {
            "constant": [-3, -3, -3, -3, 3, 3, 3, 3],
            "increasing": [-3, -3, -3, -3, 3, 3, 3, 3],
            "levels": [-3, -3, -3, -3, 3, -3, 3, -3],
            "free": [0, -3, 0, -3, 3, 0, 3, 0],
        }.items():
            stack = Stack(u, np.array([0, 8]), w, x, np.array([False]), [shape], np.array([2]), True)
            args, outs = prox_args(stack, np.array([0]), 0.0, False)
            backend.prox_tables(*args, *outs, 0, 1)
            np.testing.assert_array_equal(outs[0], expected, err_msg=shape)


@both_backends
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("has_missing", [False, True])
def test_the_trace_of_a_mean_is_no_table(backend, shape, has_missing):
    """The rounding errors of centring a constant, or of the mean of a single piece, do not count as a table."""
    weights = np.full(7, 1 / 7)
    constraints = Constraints(max_segments=1, shape=shape).bind([0, 7], weights, missing=np.array([has_missing]))
    tables = [np.full(7, 0.1), np.full(7, 1e6 / 3)]
    if shape in ("constant", "levels") and not has_missing:
        tables.append(1e6 + np.random.default_rng(0).standard_normal(7))
    for f in tables:
        with use_backend(backend):
            found = constraints.prox(f, 1.0, 0.0)
        assert len(found.support) == 0
        assert not found.f.any()
        assert (found.labels == -1).all()


# ---------------------------------------------------------------- larger tables


LARGE = ("noise", "steps", "smooth", "sorted", "falling", "sawtooth", "outlier", "alternating", "integers")


def large_table(kind, n, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(n) / n
    noise = rng.standard_normal(n)
    return {
        "noise": noise,
        "steps": 3 * np.repeat(rng.standard_normal(8), -(-n // 8))[:n] + noise,
        "smooth": np.sin(6 * t) + 1e-6 * noise,
        "sorted": np.sort(noise),
        "falling": -np.sort(noise),
        "sawtooth": (17 * t) % 1.0 + 1e-3 * noise,
        "outlier": np.where(np.arange(n) == n // 3, 100.0, 1e-3 * noise),
        "alternating": (-1.0) ** np.arange(n) + 1e-2 * noise,
        "integers": rng.integers(-3, 4, n).astype(float),
    }[kind]


def cost_of(u, w, starts):
    """Half the squared distance of u from its piecewise means."""
    pieces = zip(np.split(u, starts[1:]), np.split(w, starts[1:]), strict=True)
    return sum(square(v - np.average(v, weights=z), z) for v, z in pieces) / 2


@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.parametrize("n, limit", [(150, 5), (700, 3), (2000, 8)])
def test_pruned_search_finds_what_the_plain_one_finds(kind, n, limit):
    u = large_table(kind, n)
    w = np.random.default_rng(1).random(n) ** 2 + 1e-4
    w /= w.sum()
    cuts_found = []
    for prune in (False, True):
        starts = np.empty(limit, dtype=np.int32)
        cuts_found.append(starts[: _projections.cut_constants(u, w, limit, starts, prune)[0]])
    plain, pruned = (cost_of(u, w, starts) for starts in cuts_found)
    assert abs(pruned - plain) <= 1e-13 * square(u, w)
    if kind != "integers":
        np.testing.assert_array_equal(*cuts_found)


@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.parametrize("shape", MERGED_SHAPES)
@pytest.mark.parametrize("price", [0.0, 1e-3, 3e-2])
def test_large_tables_agree_with_the_reference(kind, shape, price):
    """Tables large enough for the pruned searches."""
    n = 160
    rng = np.random.default_rng(2)
    w = rng.random(n) + 1e-3
    w[rng.random(n) < 0.05] = 0.0
    w /= w.sum()
    f = large_table(kind, n)
    stack = Stack(f, np.array([0, n]), w, np.cumsum(w), np.array([False]), [shape], np.array([6]), False)
    args, blank = prox_args(stack, np.array([0]), price * square(f, w), False)
    outs = {}
    for name, backend in BACKENDS.items():
        outs[name] = [out.copy() for out in blank]
        backend.prox_tables(*args, *outs[name], 0, 1)
    fast, slow = outs["fast"], outs["reference"]
    assert abs(fast[2][0] - slow[2][0]) <= 1e-12 * square(f, w)
    if kind != "integers":
        live = w > 0
        assert_close(fast[0][live], slow[0][live], scale=np.abs(f).max())


@pytest.mark.parametrize("kind", LARGE)
def test_priced_search_agrees_with_the_search_by_count(kind):
    """Without a binding limit the penalised optimum is the best over all numbers of pieces."""
    n = 600
    u = large_table(kind, n, seed=3)
    w = np.full(n, 1 / n)
    u = u - w @ u
    price = 0.05 * square(u, w)
    stack = Stack(u, np.array([0, n]), w, np.arange(float(n)), np.array([False]), ["constant"], np.array([n]), True)
    args, outs = prox_args(stack, np.array([0]), price, False)
    _fast.prox_tables(*args, *outs, 0, 1)
    nets = [0.0]
    for k in range(1, 8):
        starts = np.empty(k, dtype=np.int32)
        starts = starts[: _projections.cut_constants(u, w, k, starts, False)[0]]
        nets.append(square(u, w) / 2 - cost_of(u, w, starts) - price * (len(starts) - 1) * np.log(n))
    assert len(np.unique(outs[1])) < 8
    assert abs(outs[2][0] - max(nets)) <= 1e-12 * square(u, w)


@pytest.mark.parametrize("kind", ["noise", "smooth", "sawtooth"])
def test_two_lines_in_a_large_table(kind):
    """The search for two pieces, against a fit at every cut."""
    n = 600
    u, x = large_table(kind, n, seed=7), np.cumsum(np.random.default_rng(7).random(n))
    w = np.full(n, 1 / n)
    u = u - w @ u
    stack = Stack(u, np.array([0, n]), w, x, np.array([False]), ["linear"], np.array([2]), False)
    args, outs = prox_args(stack, np.array([0]), 0.0, False)
    _fast.prox_tables(*args, *outs, 0, 1)

    def line(bins):
        return np.poly1d(np.polyfit(x[bins] - x[bins][0], u[bins], 1))(x[bins] - x[bins][0])

    fits = [np.append(line(slice(0, cut)), line(slice(cut, n))) for cut in range(2, n - 1)]
    nearest = min(fits, key=lambda fit: square(u - fit, w))
    assert_close(outs[0], nearest, rtol=1e-10)


@pytest.fixture
def each_cost_once(monkeypatch):
    """Cache `piece_costs`: at hundreds of bins it takes most of the time, and no limit changes its result."""
    known = {}

    def remembered(u, w, x, unit, piece_codes):
        key = u.tobytes(), w.tobytes(), x.tobytes(), unit, piece_codes
        if key not in known:
            known[key] = piece_costs(u, w, x, unit, piece_codes)
        return known[key]

    monkeypatch.setattr(reference_projections, "piece_costs", remembered)


@pytest.mark.parametrize("kind", ["noise", "steps", "sawtooth", "integers", "equal positions"])
@pytest.mark.parametrize(
    "shape, price", [("linear", 0.0), ("linear", 1e-6), ("linear", 3e-3), ("mixed", 1e-6), ("mixed", 3e-3)]
)
def test_many_lines_in_a_large_table(kind, shape, price, each_cost_once):
    """More bins than costs are kept for (512), with three pieces and with more than one block of eight counts.

    A missing bin comes last, and some bins have no weight.
    """
    n_ordered, n_live, rng = 540, 520, np.random.default_rng(8)
    w = rng.random(n_ordered + 1) + 1e-3
    w[rng.choice(n_ordered, n_ordered - n_live, replace=False)] = 0.0
    w /= w.sum()
    x = np.arange(n_ordered + 1.0)
    f = large_table("noise" if kind == "equal positions" else kind, n_ordered + 1, seed=8)
    if kind == "equal positions":
        x = np.sort(rng.integers(0, 50, n_ordered + 1)).astype(float)
    is_tied = kind in ("integers", "equal positions")
    for limit in (3, 4, 11):
        stack = Stack(f, np.array([0, len(f)]), w, x, np.array([True]), [shape], np.array([limit]), is_tied)
        args, blank = prox_args(stack, np.array([0]), price * square(f, w), False)
        fast, slow = ([out.copy() for out in blank] for _ in range(2))
        _fast.prox_tables(*args, *fast, 0, 1)
        BACKENDS["reference"].prox_tables(*args, *slow, 0, 1)
        assert_tables_agree(stack, np.array([0]), price, False)(fast, slow)
        if not is_tied:
            np.testing.assert_array_equal(fast[1], slow[1])
        if price <= 1e-6:  # the limit binds
            assert len(np.unique(fast[1][:n_ordered])) == limit


@pytest.mark.parametrize("kind", ["sorted", "steps", "integers"])
@pytest.mark.parametrize("price", [1e-5, 1e-3, 2e-2])
def test_monotone_tables_are_searched_as_constant_ones(kind, price):
    """Monotone shapes are searched with a pruning rule that `constant` does not use; the nets are the same."""
    n = 500
    u = np.sort(large_table(kind, n, seed=4))
    w = np.random.default_rng(4).random(n)
    w /= w.sum()
    u -= w @ u
    outs = {}
    for shape, values in {"constant": u, "increasing": u, "decreasing": -u}.items():
        stack = Stack(values, np.array([0, n]), w, w, np.array([False]), [shape], np.array([n]), True)
        args, outs[shape] = prox_args(stack, np.array([0]), price * square(u, w), False)
        _fast.prox_tables(*args, *outs[shape], 0, 1)
    np.testing.assert_allclose(outs["increasing"][2], outs["constant"][2], rtol=1e-12)
    assert_same_bits(outs["decreasing"][0], -outs["increasing"][0])


@pytest.mark.parametrize("n", [2, 30, 150])
@pytest.mark.parametrize("greedy", [False, True])
def test_levels_are_tried_up_to_the_number_that_can_pay(n, greedy):
    """The kernel tries no number of levels that costs more than all of them could gain; the reference tries all."""
    u = np.random.default_rng(6).standard_normal(n) * 1e3
    w = np.full(n, 1 / n)
    stack = Stack(u, np.array([0, n]), w, w, np.array([False]), ["levels"], np.array([n]), False)
    half_spread = square(u - w @ u, w) / 2
    n_levels = []
    for share in (1e-15, 1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.3, 0.6, 1 - 1e-9, 1 + 1e-9):
        price = share * half_spread / level_codes(n, n)[1]  # from a share of 1 on, two levels cannot pay
        args, blank = prox_args(stack, np.array([0]), price, greedy)
        fast, slow = ([out.copy() for out in blank] for _ in range(2))
        _fast.prox_tables(*args, *fast, 0, 1)
        BACKENDS["reference"].prox_tables(*args, *slow, 0, 1)
        np.testing.assert_allclose(fast[2], slow[2], rtol=1e-9, atol=1e-9 * half_spread)
        np.testing.assert_array_equal(fast[1], slow[1])
        n_levels.append(len(np.unique(fast[0])))
    assert n_levels[0] == n and n_levels[-1] == 1
    assert n_levels == sorted(n_levels, reverse=True)


@both_backends
@pytest.mark.parametrize("b", [1, 2, 3, 5, 7, 8])
def test_levels_are_the_best_of_all_groupings(backend, b):
    """Every grouping of up to eight bins, whatever the order of their values: equal, empty, of all weights."""
    every = [np.array(g)[:, None] == np.arange(max(g) + 1) for g in groupings(b, b)]
    chosen = set()
    for seed in range(24):
        rng = np.random.default_rng([b, seed])
        u = rng.standard_normal(b) if seed % 3 else rng.integers(0, 3, b) * 1.0
        w = rng.random(b) ** 3 * (rng.random(b) < 0.9) + 1e-12
        w /= w.sum()
        u -= w @ u
        price = square(u, w) * 10.0 ** -rng.uniform(0.0, 4.0)
        nets = [((w * u) @ g) ** 2 @ (1 / (w @ g)) / 2 - price * code_of_levels(b, g.shape[1]) for g in every]
        stack = Stack(u, np.array([0, b]), w, w, np.array([False]), ["levels"], np.array([b]), True)
        args, outs = prox_args(stack, np.array([0]), price, False)
        BACKENDS[backend].prox_tables(*args, *outs, 0, 1)
        assert abs(outs[2][0] - max(0.0, *nets)) <= 1e-12 * square(u, w)
        chosen.add(len(np.unique(outs[1])))
    assert len(chosen) >= min(b, 4)


@both_backends
@pytest.mark.parametrize("greedy", [False, True])
def test_equal_values_are_one_piece(backend, greedy):
    u = np.array([-1.0, -1.0, 1.0, 1.0, 1.0, -1.0])
    for shape, labels in {"constant": [0, 0, 2, 2, 2, 4], "levels": [0, 0, 2, 2, 2, 0]}.items():
        stack = Stack(u, np.array([0, 6]), np.full(6, 1 / 6), u, np.array([False]), [shape], np.array([6]), True)
        args, outs = prox_args(stack, np.array([0]), 0.0, greedy)
        BACKENDS[backend].prox_tables(*args, *outs, 0, 1)
        np.testing.assert_array_equal(outs[1], labels)


@pytest.mark.parametrize("n_threads", [2, 7])
@pytest.mark.parametrize("price", [0.0, 1e-3])
def test_threads_change_no_bit(n_threads, price):
    rng = np.random.default_rng(5)
    sizes = rng.integers(1, 300, 40)
    offsets = np.append(0, np.cumsum(sizes))
    weights = np.concatenate([np.full(size, 1 / size) for size in sizes])
    f = rng.standard_normal(offsets[-1])
    for array in (offsets, weights, f):
        array.flags.writeable = False
    shapes = [SHAPES[j % len(SHAPES)] for j in range(len(sizes))]
    constraints = Constraints(max_features=30, max_segments=5, shape=shapes, jump_cost=1.0)
    one, many = (constraints.prox(f, offsets, weights, 1.0, price, n_threads=n) for n in (1, n_threads))
    assert_same_bits(one, many)


def test_level_codes_count_groupings():
    for b in range(1, 61):
        expected = [code_of_levels(b, k) for k in range(1, b + 1)]
        for codes in (level_codes(b, b), shapes.level_codes(b, b)):
            np.testing.assert_allclose(codes, expected, rtol=1e-13, atol=1e-13)
            assert (np.diff(codes) > 1 - 1e-9).all()
    for b in range(1, 9):
        for k in range(1, b + 1):
            assert len([g for g in groupings(b, b) if max(g) == k - 1]) == stirling(b, k)


def test_reference_prefers_the_leftmost_split_and_the_fewest_pieces():
    u, w = np.array([0.0, 1.0, 0.0]), np.full(3, 1 / 3)
    costs, _ = piece_costs(u, w, np.arange(3.0), 0.0, (1.0, None))
    assert best_cut(costs, np.zeros(2)) == [0, 1]
    costs, _ = piece_costs(np.array([1.0, 1.0, 4.0, 4.0]), np.full(4, 0.25), np.arange(4.0), 0.0, (1.0, None))
    assert best_cut(costs, np.zeros(4)) == [0, 2]
