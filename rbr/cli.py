"""The `rbr` command. A subcommand is one entry of COMMANDS: its name, its arguments, and what it runs."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import rbr
from rbr._arguments import whole_number
from rbr._text import BLOCKS, PLAIN_BLOCKS, sparkline

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Command:
    """A subcommand: `add_arguments` fills its parser, `run` takes the parsed arguments and returns an exit code."""

    name: str
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`, by default that of the process, and return its exit code."""
    parser = argparse.ArgumentParser(prog="rbr", description="Sparse additive models that are accurate and readable.")
    parser.add_argument("--version", action="version", version=f"rbr {rbr.__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        subparser = subparsers.add_parser(command.name, help=command.summary, description=command.summary)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    arguments = parser.parse_args(argv)
    return arguments.run(arguments)


# ---------------------------------------------------------------- rbr versions


def _add_versions_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def _run_versions(arguments: argparse.Namespace) -> int:
    rbr.show_versions()
    return 0


# ---------------------------------------------------------------- rbr demo

DEMO_BINS = 40
DEMO_PIECES = 8
DEMO_STEPS = 100
DEMO_LINES = 4  # curves drawn in the terminal
DEMO_WIDTH = 28
DEMO_PICTURE = "rbr-demo.png"


def _add_demo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--n-rows", type=whole_number(DEMO_BINS), default=2000, help="default: %(default)s")
    parser.add_argument("--n-features", type=whole_number(1), default=100, help="default: %(default)s")
    parser.add_argument(
        "--n-informative",
        type=whole_number(1),
        default=10,
        help="features that act on the target, and features to look for; default: %(default)s",
    )
    parser.add_argument("--seed", type=whole_number(0), default=0, help="default: %(default)s")
    parser.add_argument(
        "--out",
        metavar="FILE.png",
        help=f"where to save the picture; default: {DEMO_PICTURE}, if matplotlib is there",
    )


def _run_demo(arguments: argparse.Namespace) -> int:
    if arguments.n_informative > arguments.n_features:
        print(
            f"rbr demo: --n-informative is {arguments.n_informative}; it must be at most --n-features, "
            f"{arguments.n_features}",
            file=sys.stderr,
        )
        return 2
    arguments_of_fit = arguments.n_rows, arguments.n_features, arguments.n_informative, arguments.seed
    data, paper, paper_curves = fit_planted(*arguments_of_fit)
    _, default, default_curves = fit_planted(*arguments_of_fit, solver="auto")
    print(
        f"{arguments.n_rows:,} rows of {arguments.n_features} features. {arguments.n_informative} of these act on the "
        f"target, each through a random curve (seed {arguments.seed}).\n"
        f"Told only to use at most {arguments.n_informative} features of at most {DEMO_PIECES} pieces each,\n"
        f"the paper's Algorithm 1 {_success(data, paper, paper_curves)},\n"
        f"and the default solver {_success(data, default, default_curves)}."
    )
    by_default = default.loss <= paper.loss
    curves = default_curves if by_default else paper_curves
    _print_curves(data, curves)
    solver = "the default solver" if by_default else "Algorithm 1"
    return _save_demo_picture(data, curves, solver, arguments.out)


def _success(data: Any, solution: Any, curves: Sequence[DemoCurve]) -> str:
    hits = sum(curve.planted and curve.found for curve in curves)
    others = sum(curve.found and not curve.planted for curve in curves)
    n_planted = sum(curve.planted for curve in curves)
    explained = 1 - 2 * solution.loss / data.y.var()  # the loss is half the mean squared error
    return f"finds {hits} of the {n_planted}, and {others} other{'s' * (others != 1)}; R^2 is {explained:.3f}"


def _print_curves(data: Any, curves: Sequence[DemoCurve]) -> None:
    """Draw the largest curves beside the learned ones, over the ranks of the rows."""
    import numpy as np

    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    blocks = BLOCKS if _can_write(BLOCKS, encoding) else PLAIN_BLOCKS
    largest = sorted((curve for curve in curves if curve.planted), key=lambda curve: -curve.size)[:DEMO_LINES]
    print(f"{'feature':>7}  {'true curve':{DEMO_WIDTH}}  {'learned':{DEMO_WIDTH}}  error of the curve")
    for curve in largest:
        order = np.argsort(data.X[:, curve.feature], kind="stable")
        rows = order[np.linspace(0, len(order) - 1, DEMO_WIDTH).astype(int)]
        truth, learned = curve.truth(data.X[rows, curve.feature]), curve.values[rows]
        both = np.concatenate([truth, learned])
        lines = (sparkline(own, both.min(), both.max(), blocks) for own in (truth, learned))
        print(f"{curve.feature:7d}  {'  '.join(lines)}  {curve.error:18.0%}")


def _can_write(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


@dataclass(frozen=True)
class DemoCurve:
    """What the demo learned about one feature that was planted, found, or both.

    Over the rows, `values` are the learned values, `truth` is the true curve minus its mean, `size` its
    standard deviation, and `error` is ||values - truth|| / ||truth||: 1 for a curve that was missed.
    """

    feature: int
    planted: bool
    found: bool
    values: np.ndarray
    truth: Callable[[np.ndarray], np.ndarray]
    size: float
    error: float


# Algorithm 1 takes all its steps, as in the paper; the default solver chooses its steps and when to stop.
DEMO_OPTIONS: dict[str, dict[str, Any]] = {
    "algorithm1": {"step_size": 1.0, "max_iter": DEMO_STEPS, "tol": 0.0},
    "auto": {},
}


def fit_planted(n_rows: int, n_features: int, n_informative: int, seed: int, solver: str = "algorithm1"):
    """Draw data from the paper's planted model, fit it, and compare each learned curve with the true one."""
    import numpy as np

    from rbr.datasets import make_planted

    data = make_planted(n_rows, n_features, n_informative, random_state=seed)
    B = rbr.Binner(max_bins=DEMO_BINS).fit(data.X).transform(data.X)
    solution = rbr.solve(
        B,
        data.y,
        loss="squared_error",
        constraints=rbr.Constraints(max_features=n_informative, max_segments=DEMO_PIECES),
        solver=solver,
        **DEMO_OPTIONS[solver],
    )
    functions = dict(zip(data.support.tolist(), data.functions, strict=True))
    found = set(solution.support.tolist())
    curves = []
    for j in sorted(found | functions.keys()):
        table = solution.f[B.offsets[j] : B.offsets[j + 1]]
        values = table[B.codes[j]]
        function = functions.get(j, np.zeros_like)
        mean = function(data.X[:, j]).mean()

        def truth(x, function=function, mean=mean):
            return function(x) - mean

        size = float(truth(data.X[:, j]).std())
        error = float(np.sqrt(np.mean((values - truth(data.X[:, j])) ** 2))) / size if size else math.nan
        curves.append(DemoCurve(j, j in functions, j in found, values, truth, size, error))
    return data, solution, curves


def _save_demo_picture(data, curves: Sequence[DemoCurve], solver: str, out: str | None) -> int:
    from rbr.plotting import Curve, plot_curves

    pictures = [
        Curve(
            data.X[:, curve.feature],
            curve.values,
            title=f"feature {curve.feature}",
            note=f"error {curve.error:.0%}" if curve.planted else "not planted",
            truth=curve.truth,
        )
        for curve in curves
        if curve.found
    ]
    if not pictures:
        return 0
    try:
        figure = plot_curves(pictures, title=f"The curves that {solver} found among {data.X.shape[1]} features")
    except ImportError as error:
        # Without --out the picture is optional, so its absence is no error.
        text = f"No picture was saved: {error}" if out else f"For a picture of all curves: {error}"
        print(text, file=sys.stderr if out else sys.stdout)
        return 1 if out else 0
    figure.savefig(out or DEMO_PICTURE)
    print(f"All that {solver} found: {out or DEMO_PICTURE}")
    return 0


# ---------------------------------------------------------------- rbr experiments


def _add_experiments_arguments(parser: argparse.ArgumentParser) -> None:
    from rbr.experiments.run import add_arguments

    add_arguments(parser)


def _run_experiments(arguments: argparse.Namespace) -> int:
    from rbr.experiments.run import run

    return run(arguments)


COMMANDS = (
    Command(
        "demo",
        "Plant the paper's synthetic model, fit it by two solvers, and show which curves they learned and how closely.",
        _add_demo_arguments,
        _run_demo,
    ),
    Command(
        "experiments",
        "Measure the figures, theorems and claims of the paper again, and write what holds.",
        _add_experiments_arguments,
        _run_experiments,
    ),
    Command(
        "versions",
        "Print what a bug report needs: versions, platform, build.",
        _add_versions_arguments,
        _run_versions,
    ),
)
