"""The search for better jumps of one table, against the plain definition: least squares of constants on rows."""

import numpy as np
import pytest

from rbr.objective.jumps import Atoms, Jumps, JumpSearch, better_jumps


def rows(seed, n_rows=120, n_bins=8, n_outputs=1, ties=False):
    """(x, y, edges) with y of n_outputs columns."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(size=n_rows))
    x = np.round(x, 1) if ties else x
    edges = np.unique(np.quantile(np.unique(x), np.arange(1, n_bins) / n_bins) + 1e-3)
    y = (x[:, None] > rng.uniform(0.3, 0.7, n_outputs)) + 0.3 * rng.normal(size=(n_rows, n_outputs))
    return x, y, edges


def atoms_of(x, y, edges, labels, table, opened=None):
    """One atom for each distinct value, or for each bin that is not opened; squared error, every row of weight 1."""
    bins = np.searchsorted(edges, x)
    is_open = np.ones(len(edges) + 1, dtype=bool) if opened is None else opened
    keys = np.where(is_open[bins], x, -1.0 - bins)
    order = [key for b in range(len(is_open)) for key in np.unique(keys[bins == b])]
    members = [keys == key for key in order]
    return Atoms(
        np.array([bins[own][0] for own in members]),
        np.array([key if key >= 0 else np.nan for key in order]),
        np.stack([y[own].sum(axis=0) for own in members]),
        np.stack([np.full(y.shape[1], own.sum(), dtype=float) for own in members]),
        table,
    )


def means(x, y, edges, labels):
    """The table of the means of the pieces."""
    by_row = labels[np.searchsorted(edges, x)]
    table = np.zeros(labels.shape)
    for c in range(labels.shape[1]):
        for label in np.unique(labels[:, c]):
            own = by_row[:, c] == label
            table[labels[:, c] == label, c] = y[own, c].mean() if own.any() else 0.0
    return table


def error(x, y, edges, table):
    """Half the squared error of a table."""
    return 0.5 * np.sum((y - table[np.searchsorted(edges, x)]) ** 2)


def random_labels(seed, n_bins, n_outputs):
    rng = np.random.default_rng(seed + 1000)
    return 2 * np.cumsum(rng.uniform(size=(n_bins, n_outputs)) < 0.5, axis=0)


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("keeps_levels", [False, True])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_promised_is_gained(seed, ties, keeps_levels, n_outputs):
    x, y, edges = rows(seed, n_outputs=n_outputs, ties=ties)
    labels = random_labels(seed, len(edges) + 1, n_outputs)
    table = means(x, y, edges, labels)
    opened = np.random.default_rng(seed).uniform(size=len(edges) + 1) < 0.7
    better = better_jumps(atoms_of(x, y, edges, labels, table, opened), Jumps(edges, labels, 0.5, keeps_levels))
    if better is None:
        assert seed not in (0, 1, 2) or ties or n_outputs > 1 or keeps_levels
        return
    assert (np.diff(better.edges) > 0).all()
    pieces = [sum(len(np.unique(column)) for column in a.T) for a in (labels, better.labels)]
    assert pieces[1] <= pieces[0]
    new = better.values if keeps_levels else means(x, y, better.edges, better.labels)
    with_rows = np.isin(np.arange(len(edges) + 1), np.searchsorted(better.edges, x))
    np.testing.assert_allclose(better.values[with_rows], new[with_rows], atol=1e-12)
    gain = error(x, y, edges, table) - error(x, y, better.edges, new) + 0.5 * (pieces[0] - pieces[1])
    assert better.promise == pytest.approx(gain, rel=1e-9, abs=1e-9)
    if keeps_levels:  # an edge moves only where two jumps became one
        assert pieces[1] < pieces[0]


@pytest.mark.parametrize("seed", range(10))
def test_the_jump_that_replaces_two_is_the_best_of_all_places(seed):
    x, y, edges = rows(seed)
    labels = np.array([0, 0, 0, 2, 4, 4, 4, 4])[: len(edges) + 1, None]
    table = means(x, y, edges, labels)
    search = JumpSearch(atoms_of(x, y, edges, labels, table), Jumps(edges, labels, price=1e6))
    assert search.join()
    found = search.found()
    cuts = 0.5 * (x[1:] + x[:-1])
    by_cut = [error(x, y, np.array([cut]), means(x, y, np.array([cut]), np.array([[0], [2]]))) for cut in cuts]
    assert len(search.places) == 1
    assert search.places[0] == np.argmin(by_cut) + 1
    assert error(x, y, found.edges, found.values) == pytest.approx(min(by_cut))
    assert (np.diff(found.labels[:, 0]) != 0).sum() == 1


def test_a_price_below_the_rise_of_the_loss_joins_nothing():
    x = np.arange(30.0)
    y = np.repeat([0.0, 5.0, 1.0], 10)[:, None]
    edges, labels = np.array([9.5, 19.5]), np.array([[0], [2], [4]])
    atoms = atoms_of(x, y, edges, labels, means(x, y, edges, labels))
    # The best single jump leaves the last 20 rows at 3: half of 20 * 4.
    assert better_jumps(atoms, Jumps(edges, labels, price=39.9)) is None
    joined = better_jumps(atoms, Jumps(edges, labels, price=40.1))
    assert joined.promise == pytest.approx(0.1)
    np.testing.assert_array_equal(joined.labels[:, 0], [0, 2, 2])


def test_a_move_must_gain_the_price_of_a_piece():
    x = np.arange(20.0)
    y = np.where(x >= 12, 1.0, 0.0)[:, None]
    edges, labels = np.array([9.5]), np.array([[0], [2]])
    atoms = atoms_of(x, y, edges, labels, means(x, y, edges, labels))
    gain = error(x, y, edges, means(x, y, edges, labels))  # nothing is left at the best place
    assert better_jumps(atoms, Jumps(edges, labels, price=1.01 * gain)) is None
    np.testing.assert_array_equal(better_jumps(atoms, Jumps(edges, labels, price=0.99 * gain)).edges, [11.5])


def test_lines_stay_and_a_line_between_constants_can_go():
    x, y, edges = rows(0)
    n_bins = len(edges) + 1
    labels = np.array([0] * 3 + [3] + [4] * (n_bins - 4))[:, None]
    table = means(x, y, edges, labels)
    joined = better_jumps(atoms_of(x, y, edges, labels, table), Jumps(edges, labels, price=100.0))
    assert (joined.labels % 2 == 0).all() and len(np.unique(joined.labels)) == 2
    labels = np.array([1] * 3 + [2] + [5] * (n_bins - 4))[:, None]
    assert better_jumps(atoms_of(x, y, edges, labels, table), Jumps(edges, labels, price=100.0)) is None


def test_jumps_never_share_an_edge():
    """Two jumps into one bin take both of its edges along, and the third one of the next bin."""
    x = np.arange(40.0)
    y = np.where((x >= 12) & (x < 18), 5.0, 0.0)[:, None] + np.where(x >= 25, 2.0, 0.0)[:, None]
    edges, labels = np.array([9.5, 19.5, 29.5]), np.array([[0], [2], [4], [6]])
    found = better_jumps(atoms_of(x, y, edges, labels, means(x, y, edges, labels)), Jumps(edges, labels))
    np.testing.assert_array_equal(found.edges, [11.5, 17.5, 24.5])
    assert error(x, y, found.edges, found.values) == pytest.approx(0.0, abs=1e-12)


def test_a_bin_has_room_for_two_jumps_only():
    x = np.arange(40.0)
    y = np.select([x < 12, x < 15, x < 18], [0.0, 5.0, 0.0], 9.0)[:, None]
    edges, labels = np.array([9.5, 19.5, 29.5]), np.array([[0], [2], [4], [6]])
    search = JumpSearch(atoms_of(x, y, edges, labels, means(x, y, edges, labels)), Jumps(edges, labels))
    search.places = [12, 15, 30]
    assert search._best_place(2, 3)[1] == 21  # 18 is best, but both edges of its bin are taken
    found = search.found()
    np.testing.assert_array_equal(found.edges, [11.5, 14.5, 29.5])
    search.places = [10, 15, 18]  # the first jump needs the edge at 9.5, and only one other is left
    assert 15 not in search._possible_places(*search._window(1, 2))


def test_no_jump_beside_infinite_values():
    values = np.array([-np.inf, -np.inf, 0.0, 1.0, 2.0, 3.0, np.inf])
    y = np.array([5.0, 5.0, 0.0, 0.0, 1.0, 1.0, 9.0])[:, None]
    edges, labels = np.array([1.5]), np.array([[0], [2]])
    bins = np.searchsorted(edges, values)
    atoms = Atoms(bins, values, y, np.ones_like(y), np.array([[2.5], [3.7]]))
    found = better_jumps(atoms, Jumps(edges, labels))
    assert found is None or np.isfinite(found.edges).all()
    search = JumpSearch(atoms, Jumps(edges, labels))
    assert search._possible_places(*search._window(0, 1)).tolist() == [3, 4, 5]
