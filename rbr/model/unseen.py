"""Rows whose values training did not have: unknown categories, and missing values where there were none.

Such a value adds 0 to the score, the mean of the term. One row in a hundred may be like that in any table, but a
whole column means that the data have changed, by a new coding for example, and that the model predicts the mean in
silence. So scoring counts these rows, and `on_unseen` says what happens then.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rbr._checks import check_choice
from rbr.data.levels import UNSEEN
from rbr.data.tables import few
from rbr.model.terms import HasColumns, Record, Term

# on_unseen="warn" warns if more than this share of a column's rows is unseen, or missing where training had none.
WARN_SHARE = 0.05

# Rows that come in blocks may have any number of unknown categories; this many are remembered.
MAX_LEVELS = 1000

ON_UNSEEN = ("raise", "warn", "ignore")

# Rows in which gaps are looked for at a time: few enough that their used columns stay in a cache.
ROWS_PER_BLOCK = 4096


class UnseenWarning(UserWarning):
    """Many rows hold values that training did not have. `counts` are their numbers, an `Unseen` for each term."""

    def __init__(self, message: str, counts: Record = Record()):  # noqa: B008 - a tuple does not change
        super().__init__(message)
        self.counts = counts


class UnseenError(ValueError):
    """Rows hold values that training did not have, and `on_unseen` is "raise". `counts` as in `UnseenWarning`."""

    def __init__(self, message: str, counts: Record = Record()):  # noqa: B008 - a tuple does not change
        super().__init__(message)
        self.counts = counts


@dataclass(frozen=True)
class Unseen(HasColumns):
    """How many of the scored rows hold what training did not have, in the columns of one term, any of them.

    Attributes
    ----------
    term : str
    columns : tuple of int
    n_rows : int
        All scored rows.
    n_unseen : int
        Rows with a category that training did not have.
    n_missing : int
        Rows with a missing value, if training had none; else 0.
    levels : tuple
        The categories that training did not have.
    """

    term: str
    columns: tuple[int, ...]
    n_rows: int
    n_unseen: int
    n_missing: int
    levels: tuple

    def plus(self, more: Unseen) -> Unseen:
        """The counts of these rows and of more of them; only the first of many levels are kept."""
        return replace(
            self,
            n_rows=self.n_rows + more.n_rows,
            n_unseen=self.n_unseen + more.n_unseen,
            n_missing=self.n_missing + more.n_missing,
            levels=tuple(dict.fromkeys((*self.levels, *more.levels)))[:MAX_LEVELS],
        )

    def says(self) -> str:
        """The counts in words."""
        parts = []
        if self.n_unseen:
            parts.append(
                f"{self.n_unseen} of {self.n_rows} rows hold categories that training did not have ({few(self.levels)})"
            )
        if self.n_missing:
            parts.append(f"{self.n_missing} of {self.n_rows} rows are missing, and training had no missing value")
        return f"column{'s' * (len(self.columns) > 1)} {self.term!r}: {' and '.join(parts)}"


class Tally:
    """The counts of one call, which the parts of a scorer fill in."""

    def __init__(self) -> None:
        self.counts: list[Unseen] = []

    def add_numbers(self, term: Term, numbers: np.ndarray) -> None:
        """Count the gaps in the column of a numeric term."""
        n_missing = 0 if term.missing_value is not None else int(np.isnan(numbers).sum())
        self.counts.append(Unseen(term.name, term.columns, len(numbers), 0, n_missing, ()))

    def add_array(self, terms: Sequence[Term], X: np.ndarray) -> None:
        """Count the gaps in the columns of numeric terms."""
        watched = [term.columns[0] for term in terms if term.missing_value is None]
        with np.errstate(all="ignore"):
            # A sum is NaN if any number is. (Infinities may make it so too, and then nothing is found.)
            blocks = (X[a : a + ROWS_PER_BLOCK][:, watched].sum() for a in range(0, len(X), ROWS_PER_BLOCK))
            suspect = bool(watched) and np.isnan(sum(blocks))
        for term in terms:
            self.add_numbers(term, X[:, term.columns[0]] if suspect else np.broadcast_to(0.0, len(X)))

    def add_levels(self, term: Term, levels: Sequence, positions: np.ndarray, codes: np.ndarray) -> None:
        """Count the rows of a categorical term: `codes` select among `positions`, and are -1 where missing."""
        counts = np.bincount(codes + 1, minlength=len(levels) + 1)
        unseen = np.flatnonzero((positions == UNSEEN) & (counts[1:] > 0))
        n_missing = 0 if term.missing_value is not None else int(counts[0])
        names = tuple(levels[k] for k in unseen.tolist())
        self.counts.append(Unseen(term.name, term.columns, len(codes), int(counts[1:][unseen].sum()), n_missing, names))

    def add(self, other: Tally) -> None:
        """Add the counts of more rows, of the same terms."""
        if not self.counts:
            self.counts = list(other.counts)
            return
        self.counts = [one.plus(more) for one, more in zip(self.counts, other.counts, strict=True)]

    def settle(self, on_unseen: str) -> None:
        """Raise, warn or do nothing about what was counted."""
        share = 0.0 if on_unseen == "raise" else WARN_SHARE
        told = [own for own in self.counts if max(own.n_unseen, own.n_missing) > share * own.n_rows]
        if not told:
            return
        text = "; ".join(own.says() for own in told)
        counts = Record(self.counts)
        if on_unseen == "raise":
            raise UnseenError(f"{text}; on_unseen is 'raise', so X is not scored", counts)
        message = f"{text}. These values add 0 to the scores. See model.check(X), and on_unseen of predict."
        warnings.warn(UnseenWarning(message, counts), stacklevel=_level_of_user())


def _level_of_user() -> int:
    """The `stacklevel`, in the function that calls this, of the first caller outside rbr and scikit-learn.

    Python shows a warning once for each line that it points at, so a line in here would hide all but the first.
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("rbr", "sklearn"):
        level, frame = level + 1, frame.f_back
    return level


def tally_for(on_unseen: str) -> Tally | None:
    """What counts for a value of `on_unseen`: nothing if it is "ignore"."""
    return None if check_choice(on_unseen, "on_unseen", ON_UNSEEN) == "ignore" else Tally()
