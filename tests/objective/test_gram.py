"""Fits from the cross-tabulation agree with fits from the rows, up to rounding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import SHAPES, WEIGHTINGS, block_of, make_design, make_target, objective_of, with_even_bins

import rbr
from rbr import SolverOptions
from rbr.constraints import Constraints
from rbr.data.design import BinnedMatrix
from rbr.objective import gram as gram_module
from rbr.objective.gram import GramSums, gram_is_faster, gram_objective
from rbr.solvers.moves import resegmented, shifts

# Losses and gradients are differences of numbers of the size of the variance of y, about 1 in these problems.
ROUNDING = 1e-13


def both(weighting="counts", weights=False, offset=False, seed=0, unknown=False):
    """The objective over rows, and the one over sums; with `unknown` some rows have no bin in the first table."""
    design = make_design(seed).with_weights(weighting)
    if unknown:
        codes = design.codes.copy()
        codes[0, ::7] = design.n_bins[0]
        design = BinnedMatrix(codes, design.offsets, missing=design.missing, positions=design.positions)
    rng = np.random.default_rng(seed)
    y = make_target("squared_error", design, seed) + 1000.0
    sample_weight = rng.integers(0, 4, design.n_rows) if weights else None
    rows = objective_of(
        design, y, "squared_error", sample_weight, rng.normal(size=design.n_rows) if offset else None, 1
    )
    return rows, gram_objective(rows)


def some_tables(objective, seed=1):
    support = np.array([0, 1, 3])
    f = np.zeros(objective.tables.n_coef)
    for j in support:
        table = slice(objective.tables.offsets[j], objective.tables.offsets[j + 1])
        f[table] = np.random.default_rng(seed + int(j)).normal(size=f[table].shape)
        f[table] -= objective.tables.weights[table] @ f[table]
    return f, support


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("offset", [False, True])
def test_points_and_gradients_are_those_of_the_rows(weighting, weights, offset):
    rows, sums = both(weighting, weights, offset)
    nothing = np.zeros(0, dtype=np.int64)
    for f, support in ((rows.zero_tables(), nothing), some_tables(rows)):
        expected, found = rows.point(f, support), sums.point(f, support)
        assert found.loss == pytest.approx(expected.loss, abs=10 * ROUNDING)
        assert found.intercept == pytest.approx(expected.intercept, abs=1e-9)
        np.testing.assert_allclose(sums.gradient(found), rows.gradient(expected), rtol=0, atol=1e-11)
        some = np.array([4, 1])
        np.testing.assert_allclose(sums.gradient(found, some), rows.gradient(expected, some), rtol=0, atol=1e-11)
        assert sums.dispersion(found) == pytest.approx(rows.dispersion(expected), rel=1e-10)


@pytest.mark.parametrize("weights", [False, True])
def test_curvature_and_hessian_are_those_of_the_rows(weights):
    rows, sums = both(weights=weights)
    f, support = some_tables(rows)
    at_rows, at_sums = rows.point(f, support), sums.point(f, support)
    for objective, point in ((rows, at_rows), (sums, at_sums)):
        curvature = objective.curvature(point)
        by_bin, total = objective.curvature_sums(point, support)
        assert total == pytest.approx(1.0)
        block = block_of(rows)
        np.testing.assert_allclose(by_bin, block.design.rmatvec(block.v, features=support), atol=1e-14)
        direction, _ = some_tables(rows, seed=7)
        product = objective.hessian_times(point, curvature, support)(direction)
        expected = rows.hessian_times(at_rows, rows.curvature(at_rows), support)(direction)
        bins = np.isin(np.repeat(np.arange(5), rows.tables.n_bins), support)
        np.testing.assert_allclose(product[bins], expected[bins], atol=1e-13)


def fit(by_gram, design, y, *, options=None, **arguments):
    """A fit by rows or by sums, with 100 rows counted as many."""
    options = SolverOptions(many_rows=100, ns_per_entry_by_rows=np.inf if by_gram else 0.0, **(options or {}))
    return rbr.solve(design, y, options=options, **arguments)


@pytest.mark.parametrize("jump_cost", [0.0, 0.5])
@pytest.mark.parametrize("shape", SHAPES)
def test_fits_are_those_of_the_rows(shape, jump_cost):
    for seed in range(3):
        if shape == "frequency":
            design = with_even_bins(seed)
        else:
            design = make_design(seed).with_weights(WEIGHTINGS[seed % 2])
        y = make_target("squared_error", design, seed)
        options = {"constraints": Constraints(3, 3, shape=shape, jump_cost=jump_cost), "alpha": 0.01}
        expected, found = (fit(by_gram, design, y, **options) for by_gram in (False, True))
        np.testing.assert_array_equal(found.support, expected.support)
        np.testing.assert_array_equal(found.labels, expected.labels)
        np.testing.assert_allclose(found.f, expected.f, rtol=0, atol=1e-10)
        assert found.intercept == pytest.approx(expected.intercept, abs=1e-10)
        np.testing.assert_allclose(found.loss_path, expected.loss_path, rtol=0, atol=10 * ROUNDING)
        # The solution has raw scores by row, like any other.
        assert found.point.handle.raw[0].shape == y.shape
        assert len({row.passes for row in found.history}) == 1  # no iteration reads a column
        assert found.certificate.is_local_optimum == expected.certificate.is_local_optimum


def test_large_supports_are_refitted_by_conjugate_gradients_too():
    design = make_design()
    y = make_target("squared_error", design)
    arguments = {"constraints": Constraints(4, 3), "alpha": 0.01, "options": {"max_dense_unknowns": 2, "cg_tol": 1e-10}}
    expected, found = (fit(by_gram, design, y, **arguments) for by_gram in (False, True))
    np.testing.assert_allclose(found.f, expected.f, rtol=0, atol=1e-8)


def test_moves_are_those_of_the_rows():
    design = make_design(seed=2, n_bins=(9, 8, 7, 9, 6))
    y = make_target("squared_error", design, seed=2)
    solution = fit(False, design, y, constraints=Constraints(4, 3), max_iter=1, tol=0.0)
    problem, labels = solution.problem, solution.labels
    sums = gram_objective(problem.objective)
    by_sums = replace(problem, objective=sums)
    point = sums.point(solution.point.f, solution.support)
    both = (problem, solution.point), (by_sums, point)
    one, other = ((p, q, labels, p.objective.gradient(q, q.support)) for p, q in both)
    assert [p.change for p in shifts(*one)] == [p.change for p in shifts(*other)]
    one, other = resegmented(*one), resegmented(*other)
    assert (one is None) == (other is None)
    if one is not None:
        np.testing.assert_array_equal(one.labels, other.labels)


@pytest.mark.parametrize("weights", [False, True])
def test_changes_of_one_table_are_those_of_the_rows(weights):
    rows, sums = both(weights=weights, offset=True, unknown=True)
    f, support = some_tables(rows)
    of_rows, of_sums = (o.changes(o.point(f, support)) for o in (rows, sums))
    rng = np.random.default_rng(5)
    for j in support.tolist():
        one, other = of_rows.of(j, 0), of_sums.of(j, 0)
        np.testing.assert_allclose(other.f, one.f)
        np.testing.assert_allclose(other.weight, one.weight, atol=1e-14)
        change, groups = rng.normal(size=len(one.f)), np.zeros(len(one.f), dtype=int)
        rise, is_corrected = other.measure(change, groups)
        np.testing.assert_allclose(rise, one.measure(change, groups)[0], atol=1e-11)
        for a, b in zip(other.slopes(change, is_corrected), one.slopes(change, is_corrected), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-11)
        without = f.copy()
        without[rows.tables.offsets[j] : rows.tables.offsets[j + 1]] = 0.0
        lost = sums.point(without, support).loss - sums.point(f, support).loss
        assert of_sums.rise_without(j) == pytest.approx(lost, abs=1e-11)


def test_sums_refuse_what_needs_rows():
    _, sums = both()
    point = sums.point(sums.zero_tables(), np.zeros(0, dtype=np.int64))
    with pytest.raises(ValueError, match="bags draw rows, which a cross-tabulation does not have"):
        sums.bags(1, 0.6, None)
    for asked, arguments in {"better_jumps": (point, {}), "rebin": ({},), "line_gradient": (point, None)}.items():
        with pytest.raises(ValueError, match=f"{asked} needs values within bins"):
            getattr(sums, asked)(*arguments)


def test_a_fit_of_sums_alone_is_that_of_the_rows():
    rows, sums = both()
    constraints = Constraints(3, 3)
    expected, found = (rbr.solve(objective=o, constraints=constraints) for o in (rows, sums))
    np.testing.assert_allclose(found.f, expected.f, rtol=0, atol=1e-9)
    assert found.certificate.is_local_optimum == expected.certificate.is_local_optimum


@pytest.mark.parametrize("weights", [False, True])
def test_sums_add_and_subtract_as_rows_do(weights):
    design = make_design()
    y = make_target("squared_error", design)
    w = np.random.default_rng(0).uniform(0.5, 2.0, design.n_rows) if weights else None
    fold = np.arange(design.n_rows) % 3 == 0
    of = {"whole": slice(None), "fold": fold, "rest": ~fold}
    sums = {k: GramSums.of(design[r], y[r], None if w is None else w[r], origin=0.5) for k, r in of.items()}
    for found, expected in ((sums["whole"] - sums["fold"], sums["rest"]), (sums["fold"] + sums["rest"], sums["whole"])):
        for name in ("gram", "target", "weight", "y", "y_squared"):
            np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=0, atol=1e-11)
    if w is None:  # counts are whole numbers: no rounding at all
        np.testing.assert_array_equal((sums["whole"] - sums["fold"]).gram, sums["rest"].gram)
    np.testing.assert_allclose(sums["whole"].bin_weights, design.rmatvec(np.ones(design.n_rows) if w is None else w))


def test_sums_that_do_not_go_together_say_so():
    design = make_design()
    y = make_target("squared_error", design)
    with pytest.raises(ValueError, match=r"origin 0.0 over 25 bins .* origin 1.0 over 25 bins"):
        GramSums.of(design, y) + GramSums.of(design, y, origin=1.0)


def test_a_large_mean_costs_no_digits():
    rows, sums = both()
    f, support = some_tables(rows)
    assert abs(block_of(rows).y.mean()) > 900
    assert sums.point(f, support).loss == pytest.approx(rows.point(f, support).loss, rel=1e-12)


def test_it_is_chosen_for_squared_error_of_many_rows_and_few_columns(monkeypatch):
    design = make_design(n_rows=60_000)
    y = make_target("squared_error", design)
    objective = objective_of(design, y, "squared_error", None, None, 1)
    assert gram_is_faster(objective)
    assert not gram_is_faster(objective_of(design, y, "huber", None, None, 1))
    monkeypatch.setattr(gram_module, "MAX_GRAM_BYTES", 8 * design.n_coef**2 - 1)
    assert not gram_is_faster(objective)
    monkeypatch.undo()
    # With many columns, counting all pairs of them costs more than reading the columns a few times.
    wide = make_design(n_rows=60_000, n_bins=(6, 5, 4, 7, 3) * 24)
    assert not gram_is_faster(objective_of(wide, y, "squared_error", None, None, 1))
    passes = rbr.solve(design, y).history[-1].passes
    assert passes == 3.0  # 15 pairs of 5 columns
