"""`rbr experiments`: the paper measured again."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from pathlib import Path

from rbr.cli.console import Console
from rbr.experiments.run import add_arguments as add_arguments
from rbr.experiments.run import run as run_experiments


def run(arguments: argparse.Namespace, console: Console) -> int:
    # For machines the progress goes to stderr, and stdout says where the results are.
    with redirect_stdout(sys.stderr if console.as_json else sys.stdout):
        code = run_experiments(arguments)
    folder = Path(arguments.out)
    files = sorted(path.name for path in folder.glob("*") if not path.name.startswith("."))
    console.finish({"exit_code": code, "folder": str(folder), "files": files})
    return code
