"""Terms of two columns where they are used: databases, ONNX, tables, scorecards, reasons, changed data."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from databases import DATABASES, run_sqlite, sql_types
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs import added, frame_for, guillotine, make_axis, make_pair, make_pair_model, model_of, pairs
from probes import KINDS, as_array, probes

import rbr
from rbr.losses import get_loss
from rbr.model import AdditiveModel, Axis, PairTerm, Term
from rbr.model.pair_reading import path_through


def probes_of_axis(axis):
    if axis.kind == "category":
        return [*axis.levels, None, "never seen" if isinstance(axis.levels[0], str) else 77]
    edges = axis.edges
    beside = [*edges, *np.nextafter(edges, np.inf), *np.nextafter(edges, -np.inf)]
    return [*map(float, beside), math.inf, -math.inf, 0.0, None]


def rows_for_pairs(model, rng, n_rows=400):
    """Rows with every probe of every term of each column, and random combinations of them."""
    columns = {name: [None] for name in model.feature_names_in_}
    for term in model.terms:
        if isinstance(term, Term):
            columns[model.feature_names_in_[term.columns[0]]] += probes(term)
        else:
            for axis in term.axes:
                columns[model.feature_names_in_[axis.column]] += probes_of_axis(axis)
    return [
        {name: own[k] if k < len(own) else own[rng.integers(len(own))] for name, own in columns.items()}
        for k in range(n_rows)
    ]


# SQL ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DATABASES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_queries_give_the_scores(dialect, kind, seed):
    model = make_pair_model(seed, **KINDS[kind])
    rows = rows_for_pairs(model, np.random.default_rng(seed))
    rows = [row | {"unused": k} for k, row in enumerate(rows)]
    sql = model.to_sql("some table", dialect=dialect)
    _, found = DATABASES[dialect](sql, rows, sql_types(model))
    found.sort(key=lambda row: row[list(model.feature_names_in_).index("unused")])  # a database keeps no order
    expected = model.decision_function(as_array(rows, model), on_unseen="ignore").reshape(len(rows), -1)
    scores = np.array([row[model.n_features_in_ :] for row in found], dtype=np.float64)
    np.testing.assert_allclose(scores, expected, rtol=1e-12, atol=1e-12)


@settings(deadline=None)
@given(pairs(n_outputs=1))
def test_any_pair_in_sqlite(drawn):
    term, rng = drawn
    model = AdditiveModel((term,), 0.0, get_loss("squared_error"), None, None, 4, ("a", "b", "c", "d"))
    rows = rows_for_pairs(model, rng, 120)
    _, found = run_sqlite(model.to_sql("some table"), rows, model.feature_names_in_)
    X = as_array(rows, model)
    # SQLite reads some long numbers wrong in the last bit.
    np.testing.assert_allclose([row[-1] for row in found], model.decision_function(X, on_unseen="ignore"), rtol=1e-15)
    assert any(row[-1] != 0 for row in found)


@pytest.mark.parametrize("seed", range(5))
def test_rectangles_are_written_once_each(seed):
    """Cuts through whole rectangles need no value twice, however many bins they have."""
    rng = np.random.default_rng(seed)
    axes = (Axis(0, "a", np.arange(63.0), None, False), Axis(1, "b", np.arange(63.0), None, False))
    term = make_pair(axes, rng, n_rectangles=12)
    assert len(np.unique(term.labels)) >= 10  # a cell cannot be cut
    model = AdditiveModel((term,), 0.0, get_loss("squared_error"), None, None, 2, ("a", "b"))
    sql = model.to_sql()
    values = [piece.value for piece in term.pieces]
    assert [sql.count(repr(value)) for value in values] == [1] * len(values)


def test_grids_without_cuts_through_are_written_row_by_row():
    """A pinwheel has none; the centre is a rectangle that every line through the grid meets."""
    labels = np.array([[0, 0, 1], [3, 4, 1], [3, 2, 2]])
    axes = (Axis(0, "a", [1.0, 2.0], None, False), Axis(1, "b", [1.0, 2.0], None, False))
    term = PairTerm("a & b", axes, labels + 1.0, np.full((3, 3), 1 / 9), np.ones((3, 3)), labels)
    model = AdditiveModel((term,), 0.0, get_loss("squared_error"), None, None, 2, ("a", "b"))
    rows = [{"a": a, "b": b} for a in (0.5, 1.5, 2.5) for b in (0.5, 1.5, 2.5)]
    _, found = run_sqlite(model.to_sql("some table"), rows, ["a", "b"])
    assert [row[-1] for row in found] == (labels.ravel() + 1.0).tolist()
    assert model.to_sql("some table").count("THEN") < 12


@pytest.mark.parametrize("dialect", DATABASES)
def test_deep_cuts_do_not_overflow_a_parser(dialect):
    """Each cut is across the one before: as many expressions inside one another as there can be."""
    n = 40
    labels = np.minimum(2 * np.arange(n)[:, None], 2 * np.arange(n)[None] + 1)
    axes = (Axis(0, "a", np.arange(n - 1.0), None, False), Axis(1, "b", np.arange(n - 1.0), None, False))
    term = PairTerm("a & b", axes, np.sin(labels), np.full((n, n), 1 / n**2), np.ones((n, n)), labels)
    model = AdditiveModel((term,), 0.0, get_loss("log_loss"), None, None, 2, ("a", "b"))
    rng = np.random.default_rng(0)
    rows = [{"a": a, "b": b} for a, b in rng.uniform(-1, n, (100, 2)).tolist()]
    sql = model.to_sql("some table", dialect=dialect, output="probability")
    _, found = DATABASES[dialect](sql, rows, dict.fromkeys("ab", "DOUBLE PRECISION"))
    scores = model.decision_function(as_array(rows, model))
    np.testing.assert_allclose([row[-1] for row in found], 1 / (1 + np.exp(-scores)), rtol=1e-12)


def test_a_query_that_people_can_read():
    age, sex = Axis(0, "age", [30.0], None, True), Axis(1, "sex", [], (("f",), ("m", "x")), False)
    values = np.array([[0.1, 0.1], [-0.5, 0.3], [0.25, 0.25]])
    labels = [[0, 0], [1, 2], [3, 3]]
    term = PairTerm("age & sex", (age, sex), values, np.full((3, 2), 1 / 6), np.ones((3, 2)), labels)
    model = AdditiveModel((term,), 2.0, get_loss("squared_error"), None, None, 2, ("age", "sex"))
    assert (
        model.to_sql("t")
        == """\
SELECT *,
  2.0
  + CASE
      WHEN "t"."age" IS NULL THEN
        CASE
          WHEN "t"."sex" IS NULL THEN 0.0
          WHEN "t"."sex" NOT IN ('f', 'm', 'x') THEN 0.0
          ELSE 0.25
        END
      WHEN "t"."sex" IS NULL THEN 0.0
      WHEN "t"."sex" NOT IN ('f', 'm', 'x') THEN 0.0
      ELSE
        CASE
          WHEN "t"."age" <= 30.0 THEN 0.1
          ELSE
            CASE
              WHEN "t"."sex" IN ('f') THEN -0.5
              ELSE 0.3
            END
        END
    END AS "score"
FROM "t\""""
    )


# ONNX -----------------------------------------------------------------------------------------------------


def run_onnx(model, rows):
    onnxruntime = pytest.importorskip("onnxruntime", reason="the graph is run in onnxruntime")
    proto = model.to_onnx()
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = {}
    for put in session.get_inputs():
        column, is_text = [row[put.name] for row in rows], put.type == "tensor(string)"
        gap = "" if is_text else np.nan
        feed[put.name] = np.array([[gap if v is None else v] for v in column], dtype=object if is_text else np.float64)
    return dict(zip([out.name for out in session.get_outputs()], session.run(None, feed), strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_onnx_gives_the_scores(kind, seed):
    model = make_pair_model(seed, **KINDS[kind])
    rows = rows_for_pairs(model, np.random.default_rng(seed))
    expected = model.decision_function(as_array(rows, model), on_unseen="ignore").reshape(len(rows), -1)
    np.testing.assert_allclose(run_onnx(model, rows)["score"], expected, rtol=1e-12, atol=1e-12)


@settings(deadline=None, max_examples=20)
@given(pairs())
def test_any_pair_in_onnx(drawn):
    term, rng = drawn
    model = model_of(term, rng)
    rows = rows_for_pairs(model, rng, 100)
    expected = model.decision_function(as_array(rows, model), on_unseen="ignore").reshape(len(rows), -1)
    np.testing.assert_allclose(run_onnx(model, rows)["score"], expected, rtol=1e-12, atol=1e-12)


def test_onnx_refuses_a_column_of_two_types():
    first = Axis(0, "a", [1.0], None, False)
    shares = np.full((2, 1), 0.5)
    one = PairTerm("a & b", (first, Axis(1, "b", [], (("x",),), False)), shares, shares, shares, [[0], [0]])
    other = PairTerm("a & c", (first, Axis(2, "c", [], None, False)), shares, shares, shares, [[0], [0]])
    third = PairTerm("b & c", (Axis(1, "b", [1.0], None, False), other.axes[1]), shares, shares, shares, [[0], [0]])
    model = AdditiveModel((one, other, third), 0.0, get_loss("squared_error"), None, None, 3, ("a", "b", "c"))
    with pytest.raises(ValueError, match="column 'b' is text in one term and a number in another"):
        model.to_onnx()


# Tables for people ----------------------------------------------------------------------------------------


def people():
    """A model of age and hours with one main and a pair in four rectangles, of which one is missing ages."""
    age, hours = Axis(0, "age", [30.0, 45.0], None, True), Axis(1, "hours", [50.0], None, False)
    labels = np.array([[0, 0], [1, 2], [1, 2], [3, 3]])
    counts = np.array([[10, 5], [20, 6], [30, 4], [15, 10]])
    sums = np.column_stack([counts.ravel() * 0.75, counts.ravel() * 0.25])
    values = np.array([0.0, -0.2, 0.4, 0.1])[labels]
    term = PairTerm("age & hours", (age, hours), values, counts / 100, counts, labels, target_sums=sums)
    main = Term("age", (0,), "numeric", [40.0], None, [-0.1, 0.3], None, [0.6, 0.4], [60, 40], [30, 50], [0, 2])
    return AdditiveModel((main, term), -1.0, get_loss("log_loss"), ["no", "yes"], "buys", 2, ("age", "hours"))


def test_a_frame_has_a_row_for_each_rectangle():
    frame = people().to_frame(points=(600, 50, 20))
    pair = frame[frame["term"] == "age & hours"]
    assert pair["range"].tolist() == ["age <= 30", "age > 30 and hours <= 50", "age > 30 and hours > 50", "age missing"]
    assert pair["kind"].unique().tolist() == ["rectangle"]
    np.testing.assert_array_equal(pair["value"], [0.0, -0.2, 0.4, 0.1])
    np.testing.assert_array_equal(pair["lower"], [-np.inf, 30.0, 30.0, np.nan])
    np.testing.assert_array_equal(pair["upper"], [30.0, np.inf, np.inf, np.nan])
    np.testing.assert_array_equal(pair["lower_2"], [-np.inf, -np.inf, 50.0, -np.inf])
    np.testing.assert_array_equal(pair["upper_2"], [np.inf, 50.0, np.inf, np.inf])
    np.testing.assert_allclose(pair["rows"], [15, 50, 10, 25])
    np.testing.assert_allclose(pair["share"], [0.15, 0.5, 0.1, 0.25])
    np.testing.assert_allclose(pair["positive_share"], 0.25)
    np.testing.assert_allclose(pair["odds_ratio"], np.exp(pair["value"]))
    assert "lower_2" not in people().drop("age & hours").to_frame()
    alone = replace(people(), terms=people().terms[1:]).to_frame()
    assert alone["rows"][0] == 100


def test_a_frame_of_a_surface_has_a_row_for_each_cell():
    model = people()
    surface = replace(model.terms[1], labels=np.arange(8).reshape(4, 2))
    frame = replace(model, terms=(surface,)).to_frame()
    assert frame["kind"].tolist() == ["intercept"] + ["cell"] * 8
    assert frame["range"][3] == "age (30, 45] and hours <= 50"


@settings(deadline=None, max_examples=30)
@given(pairs(n_outputs=1), st.booleans())
def test_points_of_rectangles_add_up(drawn, use_rows):
    term, rng = drawn
    sums = np.ones((term.weights.size, 2)) if term.target_sums.size else np.empty((0, 0))
    model = model_of(replace(term, target_sums=sums), rng, loss="log_loss", classes=["a", "b"])
    X = frame_for(model, rng)
    rows = (X, rng.choice(["a", "b"], len(X))) if use_rows else ()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rbr.UnseenWarning)
        card = model.scorecard((600, 50, 20), *rows)
        points = card.points(X)
    frame = card.to_frame()
    assert frame["points"].dtype.kind == "i"
    base, factor = card.scale.base, card.scale.factor
    exact = base + factor * card.model.decision_function(X, on_unseen="ignore")
    np.testing.assert_allclose(points, exact, atol=1e-6)
    own = frame[frame["term"] == term.name]["points"].to_numpy()
    rounded = card.model.terms[2]
    np.testing.assert_allclose(own, [factor * piece.value for piece in rounded.pieces], atol=1e-6)
    # Every rectangle stays one, within a point of its exact value.
    np.testing.assert_array_equal(rounded.labels, term.labels)
    assert np.abs(factor * (rounded.values - term.values)).max() < 1 + 1e-9


# Reasons --------------------------------------------------------------------------------------------------


def test_reasons_name_both_columns():
    told = people().explain_row({"age": 50, "hours": 60.0})
    reason = told.reasons[0]
    assert (reason.term, reason.value, reason.range) == ("age & hours", (50.0, 60.0), "age > 30 and hours > 50")
    assert reason.text == (
        "age is 50 and hours is 60, age > 30 and hours > 50: raises the log-odds of yes by 0.4 (odds times 1.49)"
    )
    missing = people().explain_row({"age": None, "hours": 20.0}).reasons[0]
    assert missing.text.startswith("age is missing and hours is 20, age missing: raises")
    assert missing.value == (None, 20.0)


def test_reasons_of_categories():
    model = make_pair_model(2)
    row = dict.fromkeys(model.feature_names_in_, 1.0) | {"text; DROP TABLE": "it's", "numbers": 3}
    told = {reason.term: reason for reason in model.explain_row(row, n=None, offset=1.0).reasons}
    assert told["text; DROP TABLE & numbers"].value == ("it's", 3)
    assert told["text; DROP TABLE & numbers"].text.startswith("text; DROP TABLE is it's and numbers is 3, ")


# Data that have changed -----------------------------------------------------------------------------------


def made_model(rng, n=4000):
    a, b = rng.normal(size=n), rng.normal(size=n)
    a[rng.random(n) < 0.1] = np.nan
    axes = (Axis(0, "a", np.linspace(-1, 1, 15), None, True), Axis(1, "b", np.linspace(-1, 1, 15), None, False))
    cells = np.where(np.isnan(a), 16, np.searchsorted(axes[0].edges, a)) * 16 + np.searchsorted(axes[1].edges, b)
    counts = np.bincount(cells, minlength=17 * 16).reshape(17, 16)
    labels = guillotine((17, 16), 6, rng)
    term = PairTerm("a & b", axes, rng.normal(size=6)[labels], counts / n, counts, labels)
    return AdditiveModel((term,), 0.5, get_loss("squared_error"), None, None, 2, ("a", "b"))


def test_the_same_rows_have_not_changed():
    rng = np.random.default_rng(0)
    model = made_model(rng)
    fresh = rng.normal(size=(3000, 2))
    fresh[rng.random(3000) < 0.1, 0] = np.nan
    report = model.check(fresh)
    assert report.ok and report.terms[0].columns == (0, 1)
    assert report.terms[0].missing == pytest.approx(np.isnan(fresh[:, 0]).mean())
    term = model.terms[0]
    assert report.terms[0].missing_in_training == pytest.approx(term.weights[-1].sum())
    assert report.terms[0].effect == pytest.approx(model.explain(fresh).mean())
    assert report.terms[0].effect_in_training == pytest.approx((term.weights * term.values).sum())


def test_a_change_of_both_columns_together_is_found():
    """Each column alone is as before; only that they move together is new."""
    rng = np.random.default_rng(1)
    model = made_model(rng)
    x = rng.normal(size=3000)
    together = np.column_stack([x, x])
    together[rng.random(3000) < 0.1, 0] = np.nan
    report = model.check(together)
    assert report.terms[0].psi > 0.25 and "the distribution has changed" in report.changes[0]
    assert "a & b" in report.summary()


def test_groups_are_of_neighbouring_cells():
    term = made_model(np.random.default_rng(0)).terms[0]
    path = np.array(np.unravel_index(path_through(term), (18, 18)))
    assert sorted(map(tuple, path.T.tolist())) == [(i, j) for i in range(16) for j in range(16)]
    assert (np.abs(np.diff(path, axis=1)).sum(axis=0) == 1).all()


def test_missing_and_unknown_values_are_found():
    rng = np.random.default_rng(2)
    axes = (make_axis(0, "a", rng), make_axis(1, "b", rng, kind="category", missing=False))
    term = make_pair(axes, rng)
    model = AdditiveModel((term,), 0.0, get_loss("squared_error"), None, None, 2, ("a", "b"))
    X = pd.DataFrame({"a": rng.normal(size=100), "b": ["plain"] * 100})
    X.loc[:59, "b"] = "new"
    X.loc[60:79, "b"] = None
    (found,) = model.check(X).terms
    assert (found.unseen, found.levels) == (0.6, ("new",))
    assert found.missing == pytest.approx(0.2) and found.missing_in_training == pytest.approx(term.weights[-1].sum())
    assert any("hold categories that training did not have ('new')" in text for text in found.changes)


@settings(deadline=None, max_examples=30)
@given(pairs())
def test_any_pair_can_be_checked(drawn):
    term, rng = drawn
    model = model_of(term, rng)
    X = frame_for(model, rng)
    found = model.check(X).terms[2]
    np.testing.assert_allclose(
        np.atleast_1d(found.effect), np.mean([added(term, row) for row in X.to_numpy(dtype=object)], axis=0), atol=1e-12
    )
    assert found.psi >= 0 and 0 <= found.missing <= 1 and 0 <= found.unseen <= 1
