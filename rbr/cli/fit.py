"""`rbr fit`: a table in, a model out."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rbr._arguments import whole_number
from rbr._text import one_line
from rbr.cli.console import Console, UsageError
from rbr.cli.options import as_is, by_column, listed, loss, merged, pairs, sign, whole
from rbr.cli.outputs import check_folder_of, check_report, write_report
from rbr.cli.scores import cross_validated, fit, scores, scores_text
from rbr.cli.show import model_facts
from rbr.cli.tables import add_format_arguments, open_source
from rbr.cli.training import Training, as_facts, columns_text, read_test, read_training, target_text
from rbr.estimators import RBRClassifier, RBRRegressor
from rbr.losses import Loss

LOG_LINK = ("poisson", "gamma", "tweedie")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data", metavar="DATA", help="CSV, perhaps compressed (gz, bz2, xz, zst, zip), or Parquet; - is stdin"
    )
    parser.add_argument("--target", "-t", metavar="COLUMN", required=True, help="what to predict")
    parser.add_argument("--out", "-o", metavar="MODEL.json", help="where to save the model")
    parser.add_argument("--report", metavar="REPORT.html", help="where to write the model as an interactive page")
    parser.add_argument("--test", metavar="DATA", help="rows to score the model on, also in the report")
    parser.add_argument("--cv", metavar="K", type=whole_number(2), help="cross-validate with K folds")

    group = parser.add_argument_group("columns (several are separated by commas; options may be repeated)")
    _add_columns(group, "--features", "use only these")
    _add_columns(group, "--exclude", "do not use these")
    _add_columns(group, "--always-include", "use these in any case")
    _add_columns(group, "--categorical", "read these as categories, even if they hold numbers")
    group.add_argument("--weight", metavar="COLUMN", help="weights of the rows")
    group.add_argument("--exposure", metavar="COLUMN", help="of counts: the model learns the rate per unit of it")
    group.add_argument("--offset", metavar="COLUMN", help="added to the score of each row")

    group = parser.add_argument_group("the model")
    group.add_argument(
        "--task",
        choices=("auto", "classification", "regression"),
        default="auto",
        help="auto: text, truth values and two numbers are classes",
    )
    group.add_argument("--loss", help="of numbers: squared_error, poisson, gamma, tweedie:1.5, huber or quantile:0.9")
    group.add_argument("--max-features", metavar="N", type=whole_number(1), help="the most columns to use")
    _add_values(group, "--max-segments", "N", "the most pieces of a column")
    _add_values(group, "--max-bins", "N", "the most bins of a column")
    _add_values(group, "--shape", "SHAPE", "constant, linear, mixed, increasing, decreasing, levels, frequency or free")
    group.add_argument(
        "--monotone",
        metavar="COLUMN=DIRECTION",
        action="append",
        default=[],
        help="increasing or decreasing; may be repeated",
    )
    group.add_argument("--min-rows", metavar="N", type=float, help="the fewest rows of a piece, or their share")
    group.add_argument(
        "--interactions", metavar="N", help="the most pairs of columns, auto, or pairs such as age:hours"
    )
    group.add_argument("--max-rectangles", metavar="N", type=whole_number(1), help="the most rectangles of a pair")
    group.add_argument("--jump-cost", metavar="K", type=float, help="the price of features and pieces in a single fit")
    group.add_argument("--alpha", type=float, help="ridge penalty")
    group.add_argument("--n-bags", metavar="N", type=whole_number(0), help="0: a single fit; N: the average of N bags")
    group.add_argument("--class-weight", choices=("balanced",), help="give all classes the same total weight")
    group.add_argument("--n-jobs", metavar="N", type=int, help="threads; the result does not depend on them")
    group.add_argument("--random-state", metavar="SEED", type=whole_number(0), help="of bins, bags and folds")
    add_format_arguments(parser)


def _add_columns(group: Any, option: str, text: str) -> None:
    group.add_argument(option, metavar="COLUMNS", action="append", default=[], help=text)


def _add_values(group: Any, option: str, value: str, text: str) -> None:
    group.add_argument(
        option, metavar=f"{value}|COLUMN={value}", action="append", default=[], help=f"{text}; may be repeated"
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    check_folder_of(arguments.out, "--out")
    check_report(arguments.report)
    own_loss = _loss(arguments)
    source = open_source(arguments.data, arguments)
    with console.progress(f"reading {source.title}"):
        training = read_training(source, arguments, own_loss)
        test = None
        if arguments.test is not None:
            test = read_test(open_source(arguments.test, arguments), training, arguments)
    estimator = make_estimator(training, own_loss, arguments)
    how = "Parquet" if source.form is None else source.form.says()
    console.say(f"{source.title}: {training.n_rows:,} rows, {len(source.names):,} columns, {how}")
    if training.n_dropped:
        console.say(f"{training.n_dropped:,} rows without a value of {one_line(training.target.name)} are left out.")
    console.say(f"target: {target_text(training, own_loss is not None or arguments.task != 'auto')}")
    if own_loss is not None:
        console.say(
            f"loss: {own_loss.name}{'' if arguments.loss else ', since there is an exposure; --loss chooses another'}"
        )
    for option in ("weight", "exposure", "offset"):
        if getattr(arguments, option) is not None:
            console.say(f"{option}: {getattr(arguments, option)}")
    console.say(f"\n{columns_text(training)}\n")

    start = time.perf_counter()
    with console.progress(f"fitting {training.n_rows:,} rows") as status:
        estimator.set_params(verbose=int(status.is_shown))
        fit(estimator, training)
    seconds = time.perf_counter() - start
    measured: dict[str, Sequence[dict[str, float]]] = {"training rows": [scores(estimator, training)]}
    if arguments.cv:
        measured[f"{arguments.cv} folds"] = cross_validated(
            estimator, training, arguments.cv, arguments.random_state or 0, console
        )
    if test is not None:
        measured[test.title] = [scores(estimator, test)]
    model = replace(estimator.model_, target=training.target.name, metadata=_metadata(training, arguments, measured))
    estimator.model_ = model
    console.say(f"{model.summary()}\n\n{scores_text(measured)}\n\nFitted in {seconds:.1f} s.")
    if not model.terms:
        console.note("No column has evidence of an effect, so the model predicts the same for every row.")
    _save(estimator, test, arguments, console)
    console.finish(
        {
            "data": as_facts(training),
            "model": {"file": arguments.out, **model_facts(model)},
            "scores": {what: found if len(found) > 1 else found[0] for what, found in measured.items()},
            "report": arguments.report,
            "seconds": seconds,
        }
    )
    return 0


def _save(estimator: Any, test: Training | None, arguments: argparse.Namespace, console: Console) -> None:
    if arguments.out is not None:
        estimator.save(arguments.out)
        console.say(f"Saved: {arguments.out} ({max(1, Path(arguments.out).stat().st_size // 1024):,} kB)")
    else:
        console.note("The model was not saved; --out MODEL.json saves it.")
    if arguments.report is not None:
        data = () if test is None else (test.X, test.y)
        beside = {} if test is None else {"sample_weight": test.weight, "offset": test.offset}
        write_report(estimator, arguments.report, *data, **beside)
        console.say(f"Report: {arguments.report}")


def _loss(arguments: argparse.Namespace) -> Loss | None:
    """The loss that the options ask for; None if that is left to the target."""
    if arguments.exposure is not None and arguments.offset is not None:
        raise UsageError("--exposure and --offset are both given; an exposure is an offset, its logarithm")
    if arguments.loss is None:
        if arguments.exposure is None:
            return None
        return loss("poisson")
    found = loss(arguments.loss)
    if arguments.task == "classification":
        raise UsageError(f"--loss {arguments.loss} is for numbers, and --task is classification")
    if arguments.exposure is not None and found.name not in LOG_LINK:
        raise UsageError(f"--exposure needs a loss with a log link: {', '.join(LOG_LINK)}; --loss is {arguments.loss}")
    return found


def make_estimator(training: Training, own_loss: Loss | None, arguments: argparse.Namespace) -> Any:
    """The estimator that the options describe."""
    names = [own.name for own in training.features]
    numeric = [own.name for own in training.features if own.kind != "category"]
    chosen: dict[str, Any] = {
        name: getattr(arguments, name)
        for name in ("max_features", "max_rectangles", "jump_cost", "alpha", "n_bags", "n_jobs", "random_state")
        if getattr(arguments, name) is not None
    }
    if arguments.min_rows is not None:
        chosen["min_rows"] = int(arguments.min_rows) if arguments.min_rows.is_integer() else arguments.min_rows
    if arguments.interactions is not None:
        chosen["interactions"] = pairs(arguments.interactions, names)
    for option, parse, default, scope in (
        ("max_segments", whole, 128, names),
        ("max_bins", whole, 255, names),
        ("shape", as_is, "mixed", numeric),
    ):
        given = getattr(arguments, option)
        if given:
            value = by_column(given, names, f"--{option.replace('_', '-')}", parse)
            chosen[option] = merged(*value, scope, default)
    if arguments.monotone:
        for_all, own = by_column(arguments.monotone, names, "--monotone", sign)
        if for_all is not None:
            raise UsageError("--monotone needs a column, as in --monotone age=increasing")
        chosen["monotonic_cst"] = own
    if arguments.always_include:
        chosen["always_include"] = listed(arguments.always_include, names, "--always-include")
    if not training.is_classes:
        if arguments.class_weight is not None:
            raise UsageError("--class-weight is for classes, and the target holds numbers")
        return RBRRegressor(own_loss if own_loss is not None else "squared_error", **chosen)
    if arguments.class_weight is not None:
        chosen["class_weight"] = arguments.class_weight
    return RBRClassifier(**chosen)


def _metadata(training: Training, arguments: argparse.Namespace, measured: dict[str, Sequence[dict]]) -> dict[str, Any]:
    """What the model file should know of its fit; `rbr predict` reads the columns of exposures and offsets from it."""
    means = {
        what: {name: float(np.mean([own[name] for own in found])) for name in found[0]}
        for what, found in measured.items()
    }
    beside = {name: getattr(arguments, name) for name in ("exposure", "offset", "weight") if getattr(arguments, name)}
    missing = {"missing": list(arguments.missing)} if arguments.missing else {}
    return {"fit": {"data": training.title, "rows": training.n_rows, **beside, **missing, "scores": means}}
