"""Awkward columns of numbers, and cases for the binning kernels made from them."""

from __future__ import annotations

import numpy as np
from helpers import Case, assert_close, assert_same_bits, largest_finite
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

AWKWARD = [np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, -5e-324, 1e-310, 1e308, -1e308, 1.7e308, 2.0**53]


@st.composite
def columns(draw, max_rows=60, elements=None):
    """(n_features, n_values) of float32 or float64: ties, NaN, infinities, subnormals, huge values."""
    dtype = draw(st.sampled_from([np.float64, np.float32]))
    shape = draw(st.integers(0, 3)), draw(st.integers(1, max_rows))
    few = st.integers(-3, 3).map(float)
    elements = elements or draw(st.sampled_from([few, few | st.sampled_from(AWKWARD), st.floats(-1e3, 1e3)]))
    with np.errstate(over="ignore"):
        return draw(arrays(np.float64, shape, elements=elements)).astype(dtype)


@st.composite
def sorted_columns(draw):
    values = np.sort(draw(columns()), axis=1)
    weight = draw(st.sampled_from([None, st.integers(1, 4).map(float), st.floats(1e-3, 10.0)]))
    if weight is None:
        return values, np.empty((len(values), 0))
    return values, draw(arrays(np.float64, values.shape, elements=weight))


def _outs(values):
    n_features, n_values = values.shape
    nothing = np.full((n_features, n_values), np.nan)
    return [nothing, nothing.copy(), np.zeros(n_features, dtype=np.int64)]


def agree_in_edges_of(values):
    """Edges and numbers of bins agree to the bit, the means in the bins up to rounding of the values."""

    def agree(actual, expected):
        for k in (0, 2):
            assert_same_bits(actual[k], expected[k])
        assert_close(actual[1], expected[1], scale=largest_finite(values))

    return agree


@st.composite
def cut_regular_cases(draw):
    values, weights = draw(sorted_columns())
    max_bins = draw(arrays(np.int64, len(values), elements=st.integers(2, 12)))
    return Case([values, weights, max_bins], _outs(values), len(values), agree_in_edges_of(values))


@st.composite
def cut_binomial_cases(draw):
    values, weights = draw(sorted_columns())
    cuts = draw(arrays(np.float64, (len(values), draw(st.integers(1, 9))), elements=st.integers(0, 40).map(float)))
    return Case([values, weights, np.sort(cuts, axis=1)], _outs(values), len(values), agree_in_edges_of(values))


@st.composite
def encode_cases(draw):
    """Few rows, which are encoded by bisection, and many, encoded by cells, of few columns and more; any strides."""
    n_features = draw(st.integers(0, 3) | st.sampled_from([8, 13, 70]))
    finite = draw(
        st.sampled_from(
            [
                st.integers(-9, 9).map(float),
                st.floats(allow_nan=False, allow_infinity=False),
                st.floats(-1e-300, 1e-300),
                st.floats(0.0, 1.0) | st.floats(-1e308, 1e308),
            ]
        )
    )
    edges = [np.unique(draw(st.lists(finite, max_size=20))) + 0.0 for _ in range(n_features)]
    if draw(st.booleans()):
        # More edges than the cells can separate, and codes that need more than a byte.
        edges = [np.unique(np.concatenate([own, np.linspace(0, 1, 300) ** 9])) for own in edges]
    offsets = np.append(0, np.cumsum([len(own) for own in edges], dtype=np.int64))
    flat = np.concatenate([*edges, np.empty(0)])
    n_rows = draw(st.sampled_from([1, 5, 130, 600] if n_features < 70 else [5, 600]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    with np.errstate(over="ignore"):
        beside = [np.nextafter(flat, np.inf), np.nextafter(flat, -np.inf)]
    pool = np.concatenate([flat, *beside, AWKWARD, rng.random(30)])
    dtype = draw(st.sampled_from([np.float64, np.float32]))
    with np.errstate(over="ignore"):
        values = rng.choice(pool, (n_rows, n_features)).astype(dtype)
    values = draw(laid_out(values))
    wide = max((len(own) for own in edges), default=0) > 254
    codes = np.zeros((n_features, n_rows), dtype=np.uint16 if wide or draw(st.booleans()) else np.uint8)
    return Case([values, flat, offsets], [codes], n_rows)


@st.composite
def laid_out(draw, values):
    """The same numbers in any memory order and with any strides, read-only."""
    layout = draw(st.sampled_from(["C", "F", "strided", "reversed"]))
    if layout == "strided":
        values = np.repeat(np.repeat(values, 2, axis=0), 3, axis=1)[::2, ::3]
    elif layout == "reversed":
        values = values[::-1]
    else:
        values = np.asarray(values, order=layout)
    values.flags.writeable = False
    return values


@st.composite
def transpose_cases(draw):
    """Shapes below, at and above the size of a tile, in both directions."""
    shape = draw(st.sampled_from([1, 64, 130])), draw(st.sampled_from([0, 1, 16, 35]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    with np.errstate(over="ignore"):
        values = rng.choice(AWKWARD, shape).astype(draw(st.sampled_from([np.float64, np.float32])))
    rows = rng.integers(0, shape[0], draw(st.sampled_from([0, 1, 70])))
    out = np.zeros((shape[1], len(rows) or shape[0]), dtype=values.dtype)
    return Case([draw(laid_out(values)), rows], [out], shape[1])


@st.composite
def sort_cases(draw):
    """Columns too short for a radix sort, and longer ones with ties."""
    values = draw(columns())
    if draw(st.booleans()):
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        values = np.concatenate([values, rng.choice(values, 300, axis=1) if values.size else values], axis=1)
        values[:, ::3] *= rng.standard_normal(values[:, ::3].shape).astype(values.dtype)
        if draw(st.booleans()):  # most differ in their last digits only
            values[:, ::2] = 1.0 + rng.integers(0, 99, values[:, ::2].shape) * np.finfo(values.dtype).eps
    return Case([], [values], len(values), agree_to_the_bit)


def agree_to_the_bit(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        assert_same_bits(one, other)


CASES = {
    "cut_binomial": cut_binomial_cases(),
    "cut_regular": cut_regular_cases(),
    "encode": encode_cases(),
    "sort_rows": sort_cases(),
    "transpose": transpose_cases(),
}
