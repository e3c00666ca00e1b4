"""Refits: the basis of a set of pieces, exact least squares on them, and the two ways to solve for a Newton step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import LOSSES, SHAPES, block_of, make_design, make_target, objective_of, with_even_bins

import rbr
from rbr.constraints import Constraints
from rbr.data.design import BinnedMatrix
from rbr.data.sampling import spread_rows
from rbr.solvers.pieces import coarsened, piece_basis
from rbr.solvers.refit import keep_monotone, refit, used_features
from rbr.solvers.space import Space, Spaces, conjugate_gradients


def bound_to(design, shape="constant", limit=3, **options):
    constraints = Constraints(max_segments=limit, shape=shape, **options)
    return constraints.bind(design.offsets, design.weights, missing=design.missing, positions=design.positions)


def random_pieces(design, shape, seed=0, limit=3, jump_cost=0.0):
    """Tables and pieces as a projection makes them."""
    bound = bound_to(design, shape, limit, jump_cost=jump_cost)
    u = np.random.default_rng(seed).normal(size=design.n_coef)
    return bound, bound.prox(u, 1.0, 1e-3 if jump_cost else 0.0)


def design_for(shape, **options):
    return with_even_bins() if shape == "frequency" else make_design(**options)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(4))
def test_basis_is_orthonormal_of_mean_zero_and_spans_the_tables_of_the_pieces(shape, seed):
    design = design_for(shape, seed=seed)
    for jump_cost in (0.0, 1.0):  # mixed pieces need one
        bound, found = random_pieces(design, shape, seed, jump_cost=jump_cost)
        for j in found.support:
            table = slice(design.offsets[j], design.offsets[j + 1])
            w, x, labels = design.weights[table], bound.positions[table], found.labels[table]
            basis = piece_basis(labels, w, x, bound.shapes[j], bound.missing[j])
            q = basis.basis
            np.testing.assert_allclose(q.T @ (w[:, None] * q), np.eye(q.shape[1]), atol=1e-12)
            np.testing.assert_allclose(w @ q, 0.0, atol=1e-12)
            # Its dimension is the number of free parameters of the pieces, and the projected table lies in its span.
            pieces = np.unique(labels[labels >= 0])
            live = w > 0
            slopes = sum(int(p % 2 and np.ptp(x[live & (labels == p)]) > 0) for p in pieces)
            weighty = sum(bool(live[labels == p].any()) for p in pieces) if shape != "frequency" else len(pieces)
            assert q.shape[1] == weighty + slopes - 1
            projected = q @ (q.T @ (w * found.f[table]))
            np.testing.assert_allclose(projected[live], found.f[table][live], atol=1e-12)
            # The bins of a group share a row of the basis; bins outside every piece have a row of zeros.
            inside = (labels >= 0) | (shape == "frequency")
            np.testing.assert_array_equal(basis.group_basis[basis.groups[inside]], q[inside])
            assert not q[~inside].any()


def test_basis_with_a_missing_bin_and_an_empty_one():
    labels = np.array([0, 0, 0, 2, 2, 4], dtype=np.int32)
    w = np.array([0.2, 0.0, 0.2, 0.3, 0.1, 0.2])
    q = piece_basis(labels, w, np.arange(6.0), SHAPES.index("constant"), True).basis
    assert q.shape == (6, 2)
    for f in (np.array([1.0, 1, 1, 0, 0, 0]), np.array([0.0, 0, 0, 0, 0, 1])):
        centred = f - w @ f
        np.testing.assert_allclose(q @ (q.T @ (w * centred)), centred, atol=1e-12)


def test_basis_of_one_piece_is_empty():
    labels = np.zeros(3, dtype=np.int32)
    assert piece_basis(labels, np.full(3, 1 / 3), np.arange(3.0), 0, False).basis.shape == (3, 0)


def test_coarse_groups_take_the_bins_of_a_line_together_and_leave_the_rest():
    # A line of 17 bins, one without weight; a constant; a line of three; a bin outside every piece.
    labels = np.array([1] * 17 + [2] * 4 + [5] * 3 + [-1], dtype=np.int32)
    w = np.array([0.04, 0.0, 0.02, 0.05, *[0.03] * 13, *[0.08] * 4, *[0.06] * 3, 0.0])
    w /= w.sum()
    basis = piece_basis(labels, w, np.arange(25.0), SHAPES.index("mixed"), False)
    coarse = coarsened(basis, labels, w, 8)
    line = [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]
    np.testing.assert_array_equal(coarse.groups, [*line, 8, 8, 8, 8, 9, 10, 11, 12])
    assert len(coarse.group_basis) == 8 + 1 + 3
    for group, row in enumerate(coarse.group_basis):
        inside = coarse.groups == group
        np.testing.assert_allclose(row, w[inside] @ basis.basis[inside] / w[inside].sum(), atol=1e-14)
    few = slice(0, 8)
    short = piece_basis(labels[few], w[few] / w[few].sum(), np.arange(8.0), SHAPES.index("mixed"), False)
    np.testing.assert_allclose(coarsened(short, labels[few], w[few], 8).group_basis, short.group_basis, rtol=1e-12)
    constant = piece_basis(labels[17:21], w[17:21], np.arange(4.0), SHAPES.index("mixed"), False)
    assert coarsened(constant, labels[17:21], w[17:21], 8) is constant


@pytest.mark.parametrize("loss", ["log_loss", "poisson"])
def test_a_rough_hessian_is_built_less_often_and_leads_to_the_same_point(loss, monkeypatch):
    design = make_design(n_rows=3000)
    y = make_target(loss, design)
    bound, found = random_pieces(design, "linear")
    exact, _ = refitted(objective_of(design, y, loss), bound, found, max_newton=30, tol=1e-9)
    objective = objective_of(design, y, loss, rough_from_rows=1000)
    builds = []
    build = Space._rough_hessian
    monkeypatch.setattr(Space, "_rough_hessian", lambda self, *args: builds.append(args) or build(self, *args))
    before = objective.work.newton_steps
    rough, _ = refitted(objective, bound, replace(found, f=0.97 * exact.f), max_newton=30, tol=1e-9)
    assert 0 < len(builds) < objective.work.newton_steps - before
    np.testing.assert_allclose(rough.f, exact.f, atol=1e-8)


def test_a_hessian_is_rough_where_rows_are_many_or_lines_have_more_cells_than_entries():
    def is_rough(n_rows, shape, **options):
        design = make_design(n_rows=n_rows)
        objective = objective_of(design, make_target("squared_error", design), **options)
        bound, found = random_pieces(design, shape)
        return Space(objective, bound, found.support, found.labels).accuracy.is_rough

    assert not is_rough(40, "linear")
    cells = {"rough_from_cells": 100}
    assert is_rough(40, "linear", **cells)
    assert not is_rough(40, "constant", **cells) and not is_rough(400, "linear", **cells)
    assert is_rough(400, "constant", rough_from_rows=399)


def with_a_rare_level(n_rows=6000):
    """Six rows have the last level of the first column, and the sample of 1,024 has none of them."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 12, (4, n_rows)).astype(np.uint8)
    codes[1] = np.where(rng.random(n_rows) < 0.7, codes[0], codes[1])
    rare = np.setdiff1d(np.arange(n_rows), spread_rows(n_rows, 1024))[:6]
    codes[0, rare], codes[1, rare] = 12, 7
    return BinnedMatrix(codes, [0, 13, 25, 37, 49])


ROUGH = {"rough_from_rows": 1000, "hessian_rows": 1024, "hessian_rows_per_unknown": 1}


@pytest.mark.parametrize("shape", ["constant", "linear", "mixed"])
def test_a_rough_hessian_has_the_blocks_of_all_rows_and_is_positive(shape):
    design = with_a_rare_level()
    y = make_target("log_loss", design)
    objective = objective_of(design, y, "log_loss", None, None, 1)
    bound, found = random_pieces(design, shape, limit=5, jump_cost=0.1)
    point = objective.point(found.f, found.support)
    space = Space(objective, bound, found.support, found.labels)
    exact, *_ = space._hessian_of_class(point, objective.curvature(point), 0)
    objective = objective_of(design, y, "log_loss", **ROUGH)
    point = objective.point(found.f, found.support)
    space = Space(objective, bound, found.support, found.labels)
    assert space.accuracy.n_sampled == 1024
    curvature = objective.curvature(point, accuracy=space.accuracy)
    hessian, coupling, total = space._rough_hessian(point, curvature)
    for t in space.classes[0]:
        block = exact[t.where, t.where]
        np.testing.assert_allclose(hessian[t.where, t.where], block, atol=1e-6 * np.abs(block).max())
    bordered = np.block([[hessian, coupling[:, None]], [coupling[None], np.array([[total]])]])
    assert np.linalg.eigvalsh(bordered).min() >= -1e-9 * total
    assert np.abs(hessian - exact).max() <= 0.2 * np.abs(exact).max()


def test_a_refit_ends_when_the_next_step_would_gain_less_than_is_enough():
    design = make_design()
    objective = objective_of(design, make_target("log_loss", design), "log_loss", None, None, 1)
    bound = Constraints(3, 4).bind(design.offsets, design.weights)
    found = bound.prox(-objective.gradient(objective.point(objective.zero_tables(), np.zeros(0, dtype=np.int64))), 1, 0)
    steps = []
    for enough in (0.0, 1e-6, np.inf):
        objective.work.newton_steps = 0
        point = objective.point(found.f, found.support)
        refit(objective, bound, point, found.labels, alpha=0.0, step=1.0, tol=0.0, max_newton=6, enough=enough)
        steps.append(objective.work.newton_steps)
    assert steps[0] > steps[1] > steps[2] == 1


def test_a_level_that_the_sample_lacks_does_not_hold_up_a_refit():
    design = with_a_rare_level()
    y = make_target("log_loss", design, strength=2.0)
    objective = objective_of(design, y, "log_loss", None, None, 1)
    bound = bound_to(design, "constant", 13)
    found = bound.prox(np.random.default_rng(0).normal(size=49), 1.0, 0.0)
    exact, _ = refitted(objective, bound, found, max_newton=30, tol=1e-7, alpha=1e-3)
    n_exact = objective.work.newton_steps
    objective = objective_of(
        design, y, "log_loss", slow_gain_ratio=np.inf, **ROUGH
    )  # never goes back to a Hessian of all rows
    rough, _ = refitted(objective, bound, found, max_newton=30, tol=1e-7, alpha=1e-3)
    np.testing.assert_allclose(rough.f, exact.f, atol=1e-5)
    assert objective.work.newton_steps <= 4 * n_exact


def refitted(objective, bound, found, max_newton=1, tol=0.0, alpha=0.0):
    point = objective.point(found.f, found.support)
    return refit(objective, bound, point, found.labels, alpha=alpha, step=1.0, tol=tol, max_newton=max_newton)


@pytest.mark.parametrize("shape", ["constant", "linear", "mixed", "levels", "frequency", "free"])
@pytest.mark.parametrize("path", ["dense", "passes"])
@pytest.mark.parametrize("weighted", [False, True])
def test_one_newton_step_is_weighted_least_squares_on_the_pieces(shape, path, weighted):
    options = {"max_dense_features": 0, "cg_tol": 1e-12} if path == "passes" else {}
    design = design_for(shape)
    y = make_target("squared_error", design)
    sample_weight = (
        np.random.default_rng(3).integers(1, 4, design.n_rows) if weighted and shape != "frequency" else None
    )
    objective = objective_of(design, y, "squared_error", sample_weight, **options)
    bound, found = random_pieces(block_of(objective).design, shape, jump_cost=0.5 if shape == "mixed" else 0.0)
    point, _ = refitted(objective, bound, found)
    columns = [np.ones(design.n_rows)]
    for j in found.support:
        table = slice(design.offsets[j], design.offsets[j + 1])
        labels, x = found.labels[table], bound.positions[table]
        if shape == "frequency":
            k = np.flatnonzero(labels > 0)
            spans = [np.cos(np.pi * i * (np.arange(len(labels)) + 0.5) / len(labels)) for i in k]
        else:
            spans = [(labels == p).astype(float) for p in np.unique(labels[labels >= 0])]
            spans += [np.where(labels == p, x, 0.0) for p in np.unique(labels[labels >= 0]) if p % 2]
        columns += [span[design.codes[j]] for span in spans]
    A, root = np.stack(columns, axis=1), np.sqrt(block_of(objective).v)
    expected = A @ np.linalg.lstsq(A * root[:, None], y * root, rcond=None)[0]
    np.testing.assert_allclose(point.handle.raw[0], expected, rtol=0, atol=1e-8)
    assert point.loss <= objective.point(found.f, found.support).loss


@pytest.mark.parametrize("loss", LOSSES)
def test_passes_and_cholesky_give_the_same_refit(loss):
    design = make_design(n_rows=600)
    y = make_target(loss, design)
    objective = objective_of(design, y, loss, None, None, 1)
    n_classes = objective.n_outputs
    bound = bound_to(design)
    u = np.random.default_rng(0).normal(size=objective.zero_tables().shape)
    found = bound.prox(0.1 * u, 1.0, 0.0)
    dense, _ = refitted(objective, bound, found, max_newton=30, tol=1e-10, alpha=0.01)
    for name in ("max_dense_features", "max_dense_groups", "max_dense_unknowns"):
        by_passes = objective_of(design, y, loss, **{name: 1})
        applied, _ = refitted(by_passes, bound, found, max_newton=30, tol=1e-10, alpha=0.01)
        np.testing.assert_allclose(applied.f, dense.f, rtol=0, atol=1e-5 if loss == "quantile" else 1e-7)
    # The refit is stationary: no direction within the pieces is downhill.
    space = Space(objective, bound, dense.support, found.labels)
    slope = space.coordinates(objective.gradient(dense) + 0.01 * dense.f)
    assert np.abs(slope).max() < 1e-6
    assert dense.f.shape == ((design.n_coef,) if n_classes == 1 else (design.n_coef, n_classes))


@pytest.mark.parametrize("loss", LOSSES)
def test_every_newton_step_lowers_the_objective(loss):
    design = make_design()
    y = make_target(loss, design)
    objective = objective_of(design, y, loss, None, None, 1)
    bound = bound_to(design)
    found = bound.prox(np.random.default_rng(1).normal(size=objective.zero_tables().shape), 1.0, 0.0)
    values = [refitted(objective, bound, found, max_newton=k)[0].loss for k in range(5)]
    assert (np.diff(values) <= 0).all() and values[-1] < values[0]


@pytest.mark.parametrize("sign", [1, -1])
def test_pooling_keeps_tables_monotone_and_drops_flat_ones(sign):
    design = make_design()
    bound = bound_to(design, "increasing" if sign > 0 else "decreasing", limit=4)
    labels = np.full(design.n_coef, -1, dtype=np.int32)
    f = np.zeros(design.n_coef)
    for j, (values, pieces) in {
        0: ([1.0, 2.0, 2.0, 1.5, 3.0, 3.0], [0, 2, 2, 4, 6, 6]),  # one violation
        1: ([5.0, 4.0, 3.0, 2.0, 7.0], [0, 2, 4, 6, 8]),  # all pooled into one, beside the missing bin
        2: ([4.0, 3.0, 2.0, 1.0], [0, 2, 4, 6]),  # all pooled into one
    }.items():
        table = slice(design.offsets[j], design.offsets[j + 1])
        f[table] = sign * (np.array(values) - design.weights[table] @ values)
        labels[table] = pieces
    pooled, merged = keep_monotone(bound, f, labels, np.array([0, 1, 2]))
    tables = [slice(design.offsets[j], design.offsets[j + 1]) for j in range(3)]
    assert (np.diff(sign * pooled[tables[0]]) >= 0).all()
    np.testing.assert_array_equal(merged[tables[0]], [0, 2, 2, 2, 4, 4])
    np.testing.assert_array_equal(merged[tables[1]], [0, 0, 0, 0, 2])
    assert np.ptp(pooled[tables[1]][:4]) == 0
    assert not pooled[tables[2]].any() and (merged[tables[2]] == -1).all()
    np.testing.assert_array_equal(used_features(bound, merged), [0, 1])
    for table in tables:
        assert abs(design.weights[table] @ pooled[table]) < 1e-12
    assert (f[tables[2]] != 0).any()  # the argument is left alone


def test_conjugate_gradients():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(12, 12))
    A, b = root @ root.T + np.eye(12), rng.normal(size=12)
    diagonal = np.diag(A)
    x = conjugate_gradients(lambda a: A @ a, lambda r: r / diagonal, b, tol=1e-10, max_iter=200)
    np.testing.assert_allclose(x, np.linalg.solve(A, b), rtol=1e-8)
    assert not conjugate_gradients(lambda a: A @ a, lambda r: r, np.zeros(12), tol=1e-10, max_iter=9).any()


def test_bases_of_tables_that_keep_their_pieces_are_used_again():
    """But not in another geometry."""
    design = make_design()
    y = make_target("squared_error", design)
    s = rbr.solve(design, y, constraints=Constraints(4, 3))
    objective, bound, spaces = s.problem.objective, s.problem.constraints, Spaces()
    before = {t.table: t.basis for t in spaces.of(objective, bound, s.support, s.labels).classes[0]}
    changed, labels = int(s.support[0]), s.labels.copy()
    bins = slice(design.offsets[changed], design.offsets[changed + 1])
    labels[bins] = 0
    labels[bins.start] = 2
    after = {t.table: t.basis for t in spaces.of(objective, bound, s.support, labels).classes[0]}
    assert [after[j] is before[j] for j in s.support] == [j != changed for j in s.support]
    elsewhere = bound.on(bound.weights.copy())
    assert not any(t.basis is after[t.table] for t in spaces.of(objective, elsewhere, s.support, labels).classes[0])
