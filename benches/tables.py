"""Held-out scores on the real tables: rbr's defaults beside what a user would use instead, or beside other settings.

    python benches/tables.py --data FOLDER --half report --peers ebm lightgbm pygam stumps linear [--picture OUT.png]
    python benches/tables.py --data FOLDER --half choose --set "" "position=value" "position=value prior_rows=5"

FOLDER has `tables/MANIFEST.json` and, for `--half report`, Adult and HR. The tables of the manifest alternate between
the two halves: one to choose defaults by, the other to report. Splits are 80/20, shuffled with seeds 0, 1, ... (with
strata for classes and for whether there is a claim); tables below 3,000 rows get four times as many. Scores: R^2 for
numbers, AUC for two classes, minus the log-loss for more, minus the mean Poisson deviance for counts, whose exposure is
an offset. Everything runs on one thread.

A setting is a list of estimator parameters; the empty one is the default. Peers: `ebm` is an Explainable Boosting
Machine without pairs, with its defaults, or with outer_bags=4 where those would take more than 100 s (marked *);
`ebm4` has four bags everywhere; `lightgbm` has its defaults; `stumps` are 300 trees of two leaves; `pygam` has its
default splines and factors; `linear` is a ridge or logistic regression on dummies and standardised numbers. Results of
peers are kept in --cache, so that only rbr is run again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from ast import literal_eval
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import log_loss, mean_poisson_deviance, r2_score, roc_auc_score
from sklearn.model_selection import train_test_split

from rbr import RBRClassifier, RBRRegressor
from rbr.datasets import load_adult, load_hr

SMALL_ROWS, MORE_SPLITS = 3000, 4
EBM_SECONDS = 100.0
# How far below EBM a score may be: AUC, R^2, and the relative deviance of classes and counts.
ALLOWED = {"binary": 0.002, "regression": 0.005, "multiclass": 0.005, "count": 0.005}


def parameters(text: str) -> dict:
    """{"jump_cost": 1.0, ...} of "jump_cost=1.0 ..."; what is no Python literal is text."""
    found = {}
    for part in text.split():
        name, value = part.split("=")
        try:
            found[name] = literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def read(folder: Path, entry: dict):
    """(X, y, exposure or None) of a table, y as numbers or class labels."""
    import pandas as pd

    if entry["name"] in ("adult", "hr"):
        table = (load_adult if entry["name"] == "adult" else load_hr)(path=str(folder))
        return table.data, np.asarray(table.target), None
    frame = pd.read_csv(folder / "tables" / entry["file"], dtype={c: "string" for c in entry["categorical"]})
    y = frame.pop(entry["target"]).to_numpy()
    if entry["task"] == "binary":
        y = (y == entry["positive_label"]).astype(int)
    exposure = frame.pop(entry["exposure"]).to_numpy() if entry.get("exposure") else None
    return frame, y, exposure


def entries_of(folder: Path, half: str) -> list[dict]:
    entries = json.loads((folder / "tables" / "MANIFEST.json").read_text())
    if half != "all":
        entries = entries[half == "report" :: 2]
    if half != "choose":
        entries += [{"name": name, "task": "binary", "rows": rows} for name, rows in (("adult", 32561), ("hr", 14999))]
    return entries


# Contenders: each takes (task, training part) and returns (a function from a test part to its predictions, number of
# features used, number of levels). A part is (X, y, exposure). Predictions are numbers, the probabilities of the
# classes, or expected counts.


def fit_rbr(task: str, X, y, exposure, **options):
    offset = {} if exposure is None else {"offset": np.log(exposure)}
    if task in ("binary", "multiclass"):
        m = RBRClassifier(**options).fit(X, y)
        return lambda X, _: m.predict_proba(X), len(m.selected_features_), m.model_.n_pieces
    m = RBRRegressor(loss="poisson" if task == "count" else "squared_error", **options).fit(X, y, **offset)
    predict = lambda X, e: m.predict(X, **({} if e is None else {"offset": np.log(e)}))  # noqa: E731
    return predict, len(m.selected_features_), m.model_.n_pieces


def fit_ebm(task: str, X, y, exposure, **options):
    from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

    options = {"interactions": 0, "n_jobs": 1, "random_state": 0, **options}
    if task in ("binary", "multiclass"):
        m = ExplainableBoostingClassifier(**options).fit(X, y)
        predict = lambda X, _: m.predict_proba(X)  # noqa: E731
    elif task == "count":
        m = ExplainableBoostingRegressor(objective="poisson_deviance", **options)
        m.fit(X, y, init_score=np.log(exposure))
        predict = lambda X, e: m.predict(X, init_score=np.log(e))  # noqa: E731
    else:
        m = ExplainableBoostingRegressor(**options).fit(X, y)
        predict = lambda X, _: m.predict(X)  # noqa: E731
    return predict, len(m.term_scores_), sum(len(scores) for scores in m.term_scores_)


def fit_lightgbm(task: str, X, y, exposure, **options):
    import lightgbm

    def numbers(X):
        return X.apply(lambda c: c if c.dtype.kind in "ifb" else c.astype(levels[c.name]))

    levels = {c: X[c].astype("category").dtype for c in X if X[c].dtype.kind not in "ifb"}
    options = {"n_jobs": 1, "verbose": -1, "random_state": 0, **options}
    if task in ("binary", "multiclass"):
        m = lightgbm.LGBMClassifier(**options).fit(numbers(X), y)
        predict = lambda X, _: m.predict_proba(numbers(X))  # noqa: E731
    elif task == "count":
        # Scores beside an init_score begin at zero, so the mean rate is part of it.
        rate = np.log(y.sum() / exposure.sum())
        m = lightgbm.LGBMRegressor(objective="poisson", **options)
        m.fit(numbers(X), y, init_score=np.log(exposure) + rate)
        predict = lambda X, e: np.exp(m.predict(numbers(X), raw_score=True) + np.log(e) + rate)  # noqa: E731
    else:
        m = lightgbm.LGBMRegressor(**options).fit(numbers(X), y)
        predict = lambda X, _: m.predict(numbers(X))  # noqa: E731
    return (
        predict,
        int((m.feature_importances_ > 0).sum()),
        int(m.booster_.trees_to_dataframe()["left_child"].isna().sum()),
    )


def _prepared(X, most_levels: int):
    """A fitted transformer for models of numbers: medians and a flag for missing, the largest levels and a rest."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

    numeric = [c for c in X if X[c].dtype.kind in "ifb"]
    other = [c for c in X if c not in numeric]
    text = lambda X: X.astype("object").where(X.notna(), "missing").astype(str)  # noqa: E731
    dummies = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=most_levels, sparse_output=False)
    return make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler()), numeric),
        (make_pipeline(FunctionTransformer(text), dummies), other),
    )


def fit_linear(task: str, X, y, exposure):
    from sklearn.linear_model import LogisticRegression, PoissonRegressor, RidgeCV
    from sklearn.pipeline import make_pipeline

    if task in ("binary", "multiclass"):
        m = make_pipeline(_prepared(X, 100), LogisticRegression(max_iter=1000)).fit(X, y)
        predict = lambda X, _: m.predict_proba(X)  # noqa: E731
    elif task == "count":
        m = make_pipeline(_prepared(X, 100), PoissonRegressor(alpha=1e-4, max_iter=1000))
        m.fit(X, y / exposure, poissonregressor__sample_weight=exposure)
        predict = lambda X, e: e * m.predict(X)  # noqa: E731
    else:
        m = make_pipeline(_prepared(X, 100), RidgeCV(np.logspace(-2, 3, 6))).fit(X, y)
        predict = lambda X, _: m.predict(X)  # noqa: E731
    return predict, X.shape[1], int(np.size(m[-1].coef_))


def fit_pygam(task: str, X, y, exposure):
    import pygam

    if task == "multiclass":
        raise ValueError("pygam has no model of several classes")
    numeric = [c for c in X if X[c].dtype.kind in "ifb" and X[c].nunique() > 1]
    other = [c for c in X if X[c].dtype.kind not in "ifb"]
    medians = X[numeric].median()
    # Of each category the 50 largest levels; others and missing values are the first of them.
    codes = {c: {level: k for k, level in enumerate(X[c].value_counts().index[:50])} for c in other}

    def prepare(X):
        factors = [X[c].map(codes[c]).fillna(0).to_numpy(dtype=float) for c in other]
        return np.column_stack([X[numeric].fillna(medians).to_numpy(dtype=float), *factors])

    Z = prepare(X)
    terms = [pygam.f(j) if j >= len(numeric) else pygam.s(j) for j in range(Z.shape[1])]
    terms = sum(terms[1:], terms[0])
    if task == "count":
        m = pygam.PoissonGAM(terms).fit(Z, y, exposure=exposure)
        predict = lambda X, e: m.predict(prepare(X), exposure=e)  # noqa: E731
    elif task == "binary":
        m = pygam.LogisticGAM(terms).fit(Z, y)

        def predict(X, _):
            p = m.predict_proba(prepare(X))
            return np.column_stack([1 - p, p])
    else:
        m = pygam.LinearGAM(terms).fit(Z, y)
        predict = lambda X, _: m.predict(prepare(X))  # noqa: E731
    return predict, Z.shape[1], len(m.coef_)


PEERS: dict[str, Callable[..., Any]] = {
    "ebm": fit_ebm,
    "ebm4": lambda *part: fit_ebm(*part, outer_bags=4),
    "lightgbm": fit_lightgbm,
    "stumps": lambda *part: fit_lightgbm(*part, num_leaves=2, n_estimators=300),
    "pygam": fit_pygam,
    "linear": fit_linear,
}


def score_of(task: str, y, predicted) -> float:
    match task:
        case "regression":
            return float(r2_score(y, predicted))
        case "binary":
            return float(roc_auc_score(y, predicted[:, 1]))
        case "multiclass":
            return -float(log_loss(y, predicted))
        case _:
            return -float(mean_poisson_deviance(y, np.maximum(predicted, 1e-9)))


def one_split(entry: dict, table, seed: int, fit: Callable[..., Any]) -> dict:
    """The result of one contender on one split."""
    (X, y, exposure), task = table, entry["task"]
    strata = y if task in ("binary", "multiclass") else y > 0 if task == "count" else None
    train, test = train_test_split(np.arange(len(y)), test_size=0.2, random_state=seed, stratify=strata)
    part = lambda rows: (X.iloc[rows], y[rows], None if exposure is None else exposure[rows])  # noqa: E731
    start = time.process_time()
    predict, n_features, n_levels = fit(task, *part(train))
    seconds = time.process_time() - start
    X_test, y_test, exposure_test = part(test)
    score = score_of(task, y_test, predict(X_test, exposure_test))
    return {"score": score, "features": n_features, "levels": n_levels, "cpu": seconds}


class Results:
    """Results by (contender, table, seed), those of peers kept in a file."""

    def __init__(self, cache: Path | None):
        self.cache, self.known = cache, {}
        if cache is not None and cache.exists():
            for line in cache.read_text().splitlines():
                found = json.loads(line)
                self.known[found["peer"], found["table"], found["seed"]] = found

    def get(self, peer: str, entry: dict, table, seed: int, fit, keep: bool) -> dict | None:
        """The result, None if the contender cannot fit the table."""
        key = (peer, entry["name"], seed)
        if key not in self.known:
            try:
                found = self._ebm(entry, table, seed) if peer == "ebm" else one_split(entry, table, seed, fit)
            except Exception as error:  # a peer that fails must not end a run of hours
                print(f"{key}: {type(error).__name__}: {error}", flush=True)
                found = {"score": None}
            self.known[key] = found | dict(zip(("peer", "table", "seed"), key, strict=True))
            if keep and self.cache is not None:
                with self.cache.open("a") as file:
                    file.write(json.dumps(self.known[key]) + "\n")
        return self.known[key] if self.known[key]["score"] is not None else None

    def _ebm(self, entry: dict, table, seed: int) -> dict:
        """EBM's defaults, or four bags if fourteen would take too long."""
        four = self.get("ebm4", entry, table, 0, PEERS["ebm4"], True)
        if four is not None and four["cpu"] * 14 / 4 > EBM_SECONDS:
            found = self.get("ebm4", entry, table, seed, PEERS["ebm4"], True)
            return {**found, "bags": 4}
        return one_split(entry, table, seed, fit_ebm)


def n_splits(entry: dict, splits: int) -> int:
    return splits * MORE_SPLITS if entry["rows"] < SMALL_ROWS else splits


def mean_of(found: list[dict | None], name: str) -> float:
    return float(np.mean([f[name] for f in found])) if all(found) else np.nan


def unit_of(entry: dict, score: float) -> float:
    """What one unit of ALLOWED is: 1 for AUC and R^2, the deviance itself for deviances."""
    return abs(score) if entry["task"] in ("multiclass", "count") else 1.0


def against_ebm(rows: dict[str, dict[str, list]], entries: list[dict], ours: str) -> None:
    """Where rbr stands beside EBM, with paired standard errors."""
    print(
        f"\n| table | {ours} - ebm | paired error | allowed | levels / ebm's | CPU / ebm's |\n|---|---|---|---|---|---|"
    )
    below, above, cpu, levels = [], 0, [], []
    for entry in entries:
        found = rows[entry["name"]]
        if not all(found["ebm"]) or not all(found[ours]):
            continue
        difference = np.array([a["score"] - b["score"] for a, b in zip(found[ours], found["ebm"], strict=True)])
        mean, error = difference.mean(), difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else 0
        allowed = ALLOWED[entry["task"]] * unit_of(entry, mean_of(found["ebm"], "score")) + error
        above += mean > 0
        if mean < -allowed:
            below.append(entry["name"])
        levels.append(mean_of(found[ours], "levels") / mean_of(found["ebm"], "levels"))
        cpu.append(mean_of(found[ours], "cpu") / mean_of(found["ebm"], "cpu"))
        star = "*" if found["ebm"][0].get("bags") else ""
        print(
            f"| {entry['name']} | {mean:+.4f} | {error:.4f} | {-allowed:.4f} | {levels[-1]:.3f} | {cpu[-1]:.4f}{star} |"
        )
    print(f"\nabove EBM on {above} of {len(cpu)}; below what is allowed: {', '.join(below) or 'none'}; median of")
    print(f"levels over EBM's {np.median(levels):.3f} (largest {max(levels):.3f}), of CPU seconds {np.median(cpu):.4f}")


def draw(rows: dict[str, dict[str, list]], entries: list[dict], path: Path) -> None:
    """Differences from EBM in units of what is allowed, a row per table and a mark per contender."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 0.28 * len(entries) + 1.2), layout="constrained")
    names = [name for name in next(iter(rows.values())) if name not in ("ebm", "ebm4")]
    for k, name in enumerate(names):
        x = []
        for entry in entries:
            ebm, score = (mean_of(rows[entry["name"]][who], "score") for who in ("ebm", name))
            x.append((score - ebm) / unit_of(entry, ebm) / ALLOWED[entry["task"]])
        style = {"marker": "D", "s": 46, "zorder": 3} if k == 0 else {"marker": "o", "s": 16, "alpha": 0.7}
        axes.scatter(np.clip(x, -20, 20), range(len(entries)), label=name, **style)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.axvline(-1, color="black", linewidth=0.8, linestyle=":")
    axes.set_xscale("symlog", linthresh=2)
    axes.set_yticks(range(len(entries)), [entry["name"] for entry in entries])
    axes.invert_yaxis()
    axes.set_xlabel("score less EBM's (no pairs), in units of .002 AUC, .005 R², .5% deviance; clipped at 20")
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=6, frameon=False)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--half", choices=["choose", "report", "all"], default="choose")
    parser.add_argument("--set", nargs="*", default=[""], dest="settings")
    parser.add_argument("--peers", nargs="*", default=[], choices=list(PEERS))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, help="a file for the results of peers")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--max-rows", type=int, default=100_000, help="leave larger tables out")
    parser.add_argument("--only", nargs="*", help="names of tables")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    entries = [e for e in entries_of(args.data, args.half) if e["rows"] <= args.max_rows]
    entries = [e for e in entries if not args.only or e["name"] in args.only]
    ours = {f"rbr {setting}".strip(): parameters(setting) for setting in args.settings}
    contenders: dict[str, Callable[..., Any]] = {
        name: lambda *part, _options=options: fit_rbr(*part, n_jobs=1, **_options) for name, options in ours.items()
    }
    contenders |= {name: PEERS[name] for name in args.peers}
    results, rows = Results(args.cache), {}
    print("| table | " + " | ".join(contenders) + " | rank |")
    print("|---|" + "---|" * (len(contenders) + 1))
    for entry in entries:
        table, cells, scores = read(args.data, entry), [], []
        own = rows[entry["name"]] = {}
        for name, fit in contenders.items():
            seeds = range(args.first_seed, args.first_seed + n_splits(entry, args.splits))
            found = [results.get(name, entry, table, seed, fit, name in PEERS) for seed in seeds]
            own[name] = found
            scores.append(mean_of(found, "score"))
            counts = [mean_of(found, n) for n in ("features", "levels", "cpu")]
            cells.append(
                f"{scores[-1]:.4f}, {counts[0]:.0f} f, {counts[1]:.0f} p, {counts[2]:.2f} s" if all(found) else ""
            )
        rank = 1 + int(np.sum(np.array(scores) > scores[0]))
        print(f"| {entry['name']} | " + " | ".join(cells) + f" | {rank} |", flush=True)
    if len(ours) > 1:
        differences = []
        for entry in entries:
            means = [mean_of(rows[entry["name"]][name], "score") for name in ours]
            differences.append((np.array(means) - means[0]) / unit_of(entry, means[0]))
        cells = [f"{1000 * d.mean():+.2f}, {np.mean(d > 0):.0%}" for d in np.array(differences).T]
        print("| mean difference / .001, share higher | " + " | ".join(cells) + " |")
    if "ebm" in args.peers:
        for name in ours:
            against_ebm(rows, entries, name)
    if args.picture:
        draw(rows, entries, args.picture)


if __name__ == "__main__":
    main()
