"""Predictions: rbr against LightGBM, XGBoost and scikit-learn, as ratios in one run.

    python benches/bench_predict.py [--rows 1000000] [--threads 1] [--repeats 5]

All models learn the same planted binary target on 20 features. Timed are the predicted probabilities of a float64 array
and of a single row: the best of the repeats, with each library on the same number of threads.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

N_FEATURES = 20


def make_data(n_rows: int, seed: int):
    """20 normal features, a smooth or stepped effect of each, and a label."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, N_FEATURES))
    effects = [np.sin(2 * X[:, j]) if j % 2 else np.sign(X[:, j] - 0.1 * j) for j in range(N_FEATURES)]
    score = 0.5 * np.sum(effects, axis=0)
    return X, (rng.random(n_rows) < 1 / (1 + np.exp(-score))).astype(np.int64)


def fit_rbr(X, y, shape):
    import rbr

    binner = rbr.Binner().fit(X)
    B = binner.transform(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        s = rbr.solve(B, y, loss="log_loss", constraints=rbr.Constraints(shape=shape, jump_cost=0.5), max_iter=60)
    return rbr.AdditiveModel.from_solution(binner, s, classes=[0, 1])


def best_time(call, repeats: int) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def time_of_one(call, repeats: int) -> float:
    return best_time(lambda: [call() for _ in range(200)], repeats) / 200


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    import lightgbm
    import xgboost
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    X_train, y_train = make_data(20_000, 0)
    X, y = make_data(options.rows, 1)
    threads = options.threads
    constant, mixed = (fit_rbr(X_train, y_train, shape) for shape in ("constant", "mixed"))
    gbm = lightgbm.LGBMClassifier(n_estimators=100, n_jobs=threads, verbose=-1).fit(X_train, y_train)
    xgb = xgboost.XGBClassifier(n_estimators=10, max_depth=6, n_jobs=threads).fit(X_train, y_train)
    linear = LogisticRegression().fit(X_train, y_train)

    calls = {
        f"rbr, {constant.n_pieces} constant pieces": lambda Z: constant.predict_proba(Z, n_jobs=threads),
        f"rbr, {mixed.n_pieces} pieces, constant or lines": lambda Z: mixed.predict_proba(Z, n_jobs=threads),
        "LightGBM, 100 trees": gbm.predict_proba,
        "XGBoost, 10 trees of depth 6": xgb.predict_proba,
        "LogisticRegression": linear.predict_proba,
    }
    many, one, auc = {}, {}, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, call in calls.items():
            auc[name] = roc_auc_score(y[:100_000], call(X[:100_000])[:, 1])
            many[name] = best_time(lambda call=call: call(X), options.repeats)
            one[name] = time_of_one(lambda call=call: call(X[:1]), options.repeats)
    print(f"{options.rows} x {N_FEATURES} float64, {threads} thread(s), best of {options.repeats}\n")
    print("| model | AUC | all rows, ms | times rbr with lines | one row, us | times rbr with lines |")
    print("|---|---|---|---|---|---|")
    reference = list(calls)[1]
    for name in calls:
        print(
            f"| {name} | {auc[name]:.4f} | {1e3 * many[name]:.1f} | {many[name] / many[reference]:.2f} "
            f"| {1e6 * one[name]:.1f} | {one[name] / one[reference]:.2f} |"
        )


if __name__ == "__main__":
    main()
