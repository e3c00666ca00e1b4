"""The kernels of the losses: tiny, huge and infinite scores, weights of zero, blocks that are not full."""

from __future__ import annotations

from functools import partial

import numpy as np
from helpers import Case
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rbr.reference.losses import LOSSES, ROWS_PER_SUM, softmax

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
    1.0,
    -1.0,
    -1e308,
]
some_scores = st.floats(-750, 750) | st.floats(-3, 3) | st.sampled_from(awkward)


def assert_same_digits(actual_outs, expected_outs, terms=0.0):
    """Each number to a few units in its last place, or, if it is subnormal, to a few times the smallest float.

    `terms` are the sizes of the numbers that were subtracted, whose rounding errors remain.
    """
    for actual, expected in zip(actual_outs, expected_outs, strict=True):
        different = ~((actual == expected) | np.isnan(actual) & np.isnan(expected))
        allowed = np.broadcast_to(2e-15 * np.abs(expected) + 1e-15 * terms + 1e-322, actual.shape)
        assert (np.abs(actual - expected)[different] <= allowed[different]).all(), (actual, expected)


@st.composite
def labels_and_scores(draw, max_rows=40):
    n_rows = draw(st.integers(0, max_rows))
    y = draw(arrays(np.float64, n_rows, elements=st.sampled_from([0.0, 1.0])))
    return y, draw(arrays(np.float64, n_rows, elements=some_scores))


@st.composite
def row_cases(draw):
    loss, order = draw(st.sampled_from(LOSSES)), draw(st.sampled_from([0, 1, 2]))
    y, z = draw(labels_and_scores())
    if loss != "log_loss":
        y = draw(arrays(np.float64, len(z), elements=st.sampled_from(TRUTHS)))
    if loss in ("squared_error", "huber", "quantile"):
        y = y * draw(st.sampled_from([1.0, -1.0]))
    a, b = draw(st.sampled_from(PARAMETERS.get(loss, [(np.nan, np.nan)])))
    if draw(st.booleans()):
        y.flags.writeable = z.flags.writeable = False
    v = np.random.default_rng(draw(st.integers(0, 99))).random(len(y) if draw(st.booleans()) else 0)
    return row_case(loss, order, a, b, y, z, v)


def row_case(loss, order, a, b, y, z, v):
    compare = assert_same_digits
    if loss != "log_loss":
        with np.errstate(all="ignore"):
            compare = partial(assert_same_digits, terms=size_of_terms(loss, order, a, b, y, z))
    return Case([LOSSES.index(loss), order, a, b, y, z, v], [np.full(len(z), np.nan)], len(z), compare)


TRUTHS = [0.0, 1.0, 1e-300, 3.7, 1e9, 1e300]

PARAMETERS = {
    "tweedie": [(q, np.nan) for q in (1.5, 1.001, 1.25, 1.999)],
    "huber": [(delta, np.nan) for delta in (1.0, 1e-200, 1e200)],
    "quantile": [(level, h) for level in (0.5, 0.01) for h in (1.0, 1e-200, 1e200)],
}


def size_of_terms(loss, order, a, b, y, z):
    """The largest of the numbers whose differences are the loss and its derivatives."""
    if loss in ("squared_error", "huber", "quantile"):
        r, most = np.abs(y - z), {"huber": a, "quantile": 1.0}.get(loss, np.inf)
        return [np.minimum(r, most) * r + (b if loss == "quantile" else 0.0), np.minimum(r, 1.0), 0.0][order]
    q = {"poisson": 1.0, "gamma": 2.0}.get(loss, a)
    pulls = np.where(y == 0, 0.0, y * np.exp((1 - q) * z)) + np.exp((2 - q) * z)
    return pulls + np.where(y == 0, 0.0, y * (1 + np.abs(z))) + np.abs(z)


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
    """The first five columns do not cancel and are compared relatively; the last is at most the curvature.

    Subnormal numbers have few digits, which a large weight makes visible: hence tolerances in units of `scale`.
    """
    *actual, third = actual_outs[0].T
    *expected, expected_third = expected_outs[0].T
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-318 * scale)
    curvature = expected[2] + expected[3]
    is_number = np.isfinite(expected_third)
    np.testing.assert_array_equal(np.isfinite(third), is_number)
    assert (np.abs(third - expected_third)[is_number] <= 1e-13 * curvature[is_number] + 1e-310 * scale).all()


@st.composite
def classes_and_scores(draw, elements=some_scores):
    n_classes, n_rows = draw(st.integers(2, 5)), draw(st.integers(0, 12))
    z = draw(arrays(np.float64, (n_classes, n_rows), elements=elements))
    if n_rows and draw(st.booleans()):  # full chunks, and one that is not
        z = np.ascontiguousarray(z[:, np.arange(draw(st.sampled_from([256, 257, 700]))) % n_rows])
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return rng.integers(0, n_classes, z.shape[1]), z, rng


@st.composite
def softmax_cases(draw):
    order = draw(st.sampled_from([0, 1, 2]))
    y, z, rng = draw(classes_and_scores())
    if draw(st.booleans()):
        y.flags.writeable = z.flags.writeable = False
    v = rng.random(len(y) if draw(st.booleans()) else 0)
    out = np.full((len(z) if order else 1, len(y)), np.nan)
    with np.errstate(all="ignore"):
        # The scores are subtracted from their largest, and the exponential makes that a relative error.
        sizes = np.abs(np.where(np.abs(z) < 1e3, z, 1e3)).max(axis=0, initial=1.0)
    compare = partial(assert_same_digits, terms=sizes if order == 0 else np.minimum(sizes, 1.0))
    return Case([order, y, z, v], [out], len(y), compare)


@st.composite
def softmax_sum_cases(draw):
    y, z, rng = draw(classes_and_scores(st.floats(-750, 750) | st.floats(-3, 3)))
    if len(y) and draw(st.booleans()):  # full blocks, and one that is not
        many = np.arange(draw(st.sampled_from([ROWS_PER_SUM, ROWS_PER_SUM + 1]))) % len(y)
        y, z = y[many], np.ascontiguousarray(z[:, many])
    v, c, n_classes = rng.random(len(y)), rng.normal(size=len(z)), len(z)
    n_blocks = -(-len(y) // ROWS_PER_SUM)
    out = np.full((n_blocks, 1 + n_classes + n_classes * (n_classes + 1) // 2), np.nan)
    return Case([y, z, v, c], [out], n_blocks)


@st.composite
def softmax_hessian_cases(draw):
    _, z, rng = draw(classes_and_scores(st.floats(-30, 30)))
    p, direction = softmax(z), rng.normal(size=z.shape)
    return Case([p, direction, rng.random(z.shape[1])], [np.full(z.shape, np.nan)], z.shape[1])


CASES = {
    "softmax_of_rows": softmax_cases(),
    "softmax_sums": softmax_sum_cases(),
    "softmax_hessian_times": softmax_hessian_cases(),
    "loss_of_rows": row_cases(),
    "log_loss_sums": sum_cases(),
    "squared_distances": distance_cases(),
}
