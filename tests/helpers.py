"""What the tests share: a case of a kernel, and what it means that two results agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rbr._parallel import over_ranges


def assert_close(actual, expected, rtol=1e-12, scale=0.0):
    """Equal up to rtol of the largest finite entry; NaN and infinities in the same places.

    Where sums may cancel, `scale` is the size of what was summed, by which rounding is to be measured.
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
    """Equal to the last bit: no rounding is forgiven, and 0.0 is not -0.0."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    # Which of two NaNs comes out of their sum is left open by IEEE 754, so their payload does not count.
    both_nan = (actual != actual) & (expected != expected)
    assert (both_nan | (_bits(actual) == _bits(expected))).all()


def _bits(array):
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def assert_all_close(actual_outs, expected_outs, scale=0.0):
    """Every output of one kernel agrees with that of the other."""
    for actual, expected in zip(actual_outs, expected_outs, strict=True):
        assert_close(actual, expected, scale=scale)


@dataclass
class Case:
    """One call of a kernel: kernel(*args, *outs, first, last) on ranges that together cover range(n_items).

    `outs` hold what the outputs contain before the call. `assert_agree` says what it means that two backends give
    the same result; a room whose results may be tied brings its own.
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
