"""P_zm, P_L, P_G and P_C, and the proximal step, which is P_C when there is no jump cost.

A table u (one number per bin) lives in the geometry of its weights w, <u, v>_w = sum_k w_k u_k v_k.
`prox_table` finds, among the tables g that the shape and the limit allow, the one that maximises

    net(g) = ||g||_w^2 / 2 - price * code(g)

over the projections g of u onto the subspaces that sets of pieces span. For a projection ||u - g||^2 is
||u||^2 - ||g||^2, so price = 0 gives the nearest table, P_L(u). Code lengths are in the units of the paper's
Gaussian complexity (appendix D: s_L log b + log p).

A set of pieces is written as one label per bin, 2 * piece + (1 if the piece is a line): see `prox_table`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from rbr.reference.rectangles import cut_grids
from rbr.reference.surfaces import parts_of, roughness_matrix, smooth_grids

# The kernel of tables of one column takes a shape as its index here.
SHAPES = ("constant", "linear", "mixed", "increasing", "decreasing", "levels", "frequency", "free")

# The shapes of grids of two columns.
GRID_SHAPES = ("rectangles", "surface")

# Grids of at most this many bins a side are cut exactly.
MOST_EXACT = 12

NO_PIECE = -1


def project_zero_mean(table, weights):
    """P_zm (paper, appendix A): the nearest table of mean zero, for weights that sum to 1.

    argmin_u ||u - f||_w^2  subject to  <u, 1>_w = 0    =    f - <f, 1>_w
    """
    return table - weights @ table


def prox_table(table, weights, positions, has_missing, shape, limit, price, greedy=False, rows=None, least_rows=0.0):
    """P_L (paper, appendix A) of one centred table, or its proximal step if price > 0.

    Parameters
    ----------
    table, weights, positions : arrays of the table's bins; a missing bin, if any, is the last
    shape : a name of SHAPES
    limit : s_L,j >= 1
    price : mu * lambda * kappa >= 0, the price of one unit of code length
    rows : the share of the rows in each bin; None: the weights
    least_rows : the least share of the rows that a piece must hold, unless it is the only one

    Returns
    -------
    out : the chosen table; all zero if no table has a positive net
    labels : one int per bin. 2 * piece + is_line where the bin belongs to a piece (for `levels` a group, for
        `free` the bin itself; pieces are numbered from the left or from the lowest level), NO_PIECE elsewhere
        and everywhere in a zero table. A missing bin is a separate piece, the last. For `frequency` the kept
        coefficients have the labels 2 * index.
    net : ||out||_w^2 / 2 - price * code
    code : code length of the choice, 0 for the zero table
    """
    n_ordered = len(table) - bool(has_missing)
    out, labels = np.zeros(len(table)), np.full(len(table), NO_PIECE, dtype=np.int32)
    ordered = slice(0, n_ordered)
    own_rows = (weights if rows is None else rows)[ordered]

    def cut(costs, price_by_count, rows):
        return (greedy_cut if greedy else best_cut)(costs, price_by_count, holds_enough(rows, least_rows))

    out[ordered], labels[ordered], code = _CHOOSE[shape](
        table[ordered], weights[ordered], positions[ordered], own_rows, limit, price, cut
    )
    is_one_constant = labels.max() == 0 and not (has_missing and weights[-1] > 0)
    if has_missing:
        out[-1] = table[-1] if weights[-1] > 0 else 0.0
        labels[-1] = 2 * (labels.max() // 2 + 1)
        code += 1.0

    net = weights @ out**2 / 2 - price * code
    # A constant table of mean zero is zero, though rounding may leave a small net.
    if is_one_constant or np.ptp(out[weights > 0]) == 0 or not net > 0:
        return np.zeros(len(table)), np.full(len(table), NO_PIECE, dtype=np.int32), 0.0, 0.0
    return out, labels, net, code


# ---------------------------------------------------------------- pieces over neighbouring bins


def _choose_constant(u, w, x, rows, limit, price, cut):
    """`constant`: code (pieces - 1) log b."""
    return _choose_pieces(u, w, x, rows, limit, price, cut, piece_codes=(1.0, None))


def _choose_linear(u, w, x, rows, limit, price, cut):
    """`linear`: each piece its own line, code (2 pieces - 1) log b."""
    return _choose_pieces(u, w, x, rows, limit, price, cut, piece_codes=(None, 2.0))


def _choose_mixed(u, w, x, rows, limit, price, cut):
    """`mixed`: each piece constant or a line, whichever has the larger net; code (constants + 2 lines - 1) log b."""
    if not price:
        return _choose_linear(u, w, x, rows, limit, price, cut)
    return _choose_pieces(u, w, x, rows, limit, price, cut, piece_codes=(1.0, 2.0))


def _choose_pieces(u, w, x, rows, limit, price, cut, piece_codes):
    """The best cut of the bins of positive weight into at most `limit` pieces, which the other bins join.

    piece_codes : the code of a constant piece and of a line, in units of log b; None where not allowed
    """
    live = np.flatnonzero(w > 0)
    if len(live) == 0:
        return _no_pieces(u)
    log_b = np.log(len(u))
    costs, is_line = piece_costs(u[live], w[live], x[live], price * log_b, piece_codes)
    starts = cut(costs, np.zeros(min(limit, len(live))), rows_with_neighbours(rows, live))

    out, labels = np.empty(len(u)), np.empty(len(u), dtype=np.int32)
    code = -1.0
    for piece, (start, stop) in enumerate(zip(starts, [*starts[1:], len(live)], strict=True)):
        bins = live[start:stop]
        line = bool(is_line[start, stop - 1])
        code += piece_codes[line]
        # Bins of weight zero belong to the piece on their left, the first ones to the first piece.
        span = slice(0 if piece == 0 else bins[0], live[stop] if stop < len(live) else len(u))
        out[span] = fit_line(u[bins], w[bins], x[bins], x[span]) if line else w_mean(u[bins], w[bins])
        labels[span] = 2 * piece + line
    return out, labels, code * log_b


def rows_with_neighbours(rows, live):
    """The rows of the bins of positive weight, each with those of the bins that belong to the same piece."""
    return np.add.reduceat(rows, [0, *live[1:]])


def holds_enough(rows, least_rows):
    """allowed[s, e]: whether a piece over the bins s..e holds enough rows; one over all bins is always allowed."""
    up_to = np.cumsum([0.0, *rows])
    allowed = up_to[1:] - up_to[:-1, None] >= least_rows
    allowed[0, -1] = True
    return allowed


def _no_pieces(u):
    """The choice if no ordered bin has weight."""
    return np.zeros(len(u)), np.full(len(u), NO_PIECE, dtype=np.int32), 0.0


def w_mean(u, w):
    """The mean of u in the geometry w; the mean of equal values is exactly that value."""
    return u[0] + w @ (u - u[0]) / w.sum()


def fit_line(u, w, x, at):
    """Weighted least squares: the line mean + slope * (x - center) nearest to u, and its values at `at`.

    With fewer than two distinct positions the slope is zero; this is decided by comparing positions, not by a variance.
    Positions are measured from the first one of the piece: such differences are exact even where positions are large.
    """
    mean, center = w_mean(u, w), w @ (x - x[0]) / w.sum()
    dx = (x - x[0]) - center
    spread = w @ dx**2
    if x[0] == x[-1] or spread == 0:
        return np.full(len(at), mean)
    slope = w @ (dx * (u - mean)) / spread
    return mean + slope * ((at - x[0]) - center)


def piece_costs(u, w, x, unit, piece_codes):
    """costs[s, e]: squared distance / 2 + unit * code of a piece over the bins s..e; whether it is a line.

    The distances of the pieces add up to ||u - g||^2 = ||u||^2 - ||g||^2, so the cut of the least cost has
    the largest net; and small distances keep all their digits, while differences of gains ||g||^2 do not.
    """
    n = len(u)
    costs, is_line = np.full((n, n), np.inf), np.zeros((n, n), dtype=bool)
    constant_code, line_code = piece_codes
    for s in range(n):
        inside = np.tri(n - s) * w[s:]  # row r: the weights of the bins s..s+r
        total = inside.sum(axis=1)
        mean_u = u[s] + inside @ (u[s:] - u[s]) / total
        mean_x = inside @ (x[s:] - x[s]) / total
        dx, du = (x[s:] - x[s]) - mean_x[:, None], u[s:] - mean_u[:, None]
        spread, product = (inside * dx**2).sum(axis=1), (inside * dx * du).sum(axis=1)
        two_positions = np.cumsum(np.diff(x[s:], prepend=x[s]) != 0) > 0
        slope = np.divide(product, spread, out=np.zeros(n - s), where=two_positions & (spread > 0))
        around_line = (inside * (du - slope[:, None] * dx) ** 2).sum(axis=1)
        around_line[1:2][two_positions[1:2]] = 0.0  # a line passes through two points exactly
        candidates = [
            np.full(n - s, np.inf)
            if constant_code is None
            else (inside * du**2).sum(axis=1) / 2 + unit * constant_code,
            np.full(n - s, np.inf) if line_code is None else around_line / 2 + unit * line_code,
        ]
        costs[s, s:] = np.minimum(*candidates)
        is_line[s, s:] = candidates[1] < candidates[0]
    return costs, is_line


def best_cut(costs, price_by_count, allowed=True):
    """The starts of the allowed pieces that minimise the sum of their costs and a price by their number.

    best[k][e] is the least cost of exactly k pieces over the bins 0..e-1:
    best[k][e] = min over s of best[k-1][s] + costs[s, e-1]; ties go to the leftmost s, then to fewer pieces.
    """
    costs = np.where(allowed, costs, np.inf)
    n, n_counts = len(costs), len(price_by_count)
    best = np.full((n_counts + 1, n + 1), np.inf)
    split = np.zeros((n_counts + 1, n + 1), dtype=int)
    best[0, 0] = 0.0
    for k in range(1, n_counts + 1):
        for e in range(k, n + 1):
            candidates = best[k - 1, :e] + costs[:e, e - 1]
            split[k, e] = np.argmin(candidates)
            best[k, e] = candidates[split[k, e]]
    k = 1 + int(np.argmin(best[1:, n] + price_by_count))
    starts, e = [], n
    for count in range(k, 0, -1):
        e = int(split[count, e])
        starts.append(e)
    return starts[::-1]


def greedy_cut(costs, price_by_count, allowed=True):
    """Bottom-up merging (Keogh et al. 2001): the starts of the pieces of a good, not the best, cut.

    Starting from single bins, merge the two neighbours that are cheapest to merge (ties: the leftmost) until
    one piece is left; return the best of the cuts on the way that have at most len(price_by_count) pieces. As long as
    there are pieces that are not allowed, only pairs with one of those are merged, and no cut is returned.
    """
    n = len(costs)
    allowed = np.broadcast_to(allowed, costs.shape)
    starts = list(range(n))
    passed = []
    while True:
        ends = [s - 1 for s in starts[1:]] + [n - 1]
        is_too_small = ~allowed[starts, ends]
        if len(starts) <= len(price_by_count) and not is_too_small.any():
            cost = sum(costs[s, e] for s, e in zip(starts, ends, strict=True)) + price_by_count[len(starts) - 1]
            passed.append((cost, list(starts)))
        if len(starts) == 1:
            break
        losses = [
            costs[starts[i], ends[i + 1]] - costs[starts[i], ends[i]] - costs[starts[i + 1], ends[i + 1]]
            for i in range(len(starts) - 1)
        ]
        if is_too_small.any():
            losses = np.where(is_too_small[:-1] | is_too_small[1:], losses, np.inf)
        del starts[int(np.argmin(losses)) + 1]
    return min(reversed(passed), key=lambda cost_and_starts: cost_and_starts[0])[1]


# ---------------------------------------------------------------- monotone tables and levels


def _choose_increasing(u, w, x, rows, limit, price, cut):
    """`increasing`: isotonic regression, then the best cut of it; code (pieces - 1) log b.

    For g constant on unions of isotonic blocks <u - iso, iso - g>_w = 0, and means over pieces of an
    increasing table increase automatically; so cutting the isotonic fit is exact, also with a price.

    With a least number of rows it is not exact: pieces may have to begin within a block. Then the means of u over
    them, unlike those of the isotonic fit, may fall, and such pieces are joined; first, so that rounding decides
    nothing, those that cut a block without need.
    """
    live = np.flatnonzero(w > 0)
    if len(live) == 0:
        return _no_pieces(u)
    u_live, w_live, log_b = u[live], w[live], np.log(len(u))
    fit = isotonic(u_live, w_live)
    costs, _ = piece_costs(fit, w_live, np.arange(float(len(live))), price * log_b, (1.0, None))
    starts = cut(costs, np.zeros(min(limit, len(live))), rows_with_neighbours(rows, live))
    _, starts = joined_until_rising(fit, w_live, starts)
    means, starts = joined_until_rising(u_live, w_live, starts)
    first_bins = live[starts]
    first_bins[0] = 0  # bins of weight zero belong to the piece on their left, the first ones to the first piece
    piece = np.searchsorted(first_bins, np.arange(len(u)), side="right") - 1
    return means[piece], (2 * piece).astype(np.int32), (len(means) - 1) * log_b


def joined_until_rising(u, w, starts):
    """The means and starts of pieces, of which neighbours are joined until the means rise."""
    pieces = list(zip(np.split(u, starts[1:]), np.split(w, starts[1:]), strict=True))
    means, _, n_joined = isotonic_blocks([w_mean(v, z) for v, z in pieces], [z.sum() for _, z in pieces])
    return means, np.array(starts)[np.cumsum([0, *n_joined[:-1]])]


def _choose_decreasing(u, w, x, rows, limit, price, cut):
    """`decreasing`: minus the increasing table nearest to -u."""
    values, labels, code = _choose_increasing(-u, w, x, rows, limit, price, cut)
    return -values, labels, code


def isotonic_blocks(u, w):
    """Pool adjacent violators: means, weights and n_bins of the pieces of the nearest increasing table."""
    blocks = []  # (mean, weight, n_bins)
    for value, weight in zip(u, w, strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            (m1, w1, n1), (m2, w2, n2) = blocks[-2:]
            blocks[-2:] = [(m1 + w2 * (m2 - m1) / (w1 + w2), w1 + w2, n1 + n2)]
    return tuple(np.array(column) for column in zip(*blocks, strict=True))


def isotonic(u, w):
    """The increasing table nearest to u, for positive weights."""
    means, _, n_bins = isotonic_blocks(u, w)
    return np.repeat(means, n_bins)


def _choose_levels(u, w, x, rows, limit, price, cut):
    """`levels`: at most `limit` distinct values in any order; code: see `level_codes`.

    The best groups are runs of the bins sorted by value, so the search is the one for constant pieces. With a least
    number of rows in a group that is not so; then the best runs are a good choice, not the best one.
    """
    live = np.flatnonzero(w > 0)
    if len(live) == 0:
        return _no_pieces(u)
    order = live[np.argsort(u[live], kind="stable")]
    costs, _ = piece_costs(u[order], w[order], np.arange(float(len(order))), 0.0, (1.0, None))
    codes = level_codes(len(u), int(min(limit, len(live))))
    starts = cut(costs, price * codes, rows[order])
    out, labels, levels = np.empty(len(u)), np.empty(len(u), dtype=np.int32), []
    for level, bins in enumerate(np.split(order, starts[1:])):
        levels.append(w_mean(u[bins], w[bins]))
        out[bins], labels[bins] = levels[-1], 2 * level
    nearest_zero = int(np.argmin(np.abs(levels)))
    out[w == 0], labels[w == 0] = levels[nearest_zero], 2 * nearest_zero
    return out, labels, codes[len(levels) - 1]


@cache
def level_codes(n_bins, limit):
    """max over k' <= k of log S(b, k'), plus (k - 1) (1 + log b), for k = 1..limit.

    S(b, k) = k S(b-1, k) + S(b-1, k-1), the Stirling number of the second kind, counts the groupings of b bins into k
    groups. It falls again towards k = b; the maximum makes the code increase with k.
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


# ---------------------------------------------------------------- frequency and free


def _choose_frequency(u, w, x, rows, limit, price, cut):
    """`frequency`: at most `limit` non-constant DCT-II coefficients; code k log b. The weights are equal."""
    if len(u) == 0:
        return _no_pieces(u)
    from scipy.fft import dct, idct  # which imports much of SciPy

    log_b = np.log(len(u))
    coefficients = dct(u, norm="ortho")
    coefficients[np.abs(coefficients) <= 1e-14 * np.abs(coefficients).max()] = 0.0  # rounding of the transform
    order = 1 + np.argsort(-np.abs(coefficients[1:]), kind="stable")
    # With equal weights the gain of a coefficient c is w c^2, whatever the others are.
    has_gain = w[0] * coefficients[order] ** 2 / 2 > price * log_b
    kept = order[:limit][has_gain[:limit]]
    labels = np.full(len(u), NO_PIECE, dtype=np.int32)
    labels[[0, *kept]] = 2 * np.array([0, *kept])
    return idct(np.where(labels >= 0, coefficients, 0.0), norm="ortho"), labels, len(kept) * log_b


def _choose_free(u, w, x, rows, limit, price, cut):
    """`free`: the table itself, zero in bins of weight zero; code b - 1."""
    labels = np.where(w > 0, 2 * np.arange(len(u)), NO_PIECE).astype(np.int32)
    return np.where(w > 0, u, 0.0), labels, max(len(u) - 1.0, 0.0)


_CHOOSE = dict(
    zip(
        SHAPES,
        (
            _choose_constant,
            _choose_linear,
            _choose_mixed,
            _choose_increasing,
            _choose_decreasing,
            _choose_levels,
            _choose_frequency,
            _choose_free,
        ),
        strict=True,
    )
)


# ---------------------------------------------------------------- grids of two columns


def prox_grid(table, weights, sides, shape, limit, price, greedy=False, strength=0.0, smoothness=0.0):
    """`prox_table` of a centred grid, whose cells of missing values are parts of it.

    sides : bins along both sides, whether each has one more, of missing values, and whether its bins are levels
    limit : of rectangles, those of missing values too
    strength : mu * smoothness, for a surface: the penalty at the step mu
    smoothness : the same at a step of 1, by which the code is counted
    """
    n_a, n_b, more_a, more_b, *_ = sides
    zero = np.zeros(len(table)), np.full(len(table), NO_PIECE, dtype=np.int32), 0.0, 0.0
    offsets, grids = np.array([0, len(table)]), np.array([sides])
    n_parts = (1 + more_a) * (1 + more_b)
    if shape == "surface":
        out = np.zeros(len(table))
        smooth_grids(offsets, grids, table, weights, np.array([strength / len(table)]), out, 0, 1)
        labels, gain, code = 2 * np.arange(len(table)), weights @ (table * out), surface_code(sides, smoothness)
    else:
        log_places = np.log(max(n_a + n_b - 2, 1))
        most_exact = 0 if greedy else MOST_EXACT
        labels = np.zeros(len(table), dtype=np.int32)
        run = np.array([limit]), np.array([price * log_places]), most_exact, labels
        cut_grids(offsets, grids, table[:, None], weights, *run, 0, 1)
        out = np.zeros(len(table))
        for k in np.unique(labels):
            inside = labels == k
            if weights[inside].any():
                out[inside] = w_mean(table[inside], weights[inside])
        gain, code = weights @ out**2, (labels.max() + 1 - n_parts) * log_places + n_parts - 1
        labels = 2 * labels
    net = gain / 2 - price * code
    if np.ptp(out[weights > 0]) == 0 or not net > 0:
        return zero
    return out, labels.astype(np.int32), net, code


def surface_code(sides, smoothness):
    """The trace of the smoother if all cells held as many rows, less 1: sum over the parts of tr (I + s K)^-1."""
    values = 0.0
    for rows, columns, has_levels in parts_of(sides):
        K = roughness_matrix(rows.stop - rows.start, columns.stop - columns.start, has_levels)
        values += np.trace(np.linalg.inv(np.eye(len(K)) + smoothness * K))
    return values - 1


def roughness(table, sides):
    """g' K g of all parts of a grid, per cell."""
    grid = table.reshape(sides[0] + sides[2], sides[1] + sides[3])
    total = 0.0
    for rows, columns, has_levels in parts_of(sides):
        part = grid[rows, columns]
        total += part.ravel() @ roughness_matrix(*part.shape, has_levels) @ part.ravel()
    return total / grid.size


# ---------------------------------------------------------------- all tables


@dataclass(frozen=True)
class ConstraintSet:
    """C (paper, (3.1)): tables of mean zero, each in its L_j, of which at most s_G are not zero.

    offsets : where each table begins among the stacked ones
    weights, positions : of every bin, the geometry and the axis on which lines are drawn
    missing : whether the last bin of a table is the one of the missing values
    shapes, limits : L_j and s_L,j of each table
    max_features : s_G; None for no limit
    greedy : whether pieces are found by bottom-up merging
    rows : the share of the rows in every bin; None: the weights
    least_rows : the least share of the rows in a piece of each table; None: no minimum
    exclude : features whose tables are zero
    always_include : features that P_G keeps before all others, unless their tables are zero, and without an entry price
    grids : the sides of each table that is a grid of two columns, None for others
    max_pairs : the most of those that are not zero, apart from s_G; None for no limit
    smoothness : the penalty of a surface is smoothness / 2 times its roughness
    """

    offsets: np.ndarray
    weights: np.ndarray
    positions: np.ndarray
    missing: Sequence[bool]
    shapes: Sequence[str]
    limits: Sequence[int]
    max_features: int | None = None
    greedy: bool = False
    rows: np.ndarray | None = None
    least_rows: Sequence[float] | None = None
    exclude: Sequence[int] = ()
    always_include: Sequence[int] = ()
    grids: Sequence[Sequence[int] | None] | None = None
    max_pairs: int | None = None
    smoothness: float = 0.0

    @property
    def is_pair(self):
        """Which tables are grids of two columns."""
        grids = [None] * len(self.tables) if self.grids is None else self.grids
        return np.array([sides is not None for sides in grids], dtype=bool)

    @property
    def tables(self):
        """The bins of each table."""
        return [slice(first, last) for first, last in zip(self.offsets[:-1], self.offsets[1:], strict=True)]


def project(f, C):
    """P_C = P_G o P_L o P_zm (paper, appendix A, Theorem A.1): the nearest tables in C."""
    return prox(f, C, price=0.0, entry_price=0.0)[0]


def prox(f, C, price, entry_price, step=0.0):
    """The proximal step on stacked tables: P_zm, then P_L or its priced form per table, then P_G.

    argmin over g in C of  ||f - g||_w^2 / 2 + sum over tables g_j != 0 of (price * code_j + entry_price)

    With classes a feature has one table for each. Every table has its own pieces, limit and code, but the tables of a
    feature enter together, with the sum of their nets and for one entry price.

    Parameters
    ----------
    f : array of shape (n_coef,) or (n_coef, n_classes)
    C : ConstraintSet
    price : mu * lambda * kappa
    entry_price : mu * lambda * 2 log(1 + p), p the number of tables of the same kind; one number or one for each table.
        Both prices are 0 without a jump cost.
    step : mu, by which surfaces are smoothed

    Returns
    -------
    out : the chosen tables, in the shape of f
    codes : code length of each feature, 0 where its tables are zero
    """
    by_class = f.reshape(len(f), -1)
    tables = C.tables
    rows = C.weights if C.rows is None else C.rows
    least_rows = np.zeros(len(tables)) if C.least_rows is None else C.least_rows
    out, nets, codes = np.zeros(by_class.shape), np.zeros(len(tables)), np.zeros(len(tables))
    for j, table in enumerate(tables):
        w = C.weights[table]
        shape = C.shapes[j], C.limits[j], price, C.greedy
        for k, u in enumerate(by_class[table].T):
            centred = project_zero_mean(u, w)
            if C.shapes[j] in GRID_SHAPES:
                found = prox_grid(centred, w, C.grids[j], *shape, step * C.smoothness, C.smoothness)
            else:
                own_rows = rows[table], least_rows[j]
                found = prox_table(centred, w, C.positions[table], C.missing[j], *shape, *own_rows)
            out[table, k], _, net, code = found
            nets[j] += net
            codes[j] += code
    paid = ranks(nets, C, entry_price)
    kept = np.concatenate(
        [
            keep_largest(np.where(C.is_pair, -np.inf, paid), C.max_features),
            keep_largest(np.where(C.is_pair, paid, -np.inf), C.max_pairs),
        ]
    )
    for j in set(range(len(nets))) - set(kept.tolist()):
        out[tables[j]], codes[j] = 0.0, 0.0
    return out.reshape(f.shape), codes


def ranks(nets, C, entry_price):
    """What P_G compares: nets less the entry price; inf for tables that come first, -inf for excluded ones."""
    paid = nets - entry_price
    for j in C.always_include:
        paid[j] = np.inf if nets[j] > 0 else 0.0
    for j in C.exclude:
        paid[j] = -np.inf
    return paid


def keep_largest(nets, max_features):
    """P_G (paper, appendix A): the tables with the largest positive net, ties to the lower index."""
    order = np.argsort(-nets, kind="stable")
    kept = order[nets[order] > 0]
    return np.sort(kept if max_features is None else kept[:max_features])
