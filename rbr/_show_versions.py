"""What a bug report needs to say about the machine."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

REQUIRED = ("rbr", "numpy", "scipy", "scikit-learn", "joblib", "threadpoolctl")
OPTIONAL = ("pandas", "polars", "pyarrow", "matplotlib", "dask", "narwhals")


def show_versions() -> None:
    """Print what a bug report needs: versions, the platform, how the kernels were built, RBR_* variables.

    Examples
    --------
    >>> import rbr
    >>> rbr.show_versions()  # doctest: +ELLIPSIS
    System
      python: 3...
    """
    for heading, own in facts():
        print(heading)
        for name, fact in own:
            print(f"  {name}: {fact}")


def facts() -> Iterator[tuple[str, Iterator[tuple[str, str]]]]:
    """(heading, pairs of a name and a fact), in the order in which `show_versions` prints them."""
    yield "System", _system()
    yield "Packages", _packages(REQUIRED)
    yield "Optional packages", _packages(OPTIONAL)
    yield "Compiled kernels", _kernels()
    yield "Environment", _environment()


def _system() -> Iterator[tuple[str, str]]:
    yield "python", " ".join(sys.version.split())
    yield "executable", sys.executable
    yield "platform", platform.platform()
    yield "machine", platform.machine()
    yield "cores", _cores()


def _cores() -> str:
    n_cores = os.cpu_count()
    # A container or a batch queue may allow fewer than the machine has.
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else n_cores
    return f"{n_cores}, of which {usable} usable here"


def _packages(names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in names:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            yield name, "not installed"


def _kernels() -> Iterator[tuple[str, str]]:
    import rbr._fast._build_info as _build_info

    yield "build", "debug (bounds checked)" if _build_info.DEBUG else "release"
    yield "file", _build_info.__file__


def _environment() -> Iterator[tuple[str, str]]:
    settings = {name: value for name, value in os.environ.items() if name.startswith("RBR_")}
    yield from sorted(settings.items()) or [("RBR_*", "none set")]
