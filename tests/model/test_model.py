"""The fitted model: it predicts what the solver found, adds up, can be edited into new models, and survives files."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import fit, make_model, make_term, with_columns
from scipy import sparse
from scipy.optimize import minimize

import rbr
from rbr import RBRClassifier, RBRRegressor, SolverOptions
from rbr.data.design import BinnedMatrix
from rbr.estimators.bagging import BagFit, bag_average
from rbr.losses import LOSSES, get_loss
from rbr.model import AdditiveModel, jumps
from rbr.model.from_solution import _name, equalise_pieces
from rbr.shapes import spec_of

KINDS = {
    "regression": {},
    "binary": {"loss": "log_loss", "classes": ["no", "yes"]},
    "multiclass": {"loss": "multinomial", "classes": [3, 5, 7], "n_outputs": 3},
}


def made_data(n_rows=600, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 5))
    X[::9, 1] = np.nan
    score = np.sign(X[:, 0]) + 0.7 * np.nan_to_num(X[:, 1], nan=1.5) + 0.5 * (X[:, 3] > 1)
    return X, score, rng


def fitted(kind, **kwargs):
    X, score, rng = made_data()
    if kind == "regression":
        y, loss, classes = score + 0.1 * rng.normal(size=len(X)), "squared_error", None
    elif kind == "binary":
        y, loss, classes = (score + rng.logistic(size=len(X)) > 0).astype(float), "log_loss", ["no", "yes"]
    else:
        y, loss, classes = np.digitize(score + rng.normal(size=len(X)), [-0.5, 0.8]), "multinomial", [3, 5, 7]
    return X, y, *fit(X, y, loss, classes=classes, **kwargs)


# From a fit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", ["constant", "mixed", "linear", "increasing", "free", "levels"])
def test_scores_are_those_of_the_solution(kind, shape):
    X, _, _, B, s, model = fitted(kind, shape=shape)
    assert len(model.terms) > 0
    np.testing.assert_allclose(model.decision_function(X), B.matvec(s.f) + s.intercept, rtol=0, atol=1e-11)
    assert [term.columns for term in model.terms] == [(j,) for j in s.support.tolist()]


@pytest.mark.parametrize("kind", KINDS)
def test_explanations_add_up(kind):
    X, *_, model = fitted(kind)
    parts = model.explain(X)
    assert parts.shape[:2] == (len(X), len(model.terms))
    np.testing.assert_allclose(parts.sum(axis=1) + model.intercept, model.decision_function(X), rtol=0, atol=1e-10)
    for t, term in enumerate(model.terms):
        alone = replace(model, terms=(term,), intercept=np.zeros_like(model.intercept))
        np.testing.assert_array_equal(parts[:, t], alone.decision_function(X))


def test_terms_say_what_was_fitted():
    X, y, binner, B, s, model = fitted("regression", shape="constant")
    term = model["x1"]
    (j,) = term.columns
    table = slice(B.offsets[j], B.offsets[j + 1])
    np.testing.assert_array_equal(term.edges, binner.edges_[j])
    np.testing.assert_allclose(np.append(term.values, term.missing_value), s.f[table], atol=1e-14)
    assert term.weights.sum() == pytest.approx(1)
    assert term.counts[-1] == np.isnan(X[:, 1]).sum()
    assert term.counts.sum() == len(X)
    assert [piece.kind for piece in term.pieces] == ["constant"] * len(term.pieces)
    assert (term.pieces[0].low, term.pieces[-1].high) == (-math.inf, math.inf)
    for left, right in zip(term.pieces[:-1], term.pieces[1:], strict=True):
        assert left.high == right.low == term.edges[left.stop - 1]
        assert left.stop == right.start
    for piece in term.pieces:
        low, high = max(piece.low, -1e9), min(piece.high, 1e9)
        inside = (X[:, 1] > low) & (X[:, 1] <= high)
        assert piece.weight == pytest.approx(inside.mean())
    contribution = model.explain(X)[:, model.terms.index(term)]
    assert term.importance == pytest.approx(np.abs(contribution).mean())


def with_tables_in_order(B, order):
    """The same rows with the tables in another order, which the `columns` record, and the bins in that order."""
    starts = B.offsets[order]
    bins = np.concatenate([np.arange(a, a + n) for a, n in zip(starts, B.n_bins[order], strict=True)])
    offsets = np.append(0, np.cumsum(B.n_bins[order]))
    design = BinnedMatrix(
        B.codes[order], offsets, missing=B.missing[order], positions=B.positions[bins], columns=B.columns[order]
    )
    return design, bins


@pytest.mark.parametrize("measure", [True, False])
def test_a_term_is_of_the_columns_that_its_table_looks_at(measure):
    """The order of the tables does not matter: edges, categories and names are those of the columns."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {"city": rng.choice(list("abcd"), 400), "x": rng.normal(size=400), "w": rng.normal(size=400)}
    )
    frame.loc[::9, "x"] = np.nan
    y = (frame["city"] == "b") * 2.0 + np.sign(frame["x"].fillna(3.0)) + 0.1 * rng.normal(size=400)
    binner, B, s, model = fit(frame, y.to_numpy(), max_bins=16, jump_cost=2.0)
    assert [term.columns for term in model.terms] == [(0,), (1,)]
    design, bins = with_tables_in_order(B, np.array([1, 2, 0]))
    shapes = {0: "mixed", 1: "mixed", 2: "levels"}
    constraints = rbr.Constraints(shape=shapes, max_segments=8, jump_cost=2.0)
    other = rbr.solve(design, y.to_numpy(), constraints=constraints, max_iter=30)
    np.testing.assert_allclose(other.f, s.f[bins], atol=1e-9)
    found = AdditiveModel.from_solution(binner, other, measure=measure)
    assert [(term.name, term.columns, term.kind) for term in found.terms] == [
        ("city", (0,), "category"),
        ("x", (1,), "numeric"),
    ]
    for term, expected in zip(found.terms, model.terms, strict=True):
        assert term.categories == expected.categories
        for field in ("edges", "positions", "weights", "counts", "labels"):
            np.testing.assert_array_equal(getattr(term, field), getattr(expected, field), err_msg=field)
        np.testing.assert_allclose(term.all_values, expected.all_values, atol=1e-9)
        if measure:
            assert term.loss_drop == pytest.approx(expected.loss_drop)
    np.testing.assert_allclose(found.predict(frame), model.predict(frame), atol=1e-9)


def test_a_table_of_two_columns_is_no_term_if_its_bins_are_not_known():
    X, y, binner, B, *_ = fitted("regression")
    pairs = np.column_stack([np.arange(5), np.full(5, -1)])
    pairs[1] = 1, 3
    design = BinnedMatrix(B.codes, B.offsets, missing=B.missing, positions=B.positions, columns=pairs)
    s = rbr.solve(design, y, constraints=rbr.Constraints(max_segments=8), max_iter=5)
    with pytest.raises(ValueError, match="looks at the columns x1 & x3, and where its bins lie is not known"):
        AdditiveModel.from_solution(binner, s)
    assert _name((1, 0), ("a", "b")) == "b & a"


def test_pieces_are_within_the_limit_and_have_one_value_each():
    *_, model = fitted("regression", shape="constant", max_segments=3, jump_cost=0.0)
    for term in model.terms:
        assert len(term.pieces) <= 3
        for piece in term.pieces:
            assert len(np.unique(term.values[list(piece.bins)])) == 1


def test_rounding_within_a_piece_is_taken_out():
    """A refit multiplies by a basis, and may leave bins of a constant piece that differ in the last bit."""
    f = np.array([1.0, np.nextafter(1.0, 2), 1.0, -2.0, 0.5])
    labels, shares = np.array([0, 0, 0, 3, 3]), np.array([0.1, 0.4, 0.1, 0.2, 0.2])
    np.testing.assert_array_equal(equalise_pieces(f, labels, shares, spec_of("mixed")), [f[1], f[1], f[1], -2.0, 0.5])
    both = equalise_pieces(
        np.column_stack([f, f]), np.column_stack([labels, np.zeros(5, int)]), shares, spec_of("mixed")
    )
    np.testing.assert_array_equal(both[:, 1], f[1])
    np.testing.assert_array_equal(both[:, 0], [f[1], f[1], f[1], -2.0, 0.5])


def test_lines_have_two_ends():
    X, _, _ = made_data()
    *_, model = fit(X, 3 * X[:, 0], shape="linear", max_segments=1)
    [piece] = model["x0"].pieces
    assert piece.kind == "line"
    assert piece.ends == (model["x0"].values[0], model["x0"].values[-1])
    assert piece.ends[0] < piece.value < piece.ends[1]
    assert piece.text == "any number"


def test_levels_group_categories():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    city = rng.choice(["a", "b", "c", "d"], 400)
    frame = pandas.DataFrame({"city": city, "x": rng.normal(size=400)})
    *_, model = fit(frame, np.isin(city, ["a", "c"]) * 2.0 + 0.1 * rng.normal(size=400), max_segments=2)
    term = model["city"]
    assert [(piece.kind, piece.categories, piece.text) for piece in term.pieces] == [
        ("level", ("b", "d"), "b, d"),
        ("level", ("a", "c"), "a, c"),
    ]
    assert term.pieces[1].value - term.pieces[0].value == pytest.approx(2, abs=0.05)
    assert term.jumps == ()


def test_weights_count_as_repeated_rows():
    X, y, *_ = fitted("regression")
    weight = np.random.default_rng(3).integers(0, 4, len(X)).astype(float)
    rows = np.repeat(np.arange(len(X)), weight.astype(int))
    *_, weighted = fit(X, y, sample_weight=weight, dispersion=0.01)
    *_, repeated = fit(X[rows], y[rows], dispersion=0.01)
    assert [t.name for t in weighted.terms] == [t.name for t in repeated.terms]
    for one, other in zip(weighted.terms, repeated.terms, strict=True):
        np.testing.assert_array_equal(one.counts, other.counts)
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-12)
        assert one.loss_drop == pytest.approx(other.loss_drop, rel=1e-6)
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_loss_drop_is_the_loss_without_the_term(kind):
    X, y, _, _, s, model = fitted(kind)
    loss, v = get_loss(model.loss), np.full(len(X), 1 / len(X))
    y = loss.validate(y)
    base = loss.value(y, model.decision_function(X), v)
    assert base == pytest.approx(model.training_loss)
    for t, row in enumerate(model.importances):
        z = model.decision_function(X) - model.explain(X)[:, t]
        c = loss.refit_intercept(y, z, v, np.zeros(3) if kind == "multiclass" else 0.0)
        assert row.loss_drop == pytest.approx(loss.value(y, z + c, v) - base, abs=1e-10)
        assert row.mean_contribution == model.terms[t].importance


def test_a_model_without_terms():
    X = np.random.default_rng(0).normal(size=(50, 2))
    *_, model = fit(X, np.full(50, 2.0))
    assert model.terms == ()
    np.testing.assert_allclose(model.predict(X), 2.0)
    assert model.explain(X).shape == (50, 0)
    assert model.jumps() == ()
    assert "0 terms" in model.summary()
    assert AdditiveModel.from_dict(model.to_dict()) == model
    assert model.recentre() == model


# Predictions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [name for name in LOSSES if name != "multinomial"])
def test_predict_applies_the_link(loss):
    model = replace(make_model(0, loss=loss), terms=())
    link = get_loss(loss).inverse_link
    np.testing.assert_array_equal(model.predict(np.zeros((2, 6))), link(np.full(2, model.intercept)))


def test_probabilities_keep_their_digits():
    model = replace(make_model(0, **KINDS["binary"]), terms=(), intercept=50.0)
    [[no, yes]] = model.predict_proba(np.zeros((1, 6)))
    assert no == pytest.approx(math.exp(-50), rel=1e-12)
    assert yes == pytest.approx(1)


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_predict_is_the_likeliest_class(kind):
    X, *_, model = fitted(kind)
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(model.predict(X), model.classes_[probabilities.argmax(axis=1)])


def test_offset_is_added():
    X, *_, model = fitted("regression")
    offset = np.arange(len(X), dtype=float)
    np.testing.assert_array_equal(model.decision_function(X, offset), model.decision_function(X) + offset)
    with pytest.raises(ValueError, match=r"offset has shape \(3,\); it must be a vector of length 600"):
        model.predict(X, offset=np.zeros(3))
    X, *_, model = fitted("multiclass")
    offset = np.random.default_rng(0).normal(size=(len(X), 3))
    np.testing.assert_array_equal(model.decision_function(X, offset), model.decision_function(X) + offset)
    with pytest.raises(ValueError, match="offset has shape"):
        model.predict(X, offset=np.zeros(len(X)))


def test_regressors_have_no_classes():
    *_, model = fitted("regression")
    assert not hasattr(model, "classes_")
    with pytest.raises(AttributeError, match="not a classifier"):
        model.predict_proba(np.zeros((1, 5)))


def test_every_table_gives_the_same_bits():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    X, *_, model = fitted("regression")
    expected = model.predict(X)
    names = [f"x{j}" for j in range(5)]
    same_numbers = {
        "F order": np.asfortranarray(X),
        "strided": np.repeat(X, 2, axis=0)[::2],
        "list": X.tolist(),
        "object": X.astype(object),
        "big endian": X.astype(">f8"),
        "masked": np.ma.masked_invalid(X),
        "pandas": pandas.DataFrame(X, columns=names),
        "polars": polars.DataFrame(X, schema=names),
        "sparse": sparse.csr_matrix(X),
    }
    for name, table in same_numbers.items():
        np.testing.assert_array_equal(model.predict(table), expected, err_msg=name)
        np.testing.assert_allclose(model.explain(table).sum(axis=1) + model.intercept, expected, atol=1e-10)
    np.testing.assert_array_equal(
        model.predict(X.astype(np.float32)), model.predict(X.astype(np.float32).astype(float))
    )
    with rbr.use_backend("reference"):
        np.testing.assert_array_equal(model.predict(X), expected)
    whole = np.rint(10 * np.nan_to_num(X))
    np.testing.assert_array_equal(model.predict(whole.astype(int)), model.predict(whole))


def test_threads_do_not_change_a_bit():
    model = make_model(1)
    numeric = replace(model, terms=tuple(t for t in model.terms if t.kind == "numeric"))
    X = np.random.default_rng(0).normal(size=(300_000, 6))
    np.testing.assert_array_equal(numeric.predict(X, n_jobs=3), numeric.predict(X, n_jobs=1))
    with pytest.raises(ValueError, match="n_jobs is 0"):
        numeric.predict(X[:1], n_jobs=0)


@pytest.mark.filterwarnings("ignore::rbr.UnseenWarning")
def test_missing_unknown_and_infinite():
    model = make_model(4)
    row = np.array([[0.0, "plain", 0.0, None, 3, 0.0]], dtype=object)

    def contribution(column, value):
        changed = row.copy()
        changed[0, column] = value
        t = [term.columns for term in model.terms].index((column,))
        return model.explain(changed)[0, t]

    a, text, b = model.terms[0], model.terms[1], model.terms[2]
    assert contribution(0, np.nan) == contribution(0, None) == a.missing_value
    assert contribution(0, np.inf) == contribution(0, 1e300) == a.values[-1]
    assert contribution(0, -np.inf) == a.values[0]
    assert contribution(0, a.edges[3]) == a.values[3]
    assert contribution(0, np.nextafter(a.edges[3], np.inf)) == a.values[4]
    assert contribution(2, np.nan) == 0 and b.missing_value is None
    assert contribution(1, "never seen") == 0
    assert contribution(1, None) == text.missing_value
    assert contribution(1, "it's") == text.values[1]
    assert contribution(4, 3.0) == contribution(4, 3) == model.terms[3].values[2]


@pytest.mark.filterwarnings("ignore::rbr.UnseenWarning")
def test_unused_columns_are_not_read():
    pandas = pytest.importorskip("pandas")
    model = make_model(0)
    frame = pandas.DataFrame({name: [0.5] for name in model.feature_names_in_})
    frame["text; DROP TABLE"] = "plain"
    expected = model.predict(frame)
    frame["unused"] = pandas.Timestamp("2020-01-01")
    np.testing.assert_array_equal(model.predict(frame), expected)


@pytest.mark.filterwarnings("ignore::rbr.UnseenWarning")
def test_columns_are_checked_by_name():
    pandas = pytest.importorskip("pandas")
    model = make_model(0)
    frame = pandas.DataFrame({name: [0.5] for name in model.feature_names_in_})
    np.testing.assert_array_equal(model.predict(frame[list(model.feature_names_in_)[::-1]]), model.predict(frame))
    with pytest.raises(ValueError, match="X has no column 'b'; the model uses the columns"):
        model.predict(frame.drop(columns="b"))
    with pytest.raises(ValueError, match="X has 2 features, but AdditiveModel is expecting 6 features"):
        model.predict(np.zeros((1, 2)))
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
        model.predict(np.zeros(6))


def test_predicting_needs_no_scikit_learn(tmp_path):
    *_, model = fitted("binary")
    model.save(tmp_path / "model.json")
    code = (
        "import sys, numpy as np, rbr\n"
        f"model = rbr.load({str(tmp_path / 'model.json')!r})\n"
        "model.predict_proba(np.zeros((3, 5))), model.explain(np.zeros((3, 5)))\n"
        "print([name for name in ('sklearn', 'pandas', 'scipy.sparse', 'matplotlib') if name in sys.modules])"
    )
    root = os.path.dirname(os.path.dirname(rbr.__file__))
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr


# Jumps ----------------------------------------------------------------------------------------------------


def test_jumps_of_a_step():
    rng = np.random.default_rng(0)
    x = rng.random(2000)
    y = 2.0 * (x > 0.5) + 0.5 * rng.normal(size=2000)
    *_, s, model = fit(x[:, None], y, shape="constant", max_segments=2, max_bins=100)
    [jump] = model.jumps()
    assert jump.place == pytest.approx(0.5, abs=0.02)
    assert jump.size == pytest.approx(2, abs=0.1)
    assert jump.low <= jump.place <= jump.high
    assert 0.4 < jump.low and jump.high < 0.6
    assert jump.output is None and jump.term == "x0"
    assert jump.loss_without == pytest.approx(y.var() / 2)


@pytest.mark.parametrize("seed", range(8))
def test_range_of_equally_good_places_by_brute_force(seed):
    rng = np.random.default_rng(seed)
    x = rng.random(300)
    y = 0.8 * (x > 0.5) + rng.normal(size=300)
    _, B, s, model = fit(x[:, None], y, shape="constant", max_segments=2, max_bins=40, dispersion=1.0)
    [jump] = model.jumps()
    edges, codes = model.terms[0].edges, B.codes[0]

    left, right = (model.intercept + model.terms[0].values[k] for k in (0, -1))

    def loss_at(edge):
        return ((y - np.where(codes > edge, right, left)) ** 2).mean() / 2

    losses = np.array([loss_at(edge) for edge in range(len(edges))])
    assert losses[jump.edge] == pytest.approx(model.training_loss)
    good = np.flatnonzero(losses <= losses[jump.edge] + 2 * 1.0 / len(y))
    assert (jump.low, jump.high) == (edges[good[0]], edges[good[-1]])


@pytest.mark.parametrize("shape", ["constant", "linear"])
def test_loss_without_a_jump_where_classes_separate(shape):
    """The curvature at the fit is near zero there, so a parabola would predict almost no rise of the loss."""
    x = np.linspace(0, 1, 400)
    y = ((x > 0.3) & (x <= 0.6)).astype(float)
    _, B, s, model = fit(x[:, None], y, "log_loss", shape=shape, max_segments=3, jump_cost=0.0, alpha=1e-3)
    first, last = model.jumps()
    labels = model.terms[0].labels
    for jump, apart in ((first, labels[-1]), (last, labels[0])):
        # One piece instead of two, by a plain minimiser.
        rows = (labels != apart)[B.codes[0]]
        columns = np.ones((rows.sum(), 1))
        if shape == "linear":
            columns = np.column_stack([columns, s.problem.constraints.positions[B.codes[0]][rows]])

        def one_piece(b, rows=rows, columns=columns):
            return model.loss.value(y[rows], columns @ b, np.ones(rows.sum()))

        result = minimize(one_piece, np.zeros(columns.shape[1]))
        rest = model.loss.value(y[~rows], model.decision_function(x[:, None])[~rows], np.ones((~rows).sum()))
        expected = (result.fun + rest) / len(y)
        assert jump.loss_without == pytest.approx(expected, rel=0.02)
        assert shape == "linear" or expected > 4 * model.training_loss


@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "poisson", "huber"])
def test_a_sample_and_parabolas_say_of_jumps_what_all_rows_say(loss):
    rng = np.random.default_rng(1)
    X = rng.random((40_000, 3))
    z = np.sin(6 * X[:, 0]) + (X[:, 1] > 0.3) - 0.5
    y = {
        "squared_error": lambda: z + rng.normal(size=len(z)),
        "huber": lambda: z + rng.standard_t(2, size=len(z)),
        "log_loss": lambda: (rng.random(len(z)) < 1 / (1 + np.exp(-2 * z))).astype(float),
        "poisson": lambda: rng.poisson(np.exp(z)).astype(float),
    }[loss]()
    binner, B, s, of_all = fit(X, y, loss, max_bins=64)
    sampled = {"options": SolverOptions(measured_rows=10_000, measured_sample=4000)}
    *_, by_sample = fit(X, y, loss, max_bins=64, **sampled)
    one, other = of_all.jumps(), by_sample.jumps()
    assert len(one) == len(other) >= 7
    widths = [[jump.high - jump.low for jump in model.jumps()] for model in (of_all, by_sample)]
    assert np.mean(widths[1]) == pytest.approx(np.mean(widths[0]), rel=0.1)
    rises = [np.array([jump.loss_without for jump in model.jumps()]) - s.loss for model in (of_all, by_sample)]
    np.testing.assert_allclose(rises[1], rises[0], rtol=0.1, atol=0.1 * jumps.EQUALLY_GOOD / len(y))
    drops = [[row.loss_drop for row in model.importances] for model in (of_all, by_sample)]
    np.testing.assert_allclose(drops[1], drops[0], rtol=0.05)


def test_jumps_of_lines_move_along_their_lines():
    rng = np.random.default_rng(0)
    x = np.sort(rng.random(400))
    y = np.where(x < 0.5, 4 * x, 1 - x) + 0.3 * rng.normal(size=400)
    _, B, s, model = fit(x[:, None], y, shape="linear", max_segments=2, max_bins=50, dispersion=0.09)
    [jump] = model.jumps()
    at = s.problem.constraints.positions
    values, codes, edge = model.terms[0].values, B.codes[0], jump.edge
    left = np.poly1d(np.polyfit(at[: edge + 1], values[: edge + 1], 1))(at)
    right = np.poly1d(np.polyfit(at[edge + 1 :], values[edge + 1 :], 1))(at)

    def loss_at(k):
        return ((y - model.intercept - np.where(codes > k, right[codes], left[codes])) ** 2).mean() / 2

    losses = np.array([loss_at(k) for k in range(len(values) - 1)])
    good = np.flatnonzero(losses <= losses[edge] + 2 * 0.09 / len(y))
    assert losses[edge] == pytest.approx(model.training_loss)
    assert (jump.low, jump.high) == (model.terms[0].edges[good[0]], model.terms[0].edges[good[-1]])


def test_measuring_can_be_left_out():
    X, y, binner, B, s, model = fitted("regression")
    quick = AdditiveModel.from_solution(binner, s, measure=False)
    np.testing.assert_array_equal(quick.predict(X), model.predict(X))
    assert all(math.isnan(row.loss_drop) for row in quick.importances)
    assert all(math.isnan(jump.loss_without) for jump in quick.jumps())


def test_jumps_of_each_class():
    *_, model = fitted("multiclass", shape="constant")
    jumps = model.jumps()
    assert {jump.output for jump in jumps} <= {0, 1, 2}
    for jump in jumps:
        column = model[jump.term].values[:, jump.output]
        assert jump.size == column[jump.edge + 1] - column[jump.edge] != 0
        assert jump.low <= jump.place <= jump.high
        assert jump.loss_without >= model.training_loss


def test_jumps_as_a_frame():
    pytest.importorskip("pandas")
    *_, model = fitted("regression")
    frame = model.jumps().to_frame()
    assert list(frame.columns) == ["term", "output", "edge", "place", "size", "low", "high", "loss_without"]
    assert len(frame) == len(model.jumps())
    importances = model.importances.to_frame()
    assert list(importances.columns) == ["term", "columns", "mean_contribution", "loss_drop"]
    assert list(importances["term"]) == [term.name for term in model.terms]
    assert list(importances["columns"]) == [term.columns for term in model.terms]


def test_what_an_edit_makes_unknown():
    *_, model = fitted("regression", shape="constant")
    edited = model.set_piece(0, 0, 9.0)
    assert all(math.isnan(jump.loss_without) and math.isnan(jump.low) for jump in edited.jumps())
    assert all(math.isnan(row.loss_drop) for row in edited.importances)
    assert math.isnan(edited.training_loss)
    assert [jump.place for jump in edited.jumps()] == [jump.place for jump in model.jumps()]


# The columns of a term ------------------------------------------------------------------------------------


def test_a_term_of_one_column_has_a_feature():
    for columns in ((3,), [3], 3, np.int64(3), np.array([3])):
        term = replace(make_model(0)["b"], columns=columns)
        assert term.columns == (3,) and type(term.columns[0]) is int
        assert term.feature == 3
    model = make_model(0)
    assert [row.columns for row in model.importances] == [(0,), (1,), (2,), (4,), (5,)]
    assert [row.feature for row in model.importances] == [0, 1, 2, 4, 5]
    with pytest.raises(AttributeError):
        term.feature = 4
    # `feature` of a term of several columns is an error, not one of them.
    pair = with_columns(term, 0, 3)
    several = [pair, *replace(model, terms=(pair,)).importances]
    for one in several:
        assert one.columns == (0, 3)
        assert not hasattr(one, "feature")
        with pytest.raises(AttributeError, match=r"there are \(0, 3\); read `columns`"):
            one.feature  # noqa: B018


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((0, 2), r"term 'b': columns is \(0, 2\); a term of kind 'numeric' looks at exactly one column"),
        ((), r"term 'b': columns is \(\); a term of kind 'numeric' looks at exactly one column"),
        ((-1,), r"term 'b': columns is \(-1,\); it must hold integers of at least 0"),
        ((1.0,), r"term 'b': columns is \(1.0,\); it must hold integers of at least 0"),
        (True, r"term 'b': columns is \(True,\); it must hold integers"),
        (None, r"term 'b': columns is \(None,\); it must hold integers"),
        ("2", r"term 'b': columns is \('2',\); it must hold integers"),
    ],
)
def test_columns_that_a_term_cannot_have(columns, message):
    with pytest.raises(ValueError, match=message):
        replace(make_model(0)["b"], columns=columns)
    with pytest.raises(ValueError, match="a term of kind 'category' looks at exactly one column"):
        replace(make_model(0)["numbers"], columns=(1, 2))


def test_terms_are_told_apart_by_their_columns():
    model = make_model(0)
    moved = replace(model["b"], columns=(3,))
    assert moved != model["b"] and hash(moved) != hash(model["b"])
    assert model.set_piece("b", 0, 1.0)["b"].columns == (2,)


def test_terms_of_fewer_columns_come_first_and_then_by_column():
    model = make_model(0)
    a, b, c = model['a "quoted" name'], model["b"], model["one piece"]
    pair, other = with_columns(b, 0, 2), with_columns(b, 0, 5)
    assert replace(model, terms=(a, c, pair, other)).terms == (a, c, pair, other)
    for terms in [(c, a), (pair, a), (a, pair, c), (a, other, pair), (a, a), (pair, pair)]:
        with pytest.raises(ValueError, match=r"the terms look at the columns \(.*they must increase"):
            replace(model, terms=terms)
    with pytest.raises(ValueError, match=r"term 'b' looks at a column outside 0 to 5: its columns are \(6, 0\)"):
        replace(model, terms=(a, with_columns(b, 6, 0)))


# A value --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_equality_pickle_and_copies(kind):
    model = make_model(3, **KINDS[kind])
    assert model == make_model(3, **KINDS[kind])
    assert model != make_model(4, **KINDS[kind])
    assert model != "model"
    for twin in (pickle.loads(pickle.dumps(model)), copy.copy(model), copy.deepcopy(model)):
        assert twin == model
        assert hash(twin) == hash(model)
        assert not twin.terms[0].values.flags.writeable
    assert replace(model, target="other") != model
    assert replace(model, training_loss=1.0) != model


def test_nothing_can_be_changed():
    values = np.zeros(3)
    term = replace(make_term("a", 0, np.random.default_rng(0), n_bins=3), values=values, labels=[0, 0, 0])
    values[:] = 7.0
    assert term.values.tolist() == [0.0, 0.0, 0.0]
    model = make_model(0, **KINDS["multiclass"])
    with pytest.raises(FrozenInstanceError):
        model.intercept = 0.0
    with pytest.raises(FrozenInstanceError):
        model.terms[0].name = "b"
    for array in (model.intercept, model.classes, model.terms[0].values, model.terms[0].edges, model.terms[0].labels):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_summary_and_html():
    X, *_, model = fitted("binary")
    text = model.summary()
    assert all(term.name in text for term in model.terms)
    most = max(model.terms, key=lambda term: term.importance)
    assert text.splitlines()[-len(model.terms)].startswith(most.name)
    assert "classes: no, yes" in text
    html = make_model(0)._repr_html_()
    assert "a &quot;quoted&quot; name" in html
    assert html.count("<summary>") == len(make_model(0).terms)


def test_terms_by_name_and_position():
    model = make_model(0)
    assert model["b"] is model[2] is model[-3] is model.terms[2]
    for wrong in ("c", 5, -6, 1.0, True):
        with pytest.raises(ValueError, match=r"the terms are 'a \"quoted\" name', 'text; DROP TABLE', 'b'"):
            model[wrong]


# Edits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_set_piece(n_outputs):
    model = make_model(0, loss="multinomial" if n_outputs > 1 else "squared_error", n_outputs=n_outputs)
    before = model["b"]
    edited = model.set_piece("b", 1, 2.5)["b"]
    bins = list(before.pieces[1].bins)
    others = np.setdiff1d(np.arange(before.n_ordered), bins)
    assert (edited.values[bins] == 2.5).all()
    np.testing.assert_array_equal(edited.values[others], before.values[others])
    assert len(edited.pieces) == len(before.pieces)
    assert model["b"] == before
    assert np.all(model.set_piece(0, "missing", -1.0)[0].missing_value == -1.0)


def test_set_piece_errors():
    model = make_model(0)
    with pytest.raises(ValueError, match="piece is 99; term 'b' has the pieces 0 to"):
        model.set_piece("b", 99, 1.0)
    for value in ("a lot", np.nan, [1.0, 2.0]):
        with pytest.raises(ValueError, match="value is .*; it must be a finite number"):
            model.set_piece("b", 0, value)
    with pytest.raises(ValueError, match="term 'b' has no value for missing values"):
        model.set_piece("b", "missing", 1.0)
    with pytest.raises(ValueError, match="term is 'nobody'"):
        model.set_piece("nobody", 0, 1.0)


@pytest.mark.filterwarnings("ignore::rbr.UnseenWarning")
def test_zero_and_drop_give_the_same_predictions():
    model = make_model(2)
    rows = np.array([[0.1, "plain", 0.3, None, 3, 0.2], [None, None, None, None, None, None]], dtype=object)
    for term in model.terms:
        zeroed, dropped = model.zero(term.name), model.drop(term.name)
        np.testing.assert_array_equal(zeroed.predict(rows), dropped.predict(rows))
        assert len(zeroed[term.name].pieces) == 1
        assert len(dropped.terms) == len(model.terms) - 1


def test_merge_takes_the_weighted_mean():
    model = make_model(0)
    before = model["b"]
    after = model.merge("b", [2, 1])["b"]
    bins = [*before.pieces[1].bins, *before.pieces[2].bins]
    weights = before.weights[bins]
    assert len(after.pieces) == len(before.pieces) - 1
    assert after.pieces[1].value == pytest.approx(weights @ before.values[bins] / weights.sum())
    assert after.weights @ after.all_values == pytest.approx(before.weights @ before.all_values)
    groups = model.merge("text; DROP TABLE", [0, 2])["text; DROP TABLE"]
    assert len(groups.pieces) == len(model["text; DROP TABLE"].pieces) - 1
    with pytest.raises(ValueError, match="only neighbouring pieces"):
        model.merge("b", [0, 2])
    with pytest.raises(ValueError, match="at least two"):
        model.merge("b", [1, 1])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), increasing=st.booleans(), n_outputs=st.sampled_from([1, 2]))
def test_monotone_is_the_nearest(seed, increasing, n_outputs):
    model = make_model(seed, n_outputs=n_outputs, loss="squared_error" if n_outputs == 1 else "multinomial")
    before, after = model["b"], model.make_monotone("b", increasing)["b"]
    steps = np.diff(after.values, axis=0)
    assert (steps >= 0).all() if increasing else (steps <= 0).all()
    weights = before.weights
    np.testing.assert_allclose(weights @ after.values, weights @ before.values, atol=1e-12)
    from sklearn.isotonic import IsotonicRegression

    columns = before.values.reshape(before.n_ordered, -1)
    for column, found in zip(columns.T, after.values.reshape(columns.shape).T, strict=True):
        at = np.arange(len(column))
        nearest = IsotonicRegression(increasing=increasing).fit(at, column, sample_weight=weights).predict(at)
        np.testing.assert_allclose(found, nearest, atol=1e-10)
    assert model.make_monotone("b", increasing).make_monotone("b", increasing)["b"].values.tolist() == (
        after.values.tolist()
    )


def test_monotone_leaves_a_monotone_model_alone():
    X, _, _ = made_data()
    *_, model = fit(X, X[:, 0], shape="increasing")
    assert model.make_monotone("x0") is model


def of_lines(seed, n_outputs=1):
    """A model of one column whose terms are lines in x, most of them falling somewhere."""
    rng = np.random.default_rng(seed)
    X = np.exp(rng.normal(size=(3000, 1)))
    X[:, 0] = X[:, 0].round(3)
    score = np.where(X[:, 0] < 1, 2 * X[:, 0], np.where(X[:, 0] < 2.5, 1.5 - 0.4 * X[:, 0], X[:, 0]))
    score = score + 0.3 * rng.normal(size=3000)
    y = score if n_outputs == 1 else np.digitize(score + rng.logistic(size=3000), [0.5, 1.5])
    make = RBRRegressor if n_outputs == 1 else RBRClassifier
    return X, make(max_bins=40, n_bags=0).fit(X, y).model_


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("increasing", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_lines_that_rise_stay_lines_in_a_monotone_term(seed, increasing, n_outputs):
    X, model = of_lines(seed, n_outputs)
    monotone = model.make_monotone(0, increasing)
    term, before = monotone[0], model[0]
    grid = np.linspace(X.min() - 1, X.max() + 1, 20_001)[:, None]
    rises = np.diff(monotone.decision_function(grid), axis=0) * (1 if increasing else -1)
    assert rises.min() >= -1e-12
    np.testing.assert_allclose(term.weights @ term.all_values, before.weights @ before.all_values, atol=1e-12)
    if increasing and n_outputs == 1:
        # The first line and those after the one that falls stay as they are but where bins are pooled.
        slopes = [piece.slope for piece in term.pieces if piece.anchor is not None]
        assert len(slopes) >= 2 and set(slopes) <= {piece.slope for piece in before.pieces}
        assert len(term.pieces) <= len(before.pieces) + 2 and len(monotone.to_sql().splitlines()) < 30
    again = monotone.make_monotone(0, increasing)
    np.testing.assert_array_equal(again.decision_function(grid), monotone.decision_function(grid))


def test_neighbouring_lines_that_overlap_meet_halfway():
    """Their bins rise, but the end of the first lies above the start of the second."""
    X, model = of_lines(0)
    term = replace(
        model[0],
        edges=np.array([1.0, 2.0, 3.0]),
        values=np.array([0.0, 1.0, 1.2, 2.2]),
        weights=np.full(4, 0.25),
        counts=np.full(4, 25.0),
        positions=np.array([0.5, 1.5, 2.5, 3.5]),
        labels=np.array([1, 1, 3, 3]),
        slopes=np.ones(4),
        bounds=np.array([[0.0, 2.0], [0.0, 2.0], [2.0, 4.0], [2.0, 4.0]]),
        jump_facts=np.empty((0, 5)),
        target_sums=np.empty((0, 0)),
    )
    model = replace(model, terms=(term,))
    first, second = model.make_monotone(0)[0].pieces
    assert first.ends == pytest.approx((-0.5, 1.1)) and second.ends == pytest.approx((1.1, 2.7))
    assert model.make_monotone(0)[0].values.tolist() == term.values.tolist()


def test_smooth_rounds_off_and_keeps_the_mean():
    model = make_model(0)
    before, after = model["b"], model.smooth("b", bandwidth=0.1)["b"]
    weights = before.weights
    assert weights @ after.values == pytest.approx(weights @ before.values)
    assert np.abs(np.diff(after.values)).max() < np.abs(np.diff(before.values)).max()
    nearly = model.smooth("b", bandwidth=1e-6)["b"]
    np.testing.assert_allclose(nearly.values, before.values, atol=1e-12)
    with pytest.raises(ValueError, match="bandwidth is 0"):
        model.smooth("b", bandwidth=0)
    for edit in (model.smooth, model.make_monotone):
        with pytest.raises(ValueError, match="term 'numbers' is a category"):
            edit("numbers")


def test_recentre_keeps_predictions():
    X, *_, model = fitted("multiclass")
    edited = model.set_piece(0, 0, 5.0)
    centred = edited.recentre()
    np.testing.assert_allclose(centred.decision_function(X), edited.decision_function(X), atol=1e-12)
    for term in centred.terms:
        np.testing.assert_allclose(term.weights @ term.all_values, 0, atol=1e-12)
    assert not np.allclose(centred.intercept, edited.intercept)


def test_lines_that_are_not_touched_stay_lines():
    X, _, _ = made_data()
    y = np.where(X[:, 0] < 0, 2 * X[:, 0], -3.0)
    *_, model = fit(X, y, shape="mixed", max_segments=4, max_bins=64)
    term = model["x0"]
    kinds = [piece.kind for piece in term.pieces]
    assert "line" in kinds and "constant" in kinds
    constant = kinds.index("constant")
    edited = model.set_piece("x0", constant, 7.0)["x0"]
    assert [piece.kind for piece in edited.pieces] == kinds


# Files ----------------------------------------------------------------------------------------------------

CLASSES = [
    np.array(["no", "yes"]),
    np.array(["no", "yes"], dtype=object),
    np.array([False, True]),
    np.array([-1, 1], dtype=np.int8),
    np.array([0.5, np.inf]),
    np.array([1, 2**63], dtype=np.uint64),
]


@pytest.mark.parametrize("classes", CLASSES, ids=lambda c: c.dtype.str)
def test_classes_come_back_with_their_dtype(classes, tmp_path):
    model = make_model(0, loss="log_loss", classes=classes)
    model.save(tmp_path / "m.json")
    loaded = rbr.load(tmp_path / "m.json")
    assert loaded == model
    assert loaded.classes_.dtype == classes.dtype
    assert [type(c) for c in loaded.classes_.tolist()] == [type(c) for c in classes.tolist()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_fitted_model_survives_a_file(kind, tmp_path):
    X, *_, model = fitted(kind)
    path = tmp_path / "model.json"
    model.save(path)
    loaded = rbr.load(str(path))
    assert loaded == model
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    assert loaded.jumps() == model.jumps()
    assert json.loads(path.read_text(encoding="utf-8"))["format"] == "rbr-model"


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(sorted(KINDS)))
def test_dicts_round_trip_exactly(seed, kind):
    model = make_model(seed, **KINDS[kind])
    content = model.to_dict()
    assert AdditiveModel.from_dict(content) == model
    assert AdditiveModel.from_dict(json.loads(json.dumps(content, allow_nan=False))) == model


@pytest.mark.parametrize(
    "loss", [get_loss("tweedie", power=1.3), get_loss("huber", delta=0.1), get_loss("quantile", level=0.9)], ids=str
)
def test_losses_keep_their_parameters(loss):
    model = replace(make_model(0), loss=loss)
    assert AdditiveModel.from_dict(model.to_dict()).loss == loss


def test_categories_that_are_numbers_keep_their_type(tmp_path):
    rng = np.random.default_rng(0)
    categories = (1, 2.5, True, "True", "1", math.inf)
    with pytest.raises(ValueError, match="a category occurs twice"):
        make_term("c", 0, rng, kind="category", categories=categories)  # True is 1
    categories = (2, 2.5, True, "True", "1", math.inf)
    term = make_term("c", 0, rng, kind="category", categories=categories)
    model = replace(make_model(0), terms=(term,))
    model.save(tmp_path / "m.json")
    loaded = rbr.load(tmp_path / "m.json")["c"].categories
    assert loaded == categories and [type(c) for c in loaded] == [type(c) for c in categories]


def test_what_a_file_cannot_hold_is_refused_and_the_old_file_stays(tmp_path):
    path = tmp_path / "m.json"
    good = make_model(0)
    good.save(path)
    term = make_term("c", 0, np.random.default_rng(0), kind="category", categories=((1, 2), "b"))
    with pytest.raises(ValueError, match=r"term 'c' has the category \(1, 2\) of type tuple"):
        replace(good, terms=(term,)).save(path)
    assert rbr.load(path) == good
    assert os.listdir(tmp_path) == ["m.json"]


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m.json"
    make_model(0).save(path)

    def no_space(*args):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="no space left"):
        make_model(1).save(path)
    monkeypatch.undo()
    assert rbr.load(path) == make_model(0)
    assert os.listdir(tmp_path) == ["m.json"]


def test_truncated_files_are_refused(tmp_path):
    path = tmp_path / "m.json"
    make_model(0).save(path)
    data = path.read_bytes()
    for length in [0, 1, 10, len(data) // 2, len(data) - 2, len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(ValueError, match=r"m\.json' cannot be loaded: .*cut short"):
            rbr.load(path)


def test_changed_files_are_refused(tmp_path):
    path = tmp_path / "m.json"
    make_model(0).save(path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"kind": "numeric"', '"kind": "Numeric"', 1), encoding="utf-8")
    with pytest.raises(ValueError, match="its checksum does not fit"):
        rbr.load(path)
    for other, problem in [
        ("[]", "not an rbr model"),
        ('{"format": "rbr-model", "version": 6}', "has version 6, and this rbr reads up to 5; a newer rbr wrote it"),
        ('{"format": "rbr-model", "version": true}', "version is True"),
        ('{"format": "rbr-model", "version": 1, "a": NaN}', "bare number NaN"),
        ("[" * 100_000, "not JSON"),
    ]:
        path.write_text(other, encoding="utf-8")
        with pytest.raises(ValueError, match=problem):
            rbr.load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not JSON"):
        rbr.load(path)


def test_a_file_without_a_checksum_loads(tmp_path):
    """A page, a person or another program may have written it; what it says is checked as ever."""
    path = tmp_path / "m.json"
    model = make_model(0)
    model.save(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["checksum"]
    content["target"] = "by hand"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert rbr.load(path) == replace(model, target="by hand")
    for wrong in (None, "", "sha256:0"):
        path.write_text(json.dumps({**content, "checksum": wrong}), encoding="utf-8")
        with pytest.raises(ValueError, match="its checksum does not fit .*remove the checksum"):
            rbr.load(path)
    content["terms"][0]["values"].pop()
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match="weights has shape"):
        rbr.load(path)


def test_a_file_holds_the_version_of_rbr_and_the_metadata_of_the_user(tmp_path):
    path = tmp_path / "m.json"
    model = make_model(0)
    assert model.metadata == {}
    model.metadata["owner"] = "credit risk"
    model.metadata["approved"] = {"by": ["Ada", None], "score": np.float64(0.5), "final": True}
    model.save(path)
    assert json.loads(path.read_text(encoding="utf-8"))["rbr_version"] == rbr.__version__
    loaded = rbr.load(path)
    assert loaded == model and loaded.metadata["approved"]["by"] == ["Ada", None]
    assert loaded != make_model(0)
    edited = loaded.drop("b")
    edited.metadata["owner"] = "somebody else"
    assert loaded.metadata["owner"] == "credit risk"
    assert pickle.loads(pickle.dumps(loaded)) == loaded
    # Files from before do without.
    content = {name: value for name, value in model.to_dict().items() if name not in ("rbr_version", "metadata")}
    assert AdditiveModel.from_dict(content).metadata == {}


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({"a": {"b": math.nan}}, r"metadata\['a'\]\['b'\] is nan of type float; a file can hold text"),
        ({"a": [1, object]}, r"metadata\['a'\]\[1\] is .* of type type"),
        ({3: "a"}, "metadata has the key 3; keys must be text"),
    ],
)
def test_metadata_that_a_file_cannot_hold(metadata, problem, tmp_path):
    model = make_model(0)
    model.metadata.update(metadata)
    with pytest.raises(ValueError, match=problem):
        model.save(tmp_path / "m.json")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="metadata is 'me'; it must be a dict"):
        replace(model, metadata="me")


FILES = Path(__file__).parents[1] / "files"


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
@pytest.mark.filterwarnings("ignore::rbr.UnseenWarning")
def test_files_of_version_1_predict_what_they_have_predicted(kind, tmp_path):
    """The files and their predictions were written when version 1 was the latest."""
    path = FILES / f"model_v1_{kind}.json"
    said = json.loads((FILES / f"predictions_v1_{kind}.json").read_text(encoding="utf-8"))
    X = np.array(said["rows"], dtype=object)
    model = rbr.load(path)
    assert model.decision_function(X).tolist() == said["decision_function"]
    assert model.predict(X).tolist() == said["predict"]
    if kind == "classifier":
        # The link takes exponentials, whose last bit depends on the platform.
        np.testing.assert_array_max_ulp(model.predict_proba(X), np.array(said["predict_proba"]), 4)
    height, of_kind = model.terms
    assert (height.name, height.columns, height.kind) == ("height", (1,), "numeric")
    assert (of_kind.name, of_kind.columns, of_kind.kind) == ("kind", (3,), "category")
    assert height.missing_value is not None and "line" in [piece.kind for piece in height.pieces]

    content = json.loads(path.read_text(encoding="utf-8"))
    del content["checksum"]
    before = copy.deepcopy(content)
    assert AdditiveModel.from_dict(content) == model
    assert content == before
    # Nothing else has changed: lines stay the staircases that they were.
    content["version"] = 5
    for term in content["terms"]:
        term["columns"] = [term.pop("feature")]
        term |= {"slopes": [0.0] * len(term["values"]), "bounds": [["-Infinity", "Infinity"]] * len(term["values"])}
        term |= {"target_sums": [], "exposures": []}
    content |= {"rbr_version": rbr.__version__, "metadata": {}}
    assert model.to_dict() == content
    model.save(tmp_path / "again.json")
    assert rbr.load(tmp_path / "again.json") == model


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
@pytest.mark.filterwarnings("ignore::rbr.UnseenWarning")
def test_files_of_version_2_predict_what_they_have_predicted(kind, tmp_path):
    """Their lines are staircases. The files and their predictions were written when version 2 was the latest."""
    said = json.loads((FILES / f"predictions_v2_{kind}.json").read_text(encoding="utf-8"))
    X = np.array([[a, np.nan if height is None else height, text] for a, height, text in said["rows"]], dtype=object)
    model = rbr.load(FILES / f"model_v2_{kind}.json")
    assert "line" in [piece.kind for piece in model["height"].pieces]
    assert model.decision_function(X).tolist() == said["decision_function"]
    assert model.predict(X).tolist() == said["predict"]
    if kind == "classifier":
        np.testing.assert_array_max_ulp(model.predict_proba(X), np.array(said["predict_proba"]), 4)
    model.save(tmp_path / "again.json")
    assert rbr.load(tmp_path / "again.json") == model


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
@pytest.mark.filterwarnings("ignore::rbr.UnseenWarning")
def test_files_of_version_3_predict_what_they_have_predicted(kind, tmp_path):
    """They have lines in x, and do not say what was observed. Written when version 3 was the latest."""
    said = json.loads((FILES / f"predictions_v3_{kind}.json").read_text(encoding="utf-8"))
    X = np.array([[a, np.nan if height is None else height, text] for a, height, text in said["rows"]], dtype=object)
    model = rbr.load(FILES / f"model_v3_{kind}.json")
    assert model["height"].has_slopes
    assert model["height"].target_sums.shape == (0, 0) and model["height"].exposures.shape == (0,)
    assert model.decision_function(X).tolist() == said["decision_function"]
    assert model.predict(X).tolist() == said["predict"]
    if kind == "classifier":
        np.testing.assert_array_max_ulp(model.predict_proba(X), np.array(said["predict_proba"]), 4)
    model.save(tmp_path / "again.json")
    assert rbr.load(tmp_path / "again.json") == model


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_files_of_version_4_predict_what_they_have_predicted(kind, tmp_path):
    """They say what was observed, and have no pairs. Written when version 4 was the latest."""
    said = json.loads((FILES / f"predictions_v4_{kind}.json").read_text(encoding="utf-8"))
    X = np.array([[a, np.nan if height is None else height, text] for a, height, text in said["rows"]], dtype=object)
    model = rbr.load(FILES / f"model_v4_{kind}.json")
    assert model["height"].target_sums.size and model["height"].has_slopes == (kind == "regressor")
    assert model.decision_function(X, on_unseen="ignore").tolist() == said["decision_function"]
    assert model.predict(X, on_unseen="ignore").tolist() == said["predict"]
    if kind == "classifier":
        np.testing.assert_array_max_ulp(model.predict_proba(X), np.array(said["predict_proba"]), 4)
    model.save(tmp_path / "again.json")
    assert rbr.load(tmp_path / "again.json") == model


def test_a_changed_file_of_version_1_is_refused(tmp_path):
    text = (FILES / "model_v1_regressor.json").read_text(encoding="utf-8")
    (tmp_path / "m.json").write_text(text.replace('"feature": 1', '"feature": 2'), encoding="utf-8")
    with pytest.raises(ValueError, match="its checksum does not fit"):
        rbr.load(tmp_path / "m.json")


@pytest.mark.parametrize(
    ("version", "columns", "problem"),
    [
        (1, {"columns": [0]}, "term 0 has no 'feature'"),
        (1, {"columns": [0], "feature": 0}, "term 0 has the unknown field 'columns'"),
        (1, {"feature": [0]}, r"term 0: feature is \[0\], of the wrong type list"),
        (1, {"feature": True}, "term 0: feature is True, of the wrong type bool"),
        (1, {"feature": -1}, r"columns is \(-1,\); it must hold integers of at least 0"),
        (2, {"feature": 0}, "term 0 has no 'columns'"),
        (2, {"columns": [0], "feature": 0}, "term 0 has the unknown field 'feature'"),
        (2, {"columns": [0], "slopes": []}, "term 0 has the unknown field 'slopes'"),
        (2, {"columns": [0], "bounds": []}, "term 0 has the unknown field 'bounds'"),
        (3, {"columns": [0], "bounds": [0.0]}, r"term 0: bounds has shape \(1,\); the wrong number of axes"),
        (3, {"columns": [0], "bounds": [[0.0]]}, r"bounds has shape \(1, 1\); it must be"),
        (3, {"columns": [0], "exposures": []}, "term 0 has the unknown field 'exposures'"),
        (4, {"columns": [0], "exposures": [-1.0]}, r"exposures has shape \(1,\); it must be"),
        (4, {"columns": [0], "target_sums": [[1.0]]}, r"target_sums has shape \(1, 1\); it must have"),
    ],
)
def test_fields_of_another_version_are_refused(version, columns, problem):
    content = make_model(0).to_dict()
    del content["terms"][0]["columns"]
    for term in content["terms"]:
        for name, since in {"slopes": 3, "bounds": 3, "target_sums": 4, "exposures": 4}.items():
            if version < since:
                del term[name]
    content["terms"][0] |= columns
    if version == 1:
        for term in content["terms"][1:]:
            term["feature"] = term.pop("columns")[0]
    with pytest.raises(ValueError, match=problem):
        AdditiveModel.from_dict({**content, "version": version})


@pytest.mark.parametrize(
    ("terms", "problem"), [(None, "terms is None"), ({}, "terms is {}"), ([3], "term 0 is int"), (..., "no 'terms'")]
)
def test_a_broken_file_of_version_1_says_what_is_wrong(terms, problem):
    content = {**make_model(0).to_dict(), "version": 1, "terms": terms}
    if terms is ...:
        del content["terms"]
    with pytest.raises(ValueError, match=problem):
        AdditiveModel.from_dict(content)


BROKEN = {
    "short values": (lambda t: t["values"].pop(), "weights has shape"),
    "short weights": (lambda t: t["weights"].pop(), "weights has shape"),
    "edges fall": (lambda t: t["edges"].reverse(), "do not increase"),
    "edge is text": (lambda t: t["edges"].__setitem__(0, "1"), "edges holds '1'"),
    "edge is a bool": (lambda t: t["edges"].__setitem__(0, True), "edges holds True"),
    "ragged values": (lambda t: t["values"].__setitem__(0, [1.0]), "values"),
    "value not finite": (lambda t: t["values"].__setitem__(0, "NaN"), "not finite"),
    "two values in a piece": (lambda t: t.__setitem__("labels", [0] * 9), "a constant piece has two values"),
    "labels are floats": (lambda t: t["labels"].__setitem__(0, 0.5), "labels must be integers"),
    "unknown kind": (lambda t: t.__setitem__("kind", "spline"), "kind is 'spline'"),
    "negative weight": (lambda t: t["weights"].__setitem__(0, -1.0), "weights must be at least 0"),
    "column below 0": (lambda t: t.__setitem__("columns", [-1]), r"columns is \(-1,\); it must hold integers of at"),
    "two columns": (lambda t: t.__setitem__("columns", [0, 3]), "looks at exactly one column"),
    "no columns": (lambda t: t.__setitem__("columns", []), "looks at exactly one column"),
    "columns are a number": (lambda t: t.__setitem__("columns", 0), "columns is 0, of the wrong type int"),
    "columns are text": (lambda t: t.__setitem__("columns", "a"), "columns is 'a'"),
    "a column is text": (lambda t: t.__setitem__("columns", ["a"]), r"columns is \['a'\]; it must be a list of integ"),
    "a column is a bool": (lambda t: t.__setitem__("columns", [True]), r"columns is \[True\]; it must be a list of"),
    "no edges": (lambda t: t.pop("edges"), "has no 'edges'"),
    "more than there is": (lambda t: t.__setitem__("hook", "import os"), "unknown field 'hook'"),
    "jump outside": (lambda t: t.__setitem__("jump_facts", [[-1, 99, 0, 0, 1.0]]), "jump_facts names an edge"),
    "huge number": (lambda t: t["edges"].__setitem__(0, 10**400), "edges"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_terms_are_refused(name):
    change, problem = BROKEN[name]
    content = make_model(0).to_dict()
    change(content["terms"][0])
    with pytest.raises(ValueError, match=problem):
        AdditiveModel.from_dict(content)


BROKEN_MODELS = {
    "loss": (lambda c: c["loss"].__setitem__("name", "hinge"), "loss is 'hinge'"),
    "loss parameter": (lambda c: c["loss"].__setitem__("parameters", {"x": 1}), "no parameter 'x'"),
    "classes": (lambda c: c.__setitem__("classes", {"dtype": "<U3", "values": ["a", 1]}), "classes"),
    "class dtype": (lambda c: c.__setitem__("classes", {"dtype": "M8[s]", "values": [0, 1]}), "dtype is 'M8"),
    "too many classes": (
        lambda c: c.__setitem__("classes", {"dtype": "<i8", "values": [0, 1, 2]}),
        "classes has shape",
    ),
    "intercept": (lambda c: c.__setitem__("intercept", [0.0, 1.0]), "score columns"),
    "names": (lambda c: c.__setitem__("feature_names_in", ["a"]), "1 feature names"),
    "terms": (lambda c: c.__setitem__("terms", {}), "terms is {}"),
    "order": (lambda c: c["terms"].reverse(), "they must increase"),
    "column outside": (lambda c: c["terms"][-1].__setitem__("columns", [6]), "looks at a column outside 0 to 5"),
}


@pytest.mark.parametrize("name", BROKEN_MODELS)
def test_broken_models_are_refused(name):
    change, problem = BROKEN_MODELS[name]
    content = make_model(0).to_dict()
    change(content)
    with pytest.raises(ValueError, match=problem):
        AdditiveModel.from_dict(content)


def test_model_files_are_readable_by_whom_new_files_are(tmp_path):
    make_model(0).save(tmp_path / "m.json")
    (tmp_path / "other").write_text("")
    assert (tmp_path / "m.json").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_jumps_of_an_average_are_measured_at_the_average():
    """Bags and moved edges replace the tables, so the gradient at the end of the fit is no longer that of the model."""
    rng = np.random.default_rng(0)
    X = rng.random((3000, 2))
    y = np.sin(6 * X[:, 0]) + 0.5 * rng.normal(size=3000)
    known = []
    binner, constraints = rbr.Binner(max_bins=32).fit(X), rbr.Constraints(shape="mixed", jump_cost=0.5)
    for max_rows in (10_000, 1000):  # from all rows, then from a sample and the sums over all rows
        options = SolverOptions(measured_rows=max_rows, measured_sample=1000)
        single = rbr.solve(binner.transform(X), y, constraints=constraints, options=options)
        average = bag_average(single, [BagFit("as asked", constraints, 0.01)], n_bags=3)
        model = AdditiveModel.from_solution(binner, average)
        known.append(np.array([jump.loss_without for jump in model.jumps()]) - model.training_loss)
    assert len(known[0]) > 3
    np.testing.assert_allclose(known[1], known[0], rtol=0.05, atol=1e-5)
