"""The look of the pictures: colours that colour-blind readers can tell apart, one per method, and quiet axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rbr.plotting.panels import QUIET_COLOR, TRUE_COLOR

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The colours of Okabe and Ito.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
TITLE_SIZE, LABEL_SIZE, TICK_SIZE = 10, 9, 8


def tidy(axes: Axes, title: str = "", x: str = "", y: str = "") -> None:
    """Two spines, a title on the left, and labels."""
    axes.set_title(title, loc="left", fontsize=TITLE_SIZE, color=TRUE_COLOR)
    axes.set_xlabel(x, fontsize=LABEL_SIZE, color=TRUE_COLOR)
    axes.set_ylabel(y, fontsize=LABEL_SIZE, color=TRUE_COLOR)
    axes.tick_params(labelsize=TICK_SIZE, colors=TRUE_COLOR, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(QUIET_COLOR)


def line_with_band(axes: Axes, x, mean, error, label: str, **style: Any) -> None:
    """A line with a band of `error`, such as one standard error, above and below it."""
    x, mean, error = (np.asarray(values, dtype=np.float64) for values in (x, mean, error))
    (line,) = axes.plot(x, mean, label=label, **style)
    axes.fill_between(x, mean - error, mean + error, color=line.get_color(), alpha=0.18, linewidth=0)


def mean_and_error(values, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The mean over the axis, and its standard error (zero for a single value).

    Examples
    --------
    >>> from rbr.experiments.look import mean_and_error
    >>> mean, error = mean_and_error([1.0, 2.0, 3.0])
    >>> float(mean), round(float(error), 3)
    (2.0, 0.577)
    """
    values = np.asarray(values, dtype=np.float64)
    n = values.shape[axis]
    error = values.std(axis=axis, ddof=1) / np.sqrt(n) if n > 1 else np.zeros_like(values.mean(axis=axis))
    return values.mean(axis=axis), error


def plus_minus(values: Sequence[float], digits: int = 3) -> str:
    """
    Examples
    --------
    >>> from rbr.experiments.look import plus_minus
    >>> plus_minus([0.5, 0.7])
    '0.600 ± 0.100'
    """
    mean, error = mean_and_error(values)
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def rounded(values, digits: int = 4) -> list:
    """Values for a picture, as lists rounded to a number of decimals."""
    return np.round(np.asarray(values, dtype=np.float64), digits).tolist()
