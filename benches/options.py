"""What each number that steers a fit is worth: every field of `SolverOptions` halved and doubled.

    python benches/options.py --data FOLDER           # all options, planted and real tables
    python benches/options.py --only least_gain usual_gain_ratio # some of them

For each option the fits below run with the default, half of it and twice as much, all at the dispersion that the
default estimates, so that they minimise the same. A line shows the largest change over the fits of the objective
(relative; positive is worse), and how passes over the codes and CPU seconds change in all. An option without any effect
on any fit is dead weight and should go. The dispersion's own options are judged by the change of the estimate, those
of averages and of bags by the mean loss on rows that were held out, for averaged or bagged fits of small tables.
Options of cut refinement and of what is measured of a finished model are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
from golden import TABLES, mixed_frame, planted

import rbr
import rbr.losses
from rbr.datasets import load_adult
from rbr.estimators import base

# Sizes that decide which way a fit goes are reached from both sides by these.
PLANTED = (
    (1000, 20, "squared_error"),
    (3000, 12, "log_loss"),
    (2000, 10, "quantile"),
    (2000, 8, "multinomial"),
    (600, 1200, "squared_error"),
    (60_000, 20, "log_loss"),
    (60_000, 12, "squared_error"),
    (300_000, 10, "poisson"),
)


OF_BAGS = (
    *("bag_share", "bag_projection_price", "bag_jump_cost", "bag_ridge", "bag_alpha", "bag_tol", "bag_iterations"),
    *("bags_for_all_ways", "ways_kept"),
)
OF_AVERAGES = (
    *(
        "least_prior_rows",
        "most_prior_rows",
        "line_share",
        "curve_share",
        "price_of_prior",
        "price_of_prior_of_classes",
        "most_jumps",
        "least_jumps",
    ),
    *("most_averaged_bins", "least_rows_with_outliers", "rows_per_bin_with_outliers", "least_averaged_bins"),
    *(
        "averaging_rounds",
        "least_runaway",
        "mixed_rounds",
        "rounds_within_bins",
        "settled",
        "least_log_odds",
        "averaging_searches",
    ),
    *("shared_pieces", "rounds_of_shared_prior"),
    *("nearly_separable", "rows_per_feature_to_loosen", "loosest_prior", "loosenesses_tried"),
    *("competing_bags", "least_bags", "rows_per_feature"),
    *("least_promise", "clear_gain", "least_gain_in_all", "share_of_outliers", "bag_settled"),
    *("jumps_kept", "price_when_simple", "lost_when_simple", "projection_price", "projection_share"),
)
OF_DISPERSION = ("representative_rows", "dispersion_settled", "dispersion_rounds")


def cases(folder: Path | None):
    """Name -> a function of the options that fits and returns the solution."""
    found = {}

    def add(name, X, y, loss, shape="mixed", **rows):
        binner = rbr.Binner().fit(X, rows.get("sample_weight"))
        design = binner.transform(X, rows.get("sample_weight"))
        shapes = np.where(binner.is_categorical_, "levels", shape)
        constraints = rbr.Constraints(shape=shapes, jump_cost=0.5)
        arguments = {"loss": loss, "constraints": constraints, **rows}
        phi = rbr.solve(design, y, **arguments).dispersion

        def run(options, is_of_dispersion):
            solution = rbr.solve(design, y, options=options, dispersion=None if is_of_dispersion else phi, **arguments)
            return solution.dispersion if is_of_dispersion else float(solution.loss_path[-1]), solution.n_passes

        found[name] = run

    for n_rows, n_features, loss in PLANTED:
        add(f"{n_rows} x {n_features} {loss}", *planted(n_rows, n_features, loss), loss)
    X, y, rows = mixed_frame(60_000, "log_loss")
    add("mixed_frame 60000", X, y, "log_loss", **rows)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 10))
    add("rare 20000", X, (rng.random(20_000) < 0.01 * np.exp(X[:, 0] + (X[:, 1] > 0))).astype(float), "log_loss")
    if folder is not None:
        table = load_adult(folder)
        add("Adult", table.data, table.target, "log_loss")
    for name, X, y in real_tables(folder, 20_000):
        add(name, X, y, "squared_error")
    return found


def held_out_cases(folder: Path | None, n_bags: int | str):
    """Name -> a function of the options that fits half of the rows; its loss on the others, and no passes."""
    found = {}

    def add(name, X, y, loss):
        fitted_on, held_out = np.arange(0, len(y), 2), np.arange(1, len(y), 2)
        rows = (lambda at: X.iloc[at]) if hasattr(X, "iloc") else (lambda at: X[at])
        y = np.asarray(y)

        def run(options, _):
            bags = {"n_bags": n_bags}
            estimator = rbr.RBRClassifier(**bags) if loss == "log_loss" else rbr.RBRRegressor(loss=loss, **bags)
            # Estimators have no parameter for options: they are not meant to be tuned.
            with mock.patch.object(base, "make_objective", partial(base.make_objective, options=options)):
                estimator.fit(rows(fitted_on), y[fitted_on])
            objective = rbr.losses.get_loss(loss)
            z = estimator.model_.decision_function(rows(held_out))
            return float(objective.values(objective.validate(y[held_out]), z).mean()), 1.0

        found[name] = run

    for n_rows, n_features, loss in ((600, 10, "squared_error"), (2000, 20, "log_loss"), (1500, 10, "poisson")):
        add(f"{n_rows} x {n_features} {loss}", *planted(n_rows, n_features, loss), loss)
    for name, X, y in real_tables(folder, 6000):
        add(name, X, y, "squared_error")
    return found


def real_tables(folder: Path | None, most_rows: int):
    """(name, X, y) of the tables with a numeric target and few rows."""
    if folder is None:
        return
    import pandas as pd

    for entry in json.loads((folder / "tables" / "MANIFEST.json").read_text()):
        if entry["name"] in TABLES and entry["task"] == "regression" and entry["rows"] <= most_rows:
            frame = pd.read_csv(folder / "tables" / entry["file"], dtype={c: "string" for c in entry["categorical"]})
            yield entry["name"], frame.drop(columns=entry["target"]), frame[entry["target"]]


def measured(run, options, option: str) -> tuple[float, float, float]:
    """(objective or dispersion, passes, CPU seconds) of one fit."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value, passes = run(options, option in OF_DISPERSION)
    return value, passes, time.process_time() - start


def scaled(option: str, factor: float) -> rbr.SolverOptions:
    """The defaults with one option multiplied; whole numbers stay whole."""
    default = rbr.SolverOptions()
    value = getattr(default, option) * factor
    is_whole = isinstance(getattr(default, option), int)
    return replace(default, **{option: max(min(factor, 1), round(value)) if is_whole else value})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with Adult and tables/")
    names = [field.name for field in fields(rbr.SolverOptions)]
    parser.add_argument("--only", nargs="+", default=names[: names.index("refinement_rounds")])
    parser.add_argument("--fits", default="", help="part of the names of the fits to run")
    parser.add_argument("--factors", nargs="+", type=float, default=[0.5, 2.0], help="0 shows what an option is for")
    arguments = parser.parse_args()
    reached = {
        "fits": cases,
        "bags": partial(held_out_cases, n_bags=12),
        "averages": partial(held_out_cases, n_bags="auto"),
    }
    runs_of = {}
    print("| option | default | factor | largest change of the objective | in | passes | CPU |")
    print("|---|---|---|---|---|---|---|")
    bases = {}
    for option in arguments.only:
        kinds = {"bags": OF_BAGS, "averages": OF_AVERAGES, "dispersion": OF_DISPERSION}
        kind = next((kind for kind, options in kinds.items() if option in options), "fits")
        source = "fits" if kind == "dispersion" else kind
        if source not in runs_of:
            found = reached[source](arguments.data)
            runs_of[source] = {name: run for name, run in found.items() if arguments.fits in name}
        runs = runs_of[source]
        if kind not in bases:
            bases[kind] = {name: measured(run, rbr.SolverOptions(), option) for name, run in runs.items()}
        base = bases[kind]
        for factor in arguments.factors:
            options = scaled(option, factor)
            found = {name: measured(run, options, option) for name, run in runs.items()}
            changes = {name: (found[name][0] - base[name][0]) / abs(base[name][0]) for name in runs}
            worst = max(changes, key=lambda name: abs(changes[name]))
            passes, seconds = (sum(f[k] for f in found.values()) / sum(b[k] for b in base.values()) for k in (1, 2))
            default = getattr(rbr.SolverOptions(), option)
            print(
                f"| `{option}` | {default:.4g} | {factor:g} | {changes[worst]:+.1e} | "
                f"{worst if changes[worst] else ''} | {passes:.2f} | {seconds:.2f} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
