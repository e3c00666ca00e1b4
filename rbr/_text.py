"""Numbers, intervals, tables and curves as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def one_line(text: object) -> str:
    """Text for a table or a picture: newlines, tabs and other characters that cannot be seen as their escapes.

    Examples
    --------
    >>> print(one_line("first\\nsecond"), one_line("zwölf €"))
    first\\nsecond zwölf €
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def class_text(target: str | None, label: object) -> str:
    """What a class is called: its label; if that is a number, with the name of the target before it, or "class".

    Examples
    --------
    >>> class_text("survived", 1), class_text("income", ">50K"), class_text(None, True)
    ('survived = 1', '>50K', 'class True')
    """
    if isinstance(label, str):
        return one_line(label)
    return f"class {one_line(label)}" if target is None else f"{one_line(target)} = {one_line(label)}"


def interval_labels(edges: np.ndarray) -> list[str]:
    if len(edges) == 0:
        return ["any number"]
    texts = short_numbers(edges)
    inner = [f"({left}, {right}]" for left, right in zip(texts[:-1], texts[1:], strict=True)]
    return [f"<= {texts[0]}", *inner, f"> {texts[-1]}"]


def short_numbers(numbers: np.ndarray) -> list[str]:
    """Increasing numbers, with as few digits as keep each within 5 % of the distance to its nearest neighbour."""
    if len(numbers) == 1:
        slack = np.abs(numbers) * 1e-6
    else:
        with np.errstate(over="ignore"):
            gaps = np.diff(numbers)
        slack = 0.05 * np.minimum(np.append(gaps, np.inf), np.insert(gaps, 0, np.inf))
    for n_digits in range(3, 18):
        rounded = [float(f"{x:.{n_digits - 1}e}") for x in numbers]
        if np.isfinite(rounded).all() and (np.abs(np.array(rounded) - numbers) <= slack).all():
            break
    return [f"{x:.{n_digits}g}" if abs(x) >= 1e16 or 0 < abs(x) < 1e-4 else plain_number(x) for x in rounded]


def plain_number(number: float) -> str:
    """A number without an exponent, and without ".0" if it is whole."""
    return np.format_float_positional(number + 0.0, trim="-")


def text_table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[bool]) -> str:
    """Rows under a head and a line, each on one line, in columns that are aligned to the left, or to the right.

    >>> print(text_table(["name", "size"], [["a", "10"], ["bcd", "9"]], [False, True]))
    name  size
    ----------
    a       10
    bcd      9
    """
    cells = [[one_line(text) for text in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def free_name(name: str, taken: Iterable[str]) -> str:
    """The name, with "model_" before it as often as needed to differ from those that are taken.

    Names that differ only in the case of their letters are the same in most databases, and so they are here.

    >>> free_name("score", ["age"]), free_name("score", ["Score"]), free_name("score", ["score", "model_score"])
    ('score', 'model_score', 'model_model_score')
    """
    folded = {own.casefold() for own in taken}
    while name.casefold() in folded:
        name = f"model_{name}"
    return name


BLOCKS = "▁▂▃▄▅▆▇█"
# For terminals that have only the letters of ASCII.
PLAIN_BLOCKS = "_.-=+*#@"


def sparkline(values: np.ndarray, low: float, high: float, blocks: str = BLOCKS) -> str:
    """A curve in one line of text: a block for each value, the higher the larger it is between `low` and `high`.

    >>> sparkline(np.array([0.0, 1.0, 2.0, 3.0]), 0.0, 3.0)
    '▁▃▆█'
    """
    span = high - low if high > low else 1.0
    heights = np.rint((np.asarray(values) - low) / span * (len(blocks) - 1)).astype(int)
    return "".join(blocks[k] for k in np.clip(heights, 0, len(blocks) - 1))
