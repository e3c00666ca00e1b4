"""Numbers and intervals as text."""

from __future__ import annotations

import numpy as np


def interval_labels(edges: np.ndarray) -> list[str]:
    if len(edges) == 0:
        return ["any number"]
    texts = short_numbers(edges)
    inner = [f"({left}, {right}]" for left, right in zip(texts[:-1], texts[1:], strict=True)]
    return [f"<= {texts[0]}", *inner, f"> {texts[-1]}"]


def short_numbers(numbers: np.ndarray) -> list[str]:
    """Increasing numbers, with as few digits as keep each within 5 % of the distance to its nearest neighbour."""
    if len(numbers) == 1:
        slack = np.abs(numbers) * 1e-6
    else:
        with np.errstate(over="ignore"):
            gaps = np.diff(numbers)
        slack = 0.05 * np.minimum(np.append(gaps, np.inf), np.insert(gaps, 0, np.inf))
    for n_digits in range(3, 18):
        rounded = [float(f"{x:.{n_digits - 1}e}") for x in numbers]
        if np.isfinite(rounded).all() and (np.abs(np.array(rounded) - numbers) <= slack).all():
            break
    return [f"{x:.{n_digits}g}" if abs(x) >= 1e16 or 0 < abs(x) < 1e-4 else plain_number(x) for x in rounded]


def plain_number(number: float) -> str:
    """A number without an exponent, and without ".0" if it is whole."""
    return np.format_float_positional(number + 0.0, trim="-")
