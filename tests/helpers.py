"""Shared by the tests: a case of a kernel, and what it means that two results agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rbr._parallel import over_ranges


def assert_close(actual, expected, rtol=1e-12, scale=0.0):
    """Equal up to rtol of the largest finite entry; NaN and infinities in the same places.

    If sums may cancel, `scale` is the size of the summands, to which rounding errors are relative.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    largest = largest_finite(expected, at_least=scale)
    np.testing.assert_allclose(actual[finite], expected[finite], rtol=0, atol=rtol * largest)


def largest_finite(array, at_least=0.0):
    """The largest absolute value among the finite entries."""
    return np.abs(array[np.isfinite(array)]).max(initial=at_least)


def assert_same_bits(actual, expected):
    """Equal to the last bit: no rounding is allowed, and 0.0 differs from -0.0."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    # IEEE 754 does not say which of two NaNs their sum returns, so payloads are not compared.
    both_nan = (actual != actual) & (expected != expected)
    assert (both_nan | (_bits(actual) == _bits(expected))).all()


def _bits(array):
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def assert_all_close(actual_outs, expected_outs, scale=0.0):
    """Every output of one kernel agrees with the corresponding output of the other."""
    for actual, expected in zip(actual_outs, expected_outs, strict=True):
        assert_close(actual, expected, scale=scale)


@dataclass
class Case:
    """One call of a kernel: kernel(*args, *outs, first, last) on ranges that together cover range(n_items).

    `outs` are the output arrays as they are before the call. `assert_agree` compares the results of two backends;
    kernels whose results may be tied have their own.
    """

    args: Sequence
    outs: Sequence[np.ndarray]
    n_items: int
    assert_agree: Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None] = assert_all_close

    def call(self, kernel, n_threads=1) -> list[np.ndarray]:
        """The outputs after a call, in fresh arrays."""
        outs = [out.copy() for out in self.outs]
        over_ranges(kernel, self.n_items, n_threads, *self.args, *outs)
        return outs
