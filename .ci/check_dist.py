"""Check what a folder with one source distribution and one wheel holds, and that the wheel works.

python .ci/check_dist.py DIST
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

COMPILED = (".so", ".pyd")
SOURCES = (".pyx", ".pxd", ".pxi", ".c", ".h", ".cpp")
ROOT = Path(__file__).resolve().parent.parent


def check(condition: bool, message: str) -> None:
    if not condition:
        raise SystemExit(f"check_dist: {message}")


def page_files() -> list[str]:
    """What the report puts into its page, and the licence of the plotting library."""
    folders = (ROOT / "rbr" / "report" / name for name in ("page", "vendor"))
    return [path.relative_to(ROOT).as_posix() for folder in folders for path in folder.iterdir() if path.is_file()]


def check_sdist(file: Path) -> None:
    """It holds every file that is needed to build and to test, and nothing that was compiled."""
    with tarfile.open(file) as archive:
        names = {str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in archive.getnames()}
    needed = {"setup.py", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "tests/conftest.py"}
    needed |= {path.relative_to(ROOT).as_posix() for path in ROOT.glob("rbr/**/*.py*") if path.suffix != ".pyc"}
    needed |= {path.relative_to(ROOT).as_posix() for end in ("pxi", "h") for path in ROOT.glob(f"rbr/**/*.{end}")}
    needed |= set(page_files())
    check(needed <= names, f"{file.name} lacks {sorted(needed - names)}")
    compiled = sorted(name for name in names if name.endswith((*COMPILED, ".c", ".pyc")))
    check(not compiled, f"{file.name} holds {compiled}")


def check_wheel(file: Path) -> None:
    """It holds the package and nothing else, with a compiled module for each .pyx file and no Cython or C sources."""
    names = zipfile.ZipFile(file).namelist()
    sources = [name for name in names if name.endswith(SOURCES)]
    check(not sources, f"{file.name} holds {sources}")
    compiled = {PurePosixPath(name).name.split(".")[0] for name in names if name.endswith(COMPILED)}
    expected = {path.stem for path in ROOT.glob("rbr/_fast/*.pyx")}
    check(compiled == expected, f"{file.name} holds the extensions {sorted(compiled)}, not {sorted(expected)}")
    lacking = sorted({"rbr/py.typed", *page_files()} - set(names))
    check(not lacking, f"{file.name} lacks {lacking}")
    strangers = {name.split("/")[0] for name in names} - {
        "rbr",
        f"{'-'.join(file.name.split('-')[:2])}.dist-info",
    }
    check(not strangers, f"{file.name} also holds {sorted(strangers)}")


def check_installed(file: Path) -> None:
    """The unpacked wheel runs, and from its own files."""
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(file).extractall(folder)
        done = subprocess.run(
            [sys.executable, "-m", "rbr", "versions"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": folder},
            capture_output=True,
            text=True,
        )
        check(done.returncode == 0, done.stderr)
        check(f"file: {Path(folder, 'rbr', '_fast')}" in done.stdout, f"another rbr ran:\n{done.stdout}")
        check("build: release" in done.stdout, f"a wheel must not be a debug build:\n{done.stdout}")


def main(folder: Path) -> None:
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    check_sdist(sdist)
    check_wheel(wheel)
    check_installed(wheel)
    for file in (sdist, wheel):
        print(f"{file.name}: {file.stat().st_size / 1024:.0f} KiB, as it should be")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
