"""The shapes by name and number.

The first ones are native, searched by kernels; `prox_tables` knows its own, which come first, by their numbers.
"""

from __future__ import annotations

import numpy as np

from rbr.shapes.bases import cosines
from rbr.shapes.codes import cheapest_free_code, cheapest_level_code, free_code, level_code
from rbr.shapes.grids import (
    cheapest_rectangles_code,
    cheapest_surface_code,
    rectangles_code,
    smooth_cells,
    surface_code,
)
from rbr.shapes.spec import ShapeSpec

KERNEL = "prox_tables"

NATIVE = (
    ShapeSpec("constant", KERNEL),
    ShapeSpec("linear", KERNEL, has_lines=True, is_never_flat=True),
    ShapeSpec("mixed", KERNEL, has_lines=True),
    ShapeSpec("increasing", KERNEL, monotone=1),
    ShapeSpec("decreasing", KERNEL, monotone=-1),
    ShapeSpec(
        "levels", KERNEL, code_length=level_code, cheapest_code=cheapest_level_code, is_grouped=True, has_jumps=False
    ),
    ShapeSpec(
        "frequency",
        KERNEL,
        basis=cosines,
        has_jumps=False,
        has_pieces=False,
        can_be_resegmented=False,
        can_be_sampled=False,
        needs_equal_weights=True,
    ),
    ShapeSpec(
        "free", KERNEL, code_length=free_code, cheapest_code=cheapest_free_code, has_jumps=False, is_never_flat=True
    ),
    ShapeSpec(
        "rectangles",
        "cut_grids",
        on_grid=True,
        code_length=rectangles_code,
        cheapest_code=cheapest_rectangles_code,
        has_jumps=False,
    ),
    ShapeSpec(
        "surface",
        "smooth_grids",
        on_grid=True,
        is_smooth=True,
        code_length=surface_code,
        cheapest_code=cheapest_surface_code,
        basis=smooth_cells,
        has_jumps=False,
        has_pieces=False,
        can_be_resegmented=False,
        is_never_flat=True,
    ),
)

_SPECS: list[ShapeSpec] = list(NATIVE)


def shape_names() -> tuple[str, ...]:
    """The names of all shapes, in the order of their numbers."""
    return tuple(spec.name for spec in _SPECS)


def spec_at(number: int) -> ShapeSpec:
    """The shape with this number."""
    return _SPECS[number]


def spec_of(name: str) -> ShapeSpec:
    """The shape with this name."""
    return _SPECS[shape_names().index(name)]


def flags(attribute: str, numbers: np.ndarray) -> np.ndarray:
    """An attribute of the shapes with given numbers, one for each."""
    return np.array([getattr(spec, attribute) for spec in _SPECS])[numbers]


def register(spec: ShapeSpec) -> ShapeSpec:
    """Add a shape, which `Constraints` and the estimators then accept by name.

    Its search must be exact, and its tables must form a closed cone that is closed under adding a constant: the
    decomposition of the projection and the guarantees of the solvers rely on this.
    """
    if not isinstance(spec, ShapeSpec):
        raise TypeError(f"spec is a {type(spec).__name__}; it must be a ShapeSpec")
    if spec.name in shape_names():
        raise ValueError(f"the name of the spec is {spec.name!r}; there is a shape of that name already")
    if not callable(spec.search):
        raise ValueError(f"search of shape {spec.name!r} is {spec.search!r}; outside the package it must be a function")
    _SPECS.append(spec)
    return spec


def unregister(name: str) -> None:
    """Remove the shape that was registered last; for tests."""
    if len(_SPECS) == len(NATIVE) or _SPECS[-1].name != name:
        raise ValueError(f"name is {name!r}; only the shape that was registered last can be removed")
    _SPECS.pop()
