"""Bins: where a column of numbers is cut, and the code of a number.

The half-open rule: a number x has the code k if edges[k - 1] < x <= edges[k]; that is, its code is the
number of edges below it. Edges lie between neighbouring data values, so equal values share a bin. Infinities
play no part in the cutting: by the rule they fall into the end bins.
"""

from __future__ import annotations

import numpy as np


def distinct_values(values, weights):
    """The distinct finite values, ascending, and the summed weight of each."""
    finite = np.isfinite(values)
    distinct, which = np.unique(np.asarray(values[finite], dtype=np.float64), return_inverse=True)
    return distinct, np.bincount(which, weights[finite], minlength=len(distinct))


def regular_bins(weight, max_bins):
    """The bin of each distinct value for bins of equal weight.

    1. A value heavier than an equal share of the weight gets a bin of its own. The remaining weight is shared
       by the remaining bins, which may make more values heavy: repeat until none is.
    2. The light values are cut by their mid-ranks: with r bins for the light weight W, a value of weight c
       that follows the light weight B is in bin floor((B + c / 2) r / W). Without ties the counts differ by
       at most one.
    3. A bin ends at a heavy value. This may split bins until there are too many: join the lightest
       neighbours.
    """
    if len(weight) <= max_bins:
        return np.arange(len(weight))
    heavy, light_bins = np.zeros(len(weight), dtype=bool), max_bins
    while light_bins > 1:
        found = ~heavy & (weight > _sum(weight[~heavy]) / light_bins)
        if not found.any():
            break
        heavy |= found
        light_bins = max(light_bins - found.sum(), 1)

    light = weight[~heavy]
    middle = _before(light) + 0.5 * light
    shares = np.full(len(weight), -1)
    if len(light):
        shares[~heavy] = np.minimum(np.floor(middle * light_bins / _sum(light)), light_bins - 1)
    opens = heavy | (np.diff(shares, prepend=-2) != 0)
    bins = np.cumsum(opens) - 1

    bin_weight = np.bincount(bins, weight)
    while len(bin_weight) > max_bins:
        lightest = np.argmin(bin_weight[:-1] + bin_weight[1:])
        bin_weight[lightest] += bin_weight[lightest + 1]
        bin_weight = np.delete(bin_weight, lightest + 1)
        bins[bins > lightest] -= 1
    return bins


def binomial_bins(weight, cuts):
    """The bin of each distinct value when bin k ends at the cumulated weight cuts[k]; empty bins vanish.

    Mid-ranks decide, so without ties and with integer weights the bins hold exactly what the cuts say.
    """
    bins = np.searchsorted(cuts, _before(weight) + 0.5 * weight, side="right")
    return np.unique(bins, return_inverse=True)[1]


def describe_bins(distinct, weight, bins):
    """The edges between the bins and the mean of the values in each, given the bin of each distinct value."""
    if len(distinct) == 0:
        return np.empty(0), np.zeros(1)
    starts = np.flatnonzero(np.diff(bins, prepend=-1))
    stops = np.append(starts[1:], len(distinct))
    edges = np.array([between(distinct[i - 1], distinct[i]) for i in starts[1:]])
    means = np.bincount(bins, weight / np.bincount(bins, weight)[bins] * distinct)
    return edges, np.clip(means, distinct[starts], distinct[stops - 1])


def between(left, right):
    """A number m with left <= m < right, halfway up to rounding, without overflow."""
    with np.errstate(over="ignore"):
        middle = 0.5 * (left + right)
    if not np.isfinite(middle):
        middle = 0.5 * left + 0.5 * right
    return middle if middle < right else left


def codes_of(values, edges):
    """The number of edges below each value; NaN is one past the ordered bins."""
    codes = np.searchsorted(edges, values, side="left")
    return np.where(np.isnan(values), len(edges) + 1, codes)


def _sum(weight):
    """The sum from left to right, as a loop computes it."""
    return np.cumsum(weight)[-1] if len(weight) else 0.0


def _before(weight):
    """The cumulated weight before each value, summed from left to right."""
    return np.concatenate([[0.0], np.cumsum(weight)])[:-1]
