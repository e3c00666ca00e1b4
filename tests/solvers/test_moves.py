"""Moves: proposals make the changes they name, and on tiny problems no better one is left out."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from problems import make_design, make_target

import rbr
from rbr.constraints import Constraints
from rbr.data.design import BinnedMatrix
from rbr.solvers.moves import _prefix_errors, entries, resegmented, shifts, swaps
from rbr.solvers.proposal import Entry, Proposal, Shift, Swap


def stopped(design, y, constraints, **options):
    """(problem, point, labels) of Algorithm 1 after a few steps: a point that moves can improve."""
    s = rbr.solve(design, y, constraints=constraints, solver="algorithm1", tol=0.0, max_iter=3, **options)
    return s.problem, s.point, s.labels


def table_of(design, j):
    return slice(design.offsets[j], design.offsets[j + 1])


@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "multinomial"])
@pytest.mark.parametrize("jump_cost", [0.0, 0.1])
def test_swaps_replace_one_feature_by_the_best_entering_one(loss, jump_cost):
    design = make_design()
    constraints = Constraints(2, 3, jump_cost=jump_cost)
    problem, point, labels = stopped(design, make_target(loss, design), constraints, loss=loss)
    outs = []
    for proposal in swaps(problem, point, labels, problem.entry_step):
        swap = proposal.change
        assert isinstance(swap, Swap)
        assert swap.out in point.support and swap.into not in point.support
        expected = sorted({*point.support.tolist()} - {swap.out} | {swap.into})
        np.testing.assert_array_equal(proposal.support, expected)
        for j in range(design.n_features):
            table = table_of(design, j)
            if j not in (swap.out, swap.into):
                np.testing.assert_array_equal(proposal.labels[table], labels[table])
        assert not proposal.f[table_of(design, swap.out)].any()
        assert (proposal.labels[table_of(design, swap.out)] == -1).all()
        # The others are refitted without it, and of the unused features the best one enters in a step from zero.
        f = proposal.f.copy()
        f[table_of(design, swap.into)] = 0.0
        kept = point.support[point.support != swap.out]
        without, step = problem.objective.point(f, kept), problem.entry_step
        as_it_was = point.f.copy()
        as_it_was[table_of(design, swap.out)] = 0.0
        assert without.loss <= problem.objective.point(as_it_was, kept).loss
        gradient = problem.objective.gradient(without)
        gains = {}
        for j in set(range(design.n_features)) - {*kept.tolist(), swap.out}:
            alone = np.zeros_like(f)
            alone[table_of(design, j)] = -step * gradient[table_of(design, j)]
            found = problem.constraints.prox(alone, step, problem.scale)
            square = (problem.constraints.weights @ found.f**2).sum()
            gains[j] = square / 2 - step * problem.cost(found.labels, found.support)
            if j == swap.into:
                np.testing.assert_allclose(found.f[table_of(design, j)], proposal.f[table_of(design, j)], atol=1e-9)
        assert max(gains, key=gains.get) == swap.into
        outs.append(swap.out)
    assert len(outs) == len(set(outs)) and (outs or jump_cost)


def test_swaps_leave_forced_features_alone_and_try_the_weakest_first():
    design = make_design()
    y = make_target("squared_error", design)
    problem, point, labels = stopped(design, y, Constraints(3, 3, always_include=(4,)))
    assert 4 in point.support
    outs = [p.change.out for p in swaps(problem, point, labels, 1.0)]
    assert 4 not in outs
    sizes = [problem.constraints.weights[table_of(design, j)] @ point.f[table_of(design, j)] ** 2 for j in outs]
    assert sizes == sorted(sizes)


def test_an_entry_adds_the_most_useful_feature():
    design = make_design()
    y = make_target("squared_error", design)
    problem, point, labels = stopped(design, y, Constraints(2, 3))
    (proposal,) = entries(problem, point, labels, 1.0)
    assert isinstance(proposal.change, Entry)
    np.testing.assert_array_equal(proposal.support, np.union1d(point.support, proposal.change.into))
    values = {}
    for j in set(range(5)) - set(point.support.tolist()):
        residual = y - point.handle.raw[0]
        means = design.rmatvec(residual) / np.where(design.weights > 0, design.weights, 1) / design.n_rows
        alone = np.where(np.isin(np.arange(design.n_coef), np.r_[table_of(design, j)]), means, 0.0)
        values[j] = problem.constraints.weights @ problem.constraints.prox(alone, 1.0, problem.scale).f ** 2
    assert max(values, key=values.get) == proposal.change.into
    full = stopped(design, y, Constraints(5, 3))
    assert list(entries(*full, 1.0)) == []


@pytest.mark.parametrize("shape", ["constant", "linear", "mixed", "increasing"])
@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "multinomial"])
def test_shifts_move_the_jumps_they_name(loss, shape):
    design = make_design(seed=2, n_bins=(9, 8, 7, 9, 6))
    y = make_target(loss, design, seed=2)
    constraints = Constraints(4, 2 if shape in ("linear", "mixed") else 3, shape=shape, jump_cost=0.02)
    # Pieces of random tables, which have nothing to do with y.
    start = np.random.default_rng(5).normal(size=(design.n_coef, 3) if loss == "multinomial" else design.n_coef)
    problem, point, labels = stopped(design, y, constraints, loss=loss, warm_start=0.1 * start, step_size=1e-9)
    gradient = problem.objective.gradient(point, point.support)
    proposals = list(shifts(problem, point, labels, gradient))
    assert proposals
    assert not list(shifts(problem, point, labels, gradient, least=np.inf))
    for proposal in proposals:
        moved = proposal.change if isinstance(proposal.change, tuple) else (proposal.change,)
        for shift in moved:
            assert isinstance(shift, Shift)
            table = table_of(design, shift.feature)
            old, new = (a[table] if a.ndim == 1 else a[table, shift.output] for a in (labels, proposal.labels))
            # The named jump is gone, the other stays, and the number of pieces is the same.
            jumps_old, jumps_new = (set((np.flatnonzero(np.diff(a)) + 1).tolist()) for a in (old, new))
            live = np.flatnonzero(design.weights[table] > 0)
            seen = {int(live[live >= k][0]) for k in jumps_old if (live >= k).any()}
            assert shift.start in jumps_old | seen and len(np.unique(new)) == len(np.unique(old))
            assert {int(live[live >= k][0]) for k in jumps_new} == seen - {shift.start} | {shift.stop}
            values = proposal.f[table] if proposal.f.ndim == 1 else proposal.f[table, shift.output]
            assert abs(design.weights[table] @ values) < 1e-12
        touched = {s.feature for s in moved}
        for j in set(range(5)) - touched:
            np.testing.assert_array_equal(proposal.f[table_of(design, j)], point.f[table_of(design, j)])


def test_the_best_shift_of_one_table_is_the_best_of_all_places():
    """One feature, squared loss: the promised decrease is exact, so every place can be tried by hand."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        design = BinnedMatrix(rng.integers(0, 8, (1, 200)), [0, 8])
        y = rng.normal(size=8)[design.codes[0]] + 0.1 * rng.standard_normal(200)
        means = design.rmatvec(y - y.mean()) / (200 * design.weights)
        w = design.weights

        def error(cuts, means=means, w=w):
            total = 0.0
            for a, b in zip((0, *cuts), (*cuts, 8), strict=True):
                centre = w[a:b] @ means[a:b] / w[a:b].sum()
                total += w[a:b] @ (means[a:b] - centre) ** 2
            return total / 2

        start = np.sort(rng.choice(np.arange(1, 8), 2, replace=False))
        steps = np.repeat([0.0, 1.0, 3.0], np.diff([0, *start, 8]))
        s = rbr.solve(design, y, constraints=Constraints(1, 3), warm_start=steps, max_iter=1, tol=0.0,
                      solver="algorithm1", step_size=1e-9)  # fmt: skip
        # The pieces are those of the start; the values are their means.
        problem = s.problem
        point, labels, value = problem.improve(s_proposal(s), s.intercept, step=1.0, n_newton=1, tol=0.0)
        gradient = problem.objective.gradient(point, point.support)
        singles = [p for p in shifts(problem, point, labels, gradient) if isinstance(p.change, Shift)]
        best = 0.0
        for cut, place in product(start.tolist(), range(1, 8)):
            others = [c for c in start.tolist() if c != cut]
            low = max([c for c in (0, *others) if c < cut])
            high = min([c for c in (*others, 8) if c > cut])
            if low < place < high:
                best = max(best, error(start.tolist()) - error(sorted([*others, place])))
        if best <= 1e-12:
            assert singles == []
            continue
        *_, after = problem.improve(singles[0], point.intercept, step=1.0, n_newton=1, tol=0.0)
        assert value - after == pytest.approx(best, rel=1e-9)


def s_proposal(solution):
    return Proposal((), solution.f, solution.support, solution.labels)


@pytest.mark.parametrize("is_line", [False, True])
def test_prefix_errors_are_those_of_least_squares(is_line):
    rng = np.random.default_rng(1)
    u, w, x = rng.normal(size=9), rng.uniform(0.1, 1, 9), np.sort(rng.normal(size=9))
    for k, error in enumerate(_prefix_errors(u, w, x, is_line), start=1):
        degree = int(is_line and k > 1)
        fit = np.polyval(np.polyfit(x[:k], u[:k], degree, w=np.sqrt(w[:k])), x[:k])
        assert error == pytest.approx(w[:k] @ (u[:k] - fit) ** 2, abs=1e-12)


@pytest.mark.parametrize("shape", ["constant", "linear", "mixed", "levels"])
@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_pieces_searched_anew_promise_what_they_gain(shape, alpha):
    """The promise is exact for squared error and one feature, where the loss is a parabola in each bin."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.random(24))
    codes = np.minimum(rng.integers(0, 24, 600), rng.integers(0, 24, 600))
    design = BinnedMatrix(codes[None], [0, 24], positions=x)
    y = np.sin(8 * x[codes]) + rng.normal(size=600)
    constraints = Constraints(None, 5, shape=shape, jump_cost=0.2)
    problem, point, labels = stopped(design, y, constraints, alpha=alpha, step_size=0.3)
    gradient = problem.objective.gradient(point)
    found = resegmented(problem, point, labels, gradient)
    before = problem.value(point, labels)
    after = problem.value(problem.objective.point(found.f, found.support), found.labels)
    assert found.promise == pytest.approx(before - after, abs=1e-12)
    assert found.promise > 1e-3


@pytest.mark.parametrize("shape", ["constant", "mixed"])
def test_pieces_of_all_classes_are_searched_at_once(shape):
    """Where the parabolas hold, what they promise for each class is about what a refit gains."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 12, (2, 4000))
    scores = np.zeros((4000, 3))
    scores[:, 0] += 0.4 * (codes[0] > 6)
    scores[:, 1] += 0.4 * (codes[0] < 3) + 0.3 * (codes[1] > 8)
    y = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
    design = BinnedMatrix(codes, [0, 12, 24], positions=np.tile(np.arange(12.0), 2))
    constraints = Constraints(None, 5, shape=shape, jump_cost=0.1)
    problem, point, labels = stopped(design, y, constraints, loss="multinomial", step_size=0.3)
    found = resegmented(problem, point, labels, problem.objective.gradient(point))
    before = problem.value(point, labels)
    after = problem.value(problem.objective.point(found.f, found.support), found.labels)
    assert found.promise == pytest.approx(before - after, rel=0.3)
    assert found.promise > 1e-3
    np.testing.assert_allclose(np.add.reduceat(design.weights[:, None] * found.f, design.offsets[:-1]), 0, atol=1e-12)


def test_parabolas_reach_no_further_than_the_option_says():
    """Classes that are nearly certain curve so little that the least value of a parabola is far away."""
    rng = np.random.default_rng(0)
    codes = np.tile(np.arange(4), 250)[None]
    y = np.where(codes[0] == 3, rng.integers(0, 3, 1000), codes[0])
    design = BinnedMatrix(codes, [0, 4])
    for reach in (0.5, 2.0):
        options = rbr.SolverOptions(reach_of_parabolas=reach)
        problem, point, labels = stopped(design, y, Constraints(None, 4), loss="multinomial", options=options)
        found = resegmented(problem, point, labels, problem.objective.gradient(point))
        assert np.ptp(found.f - point.f, axis=0).max() <= 2 * reach * (1 + 1e-9)
