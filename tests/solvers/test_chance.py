"""What chance alone selects at a jump cost of 1, the price of chance: noise stays out, and equal levels fuse."""

from __future__ import annotations

import numpy as np
import pytest

import rbr
from rbr.constraints import Constraints
from rbr.data.design import BinnedMatrix

LOSSES = ("squared_error", "log_loss")


def outcome(rng, z, loss):
    """z with noise of variance 1, or classes with log-odds 2 z - 0.5."""
    if loss == "squared_error":
        return z + rng.standard_normal(len(z))
    return (rng.random(len(z)) < 1 / (1 + np.exp(0.5 - 2 * z))).astype(float)


def single_fit(X, y, loss):
    estimator = rbr.RBRRegressor if loss == "squared_error" else rbr.RBRClassifier
    return estimator(n_bags=0, jump_cost=1.0, categorical_features=list(range(X.shape[1]))).fit(X, y)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("n_features", "n_bins", "shape"),
    [(1, 2, "constant"), (1, 2, "levels"), (2, 2, "constant"), (10, 2, "levels"), (1, 255, "mixed")],
)
def test_noise_enters_in_at_most_one_fit_of_twenty(loss, n_features, n_bins, shape):
    """With an entry price of 2 log p, a single column of two bins would enter in 24% of all fits."""
    rng = np.random.default_rng(2)
    n_rows, n_fits, n_entered = 500, 300, 0
    for _ in range(n_fits):
        codes = np.array([rng.permutation(n_rows) * n_bins // n_rows for _ in range(n_features)])
        B = BinnedMatrix(codes, offsets=np.arange(n_features + 1) * n_bins)
        y = outcome(rng, np.zeros(n_rows), loss)
        s = rbr.solve(B, y, loss=loss, dispersion=1.0, constraints=Constraints(shape=shape, jump_cost=1.0))
        n_entered += len(s.support) > 0
    assert n_entered <= n_fits / 20


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_features", [1, 10])
@pytest.mark.parametrize("n_levels", [2, 5, 20, 100, 1000])
def test_categories_of_noise_stay_out(n_levels, n_features, loss):
    n_rows, n_fits, n_entered = 2000, 40, 0
    for seed in range(n_fits):
        rng = np.random.default_rng([n_levels, n_features, seed])
        X = rng.integers(0, n_levels, (n_rows, n_features))
        n_entered += len(single_fit(X, outcome(rng, np.zeros(n_rows), loss), loss).selected_features_) > 0
    assert n_entered <= n_fits / 20


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_rows", [2000, 8000])
def test_equal_levels_fuse(n_rows, loss):
    """Eight levels, of which one differs. While eight groups cost little more than two, 87% of fits kept more."""
    n_groups = []
    for seed in range(40):
        rng = np.random.default_rng([n_rows, seed])
        c = rng.integers(0, 8, n_rows)
        y = outcome(rng, 1.0 * (c == 3), loss)
        s = rbr.solve(BinnedMatrix([c], [0, 8]), y, loss=loss, constraints=Constraints(shape="levels", jump_cost=1.0))
        n_groups.append(len(np.unique(s.labels)))
        assert (s.labels == s.labels[3]).sum() == 1
    assert n_groups.count(2) >= 36  # 19 of 20 in the mean over many more
    assert max(n_groups) <= 3
