"""Builds the compiled kernels; everything else about the package is in pyproject.toml.

The compiler directives live here and nowhere else. RBR_DEBUG=1 turns the run-time checks on: bounds,
initialised views, None. There is no -march=native (a wheel must run on any x86-64 or arm64), no
fast-math (NaN stays NaN), and -ffp-contract=off, so that arm64 rounds as x86-64 does. -fno-trapping-math lets the
compiler vectorise loops with comparisons, and -fno-math-errno those with square roots; nothing reads the floating-point
exception flags, or errno.
"""

import os
import re
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("RBR_DEBUG", "0") not in ("", "0")

COMPILER_DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "initializedcheck": DEBUG,
    "nonecheck": DEBUG,
    "wraparound": False,
    "cdivision": True,
    "freethreading_compatible": True,
}
COMPILE_ARGS = ["-O3", "-ffp-contract=off", "-fno-trapping-math", "-fno-math-errno", "-g" if DEBUG else "-g0"]
if sys.platform == "win32":
    COMPILE_ARGS = ["/O2"]


def last_build(build):
    """The file that records whether the last build was release or debug. It is written only when that changes.

    Every extension depends on it, so switching between the two rebuilds all extensions, never only some.
    """
    note = Path("build/last-build.txt")
    if not note.exists() or note.read_text() != build:
        note.parent.mkdir(exist_ok=True)
        note.write_text(build)
    return str(note)


def included(path):
    """The .pxi files that a .pyx file includes."""
    return [str(path.parent / name) for name in re.findall(r'^include "(.+)"', path.read_text("utf-8"), re.MULTILINE)]


build = "debug" if DEBUG else "release"
FAST = Path("rbr/_fast")
depends = [last_build(build), *map(str, sorted(FAST.glob("*.h")))]
extensions = [
    Extension(
        ".".join(path.with_suffix("").parts),
        [str(path)],
        extra_compile_args=COMPILE_ARGS,
        include_dirs=[str(FAST)],
        depends=[*depends, *included(path)],
    )
    for path in sorted(FAST.glob("*.pyx"))
]

setup(ext_modules=cythonize(extensions, build_dir=f"build/cython-{build}", compiler_directives=COMPILER_DIRECTIVES))
