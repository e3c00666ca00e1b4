"""Which training category each level of a new column is, also if the type of the column has changed.

A category that was the text "1" in training may be the integer 1, the float 1.0 or a bool after a detour through a
file or a database. A level that equals a category is that category. Any other level is compared with the categories of
other types by what it says: numbers by their value, where text that reads as a number, or as true or false, counts as
that number, and everything else by its text. Text is never compared with text in this way: "1" and "01" are two
codes. If a level says the same as several categories, none of which is written as it is, that is an error.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

UNSEEN = -1

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WORDS = {"true": 1, "false": 0}


class Categories:
    """The categories of a column in training, with the look-up of others."""

    def __init__(self, categories: Sequence[Hashable]):
        self.categories = tuple(categories)
        self._index = {category: k for k, category in enumerate(self.categories)}
        self._by_meaning: dict[Any, list[int]] | None = None

    def positions(self, levels: Sequence[Hashable], label: str) -> list[int]:
        """The position of the category that each level is, or UNSEEN; `label` names the column in an error."""
        return [k if (k := self._index.get(level, UNSEEN)) >= 0 else self._other(level, label) for level in levels]

    def _other(self, level: Hashable, label: str) -> int:
        """The category of another type that says what the level says."""
        if self._by_meaning is None:
            self._by_meaning = {}
            for k, category in enumerate(self.categories):
                self._by_meaning.setdefault(meaning(category), []).append(k)
        found = self._by_meaning.get(meaning(level), ())
        found = [k for k in found if not (isinstance(level, str) and isinstance(self.categories[k], str))]
        if len(found) > 1:
            written = [k for k in found if str(self.categories[k]) == str(level)]
            if len(written) != 1:
                could_be = ", ".join(repr(self.categories[k]) for k in found[:5])
                raise ValueError(
                    f"{label} holds {level!r} of type {type(level).__name__}, which could be any of the categories "
                    f"{could_be}; convert the column to the type that it had in training"
                )
            found = written
        return found[0] if found else UNSEEN


def meaning(level: Any) -> Any:
    """What a level says, whatever its type: a number, or else its text.

    >>> [meaning(level) for level in ("01", 1.0, True, "true", np.int8(1), "1.50", "north")]
    [1, 1, 1, 1, 1, 1.5, 'north']
    """
    level = level.item() if isinstance(level, np.generic) else level
    if isinstance(level, str):
        text = level.strip()
        if text.lower() in _WORDS:
            return _WORDS[text.lower()]
        if not _NUMBER.fullmatch(text):
            return level
        level = int(text) if text.lstrip("+-").isdecimal() else float(text)
    if isinstance(level, int):
        return int(level)
    if isinstance(level, (float, Decimal)):
        number = float(level)
        return int(level) if number.is_integer() else number
    return str(level)
