"""`rbr demo`: the paper's synthetic model, fitted by two solvers, in ten lines."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import rbr
from rbr._arguments import whole_number
from rbr._files import whole_file
from rbr._text import BLOCKS, PLAIN_BLOCKS, sparkline
from rbr.cli.console import Console, UsageError
from rbr.cli.outputs import check_folder_of, check_report, picture_format, write_report

if TYPE_CHECKING:
    import numpy as np

BINS = 40
PIECES = 8
STEPS = 100
LINES = 4  # curves drawn in the terminal
WIDTH = 28
PICTURE = "rbr-demo.png"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--n-rows", type=whole_number(BINS), default=2000, help="default: %(default)s")
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
        help=f"where to save the picture; default: {PICTURE}, if matplotlib is there",
    )
    parser.add_argument("--report", metavar="FILE.html", help="also write the model as an interactive page")


def run(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.n_informative > arguments.n_features:
        raise UsageError(
            f"--n-informative is {arguments.n_informative}; it must be at most --n-features, {arguments.n_features}"
        )
    check_folder_of(arguments.out, "--out")
    check_report(arguments.report)
    arguments_of_fit = arguments.n_rows, arguments.n_features, arguments.n_informative, arguments.seed
    data, paper, paper_curves = fit_planted(*arguments_of_fit)
    _, default, default_curves = fit_planted(*arguments_of_fit, solver="auto")
    console.say(
        f"{arguments.n_rows:,} rows of {arguments.n_features} features. {arguments.n_informative} of these act on the "
        f"target, each through a random curve (seed {arguments.seed}).\n"
        f"Told only to use at most {arguments.n_informative} features of at most {PIECES} pieces each,\n"
        f"the paper's Algorithm 1 {_success(data, paper, paper_curves)},\n"
        f"and the default solver {_success(data, default, default_curves)}."
    )
    by_default = default.loss <= paper.loss
    solution, curves = (default, default_curves) if by_default else (paper, paper_curves)
    _say_curves(data, curves, console)
    solver = "the default solver" if by_default else "Algorithm 1"
    saved, why_not = _save_picture(data, curves, solver, arguments.out)
    if arguments.report is not None:
        binner = rbr.Binner(max_bins=BINS).fit(data.X)
        model = rbr.AdditiveModel.from_solution(binner, solution, target="y")
        write_report(model, arguments.report, title=f"rbr demo, seed {arguments.seed}")
    places = [*([saved] if saved else []), *([arguments.report] if arguments.report else [])]
    if places:
        console.say(f"All that {solver} found: {', and as a page: '.join(places)}")
    if why_not:
        # Without --out the picture is optional, so its absence is no error.
        if arguments.out:
            raise ImportError(f"No picture was saved: {why_not}")
        console.say(f"For a picture of all curves: {why_not}")
    console.finish(
        {
            "rows": arguments.n_rows,
            "features": arguments.n_features,
            "informative": arguments.n_informative,
            "seed": arguments.seed,
            "algorithm1": _facts(data, paper, paper_curves),
            "default": _facts(data, default, default_curves),
            "picture": saved,
            "report": arguments.report,
        }
    )
    return 0


def _facts(data: Any, solution: Any, curves: Sequence[DemoCurve]) -> dict[str, Any]:
    """What was found, in numbers."""
    return {
        "n_found": sum(curve.planted and curve.found for curve in curves),
        "n_others": sum(curve.found and not curve.planted for curve in curves),
        "n_planted": sum(curve.planted for curve in curves),
        "r2": 1 - 2 * solution.loss / float(data.y.var()),  # the loss is half the mean squared error
        "curves": [
            {"feature": own.feature, "planted": own.planted, "found": own.found, "error": own.error} for own in curves
        ],
    }


def _success(data: Any, solution: Any, curves: Sequence[DemoCurve]) -> str:
    known = _facts(data, solution, curves)
    others = known["n_others"]
    return (
        f"finds {known['n_found']} of the {known['n_planted']}, and {others} other{'s' * (others != 1)}; "
        f"R^2 is {known['r2']:.3f}"
    )


def _say_curves(data: Any, curves: Sequence[DemoCurve], console: Console) -> None:
    """Draw the largest curves beside the learned ones, over the ranks of the rows."""
    import numpy as np

    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    blocks = BLOCKS if _can_write(BLOCKS, encoding) else PLAIN_BLOCKS
    largest = sorted((curve for curve in curves if curve.planted), key=lambda curve: -curve.size)[:LINES]
    console.say(f"{'feature':>7}  {'true curve':{WIDTH}}  {'learned':{WIDTH}}  error of the curve")
    for curve in largest:
        order = np.argsort(data.X[:, curve.feature], kind="stable")
        rows = order[np.linspace(0, len(order) - 1, WIDTH).astype(int)]
        truth, learned = curve.truth(data.X[rows, curve.feature]), curve.values[rows]
        both = np.concatenate([truth, learned])
        lines = (sparkline(own, both.min(), both.max(), blocks) for own in (truth, learned))
        console.say(f"{curve.feature:7d}  {'  '.join(lines)}  {curve.error:18.0%}")


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
OPTIONS: dict[str, dict[str, Any]] = {
    "algorithm1": {"step_size": 1.0, "max_iter": STEPS, "tol": 0.0},
    "auto": {},
}


def fit_planted(n_rows: int, n_features: int, n_informative: int, seed: int, solver: str = "algorithm1"):
    """Draw data from the paper's planted model, fit it, and compare each learned curve with the true one."""
    import numpy as np

    from rbr.datasets import make_planted

    data = make_planted(n_rows, n_features, n_informative, random_state=seed)
    B = rbr.Binner(max_bins=BINS).fit(data.X).transform(data.X)
    solution = rbr.solve(
        B,
        data.y,
        loss="squared_error",
        constraints=rbr.Constraints(max_features=n_informative, max_segments=PIECES),
        solver=solver,
        **OPTIONS[solver],
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


def _save_picture(data, curves: Sequence[DemoCurve], solver: str, out: str | None) -> tuple[str | None, str]:
    """(where the picture is, why there is none)."""
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
        return None, ""
    try:
        figure = plot_curves(pictures, title=f"The curves that {solver} found among {data.X.shape[1]} features")
    except ImportError as error:
        return None, str(error)
    path = out or PICTURE
    with whole_file(path) as temporary:
        figure.savefig(temporary, format=picture_format(path))
    return path, ""
