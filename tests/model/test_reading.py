"""What a person reads of a model: tables that add up to the score, whole points, reasons, names that survive."""

import itertools
import math
import re
import sys

import numpy as np
import pytest
import sklearn
from models import make_model

import rbr
from rbr import RBRClassifier, RBRRegressor
from rbr.model.frames import bins_of_rows
from rbr.model.scorecard import point_scale
from rbr.model.whole_points import Card, RowsCost, SharesCost

pd = pytest.importorskip("pandas")

KINDS = {
    "regression": {},
    "two classes": {"loss": "log_loss", "classes": np.array(["no", "yes"])},
    "three classes": {"loss": "multinomial", "classes": np.array([1, 2, 5]), "n_outputs": 3},
}


def people(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n).astype(float),
            "income": rng.lognormal(3, 1, n),
            "region": rng.choice(["north", "south", "east", "west"], n, p=[0.4, 0.3, 0.2, 0.1]),
        }
    )
    X.loc[rng.random(n) < 0.1, "age"] = np.nan
    score = np.where(X["age"].isna(), 1.0, 0.06 * (X["age"].fillna(0) - 50)) + 1.5 * (X["region"] == "south")
    return X, score.to_numpy(), rng


def new_rows(X, rng, n=300):
    """Rows with values at edges, beyond the range, missing and unknown."""
    rows = X.sample(n, random_state=1, replace=True).reset_index(drop=True)
    rows.loc[:20, "age"] = np.linspace(-10, 120, 21)
    rows.loc[21:25, "income"] = [np.nan, -5.0, 0.0, 1e6, np.inf]
    rows.loc[26:30, "region"] = ["moon", None, "south", "east", "west"]
    return rows


# Tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_has_every_piece(kind):
    model = make_model(2, **KINDS[kind])
    frame = model.to_frame()
    n_missing = sum(term.missing_value is not None for term in model.terms)
    assert len(frame) == 1 + model.n_pieces + n_missing
    assert frame["term"].iloc[0] == frame["kind"].iloc[0] == "intercept"
    values = [name for name in frame.columns if name.startswith("value")]
    assert len(values) == model.n_outputs
    np.testing.assert_array_equal(frame[values].iloc[0], np.atleast_1d(model.intercept))
    of_b = frame[frame["term"] == "b"]
    assert of_b["range"].tolist() == [piece.text for piece in model["b"].pieces]
    np.testing.assert_array_equal(of_b[values], [np.atleast_1d(piece.value) for piece in model["b"].pieces])
    assert of_b["lower"].tolist() == [piece.low for piece in model["b"].pieces]
    assert of_b["upper"].iloc[-1] == math.inf
    for term in model.terms:
        assert frame.loc[frame["term"] == term.name, "share"].sum() == pytest.approx(1)


def score_by_hand(frame, model, rows, value, slope):
    """The score of rows from nothing but the table."""
    total = np.full(len(rows), frame[value].iloc[0])
    for term in model.terms:
        own = frame[frame["term"] == term.name]
        for i, cell in enumerate(rows[term.name]):
            if pd.isna(cell):
                total[i] += own.loc[own["kind"] == "missing", value].sum()
                continue
            if term.kind == "category":
                inside = [cell in text.split(", ") for text in own["range"]]
            else:
                inside = (own["lower"] < cell) & (cell <= own["upper"]) | (own["lower"] == cell) & np.isneginf(cell)
            for _, piece in own[inside].iterrows():
                total[i] += piece[value]
                if piece["kind"] == "line":
                    x = np.clip(cell, piece["line_from"], piece["line_to"])
                    total[i] += piece[slope] * (x - piece["anchor"])
    return total


@pytest.mark.parametrize("options", [{"n_bags": 0}, {}, {"n_bags": 0, "position": "rank", "shape": "linear"}])
def test_values_and_points_of_the_table_add_up_to_the_score(options):
    X, score, rng = people()
    y = np.where(score + rng.logistic(size=len(score)) > 0, "yes", "no")
    m = RBRClassifier(**options).fit(X, y)
    assert {"line", "step"} & set(m.to_frame()["kind"])
    rows = new_rows(X, rng)
    frame = m.to_frame(points=(600, 50, 20))
    raw = m.decision_function(rows)
    np.testing.assert_allclose(score_by_hand(frame, m.model_, rows, "value", "slope"), raw, atol=1e-10)
    points = score_by_hand(frame, m.model_, rows, "points", "points_slope")
    np.testing.assert_allclose(points, 600 + 20 * np.log2(np.exp(raw) / 50), atol=1e-9)
    np.testing.assert_allclose(frame["odds_ratio"], np.exp(frame["value"]))
    reversed_points = m.to_frame(points=(600, 50, 20), odds_of="no")["points"]
    np.testing.assert_allclose(reversed_points[1:], -frame["points"][1:])


def test_the_table_tells_what_was_observed():
    X, score, rng = people()
    y = score + rng.normal(size=len(score))
    weights = rng.integers(1, 4, len(y)).astype(float)
    m = RBRRegressor(n_bags=0).fit(X, y, sample_weight=weights)
    frame = m.to_frame()
    bins = bins_of_rows(m.model_, X)
    assert (bins >= 0).all()
    t = [term.name for term in m.terms_].index("age")
    own = frame[frame["term"] == "age"]
    groups = [list(piece.bins) for piece in m.terms_[t].pieces] + [[m.terms_[t].n_ordered]]
    for k, group in enumerate(groups):
        inside = np.isin(bins[:, t], group)
        assert own["rows"].iloc[k] == weights[inside].sum()
        assert own["mean_target"].iloc[k] == pytest.approx(np.average(y[inside], weights=weights[inside]))
    assert frame["rows"].iloc[0] == weights.sum()
    assert frame["mean_target"].iloc[0] == pytest.approx(np.average(y, weights=weights))
    assert own["kind"].iloc[-1] == "missing" and X["age"].isna().any()


@pytest.mark.parametrize("class_weight", [None, "balanced", {"yes": 5.0}])
def test_shares_of_positives_are_those_of_the_rows_whatever_the_class_weights(class_weight):
    X, score, rng = people()
    y = np.where(score + rng.logistic(size=len(score)) > 1.5, "yes", "no")
    m = RBRClassifier(n_bags=0, class_weight=class_weight).fit(X, y)
    frame = m.to_frame()
    assert frame["positive_share"].iloc[0] == pytest.approx((y == "yes").mean())
    assert frame["rows"].iloc[0] == pytest.approx(len(y))
    south = frame[(frame["term"] == "region") & (frame["range"] == "south")].iloc[0]
    inside = X["region"] == "south"
    assert south["rows"] == pytest.approx(inside.sum())
    assert south["positive_share"] == pytest.approx((y[inside] == "yes").mean())


def test_three_classes_have_a_share_each():
    X, score, rng = people()
    y = np.digitize(score + rng.normal(size=len(score)), [-1.0, 1.0])
    m = RBRClassifier(n_bags=0).fit(X, y)
    frame = m.to_frame()
    shares = frame[["share_of_0", "share_of_1", "share_of_2"]]
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_allclose(shares.iloc[0], np.bincount(y) / len(y))
    assert {"value_0", "slope_2"} <= set(frame.columns) and "odds_ratio" not in frame


def test_counts_have_relativities_exposures_and_rates():
    X, score, rng = people()
    exposure = rng.uniform(0.1, 4, len(score))
    y = rng.poisson(np.exp(score - 1) * exposure)
    m = RBRRegressor("poisson", n_bags=0).fit(X, y, offset=np.log(exposure))
    frame = m.to_frame()
    np.testing.assert_allclose(frame["relativity"], np.exp(frame["value"]))
    south = frame[(frame["term"] == "region") & (frame["range"] == "south")].iloc[0]
    inside = (X["region"] == "south").to_numpy()
    assert south["exposure"] == pytest.approx(exposure[inside].sum())
    assert south["rate"] == pytest.approx(y[inside].sum() / exposure[inside].sum())
    assert "exposure" not in RBRRegressor("poisson", n_bags=0).fit(X, y).to_frame()


def test_what_was_observed_survives_files_pickles_and_edits(tmp_path):
    X, score, rng = people()
    exposure = rng.uniform(0.1, 4, len(score))
    m = RBRRegressor("poisson", n_bags=0).fit(X, rng.poisson(exposure * np.exp(score - 1)), offset=np.log(exposure))
    m.save(tmp_path / "m.json")
    loaded = rbr.load(tmp_path / "m.json")
    assert loaded == m.model_
    pd.testing.assert_frame_equal(loaded.to_frame(), m.to_frame())
    merged = m.model_.merge("region", [0, 1]).to_frame()
    assert merged["rows"].iloc[0] == len(X) and merged["rate"].notna().all()


def test_a_model_that_does_not_know_what_was_observed_says_nan():
    assert make_model(0).to_frame()["mean_target"].isna().all()
    assert make_model(0, **KINDS["two classes"]).to_frame()["positive_share"].isna().all()
    assert make_model(0, **KINDS["three classes"]).to_frame()["share_of_5"].isna().all()


def test_a_model_without_terms_is_a_table_of_one_row():
    X, score, _ = people(100)
    frame = RBRRegressor(exclude=["age", "income", "region"]).fit(X, score).to_frame()
    assert frame["term"].tolist() == ["intercept"] and frame["value"].iloc[0] == pytest.approx(score.mean())


def test_tables_without_pandas(monkeypatch):
    model = make_model(0)
    frame = model.to_frame()
    pytest.importorskip("polars")
    assert model.to_frame(output="polars").columns == list(frame.columns)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_frame with output='pandas' needs pandas: pip install pandas"):
        model.to_frame()
    columns = model.to_frame(output="dict")
    assert list(columns) == list(frame.columns)
    np.testing.assert_array_equal(columns["value"], frame["value"])
    with pytest.raises(ValueError, match="output is 'arrow'; it must be one of"):
        model.to_frame(output="arrow")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"points": (600, 50)}, r"points is \(600, 50\); it must be three numbers"),
        ({"points": (600, -1, 20)}, "above 0"),
        ({"points": (600, 50, 0)}, "above 0"),
        ({"points": "high"}, "it must be three numbers"),
        ({"points": (600, 50, 20), "odds_of": "maybe"}, "odds_of is 'maybe'; it must be one of the classes, 'no' or"),
        ({"odds_of": "yes"}, "points is None"),
    ],
)
def test_points_that_are_not_allowed(arguments, problem):
    with pytest.raises(ValueError, match=problem):
        make_model(0, **KINDS["two classes"]).to_frame(**arguments)


@pytest.mark.parametrize("kind", ["regression", "three classes"])
def test_points_need_two_classes(kind):
    for ask in ("to_frame", "scorecard"):
        with pytest.raises(ValueError, match="points are for models of two classes"):
            getattr(make_model(0, **KINDS[kind]), ask)((600, 50, 20))


# Whole points -----------------------------------------------------------------------------------------------------


def card_problem(**options):
    X, score, rng = people()
    y = np.where(score + rng.logistic(size=len(score)) > 0, "yes", "no")
    return RBRClassifier(**options).fit(X, y), X, y, rng


@pytest.mark.parametrize("with_rows", [True, False])
@pytest.mark.parametrize("options", [{"shape": "constant"}, {"n_bags": 0}])
def test_whole_points_add_up_and_are_what_the_card_predicts(options, with_rows):
    m, X, y, rng = card_problem(**options)
    card = m.scorecard((600, 50, 20), *((X, y) if with_rows else ()))
    frame = card.to_frame()
    assert frame["points"].dtype == np.int64
    assert set(frame["kind"]) <= {"intercept", "constant", "level", "missing"}
    for term, own in frame[frame["kind"] == "constant"].groupby("term"):
        assert (np.diff(own["points"]) != 0).all(), term  # steps of the same points are one
    rows = new_rows(X, rng)
    frame["no slope"] = 0
    by_hand = score_by_hand(frame.assign(points=frame["points"].astype(float)), card.model, rows, "points", "no slope")
    np.testing.assert_array_equal(card.points(rows), by_hand)
    odds = 50 * 2.0 ** ((by_hand - 600) / 20)
    np.testing.assert_allclose(card.predict_proba(rows)[:, 1], odds / (1 + odds), rtol=1e-9)


def test_the_cost_of_rounding_is_what_the_rows_show():
    m, X, y, _ = card_problem(shape="constant")
    weights = np.random.default_rng(1).integers(0, 3, len(y))
    card = m.scorecard((600, 50, 20), X, y, sample_weight=weights)
    exact = 600 + 20 * (m.decision_function(X) / math.log(2) - math.log2(50))
    size = np.abs(card.points(X) - exact)
    assert card.rounding.largest == pytest.approx(size[weights > 0].max())
    assert card.rounding.mean == pytest.approx(np.average(size, weights=weights))
    log_loss, auc = sklearn.metrics.log_loss, sklearn.metrics.roc_auc_score
    options = {"sample_weight": weights}
    assert card.rounding.loss == pytest.approx(log_loss(y, card.predict_proba(X)[:, 1], **options))
    assert card.rounding.exact_loss == pytest.approx(log_loss(y, m.predict_proba(X)[:, 1], **options))
    assert card.rounding.auc == pytest.approx(auc(y, card.points(X), **options))
    assert card.rounding.exact_auc == pytest.approx(auc(y, m.decision_function(X), **options))
    assert card.rounding.loss <= card.rounding.nearest_loss
    assert card.rounding.n_rows == (weights > 0).sum()
    assert "whole points differ from exact ones by" in str(card.rounding) and "AUC" in repr(card)


def test_whole_points_stay_within_one_of_the_exact_ones():
    m, X, y, _ = card_problem(shape="constant")
    exact = m.to_frame((600, 50, 20)).set_index(["term", "range"])["points"]
    for rows in ((), (X, y)):
        whole = m.scorecard((600, 50, 20), *rows).model.to_frame((600, 50, 20))
        for (term, text), points in exact.items():
            covers = np.array([set(text.split(", ")) <= set(r.split(", ")) for r in whole["range"]])
            own = whole[(whole["term"] == term) & covers]
            if len(own) == 1:  # pieces with equal points are one
                assert abs(own["points"].iloc[0] - points) < 1 + 1e-9


def coarse_cards():
    """Few pieces and coarse points, so that every rounding can be tried."""
    for seed in range(4):
        X, score, rng = people(seed=seed)
        y = np.where(score + rng.logistic(size=len(score)) > 0, 1, 0)
        m = RBRClassifier(shape="constant", max_segments=3, max_features=2, n_bags=0).fit(X, y)
        yield m.model_, point_scale(m.model_, (10, 1, 1 + seed / 3)), X, y.astype(float)


@pytest.mark.parametrize("with_rows", [True, False])
def test_the_search_ends_where_no_single_rounding_helps_and_near_the_best_of_all(with_rows):
    for model, scale, X, y in coarse_cards():
        card = Card(model, scale)
        cost = RowsCost(card, model, X, y, np.ones(len(y)), None) if with_rows else SharesCost(card)

        def total(card=card, model=model, X=X, y=y):
            """The cost from its definition."""
            if with_rows:
                return RowsCost(card, model, X, y, np.ones(len(y)), None).loss()
            cells = itertools.product(*(range(len(w)) for w in card.weights))
            squares = 0.0
            for cell in cells:
                share = math.prod(w[k] for w, k in zip(card.weights, cell, strict=True))
                errors = [p[g[k]] - e[k] for p, g, e, k in zip(card.points, card.groups, card.exact, cell, strict=True)]
                squares += share * (card.base - card.exact_base + sum(errors)) ** 2
            return squares

        start = total()
        coordinates = [(-1, 0), *((t, g) for t, points in enumerate(card.points) for g in range(len(points)))]
        for term, group in coordinates:  # a promised change is the change of the definition
            step = card.other_way(term, group)
            promised = cost.change(term, group, step)
            card.move(term, group, step)
            assert total() - start == pytest.approx(promised, abs=1e-9)
            card.move(term, group, -step)
        from rbr.model.whole_points import search

        search(card, cost)
        found = total()
        assert found <= start
        best = math.inf
        for flips in itertools.product([False, True], repeat=len(coordinates)):
            moves = [(t, g, card.other_way(t, g)) for (t, g), flip in zip(coordinates, flips, strict=True) if flip]
            for move in moves:
                card.move(*move)
            best = min(best, total())
            if sum(flips) == 1:
                assert total() >= found - 1e-9
            for t, g, step in moves:
                card.move(t, g, -step)
        assert best >= 0 and found - best <= 0.5 * max(start - best, 1e-12) + 1e-9


def test_differences_over_training_shares_are_those_of_independent_draws():
    m, _, _, rng = card_problem(shape="constant", n_bags=0)
    card = m.scorecard((600, 50, 7))
    exact, whole = m.model_, card.model
    draws = np.zeros(200_000)
    factor = 7 / math.log(2)
    draws += factor * (whole.intercept - exact.intercept)
    for one, other in zip(exact.terms, whole.terms, strict=True):
        errors = factor * (other.all_values - one.all_values)[:, 0]
        draws += rng.choice(errors, len(draws), p=one.weights / one.weights.sum())
    assert card.rounding.mean == pytest.approx(np.abs(draws).mean(), abs=0.01)
    assert card.rounding.largest >= np.abs(draws).max() - 1e-9
    assert card.rounding.n_rows is None and math.isnan(card.rounding.loss)


def test_scorecards_refuse_what_they_cannot_use():
    m, X, y, _ = card_problem(n_bags=0)
    with pytest.raises(ValueError, match="y is None; X and y are given together"):
        m.scorecard((600, 50, 20), X)
    with pytest.raises(ValueError, match="y holds 'perhaps'; it must hold the classes 'no' and 'yes'"):
        m.scorecard((600, 50, 20), X, np.where(y == "yes", "perhaps", y))
    with pytest.raises(
        ValueError, match=f"y has shape \\(5,\\); X has {len(X)} rows, and y must have one label for each"
    ):
        m.scorecard((600, 50, 20), X, y[:5])
    with pytest.raises(ValueError, match=f"offset has shape \\(3,\\); it must be a vector of length {len(X)}"):
        m.scorecard((600, 50, 20), X, y, offset=np.zeros(3))


def test_rows_of_a_scorecard_are_warned_of_once():
    m, X, y, _ = card_problem(n_bags=0)
    category = next(term.name for term in m.terms_ if term.kind == "category")
    with pytest.warns(rbr.UnseenWarning) as caught:
        m.scorecard((600, 50, 20), X.assign(**{category: "new"}), y)
    assert len(caught) == 1


# Explanations -----------------------------------------------------------------------------------------------------


def test_summary_of_the_estimator_is_that_of_the_model():
    X, score, _ = people(200)
    m = RBRRegressor(n_bags=0)
    with pytest.raises(sklearn.exceptions.NotFittedError):
        m.summary()
    assert m.fit(X, score).summary() == m.model_.summary()


def test_explanations_carry_names():
    X, score, _ = people()
    X.index = np.arange(len(X)) + 1000
    m = RBRRegressor(n_bags=0).fit(X, score)
    array = m.explain(X)
    assert type(array) is np.ndarray
    frame = m.explain(X, output="pandas")
    assert list(frame.columns) == [term.name for term in m.terms_]
    np.testing.assert_array_equal(frame, array)
    assert frame.index.equals(X.index)
    pd.testing.assert_frame_equal(sklearn.clone(m).set_output(transform="pandas").fit(X, score).explain(X), frame)
    assert type(m.set_output(transform="pandas").explain(X, output="default")) is np.ndarray
    assert isinstance(sklearn.clone(m).fit(X, score).explain(X), pd.DataFrame)
    with sklearn.config_context(transform_output="pandas"):
        assert isinstance(RBRRegressor(n_bags=0).fit(X, score).explain(X), pd.DataFrame)
    with pytest.raises(ValueError, match="transform is 'arrow'"):
        m.set_output(transform="arrow")
    with pytest.raises(ValueError, match="output is 'frame'; it must be one of 'default', 'pandas', 'polars', 'dict'"):
        m.explain(X, output="frame")
    polars = pytest.importorskip("polars")
    assert m.explain(polars.DataFrame({name: X[name].tolist() for name in X}), output="polars").columns == list(
        frame.columns
    )


def test_explanations_of_classes_have_a_column_for_each_term_and_class():
    X, score, rng = people()
    m = RBRClassifier(n_bags=0).fit(X, np.digitize(score, [-1.0, 1.0]))
    frame = m.explain(X, output="pandas")
    assert frame.columns.tolist() == [(term.name, k) for term in m.terms_ for k in range(3)]
    np.testing.assert_array_equal(frame["age"][2], m.explain(X)[:, 0, 2])
    total = frame.T.groupby(level=1).sum().T + m.intercept_
    np.testing.assert_allclose(total, m.decision_function(X), atol=1e-9)


@pytest.mark.parametrize("form", ["dict", "Series", "list", "array", "frame"])
def test_reasons_are_the_largest_effects_and_add_up(form):
    X, score, rng = people()
    y = pd.Series(score + 0.1 * rng.normal(size=len(score)), name="cost")
    m = RBRRegressor(n_bags=0).fit(X, y)
    i = int(np.flatnonzero((X["region"] == "south") & X["age"].between(20, 25))[0])
    row = {
        "dict": {"region": "south", "age": X["age"][i]},  # what the model does not use may be left out
        "Series": X.iloc[i],
        "list": X.iloc[i].tolist(),
        "array": X.iloc[i].to_numpy(),
        "frame": X.iloc[[i]],
    }[form]
    told = m.explain_row(row)
    effects = m.explain(X)[i]
    by_size = [m.terms_[t].name for t in np.argsort(-np.abs(effects))]
    assert [reason.term for reason in told.reasons] == by_size
    np.testing.assert_allclose([r.effect for r in told.reasons], sorted(effects, key=lambda e: -abs(e)))
    assert told.prediction == pytest.approx(m.predict(X)[i])
    assert told.intercept + sum(r.effect for r in told.reasons) + told.rest == pytest.approx(told.score)
    text = str(told)
    assert text.startswith(f"cost is {told.prediction:.4g}")
    assert "region is south: adds 1." in text and f"age is {X['age'][i]:g}: takes" in text and "from cost" in text
    first = m.explain_row(row, n=1)
    assert len(first.reasons) == 1 and re.search(r"\n  1 smaller reason (adds|takes) ", str(first))
    assert first.rest == pytest.approx(told.reasons[1].effect)
    assert list(told.reasons.to_frame()["term"]) == by_size


def test_reasons_in_the_words_of_each_link():
    X, score, rng = people()
    row = X.iloc[[0]].assign(region="south", age=np.nan)
    counts = RBRRegressor("poisson", n_bags=0).fit(X, pd.Series(rng.poisson(np.exp(score)), name="claims"))
    text = str(counts.explain_row(row, offset=math.log(2)))
    assert f"claims is {counts.predict(row, offset=[math.log(2)])[0]:.4g}, with the offset 0.693" in text
    assert "age is missing: multiplies claims by" in text and "region is south: multiplies claims by" in text
    rates = RBRRegressor("poisson", n_bags=0)
    rates.fit(X, pd.Series(rng.poisson(3 * np.exp(score)), name="claims"), offset=np.full(len(X), math.log(3)))
    assert f"claims is {rates.predict(row)[0]:.4g} for an exposure of 1: before any reason" in str(
        rates.explain_row(row)
    )
    assert " for an exposure of 0.25: before any reason" in str(rates.explain_row(row, offset=math.log(0.25)))
    few = str(rates.explain_row(X.iloc[0], n=1))
    assert re.search(r"\n  \d smaller reasons together multiply claims by|1 smaller reason multiplies", few)
    two = RBRClassifier(n_bags=0).fit(X, np.where(score > 0.3 * rng.normal(size=len(X)), "bad", "good"))
    text = str(two.explain_row(row))
    assert f"the probability of good is {two.predict_proba(row)[0, 1]:.3g}" in text
    assert "region is south: lowers the log-odds of good by" in text and "(odds times" in text
    three = RBRClassifier(n_bags=0).fit(X, np.digitize(score + rng.normal(size=len(X)), [-1.0, 1.0]))
    told = three.explain_row(row)
    assert told.prediction == three.predict(row)[0]
    assert f"the probability of class {told.prediction} is {three.predict_proba(row).max():.3g}" in str(told)
    numbered = RBRClassifier(n_bags=0).fit(X, pd.Series(score > 0, name="ill"))
    assert "the probability of ill = True is" in str(numbered.explain_row(row))
    other = three.explain_row(row, label=0)
    scores = three.decision_function(row)[0]
    assert other.score == pytest.approx(scores[0] - scores.mean()) and "score of class 0 by" in str(other)


def test_reasons_for_a_class_are_told_beside_the_other_classes():
    """Only differences between scores matter: a class whose own tables are flat has reasons in those of the others."""
    X, score, rng = people()
    y = np.array(["low", "mid", "high"])[np.digitize(score + 0.5 * rng.normal(size=len(X)), [-1.0, 1.0])]
    m = RBRClassifier(n_bags=0).fit(X, y)
    offset = np.array([0.5, -1.0, 0.0])
    for label in m.classes_:
        told = m.explain_row(X.iloc[0], n=None, offset=offset, label=label)
        c = m.classes_.tolist().index(label)
        effects = m.explain(X.iloc[[0]])[0]
        beside = {term.name: own[c] - own.mean() for term, own in zip(m.terms_, effects, strict=True)}
        assert {reason.term: reason.effect for reason in told.reasons} == pytest.approx(beside)
        before = np.exp(m.intercept_ + offset)[c] / np.exp(m.intercept_ + offset).sum()
        chance = m.predict_proba(X.iloc[[0]], offset=offset[None])[0, c]
        text = str(told)
        assert f"the probability of {label} is {chance:.3g}, with the offset 0.5, -1, 0: its score is" in text
        assert "beside the mean of the classes, before any reason " in text and f"(probability {before:.3g})" in text
    with pytest.raises(ValueError, match=r"offset has shape \(1,\); it must be a vector of length 3"):
        m.explain_row(X.iloc[0], offset=1.0)


@pytest.mark.filterwarnings("error")
def test_reasons_tell_what_training_did_not_have():
    X, score, _ = people()
    X = X.fillna({"age": 30.0})
    m = RBRRegressor(n_bags=0, on_unseen="raise").fit(X, pd.Series(score, name="cost"))
    told = m.explain_row({"age": None, "region": "moon"}, n=1)
    assert told.reasons == () and told.score == told.prediction == pytest.approx(m.intercept_)
    assert [(reason.term, reason.value, reason.effect) for reason in told.unseen] == [
        ("age", None, 0.0),
        ("region", "moon", 0.0),
    ]
    assert str(told).splitlines()[1:] == [
        "  age is missing, which it never was in training: adds nothing",
        "  region is moon, which training did not have: adds nothing",
    ]
    seen = m.explain_row({"age": 50, "region": "south"})
    assert not seen.unseen and "nothing" not in str(seen)


def test_rows_that_cannot_be_explained():
    X, score, _ = people(300)
    m = RBRRegressor(n_bags=0).fit(X, score)
    with pytest.raises(ValueError, match="row has no value for 'age', which the model uses"):
        m.explain_row({"region": "south"})
    with pytest.raises(ValueError, match="row has 2 values; it must have one for each of 3 columns"):
        m.explain_row([1.0, 2.0])
    with pytest.raises(ValueError, match=r"row has shape \(2, 3\); it must be one row"):
        m.explain_row(X.head(2))
    with pytest.raises(ValueError, match="n is 0"):
        m.explain_row(X.iloc[0], n=0)
    with pytest.raises(ValueError, match="label is 'a'; it chooses one of several score columns"):
        m.explain_row(X.iloc[0], label="a")
    for row in ({"age": "old", "region": "south"}, ["old", 1.0, "south"]):
        with pytest.raises(ValueError, match="column 'age' holds the text 'old'; it must hold numbers"):
            m.explain_row(row)


@pytest.mark.parametrize(
    "columns",
    [
        [2001, 2002, 2003],
        [("a", 1), ("a", 2), ("b", 1)],
        pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)]),
        range(3),
    ],
)
def test_rows_are_explained_by_the_names_of_their_frame(columns):
    X, score, _ = people(300)
    named = X.set_axis(columns, axis=1)
    m = RBRRegressor(n_bags=0).fit(named, score)
    expected = m.predict(named)[0]
    by_name = dict(zip(columns, X.iloc[0], strict=True))
    for row in (named.iloc[0], named.iloc[[0]], by_name, {t.name: by_name[columns[t.columns[0]]] for t in m.terms_}):
        assert m.explain_row(row).prediction == pytest.approx(expected)


def test_a_row_of_polars_is_a_row():
    polars = pytest.importorskip("polars", reason="pip install polars")
    X = np.random.default_rng(0).normal(size=(200, 2))
    m = RBRRegressor(n_bags=0).fit(X, np.sign(X[:, 0]))
    for row in (polars.Series(X[0]), polars.DataFrame(X[:1]), polars.DataFrame(X[:1], ["x0", "x1"]).row(0, named=True)):
        assert m.explain_row(row).prediction == m.predict(X[:1])[0]


# Names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda y: pd.Series(y, name="charges"), "charges"),
        (lambda y: pd.Series(y, name=7), "7"),
        (lambda y: pd.Series(y), None),
        (lambda y: y, None),
        (lambda y: y.tolist(), None),
        (lambda y: pytest.importorskip("polars").Series("charges", y), "charges"),
        (lambda y: pytest.importorskip("polars").Series(y), None),
        (lambda y: pd.DataFrame({"charges": y}), "charges"),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
def test_the_model_keeps_the_name_of_y(make, name):
    X, score, _ = people(200)
    m = RBRRegressor(n_bags=0).fit(X, make(score))
    assert m.model_.target == name
    assert ("target: charges" in m.summary()) == (name == "charges")


def test_a_newline_in_a_name_breaks_no_table(tmp_path):
    X, score, _ = people(400)
    awkward = X.rename(columns={"age": "age\nin\tyears", "region": "re\u2028gion"})
    awkward["re\u2028gion"] = awkward["re\u2028gion"].replace("south", "so\nuth")
    y = pd.Series(np.where(score > 0, "y\nes", "no"), name="to\rday")
    m = RBRClassifier(n_bags=0).fit(awkward, y)
    lines = m.summary().splitlines()
    assert len(lines) == 6 + len(m.terms_)
    assert "target: to\\rday" in lines and "classes: no, y\\nes" in lines
    assert any(line.startswith("age\\nin\\tyears") for line in lines)
    for frame in (m.to_frame(), m.scorecard().to_frame()):
        text = frame[["term", "range"]].to_numpy().ravel().tolist()
        assert all(cell.isprintable() for cell in text) and "so\\nuth" in text
    assert len(str(m.explain_row(awkward.iloc[0])).splitlines()) <= 1 + len(m.terms_)
    assert "so\nuth" in m.model_["re\u2028gion"].categories  # the model itself keeps names as they are
    m.save(tmp_path / "m.json")
    assert rbr.load(tmp_path / "m.json") == m.model_
