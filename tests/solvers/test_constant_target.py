"""A constant y gives the constant model without a warning, and a nearly constant one gives finite numbers only."""

from __future__ import annotations

import numpy as np
import pytest
from problems import WEIGHTINGS, make_design

import rbr
from rbr.constraints import Constraints

LOSSES = ("squared_error", "huber", "quantile", "poisson", "gamma", "tweedie")
VALUES = (1.0, 0.1, 3.7e5, 1e-200)
N = 60

pytestmark = pytest.mark.filterwarnings("error")

CONSTRAINTS = {
    "jump cost": Constraints(jump_cost=0.5),
    "paper": Constraints(2, 3),
    "lines": Constraints(2, 3, shape="linear"),
    "free": Constraints(shape="free"),
    "included": Constraints(max_segments=3, always_include=(0,)),
}


def is_finite(*numbers):
    return np.isfinite(np.concatenate([np.ravel(number) for number in numbers])).all()


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4)).round(1)
    X[:5, 1] = np.nan
    return X


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("limits", CONSTRAINTS)
@pytest.mark.parametrize("solver", ["auto", "algorithm1"])
def test_the_answer_is_the_constant_model(loss, weighting, limits, solver):
    """Also where a log link leaves rounding errors in the residuals, which without a jump cost could become tables."""
    design = make_design().with_weights(weighting)
    weight = np.random.default_rng(1).integers(0, 3, design.n_rows).astype(float)
    for value in VALUES:
        # Rows of weight zero do not count.
        for y, sample_weight in ((np.full(design.n_rows, value), None), (np.where(weight > 0, value, 9.0), weight)):
            options = {"constraints": CONSTRAINTS[limits], "sample_weight": sample_weight}
            s = rbr.solve(design, y, loss=loss, solver=solver, **options)
            assert s.converged
            assert len(s.support) == 0
            assert not s.f.any()
            assert is_finite(s.intercept, s.loss, s.loss_path, s.step_size, s.residual, s.dispersion or 0.0)
            raw = np.full(design.n_rows, s.intercept)
            np.testing.assert_allclose(rbr.losses.get_loss(loss).inverse_link(raw), value, rtol=1e-12)
    certificate = s.certificate
    assert certificate.is_local_optimum
    assert is_finite(certificate.objective, certificate.relative_residual, certificate.gap)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("options", [{}, {"n_bags": 0, "refine_cuts": True}, {"jump_cost": 0.0, "weights": "uniform"}])
def test_a_fitted_estimator_tells_of_a_constant(loss, options, X):
    y = np.full(N, 0.3)
    m = rbr.RBRRegressor(loss=loss, **options).fit(X, y)
    np.testing.assert_allclose(m.predict(X), y, rtol=1e-12)
    assert is_finite(m.score(X, y))
    model = m.model_
    assert len(model.terms) == len(model.importances) == len(model.jumps()) == 0
    assert "nan" not in model.summary().lower()
    assert is_finite(m.loss_path_, m.dispersion_ or 0.0)
    assert not m.bootstrap(X, y, n=2, random_state=0).frequencies.any()
    with pytest.raises(ValueError, match="the model has no terms"):
        m.plot()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("options", [{}, {"n_bags": 0, "refine_cuts": True}, {"jump_cost": 0.0, "weights": "uniform"}])
@pytest.mark.parametrize("n_rows", [2, 5, N])
# With so few rows that tables fit y perfectly, the steps may not converge.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_constant_but_for_one_row(loss, options, n_rows, X):
    X, y = X[-n_rows:], np.where(np.arange(n_rows) == 0, 0.3, 0.1)
    m = rbr.RBRRegressor(loss=loss, **options).fit(X, y)
    model = m.model_
    assert is_finite(m.predict(X), m.loss_path_, m.dispersion_ or 0.0)
    assert is_finite([[one.loss_drop, one.mean_contribution] for one in model.importances])
    assert is_finite([[jump.low, jump.high, jump.loss_without] for jump in model.jumps()])
    assert "nan" not in model.summary().lower()
    if model.terms:
        import matplotlib.pyplot as plt

        plt.close(m.plot()[0].figure)


@pytest.mark.parametrize(("n_rows", "low", "high"), [(2, 0.1, 0.3), (4, 0.1, 0.4), (N, 0.2, 0.9)])
def test_a_median_between_two_values(n_rows, low, high):
    """Half of the rows above, half below: no row is near the constant model, and the loss has no curvature there."""
    design = rbr.BinnedMatrix([np.arange(n_rows) % 2, np.arange(n_rows) // (n_rows // 2)], offsets=[0, 2, 4])
    y = np.where(design.codes[1] == 1, high, low)
    for constraints in CONSTRAINTS.values():
        s = rbr.solve(design, y, loss="quantile", constraints=constraints)
        assert is_finite(s.f, s.intercept, s.loss, s.loss_path, s.step_size, s.residual)
        if n_rows == N or constraints.jump_cost == 0:
            np.testing.assert_allclose(s.intercept + design.matvec(s.f), y, atol=0.1 * (high - low))


@pytest.mark.parametrize("loss", ["poisson", "tweedie"])
def test_resamples_hold_a_positive_count(loss, X):
    """Only one row in sixty is not zero: a third of all resamples lack it, and these are drawn again."""
    y = np.where(np.arange(N) == 0, 2.0, 0.0)
    m = rbr.RBRRegressor(loss=loss, n_bags=0).fit(X, y)
    assert is_finite(m.bootstrap(X, y, n=20, random_state=0).frequencies)
