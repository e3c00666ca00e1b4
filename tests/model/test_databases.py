"""Queries give the model's own predictions in every database that can be run here: SQLite, DuckDB, PostgreSQL."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from databases import DATABASES, quoted, run_sqlite, sql_types
from models import make_model
from probes import KINDS, as_array, rows_of_probes

from rbr import RBRClassifier, RBRRegressor


def scored(dialect, model, rows, **options):
    """The names of the added columns, and their values."""
    sql = model.to_sql("some table", dialect=dialect, **options)
    names, found = DATABASES[dialect](sql, rows, sql_types(model))
    n_own = model.n_features_in_
    assert names[:n_own] == list(model.feature_names_in_)
    return names[n_own:], np.array([row[n_own:] for row in found], dtype=np.float64)


@pytest.mark.parametrize("dialect", DATABASES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_the_score_of_every_bin(dialect, kind, seed):
    model = make_model(seed, **KINDS[kind])
    rows = rows_of_probes(model, np.random.default_rng(seed))
    names, found = scored(dialect, model, rows)
    expected = model.decision_function(as_array(rows, model), on_unseen="ignore").reshape(len(rows), -1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert names == (["score_3", "score_5", "score_7"] if kind == "multiclass" else ["score"])


@pytest.mark.parametrize("dialect", DATABASES)
@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_probabilities(dialect, kind):
    model = make_model(1, **KINDS[kind])
    rows = rows_of_probes(model, np.random.default_rng(1))
    expected = model.predict_proba(as_array(rows, model), on_unseen="ignore")
    names, found = scored(dialect, model, rows, output="probability")
    if kind == "binary":
        assert names == ["probability"]
        np.testing.assert_allclose(found[:, 0], expected[:, 1], rtol=1e-12)
        names, _ = scored(dialect, model, rows, output="probability", name="risk")
        assert names == ["risk"]
    else:
        assert names[3:] == ["probability_3", "probability_5", "probability_7"]
        np.testing.assert_allclose(found[:, 3:], expected, rtol=1e-12)


@pytest.mark.parametrize("dialect", DATABASES)
@pytest.mark.parametrize("loss", ["squared_error", "poisson", "gamma", "huber"])
def test_means(dialect, loss):
    model = make_model(5, loss=loss)
    rows = rows_of_probes(model, np.random.default_rng(5))
    names, found = scored(dialect, model, rows, output="mean", name="frequency")
    assert names == ["frequency"]
    np.testing.assert_allclose(found[:, 0], model.predict(as_array(rows, model), on_unseen="ignore"), rtol=1e-12)


@pytest.mark.parametrize("dialect", DATABASES)
@pytest.mark.parametrize(("kind", "output"), [("binary", "probability"), ("multiclass", "probability"), (None, "mean")])
@pytest.mark.parametrize("size", [-5000.0, 5000.0])
def test_huge_scores_are_no_errors(dialect, kind, output, size):
    model = make_model(2, **(KINDS[kind] if kind else {"loss": "poisson"}))
    shift = size * np.arange(model.n_outputs) if kind == "multiclass" else size
    model = replace(model, intercept=model.intercept + shift)
    rows = rows_of_probes(model, np.random.default_rng(2))[:5]
    _, found = scored(dialect, model, rows, output=output)
    assert np.isfinite(found).all()
    if output == "probability":
        expected = model.predict_proba(as_array(rows, model), on_unseen="ignore")
        np.testing.assert_allclose(found[:, -expected.shape[1] :][:, -1], expected[:, -1], atol=1e-300)


@pytest.mark.parametrize("dialect", ["duckdb", "postgres"])
def test_nan_is_missing_beside_null(dialect):
    model = make_model(0)
    nothing = dict.fromkeys(model.feature_names_in_)
    not_a_number = {**nothing, 'a "quoted" name': np.nan, "b": np.nan, "one piece": np.nan}
    _, found = scored(dialect, model, [nothing, not_a_number])
    assert found[0] == found[1]
    assert found[0] == model.decision_function(as_array([nothing], model), on_unseen="ignore")


@pytest.mark.parametrize("dialect", DATABASES)
def test_lines_beyond_the_training_range(dialect):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=2000) ** 3, "z": rng.normal(size=2000)})
    model = RBRRegressor(n_bags=0).fit(X, 2 * X["x"] + np.where(X["z"] > 0.3, 5.0, 0.0)).model_
    assert any(np.any(term.slopes != 0) for term in model.terms)
    new = pd.DataFrame({"x": [-1e6, -1.0, 0.5, 1e6, np.inf, -np.inf], "z": [0.0, 1.0, 2.0, 0.3, -np.inf, np.inf]})
    _, found = scored(dialect, model, new.to_dict("records"))
    np.testing.assert_allclose(found[:, 0], model.decision_function(new), rtol=1e-12)


@pytest.mark.parametrize("dialect", DATABASES)
def test_a_table_that_has_a_column_score(dialect):
    rng = np.random.default_rng(3)
    X = pd.DataFrame({"Score": rng.normal(size=300), "MODEL_score": rng.normal(size=300)})
    model = RBRRegressor(n_bags=0).fit(X, X["Score"] > 0).model_
    rows = X.to_dict("records")
    names, found = scored(dialect, model, rows)
    assert names == ["model_model_score"]
    np.testing.assert_allclose(found[:, 0], model.decision_function(X), atol=1e-12)
    assert scored(dialect, model, rows, name="points")[0] == ["points"]
    with pytest.raises(ValueError, match="name is 'score'; the training table has a column of that name"):
        model.to_sql("some table", dialect=dialect, name="score")


@pytest.mark.parametrize("dialect", DATABASES)
def test_an_absent_column_is_an_error_and_not_text(dialect):
    model = make_model(4)
    types = {name: kind for name, kind in sql_types(model).items() if name != "b"}
    rows = [dict.fromkeys(types)]
    with pytest.raises(Exception, match=r"b") as error:
        DATABASES[dialect](model.to_sql("some table", dialect=dialect), rows, types)
    assert "column" in str(error.value)


@pytest.mark.parametrize("dialect", DATABASES)
def test_numbers_of_other_types_are_compared_as_numbers(dialect):
    rng = np.random.default_rng(6)
    X = pd.DataFrame({"whole": rng.integers(0, 50, 400), "price": rng.integers(0, 9999, 400) / 100})
    y = (X["whole"] > 20) + (X["price"] > 33.33)
    model = RBRRegressor(n_bags=0).fit(X, y).model_
    types = {"whole": "INTEGER", "price": "DECIMAL(6, 2)"}
    sql = model.to_sql("some table", dialect=dialect)
    _, found = DATABASES[dialect](sql, X.to_dict("records"), types)
    np.testing.assert_allclose([row[-1] for row in found], model.decision_function(X), atol=1e-12)


@pytest.mark.parametrize("dialect", DATABASES)
def test_expression_alone_in_a_query(dialect):
    model = make_model(7, loss="log_loss", classes=["no", "yes"])
    rows = rows_of_probes(model, np.random.default_rng(0))
    sql = f'SELECT avg({model.to_sql(dialect=dialect, output="probability")}) FROM "some table"'
    _, [(mean,)] = DATABASES[dialect](sql, rows, sql_types(model))
    expected = model.predict_proba(as_array(rows, model), on_unseen="ignore")[:, 1].mean()
    assert mean == pytest.approx(expected, rel=1e-12)


def test_a_classifier_on_a_table_with_text_and_gaps():
    rng = np.random.default_rng(8)
    n = 500
    X = pd.DataFrame({"kind": rng.choice(["a", "b", "it's"], n), "size": rng.normal(size=n)})
    X.loc[::9, "size"] = np.nan
    y = np.where((X["kind"] == "a") ^ (rng.random(n) < 0.1), "yes", "no")
    model = RBRClassifier(n_bags=0).fit(X, y).model_
    rows = [{**row, "size": None if np.isnan(row["size"]) else row["size"]} for row in X.to_dict("records")]
    sql = model.to_sql("some table", output="probability")
    _, found = run_sqlite(sql, rows, sql_types(model))
    np.testing.assert_allclose([row[-1] for row in found], model.predict_proba(X)[:, 1], rtol=1e-12)


@pytest.mark.parametrize(
    ("kind", "output", "allowed"),
    [("regression", "probability", "'score', 'mean'"), ("binary", "mean", "'score', 'probability'")],
)
def test_outputs_that_a_model_does_not_have(kind, output, allowed):
    with pytest.raises(ValueError, match=f"output is '{output}'; a model with the loss .* has {allowed}"):
        make_model(0, **KINDS[kind]).to_sql("t", output=output)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "label"}, "output is 'label'"),
        ({"name": ""}, "name is ''"),
        ({"name": 3}, "name is 3"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        make_model(0).to_sql("t", **options)


def test_names_that_would_end_a_quotation():
    model = make_model(0)
    name = 'x" FROM secrets --'
    names, _ = run_sqlite(model.to_sql("some table", name=name), [], sql_types(model))
    assert names[-1] == name
    assert quoted(name) in model.to_sql("some table", name=name)
