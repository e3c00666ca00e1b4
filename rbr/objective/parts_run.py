"""Who computes: an executor maps functions over the parts, where they are, and keeps what is by row there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rbr.objective.parts_leaves import ROWS_PER_LEAF, Part, Whole, list_of, rows_of, sums_of
from rbr.objective.parts_tree import merged
from rbr.objective.protocol import Handle


@dataclass(frozen=True, eq=False)
class Kept(Handle):
    """What the parts keep by row; only the executor looks into it."""

    of_parts: Sequence[Any]


class Executor(Protocol):
    """Whoever has the parts, and computes where they are.

    Functions of leaves are those of `rbr.objective.parts_leaves`; what is `kept` is passed to them a leaf at a time.
    """

    @property
    def n_parts(self) -> int: ...

    def rows(self, whole: Whole, function: Callable, *kept: Kept, n_sampled: int | None = None, **fixed) -> Kept:
        """An array by row of each part, or of its rows in a sample, which stays with the part."""

    def total(self, whole: Whole, function: Callable, *kept: Kept, **fixed) -> tuple:
        """The sums over all leaves, added along the tree."""

    def listed(self, whole: Whole, function: Callable, *kept: Kept, **fixed) -> list:
        """The answers of all leaves, in their order."""

    def added(self, whole: Whole, function: Callable, **fixed) -> Any:
        """The sum of function(part, whole, **fixed) over the parts, in any order: only for exact sums."""

    def mapped(self, whole: Whole, function: Callable, *kept: Kept, **fixed) -> Executor:
        """Parts made by function(part, whole, *kept, **fixed)."""


class LocalParts:
    """Parts in this process, swept one after another, so that no more than a leaf of each array is in memory at once.

    Parameters
    ----------
    parts : sequence of Part
        In the order of their rows.
    n_threads : int
        Threads of the kernels; no result depends on their number.

    Examples
    --------
    >>> import numpy as np
    >>> import rbr
    >>> from rbr.objective.parts import LocalParts, Part, parts_objective
    >>> B = rbr.BinnedMatrix([[0, 0, 1, 1]], offsets=[0, 2])
    >>> objective = parts_objective(LocalParts([Part(B, np.array([0.0, 1.0, 4.0, 5.0]))]))
    >>> rbr.solve(objective=objective, constraints=rbr.Constraints(max_segments=2)).f
    array([-2.,  2.])
    """

    def __init__(self, parts: Sequence[Part], n_threads: int = 1):
        self.parts, self.n_threads = tuple(parts), n_threads
        n_rows = 0
        for number, part in enumerate(self.parts):
            if part.first_row != n_rows:
                raise ValueError(f"part {number} begins at row {part.first_row}; {n_rows} rows come before it")
            n_rows += part.n_rows

    @property
    def n_parts(self) -> int:
        return len(self.parts)

    def _calls(self, kept: Sequence[Kept]):
        by_part = zip(*(own.of_parts for own in kept), strict=True) if kept else [()] * self.n_parts
        return zip(self.parts, by_part, strict=True)

    def rows(self, whole, function, *kept, n_sampled=None, **fixed) -> Kept:
        return Kept([rows_of(part, whole, function, own, fixed, n_sampled) for part, own in self._calls(kept)])

    def total(self, whole, function, *kept, **fixed) -> tuple:
        return merged(sums_of(part, whole, function, own, fixed) for part, own in self._calls(kept)).total()

    def listed(self, whole, function, *kept, **fixed) -> list:
        return [answer for part, own in self._calls(kept) for answer in list_of(part, whole, function, own, fixed)]

    def added(self, whole, function, **fixed):
        total = function(self.parts[0], whole, **fixed)
        for part in self.parts[1:]:
            total = total + function(part, whole, **fixed)
        return total

    def mapped(self, whole, function, *kept, **fixed) -> LocalParts:
        other = LocalParts((), self.n_threads)
        other.parts = tuple(function(part, whole, *own, **fixed) for part, own in self._calls(kept))
        return other


def cut_points(n_rows: int, n_parts: int, rows_per_leaf: int = ROWS_PER_LEAF) -> list[int]:
    """Where to cut rows into about as many parts, of whole leaves: the first row of each part, and n_rows.

    The cuts lie at multiples of a power of two, so that a part passes on few sums; parts differ by an eighth at most.

    Examples
    --------
    >>> cut_points(10_000_000, 2)
    [0, 4980736, 10000000]
    >>> cut_points(1000, 2)
    [0, 1000]
    """
    n_leaves = -(-n_rows // rows_per_leaf)
    n_parts = max(1, min(n_parts, n_leaves))
    unit = 1 << max((n_leaves // (16 * n_parts)).bit_length() - 1, 0)
    cuts = sorted({round(k * n_leaves / (n_parts * unit)) * unit for k in range(n_parts)})
    return [*(cut * rows_per_leaf for cut in cuts), n_rows]
