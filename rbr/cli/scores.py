"""How good a fitted estimator is: on rows of a file, or by cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from rbr._text import text_table
from rbr.cli.console import Console, Refusal
from rbr.cli.training import Training


def fit(estimator: Any, training: Training) -> Any:
    """The estimator, fitted to the rows."""
    return estimator.fit(training.X, training.y, sample_weight=training.weight, offset=training.offset)


def scores(estimator: Any, rows: Training) -> dict[str, float]:
    """What is usual for the target: AUC, log-loss and accuracy, or D^2 and errors in its units."""
    from sklearn import metrics

    X, y, weight = rows.X, rows.y, rows.weight
    if not rows.is_classes:
        predicted = estimator.predict(X, offset=rows.offset)
        name = "R^2" if estimator.model_.loss.name == "squared_error" else "D^2"
        return {
            name: estimator.score(X, y, sample_weight=weight, offset=rows.offset),
            "RMSE": float(metrics.root_mean_squared_error(y, predicted, sample_weight=weight)),
            "MAE": float(metrics.mean_absolute_error(y, predicted, sample_weight=weight)),
        }
    classes = estimator.model_.classes
    if unknown := sorted(set(y.tolist()) - set(classes.tolist())):
        raise Refusal(f"{rows.title} has the class {unknown[0]!r} of {rows.target.name!r}, which the fit did not have")
    probabilities = estimator.model_.predict_proba(X, offset=rows.offset)
    found = {}
    if len(classes) == 2 and len(np.unique(y)) == 2:
        found["AUC"] = float(metrics.roc_auc_score(y == classes[1], probabilities[:, 1], sample_weight=weight))
    found["log-loss"] = float(metrics.log_loss(y, probabilities, labels=classes, sample_weight=weight))
    predicted = classes[probabilities.argmax(axis=1)]
    found["accuracy"] = float(metrics.accuracy_score(y, predicted, sample_weight=weight))
    return found


def cross_validated(estimator: Any, training: Training, n_folds: int, seed: int, console: Console) -> list[dict]:
    """The scores of each fold by a fit to the others."""
    from sklearn.base import clone
    from sklearn.model_selection import KFold, StratifiedKFold

    rarest = int(np.unique(training.y, return_counts=True)[1].min()) if training.is_classes else training.n_rows
    if n_folds > rarest:
        what = "rows of the rarest class" if training.is_classes else "rows"
        raise Refusal(f"--cv is {n_folds}; it must be at most {rarest}, the number of {what}")
    folds = (StratifiedKFold if training.is_classes else KFold)(n_folds, shuffle=True, random_state=seed)
    found = []
    with console.progress(f"cross-validation, fold 1 of {n_folds}") as status:
        for k, (inner, outer) in enumerate(folds.split(np.zeros(training.n_rows), training.y)):
            status.what = f"cross-validation, fold {k + 1} of {n_folds}"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the fit to all rows says the same
                fitted = fit(clone(estimator), training.rows(inner))
                found.append(scores(fitted, training.rows(outer)))
    return found


def scores_text(by_rows: dict[str, Sequence[dict[str, float]]]) -> str:
    """A line of scores for each kind of rows; of several folds their mean and standard deviation."""
    names = list(next(iter(by_rows.values()))[0])
    rows = []
    for what, found in by_rows.items():
        cells = []
        for name in names:
            values = np.array([own.get(name, np.nan) for own in found])
            spread = f" ± {values.std(ddof=1):.2g}" if len(values) > 1 else ""
            cells.append(f"{values.mean():.4g}{spread}")
        rows.append((what, *cells))
    return text_table(("", *names), rows, (False, *[True] * len(names)))
