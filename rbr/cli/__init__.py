"""The `rbr` command. A subcommand is one entry of COMMANDS and one module of this package.

A module has `add_arguments(parser)` and `run(arguments, console)`, which returns an exit code. Only the module of the
command that is run is imported, so that `rbr --help` and `rbr predict` start quickly.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import NoReturn

import rbr
from rbr.cli.console import (
    BROKEN_PIPE,
    BUG,
    FAILED,
    INTERRUPTED,
    TERMINATED,
    USAGE,
    Console,
    Refusal,
    Terminated,
    UsageError,
    one_sentence,
)

__all__ = ["COMMANDS", "Command", "main"]


@dataclass(frozen=True)
class Command:
    """A subcommand: its name, what it does, and the module that does it."""

    name: str
    summary: str
    module: str


COMMANDS = (
    Command("fit", "Fit a model to a table, show its terms, and save it.", "rbr.cli.fit"),
    Command("predict", "Score the rows of a table, block by block.", "rbr.cli.predict"),
    Command("explain", "Tell why rows have their predictions, in words or as numbers.", "rbr.cli.explain"),
    Command("show", "Show a saved model: its terms, or the pieces of some of them.", "rbr.cli.show"),
    Command("compare", "Tell where two models differ, and by how much.", "rbr.cli.compare"),
    Command(
        "demo",
        "Plant the paper's synthetic model, fit it by two solvers, and show which curves they learned and how closely.",
        "rbr.cli.demo",
    ),
    Command(
        "experiments",
        "Measure the figures, theorems and claims of the paper again, and write what holds.",
        "rbr.cli.experiments",
    ),
    Command("versions", "Print what a bug report needs: versions, platform, build.", "rbr.cli.versions"),
)

EPILOG = """exit codes:
  0    done
  1    the data, a file or an option's value does not fit; one line on stderr says why
  2    the command line is wrong
  3    an unexpected error, which is a bug of rbr
  130  interrupted (Ctrl-C)
  141  whoever reads the output has closed it
  143  ended by the signal TERM

Each command has --help. Results go to stdout, notes and errors to stderr; --json prints one JSON object instead.
Files are written whole or not at all.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`, by default that of the process, and return its exit code.

    Examples
    --------
    >>> from rbr.cli import main
    >>> main(["versions", "--quiet"])
    0
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    arguments = _parser(argv).parse_args(argv)
    console = Console(arguments.command, as_json=arguments.json, is_quiet=arguments.quiet)
    _let_streams_write_any_text()
    try:
        with _termination(), warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = lambda message, *_: console.warn(one_sentence(message))
            code = import_module(arguments.module).run(arguments, console)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        console.complain("interrupted")
        return INTERRUPTED
    except Terminated:
        console.complain("terminated")
        return TERMINATED
    except BrokenPipeError:
        _forget_stdout()
        return BROKEN_PIPE
    except Exception as error:
        if arguments.traceback or os.environ.get("RBR_TRACEBACK"):
            raise
        return _told(error, console)


@contextmanager
def _termination() -> Iterator[None]:
    """Lets the signal TERM raise Terminated, so that half-written files are removed as they are after Ctrl-C."""

    def raise_terminated(*_: object) -> NoReturn:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():  # where signals cannot be handled
        yield
        return
    before = signal.signal(signal.SIGTERM, raise_terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _told(error: Exception, console: Console) -> int:
    """Tell an error in one line, and return its exit code."""
    if isinstance(error, UsageError):
        console.complain(str(error))
        return USAGE
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        console.complain(f"{os.fspath(error.filename)}: {error.strerror}")
        return FAILED
    if isinstance(error, MemoryError):
        console.complain("there is not enough memory")
        return FAILED
    # What rbr refuses is a ValueError or a TypeError; a package that is absent is an ImportError.
    if isinstance(error, (Refusal, ValueError, TypeError, OSError, ImportError)):
        console.complain(one_sentence(error))
        return FAILED
    console.complain(f"unexpected {type(error).__name__}: {one_sentence(error)}; --traceback shows where")
    return BUG


class _OneLineParser(argparse.ArgumentParser):
    """A parser that tells an error in one line, without the list of all options."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = _OneLineParser(
        prog="rbr",
        description="Sparse additive models that are accurate and readable.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rbr {rbr.__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        own = subparsers.add_parser(command.name, help=command.summary, description=command.summary)
        if command.name in argv:
            import_module(command.module).add_arguments(own)
        common = own.add_argument_group("output")
        common.add_argument("--json", action="store_true", help="print one JSON object on stdout instead of text")
        common.add_argument("--quiet", "-q", action="store_true", help="print nothing but errors, warnings and --json")
        common.add_argument("--traceback", action="store_true", help="show where an error came from")
        own.set_defaults(command=command.name, module=command.module)
    return parser


def _let_streams_write_any_text() -> None:
    """Characters that a terminal cannot show are written as escapes, since column names can hold any."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _forget_stdout() -> None:
    """Let Python's last flush at its end go nowhere, since nobody reads it."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # a stdout that is no file
        pass
