"""Averages over all ways to halve a grid into rectangles: the definition of the kernel `average_grids`.

The bins of a pair of columns are the cells of a grid. Cell (x, y) has a value with a precision W_xy, and S_xy is W_xy
times the value, as in `rbr.reference.averages`. A way to cut the grid is a tree: a rectangle is either left whole, or
cut in one of these ways, with equal probability: halved along a side of two bins or more; or, along a side that is all
of the levels of a category, three or more, cut into each of them at once, since their order says little. Then its parts
are cut in ways of their own. Prior: a rectangle of more than one cell is cut with probability h. One that is left whole
is a plane with probability q if one of its sides has three bins or more, a twisted plane with probability r if both
have, and otherwise constant; without a twist r is added to q. A constant has the prior N(0, 1 / c), and beside it each
slope of a plane, in units of the spread of the bins' numbers along that side, N(0, 1 / (3 c)). So has the twist, the
product of both numbers, each less its mean, less its own mean: what is left of a pair beside its mains is often such a
product.

Halving always in the middle leaves (2 n_a - 1) (2 n_b - 1) rectangles, so the sum over all trees is a recursion with
one step for each of them: from the cells up for the evidence Z, as in the context trees of Willems, Shtarkov and
Tjalkens (1995),

    Z(R) = (1 - h) E(R) + h / 2 (Z(left) Z(right) + Z(lower) Z(upper))

with two ways to cut, E the evidence of a whole rectangle; and from the whole grid down for the probability that R is
part of a tree. A cut at another place than a middle is told in smaller rectangles, at most two more for each further
halving.

Sharp edges are told in fewer rectangles if each side has cut places of its own (`cut_places`): an interval of its bins
is cut where that explains most, summed over a few blocks of the other side, instead of in the middle. The places are
chosen by the same sums, which the evidence does not pay for. So this is for rows that cannot lie far out: one that does
would choose the places around it.

A row or column of missing values lies outside the cuts: each of the two, and the cell that they share, is a grid of its
own.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

LEAST_PLANE = 3
# A smaller part of the mean square of the bins' numbers, or of their product, is no variance: where nearly all weight
# is in one bin, rounding errors of the sums would be told as slopes and twists.
LEAST_SPREAD = 1e-5
# Another place than the middle must explain more by this part of what the bins could: less is a rounding error.
LEAST_GAIN = 1e-10


def whole_rectangle(sums, weights, prior, plane_share, twist_share):
    """The kinds that a rectangle can have: (log evidence with the prior share of the kind, table, number of unknowns,
    mean of their squares in units of their priors' variances).
    """
    total, sum_ = weights.sum(), sums.sum()
    value = sum_ / (total + prior)
    evidence = 0.5 * sum_ * value - 0.5 * np.log1p(total / prior)
    square = value**2 + 1 / (total + prior)
    slopes, numbers, squares = [], [], []
    for side in (0, 1):
        bins, w = np.arange(float(weights.shape[side])), weights.sum(axis=1 - side)
        squares.append(w @ bins**2 / total)
        number = bins - w @ bins / total
        variance = w @ number**2 / total
        numbers.append(number if side else number[:, None])
        if len(bins) >= LEAST_PLANE and variance > LEAST_SPREAD * squares[side]:
            slopes.append(np.broadcast_to(numbers[side] / np.sqrt(variance), weights.shape))
    twist = numbers[0] * numbers[1]
    twist = twist - (weights * twist).sum() / total
    variance = (weights * twist**2).sum() / total
    product = np.multiply.outer(*(np.arange(float(n)) for n in weights.shape))
    square_of_product = (weights * product**2).sum() / total + squares[0] * squares[1]
    shares, designs = [1 - plane_share - twist_share, plane_share], [[], slopes]
    if twist_share and len(slopes) == 2 and variance > LEAST_SPREAD * square_of_product:
        shares.append(twist_share)
        designs.append([*slopes, twist / np.sqrt(variance)])
    else:
        shares[1] += twist_share
    if not slopes:
        shares, designs = [1.0], [[]]
    kinds = []
    for share, design in zip(shares, designs, strict=True):
        X = np.array(design).reshape(len(design), weights.size)
        precision = (X * weights.ravel()) @ X.T + 3 * prior * np.eye(len(design))
        slope = np.linalg.solve(precision, X @ sums.ravel())
        gain = 0.5 * slope @ X @ sums.ravel() - 0.5 * np.linalg.slogdet(precision / (3 * prior))[1]
        of_slopes = 3 * (slope @ slope + np.trace(np.linalg.inv(precision)))
        table = value + (slope @ X).reshape(weights.shape)
        with np.errstate(divide="ignore"):
            kinds.append((evidence + gain + np.log(share), table, 1 + len(design), square + of_slopes))
    return kinds


def cut_places(sums, weights, prior, n_blocks):
    """{(first, last): the place where bins first <= k < last of the first side are cut, if they are}.

    In the middle, or at the first place that explains more, summed over at most `n_blocks` equal parts of the other
    side; 0 blocks leave the middle.
    """
    n, n_other = sums.shape
    places = {}
    block = np.arange(n_other) * min(n_blocks, n_other) // n_other
    S, W = (
        np.array([np.bincount(block, row) for row in np.vstack([np.zeros(n_other), np.cumsum(array, axis=0)])])
        for array in (sums, weights)
    )

    def explained(first, last):
        return 0.5 * ((S[last] - S[first]) ** 2 / (W[last] - W[first] + prior)).sum()

    least = LEAST_GAIN * 0.5 * (np.bincount(block, np.abs(sums).sum(axis=0)) ** 2 / (W[-1] + prior)).sum()

    def cut(first, last):
        if last - first < 2:
            return
        best = (first + last) // 2
        most = explained(first, best) + explained(best, last)
        for m in range(first + 1, last) if n_blocks else ():
            both = explained(first, m) + explained(m, last)
            if both > most + least:
                best, most = m, both
        places[first, last] = best
        cut(first, best)
        cut(best, last)

    cut(0, n)
    return places


def average_grid(sums, weights, prior, cut_share, plane_share, twist_share, has_levels=(False, False), places=None):
    """(mean table, log evidence, mean number of rectangles, unknowns, their squares) of a grid without missing values.

    A rectangle without weight explains nothing and counts as nothing. The places are those of `cut_places` along both
    sides; None for the middles.
    """

    n_a, n_b = sums.shape
    places = places or [cut_places(np.zeros((n, 1)), np.zeros((n, 1)), prior, 0) for n in (n_a, n_b)]

    def parts(rectangle):
        """The ways to cut a rectangle, given by its first and last bins along both sides."""
        a, b, c, d = rectangle
        ways = []
        if b - a > 1:
            m = places[0][a, b]
            ways.append([(a, m, c, d), (m, b, c, d)])
        if d - c > 1:
            m = places[1][c, d]
            ways.append([(a, b, c, m), (a, b, m, d)])
        if has_levels[0] and b - a == n_a > 2:
            ways.append([(k, k + 1, c, d) for k in range(n_a)])
        if has_levels[1] and d - c == n_b > 2:
            ways.append([(a, b, k, k + 1) for k in range(n_b)])
        return ways

    @lru_cache(None)
    def kinds(rectangle):
        a, b, c, d = rectangle
        return whole_rectangle(sums[a:b, c:d], weights[a:b, c:d], prior, plane_share, twist_share)

    @lru_cache(None)
    def log_terms(rectangle):
        """The logs of the terms of Z: whole, of each kind, then halved, in each way."""
        a, b, c, d = rectangle
        if not weights[a:b, c:d].any():
            return np.zeros(1)
        ways = parts(rectangle)
        is_whole = np.log1p(-cut_share) if ways else 0.0
        whole = [is_whole + kind[0] for kind in kinds(rectangle)]
        with np.errstate(divide="ignore"):
            share = np.log(cut_share / max(len(ways), 1))
        return np.array([*whole, *(share + sum(evidence(part) for part in way) for way in ways)])

    def evidence(rectangle):
        return np.logaddexp.reduce(log_terms(rectangle))

    table, totals = np.zeros(sums.shape), np.zeros(3)
    reached = {(0, n_a, 0, n_b): 1.0}
    # Larger rectangles first, so that a rectangle is looked at when all that are halved into it have been.
    while reached:
        rectangle = max(reached, key=lambda r: (r[1] - r[0]) * (r[3] - r[2]))
        a, b, c, d = rectangle
        probability = reached.pop(rectangle)
        if not weights[a:b, c:d].any():
            continue
        shares = probability * np.exp(log_terms(rectangle) - evidence(rectangle))
        own = kinds(rectangle)
        for share, (_, values, n_unknowns, square) in zip(shares, own, strict=False):
            table[a:b, c:d] += share * values
            totals += share * np.array([1.0, n_unknowns, square])
        for share, way in zip(shares[len(own) :], parts(rectangle), strict=True):
            for part in way:
                reached[part] = reached.get(part, 0.0) + share
    return table, evidence((0, n_a, 0, n_b)), *totals


def average_grids(
    offsets,  # IN  (n_grids + 1,) int64: where the cells of each grid begin, row by row
    sides,  # IN  (n_grids, 6) int64: ordered bins along both sides, whether each has one more, of missing values, and
    # whether these bins are the levels of a category
    sums,  # IN  (offsets[-1],): of weight times value, by cell
    weights,  # IN  (offsets[-1],): precisions of the values, at least 0
    priors,  # IN  (n_grids,): the precision of the prior of a rectangle's value, positive
    cut_share,  # IN  float: the prior probability that a rectangle is halved
    plane_share,  # IN  float: the prior share of planes among rectangles that are left whole
    twist_share,  # IN  float: and of twisted planes
    n_blocks,  # IN  int: of the other side, over which a cut place is chosen; 0 for the middle
    out,  # OUT (offsets[-1],), the grids first <= t < last
    evidence_out,  # OUT (n_grids,)
    pieces_out,  # OUT (n_grids,)
    priors_out,  # OUT (n_grids,)
    first,
    last,
):
    """The mean of each grid over all ways to halve it, its log evidence, the mean number of rectangles, and the prior
    that the values and slopes of the rectangles suggest (a step of the EM algorithm; the given one without any).
    """
    for t in range(first, last):
        n_a, n_b, more_a, more_b, *levels = sides[t].tolist()
        cells = slice(offsets[t], offsets[t + 1])
        s, w = (array[cells].reshape(n_a + more_a, n_b + more_b) for array in (sums, weights))
        mean, total = np.zeros(s.shape), np.zeros(4)
        # The row and the column of missing values are cut where the other rows and columns are.
        main = s[:n_a, :n_b], w[:n_a, :n_b]
        places = [
            cut_places(*(array if side == 0 else array.T for array in main), priors[t], n_blocks) for side in (0, 1)
        ]
        for rows in (slice(0, n_a), slice(n_a, n_a + more_a)):
            for columns in (slice(0, n_b), slice(n_b, n_b + more_b)):
                if s[rows, columns].size:
                    own = levels[0] and rows.start == 0, levels[1] and columns.start == 0
                    part = average_grid(
                        *(s[rows, columns], w[rows, columns], priors[t]),
                        *(cut_share, plane_share, twist_share, own, places),
                    )
                    mean[rows, columns], total = part[0], total + np.array(part[1:])
        out[cells] = mean.ravel()
        evidence_out[t], pieces_out[t] = total[:2]
        priors_out[t] = total[2] / total[3] if total[3] > 0 else priors[t]
