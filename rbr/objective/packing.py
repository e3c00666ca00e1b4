"""Tables with few groups share one code: their pairs are then tabulated together.

A cross-tabulation costs about a nanosecond for each row and pair of tables, whether these have two groups or sixty, and
more if they have two: row after row then adds to the same cell, and waits for it. So tables are packed, as the digits
of a number in mixed radix, while the number of codes stays small. Six binary tables are one table of 64 codes, and the
twenty-one pairs among them one pair. Sums over digits give back what belongs to each table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# The cross-tabulation of two packed tables stays in the second-level cache.
MAX_CODES = 128
# It has at most this many cells for each row, so that summing over digits costs less than the rows do.
CELLS_PER_ROW = 0.25
# With fewer pairs of entries than this packing costs more than it saves.
MIN_PAIRS = 500_000


class Packing:
    """Which tables share a code.

    Parameters
    ----------
    n_groups : array of shape (n_tables,)
        The number of groups of each table.
    codes : sequence of arrays of shape (n_tables, n_rows)
        The group of each row in each table, `n_groups` for rows in none; one array for each block of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.objective.packing import Packing
    >>> codes = np.tile([[0, 1, 1], [0, 0, 1]], 100_000).astype(np.uint8)
    >>> packing = Packing(np.array([2, 2]), [codes])
    >>> packing.offsets, packing.packed(codes)[:, :3]
    (array([0, 4]), array([[0, 2, 3]], dtype=uint8))
    >>> packing.of_groups(np.array([1.0, 0.0, 2.0, 4.0]))
    array([1., 6., 3., 4.])
    """

    def __init__(self, n_groups: np.ndarray, codes: Sequence[np.ndarray]):
        most = _most_codes(len(n_groups), sum(own.shape[1] for own in codes))
        self.n_groups, self.radices = n_groups, n_groups.copy()
        if most > 1:
            self.radices += np.any([own.max(axis=1, initial=0) >= n_groups for own in codes], axis=0)
        self.packs = _packs(self.radices, most)
        self.is_needed = len(self.packs) < len(n_groups)
        # A table that is alone keeps its codes, of which the last may say that a row is in no group.
        sizes = [self.n_groups[p[0]] if len(p) == 1 else self.radices[p].prod() for p in self.packs]
        self.offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        if self.is_needed:
            self._digits = [None if len(pack) == 1 else self._digits_of(pack) for pack in self.packs]
            self._starts = np.cumsum(n_groups) - n_groups

    def _digits_of(self, pack: list[int]) -> np.ndarray:
        """(n_codes, groups of the pack's tables): 1 where the code has the group as a digit."""
        digits = np.indices(tuple(self.radices[pack])).reshape(len(pack), -1)
        return np.concatenate(
            [own[:, None] == np.arange(self.n_groups[t]) for own, t in zip(digits, pack, strict=True)], axis=1
        ).astype(np.float64)

    def packed(self, codes: np.ndarray) -> np.ndarray:
        """The codes of the packs; of a block of rows."""
        if not self.is_needed:
            return codes
        out = np.empty((len(self.packs), codes.shape[1]), dtype=codes.dtype)
        for row, pack in zip(out, self.packs, strict=True):
            row[:] = codes[pack[0]]
            for t in pack[1:]:
                row *= self.radices[t].astype(codes.dtype)
                row += codes[t]
        return out

    def of_groups(self, sums: np.ndarray) -> np.ndarray:
        """Sums by code of the packs, along the first axis, as sums by group of the tables."""
        if not self.is_needed:
            return sums
        out = np.empty((int(self.n_groups.sum()), *sums.shape[1:]))
        for pack, digits, start, stop in zip(
            self.packs, self._digits, self.offsets[:-1], self.offsets[1:], strict=True
        ):
            own = sums[start:stop] if digits is None else digits.T @ sums[start:stop]
            for t in pack:
                n = self.n_groups[t]
                out[self._starts[t] : self._starts[t] + n], own = own[:n], own[n:]
        return out

    def bases(self, by_table: list[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
        """(for each pack a basis by code, given one by group for each table; the place of each table's columns)."""
        out = []
        for pack, digits in zip(self.packs, self._digits, strict=True):
            if digits is None:
                out.append(by_table[pack[0]])
                continue
            parts = np.split(digits, np.cumsum(self.n_groups[pack])[:-1], axis=1)
            out.append(np.concatenate([own @ by_table[t] for own, t in zip(parts, pack, strict=True)], axis=1))
        widths = np.array([basis.shape[1] for basis in by_table])
        in_order = np.concatenate(self.packs)
        starts = np.empty(len(widths), dtype=np.int64)
        starts[in_order] = np.cumsum(widths[in_order]) - widths[in_order]
        return out, np.concatenate([np.arange(a, a + n) for a, n in zip(starts, widths, strict=True)])


def between(bases: list[np.ndarray], matrix: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """basis' matrix basis, for the bases of all tables side by side."""
    pairs = list(zip(bases, offsets[:-1], offsets[1:], strict=True))
    across = np.concatenate([basis.T @ matrix[first:last] for basis, first, last in pairs])
    hessian = np.concatenate([across[:, first:last] @ basis for basis, first, last in pairs], axis=1)
    return (hessian + hessian.T) / 2


def n_packs_of(n_groups: np.ndarray, n_rows: int) -> int:
    """The number of packs if every row is in a group of every table."""
    return len(_packs(n_groups, _most_codes(len(n_groups), n_rows)))


def _most_codes(n_tables: int, n_rows: int) -> int:
    """The most codes of a pack; 1 if packing does not pay."""
    n_pairs = n_tables * (n_tables + 1) // 2 * n_rows
    return min(MAX_CODES, int(np.sqrt(CELLS_PER_ROW * n_rows))) if n_pairs >= MIN_PAIRS else 1


def _packs(radices: np.ndarray, most: int) -> list[list[int]]:
    """The tables of each pack, which has at most `most` codes unless one table alone has more."""
    if most <= 1:
        return [[t] for t in range(len(radices))]
    packs: list[list[int]] = [[]]
    size = 1
    for t in np.argsort(radices, kind="stable").tolist():
        size *= int(radices[t])
        if size > most and packs[-1]:
            packs.append([])
            size = int(radices[t])
        packs[-1].append(t)
    return sorted(packs)
