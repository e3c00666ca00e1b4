"""Item 9. How many rows Algorithm 1 needs (paper, theorem 3.4: n0 = c s_L s_G log p_bin).

Runs are without noise: y = X_bin beta_true with beta_true a random unit vector of C with s_G blocks of equal norm. A
run succeeds if it ends with exactly the true features and an error of at most 1%. The share of successes is mapped over
(n, s_G) and (n, s_L), and over fewer sizes of (n, p), for both binnings. The transition is the n at which half of the
runs succeed, interpolated in log n between the measured n.

Rules, fixed before measuring, for each binning over all sizes of the three maps.
- The transition follows s_L s_G log p_bin: its exponent is 1 by the rule of rbr.experiments.scaling, and the maps
  collapse: transition / (s_L s_G log p_bin) varies by at most a factor 2. "yes" if both hold; "partly" if one does or
  if the exponent only has the right sign; else "no".
- That many rows suffice (an upper bound; added after the first run, from the same maps): let n95 be the smallest
  measured n from which on at least 95% of the runs succeed. "yes" if all sizes have one and its exponent in s_L s_G
  log p_bin is at most 1, up to the margin; else "no".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rbr import theory
from rbr.experiments.gradient_correlation import cone_of
from rbr.experiments.item import Claim, Setting
from rbr.experiments.scaling import (
    BINNING_STYLES,
    MARGIN,
    draw_reference,
    fit_power_law,
    label,
    log_scale,
    told,
    verdict,
)
from rbr.plotting.panels import TRUE_COLOR

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL_ERROR, N_STEPS, STILL = 0.01, 120, 1e-6
WIDEST_RATIO, ENOUGH = 2.0, 0.95
AXES = {"s_G": "features used, s_G", "s_L": "pieces of a table, s_L", "p": "features, p"}
MARKERS = {"s_G": "o", "s_L": "s", "p": "^"}


def measure(setting: Setting) -> dict:
    base = {"p": 40, "b": 16, "s_G": 3, "s_L": 3}
    varied = setting.pick(
        {"s_G": [1, 2, 3, 4, 6, 8, 12], "s_L": [2, 3, 4, 6, 8, 12], "p": [10, 40, 160]},
        {"s_G": [1, 3, 8], "s_L": [2, 4, 8], "p": [20, 80]},
    )
    rows = setting.pick([16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768], [16, 32, 64, 128, 256, 512])
    n_runs = setting.pick(30, 6)
    binnings = setting.pick(list(BINNING_STYLES), ["regular"])
    maps = [(binning, name, value) for binning in binnings for name, values in varied.items() for value in values]
    tasks = [
        (binning, {**base, name: value}, rows, n_runs, setting.rng(9, i))
        for i, (binning, name, value) in enumerate(maps)
    ]
    lines = [
        {"binning": binning, "varied": name, "value": value, **line}
        for (binning, name, value), line in zip(maps, setting.map(_one_line, tasks), strict=True)
    ]
    return {"rows": rows, "n_runs": n_runs, "base": base, "lines": lines}


def _one_line(binning: str, size: dict, rows: list[int], n_runs: int, rng) -> dict:
    cone = cone_of(**size)
    shares = [float(np.mean([_succeeds(binning, n, cone, rng) for _ in range(n_runs)])) for n in rows]
    return {"scale": theory.sample_scale(cone), "shares": shares, "transition": transition(rows, shares)}


def _succeeds(binning: str, n: int, cone: theory.Cone, rng) -> bool:
    design, truth = theory.random_design(n, cone.n_bins, binning, rng), cone.draw(rng)
    previous = None
    for beta in theory.iterate(design, design.tocsr() @ truth, cone, N_STEPS):
        if previous is not None and np.linalg.norm(beta - previous) <= STILL:
            break
        previous = beta
    same = np.array_equal(cone.block_norms(beta) > 0, cone.block_norms(truth) > 0)
    return bool(same and np.linalg.norm(beta - truth) <= SMALL_ERROR)


def transition(rows: list[int], shares: list[float]) -> float | None:
    """The n at which half of the runs succeed; None if the measured n do not enclose it.

    Examples
    --------
    >>> round(transition([10, 1000, 5000], [0.0, 1.0, 1.0]), 6)
    100.0
    >>> transition([10, 100], [0.0, 0.4])
    """
    rising = np.maximum.accumulate(shares)
    above = np.flatnonzero(rising >= 0.5)
    if not len(above) or above[0] == 0:
        return None
    high = above[0]
    part = (0.5 - rising[high - 1]) / (rising[high] - rising[high - 1])
    return float(np.exp(np.log(rows[high - 1]) + part * np.log(rows[high] / rows[high - 1])))


def judge(numbers: dict) -> list[Claim]:
    claims = []
    for binning in _binnings(numbers):
        lines = _with_transition(numbers, binning)
        law = fit_power_law([line["scale"] for line in lines], [line["transition"] for line in lines])
        ratios = [line["transition"] / line["scale"] for line in lines]
        spread = max(ratios) / min(ratios)
        by_exponent = verdict(law["exponent"], 1.0)
        if by_exponent == "yes" and spread <= WIDEST_RATIO:
            holds = "yes"
        else:
            holds = "partly" if by_exponent != "no" or spread <= WIDEST_RATIO else "no"
        alone = {
            name: fit_power_law(*zip(*((line["scale"], line["transition"]) for line in chosen), strict=True))
            for name in AXES
            if len(chosen := [line for line in lines if line["varied"] == name]) > 1
        }
        every_line = [line for line in numbers["lines"] if line["binning"] == binning]
        enough = [enough_rows(numbers["rows"], line["shares"]) for line in every_line]
        scales = [line["scale"] for line in every_line]
        claims.append(_sufficiency(binning, scales, enough))
        claims.append(
            Claim(
                f"The rows needed follow s_L s_G log p_bin, {binning} binning (theorem 3.4, near-minimal)",
                f"half of the runs succeed at n = {np.exp(np.mean(np.log(ratios))):.2f} s_L s_G log p_bin, "
                f"{min(ratios):.2f} to {max(ratios):.2f} over {len(lines)} sizes; exponent {told(law)}, "
                f"r squared {law['r2']:.2f}",
                holds,
                (
                    "with one size varied, exponents in s_L s_G log p_bin: "
                    + ", ".join(f"{name} {one['exponent']:.2f}" for name, one in alone.items()),
                ),
            )
        )
    return claims


def enough_rows(rows: list[int], shares: list[float]) -> int | None:
    """The smallest measured n from which on at least 95% of the runs succeed; None if there is none.

    Examples
    --------
    >>> enough_rows([10, 20, 40, 80], [0.0, 1.0, 0.9, 1.0])
    80
    """
    failing = np.flatnonzero(np.asarray(shares) < ENOUGH)
    first = failing[-1] + 1 if len(failing) else 0
    return rows[first] if first < len(rows) else None


def _sufficiency(binning: str, scales: list[float], enough: list[int | None]) -> Claim:
    paper = f"n0 = c s_L s_G log p_bin rows suffice, {binning} binning (theorem 3.4)"
    if None in enough:
        return Claim(paper, f"{enough.count(None)} of {len(enough)} sizes fail at the largest n measured", "no")
    law = fit_power_law(scales, enough)
    return Claim(
        paper,
        f"95% of the runs succeed from n = {max(n / scale for n, scale in zip(enough, scales, strict=True)):.1f} "
        f"s_L s_G log p_bin on, in all {len(enough)} sizes; exponent {told(law)}",
        "yes" if law["exponent"] <= 1 + MARGIN else "no",
    )


def draw(numbers: dict, figure: Figure) -> None:
    binnings = _binnings(numbers)
    figure.set_size_inches(11, 3.3 * len(binnings))
    grid = figure.subplots(len(binnings), 3, squeeze=False, gridspec_kw={"width_ratios": (1, 1, 1.1)})
    rows = np.array(numbers["rows"])
    for (first, second, third), binning in zip(grid, binnings, strict=True):
        for axes, name in ((first, "s_G"), (second, "s_L")):
            lines = [line for line in numbers["lines"] if line["binning"] == binning and line["varied"] == name]
            shares = np.array([line["shares"] for line in lines])
            image = axes.imshow(shares, origin="lower", aspect="auto", cmap="cividis", vmin=0, vmax=1)
            places = np.interp(
                np.log([line["transition"] or np.nan for line in lines]), np.log(rows), np.arange(len(rows))
            )
            axes.plot(places, np.arange(len(lines)), color="white", marker="o", markersize=4, linewidth=1, label="half")
            mean = np.exp(np.mean(np.log([x["transition"] / x["scale"] for x in _with_transition(numbers, binning)])))
            predicted = np.interp(np.log([mean * line["scale"] for line in lines]), np.log(rows), np.arange(len(rows)))
            axes.plot(
                predicted, np.arange(len(lines)), color="#ff9f80", linestyle="--", linewidth=1.2,
                label=f"{mean:.2f} s_L s_G log p_bin",
            )  # fmt: skip
            label(axes, f"{binning}: share of runs that succeed", "rows n", AXES[name])
            every = np.arange(0, len(rows), 2 if len(rows) > 8 else 1)
            axes.set_xticks(every, [str(rows[k]) for k in every])
            axes.set_yticks(np.arange(len(lines)), [str(line["value"]) for line in lines])
            legend = axes.legend(fontsize=6.5, loc="lower right", facecolor=TRUE_COLOR, framealpha=0.85)
            for text in legend.get_texts():
                text.set_color("white")
            figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02).ax.tick_params(labelsize=6)
        lines = _with_transition(numbers, binning)
        for name, marker in MARKERS.items():
            chosen = [line for line in lines if line["varied"] == name]
            third.plot(
                [line["scale"] for line in chosen], [line["transition"] for line in chosen], marker,
                color=BINNING_STYLES[binning]["color"], markersize=5, label=f"{name} varied",
                markerfacecolor="white" if name == "s_L" else None,
            )  # fmt: skip
        draw_reference(third, [line["scale"] for line in lines], [line["transition"] for line in lines], 1.0, "slope 1")
        log_scale(third, "x")
        log_scale(third, "y")
        label(third, f"{binning}: transition", "s_L s_G log p_bin", "n at which half succeed")
        third.legend(fontsize=7, frameon=False)


def _binnings(numbers: dict) -> list[str]:
    return [binning for binning in BINNING_STYLES if any(line["binning"] == binning for line in numbers["lines"])]


def _with_transition(numbers: dict, binning: str) -> list[dict]:
    return [line for line in numbers["lines"] if line["binning"] == binning and line["transition"] is not None]
