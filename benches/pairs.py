"""Pairs: rbr with `interactions="auto"` beside its own mains and beside an Explainable Boosting Machine with pairs.

    python benches/pairs.py --data FOLDER [--half report] [--splits 5] [--first-seed 0] [--only hr ...] [--cache FILE]

Tables, splits and scores are those of `benches/tables.py`, and two made ones: `friedman1` (5,000 rows, noise 1) and
`friedman3` (5,000 rows, noise 0.1). EBM has four outer bags and its default number of pairs; its results are kept in
--cache. One thread, CPU seconds. "pairs" are numbers of pairs, "cells" those of rbr's pairs together.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import tables
from sklearn.datasets import make_friedman1, make_friedman3

from rbr import RBRClassifier, RBRRegressor

MADE = {"friedman1": (make_friedman1, 1.0), "friedman3": (make_friedman3, 0.1)}
# How far below EBM with pairs a score may be, and how far below our own mains.
ALLOWED = {"binary": 0.003, "regression": 0.01, "multiclass": 0.01, "count": 0.01}
ALLOWED_BELOW_MAINS = {"binary": 0.0005, "regression": 0.002, "multiclass": 0.002, "count": 0.002}


def fit_rbr(task: str, X, y, exposure, **options):
    """A contender of benches/tables.py whose "features" are its pairs, and whose "levels" are their cells."""
    offset = {} if exposure is None else {"offset": np.log(exposure)}
    if task in ("binary", "multiclass"):
        m = RBRClassifier(n_jobs=1, **options).fit(X, y)
        predict = lambda X, _: m.predict_proba(X)  # noqa: E731
    else:
        loss = "poisson" if task == "count" else "squared_error"
        m = RBRRegressor(loss=loss, n_jobs=1, **options).fit(X, y, **offset)
        predict = lambda X, e: m.predict(X, **({} if e is None else {"offset": np.log(e)}))  # noqa: E731
    pairs = [term for term in m.terms_ if term.kind == "pair"]
    return predict, len(pairs), sum(term.n_pieces for term in pairs)


def fit_ebm(task: str, X, y, exposure):
    predict, n_terms, n_levels = tables.fit_ebm(task, X, y, exposure, outer_bags=4, interactions="3x")
    return predict, n_terms - X.shape[1], n_levels


CONTENDERS = {
    "mains": fit_rbr,
    "auto": lambda *part: fit_rbr(*part, interactions="auto"),
    "rectangles": lambda *part: fit_rbr(*part, interactions="auto", max_rectangles=12),
    "ebm_pairs": fit_ebm,
}


def entries_of(folder: Path, half: str) -> list[dict]:
    made = [{"name": name, "task": "regression", "rows": 5000} for name in MADE]
    return tables.entries_of(folder, half) + made


def read(folder: Path, entry: dict):
    if entry["name"] not in MADE:
        return tables.read(folder, entry)
    import pandas as pd

    make, noise = MADE[entry["name"]]
    X, y = make(5000, noise=noise, random_state=0)
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]), y, None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--half", choices=("choose", "report", "all"), default="report")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--contenders", nargs="*", default=list(CONTENDERS), choices=list(CONTENDERS))
    parser.add_argument("--cache", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = tables.Results(options.cache)
    print("| table | " + " | ".join(options.contenders) + " | pairs | cells | EBM's pairs | CPU, s | CPU / EBM's |")
    print("|---" * (len(options.contenders) + 6) + "|")
    found_of: dict[str, dict[str, list]] = {}
    entries = [e for e in entries_of(options.data, options.half) if not options.only or e["name"] in options.only]
    for entry in entries:
        table = read(options.data, entry)
        found = {
            who: [
                results.get(who, entry, table, seed, CONTENDERS[who], keep=who == "ebm_pairs")
                for seed in range(options.first_seed, options.first_seed + options.splits)
            ]
            for who in options.contenders
        }
        found_of[entry["name"]] = found
        scores = " | ".join(f"{tables.mean_of(found[who], 'score'):.4f}" for who in options.contenders)
        mean = {
            (who, what): tables.mean_of(found[who], what) for who in found for what in ("features", "levels", "cpu")
        }
        of_ebm = mean.get(("ebm_pairs", "features"), np.nan), mean.get(("ebm_pairs", "cpu"), np.nan)
        cpu = mean["auto", "cpu"]
        print(
            f"| {entry['name']} | {scores} | {mean['auto', 'features']:.1f} | {mean['auto', 'levels']:.0f} | "
            f"{of_ebm[0]:.0f} | {cpu:.2f} | {cpu / of_ebm[1]:.4f} |",
            flush=True,
        )
    conclude(found_of, entries)


def conclude(found_of: dict[str, dict[str, list]], entries: list[dict]) -> None:
    """Where pairs cost something against our own mains, and where they stand beside EBM's."""
    below_mains, near, above, n = [], 0, 0, 0
    for entry in entries:
        found, task = found_of[entry["name"]], entry["task"]
        if not all(found.get("mains", [None])) or not all(found["auto"]):
            continue
        gain = np.array([a["score"] - b["score"] for a, b in zip(found["auto"], found["mains"], strict=True)])
        unit = tables.unit_of(entry, tables.mean_of(found["mains"], "score"))
        if gain.mean() < -ALLOWED_BELOW_MAINS[task] * unit:
            below_mains.append(f"{entry['name']} ({gain.mean():+.4f})")
        if "ebm_pairs" in found and all(found["ebm_pairs"]):
            gap = np.array([a["score"] - b["score"] for a, b in zip(found["auto"], found["ebm_pairs"], strict=True)])
            error = gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else 0.0
            n, above = n + 1, above + int(gap.mean() > 0)
            near += int(gap.mean() >= -ALLOWED[task] * unit - error)
    print(f"\nbelow our own mains: {', '.join(below_mains) or 'nowhere'}")
    print(f"of {n} tables with EBM's pairs: {near} not below what is allowed, {above} above")


if __name__ == "__main__":
    main()
