"""Exported models give the model's own scores; test_databases.py runs the queries in databases."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from databases import run_sqlite
from models import AWKWARD_TEXT, make_model
from probes import KINDS, as_array, rows_of_probes

import rbr
from rbr.model.sql import DIALECTS


def test_several_scores_without_a_table_are_named_expressions():
    model = make_model(3, **KINDS["multiclass"])
    rows = rows_of_probes(model, np.random.default_rng(0))
    columns, found = run_sqlite(f'SELECT {model.to_sql()} FROM "some table"', rows, model.feature_names_in_)
    assert columns == ["score_3", "score_5", "score_7"]
    np.testing.assert_allclose(
        found, model.decision_function(as_array(rows, model), on_unseen="ignore"), rtol=0, atol=1e-12
    )


def renamed(model):
    """A model whose terms have other names than their columns."""
    return replace(model, terms=tuple(replace(term, name=f"our {term.name}") for term in model.terms))


def test_queries_name_the_columns_and_not_the_terms():
    model = make_model(2)
    assert renamed(model).to_sql("some table") == model.to_sql("some table")
    assert "our" not in renamed(model).to_sql()
    assert 'WHEN "x2" IS NULL THEN' in replace(renamed(model), feature_names_in_=None).to_sql()


def test_a_fitted_model_in_sqlite():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(500, 3))
    X[::7, 1] = np.nan
    from models import fit

    _, _, _, model = fit(X, np.sin(2 * X[:, 0]) + np.nan_to_num(X[:, 1], nan=2.0))
    assert model.terms
    rows = [{f"x{j}": None if np.isnan(v) else v for j, v in enumerate(row)} for row in X.tolist()]
    _, found = run_sqlite(model.to_sql("some table"), rows, ["x0", "x1", "x2"])
    np.testing.assert_allclose([row[-1] for row in found], model.predict(X, on_unseen="ignore"), rtol=0, atol=1e-12)


def test_names_and_text_cannot_break_out():
    model = make_model(0)
    for dialect, quote in DIALECTS.items():
        sql = model.to_sql(('my "schema"', "t`able"), dialect=dialect)
        assert quote.name("text; DROP TABLE") in sql
        assert quote.name('my "schema"') + "." + quote.name("t`able") in sql
    assert DIALECTS["postgres"].name('a "b"') == '"a ""b"""'
    assert DIALECTS["postgres"].text("it's") == "'it''s'"
    assert DIALECTS["bigquery"].name("a`b\\") == "`a\\`b\\\\`"
    assert DIALECTS["bigquery"].text("it's\n") == "'it\\'s\\n'"


@pytest.mark.parametrize("table", ["", (), 3, ("a", "")])
def test_bad_table(table):
    with pytest.raises((ValueError, TypeError)):
        make_model(0).to_sql(table)


def test_unknown_dialect_is_refused():
    with pytest.raises(ValueError, match="dialect is 'oracle'; it must be one of 'sqlite'"):
        make_model(0).to_sql("t", dialect="oracle")


def test_category_that_sql_cannot_hold_is_refused():
    from dataclasses import replace

    model = make_model(0)
    term = model["numbers"]
    broken = replace(term, categories=((1, 2), *term.categories[1:]))
    terms = tuple(broken if own is term else own for own in model.terms)
    with pytest.raises(ValueError, match=r"term 'numbers' has the category \(1, 2\); SQL needs"):
        replace(model, terms=terms).to_sql()


# ONNX -----------------------------------------------------------------------------------------------------


def run_onnx(proto, rows, model):
    onnxruntime = pytest.importorskip("onnxruntime", reason="the graph is run in onnxruntime")
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = {}
    for term in model.terms:
        column = [row[term.name] for row in rows]
        if term.kind == "category" and isinstance(term.categories[0], str):
            feed[term.name] = np.array([["" if v is None else v] for v in column], dtype=object)
        else:
            feed[term.name] = np.array([[np.nan if v is None else v] for v in column], dtype=np.float64)
    names = [out.name for out in session.get_outputs()]
    return dict(zip(names, session.run(None, feed), strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_onnx_gives_the_predictions_of_every_bin(kind, seed, tmp_path):
    onnx = pytest.importorskip("onnx", reason="the graph is made with onnx")
    model = make_model(seed, **KINDS[kind])
    rows = rows_of_probes(model, np.random.default_rng(seed))
    proto = model.to_onnx(tmp_path / "model.onnx")
    assert onnx.load(tmp_path / "model.onnx") == proto
    out = run_onnx(proto, rows, model)
    X = as_array(rows, model)
    expected = model.decision_function(X, on_unseen="ignore").reshape(len(rows), -1)
    np.testing.assert_allclose(out["score"], expected, rtol=0, atol=1e-12)
    if kind == "regression":
        np.testing.assert_allclose(out["prediction"][:, 0], model.predict(X, on_unseen="ignore"), rtol=0, atol=1e-12)
    else:
        np.testing.assert_allclose(out["probabilities"], model.predict_proba(X, on_unseen="ignore"), rtol=0, atol=1e-12)
        assert out["label"].tolist() == model.predict(X, on_unseen="ignore").tolist()


def test_inputs_of_onnx_are_named_after_the_columns():
    pytest.importorskip("onnx", reason="the graph is made with onnx")
    model = make_model(2)
    names = [node.name for node in renamed(model).to_onnx().graph.input]
    assert names == [model.feature_names_in_[j] for j in (0, 1, 2, 4, 5)]
    assert [node.name for node in model.to_onnx().graph.input] == names


@pytest.mark.parametrize("kind", ["regression", "binary"])
def test_outputs_of_onnx_make_way_for_columns_of_their_names(kind):
    pytest.importorskip("onnx", reason="the graph is made with onnx")
    model = make_model(0, **KINDS[kind])
    names = ("score", "label", "prediction", "unused", "probabilities", "model_score")
    terms = tuple(replace(term, name=names[term.columns[0]]) for term in model.terms)
    model = replace(model, terms=terms, feature_names_in_=names)
    rows = rows_of_probes(model, np.random.default_rng(0))
    out = run_onnx(model.to_onnx(), rows, model)
    X = as_array(rows, model)
    expected = model.decision_function(X, on_unseen="ignore")
    np.testing.assert_allclose(out["model_model_score"][:, 0], expected, rtol=0, atol=1e-12)
    if kind == "regression":
        np.testing.assert_allclose(out["model_prediction"][:, 0], expected, rtol=0, atol=1e-12)
    else:
        assert out["model_label"].tolist() == model.predict(X, on_unseen="ignore").tolist()
        expected = model.predict_proba(X, on_unseen="ignore")
        np.testing.assert_allclose(out["model_probabilities"], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("loss", ["poisson", "huber", "gamma"])
def test_onnx_applies_the_link(loss):
    pytest.importorskip("onnx", reason="the graph is made with onnx")
    model = make_model(5, loss=loss)
    rows = rows_of_probes(model, np.random.default_rng(5))
    out = run_onnx(model.to_onnx(), rows, model)
    np.testing.assert_allclose(
        out["prediction"][:, 0], model.predict(as_array(rows, model), on_unseen="ignore"), rtol=1e-12
    )


def test_onnx_of_a_model_without_terms_is_refused():
    pytest.importorskip("onnx", reason="the graph is made with onnx")
    model = make_model(0)
    for term in list(model.terms):
        model = model.drop(term.name)
    with pytest.raises(ValueError, match="no terms"):
        model.to_onnx()


def test_awkward_text_is_in_the_models():
    assert set(make_model(0)["text; DROP TABLE"].categories) == set(AWKWARD_TEXT)


def test_dialects_are_documented():
    for dialect, text in product(DIALECTS, [rbr.AdditiveModel.to_sql.__doc__]):
        assert f'"{dialect}"' in text
