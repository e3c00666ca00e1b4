"""Intervals: conformal ones cover new rows as often as they promise, bootstrap bands the mean nearly as often."""

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.exceptions import NotFittedError

from rbr import RBRClassifier, RBRRegressor
from rbr.estimators.intervals import Calibration
from rbr.losses import Quantile, get_loss

LOSSES = ("squared_error", "poisson", "gamma", "tweedie", "huber", Quantile(level=0.8))


def draw(loss, n, rng):
    X = rng.normal(size=(n, 3))
    mean = np.exp(0.8 * X[:, 0])
    name = getattr(loss, "name", loss)
    if name == "poisson":
        y = rng.poisson(5 * mean)
    elif name == "gamma":
        y = rng.gamma(2.0, mean / 2)
    elif name == "tweedie":
        y = rng.poisson(3 * mean) * rng.gamma(2.0, 1.0, n)
    else:
        y = X[:, 0] + rng.standard_t(4, n)
    return X, y.astype(float)


def covered(m, X, y, level, **options):
    low, high = m.predict_interval(X, level, **options).T
    return (low <= y) & (y <= high)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: getattr(loss, "name", loss))
def test_conformal_intervals_cover_as_often_as_they_promise(loss):
    """Over many calibrations with 39 rows; with ties, as between counts, at least as often."""
    rng = np.random.default_rng(0)
    m = RBRRegressor(loss, n_bags=0).fit(*draw(loss, 500, rng))
    hits = [covered(m.calibrate(*draw(loss, 39, rng)), *draw(loss, 40, rng), 0.9).mean() for _ in range(300)]
    error = np.std(hits) / np.sqrt(len(hits))
    assert np.mean(hits) >= 0.9 - 3 * error
    if loss not in ("poisson", "tweedie"):
        assert np.mean(hits) <= 0.9 + 3 * error


@pytest.mark.parametrize("loss", ["poisson", "tweedie"])
def test_intervals_contain_zero_where_it_is_likely(loss):
    """Of rare claims 0 is the most likely number in every row; 90% of the rows can be covered without it."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(9000, 2))
    y = rng.poisson(0.05 + 0.5 * X[:, 0] ** 4) * (rng.gamma(2.0, 1.0, 9000) if loss == "tweedie" else 1.0)
    m = RBRRegressor(loss, n_bags=0).fit(X[:3000], y[:3000]).calibrate(X[3000:6000], y[3000:6000])
    low, high = m.predict_interval(X[6000:], 0.9).T
    assert (low == 0).all() and (high > 0).all()
    often = Calibration(rng.normal(size=999), np.ones(999)).interval(m.model_.loss, np.array([1.0, 25.0]), 0.9)
    assert often[0, 0] == 0.0 and often[1, 0] > 5


@pytest.mark.parametrize("power", [1.0, 1.3, 1.9])
def test_chance_of_zero_is_that_of_draws(power):
    rng = np.random.default_rng(1)
    mean, dispersion = 1.7, 1.0 if power == 1 else 0.8
    number = mean ** (2 - power) / (dispersion * (2 - power))
    drawn = rng.poisson(number, 200_000)
    shape = (2 - power) / (power - 1) if power > 1 else np.inf
    y = drawn if power == 1 else rng.gamma(np.maximum(drawn * shape, 1e-300), mean / number / shape)
    y = np.where(drawn == 0, 0.0, y)
    assert y.mean() == pytest.approx(mean, rel=0.02) and y.var() == pytest.approx(dispersion * mean**power, rel=0.05)
    loss = get_loss("tweedie", power=power)
    assert loss.chance_of_zero(np.array([mean]), dispersion)[0] == pytest.approx(np.mean(y == 0), abs=0.005)
    assert get_loss("gamma").chance_of_zero(np.array([mean]), dispersion)[0] == 0


def test_intervals_of_a_model_that_is_wrong_cover_too():
    rng = np.random.default_rng(1)
    X, y = draw("squared_error", 4000, rng)
    m = RBRRegressor(exclude=[0, 1, 2]).fit(X[:100], y[:100] + 50).calibrate(X[:2000], y[:2000])
    assert covered(m, X[2000:], y[2000:], 0.8).mean() == pytest.approx(0.8, abs=0.03)


def test_each_side_is_missed_by_half_of_the_rest():
    rng = np.random.default_rng(2)
    X, y = draw("gamma", 9000, rng)
    m = RBRRegressor("gamma", n_bags=0).fit(X[:1000], y[:1000]).calibrate(X[1000:5000], y[1000:5000])
    low, high = m.predict_interval(X[5000:], 0.8).T
    assert (y[5000:] < low).mean() == pytest.approx(0.1, abs=0.02)
    assert (y[5000:] > high).mean() == pytest.approx(0.1, abs=0.02)
    assert (low >= 0).all()
    # The interval widens with the mean, so rows of small and of large means are covered alike.
    large = X[5000:, 0] > 0
    for part in (large, ~large):
        assert covered(m, X[5000:][part], y[5000:][part], 0.8).mean() == pytest.approx(0.8, abs=0.04)


def test_ranks_are_those_of_finite_samples():
    deviations = np.random.default_rng(0).permutation(np.arange(1.0, 100.0))
    calibration = Calibration(deviations, np.ones(99))
    assert calibration.ends(0.9) == (5.0, 95.0)
    assert calibration.ends(0.91) == (4.0, 96.0)
    assert Calibration(np.arange(1.0, 20.0), np.ones(19)).ends(0.9) == (1.0, 19.0)
    assert Calibration(np.arange(1.0, 19.0), np.ones(18)).ends(0.9) == (-np.inf, np.inf)


def test_whole_weights_are_repeated_rows():
    rng = np.random.default_rng(3)
    X, y = draw("squared_error", 400, rng)
    weights = rng.integers(0, 4, 300)
    m = RBRRegressor(n_bags=0).fit(X[300:], y[300:])
    weighted = m.calibrate(X[:300], y[:300], sample_weight=weights).predict_interval(X, 0.85)
    repeated = m.calibrate(np.repeat(X[:300], weights, axis=0), np.repeat(y[:300], weights)).predict_interval(X, 0.85)
    np.testing.assert_array_equal(weighted, repeated)


def test_counts_with_an_exposure_are_calibrated_beside_it():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(6000, 2))
    exposure = rng.uniform(1, 30, 6000)
    y = rng.poisson(np.where(X[:, 0] > 0, 3.0, 1.0) * exposure)
    offset = np.log(exposure)
    m = RBRRegressor("poisson", n_bags=0).fit(X[:2000], y[:2000], offset=offset[:2000])
    m.calibrate(X[2000:4000], y[2000:4000], offset=offset[2000:4000])
    hit = covered(m, X[4000:], y[4000:], 0.9, offset=offset[4000:])
    long = exposure[4000:] > 15
    for part in (long, ~long):
        assert hit[part].mean() == pytest.approx(0.9, abs=0.04)
    with pytest.warns(UserWarning, match="fitted with an offset"):
        m.calibrate(X[2000:4000], y[2000:4000])


def test_a_calibration_belongs_to_one_fit():
    rng = np.random.default_rng(5)
    X, y = draw("squared_error", 200, rng)
    m = RBRRegressor(n_bags=0).fit(X, y)
    with pytest.raises(NotFittedError, match=r"predict_interval needs calibrate\(X, y\) first"):
        m.predict_interval(X)
    m.calibrate(X, y)
    expected = m.predict_interval(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(m)).predict_interval(X), expected)
    m.fit(X, y)
    with pytest.raises(NotFittedError):
        m.predict_interval(X)
    assert not hasattr(sklearn.clone(m.calibrate(X, y)), "calibration_")


@pytest.mark.parametrize("level", [0, 1, 1.5, -0.1, "high", None])
def test_levels_that_are_not_allowed(level):
    X, y = draw("squared_error", 100, np.random.default_rng(0))
    m = RBRRegressor(n_bags=0).fit(X, y).calibrate(X, y)
    with pytest.raises(ValueError, match="level is"):
        m.predict_interval(X, level)


# Bands of the mean ------------------------------------------------------------------------------------------------


def test_bootstrap_intervals_are_quantiles_of_what_the_refits_predict():
    rng = np.random.default_rng(6)
    X, y = draw("poisson", 400, rng)
    offset = 0.1 * rng.normal(size=400)
    m = RBRRegressor("poisson", n_bags=0).fit(X, y, offset=offset)
    boot = m.bootstrap(X, y, n=12, offset=offset, random_state=0)
    assert len(boot.models) == 12
    each = np.stack([model.predict(X, offset=offset) for model in boot.models])
    np.testing.assert_array_equal(boot.predict(X, offset=offset), each)
    interval = boot.predict_interval(X, 0.5, offset=offset)
    assert interval.shape == (400, 2)
    np.testing.assert_allclose(interval[:, 0], np.quantile(each, 0.25, axis=0))
    np.testing.assert_allclose(interval[:, 1], np.quantile(each, 0.75, axis=0))
    # The tables of the bands are those of the models.
    used = [name for name in (term.name for term in boot.terms) if all(name in names_of(b) for b in boot.models)]
    for name in used:
        tables = np.stack([model[name].all_values for model in boot.models])
        shifted = boot.tables[boot._position(name)] - tables
        np.testing.assert_allclose(shifted, np.broadcast_to(shifted[:, :1], shifted.shape), atol=1e-9)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(boot)).predict_interval(X, 0.5, offset=offset), interval)


def names_of(model):
    return {term.name for term in model.terms}


def test_bootstrap_intervals_of_classes_are_probabilities():
    rng = np.random.default_rng(7)
    X, y = draw("squared_error", 400, rng)
    two = RBRClassifier(n_bags=0).fit(X, y > 0).bootstrap(X, y > 0, n=5, random_state=0)
    assert two.predict_interval(X).shape == (400, 2)
    labels = np.digitize(y, [-0.5, 0.5])
    three = RBRClassifier(n_bags=0).fit(X, labels).bootstrap(X, labels, n=5, random_state=0)
    interval = three.predict_interval(X)
    assert interval.shape == (400, 3, 2)
    assert ((0 <= interval) & (interval <= 1)).all() and (interval[..., 0] <= interval[..., 1]).all()


def test_bootstrap_intervals_cover_the_true_mean_nearly_as_often_as_they_say():
    """Away from the jump; bins, bias and the price of pieces are not in the bands."""
    inside = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(600, 2))
        y = np.where(X[:, 0] > 0, 1.0, -1.0) + rng.normal(size=600)
        boot = RBRRegressor(n_bags=0, shape="constant").fit(X, y).bootstrap(X, y, n=40, random_state=seed)
        new = rng.normal(size=(400, 2))
        new = new[np.abs(new[:, 0]) > 0.2]
        low, high = boot.predict_interval(new, 0.9).T
        truth = np.where(new[:, 0] > 0, 1.0, -1.0)
        inside.append(((low <= truth) & (truth <= high)).mean())
        assert (high - low).mean() < 0.6
    assert 0.7 < np.mean(inside) <= 1.0
