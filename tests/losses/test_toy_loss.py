"""A loss added from outside the package: it defines three methods, and everything else follows from them."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import rbr
from rbr import losses


@dataclass(frozen=True)
class LogCosh(losses.Loss):
    """log cosh(y - z): near squared error for small errors, near the absolute error for large ones."""

    name: ClassVar[str] = "log_cosh"

    def row_values(self, y, z):
        error = np.abs(y - z)
        return error + np.log1p(np.exp(-2 * error)) - np.log(2)

    def row_residuals(self, y, z):
        return np.tanh(y - z)

    def row_curvatures(self, y, z):
        return 1 - np.tanh(y - z) ** 2


@pytest.fixture(autouse=True)
def registered():
    yield losses.register(LogCosh)
    losses.unregister("log_cosh")


def data(n_rows=400):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 6))
    return X, 2 * (X[:, 1] > 0) - np.abs(X[:, 4]) + 0.2 * rng.standard_t(2, size=n_rows)


def test_what_follows_from_the_three_methods():
    X, y = data()
    loss, v = losses.get_loss("log_cosh"), np.full(len(y), 1 / len(y))
    z, h = np.linspace(-3, 3, len(y)), 1e-6
    ahead, behind = loss.values(y, z + h), loss.values(y, z - h)
    np.testing.assert_allclose(loss.residual(y, z), (behind - ahead) / (2 * h), atol=1e-8)
    slopes = (loss.residual(y, z - h) - loss.residual(y, z + h)) / (2 * h)
    np.testing.assert_allclose(loss.curvature(y, z), slopes, atol=1e-8)
    c = loss.refit_intercept(y, z, v)
    assert abs(v @ loss.residual(y, z + c)) < 1e-12
    assert loss.constant_start(y, v) == pytest.approx(loss.refit_intercept(y, 0 * z, v, 5.0), abs=1e-10)
    phi = v @ loss.residual(y, z) ** 2 / (v @ loss.curvature(y, z))
    assert loss.dispersion(y, z, v, 400, df=1) == pytest.approx(phi * 400 / 399)


def test_it_is_fitted_bagged_saved_and_loaded_by_its_name(tmp_path):
    X, y = data()
    single = rbr.RBRRegressor(loss="log_cosh", max_bins=32, n_bags=0).fit(X, y)
    assert single.selected_features_.tolist() == [1, 4]
    assert np.mean(np.abs(single.predict(X) - y)) < 0.6 * np.mean(np.abs(y - np.median(y)))
    assert rbr.RBRRegressor(loss="log_cosh", max_bins=32, n_bags=3).fit(X, y).score(X, y) > 0.5
    average = rbr.RBRRegressor(loss="log_cosh", interactions="auto").fit(X, y)
    assert {1, 4} <= set(average.selected_features_) and average.score(X, y) > 0.5
    single.save(tmp_path / "model.json")
    np.testing.assert_array_equal(rbr.load(tmp_path / "model.json").predict(X), single.predict(X))


def test_wrong_losses_are_refused(registered):
    with pytest.raises(ValueError, match="'log_cosh'; there is a loss of that name already"):
        losses.register(registered)
    with pytest.raises(TypeError, match="must be a subclass of rbr.losses.Loss"):
        losses.register(dict)
    with pytest.raises(ValueError, match="only a loss that was registered can be removed"):
        losses.unregister("poisson")

    class Empty(losses.Loss):
        name = "empty"

    with pytest.raises(TypeError, match="Empty must define row_values, row_residuals and row_curvatures"):
        Empty().values(np.zeros(2), np.zeros(2))
