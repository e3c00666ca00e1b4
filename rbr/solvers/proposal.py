"""The kinds of single moves, and what a move or a search of pieces proposes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Swap:
    """Feature `out` leaves, feature `into` enters in its place."""

    out: int
    into: int


@dataclass(frozen=True)
class Entry:
    """Feature `into` joins the used ones."""

    into: int


@dataclass(frozen=True)
class Shift:
    """The jump of a feature's table (of one class) in front of bin `start` moves in front of bin `stop`."""

    feature: int
    output: int
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class Proposal:
    """Tables and pieces to refit, the move that made them, and the predicted decrease of the objective (`promise`)."""

    change: Swap | Entry | Shift | tuple[Shift, ...] | None
    f: np.ndarray
    support: np.ndarray
    labels: np.ndarray
    promise: float = np.nan
    intercept_move: float = 0.0  # the change of the intercept to first order, if known

    def promises_enough(self, least: float) -> bool:
        """Whether it promises at least half of what it must gain: a refit of all tables may double the gain."""
        return self.promise > 0 and 2 * self.promise >= least
