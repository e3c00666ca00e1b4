"""Scores of the defaults beside those that are kept with the tables: of an earlier rbr, and of EBM's main effects.

    python benches/anchors.py --data FOLDER [--only titanic ...]

FOLDER/tables/anchors.jsonl has scores on the test fifth of `train_test_split` with the seeds 0 to 2: `rbr_before` are
those of rbr's defaults before any of these tables was known, `ebm_main` those of an Explainable Boosting Machine with
four bags and without pairs. R^2, AUC, accuracy of several classes, minus the mean Poisson deviance of counts. Their CPU
seconds are of another machine.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split
from tables import entries_of, fit_rbr, read, score_of

SCORES = {"regression": "r2", "binary": "auc", "multiclass": "accuracy", "count": "poisson_deviance"}
PEERS = ("rbr_before", "ebm_main")


def kept(folder: Path, task_of: dict[str, str]) -> dict[tuple[str, str], dict[int, tuple[float, float]]]:
    """(score, CPU seconds) by (table, peer) and seed."""
    found: dict[tuple[str, str], dict[int, tuple[float, float]]] = {}
    for line in (folder / "tables" / "anchors.jsonl").read_text().splitlines():
        one = json.loads(line)
        if one["peer"] in PEERS and one["table"] in task_of:
            task = task_of[one["table"]]
            score = one[SCORES[task]] * (-1.0 if task == "count" else 1.0)
            found.setdefault((one["table"], one["peer"]), {})[one["seed"]] = (score, one["cpu_s"])
    return found


def scored(entry: dict, table, seed: int) -> tuple[float, float]:
    """(score, CPU seconds) of the defaults on one split."""
    (X, y, exposure), task = table, entry["task"]
    strata = y if task in ("binary", "multiclass") else None
    train, test = train_test_split(np.arange(len(y)), test_size=0.2, random_state=seed, stratify=strata)
    train_exposure, test_exposure = (None if exposure is None else exposure[rows] for rows in (train, test))
    start = time.process_time()
    predict, _, _ = fit_rbr(task, X.iloc[train], y[train], train_exposure, n_jobs=1)
    seconds = time.process_time() - start
    predicted = predict(X.iloc[test], test_exposure)
    if task == "multiclass":
        return float(accuracy_score(y[test], np.unique(y)[predicted.argmax(axis=1)])), seconds
    return score_of(task, y[test], predicted), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="*", help="names of tables")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    entries = [entry for entry in entries_of(args.data, "all") if not args.only or entry["name"] in args.only]
    known = kept(args.data, {entry["name"]: entry["task"] for entry in entries})
    print("| table | score | rbr_before | difference | ebm_main | difference | CPU s | rbr_before, CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for entry in entries:
        before, ebm = (known.get((entry["name"], peer)) for peer in PEERS)
        if before is None or ebm is None:
            continue
        table = read(args.data, entry)
        found = np.mean([scored(entry, table, seed) for seed in sorted(before)], axis=0)
        of_before, of_ebm = (np.mean(list(own.values()), axis=0) for own in (before, ebm))
        scores = [f"{found[0]:.4f}"]
        for other in (of_before, of_ebm):
            scores += [f"{other[0]:.4f}", f"{found[0] - other[0]:+.4f}"]
        print(f"| {entry['name']} | " + " | ".join(scores) + f" | {found[1]:.2f} | {of_before[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
