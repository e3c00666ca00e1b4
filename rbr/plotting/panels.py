"""One term on one matplotlib Axes: a panel of the plot of a model.

A constant piece of a numeric term is one horizontal segment from its first edge to its last. A line in x is straight on
a linear axis; a line over ranks passes through the values of its bins, with steps where it is steep. Jumps are thin
verticals. Below is a strip with the density of the training rows. Categories are rows of a bar chart, and levels that
share a value share one bar. Missing values have a separate place at the end of the axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import TYPE_CHECKING

import numpy as np

from rbr._text import one_line, short_numbers
from rbr.plotting.value_axis import QUIET_COLOR, ValueScale, apart, compact_number, set_value_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rbr.model.terms import Term

LEARNED_COLOR = "#d1495b"
TRUE_COLOR = "#22333b"
CLASS_COLORS = ("#d1495b", "#00798c", "#edae49", "#5f4b8b", "#66a182", "#8d5a3b", "#2e4057", "#c879ff")

# The fewest training rows of a piece, and how opaque it is drawn.
LOUDNESS = ((100, 1.0), (30, 0.65), (10, 0.45), (0, 0.28))
# Pieces of fewer rows are narrower, too.
FEW_ROWS = 30

X_SCALES = ("auto", "linear", "log", "rank")

# Where a line changes from one bin to the next by more than this part of the term's range, it is drawn as a step: the
# two bins of a yes/no column are not a slope.
STEEP = 0.05
# The narrowest half and nine tenths of the bins must fill these parts of an axis, or the next scale is tried.
ROOM_NEEDED = {0.5: 0.05, 0.9: 0.2}
# With up to this many bins, each has a tick.
FEW_BINS = 7
STRIP_HEIGHT = 0.08
MISSING_ROOM = 0.12
LONGEST_NAME = 28
# If names are long, a beginning of at least this length that they all share is left out.
SHORTEST_PREFIX = 6
TEXT_SIZE = 7


@dataclass(frozen=True)
class View:
    """How a panel is drawn.

    values : the scale of the values
    label : what the values are
    colors : one per score column
    x_scale : one of X_SCALES
    max_levels : up to this many categories are all shown one by one
    """

    values: ValueScale
    label: str
    colors: Sequence[str]
    x_scale: str
    max_levels: int


# What every picture shares ------------------------------------------------------------------------------------------


def tidy(axes: Axes) -> None:
    """Small grey ticks, and only two spines."""
    axes.tick_params(labelsize=TEXT_SIZE, colors=QUIET_COLOR, length=2)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(QUIET_COLOR)


def set_titles(axes: Axes, title: str, note: str, x: float = 0.0) -> None:
    """A title that begins at x, in widths of the axes, and a small note on the right."""
    axes.set_title(title, loc="left", x=x, fontsize=9, color=TRUE_COLOR)
    axes.set_title(note, loc="right", fontsize=TEXT_SIZE, color=QUIET_COLOR)


def elided(text: str, longest: int = LONGEST_NAME) -> str:
    """The text on one line, with its middle left out if it is long, because long names often differ at the end.

    Examples
    --------
    >>> from rbr.plotting.panels import elided
    >>> elided("Married-civ-spouse"), elided("a very long name of a department in Lyon")
    ('Married-civ-spouse', 'a very long name …nt in Lyon')
    """
    text = one_line(" ".join(text.split()) or repr(text))
    # A dollar sign would start a formula.
    return _without_middle(text, longest).replace("$", r"\$")


def _without_middle(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    n_tail = (longest - 1) * 2 // 5
    return f"{text[: longest - 1 - n_tail]}…{text[len(text) - n_tail :]}"


# Numbers ------------------------------------------------------------------------------------------------------------


def outer_edges(term: Term) -> np.ndarray:
    """The edges of all bins of a numeric term, with finite ends.

    Where an end piece is a line in x, its end is that of the training range. Otherwise the model knows the mean of the
    end bin, but not its outer end, which is taken to be as far from the mean as the inner one is.
    """
    positions, edges = term.positions, term.edges
    if len(edges) == 0:
        return np.array([positions[0] - 0.5, positions[0] + 0.5])
    first, last = min(positions[0], edges[0]), max(positions[-1], edges[-1])
    low, high = 2 * first - edges[0], 2 * last - edges[-1]
    if low <= 0 < first:
        low = first * first / edges[0]  # the same ratio instead, which keeps the end positive
    low = term.bounds[0, 0] if np.isfinite(term.bounds[0, 0]) else low
    high = term.bounds[-1, 1] if np.isfinite(term.bounds[-1, 1]) else high
    gap = edges[-1] - edges[0] or 1.0
    low = low if low < edges[0] else edges[0] - 0.05 * gap
    high = high if high > edges[-1] else edges[-1] + 0.05 * gap
    return np.concatenate([[low], edges, [high]])


@dataclass(frozen=True)
class Scale:
    """A scale of the x axis: its name, options for matplotlib, and the map and its inverse as functions."""

    name: str
    options: dict
    forward: Callable[[np.ndarray], np.ndarray]
    inverse: Callable[[np.ndarray], np.ndarray]

    def is_crowded(self, edges: np.ndarray) -> bool:
        """Whether a few bins take so much of the axis that the others cannot be told apart."""
        filled = np.cumsum(np.sort(np.diff(self.forward(edges))))
        n_narrow = {part: int(part * len(filled)) for part in ROOM_NEEDED}
        return any(n > 0 and filled[n - 1] < ROOM_NEEDED[part] * filled[-1] for part, n in n_narrow.items())


def choose_scale(edges: np.ndarray, wish: str = "auto") -> Scale:
    """The scale of x: linear if the bins can be told apart on it, else logarithmic, else by rank.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.plotting.panels import choose_scale
    >>> choose_scale(np.arange(10.0)).name, choose_scale(10.0 ** np.arange(10)).name
    ('linear', 'log')
    >>> choose_scale(np.append(0.0, 1900.0 + np.arange(100))).name
    'rank'
    """
    if wish == "linear":
        return _linear_scale()
    if wish == "log":
        return _log_scale(edges)
    if wish == "auto":
        for scale in (_linear_scale(), _log_scale(edges)):
            if not scale.is_crowded(edges):
                return scale
    return _rank_scale(edges)


def _linear_scale() -> Scale:
    return Scale("linear", {}, lambda x: x, lambda u: u)


def _log_scale(edges: np.ndarray) -> Scale:
    """Logarithmic; with zero or negative numbers linear around zero, up to about the smallest other edges."""
    if edges[0] > 0:
        return Scale("log", {}, np.log10, lambda u: 10.0**u)
    sizes = np.abs(edges[edges != 0])
    near = float(10 ** np.floor(np.log10(np.quantile(sizes, 0.1))))

    def forward(x):
        return np.sign(x) * np.where(
            np.abs(x) <= near, 0.5 * np.abs(x) / near, 0.5 + np.log10(np.maximum(np.abs(x), near) / near)
        )

    def inverse(u):
        return np.sign(u) * near * np.where(np.abs(u) <= 0.5, 2 * np.abs(u), 10.0 ** (np.abs(u) - 0.5))

    return Scale("symlog", {"functions": (forward, inverse), "near": near}, forward, inverse)


def _rank_scale(edges: np.ndarray) -> Scale:
    """A scale on which all bins are equally wide."""
    places = np.arange(len(edges), dtype=np.float64)
    # The end bins are continued beyond the ends, so that the scale has an inverse there.
    x = np.concatenate([[2 * edges[0] - edges[1]], edges, [2 * edges[-1] - edges[-2]]])
    u = np.concatenate([[-1.0], places, [len(edges)]])

    def forward(values):
        return np.interp(values, x, u)

    def inverse(values):
        return np.interp(values, u, x)

    return Scale("rank", {"functions": (forward, inverse)}, forward, inverse)


def runs_of(labels: np.ndarray) -> list[tuple[int, int]]:
    """The runs start <= k < stop of equal labels."""
    cuts = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(labels)]
    return list(zip(cuts[:-1], cuts[1:], strict=True))


def loudness(rows: float) -> float:
    """How opaque a piece of some training rows is drawn: what its rows can say decides.

    Examples
    --------
    >>> from rbr.plotting.panels import loudness
    >>> [loudness(rows) for rows in (2000, 50, 20, 3)]
    [1.0, 0.65, 0.45, 0.28]
    """
    return next(opacity for least, opacity in LOUDNESS if rows >= least)


def has_faint_pieces(term: Term) -> bool:
    """Whether some piece of a term is drawn less loudly than others."""
    return any(loudness(float(term.rows[list(piece.bins)].sum())) < 1 for piece in term.pieces)


def piece_paths(term: Term, output: int, edges: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """(points, training rows) of each drawn piece of one score column, from left to right."""
    positions = np.clip(term.positions, edges[:-1], edges[1:])
    column, slopes = (a.reshape(term.n_ordered, -1)[:, output] for a in (term.values, term.slopes))
    paths = []
    for start, stop in runs_of(term.labels):
        rows = float(term.rows[start:stop].sum())
        if term.labels[start] % 2 == 0:
            paths.append((np.array([[edges[start], column[start]], [edges[stop], column[start]]]), rows))
            continue
        if slopes[start]:
            # Many points, because on a logarithmic axis a line is curved.
            x = np.sort(np.concatenate([edges[start : stop + 1], positions[start:stop]]))
            y = column[start] + slopes[start] * (np.clip(x, *term.bounds[start]) - term.positions[start])
            paths.append((np.column_stack([x, y]), rows))
            continue
        steep = np.abs(np.diff(column[start:stop])) > STEEP * np.ptp(column)
        for a, b in runs_of(np.cumsum(np.concatenate([[0], steep]))):
            a, b = start + a, start + b
            x = np.concatenate([edges[a : a + 1], positions[a:b], edges[b : b + 1]])
            y = np.concatenate([column[a : a + 1], column[a:b], column[b - 1 : b]])
            paths.append((np.column_stack([x, y]), rows))
    return paths


def draw_numeric(axes: Axes, term: Term, view: View, band: tuple[np.ndarray, np.ndarray] | None = None) -> None:
    """Draw a numeric term; `band` holds the low and high end of each bin, in the shape of `all_values`."""
    edges = outer_edges(term)
    scale = choose_scale(edges, view.x_scale)
    _set_x_axis(axes, scale, edges, term)
    set_value_axis(axes, "y", view.values, 0.14, 0.06)
    _draw_density(axes, term, edges, scale)
    n = term.n_ordered
    for c in range(term.n_outputs):
        if band is not None:
            low, high = (end[:n, c] for end in band)
            axes.stairs(
                high, edges, baseline=low, fill=True, color=view.colors[c], alpha=0.2, linewidth=0, zorder=1, gid="band"
            )
        _draw_pieces(axes, piece_paths(term, c, edges), view.colors[c])
    if term.missing_value is not None:
        _mark_missing(axes, term, view, band)
    axes.set_ylabel(view.label, fontsize=TEXT_SIZE, color=QUIET_COLOR)


def _set_x_axis(axes: Axes, scale: Scale, edges: np.ndarray, term: Term) -> None:
    from matplotlib.ticker import (
        FixedFormatter,
        FixedLocator,
        FuncFormatter,
        MaxNLocator,
        NullLocator,
        SymmetricalLogLocator,
    )

    if scale.options:
        axes.set_xscale("function", functions=scale.options["functions"])
    else:
        axes.set_xscale(scale.name)
    low, high = scale.forward(edges[[0, -1]])
    room = MISSING_ROOM * (high - low) if term.missing_value is not None else 0.0
    margin = 0.02 * (high - low)
    axes.set_xlim(*scale.inverse(np.array([low - margin, high + margin + room])))
    places = np.clip(term.positions, edges[:-1], edges[1:])
    if scale.name == "rank":
        places = places[np.unique(np.linspace(0, term.n_ordered - 1, 5).round().astype(int))]
        axes.xaxis.set_major_locator(FixedLocator(places))
        axes.xaxis.set_major_formatter(FixedFormatter(short_numbers(places)))
    elif scale.name == "symlog":
        decades = SymmetricalLogLocator(base=10, linthresh=scale.options["near"]).tick_values(*edges[[0, -1]])
        axes.xaxis.set_major_locator(FixedLocator(apart(sorted(decades, key=abs), edges[[0, -1]], scale.forward)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: compact_number(x)))
    elif scale.name == "log":
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: compact_number(x)))
        if high - low < 1.5:
            axes.xaxis.set_major_locator(FixedLocator(_log_ticks(*edges[[0, -1]])))
    else:
        few = term.n_ordered <= FEW_BINS
        ticks = places if few else MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(*edges[[0, -1]])
        axes.xaxis.set_major_locator(FixedLocator(apart(ticks, edges[[0, -1]], scale.forward)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: compact_number(x)))
    axes.xaxis.set_minor_locator(NullLocator())


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    return [m * 10.0**d for d in decades for m in (1, 2, 5) if low <= m * 10.0**d <= high]


def _draw_density(axes: Axes, term: Term, edges: np.ndarray, scale: Scale) -> None:
    """The density of the training rows on the axis as drawn, as a low strip; its cube root, so that tails show."""
    widths = np.diff(scale.forward(edges))
    density = np.cbrt(np.divide(term.shares[: term.n_ordered], widths, out=np.zeros_like(widths), where=widths > 0))
    heights = STRIP_HEIGHT * density / (density.max() or 1.0)
    axes.stairs(
        heights,
        edges,
        fill=True,
        color=QUIET_COLOR,
        alpha=0.55,
        linewidth=0,
        transform=axes.get_xaxis_transform(),
        zorder=0.5,
        gid="density",
    )


def _draw_pieces(axes: Axes, paths: list[tuple[np.ndarray, float]], color: str) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    jumps, jump_colors = [], []
    for (left, left_rows), (right, right_rows) in zip(paths[:-1], paths[1:], strict=True):
        if left[-1, 1] != right[0, 1]:
            jumps.append(np.array([left[-1], right[0]]))
            opacity = loudness(min(left_rows, right_rows))  # of a jump to a few rows little is known
            jump_colors.append(to_rgba(color, 0.7 * opacity if opacity == 1 else 0.4 * opacity))
    axes.add_collection(LineCollection(jumps, colors=jump_colors, linewidths=0.7, zorder=2, gid="jumps"), autolim=False)
    colors = [to_rgba(color, loudness(rows)) for _, rows in paths]
    widths = [2.0 if rows >= FEW_ROWS else 1.2 for _, rows in paths]
    points = [points for points, _ in paths]
    axes.add_collection(
        LineCollection(points, colors=colors, linewidths=widths, capstyle="butt", zorder=3, gid="pieces"), autolim=False
    )


def _mark_missing(axes: Axes, term: Term, view: View, band) -> None:
    """Mark the value of missing values in a separate place at the right end of the axis."""
    place = 1.0 - 0.4 * MISSING_ROOM
    on_axes = axes.get_yaxis_transform()
    axes.axvline(
        axes.transData.inverted().transform(axes.transAxes.transform((1.0 - 0.85 * MISSING_ROOM, 0.0)))[0],
        color=QUIET_COLOR,
        linewidth=0.6,
        linestyle=":",
    )
    for c, value in enumerate(np.atleast_1d(np.asarray(term.missing_value))):
        if band is not None:
            axes.plot([place] * 2, [end[-1, c] for end in band], color=view.colors[c], alpha=0.4, transform=on_axes)
        axes.plot(
            [place],
            [value],
            "D",
            color=view.colors[c],
            markersize=4,
            transform=on_axes,
            zorder=4,
            gid="missing",
        )
    axes.annotate(
        f"missing\n{percent(term.shares[-1])}",
        (place, 0.0),
        (0, -4),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="center",
        va="top",
        fontsize=6,
        color=QUIET_COLOR,
    )


def percent(share: float) -> str:
    """A share of the rows: 12%, 0.4%, <0.1%.

    Examples
    --------
    >>> from rbr.plotting.panels import percent
    >>> percent(0.123), percent(0.004), percent(1e-5), percent(0.0)
    ('12%', '0.4%', '<0.1%', '0%')
    """
    if share == 0:
        return "0%"
    if share < 0.001:
        return "<0.1%"
    return f"{share:.1%}" if share < 0.01 else f"{share:.0%}"


# Categories ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One line of a panel of categories: its text, the bins it stands for, and the number of the bar they share."""

    text: str
    bins: tuple[int, ...]
    bar: int


def category_rows(term: Term, max_levels: int) -> list[Row]:
    """The rows of a panel, from the top: highest value first, fused levels together, the most frequent of them first.

    Ordered categories, whose pieces are ranges, keep their order. If there are more than `max_levels` levels, only the
    most frequent of each piece (of ordered categories the first) are shown, and its other levels share one row.
    """
    pieces = list(term.pieces)
    if term.grouped or len(pieces) == term.n_ordered:
        values = term.values.reshape(term.n_ordered, -1)
        # With classes, sort by the class in which the values differ most.
        key = values[:, np.argmax(np.ptp(values, axis=0))]
        pieces.sort(key=lambda piece: -key[piece.start])
    rows: list[Row] = []
    names = _level_names(term)
    n_bars = 0
    for piece in pieces:
        bins = list(piece.bins)
        if term.grouped:
            bins.sort(key=lambda k: -term.shares[k])
        n_shown = len(bins)
        if term.n_ordered > max_levels and piece.kind != "line":
            n_shown = max(1, int(max_levels * len(bins) / term.n_ordered))
        if len(bins) - n_shown == 1:
            n_shown = len(bins)
        # Each level of a line has its own value.
        own = int(piece.kind == "line")
        rows.extend(Row(names[k], (k,), n_bars + own * i) for i, k in enumerate(bins[:n_shown]))
        if bins[n_shown:]:
            rows.append(Row(f"… {len(bins) - n_shown} more", tuple(bins[n_shown:]), n_bars))
        n_bars += len(bins) if own else 1
    return rows


def _level_names(term: Term) -> list[str]:
    names = [str(category) for category in term.categories or ()] or ["no category"]
    prefix = commonprefix(names) if len(names) > 1 else ""
    if len(prefix) >= SHORTEST_PREFIX and max(map(len, names)) > LONGEST_NAME:
        names = [f"…{name[len(prefix) :]}" for name in names]
    return [elided(name) for name in names]


def draw_categories(axes: Axes, term: Term, view: View, band: tuple[np.ndarray, np.ndarray] | None = None) -> None:
    """Draw a categorical term as horizontal bars; `band` as in `draw_numeric`."""
    rows = category_rows(term, view.max_levels)
    n_rows = len(rows)
    set_value_axis(axes, "x", view.values, 0.06, 0.06)
    axes.set_ylim(n_rows - 0.4 + 1.2 * (term.missing_value is not None), -0.6)
    for start, stop in runs_of(np.array([row.bar for row in rows])):
        n_training = float(term.rows[[k for row in rows[start:stop] for k in row.bins]].sum())
        _draw_level(axes, term.all_values[rows[start].bins[0]], start, stop, view.colors, loudness(n_training))
    places: list[float] = list(range(n_rows))
    texts, shares = [row.text for row in rows], [row.bins for row in rows]
    if term.missing_value is not None:
        place = n_rows + 0.2
        axes.axhline(n_rows - 0.4, color=QUIET_COLOR, linewidth=0.6, linestyle=":")
        for c, value in enumerate(np.atleast_1d(term.missing_value)):
            axes.plot([value], [place], "D", color=view.colors[c], markersize=4, zorder=4, gid="missing")
        places, texts, shares = [*places, place], [*texts, "missing"], [*shares, (term.n_ordered,)]
    if band is not None:
        _draw_whiskers(axes, places, shares, band, view.colors)
    axes.set_yticks(places, texts)
    for place, bins in zip(places, shares, strict=True):
        axes.text(
            1.01,
            place,
            percent(float(term.shares[list(bins)].sum())),
            transform=axes.get_yaxis_transform(),
            fontsize=6,
            color=QUIET_COLOR,
            va="center",
            gid="share",
        )
    axes.set_xlabel(view.label, fontsize=TEXT_SIZE, color=QUIET_COLOR, labelpad=2)


def _draw_level(axes: Axes, values: np.ndarray, start: int, stop: int, colors: Sequence[str], opacity: float) -> None:
    """The bar of the levels in the rows start <= row < stop, which share their values; with classes a mark for each."""
    middle, height = (start + stop - 1) / 2, stop - start - 0.3
    ends = (middle - height / 2, middle + height / 2)
    if len(values) == 1:
        axes.barh([middle], values, height, color=_pale(colors[0], 0.3 * opacity), zorder=2, gid="level")
    else:
        axes.plot([values.min(), values.max()], [middle] * 2, color=QUIET_COLOR, linewidth=0.5, alpha=0.5, zorder=1)
    for value, color in zip(values, colors, strict=True):
        pale = _pale(color, opacity)
        axes.plot([value] * 2, ends, color=pale, linewidth=2.0, solid_capstyle="butt", zorder=3, gid="pieces")


def _pale(color, strength: float) -> tuple[float, ...]:
    """The colour mixed with white; unlike a transparent colour it looks the same on every background."""
    from matplotlib.colors import to_rgb

    return tuple(strength * part + 1 - strength for part in to_rgb(color))


def _draw_whiskers(axes: Axes, places, shares, band, colors) -> None:
    for place, bins in zip(places, shares, strict=True):
        low, high = (end[list(bins)] for end in band)
        for c, color in enumerate(colors):
            axes.plot(
                [low[:, c].min(), high[:, c].max()], [place] * 2, color=color, linewidth=0.9, zorder=2.5, gid="band"
            )
