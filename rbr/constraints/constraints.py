"""The constraints as a user states them: limits, shapes, prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rbr._checks import check_choice, check_grids, check_int, check_nonnegative, check_offsets, check_real
from rbr.constraints.bound import DEFAULT_MAX_SEGMENTS, BoundConstraints
from rbr.constraints.positions import POSITIONS, bin_positions
from rbr.shapes import shape_names

# The default kappa of `solve` and of single fits: the price of chance. The best of b places for a jump gains about
# log b in noise, and at half the price something is selected in most fits of pure noise.
DEFAULT_JUMP_COST = 1.0

SEGMENTATIONS = ("exact", "greedy")

# Sums of shares may differ by this much from what they stand for: far less than a row, and more than rounding.
SHARE_ROUNDING = 1e-11


@dataclass(frozen=True)
class Constraints:
    """At most `max_features` non-zero tables, each with at most `max_segments` pieces and mean zero.

    Parameters
    ----------
    max_features : int or None
        s_G, the number of features that may be used; None for no limit.
    max_segments : int, mapping {feature index: int} or sequence
        s_L, the number of pieces (not jumps) of a table; features that a mapping leaves out get 128.
    shape : str, mapping {feature index: str} or sequence
        "constant", "linear", "mixed", "increasing", "decreasing", "levels", "frequency" or "free", and for grids of two
        columns "rectangles" or "surface"; features that a mapping leaves out are "constant".
    position : {"rank", "index", "value"}
        The position of a bin when lines are fitted: its mid-rank, its index, or the mean of the feature in it.
    jump_cost : float
        kappa, the price of complexity; 0 is the paper.
    segmentation : {"exact", "greedy"}
        Exact search for the pieces, or bottom-up merging.
    exclude : sequence of feature indices
        Features whose tables stay zero.
    always_include : sequence of feature indices
        Features that enter before all others and without an entry cost. They pay for their pieces only, so one that
        explains nothing has a flat table.
    min_rows : int, or float between 0 and 1
        The least number of rows (the sum of their weights) in a piece, or their share in all rows; 0 for no minimum. A
        table whose ordered bins hold fewer rows is one piece. The search stays exact for constant pieces and lines.
        For monotone shapes and levels it is then a good search, not an exact one: see docs/design.md. "frequency",
        "free", registered shapes and those of grids have no minimum.
    max_pairs : int or None
        The number of grids of two columns that may be used; they do not count in `max_features`. None for no limit.
    smoothness : float
        The penalty of a surface is smoothness / 2 times its roughness: the sum over the cells of squared differences of
        neighbours, and of deviations of the levels of a category from their mean, over the number of cells. At 1 a
        difference counts as much as the rows of an average cell.

    Examples
    --------
    >>> import numpy as np
    >>> C = Constraints(max_features=1, max_segments=2)
    >>> f = np.array([0.0, 0.2, 1.0, 1.2, 0.3, 0.0, 0.0])
    >>> C.project(f, offsets=[0, 4, 7], weights=[0.25] * 4 + [1 / 3] * 3)
    array([-0.5, -0.5,  0.5,  0.5,  0. ,  0. ,  0. ])
    """

    max_features: int | None = None
    max_segments: int | Mapping[int, int] | ArrayLike = DEFAULT_MAX_SEGMENTS
    shape: str | Mapping[int, str] | ArrayLike = "constant"
    position: str = "rank"
    jump_cost: float = 0.0
    segmentation: str = "exact"
    exclude: tuple[int, ...] = ()
    always_include: tuple[int, ...] = ()
    min_rows: int | float = 0
    max_pairs: int | None = None
    smoothness: float = 1.0

    def __post_init__(self):
        if self.max_features is not None:
            check_int(self.max_features, "max_features", 1)
        _check_each(self.max_segments, lambda value, name: check_int(value, name, 1), "max_segments")
        _check_each(self.shape, lambda value, name: check_choice(value, name, shape_names()), "shape")
        check_choice(self.position, "position", POSITIONS)
        check_real(self.jump_cost, "jump_cost", 0.0)
        check_choice(self.segmentation, "segmentation", SEGMENTATIONS)
        _check_min_rows(self.min_rows)
        if self.max_pairs is not None:
            check_int(self.max_pairs, "max_pairs", 0)
        check_real(self.smoothness, "smoothness", 0.0)
        if both := set(self.exclude) & set(self.always_include):
            raise ValueError(f"exclude and always_include both hold {sorted(both)[0]}; a feature can be in one of them")

    def project(
        self,
        f: ArrayLike,
        offsets: ArrayLike,
        weights: ArrayLike,
        *,
        missing: ArrayLike | None = None,
        positions: ArrayLike | None = None,
        grids: ArrayLike | None = None,
        n_threads: int = 1,
    ) -> np.ndarray:
        """P_C(f): the nearest tables, in the geometry of the weights, that satisfy the constraints.

        Parameters
        ----------
        f : array of shape (n_coef,) or (n_coef, n_classes)
            The stacked tables. With classes the tables of a feature form one group.
        offsets : array of shape (n_features + 1,)
            Where each table starts in f.
        weights : array of shape (n_coef,)
            At least 0, with sum 1 in each table.
        missing : array of bool, shape (n_features,), optional
            Whether a table's last bin holds the missing values, outside the pieces.
        positions : array of shape (n_coef,), optional
            Position of each bin, needed with ``position="value"``.
        grids : array of integers, shape (n_features, 6), optional
            The sides of tables that are grids of two columns; see `rbr.BinnedMatrix`.
        n_threads : int
            The result does not depend on it.

        With plain weights `min_rows` must be a share, and the rows of a bin are its weight; see `bind` for others.

        Examples
        --------
        >>> import rbr
        >>> C = rbr.Constraints(max_segments=1, shape="linear")
        >>> C.project([0.0, 3.0, 3.0], offsets=[0, 3], weights=[1 / 3] * 3)
        array([-1.5,  0. ,  1.5])
        """
        bound = self.bind(offsets, weights, missing=missing, positions=positions, grids=grids)
        return bound.prox(f, 1.0, 0.0, n_threads=n_threads).f

    def prox(
        self,
        f: ArrayLike,
        offsets: ArrayLike,
        weights: ArrayLike,
        step: float,
        scale: float,
        *,
        alpha: float = 0.0,
        missing: ArrayLike | None = None,
        positions: ArrayLike | None = None,
        grids: ArrayLike | None = None,
        n_threads: int = 1,
    ) -> np.ndarray:
        """The proximal step: argmin over g in C of ||f - g||_w^2 / (2 step) + cost(g) + alpha / 2 ||g||_w^2.

        A non-zero table costs scale * (jump_cost * code + 2 log n_features), where code is its code length
        (for constant pieces (pieces - 1) * log n_bins); without a jump cost it costs nothing.

        Parameters
        ----------
        f, offsets, weights, missing, positions, grids, n_threads
            As in `project`.
        step : float
            mu > 0.
        scale : float
            lambda >= 0: the dispersion over the number of rows.
        alpha : float
            Ridge penalty.

        Examples
        --------
        >>> import rbr
        >>> C = rbr.Constraints(jump_cost=1.0)
        >>> C.prox([0.0, 0.1, 3.0, 3.1], offsets=[0, 4], weights=[0.25] * 4, step=1.0, scale=0.1)
        array([-1.5, -1.5,  1.5,  1.5])
        """
        check_real(step, "step", 0.0, strict=True)
        check_real(scale, "scale", 0.0)
        check_real(alpha, "alpha", 0.0)
        bound = self.bind(offsets, weights, missing=missing, positions=positions, grids=grids)
        return bound.prox(f, step, scale, alpha=alpha, n_threads=n_threads).f

    def bind(
        self,
        offsets: ArrayLike,
        weights: ArrayLike,
        *,
        missing: ArrayLike | None = None,
        positions: ArrayLike | None = None,
        shares: ArrayLike | None = None,
        grids: ArrayLike | None = None,
        n_rows: float | None = None,
    ) -> BoundConstraints:
        """These constraints on given tables: one shape, limit and position for each, checked once.

        Parameters
        ----------
        offsets, weights, missing, positions, grids
            As in `project`.
        shares : array of shape (n_coef,), optional
            The share of the rows in each bin, which `min_rows` counts; by default the weights.
        n_rows : float, optional
            The number of rows, needed if `min_rows` is a number of rows.
        """
        offsets = check_offsets(offsets)
        n_features, n_coef = len(offsets) - 1, int(offsets[-1])
        weights = check_nonnegative(weights, n_coef, "weights")
        totals = np.add.reduceat(weights, offsets[:-1]) if n_features else np.zeros(0)
        if (np.abs(totals - 1) > 1e-8).any():
            j = int(np.argmax(np.abs(totals - 1)))
            raise ValueError(f"weights of table {j} sum to {totals[j]}; in each table they must sum to 1")
        missing = _check_missing(missing, n_features)
        if (np.diff(offsets) - missing < 1).any():
            j = int(np.flatnonzero(np.diff(offsets) - missing < 1)[0])
            raise ValueError(
                f"missing[{j}] is True, but table {j} has one bin; beside the missing bin it needs another"
            )
        excluded, forced = np.zeros(n_features, dtype=bool), np.zeros(n_features, dtype=bool)
        for name, mask in (("exclude", excluded), ("always_include", forced)):
            for j in getattr(self, name):
                mask[check_int(j, f"feature of {name}", 0, n_features - 1)] = True
        least_share = 0.0 if self.min_rows == 0 else max(self.min_share(n_rows) - SHARE_ROUNDING, SHARE_ROUNDING)
        bound = BoundConstraints(
            max_features=self.max_features,
            excluded=excluded,
            forced=forced,
            jump_cost=float(self.jump_cost),
            greedy=self.segmentation == "greedy",
            offsets=offsets,
            weights=weights,
            missing=missing,
            shapes=_per_feature(self.shape, "constant", n_features, "shape", shape_names().index, np.int8),
            limits=_per_feature(self.max_segments, DEFAULT_MAX_SEGMENTS, n_features, "max_segments", int, np.int64),
            position=self.position,
            shares=weights if shares is None else check_nonnegative(shares, n_coef, "shares"),
            least_shares=np.full(n_features, least_share),
            positions=bin_positions(self.position, offsets, weights, missing, positions),
            grids=check_grids(grids, np.diff(offsets)),
            max_pairs=self.max_pairs,
            smoothness=float(self.smoothness),
        )
        bound.check_grids()
        bound.check_frequency()
        return bound

    def bind_to(self, tables, n_rows: float | None = None) -> BoundConstraints:
        """`bind`, to anything that has offsets, weights, shares, missing and positions, such as a BinnedMatrix."""
        names = "missing", "positions", "shares", "grids"
        kept: dict[str, Any] = {name: getattr(tables, name) for name in names}
        return self.bind(tables.offsets, tables.weights, n_rows=n_rows, **kept)

    def min_share(self, n_rows: float | None) -> float:
        """`min_rows` as a share of n_rows, at most 1."""
        if self.min_rows == 0 or not isinstance(self.min_rows, Integral):
            return float(self.min_rows)
        if n_rows is None:
            raise ValueError(
                f"min_rows is {self.min_rows}, a number of rows, and only the weights of the bins are known here; it "
                "must be a float between 0 and 1, a share of the rows"
            )
        return min(int(self.min_rows) / n_rows, 1.0)

    def of_shares(self, n_rows: float) -> Constraints:
        """The same constraints with `min_rows` as a share of n_rows, so that on fewer rows pieces may have fewer."""
        if self.min_rows == 0:
            return self
        return replace(self, min_rows=min(self.min_share(n_rows), float(np.nextafter(1.0, 0.0))))


def _check_min_rows(value) -> None:
    """Raise a ValueError unless the value is a number of rows or a share between 0 and 1."""
    is_number = isinstance(value, Real) and not isinstance(value, (bool, np.bool_))
    if not is_number or not (int(value) >= 0 if isinstance(value, Integral) else 0 < value < 1):
        raise ValueError(
            f"min_rows is {value!r}; it must be an integer of at least 0, a number of rows, or a float between 0 and "
            "1, a share of the rows"
        )


def _check_each(value, check, name: str) -> None:
    if isinstance(value, Mapping):
        for feature, one in value.items():
            check(one, f"{name}[{feature!r}]")
    elif isinstance(value, str) or np.ndim(value) == 0:
        check(value, name)
    else:
        for feature, one in enumerate(value):
            check(one, f"{name}[{feature}]")


def _per_feature(value, default, n_features: int, name: str, convert, dtype) -> np.ndarray:
    """One converted value for every feature, from a scalar, a mapping with a default, or a sequence."""
    if isinstance(value, str) or np.ndim(value) == 0 and not isinstance(value, Mapping):
        return np.full(n_features, convert(value), dtype=dtype)
    if isinstance(value, Mapping):
        values = np.full(n_features, convert(default), dtype=dtype)
        for feature, one in value.items():
            values[check_int(feature, f"feature of {name}", 0, n_features - 1)] = convert(one)
        return values
    if len(value) != n_features:
        raise ValueError(f"{name} has {len(value)} entries; there are {n_features} features")
    return np.array([convert(one) for one in value], dtype=dtype)


def _check_missing(missing: ArrayLike | None, n_features: int) -> np.ndarray:
    if missing is None:
        return np.zeros(n_features, dtype=bool)
    missing = np.ascontiguousarray(missing)
    if missing.shape != (n_features,) or missing.dtype != bool:
        raise ValueError(
            f"missing has shape {missing.shape} and dtype {missing.dtype}; it must be {n_features} bools, one per table"
        )
    return missing
