"""Is a step told in two pieces? The share of fits with exactly two pieces, and the time of the stage that sees to it.

    python benches/steps.py [--rows 1000 30000 200000] [--seeds 2] [--bags 12] [--shape mixed]

A step of one standard deviation of the noise, in a uniform or normal column, at the median, the 10% quantile or a
random place, alone or beside two other informative columns, for squared error and classes: 24 fits for each seed, at
jump_cost=1. "edges" has refine_cuts=False, so that jumps lie at the edges of the bins.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings

import numpy as np

from rbr import RBRClassifier, RBRRegressor

CASES = tuple(
    itertools.product(("uniform", "normal"), (0.5, 0.1, None), ("numbers", "classes"), ("alone", "beside others"))
)


def table(case, n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(X, y) with the step in the first column."""
    kind, place, target, company = case
    rng = np.random.default_rng([n_rows, seed, CASES.index(case)])
    X = getattr(rng, kind)(size=(n_rows, 1 if company == "alone" else 3))
    z = 1.0 * (X[:, 0] > np.quantile(X[:, 0], rng.uniform(0.1, 0.9) if place is None else place))
    if company != "alone":
        z = z + 0.7 * np.sin(2 * X[:, 1]) + (X[:, 2] > np.quantile(X[:, 2], 0.37))
    if target == "numbers":
        return X, z + rng.normal(size=n_rows)
    return X, (1.8 * (z - z.mean()) + rng.logistic(size=n_rows) > 0).astype(int)


def fits(n_rows: int, n_seeds: int, **parameters) -> tuple[float, int, float]:
    """(share of fits with two pieces, number of fits, CPU seconds)"""
    found, seconds = [], 0.0
    for seed, case in itertools.product(range(n_seeds), CASES):
        X, y = table(case, n_rows, seed)
        estimator = RBRRegressor if case[2] == "numbers" else RBRClassifier
        start = time.process_time()
        m = estimator(jump_cost=1.0, random_state=0, n_jobs=1, **parameters).fit(X, y)
        seconds += time.process_time() - start
        found.append([len(term.pieces) for term in m.terms_ if term.columns == (0,)] == [2])
    return float(np.mean(found)), len(found), seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 30_000, 200_000])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--bags", default="0", help="`n_bags`: 0, auto or a number")
    parser.add_argument("--shape", default="mixed")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    n_bags = options.bags if options.bags == "auto" else int(options.bags)
    parameters = {"n_bags": n_bags, "shape": options.shape}
    print("| rows | bags | fits | two pieces, edges | two pieces, inside bins | CPU |")
    print("|---:|---:|---:|---:|---:|---:|")
    for n_rows in options.rows:
        (plain, _, before), (inside, n_fits, after) = (
            fits(n_rows, options.seeds, refine_cuts=refine, **parameters) for refine in (False, True)
        )
        row = f"| {n_rows} | {options.bags} | {n_fits} | {plain:.3f} | {inside:.3f} | {after / before:.2f} x |"
        print(row, flush=True)


if __name__ == "__main__":
    main()
