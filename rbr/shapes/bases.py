"""Bases: tables that span all tables with given pieces."""

from __future__ import annotations

import numpy as np


def cosines(labels, weights, positions, has_missing: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """(columns, groups, n_groups): a column for each frequency in use, and one for the missing bin."""
    n_bins, n_ordered = len(labels), len(labels) - bool(has_missing)
    angles = np.pi * (np.arange(n_ordered) + 0.5) / n_ordered
    frequencies = np.flatnonzero(labels[:n_ordered] >= 0)
    columns = np.zeros((n_bins, len(frequencies) + bool(has_missing)))
    columns[:n_ordered, : len(frequencies)] = np.cos(angles[:, None] * frequencies)
    columns[n_ordered:, len(frequencies) :] = 1.0
    return columns, np.arange(n_bins), n_bins


def indicators_and_lines(labels, weights, positions, has_missing: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """(columns, groups, n_groups): the indicator of each piece, then the centred positions of each line."""
    covered = np.flatnonzero(labels >= 0)
    pieces, piece_of = np.unique(labels[covered], return_inverse=True)
    n_pieces, is_line = len(pieces), pieces % 2 == 1
    sizes = np.where(is_line, np.bincount(piece_of, minlength=n_pieces), 1)
    first_group = np.cumsum(sizes) - sizes
    n_groups = int(sizes.sum())
    groups = np.full(len(labels), n_groups)
    groups[covered] = first_group[piece_of]
    columns = np.zeros((len(labels), n_pieces + int(is_line.sum())))
    columns[covered, piece_of] = 1.0
    if is_line.any():
        of_line = is_line[piece_of]
        bins, line = covered[of_line], (np.cumsum(is_line) - 1)[piece_of[of_line]]
        groups[bins] += rank_in_run(line)
        x, w = positions[bins], weights[bins]
        live = w > 0
        width = np.full((2, n_pieces), -np.inf)  # the largest of -x and of x
        np.maximum.at(width[0], line[live], -x[live])
        np.maximum.at(width[1], line[live], x[live])
        center = np.bincount(line, w * x) / np.maximum(np.bincount(line, w), 1e-300)
        has_slope = width.sum(axis=0)[line] > 0
        columns[bins, n_pieces + line] = np.where(has_slope, x - center[line], 0.0)
    return columns, groups, n_groups


def rank_in_run(runs: np.ndarray) -> np.ndarray:
    """0, 1, 2, … within each run of equal numbers."""
    starts = np.flatnonzero(np.diff(runs, prepend=-1))
    return np.arange(len(runs)) - np.repeat(starts, np.diff(starts, append=len(runs)))
