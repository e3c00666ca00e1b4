"""From what a solver found to the terms of a model: numbers by bin become values in the user's units.

Everything that needs the training rows is measured here, once, because a model keeps none of them: the shares of the
bins, the loss without each term, and how well each jump is placed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rbr.model.from_pairs import pair_of_table
from rbr.model.jumps import facts_and_drops
from rbr.model.pairs import AnyTerm
from rbr.model.terms import Term, column_name, labels_of_equal_rows, labels_of_groups, place_of
from rbr.shapes import ShapeSpec

if TYPE_CHECKING:
    from rbr.data.binning import Binner
    from rbr.solvers import Solution

# A line goes on beyond its rows by at most this part of their range.
GAP = 0.1


def terms_of(binner: Binner, solution: Solution, measure: bool) -> tuple[AnyTerm, ...]:
    """The terms of the used tables, by column; pairs come after those of one column."""
    objective, constraints = solution.problem.objective, solution.problem.constraints
    tables, shares, n_total = objective.tables, objective.tables.shares, objective.n_total
    facts, drops = facts_and_drops(solution) if measure else ({}, {})
    observed = _observed(solution) if measure else {}
    terms: list[AnyTerm] = []
    for j in np.sort(solution.support).tolist():
        columns = tables.columns_of(j)
        table = slice(tables.offsets[j], tables.offsets[j + 1])
        n_ordered = int(tables.n_bins[j] - tables.missing[j])
        spec = constraints.spec(j)
        values = equalise_pieces(solution.f[table], solution.labels[table], shares[table], spec)
        facts_of_bins = {name: sums[table] for name, sums in observed.items()}
        if len(columns) > 1:
            own = {"loss_drop": drops.get(j, np.nan), **facts_of_bins}
            terms.append(pair_of_table(binner, tables, j, values, solution.labels[table], n_total, **own))
            continue
        lines = _lines_of(solution, j, binner.edges_[columns[0]])
        labels = _labels(values[:n_ordered], solution.labels[table][:n_ordered], lines.get("slopes"), spec)
        column = columns[0]
        is_category = bool(binner.is_categorical_[column])
        terms.append(
            Term(
                name=_name(columns, binner.feature_names_in_),
                columns=columns,
                kind="category" if is_category else "numeric",
                edges=binner.edges_[column],
                categories=binner.categories_[column] if is_category else None,
                values=values[:n_ordered],
                missing_value=values[n_ordered] if tables.missing[j] else None,
                weights=shares[table],
                counts=_whole_where_close(shares[table] * n_total),
                positions=lines.get("positions", binner.positions_[binner.offsets_[column] :][:n_ordered]),
                labels=labels,
                grouped=spec.is_grouped,
                loss_drop=drops.get(j, np.nan),
                # The pieces of ordered categories have boundaries too, but categories have no edges to place a jump at.
                jump_facts=np.empty((0, 5)) if is_category else facts.get(j, np.empty((0, 5))),
                **{name: value for name, value in lines.items() if name != "positions"},
                **facts_of_bins,
            )
        )
    return tuple(sorted(terms, key=place_of))


def _observed(solution: Solution) -> dict[str, np.ndarray]:
    """By bin, what the training rows of the used tables show: sums of the target and, beside offsets, exposures."""
    objective, used = solution.problem.objective, np.sort(solution.support)
    sums = {"target_sums": _whole_where_close(objective.target_sums(used))}
    exposures = objective.exposure_sums(used)
    if exposures is not None and np.isfinite(exposures).all():
        sums["exposures"] = exposures
    return sums


def _lines_of(solution: Solution, table: int, edges: np.ndarray) -> dict:
    """The positions, slopes and bounds of a table with lines in x; nothing for another one."""
    lines = solution.lines
    if lines is None or table not in lines.bounds:
        return {}
    first, n_ordered = solution.problem.objective.tables.offsets[table], len(edges) + 1
    bins = slice(first, first + n_ordered)
    positions, spreads, slopes = lines.positions[bins], lines.spreads[bins], lines.slopes[bins]
    bounds = np.tile([-np.inf, np.inf], (n_ordered, 1))
    sloped = slopes.reshape(n_ordered, -1)
    labels = labels_of_equal_rows(np.column_stack([sloped, solution.labels[bins]]))
    for piece in np.unique(labels[sloped.any(axis=1)]):
        inside = np.flatnonzero(labels == piece)
        bounds[inside] = _reach(inside[0], inside[-1], positions, spreads, edges, lines.bounds[table])
    return {"positions": positions, "slopes": slopes, "bounds": bounds}


def _reach(first: int, last: int, positions, spreads, edges, of_table: tuple[float, float]) -> tuple[float, float]:
    """How far a line over some bins reaches: to the end of its piece, unless that is far from any of its rows.

    An edge lies midway between two values, which may be far apart; a line is not drawn out into such a gap.
    """
    low, high = positions[first] - 3 * spreads[first], positions[last] + 3 * spreads[last]
    near = GAP * (high - low)
    low = of_table[0] if first == 0 else -np.inf if low - edges[first - 1] <= near else low
    high = of_table[1] if last == len(edges) else np.inf if edges[last] - high <= near else high
    return low, high


def _name(columns: Sequence[int], names: Sequence[str] | None) -> str:
    """The name of a term: that of its column, or of its columns with " & " between them."""
    return " & ".join(column_name(column, names) for column in columns)


def equalise_pieces(f: np.ndarray, labels: np.ndarray, shares: np.ndarray, spec: ShapeSpec) -> np.ndarray:
    """The table with exactly equal values in all bins of a constant piece, where refits leave rounding errors."""
    values = np.array(f, dtype=np.float64)
    if not spec.has_pieces:
        return values
    for column, pieces in zip(np.atleast_2d(values.T), np.atleast_2d(labels.T), strict=True):
        for piece in np.unique(pieces[(pieces >= 0) & (pieces % 2 == 0)]):
            inside = np.flatnonzero(pieces == piece)
            column[inside] = column[inside[np.argmax(shares[inside])]]
    return values


def _labels(values: np.ndarray, labels: np.ndarray, slopes: np.ndarray | None, spec: ShapeSpec) -> np.ndarray:
    """2 * piece + is_line for each ordered bin; with classes, two bins share a piece if they do in every class."""
    rows = values.reshape(len(values), -1)
    if not spec.has_pieces:
        return labels_of_equal_rows(rows)
    keys = labels.reshape(len(labels), -1)
    rises = np.zeros(rows.shape) if slopes is None else slopes.reshape(rows.shape)
    if rises.any():  # beside the line of one class, the steps of another are pieces
        keys = np.column_stack([keys, np.where((rises == 0) & rises.any(axis=1, keepdims=True), rows, 0.0)])
    if spec.is_grouped:
        return labels_of_groups(map(tuple, keys.tolist()))
    out = labels_of_equal_rows(keys)
    first = np.searchsorted(out, out)  # of the bins in the same piece
    is_line = (rows != rows[first]).any(axis=1) | rises.any(axis=1)
    return out + np.isin(out, out[is_line])


def _whole_where_close(counts: np.ndarray) -> np.ndarray:
    """Counts rounded to whole numbers where they are that close: computing them from shares leaves rounding errors."""
    whole = np.rint(counts)
    return np.where(np.abs(counts - whole) <= 1e-9 * np.maximum(np.abs(whole), 1.0), whole, counts)
