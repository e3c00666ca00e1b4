"""The binned matrix against scipy's CSR matrix, tabmat's categorical one, and a plain read of the same bytes.

    python benches/bench_matrix.py [--rows 1000000] [--features 50] [--bins 40] [--repeats 15]

prints one table. The contenders take turns and the minimum of the repeats counts, so that ratios come from one run.
`pytest benches/bench_matrix.py -o addopts=` times the same calls with pytest-benchmark.
"""

from __future__ import annotations

import argparse
import os
from functools import cache
from time import perf_counter

# The other libraries are compared on one thread. tabmat reads this when it is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

from rbr.data.design import BinnedMatrix

try:
    import tabmat
except ImportError:
    tabmat = None

N_ROWS, N_FEATURES, N_BINS = 1_000_000, 50, 40


@cache
def contenders(n_rows: int, n_features: int, n_bins: int) -> dict:
    """For each name: functions without arguments for X @ f and X.T @ r, and the bytes that hold X."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, n_bins, (n_features, n_rows), dtype=np.uint8 if n_bins <= 256 else np.uint16)
    f, r = rng.normal(size=n_features * n_bins), rng.normal(size=n_rows)

    binned = BinnedMatrix(codes, np.arange(n_features + 1) * n_bins)
    csr = binned.tocsr(scaled=False)
    assert csr.indices.dtype == np.int32
    csr_bytes = csr.data.nbytes + csr.indices.nbytes + csr.indptr.nbytes
    np.testing.assert_allclose(binned.matvec(f), csr @ f, atol=1e-10)
    np.testing.assert_allclose(binned.rmatvec(r), csr.T @ r, atol=1e-8)

    found = {"scipy CSR": (lambda: csr @ f, lambda: csr.T @ r, csr_bytes)}
    if tabmat is not None:
        blocks = [tabmat.CategoricalMatrix(column.astype(np.int32)) for column in codes]
        split = tabmat.SplitMatrix(blocks)
        np.testing.assert_allclose(split.matvec(f), csr @ f, atol=1e-10)
        tabmat_bytes = sum(block.indices.nbytes for block in blocks)
        found["tabmat"] = (lambda: split.matvec(f), lambda: split.transpose_matvec(r), tabmat_bytes)
    for n_threads in (1, 2):
        found[f"rbr, {n_threads} thread{'s' * (n_threads > 1)}"] = (
            lambda n_threads=n_threads: binned.matvec(f, n_threads=n_threads),
            lambda n_threads=n_threads: binned.rmatvec(r, n_threads=n_threads),
            binned.nbytes,
        )
    words = codes.reshape(-1)[: codes.nbytes // 8 * 8].view(np.uint64)
    found["plain read"] = (words.max, words.max, codes.nbytes)
    return found


@pytest.mark.parametrize("product", ["matvec", "rmatvec"])
@pytest.mark.parametrize("name", ["scipy CSR", "tabmat", "rbr, 1 thread", "rbr, 2 threads", "plain read"])
def test_product(benchmark, name, product):
    if name == "tabmat" and tabmat is None:
        pytest.skip("tabmat is not installed")
    benchmark.group = product
    matvec, rmatvec, _ = contenders(N_ROWS, N_FEATURES, N_BINS)[name]
    benchmark(matvec if product == "matvec" else rmatvec)


def least_times(calls: dict, n_repeats: int) -> dict:
    """The minimum time of each call, with all calls taking turns."""
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(n_repeats):
        for key, call in calls.items():
            start = perf_counter()
            call()
            least[key] = min(least[key], perf_counter() - start)
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=N_ROWS)
    parser.add_argument("--features", type=int, default=N_FEATURES)
    parser.add_argument("--bins", type=int, default=N_BINS)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()

    found = contenders(arguments.rows, arguments.features, arguments.bins)
    calls = {(name, product): found[name][product] for name in found for product in (0, 1)}
    times = least_times(calls, arguments.repeats)
    _, _, csr_bytes = found["scipy CSR"]

    print(f"{arguments.rows} rows, {arguments.features} features, {arguments.bins} bins; x: times CSR's\n")
    print("| | X @ f, ms | speed | X.T @ r, ms | speed | bytes per entry | memory |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, (_, _, n_bytes) in found.items():
        cells = []
        for product in (0, 1):
            time = times[name, product]
            cells += [f"{time * 1e3:.1f}", f"{times['scipy CSR', product] / time:.1f} x"]
        per_entry = n_bytes / (arguments.rows * arguments.features)
        cells += [f"{per_entry:.2f}", f"1/{csr_bytes / n_bytes:.1f}"]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
