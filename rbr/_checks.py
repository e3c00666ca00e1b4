"""Argument checks: they return the array or number that a kernel relies on, or raise an error that names the argument.

Kernels validate nothing, so every argument that reaches them is checked here first.
"""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np


def check_vector(values, length: int, name: str, *, finite: bool = True) -> np.ndarray:
    """`values` as a contiguous float64 vector of the given length."""
    vector = np.ascontiguousarray(values, dtype=np.float64)
    if vector.ndim != 1 or vector.shape[0] != length:
        raise ValueError(f"{name} has shape {np.shape(values)}; it must be a vector of length {length}")
    if finite and not np.isfinite(vector).all():
        where = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise ValueError(f"{name}[{where}] is {vector[where]}; all of {name} must be finite")
    return vector


def check_nonnegative(values, length: int, name: str) -> np.ndarray:
    """`values` as a contiguous float64 vector of the given length without negative or non-finite entries."""
    vector = check_vector(values, length, name)
    if (vector < 0).any():
        where = int(np.flatnonzero(vector < 0)[0])
        raise ValueError(f"{name}[{where}] is {vector[where]}; all of {name} must be at least 0")
    return vector


def check_sample_weight(values, n_rows: int) -> np.ndarray:
    """`values`, or one number for all rows, as row weights of which at least one is positive."""
    try:
        given = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight is {values!r}; it must be numbers, one for each of {n_rows} rows") from error
    weights = check_nonnegative(np.full(n_rows, given) if given.ndim == 0 else given, n_rows, "sample_weight")
    if not weights.any():
        raise ValueError("sample_weight is all zero; at least one row must have a positive weight")
    return weights


def check_int(value, name: str, low: int, high: int | None = None) -> int:
    """`value` as an int in [low, high]."""
    if not isinstance(value, Integral) or isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} is {value!r}; it must be an integer")
    number = int(value)
    if number < low or (high is not None and number > high):
        allowed = f"at least {low}" if high is None else f"between {low} and {high}"
        raise ValueError(f"{name} is {value}; it must be {allowed}")
    return number


def check_real(value, name: str, low: float, *, strict: bool = False) -> float:
    """`value` as a finite float that is at least low, or above it if strict."""
    if not isinstance(value, Real) or isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} is {value!r}; it must be a number")
    # NumPy's stubs do not know the numbers module.
    if not np.isfinite(value) or value < low or (strict and value == low):  # type: ignore[call-overload]
        raise ValueError(f"{name} is {value}; it must be finite and {'above' if strict else 'at least'} {low}")
    return float(value)


def check_level(level) -> float:
    """`level` as a share strictly between 0 and 1."""
    level = check_real(level, "level", 0.0, strict=True)
    if level >= 1:
        raise ValueError(f"level is {level}; it must be below 1")
    return level


def check_choice(value, name: str, choices) -> str:
    """`value` if it is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, choices))}")
    return value


def check_offsets(offsets, n_coef: int | None = None) -> np.ndarray:
    """`offsets` as int64 [0, …, n_coef] with a table of at least one bin between any two."""
    given = np.asarray(offsets)
    if given.ndim != 1 or given.shape[0] < 1 or given.dtype.kind not in "iu":
        raise ValueError(f"offsets has shape {given.shape} and dtype {given.dtype}; it must be a vector of integers")
    offsets = np.ascontiguousarray(given, dtype=np.int64)
    if offsets[0] != 0 or (np.diff(offsets) < 1).any():
        raise ValueError("offsets must start at 0 and increase by at least 1: every table has a bin")
    if n_coef is not None and offsets[-1] != n_coef:
        raise ValueError(f"offsets end at {offsets[-1]}, but there are {n_coef} table entries; they must agree")
    return offsets


def check_grids(grids, n_bins: np.ndarray) -> np.ndarray | None:
    """Grids as int64; a ValueError names a feature whose bins are not those of its grid."""
    if grids is None:
        return None
    given = np.asarray(grids)
    if given.shape != (len(n_bins), 6) or given.dtype.kind not in "iu":
        raise ValueError(
            f"grids has shape {given.shape} and dtype {given.dtype}; it must hold six integers for each of the "
            f"{len(n_bins)} features"
        )
    grids = np.array(given, dtype=np.int64, order="C")
    is_grid = grids.any(axis=1)
    cells = (grids[:, 0] + grids[:, 2]) * (grids[:, 1] + grids[:, 3])
    is_right = (grids[:, :2] >= 1).all(axis=1) & np.isin(grids[:, 2:], (0, 1)).all(axis=1) & (cells == n_bins)
    if (is_grid & ~is_right).any():
        j = int(np.flatnonzero(is_grid & ~is_right)[0])
        raise ValueError(
            f"the grid of feature {j} is {grids[j].tolist()}; it must be two numbers of bins and four of 0 or 1, and "
            f"have the {n_bins[j]} bins of the feature"
        )
    return grids
