"""Held-out scores of settings on the real tables: one half of them to choose defaults by, the other to report.

    python benches/tables.py --data FOLDER --half choose --set "" "position=value" "position=value prior_rows=5"

A setting is a list of estimator parameters; the empty one is the default. Tables alternate between the halves in the
order of their manifest. Splits are 80/20, shuffled with seeds 0, 1, ... (with strata for classes). Scores: R^2 for
numbers, AUC for two classes, minus the log-loss for more, the explained Poisson deviance for counts, whose exposure is
an offset. The last line has the mean difference from the first setting, in units of .001, and how often it is higher.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from ast import literal_eval
from pathlib import Path

import numpy as np
from sklearn.metrics import d2_tweedie_score, log_loss, r2_score, roc_auc_score
from sklearn.model_selection import train_test_split

from rbr import RBRClassifier, RBRRegressor


def parameters(text: str) -> dict:
    """{"kappa": 1.0, ...} of "kappa=1.0 ..."; what is no Python literal is text."""
    found = {}
    for part in text.split():
        name, value = part.split("=")
        try:
            found[name] = literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def read(folder: Path, entry: dict):
    """(X, y, offset or None) of a table, y as numbers or class labels."""
    import pandas as pd

    frame = pd.read_csv(folder / "tables" / entry["file"], dtype={c: "string" for c in entry["categorical"]})
    y = frame.pop(entry["target"]).to_numpy()
    if entry["task"] == "binary":
        y = (y == entry["positive_label"]).astype(int)
    offset = np.log(frame.pop(entry["exposure"]).to_numpy()) if entry.get("exposure") else None
    return frame, y, offset


def one_split(entry: dict, table, seed: int, options: dict) -> tuple[float, int, float]:
    """(score, pieces, CPU seconds) of a fit."""
    X, y, offset = table
    strata = y if entry["task"] in ("binary", "multiclass") else y > 0 if entry["task"] == "count" else None
    train, test = train_test_split(np.arange(len(y)), test_size=0.2, random_state=seed, stratify=strata)
    loss = {"count": {"loss": "poisson"}, "regression": {}}.get(entry["task"])
    model = RBRClassifier(**options) if loss is None else RBRRegressor(**loss, **options)
    start = time.process_time()
    model.fit(X.iloc[train], y[train], **({} if offset is None else {"offset": offset[train]}))
    seconds = time.process_time() - start
    X, y = X.iloc[test], y[test]
    match entry["task"]:
        case "regression":
            score = r2_score(y, model.predict(X))
        case "binary":
            score = roc_auc_score(y, model.decision_function(X))
        case "multiclass":
            score = -log_loss(y, model.predict_proba(X), labels=model.classes_)
        case _:
            score = d2_tweedie_score(y, np.maximum(model.predict(X, offset=offset[test]), 1e-9), power=1)
    return score, model.model_.n_pieces, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--half", choices=["choose", "report", "all"], default="choose")
    parser.add_argument("--set", nargs="+", default=[""], dest="settings")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--max-rows", type=int, default=100_000, help="leave larger tables out")
    parser.add_argument("--only", nargs="*", help="names of tables")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    entries = json.loads((args.data / "tables" / "MANIFEST.json").read_text())
    if args.half != "all":
        entries = entries[args.half == "report" :: 2]
    print("| table | " + " | ".join(setting or "default" for setting in args.settings) + " |")
    print("|---|" + "---|" * len(args.settings))
    differences = []
    for entry in entries:
        if entry["rows"] > args.max_rows or (args.only and entry["name"] not in args.only):
            continue
        table, cells, means = read(args.data, entry), [], []
        for setting in args.settings:
            found = [one_split(entry, table, seed, parameters(setting)) for seed in range(args.splits)]
            score, pieces, seconds = np.mean(found, axis=0)
            means.append(score)
            cells.append(f"{score:.4f}, {pieces:.0f} p, {seconds:.1f} s")
        differences.append(np.array(means) - means[0])
        print(f"| {entry['name']} | " + " | ".join(cells) + " |", flush=True)
    by_setting = np.array(differences).T
    cells = [f"{1000 * d.mean():+.2f}, {np.mean(d > 0):.0%}" for d in by_setting]
    print("| difference | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
