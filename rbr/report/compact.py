"""A model in a notebook: every term as a line that opens, with a small picture whose pieces tell their numbers.

No script is needed: what is pointed at is shown by the browser itself, so the view works without scripts too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from rbr._text import one_line
from rbr.model.pairs import AnyTerm, PairTerm
from rbr.model.summary import head_of
from rbr.model.terms import Term
from rbr.plotting.panels import loudness

if TYPE_CHECKING:
    from rbr.model import AdditiveModel

MOST_TERMS = 30
MOST_PIECES = 40
WIDTH, HEIGHT = 460, 84
COLORS = ("#d1495b", "#00798c", "#c98a1b", "#7a66b0", "#559070", "#a8714f", "#4a73b5", "#b25fc4")
STYLE = (
    "<style>.rbr{font-size:13px;max-width:760px}.rbr summary{cursor:pointer;padding:3px 0}"
    ".rbr summary i{font-style:normal;opacity:.65}"
    ".rbr b.bar{display:inline-block;height:8px;background:#d1495b;border-radius:2px;margin:0 8px}"
    ".rbr .name{display:inline-block;width:11em;overflow:hidden;text-overflow:ellipsis;vertical-align:bottom}"
    ".rbr svg{max-width:100%;height:auto}.rbr .in{padding:0 0 8px 14px}</style>"
)


def compact_view(model: AdditiveModel) -> str:
    """See `AdditiveModel._repr_html_`."""
    order = sorted(model.terms, key=lambda term: -term.importance)
    largest = max((term.importance for term in order), default=1.0) or 1.0
    head = "<br>".join(escape(line) for line in head_of(model))
    terms = "".join(_line(term, largest) for term in order[:MOST_TERMS])
    more = f"<p>and {len(order) - MOST_TERMS} terms that add less</p>" if len(order) > MOST_TERMS else ""
    return f'<div class="rbr">{STYLE}<p>{head}</p>{terms}{more}</div>'


def _line(term: AnyTerm, largest: float) -> str:
    n = term.n_pieces
    low, high = term.range
    pieces = f"{n} piece{'s' * (n != 1)}"
    if isinstance(term, PairTerm) and term.is_surface:
        pieces = term.size_text
    note = f"{pieces}, {low:+.3g} to {high:+.3g}, mean |effect| {term.importance:.3g}"
    width = max(1, round(120 * term.importance / largest))
    return (
        f'<details><summary><span class="name">{escape(one_line(term.name))}</span>'
        f'<b class="bar" style="width:{width}px"></b>'
        f'<i>{escape(note)}</i></summary><div class="in">{_picture(term)}</div></details>'
    )


def _picture(term: AnyTerm) -> str:
    if isinstance(term, Term) and term.kind == "numeric" and not term.grouped:
        return _steps(term)
    return _bars(term)


def _svg(height: int, label: str, parts: Iterator[str]) -> str:
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    return f'<svg {size} role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'


def _steps(term: Term) -> str:
    """The pieces over the ranks of their rows, so that every piece is as wide as it matters."""
    shares = term.shares[: term.n_ordered]
    edges = np.concatenate([[0.0], np.cumsum(shares / max(shares.sum(), 1e-300))])
    low, high = _room(term)

    def y(value: float) -> float:
        return 6 + (HEIGHT - 12) * (high - min(max(value, low), high)) / (high - low)

    def parts() -> Iterator[str]:
        yield f'<path d="M0 {y(0):.1f}H{WIDTH}" stroke="currentColor" opacity=".3"/>'
        for piece in term.pieces:
            x0, x1 = (4 + (WIDTH - 8) * edges[k] for k in (piece.start, piece.stop))
            x1 = max(x1, x0 + 2)
            rows = float(term.rows[list(piece.bins)].sum())
            shown = []
            for c, (first, last) in enumerate(
                zip(np.atleast_1d(piece.ends[0]), np.atleast_1d(piece.ends[1]), strict=True)
            ):
                shown.append(
                    f'<path d="M{x0:.1f} {y(first):.1f}L{x1:.1f} {y(last):.1f}" stroke="{COLORS[c % 8]}" '
                    f'stroke-width="3" fill="none" opacity="{loudness(rows)}"/>'
                )
            # A transparent column makes the whole width of the piece answer to the pointer.
            area = f'<rect x="{x0:.1f}" y="0" width="{x1 - x0:.1f}" height="{HEIGHT}" fill="transparent"/>'
            words = _words(piece.text, piece, rows, float(term.shares[list(piece.bins)].sum()))
            yield f"<g><title>{escape(words)}</title>{area}{''.join(shown)}</g>"

    caption = f"from {term.positions[0]:.5g} to {term.positions[-1]:.5g}, every piece as wide as its share of the rows"
    missing = ""
    if term.missing_value is not None:
        missing = f"; missing: {_values(np.atleast_1d(term.missing_value))}"
    return _svg(HEIGHT, f"{one_line(term.name)}, {caption}", parts()) + f"<br><i>{escape(caption + missing)}</i>"


def _bars(term: AnyTerm) -> str:
    """A bar for each group of levels, or of cells, the loudest of them."""
    pieces = [(piece, float(term.rows[list(piece.bins)].sum())) for piece in term.pieces]
    shown = sorted(pieces, key=lambda own: -own[1])[:MOST_PIECES]
    shown.sort(key=lambda own: -float(np.mean(own[0].value)))
    low, high = _room(term)
    left, step = 200, 18

    def x(value: float) -> float:
        return left + (WIDTH - left - 8) * (min(max(value, low), high) - low) / (high - low)

    def parts() -> Iterator[str]:
        for k, (piece, rows) in enumerate(shown):
            y, text = k * step + 4, one_line(piece.text)
            label = text if len(text) <= 30 else f"{text[:17]}…{text[-12:]}"
            yield f"<g><title>{escape(_words(text, piece, rows, float(term.shares[list(piece.bins)].sum())))}</title>"
            yield f'<rect x="0" y="{y - 3}" width="{WIDTH}" height="{step}" fill="transparent"/>'
            at = f'x="{left - 8}" y="{y + 10}" text-anchor="end" font-size="11" fill="currentColor"'
            yield f"<text {at}>{escape(label)}</text>"
            values = np.atleast_1d(piece.value)
            for c, value in enumerate(values):
                a, b = sorted((x(0.0), x(float(value))))
                height = 12 / len(values)
                yield (
                    f'<rect x="{a:.1f}" y="{y + c * height:.1f}" width="{max(b - a, 1):.1f}" height="{height:.1f}" '
                    f'fill="{COLORS[c % 8]}" opacity="{loudness(rows)}"/>'
                )
            yield "</g>"

    more = f"<br><i>and {len(pieces) - len(shown)} more of fewer rows</i>" if len(pieces) > len(shown) else ""
    return _svg(step * len(shown) + 6, one_line(term.name), parts()) + more


def _room(term: AnyTerm) -> tuple[float, float]:
    """The range of the values that at least 30 rows support, with zero."""
    known = [
        np.ravel(piece.ends if hasattr(piece, "ends") else piece.value)
        for piece in term.pieces
        if term.rows[list(piece.bins)].sum() >= 30
    ]
    values = np.concatenate([*known, [0.0]]) if known else np.append(term.range, 0.0)
    low, high = float(values.min()), float(values.max())
    return (low, high) if high > low else (low - 1.0, high + 1.0)


def _values(values: np.ndarray) -> str:
    return ", ".join(f"{value:+.4g}" for value in values.tolist())


def _words(text: str, piece, rows: float, share: float) -> str:
    values = _values(np.atleast_1d(piece.value))
    if getattr(piece, "kind", "") == "line" and not math.isclose(*map(float, (np.ravel(e)[0] for e in piece.ends))):
        values = f"{_values(np.atleast_1d(piece.ends[0]))} to {_values(np.atleast_1d(piece.ends[1]))}"
    return f"{text}: {values} ({100 * share:.3g}% of rows, {rows:g})"
