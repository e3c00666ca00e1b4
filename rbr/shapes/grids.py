"""Grids: the tables of two columns, what rectangles cost on them, and how rough a surface is.

A grid has ordered bins or levels along both sides, and may have a row and a column of missing values. Those lie outside
the cuts and the neighbourhoods: the grid has up to four parts, of which each has rectangles or a surface of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np


class Grid(NamedTuple):
    """The sides of a grid, as `BinnedMatrix.grids` holds them, and the price of roughness on it."""

    n_a: int
    n_b: int
    more_a: int
    more_b: int
    levels_a: int
    levels_b: int
    smoothness: float = 0.0

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns of cells."""
        return self.n_a + self.more_a, self.n_b + self.more_b

    @property
    def n_cells(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def n_parts(self) -> int:
        """The parts that are cut apart from the start."""
        return (1 + self.more_a) * (1 + self.more_b)

    @property
    def cut_places(self) -> int:
        """The places between the bins of both sides."""
        return self.n_a + self.n_b - 2

    def parts(self) -> Iterator[tuple[slice, slice, tuple[bool, bool]]]:
        """(rows, columns, whether their bins are levels) of each part."""
        rows, columns = slice(0, self.n_a), slice(0, self.n_b)
        more_rows, more_columns = slice(self.n_a, self.n_a + self.more_a), slice(self.n_b, self.n_b + self.more_b)
        for a in (rows, more_rows)[: 1 + self.more_a]:
            for b in (columns, more_columns)[: 1 + self.more_b]:
                yield a, b, (bool(self.levels_a) and a is rows, bool(self.levels_b) and b is columns)


def rectangles_code(n_pieces: int, n_lines: int, grid: Grid) -> float:
    """log(cut places) for each cut, and 1 for each part of missing values."""
    return (n_pieces - grid.n_parts) * float(np.log(max(grid.cut_places, 1))) + grid.n_parts - 1


def cheapest_rectangles_code(grids: Sequence[Grid], limits: np.ndarray) -> np.ndarray:
    """One cut, or none beside missing values."""
    return np.array([rectangles_code(grid.n_parts + (grid.n_parts == 1), 0, grid) for grid in grids])


def surface_code(n_pieces: int, n_lines: int, grid: Grid) -> float:
    """The effective number of values of the surface, less one for its mean, if all cells held as many rows.

    A surface is a linear map of the values. Its trace, the sum of 1 / (1 + smoothness * roughness) over the directions
    that roughness leaves as they are, is how many of them it does not smooth away.
    """
    total = 0.0
    for rows, columns, has_levels in grid.parts():
        sizes = rows.stop - rows.start, columns.stop - columns.start
        a, b = (_roughness_of_directions(n, levels) for n, levels in zip(sizes, has_levels, strict=True))
        total += float((1 / (1 + grid.smoothness * (a[:, None] + b))).sum())
    return total - 1


def _roughness_of_directions(n: int, has_levels: bool) -> np.ndarray:
    """The eigenvalues of roughness along one side: of all deviations from the mean alike, of cosines for neighbours."""
    return np.minimum(np.arange(n), 1.0) if has_levels else 2 - 2 * np.cos(np.pi * np.arange(n) / n)


def cheapest_surface_code(grids: Sequence[Grid], limits: np.ndarray) -> np.ndarray:
    return np.array([surface_code(0, 0, grid) for grid in grids])


def pull_of_roughness(table: np.ndarray, grid: Grid) -> np.ndarray:
    """Half the gradient of roughness, K f: `table @ pull_of_roughness(table, grid)` is how rough a table is.

    Roughness is the sum, per cell of the grid, of the squared differences of neighbours, and of the deviations of
    levels from the mean of their line. The table may have more dimensions, one column for each of several tables.
    """
    given = table.reshape(*grid.shape, -1)
    out = np.zeros_like(given)
    for rows, columns, has_levels in grid.parts():
        part, pull = given[rows, columns], out[rows, columns]
        for side in (0, 1):
            if has_levels[side]:
                pull += part - part.mean(axis=side, keepdims=True)
            else:
                steps = np.diff(part, axis=side)
                of_lines, along = np.moveaxis(pull, side, 0), np.moveaxis(steps, side, 0)
                of_lines[1:] += along
                of_lines[:-1] -= along
    return out.reshape(table.shape) / grid.n_cells


def smooth_cells(labels, weights, grid: Grid, has_missing: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """(columns, groups, n_groups): a column for each cell with rows, which empty cells continue least roughly."""
    n = len(labels)
    is_live = (labels >= 0) & (weights > 0)
    is_empty = (labels >= 0) & (weights == 0)
    columns = np.zeros((n, int(is_live.sum())))
    columns[is_live] = np.eye(columns.shape[1])
    if is_empty.any() and grid.smoothness > 0:
        pulls = pull_of_roughness(np.eye(n), grid)
        columns[is_empty] = np.linalg.solve(pulls[np.ix_(is_empty, is_empty)], -pulls[np.ix_(is_empty, is_live)])
    return columns, np.where(labels >= 0, np.arange(n), n), n
