"""The objective over the rows of a store, whose codes, targets and weights lie in memory-mapped files.

Many rows are parts, whose vectors by row lie in such files too. Up to `averaged_rows` rows, which may be averaged over
all ways to cut their tables, the vectors are small: they are kept in memory, in one block, and the fit has the bits of
one to rows in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from rbr._options import DEFAULTS, SolverOptions
from rbr._parallel import resolve_n_jobs
from rbr.data.passes import Reader, load_values
from rbr.data.store import ROWS_PER_PART, Store, StoredColumns
from rbr.losses import Loss
from rbr.objective.make import make_objective
from rbr.objective.parts import ROWS_PER_LEAF, LocalParts, Part, PartsObjective, parts_objective
from rbr.objective.rows import RowObjective
from rbr.objective.values import ColumnValues

assert ROWS_PER_PART % ROWS_PER_LEAF == 0, "a part of a store must be whole leaves"


class StoredValues(ColumnValues):
    """The columns of a part; those that are needed together are read from the source in one pass."""

    def __init__(self, columns: StoredColumns):
        super().__init__(columns)
        self._columns = columns

    def need(self, columns: Sequence[int]) -> None:
        self._columns.need(columns)


def stored_objective(
    store: Store,
    reader: Reader,
    loss: Loss,
    *,
    weights_kind: Literal["counts", "uniform"] = "counts",
    n_jobs: int | None = None,
    options: SolverOptions = DEFAULTS,
) -> RowObjective | PartsObjective:
    """The mean loss over the rows of a store; `reader` gets the values of columns that the store does not have."""
    load = partial(load_values, reader, store)
    if store.n_rows <= options.averaged_rows:
        return _in_memory(store, loss, weights_kind, n_jobs, options, load)
    parts = []
    for first, stop in store.part_bounds():
        y, weight, offset = (None if a is None else a[first:stop] for a in map(store.array, ("y", "weight", "offset")))
        values = StoredValues(StoredColumns(store, first, stop, load))
        design = store.design(first, stop, weights_kind)
        folder, leaf = str(store.scratch), first // ROWS_PER_LEAF
        parts.append(Part(design, y, weight, offset, values, leaf, folder))  # type: ignore[arg-type]
    return parts_objective(LocalParts(parts, n_threads=resolve_n_jobs(n_jobs)), loss=loss, options=options)


def _in_memory(store: Store, loss: Loss, weights_kind, n_jobs, options: SolverOptions, load) -> RowObjective:
    y, weight, offset = (None if a is None else np.array(a) for a in map(store.array, ("y", "weight", "offset")))
    design = store.design(0, store.n_rows, weights_kind, np.ones(store.n_rows) if weight is None else weight)
    rows = {"loss": loss, "sample_weight": weight, "offset": offset, "n_jobs": n_jobs, "options": options}
    objective = make_objective(design, y, **rows)  # type: ignore[arg-type]
    values = StoredValues(StoredColumns(store, 0, store.n_rows, load))
    return objective._with([replace(objective._blocks[0], values=values)], objective.n_total)
