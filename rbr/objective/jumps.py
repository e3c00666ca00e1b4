"""Better places for the jumps of one table, and jumps that one jump in a better place can replace.

With all else held, the loss is close to a parabola in each row: curvature / 2 * t^2 - pull * t, with t the row's entry
of the table. So what a constant piece explains follows from two sums over its rows, and running sums along the column
give it for every place of a jump.

A jump lies between two atoms. Near jumps an atom is a distinct value, elsewhere a whole bin: jumps may lie inside the
bins around them, and the rows of all other bins need not be sorted. The bin that holds a step has a mean of its own,
and with many rows that is worth a piece as long as jumps lie at edges only. `JumpSearch.join` replaces the two jumps
around such a piece by one, in the best place between their neighbours, if the loss rises by less than the piece costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat

import numpy as np

from rbr.data.edges import between

# A better place must gain more than this part, so that rounding does not choose between equally good places.
ROUNDING = 1e-11

# Joining, then moving, until nothing changes: moves make few further joins possible.
MAX_SWEEPS = 4


@dataclass(frozen=True, eq=False)
class Jumps:
    """The jumps of one table that may move inside bins.

    edges : (n_ordered - 1,) between the ordered bins
    labels : (n_ordered, n_outputs) 2 * piece + is_line for each ordered bin; below zero for an output without pieces
    price : what a constant piece of one output costs, in units of the loss
    keeps_levels : pieces keep their values, and jumps are joined but not moved
    """

    edges: np.ndarray
    labels: np.ndarray
    price: float = 0.0
    keeps_levels: bool = False


@dataclass(frozen=True, eq=False)
class BetterJumps:
    """Other edges, as many as before, and other pieces of one table.

    promise : predicted decrease of loss + price of the pieces
    edges : (n_ordered - 1,)
    labels : (n_ordered, n_outputs)
    values : (n_ordered, n_outputs) the best constants by the parabolas of the rows; lines, and pieces that keep their
        levels, have the values that they had
    """

    promise: float
    edges: np.ndarray
    labels: np.ndarray
    values: np.ndarray


@dataclass(frozen=True, eq=False)
class Atoms:
    """The parts of a column between which jumps may lie, from left to right.

    bins : the bin of each atom, ascending
    values : the one value of each atom; NaN for a whole bin
    pulls, curvatures : (n_atoms, n_outputs) sums over the rows of each atom
    table : (n_ordered, n_outputs) the entries of the table by bin
    """

    bins: np.ndarray
    values: np.ndarray
    pulls: np.ndarray
    curvatures: np.ndarray
    table: np.ndarray


def better_jumps(atoms: Atoms, jumps: Jumps) -> BetterJumps | None:
    """The jumps of a table joined and moved to better places; None if they stay as they are."""
    search = JumpSearch(atoms, jumps)
    for _ in range(MAX_SWEEPS):
        search.join()
        if jumps.keeps_levels or not search.move():
            break
    return search.found() if search.promise > 0 else None


class JumpSearch:
    """The search for better jumps; cut i lies between segments i and i + 1, where at least one output jumps.

    places : for each cut, the number of atoms before it
    segments : (n_cuts + 1, n_outputs) the label of every output between two cuts
    promise : the predicted decrease so far
    """

    def __init__(self, atoms: Atoms, jumps: Jumps):
        self.atoms, self.jumps, self.promise = atoms, jumps, 0.0
        labels = jumps.labels
        cuts = np.flatnonzero((labels[:-1] != labels[1:]).any(axis=1))
        ends = np.concatenate([[0], np.searchsorted(atoms.bins, cuts, side="right"), [len(atoms.bins)]])
        has_rows = ends[:-1] < ends[1:]
        self.places = ends[1:][has_rows][:-1].tolist()
        self.segments = labels[np.append(cuts, len(labels) - 1)][has_rows]
        self._has_line = ((self.segments >= 0) & (self.segments % 2 == 1)).any(axis=1).tolist()
        by_atom = atoms.table[atoms.bins]
        # What the rows explain with the table as it is, which only lines remain.
        as_is = 2 * atoms.pulls * by_atom - atoms.curvatures * by_atom**2
        zero = np.zeros((1, labels.shape[1]))
        self._pulls, self._curvatures, self._as_is = (
            np.concatenate([zero, np.cumsum(a, axis=0)]) for a in (atoms.pulls, atoms.curvatures, as_is)
        )
        self._levels = [dict(zip(own.tolist(), f, strict=True)) for own, f in zip(labels.T, atoms.table.T, strict=True)]
        self._lowest, self._highest, self._preferred, self._is_allowed = _edges_by_place(atoms, len(jumps.edges))
        is_value = ~np.isnan(atoms.values)
        self._is_near = np.append(False, is_value) | np.append(is_value, False)
        self._taken: tuple[list[int], list[int], list[int]] = [], [], []  # places, and the edges taken by them
        self._known: dict[tuple, tuple[float, int]] = {}  # best places by all that they depend on

    def join(self) -> bool:
        """Replace two neighbouring jumps by one wherever that pays, the best pair first; whether any was replaced.

        It must also pay more than moving one of the two, since much of the gain may come from a better place alone;
        such a move has its price (see `move`).
        """
        found = False
        while len(self.places) > 1:
            joined = [
                (self._lead(i, gain), gain, i, place) for i, (gain, place) in enumerate(self._pairs()) if gain > 0
            ]
            lead, gain, i, place = max(joined, key=lambda one: one[0], default=(-np.inf, 0.0, 0, 0))
            if lead < -ROUNDING * gain:  # of two that are equally good, the one with fewer pieces
                break
            self.places[i : i + 2] = [place]
            self.segments = np.delete(self.segments, i + 1, axis=0)
            del self._has_line[i + 1]
            self.promise, found = self.promise + gain, True
        return found

    def move(self) -> bool:
        """Move each jump in turn, from left to right, to its best place between its neighbours; whether any moved.

        The best of many places must gain the price of a piece, or pieces would shrink to the rows that stand out.
        """
        found = False
        for i in range(len(self.places)):
            gain, place = self._best_place(i, i + 1)
            if gain > self.jumps.price and place != self.places[i]:
                self.places[i] = place
                self.promise, found = self.promise + gain, True
        return found

    def _pairs(self) -> list[tuple[float, int]]:
        """(gain, place) for each cut i if it became one with cut i + 1, with the price of the pieces between them."""
        jumps = self.segments[:-1] != self.segments[1:]
        n_saved = (jumps[:-1] & jumps[1:]).sum(axis=1).tolist()
        best = [self._best_place(i, i + 2) for i in range(len(n_saved))]
        return [(gain + self.jumps.price * n, place) for n, (gain, place) in zip(n_saved, best, strict=True)]

    def _lead(self, i: int, gain: float) -> float:
        """What joining cuts i and i + 1 gains more than moving one of them, at a price."""
        if self.jumps.keeps_levels:
            return gain
        moved = max(self._best_place(k, k + 1)[0] for k in (i, i + 1))
        return gain - max(0.0, moved - self.jumps.price)

    def _best_place(self, first: int, last: int) -> tuple[float, int]:
        """(decrease of the loss, place) of the best single jump in place of the cuts first <= i < last.

        Minus infinity beside lines, and far from the values that are known: bins alone were searched before.
        """
        is_near = any(self._is_near[place] for place in self.places[first:last])
        if not is_near or self._has_line[first] or self._has_line[last]:
            return -np.inf, 0
        window = self._window(first, last)
        if self.segments.shape[1] > 1:  # a piece of one output may reach beyond the neighbouring cuts
            return self._best_place_in(window, first, last)
        key = (*window, *self.places[first:last])
        if key not in self._known:
            self._known[key] = self._best_place_in(window, first, last)
        return self._known[key]

    def _best_place_in(self, window: tuple[int, int, int, int], first: int, last: int) -> tuple[float, int]:
        places = self._possible_places(*window)
        if not len(places):
            return -np.inf, 0
        explained, now = np.zeros(len(places)), 0.0
        for c in np.flatnonzero(self.segments[first] != self.segments[last]).tolist():
            bounds, labels = self._pieces_around(c, first, last)
            explained += self._explained(c, bounds[0], places, labels[0])
            explained += self._explained(c, places, bounds[-1], labels[-1])
            now += sum(map(self._explained, repeat(c), bounds[:-1], bounds[1:], labels))
        best = int(np.argmax(explained))
        gain = float(explained[best] - now)
        return (gain / 2 if abs(gain) > ROUNDING * abs(now) else 0.0), int(places[best])

    def _pieces_around(self, c: int, first: int, last: int) -> tuple[list[int], list[int]]:
        """(bounds, labels) of the pieces of an output from the one in segment `first` to the one in segment `last`."""
        labels = self.segments[:, c].tolist()
        while first and labels[first - 1] == labels[first]:
            first -= 1
        while last + 1 < len(labels) and labels[last + 1] == labels[last]:
            last += 1
        ends = [0, *self.places, len(self.atoms.bins)]
        starts = [i for i in range(first, last + 1) if i == first or labels[i] != labels[i - 1]]
        return [*(ends[i] for i in starts), ends[last + 1]], [labels[i] for i in starts]

    def _explained(self, c: int, start, stop, label: int):
        """Twice the decrease of the loss by a piece over the atoms start to stop - 1, compared with zeros there."""
        if label >= 0 and label % 2:
            return self._as_is[stop, c] - self._as_is[start, c]
        pull = self._pulls[stop, c] - self._pulls[start, c]
        curvature = self._curvatures[stop, c] - self._curvatures[start, c]
        if self.jumps.keeps_levels:
            level = self._levels[c][label]
            return (2 * pull - curvature * level) * level
        if np.ndim(curvature) == 0:
            return pull * pull / curvature if curvature > 0 else 0.0
        return np.divide(pull**2, curvature, out=np.zeros_like(pull), where=curvature > 0)

    # Edges: a jump inside a bin takes one of the two edges of that bin along, which no other jump may need.

    def _window(self, first: int, last: int) -> tuple[int, int, int, int]:
        """(place, edge) of the last cut before and of the first cut after the cuts first <= i < last.

        The edges are the lowest that the cuts before can do with, and the highest that those after can do with.
        """
        low = self.places[first - 1] if first else 0
        high = self.places[last] if last < len(self.places) else len(self.atoms.bins)
        below, above = self._taken_edges()
        return low, below[first], high, above[last]

    def _taken_edges(self) -> tuple[list[int], list[int]]:
        """(lowest edges that the first 0, 1, … cuts can do with, highest that those from the first, second, … can)."""
        if self._taken[0] != self.places or not self._taken[1]:
            below, above = [-1], [len(self.jumps.edges)]
            for edge in self._lowest[self.places].tolist():
                below.append(max(edge, below[-1] + 1))
            for edge in self._highest[self.places[::-1]].tolist():
                above.append(min(edge, above[-1] - 1))
            self._taken = self.places.copy(), below, above[::-1]
        return self._taken[1:]

    def _possible_places(self, low: int, below: int, high: int, above: int) -> np.ndarray:
        """The places between two others at which a jump can have an edge, given the edges taken on both sides."""
        inside = slice(low + 1, high)
        has_edge = np.maximum(self._lowest[inside], below + 1) <= np.minimum(self._highest[inside], above - 1)
        return np.flatnonzero(self._is_allowed[inside] & has_edge) + low + 1

    def _edges_of_cuts(self) -> np.ndarray:
        """The edge of each cut, ascending: the nearer one of its bin where that is free."""
        latest, above = [], len(self.jumps.edges)
        for place in reversed(self.places):
            above = min(self._highest[place], above - 1)
            latest.append(above)
        edges, below = [], -1
        for place, most in zip(self.places, reversed(latest), strict=True):
            below = min(max(self._preferred[place], self._lowest[place], below + 1), most)
            edges.append(below)
        return np.array(edges, dtype=np.int64)

    def _levels_of(self, c: int, labels: np.ndarray) -> np.ndarray:
        """The values of the constant pieces of an output, given their labels from left to right."""
        levels = np.array([self._levels[c][label] for label in labels.tolist()])
        if self.jumps.keeps_levels:
            return levels
        own = [i for i, place in enumerate(self.places) if self.segments[i, c] != self.segments[i + 1, c]]
        bounds = np.array([0, *(self.places[i] for i in own), len(self.atoms.bins)])
        pulls, curvatures = np.diff(self._pulls[bounds, c]), np.diff(self._curvatures[bounds, c])
        return np.divide(pulls, curvatures, out=levels, where=curvatures > 0)

    def found(self) -> BetterJumps:
        """The table with the jumps that were found."""
        atoms, edges, of_cuts = self.atoms, self.jumps.edges.copy(), self._edges_of_cuts()
        for place, edge in zip(self.places, of_cuts, strict=True):
            if atoms.bins[place - 1] == atoms.bins[place]:
                edges[edge] = between(atoms.values[place - 1], atoms.values[place])
        by_bin = self.segments[np.searchsorted(of_cuts, np.arange(len(edges) + 1), side="left")]
        labels, values = by_bin.copy(), atoms.table.copy()
        for c, own in enumerate(by_bin.T):
            if own[0] < 0:
                continue
            kept, piece = np.unique(own, return_inverse=True)
            labels[:, c] = 2 * piece + kept[piece] % 2
            values[:, c] = np.where(own % 2 == 1, values[:, c], self._levels_of(c, kept)[piece])
        return BetterJumps(self.promise, edges, labels, values)


def _edges_by_place(atoms: Atoms, n_edges: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(lowest, highest and preferred edge that a jump can use, whether one may lie there), for each place."""
    left, right = (np.concatenate([[0], atoms.bins[:-1], [0]]), np.concatenate([[0], atoms.bins[1:], [0]]))
    inside = left == right
    # Between two bins that hold rows, the bins without rows belong to the piece on their left.
    lowest = np.where(inside, np.maximum(left - 1, 0), right - 1)
    highest = np.where(inside, np.minimum(left, n_edges - 1), right - 1)
    first_of_bin = np.searchsorted(atoms.bins, left)
    end_of_bin = np.searchsorted(atoms.bins, left, side="right")
    in_upper_half = 2 * np.arange(len(left)) > first_of_bin + end_of_bin
    finite = np.isfinite(atoms.values)
    is_allowed = np.ones(len(left), dtype=bool)
    is_allowed[1:-1] = ~inside[1:-1] | (finite[:-1] & finite[1:])
    return lowest, highest, np.where(in_upper_half, highest, lowest), is_allowed
