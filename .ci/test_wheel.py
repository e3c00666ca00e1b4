"""Test the installed wheel as cibuildwheel would: its test-requires, test-environment and test-command.

python .ci/test_wheel.py PROJECT

PROJECT is an unpacked source distribution. Run it with the Python in whose environment the wheel is installed, from a
folder that holds no rbr. The requirements of the tests are installed too, from wheels only.
"""

import os
import subprocess
import sys
import tomllib
from pathlib import Path


def main(project: Path) -> None:
    settings = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cibuildwheel"]
    pip_install = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    subprocess.run([*pip_install, *settings["test-requires"]], check=True)
    command = settings["test-command"].replace("{project}", str(project))
    print(settings["test-command"], flush=True)
    subprocess.run(command, shell=True, env={**os.environ, **settings["test-environment"]}, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
