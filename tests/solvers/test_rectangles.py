"""Grids cut into few rectangles: the exact projection against all candidates, the greedy one against the exact one."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbr import _fast
from rbr.reference.rectangles import best_rectangles, explained


def partitions(a, b, c, d, k):
    """Every way to cut a rectangle into at most k rectangles by guillotine cuts, as sets of rectangles."""
    found = {((a, b, c, d),)}
    if k > 1:
        ways = [((a, m, c, d), (m, b, c, d)) for m in range(a + 1, b)]
        ways += [((a, b, c, m), (a, b, m, d)) for m in range(c + 1, d)]
        for one, other in ways:
            for n in range(1, k):
                for left, right in itertools.product(partitions(*one, n), partitions(*other, k - n)):
                    found.add(tuple(sorted(left + right)))
    return found


def projected(u, w, rectangles):
    """The nearest table that is constant on each of some rectangles."""
    out = np.zeros_like(u)
    for a, b, c, d in rectangles:
        total = w[a:b, c:d].sum()
        out[a:b, c:d] = (w[a:b, c:d] * u[a:b, c:d]).sum() / total if total > 0 else 0.0
    return out


def made_grid(shape, seed, zeros=True):
    rng = np.random.default_rng(seed)
    w = rng.choice([0.0, 1.0, 3.0] if zeros else [1.0, 3.0], shape) * rng.uniform(0.5, 1.0, shape)
    w[0, 0] = 1.0
    return rng.normal(size=shape), w / w.sum()


@pytest.mark.parametrize("shape", [(1, 4), (2, 3), (3, 3)])
@pytest.mark.parametrize("limit", [1, 2, 3, 5])
@pytest.mark.parametrize("price", [0.0, 0.02])
def test_the_dynamic_programme_finds_the_best_of_all_guillotine_cuts(shape, limit, price):
    for seed in range(5):
        u, w = made_grid(shape, seed)
        ways = partitions(0, shape[0], 0, shape[1], limit)
        q = [
            sum(explained(u[a:b, c:d, None], w[a:b, c:d]) for a, b, c, d in way) - price * (len(way) - 1)
            for way in ways
        ]
        found, rectangles = best_rectangles(u[:, :, None], w, limit, price)
        assert found == pytest.approx(max(q), abs=1e-12)
        assert len(rectangles) <= limit


@pytest.mark.parametrize("n_used", [1, 2])
def test_the_projection_onto_few_centred_tables_of_rectangles_decomposes(n_used):
    """P_C = P_G o P_L o P_zm, against every choice of tables and of rectangles."""
    for seed in range(5):
        grids = [made_grid((2, 3), (seed, t), zeros=False) for t in range(3)]
        ways = partitions(0, 2, 0, 3, 3)
        best = np.inf
        for used in itertools.combinations(range(3), n_used):
            distance = 0.0
            for t, (u, w) in enumerate(grids):
                if t not in used:
                    distance += (w * u**2).sum()
                    continue
                # The nearest table of mean zero on given rectangles: project, then centre, by Lagrange.
                tables = (projected(u, w, way) for way in ways)
                distance += min((w * (u - (table - (w * table).sum())) ** 2).sum() for table in tables)
            best = min(best, distance)
        centred = [(u - (w * u).sum(), w) for u, w in grids]
        local = [projected(u, w, best_rectangles(u[:, :, None], w, 3)[1]) for u, w in centred]
        norms = [(w * table**2).sum() for table, (_, w) in zip(local, grids, strict=True)]
        kept = np.argsort(norms)[::-1][:n_used]
        ours = sum((w * (u - (local[t] if t in kept else 0.0)) ** 2).sum() for t, (u, w) in enumerate(grids))
        assert ours == pytest.approx(best, abs=1e-12)
        assert all(abs((w * table).sum()) < 1e-12 for table, (_, w) in zip(local, grids, strict=True))


def cut(u, w, limit, price=0.0, missing=(0, 0)):
    shape = u.shape
    labels = np.zeros(u.size, dtype=np.int32)
    sides = np.array([[shape[0] - missing[0], shape[1] - missing[1], *missing]])
    values = np.ascontiguousarray(u.reshape(u.size, -1))
    _fast.cut_grids(
        np.array([0, u.size]), sides, values, w.ravel().copy(), np.array([limit]), np.array([price]), labels, 0, 1
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
