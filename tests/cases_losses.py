"""The kernels of the log-loss: labels, scores from tiny to beyond doubt, weights of zero, blocks that are not full."""

from __future__ import annotations

from functools import partial

import numpy as np
from helpers import Case
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rbr.reference.losses import ROWS_PER_SUM

awkward = [
    np.nan,
    np.inf,
    -np.inf,
    0.0,
    -0.0,
    5e-324,
    1e-300,
    0.881373587,
    708.5,
    -709.7,
    -744.4,
    745.2,
    -1000.0,
    1e308,
]
some_scores = st.floats(-750, 750) | st.floats(-3, 3) | st.sampled_from(awkward)


def assert_same_digits(actual_outs, expected_outs):
    """Each number to a few units in its last place; below the normal range, of the least number there is."""
    for actual, expected in zip(actual_outs, expected_outs, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-15, atol=1e-322)


@st.composite
def labels_and_scores(draw, max_rows=40):
    n_rows = draw(st.integers(0, max_rows))
    y = draw(arrays(np.float64, n_rows, elements=st.sampled_from([0.0, 1.0])))
    return y, draw(arrays(np.float64, n_rows, elements=some_scores))


@st.composite
def row_cases(draw, with_labels=True, with_weights=True):
    y, z = draw(labels_and_scores())
    if draw(st.booleans()):
        y.flags.writeable = z.flags.writeable = False
    v = np.random.default_rng(draw(st.integers(0, 99))).random(len(y) if draw(st.booleans()) else 0)
    args = [y] * with_labels + [z] + [v] * with_weights
    return Case(args, [np.full(len(z), np.nan)], len(z), assert_same_digits)


@st.composite
def distance_cases(draw):
    n_rows = draw(st.integers(0, 40)) if draw(st.booleans()) else ROWS_PER_SUM + 300
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    v = (rng.random(n_rows) + 0.01) * draw(st.sampled_from([1.0, 1e-9, 1e-300]))
    one, other = v * rng.standard_normal((2, n_rows)) * draw(st.sampled_from([1.0, 1e-9, 1e200]))
    if n_rows and draw(st.booleans()):
        one[rng.integers(n_rows)] = draw(st.sampled_from([np.nan, np.inf, 0.0]))
    n_blocks = -(-n_rows // ROWS_PER_SUM)
    return Case([one, other, v], [np.full((n_blocks, 2), np.nan)], n_blocks)


@st.composite
def sum_cases(draw):
    y, z = draw(labels_and_scores())
    if len(y) and draw(st.booleans()):  # full blocks, and one that is not
        n_rows = draw(st.sampled_from([ROWS_PER_SUM, ROWS_PER_SUM + 1, 2 * ROWS_PER_SUM + 517]))
        y, z = np.resize(y, n_rows), np.resize(z, n_rows)
    scale = draw(st.sampled_from([1.0, 0.0, 1e-300, 1e200]))
    v = np.random.default_rng(draw(st.integers(0, 99))).random(len(y)) * scale
    c = draw(st.floats(-30, 30) | st.just(0.0))
    n_blocks = -(-len(y) // ROWS_PER_SUM)
    return Case(
        [y, z, v, c], [np.full((n_blocks, 6), np.nan)], n_blocks, partial(_assert_same_sums, scale=max(scale, 1.0))
    )


def _assert_same_sums(actual_outs, expected_outs, scale):
    """Nothing cancels in the first five, so each column has its own digits; the last is at most the curvature.

    Far below the normal range digits are few, and a large weight brings that to light.
    """
    *actual, third = actual_outs[0].T
    *expected, expected_third = expected_outs[0].T
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-318 * scale)
    curvature = expected[2] + expected[3]
    is_number = np.isfinite(expected_third)
    np.testing.assert_array_equal(np.isfinite(third), is_number)
    assert (np.abs(third - expected_third)[is_number] <= 1e-13 * curvature[is_number] + 1e-310 * scale).all()


CASES = {
    "log_loss_values": row_cases(with_weights=False),
    "log_loss_residual": row_cases(),
    "log_loss_curvature": row_cases(with_labels=False),
    "log_loss_sums": sum_cases(),
    "squared_distances": distance_cases(),
}
