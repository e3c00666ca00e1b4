"""Threads on a busy machine: fits of rbr and two peers on one and on two threads while every core has other work.

    python benches/busy.py [--rows 300000] [--columns 50] [--repeats 5] [--peers rbr lightgbm xgboost]

The load is one process per core that only multiplies. In each round every fit runs once in its own process, idle rounds
first, then busy ones. The median of the repeats is reported, since the minimum may come from a quiet moment.
Requirement: on the busy machine rbr's fit on two threads takes at most 1.2 times as long as on one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

PEERS = {"rbr": "rbr", "lightgbm": "lightgbm", "xgboost": "xgboost"}
THREADS = (1, 2)


def fit(peer: str, threads: int, n_rows: int, n_columns: int) -> float:
    """Seconds of one fit, in this process."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, n_columns))
    y = (X[:, :10].sum(axis=1) + rng.standard_normal(n_rows) > 0).astype(np.int64)
    if peer == "rbr":
        from rbr import RBRClassifier

        model = RBRClassifier(max_features=20, n_bags=0, n_jobs=threads)
    elif peer == "lightgbm":
        from lightgbm import LGBMClassifier

        model = LGBMClassifier(n_estimators=20, n_jobs=threads, verbose=-1)
    else:
        from xgboost import XGBClassifier

        model = XGBClassifier(tree_method="hist", n_estimators=20, n_jobs=threads)
    start = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - start


def burn_cpu_until_exit(parent: int) -> None:
    """Do arithmetic for as long as the parent process lives."""
    x = 1.0
    while os.getppid() == parent:
        for _ in range(1_000_000):
            x = x * 1.0000001 % 10.0


def in_own_process(peer: str, threads: int, options) -> float:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    env |= {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__)), "--child", peer, str(threads), str(options.rows)]
    done = subprocess.run([*command, str(options.columns)], env=env, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        peer, *numbers = sys.argv[2:]
        print(fit(peer, *map(int, numbers)))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peers", nargs="+", choices=[*PEERS], default=[*PEERS])
    options = parser.parse_args()
    peers = [peer for peer in options.peers if find_spec(PEERS[peer]) is not None]
    for peer in set(options.peers) - set(peers):
        print(f"{peer} is not installed: left out")
    seconds: dict[tuple, list[float]] = {}
    for busy in (False, True):
        context = multiprocessing.get_context("spawn")
        n_others = (os.cpu_count() or 1) if busy else 0
        others = [
            context.Process(target=burn_cpu_until_exit, args=(os.getpid(),), daemon=True) for _ in range(n_others)
        ]
        for other in others:
            other.start()
        try:
            for _ in range(options.repeats):
                for peer in peers:
                    for threads in THREADS:
                        key = peer, busy, threads
                        seconds.setdefault(key, []).append(in_own_process(peer, threads, options))
        finally:
            for other in others:
                other.terminate()
    print("| fit | idle, 1 thread | idle, 2 | ratio | busy, 1 thread | busy, 2 | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for peer in peers:
        cells = []
        for busy in (False, True):
            one, two = (float(np.median(seconds[peer, busy, threads])) for threads in THREADS)
            cells += [f"{one:.2f} s", f"{two:.2f} s", f"{two / one:.2f}"]
        print(f"| {peer} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
