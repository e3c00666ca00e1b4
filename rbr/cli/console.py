"""What a command says: results on stdout, notes, progress and errors on stderr, or one JSON object for machines."""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

import numpy as np

from rbr._text import one_line

FAILED, USAGE, BUG = 1, 2, 3
INTERRUPTED, BROKEN_PIPE, TERMINATED = 130, 141, 143  # as a shell reports the signals INT, PIPE and TERM


class Refusal(Exception):
    """Something that the user can mend; it is told in one line."""


class Terminated(BaseException):
    """The process is asked to end, by the signal TERM."""


class UsageError(Refusal):
    """Options that do not fit together; it has the exit code of a wrong command line."""


class Console:
    """The voice of one command."""

    def __init__(self, command: str, as_json: bool = False, is_quiet: bool = False):
        self.command, self.as_json, self.is_quiet = command, as_json, is_quiet

    def say(self, text: str = "") -> None:
        """A part of the result, for people."""
        if not (self.as_json or self.is_quiet):
            print(text)

    def note(self, text: str) -> None:
        """Something beside the result."""
        if not (self.as_json or self.is_quiet):
            print(text, file=sys.stderr)

    def warn(self, text: str) -> None:
        print(f"rbr {self.command}: warning: {text}", file=sys.stderr)

    def complain(self, text: str) -> None:
        print(f"rbr {self.command}: {text}", file=sys.stderr)

    def finish(self, result: dict[str, Any]) -> None:
        """The result for machines."""
        if self.as_json:
            print(json.dumps(as_json(result), indent=1))

    @contextmanager
    def progress(self, what: str) -> Iterator[Status]:
        """Shows how far a long step is, on one line of a terminal, which is empty again in the end.

        What the step prints, such as the iterations of a fit, becomes the text of that line.
        """
        status = Status(what, sys.stderr, is_shown=not self.is_quiet and sys.stderr.isatty())
        try:
            with redirect_stdout(status):  # type: ignore[type-var]  # it has write and flush
                yield status
        finally:
            status.clear()


class Status:
    """A line of a terminal that is written again and again; as a file, it shows the last line that was written."""

    SECONDS = 0.1  # between two writes

    def __init__(self, what: str, stream: TextIO, is_shown: bool):
        self.what, self.stream, self.is_shown = what, stream, is_shown
        self.start = time.monotonic()
        self.last = -math.inf
        if is_shown:
            self.show("")

    def write(self, text: str) -> int:
        if line := text.strip():
            self.show(line)
        return len(text)

    def flush(self) -> None:
        pass

    def show(self, text: str) -> None:
        """Show a text, unless the last one is too young to be read."""
        now = time.monotonic()
        if not self.is_shown or now - self.last < self.SECONDS:
            return
        self.last = now
        line = f"{self.what}, {now - self.start:.0f} s  {one_line(text)}"
        width = shutil.get_terminal_size().columns - 1
        self.stream.write(f"\r\x1b[K{line[:width]}")
        self.stream.flush()

    def clear(self) -> None:
        if self.is_shown:
            self.stream.write("\r\x1b[K")
            self.stream.flush()


def one_sentence(message: object) -> str:
    """A message of one line or of several as one line.

    >>> one_sentence("first line\\n  second line")
    'first line second line'
    """
    return " ".join(str(message).split())


def as_json(value: Any) -> Any:
    """Plain values of JSON: arrays as lists, numbers that JSON does not have as null."""
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, np.ndarray):
        return as_json(value.tolist())
    if isinstance(value, np.generic):
        return as_json(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)
