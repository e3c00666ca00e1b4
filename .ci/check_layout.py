"""Check the layout of the package: no source file is too long, and no package imports one that is below it in ORDER.

    python .ci/check_layout.py

Prints one line per violation, and exits with 1 if there are any.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "rbr"
MAX_LINES = 600

# From the top down, as in docs/design.md: a package may import those above it. Packages on the same line do not import
# one another.
ORDER = (
    ("_arguments", "_checks", "_files", "_options", "_parallel", "_ragged", "_sizes", "_text"),
    ("reference", "_fast"),
    ("_backend",),
    ("data",),
    ("losses",),
    ("shapes",),
    ("constraints",),
    ("objective",),
    ("solvers",),
    ("model",),
    ("estimators",),
    ("plotting", "distributed"),
    ("report",),
    ("baselines", "datasets", "embedding", "sql", "theory"),
    ("experiments",),
    ("_show_versions",),
    ("cli",),
    ("__main__",),
)
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}

# Exceptions: four calls into a package further down, imported at the time of the call, and the choice of the reference
# as a backend.
ALLOWED = {
    ("model/additive.py", "plotting"),
    ("model/reading.py", "report"),
    ("model/serving.py", "estimators"),
    ("experiments/__main__.py", "cli"),
    ("_backend.py", "reference"),
}


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """(line, package) of every import of rbr in a module, except those under `if TYPE_CHECKING`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    ignored = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in ignored:
            continue
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module == "rbr":
            names = [f"rbr.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            parts = name.split(".")
            if parts[0] == "rbr" and len(parts) > 1:
                yield node.lineno, parts[1]


def faults() -> Iterator[str]:
    for path in sorted(p for ending in ("py", "pyx", "pxi") for p in PACKAGE.rglob(f"*.{ending}")):
        name = path.relative_to(PACKAGE).as_posix()
        n_lines = len(path.read_text(encoding="utf-8").splitlines())
        if n_lines > MAX_LINES:
            yield f"rbr/{name}: {n_lines} lines; at most {MAX_LINES} are allowed"
        room = name.split("/")[0].removesuffix(".py")
        if path.suffix != ".py" or room == "__init__":
            continue
        if room not in RANK:
            yield f"rbr/{name}: {room!r} has no place in ORDER"
            continue
        for line, imported in imports_of(path):
            if imported == room or (name, imported) in ALLOWED or imported not in RANK:
                continue
            if RANK[imported] >= RANK[room]:
                yield f"rbr/{name}:{line}: {room} imports {imported}, which does not stand above it"
            elif imported == "reference":
                yield f"rbr/{name}:{line}: production code imports the reference, which judges it"


if __name__ == "__main__":
    found = list(faults())
    print("\n".join(found) or f"{len(list(PACKAGE.rglob('*.py')))} modules in their places")
    sys.exit(bool(found))
