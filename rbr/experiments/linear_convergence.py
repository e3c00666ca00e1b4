"""Item 8. Linear convergence of Algorithm 1 with mu = 1, and its noise floor (paper, theorems 3.2 and 3.4, eq. 3.3).

For each n and binning, Algorithm 1 is run from zero:
- without noise, y = X_bin beta_true with beta_true a random unit vector of C. Measured is the rate at which the error
  falls (the geometric mean of its steps down to 1e-8).
- with noise z independent of the design, of the norm of the signal or a tenth of it. Measured is the floor
  ||beta_tau - beta_true|| / ||z|| at which the error comes to rest.
- with noise made from the design, z = X_bin (beta' - beta_true) with beta' in C, which no method can tell from signal.

Rules, fixed before measuring.
- Rate: over the n at which all runs reach 1e-8, the exponent of the mean rate in n is -1/2 by the rule of
  rbr.experiments.scaling, for both binnings.
- Floor, binomial: likewise -1/2 (eta = (n0 / n)^(1/2)), at the higher noise, over the n at which the rate was fitted.
- Floor, regular: "yes" if the floor is at most 2 ||z|| in every run at these n (eta = 2), for both kinds of noise.
- Theorem 3.2, first bound: it promises convergence to the minimiser over C even if the gradient there is not zero.
  "yes" if the iteration reaches it without noise at these n and in rbr.theory.two_minimisers; "partly" if only
  without noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rbr import theory
from rbr.experiments.gradient_correlation import BASE, cone_of
from rbr.experiments.item import Claim, Setting
from rbr.experiments.scaling import (
    BINNING_STYLES,
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
from rbr.theory import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESOLUTION, N_STEPS, N_NOISY_STEPS, N_RESTING = 1e-8, 100, 40, 5
NOISES = (1.0, 0.1)


def measure(setting: Setting) -> dict:
    rows = setting.pick([120, 240, 480, 960, 1920, 3840, 7680, 15360, 30720], [480, 1920, 7680])
    n_runs = setting.pick(40, 5)
    tasks = [
        (binning, n, n_runs, setting.rng(8, i, k))
        for i, n in enumerate(rows)
        for k, binning in enumerate(BINNING_STYLES)
    ]
    found = theory.two_minimisers()
    return {
        "cases": setting.map(_one_case, tasks),
        "counterexample": {
            "gradient_correlation": found.gradient_correlation,
            "distance": float(np.linalg.norm(found.reached - found.minimiser)),
            "loss_reached": found.loss_reached,
            "loss_least": found.loss_least,
        },
    }


def _one_case(binning: str, n: int, n_runs: int, rng) -> dict:
    cone = cone_of(**BASE)
    case = {"binning": binning, "n": n, "rates": [], "converged": [], "paths": [], "from_design": []}
    floors = {noise: [] for noise in NOISES}
    for _ in range(n_runs):
        design, truth = theory.random_design(n, cone.n_bins, binning, rng), cone.draw(rng)
        errors = theory.estimation_errors(design, cone, truth, n_steps=N_STEPS)
        case["rates"].append(theory.linear_rate(errors, RESOLUTION))
        case["converged"].append(bool(errors[-1] <= RESOLUTION))
        case["paths"].append(errors[:13].tolist())
        z = rng.standard_normal(n)
        for noise in NOISES:
            floors[noise].append(_floor(design, cone, truth, noise * z / np.linalg.norm(z)))
        case["from_design"].append(_floor(design, cone, truth, design.tocsr() @ (cone.draw(rng) - truth)))
    return {**case, "floors": [floors[noise] for noise in NOISES]}


def _floor(design, cone, truth, noise) -> float:
    """The error at rest, divided by the norm of the noise."""
    errors = theory.estimation_errors(design, cone, truth, noise, n_steps=N_NOISY_STEPS)
    return float(np.mean(errors[-N_RESTING:]) / np.linalg.norm(noise))


def judge(numbers: dict) -> list[Claim]:
    rates, floors, largest, largest_from_design = {}, {}, {}, {}
    for binning in BINNING_STYLES:
        good = [case for case in _of(numbers, binning) if all(case["converged"])]
        rates[binning] = fit_power_law(*pooled(good, "n", lambda case: case["rates"]))
        floors[binning] = fit_power_law(*pooled(good, "n", lambda case: case["floors"][0]))
        largest[binning] = max(max(map(max, case["floors"])) for case in good)
        largest_from_design[binning] = max(max(case["from_design"]) for case in good)
    first = min(case["n"] for case in _of(numbers, "regular") if all(case["converged"]))
    example = numbers["counterexample"]
    reaches_minimiser = example["distance"] < 1e-6
    return [
        Claim(
            "With mu = 1 the error falls at the rate (n0 / n)^(1/2) (theorem 3.4)",
            "; ".join(f"{binning}: exponent of the rate in n {told(law)}" for binning, law in rates.items())
            + f" (from n = {first} on)",
            least([verdict(law["exponent"], -0.5) for law in rates.values()]),
            (
                "for regular binning the paper's proof, which goes through the coupling, gives no more than n^(-1/4); "
                "what is measured is what the theorem says",
            ),
        ),
        Claim(
            "Binomial binning: the floor is (n0 / n)^(1/2) ||z|| (eq. 3.3)",
            f"exponent of floor / ||z|| in n: {told(floors['binomial'])}",
            verdict(floors["binomial"]["exponent"], -0.5),
            (
                "the noise must not depend on the design: with z made from the design the floor is up to "
                f"{largest_from_design['binomial']:.2f} ||z|| at every n",
            ),
        ),
        Claim(
            "Regular binning: the floor is at most 2 ||z|| (theorem 3.4)",
            f"largest {largest['regular']:.2f} ||z||, with noise made from the design "
            f"{largest_from_design['regular']:.2f} ||z||",
            "yes" if max(largest["regular"], largest_from_design["regular"]) <= 2 else "no",
            (
                "for noise that does not depend on the design the factor is far from 2: the floor falls with n like "
                f"that of binomial binning, exponent {told(floors['regular'])}",
            ),
        ),
        Claim(
            "eps_R < 1/2 gives linear convergence to the unique minimiser over C (theorem 3.2, first bound)",
            "without noise it is reached; but with eps_R = "
            f"{example['gradient_correlation']:.1f} and a gradient that is not zero at the minimiser, a problem in the "
            f"plane is left at a loss of {example['loss_reached']:.3f} instead of {example['loss_least']:.3f}",
            "yes" if reaches_minimiser else "partly",
            (
                "the proof takes <w, gradient> >= 0 for all w in the closure of cone(C - {beta}), which is not so "
                "where C is not convex; the second bound, with its floor, does not need it",
            ),
        ),
    ]


def draw(numbers: dict, figure: Figure) -> None:
    figure.set_size_inches(10.5, 3.6)
    left, middle, right = figure.subplots(1, 3)
    shown = [case for case in _of(numbers, "binomial") if all(case["converged"])][::2][:4]
    for color, marker, case in zip(CLASS_COLORS[1:], "os^D", shown, strict=False):
        path = np.exp(np.mean(np.log(np.maximum(case["paths"], 1e-17)), axis=0))
        visible = path > 1e-14
        left.plot(
            np.flatnonzero(visible), path[visible], color=color, marker=marker, markersize=3, label=f"n = {case['n']}"
        )
    left.set(yscale="log")
    label(left, "Error of Algorithm 1, binomial, no noise", "step", "||beta_t - beta_true||")
    left.legend(fontsize=7, frameon=False)

    rates, floors = [], []
    for binning, style in BINNING_STYLES.items():
        cases = _of(numbers, binning)
        n = np.array([case["n"] for case in cases])
        _with_band(middle, n, [case["rates"] for case in cases], binning, style)
        for k, noise in enumerate(NOISES):
            shade = {**style, "alpha": 1.0 if k == 0 else 0.45}
            _with_band(right, n, [case["floors"][k] for case in cases], f"{binning}, ||z|| = {noise:g}", shade)
        good = [all(case["converged"]) for case in cases]
        rates += [(m, np.mean(case["rates"])) for m, case, ok in zip(n, cases, good, strict=True) if ok]
        floors += [(m, np.mean(case["floors"][0])) for m, case, ok in zip(n, cases, good, strict=True) if ok]
    cases = _of(numbers, "regular")
    right.plot(
        [case["n"] for case in cases],
        [np.mean(case["from_design"]) for case in cases],
        color=QUIET_COLOR,
        marker="x",
        markersize=4,
        linewidth=0.8,
        label="regular, z made from the design",
    )
    for axes, points, title, y in (
        (middle, rates, "Rate, no noise", "error of a step / error of the last"),
        (right, floors, "Floor with noise", "||beta - beta_true|| / ||z|| at rest"),
    ):
        draw_reference(axes, *zip(*points, strict=True), -0.5, "slope -1/2")
        axes.set(xscale="log")
        log_scale(axes, "y")
        plain_ticks(axes, "x", [case["n"] for case in cases], 5)
        label(axes, title, "rows n", y)
        axes.legend(fontsize=6.5, frameon=False, loc="lower left" if axes is right else "best")


def _with_band(axes, n, runs, text, style) -> None:
    """The mean over the runs with its 95% interval."""
    means = [Estimate.of(run) for run in runs]
    axes.plot(n, [mean.value for mean in means], markersize=4, label=text, **style)
    # A logarithmic axis cannot show a band that reaches below zero.
    low = [max(mean.low, mean.value / 10) for mean in means]
    axes.fill_between(n, low, [mean.high for mean in means], color=style["color"], alpha=0.2, linewidth=0)


def _of(numbers: dict, binning: str) -> list[dict]:
    return [case for case in numbers["cases"] if case["binning"] == binning]
