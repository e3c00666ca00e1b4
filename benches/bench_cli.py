"""`rbr predict` on a large CSV file: rows per second and peak memory, beside pandas.read_csv of the same file.

    python benches/bench_cli.py [--rows 10000000] [--repeats 1] [--folder FOLDER]

The file has 20 columns: 16 numbers and 4 categories. The model uses 8 numbers and 2 categories. Each contender runs in
a process of its own, which reports its peak memory; pandas only reads the file, `rbr predict` reads it, scores it and
writes the predictions. Needs about 150 bytes of disk per row.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

N_NUMBERS, N_CATEGORIES = 16, 4
ROWS_PER_PART = 200_000

# Children report what they used, since that of a finished child is not told from those of the others.
REPORT_USE = """
import atexit, resource, sys
def tell():
    used = resource.getrusage(resource.RUSAGE_SELF)
    # ru_maxrss is at least what the parent had when it started the child.
    peak = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")][0]
    print("used", peak, used.ru_utime + used.ru_stime, file=sys.stderr)
atexit.register(tell)
"""
RBR = REPORT_USE + "from rbr.cli import main; sys.exit(main(sys.argv[1:]))"
READ_ALL = REPORT_USE + "import pandas; print(len(pandas.read_csv(sys.argv[1])))"
READ_BLOCKS = REPORT_USE + "import pandas; print(sum(map(len, pandas.read_csv(sys.argv[1], chunksize=131072))))"


def part(rng: np.random.Generator, n_rows: int):
    """Some rows of the table, as a frame with the target."""
    import pandas as pd

    numbers = {f"number_{j}": rng.normal(size=n_rows).round(3) for j in range(N_NUMBERS)}
    levels = np.array(["north", "east", "south", "west", "centre"])
    categories = {f"region_{j}": levels[rng.integers(len(levels), size=n_rows)] for j in range(N_CATEGORIES)}
    score = sum(np.sign(numbers[f"number_{j}"] - 0.1 * j) for j in range(8)) + (categories["region_0"] == "north")
    score = score - (categories["region_1"] == "west")
    y = rng.random(n_rows) < 1 / (1 + np.exp(-score))
    return pd.DataFrame(numbers | categories), y


def write_table(path: Path, n_rows: int) -> None:
    import pyarrow
    from pyarrow import csv

    rng = np.random.default_rng(1)
    frame, _ = part(rng, min(n_rows, ROWS_PER_PART))
    table = pyarrow.Table.from_pandas(frame)
    with csv.CSVWriter(path, table.schema, write_options=csv.WriteOptions(quoting_style="none")) as writer:
        for start in range(0, n_rows, ROWS_PER_PART):
            # Each part has its rows in another order: drawing ten million times is slower than what is measured.
            order = rng.permutation(len(table))[: n_rows - start]
            writer.write_table(table.take(pyarrow.array(order)))


def fit_model(path: Path) -> None:
    from rbr import RBRClassifier

    X, y = part(np.random.default_rng(0), 50_000)
    used = [f"number_{j}" for j in range(8)] + ["region_0", "region_1"]
    RBRClassifier(max_features=10, exclude=[name for name in X.columns if name not in used]).fit(X, y).save(path)


def measure(program: str, *arguments: str) -> dict[str, float]:
    """Wall-clock seconds, CPU seconds and peak memory in MB of a child."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", program, *arguments], env=env, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(done.stderr)
    peak, cpu = next(line.split()[1:] for line in done.stderr.splitlines() if line.startswith("used"))
    return {"seconds": seconds, "cpu": float(cpu), "peak": int(peak) / (1024 if sys.platform != "darwin" else 2**20)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument(
        "--folder", help="where the files are written for the time of the run; default: a temporary one"
    )
    parser.add_argument("--json", help="where to write the numbers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        table, model, scores = (str(Path(folder) / name) for name in ("table.csv", "model.json", "scores.csv"))
        fit_model(Path(model))
        write_table(Path(table), options.rows)
        size = Path(table).stat().st_size
        contenders = {
            "rbr predict": (RBR, "predict", model, table, "--out", scores, "--quiet"),
            "pandas.read_csv, whole": (READ_ALL, table),
            "pandas.read_csv, in blocks": (READ_BLOCKS, table),
        }
        found: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
        for _ in range(options.repeats):
            for name, command in contenders.items():
                found[name].append(measure(*command))
        n_lines = sum(block.count(b"\n") for block in iter_blocks(Path(scores)))
        assert n_lines == options.rows + 1, n_lines
    print(f"{options.rows:,} rows, {N_NUMBERS} numbers and {N_CATEGORIES} categories, {size / 2**20:,.0f} MB of CSV\n")
    print("| | seconds | rows per second | CPU seconds | peak memory, MB |\n|---|---:|---:|---:|---:|")
    for name, runs in found.items():
        best = min(own["seconds"] for own in runs)
        cpu, peak = min(own["cpu"] for own in runs), max(own["peak"] for own in runs)
        print(f"| {name} | {best:.1f} | {options.rows / best:,.0f} | {cpu:.1f} | {peak:,.0f} |")
    if options.json:
        Path(options.json).write_text(json.dumps({"rows": options.rows, "runs": found}))


def iter_blocks(path: Path):
    with open(path, "rb") as file:
        while block := file.read(2**24):
            yield block


if __name__ == "__main__":
    main()
