"""Roots of functions of one number, as intercepts are found."""

from __future__ import annotations

import math
from collections.abc import Callable

# An intercept without a finite optimum (one class only, all counts zero) stops here: exp(-2000) is 0.
LARGEST_INTERCEPT = 2000.0


def root_of_decreasing(
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


def root_of_parabola(a: float, b: float, c: float) -> float:
    """The smaller root, in size, of -a + b x + c x^2 / 2, b > 0; near 0, where a and c are small."""
    return 2.0 * a / (b + math.sqrt(max(b * b + 2.0 * a * c, 0.0)))
