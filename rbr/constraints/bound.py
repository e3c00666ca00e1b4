"""Constraints on the tables of one design: the projection P_C and the proximal step with a jump cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from rbr._checks import check_vector
from rbr._ragged import bins_of
from rbr.constraints.grids import MOST_EXACT
from rbr.constraints.search import FIRST_READ, Prox, Reader, Search, Unread, largest_positive
from rbr.shapes import Grid, ShapeSpec, flags, level_codes, pull_of_roughness, shape_names, spec_at
from rbr.shapes.spec import Search as SearchFunction

# The price of pieces decides how many there are; the limit is for tables of much structure, which 32 pieces cut short.
DEFAULT_MAX_SEGMENTS = 128


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
    # The share of the rows in each bin, and for each table the least share in a piece that is not the only one.
    shares: np.ndarray
    least_shares: np.ndarray
    positions: np.ndarray
    excluded: np.ndarray
    forced: np.ndarray
    position: str = "rank"
    # The sides of the grids of two columns, and what their limit, apart from that on other tables, and roughness are.
    grids: np.ndarray | None = None
    max_pairs: int | None = None
    has_one_limit: bool = False
    smoothness: float = 0.0

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
    def is_pair(self) -> np.ndarray:
        """Whether a table is a grid of two columns."""
        return np.zeros(self.n_features, dtype=bool) if self.grids is None else (self.grids != 0).any(axis=1)

    def grid(self, j: int) -> Grid:
        """The grid of table j."""
        assert self.grids is not None  # `Constraints.bind` has checked it
        n_a, n_b, more_a, more_b, levels_a, levels_b = self.grids[j].tolist()
        return Grid(n_a, n_b, more_a, more_b, levels_a, levels_b, self.smoothness)

    @cached_property
    def searches(self) -> dict[str | SearchFunction, list[int]]:
        """The numbers of the shapes in use, by what searches them."""
        found: dict[str | SearchFunction, list[int]] = {}
        for number in np.unique(self.shapes).tolist():
            found.setdefault(spec_at(number).search, []).append(number)
        return found

    def spec(self, j: int) -> ShapeSpec:
        """The shape of table j."""
        return spec_at(int(self.shapes[j]))

    def flags(self, attribute: str) -> np.ndarray:
        """An attribute of the tables' shapes, one for each table."""
        return flags(attribute, self.shapes)

    @cached_property
    def has_exact_search(self) -> np.ndarray:
        """Whether the best table of each feature is found, and is a projection: surfaces are none.

        Not by merging, nor by sorting or pooling with a minimum, nor on grids that are too large.
        """
        is_reordered = self.flags("is_grouped") | (self.flags("monotone") != 0)
        is_exact = ~(is_reordered & (self.least_shares > 0)) & (not self.greedy) & ~self.flags("is_smooth")
        if self.grids is not None:
            is_exact &= ~(self.flags("on_grid") & (self.grids[:, :2].max(axis=1) > MOST_EXACT))
        return is_exact

    @cached_property
    def level_codes(self) -> tuple[np.ndarray, np.ndarray]:
        """Code lengths of the `levels` tables by number of levels: flat, with offsets."""
        is_levels = self.flags("is_grouped")
        sizes = np.where(is_levels, np.minimum(self.limits, self.n_ordered), 0)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        flat = [level_codes(int(self.n_ordered[j]), int(sizes[j])) for j in np.flatnonzero(is_levels)]
        return np.concatenate([np.zeros(0), *flat]), offsets

    @cached_property
    def cheapest_codes(self) -> np.ndarray:
        """A lower bound on the code length of a non-zero table, for each feature."""
        codes = np.empty(self.n_features)
        for number in np.unique(self.shapes):
            own = self.shapes == number
            spec = spec_at(number)
            sizes = [self.grid(j) for j in np.flatnonzero(own).tolist()] if spec.on_grid else self.n_ordered[own]
            codes[own] = spec.cheapest_code(sizes, self.limits[own])
        # One constant piece beside a missing bin is a table of code 1; lines and free tables still pay their own code.
        alone = ~self.flags("is_never_flat")
        return np.where(self.missing & alone, 1.0, codes + self.missing)

    @cached_property
    def limits_of_kinds(self) -> list[tuple[np.ndarray, int | None]]:
        """(tables, the most of them that are used): each kind has a limit."""
        everything = np.arange(self.n_features)
        if self.has_one_limit or not self.is_pair.any():
            return [(everything, self.max_features)]
        return [(everything[~self.is_pair], self.max_features), (everything[self.is_pair], self.max_pairs)]

    def is_full(self, support: np.ndarray) -> np.ndarray:
        """For each table, whether no other one of its kind may be used beside the support."""
        full = np.zeros(self.n_features, dtype=bool)
        for tables, limit in self.limits_of_kinds:
            full[tables] = limit is not None and np.isin(support, tables).sum() >= limit
        return full

    def is_limited_more_than(self, other: BoundConstraints) -> bool:
        """Whether it differs in how many tables may be used."""
        return (self.max_features, self.max_pairs) != (other.max_features, other.max_pairs)

    def without_limits_on_tables(self) -> BoundConstraints:
        """The same tables, all of which may be used."""
        return replace(self, max_features=None, max_pairs=None)

    def of_best(self) -> BoundConstraints:
        """The same tables, of which only one may be used, whatever its kind."""
        return replace(self, max_features=1, has_one_limit=True)

    def of_at_most(self, n_tables: int) -> BoundConstraints:
        """The same tables, of which at most this many of each kind may be used."""
        features, pairs = (n_tables if n is None else min(n, n_tables) for n in (self.max_features, self.max_pairs))
        return replace(self, max_features=features, max_pairs=pairs)

    def with_jump_cost(self, jump_cost: float) -> BoundConstraints:
        """The same tables under another kappa."""
        return replace(self, jump_cost=jump_cost)

    def excluding(self, features: np.ndarray) -> BoundConstraints:
        """The same with more features excluded: their tables stay zero."""
        excluded = self.excluded.copy()
        excluded[features] = True
        return replace(self, excluded=excluded)

    def including(self, features: np.ndarray) -> BoundConstraints:
        """The same with more features that enter before all others and without an entry cost."""
        forced = self.forced.copy()
        forced[features] = True
        return replace(self, forced=forced)

    def on(self, weights: np.ndarray) -> BoundConstraints:
        """The same tables, at the same positions and with the same rows, with other weights."""
        return replace(self, weights=weights)

    def without_limits(self, jump_cost: float) -> BoundConstraints:
        """The same tables under the default limit on pieces, no other limit, and another jump cost."""
        limits = np.full_like(self.limits, DEFAULT_MAX_SEGMENTS)
        without = replace(
            self, max_features=None, max_pairs=None, limits=limits, least_shares=np.zeros_like(self.least_shares)
        )
        return without.with_jump_cost(jump_cost)

    def as_steps(self, tables: np.ndarray, most: np.ndarray) -> BoundConstraints:
        """The same with some tables limited to constant pieces, and to a number of them by table."""
        shapes, limits = self.shapes.copy(), self.limits.copy()
        keeps_shape = self.flags("monotone")[tables] != 0
        shapes[tables] = np.where(keeps_shape, shapes[tables], shape_names().index("constant"))
        limits[tables] = np.minimum(limits[tables], most[tables])
        return replace(self, shapes=shapes, limits=limits)

    def as_lines(self, tables: np.ndarray) -> BoundConstraints:
        """The same with some tables limited to one piece, where they may have lines."""
        limits = self.limits.copy()
        limits[tables] = np.where(self.flags("has_lines")[tables], 1, limits[tables])
        return replace(self, limits=limits)

    def degrees_of_freedom(self, labels: np.ndarray, support: np.ndarray) -> float:
        """The free parameters of the used tables: pieces, slopes and missing bins, less one per table for its mean."""
        by_class = labels[:, None] if labels.ndim == 1 else labels
        total = 0.0
        for j in support:
            if self.spec(j).is_smooth:
                used = (by_class[self.offsets[j] : self.offsets[j + 1]] >= 0).any(axis=0)
                total += self.cheapest_codes[j] * int(used.sum())
                continue
            for one in by_class[self.offsets[j] : self.offsets[j + 1]].T:
                pieces = np.unique(one[one >= 0])
                total += len(pieces) + int((pieces % 2).sum()) - (len(pieces) > 0)
        return float(total)

    def roughness(self, f: np.ndarray) -> float:
        """smoothness / 2 * the roughness of the surfaces, of all classes."""
        if "smooth_grids" not in self.searches or self.smoothness == 0:
            return 0.0
        total = 0.0
        for j in np.flatnonzero(self.flags("is_smooth")).tolist():
            table = f[self.offsets[j] : self.offsets[j + 1]]
            total += float((table * pull_of_roughness(table, self.grid(j))).sum())
        return 0.5 * self.smoothness * total

    def roughness_within(self, j: int, basis: np.ndarray) -> np.ndarray:
        """The second derivative of the roughness of table j in the coordinates of a basis."""
        return self.smoothness * basis.T @ pull_of_roughness(basis, self.grid(j))

    def check_grids(self) -> None:
        """Raise a ValueError if a shape of grids is that of a table which is none."""
        for j in np.flatnonzero(self.flags("on_grid") & ~self.is_pair).tolist():
            raise ValueError(
                f'shape of feature {j} is "{self.spec(j).name}", which is for grids of two columns; the feature must '
                "have a row in grids (rbr.data.grids.with_pairs)"
            )

    def check_frequency(self) -> None:
        """Raise a ValueError if ordered bins differ in weight but the shape, like `frequency`, needs equal ones."""
        for j in np.flatnonzero(self.flags("needs_equal_weights")).tolist():
            w = self.weights[self.offsets[j] : self.offsets[j] + self.n_ordered[j]]
            if np.ptp(w) > 1e-9 * w.max():
                raise ValueError(
                    f'shape of feature {j} is "{self.spec(j).name}", but its bin weights run from {w.min():.6g} to '
                    f'{w.max():.6g}; they must be equal (weights="uniform")'
                )

    @cached_property
    def entry_codes(self) -> np.ndarray:
        """2 log(1 + p) for each table, p the number of tables of its kind."""
        n_pairs = int(self.is_pair.sum())
        return 2 * np.log1p(np.where(self.is_pair, n_pairs, self.n_features - n_pairs))

    def prices(self, step: float, scale: float) -> tuple[float, np.ndarray]:
        """What a unit of code and the entry of each table cost at a step: mu lambda kappa, mu lambda 2 log(1 + p)."""
        if self.jump_cost == 0:
            return 0.0, np.zeros(self.n_features)
        return step * scale * self.jump_cost, step * scale * self.entry_codes

    def cost(self, labels: np.ndarray, support: np.ndarray, scale: float) -> float:
        """Sum over the used features of lambda * (kappa * code_j + 2 log(1 + p)), from the labels of their pieces."""
        price, entry = self.prices(1.0, scale)
        if price == 0:
            return 0.0
        codes = [0.0] * len(support)
        for own in labels.reshape(len(labels), -1).T if labels.max(initial=-1) >= 0 else ():
            n_pieces, n_lines, is_used = self._counts(own, support)
            for t in np.flatnonzero(is_used).tolist():
                j = support[t]
                spec = self.spec(j)
                size = self.grid(j) if spec.on_grid else int(self.n_ordered[j])
                code = spec.code_length(n_pieces[t], n_lines[t], size)
                codes[t] += code + float(self.missing[j])
        return sum((price * code for code in codes), start=float(entry[support][~self.forced[support]].sum()))

    def _counts(self, labels: np.ndarray, support: np.ndarray) -> tuple[list[int], list[int], np.ndarray]:
        """How many pieces and lines the ordered bins of each used table have, and whether it is not zero."""
        bins, table = bins_of(support, self.offsets), np.repeat(np.arange(len(support)), self.n_bins[support])
        own = labels[bins]
        seen = np.zeros((len(support), own.max(initial=0) + 2), dtype=bool)
        seen[table, own + 1] = True
        # The bin of missing values, a table's last, is a piece of its own, and no line.
        has_missing = self.missing[support] & (labels[self.offsets[support + 1] - 1] >= 0)
        n_pieces, n_lines = seen[:, 1:].sum(axis=1) - has_missing, seen[:, 2::2].sum(axis=1)
        return n_pieces.tolist(), n_lines.tolist(), np.logical_or.reduce(seen[:, 1:], axis=1)

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
            Do not search tables that cannot win. The result is the same to the bit.
        unread : Unread, optional
            Tables that are not in f yet, and are computed only if they may win. Needs `screen`.
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
        price, entry = self.prices(step * shrink, scale)
        scaled = stacks * (shrink / unit)
        reader = None if unread is None else Reader(unread, scaled, shrink, unit)
        price, entry = min(price / unit / unit, 1e300), np.minimum(entry / unit / unit, 1e300)
        run = {"step": step * shrink, "n_threads": n_threads, "reader": reader}
        result = self._prox_scaled(Search(self, scaled, price, entry, **run), screen, reader)
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

    def _prox_scaled(self, search: Search, screen: bool, reader: Reader | None) -> Prox:
        n_features = self.n_features
        if screen:
            bounds = search.bounds()
            is_unread = np.zeros(n_features, dtype=bool) if reader is None else reader.mask

            def read(tables):
                reader.read(tables, self.offsets)
                search.center(tables)
                bounds[tables] = search.bounds_of(search.squared_norms)[tables]

            runs = [
                self._search_while_it_can_win(search, tables, limit, bounds, is_unread, read)
                for tables, limit in self.limits_of_kinds
            ]
        else:
            runs = [tables[~self.excluded[tables]] for tables, _ in self.limits_of_kinds]
            for tables in runs:
                search.pieces(tables)
        searched = np.concatenate(runs)
        if reader is not None:
            reader.report(search.squared_norms, search.nets, searched)
        winners = [
            own[largest_positive(search.ranks(own), own, limit)]
            for own, (_, limit) in zip(runs, self.limits_of_kinds, strict=True)
        ]
        return search.keep(np.sort(np.concatenate(winners)), searched)

    def _search_while_it_can_win(self, search: Search, tables, limit: int | None, bounds, is_unread, read):
        """Search tables from the largest bound down, until the s_G-th best net is strictly above the next bound.

        When the turn of an unread table comes, it is read; that lowers its bound, and it moves to its new place in the
        order. Each time twice as many are read, so that there are few such times.
        """
        n_to_read, is_sorted = FIRST_READ, False
        waiting, searched = tables[bounds[tables] > 0], np.zeros(0, dtype=np.int64)
        if limit == 0:
            return searched
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
                search.pieces(waiting[:n_next])
                searched, waiting = np.concatenate([searched, waiting[:n_next]]), waiting[n_next:]
            if limit is not None and len(searched) >= limit:
                worst_kept = np.partition(search.ranks(searched), len(searched) - limit)[len(searched) - limit]
                waiting = waiting[bounds[waiting] >= worst_kept]
        return searched
