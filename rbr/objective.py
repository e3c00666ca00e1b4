"""A loss over a binned design: its value, its table-gradient, its curvature. The only room that touches rows in a fit.

A solver sees tables of n_coef numbers and a `Point`; whether the rows live in memory, in a file or on other
machines is decided here. Rows are swept in fixed blocks and every sum is taken in their order, so the answer
has the same bits for any number of threads.
Looks at: rbr.design, rbr.losses, the kernels.  Seen by: rbr.solver, rbr.refit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rbr._backend import kernels
from rbr.design import MAX_ENTRIES_PER_CALL, BinnedMatrix
from rbr.losses import BLOCK_ROWS, THREADED_ROWS
from rbr.parallel import over_ranges
from rbr.ragged import bins_of
from rbr.sampling import spread_rows

# The curvature of the constant model, which sets the length of some steps, is that of so many rows.
CURVATURE_ROWS = 1 << 16


@dataclass(frozen=True, eq=False)
class Point:
    """Tables with their refitted intercept, the raw predictions they give, and the mean loss there."""

    f: np.ndarray
    support: np.ndarray
    intercept: float | np.ndarray
    raw: np.ndarray | None  # None where no rows are at hand (rbr.gram)
    loss: float
    gradient: np.ndarray | None = None  # of the used features at least, where somebody has computed it


class Objective:
    """The mean loss of c + X f over the weighted rows, minimised over the intercept c.

    Parameters
    ----------
    design : BinnedMatrix
    y : array of shape (n_rows,), as the loss's `validate` returns it
    loss : a loss of rbr.losses
    row_weights : array of shape (n_rows,)
        v, the sample weights scaled to sum 1.
    n_total : float
        n, the sum of the sample weights: an integer weight stands for repeated rows.
    offset : array of shape (n_rows,) or (n_rows, n_outputs), optional
        Added to every raw prediction.
    n_threads : int
    """

    def __init__(self, design: BinnedMatrix, y, loss, *, row_weights, n_total, offset=None, n_threads=1):
        self.design, self.y, self.loss = design, y, loss
        self.row_weights, self.n_total = row_weights, n_total
        self.offset, self.n_threads = offset, n_threads
        self.n_outputs = loss.n_outputs(y)
        self.n_columns_read = 0
        self.n_gradients = 0
        self.n_newton_steps = 0

    @property
    def n_passes(self) -> float:
        """Full passes over the codes so far: columns read over columns there are."""
        return self.n_columns_read / max(self.design.n_features, 1)

    def sample(self, n_rows: int) -> Objective:
        """The same loss over a sample of rows, see `spread_rows`; n is that of the sample."""
        rows = spread_rows(len(self.y), n_rows)
        v = self.row_weights[rows]
        share = v.sum()
        v /= share
        design = self.design.at(rows, sample_weight=v, n_threads=self.n_threads)
        return Objective(
            design,
            self.y[rows],
            self.loss,
            row_weights=v,
            n_total=self.n_total * share,
            offset=None if self.offset is None else self.offset[rows],
            n_threads=self.n_threads,
        )

    def count_work_of(self, sample: Objective) -> None:
        """Add what was done on a sample of these rows to the counts, in columns of all rows."""
        self.n_columns_read += sample.n_columns_read * len(sample.y) / len(self.y)
        self.n_gradients += sample.n_gradients
        self.n_newton_steps += sample.n_newton_steps

    def zero_tables(self) -> np.ndarray:
        shape = (self.design.n_coef,) if self.n_outputs == 1 else (self.design.n_coef, self.n_outputs)
        return np.zeros(shape)

    @cached_property
    def _constant_intercept(self) -> float | np.ndarray:
        return self.loss.constant_start(self.y, self.row_weights, self.offset)

    @cached_property
    def constant_loss(self) -> float:
        """The loss of the best model without features."""
        args = self.y, self.row_weights, self._constant_intercept
        return self.loss.constant_value(*args, self.offset, self.n_threads)

    @cached_property
    def constant_curvature(self) -> float:
        """The mean curvature there, of the output where it is largest; from a sample, if rows are many."""
        n_rows = len(self.y)
        rows = slice(None) if n_rows <= CURVATURE_ROWS else spread_rows(n_rows, CURVATURE_ROWS)
        y, v = self.y[rows], self.row_weights[rows]
        raw = np.zeros(len(y) if self.n_outputs == 1 else (len(y), self.n_outputs)) + self._constant_intercept
        raw += 0.0 if self.offset is None else self.offset[rows]
        curvature = self.loss.curvature(y, raw, v=v / v.sum())
        return max(float(curvature.sum(axis=0).max()), 1e-300)

    def point(self, f: np.ndarray, support: np.ndarray, start=None) -> Point:
        """The point at given tables: one look-up pass over the used features, then the intercept and the loss."""
        loss, y, v = self.loss, self.y, self.row_weights
        raw = self.row_sums(f, support)
        if self.offset is not None:
            raw += self.offset
        if start is None:
            start = self._constant_intercept
            if not len(support):
                raw += start
                return Point(f, support, start, raw, loss.value(y, raw, v, self.n_threads))
        intercept, value = loss.settle(y, raw, v, start, self.n_threads)
        return Point(f, support, intercept, raw, value)

    def gradient(self, point: Point, features: np.ndarray | None = None) -> np.ndarray:
        """-(1 / w_jk) * sum of v_i residual_i over the rows of bin k, 0 where w_jk = 0; of given features if asked."""
        features = np.arange(self.design.n_features) if features is None else features
        self.n_gradients += 1
        return self._gradient_of(self._weighted_residual(point.raw), features)

    def lazy_gradient(self, point: Point) -> LazyGradient:
        """The gradient at a point, whose columns are summed when they are first asked for."""
        self.n_gradients += 1
        return LazyGradient(self, self._weighted_residual(point.raw))

    def residual_distance(self, one: np.ndarray, other: np.ndarray, rounding: float) -> np.ndarray:
        """sqrt(sum_i v_i (r_i - r'_i)^2) of weighted residuals v_i r_i, for each output; plus a part of r's norm."""
        squares = np.empty((2, self.n_outputs))
        sums = np.empty((-(-len(self.y) // BLOCK_ROWS), 2))
        n_threads = self.n_threads if len(self.y) >= THREADED_ROWS else 1
        with np.errstate(over="ignore", invalid="ignore"):  # an infinite distance bounds nothing, which is right
            for c, (a, b) in enumerate(zip(np.atleast_2d(one.T), np.atleast_2d(other.T), strict=True)):
                over_ranges(kernels().squared_distances, len(sums), n_threads, a, b, self.row_weights, sums)
                squares[:, c] = sums.sum(axis=0)
        distance, size = np.sqrt(squares)
        return distance + rounding * size

    def _weighted_residual(self, raw: np.ndarray) -> np.ndarray:
        """v_i times the residual of row i; each output contiguous."""
        out = np.empty(raw.shape, order="F")
        return self.loss.residual(self.y, raw, out, v=self.row_weights, n_threads=self.n_threads)

    def _gradient_of(self, residual: np.ndarray, features: np.ndarray) -> np.ndarray:
        """The gradient's columns of some features, zero elsewhere, from the weighted residual."""
        return self._as_gradient(self.bin_sums(residual, features), features)

    def _as_gradient(self, sums: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Sums by bin over the weights, with the sign of a gradient; `sums`, zero but for some features, is used up."""
        weights = self.design.weights
        bins: slice | np.ndarray = slice(None)
        if len(features) < self.design.n_features // 2:
            bins = bins_of(features, self.design.offsets)
        given, w = sums[bins].T, weights[bins]
        sums[bins] = np.divide(-given, w, out=np.zeros_like(given), where=w > 0).T
        return sums if self.n_outputs == 1 else np.ascontiguousarray(sums)

    def curvature(self, point: Point, majorize: bool = False, rows: np.ndarray | None = None) -> np.ndarray | None:
        """v_i times the second derivative of the loss in row i: (n_rows,) or, per output, (n_rows, n_outputs).

        Majorized: v_i times that of a parabola above the loss that touches it; None where there is none. Of a sample of
        rows: with v scaled to sum 1 over them.
        """
        y, raw, v = self.y, point.raw, self.row_weights
        if rows is not None:
            y, raw, v = y[rows], raw[rows], v[rows] / v[rows].sum()
        if not majorize:
            return self.loss.curvature(y, raw, v=v, n_threads=self.n_threads)
        curvature = self.loss.majorized_curvature(y, raw)
        if curvature is not None:
            curvature.T[...] *= v
        return curvature

    def curvature_by_bin(self, curvature: np.ndarray, features: np.ndarray) -> np.ndarray:
        """The `curvature` of all rows summed by bin, over the given features, zero elsewhere."""
        return self.bin_sums(curvature, features)

    def hessian_of_tables(self, point: Point, curvature: np.ndarray, majorize: bool, features: np.ndarray):
        """The Hessian as a map from tables of some features to sums by bin, the intercept eliminated.

        Raw predictions d_i give v_i H_i (d_i - c), with H_i the Hessian of row i and c the intercept's answer.
        """
        if self.n_outputs == 1 or majorize:
            total = np.maximum(curvature.sum(axis=0), 1e-300)

            def of_tables(f):
                raw = self.row_sums(f, features)
                return self.bin_sums(curvature * (raw - (curvature * raw).sum(axis=0) / total), features)

            return of_tables
        of_loss, v = self.loss.hessian(self.y, point.raw), self.row_weights

        def of_rows(raw):
            weighted = of_loss(raw)
            weighted.T[...] *= v
            return weighted

        # What the intercepts take away is known by bin, so every call has one product over the rows instead of two.
        by_bin, of_intercept = [], []
        for unit in np.eye(self.n_outputs):
            weighted = of_rows(np.broadcast_to(unit, point.raw.shape))
            by_bin.append(self.bin_sums(weighted, features))
            of_intercept.append(weighted.sum(axis=0))
        # Adding one number to all outputs changes nothing: an eigenvalue of 0, and rounding must not pass for more.
        inverse = np.linalg.pinv(np.stack(of_intercept), rcond=1e-10, hermitian=True)

        def of_tables(f):
            weighted = of_rows(self.row_sums(f, features))
            answer = inverse @ weighted.sum(axis=0)
            return self.bin_sums(weighted, features) - sum(c * b for c, b in zip(answer, by_bin, strict=True))

        return of_tables

    def dispersion(self, point: Point, df: float = 1.0) -> float:
        """phi around a point: what one number explains by chance, in units of the loss."""
        return self.loss.dispersion(self.y, point.raw, self.row_weights, self.n_total, df)

    def bin_sums(self, values: np.ndarray, features: np.ndarray) -> np.ndarray:
        """X.T @ values over the given features, zero elsewhere."""
        self.n_columns_read += len(features)
        return self.design.rmatvec(values, features=features, n_threads=self.n_threads)

    def row_sums(self, f: np.ndarray, features: np.ndarray) -> np.ndarray:
        """X @ f over the given features."""
        self.n_columns_read += len(features)
        return self.design.matvec(f, features=features, n_threads=self.n_threads)

    def grouped_codes(
        self, features: np.ndarray, groups: np.ndarray, n_groups: np.ndarray, rows: np.ndarray | None = None
    ) -> np.ndarray:
        """The codes of some features, of all rows or a sample, after their bins were merged into groups.

        groups : int per bin of the design: its group within its table, or the number of groups for none
        n_groups : number of groups of each given feature
        """
        design = self.design
        dtype = np.uint8 if n_groups.max(initial=0) <= 255 else np.uint16
        codes = np.empty((len(features), design.n_rows if rows is None else len(rows)), dtype=dtype)
        for row, j, n in zip(codes, features, n_groups, strict=True):
            table = np.append(groups[design.offsets[j] : design.offsets[j + 1]], n).astype(dtype)
            np.take(table, design.codes[j] if rows is None else design.codes[j, rows], out=row, mode="clip")
        self.n_columns_read += len(features) * codes.shape[1] / design.n_rows
        return codes

    def gram_of(self, codes: np.ndarray, offsets: np.ndarray, row_weights: np.ndarray) -> np.ndarray:
        """The weighted cross-tabulation of given codes."""
        n_features, n_rows = codes.shape
        out = np.empty((offsets[-1], offsets[-1]))
        n_pairs = n_features * (n_features + 1) // 2
        self.n_columns_read += n_pairs * n_rows / self.design.n_rows
        n_threads = self.n_threads if n_pairs * n_rows >= 200_000 else 1
        over_ranges(
            kernels().gram,
            n_pairs,
            n_threads,
            *(codes, offsets, np.arange(n_features), row_weights, offsets, out),
            per_call=max(1, MAX_ENTRIES_PER_CALL // n_rows),
        )
        return out


class LazyGradient:
    """The gradient at a point, of which only some columns have been summed: zero elsewhere.

    values : (n_coef,) or (n_coef, n_outputs)
    is_read : bool per feature
    residual : v_i times the residual of row i
    """

    def __init__(self, objective: Objective, residual: np.ndarray):
        self._objective, self.residual = objective, residual
        self.values = objective.zero_tables()
        self.is_read = np.zeros(objective.design.n_features, dtype=bool)

    def read(self, features: np.ndarray) -> None:
        """Sum the columns of those features that were not summed before."""
        features = np.asarray(features, dtype=np.int64)
        features = features[~self.is_read[features]]
        if not len(features):
            return
        objective = self._objective
        gradient = objective._gradient_of(self.residual, features)
        self.values = self.values + gradient if self.is_read.any() else gradient + 0.0
        self.is_read[features] = True
