"""Binning 10^6 x 20 numbers against scikit-learn's KBinsDiscretizer and HistGradientBoosting's binner.

`python benches/bench_binning.py` prints the table. The contestants take turns and the best time of each is reported, so
that a busy moment of the machine affects all of them alike. `pytest benches/bench_binning.py --benchmark-only -n 0`
times the same calls with pytest-benchmark.
"""

from __future__ import annotations

import time
import warnings
from functools import partial

import numpy as np
import pytest
from sklearn.ensemble._hist_gradient_boosting.binning import _BinMapper
from sklearn.preprocessing import KBinsDiscretizer

from rbr.data.binning import Binner

N_ROWS, N_FEATURES, N_BINS = 1_000_000, 20, 255
DISTRIBUTIONS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "lognormal": lambda rng, shape: np.exp(2.0 * rng.standard_normal(shape)),
    "cauchy": lambda rng, shape: rng.standard_cauchy(shape),
}


def table(distribution="normal", order="C", dtype=np.float64):
    X = DISTRIBUTIONS[distribution](np.random.default_rng(0), (N_ROWS, N_FEATURES))
    return np.asarray(X, order=order, dtype=dtype)


def fitters():
    return {
        "Binner, 1 thread": lambda X: Binner(N_BINS, n_jobs=1).fit(X),
        "Binner, 2 threads": lambda X: Binner(N_BINS, n_jobs=2).fit(X),
        "KBinsDiscretizer": lambda X: KBinsDiscretizer(N_BINS, encode="ordinal", strategy="quantile").fit(X),
        "HistGradientBoosting, 1 thread": lambda X: _BinMapper(n_bins=N_BINS + 1, random_state=0, n_threads=1).fit(X),
        "HistGradientBoosting, 2 threads": lambda X: _BinMapper(n_bins=N_BINS + 1, random_state=0, n_threads=2).fit(X),
    }


def codes(fitted, X):
    """The part that is timed: from numbers to codes. (A BinnedMatrix also counts the rows in each bin.)"""
    return fitted._codes(X) if isinstance(fitted, Binner) else fitted.transform(X)


def best_times(calls, n_rounds):
    best = dict.fromkeys(calls, np.inf)
    for _ in range(n_rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def print_times(title, best, base):
    print(f"\n{title}")
    for name, seconds in best.items():
        per_entry, ratio = 1e9 * seconds / (N_ROWS * N_FEATURES), best[base] / seconds
        print(f"  {name:<34}{1e3 * seconds:9.1f} ms {per_entry:8.2f} ns/entry {ratio:8.2f} x {base}")


def main(n_rounds=3):
    warnings.filterwarnings("ignore")
    print(f"{N_ROWS} rows, {N_FEATURES} features, {N_BINS} bins; best of {n_rounds} rounds in turn")
    for distribution, order, dtype in [
        ("normal", "C", np.float64),
        ("normal", "F", np.float64),
        ("normal", "C", np.float32),
        ("lognormal", "F", np.float64),
        ("cauchy", "F", np.float64),
    ]:
        X = table(distribution, order, dtype)
        fitted = {name: fit(X) for name, fit in fitters().items()}
        calls = {name: partial(codes, one, X) for name, one in fitted.items()}
        calls["a plain read of X (its sum)"] = X.sum
        calls["transform to a BinnedMatrix"] = partial(fitted["Binner, 1 thread"].transform, X)
        best = best_times(calls, n_rounds)
        title = f"transform, {distribution}, {order} order, {X.dtype}: {X.itemsize} bytes read per entry"
        print_times(title, best, "KBinsDiscretizer")
        plain = best["a plain read of X (its sum)"]
        print(f"  it takes {best['Binner, 1 thread'] / plain:.1f} times as long as the plain read")
    X = table()
    calls = {name: partial(fit, X) for name, fit in fitters().items()}
    print_times("fit, normal, C order, float64", best_times(calls, n_rounds), "KBinsDiscretizer")


@pytest.mark.parametrize("name", fitters())
@pytest.mark.benchmark(group="binning: transform")
def test_transform(benchmark, name):
    X = table()
    fitted = fitters()[name](X)
    benchmark.pedantic(codes, (fitted, X), rounds=3, warmup_rounds=1)


@pytest.mark.parametrize("name", fitters())
@pytest.mark.benchmark(group="binning: fit")
def test_fit(benchmark, name):
    benchmark.pedantic(fitters()[name], (table(),), rounds=3, warmup_rounds=1)


if __name__ == "__main__":
    main()
