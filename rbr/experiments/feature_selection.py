"""Item 3: how many of the planted features are found, against the number of rows.

Planted data without noise, p = 100; every method is given s_G = 10. RBR uses constant (PC) or linear (PL) pieces, 40
bins and 8 pieces, with three solvers: Algorithm 1 with mu = 1, Algorithm 1 with a fixed step found by line search, and
the default solver. It is compared with iterative hard thresholding (IHT) and, beyond the paper, with a group lasso on
the same bins and with LightGBM's gains.

Rules, fixed before measuring. RBR is Algorithm 1 with the searched step, since the paper tunes by line search, and a
"yes" needs both PC and PL.
- Improves with the rows: the mean share found at the largest n exceeds that at the smallest by two standard errors, for
  PC, PL and IHT. Partly: for some of the three.
- Generally better than IHT: a larger mean at 8 of 10 sizes. Partly: at more than half of them, for PC or PL.
- 8 of 10 from n = 1400 on: a mean of at least 0.8 less one standard error at each of these sizes. Partly: for PC or PL.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from rbr.baselines import IHTRegressor
from rbr.datasets import make_planted
from rbr.experiments import look, paper_fit, peers
from rbr.experiments.item import Claim, Setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

N_FEATURES, N_PLANTED = 100, 10
N_PROMISED, SHARE_PROMISED = 1400, 0.8
GENERALLY = 0.8
RBR = ("PC, searched step", "PL, searched step")
UNIT_STEP = ("PC, mu = 1", "PL, mu = 1")
STYLES = {
    "PC, searched step": {"color": look.VERMILION, "marker": "o"},
    "PL, searched step": {"color": look.BLUE, "marker": "s"},
    "PC, mu = 1": {"color": look.VERMILION, "marker": "o", "linestyle": ":", "markerfacecolor": "white"},
    "PL, mu = 1": {"color": look.BLUE, "marker": "s", "linestyle": ":", "markerfacecolor": "white"},
    "PC, default solver": {"color": look.VERMILION, "marker": "o"},
    "PL, default solver": {"color": look.BLUE, "marker": "s"},
    "IHT": {"color": look.BLACK, "marker": "^", "linestyle": "--"},
    "group lasso": {"color": look.GREEN, "marker": "v", "linestyle": "-."},
    "LightGBM": {"color": look.PURPLE, "marker": "D", "linestyle": "-."},
}
PANELS = {
    "The paper's comparison: Algorithm 1 and IHT": (*RBR, *UNIT_STEP, "IHT"),
    "Beyond it: the default solver and others": (
        "PC, default solver",
        "PL, default solver",
        "IHT",
        "group lasso",
        "LightGBM",
    ),
}


def select(seed: list[int], n_rows: int, n_features: int, n_planted: int, with_peers: tuple[str, ...]):
    """One draw: the share of the planted features that each method finds, and whether mu = 1 diverged."""
    data = make_planted(n_rows, n_features, n_planted, random_state=np.random.default_rng(seed))
    _, design = paper_fit.binned(data.X)
    selected, diverged = {}, {}
    for kind in paper_fit.SHAPES:
        unit = paper_fit.algorithm1(design, data.y, kind, n_planted)
        searched, _ = paper_fit.searched_algorithm1(design, data.y, kind, n_planted)
        selected[f"{kind}, mu = 1"] = unit.support
        selected[f"{kind}, searched step"] = searched.support
        selected[f"{kind}, default solver"] = paper_fit.default_solver(design, data.y, kind, n_planted).support
        diverged[f"{kind}, mu = 1"] = paper_fit.has_diverged(unit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        selected["IHT"] = IHTRegressor(max_features=n_planted).fit(data.X, data.y).support_
    if "group lasso" in with_peers:
        selected["group lasso"] = peers.group_lasso_selection(design, data.y, n_planted)
    if "LightGBM" in with_peers:
        selected["LightGBM"] = peers.lightgbm_selection(data.X, data.y, n_planted, seed=0)
    planted = set(data.support.tolist())
    shares = {name: len(planted & {int(j) for j in found}) / n_planted for name, found in selected.items()}
    return shares, diverged


def measure(setting: Setting) -> dict[str, Any]:
    sizes = setting.pick(list(range(200, 2001, 200)), [400, 2000])
    n_draws = setting.pick(20, 2)
    # Compiling skglm's loops takes longer than everything else in a quick run.
    wanted = setting.pick(("group lasso", "LightGBM"), ("LightGBM",))
    with_peers = tuple(peer for peer in wanted if peers.installed(peer))
    results = setting.map(
        select,
        [([setting.seed, 3, k], n, N_FEATURES, N_PLANTED, with_peers) for n in sizes for k in range(n_draws)],
    )
    by_size = [results[i * n_draws : (i + 1) * n_draws] for i in range(len(sizes))]
    return {
        "n_rows": sizes,
        "absent": [peer for peer in wanted if peer not in with_peers],
        "share_found": {name: [[shares[name] for shares, _ in draws] for draws in by_size] for name in results[0][0]},
        "share_diverged": {
            name: [float(np.mean([diverged[name] for _, diverged in draws])) for draws in by_size]
            for name in results[0][1]
        },
    }


def judge(numbers: dict[str, Any]) -> list[Claim]:
    sizes = np.array(numbers["n_rows"])
    found = {name: look.mean_and_error(shares, axis=1) for name, shares in numbers["share_found"].items()}
    n_draws = len(numbers["share_found"]["IHT"][0])

    def at(name: str, i: int) -> str:
        return f"{found[name][0][i]:.2f} ± {found[name][1][i]:.2f}"

    improved = {
        name: found[name][0][-1] - found[name][0][0] > 2 * np.hypot(found[name][1][-1], found[name][1][0])
        for name in (*RBR, "IHT")
    }
    share_better = {name: float(np.mean(found[name][0] > found["IHT"][0])) for name in RBR}
    large = sizes >= N_PROMISED
    promised = {name: bool((found[name][0] >= SHARE_PROMISED - found[name][1])[large].all()) for name in RBR}
    others = [name for name in numbers["share_found"] if name not in (*RBR, "IHT")]
    divergence = "; ".join(
        f"{name}: " + ", ".join(f"{share:.0%} at n = {n}" for n, share in zip(sizes, shares, strict=True) if share)
        for name, shares in numbers["share_diverged"].items()
    )
    notes = (
        f"Share of the planted features found, mean and standard error over {n_draws} draws; RBR is Algorithm 1 with "
        f"the best of {paper_fit.HALVINGS + 1} fixed steps (1, 1/2, 1/4, …) by training loss. At n = {sizes[-1]} also: "
        + ", ".join(f"{name} {at(name, -1)}" for name in others)
        + ".",
        f"Algorithm 1 with mu = 1 ends above the loss it began with in these shares of the draws: {divergence}."
        if any(map(any, numbers["share_diverged"].values()))
        else "Algorithm 1 with mu = 1 never diverged.",
        *peers.notes_on_absent(numbers["absent"]),
    )
    first, last = (
        ", ".join(f"{name.replace(', searched step', '')} {at(name, i)}" for name in (*RBR, "IHT")) for i in (0, -1)
    )
    return [
        Claim(
            "With more rows both RBR and IHT find more of the ten planted features",
            f"n = {sizes[0]}: {first}; n = {sizes[-1]}: {last}",
            "yes" if all(improved.values()) else "partly" if any(improved.values()) else "no",
            notes,
        ),
        Claim(
            "RBR generally finds more of them than IHT does",
            "; ".join(
                f"{name.replace(', searched step', '')} finds more on average at {share:.0%} of the "
                f"{len(sizes)} sizes n, and {np.mean(found[name][0] - found['IHT'][0]):+.2f} in the mean over sizes"
                for name, share in share_better.items()
            )
            + "".join(
                f"; {name} at {np.mean(found[name][0] > found['IHT'][0]):.0%}" for name in UNIT_STEP if name in found
            ),
            "yes"
            if min(share_better.values()) >= GENERALLY
            else "partly"
            if max(share_better.values()) > 0.5
            else "no",
            notes,
        ),
        Claim(
            f"From n = {N_PROMISED} on, RBR finds 8 of the 10 on average",
            "; ".join(
                f"{name.replace(', searched step', '')} "
                + ", ".join(f"{at(name, i)} at n = {sizes[i]}" for i in np.flatnonzero(large))
                for name in RBR
            ),
            "yes" if all(promised.values()) else "partly" if any(promised.values()) else "no",
            notes,
        ),
    ]


def draw(numbers: dict[str, Any], figure: Figure) -> None:
    figure.set_size_inches(10.0, 4.6)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (title, names) in zip(panels, PANELS.items(), strict=True):
        _draw_panel(axes, title, names, numbers)
    panels[0].set_ylabel("share of the planted features found", fontsize=look.LABEL_SIZE)


def _draw_panel(axes: Axes, title: str, names, numbers: dict[str, Any]) -> None:
    for name in names:
        if name in numbers["share_found"]:
            mean, error = look.mean_and_error(numbers["share_found"][name], axis=1)
            look.line_with_band(
                axes, numbers["n_rows"], mean, error, name, linewidth=1.6, markersize=4.5, **STYLES[name]
            )
    axes.axhline(SHARE_PROMISED, color=look.BLACK, linewidth=0.7, linestyle=(0, (1, 3)))
    axes.set_ylim(0, 1.02)
    axes.set_xticks(numbers["n_rows"] if len(numbers["n_rows"]) < 6 else numbers["n_rows"][1::2])
    look.tidy(axes, title, "rows n")
    axes.legend(fontsize=look.TICK_SIZE, frameon=False, loc="lower right")
