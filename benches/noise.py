"""How often columns of noise are selected by the defaults, and how often a step is told in two pieces.

    python benches/noise.py [--rows 500 5000] [--columns 2 20] [--fits 20] [--kinds NAME ...]

Each line is a kind of target and a size of table: in how many fits a column was selected that has nothing to do with
the target, and in how many a column was missed that has. `nothing`: the target is noise of the named kind. `three of
p`: y = sin(2 x0) + [x1 > 0] + x2 / 2 + noise. `steep line`: y = 2 x0 + noise, all columns lognormal. `step`: y = [x0 >
t] + noise at a random place t, with the share of fits that tell it in two pieces. `mixed`: noise beside categories of
20 and 1,000 levels, a column that is 90% zeros, and one with missing values.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np

from rbr import RBRClassifier, RBRRegressor

NOISE: dict[str, tuple[dict | None, Callable]] = {
    "normal": ({}, lambda rng, n: rng.normal(size=n)),
    "t3": ({}, lambda rng, n: rng.standard_t(3, size=n)),
    "classes": (None, lambda rng, n: rng.random(n) < 0.5),
    "2% positives": (None, lambda rng, n: rng.random(n) < 0.02),
    "three classes": (None, lambda rng, n: rng.integers(0, 3, size=n)),
    "poisson": ({"loss": "poisson"}, lambda rng, n: rng.poisson(0.3, size=n)),
    "negative binomial": ({"loss": "poisson"}, lambda rng, n: rng.poisson(rng.gamma(0.5, 2, size=n))),
    "gamma": ({"loss": "gamma"}, lambda rng, n: rng.gamma(2.0, size=n)),
    "tweedie": ({"loss": "tweedie"}, lambda rng, n: rng.gamma(2.0, size=n) * (rng.random(n) < 0.5)),
    "huber": ({"loss": "huber"}, lambda rng, n: rng.standard_t(3, size=n)),
    "quantile": ({"loss": "quantile"}, lambda rng, n: rng.normal(size=n)),
}
PLANTED = ("three of p", "steep line", "step", "mixed")


def mixed_table(rng, n, p):
    import pandas as pd

    X = pd.DataFrame(rng.normal(size=(n, p)), columns=[f"x{j}" for j in range(p)])
    X["few levels"] = pd.Categorical(rng.integers(0, 20, n).astype(str))
    X["many levels"] = pd.Categorical(rng.integers(0, 1000, n).astype(str))
    X["ties"] = np.where(rng.random(n) < 0.9, 0.0, rng.normal(size=n))
    X.loc[rng.random(n) < 0.3, "x0"] = np.nan
    return X


def make(kind: str, rng, n: int, p: int):
    """(X, y, columns that matter, options of the regressor or None for a classifier)."""
    if kind in NOISE:
        options, draw = NOISE[kind]
        return rng.normal(size=(n, p)), draw(rng, n), set(), options
    X = rng.normal(size=(n, p))
    if kind == "three of p":
        return X, np.sin(2 * X[:, 0]) + (X[:, 1] > 0) + X[:, 2] / 2 + rng.normal(size=n), {0, 1, 2}, {}
    if kind == "steep line":
        X = np.exp(1.5 * X)
        return X, 2 * X[:, 0] + rng.normal(size=n), {0}, {}
    if kind == "step":
        return X, (X[:, 0] > rng.uniform(-1, 1)) + rng.normal(size=n), {0}, {}
    return mixed_table(rng, n, p), rng.normal(size=n), set(), {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 5000])
    parser.add_argument("--columns", type=int, nargs="+", default=[5, 20])
    parser.add_argument("--fits", type=int, default=20)
    parser.add_argument("--kinds", nargs="+", default=[*NOISE, *PLANTED], choices=[*NOISE, *PLANTED])
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| target | rows x columns | fits with false columns | fits that miss one | two pieces | CPU s a fit |")
    print("|---|---|---|---|---|---|")
    n_false_in_all = n_fits = 0
    for kind in args.kinds:
        for n in args.rows:
            for p in args.columns:
                p = max(p, 3) if kind == "three of p" else p
                n_false = n_missed = n_steps = 0
                start = time.process_time()
                for seed in range(args.fits):
                    X, y, true, options = make(kind, np.random.default_rng([seed, n, p]), n, p)
                    m = (RBRClassifier() if options is None else RBRRegressor(**options)).fit(X, y)
                    found = set(m.selected_features_.tolist())
                    n_false += bool(found - true)
                    n_missed += bool(true - found)
                    n_steps += any(term.columns == (0,) and len(term.pieces) == 2 for term in m.terms_)
                steps = f"{n_steps}" if kind == "step" else ""
                seconds = (time.process_time() - start) / args.fits
                print(
                    f"| {kind} | {n} x {p} | {n_false} of {args.fits} | {n_missed} | {steps} | {seconds:.2f} |",
                    flush=True,
                )
                n_false_in_all, n_fits = n_false_in_all + n_false, n_fits + args.fits
    print(f"\nfalse columns in {n_false_in_all} of {n_fits} fits")


if __name__ == "__main__":
    main()
