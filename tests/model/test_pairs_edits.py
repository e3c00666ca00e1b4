"""Edits of terms of two columns."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from models import make_model
from pairs import added, frame_for, make_pair_model, model_of, pairs

from rbr.losses import get_loss
from rbr.model import AdditiveModel, Axis, PairTerm

NAME = "age & kind of work"


def small(labels=((0, 0), (1, 2), (1, 3)), n_outputs=1):
    axes = Axis(0, "age", [30.0, 45.0], None, False), Axis(1, "hours", [50.0], None, False)
    labels = np.array(labels)
    values = np.arange(1.0, 9.0)[labels]
    values = values if n_outputs == 1 else np.stack([values] * n_outputs, axis=-1)
    counts = np.array([[1, 2], [3, 4], [5, 6]])
    term = PairTerm("pair", axes, values, counts / 21, counts, labels, loss_drop=0.5, gain=0.25)
    loss, intercept = ("squared_error", 0.5) if n_outputs == 1 else ("multinomial", np.zeros(n_outputs))
    return AdditiveModel((term,), intercept, get_loss(loss), None, None, 2, ("age", "hours"), training_loss=1.0)


@settings(deadline=None)
@given(pairs())
def test_setting_a_rectangle_changes_its_rows_and_no_others(drawn):
    term, rng = drawn
    model = model_of(term, rng)
    k = int(rng.integers(len(term.pieces)))
    edited = model.set_piece(NAME, k, 7.5)
    X = frame_for(model, rng)
    before, after = (m.explain(X, on_unseen="ignore")[:, 2].reshape(len(X), -1) for m in (model, edited))
    marked = model.set_piece(NAME, k, 1e9).explain(X, on_unseen="ignore")[:, 2].reshape(len(X), -1) == 1e9
    assert (after[marked] == 7.5).all() and (after[~marked] == before[~marked]).all()
    assert edited == model.set_rectangle(NAME, k, 7.5) == model.set_piece(2, k - len(term.pieces), 7.5)
    assert [piece.cells for piece in edited[NAME].pieces] == [piece.cells for piece in term.pieces]
    assert math.isnan(edited[NAME].gain) and math.isnan(edited[NAME].loss_drop) and model[NAME] == term


def test_values_by_class():
    model = small(n_outputs=3)
    assert model.set_rectangle("pair", 1, [1.0, 2.0, 3.0])["pair"].pieces[1].value == (1.0, 2.0, 3.0)
    assert model.set_rectangle("pair", 1, 4.0)["pair"].pieces[1].value == (4.0, 4.0, 4.0)
    for value in ([1.0, 2.0], math.inf, "much"):
        with pytest.raises(ValueError, match="a finite number, or 3 of them, one per class"):
            model.set_rectangle("pair", 1, value)
    with pytest.raises(ValueError, match=r"value is \[1.0\]; it must be a finite number$"):
        small().set_rectangle("pair", 1, [1.0])


@settings(deadline=None)
@given(pairs())
def test_merged_rectangles_keep_the_mean_of_the_term(drawn):
    term, rng = drawn
    if len(term.pieces) < 3:
        return
    model = model_of(term, rng)
    chosen = sorted(rng.choice(len(term.pieces), 2, replace=False).tolist())
    merged = model.merge(NAME, chosen)[NAME]
    assert len(merged.pieces) == len(term.pieces) - 1
    mean = [term.weights.ravel() @ own.all_values for own in (term, merged)]
    np.testing.assert_allclose(mean[0], mean[1], atol=1e-9)
    cells = {cell for k in chosen for cell in term.pieces[k].cells}
    (found,) = [piece for piece in merged.pieces if set(piece.cells) == cells]
    weights = [term.pieces[k].weight for k in chosen]
    if sum(weights):
        values = [np.atleast_1d(term.pieces[k].value) for k in chosen]
        np.testing.assert_allclose(np.atleast_1d(found.value), np.average(values, axis=0, weights=weights), atol=1e-9)
    others = [piece for k, piece in enumerate(term.pieces) if k not in chosen]
    assert [p.value for p in others] == [p.value for p in merged.pieces if set(p.cells) != cells]


def test_a_union_that_is_no_rectangle_is_one_piece():
    merged = small().merge("pair", [0, 1])["pair"]
    assert [(piece.kind, piece.text) for piece in merged.pieces] == [
        ("cells", "age <= 30 or age > 30 and hours <= 50"),
        ("rectangle", "age (30, 45] and hours > 50"),
        ("rectangle", "age > 45 and hours > 50"),
    ]
    assert merged.pieces[0].value == pytest.approx((1 * 3 + 2 * 8) / 11)
    whole = small().merge("pair", [2, 3])["pair"]
    assert whole.pieces[2].kind == "rectangle" and whole.pieces[2].text == "age > 30 and hours > 50"
    assert len(whole.compressed().axes[0].edges) == 1


def test_zero_drop_and_recentre():
    model = make_pair_model(1)
    name = model.terms[-1].name
    zeroed = model.zero(name)
    assert zeroed[name].range == (0.0, 0.0) and len(zeroed[name].pieces) == 1
    assert [t.name for t in model.drop(name).terms] == [t.name for t in model.terms[:-1]]
    rng = np.random.default_rng(0)
    X = frame_for(model, rng)
    np.testing.assert_allclose(
        model.drop(name).predict(X, on_unseen="ignore"), zeroed.predict(X, on_unseen="ignore"), atol=1e-12
    )


@settings(deadline=None)
@given(pairs())
def test_recentring_keeps_the_scores_of_known_rows(drawn):
    term, rng = drawn
    model = model_of(term, rng)
    centred = model.recentre()
    own = centred[NAME]
    np.testing.assert_allclose(own.weights.ravel() @ own.all_values, 0.0, atol=1e-12)
    assert (own.loss_drop, own.gain) == (term.loss_drop, term.gain)
    X = frame_for(model, rng)
    rows = X.astype(object).where(X.notna(), None).to_numpy().tolist()
    known = [k for k, row in enumerate(rows) if np.any(added(term.numbered(), row))]
    scores = [m.decision_function(X.iloc[known], on_unseen="ignore") for m in (model, centred) if known]
    if known:
        np.testing.assert_allclose(scores[0], scores[1], atol=1e-10)


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda m: m.smooth("pair"), "looks at two columns; only numeric terms of one column can be smoothed"),
        (lambda m: m.make_monotone("pair"), "only numeric terms of one column can be made monotone"),
        (lambda m: m.set_piece("pair", 4, 0.0), "piece is 4; term 'pair' has the rectangles 0 to 3"),
        (lambda m: m.set_piece("pair", True, 0.0), "piece is True"),
        (lambda m: m.set_piece("pair", "missing", 0.0), "missing values of term 'pair' are rectangles of their own"),
        (lambda m: m.merge("pair", [1, 1]), "at least two must be merged"),
        (lambda m: m.merge("pair", [1, 9]), "piece is 9"),
        (lambda m: make_model(0).set_rectangle("b", 0, 1.0), "looks at one column; rectangles are those of pairs"),
    ],
)
def test_errors(edit, problem):
    with pytest.raises(ValueError, match=problem):
        edit(small())


def test_an_edit_forgets_what_was_measured():
    model = small()
    assert math.isnan(model.set_rectangle("pair", 0, 9.0).training_loss) and model.training_loss == 1.0
    assert "gain" in model.summary() and "gain" not in model.zero("pair").summary()
