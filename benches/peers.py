"""Fits of rbr and of its peers on planted data: seconds, memory, score and the true features found, in one run.

    python benches/peers.py [--sizes 10000x20 ...] [--peers rbr ...] [--repeats 3] [--jobs 2] [--out FOLDER] [--quick]

Every fit runs in its own process on data that are already in memory (the widest: in a memory-mapped file). The peers
take turns, and the minimum of the repeats is reported. Peak memory is the largest resident size during the fit minus
the resident size once the input is loaded; for memory-mapped input only anonymous memory counts. Ten functions of equal
variance are planted among the columns; the noise is given with each size. FOLDER receives peers.json, peers.md and
peers.png. A peer that is not installed is left out with a note, and one that takes more than --limit seconds or
--memory gigabytes is reported as such. An Explainable Boosting Machine is not run if it would take longer than the
limit by the power law through its seconds at 10^4 and 10^5 rows of the same columns in the same run: its entry is then
the extrapolated time, and marked as such.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

N_TRUE = 10
ONE_HOT_BINS = 32
ENTRIES_PER_CHUNK = 10_000_000
WIDE_LIMITS = {"max_bins": 16, "max_segments": 4, "max_features": 10}


# ---------------------------------------------------------------- data


@dataclass(frozen=True)
class Size:
    """A planted table: how it is drawn, and the limits that the fit "rbr, limits" uses."""

    n_rows: int
    n_features: int
    task: str
    noise: float
    limits: dict
    n_test: int = 20_000
    dtype: str = "float64"
    mapped: bool = False

    @property
    def name(self) -> str:
        return f"{self.n_rows}x{self.n_features}"

    def describe(self) -> str:
        kind = ", memory-mapped" if self.mapped else ""
        return (
            f"{self.n_rows:,} x {self.n_features:,} {self.dtype}{kind}, {self.task}, signal to noise variance "
            f"{self.noise**-2:g}, rbr's limits {self.limits or 'none'}"
        )


SIZES = {
    size.name: size
    for size in (
        *(Size(10**e, 20, "classification", 0.5, {"max_features": 20}) for e in (4, 5, 6)),
        *(Size(10**e, 100, "classification", 0.5, {"max_features": 20}) for e in (4, 5, 6)),
        Size(10**7, 20, "regression", 0.5, {"max_features": 20}),
        Size(500, 10_000, "regression", 0.25, WIDE_LIMITS),
        Size(500_000, 230, "classification", 0.5, WIDE_LIMITS),
        Size(900, 860_000, "regression", 0.5, WIDE_LIMITS, n_test=200, dtype="float32", mapped=True),
        Size(300, 12, "classification", 0.5, {"max_features": 5, "n_bags": 0}, n_test=200),
        Size(200, 500, "regression", 0.25, {**WIDE_LIMITS, "n_bags": 0}, n_test=100, dtype="float32", mapped=True),
    )
}
QUICK = ("300x12", "200x500")


def draw(size: Size, folder: Path) -> None:
    """Write X, y, X_test, y_test and support of a planted table, some rows at a time."""
    from rbr.datasets import PlantedFunction

    rng = np.random.default_rng([size.n_rows, size.n_features])
    support = np.sort(rng.choice(size.n_features, N_TRUE, replace=False))
    n_all = size.n_rows + size.n_test
    probe = rng.standard_normal(10_000)
    functions = []
    for _ in range(N_TRUE):
        a1, a3, a4 = rng.standard_normal(3)
        raw = PlantedFunction(a1, rng.random(), a3, a4, rng.random())
        functions.append(raw.scaled(float(raw(probe).std())))
    arrays = {
        name: np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype=size.dtype, shape=(n, size.n_features))
        for name, n in (("X", size.n_rows), ("X_test", size.n_test))
    }
    signal = np.zeros(n_all)
    first = 0
    for array in arrays.values():
        # As many rows at a time as fit in memory.
        step = max(1, ENTRIES_PER_CHUNK // size.n_features)
        for a in range(0, len(array), step):
            rows = slice(a, min(a + step, len(array)))
            array[rows] = rng.standard_normal((rows.stop - a, size.n_features), dtype=np.float32)
            for j, f in zip(support, functions, strict=True):
                signal[first + a : first + rows.stop] += f(array[rows, j])
        first += len(array)
        array.flush()
    noisy = signal + size.noise * signal.std() * rng.standard_normal(n_all)
    y = noisy if size.task == "regression" else (noisy > np.median(noisy)).astype(np.int64)
    np.savez(folder / "y.npz", y=y[: size.n_rows], y_test=y[size.n_rows :], support=support)


# ---------------------------------------------------------------- peers


def fit_rbr(X, y, size: Size, jobs: int, limits: bool):
    from rbr import RBRClassifier, RBRRegressor

    estimator = RBRRegressor if size.task == "regression" else RBRClassifier
    m = estimator(n_jobs=jobs, **(size.limits if limits else {})).fit(X, y)
    return m, lambda: m.selected_features_


def bin_rbr(X, y, size: Size, jobs: int):
    from rbr import Binner

    Binner(max_bins=size.limits.get("max_bins", 255), n_jobs=jobs).fit_transform(X)
    return None, lambda: []


def fit_lightgbm(X, y, size: Size, jobs: int):
    import lightgbm

    estimator = lightgbm.LGBMRegressor if size.task == "regression" else lightgbm.LGBMClassifier
    m = estimator(n_estimators=100, n_jobs=jobs, verbose=-1, importance_type="gain").fit(X, y)
    return m, lambda: top(m.feature_importances_)


def fit_xgboost(X, y, size: Size, jobs: int, n_trees: int):
    import xgboost

    estimator = xgboost.XGBRegressor if size.task == "regression" else xgboost.XGBClassifier
    m = estimator(tree_method="hist", n_estimators=n_trees, max_depth=6, n_jobs=jobs).fit(X, y)
    return m, lambda: top(m.feature_importances_)


def fit_hist_gradient_boosting(X, y, size: Size, jobs: int):
    from sklearn import ensemble

    regression = size.task == "regression"
    make = ensemble.HistGradientBoostingRegressor if regression else ensemble.HistGradientBoostingClassifier
    return make().fit(X, y), None


def fit_ebm(X, y, size: Size, jobs: int):
    from interpret import glassbox

    regression = size.task == "regression"
    make = glassbox.ExplainableBoostingRegressor if regression else glassbox.ExplainableBoostingClassifier
    m = make(interactions=0, outer_bags=4, n_jobs=jobs).fit(X, y)
    return m, lambda: top(m.term_importances())


class Binned:
    """A linear model on indicators of quantile bins; `fit` makes it from the binned table."""

    def __init__(self, X, y, encode: str, fit: Callable):
        from sklearn.preprocessing import KBinsDiscretizer

        options = {"encode": encode, "strategy": "quantile", "subsample": 200_000, "random_state": 0}
        self.binner = KBinsDiscretizer(ONE_HOT_BINS, **options)
        self.model, self.prepare = fit(self.binner.fit_transform(X), y)

    def __getattr__(self, name):
        if name not in ("predict", "decision_function", "predict_proba"):
            raise AttributeError(name)
        method = getattr(self.model, name)
        return lambda X: method(self.prepare(self.binner.transform(X)))

    def strongest(self) -> np.ndarray:
        sizes = [len(edges) - 1 for edges in self.binner.bin_edges_]
        blocks = np.split(np.ravel(self.model.coef_) ** 2, np.cumsum(sizes)[:-1])
        return top([block.sum() for block in blocks])


def fit_glum(X, y, size: Size, jobs: int):
    import glum
    import tabmat

    def as_categories(codes):
        columns = range(codes.shape[1])
        return tabmat.SplitMatrix([
            tabmat.CategoricalMatrix(codes[:, j].astype(np.int32), categories=np.arange(ONE_HOT_BINS)) for j in columns
        ])  # fmt: skip

    def fit(codes, y):
        family = "normal" if size.task == "regression" else "binomial"
        model = glum.GeneralizedLinearRegressor(family=family, alpha=1e-4, l1_ratio=0)
        return model.fit(as_categories(codes), np.asarray(y, dtype=np.float64)), as_categories

    m = Binned(X, y, "ordinal", fit)
    return m, m.strongest


def fit_one_hot(X, y, size: Size, jobs: int):
    from sklearn.linear_model import LogisticRegression, Ridge

    def fit(table, y):
        if size.task == "regression":
            return Ridge(solver="sparse_cg").fit(table, y), lambda table: table
        return LogisticRegression(max_iter=100).fit(table, y), lambda table: table

    m = Binned(X, y, "onehot", fit)
    return m, m.strongest


def top(importances) -> np.ndarray:
    return np.argsort(-np.asarray(importances), kind="stable")[:N_TRUE]


# name: (label in the table, module to import before the clock starts, fit)
PEERS: dict[str, tuple[str, str, Callable]] = {
    "rbr": ("rbr, defaults", "rbr.estimators", lambda *args: fit_rbr(*args, limits=False)),
    "rbr-limits": ("rbr, limits", "rbr.estimators", lambda *args: fit_rbr(*args, limits=True)),
    "binning": ("rbr, binning alone", "rbr.estimators", bin_rbr),
    "lightgbm": ("LightGBM, 100 trees", "lightgbm", fit_lightgbm),
    "xgboost": ("XGBoost hist, 100 x 6", "xgboost", lambda *args: fit_xgboost(*args, 100)),
    "xgboost10": ("XGBoost hist, 10 x 6", "xgboost", lambda *args: fit_xgboost(*args, 10)),
    "hgb": ("HistGradientBoosting", "sklearn.ensemble", fit_hist_gradient_boosting),
    "glum": ("glum, 32 bins as categories", "glum", fit_glum),
    "one-hot": ("LogisticRegression or Ridge, 32 bins one-hot", "sklearn.linear_model", fit_one_hot),
    "ebm": ("EBM, interactions=0, outer_bags=4", "interpret.glassbox", fit_ebm),
}


# ---------------------------------------------------------------- one fit, in its own process


def resident(field: str) -> float:
    """Bytes of a field of /proc/self/status, NaN where there is none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return float("nan")
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith(field + ":")), float("nan"))


class Peak:
    """Context manager that measures the largest resident size within it, minus the resident size on entry.

    The kernel's own peak (VmHWM) is used where it can be reset; otherwise a thread polls, at some cost to the fit.
    """

    def __init__(self, mapped: bool):
        self.field = "RssAnon" if mapped else "VmRSS"

    def __enter__(self):
        self.before = self.most = resident(self.field)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        try:
            Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
            self.watches = self.field != "VmRSS"
        except OSError:
            self.watches = True
        if self.watches:
            self.thread.start()
        return self

    def _watch(self):
        while not self.over.wait(0.005):
            self.most = max(self.most, resident(self.field))

    def __exit__(self, *exception):
        self.over.set()
        if self.watches:
            self.thread.join()
        else:
            self.most = resident("VmHWM")
        self.bytes = self.most - self.before


def fit_one(size: Size, peer: str, jobs: int, folder: Path, memory: float) -> dict:
    """The measurements of one fit; called in a fresh process."""
    if sys.platform.startswith("linux") and memory:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (int(memory * 1e9),) * 2)
    warnings.simplefilter("ignore")
    _, module, fit = PEERS[peer]
    import_module(module)
    import_module("sklearn.preprocessing")
    X = np.load(folder / "X.npy", mmap_mode="r" if size.mapped else None)
    rest = np.load(folder / "y.npz")
    y, y_test, support = (rest[name] for name in ("y", "y_test", "support"))
    with Peak(size.mapped) as peak:
        wall, cpu = time.perf_counter(), time.process_time()
        model, features = fit(X, y, size, jobs)
        facts = {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    facts["peak"] = peak.bytes
    if features is not None and model is not None:
        chosen = np.asarray(features())
        facts["found"] = len(np.intersect1d(chosen, support))
        facts["used"] = len(chosen)
    if model is not None:
        facts["score"] = held_out_score(model, np.load(folder / "X_test.npy", mmap_mode="r"), y_test, size.task)
    return facts


def held_out_score(model, X, y, task: str) -> float:
    """R^2, or the area under the ROC curve."""
    from sklearn.metrics import r2_score, roc_auc_score

    if task == "regression":
        return float(r2_score(y, model.predict(X)))
    score = getattr(model, "predict_proba", None) or model.predict
    try:
        raw = np.asarray(score(X))
    except AttributeError:  # glum's predict is a probability
        raw = np.asarray(model.predict(X))
    return float(roc_auc_score(y, raw[:, -1] if raw.ndim == 2 else raw))


def in_own_process(size: Size, peer: str, options, folder: Path) -> dict:
    """`fit_one` in a child process, or a note of what went wrong."""
    threads = str(options.jobs)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    env |= {name: threads for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    command = [sys.executable, __file__, "--child", size.name, peer, threads, str(folder), str(options.memory)]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=options.limit + 120)
    except subprocess.TimeoutExpired:
        return {"note": f"more than {options.limit} s"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"ended with code {done.returncode}"])[-1]
        out_of_memory = "MemoryError" in done.stderr or "bad_alloc" in done.stderr or done.returncode < 0
        return {"note": f"more than {options.memory:g} GB" if out_of_memory else f"failed: {last[:120]}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


# ---------------------------------------------------------------- the run


def extrapolated(size: Size, results: dict, limit: float) -> float | None:
    """Seconds by the power law through 10^4 and 10^5 rows of the same columns, or None if within the limit."""
    known = {n: results.get(f"{n}x{size.n_features}", {}).get("ebm", {}).get("seconds") for n in (10**4, 10**5)}
    if size.n_rows <= 10**5 or None in known.values():
        return None
    exponent = np.log10(known[10**5] / known[10**4])
    seconds = float(known[10**5] * (size.n_rows / 10**5) ** exponent)
    return seconds if seconds > limit else None


def run(options) -> tuple[dict, list[str]]:
    """{size: {peer: facts}}, and notes."""
    notes, peers = [], []
    for peer in options.peers:
        package = PEERS[peer][1].partition(".")[0]
        if find_spec(package) is None:
            notes.append(f"{PEERS[peer][0]}: {package} is not installed, left out.")
        else:
            peers.append(peer)
    results: dict[str, dict[str, dict]] = {}
    for name in options.sizes:
        size = SIZES[name]
        facts = results[name] = {}
        with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
            draw(size, Path(folder))
            for repeat in range(options.repeats):
                for peer in peers:
                    if peer == "ebm" and "seconds" not in facts.get(peer, {}):
                        seconds = extrapolated(size, results, options.limit)
                        if seconds is not None:
                            facts[peer] = {"seconds": seconds, "extrapolated": True}
                    known = facts.get(peer, {})
                    if known.get("extrapolated") or "note" in known or (repeat and known["seconds"] > options.once):
                        continue  # a fit that failed would fail again, and one that takes minutes is run once
                    new = in_own_process(size, peer, options, Path(folder))
                    new["repeats"] = known.get("repeats", 0) + 1
                    if not known or new.get("seconds", np.inf) < known["seconds"]:
                        facts[peer] = {**new, "cpu": min(new.get("cpu", np.inf), known.get("cpu", np.inf))}
                    known = facts[peer]
                    known["repeats"] = new["repeats"]
                    said = known.get("note") or f"{known['seconds']:.2f} s"
                    print(f"{name} {PEERS[peer][0]}: {said}", file=sys.stderr, flush=True)
    return results, notes


def report(results: dict, notes: list[str], options) -> str:
    """The table in Markdown."""
    head = ["fit", "seconds", "times rbr, limits", "CPU s", "peak beyond input", "per entry", "score", "found", "note"]
    parts = [f"`python benches/peers.py {' '.join(options.arguments)}`, {options.jobs} threads."]
    for name, facts in results.items():
        size = SIZES[name]
        base = facts.get("rbr-limits", {}).get("seconds")
        lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        for peer, known in facts.items():
            seconds = known.get("seconds")
            note = known.get("note", "")
            if known.get("extrapolated"):
                note = "extrapolated from 10^4 and 10^5 rows"
            peak = known.get("peak")
            cells = [
                PEERS[peer][0],
                "" if seconds is None else f"{seconds:.2f}",
                "" if seconds is None or base is None else f"{seconds / base:.2f}",
                f"{known['cpu']:.2f}" if np.isfinite(known.get("cpu", np.inf)) else "",
                "" if peak is None else f"{peak / 1e9:.3f} GB",
                "" if peak is None else f"{peak / (size.n_rows * size.n_features):.2f} B",
                f"{known['score']:.4f}" if "score" in known else "",
                f"{known['found']} of {known['used']}" if "found" in known else "",
                note,
            ]
            lines.append("| " + " | ".join(cells) + " |")
        parts.append(f"**{size.describe()}**\n\n" + "\n".join(lines))
    parts.append(
        "Found: of the ten true features, among those used (rbr) or the ten most important (peers). Score: "
        "R^2 or area under the ROC curve on held-out rows."
    )
    return "\n\n".join([*parts, *notes]) + "\n"


def picture(results: dict, path: Path) -> None:
    """Seconds against rows, log-log, for 20 and for 100 columns."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 5), sharey=True)
    for axis, n_features in zip(axes, (20, 100), strict=True):
        for peer, (label, _, _) in PEERS.items():
            known = [
                (SIZES[name].n_rows, facts[peer]["seconds"])
                for name, facts in results.items()
                if SIZES[name].n_features == n_features and "seconds" in facts.get(peer, {})
            ]
            if known:
                own = label.startswith("rbr")
                axis.plot(*zip(*sorted(known), strict=True), "o-", label=label, linewidth=2.5 if own else 1)
        axis.set(xscale="log", yscale="log", xlabel="rows", title=f"{n_features} columns")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds of a fit")
    for axis in axes:
        if axis.lines:
            axis.legend(fontsize=7)
            break
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        name, peer, jobs, folder, memory = sys.argv[2:]
        print(json.dumps(fit_one(SIZES[name], peer, int(jobs), Path(folder), float(memory))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=[*SIZES], metavar="SIZE", help=f"of {', '.join(SIZES)}")
    parser.add_argument("--peers", nargs="+", choices=[*PEERS], default=[*PEERS], metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="threads of every fit")
    parser.add_argument("--limit", type=float, default=900, help="seconds that a fit may take")
    parser.add_argument("--once", type=float, default=60, help="a fit that takes longer is not repeated")
    parser.add_argument("--memory", type=float, default=16, help="gigabytes that a fit may allocate; 0 is no limit")
    parser.add_argument("--out", type=Path, default=None, help="folder for peers.json, peers.md and peers.png")
    parser.add_argument("--scratch", default=None, help="folder for the data, up to 4 GB at a time")
    parser.add_argument("--quick", action="store_true", help="two small tables, one repeat: does it run?")
    options = parser.parse_args()
    options.arguments = sys.argv[1:]
    if options.quick:
        options.repeats = 1
    if options.sizes is None:
        options.sizes = [name for name in SIZES if (name in QUICK) == options.quick]
    results, notes = run(options)
    text = report(results, notes, options)
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        sizes = {name: asdict(SIZES[name]) for name in results}
        facts = {"arguments": options.arguments, "jobs": options.jobs, "sizes": sizes, "results": results}
        (options.out / "peers.json").write_text(json.dumps({**facts, "notes": notes}, indent=1) + "\n")
        (options.out / "peers.md").write_text(text)
        if find_spec("matplotlib") is not None:
            picture(results, options.out / "peers.png")


if __name__ == "__main__":
    main()
