"""The study behind the defaults: what each setting does to the held-out score, on tables from 240 to 26,000 rows.

    python benches/defaults.py --data FOLDER [--splits 5] [--first-seed 0] [--settings NAME ...] [--only NAME ...]
                               [--no-ebm]

Tables: Adult and HR (from FOLDER), random samples of them, scikit-learn's breast cancer and diabetes, Friedman's
function, and planted curves. Splits 80/20 (stratified for classes), seeds 0, 1, …; AUC for classes, R^2 for numbers.
Every column changes one thing from the default. An Explainable Boosting Machine without pairs is added if it is
installed. A cell holds the mean score, its standard error, the pieces of the model and the CPU seconds of a fit.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, make_friedman1
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.model_selection import train_test_split

from rbr import RBRClassifier, RBRRegressor
from rbr.datasets import load_adult, load_hr, make_planted

SETTINGS = {
    "default": {},
    "single fit": {"n_bags": 0},
    "constant": {"shape": "constant"},
    "kappa 0.25": {"jump_cost": 0.25},
    "kappa 0.75": {"jump_cost": 0.75},
    "64 bins": {"max_bins": 64},
    "alpha 0.01": {"alpha": 0.01},
}


def tables(data: str | None, first_seed: int = 0) -> dict:
    """name -> (X, y, whether y holds classes)."""
    found = {}
    adult, hr = load_adult(path=data), load_hr(path=data)
    found["Adult"] = adult.data, adult.target, True
    found["HR"] = hr.data, hr.target, True
    rng = np.random.default_rng(first_seed)
    for name, table, sizes in (("Adult", adult, (500, 500, 500, 3000)), ("HR", hr, (1000,))):
        for i, size in enumerate(sizes):
            rows = rng.permutation(len(table.target))[:size]
            found[f"{name}, {size} rows, sample {i}"] = table.data.iloc[rows], np.asarray(table.target)[rows], True
    found["breast cancer"] = *load_breast_cancer(return_X_y=True), True
    found["diabetes"] = *load_diabetes(return_X_y=True), False
    for n_rows in (300, 1000, 10_000):
        found[f"Friedman, {n_rows} rows"] = *make_friedman1(n_rows, noise=1.0, random_state=1), False
    planted = make_planted(1000, 100, 10, noise=0.5, equal_strength=True, random_state=0)
    found["planted, 1000 x 100"] = planted.X, planted.y, False
    return found


def splits(y, is_classes: bool, n_splits: int, first_seed: int):
    for seed in range(first_seed, first_seed + n_splits):
        yield train_test_split(np.arange(len(y)), test_size=0.2, random_state=seed, stratify=y if is_classes else None)


def take(X, rows):
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def score(make, X, y, is_classes: bool, n_splits: int, first_seed: int = 0) -> tuple[float, float, float, float]:
    """Mean and standard error of the score, mean number of pieces, CPU seconds of a fit."""
    scores, pieces, seconds = [], [], 0.0
    for train, test in splits(y, is_classes, n_splits, first_seed):
        start = time.process_time()
        model = make(is_classes).fit(take(X, train), y[train])
        seconds += time.process_time() - start
        if is_classes:
            scores.append(roc_auc_score(y[test], model.predict_proba(take(X, test))[:, 1]))
        else:
            scores.append(r2_score(y[test], model.predict(take(X, test))))
        pieces.append(sum(len(term.pieces) for term in model.terms_) if hasattr(model, "model_") else np.nan)
    error = np.std(scores, ddof=1) / np.sqrt(n_splits)
    return float(np.mean(scores)), float(error), float(np.mean(pieces)), seconds / n_splits


def contenders(with_ebm: bool) -> dict:
    found = {
        name: lambda classes, options=options: (RBRClassifier if classes else RBRRegressor)(**options)
        for name, options in SETTINGS.items()
    }
    if with_ebm:
        try:
            from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor
        except ImportError:
            print("interpret is not installed: no Explainable Boosting Machine beside the settings")
        else:
            found["EBM, no pairs"] = lambda classes: (
                ExplainableBoostingClassifier if classes else ExplainableBoostingRegressor
            )(interactions=0, n_jobs=1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder with adult.csv.gz and hr.csv.gz")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0, help="of the splits, and the seed of the samples")
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--only", nargs="*", help="words that a table's name must hold one of")
    parser.add_argument("--no-ebm", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    columns = {k: v for k, v in contenders(not args.no_ebm).items() if k in args.settings or k not in SETTINGS}
    print("| table | " + " | ".join(columns) + " |")
    print("|---|" + "---:|" * len(columns))
    for name, (X, y, is_classes) in tables(args.data, args.first_seed).items():
        if args.only and not any(word in name for word in args.only):
            continue
        cells = []
        for make in columns.values():
            mean, error, pieces, seconds = score(make, X, np.asarray(y), is_classes, args.splits, args.first_seed)
            size = "" if np.isnan(pieces) else f", {pieces:.0f} p"
            cells.append(f"{mean:.4f} ± {error:.4f}{size}, {seconds:.1f} s")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
