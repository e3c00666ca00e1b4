"""Losses of classes: the log-loss of two, the multinomial of more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from rbr._backend import kernels
from rbr._parallel import over_ranges
from rbr._sizes import LOG_LOSS_SUMS, SOFTMAX
from rbr.losses.base import Loss
from rbr.losses.roots import LARGEST_INTERCEPT, root_of_decreasing, root_of_parabola
from rbr.losses.sums import BLOCK_ROWS, add_in_order, as_vectors, dot, row_blocks, weighted_sum, worth

# The fourth derivative of the log-loss is at most the second. So the step to the zero of its slope that follows from
# three derivatives is out by a sixth of its cube (1e-12 here), and the loss there by less than rounding.
CUBIC_STEP = 1.5e-4

# The third derivatives of the multinomial loss are at most 1: its value after a shorter step than this follows from two
# derivatives, up to rounding.
QUADRATIC_STEP = 1e-5


@dataclass(frozen=True)
class LogLoss(Loss):
    """log(1 + exp(z)) - y z with y in {0, 1}: z is the log-odds of y = 1.

    Computed from s = z if y = 0 else -z, as log(1 + exp(s)) with an exponent that is never positive: losses
    and residuals far from zero keep all their digits.

    Examples
    --------
    >>> from rbr.losses import get_loss
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

    def curvature_growth(self, prediction):
        return 1.0 - 2.0 * prediction

    def curvature_bound(self, y=None, z=None):
        return 0.25

    def inverse_link(self, z):
        z = np.asarray(z, dtype=np.float64, order="C")
        out = np.empty(z.shape)
        over_ranges(kernels().expit, z.size, 1, z.ravel(), out.reshape(-1))
        return out[()]

    def target_columns(self, y, n_outputs=1):
        yield 1.0 - y
        yield np.asarray(y, dtype=np.float64)

    def _kernel(self):
        return self.name, 0.0, 0.0

    def intercept_sums(self, y, z, v, c, n_threads=1):
        """The pulls upwards (rows with y = 1) and downwards, how fast each changes with c, loss, third derivative."""
        y, z, v = as_vectors(y, z, v)
        sums = np.empty((-(-len(y) // BLOCK_ROWS), LOG_LOSS_SUMS))
        n_threads = worth(n_threads, len(y))
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
                    step = root_of_parabola(up - down, curvature_up + curvature_down, third)
                return gap, step
            return up - down, math.nan

        return root_of_decreasing(step_at, float(start), reach=16.0, tolerance=CUBIC_STEP, limit=LARGEST_INTERCEPT)

    def value(self, y, z, v, n_threads=1):
        value = float(self.intercept_sums(y, z, v, 0.0, n_threads)[4])
        return value if math.isfinite(value) else super().value(y, z, v)

    def _sums_at(self, y, z, v, n_threads, *, c):
        return self.intercept_sums(y, np.zeros(y.shape[0]) if z is None else z, v, c, n_threads)

    def refit_intercept_and_value(self, rows, start):
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
        zeros = add_in_order([float((1.0 - y[rows]) @ v[rows]) for rows in row_blocks(y.shape[0])])
        return np.array([dot(y, v), zeros, v.sum()])

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
    >>> from rbr.losses import get_loss
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

    def curvature_growth(self, prediction):
        return 1.0 - 2.0 * prediction

    def curvature_bound(self, y=None, z=None):
        return 0.5

    def inverse_link(self, z):
        with np.errstate(under="ignore"):
            powers = np.exp(z - z.max(axis=1, keepdims=True))
            return powers / powers.sum(axis=1, keepdims=True)

    def target_columns(self, y, n_outputs=1):
        yield from ((y == c).astype(np.float64) for c in range(n_outputs))

    @property
    def compiled(self):
        return SOFTMAX, 0.0, 0.0

    def evaluate(self, y, z, *, values=None, residual=None, curvature=None, v=None, n_threads=1):
        scores = _by_class(z)
        for order, out in enumerate((values, residual, curvature)):
            if out is None:
                continue
            given = np.atleast_2d(out.T)
            by_class = given if given.flags.c_contiguous else np.empty(given.shape)
            own = np.zeros(0) if v is None or order == 0 else as_vectors(v)[0]
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                over_ranges(
                    kernels().softmax_of_rows, len(y), worth(n_threads, len(y)), order, y, scores, own, by_class
                )
            if by_class is not given:
                given[...] = by_class

    def value(self, y, z, v, n_threads=1):
        values = np.empty(len(y))
        self.evaluate(y, z, values=values, n_threads=n_threads)
        return add_in_order([weighted_sum(v[rows], values[rows]) for rows in row_blocks(len(y))])

    def hessian(self, y, z, v=None, n_threads=1):
        probability, v = _by_class(self.inverse_link(z)), np.ones(len(y)) if v is None else as_vectors(v)[0]

        def times(direction, out=None):
            by_class = np.empty(probability.shape) if out is None else out.T
            arguments = probability, _by_class(direction), v, by_class
            over_ranges(kernels().softmax_hessian_times, len(v), worth(n_threads, len(v)), *arguments)
            return by_class.T

        return times

    def intercept_sums(self, y, z, v, c, n_threads=1):
        """Value, class shares, mean probabilities, and Hessian in c, flat: 1 + 2 K + K^2 numbers."""
        n_classes, scores = z.shape[1], _by_class(z)
        blocks = np.empty((-(-len(y) // BLOCK_ROWS), 1 + n_classes + n_classes * (n_classes + 1) // 2))
        v, c = as_vectors(v, c)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            over_ranges(kernels().softmax_sums, len(blocks), worth(n_threads, len(y)), y, scores, v, c, blocks)
        sums = blocks.sum(axis=0)
        means, hessian, below = sums[1 : n_classes + 1], np.zeros((n_classes, n_classes)), np.tril_indices(n_classes)
        hessian[below] = hessian.T[below] = -sums[n_classes + 1 :]
        hessian[np.diag_indices(n_classes)] += means
        shares = np.bincount(y, weights=v, minlength=n_classes)
        return np.concatenate([sums[:1], shares, means, hessian.ravel()])

    def _sums_at(self, y, z, v, n_threads, *, c):
        return self.intercept_sums(y, np.zeros((y.shape[0], len(c))) if z is None else z, v, c, n_threads)

    def refit_intercept_and_value(self, rows, start):
        last: tuple = ()

        def sums_at(c):
            nonlocal last
            last = c, rows.total(partial(self._sums_at, c=c))
            return last[1]

        intercept = self.minimize_intercept(sums_at, start)
        step, sums, n_classes = intercept - last[0], last[1], len(intercept)
        score = sums[1 : n_classes + 1] - sums[n_classes + 1 : 2 * n_classes + 1]
        hessian = sums[2 * n_classes + 1 :].reshape(n_classes, n_classes)
        value = float(sums[0] - step @ (score - 0.5 * (hessian @ step)))
        return intercept, value if np.abs(step).max() <= QUADRATIC_STEP and math.isfinite(value) else None

    def minimize_intercept(self, sums_at, start):
        """Newton's method in a trust region, after at most three steps that need no curvature.

        Those are log(share / mean probability), a half of Sinkhorn's iteration: it never raises the value,
        it is exact if all rows have the same scores, and it brings back a start from which every row is
        saturated. A class that no row has belongs at minus infinity: it is held where its probability is zero.
        """
        c = np.array(start, dtype=np.float64)
        n_classes, radius = c.shape[0], 1.0
        sums = sums_at(c - c.mean())
        present = sums[1 : n_classes + 1] > 0
        if not present.all():
            c[~present] = c[present].min() - LARGEST_INTERCEPT
            sums = sums_at(c - c.mean())
        c -= c.mean()
        for iteration in range(500):
            value, shares, means = sums[0], sums[1 : n_classes + 1], sums[n_classes + 1 : 2 * n_classes + 1]
            score, hessian = shares - means, sums[2 * n_classes + 1 :].reshape(n_classes, n_classes)
            step = np.zeros(n_classes)
            with np.errstate(over="ignore", under="ignore"):
                step[present] = _newton_step_within(radius, hessian[np.ix_(present, present)], score[present])
            size = np.abs(step).max()
            if iteration < 3 and size >= 0.5:
                with np.errstate(divide="ignore"):
                    pulls = np.clip(np.log(shares), -700.0, 0.0) - np.clip(np.log(means), -700.0, 0.0)
                step[present] = pulls[present] - pulls[present].mean()
                size = np.abs(step).max()
            # As for one score: the step after one of 1e-8 would be of the order of its square.
            if size <= 1e-8 or np.ptp(c[present]) >= 2 * LARGEST_INTERCEPT:
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


def _by_class(scores) -> np.ndarray:
    """(n, K) scores as the (K, n) array that the kernels read; those of a design are not copied."""
    return np.ascontiguousarray(scores.T, dtype=np.float64)


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


def _require_two_classes(loss, y, used) -> None:
    first = y[np.argmax(used)]
    if not any(((y[rows] != first) & used[rows]).any() for rows in row_blocks(y.shape[0])):
        raise ValueError(f"loss '{loss.name}': y is {first:g} in every row that counts; two classes are needed")
