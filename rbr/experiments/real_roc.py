"""What the ROC curves on HR (item 5) and on Adult (item 6) have in common.

As in the paper, categories become one 0/1 column per level (missing values are a separate level), s_G = p, with 40
bins, 8 pieces and 80% of the rows for training; IHT and XGBoost see the same columns. Beyond the paper, our defaults,
LightGBM and an Explainable Boosting Machine see the table as it is.

Rules, fixed before measuring, on AUC over random splits, for RBR-PC and RBR-PL by Algorithm 1 with a searched step:
- "Only slightly worse than XGBoost" (10 trees of depth 6): at most 0.02 behind; partly: at most 0.05 behind, or only
  one of the two is at most 0.02 behind. (Being ahead holds too.)
- "Noticeably better than IHT": at least 0.02 ahead, and by two standard errors of the paired difference; partly: ahead
  by two standard errors, or only one of the two at least 0.02.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from rbr.baselines import IHTClassifier
from rbr.datasets import Table
from rbr.estimators import RBRClassifier
from rbr.experiments import paper_fit, peers, roc
from rbr.experiments.item import Claim, NotRun, Setting

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SLIGHT, FAR = 0.02, 0.05
NOTICEABLE = 0.02
QUICK_ROWS = 2500
RBR = ("RBR-PC, Algorithm 1", "RBR-PL, Algorithm 1")
COMPARED = ("XGBoost", "LightGBM", "EBM")


@dataclass(frozen=True)
class Reading:
    """How the paper reads a table: its continuous columns; all others are categories."""

    continuous: tuple[str, ...]
    note: str


def load_or_not_run(load, path) -> Table:
    """The table; raises NotRun with the loader's message if data or a package are missing."""
    try:
        return load(path)
    except (OSError, ImportError) as error:
        raise NotRun(str(error)) from error


def one_hot(frame: pd.DataFrame, continuous: Sequence[str]) -> np.ndarray:
    """The continuous columns, then a 0/1 column for each level of the others; missing values are a level."""
    import pandas as pd

    columns = [frame[name].to_numpy(np.float64) for name in continuous]
    for name in frame.columns.difference(list(continuous), sort=False):
        codes, levels = pd.factorize(frame[name], use_na_sentinel=False)
        columns += [(codes == k).astype(np.float64) for k in range(len(levels))]
    return np.column_stack(columns)


def compare(frame: pd.DataFrame, X: np.ndarray, y: np.ndarray, seed: int, with_peers: tuple[str, ...]) -> dict:
    """The ROC curve of every method on the held-out rows of one split. X is the frame with one-hot categories."""
    train, test = train_test_split(np.arange(len(y)), test_size=0.2, random_state=seed, stratify=y)
    found = _as_in_the_paper(X, y, train, test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = {"RBR, our defaults": RBRClassifier(random_state=seed, n_jobs=1)}
        if "LightGBM" in with_peers:
            models["LightGBM"] = peers.lightgbm_classifier(seed)
        if "EBM" in with_peers:
            models["EBM"] = peers.ebm_classifier(seed)
        for name, model in models.items():
            model.fit(frame.iloc[train], y[train])
            found[name] = roc.roc(y[test], model.predict_proba(frame.iloc[test])[:, 1])
        if "XGBoost" in with_peers:
            model = peers.xgboost_classifier().fit(X[train], y[train])
            found["XGBoost 10 x 6"] = roc.roc(y[test], model.predict_proba(X[test])[:, 1])
    return found


def _as_in_the_paper(X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> dict:
    """RBR and IHT with s_G = p."""
    binner, design = paper_fit.binned(X[train])
    _, test_design = paper_fit.binned(X[test], binner)
    found = {}
    for kind in paper_fit.SHAPES:
        one, _ = paper_fit.searched_algorithm1(design, y[train], kind, None, loss="log_loss")
        other = paper_fit.default_solver(design, y[train], kind, None, loss="log_loss")
        found[f"RBR-{kind}, Algorithm 1"] = roc.roc(y[test], paper_fit.scores(one, test_design))
        found[f"RBR-{kind}, default solver"] = roc.roc(y[test], paper_fit.scores(other, test_design))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        iht = IHTClassifier().fit(X[train], y[train])
    found["IHT"] = roc.roc(y[test], iht.decision_function(X[test]))
    return found


def measure_table(setting: Setting, table: Table, reading: Reading, number: int, n_splits: int) -> dict[str, Any]:
    """The ROC curves of all methods over random splits."""
    frame, y = table.data, table.target
    n_repeated = int(frame.assign(target=y).duplicated().sum())
    if setting.quick and len(y) > QUICK_ROWS:
        rows = np.sort(setting.rng(number).choice(len(y), QUICK_ROWS, replace=False))
        frame, y = frame.iloc[rows].reset_index(drop=True), y[rows]
    X = one_hot(frame, reading.continuous)
    # The bags of an Explainable Boosting Machine take longer than everything else in a quick run.
    wanted = setting.pick(COMPARED, ("XGBoost", "LightGBM"))
    with_peers = tuple(peer for peer in wanted if peers.installed(peer))
    splits = setting.map(compare, [(frame, X, y, 1000 * setting.seed + k, with_peers) for k in range(n_splits)])
    return {
        "n_rows": len(y),
        "n_columns": X.shape[1],
        "n_repeated": n_repeated,
        "n_rows_in_all": len(table.target),
        "methods": roc.collected(splits),
        "absent": [peer for peer in wanted if peer not in with_peers],
    }


def judge_table(numbers: dict[str, Any], reading: Reading, title: str) -> list[Claim]:
    methods = numbers["methods"]
    n_splits = len(methods["IHT"]["auc"])
    notes = (
        f"AUC on {title}, {n_splits} random splits 80/20 of {numbers['n_rows']} rows: {roc.all_aucs(methods)}. "
        f"{numbers['n_columns']} columns with categories one-hot; {reading.note} "
        f"{numbers['n_repeated']} of {numbers['n_rows_in_all']} rows repeat an earlier one; they are kept, as in the "
        "paper, and may have copies on both sides of a split. Our defaults, LightGBM and EBM see the table as it is; "
        "EBM has no pairs and 4 outer bags.",
        *peers.notes_on_absent(numbers["absent"]),
    )
    return [_against_xgboost(methods, title, notes), _against_iht(methods, title, notes)]


def _against_xgboost(methods: dict[str, Any], title: str, notes: tuple[str, ...]) -> Claim:
    paper = f"On {title} RBR is only slightly worse than XGBoost (10 trees, depth 6)"
    rival = "XGBoost 10 x 6"
    if rival not in methods:
        return Claim(paper, "nothing", "not run", notes)
    gaps = {one: roc.difference(methods, one, rival) for one in RBR}
    behind = [-mean for mean, _ in gaps.values()]
    holds = "yes" if max(behind) <= SLIGHT else "partly" if max(behind) <= FAR or min(behind) <= SLIGHT else "no"
    return Claim(paper, _gap_text(gaps, "XGBoost"), holds, notes)


def _against_iht(methods: dict[str, Any], title: str, notes: tuple[str, ...]) -> Claim:
    gaps = {one: roc.difference(methods, one, "IHT") for one in RBR}
    clear = [mean > 2 * error for mean, error in gaps.values()]
    noticeable = [is_clear and mean >= NOTICEABLE for is_clear, (mean, _) in zip(clear, gaps.values(), strict=True)]
    holds = "yes" if all(noticeable) else "partly" if all(clear) or any(noticeable) else "no"
    return Claim(f"On {title} RBR is noticeably better than IHT", _gap_text(gaps, "IHT"), holds, notes)


def _gap_text(gaps: dict[str, tuple[float, float]], rival: str) -> str:
    differences = ", ".join(f"{one.split(',')[0]} {mean:+.4f} ± {error:.4f}" for one, (mean, error) in gaps.items())
    return f"AUC less that of {rival}: {differences}"


def draw_table(numbers: dict[str, Any], figure: Figure, title: str, zoom: float) -> None:
    """The whole curves, and an enlargement of the corner where they differ."""
    figure.set_size_inches(11.0, 4.4)
    whole, corner = figure.subplots(1, 2)
    roc.draw_roc(whole, numbers["methods"], title)
    roc.draw_roc(corner, numbers["methods"], "Its upper left corner", zoom=zoom)
    roc.add_legend(figure, corner, len(numbers["methods"]["IHT"]["auc"]))
