"""Models of solutions whose tables look at two columns: what `rbr.solve` finds with rectangles and surfaces."""

import json
import sqlite3

import matplotlib
import numpy as np
import pandas as pd
import pytest

import rbr
from rbr.data.grids import with_pairs
from rbr.model import AdditiveModel, PairTerm

matplotlib.use("Agg")
PAIRS = [(0, 1), (1, 2), (0, 2)]


def made(n=600):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n), "c": rng.choice(list("uvwxyz"), n)})
    X.loc[rng.random(n) < 0.1, "b"] = np.nan
    score = 2.0 * (X.a > 0) * (X.b.fillna(0.0) > 0.3) + (X.c.isin(["u", "x"]) & (X.a < 0.5))
    return X, score.to_numpy(), rng


def solved(shape, loss):
    X, score, rng = made()
    y = {
        "squared_error": score + 0.1 * rng.normal(size=len(X)),
        "log_loss": (rng.random(len(X)) < 1 / (1 + np.exp(1 - 3 * score))).astype(float),
        "multinomial": np.digitize(score + 0.5 * rng.normal(size=len(X)), [0.5, 1.5]).astype(float),
    }[loss]
    binner = rbr.Binner(max_bins=12)
    B = with_pairs(binner.fit_transform(X), PAIRS, max_bins=8, categories=[2])
    shapes = ["constant"] * 3 + [shape] * 3
    constraints = rbr.Constraints(shape=shapes, max_segments=5, jump_cost=0.3, smoothness=0.5)
    s = rbr.solve(B, y, loss=loss, constraints=constraints, max_iter=30)
    classes = {"log_loss": [0, 1], "multinomial": [0, 1, 2]}.get(loss)
    return X, B, s, AdditiveModel.from_solution(binner, s, classes=classes, target="y")


@pytest.mark.parametrize("shape", ["rectangles", "surface"])
@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "multinomial"])
def test_scores_files_and_explanations_are_those_of_the_solution(shape, loss):
    X, B, s, model = solved(shape, loss)
    pairs = [term for term in model.terms if isinstance(term, PairTerm)]
    assert [term.columns for term in pairs] == sorted(B.columns_of(j) for j in s.support if j >= 3) and pairs
    expected = s.intercept + B.matvec(s.f)
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-9)
    assert AdditiveModel.from_dict(json.loads(json.dumps(model.to_dict()))) == model
    own = model.explain(X)
    np.testing.assert_allclose(own.sum(axis=1) + model.intercept, expected, atol=1e-9)
    assert all(term.loss_drop > 0 for term in pairs)
    for term in pairs:
        assert term.counts.sum() == pytest.approx(len(X))
        assert term.is_surface or (shape == "rectangles" and 1 < term.n_pieces <= 3 * 5)


def test_queries_and_pictures_tell_the_pairs_of_a_solution():
    X, _, _, model = solved("rectangles", "squared_error")
    base = sqlite3.connect(":memory:")
    X.to_sql("rows", base, index=False)
    found = base.execute(model.to_sql(table="rows")).fetchall()
    np.testing.assert_allclose([row[-1] for row in found], model.predict(X), atol=1e-9)
    panels = model.plot()
    assert "a & b" in [panel.get_title(loc="left") for panel in panels]


def test_pairs_of_a_matrix_are_made_with_the_same_bins():
    X, *_ = made()
    B = rbr.Binner(max_bins=12).fit_transform(X)
    once = with_pairs(B, PAIRS[:1], max_bins=8, categories=[2])
    twice = with_pairs(once, PAIRS[1:], max_bins=8, categories=[2])
    np.testing.assert_array_equal(twice.coarse[: B.n_coef], once.coarse[: B.n_coef])
    with pytest.raises(ValueError, match="pairs with other bins along their sides"):
        with_pairs(once, PAIRS[1:], max_bins=4, categories=[2])
    with pytest.raises(ValueError, match=r"coarse has shape \(2,\).*each of the 3 bins"):
        rbr.BinnedMatrix([[0, 1, 2]], [0, 3], coarse=[0, 1])
    np.testing.assert_array_equal(once[:10].coarse, once.coarse)
