"""The constraint set C and the maps onto it: P_C = P_G o P_L o P_zm, and the proximal step with a jump cost.

`Constraints` is what a user writes down: limits, shapes, prices. `bind` resolves it once for the tables of a
design (one shape, one limit, one position per bin) and a solver then calls `BoundConstraints.prox` thousands of times.
"""

from rbr.constraints.bound import DEFAULT_MAX_SEGMENTS, BoundConstraints
from rbr.constraints.constraints import DEFAULT_JUMP_COST, SEGMENTATIONS, Constraints
from rbr.constraints.grids import MOST_EXACT, cut_into_rectangles
from rbr.constraints.positions import POSITIONS, bin_positions
from rbr.constraints.search import SCREENING_PRICE_FACTOR, Prox, Unread

__all__ = [
    "SCREENING_PRICE_FACTOR",
    "DEFAULT_JUMP_COST",
    "DEFAULT_MAX_SEGMENTS",
    "MOST_EXACT",
    "POSITIONS",
    "SEGMENTATIONS",
    "BoundConstraints",
    "Constraints",
    "Prox",
    "Unread",
    "bin_positions",
    "cut_into_rectangles",
]
