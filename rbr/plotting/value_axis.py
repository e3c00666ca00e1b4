"""The axis of effects: what a term adds to the score, linear for most rows and bent for the few far ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rbr.model.terms import Term

# The low and the high end of each bin of a term, in the shape of `Term.all_values`.
Band: TypeAlias = tuple[np.ndarray, np.ndarray]

QUIET_COLOR = "#8d99a6"
FAR_COLOR = "#f1f3f5"
# This share of the rows, where a band is furthest out, does not decide how far the axis reaches.
FEW_ROWS_SHARE = 0.002


@dataclass(frozen=True)
class ValueScale:
    """The scale of values: linear from `inner[0]` to `inner[1]`, logarithmic from there to the ends of `whole`."""

    whole: tuple[float, float]
    inner: tuple[float, float]

    @property
    def bend(self) -> float:
        """The distance outside `inner` at which the slope of the scale has fallen to a half."""
        return 0.15 * (self.inner[1] - self.inner[0])

    def forward(self, y):
        low, high = self.inner
        over, under = np.maximum(np.subtract(y, high), 0.0), np.maximum(np.subtract(low, y), 0.0)
        return np.clip(y, low, high) + self.bend * (np.log1p(over / self.bend) - np.log1p(under / self.bend))

    def inverse(self, u):
        low, high = self.inner
        # An interactive window may ask for places far outside of what is drawn; the limit avoids overflow.
        over, under = (np.clip(x / self.bend, 0.0, 500.0) for x in (np.subtract(u, high), np.subtract(low, u)))
        return np.clip(u, low, high) + self.bend * (np.expm1(over) - np.expm1(under))

    def padded(self, below: float, above: float) -> tuple[float, float]:
        """The limits of the axis, with margins at both ends as fractions of its length."""
        low, high = self.forward(np.array(self.whole))
        length = high - low
        low, high = self.inverse(np.array([low - below * length, high + above * length]))
        return float(low), float(high)


def value_scale(terms: Sequence[Term], bands: Sequence[Band] = (), share: float = 0.02) -> ValueScale:
    """The scale on which the values of all the terms, and their bands, can be read.

    For example, the log-odds of a bin with a dozen rows of one class are far from all the others. If leaving out the
    smallest and the largest `share` of what the terms add to the training rows more than halves the range, the scale is
    linear only on what remains. Where a band of very few rows is far out it leaves the picture.
    """
    values = np.concatenate([term.all_values.ravel() for term in terms])
    weights = np.concatenate([np.repeat(term.weights, term.n_outputs) for term in terms])
    order = np.argsort(values)
    values, below = values[order], np.cumsum(weights[order])
    first, last = np.searchsorted(below, [share * below[-1], (1 - share) * below[-1]])
    inner = min(values[first], 0.0), max(values[min(last, len(values) - 1)], 0.0)
    ends = [_far_ends(term, band) for term, band in zip(terms, bands, strict=False)]
    lows, highs = [low for low, _ in ends], [high for _, high in ends]
    whole = min(0.0, *(term.range[0] for term in terms), *lows), max(0.0, *(term.range[1] for term in terms), *highs)
    if whole[0] == whole[1]:
        whole = (-1.0, 1.0)
    squeezed = 0 < inner[1] - inner[0] < (whole[1] - whole[0]) / 2
    return ValueScale(whole, inner if squeezed else whole)


def _far_ends(term: Term, band: Band) -> tuple[float, float]:
    """The lowest and the highest end of a band, but for the bins of the very few rows where it is furthest out."""
    ends = []
    for values in (band[0].min(axis=1), -band[1].max(axis=1)):
        order = np.argsort(values)
        ends.append(float(values[order][np.searchsorted(np.cumsum(term.shares[order]), FEW_ROWS_SHARE, side="right")]))
    return ends[0], -ends[1]


def set_value_axis(axes: Axes, name: str, values: ValueScale, below: float, above: float) -> None:
    """Give the axis "x" or "y" the scale of values; where it is not linear the background is shaded."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    axis = axes.xaxis if name == "x" else axes.yaxis
    set_limits, line_at, shade = (
        (axes.set_xlim, axes.axvline, axes.axvspan) if name == "x" else (axes.set_ylim, axes.axhline, axes.axhspan)
    )
    low, high = values.padded(below, above)
    line_at(0.0, color=QUIET_COLOR, linewidth=0.6, alpha=0.6, zorder=0.2)
    ticks = MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(*values.inner)
    if values.inner != values.whole:
        getattr(axes, f"set_{name}scale")("function", functions=(values.forward, values.inverse))
        far = np.outer([1, 2, 5], 10.0 ** np.arange(-3, 7)).ravel()
        far = np.concatenate([far, -far])
        far = far[(far >= values.whole[0]) & (far <= values.whole[1])]
        # Zero and the outermost come first, so that `apart` keeps them: they show how far out the far values are.
        outermost = {0.0, far.min(initial=0.0), far.max(initial=0.0)}
        ticks = [*sorted(outermost, key=abs), *sorted([*ticks, *far], key=abs)]
        if values.whole[0] < values.inner[0]:
            shade(low, values.inner[0], color=FAR_COLOR, linewidth=0, zorder=0, gid="far")
        if values.whole[1] > values.inner[1]:
            shade(values.inner[1], high, color=FAR_COLOR, linewidth=0, zorder=0, gid="far")
    axis.set_major_locator(FixedLocator(apart(ticks, values.whole, values.forward)))
    axis.set_major_formatter(FuncFormatter(lambda x, _: compact_number(x)))
    axis.set_minor_locator(NullLocator())
    set_limits(low, high)


def apart(ticks, ends, forward: Callable[[np.ndarray], np.ndarray], least: float = 0.1) -> list[float]:
    """The ticks between the ends, without those that would be drawn close to an earlier one of the list.

    least : the part of the axis that is left between two ticks
    """
    ticks = np.asarray(ticks, dtype=np.float64)
    ticks = ticks[(ticks >= ends[0]) & (ticks <= ends[1])]
    low, high = forward(np.array(ends))
    kept: list[float] = []
    for tick in ticks.tolist():
        place = forward(np.array([tick, *kept]))
        if (np.abs(place[1:] - place[0]) >= least * (high - low)).all():
            kept.append(tick)
    return sorted(kept)


def compact_number(number: float) -> str:
    """A number for a tick: 15k, 2M, 0.25.

    Examples
    --------
    >>> from rbr.plotting.value_axis import compact_number
    >>> [compact_number(x) for x in (0, 0.25, 1990, 15000, 2.5e6, -3e-7)]
    ['0', '0.25', '1990', '15k', '2.5M', '-3e-07']
    """
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= max(unit, 1e4):
            return f"{number / unit:g}{letter}"
    return f"{number:.6g}"
