"""Brute force for the projections: it centres nothing, sorts nothing and pools nothing.

It lists the subspaces of mean zero of all sets of pieces, projects onto each by a QR decomposition, and takes the best.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import combinations, product

import numpy as np


def square(u, w):
    return w @ u**2


@cache
def cuts(n, limit):
    """All ways to cut n bins into at most `limit` runs, each a tuple of (first, last)."""
    return [
        tuple(zip((0, *inner), (*inner, n), strict=True))
        for n_cuts in range(min(limit, n))
        for inner in combinations(range(1, n), n_cuts)
    ]


@cache
def groupings(n, limit):
    """All ways to put n bins into at most `limit` groups: a group number per bin, in order of appearance."""
    found = [()]
    for _ in range(n):
        found = [g + (k,) for g in found for k in range(min(max(g, default=-1) + 2, limit))]
    return found


@cache
def stirling(n, k):
    """Stirling numbers of the second kind by their recursion."""
    if n == 0 or k == 0:
        return int(n == k)
    return k * stirling(n - 1, k) + stirling(n - 1, k - 1)


def code_of_levels(n, k):
    """max over k' <= k of log S(n, k'), plus (k - 1) (1 + log n); 0 of no level."""
    of_groupings = math.log(max((stirling(n, fewer) for fewer in range(1, k + 1)), default=1))
    return of_groupings + max(k - 1, 0) * (1 + math.log(max(n, 1)))


def indicator(bins, n):
    column = np.zeros(n)
    column[bins] = 1.0
    return column


def subspaces(w, x, has_missing, shape, limit, price, rows, least_rows):
    """(columns over the live bins, code, order that the pieces must keep) of all sets of pieces."""
    n_ordered = len(w) - has_missing
    live = np.flatnonzero(w > 0)
    ordered = live[live < n_ordered]
    n, log_b = len(ordered), np.log(max(n_ordered, 1))

    def holds_enough(piece):
        return sum(rows[i] for i in piece) >= least_rows

    def bins_of_run(first, last):
        return range(ordered[first] if first else 0, ordered[last] if last < n else n_ordered)

    extra = [indicator([len(live) - 1], len(live))] if has_missing and w[-1] > 0 else []

    def subspace(columns, code, sign=0):
        return np.array([*columns, *extra]).reshape(-1, len(live)).T, code + has_missing, sign

    if n == 0:
        yield subspace([], 0.0)
    elif shape == "free":
        yield subspace([indicator([i], len(live)) for i in range(n)], n_ordered - 1.0)
    elif shape == "frequency":
        angles = np.pi * (np.arange(n) + 0.5) / n
        for k in range(min(limit, n - 1) + 1):
            for kept in combinations(range(1, n), k):
                columns = [np.append(np.cos(i * angles), np.zeros(len(extra))) for i in (0, *kept)]
                yield subspace(columns, k * log_b)
    elif shape == "levels":
        for grouping in groupings(n, limit):
            k = max(grouping) + 1
            groups = [[ordered[i] for i in range(n) if grouping[i] == g] for g in range(k)]
            if k > 1 and not all(map(holds_enough, groups)):
                continue
            columns = [indicator([i for i in range(n) if grouping[i] == g], len(live)) for g in range(k)]
            yield subspace(columns, code_of_levels(n_ordered, k))
    else:
        may_be_line = {"linear": (True,), "mixed": (False, True) if price else (True,)}.get(shape, (False,))
        sign = {"increasing": 1, "decreasing": -1}.get(shape, 0)
        for cut in cuts(n, limit):
            if len(cut) > 1 and not all(holds_enough(bins_of_run(*run)) for run in cut):
                continue
            for lines in product(may_be_line, repeat=len(cut)):
                columns = []
                for (first, last), line in zip(cut, lines, strict=True):
                    columns.append(indicator(range(first, last), len(live)))
                    here = x[ordered[first:last]]
                    if line and here[0] != here[-1]:
                        columns.append(columns[-1].copy())
                        columns[-1][first:last] = (here - here[0]) / (here[-1] - here[0])
                yield subspace(columns, (len(cut) + sum(lines) - 1) * log_b, sign)


def zero_mean_projection(f, w, columns):
    """The nearest table to f in the span of the columns that has mean zero, for positive weights w."""
    root = np.sqrt(w)
    span, _ = np.linalg.qr(columns * root[:, None])
    toward_mean = span.T @ root
    if toward_mean @ toward_mean > 0:
        span = span @ np.linalg.svd(toward_mean[None], full_matrices=True)[2][1:].T
    return span @ (span.T @ (f * root)) / root


def brute_force(f, w, x, has_missing, shape, limit, price=0.0, entry=0.0, ridge=0.0, rows=None, least_rows=0.0):
    """min over allowed g of ||f - g||^2 / 2 + ridge / 2 ||g||^2 + (price * code + entry if g != 0)."""
    live = w > 0
    rows = w if rows is None else rows
    f_live, w_live = f[live], w[live]
    best = square(f_live, w_live) / 2
    for columns, code, sign in subspaces(w, x, bool(has_missing), shape, limit, price, rows, least_rows):
        g = zero_mean_projection(f_live, w_live, columns) / (1 + ridge)
        ordered = g[: len(g) - bool(has_missing and w[-1] > 0)]
        if sign and (np.diff(sign * ordered) < -1e-9 * np.abs(g).max()).any():
            continue
        value = square(f_live - g, w_live) / 2 + ridge / 2 * square(g, w_live) + price * code + entry
        best = min(best, value)
    return best
