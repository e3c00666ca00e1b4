"""Item 4: ROC curves on planted labels.

The planted data of item 2, n = 2000 and p = 100, with the label 1 where the sum of the functions exceeds its median;
80% of the rows are used for training. RBR and IHT are given s_G = 10. XGBoost has the paper's 10 trees of depth 6 and,
beyond the paper, 100 of them.

Rule, fixed before measuring. "Substantially better" means an AUC larger by at least 0.03, and by two standard errors of
the paired difference. Yes if RBR-PC and RBR-PL, by Algorithm 1 with a searched step, are substantially better than IHT
and than XGBoost 10 x 6; partly if all four differences exceed two standard errors.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from rbr.baselines import IHTClassifier
from rbr.datasets import make_planted
from rbr.experiments import paper_fit, peers, roc
from rbr.experiments.item import Claim, Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

N_ROWS, N_FEATURES, N_PLANTED = 2000, 100, 10
SUBSTANTIAL = 0.03
RBR = ("RBR-PC, Algorithm 1", "RBR-PL, Algorithm 1")


def compare(seed: list[int], n_rows: int, n_features: int, n_planted: int, with_xgboost: bool) -> dict[str, Any]:
    """The ROC curve of every method on the held-out rows of one draw and one split."""
    rng = np.random.default_rng(seed)
    data = make_planted(n_rows, n_features, n_planted, task="classification", random_state=rng)
    split = train_test_split(data.X, data.y, test_size=0.2, random_state=int(rng.integers(2**31)))
    X_train, X_test, y_train, y_test = split
    binner, design = paper_fit.binned(X_train)
    _, test_design = paper_fit.binned(X_test, binner)
    found = {}
    for kind in paper_fit.SHAPES:
        one, _ = paper_fit.searched_algorithm1(design, y_train, kind, n_planted, loss="log_loss")
        other = paper_fit.default_solver(design, y_train, kind, n_planted, loss="log_loss")
        found[f"RBR-{kind}, Algorithm 1"] = roc.roc(y_test, paper_fit.scores(one, test_design))
        found[f"RBR-{kind}, default solver"] = roc.roc(y_test, paper_fit.scores(other, test_design))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        iht = IHTClassifier(max_features=n_planted).fit(X_train, y_train)
    found["IHT"] = roc.roc(y_test, iht.decision_function(X_test))
    for n_trees in (10, 100) if with_xgboost else ():
        model = peers.xgboost_classifier(n_trees).fit(X_train, y_train)
        found[f"XGBoost {n_trees} x 6"] = roc.roc(y_test, model.predict_proba(X_test)[:, 1])
    return found


def measure(setting: Setting) -> dict[str, Any]:
    n_draws = setting.pick(20, 3)
    with_xgboost = peers.installed("XGBoost")
    tasks = [([setting.seed, 4, k], N_ROWS, N_FEATURES, N_PLANTED, with_xgboost) for k in range(n_draws)]
    return {
        "methods": roc.collected(setting.map(compare, tasks)),
        "absent": [] if with_xgboost else ["XGBoost"],
    }


def judge(numbers: dict[str, Any]) -> list[Claim]:
    methods = numbers["methods"]
    rivals = [name for name in ("IHT", "XGBoost 10 x 6") if name in methods]
    gaps = {(one, rival): roc.difference(methods, one, rival) for one in RBR for rival in rivals}
    clear = all(mean > 2 * error for mean, error in gaps.values())
    substantial = clear and all(mean >= SUBSTANTIAL for mean, _ in gaps.values())
    notes = (
        f"AUC over {len(methods['IHT']['auc'])} draws: {roc.all_aucs(methods)}. Ten trees are few: XGBoost with 100 is "
        f"beyond the paper. Algorithm 1 with the best of {paper_fit.HALVINGS + 1} fixed steps by training loss.",
        *peers.notes_on_absent(numbers["absent"]),
    )
    return [
        Claim(
            "On planted labels RBR-PC and RBR-PL are substantially better than "
            + ("IHT and XGBoost (10 trees, depth 6)" if len(rivals) == 2 else "IHT"),
            "AUC larger by "
            + ", ".join(
                f"{mean:.3f} ± {error:.3f} ({one.split(',')[0]} over {rival})"
                for (one, rival), (mean, error) in gaps.items()
            ),
            "yes" if substantial else "partly" if clear else "no",
            notes,
        )
    ]


def draw(numbers: dict[str, Any], figure: Figure) -> None:
    figure.set_size_inches(7.6, 4.6)
    axes = figure.subplots()
    roc.draw_roc(axes, numbers["methods"], "Planted labels, s_G = 10 of 100 features")
    roc.add_legend(figure, axes, len(numbers["methods"]["IHT"]["auc"]))
