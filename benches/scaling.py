"""Seconds and passes of a fit against rows, columns, bins, s_G and s_L, each alone, with fitted exponents.

    python benches/scaling.py [--repeats 3] [--jobs 1] [--quick]

Planted data, two classes, noise sd half the signal's. A fit is `Binner.fit_transform` and `rbr.solve` with the
estimators' shapes and jump cost, no bags; a pass is one reading of all codes (`Solution.history`). The exponent is the
least-squares slope of log seconds against the log of what varies. Times are CPU seconds, the minimum of the repeats.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

import rbr
from rbr.constraints import DEFAULT_JUMP_COST, Constraints
from rbr.datasets import make_planted

BASE = {"rows": 100_000, "columns": 50, "bins": 255, "s_G": 20, "s_L": 32}
VARIED = {
    "rows": (10_000, 30_000, 100_000, 300_000, 1_000_000),
    "columns": (20, 50, 100, 200, 400),
    "bins": (16, 32, 64, 128, 255),
    "s_G": (1, 2, 5, 10, 20),
    "s_L": (2, 4, 8, 16, 32),
}
QUICK_BASE = {**BASE, "rows": 2000, "columns": 15}
QUICK_VARIED = {"rows": (1000, 2000), "columns": (12, 15), "bins": (16, 32), "s_G": (2, 5), "s_L": (2, 4)}


def fit(data, bins: int, s_G: int, s_L: int, jobs: int) -> tuple[float, float, float, int]:
    """(seconds of the binning, seconds of the solver, passes, features used)"""
    start = time.process_time()
    design = rbr.Binner(max_bins=bins, n_jobs=jobs).fit_transform(data.X)
    binned = time.process_time()
    constraints = Constraints(s_G, s_L, "mixed", jump_cost=DEFAULT_JUMP_COST)
    s = rbr.solve(design, data.y, loss="log_loss", constraints=constraints, n_jobs=jobs)
    return binned - start, time.process_time() - binned, s.history[-1].passes, len(s.support)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="small tables: does it run?")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    base, varied = (QUICK_BASE, QUICK_VARIED) if options.quick else (BASE, VARIED)
    print(f"Varied one at a time around {base}; {options.jobs} threads, least of {options.repeats}.\n")
    print("| varied | value | binning, CPU s | solver, CPU s | passes | features |")
    print("|---|---:|---:|---:|---:|---:|")
    exponents = []
    for what, values in varied.items():
        seconds = []
        for value in values:
            case = {**base, what: value}
            shape = case["rows"], case["columns"], 10
            data = make_planted(*shape, noise=0.5, task="classification", equal_strength=True, random_state=0)
            limits = case["bins"], case["s_G"], case["s_L"], options.jobs
            found = [fit(data, *limits) for _ in range(options.repeats)]
            binning, solving = (min(one[k] for one in found) for k in (0, 1))
            seconds.append((binning, solving))
            _, _, passes, used = found[0]
            print(f"| {what} | {value:,} | {binning:.3f} | {solving:.3f} | {passes:.1f} | {used} |", flush=True)
        slopes = np.polyfit(np.log(values), np.log(np.maximum(seconds, 1e-4)), 1)[0]
        exponents.append((what, *slopes))
    print("\n| varied | exponent of the binning | exponent of the solver |\n|---|---:|---:|")
    for what, binning, solving in exponents:
        print(f"| {what} | {binning:.2f} | {solving:.2f} |")


if __name__ == "__main__":
    main()
