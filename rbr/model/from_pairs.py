"""From fitted pairs to the terms of a model: cells become ranges and levels in the user's units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rbr.model.jumps import rise_without
from rbr.model.pairs import Axis, PairTerm
from rbr.model.terms import column_name

if TYPE_CHECKING:
    from rbr.data.binning import Binner
    from rbr.objective.protocol import Tables
    from rbr.solvers.pairs import PairFit


def pair_terms(binner: Binner, fit: PairFit | None, measure: bool = True) -> tuple[PairTerm, ...]:
    """The terms of fitted pairs, whose bins a binner made; no pairs give no terms."""
    if fit is None:
        return ()
    objective, offsets = fit.objective, fit.objective.tables.offsets
    everything = np.arange(fit.n_pairs)
    drops = np.full(fit.n_pairs, np.nan)
    observed = {}
    if measure:
        changes = objective.changes(fit.point)
        drops = np.array([rise_without(changes, k, objective.n_outputs) for k in everything.tolist()])
        observed["target_sums"] = objective.target_sums(everything)
        exposures = objective.exposure_sums(everything)
        if exposures is not None and np.isfinite(exposures).all():
            observed["exposures"] = exposures
    terms = []
    for k, pair in enumerate(fit.pairs.tolist()):
        # Table and column have the same number, since mains have a table for each column.
        sides = [(table, fit.coarse.of(table), int(fit.coarse.n_ordered[table])) for table in pair]
        axes = [axis_of(binner, *side, bool(fit.coarse.missing[side[0]])) for side in sides]
        cells = slice(offsets[k], offsets[k + 1])
        own = {name: sums[cells] for name, sums in observed.items()}
        shares, n_total = objective.tables.shares[cells], objective.n_total
        term = pair_term(axes, fit.table(k), shares, n_total, fit.labels(k), loss_drop=drops[k], **own)
        terms.append(replace(term, gain=float(fit.gain[k])).compressed())
    return tuple(sorted(terms, key=lambda term: term.columns))


def pair_of_table(binner: Binner, tables: Tables, table: int, values, labels: np.ndarray, n_total, **facts) -> PairTerm:
    """The term of a table of two columns that a solution has; its bins must be those of `with_pairs`."""
    columns = tables.columns_of(table)
    if len(columns) > 2 or tables.grids is None or tables.coarse is None:
        names = " & ".join(column_name(column, binner.feature_names_in_) for column in columns)
        raise ValueError(
            f"table {table} looks at the columns {names}, and where its bins lie is not known; a model of a solution "
            "has tables of one column, and pairs that rbr.data.grids.with_pairs made of rows in memory"
        )
    n_ordered, missing = tables.grids[table, :2].tolist(), tables.grids[table, 2:4].tolist()
    axes = []
    for column, n, has_missing in zip(columns, n_ordered, missing, strict=True):
        (main,) = np.flatnonzero((tables.columns[:, 0] == column) & (tables.columns[:, 1:] < 0).all(axis=1))
        of_bin = tables.coarse[tables.offsets[main] : tables.offsets[main + 1]]
        axes.append(axis_of(binner, column, of_bin, n, bool(has_missing)))
    _, rectangle = np.unique(labels.reshape(len(labels), -1), axis=0, return_inverse=True)
    shape = axes[0].n_bins, axes[1].n_bins
    shares = tables.shares[tables.offsets[table] : tables.offsets[table + 1]]
    values = values.reshape(*shape, *values.shape[1:])
    return pair_term(axes, values, shares, n_total, rectangle.reshape(shape), **facts).compressed()


def pair_term(axes: Sequence[Axis], values, shares, n_total: float, labels: np.ndarray, **facts) -> PairTerm:
    """The term of a grid, named after its columns."""
    shares = shares.reshape(axes[0].n_bins, axes[1].n_bins)
    return PairTerm(
        name=" & ".join(axis.name for axis in axes),
        axes=(axes[0], axes[1]),
        values=values,
        weights=shares,
        counts=np.round(shares * n_total, 9),
        labels=labels,
        **facts,
    )


def axis_of(binner: Binner, column: int, of_bin: np.ndarray, n_ordered: int, has_missing: bool) -> Axis:
    """One side of a grid, given the bin that each bin of its column lies in."""
    edges, groups = np.empty(0), None
    if binner.is_categorical_[column]:
        levels = binner.categories_[column]
        groups = tuple(
            tuple(level for level, own in zip(levels, of_bin, strict=False) if own == k) for k in range(n_ordered)
        )
    else:
        edges = binner.edges_[column]
        edges = edges[of_bin[1 : len(edges) + 1] != of_bin[: len(edges)]]
    return Axis(column, column_name(column, binner.feature_names_in_), edges, groups, has_missing)
