"""Everything that a model without pairs can do, one with pairs can: from one fit of columns of every kind."""

import dataclasses
import json
import pickle

import numpy as np
import pandas as pd
import pytest
from databases import run_sqlite, sql_types
from problems import objective_of
from sklearn.base import clone

import rbr
from rbr import RBRClassifier, RBRRegressor
from rbr.estimators import base
from rbr.estimators.interactions import fit_with_pairs
from rbr.solvers.pairs import PairSpec

PAIR = "b & c"


def made(n=1200, seed=0):
    """A pair of a number with missing values and of levels, beside a line and two columns of noise."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abde"))
    X.insert(2, "c", np.array(["w", "x", "y"])[rng.integers(0, 3, n)])
    X.loc[rng.random(n) < 0.1, "b"] = np.nan
    score = X["a"] + 2.0 * ((X["b"] > 0) & (X["c"] != "w")) - 1.0 * X["b"].isna()
    return X, score.to_numpy(), score.to_numpy() + 0.5 * rng.normal(size=n)


@pytest.fixture(scope="module")
def data():
    return made()


@pytest.fixture(scope="module")
def surface(data):
    X, _, y = data
    return RBRRegressor(interactions=[("b", "c")]).fit(X, y)


@pytest.fixture(scope="module")
def rectangles(data):
    X, _, y = data
    return RBRRegressor(interactions=[("b", "c")], max_rectangles=5).fit(X, y)


@pytest.fixture(scope="module")
def classifier(data):
    X, score, _ = data
    y = np.where(np.random.default_rng(1).random(len(score)) < 1 / (1 + np.exp(-2 * score + 1)), "yes", "no")
    return RBRClassifier(interactions=[("b", "c")], max_rectangles=6).fit(X, y)


FITS = pytest.mark.parametrize("name", ["surface", "rectangles", "classifier"])


@FITS
def test_contributions_importances_and_selected_columns(name, data, request):
    m, X = request.getfixturevalue(name), data[0]
    assert PAIR in [term.name for term in m.terms_]
    contributions = m.explain(X, output="pandas")
    assert list(contributions) == [term.name for term in m.terms_]
    np.testing.assert_allclose(contributions.sum(axis=1) + m.intercept_, m.model_.decision_function(X), atol=1e-10)
    by_term = contributions.abs().mean()
    for term in m.terms_:
        assert by_term[term.name] == pytest.approx(term.importance, rel=1e-3)  # a line varies within a bin
    # A pair counts half for each of its columns.
    expected = np.zeros(5)
    for term in m.terms_:
        expected[list(term.columns)] += by_term[term.name] / len(term.columns)
    np.testing.assert_allclose(m.feature_importances_, expected, rtol=1e-3)
    assert {1, 2} <= set(m.selected_features_)
    assert m.model_[PAIR].jumps == ()


@FITS
def test_reasons_summaries_and_frames(name, data, request):
    m, X = request.getfixturevalue(name), data[0]
    told = str(m.explain_row(X.iloc[0]))
    assert " is " in told and ("b" in told or "c" in told)
    assert PAIR in m.summary() and "held-out gain" in m.summary()
    frame = m.to_frame()
    own = frame[frame["term"] == PAIR]
    n_pieces = m.model_[PAIR].weights.size if m.model_[PAIR].is_surface else len(m.model_[PAIR].pieces)
    assert len(own) == n_pieces


@FITS
def test_copies_files_and_queries_give_the_same_scores(name, data, request, tmp_path):
    m, X = request.getfixturevalue(name), data[0]
    assert pickle.loads(pickle.dumps(m)).model_ == m.model_
    m.save(tmp_path / "model.json")
    assert rbr.load(tmp_path / "model.json") == m.model_
    assert json.loads((tmp_path / "model.json").read_text())
    rows = X.head(100).assign(e=np.arange(100.0))  # a database keeps no order
    given = [{key: None if value != value else value for key, value in row.items()} for row in rows.to_dict("records")]
    _, found = run_sqlite(m.model_.to_sql("some table"), given, sql_types(m.model_) | {"c": "TEXT"})
    found.sort(key=lambda row: row[4])
    np.testing.assert_allclose([row[5] for row in found], m.model_.decision_function(rows), atol=1e-9)


def test_onnx_gives_the_scores(surface, data, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    X = data[0].head(50)
    surface.model_.to_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    given = {}
    for own in session.get_inputs():
        given[own.name] = X[own.name].to_numpy(dtype=object if "string" in own.type else np.float64).reshape(-1, 1)
    (found, *_) = session.run(None, given)
    np.testing.assert_allclose(np.ravel(found), surface.predict(X), rtol=1e-9, atol=1e-9)


def test_plots_and_reports(surface, rectangles, data, tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    X, _, y = data
    boot = surface.bootstrap(X, y, n=2)
    axes = surface.plot(bands=boot)
    assert PAIR in [panel.get_title(loc="left") for panel in axes]
    surface.report(tmp_path / "page.html", X, y, bands=boot)
    assert (tmp_path / "page.html").stat().st_size > 10_000
    with pytest.raises(ValueError, match="bands: term 'b & c' has other bins than in the bootstrap"):
        rectangles.report(tmp_path / "page.html", X, y, bands=boot)


def test_edits_change_what_they_say(rectangles, data):
    X, model = data[0], rectangles.model_
    before, pair = model.predict(X), model[PAIR]
    own = model.explain(X, output="pandas")[PAIR].to_numpy()
    dropped = model.drop(PAIR)
    np.testing.assert_allclose(dropped.predict(X), before - own, atol=1e-10)
    value = pair.pieces[0].value
    changed = model.set_rectangle(PAIR, 0, value + 1.0)
    moved = np.isclose(own, value)
    np.testing.assert_allclose(changed.predict(X) - before, np.where(moved, 1.0, 0.0), atol=1e-10)
    merged = model.merge(PAIR, [0, 1])
    assert len(merged[PAIR].pieces) == len(pair.pieces) - 1
    assert merged.predict(X).mean() == pytest.approx(before.mean(), abs=1e-9)
    reoptimised = rbr.reoptimise(changed, X, data[2])
    assert np.mean((reoptimised.predict(X) - data[2]) ** 2) < np.mean((changed.predict(X) - data[2]) ** 2)


def test_intervals_hold_their_share_of_new_rows(surface):
    X, _, y = made(seed=1)
    m = pickle.loads(pickle.dumps(surface)).calibrate(X, y)
    X_new, _, y_new = made(seed=2)
    low, high = m.predict_interval(X_new, level=0.8).T
    assert 0.75 < np.mean((low <= y_new) & (y_new <= high)) < 0.85


def test_warm_starts_end_where_cold_ones_do(surface, data):
    X, _, y = data
    m = clone(surface).set_params(warm_start=True, n_bags=0)
    cold = m.fit(X, y).predict(X)
    assert m.fit(X, y) is m and PAIR in [term.name for term in m.terms_]
    assert np.mean((m.predict(X) - y) ** 2) == pytest.approx(np.mean((cold - y) ** 2), rel=0.02)


def test_a_callback_stops_the_rounds_over_pairs(data):
    X, _, y = data
    B = rbr.Binner(max_bins=16).fit_transform(X[["a", "b"]].fillna(0.0))
    seen = []

    def fit(stops_at):
        seen.clear()
        return fit_with_pairs(
            objective_of(B, y),
            lambda own, way=None: rbr.solve(objective=own),
            PairSpec(np.empty((0, 2), dtype=np.int64), np.array([[0, 1]])),
            np.zeros(2, dtype=bool),
            callback=lambda own: seen.append(own) or len(seen) >= stops_at,
        )

    fit(10**6)
    n_rounds = len(seen)
    _, pairs = fit(2)
    assert len(seen) == 2 < n_rounds and np.isfinite(pairs.point.f).all()


def test_unknown_levels_and_new_missing_values_add_nothing(surface, data):
    X = data[0].head(4).copy()
    X.loc[X.index[0], "c"] = "new"
    with pytest.warns(UserWarning, match="c"):
        own = surface.explain(X, output="pandas")[PAIR].to_numpy()
    assert own[0] == 0.0 and own[1:].any()


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_three_classes_have_a_value_of_each_cell_by_class(data):
    X, score, _ = data
    y = np.digitize(score, [0.0, 1.5])
    m = RBRClassifier(interactions=[("b", "c")], max_rectangles=6).fit(X, y)
    pair = m.model_[PAIR]
    assert pair.values.shape == (*pair.shape, 3) and len(pair.pieces) <= 6
    boot = m.bootstrap(X, y, n=3)
    low, high = boot.band(PAIR)
    assert low.shape == (pair.weights.size, 3) and (low <= high).all()
    assert rbr.AdditiveModel.from_dict(m.model_.to_dict()) == m.model_
    dropped = m.model_.drop(PAIR)
    assert len(dropped.terms) == len(m.terms_) - 1 and dataclasses.is_dataclass(dropped)


def test_mains_beside_pairs_choose_their_features_as_before(data, monkeypatch):
    X, _, y = data
    asked, found, average = [], [], base.average_over_pieces

    def watched(*args, way=None, **kwargs):
        asked.append(way)
        found.append(average(*args, way=way, **kwargs).way)
        return average(*args, way=way, **kwargs)

    monkeypatch.setattr(base, "average_over_pieces", watched)
    rbr.RBRRegressor(interactions=[("a", "b")]).fit(X, y)
    assert asked == [None, found[0]] and found[0] is not None
