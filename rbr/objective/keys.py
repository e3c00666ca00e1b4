"""Numbers that tell rows apart by their content, so that neither order nor blocks of rows decide what a bag draws."""

from __future__ import annotations

import numpy as np


def keys_of_rows(codes: np.ndarray, y: np.ndarray, offset: np.ndarray | None) -> np.ndarray:
    """64 bits of the content of each row: rows that differ share them with a probability of 2^-64."""
    columns = [*codes, np.ascontiguousarray(y, dtype=np.float64).view(np.uint64)]
    if offset is not None:
        columns += list(np.ascontiguousarray(offset.reshape(len(y), -1).T, dtype=np.float64).view(np.uint64))
    key = np.zeros(len(y), dtype=np.uint64)
    for column in columns:
        key ^= column  # then two rounds of mixing (xorshift and multiplication by odd numbers)
        key *= np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
        key *= np.uint64(0xBF58476D1CE4E5B9)
        key ^= key >> np.uint64(32)
    return key
