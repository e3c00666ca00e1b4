"""`score`: D^2 of the model's own loss beside the same offset, accuracy for classes, through scikit-learn's routing."""

import numpy as np
import pytest
import sklearn
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import d2_pinball_score, d2_tweedie_score, r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from rbr import RBRClassifier, RBRRegressor
from rbr.losses import Quantile, get_loss


def tweedie(power):
    return lambda *args, **options: d2_tweedie_score(*args, power=power, **options)


LOSSES = {
    "squared_error": ("squared_error", r2_score),
    "poisson": ("poisson", tweedie(1)),
    "gamma": ("gamma", tweedie(2)),
    "tweedie": ("tweedie", tweedie(1.5)),
    "quantile": (Quantile(level=0.8), lambda *args, **options: d2_pinball_score(*args, alpha=0.8, **options)),
}


def rows_for(name, n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    mean = np.exp(0.9 * X[:, 0])
    y = {
        "poisson": lambda: rng.poisson(mean),
        "gamma": lambda: rng.gamma(2.0, mean / 2),
        "tweedie": lambda: rng.poisson(mean) * rng.gamma(2.0, 1.0, n),
    }.get(name, lambda: X[:, 0] + rng.normal(size=n))()
    return X, y.astype(float), rng


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("weighted", [False, True])
def test_score_is_d2_of_the_own_loss_as_scikit_learn_defines_it(name, weighted):
    X, y, rng = rows_for(name)
    loss, metric = LOSSES[name]
    weights = rng.integers(0, 4, len(y)) if weighted else None
    m = RBRRegressor(loss, n_bags=0).fit(X, y)
    expected = metric(y, m.predict(X), sample_weight=weights)
    assert 0.02 < expected < 1
    assert m.score(X, y, sample_weight=weights) == pytest.approx(expected, abs=1e-12)


def test_score_of_huber_compares_huber_losses_of_the_fit():
    X, y, _ = rows_for("huber")
    y[:5] += 100.0
    m = RBRRegressor("huber", n_bags=0).fit(X, y)
    loss = m.model_.loss
    v = np.full(len(y), 1 / len(y))
    constant = loss.constant_start(y, v)
    expected = 1 - loss.value(y, m.predict(X), v) / loss.value(y, np.full(len(y), constant), v)
    assert m.score(X, y) == pytest.approx(expected, abs=1e-12)
    assert m.score(X, y) > r2_score(y, m.predict(X)) + 0.05  # the five far rows do not decide


@pytest.mark.parametrize("power", [1.0, 1.3, 2.0])
def test_least_values_are_the_least_losses(power):
    loss = get_loss("tweedie", power=power)
    y = np.array([0.2, 1.0, 7.5] if power == 2 else [0.0, 0.2, 1.0, 7.5])
    grid = np.linspace(-40, 5, 45001)
    least = [loss.values(np.full(len(grid), own), grid).min() for own in y]
    np.testing.assert_allclose(loss.least_values(y), least, atol=1e-5)


@pytest.mark.parametrize("name", [*LOSSES, "huber"])
def test_the_baseline_is_the_best_constant_beside_the_offset(name):
    """A model that knows nothing but the offset scores 0, whatever the offset; without it the score would be wrong."""
    X, y, rng = rows_for(name)
    offset = rng.normal(size=len(y))
    y = y * np.exp(offset) if get_loss(LOSSES.get(name, (name,))[0]).link == "log" else y + offset
    loss = LOSSES.get(name, (name,))[0]
    m = RBRRegressor(loss, exclude=[0, 1, 2]).fit(X, y, offset=offset)
    assert m.terms_ == ()
    # The smoothed quantile of the fit is not exactly the quantile that the score compares with.
    assert m.score(X, y, offset=offset) == pytest.approx(0, abs=1e-3 if name == "quantile" else 1e-9)


def test_counts_with_exposure_are_scored_against_a_constant_rate():
    rng = np.random.default_rng(0)
    X, exposure = rng.normal(size=(2000, 2)), rng.uniform(0.05, 20, 2000)
    y = rng.poisson(np.where(X[:, 0] > 0, 0.3, 0.1) * exposure)
    m = RBRRegressor("poisson").fit(X, y, offset=np.log(exposure))
    expected_claims = m.predict(X, offset=np.log(exposure))
    deviance = 1 - d2_tweedie_score(y, expected_claims, power=1)
    rate = np.full(len(y), y.sum() / exposure.sum()) * exposure
    of_rate = 1 - d2_tweedie_score(y, rate, power=1)
    score = m.score(X, y, offset=np.log(exposure))
    assert score == pytest.approx(1 - deviance / of_rate, abs=1e-12)
    # Against a constant number of claims the exposure itself would earn the model a high score.
    assert d2_tweedie_score(y, expected_claims, power=1) > score + 0.1


def test_score_without_the_offset_of_the_fit_warns():
    X, y, rng = rows_for("poisson")
    m = RBRRegressor("poisson", n_bags=0).fit(X, y, offset=np.zeros(len(y)))
    with pytest.warns(UserWarning, match="fitted with an offset, and these rows have none"):
        m.score(X, y)
    labels = y > 1
    c = RBRClassifier(n_bags=0).fit(X, labels, offset=np.zeros(len(y)))
    with pytest.warns(UserWarning, match="set_score_request"):
        c.score(X, labels)


def test_classes_are_scored_by_accuracy_with_weights_and_offset():
    X, y, rng = rows_for("squared_error")
    labels = np.where(y > 0, "yes", "no")
    weights, offset = rng.integers(0, 3, len(y)), rng.normal(size=len(y))
    m = RBRClassifier(n_bags=0).fit(X, labels)
    hits = m.predict(X, offset=offset) == labels
    assert m.score(X, labels, sample_weight=weights, offset=offset) == pytest.approx(np.average(hits, weights=weights))
    assert m.score(X, labels) == pytest.approx((m.predict(X) == labels).mean())


def test_rows_that_a_constant_fits():
    X, y, _ = rows_for("poisson")
    m = RBRRegressor("poisson", n_bags=0).fit(X, y)
    assert m.score(X[:5], np.zeros(5)) == 0.0  # counts of a fold that are all 0 are allowed
    constant = RBRRegressor(exclude=[0, 1, 2]).fit(X, np.full(len(y), 3.0))
    assert constant.score(X, np.full(len(y), 3.0)) == 1.0
    with pytest.warns(UndefinedMetricWarning):
        assert np.isnan(m.score(X[:1], y[:1]))


def test_errors_of_score_name_the_argument():
    X, y, _ = rows_for("poisson")
    m = RBRRegressor("poisson", n_bags=0).fit(X, y)
    with pytest.raises(ValueError, match=r"loss 'poisson': y\[0\] is -1"):
        m.score(X, np.full(len(y), -1.0))
    with pytest.raises(ValueError, match=r"offset has shape \(3,\)"):
        m.score(X, y, offset=np.zeros(3))
    with pytest.raises(ValueError, match="sample_weight"):
        m.score(X, y, sample_weight=np.zeros(3))


# Metadata routing ---------------------------------------------------------------------------------------------------


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def claims(n=900):
    rng = np.random.default_rng(3)
    X, exposure = rng.normal(size=(n, 3)), rng.uniform(0.05, 10, n)
    # The second column says nothing but how long a policy ran: by counts it looks like the best feature.
    X[:, 1] = np.log(exposure) + 0.1 * rng.normal(size=n)
    return X, rng.poisson(np.where(X[:, 0] > 0, 0.6, 0.2) * exposure), np.log(exposure)


def test_cross_validate_scores_beside_the_exposure(routing):
    X, y, offset = claims()
    m = RBRRegressor("poisson", n_bags=0).set_fit_request(offset=True).set_score_request(offset=True)
    folds = KFold(3)
    found = cross_validate(m, X, y, cv=folds, params={"offset": offset})["test_score"]
    expected = [
        RBRRegressor("poisson", n_bags=0)
        .fit(X[train], y[train], offset=offset[train])
        .score(X[test], y[test], offset=offset[test])
        for train, test in folds.split(X)
    ]
    np.testing.assert_allclose(found, expected)


def test_grid_search_with_an_exposure_tunes_on_the_right_number(routing):
    X, y, offset = claims()
    grid = {"exclude": [[0, 2], [1, 2]]}  # the column of the exposure alone, or the one that matters
    m = RBRRegressor("poisson", n_bags=0)
    routed = m.set_fit_request(offset=True, sample_weight=True).set_score_request(offset=True, sample_weight=True)
    search = GridSearchCV(routed, grid, cv=3).fit(X, y, offset=offset, sample_weight=np.ones(len(y)))
    assert search.best_params_ == {"exclude": [1, 2]}
    assert search.cv_results_["mean_test_score"][0] < 0.05 < search.best_score_
    # By the counts alone it would choose the other one.
    by_counts = RBRRegressor("poisson", n_bags=0).set_fit_request(offset=False).set_score_request(offset=False)
    assert GridSearchCV(by_counts, grid, cv=3).fit(X, y).best_params_ == {"exclude": [0, 2]}
    # A search that forgets the offset in the scores is warned.
    forgets = RBRRegressor("poisson", n_bags=0).set_fit_request(offset=True).set_score_request(offset=False)
    with pytest.warns(UserWarning, match="fitted with an offset"):
        GridSearchCV(forgets, grid, cv=3).fit(X, y, offset=offset)


def test_a_pipeline_routes_offsets_to_predict(routing):
    X, y, offset = claims()
    m = RBRRegressor("poisson", n_bags=0).set_fit_request(offset=True).set_predict_request(offset=True)
    line = make_pipeline(FunctionTransformer(), m.set_score_request(offset=True)).fit(X, y, offset=offset)
    np.testing.assert_array_equal(line.predict(X, offset=offset), line[-1].predict(X, offset=offset))
    assert line.score(X, y, offset=offset) == line[-1].score(X, y, offset=offset)


def test_classifiers_route_offsets_too(routing):
    X, y, offset = claims()
    m = RBRClassifier(n_bags=0).set_fit_request(offset=True).set_score_request(offset=True)
    m.set_predict_proba_request(offset=True)
    found = cross_validate(m, X, y > 1, cv=3, params={"offset": offset})["test_score"]
    assert (found > 0.5).all()
