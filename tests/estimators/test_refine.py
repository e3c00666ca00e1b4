"""Jumps inside bins: they lie where the data have them, the objective never rises, and every constraint still holds."""

import numpy as np
import pandas as pd
import pytest
from problems import LOSSES, block_of, make_target, split_in_three_blocks
from scipy import sparse
from sklearn.utils.estimator_checks import parametrize_with_checks

from rbr import Binner, Constraints, RBRClassifier, RBRRegressor, SolverOptions, make_objective, solve
from rbr.estimators.refine import _State, _try, refine_cuts
from rbr.objective.jumps import BetterJumps

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def planted(seed=0, n_rows=600, place=0.43):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n_rows, 3))
    return X, np.where(X[:, 1] > place, 2.0, 0.0) + 0.1 * rng.normal(size=n_rows)


def spacing_around(x, place):
    """The largest gap between neighbouring data values near a place."""
    near = np.sort(x)[np.argsort(np.abs(np.sort(x) - place))[:6]]
    return np.diff(np.sort(near)).max()


def fitted(X, y, loss="squared_error", sample_weight=None, max_bins=8, **kwargs):
    """(binner, solution, refined binner, refined solution)"""
    constraints = Constraints(**kwargs)
    binner = Binner(max_bins=max_bins).fit(X, sample_weight)
    design = binner.transform(X, sample_weight)
    objective = make_objective(design, y, loss=loss, sample_weight=sample_weight, X=X)
    solution = solve(objective=objective, constraints=constraints)
    return binner, solution, *refine_cuts(binner, solution, constraints)


@pytest.mark.parametrize("seed", range(5))
def test_planted_step_is_found_to_the_spacing_of_the_data(seed):
    X, y = planted(seed)
    coarse = RBRRegressor(max_bins=8, n_bags=0, refine_cuts=False).fit(X, y)
    fine = RBRRegressor(max_bins=8, n_bags=0).fit(X, y)
    spacing = spacing_around(X[:, 1], 0.43)
    edges = fine.model_["x1"].edges
    assert np.abs(edges - 0.43).min() <= spacing
    assert np.abs(coarse.model_["x1"].edges - 0.43).min() > 3 * spacing
    assert fine.model_.training_loss < 0.7 * coarse.model_.training_loss
    assert fine.score(X, y) > coarse.score(X, y)


def test_moved_edge_stays_between_its_neighbours_and_the_others_stay():
    X, y = planted()
    binner, solution, refined, better = fitted(X, y, max_features=1, max_segments=2)
    before, after = binner.edges_[1], refined.edges_[1]
    moved = np.flatnonzero(before != after)
    assert len(moved) == 1
    assert (np.diff(after) > 0).all()
    assert before[moved[0] - 1] < after[moved[0]] < before[moved[0] + 1]
    for j in (0, 2):
        np.testing.assert_array_equal(refined.edges_[j], binner.edges_[j])
    np.testing.assert_array_equal(binner.transform(X).codes[0], refined.transform(X).codes[0])
    np.testing.assert_array_equal(block_of(better.problem.objective).design.codes, refined.transform(X).codes)


def test_place_is_the_best_of_all_places():
    """With one table and squared error the parabolas are exact, so no other place within reach has a lower loss."""
    rng = np.random.default_rng(3)
    x = rng.integers(0, 40, size=200).astype(float)
    y = np.sin(x / 6) + 0.3 * rng.normal(size=200)
    binner, _, refined, better = fitted(x[:, None], y, max_bins=5, max_features=1, max_segments=2)
    k = int(np.flatnonzero(np.diff(better.labels))[0])
    around = np.concatenate([[-np.inf], binner.edges_[0], [np.inf]])
    values = np.unique(x)
    losses = {}
    for place in 0.5 * (values[1:] + values[:-1]):
        # Each of the two bins must keep at least one value.
        left = (x > around[k]) & (x <= place)
        right = (x > place) & (x <= around[k + 2])
        if around[k] < place < around[k + 2] and left.any() and right.any():
            below, above = y[x <= place], y[x > place]
            losses[place] = (below.var() * len(below) + above.var() * len(above)) / 2 / len(y)
    assert len(losses) > 5
    assert refined.edges_[0][k] == min(losses, key=losses.get)
    assert better.loss == pytest.approx(min(losses.values()), rel=1e-10)


@pytest.mark.parametrize("shape", ["constant", "mixed", "linear", "increasing", "decreasing", "free"])
@pytest.mark.parametrize("loss", LOSSES)
def test_loss_never_rises_and_constraints_hold(loss, shape):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 5)).round(2)
    X[rng.uniform(size=300) < 0.1, 1] = np.nan
    X[0, 2], X[1, 2] = np.inf, -np.inf
    y = make_target(loss, Binner(max_bins=20).fit(X).transform(X), seed=1, strength=2.0)
    binner, solution, refined, better = fitted(X, y, loss, max_features=3, max_segments=4, shape=shape)
    assert better.loss <= solution.loss
    assert set(better.support) <= set(solution.support)
    design = refined.transform(X)
    np.testing.assert_array_equal(design.offsets, binner.transform(X).offsets)
    labels, f = (a.reshape(design.n_coef, -1) for a in (better.labels, better.f))
    old_labels = solution.labels.reshape(design.n_coef, -1)
    for j in range(5):
        table = slice(design.offsets[j], design.offsets[j + 1])
        np.testing.assert_allclose(design.weights[table] @ f[table], 0.0, atol=1e-12 * max(1.0, np.abs(f).max()))
        ordered = slice(table.start, table.stop - int(design.missing[j]))
        for c in range(f.shape[1]):
            n_pieces, n_before = (len(np.unique(a[table, c])) for a in (labels, old_labels))
            assert n_pieces <= n_before
            rises = np.diff(f[ordered, c])
            if shape in ("increasing", "decreasing"):
                assert (rises * (1 if shape == "increasing" else -1) >= 0).all()
            if shape == "constant":
                assert (np.abs(rises) > 1e-12).sum() <= 3
    if shape == "free":
        assert better is solution
    point = better.problem.objective.point(better.f, better.support)
    assert point.loss == pytest.approx(better.loss, rel=1e-9)


def test_lines_keep_their_bins():
    rng = np.random.default_rng(5)
    x = rng.uniform(size=800)
    y = np.where(x < 0.43, 3 * x, np.where(x < 0.83, 3.0, 0.0)) + 0.05 * rng.normal(size=800)
    binner, solution, refined, _ = fitted(x[:, None], y, max_bins=20, shape="mixed", jump_cost=1.0)
    is_line = solution.labels % 2 == 1
    jumps = np.diff(solution.labels) != 0
    beside_line = is_line[:-1] | is_line[1:]
    assert (jumps & beside_line).any()
    assert (jumps & ~beside_line).any()
    np.testing.assert_array_equal(refined.edges_[0][beside_line], binner.edges_[0][beside_line])
    assert np.abs(refined.edges_[0] - 0.83).min() <= spacing_around(x, 0.83)


def test_worse_places_are_refused():
    X, y = planted()
    constraints = Constraints(max_features=1, max_segments=2)
    binner = Binner(max_bins=8).fit(X)
    solution = solve(objective=make_objective(binner.transform(X), y, X=X), constraints=constraints)
    state = _State(solution.problem, solution.point, solution.labels, {}, solution.loss)
    table = slice(binner.offsets_[1], binner.offsets_[2])
    labels, values = solution.labels[table, None], solution.f[table, None]
    k = int(np.flatnonzero(np.diff(labels[:, 0]))[0])
    edges = binner.edges_[1].copy()
    away, back = (k - 1, k + 1) if edges[k] < 0.43 else (k + 1, k - 1)
    for towards, is_better in ((away, False), (back, True)):
        moved = edges.copy()
        moved[k] = 0.9 * edges[k] + 0.1 * edges[towards]
        found = {1: BetterJumps(np.nan, moved, labels, values)}
        for keeps_levels in (False, True):
            tried = _try(state, binner, found, constraints, 1e-5, keeps_levels)
            assert (tried is not None) == is_better


@pytest.mark.parametrize("loss", ["squared_error", "log_loss"])
def test_integer_weights_are_repeated_rows(loss):
    rng = np.random.default_rng(6)
    X, y = planted(6, n_rows=300)
    y = (y > 1).astype(float) if loss == "log_loss" else y
    y[::17] = 1 - y[::17]
    weight = rng.integers(0, 4, size=300).astype(float)
    times = weight.astype(int)
    weighted = fitted(X, y, loss, sample_weight=weight, max_features=2, max_segments=4)[2:]
    repeated = fitted(np.repeat(X, times, axis=0), np.repeat(y, times), loss, max_features=2, max_segments=4)[2:]
    for j in range(3):
        np.testing.assert_array_equal(weighted[0].edges_[j], repeated[0].edges_[j])
    np.testing.assert_allclose(weighted[0].positions_, repeated[0].positions_, rtol=1e-12)
    np.testing.assert_allclose(weighted[1].f, repeated[1].f, atol=1e-8)
    assert weighted[1].loss == pytest.approx(repeated[1].loss, rel=1e-9)


def test_categories_missing_values_and_monotone_shapes_survive():
    rng = np.random.default_rng(7)
    n = 800
    frame = pd.DataFrame(
        {
            "x": rng.uniform(size=n),
            "kind": pd.Categorical(rng.choice(["a", "b", "c", None], size=n)),
            "up": rng.uniform(size=n),
        }
    )
    frame.loc[rng.uniform(size=n) < 0.2, "x"] = np.nan
    score = np.where(frame["x"] > 0.31, 2.0, 0.0) + 1.5 * (frame["kind"] == "b") + np.floor(3.3 * frame["up"])
    score = score + 1.0 * frame["x"].isna() + 0.2 * rng.normal(size=n)
    plain, fine = (
        RBRRegressor(max_bins=8, shape="constant", monotonic_cst={"up": 1}, n_bags=0, refine_cuts=refine).fit(
            frame, score
        )
        for refine in (False, True)
    )
    assert [t.name for t in fine.terms_] == [t.name for t in plain.terms_] == ["x", "kind", "up"]
    assert fine.model_.training_loss < plain.model_.training_loss
    assert fine.model_["kind"].categories == plain.model_["kind"].categories
    assert fine.model_["x"].missing_value == pytest.approx(plain.model_["x"].missing_value, abs=0.3)
    assert np.abs(fine.model_["x"].edges - 0.31).min() < spacing_around(frame["x"].dropna().to_numpy(), 0.31)
    assert (np.diff(fine.model_["up"].values) >= 0).all()
    for term in fine.terms_:
        values = term.values if term.missing_value is None else np.append(term.values, term.missing_value)
        assert term.weights @ values == pytest.approx(0.0, abs=1e-12)
    raw = fine.predict(frame)
    assert np.mean((score - raw) ** 2) / 2 == pytest.approx(fine.model_.training_loss, rel=1e-9)


@pytest.mark.parametrize("kind", [np.float32, sparse.csc_matrix, pd.DataFrame])
def test_every_kind_of_table(kind):
    X, y = planted(8)
    X[X < 0.2] = 0.0
    table = X.astype(np.float32) if kind is np.float32 else kind(X)
    m = RBRRegressor(max_bins=8, max_features=1, n_bags=0).fit(table, y)
    assert m.selected_features_ == [1]
    used = X[:, 1].astype(np.float32).astype(float) if kind is np.float32 else X[:, 1]
    assert np.abs(m.terms_[0].edges - 0.43).min() <= spacing_around(used, 0.43)
    assert np.mean((y - m.predict(table)) ** 2) / 2 == pytest.approx(m.model_.training_loss, rel=1e-9)


def test_classes_share_the_moved_edge():
    rng = np.random.default_rng(9)
    X = rng.uniform(size=(900, 2))
    y = np.where(X[:, 0] > 0.42, rng.choice([0, 1, 2], p=[0.8, 0.1, 0.1], size=900), rng.choice([0, 1, 2], size=900))
    plain, fine = (
        RBRClassifier(max_bins=8, shape="constant", n_bags=0, refine_cuts=refine).fit(X, y) for refine in (False, True)
    )
    assert fine.model_.training_loss < plain.model_.training_loss
    assert np.abs(fine.terms_[0].edges - 0.42).min() < np.abs(plain.terms_[0].edges - 0.42).min()


def test_nothing_to_refine_returns_what_came():
    X = np.repeat(np.arange(4.0), 50)[:, None]
    y = np.where(X[:, 0] > 1, 1.0, 0.0)
    binner, solution, refined, better = fitted(X, y, max_features=1, max_segments=2)
    assert refined is binner
    assert better is solution


def test_warm_start_goes_on_from_the_moved_edges():
    X, y = planted(10)
    m = RBRRegressor(max_bins=8, n_bags=0, warm_start=True, position="rank", prior_rows=0).fit(X, y)
    edges, loss = m.terms_[0].edges, m.model_.training_loss
    m.fit(X, y)
    np.testing.assert_array_equal(m.terms_[0].edges, edges)
    assert m.model_.training_loss <= loss * (1 + 1e-9)


def test_refine_cuts_must_be_a_bool():
    with pytest.raises(ValueError, match="refine_cuts is 'yes'; it must be True or False"):
        RBRRegressor(refine_cuts="yes").fit(np.arange(8.0)[:, None], np.arange(8.0))


def test_moved_edges_must_be_as_many():
    X = np.arange(20.0)[:, None]
    with pytest.raises(ValueError, match="edges of column 0 has 2 edges; there are 3"):
        Binner(max_bins=4).fit(X).with_edges({0: [3.0, 4.0]}, {0: [1.0, 3.5, 9.0]})


@parametrize_with_checks([RBRRegressor(n_bags=0), RBRRegressor(refine_cuts=False)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


# A step is two pieces, wherever it lies --------------------------------------------------------------------------


def step(n_rows, seed, place=None, kind="squared_error", n_others=0):
    """(X, y) with a step of one standard deviation of the noise in the first column."""
    rng = np.random.default_rng([n_rows, seed])
    X = rng.normal(size=(n_rows, 1 + n_others)) if seed % 2 else rng.uniform(size=(n_rows, 1 + n_others))
    z = 1.0 * (X[:, 0] > np.quantile(X[:, 0], rng.uniform(0.1, 0.9) if place is None else place))
    if n_others:
        z = z + 0.7 * np.sin(2 * X[:, 1]) + (X[:, 2] > np.quantile(X[:, 2], 0.37))
    if kind == "log_loss":
        return X, (1.8 * (z - z.mean()) + rng.logistic(size=n_rows) > 0).astype(int)
    return X, z + rng.normal(size=n_rows)


def pieces_of_step(X, y, kind, **parameters):
    m = (RBRClassifier if kind == "log_loss" else RBRRegressor)(jump_cost=1.0, random_state=0, **parameters).fit(X, y)
    assert m.terms_[0].columns == (0,)
    return len(m.terms_[0].pieces)


@pytest.mark.parametrize("kind", ["squared_error", "log_loss"])
@pytest.mark.parametrize(("n_rows", "n_seeds", "n_bags"), [(2000, 8, "auto"), (30_000, 8, 0), (200_000, 2, 0)])
def test_a_step_is_two_pieces_wherever_it_lies(n_rows, n_seeds, n_bags, kind):
    found = []
    for seed in range(n_seeds):
        X, y = step(n_rows, seed, place=(None, 0.5, 0.1)[seed % 3], kind=kind, n_others=2 * (seed // 2 % 2))
        found.append(pieces_of_step(X, y, kind, n_bags=n_bags))
    assert found.count(2) >= n_seeds - (n_seeds > 4), found


def test_without_the_stage_the_bin_of_a_step_is_a_piece():
    X, y = step(200_000, 0)
    assert pieces_of_step(X, y, "squared_error", n_bags=0, refine_cuts=False) == 3
    assert pieces_of_step(X, y, "squared_error", n_bags=0) == 2


@pytest.mark.parametrize("shape", ["constant", "increasing", "mixed", "decreasing"])
def test_every_shape_with_constant_pieces_has_its_steps_inside_bins(shape):
    X, y = step(100_000, 0, place=0.337)
    y = -y if shape == "decreasing" else y
    m = RBRRegressor(shape=shape, jump_cost=1.0).fit(X, y)
    assert len(m.terms_[0].pieces) == 2
    edge = m.terms_[0].edges[np.flatnonzero(np.diff(m.terms_[0].values))[0]]
    assert abs(edge - np.quantile(X[:, 0], 0.337)) < 5e-4  # a bin is eight times as wide


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "multinomial", "poisson", "quantile"])
@pytest.mark.parametrize("keeps_levels", [False, True])
def test_the_objective_falls_pieces_do_not_grow_and_blocks_and_threads_change_nothing(loss, keeps_levels, weighted):
    rng = np.random.default_rng(11)
    X = rng.normal(size=(900, 3))
    X[:, 1] = X[:, 1].round(1)
    X[rng.uniform(size=900) < 0.05, 0] = np.nan
    X[:3, 2] = [np.inf, -np.inf, np.inf]
    weight = rng.integers(1, 4, size=900).astype(float) if weighted else None
    binner = Binner(max_bins=12).fit(X, weight)
    design = binner.transform(X, weight)
    y = make_target(loss, design, seed=1, strength=2.0)
    constraints = Constraints(jump_cost=0.2)
    found = []
    for n_jobs, split in ((1, False), (2, False), (1, True)):
        objective = make_objective(design, y, loss=loss, sample_weight=weight, X=X, n_jobs=n_jobs)
        objective = split_in_three_blocks(objective) if split else objective
        solution = solve(objective=objective, constraints=constraints, alpha=1e-3)
        refined, better = refine_cuts(binner, solution, constraints, keeps_levels=keeps_levels)
        before, after = (s.problem.value(s.point, s.labels) for s in (solution, better))
        assert after <= before
        df = [s.problem.constraints.degrees_of_freedom(s.labels, s.support) for s in (solution, better)]
        assert df[1] <= df[0]
        found.append((refined, better))
    assert (found[0][1].f == found[1][1].f).all()
    for a, b, c in zip(*(refined.edges_ for refined, _ in found), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, rtol=1e-12)
    np.testing.assert_allclose(found[0][1].f, found[2][1].f, atol=1e-6)
    again = found[0][0].transform(X, weight)
    np.testing.assert_array_equal(block_of(found[0][1].problem.objective).design.codes, again.codes)
    np.testing.assert_allclose(block_of(found[0][1].problem.objective).design.weights, again.weights, atol=1e-14)


@pytest.mark.parametrize("n_bags", [0, 3])
@pytest.mark.parametrize(
    "column",
    [
        np.zeros(200),
        np.repeat([0.0, 1.0], 100),
        np.repeat(np.arange(4.0), 50),
        np.r_[np.full(90, -np.inf), np.full(90, np.inf), np.arange(20.0)],
        np.r_[np.full(100, np.nan), np.arange(100.0)],
        1e300 * np.linspace(-1, 1, 200),
        1e-300 * np.linspace(-1, 1, 200),
    ],
    ids=["constant", "two values", "four values", "infinities", "missing", "huge", "tiny"],
)
def test_awkward_columns(column, n_bags):
    rng = np.random.default_rng(12)
    X = np.column_stack([column, rng.normal(size=200)])
    y = (np.arange(200) > 110) + (X[:, 1] > 0.1) + 0.1 * rng.normal(size=200)
    m = RBRRegressor(max_bins=8, n_bags=n_bags).fit(X, y)
    assert np.isfinite(m.predict(X)).all()
    for term in m.terms_:
        assert (np.diff(term.edges) > 0).all()
        assert np.isfinite(term.edges).all()


def test_bagged_fits_join_jumps_and_keep_the_levels_of_the_average():
    X, y = step(1500, 6)
    plain, joined = (RBRRegressor(jump_cost=1.0, n_bags=6, refine_cuts=r).fit(X, y) for r in (False, True))
    assert len(plain.terms_[0].pieces) > len(joined.terms_[0].pieces) == 2
    ends = [m.terms_[0].values[[0, -1]] + m.intercept_ for m in (plain, joined)]
    np.testing.assert_allclose(ends[0], ends[1], atol=0.05)
    assert joined.model_.training_loss < plain.model_.training_loss + 2 * np.log(255) / 1500  # two pieces less


def test_edges_that_the_user_gives_stay():
    X, y = step(30_000, 0, place=0.5)
    given = [0.2, 0.45, 0.7]
    m = RBRRegressor(shape="constant", binning={0: given}).fit(X, y)
    np.testing.assert_array_equal(m.terms_[0].edges, given)
    free = RBRRegressor(shape="constant", max_bins=4, binning={0: "regular"}).fit(X[X[:, 0] < 0.9], y[X[:, 0] < 0.9])
    assert np.abs(free.terms_[0].edges - 0.5).min() < 1e-3


def test_many_rows_open_the_bins_of_the_largest_jumps():
    """With a share too small for all jumps, the step still gets its place, and staircases keep their edges."""
    rng = np.random.default_rng(13)
    X = rng.uniform(size=(60_000, 2))
    y = 2.0 * (X[:, 0] > 0.4321) + np.sin(3 * X[:, 1]) + rng.normal(size=60_000)
    binner = Binner().fit(X)
    constraints = Constraints(jump_cost=1.0)
    options = SolverOptions(opened_share=0.01)
    objective = make_objective(binner.transform(X), y, X=X, options=options)
    refined, better = refine_cuts(binner, solve(objective=objective, constraints=constraints), constraints)
    moved = [np.flatnonzero(a != b) for a, b in zip(refined.edges_, binner.edges_, strict=True)]
    assert len(moved[0]) == 1
    assert len(moved[1]) == 0
    assert abs(refined.edges_[0][moved[0][0]] - 0.4321) < 2e-4
    assert len(np.unique(better.labels[: binner.offsets_[1]])) == 2
