"""From fitted pairs to the terms of a model: cells become ranges and levels in the user's units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rbr.model.jumps import rise_without
from rbr.model.pairs import Axis, PairTerm
from rbr.model.terms import column_name

if TYPE_CHECKING:
    from rbr.data.binning import Binner
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
        axes = tuple(_axis(binner, fit, table) for table in pair)
        shape = axes[0].n_bins, axes[1].n_bins
        cells = slice(offsets[k], offsets[k + 1])
        shares = objective.tables.shares[cells].reshape(shape)
        term = PairTerm(
            name=" & ".join(axis.name for axis in axes),
            axes=(axes[0], axes[1]),
            values=fit.table(k),
            weights=shares,
            counts=np.round(shares * objective.n_total, 9),
            labels=fit.labels(k),
            loss_drop=drops[k],
            gain=float(fit.gain[k]),
            **{name: sums[cells] for name, sums in observed.items()},
        )
        terms.append(term.compressed())
    return tuple(sorted(terms, key=lambda term: term.columns))


def _axis(binner: Binner, fit: PairFit, table: int) -> Axis:
    """One side of a grid; table and column have the same number, since mains have a table for each column."""
    of_bin, n_ordered = fit.coarse.of(table), int(fit.coarse.n_ordered[table])
    edges, groups = np.empty(0), None
    if binner.is_categorical_[table]:
        levels = binner.categories_[table]
        groups = tuple(
            tuple(level for level, own in zip(levels, of_bin, strict=False) if own == k) for k in range(n_ordered)
        )
    else:
        edges = binner.edges_[table]
        edges = edges[of_bin[1 : len(edges) + 1] != of_bin[: len(edges)]]
    name = column_name(table, binner.feature_names_in_)
    return Axis(table, name, edges, groups, bool(fit.coarse.missing[table]))
