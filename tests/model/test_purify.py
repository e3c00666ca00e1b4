"""Purification moves what a pair says of one column into that column, and changes no prediction."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import make_model, make_term
from pairs import NAMES, frame_for, make_axis, make_pair, make_pair_model, model_of, pairs

from rbr import RBRRegressor
from rbr.losses import get_loss
from rbr.model import AdditiveModel, Axis, PairTerm
from rbr.model.purify import fit_steps

NAME = "age & kind of work"


def purity(term):
    """The largest weighted mean along a row or a column, of those that have rows."""
    grid, weights = term.values.reshape(*term.shape, -1), term.weights
    worst = 0.0
    for along in (0, 1):
        sums, total = np.einsum("ij,ijc->ijc", weights, grid).sum(axis=along), weights.sum(axis=along)
        worst = max(worst, np.abs(sums[total > 0] / total[total > 0, None]).max(initial=0.0))
    return worst


@settings(deadline=None)
@given(pairs(), st.booleans())
def test_predictions_stay_and_the_pair_is_pure(drawn, has_mains):
    term, rng = drawn
    model = model_of(term, rng)
    if has_mains:
        model = with_mains(model, term, rng)
    view = model.purified()
    X = frame_for(model, rng)
    scores = model.decision_function(X, on_unseen="ignore")
    np.testing.assert_allclose(view.decision_function(X, on_unseen="ignore"), scores, rtol=1e-12, atol=1e-12)
    parts = model.explain(X, on_unseen="ignore", purified=True)
    assert parts.shape[1] == len(view.terms) == 5
    np.testing.assert_allclose(model.intercept + parts.sum(axis=1), scores, rtol=1e-12, atol=1e-12)
    assert purity(view[NAME]) <= 1e-12 * max(1.0, np.abs(term.values).max())
    assert [t.columns for t in view.terms] == [(0,), (1,), (2,), (3,), (1, 3)]


@settings(deadline=None)
@given(pairs(), st.booleans())
def test_the_model_to_be_read_predicts_the_same_where_pairs_know_the_rows(drawn, has_mains):
    term, rng = drawn
    model = model_of(term, rng)
    model = with_mains(model, term, rng) if has_mains else model
    X = frame_for(model, rng)
    known = (X["age"].notna() | term.axes[0].has_missing) & (X["kind of work"].notna() | term.axes[1].has_missing)
    X = X[known & (X["age"] != "unknown") & (X["kind of work"] != "unknown")]
    if not len(X):
        return
    view = model.purified()
    expected = model.decision_function(X, on_unseen="ignore")
    np.testing.assert_allclose(view.model.decision_function(X, on_unseen="ignore"), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        view.explain(X, on_unseen="ignore"), view.model.explain(X, on_unseen="ignore"), atol=1e-12
    )
    assert AdditiveModel.from_dict(view.model.to_dict()) == view.model


def with_mains(model, term, rng):
    """The model with terms of both columns of the pair, whose cuts are others."""
    mains = []
    for axis in term.axes:
        common = {"n_outputs": term.n_outputs, "missing": axis.has_missing}
        if axis.kind == "category":
            levels = tuple(axis.levels[k] for k in rng.permutation(len(axis.levels)))
            mains.append(make_term(axis.name, axis.column, rng, kind="category", categories=levels, **common))
        else:
            mains.append(make_term(axis.name, axis.column, rng, **common))
    return replace(model, terms=tuple(sorted([*model.terms[:2], *mains], key=lambda t: t.columns)) + (term,))


def test_an_additive_pair_disappears():
    axes = Axis(0, "a", [1.0, 2.0], None, False), Axis(1, "b", [1.0], None, False)
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 9, (3, 2))
    values = np.array([1.0, -2.0, 0.5])[:, None] + np.array([3.0, -1.0])
    term = PairTerm("a & b", axes, values, counts / counts.sum(), counts, np.arange(6).reshape(3, 2))
    view = AdditiveModel((term,), 0.5, get_loss("squared_error"), None, None, 2, ("a", "b")).purified()
    np.testing.assert_allclose(view["a & b"].values, 0.0, atol=1e-13)
    np.testing.assert_allclose(np.diff(view["a"].values), [-3.0, 2.5])
    np.testing.assert_allclose(np.diff(view["b"].values), [-4.0])
    # The mean of the pair goes with the first column.
    mean = (term.weights * values).sum()
    assert view["a"].weights @ view["a"].values == pytest.approx(mean)
    assert view["b"].weights @ view["b"].values == pytest.approx(0.0, abs=1e-12)
    assert view.intercept == 0.5


def test_a_product_of_centred_steps_is_pure_already():
    axes = Axis(0, "a", [1.0], None, False), Axis(1, "b", [1.0], None, False)
    values = np.array([[1.0, -1.0], [-1.0, 1.0]])
    term = PairTerm("a & b", axes, values, np.full((2, 2), 0.25), np.ones((2, 2)), np.arange(4).reshape(2, 2))
    view = AdditiveModel((term,), 0.0, get_loss("squared_error"), None, None, 2, None).purified()
    np.testing.assert_allclose(view["a & b"].values, values, atol=1e-14)
    np.testing.assert_allclose(view["a"].values, 0.0, atol=1e-14)


@pytest.mark.parametrize("seed", range(5))
def test_steps_are_the_least_squares_fit(seed):
    """Against a dense regression on indicators."""
    rng = np.random.default_rng(seed)
    values, weights = rng.normal(size=(5, 7, 2)), rng.random((5, 7)) * (rng.random((5, 7)) < 0.7)
    first, second = fit_steps(values, weights)
    i, j = np.indices((5, 7)).reshape(2, -1)
    design = np.concatenate([np.eye(5)[i], np.eye(7)[j]], axis=1)
    root = np.sqrt(weights.ravel())[:, None]
    best = design @ np.linalg.lstsq(root * design, root * values.reshape(-1, 2), rcond=None)[0]
    fitted = (first[:, None] + second[None]).reshape(-1, 2)
    occupied = weights.ravel() > 0
    np.testing.assert_allclose(fitted[occupied], best[occupied], atol=1e-10)


@pytest.mark.parametrize("seed", range(20))
def test_weights_of_any_size(seed):
    rng = np.random.default_rng(seed)
    weights = 10.0 ** rng.uniform(-9, 0, (12, 15)) * (rng.random((12, 15)) < 0.5)
    axes = Axis(0, "a", np.arange(11.0), None, False), Axis(1, "b", np.arange(14.0), None, False)
    values, labels = rng.normal(size=(12, 15)), np.arange(180).reshape(12, 15)
    term = PairTerm("a & b", axes, values, weights / weights.sum(), weights, labels)
    view = AdditiveModel((term,), 0.0, get_loss("squared_error"), None, None, 2, ("a", "b")).purified()
    assert purity(view["a & b"]) < 2e-13


def test_rows_that_a_pair_does_not_know_get_nothing_from_it():
    axes = Axis(0, "a", [1.0], None, False), Axis(1, "b", [], (("x",), ("y",)), False)
    counts = np.full((2, 2), 10.0)
    term = PairTerm("a & b", axes, [[3.0, 1.0], [-1.0, -3.0]], counts / 40, counts, np.arange(4).reshape(2, 2))
    model = AdditiveModel((term,), 1.0, get_loss("squared_error"), None, None, 2, ("a", "b"))
    X = pd.DataFrame({"a": [0.0, 0.0], "b": ["x", "new"]})
    parts = model.explain(X, on_unseen="ignore", purified=True)
    np.testing.assert_allclose(parts, [[2.0, 1.0, 0.0], [0.0, 0.0, 0.0]], atol=1e-12)
    with pytest.raises(ValueError, match="on_unseen is 'raise'"):
        model.explain(X, on_unseen="raise", purified=True)


def test_lines_of_a_term_stay_lines():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(2000, 2))
    X[::9, 0] = np.nan
    model = RBRRegressor(n_bags=0).fit(X, np.nan_to_num(2 * X[:, 0], nan=5.0) + X[:, 1]).model_
    assert model.terms[0].has_slopes
    cuts = np.nanquantile(X, [0.3, 0.61, 0.9], axis=0).T
    axes = tuple(Axis(k, f"x{k}", cuts[k], None, k == 0) for k in (0, 1))
    codes = [np.where(np.isnan(X[:, k]), 4, np.searchsorted(axes[k].edges, X[:, k])) for k in (0, 1)]
    counts = np.bincount(codes[0] * 4 + codes[1], minlength=20).reshape(5, 4)
    labels = np.arange(20).reshape(5, 4)
    term = PairTerm("x0 & x1", axes, rng.normal(size=(5, 4)), counts / 2000, counts, labels)
    both = replace(model, terms=(*model.terms, term))
    view = both.purified()
    main = view.model.terms[0]
    assert main.has_slopes and len(main.edges) >= len(model.terms[0].edges)
    new = np.concatenate([X, 100 * rng.normal(size=(50, 2)), [[np.inf, -np.inf], [-np.inf, np.inf]]])
    np.testing.assert_allclose(view.model.decision_function(new), both.decision_function(new), atol=1e-10)
    # Shares of parts of bins are those of the training rows, which the cuts of the pair tell.
    rows = X[:, 0][~np.isnan(X[:, 0])]
    exact = np.bincount(np.searchsorted(main.edges, rows), minlength=len(main.edges) + 1) / 2000
    np.testing.assert_allclose(main.weights[:-1], exact, atol=1e-12)
    np.testing.assert_allclose(main.counts[:-1], 2000 * exact, atol=1e-9)
    assert main.weights.sum() == pytest.approx(1.0)


def test_the_bins_of_a_new_term_stand_inside_themselves():
    rng = np.random.default_rng(0)
    for edges in ([3.0], [0.1, 0.5, 90.0], [-5.0, -4.0], [2.0, 2.5, 3.0]):
        axes = Axis(0, "a", edges, None, False), Axis(1, "b", [0.0], None, False)
        term = make_pair(axes, rng)
        model = AdditiveModel((term,), 0.0, get_loss("squared_error"), None, None, 2, ("a", "b"))
        positions = model.purified()["a"].positions
        low, high = np.append(-np.inf, edges), np.append(edges, np.inf)
        assert ((low < positions) & (positions <= high)).all()
        assert positions[0] > 0 or edges[0] < 0
        assert positions[-1] - edges[-1] < 100 and edges[0] - positions[0] < 100


def test_several_pairs_of_one_column():
    model = make_pair_model(5)
    view = model.purified()
    assert [t.name for t in view.terms] == [t.name for t in model.terms]
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X = frame_for(model, rng)
        np.testing.assert_allclose(view.decision_function(X), model.decision_function(X), rtol=1e-12, atol=1e-12)
    for term in view.terms[-3:]:
        assert purity(term) < 1e-12


def test_a_model_without_pairs_is_pure():
    model = make_model(0)
    assert model.purified().model == model


def test_what_a_view_shows():
    rng = np.random.default_rng(2)
    axes = make_axis(1, "age", rng), make_axis(3, "kind of work", rng, kind="category")
    model = model_of(make_pair(axes, rng, observed=True), rng)
    view = model.purified()
    assert repr(view).startswith("PurifiedView(AdditiveModel(squared_error, 5 terms (1 pair) of 5 features")
    assert set(view.to_frame()["term"]) == {"intercept", "first", "age", "third", "kind of work", NAME}
    assert "kind of work" in view.summary() and len(view.importances) == 5
    X = frame_for(model, rng)
    frame = model.explain(X, output="pandas", on_unseen="ignore", purified=True)
    assert list(frame.columns) == ["first", "age", "third", "kind of work", NAME]
    assert list(model.explain(X, output="pandas", on_unseen="ignore").columns) == ["first", "third", NAME]
    assert view["age"].missing_value is not None and NAMES[1] == "age"
    np.testing.assert_allclose(view["age"].weights, model[NAME].weights.sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(view["age"].target_sums[:, 0].sum(), model[NAME].target_sums.sum())


def test_a_column_of_two_kinds():
    rng = np.random.default_rng(2)
    term = make_pair((make_axis(1, "age", rng), make_axis(3, "kind of work", rng, kind="category")), rng)
    model = model_of(term, rng)
    main = make_term("age", 1, rng, kind="category", categories=("a", "b"))
    with pytest.raises(ValueError, match="'age' holds numbers in one term and categories in another"):
        replace(model, terms=(model.terms[0], main, *model.terms[1:])).purified().model  # noqa: B018
