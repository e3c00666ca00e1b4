"""The shapes that a table may have, one `ShapeSpec` each.

A shape is a closed cone of tables that is closed under adding a constant: pieces, levels, frequencies. Its spec says
how the best table is searched, what it costs to describe, which linear space its pieces span, and what the moves of a
solver may do with it. Solvers and models ask the spec and not the name, so `register` can add a shape from outside the
package.
"""

from rbr.shapes.codes import level_codes
from rbr.shapes.grids import Grid, pull_of_roughness
from rbr.shapes.isotonic import isotonic
from rbr.shapes.registry import NATIVE, flags, register, shape_names, spec_at, spec_of, unregister
from rbr.shapes.spec import ShapeSpec

__all__ = [
    "NATIVE",
    "Grid",
    "ShapeSpec",
    "flags",
    "isotonic",
    "level_codes",
    "pull_of_roughness",
    "register",
    "shape_names",
    "spec_at",
    "spec_of",
    "unregister",
]
