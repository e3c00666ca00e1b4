"""Seconds and bytes of an iteration on a Dask cluster, and whole fits beside memory and LightGBM's Dask estimator.

    python benches/distributed.py iterations --rows 10000000 --features 20 --workers 1 2
    python benches/distributed.py model              # the numbers of docs/scaling.md: several sizes, and a fit to them
    MALLOC_TRIM_THRESHOLD_=65536 python benches/distributed.py parts    # what one part takes, as in a worker of Dask
    python benches/distributed.py fits --rows 10000000 --features 20 --workers 2 [--lightgbm]

An iteration is what the solver does for each step: a point on a few tables, its residuals, and the gradient of all
tables. Workers are processes of this machine with one thread each, on loopback. Times are the least of several. CPU
seconds are those of all processes, which other work on the machine changes less than it changes seconds.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import time
from contextlib import contextmanager
from pathlib import Path

# This file has the name of the package that it measures, which must be found first.
sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).resolve().parent]

import numpy as np  # noqa: E402

import rbr  # noqa: E402
from rbr.data.design import BinnedMatrix  # noqa: E402
from rbr.distributed.executor import Cluster, DaskParts  # noqa: E402
from rbr.objective import make_objective  # noqa: E402
from rbr.objective.parts import LocalParts, Part, cut_points, parts_objective  # noqa: E402
from rbr.objective.parts_leaves import ROWS_PER_LEAF  # noqa: E402

USED = 6  # tables of the point


def leaf_of(number: int, n_rows: int, n_features: int, n_bins: int):
    """(codes, y) of a leaf, from its number alone."""
    rng = np.random.default_rng(number)
    codes = rng.integers(0, n_bins, (n_features, n_rows), dtype=np.uint8)
    score = (codes[:USED].sum(axis=0) / (USED * n_bins) - 0.5) * 6
    return codes, (rng.random(n_rows) < 1 / (1 + np.exp(-score))).astype(np.float64)


def design_of(codes: np.ndarray, n_bins: int) -> BinnedMatrix:
    n_features = len(codes)
    offsets = n_bins * np.arange(n_features + 1)
    columns, missing = np.arange(n_features)[:, None], np.zeros(n_features, dtype=bool)
    shares = np.full(n_bins * n_features, 1.0 / n_bins)
    return BinnedMatrix._from_valid(codes, offsets, missing, None, columns, "counts", shares)


def part_of(first: int, last: int, n_features: int, n_bins: int) -> Part:
    """The rows first to last - 1 of the table."""
    codes, y = np.empty((n_features, last - first), dtype=np.uint8), np.empty(last - first)
    for start in range(first, last, ROWS_PER_LEAF):
        rows = slice(start - first, min(start + ROWS_PER_LEAF, last) - first)
        codes[:, rows], y[rows] = leaf_of(start // ROWS_PER_LEAF, rows.stop - rows.start, n_features, n_bins)
    return Part(design_of(codes, n_bins), y, first_leaf=first // ROWS_PER_LEAF)


@contextmanager
def cluster_of(n_workers: int):
    import distributed

    options = {"n_workers": n_workers, "threads_per_worker": 1, "processes": True, "host": "127.0.0.1"}
    with distributed.LocalCluster(**options, dashboard_address=None, memory_limit=None) as cluster:
        with distributed.Client(cluster) as client:
            yield client


def objective_on(client, n_rows: int, n_features: int, n_bins: int):
    cluster = Cluster(client, 60.0)
    places = [address for address, n in cluster.workers().items() for _ in range(n)]
    cuts = cut_points(n_rows, len(places))
    pairs = list(zip(cuts[:-1], cuts[1:], strict=True))
    parts = [
        cluster.submit(part_of, first, last, n_features, n_bins, name="part", worker=places[k])
        for k, (first, last) in enumerate(pairs)
    ]
    return parts_objective(DaskParts(cluster, parts, places[: len(parts)], ["part"] * len(parts)), loss="log_loss")


def iteration(objective, scale: float) -> None:
    f, support = objective.zero_tables(), np.arange(USED)
    bins = objective.tables.bins_of(support)
    f[bins] = scale * np.sin(np.arange(len(bins)))
    point = objective.point(f, support)
    objective.gradient(point, residuals=objective.residuals(point))


def cpu_of(client=None) -> float:
    """CPU seconds so far, of this process and of the workers of a client."""
    return time.process_time() + (0.0 if client is None else sum(client.run(time.process_time).values()))


def seconds_of(objective, client=None, n_times: int = 15) -> tuple[float, float]:
    """(seconds, CPU seconds) of an iteration."""
    iteration(objective, 0.1)
    found = []
    for k in range(n_times):
        used, start = cpu_of(client), time.perf_counter()
        iteration(objective, 0.1 + 0.01 * k)
        seconds = time.perf_counter() - start
        found.append((seconds, cpu_of(client) - used))
    return tuple(np.min(found, axis=0).round(4).tolist())


def bytes_of_iteration(objective) -> int:
    """What workers send to the client in an iteration: the pickled sums."""
    sent = []
    cluster = objective._parts.cluster
    plain = cluster.answers

    def counted(*args, **names):
        answers = plain(*args, **names)
        sent.append(sum(len(pickle.dumps(answer)) for answer in answers))
        return answers

    cluster.answers = counted
    iteration(objective, 0.2)
    cluster.answers = plain
    return sum(sent)


def in_memory(n_rows: int, n_features: int, n_bins: int, n_jobs: int):
    part = part_of(0, n_rows, n_features, n_bins)
    design = design_of(part.design.codes, n_bins)
    return make_objective(design, part.y, loss="log_loss", n_jobs=n_jobs)


def run_iterations(n_rows, n_features, n_bins, workers) -> list[dict]:
    found = []
    for n in workers:
        with cluster_of(n) as client:
            objective = objective_on(client, n_rows, n_features, n_bins)
            (seconds, cpu), n_bytes = seconds_of(objective, client), bytes_of_iteration(objective)
        row = {"where": "dask", "workers": n, "rows": n_rows, "features": n_features, "bins": n_bins}
        found.append(row | {"seconds": seconds, "cpu": cpu, "bytes": n_bytes})
        print(json.dumps(found[-1]), flush=True)
    return found


def main_iterations(args) -> None:
    rows = run_iterations(args.rows, args.features, args.bins, args.workers)
    by_workers = {row["workers"]: (row["seconds"], row["cpu"]) for row in rows}
    for n_jobs in args.workers:
        objective = in_memory(args.rows, args.features, args.bins, n_jobs)
        seconds, cpu = seconds_of(objective)
        print(json.dumps({"where": "memory", "threads": n_jobs, "seconds": seconds, "cpu": cpu}), flush=True)
        if n_jobs in by_workers:
            of_seconds, of_cpu = (own / other for own, other in zip(by_workers[n_jobs], (seconds, cpu), strict=True))
            print(f"dask / memory with {n_jobs}: {of_seconds:.2f} in seconds, {of_cpu:.2f} in CPU seconds")
        if n_jobs == args.workers[-1]:
            local = parts_objective(
                LocalParts([part_of(0, args.rows, args.features, args.bins)], n_jobs), loss="log_loss"
            )
            seconds, cpu = seconds_of(local)
            print(json.dumps({"where": "parts", "threads": n_jobs, "seconds": seconds, "cpu": cpu}), flush=True)
    if {1, 2} <= set(by_workers):
        print(f"2 workers are {by_workers[1][0] / by_workers[2][0]:.2f} times as fast as 1")


def main_model(args) -> None:
    """seconds = a + b * parts + c * rows * features / workers + d * rows / workers + e * p_bin * nodes * workers."""
    rows = []
    for n_rows, n_features, n_bins in args.sizes:
        rows += run_iterations(n_rows, n_features, n_bins, [1, 2])
    per_worker = np.array([row["rows"] / row["workers"] for row in rows])
    features = np.array([row["features"] for row in rows])
    n_bytes = np.array([row["bytes"] for row in rows])
    workers = np.array([row["workers"] for row in rows])
    seconds = np.array([row["seconds"] for row in rows])
    terms = np.stack([np.ones(len(rows)), workers, per_worker * features, per_worker, n_bytes], axis=1).astype(float)
    from scipy.optimize import nnls

    scale = 1.0 / seconds  # relative errors
    found, _ = nnls(terms * scale[:, None], np.ones(len(rows)))
    names = ("s", "s per worker", "s per row and feature", "s per row", "s per byte")
    print({name: float(f"{value:.3g}") for name, value in zip(names, found, strict=True)})
    print("predicted / measured:", np.round(terms @ found / seconds, 2).tolist())


def main_parts(args) -> None:
    """CPU seconds = a * rows * features + b * rows of an iteration over one part, on one thread."""
    found = {}
    for n_rows, n_features in PART_SIZES:
        local = parts_objective(LocalParts([part_of(0, n_rows, n_features, args.bins)]), loss="log_loss")
        found[n_rows, n_features] = seconds_of(local)[1]
    terms = np.array([[n_rows * n_features, n_rows] for n_rows, n_features in found], dtype=float)
    cpu = np.array(list(found.values()))
    a, b = np.linalg.lstsq(terms / cpu[:, None], np.ones(len(cpu)), rcond=None)[0]
    print({f"{n_rows} x {n_features}": seconds for (n_rows, n_features), seconds in found.items()})
    print(f"{a:.2g} s per row and feature, {b:.2g} s per row")


def columns_of(n_rows: int, n_features: int, chunk: int):
    """Dask arrays of numbers with a target of two classes, made on the workers."""
    import dask.array as da

    rng = da.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_features), chunks=(chunk, n_features)).astype(np.float32)
    score = X[:, 0] + 1.5 * (X[:, 1] > 0.5) - da.absolute(X[:, 2]) + 0.5 * X[:, 3] * (X[:, 4] > 0)
    noise = rng.logistic(size=n_rows, chunks=chunk)
    return X, (score + noise > 0).astype(np.int64)


def timed_fit(estimator, X, y, client=None) -> dict:
    """The seconds and CPU seconds of a fit, those of all processes."""
    used, start = cpu_of(client), time.perf_counter()
    estimator.fit(X, y)
    seconds = time.perf_counter() - start
    return {"seconds": round(seconds, 2), "cpu": round(cpu_of(client) - used, 2)}


def main_fits(args) -> None:
    """Whole fits; the first one on a cluster is left out, since workers import packages in it."""
    from rbr.distributed import DaskRBRClassifier

    for n in args.workers:
        with cluster_of(n) as client:
            X, y = columns_of(args.rows, args.features, args.rows // (8 * n) + 1)
            X, y = client.persist([X, y])
            from distributed import wait

            wait([X, y])
            contenders = {"dask": DaskRBRClassifier(client=client, n_bags=0)}
            if args.lightgbm:
                import lightgbm

                options = {"n_estimators": 100, "num_leaves": 31, "verbose": -1}
                contenders["lightgbm.dask"] = lightgbm.DaskLGBMClassifier(client=client, **options)
            head, truth = X[: args.rows // 50].compute(), y[: args.rows // 50].compute()
            for name, estimator in contenders.items():
                estimator.fit(X[:10_000], y[:10_000])
                row = {"where": name, "workers": n, **timed_fit(estimator, X, y, client)}
                found = estimator.to_local().predict_proba(head)[:, 1]
                print(json.dumps(row | {"auc": auc(truth, found)}), flush=True)
            if args.memory and n == args.workers[-1]:
                inside, target = X.compute(), y.compute()
                m = rbr.RBRClassifier(n_bags=0, n_jobs=n)
                row = {"where": "memory", "threads": n, **timed_fit(m, inside, target)}
                print(json.dumps(row | {"auc": auc(truth, m.predict_proba(head)[:, 1])}), flush=True)


def auc(truth, score) -> float:
    from sklearn.metrics import roc_auc_score

    return round(float(roc_auc_score(truth, score)), 5)


PART_SIZES = [(2_000_000, 8), (2_000_000, 40), (4_000_000, 8), (4_000_000, 20)]
SIZES = [(1_000_000, 10, 64), (1_000_000, 40, 255), (4_000_000, 10, 255), (4_000_000, 20, 64), (2_000_000, 100, 255)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["iterations", "model", "parts", "fits"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--bins", type=int, default=255)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--lightgbm", action="store_true")
    parser.add_argument("--memory", action="store_true")
    args = parser.parse_args()
    args.sizes = SIZES
    {"iterations": main_iterations, "model": main_model, "parts": main_parts, "fits": main_fits}[args.what](args)


if __name__ == "__main__":
    main()
