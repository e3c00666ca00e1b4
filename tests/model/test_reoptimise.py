"""`rbr.reoptimise`: what was held stays bit for bit, the loss does not rise, predictions balance."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from models import make_model
from pairs import make_pair_model
from sklearn.datasets import make_friedman1

import rbr


def data(n=500, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    X = pd.DataFrame(x, columns=["a", "b", "c"])
    X["kind"] = rng.choice(["u", "v", "w"], n)
    X.loc[::10, "b"] = np.nan
    score = np.sin(2 * x[:, 0]) + (x[:, 1] > 0.3) + 0.8 * x[:, 2] + (X["kind"] == "v")
    return X, score.to_numpy(), rng


TARGETS = {
    "squared_error": lambda score, rng: score + 0.3 * rng.normal(size=len(score)),
    "log_loss": lambda score, rng: np.where(2 * (score - 1) + rng.logistic(size=len(score)) > 0, "yes", "no"),
    "multinomial": lambda score, rng: np.digitize(score + 0.5 * rng.normal(size=len(score)), [0.3, 1.5]),
    "poisson": lambda score, rng: rng.poisson(np.exp(0.5 * score)),
    "gamma": lambda score, rng: rng.gamma(3.0, np.exp(0.5 * score)),
    "huber": lambda score, rng: score + 0.3 * rng.standard_t(2, size=len(score)),
    "quantile": lambda score, rng: score + 0.3 * rng.normal(size=len(score)),
}


def fitted(loss, **options):
    X, score, rng = data()
    y = TARGETS[loss](score, rng)
    is_classifier = loss in ("log_loss", "multinomial")
    m = rbr.RBRClassifier(**options) if is_classifier else rbr.RBRRegressor(loss=loss, **options)
    return m.fit(X, y).model_, X, y


def loss_of(model, X, y, sample_weight=None, offset=None):
    codes = y if model.classes is None else np.searchsorted(model.classes, y)
    v = np.full(len(y), 1 / len(y)) if sample_weight is None else sample_weight / sample_weight.sum()
    y = model.loss.validate(codes, v)
    return model.loss.value(y, np.asfortranarray(model.decision_function(X, offset=offset)), v)


@pytest.mark.parametrize(("loss", "n_bags"), [*((loss, 0) for loss in TARGETS), ("log_loss", "auto")])
def test_held_terms_stay_and_the_loss_does_not_rise(loss, n_bags):
    model, X, y = fitted(loss, n_bags=n_bags)
    assert {"a", "b", "kind"} <= {term.name for term in model.terms}
    edited = model.set_piece("a", 0, np.zeros(model.n_outputs) if model.n_outputs > 1 else 0.0)
    found = rbr.reoptimise(edited, X, y, prior_rows=1)
    assert found["a"] == edited["a"]
    before, after = loss_of(edited, X, y), loss_of(found, X, y)
    assert after < before - 1e-6 and found.training_loss == pytest.approx(after, abs=1e-12)
    assert found["kind"] != edited["kind"]
    for own, other in zip(found.terms, edited.terms, strict=True):
        assert [piece.bins for piece in own.pieces] == [piece.bins for piece in other.pieces]
        assert [piece.kind for piece in own.pieces] == [piece.kind for piece in other.pieces]
        assert own.name == "a" or np.abs(own.weights @ own.all_values).max() < 1e-12
    if model.loss.link in ("logit", "softmax"):
        share = [(y == label).mean() for label in model.classes]
        np.testing.assert_allclose(found.predict_proba(X).mean(axis=0), share, atol=1e-9)
    elif loss in ("squared_error", "poisson"):
        assert found.predict(X).mean() == pytest.approx(y.mean(), rel=1e-9)


def test_nothing_lowers_the_loss_further_where_there_is_no_prior():
    """The gradient in the values of all free pieces, and the slopes of lines, is zero."""
    model, X, y = fitted("squared_error", n_bags=0)
    found = rbr.reoptimise(model, X, y, hold=["b"], prior_rows=0)
    residual = y - found.predict(X)
    assert any(term.has_slopes for term in found.terms)
    for term in found.terms:
        if term.name == "b":
            continue
        x = X[term.name]
        for piece in term.pieces:
            inside = (x > piece.low) & (x <= piece.high) if term.kind == "numeric" else x.isin(piece.categories)
            assert abs(residual[inside].mean()) < 1e-6
            if piece.anchor is not None:
                place = np.clip(x[inside], *term.bounds[piece.start])
                assert abs(np.mean(residual[inside] * (place - piece.anchor))) < 1e-6


def test_sample_weights_mean_repeated_rows():
    model, X, y = fitted("log_loss")
    model = model.zero("a")
    weight = np.random.default_rng(3).integers(0, 4, len(y))
    rows = np.repeat(np.arange(len(y)), weight)
    found = rbr.reoptimise(model, X, y, sample_weight=weight)
    expected = rbr.reoptimise(model, X.iloc[rows], y[rows])
    np.testing.assert_allclose(found.decision_function(X), expected.decision_function(X), atol=1e-8)


def test_offsets_are_beside_the_scores():
    model, X, y = fitted("poisson")
    offset = np.random.default_rng(2).normal(size=len(y))
    found = rbr.reoptimise(model, X, y, offset=offset)
    assert found.predict(X, offset=offset).mean() == pytest.approx(y.mean(), rel=1e-9)
    assert loss_of(found, X, y, offset=offset) < loss_of(model, X, y, offset=offset)


@pytest.mark.filterwarnings("ignore::rbr.UnseenWarning")
def test_pairs_are_refitted_and_unseen_values_allowed():
    model = make_pair_model(3)
    rng = np.random.default_rng(0)
    X = pd.DataFrame({name: rng.normal(size=200) for name in model.feature_names_in_})
    y = rng.normal(size=200)
    found = rbr.reoptimise(model, X, y, hold=[0])
    assert found.terms[0].values.tobytes() == model.terms[0].values.tobytes()
    assert loss_of(found, X, y) < loss_of(model, X, y)
    assert any(
        (own.values != other.values).any()
        for own, other in zip(found.terms, model.terms, strict=True)
        if len(own.columns) == 2
    )


def test_a_monotone_term_stays_monotone():
    X, y = make_friedman1(400, random_state=0)
    model = rbr.RBRRegressor(monotonic_cst={3: 1}, n_bags=0).fit(X, y).model_
    rng = np.random.default_rng(0)
    found = rbr.reoptimise(model, X, y - 40 * np.abs(X[:, 3] - 0.5) + rng.normal(size=400), prior_rows=0)
    ends = np.ravel([piece.ends for piece in found["x3"].pieces])
    assert len(ends) > 4 and (np.diff(ends) >= 0).all()


def test_the_edit_is_recorded_and_edits_say_what_is_held():
    model, X, y = fitted("squared_error")
    edited = model.merge("b", [0, 1]).set_piece("kind", 0, -1.0)
    found = rbr.reoptimise(edited, X, y)
    assert found["b"] == edited["b"] and found["kind"] == edited["kind"]
    assert found.metadata["edits"] == [
        {"edit": "merge", "term": "b", "pieces": [0, 1]},
        {"edit": "set_piece", "term": "kind", "piece": 0, "value": -1.0},
        {"edit": "reoptimise", "hold": ["b", "kind"]},
    ]
    assert rbr.reoptimise(model, X, y, hold=["a"]).metadata["edits"] == [{"edit": "reoptimise", "hold": ["a"]}]
    everything = rbr.reoptimise(edited, X, y, hold=range(len(model.terms)))
    assert everything.terms == edited.terms and everything.intercept != edited.intercept


def test_notes_by_the_name_of_edits_stay():
    model = make_model(0)
    model.metadata["edits"] = "see the folder on the shelf"
    assert model.set_piece(0, 0, 1.0).metadata == {"edits": "see the folder on the shelf"}


def test_what_does_not_fit_is_named():
    model, X, y = fitted("log_loss")
    with pytest.raises(ValueError, match=r"hold is 'a'; it must be a list of terms, such as \['a'\]"):
        rbr.reoptimise(model, X, y, hold="a")
    with pytest.raises(ValueError, match="term is 'z'; it must be the name of a term"):
        rbr.reoptimise(model, X, y, hold=["z"])
    with pytest.raises(ValueError, match="y holds 'perhaps'; the classes are 'no', 'yes'"):
        rbr.reoptimise(model, X, np.where(y == "no", "perhaps", y))
    with pytest.raises(ValueError, match=r"y has shape \(3,\); X has 500 rows"):
        rbr.reoptimise(model, X, y[:3])
    with pytest.raises(ValueError, match="prior_rows is -1; it must be finite and at least 0"):
        rbr.reoptimise(model, X, y, prior_rows=-1)
    with pytest.raises(TypeError, match="model is a RBRClassifier; it must be an AdditiveModel"):
        rbr.reoptimise(rbr.RBRClassifier(), X, y)
