"""What an objective over parts hands out for curvatures and merged columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rbr.objective.parts_run import Kept
from rbr.objective.protocol import Accuracy, Groups, Handle


@dataclass(frozen=True, eq=False)
class Curvature(Handle):
    """v_i times the second derivative of row i's loss, or of a parabola above it, for all rows or a sample."""

    by_row: Kept
    is_majorized: bool
    n_sampled: int | None
    known_sums: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    known_total: list[np.ndarray] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Merged(Handle):
    """Groups of bins; the parts merge their codes when they are asked for a Hessian."""

    groups: Groups
    accuracy: Accuracy
