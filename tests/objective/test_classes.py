"""The Hessian of several classes, built from a sample, beside products with that of all rows."""

import numpy as np
import pytest

import rbr
from rbr.objective import packing
from rbr.objective.protocol import EXACT, Accuracy, Groups
from rbr.solvers.space import Space


def problem(n_rows=4000, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    n_bins = np.array([5, 2, 9, 2])
    codes = np.array([rng.integers(0, n, n_rows) for n in n_bins], dtype=np.uint8)
    y = (codes[0] + codes[2] + rng.integers(0, 4, n_rows)) % n_classes
    design = rbr.BinnedMatrix(codes, offsets=np.concatenate([[0], np.cumsum(n_bins)]))
    weight = rng.integers(1, 4, n_rows).astype(float)
    options = rbr.SolverOptions(products_saved=1e9)  # the Hessian of all classes always pays
    objective = rbr.make_objective(design, y, loss="multinomial", sample_weight=weight, options=options)
    f = rng.normal(size=(n_bins.sum(), n_classes))
    return objective, objective.point(f, np.arange(4)), n_bins


def merged_of(objective, n_bins, accuracy):
    offsets = objective.tables.offsets
    of_bin = np.concatenate([np.arange(n) for n in n_bins])
    return [objective.merge(Groups(np.arange(4), offsets, of_bin, n_bins), accuracy) for _ in range(3)]


@pytest.mark.parametrize("least_pairs", [0, 10**9])
def test_it_is_the_map_of_products(least_pairs, monkeypatch):
    monkeypatch.setattr(packing, "MIN_PAIRS", least_pairs)
    objective, point, n_bins = problem()
    whole = objective.hessian_of_outputs(point, 1, *merged_of(objective, n_bins, EXACT))
    n = 3 * n_bins.sum()
    eliminated = whole[:n, :n] - whole[:n, n:] @ np.linalg.pinv(whole[n:, n:], rcond=1e-10) @ whole[n:, :n]
    f = np.random.default_rng(1).normal(size=(n_bins.sum(), 3))
    times = objective.hessian_times(point, objective.curvature(point), np.arange(4))
    np.testing.assert_allclose((eliminated @ f.T.ravel()).reshape(3, -1).T, times(f), rtol=1e-9, atol=1e-12)


def test_a_sample_is_close():
    objective, point, n_bins = problem(n_rows=40_000)
    whole = objective.hessian_of_outputs(point, 1, *merged_of(objective, n_bins, EXACT))
    part = objective.hessian_of_outputs(point, 1, *merged_of(objective, n_bins, Accuracy(True, 0, 8000)))
    assert 0 < np.linalg.norm(part - whole) < 0.05 * np.linalg.norm(whole)


def test_it_guides_conjugate_gradients_to_the_same_step(monkeypatch):
    objective, point, n_bins = problem(n_rows=20_000)
    bound = rbr.Constraints(max_segments=4).bind_to(objective.tables, objective.n_total)
    labels = np.concatenate([2 * np.arange(n) for n in n_bins]).astype(np.int32)[:, None].repeat(3, axis=1)
    gradient = objective.gradient(point, point.support)
    moves, products = [], []
    for products_saved in (12.0, 0.0):
        options = rbr.SolverOptions(cg_tol=1e-9, cg_first_tol=1e-9, many_rows=1000, products_saved=products_saved)
        monkeypatch.setattr(objective, "options", options)
        before = objective.work.columns_read
        space = Space(objective, bound, point.support, labels)
        moves.append(space.newton_move(point, space.coordinates(gradient), 0.01, majorize=False))
        products.append(objective.work.columns_read - before)
    np.testing.assert_allclose(moves[0], moves[1], rtol=1e-5, atol=1e-7)
    assert products[0] < 0.7 * products[1]
