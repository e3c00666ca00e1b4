"""Which kernels run: the compiled ones, or the NumPy reference.

Callers look up `kernels()` at every call, so `use_backend` affects all of them and no estimator needs a parameter
for it. Importing this module checks that both sides agree on their sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType

from rbr import _fast, _sizes
from rbr._fast import _csv, _design, _encoding, _losses, _projections, _visits
from rbr.reference import csv_text as _reference_csv
from rbr.reference import kernels as _reference
from rbr.reference import losses as _reference_losses
from rbr.reference import projections as _reference_projections
from rbr.reference import visits as _reference_visits

BACKENDS = {"fast": _fast, "reference": _reference}

# (name, the compiled module that defines it, the other modules that do)
SHARED_SIZES: tuple[tuple[str, ModuleType, tuple[ModuleType, ...]], ...] = (
    ("ROWS_PER_SUM", _losses, (_sizes, _reference_losses)),
    ("LOG_LOSS_SUMS", _losses, (_sizes,)),
    ("DISTANCE_SUMS", _losses, (_sizes,)),
    ("LOSSES", _losses, (_sizes, _reference_losses)),
    ("SOFTMAX", _visits, (_sizes, _reference_visits)),
    ("TOGETHER", _design, (_sizes,)),
    ("MAX_CODE", _design, (_sizes,)),
    ("MAX_CODE", _encoding, (_sizes,)),
    ("NO_PIECE", _projections, (_sizes, _reference_projections)),
    ("SHAPES", _projections, (_reference_projections,)),
    ("NUMBER_WIDTH", _csv, (_sizes, _reference_csv)),
)


def check_sizes() -> None:
    """Refuse compiled kernels whose sizes differ from Python's: they could read or write past the end of an array."""
    for name, compiled, others in SHARED_SIZES:
        built = getattr(compiled, name, None)  # an older build may lack it
        for other in others:
            size = getattr(other, name)
            if built != size:
                raise ImportError(
                    f"{name} is {size!r} in {other.__name__} but {built!r} in the compiled {compiled.__name__}. "
                    "The kernels were compiled from another version of rbr: rebuild them with `pip install -e .`."
                )


check_sizes()

_active: ContextVar[ModuleType] = ContextVar("rbr_kernels", default=_fast)


def kernels() -> ModuleType:
    """The module whose kernels run now."""
    return _active.get()


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Run everything inside the `with` block on the kernels of one backend.

    Parameters
    ----------
    name : {"fast", "reference"}
        The compiled kernels (the default outside any block) or the NumPy reference that defines them.

    Examples
    --------
    >>> import numpy as np
    >>> import rbr
    >>> C = rbr.Constraints(max_segments=2)
    >>> with rbr.use_backend("reference"):
    ...     C.project(np.array([0.0, 0.2, 1.0, 1.2]), np.array([0, 4]), np.full(4, 0.25))
    array([-0.5, -0.5,  0.5,  0.5])
    """
    if name not in BACKENDS:
        raise ValueError(f"name is {name!r}; the backends are {', '.join(map(repr, BACKENDS))}")
    token = _active.set(BACKENDS[name])
    try:
        yield
    finally:
        _active.reset(token)
