"""Cut refinement: jumps move to where the data have them, the loss never rises, and every constraint still holds."""

import numpy as np
import pandas as pd
import pytest
from problems import LOSSES, block_of, make_target
from scipy import sparse
from sklearn.utils.estimator_checks import parametrize_with_checks

from rbr import Binner, Constraints, RBRClassifier, RBRRegressor, make_objective, solve
from rbr.estimators.refine import _State, _try, refine_cuts

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
    coarse = RBRRegressor(max_bins=8).fit(X, y)
    fine = RBRRegressor(max_bins=8, refine_cuts=True).fit(X, y)
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
            assert n_pieces == n_before or (n_pieces < n_before and shape in ("increasing", "decreasing"))
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
    k = int(np.flatnonzero(np.diff(solution.labels[binner.offsets_[1] : binner.offsets_[2]]))[0])
    edges = binner.edges_[1].copy()
    away, back = (k - 1, k + 1) if edges[k] < 0.43 else (k + 1, k - 1)
    for towards, is_better in ((away, False), (back, True)):
        moved = edges.copy()
        moved[k] = 0.9 * edges[k] + 0.1 * edges[towards]
        assert (_try(state, {1: moved}, constraints, 1e-5) is not None) == is_better


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
        RBRRegressor(max_bins=8, shape="constant", monotonic_cst={"up": 1}, refine_cuts=refine).fit(frame, score)
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
    m = RBRRegressor(max_bins=8, max_features=1, refine_cuts=True).fit(table, y)
    assert m.selected_features_ == [1]
    used = X[:, 1].astype(np.float32).astype(float) if kind is np.float32 else X[:, 1]
    assert np.abs(m.terms_[0].edges - 0.43).min() <= spacing_around(used, 0.43)
    assert np.mean((y - m.predict(table)) ** 2) / 2 == pytest.approx(m.model_.training_loss, rel=1e-9)


def test_classes_share_the_moved_edge():
    rng = np.random.default_rng(9)
    X = rng.uniform(size=(900, 2))
    y = np.where(X[:, 0] > 0.42, rng.choice([0, 1, 2], p=[0.8, 0.1, 0.1], size=900), rng.choice([0, 1, 2], size=900))
    plain, fine = (
        RBRClassifier(max_bins=8, shape="constant", refine_cuts=refine).fit(X, y) for refine in (False, True)
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
    m = RBRRegressor(max_bins=8, refine_cuts=True, warm_start=True, position="rank", prior_rows=0).fit(X, y)
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


@parametrize_with_checks([RBRRegressor(refine_cuts=True)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)
