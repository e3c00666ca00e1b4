"""Power laws: how an exponent is fitted, when it counts as equal to the paper's, and how it is drawn.

All items use the same rule for an exponent: "yes" if the fitted one is within 0.15 of the paper's, "partly" if it only
has the right sign, else "no".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import linregress
from scipy.stats import t as student

from rbr.experiments.item import Verdict
from rbr.plotting.panels import CLASS_COLORS, QUIET_COLOR, TRUE_COLOR, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARGIN = 0.15

# Two colours that can be told apart with any kind of colour vision, and markers that need no colour.
BINNING_STYLES = {
    "regular": {"color": CLASS_COLORS[1], "marker": "o", "linestyle": "-"},
    "binomial": {"color": CLASS_COLORS[2], "marker": "s", "linestyle": "--"},
}
LABEL_SIZE = 8


def fit_power_law(x: Sequence[float], y: Sequence[float]) -> dict[str, float]:
    """y = factor * x^exponent by least squares of the logarithms, with the exponent's 95% interval and r squared.

    Examples
    --------
    >>> law = fit_power_law([1.0, 10.0, 100.0], [2.0, 0.2, 0.02])
    >>> round(law["exponent"], 6), round(law["factor"], 6)
    (-1.0, 2.0)
    """
    found = linregress(np.log(x), np.log(y))
    half = student.ppf(0.975, len(x) - 2) * found.stderr if len(x) > 2 else np.inf
    return {
        "exponent": float(found.slope),
        "low": float(found.slope - half),
        "high": float(found.slope + half),
        "factor": float(np.exp(found.intercept)),
        "r2": float(found.rvalue**2),
    }


def pooled(cases: Sequence[dict], x: str, y: Callable[[dict], Sequence[float]]) -> tuple[list[float], list[float]]:
    """One point per run, so that the interval of a fit reflects the scatter of the runs.

    Examples
    --------
    >>> pooled([{"n": 10, "rates": [0.5, 0.6]}], "n", lambda case: case["rates"])
    ([10, 10], [0.5, 0.6])
    """
    return [case[x] for case in cases for _ in y(case)], [value for case in cases for value in y(case)]


def verdict(exponent: float, expected: float) -> Verdict:
    """Whether an exponent is the expected one ("yes"), only has the expected sign ("partly"), or neither ("no").

    Examples
    --------
    >>> verdict(-0.46, -0.5), verdict(-0.2, -0.5), verdict(0.1, -0.5)
    ('yes', 'partly', 'no')
    """
    if abs(exponent - expected) <= MARGIN:
        return "yes"
    return "partly" if exponent * expected > 0 else "no"


def least(verdicts: Sequence[Verdict]) -> Verdict:
    """The weakest of several verdicts.

    Examples
    --------
    >>> least(["yes", "partly", "yes"])
    'partly'
    """
    return min(verdicts, key=("no", "partly", "yes").index)


def told(law: dict[str, float]) -> str:
    """An exponent with its interval, as text."""
    return f"{law['exponent']:.2f} [{law['low']:.2f}, {law['high']:.2f}]"


def label(axes: Axes, title: str, x: str, y: str) -> None:
    """Set title and labels in the sizes of all pictures, with quiet spines."""
    tidy(axes)
    axes.set_title(title, loc="left", fontsize=9, color=TRUE_COLOR)
    axes.set_xlabel(x, fontsize=LABEL_SIZE)
    axes.set_ylabel(y, fontsize=LABEL_SIZE)


def plain_ticks(axes: Axes, which: str, values: Sequence[float], n_most: int = 6) -> None:
    """Ticks of a logarithmic axis at some of the measured values, as plain numbers."""
    values = sorted(set(values))
    every = -(-len(values) // n_most)
    axis = getattr(axes, f"{which}axis")
    axis.set_ticks(values[::every], [f"{value:g}" for value in values[::every]])
    axis.set_ticks([], minor=True)


def log_scale(axes: Axes, which: str) -> None:
    """A logarithmic axis with as many ticks as fit at 1, 2 and 5 times powers of ten, as plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator

    getattr(axes, f"set_{which}scale")("log")
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def draw_reference(axes: Axes, x: Sequence[float], y: Sequence[float], exponent: float, text: str) -> None:
    """A grey line with a given exponent on logarithmic axes, through the geometric mean of the points."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    ends = np.array([x.min(), x.max()])
    factor = np.exp(np.mean(np.log(y) - exponent * np.log(x)))
    axes.plot(ends, factor * ends**exponent, color=QUIET_COLOR, linewidth=1.2, linestyle=":", label=text, zorder=1)
