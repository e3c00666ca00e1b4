"""Pairs in the estimators: that they are found, that noise stays out, and that everything works with them."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.metrics import log_loss

import rbr
from rbr import RBRClassifier, RBRRegressor


def made(n=2000, seed=0, p=6):
    """y has a pair of columns 1 and 2 with a sharp edge, beside a line in column 0."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, X[:, 0] + 2 * (X[:, 1] > 0) * (X[:, 2] > 0.3) + 0.5 * rng.normal(size=n)


def pairs_of(m):
    return [term.columns for term in m.terms_ if len(term.columns) == 2]


@pytest.mark.parametrize("parameters", [{}, {"n_bags": 0}, {"n_bags": 2}, {"jump_cost": 0.5}, {"solver": "algorithm1"}])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_planted_pair_is_found_beside_mains_of_any_kind(parameters):
    X, y = made()
    X_test, y_test = made(seed=1)
    m = RBRRegressor(interactions="auto", **parameters).fit(X, y)
    assert pairs_of(m) == [(1, 2)]
    assert m.score(X_test, y_test) > RBRRegressor(**parameters).fit(X, y).score(X_test, y_test) + 0.05


def test_additive_data_have_no_pairs_and_fit_as_without():
    n_found = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(1000, 8))
        y = np.sin(2 * X[:, 0]) + (X[:, 1] > 0) + 0.5 * X[:, 2] ** 2 + rng.normal(size=1000)
        n_found += bool(pairs_of(RBRRegressor(interactions="auto").fit(X, y)))
    assert n_found <= 1


@pytest.mark.parametrize("kind", ["normal", "counts", "classes", pytest.param("three classes", marks=pytest.mark.long)])
def test_noise_has_no_pairs(kind):
    n_found = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(600, 10))
        X[:, 3] = rng.integers(0, 3, 600)
        y = {
            "normal": rng.normal(size=600),
            "counts": rng.poisson(0.5, 600),
            "classes": rng.random(600) < 0.1,
            "three classes": rng.integers(0, 3, 600),
        }[kind]
        estimator = RBRClassifier if "classes" in kind else RBRRegressor
        loss = {"loss": "poisson"} if kind == "counts" else {}
        n_found += bool(estimator(interactions="auto", **loss).fit(X, y).terms_)
    assert n_found <= 1


def test_limits_lists_and_constraints_say_which_pairs_are_used():
    X, y = made(p=4)
    y = y + (X[:, 0] > 0) * (X[:, 3] > 0)
    found = pairs_of(RBRRegressor(interactions="auto").fit(X, y))
    assert {(1, 2), (0, 3)} <= set(found)
    assert pairs_of(RBRRegressor(interactions=1).fit(X, y)) == [(1, 2)]
    assert pairs_of(RBRRegressor(interactions=[(3, 1)]).fit(X, y)) == [(1, 3)]
    assert pairs_of(RBRRegressor(interactions="auto", interaction_cst=[[0, 3], [1, 3]]).fit(X, y)) == [(0, 3)]
    assert pairs_of(RBRRegressor(interactions="auto", interaction_cst="no_interactions").fit(X, y)) == []
    assert (1, 2) not in pairs_of(RBRRegressor(interactions="auto", exclude=[2]).fit(X, y))
    assert (1, 2) not in pairs_of(RBRRegressor(interactions="auto", monotonic_cst={1: 1}).fit(X, y))
    frame = pd.DataFrame(X, columns=list("abcd"))
    m = RBRRegressor(interactions=[("c", "b")]).fit(frame, y)
    assert m.terms_[-1].name == "b & c"
    np.testing.assert_array_equal(m.selected_features_, np.unique([j for t in m.terms_ for j in t.columns]))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"interactions": "all"}, "interactions is 'all'"),
        ({"interactions": -1}, "interactions is -1"),
        ({"interactions": [(0, 0)]}, "the columns of a pair must differ"),
        ({"interactions": [(0, 1, 2)]}, "each of its pairs must be two"),
        ({"interactions": [(0, 99)]}, "99"),
        ({"interaction_cst": "some"}, "interaction_cst is 'some'"),
        ({"max_rectangles": 1}, "max_rectangles is 1"),
        ({"heredity": 1}, "heredity is 1"),
    ],
)
def test_errors_say_what_is_allowed_and_leave_the_estimator_as_it_was(parameters, message):
    X, y = made(200)
    m = RBRRegressor().fit(X, y)
    before = m.predict(X)
    with pytest.raises(ValueError, match=message):
        m.set_params(**parameters).fit(X, y)
    np.testing.assert_array_equal(m.predict(X), before)


def test_rectangles_are_few_and_told_in_words():
    X, y = made(4000)
    m = RBRRegressor(interactions="auto", max_rectangles=4).fit(X, y)
    (pair,) = (term for term in m.terms_ if term.kind == "pair")
    assert len(pair.pieces) == 4
    assert pair.pieces[-1].text.startswith("x1 > ") and " and x2 > " in pair.pieces[-1].text
    X_test, y_test = made(seed=1)
    assert m.score(X_test, y_test) > RBRRegressor(interactions="auto").fit(X, y).score(X_test, y_test) - 0.01


def test_a_pair_of_a_monotone_column_never_falls_along_it():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, 3))
    y = X[:, 0] * (1 + X[:, 1]) + 0.3 * rng.normal(size=2000)
    for cap in (None, 12):
        m = RBRRegressor(interactions=[(0, 1)], monotonic_cst={0: 1}, max_rectangles=cap).fit(X, y)
        x = np.sort(rng.uniform(-1, 1, 300))
        for other in (-0.9, 0.0, 0.9):
            assert (np.diff(m.predict(np.column_stack([x, np.full(300, other), np.zeros(300)]))) >= -1e-12).all()
        assert cap is None or len(m.terms_[-1].pieces) <= cap


@pytest.mark.parametrize("loss", ["squared_error", "poisson", "gamma", "tweedie", "huber", "quantile"])
def test_every_loss_has_pairs(loss):
    X, score = made(3000)
    rng = np.random.default_rng(5)
    mean = np.exp(score / 2)
    y = {"poisson": lambda: rng.poisson(mean), "gamma": lambda: rng.gamma(5.0, mean / 5.0)}
    y = y.get(loss, lambda: score if loss in ("squared_error", "huber", "quantile") else rng.poisson(mean) * 1.0)()
    m = RBRRegressor(loss=loss, interactions=3).fit(X, y)
    assert (1, 2) in pairs_of(m)
    assert m.score(X, y) > RBRRegressor(loss=loss).fit(X, y).score(X, y)
    assert np.average(m.predict(X)) == pytest.approx(np.average(y), rel=0.3)


def test_classes_categories_missing_values_and_weights():
    X, score = made(3000)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    frame.loc[rng.random(3000) < 0.1, "b"] = np.nan
    frame["c"] = pd.cut(frame["c"], [-9, -0.5, 0.3, 1, 9], labels=["w", "x", "y", "z"]).astype(str)
    y = np.digitize(score, [0.0, 1.5])
    mains = RBRClassifier().fit(frame, y)
    m = RBRClassifier(interactions="auto").fit(frame, y, sample_weight=rng.integers(1, 3, 3000))
    assert (1, 2) in pairs_of(m)
    assert log_loss(y, m.predict_proba(frame)) < log_loss(y, mains.predict_proba(frame))
    pair = m.model_["b & c"]
    assert pair.axes[0].has_missing and not pair.axes[1].has_missing
    assert sorted(pair.axes[1].levels) == ["w", "x", "y", "z"]
    np.testing.assert_allclose(m.explain(frame).sum(axis=1) + m.intercept_, m.decision_function(frame), atol=1e-10)


def test_the_same_bits_for_any_number_of_threads_and_after_copying():
    X, y = made(1000)
    one = RBRRegressor(interactions="auto", n_jobs=1).fit(X, y)
    two = clone(one).set_params(n_jobs=2).fit(X, y)
    assert one.model_ == two.model_
    assert pickle.loads(pickle.dumps(one)).model_ == one.model_
    assert rbr.AdditiveModel.from_dict(one.model_.to_dict()) == one.model_


def test_weights_mean_repeated_rows():
    X, y = made(600)
    k = np.random.default_rng(0).integers(1, 4, 600)
    weighted = RBRRegressor(interactions=[(1, 2)], n_bags=0).fit(X, y, sample_weight=k)
    repeated = RBRRegressor(interactions=[(1, 2)], n_bags=0).fit(np.repeat(X, k, axis=0), np.repeat(y, k))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-6)


def test_offsets_stay_out_of_exposures_and_of_the_tables():
    X, score = made(3000)
    rng = np.random.default_rng(0)
    exposure = rng.uniform(0.2, 1.0, 3000)
    y = rng.poisson(exposure * np.exp(score / 2))
    m = RBRRegressor(loss="poisson", interactions=1).fit(X, y, offset=np.log(exposure))
    for term in m.terms_:
        assert term.exposures.sum() == pytest.approx(exposure.sum())
    assert m.predict(X, offset=np.log(exposure)).sum() == pytest.approx(y.sum(), rel=1e-6)


def test_terms_of_pairs_have_mean_zero_and_a_bootstrap_has_them_too():
    X, y = made(800)
    m = RBRRegressor(interactions=1).fit(X, y)
    pair = m.terms_[-1]
    assert abs((pair.weights * pair.values).sum()) < 1e-12
    assert pair.gain > 0 and pair.loss_drop > 0
    boot = m.bootstrap(X, y, n=8)
    assert len(boot.terms) == len(m.terms_) and boot.frequency(pair.name) == 1.0
    assert (boot.frequencies[[1, 2]] == 1.0).all()
    low, high = boot.band(pair.name)
    assert low.shape == pair.all_values.shape
    # Every cell of the pair is near its band, which is narrower than the effect.
    far = np.maximum(low - pair.all_values, pair.all_values - high).clip(0)[:, 0]
    weights = pair.weights.ravel()
    assert weights @ far < 0.2 * pair.importance
    assert weights @ (high - low)[:, 0] < np.ptp(pair.values)
    assert all((1, 2) in [term.columns for term in model.terms] for model in boot.models)


def test_callbacks_and_verbose_see_the_rounds(capsys):
    X, y = made(500)
    RBRRegressor(interactions=1, verbose=1).fit(X, y)
    assert "pairs: round 1" in capsys.readouterr().out


def test_friedman1_is_found_by_its_pair():
    X, y = make_friedman1(3000, noise=1.0, random_state=0)
    X_test, y_test = make_friedman1(3000, noise=1.0, random_state=1)
    m = RBRRegressor(interactions="auto").fit(X, y)
    assert pairs_of(m) == [(0, 1)]
    assert m.score(X_test, y_test) > RBRRegressor().fit(X, y).score(X_test, y_test) + 0.03


def test_heredity_looks_at_columns_of_the_mains_only():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(3000, 4))
    y = X[:, 0] + 3 * X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=3000)  # no main of columns 1 and 2
    assert pairs_of(RBRRegressor(interactions="auto").fit(X, y)) == [(1, 2)]
    assert pairs_of(RBRRegressor(interactions="auto", heredity=True).fit(X, y)) == []


def test_purified_explanations_add_up_and_leave_pairs_without_mains():
    X, y = made(1500)
    m = RBRRegressor(interactions=1).fit(X, y)
    frame = m.explain(X, output="pandas", purified=True)
    np.testing.assert_allclose(frame.sum(axis=1) + m.predict(X).mean(), m.predict(X), atol=1e-6)
    assert abs(np.corrcoef(frame["x1 & x2"], X[:, 1] > 0)[0, 1]) < 0.05


def test_too_many_candidates_are_cut_down_to_columns_of_the_mains(monkeypatch):
    X, y = made(1500)
    monkeypatch.setattr("rbr.estimators.interactions.MOST_CANDIDATES", 10)
    assert pairs_of(RBRRegressor(interactions="auto").fit(X, y)) == [(1, 2)]
    assert pairs_of(RBRRegressor(interactions="auto").fit(X[:, [0, 3, 4, 5, 1, 2]], y)) == [(4, 5)]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_summary_says_what_a_pair_brings_on_rows_outside_bags(n_jobs):
    X, y = made(800)
    # A pair that is named stays, though rows outside bags say that it is noise.
    m = RBRRegressor(interactions=[(1, 2), (3, 4)], n_jobs=n_jobs).fit(X, y)
    gains = {term.columns: term.gain for term in m.terms_ if term.kind == "pair"}
    assert gains[1, 2] > 0.05
    assert gains[3, 4] < 0.002  # chance
    assert gains == {t.columns: t.gain for t in RBRRegressor(interactions=[(1, 2), (3, 4)]).fit(X, y).terms_[-2:]}
    assert "held-out gain" in m.model_.summary()
    # The loss is half the squared error: what the pair gains on fresh rows is near.
    X_test, y_test = made(4000, seed=1)
    without = m.model_.zero("x1 & x2").predict(X_test)
    fresh = 0.5 * np.mean((y_test - without) ** 2 - (y_test - m.predict(X_test)) ** 2)
    assert gains[1, 2] == pytest.approx(fresh, rel=0.4)
