"""ROC curves of several methods over several splits: averaged, compared in pairs, drawn with bands.

A curve is stored as its true positive rates on one fixed grid of false positive rates, so that curves can be averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.metrics import roc_auc_score, roc_curve

from rbr.experiments import look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Finer where the curves rise.
GRID = np.linspace(0.0, 1.0, 61) ** 2

STYLES = {
    "RBR-PC, Algorithm 1": {"color": look.VERMILION, "linestyle": "-"},
    "RBR-PL, Algorithm 1": {"color": look.BLUE, "linestyle": "-"},
    "RBR-PC, default solver": {"color": look.VERMILION, "linestyle": ":"},
    "RBR-PL, default solver": {"color": look.BLUE, "linestyle": ":"},
    "RBR, our defaults": {"color": look.SKY, "linestyle": "-"},
    "IHT": {"color": look.BLACK, "linestyle": "--"},
    "XGBoost 10 x 6": {"color": look.ORANGE, "linestyle": "-."},
    "XGBoost 100 x 6": {"color": look.ORANGE, "linestyle": ":"},
    "LightGBM": {"color": look.PURPLE, "linestyle": "-."},
    "EBM": {"color": look.GREEN, "linestyle": "--"},
}


def roc(y, score) -> dict[str, Any]:
    """The area under the curve, and the curve on GRID."""
    false_positives, true_positives, _ = roc_curve(y, score)
    return {"auc": float(roc_auc_score(y, score)), "tpr": np.interp(GRID, false_positives, true_positives)}


def collected(splits: Sequence[Mapping[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """For every method its AUC in each split, its mean curve, and the standard error of the mean curve."""
    found = {}
    for name in splits[0]:
        mean, error = look.mean_and_error([split[name]["tpr"] for split in splits])
        found[name] = {
            "auc": [round(split[name]["auc"], 5) for split in splits],
            "tpr": look.rounded(mean),
            "tpr_error": look.rounded(error),
        }
    return found


def difference(methods: Mapping[str, dict[str, Any]], one: str, other: str) -> tuple[float, float]:
    """By how much the AUC of one exceeds that of the other: the mean over the splits and its standard error."""
    mean, error = look.mean_and_error(np.subtract(methods[one]["auc"], methods[other]["auc"]))
    return float(mean), float(error)


def all_aucs(methods: Mapping[str, dict[str, Any]]) -> str:
    """Every method with its AUC, best first."""
    order = sorted(methods, key=lambda name: -np.mean(methods[name]["auc"]))
    return ", ".join(f"{name} {look.plus_minus(methods[name]['auc'], 4)}" for name in order)


def draw_roc(axes: Axes, methods: Mapping[str, dict[str, Any]], title: str, *, zoom: float | None = None) -> None:
    """The mean curves with bands of one standard error; `zoom` is the share of both axes to show, at the upper left."""
    order = sorted(methods, key=lambda name: -np.mean(methods[name]["auc"]))
    for name in order:
        entry = methods[name]
        label = f"{name}: {look.plus_minus(entry['auc'], 3)}"
        look.line_with_band(axes, GRID, entry["tpr"], entry["tpr_error"], label, linewidth=1.6, **STYLES[name])
    axes.plot([0, 1], [0, 1], color="#b0b7be", linewidth=0.7, zorder=0)
    axes.set_xlim(-0.01, zoom or 1.01)
    axes.set_ylim(1 - zoom if zoom else -0.01, 1.01)
    axes.set_box_aspect(1)
    look.tidy(axes, title, "false positive rate", "true positive rate")


def add_legend(figure: Figure, axes: Axes, n_splits: int) -> None:
    """A legend beside the curves: with ten methods there is no room inside the axes."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        title=f"AUC, mean and standard error\nof {n_splits} splits",
        fontsize=look.TICK_SIZE,
        title_fontsize=look.TICK_SIZE,
        frameon=False,
        loc="outside right center",
        alignment="left",
    )
