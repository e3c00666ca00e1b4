"""Item 7. Restricted gradient correlation (paper, definition 3.1; its size in the proof of theorem 3.4).

A search estimates eps_R of squared loss over C - C on regular and binomial designs: against n, and at one n against
s_G, s_L, b and p one at a time. On designs of the same kind Algorithm 1 is run from zero without noise.

The probability of theorem 3.4 is computed where eps_R has a closed form: two features of two bins and s_G = 1, where
X_bin' X_bin differs from the identity on tables of mean zero by one number, the mean of n random signs.

A search bounds eps_R from below, so the smallest n at which it sees 2 eps_R < 1 is optimistic.

Rules, fixed before measuring. A run converges linearly if its error falls to 1e-6 of the start within 200 steps.
- eps_R against n: the exponent over the n with eps_R < 1 (above 1, terms of order n0 / n dominate) is -1/2 by the rule
  of rbr.experiments.scaling, for both binnings.
- eps_R against s_L s_G log p_bin over all sizes: likewise 1/2.
- Theorem 3.2, second bound without noise: "yes" if at every n where 2 eps_R < 1 was seen in all instances all runs
  converged linearly, with a rate of at most 2 eps_R; "partly" if they converged at another rate; else "no".
- Theorem 3.4, "with probability 1 - exp(-Cn)": P(eps_R > 2 n^(-1/2)) for the closed form. "yes" if its logarithm
  falls in proportion to n, by an exponent within the margin of 1; "no" if the probability at the largest n is more
  than half of that at the smallest; else "partly".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import binom

from rbr import theory
from rbr.constraints import Constraints
from rbr.experiments.item import Claim, Setting, Verdict
from rbr.experiments.scaling import (
    BINNING_STYLES,
    MARGIN,
    draw_reference,
    fit_power_law,
    label,
    least,
    log_scale,
    plain_ticks,
    pooled,
    told,
    verdict,
)
from rbr.plotting.panels import CLASS_COLORS, QUIET_COLOR

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASE = {"p": 20, "b": 8, "s_G": 3, "s_L": 3}
RESOLUTION, N_STEPS = 1e-6, 200
DEVIATION = 2.0
NAMES = {"s_G": "s_G", "s_L": "s_L", "b": "bins", "p": "features"}
MARKERS = {"s_G": "o", "s_L": "s", "b": "^", "p": "D"}


def cone_of(p: int, b: int, s_G: int, s_L: int) -> theory.Cone:
    return theory.Cone(Constraints(max_features=s_G, max_segments=s_L), [b] * p)


def measure(setting: Setting) -> dict:
    rows = setting.pick([30, 60, 120, 240, 480, 960, 1920, 3840, 7680, 15360], [30, 120, 480, 1920, 7680])
    n_instances, n_starts, n_runs = setting.pick((6, 10, 40), (2, 2, 8))
    n_at_sizes = setting.pick(7680, 3840)
    others = setting.pick(
        {"s_G": [1, 2, 4, 6, 10], "s_L": [2, 4, 5, 7], "b": [4, 12, 16, 32], "p": [10, 40, 80]},
        {"s_G": [1, 6], "s_L": [2, 6], "b": [4, 16], "p": [40]},
    )
    sizes = [("s_G", BASE)] + [(name, {**BASE, name: value}) for name, values in others.items() for value in values]
    cases = [("n", n, BASE) for n in rows] + [(name, n_at_sizes, size) for name, size in sizes]
    tasks = [
        (binning, n, size, n_instances, n_starts, n_runs if name == "n" else 0, setting.rng(7, i, k))
        for i, (name, n, size) in enumerate(cases)
        for k, binning in enumerate(BINNING_STYLES)
    ]
    found = setting.map(_one_case, tasks)
    names = [name for name, _, _ in cases for _ in BINNING_STYLES]
    signs = [100, 1_000, 10_000, 100_000]
    return {
        "cases": [{"varied": name, **case} for name, case in zip(names, found, strict=True)],
        "signs": {"rows": signs, "probabilities": [probability_beyond(n, DEVIATION) for n in signs]},
    }


def probability_beyond(n: int, deviation: float) -> float:
    """P(|mean of n random signs| > deviation / sqrt(n)), exactly.

    Examples
    --------
    >>> probability_beyond(4, 1.5)  # all four alike
    0.125
    """
    # With k positive signs, |2 k - n| > deviation sqrt(n) if k < (n - deviation sqrt(n)) / 2, or by symmetry n - k is.
    fewest = int(np.ceil((n - deviation * np.sqrt(n)) / 2)) - 1
    return float(2 * binom.cdf(fewest, n, 0.5))


def _one_case(binning: str, n: int, size: dict, n_instances: int, n_starts: int, n_runs: int, rng) -> dict:
    cone = cone_of(**size)
    searches = [
        theory.gradient_correlation(
            theory.random_design(n, cone.n_bins, binning, rng), cone, n_starts=n_starts, random_state=rng
        )
        for _ in range(n_instances)
    ]
    rates, converged = [], []
    for _ in range(n_runs):
        design = theory.random_design(n, cone.n_bins, binning, rng)
        errors = theory.estimation_errors(design, cone, cone.draw(rng), n_steps=N_STEPS)
        rates.append(theory.linear_rate(errors, RESOLUTION))
        converged.append(bool(errors[-1] <= RESOLUTION * errors[0]))
    return {
        "binning": binning,
        "n": n,
        **size,
        "scale": theory.sample_scale(cone),
        "epsilons": [search.value for search in searches],
        "random_pairs": max(search.random_pairs for search in searches),
        "random_starts": max(search.random_starts for search in searches),
        "above": max(search.unrestricted for search in searches),
        "rates": rates,
        "converged": converged,
    }


def judge(numbers: dict) -> list[Claim]:
    against_n = {binning: _of(numbers, binning, by_rows=True) for binning in BINNING_STYLES}
    against_size = {binning: _of(numbers, binning, by_rows=False) for binning in BINNING_STYLES}
    in_n, in_scale, from_n, stories, agreement = {}, {}, {}, [], []
    for binning, cases in against_n.items():
        small = [case for case in cases if max(case["epsilons"]) < 1]
        in_n[binning] = fit_power_law(*pooled(small, "n", _epsilons))
        in_scale[binning] = fit_power_law(*pooled(against_size[binning], "scale", _epsilons))
        good = [case for case in cases if 2 * max(case["epsilons"]) < 1]
        from_n[binning] = min((case["n"] for case in good), default=None)
        linear = [case["n"] for case in cases if all(case["converged"])]
        not_yet = max((case["n"] for case in cases if not all(case["converged"])), default=0)
        starts = min((n for n in linear if n > not_yet), default=None)
        stories.append(f"{binning}: 2 eps_R < 1 seen from n = {from_n[binning]}, all runs linear from n = {starts}")
        if good and all(all(case["converged"]) for case in good):
            slow = any(max(case["rates"]) > 2 * max(case["epsilons"]) for case in good)
            agreement.append("partly" if slow else "yes")
        else:
            agreement.append("no")
    constants = [
        np.mean(case["epsilons"]) / np.sqrt(case["scale"] / case["n"])
        for cases in against_size.values()
        for case in cases
    ]
    smaller = [
        np.mean(one["epsilons"]) <= np.mean(other["epsilons"])
        for one, other in zip(
            *(against_n[binning] + against_size[binning] for binning in ("regular", "binomial")), strict=True
        )
    ]
    signs = numbers["signs"]
    lower = "a search: every eps_R here is a lower bound of the supremum, and the smallest n is optimistic"
    return [
        Claim(
            "eps_R falls like n^(-1/2) (proof of theorem 3.4)",
            "; ".join(f"{binning}: exponent {told(law)}" for binning, law in in_n.items()),
            least([verdict(law["exponent"], -0.5) for law in in_n.values()]),
            (lower,),
        ),
        Claim(
            "eps_R grows like (s_L s_G log p_bin)^(1/2)",
            "; ".join(f"{binning}: exponent {told(law)}" for binning, law in in_scale.items())
            + f"; eps_R / sqrt(s_L s_G log p_bin / n) between {min(constants):.2f} and {max(constants):.2f}",
            least([verdict(law["exponent"], 0.5) for law in in_scale.values()]),
            (
                f"regular binning has the smaller eps_R in {sum(smaller)} of {len(smaller)} sizes: its extra "
                "condition, n >= c s_G^2 max b log p_bin, comes from the proof and is not seen",
                "the constant of binomial binning hides the bins, which theorem 3.4 takes as bounded: with b alone "
                f"varied the exponents of eps_R in b are {_alone(against_size['regular'], 'b'):.2f} for regular and "
                f"{_alone(against_size['binomial'], 'b'):.2f} for binomial bins, whose sizes vary the more the smaller "
                "they are",
            ),
        ),
        Claim(
            "2 eps_R < 1 gives linear convergence at rate 2 eps_R (theorem 3.2)",
            "; ".join(stories),
            least(agreement),
            ("the condition is sufficient, not necessary: without noise runs converge linearly long before it is met",),
        ),
        Claim(
            "The rate (n0 / n)^(1/2) holds with probability 1 - exp(-Cn) (theorem 3.4)",
            "two features of two bins: P(eps_R > 2 n^(-1/2)) = "
            + ", ".join(
                f"{chance:.4f} at n = {n}" for n, chance in zip(signs["rows"], signs["probabilities"], strict=True)
            ),
            _falls_exponentially(signs["rows"], signs["probabilities"]),
            ("a deviation that itself shrinks like n^(-1/2) keeps its probability, about exp(-C n0), at every n",),
        ),
    ]


def _alone(cases: list[dict], name: str) -> float:
    """The exponent of eps_R in one size, with the others at their values in BASE."""
    others = [other for other in BASE if other != name]
    chosen = [case for case in cases if all(case[other] == BASE[other] for other in others)]
    return fit_power_law(*pooled(chosen, name, _epsilons))["exponent"]


def _falls_exponentially(rows: list[int], probabilities: list[float]) -> Verdict:
    if probabilities[-1] > probabilities[0] / 2:
        return "no"
    law = fit_power_law(rows, [-np.log(max(chance, 1e-300)) for chance in probabilities])
    return "yes" if abs(law["exponent"] - 1) <= MARGIN else "partly"


def draw(numbers: dict, figure: Figure) -> None:
    figure.set_size_inches(10.5, 3.6)
    left, middle, right = figure.subplots(1, 3)
    points = []
    for binning, style in BINNING_STYLES.items():
        cases = _of(numbers, binning, by_rows=True)
        n, values = [case["n"] for case in cases], np.array([case["epsilons"] for case in cases])
        left.plot(n, values.mean(axis=1), label=f"{binning}, search", markersize=4, **style)
        left.fill_between(n, values.min(axis=1), values.max(axis=1), color=style["color"], alpha=0.2, linewidth=0)
        points += [(m, v) for m, v in zip(n, values.mean(axis=1), strict=True) if v < 1]
        right.plot(n, [np.mean(case["converged"]) for case in cases], markersize=4, label=f"{binning}: runs", **style)
        seen = [case["n"] for case in cases if 2 * max(case["epsilons"]) < 1]
        if seen:
            right.axvline(min(seen), color=style["color"], linestyle=style["linestyle"], linewidth=0.9, alpha=0.7)
    cases = _of(numbers, "regular", by_rows=True)
    left.plot(
        [case["n"] for case in cases],
        [case["random_pairs"] for case in cases],
        color=QUIET_COLOR,
        marker="x",
        markersize=4,
        linewidth=0.8,
        label="regular, random pairs",
    )
    left.axhline(0.5, color=QUIET_COLOR, linewidth=0.8)
    left.annotate("2 eps_R = 1", (cases[0]["n"], 0.5), (0, 3), textcoords="offset points", fontsize=7)
    draw_reference(left, *zip(*points, strict=True), -0.5, "slope -1/2")
    left.set(xscale="log")
    log_scale(left, "y")
    plain_ticks(left, "x", [case["n"] for case in cases], 5)
    label(left, "eps_R against the rows", "rows n", "eps_R, from below")
    left.legend(fontsize=6.5, frameon=False)

    xs, ys = [], []
    for k, (varied, marker) in enumerate(MARKERS.items()):
        for binning, filled in (("regular", True), ("binomial", False)):
            chosen = [case for case in _of(numbers, binning, by_rows=False) if case["varied"] == varied]
            x = [case["scale"] / case["n"] for case in chosen]
            y = [np.mean(case["epsilons"]) for case in chosen]
            xs, ys = xs + x, ys + y
            middle.plot(
                x,
                y,
                marker,
                markersize=5,
                color=CLASS_COLORS[k],
                markerfacecolor=CLASS_COLORS[k] if filled else "white",
                label=f"{NAMES[varied]} varied" if filled else None,
            )
    draw_reference(middle, xs, ys, 0.5, "slope 1/2")
    log_scale(middle, "x")
    log_scale(middle, "y")
    label(middle, "eps_R against the sizes (filled: regular)", "s_L s_G log p_bin / n", "eps_R, from below")
    middle.legend(fontsize=6.5, frameon=False)

    right.set(xscale="log", ylim=(-0.03, 1.05))
    plain_ticks(right, "x", [case["n"] for case in cases], 5)
    label(right, "Runs that converge linearly", "rows n (verticals: first n with 2 eps_R < 1 seen)", "share of runs")
    right.legend(fontsize=6.5, frameon=False, loc="center right")


def _epsilons(case: dict) -> list[float]:
    return case["epsilons"]


def _of(numbers: dict, binning: str, by_rows: bool) -> list[dict]:
    return [case for case in numbers["cases"] if case["binning"] == binning and (case["varied"] == "n") == by_rows]
