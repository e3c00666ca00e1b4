"""Awkward binned matrices, and cases for the design kernels made from them."""

from __future__ import annotations

from functools import partial

import numpy as np
from helpers import Case, assert_all_close, largest_finite
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

# Huge and tiny values whose sums do not overflow.
finite_values = st.floats(-1e100, 1e100)
any_values = finite_values | st.sampled_from([np.nan, np.inf, -np.inf, -0.0, 5e-324])


def vectors(length, values=any_values):
    """Vectors of float64, sometimes read-only."""
    return st.builds(_maybe_frozen, arrays(np.float64, int(length), elements=values), st.booleans())


def _maybe_frozen(array, frozen):
    array.flags.writeable = not frozen
    return array


@st.composite
def binned(draw, max_features=5, max_rows=40, no_bin=True):
    """(codes, offsets): no rows, no features, one bin, empty bins, rows without a bin, 8 and 16 bits."""
    n_features = draw(st.integers(0, max_features))
    # Some numbers of rows exceed what a kernel unrolls.
    n_rows = draw(st.integers(0, max_rows) | st.sampled_from([0, 1, 7, 8, 9, 130]))
    n_bins = draw(arrays(np.int64, n_features, elements=st.integers(1, 6) | st.sampled_from([1, 40, 255])))
    dtype = draw(st.sampled_from([np.uint8, np.uint16]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # A skewed draw leaves bins empty and puts long runs into one bin.
    skew = draw(st.sampled_from([1, 4]))
    shares = rng.random((n_features, n_rows)) ** skew
    codes = np.floor(shares * (n_bins[:, None] + no_bin)).astype(dtype)
    return _maybe_frozen(codes, draw(st.booleans())), np.append(0, np.cumsum(n_bins))


def agree_in_sums_of(summands):
    """Agreement up to the rounding of the summands, since sums of huge values of both signs cancel."""
    return partial(assert_all_close, scale=largest_finite(summands))


def feature_lists(n_features, unique=False):
    """Lists of features in any order, possibly empty and, unless unique, with repeats."""
    if n_features == 0:
        return st.just(np.empty(0, dtype=np.int64))
    lists = st.lists(st.integers(0, n_features - 1), max_size=n_features + 2, unique=unique)
    return (lists | st.just(range(n_features))).map(lambda listed: np.array(listed, dtype=np.int64))


@st.composite
def matvec_cases(draw):
    codes, offsets = draw(binned())
    f = draw(vectors(offsets[-1]))
    n_rows = codes.shape[1]
    args = [codes, offsets, f, draw(feature_lists(len(codes)))]
    return Case(args, [np.full(n_rows, np.nan)], n_rows, agree_in_sums_of(f))


@st.composite
def rmatvec_cases(draw):
    codes, offsets = draw(binned())
    features = draw(feature_lists(len(codes), unique=True))
    values = draw(vectors(codes.shape[1]))
    row_start = draw(st.integers(0, codes.shape[1]))
    row_stop = draw(st.integers(row_start, codes.shape[1]) | st.just(codes.shape[1]))
    before = draw(vectors(offsets[-1], finite_values))
    args = [codes, offsets, features, values, row_start, row_stop]
    return Case(args, [before], len(features), agree_in_sums_of(values))


def matrices(draw, n_columns, values=any_values):
    """(n_outputs, n_columns) for a few outputs, and for more than lie side by side."""
    n_outputs = draw(st.sampled_from([1, 2, 4, 5, 8, 9, 13]))
    return draw(arrays(np.float64, (n_outputs, int(n_columns)), elements=values, fill=st.just(1.5)))


@st.composite
def matvec_outputs_cases(draw):
    codes, offsets = draw(binned())
    f = matrices(draw, offsets[-1])
    n_rows = codes.shape[1]
    args = [codes, offsets, f, draw(feature_lists(len(codes)))]
    return Case(args, [np.full((len(f), n_rows), np.nan)], n_rows, agree_in_sums_of(f))


@st.composite
def rmatvec_outputs_cases(draw):
    one = draw(rmatvec_cases())
    codes, offsets, features, _, *rows = one.args
    values = matrices(draw, codes.shape[1])
    before = np.random.default_rng(len(values)).normal(size=(len(values), offsets[-1]))
    return Case([codes, offsets, features, values, *rows], [before], one.n_items, agree_in_sums_of(values))


@st.composite
def sum_by_code_cases(draw):
    codes, offsets = draw(binned().filter(lambda own: len(own[0])))
    values = matrices(draw, codes.shape[1])
    out = np.full((len(values), offsets[1] + 1), np.nan)  # rows without a bin have a code of their own
    return Case([np.ascontiguousarray(codes[0]), values], [out], len(values), agree_in_sums_of(values))


@st.composite
def cross_counts_cases(draw):
    codes, offsets = draw(binned(max_features=3))
    features = draw(feature_lists(len(codes)))
    out_offsets = np.append(0, np.cumsum(np.diff(offsets)[features]))
    out = np.full((out_offsets[-1], out_offsets[-1]), np.nan)
    return Case([codes, offsets, features, out_offsets], [out], len(features) * (len(features) + 1) // 2)


@st.composite
def gram_cases(draw):
    """Cross-tabulations of weighted rows."""
    unweighted = draw(cross_counts_cases())
    codes, *others = unweighted.args
    row_weights = draw(vectors(codes.shape[1]))
    args = [codes, *others[:2], row_weights, others[2]]
    return Case(args, unweighted.outs, unweighted.n_items, agree_in_sums_of(row_weights))


@st.composite
def bin_counts_cases(draw):
    codes, offsets = draw(binned())
    return Case([codes, offsets], [np.full(offsets[-1], np.nan)], len(codes))


@st.composite
def bin_moments_cases(draw):
    codes, offsets = draw(binned())
    features = draw(feature_lists(len(codes), unique=True))
    n_columns = len(features) + draw(st.integers(0, 2))
    dtype, order = draw(st.sampled_from([np.float32, np.float64])), draw(st.sampled_from("CF"))
    x = st.floats(-100, 100, width=32) | st.sampled_from([np.nan, np.inf, -np.inf, 0.0])
    values = draw(arrays(dtype, (codes.shape[1], n_columns), elements=x, fill=st.just(1.5))).copy(order)
    columns = np.random.default_rng(n_columns).permutation(n_columns)[: len(features)]
    v, per_unit = draw(vectors(codes.shape[1], st.floats(0, 1))), draw(vectors(len(features), st.floats(0.01, 2)))
    out_offsets = np.append(0, np.cumsum(np.diff(offsets)[features]))
    near = draw(vectors(out_offsets[-1], st.floats(-100, 100)))
    sums = np.random.default_rng(len(v)).normal(size=(out_offsets[-1], 3))
    bounds = np.tile([[np.inf, -np.inf]], (len(features), 1))
    args = [codes, features, out_offsets, values, columns, v, near, per_unit]
    return Case(args, [sums, bounds], len(features), agree_in_sums_of(np.array([1e5])))


CASES = {
    "bin_counts": bin_counts_cases(),
    "bin_moments": bin_moments_cases(),
    "cross_counts": cross_counts_cases(),
    "gram": gram_cases(),
    "matvec": matvec_cases(),
    "matvec_outputs": matvec_outputs_cases(),
    "rmatvec": rmatvec_cases(),
    "rmatvec_outputs": rmatvec_outputs_cases(),
    "sum_by_code": sum_by_code_cases(),
}
