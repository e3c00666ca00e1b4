"""Grids cut into few rectangles best first, against the best rectangles.

That these are the best of all is tested in tests/constraints/test_projections_of_grids.py.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbr import _fast
from rbr.reference.rectangles import best_rectangles


def projected(u, w, rectangles):
    """The nearest table that is constant on each of some rectangles."""
    out = np.zeros_like(u)
    for a, b, c, d in rectangles:
        total = w[a:b, c:d].sum()
        out[a:b, c:d] = (w[a:b, c:d] * u[a:b, c:d]).sum() / total if total > 0 else 0.0
    return out


def made_grid(shape, seed):
    rng = np.random.default_rng(seed)
    w = rng.choice([0.0, 1.0, 3.0], shape) * rng.uniform(0.5, 1.0, shape)
    w[0, 0] = 1.0
    return rng.normal(size=shape), w / w.sum()


def cut(u, w, limit, price=0.0, missing=(0, 0)):
    shape = u.shape
    labels = np.zeros(u.size, dtype=np.int32)
    sides = np.array([[shape[0] - missing[0], shape[1] - missing[1], *missing]])
    values = np.ascontiguousarray(u.reshape(u.size, -1))
    _fast.cut_grids(
        np.array([0, u.size]), sides, values, w.ravel().copy(), np.array([limit]), np.array([price]), 0, labels, 0, 1
    )
    return labels.reshape(shape)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_greedy_rectangles_are_feasible_and_never_better_than_the_best(n_a, n_b, limit, seed):
    u, w = made_grid((n_a, n_b), seed)
    labels = cut(u, w, limit)
    names = np.unique(labels)
    assert len(names) <= limit
    rectangles = []
    for name in names:
        rows, columns = (np.flatnonzero((labels == name).any(axis=side)) for side in (1, 0))
        assert (labels[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] == name).all()
        rectangles.append((rows[0], rows[-1] + 1, columns[0], columns[-1] + 1))
    table = projected(u, w, rectangles)
    assert (w * u**2).sum() == pytest.approx((w * table**2).sum() + (w * (u - table) ** 2).sum())
    best, _ = best_rectangles(u[:, :, None], w, limit)
    assert 0.5 * (w * table**2).sum() <= best + 1e-12


def test_a_chessboard_is_found_by_looking_ahead():
    """Its row and column means are zero, so that no single cut gains anything."""
    u = np.kron(np.array([[1.0, -1.0], [-1.0, 1.0]]), np.ones((4, 4)))
    labels = cut(u, np.full((8, 8), 1 / 64), 4)
    assert len(np.unique(labels)) == 4
    assert all(np.ptp(u[labels == name]) == 0 for name in np.unique(labels))


def test_missing_values_lie_outside_the_cuts():
    rng = np.random.default_rng(0)
    labels = cut(rng.normal(size=(5, 6)), np.full((5, 6), 1 / 30), 6, missing=(1, 1))
    parts = [labels[:4, :5], labels[4:, :5], labels[:4, 5:], labels[4:, 5:]]
    for one, other in itertools.combinations(parts, 2):
        assert not set(np.unique(one)) & set(np.unique(other))
