"""Which kernels run: the compiled ones, or the NumPy reference.

Every room asks `kernels()` at the moment of the call, so `use_backend` reaches all of them and no
estimator needs a parameter for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType

from rbr import _fast
from rbr.reference import kernels as _reference

BACKENDS = {"fast": _fast, "reference": _reference}

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
