"""Fits from blocks: how much memory they take, and how long they take beside a fit to rows in memory.

    python benches/blocks.py memory --rows 5000000 --features 20 --loss squared
    python benches/blocks.py time --rows 2000000 --features 20 --loss logistic

`memory` fits to blocks that are generated from a seed, so that no file is needed, and prints the most anonymous memory
of the process (RssAnon of /proc/self/status; pages of mapped files are not counted, because the system may drop them).
`time` writes Parquet files, fits to the rows in memory and to the files with cached codes, and prints the ratio of the
CPU seconds, each the least of several runs.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import rbr

ROWS_PER_BLOCK = 1 << 17


class Draws:
    """Blocks of rows from a seed: normal columns, of which the first four matter."""

    def __init__(self, n_rows: int, n_features: int, loss: str):
        self.n_rows, self.n_features, self.loss = n_rows, n_features, loss

    def __iter__(self):
        for number, first in enumerate(range(0, self.n_rows, ROWS_PER_BLOCK)):
            rng = np.random.default_rng(number)
            X = rng.standard_normal((min(ROWS_PER_BLOCK, self.n_rows - first), self.n_features), dtype=np.float32)
            score = np.sin(2 * X[:, 0]) + (X[:, 1] > 0.3) + 0.5 * np.abs(X[:, 2]) + 0.2 * X[:, 3]
            if self.loss == "squared":
                y = score + 0.5 * rng.standard_normal(len(X))
            elif self.loss == "poisson":
                y = rng.poisson(np.exp(0.3 * score)).astype(float)
            else:
                y = (score + rng.logistic(size=len(X)) > 1).astype(int)
            yield X, y


def estimator_of(loss: str, n_jobs: int):
    if loss == "logistic":
        return rbr.RBRClassifier(n_jobs=n_jobs)
    return rbr.RBRRegressor({"squared": "squared_error"}.get(loss, loss), n_jobs=n_jobs)


class Watch:
    """The most anonymous memory of the process while it is watched, in bytes."""

    def __init__(self):
        self.most, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self):
        while not self._stop.wait(0.05):
            self.most = max(self.most, anonymous_bytes())

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


def anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    raise OSError("/proc/self/status has no RssAnon: this bench needs Linux")


def measure_memory(options) -> None:
    stages: dict[str, float] = {}
    began = anonymous_bytes()
    start = time.process_time()
    with Watch() as watch:
        m = rbr.fit_from(
            Draws(options.rows, options.features, options.loss),
            estimator=estimator_of(options.loss, options.jobs),
            callback=lambda progress: stages.__setitem__(progress.stage, progress.seconds),
        )
    seconds = ", ".join(f"{stage} {took:.0f} s" for stage, took in stages.items())
    print(
        f"{options.rows:,} x {options.features}, {options.loss}: at most {watch.most / 1e9:.2f} GB of anonymous memory "
        f"({began / 1e9:.2f} GB before the fit), {time.process_time() - start:.0f} CPU seconds ({seconds}), "
        f"{len(m.terms_)} terms"
    )


def measure_time(options) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"x{j}" for j in range(options.features)]
    with tempfile.TemporaryDirectory() as folder:
        rows, cache = Path(folder) / "rows", Path(folder) / "cache"
        rows.mkdir()
        blocks = list(Draws(options.rows, options.features, options.loss))
        for number, (X, y) in enumerate(blocks):
            columns = dict(zip(names, np.ascontiguousarray(X.T), strict=True)) | {"y": y}
            pq.write_table(pa.table(columns), rows / f"part-{number:05}.parquet")
        X, y = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
        del blocks
        in_memory, cached = [], []
        for repeat in range(options.repeats + 1):
            start = time.process_time()
            expected = estimator_of(options.loss, options.jobs).fit(X, y)
            in_memory.append(time.process_time() - start)
            start = time.process_time()
            found = rbr.fit_from(rows, target="y", estimator=estimator_of(options.loss, options.jobs), cache_dir=cache)
            if repeat:
                cached.append(time.process_time() - start)
            else:
                print(f"both passes and the fit: {time.process_time() - start:.1f} CPU seconds")
        ratio = min(cached) / min(in_memory)
        print(
            f"{options.rows:,} x {options.features}, {options.loss}: in memory {min(in_memory):.2f} CPU seconds, from "
            f"Parquet with cached codes {min(cached):.2f}: {ratio:.2f} times; {len(expected.terms_)} and "
            f"{len(found.terms_)} terms, losses {expected.loss_path_[-1]:.5f} and {found.loss_path_[-1]:.5f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["memory", "time"])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--loss", choices=["squared", "logistic", "poisson"], default="squared")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    (measure_memory if options.what == "memory" else measure_time)(options)


if __name__ == "__main__":
    main()
