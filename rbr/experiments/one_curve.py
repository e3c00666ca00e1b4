"""Item 1: how a feature is binned, and one curve fitted by a line, by constant pieces and by linear pieces.

The paper draws personal income against age. Its data are not public in that form, so similar data are generated here:
a hump that rises steeply, is flat in mid-life and falls at retirement, with noise that grows with income.

Rule, fixed before measuring. The error of a fit is ||fit - curve|| / ||curve - its mean|| over the rows. Yes if both
piecewise fits have less than half of the line's error in every draw; partly if only on average.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rbr.constraints import Constraints
from rbr.data.binning import Binner
from rbr.experiments import look
from rbr.experiments.item import Claim, Setting
from rbr.solvers import solve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

N_ROWS = 2000
N_BINS = 40
N_PIECES = 5
N_BINS_SHOWN = 8
FITS = {
    "line": ("linear function", look.GREEN, "--"),
    "constant": (f"{N_PIECES} constant pieces", look.VERMILION, "-"),
    "linear": (f"{N_PIECES} linear pieces", look.BLUE, "-"),
}


def income_at(age) -> np.ndarray:
    """The true curve, in thousands a year."""
    rise = 46 / (1 + np.exp(-(age - 29) / 4.5))
    fall = 26 / (1 + np.exp(-(age - 65) / 2.5))
    return 8 + rise + 0.1 * (age - 18) - fall


def draw_people(rng: np.random.Generator, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Ages, with fewer old people than young ones, and incomes."""
    age = 18 + 70 * rng.beta(1.3, 1.9, size=n_rows)
    return age, income_at(age) * np.exp(0.45 * rng.standard_normal(n_rows) - 0.45**2 / 2)


def fit_all(rng: np.random.Generator, n_rows: int) -> dict[str, Any]:
    """The three fits of one draw, and their errors."""
    age, income = draw_people(rng, n_rows)
    truth = income_at(age)
    binner = Binner(max_bins=N_BINS).fit(age[:, None])
    design = binner.transform(age[:, None])
    slope, level = np.polyfit(age, income, 1)
    values = {"line": slope * age + level}
    for shape in ("constant", "linear"):
        solution = solve(design, income, constraints=Constraints(max_segments=N_PIECES, shape=shape, jump_cost=0.0))
        values[shape] = solution.intercept + design.matvec(solution.f)
    size = np.linalg.norm(truth - truth.mean())
    return {
        "age": age,
        "income": income,
        "values": values,
        "errors": {name: float(np.linalg.norm(fitted - truth) / size) for name, fitted in values.items()},
    }


def measure(setting: Setting) -> dict[str, Any]:
    """The errors of several draws, and all that the picture shows of the first one."""
    n_draws = setting.pick(20, 5)
    draws = setting.map(fit_all, [(setting.rng(1, k), N_ROWS) for k in range(n_draws)])
    first = draws[0]
    order = np.argsort(first["age"])
    shown = np.linspace(0, N_ROWS - 1, 400).astype(int)
    few_bins = Binner(max_bins=N_BINS_SHOWN).fit(first["age"][:, None])
    people = np.linspace(0, N_ROWS - 1, 12).astype(int)
    return {
        "errors": {name: [draw["errors"][name] for draw in draws] for name in FITS},
        "age": look.rounded(first["age"][order][shown], 2),
        "income": look.rounded(first["income"][order][shown], 2),
        "values": {name: look.rounded(first["values"][name][order][shown], 2) for name in FITS},
        "truth": look.rounded(income_at(first["age"][order][shown]), 2),
        "histogram": np.histogram(first["age"], bins=np.arange(18, 90, 2))[0].tolist(),
        "cuts": look.rounded(few_bins.edges_[0], 2),
        "people": look.rounded(first["age"][people], 1),
        "codes": few_bins.transform(first["age"][people][:, None]).codes[0].tolist(),
    }


def judge(numbers: dict[str, Any]) -> list[Claim]:
    errors = {name: np.array(values) for name, values in numbers["errors"].items()}
    half = errors["line"] / 2
    always = all((errors[shape] < half).all() for shape in ("constant", "linear"))
    on_average = all(errors[shape].mean() < half.mean() for shape in ("constant", "linear"))
    measured = ", ".join(f"{FITS[name][0]} {look.plus_minus(errors[name], 2)}" for name in FITS)
    return [
        Claim(
            "Income against age has a hump: a linear function misses it, piecewise constant and piecewise linear "
            "functions of the binned age follow it",
            f"Relative L2 error of the curve, mean and standard error over {len(half)} draws: {measured}",
            "yes" if always else "partly" if on_average else "no",
            ("The data of the paper's figure are not public in that form: made data of the same kind.",),
        )
    ]


def draw(numbers: dict[str, Any], figure: Figure) -> None:
    figure.set_size_inches(9.5, 4.4)
    left, right = figure.subfigures(1, 2, width_ratios=[0.8, 1])
    histogram, encoding = left.subplots(2, 1, height_ratios=[1, 1.1])
    _draw_histogram(histogram, numbers)
    _draw_encoding(encoding, numbers)
    axes = right.subplots()
    axes.scatter(numbers["age"], numbers["income"], s=5, color="#c3cad1", linewidths=0, zorder=0)
    axes.plot(numbers["age"], numbers["truth"], color=look.BLACK, linewidth=1.0, label="true curve", zorder=4)
    for name, (label, color, style) in FITS.items():
        error = np.mean(numbers["errors"][name])
        axes.plot(
            numbers["age"],
            numbers["values"][name],
            color=color,
            linestyle=style,
            linewidth=1.8,
            label=f"{label}, error {error:.0%}",
        )
    axes.set_ylim(0, float(np.quantile(numbers["income"], 0.99)) * 1.25)
    look.tidy(axes, "Three fits of one curve", "age", "income in thousands")
    axes.legend(fontsize=look.TICK_SIZE, frameon=False, loc="upper left")


def _draw_histogram(axes, numbers) -> None:
    """The ages in bins of equal counts; neighbouring bins differ in shade."""
    starts = np.arange(18, 88, 2)
    edges = np.array([18.0, *numbers["cuts"], 88.0])
    for k, (low, high) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
        axes.axvspan(low, high, color="#dfe9f2" if k % 2 else "#f5f7f9", linewidth=0, zorder=0)
        axes.text((low + high) / 2, 1.02, str(k + 1), ha="center", transform=axes.get_xaxis_transform(), fontsize=7)
    axes.bar(starts, numbers["histogram"], width=1.8, align="edge", color=look.BLUE)
    axes.set_xlim(18, 88)
    look.tidy(axes, "", "age", "people")
    axes.set_title(f"Bins of equal counts, here {len(edges) - 1}", loc="left", fontsize=look.TITLE_SIZE, pad=14)


def _draw_encoding(axes, numbers) -> None:
    """A row per person, with a single 1 in the column of the bin."""
    order = np.argsort(numbers["people"])
    codes = np.array(numbers["codes"])[order]
    n_bins = len(numbers["cuts"]) + 1
    one_hot = np.zeros((len(codes), n_bins))
    one_hot[np.arange(len(codes)), codes] = 1
    axes.pcolormesh(one_hot[::-1], cmap="Blues", vmin=0, vmax=1.3, edgecolors="#d5dbe0", linewidth=0.8)
    axes.set_yticks(np.arange(len(codes)) + 0.5, [f"{numbers['people'][i]:.0f}" for i in order[::-1]])
    axes.set_xticks(np.arange(n_bins) + 0.5, range(1, n_bins + 1))
    look.tidy(axes, "One-hot rows of twelve people", "bin", "age")
    axes.tick_params(length=0, labelsize=7)
    axes.spines[:].set_visible(False)
