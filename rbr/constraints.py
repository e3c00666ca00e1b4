"""The constraint set C and the maps onto it: P_C = P_G o P_L o P_zm, and the proximal step with a jump cost.

`Constraints` is what a user writes down: limits, shapes, prices. `bind` resolves it once for the tables of a
design (one shape, one limit, one position per bin) and a solver then calls `BoundConstraints.prox` thousands of times.
A table that cannot win is never searched: the norm of a projection is at most the norm of what is projected, so
tables are taken in the order of that bound until the s_G-th best result beats the next bound. Tables of which only
bounds are known (`Unread`) stand in the same order, and are computed when their turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from rbr._backend import kernels
from rbr.checks import check_choice, check_int, check_nonnegative, check_offsets, check_real, check_vector
from rbr.parallel import over_ranges
from rbr.ragged import bins_of
from rbr.reference.projections import SHAPES, level_codes

# kappa where nobody says otherwise; benches/solver.py shows what it selects.
DEFAULT_JUMP_COST = 0.5

DEFAULT_MAX_SEGMENTS = 32

POSITIONS = ("rank", "index", "value")
SEGMENTATIONS = ("exact", "greedy")

_CONSTANT, _LINEAR, _MIXED, _INCREASING, _DECREASING, _LEVELS, _FREQUENCY, _FREE = range(len(SHAPES))

# Pairs of bins that one call of a search compares: some tenths of a second, so that Ctrl-C is heard.
MAX_PAIRS_PER_CALL = 10_000_000

# Tables that no iterate uses are first searched at this part of the price: few would enter even then, and the net there
# bounds the net at the full price after the gradient has changed (rbr.solvers.screening). At 0.8 a change may be nearly
# three times as large as at 1 before a table of noise in 255 bins must be read again, and the search takes no longer.
CAUTIOUS = 0.8

# Columns that are read at first when some must be; a few share the work of going over the rows.
FIRST_READ = 8

# Tables in so many separate places are centred with all others in between, rather than one by one.
MAX_RUNS = 64

# A computed gain may exceed the computed norm by rounding; bounds are raised by this much so that skipping stays exact.
_BOUND_MARGIN = 1e-9


@dataclass(frozen=True)
class Constraints:
    """At most `max_features` non-zero tables, each with at most `max_segments` pieces and mean zero.

    Parameters
    ----------
    max_features : int or None
        s_G, the number of features that may be used; None for no limit.
    max_segments : int, mapping {feature index: int} or sequence
        s_L, the number of pieces (not jumps) of a table; features that a mapping leaves out get 32.
    shape : str, mapping {feature index: str} or sequence
        "constant", "linear", "mixed", "increasing", "decreasing", "levels", "frequency" or "free";
        features that a mapping leaves out are "constant".
    position : {"rank", "index", "value"}
        Where a bin stands when a line is drawn: its mid-rank, its index, or the mean of the feature in it.
    jump_cost : float
        kappa, the price of complexity; 0 is the paper.
    segmentation : {"exact", "greedy"}
        Exact search for the pieces, or bottom-up merging.
    exclude : sequence of feature indices
        Features whose tables stay zero.
    always_include : sequence of feature indices
        Features that enter before all others and without paying for it: they pay for their pieces only, so that one
        that explains nothing has a flat table.

    Examples
    --------
    >>> import numpy as np
    >>> C = Constraints(max_features=1, max_segments=2)
    >>> f = np.array([0.0, 0.2, 1.0, 1.2, 0.3, 0.0, 0.0])
    >>> C.project(f, offsets=[0, 4, 7], weights=[0.25] * 4 + [1 / 3] * 3)
    array([-0.5, -0.5,  0.5,  0.5,  0. ,  0. ,  0. ])
    """

    max_features: int | None = None
    max_segments: int | Mapping[int, int] | ArrayLike = DEFAULT_MAX_SEGMENTS
    shape: str | Mapping[int, str] | ArrayLike = "constant"
    position: str = "rank"
    jump_cost: float = 0.0
    segmentation: str = "exact"
    exclude: tuple[int, ...] = ()
    always_include: tuple[int, ...] = ()

    def __post_init__(self):
        if self.max_features is not None:
            check_int(self.max_features, "max_features", 1)
        _check_each(self.max_segments, lambda value, name: check_int(value, name, 1), "max_segments")
        _check_each(self.shape, lambda value, name: check_choice(value, name, SHAPES), "shape")
        check_choice(self.position, "position", POSITIONS)
        check_real(self.jump_cost, "jump_cost", 0.0)
        check_choice(self.segmentation, "segmentation", SEGMENTATIONS)
        if both := set(self.exclude) & set(self.always_include):
            raise ValueError(f"exclude and always_include both hold {sorted(both)[0]}; a feature can be in one of them")

    def project(
        self,
        f: ArrayLike,
        offsets: ArrayLike,
        weights: ArrayLike,
        *,
        missing: ArrayLike | None = None,
        positions: ArrayLike | None = None,
        n_threads: int = 1,
    ) -> np.ndarray:
        """P_C(f): the nearest tables, in the geometry of the weights, that satisfy the constraints.

        Parameters
        ----------
        f : array of shape (n_coef,) or (n_coef, n_classes)
            The stacked tables. With classes the tables of a feature form one group.
        offsets : array of shape (n_features + 1,)
            Where each table starts in f.
        weights : array of shape (n_coef,)
            At least 0, with sum 1 in each table.
        missing : array of bool, shape (n_features,), optional
            Whether a table's last bin holds the missing values, outside the pieces.
        positions : array of shape (n_coef,), optional
            Position of each bin, needed with ``position="value"``.
        n_threads : int
            The result does not depend on it.

        Examples
        --------
        >>> import rbr
        >>> C = rbr.Constraints(max_segments=1, shape="linear")
        >>> C.project([0.0, 3.0, 3.0], offsets=[0, 3], weights=[1 / 3] * 3)
        array([-1.5,  0. ,  1.5])
        """
        bound = self.bind(offsets, weights, missing=missing, positions=positions)
        return bound.prox(f, 1.0, 0.0, n_threads=n_threads).f

    def prox(
        self,
        f: ArrayLike,
        offsets: ArrayLike,
        weights: ArrayLike,
        step: float,
        scale: float,
        *,
        alpha: float = 0.0,
        missing: ArrayLike | None = None,
        positions: ArrayLike | None = None,
        n_threads: int = 1,
    ) -> np.ndarray:
        """The proximal step: argmin over g in C of ||f - g||_w^2 / (2 step) + cost(g) + alpha / 2 ||g||_w^2.

        A non-zero table costs scale * (jump_cost * code + 2 log n_features), where code is its code length
        (for constant pieces (pieces - 1) * log n_bins); without a jump cost it costs nothing.

        Parameters
        ----------
        f, offsets, weights, missing, positions, n_threads
            As in `project`.
        step : float
            mu > 0.
        scale : float
            lambda >= 0: the dispersion over the number of rows.
        alpha : float
            Ridge penalty.

        Examples
        --------
        >>> import rbr
        >>> C = rbr.Constraints(jump_cost=1.0)
        >>> C.prox([0.0, 0.1, 3.0, 3.1], offsets=[0, 4], weights=[0.25] * 4, step=1.0, scale=0.1)
        array([-1.5, -1.5,  1.5,  1.5])
        """
        check_real(step, "step", 0.0, strict=True)
        check_real(scale, "scale", 0.0)
        check_real(alpha, "alpha", 0.0)
        bound = self.bind(offsets, weights, missing=missing, positions=positions)
        return bound.prox(f, step, scale, alpha=alpha, n_threads=n_threads).f

    def bind(
        self,
        offsets: ArrayLike,
        weights: ArrayLike,
        *,
        missing: ArrayLike | None = None,
        positions: ArrayLike | None = None,
    ) -> BoundConstraints:
        """These constraints on given tables: one shape, limit and position for each, checked once."""
        offsets = check_offsets(offsets)
        n_features, n_coef = len(offsets) - 1, int(offsets[-1])
        weights = check_nonnegative(weights, n_coef, "weights")
        totals = np.add.reduceat(weights, offsets[:-1]) if n_features else np.zeros(0)
        if (np.abs(totals - 1) > 1e-8).any():
            j = int(np.argmax(np.abs(totals - 1)))
            raise ValueError(f"weights of table {j} sum to {totals[j]}; in each table they must sum to 1")
        missing = _check_missing(missing, n_features)
        if (np.diff(offsets) - missing < 1).any():
            j = int(np.flatnonzero(np.diff(offsets) - missing < 1)[0])
            raise ValueError(
                f"missing[{j}] is True, but table {j} has one bin; beside the missing bin it needs another"
            )
        excluded, forced = np.zeros(n_features, dtype=bool), np.zeros(n_features, dtype=bool)
        for name, mask in (("exclude", excluded), ("always_include", forced)):
            for j in getattr(self, name):
                mask[check_int(j, f"feature of {name}", 0, n_features - 1)] = True
        bound = BoundConstraints(
            max_features=self.max_features,
            excluded=excluded,
            forced=forced,
            jump_cost=float(self.jump_cost),
            greedy=self.segmentation == "greedy",
            offsets=offsets,
            weights=weights,
            missing=missing,
            shapes=_per_feature(self.shape, "constant", n_features, "shape", SHAPES.index, np.int8),
            limits=_per_feature(self.max_segments, DEFAULT_MAX_SEGMENTS, n_features, "max_segments", int, np.int64),
            positions=bin_positions(self.position, offsets, weights, missing, positions),
        )
        bound.check_frequency()
        return bound

    def bind_to(self, tables) -> BoundConstraints:
        """`bind`, to anything that has offsets, weights, missing and positions, such as a BinnedMatrix."""
        return self.bind(tables.offsets, tables.weights, missing=tables.missing, positions=tables.positions)


@dataclass(frozen=True)
class Prox:
    """What a proximal step found.

    f : the stacked tables; support : ascending indices of the non-zero ones; labels : one int32 per bin,
    2 * piece + is_line (-1 outside); codes : code length of each table; n_searched : how many tables were
    searched for pieces; nets : what each of those gains before its entry is paid, up to a factor, and 0 of others.
    """

    f: np.ndarray
    support: np.ndarray
    labels: np.ndarray
    codes: np.ndarray
    n_searched: int
    nets: np.ndarray


@dataclass(eq=False)
class Unread:
    """Tables that a proximal step gets to know only if they may win.

    mask : bool per feature, which tables of f are not known yet
    is_free : bool per feature, which tables may be judged by bounds: those that no iterate uses
    norms : (n_stacks, n_features) upper bounds on ||P_zm u_j||_w, u = f / (1 + step * alpha)
    nets : (n_stacks, n_features) upper bounds on the net of u_j before its entry is paid; infinite where none is known
    tables_with : f with the tables of some more features

    After the step `found_norms` holds the norms of all tables that were known, `found_nets` the nets of those that were
    `searched` for pieces; for free ones these are nets at CAUTIOUS times the price.
    """

    mask: np.ndarray
    is_free: np.ndarray
    norms: np.ndarray
    nets: np.ndarray
    tables_with: Callable[[np.ndarray], np.ndarray]
    found_norms: np.ndarray | None = None
    found_nets: np.ndarray | None = None
    searched: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class BoundConstraints:
    """Constraints resolved for the tables of one design; see `Constraints.bind`."""

    max_features: int | None
    jump_cost: float
    greedy: bool
    offsets: np.ndarray
    weights: np.ndarray
    missing: np.ndarray
    shapes: np.ndarray
    limits: np.ndarray
    positions: np.ndarray
    excluded: np.ndarray
    forced: np.ndarray

    @property
    def n_features(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def n_bins(self) -> np.ndarray:
        return np.diff(self.offsets)

    @cached_property
    def n_ordered(self) -> np.ndarray:
        """b_j, the bins that pieces are made of: all but the missing one."""
        return self.n_bins - self.missing

    @cached_property
    def level_codes(self) -> tuple[np.ndarray, np.ndarray]:
        """Code lengths of the `levels` tables by number of levels: flat, with offsets."""
        is_levels = self.shapes == _LEVELS
        sizes = np.where(is_levels, np.minimum(self.limits, self.n_ordered), 0)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        flat = [level_codes(int(self.n_ordered[j]), int(sizes[j])) for j in np.flatnonzero(is_levels)]
        return np.concatenate([np.zeros(0), *flat]), offsets

    @cached_property
    def cheapest_codes(self) -> np.ndarray:
        """A lower bound on the code length of a non-zero table, for each feature."""
        log_b = np.log(self.n_ordered)
        codes = np.select([self.shapes == _FREE], [self.n_ordered - 1.0], default=log_b)
        flat, offsets = self.level_codes
        for j in np.flatnonzero(self.shapes == _LEVELS):
            by_count = flat[offsets[j] : offsets[j + 1]]
            codes[j] = by_count[1:].min(initial=np.inf) if len(by_count) > 1 else 0.0
        # With a missing bin one constant piece beside it is a table too; lines and free tables still pay their own.
        alone = ~np.isin(self.shapes, (_LINEAR, _FREE))
        return np.where(self.missing & alone, 1.0, codes + self.missing)

    def with_max_features(self, max_features: int | None) -> BoundConstraints:
        """The same tables under another s_G."""
        return replace(self, max_features=max_features)

    def with_jump_cost(self, jump_cost: float) -> BoundConstraints:
        """The same tables under another kappa."""
        return replace(self, jump_cost=jump_cost)

    def excluding(self, features: np.ndarray) -> BoundConstraints:
        """The same with some more features whose tables stay zero."""
        excluded = self.excluded.copy()
        excluded[features] = True
        return replace(self, excluded=excluded)

    def on(self, weights: np.ndarray) -> BoundConstraints:
        """The same tables, at the same positions, in another geometry."""
        return replace(self, weights=weights)

    def without_limits(self, jump_cost: float) -> BoundConstraints:
        """The same tables under the default limit on pieces, no limit on features, and another jump cost."""
        limits = np.full_like(self.limits, DEFAULT_MAX_SEGMENTS)
        return replace(self, max_features=None, limits=limits).with_jump_cost(jump_cost)

    def degrees_of_freedom(self, labels: np.ndarray, support: np.ndarray) -> float:
        """How many numbers the used tables hold, given their means: pieces, slopes, missing values, less one each."""
        by_class = labels[:, None] if labels.ndim == 1 else labels
        total = 0
        for j in support:
            for one in by_class[self.offsets[j] : self.offsets[j + 1]].T:
                pieces = np.unique(one[one >= 0])
                total += len(pieces) + int((pieces % 2).sum()) - (len(pieces) > 0)
        return float(total)

    def check_frequency(self) -> None:
        """`frequency` is a projection only where all ordered bins weigh the same."""
        for j in np.flatnonzero(self.shapes == _FREQUENCY):
            w = self.weights[self.offsets[j] : self.offsets[j] + self.n_ordered[j]]
            if np.ptp(w) > 1e-9 * w.max():
                raise ValueError(
                    f'shape of feature {j} is "frequency", but its bin weights run from {w.min():.6g} to '
                    f'{w.max():.6g}; they must be equal (weights="uniform")'
                )

    def prices(self, step: float, scale: float) -> tuple[float, float]:
        """What a unit of code length and the entry of a feature cost at a step: mu lambda kappa, mu lambda 2 log p."""
        if self.jump_cost == 0:
            return 0.0, 0.0
        return step * scale * self.jump_cost, step * scale * 2 * np.log(self.n_features)

    def code_length(self, j: int, labels: np.ndarray) -> float:
        """code_j of a non-zero table with the given pieces (its labels, one class)."""
        ordered = np.unique(labels[: self.n_ordered[j]])
        ordered = ordered[ordered >= 0]
        n_pieces, n_lines = len(ordered), int((ordered % 2).sum())
        log_b = float(np.log(self.n_ordered[j]))
        shape = self.shapes[j]
        if shape == _LEVELS:
            flat, offsets = self.level_codes
            code = float(flat[offsets[j] + n_pieces - 1])
        elif shape == _FREE:
            code = self.n_ordered[j] - 1.0
        else:
            code = (n_pieces + n_lines - 1) * log_b
        return code + float(self.missing[j])

    def cost(self, labels: np.ndarray, support: np.ndarray, scale: float) -> float:
        """Sum over the used features of lambda * (kappa * code_j + 2 log p), from the labels of their pieces."""
        price, entry = self.prices(1.0, scale)
        if price == 0:
            return 0.0
        by_class = labels[:, None] if labels.ndim == 1 else labels
        total = entry * int((~self.forced[support]).sum())
        for j in support:
            table = by_class[self.offsets[j] : self.offsets[j + 1]].T
            total += price * sum(self.code_length(j, one) for one in table if (one >= 0).any())
        return total

    def prox(
        self,
        f: ArrayLike,
        step: float,
        scale: float,
        *,
        alpha: float = 0.0,
        n_threads: int = 1,
        screen: bool = True,
        unread: Unread | None = None,
    ) -> Prox:
        """The proximal step; with scale = 0 or without a jump cost it is P_C of f / (1 + step * alpha).

        Parameters
        ----------
        screen : bool
            Leave out the search in tables that cannot win. The result is the same to the bit.
        unread : Unread, optional
            Tables that are not in f yet, and are asked for only if they may win. Needs `screen`.
        """
        f = np.asarray(f, dtype=np.float64)
        n_coef = int(self.offsets[-1])
        if f.ndim == 1:
            stacks = check_vector(f, n_coef, "f")[None]
        elif f.ndim == 2 and len(f) == n_coef:
            stacks = np.ascontiguousarray(f.T)
            check_vector(stacks.ravel(), stacks.size, "f")
        else:
            raise ValueError(f"f has shape {f.shape}; it must be ({n_coef},) or ({n_coef}, n_classes)")

        # Ridge folds in as a shorter step; the power of two keeps squares away from overflow and is exact.
        shrink = 1.0 / (1.0 + step * alpha)
        size = max(stacks.max(initial=0.0), -stacks.min(initial=0.0)) * shrink
        unit = float(np.ldexp(1.0, int(np.clip(np.frexp(size)[1], -1000, 1000)))) if size else 1.0
        price, entry = (min(cost / unit / unit, 1e300) for cost in self.prices(step * shrink, scale))
        scaled = stacks * (shrink / unit)
        reader = None if unread is None else _Reader(unread, scaled, shrink, unit)
        result = self._prox_scaled(scaled, price, entry, n_threads, screen, reader)
        g = result.f
        g[:, bins_of(result.support, self.offsets)] *= unit
        return Prox(
            f=g[0] if f.ndim == 1 else np.ascontiguousarray(g.T),
            support=result.support,
            labels=result.labels[0] if f.ndim == 1 else np.ascontiguousarray(result.labels.T),
            codes=result.codes.sum(axis=0),
            n_searched=result.n_searched,
            nets=result.nets,
        )

    def _prox_scaled(
        self, stacks: np.ndarray, price: float, entry: float, n_threads: int, screen: bool, reader: _Reader | None
    ) -> Prox:
        n_features = self.n_features
        search = _Search(self, stacks, price, entry, n_threads, reader)
        if screen:
            bounds = search.bounds()
            is_unread = np.zeros(n_features, dtype=bool) if reader is None else reader.mask

            def read(tables):
                reader.read(tables, self.offsets)
                search.center(tables)
                bounds[tables] = search.bounds_of(search.squared_norms)[tables]

            searched = self._search_while_it_can_win(search.pieces, search.ranks, bounds, is_unread, read)
        else:
            searched = np.flatnonzero(~self.excluded)
            search.pieces(searched)
        if reader is not None:
            reader.report(search.squared_norms, search.nets, searched)
        winners = np.sort(searched[_largest_positive(search.ranks(searched), searched, self.max_features)])
        return search.keep(winners, searched)

    def _search_while_it_can_win(self, search, ranks, bounds, is_unread, read) -> np.ndarray:
        """Search tables from the largest bound down, until the s_G-th best net is strictly above the next bound.

        An unread table whose turn it is, is read; that lowers its bound, and it takes its new place in the order.
        Twice as many are read each time, so that the times are few.
        """
        limit, n_to_read, is_sorted = self.max_features, FIRST_READ, False
        waiting, searched = np.flatnonzero(bounds > 0), np.zeros(0, dtype=np.int64)
        while len(waiting):
            n_next = len(waiting)
            if limit is not None and limit < len(waiting) + len(searched):
                n_next = max(limit, len(searched) // 2)
                if not is_sorted:
                    waiting, is_sorted = waiting[np.argsort(-bounds[waiting], kind="stable")], True
            n_unread = int(is_unread[waiting[:n_next]].sum())
            if n_unread:
                read(waiting[is_unread[waiting]][: max(n_to_read, n_unread)])
                n_to_read *= 2
                waiting, is_sorted = np.sort(waiting[bounds[waiting] > 0]), False
            else:
                search(waiting[:n_next])
                searched, waiting = np.concatenate([searched, waiting[:n_next]]), waiting[n_next:]
            if limit is not None and len(searched) >= limit:
                worst_kept = np.partition(ranks(searched), len(searched) - limit)[len(searched) - limit]
                waiting = waiting[bounds[waiting] >= worst_kept]
        return searched


class _Search:
    """The tables of a scaled proximal step, centred, and what a search for pieces has found in some of them.

    price : of a unit of code length; entry : of a feature
    """

    def __init__(self, bound: BoundConstraints, stacks: np.ndarray, price: float, entry: float, n_threads: int, reader):
        self.bound, self.stacks, self.reader = bound, stacks, reader
        self.price, self.entry, self.n_threads = price, entry, n_threads
        shape = len(stacks), bound.n_features
        self.centred, self.squared_norms = np.empty_like(stacks), np.empty(shape)
        # Memory that is zero from the start and never written costs nothing: of a million tables few are.
        self.out, self.labels = np.zeros(stacks.shape), np.full(stacks.shape, -1, dtype=np.int32)
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
        if reader is None or self.price == 0 or self.bound.greedy:
            self._pieces_at(self.price, tables)
            return
        # What would not enter even at a lower price needs no second search, and that net bounds later ones.
        free = tables[reader.is_free[tables]]
        self._pieces_at(CAUTIOUS * self.price, free)
        reader.keep_nets(self.nets, free)
        at_most = (self.nets[:, free] + _BOUND_MARGIN * self.squared_norms[:, free]).sum(axis=0)
        is_out = (at_most < self.entry) & ~self.bound.forced[free]
        self.nets[:, free[is_out]] = 0.0
        self._pieces_at(self.price, np.concatenate([tables[~reader.is_free[tables]], free[~is_out]]))

    def _pieces_at(self, price: float, tables: np.ndarray) -> None:
        bound = self.bound
        per_call = int(max(1, MAX_PAIRS_PER_CALL // max(bound.n_bins.max(initial=1), 1) ** 2))
        level_code_values, level_code_offsets = bound.level_codes
        for c in range(len(self.stacks)):
            over_ranges(
                kernels().prox_tables, len(tables), self.n_threads,
                tables, self.centred[c], bound.offsets, bound.weights, bound.positions, bound.missing.view(np.uint8),
                bound.shapes, bound.limits, price, level_code_values, level_code_offsets, bound.greedy,
                self.out[c], self.labels[c], self.nets[c], self.codes[c], per_call=per_call,
            )  # fmt: skip

    def ranks(self, tables: np.ndarray) -> np.ndarray:
        """The net of each table with its entry paid; one that may not lose is infinite if it is not flat."""
        totals = self.nets[:, tables].sum(axis=0)
        return np.where(self.bound.forced[tables], np.where(totals > 0, np.inf, 0.0), totals - self.entry)

    def bounds(self) -> np.ndarray:
        """Upper bounds on the ranks of all tables, also of those that were not read."""
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
        """The result: of the tables that were searched only the winners are not zero."""
        losers = np.setdiff1d(searched, winners)  # what was not searched has never been written
        lost_bins = bins_of(losers, self.bound.offsets)
        self.out[:, lost_bins], self.labels[:, lost_bins], self.codes[:, losers] = 0.0, -1, 0.0
        return Prox(self.out, winners, self.labels, self.codes, len(searched), self.nets.sum(axis=0))


class _Reader:
    """`Unread` in the units of a scaled step."""

    def __init__(self, unread: Unread, scaled: np.ndarray, shrink: float, unit: float):
        self._unread, self._scaled = unread, scaled
        self._shrink, self._unit = shrink, unit
        self.mask, self.is_free = unread.mask.copy(), unread.is_free
        self._nets: np.ndarray | None = None

    def keep_nets(self, nets: np.ndarray, tables: np.ndarray) -> None:
        """Nets at the cautious price."""
        self._nets = np.zeros_like(nets) if self._nets is None else self._nets
        self._nets[:, tables] = nets[:, tables]

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """(squared norms, nets)."""
        return (self._unread.norms / self._unit) ** 2, self._unread.nets / self._unit / self._unit

    def read(self, tables: np.ndarray, offsets: np.ndarray) -> None:
        """Bring some tables into the scaled stacks."""
        f, bins = self._unread.tables_with(tables), bins_of(tables, offsets)
        self._scaled[:, bins] = np.atleast_2d(f.T)[:, bins] * (self._shrink / self._unit)
        self.mask[tables] = False

    def report(self, squared_norms: np.ndarray, nets: np.ndarray, searched: np.ndarray) -> None:
        self._unread.found_norms = np.sqrt(squared_norms) * self._unit
        self._unread.found_nets = (nets if self._nets is None else self._nets) * self._unit * self._unit
        self._unread.searched = searched


def _runs(tables: np.ndarray, n_features: int) -> list[tuple[int, int]]:
    """Ranges that cover some tables: runs of neighbours, or everything where they are many."""
    tables = np.sort(tables)
    cuts = np.flatnonzero(np.diff(tables) > 1) + 1
    if len(cuts) >= MAX_RUNS:
        return [(0, n_features)]
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(tables, cuts)]


def bin_positions(
    position: str, offsets: np.ndarray, weights: np.ndarray, missing: np.ndarray, values: ArrayLike | None
) -> np.ndarray:
    """The place of every bin on the axis along which lines are drawn.

    "rank": the weight of the table's ordered bins up to the middle of the bin; "index": 0, 1, …; "value": as given.
    The position of a missing bin is never used.
    """
    n_bins = np.diff(offsets)
    if position == "index":
        return np.arange(offsets[-1], dtype=np.float64) - np.repeat(offsets[:-1], n_bins)
    if position == "rank":
        ranks = np.empty(len(weights))
        for size in np.unique(n_bins):  # tables of one size at a time: their sums start at zero, so none is lost
            bins = offsets[:-1][n_bins == size, None] + np.arange(size)
            ranks[bins] = np.cumsum(weights[bins], axis=1) - weights[bins] / 2
        return ranks
    if values is None:
        raise ValueError('positions is None; with position="value" it must hold the position of every bin')
    values = check_vector(values, int(offsets[-1]), "positions")
    steps = np.diff(values, append=np.inf)
    last_ordered = offsets[1:] - 1 - missing
    steps[last_ordered], steps[offsets[1:] - 1] = 0.0, 0.0
    if (steps < 0).any():
        k = int(np.flatnonzero(steps < 0)[0])
        raise ValueError(
            f"positions[{k + 1}] is {values[k + 1]}, below positions[{k}]; within a table they must not fall"
        )
    # Lines do not depend on the unit of the axis; a power of two changes no position and keeps squares finite.
    size = np.abs(values).max(initial=0.0)
    return np.ldexp(values, -int(np.frexp(size)[1]))


def _largest_positive(totals: np.ndarray, tables: np.ndarray, max_features: int | None) -> np.ndarray:
    """Where the largest positive totals stand; ties go to the lower table index."""
    positive = np.flatnonzero(totals > 0)
    if max_features is None or len(positive) <= max_features:
        return positive
    return positive[np.lexsort((tables[positive], -totals[positive]))[:max_features]]


def _check_each(value, check, name: str) -> None:
    if isinstance(value, Mapping):
        for feature, one in value.items():
            check(one, f"{name}[{feature!r}]")
    elif isinstance(value, str) or np.ndim(value) == 0:
        check(value, name)
    else:
        for feature, one in enumerate(value):
            check(one, f"{name}[{feature}]")


def _per_feature(value, default, n_features: int, name: str, convert, dtype) -> np.ndarray:
    """One converted value for every feature, from a scalar, a mapping with a default, or a sequence."""
    if isinstance(value, str) or np.ndim(value) == 0 and not isinstance(value, Mapping):
        return np.full(n_features, convert(value), dtype=dtype)
    if isinstance(value, Mapping):
        values = np.full(n_features, convert(default), dtype=dtype)
        for feature, one in value.items():
            values[check_int(feature, f"feature of {name}", 0, n_features - 1)] = convert(one)
        return values
    if len(value) != n_features:
        raise ValueError(f"{name} has {len(value)} entries; there are {n_features} features")
    return np.array([convert(one) for one in value], dtype=dtype)


def _check_missing(missing: ArrayLike | None, n_features: int) -> np.ndarray:
    if missing is None:
        return np.zeros(n_features, dtype=bool)
    missing = np.ascontiguousarray(missing)
    if missing.shape != (n_features,) or missing.dtype != bool:
        raise ValueError(
            f"missing has shape {missing.shape} and dtype {missing.dtype}; it must be {n_features} bools, one per table"
        )
    return missing
