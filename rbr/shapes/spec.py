"""What the rest of the library needs to know about a shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rbr.shapes.bases import indicators_and_lines
from rbr.shapes.codes import constant_code, log_of_bins

Search = Callable[..., tuple[np.ndarray, np.ndarray, float]]


@dataclass(frozen=True)
class ShapeSpec:
    """One shape.

    Attributes
    ----------
    name : str
        The name that users give.
    search : str or callable
        The name of the kernel that finds the best tables, in `rbr._fast` and `rbr.reference` alike; or a function
        ``search(u, w, x, limit, price) -> (table, labels, code)`` of one table's ordered bins: values, weights and
        positions of the bins, the limit on pieces and the price of a unit of code. It returns the best table of the
        shape, 2 * piece + is_line for each bin, and its code length.
    on_grid : bool
        Whether its tables are the cells of grids of two columns. Then `search` and `basis` are given a `Grid` in place
        of the positions and all cells, those of missing values too, and the two functions of code lengths are given
        grids in place of numbers of ordered bins.
    is_smooth : bool
        Whether its tables pay for their roughness, and are not made of pieces.
    code_length : callable
        ``code_length(n_pieces, n_lines, n_ordered) -> float`` of a table that is not zero.
    cheapest_code : callable
        ``cheapest_code(n_ordered, limits) -> array``: for each table a lower bound on the code of one that is not zero.
    basis : callable
        ``basis(labels, weights, positions, has_missing) -> (columns, groups, n_groups)``: tables that span those with
        the given pieces, constants included; bins that share a group have equal rows.
    monotone : {0, 1, -1}
        1: refitted pieces are pooled until they increase; -1: until they decrease.
    is_grouped : bool
        Whether pieces are groups of bins that need not be neighbours.
    has_jumps : bool
        Whether pieces are runs of neighbouring bins, so that a jump lies between two and may move.
    has_lines : bool
        Whether pieces may be lines.
    has_pieces : bool
        Whether a constant piece is one value, shared by all of its bins.
    can_be_resegmented : bool
        Whether its pieces may be searched again in the geometry of the curvature.
    can_be_sampled : bool
        Whether a fit may begin on a sample, whose bins do not weigh the same.
    needs_equal_weights : bool
        Whether the search is exact only where all ordered bins weigh the same.
    is_never_flat : bool
        Whether even the simplest table pays for more than its missing bin, as a line or a free table does.
    """

    name: str
    search: str | Search
    code_length: Callable[[int, int, Any], float] = constant_code
    cheapest_code: Callable[[Any, np.ndarray], np.ndarray] = log_of_bins
    basis: Callable[..., tuple[np.ndarray, np.ndarray, int]] = indicators_and_lines
    monotone: int = 0
    is_grouped: bool = False
    has_jumps: bool = True
    has_lines: bool = False
    has_pieces: bool = True
    can_be_resegmented: bool = True
    can_be_sampled: bool = True
    needs_equal_weights: bool = False
    is_never_flat: bool = False
    on_grid: bool = False
    is_smooth: bool = False
