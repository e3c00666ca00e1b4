"""A pyarrow Table or RecordBatch as a table; pyarrow itself is imported by the program that has one."""

from __future__ import annotations

import sys

import numpy as np

from rbr.data.tables import Table, as_floats, as_numbers, in_order, levels_of_numbers, levels_of_objects, refuse_dates


class ArrowTable(Table):
    """A pyarrow Table or RecordBatch."""

    has_dtypes = True

    def __init__(self, X):
        self.n_rows, self.n_features = X.shape
        self.names = tuple(X.schema.names)
        self._X = X

    def holds_categories(self, j):
        types = sys.modules["pyarrow"].types
        kind = self._X.schema.field(j).type
        return any(
            is_kind(kind) for is_kind in (types.is_dictionary, types.is_string, types.is_large_string)
        ) or "string_view" in str(kind)

    def _column(self, j, rows):
        pyarrow = sys.modules["pyarrow"]
        column = self._X.column(j)
        column = column if rows is None else column.take(pyarrow.array(rows))
        kind = column.type
        if pyarrow.types.is_temporal(kind):
            refuse_dates("M", kind, self.label(j))
        if pyarrow.types.is_floating(kind) or pyarrow.types.is_integer(kind):
            return as_floats(np.asarray(column))  # where nulls have become NaN
        if pyarrow.types.is_boolean(kind) or pyarrow.types.is_decimal(kind) or pyarrow.types.is_null(kind):
            return np.array([np.nan if value is None else float(value) for value in column.to_pylist()])
        objects = np.empty(len(column), dtype=object)
        objects[:] = column.to_pylist()
        return as_numbers(objects, self.label(j))

    def levels(self, j):
        pyarrow = sys.modules["pyarrow"]
        column = self._X.column(j)
        if pyarrow.types.is_dictionary(column.type):
            # The chunks of a column, which a RecordBatch does not have, may number their levels differently.
            whole = column.unify_dictionaries().combine_chunks() if hasattr(column, "chunks") else column
            whole = whole.chunk(0) if isinstance(whole, pyarrow.ChunkedArray) else whole
            return whole.dictionary.to_pylist(), whole.indices.cast(pyarrow.int64()).fill_null(-1).to_numpy(False)
        if pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type):
            whole = column.combine_chunks() if hasattr(column, "chunks") else column
            whole = (whole.chunk(0) if isinstance(whole, pyarrow.ChunkedArray) else whole).dictionary_encode()
            return in_order(
                whole.dictionary.to_pylist(), whole.indices.cast(pyarrow.int64()).fill_null(-1).to_numpy(False)
            )
        if pyarrow.types.is_integer(column.type) and not column.null_count:
            return levels_of_numbers(np.asarray(column))
        return levels_of_objects(column.to_pylist(), self.label(j))
