"""What a fit costs on real tables, and on large tables made of them: rbr beside what a user would use instead.

    python benches/real.py --data FOLDER [--rows 1000000] [--only abalone ...] [--out FOLDER]

Every contender fits each table in a process of its own, in which the table is already in memory; small fits are
repeated, and the least CPU and wall seconds count. Passes are the columns read over all rows, over their number. Memory
is the largest resident size during the fit less that before it.

Tables: those of FOLDER/tables as they are, `digits` and `diabetes` of scikit-learn, and

- `name x ROWS`: rows of a table drawn with replacement, so that types, ties and correlations stay as they are. In
  numeric columns where most values are distinct each drawn value moves by a random part of the way to the next larger
  one, so that its copies differ as fresh values would; the target stays.
- `cover ROWS`, `cover ROWS 7 classes`: made like a survey of land cover: 10 correlated numeric columns, whole numbers
  with ties, and 44 binary ones (of 4 areas and 40 soils, which depend on the first), classes by a sum of functions of
  38 of them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tables
from peers import Peak

STACKED = ("king_county_houses", "diamonds", "adult", "hotel_bookings", "motorcycle_claims", "electricity", "hpc_jobs")
REPEATED_SECONDS, MOST_REPEATS = 3.0, 5


# Tables --------------------------------------------------------------------------------------------------------


def stacked(table, n_rows: int):
    """Rows drawn with replacement, with values between those of the table where most of them are distinct."""
    X, y, exposure = table
    rng = np.random.default_rng(n_rows)
    rows = rng.integers(0, len(y), n_rows)
    X_drawn = X.iloc[rows].reset_index(drop=True)
    for name in X.columns[[dtype.kind == "f" for dtype in X.dtypes]]:
        values = X[name].to_numpy()
        distinct = np.unique(values[np.isfinite(values)])
        if len(distinct) > len(values) / 2:
            larger = np.append(distinct[1:], distinct[-1])
            place = np.searchsorted(distinct, values).clip(max=len(distinct) - 1)
            gap = np.where(np.isfinite(values), larger[place] - values, 0.0)
            X_drawn[name] = values[rows] + rng.random(n_rows) * gap[rows]
    return X_drawn, y[rows], None if exposure is None else exposure[rows]


def cover(n_rows: int, n_classes: int):
    """Made data of correlated numbers and many binary columns."""
    import pandas as pd

    rng = np.random.default_rng([n_rows, n_classes])
    common = rng.normal(size=(n_rows, 4))
    numbers = common @ rng.normal(size=(4, 10)) + rng.normal(size=(n_rows, 10))
    numbers = np.round(numbers * rng.uniform(5, 300, 10))
    area = np.digitize(common[:, 0] + 0.5 * rng.normal(size=n_rows), [-1, 0, 1])
    soil = np.clip(5 * area + rng.geometric(0.12, n_rows) + np.round(common[:, 1]), 0, 39).astype(int)
    X = np.column_stack([numbers, area[:, None] == np.arange(4), soil[:, None] == np.arange(40)]).astype(float)
    ranks = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    scores = np.zeros((n_rows, n_classes))
    for c in range(n_classes):
        for j in range(8):
            scores[:, c] += rng.normal() * np.sin(rng.uniform(0.5, 2) * ranks[:, j] + rng.uniform(0, 6))
        scores[:, c] += np.append(rng.normal(size=26), np.zeros(14))[soil] + rng.normal(size=4)[area]
    y = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(54)]), y, None


def tables_of(args) -> Iterator[tuple[str, str, Any]]:
    """(name, task, a function that makes the table)."""
    import pandas as pd
    from sklearn.datasets import load_diabetes, load_digits

    for name, task, load in (("diabetes", "regression", load_diabetes), ("digits", "multiclass", load_digits)):
        X, y = load(return_X_y=True)
        yield name, task, lambda X=X, y=y: (pd.DataFrame(X).rename(columns=str), y, None)
    entries = [e for e in tables.entries_of(args.data, "all") if e["rows"] <= args.rows]
    for entry in sorted(entries, key=lambda e: e["rows"]):
        yield entry["name"], entry["task"], lambda entry=entry: tables.read(args.data, entry)
    sizes = [n for n in (100_000, 1_000_000) if n <= args.rows]
    for entry in entries:
        if entry["name"] in STACKED:
            for n in sizes:
                name = f"{entry['name']} x {n:,}"
                yield name, entry["task"], lambda entry=entry, n=n: stacked(tables.read(args.data, entry), n)
    for n, n_classes in ((80_000, 7), (80_000, 2), (500_000, 2)):
        if n <= args.rows:
            name = f"cover {n:,}" + (f" {n_classes} classes" if n_classes > 2 else "")
            yield name, "multiclass" if n_classes > 2 else "binary", lambda n=n, k=n_classes: cover(n, k)


# Contenders: functions of (task, X, y, exposure, number of threads). ----------------------------------------------


def fit_hist(task: str, X, y, exposure, jobs: int):
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    def numbered(column):
        return column.astype("category").cat.rename_categories(range(column.nunique()))

    # It cannot sort text with missing values among it, and takes at most 255 categories.
    X = X.apply(lambda c: c if c.dtype.kind in "ifb" else numbered(c))
    X = X.assign(**{c: X[c].cat.codes for c in X if X[c].dtype.kind not in "ifb" and X[c].nunique() > 255})
    with threadpool_limits(jobs):  # OpenMP has read its environment already, and threads that wait would count
        if task in ("binary", "multiclass"):
            HistGradientBoostingClassifier().fit(X, y)
        elif task == "count":
            HistGradientBoostingRegressor(loss="poisson").fit(X, y / exposure, sample_weight=exposure)
        else:
            HistGradientBoostingRegressor().fit(X, y)


def fit_xgboost(task: str, X, y, exposure, jobs: int):
    import xgboost

    X = X.apply(lambda c: c if c.dtype.kind in "ifb" else c.astype("category"))
    options = {"n_estimators": 10, "max_depth": 6, "tree_method": "hist", "enable_categorical": True, "n_jobs": jobs}
    if task in ("binary", "multiclass"):
        xgboost.XGBClassifier(**options).fit(X, np.unique(y, return_inverse=True)[1])
    elif task == "count":
        xgboost.XGBRegressor(objective="count:poisson", **options).fit(X, y, base_margin=np.log(exposure))
    else:
        xgboost.XGBRegressor(**options).fit(X, y)


CONTENDERS: dict[str, Callable[..., Any]] = {
    "rbr": lambda *part, jobs: tables.fit_rbr(*part, n_jobs=jobs),
    "rbr n_bags=0": lambda *part, jobs: tables.fit_rbr(*part, n_jobs=jobs, n_bags=0),
    "lightgbm": lambda *part, jobs: tables.fit_lightgbm(*part, n_jobs=jobs),
    "xgboost 10 x 6": lambda *part, jobs: fit_xgboost(*part, jobs),
    "hist gradient boosting": lambda *part, jobs: fit_hist(*part, jobs),
    "ebm, 4 bags": lambda *part, jobs: tables.fit_ebm(*part, n_jobs=jobs, outer_bags=4),
}


class Passes:
    """Context manager that counts the columns that rbr's objectives read, over all rows and all columns."""

    def __enter__(self):
        from rbr.objective.common import BaseObjective

        made, make = [], BaseObjective.__init__

        def remembering(self, *args, **kwargs):
            make(self, *args, **kwargs)
            made.append((self.work, self.n_total, self.tables.n_tables))

        self.made, self.make, self.owner = made, make, BaseObjective
        BaseObjective.__init__ = remembering
        return self

    def __exit__(self, *exception):
        self.owner.__init__ = self.make
        seen = {id(work): (work.columns_read * n_rows, n_tables) for work, n_rows, n_tables in self.made}
        n_rows = max((n for _, n, _ in self.made), default=1)
        self.n = sum(read / max(n_tables, 1) for read, n_tables in seen.values()) / n_rows


def measured(fit: Callable[..., Any], task: str, table, jobs: int, sender) -> None:
    """Send the least CPU and wall seconds of some fits, their memory and passes; runs in a process of its own."""
    warnings.simplefilter("ignore")
    os.environ["OMP_NUM_THREADS"] = str(jobs)
    best: dict[str, float] = {}
    start = time.perf_counter()
    for _ in range(MOST_REPEATS):
        with Peak(mapped=False) as peak, Passes() as passes:
            wall, cpu = time.perf_counter(), time.process_time()
            fit(task, *table, jobs=jobs)
            facts = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        best = {name: min(value, best.get(name, np.inf)) for name, value in facts.items()} | {
            "bytes": max(peak.bytes, best.get("bytes", 0.0)),
            "passes": passes.n,
        }
        if time.perf_counter() - start > REPEATED_SECONDS:
            break
    sender.send(best)


def in_own_process(fit: Callable[..., Any], task: str, table, args) -> dict | None:
    """What `measured` sends, None if the fit fails or takes longer than allowed."""
    # A fork has the table and the imports; no fit has run in this process, so there are no threads to lose.
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=measured, args=(fit, task, table, args.jobs, sender))
    process.start()
    sender.close()
    found = None
    try:
        if receiver.poll(args.most_seconds):
            found = receiver.recv()
    except EOFError:
        pass
    process.kill()
    process.join()
    return found


def imported(names: list[str]) -> None:
    for name in names:
        try:
            __import__(name)
        except ImportError:
            print(f"{name} is not installed, and left out")


def draw(results: list[dict], path: Path) -> None:
    """CPU seconds against the entries of a table, on logarithmic axes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5.5), layout="constrained")
    for k, name in enumerate(CONTENDERS):
        points = [(r["entries"], r[name]["cpu"]) for r in results if r.get(name)]
        if points:
            axes.scatter(*zip(*points, strict=True), s=40 if k < 2 else 18, marker="Do^svx"[k], label=name, alpha=0.8)
    axes.set(xscale="log", yscale="log", xlabel="rows x columns", ylabel="CPU seconds of a fit")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


def summary(results: list[dict]) -> None:
    for ours in ("rbr", "rbr n_bags=0"):
        for what in ("cpu", "wall"):
            pairs = [(r[ours][what] / r["lightgbm"][what], r) for r in results if r.get(ours) and r.get("lightgbm")]
            if not pairs:
                continue
            ratios = np.array([ratio for ratio, _ in pairs])
            large = [ratio for ratio, r in pairs if r["rows"] >= 100_000]
            slow = [f"{r['name']} {ratio:.1f}" for ratio, r in pairs if ratio > (10 if ours == "rbr" else 1)]
            print(
                f"\n{ours} over lightgbm, {what}: median {np.median(ratios):.2f}, largest {ratios.max():.2f}, from "
                f"100,000 rows {max(large, default=np.nan):.2f}; above {10 if ours == 'rbr' else 1}: "
                f"{', '.join(slow) or 'none'}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=1_000_000, help="leave larger tables out")
    parser.add_argument("--only", nargs="*", help="names of tables")
    parser.add_argument("--contenders", nargs="*", default=list(CONTENDERS), choices=list(CONTENDERS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--most-seconds", type=float, default=900.0)
    parser.add_argument("--out", type=Path, help="a folder for real.json and real.png")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    imported(["rbr", "pandas", "lightgbm", "xgboost", "interpret.glassbox", "sklearn.ensemble"])
    print("CPU seconds (rbr: passes over the data), MB beyond the table\n")
    print("| table | rows x columns | " + " | ".join(args.contenders) + " |")
    print("|---|---|" + "---|" * len(args.contenders))
    results = []
    for name, task, make in tables_of(args):
        if args.only and name not in args.only:
            continue
        table = make()
        row: dict[str, Any] = {"name": name, "task": task, "rows": len(table[1]), "entries": table[0].size}
        cells = []
        for contender in args.contenders:
            row[contender] = found = in_own_process(CONTENDERS[contender], task, table, args)
            passes = f" ({found['passes']:.0f})" if found and found["passes"] else ""
            cells.append(f"{found['cpu']:.3g}{passes}, {found['bytes'] / 1e6:.0f}" if found else "")
        results.append(row)
        print(f"| {name} | {len(table[1]):,} x {table[0].shape[1]} | " + " | ".join(cells) + " |", flush=True)
    if {"rbr", "lightgbm"} <= set(args.contenders):
        summary(results)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "real.json").write_text(json.dumps(results, indent=1))
        draw(results, args.out / "real.png")


if __name__ == "__main__":
    main()
