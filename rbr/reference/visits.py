"""Visits of tables: the definition of the kernels `visit_tables` and `visit_rows`.

Averaged tables are found one after the other, each beside the others as they are. A visit of a table knows of each bin
the sums of v r and v h over its rows, residuals and curvatures at the present scores. It finds the mean of the table
over all ways to cut it (`rbr.reference.averages`) and over smooth curves (`rbr.reference.curves`), or over the widths
of a prior for levels, counts that with the probability that the table is used, and moves the table towards it. The
scores of the rows move along.
"""

from __future__ import annotations

import numpy as np

from rbr.reference import losses
from rbr.reference.averages import average_table
from rbr.reference.curves import average_curve
from rbr.reference.design import look_up, sum_by_bin

# Positive numbers are at least this: they are divided by.
LEAST = 1e-300

# The number of the loss of several classes, which is not among LOSSES.
SOFTMAX = -1

# The log odds of a feature are cut off here, where its share is 0 or 1 to all digits.
MOST_LOG_ODDS = 700.0


def precisions(pulls, curvatures, f, weights, growth, scale, alpha):
    """(S, W) by bin: W the precision of a bin's value, S that times the value; scale = n / phi.

    The value of a bin is what a Newton step gives it, with the curvature H + t G / 3 if that grows by the part t of
    itself as the score rises by one: what is gained is then G^2 / 2 (H + t G / 3), to third order, for bins and for the
    pieces made of them, since G and H add up. So a few rare positives are worth what they are worth, and not what H
    alone says. A step is no longer than three units. The mean is the intercept's: it is taken out.
    """
    if growth is not None:
        curvatures = np.maximum(curvatures + growth * pulls / 3.0, np.abs(pulls) / 3.0)
    S, W = scale * (pulls + curvatures * f), scale * (curvatures + alpha * weights)
    return S - W * (S.sum() / max(W.sum(), LEAST)), W


def average_levels(S, W, per_row, rows):
    """(mean, log evidence, effective number) of levels with one Gaussian prior, averaged over its width.

    per_row : the precision that a row brings on average
    rows : how many rows the prior of a level is worth
    """
    priors = np.maximum(rows * per_row, LEAST)[:, None]
    evidence = (0.5 * S**2 / (W + priors) - 0.5 * np.log1p(W / priors)).sum(axis=1)
    total = np.logaddexp.reduce(evidence)
    shares = np.exp(evidence - total)
    return shares @ (S / (W + priors)), total - np.log(len(rows)), shares @ (W / (W + priors)).sum(axis=1)


def freedom_of(pieces, n_bins):
    """The degrees of freedom of pieces: their values, and the places of the jumps between them."""
    return pieces + max(pieces - 1.0, 0.0) * np.log(max(n_bins, 2))


def average_pieces(sums, weights, prior, odds, line_share):
    """`average_table`, also of a table without bins."""
    if len(sums) == 0:
        return np.zeros(0), 0.0, 0.0, prior
    return average_table(sums, weights, prior, odds, line_share)


def curves_beside(found, sums, weights, per_row, share, lengths, rows):
    """(mean, log evidence, pieces, freedom) of pieces as `found`, or of a curve with the prior probability `share`."""
    mean, evidence, pieces, freedom = found
    curve, of_curve, unknowns = np.zeros(0), 0.0, 0.0
    if len(sums):
        curve, of_curve, unknowns = average_curve(sums, weights, per_row, lengths, rows)
    both = np.logaddexp(np.log1p(-share) + evidence, np.log(share) + of_curve)
    curved = np.exp(np.log(share) + of_curve - both)
    return (
        mean + curved * (curve - mean),
        both,
        pieces + curved * (1.0 + unknowns / 2.0 - pieces),
        freedom + curved * (unknowns - freedom),
    )


def share_of_use(evidence, n_used, n_allowed, price):
    """The probability that a table is used, beside `n_used` others: its prior odds are (k + 1) / (p - k).

    They make the evidence that a feature needs grow with the number of those that may be used.
    """
    log_odds = evidence - price - np.log((n_allowed - n_used) / (n_used + 1.0))
    return 1.0 / (1.0 + np.exp(-min(max(log_odds, -MOST_LOG_ODDS), MOST_LOG_ODDS)))


def visit_tables(
    tables,  # IN  (n,) int64: the tables to visit; first and last count in this list
    offsets,  # IN  (n_tables + 1,) int64
    groups,  # IN  (n_coef,) int64: bins of one number are averaged over as one; -1: left out
    n_groups,  # IN  (n_tables,) int64
    n_ordered,  # IN  (n_tables,) int64: bins that have an order
    is_grouped,  # IN  (n_tables,) uint8: whether the bins are levels without an order
    has_missing,  # IN  (n_tables,) uint8: whether the last bin is the missing one
    is_forced,  # IN  (n_tables,) uint8: whether the table is used whatever its evidence
    line_shares,  # IN  (n_tables,): the prior share of lines; 0: neither lines nor curves
    weights,  # IN  (n_coef,): of the bins; they sum to 1 in each table
    rises,  # IN  (n_coef, n_outputs): of a table, within the bins averaged over as one
    curvatures,  # IN  (n_coef, n_outputs): sums of v h over the rows of the bins
    growth,  # IN  (n_outputs,): by what part curvatures grow with the score; (0,): none
    rows_of_levels,  # IN  (n,): how many rows the prior of a level is worth, positive
    lengths,  # IN  (n,): of curves: over which part of the bins rises stay alike
    rows_of_curves,  # IN  (n,): how many rows the prior of a curve's value is worth, positive
    n_total,  # IN  the rows
    dispersion,  # IN  of the rows
    alpha,  # IN  the ridge
    least_prior_rows,  # IN  the limits of what the prior of a piece is worth, in rows
    most_prior_rows,
    least_jumps,  # IN  the limits of the jumps that a table is expected to have: a number,
    most_jumps,  #     and a share of its merged bins
    curve_share,  # IN  the prior share of curves beside pieces
    n_allowed,  # IN  the tables that may be used
    price,  # IN  the evidence that a table pays for the numbers of its prior
    step,  # IN  how far tables go towards their means; 0: they are only looked at
    pulls,  # IN  (n_coef, n_outputs): sums of v r over the rows of the bins
    f,  # IN/OUT (n_coef, n_outputs), the tables at first <= t < last
    share,  # IN/OUT (n_tables, n_outputs), likewise, as all below: probability of use
    evidence,  # OUT log odds of the data under the table against none
    explained,  # OUT what the mean table explains
    pieces,  # OUT the mean number of pieces
    freedom,  # OUT the degrees of freedom
    jumps,  # IN/OUT the prior's number of jumps
    prior_rows,  # IN/OUT the number of rows that the prior of a piece is worth
    first,
    last,
):
    """Visit some tables: average each over all ways to cut it, over curves or levels, and move it towards its mean."""
    for j, c in ((j, c) for j in tables[first:last] for c in range(f.shape[1])):
        bins, own = slice(offsets[j], offsets[j + 1]), (j, c)
        within, w = rises[bins, c], weights[bins]
        S, W = precisions(
            *(pulls[bins, c], curvatures[bins, c], f[bins, c], w, growth[c] if len(growth) else None),
            *(n_total / dispersion, alpha),
        )
        per_row = W.sum() / n_total
        if is_grouped[j]:
            means, evidence[own], pieces[own] = average_levels(S, W, per_row, rows_of_levels)
            freedom[own] = freedom_of(pieces[own], n_ordered[j])
        else:
            group, m = groups[bins], n_groups[j]
            live = group >= 0
            merged, left = np.zeros(m), np.zeros(m)
            np.add.at(left, group[live], (S - W * within)[live])
            np.add.at(merged, group[live], W[live])
            merged = np.maximum(merged, LEAST)
            prior = max(prior_rows[own] * per_row, LEAST)
            chance = min(jumps[own] / max(m - 1, 1), 0.5)
            per_row = max(per_row, LEAST)
            mean, log_evidence, n, suggested = average_pieces(
                left, merged, prior, chance / (1.0 - chance), line_shares[j]
            )
            # A step of the EM algorithm for both numbers of the prior.
            prior_rows[own] = min(max(suggested / per_row, least_prior_rows), most_prior_rows)
            jumps[own] = min(max(n - 1.0, least_jumps), max(most_jumps * m, least_jumps))
            found = mean, log_evidence, n, freedom_of(n, n_ordered[j])
            if curve_share > 0 and line_shares[j] > 0:
                found = curves_beside(found, left, merged, per_row, curve_share, lengths, rows_of_curves)
            mean, evidence[own], pieces[own], freedom[own] = found
            means = np.zeros(len(S))
            means[live] = mean[group[live]] + within[live]
            if has_missing[j]:
                means[-1] = S[-1] / (W[-1] + prior)
                evidence[own] += 0.5 * S[-1] ** 2 / (W[-1] + prior) - 0.5 * np.log1p(W[-1] / prior)
        explained[own] = (means - within) @ (S - W * within - 0.5 * W * (means - within))
        if step:
            n_used = share[:, c].sum() - share[own]
            odds = np.inf if is_forced[j] else evidence[own]
            share[own] = share_of_use(odds, n_used, n_allowed, price)
            counted = share[own] * means
            f[bins, c] += step * (counted - w @ counted - f[bins, c])


def visit_rows(
    codes,  # IN  (n_features, n_rows) uint8 or uint16; n_bins of the feature means no bin
    y,  # IN  (n_rows,); int64 classes for softmax
    v,  # IN  (n_rows,): weights
    loss,  # IN  its number in LOSSES; -1: softmax
    a,  # IN  its parameters, as in `loss_of_rows`
    b,
    *visit,
    # IN  as in `visit_tables`, from `tables` to `step`
    # IN/OUT scores: (n_outputs, n_rows); of squared error (n_outputs, 0)
    # IN/OUT residuals: (n_outputs, n_rows): v times the residuals at the scores
    # IN/OUT as in `visit_tables`, from `f` to `prior_rows`
    # first, last
):
    """`visit_tables` one after the other, each with the sums of v r at the scores that the last one has left behind."""
    told, (scores, residuals), moved, (first, last) = visit[:-12], visit[-12:-10], visit[-10:-2], visit[-2:]
    (tables, offsets, *_), (f, *_), pulls = told, moved, np.zeros(moved[0].shape)
    for t in range(first, last):
        j = tables[t]
        bins = slice(offsets[j], offsets[j + 1])
        before = f[bins].copy()
        for c in range(f.shape[1]):
            pulls[bins, c] = sum_by_bin(codes[j], residuals[c], bins.stop - bins.start)
        visit_tables(*told, pulls, *moved, t, t + 1)
        change = np.array([look_up(of_output, codes[j]) for of_output in (f[bins] - before).T])
        if scores.shape[1] == 0:
            residuals -= v * change
        else:
            scores += change
            residuals[...] = v * residuals_of(loss, a, b, y, scores)


def residuals_of(loss, a, b, y, scores):
    if loss == SOFTMAX:
        return losses.softmax_residual(y, scores)
    return losses.DERIVATIVES[losses.LOSSES[loss]][1](y, scores, a, b)
