"""Better places for jumps between constant pieces, from the values within bins.

With all else held, the loss is close to a parabola in each row. For two constant pieces that share a jump, the best
values and the loss at them then follow from sums of row gradients and curvatures up to the jump. So one sort of a
column gives the loss for every place of the jump between the two neighbouring edges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rbr.data.design import BinnedMatrix
from rbr.data.edges import between, codes_of
from rbr.objective.protocol import Point

if TYPE_CHECKING:
    from rbr.objective.rows import RowBlock, RowObjective
    from rbr.objective.values import ColumnValues

LeastRows = Callable[[int, np.ndarray, int], np.ndarray]

# A better place must gain more than this part, so that rounding does not choose between equally good places.
ROUNDING = 1e-11


def better_edges(
    objective: RowObjective,
    point: Point,
    cuts: Mapping[int, tuple[np.ndarray, np.ndarray, np.ndarray]],
    least_shares: np.ndarray,
) -> dict[int, tuple[float, np.ndarray]]:
    """See `Objective.better_edges`."""
    curvature = objective.curvature(point)
    if curvature is not None and not any(a.any() for a in curvature.by_row):
        # All rows are where the loss is straight (Huber, quantile): use the parabolas above it.
        curvature = objective.curvature(point, majorize=True)
    if curvature is None:
        return {}
    loss, f = objective.loss, point.f[:, None] if point.f.ndim == 1 else point.f
    slopes = [
        -(loss.residual(block.y, raw).T * block.v).T
        for block, raw in zip(objective._blocks, point.handle.raw, strict=True)
    ]
    found = {}
    for j, (edges, labels, movable) in cuts.items():
        bins = slice(objective.tables.offsets[j], objective.tables.offsets[j] + len(labels))
        values, sums = _sums_by_value(objective, j, (slopes, curvature.by_row))
        # The minimum of a value's parabola in the table, times its curvature: curvature * f - slope.
        pulls = sums[1] * f[bins][codes_of(values, edges)] - sums[0]
        are_enough = _least_rows_of(objective, j, float(least_shares[j]))
        gain, moved = _moved_edges(values, pulls, sums[1], edges, labels, movable, are_enough)
        if gain > 0:
            found[j] = (gain, moved)
    return found


def _values(block: RowBlock) -> ColumnValues:
    return cast("ColumnValues", block.values)  # `_check_values` has made sure of them


def _sums_by_value(objective: RowObjective, table: int, by_row) -> tuple[np.ndarray, list[np.ndarray]]:
    """The distinct numbers of a table's column, and the sums by them of some arrays by row, (n_values, n_outputs)."""
    column = int(objective.tables.columns[table, 0])
    of_blocks = [_values(block).distinct(column) for block in objective._blocks]
    if len(of_blocks) == 1:
        values, places = of_blocks[0][0], [of_blocks[0][1]]
    else:
        values = np.unique(np.concatenate([own for own, _ in of_blocks]))
        places = [np.searchsorted(values, own)[inverse] for own, inverse in of_blocks]
    n_values = len(values) - int(np.isnan(values[-1]))
    sums = []
    for arrays in by_row:
        total: Any = 0.0
        for array, place in zip(arrays, places, strict=True):
            columns = np.atleast_2d(array.T)
            total = total + np.stack([np.bincount(place, a, minlength=len(values))[:n_values] for a in columns], axis=1)
        sums.append(total)
    return values[:n_values], sums


def _least_rows_of(objective: RowObjective, table: int, least: float) -> LeastRows:
    """A function of (first, places, last), numbers of values: whether the pieces between them hold enough rows."""
    if not least > 0:
        return lambda first, places, last: np.ones(len(places), dtype=bool)
    _, (by_value,) = _sums_by_value(objective, table, ([block.v for block in objective._blocks],))
    up_to = np.concatenate([[0.0], np.cumsum(by_value[:, 0])])
    return lambda first, places, last: np.minimum(up_to[places] - up_to[first], up_to[last] - up_to[places]) >= least


def _moved_edges(values, pulls, curvatures, edges, labels, movable, are_enough: LeastRows) -> tuple[float, np.ndarray]:
    """(decrease of the loss that the parabolas predict, edges), each jump moved in turn from left to right."""
    zero = np.zeros((1, pulls.shape[1]))
    pulls, curvatures = (np.concatenate([zero, np.cumsum(a, axis=0)]) for a in (pulls, curvatures))
    edges, total_gain = edges.copy(), 0.0
    # Where each bin begins, as the number of values before it; the last entry is the end.
    starts = np.concatenate([[0], np.searchsorted(values, edges, side="right"), [len(values)]])
    first_finite = np.searchsorted(values, -np.inf, side="right")
    last_finite = np.searchsorted(values, np.inf, side="left")
    for k in movable:
        # A place is the number of values below the cut; both bins keep some values, and both sides finite ones.
        places = np.arange(max(starts[k], first_finite) + 1, min(starts[k + 2], last_finite))
        here = starts[k + 1]
        if not len(places) or not starts[k] < here < starts[k + 2]:
            continue
        fits, fit_here = np.zeros(len(places)), 0.0
        for c in np.flatnonzero(labels[k] != labels[k + 1]):
            first, last = starts[_piece(labels[:, c], k).start], starts[_piece(labels[:, c], k + 1).stop]
            at = [_fit(pulls[:, c], curvatures[:, c], first, p, last) for p in (places, here)]
            fits = np.where(are_enough(first, places, last), fits + at[0], -np.inf)
            fit_here = fit_here + at[1]
        best = int(np.argmax(fits))
        if fits[best] - fit_here > ROUNDING * abs(fit_here) and places[best] != here:
            starts[k + 1] = places[best]
            edges[k] = between(values[places[best] - 1], values[places[best]])
            total_gain += float(fits[best] - fit_here) / 2
    return total_gain, edges


def _piece(labels: np.ndarray, k: int) -> slice:
    """The bins of the piece that bin k belongs to."""
    cuts = np.concatenate([[0], np.flatnonzero(np.diff(labels)) + 1, [len(labels)]])
    piece = int(np.searchsorted(cuts, k, side="right"))
    return slice(cuts[piece - 1], cuts[piece])


def _fit(pulls, curvatures, first, place, last):
    """How much two constants, below and above a place, explain: the sum of pull^2 / curvature over the two."""
    total = 0.0
    for start, stop in ((first, place), (place, last)):
        pull, curvature = pulls[stop] - pulls[start], curvatures[stop] - curvatures[start]
        total = total + np.divide(pull**2, curvature, out=np.zeros_like(pull), where=curvature > 0)
    return total


def rebinned(blocks: Sequence[RowBlock], edges: Mapping[int, np.ndarray]) -> list[RowBlock]:
    """The blocks with some tables cut at other edges, and with the shares and means of the new bins."""
    codes = [block.design.codes.copy() for block in blocks]
    first = blocks[0].design
    positions = None if first.positions is None else first.positions.copy()
    for j, own in edges.items():
        weight, moment = np.zeros(len(own) + 1), np.zeros(len(own) + 1)
        for block, of_block in zip(blocks, codes, strict=True):
            values, inverse = _values(block).distinct(int(first.columns[j, 0]))
            of_block[j] = codes_of(values, own).astype(of_block.dtype)[inverse]
            finite = np.flatnonzero(np.isfinite(values))
            by_value = np.bincount(inverse, block.v, minlength=len(values))[finite]
            weight += np.bincount(of_value := codes_of(values[finite], own), by_value, minlength=len(weight))
            moment += np.bincount(of_value, by_value * values[finite], minlength=len(weight))
        if positions is not None:
            means = positions[first.offsets[j] :][: len(weight)]
            np.divide(moment, weight, out=means, where=weight > 0)
    return [
        replace(block, design=_with_codes(block, of_block, positions))
        for block, of_block in zip(blocks, codes, strict=True)
    ]


def _with_codes(block: RowBlock, codes: np.ndarray, positions: np.ndarray | None) -> BinnedMatrix:
    design = block.design
    kept = {"missing": design.missing, "columns": design.columns, "positions": positions}
    matrix = BinnedMatrix(codes, design.offsets, sample_weight=block.v, **kept)
    return matrix.with_weights(design.weights_kind)
