"""P_L: the pruned search against ruptures' KernelCPD and the plain O(k b^2) loop; then the other shapes.

    python benches/bench_projections.py                             # one table, ratios in one run
    pytest benches/bench_projections.py --benchmark-only -n 0       # pytest-benchmark's own table

One thread. Rivals take turns, so that a busy moment affects all of them alike, and the minimum is reported. In a fit
all tables go to the kernel in one call; the ratios use one call per table, since the others are called that way.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from rbr import _fast
from rbr._fast import _projections
from rbr.reference.projections import SHAPES, level_codes

N_PIECES = 8
SIZES = (40, 256, 4096)
KINDS = ("noise", "steps + noise", "smooth + noise", "smooth", "outlier")


def make_table(kind, n_bins, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(n_bins) / n_bins
    noise = rng.standard_normal(n_bins)
    table = {
        "noise": noise,
        "steps + noise": 2 * np.repeat(rng.standard_normal(8), -(-n_bins // 8))[:n_bins] + noise,
        "smooth + noise": 2 * np.sin(6 * t) + noise / 2,
        "smooth": np.sin(6 * t),
        "outlier": np.where(np.arange(n_bins) == n_bins // 3, 100.0, 1e-3 * noise),
    }[kind]
    return table - table.mean()


class Batch:
    """Tables of equal size with equal weights, ready for the kernel."""

    def __init__(self, kind, n_bins, n_tables, shape="constant", limit=N_PIECES, price=0.0, greedy=False):
        self.tables = [make_table(kind, n_bins, seed) for seed in range(n_tables)]
        self.n_tables = n_tables
        stacked = np.concatenate(self.tables)
        weights = np.full(len(stacked), 1 / n_bins)
        codes = level_codes(n_bins, min(limit, n_bins))
        self.args = [
            np.arange(n_tables),
            stacked,
            np.arange(n_tables + 1) * n_bins,
            weights,
            np.tile((np.arange(n_bins) + 0.5) / n_bins, n_tables),
            np.zeros(n_tables, dtype=np.uint8),
            np.full(n_tables, SHAPES.index(shape), dtype=np.int8),
            np.full(n_tables, limit),
            weights,
            np.zeros(n_tables),
            price * float(np.mean(stacked**2)),
            np.tile(codes, n_tables),
            np.arange(n_tables + 1) * len(codes),
            greedy,
            np.empty(len(stacked)),
            np.empty(len(stacked), dtype=np.int32),
            np.empty(n_tables),
            np.empty(n_tables),
        ]

    def project(self):
        _fast.prox_tables(*self.args, 0, self.n_tables)

    def project_one_by_one(self):
        for j in range(self.n_tables):
            _fast.prox_tables(*self.args, j, j + 1)

    def project_plain(self):
        starts = np.empty(N_PIECES, dtype=np.int32)
        n_bins = len(self.tables[0])
        weights = np.full(n_bins, 1 / n_bins)
        for table in self.tables:
            _projections.cut_constants(table, weights, N_PIECES, starts, False)

    def project_ruptures(self):
        import ruptures

        for table in self.tables:
            ruptures.KernelCPD(kernel="linear", min_size=1).fit(table[:, None]).predict(n_bkps=N_PIECES - 1)


def minima(rivals, n_rounds):
    """Seconds of the fastest call of each rival, with the rivals taking turns."""
    best = dict.fromkeys(rivals, np.inf)
    for _ in range(n_rounds):
        for name, call in rivals.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def kept_per_bin(table):
    """How many starts the pruned search compares per bin and pass; the passes are for 2 .. k - 1 pieces."""
    weights = np.full(len(table), 1 / len(table))
    _, n_compared = _projections.cut_constants(table, weights, N_PIECES, np.empty(N_PIECES, dtype=np.int32), True)
    return n_compared / (len(table) * (N_PIECES - 2))


# ---------------------------------------------------------------- pytest-benchmark


@pytest.mark.parametrize("n_bins", SIZES)
@pytest.mark.parametrize("rival", ["project", "project_plain", "project_ruptures"])
def test_constant(benchmark, n_bins, rival):
    if rival == "project_ruptures":
        pytest.importorskip("ruptures")
    benchmark.group = f"P_L constant, {N_PIECES} pieces, {n_bins} bins"
    benchmark(getattr(Batch("steps + noise", n_bins, 1), rival))


@pytest.mark.parametrize("n_bins", (40, 256))
@pytest.mark.parametrize("price", (0.0, 0.02))
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(benchmark, n_bins, price, shape):
    benchmark.group = f"{n_bins} bins, {'with' if price else 'without'} a jump cost"
    benchmark(Batch("smooth + noise", n_bins, 10, shape, price=price).project)


# ---------------------------------------------------------------- one table


def print_rivals():
    print(f"### Constant, {N_PIECES} pieces: microseconds per table\n")
    print(
        "| bins | input | rbr | rbr, all in one call | plain O(k b^2) | ruptures "
        "| ruptures / rbr | plain / rbr | starts kept per bin |"
    )
    print("|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    for n_bins in SIZES:
        for kind in KINDS:
            batch = Batch(kind, n_bins, n_tables=20 if n_bins < 1000 else 2)
            rivals = {
                "single": batch.project_one_by_one,
                "batch": batch.project,
                "plain": batch.project_plain,
                "ruptures": batch.project_ruptures,
            }
            us = {
                name: 1e6 * seconds / batch.n_tables
                for name, seconds in minima(rivals, 20 if n_bins < 1000 else 3).items()
            }
            print(
                f"| {n_bins} | {kind} | {us['single']:.1f} | {us['batch']:.1f} | {us['plain']:.1f} "
                f"| {us['ruptures']:.0f} | {us['ruptures'] / us['single']:.1f} "
                f"| {us['plain'] / us['single']:.1f} | {kept_per_bin(batch.tables[0]):.1f} |"
            )


def print_shapes():
    columns = {
        f"{N_PIECES} pieces": {},
        "jump cost, at most 32": {"limit": 32, "price": 0.02},
        "jump cost, at most 3": {"limit": 3, "price": 0.02},
        "greedy": {"greedy": True},
    }
    print("\n### Every shape, smooth + noise: microseconds per table\n")
    print("| bins | shape | " + " | ".join(columns) + " |")
    print("|---:|---|" + "---:|" * len(columns))
    for n_bins in SIZES:
        n_tables, n_rounds = (20, 20) if n_bins < 1000 else (1, 3)
        rivals = {
            (shape, name): Batch("smooth + noise", n_bins, n_tables, shape, **kwargs).project
            for shape in SHAPES
            for name, kwargs in columns.items()
        }
        best = minima(rivals, n_rounds)
        for shape in SHAPES:
            cells = [f"{1e6 * best[shape, name] / n_tables:.1f}" for name in columns]
            print(f"| {n_bins} | {shape} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    print_rivals()
    print_shapes()
