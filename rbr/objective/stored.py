"""The objective over the rows of a store: parts whose codes and vectors by row lie in memory-mapped files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from rbr._parallel import resolve_n_jobs
from rbr.data.passes import Reader, load_values
from rbr.data.store import Store, StoredColumns
from rbr.losses import Loss
from rbr.objective.values import ColumnValues


class StoredValues(ColumnValues):
    """The columns of a part; those that are asked for together are read from the source in one pass."""

    def columns(self, chosen: Sequence[int]) -> Iterator[tuple[slice, np.ndarray]]:
        if isinstance(self._table, StoredColumns):
            self._table.need(chosen)
        return super().columns(chosen)

    def at(self, rows) -> StoredValues:
        other = super().at(rows)
        other.__class__ = StoredValues
        return other  # type: ignore[return-value]


def stored_objective(
    store: Store, reader: Reader, loss: Loss, *, weights_kind: str = "counts", n_jobs: int | None = None
):
    """The mean loss over the rows of a store."""
    from rbr.objective.rows import RowBlock, RowObjective

    n_threads = resolve_n_jobs(n_jobs)
    y_all, w_all, o_all = store.array("y"), store.array("weight"), store.array("offset")
    n_total = store.n_rows if w_all is None else float(w_all.sum())
    blocks = []
    for a, b in store.part_bounds():
        w = None if w_all is None else np.asarray(w_all[a:b])
        v = np.full(b - a, 1 / n_total) if w is None else w / n_total
        y = np.asarray(y_all[a:b])
        y = y.astype(np.int64) if loss.name == "multinomial" else y
        o = None if o_all is None else np.asarray(o_all[a:b])
        values = StoredValues(StoredColumns(store, a, b, partial(load_values, reader, store)))
        blocks.append(
            RowBlock(
                store.design(a, b, weights_kind).with_weights(
                    weights_kind, sample_weight=w if w is not None else np.ones(b - a)
                ),
                y,
                v,
                o,
                values,
                w,
            )
        )
    y = np.concatenate([k.y for k in blocks])
    return RowObjective(
        blocks,
        loss.prepare(y, np.concatenate([k.v for k in blocks]), o_all),
        n_outputs=loss.n_outputs(y),
        n_total=n_total,
        n_threads=n_threads,
    )
