"""Item 12. Regular against binomial binning: the coupling of the proof (paper, theorem E.5).

From a binomial matrix S the proof builds a regular matrix B by moving the excess rows of overfull bins into the others.
Measured are the largest ||(B - S) v|| over unit v with at most s_G non-zero blocks, bounded from below by a search and
from above by the block norms, against n, s_G, b and p one at a time; and the largest number of entries in a column of
B - S, against sqrt(n / b log p_bin).

Rules, fixed before measuring.
- n: the exponent is -1/4 by the rule of rbr.experiments.scaling.
- Bound c (s_G^2 log p_bin max b / n)^(1/4): "yes" if the exponents of the search in s_G, b and log p_bin are at most
  those of the bound, 1/2, 1/4 and 1/4, up to the margin of that rule; "partly" if some of them are; else "no".
- Entries of a column: "yes" if the exponent of their largest number in n / b is 1/2 by the same rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rbr import theory
from rbr.experiments.item import Claim, Setting
from rbr.experiments.scaling import (
    MARGIN,
    draw_reference,
    fit_power_law,
    label,
    log_scale,
    plain_ticks,
    pooled,
    told,
    verdict,
)
from rbr.plotting.panels import CLASS_COLORS, QUIET_COLOR

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASE = {"n": 3840, "p": 20, "b": 8, "s_G": 3}
STYLES = {
    "n": {"color": CLASS_COLORS[1], "marker": "o"},
    "s_G": {"color": CLASS_COLORS[2], "marker": "s"},
    "b": {"color": CLASS_COLORS[3], "marker": "^"},
    "p": {"color": CLASS_COLORS[0], "marker": "D"},
}


def measure(setting: Setting) -> dict:
    varied = setting.pick(
        {
            "n": [240, 480, 960, 1920, 3840, 7680, 15360, 30720, 61440],
            "s_G": [1, 2, 3, 5, 8, 12, 20],
            "b": [2, 4, 8, 16, 32, 60],
            "p": [5, 10, 20, 40, 80],
        },
        {"n": [240, 960, 3840, 15360], "s_G": [1, 4, 16], "b": [4, 16, 60], "p": [10, 40]},
    )
    n_instances = setting.pick(10, 3)
    cases = [(name, {**BASE, name: value}) for name, values in varied.items() for value in values]
    tasks = [(size, n_instances, setting.rng(12, i)) for i, (_, size) in enumerate(cases)]
    found = setting.map(_one_case, tasks)
    return {"cases": [{"varied": name, **case} for (name, _), case in zip(cases, found, strict=True)]}


def _one_case(size: dict, n_instances: int, rng) -> dict:
    n, p, b, s_G = (size[name] for name in ("n", "p", "b", "s_G"))
    found, above, entries = [], [], []
    for _ in range(n_instances):
        S = theory.random_design(n, [b] * p, "binomial", rng)
        B = theory.coupled_regular_design(S, rng)
        low, high = theory.largest_stretch((B, S), s_G, random_state=rng)
        found.append(low)
        above.append(high)
        entries.append(int(np.abs(S.rmatvec(np.ones(n)) - n / b).max()))
    return {
        **size,
        "log_p_bin": float(np.log(p * b)),
        "n_over_b": n / b,
        "bound": float((s_G**2 * np.log(p * b) * b / n) ** 0.25),
        "found": found,
        "above": above,
        "entries": entries,
    }


def judge(numbers: dict) -> list[Claim]:
    laws = {name: fit_power_law(*pooled(_of(numbers, name), name, _found)) for name in ("n", "s_G", "b")}
    laws["log p_bin"] = fit_power_law(*pooled(_of(numbers, "p"), "log_p_bin", _found))
    expected = {"s_G": 0.5, "b": 0.25, "log p_bin": 0.25}
    kept = [laws[name]["exponent"] <= exponent + MARGIN for name, exponent in expected.items()]
    ratios = [value / case["bound"] for case in numbers["cases"] for value in case["found"]]
    above = [value / case["bound"] for case in numbers["cases"] for value in case["above"]]
    by_entries = fit_power_law(*pooled(_of(numbers, "n") + _of(numbers, "b"), "n_over_b", lambda case: case["entries"]))
    most = max(max(case["entries"]) / np.sqrt(case["n_over_b"] * case["log_p_bin"]) for case in numbers["cases"])
    return [
        Claim(
            "max ||(B - S) v|| over s_G-group-sparse v falls like n^(-1/4) (theorem E.5)",
            f"exponent {told(laws['n'])}",
            verdict(laws["n"]["exponent"], -0.25),
        ),
        Claim(
            "max ||(B - S) v|| <= c (s_G^2 log p_bin max b / n)^(1/4) (theorem E.5)",
            f"search / bound between {min(ratios):.2f} and {max(ratios):.2f}, certainly below {max(above):.2f}; "
            + "exponents "
            + ", ".join(f"{name} {told(laws[name])}" for name in expected),
            "yes" if all(kept) else "partly" if any(kept) else "no",
            (
                "the factor sqrt(s_G) of lemma E.6 is not attained: blocks of different features are nearly orthogonal"
                if laws["s_G"]["exponent"] < expected["s_G"] - MARGIN
                else "the factor sqrt(s_G) of lemma E.6 is attained",
            ),
        ),
        Claim(
            "A column of B - S has at most C sqrt(n / b log p_bin) entries (proof of theorem E.5)",
            f"C = {most:.2f} suffices; exponent in n / b {told(by_entries)}",
            verdict(by_entries["exponent"], 0.5),
        ),
    ]


def draw(numbers: dict, figure: Figure) -> None:
    figure.set_size_inches(10.5, 3.6)
    left, middle, right = figure.subplots(1, 3)
    for axes, name, exponent, text in (
        (left, "n", -0.25, "slope -1/4"),
        (middle, "s_G", 0.5, "slope 1/2, the bound's"),
    ):
        cases = _of(numbers, name)
        x = [case[name] for case in cases]
        found = np.array([case["found"] for case in cases])
        axes.plot(x, found.mean(axis=1), markersize=4, label="search, from below", **STYLES[name])
        axes.fill_between(x, found.min(axis=1), found.max(axis=1), color=STYLES[name]["color"], alpha=0.2, linewidth=0)
        axes.plot(
            x, [np.mean(case["above"]) for case in cases], color=QUIET_COLOR, marker="v", markersize=3, linewidth=0.8,
            label="block norms, from above",
        )  # fmt: skip
        draw_reference(axes, x, found.mean(axis=1), exponent, text)
        axes.set(xscale="log")
        log_scale(axes, "y")
        plain_ticks(axes, "x", x)
    label(left, "Regular - binomial, against the rows", "rows n", "max ||(B - S) v||")
    label(middle, "… against the features used", "s_G", "max ||(B - S) v||")
    for name, style in STYLES.items():
        cases = _of(numbers, name)
        right.plot(
            [case["bound"] for case in cases], [np.mean(case["found"]) for case in cases],
            linestyle="none", markersize=5, label=f"{name} varied", **style,
        )  # fmt: skip
    bounds = [case["bound"] for case in numbers["cases"]]
    draw_reference(right, bounds, [np.mean(case["found"]) for case in numbers["cases"]], 1.0, "slope 1")
    log_scale(right, "x")
    log_scale(right, "y")
    label(right, "… against the bound", "(s_G^2 log p_bin b / n)^(1/4)", "max ||(B - S) v||")
    for axes in (left, middle, right):
        axes.legend(fontsize=7, frameon=False)


def _found(case: dict) -> list[float]:
    return case["found"]


def _of(numbers: dict, varied: str) -> list[dict]:
    return [case for case in numbers["cases"] if case["varied"] == varied]
