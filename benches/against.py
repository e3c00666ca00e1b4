"""CPU seconds of fits of the real tables beside those of another checkout, taking turns on one machine.

    git worktree add ../before COMMIT && (cd ../before && python setup.py build_ext --inplace)
    python benches/against.py --before ../before --data FOLDER [--only adult ...] [--repeats 2]

FOLDER as for benches/tables.py. Every table is fitted whole, with the defaults and as a single fit (`n_bags=0`), on one
thread; each checkout runs in a process of its own, and the least of the repeats counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from tables import entries_of, fit_rbr, read

SETTINGS: dict[str, dict] = {"single": {"n_bags": 0}, "defaults": {}}
FITS = 2


def fit_all(folder: Path, only: list[str]) -> None:
    """Print a line of JSON for each table and setting: its least CPU seconds."""
    warnings.simplefilter("ignore")
    for entry in entries_of(folder, "all"):
        if only and entry["name"] not in only:
            continue
        table = read(folder, entry)
        for name, options in SETTINGS.items():
            found = []
            for _ in range(FITS):
                start = time.process_time()
                fit_rbr(entry["task"], *table, n_jobs=1, **options)
                found.append(time.process_time() - start)
            print(json.dumps([entry["name"], name, min(found)]), flush=True)


def measured(checkout: Path, folder: Path, only: list[str]) -> dict[tuple[str, str], float]:
    """CPU seconds by (table, setting) of one checkout."""
    command = [sys.executable, __file__, "--data", str(folder), "--worker", "--only", *only]
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OPENBLAS_NUM_THREADS": "1"}
    lines = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.splitlines()
    return {(table, setting): seconds for table, setting, seconds in map(json.loads, lines)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return fit_all(args.data, args.only)
    if args.before is None:
        parser.error("--before is missing: the folder of the other checkout, with its kernels built in place")
    checkouts = args.before.resolve(), Path(__file__).resolve().parents[1]
    runs: list[list[dict]] = [[], []]
    for _ in range(args.repeats):
        for own, checkout in zip(runs, checkouts, strict=True):
            own.append(measured(checkout, args.data, args.only))
    before, now = ({key: min(run[key] for run in own) for key in own[0]} for own in runs)
    print("| table | " + " | ".join(f"{name}, before | now | ratio" for name in SETTINGS) + " |")
    print("|---|" + "---|---|---|" * len(SETTINGS))
    for table in dict.fromkeys(table for table, _ in before):
        cells = [
            f"{before[table, name]:.3f} | {now[table, name]:.3f} | {now[table, name] / before[table, name]:.2f}"
            for name in SETTINGS
        ]
        print(f"| {table} | " + " | ".join(cells) + " |")
    for name in SETTINGS:
        pairs = np.array([(before[key], now[key]) for key in before if key[1] == name])
        ratios, sums = pairs[:, 1] / pairs[:, 0], pairs.sum(axis=0)
        print(f"{name}: median ratio {np.median(ratios):.2f}, of all tables together {sums[1] / sums[0]:.2f}")


if __name__ == "__main__":
    main()
