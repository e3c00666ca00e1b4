"""Check that cibuildwheel would build a wheel for every Python that the classifiers name, and no others.

python .ci/check_identifiers.py

cibuildwheel must be on PATH. It reads all its options first, so an unknown option or architecture is an error too.
"""

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# No musllinux and no free-threaded Python: nothing has been tested there yet.
PLATFORMS = {
    "linux": ("manylinux_x86_64", "manylinux_aarch64"),
    "macos": ("macosx_x86_64", "macosx_arm64"),
    "windows": ("win_amd64",),
}


def identifiers(platform: str) -> set[str]:
    command = ["cibuildwheel", "--print-build-identifiers", "--platform", platform]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"check_identifiers: {done.stderr}")
    return set(done.stdout.split())


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = (re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", text) for text in project["classifiers"])
    pythons = [f"cp3{match[1]}" for match in found if match]
    for platform, wheels in PLATFORMS.items():
        expected = {f"{python}-{wheel}" for python in pythons for wheel in wheels}
        actual = identifiers(platform)
        if actual != expected:
            missing, extra = sorted(expected - actual), sorted(actual - expected)
            raise SystemExit(f"check_identifiers: for {platform}, missing: {missing}, not wanted: {extra}")
        print(f"{platform}: {', '.join(pythons)}, each for {' and '.join(wheels)}")


if __name__ == "__main__":
    main()
