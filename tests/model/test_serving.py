"""A model where it is used: columns by name, categories of other types, data that have changed, in silence or not."""

import json
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from models import make_model
from scipy.stats import chi2
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

import rbr
from rbr import RBRClassifier, RBRRegressor, UnseenError, UnseenWarning
from rbr.model.drift import _chi_square_quantile, _groups
from rbr.model.unseen import WARN_SHARE

N = 400
SINGLE = {"n_bags": 0, "jump_cost": 2.0}


def made_table(seed=0, n_unused=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "age": rng.integers(18, 80, N).astype(float),
            "noise": rng.normal(size=N),
            "code": rng.choice(["1", "2", "3"], N),
            "income": np.where(rng.random(N) < 0.2, np.nan, rng.lognormal(3, 1, N)),
        }
    )
    for k in range(n_unused):
        X[f"unused {k}"] = rng.normal(size=N)
    y = np.where(X["age"] > 40, 2.0, -1.0) + 2.0 * (X["code"] == "2") + np.where(X["income"].isna(), 3.0, 0.0)
    return X, y + 0.1 * rng.normal(size=N)


@pytest.fixture(scope="module")
def table():
    return made_table()


@pytest.fixture(scope="module")
def estimator(table):
    m = RBRRegressor(**SINGLE).fit(*table)
    assert [term.name for term in m.terms_] == ["age", "code", "income"]
    return m


def frames(X):
    """The table as every kind of frame that is there."""
    yield X
    yield pl.from_pandas(X)
    pyarrow = pytest.importorskip("pyarrow", reason="pip install pyarrow")
    yield pyarrow.Table.from_pandas(X)
    yield pyarrow.RecordBatch.from_pandas(X)


# Columns by name ------------------------------------------------------------------------------------------


def test_only_used_columns_are_needed_in_any_order(table, estimator, tmp_path):
    X, _ = table
    estimator.save(tmp_path / "m.json")
    for model in (estimator.model_, rbr.load(tmp_path / "m.json")):
        expected = model.predict(X)
        np.testing.assert_array_equal(expected, estimator.predict(X))
        served = X[["income", "code", "age"]].assign(when=pd.Timestamp("2020-01-01"), blob=[[1, 2]] * N)
        for frame in frames(served):
            np.testing.assert_array_equal(model.predict(frame), expected)
            np.testing.assert_array_equal(model.explain(frame), model.explain(X))
            assert model.check(frame).ok
    dropped = estimator.model_.drop("income")
    np.testing.assert_array_equal(dropped.predict(X[["code", "age"]]), dropped.predict(X))


def test_five_columns_of_a_hundred():
    X, y = made_table(1, n_unused=96)
    model = RBRRegressor(**SINGLE).fit(X, y).model_
    used = [term.name for term in model.terms]
    assert len(used) <= 5 and X.shape[1] == 100
    rng = np.random.default_rng(0)
    shuffled = X[rng.permutation(X.columns)]
    np.testing.assert_array_equal(model.predict(X[used]), model.predict(shuffled))


def test_absent_columns_are_named(table, estimator):
    X, _ = table
    message = "X has no column 'age', 'code'; the model uses the columns 'age', 'code', 'income'"
    with pytest.raises(ValueError, match=message):
        estimator.model_.predict(X[["noise", "income"]])


def test_two_columns_of_one_name(table, estimator):
    X, _ = table
    twice = pd.concat([X, X[["noise"]]], axis=1)
    np.testing.assert_array_equal(estimator.model_.predict(twice), estimator.predict(X))
    with pytest.raises(ValueError, match="more than one column named 'age', which the model uses"):
        estimator.model_.predict(pd.concat([X, X[["age"]]], axis=1))
    with pytest.raises(ValueError, match="'noise'"):
        RBRRegressor(**SINGLE).fit(twice, table[1])


def test_the_estimator_keeps_the_rule_of_scikit_learn_and_says_where_there_is_another(table, estimator):
    X, _ = table
    for other in (X[["income", "code", "age", "noise"]], X[["age", "code", "income"]], X.assign(more=1)):
        with pytest.raises(ValueError, match="feature names") as raised:
            estimator.predict(other)
        assert "model_.predict(X)" in raised.value.__notes__[0]


def test_arrays_are_read_by_position(table):
    X, y = table
    plain = X.astype({"code": float}).to_numpy()
    model = RBRRegressor(**SINGLE).fit(plain, y).model_
    assert model.feature_names_in_ is None
    frame = pd.DataFrame(plain, columns=list("abcd"))
    np.testing.assert_array_equal(model.predict(frame), model.predict(plain))
    with pytest.raises(ValueError, match="X has 3 features, but AdditiveModel is expecting 4 features"):
        model.predict(frame[["d", "a", "c"]])
    named = RBRRegressor(**SINGLE).fit(frame, y).model_
    np.testing.assert_array_equal(named.predict(plain), model.predict(plain))


# Names that are not text ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ([10, 20, 30, 40], ("10", "20", "30", "40")),
        ([("a", 1), ("a", 2), ("b", 1), ("b", 2)], ("a_1", "a_2", "b_1", "b_2")),
        (pd.MultiIndex.from_product([["a", "b"], [1, 2]]), ("a_1", "a_2", "b_1", "b_2")),
        ([3, 1, 2, 0], ("3", "1", "2", "0")),
        (["a", 1, ("b", 2), 4.5], ("a", "1", "b_2", "4.5")),
    ],
)
def test_names_that_are_not_text_are_kept_as_text(table, columns, names, tmp_path):
    X, y = table
    frame = X.set_axis(columns, axis=1)
    m = RBRRegressor(**SINGLE).fit(frame, y)
    assert m.model_.feature_names_in_ == tuple(m.feature_names_in_) == names
    assert [term.name for term in m.terms_] == [names[0], names[2], names[3]]
    m.save(tmp_path / "m.json")
    loaded = rbr.load(tmp_path / "m.json")
    np.testing.assert_array_equal(loaded.predict(frame.iloc[:, ::-1]), m.predict(frame))
    np.testing.assert_array_equal(loaded.predict(X.set_axis(names, axis=1)[list(names[::-1])]), m.predict(frame))
    excluded = RBRRegressor(exclude=[names[0]], **SINGLE).fit(frame, y)
    assert names[0] not in [term.name for term in excluded.terms_]
    if isinstance(frame.columns[0], tuple):
        excluded = RBRRegressor(exclude=[frame.columns[0]], **SINGLE).fit(frame, y)
        assert names[0] not in [term.name for term in excluded.terms_]


def test_columns_that_are_only_counted_have_no_names_but_their_numbers_are_not_ignored(table):
    X, y = table
    counted = X.set_axis(range(4), axis=1)
    model = RBRRegressor(**SINGLE).fit(counted, y).model_
    assert model.feature_names_in_ is None and model.terms[0].name == "x0"
    np.testing.assert_array_equal(model.predict(counted[[2, 3, 0, 1]]), model.predict(counted))
    moved = RBRRegressor(**SINGLE).fit(counted[[2, 3, 0, 1]], y).model_
    assert moved.feature_names_in_ == ("2", "3", "0", "1")
    np.testing.assert_allclose(moved.predict(counted), model.predict(counted))
    # Names that begin at 1 count nothing.
    from_one = X.set_axis(["1", "2", "3", "4"], axis=1)
    np.testing.assert_array_equal(model.predict(from_one), model.predict(counted))


def test_names_that_fall_together_are_refused(table):
    X, y = table
    with pytest.raises(ValueError, match="more than one column named 'a_1_2'"):
        rbr.Binner().fit(X.set_axis([("a", "1_2"), ("a_1", 2), "b", "c"], axis=1))


def test_two_columns_of_one_name_are_refused_by_a_fit(table):
    X, y = table
    with pytest.raises(ValueError, match="X has more than one column named 'a'; column names must differ"):
        RBRRegressor(**SINGLE).fit(X.set_axis(["a", "b", "a", "c"], axis=1), y)


def test_integer_names_are_given_as_text(table):
    X, y = table
    years = X.set_axis([2001, 2002, 2003, 2004], axis=1)
    with pytest.raises(
        ValueError, match="exclude names the column 2001; indices must be between 0 and 3, and the name"
    ):
        RBRRegressor(exclude=[2001], **SINGLE).fit(years, y)
    assert RBRRegressor(exclude=["2001"], **SINGLE).fit(years, y).terms_[0].name != "2001"


def test_only_errors_about_names_hint_at_the_model(table, estimator):
    X, _ = table
    with pytest.raises(ValueError, match="0 sample") as caught:
        estimator.predict(X.iloc[:0])
    assert not hasattr(caught.value, "__notes__")


def test_arrow_tables_are_tables(table):
    X, y = table
    pyarrow = pytest.importorskip("pyarrow", reason="pip install pyarrow")
    expected = RBRRegressor(**SINGLE).fit(X, y)
    coded = X.assign(code=X["code"].astype("category"), flag=X["age"] > 50)
    ordered = X.assign(code=pd.Categorical(X["code"], ["2", "1", "3"], ordered=True))
    for frame in (pyarrow.Table.from_pandas(X), pyarrow.RecordBatch.from_pandas(X), pyarrow.Table.from_pandas(coded)):
        m = RBRRegressor(**SINGLE).fit(frame, y)
        assert m.feature_names_in_.tolist() == frame.schema.names == list(m.model_.feature_names_in_)
        np.testing.assert_allclose(m.predict(frame), expected.predict(X))
    chunks = pyarrow.concat_tables([pyarrow.Table.from_pandas(part) for part in (coded[:100], coded[100:])])
    np.testing.assert_array_equal(expected.model_.predict(chunks), expected.predict(X))
    m = RBRRegressor(**SINGLE).fit(pyarrow.Table.from_pandas(ordered), y)
    assert m.model_["code"].categories == ("2", "1", "3") and not m.model_["code"].grouped
    dates = pyarrow.table({"age": X["age"].to_numpy(), "when": pd.date_range("2020-01-01", periods=N).to_numpy()})
    with pytest.raises(ValueError, match="column 'when' has the dtype timestamp"):
        RBRRegressor(**SINGLE).fit(dates, y)
    gaps = pyarrow.table({"x": pyarrow.array([1, None, 3] * 100), "b": pyarrow.array([True, None, False] * 100)})
    gaps_y = np.tile([0.0, 5.0, 1.0], 100)
    np.testing.assert_allclose(RBRRegressor(**SINGLE).fit(gaps, gaps_y).predict(gaps), gaps_y, atol=0.3)


# Values that training did not have ------------------------------------------------------------------------


@pytest.mark.parametrize("as_type", [int, float, "Int8", np.int16, "category", "string[pyarrow]"])
def test_a_column_that_a_file_has_changed_predicts_the_same(table, estimator, as_type):
    X, _ = table
    if as_type == "string[pyarrow]":
        pytest.importorskip("pyarrow", reason="pip install pyarrow")
    changed = X.assign(code=X["code"].astype(int).astype(as_type))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for method in ("predict", "explain"):
            expected = getattr(estimator, method)(X)
            np.testing.assert_array_equal(getattr(estimator, method)(changed), expected)
            np.testing.assert_array_equal(getattr(estimator.model_, method)(changed, on_unseen="raise"), expected)


def test_text_after_numbers_predicts_the_same(table):
    X, y = table
    numbers = X.astype({"code": int})
    m = RBRRegressor(categorical_features=["code"], **SINGLE).fit(numbers, y)
    assert m.model_["code"].categories == (1, 2, 3)
    np.testing.assert_array_equal(m.predict(X), m.predict(numbers))


def test_an_ambiguous_column_is_named():
    X = pd.DataFrame({"code": ["01", "1.0", "x"] * 50})
    model = RBRRegressor(**SINGLE).fit(X, np.tile([1.0, 2.0, 3.0], 50)).model_
    with pytest.raises(ValueError, match="column 'code' holds 1 of type int, which could be any of"):
        model.predict(pd.DataFrame({"code": [1, 2]}), on_unseen="ignore")


def with_share(X, column, share, value):
    changed = X.copy()
    changed.loc[changed.index < round(share * len(X)), column] = value
    return changed


METHODS = ("predict", "decision_function", "explain")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("column", "value"), [("code", "new"), ("code", None), ("age", np.nan)])
def test_on_unseen(table, estimator, method, column, value):
    X, _ = table
    score = getattr(estimator.model_, method)
    few, many = (with_share(X, column, WARN_SHARE + more, value) for more in (0.0, 0.01))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        score(few)
        ignored = score(many, on_unseen="ignore")
        score(X, on_unseen="raise")
    with pytest.warns(UnseenWarning, match=f"column '{column}': 24 of 400 rows") as caught:
        np.testing.assert_array_equal(score(many), ignored)
    (count,) = [own for own in caught[0].message.counts if own.term == column]
    assert count.n_unseen + count.n_missing == 24 and count.n_rows == N
    assert count.levels == (("new",) if value == "new" else ())
    with pytest.raises(UnseenError, match=f"column '{column}': 20 of 400 rows"):
        score(few, on_unseen="raise")
    with pytest.raises(ValueError, match="on_unseen is 'never'; it must be one of 'raise', 'warn', 'ignore'"):
        score(X, on_unseen="never")


def test_gaps_where_training_had_some_are_no_news(table, estimator):
    X, _ = table
    assert np.isfinite(estimator.model_.decision_function(X.assign(income=np.nan), on_unseen="raise")).all()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gaps_in_plain_arrays_are_counted(order, dtype):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(9000, 3)).astype(dtype)
    model = RBRRegressor(**SINGLE).fit(X, np.sign(X[:, 0]) + np.sign(X[:, 2])).model_
    X[0] = np.inf, np.nan, -np.inf
    X[5], X[7] = np.inf, -np.inf
    model.predict(np.array(X, order=order), on_unseen="raise")
    X[8990:, 2] = np.nan
    counts = model.count_unseen(np.array(X, order=order))
    assert [(own.term, own.n_missing) for own in counts] == [("x0", 0), ("x2", 10)]
    with pytest.raises(UnseenError, match="column 'x2': 10 of 9000 rows are missing, and training had no missing"):
        model.predict(np.array(X, order=order), on_unseen="raise")


def test_estimators_have_it_as_a_parameter(table, estimator):
    X, y = table
    strange = X.assign(code="new")
    strict = clone(estimator).set_params(on_unseen="raise").fit(X, y)
    pipeline = make_pipeline(strict)
    for method in (pipeline.predict, strict.explain):
        with pytest.raises(UnseenError):
            method(strange)
    with pytest.warns(UnseenWarning):
        estimator.predict(strange)
    with pytest.raises(ValueError, match="on_unseen is 3"):
        RBRRegressor(on_unseen=3).fit(X, y)
    c = RBRClassifier(on_unseen="raise", n_bags=0).fit(X, X["code"])
    for method in (c.predict, c.predict_proba, c.predict_log_proba, c.decision_function):
        with pytest.raises(UnseenError):
            method(strange)
    with pytest.warns(UnseenWarning):
        c.model_.predict_proba(strange)


def test_the_warning_points_at_the_line_of_the_user(table, estimator):
    """Python shows a warning once for each line: one inside rbr would be shown once for the whole program."""
    X, _ = table
    strange = X.assign(code="new")
    pipeline = make_pipeline(estimator)
    model = estimator.model_
    for method in (model.predict, model.decision_function, model.explain, estimator.predict, pipeline.predict):
        with pytest.warns(UnseenWarning) as caught:
            method(strange)
        assert [warning.filename for warning in caught] == [__file__]


# Data that have changed -----------------------------------------------------------------------------------


def test_the_training_rows_have_not_changed(table, estimator):
    X, _ = table
    report = estimator.model_.check(X)
    assert report.ok and report.changes == ()
    assert "nothing has changed" in repr(report)
    np.testing.assert_allclose([term.psi for term in report.terms], 0.0, atol=1e-12)
    np.testing.assert_allclose(report.shift, 0.0, atol=1e-9)
    assert report.score == pytest.approx(estimator.model_.decision_function(X).mean())
    assert report.n_rows == report.n_rows_in_training == N
    income = report.terms[2]
    assert income.missing == income.missing_in_training == X["income"].isna().mean()


@pytest.mark.parametrize("class_weight", ["balanced", {"no": 5.0, "yes": 1.0}])
def test_class_weights_are_no_change_of_the_rows(table, class_weight, tmp_path):
    """They make rows of a class louder; what new rows are compared with is how many there were."""
    X, y = table
    labels = np.where(y > np.quantile(y, 0.8), "yes", "no")
    m = RBRClassifier(class_weight=class_weight, shape="constant", **SINGLE).fit(X, labels)
    m.save(tmp_path / "m.json")
    report = rbr.load(tmp_path / "m.json").check(X)
    assert report.ok and report.n_rows_in_training == N
    np.testing.assert_allclose([term.psi for term in report.terms], 0.0, atol=1e-12)
    assert report.score_in_training == pytest.approx(m.decision_function(X).mean())
    assert report.shift == 0 and all(term.shift == 0 for term in report.terms)
    frame = m.to_frame()
    np.testing.assert_allclose(frame["share"], frame["rows"] / N)


def test_the_report_shows_no_rounding_errors(table, estimator):
    X, _ = table
    report = estimator.model_.check(X)
    assert {term.effect_in_training for term in report.terms} == {0.0}
    assert "e-1" not in report.summary().replace(" ", "")


def test_chance_is_no_change(table, estimator):
    X, _ = table
    rng = np.random.default_rng(5)
    reports = [estimator.model_.check(X.iloc[rng.integers(0, N, 60)]) for _ in range(40)]
    assert np.mean([report.ok for report in reports]) > 0.9
    assert max(term.psi for report in reports for term in report.terms) > 0.1


def test_what_has_changed_is_named_with_its_effect(table, estimator):
    X, _ = table
    model = estimator.model_
    older = X.assign(age=X["age"] + 20)
    report = model.check(older)
    assert [text.split(":")[0] for text in report.changes] == ["age"]
    assert "the distribution has changed (psi" in report.changes[0]
    moved = model.decision_function(older).mean() - model.decision_function(X).mean()
    assert report.shift == pytest.approx(moved) and report.terms[0].shift == pytest.approx(moved)
    assert moved > 0.5 and f"shift {moved:+.3g}" in report.summary()

    report = model.check(with_share(with_share(X, "code", 0.3, "new"), "age", 0.25, np.nan))
    assert report.terms[1].unseen == 0.3 and report.terms[1].levels == ("new",)
    assert report.terms[0].missing == 0.25 and report.terms[0].missing_in_training == 0.0
    text = "\n".join(report.changes)
    assert "code: 30% of the rows hold categories that training did not have ('new')" in text
    assert "age: 25% of the rows are missing, 0% in training" in text
    as_json = json.loads(json.dumps(report.to_dict()))
    assert as_json["ok"] is False and as_json["terms"][1]["unseen"] == 0.3
    assert report.to_frame()["term"].tolist() == ["age", "code", "income"]


def test_stability_index_by_hand():
    X = pd.DataFrame({"c": ["a"] * 600 + ["b"] * 400})
    model = RBRRegressor(**SINGLE).fit(X, np.where(X["c"] == "a", 1.0, 0.0)).model_
    (term,) = model.check(pd.DataFrame({"c": ["a"] * 30 + ["b"] * 70})).terms
    assert term.psi == pytest.approx((0.3 - 0.6) * np.log(0.3 / 0.6) + (0.7 - 0.4) * np.log(0.7 / 0.4))
    assert term.psi_chance == pytest.approx(chi2.ppf(0.999, 1) * (1 / 100 + 1 / 1000), rel=0.04)
    (term,) = model.check(pd.DataFrame({"c": ["a"] * 100})).terms
    assert term.psi == pytest.approx(0.4 * np.log(1.0 / 0.6) + (0.005 - 0.4) * np.log(0.005 / 0.4))
    weight = [1.0] * 30 + [2.0] * 10
    (term,) = model.check(pd.DataFrame({"c": ["a"] * 30 + ["b"] * 10}), sample_weight=weight).terms
    assert term.psi == pytest.approx(0.0, abs=1e-12)


def test_what_chance_does_to_missing_values_by_hand():
    X = np.column_stack([np.where(np.arange(400) % 4 == 0, np.nan, np.arange(400.0))])
    model = RBRRegressor(**SINGLE).fit(X, np.isnan(X[:, 0])).model_
    (term,) = model.check(X[:100, :] * np.where(np.arange(100) < 45, np.nan, 1.0)[:, None]).terms
    missing = np.isnan(X[:100, 0]) | (np.arange(100) < 45)
    pooled = (100 + missing.sum()) / 500
    z = 3.290526731491926  # the 0.9995 quantile of the normal distribution
    assert term.missing == missing.mean() and term.missing_in_training == 0.25
    assert term.missing_chance == pytest.approx(z * np.sqrt(pooled * (1 - pooled) * (1 / 100 + 1 / 400)), rel=1e-4)


@pytest.mark.parametrize("n_free", [1, 5, 20])
def test_quantile_of_chance(n_free):
    assert _chi_square_quantile(n_free) == pytest.approx(chi2.ppf(0.999, n_free), rel=0.04)


def test_groups_hold_enough_rows(estimator):
    for term in estimator.terms_:
        groups = _groups(term)[: term.n_ordered]
        shares = np.bincount(groups, term.weights[: term.n_ordered])
        assert (shares >= 0.05 * term.weights[: term.n_ordered].sum()).all()
        assert term.kind == "category" or (np.diff(groups) >= 0).all()
    assert len(np.unique(groups)) > 10


@pytest.mark.parametrize(
    "kind",
    [{"loss": "log_loss", "classes": ["no", "yes"]}, {"loss": "multinomial", "classes": [3, 5, 7], "n_outputs": 3}],
)
def test_check_of_classifiers(kind):
    model = make_model(0, **kind)
    rng = np.random.default_rng(0)
    rows = {
        'a "quoted" name': rng.normal(size=50),
        "text; DROP TABLE": rng.choice(["plain", "it's", "strange"], 50),
        "b": np.full(50, np.nan),
        "numbers": rng.choice(["-2", "0", "5"], 50),
        "one piece": rng.normal(size=50),
    }
    report = model.check(pd.DataFrame(rows))
    scores = model.decision_function(pd.DataFrame(rows), on_unseen="ignore")
    np.testing.assert_allclose(report.score, scores.mean(axis=0))
    assert report.terms[2].missing == 1.0
    assert ("odds x" in report.summary()) == (model.n_outputs == 1)
    assert not report.ok


def test_a_report_has_a_line_for_each_finding_whatever_the_names():
    X = pd.DataFrame({"si\nze": ["S", "M", "L", "M"] * 50})
    model = RBRRegressor(**SINGLE).fit(X, np.tile([1.0, 2.0, 3.0, 2.0], 50)).model_
    report = model.check(X.iloc[[0]].replace("S", "x\ny"))
    assert report.changes == ("si\\nze: 100% of the rows hold categories that training did not have ('x\\ny')",)
    lines = report.summary().splitlines()
    assert lines[0] == "1 row beside 200 of training"
    assert lines[4].startswith("si\\nze ") and len(lines) == 6


def test_scores_of_several_classes_are_told_apart():
    model = make_model(0, loss="multinomial", classes=[3, 5, 7], n_outputs=3)
    report = model.check(np.zeros((5, model.n_features_in_)))
    head = report.summary().splitlines()[1]
    assert head.startswith(f"mean score: {' / '.join(f'{score:.3g}' for score in report.score)}, in training ")


def test_check_of_a_model_without_terms():
    model = make_model(0)
    for term in model.terms:
        model = model.drop(term.name)
    assert model.check(pd.DataFrame({"anything": [1, 2]})).ok


# A fitted estimator ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_a_loaded_model_becomes_a_fitted_estimator(n_classes, tmp_path):
    X, y = made_table(2)
    if n_classes:
        y = np.array(["low", "high", "top"])[np.digitize(y, np.quantile(y, [0.4, 0.7][: n_classes - 1]))]
    fitted = (RBRClassifier if n_classes else RBRRegressor)(max_features=2, n_bags=0).fit(X, y)
    fitted.save(tmp_path / "m.json")
    m = rbr.load(tmp_path / "m.json").to_estimator()
    assert type(m) is type(fitted) and m.model_ == fitted.model_
    assert m.n_features_in_ == 4 and m.feature_names_in_.tolist() == X.columns.tolist()
    methods = ["predict", "explain", *(["predict_proba", "decision_function"] if n_classes else [])]
    for method in methods:
        np.testing.assert_array_equal(getattr(m, method)(X), getattr(fitted, method)(X))
    np.testing.assert_array_equal(m.feature_importances_, fitted.feature_importances_)
    assert m.score(X, y) == fitted.score(X, y)
    if n_classes:
        assert m.classes_.tolist() == fitted.classes_.tolist()
    with pytest.raises(ValueError, match="feature names"):
        m.predict(X.iloc[:, ::-1])
    m.save(tmp_path / "again.json")
    assert rbr.load(tmp_path / "again.json") == fitted.model_
    with pytest.raises(NotFittedError, match="bootstrap refits with the bins and parameters of the fit"):
        m.bootstrap(X, y, n=1)
    with pytest.raises(NotFittedError):
        clone(m).predict(X)
    refitted = clone(m).fit(X, y)
    refitted.bootstrap(X, y, n=1)
    pytest.importorskip("matplotlib", reason='pip install "rbr[plot]"')
    m.plot()


@pytest.mark.parametrize("loss", ["poisson", rbr.losses.get_loss("quantile", level=0.9)])
def test_the_estimator_knows_the_loss(table, loss):
    X, y = table
    m = RBRRegressor(loss, n_bags=0).fit(X, np.exp(y))
    again = m.model_.to_estimator()
    assert again.loss == (loss if isinstance(loss, str) else m.model_.loss)
    assert isinstance(loss, str) or again.loss.level == 0.9
    np.testing.assert_array_equal(again.predict(X), m.predict(X))


def test_an_estimator_from_a_file_expects_the_exposure_of_the_fit(tmp_path):
    rng = np.random.default_rng(0)
    X, offset = rng.normal(size=(500, 2)), rng.normal(size=500)
    y = rng.poisson(np.exp(np.sign(X[:, 0]) + offset))
    m = RBRRegressor("poisson", **SINGLE).fit(X, y, offset=offset)
    m.save(tmp_path / "m.json")
    again = rbr.load(tmp_path / "m.json").to_estimator()
    assert again.score(X, y, offset=offset) == m.score(X, y, offset=offset)
    with pytest.warns(UserWarning, match="fitted with an offset, and these rows have none"):
        again.score(X, y)


def test_arrays_have_no_names_in_the_estimator_either():
    X = np.random.default_rng(0).normal(size=(200, 3))
    m = RBRRegressor(**SINGLE).fit(X, np.sign(X[:, 0])).model_.to_estimator()
    assert not hasattr(m, "feature_names_in_")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m.predict(X)


def test_a_score_without_classes_is_no_estimator():
    with pytest.raises(ValueError, match="has the loss 'log_loss' and no classes"):
        make_model(0, loss="log_loss").to_estimator()


def test_a_fresh_process_scores_a_changed_table(table, estimator, tmp_path):
    """As in production: the file travels, the table comes from a CSV, in which codes are integers."""
    X, _ = table
    estimator.save(tmp_path / "m.json")
    X[["income", "code", "age"]].assign(extra="x").to_csv(tmp_path / "new.csv", index=False)
    code = (
        "import pandas as pd, rbr, warnings; warnings.simplefilter('error')\n"
        "X = pd.read_csv('new.csv'); assert X['code'].dtype.kind == 'i'\n"
        "print(rbr.load('m.json').predict(X, on_unseen='raise').tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    np.testing.assert_allclose(json.loads(done.stdout), estimator.predict(X), rtol=1e-12)


def test_an_estimator_from_a_file_takes_the_names_of_fit_without_a_word(table, tmp_path):
    X, y = table
    X = X.set_axis([2001, 2002, 2003, 2004], axis=1)
    m = RBRRegressor(**SINGLE).fit(X, y)
    m.save(tmp_path / "m.json")
    again = rbr.load(tmp_path / "m.json").to_estimator()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(again.predict(X), m.predict(X))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(X[[2002, 2001, 2003, 2004]])
