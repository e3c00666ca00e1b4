"""Terms of two columns: what they add, how they read, and that they survive files and pickles."""

import copy
import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from models import make_term
from pairs import NAMES, added, bin_of, frame_for, make_axis, make_pair, make_pair_model, model_of, pairs

import rbr
from rbr.losses import get_loss
from rbr.model import AdditiveModel, Axis, PairTerm

AGE = Axis(0, "age", [30.0, 45.0], None, True)
HOURS = Axis(1, "hours", [50.0], None, False)
SEX = Axis(1, "sex", [], (("f",), ("m", "x")), True)


def grid(shape, labels=None, **fields):
    """A pair over AGE and the axis of that width, whose value is a tenth of the label."""
    labels = np.arange(math.prod(shape)).reshape(shape) if labels is None else np.array(labels)
    counts = np.arange(1, labels.size + 1).reshape(shape)
    second = HOURS if shape[1] == 2 else SEX
    whole = {"values": labels / 10, "weights": counts / counts.sum(), "counts": counts, "labels": labels}
    return PairTerm(f"age & {second.name}", (AGE, second), **{**whole, **fields})


def plain(X):
    """A frame of numbers and text as rows of Python values."""
    return X.astype(object).where(X.notna(), None).to_numpy().tolist()


# What they add --------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(pairs())
def test_a_pair_adds_what_its_cell_says(drawn):
    term, rng = drawn
    model = model_of(term, rng)
    X = frame_for(model, rng)
    expected = np.array([added(term, row) for row in plain(X)])
    contributions = model.explain(X, on_unseen="ignore").reshape(len(X), 3, -1)
    np.testing.assert_array_equal(contributions[:, 2], expected)
    scores = model.decision_function(X, on_unseen="ignore").reshape(len(X), -1)
    np.testing.assert_allclose(scores, model.intercept + contributions.sum(axis=1), rtol=1e-12, atol=1e-12)


@settings(deadline=None, max_examples=25)
@given(pairs())
def test_every_kind_of_table_gets_the_same_bits(drawn):
    term, rng = drawn
    model = model_of(term, rng)
    X = frame_for(model, rng)
    expected = model.decision_function(X, on_unseen="ignore")
    shuffled = X[["kind of work", "last", "third", "age", "first"]].assign(other="unused")
    tables = [shuffled, pl.from_pandas(X), X.to_numpy(dtype=object)]
    if all(axis.kind == "numeric" for axis in term.axes):
        array = X.to_numpy(dtype=np.float64)
        array.flags.writeable = False
        tables += [array, np.asfortranarray(array), np.repeat(array, 2, axis=1)[:, ::2], scipy.sparse.csc_array(array)]
    for table in tables:
        np.testing.assert_array_equal(model.decision_function(table, on_unseen="ignore"), expected)
    for n_jobs in (2, 7):
        many = pd.concat([X] * 4000, ignore_index=True)
        scores = model.decision_function(many, on_unseen="ignore", n_jobs=n_jobs)
        np.testing.assert_array_equal(scores[: len(X)], expected)
        np.testing.assert_array_equal(scores[-len(X) :], expected)


def test_float32_rows_are_compared_as_the_numbers_they_are():
    third = float(np.float32(1 / 3))
    first = Axis(0, "a", [third], None, False)
    term = PairTerm(
        "a & b", (first, Axis(1, "b", [], None, False)), [[1.0], [2.0]], [[0.5], [0.5]], [[1], [1]], [[0], [1]]
    )
    model = AdditiveModel((term,), 0.0, get_loss("squared_error"), None, None, 2, None)
    X = np.array([[1 / 3, 0.0], [np.nextafter(np.float32(1 / 3), np.float32(1)), 0.0]], dtype=np.float32)
    assert model.predict(X).tolist() == [1.0, 2.0]
    assert model.predict([[1 / 3, 0.0]]).tolist() == [1.0]
    assert model.predict([[np.nextafter(third, 1), 0.0]]).tolist() == [2.0]


@settings(deadline=None)
@given(pairs())
def test_unseen_values_are_counted_on_both_axes(drawn):
    term, rng = drawn
    model = model_of(term, rng)
    X = frame_for(model, rng)
    count = model.count_unseen(X)[2]
    n_unknown = n_missing = 0
    unknown = set()
    for row in plain(X):
        sides = [(axis, row[axis.column]) for axis in term.axes if bin_of(axis, row[axis.column]) is None]
        gaps = [x is None for _, x in sides]
        n_missing += any(gaps)
        n_unknown += not all(gaps)
        unknown |= {x for _, x in sides if x is not None}
    assert (count.n_rows, count.n_unseen, count.n_missing) == (len(X), n_unknown, n_missing)
    assert set(count.levels) == unknown and count.columns == (1, 3)
    if n_unknown or n_missing:
        with pytest.raises(rbr.UnseenError, match="columns 'age & kind of work': "):
            model.predict(X, on_unseen="raise")


def test_a_model_of_pairs_alone():
    term = grid((4, 2))
    model = AdditiveModel((term,), 1.0, get_loss("squared_error"), None, None, 2, ("age", "hours"))
    assert repr(model) == "AdditiveModel(squared_error, 1 term (1 pair) of 2 features, 8 pieces)"
    X = [[30.0, 50.0], [30.5, 50.5], [np.nan, 0.0], [99.0, np.inf]]
    assert model.predict(X).tolist() == [1.0, 1.3, 1.6, 1.5]
    with pytest.warns(rbr.UnseenWarning, match="1 of 1 rows are missing"):
        assert model.predict([[20.0, np.nan]]).tolist() == [1.0]


# How they read --------------------------------------------------------------------------------------------


def test_rectangles_in_words():
    term = grid((4, 2), [[0, 0], [1, 2], [1, 3], [4, 4]])
    assert [piece.text for piece in term.pieces] == [
        "age <= 30",
        "age > 30 and hours <= 50",
        "age (30, 45] and hours > 50",
        "age > 45 and hours > 50",
        "age missing",
    ]
    first, second, third, _, last = term.pieces
    assert (first.low, first.high, first.has_missing) == ((-math.inf, -math.inf), (30.0, math.inf), (False, False))
    assert second.cells == second.bins == (2, 4) and second.value == 0.1
    assert second.weight == pytest.approx((3 + 5) / 36)
    assert (third.low, third.high) == ((30.0, 50.0), (45.0, math.inf))
    assert (last.low, last.high, last.has_missing) == ((None, -math.inf), (None, math.inf), (True, False))
    assert {piece.kind for piece in term.pieces} == {"rectangle"}
    assert repr(term) == "PairTerm('age & hours', 4 x 2 cells, 5 rectangles)"


def test_categories_and_missing_values_in_words():
    term = grid((4, 3), [[0, 1, 2], [0, 1, 2], [0, 1, 2], [3, 3, 2]])
    assert [piece.text for piece in term.pieces] == [
        "age not missing and sex f",
        "age not missing and sex m or x",
        "sex missing",
        "age missing and sex not missing",
    ]
    assert term.pieces[1].categories == (None, ("m", "x")) and term.pieces[2].has_missing == (True, True)
    assert grid((4, 3), np.zeros((4, 3), dtype=int)).pieces[0].text == "everywhere"
    joined = grid((4, 3), [[0, 0, 0], [0, 0, 0], [1, 1, 1], [1, 1, 1]])
    assert [piece.text for piece in joined.pieces] == ["age <= 45", "age > 45 or missing"]


def test_cells_that_are_no_rectangle_are_told_one_after_the_other():
    ell = grid((4, 2), [[0, 0], [0, 1], [0, 1], [2, 2]])
    piece = ell.pieces[0]
    assert piece.kind == "cells" and piece.text == "age <= 30 or age > 30 and hours <= 50"
    assert piece.low == piece.high == piece.categories == (None, None)
    apart = grid((4, 2), [[0, 0], [1, 1], [0, 0], [1, 1]])
    assert [piece.text for piece in apart.pieces] == ["age <= 30 or age > 45", "age (30, 45] or missing"]
    ends = grid((4, 2), [[0, 0], [1, 1], [0, 0], [0, 0]])
    assert ends.pieces[0].text == "age <= 30 or age > 45 or missing"


def test_many_levels_are_not_all_listed():
    axis = Axis(1, "town", [], (tuple(f"t{k}" for k in range(100)), ("u",)), False)
    term = PairTerm("age & town", (AGE, axis), *[np.full((4, 2), 0.125)] * 3, labels=[[0, 1]] * 4)
    assert [piece.text for piece in term.pieces] == ["town t0, t1, t2, t3 or 96 more", "town u"]
    assert len(term.pieces[0].categories[1]) == 100


@settings(deadline=None)
@given(pairs())
def test_rectangles_hold_exactly_their_rows(drawn):
    """What a rectangle says of a row's ranges and levels must agree with the value that the row gets."""
    term, rng = drawn
    X = frame_for(model_of(term, rng), rng)
    assert sorted(cell for piece in term.pieces for cell in piece.cells) == list(range(term.weights.size))
    for row in plain(X):
        inside = [
            piece for piece in term.pieces if all(_is_inside(piece, k, row[a.column]) for k, a in enumerate(term.axes))
        ]
        if any(bin_of(axis, row[axis.column]) is None for axis in term.axes):
            assert not inside
        else:
            (piece,) = inside
            np.testing.assert_array_equal(np.atleast_1d(piece.value), added(term, row))
    assert sum(piece.weight for piece in term.pieces) == pytest.approx(1.0)


def _is_inside(piece, k, x):
    if x is None:
        return piece.has_missing[k]
    if piece.categories[k] is not None:
        return x in piece.categories[k]
    return piece.low[k] is not None and (piece.low[k] < x <= piece.high[k] or x == piece.low[k] == -math.inf)


def test_importance_range_and_jumps():
    term = grid((4, 2), [[0, 0], [1, 2], [1, 3], [4, 4]])
    assert term.importance == pytest.approx((0.1 * 8 + 0.2 * 4 + 0.3 * 6 + 0.4 * 15) / 36)
    assert term.range == (0.0, 0.4) and term.jumps == () and term.missing_value is None
    with pytest.raises(AttributeError, match="there are \\(0, 1\\); read `columns`"):
        term.feature  # noqa: B018
    model = AdditiveModel((term,), 0.0, get_loss("squared_error"), None, None, 2, None)
    assert model.importances[0].columns == (0, 1) and model.jumps() == () and model.n_pieces == 5
    estimator = model.to_estimator()
    assert estimator.selected_features_.tolist() == [0, 1]
    np.testing.assert_allclose(estimator.feature_importances_, [term.importance / 2] * 2)


def test_summary_shows_rectangles_cells_and_gains():
    few = grid((4, 2), [[0, 0], [1, 2], [1, 3], [4, 4]], gain=0.0123)
    model = AdditiveModel((few,), 0.0, get_loss("squared_error"), None, None, 2, None)
    assert model.summary().splitlines()[-1].split() == "age & hours pair 5 +0 to +0.4 0.261 0.0123".split()
    assert model.summary().splitlines()[2].endswith("gain")
    surface = replace(model, terms=(grid((4, 2)),))
    assert "4 x 2 cells" in surface.summary() and "gain" not in surface.summary()
    assert "4 x 2 cells, " in surface._repr_html_()


# Compression ----------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(pairs())
def test_compression_changes_no_prediction_and_loses_no_row(drawn):
    term, rng = drawn
    small = term.compressed()
    X = frame_for(model_of(term, rng), rng)
    for row in plain(X):
        np.testing.assert_array_equal(added(small, row), added(term, row))
    assert small.compressed() is small
    assert [p.value for p in small.pieces] == [p.value for p in term.pieces]
    if all(axis.kind == "category" for axis in term.axes):  # fewer edges may be told with fewer digits
        assert [p.text for p in small.pieces] == [p.text for p in term.pieces]
    np.testing.assert_allclose([p.weight for p in small.pieces], [p.weight for p in term.pieces], atol=1e-15)
    for name in ("counts", "weights", "target_sums", "exposures"):
        np.testing.assert_allclose(getattr(small, name).sum(), getattr(term, name).sum(), atol=1e-12)
    assert [axis.has_missing for axis in small.axes] == [axis.has_missing for axis in term.axes]


def test_compression_drops_the_cuts_that_nothing_needs():
    first = Axis(0, "a", [1.0, 2.0, 3.0], None, True)
    second = Axis(1, "b", [], (("p",), ("q", "r"), ("s",)), False)
    labels = np.array([[0, 0, 1], [0, 0, 1], [2, 2, 2], [2, 2, 2], [2, 2, 2]])
    counts = np.arange(15).reshape(5, 3)
    sums = np.arange(15.0)[:, None] * [1, 10]
    term = PairTerm("a & b", (first, second), labels + 1.0, counts / 105, counts, labels, target_sums=sums)
    small = term.compressed()
    assert small.axes[0].edges.tolist() == [2.0] and small.axes[1].groups == (("p", "q", "r"), ("s",))
    assert small.labels.tolist() == [[0, 1], [2, 2], [2, 2]]
    assert small.counts.tolist() == [[0 + 1 + 3 + 4, 2 + 5], [6 + 7 + 9 + 10, 8 + 11], [12 + 13, 14]]
    np.testing.assert_array_equal(small.target_sums[:, 0], small.counts.ravel())
    np.testing.assert_array_equal(small.target_sums[:, 1], 10 * small.counts.ravel())


def test_rectangles_of_equal_values_stay_apart():
    labels = np.array([[0, 0], [1, 1], [1, 1], [1, 2]])
    term = grid((4, 2), labels, values=np.minimum(labels, 1) * 0.5)
    small = term.compressed()
    assert small.axes[0].edges.tolist() == [30.0] and small.axes[1].edges.tolist() == [50.0]
    assert len(small.pieces) == 3


# Values ---------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(pairs())
def test_pairs_are_values(drawn):
    term, _ = drawn
    for copied in (pickle.loads(pickle.dumps(term)), copy.deepcopy(term), replace(term)):
        assert copied == term and hash(copied) == hash(term)
        for name in ("values", "weights", "counts", "labels"):
            assert not getattr(copied, name).flags.writeable
    assert term != term.edited() and term != "term"
    assert term != replace(term, axes=(replace(term.axes[0], name="other"), term.axes[1]))
    assert term.axes[0] != term.axes[1] and pickle.loads(pickle.dumps(term.axes[0])) == term.axes[0]


def test_a_pair_does_not_follow_the_arrays_it_was_made_of():
    values = np.zeros((4, 2))
    term = grid((4, 2), values=values, labels=np.arange(8).reshape(4, 2))
    values[0, 0] = 5.0
    assert term.values[0, 0] == 0.0


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"values": np.zeros((2, 4))}, r"values has shape \(2, 4\); it must be \(4, 2\)"),
        ({"values": np.zeros(8)}, r"values has shape \(8,\)"),
        ({"values": np.zeros((4, 2, 0))}, r"values has shape \(4, 2, 0\)"),
        ({"values": np.full((4, 2), np.nan)}, "values holds a number that is not finite"),
        ({"weights": np.full((4, 2), -0.1)}, "weights must be at least 0"),
        ({"weights": np.zeros(8)}, r"weights has shape \(8,\)"),
        ({"counts": np.zeros((4, 3))}, r"counts has shape \(4, 3\)"),
        ({"labels": np.zeros((4, 2), dtype=int)}, "cells with the same label have two values"),
        ({"labels": np.full((4, 2), -1)}, "labels must be at least 0"),
        ({"axes": (AGE,)}, "it must be a pair of Axis"),
        ({"axes": (AGE, replace(HOURS, column=0))}, r"the columns \(0, 0\); they must increase"),
        ({"target_sums": np.zeros((7, 1))}, "target_sums has shape"),
        ({"exposures": np.zeros(7)}, "exposures has shape"),
        ({"name": 3}, "a name must be text"),
    ],
)
def test_parts_that_do_not_fit(changes, problem):
    with pytest.raises(ValueError, match=problem):
        replace(grid((4, 2)), **changes)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"edges": [1.0, 1.0]}, "edges 1.0 and 1.0 at 0 do not increase"),
        ({"edges": [np.inf]}, "a vector of finite numbers"),
        ({"edges": [[1.0]]}, "a vector of finite numbers"),
        ({"column": -1}, "column is -1"),
        ({"column": 1.0}, "column is 1.0"),
        ({"groups": (("a",),)}, "it has edges and groups"),
        ({"edges": [], "groups": ()}, "at least one group"),
        ({"edges": [], "groups": (("a",), ())}, "none of them empty"),
        ({"edges": [], "groups": (("a",), ("b", "a"))}, "a level occurs twice"),
        ({"name": None}, "a name must be text"),
    ],
)
def test_axes_that_do_not_fit(changes, problem):
    with pytest.raises(ValueError, match=problem):
        replace(AGE, **changes)


def test_mains_come_first_and_pairs_differ():
    rng = np.random.default_rng(0)
    pair, main = grid((4, 2)), make_term("hours", 1, rng)
    common = (0.0, get_loss("squared_error"), None, None, 2, None)
    assert AdditiveModel((main, pair), *common).n_pieces == len(main.pieces) + 8
    for terms in ((pair, main), (pair, pair)):
        with pytest.raises(ValueError, match="they must increase"):
            AdditiveModel(terms, *common)
    with pytest.raises(ValueError, match="has 3 score columns, the intercept 1"):
        AdditiveModel((make_pair((AGE, HOURS), rng, n_outputs=3),), *common)
    with pytest.raises(ValueError, match="looks at a column outside 0 to 1"):
        AdditiveModel((replace(pair, axes=(AGE, replace(HOURS, column=2))),), *common)


# Files ----------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=50)
@given(pairs())
def test_files_keep_every_bit(drawn):
    term, rng = drawn
    model = model_of(term, rng)
    again = AdditiveModel.from_dict(json.loads(json.dumps(model.to_dict())))
    assert again == model and again.terms[2] == term
    X = frame_for(model, rng)
    np.testing.assert_array_equal(again.predict(X, on_unseen="ignore"), model.predict(X, on_unseen="ignore"))


def test_files_of_models_with_pairs(tmp_path):
    model = make_pair_model(3)
    model.save(tmp_path / "m.json")
    assert rbr.load(tmp_path / "m.json") == model
    assert json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))["version"] == 5


def _set(key, value):
    return lambda term: term.__setitem__(key, value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_set("columns", [0]), "a pair has two integers"),
        (_set("columns", [0, True]), "a pair has two integers"),
        (_set("columns", [1, 0]), "they must increase"),
        (_set("axes", [{}]), "it has 1 axes"),
        (_set("axes", [{}, {}]), "axis of column 0 has no 'groups'"),
        (_set("labels", [[0, 1], [2]]), "the rows of labels differ in length"),
        (_set("labels", [0]), "labels must be rows of integers"),
        (_set("labels", [[0.5]]), "labels must be rows of integers"),
        (_set("values", [[1.0]]), "values has shape"),
        (_set("gain", "much"), "gain holds 'much'"),
        (_set("slopes", []), "has the unknown field 'slopes'"),
        (lambda term: term.pop("gain"), "has no 'gain'"),
        (lambda term: term["axes"][0].update(edges=["NaN", 1.0]), "finite numbers"),
        (lambda term: term["axes"][1].update(groups=["a"]), "a list of lists of levels"),
        (lambda term: term["axes"][1].update(groups=[[None]]), "None is no category"),
        (lambda term: term["axes"][1].update(column=1), "has the unknown field 'column'"),
    ],
)
def test_files_that_are_wrong(change, problem):
    model = AdditiveModel((grid((4, 2)),), 1.0, get_loss("squared_error"), None, None, 2, None)
    content = json.loads(json.dumps(model.to_dict()))
    change(content["terms"][0])
    with pytest.raises(ValueError, match=f"term 0.*{problem}|{problem}"):
        AdditiveModel.from_dict(content)


def test_pairs_need_version_5():
    content = AdditiveModel((grid((4, 2)),), 1.0, get_loss("squared_error"), None, None, 2, None).to_dict()
    with pytest.raises(ValueError, match="kind is 'pair', which files have from version 5 on"):
        AdditiveModel.from_dict({**content, "version": 4})


def test_infinite_levels_survive_files():
    axis = Axis(1, "b", [], ((1.5, math.inf), (-math.inf,)), False)
    term = PairTerm("age & b", (AGE, axis), *[np.full((4, 2), 0.125)] * 3, labels=[[0, 0]] * 4)
    model = AdditiveModel((term,), 1.0, get_loss("squared_error"), None, None, 2, NAMES[:2])
    assert AdditiveModel.from_dict(json.loads(json.dumps(model.to_dict()))) == model
    with pytest.raises(ValueError, match="has the category .* of type date"):
        when = replace(axis, groups=((pd.Timestamp("2020-01-01").date(),), ("x",)))
        replace(model, terms=(replace(term, axes=(AGE, when)),)).to_dict()


@given(st.integers(0, 1000))
@settings(deadline=None, max_examples=10)
def test_random_axes_are_valid(seed):
    """The generator of the other tests makes what it says."""
    rng = np.random.default_rng(seed)
    assert make_axis(0, "a", rng, kind="category", n_bins=3).n_ordered == 3
    assert make_axis(0, "a", rng, n_bins=4).n_bins == 5
