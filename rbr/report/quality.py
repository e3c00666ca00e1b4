"""How well a model predicts rows with known targets: numbers and curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rbr.model.scoring import Scorer
from rbr.report.content import plain
from rbr.report.rows import Rows

if TYPE_CHECKING:
    from rbr.model import AdditiveModel

N_GROUPS = 10
MOST_POINTS = 200
MOST_RESIDUALS = 1000


def quality_content(model: AdditiveModel, rows: Rows | None) -> dict[str, Any] | None:
    """Scores and curves of the given rows; None without a target."""
    if rows is None or rows.y is None or not (rows.weight > 0).any():
        return None
    scores = np.empty((rows.n_rows, model.n_outputs))
    scores[:] = model.intercept
    Scorer(model.terms, model.n_outputs).add_table(rows.table, scores, None)
    if rows.offset is not None:
        scores += rows.offset
    used = rows.weight > 0
    scores, y, v = scores[used], rows.y[used], rows.weight[used] / rows.weight.sum()
    z = scores if model.n_outputs > 1 else scores[:, 0]
    target = y if model.loss.link == "softmax" else y.astype(np.float64)
    loss = ("mean loss", float(model.loss.value(target, z, v)))
    prediction = model.loss.inverse_link(z)
    if model.loss.link == "logit":
        found = _two_classes(y, prediction, v)
    elif model.loss.link == "softmax":
        found = _classes(y, prediction, v)
    else:
        found = _numbers(y, prediction, v)
    found["scores"] = [[name, plain(value)] for name, value in [*found["scores"], loss]]
    return {"n_rows": int(used.sum()), **found}


def _two_classes(y: np.ndarray, p: np.ndarray, v: np.ndarray) -> dict[str, Any]:
    from sklearn.metrics import roc_auc_score

    has_both = len(np.unique(y)) == 2
    auc = float(roc_auc_score(y, p, sample_weight=v)) if has_both else np.nan
    scores = [("AUC", auc), ("accuracy", float(v @ ((p > 0.5) == y))), ("Brier score", float(v @ (p - y) ** 2))]
    curves = {"roc": [_roc(y, p, v, auc)], "gains": _gains(y, p, v)} if has_both else {}
    return {"kind": "classes", "scores": scores, "calibration": [_calibration(y, p, v)], **curves}


def _classes(y: np.ndarray, p: np.ndarray, v: np.ndarray) -> dict[str, Any]:
    from sklearn.metrics import roc_auc_score

    curves, calibration = [], []
    for k in range(p.shape[1]):
        own = (y == k).astype(np.float64)
        calibration.append(_calibration(own, p[:, k], v))
        if 0 < own.sum() < len(own):
            curves.append({**_roc(own, p[:, k], v, float(roc_auc_score(own, p[:, k], sample_weight=v))), "class": k})
    confusion = np.zeros((p.shape[1], p.shape[1]))
    np.add.at(confusion, (y, p.argmax(axis=1)), v)
    scores = [("accuracy", float(np.trace(confusion)))]
    if curves:
        scores.append(("mean AUC", float(np.mean([curve["auc"] for curve in curves]))))
    return {
        "kind": "classes",
        "scores": scores,
        "calibration": calibration,
        "roc": curves,
        "confusion": plain(confusion * len(y)),
    }


def _numbers(y: np.ndarray, prediction: np.ndarray, v: np.ndarray) -> dict[str, Any]:
    residual = y - prediction
    spread = float(v @ (y - v @ y) ** 2)
    scores = [
        ("R²", 1 - float(v @ residual**2) / spread if spread > 0 else np.nan),
        ("RMSE", float(np.sqrt(v @ residual**2))),
        ("mean |error|", float(v @ np.abs(residual))),
    ]
    shown = np.arange(len(y))
    if len(y) > MOST_RESIDUALS:
        shown = np.sort(np.random.default_rng(0).choice(len(y), MOST_RESIDUALS, replace=False))
    groups = _groups(prediction, v)
    curves = {"gains": _gains(y, prediction, v)} if (y >= 0).all() and y.any() else {}
    return {
        "kind": "numbers",
        "scores": scores,
        "calibration": [_calibration(y, prediction, v)],
        "residuals": {
            "predicted": plain(prediction[shown]),
            "residual": plain(residual[shown]),
            "group_predicted": [plain(_mean(prediction, v, g)) for g in groups],
            "group_residual": [plain(_mean(residual, v, g)) for g in groups],
        },
        **curves,
    }


def _mean(values: np.ndarray, v: np.ndarray, rows: np.ndarray) -> float:
    return float(v[rows] @ values[rows] / v[rows].sum())


def _groups(prediction: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
    """The rows in groups of about equal weight, by their prediction; equal predictions stay together."""
    order = np.argsort(prediction, kind="stable")
    ranks = np.cumsum(v[order]) - v[order] / 2
    group = np.minimum((N_GROUPS * ranks).astype(np.int64), N_GROUPS - 1)
    _, first, inverse = np.unique(prediction[order], return_index=True, return_inverse=True)
    group = group[first][inverse]
    return [order[group == g] for g in np.unique(group)]


def _calibration(y: np.ndarray, prediction: np.ndarray, v: np.ndarray) -> dict[str, Any]:
    """Of each group of rows the mean prediction, what was observed, and the standard error of that."""
    groups = _groups(prediction, v)
    observed = [_mean(y, v, g) for g in groups]
    errors = []
    for g, mean in zip(groups, observed, strict=True):
        n_effective = v[g].sum() ** 2 / (v[g] ** 2).sum()
        errors.append(np.sqrt(_mean((y - mean) ** 2, v, g) / max(n_effective - 1, 1)))
    return {
        "predicted": plain([_mean(prediction, v, g) for g in groups]),
        "observed": plain(observed),
        "error": plain(errors),
        "rows": [len(g) for g in groups],
    }


def _thinned(n: int) -> np.ndarray:
    return np.unique(np.linspace(0, n - 1, min(n, MOST_POINTS)).round().astype(np.int64))


def _roc(y: np.ndarray, p: np.ndarray, v: np.ndarray, auc: float) -> dict[str, Any]:
    from sklearn.metrics import roc_curve

    false, true, _ = roc_curve(y, p, sample_weight=v)
    kept = _thinned(len(false))
    return {"false": plain(false[kept]), "true": plain(true[kept]), "auc": auc}


def _gains(y: np.ndarray, prediction: np.ndarray, v: np.ndarray) -> dict[str, Any]:
    """The share of the target in the rows of the largest predictions, beside the share of those rows."""
    order = np.argsort(-prediction, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(prediction[order])), len(order) - 1)
    kept = ends[_thinned(len(ends))]
    share, captured = np.cumsum(v[order]), np.cumsum((v * y)[order])
    return {"rows": plain([0.0, *share[kept]]), "captured": plain([0.0, *(captured[kept] / captured[-1])])}
