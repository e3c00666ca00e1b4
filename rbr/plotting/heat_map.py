"""A term of two columns on one matplotlib Axes: a heat map.

Colours are what a cell adds: one hue above 0, another one below, grey at 0. A cell in which rows are rare fades to
white, so that the density of the rows shows through. Numbers are on the scale on which their bins can be told apart, in
their own units; groups of categories are equally wide; missing values have a row or a column of their own, beside a
gap. Thin lines separate rectangles, and those with room for it say their value. With classes there is one small map for
each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rbr._text import short_numbers
from rbr.plotting.panels import CLASS_COLORS, LEARNED_COLOR, TEXT_SIZE, TRUE_COLOR, Scale, choose_scale, elided
from rbr.plotting.value_axis import QUIET_COLOR, apart, compact_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rbr.model.pairs import Axis, PairTerm

BELOW_COLOR, ZERO_COLOR, ABOVE_COLOR = CLASS_COLORS[1], "#e6e9ec", LEARNED_COLOR
# A bin of missing values and the gap before it, relative to the length of the axis without them.
MISSING_WIDTH, GAP = 0.1, 0.03
# How much of its colour a cell keeps that has hardly any rows.
# Of the lines over cells whose band includes zero.
HATCH_COLOR = "#00000055"

FAINTEST = 0.15
# From this part of the mean density of the rows on, a cell keeps all of its colour.
FULL_DENSITY = 0.25
# The narrowest half and nine tenths of the bins must fill these parts of an axis, or the next scale is tried. This is
# stricter than for curves, since thin cells are hard to see.
ROOM_NEEDED = {0.5: 0.15, 0.9: 0.35}
# Up to this many cuts, an axis has its ticks at the cuts.
FEW_CUTS = 6
# The smallest part of an axis between two cuts with ticks, whose numbers are longer than round ones.
ROOM_FOR_CUT = 0.16

# The smallest part of both axes that has room for a number.
ROOM_FOR_TEXT = (0.13, 0.075)
# If leaving out this share of the rows, those with the largest effects, more than halves the scale, colours end there.
FAR_SHARE = 0.02
LONGEST_GROUP = 20
# Letters that fit side by side below a map.
MOST_LETTERS = 30
# The colour bar, relative to the width of the map.
BAR_WIDTH, BAR_GAP = 0.05, 0.04
# Inches beside a map: for its bar with numbers and a label on the right, for numbers on the left, and for a letter.
RIGHT, LEFT, LETTER = 0.95, 0.62, 0.058


@dataclass(frozen=True)
class Side:
    """One axis as drawn, from 0 to 1 without missing values.

    starts, stops : where each bin begins and ends
    ticks, texts : places and labels
    """

    axis: Axis
    starts: np.ndarray
    stops: np.ndarray
    ticks: list[float]
    texts: list[str]

    @property
    def end(self) -> float:
        return float(self.stops[-1])


def sides_of(term: PairTerm, scales: Mapping[str, str], ranges: Mapping[int, tuple[float, float]]) -> list[Side]:
    """Both axes: the horizontal one, then the vertical one, which is the category with more groups if there is one.

    `scales` holds wishes by the name of the term or of a column, `ranges` the ends of columns where they are known.
    """
    sides = []
    for axis in _drawn(term):
        if axis.groups is not None:
            sides.append(_category_side(axis))
        else:
            wish = scales.get(axis.name, scales.get(term.name, "auto"))
            sides.append(_numeric_side(axis, wish, ranges.get(axis.column)))
    return sides


def is_transposed(term: PairTerm) -> bool:
    """Whether the first column is the vertical axis: names of categories have room there."""
    n_first, n_second = (0 if axis.groups is None else axis.n_ordered for axis in term.axes)
    return n_first > n_second


def _drawn(term: PairTerm) -> Sequence[Axis]:
    return term.axes[::-1] if is_transposed(term) else term.axes


def _with_missing(axis: Axis, ends: np.ndarray, ticks: list[float], texts: list[str]) -> Side:
    starts, stops = ends[:-1], ends[1:]
    if axis.has_missing:
        starts, stops = np.append(starts, 1 + GAP), np.append(stops, 1 + GAP + MISSING_WIDTH)
        ticks, texts = [*ticks, 1 + GAP + MISSING_WIDTH / 2], [*texts, "missing"]
    return Side(axis, starts, stops, ticks, texts)


def _category_side(axis: Axis) -> Side:
    n = axis.n_ordered
    ends = np.arange(n + 1) / n
    texts = [group_text(group) for group in axis.groups or ()]
    return _with_missing(axis, ends, [(k + 0.5) / n for k in range(n)], texts)


def group_text(group: tuple) -> str:
    """The levels of a group on a tick: all if they are short, else the first and how many more there are.

    >>> group_text(("Mon", "Tue")), group_text(("Wednesday", "Thursday", "Friday"))
    ('Mon, Tue', 'Wednesday +2')
    """
    text = ", ".join(map(str, group))
    if len(text) <= LONGEST_GROUP or len(group) == 1:
        return elided(text, LONGEST_GROUP)
    return f"{elided(str(group[0]), LONGEST_GROUP - 3)} +{len(group) - 1}"


def _numeric_side(axis: Axis, wish: str, ends: tuple[float, float] | None) -> Side:
    edges = with_ends(axis.edges, ends)
    scale = readable_scale(edges, wish)
    low, high = scale.forward(edges[[0, -1]])

    def place(x: Any) -> np.ndarray:
        return (scale.forward(np.asarray(x, dtype=np.float64)) - low) / (high - low)

    if len(axis.edges) == 0:
        return _with_missing(axis, np.array([0.0, 1.0]), [0.5], ["any"])
    ticks, texts = _ticks(axis.edges, edges, scale)
    return _with_missing(axis, place(edges), place(ticks).tolist(), texts)


def readable_scale(edges: np.ndarray, wish: str) -> Scale:
    """The scale that is asked for; by default linear, logarithmic or by rank, the first on which no bin is too thin."""
    for name in ("linear", "log") if wish == "auto" else ():
        scale = choose_scale(edges, name)
        filled = np.cumsum(np.sort(np.diff(scale.forward(edges))))
        n_narrow = {part: int(part * len(filled)) for part in ROOM_NEEDED}
        if all(n == 0 or filled[n - 1] >= ROOM_NEEDED[part] * filled[-1] for part, n in n_narrow.items()):
            return scale
    return choose_scale(edges, "rank" if wish == "auto" else wish)


def with_ends(edges: np.ndarray, ends: tuple[float, float] | None) -> np.ndarray:
    """The edges between finite ends: those of the column if known, else about as far out as the cuts are apart.

    >>> import numpy as np
    >>> with_ends(np.array([2.0, 4.0]), None), with_ends(np.array([2.0]), (0.0, 9.0))
    (array([1., 2., 4., 5.]), array([0., 2., 9.]))
    """
    if len(edges) == 0:
        return np.array([0.0, 1.0])
    span = edges[-1] - edges[0] if len(edges) > 1 else max(abs(float(edges[0])), 1.0)
    gaps = np.diff(edges) if len(edges) > 1 else np.array([span])
    low, high = edges[0] - min(span / 2, 3 * gaps[0]), edges[-1] + min(span / 2, 3 * gaps[-1])
    if ends is not None:
        least = 0.02 * (ends[1] - ends[0])
        low = ends[0] if ends[0] < edges[0] else edges[0] - least
        high = ends[1] if ends[1] > edges[-1] else edges[-1] + least
    if edges[0] > 0 >= low and (ends is None or ends[0] > 0):
        low = edges[0] / 2  # a column of positive numbers stays one
    return np.concatenate([[low], edges, [high]])


def _ticks(cuts: np.ndarray, edges: np.ndarray, scale: Scale) -> tuple[list[float], list[str]]:
    """Ticks at the cuts if these are few; else at round numbers, or on a scale by rank at some of the cuts."""
    from matplotlib.ticker import MaxNLocator

    ends = edges[[0, -1]]
    if len(cuts) <= FEW_CUTS or scale.name == "rank":
        chosen = cuts[np.unique(np.linspace(0, len(cuts) - 1, FEW_CUTS).round().astype(int))]
        ticks = apart(chosen, ends, scale.forward, least=ROOM_FOR_CUT)
        labels = dict(zip(chosen.tolist(), short_numbers(chosen), strict=True))
        return ticks, [_compact(labels[tick], tick) for tick in ticks]
    if scale.name == "linear":
        ticks = apart(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(*ends), ends, scale.forward)
    else:
        round_numbers = np.outer(10.0 ** np.arange(-9, 13), [1, 3]).ravel()
        tens = round_numbers[::2]
        ticks = apart([0.0, *tens, *-tens, *round_numbers, *-round_numbers], ends, scale.forward)
    return ticks, [compact_number(tick) for tick in ticks]


def _signed(value: float, largest: float) -> str:
    """Two digits of a value; next to nothing beside the largest is 0.

    >>> _signed(0.839, 5.5), _signed(-6.8e-5, 5.5)
    ('+0.84', '0')
    """
    return f"{value:+.2g}" if abs(value) >= 1e-3 * largest else "0"


def _compact(short: str, number: float) -> str:
    """The shorter of two ways to write a number that has been rounded already."""
    other = compact_number(float(short))
    return other if len(other) < len(short) and abs(number) >= 1e4 else short


@dataclass(frozen=True)
class Room:
    """What a heat map needs: rows of text, and inches on three sides, below beside those that every panel has."""

    n_rows: float
    left: float
    right: float
    below: float


def room_for_pair(term: PairTerm) -> Room:
    across, up = sides_of(term, {}, {})
    n_rows = 16.0 if term.n_outputs > 1 else 0.0
    if up.axis.groups is not None:
        n_rows = max(n_rows, up.axis.n_bins)
    left = max(LEFT, 0.35 + LETTER * max(map(len, up.texts), default=0))
    below = LETTER * max(map(len, across.texts)) if is_upright(across) else 0.0
    return Room(n_rows, left, RIGHT, below)


def is_upright(side: Side) -> bool:
    """Whether the names of categories on the horizontal axis are too long to be written side by side."""
    return side.axis.groups is not None and side.axis.n_bins * max(map(len, side.texts)) > MOST_LETTERS


# Colours ------------------------------------------------------------------------------------------------------------


def color_limit(term: PairTerm) -> float:
    """The effect at which colours end: the largest one, or without a few rows if that more than halves it."""
    sizes = np.abs(term.all_values)
    weights = np.repeat(term.weights.ravel(), term.n_outputs)
    order = np.argsort(sizes.ravel(), kind="stable")
    below = np.cumsum(weights[order])
    last = min(int(np.searchsorted(below, (1 - FAR_SHARE) * below[-1])), len(order) - 1)
    largest, most = float(sizes.max()), float(sizes.ravel()[order[last]])
    return (most if 0 < most < largest / 2 else largest) or 1.0


def color_map() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("effects", [BELOW_COLOR, ZERO_COLOR, ABOVE_COLOR])


def strengths(shares: np.ndarray, areas: np.ndarray) -> np.ndarray:
    """How much of its colour each cell keeps: all unless rows are rare, little where there are none."""
    mean = shares.sum() / areas.sum()
    density = shares / (areas * (mean or 1.0))
    return FAINTEST + (1 - FAINTEST) * np.sqrt(np.minimum(density / FULL_DENSITY, 1.0))


# Drawing ------------------------------------------------------------------------------------------------------------


def right_end(axes: Axes) -> float:
    """Where the label of the colour bar ends, in widths of the map."""
    box = axes.get_window_extent()
    return 1 + (RIGHT - 0.1) * axes.figure.dpi / box.width


def draw_pair(
    axes: Axes,
    term: PairTerm,
    sides: Sequence[Side],
    label: str,
    limit: float,
    names: Sequence,
    band: tuple[np.ndarray, np.ndarray] | None = None,
) -> None:
    """Draw a pair. `label` says what the values are, `names` are those of the classes if there are several.

    Cells whose band includes zero are hatched: (low, high) by cell and output.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    colors = ScalarMappable(Normalize(-limit, limit), color_map())
    grids = term.values.reshape(*term.shape, -1)
    is_unsure = np.zeros(grids.shape, dtype=bool)
    if band is not None:
        is_unsure = ((band[0] <= 0) & (band[1] >= 0)).reshape(grids.shape)
    if term.n_outputs == 1:
        _draw_map(axes, term, grids[:, :, 0], is_unsure[:, :, 0], sides, colors)
    else:
        _draw_classes(axes, term, grids, is_unsure, sides, colors, names)
    is_far = np.abs(term.values).max() > limit
    bar = axes.inset_axes((1 + BAR_GAP, 0.0, BAR_WIDTH, 1.0))
    bar.set_gid("colour bar")
    figure = axes.figure
    figure.colorbar(colors, cax=bar, extend="both" if is_far else "neither")
    bar.tick_params(labelsize=TEXT_SIZE, colors=QUIET_COLOR, length=2)
    bar.yaxis.set_major_formatter(lambda x, _: compact_number(float(f"{x:.6g}")))
    bar.set_ylabel(label, fontsize=TEXT_SIZE, color=QUIET_COLOR)
    for spine in bar.spines.values():
        spine.set_visible(False)


def _draw_classes(axes: Axes, term: PairTerm, grids, is_unsure, sides, colors, names: Sequence) -> None:
    """Small maps side by side, one for each class, with their names above them."""
    axes.set_axis_off()
    n_columns = int(np.ceil(np.sqrt(term.n_outputs)))
    n_rows = -(-term.n_outputs // n_columns)
    for c, name in enumerate(names):
        row, column = divmod(c, n_columns)
        width, height = 1 / n_columns, 1 / n_rows
        small = axes.inset_axes(
            (column * width, 1 - (row + 1) * height, width * (0.94 if column + 1 < n_columns else 1), height * 0.86)
        )
        _draw_map(small, term, grids[:, :, c], is_unsure[:, :, c], sides, colors, is_small=True)
        small.set_title(elided(str(name), 16), fontsize=TEXT_SIZE, color=QUIET_COLOR, pad=2)
        small.tick_params(labelsize=TEXT_SIZE - 1, colors=QUIET_COLOR, length=2)
        if column > 0:
            small.set_yticks([])
            small.set_ylabel("")
        if c + n_columns < term.n_outputs:
            small.set_xticks([])
        if c + n_columns < term.n_outputs or column > 0:
            small.set_xlabel("")


def _draw_map(
    axes: Axes,
    term: PairTerm,
    values: np.ndarray,
    is_unsure: np.ndarray,
    sides: Sequence[Side],
    colors,
    is_small: bool = False,
) -> None:
    from matplotlib.collections import LineCollection, PolyCollection

    across, up = sides
    labels, shares = term.labels, term.weights
    if not is_transposed(term):  # the first axis of an array goes down a page
        values, is_unsure, labels, shares = values.T, is_unsure.T, labels.T, shares.T
    widths, heights = across.stops - across.starts, up.stops - up.starts
    fill = colors.to_rgba(values)
    strength = strengths(shares, np.outer(heights, widths))[:, :, None]
    fill[:, :, :3] = 1 - strength * (1 - fill[:, :, :3])
    y0, x0 = (a.ravel() for a in np.meshgrid(up.starts, across.starts, indexing="ij"))
    y1, x1 = (a.ravel() for a in np.meshgrid(up.stops, across.stops, indexing="ij"))
    corners = np.stack([np.column_stack(corner) for corner in ((x0, y0), (x1, y0), (x1, y1), (x0, y1))], axis=1)
    cells = PolyCollection(
        list(corners), facecolors=fill.reshape(-1, 4), edgecolors="face", linewidths=0.2, gid="cells"
    )
    axes.add_collection(cells, autolim=False)
    if is_unsure.any():
        own: dict[str, Any] = {"facecolors": "none", "edgecolors": HATCH_COLOR, "linewidths": 0, "hatch": "////"}
        axes.add_collection(PolyCollection(list(corners[is_unsure.ravel()]), gid="unsure", **own), autolim=False)
    if not term.is_surface:
        lines = borders(labels, across, up)
        axes.add_collection(LineCollection(lines, colors="white", linewidths=0.8, gid="borders"), autolim=False)
        if not is_small:
            _write_values(axes, values, labels, across, up, fill)
    _set_axes(axes, across, up)
    if is_small and across.axis.groups is None and len(across.ticks) > 3:
        kept = range(0, len(across.ticks), 2)
        axes.set_xticks([across.ticks[k] for k in kept], [across.texts[k] for k in kept])


def borders(labels: np.ndarray, across: Side, up: Side) -> list[list[tuple[float, float]]]:
    """The lines between neighbouring cells of different rectangles; none beside a gap."""
    lines = []
    for i, j in zip(*np.nonzero(labels[:, 1:] != labels[:, :-1]), strict=True):
        if across.stops[j] == across.starts[j + 1]:
            lines.append([(across.stops[j], up.starts[i]), (across.stops[j], up.stops[i])])
    for i, j in zip(*np.nonzero(labels[1:] != labels[:-1]), strict=True):
        if up.stops[i] == up.starts[i + 1]:
            lines.append([(across.starts[j], up.stops[i]), (across.stops[j], up.stops[i])])
    return lines


def _write_values(axes: Axes, values: np.ndarray, labels: np.ndarray, across: Side, up: Side, fill) -> None:
    """The value of each rectangle, in its middle, if there is room."""
    for label in np.unique(labels):
        rows, columns = np.nonzero(labels == label)
        if len(rows) != (np.ptp(rows) + 1) * (np.ptp(columns) + 1):
            continue
        x = across.starts[columns.min()], across.stops[columns.max()]
        y = up.starts[rows.min()], up.stops[rows.max()]
        if x[1] - x[0] < ROOM_FOR_TEXT[0] * across.end or y[1] - y[0] < ROOM_FOR_TEXT[1] * up.end:
            continue
        is_dark = float(fill[rows, columns, :3].mean(axis=0) @ [0.299, 0.587, 0.114]) < 0.6
        axes.text(
            sum(x) / 2,
            sum(y) / 2,
            _signed(values[rows[0], columns[0]], np.abs(values).max()),
            ha="center",
            va="center",
            fontsize=TEXT_SIZE - 1,
            color="white" if is_dark else TRUE_COLOR,
            gid="value",
        )


def _set_axes(axes: Axes, across: Side, up: Side) -> None:
    axes.set_xlim(0.0, across.end)
    # The first group of a category is at the top, as in a list.
    axes.set_ylim((up.end, 0.0) if up.axis.groups is not None else (0.0, up.end))
    axes.set_xticks(across.ticks, across.texts)
    axes.set_yticks(up.ticks, up.texts)
    if is_upright(across):
        axes.tick_params(axis="x", labelrotation=90)
    for spine in axes.spines.values():
        spine.set_visible(False)
    quiet: dict[str, Any] = {"fontsize": TEXT_SIZE, "color": QUIET_COLOR, "labelpad": 2}
    axes.set_xlabel(elided(across.axis.name, 24), **quiet)
    axes.set_ylabel(elided(up.axis.name, 24), **quiet)
