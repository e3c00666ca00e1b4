"""Other libraries that the experiments compare with. Each is optional: if one is missing, a footnote says so."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from importlib.util import find_spec

import numpy as np

# Name in a legend -> (module to import, package to install).
PEERS = {
    "XGBoost": ("xgboost", "xgboost"),
    "LightGBM": ("lightgbm", "lightgbm"),
    "EBM": ("interpret", "interpret-core"),
    "group lasso": ("skglm", "skglm"),
}


def installed(peer: str) -> bool:
    """Whether the library behind a name of PEERS can be imported."""
    return find_spec(PEERS[peer][0]) is not None


def notes_on_absent(peers: Iterable[str]) -> tuple[str, ...]:
    """A footnote for each peer that is not installed."""
    return tuple(f"{peer} is not in the comparison: {PEERS[peer][1]} is not installed." for peer in peers)


def xgboost_classifier(n_trees: int = 10, max_depth: int = 6):
    """Gradient boosted trees by XGBoost; the defaults here are those of the paper, the rest XGBoost's own."""
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=n_trees, max_depth=max_depth, n_jobs=1)


def lightgbm_classifier(seed: int):
    """LightGBM with its defaults."""
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_jobs=1, verbose=-1, random_state=seed)


def ebm_classifier(seed: int):
    """An Explainable Boosting Machine without pairs, so that it is additive like the models it is compared with.

    It has 4 bags instead of its default of 14, which take three minutes on Adult for about the same curve.
    """
    from interpret.glassbox import ExplainableBoostingClassifier

    return ExplainableBoostingClassifier(interactions=0, outer_bags=4, n_jobs=1, random_state=seed)


def lightgbm_selection(X, y, n_selected: int, seed: int) -> list[int]:
    """The features with the largest total gain in LightGBM's default regression."""
    from lightgbm import LGBMRegressor

    model = LGBMRegressor(n_jobs=1, verbose=-1, importance_type="gain", random_state=seed).fit(X, y)
    return np.argsort(-model.feature_importances_, kind="stable")[:n_selected].tolist()


def group_lasso_selection(design, y, n_selected: int, shrinkage: float = 0.85) -> list[int]:
    """The groups that a group lasso on the bins uses, at the first penalty of a falling path that gives n_selected.

    If that penalty gives more, those with the largest norms are kept.
    """
    from skglm import GroupLasso

    X = design.tocsr(scaled=True).tocsc()
    y = y - y.mean()
    blocks = list(zip(design.offsets[:-1].tolist(), design.offsets[1:].tolist(), strict=True))

    def norms(vector):
        return np.array([np.linalg.norm(vector[first:last]) for first, last in blocks])

    model = GroupLasso(
        groups=[last - first for first, last in blocks],
        alpha=norms(X.T @ y).max() / len(y),
        fit_intercept=False,
        warm_start=True,
    )
    with warnings.catch_warnings():
        # Earlier penalties on the path need not converge.
        warnings.simplefilter("ignore")
        used = np.zeros(len(blocks))
        while np.count_nonzero(used) < min(n_selected, len(blocks)):
            model.alpha *= shrinkage
            used = norms(model.fit(X, y).coef_)
    return np.argsort(-used, kind="stable")[:n_selected].tolist()
