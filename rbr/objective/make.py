"""`make_objective`: from a user's arguments to an objective over rows in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rbr._checks import check_nonnegative, check_vector
from rbr._options import DEFAULTS, SolverOptions
from rbr._parallel import resolve_n_jobs
from rbr.data.design import BinnedMatrix
from rbr.losses import Loss, get_loss
from rbr.objective.rows import RowBlock, RowObjective
from rbr.objective.values import ColumnValues


def make_objective(
    B: BinnedMatrix,
    y: ArrayLike,
    *,
    loss: str | Loss = "squared_error",
    sample_weight: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    X: Any = None,
    n_jobs: int | None = None,
    options: SolverOptions | None = None,
) -> RowObjective:
    """The mean loss over the rows of a binned matrix, to be passed to `solve(objective=...)`.

    Parameters
    ----------
    B : BinnedMatrix
    y : array of shape (n_rows,)
        For "log_loss" labels 0 and 1, for "multinomial" class codes 0, 1, ….
    loss : str or a loss of rbr.losses
    sample_weight : array of shape (n_rows,), optional
        An integer weight stands for repeated rows; rows of weight zero are left out.
    offset : array of shape (n_rows,), or (n_rows, n_classes) for "multinomial", optional
        Added to every raw prediction.
    X : array, frame or sparse matrix of shape (n_rows, n_columns), optional
        The table that B was made from. The methods that need values within bins need it.
    n_jobs : int, optional
        Threads; no result depends on their number.
    options : SolverOptions, optional
        The numbers that steer a fit; see `rbr.SolverOptions`.

    Examples
    --------
    >>> import numpy as np
    >>> import rbr
    >>> B = rbr.BinnedMatrix([[0, 0, 1, 1]], offsets=[0, 2])
    >>> objective = rbr.make_objective(B, [0.0, 1.0, 4.0, 5.0])
    >>> rbr.solve(objective=objective, constraints=rbr.Constraints(max_segments=2)).f
    array([-2.,  2.])
    """
    if not isinstance(B, BinnedMatrix):
        raise TypeError(f"B is a {type(B).__name__}; it must be a BinnedMatrix, as Binner.transform makes it")
    n_threads, loss, n_rows = resolve_n_jobs(n_jobs), get_loss(loss), B.n_rows
    if n_rows == 0:
        raise ValueError("B has no rows; at least one is needed")
    shape = np.shape(y)
    if len(shape) == 1 and shape[0] != n_rows:
        raise ValueError(f"y has length {shape[0]}, but B has {n_rows} rows; they must agree")
    if sample_weight is None:
        v, n_total, used = np.full(n_rows, 1.0 / n_rows), float(n_rows), None
    else:
        given = check_nonnegative(sample_weight, n_rows, "sample_weight")
        if not given.any():
            raise ValueError("sample_weight is all zero; at least one row must have a positive weight")
        n_total = float(given.sum())
        v, used = given / n_total, given > 0
    y = loss.validate(y, v)
    n_outputs = loss.n_outputs(y)
    if offset is not None:
        offset = _check_offset(offset, n_rows, n_outputs)
    if used is not None:
        if not used.all():
            B, y, v, given = B[used], y[used], np.ascontiguousarray(v[used]), given[used]
            offset = None if offset is None else offset[used]
        B = B.with_weights(B.weights_kind, sample_weight=given)
    values = None if X is None else ColumnValues(X, None if used is None or used.all() else np.flatnonzero(used))
    block = RowBlock(B, y, v, offset, values, None if used is None else given)
    if options is not None and not isinstance(options, SolverOptions):
        raise TypeError(f"options is a {type(options).__name__}; it must be a SolverOptions")
    return RowObjective(
        [block],
        loss.prepare(y, v, offset),
        n_outputs=n_outputs,
        n_total=n_total,
        n_threads=n_threads,
        options=DEFAULTS if options is None else options,
    )


def _check_offset(offset, n_rows: int, n_outputs: int) -> np.ndarray:
    if n_outputs == 1:
        return check_vector(offset, n_rows, "offset")
    offset = np.asarray(offset, dtype=np.float64)
    if offset.shape != (n_rows, n_outputs) or not np.isfinite(offset).all():
        raise ValueError(f"offset has shape {offset.shape}; it must be finite and of shape ({n_rows}, {n_outputs})")
    return offset
