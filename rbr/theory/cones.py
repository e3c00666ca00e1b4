"""C and C - C in the paper's coordinates: exact projections onto them, and their Gaussian complexity.

C (paper, eq. 3.1) is a union of subspaces for the shapes treated here, and so is C - C. The difference of two tables of
k pieces has at most 2k - 1 pieces, and every table of 2k - 1 pieces is such a difference: give half of its jumps to
each. So beta lies in C - C if and only if a budget of 2 s_G suffices, where a table of at most k pieces takes one unit
and a table of at most 2k - 1 pieces two. The nearest point is found by the gain of each table for one unit and for two,
and a knapsack over the budget. (The paper's superset, 2 s_G tables of 2 s_L pieces, is larger: it takes 4 s_G units.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import idct

from rbr._checks import check_choice, check_int, check_vector
from rbr.constraints import BoundConstraints, Constraints
from rbr.shapes import spec_at

# Shapes whose tables form a union of subspaces that is closed under the splitting described above.
SPLITTABLE = ("constant", "linear", "frequency", "free")


@dataclass(frozen=True)
class Estimate:
    """A Monte Carlo mean, and the ends of its confidence interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, draws: ArrayLike, level: float = 0.95) -> Estimate:
        """The mean of independent draws with its normal confidence interval.

        Examples
        --------
        >>> estimate = Estimate.of([1.0, 3.0, 1.0, 3.0])
        >>> estimate.value, round(estimate.high - estimate.value, 4)
        (2.0, 1.1316)
        """
        draws = np.asarray(draws, dtype=np.float64)
        half = NormalDist().inv_cdf((1 + level) / 2) * draws.std(ddof=1) / np.sqrt(len(draws))
        return cls(float(draws.mean()), float(draws.mean() - half), float(draws.mean() + half))


@dataclass(frozen=True)
class Cone:
    """C (paper, eq. 3.1): at most s_G non-zero blocks, each of mean zero and of at most s_L,j pieces.

    Parameters
    ----------
    constraints : Constraints
        s_G is `max_features`, s_L,j is `max_segments`, in pieces; without a jump cost.
    n_bins : sequence of int
        b_j.

    Examples
    --------
    >>> import rbr
    >>> cone = Cone(rbr.Constraints(max_features=1, max_segments=2), n_bins=(4, 3))
    >>> cone.project([0.0, 0.2, 1.0, 1.2, 0.3, 0.0, 0.0])
    array([-0.5, -0.5,  0.5,  0.5,  0. ,  0. ,  0. ])
    """

    constraints: Constraints
    n_bins: Sequence[int]

    def __post_init__(self):
        if self.constraints.jump_cost != 0:
            raise ValueError(f"constraints has jump_cost {self.constraints.jump_cost}; the paper's set has none: 0")
        for j, b in enumerate(self.n_bins):
            check_int(b, f"n_bins[{j}]", 1)

    @cached_property
    def offsets(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.n_bins)])

    @property
    def n_features(self) -> int:
        return len(self.n_bins)

    @property
    def n_coef(self) -> int:
        """p_bin."""
        return int(self.offsets[-1])

    @property
    def max_features(self) -> int:
        """s_G, at most the number of features."""
        limit = self.constraints.max_features
        return self.n_features if limit is None else min(limit, self.n_features)

    @property
    def max_segments(self) -> np.ndarray:
        """s_L,j for each feature."""
        return self._bound.limits

    @property
    def shapes(self) -> list[str]:
        return [spec_at(number).name for number in self._bound.shapes]

    @cached_property
    def _root_bins(self) -> np.ndarray:
        return np.repeat(np.sqrt(self.n_bins), self.n_bins)

    @cached_property
    def _bound(self) -> BoundConstraints:
        # With weights 1 / b_j, the tables beta^j sqrt(b_j) have the norms of the blocks beta^j.
        return self.constraints.bind(self.offsets, 1 / self._root_bins**2)

    def project(self, beta: ArrayLike) -> np.ndarray:
        """P_C(beta), the nearest point of C in the plain norm."""
        beta = check_vector(beta, self.n_coef, "beta")
        return self._bound.prox(beta * self._root_bins, 1.0, 0.0).f / self._root_bins

    def block_norms(self, beta: ArrayLike) -> np.ndarray:
        """||beta^j|| for each feature."""
        beta = check_vector(beta, self.n_coef, "beta")
        return np.sqrt(np.add.reduceat(beta**2, self.offsets[:-1]))

    def without_selection(self) -> Cone:
        """The product of the local sets: the same pieces, all features allowed."""
        return Cone(replace(self.constraints, max_features=None), self.n_bins)

    def difference(self) -> DifferenceCone:
        """C - C."""
        return DifferenceCone(self)

    def draw(self, random_state: int | np.random.Generator | None = None) -> np.ndarray:
        """A random unit vector of C: s_G random blocks of equal norm, pieces cut and filled at random.

        Examples
        --------
        >>> import rbr
        >>> cone = Cone(rbr.Constraints(max_features=2, max_segments=3), n_bins=[8] * 5)
        >>> beta = cone.draw(0)
        >>> int((cone.block_norms(beta) > 0).sum()), np.allclose(cone.project(beta), beta)
        (2, True)
        """
        rng = np.random.default_rng(random_state)
        beta = np.zeros(self.n_coef)
        for j in rng.choice(self.n_features, self.max_features, replace=False):
            block = _draw_block(self.shapes[j], self.n_bins[j], int(self.max_segments[j]), rng)
            size = np.linalg.norm(block)
            # A single constant piece of mean zero is zero.
            beta[self.offsets[j] : self.offsets[j + 1]] = block / size if size > 0 else 0.0
        size = np.linalg.norm(beta)
        return beta / size if size > 0 else beta


@dataclass(frozen=True)
class DifferenceCone:
    """C - C: all differences of two points of C, with its exact projection.

    Examples
    --------
    >>> import rbr
    >>> cone = Cone(rbr.Constraints(max_features=1, max_segments=2), n_bins=(4, 4))
    >>> x = cone.project([3.0, -1.0, -1.0, -1.0, 0.0, 0.0, 0.0, 0.0])
    >>> y = cone.project([-1.0, -1.0, -1.0, 3.0, 0.0, 0.0, 0.0, 0.0])
    >>> np.allclose(cone.difference().project(x - y), x - y)
    True
    """

    cone: Cone

    def __post_init__(self):
        for j, shape in enumerate(self.cone.shapes):
            check_choice(shape, f"shape of feature {j}", SPLITTABLE)

    @cached_property
    def _single(self) -> Cone:
        return self.cone.without_selection()

    @cached_property
    def _double(self) -> Cone:
        """Two tables of a feature, one from each point: jumps add up, and so do coefficients of a frequency table."""
        limits = [
            2 * k if shape == "frequency" else 2 * k - 1
            for k, shape in zip(self.cone.max_segments.tolist(), self.cone.shapes, strict=True)
        ]
        constraints = replace(self.cone.constraints, max_features=None, max_segments=limits)
        return Cone(constraints, self.cone.n_bins)

    def project(self, beta: ArrayLike) -> np.ndarray:
        """P_{C - C}(beta)."""
        choices = (np.zeros(self.cone.n_coef), self._single.project(beta), self._double.project(beta))
        gains = np.array([self.cone.block_norms(choice) ** 2 for choice in choices])
        units = _knapsack(gains, 2 * self.cone.max_features)
        return np.choose(np.repeat(units, self.cone.n_bins), choices)

    def draw(self, random_state: int | np.random.Generator | None = None) -> np.ndarray:
        """A random unit vector of C - C: the difference of two random points of C, of random lengths."""
        rng = np.random.default_rng(random_state)
        first, second = rng.standard_normal(2)
        difference = first * self.cone.draw(rng) - second * self.cone.draw(rng)
        return difference / np.linalg.norm(difference)


def gaussian_complexity(
    cone: Cone | DifferenceCone, n_draws: int = 200, random_state: int | np.random.Generator | None = None
) -> Estimate:
    """omega(C) = E ||P_C(g)||^2 for standard normal g (paper, definition D.1), by Monte Carlo.

    Parameters
    ----------
    cone : Cone or DifferenceCone
    n_draws : int, at least 2
    random_state : int, numpy.random.Generator or None

    Returns
    -------
    Estimate
        The mean with its 95% confidence interval.

    Examples
    --------
    Without limits only the zero mean remains, and omega is the dimension: p_bin - p.

    >>> import rbr
    >>> cone = Cone(rbr.Constraints(shape="free"), n_bins=[5] * 4)
    >>> omega = gaussian_complexity(cone, 2000, random_state=0)
    >>> omega.low < 16 < omega.high
    True
    """
    check_int(n_draws, "n_draws", 2)
    rng = np.random.default_rng(random_state)
    n_coef = cone.n_coef if isinstance(cone, Cone) else cone.cone.n_coef
    return Estimate.of([np.sum(cone.project(rng.standard_normal(n_coef)) ** 2) for _ in range(n_draws)])


def local_complexities(
    cone: Cone, n_draws: int = 200, random_state: int | np.random.Generator | None = None
) -> np.ndarray:
    """omega(S_j) for the local set of each feature (paper, theorem D.4), by Monte Carlo.

    Examples
    --------
    >>> import rbr
    >>> cone = Cone(rbr.Constraints(max_features=1, shape="free"), n_bins=[3, 9])
    >>> np.round(local_complexities(cone, 20_000, random_state=0), 1)
    array([2., 8.])
    """
    check_int(n_draws, "n_draws", 1)
    rng = np.random.default_rng(random_state)
    local = cone.without_selection()
    squares = (local.block_norms(local.project(rng.standard_normal(cone.n_coef))) ** 2 for _ in range(n_draws))
    total: Any = sum(squares)
    return total / n_draws


def gaussian_complexity_bound(cone: Cone) -> float:
    """sumtop_{s_G}(s_L,j log b_j + log p) (paper, theorem D.2), without its unknown constant.

    Examples
    --------
    >>> import rbr
    >>> cone = Cone(rbr.Constraints(max_features=1, max_segments=[2, 5]), n_bins=[8, 8])
    >>> round(gaussian_complexity_bound(cone), 3)
    11.09
    """
    terms = cone.max_segments * np.log(cone.n_bins) + np.log(cone.n_features)
    return float(np.sort(terms)[::-1][: cone.max_features].sum())


def sample_scale(cone: Cone) -> float:
    """The paper's s_L s_G log p_bin (eq. 3.2): sumtop_{s_G}(s_L,j) log p_bin, without its unknown constant.

    Examples
    --------
    >>> import rbr
    >>> cone = Cone(rbr.Constraints(max_features=2, max_segments=3), n_bins=[8] * 5)
    >>> round(sample_scale(cone), 3)
    22.133
    """
    return float(np.sort(cone.max_segments)[::-1][: cone.max_features].sum() * np.log(cone.n_coef))


def _knapsack(gains: np.ndarray, budget: int) -> np.ndarray:
    """How many units each item takes so that the gains are largest: gains[u, j] for u units, sum of units <= budget."""
    n_choices, n_items = gains.shape
    if n_items > (n_choices - 1) * budget > 0:
        # An item outside the `budget` best for its number of units can be left out: one of those is always unused.
        hopeful = np.unique(np.argsort(-gains[1:], axis=1, kind="stable")[:, :budget])
        units = np.zeros(n_items, dtype=np.int64)
        units[hopeful] = _knapsack(gains[:, hopeful], budget)
        return units
    best = np.zeros(budget + 1)
    taken = np.zeros((n_items, budget + 1), dtype=np.int64)
    for j in range(n_items):
        options = np.full((n_choices, budget + 1), -np.inf)
        for u in range(min(n_choices, budget + 1)):
            options[u, u:] = best[: budget + 1 - u] + gains[u, j]
        taken[j] = options.argmax(axis=0)
        best = options.max(axis=0)
    units, left = np.zeros(n_items, dtype=np.int64), budget
    for j in reversed(range(n_items)):
        units[j] = taken[j, left]
        left -= units[j]
    return units


def _draw_block(shape: str, n_bins: int, limit: int, rng: np.random.Generator) -> np.ndarray:
    """A random table of mean zero with as many pieces as the limit allows."""
    check_choice(shape, "shape", SPLITTABLE)
    if shape == "frequency":
        coefficients = np.zeros(n_bins)
        coefficients[1 + rng.choice(n_bins - 1, min(limit, n_bins - 1), replace=False)] = rng.standard_normal(
            min(limit, n_bins - 1)
        )
        return idct(coefficients, norm="ortho")
    if shape == "free":
        block = rng.standard_normal(n_bins)
    else:
        cuts = np.sort(rng.choice(n_bins - 1, min(limit, n_bins) - 1, replace=False)) + 1
        piece = np.searchsorted(cuts, np.arange(n_bins), side="right")
        block = rng.standard_normal(len(cuts) + 1)[piece]
        if shape == "linear":
            block = block + rng.standard_normal(len(cuts) + 1)[piece] * np.linspace(-1, 1, n_bins) * np.sqrt(3)
    return block - block.mean()
