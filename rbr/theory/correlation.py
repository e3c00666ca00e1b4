"""Restricted gradient correlation (paper, definition 3.1) of squared loss on a design.

The gradient of squared loss is linear, so with mu_R = 1 the condition reads

    |<v, M z>| <= eps_R ||v|| ||z||    for v and z in C - C,    M = I - X_bin' X_bin.

For a fixed z the best v is known exactly: it is the direction of P_{C - C}(M z), whose norm is the value attained.
Optimising v and z in turn never lowers the value, so every start ends in a local maximum, and the best of these is a
lower bound of eps_R.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rbr._checks import check_int, check_real
from rbr.data.design import BinnedMatrix
from rbr.theory.cones import Cone


@dataclass(frozen=True)
class GradientCorrelation:
    """The result of a search for eps_R; all values but `unrestricted` are lower bounds of eps_R.

    Attributes
    ----------
    value : float
        The largest |<v, M z>| found over unit vectors of C - C.
    random_pairs : float
        The largest over random v and z.
    random_starts : float
        The largest over random z, each with its best v.
    unrestricted : float
        ||M|| on the zero-mean subspace, which bounds eps_R from above.
    v, z : arrays of shape (n_coef,)
        Unit vectors of C - C that attain `value`.
    """

    value: float
    random_pairs: float
    random_starts: float
    unrestricted: float
    v: np.ndarray = field(repr=False)
    z: np.ndarray = field(repr=False)


def gradient_correlation(
    design: BinnedMatrix,
    cone: Cone,
    *,
    step_size: float = 1.0,
    n_starts: int = 10,
    max_rounds: int = 50,
    tol: float = 1e-5,
    random_state: int | np.random.Generator | None = None,
) -> GradientCorrelation:
    """A lower bound of eps_R of squared loss over C - C (paper, definition 3.1), by random and adversarial search.

    Parameters
    ----------
    design : BinnedMatrix
    cone : Cone
        With the bins of the design.
    step_size : float
        mu_R.
    n_starts : int
        Number of random starts; as many more start from the pairs of features that are coupled most strongly, and one
        from the leading eigenvector of M.
    max_rounds : int
        The largest number of turns of one start.
    tol : float
        A start ends when a turn raises its value by at most this fraction.
    random_state : int, numpy.random.Generator or None

    Examples
    --------
    In a full factorial design all tables of mean zero are orthogonal, and the gradient step is exact.

    >>> import rbr
    >>> codes = np.stack(np.meshgrid(range(4), range(4), range(4))).reshape(3, -1)
    >>> design = rbr.BinnedMatrix(codes, offsets=[0, 4, 8, 12])
    >>> cone = Cone(rbr.Constraints(max_features=1, max_segments=2), n_bins=[4, 4, 4])
    >>> gradient_correlation(design, cone, random_state=0).value < 1e-12
    True
    """
    check_int(n_starts, "n_starts", 1)
    check_int(max_rounds, "max_rounds", 1)
    check_real(tol, "tol", 0.0)
    rng = np.random.default_rng(random_state)
    difference = cone.difference()
    defect = _gradient_defect(design, cone, step_size)

    def best_partner(z: np.ndarray) -> tuple[float, np.ndarray]:
        image = difference.project(defect @ z)
        value = float(np.linalg.norm(image))
        return value, image / value if value > 0 else z

    pairs = [(difference.draw(rng), difference.draw(rng)) for _ in range(n_starts)]
    random_pairs = max(abs(v @ defect @ z) for v, z in pairs)
    random_starts = max(best_partner(z)[0] for _, z in pairs)

    eigenvalues, eigenvectors = np.linalg.eigh(defect)
    starts = [z for _, z in pairs] + _coupled_pairs(defect, cone, n_starts)
    starts.append(eigenvectors[:, np.abs(eigenvalues).argmax()])
    best_value, best_v, best_z = 0.0, starts[0], starts[0]
    for start in starts:
        value, z = 0.0, difference.project(start)
        size = np.linalg.norm(z)
        z = z / size if size > 0 else z
        for _ in range(max_rounds):
            previous = value
            value, v = best_partner(z)
            if value > best_value:
                best_value, best_v, best_z = value, v, z
            if value <= previous * (1 + tol):
                break
            z = v  # M is symmetric, so v and z change places
    return GradientCorrelation(
        best_value, float(random_pairs), random_starts, float(np.abs(eigenvalues).max(initial=0.0)), best_v, best_z
    )


def _gradient_defect(design: BinnedMatrix, cone: Cone, step_size: float) -> np.ndarray:
    """M = I - mu X_bin' X_bin restricted to the zero-mean subspace, and zero on its complement."""
    if not np.array_equal(design.n_bins, cone.n_bins):
        raise ValueError(
            f"cone has the bins {list(cone.n_bins)}, design has {design.n_bins.tolist()}; they must be the same"
        )
    scale = np.repeat(np.sqrt(design.n_bins / design.n_rows), design.n_bins)
    defect = np.eye(design.n_coef) - step_size * scale[:, None] * design.gram() * scale
    for start, stop in zip(cone.offsets[:-1], cone.offsets[1:], strict=True):
        defect[start:stop] -= defect[start:stop].mean(axis=0)
        defect[:, start:stop] -= defect[:, start:stop].mean(axis=1, keepdims=True)
    return defect


def _coupled_pairs(defect: np.ndarray, cone: Cone, n_pairs: int) -> list[np.ndarray]:
    """The leading eigenvector of M restricted to each of the pairs of features whose blocks of M are largest."""
    squares = np.add.reduceat(np.add.reduceat(defect**2, cone.offsets[:-1], axis=0), cone.offsets[:-1], axis=1)
    first, second = np.triu_indices(cone.n_features, k=1)
    strongest = np.argsort(-squares[first, second], kind="stable")[:n_pairs]
    starts = []
    for j, k in zip(first[strongest], second[strongest], strict=True):
        bins = np.r_[cone.offsets[j] : cone.offsets[j + 1], cone.offsets[k] : cone.offsets[k + 1]]
        values, vectors = np.linalg.eigh(defect[np.ix_(bins, bins)])
        start = np.zeros(cone.n_coef)
        start[bins] = vectors[:, np.abs(values).argmax()]
        starts.append(start)
    return starts
