"""Smoothed grids: the table nearest to a given one under a penalty on its roughness.

The roughness of a grid is a sum over its sides: of the squared differences of neighbouring cells along a side of
ordered bins; along the levels of a category, which have no neighbours, of the squared deviations of the cells from the
plain mean of their line. A row or column of missing values lies outside: each of the two, and the cell that they share,
is a surface of its own. The smoothed grid minimises

    sum of w (u - g)^2 / 2  +  strength / 2 * roughness(g),

a convex problem whose solution is one system of equations. It is no projection: its tables are not a cone of allowed
ones, and nothing is promised about pieces. But constants have no roughness, so the mean of g is that of u, and g is
never longer than u.
"""

from __future__ import annotations

import numpy as np


def roughness_matrix(n_a, n_b, has_levels=(False, False)):
    """K with g' K g = roughness(g), of the cells of a grid row by row."""
    sides = zip((n_a, n_b), has_levels, strict=True)
    along_a, along_b = (around_the_mean(n) if levels else between_neighbours(n) for n, levels in sides)
    return np.kron(along_a, np.eye(n_b)) + np.kron(np.eye(n_a), along_b)


def between_neighbours(n):
    """g' D g = the sum of (g_k+1 - g_k)^2."""
    steps = np.diff(np.eye(n), axis=0)
    return steps.T @ steps


def around_the_mean(n):
    """g' D g = the sum of (g_k - mean of g)^2."""
    return np.eye(n) - 1 / n


def smooth_grid(values, weights, strength, has_levels=(False, False)):
    """The surface nearest to a grid without missing values; zero without weight, and in empty cells at strength 0."""
    u, w = values.ravel(), weights.ravel()
    if not w.any():
        return np.zeros(values.shape)
    if strength == 0:
        return np.where(weights > 0, values, 0.0)
    origin = u[np.flatnonzero(w)[0]]
    system = np.diag(w) + strength * roughness_matrix(*values.shape, has_levels)
    return origin + np.linalg.solve(system, np.where(w > 0, w * (u - origin), 0.0)).reshape(values.shape)


def parts_of(sides):
    """(rows, columns, whether both have levels) of the parts of a grid: the ordered bins and the missing values."""
    n_a, n_b, more_a, more_b, levels_a, levels_b = sides
    for rows in (slice(0, n_a), slice(n_a, n_a + more_a)):
        for columns in (slice(0, n_b), slice(n_b, n_b + more_b)):
            if rows.start < rows.stop and columns.start < columns.stop:
                yield rows, columns, (bool(levels_a) and rows.start == 0, bool(levels_b) and columns.start == 0)


def smooth_grids(
    offsets,  # IN  (n_grids + 1,) int64: where the cells of each grid begin, row by row
    sides,  # IN  (n_grids, 6) int64: ordered bins along both sides, whether each has one more, of missing values, and
    # whether these bins are the levels of a category
    values,  # IN  (offsets[-1],): by cell
    weights,  # IN  (offsets[-1],): at least 0
    strengths,  # IN  (n_grids,): of the penalty, at least 0
    out,  # OUT (offsets[-1],), the grids first <= t < last
    first,
    last,
):
    """The surface nearest to each grid under a penalty on its roughness; missing values are surfaces of their own."""
    for t in range(first, last):
        n_a, n_b, more_a, more_b = sides[t, :4].tolist()
        cells, shape = slice(offsets[t], offsets[t + 1]), (n_a + more_a, n_b + more_b)
        u, w, smooth = values[cells].reshape(shape), weights[cells].reshape(shape), np.zeros(shape)
        for rows, columns, has_levels in parts_of(sides[t].tolist()):
            smooth[rows, columns] = smooth_grid(u[rows, columns], w[rows, columns], strengths[t], has_levels)
        out[cells] = smooth.ravel()
