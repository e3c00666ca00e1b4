"""Argument types for the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def whole_number(low: int) -> Callable[[str], int]:
    """An argument type: an integer that is at least `low`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or value < low:
            raise argparse.ArgumentTypeError(f"{text!r} is not allowed; it must be an integer, at least {low}")
        return value

    return parse
