"""Plots of tables. Matplotlib is imported only when one is drawn.

`plot_model` draws the terms of a fitted model, from the model alone. `plot_curves` draws learned tables from their
values at rows, with the true curves where those are known: with the rows sorted by the feature, wherever the value
changes from one row to the next there is a jump midway between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rbr._checks import check_choice, check_int, check_level
from rbr._text import class_text
from rbr.model.pairs import PairTerm
from rbr.model.terms import Term
from rbr.plotting.heat_map import color_limit, draw_pair, right_end, room_for_pair, sides_of
from rbr.plotting.panels import (
    CLASS_COLORS,
    LEARNED_COLOR,
    LOUDNESS,
    TEXT_SIZE,
    TRUE_COLOR,
    X_SCALES,
    View,
    category_rows,
    draw_categories,
    draw_numeric,
    elided,
    has_faint_pieces,
    outer_edges,
    percent,
    set_titles,
    tidy,
)
from rbr.plotting.value_axis import QUIET_COLOR, Band, ValueScale, compact_number, value_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rbr.estimators.bootstrap import Bootstrap
    from rbr.model import AdditiveModel
    from rbr.model.pairs import AnyTerm

__all__ = ["Curve", "plot_curves", "plot_model", "step_edges"]

# Inches.
PANEL_WIDTH, PANEL_HEIGHT = 3.3, 2.3
LEFT, RIGHT, TOP, BOTTOM = 0.62, 0.32, 0.36, 0.36
LINE_HEIGHT = 0.14
ROW_HEIGHT = 0.15
CHARACTER_WIDTH = 0.058
HEADER = 0.34


def plot_model(
    model: AdditiveModel,
    terms: Sequence[str | int] | str | int | None = None,
    *,
    n_cols: int | None = None,
    max_terms: int | None = None,
    axes: Any = None,
    share_y: bool = True,
    y_limits: tuple[float, float] | None = None,
    bands: Bootstrap | None = None,
    level: float = 0.9,
    x_scale: str | dict[str, str] = "auto",
    max_levels: int = 60,
    title: str = "",
) -> np.ndarray:
    """Draw the terms of a model, one panel each, the most important first.

    A numeric term is drawn as a table with a value for each bin: constant pieces as horizontal segments, lines through
    the values of their bins, jumps as thin verticals. The grey strip is the density of the training rows. Categories
    are bars; fused levels share one bar, and each level has its share of the rows written beside it. A diamond is the
    value of missing values. A pair is a heat map whose cells are fainter where rows are rare; it has its own scale of
    colours. If extreme values of a few rows would squeeze all others, the scale of values is linear for
    the others and logarithmic beyond them, where the background is shaded; a line below the panels says so.

    Parameters
    ----------
    model : AdditiveModel
    terms : names or positions of terms, optional
        What to draw, in this order. By default all terms, by importance.
    n_cols : int, optional
        The number of columns of panels, by default at most 3.
    max_terms : int, optional
        Draw at most this many.
    axes : Axes or array of Axes, optional
        Where to draw, at least one for each term. By default a new pyplot figure.
    share_y : bool, default True
        One scale of values for all panels.
    y_limits : (low, high), optional
        The limits of the scale of values, which is then linear; what lies outside is cut off. Colours of pairs end at
        the larger of the two.
    bands : Bootstrap, optional
        The result of `estimator.bootstrap`: its bands are shaded, and panels show how often refits used the term. Of a
        pair, the cells whose band includes zero are hatched.
    level : float, default 0.9
        The share of the refits that a band covers, bin by bin.
    x_scale : {"auto", "linear", "log", "rank"}, or a dict {term name: one of these}
        The scale of numeric features, always labelled in their units. "log" is linear around zero if there are values
        at or below it; "rank" makes all bins equally wide. "auto" is linear unless a few bins would take most of the
        axis. The name of a column stands for both its term and its side of a pair.
    max_levels : int, default 60
        In a category with more levels, the rarer ones are gathered in one row for each value.
    title : str
        A heading over the panels.

    Returns
    -------
    array of Axes
        In the order of the panels; the figure is `axes[0].figure`.

    Examples
    --------
    >>> import numpy as np
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from rbr import RBRRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 5))
    >>> m = RBRRegressor(max_features=2).fit(X, np.sign(X[:, 3]) + 3 * np.sign(X[:, 1]) + 0.1 * rng.normal(size=500))
    >>> axes = m.plot()
    >>> [panel.get_title(loc="left") for panel in axes]
    ['x1', 'x3']
    >>> axes[0].figure.savefig("model.png")  # doctest: +SKIP
    """
    import_figure()
    chosen = _choose_terms(model, terms, max_terms)
    mains = [term for term in chosen if isinstance(term, Term)]
    scales = _scales(model, x_scale)
    check_int(max_levels, "max_levels", 1)
    check_level(level)
    if bands is not None:
        bands.check_terms(chosen)
    own_bands = [] if bands is None else [bands.band(term.name, level) for term in mains]
    values = _value_scales(mains, own_bands, share_y, y_limits) if mains else []
    of_main = {id(term): (values[i], own_bands[i] if own_bands else None) for i, term in enumerate(mains)}
    colors = _colors(model.n_outputs)
    has_header = bool(title) or model.n_outputs > 1
    has_faint = any(has_faint_pieces(term) for term in mains)
    footnotes = _footnotes(values, bands, level, has_faint, has_pairs=len(mains) < len(chosen))
    ranges = {term.columns[0]: (*outer_edges(term)[[0, -1]],) for term in model.terms if term.kind == "numeric"}
    if axes is None:
        panels = _new_panels(chosen, n_cols, max_levels, has_header, footnotes)
    else:
        panels = _given_panels(axes, len(chosen))
    for panel, term in zip(panels, chosen, strict=True):
        tidy(panel)
        if isinstance(term, PairTerm):
            limit = color_limit(term) if y_limits is None else max(map(abs, y_limits))
            sides = sides_of(term, scales, ranges)
            band = None if bands is None else bands.band(term.name, level)
            draw_pair(panel, term, sides, _value_label(model), limit, _class_names(model), band)
        else:
            own_values, band = of_main[id(term)]
            view = View(own_values, _value_label(model), colors, scales.get(term.name, "auto"), max_levels)
            draw = draw_numeric if term.kind == "numeric" else draw_categories
            draw(panel, term, view, band)
        # Titles begin where the space of a panel does: above the names of categories, and one below the other.
        is_pair = isinstance(term, PairTerm)
        note = _note(term, None if is_pair else bands)
        set_titles(panel, elided(term.name, 30), note, _left_of(panel) if axes is None else 0.0)
        if is_pair:
            panel.set_title(note, loc="right", x=right_end(panel), fontsize=TEXT_SIZE, color=QUIET_COLOR)
    if axes is not None and footnotes:
        _write_below(panels[-1], footnotes)
    _add_header(panels, model, title, colors if mains else [], own_figure=axes is None)
    return panels


def _choose_terms(model: AdditiveModel, terms, max_terms: int | None) -> list[AnyTerm]:
    if not model.terms:
        raise ValueError("the model has no terms: there is nothing to draw but its intercept")
    if terms is None:
        chosen = sorted(model.terms, key=lambda term: -term.importance)
    else:
        wanted: list[Any] = [terms] if isinstance(terms, (str, int, np.integer)) else list(terms)
        if not wanted:
            raise ValueError("terms is empty; name at least one term, or leave it out to draw all")
        chosen = [model[term] for term in wanted]
    return chosen if max_terms is None else chosen[: check_int(max_terms, "max_terms", 1)]


def _scales(model: AdditiveModel, x_scale) -> dict[str, str]:
    if isinstance(x_scale, str):
        check_choice(x_scale, "x_scale", X_SCALES)
        return {term.name: x_scale for term in model.terms}
    for name, scale in x_scale.items():
        check_choice(scale, f"x_scale of {model[name].name!r}", X_SCALES)
    return dict(x_scale)


def _value_scales(terms: Sequence[Term], bands: Sequence[Band], share_y: bool, y_limits) -> list[ValueScale]:
    """The scale of the values of each term."""
    if y_limits is not None:
        return [_fixed_scale(y_limits)] * len(terms)
    if share_y:
        return [value_scale(terms, bands)] * len(terms)
    return [value_scale([term], bands[i : i + 1]) for i, term in enumerate(terms)]


def _fixed_scale(limits) -> ValueScale:
    if np.shape(limits) != (2,) or not np.isfinite(limits).all() or not limits[0] < limits[1]:
        raise ValueError(f"y_limits is {limits!r}; it must be a pair of finite numbers, low < high")
    limits = float(limits[0]), float(limits[1])
    return ValueScale(limits, limits)


def _colors(n_outputs: int) -> list:
    if n_outputs <= len(CLASS_COLORS):
        return list(CLASS_COLORS[:n_outputs])
    import matplotlib

    return list(matplotlib.colormaps["viridis"](np.linspace(0.0, 0.95, n_outputs)))


def _value_label(model: AdditiveModel) -> str:
    """The label of the value axis: what a term's value is added to."""
    target = elided(model.target or "y", 20)
    if model.loss.link == "logit" and model.classes is not None:
        return f"adds to log-odds of {elided(class_text(model.target, model.classes.tolist()[1]), 20)}"
    return {
        "identity": f"adds to {target}",
        "log": f"adds to log {target}",
        "logit": "adds to log-odds",
        "softmax": "adds to score (softmax)" if model.target is None else f"adds to score of {target}",
    }.get(model.loss.link, f"adds to {model.loss.link} {target}")


def _class_names(model: AdditiveModel) -> Sequence:
    return range(model.n_outputs) if model.classes is None else model.classes.tolist()


def _note(term: AnyTerm, bands: Bootstrap | None) -> str:
    if bands is None:
        return f"mean |effect| {term.importance:.2g}"
    return f"mean |effect| {term.importance:.2g}\nused in {percent(bands.frequency(term.name))} of refits"


def _footnotes(
    values: Sequence[ValueScale], bands: Bootstrap | None, level: float, has_faint: bool, has_pairs: bool
) -> list[str]:
    """What a picture does not explain by itself: where the scale bends, what bands are, and what is drawn faintly."""
    notes = []
    bent = {scale.inner for scale in values if scale.inner != scale.whole}
    if bent:
        (low, high), *others = bent
        where = "" if others else f" (outside {_short(low)} to {_short(high)})"
        notes.append(f"Shaded{where}: the axis of effects is logarithmic there, so that a few far values fit in.")
    if bands is not None:
        notes.append(f"Pale bands and thin lines: the middle {level:.0%} of {bands.n_refits} refits.")
    if has_faint:
        least, *_ = (str(rows) for rows, opacity in LOUDNESS if opacity == 1)
        notes.append(f"Fainter lines and bars: pieces of fewer than {least} training rows.")
    if has_pairs:
        unsure = "" if bands is None else "; of hatched ones the refits do not agree on the sign"
        notes.append(f"Heat maps: fainter cells have fewer rows{unsure}.")
    return notes


def _short(number: float) -> str:
    return compact_number(float(f"{number:.2g}"))


# Layout -------------------------------------------------------------------------------------------------------------


def _new_panels(
    terms: Sequence[AnyTerm], n_cols: int | None, max_levels: int, has_header: bool, footnotes: Sequence[str]
) -> np.ndarray:
    """Axes in columns, with the footnotes below: each panel goes to the shortest column so far.

    Heights are multiples of one height, so that panels beside each other begin, and mostly end, on the same line.
    """
    from matplotlib import pyplot

    n_cols = min(3 if n_cols is None else check_int(n_cols, "n_cols", 1), len(terms))
    width = PANEL_WIDTH if n_cols > 1 else 1.4 * PANEL_WIDTH
    depths = np.zeros(n_cols)
    places = []
    for term in terms:
        n_rows, left, right, below = 0.0, LEFT, RIGHT, 0.0
        if isinstance(term, PairTerm):
            room = room_for_pair(term)
            n_rows, left, right, below = room.n_rows, room.left, room.right, room.below
        elif term.kind == "category":
            rows = category_rows(term, max_levels)
            n_rows = len(rows) + 1.2 * (term.missing_value is not None)
            left = max(LEFT, 0.15 + CHARACTER_WIDTH * max(len("missing"), *(len(row.text) for row in rows)))
        height = PANEL_HEIGHT * max(1, int(np.ceil((TOP + BOTTOM + below + 0.1 + ROW_HEIGHT * n_rows) / PANEL_HEIGHT)))
        c = int(np.argmin(depths))
        places.append((c, depths[c], left, right, below, height))
        depths[c] += height
    header = HEADER if has_header else 0.05
    lines = [line for note in footnotes for line in wrap(note, int((width * n_cols - 0.2) / CHARACTER_WIDTH))]
    total = (width * n_cols, depths.max() + header + LINE_HEIGHT * len(lines) + 0.08 * bool(lines))
    figure = pyplot.figure(figsize=total, dpi=120)
    if lines:
        place = (0.1 / total[0], 0.08 / total[1])
        figure.text(*place, "\n".join(lines), va="bottom", fontsize=TEXT_SIZE, color=QUIET_COLOR, gid="footnotes")
    panels = np.empty(len(terms), dtype=object)
    for i, (c, depth, left, right, below, height) in enumerate(places):
        bottom = total[1] - header - depth - height + BOTTOM + below
        size = (width - left - right, height - TOP - BOTTOM - below)
        panels[i] = figure.add_axes(
            ((c * width + left) / total[0], bottom / total[1], size[0] / total[0], size[1] / total[1])
        )
    return panels


def _left_of(panel: Axes) -> float:
    """Where the space of a panel begins, relative to its axes and in units of their width."""
    box = panel.get_position()
    width = cast("Figure", panel.figure).get_size_inches()[0]
    column = int(box.x0 * width / PANEL_WIDTH) if width > 1.5 * PANEL_WIDTH else 0
    return ((column * PANEL_WIDTH + 0.1) / width - box.x0) / box.width


def _write_below(panel: Axes, footnotes: Sequence[str]) -> None:
    """Footnotes below a panel of somebody else's figure."""
    panel.annotate(
        "\n".join(footnotes),
        (0.0, 0.0),
        (0, -34),
        xycoords="axes fraction",
        textcoords="offset points",
        va="top",
        fontsize=TEXT_SIZE,
        color=QUIET_COLOR,
        gid="footnotes",
    )


def _given_panels(axes: Any, n_terms: int) -> np.ndarray:
    panels = np.array(axes, dtype=object).ravel()
    if len(panels) < n_terms:
        raise ValueError(f"axes has {len(panels)} Axes; the {n_terms} terms need one each")
    return panels[:n_terms]


def _add_header(panels: np.ndarray, model: AdditiveModel, title: str, colors: list, own_figure: bool) -> None:
    from matplotlib.lines import Line2D

    figure = panels[0].figure
    height = figure.get_size_inches()[1]
    if title:
        figure.text(
            0.1 / figure.get_size_inches()[0],
            1 - 0.08 / height,
            title,
            va="top",
            fontsize=11,
            fontweight="bold",
            color=TRUE_COLOR,
        )
    if model.n_outputs == 1 or not colors:
        return
    handles = [
        Line2D([], [], color=color, linewidth=2.0, label=elided(str(n)))
        for n, color in zip(_class_names(model), colors, strict=True)
    ]
    options = {"frameon": False, "fontsize": TEXT_SIZE}
    if own_figure:
        n_fit = max(1, int(figure.get_size_inches()[0] / 1.1))
        figure.legend(handles=handles, loc="upper right", ncols=min(len(handles), n_fit), **options)
    else:
        panels[0].legend(handles=handles, **options)


@dataclass(frozen=True)
class Curve:
    """One learned table over the rows, and the true curve if that is known.

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
    """The step function through the points (x, values): its edges, and its level between neighbouring edges.

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
    """A grid of learned tables as steps, each with the true curve as a thin line where that is known.

    Parameters
    ----------
    curves : sequence of Curve
        One panel each; all share the scale of the vertical axis.
    title : str
        A heading over the grid.
    n_columns : int
        Panels per row.

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
    Figure = import_figure()
    n_columns = min(n_columns, len(curves))
    n_rows = -(-len(curves) // n_columns)
    # Built without pyplot, so that it needs no window system and leaves no global state behind.
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


def import_figure():
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
    set_titles(axes, curve.title, curve.note)
    tidy(axes)
    axes.margins(x=0.02)
