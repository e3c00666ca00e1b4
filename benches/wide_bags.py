"""Do bags help on wide tables? Held-out score, true features found and CPU seconds with and without them.

    python benches/wide_bags.py [--seeds 3] [--rows 300 900] [--ratios 0.1 1 5 20] [--max-bins 255]

Planted data of ten equally strong functions, noise sd 0.5 and 1 times the signal's, regression and two classes; the
estimators' defaults except for n_bags (and max_bins, if given). The rule, fixed before the run: bags are on by default
at a ratio of columns to rows only if the mean held-out score over all cases of that ratio is higher with them than
without.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from sklearn.metrics import r2_score, roc_auc_score

from rbr import RBRClassifier, RBRRegressor
from rbr.datasets import make_planted

TEST_ROWS = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, nargs="+", default=[300, 900])
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.1, 1, 5, 20])
    parser.add_argument("--max-bins", type=int, default=255)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| columns / rows | task | score without | score with 12 bags | found without | found with | CPU s | CPU s |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|")
    for ratio in options.ratios:
        for task in ("regression", "classification"):
            rows = [
                outcome(n, max(15, round(ratio * n)), noise, task, seed, options.max_bins)
                for n in options.rows
                for noise in (0.5, 1.0)
                for seed in range(options.seeds)
            ]
            score, score_b, found, found_b, cpu, cpu_b = np.mean(rows, axis=0)
            print(
                f"| {ratio:g} | {task} | {score:.4f} | {score_b:.4f} | {found:.1f} | {found_b:.1f} | "
                f"{cpu:.2f} | {cpu_b:.2f} |",
                flush=True,
            )


def outcome(n_rows: int, n_features: int, noise: float, task: str, seed: int, max_bins: int) -> tuple[float, ...]:
    """(score, score with bags, found, found with bags, CPU seconds, CPU seconds with bags) of one table."""
    shape = n_rows + TEST_ROWS, n_features, 10
    data = make_planted(*shape, noise=noise, task=task, equal_strength=True, random_state=seed)
    train, test = slice(n_rows), slice(n_rows, None)
    scores, found, seconds = [], [], []
    for n_bags in (0, 12):
        start = time.process_time()
        if task == "regression":
            m = RBRRegressor(n_bags=n_bags, max_bins=max_bins).fit(data.X[train], data.y[train])
            scores.append(r2_score(data.y[test], m.predict(data.X[test])))
        else:
            m = RBRClassifier(n_bags=n_bags, max_bins=max_bins).fit(data.X[train], data.y[train])
            scores.append(roc_auc_score(data.y[test], m.decision_function(data.X[test])))
        seconds.append(time.process_time() - start)
        found.append(len(np.intersect1d(m.selected_features_, data.support)))
    return (*scores, *found, *seconds)


if __name__ == "__main__":
    main()
