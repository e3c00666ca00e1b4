"""Cases for the kernel of averages over grids: single cells, rows, columns, missing values, empty cells, no planes."""

from __future__ import annotations

import numpy as np
from helpers import Case
from hypothesis import strategies as st


def assert_near(actual_outs, expected_outs):
    """To the rounding of exponents, which are as large as the evidence, and of running sums.

    The kernel takes the sums of a rectangle as differences of running sums: one of a millionth of the weight has six
    digits less.
    """
    size = 1.0 + np.abs(expected_outs[1]).max(initial=0.0)
    for actual, expected in zip(actual_outs, expected_outs, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-8 * size, atol=1e-8 * size)


SIDES = st.tuples(st.integers(1, 6), st.integers(1, 6), *[st.integers(0, 1)] * 4)


@st.composite
def average_grids_cases(draw):
    sides = np.array(draw(st.lists(SIDES, max_size=3)), dtype=np.int64).reshape(-1, 6)
    n, sizes = len(sides), (sides[:, 0] + sides[:, 2]) * (sides[:, 1] + sides[:, 3])
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([1e-3, 1.0, 100.0]))
    weights = scale * rng.choice([0.0, 1.0, 10.0, 1e-5], offsets[-1]) * rng.uniform(0.5, 2.0, offsets[-1])
    values = draw(st.sampled_from([0.0, 0.1, 3.0])) * rng.normal(size=offsets[-1])
    priors = rng.choice([1e-2, 1.0, 30.0], n) if n else np.zeros(0)
    args = offsets, sides, weights * values, weights, priors
    for array in args:
        array.setflags(write=False)
    whole = draw(st.sampled_from([(0.0, 0.0), (0.5, 0.0), (1.0, 0.0), (0.25, 0.25), (0.0, 0.5), (0.3, 0.7)]))
    shares = draw(st.sampled_from([0.1, 0.5, 0.9])), *whole
    n_blocks = draw(st.sampled_from([0, 1, 3]))
    return Case((*args, *shares, n_blocks), [np.zeros(offsets[-1]), *(np.zeros(n) for _ in range(3))], n, assert_near)


@st.composite
def cut_grids_cases(draw):
    sides = np.array(draw(st.lists(SIDES, max_size=3)), dtype=np.int64).reshape(-1, 6)
    n, sizes = len(sides), (sides[:, 0] + sides[:, 2]) * (sides[:, 1] + sides[:, 3])
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # Numbers of few digits, so that both sums are exact; all differ, so that no two cuts gain the same but by chance.
    weights = rng.choice([0.0, 1.0, 4.0, 64.0], offsets[-1]) * rng.integers(1, 1024, offsets[-1])
    values = (
        draw(st.sampled_from([0, 1, 1000])) * rng.integers(-(2**20), 2**20, (offsets[-1], rng.integers(1, 4))) / 2.0**10
    )
    limits, prices = rng.integers(1, 9, n), rng.choice([0.0, 0.3, 1e5], n) if n else np.zeros(0)
    args = offsets, sides, np.ascontiguousarray(values), weights, limits, prices
    for array in args:
        array.setflags(write=False)
    most_exact = draw(st.sampled_from([0, 4, 6]))
    return Case((*args, most_exact), [np.zeros(offsets[-1], dtype=np.int32)], n)


def assert_surfaces_near(actual_outs, expected_outs):
    """To the rounding of a system whose pulls from the neighbours may be a million times those of the values."""
    (actual,), (expected,) = actual_outs, expected_outs
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-9 * np.abs(expected).max(initial=0.0))


@st.composite
def smooth_grids_cases(draw):
    sides = np.array(draw(st.lists(SIDES, max_size=3)), dtype=np.int64).reshape(-1, 6)
    n, sizes = len(sides), (sides[:, 0] + sides[:, 2]) * (sides[:, 1] + sides[:, 3])
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    weights = rng.choice([0.0, 1.0, 10.0, 1e-3], offsets[-1]) * rng.uniform(0.5, 2.0, offsets[-1])
    values = rng.normal(size=offsets[-1]) * draw(st.sampled_from([0.0, 1.0, 1e6]))
    strengths = rng.choice([0.0, 1e-3, 1.0, 1e3], n) if n else np.zeros(0)
    args = offsets, sides, values, weights, strengths
    for array in args:
        array.setflags(write=False)
    return Case(args, [np.zeros(offsets[-1])], n, assert_surfaces_near)


CASES = {
    "average_grids": average_grids_cases(),
    "cut_grids": cut_grids_cases(),
    "smooth_grids": smooth_grids_cases(),
}
