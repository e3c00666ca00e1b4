"""Embeddings: rbr against scikit-learn's SparseRandomProjection at the same number of non-zeros, as ratios in one run.

    python benches/bench_embedding.py [--repeats 5]

CPU time, the best of the repeats, of a fit and of transforms: dense rows in float64 and in float32, sparse rows (1%
non-zero), a single row. A ratio above 1 means that rbr was faster. The last column is the ratio of pickle sizes,
scikit-learn's over rbr's.
"""

from __future__ import annotations

import argparse
import pickle
import time

import numpy as np
from scipy import sparse
from sklearn.random_projection import SparseRandomProjection

from rbr import BinnedEmbedding, SparseJL

# rows, features, components, non-zeros per feature
SIZES = (
    (2000, 1280, 256, 4),
    (1000, 10_000, 500, 5),
    (200, 10_000, 2000, 20),
    (500, 50_000, 3000, 14),
    (20_000, 64, 16, 2),
)


def best_cpu_time(call, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    columns = ("fit", "float64", "float32", "sparse", "one row", "bytes")
    print(f"{'rows x features -> components, non-zeros':42}{'':17}" + "".join(f"{name:>9}" for name in columns))
    for n_rows, n_features, n_components, n_nonzeros in SIZES:
        rng = np.random.default_rng(0)
        dense = rng.normal(size=(n_rows, n_features))
        rows = sparse.csr_array(sparse.random(n_rows, n_features, density=0.01, random_state=0))
        tables = (dense, dense.astype(np.float32), rows, dense[:1])

        def figures(embedding, dense=dense, tables=tables):
            fit = best_cpu_time(lambda: embedding.fit(dense[:2]), repeats)
            times = []
            for table in tables:
                embedding.fit(table[:1])  # so that the embedding has the dtype of the table
                times.append(best_cpu_time(lambda table=table: embedding.transform(table), repeats))
            return np.array([fit, *times, len(pickle.dumps(embedding))])

        other = figures(SparseRandomProjection(n_components, density=n_nonzeros / n_components, random_state=0))
        for kind in (BinnedEmbedding, SparseJL):
            ratios = other / figures(kind(n_components, n_nonzeros=n_nonzeros, random_state=0))
            size = f"{n_rows} x {n_features} -> {n_components}, {n_nonzeros}"
            print(f"{size:42}{kind.__name__:17}" + "".join(f"{ratio:9.2f}" for ratio in ratios))


if __name__ == "__main__":
    main()
