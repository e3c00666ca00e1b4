"""Does cut refinement help? Test scores with and without it, on real and planted tables.

    python benches/refine_cuts.py [--data FOLDER] [--splits 5]

FOLDER holds adult.csv.gz and hr.csv.gz (default: where rbr.datasets looks for them). Each split trains on a random 80%
of the rows and scores the rest: AUC for classes, R^2 for numbers. "gain" is the mean of refined - plain over the
splits, with its standard error; "training loss" compares refined with plain; "CPU" is the time of the refined fits
divided by that of the plain ones.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, make_friedman1
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.model_selection import train_test_split

from rbr import RBRClassifier, RBRRegressor
from rbr.datasets import load_adult, load_hr

BINS = 255, 32


def tables(folder: str | None):
    """(name, X, y, whether y holds classes)"""
    for load in (load_adult, load_hr):
        table = load(path=folder)
        yield table.name, table.data, table.target, True
    yield "breast cancer", *load_breast_cancer(return_X_y=True), True
    yield "diabetes", *load_diabetes(return_X_y=True), False
    for n_rows in (300, 5000):
        yield f"friedman1, {n_rows} rows", *make_friedman1(n_rows, noise=1.0, random_state=0), False


def fit_and_score(X, y, is_class: bool, max_bins: int, refine: bool, seed: int) -> tuple[float, float, float]:
    """(test score, training loss, CPU seconds)"""
    parts = train_test_split(X, y, test_size=0.2, random_state=seed, stratify=y if is_class else None)
    X_train, X_test, y_train, y_test = parts
    estimator = (RBRClassifier if is_class else RBRRegressor)(max_bins=max_bins, refine_cuts=refine, n_bags=0)
    start = time.process_time()
    estimator.fit(X_train, y_train)
    seconds = time.process_time() - start
    if is_class:
        score = roc_auc_score(y_test, estimator.decision_function(X_test))
    else:
        score = r2_score(y_test, estimator.predict(X_test))
    return score, estimator.model_.training_loss, seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data")
    parser.add_argument("--splits", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| table | bins | plain | refined | gain | training loss | CPU |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, X, y, is_class in tables(options.data):
        for max_bins in BINS:
            runs = np.array(
                [
                    [fit_and_score(X, y, is_class, max_bins, refine, seed) for refine in (False, True)]
                    for seed in range(options.splits)
                ]
            )
            (plain, refined), gains = runs[:, :, 0].mean(axis=0), runs[:, 1, 0] - runs[:, 0, 0]
            error = gains.std(ddof=1) / np.sqrt(len(gains))
            losses, seconds = runs[:, :, 1].mean(axis=0), runs[:, :, 2].sum(axis=0)
            print(
                f"| {name} | {max_bins} | {plain:.4f} | {refined:.4f} | {gains.mean():+.4f} ± {error:.4f} "
                f"| {100 * (losses[1] / losses[0] - 1):+.1f}% | {seconds[1] / seconds[0]:.1f} x |",
                flush=True,
            )


if __name__ == "__main__":
    main()
