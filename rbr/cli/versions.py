"""`rbr versions`: what a bug report needs."""

from __future__ import annotations

import argparse

import rbr
from rbr._show_versions import facts
from rbr.cli.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(arguments: argparse.Namespace, console: Console) -> int:
    if not (console.as_json or console.is_quiet):
        rbr.show_versions()
    console.finish({heading: dict(own) for heading, own in facts()})
    return 0
