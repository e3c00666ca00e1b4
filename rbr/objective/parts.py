"""The objective over parts: rows that lie in files or on other machines, with the answers of rows in memory.

A `Part` is a run of consecutive rows. Rows are numbered over all parts, and a *leaf* is a run of ROWS_PER_LEAF of
these numbers: leaf k holds the rows k * ROWS_PER_LEAF to (k + 1) * ROWS_PER_LEAF - 1. A part consists of whole leaves;
only the last leaf of all may be shorter. Every answer is a sum over rows. It is taken leaf by leaf, and leaves are added
along a binary tree over their numbers (`rbr.objective.parts_tree`), so that the cuts between parts, the blocks of a
file and the number of workers cannot change a bit. Samples are drawn by the number of a row, for the same reason.

What is kept by row (scores, residuals, curvatures) stays with its part; the objective holds it as a `Kept` handle. An
executor maps a function over the parts: `LocalParts` here, one part after another in this process, and
`rbr.distributed.DaskParts` on the workers of a cluster.

How to make one
---------------
    part = Part(design, y, weight=None, offset=None, values=None, first_leaf=0, scratch=None)
    objective = parts_objective(LocalParts([part, ...], n_threads=2), loss="log_loss", options=None)
    rbr.solve(objective=objective, constraints=...)

design : BinnedMatrix of the part's rows, all of the same bins. Its codes may be a read-only memmap; its weights are not
    read but for `weights_kind` (the shares of the bins are summed over all parts):
    ``BinnedMatrix._from_valid(codes, offsets, missing, positions, columns, "counts", any_shares)`` costs nothing.
y : numbers (class codes 0, 1, ... for classes), a vector or a memmap.
weight : sample weights, or None in all parts; no row of weight zero.
offset : (n_rows,) or (n_rows, n_outputs), or None in all parts.
values : `rbr.objective.values.ColumnValues` of the part's rows, or None: then lines and cuts stay within bins.
first_leaf : number of the part's first leaf; its rows before are `first_leaf * ROWS_PER_LEAF`. `leaves_of(n_rows, n_parts)`
    cuts rows into parts of whole leaves.
scratch : a directory for vectors by row, which are then memory-mapped files without a name that vanish with the
    process; None keeps them in memory.
"""

ROWS_PER_LEAF = 1 << 16
