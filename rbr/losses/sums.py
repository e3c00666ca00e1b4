"""Sums over rows: what a loss asks of whoever holds them.

Rows may lie in several blocks, in files or on other machines. A sum adds over blocks; a quantile is found by a search
over sums. Within a block rows are read in stretches that stay in cache, and their sums are added in a fixed order, so
that they have the same bits whatever the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

import numpy as np

from rbr._parallel import over_ranges
from rbr._sizes import ROWS_PER_SUM as BLOCK_ROWS

# From this many rows on a kernel works longer than it takes to wake a second thread.
THREADED_ROWS = 1 << 16

# A cumulated share this close to the level counts as reaching it, so that rounding cannot tell k rows from
# weight k.
SHARE_TOLERANCE = 1e-9


def worth(n_threads: int, n_rows: int) -> int:
    """As many threads as asked for, if the rows are worth it."""
    return n_threads if n_rows >= THREADED_ROWS else 1


def row_blocks(n_rows: int) -> Iterator[slice]:
    for first in range(0, n_rows, BLOCK_ROWS):
        yield slice(first, min(first + BLOCK_ROWS, n_rows))


def as_vectors(*arrays) -> tuple[np.ndarray, ...]:
    """In the form that the kernels read; what has it already is not copied."""
    return tuple(np.ascontiguousarray(a, dtype=np.float64) for a in arrays)


def add_in_order(terms: list[float]) -> float:
    """The correctly rounded sum; an infinite or undefined one where fsum refuses."""
    try:
        return math.fsum(terms)
    except (OverflowError, ValueError):
        return float(sum(terms))


def dot(a: np.ndarray, b: np.ndarray) -> float:
    """a @ b over all rows, block by block: one order, and no threads of BLAS that spin for longer than they add."""
    return add_in_order([float(a[rows] @ b[rows]) for rows in row_blocks(a.shape[0])])


def weighted_sum(v, values) -> float:
    """v @ values, where 0 * inf is nothing: a row of weight zero is not there."""
    total = float(v @ values)
    if math.isnan(total):
        used = v > 0
        total = float(v[used] @ values[used])
    return total


def add_to_scores(z: np.ndarray, c, n_threads: int = 1) -> None:
    """z += c, in place."""

    def shift(first: int, last: int) -> None:
        z[first:last] += c

    over_ranges(shift, len(z), worth(n_threads, len(z)))


class RowSums(Protocol):
    """Rows that are somewhere, and answer with sums."""

    def total(self, sums: Callable[..., np.ndarray]) -> np.ndarray:
        """sums(y, z, v, n_threads), an array that adds over blocks of rows, of all rows.

        y : the truths; z : the raw scores, or None where all are zero; v : the weights, with sum 1 over all rows.
        """


class Rows:
    """Rows in memory, as one block: a `RowSums`."""

    def __init__(self, y: np.ndarray, z: np.ndarray | None, v: np.ndarray, n_threads: int = 1):
        self.y, self.z, self.v, self.n_threads = y, z, v, n_threads

    def total(self, sums: Callable[..., np.ndarray]) -> np.ndarray:
        return sums(self.y, self.z, self.v, self.n_threads)


def sum_of_y(y, z, v, n_threads) -> np.ndarray:
    return np.array([dot(y, v), v.sum()])


def _errors(y, z, center: float | None = None) -> np.ndarray:
    """y - z, or its distance from a center."""
    error = y if z is None else y - z
    return error if center is None else np.abs(error - center)


def _sum_of_distances(y, z, v, n_threads, *, center) -> np.ndarray:
    return np.array([dot(v, _errors(y, z, center)), v.sum()])


# A quantile is found digit by digit: the bits of a float64, in an order that is that of the numbers, are read as six
# digits, and one sum over the rows tells how much weight has each value of the next one.
DIGIT_BITS = 11
_SHIFTS = range(55, -1, -DIGIT_BITS)
_SIGN = np.uint64(1 << 63)


def _ordered_bits(values: np.ndarray) -> np.ndarray:
    """uint64 numbers in the order of the given ones; 0.0 and -0.0 are equal."""
    bits = (np.asarray(values, dtype=np.float64) + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _from_ordered_bits(bits: int) -> float:
    sign = int(_SIGN)
    return float(np.array(bits ^ sign if bits & sign else bits ^ (2 * sign - 1), dtype=np.uint64).view(np.float64))


def _weight_by_digit(y, z, v, n_threads, *, center, shift, prefix) -> np.ndarray:
    """For each value of a digit the weight of the errors that have it, behind digits that are known."""
    bits, n_digits = _ordered_bits(_errors(y, z, center)), 1 << DIGIT_BITS
    if shift != _SHIFTS[0]:
        known = bits >> np.uint64(shift + DIGIT_BITS) == np.uint64(prefix)
        bits, v = bits[known], v[known]
    digits = (bits >> np.uint64(shift)).astype(np.int64) & (n_digits - 1)
    return np.bincount(digits, v, minlength=n_digits)


def quantile_of_errors(rows: RowSums, level: float, center: float | None = None) -> float:
    """The smallest y - z (or distance from a center) at which the cumulated share of the weights reaches the level."""
    prefix, below, goal = 0, 0.0, None
    for shift in _SHIFTS:
        weights = rows.total(partial(_weight_by_digit, center=center, shift=shift, prefix=prefix))
        if goal is None:
            goal = (level - SHARE_TOLERANCE) * weights.sum()
        cumulated, present = below + np.cumsum(weights), np.flatnonzero(weights > 0)
        reached = present[cumulated[present] >= goal]
        digit = int(reached[0] if len(reached) else present[-1])
        below, prefix = float(cumulated[digit] - weights[digit]), (prefix << DIGIT_BITS) + digit
    return _from_ordered_bits(prefix)


def weighted_quantile(values: np.ndarray, v: np.ndarray, level: float) -> float:
    """The smallest value at which the cumulated share of the weights reaches the level.

    >>> weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([0.5, 0.25, 0.25]), 0.5)
    2.0
    """
    return quantile_of_errors(Rows(values, None, v), level)


def robust_scale_of(rows: RowSums) -> float:
    """1.4826 times the median distance of y - z from its median (for a normal one its standard deviation).

    Where more than half of the weight sits on one value this is 0, and the mean distance from the median
    takes its place (times 1.2533, again the standard deviation of a normal y); where y - z is constant, 1.
    """
    median = quantile_of_errors(rows, 0.5)
    rounding = 1e-13 * abs(median)
    scale = 1.4826 * quantile_of_errors(rows, 0.5, center=median)
    if scale <= rounding:
        distance, weight = rows.total(partial(_sum_of_distances, center=median))
        scale = 1.2533 * float(distance) / float(weight)
    return max(scale, 1e-100) if scale > rounding else 1.0


def robust_scale(y: np.ndarray, v: np.ndarray) -> float:
    """`robust_scale_of` rows in memory whose scores are zero."""
    return robust_scale_of(Rows(y, None, v))
