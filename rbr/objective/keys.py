"""Numbers that tell rows apart by their content, so that neither order nor blocks of rows decide what a bag draws."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def keys_of_rows(codes: np.ndarray, y: np.ndarray, offset: np.ndarray | None) -> np.ndarray:
    """64 bits of the content of each row: rows that differ share them with a probability of 2^-64."""
    columns = [*codes, _bits(y)]
    if offset is not None:
        columns += list(_bits(offset.reshape(len(y), -1).T))
    return _mixed(np.zeros(len(y), dtype=np.uint64), columns)


def keys_with_values(keys: np.ndarray, values: Iterable[np.ndarray]) -> np.ndarray:
    """Keys that tell apart rows of different values too, for each of some columns."""
    return _mixed(keys.copy(), map(_bits, values))


def _bits(values: np.ndarray) -> np.ndarray:
    """The bits of numbers; zero has one sign."""
    return (np.ascontiguousarray(values, dtype=np.float64) + 0.0).view(np.uint64)


def _mixed(key: np.ndarray, columns: Iterable[np.ndarray]) -> np.ndarray:
    for column in columns:
        key ^= column  # then two rounds of mixing (xorshift and multiplication by odd numbers)
        key *= np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
        key *= np.uint64(0xBF58476D1CE4E5B9)
        key ^= key >> np.uint64(32)
    return key
