"""Averages over all ways to cut a table into pieces: the heart of the kernels of `rbr.reference.visits`.

Bin k of a table has a value u_k with a precision W_k (its curvature over the dispersion). A way to cut the table says
between which bins it jumps, and which of its pieces are lines. Prior: each of the b - 1 places has a jump with odds o;
a piece of three bins or more is a line with probability q, any other piece is a constant; a constant has the prior
N(0, 1 / c), and beside it the slope of a line, in units of the spread of the bins' numbers, N(0, 1 / (3 c)). The factor
three makes the end of an even piece as uncertain as its value: it lies sqrt(3) spreads from the centre.

The value of a piece is Gaussian, so what it explains has a closed form, and the sum over all 2^(b - 1) ways to cut is a
forward recursion over the ends of pieces, as for a hidden Markov model (Fearnhead 2006, "Exact and efficient Bayesian
inference for multiple changepoint problems").
"""

from __future__ import annotations

import numpy as np

LEAST_LINE = 3


def pieces_before(sums, weights, prior, line_share, e):
    """For each start s < e, the pieces s <= k < e: a pair (constant, line) of (log evidence, value at k = 0, slope,
    number of unknowns, mean of their squares in units of their priors' variances).

    log evidence = log of the integral of exp(sum_k W_k (u_k f_k - f_k^2 / 2)) over the prior of the piece, with the
    prior share of its kind; -inf for a line of fewer than three bins.
    """
    found = []
    for s in range(e):
        k, w, total, sum_ = np.arange(s, e), weights[s:e], weights[s:e].sum(), sums[s:e].sum()
        constant = 0.5 * sum_**2 / (total + prior) - 0.5 * np.log1p(total / prior)
        value, line, slope = sum_ / (total + prior), -np.inf, 0.0
        square = value**2 + 1 / (total + prior)
        is_line_possible = e - s >= LEAST_LINE and line_share > 0
        if is_line_possible:
            centre = w @ k / total
            spread, rise = w @ (k - centre) ** 2, sums[s:e] @ (k - centre)
            slope = rise / (spread * (1 + 3 * prior / total))
            line = constant + 0.5 * rise * slope - 0.5 * np.log1p(total / (3 * prior)) + np.log(line_share)
            with np.errstate(divide="ignore"):
                constant = constant + np.log1p(-line_share)
            squares = square + 3 * (slope**2 * spread / total + 1 / (total + 3 * prior))
            found.append(((constant, value, 0.0, 1, square), (line, value - slope * centre, slope, 2, squares)))
        else:
            found.append(((constant, value, 0.0, 1, square), (line, 0.0, 0.0, 2, 0.0)))
    return found


def average_table(sums, weights, prior, odds, line_share):
    """(mean table, log evidence, mean number of pieces, prior that the pieces suggest) of one table.

    The last is a step of the EM algorithm: one over the mean square of the values, and of three times the slopes.
    """
    b = len(sums)
    before = [0.0]  # log evidence of the first e bins
    ends = [pieces_before(sums, weights, prior, line_share, e) for e in range(b + 1)]
    for e in range(1, b + 1):
        terms = [before[s] + (s > 0) * np.log(odds) + kind[0] for s in range(e) for kind in ends[e][s]]
        before.append(np.logaddexp.reduce(terms))
    is_end, table, pieces, unknowns, squares = np.zeros(b + 1), np.zeros(b), 0.0, 0.0, 0.0
    is_end[b] = 1.0
    for e in range(b, 0, -1):
        for s in range(e):
            for evidence, value, slope, n_unknowns, square in ends[e][s]:
                p = is_end[e] * np.exp(before[s] + (s > 0) * np.log(odds) + evidence - before[e])
                table[s:e] += p * (value + slope * np.arange(s, e))
                is_end[s] += p
                pieces += p
                unknowns += p * n_unknowns
                squares += p * square
    return table, before[b] - (b - 1) * np.log1p(odds), pieces, unknowns / squares
