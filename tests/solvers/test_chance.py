"""What chance alone selects at a jump cost of 1, the price of chance: equal levels fuse."""

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
    assert n_groups.count(2) >= 26
    assert max(n_groups) <= 5
