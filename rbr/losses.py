"""The losses: what a raw score z costs when the truth is y, with the derivatives that a descent needs.

A fit minimises sum_i v_i loss(y_i, z_i), v the sample weights scaled to sum 1 by the caller. Every loss is
convex in z, and an object of this room holds its parameters and nothing else, so one object serves every
fit. A row costs (constants that do not depend on z are dropped, and the log-link losses are 0 at z = 0):

=============  ==============================================================  =========  =================
name           loss(y, z)                                                      link       curvature bound
=============  ==============================================================  =========  =================
squared_error  (y - z)^2 / 2                                                   identity   1
log_loss       log(1 + exp(z)) - y z, y in {0, 1}                              logit      1 / 4
multinomial    log sum_k exp(z_k) - z_y, y in {0, ..., K-1}                    softmax    1 / 2
poisson        exp(z) - 1 - y z, y >= 0                                        log        none
gamma          z + y (exp(-z) - 1), y > 0                                      log        none
tweedie        expm1((2-q) z) / (2-q) - y expm1((1-q) z) / (1-q), 1 <= q <= 2  log        none
huber          (y - z)^2 / 2 up to |y - z| = delta, straight lines beyond      identity   1
quantile       the pinball loss, a parabola where |y - z| <= h                 identity   1 / (2 h)
=============  ==============================================================  =========  =================

tweedie is poisson at q = 1 and gamma at q = 2. Differences of the log-link losses are differences of half
the unit deviance.

**Dispersion.** The jump cost is paid in units of lambda = phi / n, so phi must say how far the mean loss
falls by chance. Let one parameter t move the scores by t x_i, where x has nothing to do with y. With
residual r = -dloss/dz and curvature h at the best z, the mean loss as a function of t is  -t mean(r x) +
t^2 / 2 mean(h x^2): it falls by mean(r x)^2 / (2 mean(h x^2)), whose expectation is  phi / (2 n)  with

    phi = E[r^2] / E[h],

the ratio of the two halves of the sandwich. Likelihoods with a known variance have E[r^2] = E[h], so phi =
1 (log_loss, multinomial, poisson); squared_error gives the mean squared error; gamma and tweedie the
Pearson statistic, since E[r^2] / E[h] = E (y - mu)^2 / mu^q row by row; huber and quantile the same ratio
with their own r and h.

**Sums over rows.** Whoever holds the rows may hold them in several blocks, in files or on other machines. So what
needs all of them (`prepare_of`, `constant_start_of`, `refit_intercept_of`, `settle_of`, `dispersion_of`) asks for sums
that add over blocks, through a `RowSums`; quantiles are found by a search over such sums. The same names without
`_of` take the arrays of rows in memory. Within a block rows are read in stretches that stay in cache, and their sums
are added in a fixed order, so they have the same bits whatever the number of threads.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import ClassVar, Protocol

import numpy as np
from scipy.special import expit, softmax

from rbr._backend import kernels
from rbr.parallel import over_ranges

__all__ = [
    "ALIASES",
    "LOSSES",
    "Gamma",
    "Huber",
    "LogLoss",
    "Loss",
    "Multinomial",
    "Poisson",
    "Quantile",
    "RowSums",
    "Rows",
    "SquaredError",
    "Tweedie",
    "get_loss",
]

# Below the length at which BLAS splits a dot product over its own threads, so the sum has one order. The kernels of the
# log-loss add up as many.
BLOCK_ROWS = 8192

# From so many rows on a kernel works longer than it takes to wake a second thread.
THREADED_ROWS = 1 << 16

# An intercept without a finite optimum (one class only, all counts zero) stops here: exp(-2000) is 0.
LARGEST_INTERCEPT = 2000.0

# The fourth derivative of the log-loss is at most the second. So the step to the zero of its slope that follows from
# three derivatives is out by a sixth of its cube (1e-12 here), and the loss there by less than rounding.
CUBIC_STEP = 1.5e-4

# A cumulated share this close to the level counts as reaching it, so that rounding cannot tell k rows from
# weight k.
SHARE_TOLERANCE = 1e-9


def _blocks(n_rows: int) -> Iterator[slice]:
    for first in range(0, n_rows, BLOCK_ROWS):
        yield slice(first, min(first + BLOCK_ROWS, n_rows))


def _as_vectors(*arrays) -> tuple[np.ndarray, ...]:
    """In the form that the kernels read; what has it already is not copied."""
    return tuple(np.ascontiguousarray(a, dtype=np.float64) for a in arrays)


def _add_in_order(terms: list[float]) -> float:
    """The correctly rounded sum; an infinite or undefined one where fsum refuses."""
    try:
        return math.fsum(terms)
    except (OverflowError, ValueError):
        return float(sum(terms))


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    """a @ b over all rows, block by block: one order, and no threads of BLAS that spin for longer than they add."""
    return _add_in_order([float(a[rows] @ b[rows]) for rows in _blocks(a.shape[0])])


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


def _sum_of_y(y, z, v, n_threads) -> np.ndarray:
    return np.array([_dot(y, v), v.sum()])


def _errors(y, z, center: float | None = None) -> np.ndarray:
    """y - z, or its distance from a center."""
    error = y if z is None else y - z
    return error if center is None else np.abs(error - center)


def _sum_of_distances(y, z, v, n_threads, *, center) -> np.ndarray:
    return np.array([_dot(v, _errors(y, z, center)), v.sum()])


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


def _root_of_decreasing(
    step_at: Callable[[float], tuple[float, float]],
    start: float,
    *,
    reach: float,
    tolerance: float,
    limit: float = math.inf,
) -> float:
    """The c at which a decreasing function changes sign, by Newton steps kept inside a shrinking bracket.

    `step_at(c)` gives a number with the sign of the function, and a Newton step (any value where there is
    none). A step of at most `tolerance` is the last one. Before there is a bracket a step is at most
    `reach`, which then grows fourfold; the answer stays within `limit`.
    """
    c, low, high = min(max(start, -limit), limit), -math.inf, math.inf
    for iteration in range(1, 201):
        sign, step = step_at(c)
        if sign == 0 or math.isnan(sign):
            return c
        if sign > 0:
            low = c
        else:
            high = c
        is_newton = math.isfinite(step) and step * sign > 0
        if is_newton and abs(step) <= tolerance and low <= c + step <= high:
            return min(max(c + step, -limit), limit)
        if math.isinf(high - low):
            if not is_newton or abs(step) > reach:
                step = math.copysign(reach, sign)
                reach *= 4.0
            candidate = min(max(c + step, -limit), limit)
        else:
            candidate = c + step
            # Every fourth step halves the bracket: a piecewise straight function cannot make Newton creep.
            if not is_newton or not low < candidate < high or iteration % 4 == 0:
                candidate = low + (high - low) / 2
        if candidate in (c, low, high):
            return candidate
        c = candidate
    return c


def add_to_scores(z: np.ndarray, c, n_threads: int = 1) -> None:
    """z += c, in place."""

    def shift(first: int, last: int) -> None:
        z[first:last] += c

    over_ranges(shift, len(z), n_threads if len(z) >= THREADED_ROWS else 1)


def _root_of_parabola(a: float, b: float, c: float) -> float:
    """The smaller root, in size, of -a + b x + c x^2 / 2, b > 0; near 0, where a and c are small."""
    return 2.0 * a / (b + math.sqrt(max(b * b + 2.0 * a * c, 0.0)))


@dataclass(frozen=True)
class Loss(ABC):
    """A convex loss of raw scores; the base of all losses in this room.

    Arguments mean the same everywhere: `y` as returned by `validate`, `z` the raw scores (n,), for
    multinomial (n, K), and `v` the weights of the rows, at least 0, scaled to sum 1.
    """

    name: ClassVar[str]
    link: ClassVar[str]
    has_known_dispersion: ClassVar[bool] = False  # a likelihood whose variance follows from its mean

    # What each loss defines -------------------------------------------------------------------------------

    @abstractmethod
    def _check_domain(self, y: np.ndarray, used: np.ndarray) -> np.ndarray:
        """The finite y in its final dtype, or a ValueError; `used` marks the rows of positive weight."""

    @abstractmethod
    def _evaluate_block(self, y, z, values, residual, curvature) -> None:
        """Write loss, -dloss/dz and d2loss/dz2 into those of the three arrays that are not None."""

    @abstractmethod
    def intercept_sums(self, y: np.ndarray, z: np.ndarray, v: np.ndarray, c) -> np.ndarray:
        """Sums over rows from which `minimize_intercept` finds its next c; those of disjoint rows add up."""

    @abstractmethod
    def minimize_intercept(self, sums_at: Callable[..., np.ndarray], start):
        """The c that minimises sum_i v_i loss(y_i, z_i + c), to 1e-12.

        `sums_at(c)` gives `intercept_sums` added up over all rows, by whoever holds them.
        """

    @abstractmethod
    def constant_start_of(self, rows: RowSums, has_offset: bool, n_outputs: int = 1):
        """The intercept of the best model without features, whose scores are the rows' offsets, if they have any."""

    @abstractmethod
    def inverse_link(self, z: np.ndarray) -> np.ndarray:
        """The prediction that belongs to raw scores z: in the units of y, for classes their probabilities."""

    @abstractmethod
    def curvature_bound(self, y=None, z=None) -> float | None:
        """An upper bound on d2loss/dz2 (multinomial: on the Hessian); None if there is none: backtrack.

        The bounds hold for all y and z; the arguments are there for a loss whose bound depends on them.
        """

    # What follows from it ---------------------------------------------------------------------------------

    def n_outputs(self, y: np.ndarray) -> int:
        """Number of raw scores per row."""
        return 1

    def constant_start(self, y: np.ndarray, v: np.ndarray, offset: np.ndarray | None = None):
        """argmin_c sum_i v_i loss(y_i, offset_i + c), the intercept of the best model without features."""
        return self.constant_start_of(Rows(y, offset, v), offset is not None, self.n_outputs(y))

    def constant_value_of(self, rows: RowSums, c, has_offset: bool) -> float:
        """sum_i v_i loss(y_i, offset_i + c)."""
        return float(rows.total(partial(self._value_at, c=c))[0])

    def _value_at(self, y, z, v, n_threads, *, c) -> np.ndarray:
        scores = np.zeros(y.shape[0] if np.ndim(c) == 0 else (y.shape[0], len(c))) + c
        return np.array([self.value(y, scores if z is None else scores + z, v, n_threads)])

    def validate(self, y, v: np.ndarray | None = None) -> np.ndarray:
        """`y` as the array that the loss computes with, or an error that says which value is not allowed.

        Parameters
        ----------
        y : array-like of shape (n,)
        v : array of shape (n,), optional
            Weights. Rows of weight zero do not count where something must occur at all (two classes, a
            positive count); their values must be allowed all the same.

        Examples
        --------
        >>> get_loss("poisson").validate([0, 2, -1])
        Traceback (most recent call last):
            ...
        ValueError: loss 'poisson': y[2] is -1.0; y must be at least 0
        """
        given = np.asarray(y)
        if given.ndim != 1:
            raise ValueError(f"loss '{self.name}': y has shape {given.shape}; it must be a vector")
        if given.shape[0] == 0:
            raise ValueError(f"loss '{self.name}': y has no rows; at least one is needed")
        try:
            numbers = np.ascontiguousarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"loss '{self.name}': y has dtype {given.dtype} and holds {given[0]!r}; y must be numbers"
            ) from None
        self._refuse(numbers, lambda y: ~np.isfinite(y), "y must be finite")
        used = np.ones(numbers.shape[0], dtype=bool) if v is None else np.asarray(v) > 0
        if used.shape != numbers.shape:
            raise ValueError(f"loss '{self.name}': v has shape {used.shape}; it must be that of y, {numbers.shape}")
        if not used.any():
            raise ValueError(f"loss '{self.name}': all weights are zero; at least one must be positive")
        return self._check_domain(numbers, used)

    def _refuse(self, y: np.ndarray, is_bad: Callable[[np.ndarray], np.ndarray], allowed: str) -> None:
        for rows in _blocks(y.shape[0]):
            bad = is_bad(y[rows])
            if bad.any():
                where = rows.start + int(np.flatnonzero(bad)[0])
                raise ValueError(f"loss '{self.name}': y[{where}] is {y[where]}; {allowed}")

    def prepare_of(self, rows: RowSums) -> Loss:
        """The loss with what it takes from the scale of y - offset, fixed once before a fit. Most take nothing."""
        return self

    def prepare(self, y: np.ndarray, v: np.ndarray, offset: np.ndarray | None = None) -> Loss:
        """`prepare_of` rows in memory."""
        return self.prepare_of(Rows(y, offset, v))

    def evaluate(self, y, z, *, values=None, residual=None, curvature=None, v=None, n_threads: int = 1) -> None:
        """Write loss, -dloss/dz and d2loss/dz2 of each row into those arrays that are given, in one sweep.

        The derivatives times v, where it is given. Threads serve the log-loss, which is compiled; NumPy's calls on
        blocks this short would wait for each other.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            for rows in _blocks(y.shape[0]):
                outs = [None if out is None else out[rows] for out in (values, residual, curvature)]
                self._evaluate_block(y[rows], z[rows], *outs)
                for derivative in outs[1:]:
                    if v is not None and derivative is not None:
                        derivative.T[...] *= v[rows]

    def values(self, y, z, out: np.ndarray | None = None) -> np.ndarray:
        """loss(y_i, z_i) of each row; infinite where it exceeds the largest float."""
        out = np.empty(y.shape[0]) if out is None else out
        self.evaluate(y, z, values=out)
        return out

    def value(self, y, z, v, n_threads: int = 1) -> float:
        """sum_i v_i loss(y_i, z_i); infinite if a row of positive weight is: no descent test passes."""
        block_sums = []
        buffer = np.empty(min(BLOCK_ROWS, y.shape[0]))
        for rows in _blocks(y.shape[0]):
            values = self.values(y[rows], z[rows], out=buffer[: rows.stop - rows.start])
            total = float(values @ v[rows]) if math.isfinite(values.max()) else math.inf
            if not math.isfinite(total):
                # 0 * inf is nothing here: a row of weight zero is not there.
                used = v[rows] > 0
                with np.errstate(over="ignore"):
                    total = float(np.sum(values[used] * v[rows][used]))
            block_sums.append(total)
        return _add_in_order(block_sums)

    def residual(self, y, z, out: np.ndarray | None = None, v=None, n_threads: int = 1) -> np.ndarray:
        """-dloss(y_i, z_i)/dz_i of each row, in the shape of z; times v_i, if given."""
        out = np.empty(z.shape) if out is None else out
        self.evaluate(y, z, residual=out, v=v, n_threads=n_threads)
        return out

    def curvature(self, y, z, out: np.ndarray | None = None, v=None, n_threads: int = 1) -> np.ndarray:
        """d2loss(y_i, z_i)/dz_i^2 of each row, in the shape of z (multinomial: the diagonal); times v_i, if given."""
        out = np.empty(z.shape) if out is None else out
        self.evaluate(y, z, curvature=out, v=v, n_threads=n_threads)
        return out

    def hessian(self, y, z) -> Callable[[np.ndarray], np.ndarray]:
        """The map from directions to the Hessian of each row's loss in z_i times direction_i, in the shape of z."""
        curvature = self.curvature(y, z)
        return lambda direction: curvature * direction

    def majorized_curvature(self, y, z) -> np.ndarray | None:
        """m_i such that loss(y_i, z_i + d) <= loss(y_i, z_i) - residual_i d + m_i d^2 / 2 for every d.

        A Newton step with m in place of the curvature never raises the objective, and m > 0 also where the
        curvature vanishes (huber and quantile far from y), so the equations of a refit stay regular. None
        where no parabola bounds the loss.
        """
        bound = self.curvature_bound()
        return None if bound is None else np.full(z.shape, bound)

    def refit_intercept(self, y, z_without_intercept, v, start=0.0):
        """The c that minimises sum_i v_i loss(y_i, z_i + c), to 1e-12; `start` is the last one known.

        Examples
        --------
        >>> loss = get_loss("poisson")
        >>> y, z = np.array([1.0, 3.0]), np.array([0.0, np.log(3.0)])
        >>> round(loss.refit_intercept(y, z, np.array([0.5, 0.5])), 12)
        0.0
        """
        return self.refit_intercept_of(Rows(y, z_without_intercept, v), start)

    def refit_intercept_of(self, rows: RowSums, start):
        """The c that minimises the loss of the rows' scores + c."""
        return self.minimize_intercept(lambda c: rows.total(partial(self._sums_at, c=c)), start)

    def settle_of(self, rows: RowSums, start) -> tuple:
        """(c, value): `refit_intercept_of`, and the value there if the sums tell, else None."""
        return self.refit_intercept_of(rows, start), None

    def settle(self, y, z, v, start, n_threads: int = 1) -> tuple:
        """`refit_intercept`, which is added to z in place, and the `value` there: (c, value)."""
        c, value = self.settle_of(Rows(y, z, v, n_threads), start)
        add_to_scores(z, c, n_threads)
        return c, self.value(y, z, v, n_threads) if value is None else value

    def _sums_at(self, y, z, v, n_threads, *, c) -> np.ndarray:
        """`intercept_sums` of any number of rows; z may be None for zeros."""
        z = np.zeros(y.shape[0] if np.ndim(c) == 0 else (y.shape[0], len(c))) if z is None else z
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            sums = [self.intercept_sums(y[rows], z[rows], v[rows], c) for rows in _blocks(y.shape[0])]
            return np.sum(sums, axis=0)

    def dispersion_of(self, rows: RowSums, n: float, df: float = 1.0) -> float:
        """phi = E[r^2] / E[h], the unit of the jump cost (see the head of this module).

        Parameters
        ----------
        rows : RowSums
            With the raw scores of some fit.
        n : float
            Sum of the sample weights before they were scaled.
        df : float, default=1
            Numbers that the fit has chosen, intercept included; phi is multiplied by n / max(n - df, 1).
        """
        return 1.0

    def dispersion(self, y, z, v, n: float, df: float = 1.0) -> float:
        """`dispersion_of` rows in memory."""
        return self.dispersion_of(Rows(y, z, v), n, df)


# Identity link --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _IdentityLink(Loss):
    """A loss of y - z alone."""

    link: ClassVar[str] = "identity"

    def _check_domain(self, y, used):
        return y

    def inverse_link(self, z):
        return np.array(z, dtype=np.float64)


@dataclass(frozen=True)
class SquaredError(_IdentityLink):
    """(y - z)^2 / 2: the mean of y.

    Examples
    --------
    >>> y, z = np.array([1.0, 2.0]), np.array([0.0, 4.0])
    >>> get_loss("squared").values(y, z)
    array([0.5, 2. ])
    >>> get_loss("squared").residual(y, z)
    array([ 1., -2.])
    """

    name: ClassVar[str] = "squared_error"

    def curvature_bound(self, y=None, z=None):
        return 1.0

    def _evaluate_block(self, y, z, values, residual, curvature):
        error = np.subtract(y, z, out=residual)
        if values is not None:
            np.multiply(error, error, out=values)
            values *= 0.5
        if curvature is not None:
            curvature[...] = 1.0

    def intercept_sums(self, y, z, v, c):
        error = y - z
        error -= c
        return np.array([v @ error, v.sum()])

    def minimize_intercept(self, sums_at, start):
        # Exact from any start; from the last intercept the sum cancels least.
        error, weight = sums_at(float(start))
        return float(start) + float(error / weight)

    def constant_start_of(self, rows, has_offset, n_outputs=1):
        rough = self.refit_intercept_of(rows, 0.0)
        return self.refit_intercept_of(rows, rough)

    def dispersion_of(self, rows, n, df=1.0):
        return float(rows.total(self._squared_errors)[0]) * n / max(n - df, 1.0)

    @staticmethod
    def _squared_errors(y, z, v, n_threads) -> np.ndarray:
        return np.array([_dot(v, (y - z) ** 2)])


@dataclass(frozen=True)
class _Clipped(_IdentityLink):
    """A loss whose residual is straight in y - z within a zone and constant outside."""

    @abstractmethod
    def _largest_residual(self) -> float:
        """The size of the constant residual outside the zone."""

    @abstractmethod
    def _zone(self) -> float:
        """Half-width of the zone around z = y in which the loss curves."""

    def intercept_sums(self, y, z, v, c):
        scores = z + c
        residual, curvature = np.empty_like(scores), np.empty_like(scores)
        self._evaluate_block(y, scores, None, residual, curvature)
        return np.array([v @ residual, v @ curvature])

    def minimize_intercept(self, sums_at, start):
        noise = 1e-14 * self._largest_residual()

        def step_at(c):
            score, slope = sums_at(c)
            # On a flat stretch (a median between two values) every c is optimal, and rounding has no say.
            sign = 0.0 if abs(score) <= noise else float(score)
            return sign, float(score / slope) if slope > 0 else math.nan

        zone = self._zone()
        return _root_of_decreasing(step_at, float(start), reach=zone, tolerance=1e-13 * zone)

    def constant_start_of(self, rows, has_offset, n_outputs=1):
        return self.refit_intercept_of(rows, quantile_of_errors(rows, self._central_level()))

    def _squared_residuals(self, y, z, v, n_threads, *, window) -> np.ndarray:
        """Sums of the squared residuals, and of the rows with |y - z| at most the window."""
        return np.array([_dot(v, self.residual(y, z) ** 2), _dot(v, np.abs(y - z) <= window)])

    def _central_level(self) -> float:
        return 0.5


@dataclass(frozen=True)
class Huber(_Clipped):
    """(y - z)^2 / 2 up to |y - z| = delta, then delta |y - z| - delta^2 / 2: a mean that bears outliers.

    Parameters
    ----------
    delta : float or None, default=None
        In units of y. None: `prepare` takes 1.345 times the `robust_scale` of y - offset (for normal noise
        alone the estimate then has 95% of the efficiency of the mean).

    Examples
    --------
    >>> get_loss("huber", delta=1.0).values(np.array([0.5, 3.0]), np.zeros(2))
    array([0.125, 2.5  ])
    """

    name: ClassVar[str] = "huber"
    delta: float | None = None

    def __post_init__(self):
        if self.delta is not None:
            _check_parameter(self, "delta", self.delta, 0.0, math.inf, "a finite number above 0, or None")

    def prepare_of(self, rows):
        return self if self.delta is not None else replace(self, delta=1.345 * robust_scale_of(rows))

    def _zone(self):
        if self.delta is None:
            raise ValueError("loss 'huber': delta is None; call prepare(y, v) first, or give delta")
        return self.delta

    def _largest_residual(self):
        return self._zone()

    def curvature_bound(self, y=None, z=None):
        return 1.0

    def _evaluate_block(self, y, z, values, residual, curvature):
        delta = self._zone()
        error = y - z
        clipped = np.clip(error, -delta, delta, out=residual)
        if curvature is not None:
            np.equal(clipped, error, out=curvature)
        if values is not None:
            # error^2 / 2 inside, delta (|error| - delta / 2) outside: both are clipped * (error - clipped /
            # 2).
            np.multiply(clipped, -0.5, out=values)
            values += error
            values *= clipped

    def majorized_curvature(self, y, z):
        delta = self._zone()
        return delta / np.maximum(np.abs(y - z), delta)

    def dispersion_of(self, rows, n, df=1.0):
        """sum v clip(y - z, -delta, delta)^2 over the share of rows within delta (at least one row's)."""
        squares, inside = map(float, rows.total(partial(self._squared_residuals, window=self._zone())))
        return squares / max(inside, 1.0 / n) * n / max(n - df, 1.0)


@dataclass(frozen=True)
class Quantile(_Clipped):
    """The pinball loss of the quantile at `level`, smoothed so that it can be descended on.

    With r = y - z the pinball loss is level * r above and (level - 1) * r below zero. Where |r| <= h it is
    replaced by the parabola that meets it smoothly, r^2 / (4 h) + (level - 1/2) r + h / 4. This is the
    pinball loss averaged over a window of half-width h: it is above it by at most h / 4, the same outside
    the window, and its minimiser is the quantile of y plus a uniform error on [-h, h], off by h^2 F'' / (6
    F') to the first order.

    Parameters
    ----------
    level : float in (0, 1), default=0.5
    smoothing : float, default=0.1
        h in units of `robust_scale` of y - offset. For a normal y the 90% quantile is then off by 0.002
        standard deviations.
    half_width : float or None, default=None
        h in units of y; None: `prepare` sets it to smoothing * robust_scale.

    Examples
    --------
    >>> get_loss("quantile", level=0.9, half_width=0.5).values(np.array([2.0, -2.0, 0.0]), np.zeros(3))
    array([1.8  , 0.2  , 0.125])
    """

    name: ClassVar[str] = "quantile"
    level: float = 0.5
    smoothing: float = 0.1
    half_width: float | None = None

    def __post_init__(self):
        _check_parameter(self, "level", self.level, 0.0, 1.0, "strictly between 0 and 1")
        _check_parameter(self, "smoothing", self.smoothing, 0.0, math.inf, "a finite number above 0")
        if self.half_width is not None:
            _check_parameter(self, "half_width", self.half_width, 0.0, math.inf, "a finite number above 0, or None")

    def prepare_of(self, rows):
        if self.half_width is not None:
            return self
        return replace(self, half_width=self.smoothing * robust_scale_of(rows))

    def _zone(self):
        if self.half_width is None:
            raise ValueError("loss 'quantile': half_width is None; call prepare(y, v) first, or give half_width")
        return self.half_width

    def _largest_residual(self):
        return max(self.level, 1 - self.level)

    def _central_level(self):
        return self.level

    def curvature_bound(self, y=None, z=None):
        return 0.5 / self._zone()

    def _evaluate_block(self, y, z, values, residual, curvature):
        h = self._zone()
        error = y - z
        if curvature is not None:
            np.less_equal(np.abs(error), h, out=curvature)
            curvature *= 0.5 / h
        if values is None and residual is None:
            return
        slope = np.clip(error * (0.5 / h), -0.5, 0.5)
        residual = np.add(slope, self.level - 0.5, out=residual)
        if values is not None:
            # residual * error + h (1/4 - slope^2): the last term vanishes outside the window.
            np.multiply(residual, error, out=values)
            slope *= slope
            slope -= 0.25
            slope *= h
            values -= slope

    def majorized_curvature(self, y, z):
        return 0.5 / np.maximum(np.abs(y - z), self._zone())

    def dispersion_of(self, rows, n, df=1.0):
        """sum v residual^2 over the density of y - z at 0.

        The density is the share of the rows with |y - z| <= b (at least one row's), divided by 2 b, where b
        is the larger of h and 1.06 robust_scale(y - z) n^(-1/5): h alone is too narrow a window when n is
        small.
        """
        window = max(self._zone(), 1.06 * robust_scale_of(rows) * n**-0.2)
        squares, inside = map(float, rows.total(partial(self._squared_residuals, window=window)))
        density = max(inside, 1.0 / n) / (2 * window)
        return squares / density * n / max(n - df, 1.0)


# Classes --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogLoss(Loss):
    """log(1 + exp(z)) - y z with y in {0, 1}: z is the log-odds of y = 1.

    Computed from s = z if y = 0 else -z, as log(1 + exp(s)) with an exponent that is never positive: losses
    and residuals far from zero keep all their digits.

    Examples
    --------
    >>> get_loss("logistic").values(np.array([1.0, 0.0]), np.array([0.0, -1000.0]))
    array([0.69314718, 0.        ])
    """

    name: ClassVar[str] = "log_loss"
    has_known_dispersion: ClassVar[bool] = True
    link: ClassVar[str] = "logit"

    def _check_domain(self, y, used):
        self._refuse(y, lambda y: (y != 0) & (y != 1), "y must be 0 or 1")
        _require_two_classes(self, y, used)
        return y

    def curvature_bound(self, y=None, z=None):
        return 0.25

    def inverse_link(self, z):
        return expit(z)

    def evaluate(self, y, z, *, values=None, residual=None, curvature=None, v=None, n_threads=1):
        y, z, v = _as_vectors(y, z, () if v is None else v)
        n_threads = n_threads if len(y) >= THREADED_ROWS else 1
        for kernel, inputs, out in (
            (kernels().log_loss_values, (y, z), values),
            (kernels().log_loss_residual, (y, z, v), residual),
            (kernels().log_loss_curvature, (z, v), curvature),
        ):
            if out is not None:
                over_ranges(kernel, len(y), n_threads, *inputs, out)

    def _evaluate_block(self, y, z, values, residual, curvature):
        self.evaluate(y, z, values=values, residual=residual, curvature=curvature)

    def intercept_sums(self, y, z, v, c, n_threads=1):
        """The pulls upwards (rows with y = 1) and downwards, how fast each changes with c, loss, third derivative."""
        y, z, v = _as_vectors(y, z, v)
        sums = np.empty((-(-len(y) // BLOCK_ROWS), 6))
        n_threads = n_threads if len(y) >= THREADED_ROWS else 1
        over_ranges(kernels().log_loss_sums, len(sums), n_threads, y, z, v, float(c), sums)
        return sums.sum(axis=0)

    def minimize_intercept(self, sums_at, start):
        # Newton on log(up / down), zero where up = down: straight in c if all scores are equal, nearly so
        # otherwise.
        def step_at(c):
            up, down, curvature_up, curvature_down, _, third = map(float, sums_at(c))
            if up > 0 and down > 0:
                gap = math.log(up) - math.log(down)
                slope = curvature_up / up + curvature_down / down
                step = gap / slope if slope > 0 else math.inf  # infinite: every row is beyond doubt
                if abs(step) <= CUBIC_STEP:
                    step = _root_of_parabola(up - down, curvature_up + curvature_down, third)
                return gap, step
            return up - down, math.nan

        return _root_of_decreasing(step_at, float(start), reach=16.0, tolerance=CUBIC_STEP, limit=LARGEST_INTERCEPT)

    def value(self, y, z, v, n_threads=1):
        value = float(self.intercept_sums(y, z, v, 0.0, n_threads)[4])
        return value if math.isfinite(value) else super().value(y, z, v)

    def _sums_at(self, y, z, v, n_threads, *, c):
        return self.intercept_sums(y, np.zeros(y.shape[0]) if z is None else z, v, c, n_threads)

    def settle_of(self, rows, start):
        last: tuple = ()

        def sums_at(c):
            nonlocal last
            last = c, rows.total(partial(self._sums_at, c=c))
            return last[1]

        intercept = self.minimize_intercept(sums_at, start)
        step, (up, down, curvature_up, curvature_down, value, third) = intercept - last[0], map(float, last[1])
        value -= step * (up - down - step * ((curvature_up + curvature_down) / 2 + step * third / 6))
        return intercept, value if abs(step) <= CUBIC_STEP and math.isfinite(value) else None

    @staticmethod
    def _ones_and_zeros(y, z, v, n_threads) -> np.ndarray:
        zeros = _add_in_order([float((1.0 - y[rows]) @ v[rows]) for rows in _blocks(y.shape[0])])
        return np.array([_dot(y, v), zeros, v.sum()])

    def constant_start_of(self, rows, has_offset, n_outputs=1):
        ones, zeros, _ = map(float, rows.total(self._ones_and_zeros))
        if ones == 0 or zeros == 0:
            return LARGEST_INTERCEPT if zeros == 0 else -LARGEST_INTERCEPT
        start = math.log(ones) - math.log(zeros)
        return self.refit_intercept_of(rows, start) if has_offset else start

    def constant_value_of(self, rows, c, has_offset):
        if has_offset:
            return super().constant_value_of(rows, c, has_offset)
        ones, _, weight = map(float, rows.total(self._ones_and_zeros))
        return ones * float(np.logaddexp(0.0, -c)) + (weight - ones) * float(np.logaddexp(0.0, c))

    def majorized_curvature(self, y, z):
        """tanh(z / 2) / (2 z), the bound of Jaakkola and Jordan (2000)."""
        half = np.maximum(np.abs(z), 1e-6) / 2
        return np.tanh(half) / (4 * half)


@dataclass(frozen=True)
class Multinomial(Loss):
    """log sum_k exp(z_k) - z_y with y in {0, ..., K-1} and scores z of shape (n, K).

    Adding a number to all scores of a row changes nothing, so intercepts are given with sum zero.
    `curvature` is the diagonal p_k (1 - p_k) of a row's Hessian diag(p) - p p'; `hessian` is the
    whole of it, at most 1/2 times the identity.

    Parameters
    ----------
    n_classes : int or None, default=None
        K; None: the largest code plus one.

    Examples
    --------
    >>> loss = get_loss("multinomial")
    >>> y = loss.validate([0, 1, 2, 2])
    >>> loss.n_outputs(y)
    3
    >>> loss.constant_start(y, np.full(4, 0.25)).round(3)
    array([-0.231, -0.231,  0.462])
    """

    name: ClassVar[str] = "multinomial"
    has_known_dispersion: ClassVar[bool] = True
    link: ClassVar[str] = "softmax"
    n_classes: int | None = None

    def __post_init__(self):
        if self.n_classes is not None and (
            not isinstance(self.n_classes, (int, np.integer)) or isinstance(self.n_classes, bool) or self.n_classes < 2
        ):
            raise ValueError(f"loss 'multinomial': n_classes is {self.n_classes!r}; it must be an int >= 2, or None")

    def n_outputs(self, y):
        return int(y.max()) + 1 if self.n_classes is None else int(self.n_classes)

    def _check_domain(self, y, used):
        last = "" if self.n_classes is None else f" up to {self.n_classes - 1}"
        most = 2**31 if self.n_classes is None else self.n_classes
        allowed = f"y must be class codes 0, 1, ...{last}"
        self._refuse(y, lambda y: (y < 0) | (y != np.floor(y)) | (y >= most), allowed)
        _require_two_classes(self, y, used)
        codes = y.astype(np.int64)
        if self.n_classes is None:
            n_codes = codes.max() + 1
            # Checked by counting distinct codes first: one large code must not ask for an array of that
            # length.
            present = np.unique(codes[used])
            if present.shape[0] < n_codes:
                gaps = present != np.arange(present.shape[0])
                absent = int(np.flatnonzero(gaps)[0]) if gaps.any() else present.shape[0]
                raise ValueError(
                    f"loss 'multinomial': no row has class code {absent}, but the largest is {n_codes - 1}; "
                    "every code up to the largest must occur, unless n_classes is given"
                )
        return codes

    def curvature_bound(self, y=None, z=None):
        return 0.5

    def inverse_link(self, z):
        with np.errstate(under="ignore"):
            return softmax(z, axis=1)

    def _evaluate_block(self, y, z, values, residual, curvature):
        # Classes by rows, so that every operation runs along the rows of the block.
        shifted = np.array(z.T, order="C")
        shifted -= shifted.max(axis=0)
        of_class = (y, np.arange(y.shape[0]))
        score_of_class = shifted[of_class]
        probability = np.exp(shifted, out=shifted)
        total = probability.sum(axis=0)
        if values is not None:
            np.log(total, out=values)
            values -= score_of_class
        if residual is None and curvature is None:
            return
        probability /= total
        if curvature is not None:
            np.subtract(1.0, probability.T, out=curvature)
            curvature *= probability.T
        if residual is not None:
            # 1 - p_y as the sum of the others, which keeps its digits when p_y is nearly 1.
            probability[of_class] = 0.0
            probability[of_class] = -probability.sum(axis=0)
            np.negative(probability.T, out=residual)

    def hessian(self, y, z):
        # Classes by rows: every operation runs along the rows, which are many.
        probability = np.array(self.inverse_link(z).T, order="C")

        def times(direction):
            weighted = probability * direction.T
            weighted -= probability * weighted.sum(axis=0)
            return weighted.T

        return times

    def intercept_sums(self, y, z, v, c):
        """Value, class shares, mean probabilities, and Hessian in c, flat: 1 + 2 K + K^2 numbers."""
        n_classes = z.shape[1]
        values, residual = np.empty(y.shape[0]), np.empty(z.shape)
        self._evaluate_block(y, z + c, values, residual, None)
        probability = np.negative(residual, out=residual)
        probability[np.arange(y.shape[0]), y] += 1.0
        weighted = probability * v[:, None]
        means = weighted.sum(axis=0)
        hessian = np.diag(means) - weighted.T @ probability
        shares = np.bincount(y, weights=v, minlength=n_classes)
        return np.concatenate([[v @ values], shares, means, hessian.ravel()])

    def minimize_intercept(self, sums_at, start):
        """Newton's method in a trust region, after at most three steps that need no curvature.

        Those are log(share / mean probability), a half of Sinkhorn's iteration: it never raises the value,
        it is exact if all rows have the same scores, and it brings back a start from which every row is
        saturated.
        """
        c = np.array(start, dtype=np.float64)
        c -= c.mean()
        n_classes, radius = c.shape[0], 1.0
        sums = sums_at(c)
        for iteration in range(500):
            value, shares, means = sums[0], sums[1 : n_classes + 1], sums[n_classes + 1 : 2 * n_classes + 1]
            score, hessian = shares - means, sums[2 * n_classes + 1 :].reshape(n_classes, n_classes)
            with np.errstate(over="ignore", under="ignore"):
                step = _newton_step_within(radius, hessian, score)
            size = np.abs(step).max()
            if iteration < 3 and size >= 0.5:
                with np.errstate(divide="ignore"):
                    step = np.clip(np.log(shares), -700.0, 0.0) - np.clip(np.log(means), -700.0, 0.0)
                step -= step.mean()
                size = np.abs(step).max()
            # As for one score: the step after one of 1e-8 would be of the order of its square.
            if size <= 1e-8 or np.abs(c).max() >= LARGEST_INTERCEPT:
                c = c + step
                break
            candidate_sums = sums_at(c + step)
            if candidate_sums[0] <= value + 1e-15 * abs(value) or size <= 1e-5:
                c, sums = c + step, candidate_sums
                radius = max(radius, 2 * size)
            else:
                radius = size / 4
        return c - c.mean()

    def constant_start_of(self, rows, has_offset, n_outputs):
        with np.errstate(divide="ignore"):
            shares = rows.total(partial(self._shares, n_outputs=n_outputs))
            start = np.maximum(np.log(shares), -LARGEST_INTERCEPT)
        start -= start.mean()
        return self.refit_intercept_of(rows, start) if has_offset else start

    @staticmethod
    def _shares(y, z, v, n_threads, *, n_outputs) -> np.ndarray:
        return np.bincount(y, weights=v, minlength=n_outputs)


# Log link -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _LogLink(Loss):
    """expm1((2-q) z) / (2-q) - y expm1((1-q) z) / (1-q), an expm1(0 z) / 0 read as its limit z: q is `power`.

    residual = y exp((1-q) z) - exp((2-q) z); both exponents have the same form in c, so the best intercept is
    log(sum v y exp((1-q) z) / sum v exp((2-q) z)).
    """

    link: ClassVar[str] = "log"

    @abstractmethod
    def _power(self) -> float:
        """q: the variance is mean^q."""

    def _check_domain(self, y, used):
        self._refuse(y, lambda y: y < 0, "y must be at least 0")
        if not (y[used] > 0).any():
            raise ValueError(f"loss '{self.name}': y is 0 in every row that counts; at least one must be above 0")
        return y

    def curvature_bound(self, y=None, z=None):
        return None

    def inverse_link(self, z):
        with np.errstate(over="ignore", under="ignore"):
            return np.exp(z)

    def _terms(self, y, z):
        """y exp((1-q) z), which pulls z up, and exp((2-q) z), which pulls it down."""
        power = self._power()
        up = y if power == 1 else y * np.exp((1 - power) * z)
        if power > 1 and not math.isfinite(up.max()):
            # A row with y = 0 pulls up with 0, also where the exponential overflows.
            up = np.where(y == 0, 0.0, up)
        down = np.ones_like(z) if power == 2 else np.exp((2 - power) * z)
        return up, down

    def _evaluate_block(self, y, z, values, residual, curvature):
        power = self._power()
        up, down = self._terms(y, z)
        if residual is not None:
            np.subtract(up, down, out=residual)
        if curvature is not None:
            np.multiply(down, 2 - power, out=curvature)
            if power > 1:
                curvature += (power - 1) * up
        if values is not None:
            np.copyto(values, _integral(down, z, 2 - power))
            if power == 1:
                values -= y * z
            else:
                with_y = (up - y) / (1 - power) if power > 1.125 else y * np.expm1((1 - power) * z) / (1 - power)
                values -= np.where(y == 0, 0.0, with_y)

    def intercept_sums(self, y, z, v, c):
        return np.array([_weighted_sum(v, term) for term in self._terms(y, z + c)])

    def minimize_intercept(self, sums_at, start):
        def step_at(c):
            up, down = map(float, sums_at(c))
            if 0 < up < math.inf and 0 < down < math.inf:
                gap = math.log(up) - math.log(down)
                return gap, gap
            # Overflow or underflow: c is too high, or too low, or (both overflow, or no y is positive)
            # beyond help.
            too_high = up == 0 or down == math.inf
            too_low = (down == 0 and up > 0) or up == math.inf
            return float(too_low) - float(too_high), math.nan

        return _root_of_decreasing(step_at, float(start), reach=64.0, tolerance=math.inf, limit=LARGEST_INTERCEPT)

    def constant_start_of(self, rows, has_offset, n_outputs=1):
        total, weight = map(float, rows.total(_sum_of_y))
        start = math.log(total / weight) if total > 0 else -LARGEST_INTERCEPT
        return self.refit_intercept_of(rows, start) if has_offset else start

    def dispersion_of(self, rows, n, df=1.0):
        """The Pearson statistic sum v (y - mu)^2 / mu^power, mu = exp(z), over its degrees of freedom."""
        return float(rows.total(self._pearson)[0]) * n / max(n - df, 1.0)

    def _pearson(self, y, z, v, n_threads) -> np.ndarray:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            up, down = self._terms(y, z)
            return np.array([_dot(v, (up - down) ** 2 / down)])


@dataclass(frozen=True)
class Poisson(_LogLink):
    """exp(z) - 1 - y z for counts y >= 0 of mean exp(z).

    Examples
    --------
    >>> get_loss("poisson").residual(np.array([0.0, 3.0]), np.zeros(2))
    array([-1.,  2.])
    """

    name: ClassVar[str] = "poisson"
    has_known_dispersion: ClassVar[bool] = True

    def _power(self):
        return 1.0

    def dispersion_of(self, rows, n, df=1.0):
        """1: the variance of a count is its mean. For counts that vary more use tweedie with power 1."""
        return 1.0


@dataclass(frozen=True)
class Gamma(_LogLink):
    """z + y (exp(-z) - 1) for amounts y > 0 of mean exp(z), their variance proportional to the squared mean.

    Examples
    --------
    >>> round(get_loss("gamma").constant_start(np.array([1.0, 3.0]), np.full(2, 0.5)), 6)
    0.693147
    """

    name: ClassVar[str] = "gamma"

    def _power(self):
        return 2.0

    def _check_domain(self, y, used):
        self._refuse(y, lambda y: y <= 0, "y must be above 0")
        return y


@dataclass(frozen=True)
class Tweedie(_LogLink):
    """For amounts y >= 0 of mean mu = exp(z) and variance proportional to mu^power.

    Parameters
    ----------
    power : float in [1, 2], default=1.5
        1 is the loss of `poisson`, 2 that of `gamma` (y = 0 is then refused); between them sums of a random
        number of amounts, often none.

    Examples
    --------
    >>> y, z = np.array([0.0, 2.0]), np.array([0.5, -0.5])
    >>> bool((get_loss("tweedie", power=1).values(y, z) == get_loss("poisson").values(y, z)).all())
    True
    """

    name: ClassVar[str] = "tweedie"
    power: float = 1.5

    def __post_init__(self):
        _check_parameter(self, "power", self.power, 1.0, 2.0, "between 1 and 2", closed=True)

    def _power(self):
        return float(self.power)

    def _check_domain(self, y, used):
        if self.power == 2:
            self._refuse(y, lambda y: y <= 0, "y must be above 0 where power is 2")
        return super()._check_domain(y, used)


def _weighted_sum(v, values) -> float:
    """v @ values, where 0 * inf is nothing: a row of weight zero is not there."""
    total = float(v @ values)
    if math.isnan(total):
        used = v > 0
        total = float(v[used] @ values[used])
    return total


def _integral(exponential, z, rate):
    """expm1(rate z) / rate, given exp(rate z); z if the rate is 0."""
    if rate == 0:
        return z
    # For a small rate exp - 1 has lost the digits that the division brings to the front.
    return (exponential - 1) / rate if rate > 0.125 else np.expm1(rate * z) / rate


def _newton_step_within(radius, hessian, score):
    """argmax of score.d - d'Hd/2 over ||d|| <= radius and sum(d) = 0, for a softmax: there H 1 = 0.

    It is (H + m)^-1 score with the least m >= 0 for which it is short enough.
    """
    # The direction 1 gets a curvature of its own: there is no slope in it, and rounding has no say.
    curvatures, axes = np.linalg.eigh(hessian + max(np.trace(hessian), 1e-300) / hessian.shape[0])
    curvatures = np.maximum(curvatures, 1e-300)
    slopes = (score - score.mean()) @ axes
    step = slopes / curvatures
    if not np.linalg.norm(step) <= radius:
        low, high = 0.0, np.linalg.norm(slopes) / radius
        for _ in range(60):
            middle = (low + high) / 2
            if np.linalg.norm(slopes / (curvatures + middle)) > radius:
                low = middle
            else:
                high = middle
        step = slopes / (curvatures + high)
    step = axes @ step
    return step - step.mean()


# Names ----------------------------------------------------------------------------------------------------

_CLASSES = {loss.name: loss for loss in (SquaredError, LogLoss, Multinomial, Poisson, Gamma, Tweedie, Huber, Quantile)}

#: The names of all losses.
LOSSES = tuple(_CLASSES)

#: The paper's names, accepted everywhere.
ALIASES = {"squared": "squared_error", "logistic": "log_loss"}


def _check_parameter(loss, parameter, value, low, high, allowed, *, closed=False) -> None:
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not is_number or not (low <= value <= high if closed else low < value < high):
        raise ValueError(f"loss '{loss.name}': {parameter} is {value!r}; it must be {allowed}")


def _require_two_classes(loss, y, used) -> None:
    first = y[np.argmax(used)]
    if not any(((y[rows] != first) & used[rows]).any() for rows in _blocks(y.shape[0])):
        raise ValueError(f"loss '{loss.name}': y is {first:g} in every row that counts; two classes are needed")


def get_loss(loss: str | Loss, **params) -> Loss:
    """The loss of a name, with its parameters; a loss object is returned as it is.

    Parameters
    ----------
    loss : str or Loss
        A name in `LOSSES`, "squared" or "logistic", or a loss object.
    **params
        `power` (tweedie), `delta` (huber), `level`, `smoothing`, `half_width` (quantile), `n_classes`
        (multinomial).

    Examples
    --------
    >>> get_loss("logistic")
    LogLoss()
    >>> get_loss("tweedie", power=1.2)
    Tweedie(power=1.2)
    >>> get_loss("hinge")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: loss is 'hinge'; it must be one of 'squared_error', 'log_loss', ...
    """
    if isinstance(loss, Loss):
        if params:
            raise ValueError(f"loss is an object, {loss!r}, and has its parameters; {sorted(params)} cannot be given")
        return loss
    name = ALIASES.get(loss, loss) if isinstance(loss, str) else loss
    if not isinstance(name, str) or name not in _CLASSES:
        raise ValueError(f"loss is {loss!r}; it must be one of {', '.join(map(repr, (*LOSSES, *ALIASES)))}")
    cls = _CLASSES[name]
    allowed = [field.name for field in fields(cls)]
    for parameter in params:
        if parameter not in allowed:
            takes = ", ".join(allowed) if allowed else "no parameters"
            raise ValueError(f"loss '{name}' has no parameter {parameter!r}; it takes {takes}")
    return cls(**params)
