"""The estimators: scikit-learn's own checks, then parameters, limits, losses, and use with scikit-learn's tools."""

import dataclasses
import pickle
import re
import threading

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from models import with_columns
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.ensemble import VotingClassifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import rbr
from rbr import RBRClassifier, RBRRegressor, _parallel, losses
from rbr.estimators.bagging import BagFit, bag_average
from rbr.estimators.inputs import classes_and_codes
from rbr.solvers.refit import norm

N = 300
ESTIMATORS = (RBRRegressor, RBRClassifier)


@parametrize_with_checks(
    [RBRRegressor(), RBRClassifier(), RBRRegressor(loss="huber", n_bags=0), RBRClassifier(n_bags=3)]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def regressor(loss="squared_error", **options):
    """A regressor without bags and with few bins: quick, and enough for these tables."""
    return RBRRegressor(loss, **{"max_bins": 24, "n_bags": 0, **options})


def classifier(**options):
    return RBRClassifier(**{"max_bins": 24, "n_bags": 0, **options})


@pytest.fixture(scope="module")
def table():
    """Six columns; a jump in "b", a slope in "d", gaps in "e"."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(N, 6)), columns=list("abcdef"))
    y = np.where(X["b"] > 0.3, 2.0, -1.0) + X["d"] + 0.3 * rng.normal(size=N)
    X.loc[::9, "e"] = np.nan
    return X, y.to_numpy()


@pytest.fixture(scope="module")
def classes(table):
    X, y = table
    return X, np.where(y > 0.5, "yes", "no")


def task(estimator, table):
    X, y = table
    return (X, y) if estimator is RBRRegressor else (X, np.where(y > 0.5, "yes", "no"))


def n_pieces(term, output=None):
    """Number of pieces of a table that is constant over neighbouring bins."""
    values = term.values if output is None else term.values[:, output]
    return 1 + int((np.diff(values) != 0).sum())


# ---------------------------------------------------------------- bad values

BAD = {
    "interactions": ["all", -1, 1.5, [("a",)], [("a", "a")], [("a", "z")]],
    "interaction_cst": ["some", ["a"], [["z"]]],
    "heredity": [1, None],
    "max_rectangles": [1, 2.5],
    "max_features": [0, -1, 1.5, "all", True],
    "max_segments": [0, 2.5, "many", {"a": 0}, {"z": 3}, {17: 3}, [3, 3]],
    "min_rows": [-3, 1.0, 2.5, 0.0, "few", None, False, [5]],
    "max_bins": [1, 65536, 2.5, "many", {"a": 1}, {"z": 9}],
    "shape": ["wavy", None, 3, {"a": "wavy"}, {"z": "linear"}, {"a": "linear", 0: "linear"}],
    "jump_cost": [-0.1, np.inf, np.nan, "high", None],
    "binning": ["even", None, {"a": "even"}, {"z": "regular"}, {"a": [2.0, 1.0]}],
    "categorical_features": ["all", 3, ["z"], [17], [True, False]],
    "monotonic_cst": [3, "up", [1, 0], {"a": 2}, {"z": 1}, [2, 0, 0, 0, 0, 0]],
    "exclude": ["a", 3, ["z"], [17]],
    "always_include": ["a", 3, ["z"], [17]],
    "alpha": [-1.0, np.nan, "strong"],
    "prior_rows": [-1.0, np.nan, "few"],
    "n_bags": [-1, 2.5, "many"],
    "refine_cuts": [3, "yes"],
    "solver": ["newton", None],
    "on_unseen": ["explode", None],
    "step_size": [0, -1.0, np.nan, "long"],
    "max_iter": [0, 1.5, "many"],
    "tol": [-1e-3, np.nan, "small"],
    "weights": ["none", None],
    "position": ["left", None],
    "segmentation": ["rough", None],
    "n_jobs": [0, 1.5, "all"],
    "random_state": [-1, 1.5, "luck"],
    "verbose": [-1, "loud"],
    "warm_start": [3, "yes"],
    "loss": ["hinge", None, 3, "log_loss", losses.get_loss("multinomial")],
    "class_weight": ["even", 3, {"yes": -1.0, "no": 1.0}, {"yes": "a lot", "no": 1.0}],
}


def test_every_parameter_has_bad_values():
    parameters = {name for estimator in ESTIMATORS for name in estimator().get_params()}
    assert parameters == set(BAD)


@pytest.mark.parametrize(("parameter", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_bad_value_is_named_before_any_work(parameter, value, table, monkeypatch):
    """The message names the parameter, the value or column, and what is allowed; nothing is binned or solved."""

    def work(*args, **kwargs):
        raise AssertionError("the work has begun")

    monkeypatch.setattr("rbr.estimators.base.solve", work)
    monkeypatch.setattr("rbr.data.cutting.sort_rows", work)
    estimator = RBRClassifier if parameter == "class_weight" else RBRRegressor
    m = estimator(**{parameter: value})
    X, y = task(estimator, table)
    with pytest.raises(
        ValueError, match=rf"\b{parameter}\b.*(must|indices|columns are|has|use RBRClassifier)"
    ) as error:
        m.fit(X, y)
    bad = list(value.values())[0] if isinstance(value, dict) else value
    key = list(value)[0] if isinstance(value, (dict, list)) else value
    size = len(value) if isinstance(value, list) else value
    shown = str(error.value)
    assert any(repr(part) in shown or str(part) in shown for part in (value, bad, key, size))
    assert not hasattr(m, "model_") and not hasattr(m, "n_features_in_")


def test_contradictions_are_named(table):
    X, y = table
    with pytest.raises(ValueError, match="monotonic_cst of column 'b' is 1 and its shape is 'linear'; give one"):
        regressor(shape={"b": "linear"}, monotonic_cst={"b": 1}).fit(X, y)
    with pytest.raises(ValueError, match="exclude and always_include both hold"):
        regressor(exclude=["a"], always_include=["a"]).fit(X, y)
    with pytest.raises(ValueError, match="always_include names 2 features; it may name at most max_features=1"):
        regressor(max_features=1, always_include=["a", "b"]).fit(X, y)
    with pytest.raises(ValueError, match="poisson.*y\\[.*must be at least 0"):
        regressor(loss="poisson").fit(X, y)


@pytest.mark.parametrize("offset", [[0.0] * 3, "abc", np.full(N, np.nan), np.zeros((N, 2))])
def test_bad_offsets(offset, table):
    X, y = table
    with pytest.raises(ValueError, match="offset .*(shape|finite)"):
        regressor().fit(X, y, offset=offset)


# ---------------------------------------------------------------- promises


@pytest.mark.parametrize("shape", ["constant", "linear", "mixed", "increasing", "decreasing", "levels", "free"])
@pytest.mark.parametrize("options", [{}, {"n_bags": 3}, {"jump_cost": 0}, {"alpha": 0.1}, {"solver": "algorithm1"}])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_model_is_as_small_as_promised(shape, options, table):
    X, y = table
    limit = 6 if shape == "free" else 3
    m = regressor(max_features=2, max_segments=limit, max_bins=20, shape=shape, **options).fit(X, y)
    assert (shape != "decreasing") <= len(m.terms_) <= 2  # no feature has a decreasing effect
    for term in m.terms_:
        assert shape == "free" or len(term.pieces) <= 3
        values = np.append(term.values, [] if term.missing_value is None else term.missing_value)
        assert abs(term.weights @ values) < 1e-12
        if shape in ("increasing", "decreasing"):
            assert (np.diff(term.values) * (1 if shape == "increasing" else -1) >= 0).all()


def test_several_classes_are_as_small_as_promised():
    X, y = load_iris(return_X_y=True)
    for n_bags in (0, 2):
        m = classifier(max_features=2, max_segments=2, shape="constant", n_bags=n_bags).fit(X, y)
        assert 1 <= len(m.terms_) <= 2
        for term in m.terms_:
            assert max(n_pieces(term, k) for k in range(3)) == 2
            np.testing.assert_allclose(term.weights @ term.values, 0.0, atol=1e-12)
        assert m.score(X, y) > 0.9


@pytest.mark.parametrize("make", [lambda X: X, lambda X: X.to_numpy()])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_explanations_add_up_and_the_model_predicts_the_same(estimator, make, table, tmp_path):
    X, y = task(estimator, table)
    X = make(X)
    m = estimator(max_bins=24, n_bags=0, jump_cost=0.1).fit(X, y)
    score = m.decision_function(X) if estimator is RBRClassifier else m.predict(X)
    np.testing.assert_allclose(m.explain(X).sum(axis=1) + m.intercept_, score, atol=1e-10)
    m.save(tmp_path / "model.json")
    for model in (m.model_, rbr.load(tmp_path / "model.json")):
        np.testing.assert_array_equal(model.predict(X), m.predict(X))
        np.testing.assert_array_equal(model.explain(X), m.explain(X))
        if estimator is RBRClassifier:
            np.testing.assert_array_equal(model.predict_proba(X), m.predict_proba(X))
            np.testing.assert_array_equal(model.classes_, m.classes_)


def test_explanations_of_several_classes_add_up(tmp_path):
    X, y = load_iris(return_X_y=True)
    m = classifier().fit(X, y)
    assert m.explain(X).shape == (len(X), len(m.terms_), 3)
    np.testing.assert_allclose(m.explain(X).sum(axis=1) + m.intercept_, m.decision_function(X), atol=1e-10)
    np.testing.assert_allclose(m.predict_proba(X).sum(axis=1), 1.0)
    np.testing.assert_allclose(np.exp(m.predict_log_proba(X)), m.predict_proba(X))
    m.save(tmp_path / "model.json")
    np.testing.assert_array_equal(rbr.load(tmp_path / "model.json").predict_proba(X), m.predict_proba(X))


@pytest.mark.parametrize("options", [{}, {"n_bags": 2}, {"binning": "binomial"}])
def test_the_same_bits_again_and_with_more_threads(options, table, monkeypatch):
    X, y = table
    monkeypatch.setattr("rbr.data.cutting.MIN_ENTRIES_PER_THREAD", 1)
    fits = [regressor(random_state=3, n_jobs=n_jobs, **options).fit(X, y) for n_jobs in (1, 1, 2)]
    for other in fits[1:]:
        assert other.model_ == fits[0].model_
        np.testing.assert_array_equal(other.loss_path_, fits[0].loss_path_)


@pytest.mark.parametrize("seed", [3, np.random.RandomState(3), np.random.default_rng(3)])
def test_random_state_draws_bins_and_bags(seed, table):
    X, y = table
    one = regressor(binning="binomial", n_bags=2, random_state=seed).fit(X, y)
    other = regressor(binning="binomial", n_bags=2, random_state=4).fit(X, y)
    assert one.model_ != other.model_


# ---------------------------------------------------------------- parameters


def test_limits_by_name_and_index(table):
    X, y = table
    m = regressor(max_features=2, jump_cost=0, shape="constant", max_segments={"b": 2, 3: 5}).fit(X, y)
    assert [(term.name, n_pieces(term)) for term in m.terms_] == [("b", 2), ("d", 5)]


def test_shapes_by_name_and_index(table):
    X, y = table
    m = regressor(max_features=2, shape={"b": "constant", 3: "linear"}, max_segments={"b": 2, "d": 1}).fit(X, y)
    assert [[piece.kind for piece in term.pieces] for term in m.terms_] == [["constant"] * 2, ["line"]]


def test_bins_by_name_and_index(table):
    X, y = table
    m = regressor(max_features=2, max_bins={"b": 7, 3: 300}, binning={"d": "binomial"}).fit(X, y)
    assert len(m.terms_[0].values) == 7 and len(m.terms_[1].values) > 150
    m = regressor(max_features=2, binning={"b": [-1.0, 0.3, 1.0]}).fit(X, y)
    np.testing.assert_array_equal(m.terms_[0].edges, [-1.0, 0.3, 1.0])


@pytest.mark.parametrize(
    "given", [{"d": -1, "b": 1}, {3: -1, 1: 1, 0: 0}, [0, 1, 0, -1, 0, 0], np.array([0, 1, 0, -1, 0, 0])]
)
def test_monotone_in_every_form(given, table):
    X, y = table
    m = regressor(monotonic_cst=given, always_include=["b", "d"]).fit(X, y)
    terms = {term.name: term for term in m.terms_}
    assert (np.diff(terms["b"].values) >= 0).all()
    assert "d" not in terms or (np.diff(terms["d"].values) <= 0).all()
    n = regressor(monotonic_cst={"d": 1}, shape={"d": "increasing"}).fit(X, y)
    assert (np.diff({term.name: term for term in n.terms_}["d"].values) >= 0).all()


def test_exclude_and_always_include(table):
    X, y = table
    assert 1 not in regressor(exclude=["b"]).fit(X, y).selected_features_
    assert regressor(max_features=1, shape="constant").fit(X, y).selected_features_.tolist() == [1]
    weak = y + 0.1 * np.sign(X["a"])
    m = regressor(max_features=1, always_include=["a"], jump_cost=0, max_segments=2).fit(X, weak)
    assert m.selected_features_.tolist() == [0]


def test_jump_cost_sets_the_size(table):
    X, y = table
    n_pieces_of = {kappa: regressor(jump_cost=kappa).fit(X, y).model_.n_pieces for kappa in (0.1, 0.5, 5.0)}
    assert n_pieces_of[0.1] > n_pieces_of[0.5] > n_pieces_of[5.0]
    assert regressor(n_bags=0).fit(X, y).model_ == regressor(n_bags=0, jump_cost=1.0).fit(X, y).model_
    assert len(regressor(jump_cost=0, max_segments=2, shape="constant").fit(X, y).terms_) == 6
    assert len(regressor(jump_cost=1e6).fit(X, y).terms_) == 0


def test_a_model_without_terms_is_the_mean(table):
    X, y = table
    m = regressor(jump_cost=1e6).fit(X, y)
    np.testing.assert_allclose(m.predict(X), y.mean())
    assert m.explain(X).shape == (N, 0)
    assert not m.feature_importances_.any()


def test_alpha_shrinks(table):
    X, y = table
    options = {"max_features": 1, "shape": "constant", "max_segments": 2, "prior_rows": 0}
    sizes = [np.abs(regressor(**options, alpha=alpha).fit(X, y).explain(X)).max() for alpha in (0.0, 1.0)]
    # With one table of two pieces, ridge divides by 1 + alpha.
    assert sizes[1] == pytest.approx(sizes[0] / 2, rel=0.01)


def test_uniform_weights_give_every_bin_the_same_say():
    x = np.repeat([0.0, 1.0, 2.0], [80, 10, 10])
    y = x.copy()
    options = {"shape": "free", "jump_cost": 0}
    for weights, mean in (("counts", 0.3), ("uniform", 1.0)):
        m = regressor(weights=weights, **options).fit(x[:, None], y)
        np.testing.assert_allclose(m.predict(x[:, None]), y, atol=1e-6)
        assert m.intercept_ == pytest.approx(mean, abs=1e-6)  # the mean of the table is zero in its weights


def test_position_is_where_lines_are_drawn():
    x = np.exp(np.linspace(0, 5, 200))
    fits = {
        position: regressor(shape="linear", max_segments=1, jump_cost=0, position=position, prior_rows=0).fit(
            x[:, None], x
        )
        for position in ("rank", "index", "value")
    }
    assert fits["value"].score(x[:, None], x) > 0.99
    assert fits["rank"].score(x[:, None], x) < 0.9
    log_x = np.log(x)
    line = {"shape": "linear", "max_segments": 1, "jump_cost": 0, "prior_rows": 0}
    assert regressor(**line, position="rank").fit(x[:, None], log_x).score(x[:, None], log_x) > 0.99


def test_greedy_segmentation_keeps_the_limits(table):
    X, y = table
    m = regressor(segmentation="greedy", shape="constant", max_segments=3, max_features=2).fit(X, y)
    assert len(m.terms_) <= 2 and all(n_pieces(term) <= 3 for term in m.terms_)
    assert m.score(X, y) > 0.7


def test_what_a_bagged_fit_says_of_itself_is_true_of_the_average(table):
    """The path, residual and history used to be those of the single fit that the average replaces."""
    X, y = table
    m = regressor(n_bags=3, jump_cost=0, position="rank").fit(X, y)
    # Without jump cost and ridge the objective is the training loss.
    assert m.loss_path_[-1] == pytest.approx(m.model_.training_loss, rel=1e-12)
    assert m.loss_path_[0] == pytest.approx(np.var(y) / 2, rel=1e-12)
    binner = rbr.Binner(max_bins=24).fit(X)
    constraints = rbr.Constraints(shape="mixed", jump_cost=0.5)
    single = rbr.solve(binner.transform(X), y, constraints=constraints)
    average = bag_average(single, [BagFit("as asked", constraints, 0.0)], n_bags=4)
    assert single.converged and not average.converged and average.status == "average"
    problem = average.problem
    assert average.loss_path[-1] == problem.value(average.point, average.labels) > single.loss_path[-1]
    again = problem.objective.point(average.f, average.support)
    assert average.loss == average.history[-1].loss == pytest.approx(again.loss, rel=1e-14)
    np.testing.assert_array_equal(average.history[-1].support, average.support)
    assert (average.n_iter, len(average.loss_path), len(average.history)) == (1, 2, 2)
    step, f = average.step_size, average.f
    moved = problem.constraints.prox(f - step * problem.objective.gradient(average.point), step, problem.scale)
    assert average.residual == pytest.approx(norm(moved.f - f, problem.constraints.weights), rel=1e-9)
    assert average.residual > 1e-3 * norm(f, problem.constraints.weights) > 0


def test_bags_are_projected_and_steadier(table):
    X, y = table
    one = regressor(max_features=2, max_segments=4, shape="constant").fit(X, y)
    bagged = regressor(max_features=2, max_segments=4, shape="constant", n_bags=8).fit(X, y)
    assert bagged.model_ != one.model_
    assert bagged.selected_features_.tolist() == [1, 3]
    assert all(len(term.pieces) <= 4 for term in bagged.terms_)
    assert bagged.score(X, y) > 0.75


def test_verbose_prints_a_line_per_iteration(table, capsys):
    X, y = table
    m = regressor().fit(X, y)
    assert capsys.readouterr().out == ""
    regressor(verbose=1).fit(X, y)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    heads = [line for line in lines if line[:3] == ["iter", "objective", "loss"]]
    # A second look, at what lines leave over, is a second table.
    assert lines[0] in heads and len(heads) == 2 and len(lines) - len(heads) == m.n_iter_ + 1


def test_warm_start_starts_where_the_last_fit_ended(table):
    X, y = table
    m = regressor(warm_start=True, jump_cost=0.1, position="rank", refine_cuts=False, prior_rows=0).fit(X, y)
    first, cold = m.model_, m.n_iter_
    m.fit(X, y)
    assert m.n_iter_ < cold
    np.testing.assert_allclose(m.predict(X), first.predict(X), atol=1e-3)
    # The bins are those of the first fit, whatever rows come later.
    edges = {term.name: term.edges for term in first.terms}
    m.fit(2 * X, y)
    for term in m.terms_:
        if term.name in edges:
            np.testing.assert_array_equal(term.edges, edges[term.name])


def test_warm_start_with_other_classes_is_refused(classes):
    X, y = classes
    m = classifier(warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match=re.escape("classes ['a', 'no', 'yes']; it must have those of the last fit")):
        m.fit(X, np.where(np.arange(N) < 9, "a", y))
    assert m.classes_.tolist() == ["no", "yes"]


def test_callers_are_warned_when_a_fit_has_not_converged(table):
    X, y = table
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        regressor(max_iter=1, jump_cost=0.01).fit(X, y)


# ---------------------------------------------------------------- losses, weights, offsets

EVERY_LOSS = [
    ("squared_error", "squared_error"),
    ("squared", "squared_error"),
    ("poisson", "poisson"),
    ("gamma", "gamma"),
    ("tweedie", "tweedie"),
    (losses.Tweedie(power=1.2), "tweedie"),
    ("huber", "huber"),
    (losses.Huber(delta=0.1), "huber"),
    ("quantile", "quantile"),
    (losses.Quantile(level=0.9), "quantile"),
]


@pytest.mark.parametrize(("loss", "name"), EVERY_LOSS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_loss_learns_the_jump(loss, name):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(600, 3))
    truth = np.where(X[:, 1] > 0, 6.0, 2.0)
    y = rng.gamma(20.0, truth / 20.0) if name != "poisson" else rng.poisson(truth)
    m = regressor(loss, max_features=1, max_segments=2, shape="constant", jump_cost=0, max_bins=64).fit(X, y)
    assert m.model_.loss.name == name
    assert m.selected_features_.tolist() == [1]
    low, high = m.predict([[0.0, -1.0, 0.0], [0.0, 1.0, 0.0]])
    if getattr(m.model_.loss, "level", 0.5) == 0.9:
        assert np.mean(y <= m.predict(X)) == pytest.approx(0.9, abs=0.02)
    else:
        assert low == pytest.approx(2.0, rel=0.1) and high == pytest.approx(6.0, rel=0.1)


def test_poisson_exposure_recovers_rates():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(2000, 4))
    rate = np.where(X[:, 2] > 0, 0.5, 0.1)
    exposure = rng.uniform(0.5, 20.0, 2000)
    y = rng.poisson(rate * exposure)
    m = regressor("poisson", shape="constant", max_features=1, max_segments=2, max_bins=255)
    m.fit(X, y, offset=np.log(exposure))
    assert np.mean(np.isclose(m.predict(X), rate, rtol=0.06)) > 0.97  # all but the rows beside the jump
    np.testing.assert_allclose(m.predict(X, offset=np.log(exposure)), m.predict(X) * exposure)
    # Without the offset, the fit predicts counts at the average exposure.
    assert m.fit(X, y).predict(X).mean() == pytest.approx(y.mean(), rel=1e-6)


def test_offsets_of_classes(classes):
    X, y = classes
    offset = np.linspace(-1, 1, N)
    m = classifier().fit(X, y, offset=offset.tolist())
    np.testing.assert_allclose(m.decision_function(X, offset=offset), m.decision_function(X) + offset)
    assert (m.predict_proba(X, offset=np.full(N, 100.0))[:, 1] > 0.999).all()
    assert (m.predict(X, offset=np.full(N, -100.0)) == "no").all()
    iris, kinds = load_iris(return_X_y=True)
    given = np.zeros((150, 3))
    a, b = classifier().fit(iris, kinds), classifier().fit(iris, kinds, offset=given)
    assert np.mean(a.predict(iris) == b.predict(iris)) > 0.97  # separable classes do not determine the odds
    np.testing.assert_allclose(a.decision_function(iris, offset=given + 1), a.decision_function(iris) + 1)


def test_bags_take_offsets_and_rows_of_no_weight(table):
    X, y = table
    weight = np.append(np.zeros(20), np.ones(N - 20))
    offset = pd.Series(np.linspace(0, 1, N), index=np.arange(N)[::-1])
    a = regressor(n_bags=2).fit(X, y, sample_weight=weight, offset=offset)
    b = regressor(n_bags=2).fit(X[20:], y[20:], offset=offset.to_numpy()[20:])
    np.testing.assert_allclose(a.predict(X), b.predict(X), atol=1e-10)


def test_class_weights_are_sample_weights(classes):
    X, y = classes
    small = {"max_features": 1, "max_segments": 2, "shape": "constant", "prior_rows": 0}
    by_class = classifier(class_weight={"yes": 3.0, "no": 1.0}, **small).fit(X, y)
    by_row = classifier(**small).fit(X, y, sample_weight=np.where(y == "yes", 3.0, 1.0))
    np.testing.assert_array_equal(by_class.predict_proba(X), by_row.predict_proba(X))
    assert by_class.predict_proba(X)[:, 1].mean() > classifier(**small).fit(X, y).predict_proba(X)[:, 1].mean() + 0.05


def test_balanced_classes_have_the_same_weight_however_rows_are_weighted(classes):
    X, y = classes
    small = {"max_features": 1, "max_segments": 2, "shape": "constant"}
    weight = np.arange(N) % 3
    weighted = classifier(class_weight="balanced", **small).fit(X, y, sample_weight=weight)
    rows = np.repeat(np.arange(N), weight)
    repeated = classifier(class_weight="balanced", **small).fit(X.iloc[rows], y[rows])
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-6)
    # The intercept is refitted, so each class has half of the weighted predicted probability.
    p = repeated.predict_proba(X.iloc[rows])[:, 1]
    is_yes = y[rows] == "yes"
    assert np.average(p, weights=np.where(is_yes, 1 / is_yes.sum(), 1 / (~is_yes).sum())) == pytest.approx(
        0.5, abs=1e-6
    )


@pytest.mark.parametrize(
    "labels",
    [
        [7, 5, 7, 9],
        [True, False, True],
        np.array([-100, 100, 3, -100] * 60, dtype=np.int8),
        np.array([250, 255, 251, 250, 250, 255], dtype=np.uint8),
        np.array([2**63, 2**63 + 1, 2**63], dtype=np.uint64),
        np.array([-(2**63), 2**63 - 1]),
        [70_000, 70_001, 70_000],
        [0.5, 0.25, 0.5],
        ["b", "a", "b"],
        np.array(["b", "a"], dtype=object),
    ],
    ids=repr,
)
def test_counted_labels_are_sorted_ones(labels):
    classes, codes = classes_and_codes(np.asarray(labels))
    expected, places = np.unique(labels, return_inverse=True)
    np.testing.assert_array_equal(classes, expected)
    np.testing.assert_array_equal(codes, places)
    assert classes.dtype == expected.dtype and codes.dtype == np.float64


def test_a_class_weight_makes_noise_louder_and_not_rows_more():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 12))
    y = rng.random(3000) < 1 / (1 + np.exp(3.0 - 1.5 * X[:, 3]))
    balanced = classifier(class_weight="balanced").fit(X, y)
    share = y.mean()
    # sum w^2 / sum w with weights 1 / (2 share) and 1 / (2 (1 - share)).
    assert balanced.dispersion_ == pytest.approx(0.25 / share + 0.25 / (1 - share), rel=1e-12)
    assert balanced.selected_features_.tolist() == [3]
    # Equal weights change nothing, and an integer weight still means repeated rows.
    plain, doubled = (classifier(class_weight=w).fit(X, y) for w in (None, {False: 2.0, True: 2.0}))
    np.testing.assert_allclose(doubled.decision_function(X), plain.decision_function(X), atol=1e-9)
    counts = rng.integers(1, 3, 3000)
    weighted = classifier(class_weight="balanced").fit(X, y, sample_weight=counts)
    repeated = classifier(class_weight="balanced").fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    assert weighted.dispersion_ == pytest.approx(repeated.dispersion_, rel=1e-12)
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-6)


def test_labels_of_any_kind(table):
    X, y = table
    for labels in (y > 0, np.where(y > 0, 7, -3), np.where(y > 0, "p", "n"), np.where(y > 0, 2.0, 1.0)):
        m = classifier().fit(X, labels)
        assert m.predict(X).dtype == labels.dtype
        assert m.score(X, labels) > 0.85


# ---------------------------------------------------------------- attributes, copies, scikit-learn tools


def test_importances_are_mean_sizes(table):
    X, y = table
    m = regressor().fit(X, y)
    expected = np.zeros(6)
    expected[m.selected_features_] = np.abs(m.explain(X)).mean(axis=0)
    np.testing.assert_allclose(m.feature_importances_, expected, rtol=1e-3)
    exact = regressor(shape="constant").fit(X, y)
    expected[:] = 0.0
    expected[exact.selected_features_] = np.abs(exact.explain(X)).mean(axis=0)
    np.testing.assert_allclose(exact.feature_importances_, expected)


def test_columns_of_a_term_share_its_importance(table):
    m = regressor().fit(*table)
    one, two = (dataclasses.replace(m.terms_[0], columns=(j,)) for j in (1, 4))
    pair = with_columns(m.terms_[1], 1, 3)
    m.model_ = dataclasses.replace(m.model_, terms=(one, two, pair))
    assert m.selected_features_.tolist() == [1, 3, 4] and m.selected_features_.dtype == np.int64
    half = pair.importance / 2
    expected = [0.0, one.importance + half, 0.0, half, two.importance, 0.0]
    np.testing.assert_allclose(m.feature_importances_, expected)
    m.model_ = dataclasses.replace(m.model_, terms=())
    assert m.selected_features_.tolist() == [] and m.selected_features_.dtype == np.int64


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_what_is_not_fitted_says_so(estimator, table):
    m = estimator()
    for attribute in ("intercept_", "terms_", "selected_features_", "feature_importances_"):
        with pytest.raises(NotFittedError):
            getattr(m, attribute)
    for method in (m.predict, m.explain):
        with pytest.raises(NotFittedError):
            method(table[0])
    with pytest.raises(NotFittedError):
        m.save("nowhere.json")


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("where", ["rbr.estimators.base.solve", "rbr.model.AdditiveModel.from_solution"])
def test_a_failed_fit_leaves_the_estimator_as_it_was(where, error, table, monkeypatch):
    X, y = table

    def fail(*args, **kwargs):
        raise error

    fresh, fitted = regressor(), regressor().fit(X, y)
    before, predicted = dict(vars(fitted)), fitted.predict(X)
    monkeypatch.setattr(where, fail)
    for m in (fresh, fitted):
        with pytest.raises(error):
            m.fit(X.rename(columns=str.upper).iloc[:, :4], y)
    assert vars(fresh) == vars(regressor())
    assert vars(fitted).keys() == before.keys() and all(vars(fitted)[name] is before[name] for name in before)
    np.testing.assert_array_equal(fitted.predict(X), predicted)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_copies(estimator, table, tmp_path):
    X, y = task(estimator, table)
    m = estimator(max_features=2, max_bins=24, n_bags=0, shape={"b": "constant"}, monotonic_cst={"d": 1}).fit(X, y)
    assert clone(m).get_params() == m.get_params() and not hasattr(clone(m), "model_")
    assert estimator().set_params(**m.get_params()).get_params() == m.get_params()
    joblib.dump(m, tmp_path / "m.joblib")
    for copy in (pickle.loads(pickle.dumps(m)), joblib.load(tmp_path / "m.joblib")):
        np.testing.assert_array_equal(copy.predict(X), m.predict(X))
        assert copy.model_ == m.model_
        copy.set_params(warm_start=True).fit(X, y)
    # A pickle holds the model and not the training rows, so its size does not grow with them.
    twice = estimator(max_features=2, max_bins=20, n_bags=0).fit(pd.concat([X] * 9), np.tile(y, 9))
    once = estimator(max_features=2, max_bins=20, n_bags=0).fit(X, y)
    assert len(pickle.dumps(twice)) < len(pickle.dumps(once)) + 2000


def test_grid_search_shares_the_cores(table, monkeypatch):
    X, y = table
    grid = {"max_features": [1, 2], "n_jobs": [None, 2]}
    search = GridSearchCV(regressor(max_bins=20), grid, cv=2, n_jobs=2).fit(X, y)
    assert search.best_params_["max_features"] == 2

    # Next to another worker, a fit gets one thread, whatever n_jobs is.
    def threads_of_a_fit(n_jobs):
        seen = []
        monkeypatch.setattr(
            "rbr.objective.make.resolve_n_jobs", lambda n: seen.append(_parallel.resolve_n_jobs(n)) or seen[-1]
        )
        regressor(n_jobs=n_jobs, max_bins=20).fit(X, y)
        return seen

    with joblib.parallel_config("threading", n_jobs=2):
        inside = joblib.Parallel(n_jobs=2)(joblib.delayed(threads_of_a_fit)(n_jobs) for n_jobs in (None, None))
    assert {n for seen in inside for n in seen} == {1}


def test_threads_are_few(table):
    X, y = table
    before = threading.active_count()
    for _ in range(3):
        regressor(n_jobs=2, max_bins=20).fit(X, y).predict(X)
    assert threading.active_count() <= before + 1


def test_pipelines_and_frames_from_transformers(table):
    X, y = table
    X = X.assign(kind=np.where(X["a"] > 0, "p", "q"))
    scaled = ColumnTransformer([("scale", StandardScaler(), ["b", "d"])], remainder="passthrough")
    pipeline = make_pipeline(scaled, regressor(max_features=2)).set_output(transform="pandas").fit(X, y)
    assert [term.name for term in pipeline[-1].terms_] == ["scale__b", "scale__d"]
    assert "remainder__kind" in pipeline[-1].feature_names_in_
    assert pipeline.score(X, y) > 0.8
    np.testing.assert_allclose(pipeline.predict(X), regressor(max_features=2).fit(X, y).predict(X), atol=1e-9)


def test_sample_weight_and_offset_are_routed(table):
    X, y = table
    weight, offset = np.where(X["b"] > 0, 2.0, 1.0), np.linspace(0, 1, N)
    with sklearn.config_context(enable_metadata_routing=True):
        m = regressor().set_fit_request(sample_weight=True, offset=True).set_predict_request(offset=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), m)
        pipeline.fit(X, y, sample_weight=weight, offset=offset)
        routed = pipeline.predict(X, offset=offset)
        scores = cross_val_score(
            regressor(max_features=2).set_fit_request(sample_weight=True).set_score_request(sample_weight=True),
            X,
            y,
            cv=2,
            params={"sample_weight": weight},
        )
    scaled = StandardScaler().fit_transform(X)
    alone = regressor().fit(scaled, y, sample_weight=weight, offset=offset)
    np.testing.assert_allclose(routed, alone.predict(scaled, offset=offset), atol=1e-10)
    assert scores.min() > 0.7


def test_inspection(table):
    X, y = table
    m = regressor(max_features=2).fit(X, y)
    curve = partial_dependence(m, X, ["b"], custom_values={"b": np.array([-2.0, 2.0])})["average"][0]
    tables = m.explain(X.iloc[:2].assign(b=[-2.0, 2.0]))[:, 0]
    assert np.ptp(curve) == pytest.approx(np.ptp(tables))  # an additive model's partial dependence is its term
    drops = permutation_importance(m, X, y, n_repeats=2, random_state=0).importances_mean
    assert set(np.flatnonzero(drops > 1e-9)) == {1, 3}


def test_with_other_classifiers(classes):
    X, y = classes
    whole = X[["b", "d"]]
    calibrated = CalibratedClassifierCV(classifier(max_bins=20), cv=2).fit(whole, y)
    assert calibrated.score(whole, y) > 0.85
    voting = VotingClassifier([("rbr", classifier(max_bins=20)), ("lr", LogisticRegression())], voting="soft")
    assert voting.fit(whole, y).score(whole, y) > 0.85
    assert cross_val_score(classifier(), X, y, cv=3, scoring="roc_auc").min() > 0.85


def test_breast_cancer_without_tuning():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    assert cross_val_score(classifier(), X, y, cv=3, scoring="roc_auc").mean() > 0.97


# ---------------------------------------------------------------- callbacks, of scikit-learn 1.9 and newer

HAS_CALLBACKS = hasattr(RBRRegressor, "set_callbacks")
needs_callbacks = pytest.mark.skipif(not HAS_CALLBACKS, reason="scikit-learn has callbacks since version 1.9")


class Recording:
    """A callback that records the tasks, and can stop the fit or fail at the end of one."""

    def __init__(self, stop_at=None, fail_at=None):
        self.events, self.stop_at, self.fail_at = [], stop_at, fail_at

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(("begin", context.task_name, context.task_id))

    def on_fit_task_end(self, estimator, context):
        self.events.append(("end", context.task_name, context.task_id))
        if context.task_name == "iteration" and context.task_id == self.fail_at:
            raise RuntimeError("enough")
        return context.task_name == "iteration" and context.task_id == self.stop_at


def test_callbacks_are_there_with_scikit_learn_1_9():
    version = tuple(int(part) for part in re.findall(r"\d+", sklearn.__version__)[:2])
    assert HAS_CALLBACKS == (version >= (1, 9))


@needs_callbacks
def test_callbacks_see_every_iteration(table):
    X, y = table
    callback = Recording()
    m = regressor().set_callbacks(callback).fit(X, y)
    iterations = [(what, "iteration", i) for i in range(m.n_iter_ + 1) for what in ("begin", "end")]
    assert callback.events == ["setup", ("begin", "fit", 0), *iterations, ("end", "fit", 0), "teardown"]
    assert m.model_ == regressor().fit(X, y).model_


@needs_callbacks
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_callback_stops_a_fit(table):
    X, y = table
    m = regressor(jump_cost=0.1).set_callbacks(Recording(stop_at=1)).fit(X, y)
    assert m.n_iter_ == 1
    assert m.score(X, y) > 0.5


@needs_callbacks
def test_a_callback_that_fails_is_torn_down(table):
    X, y = table
    callback = Recording(fail_at=0)
    m = regressor().set_callbacks(callback)
    with pytest.raises(RuntimeError, match="enough"):
        m.fit(X, y)
    assert callback.events[-1] == "teardown"
    assert not hasattr(m, "model_") and not hasattr(m, "_callback_fit_ctx")


@needs_callbacks
def test_a_scoring_monitor_scores_the_fitted_model(classes):
    from sklearn.callback import ScoringMonitor

    X, y = classes
    monitor = ScoringMonitor(scoring="accuracy")
    m = classifier().set_callbacks(monitor).fit(X, y)
    (scored,) = monitor.get_logs().data_as_pandas["accuracy"].dropna()
    assert scored == m.score(X, y)


@needs_callbacks
def test_a_progress_bar_moves(table):
    pytest.importorskip("rich", reason="scikit-learn's ProgressBar needs rich")
    from sklearn.callback import ProgressBar

    assert regressor().set_callbacks(ProgressBar()).fit(*table).n_iter_ > 0
