"""Pictures of tables, drawn with matplotlib, which is imported only when one is drawn.

A fitted table is a step function of its feature. It is drawn from the rows alone: sort the feature, and
wherever the value changes from one row to the next there is a jump midway between the two.
Looks at: numpy, matplotlib.  Seen by: rbr.cli.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Curve", "plot_curves", "step_edges"]

LEARNED_COLOR = "#d1495b"
TRUE_COLOR = "#22333b"
QUIET_COLOR = "#8d99a6"


@dataclass(frozen=True)
class Curve:
    """One learned table over the rows, and the curve it should have found if that is known.

    Attributes
    ----------
    x : array (n_rows,), the feature
    values : array (n_rows,), the learned value of each row
    title : text above the picture, on the left
    note : small text above the picture, on the right
    truth : the true curve as a function of x, or None
    """

    x: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)
    title: str = ""
    note: str = ""
    truth: Callable[[np.ndarray], np.ndarray] | None = None


def step_edges(x, values) -> tuple[np.ndarray, np.ndarray]:
    """The step function through the points (x, values): its edges, and its level between each two.

    Examples
    --------
    >>> from rbr.plotting import step_edges
    >>> step_edges([3.0, 0.0, 1.0, 2.0], [5.0, 4.0, 4.0, 5.0])
    (array([0. , 1.5, 3. ]), array([4., 5.]))
    """
    order = np.argsort(x, kind="stable")
    x, values = np.asarray(x, dtype=np.float64)[order], np.asarray(values, dtype=np.float64)[order]
    jumps = np.flatnonzero(values[1:] != values[:-1])
    edges = np.concatenate([x[:1], (x[jumps] + x[jumps + 1]) / 2, x[-1:]])
    return edges, values[np.concatenate([jumps, [len(x) - 1]])]


def plot_curves(curves: Sequence[Curve], title: str = "", n_columns: int = 5) -> Figure:
    """A grid of learned tables as steps, each over the thin line of the true curve where that is known.

    Parameters
    ----------
    curves : sequence of Curve
        One picture each; all share the scale of the vertical axis.
    title : str
        A heading over the grid.
    n_columns : int
        Pictures per row.

    Returns
    -------
    matplotlib.figure.Figure
        Save it with `figure.savefig("file.png")`.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.plotting import Curve, plot_curves
    >>> x = np.linspace(-1, 1, 100)
    >>> figure = plot_curves([Curve(x, np.sign(x), "sign", truth=np.sign)])
    >>> len(figure.axes)
    1
    """
    if not curves:
        raise ValueError("curves is empty; there must be at least one to draw")
    Figure = _import_figure()
    n_columns = min(n_columns, len(curves))
    n_rows = -(-len(curves) // n_columns)
    # Built without pyplot: no window system is asked for and no global state is left behind.
    figure = Figure(figsize=(0.6 + 2.1 * n_columns, 1.0 + 1.75 * n_rows), dpi=120, layout="constrained")
    grid = figure.subplots(n_rows, n_columns, sharey=True, squeeze=False)
    for axes, curve in zip(grid.flat, curves, strict=False):
        _draw(axes, curve)
    for unused in grid.flat[len(curves) :]:
        unused.remove()
    handles, labels = grid[0, 0].get_legend_handles_labels()
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=TRUE_COLOR)
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside upper right", ncols=2, frameon=False, fontsize=9)
    return figure


def _import_figure():
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('drawing needs matplotlib: pip install "rbr[plot]"') from error
    return Figure


def _draw(axes: Axes, curve: Curve) -> None:
    edges, levels = step_edges(curve.x, curve.values)
    axes.axhline(0.0, color=QUIET_COLOR, linewidth=0.6, alpha=0.6, zorder=0)
    axes.stairs(levels, edges, baseline=None, color=LEARNED_COLOR, linewidth=2.0, label="learned", zorder=2)
    if curve.truth is not None:
        x = np.linspace(edges[0], edges[-1], 400)
        axes.plot(x, curve.truth(x), color=TRUE_COLOR, linewidth=0.9, label="true", zorder=3)
    axes.set_title(curve.title, loc="left", fontsize=9, color=TRUE_COLOR)
    axes.set_title(curve.note, loc="right", fontsize=8, color=QUIET_COLOR)
    axes.tick_params(labelsize=7, colors=QUIET_COLOR, length=2)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(QUIET_COLOR)
    axes.margins(x=0.02)
