"""Check that a wheel keeps the promise of its manylinux tag: no symbol in it is newer than the glibc it names.

python .ci/check_wheel.py WHEEL

auditwheel chooses the tag; this script reads the symbols independently. pyelftools and packaging come with auditwheel.
"""

import io
import platform
import re
import sys
import zipfile
from collections import defaultdict
from pathlib import Path

from check_dist import check_wheel as check_content
from elftools.elf.elffile import ELFFile
from packaging.utils import parse_wheel_filename

# The newest glibc that a wheel may need: that of the images in which cibuildwheel builds.
NEWEST_TAG = (2, 28)
# The kernels are plain C, so every machine that runs Python has the libraries they need.
LIBRARIES = re.compile(r"libc\.so\.6|libm\.so\.6|libpthread\.so\.0|ld-linux.*")


def check(condition: bool, message: str) -> None:
    if not condition:
        raise SystemExit(f"check_wheel: {message}")


def glibc_of_tag(wheel: Path) -> tuple[int, int]:
    """The oldest glibc the wheel says it runs with: (2, 17) for manylinux_2_17_x86_64."""
    tags = {tag.platform for tag in parse_wheel_filename(wheel.name)[3]}
    check(all(tag.startswith("manylinux") for tag in tags), f"{wheel.name} is not for manylinux")
    versions = [match for tag in tags if (match := re.fullmatch(r"manylinux_(\d+)_(\d+)_\w+", tag))]
    check(len(versions) == 1, f"{wheel.name} must have one tag manylinux_X_Y, not {sorted(tags)}")
    return int(versions[0][1]), int(versions[0][2])


def symbols_by_version(extension: ELFFile) -> dict[str, set[str]]:
    """The versioned symbols that an extension module imports, such as {"GLIBC_2.14": {"memcpy"}}."""
    versions = {
        required["vna_other"]: required.name
        for _, all_required in extension.get_section_by_name(".gnu.version_r").iter_versions()
        for required in all_required
    }
    names = extension.get_section_by_name(".dynsym").iter_symbols()
    indices = extension.get_section_by_name(".gnu.version").iter_symbols()
    symbols = defaultdict(set)
    for symbol, index in zip(names, indices, strict=True):
        if index["ndx"] in versions:
            symbols[versions[index["ndx"]]].add(symbol.name)
    return symbols


def main(wheel: Path) -> None:
    check_content(wheel)
    promised = glibc_of_tag(wheel)
    symbols, archive = defaultdict(set), zipfile.ZipFile(wheel)
    for name in archive.namelist():
        if name.endswith(".so"):
            extension = ELFFile(io.BytesIO(archive.read(name)))
            dynamic = extension.get_section_by_name(".dynamic")
            needed = [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")]
            check(all(map(LIBRARIES.fullmatch, needed)), f"{name} needs {needed}")
            for version, taken in symbols_by_version(extension).items():
                check(re.fullmatch(r"GLIBC_[\d.]+", version) is not None, f"{name} needs {version}: {sorted(taken)}")
                symbols[tuple(map(int, version.removeprefix("GLIBC_").split(".")))] |= taken
    check(bool(symbols), f"{wheel.name} imports nothing from glibc, so its symbols cannot have been read")
    newest = max(symbols)
    said = f"glibc {'.'.join(map(str, newest))} for {', '.join(sorted(symbols[newest]))}"
    check(newest <= promised, f"{wheel.name} needs {said}")
    check(promised <= NEWEST_TAG, f"{wheel.name} needs {said}; its tag may be manylinux_2_28 at most")
    print(
        f"{wheel.name}: {wheel.stat().st_size / 1024:.0f} KiB\n"
        f"Its tag promises glibc {promised[0]}.{promised[1]}; it was built with {platform.libc_ver()[1]} "
        f"and needs {said}."
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
