"""Grids cut into few rectangles, small ones exactly: the definition of the kernel `cut_grids`.

The set of tables that are constant on at most k rectangles, made by cutting a grid again and again from one side to the
other (guillotine cuts), is a closed cone that is closed under adding a constant, so the decomposition P_C = P_G o P_L o
P_zm holds for its exact projection. A rectangle R explains

    q(R) = sum over the outputs of (sum of w u over R)^2 / (2 sum of w over R),

and the nearest table of given rectangles has the means of u on them, so the projection maximises the sum of q less the
price of the cuts.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from rbr.reference.surfaces import parts_of

# A cut must gain more than another by this part of what the grid could explain, or the first of them is taken: less is
# a rounding error.
LEAST_GAIN = 1e-10


def explained(values, weights):
    """q(R) of a rectangle; values has the shape (n_a, n_b, n_outputs)."""
    total = weights.sum()
    sums = (weights[:, :, None] * values).sum(axis=(0, 1))
    return 0.5 * float(sums @ sums) / total if total > 0 else 0.0


def best_rectangles(values, weights, limit, price=0.0, parts=None):
    """(what is explained less the price of the cuts, the rectangles) of the best guillotine cuts into at most `limit`.

    A dynamic programme over all rectangles of the grid and numbers of parts: for grids of at most a dozen bins a side.
    Given parts are there from the start and cost nothing; each has at least one rectangle, whatever the limit is.
    """
    least = LEAST_GAIN * explained(np.abs(values), weights)
    parts = [(0, values.shape[0], 0, values.shape[1])] if parts is None else parts

    @lru_cache(None)
    def best(a, b, c, d, k):
        if k == 1:
            return explained(values[a:b, c:d], weights[a:b, c:d]), ((a, b, c, d),)
        if k > (b - a) * (d - c):
            return best(a, b, c, d, (b - a) * (d - c))
        found = best(a, b, c, d, k - 1)
        ways = [((a, m, c, d), (m, b, c, d)) for m in range(a + 1, b)]
        ways += [((a, b, c, m), (a, b, m, d)) for m in range(c + 1, d)]
        for one, other in ways:
            for n in range(1, k):
                left, right = best(*one, n), best(*other, k - n)
                if left[0] + right[0] - price > found[0] + least:
                    found = left[0] + right[0] - price, left[1] + right[1]
        return found

    @lru_cache(None)
    def together(n_parts, k):
        """The same of the first parts together, in at most k rectangles."""
        if n_parts == 0:
            return 0.0, ()
        found = None
        for n in range(1, k - n_parts + 2):
            before, last = together(n_parts - 1, k - n), best(*parts[n_parts - 1], n)
            if found is None or before[0] + last[0] > found[0] + least:
                found = before[0] + last[0], before[1] + last[1]
        return found

    n_cells = sum((b - a) * (d - c) for a, b, c, d in parts)
    return together(len(parts), max(min(limit, n_cells), len(parts)))


def best_cut(values, weights, price, least):
    """(net gain per cut, side, place) of the first cut of a rectangle that promises most, looking one cross cut ahead.

    A single cut of a table whose row and column means are zero gains nothing, so what a cut of each half across it
    would gain may count too: a cut promises the mean of the one, two or three cuts of which that is largest.
    """
    best = 0.0, -1, 0
    own = explained(values, weights)

    def cut_at(v, w, side, m):
        one, other = ((v[:m], w[:m]), (v[m:], w[m:])) if side == 0 else ((v[:, :m], w[:, :m]), (v[:, m:], w[:, m:]))
        return one, other

    def gain_of_cross_cut(v, w, side):
        whole, most = explained(v, w), 0.0
        for m in range(1, w.shape[side]):
            most = max(most, sum(explained(*half) for half in cut_at(v, w, side, m)) - whole - price)
        return most

    for side in (0, 1):
        for m in range(1, weights.shape[side]):
            halves = cut_at(values, weights, side, m)
            net = sum(explained(*half) for half in halves) - own - price
            more = sorted(gain_of_cross_cut(*half, 1 - side) for half in halves)
            net = max(net, (net + more[1]) / 2, (net + more[0] + more[1]) / 3)
            if net > best[0] + least:
                best = net, side, m
    return best


def cut_greedily(values, weights, limit, price, parts):
    """The rectangles of a grid, at most `limit`: the parts that are given, cut where that promises most, best first."""
    least = LEAST_GAIN * explained(np.abs(values), weights)
    leaves = [(part, best_cut(values[part], weights[part], price, least)) for part in parts]
    while len(leaves) < limit:
        k = 0
        for other in range(1, len(leaves)):
            k = other if leaves[other][1][0] > leaves[k][1][0] + least else k
        part, (net, side, m) = leaves[k]
        if not net > 0:
            break
        bounds = [[part[0].start, part[0].stop], [part[1].start, part[1].stop]]
        middle = bounds[side][0] + m
        halves = []
        for own in ([bounds[side][0], middle], [middle, bounds[side][1]]):
            sides = [slice(*bounds[0]), slice(*bounds[1])]
            sides[side] = slice(*own)
            halves.append((tuple(sides), best_cut(values[tuple(sides)], weights[tuple(sides)], price, least)))
        leaves[k] = halves[0]
        leaves.append(halves[1])
    return [part for part, _ in leaves]


def cut_grids(
    offsets,  # IN  (n_grids + 1,) int64: where the cells of each grid begin, row by row
    sides,  # IN  (n_grids, 4 or more) int64: bins along both sides, whether each has one more, of missing values
    values,  # IN  (offsets[-1], n_outputs): by cell
    weights,  # IN  (offsets[-1],): at least 0
    limits,  # IN  (n_grids,) int64: the most rectangles
    prices,  # IN  (n_grids,): of a cut, at least 0
    most_exact,  # IN  int: grids of at most this many ordered bins a side are cut exactly
    labels_out,  # OUT (offsets[-1],) int32: the rectangle of each cell, of the grids first <= t < last
    first,
    last,
):
    """The best rectangles of each small grid; of others good ones, best first, looking one cross cut ahead.

    The ordered bins, the row and the column of missing values and the cell that these share are cut apart first, even
    if the limit is less.
    """
    for t in range(first, last):
        n_a, n_b, more_a, more_b = sides[t, :4].tolist()
        cells, shape = slice(offsets[t], offsets[t + 1]), (n_a + more_a, n_b + more_b)
        parts = [(rows, columns) for rows, columns, _ in parts_of((*sides[t, :4].tolist(), 0, 0))]
        grid = values[cells].reshape(*shape, -1), weights[cells].reshape(shape)
        if max(n_a, n_b) <= most_exact:
            bounds = [(rows.start, rows.stop, columns.start, columns.stop) for rows, columns in parts]
            found = best_rectangles(*grid, limits[t], prices[t], bounds)[1]
            rectangles = [(slice(a, b), slice(c, d)) for a, b, c, d in found]
        else:
            rectangles = cut_greedily(*grid, limits[t], prices[t], parts)
        labels = np.empty(shape, dtype=np.int32)
        for k, rectangle in enumerate(rectangles):
            labels[rectangle] = k
        labels_out[cells] = labels.ravel()
