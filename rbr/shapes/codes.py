"""Code lengths: what it costs to describe a table, in units of the paper's Gaussian complexity."""

from __future__ import annotations

from functools import cache

import numpy as np


def constant_code(n_pieces: int, n_lines: int, n_ordered: int) -> float:
    """(pieces + lines - 1) log b: each jump has b places, and a slope costs as much as a jump."""
    return (n_pieces + n_lines - 1) * float(np.log(n_ordered))


def log_of_bins(n_ordered: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """log b: one jump, or one slope."""
    return np.log(n_ordered)


def free_code(n_pieces: int, n_lines: int, n_ordered: int) -> float:
    """b - 1: there is only one linear space, and nothing to search."""
    return n_ordered - 1.0


def cheapest_free_code(n_ordered: np.ndarray, limits: np.ndarray) -> np.ndarray:
    return n_ordered - 1.0


def level_code(n_pieces: int, n_lines: int, n_ordered: int) -> float:
    """The code of k levels; see `level_codes`."""
    return float(level_codes(n_ordered, n_pieces)[-1])


def cheapest_level_code(n_ordered: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """That of two levels, of which there are S(b, 2) = 2^(b-1) - 1: more cost more. 0 where only one is possible."""
    halvings = np.maximum(n_ordered, 2) - 1.0
    of_two = halvings * np.log(2.0) + np.log1p(-(0.5**halvings)) + 1.0 + np.log(np.maximum(n_ordered, 1))
    return np.where(np.minimum(limits, n_ordered) > 1, of_two, 0.0)


@cache
def level_codes(n_bins: int, limit: int) -> np.ndarray:
    """max over k' <= k of log S(b, k'), plus (k - 1) (1 + log b), for k = 1..limit.

    S(b, k), the Stirling number of the second kind, counts the groupings of b bins into k groups; it is
    k S(b-1, k) + S(b-1, k-1). It falls again towards k = b; with the maximum the code does not. A further group is the
    best of many ways to cut a group of equal levels in two, which gains by chance as the best of b places does.
    """
    log_s = np.full(limit + 1, -np.inf)
    log_s[0] = 0.0
    with np.errstate(divide="ignore"):
        log_k = np.log(np.arange(limit + 1.0))
    for _ in range(n_bins):
        log_s = np.logaddexp(log_k + log_s, np.concatenate([[-np.inf], log_s[:-1]]))
    codes = np.maximum.accumulate(log_s[1:]) + np.arange(limit) * (1.0 + np.log(n_bins))
    codes.setflags(write=False)
    return codes
