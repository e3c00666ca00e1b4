"""Cases for the kernels of averages: one bin, two, none, tiny and huge weights, no lines, nothing but lines."""

from __future__ import annotations

import numpy as np
from helpers import Case
from hypothesis import strategies as st


def assert_near(actual_outs, expected_outs):
    """To the rounding of exponents, which are as large as the evidence, and of running sums.

    The kernel takes the sums of a piece as differences of running sums: a piece of a millionth of the weight has six
    digits less.
    """
    size = 1.0 + np.abs(expected_outs[1]).max(initial=0.0)
    for actual, expected in zip(actual_outs, expected_outs, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-8 * size, atol=1e-8 * size)


@st.composite
def average_tables_cases(draw):
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 9, 17]), max_size=4))
    offsets, n = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), len(sizes)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([1e-3, 1.0, 100.0]))
    weights = scale * rng.choice([1.0, 10.0, 1e-5], offsets[-1]) * rng.uniform(0.5, 2.0, offsets[-1])
    values = draw(st.sampled_from([0.0, 0.1, 3.0])) * rng.normal(size=offsets[-1])
    args = (
        offsets,
        weights * values,
        weights,
        rng.choice([1e-2, 1.0, 30.0], n) if n else np.zeros(0),
        rng.choice([1e-3, 0.1, 1.0], n) if n else np.zeros(0),
        rng.choice([0.0, 0.5, 1.0], n) if n else np.zeros(0),
    )
    for array in args:
        array.setflags(write=False)
    return Case(args, [np.zeros(offsets[-1]), *(np.zeros(n) for _ in range(3))], n, assert_near)


@st.composite
def average_curves_cases(draw):
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 9, 17]), max_size=4))
    offsets, n = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), len(sizes)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([1e-200, 1e-3, 1.0, 100.0, 1e200]))
    weights = scale * rng.choice([1.0, 10.0, 1e-5], offsets[-1]) * rng.uniform(0.5, 2.0, offsets[-1])
    values = draw(st.sampled_from([0.0, 0.1, 3.0])) * rng.normal(size=offsets[-1]) / np.sqrt(scale)
    args = (
        offsets,
        weights * values,
        weights,
        scale * rng.uniform(0.1, 1.0, n),
        np.array(draw(st.sampled_from([[0.0], [1.0, 0.0], [100.0, 0.3]]))),
        np.array(draw(st.sampled_from([[10.0], [0.1, 1.0, 30.0]]))),
    )
    for array in args:
        array.setflags(write=False)

    def assert_near_in_units(actual_outs, expected_outs):
        assert_near(*([outs[0] * np.sqrt(scale), *outs[1:]] for outs in (actual_outs, expected_outs)))

    return Case(args, [np.zeros(offsets[-1]), *(np.zeros(n) for _ in range(2))], n, assert_near_in_units)


CASES = {"average_curves": average_curves_cases(), "average_tables": average_tables_cases()}
