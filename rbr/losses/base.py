"""What a loss is: value, residual and curvature of a raw score, and what follows from the three."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from rbr._backend import kernels
from rbr._parallel import over_ranges
from rbr._sizes import LOSSES
from rbr.losses.roots import root_of_decreasing
from rbr.losses.sums import BLOCK_ROWS, Rows, RowSums, add_in_order, as_vectors, dot, row_blocks, worth


@dataclass(frozen=True)
class Loss:
    """A convex loss of raw scores; the base of all losses in this room.

    Arguments mean the same everywhere: `y` as returned by `validate`, `z` the raw scores (n,), for
    multinomial (n, K), and `v` the weights of the rows, at least 0, scaled to sum 1.
    """

    name: ClassVar[str]
    link: ClassVar[str] = "identity"
    has_known_dispersion: ClassVar[bool] = False  # a likelihood whose variance follows from its mean
    is_straight_in_places: ClassVar[bool] = False  # there averages use its `majorized_curvature`
    is_parabola: ClassVar[bool] = False  # it curves the same at every score of every row
    is_curved_everywhere: ClassVar[bool] = False  # so that rounding does not decide between equally good tables

    # What each loss defines: these three, or `_evaluate_block` where they share work ------------------------

    def row_values(self, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        """loss(y_i, z_i) of each row."""
        raise TypeError(f"{type(self).__name__} must define row_values, row_residuals and row_curvatures")

    def row_residuals(self, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        """-dloss(y_i, z_i)/dz_i of each row."""
        raise TypeError(f"{type(self).__name__} must define row_values, row_residuals and row_curvatures")

    def row_curvatures(self, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        """d2loss(y_i, z_i)/dz_i^2 of each row, at least 0: a loss is convex."""
        raise TypeError(f"{type(self).__name__} must define row_values, row_residuals and row_curvatures")

    # What it may define ---------------------------------------------------------------------------------------

    def _kernel(self) -> tuple[str, float, float] | None:
        """Where the three are compiled: the name of the loss in rbr/_fast/losses.h, and its two parameters."""
        return None

    def _evaluate_block(self, y, z, values, residual, curvature) -> None:
        """Write loss, -dloss/dz and d2loss/dz2 into those of the three arrays that are not None."""
        for out, of_rows in (
            (values, self.row_values),
            (residual, self.row_residuals),
            (curvature, self.row_curvatures),
        ):
            if out is not None:
                out[...] = of_rows(y, z)

    def _check_domain(self, y: np.ndarray, used: np.ndarray) -> np.ndarray:
        """The finite y in its final dtype, or a ValueError; `used` marks the rows of positive weight."""
        return y

    def intercept_sums(self, y: np.ndarray, z: np.ndarray, v: np.ndarray, c) -> np.ndarray:
        """Sums over rows from which `minimize_intercept` finds its next c; those of disjoint rows add up."""
        scores = z + c
        residual, curvature = np.empty_like(scores), np.empty_like(scores)
        self.evaluate(y, scores, residual=residual, curvature=curvature)
        return np.array([v @ residual, v @ curvature])

    def minimize_intercept(self, sums_at: Callable[..., np.ndarray], start):
        """The c that minimises sum_i v_i loss(y_i, z_i + c), to 1e-12.

        `sums_at(c)` gives `intercept_sums` added up over all rows, by whoever holds them.
        """

        def step_at(c):
            score, slope = map(float, sums_at(c))
            return score, score / slope if slope > 0 else math.nan

        return root_of_decreasing(step_at, float(start), reach=1.0, tolerance=1e-13, limit=math.inf)

    def constant_start_of(self, rows: RowSums, has_offset: bool, n_outputs: int = 1):
        """The intercept of the best model without features, whose scores are the rows' offsets, if they have any."""
        return self.refit_intercept_of(rows, 0.0)

    def least_values(self, y: np.ndarray) -> np.ndarray:
        """The least loss that any score can give each row; 0 unless a loss says otherwise."""
        return np.zeros(len(y))

    def deviances(self, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        """How far the loss of each row lies above its least value: what D^2 compares."""
        return self.values(y, z) - self.least_values(y)

    def least_deviance_constant(self, y: np.ndarray, v: np.ndarray, offset: np.ndarray | None = None) -> float:
        """argmin_c sum_i v_i deviance(y_i, offset_i + c)."""
        return self.constant_start(y, v, offset)

    def spread(self, prediction: np.ndarray) -> np.ndarray:
        """The standard deviation of y around each prediction, up to a factor; 1 unless it depends on the mean."""
        return np.ones_like(prediction)

    def chance_of_zero(self, prediction: np.ndarray, dispersion: float) -> np.ndarray:
        """The probability that y is 0, by the distribution to which the loss belongs; 0 for one without such a mass.

        The variance of y is dispersion * spread(prediction)^2.
        """
        return np.zeros_like(prediction)

    def target_columns(self, y: np.ndarray, n_outputs: int = 1) -> Iterator[np.ndarray]:
        """What is summed to say what was observed: y itself, for classes a 0/1 column for each, one after the other."""
        yield np.asarray(y, dtype=np.float64)

    def inverse_link(self, z: np.ndarray) -> np.ndarray:
        """The prediction that belongs to raw scores z: in the units of y, for classes their probabilities."""
        return np.array(z, dtype=np.float64)

    def curvature_growth(self, prediction: np.ndarray) -> np.ndarray:
        """By what part of itself d2loss/dz2 grows as z rises by one, where y is as predicted; by output."""
        return np.zeros_like(prediction)

    def curvature_bound(self, y=None, z=None) -> float | None:
        """An upper bound on d2loss/dz2 (multinomial: on the Hessian); None if there is none: backtrack.

        The bounds hold for all y and z; the arguments are there for a loss whose bound depends on them.
        """
        return None

    @property
    def compiled(self) -> tuple[int, float, float] | None:
        """(its number in LOSSES, its two parameters) where its residuals are compiled; SOFTMAX for several classes."""
        own = self._kernel()
        return None if own is None else (LOSSES.index(own[0]), *own[1:])

    # What follows from it ---------------------------------------------------------------------------------

    def n_outputs(self, y: np.ndarray) -> int:
        """Number of raw scores per row."""
        return 1

    def constant_start(self, y: np.ndarray, v: np.ndarray, offset: np.ndarray | None = None):
        """argmin_c sum_i v_i loss(y_i, offset_i + c), the intercept of the best model without features."""
        return self.constant_start_of(Rows(y, offset, v), offset is not None, self.n_outputs(y))

    def constant_value_of(self, rows: RowSums, c, has_offset: bool) -> float:
        """sum_i v_i loss(y_i, offset_i + c)."""
        return float(rows.total(partial(self._value_at, c=c))[0])

    def _value_at(self, y, z, v, n_threads, *, c) -> np.ndarray:
        scores = np.zeros(y.shape[0] if np.ndim(c) == 0 else (y.shape[0], len(c))) + c
        return np.array([self.value(y, scores if z is None else scores + z, v, n_threads)])

    def validate(self, y, v: np.ndarray | None = None) -> np.ndarray:
        """`y` as the array that the loss computes with, or an error that says which value is not allowed.

        Parameters
        ----------
        y : array-like of shape (n,)
        v : array of shape (n,), optional
            Weights. Rows of weight zero do not count where something must occur at all (two classes, a
            positive count); their values must be allowed all the same.

        Examples
        --------
        >>> from rbr.losses import get_loss
        >>> get_loss("poisson").validate([0, 2, -1])
        Traceback (most recent call last):
            ...
        ValueError: loss 'poisson': y[2] is -1.0; y must be at least 0
        """
        given = np.asarray(y)
        if given.ndim != 1:
            raise ValueError(f"loss '{self.name}': y has shape {given.shape}; it must be a vector")
        if given.shape[0] == 0:
            raise ValueError(f"loss '{self.name}': y has no rows; at least one is needed")
        try:
            numbers = np.ascontiguousarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"loss '{self.name}': y has dtype {given.dtype} and holds {given[0]!r}; y must be numbers"
            ) from None
        self._refuse(numbers, lambda y: ~np.isfinite(y), "y must be finite")
        used = np.ones(numbers.shape[0], dtype=bool) if v is None else np.asarray(v) > 0
        if used.shape != numbers.shape:
            raise ValueError(f"loss '{self.name}': v has shape {used.shape}; it must be that of y, {numbers.shape}")
        if not used.any():
            raise ValueError(f"loss '{self.name}': all weights are zero; at least one must be positive")
        return self._check_domain(numbers, used)

    def _refuse(self, y: np.ndarray, is_bad: Callable[[np.ndarray], np.ndarray], allowed: str) -> None:
        for rows in row_blocks(y.shape[0]):
            bad = is_bad(y[rows])
            if bad.any():
                where = rows.start + int(np.flatnonzero(bad)[0])
                raise ValueError(f"loss '{self.name}': y[{where}] is {y[where]}; {allowed}")

    def prepare_of(self, rows: RowSums) -> Loss:
        """The loss with what it takes from the scale of y - offset, fixed once before a fit. Most take nothing."""
        return self

    def prepare(self, y: np.ndarray, v: np.ndarray, offset: np.ndarray | None = None) -> Loss:
        """`prepare_of` rows in memory."""
        return self.prepare_of(Rows(y, offset, v))

    def evaluate(self, y, z, *, values=None, residual=None, curvature=None, v=None, n_threads: int = 1) -> None:
        """Write loss, -dloss/dz and d2loss/dz2 of each row into those arrays that are given.

        The derivatives times v, where it is given. Threads serve compiled losses; NumPy's calls on blocks this short
        would wait for each other.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            compiled = self._kernel()
            if compiled is not None:
                for order, out in enumerate((values, residual, curvature)):
                    if out is not None:
                        self._run_kernel(compiled, order, y, z, v if order else None, out, n_threads)
                return
            for rows in row_blocks(y.shape[0]):
                outs = [None if out is None else out[rows] for out in (values, residual, curvature)]
                self._evaluate_block(y[rows], z[rows], *outs)
                for derivative in outs[1:]:
                    if v is not None and derivative is not None:
                        derivative.T[...] *= v[rows]

    @staticmethod
    def _run_kernel(compiled, order, y, z, v, out, n_threads) -> None:
        name, a, b = compiled
        y, z, v = as_vectors(y, z, () if v is None else v)
        over_ranges(
            kernels().loss_of_rows, len(y), worth(n_threads, len(y)), LOSSES.index(name), order, a, b, y, z, v, out
        )

    def values(self, y, z, out: np.ndarray | None = None) -> np.ndarray:
        """loss(y_i, z_i) of each row; infinite where it exceeds the largest float."""
        out = np.empty(y.shape[0]) if out is None else out
        self.evaluate(y, z, values=out)
        return out

    def value(self, y, z, v, n_threads: int = 1) -> float:
        """sum_i v_i loss(y_i, z_i); infinite if a row of positive weight is: no descent test passes."""
        block_sums = []
        buffer = np.empty(min(BLOCK_ROWS, y.shape[0]))
        for rows in row_blocks(y.shape[0]):
            values = self.values(y[rows], z[rows], out=buffer[: rows.stop - rows.start])
            total = float(values @ v[rows]) if math.isfinite(values.max()) else math.inf
            if not math.isfinite(total):
                # 0 * inf is nothing here: a row of weight zero is not there.
                used = v[rows] > 0
                with np.errstate(over="ignore"):
                    total = float(np.sum(values[used] * v[rows][used]))
            block_sums.append(total)
        return add_in_order(block_sums)

    def residual(self, y, z, out: np.ndarray | None = None, v=None, n_threads: int = 1) -> np.ndarray:
        """-dloss(y_i, z_i)/dz_i of each row, in the shape of z; times v_i, if given."""
        out = np.empty(z.shape, order="F") if out is None else out
        self.evaluate(y, z, residual=out, v=v, n_threads=n_threads)
        return out

    def curvature(self, y, z, out: np.ndarray | None = None, v=None, n_threads: int = 1) -> np.ndarray:
        """d2loss(y_i, z_i)/dz_i^2 of each row, in the shape of z (multinomial: the diagonal); times v_i, if given."""
        out = np.empty(z.shape, order="F") if out is None else out
        self.evaluate(y, z, curvature=out, v=v, n_threads=n_threads)
        return out

    def hessian(self, y, z, v=None, n_threads: int = 1) -> Callable[..., np.ndarray]:
        """The map from directions to the Hessian of each row's loss in z_i times direction_i; times v_i, if given.

        Its second argument, if given, is an array in the order of Fortran that is written and returned.
        """
        curvature = self.curvature(y, z, v=v, n_threads=n_threads)
        return lambda direction, out=None: np.multiply(curvature, direction, out=out)

    def majorized_curvature(self, y, z) -> np.ndarray | None:
        """m_i such that loss(y_i, z_i + d) <= loss(y_i, z_i) - residual_i d + m_i d^2 / 2 for every d.

        A Newton step with m in place of the curvature never raises the objective, and m > 0 also where the
        curvature vanishes (huber and quantile far from y), so the equations of a refit stay regular. None
        where no parabola bounds the loss.
        """
        bound = self.curvature_bound()
        return None if bound is None else np.full(z.shape, bound)

    def refit_intercept(self, y, z_without_intercept, v, start=0.0):
        """The c that minimises sum_i v_i loss(y_i, z_i + c), to 1e-12; `start` is the last one known.

        Examples
        --------
        >>> from rbr.losses import get_loss
        >>> loss = get_loss("poisson")
        >>> y, z = np.array([1.0, 3.0]), np.array([0.0, np.log(3.0)])
        >>> round(loss.refit_intercept(y, z, np.array([0.5, 0.5])), 12)
        0.0
        """
        return self.refit_intercept_of(Rows(y, z_without_intercept, v), start)

    def refit_intercept_of(self, rows: RowSums, start):
        """The c that minimises the loss of the rows' scores + c."""
        return self.minimize_intercept(lambda c: rows.total(partial(self._sums_at, c=c)), start)

    def refit_intercept_and_value(self, rows: RowSums, start) -> tuple:
        """(c, value): `refit_intercept_of`, and the value there if the sums tell, else None."""
        return self.refit_intercept_of(rows, start), None

    def _sums_at(self, y, z, v, n_threads, *, c) -> np.ndarray:
        """`intercept_sums` of any number of rows; z may be None for zeros."""
        z = np.zeros(y.shape[0] if np.ndim(c) == 0 else (y.shape[0], len(c))) if z is None else z
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            sums = [self.intercept_sums(y[rows], z[rows], v[rows], c) for rows in row_blocks(y.shape[0])]
            return np.sum(sums, axis=0)

    def dispersion_of(self, rows: RowSums, n: float, df: float = 1.0) -> float:
        """phi = E[r^2] / E[h], the unit of the jump cost (see the head of this module).

        Parameters
        ----------
        rows : RowSums
            With the raw scores of some fit.
        n : float
            Sum of the sample weights before they were scaled.
        df : float, default=1
            Numbers that the fit has chosen, intercept included; phi is multiplied by n / max(n - df, 1).
        """
        if self.has_known_dispersion:
            return 1.0
        squares, curvature = map(float, rows.total(self._sandwich))
        return squares / max(curvature, 1e-300) * n / max(n - df, 1.0)

    def _sandwich(self, y, z, v, n_threads) -> np.ndarray:
        """The two halves of phi: sums of the squared residuals and of the curvatures."""
        return np.array([dot(v, self.residual(y, z) ** 2), dot(v, self.curvature(y, z))])

    def dispersion(self, y, z, v, n: float, df: float = 1.0) -> float:
        """`dispersion_of` rows in memory."""
        return self.dispersion_of(Rows(y, z, v), n, df)


def check_parameter(loss, parameter, value, low, high, allowed, *, closed=False) -> None:
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not is_number or not (low <= value <= high if closed else low < value < high):
        raise ValueError(f"loss '{loss.name}': {parameter} is {value!r}; it must be {allowed}")
