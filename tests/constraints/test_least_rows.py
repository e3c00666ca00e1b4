"""A least number of rows in a piece: what it means, which searches stay exact, and what the others lose.

The property tests of `test_projections.py` draw a least number of rows too.
"""

from __future__ import annotations

import numpy as np
import pytest
from brute_force import brute_force, square
from cases_projections import Stack, assert_tables_agree, prox_args
from helpers import assert_same_bits

from rbr import _fast
from rbr._backend import BACKENDS, use_backend
from rbr.constraints import Constraints
from rbr.data.design import BinnedMatrix
from rbr.reference.projections import prox_table

both_backends = pytest.mark.parametrize("backend", BACKENDS)


def pieces_of(table):
    """The number of bins of each run of equal values."""
    return np.diff(np.flatnonzero(np.diff(table, prepend=np.nan, append=np.nan))).tolist()


# ---------------------------------------------------------------- what it means

U = np.array([0.0, 0.0, 0.0, 9.0, 0.0, 0.0, 0.0, 0.0, 8.0, 8.0])


def project(min_rows, shape="constant", u=U, **kwargs):
    n = len(u)
    bound = Constraints(max_segments=n, shape=shape, min_rows=min_rows).bind([0, n], np.full(n, 1 / n), **kwargs)
    return bound.prox(u, 1.0, 0.0)


@both_backends
@pytest.mark.parametrize("shape", ["constant", "linear", "increasing", "levels"])
def test_every_piece_holds_the_least_number_of_rows(backend, shape):
    with use_backend(backend):
        free, bound = (project(min_rows, shape).labels for min_rows in (0, 0.3))
    assert np.unique(free, return_counts=True)[1].min() < 3
    assert np.unique(bound, return_counts=True)[1].min() >= 3
    assert len(np.unique(bound)) > 1


@both_backends
def test_a_number_of_rows_is_met_exactly_and_not_by_rounding(backend):
    """Ten bins of 7 rows each, in shares that are not exact numbers: 14 rows are two bins, 15 are three."""
    with use_backend(backend):
        for n_rows, n_bins in {14: 2, 15: 3, 21: 3, 22: 4, 35: 5}.items():
            assert min(pieces_of(project(n_rows, n_rows=70).f)) == n_bins
            assert_same_bits(project(n_rows, n_rows=70).f, project(n_rows / 70).f)
        assert len(project(36, n_rows=70).support) == 0
        assert len(project(1000, n_rows=70).support) == 0


@both_backends
def test_a_table_with_too_few_rows_is_one_piece(backend):
    """Beside a large missing bin the ordered bins hold a fifth of the rows; one line, or one constant, is left."""
    u, w = np.array([1.0, 3.0, -2.0, 0.5]), np.array([0.05, 0.1, 0.05, 0.8])
    for shape in ("constant", "linear", "increasing", "levels"):
        bound = Constraints(max_segments=3, shape=shape, min_rows=0.3).bind([0, 4], w, missing=np.array([True]))
        with use_backend(backend):
            labels = bound.prox(u, 1.0, 0.0).labels
        assert len(np.unique(labels[:3])) == 1
        assert labels[3] > labels[0] >= 0


@both_backends
def test_uniform_weights_still_count_rows(backend):
    codes = np.repeat(np.arange(4), [1, 1, 20, 20])
    B = BinnedMatrix([codes], offsets=[0, 4]).with_weights("uniform")
    f = np.array([4.0, -4.0, 1.0, -1.0])
    with use_backend(backend):
        bound = Constraints(max_segments=4, min_rows=2).bind_to(B, 42)
        assert pieces_of(bound.prox(f, 1.0, 0.0).f) == [2, 1, 1]
        assert pieces_of(Constraints(max_segments=4, min_rows=0.25).bind_to(B).prox(f, 1.0, 0.0).f) == [3, 1]


@both_backends
def test_rows_of_bins_without_weight_count_for_their_piece(backend):
    """As in the geometry of the curvature, in which bins with rows may weigh nothing."""
    u, w = np.array([9.0, 1.0, 9.0, -1.0]), np.array([0.0, 0.5, 0.0, 0.5])
    for shares, n_pieces in (([0.3, 0.1, 0.1, 0.5], 2), ([0.1, 0.1, 0.2, 0.6], 2), ([0.1, 0.1, 0.1, 0.7], 1)):
        bound = Constraints(max_segments=4, min_rows=0.4).bind([0, 4], w, shares=shares)
        with use_backend(backend):
            assert len(bound.prox(u, 1.0, 0.0).support) == n_pieces - 1


@both_backends
def test_free_and_frequency_tables_have_no_minimum(backend):
    with use_backend(backend):
        for shape in ("free", "frequency"):
            assert_same_bits(project(0.4, shape).f, project(0, shape).f)


@pytest.mark.parametrize("bad", [-1, 1.0, 1.5, 0.0, -0.2, np.nan, True, "many", None, [5]])
def test_bad_values_are_refused(bad):
    with pytest.raises(ValueError, match="min_rows is .*; it must be an integer of at least 0.*float between 0 and 1"):
        Constraints(min_rows=bad)


def test_a_number_of_rows_needs_to_know_how_many_there_are():
    for call in (
        lambda C: C.project(U, [0, 10], np.full(10, 0.1)),
        lambda C: C.prox(U, [0, 10], np.full(10, 0.1), 1.0, 0.1),
        lambda C: C.bind([0, 10], np.full(10, 0.1)),
    ):
        with pytest.raises(ValueError, match="min_rows is 3, a number of rows, .* must be a float between 0 and 1"):
            call(Constraints(min_rows=3))
        call(Constraints(min_rows=0.3))
    assert Constraints(min_rows=0.3).of_shares(50) == Constraints(min_rows=0.3)
    assert Constraints(min_rows=3).of_shares(50) == Constraints(min_rows=0.06)
    assert 0.999 < Constraints(min_rows=60).of_shares(50).min_rows < 1
    assert Constraints().of_shares(50) == Constraints()


# ---------------------------------------------------------------- larger tables


@pytest.mark.parametrize("kind", ["noise", "steps", "smooth", "sorted", "falling", "integers"])
@pytest.mark.parametrize("shape", ["constant", "linear", "mixed", "increasing", "decreasing", "levels"])
@pytest.mark.parametrize("price", [0.0, 1e-5, 3e-3])
def test_large_tables_agree_with_the_reference(kind, shape, price):
    """Tables large enough for all searches: of two pieces, of sorted values, priced, greedy."""
    n, rng = 110, np.random.default_rng(2)
    w, rows = rng.random(n) + 1e-3, rng.random(n) ** 3
    w[rng.random(n) < 0.05] = 0.0
    w, rows = w / w.sum(), rows / rows.sum()
    t, noise = np.linspace(0, 1, n), rng.standard_normal(n)
    f = {
        "noise": noise,
        "steps": 3 * np.repeat(rng.standard_normal(10), 11) + noise,
        "smooth": np.sin(6 * t) + 1e-6 * noise,
        "sorted": np.sort(noise),
        "falling": -np.sort(noise),
        "integers": rng.integers(-3, 4, n).astype(float),
    }[kind]
    for limit, least, greedy in (
        (2, 0.1, False),
        (6, 0.03, False),
        (20, 0.07, False),
        (40, 1e-9, False),
        (6, 0.05, True),
    ):
        arrays = np.array([0, n]), w, np.cumsum(w), np.array([False])
        stack = Stack(f, *arrays, [shape], np.array([limit]), kind == "integers", rows, np.array([least]))
        args, blank = prox_args(stack, np.array([0]), price * square(f, w), greedy)
        fast, slow = ([out.copy() for out in blank] for _ in range(2))
        _fast.prox_tables(*args, *fast, 0, 1)
        BACKENDS["reference"].prox_tables(*args, *slow, 0, 1)
        assert_tables_agree(stack, np.array([0]), price, greedy)(fast, slow)


@pytest.mark.parametrize("seed", range(12))
def test_random_tables_agree_with_the_reference(seed):
    """Just below and above the size from which searches prune, few and many pieces, tight and loose minima."""
    rng = np.random.default_rng(seed)
    for shape in ("constant", "increasing", "mixed", "levels") * 4:
        n = int(rng.integers(50, 90))
        w, rows = rng.random(n) ** 2 + 1e-4, rng.random(n) ** 3
        w[rng.random(n) < 0.1] = 0.0
        rows[:5] += rng.choice([0.0, 2.0])  # so that pieces may begin at every bin from the first on
        w, rows = w / w.sum(), rows / rows.sum()
        f = rng.standard_normal(n) + rng.choice([0, 3]) * np.repeat(rng.standard_normal(9), 10)[:n]
        f = f * rng.choice([0.1, 1.0]) + rng.choice([0, 4]) * np.linspace(0, 1, n)
        least, limit = rng.choice([1e-9, 0.005, 0.03, 0.1, 0.3], 1), rng.choice([3, 8, 32], 1)
        price = rng.choice([0.0, 1e-5, 1e-4, 1e-3, 1e-2]) * square(f, w)
        stack = Stack(f, np.array([0, n]), w, np.cumsum(w), np.array([False]), [shape], limit, False, rows, least)
        args, blank = prox_args(stack, np.array([0]), price, False)
        fast, slow = ([out.copy() for out in blank] for _ in range(2))
        _fast.prox_tables(*args, *fast, 0, 1)
        BACKENDS["reference"].prox_tables(*args, *slow, 0, 1)
        assert_tables_agree(stack, np.array([0]), price, False)(fast, slow)


# ---------------------------------------------------------------- what sorting and pooling give up


def net_and_best(u, w, shape, limit, least):
    """Half the squared norm of what the search finds, and of the best table of all."""
    x, u = np.arange(float(len(u))), u - w @ u
    net = prox_table(u, w, x, False, shape, limit, 0.0, False, w, least)[2]
    return net, square(u, w) / 2 - brute_force(u, w, x, False, shape, limit, rows=w, least_rows=least)


def test_groups_of_levels_with_a_minimum_need_not_be_neighbours():
    """No two runs of these sorted levels hold half of the rows each; the groups {0, 2} and {1, 3} do."""
    net, best = net_and_best(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.2, 0.2, 0.3, 0.3]), "levels", 2, 0.49)
    assert net == 0 < 0.1 < best


def test_pieces_of_a_monotone_table_with_a_minimum_may_have_to_fall():
    """The isotonic fit is 1, 1.5, 1.5, 3, best cut in its middle; there u itself falls, and one piece is left."""
    net, best = net_and_best(np.array([1.0, 3.0, 0.0, 3.0]), np.array([0.4, 0.2, 0.2, 0.2]), "increasing", 2, 0.29)
    assert net == 0 < 0.1 < best


@pytest.mark.parametrize(
    "shape, least, share_kept, share_exact",
    [
        ("increasing", 0.1, 0.999, 0.98),
        ("increasing", 0.3, 0.99, 0.96),
        ("levels", 0.1, 0.999, 0.97),
        ("levels", 0.3, 0.97, 0.85),
    ],
)
def test_what_sorting_and_pooling_lose(shape, least, share_kept, share_exact):
    """In three to six bins, which is the worst case: of what the best table explains, nearly all, but not always."""
    rng, found, best = np.random.default_rng(0), [], []
    for _ in range(300):
        n = int(rng.integers(3, 7))
        w = rng.random(n) + 0.05
        u = rng.standard_normal(n) + (rng.integers(3) * np.linspace(-1, 1, n) if shape == "increasing" else 0.0)
        net, best_net = net_and_best(u, w / w.sum(), shape, int(rng.integers(2, 5)), least)
        found.append(net)
        best.append(best_net)
    found, best = np.array(found), np.array(best)
    assert (found <= best + 1e-12).all()
    assert found.sum() > share_kept * best.sum()
    assert share_exact < (found >= best - 1e-12).mean() < 1
