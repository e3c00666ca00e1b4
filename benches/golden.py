"""Golden fits: records what a set of fits finds and costs, to compare it with later versions of the code.

    python benches/golden.py --record before.json --data FOLDER     # before a change
    python benches/golden.py --compare before.json --data FOLDER    # after it

A fit is recorded as its tables, used features, objective (mean loss + ridge + jump cost), iterations, passes over the
codes and CPU seconds (the minimum of --repeats). The comparison prints one line per fit and exits with 1 if any
objective rose by more than 1e-9 of itself, any fit made more passes, or CPU seconds rose by more than a tenth (in a fit
that takes more than 0.05 s). Planted tables need no data; FOLDER holds adult.csv.gz, hr.csv.gz and the folder tables/.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import rbr
from rbr.datasets import load_adult, load_hr, make_planted

OBJECTIVE_TOLERANCE, CPU_TOLERANCE, SHORT = 1e-9, 0.10, 0.05
TABLES = (
    "auto_mpg",
    "communities_crime",
    "loan_rates",
    "king_county_houses",
    "diamonds",
    "horse_colic",
    "spambase",
    "hotel_bookings",
    "page_blocks",
    "be_mtpl_claims",
)


def planted(n_rows, n_features, loss, *, seed=0, n_informative=6, noise=0.5):
    """Planted columns and a target of the kind that the loss expects."""
    data = make_planted(n_rows, n_features, n_informative=n_informative, random_state=seed)
    rng = np.random.default_rng(seed + 1)
    z = (data.y - data.y.mean()) / data.y.std()
    if loss == "log_loss":
        y = (rng.random(n_rows) < 1 / (1 + np.exp(-2 * z))).astype(float)
    elif loss == "multinomial":
        y = np.argmax(np.outer(z, [-1.5, 0.0, 1.5]) + rng.gumbel(size=(n_rows, 3)), axis=1)
    elif loss == "poisson":
        y = rng.poisson(np.exp(0.5 * z)).astype(float)
    elif loss == "gamma":
        y = rng.gamma(2.0, np.exp(0.5 * z) / 2.0) + 1e-6
    elif loss == "tweedie":
        y = rng.poisson(np.exp(0.5 * z)) * rng.gamma(2.0, 0.5, n_rows)
    else:
        y = z + noise * rng.standard_normal(n_rows)
    return data.X, y


def mixed_frame(n_rows, loss, seed=0):
    """A frame with ties, missing values and a category; the target; weights and an offset."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    X, y = planted(n_rows, 6, loss, seed=seed, n_informative=3)
    X[:, 1] = np.round(X[:, 1])
    X[rng.random(n_rows) < 0.2, 0] = np.nan
    frame = pd.DataFrame(X, columns=list("abcdef"))
    level = rng.integers(12, size=n_rows)
    frame["level"] = pd.Categorical(np.array(list("ABCDEFGHIJKL"))[level])
    if loss == "squared_error":
        y = y + (level > 7)
    return frame, y, {"sample_weight": rng.integers(0, 4, n_rows).astype(float), "offset": 0.1 * X[:, 2]}


def fit(X, y, loss="squared_error", *, max_bins=255, shape="mixed", jump_cost=0.5, rows=None, **arguments):
    """One solve on freshly binned columns."""
    limits = {name: arguments.pop(name) for name in ("max_features", "max_segments") if name in arguments}
    weight = (rows or {}).get("sample_weight")
    binner = rbr.Binner(max_bins=max_bins).fit(X, weight)
    design = binner.transform(X, weight).with_weights(arguments.pop("weights", "counts"))
    shapes = np.where(binner.is_categorical_, "levels", shape)
    constraints = rbr.Constraints(shape=shapes, jump_cost=jump_cost, **limits)
    return rbr.solve(design, y, loss=loss, constraints=constraints, **(rows or {}), **arguments)


def planted_cases():
    """Name -> a function without arguments that fits and returns a Solution or an estimator."""
    cases = {}

    def add(name, data, *args, **kwargs):
        cases[name] = lambda: fit(*data(), *args, **kwargs)

    for loss in rbr.losses.LOSSES:
        add(f"planted 2000 x 20, {loss}", lambda loss=loss: planted(2000, 20, loss), loss)
    for loss in ("squared_error", "log_loss", "poisson", "quantile"):
        add(f"planted 60000 x 20, {loss}", lambda loss=loss: planted(60_000, 20, loss), loss)
    add("tall 400000 x 20, log_loss, limits", lambda: planted(400_000, 20, "log_loss"), "log_loss", max_features=6)
    add("tall 400000 x 20, squared_error", lambda: planted(400_000, 20, "squared_error"))
    add("tall 300000 x 60, squared_error", lambda: planted(300_000, 60, "squared_error"))
    add("wide 500 x 5000, squared_error", lambda: planted(500, 5000, "squared_error", noise=0.1), max_features=6)
    add("wide 800 x 2000, log_loss", lambda: planted(800, 2000, "log_loss"), "log_loss", max_bins=32)
    for shape in ("constant", "linear", "increasing", "frequency", "free"):
        bins = {"max_bins": 40} if shape in ("frequency", "free") else {}
        limits = {"max_segments": 8, "max_features": 8}
        add(f"shape {shape}, squared_error", lambda: planted(4000, 12, "squared_error"), shape=shape, **limits, **bins)
        add(
            f"shape {shape}, log_loss", lambda: planted(4000, 12, "log_loss"), "log_loss", shape=shape, **limits, **bins
        )
    add("the paper, log_loss", lambda: planted(3000, 40, "log_loss"), "log_loss", shape="constant", jump_cost=0.0,
        max_bins=40, max_features=6, max_segments=8)  # fmt: skip
    add("Algorithm 1, squared_error", lambda: planted(3000, 40, "squared_error"), shape="constant", jump_cost=0.0,
        max_bins=40, max_features=6, max_segments=8, solver="algorithm1", weights="uniform")  # fmt: skip
    add("ridge, poisson", lambda: planted(3000, 20, "poisson"), "poisson", alpha=0.01)

    def add_mixed_frame(n_rows, loss):
        def run():
            X, y, rows = mixed_frame(n_rows, loss)
            return fit(X, y, loss, rows=rows)

        cases[f"mixed_frame {n_rows} rows, {loss}"] = run

    for loss in ("squared_error", "log_loss", "poisson", "huber"):
        add_mixed_frame(3000, loss)
    add_mixed_frame(120_000, "log_loss")
    add_mixed_frame(120_000, "squared_error")

    def bags(loss):
        X, y = planted(800, 8, loss, n_informative=3)
        kind = rbr.RBRClassifier if loss == "log_loss" else rbr.RBRRegressor
        return kind(n_bags=5, random_state=0).fit(X, y)

    def refined():
        X, y = planted(5000, 10, "squared_error", n_informative=3)
        return rbr.RBRRegressor(shape="constant", n_bags=0, refine_cuts=True).fit(X, y)

    cases["bags 800 x 8, squared_error"] = lambda: bags("squared_error")
    cases["bags 800 x 8, log_loss"] = lambda: bags("log_loss")
    cases["refined cuts 5000 x 10"] = refined
    return cases


def real_cases(folder: Path):
    """Fits of the estimators' defaults, without bags, on Adult, HR and ten tables."""
    import pandas as pd

    def adult():
        table = load_adult(folder)
        return rbr.RBRClassifier(n_bags=0).fit(table.data, table.target)

    def hr():
        table = load_hr(folder)
        return rbr.RBRClassifier(n_bags=0).fit(table.data, table.target)

    cases = {"Adult": adult, "HR": hr}
    entries = {entry["name"]: entry for entry in json.loads((folder / "tables" / "MANIFEST.json").read_text())}

    def table_case(entry):
        frame = pd.read_csv(folder / "tables" / entry["file"], dtype={c: "string" for c in entry["categorical"]})
        y, exposure = frame[entry["target"]], entry.get("exposure")
        X = frame.drop(columns=[c for c in (entry["target"], exposure) if c])

        def run():
            if entry["task"] == "count":
                offset = np.log(frame[exposure].to_numpy())
                return rbr.RBRRegressor(loss="poisson", n_bags=0).fit(X, y, offset=offset)
            kind = rbr.RBRRegressor if entry["task"] == "regression" else rbr.RBRClassifier
            return kind(n_bags=0).fit(X, y)

        return run

    cases.update({name: table_case(entries[name]) for name in TABLES})
    return cases


def measured(run, repeats: int) -> dict:
    """What a fit found, and its minimum CPU time over the repeats."""
    seconds = np.inf
    for _ in range(repeats):
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = run()
        seconds = min(seconds, time.process_time() - start)
        if seconds > 10:
            break
    if hasattr(found, "loss_path"):
        return {
            "f": found.f.tolist(),
            "support": found.support.tolist(),
            "objective": float(found.loss_path[-1]),
            "iterations": found.n_iter,
            "passes": found.n_passes,
            "seconds": seconds,
        }
    model = found.model_
    return {
        "f": [value for term in model.terms for value in term.all_values.ravel().tolist()],
        "support": [column for term in model.terms for column in term.columns],
        "objective": float(found.loss_path_[-1]),
        "iterations": found.n_iter_,
        "passes": None,
        "seconds": seconds,
    }


def compare(name: str, old: dict, new: dict) -> bool:
    """Print one line, and return whether the new fit is no worse."""
    rise = (new["objective"] - old["objective"]) / max(abs(old["objective"]), 1e-300)
    is_same = old["support"] == new["support"] and len(old["f"]) == len(new["f"])
    largest = float(np.abs(np.asarray(old["f"]) - np.asarray(new["f"])).max(initial=0.0)) if is_same else np.inf
    faults = []
    if rise > OBJECTIVE_TOLERANCE:
        faults.append("objective")
    if old["passes"] is not None and new["passes"] > old["passes"] * (1 + 1e-9):
        faults.append("passes")
    if new["seconds"] > (1 + CPU_TOLERANCE) * old["seconds"] and new["seconds"] > SHORT:
        faults.append("seconds")
    passes = "" if old["passes"] is None else f"passes {old['passes']:7.1f} -> {new['passes']:7.1f}  "
    print(
        f"{name:42s} tables differ by {largest:8.1e}  objective {rise:+9.1e}  iterations {old['iterations']:3d} -> "
        f"{new['iterations']:3d}  {passes}CPU {old['seconds']:7.3f} -> {new['seconds']:7.3f}  {' '.join(faults)}",
        flush=True,
    )
    return not faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--record", type=Path, help="file to write")
    parser.add_argument("--compare", type=Path, help="file to compare with")
    parser.add_argument("--data", type=Path, help="folder with Adult, HR and tables/")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="part of the names of the fits to run")
    options = parser.parse_args()
    cases = planted_cases()
    if options.data is not None:
        cases.update(real_cases(options.data))
    cases = {name: run for name, run in cases.items() if options.only in name}
    before = {} if options.compare is None else json.loads(options.compare.read_text())
    found, is_good = {}, True
    for name, run in cases.items():
        found[name] = measured(run, options.repeats)
        if name in before:
            is_good &= compare(name, before[name], found[name])
        elif options.compare is None:
            print(f"{name:42s} objective {found[name]['objective']:.12g}  CPU {found[name]['seconds']:.3f}", flush=True)
    if options.record is not None:
        options.record.write_text(json.dumps(found))
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
