"""The search for pieces in one proximal step.

A table that cannot win is never searched: the norm of a projection is at most the norm of what is projected, so tables
are taken in the order of that bound until the s_G-th best result beats the next bound. Tables of which only bounds are
known (`Unread`) take their place in the same order, and are computed when their turn comes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np

from rbr._backend import kernels
from rbr._parallel import over_ranges
from rbr._ragged import bins_of
from rbr._sizes import NO_PIECE
from rbr.constraints.grids import cut_into_rectangles, smooth

if TYPE_CHECKING:
    from rbr.constraints.bound import BoundConstraints

# Pairs of bins that one call of a search compares: some tenths of a second of work, so that Ctrl-C is noticed.
MAX_PAIRS_PER_CALL = 10_000_000

# Tables that no iterate uses are first searched at this fraction of the price: few would enter even then, and that net
# bounds the net at the full price after the gradient has changed (rbr.solvers.screening). At 0.8 a change may be nearly
# three times as large as at 1 before a table of noise in 255 bins must be read again, and the search takes no longer.
SCREENING_PRICE_FACTOR = 0.8

# How many tables are read the first time; tables read together share the work of going over the rows.
FIRST_READ = 8

# If the tables to centre form more than this many runs of neighbours, all tables are centred instead.
MAX_RUNS = 64

# A computed gain may exceed the computed norm by rounding; bounds are raised by this much so that skipping stays exact.
_BOUND_MARGIN = 1e-9


@dataclass(frozen=True)
class Prox:
    """What a proximal step found.

    f : the stacked tables; support : ascending indices of the non-zero ones; labels : one int32 per bin,
    2 * piece + is_line (-1 outside); codes : code length of each table; n_searched : how many tables were
    searched for pieces; nets : what each of those gains before its entry cost, up to a factor; 0 for the others.
    """

    f: np.ndarray
    support: np.ndarray
    labels: np.ndarray
    codes: np.ndarray
    n_searched: int
    nets: np.ndarray


@dataclass(eq=False)
class Unread:
    """Tables that a proximal step computes only if they may win.

    mask : bool per feature, which tables of f are not known yet
    is_free : bool per feature, which tables may be judged by bounds: those that no iterate uses
    norms : (n_stacks, n_features) upper bounds on ||P_zm u_j||_w, u = f / (1 + step * alpha)
    nets : (n_stacks, n_features) upper bounds on the net of u_j before its entry is paid; infinite where none is known
    tables_with : a function that returns f with the tables of the given features computed too

    After the step `found_norms` holds the norms of all tables that were known, `found_nets` the nets of those that were
    `searched` for pieces; for free ones these are nets at SCREENING_PRICE_FACTOR times the price.
    """

    mask: np.ndarray
    is_free: np.ndarray
    norms: np.ndarray
    nets: np.ndarray
    tables_with: Callable[[np.ndarray], np.ndarray]
    found_norms: np.ndarray = field(init=False)
    found_nets: np.ndarray = field(init=False)
    searched: np.ndarray = field(init=False)


class Search:
    """The tables of a scaled proximal step, centred, and what a search for pieces has found in some of them.

    price : of a unit of code length; entry : of each table; step : by which surfaces are smoothed
    """

    def __init__(self, bound: BoundConstraints, stacks: np.ndarray, price: float, entry: np.ndarray, **run):
        self.bound, self.stacks, self.price, self.entry = bound, stacks, price, entry
        self.step, self.n_threads, self.reader = run["step"], run["n_threads"], run["reader"]
        shape = len(stacks), bound.n_features
        self.centred, self.squared_norms = np.empty_like(stacks), np.empty(shape)
        # Zeroed memory that is never written costs nothing, and of a million tables few are written.
        self.out, self.labels = np.zeros(stacks.shape), np.full(stacks.shape, NO_PIECE, dtype=np.int32)
        self.nets, self.codes = np.zeros(shape), np.zeros(shape)
        self.center()

    def center(self, tables: np.ndarray | None = None) -> None:
        """P_zm and the norms, of all tables or of some."""
        bound, n_features = self.bound, self.bound.n_features
        for c in range(len(self.stacks)):
            args = self.stacks[c], bound.offsets, bound.weights, self.centred[c], self.squared_norms[c]
            for first, last in [(0, n_features)] if tables is None else _runs(tables, n_features):
                if last - first == n_features:
                    over_ranges(kernels().center_tables, n_features, self.n_threads, *args)
                else:
                    kernels().center_tables(*args, first, last)

    def pieces(self, tables: np.ndarray) -> None:
        """Find the pieces of some tables."""
        reader = self.reader
        if reader is None or self.price == 0:
            self._pieces_at(self.price, tables)
            return
        # A table that would not enter even at a lower price needs no second search, and its net bounds later ones.
        # Both need an exact search.
        is_free = reader.is_free[tables] & self.bound.has_exact_search[tables]
        free = tables[is_free]
        self._pieces_at(SCREENING_PRICE_FACTOR * self.price, free)
        reader.keep_nets(self.nets, free)
        at_most = (self.nets[:, free] + _BOUND_MARGIN * self.squared_norms[:, free]).sum(axis=0)
        is_out = (at_most < self.entry[free]) & ~self.bound.forced[free]
        self.nets[:, free[is_out]] = 0.0
        self._pieces_at(self.price, np.concatenate([tables[~is_free], free[~is_out]]))

    def _pieces_at(self, price: float, tables: np.ndarray) -> None:
        """Search at a price: native shapes by their kernels, others by their own search functions."""
        by_kernel = {
            "prox_tables": self._search_by_kernel,
            "cut_grids": self._cut_grids,
            "smooth_grids": self._smooth_grids,
        }
        for search, numbers in self.bound.searches.items():
            own = tables if len(self.bound.searches) == 1 else tables[np.isin(self.bound.shapes[tables], numbers)]
            if isinstance(search, str):
                by_kernel[search](price, own)
            else:
                for j in own.tolist():
                    for c in range(len(self.stacks)):
                        self._search_in_python(j, c, price)

    def _grids(self, tables: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(bins of some grids in f, where each begins among them, their sides)."""
        bins = bins_of(tables, self.bound.offsets)
        offsets = np.concatenate([[0], np.cumsum(self.bound.n_bins[tables])]).astype(np.int64)
        return bins, offsets, np.ascontiguousarray(cast(np.ndarray, self.bound.grids)[tables])

    def _cut_grids(self, price: float, tables: np.ndarray) -> None:
        """Rectangles: the best ones of small grids, good ones of others."""
        if not len(tables):
            return
        bound, (bins, offsets, grids) = self.bound, self._grids(tables)
        of_cut = price * np.log(np.maximum(grids[:, 0] + grids[:, 1] - 2, 1))
        for c in range(len(self.stacks)):
            values, weights = self.centred[c, bins][:, None], bound.weights[bins]
            args = offsets, grids, values, weights, bound.limits[tables], of_cut
            means, labels = cut_into_rectangles(*args, greedy=bound.greedy, n_threads=self.n_threads)
            last = np.maximum.reduceat(labels, offsets[:-1])
            codes = [bound.spec(j).code_length(n + 1, 0, bound.grid(j)) for j, n in zip(tables, last, strict=True)]
            self._keep_grids(c, tables, bins, offsets, means[:, 0], 2 * labels, np.array(codes), price)

    def _smooth_grids(self, price: float, tables: np.ndarray) -> None:
        """Surfaces: what is gained is not half the squared norm, since the penalty on roughness is paid too."""
        if not len(tables):
            return
        bound, (bins, offsets, grids) = self.bound, self._grids(tables)
        strengths = self.step * bound.smoothness / bound.n_bins[tables]
        codes = bound.cheapest_codes[tables]
        within = np.arange(len(bins)) - np.repeat(offsets[:-1], np.diff(offsets))
        for c in range(len(self.stacks)):
            u, weights = self.centred[c, bins], bound.weights[bins]
            out = smooth(offsets, grids, u, weights, strengths, self.n_threads)
            labels = (2 * within).astype(np.int32)
            self._keep_grids(c, tables, bins, offsets, out, labels, codes, price, gains=weights * u * out)

    def _keep_grids(self, c, tables, bins, offsets, values, labels, codes, price, gains=None) -> None:
        """Store tables of grids that gain more than they cost; `gains` are twice what each cell gains, if not w f^2."""
        weights = self.bound.weights[bins]
        gains = weights * values**2 if gains is None else gains
        nets = np.add.reduceat(gains, offsets[:-1]) / 2 - price * codes
        # A constant table of mean zero is zero, though rounding may leave a small net.
        above, below = (np.where(weights > 0, values, end) for end in (-np.inf, np.inf))
        is_flat = np.maximum.reduceat(above, offsets[:-1]) <= np.minimum.reduceat(below, offsets[:-1])
        is_kept = (nets > 0) & ~is_flat
        of_bin = np.repeat(is_kept, np.diff(offsets))
        self.out[c, bins] = np.where(of_bin, values, 0.0)
        self.labels[c, bins] = np.where(of_bin, labels, NO_PIECE)
        self.nets[c, tables], self.codes[c, tables] = np.where(is_kept, nets, 0.0), np.where(is_kept, codes, 0.0)

    def _search_in_python(self, j: int, c: int, price: float) -> None:
        """Search one table by the function of its shape; a missing bin keeps its value, as a separate piece."""
        bound = self.bound
        table = slice(bound.offsets[j], bound.offsets[j + 1])
        ordered = slice(table.start, table.start + bound.n_ordered[j])
        out, labels = self.out[c, table], self.labels[c, table]
        u, w = self.centred[c, ordered], bound.weights[ordered]
        x = bound.grid(j) if bound.spec(j).on_grid else bound.positions[ordered]
        n = len(u)
        search = cast(Callable, bound.spec(j).search)  # a str only for native shapes
        out[:n], labels[:n], code = search(u, w, x, int(bound.limits[j]), price)
        if bound.missing[j]:
            out[n], labels[n] = self.centred[c, table.stop - 1], 2 * (labels[:n].max() // 2 + 1)
            code += 1.0
        net = float(bound.weights[table] @ out**2) / 2 - price * code
        if not net > 0 or np.ptp(out[bound.weights[table] > 0]) == 0:
            out[:], labels[:], net, code = 0.0, -1, 0.0, 0.0
        self.nets[c, j], self.codes[c, j] = net, code

    def _search_by_kernel(self, price: float, tables: np.ndarray) -> None:
        """Tables of one column."""
        bound = self.bound
        per_call = int(max(1, MAX_PAIRS_PER_CALL // max(bound.n_bins.max(initial=1), 1) ** 2))
        level_code_values, level_code_offsets = bound.level_codes
        for c in range(len(self.stacks)):
            over_ranges(
                kernels().prox_tables, len(tables), self.n_threads,
                tables, self.centred[c], bound.offsets, bound.weights, bound.positions, bound.missing.view(np.uint8),
                bound.shapes, bound.limits, bound.shares, bound.least_shares, price,
                level_code_values, level_code_offsets, bound.greedy,
                self.out[c], self.labels[c], self.nets[c], self.codes[c], per_call=per_call,
            )  # fmt: skip

    def ranks(self, tables: np.ndarray) -> np.ndarray:
        """The net of each table less its entry cost; infinite for an always-included table that is not flat."""
        totals = self.nets[:, tables].sum(axis=0)
        return np.where(self.bound.forced[tables], np.where(totals > 0, np.inf, 0.0), totals - self.entry[tables])

    def bounds(self) -> np.ndarray:
        """Upper bounds on the ranks of all tables, read or not."""
        bounds = self.bounds_of(self.squared_norms)
        if self.reader is not None:
            mask = self.reader.mask
            bounds[mask] = self.bounds_of(*self.reader.bounds())[mask]
        return bounds

    def bounds_of(self, squared_norms: np.ndarray, nets: np.ndarray | float = np.inf) -> np.ndarray:
        """Upper bounds on the ranks, from bounds on the norms and nets."""
        bound = self.bound
        per_stack = squared_norms * ((1 + _BOUND_MARGIN) / 2) - self.price * bound.cheapest_codes
        bounds = np.maximum(np.minimum(per_stack, nets), 0.0).sum(axis=0)
        bounds = np.where(bound.forced, np.where(bounds > 0, np.inf, 0.0), bounds - self.entry)
        bounds[bound.excluded] = -np.inf
        return bounds

    def keep(self, winners: np.ndarray, searched: np.ndarray) -> Prox:
        """The result, in which only the winners are non-zero."""
        losers = np.setdiff1d(searched, winners)  # tables that were not searched were never written
        lost_bins = bins_of(losers, self.bound.offsets)
        self.out[:, lost_bins], self.labels[:, lost_bins], self.codes[:, losers] = 0.0, -1, 0.0
        return Prox(self.out, winners, self.labels, self.codes, len(searched), self.nets.sum(axis=0))


class Reader:
    """`Unread` in the units of a scaled step."""

    def __init__(self, unread: Unread, scaled: np.ndarray, shrink: float, unit: float):
        self._unread, self._scaled = unread, scaled
        self._shrink, self._unit = shrink, unit
        self.mask, self.is_free = unread.mask.copy(), unread.is_free
        self._nets: np.ndarray | None = None

    def keep_nets(self, nets: np.ndarray, tables: np.ndarray) -> None:
        """Store the nets of some tables at the cautious price."""
        self._nets = np.zeros_like(nets) if self._nets is None else self._nets
        self._nets[:, tables] = nets[:, tables]

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Upper bounds on (squared norms, nets), scaled."""
        return (self._unread.norms / self._unit) ** 2, self._unread.nets / self._unit / self._unit

    def read(self, tables: np.ndarray, offsets: np.ndarray) -> None:
        """Compute some tables and write them into the scaled stacks."""
        f, bins = self._unread.tables_with(tables), bins_of(tables, offsets)
        self._scaled[:, bins] = np.atleast_2d(f.T)[:, bins] * (self._shrink / self._unit)
        self.mask[tables] = False

    def report(self, squared_norms: np.ndarray, nets: np.ndarray, searched: np.ndarray) -> None:
        self._unread.found_norms = np.sqrt(squared_norms) * self._unit
        self._unread.found_nets = (nets if self._nets is None else self._nets) * self._unit * self._unit
        self._unread.searched = searched


def _runs(tables: np.ndarray, n_features: int) -> list[tuple[int, int]]:
    """Ranges that cover some tables: runs of neighbours, or all tables if there are many runs."""
    tables = np.sort(tables)
    cuts = np.flatnonzero(np.diff(tables) > 1) + 1
    if len(cuts) >= MAX_RUNS:
        return [(0, n_features)]
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(tables, cuts)]


def largest_positive(totals: np.ndarray, tables: np.ndarray, max_features: int | None) -> np.ndarray:
    """Indices of the largest positive totals; ties go to the lower table index."""
    positive = np.flatnonzero(totals > 0)
    if max_features is None or len(positive) <= max_features:
        return positive
    return positive[np.lexsort((tables[positive], -totals[positive]))[:max_features]]
