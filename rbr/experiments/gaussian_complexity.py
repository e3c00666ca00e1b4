"""Item 10. Gaussian complexity of C (paper, definition D.1, theorems D.2 to D.4).

omega(C) = E ||P_C(g)||^2 is estimated by Monte Carlo over a grid of shapes, bins, pieces, features used and features,
including cases with distinct s_L,j and b_j. For each case, c is the constant that makes the bound an equality:
omega / sumtop_{s_G}(s_L,j log b_j + log p).

The theorems state bounds with "some absolute constant", so they fail only if no constant works for all sizes. To ask
that c be no larger in the larger cases than in the smaller ones would be too strict: c may rise to a limit (for one
frequency out of b - 1 it tends to 2). Rules, fixed before the full run:
- Theorem D.2: "yes" if omega grows with the bound by an exponent of at most 1.15 (1 and the margin of
  rbr.experiments.scaling) for each shape; "partly" for some shapes; else "no". Theorem D.4 likewise, omega(S) in s_L
  log b.
- Theorem D.3: "yes" if the upper ends of omega obey (sqrt(sumtop omega(S_j)) + 2 sqrt(s_G log p))^2 in all cases, 2
  being the factor of the proof's last display; "partly" in at least half of them; else "no".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rbr import theory
from rbr.constraints import Constraints
from rbr.experiments.item import Claim, Setting, Verdict
from rbr.experiments.scaling import MARGIN, fit_power_law, label, log_scale, told
from rbr.plotting.panels import CLASS_COLORS, QUIET_COLOR

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROOF_FACTOR = 2.0
STYLES = {
    "constant": {"color": CLASS_COLORS[1], "marker": "o"},
    "linear": {"color": CLASS_COLORS[2], "marker": "s"},
    "frequency": {"color": CLASS_COLORS[3], "marker": "^"},
}


def measure(setting: Setting) -> dict:
    bins, pieces, used, features = setting.pick(
        ([8, 16, 32, 64], [2, 4, 8], [1, 4, 16], [20, 100]), ([8, 32], [2, 6], [1, 6], [20])
    )
    n_draws = setting.pick(200, 40)
    sizes = [([b] * p, [k] * p, s) for b in bins for k in pieces for s in used for p in features]
    for p in features:  # distinct limits, and distinct bins as well
        mixed_pieces = [pieces[j % len(pieces)] for j in range(p)]
        mixed_bins = [bins[j // len(pieces) % len(bins)] for j in range(p)]
        sizes += [([bins[-1]] * p, mixed_pieces, s) for s in used] + [(mixed_bins, mixed_pieces, s) for s in used]
    tasks = [
        (shape, n_bins, limits, s_G, n_draws, setting.rng(10, i, k))
        for i, (n_bins, limits, s_G) in enumerate(sizes)
        for k, shape in enumerate(STYLES)
    ]
    return {"n_draws": n_draws, "cases": setting.map(_one_case, tasks)}


def _one_case(shape: str, n_bins: list[int], limits: list[int], s_G: int, n_draws: int, rng) -> dict:
    p = len(n_bins)
    cone = theory.Cone(Constraints(max_features=s_G, max_segments=limits, shape=shape), n_bins)
    omega = theory.gaussian_complexity(cone, n_draws, rng)
    local = theory.local_complexities(cone, max(1, n_draws // 4), rng)
    largest = np.sort(local)[::-1][:s_G].sum()
    distinct = len(set(limits)) > 1
    return {
        "shape": shape,
        "p": p,
        "p_bin": cone.n_coef,
        "s_G": s_G,
        "b": None if len(set(n_bins)) > 1 else n_bins[0],
        "s_L": None if distinct else limits[0],
        "distinct": distinct,
        "omega": [omega.value, omega.low, omega.high],
        "bound": theory.gaussian_complexity_bound(cone),
        # When all features have the same limit, the mean over them is omega(S).
        "local": None if distinct else float(local.mean()),
        # The c that makes theorem D.3 an equality, at omega and at the upper end of its interval.
        "selection": float((np.sqrt(omega.value) - np.sqrt(largest)) / np.sqrt(s_G * np.log(p))),
        "selection_upper": float((np.sqrt(omega.high) - np.sqrt(largest)) / np.sqrt(s_G * np.log(p))),
    }


def judge(numbers: dict) -> list[Claim]:
    cases = numbers["cases"]
    tight = {shape: [case["omega"][0] / case["bound"] for case in _of(cases, shape)] for shape in STYLES}
    growth = {
        shape: fit_power_law([c["bound"] for c in _of(cases, shape)], [c["omega"][0] for c in _of(cases, shape)])
        for shape in STYLES
    }
    local, local_growth = {}, {}
    for shape in STYLES:
        alike = [case for case in _of(cases, shape) if case["local"] is not None and case["b"] is not None]
        right_sides = np.array([case["s_L"] * np.log(case["b"]) for case in alike])
        values = np.array([case["local"] for case in alike])
        local[shape], local_growth[shape] = values / right_sides, fit_power_law(right_sides, values)
    selection = {shape: max(case["selection"] for case in _of(cases, shape)) for shape in STYLES}
    obeyed = np.mean([case["selection_upper"] <= PROOF_FACTOR for case in cases])
    width = max((case["omega"][2] - case["omega"][1]) / 2 / case["omega"][0] for case in cases)
    return [
        Claim(
            "omega(C) <= c sumtop_{s_G}(s_L,j log b_j + log p) (theorem D.2)",
            "c that makes it tight: "
            + "; ".join(f"{shape} {min(c):.2f} to {max(c):.2f}" for shape, c in tight.items())
            + f" over {len(cases)} cases; exponents of omega in the bound: "
            + "; ".join(f"{shape} {told(law)}" for shape, law in growth.items()),
            _no_faster(growth),
            (
                f"{numbers['n_draws']} draws of g for each case; the widest 95% interval is {width:.0%} of its omega",
                "limits are pieces, not jumps: one constant piece of mean zero is zero, two are one jump",
            ),
        ),
        Claim(
            "omega(S) <= c s_L log b for the tables of one feature (theorem D.4)",
            "c that makes it tight: "
            + "; ".join(f"{shape} {min(c):.2f} to {max(c):.2f}" for shape, c in local.items())
            + "; exponents: "
            + "; ".join(f"{shape} {told(law)}" for shape, law in local_growth.items()),
            _no_faster(local_growth),
        ),
        Claim(
            "omega(C) <= (sqrt(sumtop omega(S_j)) + c sqrt(s_G log p))^2 (theorem D.3)",
            "largest c: " + "; ".join(f"{shape} {c:.2f}" for shape, c in selection.items()),
            "yes" if obeyed == 1 else "partly" if obeyed >= 0.5 else "no",
        ),
    ]


def _no_faster(laws: dict[str, dict]) -> Verdict:
    """Whether the exponents are at most 1, up to the margin: "yes" for all shapes, "partly" for some, "no" for none."""
    kept = [law["exponent"] <= 1 + MARGIN for law in laws.values()]
    return "yes" if all(kept) else "partly" if any(kept) else "no"


def draw(numbers: dict, figure: Figure) -> None:
    figure.set_size_inches(10.5, 3.6)
    left, middle, right = figure.subplots(1, 3)
    for shape, style in STYLES.items():
        cases = _of(numbers["cases"], shape)
        bound = np.array([case["bound"] for case in cases])
        omega, low, high = np.array([case["omega"] for case in cases]).T
        distinct = np.array([case["distinct"] for case in cases])
        left.errorbar(
            bound, omega, [omega - low, high - omega], fmt=style["marker"], color=style["color"],
            markersize=3.5, elinewidth=0.8, label=shape,
        )  # fmt: skip
        middle.plot(
            bound[~distinct],
            (omega / bound)[~distinct],
            style["marker"],
            color=style["color"],
            markersize=3.5,
            label=shape,
        )
        middle.plot(
            bound[distinct], (omega / bound)[distinct], style["marker"], color=style["color"],
            markersize=5, markerfacecolor="white", label=f"{shape}, distinct s_L,j",
        )  # fmt: skip
        alike = [case for case in cases if case["local"] is not None and case["b"] is not None]
        for limit in sorted({case["s_L"] for case in alike}):
            bins = sorted({case["b"] for case in alike})
            means = [np.mean([c["local"] for c in alike if c["b"] == b and c["s_L"] == limit]) for b in bins]
            right.plot(
                bins, np.array(means) / (limit * np.log(bins)), color=style["color"], marker=style["marker"],
                markersize=3.5, linewidth=0.5 + 0.25 * limit, label=shape if limit == alike[0]["s_L"] else None,
            )  # fmt: skip
    ends = np.array([min(c["bound"] for c in numbers["cases"]), max(c["bound"] for c in numbers["cases"])])
    left.plot(ends, ends, color=QUIET_COLOR, linestyle=":", linewidth=1.2, label="c = 1")
    log_scale(left, "x")
    log_scale(left, "y")
    label(left, "omega(C), 95% intervals", "sumtop(s_L,j log b_j + log p)", "omega(C)")
    log_scale(middle, "x")
    middle.set(ylim=(0, None))
    label(middle, "The constant that makes the bound tight", "sumtop(s_L,j log b_j + log p)", "omega(C) / bound")
    right.set(xscale="log", ylim=(0, None))
    ticks = sorted({case["b"] for case in numbers["cases"] if case["b"] is not None})
    right.set_xticks(ticks, [str(b) for b in ticks])
    right.set_xticks([], minor=True)
    label(right, "One feature (thicker: more pieces)", "bins b", "omega(S) / (s_L log b)")
    for axes in (left, middle, right):
        axes.legend(fontsize=6.5, frameon=False)


def _of(cases: list[dict], shape: str) -> list[dict]:
    return [case for case in cases if case["shape"] == shape]
