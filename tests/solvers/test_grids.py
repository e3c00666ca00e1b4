"""Averages over all ways to halve a grid, against the enumeration of these ways; coarse bins."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbr._backend import kernels
from rbr.data.binning import Binner
from rbr.data.grids import coarse_bins
from rbr.objective import make_objective
from rbr.reference.grids import average_grid, cut_places
from rbr.solvers.pair_fit import nearest_monotone
from rbr.solvers.pairs import PairSearch, PairSpec, grids_of


def trees(a, b, c, d, shape, has_levels):
    """Every way to cut the rectangle of rows a to b and columns c to d: (number of cuts, log of the choices between
    ways, leaves)."""
    found = [(0, 0.0, [(a, b, c, d)])]
    ways = []
    if b - a > 1:
        ways.append(((a, (a + b) // 2, c, d), ((a + b) // 2, b, c, d)))
    if d - c > 1:
        ways.append(((a, b, c, (c + d) // 2), (a, b, (c + d) // 2, d)))
    if has_levels[0] and b - a == shape[0] > 2:
        ways.append([(k, k + 1, c, d) for k in range(a, b)])
    if has_levels[1] and d - c == shape[1] > 2:
        ways.append([(a, b, k, k + 1) for k in range(c, d)])
    for way in ways:
        for parts in itertools.product(*(trees(*part, shape, has_levels) for part in way)):
            cuts, chosen = 1 + sum(part[0] for part in parts), -np.log(len(ways)) + sum(part[1] for part in parts)
            found.append((cuts, chosen, [leaf for part in parts for leaf in part[2]]))
    return found


def by_enumeration(sums, weights, prior, cut_share, plane_share, twist_share, has_levels=(False, False)):
    """(mean table, log evidence, mean number of rectangles): each tree by the Gaussian integral over its unknowns."""
    logs, tables, numbers = [], [], []
    for n_cuts, chosen, leaves in trees(0, sums.shape[0], 0, sums.shape[1], sums.shape, has_levels):
        n_whole = sum((b - a) * (d - c) > 1 for a, b, c, d in leaves)
        log_prior = n_cuts * np.log(cut_share) + chosen + n_whole * np.log(1 - cut_share)
        for kinds in itertools.product(*(kinds_of(b - a, d - c, plane_share, twist_share) for a, b, c, d in leaves)):
            own, table = log_prior, np.zeros(sums.shape)
            for (a, b, c, d), (kind, share) in zip(leaves, kinds, strict=True):
                part = slice(a, b), slice(c, d)
                own += leaf_log_evidence(sums[part], weights[part], prior, kind, table[part]) + np.log(share)
            logs.append(own)
            tables.append(table)
            numbers.append(len(leaves))
    shares = np.exp(np.array(logs) - np.logaddexp.reduce(logs))
    return np.tensordot(shares, tables, 1), np.logaddexp.reduce(logs), shares @ numbers


def kinds_of(n_a, n_b, plane_share, twist_share):
    """(kind, prior share): constant, plane or twisted plane."""
    if max(n_a, n_b) < 3:
        return [("constant", 1.0)]
    constant = ("constant", 1.0 - plane_share - twist_share)
    if min(n_a, n_b) < 3:
        return [constant, ("plane", plane_share + twist_share)]
    return [constant, ("plane", plane_share), ("twisted", twist_share)]


def leaf_log_evidence(sums, weights, prior, kind, table):
    """By linear algebra over the design (1, standardised rows, columns and product); writes the mean into table."""
    columns, priors, numbers = [np.ones(sums.size)], [prior], []

    def standardised(values):
        values = values - (weights * values).sum() / weights.sum()
        return values, values.ravel() / np.sqrt((weights * values**2).sum() / weights.sum())

    for side, index in enumerate(np.indices(sums.shape)):
        if kind != "constant" and sums.shape[side] >= 3:
            number, column = standardised(index)
            numbers.append(number)
            columns.append(column)
            priors.append(3 * prior)
    if kind == "twisted":
        columns.append(standardised(numbers[0] * numbers[1])[1])
        priors.append(3 * prior)
    X, precision = np.column_stack(columns), np.diag(priors)
    A, right = X.T @ (weights.ravel()[:, None] * X) + precision, X.T @ sums.ravel()
    beta = np.linalg.solve(A, right)
    table += (X @ beta).reshape(sums.shape)
    return 0.5 * right @ beta - 0.5 * (np.linalg.slogdet(A)[1] - np.log(priors).sum())


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (2, 2), (3, 2), (4, 3), (3, 3)])
@pytest.mark.parametrize("shares", [(0.5, 0.25, 0.25), (0.2, 0.5, 0.3)])
@pytest.mark.parametrize("has_levels", [(False, False), (True, False), (False, True)])
def test_the_mean_over_all_trees_is_that_of_their_enumeration(shape, shares, has_levels):
    rng = np.random.default_rng(sum(shape))
    weights = rng.uniform(0.5, 20.0, shape)
    sums = weights * rng.normal(size=shape)
    mean, evidence, n_rectangles = by_enumeration(sums, weights, 0.7, *shares, has_levels)
    found = average_grid(sums, weights, 0.7, *shares, has_levels)
    np.testing.assert_allclose(found[0], mean, rtol=1e-9)
    np.testing.assert_allclose(found[1:3], [evidence, n_rectangles], rtol=1e-9)


def test_noise_has_no_evidence_and_a_rectangle_has():
    rng = np.random.default_rng(0)
    weights = np.full((8, 8), 5.0)
    noise = [average_grid(rng.normal(size=(8, 8)) * np.sqrt(5), weights, 1.0, 0.5, 0.25, 0.25)[1] for _ in range(20)]
    assert max(noise) < 3
    sums = rng.normal(size=(8, 8)) * np.sqrt(5)
    sums[4:, 4:] += 5.0
    table, evidence, *_ = average_grid(sums, weights, 1.0, 0.5, 0.25, 0.25)
    assert evidence > 3
    assert table[4:, 4:].min() > 0.5 > table[:4].max()


def test_rectangles_of_pairs_are_degrees_of_freedom_of_the_dispersion():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = 2.0 * (X[:, 0] > 0) * (X[:, 1] > 0) + rng.normal(size=400)
    objective = make_objective(Binner().fit_transform(X), y)
    spec = PairSpec(np.empty((0, 2), dtype=np.int64), np.array([[0, 1]]))
    search = PairSearch(objective, grids_of(objective, np.zeros(2, dtype=bool)), spec)
    no_mains = objective.table_scores(objective.zero_tables(), np.zeros(0, dtype=np.int64))
    fit = search.find(no_mains, 5.0)
    n_rectangles = float((fit.share * fit.rectangles).sum())
    assert n_rectangles > 3.0
    assert fit.dispersion == pytest.approx(fit.objective.dispersion(fit.point, 5.0 + n_rectangles), rel=1e-12)
    assert fit.dispersion > 1.005 * fit.objective.dispersion(fit.point, 5.0)


@pytest.mark.parametrize("signs", [(1, 1), (1, -1), (0, -1)])
def test_a_grid_is_made_monotone_by_the_nearest_table(signs):
    rng = np.random.default_rng(0)
    grid, weights = rng.normal(size=(4, 5)), rng.uniform(0.2, 2.0, (4, 5))
    n_ordered = (3, 4)  # the last row and column are missing values
    found = nearest_monotone(grid, weights, n_ordered, signs)
    assert (signs[0] * np.diff(found[:3], axis=0) >= 0).all() and (signs[1] * np.diff(found[:, :4], axis=1) >= 0).all()
    # Nearest point of a cone: what is taken away is orthogonal to the table, and pulls into no monotone direction.
    taken = weights * (grid - found)
    assert abs((taken * found).sum()) < 1e-4
    for _ in range(200):
        other = nearest_monotone(rng.normal(size=grid.shape), weights, n_ordered, signs)
        assert (taken * other).sum() < 1e-4


def test_sides_are_cut_at_sharp_edges_or_in_the_middle():
    weights = np.full((8, 6), 5.0)
    sums = np.zeros((8, 6))
    assert cut_places(sums, weights, 1.0, 3)[0, 8] == 4  # nothing to explain
    sums[:3, 2:4] = 10.0  # an edge that only some blocks of the other side see
    assert cut_places(sums, weights, 1.0, 3)[0, 8] == 3
    assert cut_places(sums, weights, 1.0, 0)[0, 8] == 4
    places = [cut_places(sums, weights, 1.0, 3), cut_places(sums.T, weights.T, 1.0, 3)]
    assert set(places[0]) >= {(0, 8), (0, 3), (3, 8)}
    # Cut there, the edge needs fewer rectangles and has more evidence.
    middle, there = (average_grid(sums, weights, 1.0, 0.5, 0.0, 0.0, places=own) for own in (None, places))
    assert there[1] > middle[1] and there[2] < middle[2]


@given(
    st.integers(1, 300), st.integers(2, 64), st.booleans(), st.integers(0, 6), st.booleans(), st.integers(0, 2**32 - 1)
)
def test_coarse_bins_are_few_and_neighbours_stay_together(n_bins, most, is_category, skew, missing, seed):
    rng = np.random.default_rng(seed)
    shares = rng.random(n_bins + missing) ** skew
    shares /= shares.sum()
    order = rng.normal(size=n_bins) if is_category else None
    coarse = coarse_bins(np.array([0, n_bins + missing]), shares, np.array([missing]), most, [order])
    ordered = coarse.of(0)[:n_bins]
    assert coarse.n_ordered[0] == len(np.unique(ordered)) <= min(most, n_bins)
    assert coarse.n_bins[0] == coarse.n_ordered[0] + missing
    if missing:
        assert coarse.of(0)[-1] == coarse.n_ordered[0]
    if order is None:
        assert (np.diff(ordered) >= 0).all()
        frequent = np.flatnonzero(shares[:n_bins] * most >= 1)
        if 2 * len(frequent) < most:
            assert all((ordered == ordered[k]).sum() == 1 for k in frequent)
    elif n_bins <= most:
        assert (np.diff(order[np.argsort(ordered)]) >= 0).all()
    few = coarse.merged(3)
    assert few.n_ordered[0] == min(3, coarse.n_ordered[0])
    assert (few.of(0)[:n_bins].max(initial=0) < 3) and (not missing or few.of(0)[-1] == few.n_ordered[0])


@pytest.mark.parametrize(
    "loss, share, n_rows, n_candidates, least",
    [
        ("squared_error", None, 500, 15, 4 * np.log(15)),
        ("squared_error", None, 8000, 15, 7.0),
        ("squared_error", None, 4000, 1000, 2 * np.log(1000)),
        ("log_loss", 0.5, 1000, 28, 4 * np.log(28)),
        ("log_loss", 0.5, 8000, 28, 7.0),
        ("log_loss", 0.01, 8000, 28, 4 * np.log(28)),  # 8000 rows of a rare class say as much as 317
        ("huber", None, 500, 15, 4 * np.log(15)),
        ("squared_error", None, 500, 0, 7.0),
    ],
)
def test_on_few_rows_a_pair_must_gain_what_the_best_of_many_does(loss, share, n_rows, n_candidates, least):
    rng = np.random.default_rng(0)
    B = Binner(max_bins=4).fit_transform(rng.random((n_rows, 2)))
    y = rng.normal(size=n_rows) if share is None else (np.arange(n_rows) < share * n_rows) * 1.0
    objective = make_objective(B, y, loss=loss)
    pairs = np.zeros((n_candidates, 2), dtype=np.int64)
    search = PairSearch(objective, grids_of(objective, np.zeros(2, dtype=bool)), PairSpec(pairs, pairs[:0]))
    assert search._least_gain == pytest.approx(least, rel=1e-6)


@pytest.mark.parametrize("cells", [[(0, 3), (2, 0)], [(60, 60), (60, 61), (61, 60)], [(1, 1), (40, 1), (40, 2)]])
def test_rounding_errors_of_moments_are_no_twist(cells):
    """The product of the numbers of both bins may hardly vary: it is 0 in both of the first cells."""
    n = 1 + max(max(cell) for cell in cells)
    sums, weights = np.zeros((n, n)), np.zeros((n, n))
    for k, cell in enumerate(cells):
        sums[cell], weights[cell] = 2.5 * (-1) ** k, 9.1 + k

    def averaged(scale):
        out, results = np.zeros(n * n), np.zeros((3, 1))
        offsets, sides = np.array([0, n * n]), np.array([[n, n, 0, 0, 0, 0]])
        inputs = sums.ravel() * scale, weights.ravel() * scale, np.array([97.5]), 0.7, 0.25, 0.25, 0
        kernels().average_grids(offsets, sides, *inputs, out, *results, 0, 1)
        return np.append(out, results[0])

    np.testing.assert_allclose(averaged(1.0 + 1e-13), averaged(1.0), rtol=0, atol=1e-9)


def test_coarse_bins_do_not_depend_on_the_last_digits_of_shares():
    """Sums over blocks of rows have other last digits, and where many shares are alike cuts would move."""
    rng = np.random.default_rng(0)
    rows = rng.integers(4, 8, 200)
    exact = rows / rows.sum()
    offsets, missing = np.array([0, 200]), np.array([False])
    for order in (None, rng.integers(0, 3, 200).astype(float)):
        of_bin = coarse_bins(offsets, exact, missing, 64, [order]).of_bin
        for seed in range(20):
            noise = 1.0 + 1e-15 * np.random.default_rng(seed).normal(size=200)
            np.testing.assert_array_equal(coarse_bins(offsets, exact * noise, missing, 64, [order]).of_bin, of_bin)
