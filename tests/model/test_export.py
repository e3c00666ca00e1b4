"""Exported models give the model's own scores: in every bin, on both sides of every edge, for NULL and unknowns."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from models import AWKWARD_TEXT, make_model

import rbr
from rbr.model.export import DIALECTS

KINDS = {
    "regression": {},
    "binary": {"loss": "log_loss", "classes": ["no", "yes"]},
    "multiclass": {"loss": "multinomial", "classes": [3, 5, 7], "n_outputs": 3},
}


def probes(term):
    """Values in every bin of a term, at and next to every edge, and beyond them; missing and unknown ones."""
    if term.kind == "category":
        unknown = "never seen" if isinstance(term.categories[0], str) else 77
        return [*term.categories, None, unknown]
    edges = term.edges
    beside = [*np.nextafter(edges, np.inf), *np.nextafter(edges, -np.inf)]
    middle = 0.5 * (edges[1:] + edges[:-1])
    return [float(x) for x in [*edges, *beside, *middle, edges[0] - 1, edges[-1] + 1, np.inf, -np.inf]] + [None]


def rows_of_probes(model, rng):
    """Rows that contain every probe of every term, and many pairs of probes of neighbouring terms."""
    columns = {term.name: probes(term) for term in model.terms}
    n_rows = 2 * max(map(len, columns.values())) + 200
    rows = []
    for k in range(n_rows):
        row = {name: None for name in model.feature_names_in_}
        for name, values in columns.items():
            row[name] = values[k] if k < len(values) else values[rng.integers(len(values))]
        rows.append(row)
    return rows


def as_array(rows, model):
    X = np.empty((len(rows), model.n_features_in_), dtype=object)
    for i, row in enumerate(rows):
        X[i] = [row[name] for name in model.feature_names_in_]
    return X


def run_sqlite(sql, rows, names, table="some table"):
    connection = sqlite3.connect(":memory:")
    quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    connection.execute(f'CREATE TABLE "{table}" ({quoted})')
    marks = ", ".join("?" * len(names))
    connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', [[row[n] for n in names] for row in rows])
    cursor = connection.execute(sql)
    return [column[0] for column in cursor.description], cursor.fetchall()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_sqlite_gives_the_score_of_every_bin(kind, seed):
    model = make_model(seed, **KINDS[kind])
    rows = rows_of_probes(model, np.random.default_rng(seed))
    columns, found = run_sqlite(model.to_sql("some table"), rows, model.feature_names_in_)
    expected = model.decision_function(as_array(rows, model)).reshape(len(rows), -1)
    assert columns[: model.n_features_in_] == list(model.feature_names_in_)
    np.testing.assert_allclose([row[model.n_features_in_ :] for row in found], expected, rtol=0, atol=1e-12)
    if kind == "multiclass":
        assert columns[-3:] == ["score_3", "score_5", "score_7"]
    else:
        assert columns[-1] == "score"


def test_expression_alone_can_be_used_in_a_query():
    model = make_model(7)
    rows = rows_of_probes(model, np.random.default_rng(0))
    sql = f'SELECT avg({model.to_sql()}) FROM "some table"'
    _, [(mean,)] = run_sqlite(sql, rows, model.feature_names_in_)
    assert mean == pytest.approx(model.decision_function(as_array(rows, model)).mean(), rel=1e-12)


def test_several_scores_without_a_table_are_named_expressions():
    model = make_model(3, **KINDS["multiclass"])
    rows = rows_of_probes(model, np.random.default_rng(0))
    columns, found = run_sqlite(f'SELECT {model.to_sql()} FROM "some table"', rows, model.feature_names_in_)
    assert columns == ["score_3", "score_5", "score_7"]
    np.testing.assert_allclose(found, model.decision_function(as_array(rows, model)), rtol=0, atol=1e-12)


def renamed(model):
    """A model whose terms have other names than their columns."""
    return replace(model, terms=tuple(replace(term, name=f"our {term.name}") for term in model.terms))


def test_queries_name_the_columns_and_not_the_terms():
    model = make_model(2)
    assert renamed(model).to_sql("some table") == model.to_sql("some table")
    assert "our" not in renamed(model).to_sql()
    assert 'CASE WHEN "x2" IS NULL' in replace(renamed(model), feature_names_in_=None).to_sql()


def test_a_fitted_model_in_sqlite():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(500, 3))
    X[::7, 1] = np.nan
    from models import fit

    _, _, _, model = fit(X, np.sin(2 * X[:, 0]) + np.nan_to_num(X[:, 1], nan=2.0))
    assert model.terms
    rows = [{f"x{j}": None if np.isnan(v) else v for j, v in enumerate(row)} for row in X.tolist()]
    _, found = run_sqlite(model.to_sql("some table"), rows, ["x0", "x1", "x2"])
    np.testing.assert_allclose([row[-1] for row in found], model.predict(X), rtol=0, atol=1e-12)


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


# A scorecard ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_scorecard_has_every_piece(kind):
    pytest.importorskip("pandas")
    model = make_model(2, **KINDS[kind])
    frame = model.to_frame()
    n_missing = sum(term.missing_value is not None for term in model.terms)
    assert len(frame) == 1 + model.n_pieces + n_missing
    assert frame["feature"].iloc[0] == "intercept"
    points = [c for c in frame.columns if c.startswith("points") and "end" not in c]
    assert len(points) == model.n_outputs
    np.testing.assert_array_equal(frame[points].iloc[0], np.atleast_1d(model.intercept))
    of_b = frame[frame["feature"] == "b"]
    assert of_b["range"].tolist() == [piece.text for piece in model["b"].pieces]
    np.testing.assert_array_equal(of_b[points], [np.atleast_1d(piece.value) for piece in model["b"].pieces])
    for term in model.terms:
        assert frame.loc[frame["feature"] == term.name, "share"].sum() == pytest.approx(1)


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
    expected = model.decision_function(X).reshape(len(rows), -1)
    np.testing.assert_allclose(out["score"], expected, rtol=0, atol=1e-12)
    if kind == "regression":
        np.testing.assert_allclose(out["prediction"][:, 0], model.predict(X), rtol=0, atol=1e-12)
    else:
        np.testing.assert_allclose(out["probabilities"], model.predict_proba(X), rtol=0, atol=1e-12)
        assert out["label"].tolist() == model.predict(X).tolist()


def test_inputs_of_onnx_are_named_after_the_columns():
    pytest.importorskip("onnx", reason="the graph is made with onnx")
    model = make_model(2)
    names = [node.name for node in renamed(model).to_onnx().graph.input]
    assert names == [model.feature_names_in_[j] for j in (0, 1, 2, 4, 5)]
    assert [node.name for node in model.to_onnx().graph.input] == names


@pytest.mark.parametrize("loss", ["poisson", "huber", "gamma"])
def test_onnx_applies_the_link(loss):
    pytest.importorskip("onnx", reason="the graph is made with onnx")
    model = make_model(5, loss=loss)
    rows = rows_of_probes(model, np.random.default_rng(5))
    out = run_onnx(model.to_onnx(), rows, model)
    np.testing.assert_allclose(out["prediction"][:, 0], model.predict(as_array(rows, model)), rtol=1e-12)


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
